//! Adapters in PEFT's form: ten steps as torch with PEFT, PEFT's folders as models, ours read back, and damaged ones.
//! The goldens are described in tests/oracles/lora_goldens.py. Tolerances as in `parity`.

use std::fs;
use std::path::{Path, PathBuf};

use kernels::{Device, Tensor};
use serde_json::{Value, json};

use crate::checkpoint::huggingface::names::pairs;
use crate::checkpoint::huggingface::pair::Pair;
use crate::checkpoint::safetensors::{Entry, Reader, Writer};
use crate::checkpoint::whole_model::Model;
use crate::checkpoint::{MODEL, adapter_base, check_init, export_hf, export_peft, import_hf};
use crate::config::{LoraConfig, LoraTarget, Plan};
use crate::dist::devices::Devices;
use crate::dist::mesh::Groups;
use crate::eval::logits;
use crate::fixtures::{
    Chain, Log, nth_step, tiny_bloom, tiny_falcon, tiny_gemma, tiny_gpt, tiny_llama, tiny_neox,
    tiny_olmo, tiny_opt,
};
use crate::model::param;
use crate::tests::hugging_face::{recipe, write_config};
use crate::tests::parity::{Formula, Golden};
use crate::trainer::run;
use crate::trainer::step::Trainer;

const PREFIX: &str = "base_model.model.";

/// Tensors of a golden whose names are those of PEFT's files or not, written as a file.
fn write_tensors(golden: &mut Golden, path: &Path, is_adapter: bool) {
    let entries = golden.tensors.entries().filter_map(|entry| {
        let name = entry.name.strip_prefix("weight.")?.to_owned();
        let dims = entry.dims.clone();
        (name.starts_with(PREFIX) == is_adapter).then_some(Entry { name, dims })
    });
    let entries: Vec<Entry> = entries.collect();
    let mut writer = Writer::create(path, entries.clone(), None).unwrap();
    for entry in entries {
        let name = format!("weight.{}", entry.name);
        writer.write(&golden.tensor(&name, &entry.dims)).unwrap();
    }
    writer.finish().unwrap();
}

/// The folders that transformers and PEFT would have saved.
pub(super) fn saved(golden: &mut Golden, folder: &Path) -> [PathBuf; 2] {
    let [base, adapter] = ["base", "adapter"].map(|name| folder.join(name));
    for folder in [&base, &adapter] {
        fs::create_dir(folder).unwrap();
    }
    write_config(&base, &golden.record["config"]);
    write_tensors(golden, &base.join(MODEL), false);
    write_tensors(golden, &adapter.join("adapter_model.safetensors"), true);
    let mut config = golden.record["adapter_config"].clone();
    config["base_model_name_or_path"] = json!("../base");
    fs::write(adapter.join("adapter_config.json"), config.to_string()).unwrap();
    [base, adapter]
}

/// Both matrices of a layer in our order, from `read(name, dims)` of PEFT's.
fn ours(
    pair: &Pair,
    (plan, rank): (&Plan, usize),
    read: &mut dyn FnMut(&str, &[usize]) -> Vec<f32>,
) -> [Vec<f32>; 2] {
    let module = format!("{PREFIX}{}", pair.theirs.strip_suffix(".weight").unwrap());
    let layer = pair.ours.strip_suffix(".weight").unwrap();
    let specs = param::specs(plan);
    let dims = |part: &str| {
        let name = format!("{layer}.{part}");
        specs
            .iter()
            .find(|spec| spec.name == name)
            .unwrap()
            .dims
            .clone()
    };
    let is_column = dims("lora_a")[0] == rank;
    let (of_a, of_b) = (dims("lora_a"), dims("lora_b"));
    let input = if is_column { of_a[1] } else { of_a[0] };
    let a = read(&format!("{module}.lora_A.weight"), &[rank, input]);
    let theirs = read(&format!("{module}.lora_B.weight"), &of_b);
    if !is_column {
        let a = (0..a.len()).map(|at| a[at % rank * input + at / rank]);
        return [a.collect(), theirs];
    }
    let mut b = vec![0.0; theirs.len()];
    for (at, row) in pair.rows_of_ours(&plan.shape()).enumerate() {
        b[row * rank..(row + 1) * rank].copy_from_slice(&theirs[at * rank..(at + 1) * rank]);
    }
    [a, b]
}

#[test]
fn gpt2_with_adapters_follows_peft_through_ten_steps() {
    let mut golden = Golden::open("lora_gpt2");
    let folder = tempfile::tempdir().unwrap();
    let [base, _] = saved(&mut golden, folder.path());
    let checkpoint = import_hf(&base, &folder.path().join("out"))
        .unwrap()
        .checkpoint;
    let Model {
        mut plan, weights, ..
    } = Model::load(&checkpoint, &Devices::Cpu).unwrap();
    recipe(&mut plan, &Value::Null);
    let rank = 4;
    plan.model.lora = Some(LoraConfig {
        rank,
        alpha: 6.0,
        ..LoraConfig::default()
    });
    let specs = param::specs(&plan);
    let mut trainer = Trainer::new(&plan, &specs, Groups::single(), Device::cpu()).unwrap();
    let mut base = weights.into_iter();
    for (spec, weight) in specs.iter().zip(&mut trainer.state.weights) {
        if spec.is_frozen {
            *weight = base.next().unwrap();
        }
    }
    let layers: Vec<Pair> = pairs(&plan)
        .into_iter()
        .filter(|pair| {
            let layer = pair.ours.strip_suffix(".weight").unwrap_or_default();
            specs
                .iter()
                .any(|spec| spec.name == format!("{layer}.lora_a"))
        })
        .collect();
    assert_eq!(layers.len(), 8);
    let slot = |pair: &Pair, part: &str| {
        let layer = pair.ours.strip_suffix(".weight").unwrap();
        let name = format!("{layer}.{part}");
        specs.iter().position(|spec| spec.name == name).unwrap()
    };
    for pair in &layers {
        let mut read = |name: &str, dims: &[usize]| golden.tensor(&format!("weight.{name}"), dims);
        let both = ours(pair, (&plan, rank), &mut read);
        for (part, values) in ["lora_a", "lora_b"].into_iter().zip(both) {
            let slot = slot(pair, part);
            let dims = &specs[slot].dims;
            trainer.state.weights[slot] = Tensor::from_f32(dims, &values, &Device::cpu()).unwrap();
        }
    }
    // largest difference of each of PEFT's tensors, in its tolerance
    let close = |golden: &mut Golden, prefix: &str, found: &dyn Fn(usize) -> Vec<f32>| {
        for pair in &layers {
            let mut wanted = Vec::new();
            let mut read = |name: &str, dims: &[usize]| {
                let name = format!("{prefix}.{name}");
                let torch = golden.record["torch_f32"]["max_abs_error"][&name]
                    .as_f64()
                    .unwrap();
                let values = golden.tensor(&name, dims);
                wanted.push((name, torch));
                values
            };
            let both = ours(pair, (&plan, rank), &mut read);
            for ((part, want), (name, torch)) in
                ["lora_a", "lora_b"].into_iter().zip(both).zip(wanted)
            {
                let largest = want.iter().fold(0.0f32, |most, x| most.max(x.abs()));
                let tolerance = 4.0 * torch.max(f64::from(largest * f32::EPSILON));
                let found = found(slot(pair, part));
                let off = found
                    .iter()
                    .zip(&want)
                    .map(|(a, b)| f64::from((a - b).abs()));
                let off = off.fold(0.0f64, f64::max);
                assert!(off <= tolerance, "{name}: {off}, want at most {tolerance}");
            }
        }
    };
    for step in 0..10 {
        let next = nth_step(&plan, step as u64 + 1);
        let (loss, gradients) = trainer.gradients(&Formula, &next).unwrap();
        golden.scalar("losses", step, loss);
        if step == 0 {
            let own = &trainer.state.local_shards;
            close(&mut golden, "grad", &|slot| {
                let index = own
                    .local
                    .iter()
                    .position(|local| local.slots.contains(&slot))
                    .unwrap();
                let unit = &own.shards.units[own.local[index].unit];
                let spec = unit.specs.start + slot - own.local[index].slots.start;
                let at = unit.start_of(spec);
                let len: usize = specs[spec].dims.iter().product();
                gradients[index].host::<f32>().unwrap()[at..at + len].to_vec()
            });
        }
        let norm = trainer.norm(&gradients).unwrap();
        trainer.update(&gradients, norm, &next).unwrap();
        golden.scalar("grad_norms", step, norm);
    }
    let weights = &trainer.state.weights;
    close(&mut golden, "final", &|slot| {
        weights[slot].host::<f32>().unwrap().to_vec()
    });
}

#[test]
fn a_folder_of_peft_is_the_model_that_peft_makes_of_it() {
    for name in ["lora_gpt2", "lora_llama"] {
        let mut golden = Golden::open(name);
        let folder = tempfile::tempdir().unwrap();
        let [base, adapter] = saved(&mut golden, folder.path());
        assert_eq!(
            adapter_base(&adapter).unwrap(),
            Some(adapter.join("../base"))
        );
        assert_eq!(adapter_base(&base).unwrap(), None);
        let merged = import_hf(&adapter, &folder.path().join("out"))
            .unwrap()
            .checkpoint;
        let mut found = Vec::new();
        for sample in 0..4 {
            let tokens: Vec<u32> = (0..16).map(|at| Formula::token(sample, at)).collect();
            found.extend(logits(&merged, &tokens).unwrap().concat());
        }
        let off = golden.difference("logits", &[4, 16, 61], &found);
        assert!(off <= 1.0, "{name}: logits are {off} tolerances off");
        // a model to start from, too
        let plan = Model::load(&merged, &Devices::Cpu).unwrap().plan;
        check_init(&adapter, &plan, true).unwrap();
    }
}

fn tensors_of(path: &Path) -> Vec<(String, Vec<f32>)> {
    let mut reader = Reader::open(path).unwrap();
    let entries: Vec<Entry> = reader.entries().cloned().collect();
    let read = entries.into_iter().map(|entry| {
        let mut values = vec![0.0; entry.elements()];
        reader
            .read_part(&entry.name, &entry.dims, 0, &mut values)
            .unwrap();
        (entry.name, values)
    });
    read.collect()
}

#[test]
fn our_adapters_are_merged_alike_from_a_checkpoint_and_from_peft_s_form() {
    for (plan, targets) in [
        (tiny_gpt(), LoraTarget::ALL.to_vec()),
        (tiny_neox(), LoraTarget::ALL.to_vec()),
        (tiny_opt(), LoraTarget::ALL.to_vec()),
        (tiny_falcon(), LoraTarget::ALL.to_vec()),
        (tiny_bloom(), LoraTarget::ALL.to_vec()),
        (tiny_olmo(), LoraTarget::ALL.to_vec()),
        (tiny_gemma(), LoraTarget::ALL.to_vec()),
        (tiny_llama(), LoraTarget::ALL.to_vec()),
        (tiny_llama(), vec![LoraTarget::Qkv, LoraTarget::Fc2]),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        let samples = Chain::of(&plan);
        let done = run(&plan, &samples, None, &path("run"), &Log::default()).unwrap();
        export_hf(&done.checkpoint, &path("base")).unwrap();
        let mut tuned = plan.clone();
        tuned.train.init_from = path("base").display().to_string();
        tuned.model.lora = Some(LoraConfig {
            rank: 3,
            alpha: 7.0,
            targets,
            ..LoraConfig::default()
        });
        let done = run(&tuned, &samples, None, &path("tuned"), &Log::default()).unwrap();
        export_hf(&done.checkpoint, &path("merged")).unwrap();
        export_peft(&done.checkpoint, &path("adapter")).unwrap();
        let from_peft = import_hf(&path("adapter"), &path("read")).unwrap();
        export_hf(&from_peft.checkpoint, &path("again")).unwrap();
        let [merged, again] = ["merged", "again"].map(|name| tensors_of(&path(name).join(MODEL)));
        assert!(merged == again, "the same sums");
        assert_ne!(merged, tensors_of(&path("base").join(MODEL)));
        // the merged weights answer as the adapters beside the frozen ones do
        let whole = import_hf(&path("merged"), &path("whole"))
            .unwrap()
            .checkpoint;
        let tokens: Vec<u32> = (0..16).map(|at| (at * 7 + 3) % 200).collect();
        let [beside, merged] =
            [&done.checkpoint, &whole].map(|path| logits(path, &tokens).unwrap());
        let off = beside.concat().into_iter().zip(merged.concat());
        let off = off.fold(0.0f32, |most, (a, b)| most.max((a - b).abs()));
        assert!(off < 1e-5, "{off}");
        let error = export_peft(&whole, &path("none")).unwrap_err();
        assert!(error.to_string().contains("[model.lora]"), "{error}");
    }
}

#[test]
fn adapters_that_do_not_fit_are_refused_by_name() {
    let mut golden = Golden::open("lora_llama");
    let folder = tempfile::tempdir().unwrap();
    let [_, adapter] = saved(&mut golden, folder.path());
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
        ("use_dora", json!(true), "use_dora: found true, want none"),
        ("bias", json!("all"), "bias: found \"all\", want none"),
        (
            "modules_to_save",
            json!(["lm_head"]),
            "modules_to_save: found [\"lm_head\"]",
        ),
        ("rank_pattern", json!({"q_proj": 4}), "rank_pattern: found"),
        ("r", json!(0), "r: found 0, want a whole number"),
        (
            "lora_alpha",
            json!("a"),
            "lora_alpha: found \"a\", want a number",
        ),
        (
            "base_model_name_or_path",
            json!("meta/llama"),
            "want the folder of the base model",
        ),
        ("r", json!(5), "want [5, 16] and"),
    ] {
        let error = refused(&|config| config[key] = value.clone());
        assert!(error.contains(wanted), "{error} wants {wanted}");
    }
    // of another base model
    let other = folder.path().join("other");
    fs::create_dir(&other).unwrap();
    let mut gpt = Golden::open("lora_gpt2");
    write_config(&other, &gpt.record["config"].clone());
    write_tensors(&mut gpt, &other.join(MODEL), false);
    let error = refused(&|config| config["base_model_name_or_path"] = json!("../other"));
    assert!(
        error.contains("but the base model has no such layer"),
        "{error}"
    );
    // cut short
    let weights = adapter.join("adapter_model.safetensors");
    let bytes = fs::read(&weights).unwrap();
    fs::write(&weights, &bytes[..bytes.len() / 2]).unwrap();
    let error = refused(&|_| {});
    assert!(error.contains("adapter_model.safetensors"), "{error}");
}
