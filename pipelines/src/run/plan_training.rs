//! A training as a whole with a layout: its steps and tokens by the job's ramp-up of the batch and its clock, time, energy, price,
//! failures and checkpoints.

use crate::job::Job;
use crate::plan::{Asked, Layout, Planned, Shape};
use serde_json::{Value, json};
use train::config::{OptimizerKind, Plan, TrainConfig};

/// Training as a whole with a layout.
pub(super) struct Training {
    pub steps: u64,
    pub tokens: f64,
    pub seconds: f64,
    /// Whether the job's `train.time_budget` ends it before its steps do.
    pub is_ended_by_clock: bool,
    /// Bytes of a checkpoint.
    pub checkpoint: f64,
    pub kwh: Option<f64>,
    pub price: Option<f64>,
    pub failures: Option<f64>,
    /// Seconds between checkpoints that lose least (Young 1974, CACM 17(9)).
    pub interval: Option<f64>,
    /// Keys that the cluster lacks for the interval.
    pub lacks_for_interval: String,
}

/// Steps of one batch size.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Stretch {
    steps: u64,
    /// Sequences of a step.
    batch: usize,
}

/// The steps of a training by their batch, in their order.
fn stretches(train: &TrainConfig) -> Vec<Stretch> {
    let mut found: Vec<Stretch> = Vec::new();
    let (mut left, mut consumed) = (train.steps, 0u64);
    while left > 0 {
        let batch = train.batch_at(consumed);
        let steps = match &train.batch_rampup {
            Some(ramp) if batch != train.global_batch => {
                let increments = (train.global_batch.saturating_sub(ramp.start)
                    / ramp.increment.max(1))
                .max(1) as u64;
                let of_one = ramp.samples as f64 / increments as f64;
                let passed = ((batch - ramp.start) / ramp.increment.max(1)) as f64;
                // to the first step after the samples of this batch
                let samples = (passed + 1.0) * of_one - consumed as f64;
                ceil(samples / batch as f64).clamp(1, left)
            }
            Some(_) | None => left,
        };
        match found.last_mut().filter(|last| last.batch == batch) {
            Some(last) => last.steps += steps,
            None => found.push(Stretch { steps, batch }),
        }
        left -= steps;
        consumed = consumed.saturating_add(steps.saturating_mul(batch as u64));
    }
    found
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "below 0 it is 0; beyond 2^64 the largest integer"
)]
fn ceil(number: f64) -> u64 {
    number.ceil() as u64
}

/// Seconds of a time such as `1h30m`, which the job's check has found to be one; none of an empty text.
fn seconds_of(text: &str) -> Option<f64> {
    let (mut total, mut number) = (0.0, String::new());
    for sign in text.chars() {
        let unit = match sign {
            'd' => 86_400.0,
            'h' => 3_600.0,
            'm' => 60.0,
            's' => 1.0,
            _ => {
                number.push(sign);
                continue;
            }
        };
        total += unit * std::mem::take(&mut number).parse::<f64>().ok()?;
    }
    (total > 0.0).then_some(total)
}

/// Bytes of a checkpoint: weights in f32, the moments of AdamW or Muon's momentum, and the averages of weights if there are some.
fn checkpoint_bytes(job: &Job, asked: &Asked<'_>, parameters: f64) -> f64 {
    let Some(train) = &job.train else {
        return 0.0;
    };
    let of_muon = match train.optimizer {
        OptimizerKind::Muon => asked.shape.layer_parameters(),
        OptimizerKind::Adamw => 0.0,
    };
    let averages = if train.ema_decay > 0.0 { 4.0 } else { 0.0 };
    (12.0 + averages) * parameters - 4.0 * of_muon
}

impl Training {
    /// That of the job with a layout; its model has so many parameters.
    pub(super) fn of(job: &Job, asked: &Asked<'_>, best: &Planned, parameters: f64) -> Training {
        let cluster = asked.cluster;
        let devices = best.layout.devices() as f64;
        let tokens_of_one = asked.shape.tokens();
        let stretches = job.train.as_ref().map(stretches).unwrap_or_default();
        let budget = job.train.as_ref();
        let budget = budget.and_then(|train| seconds_of(&train.time_budget));
        let mut training = Training {
            steps: 0,
            tokens: 0.0,
            seconds: 0.0,
            is_ended_by_clock: false,
            checkpoint: checkpoint_bytes(job, asked, parameters),
            kwh: None,
            price: None,
            failures: None,
            interval: None,
            lacks_for_interval: String::new(),
        };
        for Stretch { steps, batch } in stretches {
            let step = step_seconds(asked, best, batch);
            let left = budget.map_or(f64::INFINITY, |budget| budget - training.seconds);
            // the step during which the clock runs out is made
            let made = if steps as f64 * step > left {
                training.is_ended_by_clock = true;
                ceil(left / step).min(steps)
            } else {
                steps
            };
            training.steps += made;
            training.tokens += made as f64 * batch as f64 * tokens_of_one;
            training.seconds += made as f64 * step;
            if training.is_ended_by_clock {
                break;
            }
        }
        let seconds = training.seconds;
        let per_second = cluster
            .failures_per_year
            .map(|f| f * devices / (365.0 * 86_400.0));
        let written = cluster
            .checkpoint_rate
            .map(|rate| training.checkpoint / rate);
        let keys = [
            ("failures_per_year", per_second.is_none()),
            ("checkpoint_gb_s", written.is_none()),
        ];
        let lacking = keys.iter().filter(|(_, is_lacking)| *is_lacking);
        let lacking: Vec<&str> = lacking.map(|(key, _)| *key).collect();
        training.lacks_for_interval = lacking.join(" and no ");
        training.kwh = cluster.watts.map(|watts| watts * devices * seconds / 3.6e6);
        training.price = cluster
            .price_per_hour
            .map(|price| price * devices * seconds / 3600.0);
        training.failures = per_second.map(|rate| rate * seconds);
        training.interval = per_second
            .zip(written)
            .map(|(rate, written)| (2.0 * written / rate).sqrt());
        training
    }

    pub(super) fn to_json(&self) -> Value {
        json!({
            "steps": self.steps, "tokens": self.tokens, "seconds": self.seconds, "ended_by_time_budget": self.is_ended_by_clock,
            "checkpoint_gb": self.checkpoint / 1e9, "kwh": self.kwh, "price": self.price, "failures": self.failures,
            "checkpoint_interval_s": self.interval, "checkpoint_interval_lacks": self.lacks_for_interval,
        })
    }
}

/// Most layers, or experts of all layers, of a model whose parameters are counted tensor by tensor.
const MOST_PARTS: f64 = 1e6;
/// Most parameters of such a model.
const MOST_PARAMETERS: f64 = 1e15;

/// Parameters of the model as the training has them; those of its matrices alone where there is no training, or a model beyond any size.
pub(super) fn parameters(shape: &Shape, plan: Option<&Plan>) -> f64 {
    let experts = shape.mixture.map_or(1.0, |of| of.experts as f64);
    let of_matrices = shape.parameters();
    let is_counted = shape.blocks() as f64 * experts < MOST_PARTS && of_matrices < MOST_PARAMETERS;
    match plan.filter(|_| is_counted) {
        Some(plan) => plan.parameters() as f64,
        None => of_matrices,
    }
}

/// Seconds of a step of `batch` sequences: by the planner where the layout divides them, otherwise in proportion.
fn step_seconds(asked: &Asked<'_>, best: &Planned, batch: usize) -> f64 {
    let layout = Layout {
        global_batch: batch,
        ..best.layout
    };
    let of_step = layout.micro_batch * layout.dp;
    match batch.is_multiple_of(of_step) {
        true => asked.planned(layout, best.memory).time.total,
        false => best.time.total * batch as f64 / asked.global_batch as f64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Cluster, rank_bytes};
    use crate::run::plan_question::{of_model, plan_of};
    use std::path::Path;

    fn recipe(name: &str, sets: &[&str]) -> Job {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("jobs/recipes");
        let sets: Vec<String> = sets.iter().map(|set| (*set).to_owned()).collect();
        crate::job::load(&folder.join(format!("{name}.toml")), &sets).unwrap()
    }

    fn training(job: &Job, dp: usize) -> (Training, f64) {
        let cluster = Cluster {
            failures_per_year: Some(0.09),
            checkpoint_rate: Some(10e9),
            ..Cluster::load("dgx-a100").unwrap()
        };
        let asked = of_model(job, &cluster, dp, Some(50_304)).unwrap();
        let layout = Layout {
            dp,
            zero: 1,
            ..Layout::one(asked.global_batch)
        };
        let best = asked.planned(layout, rank_bytes(&asked.shape, &layout));
        let plan = plan_of(job, &asked, &layout);
        let step = best.time.total;
        let parameters = parameters(&asked.shape, plan.as_ref());
        (Training::of(job, &asked, &best, parameters), step)
    }

    /// Every step one by one, as the training takes its batches.
    #[test]
    fn the_steps_of_a_rising_batch_are_those_that_training_makes() {
        let sets = [
            "train.global_batch=48",
            "train.micro_batch=1",
            "train.steps=100",
            "train.warmup_steps=1",
            "train.batch_rampup={ start = 8, increment = 8, samples = 700 }",
        ];
        let job = recipe("gpt2_124m", &sets);
        let train = job.train.as_ref().unwrap();
        let (mut wanted, mut consumed) = (Vec::<Stretch>::new(), 0);
        for _ in 0..train.steps {
            let batch = train.batch_at(consumed);
            match wanted.last_mut().filter(|last| last.batch == batch) {
                Some(last) => last.steps += 1,
                None => wanted.push(Stretch { steps: 1, batch }),
            }
            consumed += batch as u64;
        }
        assert!(wanted.len() > 4);
        assert_eq!(stretches(train), wanted);
        let (found, whole) = training(&job, 8);
        assert_eq!(found.steps, 100);
        assert_eq!(found.tokens, consumed as f64 * 1024.0);
        // small steps are shorter, but not by as much as they have fewer sequences
        assert!(found.seconds < 100.0 * whole);
        assert!(found.seconds > consumed as f64 / 48.0 * whole);
    }

    #[test]
    fn the_clock_ends_a_training_whose_steps_take_longer() {
        let of = |budget: &str| {
            let budget = format!("train.time_budget={budget:?}");
            training(&recipe("gpt2_124m", &[&budget]), 8)
        };
        let (free, step) = of("");
        let all = free.steps;
        assert!(!free.is_ended_by_clock && free.seconds > 86_400.0);
        assert!((free.seconds / (all as f64 * step) - 1.0).abs() < 1e-12);
        let (day, _) = of("24h");
        assert!(day.is_ended_by_clock);
        assert_eq!(day.steps as f64, (86_400.0 / step).ceil());
        assert!((86_400.0..86_400.0 + step).contains(&day.seconds));
        let share = day.steps as f64 / all as f64;
        assert!((day.tokens / free.tokens - share).abs() < 1e-12);
        assert!((day.failures.unwrap() / free.failures.unwrap() - share).abs() < 1e-9);
        let (long, _) = of("10000h");
        assert!(!long.is_ended_by_clock && long.steps == all);
        let (same, _) = of("0.5d11h59m60s");
        assert_eq!((same.steps, same.seconds), (day.steps, day.seconds));
    }

    /// GPT-2 small has 124,439,808 parameters with 50,257 ids (and 50,304 - 50,257 more rows of 768 here), of which its 12 layers'
    /// matrices are 12 x 12 x 768^2.
    #[test]
    fn checkpoints_have_what_the_optimizer_keeps() {
        let parameters = 124_439_808.0 + 47.0 * 768.0;
        let matrices = 12.0 * 12.0 * 768.0 * 768.0;
        let of = |sets: &[&str]| training(&recipe("gpt2_124m", sets), 8).0.checkpoint;
        assert_eq!(of(&[]), 12.0 * parameters);
        assert_eq!(of(&["train.ema_decay=0.999"]), 16.0 * parameters);
        let muon = of(&["train.optimizer=\"muon\""]);
        assert_eq!(muon, 12.0 * parameters - 4.0 * matrices);
        let [plain, averaged] = [&[][..], &["train.ema_decay=0.999"]]
            .map(|sets| training(&recipe("gpt2_124m", sets), 8).0.interval.unwrap());
        // Young's interval goes with the root of what is written
        assert!((averaged / plain - (16.0_f64 / 12.0).sqrt()).abs() < 1e-12);
    }
}
