//! Rounding on CUDA: a thread per number; a warp per row or block that has a scale of its own.

use std::sync::Arc;

use super::format::Grid;
use crate::cuda::{Arg, Cuda, Grid as Launch, Source};
use crate::{DType, Result, Tensor};

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

/// Borders of runs on the device of x.
fn table(borders: &[usize], x: &Tensor) -> Result<Tensor> {
    let borders: Vec<u32> = borders
        .iter()
        .map(|at| u32::try_from(*at).unwrap_or(u32::MAX))
        .collect();
    Tensor::from_u32(&[borders.len()], &borders, x.device())
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
    let (row_table, column_table) = (table(rows, x)?, table(columns, x)?);
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

pub(in crate::ops) static STORED: Source = Source {
    name: "stored.cu",
    text: include_str!("stored.cu"),
};

/// Bits of a stored number.
fn bits(codes: &Tensor) -> Arg {
    Arg::U32(if codes.dtype().bytes() == 1 { 8 } else { 16 })
}

fn is_bf16(x: &Tensor) -> Arg {
    (x.dtype() == DType::Bf16).into()
}

pub(super) fn stored_scaled(
    on: &Arc<Cuda>,
    codes: &mut Tensor,
    amax: Option<&mut Tensor>,
    x: &Tensor,
    grid: Grid,
    scale: f32,
) -> Result<()> {
    let n = x.elements();
    let before = [
        (&*codes).into(),
        bits(codes),
        amax.as_deref().into(),
        x.into(),
        is_bf16(x),
        n.into(),
        scale.into(),
    ];
    on.launch(
        &STORED,
        "stored_scaled",
        Launch::over(n),
        &args(&before, grid, &[]),
    )
}

/// `rows`, `columns`: 0 and the ends of runs.
pub(super) fn stored_blocks(
    on: &Arc<Cuda>,
    [codes, back]: [&mut Tensor; 2],
    x: &Tensor,
    grid: Grid,
    [rows, columns]: [&[usize]; 2],
) -> Result<()> {
    let (row_table, column_table) = (table(rows, x)?, table(columns, x)?);
    let (row_blocks, column_blocks) = (rows.len() - 1, columns.len() - 1);
    let before = [
        (&*codes).into(),
        bits(codes),
        (&*back).into(),
        x.into(),
        is_bf16(x),
        x.rows_cols().1.into(),
        (&row_table).into(),
        row_blocks.into(),
        (&column_table).into(),
        column_blocks.into(),
    ];
    let launch = Launch::over(row_blocks * column_blocks * 32);
    on.launch(&STORED, "stored_blocks", launch, &args(&before, grid, &[]))
}

pub(super) fn widened(on: &Arc<Cuda>, y: &mut Tensor, codes: &Tensor, grid: Grid) -> Result<()> {
    let n = codes.elements();
    let before = [y.into(), codes.into(), bits(codes), n.into()];
    on.launch(
        &STORED,
        "stored_widened",
        Launch::over(n),
        &args(&before, grid, &[]),
    )
}

pub(super) fn turned(on: &Arc<Cuda>, y: &mut Tensor, codes: &Tensor) -> Result<()> {
    let (rows, columns) = codes.rows_cols();
    let args = [y.into(), codes.into(), rows.into(), columns.into()];
    let grid = Launch::blocks(columns.div_ceil(32), 256).by(rows.div_ceil(32));
    on.launch(&STORED, "stored_turned", grid, &args)
}
