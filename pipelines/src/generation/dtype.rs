//! The number format of a model's products, as vLLM's flag `--dtype` names it.

use clap::ValueEnum;
use train::config::Precision;

/// Number format of products.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Dtype {
    /// That of the checkpoint; float32 for models of other programs.
    #[default]
    Auto,
    /// IEEE single precision.
    #[value(alias = "f32")]
    Float32,
    /// Factors rounded to bfloat16, with sums in float32.
    #[value(alias = "bf16")]
    Bfloat16,
}

impl Dtype {
    /// Its value of the flag.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Dtype::Auto => "auto",
            Dtype::Float32 => "float32",
            Dtype::Bfloat16 => "bfloat16",
        }
    }

    /// The engine's number format; `None`: the one of the checkpoint.
    pub(crate) fn precision(self) -> Option<Precision> {
        match self {
            Dtype::Auto => None,
            Dtype::Float32 => Some(Precision::F32),
            Dtype::Bfloat16 => Some(Precision::Bf16),
        }
    }
}
