//! `new`: the job that is written for data as people have it passes its check and runs.

use crate::jobs::{data, output, succeed};
use std::fs;
use std::path::{Path, PathBuf};

/// JSON lines whose text is in the field `story`.
fn lines(folder: &Path) -> PathBuf {
    let bytes = fs::read(data("pile-00000.jsonl.zst")).unwrap();
    let text = String::from_utf8(zstd::decode_all(&*bytes).unwrap()).unwrap();
    let wanted: Vec<String> = text
        .lines()
        .filter(|line| !line.contains("Gutenberg"))
        .take(240)
        .map(|line| line.replacen("\"text\":", "\"story\":", 1) + "\n")
        .collect();
    let to = folder.join("stories");
    fs::create_dir(&to).unwrap();
    fs::write(to.join("a.jsonl"), wanted.concat()).unwrap();
    to
}

/// Writes a job, checks it and runs it. Returns its text.
fn made(kind: &str, dir: &Path, from: &Path, more: &[&str]) -> String {
    let (at, data) = (dir.to_str().unwrap(), from.to_str().unwrap());
    succeed(&[&["new", kind, at, "--from", data], more].concat());
    let file = dir.join("job.toml");
    let job = file.to_str().unwrap();
    succeed(&["run", job, "--check"]);
    let text = fs::read_to_string(&file).unwrap();
    let mut run = vec!["run", job];
    if text.contains("[train]") {
        run.extend(["--set", "train.steps=4", "--set", "train.warmup_steps=1"]);
    }
    succeed(&run);
    text
}

#[test]
fn jobs_for_json_lines_with_another_key_run_up_to_a_finetuned_model() {
    let dir = tempfile::tempdir().unwrap();
    let from = lines(dir.path());
    let at = |name: &str| dir.path().join(name);
    let text = made("tokenize", &at("tokens"), &from, &[]);
    assert!(text.contains("json_keys = [\"story\"]"), "{text}");
    assert!(at("tokens/run/tokens/stories.bin").exists());
    let text = made("pretrain", &at("model"), &from, &[]);
    assert!(text.contains("text_key = \"story\""), "{text}");
    assert!(text.contains("keep = [\"en\"]"), "{text}");
    let model = at("model/run");
    let tuned = made(
        "finetune",
        &at("tuned"),
        &from,
        &["--model", model.to_str().unwrap()],
    );
    assert!(
        tuned.contains("init_from = ") && !tuned.contains("[model]"),
        "{tuned}"
    );
    assert!(at("tuned/run/report.html").exists());
    // conversations are learned as such
    let chats = at("chats.jsonl");
    let chat = r#"{"messages": [{"role": "user", "content": "red"}, {"role": "assistant", "content": "apple"}]}"#;
    fs::write(&chats, format!("{chat}\n").repeat(200)).unwrap();
    let chatty = made(
        "finetune",
        &at("chatty"),
        &chats,
        &["--model", model.to_str().unwrap()],
    );
    assert!(
        chatty.contains("[finetune]") && chatty.contains("chat_template = \"plain\""),
        "{chatty}"
    );
    assert!(at("chatty/run/generated.json").exists());
    // the job that is there stays
    let again = output(&[
        "new",
        "curate",
        at("tuned").to_str().unwrap(),
        "--from",
        from.to_str().unwrap(),
    ]);
    assert_eq!(again.status.code(), Some(2));
    assert_eq!(fs::read_to_string(at("tuned/job.toml")).unwrap(), tuned);
}

#[test]
fn a_folder_of_archives_becomes_a_curation_and_an_export() {
    let dir = tempfile::tempdir().unwrap();
    let from = dir.path().join("crawl");
    fs::create_dir(&from).unwrap();
    fs::copy(data("crawl-00000.warc.gz"), from.join("a.warc.gz")).unwrap();
    let at = dir.path().join("clean");
    let text = made("curate", &at, &from, &[]);
    assert!(
        text.contains("format = \"warc\"") && text.contains("extract = {}"),
        "{text}"
    );
    let (job, out) = (at.join("job.toml"), dir.path().join("hub"));
    succeed(&[
        "export",
        job.to_str().unwrap(),
        "--to",
        "hf",
        out.to_str().unwrap(),
    ]);
    assert!(out.join("data/train-00000.parquet").exists());
}

#[test]
fn data_and_models_that_are_not_there_are_refused_with_the_command_to_type() {
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path().join("x");
    let (at, here) = (at.to_str().unwrap(), dir.path().to_str().unwrap());
    fs::write(dir.path().join("a.jsonl"), "{\"text\":\"some words\"}\n").unwrap();
    for (args, wanted) in [
        (vec!["new", "curate", at], "--from PATH"),
        (
            vec!["new", "curate", at, "--from", "/nowhere"],
            "no such file",
        ),
        (vec!["new", "finetune", at, "--from", here], "--model MODEL"),
    ] {
        let found = output(&args);
        let message = String::from_utf8(found.stderr).unwrap();
        assert_eq!(found.status.code(), Some(2), "{message}");
        assert!(message.contains(wanted), "{message}");
    }
}
