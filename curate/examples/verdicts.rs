//! What the four filters, the word splitter and MinHash say about each document of a JSONL file.
//!
//! `cargo run --release -p millrace-curate --example verdicts -- FILE [words|shingles|judge]`
//! prints one JSON line per document, for comparison with datatrove by tests/oracles/*.py.

use std::io::{self, BufRead, BufReader, Write};

use curate::{
    C4Quality, FinewebQuality, GopherQuality, GopherRepetition, MinhashConfig, MinhashScratch,
    Minhasher, Scratch, Splitter, Verdict,
};
use serde_json::{Value, json};

fn told(verdict: Verdict) -> Value {
    match verdict {
        Verdict::Continue(()) => Value::Bool(true),
        Verdict::Break(reason) => json!([reason.rule, reason.value]),
    }
}

fn judge(text: &str, scratch: &mut Scratch) -> Value {
    let mut rewritten = String::new();
    let c4 = told(C4Quality::default().judge(text, scratch, &mut rewritten));
    json!({
        "gopher_repetition": told(GopherRepetition::default().judge(text, scratch)),
        "gopher_quality": told(GopherQuality::default().judge(text, scratch)),
        "after_c4": if c4 == true { json!(rewritten) } else { Value::Null },
        "c4_quality": c4,
        "fineweb_quality": told(FinewebQuality::default().judge(text, scratch)),
    })
}

fn main() -> io::Result<()> {
    let mut args = std::env::args().skip(1);
    let file = std::fs::File::open(args.next().unwrap_or_default())?;
    let what = args.next().unwrap_or_default();
    let mut out = io::BufWriter::new(io::stdout().lock());
    let mut scratch = Scratch::new();
    let mut splitter = Splitter::new();
    let hasher = Minhasher::new(&MinhashConfig::default());
    let mut buffers = MinhashScratch::default();
    for line in BufReader::new(file).lines() {
        let record: Value = serde_json::from_str(&line?)?;
        let text = record["text"].as_str().unwrap_or_default();
        let told = match what.as_str() {
            "words" => {
                let mut words = Vec::new();
                splitter.split(text, &mut words);
                json!(words.iter().map(|w| w.of(text)).collect::<Vec<_>>())
            }
            "shingles" => json!(hasher.shingles(text, &mut splitter, &mut buffers)),
            _ => judge(text, &mut scratch),
        };
        writeln!(out, "{told}")?;
    }
    Ok(())
}
