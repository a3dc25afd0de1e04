//! Causal self-attention with grouped queries (Ainslie et al. 2023, arXiv:2305.13245).
//! y = concat_h softmax(q_h k^T / sqrt(e)) v . W_out; rotary positions (Su et al. 2021,
//! arXiv:2104.09864) for llama.
//!
//! Tensor parallel: whole groups of heads per rank; one sum over ranks forward (in `out`) and one
//! backward (in `qkv`). Scores are never stored: backward recomputes them from lse.

use kernels::{Heads, Tensor, attention, rope};

use crate::config::Family;
use crate::model::context::{Context, Slots};
use crate::model::gradients::Gradients;
use crate::model::linear::{ColumnLinear, RowLinear};
use crate::plan::Plan;

pub(crate) struct Attention {
    qkv: ColumnLinear,
    out: RowLinear,
    /// This rank's heads.
    pub heads: Heads,
    /// Base of the rotary wavelengths, if positions are rotary.
    theta: Option<f32>,
}

/// Kept from forward: `[n, d]`, `[n, packed]`, `[n, h*e]`, `[b, h, t]`.
pub(crate) struct Saved {
    x: Tensor,
    qkv: Tensor,
    mixed: Tensor,
    lse: Tensor,
}

impl Attention {
    pub(crate) fn named(at: &str, plan: &Plan, tp: usize, slots: &Slots<'_>) -> Attention {
        let shape = plan.shape();
        let heads = Heads {
            heads: shape.heads / tp,
            kv_heads: shape.kv_heads / tp,
            width: shape.d_head,
        };
        let is_rotary = plan.model.family == Family::Llama;
        Attention {
            qkv: ColumnLinear::named(&format!("{at}.qkv"), shape.packed, slots),
            out: RowLinear::named(&format!("{at}.out"), shape.heads * shape.d_head, slots),
            heads,
            theta: is_rotary.then_some(plan.model.rope_theta),
        }
    }

    /// x: `[n, d]` -> packed, rotated queries, keys and values `[n, packed]`; row r of a sequence
    /// of `time` rows has position `offset + r`.
    pub(crate) fn project(
        &self,
        x: &Tensor,
        time: usize,
        offset: usize,
        cx: &Context<'_>,
    ) -> kernels::Result<Tensor> {
        let mut qkv = self.qkv.forward(x, cx)?;
        if let Some(theta) = self.theta {
            rope::forward(&mut qkv, &self.heads, time, offset, theta)?;
        }
        Ok(qkv)
    }

    /// mixed values `[n, h*e]` -> `[n, d]`
    pub(crate) fn join(&self, mixed: &Tensor, cx: &Context<'_>) -> kernels::Result<Tensor> {
        self.out.forward(mixed, cx)
    }

    /// x: `[n, d]` -> `[n, d]`
    pub(crate) fn forward(&self, x: Tensor, cx: &Context<'_>) -> kernels::Result<(Tensor, Saved)> {
        let b = x.dims()[0] / cx.time;
        let qkv = self.project(&x, cx.time, 0, cx)?;
        let (mixed, lse) = attention::forward(&qkv, &self.heads, b, cx.time)?;
        let y = self.join(&mixed, cx)?;
        Ok((y, Saved { x, qkv, mixed, lse }))
    }

    /// dy: `[n, d]` -> dx: `[n, d]`
    pub(crate) fn backward(
        &self,
        dy: &Tensor,
        saved: Saved,
        gradients: &mut Gradients,
        cx: &Context<'_>,
    ) -> kernels::Result<Tensor> {
        let Saved { x, qkv, mixed, lse } = saved;
        let (heads, b) = (&self.heads, x.dims()[0] / cx.time);
        let dmixed = self.out.backward(dy, &mixed, gradients, cx)?;
        let mut dqkv = attention::backward(&dmixed, &qkv, &mixed, &lse, heads, b, cx.time)?;
        drop((qkv, mixed, lse, dmixed));
        if let Some(theta) = self.theta {
            rope::backward(&mut dqkv, heads, cx.time, 0, theta)?;
        }
        self.qkv.backward(&dqkv, &x, gradients, cx)
    }
}
