//! Inputs as they come: formats told by content, folders in folders, fields by name, the first records, a sample.

use std::collections::BTreeSet;
use std::path::Path;

use curate::Silent;
use curate::corpus::{CleanDocument, documents};
use curate::pipeline::{CurateConfig, Curator, ShardReport, shards};
use curate::read::{Format, Input, Keys};
use serde_json::json;

fn input(path: &Path, format: Format) -> Input {
    Input {
        path: path.to_string_lossy().into_owned(),
        format,
        source: "s".to_string(),
        ..Input::default()
    }
}

fn config(input: Input) -> CurateConfig {
    CurateConfig {
        inputs: vec![input],
        max_record_bytes: 1 << 16,
        ..CurateConfig::default()
    }
}

/// Runs a config; its documents in order, and the sum of its reports.
fn run(config: &CurateConfig) -> (Vec<CleanDocument>, ShardReport) {
    let out = tempfile::tempdir().unwrap();
    let curator = Curator::new(config, None, None, 0).unwrap();
    let mut sum = ShardReport::default();
    let mut found = Vec::new();
    for shard in shards(config).unwrap() {
        sum.merge(&curator.run_shard(&shard, out.path(), &Silent).unwrap());
        found.extend(
            documents(out.path(), shard.number)
                .unwrap()
                .map(Result::unwrap),
        );
    }
    assert!(sum.adds_up());
    (found, sum)
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    std::io::Write::write_all(&mut encoder, bytes).unwrap();
    encoder.finish().unwrap()
}

fn ids(documents: &[CleanDocument]) -> Vec<&str> {
    documents.iter().map(|d| d.id.as_str()).collect()
}

const PAGE: &str = "<!doctype html><html><head><title>On rivers</title></head><body><article><h1>On rivers</h1>\
    <p>The river rose in spring, and the people who lived beside it moved their houses up the hill.</p>\
    <p>They came back in summer, when the water had gone, and cleaned the rooms that were left.</p></article></body></html>";

#[test]
fn a_folder_of_files_of_every_format_is_read_by_content() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path();
    std::fs::create_dir_all(root.join("a/b")).unwrap();
    std::fs::create_dir_all(root.join(".hidden")).unwrap();
    let body = "A text of a server.";
    let warc = format!(
        "WARC/1.0\r\nWARC-Type: resource\r\nContent-Type: text/plain\r\nContent-Length: {}\r\n\r\n{body}\r\n\r\n",
        body.len()
    );
    // names tell nothing
    for (name, bytes) in [
        ("1", b"{\"text\":\"a line\"}\n".to_vec()),
        ("2.txt", gzip(b"{\"text\":\"a packed line\"}\n")),
        ("a/3.jsonl", warc.into_bytes()),
        ("a/4.json", b"id,text\n7,\"a cell, quoted\"\n".to_vec()),
        ("a/b/5.csv", b"text\tn\nbetween tabs\t1\n".to_vec()),
        ("a/b/6", PAGE.as_bytes().to_vec()),
        ("a/b/7", b"Only some words.\n".to_vec()),
        ("a/b/8.txt", b"%PDF-1.4 ...".to_vec()),
        (".hidden/9", b"{\"text\":\"hidden\"}\n".to_vec()),
        (".10", b"{\"text\":\"hidden\"}\n".to_vec()),
    ] {
        std::fs::write(root.join(name), bytes).unwrap();
    }
    let mut folder = Input {
        recursive: true,
        ..input(root, Format::Auto)
    };
    let (found, report) = run(&config(folder.clone()));
    let texts: Vec<&str> = found.iter().map(|d| d.text.as_str()).collect();
    assert_eq!(
        texts[..5],
        [
            "a line",
            "a packed line",
            body,
            "a cell, quoted",
            "between tabs"
        ]
    );
    assert!(texts[5].contains("moved their houses"), "{}", texts[5]);
    assert_eq!(texts[6..], ["Only some words.\n"]);
    assert_eq!(ids(&found)[3..5], ["7", "s/a/b/5/0"]);
    // the PDF is quarantined, not passed over
    assert_eq!((report.kept, report.quarantined), (7, 1));
    folder.recursive = false;
    assert_eq!(run(&config(folder)).0.len(), 2);
}

#[test]
fn rows_of_tables_are_documents_and_broken_ones_are_counted() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.csv");
    let long = "x".repeat(1 << 17);
    let table = format!(
        "\u{feff}name,text,name\n1,\"one \"\"text\"\"\nof two lines\",a\n2,two\n3,{long},b\n\n4,four,\"c\"\n5,,d\n6,six,e"
    );
    let mut bytes = table.into_bytes();
    bytes.extend_from_slice(b"\n7,\xff,f\n");
    for (name, bytes) in [("plain", bytes.clone()), ("packed", gzip(&bytes))] {
        std::fs::write(&path, bytes).unwrap();
        let (found, report) = run(&config(input(&path, Format::Csv)));
        let texts: Vec<&str> = found.iter().map(|d| d.text.as_str()).collect();
        assert_eq!(
            texts,
            ["one \"text\"\nof two lines", "four", "six"],
            "{name}"
        );
        assert_eq!(found[0].meta, Some(json!({"name": "1", "name_2": "a"})));
        // two fields, too long, no UTF-8
        assert_eq!(
            (report.quarantined, report.dropped["read.empty"]),
            (3, 1),
            "{name}"
        );
    }
    std::fs::write(&path, "a,b\n1,2\n").unwrap();
    let config = config(input(&path, Format::Csv));
    let curator = Curator::new(&config, None, None, 0).unwrap();
    let shard = &shards(&config).unwrap()[0];
    let why = curator
        .run_shard(shard, dir.path(), &Silent)
        .unwrap_err()
        .to_string();
    assert!(why.contains("a table with a column of texts"), "{why}");
    std::fs::write(&path, "").unwrap();
    assert_eq!(run(&config).1.quarantined, 1);
    std::fs::write(&path, "text,n\n").unwrap();
    assert_eq!(run(&config).1.records, 0);
}

#[test]
fn fields_are_found_by_name_and_all_others_kept_or_chosen() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.jsonl");
    let line = r#"{"head":"A","body":{"text":"b","by":"c"},"key":{"a":1,"b":"x"},"score":0.5,"meta":{"m":[1]}}"#;
    std::fs::write(&path, format!("{line}\n")).unwrap();
    let mut input = Input {
        text_key: Keys::Several(vec!["head".into(), "body.text".into()]),
        id_key: Keys::Several(vec!["key.b".into(), "key.a".into()]),
        ..input(&path, Format::Jsonl)
    };
    let found = run(&config(input.clone())).0.remove(0);
    assert_eq!((found.id.as_str(), found.text.as_str()), ("x/1", "A\n\nb"));
    assert_eq!(
        found.meta,
        Some(json!({"body": {"by": "c"}, "score": 0.5, "m": [1]}))
    );
    input.keep_fields = Some(vec!["score".into()]);
    assert_eq!(
        run(&config(input.clone())).0[0].meta,
        Some(json!({"score": 0.5}))
    );
    input.keep_fields = Some(Vec::new());
    assert_eq!(run(&config(input.clone())).0[0].meta, None);
    input.text_key = Keys::One("nothing".into());
    assert_eq!(run(&config(input)).1.quarantined, 1);
    // a job file has a name or a list of names
    let read = |text: &str| serde_json::from_str::<Input>(text).unwrap().text_key;
    assert_eq!(read(r#"{"text_key":"a.b"}"#).names(), ["a.b"]);
    assert_eq!(read(r#"{"text_key":["a","b"]}"#).names(), ["a", "b"]);
    let mut problems = Vec::new();
    let wrong = Input {
        text_key: Keys::One("a".into()),
        ..self::input(&path, Format::Warc)
    };
    wrong.check(&mut |key, _, _| problems.push(key.to_string()));
    assert_eq!(problems, ["text_key"]);
}

/// Three files of lines; some with ids of their own.
fn three_files(root: &Path) {
    for file in 0..3 {
        let line = |i: usize| match i % 2 {
            0 => format!("{{\"text\":\"text {i} of {file}\"}}\n"),
            _ => format!("{{\"text\":\"text {i} of {file}\",\"id\":\"{file}-{i}\"}}\n"),
        };
        let lines: String = (0..2000).map(line).collect();
        std::fs::write(root.join(format!("{file}.jsonl")), lines).unwrap();
    }
}

#[test]
fn the_first_records_are_those_of_the_inputs_in_order() {
    let dir = tempfile::tempdir().unwrap();
    three_files(dir.path());
    let mut config = config(input(dir.path(), Format::Jsonl));
    let all = run(&config).0;
    for limit in [1, 1999, 2000, 2001, 4500, 6000, 9000] {
        config.limit = limit;
        let (found, report) = run(&config);
        let count = usize::try_from(limit).unwrap().min(6000);
        assert_eq!(ids(&found), ids(&all[..count]), "{limit}");
        assert_eq!(report.records, count as u64);
    }
    // files behind the limit are no shards
    config.limit = 2000;
    assert_eq!(shards(&config).unwrap().len(), 1);
}

#[test]
fn a_sample_is_a_share_of_the_documents_chosen_by_their_ids() {
    let dir = tempfile::tempdir().unwrap();
    three_files(dir.path());
    let mut config = config(input(dir.path(), Format::Jsonl));
    let all = run(&config).0;
    let mut before: BTreeSet<String> = BTreeSet::new();
    for share in [0.0, 0.01, 0.25, 0.5, 1.0] {
        config.sample = share;
        let (found, report) = run(&config);
        // five standard deviations of the binomial distribution
        let (n, mean) = (all.len() as f64, all.len() as f64 * share);
        let bound = 5.0 * (n * share * (1.0 - share)).sqrt();
        assert!(
            (found.len() as f64 - mean).abs() <= bound,
            "{share}: {}",
            found.len()
        );
        let left_out = report.dropped.get("sample").copied().unwrap_or(0);
        assert_eq!(left_out + report.kept, 6000);
        // a larger sample holds the smaller one, in the order of the inputs
        let chosen: BTreeSet<String> = found.iter().map(|d| d.id.clone()).collect();
        assert!(before.is_subset(&chosen));
        let in_order: Vec<&str> = ids(&all)
            .into_iter()
            .filter(|id| chosen.contains(*id))
            .collect();
        assert_eq!(ids(&found), in_order);
        before = chosen;
    }
}

/// A dataset as the Hub has them, with the files of two splits and one of none.
fn dataset(root: &Path, card: &str) {
    std::fs::create_dir_all(root.join("data")).unwrap();
    std::fs::write(root.join("README.md"), card).unwrap();
    for (name, text) in [
        ("data/test-00000-of-00001.jsonl", "A text to test with."),
        ("data/train-00000-of-00001.jsonl", "A text to learn from."),
        ("extra.jsonl", "A text of its own."),
    ] {
        let line = json!({ "text": text, "score": 1 }).to_string() + "\n";
        std::fs::write(root.join(name), line).unwrap();
    }
}

#[test]
fn a_split_of_a_dataset_is_read_alone_and_documents_name_it() {
    let dir = tempfile::tempdir().unwrap();
    let names = "---\nlicense: mit\n---\nA card.\n";
    dataset(dir.path(), names);
    let read = |split: Option<&str>, config_name: Option<&str>, kept: Option<&[&str]>| {
        let input = Input {
            dataset_split: split.map(str::to_string),
            dataset_config: config_name.map(str::to_string),
            keep_fields: kept.map(|names| names.iter().map(ToString::to_string).collect()),
            ..input(dir.path(), Format::Auto)
        };
        let (found, report) = run(&config(input));
        let metas: Vec<_> = found.iter().map(|d| d.meta.clone()).collect();
        let texts: Vec<String> = found.into_iter().map(|d| d.text).collect();
        (texts, json!(metas), report)
    };
    let (texts, metas, _) = read(Some("train"), None, None);
    assert_eq!(texts, ["A text to learn from."]);
    assert_eq!(metas, json!([{"score": 1, "dataset_split": "train"}]));
    // all files without the key, those that are of a split by name with it
    let (texts, metas, _) = read(None, None, None);
    assert_eq!(texts.len(), 3);
    let of = |split: &str| json!({"score": 1, "dataset_split": split});
    assert_eq!(metas, json!([of("test"), of("train"), {"score": 1}]));
    // as one of the fields that are kept
    let (_, metas, report) = read(Some("test"), None, Some(&["dataset_split"]));
    assert_eq!(metas, json!([{"dataset_split": "test"}]));
    assert_eq!(report.absent_fields(), [""; 0]);
    let (_, metas, _) = read(Some("test"), None, Some(&["score"]));
    assert_eq!(metas, json!([{"score": 1}]));
    // the card comes before the names
    let card = "---\nconfigs:\n- config_name: all\n  default: true\n  data_files:\n  - split: train\n    path: \"**/*.jsonl\"\n\
        - config_name: more\n  data_files: extra.jsonl\n---\n";
    dataset(dir.path(), card);
    assert_eq!(read(Some("train"), None, None).0.len(), 3);
    let (texts, metas, _) = read(None, Some("more"), None);
    assert_eq!(texts, ["A text of its own."]);
    let want = json!([{"score": 1, "dataset_split": "train", "dataset_config": "more"}]);
    assert_eq!(metas, want);
    // a split that is not there, and a path that is no folder
    for (path, split, want) in [
        (
            dir.path().to_path_buf(),
            "dev",
            "no split \"dev\" of the configuration \"all\"; there are train",
        ),
        (
            dir.path().join("extra.jsonl"),
            "train",
            "choose from the files of a folder",
        ),
        (
            dir.path().join("data/*.jsonl"),
            "train",
            "choose from the files of a folder",
        ),
    ] {
        let input = Input {
            dataset_split: Some(split.to_string()),
            ..input(&path, Format::Auto)
        };
        let why = shards(&config(input)).unwrap_err().to_string();
        assert!(why.contains(want), "{why}");
    }
}
