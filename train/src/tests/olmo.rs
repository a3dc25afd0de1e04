//! OLMo 2: norms after the layers, and of all queries and of all keys. Folders of transformers' class, layouts, memory, and norms
//! on both sides of the layers. Goldens: tests/oracles/decoder_goldens.py.

use serde_json::json;

use crate::checkpoint::huggingface::config::inexpressible;
use crate::config::{ClassifyConfig, NormPlace, Plan, QkNormOver, RopeScaling};
use crate::fixtures::{tiny_bert, tiny_gpt, tiny_llama, tiny_moe, tiny_olmo};
use crate::tests::hugging_face::{follows, follows_transformers, refused_export, refused_import};
use crate::tests::layouts::{KINDS, assert_same, assert_same_in, train, with};
use crate::tests::parity::Golden;

#[test]
fn olmo2_follows_transformers_through_ten_steps() {
    follows_transformers("olmo2");
}

#[test]
fn olmo2_with_packed_documents_and_a_tied_head_follows_transformers_through_ten_steps() {
    follows_transformers("olmo2_packed");
}

#[test]
#[should_panic(expected = "losses of step 0")]
fn another_epsilon_than_olmos_is_noticed() {
    let mut golden = Golden::open("hf_olmo2");
    golden.record["config"]["rms_norm_eps"] = json!(1e-2);
    follows(&mut golden, false);
}

#[test]
fn fields_of_olmo2_that_nothing_follows_are_refused() {
    for (field, value, wanted) in [
        (
            "attention_bias",
            json!(true),
            "attention_bias: found true, want false",
        ),
        (
            "rope_scaling",
            json!({"type": "linear", "factor": 2.0}),
            "rope_scaling: found Linear { factor: 2.0 }, want null",
        ),
        (
            "num_key_value_heads",
            json!(4),
            "model.layers.0.self_attn.k_proj.weight: found [8, 16], want [16, 16]",
        ),
    ] {
        let text = refused_import("hf_olmo2", json!({field: value}));
        assert!(text.contains(wanted), "{text}");
    }
}

/// Every kind of layout and the memory of each.
fn every_kind_of_layout_matches(mut plan: Plan) {
    plan.model.layers = 4;
    (plan.model.heads, plan.model.kv_heads) = (8, 4);
    assert_same_in(&plan, &KINDS);
}

#[test]
fn every_kind_of_layout_of_olmo2_gives_the_same_bits_and_the_predicted_memory() {
    every_kind_of_layout_matches(tiny_olmo());
}

#[test]
fn norms_on_both_sides_of_layers_with_dropout_give_the_same_bits_on_every_kind_of_layout() {
    let mut plan = tiny_llama();
    (plan.model.norm_place, plan.model.dropout) = (Some(NormPlace::Both), 0.1);
    every_kind_of_layout_matches(plan);
}

#[test]
fn norms_after_experts_give_the_same_bits_on_every_kind_of_layout() {
    for place in [NormPlace::After, NormPlace::Both] {
        let mut plan = tiny_moe();
        plan.model.norm_place = Some(place);
        plan.model.layers = 4;
        let layouts = [
            "dp=2 ep=2 mb=1",
            "tp=2 sp mb=2",
            "pp=2 dp=2 ep=2 zero=2 mb=1",
        ];
        let want = train(&with(plan.clone(), "mb=12"));
        for layout in layouts {
            assert_same(&train(&with(plan.clone(), layout)), &want, layout);
        }
    }
}

#[test]
fn places_of_norms_that_a_block_lacks_are_refused() {
    let mut plan = tiny_gpt();
    plan.model.norm_place = Some(NormPlace::After);
    plan.model.parallel_residual = Some(true);
    let line = "model.norm_place: found After with parallel_residual, want before: parallel layers have norms before them";
    assert_eq!(plan.problems(), [line]);
    let mut plan = tiny_bert();
    plan.model.norm_place = Some(NormPlace::Both);
    let line =
        "model.norm_place: found Both with family = Bert, want before: only decoders have a choice";
    assert_eq!(plan.problems(), [line]);
}

#[test]
fn models_that_the_class_of_olmo2_lacks_are_not_exported() {
    let mut plan = tiny_olmo();
    plan.model.qk_norm_over = Some(QkNormOver::Head);
    plan.model.norm_place = Some(NormPlace::Both);
    (plan.model.sliding_window, plan.model.dropout) = (5, 0.1);
    plan.model.rope_scaling = Some(RopeScaling::Linear { factor: 2.0 });
    let text = refused_export(&plan);
    for wanted in [
        "qk_norm_over = Head in olmo2",
        "norm_place = Both in olmo2",
        "sliding_window = 5 in olmo2",
        "dropout = 0.1 in olmo2",
        "rope_scaling in olmo2",
    ] {
        assert!(text.contains(wanted), "{wanted} in {text}");
    }
    let mut classes = tiny_olmo();
    classes.model.classify = Some(ClassifyConfig::of(3));
    let text = inexpressible(&classes).join(", ");
    assert_eq!(text, "classify in olmo2");
    let mut llama = tiny_llama();
    (llama.model.qk_norm, llama.model.qk_norm_over) = (Some(true), Some(QkNormOver::All));
    llama.model.norm_place = Some(NormPlace::After);
    let text = refused_export(&llama);
    for wanted in [
        "qk_norm = true in llama",
        "qk_norm_over = All in llama",
        "norm_place = After in llama",
    ] {
        assert!(text.contains(wanted), "{wanted} in {text}");
    }
}
