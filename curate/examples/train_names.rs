//! Trains the built-in model of names and addresses from the folder that `tests/oracles/names_sets.py` writes.
//!
//! `cargo run --release -p millrace-curate --example train_names -- SETS MODEL.bin`

#![expect(clippy::print_stderr, reason = "a program for developers, run by hand")]

use std::error::Error;
use std::path::Path;

use curate::pii::{NameExamples, NameTraining, NamedSpan};
use serde::Deserialize;

/// A line of `train.jsonl`; positions are in characters.
#[derive(Deserialize)]
struct Row {
    text: String,
    spans: Vec<Span>,
}

#[derive(Deserialize)]
struct Span(usize, usize, String);

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [sets, out] = args.as_slice() else {
        return Err("wanted: SETS MODEL.bin".into());
    };
    let mut examples = NameExamples::new(NameTraining::default());
    for line in std::fs::read_to_string(Path::new(sets).join("lists.tsv"))?.lines() {
        let (classes, word) = line
            .split_once('\t')
            .ok_or("lists.tsv: wanted CLASSES, tab, WORD")?;
        examples.word(word, classes.parse()?);
    }
    for line in std::fs::read_to_string(Path::new(sets).join("train.jsonl"))?.lines() {
        let row: Row = serde_json::from_str(line)?;
        let at: Vec<usize> = row
            .text
            .char_indices()
            .map(|c| c.0)
            .chain([row.text.len()])
            .collect();
        let spans = row.spans.iter().map(|Span(start, end, kind)| NamedSpan {
            start: at[*start],
            end: at[*end],
            is_address: kind == "address",
        });
        examples.text(&row.text, &spans.collect::<Vec<_>>());
    }
    let model = examples.train(|line| eprintln!("{line}"))?;
    std::fs::write(out, model)?;
    Ok(())
}
