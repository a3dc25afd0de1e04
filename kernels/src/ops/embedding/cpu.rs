//! Embedding on the CPU: copies forward; backward groups tokens by id, one task per table row.

use crate::Tensor;
use crate::cpu::ROW_BLOCK;
use rayon::prelude::*;

pub(super) fn forward(y: &mut Tensor, table: &Tensor, ids: &Tensor, first: usize) {
    let (_, d) = table.rows_cols();
    let (table, ids) = (table.f32(), ids.u32());
    y.f32_mut()
        .par_chunks_mut(d * ROW_BLOCK)
        .zip(ids.par_chunks(ROW_BLOCK))
        .for_each(|(y, ids)| {
            for (y, &id) in y.chunks_exact_mut(d).zip(ids) {
                let row = (id as usize)
                    .checked_sub(first)
                    .and_then(|r| table.get(r * d..(r + 1) * d));
                match row {
                    Some(row) => y.copy_from_slice(row),
                    None => y.fill(0.0),
                }
            }
        });
}

/// A token whose row of the table is here; in order of rows, then of tokens.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Token {
    row: usize,
    /// Its number among the tokens.
    at: usize,
}

/// Sorts the tokens whose ids are in `first .. first + rows`.
fn grouped(ids: &[u32], first: usize, rows: usize) -> Vec<Token> {
    let here = |id: u32| (id as usize).checked_sub(first).filter(|&row| row < rows);
    let tokens = ids.iter().enumerate();
    let mut tokens: Vec<Token> = tokens
        .filter_map(|(at, &id)| Some(Token { row: here(id)?, at }))
        .collect();
    tokens.sort_unstable();
    tokens
}

pub(super) fn backward(dtable: &mut Tensor, dy: &Tensor, ids: &Tensor, first: usize, leaf: usize) {
    let (n, d) = dy.rows_cols();
    let leaf = if leaf == 0 { n } else { leaf };
    let tokens = grouped(ids.u32(), first, dtable.dims()[0]);
    let groups: Vec<&[Token]> = tokens.chunk_by(|a, b| a.row == b.row).collect();
    let mut tasks = Vec::with_capacity(groups.len());
    let mut rest = dtable.f32_mut();
    let mut next = 0;
    for group in groups {
        let row = group[0].row;
        let (out, after) = rest.split_at_mut((row + 1 - next) * d);
        tasks.push((&mut out[(row - next) * d..], group));
        (rest, next) = (after, row + 1);
    }
    let dy = dy.f32();
    tasks
        .into_par_iter()
        .for_each(|(out, group)| add_row(out, group, dy, leaf, n.div_ceil(leaf)));
}

/// Adds the tree over one table row's tokens to its gradient.
fn add_row(out: &mut [f32], tokens: &[Token], dy: &[f32], leaf: usize, leaves: usize) {
    let d = out.len();
    let mut blocks: Vec<(usize, Vec<f32>)> = Vec::new();
    for group in tokens.chunk_by(|a, b| a.at / leaf == b.at / leaf) {
        let mut sum = vec![0.0_f32; d];
        for &Token { at, .. } in group {
            for (s, x) in sum.iter_mut().zip(&dy[at * d..(at + 1) * d]) {
                *s += x;
            }
        }
        blocks.push((group[0].at / leaf, sum));
    }
    let sum = tree(&mut blocks, leaves);
    for (o, s) in out.iter_mut().zip(sum) {
        *o += s;
    }
}

/// Merges the present leaves of `leaves` in the binary-counter tree.
fn tree(blocks: &mut [(usize, Vec<f32>)], leaves: usize) -> Vec<f32> {
    // The complete blocks of the count, from the left: one per one bit, the largest first.
    let mut rest = blocks;
    let mut parts = Vec::new();
    let mut start = 0;
    for bit in (0..usize::BITS).rev().filter(|b| leaves >> b & 1 == 1) {
        let end = start + (1 << bit);
        let here = rest.partition_point(|(leaf, _)| *leaf < end);
        let (now, later) = rest.split_at_mut(here);
        parts.extend(aligned(now, start, end));
        (rest, start) = (later, end);
    }
    let mut sum = parts.pop().expect("a row in the list has tokens");
    while let Some(older) = parts.pop() {
        sum = merged(older, sum);
    }
    sum
}

/// Sum of one complete block of leaves start .. end, `None` when none of them is present.
fn aligned(blocks: &mut [(usize, Vec<f32>)], start: usize, end: usize) -> Option<Vec<f32>> {
    match blocks {
        [] => None,
        [(_, only)] => Some(std::mem::take(only)),
        _ => {
            let middle = start + (end - start) / 2;
            let split = blocks.partition_point(|(leaf, _)| *leaf < middle);
            let (left, right) = blocks.split_at_mut(split);
            match (aligned(left, start, middle), aligned(right, middle, end)) {
                (Some(left), Some(right)) => Some(merged(left, right)),
                (left, right) => left.or(right),
            }
        }
    }
}

fn merged(left: Vec<f32>, mut right: Vec<f32>) -> Vec<f32> {
    for (r, l) in right.iter_mut().zip(left) {
        *r += l;
    }
    right
}
