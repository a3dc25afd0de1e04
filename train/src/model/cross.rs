//! Cross attention: queries from a decoder's rows, keys and values from an encoder's, no mask but the encoder's
//! padding (Vaswani et al. 2017, arXiv:1706.03762, sec. 3.2.3). Scores are not divided by the root of the head
//! width (T5).
//!
//! Tensor parallel: heads are split, as in `attention`. Context parallel: a rank has its rows of both sequences;
//! the encoder's keys and values pass by one part after another (`ring.rs`).

use kernels::attention::{Call, Keys, Mask, Passed, RunningBackward, RunningForward};
use kernels::{DType, Heads, Tensor, attention};

use crate::config::plan::Plan;
use crate::model::context::Context;
use crate::model::gradients::Gradients;
use crate::model::linear::{ColumnLinear, End, RowLinear};
use crate::model::ring::Ring;
use crate::model::slots::Slots;

pub(crate) struct CrossAttention {
    q: ColumnLinear,
    kv: ColumnLinear,
    out: RowLinear,
    /// This rank's heads.
    pub heads: Heads,
    dropout: f32,
    /// Dropout tensor number of the probabilities.
    tensor: u32,
}

/// Kept from forward: `[m, d]`, `[n, h*e]`, the encoder's `[n', 2*k*e]`, and `[n, h*e]`, `[b, h, t]`
/// unless recomputed.
pub(crate) struct Saved {
    x: Tensor,
    q: Tensor,
    kv: Tensor,
    core: Option<(Tensor, Tensor)>,
}

impl Saved {
    /// The large tensors.
    pub(crate) fn large(&mut self) -> Vec<&mut Tensor> {
        let core = self.core.iter_mut().flat_map(|(mixed, lse)| [mixed, lse]);
        let own = [&mut self.x, &mut self.q, &mut self.kv];
        own.into_iter().chain(core).collect()
    }

    /// Drops the tensors that `backward` can recompute from queries, keys and values.
    pub(crate) fn without_core(self) -> Saved {
        Saved { core: None, ..self }
    }
}

impl CrossAttention {
    /// `tensor`: dropout tensor number of the probabilities.
    pub(crate) fn named(
        at: &str,
        plan: &Plan,
        (tp, tensor): (usize, u32),
        slots: &Slots<'_>,
    ) -> CrossAttention {
        let shape = plan.shape();
        let (width, kv) = (
            shape.heads * shape.d_head,
            2 * shape.kv_heads * shape.d_head,
        );
        CrossAttention {
            q: ColumnLinear::named(&format!("{at}.cross_q"), width, slots),
            kv: ColumnLinear::named(&format!("{at}.cross_kv"), kv, slots),
            out: RowLinear::named(&format!("{at}.cross_out"), width, slots),
            heads: Heads {
                heads: shape.heads / tp,
                kv_heads: shape.kv_heads / tp,
                width: shape.d_head,
            },
            dropout: plan.model.attention_dropout,
            tensor,
        }
    }

    /// Keys and values of the encoder's rows: `[m', d]` -> `[n', 2*k*e]`. `cx` is the encoder's.
    pub(crate) fn keys(&self, encoded: &Tensor, cx: &Context<'_>) -> kernels::Result<Tensor> {
        let mut kv = self.kv.forward(encoded, DType::F32, cx)?;
        cx.make_operand(&mut kv)?;
        Ok(kv)
    }

    fn queries(&self, x: &Tensor, cx: &Context<'_>) -> kernels::Result<Tensor> {
        let mut q = self.q.forward(x, DType::F32, cx)?;
        cx.make_operand(&mut q)?;
        Ok(q)
    }

    /// Cross attention for inference. x: `[m, d]`, kv: those of whole encoder sequences -> `[m, d]`. `cx` is the
    /// decoder's.
    pub(crate) fn look(
        &self,
        x: &Tensor,
        kv: &Tensor,
        cx: &Context<'_>,
    ) -> kernels::Result<Tensor> {
        let q = self.queries(x, cx)?;
        let time = kv.dims()[0];
        let far = Far {
            kv,
            time,
            start: 0,
            block: cx.encoder().sequence.key_block,
        };
        let (mixed, _) = attention::forward(&q, &self.call(far, 1, cx))?;
        self.out.forward(&mixed, cx)
    }

    /// x: `[m, d]`, encoded: `[m', d]` -> `[m, d]`. `cx` is that of both.
    pub(crate) fn forward(
        &self,
        x: Tensor,
        encoded: &Tensor,
        cx: &Context<'_>,
    ) -> kernels::Result<(Tensor, Saved)> {
        let (near, far) = (cx.decoder(), cx.encoder());
        let q = self.queries(&x, &near)?;
        let kv = self.keys(encoded, &far)?;
        let (mixed, lse) = self.mix(&q, &kv, cx)?;
        let y = self.out.forward(&mixed, &near)?;
        let core = Some((mixed, lse));
        Ok((y, Saved { x, q, kv, core }))
    }

    /// Attention-weighted values of every row, `[n, h*e]`, and the logsumexp.
    fn mix(&self, q: &Tensor, kv: &Tensor, cx: &Context<'_>) -> kernels::Result<(Tensor, Tensor)> {
        let (near, far) = (cx.decoder(), cx.encoder());
        let b = q.dims()[0] / near.sequence.time;
        let Some(ring) = Ring::across(&far) else {
            return attention::forward(q, &self.call(Far::of(kv, 0, &far), b, &near));
        };
        let call = self.call(Far::of(kv, far.sequence.first, &far), b, &near);
        let mut running = RunningForward::new(q, &call)?;
        let visit =
            |start, kv: &Tensor| running.visit(q, &self.call(Far::of(kv, start, &far), b, &near));
        ring.travel(kv, visit, |_, ()| Ok(()))?;
        running.finish(&call)
    }

    /// Backward of `mix`: gradients of queries and of this rank's keys and values.
    fn unmix(
        &self,
        passed: &Passed<'_>,
        kv: &Tensor,
        cx: &Context<'_>,
    ) -> kernels::Result<(Tensor, Tensor)> {
        let (near, far) = (cx.decoder(), cx.encoder());
        let b = passed.qkv.dims()[0] / near.sequence.time;
        let call = self.call(Far::of(kv, far.sequence.first, &far), b, &near);
        let mut slopes = RunningBackward::new(passed, &call, near.sums.token_leaf)?;
        let mut visit = |start, kv: &Tensor| {
            slopes.visit(passed, &self.call(Far::of(kv, start, &far), b, &near))
        };
        let mut dkv = None;
        match Ring::across(&far) {
            None => dkv = Some(visit(0, kv)?),
            Some(ring) => ring.travel(kv, visit, |part, sum| {
                let sum = ring.sum_for(part, sum)?;
                dkv = dkv.take().or(sum);
                Ok(())
            })?,
        }
        let dkv = dkv.expect("every rank sees its own part");
        let dkv = attention::dkv_rows(&dkv, &self.heads)?;
        Ok((slopes.finish(passed, &call, None, None)?, dkv))
    }

    /// Arguments of the attention op for `b` sequences: mask and dropout. `cx` is the decoder's.
    fn call<'a>(&'a self, far: Far<'a>, b: usize, cx: &Context<'a>) -> Call<'a> {
        let seen = cx.pair.map_or(&[][..], |pair| pair.rows.seen);
        Call {
            heads: &self.heads,
            b,
            t: cx.sequence.time,
            keys: Keys::Other {
                kv: far.kv,
                time: far.time,
                start: far.start,
                first: cx.sequence.first,
            },
            block: far.block,
            numbers: cx.attention_numbers(),
            scores: attention::Scores::scaled(false),
            bias: None,
            sinks: None,
            mask: Mask {
                bounds: (!seen.is_empty()).then_some(seen),
                ..Mask::default()
            },
            dropout: cx.drop_probabilities(self.dropout, self.tensor, &self.heads),
        }
    }

    /// dy: `[m, d]` -> gradients of x `[m, d]` and of encoded `[m', d]`. `cx` is that of both.
    pub(crate) fn backward(
        &self,
        dy: &Tensor,
        encoded: &Tensor,
        saved: Saved,
        gradients: &mut Gradients,
        cx: &Context<'_>,
    ) -> kernels::Result<[Tensor; 2]> {
        let Saved { x, q, kv, core } = saved;
        let (near, far) = (cx.decoder(), cx.encoder());
        let (mixed, lse) = match core {
            Some(core) => core,
            None => self.mix(&q, &kv, cx)?,
        };
        let mut dmixed =
            self.out
                .backward(dy, &mixed, End::Stored(DType::F32), gradients, &near)?;
        near.make_operand(&mut dmixed)?;
        let passed = Passed {
            dout: &dmixed,
            out: &mixed,
            lse: &lse,
            qkv: &q,
            turn: None,
        };
        let (dq, dkv) = self.unmix(&passed, &kv, cx)?;
        drop((kv, mixed, lse, dmixed));
        let dx = self.q.backward(&dq, &x, gradients, &near)?;
        drop((dq, x, q));
        let dencoded = self.kv.backward(&dkv, encoded, gradients, &far)?;
        Ok([dx, dencoded])
    }
}

/// Keys and values of an encoder's rows: `[b * available keys, 2*k*e]`.
#[derive(Clone, Copy)]
struct Far<'a> {
    kv: &'a Tensor,
    /// Rows of a whole sequence.
    time: usize,
    /// Position of the first.
    start: usize,
    /// Keys of a block of the softmax.
    block: usize,
}

impl<'a> Far<'a> {
    /// `cx` is the encoder's.
    fn of(kv: &'a Tensor, start: usize, cx: &Context<'_>) -> Far<'a> {
        Far {
            kv,
            time: cx.sequence.longest,
            start,
            block: cx.sequence.key_block,
        }
    }
}
