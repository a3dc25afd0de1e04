//! The number format of a model's products, as vLLM's flag `--dtype` names it.

use clap::ValueEnum;
use train::config::Precision;
use train::dist::InferenceOptions;

use crate::job::WrongUse;

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
    /// Activations of linear layers rounded to 8 bits where the weights are in blocks of 8 or 4 bits, as llama.cpp does; other
    /// products in float32. On the CPU.
    Int8,
}

impl Dtype {
    /// Its value of the flag.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Dtype::Auto => "auto",
            Dtype::Float32 => "float32",
            Dtype::Bfloat16 => "bfloat16",
            Dtype::Int8 => "int8",
        }
    }

    /// The engine's number format; `None`: the one of the checkpoint.
    fn precision(self) -> Option<Precision> {
        match self {
            Dtype::Auto => None,
            Dtype::Float32 | Dtype::Int8 => Some(Precision::F32),
            Dtype::Bfloat16 => Some(Precision::Bf16),
        }
    }

    /// How models are opened with such products.
    pub(crate) fn on(self, on: InferenceOptions<'_>) -> InferenceOptions<'_> {
        on.in_precision(self.precision())
            .with_rounded_activations(self == Dtype::Int8)
    }

    /// Checks that a model has weights whose products the format changes.
    ///
    /// # Errors
    /// int8 for a model of which no product rounds activations.
    pub(crate) fn expect(self, rounds_activations: bool) -> anyhow::Result<()> {
        if self != Dtype::Int8 || rounds_activations {
            return Ok(());
        }
        let message = "--dtype int8: found no weights in whole numbers of 8 or 4 bits on the CPU, want a model such as \
                       `millrace quantize MODEL --type q8_0 --to gguf OUT` writes";
        Err(WrongUse::new(message.to_owned()).into())
    }
}
