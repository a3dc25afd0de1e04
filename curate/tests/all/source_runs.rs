//! Steps for source code in whole jobs: the same bytes for any number of tasks and threads, and after kills.
//!
//! The texts are those of `source.json.zst` (tests/oracles/source_golden.py), repeated with other numbers in them. `issue` and
//! `repository` make texts of lists, which the steps for files do not have, so they have jobs of their own, with the steps
//! for files behind them.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use curate::pipeline::{CurateConfig, Curator, ShardReport, Step, shards};
use curate::read::{Input, Keys};
use curate::{Progress, Silent};
use serde_json::{Value, json};

use crate::files::tree;

fn golden(key: &str) -> Vec<Value> {
    let packed = include_bytes!("../data/source.json.zst");
    let all = zstd::decode_all(&packed[..]).unwrap();
    let all: Value = serde_json::from_slice(&all).unwrap();
    all[key].as_array().unwrap().clone()
}

/// A job: its records and the steps.
struct Job {
    name: &'static str,
    text_key: &'static str,
    records: Vec<Value>,
    steps: Value,
}

/// Repeats records to at least this many, each with its number in it.
fn repeated(records: &[Value], count: usize) -> Vec<Value> {
    let all = records.iter().cycle().take(count).enumerate();
    all.map(|(i, record)| {
        let mut record = record.clone();
        record["id"] = json!(format!("d{i}"));
        record["repo_name"] = json!(format!("some/repository{}", i / 5));
        record
    })
    .collect()
}

fn jobs() -> Vec<Job> {
    let files: Vec<Value> = golden("files")
        .iter()
        .map(|row| json!({"path": row["path"], "text": row["text"], "max_stars_repo_licenses": ["MIT"]}))
        .collect();
    let notebooks = golden("notebooks");
    let notebooks = notebooks.iter().map(|row| match row {
        Value::Array(row) => row[0].clone(),
        row => row.clone(),
    });
    let notebooks = notebooks.map(|text| json!({"path": "a/b.ipynb", "text": text}));
    let mathematics = golden("mathematics");
    let mathematics = mathematics.iter().map(
        |row| json!({"url": row[0], "text": row[1], "math_score": row[2], "perplexity": row[3]}),
    );
    let mixed: Vec<Value> = files
        .iter()
        .cloned()
        .chain(notebooks)
        .chain(mathematics)
        .collect();
    let licences = golden("licenses");
    let licences = licences
        .iter()
        .map(|row| json!({"path": "LICENSE", "text": row[1]}));
    let mixed: Vec<Value> = mixed.into_iter().chain(licences).collect();
    let repositories: Vec<Value> = files
        .chunks(6)
        .map(|files| json!({"files": files}))
        .collect();
    let issues = golden("issues");
    let issues: Vec<Value> = issues.iter().map(|row| json!({"events": row[0]})).collect();
    let of_files = [
        json!({"notebook": {"form": "script"}}),
        json!({"file_language": {}}),
        json!({"license": {"license_key": "max_stars_repo_licenses", "deny": ["GPL-3.0-only"]}}),
        json!({"source_code": {"profile": "starcoder2"}}),
        json!({"openwebmath": {"score_key": "math_score"}}),
    ];
    let with = |first: Value| -> Value {
        let more = of_files.iter().skip(1).take(2).cloned();
        std::iter::once(first)
            .chain(more)
            .collect::<Vec<_>>()
            .into()
    };
    vec![
        Job {
            name: "files",
            text_key: "text",
            records: repeated(&mixed, 5000),
            steps: json!(of_files),
        },
        Job {
            name: "issues",
            text_key: "events",
            records: repeated(&issues, 5000),
            steps: with(json!({"issue": {}})),
        },
        Job {
            name: "repositories",
            text_key: "files",
            records: repeated(&repositories, 4500),
            steps: with(json!({"repository": {}})),
        },
    ]
}

fn config(job: &Job, folder: &Path) -> CurateConfig {
    let path = folder.join(format!("{}.jsonl", job.name));
    if !path.exists() {
        let lines: String = job
            .records
            .iter()
            .map(|record| format!("{record}\n"))
            .collect();
        std::fs::write(&path, lines).unwrap();
    }
    let config = CurateConfig {
        inputs: vec![Input {
            path: path.to_string_lossy().into_owned(),
            text_key: Keys::One(job.text_key.to_string()),
            ..Input::default()
        }],
        figures: true,
        statistics: true,
        step: serde_json::from_value::<Vec<Step>>(job.steps.clone()).unwrap(),
        ..CurateConfig::default()
    };
    config.check(&mut |key, found, wanted| panic!("{}: {key}: {found}: {wanted}", job.name));
    config
}

/// Runs a job with as many tasks, each with threads of its own; the sum of the reports, and the files.
fn run(config: &CurateConfig, out: &Path, tasks: usize) -> (ShardReport, Vec<(String, String)>) {
    let all = shards(config).unwrap();
    let mut reports: Vec<Option<ShardReport>> = vec![None; all.len()];
    std::thread::scope(|scope| {
        let of_task = |task: usize| {
            let all = &all;
            scope.spawn(move || {
                let pool = rayon::ThreadPoolBuilder::new()
                    .num_threads(1 + task % 3)
                    .build();
                let curator = Curator::new(config, None, None, 0).unwrap();
                let own = all.iter().filter(|shard| shard.number % tasks == task);
                let run = |shard| curator.run_shard(shard, out, &Silent).unwrap();
                pool.unwrap()
                    .install(|| own.map(|shard| (shard.number, run(shard))).collect())
            })
        };
        let tasks: Vec<_> = (0..tasks).map(of_task).collect();
        for task in tasks {
            let done: Vec<(usize, ShardReport)> = task.join().unwrap();
            done.into_iter()
                .for_each(|(number, report)| reports[number] = Some(report));
        }
    });
    let mut sum = ShardReport::default();
    reports
        .into_iter()
        .for_each(|report| sum.merge(&report.unwrap()));
    assert!(sum.adds_up());
    (sum, tree(out))
}

#[test]
fn one_three_and_eight_tasks_write_the_same_bytes() {
    let folder = tempfile::tempdir().unwrap();
    for job in jobs() {
        let mut config = config(&job, folder.path());
        config.split_mb = 1;
        let count = shards(&config).unwrap().len();
        assert!(count > 3, "{}: {count} shards", job.name);
        let (want, files) = run(&config, &folder.path().join(format!("{}1", job.name)), 1);
        for tasks in [3, 8] {
            let out = folder.path().join(format!("{}{tasks}", job.name));
            let (found, others) = run(&config, &out, tasks);
            assert_eq!(found, want, "{}, {tasks} tasks", job.name);
            assert_eq!(others, files, "{}, {tasks} tasks", job.name);
        }
        // every step has had something to do
        assert!(want.kept > 500, "{}: {want:?}", job.name);
        let wanted: &[&str] = match job.name {
            "files" => &["license.", "source_code.", "openwebmath."],
            "issues" => &["issue."],
            _ => &[],
        };
        for step in wanted {
            let dropped = want.dropped.keys().any(|rule| rule.starts_with(step));
            assert!(
                dropped,
                "{}: nothing by {step}: {:?}",
                job.name, want.dropped
            );
        }
    }
}

/// Ends its run at the first progress report of at least this many documents.
struct Until(u64, AtomicU64);

impl Progress for Until {
    fn bytes(&self, _: u64) {}
    fn documents(&self, read: u64, _: u64) {
        let seen = self.1.fetch_add(read, Ordering::Relaxed) + read;
        assert!(seen < self.0, "stopped by the test");
    }
}

#[test]
fn jobs_that_were_stopped_go_on_to_the_same_bytes() {
    let folder = tempfile::tempdir().unwrap();
    for job in jobs() {
        let config = config(&job, folder.path());
        let curator = Curator::new(&config, None, None, 0).unwrap();
        let shard = &shards(&config).unwrap()[0];
        let calm = folder.path().join(format!("{}-calm", job.name));
        let whole = curator.run_shard(shard, &calm, &Silent).unwrap();
        let out = folder.path().join(format!("{}-out", job.name));
        for most in [1, 2500, 4100] {
            let until = Until(most, AtomicU64::new(0));
            let run = || curator.resume_shard(shard, &out, "p", &until);
            assert!(
                catch_unwind(AssertUnwindSafe(run)).is_err(),
                "{} {most}",
                job.name
            );
        }
        let journal = out.join("records/curate/00000.journal");
        assert!(
            std::fs::metadata(&journal).unwrap().len() > 1000,
            "{}",
            job.name
        );
        let resumed = curator.resume_shard(shard, &out, "p", &Silent).unwrap();
        assert_eq!(resumed, whole, "{}", job.name);
        Curator::forget_journal(&out, shard.number).unwrap();
        let mut files = tree(&out);
        files.retain(|(name, _)| !name.ends_with(".tmp"));
        assert_eq!(files, tree(&calm), "{}", job.name);
    }
}
