//! GPT-NeoX: parallel attention and feed-forward layers. Folders of transformers' class, layouts, memory.
//! Goldens: tests/oracles/decoder_goldens.py.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::checkpoint::huggingface::outs::{Source, tensors};
use crate::checkpoint::whole_model::Model;
use crate::checkpoint::{export_hf, import_hf};
use crate::config::{Family, Plan, RopeScaling};
use crate::dist::devices::Devices;
use crate::fixtures::{tiny_gpt, tiny_llama, tiny_neox};
use crate::model::param;
use crate::tests::hugging_face::{
    follows, follows_transformers, refused_import, saved, trained, write_config,
};
use crate::tests::layouts::assert_same_in;
use crate::tests::parity::Golden;
use crate::trainer::memory;

#[test]
fn a_model_of_gpt_neox_follows_transformers_through_ten_steps() {
    follows_transformers("gpt_neox");
}

#[test]
fn a_gpt_neox_of_layers_in_turn_follows_transformers_through_ten_steps() {
    follows_transformers("gpt_neox_sequential");
}

#[test]
#[should_panic(expected = "losses of step 0")]
fn layers_in_turn_instead_of_parallel_ones_are_noticed() {
    let mut golden = Golden::open("hf_gpt_neox");
    golden.record["config"]["use_parallel_residual"] = json!(false);
    follows(&mut golden, false);
}

/// The model's settings and weights.
fn imported(golden: &mut Golden, config: &Value) -> (Plan, Vec<Vec<f32>>) {
    let folder = tempfile::tempdir().unwrap();
    saved(golden, folder.path());
    write_config(folder.path(), config);
    let imported = import_hf(folder.path(), &folder.path().join("out")).unwrap();
    let Model { plan, weights, .. } = Model::load(&imported.checkpoint, &Devices::Cpu).unwrap();
    let specs = param::specs(&plan);
    let all = tensors(&Source {
        plan: &plan,
        specs: &specs,
        tensors: &weights,
    });
    (plan, all.into_iter().map(|tensor| tensor.values).collect())
}

#[test]
fn fields_that_are_absent_have_the_classs_defaults() {
    let mut golden = Golden::open("hf_gpt_neox");
    let whole = golden.record["config"].clone();
    let mut few = whole.clone();
    for name in [
        "attention_bias",
        "attention_dropout",
        "classifier_dropout",
        "hidden_act",
        "hidden_dropout",
        "layer_norm_eps",
        "partial_rotary_factor",
        "rope_scaling",
        "rope_theta",
        "rotary_emb_base",
        "rotary_pct",
        "tie_word_embeddings",
        "use_parallel_residual",
    ] {
        few.as_object_mut().unwrap().shift_remove(name).unwrap();
    }
    let (wanted, weights) = imported(&mut golden, &whole);
    let (found, same) = imported(&mut golden, &few);
    assert_eq!(found.model, wanted.model);
    assert_eq!(found.model.rotary_percent, 0.25);
    assert!(found.model.architecture().is_parallel);
    assert!(same == weights);
}

#[test]
fn the_fields_of_transformers_5_alone_are_read_too() {
    let mut golden = Golden::open("hf_gpt_neox_sequential");
    let old = golden.record["config"].clone();
    let mut new = old.clone();
    for name in [
        "partial_rotary_factor",
        "rope_scaling",
        "rope_theta",
        "rotary_emb_base",
        "rotary_pct",
    ] {
        new.as_object_mut().unwrap().shift_remove(name).unwrap();
    }
    new["rope_parameters"] =
        json!({"rope_type": "default", "rope_theta": 500.0, "partial_rotary_factor": 0.5});
    let wanted = imported(&mut golden, &old).0.model;
    assert_eq!((wanted.rotary_percent, wanted.rope_theta), (0.5, 500.0));
    assert_eq!(imported(&mut golden, &new).0.model, wanted);
}

#[test]
fn fields_of_gpt_neox_that_nothing_follows_are_refused() {
    for (field, value, wanted) in [
        (
            "attention_bias",
            json!(false),
            "attention_bias: found false, want true",
        ),
        (
            "rope_scaling",
            json!({"rope_type": "linear", "factor": 2.0}),
            "rope_scaling: found Linear { factor: 2.0 }, want null: positions of this family are not scaled",
        ),
        (
            "hidden_act",
            json!("mish"),
            "hidden_act: found mish, want gelu_new, gelu_fast, gelu, quick_gelu, relu or relu2",
        ),
        (
            "partial_rotary_factor",
            json!(0.5),
            "partial_rotary_factor: found 0.5, want rotary_pct = 0.25",
        ),
        (
            "rope_theta",
            json!(500),
            "rope_theta: found 500, want rotary_emb_base = 10000",
        ),
        (
            "hidden_dropout_prob",
            json!(0.1),
            "hidden_dropout_prob: found 0.1, want 0",
        ),
        (
            "use_parallel_residual",
            json!("yes"),
            "use_parallel_residual: found \"yes\", want true or false",
        ),
    ] {
        let text = refused_import("hf_gpt_neox", json!({field: value}));
        assert!(text.contains(wanted), "{text}");
    }
}

/// Changes the table and the data of a safetensors file.
fn change(path: &Path, change: impl FnOnce(&mut Value, &mut Vec<u8>)) {
    let bytes = fs::read(path).unwrap();
    let header = 8 + usize::try_from(u64::from_le_bytes(bytes[..8].try_into().unwrap())).unwrap();
    let mut table: Value = serde_json::from_slice(&bytes[8..header]).unwrap();
    let mut data = bytes[header..].to_vec();
    change(&mut table, &mut data);
    let table = table.to_string();
    let mut whole = (table.len() as u64).to_le_bytes().to_vec();
    whole.extend(table.as_bytes());
    whole.extend(data);
    fs::write(path, whole).unwrap();
}

#[test]
fn masks_that_older_classes_saved_are_passed_over_and_are_no_weights() {
    let mut golden = Golden::open("hf_gpt_neox");
    let folder = tempfile::tempdir().unwrap();
    saved(&mut golden, folder.path());
    let path = folder.path().join("model.safetensors");
    let import = || import_hf(folder.path(), &folder.path().join("out"));
    let weights = |imported: &Path| fs::read(imported.join("model.safetensors")).unwrap();
    let plain = weights(&import().unwrap().checkpoint);
    change(&path, |table, data| {
        let mut add = |name: String, dtype: &str, shape: &[usize], own: &[u8]| {
            let offsets = [data.len(), data.len() + own.len()];
            table[name] = json!({"dtype": dtype, "shape": shape, "data_offsets": offsets});
            data.extend_from_slice(own);
        };
        for (layer, dtype) in ["BOOL", "U8"].into_iter().enumerate() {
            let at = |name: &str| format!("gpt_neox.layers.{layer}.attention.{name}");
            add(at("bias"), dtype, &[1, 1, 2, 2], &[1, 0, 1, 1]);
            add(at("masked_bias"), "F16", &[], &[0, 252]);
            add(at("rotary_emb.inv_freq"), "F32", &[1], &[0, 0, 128, 63]);
        }
    });
    assert!(weights(&import().unwrap().checkpoint) == plain);
    let name = "gpt_neox.layers.0.input_layernorm.bias";
    change(&path, |table, data| {
        let own = table.as_object_mut().unwrap().shift_remove(name).unwrap();
        table["gpt_neox.layers.9.attention.masked_bias"] = own;
        let offsets = [data.len(), data.len() + 16];
        table[name] = json!({"dtype": "U8", "shape": [16], "data_offsets": offsets});
        data.extend([1; 16]);
    });
    let error = import().unwrap_err().with_causes();
    let line = format!("{name}: found U8, want numbers");
    assert!(error.contains(&line), "{error}");
}

#[test]
fn every_kind_of_layout_of_parallel_layers_gives_the_same_bits_and_the_predicted_memory() {
    let mut plan = tiny_neox();
    (plan.model.layers, plan.model.dropout) = (4, 0.1);
    plan.model.attention_dropout = 0.1;
    assert_same_in(
        &plan,
        &[
            "mb=1",
            "dp=3 mb=2",
            "tp=2 mb=2",
            "tp=4 mb=12",
            "tp=2 sp mb=4",
            "tp=4 sp dp=2 mb=3",
            "pp=2 mb=1",
            "pp=2 vs=2 tp=2 sp dp=2 mb=2",
            "pp=3 layers=1,3,0 mb=3",
            "dp=2 zero=3 tp=2 sp pp=2 mb=3",
            "cp=2 tp=2 sp mb=2",
            "cp=4 dp=2 zero=2 mb=3",
            "selective mb=3",
            "full mb=2",
            "full=1,2 pp=2 tp=2 sp dp=2 zero=2 mb=3",
            "selective cp=2 tp=2 mb=1",
        ],
    );
}

#[test]
fn a_parallel_block_keeps_one_input_of_norms_less() {
    let mut plan = tiny_neox();
    let parallel = memory::predict(&plan).unwrap();
    plan.model.parallel_residual = Some(false);
    let sequential = memory::predict(&plan).unwrap();
    let rows = plan.train.micro_batch * plan.seq_length;
    let of_block = 4 * rows * plan.model.d_model;
    let saved = sequential[0].activations - parallel[0].activations;
    assert_eq!(saved, plan.model.layers * of_block);
}

#[test]
fn parallel_layers_are_of_decoders_and_of_gpt_neox_in_folders() {
    let mut plan = tiny_llama();
    plan.model.parallel_residual = Some(true);
    let folder = tempfile::tempdir().unwrap();
    let checkpoint = trained(&plan, folder.path());
    let refused = export_hf(&checkpoint, &folder.path().join("hf"));
    let text = refused.unwrap_err().to_string();
    assert!(text.contains("parallel_residual = true in llama"), "{text}");
    for family in [Family::Bert, Family::T5] {
        let mut plan = tiny_gpt();
        (plan.model.family, plan.model.parallel_residual) = (family, Some(true));
        let line = format!(
            "model.parallel_residual: found true with family = {family:?}, want false: only decoders have it"
        );
        assert!(plan.problems().contains(&line), "{:?}", plan.problems());
    }
}

#[test]
fn scaled_positions_of_gpt_neox_are_not_exported() {
    let mut plan = tiny_neox();
    plan.model.rope_scaling = Some(RopeScaling::Linear { factor: 2.0 });
    let folder = tempfile::tempdir().unwrap();
    let checkpoint = trained(&plan, folder.path());
    let refused = export_hf(&checkpoint, &folder.path().join("hf"));
    let text = refused.unwrap_err().to_string();
    assert!(text.contains("rope_scaling in gpt_neox"), "{text}");
}
