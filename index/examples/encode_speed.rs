//! Speed of encoding alone on one thread, compared with tokenizers 1.0.0-rc.3 in the same process:
//! `cargo run --release -p millrace-index --example encode_speed -- TOKENIZER FILE.jsonl [--ours]`.
//!
//! Prints MB/s of UTF-8 text in this process's CPU time, cold (first pass) and warm (second), alternating, and
//! fails if an id differs. `--ours` leaves the library out, for profilers. TOKENIZER is a `tokenizer.json`.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use tokenizers::pipeline::{EncodeOptions, PipelineToken};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// Seconds that this process was on a core.
fn cpu_seconds() -> f64 {
    let text = std::fs::read_to_string("/proc/self/schedstat").unwrap_or_default();
    let first = text.split_whitespace().next().and_then(|n| n.parse().ok());
    first.unwrap_or(0.0) / 1e9
}

fn texts(file: &str) -> Result<Vec<String>> {
    let mut texts = Vec::new();
    for line in BufReader::new(std::fs::File::open(file)?).lines() {
        let value: serde_json::Value = serde_json::from_str(&line?)?;
        texts.push(value["text"].as_str().unwrap_or_default().to_string());
    }
    Ok(texts)
}

/// MB/s and tokens of one pass; `encode` returns the number of tokens of a text.
fn pass(texts: &[String], mut encode: impl FnMut(&str) -> Result<usize>) -> Result<(f64, usize)> {
    let bytes: usize = texts.iter().map(String::len).sum();
    let (start, mut tokens) = (cpu_seconds(), 0);
    for text in texts {
        tokens += encode(text)?;
    }
    Ok((bytes as f64 / 1e6 / (cpu_seconds() - start), tokens))
}

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let (path, file, alone) = match args.as_slice() {
        [path, file] => (path, file, false),
        [path, file, flag] if flag == "--ours" => (path, file, true),
        _ => return Err("usage: encode_speed TOKENIZER.json FILE.jsonl [--ours]".into()),
    };
    let texts = texts(file)?;
    let mut out = std::io::stdout().lock();
    let start = cpu_seconds();
    let ours = index::tokenizer::Tokenizer::load(Path::new(path))?;
    writeln!(out, "loaded in {:.3} s", cpu_seconds() - start)?;
    let mut encoder = ours.encoder();
    if alone {
        for name in ["cold", "warm"] {
            let (rate, tokens) = pass(&texts, |t| Ok(encoder.encode(t)?.len()))?;
            writeln!(out, "{name}: {tokens} tokens, {rate:.0} MB/s")?;
        }
        return Ok(());
    }
    let json = std::fs::read_to_string(path)?;
    let library = tokenizers::from_json(&tokenizers::canonicalize_str(&json)?)?;
    let options = EncodeOptions {
        encode_special_tokens: true,
        ..EncodeOptions::no_specials()
    };
    let mut theirs = Vec::new();
    for name in ["cold", "warm"] {
        let (rate, tokens) = pass(&texts, |t| Ok(encoder.encode(t)?.len()))?;
        let (library, _) = pass(&texts, |t| {
            theirs.clear();
            library.encode_into(t, &options, &mut theirs)?;
            Ok(theirs.len())
        })?;
        let times = rate / library;
        writeln!(
            out,
            "{name}: {tokens} tokens, ours {rate:.0} MB/s, library {library:.0} MB/s ({times:.2}x)"
        )?;
    }
    let mut differ = 0;
    for text in &texts {
        theirs.clear();
        library.encode_into(text, &options, &mut theirs)?;
        differ += usize::from(encoder.encode(text)? != PipelineToken::cast_slice(&theirs));
    }
    writeln!(out, "{differ} of {} texts differ", texts.len())?;
    if differ > 0 {
        return Err("other ids than the library's".into());
    }
    Ok(())
}
