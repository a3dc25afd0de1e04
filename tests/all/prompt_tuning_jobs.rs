//! Tests of `[finetune]` jobs with `method = "prompt"` and `"p-tuning"`: virtual tokens learn in front of packed conversations of a frozen model, with the
//! same bits in other layouts and after a kill, start from a text, and travel as PEFT's folders.

use crate::finetune_jobs::{found_steps, job, losses};
use crate::jobs::{killed_at, metrics, output, succeed};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// The tensors of a safetensors file by name, as bytes.
pub(crate) fn tensors(path: &Path) -> Vec<(String, Vec<u8>)> {
    let bytes = std::fs::read(path).unwrap();
    let (length, rest) = bytes.split_at(8);
    let length = usize::try_from(u64::from_le_bytes(length.try_into().unwrap())).unwrap();
    let header: Value = serde_json::from_slice(&rest[..length]).unwrap();
    let all = header.as_object().unwrap().iter();
    let named = all.filter(|(name, _)| *name != "__metadata__");
    let found = named.map(|(name, entry)| {
        let at = |i: usize| usize::try_from(entry["data_offsets"][i].as_u64().unwrap()).unwrap();
        let values = rest[length + at(0)..length + at(1)].to_vec();
        (name.clone(), values)
    });
    found.collect()
}

/// A job on a model that has learned the conversations of `finetune_jobs`, with others that all have one answer, and this model.
pub(crate) fn task(folder: &Path) -> [PathBuf; 2] {
    let path = job(folder);
    let taught = folder.join("taught");
    let set = format!("out={taught:?}");
    let args = ["--set", &set, "--set", "finetune.epochs=3"];
    succeed(&[&["train", path.to_str().unwrap()][..], &args].concat());
    let checkpoints = folder.join("taught/checkpoints");
    let mut text = std::fs::read_to_string(&path).unwrap();
    text = text.replace(
        &format!("init_from = {:?}", folder.join("out/checkpoints")),
        &format!("init_from = {checkpoints:?}"),
    );
    for (name, rows) in [("train", 120), ("valid", 12)] {
        let row = |row: usize| {
            let asked = ["red", "old", "seven", "light", "who", "never"][row % 6];
            let line = json!({"instruction": asked, "output": "under trees"});
            format!("{line}\n")
        };
        let lines: String = (0..rows).map(row).collect();
        std::fs::write(folder.join(format!("{name}.jsonl")), lines).unwrap();
    }
    std::fs::write(&path, text).unwrap();
    let mut folders: Vec<PathBuf> = std::fs::read_dir(&checkpoints)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.join("state.json").is_file())
        .collect();
    folders.sort();
    [path, folders.pop().unwrap()]
}

/// The newest checkpoint of a job.
pub(crate) fn newest(out: &Path) -> PathBuf {
    let steps = found_steps(&metrics(out));
    out.join(format!("checkpoints/step-{steps:08}"))
}

/// Checks that a job of `task`'s model learned, and nothing but virtual tokens; returns its newest checkpoint.
pub(crate) fn expect_tuned_alone(out: &Path, base: &Path) -> PathBuf {
    let found = losses(&metrics(out));
    assert_eq!(found.len(), 12, "one of each epoch");
    assert!(found[11] < 0.99 * found[0], "{found:?}");
    let last = newest(out);
    let tuned = tensors(&last.join("model.safetensors"));
    let of_base = tensors(&base.join("model.safetensors"));
    assert_eq!(tuned.len(), of_base.len() + 1);
    for (name, values) in &of_base {
        let same = tuned.iter().find(|(own, _)| own == name).unwrap();
        assert!(same.1 == *values, "{name}");
    }
    last
}

/// Trains again with a job and its settings, in other layouts and after a kill: metrics and model are those of `out`.
pub(crate) fn expect_the_same_elsewhere(job: &[&str], out: &Path, zero: &str) {
    let repeat = |name: &str, sets: &[&str], is_killed: bool| {
        let other = out.with_file_name(name);
        let set = format!("out={other:?}");
        let mut args = [&["train"], job, &["--set", &set]].concat();
        sets.iter().for_each(|set| args.extend(["--set", set]));
        if is_killed {
            killed_at(&args, &other, 30);
        }
        succeed(&args);
        assert_eq!(metrics(&other), metrics(out), "{name}");
        let [found, wanted] =
            [&other, out].map(|out| std::fs::read(newest(out).join("model.safetensors")).unwrap());
        assert!(found == wanted, "{name}");
    };
    let zero = format!("parallel.zero={zero}");
    repeat(
        "zero",
        &["parallel.dp=2", &zero, "train.micro_batch=1"],
        false,
    );
    let tensor = ["parallel.tp=2", "parallel.sequence=true", "parallel.cp=2"];
    repeat("tensor", &tensor, false);
    repeat("killed", &[], true);
}

#[test]
fn virtual_tokens_are_trained_alone_in_every_layout_and_handed_to_peft() {
    let dir = tempfile::tempdir().unwrap();
    let [path, base] = task(dir.path());
    let path = path.to_str().unwrap();
    let prompt = [
        "--set",
        "finetune.method=\"prompt\"",
        "--set",
        "finetune.prompt.virtual_tokens=7",
        "--set",
        "finetune.prompt.init_text=\"seven red stones\"",
        "--set",
        "train.lr=0.03",
    ];
    let log = succeed(&[&["finetune", path][..], &prompt].concat()).stderr;
    let log = String::from_utf8(log).unwrap();
    assert!(log.contains("parameters of adapters are trained"), "{log}");
    let out = dir.path().join("tuned");
    let last = expect_tuned_alone(&out, &base);
    expect_the_same_elsewhere(&[&[path][..], &prompt].concat(), &out, "2");

    // a folder of PEFT beside its base answers as the checkpoint does
    let [hf, peft] = ["hf", "peft"].map(|name| dir.path().join(name));
    let [hf, peft] = [&hf, &peft].map(|path| path.to_str().unwrap());
    let tuned = tensors(&last.join("model.safetensors"));
    let last = last.to_str().unwrap();
    succeed(&["convert", "--checkpoint", base.to_str().unwrap(), hf]);
    succeed(&["convert", "--checkpoint", last, "--to", "peft", peft]);
    let config = Path::new(peft).join("adapter_config.json");
    let mut adapter: Value = serde_json::from_slice(&std::fs::read(&config).unwrap()).unwrap();
    assert_eq!(adapter["peft_type"], "PROMPT_TUNING");
    assert_eq!(adapter["num_virtual_tokens"], 7);
    adapter["base_model_name_or_path"] = json!(hf);
    std::fs::write(&config, adapter.to_string()).unwrap();
    let rows = tensors(&Path::new(peft).join("adapter_model.safetensors"));
    let own = tuned.iter().find(|(name, _)| name == "prompt.weight");
    assert!(rows[0].0 == "prompt_embeddings" && rows[0].1 == own.unwrap().1);
    let tokenizer = out.join("tokens/tokenizer.json");
    std::fs::copy(&tokenizer, Path::new(hf).join("tokenizer.json")).unwrap();
    let text = |model: &str| {
        let tokenizer = tokenizer.to_str().unwrap();
        let args = ["generate", model, "--prompt", "User: red\nAssistant:"];
        let more = [
            "--temperature",
            "0",
            "--tokenizer",
            tokenizer,
            "--max-tokens",
            "8",
        ];
        succeed(&[&args[..], &more].concat()).stdout
    };
    assert_eq!(text(peft), text(last));
    assert_ne!(text(peft), text(hf), "the virtual tokens matter");

    // whole models have no place for them
    for args in [
        &["convert", "--checkpoint", last, "--to", "hf"][..],
        &["quantize", last, "--type", "q8_0", "--to", "gguf"],
    ] {
        let to = dir.path().join(format!("no-{}", args[0]));
        let failed = output(&[args, &[to.to_str().unwrap()]].concat());
        assert!(!failed.status.success());
        let text = String::from_utf8(failed.stderr).unwrap();
        assert!(text.contains("--to peft"), "{text}");
    }
    // a full fine-tuning of it would lose them, and their text is for new ones
    let init = format!("train.init_from={last:?}");
    let failed = output(&["train", path, "--set", &init]);
    assert_eq!(failed.status.code(), Some(2));
    let text = String::from_utf8(failed.stderr).unwrap();
    assert!(text.contains("key    finetune.method\n"), "{text}");
    let failed = output(&[&["train", path, "--set", &init][..], &prompt].concat());
    assert_eq!(failed.status.code(), Some(2));
    let text = String::from_utf8(failed.stderr).unwrap();
    assert!(
        text.contains("key    finetune.prompt.init_text\n"),
        "{text}"
    );
}

#[test]
fn an_encoder_learns_beside_frozen_weights_and_leaves_peft_its_rows() {
    let dir = tempfile::tempdir().unwrap();
    let [path, _] = task(dir.path());
    let path = path.to_str().unwrap();
    let out = dir.path().join("tuned");
    for encoder in ["mlp", "lstm"] {
        let set = format!("finetune.p_tuning.encoder={encoder:?}");
        let encoder = [
            "--set",
            "finetune.method=\"p-tuning\"",
            "--set",
            &set,
            "--set",
            "finetune.p_tuning.virtual_tokens=5",
            "--set",
            "finetune.p_tuning.hidden=24",
            "--set",
            "finetune.epochs=6",
        ];
        succeed(&[&["train", path][..], &encoder].concat());
        let want = metrics(&out);
        let found = losses(&want);
        assert!(found[5] < 0.995 * found[0], "{found:?}");
        let folder = |out: &Path| out.join(format!("checkpoints/step-{:08}", found_steps(&want)));
        let weights = |out: &Path| std::fs::read(folder(out).join("model.safetensors")).unwrap();
        let other = dir.path().join("other");
        let set = format!("out={other:?}");
        let layout = ["parallel.dp=2", "parallel.tp=2", "train.micro_batch=1"];
        let mut args = [&["train", path, "--set", &set][..], &encoder].concat();
        layout.iter().for_each(|word| args.extend(["--set", word]));
        succeed(&args);
        assert_eq!(metrics(&other), want, "dp 2, tp 2");
        assert!(weights(&other) == weights(&out), "dp 2, tp 2");
        let killed = dir.path().join("killed");
        let set = format!("out={killed:?}");
        let args = [&["train", path, "--set", &set][..], &encoder].concat();
        killed_at(&args, &killed, 22);
        succeed(&args);
        assert_eq!(metrics(&killed), want, "after a kill");
        assert!(weights(&killed) == weights(&out), "after a kill");

        let peft = dir.path().join("peft");
        let last = folder(&out);
        let (last, to) = (last.to_str().unwrap(), peft.to_str().unwrap());
        succeed(&["convert", "--checkpoint", last, "--to", "peft", to]);
        let config = std::fs::read(peft.join("adapter_config.json")).unwrap();
        let config: Value = serde_json::from_slice(&config).unwrap();
        assert_eq!(config["peft_type"], "P_TUNING");
        let rows = tensors(&peft.join("adapter_model.safetensors"));
        assert_eq!(rows.len(), 1);
        assert_eq!(rows[0].1.len(), 5 * 32 * 4);
        for folder in [&out, &other, &killed, &peft] {
            std::fs::remove_dir_all(folder).unwrap();
        }
    }
}

#[test]
fn tables_that_contradict_the_method_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = job(dir.path());
    let path = path.to_str().unwrap();
    let refused = |sets: &[&str], key: &str, wanted: &str| {
        let mut args = vec!["train", path];
        sets.iter().for_each(|set| args.extend(["--set", set]));
        let failed = output(&args);
        assert_eq!(failed.status.code(), Some(2), "{sets:?}");
        let text = String::from_utf8(failed.stderr).unwrap();
        assert!(text.contains(&format!("key    {key}\n")), "{key} in {text}");
        assert!(text.contains(wanted), "{wanted} in {text}");
    };
    refused(
        &["finetune.prompt.virtual_tokens=7"],
        "finetune.prompt",
        "a table with finetune.method = \"full\"",
    );
    refused(
        &["finetune.p_tuning.hidden=7"],
        "finetune.p_tuning",
        "none, or finetune.method = \"p-tuning\"",
    );
    refused(
        &["finetune.method=\"p-tuning\"", "finetune.p_tuning.layers=3"],
        "model.prompt.encoder.layers",
        "2: an mlp always has three linear layers",
    );
    let method = "finetune.method=\"prompt\"";
    refused(
        &[method, "finetune.prompt.virtual_tokens=0"],
        "model.prompt.virtual_tokens",
        "at least 1",
    );
    refused(
        &[method, "finetune.prompt.virtual_tokens=96"],
        "model.prompt.virtual_tokens",
        "fewer than seq_length = 96",
    );
    refused(
        &[method, "finetune.lora.rank=4"],
        "finetune.lora",
        "a table with finetune.method = \"prompt\"",
    );
}
