//! Tokens per second of the inference engine beside the memory's bandwidth.
//!
//!     cargo bench -p millrace-train --bench generate -- --model FOLDER --threads 2
//!
//! Prints one JSON line per case: `read` (bandwidth of reading as many bytes as the weights have, the best of several
//! passes, of one and of four streams a thread), `prefill` (a prompt of --prompt tokens), `decode` with 1, 4 and 16 streams of --tokens tokens each, whose
//! `share` is bytes of weights per token over that bandwidth. FOLDER is a checkpoint or a Hugging Face folder.
//! With `--dtype bf16` products are in bf16, whatever the model says.
//! With `--adapters A,B,..` the model is opened for adapters, and prompts choose these folders in turn.
//! With `--streams N --length L` only as many streams as clients of `pipelines/benches/serve_load.py`, in its place.

#![expect(clippy::print_stdout, reason = "a bench prints its result")]

use std::error::Error as StdError;
use std::path::Path;
use std::time::Instant;

use rayon::prelude::*;
use train::config::Precision;
use train::dist::Devices;
use train::infer::GenerateOptions;
use train::infer::engine::{AdapterId, Engine, Event, Limits, Request};

/// Passes of which the best counts.
const PASSES: usize = 7;

/// Streams that a thread reads side by side: one alone does not fill the memory's queue.
const SIDE_BY_SIDE: usize = 4;

/// Words of a cache line.
const LINE: usize = 8;

/// GB/s of reading `bytes`.
fn bandwidth(bytes: usize) -> f64 {
    let words = vec![1_u64; bytes / 8];
    let one = |part: &[u64]| part.iter().fold(0_u64, |sum, &x| sum.wrapping_add(x));
    let several = |part: &[u64]| {
        let quarter = part.len() / SIDE_BY_SIDE;
        let mut sums = [0_u64; SIDE_BY_SIDE];
        for at in (0..quarter).step_by(LINE) {
            for (stream, sum) in sums.iter_mut().enumerate() {
                let line = &part[stream * quarter + at..][..LINE.min(quarter - at)];
                *sum = sum.wrapping_add(one(line));
            }
        }
        let rest = one(&part[SIDE_BY_SIDE * quarter..]);
        sums.into_iter().fold(rest, u64::wrapping_add)
    };
    let mut best = f64::INFINITY;
    for _ in 0..PASSES {
        for is_alone in [true, false] {
            let started = Instant::now();
            let parts = words.par_chunks(1 << 18);
            let sum: u64 = match is_alone {
                true => parts.map(one).sum(),
                false => parts.map(several).sum(),
            };
            assert_eq!(sum, words.len() as u64, "all of it is read");
            best = best.min(started.elapsed().as_secs_f64());
        }
    }
    bytes as f64 / best / 1e9
}

/// Prompts of pseudo-random tokens, none like another.
fn prompts(count: usize, length: usize, vocab: usize) -> Vec<Vec<u32>> {
    let mut state = 88_172_645_463_325_252_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        u32::try_from(state % vocab as u64).unwrap_or(0)
    };
    (0..count)
        .map(|_| (0..length).map(|_| next()).collect())
        .collect()
}

/// Seconds until all prompts are computed, seconds of the answers after that, and tokens in these.
fn run(
    engine: &mut Engine,
    adapters: &[AdapterId],
    prompts: Vec<Vec<u32>>,
    tokens: usize,
) -> Result<(f64, f64, usize), Box<dyn StdError>> {
    let mut left = prompts.len();
    for (number, prompt) in prompts.into_iter().enumerate() {
        engine.submit(Request {
            prompt,
            options: GenerateOptions::greedy(tokens),
            beginning: Vec::new(),
            slides: false,
            adapter: adapters.get(number % adapters.len().max(1)).copied(),
        })?;
    }
    let started = Instant::now();
    let (mut prefilled, mut count) = (0.0, 0);
    while !engine.is_idle() {
        let is_prefilled = left == 0;
        for event in engine.step()? {
            match event {
                Event::Prompt { .. } => {
                    left -= 1;
                    prefilled = started.elapsed().as_secs_f64();
                }
                Event::Token { .. } if is_prefilled => count += 1,
                _ => {}
            }
        }
    }
    let decoded = started.elapsed().as_secs_f64() - prefilled;
    Ok((prefilled, decoded, count))
}

fn main() -> Result<(), Box<dyn StdError>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let option = |name: &str, default: &str| {
        let at = arguments.iter().position(|argument| argument == name);
        at.and_then(|at| arguments.get(at + 1))
            .map_or(default, String::as_str)
            .to_owned()
    };
    let threads: usize = option("--threads", "1").parse()?;
    let (prompt, tokens): (usize, usize) = (
        option("--prompt", "256").parse()?,
        option("--tokens", "64").parse()?,
    );
    let model = option("--model", "");
    if model.is_empty() {
        return Err("--model FOLDER: a checkpoint or a Hugging Face folder".into());
    }
    rayon::ThreadPoolBuilder::new()
        .num_threads(threads)
        .build_global()?;
    let streams: usize = option("--streams", "0").parse()?;
    let limits = Limits {
        max_sequences: if streams > 0 { streams } else { 64 },
        ..Limits::default()
    };
    let dtype = option("--dtype", "auto");
    let precision = match dtype.as_str() {
        "auto" => None,
        "bf16" => Some(Precision::Bf16),
        "f32" | "int8" => Some(Precision::F32),
        other => {
            return Err(format!("--dtype: found {other}, want auto, bf16, f32 or int8").into());
        }
    };
    let on = Devices::Cpu.whole().in_precision(precision);
    let on = on.with_rounded_activations(dtype == "int8");
    let named = option("--adapters", "");
    let mut engine = match named.as_str() {
        "" => Engine::open(Path::new(&model), on, limits)?,
        _ => Engine::open_for_adapters(Path::new(&model), on, limits)?,
    };
    let paths = named.split(',').filter(|path| !path.is_empty());
    let mut adapters: Vec<AdapterId> = Vec::new();
    for path in paths {
        adapters.push(engine.load_adapter(Path::new(path))?);
    }
    // packs the weights
    let first = prompts(1, 8, engine.vocab());
    run(&mut engine, &adapters, first, 2)?;
    let bytes = engine.weight_bytes();
    let read = bandwidth(bytes);
    println!(
        "{}",
        serde_json::json!({"case": "read", "threads": threads, "bytes": bytes, "gb_s": read})
    );
    // as many streams as a load on the server has, each asking twice: tokens of answers over all of the time
    if streams > 0 {
        let length: usize = option("--length", "16").parse()?;
        engine.clear_prefix_cache();
        let asked = prompts(2 * streams, length, engine.vocab());
        let answers = asked.len() * tokens;
        let (prefilled, decoded, _) = run(&mut engine, &adapters, asked, tokens)?;
        let rate = answers as f64 / (prefilled + decoded);
        println!(
            "{}",
            serde_json::json!({"case": "streams", "streams": streams, "all_tokens_s": rate})
        );
        return Ok(());
    }
    for streams in [1, 4, 16] {
        let length = if streams == 1 { prompt } else { 16 };
        engine.clear_prefix_cache();
        let asked = prompts(streams, length, engine.vocab());
        let (prefilled, decoded, count) = run(&mut engine, &adapters, asked, tokens)?;
        let rate = count as f64 / decoded;
        if streams == 1 {
            println!(
                "{}",
                serde_json::json!({"case": "prefill", "tokens": prompt, "tokens_s": prompt as f64 / prefilled})
            );
        }
        println!(
            "{}",
            serde_json::json!({
                "case": "decode", "streams": streams, "tokens_s": rate,
                "share": bytes as f64 * rate / streams as f64 / 1e9 / read,
            })
        );
    }
    Ok(())
}
