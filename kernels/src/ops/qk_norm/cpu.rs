//! Norm of query and key heads on the CPU: the row loops of `rms_norm` on slices of packed rows.

use super::weights::{Sums, Weights};
use crate::Tensor;
use crate::cpu::ROW_BLOCK;
use crate::cpu::simd::vector_fn;
use crate::descriptor::heads::Heads;
use crate::ops::rms_norm::cpu::{gradient, inverse, normalise};
use rayon::prelude::*;

/// Query and key heads of a packed row with whether they are keys, in order.
fn heads_of(heads: &Heads) -> impl Iterator<Item = (usize, bool)> {
    let (per, group) = (heads.per_group(), heads.group_width());
    let width = heads.width;
    (0..heads.kv_heads).flat_map(move |g| (0..=per).map(move |s| (g * group + s * width, s == per)))
}

pub(super) fn forward(qkv: &mut Tensor, heads: &Heads, weights: Weights<'_>, eps: f32) {
    let isa = qkv.device().isa();
    let (packed, width) = (heads.packed(), heads.width);
    let (wq, wk) = (weights.q.f32(), weights.k.f32());
    qkv.f32_mut()
        .par_chunks_mut(packed * ROW_BLOCK)
        .for_each(|rows| {
            let mut x = vec![0.0; width];
            for row in rows.chunks_exact_mut(packed) {
                for (at, is_key) in heads_of(heads) {
                    let head = &mut row[at..at + width];
                    x.copy_from_slice(head);
                    normalise(isa, head, &x, if is_key { wk } else { wq }, eps);
                }
            }
        });
}

pub(super) fn backward(
    dqkv: &mut Tensor,
    sums: Sums<'_>,
    qkv: &Tensor,
    heads: &Heads,
    weights: Weights<'_>,
    eps: f32,
) {
    let isa = qkv.device().isa();
    let (packed, width) = (heads.packed(), heads.width);
    let (x, wq, wk) = (qkv.f32(), weights.q.f32(), weights.k.f32());
    let leaf = sums.leaf;
    for (sums, is_key) in [(sums.q, false), (sums.k, true)] {
        let starts: Vec<usize> = heads_of(heads)
            .filter_map(|(at, key)| (key == is_key).then_some(at))
            .collect();
        let dy = dqkv.f32();
        let tasks = sums.f32_mut().par_chunks_mut(width).enumerate();
        tasks.for_each(|(task, sums)| {
            let (number, head) = (task / starts.len(), task % starts.len());
            sums.fill(0.0);
            for row in number * leaf..(number + 1) * leaf {
                let at = row * packed + starts[head];
                let x = &x[at..at + width];
                add_products(isa, sums, &dy[at..at + width], x, inverse(isa, x, eps));
            }
        });
    }
    dqkv.f32_mut()
        .par_chunks_mut(packed * ROW_BLOCK)
        .zip(x.par_chunks(packed * ROW_BLOCK))
        .for_each(|(rows, x)| {
            let mut dy = vec![0.0; width];
            for (row, x) in rows.chunks_exact_mut(packed).zip(x.chunks_exact(packed)) {
                for (at, is_key) in heads_of(heads) {
                    let (dx, x) = (&mut row[at..at + width], &x[at..at + width]);
                    dy.copy_from_slice(dx);
                    let w = if is_key { wk } else { wq };
                    gradient(isa, dx, &dy, x, w, inverse(isa, x, eps));
                }
            }
        });
}

vector_fn! {
    /// sums = fma(dy, x inv_rms, sums).
    fn add_products<L>(sums: &mut [f32], dy: &[f32], x: &[f32], inv_rms: f32) {
        for (sums, (dy, x)) in sums.chunks_mut(16).zip(dy.chunks(16).zip(x.chunks(16))) {
            let xhat = L::load_part(x, 0.0).mul(L::splat(inv_rms));
            L::load_part(dy, 0.0).fma(xhat, L::load_part(sums, 0.0)).store_part(sums);
        }
    }
}
