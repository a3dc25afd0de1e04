//! Tests of `[finetune]` jobs: a small model learns the answers of conversations in every form, with the same bits in other
//! layouts and after a kill; bad rows and jobs are named.

use crate::jobs::{killed_at, metrics, output, succeed, write_small_job};
use crate::run_plan::planned;
use serde_json::{Value, json};
use std::fmt::Write;
use std::path::{Path, PathBuf};

pub(crate) const PAIRS: [[&str; 2]; 6] = [
    ["red", "apple"],
    ["old", "river"],
    ["seven", "stones"],
    ["light", "under trees"],
    ["who", "nobody"],
    ["never", "sometimes"],
];

/// Rows of conversations in the forms of OpenAI, ShareGPT, Alpaca, and prompts with completions.
fn conversations(path: &Path, rows: std::ops::Range<usize>) {
    let mut text = String::new();
    for row in rows {
        let [[asked, answer], [next, last]] = [PAIRS[row % 6], PAIRS[row * 5 % 6]];
        let line = match row % 4 {
            0 => {
                json!({"messages": [{"role": "user", "content": asked}, {"role": "assistant", "content": answer},
                {"role": "user", "content": next}, {"role": "assistant", "content": last}]})
            }
            1 => {
                json!({"conversations": [{"from": "human", "value": asked}, {"from": "gpt", "value": answer}]})
            }
            2 => json!({"instruction": asked, "input": "", "output": answer}),
            _ => json!({"prompt": [{"role": "user", "content": asked}],
                "completion": [{"role": "assistant", "content": answer}]}),
        };
        writeln!(text, "{line}").unwrap();
    }
    std::fs::write(path, text).unwrap();
}

/// A small trained model, and a job that fine-tunes it.
pub(crate) fn job(folder: &Path) -> PathBuf {
    let base = write_small_job(folder);
    succeed(&["run", base.to_str().unwrap()]);
    let checkpoints = folder.join("out/checkpoints");
    assert!(checkpoints.is_dir(), "the small job's folder");
    let (train, valid) = (folder.join("train.jsonl"), folder.join("valid.jsonl"));
    conversations(&train, 0..240);
    conversations(&valid, 1000..1012);
    let text = format!(
        "name = 'tuned'\nout = {:?}\n[finetune]\ntrain = [{train:?}]\nvalid = [{valid:?}]\nchat_template = 'plain'\n\
         seq_length = 96\nepochs = 12\nsamples = 3\n[train]\ninit_from = {checkpoints:?}\nglobal_batch = 4\nmicro_batch = 2\n\
         lr = 1e-2\nmin_lr = 0.0\ncheckpoint = {{ every = 20 }}\n\
         [generate]\nprompts = ['seven']\nmax_tokens = 24\ntemperature = 0.0\n[report]\n",
        folder.join("tuned")
    );
    let path = folder.join("job.toml");
    std::fs::write(&path, text).unwrap();
    path
}

pub(crate) fn losses(metrics: &[Value]) -> Vec<f64> {
    let found = metrics
        .iter()
        .filter_map(|line| line["valid_loss"].as_f64());
    found.collect()
}

#[test]
fn a_model_learns_the_answers_of_conversations_in_every_layout_and_after_kills() {
    let dir = tempfile::tempdir().unwrap();
    let path = job(dir.path());
    let path = path.to_str().unwrap();
    assert_eq!(planned(path), ["generate", "report", "train"]);
    let log = succeed(&["finetune", path]).stderr;
    assert_eq!(planned(path), ["report"]);
    let log = String::from_utf8(log).unwrap();
    assert!(log.contains("240 conversations of"), "{log}");
    let out = dir.path().join("tuned");
    let want = metrics(&out);
    let found = losses(&want);
    assert_eq!(found.len(), 12, "one of each epoch");
    assert!(found[11] < 0.1 && found[0] > 5.0 * found[11], "{found:?}");

    let text = std::fs::read_to_string(out.join("generated.json")).unwrap();
    let generated: Value = serde_json::from_str(&text).unwrap();
    let samples = generated["samples"].as_array().unwrap();
    assert_eq!(samples.len(), 4);
    for sample in &samples[..3] {
        let answer = sample["text"].as_str().unwrap().trim();
        assert_eq!(Some(answer), sample["answer_of_data"].as_str(), "{sample}");
    }
    assert_eq!(samples[3]["prompt"], "User: seven\nAssistant:");
    assert_eq!(samples[3]["text"].as_str().unwrap().trim(), "stones");
    let report = std::fs::read_to_string(out.join("report.html")).unwrap();
    assert!(report.contains("User: seven") && report.contains("the data&#39;s answer"));
    for file in [
        "tokenizer.json",
        "chat_template.jinja",
        "generation_config.json",
    ] {
        assert!(out.join("tokens").join(file).is_file(), "{file}");
    }
    assert_eq!(
        std::fs::read_to_string(out.join("finetune/left_out.jsonl")).unwrap(),
        ""
    );

    let last = |out: &Path| {
        let steps = found_steps(&want);
        let folder = out.join(format!("checkpoints/step-{steps:08}"));
        std::fs::read(folder.join("model.safetensors")).unwrap()
    };
    let other = dir.path().join("other");
    let set = format!("out={other:?}");
    let layout = [
        "--set",
        "parallel.dp=2",
        "--set",
        "parallel.tp=2",
        "--set",
        "train.micro_batch=1",
    ];
    succeed(&[&["train", path, "--set", &set][..], &layout].concat());
    assert_eq!(metrics(&other), want, "dp 2, tp 2");
    assert!(last(&other) == last(&out), "dp 2, tp 2");

    let killed = dir.path().join("killed");
    let set = format!("out={killed:?}");
    let args = ["train", path, "--set", &set];
    for lines in [15, 50] {
        killed_at(&args, &killed, lines);
    }
    succeed(&args);
    assert_eq!(metrics(&killed), want, "after two kills");
    assert!(last(&killed) == last(&out), "after two kills");
}

/// Last step of a training.
pub(crate) fn found_steps(metrics: &[Value]) -> u64 {
    let steps = metrics.iter().filter_map(|line| line["step"].as_u64());
    steps.max().unwrap()
}

#[test]
fn adapters_are_trained_alone_merged_and_handed_to_peft() {
    let dir = tempfile::tempdir().unwrap();
    let path = job(dir.path());
    let path = path.to_str().unwrap();
    let lora = [
        "--set",
        "finetune.method=\"lora\"",
        "--set",
        "finetune.lora.rank=8",
        "--set",
        "finetune.lora.alpha=32",
    ];
    let log = succeed(&[&["finetune", path][..], &lora].concat()).stderr;
    let log = String::from_utf8(log).unwrap();
    assert!(log.contains("parameters of adapters are trained"), "{log}");
    let out = dir.path().join("tuned");
    let want = metrics(&out);
    let found = losses(&want);
    // the frozen model has learned little, its embedding least
    assert!(found[11] < 0.95 * found[0], "{found:?}");
    let other = dir.path().join("other");
    let set = format!("out={other:?}");
    let layout = [
        "--set",
        "parallel.dp=2",
        "--set",
        "parallel.zero=2",
        "--set",
        "train.micro_batch=1",
    ];
    succeed(&[&["train", path, "--set", &set][..], &lora, &layout].concat());
    assert_eq!(metrics(&other), want, "dp 2, zero 2");

    // the adapters beside their base are the merged model
    let last = out.join(format!("checkpoints/step-{:08}", found_steps(&want)));
    let folder = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let [base, peft, merged, again] = ["base", "peft", "merged", "again"].map(folder);
    let of_base = dir.path().join("out/checkpoints/step-00000012");
    let [last, of_base] = [&last, &of_base].map(|path| path.to_str().unwrap());
    succeed(&["convert", "--checkpoint", of_base, &base]);
    succeed(&["convert", "--checkpoint", last, &merged]);
    succeed(&["convert", "--checkpoint", last, "--to", "peft", &peft]);
    let config = Path::new(&peft).join("adapter_config.json");
    let mut adapter: Value = serde_json::from_slice(&std::fs::read(&config).unwrap()).unwrap();
    assert_eq!(adapter["r"], 8);
    adapter["base_model_name_or_path"] = json!(base);
    std::fs::write(&config, adapter.to_string()).unwrap();
    succeed(&["convert", "--checkpoint", &peft, "--to", "hf", &again]);
    let weights =
        |folder: &str| std::fs::read(Path::new(folder).join("model.safetensors")).unwrap();
    assert!(weights(&merged) == weights(&again) && weights(&merged) != weights(&base));
    // the tokenizer is found beside the base
    let tokenizer = out.join("tokens/tokenizer.json");
    std::fs::copy(tokenizer, Path::new(&base).join("tokenizer.json")).unwrap();
    let text = |model: &str| {
        let args = [
            "generate",
            model,
            "--prompt",
            "User: red\nAssistant:",
            "--temperature",
            "0",
        ];
        let more = [
            "--tokenizer",
            &format!("{base}/tokenizer.json"),
            "--max-tokens",
            "8",
        ];
        let args = match model == peft {
            true => args.to_vec(),
            false => [&args[..], &more[..2]].concat(),
        };
        succeed(&[&args[..], &more[2..]].concat()).stdout
    };
    assert_eq!(text(&peft), text(&merged));
    let failed = output(&["train", path, "--set", &format!("train.init_from={last:?}")]);
    assert_eq!(failed.status.code(), Some(2));
    let text = String::from_utf8(failed.stderr).unwrap();
    assert!(text.contains("key    finetune.method\n"), "{text}");
}

#[test]
fn rows_that_are_no_conversations_or_too_long_are_refused_or_left_out_and_named() {
    let dir = tempfile::tempdir().unwrap();
    let path = job(dir.path());
    let train = dir.path().join("train.jsonl");
    let mut text = std::fs::read_to_string(&train).unwrap();
    let long = "seven red stones under old trees ".repeat(40);
    for line in [
        json!({"messages": [{"role": "user", "content": "red"}, {"role": "assistant", "content": ""}]}).to_string(),
        json!({"text": "no conversation"}).to_string(),
        "{\"messages\": [".to_owned(),
        json!({"instruction": "red", "output": long}).to_string(),
    ] {
        text += &(line + "\n");
    }
    std::fs::write(&train, text).unwrap();
    let path = path.to_str().unwrap();
    let failed = output(&["finetune", path]);
    assert_eq!(failed.status.code(), Some(1));
    let text = String::from_utf8(failed.stderr).unwrap();
    for part in [
        "train.jsonl: 3 rows are no conversations",
        "row 241: message 1: an empty answer",
        "row 242: found the columns text",
        "row 243: ",
        "finetune.bad_rows = \"drop\" leaves them out",
    ] {
        assert!(text.contains(part), "{text} wants {part}");
    }
    // a template that is missing is one error, not one for each row
    let without = ["finetune", path, "--set", "finetune.chat_template=\"\""];
    let failed = output(&without);
    let text = String::from_utf8(failed.stderr).unwrap();
    assert!(
        text.contains("finetune.chat_template: found none") && text.contains("train.jsonl, row 1"),
        "{text}"
    );
    assert!(!text.contains("bad_rows"), "{text}");
    let drop = [
        "--set",
        "finetune.bad_rows=\"drop\"",
        "--set",
        "finetune.epochs=1",
    ];
    let log = succeed(&[&["train", path][..], &drop].concat()).stderr;
    let log = String::from_utf8(log).unwrap();
    assert!(
        log.contains("3 rows are no conversations and left out"),
        "{log}"
    );
    assert!(log.contains("1 rows are too long and left out"), "{log}");
    let lines = std::fs::read_to_string(dir.path().join("tuned/finetune/left_out.jsonl")).unwrap();
    let rows: Vec<Value> = lines
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let numbers: Vec<u64> = rows
        .iter()
        .map(|row| row["row"].as_u64().unwrap())
        .collect();
    assert_eq!(numbers, [241, 242, 243, 244]);
    assert!(
        rows[3]["reason"]
            .as_str()
            .unwrap()
            .contains("tokens, want at most 97"),
        "{rows:?}"
    );
    let refuse = ["--set", "finetune.too_long=\"refuse\""];
    let failed = output(&[&["train", path][..], &drop, &refuse].concat());
    let text = String::from_utf8(failed.stderr).unwrap();
    assert!(
        text.contains("1 rows are too long") && text.contains("row 244"),
        "{text}"
    );
    let out = format!("out={:?}", dir.path().join("cut"));
    let cut = ["--set", "finetune.too_long=\"truncate\"", "--set", &out];
    let log = succeed(&[&["train", path][..], &drop, &cut].concat()).stderr;
    let log = String::from_utf8(log).unwrap();
    assert!(log.contains("241 conversations of"), "{log}");
}

/// The keys that epochs make are refused beside them; a resolved job has their defaults, and loads.
#[test]
fn steps_and_warm_up_beside_epochs_are_refused_by_both_names() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("job.toml");
    for (table, epochs, warmup) in [("finetune", 3, "0.03"), ("classify", 5, "0.065")] {
        let text = format!(
            "name = 'wrong'\nout = 'out'\n[{table}]\n[train]\nsteps = 500\nwarmup_steps = 7\n[model]\n"
        );
        std::fs::write(&path, text).unwrap();
        let check = |sets: &[&str]| {
            let mut args = vec!["train", path.to_str().unwrap(), "--check"];
            sets.iter().for_each(|set| args.extend(["--set", set]));
            let found = output(&args);
            assert_eq!(found.status.code(), Some(2));
            String::from_utf8(found.stderr).unwrap()
        };
        let said = check(&[]);
        for (key, found, instead) in [
            ("steps", "500", format!("{table}.epochs = {epochs}")),
            ("warmup_steps", "7", format!("{table}.warmup = {warmup}")),
        ] {
            let line = format!("key    train.{key}\n  found  {found} beside {instead}\n");
            assert!(said.contains(&line), "{line} in {said}");
        }
        let said = check(&["train.steps=1000", "train.warmup_steps=100"]);
        assert!(
            !said.contains("train.steps") && !said.contains("train.warmup_steps"),
            "{said}"
        );
    }
}

#[test]
fn jobs_that_contradict_a_fine_tuning_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let text = "name = 'wrong'\nout = 'out'\n[finetune]\nepochs = 0\nwarmup = 2.0\nseq_length = 1\n\
                [model]\nfamily = 'bert'\n[train]\n[eval]\n[blend]\nseq_length = 8\n";
    let path = dir.path().join("job.toml");
    std::fs::write(&path, text).unwrap();
    let found = output(&["finetune", path.to_str().unwrap()]);
    assert_eq!(found.status.code(), Some(2));
    let text = String::from_utf8(found.stderr).unwrap();
    for key in [
        "finetune.train",
        "finetune.epochs",
        "finetune.warmup",
        "finetune.seq_length",
        "finetune",
        "train.init_from",
        "eval",
        "blend",
    ] {
        assert!(text.contains(&format!("key    {key}\n")), "{key} in {text}");
    }
    let text = "name = 'none'\nout = 'out'\n[train]\n[model]\n[blend]\nseq_length = 8\n[[blend.dataset]]\nprefix = 'a'\n";
    std::fs::write(&path, text).unwrap();
    let found = output(&["finetune", path.to_str().unwrap()]);
    assert_eq!(found.status.code(), Some(2));
    let text = String::from_utf8(found.stderr).unwrap();
    assert!(text.contains("key    finetune\n"), "{text}");
}
