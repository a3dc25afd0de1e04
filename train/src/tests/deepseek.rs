//! DeepSeek-V2 and V3: latents, stretched scores, groups of experts. Folders of transformers' classes, published ones with weights of
//! eight bits and further layers, layouts, memory. Goldens: tests/oracles/decoder_goldens.py.

use std::path::Path;

use serde_json::{Value, json};

use crate::checkpoint::huggingface::config::inexpressible;
use crate::checkpoint::safetensors::{Entry, Format, Reader, Writer};
use crate::checkpoint::{MODEL, export_hf, import_hf};
use crate::config::{Activation, Family, OptimizerKind, Precision};
use crate::eval::logits;
use crate::fixtures::{tiny_deepseek, tiny_deepseek_v2, tiny_llama};
use crate::tests::hugging_face::{
    follows, follows_transformers, refused_export, refused_import, trained, write_config,
};
use crate::tests::layouts::{assert_same, assert_same_in, train, with};
use crate::tests::parity::Golden;

#[test]
fn deepseek_v2_follows_transformers_through_ten_steps() {
    follows_transformers("deepseek_v2");
}

#[test]
fn deepseek_v3_follows_transformers_through_ten_steps() {
    follows_transformers("deepseek_v3");
}

#[test]
#[should_panic(expected = "losses of step 0")]
fn a_factor_of_scores_that_is_not_read_is_noticed() {
    let mut golden = Golden::open("hf_deepseek_v3");
    let scaling = &mut golden.record["config"]["rope_scaling"];
    // the same factor of cosines and sines
    let factor = |mscale: f64| 0.1 * mscale * 4.0_f64.ln() + 1.0;
    scaling["attention_factor"] = json!(factor(0.7) / factor(0.9));
    (scaling["mscale"], scaling["mscale_all_dim"]) = (Value::Null, Value::Null);
    follows(&mut golden, false);
}

#[test]
#[should_panic(expected = "losses of step 0")]
fn groups_of_experts_that_are_not_read_are_noticed() {
    let mut golden = Golden::open("hf_deepseek_v2");
    golden.record["config"]["topk_method"] = json!("greedy");
    follows(&mut golden, false);
}

#[test]
fn fields_of_deepseek_that_nothing_follows_are_refused() {
    for (name, fields, wanted) in [
        (
            "hf_deepseek_v3",
            json!({"rope_interleave": false}),
            "rope_interleave: found false, want true",
        ),
        (
            "hf_deepseek_v3",
            json!({"norm_topk_prob": false}),
            "norm_topk_prob: found false, want true",
        ),
        (
            "hf_deepseek_v3",
            json!({"attention_bias": true}),
            "attention_bias: found true, want false",
        ),
        (
            "hf_deepseek_v3",
            json!({"num_key_value_heads": 2}),
            "num_key_value_heads: found 2, want num_attention_heads = 4",
        ),
        (
            "hf_deepseek_v3",
            json!({"scoring_func": "softmax", "topk_method": "greedy"}),
            "scoring_func: found softmax, want sigmoid",
        ),
        (
            "hf_deepseek_v3",
            json!({"rope_scaling": {"type": "yarn", "factor": 4.0, "mscale": 1.0}}),
            "mscale = Some(1.0) with mscale_all_dim = None, want both above 0",
        ),
        (
            "hf_deepseek_v2",
            json!({"norm_topk_prob": true}),
            "norm_topk_prob: found true, want false",
        ),
        (
            "hf_deepseek_v2",
            json!({"moe_layer_freq": 2}),
            "moe_layer_freq: found 2, want 1",
        ),
        (
            "hf_deepseek_v2",
            json!({"n_group": 3}),
            "model.moe.num_groups: found 3 with experts = 8",
        ),
        (
            "hf_deepseek_v2",
            json!({"kv_lora_rank": 4}),
            "model.layers.0.self_attn.kv_a_proj_with_mqa.weight: found [12, 16], want [8, 16]",
        ),
    ] {
        let text = refused_import(name, fields);
        assert!(text.contains(wanted), "{wanted} in {text}");
    }
}

/// Rows and columns of a block of weights with a scale of its own.
const BLOCK: usize = 16;

/// The number of a code of eight bits, four of exponent and three of mantissa (Micikevicius et al. 2022).
fn number_of(code: u8) -> f32 {
    let sign = if code < 128 { 1.0 } else { -1.0 };
    let (exponent, mantissa) = (i32::from(code >> 3 & 15), f32::from(code & 7) / 8.0);
    sign * match exponent {
        0 => mantissa * 2.0_f32.powi(-6),
        _ => (1.0 + mantissa) * 2.0_f32.powi(exponent - 7),
    }
}

/// A folder of DeepSeek-V3's published form, and one of the numbers that its weights stand for.
fn published(from: &Path, plain: &Path, coded: &Path) {
    let text = std::fs::read(from.join("config.json")).unwrap();
    let mut config: Value = serde_json::from_slice(&text).unwrap();
    let mut reader = Reader::open(&from.join(MODEL)).unwrap();
    let entries: Vec<Entry> = reader.entries().cloned().collect();
    let (mut numbers, mut codes) = (Vec::new(), Vec::new());
    for entry in &entries {
        let mut values = vec![0.0; entry.elements()];
        (reader.read_part(&entry.name, &entry.dims, 0, &mut values)).unwrap();
        let (rows, columns) = match entry.dims.as_slice() {
            &[rows, columns] if entry.name.contains("_proj") => (rows, columns),
            _ => {
                let bytes: Vec<u8> = values.iter().flat_map(|x| x.to_le_bytes()).collect();
                codes.push((entry.clone(), Format::F32, bytes));
                numbers.push((entry.clone(), values));
                continue;
            }
        };
        let wide = columns.div_ceil(BLOCK);
        let scale = |block: usize| 2.0_f32.powi(-6 - i32::try_from(block % 3).unwrap()) * 1.25;
        let mut bytes = Vec::new();
        for (at, value) in values.iter_mut().enumerate() {
            let block = at / columns / BLOCK * wide + at % columns / BLOCK;
            let code = u8::try_from(at * 37 % 251 % 120 + at % 2 * 128).unwrap();
            bytes.push(code);
            *value = number_of(code) * scale(block);
        }
        let dims = [rows.div_ceil(BLOCK), wide];
        let scales = (0..dims[0] * wide).flat_map(|block| scale(block).to_le_bytes());
        let of_scales = Entry {
            name: format!("{}_scale_inv", entry.name),
            dims: dims.to_vec(),
        };
        codes.push((entry.clone(), Format::F8E4m3, bytes));
        codes.push((of_scales, Format::F32, scales.collect()));
        numbers.push((entry.clone(), values));
    }
    for name in ["eh_proj.weight", "enorm.weight"] {
        let entry = Entry {
            name: format!("model.layers.2.{name}"),
            dims: vec![2],
        };
        codes.push((entry, Format::F32, vec![0; 8]));
    }
    write_config(plain, &config);
    let names = numbers.iter().map(|(entry, _)| entry.clone()).collect();
    let mut writer = Writer::create(&plain.join(MODEL), names, None).unwrap();
    let mut write = |values: &[f32]| writer.write(values).unwrap();
    numbers.iter().for_each(|(_, values)| write(values));
    writer.finish().unwrap();

    config["quantization_config"] = json!({"quant_method": "fp8", "fmt": "e4m3",
        "activation_scheme": "dynamic", "weight_block_size": [BLOCK, BLOCK]});
    config["num_nextn_predict_layers"] = json!(1);
    config["ep_size"] = json!(1);
    write_config(coded, &config);
    let names = codes
        .iter()
        .map(|(entry, format, _)| (entry.clone(), *format));
    let mut writer = Writer::create_in(&coded.join(MODEL), names.collect(), None).unwrap();
    let mut write = |bytes: &[u8]| writer.write_bytes(bytes).unwrap();
    codes.iter().for_each(|(_, _, bytes)| write(bytes));
    writer.finish().unwrap();
}

#[test]
fn published_weights_of_eight_bits_are_read_and_further_layers_passed_over() {
    let dir = tempfile::tempdir().unwrap();
    let folder = |name: &str| dir.path().join(name);
    export_hf(&trained(&tiny_deepseek(), dir.path()), &folder("whole")).unwrap();
    for name in ["plain", "coded"] {
        std::fs::create_dir(folder(name)).unwrap();
    }
    published(&folder("whole"), &folder("plain"), &folder("coded"));
    let tokens: Vec<u32> = (0..16).map(|at| at * 7 % 61).collect();
    let [plain, coded] = ["plain", "coded"].map(|name| {
        let read = import_hf(&folder(name), &folder(&format!("{name}-read"))).unwrap();
        (logits(&read.checkpoint, &tokens).unwrap(), read.notes)
    });
    assert_eq!(plain.0, coded.0);
    let note =
        "num_nextn_predict_layers = 1: 2 tensors of layers that predict further tokens are ignored";
    assert!(coded.1.iter().any(|line| line == note), "{:?}", coded.1);
    assert_eq!(plain.1, [""; 0]);
}

#[test]
fn layouts_of_deepseek_give_the_same_bits_and_the_predicted_memory() {
    let layouts = [
        "mb=1",
        "tp=2 sp dp=2 zero=2 mb=3",
        "cp=2 dp=2 selective mb=2",
        "pp=2 tp=2 full=1 mb=2",
    ];
    assert_same_in(&tiny_deepseek(), &layouts);
}

#[test]
fn layouts_of_deepseek_v2_give_the_same_bits_with_experts_on_other_ranks_too() {
    assert_same_in(&tiny_deepseek_v2(), &["tp=4 sp mb=2"]);
    let wanted = train(&with(tiny_deepseek_v2(), "mb=12"));
    let layout = "dp=2 ep=2 tp=2 mb=3";
    assert_same(&train(&with(tiny_deepseek_v2(), layout)), &wanted, layout);
}

#[test]
fn latents_of_a_llama_have_the_same_bits_with_dropout_windows_sinks_and_rounded_numbers() {
    let mut plan = tiny_llama();
    let model = &mut plan.model;
    (model.multi_latent_attention, model.kv_heads) = (Some(true), 0);
    (model.kv_lora_rank, model.qk_head_dim) = (12, 10);
    (model.qk_pos_emb_head_dim, model.v_head_dim) = (6, 14);
    (model.attention_sinks, model.sliding_window) = (Some(true), 5);
    (model.dropout, model.attention_dropout) = (0.1, 0.1);
    plan.train.optimizer = OptimizerKind::Muon;
    plan.train.precision = Precision::Bf16;
    assert_same_in(&plan, &["cp=2 tp=2 sp mb=3"]);
    plan.train.precision = Precision::Fp8;
    let wanted = train(&with(plan.clone(), "mb=12"));
    let layout = "dp=2 tp=2 mb=3";
    assert_same(&train(&with(plan, layout)), &wanted, layout);
}

#[test]
fn models_that_the_classes_of_deepseek_lack_are_not_exported() {
    let mut plan = tiny_deepseek();
    let model = &mut plan.model;
    (model.moe, model.activation) = (None, Some(Activation::Geglu));
    model.latent_norm_eps = 1e-4;
    let text = refused_export(&plan);
    for wanted in [
        "no moe in DeepseekV3",
        "activation = Geglu in DeepseekV3",
        "latent_norm_eps = 0.0001 in DeepseekV3, not 1e-6",
    ] {
        assert!(text.contains(wanted), "{wanted} in {text}");
    }
    let mut plan = tiny_deepseek();
    if let Some(moe) = &mut plan.model.moe {
        moe.expert_bias = false;
    }
    let text = refused_export(&plan);
    let wanted = "in deepseek_v3 sigmoid with expert_bias";
    assert!(text.contains(wanted), "{text}");
    let mut plan = tiny_deepseek();
    (plan.model.family, plan.model.moe) = (Family::Llama, None);
    plan.model.multi_latent_attention = Some(true);
    let wanted = ["multi_latent_attention = true in llama"];
    assert_eq!(inexpressible(&plan), wanted);
}
