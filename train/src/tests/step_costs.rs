//! Waits, downloads and allocations of a training step on a simulated GPU.

use kernels::cuda::Counters;
use kernels::testing::simulator;
use kernels::{Device, Placements};

use crate::config::moe::{DropPolicy, RouterScope};
use crate::config::{Bf16Sums, Determinism, Fp8Recipe, OptimizerKind, Plan, Precision};
use crate::dist::mesh::Groups;
use crate::fixtures::{nth_step, samples_of, tiny_bert, tiny_gpt, tiny_llama, tiny_moe, tiny_t5};
use crate::model::param;
use crate::trainer::memory;
use crate::trainer::step::Trainer;

/// A simulated GPU with the planned arena.
fn device(plan: &Plan) -> Option<Device> {
    let device = simulator::device()?;
    let arena = memory::arenas(&[plan]).unwrap()[0];
    arena.reserve(0, plan, &device).unwrap();
    Some(device)
}

/// The costs of the first steps of one rank, a step each.
fn costs(plan: &Plan, steps: u64) -> Option<Vec<Counters>> {
    let device = device(plan)?;
    let (specs, samples) = (param::specs(plan), samples_of(plan));
    let mut trainer = Trainer::new(plan, &specs, Groups::single(), device.clone()).unwrap();
    let cost = |step| {
        let before = device.counters();
        let outcome = trainer.step(samples.as_ref(), &nth_step(plan, step), &[]);
        assert!(outcome.unwrap().bad.is_none());
        let after = device.counters();
        Counters {
            waits: after.waits - before.waits,
            downloads: after.downloads - before.downloads,
            allocations: after.allocations - before.allocations,
        }
    };
    Some((1..=steps).map(cost).collect())
}

/// The host waits once, for the status.
const ONE: Counters = Counters {
    waits: 1,
    downloads: 1,
    allocations: 0,
};

#[test]
fn a_step_waits_once_however_many_layers_and_micro_batches_it_has() {
    for mut plan in [tiny_gpt(), tiny_llama(), tiny_bert(), tiny_t5()] {
        (plan.train.global_batch, plan.train.z_loss) = (4, 1e-3);
        for (layers, micro_batch) in [(1, 4), (2, 1)] {
            (plan.model.layers, plan.train.micro_batch) = (layers, micro_batch);
            let Some(found) = costs(&plan, 2) else { return };
            let what = format!("{:?} {layers} {micro_batch}", plan.model.family);
            assert_eq!(found[1], ONE, "{what}");
        }
    }
}

#[test]
fn a_steps_tensors_are_at_the_same_addresses_as_those_of_the_step_before() {
    for mut plan in [tiny_gpt(), tiny_llama(), tiny_t5()] {
        (plan.train.global_batch, plan.train.micro_batch) = (2, 1);
        let Some(device) = device(&plan) else { return };
        let (specs, samples) = (param::specs(&plan), samples_of(&plan));
        let mut trainer = Trainer::new(&plan, &specs, Groups::single(), device.clone()).unwrap();
        let mut found: Vec<Placements> = Vec::new();
        for step in 1..=4 {
            device.take_placements();
            let outcome = trainer.step(samples.as_ref(), &nth_step(&plan, step), &[]);
            outcome.unwrap();
            found.push(device.take_placements());
            if step == 2 {
                // another sequence of tensors in between changes nothing
                trainer.evaluate(samples.as_ref(), 2, &[]).unwrap();
            }
        }
        assert!(found[1].count > 100, "{found:?}");
        assert_eq!(found[1..3], found[2..], "{:?}", plan.model.family);
        // must fail: another batch size
        plan.train.micro_batch = 2;
        let mut other = Trainer::new(&plan, &specs, Groups::single(), device.clone()).unwrap();
        device.take_placements();
        let outcome = other.step(samples.as_ref(), &nth_step(&plan, 1), &[]);
        outcome.unwrap();
        assert_ne!(device.take_placements(), found[3]);
    }
}

/// Of the planned bytes at least this share is used by plans of this size, whose fixed parts weigh much.
const LEAST_USED: f64 = 0.1;

#[test]
fn a_steps_memory_is_within_the_plan_and_steps_of_changing_sizes_do_not_fail() {
    for mut plan in [tiny_gpt(), tiny_llama(), tiny_moe()] {
        (plan.train.global_batch, plan.train.micro_batch) = (4, 2);
        let Some(device) = device(&plan) else { return };
        let (specs, samples) = (param::specs(&plan), samples_of(&plan));
        let mut trainer = Trainer::new(&plan, &specs, Groups::single(), device.clone()).unwrap();
        for step in 1..=3 {
            let before = device.counters().allocations;
            let outcome = trainer.step(samples.as_ref(), &nth_step(&plan, step), &[]);
            outcome.unwrap();
            // the first step makes the tables of rotary angles
            let allocations = device.counters().allocations - before;
            assert!(allocations == 0 || step == 1, "step {step}: {allocations}");
        }
        let planned = memory::arenas(&[&plan]).unwrap()[0].bytes();
        let used = device.peak_bytes();
        let share = used as f64 / planned as f64;
        assert_eq!(device.overflow_bytes(), 0);
        assert!(share < 1.0 && share > LEAST_USED, "{used} of {planned}");
    }
}

#[test]
fn scales_of_earlier_steps_and_muon_cost_no_wait() {
    for (precision, recipe, optimizer) in [
        (Precision::Fp8, Fp8Recipe::Delayed, OptimizerKind::Adamw),
        (Precision::Fp8, Fp8Recipe::Current, OptimizerKind::Adamw),
        (Precision::F32, Fp8Recipe::Current, OptimizerKind::Muon),
    ] {
        for mut plan in [tiny_llama(), tiny_moe()] {
            (plan.train.global_batch, plan.train.micro_batch) = (1, 1);
            (plan.train.precision, plan.train.fp8.recipe) = (precision, recipe);
            plan.train.optimizer = optimizer;
            let sums = match precision {
                Precision::Fp8 => &[Bf16Sums::Pairs, Bf16Sums::Mma][..],
                _ => &[Bf16Sums::Auto],
            };
            for &sums in sums {
                plan.train.bf16_sums = sums;
                if sums == Bf16Sums::Mma {
                    plan.determinism = Determinism::Run;
                }
                let Some(found) = costs(&plan, 2) else { return };
                let what = format!("{:?} {recipe:?} {optimizer:?}", plan.model.family);
                assert_eq!(found[1], ONE, "{what} {sums:?}");
            }
        }
    }
}

#[test]
fn a_step_of_a_mixture_waits_once_too() {
    let mut plan = tiny_moe();
    (plan.train.global_batch, plan.model.layers) = (2, 3);
    let mut changed = plan.clone();
    // a scope of micro-batches is for one layout
    changed.determinism = Determinism::Run;
    let Some(moe) = &mut changed.model.moe else {
        panic!("it is a mixture");
    };
    moe.scope = match moe.scope {
        RouterScope::Sequence => RouterScope::MicroBatch,
        RouterScope::MicroBatch => RouterScope::Sequence,
    };
    moe.drop = match moe.drop {
        DropPolicy::Position => DropPolicy::Probability,
        DropPolicy::Probability => DropPolicy::Position,
    };
    for plan in [&mut plan, &mut changed] {
        for (micro_batch, factor) in [(2, 0.0), (1, 0.0), (2, 1.0)] {
            plan.train.micro_batch = micro_batch;
            if let Some(moe) = &mut plan.model.moe {
                moe.capacity_factor = factor;
            }
            let Some(found) = costs(plan, 2) else { return };
            assert_eq!(found[1], ONE, "{micro_batch} {factor}");
        }
    }
}
