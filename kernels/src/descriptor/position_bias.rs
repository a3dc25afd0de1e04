//! Relative position bias of T5: score(i, j) += `table[head, bucket(j - i)]`, distances from query to key.
//! Paper: Raffel et al. 2020, JMLR 21, sec. 2.1; buckets as in Mesh TensorFlow.
//!
//! With b buckets for one direction, m = b / 2 and n the distance: bucket n if n < m, else
//! `m + floor(ln(n / m) / ln(max_distance / m) * (b - m))`, at most b - 1. Both directions: each has half
//! of the buckets, keys after the query the upper half. Causal: keys after the query count as distance 0.
//! The logarithm's quotient is rounded to f32 as transformers does it, so that borders are the same.
//!
//! We differ: a call holds one number per head and distance, never one per pair. The table's gradient is,
//! per sequence, leaf of query rows and head, a chain over ascending rows for each distance, then a chain
//! over ascending distances for each bucket; leaves, then sequences, are merged in the tree of `reduce`.

use crate::error::refuse;
use crate::{DType, Error, Result, Tensor};
use std::ops::Range;

/// Bucketing of distances.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Buckets {
    /// Buckets, columns of the table. T5: 32.
    pub buckets: usize,
    /// Distance from which all share the last bucket. T5: 128.
    pub max_distance: usize,
    /// Whether keys after the query have separate buckets (encoder) or none (decoder).
    pub bidirectional: bool,
}

/// A bias by bucket of distance.
#[derive(Clone, Copy)]
pub struct Bias<'a> {
    /// `[heads, buckets]`; a rank's table has the rows of its heads.
    pub table: &'a Tensor,
    /// Mapping from distance to column.
    pub buckets: Buckets,
}

impl Buckets {
    /// Returns the bucket of a key at `key` seen from `query`.
    pub fn of(&self, query: usize, key: usize) -> usize {
        let (half, first) = match (self.bidirectional, key > query) {
            (true, after) => (self.buckets / 2, usize::from(after) * (self.buckets / 2)),
            (false, true) => return 0,
            (false, false) => (self.buckets, 0),
        };
        first + self.of_distance(query.abs_diff(key), half)
    }

    /// The bucket of each distance of query rows at `rows` and keys from 0 to below `keys`, from (first row, last key)
    /// on: the next row is one index more, the next key one less.
    pub(crate) fn by_distance(&self, rows: Range<usize>, keys: usize) -> Vec<usize> {
        let distances = rows.len() + keys - 1;
        // of the last key, then of the first
        let ends = (0..distances).map(|i| {
            let query = rows.start + i.saturating_sub(keys - 1);
            (query, (keys - 1).saturating_sub(i))
        });
        ends.map(|(query, key)| self.of(query, key)).collect()
    }

    /// Bucket of a distance among the `half` buckets of its direction.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "rounded to f32 as the definition asks; a bucket number is small and not negative"
    )]
    fn of_distance(&self, distance: usize, half: usize) -> usize {
        let exact = half / 2;
        if distance < exact {
            return distance;
        }
        let ratio = f64::from(distance as f32 / exact as f32).ln() as f32;
        let range = (self.max_distance as f64 / exact as f64).ln() as f32;
        let step = ratio / range * (half - exact) as f32;
        (exact + step as usize).min(half - 1)
    }

    fn check(&self, op: &'static str) -> Result<()> {
        let half = self.buckets / (1 + usize::from(self.bidirectional));
        if half < 2 || self.bidirectional && !self.buckets.is_multiple_of(2) {
            let wanted = "even and at least 4, or at least 2 when causal".to_owned();
            return refuse(op, "buckets", self.buckets.to_string(), wanted);
        }
        if self.max_distance <= half / 2 {
            let wanted = format!("above {}", half / 2);
            return refuse(op, "max_distance", self.max_distance.to_string(), wanted);
        }
        Ok(())
    }
}

impl Bias<'_> {
    /// Checks the buckets, and that `table` (or its gradient) is `[heads, buckets]`.
    pub(crate) fn check(
        &self,
        op: &'static str,
        (name, table): (&'static str, &Tensor),
        heads: usize,
    ) -> Result<()> {
        self.buckets.check(op)?;
        table.expect(op, name, DType::F32)?;
        if table.dims() == [heads, self.buckets.buckets] {
            return Ok(());
        }
        Err(Error::Shape {
            op,
            name,
            found: table.dims().to_vec(),
            wanted: format!("[{heads}, {}]", self.buckets.buckets),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lines of `buckets max_distance bidirectional | buckets of key - query = -300 .. 300`.
    const GOLDEN: &str = include_str!("../../tests/data/t5_buckets.txt");

    #[test]
    fn buckets_are_those_of_transformers() {
        let mut different = false;
        for line in GOLDEN.lines() {
            let (left, right) = line.split_once(" | ").unwrap();
            let n: Vec<usize> = left.split(' ').map(|w| w.parse().unwrap()).collect();
            let buckets = Buckets {
                buckets: n[0],
                max_distance: n[1],
                bidirectional: n[2] == 1,
            };
            let want: Vec<usize> = right.split(' ').map(|w| w.parse().unwrap()).collect();
            let found: Vec<usize> = (0..=600).map(|key| buckets.of(300, key)).collect();
            assert_eq!(found, want, "{left}");
            // Must fail: the distance taken the other way round.
            different |= (0..=600).any(|key| buckets.of(key, 300) != want[key]);
        }
        assert!(different && GOLDEN.lines().count() >= 8);
    }

    #[test]
    fn buckets_that_make_no_sense_are_refused_by_name() {
        let refused = |buckets, max_distance, bidirectional| {
            let buckets = Buckets {
                buckets,
                max_distance,
                bidirectional,
            };
            match buckets.check("attention::forward") {
                Err(Error::Argument { name, .. }) => name,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(refused(7, 128, true), "buckets");
        assert_eq!(refused(2, 128, true), "buckets");
        assert_eq!(refused(1, 128, false), "buckets");
        assert_eq!(refused(8, 2, true), "max_distance");
    }
}
