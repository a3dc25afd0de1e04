//! One transformer block, pre-norm: m = x + drop(attention(norm1(x)));
//! y = m + drop(feed_forward(norm2(m))).
//! What is dropped is drawn again wherever it is needed (`kernels::dropout`), never kept.
//! Kept for backward, all freed by it (Chen et al. 2016, arXiv:1604.06174; Korthikanti et al. 2022,
//! arXiv:2205.05198, sec. 5): everything; all but what attention itself computes (`selective`); or the
//! input alone (`full`), from which backward runs the block again. The bits are the same.

use kernels::{Tensor, add};

use crate::config::Recompute;
use crate::model::attention::{self, Attention};
use crate::model::context::{Context, Slots};
use crate::model::feed_forward::{self, FeedForward};
use crate::model::gradients::Gradients;
use crate::model::moe::router::Report;
use crate::model::norm::{Norm, Statistics};
use crate::plan::Plan;

pub(crate) struct Block {
    pub norm1: Norm,
    pub attention: Attention,
    norm2: Norm,
    feed_forward: FeedForward,
    recompute: Recompute,
    dropout: f32,
    /// Numbers of the dropouts of what attention and the feed-forward layer add.
    tensors: [u32; 2],
}

/// Kept from forward.
pub(crate) struct Saved {
    kept: Kept,
    /// What the router of a mixture did.
    pub report: Option<Report>,
}

enum Kept {
    Inner(Box<Inner>),
    /// x: `[m, d]`
    Input(Tensor),
}

/// What backward reads.
struct Inner {
    x: Tensor,
    statistics1: Statistics,
    attention: attention::Saved,
    middle: Tensor,
    statistics2: Statistics,
    feed_forward: feed_forward::Saved,
}

impl Block {
    /// Layer `layer` of the model.
    pub(crate) fn named(
        layer: usize,
        plan: &Plan,
        (tp, recompute): (usize, Recompute),
        slots: &Slots<'_>,
    ) -> Block {
        let (at, eps) = (format!("layers.{layer}"), plan.model.norm_eps);
        // 0 is the embedding's
        let first = u32::try_from(1 + 4 * layer).expect("the plan's layers are checked");
        Block {
            norm1: Norm::named(&format!("{at}.norm1"), eps, slots),
            attention: Attention::named(&at, plan, (tp, first), slots),
            norm2: Norm::named(&format!("{at}.norm2"), eps, slots),
            feed_forward: FeedForward::named(layer, plan, tp, slots),
            recompute,
            dropout: plan.model.dropout,
            tensors: [first + 1, first + 2],
        }
    }

    /// x: `[m, d]` -> y: `[m, d]`
    pub(crate) fn forward(&self, x: Tensor, cx: &Context<'_>) -> kernels::Result<(Tensor, Saved)> {
        let (y, mut inner) = self.run(x, cx)?;
        let report = inner.feed_forward.report();
        let kept = match self.recompute {
            Recompute::Full => Kept::Input(inner.x),
            Recompute::Selective => {
                inner.attention = inner.attention.without_core();
                Kept::Inner(Box::new(inner))
            }
            Recompute::None => Kept::Inner(Box::new(inner)),
        };
        Ok((y, Saved { kept, report }))
    }

    fn run(&self, x: Tensor, cx: &Context<'_>) -> kernels::Result<(Tensor, Inner)> {
        let (normed, statistics1) = self.norm1.forward(&x, cx)?;
        let (mut middle, attention) = self.attention.forward(normed, cx)?;
        cx.drop_rows(&mut middle, self.dropout, self.tensors[0])?;
        add::add_into(&mut middle, &x)?;
        let (normed, statistics2) = self.norm2.forward(&middle, cx)?;
        let (mut y, feed_forward) = self.feed_forward.forward(normed, cx)?;
        cx.drop_rows(&mut y, self.dropout, self.tensors[1])?;
        add::add_into(&mut y, &middle)?;
        Ok((
            y,
            Inner {
                x,
                statistics1,
                attention,
                middle,
                statistics2,
                feed_forward,
            },
        ))
    }

    /// The second half alone, for inference: middle `[m, d]` -> y `[m, d]`.
    pub(crate) fn feed_forward(
        &self,
        middle: &Tensor,
        cx: &Context<'_>,
    ) -> kernels::Result<Tensor> {
        let (normed, _) = self.norm2.forward(middle, cx)?;
        let (mut y, _) = self.feed_forward.forward(normed, cx)?;
        add::add_into(&mut y, middle)?;
        Ok(y)
    }

    /// dy: `[m, d]` -> dx: `[m, d]`
    pub(crate) fn backward(
        &self,
        dy: Tensor,
        saved: Saved,
        gradients: &mut Gradients,
        cx: &Context<'_>,
    ) -> kernels::Result<Tensor> {
        let inner = match saved.kept {
            Kept::Inner(inner) => *inner,
            Kept::Input(x) => self.run(x, cx)?.1,
        };
        let Inner {
            x,
            statistics1,
            attention,
            middle,
            statistics2,
            feed_forward,
        } = inner;
        let dropped = self.dropped(&dy, 1, cx)?;
        let dadded = dropped.as_ref().unwrap_or(&dy);
        let feed_forward = self
            .feed_forward
            .backward(dadded, feed_forward, gradients, cx);
        let dnormed = feed_forward?;
        drop(dropped);
        let mut dmiddle = self
            .norm2
            .backward(&dnormed, &middle, &statistics2, gradients, cx)?;
        add::add_into(&mut dmiddle, &dy)?;
        drop((dy, middle));
        let dropped = self.dropped(&dmiddle, 0, cx)?;
        let dadded = dropped.as_ref().unwrap_or(&dmiddle);
        let dnormed = self.attention.backward(dadded, attention, gradients, cx)?;
        drop(dropped);
        let mut dx = self
            .norm1
            .backward(&dnormed, &x, &statistics1, gradients, cx)?;
        add::add_into(&mut dx, &dmiddle)?;
        Ok(dx)
    }

    /// The gradient of what a half added, if some of it was dropped.
    fn dropped(
        &self,
        dy: &Tensor,
        half: usize,
        cx: &Context<'_>,
    ) -> kernels::Result<Option<Tensor>> {
        if cx.noise.is_none() || self.dropout == 0.0 {
            return Ok(None);
        }
        let mut dropped = dy.try_clone()?;
        cx.drop_rows(&mut dropped, self.dropout, self.tensors[half])?;
        Ok(Some(dropped))
    }
}
