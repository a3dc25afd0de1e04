//! Permutation on CUDA: a thread per number; the order is uploaded by each call.

use std::sync::Arc;

use super::order::Order;
use crate::cuda::{Cuda, Grid, Source};
use crate::{Device, Result, Tensor};

pub(in crate::ops) static SOURCE: Source = Source {
    name: "permute.cu",
    text: include_str!("permute.cu"),
};

fn word(x: usize) -> u32 {
    u32::try_from(x).unwrap_or(u32::MAX)
}

/// The choice of each row.
fn choices(order: &Order, device: &Device) -> Result<Tensor> {
    let choices: Vec<u32> = order.choices.iter().map(|choice| word(*choice)).collect();
    Tensor::from_u32(&[choices.len()], &choices, device)
}

/// The row of each choice, or `u32::MAX`.
fn rows(order: &Order, device: &Device) -> Result<Tensor> {
    let rows = order.rows.iter().map(|row| row.map_or(u32::MAX, word));
    let rows: Vec<u32> = rows.collect();
    Tensor::from_u32(&[rows.len()], &rows, device)
}

pub(super) fn permute(on: &Arc<Cuda>, y: &mut Tensor, x: &Tensor, order: &Order) -> Result<()> {
    let (n, d) = y.rows_cols();
    let choices = choices(order, x.device())?;
    let args = [
        y.into(),
        x.into(),
        (&choices).into(),
        n.into(),
        order.k.into(),
        d.into(),
    ];
    on.launch(&SOURCE, "permute_rows", Grid::over(n * d), &args)
}

/// Sums each token's rows, weighted or not.
pub(super) fn gather(
    on: &Arc<Cuda>,
    y: &mut Tensor,
    x: &Tensor,
    weights: Option<&Tensor>,
    order: &Order,
) -> Result<()> {
    let (tokens, d) = y.rows_cols();
    let rows = rows(order, x.device())?;
    let args = [
        y.into(),
        x.into(),
        weights.into(),
        (&rows).into(),
        tokens.into(),
        order.k.into(),
        d.into(),
    ];
    on.launch(&SOURCE, "permute_gather", Grid::over(tokens * d), &args)
}

pub(super) fn combine_backward(
    on: &Arc<Cuda>,
    dx: &mut Tensor,
    dweights: &mut Tensor,
    dy: &Tensor,
    x: &Tensor,
    weights: &Tensor,
    order: &Order,
) -> Result<()> {
    let (n, d) = dx.rows_cols();
    let (choices, rows) = (choices(order, x.device())?, rows(order, x.device())?);
    let args = [
        dx.into(),
        dy.into(),
        weights.into(),
        (&choices).into(),
        n.into(),
        order.k.into(),
        d.into(),
    ];
    on.launch(&SOURCE, "permute_scaled", Grid::over(n * d), &args)?;
    let count = order.rows.len();
    let args = [
        dweights.into(),
        x.into(),
        dy.into(),
        (&rows).into(),
        count.into(),
        order.k.into(),
        d.into(),
    ];
    on.launch(&SOURCE, "permute_dots", Grid::over(count * 16), &args)
}
