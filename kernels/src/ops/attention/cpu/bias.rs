//! The bias of a call on the CPU: the bucket of every distance, and the table's value of every head and
//! distance, once per call; rows of scores take a slice. Distances ascend: number 0 is that of the first
//! key from the last query row.

use crate::cpu::Isa;
use crate::cpu::simd::vector_fn;
use crate::ops::attention::Bias;
use crate::{DType, Result, Tensor};
use std::ops::Range;

/// A table by distance.
pub(super) struct Expanded {
    /// `[heads, distances]`
    values: Tensor,
    /// Bucket of each distance.
    numbers: Vec<usize>,
    /// Buckets of the table.
    pub buckets: usize,
    /// Position of the last query row.
    last: usize,
}

impl Expanded {
    /// Query rows at `rows`, keys from 0 to below `keys`.
    pub(super) fn new(bias: &Bias<'_>, rows: Range<usize>, keys: usize) -> Result<Expanded> {
        let (heads, buckets) = bias.table.rows_cols();
        let last = rows.end - 1;
        let distances = rows.len() + keys - 1;
        let numbers = (0..distances).map(|i| bias.buckets.of(last, i));
        let numbers: Vec<usize> = numbers.collect();
        let mut values = Tensor::empty(&[heads, distances], DType::F32, bias.table.device())?;
        let table = bias.table.f32();
        for (head, values) in values.f32_mut().chunks_exact_mut(distances).enumerate() {
            for (value, bucket) in values.iter_mut().zip(&numbers) {
                *value = table[head * buckets + bucket];
            }
        }
        Ok(Expanded {
            values,
            numbers,
            buckets,
            last,
        })
    }

    /// Distances of the call.
    pub(super) fn distances(&self) -> usize {
        self.numbers.len()
    }

    /// Numbers of the distances from a query at `position` to `len` keys from `key` on.
    pub(super) fn at(&self, position: usize, key: usize, len: usize) -> Range<usize> {
        let start = self.last - position + key;
        start..start + len
    }

    /// x = scale x + bias, for a head's scores of adjacent distances.
    pub(super) fn add(
        &self,
        isa: Isa,
        (head, at): (usize, Range<usize>),
        x: &mut [f32],
        scale: f32,
    ) {
        let values = &self.values.f32()[head * self.distances()..][at];
        scale_and_add(isa, x, values, scale);
    }

    /// Adds sums by distance to those by bucket, in ascending distance.
    pub(super) fn fold(&self, by_bucket: &mut [f32], by_distance: &[f32]) {
        for (sum, &bucket) in by_distance.iter().zip(&self.numbers) {
            by_bucket[bucket] += sum;
        }
    }
}

vector_fn! {
    fn scale_and_add<L>(x: &mut [f32], bias: &[f32], scale: f32) {
        let scale = L::splat(scale);
        for (x, bias) in x.chunks_mut(16).zip(bias.chunks(16)) {
            // the fill of lanes past the end is not stored
            let scaled = L::load_part(x, 0.0).fma(scale, L::load_part(bias, 0.0));
            scaled.store_part(x);
        }
    }
}

/// Adds the tree over sequences of `[b, heads * buckets]` to the gradient of a table `[heads, buckets]`.
pub(super) fn settle(dtable: &mut Tensor, sums: &Tensor) -> Result<()> {
    let sums = crate::ops::reduce::tree_sum_slices(sums)?;
    let both = dtable.f32_mut().iter_mut().zip(sums.f32());
    both.for_each(|(to, sum)| *to += sum);
    Ok(())
}
