//! Low-rank adapters of experts, routers, latents and heads: the same bits and the predicted memory on every kind of layout, also where
//! a rank's experts have no row; frozen weights and states untouched; resuming; models and layers that PEFT has no module for.

use kernels::Device;

use crate::checkpoint::safetensors::Reader;
use crate::checkpoint::{MODEL, export_peft};
use crate::config::moe::MoeConfig;
use crate::config::{Bf16Sums, Family, LoraConfig, LoraTarget, Plan, Precision};
use crate::dist::mesh::RankCoord;
use crate::fixtures::{
    Chain, Log, tiny_bloom, tiny_deepseek, tiny_falcon, tiny_gpt, tiny_gpt_oss, tiny_llama,
    tiny_moe, tiny_neox, tiny_opt,
};
use crate::model::param::{self, is_of_lora};
use crate::tests::layouts::{assert_same, assert_same_in, train, train_in, train_on, with};
use crate::tests::lora::adapted_everywhere;
use crate::tests::peft::of_qwen;
use crate::tests::share::Share;
use crate::trainer::{memory, run};

/// Two steps: the first moves B alone, the second A too.
fn two_steps(plan: Plan) -> Plan {
    let mut plan = adapted_everywhere(plan);
    (plan.train.steps, plan.train.eval_samples) = (2, 2);
    (plan.seq_length, plan.vocab) = (8, 60);
    plan
}

/// A mixture whose experts have the ranks of `ep`, too.
fn assert_same_with_experts_apart(plan: &Plan, layouts: &[&str]) {
    let want = train(&with(plan.clone(), "mb=12"));
    for layout in layouts {
        assert_same(&train(&with(plan.clone(), layout)), &want, layout);
    }
}

#[test]
fn adapters_of_a_mixture_have_the_same_bits_on_every_kind_of_layout_and_the_predicted_memory() {
    let mut plan = two_steps(tiny_moe());
    // which rows an expert has is known beforehand if each has its share
    plan.model.moe.as_mut().unwrap().top_k = 4;
    let layouts = [
        "tp=2 sp dp=2 zero=2 mb=3",
        "cp=2 pp=2 full chunked mb=2",
        "dp=2 ep=2 tp=2 zero=3 mb=2",
    ];
    assert_same_in(&plan, &layouts);
    let uneven = two_steps(tiny_moe());
    assert_same_with_experts_apart(&uneven, &["cp=2 dp=2 ep=2 tp=2 selective mb=3"]);
}

#[test]
fn adapters_of_experts_without_rows_on_a_rank_have_the_same_bits() {
    let mut plan = two_steps(of_qwen());
    plan.model.layers = 1;
    plan.model.moe.as_mut().unwrap().every = 1;
    // rows that are all alike choose the same two of four experts, in the second step perhaps another two
    let alike = Chain {
        vocab: 1,
        ..Chain::of(&plan)
    };
    let want = train_on(&with(plan.clone(), "mb=12"), &alike);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(MODEL);
    std::fs::write(&path, &want.model).unwrap();
    let mut file = Reader::open(&path).unwrap();
    let mut chosen = 0;
    for spec in param::specs(&plan) {
        if spec.name.contains(".experts.") && spec.name.ends_with("fc1.lora_b") {
            let mut found = vec![0.0; spec.dims.iter().product()];
            file.read_part(&spec.name, &spec.dims, 0, &mut found)
                .unwrap();
            chosen += usize::from(found.iter().any(|value| *value != 0.0));
        }
    }
    assert!(chosen < 4, "one of four ranks has no row in either step");
    let layout = "dp=4 ep=4 cp=2 mb=1";
    assert_same(&train_on(&with(plan, layout), &alike), &want, layout);
}

#[test]
fn adapters_of_latents_and_of_experts_with_biases_have_the_same_bits_on_other_layouts() {
    let latents = two_steps(tiny_deepseek());
    let mut in_bf16 = latents.clone();
    (in_bf16.train.precision, in_bf16.train.bf16_sums) = (Precision::Bf16, Bf16Sums::Pairs);
    let biased = two_steps(tiny_gpt_oss());
    let mut share = Share::one_in(3);
    for plan in [latents, in_bf16, biased] {
        let layouts = share.of(&[
            "tp=2 sp dp=2 ep=2 mb=3",
            "cp=2 pp=2 chunked mb=2",
            "tp=2 dp=2 ep=2 chunked mb=2",
        ]);
        assert_same_with_experts_apart(&plan, &layouts);
    }
}

#[test]
fn dropout_of_adapters_of_latents_routers_and_heads_has_the_same_bits_on_other_layouts() {
    let mut plan = two_steps(tiny_deepseek());
    let lora = plan.model.lora.as_mut().unwrap();
    lora.dropout = 0.25;
    lora.targets.retain(|target| *target != LoraTarget::Experts);
    let want = train(&with(plan.clone(), "mb=12"));
    plan.train.chunked_cross_entropy = true;
    assert_same(
        &train(&with(plan.clone(), "tp=2 sp dp=2 chunked mb=3")),
        &want,
        "dropout",
    );
    plan.model.lora.as_mut().unwrap().dropout = 0.0;
    assert_ne!(train(&with(plan, "mb=12")).metrics, want.metrics);
}

#[test]
fn frozen_weights_and_biases_of_choices_stay_and_a_resumed_run_has_the_same_bits() {
    let mut plan = with(two_steps(tiny_deepseek()), "dp=2 ep=2 mb=3");
    plan.train.steps = 4;
    let dir = tempfile::tempdir().unwrap();
    let samples = Chain::of(&plan);
    let want = train_in(&plan, &dir.path().join("whole"), &samples);
    let fails = Chain {
        fails_at: Some(3 * 12),
        ..Chain::of(&plan)
    };
    let killed = dir.path().join("killed");
    run(&plan, &fails, Some(&samples), &killed, &Log::default()).unwrap_err();
    assert_same(&train_in(&plan, &killed, &samples), &want, "resumed");
    let path = dir.path().join(MODEL);
    std::fs::write(&path, &want.model).unwrap();
    let mut file = Reader::open(&path).unwrap();
    let specs = param::specs(&plan);
    for spec in &specs {
        let whole = spec.initial(plan.seed, &RankCoord::single(), &Device::cpu());
        let mut found = vec![0.0; spec.dims.iter().product()];
        file.read_part(&spec.name, &spec.dims, 0, &mut found)
            .unwrap();
        let is_same = whole.unwrap().host::<f32>().unwrap() == found;
        assert_eq!(is_same, !is_of_lora(&spec.name), "{}", spec.name);
    }
    let bias = specs.iter().find(|spec| spec.router_bias.is_some());
    assert!(bias.unwrap().is_frozen);
    // moments are those of adapters alone
    let [own, full] = [Some(plan.model.lora.clone()), None].map(|lora| {
        let mut plan = plan.clone();
        plan.model.lora = lora.flatten();
        memory::predict(&plan).unwrap()[0].optimizer
    });
    assert!(own * 2 < full, "{own} {full}");
}

#[test]
fn layers_that_peft_has_no_module_for_are_not_exported_to_it() {
    for (plan, target, wanted) in [
        (
            tiny_gpt_oss(),
            LoraTarget::Experts,
            "one of layers.0.experts.0.fc1",
        ),
        (tiny_gpt_oss(), LoraTarget::Router, "one of layers.0.router"),
        (
            tiny_deepseek(),
            LoraTarget::Router,
            "one of layers.1.router",
        ),
    ] {
        let mut plan = plan;
        plan.model.lora = Some(LoraConfig {
            targets: vec![LoraTarget::Qkv, target],
            ..LoraConfig::default()
        });
        (plan.train.steps, plan.train.global_batch) = (2, 2);
        let dir = tempfile::tempdir().unwrap();
        let done = run(&plan, &Chain::of(&plan), None, dir.path(), &Log::default()).unwrap();
        let error = export_peft(&done.checkpoint, &dir.path().join("peft")).unwrap_err();
        let error = error.to_string();
        assert!(error.contains(wanted), "{error}");
        assert!(error.contains("is a parameter of another layer"), "{error}");
    }
}

#[test]
fn adapters_of_mixtures_that_transformers_has_no_class_for_are_not_exported_to_peft() {
    let of_family = |plan: Plan, family| {
        let mut plan = plan;
        plan.model.family = family;
        plan.model.moe = Some(MoeConfig {
            experts: 4,
            ..MoeConfig::default()
        });
        plan
    };
    let mut without_gate = tiny_moe();
    without_gate.model.moe.as_mut().unwrap().shared_gate = false;
    for (plan, wanted) in [
        (of_family(tiny_gpt(), Family::Gpt), "moe in gpt2 with bias"),
        (
            of_family(tiny_neox(), Family::GptNeox),
            "moe in gpt_neox with bias",
        ),
        (of_family(tiny_opt(), Family::Opt), "moe in opt with bias"),
        (
            of_family(tiny_falcon(), Family::Falcon),
            "moe in falcon with bias",
        ),
        (
            of_family(tiny_bloom(), Family::Bloom),
            "moe in bloom with bias",
        ),
        (
            of_family(tiny_llama(), Family::Phi3),
            "moe in phi3 with bias",
        ),
        (without_gate, "want Mixtral"),
    ] {
        let mut plan = plan;
        plan.model.lora = Some(LoraConfig {
            targets: vec![LoraTarget::Qkv, LoraTarget::Experts, LoraTarget::Router],
            ..LoraConfig::default()
        });
        (plan.train.steps, plan.train.global_batch) = (2, 2);
        let dir = tempfile::tempdir().unwrap();
        let done = run(&plan, &Chain::of(&plan), None, dir.path(), &Log::default()).unwrap();
        let out = dir.path().join("peft");
        let error = export_peft(&done.checkpoint, &out).unwrap_err().to_string();
        assert!(error.contains(wanted), "{error}");
        assert!(!out.exists(), "nothing is written");
    }
}

#[test]
fn a_head_without_targets_among_blocks_has_an_adapter_alone() {
    let mut plan = adapted_everywhere(tiny_llama());
    plan.model.lora.as_mut().unwrap().targets = vec![LoraTarget::Head];
    let trained: Vec<String> = param::specs(&plan)
        .into_iter()
        .filter(|spec| !spec.is_frozen)
        .map(|spec| spec.name)
        .collect();
    assert_eq!(trained, ["head.lora_a", "head.lora_b"]);
    assert_same_in(&plan, &["tp=2 sp pp=2 chunked mb=3"]);
}
