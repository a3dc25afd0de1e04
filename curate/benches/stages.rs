//! MB/s of each curation stage on one thread: `cargo bench -p millrace-curate -- FILE.jsonl|FILE.warc.gz`.
//!
//! JSON lines: words, filters, MinHash. WARC: extraction of all HTML responses. Best of three;
//! figures are megabytes of UTF-8 text (of HTML for extraction) per second of this thread's CPU time.
#![expect(clippy::print_stdout, reason = "the figures are the result")]

use std::hint::black_box;
use std::io::BufRead;
use std::sync::LazyLock;
use std::time::Instant;

use curate::dedup::{MinhashConfig, MinhashPreset, MinhashScratch, Minhasher};
use curate::extract::extract_html;
use curate::filter::{
    C4Quality, Dclm, Dolma, FinewebQuality, GopherQuality, GopherRepetition, MassiveText, Nemo,
    Redpajama, RedpajamaSignals,
};
use curate::language::identify;
use curate::text::{Scratch, Splitter};
use curate::verdict::{Judge, Verdict};

/// CPU seconds of this thread, or wall-clock seconds if the system does not report them.
fn seconds() -> f64 {
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok();
    let nanoseconds = text.and_then(|t| t.split(' ').next()?.parse::<f64>().ok());
    nanoseconds.map_or_else(|| START.elapsed().as_secs_f64(), |n| n / 1e9)
}

fn time(name: &str, bytes: usize, mut stage: impl FnMut() -> usize) {
    let mut best = f64::MAX;
    let mut result = 0;
    for _ in 0..3 {
        let start = seconds();
        result = black_box(stage());
        best = best.min(seconds() - start);
    }
    println!(
        "{name:32} {:9.1} MB/s   ({result})",
        bytes as f64 / 1e6 / best
    );
}

fn kept(verdict: &Verdict) -> usize {
    usize::from(verdict.is_continue())
}

fn main() -> std::io::Result<()> {
    // cargo passes --bench; anything else is the file.
    let Some(path) = std::env::args().skip(1).find(|a| !a.starts_with('-')) else {
        println!("no file given: nothing to measure");
        return Ok(());
    };
    if path.contains(".warc") {
        extraction(&path)
    } else {
        texts(&path)
    }
}

fn texts(path: &str) -> std::io::Result<()> {
    let file = std::io::BufReader::new(std::fs::File::open(path)?);
    let mut texts: Vec<String> = Vec::new();
    for line in file.lines() {
        let value: serde_json::Value = serde_json::from_str(&line?)?;
        texts.push(value["text"].as_str().unwrap_or_default().to_string());
    }
    let bytes: usize = texts.iter().map(String::len).sum();
    println!("{} documents, {:.1} MB", texts.len(), bytes as f64 / 1e6);
    let mut scratch = Scratch::new();
    let mut splitter = Splitter::new();
    let mut words = Vec::new();
    let mut out = String::new();
    let (repetition, quality) = (GopherRepetition::default(), GopherQuality::default());
    let (c4, fineweb) = (C4Quality::default(), FinewebQuality::default());
    time("words", bytes, || {
        let count = |t: &String| {
            splitter.split(t, &mut words);
            words.len()
        };
        texts.iter().map(count).sum()
    });
    time("gopher_repetition", bytes, || {
        texts
            .iter()
            .map(|t| kept(&repetition.judge(t, &mut scratch)))
            .sum()
    });
    time("gopher_quality", bytes, || {
        texts
            .iter()
            .map(|t| kept(&quality.judge(t, &mut scratch)))
            .sum()
    });
    time("c4", bytes, || {
        texts
            .iter()
            .map(|t| kept(&c4.judge(t, &mut scratch, &mut out)))
            .sum()
    });
    time("fineweb", bytes, || {
        texts
            .iter()
            .map(|t| kept(&fineweb.judge(t, &mut scratch)))
            .sum()
    });
    time("four filters in a chain", bytes, || {
        let mut chain = |t: &String| -> Verdict {
            repetition.judge(t, &mut scratch)?;
            quality.judge(t, &mut scratch)?;
            c4.judge(t, &mut scratch, &mut out)?;
            fineweb.judge(&out, &mut scratch)
        };
        texts.iter().map(|t| kept(&chain(t))).sum()
    });
    time("dclm", bytes, || {
        let rules = Dclm::default();
        texts
            .iter()
            .map(|t| kept(&rules.judge(t, &mut scratch, &mut out)))
            .sum()
    });
    time("nemo, every figure", bytes, || {
        let rules = Nemo::default();
        let mut judge = |t: &String| rules.measure(t, &mut scratch, &mut Judge::measuring());
        texts.iter().map(|t| kept(&judge(t))).sum()
    });
    time("dolma, every figure", bytes, || {
        let rules = Dolma::default();
        let mut judge = |t: &String| rules.measure(t, &mut scratch, &mut Judge::measuring());
        texts.iter().map(|t| kept(&judge(t))).sum()
    });
    time("massive_text, every figure", bytes, || {
        let rules = MassiveText::default();
        let mut judge = |t: &String| rules.measure(t, &mut scratch, &mut Judge::measuring());
        texts.iter().map(|t| kept(&judge(t))).sum()
    });
    if let Ok(signals) = RedpajamaSignals::open(&Redpajama::default()) {
        time("redpajama signals", bytes, || {
            texts.iter().map(|t| signals.of(t).len()).sum()
        });
    }
    let hasher = Minhasher::new(&MinhashConfig::default());
    let mut buffers = MinhashScratch::default();
    time("minhash shingles", bytes, || {
        texts
            .iter()
            .map(|t| hasher.shingles(t, &mut splitter, &mut buffers).len())
            .sum()
    });
    let mut signature = Vec::new();
    for (name, preset) in [
        ("minhash signatures", MinhashPreset::Fineweb),
        ("minhash signatures, native", MinhashPreset::Native),
        ("minhash signatures, nemotron", MinhashPreset::Nemotron),
    ] {
        let hasher = Minhasher::new(&MinhashConfig::of(preset));
        time(name, bytes, || {
            let mut sign =
                |t: &String| hasher.signature(t, &mut splitter, &mut buffers, &mut signature);
            texts.iter().filter(|t| sign(t)).count()
        });
    }
    time("language", bytes, || {
        texts.iter().filter(|t| identify(t).code == "en").count()
    });
    Ok(())
}

fn extraction(path: &str) -> std::io::Result<()> {
    let mut bytes = Vec::new();
    let file = std::fs::File::open(path)?;
    std::io::Read::read_to_end(&mut flate2::read::MultiGzDecoder::new(file), &mut bytes)?;
    let pages: Vec<&[u8]> = memchr::memmem::find_iter(&bytes, b"HTTP/1.1 200")
        .map(|start| {
            let rest = &bytes[start..];
            let body = memchr::memmem::find(rest, b"\r\n\r\n").map_or(0, |i| i + 4);
            let end = memchr::memmem::find(rest, b"\r\n\r\nWARC/").unwrap_or(rest.len());
            &rest[body.min(end)..end]
        })
        .collect();
    let total: usize = pages.iter().map(|p| p.len()).sum();
    println!(
        "{} pages, {:.1} MB of HTML",
        pages.len(),
        total as f64 / 1e6
    );
    time("extract", total, || {
        pages.iter().map(|p| extract_html(p, None).text.len()).sum()
    });
    Ok(())
}
