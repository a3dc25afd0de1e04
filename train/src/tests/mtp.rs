//! Multi-token prediction: megatron-core's losses, gradients and ten steps (tests/oracles/mtp_goldens.py), layouts, memory, resuming,
//! and DeepSeek-V3's published layers for further tokens.

use std::path::Path;

use kernels::Device;
use serde_json::{Value, json};

use crate::checkpoint::huggingface::config::inexpressible;
use crate::checkpoint::huggingface::deepseek::ask_for_depths;
use crate::checkpoint::safetensors::{Entry, Reader, Writer};
use crate::checkpoint::{FileType, GgufOptions, MODEL, export_gguf, export_hf, import_hf};
use crate::config::{Determinism, Family, OptimizerKind, Plan, Precision, TieEmbeddings};
use crate::dist::mesh::Groups;
use crate::eval::logits;
use crate::fixtures::{Chain, Log, nth_step, tiny_deepseek, tiny_deepseek_v2, tiny_llama};
use crate::model::param;
use crate::tests::hugging_face::{follows, trained, write_config};
use crate::tests::layouts::{
    assert_same, assert_same_in, ends_within, reproducible, train, train_in, with,
};
use crate::tests::parity::{Formula, Golden, follows_torch, plan, set_weights};
use crate::trainer::run;
use crate::trainer::step::Trainer;

/// The plan of a golden.
fn golden(name: &str, determinism: Determinism) -> Plan {
    let mut plan = plan(Family::Llama, determinism);
    plan.model.mtp_loss_scaling_factor = 0.3;
    if name == "mtp" {
        plan.model.mtp_num_layers = 2;
        return plan;
    }
    plan.model.mtp_num_layers = 1;
    plan.model.tie_embeddings = TieEmbeddings::Tied;
    (plan.eod, plan.train.eod_mask_loss) = (Some(3), true);
    plan
}

#[test]
fn two_depths_follow_megatron_through_ten_steps() {
    for determinism in [Determinism::Layout, Determinism::Off] {
        follows_torch(&golden("mtp", determinism), "mtp");
    }
}

#[test]
fn a_tied_head_and_masked_tokens_follow_megatron_through_ten_steps() {
    for determinism in [Determinism::Layout, Determinism::Off] {
        follows_torch(&golden("mtp_tied", determinism), "mtp_tied");
    }
}

#[test]
fn a_depth_with_latents_and_experts_follows_torch_through_ten_steps() {
    let mut golden = Golden::open("hf_mtp_deepseek");
    assert!(golden.record["mtp_1"].is_array());
    follows(&mut golden, true);
}

#[test]
#[should_panic(expected = "tolerances off")]
fn another_factor_of_the_depths_is_noticed() {
    let mut plan = golden("mtp", Determinism::Layout);
    plan.model.mtp_loss_scaling_factor = 0.301;
    follows_torch(&plan, "mtp");
}

#[test]
#[should_panic(expected = "mtp_1 of step 0")]
fn a_mask_at_other_tokens_than_megatrons_is_noticed() {
    let mut plan = golden("mtp_tied", Determinism::Layout);
    // other tokens than Megatron masks
    plan.eod = Some(4);
    let specs = param::specs(&plan);
    let mut trainer = Trainer::new(&plan, &specs, Groups::single(), Device::cpu()).unwrap();
    set_weights(&mut trainer);
    let next = nth_step(&plan, 1);
    trainer.gradients(&Formula, &next).unwrap();
    let golden = Golden::open("mtp_tied");
    golden.scalar("mtp_1", 0, trainer.further[0]);
}

/// DeepSeek-V3's kind with two depths, which are mixtures.
fn deep() -> Plan {
    let mut plan = tiny_deepseek();
    (
        plan.model.mtp_num_layers,
        plan.model.mtp_loss_scaling_factor,
    ) = (2, 0.3);
    plan
}

/// LLaMA's kind with a depth, a tied head, dropout and packed documents.
fn tied() -> Plan {
    let mut plan = tiny_llama();
    (plan.model.layers, plan.model.mtp_num_layers) = (4, 1);
    (plan.model.heads, plan.model.kv_heads) = (8, 4);
    (plan.model.tie_embeddings, plan.model.dropout) = (TieEmbeddings::Tied, 0.1);
    (plan.eod, plan.train.reset_attention_mask) = (Some(3), true);
    (plan.train.reset_position_ids, plan.train.eod_mask_loss) = (true, true);
    plan
}

#[test]
fn layouts_of_mixtures_with_depths_give_the_same_bits_and_the_predicted_memory() {
    let layouts = [
        "mb=1",
        "tp=2 sp dp=2 zero=2 mb=3",
        "cp=2 dp=2 selective mb=2",
        "pp=2 tp=2 full mb=2",
        "pp=2 dp=2 zero=3 full=1 mb=3",
        "dp=3 zero=1 mb=2 chunked",
    ];
    assert_same_in(&deep(), &layouts);
}

#[test]
fn experts_of_depths_on_other_ranks_give_the_same_bits() {
    let wanted = train(&with(deep(), "mb=12"));
    for layout in ["dp=2 ep=2 tp=2 mb=3", "dp=4 ep=4 pp=2 zero=2 mb=3"] {
        assert_same(&train(&with(deep(), layout)), &wanted, layout);
    }
}

#[test]
fn layouts_of_a_tied_head_with_a_depth_give_the_same_bits_and_the_predicted_memory() {
    let layouts = [
        "tp=2 mb=2",
        "tp=4 sp dp=2 mb=3",
        "pp=2 vs=2 tp=2 sp dp=2 mb=2",
        "pp=4 gpipe mb=3",
        "pp=2 layers=3,1 cp=2 mb=2",
        "cp=4 dp=2 zero=3 mb=3",
        "full=1,2 pp=2 tp=2 sp dp=2 zero=2 mb=3",
        "selective cp=2 tp=2 mb=1 chunked",
    ];
    assert_same_in(&tied(), &layouts);
}

#[test]
fn depths_in_few_bits_have_the_same_bits_in_every_layout() {
    let mut plan = tied();
    plan.train.optimizer = OptimizerKind::Muon;
    plan.train.precision = Precision::Bf16;
    assert_same_in(&plan, &["pp=2 tp=2 sp mb=3"]);
    plan.train.precision = Precision::Fp8;
    let wanted = train(&with(plan.clone(), "mb=12"));
    let layout = "dp=2 cp=2 mb=3";
    assert_same(&train(&with(plan, layout)), &wanted, layout);
}

#[test]
fn a_planned_arena_holds_every_tensor_of_a_run_with_depths() {
    for plan in [deep(), tied()] {
        for layout in ["mb=3", "pp=2 tp=2 sp mb=2", "dp=2 cp=2 zero=3 full mb=2"] {
            let plan = with(plan.clone(), layout);
            let folder = tempfile::tempdir().unwrap();
            let (samples, log) = (Chain::of(&plan), Log::default());
            run(&plan, &samples, Some(&samples), folder.path(), &log).unwrap();
            let notes = log.lines();
            let is_over = |line: &String| line.contains("arena");
            assert!(!notes.iter().any(is_over), "{layout} {notes:?}");
        }
    }
}

#[test]
fn the_losses_of_depths_are_in_the_metrics_beside_the_models_own() {
    let folder = tempfile::tempdir().unwrap();
    let plan = with(deep(), "mb=3");
    train_in(&plan, folder.path(), &Chain::of(&plan));
    let lines = reproducible(folder.path());
    let lines: Vec<Value> = lines
        .iter()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let steps: Vec<&Value> = lines
        .iter()
        .filter(|line| !line["loss"].is_null())
        .collect();
    let of = |line: &Value| -> Vec<f64> {
        let all = line["mtp_losses"].as_array().unwrap();
        all.iter().map(|loss| loss.as_f64().unwrap()).collect()
    };
    let (first, last) = (of(steps[0]), of(steps[steps.len() - 1]));
    assert_eq!(first.len(), 2);
    for (before, after) in first.iter().zip(&last) {
        assert!(*before > 5.0 && after < before, "{first:?} {last:?}");
    }
}

#[test]
fn a_run_with_depths_goes_on_in_another_layout_with_the_same_bits() {
    let plan = deep();
    let want = train(&with(plan.clone(), "mb=12"));
    let folder = tempfile::tempdir().unwrap();
    for (layout, steps) in [("dp=2 zero=1 mb=3", 1), ("pp=2 tp=2 sp mb=2", 3)] {
        let mut plan = with(plan.clone(), layout);
        plan.train.checkpoint.every = 1;
        assert!(!ends_within(steps, &plan, folder.path()), "{layout}");
    }
    let samples = Chain::of(&plan);
    let found = train_in(&with(plan, "mb=12"), folder.path(), &samples);
    assert_same(&found, &want, "three layouts one after the other");
}

fn read_config(folder: &Path) -> Value {
    let text = std::fs::read(folder.join("config.json")).unwrap();
    serde_json::from_slice(&text).unwrap()
}

/// Copies a folder with some tensors left out or other numbers in one.
fn copy_folder(from: &Path, to: &Path, without: &str, other: &str) {
    std::fs::create_dir(to).unwrap();
    write_config(to, &read_config(from));
    let mut reader = Reader::open(&from.join(MODEL)).unwrap();
    let entries: Vec<Entry> = reader.entries().cloned().collect();
    let is_kept = |entry: &&Entry| without.is_empty() || !entry.name.contains(without);
    let entries: Vec<Entry> = entries.iter().filter(is_kept).cloned().collect();
    let mut writer = Writer::create(&to.join(MODEL), entries.clone(), None).unwrap();
    for entry in &entries {
        let mut values = vec![0.0; entry.elements()];
        (reader.read_part(&entry.name, &entry.dims, 0, &mut values)).unwrap();
        if entry.name == other {
            values[0] += 1.0;
        }
        writer.write(&values).unwrap();
    }
    writer.finish().unwrap();
}

#[test]
fn layers_of_further_tokens_are_exported_and_imported_byte_for_byte() {
    let dir = tempfile::tempdir().unwrap();
    let folder = |name: &str| dir.path().join(name);
    let checkpoint = trained(&deep(), dir.path());
    export_hf(&checkpoint, &folder("out")).unwrap();
    let config = read_config(&folder("out"));
    assert_eq!(config["num_nextn_predict_layers"], 2);
    let reader = Reader::open(&folder("out").join(MODEL)).unwrap();
    let names: Vec<&str> = reader.entries().map(|entry| entry.name.as_str()).collect();
    for name in [
        "model.layers.2.embed_tokens.weight",
        "model.layers.2.enorm.weight",
        "model.layers.2.hnorm.weight",
        "model.layers.3.eh_proj.weight",
        "model.layers.3.shared_head.norm.weight",
        "model.layers.3.shared_head.head.weight",
        "model.layers.3.self_attn.kv_b_proj.weight",
        "model.layers.3.mlp.experts.7.down_proj.weight",
    ] {
        assert!(names.contains(&name), "{name} in {names:?}");
    }
    let read = import_hf(&folder("out"), &folder("read")).unwrap();
    assert_eq!(read.notes, [""; 0]);
    let bytes = |path: &Path| std::fs::read(path.join(MODEL)).unwrap();
    assert!(bytes(&read.checkpoint) == bytes(&checkpoint));

    // copies may be left out, and must not differ
    copy_folder(&folder("out"), &folder("less"), "layers.3.embed_tokens", "");
    let less = import_hf(&folder("less"), &folder("less-read")).unwrap();
    assert!(bytes(&less.checkpoint) == bytes(&checkpoint));
    let copy = "model.layers.2.shared_head.head.weight";
    copy_folder(&folder("out"), &folder("other"), "", copy);
    let error = import_hf(&folder("other"), &folder("other-read")).unwrap_err();
    let wanted = "model.layers.2.shared_head.head.weight: found other numbers, want those of the model's own head.weight";
    assert!(
        error.with_causes().contains(wanted),
        "{}",
        error.with_causes()
    );
}

#[test]
fn published_layers_are_passed_over_unless_a_job_has_depths() {
    let dir = tempfile::tempdir().unwrap();
    let folder = |name: &str| dir.path().join(name);
    let checkpoint = trained(&deep(), dir.path());
    export_hf(&checkpoint, &folder("out")).unwrap();
    // as published: without our field
    let mut config = read_config(&folder("out"));
    config
        .as_object_mut()
        .unwrap()
        .shift_remove("mtp_num_layers");
    write_config(&folder("out"), &config);
    let read = import_hf(&folder("out"), &folder("read")).unwrap();
    let tensors = Reader::open(&folder("out").join(MODEL)).unwrap();
    let further = |entry: &&Entry| {
        ["model.layers.2.", "model.layers.3."]
            .iter()
            .any(|start| entry.name.starts_with(start))
    };
    let count = tensors.entries().filter(further).count();
    let note = format!(
        "num_nextn_predict_layers = 2: {count} tensors of layers that predict further tokens are ignored"
    );
    assert_eq!(read.notes, [note]);
    let tokens: Vec<u32> = (0..16).map(|at| at * 7 % 61).collect();
    let (with_depths, without) = (
        logits(&checkpoint, &tokens),
        logits(&read.checkpoint, &tokens),
    );
    assert_eq!(
        with_depths.unwrap(),
        without.unwrap(),
        "depths change no logits"
    );

    // training goes on with the depths that the job has
    let start = |depths: usize, from: &Path, name: &str| {
        let mut plan = deep();
        plan.model.mtp_num_layers = depths;
        if depths == 0 {
            plan.model.mtp_loss_scaling_factor = 0.1;
        }
        plan.train.init_from = from.display().to_string();
        // no weight moves
        (plan.train.lr, plan.train.min_lr) = (1e-30, 1e-30);
        let samples = Chain::of(&plan);
        run(
            &plan,
            &samples,
            Some(&samples),
            &folder(name),
            &Log::default(),
        )
        .unwrap()
        .checkpoint
    };
    let tensor = |checkpoint: &Path, name: &str, dims: &[usize]| {
        let mut values = vec![0.0; dims.iter().product()];
        let mut reader = Reader::open(&checkpoint.join(MODEL)).unwrap();
        reader.read_part(name, dims, 0, &mut values).unwrap();
        values
    };
    let of = |checkpoint: &Path, depth: usize| {
        tensor(
            checkpoint,
            &format!("mtp.{depth}.eh_proj.weight"),
            &[32, 64],
        )
    };
    let both = start(2, &folder("out"), "both");
    for depth in 0..2 {
        assert_eq!(of(&both, depth), of(&checkpoint, depth), "{depth}");
    }
    let three = start(3, &checkpoint, "three");
    assert_eq!(of(&three, 1), of(&checkpoint, 1));
    assert!(
        of(&three, 2).iter().any(|x| *x != 0.0),
        "drawn from the seed"
    );
    let none = start(0, &checkpoint, "none");
    let names = Reader::open(&none.join(MODEL)).unwrap();
    assert!(names.entries().all(|entry| !entry.name.starts_with("mtp.")));
}

#[test]
fn other_classes_and_formats_have_no_depths() {
    for (mut plan, kind) in [(tiny_llama(), "llama"), (tiny_deepseek_v2(), "deepseek_v2")] {
        plan.model.mtp_num_layers = 1;
        let line = format!("mtp_num_layers = 1 in {kind}");
        assert!(inexpressible(&plan).contains(&line), "{line}");
    }
    let dir = tempfile::tempdir().unwrap();
    let mut plan = tiny_llama();
    plan.model.mtp_num_layers = 1;
    let checkpoint = trained(&plan, dir.path());
    let options = GgufOptions {
        file_type: FileType::F32,
        name: None,
        tokenizer: None,
        pre: None,
    };
    let error = export_gguf(&checkpoint, &dir.path().join("m.gguf"), &options).unwrap_err();
    assert!(
        error.with_causes().contains("mtp_num_layers = 1"),
        "{}",
        error.with_causes()
    );
    let mut config = json!({"num_nextn_predict_layers": 1});
    ask_for_depths(&mut config, 1);
    assert_eq!(config.get("mtp_num_layers"), None, "of another class");
    // weights of another class, whose depths start from the seed
    plan.model.mtp_num_layers = 0;
    let checkpoint = trained(&plan, &dir.path().join("plain"));
    let folder = dir.path().join("folder");
    std::fs::create_dir(&folder).unwrap();
    export_hf(&checkpoint, &folder).unwrap();
    plan.model.mtp_num_layers = 1;
    plan.train.init_from = folder.to_str().unwrap().into();
    let with_depths = trained(&plan, &dir.path().join("deep"));
    let names = Reader::open(&with_depths.join(MODEL)).unwrap();
    assert!(
        names
            .entries()
            .any(|entry| entry.name == "mtp.0.eh_proj.weight")
    );
}
