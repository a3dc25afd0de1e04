//! datatrove's own n-grams and verdicts, recorded by tests/oracles/datatrove_decont.py, against ours; tasks and bad input.

use std::path::Path;

use curate::{
    CurateConfig, Curator, DecontaminateConfig, DecontaminateProfile, Decontaminator, Input,
    Silent, Verdict, shards,
};
use serde_json::{Value, json};

fn lines(path: &Path, records: &[Value]) -> String {
    let lines: String = records.iter().map(|r| format!("{r}\n")).collect();
    std::fs::write(path, lines).unwrap();
    path.to_string_lossy().into_owned()
}

#[test]
fn index_and_verdicts_are_datatroves() {
    let packed = include_bytes!("../data/datatrove_decont.json.zst");
    let golden: Value = serde_json::from_slice(&zstd::decode_all(&packed[..]).unwrap()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let records = golden["records"].as_array().unwrap();
    let file = lines(&folder.path().join("eval.jsonl"), records);
    let (mut hashes, mut dropped) = (0, 0);
    for run in golden["runs"].as_array().unwrap() {
        let settings = &run["settings"];
        let n = settings["n_grams"].as_u64();
        let config = DecontaminateConfig {
            files: vec![file.clone()],
            profile: DecontaminateProfile::Datatrove,
            query_ngrams: settings["query_ngrams"].as_bool().unwrap_or(false),
            overlap_ngrams: settings["overlap_ngrams"].as_bool().unwrap_or(true),
            ngram: n.map(|n| usize::try_from(n).unwrap()),
            ..DecontaminateConfig::default()
        };
        let index = Decontaminator::new(&config).unwrap();
        for (task, want) in run["hashes"].as_object().unwrap() {
            let found: Vec<String> = index
                .hashes_of(task)
                .iter()
                .map(|h| format!("{h:016x}"))
                .collect();
            assert_eq!(json!(found), *want, "{task} of {settings}");
            hashes += found.len();
        }
        let texts = golden["texts"].as_array().unwrap();
        for (text, want) in texts.iter().zip(run["verdicts"].as_array().unwrap()) {
            let found = match index.judge(text.as_str().unwrap()) {
                Verdict::Continue(()) => Value::Null,
                Verdict::Break(reason) => {
                    dropped += 1;
                    json!([
                        reason.rule.strip_prefix("decontaminate.").unwrap(),
                        reason.value
                    ])
                }
            };
            assert_eq!(found, *want, "{text} with {settings}");
        }
    }
    assert!(hashes > 500 && dropped > 50, "{hashes} {dropped}");
}

#[test]
fn drops_are_counted_by_task_which_a_field_or_the_file_names() {
    let folder = tempfile::tempdir().unwrap();
    let words = |from: usize| {
        (from..from + 14)
            .map(|i| format!("w{i}"))
            .collect::<Vec<_>>()
            .join(" ")
    };
    let one = json!({"task": "a task", "text": words(0)});
    let two = json!({"text": words(100)});
    let eval = lines(&folder.path().join("quiz.v1.jsonl"), &[one, two]);
    let documents: Vec<Value> = [0, 100, 0, 200]
        .map(|from| json!({ "text": words(from) }))
        .into();
    let config = CurateConfig {
        inputs: vec![Input {
            path: lines(&folder.path().join("in.jsonl"), &documents),
            ..Input::default()
        }],
        ..CurateConfig::default()
    };
    let evaluation = DecontaminateConfig {
        files: vec![eval],
        fields: vec!["text".to_string()],
        ..DecontaminateConfig::default()
    };
    let curator = Curator::new(&config, Some(&evaluation), None, 1).unwrap();
    let shard = &shards(&config).unwrap()[0];
    let out = folder.path().join("out");
    let report = curator.run_shard(shard, &out, &Silent).unwrap();
    let told: Vec<(&str, u64)> = report
        .dropped
        .iter()
        .map(|(k, n)| (k.as_str(), *n))
        .collect();
    assert_eq!(
        told,
        [("decontaminate.a_task", 2), ("decontaminate.quiz", 1)]
    );
    assert_eq!(report.kept, 1);
}

#[test]
fn an_evaluation_record_without_its_label_is_named() {
    let folder = tempfile::tempdir().unwrap();
    for (record, why) in [
        (json!({"question": "x"}), "no text in field \"text\""),
        (json!(["x"]), "record 0 is no object"),
    ] {
        let config = DecontaminateConfig {
            files: vec![lines(&folder.path().join("eval.jsonl"), &[record])],
            profile: DecontaminateProfile::Datatrove,
            ..DecontaminateConfig::default()
        };
        let Err(error) = Decontaminator::new(&config) else {
            panic!("made")
        };
        let told = error.to_string();
        assert!(told.contains("eval.jsonl") && told.contains(why), "{told}");
    }
    let mut found = Vec::new();
    DecontaminateConfig {
        profile: DecontaminateProfile::Datatrove,
        fields: vec!["text".to_string()],
        ngram: Some(1),
        ..DecontaminateConfig::default()
    }
    .check(&mut |key, _, _| found.push(key.to_string()));
    assert_eq!(found, ["files", "ngram", "fields"]);
}
