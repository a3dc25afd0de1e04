//! Feed-forward layer: y = act(x W1^T + b1) W2 + b2, act = tanh-GELU (gpt) or SwiGLU (llama;
//! Shazeer 2020, arXiv:2002.05202: silu(gate) * up, two halves of W1).
//!
//! Tensor parallel: W1 split by column, W2 by row: one sum over ranks forward, one backward.
//! The rows of a gated W1 are stored in FEATURE_CHUNKS chunks, each f/8 gate rows then f/8 up rows:
//! any contiguous share of chunks is a smaller layer of the same form, and the sum over its output
//! features has the same leaves in every layout.

use kernels::{Tensor, gelu, swiglu};

use crate::config::Family;
use crate::model::context::{Context, Slots};
use crate::model::gradients::Gradients;
use crate::model::linear::{ColumnLinear, RowLinear};
use crate::plan::{FEATURE_CHUNKS, Plan};

pub(crate) struct Mlp {
    fc1: ColumnLinear,
    fc2: RowLinear,
    /// Chunks of gate and up rows on this rank; 0: not gated.
    chunks: usize,
}

/// Kept from forward: `[m, d]`, `[n, f]` or `[n, 2f]`, `[n, f]`.
pub(crate) struct Saved {
    x: Tensor,
    before: Tensor,
    hidden: Tensor,
}

impl Mlp {
    pub(crate) fn named(at: &str, plan: &Plan, tp: usize, slots: &Slots<'_>) -> Mlp {
        let f = plan.shape().d_ffn;
        let is_gated = plan.model.family == Family::Llama;
        let out = if is_gated { 2 * f } else { f };
        Mlp {
            fc1: ColumnLinear::named(&format!("{at}.fc1"), out, slots),
            fc2: RowLinear::named(&format!("{at}.fc2"), f, slots),
            chunks: if is_gated { FEATURE_CHUNKS / tp } else { 0 },
        }
    }

    /// x: `[m, d]` -> `[m, d]`
    pub(crate) fn forward(&self, x: Tensor, cx: &Context<'_>) -> kernels::Result<(Tensor, Saved)> {
        let mut before = self.fc1.forward(&x, cx)?;
        let n = before.dims()[0];
        let hidden = if self.chunks > 0 {
            let width = before.dims()[1];
            // [n, chunks * 2w] is [n * chunks, 2w]: each row is one chunk's gates, then its ups
            before = before.reshape(&[n * self.chunks, width / self.chunks])?;
            swiglu::forward(&before)?.reshape(&[n, width / 2])?
        } else {
            gelu::forward(&before)?
        };
        let y = self.fc2.forward(&hidden, cx)?;
        Ok((y, Saved { x, before, hidden }))
    }

    /// dy: `[m, d]` -> dx: `[m, d]`
    pub(crate) fn backward(
        &self,
        dy: &Tensor,
        saved: Saved,
        gradients: &mut Gradients,
        cx: &Context<'_>,
    ) -> kernels::Result<Tensor> {
        let Saved { x, before, hidden } = saved;
        let n = hidden.dims()[0];
        let dhidden = self.fc2.backward(dy, &hidden, gradients, cx)?;
        drop(hidden);
        let dbefore = if self.chunks > 0 {
            let width = dhidden.dims()[1];
            let dhidden = dhidden.reshape(&[n * self.chunks, width / self.chunks])?;
            swiglu::backward(&dhidden, &before)?.reshape(&[n, 2 * width])?
        } else {
            gelu::backward(&dhidden, &before)?
        };
        drop(before);
        self.fc1.backward(&dbefore, &x, gradients, cx)
    }
}
