//! BLOOM: linear biases of scores and a norm of the embedding. Folders of transformers' class, layouts, memory. Goldens:
//! tests/oracles/decoder_goldens.py.

use serde_json::{Value, json};

use crate::checkpoint::huggingface::config::inexpressible;
use crate::checkpoint::safetensors::{Entry, Reader, Writer};
use crate::checkpoint::{MODEL, import_hf};
use crate::config::{Activation, Family, Plan};
use crate::eval::logits;
use crate::fixtures::{tiny_bert, tiny_bloom, tiny_llama, tiny_t5};
use crate::tests::hugging_face::{
    follows, follows_transformers, refused_export, refused_import, saved,
};
use crate::tests::layouts::{KINDS, assert_same_in};
use crate::tests::parity::Golden;

#[test]
fn bloom_follows_transformers_through_ten_steps() {
    follows_transformers("bloom");
}

#[test]
fn packed_documents_of_bloom_with_an_untied_head_follow_transformers_through_ten_steps() {
    follows_transformers("bloom_packed");
}

#[test]
#[should_panic(expected = "losses of step 0")]
fn another_number_of_heads_is_noticed() {
    let mut golden = Golden::open("hf_bloom");
    golden.record["config"]["n_head"] = json!(3);
    follows(&mut golden, false);
}

#[test]
fn fields_of_bloom_that_nothing_follows_are_refused() {
    for (fields, wanted) in [
        (
            json!({"apply_residual_connection_post_layernorm": true}),
            "apply_residual_connection_post_layernorm: found true, want false",
        ),
        (
            json!({"slow_but_exact": true, "pretraining_tp": 4}),
            "slow_but_exact: found true, want false with pretraining_tp above 1",
        ),
        (
            json!({"n_inner": 40}),
            "n_inner: found 40, want null or 96, 4 hidden_size",
        ),
        (
            json!({"num_attention_heads": 4}),
            "num_attention_heads: found 4, want n_head = 6",
        ),
        (
            json!({"n_embed": 16}),
            "hidden_size: found 24, want n_embed = 16",
        ),
        (
            json!({"num_key_value_heads": 3}),
            "num_key_value_heads: found 3, want no such field",
        ),
        (
            json!({"n_layer": 1}),
            "transformer.h.1.input_layernorm.bias: found, want no such tensor",
        ),
    ] {
        let text = refused_import("hf_bloom", fields);
        assert!(text.contains(wanted), "{wanted} in {text}");
    }
}

/// The names of the first published files, their fields of training, and tensors without the prefix of the class.
#[test]
fn folders_as_bigscience_published_them_are_read() {
    let mut golden = Golden::open("hf_bloom");
    let dir = tempfile::tempdir().unwrap();
    let folder = |name: &str| dir.path().join(name);
    for name in ["class", "published"] {
        std::fs::create_dir(folder(name)).unwrap();
    }
    saved(&mut golden, &folder("class"));
    let config = golden.record["config"].as_object_mut().unwrap();
    for (own, other) in [
        ("n_layer", "num_hidden_layers"),
        ("n_head", "num_attention_heads"),
        ("hidden_size", "n_embed"),
    ] {
        let value = config.shift_remove(own).unwrap();
        config.insert(other.into(), value);
    }
    for (field, value) in [
        ("attention_softmax_in_fp32", json!(true)),
        ("bias_dropout_fusion", json!(true)),
        ("masked_softmax_fusion", json!(true)),
        ("n_inner", Value::Null),
        ("offset_alibi", json!(100)),
        ("pretraining_tp", json!(4)),
        ("skip_bias_add", json!(true)),
        ("skip_bias_add_qkv", json!(false)),
        ("unk_token_id", json!(0)),
    ] {
        config.insert(field.into(), value);
    }
    saved(&mut golden, &folder("published"));
    let mut reader = Reader::open(&folder("class").join(MODEL)).unwrap();
    let entries: Vec<Entry> = reader.entries().cloned().collect();
    let bare = entries.iter().map(|entry| Entry {
        name: entry.name.replace("transformer.", ""),
        dims: entry.dims.clone(),
    });
    let path = folder("published").join(MODEL);
    let mut writer = Writer::create(&path, bare.collect(), None).unwrap();
    for entry in &entries {
        let mut values = vec![0.0; entry.elements()];
        reader
            .read_part(&entry.name, &entry.dims, 0, &mut values)
            .unwrap();
        writer.write(&values).unwrap();
    }
    writer.finish().unwrap();
    let tokens: Vec<u32> = (0..16).map(|at| at * 7 % 61).collect();
    let [class, published] = ["class", "published"].map(|name| {
        let read = import_hf(&folder(name), &folder(&format!("{name}-read"))).unwrap();
        logits(&read.checkpoint, &tokens).unwrap()
    });
    assert_eq!(class, published);
}

#[test]
fn every_kind_of_layout_of_bloom_gives_the_same_bits_and_the_predicted_memory() {
    let mut plan = tiny_bloom();
    plan.model.layers = 4;
    // ranks of four and of two begin among the slopes of the eighth power and among those between
    (plan.model.d_model, plan.model.heads) = (24, 12);
    assert_same_in(&plan, &KINDS);
}

#[test]
fn linear_biases_with_windows_in_a_llama_give_the_same_bits_on_every_kind_of_layout() {
    let mut plan = tiny_llama();
    (plan.model.layers, plan.model.sliding_window) = (4, 5);
    (plan.model.alibi, plan.model.embedding_norm) = (Some(true), Some(true));
    (plan.model.dropout, plan.model.attention_dropout) = (0.1, 0.1);
    let layouts = ["dp=3 zero=2 mb=2", "cp=2 tp=2 sp mb=2", "pp=2 tp=2 mb=3"];
    assert_same_in(&plan, &layouts);
}

/// Problems of a plan whose model is set so.
fn problems_of(mut plan: Plan, set: impl Fn(&mut Plan)) -> Vec<String> {
    set(&mut plan);
    plan.problems()
}

#[test]
fn choices_that_a_model_lacks_are_refused() {
    let found = problems_of(tiny_bert(), |plan| plan.model.embedding_norm = Some(false));
    let line = "model.embedding_norm: found false with family = Bert, want none: only decoders have a choice";
    assert_eq!(found, [line]);
    let found = problems_of(tiny_t5(), |plan| plan.model.alibi = Some(true));
    let line = "model.alibi: found true with family = T5, want none: only decoders have a choice";
    assert!(found.iter().any(|it| it == line), "{found:?}");
    let found = problems_of(tiny_bloom(), |plan| plan.model.attention_cap = 3.0);
    let line = "model.attention_cap: found 3 with alibi, want 0: biased scores have no cap";
    assert_eq!(found, [line]);
}

#[test]
fn models_that_the_class_of_bloom_lacks_are_not_exported() {
    let mut plan = tiny_bloom();
    let model = &mut plan.model;
    (model.alibi, model.embedding_norm) = (Some(false), Some(false));
    (model.d_ffn, model.kv_heads) = (48, 2);
    model.activation = Some(Activation::Relu);
    model.sliding_window = 5;
    let text = refused_export(&plan);
    for wanted in [
        "alibi = false in bloom",
        "embedding_norm = false in bloom",
        "d_ffn = 48 in bloom",
        "activation = Relu in bloom",
        "kv_heads or head_dim in bloom",
        "sliding_window = 5 in bloom",
    ] {
        assert!(text.contains(wanted), "{wanted} in {text}");
    }
    let mut llama = tiny_llama();
    (llama.model.alibi, llama.model.embedding_norm) = (Some(true), Some(true));
    let lines = inexpressible(&llama);
    assert_eq!(
        lines,
        ["embedding_norm = true in llama", "alibi = true in llama"]
    );
    llama.model.family = Family::Gpt;
    assert!(inexpressible(&llama).contains(&"alibi = true in gpt2".to_owned()));
}

#[test]
fn settings_that_linear_biases_overrule_are_contradictions() {
    let mut plan = tiny_bloom();
    (plan.model.rotary_percent, plan.model.local_rope_theta) = (0.5, 1e4);
    plan.model.attention_cap = 30.0;
    plan.seq_length = (1 << 24) + 8;
    let found = plan.problems().join("\n");
    for key in [
        "model.rotary_percent",
        "model.local_rope_theta",
        "model.attention_cap",
        "seq_length: found 16777224, want at most 16777216 with alibi",
    ] {
        assert!(found.contains(key), "{key} in {found}");
    }
    assert!(tiny_bloom().problems().is_empty());
}
