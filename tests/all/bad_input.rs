//! Tests of bad input: bad records are counted and reported, a bad job's problems are reported all at once, damaged
//! files are refused; nothing panics.

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

/// Exit code and stderr of `millrace curate`.
fn curate(job: &str, more: &[&str]) -> (Option<i32>, String) {
    let out = output(&[&["curate", job], more].concat());
    (out.status.code(), String::from_utf8(out.stderr).unwrap())
}

fn is_recorded(out: &Path, stage: &str) -> bool {
    let text = std::fs::read_to_string(out.join("manifest.json")).unwrap_or_default();
    let manifest: Value = serde_json::from_str(&text).unwrap_or_default();
    manifest.get(stage).is_some() || out.join(format!("records/{stage}.json")).exists()
}

#[test]
fn more_bad_records_than_allowed_fail_the_job_each_time_whatever_was_done_before() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    let names = ["a.jsonl", "b.jsonl", "c.jsonl"];
    let paths = names.map(|name| dir.path().join(name));
    for (path, bad) in paths.iter().zip([1, 2, 0]) {
        let lines = "{\n".repeat(bad) + "{\"text\": \"good\"}\n";
        std::fs::write(path, lines).unwrap();
    }
    let inputs: Vec<(&Path, &str)> = paths.iter().map(|p| (p.as_path(), "jsonl")).collect();
    let job = curate_job(dir.path(), &inputs, 2);
    for tasks in ["1", "3", "1"] {
        let (code, stderr) = curate(&job, &["--set", &format!("curate.tasks={tasks}")]);
        assert_eq!(code, Some(1), "{stderr}");
        assert!(
            stderr.contains("max_bad_records = 2") && stderr.contains("at byte"),
            "{stderr}"
        );
        assert!(!is_recorded(&out, "curate"));
    }
    // one of the two shards with bad records is over the limit, and its errors can be inspected
    let done = ["curate/00000", "curate/00001"].map(|stage| is_recorded(&out, stage));
    assert!(done.contains(&false));
    let printed = (0..2).map(|i| std::fs::read_to_string(out.join(format!("errors/{i:05}.jsonl"))));
    assert!(printed.flatten().any(|text| text.contains("broken JSON")));
    // the limit does not affect the result: with a higher one the rest is done
    let (code, stderr) = curate(&job, &["--set", "curate.max_bad_records=3"]);
    assert_eq!(code, Some(0), "{stderr}");
    assert!(is_recorded(&out, "curate"));
    let c = counts(&out);
    assert_adds_up(&c);
    assert_eq!(
        (c["quarantined"].as_u64(), c["kept"].as_u64()),
        (Some(3), Some(3))
    );
}

#[test]
fn ten_megabytes_of_bad_lines_stop_soon_and_write_little() {
    let dir = tempfile::tempdir().unwrap();
    let paths = ["short.jsonl", "long.jsonl"].map(|name| dir.path().join(name));
    std::fs::write(&paths[0], "{\n".repeat(5 << 20)).unwrap();
    // parsers quote their input
    let line = format!("{{\"text\": [\"{}\"]}}\n", "a".repeat(1 << 20));
    std::fs::write(
        &paths[1],
        format!("{{\"text\": \"good\"}}\n{}", line.repeat(10)),
    )
    .unwrap();
    let size = |folder: &Path| -> u64 {
        let entries = std::fs::read_dir(folder).unwrap().flatten();
        entries.map(|e| e.metadata().unwrap().len()).sum()
    };
    for (path, code, most) in [(&paths[0], Some(1), 1 << 19), (&paths[1], Some(0), 1 << 13)] {
        let job = curate_job(dir.path(), &[(path, "jsonl")], 1000);
        let (found, stderr) = curate(&job, &[]);
        assert_eq!(found, code, "{stderr}");
        let errors = size(&dir.path().join("out/errors"));
        assert!(errors < most, "{errors} bytes of errors");
        std::fs::remove_dir_all(dir.path().join("out")).unwrap();
    }
}

#[test]
fn inputs_that_cannot_be_read_are_errors_of_their_shards_and_tried_again() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    let at = |name: &str| dir.path().join(name);
    let good = "{\"text\": \"good\"}\n";
    std::fs::write(at("good.jsonl"), good).unwrap();
    // can be opened, but every read fails
    std::os::unix::fs::symlink("/proc/self/mem", at("refused.jsonl")).unwrap();
    // named in a list, but missing
    std::fs::write(
        at("list.paths"),
        format!("{}\n", at("gone.jsonl").display()),
    )
    .unwrap();
    std::fs::write(at("other.warc"), good).unwrap();
    let names = [
        ("refused.jsonl", "jsonl"),
        ("list.paths", "jsonl"),
        ("other.warc", "warc"),
        ("good.jsonl", "jsonl"),
    ];
    let paths = names.map(|(name, format)| (at(name), format));
    let inputs: Vec<(&Path, &str)> = paths.iter().map(|(p, f)| (p.as_path(), *f)).collect();
    let job = curate_job(dir.path(), &inputs, 1000);
    for _ in 0..2 {
        let (code, stderr) = curate(&job, &[]);
        assert_eq!(code, Some(1), "{stderr}");
        for printed in [
            "3 shards failed",
            "refused.jsonl",
            "Input/output error",
            "gone.jsonl",
            "gone.jsonl: no such file or folder",
            "other.warc: not a WARC file: starts with",
        ] {
            assert!(stderr.contains(printed), "{printed} is missing:\n{stderr}");
        }
        assert!(!is_recorded(&out, "curate") && is_recorded(&out, "curate/00003"));
        for shard in 0..3 {
            assert!(!is_recorded(&out, &format!("curate/{shard:05}")));
        }
    }
    std::fs::remove_file(at("refused.jsonl")).unwrap();
    for name in ["refused.jsonl", "gone.jsonl"] {
        std::fs::write(at(name), good).unwrap();
    }
    let (code, stderr) = curate(&job, &["--set", "curate.inputs.2.format=jsonl"]);
    assert_eq!(code, Some(0), "{stderr}");
    assert_eq!(counts(&out)["kept"].as_u64(), Some(4));
}

#[test]
fn a_run_of_bad_records_alone_fails_and_names_the_first_reasons() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("lines.jsonl");
    std::fs::write(&path, "{\"body\": 1}\n{\"text\": 7}\n").unwrap();
    let job = curate_job(dir.path(), &[(&path, "jsonl")], 1000);
    for _ in 0..2 {
        let (code, stderr) = curate(&job, &[]);
        assert_eq!(code, Some(1), "{stderr}");
        for printed in [
            "all 2 records are bad",
            "no text field",
            "byte 12",
            "errors.jsonl",
        ] {
            assert!(stderr.contains(printed), "{printed} is missing:\n{stderr}");
        }
        assert!(!is_recorded(&dir.path().join("out"), "curate"));
    }
    std::fs::write(&path, "{\"body\": 1}\n{\"text\": \"good\", \"n\": NaN}\n").unwrap();
    let (code, stderr) = curate(&job, &[]);
    assert_eq!(code, Some(0), "{stderr}");
    assert_eq!(counts(&dir.path().join("out"))["kept"].as_u64(), Some(1));
}

/// A Parquet file with one byte changed makes its library panic or fail: either is reported as a reason, and no
/// panic is printed.
#[test]
fn panics_of_libraries_are_reasons_of_records_and_are_not_printed() {
    let dir = tempfile::tempdir().unwrap();
    let sound = std::fs::read("../curate/tests/data/archives/sample.parquet").unwrap();
    let path = dir.path().join("in.parquet");
    let job = curate_job(dir.path(), &[(&path, "parquet")], 1000);
    let reasons = |at: usize, change: u8| {
        let mut bytes = sound.clone();
        bytes[at] ^= change;
        std::fs::write(&path, bytes).unwrap();
        let (_, stderr) = curate(&job, &[]);
        assert!(!stderr.contains("panicked"), "byte {at}: {stderr}");
        let errors = std::fs::read_to_string(dir.path().join("out/errors.jsonl"));
        let _ = std::fs::remove_dir_all(dir.path().join("out"));
        stderr + &errors.unwrap_or_default()
    };
    // these are asserts and bounds checks in the library, which reports them only by panicking
    for (at, change, message) in [
        (3170, 0x10, "Decoder for dict should have been set"),
        (4591, 0x01, "column start and length should not be negative"),
        (
            1213,
            0x08,
            "range end index 4 out of range for slice of length 0",
        ),
    ] {
        let printed = reasons(at, change);
        let wanted = format!("the file contradicts itself: {message}");
        assert!(printed.contains(&wanted), "byte {at}: {printed}");
    }
    for at in (4..sound.len()).step_by(sound.len() / 60) {
        reasons(at, 0xff);
    }
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

/// A width of 9e18 is refused before anything is as large.
#[test]
fn absurd_widths_are_refused_by_file_key_found_and_wanted() {
    let dir = tempfile::tempdir().unwrap();
    let job = write_small_job(dir.path()).display().to_string();
    let width = "model.d_model=9000000000000000000";
    let sets: [(&[&str], &str); 3] = [
        (&["model.heads=2", "model.kv_heads=2"], "model.heads"),
        (&["model.head_dim=9000000000000000000"], "model.head_dim"),
        (
            &[
                "model.multi_latent_attention=true",
                "model.kv_heads=0",
                "model.qk_pos_emb_head_dim=9000000000000000000",
            ],
            "model.qk_pos_emb_head_dim",
        ),
    ];
    for (sets, key) in sets {
        let mut args = vec!["run", &job, "--check", "--set", width];
        sets.iter().for_each(|set| args.extend(["--set", set]));
        let printed = output(&args);
        let stderr = String::from_utf8_lossy(&printed.stderr);
        assert_eq!(printed.status.code(), Some(2), "{key}: {stderr}");
        for part in [&job, key, "found", "want", "at most 65536"] {
            assert!(stderr.contains(part), "{part}: {stderr}");
        }
        assert!(!stderr.contains("panicked"), "{stderr}");
    }
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
        let printed = output(&["inspect", &idx.display().to_string()]);
        let stderr = String::from_utf8_lossy(&printed.stderr);
        assert_eq!(printed.status.code(), Some(1));
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
        // named explicitly, it is refused
        let folder = weights.parent().unwrap().display().to_string();
        let tokenizer = out.join("tokens/tokenizer.json").display().to_string();
        let args = [
            "generate",
            "--checkpoint",
            &folder,
            "--tokenizer",
            &tokenizer,
        ];
        let printed = output(&args);
        let stderr = String::from_utf8_lossy(&printed.stderr);
        assert_eq!(printed.status.code(), Some(1), "{stderr}");
        assert!(stderr.contains("model.safetensors"), "{stderr}");
        assert!(!stderr.contains("panicked"), "{stderr}");
        // a job uses the newest intact one, and reports why it is not the newest
        let printed = succeed(&["generate", &job]);
        let stderr = String::from_utf8_lossy(&printed.stderr);
        let reason = "checkpoint of step 12 is not used: ";
        assert!(
            stderr.contains(reason) && stderr.contains("model.safetensors"),
            "{stderr}"
        );
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
    let printed = |verb: &str, name: &str, bytes: &[u8]| {
        let path = dir.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        let out = output(&[verb, &path.display().to_string()]);
        let stderr = String::from_utf8_lossy(&out.stderr).into_owned();
        (out.status.code(), stderr)
    };
    let warc = std::fs::read(data("crawl-00000.warc.gz")).unwrap();
    assert_eq!(printed("inspect", "whole.warc.gz", &warc).0, Some(0));
    let (code, why) = printed("inspect", "cut.warc.gz", &warc[..200_000]);
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
        let (code, why) = printed("extract", name, bytes);
        assert_eq!(code, Some(1));
        assert!(why.contains(kind) && why.contains("wanted"), "{why}");
    }
    assert_eq!(printed("extract", "x.txt", b"plain words").0, Some(0));
}
