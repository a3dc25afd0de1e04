//! The ways of rounding that look at activations, and their settings.

use crate::checkpoint::quantized::write::{Int4Form, WeightFormat};
use crate::error::{Error, Result};

/// Settings of GPTQ.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GptqOptions {
    /// Inputs of an output that share a scale.
    pub group: usize,
    /// Part of the mean of H's diagonal that is added to it; 0.01 in the paper's program.
    pub damping: f64,
    /// Rounds inputs in the order of falling H_ii (the program's `act_order`).
    pub act_order: bool,
}

/// How weights are rounded.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Method {
    /// 4 bits by groups: errors of rounding are made up for (Frantar et al. 2022, arXiv:2210.17323).
    Gptq(GptqOptions),
    /// 4 bits by groups: inputs are scaled before their weights are rounded to the nearest (Lin et al. 2023, arXiv:2306.00978).
    Awq {
        /// Inputs of an output that share a scale.
        group: usize,
    },
    /// int8 by output with inputs quantized by token: outliers of inputs move into weights (Xiao et al. 2022, arXiv:2211.10438).
    SmoothQuant {
        /// Part of the outliers that moves, 0 to 1; 0.5 in the paper.
        alpha: f64,
    },
}

/// A quantization by activations.
#[derive(Clone, Copy, Debug)]
pub struct Calibration<'a> {
    /// How weights are rounded.
    pub method: Method,
    /// Form of 4-bit numbers in the folder.
    pub form: Int4Form,
    /// Ids of texts, of 1 to the model's positions each.
    pub texts: &'a [Vec<u32>],
}

impl Method {
    /// The format of the folder.
    pub(super) fn format(self, form: Int4Form) -> WeightFormat {
        match self {
            Method::Gptq(GptqOptions { group, .. }) | Method::Awq { group } => {
                WeightFormat::Int4 { group, form }
            }
            Method::SmoothQuant { .. } => WeightFormat::Int8,
        }
    }

    /// Refuses settings that cannot be.
    pub(super) fn check(self) -> Result<()> {
        let (what, value, is_fine, wanted) = match self {
            Method::Gptq(GptqOptions { damping, .. }) => {
                let is_fine = damping.is_finite() && damping > 0.0;
                (
                    "damping of GPTQ",
                    damping,
                    is_fine,
                    "a number above 0, such as 0.01",
                )
            }
            Method::SmoothQuant { alpha } => {
                let is_fine = (0.0..=1.0).contains(&alpha);
                ("alpha of SmoothQuant", alpha, is_fine, "0 to 1")
            }
            Method::Awq { .. } => return Ok(()),
        };
        match is_fine {
            true => Ok(()),
            false => Err(Error::Request {
                what,
                found: value.to_string(),
                wanted: wanted.into(),
            }),
        }
    }
}

/// Change of a linear layer's outputs on the calibration texts.
#[derive(Clone, Debug, PartialEq)]
pub struct LayerError {
    /// Name of the layer.
    pub name: String,
    /// Sum of squares of the change by that of the outputs.
    pub error: f64,
    /// The same for the weights rounded to the nearest.
    pub nearest: f64,
}
