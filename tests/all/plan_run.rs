//! `millrace doctor --measure` and `millrace plan --run`: layouts that are run, one that fails, an end by a signal, and how well
//! the planner ranks.

use crate::jobs::{millrace, output, succeed};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

/// A machine of two cores.
const CPU: &str = r#"
name = "two-cores"
nodes = 1
devices_per_node = 2
cores = 2
matrix_tflops = 0.05
matrix_f32_tflops = 0.1
memory_gb = 8
memory_gb_s = 10
link_gb_s = 2
link_latency_us = 5
op_latency_us = 2
"#;

/// A job whose data need not exist. Of one sequence per step there are four layouts: one rank or two, which divide the sequence,
/// each with and without recomputation.
fn write_job(folder: &Path) -> PathBuf {
    let text = format!(
        r#"
name = "small"
out = {out:?}
[blend]
seq_length = 32
[[blend.dataset]]
name = "absent"
prefix = {absent:?}
[model]
family = "llama"
layers = 1
d_model = 16
heads = 1
[train]
steps = 1000
global_batch = 1
micro_batch = 1
"#,
        out = folder.join("out"),
        absent = folder.join("absent"),
    );
    let path = folder.join("job.toml");
    std::fs::write(&path, text).unwrap();
    std::fs::write(folder.join("cpu.toml"), CPU).unwrap();
    path
}

fn plan_args<'a>(job: &'a Path, cluster: &'a Path, more: &[&'a str]) -> Vec<&'a str> {
    let fixed = [
        "plan",
        job.to_str().unwrap(),
        "--cluster",
        cluster.to_str().unwrap(),
        "--vocab",
        "256",
    ];
    [&fixed[..], more].concat()
}

#[test]
fn layouts_are_run_and_a_failed_one_is_a_row() {
    let dir = tempfile::tempdir().unwrap();
    let job = write_job(dir.path());
    let cluster = dir.path().join("cpu.toml");
    // a layout of one rank cannot be shared by two processes
    let page = dir.path().join("plan.html");
    let more = [
        "--run",
        "9",
        "--run-steps",
        "3",
        "--run-processes",
        "2",
        "--json",
        "--html",
        page.to_str().unwrap(),
    ];
    let printed = succeed(&plan_args(&job, &cluster, &more)).stdout;
    let found: Value = serde_json::from_slice(&printed).unwrap();
    let rows = found["run"]["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 4, "{rows:#?}");
    let mut fastest: Option<&Value> = None;
    for row in rows {
        if row["layout"]["cp"] == 1 {
            let reason = row["failed"].as_str().unwrap();
            assert!(
                reason.contains("WORLD_SIZE") && row["measured_s"].is_null(),
                "{row}"
            );
            continue;
        }
        assert!(row["failed"].is_null() && row["steps"] == 1, "{row}");
        let of = |key: &str| row[key].as_f64().unwrap();
        assert!((of("ratio") - of("measured_s") / of("predicted_s")).abs() < 1e-9);
        // by formula and as a peak: train's tests compare them by purpose, to the byte
        let bytes = of("measured_bytes") / of("predicted_bytes");
        assert!((0.5..2.0).contains(&bytes), "{row}");
        if fastest.is_none_or(|best| of("measured_s") < best["measured_s"].as_f64().unwrap()) {
            fastest = Some(row);
        }
    }
    assert_eq!(found["run"]["winner"], fastest.unwrap()["layout"]);
    let ranking = found["run"]["ranking"].as_array().unwrap();
    assert_eq!(ranking.len(), 2, "failed layouts are not ranked");
    let text = found["run"]["toml"].as_str().unwrap();
    assert!(text.contains("cp = 2"), "{text}");
    let folder = Path::new(found["run"]["folder"].as_str().unwrap());
    assert!(folder.starts_with(dir.path().join("out/plan")));
    assert!(folder.join("layout-01/job.toml").exists() && !folder.join("data").exists());
    for row in 1..=4 {
        let out = folder.join(format!("layout-{row:02}/out"));
        assert!(!out.join("checkpoints").exists(), "{row}");
    }
    let page = std::fs::read_to_string(&page).unwrap();
    let measured = page.split("<section id=\"measured\">").nth(1).unwrap();
    let measured = measured.split("</section>").next().unwrap();
    assert_eq!(measured.matches("<tr><td").count(), 4, "{measured}");
    assert_eq!(measured.matches("failed: ").count(), 2, "{measured}");
    assert!(measured.contains("cp = 2"), "{measured}");
}

#[test]
fn where_no_layout_has_a_time_the_verb_fails_after_its_table() {
    let dir = tempfile::tempdir().unwrap();
    let job = write_job(dir.path());
    let cluster = dir.path().join("cpu.toml");
    let runs = dir.path().join("runs");
    let more = [
        "--run",
        "2",
        "--run-limit",
        "1e-9",
        "--run-steps",
        "99999",
        "--out",
    ];
    let args = [&more[..], &[runs.to_str().unwrap()]].concat();
    let found = output(&plan_args(&job, &cluster, &args));
    assert_eq!(found.status.code(), Some(1));
    let text = String::from_utf8(found.stdout).unwrap();
    assert_eq!(text.matches("failed: ").count(), 2, "{text}");
    assert!(text.contains("2 layouts were run on this machine, 2 failed"));
    let text = String::from_utf8(found.stderr).unwrap();
    assert!(text.contains("none of the 2 layouts"), "{text}");
    // flags out of range, and more devices than this machine stands for
    for (more, flag) in [
        (&["--run", "0"][..], "--run"),
        (&["--run", "1", "--run-steps", "2"], "--run-steps"),
        (&["--run", "1", "--run-limit", "nan"], "--run-limit"),
        (&["--run", "1", "--run-processes", "0"], "--run-processes"),
    ] {
        let found = output(&plan_args(&job, &cluster, more));
        assert_eq!(found.status.code(), Some(2), "{more:?}");
        let text = String::from_utf8(found.stderr).unwrap();
        assert!(text.contains(&format!("{flag}: found")), "{text}");
    }
    let args = plan_args(&job, Path::new("dgx-a100"), &["--run", "1"]);
    let found = output(&args);
    assert_eq!(found.status.code(), Some(2));
    let text = String::from_utf8(found.stderr).unwrap();
    assert!(text.contains("layouts are run on one machine"), "{text}");
}

/// Processes whose command line has this text.
#[cfg(target_os = "linux")]
fn processes_of(text: &str) -> usize {
    let all = std::fs::read_dir("/proc").unwrap().flatten();
    let lines = all.filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok());
    lines
        .filter(|line| String::from_utf8_lossy(line).contains(text))
        .count()
}

/// Sends a signal to a `plan` whose run has begun: its exit code. No process of the run is left.
#[cfg(target_os = "linux")]
fn ended_by(signal: &str) -> Option<i32> {
    let dir = tempfile::tempdir().unwrap();
    let job = write_job(dir.path());
    let cluster = dir.path().join("cpu.toml");
    let runs = dir.path().join("runs");
    let more = [
        "--run",
        "1",
        "--run-steps",
        "99999",
        "--out",
        runs.to_str().unwrap(),
    ];
    let mut parent = millrace(&plan_args(&job, &cluster, &more))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let trains = || processes_of("layout-01/job.toml");
    let begun = Instant::now();
    let is_patient = || begun.elapsed() < Duration::from_secs(120);
    let folder = dir.path().to_str().unwrap();
    let of_this_test = || processes_of(folder) > 1 && trains() > 0;
    while !of_this_test() {
        assert!(is_patient(), "no run was started");
        std::thread::sleep(Duration::from_millis(5));
    }
    let id = parent.id().to_string();
    let sent = std::process::Command::new("kill")
        .args([signal, &id])
        .status();
    assert!(sent.unwrap().success());
    let code = parent.wait().unwrap().code();
    // a shell ends the processes of a planner that could not
    let ended = Instant::now();
    while processes_of(folder) > 0 && ended.elapsed() < Duration::from_secs(20) {
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(processes_of(folder), 0, "a run is left");
    code
}

#[cfg(target_os = "linux")]
#[test]
fn a_signal_ends_the_run_and_its_processes() {
    assert_eq!(ended_by("-INT"), Some(130));
}

#[cfg(target_os = "linux")]
#[test]
fn a_planner_that_is_killed_leaves_no_run_behind() {
    assert_eq!(ended_by("-KILL"), None);
}

#[test]
fn layouts_that_train_as_another_one_are_not_planned() {
    let dir = tempfile::tempdir().unwrap();
    let job = write_job(dir.path());
    let cluster = dir.path().join("cpu.toml");
    let largest = |more: &[&str]| {
        let batch = ["--set", "train.global_batch=4", "--top", "100", "--json"];
        let args = plan_args(&job, &cluster, &[&batch[..], more].concat());
        let found: Value = serde_json::from_slice(&succeed(&args).stdout).unwrap();
        let layouts = found["layouts"].as_array().unwrap().clone();
        let cut = layouts.iter().filter(|of| of["layout"]["cp"] == 2);
        cut.map(|of| of["layout"]["micro_batch"].as_u64().unwrap())
            .max()
    };
    // parts of sequences are summed one sequence at a time
    assert_eq!(largest(&[]), Some(1));
    assert_eq!(largest(&["--set", "determinism=\"run\""]), Some(4));
}

#[test]
fn a_measured_machine_is_a_cluster_that_can_be_planned() {
    let dir = tempfile::tempdir().unwrap();
    let job = write_job(dir.path());
    let file = dir.path().join("here.toml");
    let args = [
        "doctor",
        "--measure",
        file.to_str().unwrap(),
        "--seconds",
        "0.5",
    ];
    succeed(&args);
    let text = std::fs::read_to_string(&file).unwrap();
    let table: toml::Table = text.parse().unwrap();
    for key in [
        "matrix_tflops",
        "matrix_f32_tflops",
        "memory_gb",
        "memory_gb_s",
        "link_gb_s",
        "link_latency_us",
        "op_latency_us",
        "shared_op_latency_us",
    ] {
        let value = &table[key];
        let number = value.as_float().or(value.as_integer().map(|n| n as f64));
        assert!(number.unwrap() > 0.0, "{key}: {value}");
    }
    let cores = std::thread::available_parallelism().unwrap().get();
    assert_eq!(
        table["cores"].as_integer(),
        Some(i64::try_from(cores).unwrap())
    );
    let printed = succeed(&plan_args(&job, &file, &["--json"])).stdout;
    let found: Value = serde_json::from_slice(&printed).unwrap();
    assert!(found["layouts"][0]["step_s"].as_f64().unwrap() > 0.0);
    assert_eq!(found["assumed"].as_array().unwrap().len(), 0);
    // what is there stays there
    let found = output(&args);
    assert_eq!(found.status.code(), Some(2));
    let message = String::from_utf8(found.stderr).unwrap();
    assert!(message.contains("exists; name another file"), "{message}");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), text);
    let found = output(&["doctor", "--measure", "--seconds", "0"]);
    assert_eq!(found.status.code(), Some(2));
}

#[test]
fn a_missing_rate_is_named_with_its_assumption_or_refused() {
    let dir = tempfile::tempdir().unwrap();
    let job = write_job(dir.path());
    let cluster = dir.path().join("short.toml");
    let without = |keys: &[&str]| {
        let lines = CPU.lines();
        let kept = lines.filter(|line| !keys.iter().any(|key| line.starts_with(key)));
        let text: Vec<&str> = kept.collect();
        std::fs::write(&cluster, text.join("\n")).unwrap();
    };
    without(&["link_latency_us", "op_latency_us"]);
    let printed = succeed(&plan_args(&job, &cluster, &[])).stdout;
    let text = String::from_utf8(printed).unwrap();
    for key in ["link_latency_us", "op_latency_us"] {
        assert!(
            text.contains(&format!("the cluster has no {key}")),
            "{text}"
        );
    }
    without(&["matrix_f32_tflops"]);
    let found = output(&plan_args(&job, &cluster, &[]));
    assert_eq!(found.status.code(), Some(2));
    let text = String::from_utf8(found.stderr).unwrap();
    assert!(text.contains("matrix_f32_tflops"), "{text}");
    // 16 bits are the rate that a cluster of GPUs has
    let gpus = "name = 'x'\nnodes = 1\ndevices_per_node = 8\nmatrix_tflops = 312\nmemory_gb = 80\nmemory_gb_s = 2039\nlink_gb_s = 300\n";
    std::fs::write(&cluster, gpus).unwrap();
    let printed = succeed(&plan_args(&job, &cluster, &["--devices", "1"])).stdout;
    let text = String::from_utf8(printed).unwrap();
    assert!(
        text.contains("assumed: products of f32 at the rate of 16 bits"),
        "{text}"
    );
}

/// The job of the comparison below: 20 layouts in some minutes on two cores.
const COMPARED: &str = r#"
name = "compared"
[blend]
seq_length = 128
[[blend.dataset]]
name = "absent"
prefix = "absent"
[model]
family = "llama"
layers = 4
d_model = 256
heads = 4
[train]
steps = 1000
global_batch = 8
micro_batch = 1
"#;

/// `cargo test --release -p millrace-tests --test all -- --ignored --nocapture twenty_layouts`, on a machine that does nothing else.
#[test]
#[ignore = "takes some minutes of a machine that does nothing else"]
fn twenty_layouts_are_ranked_as_they_are_measured() {
    let dir = tempfile::tempdir().unwrap();
    let (job, cluster) = (dir.path().join("job.toml"), dir.path().join("here.toml"));
    let out = dir.path().join("out");
    std::fs::write(&job, format!("out = {out:?}\n{COMPARED}")).unwrap();
    succeed(&["doctor", "--measure", cluster.to_str().unwrap()]);
    println!("{}", std::fs::read_to_string(&cluster).unwrap());
    let more = ["--run", "20", "--spread", "--run-steps", "12", "--json"];
    let args = plan_args(&job, &cluster, &more);
    let found: Value = serde_json::from_slice(&succeed(&args).stdout).unwrap();
    let run = &found["run"];
    let mut times = Vec::new();
    for row in run["rows"].as_array().unwrap() {
        println!(
            "{} predicted {:.4} s, measured {:.4} s, {}",
            row["layout"],
            row["predicted_s"].as_f64().unwrap(),
            row["measured_s"].as_f64().unwrap_or(f64::NAN),
            row["failed"]
        );
        times.extend(row["measured_s"].as_f64());
    }
    println!(
        "measured over predicted {}, tau {}",
        run["correction"], run["kendall_tau"]
    );
    assert_eq!(times.len(), 20);
    let best = times.iter().copied().fold(f64::INFINITY, f64::min);
    assert!(
        run["kendall_tau"].as_f64().unwrap() >= 0.8,
        "{}",
        run["kendall_tau"]
    );
    assert!(
        times[0] <= 1.05 * best,
        "the planner's choice takes {} s, the best {best} s",
        times[0]
    );
}
