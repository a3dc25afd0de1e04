//! Causal self-attention with grouped queries (Ainslie et al. 2023, arXiv:2305.13245).
//! y = concat_h softmax(q_h k^T / sqrt(e)) v . W_out; rotary positions (Su et al. 2021,
//! arXiv:2104.09864) if the architecture has them.
//!
//! Tensor parallel: whole groups of heads per rank; one sum over ranks forward (in `out`) and one
//! backward (in `qkv`). Scores are never stored: backward recomputes them from lse.
//!
//! Context parallel: a rank has the queries of its tokens and gathers the keys and values of whole
//! sequences (as Llama 3, arXiv:2407.21783, sec. 3.3), which any number of heads allows; a row's softmax
//! then is the one of a single rank. Their gradients are summed over ranks as leaves of query rows.

use kernels::{Heads, Tensor, attention, rope};

use crate::architecture::Positions;
use crate::model::context::{Context, Slots, gather_rows, scatter_sum_rows};
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

/// Kept from forward: `[m, d]`, `[n, packed]`, and `[n, h*e]`, `[b, h, t]` unless recomputed.
pub(crate) struct Saved {
    x: Tensor,
    qkv: Tensor,
    core: Option<(Tensor, Tensor)>,
}

impl Saved {
    /// `[m, d]`
    pub(crate) fn input(&self) -> &Tensor {
        &self.x
    }

    /// `[m, d]`
    pub(crate) fn into_input(self) -> Tensor {
        self.x
    }

    /// Drops what `backward` can compute again from queries, keys and values.
    pub(crate) fn without_core(self) -> Saved {
        Saved { core: None, ..self }
    }
}

impl Attention {
    pub(crate) fn named(at: &str, plan: &Plan, tp: usize, slots: &Slots<'_>) -> Attention {
        let shape = plan.shape();
        let heads = Heads {
            heads: shape.heads / tp,
            kv_heads: shape.kv_heads / tp,
            width: shape.d_head,
        };
        let is_rotary = plan.model.architecture().positions == Positions::Rotary;
        Attention {
            qkv: ColumnLinear::named(&format!("{at}.qkv"), shape.packed, slots),
            out: RowLinear::named(&format!("{at}.out"), shape.heads * shape.d_head, slots),
            heads,
            theta: is_rotary.then_some(plan.model.rope_theta),
        }
    }

    /// x: `[m, d]` -> packed, rotated queries, keys and values `[n, packed]`; row r of a sequence
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

    /// mixed values `[n, h*e]` -> `[m, d]`
    pub(crate) fn join(&self, mixed: &Tensor, cx: &Context<'_>) -> kernels::Result<Tensor> {
        self.out.forward(mixed, cx)
    }

    /// x: `[m, d]` -> `[m, d]`
    pub(crate) fn forward(&self, x: Tensor, cx: &Context<'_>) -> kernels::Result<(Tensor, Saved)> {
        let qkv = self.project(&x, cx.time, cx.first, cx)?;
        let kv = self.gather_kv(&qkv, cx)?;
        let (mixed, lse) = self.mix(&qkv, kv.as_ref(), cx)?;
        drop(kv);
        let y = self.join(&mixed, cx)?;
        let core = Some((mixed, lse));
        Ok((y, Saved { x, qkv, core }))
    }

    /// Keys and values of whole sequences, if this rank's rows see more than their own.
    fn gather_kv(&self, qkv: &Tensor, cx: &Context<'_>) -> kernels::Result<Option<Tensor>> {
        if cx.cp.size() == 1 {
            return Ok(None);
        }
        let kv = attention::take_kv(qkv, &self.heads)?;
        gather_rows(cx.cp, &kv, cx.time).map(Some)
    }

    /// Attention itself: mixed values `[n, h*e]` and lse `[b, h, t]`.
    fn mix(
        &self,
        qkv: &Tensor,
        kv: Option<&Tensor>,
        cx: &Context<'_>,
    ) -> kernels::Result<(Tensor, Tensor)> {
        let b = qkv.dims()[0] / cx.time;
        match kv {
            None => attention::forward(qkv, &self.heads, b, cx.time),
            Some(kv) => {
                let keys = keys_of(kv, cx);
                attention::forward_part(qkv, &keys, &self.heads, b, cx.time)
            }
        }
    }

    /// dy: `[m, d]` -> dx: `[m, d]`
    pub(crate) fn backward(
        &self,
        dy: &Tensor,
        saved: Saved,
        gradients: &mut Gradients,
        cx: &Context<'_>,
    ) -> kernels::Result<Tensor> {
        let Saved { x, qkv, core } = saved;
        let (heads, b) = (&self.heads, qkv.dims()[0] / cx.time);
        let kv = self.gather_kv(&qkv, cx)?;
        let (mixed, lse) = match core {
            Some(core) => core,
            None => self.mix(&qkv, kv.as_ref(), cx)?,
        };
        let dmixed = self.out.backward(dy, &mixed, gradients, cx)?;
        let passed = attention::Passed {
            dout: &dmixed,
            out: &mixed,
            lse: &lse,
            qkv: &qkv,
        };
        let mut dqkv = match &kv {
            None => attention::backward(&passed, heads, b, cx.time, cx.token_leaf)?,
            Some(kv) => {
                let (keys, leaf) = (keys_of(kv, cx), cx.token_leaf);
                let (mut dqkv, dkv) =
                    attention::backward_part(&passed, &keys, heads, b, cx.time, leaf)?;
                let dkv = scatter_sum_rows(cx.cp, &dkv, cx.time)?;
                attention::put_kv(&mut dqkv, &dkv, heads)?;
                dqkv
            }
        };
        drop((qkv, mixed, lse, dmixed, kv));
        if let Some(theta) = self.theta {
            rope::backward(&mut dqkv, heads, cx.time, cx.first, theta)?;
        }
        self.qkv.backward(&dqkv, &x, gradients, cx)
    }
}

fn keys_of<'a>(kv: &'a Tensor, cx: &Context<'_>) -> attention::Keys<'a> {
    attention::Keys {
        kv,
        time: cx.time * cx.cp.size(),
        first: cx.first,
    }
}
