//! `[train.preference]`: preference optimisation, which learns from pairs of a chosen and a rejected answer to the same prompt.
//! `[finetune]` of a job fills it in with `method = "dpo"`.

use serde::{Deserialize, Serialize};

use crate::config::Problem;

/// Direct preference optimisation (Rafailov et al. 2023, arXiv:2305.18290) and its variants, with TRL's names.
///
/// The margin of a pair is `h = (ln p(chosen) - ln r(chosen)) - (ln p(rejected) - ln r(rejected))`, where `p` is the model and `r`
/// the reference, the model as it was before the first step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PreferenceConfig {
    /// Loss of a pair as a function of its margin. TRL's `loss_type`. Default: sigmoid.
    pub loss: PreferenceLoss,
    /// Factor of the margin: how far the model may move from the reference; the smaller, the farther. TRL's `beta`.
    /// Default: 0.1.
    pub beta: f64,
    /// Share of the pairs whose answers are taken to be the wrong way round (cDPO: Mitchell 2023); of `sigmoid` alone. TRL's
    /// `label_smoothing`. Default: 0.
    pub label_smoothing: f64,
}

/// Loss of a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PreferenceLoss {
    /// `-ln sigmoid(beta h)`, DPO's own.
    Sigmoid,
    /// `max(0, 1 - beta h)` (SLiC-HF: Zhao et al. 2023, arXiv:2305.10425).
    Hinge,
    /// `(h - 1 / (2 beta))^2`, in which every answer's log-probability is the mean over its tokens (IPO: Azar et al. 2023,
    /// arXiv:2310.12036).
    Ipo,
}

impl Default for PreferenceConfig {
    fn default() -> Self {
        PreferenceConfig {
            loss: PreferenceLoss::Sigmoid,
            beta: 0.1,
            label_smoothing: 0.0,
        }
    }
}

/// A pair's loss and its derivative by the margin.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct LossOfMargin {
    pub loss: f64,
    pub slope: f64,
}

impl PreferenceConfig {
    /// Loss of a pair with this margin.
    pub(crate) fn loss_of(&self, margin: f64) -> LossOfMargin {
        let (beta, wrong) = (self.beta, self.label_smoothing);
        match self.loss {
            PreferenceLoss::Sigmoid => {
                let x = beta * margin;
                LossOfMargin {
                    loss: (1.0 - wrong) * softplus(-x) + wrong * softplus(x),
                    slope: beta * (wrong * sigmoid(x) - (1.0 - wrong) * sigmoid(-x)),
                }
            }
            PreferenceLoss::Hinge => {
                let short = 1.0 - beta * margin;
                LossOfMargin {
                    loss: short.max(0.0),
                    slope: if short > 0.0 { -beta } else { 0.0 },
                }
            }
            PreferenceLoss::Ipo => {
                let off = margin - 1.0 / (2.0 * beta);
                LossOfMargin {
                    loss: off * off,
                    slope: 2.0 * off,
                }
            }
        }
    }

    /// Whether an answer's log-probability is the mean over its tokens; else it is their sum.
    pub(crate) fn is_mean(&self) -> bool {
        match self.loss {
            PreferenceLoss::Ipo => true,
            PreferenceLoss::Sigmoid | PreferenceLoss::Hinge => false,
        }
    }

    pub(crate) fn check(&self, problem: Problem<'_>) {
        if !(self.beta.is_finite() && self.beta > 0.0) {
            problem(
                "beta",
                self.beta.to_string(),
                "a finite number above 0, such as 0.1",
            );
        }
        let smoothing = self.label_smoothing;
        if !(0.0..0.5).contains(&smoothing) {
            problem(
                "label_smoothing",
                smoothing.to_string(),
                "at least 0 and below 0.5",
            );
        } else if smoothing > 0.0 && self.loss != PreferenceLoss::Sigmoid {
            problem(
                "label_smoothing",
                smoothing.to_string(),
                "0, or loss = \"sigmoid\"",
            );
        }
    }
}

/// ln(1 + e^x), without overflow.
fn softplus(x: f64) -> f64 {
    x.max(0.0) + (-x.abs()).exp().ln_1p()
}

fn sigmoid(x: f64) -> f64 {
    // e^-|x| does not overflow
    let small = (-x.abs()).exp();
    if x >= 0.0 {
        1.0 / (1.0 + small)
    } else {
        small / (1.0 + small)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(loss: PreferenceLoss, label_smoothing: f64) -> PreferenceConfig {
        PreferenceConfig {
            loss,
            beta: 0.3,
            label_smoothing,
        }
    }

    #[test]
    fn slopes_are_the_derivatives_of_the_losses() {
        for (loss, smoothing) in [
            (PreferenceLoss::Sigmoid, 0.0),
            (PreferenceLoss::Sigmoid, 0.2),
            (PreferenceLoss::Hinge, 0.0),
            (PreferenceLoss::Ipo, 0.0),
        ] {
            let config = config(loss, smoothing);
            for margin in [-40.0, -3.0, -0.1, 0.0, 0.7, 2.5, 3.0, 5.0, 40.0] {
                let step = 1e-5;
                let sides = [margin - step, margin + step].map(|at| config.loss_of(at).loss);
                let wanted = (sides[1] - sides[0]) / (2.0 * step);
                let found = config.loss_of(margin).slope;
                assert!(
                    (found - wanted).abs() < 1e-6,
                    "{loss:?} {margin}: {found} {wanted}"
                );
            }
        }
    }

    #[test]
    fn losses_have_their_values_at_the_reference_and_do_not_overflow() {
        let at = |loss, margin| config(loss, 0.0).loss_of(margin).loss;
        let ln_2 = std::f64::consts::LN_2;
        assert!((at(PreferenceLoss::Sigmoid, 0.0) - ln_2).abs() < 1e-15);
        assert!((at(PreferenceLoss::Hinge, 0.0) - 1.0).abs() < 1e-15);
        assert!((at(PreferenceLoss::Ipo, 0.0) - (1.0f64 / 0.6).powi(2)).abs() < 1e-12);
        assert!((at(PreferenceLoss::Sigmoid, -1e5) - 3e4).abs() < 1e-9);
        assert!(at(PreferenceLoss::Sigmoid, 1e5) == 0.0);
    }

    #[test]
    fn numbers_out_of_range_are_named() {
        let bad = PreferenceConfig {
            loss: PreferenceLoss::Hinge,
            beta: 0.0,
            label_smoothing: 0.1,
        };
        let mut found = Vec::new();
        bad.check(&mut |key, _, _| found.push(key.to_owned()));
        assert_eq!(found, ["beta", "label_smoothing"]);
    }
}
