//! Trainings that run together: adapters of one base, which differ in their data, seeds, schedules, and the ranks and scales of their
//! matrices. Nothing else may differ, since the frozen weights, their packed copies and the order of a rank's collectives are one.

use std::path::Path;

use serde_json::{Value, json};

use crate::config::LoraConfig;
use crate::config::plan::Plan;
use crate::dist::world::World;
use crate::error::{Error, Result};
use crate::trainer::training::Training;

/// Keys of `[train]` that may differ.
const FREE: [&str; 14] = [
    "steps",
    "time_budget",
    "lr",
    "min_lr",
    "warmup_steps",
    "schedule",
    "decay_steps",
    "wsd_decay_steps",
    "wsd_decay",
    "eval_every",
    "eval_samples",
    "early_stop",
    "eval_tasks",
    "resume",
];

/// Refuses trainings that cannot share one base, with every difference.
pub(crate) fn expect_one_base(trainings: &[Training<'_>], world: &World) -> Result<()> {
    let others = match trainings {
        [] | [_] => return Ok(()),
        [_, others @ ..] => others,
    };
    let mut problems = problems(trainings.iter().map(|training| training.plan));
    if world.processes() > 1 {
        problems.push(format!(
            "adapters: found {} in {} processes, want one process: their checkpoints would share a connection",
            trainings.len(),
            world.processes()
        ));
    }
    for (at, training) in others.iter().enumerate() {
        let before: Vec<&Path> = trainings[..=at].iter().map(|other| other.out).collect();
        if before.contains(&training.out) {
            let out = training.out.display();
            problems.push(format!(
                "adapters: found {out} twice, want a folder for each"
            ));
        }
    }
    match problems.is_empty() {
        true => Ok(()),
        false => Err(Error::Plan(problems)),
    }
}

/// A line for each setting that plans of one base may not have, or that differs between them.
pub(crate) fn problems<'a>(plans: impl Iterator<Item = &'a Plan>) -> Vec<String> {
    let plans: Vec<&Plan> = plans.collect();
    let mut problems = Vec::new();
    let Some((first, others)) = plans.split_first() else {
        return problems;
    };
    if first.model.lora.is_none() {
        problems.push(
            "model.lora: found none, want adapters: all other weights are the base's".to_owned(),
        );
    }
    let wanted = shared(first);
    for (other, plan) in others.iter().enumerate() {
        let number = other + 2;
        differences(&wanted, &shared(plan), "", &mut |key, wanted, found| {
            problems.push(format!(
                "{key}: found {found} for adapter {number}, want {wanted}, as for the first"
            ));
        });
    }
    problems
}

/// The settings that must be the same.
fn shared(plan: &Plan) -> Value {
    let mut plan = plan.clone();
    if let Some(lora) = &mut plan.model.lora {
        *lora = LoraConfig {
            targets: std::mem::take(&mut lora.targets),
            ..LoraConfig::default()
        };
    }
    // without other weights to start from, the base is drawn from the seed
    let draws = plan.train.init_from.is_empty();
    let mut all = json!(plan);
    if let Some(all) = all.as_object_mut() {
        all.shift_remove("fingerprint");
        if !draws {
            all.shift_remove("seed");
        }
    }
    if let Some(train) = all["train"].as_object_mut() {
        for key in FREE {
            train.shift_remove(key);
        }
    }
    all
}

/// Calls `tell` with every leaf that differs.
fn differences(a: &Value, b: &Value, key: &str, tell: &mut impl FnMut(&str, &Value, &Value)) {
    match (a.as_object(), b.as_object()) {
        (Some(left), Some(right)) => {
            let mut keys: Vec<&String> = left.keys().chain(right.keys()).collect();
            keys.sort();
            keys.dedup();
            for name in keys {
                let path = match key {
                    "" => name.clone(),
                    key => format!("{key}.{name}"),
                };
                differences(&a[name.as_str()], &b[name.as_str()], &path, tell);
            }
        }
        _ if a != b => tell(key, a, b),
        _ => {}
    }
}
