//! Tests of `[tokenize]` on plain files: Megatron's bytes, the same for any number of tasks and after kills, bad
//! input.

use crate::jobs::{assert_same, millrace, output, root, succeed};
use index::dataset::{Dataset, DatasetWriter, TokenType};
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

fn sha(bytes: &[u8]) -> String {
    Sha256::digest(bytes)
        .iter()
        .map(|b| format!("{b:02x}"))
        .collect()
}

fn data(name: &str) -> PathBuf {
    root().join("tests/data").join(name)
}

fn golden(name: &str) -> Value {
    serde_json::from_str(&std::fs::read_to_string(data(name)).unwrap()).unwrap()
}

/// A job that tokenizes `input` with the committed tokenizer.
fn write_job(folder: &Path, input: &Path, more: &str) -> String {
    let text = format!(
        "name = \"t\"\nout = {:?}\n[tokenize]\ntokenizer = {{ file = {:?} }}\n\
         inputs = [{{ path = {input:?}, source = \"out\" }}]\n{more}\n",
        folder.join("out"),
        data("preprocess/tokenizer.json"),
    );
    let path = folder.join("job.toml");
    std::fs::write(&path, text).unwrap();
    path.display().to_string()
}

#[test]
fn files_have_the_bytes_of_megatrons_preprocess_data() {
    let golden = golden("preprocess/golden.json");
    let mut compared = 0;
    for case in golden["cases"].as_array().unwrap() {
        let dir = tempfile::tempdir().unwrap();
        let tasks = case["partitions"].as_u64().unwrap_or(1);
        let more = format!(
            "json_keys = {}\nappend_eod = {}\nnaming = \"megatron\"\ntasks = {tasks}",
            case["keys"], case["append_eod"]
        );
        let job = write_job(dir.path(), &data("preprocess/documents.jsonl"), &more);
        succeed(&["tokenize", &job]);
        for (name, want) in case["files"].as_object().unwrap() {
            let bytes = std::fs::read(dir.path().join("out/tokens").join(name)).unwrap();
            assert_eq!(sha(&bytes), *want, "{name} with {more}");
            compared += 1;
        }
    }
    assert_eq!(compared, 14, "files compared");
}

#[test]
fn special_tokens_are_treated_as_megatrons_preprocess_data_does() {
    let golden = golden("preprocess/special_tokens.json");
    let dir = tempfile::tempdir().unwrap();
    let texts: Vec<String> = golden["texts"]
        .as_array()
        .unwrap()
        .iter()
        .map(|text| serde_json::json!({ "text": text }).to_string() + "\n")
        .collect();
    let input = dir.path().join("documents.jsonl");
    std::fs::write(&input, texts.concat()).unwrap();
    let file = std::fs::read(data("preprocess/tokenizer.json")).unwrap();
    let base: Value = serde_json::from_slice(&file).unwrap();
    for (n, case) in golden["cases"].as_array().unwrap().iter().enumerate() {
        let folder = dir.path().join(n.to_string());
        std::fs::create_dir(&folder).unwrap();
        let mut tokenizer = base.clone();
        let added = tokenizer["added_tokens"].as_array_mut().unwrap();
        added.push(golden["bos"].clone());
        tokenizer["post_processor"] = case["post_processor"].clone();
        std::fs::write(folder.join("tokenizer.json"), tokenizer.to_string()).unwrap();
        let config = case["config"].to_string();
        std::fs::write(folder.join("tokenizer_config.json"), config).unwrap();
        let has = |arg: &str| case["args"].as_array().unwrap().iter().any(|a| a == arg);
        let bare = has("--tokenizer-hf-no-include-special-tokens");
        // Megatron's naming has Megatron's defaults; with other naming, the same settings are given explicitly
        for (naming, keys) in [
            (
                "megatron",
                if bare {
                    "add_special_tokens = false"
                } else {
                    ""
                }
                .to_string(),
            ),
            (
                "plain",
                format!(
                    "add_special_tokens = {}\nsplit_special_tokens = false",
                    !bare
                ),
            ),
        ] {
            let out = folder.join(naming);
            let text = format!(
                "name = \"t\"\nout = {out:?}\n[tokenize]\ntokenizer = {{ file = {folder:?} }}\nappend_eod = {}\nnaming = {naming:?}\n{keys}\n\
                 inputs = [{{ path = {input:?}, source = \"out\" }}]\n",
                has("--append-eod"),
            );
            let job = folder.join("job.toml");
            std::fs::write(&job, text).unwrap();
            succeed(&["tokenize", job.to_str().unwrap()]);
            let name = if naming == "plain" {
                "out"
            } else {
                "out_text_document"
            };
            for suffix in ["bin", "idx"] {
                let bytes = std::fs::read(out.join(format!("tokens/{name}.{suffix}"))).unwrap();
                assert_eq!(
                    sha(&bytes),
                    case["files"][suffix],
                    "case {n}, {naming}, {suffix}"
                );
            }
        }
    }
}

/// The formula of `oracles/megatron_formats.py`: sequences of document `d`.
fn sequences(d: u64) -> Vec<Vec<u32>> {
    let token = |s, j| u32::try_from((7 * d + 5 * s + j) % 101).unwrap();
    (0..d % 4)
        .map(|s| (0..1 + (3 * d + s) % 5).map(|j| token(s, j)).collect())
        .collect()
}

fn bytes_of(token_type: TokenType, id: u32) -> Vec<u8> {
    let small = u8::try_from(id).unwrap();
    match token_type {
        TokenType::F32 => f32::from(small).to_le_bytes().to_vec(),
        TokenType::F64 => f64::from(small).to_le_bytes().to_vec(),
        t => u64::from(id).to_le_bytes()[..usize::try_from(t.bytes()).unwrap()].to_vec(),
    }
}

fn write_documents(prefix: &Path, token_type: TokenType, modes: bool, range: std::ops::Range<u64>) {
    let mut writer = DatasetWriter::create(prefix, token_type).unwrap();
    for d in range {
        let sequences = sequences(d);
        let ids = sequences.iter().flatten();
        let bytes: Vec<u8> = ids.flat_map(|id| bytes_of(token_type, *id)).collect();
        let lengths: Vec<u32> = sequences
            .iter()
            .map(|s| u32::try_from(s.len()).unwrap())
            .collect();
        let count = u32::try_from(lengths.len()).unwrap();
        writer.append(&bytes, &lengths, &[count]).unwrap();
        if modes {
            writer.modes(&vec![u8::from(d % 2 == 1); lengths.len()]);
        }
    }
    writer.finish().unwrap();
}

#[test]
fn every_token_type_with_and_without_modes_has_megatrons_bytes_and_is_read_back() {
    let golden = golden("megatron_formats.json");
    let dir = tempfile::tempdir().unwrap();
    let mut compared = 0;
    for code in 1..=8 {
        let token_type = TokenType::from_code(code).unwrap();
        for modes in [false, true] {
            let suffix = if modes { "_modes" } else { "" };
            let name = format!("{}{suffix}", token_type.name());
            let prefix = dir.path().join(&name);
            write_documents(&prefix, token_type, modes, 0..40);
            check(&prefix, &golden[&name]);
            let d = Dataset::open(&prefix).unwrap();
            assert_eq!(d.modes().is_some(), modes, "{name}");
            assert_eq!(d.expect_ids().is_ok(), !name.starts_with("float"), "{name}");
            compared += 1;
        }
    }
    assert_eq!(compared + 1, golden.as_object().unwrap().len());
    let parts = [dir.path().join("part0"), dir.path().join("part1")];
    write_documents(&parts[0], TokenType::U16, true, 0..17);
    write_documents(&parts[1], TokenType::U16, true, 17..40);
    let merged = dir.path().join("merged");
    let [a, b] = parts.map(|p| p.display().to_string());
    succeed(&["merge", &merged.display().to_string(), &a, &b]);
    check(&merged, &golden["merged"]);
}

fn check(prefix: &Path, want: &Value) {
    let label = prefix.file_name().unwrap().display();
    for suffix in ["bin", "idx"] {
        let bytes = std::fs::read(prefix.with_extension(suffix)).unwrap();
        assert_eq!(sha(&bytes), want[suffix], "{label}.{suffix}");
    }
    let seen = output(&["inspect", &format!("{}.idx", prefix.display()), "--json"]);
    let seen: Value = serde_json::from_slice(&seen.stdout).unwrap();
    assert_eq!(seen["tokens_sha256"], want["tokens"], "{label}: tokens");
    assert_eq!(seen["sequences"], want["sequences"], "{label}: sequences");
}

#[test]
fn tasks_and_kills_do_not_change_a_byte() {
    let dir = tempfile::tempdir().unwrap();
    // one plain file, large enough to be divided into ranges
    let input = dir.path().join("in.jsonl");
    let lines = std::fs::read_to_string(data("preprocess/documents.jsonl")).unwrap();
    let broken = "{\"text\": 5}\nnot json\n";
    std::fs::write(&input, format!("{lines}{broken}").repeat(60)).unwrap();
    let job = write_job(dir.path(), &input, "");
    let out = |name: &str| dir.path().join(name);
    let sets = |name: &str, tasks: usize| {
        [
            format!("out={:?}", out(name)),
            format!("tokenize.tasks={tasks}"),
        ]
    };
    for (name, tasks) in [("one", 1), ("two", 2), ("five", 5)] {
        let [a, b] = sets(name, tasks);
        succeed(&["tokenize", &job, "--set", &a, "--set", &b]);
    }
    assert_same(&out("one"), &out("two"), 6, "1 and 2 tasks");
    assert_same(&out("one"), &out("five"), 6, "1 and 5 tasks");
    let errors = std::fs::read_to_string(out("one/errors.jsonl")).unwrap();
    assert_eq!(errors.lines().count(), 120);
    let [a, b] = sets("killed", 5);
    let args = ["tokenize", &job, "--set", &a, "--set", &b];
    for kill in 0..10u64 {
        let mut child = millrace(&args)
            .stderr(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        std::thread::sleep(Duration::from_millis(5 + 17 * kill));
        // the run may have ended before
        let _ = child.kill();
        child.wait().unwrap();
        let prefix = out("killed/tokens/out");
        if prefix.with_extension("idx").exists() {
            Dataset::open(&prefix).expect("an index that is there belongs to its tokens");
        }
    }
    succeed(&args);
    assert_same(
        &out("one"),
        &out("killed"),
        6,
        "a calm run and one killed ten times",
    );
}

#[test]
fn bad_records_are_counted_and_too_many_stop_the_job() {
    let dir = tempfile::tempdir().unwrap();
    let input = dir.path().join("in.jsonl");
    std::fs::write(
        &input,
        "{\"text\":\"fine\"}\n{\"text\":\"\\ud800 lone\"}\n{}\n[1]\n{\"text\":\"\"}\n",
    )
    .unwrap();
    let job = write_job(dir.path(), &input, "");
    succeed(&["tokenize", &job]);
    let errors = std::fs::read_to_string(dir.path().join("out/errors.jsonl")).unwrap();
    let offsets: Vec<u64> = errors
        .lines()
        .map(|l| {
            serde_json::from_str::<Value>(l).unwrap()["offset"]
                .as_u64()
                .unwrap()
        })
        .collect();
    assert_eq!(offsets, [16, 39, 42]);
    let d = Dataset::open(&dir.path().join("out/tokens/out")).unwrap();
    assert_eq!(
        (d.documents(), d.sequences()),
        (2, 1),
        "an empty text is an empty document"
    );
    let printed = output(&["tokenize", &job, "--set", "tokenize.max_bad_records=2"]);
    // finished work is not repeated: the limit does not affect the result
    assert!(printed.status.success());
    std::fs::remove_file(dir.path().join("out/tokens/out.idx")).unwrap();
    let printed = output(&["tokenize", &job, "--set", "tokenize.max_bad_records=2"]);
    let stderr = String::from_utf8_lossy(&printed.stderr);
    assert_eq!(printed.status.code(), Some(1), "{stderr}");
    assert!(
        stderr.contains("tokenize.max_bad_records = 2") && stderr.contains("byte 42"),
        "{stderr}"
    );
}

#[test]
fn bad_records_alone_fail_the_job_each_time_in_any_number_of_tasks() {
    let dir = tempfile::tempdir().unwrap();
    let input = dir.path().join("in.jsonl");
    let bad = "{\"text\": NaN}\n{\"body\": \"b\"}\n[1]\n";
    for tasks in [1, 3] {
        std::fs::write(&input, bad).unwrap();
        let job = write_job(dir.path(), &input, &format!("tasks = {tasks}"));
        for _ in 0..2 {
            let printed = output(&["tokenize", &job]);
            let stderr = String::from_utf8_lossy(&printed.stderr);
            assert_eq!(printed.status.code(), Some(1), "{stderr}");
            assert!(
                stderr.contains("all 3 records hold no text in field \"text\"")
                    && stderr.contains("errors.jsonl"),
                "{stderr}"
            );
            let manifest = std::fs::read_to_string(dir.path().join("out/manifest.json"));
            let manifest: Value = serde_json::from_str(&manifest.unwrap()).unwrap();
            assert!(
                manifest.get("tokenize").is_none() && manifest.get("tokenize/out").is_none(),
                "{manifest}"
            );
        }
        std::fs::write(&input, format!("{bad}{{\"text\": \"good\", \"n\": NaN}}\n")).unwrap();
        succeed(&["tokenize", &job]);
        let data = Dataset::open(&dir.path().join("out/tokens/out")).unwrap();
        assert_eq!(data.sequences(), 1);
        std::fs::remove_dir_all(dir.path().join("out")).unwrap();
    }
}

#[test]
fn a_panic_of_the_tokenizers_library_is_the_reason_and_is_not_printed() {
    let dir = tempfile::tempdir().unwrap();
    let (input, file) = (
        dir.path().join("in.jsonl"),
        dir.path().join("tokenizer.json"),
    );
    std::fs::write(&input, "{\"text\":\"fine\"}\n").unwrap();
    // the library asserts a smaller maximum token length
    let tokenizer = serde_json::json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": null,
        "pre_tokenizer": {"type": "Whitespace"}, "post_processor": null, "decoder": null,
        "model": {"type": "Unigram", "unk_id": 0,
            "vocab": [["<unk>", 0.0], ["a", -1.0], ["b".repeat(70_000), -2.0]]},
    });
    std::fs::write(&file, tokenizer.to_string()).unwrap();
    let text = format!(
        "name = \"t\"\nout = {:?}\n[tokenize]\ntokenizer = {{ file = {file:?} }}\nappend_eod = false\n\
         inputs = [{{ path = {input:?}, source = \"out\" }}]\n",
        dir.path().join("out"),
    );
    let job = dir.path().join("job.toml");
    std::fs::write(&job, text).unwrap();
    let printed = output(&["tokenize", job.to_str().unwrap()]);
    let stderr = String::from_utf8_lossy(&printed.stderr);
    assert_eq!(printed.status.code(), Some(1), "{stderr}");
    let reason = "the tokenizers library panicked on this file: token longer than 65535 bytes";
    assert!(stderr.contains(reason), "{stderr}");
    // as the hook of a process prints a panic
    assert!(
        !stderr.contains("thread '") && !stderr.contains("panicked at"),
        "{stderr}"
    );
}

#[test]
fn everything_wrong_with_the_table_is_told_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let job = dir.path().join("job.toml");
    std::fs::write(
        &job,
        "name = \"t\"\nout = \"o\"\n[tokenize]\ntokenizer = {}\njson_keys = []\ntasks = 0\n\
         inputs = [{ path = \"\", format = \"warc\", source = \"a/b\" }]\n\
         dataset = [{ name = \"\", sources = [\"x\"] }]\n",
    )
    .unwrap();
    let printed = output(&["tokenize", &job.display().to_string()]);
    let stderr = String::from_utf8_lossy(&printed.stderr);
    assert_eq!(printed.status.code(), Some(2), "{stderr}");
    for key in [
        "tokenize.tokenizer",
        "tokenize.json_keys",
        "tokenize.tasks",
        "tokenize.inputs[0].path",
        "tokenize.inputs[0].format",
        "tokenize.inputs[0].source",
        "tokenize.dataset[0].name",
        "tokenize.dataset[0].sources",
    ] {
        assert!(stderr.contains(key), "{key} is not printed:\n{stderr}");
    }
}

#[test]
fn merging_datasets_of_different_tokenizers_is_refused_and_a_folder_is_its_datasets() {
    let dir = tempfile::tempdir().unwrap();
    let input = data("preprocess/documents.jsonl");
    let job = write_job(dir.path(), &input, "json_keys = [\"text\", \"title\"]");
    succeed(&["tokenize", &job]);
    let tokens = dir.path().join("out/tokens");
    let merged = dir.path().join("merged");
    let name = |p: &Path| p.display().to_string();
    succeed(&["merge", &name(&merged), &name(&tokens)]);
    let sidecar = index::dataset::Sidecar::read(&merged).unwrap().unwrap();
    let both = Dataset::open(&merged).unwrap();
    sidecar.check(&both).unwrap();
    assert_eq!(both.documents(), 240);
    let part = tokens.join("out_title.json");
    let text = std::fs::read_to_string(&part).unwrap();
    std::fs::write(&part, text.replace("\"vocab\": 600", "\"vocab\": 601")).unwrap();
    let other = dir.path().join("other");
    let printed = output(&["merge", &name(&other), &name(&tokens)]);
    let stderr = String::from_utf8_lossy(&printed.stderr);
    assert_eq!(printed.status.code(), Some(1), "{stderr}");
    assert!(
        stderr.contains("out_title.json: tokenizer.vocab: found 601, wanted 600"),
        "{stderr}"
    );
}

#[test]
fn a_blend_refuses_datasets_of_other_tokenizers_ids_beyond_the_vocabulary_and_damage() {
    let dir = tempfile::tempdir().unwrap();
    let job = write_job(dir.path(), &data("preprocess/documents.jsonl"), "");
    succeed(&["tokenize", &job]);
    let prefix = dir.path().join("out/tokens/out");
    let foreign = dir.path().join("foreign");
    write_documents(&foreign, TokenType::I32, false, 0..400);
    let floats = dir.path().join("floats");
    write_documents(&floats, TokenType::F32, false, 0..400);
    let blend = |more: &str, tokenizer: &Path| {
        let path = dir.path().join("blend.toml");
        let text = format!(
            "name = \"b\"\nout = {:?}\n[tokenize]\ntokenizer = {{ file = {tokenizer:?} }}\n\
             [blend]\nseq_length = 16\nsplit = \"1\"\n{more}\n",
            dir.path().join("blended"),
        );
        std::fs::write(&path, text).unwrap();
        let printed = output(&["blend", &path.display().to_string()]);
        let stderr = String::from_utf8_lossy(&printed.stderr).to_string();
        (printed.status.code(), stderr)
    };
    let source = |p: &Path| {
        let name = p.file_name().unwrap();
        format!("[[blend.dataset]]\nname = {name:?}\nprefix = {p:?}\n")
    };
    let own = data("preprocess/tokenizer.json");
    let both = source(&prefix) + &source(&foreign);
    assert_eq!(blend(&both, &own), (Some(0), String::new()));
    // another tokenizer of the same size, and one with fewer entries: each dataset is named
    let other = dir.path().join("other.json");
    let text = std::fs::read_to_string(&own).unwrap();
    std::fs::write(&other, format!("{text} ")).unwrap();
    let (code, stderr) = blend(&both, &other);
    assert_eq!(code, Some(1));
    assert!(
        stderr.contains("out.json: tokenizer.xxh3: found"),
        "{stderr}"
    );
    let (code, stderr) = blend(&both, Path::new("null:90"));
    assert_eq!(code, Some(1));
    for want in [
        "out.json: tokenizer.vocab: found 600, wanted 90",
        "foreign.bin: token id at byte",
        "wanted 0 to 89",
    ] {
        assert!(stderr.contains(want), "{want} is not printed:\n{stderr}");
    }
    let (code, stderr) = blend(&source(&floats), &own);
    assert_eq!(code, Some(1));
    assert!(
        stderr.contains("floats.idx: token type at byte 17: found float32"),
        "{stderr}"
    );
    let bin = prefix.with_extension("bin");
    let bytes = std::fs::read(&bin).unwrap();
    std::fs::write(&bin, &bytes[..bytes.len() - 2]).unwrap();
    let (code, stderr) = blend(&both, &own);
    assert_eq!(code, Some(1));
    assert!(stderr.contains("out.bin: file size"), "{stderr}");
}
