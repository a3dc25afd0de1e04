//! Permutation on the CPU: one task per block of rows or tokens.

use std::ops::Range;

use super::order::{DROPPED, HostLists, Lists, Order};
use crate::cpu::ROW_BLOCK;
use crate::cpu::simd::vector_fn;
use crate::{Error, Result, Tensor};
use rayon::prelude::*;

/// Lists of choices whose experts are in `range`, a counting sort.
pub(super) fn lists(chosen: &[u32], total: usize, range: Range<usize>) -> Result<HostLists> {
    let here = |expert: u32| {
        let expert = expert as usize;
        range.contains(&expert).then(|| expert - range.start)
    };
    let mut counts = vec![0; range.len()];
    for (i, &expert) in chosen.iter().enumerate() {
        if expert != DROPPED && expert as usize >= total {
            return Err(Error::Argument {
                op: "permute",
                name: "experts",
                found: format!("{expert} at choice {i}"),
                wanted: format!("below {total} or dropped"),
            });
        }
        if let Some(expert) = here(expert) {
            counts[expert] += 1;
        }
    }
    let mut next: Vec<usize> = counts
        .iter()
        .scan(0, |start, count| {
            let first = *start;
            *start += count;
            Some(first)
        })
        .collect();
    let mut choices = vec![0; counts.iter().sum()];
    let mut rows = vec![None; chosen.len()];
    for (i, &expert) in chosen.iter().enumerate() {
        if let Some(expert) = here(expert) {
            choices[next[expert]] = i;
            rows[i] = Some(next[expert]);
            next[expert] += 1;
        }
    }
    Ok(HostLists {
        choices,
        rows,
        counts,
    })
}

fn of(order: &Order) -> &HostLists {
    match &order.lists {
        Lists::Host(lists) => lists,
        Lists::Device(_) => unreachable!("`Order::check` compares the devices"),
    }
}

pub(super) fn permute(y: &mut Tensor, x: &Tensor, order: &Order) {
    let (_, d) = y.rows_cols();
    let x = x.f32();
    y.f32_mut()
        .par_chunks_mut(d * ROW_BLOCK)
        .zip(of(order).choices.par_chunks(ROW_BLOCK))
        .for_each(|(y, choices)| {
            for (y, choice) in y.chunks_exact_mut(d).zip(choices) {
                let token = choice / order.k;
                y.copy_from_slice(&x[token * d..(token + 1) * d]);
            }
        });
}

/// Sums each token's rows, weighted or not.
pub(super) fn gather(y: &mut Tensor, x: &Tensor, weights: Option<&Tensor>, order: &Order) {
    let isa = y.device().isa();
    let (_, d) = y.rows_cols();
    let (x, weights) = (x.f32(), weights.map(Tensor::f32));
    y.f32_mut()
        .par_chunks_mut(d)
        .enumerate()
        .for_each(|(token, y)| {
            y.fill(0.0);
            for choice in token * order.k..(token + 1) * order.k {
                if let Some(row) = of(order).rows[choice] {
                    let weight = weights.map_or(1.0, |w| w[choice]);
                    add_row(isa, y, &x[row * d..(row + 1) * d], weight);
                }
            }
        });
}

pub(super) fn combine_backward(
    dx: &mut Tensor,
    dweights: &mut Tensor,
    dy: &Tensor,
    x: &Tensor,
    weights: &Tensor,
    order: &Order,
) {
    let isa = dx.device().isa();
    let (_, d) = dx.rows_cols();
    let (dy, x, weights) = (dy.f32(), x.f32(), weights.f32());
    let of_token = |choice: usize| &dy[choice / order.k * d..][..d];
    dx.f32_mut()
        .par_chunks_mut(d)
        .zip(&of(order).choices)
        .for_each(|(dx, &choice)| scaled(isa, dx, of_token(choice), weights[choice]));
    dweights
        .f32_mut()
        .par_iter_mut()
        .zip(&of(order).rows)
        .enumerate()
        .with_min_len(ROW_BLOCK)
        .for_each(|(choice, (dweight, row))| {
            *dweight = row.map_or(0.0, |row| dot(isa, &x[row * d..][..d], of_token(choice)));
        });
}

vector_fn! {
    fn add_row<L>(y: &mut [f32], x: &[f32], weight: f32) {
        for (y, x) in y.chunks_mut(16).zip(x.chunks(16)) {
            let sum = L::load_part(y, 0.0);
            L::splat(weight).fma(L::load_part(x, 0.0), sum).store_part(y);
        }
    }
}

vector_fn! {
    fn scaled<L>(y: &mut [f32], x: &[f32], weight: f32) {
        for (y, x) in y.chunks_mut(16).zip(x.chunks(16)) {
            L::load_part(x, 0.0).mul(L::splat(weight)).store_part(y);
        }
    }
}

vector_fn! {
    fn dot<L>(a: &[f32], b: &[f32]) -> f32 {
        let mut sums = L::splat(0.0);
        for (a, b) in a.chunks(16).zip(b.chunks(16)) {
            sums = L::load_part(a, 0.0).fma(L::load_part(b, 0.0), sums);
        }
        sums.sum()
    }
}
