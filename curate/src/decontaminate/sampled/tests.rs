//! Parity with decon itself, recorded by tests/oracles/decon_scores.py.

use std::collections::HashSet;

use serde_json::Value;

use super::*;
use crate::decontaminate::evaluation::Entry;

fn golden() -> Value {
    let packed = include_bytes!("../../../tests/data/decon.json.zst");
    serde_json::from_slice(&zstd::decode_all(&packed[..]).unwrap()).unwrap()
}

/// The golden's records with the rules of one of its runs, and the lines of those that are searched for.
fn index(golden: &Value, settings: &Value) -> (Index, Vec<usize>) {
    let size = |key: &str, own: usize| {
        let setting = settings[key].as_u64();
        setting.map_or(own, |n| usize::try_from(n).unwrap())
    };
    let own = SampledRules::default();
    let score = settings["contamination-score-threshold"].as_f64();
    let rules = SampledRules {
        sample_every: size("sample-every-m-tokens", own.sample_every),
        max_misses: size("question-max-consecutive-misses", own.max_misses),
        min_score: score.unwrap_or(own.min_score),
        whole_tokens: size("perfect-match-decay-start", own.whole_tokens),
        free_tokens: size("perfect-match-decay-end", own.free_tokens),
        min_tokens: size("eval-min-token-length", own.min_tokens),
        ..own
    };
    let mut index = Index::new(&rules, size("ngram-size", 5));
    let mut tasks: Vec<&str> = Vec::new();
    let mut lines = Vec::new();
    for (line, record) in golden["records"].as_array().unwrap().iter().enumerate() {
        let name = record["eval_key"].as_str().unwrap();
        let task = tasks.iter().position(|t| *t == name).unwrap_or_else(|| {
            tasks.push(name);
            tasks.len() - 1
        });
        let entry = Entry::Record(record.as_object().unwrap());
        if index.add(&entry, u32::try_from(task).unwrap()) > 0 {
            lines.push(line);
        }
    }
    index.weigh();
    (index, lines)
}

#[test]
fn records_found_and_their_scores_are_decons() {
    let golden = golden();
    let documents = golden["documents"].as_array().unwrap();
    let mut compared = 0;
    for run in golden["runs"].as_array().unwrap() {
        let (index, lines) = index(&golden, &run["settings"]);
        let mut found = Vec::new();
        for (at, document) in documents.iter().enumerate() {
            let mut seen = HashSet::new();
            for hit in index.hits(&Tokens::of(document.as_str().unwrap())) {
                // decon reports a record once per position
                if seen.insert((hit.record, hit.start)) {
                    let line = lines[hit.record as usize];
                    found.push((at, line, hit.start, hit.score));
                }
            }
        }
        found.sort_by_key(|hit| (hit.0, hit.1, hit.2));
        let want = run["hits"].as_array().unwrap().iter();
        let want: Vec<(usize, usize, usize, f32)> = want
            .map(|hit| serde_json::from_value(hit.clone()).unwrap())
            .collect();
        let settings = &run["settings"];
        for (found, want) in found.iter().zip(&want) {
            let same = (found.0, found.1, found.2) == (want.0, want.1, want.2);
            assert!(same, "{found:?} for {want:?} with {settings}");
            assert_eq!(
                found.3.to_bits(),
                want.3.to_bits(),
                "{found:?} for {want:?} with {settings}"
            );
        }
        assert_eq!(found.len(), want.len(), "{settings}");
        compared += found.len();
    }
    assert!(compared > 1000, "{compared}");
}

#[test]
fn the_best_record_names_task_score_and_words() {
    let golden = golden();
    let (index, lines) = index(&golden, &serde_json::json!({}));
    let record = lines.iter().position(|line| *line == 3).unwrap();
    let question = golden["records"][3]["question"].as_str().unwrap();
    let answer = golden["records"][3]["answer"].as_str().unwrap_or_default();
    let text = format!("Some words before it all. {question} {answer}, and some behind.");
    let (task, score, words) = index.meet(&text).unwrap();
    assert_eq!(task, index.task(u32::try_from(record).unwrap()));
    let mut clean = String::new();
    clean::clean(question, &mut clean);
    assert!(
        score > 0.8 && words.contains(&clean[1..clean.len() - 1]),
        "{score} {words}"
    );
    assert!(
        index
            .meet("Nothing of any of them is in this text at all.")
            .is_none()
    );
}

#[test]
fn repeats_of_what_many_records_share_take_time_in_proportion() {
    let rules = SampledRules {
        min_tokens: 1,
        min_unique_words: 1,
        ..SampledRules::default()
    };
    let mut index = Index::new(&rules, 5);
    for i in 0..3000 {
        let line = format!("which of the following statements about it is true {i}");
        assert_eq!(index.add(&Entry::Line(&line), 0), 1);
    }
    index.weigh();
    let started = std::time::Instant::now();
    let hot = "which of the following statements about it is true ".repeat(5_000);
    assert!(index.meet(&hot).is_none());
    // quadratic work would take minutes
    assert!(started.elapsed().as_secs() < 20);
}
