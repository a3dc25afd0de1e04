//! `new` and inputs of folders as people have them: dataset folders, tables with other delimiters, records without texts, lists of
//! paths, arrays of JSON, and paths alone as inputs. What a job leaves out is said.

use crate::jobs::{output, root, succeed};
use crate::new_jobs::{made, table};
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};

const CARD: &str = "---\nlicense: cc-by-4.0\nconfigs:\n- config_name: default\n  data_files:\n  - split: train\n    \
    path: data/train-*\n---\n# A card of many words, which is no document.\n";

/// English texts that differ, which the step `language` keeps.
fn texts() -> Vec<String> {
    let text = |n: usize| {
        format!(
            "The committee of town number {n} met on the first day of spring to talk about the budget of the local schools.\n\
             Some {} people came to listen, \"most of them\" parents, and they stayed until the evening.",
            17 * n + 3
        )
    };
    (0..90).map(text).collect()
}

/// Texts of the documents that a job has made, shard by shard.
fn documents(job: &Path) -> Vec<String> {
    let out = job.join("run");
    let shards = fs::read_dir(out.join("errors")).unwrap().count();
    let all = (0..shards).flat_map(|shard| curate::corpus::documents(&out, shard).unwrap());
    all.map(|document| document.unwrap().text).collect()
}

fn lines(key: &str, texts: &[String]) -> String {
    let line =
        |text: &String| format!("{}\n", json!({ key: text, "url": "https://example.org/a" }));
    texts.iter().map(line).collect()
}

/// Writes files below a folder.
fn folder(at: PathBuf, files: &[(&str, String)]) -> PathBuf {
    for (name, text) in files {
        let path = at.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    at
}

#[test]
fn a_dataset_folder_is_read_below_its_card() {
    let dir = tempfile::tempdir().unwrap();
    let texts = texts();
    let from = folder(dir.path().join("parq"), &[("README.md", CARD.to_string())]);
    fs::create_dir(from.join("data")).unwrap();
    table(
        &from.join("data/train-00000-of-00001.parquet"),
        &texts[..30],
    );
    table(
        &from.join("data/test-00000-of-00001.parquet"),
        &texts[30..35],
    );
    let at = dir.path().join("curated");
    let text = made("curate", &at, &from, &[]);
    assert!(
        text.contains("format = \"parquet\", recursive = true"),
        "{text}"
    );
    assert!(
        text.contains("left out: 1 file about a dataset: README.md"),
        "{text}"
    );
    assert_eq!(documents(&at).len(), 35);
    let at = dir.path().join("tokens");
    made("tokenize", &at, &from, &[]);
    let record = |prefix: &Path| -> Value {
        let described = succeed(&["inspect", prefix.to_str().unwrap(), "--json"]).stdout;
        serde_json::from_slice(&described).unwrap()
    };
    let made_by_job = record(&at.join("run/tokens/parq.idx"));
    assert_eq!(made_by_job["documents"], 35, "{made_by_job}");
    // without a job, and with the format and the folder named in one
    let prefix = dir.path().join("direct");
    let tokenizer = root().join("tests/data/preprocess/tokenizer.json");
    let [prefix_, from_, tokenizer] = [&prefix, &from, &tokenizer].map(|p| p.to_str().unwrap());
    succeed(&[
        "tokenize",
        "--input",
        from_,
        "--json-keys",
        "content",
        "--tokenizer",
        tokenizer,
        "--output-prefix",
        prefix_,
    ]);
    let direct = record(&dir.path().join("direct_content_document.idx"));
    assert_eq!(direct["documents"], 35, "{direct}");
    for (n, input) in [
        format!("[{{ path = {from_:?}, format = \"parquet\", recursive = true }}]"),
        format!("[{{ path = {from_:?}, format = \"parquet\" }}]"),
        format!("[{from_:?}]"),
    ]
    .iter()
    .enumerate()
    {
        let at = dir.path().join(format!("own{n}"));
        let out = at.join("run");
        let job = folder(
            at.clone(),
            &[(
                "job.toml",
                format!(
                    "name = \"own\"\nout = {:?}\n[curate]\ninputs = {input}\n",
                    out.display().to_string()
                ),
            )],
        );
        let log = succeed(&["run", job.join("job.toml").to_str().unwrap()]).stderr;
        let log = String::from_utf8(log).unwrap();
        let note = "curate.inputs[0]: left out 1 file about a dataset: README.md";
        assert!(log.contains(note), "{log}");
        assert_eq!(documents(&at).len(), 35);
    }
}

#[test]
fn a_card_beside_its_data_is_no_document_and_sub_folders_are_not_forgotten() {
    let dir = tempfile::tempdir().unwrap();
    let texts = texts();
    let from = folder(
        dir.path().join("hf2"),
        &[
            ("README.md", CARD.to_string()),
            ("dataset_infos.json", "{\"a\":1}".to_string()),
            ("train.jsonl", lines("text", &texts[..25])),
        ],
    );
    let at = dir.path().join("a");
    made("curate", &at, &from, &[]);
    assert_eq!(documents(&at), texts[..25]);
    let from = folder(
        dir.path().join("deep"),
        &[
            ("top.jsonl", lines("text", &texts[..1])),
            ("sub/a.jsonl", lines("text", &texts[1..60])),
        ],
    );
    let at = dir.path().join("b");
    let text = made("curate", &at, &from, &[]);
    assert!(text.contains("recursive = true"), "{text}");
    assert_eq!(documents(&at).len(), 60);
}

#[test]
fn addresses_and_numbers_are_no_texts_and_their_file_is_named_with_what_takes_it() {
    let dir = tempfile::tempdir().unwrap();
    let texts = texts();
    let row = |n: usize| {
        format!(
            "2025-01-0{}\thttps://example.org/{}/{n}\tda39a3ee5e6b4b0d3255bfef95601890afd8{n:04}\n",
            n % 9,
            "a-long-way/".repeat(9)
        )
    };
    let index: String = (0..40).map(row).collect();
    let from = folder(
        dir.path().join("crawl"),
        &[
            ("index.tsv", format!("date\turl\tsha1\n{index}")),
            ("a.jsonl", lines("story", &texts[..30])),
        ],
    );
    let at = dir.path().join("job");
    let text = made("curate", &at, &from, &[]);
    // the longest field is the address where a text is short
    assert!(text.contains("text_key = \"story\""), "{text}");
    assert!(
        !text
            .lines()
            .any(|line| !line.starts_with('#') && line.contains("index.tsv")),
        "{text}"
    );
    let hint = "index.tsv: no field reads like text (fields: date, sha1, url); to take one all the same, write { path = ";
    assert!(text.contains(hint), "{text}");
    let input = "index.tsv\", format = \"tsv\", text_key = \"url\" }";
    assert!(text.contains(input), "{text}");
    assert_eq!(documents(&at), texts[..30]);
}

#[test]
fn tables_are_read_with_their_own_delimiter() {
    let dir = tempfile::tempdir().unwrap();
    let texts: Vec<String> = texts()[..40]
        .iter()
        .map(|t| t.replace(['\n', '\r'], " "))
        .collect();
    let rows = |delimiter: char, texts: &[String]| -> String {
        let row = |text: &String| format!("1{delimiter}\"{}\"\n", text.replace('"', "\"\""));
        format!(
            "id{delimiter}text\n{}",
            texts.iter().map(row).collect::<String>()
        )
    };
    for (name, delimiter, written) in [("semi", ';', "\";\""), ("bar", '|', "\"|\"")] {
        let from = folder(
            dir.path().join(name),
            &[("b.csv", rows(delimiter, &texts[..20]))],
        );
        let at = dir.path().join(format!("{name}-job"));
        let text = made("curate", &at, &from, &[]);
        assert!(text.contains(&format!("delimiter = {written}")), "{text}");
        assert_eq!(documents(&at), texts[..20]);
    }
    // a tab makes it the other format, and a folder may have both kinds
    let from = folder(
        dir.path().join("both"),
        &[
            ("a.csv", rows(',', &texts[..20])),
            ("b.csv", rows(';', &texts[20..30])),
            ("c.csv", rows('\t', &texts[30..])),
        ],
    );
    let at = dir.path().join("both-job");
    let text = made("curate", &at, &from, &[]);
    assert!(text.contains("format = \"tsv\""), "{text}");
    let mut found = documents(&at);
    let mut want = texts.clone();
    found.sort();
    want.sort();
    assert_eq!(found, want);
}

#[test]
fn lists_of_paths_and_damaged_files_are_named_and_the_job_runs() {
    let dir = tempfile::tempdir().unwrap();
    let texts = texts();
    let from = folder(
        dir.path().join("mixed"),
        &[
            ("a.jsonl", lines("text", &texts[..30])),
            (
                "b.jsonl",
                json!({"text": texts[30], "score": 1}).to_string(),
            ),
            ("empty.jsonl", String::new()),
            ("list.paths", "gone/a.jsonl\ngone/b.jsonl\n".to_string()),
        ],
    );
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    std::io::Write::write_all(&mut encoder, lines("text", &texts[31..90]).as_bytes()).unwrap();
    let packed = encoder.finish().unwrap();
    fs::write(from.join("half.jsonl.gz"), &packed[..packed.len() / 2]).unwrap();
    let at = dir.path().join("job");
    let text = made("curate", &at, &from, &[]);
    for want in [
        "fields: score, text, url",
        "1 empty file",
        "left out: 1 file with paths (to read what such a list names, give the list as `path`): list.paths",
        "half.jsonl.gz: 1 of the first ",
    ] {
        assert!(text.contains(want), "{want}: {text}");
    }
    assert!(documents(&at).len() > 31);
}

#[test]
fn arrays_of_objects_are_curated_and_learned() {
    let dir = tempfile::tempdir().unwrap();
    let texts = texts();
    let records: Vec<Value> = texts[..30]
        .iter()
        .map(|text| json!({"story": text}))
        .collect();
    let pretty = |record: &Value| serde_json::to_string_pretty(record).unwrap();
    for (name, text) in [
        ("array", serde_json::to_string(&records).unwrap()),
        (
            "pretty",
            records.iter().map(pretty).collect::<Vec<_>>().join("\n"),
        ),
    ] {
        let from = dir.path().join(format!("{name}.json"));
        fs::write(&from, text).unwrap();
        let at = dir.path().join(name);
        let job = made("curate", &at, &from, &[]);
        assert!(job.contains("format = \"jsonl\""), "{job}");
        assert_eq!(documents(&at), texts[..30]);
    }
    let chats = dir.path().join("chats.json");
    let turns: Vec<Value> = (0..9)
        .map(|n| json!({"instruction": format!("Say {n}"), "input": "", "output": format!("{n} it is")}))
        .collect();
    fs::write(&chats, serde_json::to_string(&turns).unwrap()).unwrap();
    let at = dir.path().join("tuned");
    let [at_, chats_] = [&at, &chats].map(|path| path.to_str().unwrap());
    // without a model the data is looked at first, and only the model is missing
    let refused = output(&["new", "finetune", at_, "--from", chats_]);
    let message = String::from_utf8(refused.stderr).unwrap();
    assert!(message.contains("--model MODEL"), "{message}");
}

#[test]
fn paths_alone_are_inputs_and_a_wrong_format_names_the_way_out() {
    let dir = tempfile::tempdir().unwrap();
    let texts = texts();
    let from = folder(
        dir.path().join("in"),
        &[
            ("one/a.jsonl", lines("text", &texts[..10])),
            ("two/a.txt", texts[10].clone()),
        ],
    );
    let run = |name: &str, inputs: String, code: i32| {
        let at = dir.path().join(name);
        let out = at.join("run").display().to_string();
        let job = format!("name = \"{name}\"\nout = {out:?}\n[curate]\ninputs = {inputs}\n");
        folder(at.clone(), &[("job.toml", job)]);
        let found = output(&["run", at.join("job.toml").to_str().unwrap()]);
        let log = String::from_utf8(found.stderr).unwrap();
        assert_eq!(found.status.code(), Some(code), "{log}");
        (at, log)
    };
    let path = |name: &str| format!("{:?}", from.join(name).display().to_string());
    let (at, _) = run("string", path("one/*.jsonl"), 0);
    assert_eq!(documents(&at), texts[..10]);
    let (at, _) = run("list", format!("[{}, {}]", path("one"), path("two")), 0);
    assert_eq!(documents(&at), texts[..11]);
    let (_, log) = run("wrong", format!("[{{ path = {} }}]", path("two/a.txt")), 1);
    assert!(log.contains("format = \"auto\""), "{log}");
}

#[test]
fn tokenizing_by_a_field_that_is_not_there_names_the_fields() {
    let dir = tempfile::tempdir().unwrap();
    let from = folder(
        dir.path().join("in"),
        &[("a.jsonl", lines("story", &texts()[..10]))],
    );
    let tokenizer = root().join("tests/data/preprocess/tokenizer.json");
    let prefix = dir.path().join("out");
    let [from, tokenizer, prefix] = [&from, &tokenizer, &prefix].map(|p| p.to_str().unwrap());
    let args = [
        "tokenize",
        "--input",
        from,
        "--tokenizer",
        tokenizer,
        "--output-prefix",
        prefix,
    ];
    let found = output(&args);
    let message = String::from_utf8(found.stderr).unwrap();
    assert_eq!(found.status.code(), Some(1), "{message}");
    let want = "--json-keys: the first records have no field \"text\"; they have story, url";
    assert!(message.contains(want), "{message}");
    assert!(
        message.contains("all 10 records hold no text in field \"text\""),
        "{message}"
    );
    assert!(!Path::new(&format!("{prefix}_text_document.idx")).exists());
    // the same again, as nothing that failed is done
    let again = output(&args);
    let message = String::from_utf8(again.stderr).unwrap();
    assert_eq!(again.status.code(), Some(1), "{message}");
    succeed(&[&args[..], &["--json-keys", "story"]].concat());
}

#[test]
fn a_field_that_only_later_records_have_is_tokenized() {
    let dir = tempfile::tempdir().unwrap();
    let text = lines("other", &texts()[..1]).repeat(300) + &lines("text", &texts()[..20]);
    let from = folder(dir.path().join("in"), &[("a.jsonl", text)]);
    let tokenizer = root().join("tests/data/preprocess/tokenizer.json");
    let prefix = dir.path().join("out");
    let [from, tokenizer, prefix_] = [&from, &tokenizer, &prefix].map(|p| p.to_str().unwrap());
    let printed = succeed(&[
        "tokenize",
        "--input",
        from,
        "--tokenizer",
        tokenizer,
        "--output-prefix",
        prefix_,
    ]);
    let message = String::from_utf8(printed.stderr).unwrap();
    let want = "the first records have no field \"text\"; they have other, url";
    assert!(message.contains(want), "{message}");
    let made = dir.path().join("out_text_document.idx");
    let described = succeed(&["inspect", made.to_str().unwrap(), "--json"]).stdout;
    let described: Value = serde_json::from_slice(&described).unwrap();
    assert_eq!(described["documents"], 20);
    let errors = fs::read_to_string(dir.path().join("out.errors.jsonl")).unwrap();
    assert_eq!(errors.lines().count(), 300);
}

#[test]
fn conversations_are_no_documents_of_a_curation() {
    let dir = tempfile::tempdir().unwrap();
    let chat = json!({"messages": [{"role": "user", "content": "What is red?"},
        {"role": "assistant", "content": "An apple is red, and so is the evening sun."}]});
    let chats = format!("{chat}\n").repeat(40);
    let about = "# Conversations\n\nThis text is about them, and no document.\n".to_string();
    let alone = folder(
        dir.path().join("alone"),
        &[("chat.jsonl", chats.clone()), ("README.md", about.clone())],
    );
    let at = dir.path().join("refused");
    let file = alone.join("chat.jsonl");
    for kind in ["curate", "tokenize", "pretrain"] {
        for from in [&alone, &file] {
            let [at, from] = [&at, from].map(|p| p.to_str().unwrap());
            let found = output(&["new", kind, at, "--from", from]);
            let message = String::from_utf8(found.stderr).unwrap();
            assert_eq!(found.status.code(), Some(2), "{message}");
            assert!(
                message.contains("conversations (fields: messages)"),
                "{message}"
            );
            assert!(message.contains("millrace new finetune"), "{message}");
        }
    }
    assert!(!at.exists());
    // texts beside them are curated, and they are named
    let mixed = folder(
        dir.path().join("mixed"),
        &[
            ("chat.jsonl", chats),
            ("a.jsonl", lines("text", &texts()[..10])),
            ("README.md", about),
        ],
    );
    let at = dir.path().join("job");
    let text = made("curate", &at, &mixed, &[]);
    assert!(text.contains("chat.jsonl: conversations"), "{text}");
    let found = documents(&at);
    assert!(texts()[..10].iter().all(|text| found.contains(text)));
    let manifest = fs::read_to_string(at.join("run/manifest.json")).unwrap();
    let manifest: Value = serde_json::from_str(&manifest).unwrap();
    assert_eq!(manifest["curate"]["counts"]["quarantined"], 0);
}
