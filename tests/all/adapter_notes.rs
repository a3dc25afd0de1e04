//! Adapters that go on from earlier ones or stand beside a model with merged ones, and what fine-tuning, `convert` and `generate`
//! tell about models that do not do what was meant.

use crate::finetune_jobs::job;
use crate::jobs::{output, succeed, write_small_job};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// Fine-tunes with adapters from the weights at `init` into the folder `out`, for one epoch.
fn tune(job: &Path, init: &Path, out: &Path) {
    let (init, out) = (format!("train.init_from={init:?}"), format!("out={out:?}"));
    let mut args = vec!["train", job.to_str().unwrap()];
    for set in [
        &*init,
        &*out,
        "finetune.method=\"lora\"",
        "finetune.epochs=1",
    ] {
        args.extend(["--set", set]);
    }
    succeed(&args);
}

/// Converts, and returns the messages.
fn convert(from: &Path, to: &str, out: &Path) -> String {
    let [from, out] = [from, out].map(|path| path.to_str().unwrap());
    let done = succeed(&["convert", "--checkpoint", from, "--to", to, out]);
    String::from_utf8(done.stderr).unwrap()
}

fn named_base(adapter: &Path) -> PathBuf {
    let text = std::fs::read(adapter.join("adapter_config.json")).unwrap();
    let config: Value = serde_json::from_slice(&text).unwrap();
    PathBuf::from(config["base_model_name_or_path"].as_str().unwrap())
}

fn weights(folder: &Path) -> Vec<u8> {
    std::fs::read(folder.join("model.safetensors")).unwrap()
}

/// The numbers of a file of tensors in f32.
fn numbers(file: &[u8]) -> Vec<f32> {
    let header = u64::from_le_bytes(file[..8].try_into().unwrap());
    let data = file[8 + usize::try_from(header).unwrap()..].chunks_exact(4);
    data.map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap()))
        .collect()
}

fn apart(one: &[f32], other: &[f32]) -> f32 {
    assert_eq!(one.len(), other.len());
    let off = one.iter().zip(other).map(|(a, b)| (a - b).abs());
    off.fold(0.0, f32::max)
}

#[test]
fn adapters_name_the_model_that_they_stand_beside_and_convert_tells_how_others_open_it() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    let job = job(dir.path());
    let base = path("out/checkpoints");
    tune(&job, &base, &path("first"));
    tune(&job, &path("first/checkpoints"), &path("second"));
    let told = convert(&path("second"), "peft", &path("peft"));
    assert_eq!(named_base(&path("peft")), base);
    let wanted = format!(
        "names no Hugging Face folder; `millrace convert --checkpoint {} --to hf FOLDER`",
        base.display()
    );
    assert!(told.contains(&wanted), "{told}");
    // as the message says
    convert(&base, "hf", &path("hf"));
    let config = path("peft/adapter_config.json");
    let mut of_peft: Value = serde_json::from_slice(&std::fs::read(&config).unwrap()).unwrap();
    of_peft["base_model_name_or_path"] = json!(path("hf"));
    std::fs::write(&config, of_peft.to_string()).unwrap();
    convert(&path("peft"), "hf", &path("again"));
    convert(&path("second"), "hf", &path("merged"));
    assert!(weights(&path("again")) == weights(&path("merged")));
    assert!(weights(&path("again")) != weights(&path("hf")));
    // the adapter taken out of the merged model leaves the base's weights, but for two roundings
    let unmerge = |more: &[&str]| {
        let (merged, adapter, out) = (path("merged"), path("peft"), path("plain"));
        let [merged, adapter, out] = [&merged, &adapter, &out].map(|path| path.to_str().unwrap());
        let args = ["convert", "--checkpoint", merged, "--unmerge", adapter];
        output(&[&args[..], more, &[out]].concat())
    };
    let refused = unmerge(&["--to", "millrace"]);
    let text = String::from_utf8(refused.stderr).unwrap();
    assert_eq!(refused.status.code(), Some(2));
    assert!(text.contains("--unmerge: wants --to hf"), "{text}");
    let done = unmerge(&[]);
    let text = String::from_utf8(done.stderr).unwrap();
    assert!(done.status.success(), "{text}");
    assert!(
        text.contains("layers, whose weights are the base's but for the rounding of f32"),
        "{text}"
    );
    let [plain, merged, base] =
        ["plain", "merged", "hf"].map(|name| numbers(&weights(&path(name))));
    assert!(apart(&plain, &base) < 1e-6 && apart(&merged, &base) > 1e-4);

    // beside the merged model, which the adapter's folder is
    tune(&job, &path("peft"), &path("third"));
    let told = convert(&path("third"), "peft", &path("over"));
    assert_eq!(named_base(&path("over")), path("peft"));
    let wanted = format!(
        "names an adapter, which other programs take for no base; `millrace convert --checkpoint {} --to hf FOLDER`",
        path("peft").display()
    );
    assert!(told.contains(&wanted), "{told}");
    convert(&path("over"), "hf", &path("over_merged"));
    convert(&path("third"), "hf", &path("third_merged"));
    assert!(weights(&path("over_merged")) == weights(&path("third_merged")));
    assert!(weights(&path("over_merged")) != weights(&path("merged")));
    // the tokenizer is that of the whole model
    let over = path("over");
    let args = ["generate", over.to_str().unwrap(), "--prompt", "red"];
    succeed(&[&args[..], &["--max-tokens", "2"]].concat());
}

#[test]
fn trainings_that_cannot_learn_to_stop_or_to_change_anything_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let path = job(dir.path());
    let path = path.to_str().unwrap();
    let told = |more: &[&str]| {
        let out = format!("out={:?}", dir.path().join(format!("out{}", more.len())));
        let mut args = vec!["train", path, "--set", &out, "--set", "finetune.epochs=1"];
        more.iter().for_each(|set| args.extend(["--set", set]));
        String::from_utf8(succeed(&args).stderr).unwrap()
    };
    let (no_end, no_rate) = (
        "end with no token that ends a text",
        "learning rate of every step is 0",
    );
    let log = told(&[]);
    assert!(!log.contains(no_end) && !log.contains(no_rate), "{log}");
    let template = dir.path().join("endless.jinja");
    let text = "{% for m in messages %}{% if m.role == 'assistant' %}{{ 'Assistant:' }}{% generation %}{{ ' ' + m.content }}{% endgeneration %}{{ '\n' }}{% else %}{{ 'User: ' + m.content + '\n' }}{% endif %}{% endfor %}{% if add_generation_prompt %}{{ 'Assistant:' }}{% endif %}";
    std::fs::write(&template, text).unwrap();
    let log = told(&[&format!("finetune.chat_template={template:?}")]);
    assert!(
        log.contains(&format!("240 of 240 last answers {no_end}")),
        "{log}"
    );
    let valid = format!("finetune.train=[{:?}]", dir.path().join("valid.jsonl"));
    let one_step = [&*valid, "finetune.packing=false", "train.global_batch=12"];
    let log = told(&one_step);
    assert!(
        log.contains(no_rate) && log.contains("found 1 steps"),
        "{log}"
    );
    let log = told(&[&one_step[..], &["train.min_lr=1e-3"]].concat());
    assert!(!log.contains(no_rate), "{log}");
    // before it runs, where the steps are known
    let base = write_small_job(dir.path());
    let base = base.to_str().unwrap();
    let sets = ["train.steps=1", "train.warmup_steps=0", "train.min_lr=0.0"];
    let mut args = vec!["train", base, "--check"];
    sets.iter().for_each(|set| args.extend(["--set", set]));
    let log = String::from_utf8(succeed(&args).stderr).unwrap();
    assert!(log.contains(no_rate), "{log}");
    args.extend(["--set", "train.steps=2"]);
    let log = String::from_utf8(succeed(&args).stderr).unwrap();
    assert!(!log.contains(no_rate), "{log}");
}

#[test]
fn a_gguf_file_that_is_cut_short_is_named_as_such() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let base = write_small_job(dir.path());
    succeed(&["run", base.to_str().unwrap()]);
    let (checkpoints, tokenizer, whole) = (
        path("out/checkpoints"),
        path("out/tokens/tokenizer.json"),
        path("whole.gguf"),
    );
    let args = ["quantize", &checkpoints, "--type", "q4_k_m", &whole];
    let more = ["--tokenizer", &tokenizer, "--pre", "gpt-2"];
    let log = succeed(&[&args[..], &more].concat()).stderr;
    let log = String::from_utf8(log).unwrap();
    assert!(
        log.contains("quantize: note: ") && log.contains("not in Q4_K"),
        "{log}"
    );
    let bytes = std::fs::read(&whole).unwrap();
    for length in [bytes.len() / 2, bytes.len() - 1] {
        let cut = path("cut.gguf");
        std::fs::write(&cut, &bytes[..length]).unwrap();
        let failed = output(&["generate", &cut, "--prompt", "red"]);
        assert_eq!(failed.status.code(), Some(1));
        let text = String::from_utf8(failed.stderr).unwrap();
        let wanted = format!("error: {cut} at byte ");
        assert!(
            text.contains(&wanted) && !text.contains("tokenizer"),
            "{text}"
        );
    }
}
