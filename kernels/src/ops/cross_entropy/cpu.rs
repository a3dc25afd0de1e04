//! Cross entropy on the CPU: rows in parallel, each slice of a row in one fixed vector order.

use crate::cpu::ROW_BLOCK;
use crate::cpu::math::exp_of_score;
use crate::cpu::simd::vector_fn;
use crate::{DType, Result, Tensor};
use rayon::prelude::*;

/// Ids of the shard that are not padding, at most `rows`.
fn real(rows: usize, first: usize, vocab: usize) -> usize {
    vocab.saturating_sub(first).min(rows)
}

pub(super) fn row_max(max: &mut Tensor, logits: &Tensor, first: usize, vocab: usize) {
    let isa = logits.device().isa();
    let (_, rows) = logits.rows_cols();
    let real = real(rows, first, vocab);
    let x = logits.f32().par_chunks(rows * ROW_BLOCK);
    max.f32_mut()
        .par_chunks_mut(ROW_BLOCK)
        .zip(x)
        .for_each(|(max, x)| {
            for (max, x) in max.iter_mut().zip(x.chunks_exact(rows)) {
                *max = largest(isa, &x[..real]);
            }
        });
}

vector_fn! {
    fn largest<L>(x: &[f32]) -> f32 {
        let mut max = L::splat(f32::NEG_INFINITY);
        for x in x.chunks(16) {
            max = max.max(L::load_part(x, f32::NEG_INFINITY));
        }
        max.largest()
    }
}

pub(super) fn row_sums(
    (sums, target): (&mut Tensor, &mut Tensor),
    logits: &Tensor,
    (max, targets): (&Tensor, &Tensor),
    (first, vocab): (usize, usize),
    slice: usize,
) -> Result<()> {
    let max = max.f32().par_iter().copied();
    let rows = Rows::new(logits, targets, (first, vocab), slice);
    rows.sums((sums, target), max, |_, max| max)
}

pub(super) fn statistics(
    (max, sums, target): (&mut Tensor, &mut Tensor, &mut Tensor),
    logits: &Tensor,
    targets: &Tensor,
    vocab: usize,
    slice: usize,
) -> Result<()> {
    let isa = logits.device().isa();
    let rows = Rows::new(logits, targets, (0, vocab), slice);
    let max = max.f32_mut().par_iter_mut();
    rows.sums((sums, target), max, |x, max| {
        *max = largest(isa, x);
        *max
    })
}

/// Rows of logits, of which `real` count, in slices.
struct Rows<'a> {
    logits: &'a Tensor,
    targets: &'a [u32],
    first: usize,
    real: usize,
    slice: usize,
}

impl<'a> Rows<'a> {
    fn new(
        logits: &'a Tensor,
        targets: &'a Tensor,
        (first, vocab): (usize, usize),
        slice: usize,
    ) -> Rows<'a> {
        let (_, rows) = logits.rows_cols();
        Rows {
            logits,
            targets: targets.u32(),
            first,
            real: real(rows, first, vocab),
            slice,
        }
    }

    /// Slice sums and target's logit of each row, whose largest logit `max_of` tells from the row and what `given`
    /// has for it.
    fn sums<T: Send>(
        &self,
        (sums, target): (&mut Tensor, &mut Tensor),
        given: impl IndexedParallelIterator<Item = T>,
        max_of: impl Fn(&[f32], T) -> f32 + Sync,
    ) -> Result<()> {
        let Rows { slice, real, .. } = *self;
        let (isa, (n, rows)) = (self.logits.device().isa(), self.logits.rows_cols());
        let slices = rows / slice;
        // Row-major while rows are made, so that each task writes its own part.
        let mut by_row = Tensor::empty(&[n, slices], DType::F32, self.logits.device())?;
        let outs = by_row
            .f32_mut()
            .par_chunks_mut(slices)
            .zip(target.f32_mut());
        let rows = self.logits.f32().par_chunks(rows).zip(self.targets);
        outs.zip(rows.zip(given)).with_min_len(ROW_BLOCK).for_each(
            |((sums, target), ((x, id), given))| {
                let max = max_of(&x[..real], given);
                for (s, sum) in sums.iter_mut().enumerate() {
                    let x = &x[real.min(s * slice)..real.min((s + 1) * slice)];
                    *sum = exp_sum(isa, x, max);
                }
                let at = (*id as usize).checked_sub(self.first);
                *target = at.filter(|&i| i < real).map_or(0.0, |i| x[i]);
            },
        );
        let by_row = by_row.f32();
        for (s, sums) in sums.f32_mut().chunks_exact_mut(n).enumerate() {
            for (r, sum) in sums.iter_mut().enumerate() {
                *sum = by_row[r * slices + s];
            }
        }
        Ok(())
    }
}

vector_fn! {
    fn exp_sum<L>(x: &[f32], max: f32) -> f32 {
        let mut sum = L::splat(0.0);
        for x in x.chunks(16) {
            sum = sum.add(exp_of_score(L::load_part(x, f32::NEG_INFINITY).sub(L::splat(max))));
        }
        sum.sum()
    }
}

pub(super) fn backward(
    logits: &mut Tensor,
    (max, sum): (&Tensor, &Tensor),
    (targets, weights, pull): (&Tensor, &Tensor, Option<&Tensor>),
    (first, vocab): (usize, usize),
) {
    let isa = logits.device().isa();
    let (_, rows) = logits.rows_cols();
    let real = real(rows, first, vocab);
    let (max, sum) = (max.f32(), sum.f32());
    let (targets, weights) = (targets.u32(), weights.f32());
    let pull = pull.map(Tensor::f32);
    logits
        .f32_mut()
        .par_chunks_exact_mut(rows)
        .enumerate()
        .for_each(|(r, x)| {
            let (x, padding) = x.split_at_mut(real);
            padding.fill(0.0);
            let at = (targets[r] as usize)
                .checked_sub(first)
                .filter(|&i| i < real);
            let mut target = at.map(|i| [x[i]]);
            let pull = pull.map(|pull| pull[r]);
            let weight = pull.map_or(weights[r], |pull| weights[r] + pull);
            exponentials(isa, x, max[r], weight / sum[r]);
            if let (Some(i), Some(target)) = (at, &mut target) {
                // p - 1 before the weight: p near 1 would lose its last bits after it.
                exponentials(isa, target, max[r], 1.0);
                target[0] /= sum[r];
                let gradient = (target[0] - 1.0) * weights[r];
                x[i] = pull.map_or(gradient, |pull| gradient + target[0] * pull);
            }
        });
}

vector_fn! {
    fn exponentials<L>(x: &mut [f32], max: f32, factor: f32) {
        let (max, factor) = (L::splat(max), L::splat(factor));
        for x in x.chunks_mut(16) {
            exp_of_score(L::load_part(x, 0.0).sub(max)).mul(factor).store_part(x);
        }
    }
}
