//! A curation with every step that needs no file of its own, cut into parts: the same bytes however it is run.

use crate::jobs::{assert_same, millrace, succeed};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

/// A job over two files of pages and 3 MB of texts, of which parts are made.
fn job(folder: &Path) -> PathBuf {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../pipelines/jobs/tiny/data");
    let packed = std::fs::read(data.join("pile-00000.jsonl.zst")).unwrap();
    let texts = folder.join("texts.jsonl");
    std::fs::write(&texts, zstd::decode_all(&packed[..]).unwrap()).unwrap();
    assert!(std::fs::metadata(&texts).unwrap().len() > 2 << 20);
    let text = format!(
        r#"
name = "curation"
out = {out:?}
[curate]
split_mb = 1
figures = true
output = "parquet"
inputs = [
  {{ path = {pages:?}, format = "warc", source = "crawl" }},
  {{ path = {texts:?}, source = "pile" }},
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
pii = {{ kinds = ["email", "ip", "phone", "iban", "credit_card", "secret"] }}
[[curate.step]]
expression = {{ name = "long", keep = "gopher_quality.short_doc >= 80 and chars > 500" }}
[dedup]
exact = {{}}
minhash = {{ preset = "fineweb" }}
"#,
        out = folder.join("out"),
        pages = data.join("crawl-0000[01].warc.gz"),
    );
    let path = folder.join("job.toml");
    std::fs::write(&path, text).unwrap();
    path
}

/// Runs both stages with settings of its own; the folder.
fn run(job: &Path, name: &str, sets: &[&str]) -> PathBuf {
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
        assert_same(&one, &other, 16, name);
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
    assert_same(&one, &killed, 16, "a calm run and one killed ten times");
}
