//! K-means by the cosine (Dhillon and Modha 2001): a document belongs to the centre of the largest product, of equal ones
//! the first; a centre is the sum of its documents, of length 1. A centre without documents stays where it is.

use rayon::iter::ParallelIterator;
use rayon::slice::ParallelSlice;
use xxhash_rust::xxh3::{Xxh3, xxh3_64_with_seed};

use super::product::dot;
use super::stored::{Row, Stored};
use crate::dedup::passes::kept::Passes;
use crate::dedup::report::SemanticReport;
use crate::error::Result;

/// Centres, one after the other.
pub(super) struct Centres {
    width: usize,
    values: Vec<f32>,
}

/// The centre of a document.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Nearest {
    pub(super) centre: u32,
    pub(super) similarity: f32,
}

impl Centres {
    fn nearest(&self, x: &[f32]) -> Nearest {
        let mut best = Nearest {
            centre: 0,
            similarity: f32::NEG_INFINITY,
        };
        for (centre, values) in (0..).zip(self.values.chunks_exact(self.width)) {
            let similarity = dot(x, values);
            if similarity > best.similarity {
                best = Nearest { centre, similarity };
            }
        }
        best
    }

    /// The centres of embeddings that lie one after the other.
    pub(super) fn nearest_of_all(&self, values: &[f32]) -> Vec<Nearest> {
        let rows = values.par_chunks_exact(self.width);
        rows.map(|x| self.nearest(x)).collect()
    }

    /// Centres at these embeddings.
    pub(super) fn at(stored: &Stored, rows: &[Row]) -> Result<Centres> {
        Ok(Centres {
            width: stored.width(),
            values: stored.read(rows)?,
        })
    }
}

/// Embeddings that are read at once, in a fourth of the memory.
pub(super) fn block(width: usize, passes: &Passes<'_>) -> usize {
    (passes.memory() / 4 / (width * 4)).clamp(1, 1 << 16)
}

/// Documents of the smallest hashes of their numbers, which count over all shards.
pub(super) fn drawn(stored: &Stored, clusters: usize, seed: u64) -> Vec<Row> {
    let mut least = std::collections::BinaryHeap::with_capacity(clusters + 1);
    for (number, row) in (0u64..).zip(stored.rows()) {
        let key = (xxh3_64_with_seed(&number.to_le_bytes(), seed), row);
        if least.len() < clusters {
            least.push(key);
        } else if least.peek().is_some_and(|largest| key < *largest) {
            least.pop();
            least.push(key);
        }
    }
    let drawn = least.into_sorted_vec();
    drawn.into_iter().map(|(_, row)| row).collect()
}

impl Centres {
    /// The sums of the clusters' documents, and a hash of the clusters of all documents in order.
    fn sums(&self, stored: &Stored, block: usize) -> Result<(Vec<f64>, u128)> {
        let width = self.width;
        let mut sums = vec![0f64; self.values.len()];
        let mut chosen = Xxh3::new();
        stored.in_blocks(block, |_, values| {
            let nearest = self.nearest_of_all(values);
            for (x, nearest) in values.chunks_exact(width).zip(nearest) {
                chosen.update(&nearest.centre.to_le_bytes());
                let at = nearest.centre as usize * width;
                for (sum, x) in sums[at..at + width].iter_mut().zip(x) {
                    *sum += f64::from(*x);
                }
            }
            Ok(())
        })?;
        Ok((sums, chosen.digest128()))
    }

    /// Moves the centres until no document changes its cluster, at most `iterations` times; `block` embeddings are read at
    /// once.
    pub(super) fn settle(
        &mut self,
        stored: &Stored,
        iterations: u64,
        block: usize,
        report: &mut SemanticReport,
    ) -> Result<()> {
        report.clusters = (self.values.len() / self.width.max(1)) as u64;
        let mut before = None;
        for iteration in 1..=iterations {
            report.iterations = iteration;
            let (sums, chosen) = self.sums(stored, block)?;
            if before == Some(chosen) {
                report.is_settled = true;
                break;
            }
            before = Some(chosen);
            let centres = self.values.chunks_exact_mut(self.width);
            for (centre, sum) in centres.zip(sums.chunks_exact(self.width)) {
                let length = sum.iter().map(|x| x * x).sum::<f64>().sqrt();
                if length > 0.0 {
                    for (to, x) in centre.iter_mut().zip(sum) {
                        #[expect(
                            clippy::cast_possible_truncation,
                            reason = "rounded to the format of embeddings"
                        )]
                        let x = (x / length) as f32;
                        *to = x;
                    }
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::super::stored::Planted;
    use super::*;

    /// Clusters by faiss from the same first centres (`tests/oracles/kmeans.py`).
    #[test]
    fn clusters_and_centres_are_those_of_faiss() {
        let golden = include_str!("../../../../../tests/data/semantic/kmeans.json");
        let golden: Value = serde_json::from_str(golden).unwrap();
        let rows: Vec<Vec<f32>> = serde_json::from_value(golden["vectors"].clone()).unwrap();
        let planted = Planted::of_rows(&rows);
        let stored = &planted.stored;
        let first: Vec<u32> = serde_json::from_value(golden["first"].clone()).unwrap();
        let first: Vec<Row> = first
            .into_iter()
            .map(|number| Row { shard: 0, number })
            .collect();
        let wanted: Vec<u32> = serde_json::from_value(golden["clusters"].clone()).unwrap();
        let wanted_centres: Vec<Vec<f64>> =
            serde_json::from_value(golden["centres"].clone()).unwrap();
        let mut bits = Vec::new();
        for block in [1, 7, 1000] {
            let mut report = SemanticReport::default();
            let mut centres = Centres::at(stored, &first).unwrap();
            centres.settle(stored, 50, block, &mut report).unwrap();
            assert!(report.is_settled && report.clusters == first.len() as u64);
            let all = stored.read(&stored.rows().collect::<Vec<_>>()).unwrap();
            let found = centres.nearest_of_all(&all);
            let found: Vec<u32> = found.iter().map(|nearest| nearest.centre).collect();
            assert_eq!(found, wanted);
            let wanted = wanted_centres.iter().flatten();
            for (found, wanted) in centres.values.iter().zip(wanted) {
                assert!(
                    (f64::from(*found) - wanted).abs() < 1e-5,
                    "{found} {wanted}"
                );
            }
            bits.push(centres.values);
        }
        assert!(
            bits[0] == bits[1] && bits[1] == bits[2],
            "blocks change bits"
        );
    }

    #[test]
    fn clusters_begin_at_different_documents() {
        let rows: Vec<Vec<f32>> = (0..40u8).map(|i| vec![f32::from(i), 1.0]).collect();
        let planted = Planted::of_rows(&rows);
        let stored = &planted.stored;
        let first = drawn(stored, 12, 3);
        let numbers: std::collections::BTreeSet<u32> = first.iter().map(|row| row.number).collect();
        assert_eq!(numbers.len(), 12);
        assert_ne!(drawn(stored, 12, 4), first);
        assert_eq!(drawn(stored, 5, 3), first[..5]);
    }
}
