//! One transformer block, pre-norm: m = x + attention(norm1(x)); y = m + feed_forward(norm2(m)).
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
    pub(crate) fn named(
        layer: usize,
        plan: &Plan,
        (tp, recompute): (usize, Recompute),
        slots: &Slots<'_>,
    ) -> Block {
        let (eps, at) = (plan.model.norm_eps, format!("layers.{layer}"));
        Block {
            norm1: Norm::named(&format!("{at}.norm1"), eps, slots),
            attention: Attention::named(&at, plan, tp, slots),
            norm2: Norm::named(&format!("{at}.norm2"), eps, slots),
            feed_forward: FeedForward::named(layer, plan, tp, slots),
            recompute,
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
        add::add_into(&mut middle, &x)?;
        let (normed, statistics2) = self.norm2.forward(&middle, cx)?;
        let (mut y, feed_forward) = self.feed_forward.forward(normed, cx)?;
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
        let dnormed = self
            .feed_forward
            .backward(&dy, feed_forward, gradients, cx)?;
        let mut dmiddle = self
            .norm2
            .backward(&dnormed, &middle, &statistics2, gradients, cx)?;
        add::add_into(&mut dmiddle, &dy)?;
        drop((dy, middle));
        let dnormed = self
            .attention
            .backward(&dmiddle, attention, gradients, cx)?;
        let mut dx = self
            .norm1
            .backward(&dnormed, &x, &statistics1, gradients, cx)?;
        add::add_into(&mut dx, &dmiddle)?;
        Ok(dx)
    }
}
