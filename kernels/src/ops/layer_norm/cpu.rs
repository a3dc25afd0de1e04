//! Layer norm on the CPU. With xhat = (x - mean) inv_std and g = dy w:
//! dx = inv_std (g - mean(g) - xhat mean(g xhat)). Rows in parallel; dw, db by blocks of columns.

use crate::Tensor;
use crate::cpu::ROW_BLOCK;
use crate::cpu::simd::vector_fn;
use crate::ops::add::cpu::add;
use crate::ops::reduce::{COLUMNS, LeafSums, leaf_rows, settle};
use rayon::prelude::*;

pub(super) fn forward(
    y: &mut Tensor,
    (mean, inv_std): (&mut Tensor, &mut Tensor),
    x: &Tensor,
    (w, b): (&Tensor, &Tensor),
    eps: f32,
) {
    let isa = x.device().isa();
    let (_, d) = x.rows_cols();
    let (x, w, b) = (x.f32(), w.f32(), b.f32());
    let stats = mean
        .f32_mut()
        .par_chunks_mut(ROW_BLOCK)
        .zip(inv_std.f32_mut().par_chunks_mut(ROW_BLOCK));
    let rows = y
        .f32_mut()
        .par_chunks_mut(d * ROW_BLOCK)
        .zip(x.par_chunks(d * ROW_BLOCK));
    rows.zip(stats).for_each(|((y, x), (mean, inv_std))| {
        for (r, (y, x)) in y.chunks_exact_mut(d).zip(x.chunks_exact(d)).enumerate() {
            (mean[r], inv_std[r]) = normalise(isa, y, x, (w, b), eps);
        }
    });
}

pub(super) fn forward_sum(
    y: &mut Tensor,
    (mean, inv_std): (&mut Tensor, &mut Tensor),
    (x, more): (&mut Tensor, &Tensor),
    (w, b): (&Tensor, &Tensor),
    eps: f32,
) {
    let isa = x.device().isa();
    let (_, d) = x.rows_cols();
    let (more, w, b) = (more.f32(), w.f32(), b.f32());
    let stats = mean
        .f32_mut()
        .par_chunks_mut(ROW_BLOCK)
        .zip(inv_std.f32_mut().par_chunks_mut(ROW_BLOCK));
    let ins = x.f32_mut().par_chunks_mut(d * ROW_BLOCK);
    let ins = ins.zip(more.par_chunks(d * ROW_BLOCK));
    let rows = y.f32_mut().par_chunks_mut(d * ROW_BLOCK).zip(ins);
    rows.zip(stats)
        .for_each(|((y, (x, more)), (mean, inv_std))| {
            let ins = x.chunks_exact_mut(d).zip(more.chunks_exact(d));
            for (r, (y, (x, more))) in y.chunks_exact_mut(d).zip(ins).enumerate() {
                add(isa, x, more);
                (mean[r], inv_std[r]) = normalise(isa, y, x, (w, b), eps);
            }
        });
}

vector_fn! {
    fn normalise<L>(y: &mut [f32], x: &[f32], wb: (&[f32], &[f32]), eps: f32) -> (f32, f32) {
        let d = x.len() as f32;
        let mut sum = L::splat(0.0);
        for x in x.chunks(16) {
            sum = sum.add(L::load_part(x, 0.0));
        }
        let mean = sum.sum() / d;
        let mut squares = L::splat(0.0);
        for x in x.chunks(16) {
            let centred = L::load_part(x, mean).sub(L::splat(mean));
            squares = centred.fma(centred, squares);
        }
        let inv_std = 1.0 / (squares.sum() / d + eps).sqrt();
        for ((y, x), (w, b)) in
            y.chunks_mut(16).zip(x.chunks(16)).zip(wb.0.chunks(16).zip(wb.1.chunks(16)))
        {
            let xhat = L::load_part(x, 0.0).sub(L::splat(mean)).mul(L::splat(inv_std));
            xhat.fma(L::load_part(w, 0.0), L::load_part(b, 0.0)).store_part(y);
        }
        (mean, inv_std)
    }
}

pub(super) fn backward_input(
    dx: &mut Tensor,
    dy: &Tensor,
    x: &Tensor,
    w: &Tensor,
    (mean, inv_std): (&Tensor, &Tensor),
    more: Option<&Tensor>,
) {
    let isa = x.device().isa();
    let (_, d) = x.rows_cols();
    let (dy, x, w) = (dy.f32(), x.f32(), w.f32());
    let more = more.map(Tensor::f32);
    let (mean, inv_std) = (mean.f32(), inv_std.f32());
    dx.f32_mut()
        .par_chunks_mut(d * ROW_BLOCK)
        .enumerate()
        .for_each(|(block, dx)| {
            for (r, dx) in dx.chunks_exact_mut(d).enumerate() {
                let r = block * ROW_BLOCK + r;
                let row = r * d..(r + 1) * d;
                let ins = (&x[row.clone()], w);
                slope(isa, dx, &dy[row.clone()], ins, (mean[r], inv_std[r]));
                if let Some(more) = more {
                    add(isa, dx, &more[row]);
                }
            }
        });
}

vector_fn! {
    fn slope<L>(dx: &mut [f32], dy: &[f32], xw: (&[f32], &[f32]), stats: (f32, f32)) {
        let (x, w) = xw;
        let d = x.len() as f32;
        let (mean, inv_std) = (L::splat(stats.0), L::splat(stats.1));
        let (mut sum, mut dot) = (L::splat(0.0), L::splat(0.0));
        for ((dy, x), w) in dy.chunks(16).zip(x.chunks(16)).zip(w.chunks(16)) {
            let g = L::load_part(dy, 0.0).mul(L::load_part(w, 0.0));
            let xhat = L::load_part(x, stats.0).sub(mean).mul(inv_std);
            sum = sum.add(g);
            dot = g.fma(xhat, dot);
        }
        let (sum, dot) = (L::splat(sum.sum() / d), L::splat(-(dot.sum() / d)));
        for ((dx, dy), (x, w)) in
            dx.chunks_mut(16).zip(dy.chunks(16)).zip(x.chunks(16).zip(w.chunks(16)))
        {
            let g = L::load_part(dy, 0.0).mul(L::load_part(w, 0.0));
            let xhat = L::load_part(x, 0.0).sub(mean).mul(inv_std);
            xhat.fma(dot, g.sub(sum)).mul(inv_std).store_part(dx);
        }
    }
}

pub(super) fn backward_weights(
    (dw, db): (&mut Tensor, &mut Tensor),
    dy: &Tensor,
    x: &Tensor,
    (mean, inv_std): (&Tensor, &Tensor),
    leaf: usize,
) {
    let isa = x.device().isa();
    let (n, d) = x.rows_cols();
    let (dy, x) = (dy.f32(), x.f32());
    let (mean, inv_std) = (mean.f32(), inv_std.f32());
    let rows = n / (dw.elements() / d);
    let leaf = leaf_rows(leaf, rows);
    let parts = dw.f32_mut().chunks_mut(d).zip(db.f32_mut().chunks_mut(d));
    for (part, (dw, db)) in parts.enumerate() {
        let outs = dw.par_chunks_mut(COLUMNS).zip(db.par_chunks_mut(COLUMNS));
        outs.enumerate().for_each(|(block, (dw, db))| {
            let first = block * COLUMNS;
            let (mut w_tree, mut b_tree) = (LeafSums::new(isa), LeafSums::new(isa));
            let end = (part + 1) * rows;
            for start in (part * rows..end).step_by(leaf) {
                let rows = start..end.min(start + leaf);
                let (mut w_sums, mut b_sums) = ([0.0; COLUMNS], [0.0; COLUMNS]);
                let sums = (&mut w_sums[..dw.len()], &mut b_sums[..dw.len()]);
                let from = start * d + first;
                let stats = (&mean[rows.clone()], &inv_std[rows]);
                chains(isa, sums, (&dy[from..], &x[from..]), d, stats);
                w_tree.push(w_sums);
                b_tree.push(b_sums);
            }
            settle(dw, &w_tree.finish(), true);
            settle(db, &b_tree.finish(), true);
        });
    }
}

vector_fn! {
    fn chains<L>(
        sums: (&mut [f32], &mut [f32]),
        inputs: (&[f32], &[f32]),
        stride: usize,
        stats: (&[f32], &[f32]),
    ) {
        const VECTORS: usize = COLUMNS / 16;
        let (dy, x) = inputs;
        if sums.0.len() == COLUMNS {
            // A whole block of columns stays in registers while rows are read as streams.
            let (mut w_acc, mut b_acc) = ([L::splat(0.0); VECTORS], [L::splat(0.0); VECTORS]);
            for (r, (mean, inv_std)) in stats.0.iter().zip(stats.1).enumerate() {
                let row = r * stride..r * stride + COLUMNS;
                let (dy, x) = (&dy[row.clone()], &x[row]);
                for v in 0..VECTORS {
                    let dy = L::load(&dy[v * 16..]);
                    let x = L::load(&x[v * 16..]);
                    let xhat = x.sub(L::splat(*mean)).mul(L::splat(*inv_std));
                    w_acc[v] = dy.fma(xhat, w_acc[v]);
                    b_acc[v] = b_acc[v].add(dy);
                }
            }
            for v in 0..VECTORS {
                w_acc[v].store(&mut sums.0[v * 16..]);
                b_acc[v].store(&mut sums.1[v * 16..]);
            }
            return;
        }
        for (c, (dw, db)) in sums.0.chunks_mut(16).zip(sums.1.chunks_mut(16)).enumerate() {
            let (mut w_acc, mut b_acc) = (L::splat(0.0), L::splat(0.0));
            for (r, (mean, inv_std)) in stats.0.iter().zip(stats.1).enumerate() {
                let at = r * stride + c * 16;
                let dy = L::load_part(&dy[at..][..dw.len()], 0.0);
                let x = L::load_part(&x[at..][..dw.len()], 0.0);
                let xhat = x.sub(L::splat(*mean)).mul(L::splat(*inv_std));
                w_acc = dy.fma(xhat, w_acc);
                b_acc = b_acc.add(dy);
            }
            w_acc.store_part(dw);
            b_acc.store_part(db);
        }
    }
}
