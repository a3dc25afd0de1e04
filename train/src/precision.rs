//! What each op is computed in, decided in this file alone; layers ask the `Context`.
//!
//! | what | f32 | bf16, fp16 |
//! |---|---|---|
//! | products of linear layers, experts, head: both operands, each way | f32 | rounded |
//! | attention: queries, keys, values, the gradient of the mixed values | f32 | rounded |
//! | sums within products, scores, softmax, probabilities | f32 | f32 |
//! | embeddings, norms, activations, residuals, cross entropy, routers, gates of shared experts | f32 | f32 |
//! | sums of gradients and over ranks, norm, clipping, optimizer, weights, averages | f32 | f32 |
//!
//! Operands are rounded once to the nearest, ties to even, and multiplied and added up in f32: what a
//! matrix unit with f32 accumulation does (Micikevicius et al. 2018, arXiv:1710.03740, Kalamkar et al.
//! 2019, arXiv:1905.12322). Between ops activations stay f32, where Megatron and torch.autocast store
//! the 16-bit results; probabilities of attention stay f32. An operand is rounded element by element,
//! so layouts change no bits.

use std::ops::Deref;

use kernels::Tensor;
use kernels::cast::{self, Format};
use serde::{Deserialize, Serialize};

use crate::model::context::Context;

/// Number format of the operands of products. Weights, sums and the optimizer are always f32.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Precision {
    /// IEEE single precision throughout.
    F32,
    /// bfloat16.
    Bf16,
    /// IEEE half precision, with a scaled loss.
    Fp16,
}

impl Precision {
    /// What operands of products are rounded to.
    pub(crate) fn operands(self) -> Option<Format> {
        match self {
            Precision::F32 => None,
            Precision::Bf16 => Some(Format::Bf16),
            Precision::Fp16 => Some(Format::F16),
        }
    }
}

/// A tensor as a product reads it.
pub(crate) enum Operand<'a> {
    AsIs(&'a Tensor),
    Rounded(Tensor),
}

impl Deref for Operand<'_> {
    type Target = Tensor;

    fn deref(&self) -> &Tensor {
        match self {
            Operand::AsIs(x) => x,
            Operand::Rounded(x) => x,
        }
    }
}

impl Context<'_> {
    /// x as an operand of a product.
    pub(crate) fn operand<'t>(&self, x: &'t Tensor) -> kernels::Result<Operand<'t>> {
        match self.operands {
            None => Ok(Operand::AsIs(x)),
            Some(format) => cast::rounded(x, format).map(Operand::Rounded),
        }
    }

    /// Makes x what attention reads, in place.
    pub(crate) fn make_operand(&self, x: &mut Tensor) -> kernels::Result<()> {
        match self.operands {
            None => Ok(()),
            Some(format) => cast::round(x, format),
        }
    }
}
