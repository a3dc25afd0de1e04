//! Benchmark of tokenizer training and encoding on one core: `cargo bench -p millrace-index --bench tokenize --
//! FILE.jsonl [VOCAB]`.
//!
//! FILE has one JSON object with `text` per line. Prints MB/s of UTF-8 text: BPE training, and text to `.bin/.idx`
//! on disk with reading and writing included (median of 5; process CPU seconds, so that other work on the machine
//! does not count).

#![expect(clippy::print_stderr, reason = "a program for developers, run by hand")]

use index::dataset::BuildOptions;
use index::tokenizer::{TrainSettings, Trainer};
use std::io::{BufRead, BufReader};
use std::time::Instant;

fn texts(path: &str) -> impl Iterator<Item = Result<String, std::io::Error>> + Send + use<> {
    let file = BufReader::with_capacity(1 << 20, std::fs::File::open(path).expect("the corpus"));
    file.lines().map(|line| {
        let value: serde_json::Value = serde_json::from_str(&line?)?;
        Ok(value["text"].as_str().unwrap_or_default().to_string())
    })
}

/// User and system seconds of this process, all threads.
fn cpu_seconds() -> f64 {
    let text = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<&str> = text
        .rsplit(')')
        .next()
        .unwrap_or_default()
        .split_whitespace()
        .collect();
    let ticks = |i: usize| {
        fields
            .get(i)
            .and_then(|f| f.parse::<f64>().ok())
            .unwrap_or(0.0)
    };
    (ticks(11) + ticks(12)) / 100.0
}

fn main() {
    let args: Vec<String> = std::env::args()
        .skip(1)
        .filter(|a| a != "--bench")
        .collect();
    let Some(path) = args.first() else {
        eprintln!("usage: cargo bench -p millrace-index --bench tokenize -- FILE.jsonl [VOCAB]");
        return;
    };
    let vocab = args.get(1).and_then(|v| v.parse().ok()).unwrap_or(32_000);
    let bytes: usize = texts(path).map(|t| t.map_or(0, |t| t.len())).sum();
    let megabytes = bytes as f64 / 1e6;
    let (wall, cpu) = (Instant::now(), cpu_seconds());
    let mut trainer = Trainer::new(TrainSettings {
        vocab,
        ..TrainSettings::default()
    })
    .expect("trainer");
    for text in texts(path) {
        trainer.feed(&text.expect("line")).expect("feed");
    }
    let tokenizer = trainer.finish().expect("train");
    let (wall, cpu) = (wall.elapsed().as_secs_f64(), cpu_seconds() - cpu);
    eprintln!(
        "bpe_train/{vocab}: {megabytes:.1} MB, {:.1} MB/s of CPU ({cpu:.2} s CPU, {wall:.2} s)",
        megabytes / cpu
    );
    let folder = tempfile::tempdir().expect("folder");
    let options = BuildOptions {
        append_eod: true,
        ..BuildOptions::default()
    };
    for threads in [1, 2] {
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(threads)
            .build()
            .expect("pool");
        let mut runs = Vec::new();
        for _ in 0..5 {
            let (wall, cpu) = (Instant::now(), cpu_seconds());
            let prefix = folder.path().join("bench");
            let built = pool
                .install(|| {
                    index::dataset::build(
                        &prefix,
                        &tokenizer,
                        &mut index::dataset::Texts(texts(path)),
                        &options,
                        &|_, _| {},
                    )
                })
                .expect("build");
            runs.push((
                wall.elapsed().as_secs_f64(),
                cpu_seconds() - cpu,
                built.written.tokens,
            ));
        }
        runs.sort_by(|a, b| a.1.total_cmp(&b.1));
        let (wall, cpu, tokens) = runs[2];
        eprintln!(
            "tokenize/{threads}_threads: {:.1} MB/s of CPU, {:.1} MB/s of wall clock, {tokens} tokens",
            megabytes / cpu,
            megabytes / wall
        );
    }
}
