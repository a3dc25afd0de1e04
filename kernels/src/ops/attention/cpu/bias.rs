//! Position bias of a call on the CPU: the bucket of every distance, and the table's value for every head and
//! distance, computed once per call; transposed scores load 32 of them per key. Distances are indexed from (first
//! query row, last key attended to): the next row is one index more, the next key one less.

use crate::descriptor::position_bias::Bias;
use crate::ops::attention::state::distances;
use crate::{DType, Result, Tensor};
use std::ops::Range;

/// A table by distance.
pub(super) struct Expanded {
    /// `[heads, count]`; the last ones, of rows that a tile has not, are 0.
    values: Tensor,
    /// Bucket of each distance.
    numbers: Vec<usize>,
    /// Buckets of the table.
    pub buckets: usize,
    /// Position of the first query row, and number of keys.
    first: usize,
    keys: usize,
}

impl Expanded {
    /// Query rows at `rows`, keys from 0 to below `keys`.
    pub(super) fn new(bias: &Bias<'_>, rows: Range<usize>, keys: usize) -> Result<Expanded> {
        let (heads, buckets) = bias.table.rows_cols();
        let numbers = bias.buckets.by_distance(rows.clone(), keys);
        let count = distances(rows.len(), keys);
        let mut values = Tensor::zeros(&[heads, count], DType::F32, bias.table.device())?;
        let table = bias.table.f32();
        for (head, values) in values.f32_mut().chunks_exact_mut(count).enumerate() {
            for (value, bucket) in values.iter_mut().zip(&numbers) {
                *value = table[head * buckets + bucket];
            }
        }
        Ok(Expanded {
            values,
            numbers,
            buckets,
            first: rows.start,
            keys,
        })
    }

    /// Index of the distance from a query at `position` to `key`.
    pub(super) fn at(&self, position: usize, key: usize) -> usize {
        position - self.first + self.keys - 1 - key
    }

    /// Biases of a head by distance.
    pub(super) fn of_head(&self, head: usize) -> &[f32] {
        let count = self.values.dims()[1];
        &self.values.f32()[head * count..(head + 1) * count]
    }

    /// Adds sums by distance to those by bucket, starting with (last row, first key).
    pub(super) fn fold(&self, by_bucket: &mut [f32], by_distance: &[f32]) {
        for (sum, &bucket) in by_distance[..self.numbers.len()]
            .iter()
            .zip(&self.numbers)
            .rev()
        {
            by_bucket[bucket] += sum;
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
