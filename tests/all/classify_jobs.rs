//! Tests of `[classify]` jobs: fine-tuning on files of MNLI, QQP and RACE with a classification head, the same bits in
//! other layouts and after a kill, accuracy by `eval --task`, and bad rows.

use crate::jobs::{killed_at, metrics, output, succeed, word_tokenizer};
use crate::run_plan::planned;
use serde_json::{Value, json};
use std::fmt::Write;
use std::path::{Path, PathBuf};

const WORDS: [&str; 24] = [
    "a", "the", "cat", "dog", "red", "old", "sleeps", "walks", "sees", "river", "stone", "light",
    "under", "seven", "never", "perhaps", "surely", "who", "where", "what", "small", "tree", ".",
    "?",
];

/// A tokenizer of whole words with BERT's and GPT-2's special tokens.
fn tokenizer(folder: &Path) -> PathBuf {
    let special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "<|endoftext|>"];
    word_tokenizer(folder, &special, &WORDS)
}

/// Words of a text, the same for every run.
fn words(seed: usize, count: usize) -> String {
    let word = |at: usize| WORDS[(seed * 7 + at * at * 5 + seed * at * 3) % 14];
    (0..count).map(word).collect::<Vec<_>>().join(" ")
}

/// MNLI as GLUE publishes it; one word of the hypothesis tells the label, as in many of MNLI's.
fn mnli(path: &Path, rows: std::ops::Range<usize>) {
    let header: Vec<String> = (0..8).map(|n| format!("c{n}")).collect();
    let mut text = format!(
        "{}\tsentence1\tsentence2\tlabel1\tgold_label\n",
        header.join("\t")
    );
    for row in rows {
        let (label, word) = [
            ("contradiction", "never"),
            ("neutral", "perhaps"),
            ("entailment", "surely"),
        ][row * 5 % 7 % 3];
        let cells = (0..8).map(|_| "x\t").collect::<String>();
        let (premise, rest) = (words(row, 3 + row % 5), words(row + 3, 1 + row % 4));
        writeln!(
            text,
            "{cells}{premise} .\t{rest} {word} {}\t{label}\t{label}",
            words(row, 2)
        )
        .unwrap();
    }
    std::fs::write(path, text).unwrap();
}

/// A job of a small BERT on 480 rows of MNLI, and its file of validation rows.
fn mnli_job(folder: &Path) -> [PathBuf; 2] {
    let (train, dev) = (folder.join("train.tsv"), folder.join("dev.tsv"));
    mnli(&train, 0..490);
    mnli(&dev, 1000..1090);
    let text = format!(
        "name = 'mnli'\nout = {:?}\n[classify]\ntask = 'mnli'\ntrain = [{train:?}]\nvalid = [{dev:?}]\ntokenizer = {:?}\n\
         seq_length = 24\nepochs = 3\n[model]\nfamily = 'bert'\nlayers = 2\nd_model = 32\nheads = 2\ndropout = 0.1\n\
         [train]\nglobal_batch = 8\nmicro_batch = 4\nlr = 2e-3\nmin_lr = 0.0\nschedule = 'linear'\n\
         checkpoint = {{ every = 25 }}\n",
        folder.join("out"),
        tokenizer(folder),
    );
    let path = folder.join("job.toml");
    std::fs::write(&path, text).unwrap();
    [path, dev]
}

fn accuracies(metrics: &[Value]) -> Vec<f64> {
    let found = metrics
        .iter()
        .filter_map(|line| line["valid_accuracy"].as_f64());
    found.collect()
}

#[test]
fn a_bert_learns_mnli_with_the_same_bits_in_other_layouts_and_after_kills() {
    let dir = tempfile::tempdir().unwrap();
    let [path, dev] = mnli_job(dir.path());
    let (path, dev) = (path.to_str().unwrap(), dev.to_str().unwrap());
    assert!(planned(path).contains(&"train".to_owned()));
    let log = succeed(&["train", path]).stderr;
    assert!(!planned(path).contains(&"train".to_owned()));
    let log = String::from_utf8(log).unwrap();
    assert!(
        log.contains("490 training questions of mnli") && log.contains("validation accuracy"),
        "{log}"
    );
    let want = metrics(&dir.path().join("out"));
    let found = accuracies(&want);
    assert_eq!(found.len(), 3, "one of each epoch");
    assert_eq!(
        want.len(),
        183 + 3,
        "61 steps of 8 of 490 rows, three times"
    );
    assert!(found[2] > 0.9, "{found:?} of three classes");

    // the checkpoint answers the same questions alike, in lm-evaluation-harness's form
    let records = dir.path().join("records.jsonl");
    let eval = [
        "eval",
        path,
        "--task",
        "mnli",
        "--data",
        dev,
        "--json",
        "--records",
    ];
    let eval = succeed(&[&eval[..], &[records.to_str().unwrap()]].concat());
    let eval: Value = serde_json::from_slice(&eval.stdout).unwrap();
    let result = &eval["results"]["mnli"];
    assert_eq!(result["acc,none"].as_f64().unwrap(), found[2]);
    let (p, n) = (found[2], 90.0);
    let error = result["acc_stderr,none"].as_f64().unwrap();
    assert!(
        (error - (p * (1.0 - p) / (n - 1.0)).sqrt()).abs() < 1e-12,
        "{result}"
    );
    assert_eq!(
        eval["n-samples"]["mnli"],
        json!({"original": 90, "effective": 90})
    );
    let lines = std::fs::read_to_string(&records).unwrap();
    assert_eq!(lines.lines().count(), 90);
    let first: Value = serde_json::from_str(lines.lines().next().unwrap()).unwrap();
    assert_eq!(first["scores"].as_array().unwrap().len(), 3, "{first}");

    let other = dir.path().join("other");
    let out = format!("out={other:?}");
    succeed(&["train", path, "--set", &out, "--set", "parallel.dp=2"]);
    assert_eq!(metrics(&other), want, "dp 2");

    let killed = dir.path().join("killed");
    let out = format!("out={killed:?}");
    let args = ["train", path, "--set", &out];
    for lines in [30, 60, 140] {
        killed_at(&args, &killed, lines);
    }
    succeed(&args);
    assert_eq!(metrics(&killed), want, "after three kills");
    for file in ["model.safetensors", "optimizer.safetensors"] {
        let of = |out: &str| {
            let path = dir
                .path()
                .join(out)
                .join("checkpoints/step-00000183")
                .join(file);
            std::fs::read(path).unwrap()
        };
        assert!(
            of("killed") == of("out") && of("other") == of("out"),
            "{file}"
        );
    }
}

/// RACE's raw files: the right answer is the one with a word of the article.
fn race(folder: &Path, articles: std::ops::Range<usize>) {
    std::fs::create_dir_all(folder.join("high")).unwrap();
    for article in articles {
        let question = |number: usize| {
            let right = (article * 3 + number) % 4;
            let option = |at: usize| if at == right { "surely" } else { "never" };
            let options: Vec<String> = (0..4)
                .map(|at| format!("{} {}", option(at), WORDS[at]))
                .collect();
            let text = if number == 0 {
                "what _ ?"
            } else {
                "who sees ?"
            };
            (text, options, ["A", "B", "C", "D"][right])
        };
        let all: Vec<_> = (0..2).map(question).collect();
        let json = json!({
            "answers": all.iter().map(|q| q.2).collect::<Vec<_>>(),
            "options": all.iter().map(|q| q.1.clone()).collect::<Vec<_>>(),
            "questions": all.iter().map(|q| q.0).collect::<Vec<_>>(),
            "article": format!("{}\n .\n{}", words(article, 5), words(article + 1, 4)),
            "id": format!("high{article}.txt"),
        });
        std::fs::write(folder.join(format!("high/{article}.txt")), json.to_string()).unwrap();
    }
}

#[test]
fn a_gpt_learns_race_from_its_raw_files_and_bad_rows_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let (train, dev) = (dir.path().join("train"), dir.path().join("dev"));
    race(&train, 0..100);
    race(&dev, 200..220);
    let text = format!(
        "name = 'race'\nout = {:?}\n[classify]\ntask = 'race'\ntrain = [{train:?}]\nvalid = [{dev:?}]\ntokenizer = {:?}\n\
         seq_length = 32\nepochs = 4\n[model]\nfamily = 'gpt'\nlayers = 2\nd_model = 32\nheads = 2\n\
         [train]\nglobal_batch = 32\nmicro_batch = 8\nlr = 3e-3\nmin_lr = 0.0\nschedule = 'linear'\n",
        dir.path().join("out"),
        tokenizer(dir.path()),
    );
    let path = dir.path().join("job.toml");
    std::fs::write(&path, text).unwrap();
    let (path, data) = (path.to_str().unwrap(), dev.to_str().unwrap());
    succeed(&["train", path]);
    let found = accuracies(&metrics(&dir.path().join("out")));
    assert_eq!(found.len(), 4);
    assert!(found[3] > 0.9, "{found:?} of four choices");
    // a copy of the tokenizer is beside the checkpoints
    let folder = dir.path().join("out/checkpoints");
    let eval = succeed(&[
        "eval",
        folder.to_str().unwrap(),
        "--task",
        "race",
        "--data",
        data,
        "--json",
    ]);
    let eval: Value = serde_json::from_slice(&eval.stdout).unwrap();
    assert_eq!(
        eval["results"]["race"]["acc,none"].as_f64().unwrap(),
        found[3]
    );
    assert_eq!(eval["n-samples"]["race"]["original"], 40);

    let wrong = output(&["eval", path, "--task", "mnli", "--data", data]);
    let text = String::from_utf8(wrong.stderr).unwrap();
    assert!(
        text.contains("1 classes and 4 choices") && text.contains("race 4 choices"),
        "{text}"
    );
    let wrong = output(&[
        "eval", path, "--task", "race", "--data", data, "--shots", "1",
    ]);
    let text = String::from_utf8(wrong.stderr).unwrap();
    assert!(
        text.contains("examples for a classification head"),
        "{text}"
    );

    let bad = std::fs::read_to_string(train.join("high/17.txt")).unwrap();
    let bad = bad
        .replacen("\"A\"", "\"X\"", 1)
        .replacen("\"B\"", "\"X\"", 1);
    let bad = bad
        .replacen("\"C\"", "\"X\"", 1)
        .replacen("\"D\"", "\"X\"", 1);
    std::fs::write(train.join("high/17.txt"), bad).unwrap();
    let out = format!("out={:?}", dir.path().join("bad"));
    let failed = output(&["train", path, "--set", &out]);
    assert_eq!(failed.status.code(), Some(1));
    let text = String::from_utf8(failed.stderr).unwrap();
    for part in [
        "high/17.txt",
        "problems[0].answer",
        "found \"X\"",
        "A, B, C or D",
    ] {
        assert!(text.contains(part), "{text} wants {part}");
    }
}

#[test]
fn jobs_that_contradict_a_classification_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let [path, _] = mnli_job(dir.path());
    let text = std::fs::read_to_string(&path).unwrap();
    let text = text
        .replace("epochs = 3", "warmup = 2.0")
        .replace("dropout = 0.1", "classify = { classes = 2 }")
        + "[eval]\n[generate]\n[blend]\nseq_length = 8\n";
    std::fs::write(&path, text).unwrap();
    let found = output(&["train", path.to_str().unwrap()]);
    assert_eq!(found.status.code(), Some(2));
    let text = String::from_utf8(found.stderr).unwrap();
    for key in [
        "classify.warmup",
        "model.classify",
        "eval",
        "generate",
        "blend",
    ] {
        assert!(text.contains(&format!("key    {key}\n")), "{key} in {text}");
    }
}
