//! Biases of experts' matrices: y_e = x_e W_e + b_e.
//!
//! A bias is a matrix of one row, which a column of ones multiplies. So the grouped products, which know how many rows each
//! expert has where the host does not, add biases and sum their gradients, over the leaves and ranks of those of weights. The
//! products are exact: every factor but one is 1.

use kernels::grouped_matmul::{self, Counts};
use kernels::matmul::{Numbers, Op};
use kernels::{DType, Device, Tensor, add, reduce, rows};

use crate::model::context::Context;
use crate::model::gradients::Gradients;
use crate::model::moe::token_dispatcher::TokenDispatcher;
use crate::model::moe::weight_sums::{Factors, add_sums};
use crate::model::slots::Slot;

/// Adds each expert's bias, if there are any, to its rows of y: `[q, out]` in f32.
pub(super) fn add(
    mut y: Tensor,
    biases: &[Slot],
    counts: Counts<'_>,
    cx: &Context<'_>,
) -> kernels::Result<Tensor> {
    if biases.is_empty() {
        return Ok(y);
    }
    let of = |slot: &Slot| {
        let bias = cx.weight(*slot).try_clone()?;
        let width = bias.elements();
        bias.reshape(&[1, width])
    };
    let biases: Vec<Tensor> = biases.iter().map(of).collect::<kernels::Result<_>>()?;
    let biases: Vec<&Tensor> = biases.iter().collect();
    let ones = ones(y.dims()[0], y.device())?;
    let kind = (Numbers::F32, DType::F32);
    let rows = grouped_matmul::forward(kind, &ones, (&biases, Op::Plain), counts, 0)?;
    add::add_into(&mut y, &rows)?;
    Ok(y)
}

/// Adds the sums of each expert's rows of dy, `[q, out]` in f32, to the gradients of its bias, if there are any; no rows are here
/// without dy.
pub(super) fn add_gradients(
    biases: &[Slot],
    dy: Option<&Tensor>,
    (dispatcher, gradients): (&TokenDispatcher, &mut Gradients),
    cx: &Context<'_>,
) -> kernels::Result<()> {
    if !biases.iter().any(|bias| gradients.has(*bias)) {
        return Ok(()); // there are none, or they are frozen
    }
    let sums = gradients.sums_of(biases)?;
    let zeros =
        (sums.iter()).map(|sum| Tensor::zeros(&[1, sum.elements()], DType::F32, sum.device()));
    let mut rows: Vec<Tensor> = zeros.collect::<kernels::Result<_>>()?;
    let mut parts: Vec<&mut Tensor> = rows.iter_mut().collect();
    let ones = dy.map(|dy| ones(dy.dims()[0], dy.device())).transpose()?;
    let factors = (dy.zip(ones.as_ref())).map(|(dy, x)| Factors { dy, x });
    add_sums(
        Numbers::F32,
        (&mut parts, Op::Plain),
        factors,
        dispatcher,
        cx,
    )?;
    for (sum, row) in sums.into_iter().zip(rows) {
        let width = row.elements();
        reduce::tree_add_into(sum, &row.reshape(&[width])?)?;
    }
    Ok(())
}

/// `[rows, 1]`
fn ones(count: usize, device: &Device) -> kernels::Result<Tensor> {
    let mut ones = Tensor::empty(&[count, 1], DType::F32, device)?;
    rows::fill(ones.view_mut(), 1.0)?;
    Ok(ones)
}
