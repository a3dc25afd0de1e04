//! Prints the results of the four filters, the word splitter and MinHash for each document of a JSONL file.
//!
//! `cargo run --release -p millrace-curate --example verdicts -- FILE [words|shingles|step|judge]`
//! prints one JSON line per document, for comparison with other programs by tests/oracles/*.py. With `step` a line holds the
//! step as a job file has it, `{"text": .., "step": {"nemo": {}}}`, and the answer has all its figures.

use std::io::{self, BufRead, BufReader, Write};

use curate::dedup::{MinhashConfig, MinhashScratch, Minhasher};
use curate::filter::{C4Quality, Fineweb2Filter, FinewebQuality, GopherQuality, GopherRepetition};
use curate::pipeline::Step;
use curate::text::{Scratch, Splitter};
use curate::verdict::{Judge, Verdict};
use serde_json::{Value, json};

fn verdict_json(verdict: Verdict) -> Value {
    match verdict {
        Verdict::Continue(()) => Value::Bool(true),
        Verdict::Break(reason) => json!([reason.rule, reason.value]),
    }
}

fn judge(text: &str, scratch: &mut Scratch) -> Value {
    let mut rewritten = String::new();
    let c4 = verdict_json(C4Quality::default().judge(text, scratch, &mut rewritten));
    json!({
        "gopher_repetition": verdict_json(GopherRepetition::default().judge(text, scratch)),
        "gopher_quality": verdict_json(GopherQuality::default().judge(text, scratch)),
        "after_c4": if c4 == true { json!(rewritten) } else { Value::Null },
        "c4_quality": c4,
        "fineweb_quality": verdict_json(FinewebQuality::default().judge(text, scratch)),
    })
}

/// Verdict, figures and text of one of the profiles that follow other programs.
fn profile(text: &str, step: &Value, scratch: &mut Scratch) -> io::Result<Value> {
    let mut judge = Judge::measuring();
    let mut rewritten = text.to_string();
    let verdict = match serde_json::from_value(step.clone())? {
        Step::Nemo(rules) => {
            // all metrics are measured, whatever the verdict
            let _ = rules.measure(text, scratch, &mut judge);
            rules.judge(text, scratch)
        }
        Step::Dolma(rules) => {
            let _ = rules.measure(text, scratch, &mut judge);
            rules.judge(text, scratch)
        }
        Step::Dclm(rules) => {
            let _ = rules.measure(text, scratch, &mut rewritten, &mut judge);
            rules.judge(text, scratch, &mut rewritten)
        }
        Step::C4(rules) => rules.judge(text, scratch, &mut rewritten),
        Step::Fineweb2(config) => {
            let filter = Fineweb2Filter::open(&config).map_err(io::Error::other)?;
            filter.judge(text, scratch)
        }
        other => return Err(io::Error::other(format!("no profile: {other:?}"))),
    };
    let figures: serde_json::Map<String, Value> = judge
        .metrics()
        .iter()
        .map(|m| (m.rule.clone(), json!(m.value)))
        .collect();
    Ok(json!({"verdict": verdict_json(verdict), "figures": figures, "text": rewritten}))
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
        let verdict_json = match what.as_str() {
            "words" => {
                let mut words = Vec::new();
                splitter.split(text, &mut words);
                json!(words.iter().map(|w| w.of(text)).collect::<Vec<_>>())
            }
            "shingles" => json!(hasher.shingles(text, &mut splitter, &mut buffers)),
            "step" => profile(text, &record["step"], &mut scratch)?,
            _ => judge(text, &mut scratch),
        };
        writeln!(out, "{verdict_json}")?;
    }
    Ok(())
}
