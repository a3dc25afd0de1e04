//! Learning rate of a step: linear warm-up, then one of Megatron's shapes.
//! Formula: Megatron's `OptimizerParamScheduler.get_lr`: cosine, line, constant, inverse square root,
//! and warm-up, stable, decay with its four decays.
//! We differ: Megatron evaluates it at the number of finished steps, so that its first update has
//! rate 0; here step k (from 1) uses the rate at k, and the last step uses `min_lr`. With a time budget
//! k is the share of time used times the steps, where that is further on.

use std::f64::consts::PI;

use crate::config::{Schedule, TrainConfig, WsdDecay};

/// Learning rate at step `at`, counted from 1; between two steps under a time budget.
pub(crate) fn rate(config: &TrainConfig, at: f64) -> f64 {
    let (lr, min_lr) = (config.lr, config.min_lr);
    let (warmup, end) = (config.warmup_steps as f64, config.decay_end() as f64);
    if warmup > 0.0 && at <= warmup {
        return lr * at / warmup;
    }
    if config.schedule == Schedule::Constant {
        return lr;
    }
    if at > end {
        return min_lr;
    }
    let done = (at - warmup) / (end - warmup);
    let left = match config.schedule {
        Schedule::InverseSquareRoot => {
            return min_lr.max(lr * warmup.max(1.0).sqrt() / at.max(1.0).sqrt());
        }
        Schedule::Linear => 1.0 - done,
        Schedule::Cosine | Schedule::Constant => half_cosine(done),
        Schedule::Wsd => {
            let steps = config.wsd_steps() as f64;
            let into = at - (end - steps);
            if into <= 0.0 {
                1.0
            } else {
                decay(config.wsd_decay, into / steps)
            }
        }
    };
    min_lr + left * (lr - min_lr)
}

impl TrainConfig {
    /// Whether the learning rate of every step is 0, as with one step and `min_lr = 0`: after the warm-up, in which it is above 0,
    /// no rate is above that of the first step.
    pub fn never_learns(&self) -> bool {
        self.steps > 0 && rate(self, 1.0) == 0.0
    }
}

fn half_cosine(x: f64) -> f64 {
    0.5 * ((PI * x).cos() + 1.0)
}

/// Remaining share of the rate after a share `x` of the decay.
fn decay(shape: WsdDecay, x: f64) -> f64 {
    match shape {
        WsdDecay::Linear => 1.0 - x,
        WsdDecay::Cosine => half_cosine(x),
        WsdDecay::Exponential => 2.0 * 0.5f64.powf(x) - 1.0,
        WsdDecay::MinusSqrt => 1.0 - x.sqrt(),
    }
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
        close(rate(&config(Schedule::Cosine), 1.0), 0.1);
        close(rate(&config(Schedule::Cosine), 5.0), 0.5);
        close(rate(&config(Schedule::Cosine), 10.0), 1.0);
    }

    #[test]
    fn cosine_is_half_way_in_the_middle_and_ends_at_the_floor() {
        close(rate(&config(Schedule::Cosine), 60.0), 0.55);
        close(
            rate(&config(Schedule::Cosine), 35.0),
            0.1 + 0.9 * 0.5 * (1.0 + 0.5f64.sqrt()),
        );
        close(rate(&config(Schedule::Cosine), 110.0), 0.1);
        close(rate(&config(Schedule::Cosine), 500.0), 0.1);
    }

    #[test]
    fn linear_and_constant_follow_their_lines() {
        close(rate(&config(Schedule::Linear), 35.0), 0.1 + 0.9 * 0.75);
        close(rate(&config(Schedule::Linear), 110.0), 0.1);
        close(rate(&config(Schedule::Constant), 110.0), 1.0);
    }

    /// tests/oracles/megatron_lr.json: megatron-core 0.16.1.
    #[test]
    fn rates_are_megatrons() {
        let text = include_str!("../../tests/oracles/megatron_lr.json");
        let golden: serde_json::Value = serde_json::from_str(text).unwrap();
        let styles = golden["rates"].as_object().unwrap();
        assert_eq!(styles.len(), 8);
        for (style, rates) in styles {
            let (schedule, wsd_decay) = match style.as_str() {
                "cosine" => (Schedule::Cosine, WsdDecay::Linear),
                "linear" => (Schedule::Linear, WsdDecay::Linear),
                "constant" => (Schedule::Constant, WsdDecay::Linear),
                "inverse-square-root" => (Schedule::InverseSquareRoot, WsdDecay::Linear),
                "WSD linear" => (Schedule::Wsd, WsdDecay::Linear),
                "WSD cosine" => (Schedule::Wsd, WsdDecay::Cosine),
                "WSD exponential" => (Schedule::Wsd, WsdDecay::Exponential),
                "WSD minus_sqrt" => (Schedule::Wsd, WsdDecay::MinusSqrt),
                _ => panic!("{style}"),
            };
            // all of it is over before the last step
            let config = TrainConfig {
                steps: 130,
                decay_steps: 110,
                wsd_decay_steps: 40,
                wsd_decay,
                ..config(schedule)
            };
            let steps = golden["steps"].as_array().unwrap().iter();
            for (step, want) in steps.zip(rates.as_array().unwrap()) {
                let at = step.as_f64().unwrap();
                close(rate(&config, at), want.as_f64().unwrap());
            }
        }
    }

    #[test]
    fn a_job_that_is_all_warm_up_has_finite_rates() {
        let config = TrainConfig {
            steps: 4,
            warmup_steps: 4,
            ..config(Schedule::Cosine)
        };
        assert!((1..=5).all(|step| rate(&config, f64::from(step)).is_finite()));
    }

    #[test]
    fn a_training_never_learns_where_the_largest_rate_of_its_steps_is_0() {
        let schedules = [
            Schedule::Cosine,
            Schedule::Linear,
            Schedule::Constant,
            Schedule::Wsd,
            Schedule::InverseSquareRoot,
        ];
        let mut never = 0;
        for schedule in schedules {
            for steps in 1..5 {
                for (warmup_steps, decay_steps) in [(0, 0), (0, 1), (0, 3), (1, 0), (2, 3), (9, 0)]
                {
                    for (lr, min_lr) in [(1.0, 0.0), (1.0, 0.1), (0.0, 0.0)] {
                        let config = TrainConfig {
                            schedule,
                            steps,
                            warmup_steps,
                            decay_steps,
                            lr,
                            min_lr,
                            ..TrainConfig::default()
                        };
                        let most = (1..=steps).map(|step| rate(&config, step as f64));
                        let most = most.fold(0.0, f64::max);
                        assert_eq!(config.never_learns(), most == 0.0, "{config:?}");
                        never += usize::from(most == 0.0 && lr > 0.0);
                    }
                }
            }
        }
        assert!(never > 0);
    }
}
