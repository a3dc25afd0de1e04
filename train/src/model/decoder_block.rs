//! Decoder block of an encoder-decoder, with cross attention, pre-norm (Vaswani et al. 2017, arXiv:1706.03762;
//! norms as in Raffel et al. 2020, JMLR 21): m = x + drop(attention(norm1(x))); c = m + drop(cross(norm2(m),
//! encoded)); y = c + drop(feed_forward(norm3(c))). Recomputation is chosen as in `block`; all blocks of a model chunk
//! share the encoder's rows.

use std::sync::Arc;

use kernels::{Tensor, add};

use crate::config::Recompute;
use crate::config::plan::Plan;
use crate::model::attention::{self, Attention};
use crate::model::context::Context;
use crate::model::cross::{self, CrossAttention};
use crate::model::gradients::Gradients;
use crate::model::mlp::{self, Mlp};
use crate::model::norm::{Norm, Statistics};
use crate::model::slots::Slots;

pub(crate) struct DecoderBlock {
    /// Index over the whole model.
    pub number: usize,
    pub norms: [Norm; 3],
    pub attention: Attention,
    pub cross: CrossAttention,
    pub feed_forward: Mlp,
    recompute: Recompute,
    dropout: f32,
    /// Dropout tensor numbers of the three layers' outputs.
    tensors: [u32; 3],
}

/// Kept from forward.
pub(crate) struct Saved {
    kept: Kept,
    encoded: Arc<Tensor>,
}

enum Kept {
    Inner(Box<Inner>),
    /// x: `[m, d]`
    Input(Tensor),
}

/// Tensors that backward reads.
struct Inner {
    /// Inputs of the norms, `[m, d]` each, and their statistics.
    into_norms: [(Tensor, Statistics); 3],
    attention: attention::Saved,
    cross: cross::Saved,
    feed_forward: mlp::Saved,
}

impl Saved {
    /// The large tensors of this block alone; statistics of norms are small.
    pub(crate) fn large(&mut self) -> Vec<&mut Tensor> {
        match &mut self.kept {
            Kept::Input(x) => vec![x],
            Kept::Inner(inner) => {
                let inner = &mut **inner;
                let into_norms = inner.into_norms.iter_mut().map(|(x, _)| x);
                let attention = inner.attention.large();
                let layers = attention.into_iter().chain(inner.cross.large());
                let all = into_norms.chain(layers);
                all.chain(inner.feed_forward.large()).collect()
            }
        }
    }
}

impl DecoderBlock {
    /// Block `block` of the model.
    pub(crate) fn named(
        block: usize,
        plan: &Plan,
        (tp, recompute): (usize, Recompute),
        slots: &Slots<'_>,
    ) -> DecoderBlock {
        let at = plan.model.block_name(block);
        let first = plan.model.first_dropout(block);
        let norm = |number| Norm::named(&format!("{at}.norm{number}"), plan, slots);
        DecoderBlock {
            number: block,
            norms: [norm(1), norm(2), norm(3)],
            attention: Attention::named(block, plan, (tp, first), slots),
            cross: CrossAttention::named(&at, plan, (tp, first + 2), slots),
            feed_forward: Mlp::named(&at, plan, plan.shape().d_ffn, tp, slots)
                .with_dropout(plan.model.dropout, first + 5),
            recompute,
            dropout: plan.model.dropout,
            tensors: [first + 1, first + 3, first + 4],
        }
    }

    /// x: `[m, d]` of the decoder, encoded: `[m', d]` -> `[m, d]`. `cx` is that of both.
    pub(crate) fn forward(
        &self,
        x: Tensor,
        encoded: &Arc<Tensor>,
        cx: &Context<'_>,
    ) -> kernels::Result<(Tensor, Saved)> {
        let (y, mut inner) = self.run(x, encoded, &cx.in_block(self.number))?;
        let kept = match self.recompute {
            Recompute::Full => {
                let [(x, _), ..] = inner.into_norms;
                Kept::Input(x)
            }
            Recompute::Selective => {
                inner.attention = inner.attention.without_core();
                inner.cross = inner.cross.without_core();
                Kept::Inner(Box::new(inner))
            }
            Recompute::None => Kept::Inner(Box::new(inner)),
        };
        let encoded = Arc::clone(encoded);
        Ok((y, Saved { kept, encoded }))
    }

    fn run(
        &self,
        x: Tensor,
        encoded: &Tensor,
        cx: &Context<'_>,
    ) -> kernels::Result<(Tensor, Inner)> {
        let near = cx.decoder();
        let (normed, statistics1) = self.norms[0].forward(&x, &near)?;
        let (mut own, attention) = self.attention.forward(normed, &near)?;
        near.drop_rows(&mut own, self.dropout, self.tensors[0])?;
        let (normed, statistics2) = self.norms[1].forward_sum(&mut own, &x, &near)?;
        let (mut both, cross) = self.cross.forward(normed, encoded, cx)?;
        near.drop_rows(&mut both, self.dropout, self.tensors[1])?;
        let (normed, statistics3) = self.norms[2].forward_sum(&mut both, &own, &near)?;
        let (mut y, feed_forward) = self.feed_forward.forward(normed, &near)?;
        near.drop_rows(&mut y, self.dropout, self.tensors[2])?;
        add::add_into(&mut y, &both)?;
        let inner = Inner {
            into_norms: [(x, statistics1), (own, statistics2), (both, statistics3)],
            attention,
            cross,
            feed_forward,
        };
        Ok((y, inner))
    }

    /// dy: `[m, d]` -> dx: `[m, d]`; adds the gradient of the encoder's rows to dencoded, `[m', d]`.
    pub(crate) fn backward(
        &self,
        dy: Tensor,
        dencoded: &mut Tensor,
        saved: Saved,
        gradients: &mut Gradients,
        cx: &Context<'_>,
    ) -> kernels::Result<Tensor> {
        let (encoded, cx) = (&saved.encoded, &cx.in_block(self.number));
        let inner = match saved.kept {
            Kept::Inner(inner) => *inner,
            Kept::Input(x) => self.run(x, encoded, cx)?.1,
        };
        let near = cx.decoder();
        let [own, cross, last] = inner.into_norms;
        // through the norm, plus the residual branch
        let join = |number: usize, dnormed: &Tensor, dy: &Tensor, gradients: &mut Gradients| {
            let (x, statistics) = [&own, &cross, &last][number];
            let saved = (x, statistics);
            self.norms[number].backward(dnormed, saved, Some(dy), gradients, &near)
        };
        let dropped = self.dropped(&dy, 2, &near)?;
        let dadded = dropped.as_ref().unwrap_or(&dy);
        let feed_forward = inner.feed_forward;
        let dnormed = self
            .feed_forward
            .backward(dadded, feed_forward, gradients, &near)?;
        let dboth = join(2, &dnormed, &dy, gradients)?;
        drop((dy, dropped, dnormed));
        let dropped = self.dropped(&dboth, 1, &near)?;
        let dadded = dropped.as_ref().unwrap_or(&dboth);
        let [dnormed, from_here] =
            self.cross
                .backward(dadded, encoded, inner.cross, gradients, cx)?;
        add::add_into(dencoded, &from_here)?;
        let down = join(1, &dnormed, &dboth, gradients)?;
        drop((dboth, dropped, dnormed, from_here));
        let dropped = self.dropped(&down, 0, &near)?;
        let dadded = dropped.as_ref().unwrap_or(&down);
        let dnormed = self
            .attention
            .backward(dadded, inner.attention, gradients, &near)?;
        join(0, &dnormed, &down, gradients)
    }

    /// Gradient of a layer's output before dropout; None without dropout.
    fn dropped(
        &self,
        dy: &Tensor,
        layer: usize,
        cx: &Context<'_>,
    ) -> kernels::Result<Option<Tensor>> {
        cx.dropped(dy, self.dropout, self.tensors[layer])
    }
}
