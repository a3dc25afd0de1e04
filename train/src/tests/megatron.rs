//! Checkpoints of megatron-core give its logits here, imported or as initial weights, from any tensor parallelism.
//! Goldens: tests/oracles/megatron_dist.py.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::Error;
use crate::checkpoint::{check_init, export_hf, import_hf, import_megatron, is_megatron};
use crate::config::{Biases, Determinism, Family, NormKind, Plan};
use crate::eval::logits;
use crate::fixtures::{Chain, Log, tiny_llama};
use crate::trainer::run;

const RECORD: &str = "megatron_dist.json";

pub(super) fn oracles() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/oracles")
}

pub(super) fn golden(name: &str) -> PathBuf {
    oracles().join(format!("megatron_dist_{name}"))
}

/// Differences to megatron-core's logits, which a record has by name, stay below those of two orders of additions.
pub(super) fn has_the_logits(checkpoint: &Path, record: &str, name: &str, vocab: usize) {
    let text = fs::read_to_string(oracles().join(record)).unwrap();
    let record: Value = serde_json::from_str(&text).unwrap();
    let tokens = record["tokens"].as_array().unwrap().iter();
    let tokens: Vec<u32> = tokens
        .map(|token| u32::try_from(token.as_u64().unwrap()).unwrap())
        .collect();
    let found = logits(checkpoint, &tokens).unwrap();
    let want = record["logits"][name].as_array().unwrap();
    assert_eq!(found.len(), want.len());
    let mut largest = 0.0f64;
    for (found, want) in found.iter().zip(want) {
        assert_eq!(found.len(), vocab);
        for (found, want) in found.iter().zip(want.as_array().unwrap()) {
            largest = largest.max((f64::from(*found) - want.as_f64().unwrap()).abs());
        }
    }
    println!("{name}: logits at most {largest:.2e} off");
    assert!(largest < 1e-5, "{name}: {largest}");
}

/// The model that the script wrote without args.
fn llama() -> Plan {
    let mut plan = tiny_llama();
    let model = &mut plan.model;
    (model.d_model, model.heads, model.kv_heads, model.d_ffn) = (16, 4, 2, 24);
    model.qk_norm = Some(true);
    plan.vocab = 64;
    plan
}

#[test]
fn a_gpt_by_its_args_gives_megatrons_logits_whatever_wrote_it() {
    let dir = tempfile::tempdir().unwrap();
    let [one, two] = ["gpt_tp1", "gpt_tp2"].map(|name| {
        assert!(is_megatron(&golden(name)));
        let out = dir.path().join(name);
        let checkpoint = import_megatron(&golden(name), &out).unwrap().checkpoint;
        has_the_logits(&checkpoint, RECORD, name, 61);
        fs::read(checkpoint.join("model.safetensors")).unwrap()
    });
    assert!(one == two, "the same weights from both");
    // and on to transformers' form and back
    let imported = dir.path().join("gpt_tp1/step-00000000");
    export_hf(&imported, &dir.path().join("hf")).unwrap();
    let back = import_hf(&dir.path().join("hf"), &dir.path().join("back"))
        .unwrap()
        .checkpoint;
    assert!(fs::read(back.join("model.safetensors")).unwrap() == one);
}

/// The folder above those of iterations, with a configuration beside the tensors.
#[test]
fn a_model_without_args_is_told_by_a_configuration_beside_it() {
    let dir = tempfile::tempdir().unwrap();
    let inside = dir.path().join("iter_0000012");
    fs::create_dir(&inside).unwrap();
    for entry in fs::read_dir(golden("llama_tp2")).unwrap() {
        let path = entry.unwrap().path();
        fs::copy(&path, inside.join(path.file_name().unwrap())).unwrap();
    }
    fs::write(dir.path().join("latest_checkpointed_iteration.txt"), "12\n").unwrap();
    let out = dir.path().join("out");
    let error = import_megatron(dir.path(), &out).unwrap_err().to_string();
    assert!(error.contains("common.pt: found no args"), "{error}");
    let config = json!({"model_type": "qwen3", "vocab_size": 64, "hidden_size": 16,
        "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4,
        "num_key_value_heads": 2, "head_dim": 4, "max_position_embeddings": 16,
        "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "hidden_act": "silu"});
    fs::write(inside.join("config.json"), config.to_string()).unwrap();
    let checkpoint = import_megatron(dir.path(), &out).unwrap().checkpoint;
    has_the_logits(&checkpoint, RECORD, "llama_tp2", 64);
    let mut wrong = config;
    (wrong["num_hidden_layers"], wrong["head_dim"]) = (json!(3), json!(8));
    fs::write(inside.join("config.json"), wrong.to_string()).unwrap();
    let Err(Error::Foreign { problems, .. }) = import_megatron(dir.path(), &out) else {
        panic!("three layers of two");
    };
    let told = problems.join("\n");
    for line in [
        "decoder.layers.2.self_attention.linear_qkv.weight: found [32, 16], want [64, 16]",
        "decoder.layers.mlp.linear_fc2.weight: found 2 layers, want 3",
        "decoder.layers.0.self_attention.q_layernorm.weight: found [4], want [8]",
    ] {
        assert!(told.contains(line), "{line} in {told}");
    }
}

#[test]
fn a_run_starts_from_megatrons_weights_by_the_jobs_own_model() {
    let dir = tempfile::tempdir().unwrap();
    let mut plan = llama();
    (plan.train.steps, plan.train.lr, plan.train.min_lr) = (1, 1e-30, 1e-30);
    (plan.train.warmup_steps, plan.determinism) = (0, Determinism::Run);
    plan.train.init_from = golden("llama_tp2").display().to_string();
    (plan.parallel.tp, plan.parallel.pp) = (2, 2);
    let samples = Chain::of(&plan);
    let done = run(&plan, &samples, None, dir.path(), &Log::default()).unwrap();
    // a step at this rate leaves them
    has_the_logits(&done.checkpoint, RECORD, "llama_tp2", 64);
    assert!(done.init.is_some());

    let mut other = llama();
    (other.model.family, other.model.qk_norm) = (Family::Gpt, None);
    (other.model.norm, other.model.bias) = (Some(NormKind::Rms), Some(Biases::None));
    let told = check_init(&golden("llama_tp2"), &other, true)
        .unwrap_err()
        .to_string();
    for line in [
        "embedding.position_embeddings.weight: found nothing, want [16, 16]",
        "decoder.layers.self_attention.q_layernorm.weight: found, want no such tensor",
        "output_layer.weight: found, want no such tensor",
        "decoder.layers.0.mlp.linear_fc1.weight: found [48, 16], want [24, 16]",
    ] {
        assert!(told.contains(line), "{line} in {told}");
    }
    // tensors that Megatron has not would start as zeros
    let mut more = llama();
    more.model.embedding_norm = Some(true);
    let told = check_init(&golden("llama_tp2"), &more, true)
        .unwrap_err()
        .to_string();
    assert!(
        told.contains("embedding.norm.weight: found no tensor of Megatron's"),
        "{told}"
    );
    // a checkpoint with args states its own model
    let told = check_init(&golden("gpt_tp1"), &llama(), true)
        .unwrap_err()
        .to_string();
    for line in [
        "model.norm: found \"layer\" there, want \"rms\"",
        "vocab: found 61 there, want 64",
    ] {
        assert!(told.contains(line), "{line} in {told}");
    }
}
