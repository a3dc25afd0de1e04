//! Relative position bias on the CPU: buckets once per call, then one task per head.

use super::{Buckets, Span};
use crate::Tensor;
use rayon::prelude::*;

pub(super) fn forward(bias: &mut Tensor, table: &Tensor, buckets: &Buckets, span: &Span) {
    let numbers = numbers(buckets, span);
    let (_, heads) = table.rows_cols();
    let table = table.f32();
    bias.f32_mut()
        .par_chunks_mut(span.queries * span.keys)
        .enumerate()
        .for_each(|(head, out)| {
            for (row, out) in out.chunks_exact_mut(span.keys).enumerate() {
                for (out, bucket) in out.iter_mut().zip(seen_from(&numbers, span, row)) {
                    *out = table[bucket * heads + head];
                }
            }
        });
}

pub(super) fn backward(
    dtable: &mut Tensor,
    dbias: &Tensor,
    buckets: &Buckets,
    span: &Span,
    leaf: usize,
) {
    let numbers = numbers(buckets, span);
    let (_, heads) = dtable.rows_cols();
    let count = buckets.buckets;
    let leaf = if leaf == 0 { span.queries } else { leaf };
    let rows = dbias.dims()[0] * span.queries;
    let dbias = dbias.f32();
    let sums: Vec<Vec<f32>> = (0..heads)
        .into_par_iter()
        .map(|head| {
            let leaves = (0..rows).step_by(leaf).map(|first| {
                let mut sums = vec![0.0_f32; count];
                for row in first..rows.min(first + leaf) {
                    let (sequence, query) = (row / span.queries, row % span.queries);
                    let at = ((sequence * heads + head) * span.queries + query) * span.keys;
                    let gradients = &dbias[at..at + span.keys];
                    for (g, bucket) in gradients.iter().zip(seen_from(&numbers, span, query)) {
                        sums[bucket] += g;
                    }
                }
                sums
            });
            tree(leaves)
        })
        .collect();
    let dtable = dtable.f32_mut();
    for (head, sums) in sums.iter().enumerate() {
        for (bucket, sum) in sums.iter().enumerate() {
            dtable[bucket * heads + head] += sum;
        }
    }
}

/// Bucket by distance, from the first key seen from the last query upwards.
fn numbers(buckets: &Buckets, span: &Span) -> Vec<usize> {
    let last_query = span.first_query + span.queries - 1;
    let of = |i: usize| buckets.of(last_query, span.first_key + i);
    (0..span.queries + span.keys - 1).map(of).collect()
}

/// Buckets of all keys seen from one query.
fn seen_from<'a>(
    numbers: &'a [usize],
    span: &Span,
    query: usize,
) -> impl Iterator<Item = usize> + 'a {
    numbers[span.queries - 1 - query..].iter().copied()
}

/// The binary-counter tree, elementwise.
fn tree(leaves: impl Iterator<Item = Vec<f32>>) -> Vec<f32> {
    let mut blocks: Vec<(usize, Vec<f32>)> = Vec::new();
    for leaf in leaves {
        blocks.push((1, leaf));
        while let [.., (left, _), (right, _)] = &blocks[..]
            && left == right
        {
            merge_last(&mut blocks);
        }
    }
    while blocks.len() > 1 {
        merge_last(&mut blocks);
    }
    blocks.pop().map(|(_, sums)| sums).unwrap_or_default()
}

fn merge_last(blocks: &mut Vec<(usize, Vec<f32>)>) {
    if let Some((leaves, right)) = blocks.pop()
        && let Some((count, left)) = blocks.last_mut()
    {
        *count += leaves;
        for (l, r) in left.iter_mut().zip(right) {
            *l += r;
        }
    }
}
