//! Queries, keys and values of latent attention (`config/latent.rs`), packed per head as attention reads them: the query's turned
//! features, then its others; the same of the key, whose turned ones are the row's for every head; the value, then zeros up to the
//! width of a key. The kernels know one width: a score does not see values, and a zero of a value adds a product that is 0 to a
//! gradient and gives a mixed feature that is 0, so that no bit of the others changes.
//!
//! Tensor parallel: heads are split, so the projections up to them are column parallel; those down to latents, and the norms, are on
//! every rank. Latents are narrow, so each rank has them of all rows, with sequence parallelism too: their gradients are then sums
//! over the same rows in the same order on every rank and in every layout. The gradient of the shared key features is a sum over all
//! heads in their order.
//!
//! Kept for backward are rows before the norms: the latents are normalised again.

use kernels::rows::{self, Runs};
use kernels::{DType, Tensor, add};

use crate::config::latent::{KV_DOWN, KV_NORM, KV_UP, Latents, Q_DOWN, Q_NORM, Q_PROJ, Q_UP};
use crate::config::plan::Plan;
use crate::model::context::Context;
use crate::model::gradients::Gradients;
use crate::model::linear::{ColumnLinear, FullLinear};
use crate::model::norm::{Norm, Statistics};
use crate::model::qk_norms::add_heads;
use crate::model::slots::Slots;

pub(crate) struct Latent {
    widths: Latents,
    /// This rank's.
    heads: usize,
    queries: Queries,
    kv_down: FullLinear,
    kv_norm: Norm,
    kv_up: ColumnLinear,
}

/// Where queries come from.
enum Queries {
    Rows(ColumnLinear),
    Latent {
        down: FullLinear,
        norm: Norm,
        up: ColumnLinear,
    },
}

/// Kept from forward, before norms: the latent of queries, `[n, rank]`, and the row of keys and values, `[n, turned + rank]`.
pub(crate) struct Saved {
    queries: Option<Tensor>,
    keys_values: Tensor,
}

impl Saved {
    /// The large tensors: all of them.
    pub(crate) fn large(&mut self) -> impl Iterator<Item = &mut Tensor> {
        self.queries.iter_mut().chain([&mut self.keys_values])
    }
}

impl Latent {
    /// The projections of block `at`, if the model has latents.
    pub(crate) fn named(at: &str, plan: &Plan, tp: usize, slots: &Slots<'_>) -> Option<Latent> {
        let (widths, heads) = (plan.model.latents()?, plan.model.heads);
        let name = |layer: &str| format!("{at}.{layer}");
        let full = |layer| FullLinear::named(&name(layer), slots);
        let norm = |layer| Norm::of_latent(&name(layer), plan, slots);
        let column = |layer, width| ColumnLinear::named(&name(layer), heads * width, slots);
        let queries = match widths.queries {
            None => Queries::Rows(column(Q_PROJ, widths.key())),
            Some(_) => Queries::Latent {
                down: full(Q_DOWN),
                norm: norm(Q_NORM),
                up: column(Q_UP, widths.key()),
            },
        };
        Some(Latent {
            widths,
            heads: heads / tp,
            queries,
            kv_down: full(KV_DOWN),
            kv_norm: norm(KV_NORM),
            kv_up: column(KV_UP, widths.expanded()),
        })
    }

    /// x: `[m, d]` -> packed queries, keys and values `[n, packed]` in f32, without positions.
    pub(crate) fn forward(&self, x: &Tensor, cx: &Context<'_>) -> kernels::Result<(Tensor, Saved)> {
        let (whole, mut room) = (&cx.of_whole_rows(), None);
        let x = cx.gather(x, &mut room)?; // [n, d]
        let (queries, raw) = match &self.queries {
            Queries::Rows(projection) => (projection.forward(x, DType::F32, whole)?, None),
            Queries::Latent { down, norm, up } => {
                let raw = down.forward(x, whole)?;
                let (latent, _) = norm.forward(&raw, whole)?;
                (up.forward(&latent, DType::F32, whole)?, Some(raw))
            }
        };
        let keys_values = self.kv_down.forward(x, whole)?;
        drop(room);
        let (_, latent, _) = self.normed(&keys_values, whole)?;
        let expanded = self.kv_up.forward(&latent, DType::F32, whole)?;
        let qkv = self.pack(&queries, &keys_values, &expanded)?;
        let saved = Saved {
            queries: raw,
            keys_values,
        };
        Ok((qkv, saved))
    }

    /// The latent of keys and values, and the same after the norm, `[n, rank]` each, with the norm's statistics.
    fn normed(
        &self,
        row: &Tensor,
        whole: &Context<'_>,
    ) -> kernels::Result<(Tensor, Tensor, Statistics)> {
        let dims = [row.dims()[0], self.widths.keys_values];
        let mut latent = Tensor::empty(&dims, DType::F32, row.device())?;
        let from = Every::of(self.widths.turned, self.widths.row());
        copy((&mut latent, Every::of(0, dims[1])), (row, from), dims[1])?;
        let (normed, statistics) = self.kv_norm.forward(&latent, whole)?;
        Ok((latent, normed, statistics))
    }

    /// Inputs of the projections up to heads: the latents after their norms, `[n, rank]` each, of queries if they have one and of keys
    /// and values.
    pub(crate) fn up_inputs(
        &self,
        saved: &Saved,
        cx: &Context<'_>,
    ) -> kernels::Result<Vec<Tensor>> {
        let whole = &cx.of_whole_rows();
        let mut inputs = Vec::new();
        if let (Queries::Latent { norm, .. }, Some(raw)) = (&self.queries, &saved.queries) {
            inputs.push(norm.forward(raw, whole)?.0);
        }
        inputs.push(self.normed(&saved.keys_values, whole)?.1);
        Ok(inputs)
    }

    /// Queries `[n, heads * key]`, rows of keys and values `[n, turned + rank]`, expanded keys and values `[n, heads * (still +
    /// values)]` -> `[n, packed]`
    fn pack(&self, queries: &Tensor, row: &Tensor, expanded: &Tensor) -> kernels::Result<Tensor> {
        let (widths, key) = (self.widths, self.widths.key());
        let Latents { still, turned, .. } = widths;
        let dims = [row.dims()[0], self.heads * 3 * key];
        let mut qkv = Tensor::zeros(&dims, DType::F32, row.device())?;
        let head = |first| Every::of(first, 3 * key);
        copy((&mut qkv, head(0)), (queries, Every::of(0, key)), key)?;
        let of_expanded = |first| (expanded, Every::of(first, widths.expanded()));
        copy((&mut qkv, head(key + turned)), of_expanded(0), still)?;
        copy((&mut qkv, head(2 * key)), of_expanded(still), widths.values)?;
        for number in 0..self.heads {
            let to = Every::of((3 * number + 1) * key, dims[1]);
            let from = Every::of(0, widths.row());
            copy((&mut qkv, to), (row, from), turned)?;
        }
        Ok(qkv)
    }

    /// dqkv: `[n, packed]` in f32, without positions, x: `[m, d]` -> dx: `[m, d]`
    pub(crate) fn backward(
        &self,
        dqkv: &Tensor,
        (x, saved): (&Tensor, Saved),
        gradients: &mut Gradients,
        cx: &Context<'_>,
    ) -> kernels::Result<Tensor> {
        let (whole, mut room) = (&cx.of_whole_rows(), None);
        let x = cx.gather(x, &mut room)?;
        let (widths, key, n) = (self.widths, self.widths.key(), x.dims()[0]);
        let Latents { still, turned, .. } = widths;
        let head = |first| (dqkv, Every::of(first, 3 * key));
        let of_heads = |width| Tensor::empty(&[n, self.heads * width], DType::F32, dqkv.device());

        let mut dexpanded = of_heads(widths.expanded())?;
        let every = |first| Every::of(first, widths.expanded());
        copy((&mut dexpanded, every(0)), head(key + turned), still)?;
        copy((&mut dexpanded, every(still)), head(2 * key), widths.values)?;
        let (latent, normed, statistics) = self.normed(&saved.keys_values, whole)?;
        let dnormed = self.kv_up.backward(&dexpanded, &normed, gradients, whole)?;
        drop((dexpanded, normed));
        let of_norm = (&latent, &statistics);
        let dlatent = (self.kv_norm).backward(&dnormed, of_norm, None, gradients, whole)?;
        drop((latent, dnormed));

        let mut by_head = of_heads(turned)?;
        copy((&mut by_head, Every::of(0, turned)), head(key), turned)?;
        let dturned = add_heads(&by_head, turned, cx)?;
        drop(by_head);
        let mut drow = Tensor::empty(&[n, widths.row()], DType::F32, dqkv.device())?;
        for (first, part) in [(0, &dturned), (turned, &dlatent)] {
            let width = part.dims()[1];
            let to = Every::of(first, widths.row());
            copy((&mut drow, to), (part, Every::of(0, width)), width)?;
        }
        let mut dx = self.kv_down.backward(&drow, x, gradients, whole)?;
        drop((drow, dlatent, dturned));

        let mut dqueries = of_heads(key)?;
        copy((&mut dqueries, Every::of(0, key)), head(0), key)?;
        let more = match (&self.queries, &saved.queries) {
            (Queries::Rows(projection), _) => {
                projection.backward(&dqueries, x, gradients, whole)?
            }
            (Queries::Latent { down, norm, up }, raw) => {
                let raw = raw.as_ref().expect("the latent of queries is kept");
                let (latent, statistics) = norm.forward(raw, whole)?;
                let dlatent = up.backward(&dqueries, &latent, gradients, whole)?;
                let draw = norm.backward(&dlatent, (raw, &statistics), None, gradients, whole)?;
                down.backward(&draw, x, gradients, whole)?
            }
        };
        add::add_into(&mut dx, &more)?;
        cx.own_rows(dx)
    }
}

/// Values of heads without the zeros behind them: `[n, heads * width]` -> `[n, heads * values]`
pub(crate) fn narrowed(x: Tensor, width: usize, values: usize) -> kernels::Result<Tensor> {
    resized(x, width, values)
}

/// Values of heads with zeros behind them: `[n, heads * values]` -> `[n, heads * width]`
pub(crate) fn widened(x: Tensor, width: usize, values: usize) -> kernels::Result<Tensor> {
    resized(x, values, width)
}

/// Runs of `from` elements as runs of `to`, cut or with zeros behind them.
fn resized(x: Tensor, from: usize, to: usize) -> kernels::Result<Tensor> {
    if from == to {
        return Ok(x);
    }
    let &[n, all] = x.dims() else {
        unreachable!("rows of heads have two dims")
    };
    let mut y = Tensor::zeros(&[n, all / from * to], x.dtype(), x.device())?;
    copy(
        (&mut y, Every::of(0, to)),
        (&x, Every::of(0, from)),
        from.min(to),
    )?;
    Ok(y)
}

/// Runs of a tensor's elements at equal distances.
#[derive(Clone, Copy)]
struct Every {
    /// Start of the first.
    first: usize,
    stride: usize,
}

impl Every {
    fn of(first: usize, stride: usize) -> Every {
        Every { first, stride }
    }
}

/// Copies runs of `run` elements, as many as there are in `from`.
fn copy(
    (to, into): (&mut Tensor, Every),
    (from, out_of): (&Tensor, Every),
    run: usize,
) -> kernels::Result<()> {
    let runs = Runs {
        count: from.elements() / out_of.stride,
        run,
        from_stride: out_of.stride,
        to_stride: into.stride,
    };
    let (source, target) = (out_of.first..from.elements(), into.first..to.elements());
    rows::copy_runs(to.flat_mut(target)?, from.flat(source)?, runs)
}

/// 4-byte words of each tensor that the projections keep beside the packed rows, for n rows.
pub(crate) fn kept(widths: &Latents, n: usize) -> impl Iterator<Item = usize> {
    let queries = widths.queries.map(|rank| n * rank);
    queries.into_iter().chain([n * widths.row()])
}
