//! Test of a job with every pass that cuts texts: the same keep-lists, edit lists and tokens for any tasks, threads
//! and kills.

use crate::jobs::{assert_same, data, millrace, output, succeed};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

/// Shards of the job.
const FILES: usize = 12;

/// A dozen files of real texts, some with quotes of others, and evaluation sets from all of them.
pub(crate) fn cut_job(folder: &Path) -> PathBuf {
    let packed = std::fs::read(data("pile-00000.jsonl.zst")).unwrap();
    let lines = String::from_utf8(zstd::decode_all(packed.as_slice()).unwrap()).unwrap();
    let texts: Vec<String> = lines
        .lines()
        .filter(|l| !l.contains("Gutenberg"))
        .map(|l| serde_json::from_str::<Value>(l).unwrap()["text"].clone())
        .map(|text| text.as_str().unwrap().to_string())
        .filter(|text| text.split_whitespace().count() > 300)
        .take(200)
        .collect();
    let words = |i: usize, from: usize, to: usize| -> String {
        let all: Vec<&str> = texts[i % texts.len()].split_whitespace().collect();
        all[from.min(all.len())..to.min(all.len())].join(" ")
    };
    let input = folder.join("in");
    std::fs::create_dir(&input).unwrap();
    for file in 0..FILES {
        let own = (0..texts.len()).filter(|i| i % FILES == file);
        let records = own.map(|i| {
            let quote = if i % 3 == 0 {
                words(i * 7 + 1, 20, 90)
            } else {
                String::new()
            };
            format!("{}\n", json!({"text": format!("{}\n{quote}", texts[i])}))
        });
        let path = input.join(format!("{file:02}.jsonl"));
        std::fs::write(path, records.collect::<String>()).unwrap();
    }
    // from the middle, so that there is something left on both sides
    let half = |i: usize| texts[i].split_whitespace().count() / 2;
    let record = |i: usize| {
        let at = half(i);
        json!({"question": words(i, at, at + 20), "answer": words(i, at + 30, at + 38)})
    };
    let records = (0..texts.len())
        .step_by(5)
        .map(|i| format!("{}\n", record(i)));
    let eval = folder.join("quiz.jsonl.zst");
    let records = records.collect::<String>();
    std::fs::write(&eval, zstd::encode_all(records.as_bytes(), 3).unwrap()).unwrap();
    let text = format!(
        r#"
name = "cuts"
out = {out:?}
[curate]
inputs = [{{ path = {input:?} }}]
[[curate.step]]
language = {{}}
[decontaminate]
profile = "mt_nlg"
files = [{eval:?}]
fields = ["question", "answer"]
[dedup]
exact = {{}}
minhash = {{ preset = "fineweb" }}
lines = {{}}
bloom = {{ ngram = 5, min_ngram = 5 }}
substring = {{}}
[tokenize]
tokenizer = {{ train = {{ kind = "bpe", vocab = 300 }} }}
[report]
"#,
        out = folder.join("out"),
    );
    let path = folder.join("job.toml");
    std::fs::write(&path, text).unwrap();
    path
}

fn run(job: &Path, name: &str, sets: &[&str]) -> PathBuf {
    let out = job.with_file_name(name);
    let set = format!("out={out:?}");
    let mut args = vec!["run", job.to_str().unwrap(), "--set", &set];
    sets.iter().for_each(|set| args.extend(["--set", set]));
    succeed(&args);
    out
}

#[test]
fn lists_and_cuts_are_the_same_for_any_tasks_and_threads_and_after_ten_kills() {
    let dir = tempfile::tempdir().unwrap();
    let job = cut_job(dir.path());
    let started = Instant::now();
    let one = run(&job, "one", &["threads=1", "curate.tasks=1"]);
    let whole = started.elapsed();
    let files = |of: &Path, extension: &str| {
        let names = std::fs::read_dir(of).unwrap().map(|e| e.unwrap().path());
        names
            .filter(|p| p.extension().is_some_and(|e| e == extension))
            .count()
    };
    assert_eq!(files(&one.join("keep"), "keep"), FILES);
    assert_eq!(files(&one.join("keep"), "edits"), FILES);
    let manifest = std::fs::read(one.join("manifest.json")).unwrap();
    let manifest: Value = serde_json::from_slice(&manifest).unwrap();
    let counts = &manifest["dedup"]["counts"];
    for cut in counts["cuts"].as_array().unwrap() {
        assert!(cut["documents"].as_u64() > Some(5), "{cut}");
    }
    let found = &counts["decontamination"];
    assert!(
        found["split"].as_u64() > Some(5) && found["tasks"]["quiz"]["hits"].as_u64() > Some(20),
        "{found}"
    );
    // each piece of a split document is one of the dataset
    let pieces = found["pieces"].as_u64().unwrap() - found["split"].as_u64().unwrap();
    let name = std::fs::read_dir(one.join("tokens"))
        .unwrap()
        .map(|e| e.unwrap().path());
    let index = name
        .into_iter()
        .find(|p| p.extension().is_some_and(|e| e == "idx"))
        .unwrap();
    let printed = output(&["inspect", index.to_str().unwrap(), "--json"]);
    let printed: Value = serde_json::from_slice(&printed.stdout).unwrap();
    assert_eq!(
        printed["documents"].as_u64(),
        Some(counts["kept"].as_u64().unwrap() + pieces)
    );

    let page = std::fs::read_to_string(one.join("report.html")).unwrap();
    assert!(page.contains("<h3>By evaluation set</h3>") && page.contains("quiz"));
    assert!(page.contains("The sum is equal to the"));

    for (name, threads, tasks) in [
        ("two", "threads=2", "curate.tasks=2"),
        ("seven", "threads=7", "curate.tasks=7"),
        ("many", "threads=3", "curate.tasks=64"),
    ] {
        assert_same(&one, &run(&job, name, &[threads, tasks]), 3 * FILES, name);
    }
    let mut state = 0x51ed_270bu32;
    let killed = job.with_file_name("killed");
    let set = format!("out={killed:?}");
    for _ in 0..10 {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let share = f64::from(state >> 8) / f64::from(1u32 << 24);
        let mut child = millrace(&["run", job.to_str().unwrap(), "--set", &set])
            .stderr(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        std::thread::sleep(whole.mul_f64(share * 0.8).max(Duration::from_millis(5)));
        let _ = child.kill();
        child.wait().unwrap();
    }
    run(&job, "killed", &[]);
    assert_same(
        &one,
        &killed,
        3 * FILES,
        "a calm run and one killed ten times",
    );
}

#[test]
fn tasks_of_an_executor_leave_the_lists_of_one_process() {
    let dir = tempfile::tempdir().unwrap();
    let job = cut_job(dir.path());
    let here = run(&job, "here", &[]);
    for of in [1, 2, 7, 64] {
        let out = job.with_file_name(format!("of-{of}"));
        let set = format!("out={out:?}");
        let mut args = vec!["run", job.to_str().unwrap(), "--set", &set];
        // the kubernetes executor only renders, so it submits without starting anything
        for set in [
            "executor=kubernetes",
            "kubernetes.image=i",
            "kubernetes.claim=c",
            "kubernetes.mount=/data",
        ] {
            args.extend(["--set", set]);
        }
        succeed(&args);
        let file = out.join("job.toml");
        let file = file.to_str().unwrap();
        for index in (0..of).rev() {
            let (index, of) = (index.to_string(), of.to_string());
            let stage = ["task", file, "--stage", "curate"];
            succeed(&[&stage[..], &["--index", &index, "--of", &of]].concat());
        }
        succeed(&["run", file, "--set", "executor=local"]);
        assert_same(&here, &out, 3 * FILES, &format!("{of} tasks"));
    }
}

#[test]
fn evaluation_texts_are_cut_without_a_dedup_table_and_other_rules_redo_no_curation() {
    let dir = tempfile::tempdir().unwrap();
    let job = cut_job(dir.path());
    let text = std::fs::read_to_string(&job).unwrap();
    let start = text.find("[dedup]").unwrap();
    let end = text.find("[tokenize]").unwrap();
    std::fs::write(&job, format!("{}{}", &text[..start], &text[end..])).unwrap();
    let out = run(&job, "out", &[]);
    let counts = |stage: &str| -> Value {
        let text = std::fs::read(out.join("manifest.json")).unwrap();
        serde_json::from_slice::<Value>(&text).unwrap()[stage]["counts"].clone()
    };
    let first = counts("dedup");
    assert_eq!(first["exact"], 0);
    assert!(
        first["decontamination"]["split"].as_u64() > Some(5),
        "{first}"
    );
    let set = format!("out={out:?}");
    let wider = [
        "run",
        job.to_str().unwrap(),
        "--set",
        &set,
        "--set",
        "decontaminate.cut.side_chars=1000",
    ];
    let printed = String::from_utf8(succeed(&wider).stderr).unwrap();
    assert!(
        printed.contains("curate: done before") && !printed.contains("dedup: done before"),
        "{printed}"
    );
    let bytes = |counts: &Value| counts["decontamination"]["bytes"].as_u64();
    assert!(bytes(&counts("dedup")) != bytes(&first));

    // an evaluation set that changes is read again
    std::fs::write(
        job.with_file_name("quiz.jsonl.zst"),
        "{\"question\": \"no\", \"answer\": \"never\"}\n",
    )
    .unwrap();
    let printed = String::from_utf8(succeed(&wider).stderr).unwrap();
    assert!(
        printed.contains("curate: done before") && !printed.contains("dedup: done before"),
        "{printed}"
    );
    assert_eq!(counts("dedup")["decontamination"]["met"], 0);
}

/// Largest resident set of the process that did the dedup stage.
fn peak(out: &Path) -> u64 {
    let text = std::fs::read(out.join("manifest.json")).unwrap();
    let manifest: Value = serde_json::from_slice(&text).unwrap();
    manifest["dedup"]["peak_rss_bytes"].as_u64().unwrap()
}

#[test]
fn the_sorts_of_repeated_stretches_stay_within_their_budget() {
    let dir = tempfile::tempdir().unwrap();
    let input = dir.path().join("in");
    std::fs::create_dir(&input).unwrap();
    let mut state = 1u64;
    let mut word = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        let letter =
            |i: u32| char::from(b'a' + u8::try_from((state >> (5 * i + 24)) % 26).unwrap());
        (0..7).map(letter).collect::<String>()
    };
    // 40 MB of text without repeats: 64 MB of anchors to sort
    for file in 0..8 {
        let mut lines = String::new();
        for _ in 0..160 {
            let text: Vec<String> = (0..4_000).map(|_| word()).collect();
            lines += &format!("{}\n", json!({"text": text.join(" ")}));
        }
        std::fs::write(input.join(format!("{file}.jsonl")), lines).unwrap();
    }
    let job = dir.path().join("job.toml");
    let text = format!(
        "name = \"memory\"\nout = \"none\"\nthreads = 2\n[curate]\ninputs = [{{ path = {input:?} }}]\n[dedup]\nsubstring = {{}}\n"
    );
    std::fs::write(&job, text).unwrap();
    let outs = ["16", "1024"].map(|megabytes| {
        let out = dir.path().join(megabytes);
        for verb in ["curate", "dedup"] {
            let set = format!("out={out:?}");
            let memory = format!("dedup.memory_mb={megabytes}");
            succeed(&[verb, job.to_str().unwrap(), "--set", &set, "--set", &memory]);
        }
        out
    });
    assert_same(&outs[0], &outs[1], 24, "a small and a large budget");
    let [small, large] = outs.map(|out| peak(&out));
    assert!(small + (40 << 20) < large, "{small} and {large} bytes");
    // memory besides the sort: a batch of texts with their anchors, read buffers, the program
    assert!(small < 120 << 20, "{small} bytes");
}
