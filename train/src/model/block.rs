//! Transformer block, pre-norm: m = x + drop(attention(norm1(x))); y = m + drop(feed_forward(norm2(m))); or
//! parallel (Wang & Komatsuzaki 2021, GPT-J; Black et al. 2022, arXiv:2204.06745, sec. 2.1):
//! y = drop(feed_forward(norm2(x))) + drop(attention(norm1(x))) + x, added in this order; or
//! post-norm (Vaswani et al. 2017): m = norm1(x + drop(attention(x))); y = norm2(m + drop(feed_forward(m))).
//! Dropout masks are drawn again wherever they are needed (`kernels::dropout`), never kept. Activation
//! recomputation (Chen et al. 2016, arXiv:1604.06174; Korthikanti et al. 2022, arXiv:2205.05198, sec. 5): kept for
//! backward, and freed by it, is everything; or everything except attention's own results (`selective`); or only
//! the input (`full`), from which backward runs the block again. The bits are the same.

use std::sync::Arc;

use kernels::{Tensor, add};

use crate::config::Recompute;
use crate::config::plan::Plan;
use crate::model::attention::{self, Attention};
use crate::model::context::Context;
use crate::model::feed_forward::{self, FeedForward};
use crate::model::gradients::Gradients;
use crate::model::moe::report::Report;
use crate::model::norm::{Norm, Statistics};
use crate::model::slots::Slots;

pub(crate) struct Block {
    /// Index over the whole model.
    pub number: usize,
    pub norm1: Norm,
    pub attention: Attention,
    norm2: Norm,
    feed_forward: FeedForward,
    residual: Residual,
    recompute: Recompute,
    dropout: f32,
    /// Dropout tensor numbers of attention's and the feed-forward layer's outputs.
    tensors: [u32; 2],
}

/// Order of norms, layers and sums.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Residual {
    PreNorm,
    Parallel,
    PostNorm,
}

/// Kept from forward.
pub(crate) struct Saved {
    kept: Kept,
    /// The router's report, for a mixture.
    pub report: Option<Arc<Report>>,
}

enum Kept {
    Inner(Box<Inner>),
    /// x: `[m, d]`
    Input(Tensor),
}

/// Tensors that backward reads, including the inputs of the norms, `[m, d]` each.
struct Inner {
    into_norm1: Tensor,
    statistics1: Statistics,
    attention: attention::Saved,
    /// `None` of a parallel block, where it is the first norm's.
    into_norm2: Option<Tensor>,
    statistics2: Statistics,
    feed_forward: feed_forward::Saved,
}

impl Saved {
    /// Inputs of the linear layers in the order in which they run: of attention's projection, its output, the first and the second
    /// feed-forward matrix. `None` of a mixture, or if a pass did not keep them.
    pub(crate) fn linear_inputs(&self) -> Option<[&Tensor; 4]> {
        let Kept::Inner(inner) = &self.kept else {
            return None;
        };
        let [feed_forward, hidden] = inner.feed_forward.linear_inputs()?;
        let mixed = inner.attention.mixed()?;
        Some([inner.attention.input(), mixed, feed_forward, hidden])
    }

    /// The large tensors; statistics of norms and a router's numbers are small.
    pub(crate) fn large(&mut self) -> Vec<&mut Tensor> {
        match &mut self.kept {
            Kept::Input(x) => vec![x],
            Kept::Inner(inner) => {
                let attention = inner.attention.large();
                let rest = inner.feed_forward.large();
                [&mut inner.into_norm1]
                    .into_iter()
                    .chain(&mut inner.into_norm2)
                    .chain(attention)
                    .chain(rest)
                    .collect()
            }
        }
    }
}

impl Block {
    /// Layer `layer` of the model.
    pub(crate) fn named(
        layer: usize,
        plan: &Plan,
        (tp, recompute): (usize, Recompute),
        slots: &Slots<'_>,
    ) -> Block {
        let (at, eps) = (plan.model.block_name(layer), plan.model.norm_eps);
        let first = plan.model.first_dropout(layer);
        let architecture = plan.model.architecture();
        Block {
            number: layer,
            norm1: Norm::named(&format!("{at}.norm1"), eps, slots),
            attention: Attention::named(layer, plan, (tp, first), slots),
            norm2: Norm::named(&format!("{at}.norm2"), eps, slots),
            feed_forward: FeedForward::named(layer, plan, tp, slots),
            residual: match (architecture.is_post_norm, architecture.is_parallel) {
                (true, _) => Residual::PostNorm,
                (false, true) => Residual::Parallel,
                (false, false) => Residual::PreNorm,
            },
            recompute,
            dropout: plan.model.dropout,
            tensors: [first + 1, first + 2],
        }
    }

    /// x: `[m, d]` -> y: `[m, d]`
    pub(crate) fn forward(&self, x: Tensor, cx: &Context<'_>) -> kernels::Result<(Tensor, Saved)> {
        let (y, mut inner) = self.run(x, &cx.in_block(self.number))?;
        let report = inner.feed_forward.report();
        let kept = match self.recompute {
            Recompute::Full => Kept::Input(match self.residual {
                Residual::PostNorm => inner.attention.into_input(),
                Residual::PreNorm | Residual::Parallel => inner.into_norm1,
            }),
            Recompute::Selective => {
                inner.attention = inner.attention.without_core();
                Kept::Inner(Box::new(inner))
            }
            Recompute::None => Kept::Inner(Box::new(inner)),
        };
        Ok((y, Saved { kept, report }))
    }

    fn run(&self, x: Tensor, cx: &Context<'_>) -> kernels::Result<(Tensor, Inner)> {
        match self.residual {
            Residual::PreNorm => self.run_pre(x, cx),
            Residual::Parallel => self.run_parallel(x, cx),
            Residual::PostNorm => self.run_post(x, cx),
        }
    }

    fn run_pre(&self, x: Tensor, cx: &Context<'_>) -> kernels::Result<(Tensor, Inner)> {
        let (normed, statistics1) = self.norm1.forward(&x, cx)?;
        let (mut middle, attention) = self.attention.forward(normed, cx)?;
        cx.drop_rows(&mut middle, self.dropout, self.tensors[0])?;
        let (normed, statistics2) = self.norm2.forward_sum(&mut middle, &x, cx)?;
        let (mut y, feed_forward) = self.feed_forward.forward(normed, cx)?;
        cx.drop_rows(&mut y, self.dropout, self.tensors[1])?;
        add::add_into(&mut y, &middle)?;
        Ok((
            y,
            Inner {
                into_norm1: x,
                statistics1,
                attention,
                into_norm2: Some(middle),
                statistics2,
                feed_forward,
            },
        ))
    }

    fn run_parallel(&self, x: Tensor, cx: &Context<'_>) -> kernels::Result<(Tensor, Inner)> {
        let (normed, statistics1) = self.norm1.forward(&x, cx)?;
        let (mut attended, attention) = self.attention.forward(normed, cx)?;
        cx.drop_rows(&mut attended, self.dropout, self.tensors[0])?;
        let (normed, statistics2) = self.norm2.forward(&x, cx)?;
        let (mut y, feed_forward) = self.feed_forward.forward(normed, cx)?;
        cx.drop_rows(&mut y, self.dropout, self.tensors[1])?;
        add::add_into(&mut y, &attended)?;
        add::add_into(&mut y, &x)?;
        Ok((
            y,
            Inner {
                into_norm1: x,
                statistics1,
                attention,
                into_norm2: None,
                statistics2,
                feed_forward,
            },
        ))
    }

    fn run_post(&self, x: Tensor, cx: &Context<'_>) -> kernels::Result<(Tensor, Inner)> {
        let (mut sum1, attention) = self.attention.forward(x, cx)?;
        cx.drop_rows(&mut sum1, self.dropout, self.tensors[0])?;
        let (middle, statistics1) = self.norm1.forward_sum(&mut sum1, attention.input(), cx)?;
        let (mut sum2, feed_forward) = self.feed_forward.forward(middle, cx)?;
        cx.drop_rows(&mut sum2, self.dropout, self.tensors[1])?;
        let (y, statistics2) = (self.norm2).forward_sum(&mut sum2, feed_forward.input(), cx)?;
        Ok((
            y,
            Inner {
                into_norm1: sum1,
                statistics1,
                attention,
                into_norm2: Some(sum2),
                statistics2,
                feed_forward,
            },
        ))
    }

    /// The rest of a block of a decoder after attention, for inference: its input x and attention's output, `[m, d]` each ->
    /// y: `[m, d]`.
    pub(crate) fn after_attention(
        &self,
        x: &Tensor,
        mut attended: Tensor,
        cx: &Context<'_>,
    ) -> kernels::Result<Tensor> {
        if self.residual == Residual::Parallel {
            let (normed, _) = self.norm2.forward(x, cx)?;
            let (mut y, _) = self.feed_forward.forward(normed, cx)?;
            add::add_into(&mut y, &attended)?;
            add::add_into(&mut y, x)?;
            return Ok(y);
        }
        let (normed, _) = self.norm2.forward_sum(&mut attended, x, cx)?;
        let (mut y, _) = self.feed_forward.forward(normed, cx)?;
        add::add_into(&mut y, &attended)?;
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
        let cx = &cx.in_block(self.number);
        let inner = match saved.kept {
            Kept::Inner(inner) => *inner,
            Kept::Input(x) => self.run(x, cx)?.1,
        };
        match self.residual {
            Residual::PreNorm => self.backward_pre(dy, inner, gradients, cx),
            Residual::Parallel => self.backward_parallel(dy, inner, gradients, cx),
            Residual::PostNorm => self.backward_post(dy, inner, gradients, cx),
        }
    }

    fn backward_pre(
        &self,
        dy: Tensor,
        inner: Inner,
        gradients: &mut Gradients,
        cx: &Context<'_>,
    ) -> kernels::Result<Tensor> {
        let dropped = cx.dropped(&dy, self.dropout, self.tensors[1])?;
        let dadded = dropped.as_ref().unwrap_or(&dy);
        let dnormed = self
            .feed_forward
            .backward(dadded, inner.feed_forward, gradients, cx)?;
        drop(dropped);
        let into_norm2 = inner.into_norm2.as_ref().unwrap_or(&inner.into_norm1);
        let saved = (into_norm2, &inner.statistics2);
        let dmiddle = (self.norm2).backward(&dnormed, saved, Some(&dy), gradients, cx)?;
        drop((dy, inner.into_norm2));
        let dropped = cx.dropped(&dmiddle, self.dropout, self.tensors[0])?;
        let dadded = dropped.as_ref().unwrap_or(&dmiddle);
        let dnormed = self
            .attention
            .backward(dadded, inner.attention, gradients, cx)?;
        drop(dropped);
        let saved = (&inner.into_norm1, &inner.statistics1);
        (self.norm1).backward(&dnormed, saved, Some(&dmiddle), gradients, cx)
    }

    fn backward_parallel(
        &self,
        dy: Tensor,
        inner: Inner,
        gradients: &mut Gradients,
        cx: &Context<'_>,
    ) -> kernels::Result<Tensor> {
        let dropped = cx.dropped(&dy, self.dropout, self.tensors[1])?;
        let dadded = dropped.as_ref().unwrap_or(&dy);
        let dnormed = self
            .feed_forward
            .backward(dadded, inner.feed_forward, gradients, cx)?;
        drop(dropped);
        let x = &inner.into_norm1;
        let saved = (x, &inner.statistics2);
        let dx = (self.norm2).backward(&dnormed, saved, Some(&dy), gradients, cx)?;
        drop(dnormed);
        let dropped = cx.dropped(&dy, self.dropout, self.tensors[0])?;
        let dadded = dropped.as_ref().unwrap_or(&dy);
        let dnormed = self
            .attention
            .backward(dadded, inner.attention, gradients, cx)?;
        drop((dropped, dy));
        let saved = (x, &inner.statistics1);
        (self.norm1).backward(&dnormed, saved, Some(&dx), gradients, cx)
    }

    fn backward_post(
        &self,
        dy: Tensor,
        inner: Inner,
        gradients: &mut Gradients,
        cx: &Context<'_>,
    ) -> kernels::Result<Tensor> {
        let into_norm2 = inner.into_norm2.as_ref().unwrap_or(&inner.into_norm1);
        let saved = (into_norm2, &inner.statistics2);
        let dsum = self.norm2.backward(&dy, saved, None, gradients, cx)?;
        drop((dy, inner.into_norm2));
        let dropped = cx.dropped(&dsum, self.dropout, self.tensors[1])?;
        let dadded = dropped.as_ref().unwrap_or(&dsum);
        let mut dmiddle = self
            .feed_forward
            .backward(dadded, inner.feed_forward, gradients, cx)?;
        drop(dropped);
        add::add_into(&mut dmiddle, &dsum)?;
        let saved = (&inner.into_norm1, &inner.statistics1);
        let dsum = (self.norm1).backward(&dmiddle, saved, None, gradients, cx)?;
        drop((dmiddle, inner.into_norm1));
        let dropped = cx.dropped(&dsum, self.dropout, self.tensors[0])?;
        let dadded = dropped.as_ref().unwrap_or(&dsum);
        let mut dx = self
            .attention
            .backward(dadded, inner.attention, gradients, cx)?;
        drop(dropped);
        add::add_into(&mut dx, &dsum)?;
        Ok(dx)
    }
}
