//! Falcon: parallel layers with one norm or two, and layers in turn. Folders of transformers' class, layouts, memory.
//! Goldens: tests/oracles/decoder_goldens.py.

use serde_json::json;

use crate::config::{Plan, RopeScaling};
use crate::fixtures::{tiny_falcon, tiny_gpt, tiny_llama};
use crate::tests::hugging_face::{follows, follows_transformers, refused_export, refused_import};
use crate::tests::layouts::{KINDS, assert_same_in};
use crate::tests::parity::Golden;

#[test]
fn falcon_with_one_norm_and_one_group_follows_transformers_through_ten_steps() {
    follows_transformers("falcon");
}

#[test]
fn falcon_with_two_norms_and_two_groups_follows_transformers_through_ten_steps() {
    follows_transformers("falcon_groups");
}

#[test]
fn falcon_with_layers_in_turn_follows_transformers_through_ten_steps() {
    follows_transformers("falcon_sequential");
}

#[test]
#[should_panic(expected = "losses of step 0")]
fn another_activation_than_falcons_is_noticed() {
    let mut golden = Golden::open("hf_falcon");
    golden.record["config"]["activation"] = json!("relu");
    follows(&mut golden, false);
}

#[test]
fn fields_of_falcon_that_nothing_follows_are_refused() {
    for (name, field, value, wanted) in [
        (
            "falcon",
            "alibi",
            json!(true),
            "alibi: found true, want false",
        ),
        (
            "falcon",
            "hidden_dropout",
            json!(0.1),
            "hidden_dropout: found 0.1, want 0",
        ),
        (
            "falcon",
            "attention_dropout",
            json!(0.1),
            "attention_dropout: found 0.1, want 0",
        ),
        (
            "falcon",
            "rope_scaling",
            json!({"type": "linear", "factor": 2.0}),
            "rope_scaling: found Linear { factor: 2.0 }, want null",
        ),
        (
            "falcon",
            "num_ln_in_parallel_attn",
            json!(2),
            "num_ln_in_parallel_attn: found 2, want 1 without new_decoder_architecture",
        ),
        (
            "falcon_groups",
            "parallel_attn",
            json!(false),
            "parallel_attn: found false, want true with new_decoder_architecture",
        ),
        (
            "falcon_groups",
            "num_ln_in_parallel_attn",
            json!(1),
            "transformer.h.0.ln_mlp.bias: found, want no such tensor",
        ),
        (
            "falcon_groups",
            "num_kv_heads",
            json!(4),
            "transformer.h.0.self_attention.query_key_value.weight: found [32, 16], want [48, 16]",
        ),
    ] {
        let text = refused_import(&format!("hf_{name}"), json!({field: value}));
        assert!(text.contains(wanted), "{text}");
    }
}

/// Every kind of layout and the memory of each.
fn every_kind_of_layout_matches(mut plan: Plan) {
    plan.model.layers = 4;
    assert_same_in(&plan, &KINDS);
}

#[test]
fn every_kind_of_layout_of_falcon_gives_the_same_bits_and_the_predicted_memory() {
    let mut plan = tiny_falcon();
    (plan.model.heads, plan.model.kv_heads) = (8, 4);
    every_kind_of_layout_matches(plan);
}

#[test]
fn a_shared_norm_with_dropout_in_a_llama_gives_the_same_bits_on_every_kind_of_layout() {
    let mut plan = tiny_llama();
    (plan.model.heads, plan.model.kv_heads) = (8, 4);
    (plan.model.parallel_residual, plan.model.shared_norm) = (Some(true), Some(true));
    plan.model.dropout = 0.1;
    every_kind_of_layout_matches(plan);
}

#[test]
fn layers_in_turn_have_a_norm_each() {
    let mut plan = tiny_gpt();
    plan.model.shared_norm = Some(true);
    let line = "model.shared_norm: found true without parallel_residual, want false: layers in turn have a norm each";
    assert_eq!(plan.problems(), [line]);
}

#[test]
fn models_that_the_class_of_falcon_lacks_are_not_exported() {
    let mut plan = tiny_falcon();
    (plan.model.dropout, plan.model.attention_dropout) = (0.1, 0.2);
    plan.model.head_dim = 12;
    plan.model.rotary_percent = 0.5;
    plan.model.rope_scaling = Some(RopeScaling::Linear { factor: 2.0 });
    let text = refused_export(&plan);
    for wanted in [
        "dropout = 0.1 in falcon",
        "attention_dropout = 0.2 in falcon",
        "head_dim = 12 in falcon",
        "rotary_percent = 0.5 in falcon",
        "rope_scaling in falcon",
    ] {
        assert!(text.contains(wanted), "{wanted} in {text}");
    }
    let mut turns = tiny_falcon();
    turns.model.kv_heads = 2;
    (turns.model.parallel_residual, turns.model.shared_norm) = (Some(false), Some(false));
    let text = refused_export(&turns);
    assert!(
        text.contains("kv_heads = 2 without parallel_residual in falcon"),
        "{text}"
    );
    let mut llama = tiny_llama();
    (llama.model.parallel_residual, llama.model.shared_norm) = (Some(true), Some(true));
    let text = refused_export(&llama);
    assert!(text.contains("shared_norm = true in llama"), "{text}");
}
