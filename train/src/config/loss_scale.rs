//! The job's `[train.loss_scale]` table.

use serde::{Deserialize, Serialize};

/// Dynamic loss scaling for `precision = "fp16"`: how the scale reacts to overflows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LossScaleConfig {
    /// First scale. Megatron's `initial-loss-scale`. Default: 2^32.
    pub initial: f64,
    /// Minimum scale; a step that overflows with it is a bad one (`on_bad_step`). Megatron's
    /// `min-loss-scale`. Default: 1.
    pub min: f64,
    /// Clean steps in a row after which the scale grows. Megatron's `loss-scale-window`. Default: 1000.
    pub window: u64,
    /// The scale shrinks at the overflow of this number and at each further one, until it has grown again.
    /// Megatron's `hysteresis`. Default: 2.
    pub hysteresis: u64,
    /// Growth factor. Default: 2.
    pub growth: f64,
    /// Backoff factor. Default: 0.5.
    pub backoff: f64,
}

impl Default for LossScaleConfig {
    fn default() -> Self {
        LossScaleConfig {
            initial: 4_294_967_296.0,
            min: 1.0,
            window: 1000,
            hysteresis: 2,
            growth: 2.0,
            backoff: 0.5,
        }
    }
}

impl LossScaleConfig {
    /// Calls `problem` for every contradiction.
    pub(crate) fn check(&self, problem: &mut dyn FnMut(&str, String, &str)) {
        let largest = f64::from(f32::MAX);
        let is_scale = |x: f64| x >= f64::from(f32::MIN_POSITIVE) && x <= largest;
        if !is_scale(self.initial) {
            let wanted = "a number above 0 that f32 holds";
            problem("loss_scale.initial", self.initial.to_string(), wanted);
        }
        if !(is_scale(self.min) && self.min <= self.initial) {
            let found = format!("{} with initial = {}", self.min, self.initial);
            problem("loss_scale.min", found, "above 0 and at most initial");
        }
        for (key, value) in [("window", self.window), ("hysteresis", self.hysteresis)] {
            if value == 0 {
                problem(&format!("loss_scale.{key}"), "0".into(), "at least 1");
            }
        }
        if !(self.growth.is_finite() && self.growth > 1.0) {
            let found = self.growth.to_string();
            problem("loss_scale.growth", found, "a finite number above 1");
        }
        if !(self.backoff > 0.0 && self.backoff < 1.0) {
            let found = self.backoff.to_string();
            problem("loss_scale.backoff", found, "above 0 and below 1");
        }
    }
}
