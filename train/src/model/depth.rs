//! A depth of multi-token prediction (`config/mtp.rs`): e = norm_e(embedding of the token k further on), h = norm_h(rows of the
//! depth before), y = norm(block((e, h) W^T)).
//! Paper: DeepSeek-V3, arXiv:2412.19437, sec. 2.2, whose equation 21 has h first; its published weights, Megatron's layer and ours
//! have e first.
//!
//! The projection is column parallel and its features are gathered, so that the block reads rows as every block does. The embedding
//! is the model's; the gradient of this use of it is a sum of its own. With full recomputation only the rows of the depth before
//! are kept, which the head keeps as well.

use std::sync::Arc;

use kernels::rows::{self, Runs};
use kernels::{DType, Tensor, add};

use crate::config::Recompute;
use crate::config::mtp::depth_name;
use crate::config::plan::Plan;
use crate::dist::mesh::RankCoord;
use crate::model::block::{self, Block};
use crate::model::context::Context;
use crate::model::embedding::{self, Embedding};
use crate::model::gradients::Gradients;
use crate::model::linear::ColumnLinear;
use crate::model::moe::report::Report;
use crate::model::norm::{Norm, Statistics};
use crate::model::slots::{Slot, Slots};

pub(crate) struct Depth {
    /// Counted from 0.
    number: usize,
    embedding: Embedding,
    enorm: Norm,
    hnorm: Norm,
    projection: ColumnLinear,
    block: Block,
    norm: Norm,
    /// Everything is computed again in the backward pass.
    is_recomputed: bool,
}

/// Kept from forward.
pub(crate) struct Saved {
    /// Rows of the depth before: `[m, d]`.
    before: Arc<Tensor>,
    inner: Option<Box<Inner>>,
    /// The router's report, for a mixture.
    pub report: Option<Arc<Report>>,
}

/// Tensors that backward reads.
struct Inner {
    of_embedding: embedding::Saved,
    /// Embeddings, `[m, d]`.
    embedded: (Tensor, Statistics),
    of_before: Statistics,
    /// Both after their norms: `[m, 2 d]`.
    both: Tensor,
    block: block::Saved,
    /// Out of the block, `[m, d]`.
    last: (Tensor, Statistics),
}

impl Depth {
    /// Depth `number`, counted from 0.
    pub(crate) fn named(
        number: usize,
        plan: &Plan,
        (place, recompute): (&RankCoord, Recompute),
        slots: &Slots<'_>,
    ) -> Depth {
        let at = depth_name(number);
        let layer = plan.model.layers + number;
        let norm = |name: &str| Norm::named(&format!("{at}.{name}"), plan, slots);
        let [table, _] = plan.model.uses_of_depth(number);
        let gradient = slots.gradient(table.name, table.number);
        let embedding = Embedding::named(plan, place.tp, place.tp_rank, slots);
        let is_recomputed = recompute == Recompute::Full;
        let of_block = if is_recomputed {
            Recompute::None
        } else {
            recompute
        };
        Depth {
            number,
            // a block has three dropouts and room for a fourth
            embedding: embedding.used_again(gradient, plan.model.first_dropout(layer) + 3),
            enorm: norm("enorm"),
            hnorm: norm("hnorm"),
            projection: ColumnLinear::named(&format!("{at}.eh_proj"), plan.model.d_model, slots),
            block: Block::named(layer, plan, (place.tp, of_block), slots),
            norm: norm("norm"),
            is_recomputed,
        }
    }

    /// Counted from 0.
    pub(crate) fn number(&self) -> usize {
        self.number
    }

    /// Slots of the embedding and of its gradient by this depth.
    pub(crate) fn table(&self) -> [Slot; 2] {
        self.embedding.table()
    }

    /// tokens: `[n]`, those k further on; before: `[m, d]` -> `[m, d]`
    pub(crate) fn forward(
        &self,
        before: Arc<Tensor>,
        tokens: &Tensor,
        cx: &Context<'_>,
    ) -> kernels::Result<(Tensor, Saved)> {
        let (y, inner) = self.run(&before, tokens, cx)?;
        let report = inner.block.report.clone();
        let inner = (!self.is_recomputed).then(|| Box::new(inner));
        Ok((
            y,
            Saved {
                before,
                inner,
                report,
            },
        ))
    }

    fn run(
        &self,
        before: &Tensor,
        tokens: &Tensor,
        cx: &Context<'_>,
    ) -> kernels::Result<(Tensor, Inner)> {
        let (embedded, of_embedding) = self.embedding.forward((tokens, None), cx)?;
        let (e, of_e) = self.enorm.forward(&embedded, cx)?;
        let (h, of_before) = self.hnorm.forward(before, cx)?;
        let both = beside([&e, &h])?;
        drop((e, h));
        let projected = self.projection.forward(&both, DType::F32, cx)?;
        let x = cx.gather_features(projected)?;
        let (last, block) = self.block.forward(x, cx)?;
        let (y, of_last) = self.norm.forward(&last, cx)?;
        Ok((
            y,
            Inner {
                of_embedding,
                embedded: (embedded, of_e),
                of_before,
                both,
                block,
                last: (last, of_last),
            },
        ))
    }

    /// dy: `[m, d]`, dbefore: `[m, d]`, to which the gradient of the depth before is added
    pub(crate) fn backward(
        &self,
        (dy, dbefore): (Tensor, &mut Tensor),
        (tokens, saved): (&Tensor, Saved),
        gradients: &mut Gradients,
        cx: &Context<'_>,
    ) -> kernels::Result<()> {
        let before = &saved.before;
        let inner = match saved.inner {
            Some(inner) => *inner,
            None => self.run(before, tokens, cx)?.1,
        };
        let (last, of_last) = &inner.last;
        let dlast = (self.norm).backward(&dy, (last, of_last), None, gradients, cx)?;
        drop((dy, inner.last));
        let dx = self.block.backward(dlast, inner.block, gradients, cx)?;
        let dx = dx.expect("a depth is above the model's blocks");
        let dprojected = cx.own_features(&dx)?;
        drop(dx);
        let dboth = (self.projection).backward(&dprojected, &inner.both, gradients, cx)?;
        drop((dprojected, inner.both));
        let [de, dh] = halves(&dboth)?;
        drop(dboth);
        let of_before = (before.as_ref(), &inner.of_before);
        let dh = (self.hnorm).backward(&dh, of_before, None, gradients, cx)?;
        add::add_into(dbefore, &dh)?;
        let (embedded, of_e) = &inner.embedded;
        let de = (self.enorm).backward(&de, (embedded, of_e), None, gradients, cx)?;
        let inputs = (tokens, None);
        (self.embedding).backward(de, inputs, inner.of_embedding, gradients, cx)
    }
}

/// Rows of both side by side: `[m, d]` each -> `[m, 2 d]`
fn beside(parts: [&Tensor; 2]) -> kernels::Result<Tensor> {
    let &[m, d] = parts[0].dims() else {
        unreachable!("rows have two dims")
    };
    let mut both = Tensor::empty(&[m, 2 * d], DType::F32, parts[0].device())?;
    for (first, part) in [0, d].into_iter().zip(parts) {
        let runs = Runs {
            count: m,
            run: d,
            from_stride: d,
            to_stride: 2 * d,
        };
        rows::copy_runs(both.flat_mut(first..2 * m * d)?, part.view(), runs)?;
    }
    Ok(both)
}

/// `[m, 2 d]` -> `[m, d]` each
fn halves(both: &Tensor) -> kernels::Result<[Tensor; 2]> {
    let &[m, width] = both.dims() else {
        unreachable!("rows have two dims")
    };
    let d = width / 2;
    let half = |first: usize| {
        let mut part = Tensor::empty(&[m, d], DType::F32, both.device())?;
        let runs = Runs {
            count: m,
            run: d,
            from_stride: width,
            to_stride: d,
        };
        rows::copy_runs(part.view_mut(), both.flat(first..m * width)?, runs)?;
        Ok(part)
    };
    Ok([half(0)?, half(d)?])
}
