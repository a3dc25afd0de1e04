//! Loops of norms on the CPU: rows in parallel; sums over rows by blocks of columns. Each norm supplies its
//! computation of a row.

use crate::Tensor;
use crate::cpu::ROW_BLOCK;
use crate::ops::add::cpu::add;
use crate::ops::reduce::{COLUMNS, LeafSums, leaf_rows, settle};
use rayon::prelude::*;
use std::ops::Range;

/// Corresponding chunks of S slices, of `len` numbers or as many as are left.
fn chunks<const S: usize>(of: [&mut [f32]; S], len: usize) -> Vec<[&mut [f32]; S]> {
    let mut chunks = of.map(|numbers| numbers.chunks_mut(len));
    let next = || {
        let all = chunks.each_mut().map(Iterator::next);
        all.iter()
            .all(Option::is_some)
            .then(|| all.map(|chunk| chunk.expect("each has one")))
    };
    std::iter::from_fn(next).collect()
}

/// Calls `row` with rows of y and x; it returns the row's statistics.
pub(crate) fn forward<const S: usize>(
    y: &mut Tensor,
    statistics: [&mut Tensor; S],
    x: &Tensor,
    row: impl Fn(&mut [f32], &[f32]) -> [f32; S] + Sync,
) {
    let (_, d) = x.rows_cols();
    let kept = chunks(statistics.map(Tensor::f32_mut), ROW_BLOCK);
    let rows = y.f32_mut().par_chunks_mut(d * ROW_BLOCK);
    let rows = rows.zip(x.f32().par_chunks(d * ROW_BLOCK));
    rows.zip(kept).for_each(|((y, x), mut kept)| {
        for (r, (y, x)) in y.chunks_exact_mut(d).zip(x.chunks_exact(d)).enumerate() {
            for (kept, found) in kept.iter_mut().zip(row(y, x)) {
                kept[r] = found;
            }
        }
    });
}

/// Like `forward`, of x + more, which x becomes.
pub(crate) fn forward_sum<const S: usize>(
    y: &mut Tensor,
    statistics: [&mut Tensor; S],
    x: &mut Tensor,
    more: &Tensor,
    row: impl Fn(&mut [f32], &[f32]) -> [f32; S] + Sync,
) {
    let (isa, (_, d)) = (x.device().isa(), x.rows_cols());
    let kept = chunks(statistics.map(Tensor::f32_mut), ROW_BLOCK);
    let ins = x.f32_mut().par_chunks_mut(d * ROW_BLOCK);
    let ins = ins.zip(more.f32().par_chunks(d * ROW_BLOCK));
    let rows = y.f32_mut().par_chunks_mut(d * ROW_BLOCK).zip(ins);
    rows.zip(kept).for_each(|((y, (x, more)), mut kept)| {
        let ins = x.chunks_exact_mut(d).zip(more.chunks_exact(d));
        for (r, (y, (x, more))) in y.chunks_exact_mut(d).zip(ins).enumerate() {
            add(isa, x, more);
            for (kept, found) in kept.iter_mut().zip(row(y, x)) {
                kept[r] = found;
            }
        }
    });
}

/// Calls `row` with rows of dx, dy and x and the row's number, and adds `more`.
pub(crate) fn backward_input(
    dx: &mut Tensor,
    dy: &Tensor,
    x: &Tensor,
    more: Option<&Tensor>,
    row: impl Fn(&mut [f32], &[f32], &[f32], usize) + Sync,
) {
    let (isa, (_, d)) = (x.device().isa(), x.rows_cols());
    let (dy, x, more) = (dy.f32(), x.f32(), more.map(Tensor::f32));
    let blocks = dx.f32_mut().par_chunks_mut(d * ROW_BLOCK).enumerate();
    blocks.for_each(|(block, dx)| {
        for (r, dx) in dx.chunks_exact_mut(d).enumerate() {
            let r = block * ROW_BLOCK + r;
            let at = r * d..(r + 1) * d;
            row(dx, &dy[at.clone()], &x[at.clone()], r);
            if let Some(more) = more {
                add(isa, dx, &more[at]);
            }
        }
    });
}

/// Some rows of a block of columns.
pub(crate) struct Leaf<'a> {
    /// From the first row's first column of the block on.
    pub(crate) dy: &'a [f32],
    pub(crate) x: &'a [f32],
    /// Numbers from row to row.
    pub(crate) stride: usize,
    /// Numbers of the rows.
    pub(crate) rows: Range<usize>,
}

/// Adds to S sums over rows: `chain` writes those of a leaf's rows, one number per column, and leaves are merged in
/// the tree.
pub(crate) fn backward_weights<const S: usize>(
    sums: [&mut Tensor; S],
    dy: &Tensor,
    x: &Tensor,
    leaf: usize,
    chain: impl Fn([&mut [f32]; S], Leaf<'_>) + Sync,
) {
    let isa = x.device().isa();
    let (n, d) = x.rows_cols();
    let (dy, x) = (dy.f32(), x.f32());
    let parts = chunks(sums.map(Tensor::f32_mut), d);
    let rows = n / parts.len();
    let leaf = leaf_rows(leaf, rows);
    for (part, sums) in parts.into_iter().enumerate() {
        let blocks = chunks(sums, COLUMNS).into_par_iter().enumerate();
        blocks.for_each(|(block, sums)| {
            let first = block * COLUMNS;
            let mut trees = [(); S].map(|()| LeafSums::new(isa));
            let end = (part + 1) * rows;
            for start in (part * rows..end).step_by(leaf) {
                let mut of_leaf = [[0.0; COLUMNS]; S];
                let mut outs = of_leaf.each_mut().map(|numbers| &mut numbers[..]);
                for (out, sums) in outs.iter_mut().zip(&sums) {
                    *out = &mut std::mem::take(out)[..sums.len()];
                }
                let from = start * d + first;
                let one = Leaf {
                    dy: &dy[from..],
                    x: &x[from..],
                    stride: d,
                    rows: start..end.min(start + leaf),
                };
                chain(outs, one);
                for (tree, sums) in trees.iter_mut().zip(of_leaf) {
                    tree.push(sums);
                }
            }
            for (sums, tree) in sums.into_iter().zip(trees) {
                settle(sums, &tree.finish(), true);
            }
        });
    }
}
