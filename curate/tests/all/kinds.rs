//! Pages of kinds that public sets have few of (long, repetitive, mathematical, tabular, non-Latin, threads of
//! forums), in templates of engines: their text comes through, by the F1 of word 4-shingles.
//!
//! `tests/oracles/extraction_pages.py --golden` made the pages; their main text is certain, since it was put there. The
//! texts are public domain (novels, addresses, Declaration of Human Rights), CC-BY-4.0 (movie reviews, sentences of the
//! Leipzig Corpora) and CC-BY-SA (Wikipedia).

use std::collections::HashMap;
use std::io::BufRead;
use std::path::Path;

use curate::extract::extract_html;

/// Scripts whose characters are words of their own, as in tests/oracles/extraction_scores.py.
fn stands_alone(c: char) -> bool {
    matches!(u32::from(c), 0xe00..=0xe7f | 0x3040..=0x30ff | 0x3400..=0x9fff | 0xac00..=0xd7af)
}

fn words(text: &str) -> Vec<String> {
    let mut found = vec![String::new()];
    for c in text.to_lowercase().chars() {
        let is_whole = stands_alone(c);
        if is_whole || !(c.is_alphanumeric() || c == '_') {
            found.push(String::new());
        }
        if is_whole {
            found.push(c.to_string());
            found.push(String::new());
        } else if c.is_alphanumeric() || c == '_' {
            found.last_mut().unwrap().push(c);
        }
    }
    found.retain(|word| !word.is_empty());
    found
}

/// F1 of the multisets of four successive words.
fn f1(text: &str, gold: &str) -> f64 {
    let (text, gold) = (words(text), words(gold));
    let mut wanted: HashMap<&[String], i64> = HashMap::new();
    for shingle in gold.windows(4) {
        *wanted.entry(shingle).or_default() += 1;
    }
    let mut both = 0;
    for shingle in text.windows(4) {
        if let Some(left) = wanted.get_mut(shingle).filter(|left| **left > 0) {
            *left -= 1;
            both += 1;
        }
    }
    let all = text.len().saturating_sub(3) + gold.len().saturating_sub(3);
    2.0 * f64::from(both) / all.max(1) as f64
}

#[test]
fn f1_is_of_shingles_of_four_words() {
    assert_eq!(f1("a b c d e", "A, b c d; e"), 1.0);
    // One of two shingles of each is in the other.
    assert_eq!(f1("a b c d x", "a b c d e"), 0.5);
    assert_eq!(words("\u{6cb3}\u{6c34} x1"), ["\u{6cb3}", "\u{6c34}", "x1"]);
    assert_eq!(f1("", "a b c d"), 0.0);
}

/// Mean F1 of the pages of a kind, and the worst page.
fn score(kind: &str) -> (f64, f64, String) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("data/kinds.jsonl.zst");
    let lines =
        std::io::BufReader::new(zstd::Decoder::new(std::fs::File::open(path).unwrap()).unwrap())
            .lines();
    let mut found = Vec::new();
    for line in lines {
        let row: serde_json::Value = serde_json::from_str(&line.unwrap()).unwrap();
        if row["kind"] == kind {
            let text = extract_html(row["html"].as_str().unwrap().as_bytes(), None).text;
            let template = row["template"].as_str().unwrap().to_string();
            found.push((f1(&text, row["text"].as_str().unwrap()), template));
        }
    }
    assert!(found.len() >= 6, "{kind}: {} pages", found.len());
    let mean = found.iter().map(|f| f.0).sum::<f64>() / found.len() as f64;
    let (least, template) = found
        .into_iter()
        .min_by(|a, b| a.0.total_cmp(&b.0))
        .unwrap();
    (mean, least, template)
}

fn comes_through(kind: &str, least_mean: f64, least_of_a_page: f64) {
    let (mean, worst, template) = score(kind);
    assert!(mean >= least_mean, "{kind}: mean F1 {mean}");
    assert!(worst >= least_of_a_page, "{kind} in {template}: F1 {worst}");
}

#[test]
fn long_pages_come_through() {
    comes_through("long", 0.995, 0.99);
}

#[test]
fn repetitive_pages_come_through() {
    comes_through("repetitive", 0.98, 0.95);
}

#[test]
fn mathematical_pages_come_through() {
    comes_through("mathematical", 0.98, 0.97);
}

#[test]
fn tabular_pages_come_through() {
    comes_through("tabular", 0.98, 0.97);
}

#[test]
fn non_latin_pages_come_through() {
    comes_through("non_latin", 0.97, 0.93);
}

#[test]
fn threads_come_through() {
    comes_through("forum", 0.97, 0.85);
}
