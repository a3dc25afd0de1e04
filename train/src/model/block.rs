//! Transformer block, pre-norm: m = x + drop(attention(norm1(x))); y = m + drop(feed_forward(norm2(m))); or
//! parallel (Wang & Komatsuzaki 2021, GPT-J; Black et al. 2022, arXiv:2204.06745, sec. 2.1):
//! y = drop(feed_forward(norm2(x))) + drop(attention(norm1(x))) + x, added in this order, where norm2 may be norm1; or
//! post-norm (Vaswani et al. 2017): m = norm1(x + drop(attention(x))); y = norm2(m + drop(feed_forward(m))); or with norms of
//! what the layers give (OLMo 2; Gemma 2, which also has those before): m = x + drop(norm1_after(attention(norm1(x)))); y = m +
//! drop(norm2_after(feed_forward(norm2(m)))).
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
    /// Nothing below learns (`Plan::leaves_out_first_gradient`).
    is_lowest: bool,
    /// Absent if norms follow the layers alone.
    norm1: Option<Norm>,
    pub attention: Attention,
    feed_forward: FeedForward,
    residual: Residual,
    recompute: Recompute,
    dropout: f32,
    /// Dropout tensor numbers of attention's and the feed-forward layer's outputs.
    tensors: [u32; 2],
}

/// Order of norms, layers and sums, with the second norm.
enum Residual {
    PreNorm(Norm),
    /// Without a second norm, both layers read through the first.
    Parallel(Option<Norm>),
    PostNorm(Norm),
    /// Norms of what each layer gives.
    NormedOutputs(Box<NormedOutputs>),
}

struct NormedOutputs {
    /// Of attention, of the feed-forward layer.
    after: [Norm; 2],
    /// Before the feed-forward layer, if there are norms before the layers as well.
    norm2: Option<Norm>,
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
    first: Option<(Tensor, Statistics)>,
    attention: attention::Saved,
    second: Second,
    /// Of the norms of what the layers give.
    after: Option<[(Tensor, Statistics); 2]>,
    feed_forward: feed_forward::Saved,
}

/// Kept for the second norm.
enum Second {
    InTurn(Tensor, Statistics),
    /// Its input is the first norm's.
    Parallel(Statistics),
    /// There is none, or it is the first.
    Shared,
}

impl Saved {
    /// The large tensors; statistics of norms and a router's numbers are small.
    pub(crate) fn large(&mut self) -> Vec<&mut Tensor> {
        match &mut self.kept {
            Kept::Input(x) => vec![x],
            Kept::Inner(inner) => {
                let attention = inner.attention.large();
                let rest = inner.feed_forward.large();
                let into_norm2 = match &mut inner.second {
                    Second::InTurn(rows, _) => Some(rows),
                    Second::Parallel(_) | Second::Shared => None,
                };
                let into_norm1 = inner.first.as_mut().map(|(rows, _)| rows);
                let into_after = inner.after.iter_mut().flatten().map(|(rows, _)| rows);
                (into_norm1.into_iter())
                    .chain(into_norm2)
                    .chain(into_after)
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
        let at = plan.model.block_name(layer);
        let first = plan.model.first_dropout(layer);
        let architecture = plan.model.architecture();
        let norm = |name: &str| Norm::named(&format!("{at}.{name}"), plan, slots);
        let norm2 = || norm("norm2");
        let place = architecture.norm_place;
        Block {
            number: layer,
            is_lowest: layer == 0 && plan.leaves_out_first_gradient(),
            norm1: place.is_before().then(|| norm("norm1")),
            attention: Attention::named(layer, plan, (tp, first), slots),
            feed_forward: FeedForward::named(layer, plan, tp, slots),
            residual: match (architecture.is_post_norm, architecture.is_parallel) {
                _ if place.is_after() => Residual::NormedOutputs(Box::new(NormedOutputs {
                    after: ["norm1_after", "norm2_after"].map(norm),
                    norm2: place.is_before().then(norm2),
                })),
                (true, _) => Residual::PostNorm(norm2()),
                (false, true) => Residual::Parallel((!architecture.has_shared_norm).then(norm2)),
                (false, false) => Residual::PreNorm(norm2()),
            },
            recompute,
            dropout: plan.model.dropout,
            tensors: [first + 1, first + 2],
        }
    }

    /// Inputs of the linear layers in the order in which they run: those of attention (`Attention::linear_inputs`), then those of the
    /// feed-forward layer or mixture. `None` if a pass did not keep them.
    pub(crate) fn linear_inputs(
        &self,
        saved: &Saved,
        cx: &Context<'_>,
    ) -> kernels::Result<Option<Vec<Tensor>>> {
        let Kept::Inner(inner) = &saved.kept else {
            return Ok(None);
        };
        let cx = &cx.in_block(self.number);
        let Some(mut inputs) = self.attention.linear_inputs(&inner.attention, cx)? else {
            return Ok(None);
        };
        inputs.extend(inner.feed_forward.linear_inputs()?);
        Ok(Some(inputs))
    }

    /// x: `[m, d]` -> y: `[m, d]`
    pub(crate) fn forward(&self, x: Tensor, cx: &Context<'_>) -> kernels::Result<(Tensor, Saved)> {
        let (y, mut inner) = self.run(x, &cx.in_block(self.number))?;
        let report = inner.feed_forward.report();
        let kept = match self.recompute {
            Recompute::Full => Kept::Input(match (&self.residual, inner.first) {
                (Residual::PostNorm(_), _) | (_, None) => inner.attention.into_input(),
                (_, Some((into_norm1, _))) => into_norm1,
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
        match &self.residual {
            Residual::PreNorm(norm2) => self.run_pre(x, norm2, cx),
            Residual::Parallel(norm2) => self.run_parallel(x, norm2.as_ref(), cx),
            Residual::PostNorm(norm2) => self.run_post(x, norm2, cx),
            Residual::NormedOutputs(norms) => self.run_normed(x, norms, cx),
        }
    }

    /// Through the first norm.
    fn first_norm(&self) -> &Norm {
        let norm1 = self.norm1.as_ref();
        norm1.expect("a block without norms of its outputs has one before attention")
    }

    /// Rows that attention reads: `[m, d]` -> `[m, d]`
    pub(crate) fn before_attention(&self, x: &Tensor, cx: &Context<'_>) -> kernels::Result<Tensor> {
        match &self.norm1 {
            Some(norm1) => Ok(norm1.forward(x, cx)?.0),
            None => x.try_clone(),
        }
    }

    fn run_pre(
        &self,
        x: Tensor,
        norm2: &Norm,
        cx: &Context<'_>,
    ) -> kernels::Result<(Tensor, Inner)> {
        let (normed, statistics1) = self.first_norm().forward(&x, cx)?;
        let (mut middle, attention) = self.attention.forward(normed, cx)?;
        cx.drop_rows(&mut middle, self.dropout, self.tensors[0])?;
        let (normed, statistics2) = norm2.forward_sum(&mut middle, &x, cx)?;
        let (mut y, feed_forward) = self.feed_forward.forward(normed, cx)?;
        cx.drop_rows(&mut y, self.dropout, self.tensors[1])?;
        add::add_into(&mut y, &middle)?;
        Ok((
            y,
            Inner {
                first: Some((x, statistics1)),
                attention,
                second: Second::InTurn(middle, statistics2),
                after: None,
                feed_forward,
            },
        ))
    }

    fn run_parallel(
        &self,
        x: Tensor,
        norm2: Option<&Norm>,
        cx: &Context<'_>,
    ) -> kernels::Result<(Tensor, Inner)> {
        let (normed, statistics1) = self.first_norm().forward(&x, cx)?;
        let (normed2, second) = match norm2 {
            Some(norm2) => {
                let (normed2, statistics2) = norm2.forward(&x, cx)?;
                (normed2, Second::Parallel(statistics2))
            }
            // each layer keeps its input
            None => (normed.try_clone()?, Second::Shared),
        };
        let (mut attended, attention) = self.attention.forward(normed, cx)?;
        cx.drop_rows(&mut attended, self.dropout, self.tensors[0])?;
        let (mut y, feed_forward) = self.feed_forward.forward(normed2, cx)?;
        cx.drop_rows(&mut y, self.dropout, self.tensors[1])?;
        add::add_into(&mut y, &attended)?;
        add::add_into(&mut y, &x)?;
        Ok((
            y,
            Inner {
                first: Some((x, statistics1)),
                attention,
                second,
                after: None,
                feed_forward,
            },
        ))
    }

    fn run_post(
        &self,
        x: Tensor,
        norm2: &Norm,
        cx: &Context<'_>,
    ) -> kernels::Result<(Tensor, Inner)> {
        let (mut sum1, attention) = self.attention.forward(x, cx)?;
        cx.drop_rows(&mut sum1, self.dropout, self.tensors[0])?;
        let norm1 = self.first_norm();
        let (middle, statistics1) = norm1.forward_sum(&mut sum1, attention.input(), cx)?;
        let (mut sum2, feed_forward) = self.feed_forward.forward(middle, cx)?;
        cx.drop_rows(&mut sum2, self.dropout, self.tensors[1])?;
        let (y, statistics2) = norm2.forward_sum(&mut sum2, feed_forward.input(), cx)?;
        Ok((
            y,
            Inner {
                first: Some((sum1, statistics1)),
                attention,
                second: Second::InTurn(sum2, statistics2),
                after: None,
                feed_forward,
            },
        ))
    }

    fn run_normed(
        &self,
        x: Tensor,
        norms: &NormedOutputs,
        cx: &Context<'_>,
    ) -> kernels::Result<(Tensor, Inner)> {
        let [after1, after2] = &norms.after;
        let (into_attention, first) = match &self.norm1 {
            Some(norm1) => {
                let (normed, statistics) = norm1.forward(&x, cx)?;
                (normed, Some((x, statistics)))
            }
            None => (x, None),
        };
        let (attended, attention) = self.attention.forward(into_attention, cx)?;
        let (mut middle, of_attended) = after1.forward(&attended, cx)?;
        cx.drop_rows(&mut middle, self.dropout, self.tensors[0])?;
        let x = match &first {
            Some((x, _)) => x,
            None => attention.input(),
        };
        let (into_feed_forward, second) = match &norms.norm2 {
            Some(norm2) => {
                let (normed, statistics) = norm2.forward_sum(&mut middle, x, cx)?;
                (normed, Second::InTurn(middle, statistics))
            }
            None => {
                add::add_into(&mut middle, x)?;
                (middle, Second::Shared)
            }
        };
        let (given, feed_forward) = self.feed_forward.forward(into_feed_forward, cx)?;
        let (mut y, of_given) = after2.forward(&given, cx)?;
        cx.drop_rows(&mut y, self.dropout, self.tensors[1])?;
        let middle = match &second {
            Second::InTurn(middle, _) => middle,
            Second::Parallel(_) | Second::Shared => feed_forward.input(),
        };
        add::add_into(&mut y, middle)?;
        Ok((
            y,
            Inner {
                first,
                attention,
                second,
                after: Some([(attended, of_attended), (given, of_given)]),
                feed_forward,
            },
        ))
    }

    /// The rest of a decoder's block after attention, for inference: the block's input x, attention's input and its output,
    /// `[m, d]` each -> y: `[m, d]`.
    pub(crate) fn after_attention(
        &self,
        x: &Tensor,
        normed: Tensor,
        mut attended: Tensor,
        cx: &Context<'_>,
    ) -> kernels::Result<Tensor> {
        let normed2 = match &self.residual {
            Residual::PreNorm(norm2) => norm2.forward_sum(&mut attended, x, cx)?.0,
            Residual::Parallel(Some(norm2)) => norm2.forward(x, cx)?.0,
            Residual::Parallel(None) => normed,
            Residual::PostNorm(_) => unreachable!("norms of a decoder follow no sums"),
            Residual::NormedOutputs(norms) => {
                let [after1, after2] = &norms.after;
                let (mut middle, _) = after1.forward(&attended, cx)?;
                let read = match &norms.norm2 {
                    Some(norm2) => norm2.forward_sum(&mut middle, x, cx)?.0,
                    None => {
                        add::add_into(&mut middle, x)?;
                        middle.try_clone()?
                    }
                };
                let (given, _) = self.feed_forward.forward(read, cx)?;
                let (mut y, _) = after2.forward(&given, cx)?;
                add::add_into(&mut y, &middle)?;
                return Ok(y);
            }
        };
        let (mut y, _) = self.feed_forward.forward(normed2, cx)?;
        add::add_into(&mut y, &attended)?;
        if matches!(self.residual, Residual::Parallel(_)) {
            add::add_into(&mut y, x)?;
        }
        Ok(y)
    }

    /// dy: `[m, d]` -> dx: `[m, d]`, or `None` where nothing below learns
    pub(crate) fn backward(
        &self,
        dy: Tensor,
        saved: Saved,
        gradients: &mut Gradients,
        cx: &Context<'_>,
    ) -> kernels::Result<Option<Tensor>> {
        let cx = &cx.in_block(self.number);
        let inner = match saved.kept {
            Kept::Inner(inner) => *inner,
            Kept::Input(x) => self.run(x, cx)?.1,
        };
        let dx = match &self.residual {
            Residual::PreNorm(norm2) => {
                return self.backward_pre(dy, (inner, norm2), gradients, cx);
            }
            Residual::Parallel(norm2) => {
                self.backward_parallel(dy, (inner, norm2.as_ref()), gradients, cx)
            }
            Residual::PostNorm(norm2) => self.backward_post(dy, (inner, norm2), gradients, cx),
            Residual::NormedOutputs(norms) => {
                self.backward_normed(dy, (inner, norms), gradients, cx)
            }
        };
        dx.map(Some)
    }

    fn backward_pre(
        &self,
        dy: Tensor,
        (inner, norm2): (Inner, &Norm),
        gradients: &mut Gradients,
        cx: &Context<'_>,
    ) -> kernels::Result<Option<Tensor>> {
        let Second::InTurn(into_norm2, statistics2) = inner.second else {
            unreachable!("layers in turn keep the second norm's input")
        };
        let dropped = cx.dropped(&dy, self.dropout, self.tensors[1])?;
        let dadded = dropped.as_ref().unwrap_or(&dy);
        let dnormed = self
            .feed_forward
            .backward(dadded, inner.feed_forward, gradients, cx)?;
        drop(dropped);
        let saved = (&into_norm2, &statistics2);
        let dmiddle = norm2.backward(&dnormed, saved, Some(&dy), gradients, cx)?;
        drop((dy, into_norm2));
        let dropped = cx.dropped(&dmiddle, self.dropout, self.tensors[0])?;
        let dadded = dropped.as_ref().unwrap_or(&dmiddle);
        if self.is_lowest {
            (self.attention).backward_own(dadded, inner.attention, gradients, cx)?;
            return Ok(None);
        }
        let dnormed = self
            .attention
            .backward(dadded, inner.attention, gradients, cx)?;
        drop(dropped);
        self.backward_first(&dnormed, &inner.first, Some(&dmiddle), gradients, cx)
            .map(Some)
    }

    /// Backward through the first norm; adds `more`.
    fn backward_first(
        &self,
        dnormed: &Tensor,
        first: &Option<(Tensor, Statistics)>,
        more: Option<&Tensor>,
        gradients: &mut Gradients,
        cx: &Context<'_>,
    ) -> kernels::Result<Tensor> {
        let saved = first.as_ref().map(|(x, statistics)| (x, statistics));
        let saved = saved.expect("a block keeps the input of its first norm");
        (self.first_norm()).backward(dnormed, saved, more, gradients, cx)
    }

    fn backward_parallel(
        &self,
        dy: Tensor,
        (inner, norm2): (Inner, Option<&Norm>),
        gradients: &mut Gradients,
        cx: &Context<'_>,
    ) -> kernels::Result<Tensor> {
        let dropped = cx.dropped(&dy, self.dropout, self.tensors[1])?;
        let dadded = dropped.as_ref().unwrap_or(&dy);
        let dnormed2 = self
            .feed_forward
            .backward(dadded, inner.feed_forward, gradients, cx)?;
        drop(dropped);
        // through the second norm, or left for the one that both layers share
        let (dx, left) = match &inner.second {
            Second::Parallel(statistics2) => {
                let norm2 = norm2.expect("statistics are of a norm");
                let first = inner.first.as_ref();
                let (x, _) = first.expect("a block keeps the input of its first norm");
                let saved = (x, statistics2);
                let dx = norm2.backward(&dnormed2, saved, Some(&dy), gradients, cx)?;
                (Some(dx), None)
            }
            Second::Shared => (None, Some(dnormed2)),
            Second::InTurn(..) => unreachable!("parallel layers read the same rows"),
        };
        let dropped = cx.dropped(&dy, self.dropout, self.tensors[0])?;
        let dadded = dropped.as_ref().unwrap_or(&dy);
        let mut dnormed = self
            .attention
            .backward(dadded, inner.attention, gradients, cx)?;
        drop(dropped);
        if let Some(dnormed2) = left {
            add::add_into(&mut dnormed, &dnormed2)?;
        }
        let more = dx.as_ref().unwrap_or(&dy);
        self.backward_first(&dnormed, &inner.first, Some(more), gradients, cx)
    }

    fn backward_post(
        &self,
        dy: Tensor,
        (inner, norm2): (Inner, &Norm),
        gradients: &mut Gradients,
        cx: &Context<'_>,
    ) -> kernels::Result<Tensor> {
        let Second::InTurn(into_norm2, statistics2) = inner.second else {
            unreachable!("layers in turn keep the second norm's input")
        };
        let saved = (&into_norm2, &statistics2);
        let dsum = norm2.backward(&dy, saved, None, gradients, cx)?;
        drop((dy, into_norm2));
        let dropped = cx.dropped(&dsum, self.dropout, self.tensors[1])?;
        let dadded = dropped.as_ref().unwrap_or(&dsum);
        let mut dmiddle = self
            .feed_forward
            .backward(dadded, inner.feed_forward, gradients, cx)?;
        drop(dropped);
        add::add_into(&mut dmiddle, &dsum)?;
        let dsum = self.backward_first(&dmiddle, &inner.first, None, gradients, cx)?;
        drop((dmiddle, inner.first));
        let dropped = cx.dropped(&dsum, self.dropout, self.tensors[0])?;
        let dadded = dropped.as_ref().unwrap_or(&dsum);
        let mut dx = self
            .attention
            .backward(dadded, inner.attention, gradients, cx)?;
        drop(dropped);
        add::add_into(&mut dx, &dsum)?;
        Ok(dx)
    }

    fn backward_normed(
        &self,
        dy: Tensor,
        (inner, norms): (Inner, &NormedOutputs),
        gradients: &mut Gradients,
        cx: &Context<'_>,
    ) -> kernels::Result<Tensor> {
        let Some([(attended, of_attended), (given, of_given)]) = inner.after else {
            unreachable!("a block keeps the inputs of all of its norms")
        };
        let [after1, after2] = &norms.after;
        let dropped = cx.dropped(&dy, self.dropout, self.tensors[1])?;
        let dadded = dropped.as_ref().unwrap_or(&dy);
        let dgiven = after2.backward(dadded, (&given, &of_given), None, gradients, cx)?;
        drop((dropped, given));
        let mut dread = self
            .feed_forward
            .backward(&dgiven, inner.feed_forward, gradients, cx)?;
        drop(dgiven);
        let dmiddle = match (&norms.norm2, &inner.second) {
            (Some(norm2), Second::InTurn(middle, statistics)) => {
                norm2.backward(&dread, (middle, statistics), Some(&dy), gradients, cx)?
            }
            _ => {
                add::add_into(&mut dread, &dy)?;
                dread
            }
        };
        drop((dy, inner.second));
        let dropped = cx.dropped(&dmiddle, self.dropout, self.tensors[0])?;
        let dadded = dropped.as_ref().unwrap_or(&dmiddle);
        let saved = (&attended, &of_attended);
        let dattended = after1.backward(dadded, saved, None, gradients, cx)?;
        drop((dropped, attended));
        let mut dread = self
            .attention
            .backward(&dattended, inner.attention, gradients, cx)?;
        drop(dattended);
        if self.norm1.is_some() {
            return self.backward_first(&dread, &inner.first, Some(&dmiddle), gradients, cx);
        }
        add::add_into(&mut dread, &dmiddle)?;
        Ok(dread)
    }
}
