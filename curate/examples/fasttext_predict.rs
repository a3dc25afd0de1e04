//! Labels each line of standard input by a fastText model, or identifies languages with the built-in one.
//!
//! `cargo run --release -p millrace-curate --example fasttext_predict -- MODEL|builtin K [REPEAT] < LINES`
//!
//! Prints `label:probability` pairs, tab-separated, one line per input line. With REPEAT prints only the CPU-bound
//! seconds of that many passes over all lines, without reading.
#![expect(clippy::print_stdout, reason = "the labels are the result")]

use std::fmt::Write;
use std::io::{BufRead, Read};
use std::path::Path;
use std::time::Instant;

use curate::language::{Identifier, LanguageScratch};
use curate::quality::fasttext::{FastText, FastTextScratch};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [model, k, rest @ ..] = args.as_slice() else {
        return Err("wanted: MODEL|builtin K [REPEAT]".into());
    };
    let k: usize = k.parse()?;
    let mut text = String::new();
    std::io::stdin().lock().read_to_string(&mut text)?;
    let lines: Vec<String> = text.as_bytes().lines().collect::<Result<_, _>>()?;
    let mut scratch = FastTextScratch::new();
    let mut found = Vec::new();
    let fasttext = match model.as_str() {
        "builtin" => None,
        path => Some(FastText::open(Path::new(path))?),
    };
    let own = Identifier::built_in();
    let mut own_scratch = LanguageScratch::default();
    let mut label = |line: &str, out: &mut String| -> std::fmt::Result {
        let Some(model) = &fasttext else {
            let (code, confidence) = own.identify(line, &mut own_scratch);
            return write!(out, "{code}:{confidence:.6}");
        };
        model.predict(line, k, &mut scratch, &mut found);
        for (i, (label, p)) in found.iter().enumerate() {
            let tab = if i == 0 { "" } else { "\t" };
            write!(out, "{tab}{}:{p:.6}", model.labels()[*label])?;
        }
        Ok(())
    };
    let mut out = String::new();
    let repeat: usize = rest.first().map_or(Ok(0), |r| r.parse())?;
    let start = Instant::now();
    for _ in 0..repeat {
        for line in &lines {
            out.clear();
            label(line, &mut out)?;
        }
    }
    if repeat > 0 {
        let bytes = repeat * text.len();
        let seconds = start.elapsed().as_secs_f64();
        println!("{seconds:.3} s, {:.1} MB/s", bytes as f64 / 1e6 / seconds);
        return Ok(());
    }
    for line in &lines {
        out.clear();
        label(line, &mut out)?;
        println!("{out}");
    }
    Ok(())
}
