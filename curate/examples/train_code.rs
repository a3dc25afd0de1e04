//! Trains the source code classifier, and evaluates it on files it has not seen.
//!
//! `cargo run --release -p millrace-curate --example train_code -- TRAIN.jsonl TEST.jsonl MODEL.bin [STEPS]`
//!
//! Lines: `{"text", "language"}`; `prose` is prose, languages without a label are `other`. With `-` for TRAIN the
//! built-in model is measured. Prints correct and total counts by language, by content alone, and the labels that
//! wrong ones got.
#![expect(clippy::print_stdout, reason = "the table is the result")]

use std::collections::BTreeMap;
use std::io::BufRead;

use curate::quality::code::{CODE_LABELS, CodeExamples, CodeTraining, identify_code};

type Texts = Vec<(String, String)>;

fn read(path: &str) -> Result<Texts, Box<dyn std::error::Error>> {
    let mut texts = Vec::new();
    for line in std::io::BufReader::new(std::fs::File::open(path)?).lines() {
        let value: serde_json::Value = serde_json::from_str(&line?)?;
        let field = |name: &str| value[name].as_str().unwrap_or_default().to_string();
        texts.push((field("language"), field("text")));
    }
    Ok(texts)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [train, test, out, rest @ ..] = args.as_slice() else {
        return Err("wanted: TRAIN.jsonl TEST.jsonl MODEL.bin [STEPS]".into());
    };
    if train != "-" {
        let mut settings = CodeTraining::default();
        if let Some(steps) = rest.first() {
            settings.steps = steps.parse()?;
        }
        let mut examples = CodeExamples::new();
        for (language, text) in read(train)? {
            examples.add(&language, &text);
        }
        std::fs::write(out, examples.train(settings))?;
        return Ok(());
    }
    let mut table: BTreeMap<String, (usize, usize, BTreeMap<&str, usize>)> = BTreeMap::new();
    let (mut right, mut all) = (0, 0);
    for (language, text) in read(test)? {
        let known = CODE_LABELS.contains(&language.as_str());
        let label = if known { language } else { "other".to_string() };
        let guess = identify_code(&text, None).label;
        let row = table.entry(label.clone()).or_default();
        row.1 += 1;
        all += 1;
        if guess == label {
            row.0 += 1;
            right += 1;
        } else {
            *row.2.entry(guess).or_default() += 1;
        }
    }
    for (label, (right, all, wrong)) in table {
        println!("{label:12} {right:5} of {all:5}  {wrong:?}");
    }
    println!("all {right} of {all}");
    Ok(())
}
