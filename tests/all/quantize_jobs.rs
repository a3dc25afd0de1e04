//! `quantize`: the model of a job in few bits by the job's own data or a file's texts, with figures before and after.

use crate::jobs::{output, root, succeed, write_small_job};
use serde_json::Value;
use std::path::Path;

fn read_json(path: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

#[test]
fn a_job_is_quantized_by_its_own_data_and_measured_before_and_after() {
    let dir = tempfile::tempdir().unwrap();
    let job = write_small_job(dir.path()).display().to_string();
    succeed(&["run", &job, "--set", "train.steps=30"]);
    let path = |name: &str| dir.path().join(name).display().to_string();
    let (checkpoints, tokenizer) = (path("out/checkpoints"), path("out/tokens/tokenizer.json"));
    // held-out enough for a table: the texts are read, not learned from
    let texts = path("texts.jsonl");
    let rows = [
        "The quick brown fox jumps over the lazy dog. ".repeat(8),
        "Water boils at a lower temperature on a mountain. ".repeat(5),
    ];
    let lines = rows.map(|text| serde_json::json!({ "text": text }).to_string());
    std::fs::write(&texts, lines.join("\n")).unwrap();
    let quantize = |kind: &str, more: &[&str]| -> (Value, String) {
        let (out, report) = (path(kind), path(&format!("{kind}.json")));
        let common = [
            "quantize",
            &checkpoints,
            "--type",
            kind,
            "--tokenizer",
            &tokenizer,
            "--evaluate",
            &texts,
            "--report",
            &report,
        ];
        let done = succeed(&[&common, more, &[&out]].concat());
        let table = String::from_utf8(done.stdout).unwrap();
        (read_json(Path::new(&report)), table)
    };
    let in_folder = ["--to", "hf", "--group-size", "8"];
    let with = |data: &'static [&'static str]| [&in_folder[..], data].concat();
    let (nearest, table) = quantize("int4", &in_folder);
    let (by_job, _) = quantize("gptq", &[&in_folder[..], &["--calibrate", &job]].concat());
    let from_texts = ["--calibrate", &texts, "--calibrate-length", "16"];
    let (by_texts, _) = quantize("awq", &[&in_folder[..], &from_texts].concat());
    // ends of documents are no texts
    let (empty, nothing) = (path("empty.jsonl"), path("nothing"));
    std::fs::write(&empty, "{\"text\": \"\"}\n{\"text\": \"\"}\n").unwrap();
    let of_nothing = [
        "quantize",
        &checkpoints,
        "--type",
        "gptq",
        "--tokenizer",
        &tokenizer,
    ];
    let refused = output(
        &[
            &of_nothing,
            &in_folder[..],
            &["--calibrate", &empty, &nothing],
        ]
        .concat(),
    );
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(
        !refused.status.success() && said.contains("found no text"),
        "{said}"
    );
    assert!(!Path::new(&nothing).exists(), "{said}");
    let (blocks, _) = quantize("fp8-block", &with(&[]));
    let (file, _) = quantize("q8_0", &[]);
    for (name, report) in [
        ("int4", &nearest),
        ("gptq", &by_job),
        ("awq", &by_texts),
        ("fp8-block", &blocks),
        ("q8_0", &file),
    ] {
        let number = |at: &str| report.pointer(at).unwrap().as_f64().unwrap();
        let [before, after] = ["/before/bits_per_byte", "/after/bits_per_byte"].map(number);
        assert!(
            (after / before - 1.0).abs() < 0.2,
            "{name}: {before} and {after}"
        );
        assert_ne!(before, after, "{name}");
        assert_eq!(before, nearest["before"]["bits_per_byte"], "{name}");
        // perplexity is per token: both are one sum of log-likelihoods
        let bits = |side: &str| {
            number(&format!("/{side}/perplexity")).log2()
                / number(&format!("/{side}/bits_per_byte"))
        };
        assert!(
            (bits("before") / bits("after") - 1.0).abs() < 1e-9,
            "{name}"
        );
        assert!(
            number("/after/bytes") < 0.6 * number("/before/bytes"),
            "{name}"
        );
    }
    for row in ["before", "bits per byte", "perplexity", "size, MB"] {
        assert!(table.contains(row), "{table}");
    }
    tasks_are_scored_before_and_after(dir.path());
    for (report, calibrated) in [(&nearest, false), (&by_job, true), (&by_texts, true)] {
        let layers = report["layers"].as_array().unwrap();
        assert_eq!(layers.len(), if calibrated { 14 } else { 0 });
        let sum = |key: &str| {
            layers
                .iter()
                .map(|layer| layer[key].as_f64().unwrap())
                .sum::<f64>()
        };
        assert!(!calibrated || sum("error") < sum("nearest"), "{report:#}");
    }
    // the tokenizer went along, so the folder generates
    let said = succeed(&[
        "generate",
        &path("gptq"),
        "--prompt",
        "The",
        "--max-tokens",
        "4",
    ]);
    assert!(!said.stdout.is_empty());
}

/// `quantize --task` has the scores that `eval` has of both models.
fn tasks_are_scored_before_and_after(dir: &Path) {
    let path = |name: &str| dir.join(name).display().to_string();
    let (checkpoints, tokenizer) = (path("out/checkpoints"), path("out/tokens/tokenizer.json"));
    let data = root().join("tests/data/lm_eval/rows/piqa.validation.jsonl");
    let data = data.display().to_string();
    let (out, report) = (path("scored.gguf"), path("scored.json"));
    let of_task = ["--task", "piqa", "--data", &data, "--limit", "20"];
    let tokenizer = ["--tokenizer", &tokenizer];
    let to = ["--type", "q4_0", "--report", &report, &out];
    let done = succeed(&[&["quantize", &checkpoints][..], &tokenizer, &of_task, &to].concat());
    let table = String::from_utf8(done.stdout).unwrap();
    let report = read_json(Path::new(&report));
    for (side, model) in [("before", &checkpoints), ("after", &out)] {
        let args = [&["eval", model, "--json"][..], &tokenizer, &of_task].concat();
        let eval: Value = serde_json::from_slice(&succeed(&args).stdout).unwrap();
        let wanted = &eval["results"]["piqa"];
        assert!(wanted["acc,none"].is_f64(), "{wanted}");
        assert_eq!(&report[side]["tasks"]["piqa"], wanted, "{side}");
        let shown = format!("{:.4}", wanted["acc,none"].as_f64().unwrap());
        let line = table.lines().find(|line| line.starts_with("piqa acc "));
        assert!(line.unwrap().contains(&shown), "{table}");
    }
    assert!(!table.contains("perplexity"), "{table}");
}

#[test]
fn flags_that_contradict_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).display().to_string();
    let texts = path("texts.jsonl");
    std::fs::write(&texts, "{\"body\": \"no text\"}\n").unwrap();
    let refused = |args: &[&str], wanted: &str| {
        let done = output(&[&["quantize", "nowhere"], args].concat());
        let said = String::from_utf8_lossy(&done.stderr).into_owned();
        assert!(!done.status.success());
        assert!(said.contains(wanted), "{said} wants {wanted}");
    };
    let out = path("out");
    refused(&["--type", "gptq", &out], "want --to hf");
    refused(
        &["--type", "q4_0", "--to", "hf", &out],
        "fp8, fp8-block, w8a8, int4, gptq or awq",
    );
    refused(
        &["--type", "gptq", "--to", "hf", &out],
        "want --calibrate DATA",
    );
    let fp8 = ["--type", "fp8", "--to", "hf", "--calibrate", &texts, &out];
    refused(&fp8, "--calibrate: wants --type gptq, awq or w8a8");
    let task = |name| ["--type", "q4_0", "--task", name, &out];
    refused(&task("adjectives"), "it samples texts");
    refused(&task("piqqa"), "piqqa");
}
