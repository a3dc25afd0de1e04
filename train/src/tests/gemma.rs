//! Gemma 2 and 3: norms on both sides of the layers and of queries and keys, layers with a window beside layers without one, and scaled
//! embeddings, in Gemma 2 capped scores and logits. Folders of transformers' class, layouts, memory. Goldens: tests/oracles/decoder_goldens.py.

use serde_json::json;

use crate::checkpoint::huggingface::config::inexpressible;
use crate::checkpoint::whole_model::Model;
use crate::checkpoint::{export_hf, import_hf};
use crate::config::{Family, Plan, QkNormOver, RopeScaling};
use crate::dist::devices::Devices;
use crate::fixtures::{tiny_gemma, tiny_gemma2, tiny_gpt, tiny_llama};
use crate::tests::hugging_face::{
    follows, follows_transformers, refused_export, refused_import, trained,
};
use crate::tests::layouts::{KINDS, assert_same, assert_same_in, train, with};
use crate::tests::parity::Golden;

#[test]
fn gemma3_with_a_window_in_two_layers_of_three_follows_transformers_through_ten_steps() {
    follows_transformers("gemma3");
}

#[test]
fn gemma3_with_packed_documents_and_scaled_positions_follows_transformers_through_ten_steps() {
    follows_transformers("gemma3_packed");
}

#[test]
fn gemma2_with_capped_scores_and_logits_follows_transformers_through_ten_steps() {
    follows_transformers("gemma2");
}

#[test]
fn gemma2_with_packed_documents_and_no_windows_follows_transformers_through_ten_steps() {
    follows_transformers("gemma2_packed");
}

/// A model with this field of another value is not the golden one.
fn is_noticed(name: &str, field: &str, value: serde_json::Value) {
    let mut golden = Golden::open(name);
    assert_ne!(golden.record["config"][field], value);
    golden.record["config"][field] = value;
    let followed = std::panic::catch_unwind(move || follows(&mut golden, false));
    let said = followed.unwrap_err();
    let said = said.downcast_ref::<String>().unwrap();
    assert!(said.contains("losses of step 0"), "{field}: {said}");
}

#[test]
fn other_windows_bases_and_divisors_than_gemmas_are_noticed() {
    let is_noticed = |field: &str, value| is_noticed("hf_gemma3", field, value);
    is_noticed("sliding_window", json!(6));
    is_noticed("rope_local_base_freq", json!(500.0));
    is_noticed("rope_theta", json!(500.0));
    is_noticed("query_pre_attn_scalar", json!(9.0));
    let kinds = ["sliding_attention", "full_attention", "sliding_attention"];
    is_noticed("layer_types", json!(kinds));
}

#[test]
fn other_caps_than_gemmas_are_noticed() {
    is_noticed("hf_gemma2", "attn_logit_softcapping", json!(1.7));
    is_noticed("hf_gemma2", "attn_logit_softcapping", json!(null));
    is_noticed("hf_gemma2", "final_logit_softcapping", json!(2.7));
    is_noticed("hf_gemma2", "final_logit_softcapping", json!(null));
}

#[test]
fn positions_by_type_of_layer_as_transformers_5_writes_them_are_those_of_the_fields_before() {
    let mut golden = Golden::open("hf_gemma3");
    let config = golden.record["config"].as_object_mut().unwrap();
    let [theta, local] =
        ["rope_theta", "rope_local_base_freq"].map(|name| config.shift_remove(name).unwrap());
    config.shift_remove("rope_scaling");
    let table = json!({
        "full_attention": {"rope_type": "default", "rope_theta": theta},
        "sliding_attention": {"rope_type": "default", "rope_theta": local},
    });
    config.insert("rope_parameters".into(), table);
    follows(&mut golden, true);
}

#[test]
fn fields_of_gemma3_that_nothing_follows_are_refused() {
    for (field, value, wanted) in [
        (
            "attention_bias",
            json!(true),
            "attention_bias: found true, want false",
        ),
        (
            "use_bidirectional_attention",
            json!(true),
            "use_bidirectional_attention: found true, want false",
        ),
        (
            "attn_logit_softcapping",
            json!(30.0),
            "attn_logit_softcapping: found 30, want null: scores of this family have no cap",
        ),
        (
            "layer_types",
            json!(["full_attention", "sliding_attention", "full_attention"]),
            "layer_types: found [\"full_attention\", \"sliding_attention\", \"full_attention\"]",
        ),
        (
            "sliding_window",
            json!(null),
            "sliding_window: found null, want a number",
        ),
        (
            "query_pre_attn_scalar",
            json!(0),
            "query_pre_attn_scalar: found 0, want a number above 0",
        ),
        (
            "head_dim",
            json!(4),
            "model.layers.0.self_attn.q_proj.weight: found [32, 16], want [16, 16]",
        ),
    ] {
        let text = refused_import("hf_gemma3", json!({field: value}));
        assert!(text.contains(wanted), "{text}");
    }
}

/// Fields of google's folders that the classes save and do not read.
#[test]
fn fields_of_published_folders_that_change_nothing_are_read() {
    for name in ["hf_gemma2", "hf_gemma3"] {
        let mut golden = Golden::open(name);
        let config = golden.record["config"].as_object_mut().unwrap();
        config.insert("cache_implementation".into(), json!("hybrid"));
        if name == "hf_gemma2" {
            config.insert("hidden_act".into(), json!("gelu_pytorch_tanh"));
            let window = config["sliding_window"].clone();
            config.insert("sliding_window_size".into(), window);
        }
        follows(&mut golden, false);
    }
    let text = refused_import(
        "hf_gemma2",
        json!({"hidden_act": "silu", "sliding_window_size": 7, "sliding_window_pattern": 3}),
    );
    for wanted in [
        "hidden_act: found silu, want gelu_pytorch_tanh, as hidden_activation",
        "sliding_window_size: found 7, want ",
        "sliding_window_pattern: found 3, want no such field",
    ] {
        assert!(text.contains(wanted), "{wanted} in {text}");
    }
    let tables = json!({"full_attention": {"rope_theta": 7.0}, "sliding_attention": {}});
    let text = refused_import(
        "hf_gemma3",
        json!({"rope_parameters": tables, "layer_types": "full_attention"}),
    );
    for wanted in [
        "want 7, as in rope_parameters",
        "layer_types: found \"full_attention\", want a list of names",
    ] {
        assert!(text.contains(wanted), "{wanted} in {text}");
    }
}

/// The class starts dynamic scaling at `max_position_embeddings`.
#[test]
fn the_start_of_dynamic_scaling_and_the_length_come_back() {
    let mut plan = tiny_gemma();
    plan.model.rope_scaling = Some(RopeScaling::Dynamic {
        factor: 2.0,
        original_length: plan.seq_length / 2,
    });
    let folder = tempfile::tempdir().unwrap();
    let checkpoint = trained(&plan, folder.path());
    let (hf, back) = (folder.path().join("hf"), folder.path().join("back"));
    export_hf(&checkpoint, &hf).unwrap();
    let text = std::fs::read_to_string(hf.join("config.json")).unwrap();
    let config: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(config["max_position_embeddings"], plan.seq_length / 2);
    let checkpoint = import_hf(&hf, &back).unwrap().checkpoint;
    let found = Model::load(&checkpoint, &Devices::Cpu).unwrap().plan;
    assert_eq!(found.seq_length, plan.seq_length);
    assert_eq!(found.model.rope_scaling, plan.model.rope_scaling);
}

/// Every kind of layout and the memory of each.
fn every_kind_of_layout_matches(mut plan: Plan) {
    plan.model.layers = 4;
    (plan.model.heads, plan.model.kv_heads) = (8, 4);
    assert_same_in(&plan, &KINDS);
}

#[test]
fn every_kind_of_layout_of_gemma3_gives_the_same_bits_and_the_predicted_memory() {
    let mut plan = tiny_gemma();
    plan.model.global_every = 3;
    every_kind_of_layout_matches(plan);
}

#[test]
fn every_kind_of_layout_of_gemma2_gives_the_same_bits_and_the_predicted_memory() {
    every_kind_of_layout_matches(tiny_gemma2());
    let mut plan = tiny_gemma2();
    plan.model.heads = 4;
    let whole = train(&with(plan.clone(), "mb=12"));
    for layout in ["chunked mb=12", "chunked tp=2 sp cp=2 mb=3"] {
        assert_same(&train(&with(plan.clone(), layout)), &whole, layout);
    }
}

#[test]
fn gemmas_options_in_other_families_give_the_same_bits_on_every_kind_of_layout() {
    let mut plan = tiny_llama();
    plan.model.norm_plus_one = Some(true);
    plan.model.scaled_embedding = Some(true);
    (plan.model.sliding_window, plan.model.global_every) = (6, 2);
    plan.model.dropout = 0.1;
    every_kind_of_layout_matches(plan);
    let mut plan = tiny_gpt();
    plan.model.scaled_embedding = Some(true);
    (plan.model.score_divisor, plan.model.sliding_window) = (3.0, 6);
    plan.model.layers = 4;
    assert_same_in(&plan, &["mb=1", "tp=2 sp dp=2 mb=3", "pp=2 cp=2 mb=2"]);
}

#[test]
fn settings_of_gemma_that_contradict_others_are_refused() {
    let mut plan = tiny_gpt();
    plan.model.norm_plus_one = Some(true);
    (plan.model.global_every, plan.model.local_rope_theta) = (6, 100.0);
    plan.model.score_divisor = -1.0;
    plan.model.qk_norm_over = Some(QkNormOver::All);
    (plan.model.attention_cap, plan.model.logit_cap) = (-2.0, f32::INFINITY);
    assert_eq!(
        plan.problems(),
        [
            "model.qk_norm_over: found a choice without qk_norm, want none: there are no such norms",
            "model.norm_plus_one: found true with norm = layer, want false: only RMS norms have it",
            "model.score_divisor: found -1, want a finite number, 0 or more",
            "model.attention_cap: found -2, want a finite number, 0 or more",
            "model.logit_cap: found inf, want a finite number, 0 or more",
            "model.global_every: found 6 without sliding_window, want 0: no layer has a window",
            "model.local_rope_theta: found 100 without sliding_window, want 0: no layer has a window",
        ]
    );
}

#[test]
fn models_that_the_class_of_gemma3_lacks_are_not_exported() {
    let mut plan = tiny_gemma();
    (plan.model.norm_plus_one, plan.model.scaled_embedding) = (Some(false), Some(false));
    (plan.model.dropout, plan.model.qk_norm) = (0.1, Some(false));
    plan.model.rotary_percent = 0.5;
    let text = refused_export(&plan);
    for wanted in [
        "norm_plus_one = false in gemma3_text",
        "scaled_embedding = false in gemma3_text",
        "qk_norm = false in gemma3_text",
        "dropout = 0.1 in gemma3_text",
        "rotary_percent = 0.5 in gemma3_text",
    ] {
        assert!(text.contains(wanted), "{wanted} in {text}");
    }
    let mut scaled = tiny_gemma();
    scaled.model.local_rope_theta = 0.0;
    scaled.model.rope_scaling = Some(RopeScaling::Linear { factor: 2.0 });
    let text = inexpressible(&scaled).join(", ");
    assert_eq!(text, "rope_scaling without local_rope_theta in gemma3_text");
    // layers with a window would not be scaled
    let mut mistral = tiny_llama();
    mistral.model.family = Family::Mistral;
    (mistral.model.sliding_window, mistral.model.local_rope_theta) = (5, mistral.model.rope_theta);
    assert_eq!(inexpressible(&mistral), [""; 0]);
    mistral.model.rope_scaling = Some(RopeScaling::Linear { factor: 2.0 });
    let text = inexpressible(&mistral).join(", ");
    assert_eq!(text, "local_rope_theta = 10000 in mistral");
    let mut gemma2 = tiny_gemma2();
    gemma2.model.local_rope_theta = 500.0;
    gemma2.model.rope_scaling = Some(RopeScaling::Linear { factor: 2.0 });
    let text = refused_export(&gemma2);
    for wanted in ["local_rope_theta = 500 in gemma2", "rope_scaling in gemma2"] {
        assert!(text.contains(wanted), "{wanted} in {text}");
    }
    let mut llama = tiny_llama();
    (llama.model.norm_plus_one, llama.model.scaled_embedding) = (Some(true), Some(true));
    (llama.model.sliding_window, llama.model.global_every) = (5, 2);
    (llama.model.local_rope_theta, llama.model.score_divisor) = (500.0, 3.0);
    llama.model.rope_scaling = Some(RopeScaling::Linear { factor: 2.0 });
    (llama.model.attention_cap, llama.model.logit_cap) = (50.0, 30.0);
    let text = refused_export(&llama);
    for wanted in [
        "norm_plus_one = true in llama",
        "scaled_embedding = true in llama",
        "sliding_window = 5 in llama",
        "global_every = 2 in llama",
        "local_rope_theta = 500 in llama",
        "score_divisor = 3 in llama",
        "attention_cap = 50 in llama",
        "logit_cap = 30 in llama",
    ] {
        assert!(text.contains(wanted), "{wanted} in {text}");
    }
}
