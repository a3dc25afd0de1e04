//! Bad data is counted and told, bad jobs are told whole, damaged files are refused; nothing panics.

use crate::jobs::{data, output, succeed, write_small_job};
use serde_json::Value;
use std::path::Path;

/// A job that only curates `inputs` (path, format).
fn curate_job(folder: &Path, inputs: &[(&Path, &str)], most_bad: u64) -> String {
    let list: Vec<String> = inputs
        .iter()
        .map(|(p, f)| format!("{{ path = {p:?}, format = \"{f}\", source = \"x\" }}"))
        .collect();
    let text = format!(
        "name = \"bad\"\nout = {:?}\n[curate]\nmax_bad_records = {most_bad}\ninputs = [{}]\n[[curate.step]]\nextract = {{}}\n",
        folder.join("out"),
        list.join(", ")
    );
    let path = folder.join("job.toml");
    std::fs::write(&path, text).unwrap();
    path.display().to_string()
}

fn counts(out: &Path) -> Value {
    let text = std::fs::read_to_string(out.join("manifest.json")).unwrap();
    let manifest: Value = serde_json::from_str(&text).unwrap();
    manifest["curate"]["counts"].clone()
}

/// kept + dropped + quarantined == records.
fn assert_adds_up(c: &Value) {
    let n = |v: &Value| v.as_u64().unwrap();
    let dropped: u64 = c["dropped"].as_object().unwrap().values().map(n).sum();
    assert_eq!(
        n(&c["kept"]) + dropped + n(&c["quarantined"]),
        n(&c["records"]),
        "{c}"
    );
}

#[test]
fn damaged_files_are_quarantined_with_path_and_offset_and_the_job_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str| dir.path().join(name);
    let warc = std::fs::read(data("crawl-00000.warc.gz")).unwrap();
    // a member cut short in the middle of the file, and the end of the file missing
    let mut holed = warc[..200_000].to_vec();
    holed.extend_from_slice(&warc[230_000..400_000]);
    std::fs::write(file("holed.warc.gz"), holed).unwrap();
    let long = format!("{{\"text\": \"{}\"}}\n", "a".repeat(50 << 20));
    let mut lines =
        b"{\"text\": \"first good line\"}\n{\"text\": \"broken\n{\"text\": 7}\n[1]\nnull\n"
            .to_vec();
    lines.extend_from_slice(b"{\"text\": \"not utf-8 \xff\xfe\"}\n");
    lines.extend_from_slice(long.as_bytes());
    lines.extend_from_slice(b"{\"text\": \"last good line, no newline\"}");
    std::fs::write(file("lines.jsonl"), lines).unwrap();
    std::fs::write(file("empty.jsonl"), b"").unwrap();
    std::fs::write(file("empty.warc.gz"), b"").unwrap();
    let files = [
        "holed.warc.gz",
        "lines.jsonl",
        "empty.jsonl",
        "empty.warc.gz",
    ]
    .map(file);
    let inputs: Vec<(&Path, &str)> = files
        .iter()
        .map(|f| {
            (
                f.as_path(),
                if f.extension().unwrap() == "gz" {
                    "warc"
                } else {
                    "jsonl"
                },
            )
        })
        .collect();
    let job = curate_job(dir.path(), &inputs, 1000);
    succeed(&["curate", &job]);
    let c = counts(&dir.path().join("out"));
    assert_adds_up(&c);
    let errors = std::fs::read_to_string(dir.path().join("out/errors.jsonl")).unwrap();
    let errors: Vec<Value> = errors
        .lines()
        .map(|l| serde_json::from_str(l).unwrap())
        .collect();
    let lost = errors.iter().filter(|e| e.get("repaired").is_none());
    assert_eq!(lost.count() as u64, c["quarantined"].as_u64().unwrap());
    let of = |name: &str| {
        errors
            .iter()
            .filter(|e| e["path"].as_str().unwrap().ends_with(name))
            .count()
    };
    assert!(of("holed.warc.gz") >= 1, "{errors:?}");
    assert_eq!(of("lines.jsonl"), 6, "{errors:?}");
    for e in &errors {
        assert!(
            e["offset"].is_u64() && e["why"].as_str().is_some_and(|w| !w.is_empty()),
            "{e}"
        );
    }
    assert!(
        c["kept"].as_u64().unwrap() >= 2,
        "the good lines around the bad ones were kept: {c}"
    );
}

#[test]
fn more_bad_records_than_allowed_fail_the_job_with_the_number() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("lines.jsonl");
    std::fs::write(&path, "{\n{\n{\n{\"text\": \"good\"}\n").unwrap();
    let job = curate_job(dir.path(), &[(&path, "jsonl")], 2);
    let out = output(&["curate", &job]);
    let stderr = String::from_utf8_lossy(&out.stderr);
    assert_eq!(out.status.code(), Some(1), "{stderr}");
    assert!(
        stderr.contains("3 records are bad") && stderr.contains("max_bad_records = 2"),
        "{stderr}"
    );
}

#[test]
fn a_bad_job_is_told_whole_with_exit_code_2() {
    let dir = tempfile::tempdir().unwrap();
    let good = std::fs::read_to_string(write_small_job(dir.path())).unwrap();
    let bad = good
        .replace("steps = 12", "steps = \"twelve\"")
        .replace("micro_batch = 1", "micro_batch = 3")
        .replace("gopher_quality = {}", "gopher_quality = { wurds = 3 }")
        .replace("weight = 0.6", "weight = -0.6");
    let path = dir.path().join("bad.toml");
    std::fs::write(&path, bad).unwrap();
    let out = output(&["run", &path.display().to_string()]);
    let stderr = String::from_utf8_lossy(&out.stderr);
    assert_eq!(out.status.code(), Some(2), "{stderr}");
    for key in [
        "train.steps",
        "train.global_batch",
        "curate.step[3].gopher_quality.wurds",
        "blend.dataset[1].weight",
    ] {
        assert!(stderr.contains(key), "{key} is missing:\n{stderr}");
    }
    assert!(
        !dir.path().join("out").exists(),
        "a bad job wrote something"
    );
}

#[test]
fn check_prints_a_job_that_checks_to_itself() {
    let dir = tempfile::tempdir().unwrap();
    let job = write_small_job(dir.path()).display().to_string();
    let first = succeed(&["run", &job, "--check"]).stdout;
    let again = dir.path().join("again.toml");
    std::fs::write(&again, &first).unwrap();
    let second = succeed(&["run", &again.display().to_string(), "--check"]).stdout;
    assert_eq!(
        String::from_utf8(first).unwrap(),
        String::from_utf8(second).unwrap()
    );
    let tiny = succeed(&["run", "pipelines/jobs/tiny/job.toml", "--check"]);
    assert!(!tiny.stdout.is_empty());
}

#[test]
fn damaged_datasets_and_checkpoints_are_refused_with_place_and_expectation() {
    let dir = tempfile::tempdir().unwrap();
    let job = write_small_job(dir.path()).display().to_string();
    succeed(&["run", &job]);
    let out = dir.path().join("out");
    let idx = out.join("tokens/pile.idx");
    let whole = std::fs::read(&idx).unwrap();
    for (damage, word) in [
        (whole[..whole.len() - 3].to_vec(), "file size"),
        (flipped(&whole, 9), "version"),
    ] {
        std::fs::write(&idx, damage).unwrap();
        let told = output(&["inspect", &idx.display().to_string()]);
        let stderr = String::from_utf8_lossy(&told.stderr);
        assert_eq!(told.status.code(), Some(1));
        assert!(
            stderr.contains("pile.idx") && stderr.contains("byte") && stderr.contains(word),
            "{stderr}"
        );
        assert!(!stderr.contains("panicked"), "{stderr}");
    }
    std::fs::write(&idx, &whole).unwrap();
    let weights = out.join("checkpoints/step-00000012/model.safetensors");
    let bytes = std::fs::read(&weights).unwrap();
    for damage in [
        bytes[..bytes.len() / 2].to_vec(),
        flipped(&bytes, 3),
        flipped(&bytes, bytes.len() - 5),
    ] {
        std::fs::write(&weights, damage).unwrap();
        let told = output(&["generate", &job]);
        let stderr = String::from_utf8_lossy(&told.stderr);
        assert_eq!(told.status.code(), Some(1), "{stderr}");
        assert!(stderr.contains("model.safetensors"), "{stderr}");
        assert!(!stderr.contains("panicked"), "{stderr}");
    }
    std::fs::write(&weights, &bytes).unwrap();
    succeed(&["generate", &job]);
}

fn flipped(bytes: &[u8], at: usize) -> Vec<u8> {
    let mut out = bytes.to_vec();
    out[at] ^= 0x55;
    out
}

#[test]
fn check_asks_whether_inputs_are_there() {
    let dir = tempfile::tempdir().unwrap();
    let (gone, there) = (
        dir.path().join("gone.jsonl"),
        dir.path().join("there.jsonl"),
    );
    std::fs::write(&there, "{\"text\": \"x\"}\n").unwrap();
    let job = curate_job(dir.path(), &[(&gone, "jsonl"), (&there, "jsonl")], 0);
    let out = output(&["curate", &job, "--check"]);
    let stderr = String::from_utf8_lossy(&out.stderr);
    assert_eq!(out.status.code(), Some(2), "{stderr}");
    assert!(stderr.contains("curate.inputs[0].path"), "{stderr}");
    assert!(!stderr.contains("curate.inputs[1]"), "{stderr}");
    std::fs::write(&gone, "").unwrap();
    succeed(&["curate", &job, "--check"]);
}

#[test]
fn inspect_and_extract_fail_on_damage_and_on_what_is_no_page() {
    let dir = tempfile::tempdir().unwrap();
    let told = |verb: &str, name: &str, bytes: &[u8]| {
        let path = dir.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        let out = output(&[verb, &path.display().to_string()]);
        let stderr = String::from_utf8_lossy(&out.stderr).into_owned();
        (out.status.code(), stderr)
    };
    let warc = std::fs::read(data("crawl-00000.warc.gz")).unwrap();
    assert_eq!(told("inspect", "whole.warc.gz", &warc).0, Some(0));
    let (code, why) = told("inspect", "cut.warc.gz", &warc[..200_000]);
    assert_eq!(code, Some(1));
    assert!(
        why.contains("at byte") && why.contains("inside a gzip member"),
        "{why}"
    );
    for (name, bytes, kind) in [
        ("x.pdf", &b"%PDF-1.4 <html>"[..], "a PDF"),
        ("x.bin", &[1, 2, 3, 0, 0, 5][..], "binary data"),
        ("x.json", b"{\"text\": \"<p>x\"}", "JSON"),
    ] {
        let (code, why) = told("extract", name, bytes);
        assert_eq!(code, Some(1));
        assert!(why.contains(kind) && why.contains("wanted"), "{why}");
    }
    assert_eq!(told("extract", "x.txt", b"plain words").0, Some(0));
}
