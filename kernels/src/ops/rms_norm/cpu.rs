//! RMS norm on the CPU. With xhat = x inv_rms and g = dy w: dx = inv_rms (g - xhat mean(g xhat)).

use crate::Tensor;
use crate::cpu::simd::{Lanes, vector_fn};
use crate::ops::norm::cpu::{self as rows, Leaf};
use crate::ops::reduce::COLUMNS;

pub(super) fn forward(y: &mut Tensor, inv_rms: &mut Tensor, x: &Tensor, w: &Tensor, eps: f32) {
    let (isa, w) = (x.device().isa(), w.f32());
    rows::forward(y, [inv_rms], x, |y, x| [normalise(isa, y, x, w, eps)]);
}

pub(super) fn forward_sum(
    y: &mut Tensor,
    inv_rms: &mut Tensor,
    x: &mut Tensor,
    more: &Tensor,
    w: &Tensor,
    eps: f32,
) {
    let (isa, w) = (x.device().isa(), w.f32());
    rows::forward_sum(y, [inv_rms], x, more, |y, x| [normalise(isa, y, x, w, eps)]);
}

pub(super) fn backward_input(
    dx: &mut Tensor,
    dy: &Tensor,
    x: &Tensor,
    w: &Tensor,
    inv_rms: &Tensor,
    more: Option<&Tensor>,
) {
    let (isa, w, inv_rms) = (x.device().isa(), w.f32(), inv_rms.f32());
    rows::backward_input(dx, dy, x, more, |dx, dy, x, r| {
        gradient(isa, dx, dy, x, w, inv_rms[r]);
    });
}

pub(super) fn backward_weights(
    dw: &mut Tensor,
    dy: &Tensor,
    x: &Tensor,
    inv_rms: &Tensor,
    leaf: usize,
) {
    let (isa, inv_rms) = (x.device().isa(), inv_rms.f32());
    rows::backward_weights([dw], dy, x, leaf, |[dw], of| {
        chain(isa, dw, &of, &inv_rms[of.rows.clone()]);
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
    /// 1 / sqrt(mean(x^2) + eps) of a row, as forward computes it.
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

vector_fn! {
    /// The input's gradient of one row.
    pub(crate) fn gradient<L>(dx: &mut [f32], dy: &[f32], x: &[f32], w: &[f32], inv_rms: f32) {
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

vector_fn! {
    fn chain<L>(sums: &mut [f32], of: &Leaf<'_>, inv_rms: &[f32]) {
        const VECTORS: usize = COLUMNS / 16;
        let (dy, x, stride) = (of.dy, of.x, of.stride);
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
