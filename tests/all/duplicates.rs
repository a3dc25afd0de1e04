//! Tests of `[dedup]` with verification, policies and indexes, as processes: the same bytes after kills, crawl
//! after crawl, and the sections of the report.

use crate::jobs::{assert_same, data, millrace, output, succeed};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

/// A job over texts of the tiny job's data, with an index folder beside it.
fn job(folder: &Path, name: &str, inputs: &[&str]) -> PathBuf {
    let inputs = inputs.iter().map(|file| {
        let path = data(file);
        format!("{{ path = {path:?}, format = \"jsonl\", source = \"pile\" }}")
    });
    let text = format!(
        r#"
name = "{name}"
out = {out:?}
[curate]
split_mb = 1
inputs = [{inputs}]
[dedup]
exact = {{}}
minhash = {{ preset = "native", bands = 22, rows = 5, verify = 0.7 }}
keep = "longest"
priority = ["pile/Wikipedia (en)"]
index = {index:?}
"#,
        inputs = inputs.collect::<Vec<_>>().join(", "),
        out = folder.join(name),
        index = folder.join("indexes"),
    );
    std::fs::create_dir_all(folder.join("indexes")).unwrap();
    let path = folder.join(format!("{name}.toml"));
    std::fs::write(&path, text).unwrap();
    path
}

fn counts(folder: &Path, name: &str) -> Value {
    let manifest = std::fs::read_to_string(folder.join(name).join("manifest.json")).unwrap();
    let manifest: Value = serde_json::from_str(&manifest).unwrap();
    manifest["dedup"]["counts"].clone()
}

#[test]
fn ten_kills_and_other_threads_do_not_change_a_byte_of_verified_deduplication() {
    let dir = tempfile::tempdir().unwrap();
    let both = ["pile-00000.jsonl.zst", "pile-00001.jsonl.zst"];
    let job = job(dir.path(), "calm", &both);
    let job = job.to_str().unwrap();
    succeed(&["curate", job]);
    let started = Instant::now();
    succeed(&["dedup", job, "--set", "threads=1"]);
    let whole = started.elapsed();
    let calm = dir.path().join("calm");
    let found = counts(dir.path(), "calm");
    assert!(found["verify"]["removed"].as_u64().unwrap() > 10, "{found}");
    let killed = dir.path().join("killed");
    let set = format!("out={killed:?}");
    succeed(&["curate", job, "--set", &set]);
    let args = [
        "dedup",
        job,
        "--set",
        &set,
        "--set",
        "threads=2",
        "--set",
        "dedup.memory_mb=16",
    ];
    let mut state = 0x1234_5678u32;
    for _ in 0..10 {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let share = f64::from(state >> 8) / f64::from(1u32 << 24);
        let mut child = millrace(&args)
            .stderr(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        std::thread::sleep(whole.mul_f64(share * 0.9).max(Duration::from_millis(5)));
        // SIGKILL; the run may have ended before
        let _ = child.kill();
        child.wait().unwrap();
    }
    succeed(&args);
    assert_same(&calm, &killed, 8, "a calm run and one killed ten times");
    assert!(!killed.join("tmp").exists());
}

#[test]
fn a_second_crawl_loses_what_the_first_kept_and_the_report_tells_it() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path();
    let first = job(folder, "first", &["pile-00000.jsonl.zst"]);
    for verb in ["curate", "dedup"] {
        succeed(&[verb, first.to_str().unwrap()]);
    }
    let kept = counts(folder, "first")["kept"].as_u64().unwrap();
    let index = folder.join("indexes/first.index");
    std::fs::copy(folder.join("first/keep/kept.index"), &index).unwrap();
    // the texts of the first crawl again: all of them are removed
    let second = job(
        folder,
        "second",
        &["pile-00000.jsonl.zst", "pile-00001.jsonl.zst"],
    );
    let second = second.to_str().unwrap();
    succeed(&["curate", second]);
    succeed(&["dedup", second]);
    let found = counts(folder, "second");
    assert_eq!(found["indexed"].as_u64(), Some(kept));
    assert!(found["earlier"].as_u64().unwrap() >= kept, "{found}");
    let sum: u64 = ["kept", "earlier", "exact", "fuzzy", "url", "hollow"]
        .iter()
        .map(|key| found[key].as_u64().unwrap())
        .sum();
    assert_eq!(found["documents"].as_u64(), Some(sum));
    succeed(&["report", second]);
    let page = std::fs::read_to_string(folder.join("second/report.html")).unwrap();
    for printed in [
        "of earlier crawls",
        "Verified from a similarity of 0.7",
        "repeated (FineWeb-2)",
    ] {
        assert!(page.contains(printed), "{printed}");
    }
    let first = folder.join("first");
    succeed(&["report", second, "--compare", first.to_str().unwrap()]);
    let page = std::fs::read_to_string(folder.join("second/report.html")).unwrap();
    let (here, there) = (found["kept"].as_u64().unwrap(), kept);
    assert!(here != there && here.max(there) < 1000, "{here} {there}");
    let row =
        format!("<td>documents kept</td><td class=number>{here}</td><td class=number>{there}</td>");
    assert!(page.contains(&row), "{row}");
    // another index in the folder changes the fingerprint: the stage runs again
    let newer = folder.join("second/keep/kept.index");
    let merged = folder.join("all.index");
    let of = |path: &Path| path.to_str().unwrap().to_string();
    succeed(&["merge", &of(&merged), &of(&index), &of(&newer)]);
    let printed = succeed(&["inspect", &of(&merged), "--json"]);
    let printed: Value = serde_json::from_slice(&printed.stdout).unwrap();
    let wanted = kept + found["kept"].as_u64().unwrap();
    assert_eq!(printed["documents"].as_u64(), Some(wanted));
    assert_eq!(printed["crawls"].as_array().unwrap().len(), 2);
    std::fs::rename(&merged, folder.join("indexes/all.index")).unwrap();
    let refused = output(&["dedup", second]);
    assert!(!refused.status.success());
    let stderr = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(
        stderr.contains("first.index") || stderr.contains("all.index"),
        "{stderr}"
    );
    // a source that no input has is reported before anything runs
    let wrong = output(&["dedup", second, "--set", "dedup.priority=[\"wiki\"]"]);
    assert_eq!(wrong.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&wrong.stderr).contains("dedup.priority[0]"));
}
