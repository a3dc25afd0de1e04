//! Checkpoints whose own plan contradicts their tensors are refused.

use std::path::Path;

use serde_json::{Value, json};

use crate::Error;
use crate::checkpoint::newest_checkpoint;
use crate::checkpoint::read::Opened;
use crate::checkpoint::state;
use crate::config::Plan;
use crate::eval::inspect;
use crate::fixtures::{Log, samples_of, tiny_bert, tiny_gpt, tiny_llama, tiny_moe, tiny_t5};
use crate::infer::{GenerateOptions, generate};
use crate::tests::lora::adapted_everywhere;
use crate::trainer::run;

/// A checkpoint of `plan` after its first step.
fn checkpoint(mut plan: Plan, out: &Path) -> std::path::PathBuf {
    (plan.train.steps, plan.train.eval_every) = (1, 0);
    plan.train.warmup_steps = 0;
    run(&plan, &*samples_of(&plan), None, out, &Log::default()).unwrap();
    newest_checkpoint(&out.join("checkpoints"))
        .unwrap()
        .unwrap()
        .path
}

/// Puts a value into the plan, with all checksums right.
fn set(checkpoint: &Path, key: &str, value: Value) {
    let (mut state, digests) = state::read(checkpoint).unwrap();
    let mut plan = serde_json::to_value(&state.plan).unwrap();
    let (parent, name) = key.rsplit_once('.').unwrap_or(("", key));
    let parent = if parent.is_empty() {
        String::new()
    } else {
        format!("/{}", parent.replace('.', "/"))
    };
    plan.pointer_mut(&parent).unwrap()[name] = value;
    state.plan = serde_json::from_value(plan).unwrap();
    state::write(checkpoint, &state, &digests).unwrap();
}

#[test]
fn numbers_of_a_plan_that_its_tensors_cannot_hold_are_refused_by_key() {
    let huge = 1u64 << 40;
    let of_all = [
        "model.layers",
        "vocab",
        "model.d_model",
        "model.heads",
        "model.kv_heads",
        "model.head_dim",
        "model.d_ffn",
        "seq_length",
    ];
    for (plan, more) in [
        (tiny_gpt(), &[][..]),
        (tiny_llama(), &[]),
        (tiny_bert(), &[]),
        (
            tiny_moe(),
            &["model.moe.experts", "model.moe.d_ffn", "model.moe.top_k"],
        ),
        (adapted_everywhere(tiny_llama()), &["model.lora.rank"]),
        (
            tiny_t5(),
            &[
                "model.decoder_layers",
                "model.relative_buckets",
                "decoder_length",
            ],
        ),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let path = checkpoint(plan, folder.path());
        Opened::open(&path).unwrap();
        let good = std::fs::read(path.join("state.json")).unwrap();
        for key in of_all.iter().chain(more) {
            for value in [huge, u64::MAX] {
                set(&path, key, json!(value));
                match Opened::open(&path) {
                    Err(Error::Foreign { path, problems }) => {
                        assert!(path.ends_with("state.json"));
                        let wanted = format!("plan.{key}: found {value}, want at most ");
                        let is_named = problems.iter().any(|line| line.starts_with(&wanted));
                        assert!(is_named, "{wanted}\n{problems:?}");
                    }
                    Err(other) => panic!("{key}: {other}"),
                    Ok(_) => panic!("{key} = {value} is taken"),
                }
                std::fs::write(path.join("state.json"), &good).unwrap();
            }
        }
    }
}

#[test]
fn a_plan_of_other_shapes_is_refused_by_tensor_and_a_mixture_by_its_experts() {
    let folder = tempfile::tempdir().unwrap();
    let path = checkpoint(tiny_moe(), folder.path());
    let refused = |key: &str, value: Value| {
        let good = std::fs::read(path.join("state.json")).unwrap();
        set(&path, key, value);
        let error = Opened::open(&path).err().unwrap().to_string();
        std::fs::write(path.join("state.json"), good).unwrap();
        error
    };
    let error = refused("model.d_ffn", json!(tiny_moe().model.d_ffn() * 2));
    assert!(
        error.contains("fc1.weight: found [") && error.contains(" in the files, want ["),
        "{error}"
    );
    // as many experts as there may be, in fewer tensors
    let error = refused("model.moe.experts", json!(1024));
    assert!(
        error.contains("plan.model.moe.experts: found ")
            && error.contains(", the number of tensors in the files"),
        "{error}"
    );
    // fewer layers than there are tensors for
    let folder = tempfile::tempdir().unwrap();
    let path = checkpoint(tiny_llama(), folder.path());
    set(&path, "model.layers", json!(1));
    let error = Opened::open(&path).err().unwrap().to_string();
    assert!(error.contains("want no such tensor by the plan"), "{error}");
}

#[test]
fn sequences_of_2_to_the_31_and_ranks_of_2_to_the_40_take_no_memory() {
    let folder = tempfile::tempdir().unwrap();
    let path = checkpoint(tiny_llama(), folder.path());
    let options = GenerateOptions {
        max_tokens: 20,
        ..GenerateOptions::default()
    };
    set(&path, "seq_length", json!(1u64 << 31));
    set(&path, "parallel.pp", json!(1u64 << 40));
    set(&path, "train.recompute_layers", json!([1, 2]));
    let answer = generate(&path, &[1, 2, 3], &options, &mut |_| {}).unwrap();
    assert_eq!(answer.len(), 20);
    assert_eq!(inspect(&path).unwrap()["plan"]["seq_length"], 1u64 << 31);
}
