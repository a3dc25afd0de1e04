//! Sequence classification: sequences and tokens per second of a Hugging Face folder, as a line of JSON, with the logits.
//!
//! ```text
//! cargo bench -p millrace-train --bench classify -- FOLDER IDS.json f32|bf16|bf16_tiles THREADS ROUNDS OUT.json
//! ```
//! `classify_beside_transformers.py` runs it beside transformers.

#![expect(clippy::print_stdout, reason = "a bench prints its result")]

use std::error::Error;
use std::path::Path;
use std::time::Instant;

use serde_json::json;
use train::infer::classifier::{Arithmetic, SequenceClassifier};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args()
        .skip(1)
        .filter(|a| a != "--bench")
        .collect();
    let [folder, ids, arithmetic, threads, rounds, out] = arguments.as_slice() else {
        // `cargo test --benches` runs it without arguments
        return Ok(());
    };
    let arithmetic: Arithmetic = serde_json::from_value(json!(arithmetic))?;
    let ids: Vec<Vec<u32>> = serde_json::from_slice(&std::fs::read(ids)?)?;
    let ids: Vec<&[u32]> = ids.iter().map(Vec::as_slice).collect();
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads.parse()?);
    let (seconds, logits) = pool.build()?.install(|| -> Result<_, Box<train::Error>> {
        let model = SequenceClassifier::open(Path::new(folder), arithmetic)?;
        // packs of weights and memory are there before the clock starts
        model.logits(&ids[..1], 1)?;
        let (mut best, mut logits) = (f64::INFINITY, Vec::new());
        for _ in 0..rounds.parse().unwrap_or(1) {
            let started = Instant::now();
            logits = model.logits(&ids, 2048)?;
            best = best.min(started.elapsed().as_secs_f64());
        }
        Ok((best, logits))
    })?;
    std::fs::write(
        out,
        json!({"seconds": seconds, "logits": logits}).to_string(),
    )?;
    let tokens: usize = ids.iter().map(|ids| ids.len()).sum();
    println!(
        "{}",
        json!({"sequences_per_s": ids.len() as f64 / seconds, "tokens_per_s": tokens as f64 / seconds})
    );
    Ok(())
}
