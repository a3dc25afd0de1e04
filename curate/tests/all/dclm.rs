//! Parity with DCLM, recorded by tests/oracles/dclm.py.

use std::collections::BTreeMap;

use curate::filter::Dclm;
use curate::text::Scratch;
use curate::verdict::Verdict;
use serde_json::Value;

#[test]
fn every_page_is_judged_and_edited_as_dclm_does() {
    let packed = include_bytes!("../data/dclm.json.zst");
    let rows: Vec<Value> = serde_json::from_slice(&zstd::decode_all(&packed[..]).unwrap()).unwrap();
    let (mut scratch, mut out) = (Scratch::new(), String::new());
    let rules = Dclm {
        remove_urls: false,
        ..Dclm::default()
    };
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    for (i, row) in rows.iter().enumerate() {
        let text = row["input"].as_str().unwrap();
        let found = match rules.judge(text, &mut scratch, &mut out) {
            // the checkout has one name for too few and too many words, and for too short and too long ones
            Verdict::Break(reason) => Value::String(
                (reason.rule.trim_start_matches("dclm."))
                    .replace("min_", "")
                    .replace("max_", ""),
            ),
            Verdict::Continue(()) => Value::Null,
        };
        assert_eq!(found, row["rule"], "row {i}: {text:?}");
        if found.is_null() {
            assert_eq!(out, row["text"].as_str().unwrap_or(text), "row {i}");
        }
        *seen
            .entry(found.as_str().unwrap_or("kept").to_string())
            .or_default() += 1;
    }
    assert!(seen["kept"] > 200 && seen.len() > 12, "{seen:?}");
}
