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
    Chain, Log, nth_step, tiny_bloom, tiny_deepseek, tiny_falcon, tiny_gemma, tiny_gpt, tiny_llama,
    tiny_moe, tiny_neox, tiny_olmo, tiny_opt,
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

/// A module of PEFT's and the layer of ours that it is all or a part of.
struct Module {
    name: String,
    pair: Pair,
    layer: String,
    /// Slots of A and B.
    slots: [usize; 2],
}

impl Module {
    /// The modules of a plan with adapters.
    fn all(plan: &Plan) -> Vec<Module> {
        let specs = param::specs(plan);
        let slot = |name: String| specs.iter().position(|spec| spec.name == name);
        let modules = pairs(plan).into_iter().filter_map(|pair| {
            let layer = pair.ours.strip_suffix(".weight")?.to_owned();
            let slots = [
                slot(format!("{layer}.lora_a"))?,
                slot(format!("{layer}.lora_b"))?,
            ];
            let name = format!("{PREFIX}{}", pair.theirs.strip_suffix(".weight")?);
            Some(Module {
                name,
                pair,
                layer,
                slots,
            })
        });
        modules.collect()
    }

    /// Whether our A is the transpose of PEFT's.
    fn is_by_rows(&self) -> bool {
        self.layer.ends_with(".out") || self.layer.ends_with(".fc2")
    }

    /// Element of ours for each of PEFT's A, and of its B.
    fn elements(&self, plan: &Plan, rank: usize, of_a: &[usize]) -> [Vec<usize>; 2] {
        let input = of_a.iter().product::<usize>() / rank;
        let a = (0..rank * input).map(|at| match self.is_by_rows() {
            true => at % input * rank + at / input,
            false => at,
        });
        let rows: Vec<usize> = match self.is_by_rows() {
            true => (0..plan.model.d_model).collect(),
            false => self.pair.rows_of_ours(&plan.shape()).collect(),
        };
        let b = (rows.into_iter()).flat_map(|row| row * rank..(row + 1) * rank);
        [a.collect(), b.collect()]
    }
}

/// Ten steps of a golden's model: losses, gradients, norms and adapters.
fn follows_peft(name: &str, lora: LoraConfig, modules: usize) {
    let mut golden = Golden::open(name);
    let folder = tempfile::tempdir().unwrap();
    let [base, _] = saved(&mut golden, folder.path());
    let checkpoint = import_hf(&base, &folder.path().join("out"))
        .unwrap()
        .checkpoint;
    let Model {
        mut plan, weights, ..
    } = Model::load(&checkpoint, &Devices::Cpu).unwrap();
    recipe(&mut plan, &Value::Null);
    if let Some(moe) = &mut plan.model.moe {
        // transformers adds it to its own losses alone
        moe.balance_loss = 0.0;
    }
    let rank = lora.rank;
    plan.model.lora = Some(lora);
    let specs = param::specs(&plan);
    let mut trainer = Trainer::new(&plan, &specs, Groups::single(), Device::cpu()).unwrap();
    let mut base = weights.into_iter();
    for (spec, weight) in specs.iter().zip(&mut trainer.state.weights) {
        if spec.is_frozen {
            *weight = base.next().unwrap();
        }
    }
    let all = Module::all(&plan);
    assert_eq!(all.len(), modules);
    let each = |visit: &mut dyn FnMut(String, [usize; 2], usize, Vec<usize>)| {
        for module in &all {
            let [a, b] = module.elements(&plan, rank, &specs[module.slots[0]].dims);
            let (input, out) = (a.len() / rank, b.len() / rank);
            let [of_a, of_b] = ["A", "B"].map(|part| format!("{}.lora_{part}.weight", module.name));
            visit(of_a, [rank, input], module.slots[0], a);
            visit(of_b, [out, rank], module.slots[1], b);
        }
    };
    each(&mut |name, dims, slot, elements| {
        let theirs = golden.tensor(&format!("weight.{name}"), &dims);
        let mut ours = trainer.state.weights[slot].host::<f32>().unwrap().to_vec();
        for (at, value) in elements.into_iter().zip(theirs) {
            ours[at] = value;
        }
        let dims = &specs[slot].dims;
        trainer.state.weights[slot] = Tensor::from_f32(dims, &ours, &Device::cpu()).unwrap();
    });
    let close = |golden: &mut Golden, prefix: &str, found: &[Vec<f32>]| {
        each(&mut |name, dims, slot, elements| {
            let name = format!("{prefix}.{name}");
            let found: Vec<f32> = elements.iter().map(|at| found[slot][*at]).collect();
            let off = golden.difference(&name, &dims, &found);
            assert!(off <= 1.0, "{name} is {off} tolerances off");
        });
    };
    for step in 0..10 {
        let next = nth_step(&plan, step as u64 + 1);
        let (loss, gradients) = trainer.gradients(&Formula, &next).unwrap();
        golden.scalar("losses", step, loss);
        if step == 0 {
            let mut found = vec![Vec::new(); specs.len()];
            let own = &trainer.state.local_shards;
            for (index, local) in own.local.iter().enumerate() {
                let unit = &own.shards.units[local.unit];
                let flat = gradients[index].host::<f32>().unwrap();
                for piece in unit.pieces(own.moments(index)) {
                    found[piece.spec] = flat[piece.at..piece.at + piece.local.len()].to_vec();
                }
            }
            close(&mut golden, "grad", &found);
        }
        let norm = trainer.norm(&gradients).unwrap();
        trainer.update(&gradients, norm, &next).unwrap();
        golden.scalar("grad_norms", step, norm);
    }
    let weights = trainer.state.weights.iter();
    let found: Vec<Vec<f32>> = weights
        .map(|weight| weight.host::<f32>().unwrap().to_vec())
        .collect();
    close(&mut golden, "final", &found);
}

fn lora(rank: usize, alpha: f64, targets: &[LoraTarget]) -> LoraConfig {
    LoraConfig {
        rank,
        alpha,
        targets: targets.to_vec(),
        ..LoraConfig::default()
    }
}

#[test]
fn gpt2_with_adapters_follows_peft_through_ten_steps() {
    follows_peft("lora_gpt2", lora(4, 6.0, &LoraTarget::DENSE), 8);
}

#[test]
fn adapters_of_experts_their_router_and_the_head_follow_peft_through_ten_steps() {
    let mut targets = LoraTarget::ALL.to_vec();
    targets.retain(|target| ![LoraTarget::Fc1, LoraTarget::Fc2].contains(target));
    follows_peft(
        "lora_mixtral",
        lora(2, 3.0, &targets),
        2 * (4 + 4 * 3 + 1) + 1,
    );
}

#[test]
fn adapters_of_latents_shared_experts_and_experts_follow_peft_through_ten_steps() {
    let mut targets = LoraTarget::ALL.to_vec();
    targets.retain(|target| *target != LoraTarget::Router);
    follows_peft(
        "lora_deepseek",
        lora(2, 3.0, &targets),
        2 * 5 + 3 + (1 + 4) * 3 + 1,
    );
}

#[test]
fn a_folder_of_peft_is_the_model_that_peft_makes_of_it() {
    for name in [
        "lora_gpt2",
        "lora_llama",
        "lora_mixtral",
        "lora_deepseek",
        "lora_patterns",
        "lora_saved",
    ] {
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

/// Writes a file of tensors again, after a change.
fn changed(path: &Path, change: impl Fn(&mut Vec<(Entry, Vec<f32>)>)) {
    let mut reader = Reader::open(path).unwrap();
    let entries: Vec<Entry> = reader.entries().cloned().collect();
    let read = entries.into_iter().map(|entry| {
        let mut values = vec![0.0; entry.elements()];
        let (name, dims) = (&entry.name, &entry.dims);
        reader.read_part(name, dims, 0, &mut values).unwrap();
        (entry, values)
    });
    let mut all = read.collect();
    change(&mut all);
    let entries = all.iter().map(|(entry, _)| entry.clone()).collect();
    let mut writer = Writer::create(path, entries, None).unwrap();
    for (_, values) in all {
        writer.write(&values).unwrap();
    }
    writer.finish().unwrap();
}

#[test]
fn a_matrix_beside_the_adapter_of_the_head_takes_the_place_of_the_base_s() {
    let mut golden = Golden::open("lora_mixtral");
    let folder = tempfile::tempdir().unwrap();
    let [base, adapter] = saved(&mut golden, folder.path());
    let weights = adapter.join("adapter_model.safetensors");
    let head = golden.tensor("weight.lm_head.weight", &[61, 16]);
    let with_head = |dims: [usize; 2]| {
        changed(&weights, |all| {
            all.retain(|(entry, _)| !entry.name.contains("base_layer"));
            let (name, dims) = (format!("{PREFIX}lm_head.base_layer.weight"), dims.to_vec());
            all.push((Entry { name, dims }, head.clone()));
        });
    };
    changed(&base.join(MODEL), |all| {
        let head = all
            .iter_mut()
            .find(|(entry, _)| entry.name == "lm_head.weight");
        head.unwrap().1.fill(0.0);
    });
    with_head([61, 16]);
    let merged = import_hf(&adapter, &folder.path().join("out")).unwrap();
    let mut found = Vec::new();
    for sample in 0..4 {
        let tokens: Vec<u32> = (0..16).map(|at| Formula::token(sample, at)).collect();
        found.extend(logits(&merged.checkpoint, &tokens).unwrap().concat());
    }
    let off = golden.difference("logits", &[4, 16, 61], &found);
    assert!(off <= 1.0, "logits are {off} tolerances off");
    with_head([16, 61]);
    let error = import_hf(&adapter, &folder.path().join("none")).unwrap_err();
    let wanted = "lm_head.base_layer.weight: found [16, 61], want [61, 16]";
    assert!(error.with_causes().contains(wanted), "{error}");
}

#[test]
fn copies_that_have_no_place_in_the_base_are_refused_by_name() {
    let rows: [(&str, Value, &str, [usize; 2], &str); 4] = [
        (
            "lora_gpt2",
            json!(["wte"]),
            "transformer.wte.weight",
            [61, 16],
            "transformer.wte.weight: found, want none: the base's embedding is its head",
        ),
        (
            "lora_llama",
            json!(["lm_head"]),
            "lm_head.weight",
            [16, 61],
            "lm_head.weight: found [16, 61], want [61, 16]",
        ),
        (
            "lora_llama",
            json!(["score"]),
            "score.weight",
            [2, 16],
            "score.weight: found, but the base model has no such tensor",
        ),
        (
            "lora_llama",
            json!(["embed_tokens"]),
            "lm_head.weight",
            [61, 16],
            "lm_head.weight: found, want tensors of LoRA alone",
        ),
    ];
    for (golden, saved_modules, name, dims, wanted) in rows {
        let mut golden = Golden::open(golden);
        let folder = tempfile::tempdir().unwrap();
        let [_, adapter] = saved(&mut golden, folder.path());
        let config = adapter.join("adapter_config.json");
        let mut of_peft: Value = serde_json::from_slice(&fs::read(&config).unwrap()).unwrap();
        of_peft["modules_to_save"] = saved_modules;
        fs::write(&config, of_peft.to_string()).unwrap();
        changed(&adapter.join("adapter_model.safetensors"), |all| {
            let (name, dims) = (format!("{PREFIX}{name}"), dims.to_vec());
            let entry = Entry { name, dims };
            let values = vec![0.0; entry.elements()];
            all.push((entry, values));
        });
        let error = import_hf(&adapter, &folder.path().join("out")).unwrap_err();
        let error = error.with_causes();
        assert!(error.contains(wanted), "{error} wants {wanted}");
    }
}

#[test]
fn adapters_of_experts_and_heads_that_do_not_fit_are_refused_by_name() {
    type Tensors = Vec<(Entry, Vec<f32>)>;
    fn add(all: &mut Tensors, name: &str, dims: [usize; 2]) {
        let (name, dims) = (format!("{PREFIX}{name}"), dims.to_vec());
        let entry = Entry { name, dims };
        let values = vec![0.0; entry.elements()];
        all.push((entry, values));
    }
    fn without(all: &mut Tensors, end: &str) {
        let before = all.len();
        all.retain(|(entry, _)| !entry.name.ends_with(end));
        assert_eq!(all.len(), before - 1, "{end}");
    }
    const EXPERT: &str = "model.layers.1.block_sparse_moe.experts";
    type Change = fn(&mut Tensors);
    let rows: [(&str, Change, &str); 6] = [
        (
            "lora_mixtral",
            |all| {
                without(all, "layers.1.block_sparse_moe.experts.3.w2.lora_B.weight");
                add(all, &format!("{EXPERT}.3.w2.lora_B.weight"), [16, 3]);
            },
            "layers.1.block_sparse_moe.experts.3.w2: found lora_A",
        ),
        (
            "lora_mixtral",
            |all| without(all, "layers.1.block_sparse_moe.experts.0.w1.lora_A.weight"),
            "layers.1.block_sparse_moe.experts.0.w1: found one of lora_A and lora_B, want both",
        ),
        (
            "lora_mixtral",
            |all| {
                add(all, &format!("{EXPERT}.4.w1.lora_A.weight"), [2, 16]);
                add(all, &format!("{EXPERT}.4.w1.lora_B.weight"), [24, 2]);
            },
            "layers.1.block_sparse_moe.experts.4.w1: found, but the base model has no such layer",
        ),
        (
            "lora_mixtral",
            |all| {
                all.retain(|(entry, _)| !entry.name.contains("lm_head"));
                add(all, "lm_head.base_layer.weight", [61, 16]);
            },
            "lm_head.base_layer.weight: found alone, want lora_A and lora_B",
        ),
        (
            "lora_gpt2",
            |all| {
                add(all, "lm_head.lora_A.weight", [4, 16]);
                add(all, "lm_head.lora_B.weight", [61, 4]);
            },
            "lm_head: found, but the base model has no such layer",
        ),
        ("lora_llama", Vec::clear, "found no adapter"),
    ];
    for (name, change, wanted) in rows {
        let mut golden = Golden::open(name);
        let folder = tempfile::tempdir().unwrap();
        let [_, adapter] = saved(&mut golden, folder.path());
        changed(&adapter.join("adapter_model.safetensors"), change);
        let error = import_hf(&adapter, &folder.path().join("out")).unwrap_err();
        let error = error.with_causes();
        assert!(error.contains(wanted), "{error} wants {wanted}");
    }
}

/// A mixture that transformers has a class for, Qwen 1.5 MoE's, which drops no choices.
pub(super) fn of_qwen() -> Plan {
    let mut plan = tiny_moe();
    let moe = plan.model.moe.as_mut().unwrap();
    moe.capacity_factor = 0.0;
    plan
}

#[test]
fn our_adapters_are_merged_alike_from_a_checkpoint_and_from_peft_s_form() {
    for (plan, targets) in [
        (tiny_gpt(), LoraTarget::DENSE.to_vec()),
        (tiny_neox(), LoraTarget::DENSE.to_vec()),
        (tiny_opt(), LoraTarget::DENSE.to_vec()),
        (tiny_falcon(), LoraTarget::DENSE.to_vec()),
        (tiny_bloom(), LoraTarget::DENSE.to_vec()),
        (tiny_olmo(), LoraTarget::DENSE.to_vec()),
        (tiny_gemma(), LoraTarget::DENSE.to_vec()),
        (tiny_llama(), LoraTarget::DENSE.to_vec()),
        (tiny_llama(), vec![LoraTarget::Qkv, LoraTarget::Fc2]),
        (of_qwen(), LoraTarget::ALL.to_vec()),
        (
            tiny_deepseek(),
            [
                &LoraTarget::DENSE[..],
                &[LoraTarget::Experts, LoraTarget::Head],
            ]
            .concat(),
        ),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        let samples = Chain::of(&plan);
        let mut plan = plan;
        (plan.train.steps, plan.train.global_batch) = (2, 2);
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
            "peft_type: found \"PREFIX_TUNING\", want \"LORA\", \"PROMPT_TUNING\" or \"P_TUNING\"",
        ),
        ("use_dora", json!(true), "use_dora: found true, want none"),
        (
            "alora_invocation_tokens",
            json!([5]),
            "alora_invocation_tokens: found [5], want none",
        ),
        ("bias", json!("all"), "bias: found \"all\", want none"),
        (
            "modules_to_save",
            json!(["lm_head"]),
            "found no tensors of lm_head, want those of modules_to_save",
        ),
        (
            "modules_to_save",
            json!("lm_head"),
            "modules_to_save: found \"lm_head\", want a list of names",
        ),
        (
            "rank_pattern",
            json!({"q_proj": 4}),
            "self_attn.q_proj: found lora_A [3, 16] and lora_B [16, 3], want [4, 16] and [16, 4]",
        ),
        ("rank_pattern", json!({"(": 4}), "rank_pattern: found \"(\""),
        (
            "target_parameters",
            json!(["mlp.experts.gate_up_proj"]),
            "target_parameters: found [\"mlp.experts.gate_up_proj\"], want weights of linear layers alone",
        ),
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
        (
            "init_lora_weights",
            json!("pissa_niter_4"),
            "init_lora_weights: found \"pissa_niter_4\", want a way that keeps the base's weights",
        ),
        ("init_lora_weights", json!("olora"), "found \"olora\""),
        ("init_lora_weights", json!("corda"), "found \"corda\""),
        ("init_lora_weights", json!("loftq"), "found \"loftq\""),
        ("init_lora_weights", json!("lora_ga"), "found \"lora_ga\""),
    ] {
        let error = refused(&|config| config[key] = value.clone());
        assert!(error.contains(wanted), "{error} wants {wanted}");
    }
    // ways to start that leave the base's weights as they are
    for start in [
        json!(false),
        json!(null),
        json!("gaussian"),
        json!("eva"),
        json!("orthogonal"),
        json!("mica"),
    ] {
        let mut config = good.clone();
        config["init_lora_weights"] = start;
        fs::write(&path, config.to_string()).unwrap();
        assert!(adapter_base(&adapter).unwrap().is_some());
        let out = tempfile::tempdir().unwrap();
        import_hf(&adapter, out.path()).unwrap();
    }
    fs::write(&path, good.to_string()).unwrap();
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
