//! Scores of continuations: against the logits of each sequence run alone, whatever else is asked.

use crate::Error;
use crate::checkpoint::export_hf;
use crate::config::{ParallelConfig, Plan};
use crate::dist::devices::Devices;
use crate::eval::{LanguageModel, Query, Scorer, logits};
use crate::fixtures::{Blanks, Chain, Log, options, tiny_bert, tiny_gpt, tiny_llama, tiny_moe};
use crate::infer::{GenerateOptions, generate};
use crate::trainer::run;
use std::path::PathBuf;

fn trained(mut plan: Plan, folder: &tempfile::TempDir) -> PathBuf {
    plan.train.steps = 20;
    plan.parallel = ParallelConfig::default();
    let samples = Chain::of(&plan);
    run(&plan, &samples, None, folder.path(), &Log::default())
        .unwrap()
        .checkpoint
}

fn query(context: &[u32], continuation: &[u32]) -> Query {
    Query {
        context: context.to_vec(),
        continuation: continuation.to_vec(),
    }
}

/// Queries of different lengths; several share a context or begin another.
fn queries() -> Vec<Query> {
    vec![
        query(&[3, 24, 171], &[7]),
        query(&[3, 24, 171], &[8, 9, 10]),
        query(&[3, 24], &[171, 8]),
        query(&[5; 12], &[1, 2, 3]),
        query(&[1], &[2]),
        query(&[6; 30], &[6, 6]),
        query(&[3, 24, 171], &[7]),
    ]
}

fn scores(scorer: &Scorer, queries: &[Query]) -> Vec<(u64, bool)> {
    let mut done = 0;
    let found = scorer.log_likelihoods(queries, &mut |n| done += n).unwrap();
    assert_eq!(done, queries.len());
    found
        .iter()
        .map(|score| (score.log.to_bits(), score.is_greedy))
        .collect()
}

#[test]
fn scores_are_those_of_each_sequence_alone_to_the_bit() {
    for plan in [vec![tiny_gpt(), tiny_llama(), tiny_moe()], options()].concat() {
        let folder = tempfile::tempdir().unwrap();
        let checkpoint = trained(plan.clone(), &folder);
        let scorer = Scorer::open(&checkpoint, Devices::Cpu.whole()).unwrap();
        let mut asked = queries();
        // what the model itself would write is greedy, whatever its length
        let prompt = [3, 24, 171];
        let all = scorer.generate(&[prompt.to_vec()], 9, &mut |_, _| false, &mut || {});
        let own = all.unwrap().remove(0);
        asked.push(query(&prompt, &own));
        let together = scores(&scorer, &asked);
        assert!(together.last().unwrap().1, "{own:?}");
        for (query, found) in asked.iter().zip(&together) {
            let mut tokens = [query.context.as_slice(), &query.continuation].concat();
            tokens.pop();
            let tokens = tokens.split_off(tokens.len().saturating_sub(plan.seq_length));
            let rows = logits(&checkpoint, &tokens).unwrap();
            let rows = &rows[rows.len() - query.continuation.len()..];
            let (mut log, mut is_greedy) = (0.0, true);
            for (row, &token) in rows.iter().zip(&query.continuation) {
                let best = row.iter().fold(f32::MIN, |best, &x| best.max(x));
                let sum: f64 = row.iter().map(|&x| f64::from(x - best).exp()).sum();
                log += f64::from(row[token as usize] - best) - sum.ln();
                is_greedy &= row.iter().position(|&x| x == best) == Some(token as usize);
            }
            assert!((f64::from_bits(found.0) - log).abs() < 1e-5, "{query:?}");
            assert_eq!(found.1, is_greedy, "{query:?}");
            assert_eq!(
                scores(&scorer, std::slice::from_ref(query)),
                [*found],
                "{query:?}"
            );
        }
    }
}

#[test]
fn a_hugging_face_folder_scores_like_the_checkpoint_it_came_from() {
    let folder = tempfile::tempdir().unwrap();
    let checkpoint = trained(tiny_llama(), &folder);
    let exported = folder.path().join("hf");
    std::fs::create_dir(&exported).unwrap();
    export_hf(&checkpoint, &exported).unwrap();
    let own = Scorer::open(&checkpoint, Devices::Cpu.whole()).unwrap();
    let newest = Scorer::open(checkpoint.parent().unwrap(), Devices::Cpu.whole()).unwrap();
    let theirs = Scorer::open(&exported, Devices::Cpu.whole()).unwrap();
    let wanted = scores(&own, &queries());
    assert_eq!(scores(&newest, &queries()), wanted);
    // another plan adds up attention in other blocks
    let close = |(a, b): (&(u64, bool), &(u64, bool))| {
        let difference = f64::from_bits(a.0) - f64::from_bits(b.0);
        difference.abs() < 1e-5 && a.1 == b.1
    };
    let found = scores(&theirs, &queries());
    assert!(found.iter().zip(&wanted).all(close), "{found:?} {wanted:?}");
    assert_eq!(theirs.max_length(), own.max_length());
}

#[test]
fn generation_is_greedy_and_ends_where_it_is_asked_to() {
    let folder = tempfile::tempdir().unwrap();
    let checkpoint = trained(tiny_gpt(), &folder);
    let scorer = Scorer::open(&checkpoint, Devices::Cpu.whole()).unwrap();
    let wanted = generate(
        &checkpoint,
        &[3, 24],
        &GenerateOptions {
            max_tokens: 10,
            temperature: 0.0,
            ..GenerateOptions::default()
        },
        &mut |_| {},
    )
    .unwrap();
    let go = |most, last: Option<u32>| {
        let mut done = 0;
        let is_done = &mut |_: usize, new: &[u32]| new.last().copied() == last;
        let prompts = vec![vec![3, 24]; 3];
        let found = scorer.generate(&prompts, most, is_done, &mut || done += 1);
        let mut found = found.unwrap();
        assert_eq!((done, &found[0], &found[0]), (3, &found[1], &found[2]));
        found.remove(0)
    };
    assert_eq!(go(10, None), wanted);
    let first = wanted.iter().position(|&token| token == wanted[4]).unwrap();
    assert_eq!(go(10, Some(wanted[4])), wanted[..=first]);
    assert!(go(0, None).is_empty());
}

#[test]
fn models_and_queries_that_cannot_be_scored_are_errors() {
    let (folder, masked) = (tempfile::tempdir().unwrap(), tiny_bert());
    let samples = Blanks::of(&masked);
    let done = run(&masked, &samples, None, folder.path(), &Log::default()).unwrap();
    let opened = Scorer::open(&done.checkpoint, Devices::Cpu.whole());
    assert!(matches!(opened.err(), Some(Error::Request { .. })));
    let folder = tempfile::tempdir().unwrap();
    let scorer = Scorer::open(&trained(tiny_gpt(), &folder), Devices::Cpu.whole()).unwrap();
    for wrong in [query(&[1], &[200]), query(&[], &[1]), query(&[1], &[1; 17])] {
        let found = scorer.log_likelihoods(&[query(&[1], &[2]), wrong], &mut |_| {});
        assert!(matches!(found, Err(Error::Request { .. })), "{found:?}");
    }
    let beyond = scorer.generate(&[vec![1; 10]], 7, &mut |_, _| false, &mut || {});
    assert!(matches!(beyond, Err(Error::Request { .. })));
}
