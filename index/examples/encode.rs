//! Prints the ids of every line's `text`: `cargo run --release -p millrace-index --example encode -- TOKENIZER.json
//! FILE.jsonl`.
//!
//! One JSON array per line, for comparison with other encoders.

use std::io::{BufRead, BufReader, BufWriter, Write};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [tokenizer, file] = args.as_slice() else {
        return Err("usage: encode TOKENIZER.json FILE.jsonl".into());
    };
    let tokenizer = index::tokenizer::Tokenizer::load(std::path::Path::new(tokenizer))?;
    let mut out = BufWriter::new(std::io::stdout().lock());
    for line in BufReader::new(std::fs::File::open(file)?).lines() {
        let value: serde_json::Value = serde_json::from_str(&line?)?;
        let ids = tokenizer.encode(value["text"].as_str().unwrap_or_default())?;
        writeln!(out, "{}", serde_json::Value::from(ids))?;
    }
    Ok(())
}
