//! Grouped product on the CPU: `cpu/gemm.rs` per expert; with many experts one task each.

use crate::cpu::epilogue::Epilogue;
use crate::cpu::gemm::{gemm, gemm_packed};
use crate::cpu::output::{Data, DataMut};
use crate::cpu::pack::Matrix;
use crate::cpu::plan::{Plan, ViewMut};
use crate::cpu::tile::Finish;
use crate::matmul::{Numbers, Op, Packed};
use crate::{DType, Device, Result, Tensor};

use super::groups::{Counts, Leaves};
use rayon::prelude::*;

pub(super) fn product(
    numbers: Numbers,
    y: &mut Tensor,
    x: &Tensor,
    (w, op): (&[&Tensor], Op),
    counts: Counts<'_>,
    leaf: usize,
) -> Result<()> {
    let (_, k) = x.rows_cols();
    let (_, n) = y.rows_cols();
    let device = x.device().clone();
    by_expert(y, x, w, counts, |out, x, w, parallel| {
        let w = Data::of(w);
        let w = match op {
            Op::Plain => Matrix::of(w, 0, [k, n], n),
            Op::Transposed => Matrix::of(w, 0, [n, k], k).transposed(),
        };
        gemm(out, x, w, plan((&device, numbers), leaf, parallel))
    })
}

pub(super) fn product_packed(
    y: &mut Tensor,
    x: &Tensor,
    w: &[&Packed],
    counts: Counts<'_>,
) -> Result<()> {
    let (_, n) = y.rows_cols();
    let device = x.device().clone();
    by_expert(y, x, w, counts, |out, x, w, parallel| {
        let plan = plan((&device, w.numbers()), w.leaf(), parallel);
        gemm_packed(out, x, (w.words(), n), plan)
    })
}

/// Calls `multiply` for each expert that has rows, with its output, its rows, its matrix, and whether to use all threads.
fn by_expert<W: Copy + Send + Sync>(
    y: &mut Tensor,
    x: &Tensor,
    w: &[W],
    counts: Counts<'_>,
    multiply: impl Fn(ViewMut<'_>, Matrix<'_>, W, bool) -> Result<()> + Sync,
) -> Result<()> {
    let counts = counts.on_host();
    let (_, k) = x.rows_cols();
    let (_, n) = y.rows_cols();
    let (x, mut y) = (Data::of(x), DataMut::of(y));
    let (mut tasks, mut row) = (Vec::new(), 0);
    for (w, &rows) in w.iter().zip(&*counts).filter(|(_, rows)| **rows > 0) {
        let (out, later) = y.split_at(rows * n);
        tasks.push((out, Matrix::of(x, row * k, [rows, k], k), *w));
        (y, row) = (later, row + rows);
    }
    y.clear();
    let parallel = tasks.len() < rayon::current_num_threads();
    let run = |(out, x, w): (DataMut<'_>, Matrix<'_>, W)| {
        multiply(view_mut(out, x.rows(), n), x, w, parallel)
    };
    if parallel {
        tasks.into_iter().try_for_each(run)
    } else {
        tasks.into_par_iter().try_for_each(run)
    }
}

/// Adds the tree over leaves of `a^T b` to each expert's part of dw.
pub(super) fn backward_weight(
    numbers: Numbers,
    dw: &mut [&mut Tensor],
    a: &Tensor,
    b: &Tensor,
    leaves: Leaves<'_>,
) -> Result<()> {
    let leaves = leaves.on_host();
    let device = a.device().clone();
    let ((_, height), (_, width)) = (a.rows_cols(), b.rows_cols());
    let (a, b) = (Data::of(a), Data::of(b));
    let mut first = 0;
    let tasks: Vec<_> = (dw.iter_mut().zip(&*leaves))
        .map(|(dw, leaves)| {
            let start = first;
            first += leaves.iter().sum::<usize>();
            (dw.f32_mut(), leaves, start)
        })
        .collect();
    let parallel = tasks.len() < rayon::current_num_threads();
    let run = |(dw, leaves, start): (&mut [f32], &Vec<usize>, usize)| -> Result<()> {
        let mut row = start;
        let mut blocks: Vec<Block> = Vec::new();
        for &rows in leaves {
            let sum = (rows > 0).then(|| {
                let mut sum = Tensor::empty(&[height, width], DType::F32, &device)?;
                let a = Matrix::of(a, row * height, [rows, height], height);
                let b = Matrix::of(b, row * width, [rows, width], width);
                let plan = plan((&device, numbers), 0, parallel);
                let out = view_mut(DataMut::of(&mut sum), height, width);
                gemm(out, a.transposed(), b, plan)?;
                Ok(sum)
            });
            row += rows;
            blocks.push((1, sum.transpose()?));
            while let [.., (left, _), (right, _)] = &blocks[..]
                && left == right
            {
                merge_last(&mut blocks);
            }
        }
        while blocks.len() > 1 {
            merge_last(&mut blocks);
        }
        if let Some((_, Some(sum))) = blocks.pop() {
            for (old, new) in dw.iter_mut().zip(sum.f32()) {
                *old += new;
            }
        }
        Ok(())
    };
    if parallel {
        tasks.into_iter().try_for_each(run)
    } else {
        tasks.into_par_iter().try_for_each(run)
    }
}

/// Leaves of a block and their sum; `None` when none of them has rows.
type Block = (usize, Option<Tensor>);

/// Merges the last two blocks, left + right; an empty one adds nothing.
fn merge_last(blocks: &mut Vec<Block>) {
    let Some((right_leaves, right)) = blocks.pop() else {
        return;
    };
    let Some((leaves, left)) = blocks.last_mut() else {
        return;
    };
    *leaves += right_leaves;
    match (left.as_mut(), right) {
        (Some(left), Some(right)) => {
            for (l, r) in left.f32_mut().iter_mut().zip(right.f32()) {
                *l += r;
            }
        }
        (None, right) => *left = right,
        (Some(_), None) => {}
    }
}

fn plan((device, numbers): (&Device, Numbers), leaf: usize, parallel: bool) -> Plan<'_> {
    Plan {
        device,
        numbers,
        leaf,
        finish: Finish::Store,
        epilogue: Epilogue::default(),
        parallel,
    }
}

fn view_mut(data: DataMut<'_>, rows: usize, cols: usize) -> ViewMut<'_> {
    ViewMut {
        data,
        rows,
        cols,
        row_stride: cols,
    }
}
