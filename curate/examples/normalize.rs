//! Repairs texts as the `normalize` step does by default.
//!
//! `cargo run --release -p millrace-curate --example normalize -- [REPEAT] < TEXTS.jsonl`
//!
//! Prints `{"text"}` for each line of standard input; with REPEAT the work is repeated that many times, for timing
//! from outside.
#![expect(clippy::print_stdout, reason = "the texts are the result")]

use std::io::BufRead;

use curate::text::repair::NormalizeConfig;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let repeat: usize = std::env::args().nth(1).map_or(Ok(1), |n| n.parse())?;
    let mut texts = Vec::new();
    for line in std::io::stdin().lock().lines() {
        let value: serde_json::Value = serde_json::from_str(&line?)?;
        texts.push(value["text"].as_str().unwrap_or_default().to_string());
    }
    let config = NormalizeConfig::default();
    let mut repaired = texts.clone();
    for _ in 0..repeat {
        for (text, out) in texts.iter().zip(&mut repaired) {
            config.repair(text, out);
        }
    }
    for text in repaired {
        println!("{}", serde_json::json!({ "text": text }));
    }
    Ok(())
}
