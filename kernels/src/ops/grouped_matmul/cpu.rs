//! Grouped product on the CPU: `cpu/gemm.rs` per expert; with many experts one task each.

use crate::cpu::Numbers;
use crate::cpu::epilogue::Epilogue;
use crate::cpu::gemm::{Plan, ViewMut, gemm};
use crate::cpu::pack::View;
use crate::cpu::tile::Finish;
use crate::matmul::Op;
use crate::{DType, Device, Result, Tensor};
use rayon::prelude::*;

pub(super) fn product(
    y: &mut Tensor,
    x: &Tensor,
    (w, op): (&[&Tensor], Op),
    counts: &[usize],
    leaf: usize,
) -> Result<()> {
    let device = x.device().clone();
    let (_, k) = x.rows_cols();
    let (_, n) = y.rows_cols();
    let (mut tasks, mut y, mut x) = (Vec::new(), y.f32_mut(), x.f32());
    for (expert, &rows) in counts.iter().enumerate().filter(|(_, rows)| **rows > 0) {
        let (out, later) = y.split_at_mut(rows * n);
        let (rows_of_x, rest) = x.split_at(rows * k);
        tasks.push((expert, rows, out, rows_of_x));
        (y, x) = (later, rest);
    }
    let parallel = tasks.len() < rayon::current_num_threads();
    let run = |(expert, rows, out, x): (usize, usize, &mut [f32], &[f32])| {
        let w = w[expert].f32();
        let w = match op {
            Op::Plain => View::new(w, k, n, n),
            Op::Transposed => View::new(w, n, k, k).transposed(),
        };
        let plan = Plan {
            device: &device,
            numbers: Numbers::F32,
            leaf,
            finish: Finish::Store,
            epilogue: Epilogue::default(),
            parallel,
        };
        gemm(view_mut(out, rows, n), View::new(x, rows, k, k), w, plan)
    };
    if parallel {
        tasks.into_iter().try_for_each(run)
    } else {
        tasks.into_par_iter().try_for_each(run)
    }
}

/// Adds the tree over leaves of `a^T b` to each expert's part of dw.
pub(super) fn backward_weight(
    dw: &mut [&mut Tensor],
    a: &Tensor,
    b: &Tensor,
    leaves: &[Vec<usize>],
) -> Result<()> {
    let device = a.device().clone();
    let ((_, height), (_, width)) = (a.rows_cols(), b.rows_cols());
    let (a, b) = (a.f32(), b.f32());
    let mut first = 0;
    let tasks: Vec<_> = (dw.iter_mut().zip(leaves))
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
                let a = View::new(&a[row * height..][..rows * height], rows, height, height);
                let b = View::new(&b[row * width..][..rows * width], rows, width, width);
                let plan = one_leaf(&device, parallel);
                gemm(
                    view_mut(sum.f32_mut(), height, width),
                    a.transposed(),
                    b,
                    plan,
                )?;
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

fn one_leaf(device: &Device, parallel: bool) -> Plan<'_> {
    Plan {
        device,
        numbers: Numbers::F32,
        leaf: 0,
        finish: Finish::Store,
        epilogue: Epilogue::default(),
        parallel,
    }
}

fn view_mut(data: &mut [f32], rows: usize, cols: usize) -> ViewMut<'_> {
    ViewMut {
        data: data.into(),
        rows,
        cols,
        row_stride: cols,
    }
}
