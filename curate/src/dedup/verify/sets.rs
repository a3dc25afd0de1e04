//! Sets of shingle hashes and their Jaccard similarity, |A and B| / |A or B|.
//!
//! A set is its distinct 64-bit hashes in ascending order; two shingles share one with probability 2^-64. Of a text
//! with more than 2^20 distinct shingles only the hashes below 2^64 / 2^s are kept, s the smallest that leaves at
//! most that many (FracMinHash: Irber et al. 2022, doi:10.1101/2022.01.11.475838): a sample that is the same for
//! every text. Two sets are compared below the smaller of their bounds; the error of a sampled similarity is about
//! 0.0005.

/// Maximum number of hashes of a set: 8 MiB.
const MOST: usize = 1 << 20;

/// The shingles of one text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Set {
    /// Distinct, ascending.
    pub(super) hashes: Vec<u64>,
    /// Hashes are at most `u64::MAX >> scale`.
    pub(super) scale: u32,
}

impl Set {
    pub(super) fn of(hashes: Vec<u64>) -> Set {
        Set::at_most(hashes, MOST)
    }

    fn at_most(mut hashes: Vec<u64>, most: usize) -> Set {
        hashes.sort_unstable();
        hashes.dedup();
        let mut scale = 0;
        while hashes.len() > most && scale < 63 {
            scale += 1;
            hashes.truncate(below(&hashes, scale));
        }
        hashes.shrink_to_fit();
        Set { hashes, scale }
    }

    /// Jaccard similarity; 0 if there is nothing to compare.
    pub(super) fn jaccard(&self, other: &Set) -> f64 {
        let scale = self.scale.max(other.scale);
        let (a, b) = (
            &self.hashes[..below(&self.hashes, scale)],
            &other.hashes[..below(&other.hashes, scale)],
        );
        let (mut i, mut j, mut both) = (0, 0, 0usize);
        while i < a.len() && j < b.len() {
            let (x, y) = (a[i], b[j]);
            both += usize::from(x == y);
            i += usize::from(x <= y);
            j += usize::from(y <= x);
        }
        let either = a.len() + b.len() - both;
        both as f64 / either.max(1) as f64
    }
}

/// Number of hashes that are at most `u64::MAX >> scale`.
fn below(hashes: &[u64], scale: u32) -> usize {
    if scale == 0 {
        return hashes.len();
    }
    hashes.partition_point(|&h| h <= u64::MAX >> scale)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn mix(x: u64) -> u64 {
        let x = (x ^ (x >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
        let x = (x ^ (x >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
        x ^ (x >> 32)
    }

    #[test]
    fn similarity_is_that_of_sets_of_numbers() {
        for (a, b) in [
            (0..50u64, 25..80u64),
            (0..3, 3..9),
            (0..0, 0..4),
            (5..9, 5..9),
        ] {
            let hashes = |range: std::ops::Range<u64>| range.flat_map(|i| [mix(i), mix(i)]);
            let (x, y): (BTreeSet<u64>, BTreeSet<u64>) =
                (hashes(a.clone()).collect(), hashes(b.clone()).collect());
            let wanted = x.intersection(&y).count() as f64 / x.union(&y).count().max(1) as f64;
            let sets = [a, b].map(|r| Set::of(hashes(r).collect()));
            assert_eq!(sets[0].jaccard(&sets[1]), wanted);
            assert_eq!(sets[1].jaccard(&sets[0]), wanted);
        }
    }

    #[test]
    fn a_sampled_set_is_near_the_truth_and_compares_with_a_whole_one() {
        let hashes = |from: u64, to: u64| (from..to).map(mix).collect::<Vec<u64>>();
        let (a, b) = (hashes(0, 400_000), hashes(100_000, 500_000));
        let truth = 300.0 / 500.0;
        let sampled = Set::at_most(a.clone(), 20_000);
        assert!(sampled.scale > 0 && sampled.hashes.len() <= 20_000);
        for other in [
            Set::at_most(b.clone(), 20_000),
            Set::at_most(b.clone(), 7_000),
            Set::of(b),
        ] {
            let found = sampled.jaccard(&other);
            // sd = sqrt(J (1 - J) / n) with n of about 6,000 at least: five of them
            assert!((found - truth).abs() < 0.032, "{found}");
        }
        assert_eq!(sampled.jaccard(&Set::at_most(a, 7_000)), 1.0);
    }
}
