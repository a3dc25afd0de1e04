//! Tests of checkpoint conversions in both directions, and of the files that a job keeps beside the last weights.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use crate::jobs::{metrics, millrace, output, succeed, word_tokenizer, write_small_job};
use serde_json::Value;

#[test]
fn averages_become_a_checkpoint_a_hugging_face_model_and_the_same_weights_again() {
    let dir = tempfile::tempdir().unwrap();
    let job = write_small_job(dir.path());
    let mut text = std::fs::read_to_string(&job).unwrap();
    text.push_str("\n[[blend.validation]]\nname = \"pile\"\n");
    std::fs::write(&job, text).unwrap();
    let job = job.display().to_string();
    let sets = ["train.ema_decay=0.9", "eval.use_ema=true"];
    succeed(&["run", &job, "--set", sets[0], "--set", sets[1]]);
    let lines = metrics(&dir.path().join("out"));
    let of_set = |name| lines.iter().filter(move |line| line["set"] == name).count();
    assert_eq!(of_set("pile"), 3, "after steps 4, 8 and 12");
    let own = lines.iter().filter(|line| line.get("valid_loss").is_some());
    assert_eq!(own.count(), 6, "the blend's own set as well");

    let path = |name: &str| dir.path().join(name).display().to_string();
    let last = path("out/checkpoints/step-00000012");
    let averages = path("averages");
    let to = ["--averages", "--to", "millrace"];
    succeed(&[
        "convert",
        "--checkpoint",
        &last,
        to[0],
        to[1],
        to[2],
        &averages,
    ]);
    succeed(&["convert", "--checkpoint", &averages, &path("hf")]);
    let (hf, back) = (path("hf"), path("back"));
    succeed(&["convert", "--checkpoint", &hf, "--to", "millrace", &back]);
    let read = |name: &str| std::fs::read(dir.path().join(name)).unwrap();
    let weights = read("averages/model.safetensors");
    assert!(weights == read("back/step-00000000/model.safetensors"));
    assert!(weights == read("out/checkpoints/step-00000012/ema.safetensors"));
    assert!(weights != read("out/checkpoints/step-00000012/model.safetensors"));
}

#[test]
fn shards_are_split_and_joined_and_weights_start_another_job() {
    let dir = tempfile::tempdir().unwrap();
    let job = write_small_job(dir.path()).display().to_string();
    let mut args = vec!["run", job.as_str()];
    for set in [
        "train.checkpoint.sharded=true",
        "parallel.tp=2",
        "train.ema_decay=0.9",
        "eval.use_ema=true",
    ] {
        args.extend(["--set", set]);
    }
    succeed(&args);
    let path = |name: &str| dir.path().join(name).display().to_string();
    let last = path("out/checkpoints/step-00000012");
    let convert = |from: &str, more: &[&str], to: &str| {
        let args = ["convert", "--checkpoint", from, "--to", "millrace"];
        succeed(&[&args, more, &[to]].concat());
    };
    convert(&last, &["--state"], &path("whole"));
    convert(&path("whole"), &["--state", "--tp", "2"], &path("split"));
    let read = |name: &str| std::fs::read(dir.path().join(name)).unwrap();
    for file in ["model", "optimizer", "ema"] {
        for rank in ["00000", "00001"] {
            let name = format!("{file}.rank-{rank}.safetensors");
            let of = format!("out/checkpoints/step-00000012/{name}");
            assert!(read(&of) == read(&format!("split/{name}")), "{name}");
        }
    }
    let shards = ["--max-shard-size", "100KB"];
    succeed(&[
        "convert",
        "--checkpoint",
        &last,
        shards[0],
        shards[1],
        &path("hf"),
    ]);
    assert!(dir.path().join("hf/model.safetensors.index.json").exists());
    convert(&path("hf"), &[], &path("back"));
    assert!(read("back/step-00000000/model.safetensors") == read("whole/model.safetensors"));

    let megatron = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../train/tests/oracles/megatron_dist_gpt_tp2"
    );
    convert(megatron, &[], &path("megatron"));
    let printed = output(&["convert", "--checkpoint", megatron, &path("no")]);
    let stderr = String::from_utf8(printed.stderr).unwrap();
    assert!(
        stderr.contains("`--to millrace` makes a checkpoint of it"),
        "{stderr}"
    );
    let of_megatron = succeed(&["inspect", "--json", &path("megatron/step-00000000")]);
    let about: serde_json::Value = serde_json::from_slice(&of_megatron.stdout).unwrap();
    assert_eq!(about["plan"]["vocab"], 61);

    // a second job from these weights, in any form
    let from = |source: &str, out: &str, more: &str| {
        let init = format!("train.init_from={:?}", path(source));
        let out = format!("out={:?}", path(out));
        let sets = ["--set", init.as_str(), "--set", out.as_str(), "--set", more];
        output(&[&["run", job.as_str()], &sets[..]].concat())
    };
    let said = from("whole", "second", "train.steps=3");
    let stderr = String::from_utf8(said.stderr).unwrap();
    assert!(said.status.success(), "{stderr}");
    assert!(
        stderr.contains("train: starts from the weights of "),
        "{stderr}"
    );
    assert!(from("hf", "third", "train.steps=3").status.success());
    let model = |out: &str| {
        read(&format!(
            "{out}/checkpoints/step-00000003/model.safetensors"
        ))
    };
    assert!(model("second") == model("third"));
    let printed = from("whole", "second", "model.layers=3");
    let stderr = String::from_utf8(printed.stderr).unwrap();
    assert_eq!(printed.status.code(), Some(1), "{stderr}");
    let init = format!("train.init_from={:?}", path("whole"));
    let sets = [
        "--check",
        "--set",
        &init,
        "--set",
        "model.layers=3",
        "--set",
        "model.heads=2",
    ];
    let printed = output(&[&["train", job.as_str()], &sets[..]].concat());
    let stderr = String::from_utf8(printed.stderr).unwrap();
    assert_eq!(printed.status.code(), Some(2), "{stderr}");
    assert!(stderr.contains("train.init_from"), "{stderr}");
    for key in ["model.layers: found ", "model.heads: found "] {
        assert!(stderr.contains(key), "{stderr}");
    }
}

/// `[model]` comes from the weights where a job has no `[model]` table, and rows of the embedding beyond the
/// tokenizer's ids stay.
#[test]
fn a_job_without_a_model_takes_that_of_its_first_weights_and_their_larger_vocabulary() {
    let dir = tempfile::tempdir().unwrap();
    let job = write_small_job(dir.path());
    let path = |name: &str| dir.path().join(name).display().to_string();
    let steps = "train.steps=3";
    succeed(&["run", job.to_str().unwrap(), "--set", steps]);
    let text = std::fs::read_to_string(&job).unwrap();
    let (start, rest) = text.split_once("[model]").unwrap();
    let (_, end) = rest.split_once("[train]").unwrap();
    let without = dir.path().join("without.toml");
    std::fs::write(&without, format!("{start}[train]{end}")).unwrap();
    let first = path("out/checkpoints/step-00000003");
    let init = format!("train.init_from={first:?}");
    let out = format!("out={:?}", path("second"));
    let smaller = "tokenize.tokenizer.train.vocab=480";
    let args = |verb: &'static str| {
        let job = without.to_str().unwrap().to_string();
        let sets = [init.clone(), out.clone(), smaller.into(), steps.into()];
        let sets = sets.into_iter().flat_map(|set| ["--set".to_string(), set]);
        [verb.to_string(), job]
            .into_iter()
            .chain(sets)
            .collect::<Vec<String>>()
    };
    let run = || {
        let args = args("run");
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        succeed(&args)
    };
    run();
    let resolved = std::fs::read_to_string(dir.path().join("second/job.toml")).unwrap();
    let resolved: toml::Table = resolved.parse().unwrap();
    assert_eq!(resolved["model"]["d_model"].as_integer(), Some(32));
    let about = succeed(&[
        "inspect",
        "--json",
        &path("second/checkpoints/step-00000003"),
    ]);
    let about: serde_json::Value = serde_json::from_slice(&about.stdout).unwrap();
    assert_eq!(about["plan"]["vocab"], 512);
    // once the source is gone, the run's own checkpoints provide the model
    std::fs::rename(path("out"), path("moved")).unwrap();
    run();
    // without a source there is no model to use
    let printed = output(&[
        "run",
        without.to_str().unwrap(),
        "--set",
        &format!("out={:?}", path("third")),
    ]);
    let stderr = String::from_utf8(printed.stderr).unwrap();
    assert_eq!(printed.status.code(), Some(2), "{stderr}");
    assert!(stderr.contains("[train] without [model]"), "{stderr}");
}

/// From a checkpoint and from a Hugging Face folder of it, and back with the same bits; Megatron-LM's files beside each other.
#[test]
fn a_model_goes_out_to_megatron_and_comes_back_and_kills_leave_nothing_half() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).display().to_string();
    let golden = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../train/tests/oracles/megatron_dist_gpt_tp2"
    );
    let convert = |from: &str, to: &str, more: &[&str], out: &str| {
        let args = ["convert", "--checkpoint", from, "--to", to];
        succeed(&[&args, more, &[out]].concat())
    };
    convert(golden, "millrace", &[], &path("first"));
    let first = path("first/step-00000000");
    convert(&first, "hf", &[], &path("hf"));
    let said = convert(&first, "megatron", &[], &path("calm"));
    let said = String::from_utf8(said.stderr).unwrap();
    assert!(said.contains(&format!("wrote {}", path("calm"))), "{said}");
    convert(&path("hf"), "megatron", &["--dtype", "f32"], &path("of_hf"));
    convert(&first, "megatron", &["--dtype", "bf16"], &path("half"));
    let read = |name: &str| std::fs::read(dir.path().join(name)).unwrap();
    let files = [
        "latest_checkpointed_iteration.txt",
        "release/.metadata",
        "release/__0_0.distcp",
        "release/common.pt",
        "release/metadata.json",
    ];
    let of = |folder: &str| files.map(|file| read(&format!("{folder}/{file}")));
    let calm = of("calm");
    assert!(calm == of("of_hf"));
    assert!(calm[2].len() > of("half")[2].len());
    for folder in ["calm", "of_hf"] {
        let back = format!("{folder}_back");
        convert(&path(folder), "millrace", &[], &path(&back));
        let weights = read(&format!("{back}/step-00000000/model.safetensors"));
        assert!(weights == read("first/step-00000000/model.safetensors"));
    }

    let out = path("killed");
    let is_whole = || train::checkpoint::is_megatron(Path::new(&out));
    // whether it was killed before its end
    let is_cut = |delay: u64| {
        let args = ["convert", "--checkpoint", &first, "--to", "megatron", &out];
        let mut child = millrace(&args).stderr(Stdio::null()).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(2 * delay));
        let _ = child.kill();
        child.wait().unwrap();
        assert!(!is_whole() || of("killed") == calm, "{delay}");
        !is_whole()
    };
    let are_cut = (0..10).any(|_| {
        let _ = std::fs::remove_dir_all(&out);
        (0..24).take_while(|delay| is_cut(*delay)).count() > 0
    });
    assert!(are_cut, "it always ended before its kill");
    // what a kill leaves is replaced, as before the last name was given; a whole checkpoint is not
    let tracker = Path::new(&out).join(files[0]);
    if is_whole() {
        std::fs::remove_file(&tracker).unwrap();
    }
    convert(&first, "megatron", &[], &out);
    assert!(of("killed") == calm);
    let names = std::fs::read_dir(&out).unwrap();
    assert_eq!(names.count(), 2, "no leftovers");

    for (args, told) in [
        (
            &["--to", "hf", "--dtype", "bf16"][..],
            "--dtype: wants --to megatron",
        ),
        (
            &["--to", "megatron", "--tp", "2"],
            "--tp and --pp: wants a checkpoint and --to millrace",
        ),
        (
            &["--to", "megatron", "--state"],
            "--state: wants a checkpoint and --to millrace",
        ),
    ] {
        let said = output(&[&["convert", "--checkpoint", &first], args, &[&path("no")]].concat());
        let said = String::from_utf8(said.stderr).unwrap();
        assert!(said.contains(told), "{said}");
    }
    let said = output(&[
        "convert",
        "--checkpoint",
        golden,
        "--to",
        "megatron",
        &path("no"),
    ]);
    let said = String::from_utf8(said.stderr).unwrap();
    assert!(said.contains("is Megatron's already"), "{said}");
    assert!(!dir.path().join("no").exists());
}

fn read_json(path: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

/// Ids by token of a `tokenizer.json`.
fn vocabulary(folder: &Path) -> Value {
    let tokenizer = read_json(&folder.join("tokenizer.json"));
    let mut all = tokenizer["model"]["vocab"].clone();
    for token in tokenizer["added_tokens"].as_array().unwrap() {
        all[token["content"].as_str().unwrap()] = token["id"].clone();
    }
    all
}

/// Files beside the weights of a Hugging Face folder. tests/oracles/hugging_face_files.py opens such folders with transformers.
#[test]
fn folders_have_tokenizer_template_and_the_ids_that_end_texts_from_every_source() {
    let dir = tempfile::tempdir().unwrap();
    let job = write_small_job(dir.path()).display().to_string();
    succeed(&["run", &job, "--set", "train.steps=3"]);
    let path = |name: &str| dir.path().join(name).display().to_string();
    let checkpoints = path("out/checkpoints");
    succeed(&["convert", "--checkpoint", &checkpoints, &path("hf")]);
    let args = ["quantize", &checkpoints, "--type", "fp8", "--to", "hf"];
    succeed(&[&args[..], &[&path("fp8")]].concat());
    let ids = vocabulary(&dir.path().join("out/tokens"));
    let end = "<|endoftext|>";
    for folder in ["hf", "fp8"] {
        let folder = dir.path().join(folder);
        assert_eq!(vocabulary(&folder), ids);
        let config = read_json(&folder.join("tokenizer_config.json"));
        assert_eq!(config["eos_token"], end);
        assert_eq!(config["tokenizer_class"], "PreTrainedTokenizerFast");
        let generation = read_json(&folder.join("generation_config.json"));
        assert_eq!(generation["eos_token_id"], ids[end]);
        assert_eq!(
            generation["bos_token_id"], ids[end],
            "a text begins after another"
        );
        assert!(!folder.join("chat_template.jinja").exists());
    }
    // files that the source has are kept, and completed where transformers needs more
    let template = "{% for message in messages %}{{ message.content }}{% endfor %}";
    let tokens = dir.path().join("out/tokens");
    std::fs::write(tokens.join("chat_template.jinja"), template).unwrap();
    let config = r#"{"eos_token": {"content": "<|endoftext|>"}, "pad_token": "!", "model_max_length": 1000000000000000019884624838656}"#;
    std::fs::write(tokens.join("tokenizer_config.json"), config).unwrap();
    let generation = r#"{"eos_token_id": [7, 9], "temperature": 0.25}"#;
    std::fs::write(tokens.join("generation_config.json"), generation).unwrap();
    succeed(&["convert", "--checkpoint", &checkpoints, &path("tuned")]);
    let args = [
        "quantize",
        &checkpoints,
        "--type",
        "int4",
        "--group-size",
        "8",
        "--to",
        "hf",
    ];
    succeed(&[&args[..], &[&path("int4")]].concat());
    // and from one folder to the next
    let args = ["quantize", &path("tuned"), "--type", "w8a8", "--to", "hf"];
    succeed(&[&args[..], &[&path("next")]].concat());
    for folder in ["tuned", "int4", "next"] {
        let folder = dir.path().join(folder);
        let read = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap();
        assert_eq!(vocabulary(&folder), ids);
        assert_eq!(read("chat_template.jinja"), template);
        assert_eq!(read("tokenizer_config.json"), config);
        let found: Value = serde_json::from_str(&read("generation_config.json")).unwrap();
        assert_eq!(found["eos_token_id"], serde_json::json!([7, 9]));
        assert_eq!(found["temperature"], 0.25);
        assert_eq!(found["pad_token_id"], ids["!"]);
        assert_eq!(found["bos_token_id"], ids[end]);
    }
    // one with more entries than the 512 rows of the embedding would have ids without a row
    let words: Vec<String> = (0..513).map(|n| format!("w{n}")).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let folder = dir.path().join("larger");
    std::fs::create_dir(&folder).unwrap();
    let larger = word_tokenizer(&folder, &["[UNK]"], &words);
    for (verb, more) in [
        (&["convert", "--checkpoint"][..], &[][..]),
        (&["convert", "--checkpoint"], &["--to", "millrace"]),
        (&["convert", "--checkpoint"], &["--to", "megatron"]),
        (&["quantize"], &["--type", "fp8", "--to", "hf"]),
    ] {
        let (tokenizer, out) = (larger.to_str().unwrap(), path("refused"));
        let args = [
            verb,
            &[&*checkpoints],
            more,
            &["--tokenizer", tokenizer, &*out],
        ]
        .concat();
        let found = output(&args);
        let text = String::from_utf8(found.stderr).unwrap();
        assert_eq!(found.status.code(), Some(2), "{args:?}: {text}");
        let wanted = format!(
            "{tokenizer}: found 514 entries, want at most the 512 rows of the model's embedding"
        );
        assert!(text.contains(&wanted), "{args:?}: {text}");
        assert!(!Path::new(&out).exists());
    }
    // a GGUF file has its own
    let tokenizer = path("out/tokens/tokenizer.json");
    let args = [
        "quantize",
        &checkpoints,
        "--type",
        "f32",
        "--tokenizer",
        &tokenizer,
    ];
    succeed(&[&args[..], &["--pre", "gpt-2", &path("model.gguf")]].concat());
    for (verb, out) in [("convert", "of_gguf"), ("quantize", "fp8_of_gguf")] {
        let (file, out) = (path("model.gguf"), path(out));
        let args = match verb {
            "convert" => vec![verb, "--checkpoint", &file, &out],
            _ => vec![verb, &file, "--type", "fp8", "--to", "hf", &out],
        };
        succeed(&args);
        let folder = Path::new(&out);
        assert_eq!(vocabulary(folder), ids);
        let found = read_json(&folder.join("generation_config.json"));
        assert_eq!(found["eos_token_id"], ids[end], "{verb}");
        let config = read_json(&folder.join("tokenizer_config.json"));
        assert_eq!(config["chat_template"], template, "{verb}");
    }
}
