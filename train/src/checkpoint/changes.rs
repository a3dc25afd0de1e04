//! Resume policy: which settings may differ between a checkpoint and the run that resumes from it. This file alone
//! decides; callers report its findings.
//!
//! - **Free**: the layout, and keys of `[train]` that decide which files are written when, or how memory is used: with
//!   `determinism = "layout"` they change no bits.
//! - **On request**: learning rate, schedule, steps and the optimizer's constants change how training continues.
//!   They are refused unless `train.resume.allow` names them. Weights, moments, the number of the update and the
//!   position in the data stay, so the next step is the one that a run with the new settings would make from this
//!   state. Megatron-LM: `--override-opt_param-scheduler`.
//!   So may the samples under the name `data`: the position is the number of samples done, and the new order goes on with
//!   the sample of that number. Vocabulary and lengths stay fixed.
//! - **Fixed**: everything else, because the saved state would have another meaning under another value.
//!
//! More steps alone are free where they change no rate: `schedule = "constant"`, or `decay_steps` given.

use kernels::SumOrder;
use serde_json::{Map, Value};

use crate::config::Schedule;
use crate::config::plan::Plan;
use crate::config::resume::{DATA, Difference, ON_REQUEST, SettingChange};
use crate::config::sums::SumsRecord;
use crate::config::train::TrainConfig;

/// Keys of `[train]` that may always differ.
const FREE: [&str; 17] = [
    "eval_every",
    "eval_samples",
    "eval_tasks",
    "early_stop",
    "checkpoint",
    "log_every",
    "peak_tflops",
    "profile",
    "resume",
    "micro_batch",
    "recompute",
    "recompute_layers",
    "chunked_cross_entropy",
    "offload",
    "keep_packed",
    // another order of sums is reported with both names (`of_sums`)
    "bf16_sums",
    // the weights themselves are compared
    "init_from",
];

/// Settings by which sums are made otherwise than before `step` ended, so that the run's bits may differ from those of a
/// run that was made in one way: the order within bf16 products, and the backend unless sums are in the tree, whose bits
/// all backends share. Such settings may always differ.
pub(crate) fn of_sums(saved: &SumsRecord, now: &SumsRecord, step: u64) -> Vec<SettingChange> {
    let change = |key: &str, before: &str, after: &str| SettingChange {
        after_step: step,
        key: key.to_owned(),
        before: before.into(),
        after: after.into(),
    };
    let mut changes = Vec::new();
    if let (Some(before), Some(after)) = (&saved.bf16, &now.bf16) {
        // before there was a choice: pairs
        let before = if before == "auto" { "pairs" } else { before };
        if before != after {
            changes.push(change("train.bf16_sums", before, after));
        }
    }
    if saved.backend != now.backend && now.order != SumOrder::Tree.name() {
        changes.push(change("device", &saved.backend, &now.backend));
    }
    changes
}

/// The field of a plan with the identity of data and tokenizer.
const FINGERPRINT: &str = "fingerprint";

/// Differences between a checkpoint's settings and the job's.
#[derive(Debug, Default)]
pub(crate) struct Compared {
    /// Allowed on request.
    pub changes: Vec<SettingChange>,
    /// Refused.
    pub refused: Vec<Difference>,
}

/// Compares the plan of the checkpoint of `step` with that of the run that resumes from it.
pub(crate) fn compare(saved: &Plan, plan: &Plan, step: u64) -> Compared {
    let mut compared = Compared::default();
    let (there, here) = (settings(saved), settings(plan));
    let mut leaves = Vec::new();
    leaves_that_differ(&there, &here, "", &mut leaves);
    for Leaf { key, before, after } in leaves {
        let own = key.strip_prefix("train.").and_then(|rest| {
            let end = rest.find('.').unwrap_or(rest.len());
            rest.get(..end)
        });
        if own.is_some_and(|own| FREE.contains(&own)) {
            continue;
        }
        if own == Some("steps") && are_rates_without_end(saved) && are_rates_without_end(plan) {
            continue;
        }
        // averages that were not kept cannot be continued
        let is_on_request = own.is_some_and(|own| ON_REQUEST.contains(&own))
            && !(own == Some("ema_decay") && has_averages(saved) != has_averages(plan));
        let is_data = key == FINGERPRINT;
        let entry = match is_data {
            true => Some(DATA.to_owned()),
            false => own.filter(|_| is_on_request).map(str::to_owned),
        };
        let is_allowed = (entry.as_deref()).is_some_and(|own| plan.train.resume.allows(own));
        if is_allowed {
            compared.changes.push(SettingChange {
                after_step: step,
                key: if is_data { DATA.to_owned() } else { key },
                before,
                after,
            });
        } else {
            compared.refused.push(Difference {
                key,
                found: shown(&before),
                wanted: shown(&after),
                allowed_by: entry,
            });
        }
    }
    compared
}

fn has_averages(plan: &Plan) -> bool {
    plan.train.ema_decay > 0.0
}

/// Whether the number of steps only decides when the run ends and affects no learning rate.
fn are_rates_without_end(plan: &Plan) -> bool {
    let TrainConfig {
        schedule,
        decay_steps,
        time_budget,
        ..
    } = &plan.train;
    time_budget.is_empty() && (*schedule == Schedule::Constant || *decay_steps > 0)
}

/// A plan without its layout.
fn settings(plan: &Plan) -> Value {
    // through text, for the decimals that the user wrote
    let text = serde_json::to_string(plan).expect("a plan is plain data");
    let mut value: Value = serde_json::from_str(&text).expect("just written");
    if let Some(fields) = value.as_object_mut() {
        fields.shift_remove("parallel");
        // a choice of `generate` alone
        fields.shift_remove("start");
    }
    value
}

/// A key whose value differs.
struct Leaf {
    /// Path of the key, with dots.
    key: String,
    before: Value,
    after: Value,
}

/// Adds every leaf that differs.
fn leaves_that_differ(there: &Value, here: &Value, key: &str, leaves: &mut Vec<Leaf>) {
    if there == here {
        return;
    }
    let (Value::Object(a), Value::Object(b)) = (there, here) else {
        leaves.push(Leaf {
            key: key.to_owned(),
            before: there.clone(),
            after: here.clone(),
        });
        return;
    };
    let added = b.keys().filter(|name| !a.contains_key(*name));
    for name in a.keys().chain(added) {
        let path = match key {
            "" => name.clone(),
            _ => format!("{key}.{name}"),
        };
        let of = |table: &Map<String, Value>| table.get(name).cloned().unwrap_or(Value::Null);
        leaves_that_differ(&of(a), &of(b), &path, leaves);
    }
}

fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => "nothing".into(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::train::BatchRampup;
    use crate::config::{LossMean, OptimizerKind, PreferenceConfig};
    use crate::fixtures::tiny_gpt;

    /// Every key of `[train]`, also those that are left out while they have their defaults.
    fn keys() -> Vec<String> {
        let mut plan = tiny_gpt();
        plan.train.init_from = "a".into();
        plan.train.time_budget = "1h".into();
        plan.train.peak_tflops = 1.0;
        plan.train.resume.allow = vec!["lr".into()];
        plan.train.loss_mean = LossMean::Text;
        plan.train.preference = Some(PreferenceConfig::default());
        plan.train.eval_tasks.every = 1;
        plan.train.batch_rampup = Some(BatchRampup {
            start: 1,
            increment: 1,
            samples: 1,
        });
        let all = settings(&plan);
        all["train"].as_object().unwrap().keys().cloned().collect()
    }

    #[test]
    fn other_sums_are_changes_where_the_bits_may_differ() {
        let sums = |order: SumOrder, bf16: Option<&str>, backend: &str| SumsRecord {
            order: order.name().to_owned(),
            bf16: bf16.map(str::to_owned),
            backend: backend.to_owned(),
        };
        let of = |saved: &SumsRecord, now: &SumsRecord| -> Vec<String> {
            let changes = of_sums(saved, now, 3);
            assert!(changes.iter().all(|change| change.after_step == 3));
            let text = |change: SettingChange| {
                format!("{} {} {}", change.key, change.before, change.after)
            };
            changes.into_iter().map(text).collect()
        };
        let (cpu, cuda) = ("cpu", "cuda");
        for order in [SumOrder::Any, SumOrder::Fixed] {
            let found = of(&sums(order, None, cpu), &sums(order, None, cuda));
            assert_eq!(found, [r#"device "cpu" "cuda""#]);
        }
        let tree = |bf16, backend| sums(SumOrder::Tree, bf16, backend);
        assert!(of(&tree(None, cpu), &tree(None, cuda)).is_empty());
        let found = of(&tree(Some("tiles"), cpu), &tree(Some("pairs"), cuda));
        assert_eq!(found, [r#"train.bf16_sums "tiles" "pairs""#]);
        assert!(of(&tree(Some("auto"), cpu), &tree(Some("pairs"), cpu)).is_empty());
        assert!(of(&tree(None, cpu), &tree(Some("pairs"), cpu)).is_empty());
    }

    #[test]
    fn every_key_is_free_allowed_on_request_or_fixed() {
        // a new key must be put into one of these classes here
        let fixed = [
            "reset_attention_mask",
            "reset_position_ids",
            "eod_mask_loss",
            "loss_mean",
            "preference",
            "global_batch",
            "batch_rampup",
            "optimizer",
            "precision",
            "loss_scale",
            "fp8",
        ];
        let mut known: Vec<&str> = [&FREE[..], &ON_REQUEST, &fixed].concat();
        let mut keys = keys();
        known.sort_unstable();
        keys.sort_unstable();
        assert_eq!(keys, known);
    }

    #[test]
    fn a_change_is_refused_by_name_unless_it_is_allowed() {
        let saved = tiny_gpt();
        let mut plan = saved.clone();
        (plan.parallel.tp, plan.train.micro_batch) = (2, 1);
        assert!(compare(&saved, &plan, 4).refused.is_empty());
        (plan.train.lr, plan.train.muon.momentum) = (0.5, 0.9);
        plan.train.optimizer = OptimizerKind::Muon;
        plan.model.d_model = 64;
        let texts = |plan: &Plan| -> Vec<String> {
            let refused = compare(&saved, plan, 4).refused;
            refused.iter().map(ToString::to_string).collect()
        };
        let fixed = [
            "model.d_model: 32 there, 64 here",
            "train.optimizer: adamw there, muon here",
        ];
        assert_eq!(
            texts(&plan),
            [
                fixed[0],
                "train.lr: 0.01 there, 0.5 here (train.resume.allow = [\"lr\"] allows it)",
                fixed[1],
                "train.muon.momentum: 0.95 there, 0.9 here (train.resume.allow = [\"muon\"] allows it)",
            ]
        );
        plan.train.resume.allow = vec!["muon".into(), "lr".into()];
        assert_eq!(texts(&plan), fixed);
        let changes = compare(&saved, &plan, 4).changes;
        assert_eq!(changes.len(), 2);
        assert_eq!(
            (changes[0].after_step, changes[0].key.as_str()),
            (4, "train.lr")
        );
        assert_eq!(
            (&changes[0].before, &changes[0].after),
            (&0.01.into(), &0.5.into())
        );
    }

    #[test]
    fn more_steps_are_free_where_they_change_no_rate() {
        let mut saved = tiny_gpt();
        let longer = |saved: &Plan| {
            let mut plan = saved.clone();
            plan.train.steps += 2;
            plan
        };
        let is_free = |saved: &Plan| compare(saved, &longer(saved), 4).refused.is_empty();
        assert!(!is_free(&saved), "the cosine ends at the last step");
        saved.train.decay_steps = 3;
        assert!(is_free(&saved));
        (saved.train.decay_steps, saved.train.schedule) = (0, Schedule::Constant);
        assert!(is_free(&saved));
        saved.train.time_budget = "1h".into();
        assert!(!is_free(&saved), "time counts as a share of the steps");
    }

    #[test]
    fn averages_that_were_not_kept_cannot_be_asked_for() {
        let saved = tiny_gpt();
        let mut plan = saved.clone();
        plan.train.ema_decay = 0.9;
        plan.train.resume.allow = vec!["ema_decay".into()];
        let refused = compare(&saved, &plan, 1).refused;
        assert_eq!(
            refused[0].to_string(),
            "train.ema_decay: 0.0 there, 0.9 here"
        );
    }
}
