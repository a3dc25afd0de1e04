//! `new`: the job that is written for data as people have it passes its check and runs.

use crate::jobs::{data, output, succeed};
use parquet::data_type::{ByteArray, ByteArrayType};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use serde_json::{Value, json};
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
pub(crate) fn made(kind: &str, dir: &Path, from: &Path, more: &[&str]) -> String {
    let (at, data) = (dir.to_str().unwrap(), from.to_str().unwrap());
    succeed(&[&["new", kind, at, "--from", data], more].concat());
    let file = dir.join("job.toml");
    let job = file.to_str().unwrap();
    succeed(&["run", job, "--check"]);
    let text = fs::read_to_string(&file).unwrap();
    let mut run = vec!["run", job];
    // the epochs of a fine-tuning make its steps
    if text.contains("[train]") && !text.contains("[finetune]") {
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
    let here = dir.path().join("data");
    fs::create_dir(&here).unwrap();
    fs::write(here.join("a.jsonl"), "{\"text\":\"some words\"}\n").unwrap();
    let below = here.join("not/yet/there");
    let empty = dir.path().join("empty");
    fs::create_dir(&empty).unwrap();
    let numbers = dir.path().join("numbers.jsonl");
    fs::write(&numbers, "{\"nr\":1}\n{\"nr\":2}\n").unwrap();
    let paths = [&at, &here, &below, &empty, &numbers].map(|path| path.to_str().unwrap());
    let [at, here, below, empty, numbers] = paths;
    for (args, wanted) in [
        (
            vec!["new", "curate", here, "--from", here],
            "name a folder outside",
        ),
        (
            vec!["new", "curate", below, "--from", here],
            "name a folder outside",
        ),
        (
            vec!["new", "curate", at, "--from", empty],
            "a folder without files",
        ),
        (
            vec!["new", "pretrain", at, "--from", numbers],
            "no field reads like text (fields: nr); to take one all the same, write { path = ",
        ),
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
    assert!(!dir.path().join("x/job.toml").exists());
    assert!(!dir.path().join("data/job.toml").exists());
}

/// The texts of [`lines`].
fn texts() -> Vec<String> {
    let dir = tempfile::tempdir().unwrap();
    let lines = fs::read_to_string(lines(dir.path()).join("a.jsonl")).unwrap();
    let text = |line: &str| {
        let record: Value = serde_json::from_str(line).unwrap();
        record["story"].as_str().unwrap().to_string()
    };
    lines.lines().map(text).collect()
}

/// Runs `new` and returns the job.
fn written(kind: &str, dir: &Path, from: &Path) -> String {
    let (at, data) = (dir.to_str().unwrap(), from.to_str().unwrap());
    succeed(&["new", kind, at, "--from", data]);
    fs::read_to_string(dir.join("job.toml")).unwrap()
}

#[test]
fn languages_are_those_of_all_files_and_of_none_if_there_are_few_records() {
    let dir = tempfile::tempdir().unwrap();
    let from = dir.path().join("texts");
    fs::create_dir(&from).unwrap();
    let german = "Der Hund lief am Morgen durch den Wald, und die Kinder suchten ihn bis zum Abend vergeblich. ";
    let english = "The dog ran through the wood in the morning, and the children looked for him until the evening. ";
    fs::write(from.join("000.txt"), german.repeat(3)).unwrap();
    for n in 1..=10 {
        fs::write(from.join(format!("{n:03}.txt")), english.repeat(3)).unwrap();
    }
    let few = written("curate", &dir.path().join("few"), &from);
    assert!(few.contains("keep = []"), "{few}");
    for n in 11..=50 {
        fs::write(from.join(format!("{n:03}.txt")), english.repeat(3)).unwrap();
    }
    let many = written("curate", &dir.path().join("many"), &from);
    assert!(many.contains("keep = [\"en\"]"), "{many}");
}

#[test]
fn files_with_the_text_in_other_fields_are_inputs_of_their_own_and_keep_every_record() {
    let dir = tempfile::tempdir().unwrap();
    let from = dir.path().join("mixed");
    fs::create_dir(&from).unwrap();
    let texts = texts();
    let json = |key: &str, texts: &[String]| -> String {
        let line = |text| format!("{}\n", json!({ key: text }));
        texts.iter().map(line).collect()
    };
    let row = |text: &String| format!("1;2,\"{}\"\n", text.replace('"', "\"\""));
    let rows: String = texts[..20].iter().map(row).collect();
    // the name alone tells a table, also under a compression
    let table = format!("ID,Review\n{rows}");
    fs::write(from.join("a.csv"), &table).unwrap();
    fs::write(from.join("b.jsonl"), json("raw_content", &texts[20..40])).unwrap();
    fs::write(from.join("c.jsonl"), json("story", &texts[40..60])).unwrap();
    fs::write(from.join("d.txt"), &texts[60]).unwrap();
    fs::write(from.join("e.parquet"), "PAR1 and no more").unwrap();
    let at = dir.path().join("job");
    let text = made("curate", &at, &from, &[]);
    for key in ["Review", "raw_content", "story"] {
        assert!(text.contains(&format!("text_key = \"{key}\"")), "{text}");
    }
    let broken = "#        left out: ";
    assert!(
        text.contains(broken) && text.contains("e.parquet: "),
        "{text}"
    );
    let errors = fs::read_dir(at.join("run/errors")).unwrap().flatten();
    let sizes: Vec<u64> = errors.map(|e| e.metadata().unwrap().len()).collect();
    assert_eq!(sizes, [0; 4], "bad records");
}

#[test]
fn tokens_of_a_table_are_those_of_its_content() {
    let dir = tempfile::tempdir().unwrap();
    let from = dir.path().join("rows.parquet");
    table(&from, &texts()[..40]);
    let at = dir.path().join("job");
    let text = made("tokenize", &at, &from, &[]);
    assert!(text.contains("json_keys = [\"content\"]"), "{text}");
    assert!(!text.contains("[curate]"), "{text}");
    assert!(at.join("run/tokens/rows.bin").metadata().unwrap().len() > 0);
}

/// A Parquet file with texts in the column `content`.
pub(crate) fn table(path: &Path, texts: &[String]) {
    let schema = "message rows { required binary content (UTF8); }";
    let schema = std::sync::Arc::new(parse_message_type(schema).unwrap());
    let file = fs::File::create(path).unwrap();
    let mut writer = SerializedFileWriter::new(file, schema, Default::default()).unwrap();
    let mut group = writer.next_row_group().unwrap();
    let mut column = group.next_column().unwrap().unwrap();
    let values: Vec<ByteArray> = texts.iter().map(|text| text.as_str().into()).collect();
    let typed = column.typed::<ByteArrayType>();
    typed.write_batch(&values, None, None).unwrap();
    column.close().unwrap();
    group.close().unwrap();
    writer.close().unwrap();
}

#[test]
fn few_documents_train_without_validation() {
    let dir = tempfile::tempdir().unwrap();
    let from = dir.path().join("few.txt");
    fs::write(&from, texts()[..10].join("\n")).unwrap();
    let text = made("pretrain", &dir.path().join("job"), &from, &[]);
    assert!(text.contains("split = \"100,0,0\""), "{text}");
    assert!(!text.contains("eval_every"), "{text}");
}

#[test]
fn conversations_in_a_folder_are_learned_and_a_job_that_fails_is_not_left_behind() {
    let dir = tempfile::tempdir().unwrap();
    let from = dir.path().join("chats");
    fs::create_dir(&from).unwrap();
    let chat = json!({"prompt": "What is red?", "completion": "An apple."});
    for name in ["a.jsonl", "b.jsonl"] {
        fs::write(from.join(name), format!("{chat}\n").repeat(9)).unwrap();
    }
    fs::write(from.join("notes.txt"), "Where these are from.").unwrap();
    let stories = dir.path().join("stories.txt");
    fs::write(&stories, texts()[..20].join("\n")).unwrap();
    let trained = dir.path().join("trained");
    made("pretrain", &trained, &stories, &[]);
    let run = trained.join("run");
    // a tokenizer without a model beside it
    let model = dir.path().join("model");
    fs::create_dir(&model).unwrap();
    fs::copy(
        run.join("tokens/tokenizer.json"),
        model.join("tokenizer.json"),
    )
    .unwrap();
    let at = dir.path().join("my job");
    let new = |model: &Path| {
        let [at, from, model] = [&at, &from, model].map(|path| path.to_str().unwrap());
        output(&["new", "finetune", at, "--from", from, "--model", model])
    };
    for _ in 0..2 {
        let failed = new(&model);
        let message = String::from_utf8(failed.stderr).unwrap();
        assert!(!failed.status.success());
        assert!(message.contains("init_from"), "{message}");
        assert!(!at.join("job.toml").exists());
    }
    let found = new(&run);
    assert!(found.status.success(), "{found:?}");
    let job = at.join("job.toml");
    let text = fs::read_to_string(&job).unwrap();
    let files = ["a.jsonl", "b.jsonl"].map(|name| from.join(name).canonicalize().unwrap());
    let [a, b] = files.each_ref().map(|file| file.display());
    assert!(
        text.contains(&format!("train = [\"{a}\", \"{b}\"]")),
        "{text}"
    );
    assert!(
        text.contains("no conversations: ") && text.contains("notes.txt"),
        "{text}"
    );
    // the command to type is one for a shell
    let next = format!("next: millrace run '{}'\n", job.display());
    let printed = String::from_utf8(found.stdout).unwrap();
    assert!(printed.ends_with(&next), "{printed}");
    assert!(!text.contains("became documents"), "{text}");
    // eighteen short conversations are one sample, and a step is one
    let log = succeed(&["run", job.to_str().unwrap()]).stderr;
    let log = String::from_utf8(log).unwrap();
    assert!(log.contains("in 1 samples"), "{log}");
    assert!(log.contains("train: 3 steps"), "{log}");
}

#[test]
fn data_with_a_pipe_is_refused_by_its_name() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).display().to_string();
    for name in ["files", "folders/one"] {
        fs::create_dir_all(path(name)).unwrap();
    }
    for name in ["files/a.jsonl", "folders/one/a.jsonl"] {
        fs::write(path(name), "{\"text\": \"a\"}\n").unwrap();
    }
    for name in ["files/pipe", "folders/one/pipe", "alone"] {
        let made = std::process::Command::new("mkfifo")
            .arg(path(name))
            .status();
        assert!(made.unwrap().success());
    }
    let end = "found a pipe, socket or device, want files alone";
    for (from, pipe) in [
        ("files", "files/pipe"),
        ("folders", "folders/one/pipe"),
        ("alone", "alone"),
    ] {
        let printed = output(&["new", "curate", &path("job"), "--from", &path(from)]);
        let stderr = String::from_utf8(printed.stderr).unwrap();
        assert_eq!(printed.status.code(), Some(2), "{stderr}");
        assert!(stderr.contains(pipe) && stderr.contains(end), "{stderr}");
    }
    assert!(!dir.path().join("job").exists());
}
