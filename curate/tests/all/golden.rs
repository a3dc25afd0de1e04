//! Parity with datatrove, recorded by tests/oracles/datatrove_golden.py.

use curate::dedup::{MinhashConfig, MinhashScratch, Minhasher};
use curate::filter::{C4Quality, FinewebQuality, GopherQuality, GopherRepetition};
use curate::text::{Scratch, Splitter};
use curate::verdict::Verdict;
use serde_json::Value;

/// The recorded rows, without the line of versions.
fn rows() -> Vec<Value> {
    include_str!("../oracles/golden.jsonl")
        .split('\n')
        .skip(1)
        .filter(|line| !line.is_empty())
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

fn text(row: &Value) -> &str {
    row["text"].as_str().unwrap()
}

/// `true`, or datatrove's name for our reason.
fn verdict_json(verdict: Verdict) -> Value {
    match verdict {
        Verdict::Continue(()) => Value::Bool(true),
        Verdict::Break(reason) => {
            let (filter, rule) = reason.rule.split_once('.').unwrap();
            let prefix = if filter == "gopher_quality" {
                "gopher_"
            } else {
                ""
            };
            Value::String(format!("{prefix}{rule}"))
        }
    }
}

#[test]
fn words_equal_spacys_on_every_text() {
    let mut splitter = Splitter::new();
    let mut words = Vec::new();
    for row in rows() {
        splitter.split(text(&row), &mut words);
        let ours: Vec<&str> = words.iter().map(|w| w.of(text(&row))).collect();
        let spacys: Vec<&str> = row["words"].as_str().unwrap().split('\t').collect();
        assert_eq!(ours, spacys);
    }
}

#[test]
fn every_filter_gives_datatroves_verdict() {
    let mut scratch = Scratch::new();
    let mut out = String::new();
    for (i, row) in rows().iter().enumerate() {
        let text = text(row);
        let repetition = GopherRepetition::default().judge(text, &mut scratch);
        assert_eq!(
            verdict_json(repetition),
            row["gopher_repetition"],
            "row {i}"
        );
        let quality = GopherQuality::default().judge(text, &mut scratch);
        assert_eq!(verdict_json(quality), row["gopher_quality"], "row {i}");
        let c4 = C4Quality::default().judge(text, &mut scratch, &mut out);
        assert_eq!(verdict_json(c4), row["c4"], "row {i}");
        if row["c4"] == true {
            assert_eq!(out, row["after_c4"].as_str().unwrap(), "row {i}");
        }
        let fineweb = FinewebQuality::default().judge(text, &mut scratch);
        assert_eq!(verdict_json(fineweb), row["fineweb"], "row {i}");
    }
}

#[test]
fn the_recorded_verdicts_cover_the_rules() {
    let rows = rows();
    for (filter, least) in [
        ("gopher_repetition", 10),
        ("gopher_quality", 9),
        ("c4", 4),
        ("fineweb", 4),
    ] {
        let mut seen: Vec<String> = rows.iter().map(|r| r[filter].to_string()).collect();
        seen.sort();
        seen.dedup();
        assert!(seen.len() >= least, "{filter}: {seen:?}");
    }
}

#[test]
fn a_slightly_different_limit_is_noticed() {
    let strict = GopherQuality {
        max_symbol_word_ratio: 0.01,
        ..GopherQuality::default()
    };
    let mut scratch = Scratch::new();
    let differs = rows()
        .iter()
        .any(|row| verdict_json(strict.judge(text(row), &mut scratch)) != row["gopher_quality"]);
    assert!(differs, "the golden texts cannot tell a wrong limit");
}

#[test]
fn shingles_and_signatures_equal_datatroves() {
    let hasher = Minhasher::new(&MinhashConfig::default());
    let (mut splitter, mut scratch) = (Splitter::new(), MinhashScratch::default());
    let mut signature = Vec::new();
    for row in rows() {
        let shingles = hasher.shingles(text(&row), &mut splitter, &mut scratch);
        let first: Vec<u64> = shingles.iter().take(3).copied().collect();
        assert_eq!(serde_json::json!(first), row["shingles"]);
        let has = hasher.signature(text(&row), &mut splitter, &mut scratch, &mut signature);
        let sparse: Vec<u64> = signature.iter().step_by(13).copied().collect();
        let ours = if has {
            serde_json::json!(sparse)
        } else {
            Value::Null
        };
        assert_eq!(ours, row["signature"]);
    }
}

#[test]
fn a_cache_that_has_seen_other_texts_changes_nothing() {
    let rows = rows();
    let mut warm = Splitter::new();
    let (mut a, mut b) = (Vec::new(), Vec::new());
    for row in rows.iter().chain(rows.iter().rev()) {
        warm.split(text(row), &mut a);
        Splitter::new().split(text(row), &mut b);
        assert_eq!(a, b);
    }
}
