//! Tests of the engine: every answer has the bits of the forward pass of its text alone, whatever runs beside it.

use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::Error;
use crate::config::{ParallelConfig, Plan};
use crate::dist::devices::Devices;
use crate::eval::logits;
use crate::fixtures::{Chain, Log, options, tiny_gpt, tiny_llama, tiny_moe, tiny_t5, samples_of};
use crate::infer::engine::{Counts, Engine, Event, Finish, Limits, Request};
use crate::infer::sample::{Scored, scored};
use crate::infer::{BeamOptions, GenerateOptions, beam_search, generate};
use crate::trainer::run;

fn trained(mut plan: Plan, folder: &tempfile::TempDir) -> PathBuf {
    plan.train.steps = 20;
    plan.parallel = ParallelConfig::default();
    let samples = samples_of(&plan);
    let out = folder.path();
    let outcome = run(&plan, samples.as_ref(), None, out, &Log::default());
    outcome.unwrap().checkpoint
}

fn engine(checkpoint: &PathBuf, limits: Limits) -> Engine {
    Engine::open(checkpoint, &Devices::Cpu, limits).unwrap()
}

fn request(prompt: &[u32], options: GenerateOptions) -> Request {
    Request {
        prompt: prompt.to_vec(),
        options,
        slides: false,
    }
}

/// All that a request got.
#[derive(Clone, Debug, Default, PartialEq)]
struct Answer {
    prompt: Vec<Option<Scored>>,
    tokens: Vec<u32>,
    scored: Vec<Option<Scored>>,
    finish: Option<Finish>,
}

/// Runs until idle; answers by request.
fn answers(engine: &mut Engine) -> BTreeMap<u64, Answer> {
    let mut answers = BTreeMap::<u64, Answer>::new();
    while !engine.is_idle() {
        for event in engine.step().unwrap() {
            match event {
                Event::Started { .. } => {}
                Event::Prompt { id, scores, .. } => answers.entry(id).or_default().prompt = scores,
                Event::Token { id, token, scored } => {
                    let answer = answers.get_mut(&id).expect("the prompt is reported first");
                    answer.tokens.push(token);
                    answer.scored.push(scored);
                }
                Event::Finished { id, finish } => {
                    let answer = answers.entry(id).or_default();
                    assert_eq!(answer.finish.replace(finish), None, "finished once");
                }
            }
        }
    }
    answers
}

/// Prompts of many lengths; some begin alike over whole blocks.
fn prompts() -> Vec<Vec<u32>> {
    let long: Vec<u32> = (0..25).map(|i| (i * 37 + 11) % 250).collect();
    let other = [&long[..20], &[9, 8, 7]].concat();
    vec![
        vec![3, 24, 171],
        long.clone(),
        other,
        vec![5; 17],
        vec![200],
        long[..16].to_vec(),
        vec![7, 7, 8, 7, 7, 8, 7, 7],
    ]
}

/// Log-probabilities of the prompt and of a greedy answer by forward passes alone.
fn by_forward(checkpoint: &PathBuf, prompt: &[u32], answer: &[u32], top: usize) -> Answer {
    let whole = [prompt, answer].concat();
    let rows = logits(checkpoint, &whole[..whole.len() - 1]).unwrap();
    let score = |at: usize| Some(scored(&rows[at - 1], whole[at], top));
    let scores = (1..prompt.len()).map(score);
    Answer {
        prompt: std::iter::once(None).chain(scores).collect(),
        tokens: answer.to_vec(),
        scored: (prompt.len()..whole.len()).map(score).collect(),
        finish: Some(Finish::Length),
    }
}

#[test]
fn answers_have_the_bits_of_the_forward_pass_in_any_company() {
    let wide = Limits::default();
    let narrow = Limits {
        max_sequences: 3,
        max_batch_tokens: 7,
        ..wide.clone()
    };
    let tight = Limits {
        cache_tokens: 64,
        ..wide.clone()
    };
    let guessing = Limits {
        draft_tokens: 3,
        ..wide.clone()
    };
    for plan in [vec![tiny_gpt(), tiny_llama(), tiny_moe()], options()].concat() {
        let (folder, limit) = (tempfile::tempdir().unwrap(), plan.seq_length);
        let checkpoint = trained(plan, &folder);
        let prompts: Vec<Vec<u32>> = prompts()
            .into_iter()
            .map(|prompt| prompt[..prompt.len().min(limit - 6)].to_vec())
            .collect();
        let mut wanted: Option<Vec<Answer>> = None;
        for limits in [&wide, &narrow, &tight, &guessing] {
            let mut engine = engine(&checkpoint, limits.clone());
            // the second round finds the first one's blocks
            for round in 0..2 {
                let mut ids = Vec::new();
                for (number, prompt) in prompts.iter().enumerate() {
                    let options = GenerateOptions {
                        logprobs: Some(3),
                        prompt_logprobs: (number % 2 == 0).then_some(2),
                        ..GenerateOptions::greedy((limit - prompt.len()).min(20))
                    };
                    ids.push(engine.submit(request(prompt, options)).unwrap());
                }
                let mut found = answers(&mut engine);
                let found: Vec<Answer> = ids.iter().map(|id| found.remove(id).unwrap()).collect();
                let Some(wanted) = &wanted else {
                    for (number, (answer, prompt)) in found.iter().zip(&prompts).enumerate() {
                        let mut alone = by_forward(&checkpoint, prompt, &answer.tokens, 3);
                        if number % 2 == 0 {
                            for scored in alone.prompt.iter_mut().flatten() {
                                scored.top.truncate(2);
                            }
                        } else {
                            alone.prompt.clear();
                        }
                        assert_eq!(*answer, alone);
                        for scored in answer.scored.iter().flatten() {
                            assert_eq!(scored.rank, 0, "greedy");
                        }
                    }
                    wanted = Some(found);
                    continue;
                };
                assert_eq!(&found, wanted, "{limits:?}, round {round}");
            }
            let counts = engine.counts();
            assert_eq!((counts.blocks_held, counts.running), (0, 0));
            assert!(counts.cached_tokens > 0 || limit < 32, "{counts:?}");
            if *limits == tight && limit >= 32 {
                assert!(counts.preemptions > 0, "{counts:?}");
            }
            assert_eq!(counts.drafted_tokens > 0, *limits == guessing, "{counts:?}");
        }
    }
}
