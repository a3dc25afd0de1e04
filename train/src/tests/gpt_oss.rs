//! gpt-oss: attention sinks, experts with biases, clamped gates. Folders of transformers' class, published ones with experts of
//! four bits, layouts, memory. Goldens: tests/oracles/decoder_goldens.py.

use serde_json::json;

use crate::checkpoint::huggingface::config::inexpressible;
use crate::checkpoint::safetensors::{Entry, Format, Reader, Writer};
use crate::checkpoint::whole_model::Model;
use crate::checkpoint::{MODEL, export_hf, import_hf};
use crate::config::{Activation, LoraConfig, LoraTarget, Plan, RouterScore};
use crate::dist::devices::Devices;
use crate::eval::logits;
use crate::fixtures::{Chain, Log, tiny_bert, tiny_gpt_oss, tiny_llama, tiny_t5};
use crate::tests::hugging_face::{
    follows, follows_transformers, refused_export, refused_import, trained, write_config,
};
use crate::tests::layouts::{assert_same, assert_same_in, train, with};
use crate::tests::parity::Golden;
use crate::trainer::run;

#[test]
fn gpt_oss_follows_transformers_through_ten_steps() {
    follows_transformers("gpt_oss");
}

#[test]
fn packed_documents_of_gpt_oss_with_clamped_gates_follow_transformers_through_ten_steps() {
    follows_transformers("gpt_oss_packed");
}

#[test]
#[should_panic(expected = "losses of step 0")]
fn a_window_that_is_not_read_is_noticed() {
    let mut golden = Golden::open("hf_gpt_oss");
    golden.record["config"]["sliding_window"] = json!(6);
    follows(&mut golden, false);
}

#[test]
#[should_panic(expected = "losses of step 0")]
fn rounded_ends_of_the_ramp_of_positions_are_noticed() {
    let mut golden = Golden::open("hf_gpt_oss");
    golden.record["config"]["rope_scaling"]["truncate"] = json!(true);
    follows(&mut golden, false);
}

#[test]
fn fields_of_gpt_oss_that_nothing_follows_are_refused() {
    for (fields, wanted) in [
        (
            json!({"attention_bias": false}),
            "attention_bias: found false, want true",
        ),
        (
            json!({"hidden_act": "gelu"}),
            "hidden_act: found gelu, want silu",
        ),
        (
            json!({"swiglu_limit": 5.0}),
            "swiglu_limit: found 5, want 7",
        ),
        (
            json!({"swiglu_alpha": 1.5}),
            "swiglu_alpha: found 1.5, want 1.702",
        ),
        (
            json!({"experts_per_token": 4}),
            "experts_per_token: found 4, want 2, as num_experts_per_tok",
        ),
        (
            json!({"initial_context_length": 4096}),
            "initial_context_length: found 4096, want 32, as the original length",
        ),
        (
            json!({"layer_types": ["full_attention", "sliding_attention"]}),
            "layer_types: found",
        ),
        (
            json!({"num_local_experts": 8}),
            "model.layers.0.mlp.experts.gate_up_proj: found [4, 16, 32], want [8, 16, 32]",
        ),
        (
            json!({"quantization_config": {"quant_method": "mxfp4"}, "hidden_size": 48}),
            "model.layers.0.mlp.experts.down_proj: found [4, 16, 16], want [4, 16, 48]",
        ),
    ] {
        let text = refused_import("hf_gpt_oss", fields);
        assert!(text.contains(wanted), "{wanted} in {text}");
    }
}

#[test]
fn rotary_positions_of_a_file_without_them_are_those_of_the_class() {
    let mut golden = Golden::open("hf_gpt_oss");
    let config = golden.record["config"].as_object_mut().unwrap();
    config.shift_remove("rope_scaling");
    config.shift_remove("sliding_window");
    let folder = tempfile::tempdir().unwrap();
    crate::tests::hugging_face::saved(&mut golden, folder.path());
    let read = import_hf(folder.path(), &folder.path().join("out")).unwrap();
    let again = folder.path().join("again");
    export_hf(&read.checkpoint, &again).unwrap();
    let text = std::fs::read(again.join("config.json")).unwrap();
    let config: serde_json::Value = serde_json::from_slice(&text).unwrap();
    let wanted = json!({"rope_type": "yarn", "factor": 32.0, "original_max_position_embeddings": 4096,
        "beta_fast": 32.0, "beta_slow": 1.0, "truncate": false});
    assert_eq!(config["rope_scaling"], wanted);
    assert_eq!(config["sliding_window"], json!(128));
}

/// A trained model whose matrices of experts have 32 inputs.
fn wide() -> Plan {
    let mut plan = tiny_gpt_oss();
    plan.model.d_ffn = 32;
    plan
}

/// A block of numbers of four bits and its scale by the definition, for input `input` of an output: the code's number times a
/// power of two.
fn code(at: usize) -> (u8, f32) {
    let code = (at * 7 + at / 16 * 3) % 16;
    let magnitude = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0][code % 8];
    let sign = if code < 8 { 1.0 } else { -1.0 };
    (u8::try_from(code).unwrap(), sign * magnitude)
}

#[test]
fn experts_of_four_bits_are_read_as_the_numbers_that_they_stand_for() {
    let plan = wide();
    let dir = tempfile::tempdir().unwrap();
    let folder = |name: &str| dir.path().join(name);
    let samples = Chain::of(&plan);
    let done = run(&plan, &samples, None, &folder("run"), &Log::default()).unwrap();
    export_hf(&done.checkpoint, &folder("whole")).unwrap();
    let text = std::fs::read(folder("whole").join("config.json")).unwrap();
    let mut config: serde_json::Value = serde_json::from_slice(&text).unwrap();
    let mut reader = Reader::open(&folder("whole").join(MODEL)).unwrap();
    let entries: Vec<Entry> = reader.entries().cloned().collect();
    let is_stack = |name: &str| name.ends_with("gate_up_proj") || name.ends_with("down_proj");
    // the numbers that stand in their place, by expert, output and input
    let mut plain = Vec::new();
    let mut packed: Vec<(Entry, Format, Vec<u8>)> = Vec::new();
    for entry in &entries {
        let mut values = vec![0.0; entry.elements()];
        (reader.read_part(&entry.name, &entry.dims, 0, &mut values)).unwrap();
        if !is_stack(&entry.name) {
            let bytes = values.iter().flat_map(|x| x.to_le_bytes()).collect();
            packed.push((entry.clone(), Format::F32, bytes));
            plain.push((entry.clone(), values));
            continue;
        }
        let &[experts, inputs, outputs] = entry.dims.as_slice() else {
            panic!("{:?}", entry.dims)
        };
        let (mut blocks, mut scales) = (Vec::new(), Vec::new());
        for row in 0..experts * outputs {
            for input in (0..inputs).step_by(2) {
                let [low, high] = [0, 1].map(|half| code(row * inputs + input + half).0);
                blocks.push(low | high << 4);
            }
            scales.extend(
                (0..inputs / 32).map(|block| u8::try_from(120 + (row + block) % 5).unwrap()),
            );
            for input in 0..inputs {
                let exponent = 120 + (row + input / 32) % 5;
                let scale = 2_f32.powi(i32::try_from(exponent).unwrap() - 127);
                let at = (row / outputs * inputs + input) * outputs + row % outputs;
                values[at] = code(row * inputs + input).1 * scale;
            }
        }
        let of = |end: &str, dims: &[usize]| Entry {
            name: format!("{}{end}", entry.name),
            dims: dims.to_vec(),
        };
        let dims = [experts, outputs, inputs / 32, 16];
        packed.push((of("_blocks", &dims), Format::U8, blocks));
        packed.push((of("_scales", &dims[..3]), Format::U8, scales));
        plain.push((entry.clone(), values));
    }
    for name in ["plain", "packed"] {
        std::fs::create_dir(folder(name)).unwrap();
    }
    write_config(&folder("plain"), &config);
    let names = plain.iter().map(|(entry, _)| entry.clone()).collect();
    let mut writer = Writer::create(&folder("plain").join(MODEL), names, None).unwrap();
    plain
        .iter()
        .for_each(|(_, values)| writer.write(values).unwrap());
    writer.finish().unwrap();
    // as published, beside second names of fields
    config["quantization_config"] =
        json!({"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head"]});
    config["experts_per_token"] = json!(2);
    config["initial_context_length"] = json!(8);
    write_config(&folder("packed"), &config);
    let write = |packed: &[(Entry, Format, Vec<u8>)]| {
        let names = packed
            .iter()
            .map(|(entry, format, _)| (entry.clone(), *format));
        let path = folder("packed").join(MODEL);
        let mut writer = Writer::create_in(&path, names.collect(), None).unwrap();
        packed
            .iter()
            .for_each(|(_, _, bytes)| writer.write_bytes(bytes).unwrap());
        writer.finish().unwrap();
    };
    let scales = |of: &(Entry, Format, Vec<u8>)| of.0.name.ends_with("_scales");
    let mut without = packed.clone();
    without.iter_mut().find(|of| scales(of)).unwrap().2[0] = 255;
    write(&without);
    let refused = import_hf(&folder("packed"), &folder("none")).unwrap_err();
    let refused = refused.to_string();
    assert!(refused.contains("found a scale of 255"), "{refused}");
    write(&packed);
    let tokens: Vec<u32> = (0..16).map(|at| at * 7 % 61).collect();
    let [plain, packed] = ["plain", "packed"].map(|name| {
        let read = import_hf(&folder(name), &folder(&format!("{name}-read"))).unwrap();
        logits(&read.checkpoint, &tokens).unwrap()
    });
    assert_eq!(plain, packed);
}

#[test]
fn the_balance_loss_of_a_folder_counts_where_its_flag_is_set() {
    let plan = tiny_gpt_oss();
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("folder");
    export_hf(&trained(&plan, dir.path()), &folder).unwrap();
    let text = std::fs::read(folder.join("config.json")).unwrap();
    let mut config: serde_json::Value = serde_json::from_slice(&text).unwrap();
    assert_eq!(config["output_router_logits"], true);
    let imported = |name: &str| {
        let back = import_hf(&folder, &dir.path().join(name)).unwrap();
        let found = Model::load(&back.checkpoint, &Devices::Cpu).unwrap().plan;
        found.model.moe.unwrap().balance_loss
    };
    let own = plan.model.moe.as_ref().unwrap();
    assert_eq!(imported("own"), own.balance_loss);
    // of two choices, mean over layers there and sum here; 0.9 is the class's own coefficient
    let published = 0.9 * own.top_k as f64 / plan.model.layers as f64;
    config["router_aux_loss_coef"] = json!(0.9);
    write_config(&folder, &config);
    assert_eq!(imported("with"), published);
    config
        .as_object_mut()
        .unwrap()
        .remove("router_aux_loss_coef");
    write_config(&folder, &config);
    assert_eq!(imported("absent"), published);
    config["output_router_logits"] = json!(false);
    write_config(&folder, &config);
    assert_eq!(imported("without"), 0.0);
}

#[test]
fn layouts_of_gpt_oss_give_the_same_bits_and_the_predicted_memory() {
    let layouts = [
        "mb=1",
        "tp=2 sp dp=2 zero=2 mb=3",
        "cp=2 dp=2 mb=2",
        "pp=2 tp=2 full=1 mb=2",
    ];
    assert_same_in(&tiny_gpt_oss(), &layouts);
}

/// Experts that are shared out have no even choices, which the predicted memory counts.
#[test]
fn layouts_of_gpt_oss_with_experts_on_other_ranks_give_the_same_bits() {
    let wanted = train(&with(tiny_gpt_oss(), "mb=12"));
    for layout in ["dp=2 ep=2 tp=2 mb=3", "cp=2 dp=2 ep=2 mb=2"] {
        assert_same(&train(&with(tiny_gpt_oss(), layout)), &wanted, layout);
    }
}

/// One chosen expert and few tokens in a part: in most micro-batches a rank has none for its experts while the others of its
/// samples have some.
#[test]
fn ranks_without_tokens_for_their_experts_sum_gradients_in_the_order_of_the_others() {
    let mut plan = tiny_gpt_oss();
    plan.seq_length = 8;
    let moe = plan.model.moe.as_mut().unwrap();
    (moe.top_k, moe.score) = (1, RouterScore::SoftmaxTopK);
    let wanted = train(&with(plan.clone(), "mb=12"));
    let layout = "cp=4 dp=2 ep=2 mb=1";
    assert_same(&train(&with(plan, layout)), &wanted, layout);
}

#[test]
fn sinks_with_windows_in_a_llama_give_the_same_bits_on_every_kind_of_layout() {
    let mut plan = tiny_llama();
    (plan.model.attention_sinks, plan.model.sliding_window) = (Some(true), 5);
    (plan.model.dropout, plan.model.attention_dropout) = (0.1, 0.1);
    let layouts = [
        "dp=3 zero=2 mb=2",
        "cp=4 tp=2 sp mb=2",
        "selective pp=2 tp=2 mb=3",
    ];
    assert_same_in(&plan, &layouts);
}

#[test]
fn adapters_of_a_model_with_sinks_leave_them_and_give_the_same_bits_on_other_layouts() {
    let mut plan = tiny_llama();
    plan.model.attention_sinks = Some(true);
    plan.model.lora = Some(LoraConfig {
        targets: vec![LoraTarget::Qkv, LoraTarget::Out],
        ..LoraConfig::default()
    });
    assert_same_in(&plan, &["tp=2 sp dp=2 mb=3"]);
}

#[test]
fn choices_of_gpt_oss_that_a_model_lacks_are_refused() {
    for plan in [tiny_bert(), tiny_t5()] {
        let mut plan = plan;
        plan.model.attention_sinks = Some(true);
        let line = format!(
            "model.attention_sinks: found true with family = {:?}, want none: only decoders have a choice",
            plan.model.family
        );
        let found = plan.problems();
        assert!(found.contains(&line), "{found:?}");
    }
}

#[test]
fn models_that_the_class_of_gpt_oss_lacks_are_not_exported() {
    let mut plan = tiny_gpt_oss();
    let model = &mut plan.model;
    (model.attention_sinks, model.moe) = (Some(false), None);
    (model.activation, model.rotary_percent) = (Some(Activation::Swiglu), 0.5);
    let text = refused_export(&plan);
    for wanted in [
        "attention_sinks = false in gpt_oss",
        "no moe in gpt_oss",
        "activation = Swiglu in gpt_oss",
        "rotary_percent = 0.5 in gpt_oss",
    ] {
        assert!(text.contains(wanted), "{wanted} in {text}");
    }
    let mut plan = tiny_gpt_oss();
    plan.model.moe.as_mut().unwrap().biases = false;
    let text = refused_export(&plan);
    assert!(
        text.contains("or gpt-oss (as Mixtral with biases)"),
        "{text}"
    );
    let mut llama = tiny_llama();
    llama.model.attention_sinks = Some(true);
    llama.model.activation = Some(Activation::SwigluClamped);
    let wanted = [
        "attention_sinks = true in llama",
        "activation = SwigluClamped in llama",
    ];
    assert_eq!(inexpressible(&llama), wanted);
}
