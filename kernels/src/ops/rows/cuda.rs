//! Copies and elementwise operations on CUDA: a thread per element, or per row or column for sums in order.

use std::sync::Arc;

use super::Runs;
use crate::cuda::{Cuda, Grid, Source};
use crate::{DType, Result, Tensor, View, ViewMut};

pub(in crate::ops) static SOURCE: Source = Source {
    name: "rows.cu",
    text: include_str!("rows.cu"),
};

pub(super) fn copy_runs(
    on: &Arc<Cuda>,
    to: &mut ViewMut<'_>,
    from: View<'_>,
    runs: Runs,
) -> Result<()> {
    if runs.count == 1 {
        return on.copy(
            to.address(),
            from.address(),
            runs.run * from.dtype().bytes(),
        );
    }
    let function = match from.dtype() {
        DType::F32 | DType::U32 => "rows_copy_words",
        DType::Bf16 | DType::F16 => "rows_copy_halves",
        DType::E4m3 | DType::E5m2 => "rows_copy_bytes",
    };
    let args = [
        to.address().into(),
        from.address().into(),
        runs.count.into(),
        runs.run.into(),
        runs.from_stride.into(),
        runs.to_stride.into(),
    ];
    on.launch(&SOURCE, function, Grid::over(runs.elements()), &args)
}

pub(super) fn add(on: &Arc<Cuda>, x: &mut ViewMut<'_>, y: View<'_>) -> Result<()> {
    let args = [x.address().into(), y.address().into(), x.len().into()];
    on.launch(&SOURCE, "rows_add", Grid::over(x.len()), &args)
}

pub(super) fn shift(on: &Arc<Cuda>, x: &mut ViewMut<'_>, value: f32) -> Result<()> {
    let args = [x.address().into(), x.len().into(), value.into()];
    on.launch(&SOURCE, "rows_shift", Grid::over(x.len()), &args)
}

pub(super) fn scale(on: &Arc<Cuda>, x: &mut ViewMut<'_>, factor: f32) -> Result<()> {
    let args = [x.address().into(), x.len().into(), factor.into()];
    on.launch(&SOURCE, "rows_scale", Grid::over(x.len()), &args)
}

pub(super) fn fill(on: &Arc<Cuda>, x: &mut ViewMut<'_>, value: f32) -> Result<()> {
    let args = [x.address().into(), x.len().into(), value.into()];
    on.launch(&SOURCE, "rows_fill", Grid::over(x.len()), &args)
}

pub(super) fn logistic(on: &Arc<Cuda>, x: &mut ViewMut<'_>) -> Result<()> {
    let args = [x.address().into(), x.len().into()];
    on.launch(&SOURCE, "rows_logistic", Grid::over(x.len()), &args)
}

pub(super) fn logistic_backward(on: &Arc<Cuda>, dx: &mut ViewMut<'_>, s: View<'_>) -> Result<()> {
    let args = [dx.address().into(), s.address().into(), s.len().into()];
    let grid = Grid::over(s.len());
    on.launch(&SOURCE, "rows_logistic_backward", grid, &args)
}

pub(super) fn scaled_rows(on: &Arc<Cuda>, out: &mut Tensor, x: &Tensor, by: &Tensor) -> Result<()> {
    let (rows, d) = x.rows_cols();
    let args = [out.into(), x.into(), by.into(), rows.into(), d.into()];
    on.launch(&SOURCE, "rows_scaled", Grid::over(rows * d), &args)
}

pub(super) fn dot_rows(on: &Arc<Cuda>, out: &mut Tensor, a: &Tensor, b: &Tensor) -> Result<()> {
    let (rows, d) = a.rows_cols();
    let args = [out.into(), a.into(), b.into(), rows.into(), d.into()];
    on.launch(&SOURCE, "rows_dot", Grid::over(rows), &args)
}

pub(super) fn sum_groups(on: &Arc<Cuda>, out: &mut Tensor, x: &Tensor, group: usize) -> Result<()> {
    let (groups, d) = out.rows_cols();
    let args = [out.into(), x.into(), groups.into(), group.into(), d.into()];
    on.launch(&SOURCE, "rows_sum_groups", Grid::over(groups * d), &args)
}

pub(super) fn raise(on: &Arc<Cuda>, bits: &mut ViewMut<'_>, x: View<'_>) -> Result<()> {
    let args = [bits.address().into(), x.address().into(), x.len().into()];
    on.launch(&SOURCE, "rows_largest", Grid::over(x.len()), &args)
}

/// The largest of floats from 0.0 on is the largest of their bits.
pub(super) fn largest(on: &Arc<Cuda>, out: &mut Tensor, x: View<'_>) -> Result<()> {
    let args = [out.into(), x.address().into(), x.len().into()];
    on.launch(&SOURCE, "rows_largest", Grid::over(x.len()), &args)
}

pub(super) fn not_finite(on: &Arc<Cuda>, words: &mut Tensor, x: View<'_>) -> Result<()> {
    let args = [words.into(), x.address().into(), x.len().into()];
    on.launch(&SOURCE, "rows_not_finite", Grid::over(x.len()), &args)?;
    on.launch(&SOURCE, "rows_found", Grid::blocks(1, 32), &args)
}
