//! Import of folders that transformers wrote, and training as there; exported models are imported bit for bit;
//! unsupported settings are refused by name. Goldens: tests/oracles/decoder_goldens.py, tolerances as in
//! `parity.rs`.

use std::fs;
use std::path::Path;

use kernels::{Device, Tensor};
use serde_json::{Value, json};

use crate::Error;
use crate::checkpoint::huggingface::outs::{Source, tensors};
use crate::checkpoint::safetensors::{Entry, Reader, Writer};
use crate::checkpoint::whole_model::Model;
use crate::checkpoint::{export_hf, export_hf_shards, import_hf};
use crate::config::Schedule;
use crate::config::{
    Activation, Biases, Determinism, Family, ModelConfig, MoeConfig, Plan, RopeScaling,
    RouterScore, TieEmbeddings,
};
use crate::data::Samples;
use crate::dist::devices::Devices;
use crate::dist::mesh::Groups;
use crate::eval::logits;
use crate::fixtures::{Blanks, Chain, Gaps, Log, nth_step};
use crate::fixtures::{
    tiny_bert, tiny_bloom, tiny_deepseek, tiny_deepseek_v2, tiny_gemma, tiny_gemma2, tiny_gpt,
    tiny_gpt_oss, tiny_llama, tiny_moe, tiny_t5,
};
use crate::model::param;
use crate::tests::parity::{Formula, Golden, by_tensor};
use crate::trainer::run;
use crate::trainer::step::Trainer;

pub(super) fn write_config(folder: &Path, config: &Value) {
    fs::write(folder.join("config.json"), config.to_string()).unwrap();
}

/// The folder that transformers would have saved.
pub(super) fn saved(golden: &mut Golden, folder: &Path) {
    write_config(folder, &golden.record["config"]);
    let weights = golden.tensors.entries().filter_map(|entry| {
        let name = entry.name.strip_prefix("weight.")?.to_owned();
        let dims = entry.dims.clone();
        Some(Entry { name, dims })
    });
    let weights: Vec<Entry> = weights.collect();
    let path = folder.join("model.safetensors");
    let mut writer = Writer::create(&path, weights.clone(), None).unwrap();
    for entry in weights {
        let values = golden.tensor(&format!("weight.{}", entry.name), &entry.dims);
        writer.write(&values).unwrap();
    }
    writer.finish().unwrap();
}

/// As the script trains.
pub(super) fn recipe(plan: &mut Plan, eod: &Value) {
    let train = &mut plan.train;
    (train.steps, train.global_batch, train.micro_batch) = (10, 4, 2);
    (train.lr, train.schedule, train.warmup_steps) = (1e-2, Schedule::Constant, 0);
    (train.weight_decay, train.beta1, train.beta2) = (0.1, 0.9, 0.95);
    (train.eps, train.clip_norm) = (1e-4, 0.5);
    plan.eod = eod.as_u64().map(|id| u32::try_from(id).unwrap());
    let is_packed = plan.eod.is_some();
    (train.reset_attention_mask, train.reset_position_ids) = (is_packed, is_packed);
    train.eod_mask_loss = is_packed;
    plan.determinism = Determinism::Layout;
    if let Some(moe) = &mut plan.model.moe {
        // transformers moves no biases of experts' scores
        moe.bias_update_rate = 0.0;
    }
}

pub(super) fn follows_transformers(name: &str) {
    let worst = follows(&mut Golden::open(&format!("hf_{name}")), true);
    println!("{name}: gradients, weights after ten steps in tolerances: {worst:.3?}");
}

pub(super) fn follows(golden: &mut Golden, with_logits: bool) -> [f64; 2] {
    let (folder, out) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    saved(golden, folder.path());
    let checkpoint = import_hf(folder.path(), out.path()).unwrap().checkpoint;
    let Model {
        mut plan, weights, ..
    } = Model::load(&checkpoint, &Devices::Cpu).unwrap();
    let specs = param::specs(&plan);
    recipe(&mut plan, &golden.record["eod"]);
    if with_logits && plan.eod.is_none() {
        let mut found = Vec::new();
        for sample in 0..4 {
            let tokens: Vec<u32> = (0..16).map(|at| Formula::token(sample, at)).collect();
            found.extend(logits(&checkpoint, &tokens).unwrap().concat());
        }
        let off = golden.difference("logits", &[4, 16, 61], &found);
        assert!(off <= 1.0, "logits are {off} tolerances off");
    }
    let mut trainer = Trainer::new(&plan, &specs, Groups::single(), Device::cpu()).unwrap();
    trainer.state.weights = weights;
    let named = |tensors_of: &[Tensor]| {
        tensors(&Source {
            plan: &plan,
            specs: &specs,
            tensors: tensors_of,
        })
    };
    let mut worst = [0.0; 2];
    for step in 0..10 {
        let next = nth_step(&plan, step as u64 + 1);
        let (loss, gradients) = trainer.gradients(&Formula, &next).unwrap();
        golden.scalar("losses", step, loss);
        for (number, loss) in (1..).zip(&trainer.further) {
            golden.scalar(&format!("mtp_{number}"), step, *loss);
        }
        if step == 0 {
            worst[0] = golden.assert_close("grad", &named(&by_tensor(&trainer, &gradients)));
        }
        let norm = trainer.norm(&gradients).unwrap();
        trainer.update(&gradients, norm, &next).unwrap();
        golden.scalar("grad_norms", step, norm);
    }
    worst[1] = golden.assert_close("final", &named(&trainer.state.weights));
    worst
}

#[test]
fn llama_with_stretched_positions_biases_and_wide_heads_follows_transformers_through_ten_steps() {
    follows_transformers("llama3");
}

#[test]
fn dynamic_scaling_starts_at_the_models_own_length_and_follows_transformers_through_ten_steps() {
    let mut golden = Golden::open("hf_dynamic");
    assert_eq!(golden.record["config"]["max_position_embeddings"], 12);
    let scaling = &golden.record["config"]["rope_parameters"];
    assert_eq!(scaling["original_max_position_embeddings"], 8);
    // the length of training, which the class has no field for
    golden.record["config"]["seq_length"] = json!(16);
    follows(&mut golden, true);
}

#[test]
fn mistral_with_a_window_smaller_than_the_sequence_follows_transformers_through_ten_steps() {
    follows_transformers("mistral");
}

#[test]
fn qwen2_follows_transformers_through_ten_steps() {
    follows_transformers("qwen2");
}

#[test]
fn phi3_follows_transformers_through_ten_steps() {
    follows_transformers("phi3");
}

#[test]
#[should_panic(expected = "losses of step 0")]
fn a_share_of_turned_features_that_is_not_read_is_noticed() {
    let mut golden = Golden::open("hf_phi3");
    golden.record["config"]["partial_rotary_factor"] = json!(1.0);
    follows(&mut golden, false);
}

#[test]
fn scaled_lengths_of_phi3_are_not_exported() {
    let mut plan = tiny_llama();
    plan.model.family = Family::Phi3;
    plan.model.rope_scaling = Some(RopeScaling::Linear { factor: 2.0 });
    let folder = tempfile::tempdir().unwrap();
    let checkpoint = trained(&plan, folder.path());
    let refused = export_hf(&checkpoint, &folder.path().join("hf"));
    let text = refused.unwrap_err().to_string();
    assert!(text.contains("rope_scaling in phi3"), "{text}");
}

#[test]
fn fields_of_phi3_that_nothing_reads_are_refused() {
    let mut golden = Golden::open("hf_phi3");
    let folder = tempfile::tempdir().unwrap();
    saved(&mut golden, folder.path());
    for (field, value, wanted) in [
        ("resid_pdrop", json!(0.1), "resid_pdrop: found 0.1"),
        (
            "rope_scaling",
            json!({"type": "longrope", "short_factor": [1.0], "long_factor": [2.0]}),
            "found longrope",
        ),
        ("attention_bias", json!(true), "attention_bias: found true"),
    ] {
        let mut config = golden.record["config"].clone();
        config[field] = value;
        write_config(folder.path(), &config);
        let error = import_hf(folder.path(), &folder.path().join("out")).unwrap_err();
        assert!(error.to_string().contains(wanted), "{error}");
    }
}

#[test]
fn qwen3_follows_transformers_through_ten_steps() {
    follows_transformers("qwen3");
}

#[test]
fn packed_documents_follow_torch_through_ten_steps() {
    follows_transformers("gpt2_packed");
    follows_transformers("llama_packed");
}

/// The message about the folder of a golden with other fields in its config.
pub(super) fn refused_import(name: &str, fields: Value) -> String {
    let folder = tempfile::tempdir().unwrap();
    let mut golden = Golden::open(name);
    saved(&mut golden, folder.path());
    let mut config = golden.record["config"].clone();
    for (field, value) in fields.as_object().unwrap() {
        config[field] = value.clone();
    }
    write_config(folder.path(), &config);
    let refused = import_hf(folder.path(), &folder.path().join("out"));
    refused.unwrap_err().to_string()
}

/// The message about an export of a trained model of the plan.
pub(super) fn refused_export(plan: &Plan) -> String {
    let folder = tempfile::tempdir().unwrap();
    let checkpoint = trained(plan, folder.path());
    let refused = export_hf(&checkpoint, &folder.path().join("hf"));
    refused.unwrap_err().to_string()
}

/// Families with every option that their classes can express.
fn exportable() -> Vec<Plan> {
    let with = |mut plan: Plan, family, set: fn(&mut ModelConfig)| {
        plan.model.family = family;
        set(&mut plan.model);
        plan
    };
    vec![
        tiny_gpt(),
        with(tiny_gpt(), Family::Gpt, |model| {
            (model.activation, model.tie_embeddings) =
                (Some(Activation::SquaredRelu), TieEmbeddings::Untied);
            (model.dropout, model.attention_dropout, model.d_ffn) = (0.1, 0.2, 72);
        }),
        with(tiny_llama(), Family::Llama, |model| {
            (model.bias, model.activation) = (Some(Biases::All), Some(Activation::GegluTanh));
            (model.head_dim, model.tie_embeddings) = (12, TieEmbeddings::Tied);
            model.rope_scaling = Some(RopeScaling::Llama3 {
                factor: 8.0,
                low_freq_factor: 1.0,
                high_freq_factor: 4.0,
                original_length: 8,
            });
        }),
        tiny_moe(),
        with(tiny_llama(), Family::Llama, |model| {
            (model.d_ffn, model.moe) = (0, Some(MoeConfig::default()));
        }),
        tiny_bert(),
        with(tiny_bert(), Family::Bert, |model| {
            (model.next_sentence, model.tie_embeddings) = (true, TieEmbeddings::Untied);
        }),
        with(tiny_bert(), Family::Bert, |model| {
            (model.post_norm, model.dropout) = (true, 0.1);
        }),
        tiny_t5(),
        with(tiny_t5(), Family::T5, |model| {
            (model.activation, model.head_dim) = (Some(Activation::GegluTanh), 12);
            (model.tie_embeddings, model.decoder_layers) = (TieEmbeddings::Untied, 3);
            (model.dropout, model.attention_dropout) = (0.1, 0.1);
        }),
        with(tiny_llama(), Family::Mistral, |model| {
            (model.sliding_window, model.rope_theta) = (6, 1e6);
        }),
        with(tiny_gpt(), Family::Falcon, |model| model.kv_heads = 1),
        with(tiny_gpt(), Family::Falcon, |model| {
            (model.kv_heads, model.bias) = (2, Some(Biases::All));
            model.rope_theta = 500.0;
        }),
        with(tiny_gpt(), Family::Falcon, |model| {
            (model.kv_heads, model.shared_norm) = (2, Some(false));
            model.tie_embeddings = TieEmbeddings::Untied;
        }),
        with(tiny_gpt(), Family::Falcon, |model| {
            (model.parallel_residual, model.shared_norm) = (Some(false), Some(false));
        }),
        with(tiny_bloom(), Family::Bloom, |model| {
            (model.dropout, model.attention_dropout) = (0.1, 0.2);
            (model.norm_eps, model.tie_embeddings) = (1e-6, TieEmbeddings::Untied);
        }),
        with(tiny_gpt(), Family::Opt, |model| {
            (model.dropout, model.attention_dropout) = (0.1, 0.1);
        }),
        with(tiny_gpt(), Family::Opt, |model| {
            (model.activation, model.init_std) = (Some(Activation::Gelu), 0.01);
            model.tie_embeddings = TieEmbeddings::Untied;
        }),
        with(tiny_gpt(), Family::GptNeox, |model| {
            (model.rotary_percent, model.dropout) = (0.25, 0.1);
        }),
        with(tiny_gpt(), Family::GptNeox, |model| {
            (model.parallel_residual, model.activation) = (Some(false), Some(Activation::Relu));
            (model.rope_theta, model.tie_embeddings) = (500.0, TieEmbeddings::Tied);
        }),
        with(tiny_llama(), Family::Phi3, |model| {
            (model.sliding_window, model.rotary_percent) = (6, 0.5);
        }),
        with(tiny_llama(), Family::Olmo2, |model| {
            (model.head_dim, model.attention_dropout) = (12, 0.1);
        }),
        tiny_gemma(),
        tiny_gemma2(),
        tiny_gpt_oss(),
        tiny_deepseek(),
        tiny_deepseek_v2(),
        with(tiny_llama(), Family::Gemma2, |model| {
            (model.logit_cap, model.tie_embeddings) = (30.0, TieEmbeddings::Untied);
        }),
        with(tiny_llama(), Family::Gemma3, |model| {
            (model.activation, model.attention_dropout) = (Some(Activation::Geglu), 0.1);
            model.tie_embeddings = TieEmbeddings::Untied;
        }),
        with(tiny_llama(), Family::Gemma3, |model| {
            (model.sliding_window, model.local_rope_theta) = (6, 1e3);
            model.rope_scaling = Some(RopeScaling::Linear { factor: 8.0 });
        }),
        with(tiny_llama(), Family::Qwen2, |model| {
            (model.sliding_window, model.norm_eps) = (6, 1e-6);
            model.rope_scaling = Some(RopeScaling::Dynamic {
                factor: 2.0,
                original_length: 8,
            });
        }),
        with(tiny_llama(), Family::Llama, |model| {
            model.moe = Some(MoeConfig {
                experts: 4,
                ..MoeConfig::default()
            });
        }),
        with(tiny_llama(), Family::Llama, |model| {
            model.moe = Some(MoeConfig {
                every: 2,
                ..qwen_moe()
            });
        }),
        with(tiny_llama(), Family::Qwen2, |model| {
            model.moe = Some(MoeConfig {
                dense_first: 1,
                score: RouterScore::TopKSoftmax,
                ..qwen_moe()
            });
        }),
        with(tiny_llama(), Family::Qwen3, |model| {
            model.head_dim = 12;
            model.rope_scaling = Some(RopeScaling::Yarn {
                factor: 4.0,
                original_length: 8,
                beta_fast: 32.0,
                beta_slow: 1.0,
                attention_factor: Some(1.25),
                mscale: None,
                mscale_all_dim: None,
                truncate: true,
            });
        }),
    ]
}

fn qwen_moe() -> MoeConfig {
    MoeConfig {
        experts: 4,
        d_ffn: 24,
        score: RouterScore::SoftmaxTopK,
        shared_d_ffn: 16,
        shared_gate: true,
        ..MoeConfig::default()
    }
}

/// A trained checkpoint of the plan.
pub(super) fn trained(plan: &Plan, folder: &Path) -> std::path::PathBuf {
    let mut plan = plan.clone();
    (plan.train.steps, plan.train.warmup_steps) = (2, 1);
    let (text, masked, spans) = (Chain::of(&plan), Blanks::of(&plan), Gaps::of(&plan));
    let samples: &dyn Samples = match plan.model.family {
        Family::Bert => &masked,
        Family::T5 => &spans,
        _ => &text,
    };
    let outcome = run(&plan, samples, Some(samples), folder, &Log::default());
    outcome.unwrap().checkpoint
}

#[test]
fn what_is_exported_comes_back_bit_for_bit() {
    for plan in exportable() {
        let folder = tempfile::tempdir().unwrap();
        let checkpoint = trained(&plan, folder.path());
        let hf = folder.path().join("hf");
        export_hf(&checkpoint, &hf).unwrap();
        let back = import_hf(&hf, &folder.path().join("back"))
            .unwrap()
            .checkpoint;
        let read = |at: &Path| fs::read(at.join("model.safetensors")).unwrap();
        assert!(read(&checkpoint) == read(&back), "{:?}", plan.model);
        let found = Model::load(&back, &Devices::Cpu).unwrap().plan;
        assert_eq!(found.vocab, plan.vocab);
        let lengths = |plan: &Plan| (plan.seq_length, plan.decoder_length, plan.start);
        assert_eq!(lengths(&found), lengths(&plan));
        assert_eq!(found.model.architecture(), plan.model.architecture());
        let again = folder.path().join("again");
        export_hf(&back, &again).unwrap();
        for file in ["config.json", "model.safetensors"] {
            let read = |at: &Path| fs::read(at.join(file)).unwrap();
            assert!(read(&hf) == read(&again), "{file} of {:?}", plan.model);
        }
    }
}

#[test]
fn an_import_has_the_bits_of_any_number_of_ranks_where_its_length_divides() {
    for (length, wanted) in [(16, Determinism::Layout), (20, Determinism::Run)] {
        let mut plan = tiny_llama();
        (plan.seq_length, plan.determinism) = (length, wanted);
        let folder = tempfile::tempdir().unwrap();
        let hf = folder.path().join("hf");
        export_hf(&trained(&plan, folder.path()), &hf).unwrap();
        let back = import_hf(&hf, &folder.path().join("back")).unwrap();
        let found = Model::load(&back.checkpoint, &Devices::Cpu).unwrap().plan;
        assert_eq!((found.seq_length, found.determinism), (length, wanted));
    }
}

/// Splits an exported model into two files of bf16 numbers, truncated to bf16, with an index.
fn in_sharded_bf16(hf: &Path) {
    let path = hf.join("model.safetensors");
    let mut reader = Reader::open(&path).unwrap();
    let entries: Vec<Entry> = reader.entries().cloned().collect();
    let mut map = serde_json::Map::new();
    for (number, part) in entries.chunks(entries.len().div_ceil(2)).enumerate() {
        let name = format!("model-{number}.safetensors");
        let (mut header, mut data) = (serde_json::Map::new(), Vec::new());
        for entry in part {
            let mut values = vec![0.0f32; entry.dims.iter().product()];
            reader
                .read_part(&entry.name, &entry.dims, 0, &mut values)
                .unwrap();
            let begin = data.len();
            for value in values {
                data.extend_from_slice(&value.to_bits().to_le_bytes()[2..]);
            }
            let value =
                json!({"dtype": "BF16", "shape": entry.dims, "data_offsets": [begin, data.len()]});
            header.insert(entry.name.clone(), value);
            map.insert(entry.name.clone(), json!(name));
        }
        let header = Value::Object(header).to_string();
        let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
        bytes.extend_from_slice(header.as_bytes());
        bytes.extend_from_slice(&data);
        fs::write(hf.join(name), bytes).unwrap();
    }
    let index = json!({"metadata": {}, "weight_map": map});
    fs::write(hf.join("model.safetensors.index.json"), index.to_string()).unwrap();
    fs::remove_file(path).unwrap();
}

#[test]
fn shards_of_sixteen_bit_numbers_are_read_and_widened() {
    let folder = tempfile::tempdir().unwrap();
    let checkpoint = trained(&tiny_llama(), folder.path());
    let hf = folder.path().join("hf");
    export_hf(&checkpoint, &hf).unwrap();
    in_sharded_bf16(&hf);
    let back = import_hf(&hf, &folder.path().join("back"))
        .unwrap()
        .checkpoint;
    let (ours, found) = (
        Model::load(&checkpoint, &Devices::Cpu).unwrap(),
        Model::load(&back, &Devices::Cpu).unwrap(),
    );
    for (ours, found) in ours.weights.iter().zip(&found.weights) {
        let cut = ours
            .host::<f32>()
            .unwrap()
            .iter()
            .map(|x| f32::from_bits(x.to_bits() & 0xffff_0000));
        assert!(cut.eq(found.host::<f32>().unwrap().iter().copied()));
    }
    fs::remove_file(hf.join("model-1.safetensors")).unwrap();
    let missing = import_hf(&hf, &folder.path().join("again")).unwrap_err();
    assert!(
        missing.to_string().contains("model-1.safetensors"),
        "{missing}"
    );
}

#[test]
fn fields_and_tensors_that_do_not_fit_are_refused_by_name_all_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let checkpoint = trained(&tiny_llama(), folder.path());
    let hf = folder.path().join("hf");
    export_hf(&checkpoint, &hf).unwrap();
    let text = fs::read(hf.join("config.json")).unwrap();
    let config: Value = serde_json::from_slice(&text).unwrap();
    let refused = |change: &dyn Fn(&mut Value)| {
        let mut config = config.clone();
        change(&mut config);
        write_config(&hf, &config);
        match import_hf(&hf, &folder.path().join("back")) {
            Err(Error::Foreign { problems, .. }) => problems.join("\n"),
            other => panic!("{other:?}"),
        }
    };
    let found = refused(&|config| {
        config["attention_bias"] = json!(true);
        config["hidden_act"] = json!("mish");
        config["logit_cap"] = json!(30.0);
        config["rope_parameters"]["rope_type"] = json!("longrope");
        config["rope_theta"] = json!(5.0);
        config.as_object_mut().unwrap().remove("hidden_size");
    });
    for wanted in [
        "mlp_bias: found false, want attention_bias = true",
        "hidden_act: found mish, want silu",
        "logit_cap: found 30.0, want no such field",
        "rope_parameters.rope_type: found longrope",
        "rope_parameters.rope_theta: found 10000, want rope_theta = 5",
        "hidden_size: found nothing, want a count",
    ] {
        assert!(found.contains(wanted), "{wanted}\nin\n{found}");
    }
    let found = refused(&|config| config["model_type"] = json!("mamba"));
    assert!(found.contains("model_type: found mamba"), "{found}");
    let found = refused(&|config| {
        config["intermediate_size"] = json!(56);
        config["num_hidden_layers"] = json!(1);
    });
    for wanted in [
        "model.layers.0.mlp.gate_proj.weight: found [48, 32], want [56, 32]",
        "model.layers.1.input_layernorm.weight: found, want no such tensor",
    ] {
        assert!(found.contains(wanted), "{wanted}\nin\n{found}");
    }
    let found = refused(&|config| config["num_attention_heads"] = json!(0));
    assert!(found.contains("heads: found 0"), "{found}");
}

#[test]
fn a_model_that_its_class_cannot_be_told_is_not_exported() {
    let mut plan = tiny_llama();
    (plan.model.sliding_window, plan.model.rotary_percent) = (4, 0.5);
    (plan.model.bias, plan.model.dropout) = (Some(Biases::Qkv), 0.1);
    let folder = tempfile::tempdir().unwrap();
    let checkpoint = trained(&plan, folder.path());
    let refused = export_hf(&checkpoint, &folder.path().join("hf"));
    let text = refused.unwrap_err().to_string();
    for wanted in [
        "sliding_window = 4",
        "rotary_percent = 0.5",
        "bias = Qkv",
        "dropout = 0.1",
    ] {
        assert!(text.contains(wanted), "{wanted} in {text}");
    }
}

#[test]
#[should_panic(expected = "losses of step 0")]
fn a_window_of_one_more_key_is_noticed() {
    let mut golden = Golden::open("hf_mistral");
    golden.record["config"]["sliding_window"] = json!(6);
    follows(&mut golden, false);
}

#[test]
fn an_export_in_several_files_is_the_same_model_and_leaves_no_other_behind() {
    let plan = tiny_llama();
    let dir = tempfile::tempdir().unwrap();
    let samples = Chain::of(&plan);
    let trained = run(&plan, &samples, None, dir.path(), &Log::default()).unwrap();
    let out = dir.path().join("hf");
    let names = || {
        let entries = fs::read_dir(&out).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().display().to_string());
        let mut names: Vec<String> = names.filter(|name| name != "config.json").collect();
        names.sort();
        names
    };
    let weights = |imported: &Path| fs::read(imported.join("model.safetensors")).unwrap();
    let mut bytes = 0;
    for max_bytes in [20_000, 40_000, u64::MAX, 30_000] {
        export_hf_shards(&trained.checkpoint, &out, Some(max_bytes)).unwrap();
        let (found, index) = (names(), out.join("model.safetensors.index.json"));
        if max_bytes == u64::MAX {
            assert_eq!(found, ["model.safetensors"]);
            bytes = fs::metadata(out.join("model.safetensors")).unwrap().len();
        } else {
            let count = found.len() - 1;
            assert!(count as u64 >= 70_000 / max_bytes, "{found:?}");
            assert_eq!(found[0], format!("model-00001-of-{count:05}.safetensors"));
            let index: Value = serde_json::from_slice(&fs::read(index).unwrap()).unwrap();
            assert_eq!(index["weight_map"]["lm_head.weight"], found[count - 1]);
            let total = index["metadata"]["total_size"].as_u64().unwrap();
            assert!(bytes == 0 || total < bytes && total + 4000 > bytes);
        }
        let back = dir.path().join(format!("back{max_bytes}"));
        let imported = import_hf(&out, &back).unwrap().checkpoint;
        assert!(weights(&imported) == weights(&trained.checkpoint));
    }
}

/// A folder with an exported model, and its configuration to change.
fn exported(plan: &Plan, folder: &Path) -> (std::path::PathBuf, std::path::PathBuf, Value) {
    let checkpoint = trained(plan, folder);
    let hf = folder.join("hf");
    export_hf(&checkpoint, &hf).unwrap();
    let text = fs::read(hf.join("config.json")).unwrap();
    (checkpoint, hf, serde_json::from_slice(&text).unwrap())
}

#[test]
fn fields_of_published_files_that_change_nothing_are_noted_and_others_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (checkpoint, hf, mut config) = exported(&tiny_llama(), folder.path());
    config["is_llama_config"] = json!(true);
    config["rope_interleaved"] = json!(false);
    config["use_mrope"] = json!(false);
    config["transformers.js_config"] = json!({"dtype": "q4"});
    write_config(&hf, &config);
    let imported = import_hf(&hf, &folder.path().join("back")).unwrap();
    let notes = imported.notes.join("\n");
    for name in [
        "is_llama_config = true",
        "rope_interleaved = false",
        "use_mrope = false",
        "transformers.js_config = {\"dtype\":\"q4\"}",
    ] {
        assert!(notes.contains(&format!("{name} is ignored")), "{notes}");
    }
    let read = |at: &Path| fs::read(at.join("model.safetensors")).unwrap();
    assert!(read(&checkpoint) == read(&imported.checkpoint));
    for name in ["rope_interleaved", "use_mrope"] {
        let mut config = config.clone();
        config[name] = json!(true);
        write_config(&hf, &config);
        let error = import_hf(&hf, &folder.path().join("no")).unwrap_err();
        let error = error.with_causes();
        assert!(error.contains(&format!("{name}: found true")), "{error}");
    }
}

#[test]
fn numbers_larger_than_the_files_are_refused_before_they_are_obeyed() {
    let folder = tempfile::tempdir().unwrap();
    let (_, hf, config) = exported(&tiny_llama(), folder.path());
    for (field, value) in [
        ("num_hidden_layers", 100_000_000u64),
        ("head_dim", 1 << 62),
        ("head_dim", 1_000_000_000),
        ("hidden_size", u64::MAX),
        ("intermediate_size", 1 << 40),
        ("num_attention_heads", 1 << 61),
        ("num_key_value_heads", 1 << 61),
        ("vocab_size", 1 << 31),
        ("max_position_embeddings", 1 << 60),
    ] {
        let mut config = config.clone();
        config[field] = json!(value);
        write_config(&hf, &config);
        match import_hf(&hf, &folder.path().join("back")) {
            Err(Error::Foreign { problems, .. }) => {
                let line = problems.iter().any(|line| line.contains("want at most"));
                assert!(line, "{field}: {problems:?}");
            }
            other => panic!("{field}: {other:?}"),
        }
    }
}

#[test]
fn norms_with_tensorflows_names_are_those_of_today() {
    let mut plan = tiny_bert();
    plan.model.post_norm = true;
    let folder = tempfile::tempdir().unwrap();
    let (checkpoint, hf, _) = exported(&plan, folder.path());
    let path = hf.join("model.safetensors");
    let mut bytes = fs::read(&path).unwrap();
    let header = 8 + usize::try_from(u64::from_le_bytes(bytes[..8].try_into().unwrap())).unwrap();
    let text = String::from_utf8(bytes[8..header].to_vec()).unwrap();
    let old = text
        .replace("LayerNorm.weight", "LayerNorm.gamma")
        .replace("LayerNorm.bias", "LayerNorm.beta");
    assert_ne!(text, old);
    let old = format!("{old:<width$}", width = old.len().next_multiple_of(8));
    let mut whole = (old.len() as u64).to_le_bytes().to_vec();
    whole.extend(old.as_bytes());
    whole.extend(bytes.drain(header..));
    fs::write(&path, whole).unwrap();
    let back = import_hf(&hf, &folder.path().join("back"))
        .unwrap()
        .checkpoint;
    let read = |at: &Path| fs::read(at.join("model.safetensors")).unwrap();
    assert!(read(&checkpoint) == read(&back));
}
