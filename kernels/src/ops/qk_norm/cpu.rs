//! Norm of query and key heads on the CPU: the row loops of `rms_norm` on slices of packed rows.

use super::weights::{Normed, Sums, Totals, Weights};
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

/// A query or key head of a packed row.
struct Head {
    /// Its first feature in the row.
    at: usize,
    is_key: bool,
    /// Number among the query heads or among the key heads.
    number: usize,
}

/// Query and key heads of a packed row, in order.
fn numbered(heads: &Heads) -> Vec<Head> {
    let per = heads.per_group();
    let numbered = heads_of(heads).enumerate().map(|(i, (at, is_key))| Head {
        at,
        is_key,
        number: match (i / (per + 1), i % (per + 1)) {
            (group, _) if is_key => group,
            (group, slot) => group * per + slot,
        },
    });
    numbered.collect()
}

impl Totals<'_> {
    /// 1 / rms of the queries and of the keys of a row, from totals of squares.
    fn inverses(&self, row: usize, eps: f32) -> [f32; 2] {
        let of = |total: f32, width: usize| 1.0 / (total / width as f32 + eps).sqrt();
        let (q, k) = (self.q.f32()[row], self.k.f32()[row]);
        [of(q, self.q_width), of(k, self.k_width)]
    }

    /// Means of the queries and of the keys of a row.
    fn means(&self, row: usize) -> [f32; 2] {
        let (q, k) = (self.q.f32()[row], self.k.f32()[row]);
        [q / self.q_width as f32, k / self.k_width as f32]
    }
}

/// Weights of a head.
fn of_head<'a>(weights: Weights<'a>, head: &Head, width: usize) -> &'a [f32] {
    let all = if head.is_key { weights.k } else { weights.q };
    &all.f32()[head.number * width..(head.number + 1) * width]
}

/// Writes one number for each row and head.
fn by_head([q, k]: [&mut Tensor; 2], heads: &Heads, number: impl Fn(usize, &Head) -> f32 + Sync) {
    let all = numbered(heads);
    let rows = q.f32_mut().par_chunks_mut(heads.heads);
    let rows = rows.zip(k.f32_mut().par_chunks_mut(heads.kv_heads));
    rows.enumerate().for_each(|(row, (q, k))| {
        for head in &all {
            let to = if head.is_key { &mut *k } else { &mut *q };
            to[head.number] = number(row, head);
        }
    });
}

pub(super) fn squares(sums: [&mut Tensor; 2], qkv: &Tensor, heads: &Heads) {
    let (isa, packed, width) = (qkv.device().isa(), heads.packed(), heads.width);
    let x = qkv.f32();
    by_head(sums, heads, |row, head| {
        let at = row * packed + head.at;
        sum_squares(isa, &x[at..at + width])
    });
}

pub(super) fn joint_forward(
    qkv: &mut Tensor,
    heads: &Heads,
    weights: Weights<'_>,
    squares: Totals<'_>,
    eps: f32,
) {
    let (isa, packed, width) = (qkv.device().isa(), heads.packed(), heads.width);
    let all = numbered(heads);
    let rows = qkv.f32_mut().par_chunks_mut(packed).enumerate();
    rows.for_each(|(number, row)| {
        let inverses = squares.inverses(number, eps);
        for head in &all {
            let y = &mut row[head.at..head.at + width];
            let w = of_head(weights, head, width);
            scale(isa, y, w, inverses[usize::from(head.is_key)]);
        }
    });
}

pub(super) fn joint_products(
    sums: [&mut Tensor; 2],
    dqkv: &Tensor,
    normed: Normed<'_>,
    heads: &Heads,
    weights: Weights<'_>,
) {
    let (isa, packed, width) = (dqkv.device().isa(), heads.packed(), heads.width);
    let (x, dy) = (normed.qkv.f32(), dqkv.f32());
    by_head(sums, heads, |row, head| {
        let inverses = normed.squares.inverses(row, normed.eps);
        let at = row * packed + head.at;
        let (x, dy) = (&x[at..at + width], &dy[at..at + width]);
        let w = of_head(weights, head, width);
        sum_products(isa, dy, x, w, inverses[usize::from(head.is_key)])
    });
}

pub(super) fn joint_backward(
    dqkv: &mut Tensor,
    sums: Sums<'_>,
    (normed, products): (Normed<'_>, Totals<'_>),
    heads: &Heads,
    weights: Weights<'_>,
) {
    let (isa, packed, width) = (dqkv.device().isa(), heads.packed(), heads.width);
    let (x, leaf, all) = (normed.qkv.f32(), sums.leaf, numbered(heads));
    for (sums, is_key) in [(sums.q, false), (sums.k, true)] {
        let starts: Vec<usize> = (all.iter())
            .filter_map(|head| (head.is_key == is_key).then_some(head.at))
            .collect();
        let dy = dqkv.f32();
        let tasks = sums.f32_mut().par_chunks_mut(width).enumerate();
        tasks.for_each(|(task, sums)| {
            let (number, head) = (task / starts.len(), task % starts.len());
            sums.fill(0.0);
            for row in number * leaf..(number + 1) * leaf {
                let inverse = normed.squares.inverses(row, normed.eps)[usize::from(is_key)];
                let at = row * packed + starts[head];
                add_products(isa, sums, &dy[at..at + width], &x[at..at + width], inverse);
            }
        });
    }
    let rows = dqkv.f32_mut().par_chunks_mut(packed);
    rows.zip(x.par_chunks(packed))
        .enumerate()
        .for_each(|(number, (row, x))| {
            let inverses = normed.squares.inverses(number, normed.eps);
            let means = products.means(number);
            for head in &all {
                let kind = usize::from(head.is_key);
                let range = head.at..head.at + width;
                let w = of_head(weights, head, width);
                slope(
                    isa,
                    &mut row[range.clone()],
                    &x[range],
                    w,
                    inverses[kind],
                    -means[kind],
                );
            }
        });
}

vector_fn! {
    /// The sum of squares.
    fn sum_squares<L>(x: &[f32]) -> f32 {
        let mut squares = L::splat(0.0);
        for x in x.chunks(16) {
            let x = L::load_part(x, 0.0);
            squares = x.fma(x, squares);
        }
        squares.sum()
    }
}

vector_fn! {
    /// y = y inverse w.
    fn scale<L>(y: &mut [f32], w: &[f32], inverse: f32) {
        for (y, w) in y.chunks_mut(16).zip(w.chunks(16)) {
            let xhat = L::load_part(y, 0.0).mul(L::splat(inverse));
            xhat.mul(L::load_part(w, 0.0)).store_part(y);
        }
    }
}

vector_fn! {
    /// The sum of dy w x inverse.
    fn sum_products<L>(dy: &[f32], x: &[f32], w: &[f32], inverse: f32) -> f32 {
        let mut dot = L::splat(0.0);
        for ((dy, x), w) in dy.chunks(16).zip(x.chunks(16)).zip(w.chunks(16)) {
            let g = L::load_part(dy, 0.0).mul(L::load_part(w, 0.0));
            dot = g.fma(L::load_part(x, 0.0).mul(L::splat(inverse)), dot);
        }
        dot.sum()
    }
}

vector_fn! {
    /// dy = inverse (dy w + x inverse less), the input's gradient in place of the output's.
    fn slope<L>(dy: &mut [f32], x: &[f32], w: &[f32], inverse: f32, less: f32) {
        let inverse = L::splat(inverse);
        for ((dy, x), w) in dy.chunks_mut(16).zip(x.chunks(16)).zip(w.chunks(16)) {
            let g = L::load_part(dy, 0.0).mul(L::load_part(w, 0.0));
            let xhat = L::load_part(x, 0.0).mul(inverse);
            xhat.fma(L::splat(less), g).mul(inverse).store_part(dy);
        }
    }
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
