//! Parity with datatrove's statistics of texts, recorded by tests/oracles/datatrove_statistics.py.

use curate::statistics::{TEXT_METRICS, measure};
use curate::text::Scratch;
use serde_json::Value;

/// Texts of the golden rows, then the awkward ones.
fn texts(golden: &Value) -> Vec<String> {
    let rows = include_str!("../oracles/golden.jsonl").split('\n').skip(1);
    let of = |line: &str| serde_json::from_str::<Value>(line).unwrap()["text"].clone();
    let rows = rows.filter(|line| !line.is_empty()).map(of);
    let awkward = golden["awkward"].as_array().unwrap().iter().cloned();
    let texts = rows.chain(awkward);
    texts.map(|t| t.as_str().unwrap().to_string()).collect()
}

#[test]
fn every_figure_equals_datatroves_to_the_last_bit() {
    let golden: Value = serde_json::from_str(include_str!("../data/statistics.json")).unwrap();
    let names: Vec<&str> = golden["names"]
        .as_array()
        .unwrap()
        .iter()
        .map(|n| n.as_str().unwrap())
        .collect();
    assert_eq!(names, TEXT_METRICS[1..]);
    let texts = texts(&golden);
    let rows = golden["rows"].as_array().unwrap();
    assert_eq!(texts.len(), rows.len());
    let mut scratch = Scratch::new();
    for (i, (text, row)) in texts.iter().zip(rows).enumerate() {
        let ours = measure(text, &mut scratch);
        assert_eq!(ours[0], text.len() as f64);
        let theirs = row.as_str().unwrap().split(' ');
        for (name, (ours, theirs)) in names.iter().zip(ours[1..].iter().zip(theirs)) {
            let theirs: f64 = theirs.parse().unwrap();
            assert!(
                *ours == theirs,
                "{name} of text {i}: {ours}, datatrove {theirs}"
            );
        }
    }
}
