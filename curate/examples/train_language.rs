//! Trains the built-in language model from the file that `tests/oracles/language_sets.py` writes.
//!
//! `cargo run --release -p millrace-curate --example train_language -- SETS.tsv MODEL.bin [STEPS BITS RATE]`
//!
//! Lines: `train SOURCE CODE TEXT`, `words SOURCE CODE WORD COUNT`; `test` lines are ignored.

#![expect(clippy::print_stderr, reason = "a program for developers, run by hand")]

use std::io::BufRead;

use curate::language::{LanguageExamples, LanguageTraining};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [sets, out, rest @ ..] = args.as_slice() else {
        return Err("wanted: SETS.tsv MODEL.bin [STEPS BITS RATE]".into());
    };
    let mut settings = LanguageTraining::default();
    if let Some(steps) = rest.first() {
        settings.steps = steps.parse()?;
    }
    if let Some(bits) = rest.get(1) {
        settings.bits = bits.parse()?;
    }
    if let Some(rate) = rest.get(2) {
        settings.rate = rate.parse()?;
    }
    let mut examples = LanguageExamples::new(settings);
    for line in std::io::BufReader::new(std::fs::File::open(sets)?).lines() {
        let line = line?;
        let fields: Vec<&str> = line.split('\t').collect();
        match fields.as_slice() {
            ["train", _, code, text] => examples.sentence(code, text),
            ["words", _, code, word, count] => examples.word(code, word, count.parse()?),
            _ => {}
        }
    }
    let model = examples.train(|step, loss| eprintln!("{step:>10} steps, loss {loss:.4}"));
    std::fs::write(out, model)?;
    Ok(())
}
