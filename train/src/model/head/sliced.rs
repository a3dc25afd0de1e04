//! Column-parallel layer computed in slices of its output features, one slice in memory at a time; the same bits as
//! `ColumnLinear` with all of them.
//!
//! y_s = x W_s^T + b_s for rows W_s of the matrix. Backward recomputes y_s and turns it into dy_s; the rows of the
//! weight's gradient are dy_s^T x, and dx is the sum over slices of dy_s W_s. A slice is one leaf of that sum, an
//! eighth of the whole layer's features, so merging slices as the unsliced product merges its leaves gives the same
//! bits; everything else is computed feature by feature in either case. An adapter's B is cut like the weight; x A^T and its
//! gradient, the sum of dy_s B_s over slices, are of the whole layer.
//!
//! Not for fp8 layers, whose scales belong to the whole matrix.

use std::ops::Range;

use kernels::matmul::{Op, Then, product};
use kernels::{DType, Tensor, reduce};

use crate::config::precision::Features::{Split, Whole};
use crate::config::precision::Role;
use crate::model::context::Context;
use crate::model::gradients::Gradients;
use crate::model::linear::{ColumnLinear, multiply};
use crate::model::lora::Lora;
use crate::model::precision::Operand;

/// x: `[m, in]` -> calls `each` with the first of this rank's features in a slice and its outputs, `[n, slice]`,
/// which it may change.
pub(super) fn forward(
    linear: &ColumnLinear,
    x: &Tensor,
    slice: usize,
    cx: &Context<'_>,
    mut each: impl FnMut(usize, &mut Tensor) -> kernels::Result<()>,
) -> kernels::Result<()> {
    let (cx, mut room) = (&cx.of_layer(linear.weight), None);
    let whole = cx.gather(x, &mut room)?;
    let features = features(linear, whole, cx)?;
    let x = cx.factor(whole, Role::Input(Whole))?;
    let mut y = Tensor::empty(&[x.dims()[0], slice], DType::F32, x.device())?;
    for rows in slices(linear, slice, cx) {
        let weight = cx.weight(linear.weight).rows(rows.clone())?;
        let weight = cx.factor(&weight, Role::Weight)?;
        outputs(linear, &x, &weight, &rows, &mut y, cx)?;
        if let Some((lora, u)) = &features {
            lora.add_slice(&mut y, u, &rows, cx)?;
        }
        each(rows.start, &mut y)?;
    }
    Ok(())
}

/// x: `[m, in]` -> dx: `[m, in]`, summed over ranks. `slope` receives the first of this rank's features in a slice
/// and its outputs, `[n, slice]`, which it overwrites with their gradients.
pub(super) fn backward(
    linear: &ColumnLinear,
    x: &Tensor,
    slice: usize,
    (gradients, cx): (&mut Gradients, &Context<'_>),
    mut slope: impl FnMut(usize, &mut Tensor) -> kernels::Result<()>,
) -> kernels::Result<Tensor> {
    let (cx, mut room) = (&cx.of_layer(linear.weight), None);
    let whole = cx.gather(x, &mut room)?;
    let features = features(linear, whole, cx)?;
    let x = cx.factor(whole, Role::Input(Whole))?;
    let (numbers, leaf) = (cx.numbers(), cx.sums.token_leaf);
    let mut y = Tensor::empty(&[x.dims()[0], slice], DType::F32, x.device())?;
    let (mut dx, mut du) = (Tree::default(), Tree::default());
    for rows in slices(linear, slice, cx) {
        let weight = cx.weight(linear.weight).rows(rows.clone())?;
        let weight = cx.factor(&weight, Role::Weight)?;
        outputs(linear, &x, &weight, &rows, &mut y, cx)?;
        if let Some((lora, u)) = &features {
            lora.add_slice(&mut y, u, &rows, cx)?;
        }
        slope(rows.start, &mut y)?;
        if let Some((lora, u)) = &features {
            lora.backward_slice(&y, u, rows.clone(), gradients, cx)?;
            du.push(u, |sum, accumulate| {
                lora.slice_inputs(sum, &y, (&rows, accumulate), cx)
            })?;
        }
        if let Some(bias) = linear.bias.filter(|bias| gradients.has(*bias)) {
            gradients.in_rows(bias, rows.clone(), |dbias, accumulate| {
                reduce::sum_rows(dbias, &y, leaf, accumulate)
            })?;
        }
        let dy = cx.factor(&y, Role::Gradient(Split))?;
        if gradients.has(linear.gradient) {
            gradients.in_rows(linear.gradient, rows, |dweight, accumulate| {
                let (dy, x) = ((&*dy, Op::Transposed), (&*x, Op::Plain));
                product(numbers, dweight, dy, x, leaf, accumulate)
            })?;
        }
        dx.push(&x, |sum, accumulate| {
            let (dy, weight) = ((&*dy, Op::Plain), (&*weight, Op::Plain));
            product(numbers, sum, dy, weight, 0, accumulate)
        })?;
    }
    drop((x, y));
    let of_features = match features {
        Some((lora, _)) => {
            let du = lora.finish_slices(du.finish()?, whole, gradients, cx)?;
            Some((lora, du))
        }
        None => None,
    };
    drop(room);
    let mut dx = cx.sum_to_rows(dx.finish()?)?;
    if let Some((lora, du)) = of_features {
        lora.add_column_inputs(&mut dx, &du, cx)?;
    }
    Ok(dx)
}

/// The layer's adapter and its features of x, `[n, rank]`, if it has one.
fn features<'l>(
    linear: &'l ColumnLinear,
    x: &Tensor,
    cx: &Context<'_>,
) -> kernels::Result<Option<(&'l Lora, Tensor)>> {
    match &linear.lora {
        Some(lora) => Ok(Some((lora, lora.features(x, cx)?))),
        None => Ok(None),
    }
}

/// Rows of this rank's matrix that are slices.
fn slices(
    linear: &ColumnLinear,
    slice: usize,
    cx: &Context<'_>,
) -> impl Iterator<Item = Range<usize>> + use<> {
    let out = cx.weight(linear.weight).dims()[0];
    (0..out).step_by(slice).map(move |row| row..row + slice)
}

/// y = x W^T and the bias of rows of the matrix.
fn outputs(
    linear: &ColumnLinear,
    x: &Operand<'_>,
    weight: &Operand<'_>,
    rows: &Range<usize>,
    y: &mut Tensor,
    cx: &Context<'_>,
) -> kernels::Result<()> {
    let bias = match linear.bias {
        Some(bias) => Some(cx.weight(bias).rows(rows.clone())?),
        None => None,
    };
    let then = bias.as_deref().map(Then::Bias);
    let weight = (&**weight, Op::Transposed);
    multiply(y, (x, weight), (0, then), cx)
}

/// The binary-counter tree over leaves that are products.
#[derive(Default)]
struct Tree {
    waiting: Vec<Tensor>,
    leaves: usize,
}

impl Tree {
    /// Takes the next leaf, of x's dims: `product` writes it, or adds it to its neighbour on the left.
    fn push(
        &mut self,
        x: &Tensor,
        product: impl FnOnce(&mut Tensor, bool) -> kernels::Result<()>,
    ) -> kernels::Result<()> {
        let merges = self.leaves.trailing_ones();
        self.leaves += 1;
        match self.waiting.last_mut() {
            // its first merge is one addition per element, as in the product
            Some(left) if merges > 0 => product(left, true)?,
            _ => {
                let mut leaf = Tensor::empty(x.dims(), DType::F32, x.device())?;
                product(&mut leaf, false)?;
                self.waiting.push(leaf);
            }
        }
        for _ in 1..merges {
            self.merge()?;
        }
        Ok(())
    }

    /// Adds the last block to the one on its left.
    fn merge(&mut self) -> kernels::Result<()> {
        if let Some(right) = self.waiting.pop()
            && let Some(left) = self.waiting.last_mut()
        {
            reduce::tree_add_into(left, &right)?;
        }
        Ok(())
    }

    /// Merges the remaining blocks, from the right.
    fn finish(mut self) -> kernels::Result<Tensor> {
        while self.waiting.len() > 1 {
            self.merge()?;
        }
        Ok(self.waiting.pop().expect("a layer has a slice"))
    }
}
