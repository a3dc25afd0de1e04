//! Benchmark of index building, blending and random reads: `cargo bench -p millrace-index --bench samples -- WHAT ...`.
//!
//! `index DOCUMENTS EPOCHS [MEAN] [SEQ]`: builds a GPT index over simulated lengths (a function, no file; geometric-like,
//! mean 600) and prints seconds, CPU seconds, bytes of the arrays and the growth of the process beyond them.
//! `prefix PREFIX EPOCHS [SEQ]`: the same over the lengths of a dataset that exists, such as the one that a peer's script
//! wrote; `blend SAMPLES DATASETS`: the greedy order, weights 1 / (d + 1);
//! `reads [MIB]`: random samples of a dataset in the page cache beside a plain copy of as many bytes.
#![expect(clippy::print_stdout, reason = "a bench prints its figures")]

use index::dataset::{Dataset, DatasetWriter, TokenType};
use index::samples::{GptIndices, GptSamples, Request};
use index::split::Part;
use std::sync::Arc;
use std::time::Instant;

/// User and system seconds of this process, all threads.
fn cpu_seconds() -> f64 {
    let text = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let rest = text.rsplit(')').next().unwrap_or_default();
    let fields: Vec<f64> = rest
        .split_whitespace()
        .map(|f| f.parse().unwrap_or(0.0))
        .collect();
    fields
        .get(11..13)
        .map_or(0.0, |f| f.iter().sum::<f64>() / 100.0)
}

/// Peak private memory of this process, in bytes.
fn own_memory() -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text
        .lines()
        .find(|l| l.starts_with("RssAnon"))
        .unwrap_or_default();
    let kib = line
        .split_whitespace()
        .nth(1)
        .and_then(|n| n.parse::<u64>().ok());
    kib.unwrap_or(0) << 10
}

/// Runs `work` and prints its time and CPU time.
fn timed<T>(what: &str, work: impl FnOnce() -> T) -> (T, f64) {
    let (start, cpu) = (Instant::now(), cpu_seconds());
    let out = work();
    let (wall, cpu) = (start.elapsed().as_secs_f64(), cpu_seconds() - cpu);
    println!("{what}: {wall:.3} s, {cpu:.2} CPU s");
    (out, wall)
}

/// Lengths from 1 to about eight times the mean, by a counter hash.
fn simulated(mean: u64) -> impl Fn(usize) -> u32 + Sync {
    move |i| {
        let mut z = (i as u64).wrapping_add(0x9e37_79b9_7f4a_7c15);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        let (a, b) = ((z >> 32) & 0xffff, (z >> 48) & 0xffff);
        u32::try_from(1 + mean * 4 * ((a * b) >> 16) / 0x10000).unwrap_or(1)
    }
}

fn index(documents: u64, epochs: f64, seq: u64, length: impl Fn(usize) -> u32 + Sync) {
    let tokens: u64 = (0..usize::try_from(documents).expect("fits"))
        .map(|i| u64::from(length(i)))
        .sum();
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a count of samples"
    )]
    let samples = ((tokens as f64 * epochs - 1.0) / seq as f64) as u64;
    let before = own_memory();
    let request = Request::of(seq, Some(samples), 1234);
    let what = format!("index of {documents} documents, {epochs} epochs, {samples} samples");
    let build = || GptIndices::build(("simulated", Part::Train), 0..documents, &length, &request);
    let (built, _) = timed(&what, build);
    let built = built.expect("an index");
    let (own, arrays) = (own_memory().saturating_sub(before), built.bytes());
    let share = own as f64 / arrays as f64;
    println!(
        "  arrays {} MiB, process grew by {share:.3} of that",
        arrays >> 20
    );
}

fn blend(samples: u64, datasets: usize) {
    let weights: Vec<f64> = (1..=datasets).map(|d| 1.0 / d as f64).collect();
    let sum: f64 = weights.iter().sum();
    let weights: Vec<f64> = weights.iter().map(|w| w / sum).collect();
    let what = format!("greedy order of {samples} samples over {datasets} datasets");
    let (order, wall) = timed(&what, || index::blend::weighted_order(&weights, samples));
    let order = order.expect("an order");
    println!(
        "  {:.2} ns a sample, last from {:?}",
        wall * 1e9 / samples as f64,
        order.0.last()
    );
}

fn reads(mib: usize) {
    let folder = tempfile::tempdir().expect("a folder");
    let prefix = folder.path().join("x");
    let mut writer = DatasetWriter::create(&prefix, TokenType::U16).expect("a writer");
    let length = simulated(600);
    let mut bytes = vec![7u8; 1 << 16];
    let mut left = mib << 20;
    for i in 0.. {
        let n = length(i);
        bytes.resize(2 * n as usize, 7);
        writer.documents(&bytes, &[n]).expect("a document");
        left = left.saturating_sub(bytes.len());
        if left == 0 {
            break;
        }
    }
    writer.finish().expect("a dataset");
    let dataset = Arc::new(Dataset::open(&prefix).expect("a dataset"));
    let request = Request::of(2048, None, 1);
    let samples = GptSamples::new(dataset.clone(), Part::Train, (0.0, 1.0), &request, None);
    let samples = samples.expect("samples");
    let mut tokens = vec![0u32; 2049];
    let mut all = |what: &str| {
        let work = || {
            for k in 0..samples.len() {
                samples.read(k, &mut tokens).expect("a sample");
                std::hint::black_box(&tokens);
            }
        };
        let ((), wall) = timed(what, work);
        let gb = samples.len() as f64 * 2049.0 * 2.0 / 1e9;
        println!(
            "  {:.0} samples/s, {:.2} GB/s of the file",
            samples.len() as f64 / wall,
            gb / wall
        );
        wall
    };
    all("first pass over all samples in random order");
    let wall = all("second pass");
    // upper bound from memory: as many tokens read and widened at equally random places, without an index
    let mut out = vec![0u32; 2049];
    let bin = std::fs::read(folder.path().join("x.bin")).expect("the tokens");
    let mut copies = |what: &str, place: &dyn Fn(u64) -> usize| {
        let work = || {
            for k in 0..samples.len() {
                let from = place(k);
                let tokens = bin[from..from + 2 * 2049].as_chunks::<2>().0;
                for (o, b) in out.iter_mut().zip(tokens) {
                    *o = u32::from(u16::from_le_bytes(*b));
                }
                std::hint::black_box(&out);
            }
        };
        let ((), copy) = timed(what, work);
        println!("  reads take {:.2} times that", wall / copy);
    };
    let room = (bin.len() - 2 * 2049) / 2;
    let random = |k: u64| {
        let hash = usize::try_from(k.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 16).unwrap_or(0);
        2 * (hash % room)
    };
    copies("copies from random places", &random);
    let sequential = |k: u64| usize::try_from(2 * 2048 * k).unwrap_or(0).min(2 * room);
    copies("copies in file order", &sequential);
}

fn main() {
    let args: Vec<String> = std::env::args()
        .skip(1)
        .filter(|a| a != "--bench")
        .collect();
    let number = |i: usize, default: f64| {
        args.get(i)
            .map_or(default, |a| a.parse().expect("a number"))
    };
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "counts from the command line"
    )]
    let whole = |i: usize, default: f64| number(i, default) as u64;
    let size = |i: usize, default: f64| usize::try_from(whole(i, default)).expect("fits");
    match args.first().map(String::as_str) {
        Some("index") => index(
            whole(1, 1e7),
            number(2, 1.0),
            whole(4, 2048.0),
            simulated(whole(3, 600.0)),
        ),
        Some("prefix") => {
            let dataset = Dataset::open(std::path::Path::new(&args[1])).expect("a dataset");
            index(dataset.sequences(), number(2, 1.0), whole(3, 2048.0), |i| {
                dataset.length(i)
            });
        }
        Some("blend") => blend(whole(1, 1e8), size(2, 100.0)),
        Some("reads") => reads(size(1, 512.0)),
        _ => {
            index(1_000_000, 1.0, 2048, simulated(600));
            index(1_000_000, 3.5, 2048, simulated(600));
            blend(10_000_000, 5);
            blend(1_000_000, 100);
            reads(128);
        }
    }
}
