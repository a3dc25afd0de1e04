//! Dynamic loss scaling: the loss is multiplied by a scale before the backward pass, so that small
//! gradients are not lost in fp16, and gradients are divided by it. A step whose gradient overflows
//! changes nothing; `hysteresis` such steps since the scale last grew (and each one more) shrink the
//! scale, `window` clean ones in a row let it grow.
//!
//! Megatron-core 0.16 `DynamicGradScaler`. torch.amp.GradScaler is `hysteresis = 1`, `initial = 65536`,
//! `window = 2000` and a `min` that is not reached; its scale is an f32 and so is ours, and as there it
//! does not grow beyond what f32 holds. Micikevicius et al. 2018, arXiv:1710.03740, sec. 3.2.

use serde::{Deserialize, Serialize};

use crate::config::exact::Exact;
use crate::config::loss_scale::LossScaleConfig;

/// The loss scale and its counters; the same on every rank.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct LossScale {
    pub scale: Exact,
    /// Clean steps since the last overflow or growth.
    pub clean: u64,
    /// Overflows since the scale last grew.
    pub overflows: u64,
}

impl LossScale {
    pub(crate) fn start(config: &LossScaleConfig) -> LossScale {
        LossScale {
            scale: Exact(single(config.initial)),
            clean: 0,
            overflows: 0,
        }
    }

    /// Updates the scale after a step.
    pub(crate) fn follow(&mut self, config: &LossScaleConfig, is_overflow: bool) {
        if is_overflow {
            self.clean = 0;
            self.overflows += 1;
            if self.overflows >= config.hysteresis {
                let less = single(self.scale.0 * config.backoff);
                self.scale = Exact(less.max(single(config.min)));
            }
            return;
        }
        self.clean += 1;
        if self.clean == config.window {
            (self.clean, self.overflows) = (0, 0);
            let more = single(self.scale.0 * config.growth);
            if more.is_finite() {
                self.scale = Exact(more);
            }
        }
    }

    /// True if one of `scale` cannot shrink.
    pub(crate) fn is_least(config: &LossScaleConfig, scale: f64) -> bool {
        scale <= single(config.min)
    }
}

/// As f32 holds it.
#[expect(clippy::cast_possible_truncation, reason = "rounds to f32")]
fn single(x: f64) -> f64 {
    f64::from(x as f32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Deserialize)]
    struct Case {
        scaler: String,
        config: LossScaleConfig,
        /// '!' where the step overflowed.
        steps: String,
        /// After each step.
        scales: Vec<f64>,
    }

    /// `tests/oracles/loss_scale.py`: torch's GradScaler and Megatron's DynamicGradScaler.
    #[test]
    fn the_scale_goes_where_torch_and_megatron_take_it_on_the_same_overflows() {
        let text = include_str!("../../tests/oracles/loss_scale.json");
        let cases: Vec<Case> = serde_json::from_str(text).unwrap();
        for kind in ["torch", "megatron"] {
            assert!(cases.iter().any(|case| case.scaler == kind));
        }
        for case in &cases {
            let mut scale = LossScale::start(&case.config);
            for (at, (step, &want)) in case.steps.chars().zip(&case.scales).enumerate() {
                scale.follow(&case.config, step == '!');
                let what = (&case.scaler, &case.config, at);
                // JSON's text may be read one bit of an f64 off
                assert_eq!(scale.scale.0, single(want), "{what:?}");
            }
            assert_eq!(case.steps.len(), case.scales.len());
        }
    }

    #[test]
    fn contradictions_are_told_all_at_once() {
        let config = LossScaleConfig {
            initial: 0.5,
            min: 1.0,
            window: 0,
            hysteresis: 0,
            growth: 1.0,
            backoff: 1.5,
        };
        let mut found = Vec::new();
        config.check(&mut |key, there, wanted| {
            found.push(format!("{key}: found {there}, want {wanted}"));
        });
        let want = [
            "loss_scale.min: found 1 with initial = 0.5, want above 0 and at most initial",
            "loss_scale.window: found 0, want at least 1",
            "loss_scale.hysteresis: found 0, want at least 1",
            "loss_scale.growth: found 1, want a finite number above 1",
            "loss_scale.backoff: found 1.5, want above 0 and below 1",
        ];
        assert_eq!(found, want);
    }
}
