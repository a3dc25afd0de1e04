//! Prompt tuning and p-tuning beside PEFT: ten steps as torch's, PEFT's folders as models, ours read back, and damaged ones. The goldens
//! are described in tests/oracles/prompt_goldens.py. Tolerances as in `parity`.

use std::fs;
use std::path::{Path, PathBuf};

use kernels::{Device, Tensor};
use serde_json::{Value, json};

use crate::checkpoint::safetensors::{Entry, Reader, Writer};
use crate::checkpoint::whole_model::Model;
use crate::checkpoint::{MODEL, check_init, export_hf, export_peft, import_hf};
use crate::config::{EncoderKind, PromptConfig, PromptEncoder};
use crate::data::Samples;
use crate::dist::devices::Devices;
use crate::dist::mesh::Groups;
use crate::eval::logits;
use crate::fixtures::nth_step;
use crate::model::context::{Context, Weights};
use crate::model::param;
use crate::model::slots::Slots;
use crate::model::virtual_rows::VirtualRows;
use crate::tests::hugging_face::{recipe, write_config};
use crate::tests::parity::{Formula, Golden};
use crate::tests::prompt::{Prompted, values};
use crate::trainer::step::Trainer;

/// The folders that transformers and PEFT would have saved.
pub(super) fn saved(golden: &mut Golden, folder: &Path, rows: &[f32]) -> [PathBuf; 2] {
    let [base, adapter] = ["base", "adapter"].map(|name| folder.join(name));
    for folder in [&base, &adapter] {
        fs::create_dir(folder).unwrap();
    }
    write_config(&base, &golden.record["config"]);
    let entries = golden.tensors.entries().filter_map(|entry| {
        let name = entry.name.strip_prefix("weight.")?.to_owned();
        let dims = entry.dims.clone();
        (!name.starts_with("encoder.")).then_some(Entry { name, dims })
    });
    let entries: Vec<Entry> = entries.collect();
    let mut writer = Writer::create(&base.join(MODEL), entries.clone(), None).unwrap();
    for entry in entries {
        let name = format!("weight.{}", entry.name);
        writer.write(&golden.tensor(&name, &entry.dims)).unwrap();
    }
    writer.finish().unwrap();
    write_rows(&adapter, rows, [5, 16]);
    let mut config = golden.record["adapter_config"].clone();
    config["base_model_name_or_path"] = json!("../base");
    fs::write(adapter.join("adapter_config.json"), config.to_string()).unwrap();
    [base, adapter]
}

fn write_rows(adapter: &Path, rows: &[f32], dims: [usize; 2]) {
    let entry = Entry {
        name: "prompt_embeddings".into(),
        dims: dims.to_vec(),
    };
    let path = adapter.join("adapter_model.safetensors");
    let mut writer = Writer::create(&path, vec![entry], None).unwrap();
    writer.write(rows).unwrap();
    writer.finish().unwrap();
}

/// Ten steps of the golden's model, whose virtual tokens are made by an encoder or not, on texts with these in front.
fn follows_peft(name: &str, encoder: Option<PromptEncoder>) {
    let samples = Prompted {
        of: Formula,
        count: 5,
        texts: 1,
    };
    follows_torch(name, five(encoder), &samples);
}

/// Five virtual tokens, which an encoder makes or not.
pub(super) fn five(encoder: Option<PromptEncoder>) -> PromptConfig {
    PromptConfig {
        virtual_tokens: 5,
        encoder,
        ..PromptConfig::default()
    }
}

/// Ten steps of the golden's model on these samples.
pub(super) fn follows_torch(name: &str, prompt: PromptConfig, samples: &dyn Samples) {
    let mut golden = Golden::open(name);
    let dims = [prompt.virtual_tokens, 16];
    let folder = tempfile::tempdir().unwrap();
    let [base, _] = saved(&mut golden, folder.path(), &[0.0; 80]);
    let checkpoint = import_hf(&base, &folder.path().join("out"))
        .unwrap()
        .checkpoint;
    let Model {
        mut plan, weights, ..
    } = Model::load(&checkpoint, &Devices::Cpu).unwrap();
    recipe(&mut plan, &Value::Null);
    plan.seq_length = 16;
    plan.model.prompt = Some(prompt);
    let specs = param::specs(&plan);
    let theirs = |name: &str| {
        let name = name.strip_prefix("prompt.").unwrap();
        let within = if name == "weight" { "embedding." } else { "" };
        format!("encoder.{within}{name}")
    };
    let mut trainer = Trainer::new(&plan, &specs, Groups::single(), Device::cpu()).unwrap();
    let mut base = weights.into_iter();
    for (spec, weight) in specs.iter().zip(&mut trainer.state.weights) {
        *weight = match spec.is_frozen {
            true => base.next().unwrap(),
            false => {
                let values = golden.tensor(&format!("weight.{}", theirs(&spec.name)), &spec.dims);
                Tensor::from_f32(&spec.dims, &values, &Device::cpu()).unwrap()
            }
        };
    }
    let rows = |trainer: &Trainer<'_>| {
        let slots = Slots::on(&trainer.state.groups.place, &specs);
        let own = VirtualRows::named(&plan, &slots).unwrap();
        let weights = Weights::All(&trainer.state.weights, None);
        let cx = Context::of(&plan, weights, &trainer.state.groups);
        values(&own.all(&cx).unwrap())
    };
    let off = golden.difference("first", &dims, &rows(&trainer));
    assert!(off <= 1.0, "{name}: first rows are {off} tolerances off");
    for step in 0..10 {
        let next = nth_step(&plan, step as u64 + 1);
        let (loss, gradients) = trainer.gradients(samples, &next).unwrap();
        golden.scalar("losses", step, loss);
        if step == 0 {
            let mut count = 0;
            let own = &trainer.state.local_shards;
            for (index, gradient) in gradients.iter().enumerate() {
                let unit = &own.shards.units[own.local[index].unit];
                let flat = values(gradient);
                for piece in unit.pieces(own.moments(index)) {
                    let spec = &specs[piece.spec];
                    let found = &flat[piece.at..piece.at + piece.local.len()];
                    let name = format!("grad.{}", theirs(&spec.name));
                    let off = golden.difference(&name, &spec.dims, found);
                    assert!(off <= 1.0, "{name} is {off} tolerances off");
                    // a hundredth more is found
                    let wrong: Vec<f32> = found.iter().map(|x| 1.01 * x).collect();
                    assert!(golden.difference(&name, &spec.dims, &wrong) > 1.0, "{name}");
                    count += 1;
                }
            }
            assert_eq!(count, specs.iter().filter(|spec| !spec.is_frozen).count());
        }
        let norm = trainer.norm(&gradients).unwrap();
        golden.scalar("grad_norms", step, norm);
        trainer.update(&gradients, norm, &next).unwrap();
    }
    for (spec, weight) in specs.iter().zip(&trainer.state.weights) {
        if !spec.is_frozen {
            let name = format!("final.{}", theirs(&spec.name));
            let off = golden.difference(&name, &spec.dims, &values(weight));
            assert!(off <= 1.0, "{name} is {off} tolerances off");
        }
    }
    let found = rows(&trainer);
    let off = golden.difference("last", &dims, &found);
    assert!(off <= 1.0, "{name}: last rows are {off} tolerances off");
    assert!(
        golden.difference("first", &dims, &found) > 1e3,
        "they moved"
    );
}

#[test]
fn gpt2_and_llama_with_virtual_tokens_follow_peft_through_ten_steps() {
    follows_peft("prompt_gpt2", None);
    follows_peft("prompt_llama", None);
}

#[test]
fn encoders_of_p_tuning_follow_peft_through_ten_steps() {
    for (name, kind, hidden) in [
        ("prompt_mlp", EncoderKind::Mlp, 12),
        ("prompt_lstm", EncoderKind::Lstm, 6),
    ] {
        let encoder = PromptEncoder {
            kind,
            hidden,
            layers: 2,
        };
        follows_peft(name, Some(encoder));
    }
}

#[test]
fn a_folder_of_peft_answers_as_peft_does_and_ours_is_read_back() {
    for name in ["prompt_gpt2", "prompt_llama", "prompt_mlp", "prompt_lstm"] {
        let mut golden = Golden::open(name);
        let folder = tempfile::tempdir().unwrap();
        let rows = golden.tensor("first", &[5, 16]);
        let [base, adapter] = saved(&mut golden, folder.path(), &rows);
        let read = import_hf(&adapter, &folder.path().join("out")).unwrap();
        let wanted = golden.tensor("logits", &[4, 16, 61]);
        let mut found = wanted.clone();
        for sample in 0..4 {
            let tokens: Vec<u32> = (0..11).map(|at| Formula::token(sample, at)).collect();
            let rows = logits(&read.checkpoint, &tokens).unwrap().concat();
            assert_eq!(rows.len(), 11 * 61);
            let end = usize::try_from(sample + 1).unwrap() * 16 * 61;
            found[end - rows.len()..end].copy_from_slice(&rows);
        }
        let off = golden.difference("logits", &[4, 16, 61], &found);
        assert!(
            off > 0.0 && off <= 1.0,
            "{name}: logits are {off} tolerances off"
        );
        let refused = logits(&read.checkpoint, &[3; 12]).unwrap_err().to_string();
        assert!(refused.contains("1 to 11 tokens"), "{refused}");
        let refused = logits(&read.checkpoint, &[1 << 29]).unwrap_err();
        assert!(refused.to_string().contains("vocabulary"), "{refused}");
        // a model to start from, too
        let plan = Model::load(&read.checkpoint, &Devices::Cpu).unwrap().plan;
        check_init(&adapter, &plan, true).unwrap();
        let error = check_init(&base, &plan, true);
        assert!(error.is_ok(), "new virtual tokens on the base");

        let again = folder.path().join("again");
        export_peft(&read.checkpoint, &again).unwrap();
        let mut file = Reader::open(&again.join("adapter_model.safetensors")).unwrap();
        let mut found = vec![0.0; 80];
        file.read_part("prompt_embeddings", &[5, 16], 0, &mut found)
            .unwrap();
        assert_eq!(found, rows);
        let error = export_hf(&read.checkpoint, &folder.path().join("hf")).unwrap_err();
        assert!(error.to_string().contains("--to peft"), "{error}");
    }
}

#[test]
fn folders_of_virtual_tokens_that_do_not_fit_are_refused_by_name() {
    let mut golden = Golden::open("prompt_llama");
    let folder = tempfile::tempdir().unwrap();
    let [_, adapter] = saved(&mut golden, folder.path(), &[0.5; 80]);
    let path = adapter.join("adapter_config.json");
    let good: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    let refused = |change: &dyn Fn(&mut Value)| {
        let mut config = good.clone();
        change(&mut config);
        fs::write(&path, config.to_string()).unwrap();
        let error = import_hf(&adapter, &folder.path().join("out")).unwrap_err();
        fs::write(&path, good.to_string()).unwrap();
        error.with_causes()
    };
    for (key, value, wanted) in [
        (
            "peft_type",
            json!("PREFIX_TUNING"),
            "peft_type: found \"PREFIX_TUNING\", want \"LORA\"",
        ),
        (
            "num_virtual_tokens",
            json!(0),
            "num_virtual_tokens: found 0, want a whole number",
        ),
        (
            "num_virtual_tokens",
            json!(6),
            "want prompt_embeddings [6, 16]",
        ),
        (
            "num_transformer_submodules",
            json!(2),
            "num_transformer_submodules: found 2, want 1",
        ),
        (
            "modules_to_save",
            json!(["lm_head"]),
            "modules_to_save: found [\"lm_head\"]",
        ),
    ] {
        let error = refused(&|config| config[key] = value.clone());
        assert!(error.contains(wanted), "{error} wants {wanted}");
    }
    write_rows(&adapter, &[0.5; 16 * 16], [16, 16]);
    let error = refused(&|config| config["num_virtual_tokens"] = json!(16));
    assert!(error.contains("fewer than seq_length = 16"), "{error}");
    let weights = adapter.join("adapter_model.safetensors");
    let bytes = fs::read(&weights).unwrap();
    fs::write(&weights, &bytes[..bytes.len() / 2]).unwrap();
    let error = refused(&|_| {});
    assert!(error.contains("adapter_model.safetensors"), "{error}");
}
