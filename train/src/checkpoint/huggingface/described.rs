//! The model that a `config.json` describes.

use crate::checkpoint::huggingface::fields::Fields;
use crate::config::{Activation, ModelConfig};

/// Model settings and lengths read from a `config.json`.
#[derive(Default)]
pub(crate) struct Read {
    pub model: ModelConfig,
    pub vocab: usize,
    pub seq_length: usize,
    /// As in `Plan`.
    pub decoder_length: usize,
    /// As in `Plan`.
    pub start: Option<u32>,
    /// Ignored fields that might be of interest, one line each.
    pub notes: Vec<String>,
}

/// The shortest decimal that is this f32: 1e-5 stays 1e-5 in JSON.
pub(crate) fn decimal(x: f32) -> f64 {
    x.to_string().parse().unwrap_or(f64::from(x))
}

/// Name of the activation, gated or not, as Hugging Face calls its function.
pub(crate) fn function(activation: Activation) -> &'static str {
    match activation {
        Activation::GeluTanh => "gelu_new",
        Activation::GegluTanh => "gelu_pytorch_tanh",
        Activation::Gelu | Activation::Geglu => "gelu",
        Activation::QuickGelu => "quick_gelu",
        Activation::Relu => "relu",
        Activation::SquaredRelu => "relu2",
        Activation::Swiglu | Activation::SwigluClamped => "silu",
    }
}

/// The activation without a gate in a field; of the field's default `absent`.
pub(crate) fn plain(fields: &Fields<'_>, name: &str, absent: &str) -> Activation {
    match fields.text_or(name, absent).as_str() {
        "gelu_new" | "gelu_pytorch_tanh" | "gelu_fast" => Activation::GeluTanh,
        "gelu" => Activation::Gelu,
        "quick_gelu" => Activation::QuickGelu,
        "relu" => Activation::Relu,
        "relu2" => Activation::SquaredRelu,
        other => {
            let wanted = "gelu_new, gelu_fast, gelu, quick_gelu, relu or relu2";
            fields.wrong(name, other, wanted);
            Activation::GeluTanh
        }
    }
}

/// `head_dim` of a model: 0, the default, where the width follows from `d_model`.
pub(crate) fn stated_width(head_dim: usize, heads: usize, d_model: usize) -> usize {
    match head_dim.checked_mul(heads) {
        Some(all) if all == d_model => 0,
        _ => head_dim,
    }
}
