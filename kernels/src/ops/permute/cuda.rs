//! Permutation on CUDA: a thread per number. The order is a counting sort by tiles of choices: counts of each tile, their
//! prefix sums, and rows, a warp per tile.

use std::ops::Range;
use std::sync::Arc;

use super::order::{DeviceLists, Lists, Order};
use crate::cuda::{Cuda, Grid, Source};
use crate::{DType, Result, Tensor};

pub(in crate::ops) static SOURCE: Source = Source {
    name: "permute.cu",
    text: include_str!("permute.cu"),
};

/// Choices that a warp puts in order.
const ORDER_TILE: usize = 256;

/// Threads of the one block that adds the tiles' counts up.
const OFFSET_THREADS: u32 = 1024;

/// The order of the choices whose experts are in `range`.
pub(in crate::ops) fn lists(
    on: &Arc<Cuda>,
    experts: &Tensor,
    range: Range<usize>,
) -> Result<DeviceLists> {
    let (n, count, device) = (experts.elements(), range.len(), experts.device());
    let tiles = n.div_ceil(ORDER_TILE);
    let mut counts = Tensor::zeros(&[tiles, count], DType::U32, device)?;
    let mut lists = DeviceLists {
        choices: Tensor::empty(&[n], DType::U32, device)?,
        rows: Tensor::empty(&[n], DType::U32, device)?,
        offsets: Tensor::empty(&[count + 1], DType::U32, device)?,
        room: n,
    };
    let args = [
        (&mut counts).into(),
        experts.into(),
        n.into(),
        range.start.into(),
        count.into(),
    ];
    on.launch(&SOURCE, "permute_count", Grid::over(n), &args)?;
    let args = [
        (&mut counts).into(),
        (&mut lists.offsets).into(),
        tiles.into(),
        count.into(),
    ];
    let grid = Grid::blocks(1, OFFSET_THREADS);
    on.launch(&SOURCE, "permute_offsets", grid, &args)?;
    let args = [
        (&mut lists.choices).into(),
        (&mut lists.rows).into(),
        (&mut counts).into(),
        (&lists.offsets).into(),
        experts.into(),
        n.into(),
        range.start.into(),
        count.into(),
    ];
    let grid = Grid::over(tiles * 32);
    on.launch(&SOURCE, "permute_order", grid, &args)?;
    Ok(lists)
}

/// Adds the rows of each expert by leaf of `choices` choices to `table`: `[experts, leaves]`, of zeros.
pub(super) fn leaves(
    on: &Arc<Cuda>,
    table: &mut Tensor,
    lists: &DeviceLists,
    choices: usize,
) -> Result<()> {
    let (experts, count) = table.rows_cols();
    let args = [
        table.into(),
        (&lists.choices).into(),
        (&lists.offsets).into(),
        choices.into(),
        count.into(),
    ];
    on.launch(
        &SOURCE,
        "permute_leaves",
        Grid::blocks(experts, Grid::THREADS),
        &args,
    )
}

fn of(order: &Order) -> &DeviceLists {
    match &order.lists {
        Lists::Device(lists) => lists,
        Lists::Host(_) => unreachable!("`Order::check` compares the devices"),
    }
}

pub(super) fn permute(on: &Arc<Cuda>, y: &mut Tensor, x: &Tensor, order: &Order) -> Result<()> {
    let (n, d) = y.rows_cols();
    let args = [
        y.into(),
        x.into(),
        (&of(order).choices).into(),
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
    let args = [
        y.into(),
        x.into(),
        weights.into(),
        (&of(order).rows).into(),
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
    let ((n, d), lists) = (dx.rows_cols(), of(order));
    let args = [
        dx.into(),
        dy.into(),
        weights.into(),
        (&lists.choices).into(),
        n.into(),
        order.k.into(),
        d.into(),
    ];
    on.launch(&SOURCE, "permute_scaled", Grid::over(n * d), &args)?;
    let count = lists.rows.elements();
    let args = [
        dweights.into(),
        x.into(),
        dy.into(),
        (&lists.rows).into(),
        count.into(),
        order.k.into(),
        d.into(),
    ];
    on.launch(&SOURCE, "permute_dots", Grid::over(count * 16), &args)
}
