//! `[model] rope_scaling`: extends rotary positions beyond the length that a model was trained for. Formulas and
//! papers: `kernels/src/descriptor/frequencies.rs`. Numbers are named as in Hugging Face's `rope_parameters`,
//! except `original_length` for `original_max_position_embeddings`.

use kernels::rope::Scaling;
use serde::{Deserialize, Serialize};

/// One scaling method, with its parameters.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum RopeScaling {
    /// All wavelengths times `factor`.
    Linear {
        /// At least 1.
        factor: f64,
    },
    /// A larger base for texts longer than `original_length`.
    Dynamic {
        /// At least 1.
        factor: f64,
        /// Tokens the model was made for.
        original_length: usize,
    },
    /// YaRN.
    Yarn {
        /// At least 1.
        factor: f64,
        /// Tokens the model was made for.
        original_length: usize,
        /// Turns above which a pair is left alone. Default: 32.
        #[serde(default = "beta_fast")]
        beta_fast: f64,
        /// Turns below which a pair is stretched in full. Default: 1.
        #[serde(default = "beta_slow")]
        beta_slow: f64,
        /// Factor of cosines and sines. Absent: 0.1 ln(factor) + 1, or that of `mscale`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        attention_factor: Option<f64>,
        /// Cosines and sines are multiplied by (0.1 mscale ln(factor) + 1) / (0.1 mscale_all_dim ln(factor) + 1) (DeepSeek).
        /// Absent: see `attention_factor`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        mscale: Option<f64>,
        /// With `mscale`; with `multi_latent_attention`, scores are multiplied by (0.1 mscale_all_dim ln(factor) + 1)^2 as well.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        mscale_all_dim: Option<f64>,
        /// Round the ends of the ramp between both outwards to whole pairs (not gpt-oss). Default: true.
        #[serde(default = "truncate")]
        truncate: bool,
    },
    /// Llama 3.1's bands of wavelengths.
    Llama3 {
        /// At least 1.
        factor: f64,
        /// Wavelengths above original_length / this are stretched in full.
        low_freq_factor: f64,
        /// Wavelengths below original_length / this are left alone.
        high_freq_factor: f64,
        /// Tokens the model was made for.
        original_length: usize,
    },
}

fn beta_fast() -> f64 {
    32.0
}

fn beta_slow() -> f64 {
    1.0
}

fn truncate() -> bool {
    true
}

/// YaRN's factor of a vector's length, for a stretch.
fn magnitude(factor: f64, mscale: f64) -> f64 {
    0.1 * mscale * factor.ln() + 1.0
}

impl RopeScaling {
    /// Factor of scores of a model with latents (DeepSeek); `None`: 1.
    pub(crate) fn score_factor(&self) -> Option<f64> {
        match *self {
            RopeScaling::Yarn {
                factor,
                mscale_all_dim: Some(mscale),
                ..
            } => Some(magnitude(factor, mscale).powi(2)),
            RopeScaling::Yarn { .. }
            | RopeScaling::Linear { .. }
            | RopeScaling::Dynamic { .. }
            | RopeScaling::Llama3 { .. } => None,
        }
    }

    /// Calls `problem` with found and wanted for contradictions that the angles do not show.
    pub(crate) fn check(&self, problem: &mut dyn FnMut(String, &str)) {
        let RopeScaling::Yarn {
            mscale,
            mscale_all_dim,
            attention_factor,
            ..
        } = self
        else {
            return;
        };
        let is_right = |x: &f64| x.is_finite() && *x > 0.0;
        if mscale.is_some() != mscale_all_dim.is_some()
            || ![mscale, mscale_all_dim].into_iter().flatten().all(is_right)
        {
            let found = format!("mscale = {mscale:?} with mscale_all_dim = {mscale_all_dim:?}");
            problem(found, "both above 0, or none of them");
        }
        if let (Some(factor), Some(mscale)) = (attention_factor, mscale) {
            let found = format!("attention_factor = {factor} with mscale = {mscale}");
            problem(
                found,
                "one of them: both are the factor of cosines and sines",
            );
        }
    }

    /// For texts of `length` tokens.
    pub(crate) fn resolve(&self, length: usize) -> Scaling {
        match *self {
            RopeScaling::Linear { factor } => Scaling::Linear { factor },
            RopeScaling::Dynamic {
                factor,
                original_length: original,
            } => Scaling::Dynamic {
                factor,
                original,
                length,
            },
            RopeScaling::Yarn {
                factor,
                original_length: original,
                beta_fast,
                beta_slow,
                attention_factor,
                mscale,
                mscale_all_dim,
                truncate,
            } => Scaling::Yarn {
                factor,
                original,
                beta_fast,
                beta_slow,
                truncate,
                magnitude: attention_factor.or_else(|| {
                    Some(magnitude(factor, mscale?) / magnitude(factor, mscale_all_dim?))
                }),
            },
            RopeScaling::Llama3 {
                factor,
                low_freq_factor: low,
                high_freq_factor: high,
                original_length: original,
            } => Scaling::Llama3 {
                factor,
                low,
                high,
                original,
            },
        }
    }
}
