//! Learning rate of a step: linear warm-up, then cosine, line or constant.
//! Formula: Megatron's `OptimizerParamScheduler.get_lr` with decay over all steps.
//! We differ: Megatron evaluates it at the number of finished steps, so that its first update has
//! rate 0; here step k (from 1) uses the rate at k, and the last step uses `min_lr`.

use std::f64::consts::PI;

use crate::config::{Schedule, TrainConfig};

/// Learning rate at `step`, counted from 1.
pub(crate) fn rate(config: &TrainConfig, step: u64) -> f64 {
    let (step, warmup, steps) = (step as f64, config.warmup_steps as f64, config.steps as f64);
    if warmup > 0.0 && step <= warmup {
        return config.lr * step / warmup;
    }
    if config.schedule == Schedule::Constant {
        return config.lr;
    }
    if step > steps {
        return config.min_lr;
    }
    let done = (step - warmup) / (steps - warmup);
    let left = match config.schedule {
        Schedule::Linear => 1.0 - done,
        Schedule::Cosine | Schedule::Constant => 0.5 * ((PI * done).cos() + 1.0),
    };
    config.min_lr + left * (config.lr - config.min_lr)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(schedule: Schedule) -> TrainConfig {
        let (lr, min_lr) = (1.0, 0.1);
        TrainConfig {
            lr,
            min_lr,
            warmup_steps: 10,
            steps: 110,
            schedule,
            ..TrainConfig::default()
        }
    }

    fn close(found: f64, wanted: f64) {
        assert!((found - wanted).abs() < 1e-12, "{found} {wanted}");
    }

    #[test]
    fn warm_up_is_linear_and_reaches_the_peak() {
        close(rate(&config(Schedule::Cosine), 1), 0.1);
        close(rate(&config(Schedule::Cosine), 5), 0.5);
        close(rate(&config(Schedule::Cosine), 10), 1.0);
    }

    #[test]
    fn cosine_is_half_way_in_the_middle_and_ends_at_the_floor() {
        close(rate(&config(Schedule::Cosine), 60), 0.55);
        close(
            rate(&config(Schedule::Cosine), 35),
            0.1 + 0.9 * 0.5 * (1.0 + 0.5f64.sqrt()),
        );
        close(rate(&config(Schedule::Cosine), 110), 0.1);
        close(rate(&config(Schedule::Cosine), 500), 0.1);
    }

    #[test]
    fn linear_and_constant_follow_their_lines() {
        close(rate(&config(Schedule::Linear), 35), 0.1 + 0.9 * 0.75);
        close(rate(&config(Schedule::Linear), 110), 0.1);
        close(rate(&config(Schedule::Constant), 110), 1.0);
    }

    /// From megatron-core 0.16.1 by tests/oracles/megatron_lr.py.
    #[test]
    fn rates_are_megatrons() {
        let steps = [1, 5, 10, 11, 35, 60, 109, 110, 120];
        let cosine = [
            0.1,
            0.5,
            1.0,
            0.9997779521645792,
            0.8681980515339464,
            0.55,
            0.10022204783542078,
            0.1,
            0.1,
        ];
        let linear = [0.1, 0.5, 1.0, 0.991, 0.775, 0.55, 0.109, 0.1, 0.1];
        for (i, step) in steps.into_iter().enumerate() {
            close(rate(&config(Schedule::Cosine), step), cosine[i]);
            close(rate(&config(Schedule::Linear), step), linear[i]);
        }
    }

    #[test]
    fn a_job_that_is_all_warm_up_has_finite_rates() {
        let config = TrainConfig {
            steps: 4,
            warmup_steps: 4,
            ..config(Schedule::Cosine)
        };
        assert!((1..=5).all(|step| rate(&config, step).is_finite()));
    }
}
