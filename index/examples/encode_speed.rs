//! Encoding alone on one thread: `cargo run --release -p millrace-index --example encode_speed -- TOKENIZER.json FILE.jsonl`.
//!
//! Prints MB/s of UTF-8 text in thread CPU time for this crate's encoder and for tokenizers 1.0.0-rc.3, cold (first
//! pass) and warm (second pass), in turn, and fails if an id differs.

use std::io::{BufRead, BufReader};
use tokenizers::pipeline::{EncodeOptions, PipelineToken};

/// User and system seconds of this process.
fn cpu_seconds() -> f64 {
    let text = std::fs::read_to_string("/proc/self/schedstat").unwrap_or_default();
    let first = text.split_whitespace().next().and_then(|n| n.parse().ok());
    first.unwrap_or(0.0) / 1e9
}

fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [path, file] = args.as_slice() else {
        return Err("usage: encode_speed TOKENIZER.json FILE.jsonl".into());
    };
    let mut texts = Vec::new();
    for line in BufReader::new(std::fs::File::open(file)?).lines() {
        let value: serde_json::Value = serde_json::from_str(&line?)?;
        texts.push(value["text"].as_str().unwrap_or_default().to_string());
    }
    let bytes: usize = texts.iter().map(String::len).sum();
    let json = std::fs::read_to_string(path)?;
    let library = tokenizers::from_json(&tokenizers::canonicalize_str(&json)?)?;
    let options = EncodeOptions {
        encode_special_tokens: true,
        ..EncodeOptions::no_specials()
    };
    let start = cpu_seconds();
    let ours = index::Tokenizer::load(std::path::Path::new(path))?;
    println!("load: {:.3} s, library included", cpu_seconds() - start);
    let mut encoder = ours.encoder();
    let mut tokens = Vec::new();
    let passes: &[&str] = if std::env::var("OURS").is_ok() {
        &["cold", "warm"]
    } else {
        &["cold", "warm", "warm"]
    };
    for pass in passes {
        let rate = |seconds: f64| bytes as f64 / 1e6 / seconds;
        let start = cpu_seconds();
        let mut count = 0;
        for text in &texts {
            count += encoder.encode(text)?.len();
        }
        let ours = rate(cpu_seconds() - start);
        if std::env::var("OURS").is_ok() {
            println!("{pass} {ours:.0}");
            continue;
        }
        let start = cpu_seconds();
        let mut theirs = 0;
        for text in &texts {
            tokens.clear();
            library.encode_into(text, &options, &mut tokens)?;
            theirs += tokens.len();
        }
        let library = rate(cpu_seconds() - start);
        println!(
            "{pass}: {:.1} MB, {count} tokens, ours {ours:.0} MB/s, library {library:.0} MB/s ({:.2}x)",
            bytes as f64 / 1e6,
            ours / library
        );
        if count != theirs {
            return Err(format!("{count} tokens, the library finds {theirs}").into());
        }
    }
    if std::env::var("OURS").is_ok() {
        return Ok(());
    }
    for text in &texts {
        tokens.clear();
        library.encode_into(text, &options, &mut tokens)?;
        if encoder.encode(text)? != PipelineToken::cast_slice(&tokens) {
            return Err(format!("other ids than the library's: {text:?}").into());
        }
    }
    Ok(())
}
