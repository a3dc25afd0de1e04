//! Layer norm on the CPU. With xhat = (x - mean) inv_std and g = dy w:
//! dx = inv_std (g - mean(g) - xhat mean(g xhat)).

use super::tensors::{Gradients, Kept, Statistics, Weights};
use crate::Tensor;
use crate::cpu::simd::vector_fn;
use crate::ops::norm::cpu::{self as rows, Leaf};
use crate::ops::reduce::COLUMNS;

pub(super) fn forward(y: &mut Tensor, kept: Kept<'_>, x: &Tensor, weights: Weights<'_>, eps: f32) {
    let (isa, w, b) = (x.device().isa(), weights.w.f32(), weights.b.f32());
    let kept = [kept.mean, kept.inv_std];
    rows::forward(y, kept, x, |y, x| normalise(isa, y, x, w, b, eps));
}

pub(super) fn forward_sum(
    y: &mut Tensor,
    kept: Kept<'_>,
    x: &mut Tensor,
    more: &Tensor,
    weights: Weights<'_>,
    eps: f32,
) {
    let (isa, w, b) = (x.device().isa(), weights.w.f32(), weights.b.f32());
    let kept = [kept.mean, kept.inv_std];
    rows::forward_sum(y, kept, x, more, |y, x| normalise(isa, y, x, w, b, eps));
}

pub(super) fn backward_input(
    dx: &mut Tensor,
    dy: &Tensor,
    x: &Tensor,
    w: &Tensor,
    statistics: &Statistics<'_>,
    more: Option<&Tensor>,
) {
    let (isa, w) = (x.device().isa(), w.f32());
    let (mean, inv_std) = (statistics.mean.f32(), statistics.inv_std.f32());
    rows::backward_input(dx, dy, x, more, |dx, dy, x, r| {
        gradient(isa, dx, dy, x, w, mean[r], inv_std[r]);
    });
}

pub(super) fn backward_weights(
    sums: Gradients<'_>,
    dy: &Tensor,
    x: &Tensor,
    statistics: &Statistics<'_>,
    leaf: usize,
) {
    let isa = x.device().isa();
    let (mean, inv_std) = (statistics.mean.f32(), statistics.inv_std.f32());
    rows::backward_weights([sums.dw, sums.db], dy, x, leaf, |[dw, db], of| {
        let (mean, inv_std) = (&mean[of.rows.clone()], &inv_std[of.rows.clone()]);
        chains(isa, dw, db, &of, mean, inv_std);
    });
}

vector_fn! {
    /// One row; returns its mean and inverse deviation.
    fn normalise<L>(y: &mut [f32], x: &[f32], w: &[f32], b: &[f32], eps: f32) -> [f32; 2] {
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
            y.chunks_mut(16).zip(x.chunks(16)).zip(w.chunks(16).zip(b.chunks(16)))
        {
            let xhat = L::load_part(x, 0.0).sub(L::splat(mean)).mul(L::splat(inv_std));
            xhat.fma(L::load_part(w, 0.0), L::load_part(b, 0.0)).store_part(y);
        }
        [mean, inv_std]
    }
}

vector_fn! {
    /// The input's gradient of one row.
    fn gradient<L>(
        dx: &mut [f32],
        dy: &[f32],
        x: &[f32],
        w: &[f32],
        mean: f32,
        inv_std: f32,
    ) {
        let d = x.len() as f32;
        let (centre, inv_std) = (L::splat(mean), L::splat(inv_std));
        let (mut sum, mut dot) = (L::splat(0.0), L::splat(0.0));
        for ((dy, x), w) in dy.chunks(16).zip(x.chunks(16)).zip(w.chunks(16)) {
            let g = L::load_part(dy, 0.0).mul(L::load_part(w, 0.0));
            let xhat = L::load_part(x, mean).sub(centre).mul(inv_std);
            sum = sum.add(g);
            dot = g.fma(xhat, dot);
        }
        let (sum, dot) = (L::splat(sum.sum() / d), L::splat(-(dot.sum() / d)));
        for ((dx, dy), (x, w)) in
            dx.chunks_mut(16).zip(dy.chunks(16)).zip(x.chunks(16).zip(w.chunks(16)))
        {
            let g = L::load_part(dy, 0.0).mul(L::load_part(w, 0.0));
            let xhat = L::load_part(x, 0.0).sub(centre).mul(inv_std);
            xhat.fma(dot, g.sub(sum)).mul(inv_std).store_part(dx);
        }
    }
}

vector_fn! {
    fn chains<L>(
        dw: &mut [f32],
        db: &mut [f32],
        of: &Leaf<'_>,
        mean: &[f32],
        inv_std: &[f32],
    ) {
        const VECTORS: usize = COLUMNS / 16;
        let (dy, x, stride) = (of.dy, of.x, of.stride);
        if dw.len() == COLUMNS {
            // A whole block of columns stays in registers while rows are read as streams.
            let (mut w_acc, mut b_acc) = ([L::splat(0.0); VECTORS], [L::splat(0.0); VECTORS]);
            for (r, (mean, inv_std)) in mean.iter().zip(inv_std).enumerate() {
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
                w_acc[v].store(&mut dw[v * 16..]);
                b_acc[v].store(&mut db[v * 16..]);
            }
            return;
        }
        for (c, (dw, db)) in dw.chunks_mut(16).zip(db.chunks_mut(16)).enumerate() {
            let (mut w_acc, mut b_acc) = (L::splat(0.0), L::splat(0.0));
            for (r, (mean, inv_std)) in mean.iter().zip(inv_std).enumerate() {
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
