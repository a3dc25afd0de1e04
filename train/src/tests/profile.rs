//! Traces: their times add up, and neither they nor validation change the training.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::Value;

use crate::config::ParallelConfig;
use crate::config::Plan;
use crate::config::profile::{Profile, ProfileWindow};
use crate::data::{Sample, Samples};
use crate::fixtures::{Chain, Log, tiny_gpt, tiny_llama};
use crate::trainer::run;

type Failure = Box<dyn std::error::Error + Send + Sync>;
type Result = std::result::Result<(), Box<dyn std::error::Error>>;

/// A span in nanoseconds.
#[derive(Debug)]
struct Seen {
    name: String,
    kind: String,
    number: Option<u64>,
    start: u64,
    end: u64,
}

/// Spans of a rank's trace by thread, each after the spans that contain it.
fn spans_of(out: &Path, rank: usize) -> BTreeMap<u64, Vec<Seen>> {
    let path = out.join(format!("profile/rank-{rank:03}.json"));
    let trace: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    let ns = |event: &Value, key: &str| {
        let nanoseconds = (event[key].as_f64().unwrap() * 1e3).round();
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a whole number from 0 far below 2^53"
        )]
        let whole = nanoseconds as u64;
        whole
    };
    let mut threads: BTreeMap<u64, Vec<Seen>> = BTreeMap::new();
    for event in trace["traceEvents"].as_array().unwrap() {
        assert_eq!(event["pid"].as_u64(), Some(rank as u64));
        if event["ph"] == "M" {
            continue;
        }
        assert_eq!(event["ph"], "X");
        let start = ns(event, "ts");
        let thread = threads.entry(event["tid"].as_u64().unwrap()).or_default();
        thread.push(Seen {
            name: event["name"].as_str().unwrap().to_owned(),
            kind: event["cat"].as_str().unwrap().to_owned(),
            number: event["args"]["number"].as_u64(),
            start,
            end: start + ns(event, "dur"),
        });
    }
    for thread in threads.values_mut() {
        // of two with the same times the one that ended later is around the other
        thread.reverse();
        thread.sort_by_key(|span| (span.start, std::cmp::Reverse(span.end)));
    }
    threads
}

/// For each span the nanoseconds of those directly within it; panics unless they nest.
fn within(spans: &[Seen]) -> Vec<u64> {
    let mut sums = vec![0; spans.len()];
    let mut around: Vec<usize> = Vec::new();
    for (at, span) in spans.iter().enumerate() {
        while around
            .last()
            .is_some_and(|&last| spans[last].end <= span.start)
        {
            around.pop();
        }
        if let Some(&last) = around.last() {
            assert!(span.end <= spans[last].end, "{span:?} in {:?}", spans[last]);
            sums[last] += span.end - span.start;
        }
        around.push(at);
    }
    for (sum, span) in sums.iter().zip(spans) {
        assert!(*sum <= span.end - span.start, "{span:?} holds {sum} ns");
    }
    sums
}

fn train(plan: &Plan, out: &Path) -> Result {
    run(
        plan,
        &Chain::of(plan),
        Some(&Chain::of(plan)),
        out,
        &Log::default(),
    )?;
    Ok(())
}

/// Peak bytes so far, by step.
fn peaks(out: &Path) -> Vec<u64> {
    let lines = std::fs::read_to_string(out.join("metrics.jsonl")).unwrap();
    let lines = lines
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    lines
        .filter_map(|line| line["memory_bytes"].as_u64())
        .collect()
}

fn window(from: u64, to: u64) -> Profile {
    Profile::Window(ProfileWindow { steps: [from, to] })
}

#[test]
fn spans_nest_and_cover_the_steps_of_the_window() -> Result {
    let mut plan = tiny_llama();
    plan.parallel = ParallelConfig {
        dp: 2,
        tp: 2,
        pp: 2,
        ..ParallelConfig::default()
    };
    plan.train.profile = window(2, 3);
    let out = tempfile::tempdir()?;
    train(&plan, out.path())?;
    for rank in 0..8 {
        let threads = spans_of(out.path(), rank);
        let names = |thread| {
            let spans: &Vec<Seen> = &threads[&thread];
            spans
                .iter()
                .map(|span| span.name.as_str())
                .collect::<Vec<_>>()
        };
        assert!(names(1).contains(&"sum gradients"));
        let wanted = [
            "read data",
            "forward",
            "optimizer",
            "validation",
            "matmul::",
        ];
        let layer = if rank < 4 { "layers.0" } else { "layers.1" };
        let passes = [format!("{layer} forward"), format!("{layer} backward")];
        for wanted in wanted.into_iter().chain(passes.iter().map(String::as_str)) {
            assert!(
                names(0).iter().any(|name| name.starts_with(wanted)),
                "rank {rank} lacks {wanted}"
            );
        }
        for spans in threads.values() {
            let sums = within(spans);
            let kinds: Vec<&str> = spans.iter().map(|span| span.kind.as_str()).collect();
            assert!(kinds.contains(&"collective"));
            let steps = spans
                .iter()
                .zip(&sums)
                .filter(|(span, _)| span.name == "step");
            let (mut whole, mut covered, mut numbers) = (0, 0, Vec::new());
            for (span, sum) in steps {
                whole += span.end - span.start;
                covered += sum;
                numbers.extend(span.number);
            }
            assert!(numbers.is_empty() || numbers == [2, 3]);
            assert!(covered * 100 >= whole * 95, "{covered} of {whole} ns");
        }
        assert!(threads[&0].iter().any(|span| span.kind == "wait"));
    }
    Ok(())
}

#[test]
fn a_trace_changes_no_bytes_and_ends_with_the_run() -> Result {
    let plain = tiny_gpt();
    let mut traced = tiny_gpt();
    traced.train.profile = Profile::Switch(true);
    let (a, b) = (tempfile::tempdir()?, tempfile::tempdir()?);
    train(&plain, a.path())?;
    train(&traced, b.path())?;
    assert!(!a.path().join("profile").exists());
    let steps = |span: &&Seen| span.name == "step";
    let threads = spans_of(b.path(), 0);
    assert_eq!(threads[&0].iter().filter(steps).count(), 4);
    for file in ["model.safetensors", "optimizer.safetensors"] {
        let file = format!("checkpoints/step-00000004/{file}");
        let [a, b] = [&a, &b].map(|out| std::fs::read(out.path().join(&file)).unwrap());
        assert!(a == b, "{file}");
    }
    Ok(())
}

/// A source that has no samples from one on.
struct Broken(Chain, u64);

impl Samples for Broken {
    fn len(&self) -> u64 {
        self.0.len()
    }

    fn read(&self, index: u64, sample: &mut Sample) -> std::result::Result<(), Failure> {
        if index >= self.1 {
            return Err("the disk is gone".into());
        }
        self.0.read(index, sample)
    }
}

#[test]
fn a_run_that_fails_within_the_window_leaves_the_trace_of_every_rank() -> Result {
    let mut plan = tiny_gpt();
    plan.parallel.dp = 2;
    plan.train.profile = window(2, 4);
    // of the third step's batch only the first rank has its samples
    let samples = Broken(Chain::of(&plan), 8 * 2 + 4);
    let out = tempfile::tempdir()?;
    let error = run(&plan, &samples, None, out.path(), &Log::default()).unwrap_err();
    assert!(error.with_causes().contains("the disk is gone"), "{error}");
    for rank in 0..2 {
        let spans = &spans_of(out.path(), rank)[&0];
        within(spans);
        let steps = spans.iter().filter(|span| span.name == "step");
        let numbers: Vec<u64> = steps.filter_map(|span| span.number).collect();
        assert_eq!(numbers, [2, 3], "rank {rank}");
    }
    Ok(())
}

#[test]
fn a_window_that_is_none_of_the_jobs_is_refused() {
    for (from, to) in [(0, 2), (3, 2), (5, 6)] {
        let mut plan = tiny_gpt();
        plan.train.profile = window(from, to);
        let wanted = format!(
            "train.profile.steps: found [{from}, {to}], want [from, to] within 1 to 4 (train.steps)"
        );
        assert_eq!(plan.problems(), [wanted]);
    }
}

#[test]
fn validation_changes_no_byte_of_what_is_trained_and_needs_no_more_memory() -> Result {
    for tp in [1, 2] {
        let mut with = tiny_llama();
        with.parallel.tp = tp;
        with.train.eval_every = 1;
        let mut without = with.clone();
        without.train.eval_every = 0;
        let (a, b) = (tempfile::tempdir()?, tempfile::tempdir()?);
        train(&with, a.path())?;
        train(&without, b.path())?;
        let peaks = [&a, &b].map(|out| peaks(out.path()));
        assert!(peaks[0].len() == 4 && peaks[0] == peaks[1], "{peaks:?}");
        for file in ["model.safetensors", "optimizer.safetensors"] {
            let file = format!("checkpoints/step-00000004/{file}");
            let [a, b] = [&a, &b].map(|out| std::fs::read(out.path().join(&file)).unwrap());
            assert!(a == b, "{file} with tp = {tp}");
        }
    }
    Ok(())
}
