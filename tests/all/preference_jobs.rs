//! Tests of `[finetune] method = "dpo"`: a small model learns to prefer the chosen answers, with the same bits in other layouts
//! and after kills; rows that compare nothing and jobs that contradict themselves are named.

use crate::finetune_jobs::{PAIRS, job};
use crate::jobs::{killed_at, metrics, output, succeed};
use serde_json::{Value, json};
use std::fmt::Write;
use std::path::{Path, PathBuf};

/// Rows with a right and a wrong answer, in every form.
fn comparisons(path: &Path, rows: std::ops::Range<usize>) {
    let mut text = String::new();
    for row in rows {
        let [asked, chosen] = PAIRS[row % 6];
        // never the right answer
        let [_, rejected] = PAIRS[(row + 1 + row / 6 % 5) % 6];
        let said = |role: &str, content: &str| json!({"role": role, "content": content});
        let ask = said("user", asked);
        let [good, bad] = [chosen, rejected].map(|answer| said("assistant", answer));
        let line = match row % 4 {
            0 => json!({"chosen": [ask, good], "rejected": [ask, bad]}),
            1 => json!({"prompt": [ask], "chosen": [good], "rejected": [bad]}),
            2 => json!({"prompt": asked, "chosen": [good], "rejected": [bad]}),
            _ => json!({"question": asked, "chosen": chosen, "rejected": rejected}),
        };
        writeln!(text, "{line}").unwrap();
    }
    std::fs::write(path, text).unwrap();
}

/// A small trained model, and a job that teaches it preferences.
fn preferring(folder: &Path) -> PathBuf {
    let path = job(folder);
    comparisons(&folder.join("train.jsonl"), 0..120);
    comparisons(&folder.join("valid.jsonl"), 1000..1012);
    let text = std::fs::read_to_string(&path).unwrap();
    let text = text.replace(
        "epochs = 12",
        "epochs = 6\nmethod = 'dpo'\ndpo = { beta = 0.2 }",
    );
    std::fs::write(&path, text).unwrap();
    path
}

/// Bytes of the weights of the last checkpoint.
fn weights(out: &Path) -> Vec<u8> {
    let mut steps: Vec<PathBuf> = std::fs::read_dir(out.join("checkpoints"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.join("model.safetensors").is_file())
        .collect();
    steps.sort();
    std::fs::read(steps.last().unwrap().join("model.safetensors")).unwrap()
}

#[test]
fn a_model_learns_to_prefer_the_chosen_answers_in_every_layout_and_after_kills() {
    let dir = tempfile::tempdir().unwrap();
    let path = preferring(dir.path());
    let path = path.to_str().unwrap();
    let log = String::from_utf8(succeed(&["finetune", path]).stderr).unwrap();
    assert!(log.contains("finetune: 120 pairs of"), "{log}");
    assert!(
        log.contains("log-probabilities of the answers of 132 pairs, kept in reference.jsonl"),
        "{log}"
    );
    let out = dir.path().join("tuned");
    let want = metrics(&out);
    let valid: Vec<&Value> = (want.iter())
        .filter(|line| line["valid_loss"].is_number())
        .collect();
    assert_eq!(valid.len(), 6, "one of each epoch");
    let ln_2 = std::f64::consts::LN_2;
    assert!((want[0]["loss"].as_f64().unwrap() - ln_2).abs() < 1e-12);
    let last = valid[5];
    assert!(last["valid_loss"].as_f64().unwrap() < 0.3, "{last}");
    assert!(last["valid_accuracy"].as_f64().unwrap() > 0.9, "{last}");
    assert!(
        last["preference"]["margin"].as_f64().unwrap() > 1.0,
        "{last}"
    );

    let other = dir.path().join("other");
    let set = format!("out={other:?}");
    let layout = [
        "--set",
        "parallel.dp=2",
        "--set",
        "parallel.pp=2",
        "--set",
        "train.micro_batch=1",
    ];
    succeed(&[&["train", path, "--set", &set][..], &layout].concat());
    assert_eq!(metrics(&other), want, "dp 2, pp 2");
    assert!(weights(&other) == weights(&out), "dp 2, pp 2");
    let reference = |out: &Path| std::fs::read(out.join("reference.jsonl")).unwrap();
    assert!(reference(&other) == reference(&out));

    let killed = dir.path().join("killed");
    let set = format!("out={killed:?}");
    let args = ["train", path, "--set", &set];
    for lines in [5, 25] {
        killed_at(&args, &killed, lines);
    }
    let log = String::from_utf8(succeed(&args).stderr).unwrap();
    assert!(log.contains("the reference of 132 pairs is known"), "{log}");
    assert_eq!(metrics(&killed), want, "after two kills");
    assert!(weights(&killed) == weights(&out), "after two kills");
}

#[test]
fn adapters_learn_preferences_against_the_model_without_them() {
    let dir = tempfile::tempdir().unwrap();
    let path = preferring(dir.path());
    let path = path.to_str().unwrap();
    let lora = [
        "--set",
        "finetune.lora.rank=8",
        "--set",
        "finetune.lora.alpha=32",
        "--set",
        "finetune.epochs=8",
    ];
    let log = succeed(&[&["train", path][..], &lora].concat()).stderr;
    let log = String::from_utf8(log).unwrap();
    assert!(log.contains("parameters of adapters are trained"), "{log}");
    let found = metrics(&dir.path().join("tuned"));
    let ln_2 = std::f64::consts::LN_2;
    assert!((found[0]["loss"].as_f64().unwrap() - ln_2).abs() < 1e-12);
    let last = found.iter().rfind(|line| line["valid_loss"].is_number());
    // the frozen model has learned little, its embedding least
    let loss = last.unwrap()["valid_loss"].as_f64().unwrap();
    assert!(loss < 0.65, "{last:?}");
}

#[test]
fn rows_that_compare_nothing_and_jobs_that_contradict_themselves_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let path = preferring(dir.path());
    let path = path.to_str().unwrap();
    let train = dir.path().join("train.jsonl");
    let mut text = std::fs::read_to_string(&train).unwrap();
    let long = "seven red stones under old trees ".repeat(40);
    for line in [
        json!({"prompt": "red", "chosen": "apple", "rejected": "apple"}),
        json!({"prompt": "red", "completion": "apple"}),
        json!({"prompt": "red", "chosen": long, "rejected": "apple"}),
    ] {
        writeln!(text, "{line}").unwrap();
    }
    std::fs::write(&train, text).unwrap();
    let failed = output(&["train", path]);
    assert_eq!(failed.status.code(), Some(1));
    let text = String::from_utf8(failed.stderr).unwrap();
    for part in [
        "train.jsonl: 2 rows are no pairs",
        "row 121: chosen and rejected are the same",
        "row 122: found the columns prompt, completion, want chosen and rejected",
        "finetune.bad_rows = \"drop\" leaves them out",
    ] {
        assert!(text.contains(part), "{text} wants {part}");
    }
    let drop = [
        "--set",
        "finetune.bad_rows='drop'",
        "--set",
        "finetune.epochs=1",
    ];
    let log = succeed(&[&["train", path][..], &drop].concat()).stderr;
    let log = String::from_utf8(log).unwrap();
    assert!(log.contains("2 rows are no pairs and left out"), "{log}");
    assert!(log.contains("1 rows are too long and left out"), "{log}");

    let wrong = [
        "--set",
        "finetune.format='alpaca'",
        "--set",
        "finetune.answer_only_loss=false",
        "--set",
        "finetune.too_long='truncate'",
        "--set",
        "finetune.dpo={beta=0.0,label_smoothing=0.7}",
        "--set",
        "train.z_loss=0.1",
    ];
    let failed = output(&[&["train", path][..], &wrong].concat());
    assert_eq!(failed.status.code(), Some(2));
    let text = String::from_utf8(failed.stderr).unwrap();
    for key in [
        "finetune.format",
        "finetune.answer_only_loss",
        "finetune.too_long",
        "finetune.dpo.beta",
        "finetune.dpo.label_smoothing",
        "train.z_loss",
    ] {
        assert!(text.contains(&format!("key    {key}\n")), "{key} in {text}");
    }
    let full = ["--set", "finetune.method='full'"];
    let failed = output(&[&["train", path][..], &full].concat());
    let text = String::from_utf8(failed.stderr).unwrap();
    assert!(text.contains("key    finetune.dpo\n"), "{text}");
}
