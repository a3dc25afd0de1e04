//! RMS norm on the CPU. With xhat = x inv_rms and g = dy w: dx = inv_rms (g - xhat mean(g xhat)).

use crate::Tensor;
use crate::cpu::ROW_BLOCK;
use crate::cpu::simd::{Lanes, vector_fn};
use crate::ops::add::cpu::add;
use crate::ops::reduce::{COLUMNS, LeafSums, leaf_rows, settle};
use rayon::prelude::*;

pub(super) fn forward(y: &mut Tensor, inv_rms: &mut Tensor, x: &Tensor, w: &Tensor, eps: f32) {
    let isa = x.device().isa();
    let (_, d) = x.rows_cols();
    let (x, w) = (x.f32(), w.f32());
    let rows = y
        .f32_mut()
        .par_chunks_mut(d * ROW_BLOCK)
        .zip(x.par_chunks(d * ROW_BLOCK));
    rows.zip(inv_rms.f32_mut().par_chunks_mut(ROW_BLOCK))
        .for_each(|((y, x), inv_rms)| {
            let rows = y.chunks_exact_mut(d).zip(x.chunks_exact(d));
            for ((y, x), inv_rms) in rows.zip(inv_rms) {
                *inv_rms = normalise(isa, y, x, w, eps);
            }
        });
}

pub(super) fn forward_sum(
    y: &mut Tensor,
    inv_rms: &mut Tensor,
    (x, more): (&mut Tensor, &Tensor),
    w: &Tensor,
    eps: f32,
) {
    let isa = x.device().isa();
    let (_, d) = x.rows_cols();
    let (more, w) = (more.f32(), w.f32());
    let ins = x.f32_mut().par_chunks_mut(d * ROW_BLOCK);
    let ins = ins.zip(more.par_chunks(d * ROW_BLOCK));
    let rows = y.f32_mut().par_chunks_mut(d * ROW_BLOCK).zip(ins);
    rows.zip(inv_rms.f32_mut().par_chunks_mut(ROW_BLOCK))
        .for_each(|((y, (x, more)), inv_rms)| {
            let ins = x.chunks_exact_mut(d).zip(more.chunks_exact(d));
            for ((y, (x, more)), inv_rms) in y.chunks_exact_mut(d).zip(ins).zip(inv_rms) {
                add(isa, x, more);
                *inv_rms = normalise(isa, y, x, w, eps);
            }
        });
}

/// 1 / sqrt(mean(x^2) + eps).
#[inline(always)]
fn inverse_of<L: Lanes>(x: &[f32], eps: f32) -> f32 {
    let mut squares = L::splat(0.0);
    for x in x.chunks(16) {
        let x = L::load_part(x, 0.0);
        squares = x.fma(x, squares);
    }
    1.0 / (squares.sum() / x.len() as f32 + eps).sqrt()
}

vector_fn! {
    /// As forward has it for a row.
    pub(crate) fn inverse<L>(x: &[f32], eps: f32) -> f32 {
        inverse_of::<L>(x, eps)
    }
}

vector_fn! {
    /// One row; returns its `inverse`.
    pub(crate) fn normalise<L>(y: &mut [f32], x: &[f32], w: &[f32], eps: f32) -> f32 {
        let inv_rms = inverse_of::<L>(x, eps);
        for ((y, x), w) in y.chunks_mut(16).zip(x.chunks(16)).zip(w.chunks(16)) {
            let xhat = L::load_part(x, 0.0).mul(L::splat(inv_rms));
            xhat.mul(L::load_part(w, 0.0)).store_part(y);
        }
        inv_rms
    }
}

pub(super) fn backward_input(
    dx: &mut Tensor,
    dy: &Tensor,
    x: &Tensor,
    w: &Tensor,
    inv_rms: &Tensor,
    more: Option<&Tensor>,
) {
    let isa = x.device().isa();
    let (_, d) = x.rows_cols();
    let more = more.map(Tensor::f32);
    let (dy, x, w, inv_rms) = (dy.f32(), x.f32(), w.f32(), inv_rms.f32());
    dx.f32_mut()
        .par_chunks_mut(d * ROW_BLOCK)
        .enumerate()
        .for_each(|(block, dx)| {
            for (r, dx) in dx.chunks_exact_mut(d).enumerate() {
                let r = block * ROW_BLOCK + r;
                let row = r * d..(r + 1) * d;
                let ins = (&x[row.clone()], w);
                slope(isa, dx, &dy[row.clone()], ins, inv_rms[r]);
                if let Some(more) = more {
                    add(isa, dx, &more[row]);
                }
            }
        });
}

vector_fn! {
    /// The input's gradient of one row.
    pub(crate) fn slope<L>(dx: &mut [f32], dy: &[f32], xw: (&[f32], &[f32]), inv_rms: f32) {
        let (x, w) = xw;
        let inv = L::splat(inv_rms);
        let mut dot = L::splat(0.0);
        for ((dy, x), w) in dy.chunks(16).zip(x.chunks(16)).zip(w.chunks(16)) {
            let g = L::load_part(dy, 0.0).mul(L::load_part(w, 0.0));
            dot = g.fma(L::load_part(x, 0.0).mul(inv), dot);
        }
        let dot = L::splat(-(dot.sum() / x.len() as f32));
        for ((dx, dy), (x, w)) in
            dx.chunks_mut(16).zip(dy.chunks(16)).zip(x.chunks(16).zip(w.chunks(16)))
        {
            let g = L::load_part(dy, 0.0).mul(L::load_part(w, 0.0));
            let xhat = L::load_part(x, 0.0).mul(inv);
            xhat.fma(dot, g).mul(inv).store_part(dx);
        }
    }
}

pub(super) fn backward_weights(
    dw: &mut Tensor,
    dy: &Tensor,
    x: &Tensor,
    inv_rms: &Tensor,
    leaf: usize,
) {
    let isa = x.device().isa();
    let (n, d) = x.rows_cols();
    let (dy, x, inv_rms) = (dy.f32(), x.f32(), inv_rms.f32());
    let rows = n / (dw.elements() / d);
    let leaf = leaf_rows(leaf, rows);
    for (part, dw) in dw.f32_mut().chunks_mut(d).enumerate() {
        dw.par_chunks_mut(COLUMNS)
            .enumerate()
            .for_each(|(block, dw)| {
                let first = block * COLUMNS;
                let mut tree = LeafSums::new(isa);
                let last = (part + 1) * rows;
                for start in (part * rows..last).step_by(leaf) {
                    let end = last.min(start + leaf);
                    let mut sums = [0.0; COLUMNS];
                    let from = start * d + first;
                    let inputs = (&dy[from..], &x[from..]);
                    chain(isa, &mut sums[..dw.len()], inputs, d, &inv_rms[start..end]);
                    tree.push(sums);
                }
                settle(dw, &tree.finish(), true);
            });
    }
}

vector_fn! {
    fn chain<L>(sums: &mut [f32], inputs: (&[f32], &[f32]), stride: usize, inv_rms: &[f32]) {
        const VECTORS: usize = COLUMNS / 16;
        let (dy, x) = inputs;
        if sums.len() == COLUMNS {
            // A whole block of columns stays in registers while rows are read as streams.
            let mut acc = [L::splat(0.0); VECTORS];
            for (r, inv) in inv_rms.iter().enumerate() {
                let row = r * stride..r * stride + COLUMNS;
                let (dy, x) = (&dy[row.clone()], &x[row]);
                for (v, acc) in acc.iter_mut().enumerate() {
                    let x = L::load(&x[v * 16..]).mul(L::splat(*inv));
                    *acc = L::load(&dy[v * 16..]).fma(x, *acc);
                }
            }
            for (acc, sums) in acc.into_iter().zip(sums.chunks_exact_mut(16)) {
                acc.store(sums);
            }
            return;
        }
        for (c, sums) in sums.chunks_mut(16).enumerate() {
            let mut acc = L::splat(0.0);
            for (r, inv) in inv_rms.iter().enumerate() {
                let at = r * stride + c * 16;
                let dy = L::load_part(&dy[at..][..sums.len()], 0.0);
                let x = L::load_part(&x[at..][..sums.len()], 0.0);
                acc = dy.fma(x.mul(L::splat(*inv)), acc);
            }
            acc.store_part(sums);
        }
    }
}
