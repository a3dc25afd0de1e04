//! Rounding on CUDA: a thread per number; a warp per row or block that has a scale of its own.

use std::sync::Arc;

use super::format::Grid;
use crate::cuda::{Arg, Cuda, Grid as Launch, Source};
use crate::{Result, Tensor};

pub(in crate::ops) static SOURCE: Source = Source {
    name: "cast.cu",
    text: include_str!("cast.cu"),
};

/// The arguments of a kernel with a grid.
fn args(before: &[Arg], grid: Grid, after: &[Arg]) -> Vec<Arg> {
    let of_grid = [
        grid.dropped.into(),
        grid.least.into(),
        grid.steps.into(),
        grid.largest.into(),
        grid.beyond.into(),
    ];
    [before, &of_grid, after].concat()
}

pub(super) fn round(on: &Arc<Cuda>, x: &mut Tensor, grid: Grid) -> Result<()> {
    let n = x.elements();
    let args = args(&[(&*x).into(), (&*x).into(), n.into()], grid, &[]);
    on.launch(&SOURCE, "cast_round", Launch::over(n), &args)
}

pub(super) fn rounded(on: &Arc<Cuda>, y: &mut Tensor, x: &Tensor, grid: Grid) -> Result<()> {
    let n = x.elements();
    let args = args(&[y.into(), x.into(), n.into()], grid, &[]);
    on.launch(&SOURCE, "cast_round", Launch::over(n), &args)
}

/// y, stored in bf16, = x.
pub(in crate::ops) fn to_bf16(on: &Arc<Cuda>, y: &mut Tensor, x: &Tensor) -> Result<()> {
    let n = x.elements();
    let args = [y.into(), x.into(), n.into()];
    on.launch(&SOURCE, "cast_to_bf16", Launch::over(n), &args)
}

pub(super) fn row_amax(
    on: &Arc<Cuda>,
    amax: &mut Tensor,
    x: &Tensor,
    columns: usize,
) -> Result<()> {
    let rows = amax.elements();
    let args = [amax.into(), x.into(), rows.into(), columns.into()];
    on.launch(&SOURCE, "cast_row_amax", Launch::over(rows * 32), &args)
}

pub(super) fn scaled_rows(
    on: &Arc<Cuda>,
    y: &mut Tensor,
    x: &Tensor,
    grid: Grid,
    amax: &Tensor,
) -> Result<()> {
    let (n, columns) = (x.elements(), x.rows_cols().1.max(1));
    let before = [
        y.into(),
        x.into(),
        n.into(),
        columns.into(),
        amax.into(),
        amax.elements().into(),
    ];
    on.launch(
        &SOURCE,
        "cast_scaled_rows",
        Launch::over(n),
        &args(&before, grid, &[]),
    )
}

/// As saturating hardware does.
pub(super) fn scaled_all(
    on: &Arc<Cuda>,
    y: &mut Tensor,
    x: &Tensor,
    grid: Grid,
    scale: f32,
) -> Result<()> {
    let grid = Grid {
        beyond: grid.largest,
        ..grid
    };
    let n = x.elements();
    let args = args(&[y.into(), x.into(), n.into()], grid, &[scale.into()]);
    on.launch(&SOURCE, "cast_scaled", Launch::over(n), &args)
}

/// `rows`, `columns`: 0 and the ends of runs.
pub(super) fn scaled_blocks(
    on: &Arc<Cuda>,
    y: &mut Tensor,
    x: &Tensor,
    grid: Grid,
    rows: &[usize],
    columns: &[usize],
) -> Result<()> {
    let table = |borders: &[usize]| {
        let borders: Vec<u32> = borders
            .iter()
            .map(|at| u32::try_from(*at).unwrap_or(u32::MAX))
            .collect();
        Tensor::from_u32(&[borders.len()], &borders, x.device())
    };
    let (row_table, column_table) = (table(rows)?, table(columns)?);
    let (row_blocks, column_blocks) = (rows.len() - 1, columns.len() - 1);
    let before = [
        y.into(),
        x.into(),
        x.rows_cols().1.into(),
        (&row_table).into(),
        row_blocks.into(),
        (&column_table).into(),
        column_blocks.into(),
    ];
    let launch = Launch::over(row_blocks * column_blocks * 32);
    on.launch(
        &SOURCE,
        "cast_scaled_blocks",
        launch,
        &args(&before, grid, &[]),
    )
}
