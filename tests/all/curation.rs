//! Test of a curation with every step that needs no external file: the same bytes for every division into tasks.

use crate::jobs::{assert_same, killed_once, millrace, succeed};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

/// A job over two files of pages and 3 MB of texts, which are divided into parts.
pub(crate) fn job(folder: &Path) -> PathBuf {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../pipelines/jobs/tiny/data");
    let packed = std::fs::read(data.join("pile-00000.jsonl.zst")).unwrap();
    let texts = folder.join("texts.jsonl");
    std::fs::write(&texts, zstd::decode_all(&packed[..]).unwrap()).unwrap();
    assert!(std::fs::metadata(&texts).unwrap().len() > 2 << 20);
    // books, papers and an archive, in one folder
    let documents = folder.join("documents");
    std::fs::create_dir_all(&documents).unwrap();
    let curate = Path::new(env!("CARGO_MANIFEST_DIR")).join("../curate/tests/data");
    for name in [
        "documents/book.epub",
        "documents/report.docx",
        "documents/report.odt",
        "documents/two_columns.pdf",
        "documents/story.pdf",
        "documents/paper.tar.xz",
        "documents/sample.zim",
        "archives/whirlwind.warc.gz",
    ] {
        let to = documents.join(name.rsplit('/').next().unwrap());
        std::fs::copy(curate.join(name), to).unwrap();
    }
    let text = format!(
        r#"
name = "curation"
out = {out:?}
[curate]
split_mb = 1
figures = true
statistics = true
output = "parquet"
inputs = [
  {{ path = {pages:?}, format = "warc", source = "crawl" }},
  {{ path = {texts:?}, source = "pile" }},
  {{ path = {documents:?}, format = "auto", source = "documents" }},
]
[[curate.step]]
extract = {{ format = "markdown" }}
[[curate.step]]
url = {{ domains = ["example.org"], words = ["casino"] }}
[[curate.step]]
normalize = {{ white_space = true }}
[[curate.step]]
language = {{ keep = ["en", "de"], per_paragraph = true, scripts = true }}
[[curate.step]]
code = {{ keep = ["prose"] }}
[[curate.step]]
gopher_quality = {{}}
[[curate.step]]
dclm = {{}}
[[curate.step]]
pii = {{ kinds = ["email", "ip", "phone", "iban", "credit_card", "secret", "national_id", "person_name", "street_address"] }}
[[curate.step]]
expression = {{ name = "long", keep = "gopher_quality.short_doc >= 80 and chars > 500" }}
[[curate.step]]
tag = {{ set = {{ is_english = "language == 'en'", share = "meta.languages.en" }} }}
[[curate.step]]
group = {{ name = "language", by = "language" }}
[[curate.step]]
sample = {{ name = "some", weight = "min(1, default(meta.share, 0) + 0.2)" }}
[dedup]
exact = {{}}
minhash = {{ preset = "fineweb" }}
"#,
        out = folder.join("out"),
        pages = data.join("crawl-0000[01].warc.gz"),
        documents = folder.join("documents"),
    );
    let path = folder.join("job.toml");
    std::fs::write(&path, text).unwrap();
    path
}

/// Runs both stages with the overrides `sets`; returns the folder.
pub(crate) fn run(job: &Path, name: &str, sets: &[&str]) -> PathBuf {
    let out = job.with_file_name(name);
    for verb in ["curate", "dedup"] {
        let out = format!("out={out:?}");
        let mut args = vec![verb, job.to_str().unwrap(), "--set", &out];
        sets.iter().for_each(|set| args.extend(["--set", set]));
        succeed(&args);
    }
    out
}

#[test]
fn parts_tasks_threads_and_kills_do_not_change_a_byte() {
    let dir = tempfile::tempdir().unwrap();
    let job = job(dir.path());
    let started = Instant::now();
    let one = run(&job, "one", &["threads=1", "curate.tasks=1"]);
    let whole = started.elapsed();
    for (name, threads, tasks) in [
        ("two", "threads=2", "curate.tasks=2"),
        ("five", "threads=2", "curate.tasks=5"),
    ] {
        let other = run(&job, name, &[threads, tasks]);
        assert_same(&one, &other, 22, name);
    }
    let killed = job.with_file_name("killed");
    let set = format!("out={killed:?}");
    let mut state = 0x9e37_79b9u32;
    for _ in 0..10 {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let share = f64::from(state >> 8) / f64::from(1u32 << 24);
        let mut child = millrace(&["curate", job.to_str().unwrap(), "--set", &set])
            .stderr(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        std::thread::sleep(whole.mul_f64(share * 0.3).max(Duration::from_millis(5)));
        let _ = child.kill();
        child.wait().unwrap();
    }
    run(&job, "killed", &[]);
    assert_same(&one, &killed, 22, "a calm run and one killed ten times");
}

#[test]
fn a_shard_killed_in_its_middle_goes_on_from_its_journal() {
    let dir = tempfile::tempdir().unwrap();
    let job = job(dir.path());
    let texts = std::fs::read(dir.path().join("texts.jsonl")).unwrap();
    let long = dir.path().join("long.jsonl");
    std::fs::write(&long, texts.repeat(6)).unwrap();
    let inputs = format!("curate.inputs=[{{path={long:?}, source=\"pile\"}}]");
    let sets = ["curate.split_mb=0", "curate.journal_mb=0", &inputs];
    let calm = run(&job, "calm", &sets);
    let killed = job.with_file_name("killed");
    let journal = killed.join("records/curate/00000.journal");
    let length = || std::fs::metadata(&journal).map_or(0, |m| m.len());
    let out = format!("out={killed:?}");
    let mut args = vec!["curate", job.to_str().unwrap(), "--set", &out];
    sets.iter().for_each(|set| args.extend(["--set", set]));
    // a process may end before its kill: then all of them once more
    let are_killed = (0..10).any(|_| {
        let _ = std::fs::remove_dir_all(&killed);
        [1 << 20, 4 << 20, 8 << 20].into_iter().all(|least| {
            let before = length();
            killed_once(&args, || {
                let (now, batch) = (length(), 6 << 20);
                // the journal of a finished shard is removed
                let is_kept = now + batch >= before || !journal.exists();
                assert!(is_kept, "{now} of {before} bytes were kept");
                now >= least
            })
        })
    });
    assert!(are_killed, "they ended before their kills");
    run(&job, "killed", &sets);
    assert!(!journal.exists(), "the journal of a finished shard");
    assert_same(&calm, &killed, 8, "a calm run and one killed in its shard");
}

#[test]
fn statistics_are_those_of_the_documents_however_the_files_are_cut() {
    let dir = tempfile::tempdir().unwrap();
    let job = job(dir.path());
    let read = |out: &Path| -> Value {
        let text = std::fs::read_to_string(out.join("statistics.json")).unwrap();
        serde_json::from_str(&text).unwrap()
    };
    let parts = run(&job, "parts", &[]);
    let whole = run(&job, "whole", &["curate.split_mb=0"]);
    assert!(std::fs::read_dir(parts.join("clean")).unwrap().count() > 8);
    assert!(read(&parts) == read(&whole));
    let bytes = |out: &Path| std::fs::read(out.join("statistics.parquet")).unwrap();
    assert!(bytes(&parts) == bytes(&whole));

    let manifest: Value =
        serde_json::from_str(&std::fs::read_to_string(whole.join("manifest.json")).unwrap())
            .unwrap();
    let counts = &manifest["curate"]["counts"];
    let found = read(&whole);
    let row = |state: &str, figure: &str| {
        let rows = found["figures"].as_array().unwrap().iter();
        rows.filter(|r| r["state"] == state && r["figure"] == figure)
            .find(|r| r["source"].is_null() && r["language"].is_null())
            .unwrap()
            .clone()
    };
    let kept = row("kept", "length");
    assert_eq!(kept["documents"], counts["kept"]);
    assert_eq!(kept["sum"].as_f64(), counts["chars"].as_f64());
    assert_eq!(
        row("kept", "bytes")["sum"].as_f64(),
        counts["bytes_out"].as_f64()
    );
    assert_eq!(
        found["hosts"]["documents"].as_u64(),
        row_count(&counts["hosts"])
    );
    // the values that a rule measured are recorded too, also for documents that it dropped
    let measured = row("dropped", "gopher_quality.short_doc")["documents"].as_u64();
    assert!(measured > counts["dropped"]["gopher_quality.short_doc"].as_u64());
}

/// Sum of a map of counts.
fn row_count(counts: &Value) -> Option<u64> {
    Some(counts.as_object()?.values().filter_map(Value::as_u64).sum())
}

#[test]
fn report_answers_for_other_limits_and_refuses_unknown_rules() {
    let dir = tempfile::tempdir().unwrap();
    let job = job(dir.path());
    let out = run(&job, "out", &[]);
    let ask = |limits: &[&str]| {
        let mut args = vec!["report", job.to_str().unwrap()];
        limits.iter().for_each(|l| args.extend(["--limit", l]));
        millrace(&args).output().unwrap()
    };
    let printed = ask(&["gopher_quality.short_doc=200"]);
    assert!(printed.status.success());
    let text = String::from_utf8(printed.stdout).unwrap();
    let kept = text.lines().find(|l| l.starts_with("kept")).unwrap();
    let then: u64 = kept
        .split_whitespace()
        .last()
        .unwrap()
        .replace(',', "")
        .parse()
        .unwrap();
    // the same counts by filtering again
    let again = run(
        &job,
        "again",
        &["curate.step.5.gopher_quality.min_doc_words=200"],
    );
    let counts = |out: &Path| -> Value {
        let text = std::fs::read_to_string(out.join("manifest.json")).unwrap();
        serde_json::from_str::<Value>(&text).unwrap()["curate"]["counts"].clone()
    };
    assert_eq!(Some(then), counts(&again)["kept"].as_u64());
    assert!(Some(then) < counts(&out)["kept"].as_u64());
    let wrong = ask(&["gopher_quality.shrot_doc=1"]);
    let why = String::from_utf8(wrong.stderr).unwrap();
    assert!(
        !wrong.status.success() && why.contains("gopher_quality.short_doc"),
        "{why}"
    );
    assert_eq!(ask(&["gopher_quality.short_doc"]).status.code(), Some(2));
}
