//! Decontamination: parity with datatrove and Megatron-LM (recorded by tests/oracles); tasks, bad input, cuts in files.

use std::path::Path;

use curate::Silent;
use curate::corpus::{EditList, Found, KeepList, KeepStatus, TextReader, kept_documents};
use curate::decontaminate::{CutRules, DecontaminateConfig, DecontaminateProfile, Decontaminator};
use curate::dedup::{DedupConfig, DedupReport, LinesConfig, decontaminate, dedup};
use curate::pipeline::{CurateConfig, Curator, shards};
use curate::read::Input;
use curate::verdict::Verdict;
use curate::write::checksum;
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
    let message: Vec<(&str, u64)> = report
        .dropped
        .iter()
        .map(|(k, n)| (k.as_str(), *n))
        .collect();
    assert_eq!(
        message,
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
        let message = error.to_string();
        assert!(
            message.contains("eval.jsonl") && message.contains(why),
            "{message}"
        );
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

fn megatron() -> Value {
    let packed = include_bytes!("../data/megatron_ngrams.json.zst");
    serde_json::from_slice(&zstd::decode_all(&packed[..]).unwrap()).unwrap()
}

/// The golden's evaluation sets, one of them compressed and one as plain text.
fn sets(folder: &Path, golden: &Value) -> DecontaminateConfig {
    let mut files = Vec::new();
    for (task, texts) in golden["tasks"].as_object().unwrap() {
        let texts = texts.as_array().unwrap();
        let path = folder.join(format!("{task}.jsonl"));
        match task.as_str() {
            "short" => {
                let texts: Vec<&str> = texts.iter().map(|t| t.as_str().unwrap()).collect();
                std::fs::write(
                    &path,
                    zstd::encode_all(texts.join("\n").as_bytes(), 3).unwrap(),
                )
                .unwrap();
            }
            _ => {
                let record = |t: &Value| json!({"nested": [{"question": t}], "n": 1});
                let records: Vec<Value> = texts.iter().map(record).collect();
                lines(&path, &records);
            }
        }
        files.push(path.to_string_lossy().into_owned());
    }
    DecontaminateConfig {
        files,
        profile: DecontaminateProfile::MtNlg,
        ..DecontaminateConfig::default()
    }
}

/// Curates documents in `files` files, deduplicates and decontaminates; returns the folder of the result.
fn cut(
    folder: &Path,
    documents: &[&str],
    files: usize,
    dedup_config: &DedupConfig,
    evaluation: &DecontaminateConfig,
) -> (DedupReport, usize) {
    let input = folder.join("in");
    std::fs::create_dir_all(&input).unwrap();
    for (i, texts) in documents
        .chunks(documents.len().div_ceil(files))
        .enumerate()
    {
        let records: Vec<Value> = texts.iter().map(|t| json!({"text": t})).collect();
        lines(&input.join(format!("{i:03}.jsonl")), &records);
    }
    let config = CurateConfig {
        inputs: vec![Input {
            path: input.to_string_lossy().into_owned(),
            ..Input::default()
        }],
        ..CurateConfig::default()
    };
    let curator = Curator::new(&config, None, None, 1).unwrap();
    let list = shards(&config).unwrap();
    let out = folder.join("out");
    for shard in &list {
        curator.run_shard(shard, &out, &Silent).unwrap();
    }
    let report = dedup(dedup_config, &out, list.len(), &Silent).unwrap();
    let report = decontaminate(evaluation, 64, &out, report, &Silent).unwrap();
    (report, list.len())
}

/// The texts that are left, by both readers.
fn left(out: &Path, count: usize) -> Vec<String> {
    let mut all = Vec::new();
    for shard in 0..count {
        let kept: Vec<String> = kept_documents(out, shard)
            .unwrap()
            .map(|d| d.unwrap().text)
            .collect();
        let mut read = Vec::new();
        let mut reader = TextReader::shard(out, shard, true).unwrap();
        while reader.next(&mut |r| read.push(r.texts.concat())).unwrap() != Found::End {}
        assert_eq!(kept, read);
        all.extend(kept);
    }
    all
}

#[test]
fn cut_documents_are_megatrons_however_many_files_hold_them() {
    let golden = megatron();
    let run = &golden["runs"][0];
    let (mut documents, mut want) = (Vec::new(), Vec::new());
    let all = golden["documents"].as_array().unwrap();
    for (text, cut) in all.iter().zip(run["cuts"].as_array().unwrap()) {
        let text = text.as_str().unwrap();
        if text.is_empty() {
            continue;
        }
        documents.push(text);
        match cut.as_array() {
            None => want.push(text),
            Some(pieces) => want.extend(pieces.iter().map(|p| p.as_str().unwrap())),
        }
    }
    let mut reports = Vec::new();
    for files in [1, 2, 7, 64] {
        let folder = tempfile::tempdir().unwrap();
        let evaluation = sets(folder.path(), &golden);
        let config = DedupConfig::default();
        let threads = rayon::ThreadPoolBuilder::new().num_threads(1 + files % 3);
        let made = || cut(folder.path(), &documents, files, &config, &evaluation);
        let (report, count) = threads.build().unwrap().install(made);
        let out = folder.path().join("out");
        assert!(left(&out, count) == want, "{files} files");
        let sum = report.kept + report.contaminated;
        assert_eq!(report.documents, sum);
        for file in &report.outputs {
            let found = checksum(&out.join(&file.path)).unwrap().1;
            assert_eq!(found, file.xxh3, "{}", file.path);
        }
        let hits = std::fs::read_to_string(out.join("decontaminate/hits.jsonl")).unwrap();
        let mut found = report.decontamination.unwrap();
        assert_eq!(hits.lines().count() as u64, found.met);
        let sums = found.trimmed + found.split + found.removed + found.too_many_pieces;
        assert_eq!(found.met, sums);
        assert!(found.tasks["common"].frequent > 0 && found.tasks["long"].documents > 50);
        let message = std::fs::read(out.join("decontaminate/report.json")).unwrap();
        let message: Value = serde_json::from_slice(&message).unwrap();
        assert_eq!(message, serde_json::to_value(&found).unwrap());
        // ids name the files
        found.examples.iter_mut().for_each(|e| e.id.clear());
        reports.push(found);
    }
    assert!(reports.iter().all(|r| *r == reports[0]));
    let pieces = |cut: &Value| cut.as_array().map_or(0, Vec::len);
    let several = run["cuts"].as_array().unwrap().iter().map(pieces);
    let several: Vec<usize> = several.filter(|n| *n > 1).collect();
    assert_eq!(reports[0].split, several.len() as u64);
    assert_eq!(reports[0].pieces, several.iter().sum::<usize>() as u64);
    assert!(reports[0].too_many_pieces > 0);
}

#[test]
fn pieces_are_documents_with_numbers_behind_the_id_and_repeated_lines_stay_cut() {
    let folder = tempfile::tempdir().unwrap();
    let question = "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu";
    let file = lines(&folder.path().join("quiz.jsonl"), &[json!({"q": question})]);
    let evaluation = DecontaminateConfig {
        files: vec![file],
        profile: DecontaminateProfile::MtNlg,
        cut: CutRules {
            side_chars: 10,
            min_piece_chars: 5,
            ..CutRules::default()
        },
        ..DecontaminateConfig::default()
    };
    let text = format!(
        "First sentence here.\nmenu\nWords before. {question} words behind. The last sentence."
    );
    let documents = ["menu\nclean", &text, question];
    let config = DedupConfig {
        lines: Some(LinesConfig::default()),
        ..DedupConfig::default()
    };
    let (report, count) = cut(folder.path(), &documents, 1, &config, &evaluation);
    let out = folder.path().join("out");
    let kept: Vec<(String, String)> = kept_documents(&out, 0)
        .unwrap()
        .map(|d| d.unwrap())
        .map(|d| (d.id, d.text))
        .collect();
    let want = [
        ("input/000/0", "menu\nclean"),
        ("input/000/1#1", "First sentence here."),
        ("input/000/1#2", " The last sentence."),
    ];
    let want = want.map(|(id, text)| (id.to_string(), text.to_string()));
    assert_eq!(kept, want);
    assert_eq!(left(&out, count).len(), 3);
    assert_eq!((report.kept, report.contaminated), (2, 1));
    let list = KeepList::read(&out.join("keep/00000.keep")).unwrap();
    assert_eq!(list.status(2), KeepStatus::Contaminated);
    let edits = EditList::read(&out.join("keep/00000.edits")).unwrap();
    assert_eq!((edits.splits(), edits.of(1).len()), (1, 1));
    let found = report.decontamination.clone().unwrap();
    let quiz = &found.tasks["quiz"];
    assert_eq!(
        (quiz.texts, quiz.ngrams, quiz.documents, quiz.hits),
        (1, 1, 2, 2)
    );
    let example = &found.examples[0];
    assert_eq!(
        (example.ngram.as_str(), example.outcome.as_str()),
        (question, "split")
    );
    assert!(example.excerpt.contains("Words before. alpha beta"));
    // texts that were split would not be met again where they were
    let twice = decontaminate(&evaluation, 64, &out, report, &Silent).unwrap_err();
    assert!(twice.to_string().contains("00000.edits"), "{twice}");
}

#[test]
fn evaluation_sets_and_rules_that_cannot_be_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let file = lines(
        &folder.path().join("quiz.jsonl"),
        &[json!({"question": "x"})],
    );
    let config = |profile| DecontaminateConfig {
        files: vec![file.clone()],
        fields: vec!["qestion".to_string()],
        profile,
        ..DecontaminateConfig::default()
    };
    let message = |error: curate::Error| error.to_string();
    let why = message(
        Decontaminator::new(&config(DecontaminateProfile::Gpt3))
            .err()
            .unwrap(),
    );
    assert!(
        why.contains("quiz.jsonl") && why.contains("found no text in fields"),
        "{why}"
    );
    let report = DedupReport::default();
    let run = |profile| {
        let out = folder.path().join("out");
        decontaminate(&config(profile), 64, &out, report.clone(), &Silent).unwrap_err()
    };
    assert!(message(run(DecontaminateProfile::MtNlg)).contains("found no text in fields"));
    assert!(message(run(DecontaminateProfile::Gpt3)).starts_with("profile: "));
    let wrong = Decontaminator::new(&config(DecontaminateProfile::MtNlg)).err();
    assert!(message(wrong.unwrap()).starts_with("profile: "));
    let mut found = Vec::new();
    let text = r#"{"profile":"mt_nlg","ngram":6,"cut":{"side_chars":9999999,"max_pieces":0}}"#;
    let wrong: DecontaminateConfig = serde_json::from_str(text).unwrap();
    wrong.check(&mut |key, _, _| found.push(key.to_string()));
    assert_eq!(
        found,
        ["files", "cut.min_ngram", "cut.side_chars", "cut.max_pieces"]
    );
    found.clear();
    let text = r#"{"files":["x"],"cut":{"max_pieces":3}}"#;
    let wrong: DecontaminateConfig = serde_json::from_str(text).unwrap();
    wrong.check(&mut |key, _, _| found.push(key.to_string()));
    assert_eq!(found, ["cut"]);
}

#[test]
fn records_are_scored_and_documents_dropped_under_their_tasks() {
    let folder = tempfile::tempdir().unwrap();
    let question = "What year was the tower on the Champ de Mars in Paris first opened to the public by its builders";
    let record = json!({"eval_key": "quiz 1", "question": question, "answer": "1889"});
    let file = lines(&folder.path().join("sets.jsonl"), &[record]);
    let config = DecontaminateConfig {
        files: vec![file],
        profile: DecontaminateProfile::Decon,
        task_field: "eval_key".to_string(),
        ..DecontaminateConfig::default()
    };
    let set = Decontaminator::new(&config).unwrap();
    assert!(set.texts() == 1 && set.ngrams() > 20);
    // with one record all weights are ln 1 = 0, and nothing can be scored
    let dirty = format!("Trivia. {} It was 1889.", question.to_uppercase());
    assert!(set.judge(&dirty).is_continue());
    let other = json!({"eval_key": "other", "question": "How many moons does the fourth planet of the sun have and what are they called today"});
    std::fs::OpenOptions::new()
        .append(true)
        .open(folder.path().join("sets.jsonl"))
        .and_then(|mut f| std::io::Write::write_all(&mut f, format!("{other}\n").as_bytes()))
        .unwrap();
    let set = Decontaminator::new(&config).unwrap();
    let Verdict::Break(reason) = set.judge(&dirty) else {
        panic!("kept")
    };
    assert_eq!(reason.rule, "decontaminate.quiz_1");
    let message = serde_json::to_value(&reason).unwrap();
    let value = message["value"].as_str().unwrap();
    assert!(
        value.starts_with("1.000: what year was the tower"),
        "{value}"
    );
    assert_eq!(message["limit"], "a score below 0.8");
    let half = question.split_at(question.len() / 2).0;
    assert!(
        set.judge(&format!("Trivia. {half} and so on and so forth, in 1889."))
            .is_continue()
    );
    let mut found = Vec::new();
    let text = r#"{"profile":"decon","files":["x"],"fields":["y"],"sampled":{"min_score":2,"whole_tokens":60,"sample_every":0}}"#;
    let wrong: DecontaminateConfig = serde_json::from_str(text).unwrap();
    wrong.check(&mut |key, _, _| found.push(key.to_string()));
    assert_eq!(
        found,
        [
            "sampled.sample_every",
            "sampled.min_score",
            "sampled.whole_tokens",
            "fields"
        ]
    );
}
