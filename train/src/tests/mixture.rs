//! Mixtures of experts: the same bits for every layout, also with expert parallelism; losses that train the router;
//! invalid numbers reported by name.

use kernels::Device;

use crate::Error;
use crate::config::moe::{MoeConfig, RouterScope, RouterScore};
use crate::config::{BadStepAction, Bf16Sums, Determinism, Plan, Precision};
use crate::config::{Family, OptimizerKind};
use crate::dist::mesh::Groups;
use crate::fixtures::{Chain, Log, nth_step, tiny_moe};
use crate::model::param;
use crate::optim::next_step::GoodStep;
use crate::tests::layouts::{LAYOUTS, assert_same, train, train_in, with};
use crate::tests::share::Share;
use crate::trainer::step::Trainer;
use crate::trainer::{memory, run};

/// Layouts with experts shared out, crossed with everything else.
pub(super) const SHARED_OUT: [&str; 20] = [
    "dp=2 ep=2 mb=1",
    "dp=2 ep=2 mb=2",
    "dp=2 ep=2 mb=6",
    "dp=4 ep=2 mb=3",
    "dp=4 ep=4 mb=1",
    "dp=4 ep=4 zero=1 mb=3",
    "dp=6 ep=2 zero=2 mb=2",
    "dp=4 ep=2 zero=1 mb=1",
    "dp=4 ep=2 zero=2 tp=2 mb=3",
    "dp=4 ep=2 zero=3 pp=2 mb=3",
    "dp=6 ep=2 zero=3 mb=1 here",
    "dp=2 ep=2 tp=2 sp mb=3",
    "dp=4 ep=4 tp=2 sp pp=2 vs=2 mb=3",
    "dp=2 ep=2 pp=4 gpipe full mb=2",
    "dp=2 ep=2 pp=2 vs=2 zero=1 selective mb=1",
    "dp=2 ep=2 cp=2 mb=1",
    "dp=4 ep=4 cp=2 zero=1 mb=3",
    "dp=4 ep=2 cp=4 zero=3 mb=1",
    "dp=4 ep=4 cp=2 tp=2 sp pp=2 selective zero=2 mb=1",
    "dp=12 ep=4 full=1 order=pp-dp-tp-cp-ep mb=1",
];

/// Dropless: many choices, a selection bias that moves far enough to change them, biases and layer norms.
fn dropless() -> Plan {
    let mut plan = tiny_moe();
    plan.model.family = Family::Gpt;
    plan.model.kv_heads = 0;
    plan.model.moe = Some(MoeConfig {
        experts: 8,
        top_k: 3,
        d_ffn: 16,
        dense_first: 1,
        score: RouterScore::Sigmoid,
        scale: 1.5,
        expert_bias: true,
        bias_update_rate: 0.05,
        ..MoeConfig::default()
    });
    plan
}

fn four_layers(mut plan: Plan) -> Plan {
    plan.model.layers = 4;
    if plan.model.kv_heads > 0 {
        (plan.model.heads, plan.model.kv_heads) = (8, 4);
    }
    plan
}

#[test]
fn every_layout_of_a_mixture_gives_the_same_bits() {
    let mut share = Share::one_in(2);
    for plan in [four_layers(tiny_moe()), four_layers(dropless())] {
        let want = train(&with(plan.clone(), "mb=12"));
        assert!(
            want.metrics[0].contains("balance_loss"),
            "{:?}",
            want.metrics
        );
        for layout in share.of(&SHARED_OUT) {
            assert_same(&train(&with(plan.clone(), layout)), &want, layout);
        }
    }
}

#[test]
fn a_selection_bias_evens_the_load_and_a_step_that_is_skipped_does_not_move_it() {
    /// Steps that train the router, which makes the load uneven, and all steps.
    const TRAINED: u64 = 8;
    const STEPS: u64 = 60;
    let largest = |rate: f32| {
        let mut plan = four_layers(dropless());
        plan.train.steps = STEPS;
        let moe = plan.model.moe.as_mut().unwrap();
        (moe.bias_update_rate, moe.balance_loss) = (rate, 0.0);
        let specs = param::specs(&plan);
        let mut trainer = Trainer::new(&plan, &specs, Groups::single(), Device::cpu()).unwrap();
        let samples = Chain::of(&plan);
        let mut last = Vec::new();
        for step in 1..=STEPS {
            let mut next = nth_step(&plan, step.min(TRAINED + 1));
            if step > TRAINED {
                // the same batch and weights, so that the load depends on the bias alone
                next.rate = 0.0;
            }
            let (_, gradients) = trainer.gradients(&samples, &next).unwrap();
            trainer.update(&gradients, 1.0, &next).unwrap();
            last.push(trainer.routing.as_ref().unwrap().record.max_load);
        }
        let biases: Vec<f32> = (specs.iter().zip(&trainer.state.weights))
            .filter(|(spec, _)| spec.router_bias.is_some())
            .flat_map(|(_, bias)| bias.host::<f32>().unwrap().to_vec())
            .collect();
        assert_eq!(biases.len(), 3 * 8);
        // a step up or down each time, or none
        let far = STEPS as f32 * rate + 1e-5;
        assert!(biases.iter().all(|bias| bias.abs() <= far), "{biases:?}");
        assert_eq!(biases.iter().any(|&bias| bias != 0.0), rate > 0.0);
        last[last.len() - 5..].iter().sum::<f64>() / 5.0
    };
    let (without, with) = (largest(0.0), largest(0.002));

    assert!(with < 0.8 * without, "{with} {without}");

    let mut plan = four_layers(dropless());
    plan.train.on_bad_step.action = BadStepAction::Skip;
    (plan.train.on_bad_step.factor, plan.train.on_bad_step.window) = (1.01, 1);
    let specs = param::specs(&plan);
    let mut trainer = Trainer::new(&plan, &specs, Groups::single(), Device::cpu()).unwrap();
    let (samples, next) = (Chain::of(&plan), nth_step(&plan, 1));
    let low = [GoodStep::new(1e-3, 1e-3)];
    let outcome = trainer.step(&samples, &next, &low).unwrap();
    assert!(outcome.bad.is_some());
    let biases =
        (specs.iter().zip(&trainer.state.weights)).filter(|(s, _)| s.router_bias.is_some());
    for (spec, bias) in biases {
        assert_eq!(bias.host::<f32>().unwrap(), [0.0; 8], "{}", spec.name);
    }
}

#[test]
fn every_layout_of_a_mixture_gives_the_same_bits_in_bf16() {
    let mut share = Share::one_in(6);
    for (plan, sums) in [
        (tiny_moe(), Bf16Sums::Pairs),
        (tiny_moe(), Bf16Sums::Tiles),
        (dropless(), Bf16Sums::Tiles),
    ] {
        let mut plan = four_layers(plan);
        plan.train.precision = Precision::Bf16;
        plan.train.bf16_sums = sums;
        let want = train(&with(plan.clone(), "mb=12"));
        for layout in share.of(&SHARED_OUT) {
            let what = format!("{sums:?} {layout}");
            assert_same(&train(&with(plan.clone(), layout)), &want, &what);
        }
    }
}

#[test]
fn muon_gives_shared_out_experts_the_bits_of_one_rank() {
    let mut plan = four_layers(tiny_moe());
    plan.train.optimizer = OptimizerKind::Muon;
    let want = train(&with(plan.clone(), "mb=12"));
    for layout in ["dp=4 ep=2 zero=1 mb=3", "dp=4 ep=4 zero=3 tp=2 pp=2 mb=1"] {
        assert_same(&train(&with(plan.clone(), layout)), &want, layout);
    }
}

#[test]
fn layouts_that_keep_experts_together_give_the_same_bits() {
    let plan = four_layers(tiny_moe());
    let want = train(&with(plan.clone(), "mb=12"));
    // every third exercises each axis and their products
    for layout in LAYOUTS.into_iter().step_by(3) {
        assert_same(&train(&with(plan.clone(), layout)), &want, layout);
    }
}

#[test]
fn a_mixture_without_limits_holds_the_bytes_that_the_formulas_say() {
    let mut plan = four_layers(dropless());
    for layout in [
        "mb=1",
        "dp=3 zero=1 mb=1",
        "dp=2 zero=2 mb=1",
        "dp=2 zero=3 tp=2 sp pp=2 mb=1",
        "pp=2 vs=2 selective mb=2",
        "full=1 cp=2 mb=1",
    ] {
        let plan = with(plan.clone(), layout);
        let found = memory::measure(&plan, &Chain::of(&plan)).unwrap();
        assert_eq!(found, memory::predict(&plan).unwrap(), "{layout}");
    }
    let moe = plan.model.moe.as_mut().unwrap();
    (moe.shared_d_ffn, moe.shared_gate) = (16, true);
    let total =
        |ranks: &[memory::RankMemory]| -> usize { ranks.iter().map(|rank| rank.activations).sum() };
    // who gets the rows depends on the router; together they are as many as said
    for layout in [
        "dp=4 ep=4 mb=3",
        "dp=12 ep=4 mb=1",
        "dp=12 ep=2 zero=1 mb=1",
        "dp=6 ep=2 zero=3 mb=2",
    ] {
        let mut plan = with(plan.clone(), layout);
        plan.train.global_batch = plan.parallel.dp * plan.train.micro_batch;
        plan.determinism = Determinism::Run;
        let found = memory::measure(&plan, &Chain::of(&plan)).unwrap();
        let said = memory::predict(&plan).unwrap();
        assert_eq!(total(&found), total(&said), "{layout}");
        for (found, said) in found.iter().zip(&said) {
            let of = |m: &memory::RankMemory| (m.weights, m.optimizer, m.gradients);
            assert_eq!(of(found), of(said), "{layout}");
        }
    }
    for layout in [
        "dp=12 ep=4 mb=1",
        "dp=6 ep=2 zero=2 mb=1",
        "dp=4 ep=4 zero=3 mb=1",
    ] {
        let plan = with(plan.clone(), layout);
        let found = memory::measure(&plan, &Chain::of(&plan)).unwrap();
        let said = memory::predict(&plan).unwrap();
        for (found, said) in found.iter().zip(&said) {
            let of = |m: &memory::RankMemory| (m.weights, m.optimizer, m.gradients);
            assert_eq!(of(found), of(said), "{layout}");
        }
    }
}

#[test]
fn sharing_out_experts_divides_their_weights() {
    let mut plan = dropless();
    plan.model.moe.as_mut().unwrap().d_ffn = 512;
    let weights = |ep| {
        let mut plan = plan.clone();
        (plan.parallel.dp, plan.parallel.ep) = (4, ep);
        memory::predict(&plan).unwrap()[0].weights
    };
    let experts = 4 * plan.model.layers.saturating_sub(1) * 8 * 2 * 512 * plan.model.d_model;
    assert_eq!(weights(1) - weights(4), experts * 3 / 4);
    assert_eq!(weights(1) - weights(2), experts / 2);
}

#[test]
fn a_planned_arena_holds_every_tensor_of_a_mixture() {
    let plan = four_layers(dropless());
    for layout in [
        "mb=3",
        "dp=4 ep=4 mb=3",
        "dp=4 ep=2 tp=2 zero=3 mb=3",
        "dp=2 ep=2 pp=2 mb=2",
    ] {
        let plan = with(plan.clone(), layout);
        let (folder, samples) = (tempfile::tempdir().unwrap(), Chain::of(&plan));
        let log = Log::default();
        run(&plan, &samples, Some(&samples), folder.path(), &log).unwrap();
        let notes = log.lines();
        assert!(
            !notes.iter().any(|line| line.contains("arena")),
            "{layout} {notes:?}"
        );
    }
}

#[test]
fn a_mixture_counts_all_its_weights_and_those_a_token_meets() {
    // Mixtral 8x7B: 46.7 billion in all, 12.9 billion active (arXiv:2401.04088)
    let mut plan = tiny_moe();
    plan.model.moe = Some(MoeConfig::default());
    (plan.model.layers, plan.model.d_model) = (32, 4096);
    (plan.model.heads, plan.model.kv_heads, plan.model.d_ffn) = (32, 8, 14336);
    (plan.vocab, plan.seq_length) = (32000, 4096);
    assert_eq!(plan.parameters(), 46_702_792_704);
    assert_eq!(plan.active_parameters(), 12_879_925_248);
    // six operations for each active weight but the embedding, and attention
    let attention = 12.0 * 32.0 * 4096.0 * 4096.0;
    let matrices = plan.active_parameters() - 32000 * 4096 - 65 * 4096;
    assert_eq!(plan.flops_per_token(), 6.0 * matrices as f64 + attention);
}

#[test]
fn every_contradiction_of_experts_and_ranks_is_told_at_once() {
    let mut plan = four_layers(tiny_moe());
    let moe = plan.model.moe.as_mut().unwrap();
    (moe.experts, moe.top_k, moe.d_ffn) = (6, 7, 20);
    (moe.capacity_factor, moe.scope) = (0.5, RouterScope::MicroBatch);
    (plan.parallel.dp, plan.parallel.ep) = (6, 4);
    (plan.train.global_batch, plan.train.micro_batch) = (12, 1);
    let found = plan.problems();
    let wanted = [
        "model.moe.top_k: found 7 with experts = 6, want at most experts; nearest 6",
        "model.moe.capacity_factor: found 0.5, want 0 for no limit, or at least 1: below it \
         choices are dropped even when they are even",
        "parallel.ep: found 4 with model.moe.experts = 6, want a divisor of it; nearest 3 or 6",
        "parallel.ep: found 4 with dp = 6, want a divisor of it; nearest 3 or 6",
        "model.moe.d_ffn: found 20, want a multiple of 8; nearest 16 or 24",
        "model.moe.scope: found \"micro_batch\", want \"sequence\" with determinism = \"layout\": \
         micro-batches are the layout's",
    ];
    assert_eq!(found, wanted);
    plan.parallel.ep = 3;
    let found = plan.problems().join("\n");
    let power =
        "parallel.ep: found 3, want a power of two with determinism = \"layout\"; nearest 2";
    assert!(found.contains(power), "{found}");
    plan.model.moe = None;
    let none = "parallel.ep: found 3, want 1: only a model with model.moe has experts";
    assert_eq!(plan.problems(), [none]);
}

#[test]
fn a_router_that_breaks_is_told_by_layer_expert_and_token() {
    let plan = four_layers(tiny_moe());
    let specs = param::specs(&plan);
    let mut trainer = Trainer::new(&plan, &specs, Groups::single(), Device::cpu()).unwrap();
    let of_router = |spec: &param::Spec| spec.name == "layers.3.router.weight";
    let slot = specs.iter().position(of_router).unwrap();
    trainer.state.weights[slot].host_mut::<f32>().unwrap()[2 * plan.model.d_model] = f32::NAN;
    let Err(Error::Kernel { source, .. }) =
        trainer.gradients(&Chain::of(&plan), &nth_step(&plan, 1))
    else {
        panic!("the step must fail")
    };
    assert_eq!(
        source.to_string(),
        "mixture of experts: router logit is NaN for expert 2 at layers.3, position 0 of sequence 0 \
         of the micro-batch, wanted a finite number"
    );
}

#[test]
fn a_mixture_goes_on_in_another_layout_with_the_same_bits() {
    goes_on_in_other_layouts(&four_layers(tiny_moe()));
    let mut biased = four_layers(dropless());
    biased.model.moe.as_mut().unwrap().capacity_factor = 1.0;
    goes_on_in_other_layouts(&biased);
}

fn goes_on_in_other_layouts(plan: &Plan) {
    let want = train(&with(plan.clone(), "mb=12"));
    let path = [
        ("dp=4 ep=4 zero=1 mb=3", 1),
        ("dp=2 zero=3 tp=2 sp mb=2", 2),
        ("dp=2 ep=2 pp=2 vs=2 mb=6", 3),
    ];
    let folder = tempfile::tempdir().unwrap();
    for (layout, steps) in path {
        let mut plan = with(plan.clone(), layout);
        plan.train.checkpoint.every = 1;
        let samples = Chain {
            fails_at: Some(steps * 12),
            ..Chain::of(&plan)
        };
        let (valid, log) = (Chain::of(&plan), Log::default());
        let done = run(&plan, &samples, Some(&valid), folder.path(), &log);
        assert!(done.is_err(), "{layout} was to be stopped");
    }
    let samples = Chain::of(plan);
    let found = train_in(&with(plan.clone(), "cp=2 mb=2"), folder.path(), &samples);
    assert_same(&found, &want, "four layouts one after the other");
}
