//! The greedy order of a blend, bit-equal to megatron-core's C++ and several times as fast.
//!
//! Sample s comes from the first dataset with the largest error w_d max(s, 1) - taken_d in f64, product and difference
//! rounded one after the other. Exhaustive: the same, w_d = size_d / sum of sizes, among datasets with samples left.
//! Source: megatron-core 0.16.1 `helpers.cpp` (`build_blending_indices`, `build_exhaustive_blending_indices`).
//! How it is fast: counts are kept as f64 (exact below 2^53), datasets stand in blocks of eight lanes, and a step finds
//! the maximum over all lanes first and its first place afterwards, both without branches; an absent or used-up dataset
//! has taken +infinity samples, so that its error never wins. Compiled three times, for the vectors that the CPU has.
#![expect(
    unsafe_code,
    reason = "calls of functions compiled for vectors that the CPU was asked for"
)]

use crate::array::Array;
use crate::error::Result;

/// Lanes of a block: one AVX-512 register, two of AVX2, four of SSE2 or NEON.
const LANES: usize = 8;

/// Which dataset, and which of its samples, for every sample.
pub type Columns = (Array<i16>, Array<i64>);

/// State of the choice: weights and counts in blocks, absent lanes used up.
struct Scales {
    weights: Vec<[f64; LANES]>,
    taken: Vec<[f64; LANES]>,
    errors: Vec<[f64; LANES]>,
    /// Samples that a dataset has left; empty if that does not matter.
    left: Vec<u64>,
}

impl Scales {
    fn of(weights: &[f64], left: Vec<u64>) -> Scales {
        let blocks = weights.len().div_ceil(LANES);
        let mut s = Scales {
            weights: vec![[0.0; LANES]; blocks],
            taken: vec![[f64::INFINITY; LANES]; blocks],
            errors: vec![[0.0; LANES]; blocks],
            left,
        };
        for (d, w) in weights.iter().enumerate() {
            s.weights[d / LANES][d % LANES] = *w;
            s.taken[d / LANES][d % LANES] = 0.0;
        }
        s
    }

    /// The first dataset with the largest error.
    #[inline(always)]
    fn heaviest(&mut self, m: f64) -> usize {
        let mut most = [f64::NEG_INFINITY; LANES];
        let blocks = self.weights.iter().zip(&self.taken).zip(&mut self.errors);
        for ((weights, taken), errors) in blocks {
            for i in 0..LANES {
                let e = weights[i] * m - taken[i];
                errors[i] = e;
                most[i] = if e > most[i] { e } else { most[i] };
            }
        }
        let larger = |a: f64, b: f64| if b > a { b } else { a };
        let [a, b, c, d, e, f, g, h] = most;
        let (a, b, c, d) = (larger(a, b), larger(c, d), larger(e, f), larger(g, h));
        let most = larger(larger(a, b), larger(c, d));
        for (block, errors) in self.errors.iter().enumerate() {
            let mut hits = 0u32;
            for (i, e) in errors.iter().enumerate() {
                hits |= u32::from(*e == most) << i;
            }
            if hits != 0 {
                return block * LANES + hits.trailing_zeros() as usize;
            }
        }
        0
    }

    #[inline(always)]
    fn fill(&mut self, from: u64, dataset: &mut [i16], sample: &mut [i64]) {
        for ((s, dataset), sample) in (from..).zip(dataset).zip(sample) {
            let d = self.heaviest(s.max(1) as f64);
            let (block, lane) = (&mut self.taken[d / LANES], d % LANES);
            // counts are whole and far below 2^53; at most 32 766 datasets
            #[expect(clippy::cast_possible_truncation, reason = "see above")]
            {
                *sample = block[lane] as i64;
                *dataset = d as i16;
            }
            // the whole block, so that the next step's vector load meets one store
            for (i, t) in block.iter_mut().enumerate() {
                *t += f64::from(u8::from(i == lane));
            }
            if let Some(left) = self.left.get_mut(d) {
                *left -= 1;
                if *left == 0 {
                    self.taken[d / LANES][lane] = f64::INFINITY;
                }
            }
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512vl,avx512dq,avx512bw")]
fn fill_avx512(s: &mut Scales, dataset: &mut [i16], sample: &mut [i64]) {
    s.fill(0, dataset, sample);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn fill_avx2(s: &mut Scales, dataset: &mut [i16], sample: &mut [i64]) {
    s.fill(0, dataset, sample);
}

fn fill(s: &mut Scales, size: u64) -> Result<Columns> {
    let mut dataset = Array::zeros("dataset_index", size)?;
    let mut sample = Array::zeros("dataset_sample_index", size)?;
    let (d, k) = (dataset.as_mut(), sample.as_mut());
    #[cfg(target_arch = "x86_64")]
    {
        let wide = is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512vl")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512bw");
        if wide {
            // SAFETY: the CPU was just asked for exactly these vectors.
            unsafe { fill_avx512(s, d, k) };
            return Ok((dataset, sample));
        }
        if is_x86_feature_detected!("avx2") {
            // SAFETY: the CPU was just asked for exactly these vectors.
            unsafe { fill_avx2(s, d, k) };
            return Ok((dataset, sample));
        }
    }
    s.fill(0, d, k);
    Ok((dataset, sample))
}

/// The order of `size` samples by normalised weights.
///
/// # Errors
/// `Memory`.
pub fn weighted(weights: &[f64], size: u64) -> Result<Columns> {
    fill(&mut Scales::of(weights, Vec::new()), size)
}

/// Every sample of every dataset once; no size is 0.
pub(super) fn exhaustive(sizes: &[u64]) -> Result<Columns> {
    let total: u64 = sizes.iter().sum();
    let weights: Vec<f64> = sizes.iter().map(|s| *s as f64 / total as f64).collect();
    fill(&mut Scales::of(&weights, sizes.to_vec()), total)
}

/// MT-NLG's correction: every batch of `batch` samples has floor or ceil of w_d `batch` samples of each dataset; the
/// fractions go where most is owed from earlier batches. Within a batch the greedy order, among datasets with a share
/// left. Source: Smith et al. 2022, arXiv:2201.11990, sec. 3.1 (the idea; the paper gives no rule for fractions).
pub(super) fn batched(weights: &[f64], size: u64, batch: u64) -> Result<Columns> {
    let mut dataset = Array::zeros("dataset_index", size)?;
    let mut sample = Array::zeros("dataset_sample_index", size)?;
    let mut rows = dataset.as_mut().iter_mut().zip(sample.as_mut());
    let mut taken = vec![0u64; weights.len()];
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "0 <= w <= 1, so at most a batch"
    )]
    let whole: Vec<u64> = weights.iter().map(|w| (w * batch as f64) as u64).collect();
    let mut m = 0u64;
    while m < size {
        let mut left = whole.clone();
        let owed = |d: usize| weights[d] * (m + batch) as f64 - (taken[d] + whole[d]) as f64;
        let mut most_owed: Vec<usize> = (0..weights.len()).collect();
        most_owed.sort_by(|a, b| owed(*b).total_cmp(&owed(*a)).then(a.cmp(b)));
        let spare = batch.saturating_sub(whole.iter().sum());
        for d in most_owed
            .into_iter()
            .cycle()
            .take(usize::try_from(spare).unwrap_or(0))
        {
            left[d] += 1;
        }
        for _ in 0..batch {
            let error = |d: &usize| weights[*d] * m.max(1) as f64 - taken[*d] as f64;
            let open = (0..weights.len()).filter(|d| left[*d] > 0);
            let pick = open.reduce(|a, b| if error(&b) > error(&a) { b } else { a });
            let (Some(d), Some((dataset, sample))) = (pick, rows.next()) else {
                break;
            };
            *dataset = i16::try_from(d).unwrap_or(i16::MAX);
            *sample = i64::try_from(taken[d]).unwrap_or(i64::MAX);
            taken[d] += 1;
            left[d] -= 1;
            m += 1;
        }
    }
    Ok((dataset, sample))
}

#[cfg(test)]
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "small numbers"
)]
mod tests {
    use super::*;

    /// Megatron's loop, word for word in f64.
    fn naive(weights: &[f64], size: u64, sizes: Option<&[u64]>) -> Vec<(i16, i64)> {
        let mut taken = vec![0u64; weights.len()];
        let mut out = Vec::new();
        for s in 0..size {
            let m = s.max(1) as f64;
            let (mut best, mut most) = (0, f64::MIN);
            for (d, w) in weights.iter().enumerate() {
                let error = w * m - taken[d] as f64;
                let left = sizes.is_none_or(|z| taken[d] < z[d]);
                if left && error > most {
                    (best, most) = (d, error);
                }
            }
            out.push((best as i16, taken[best] as i64));
            taken[best] += 1;
        }
        out
    }

    fn rows(c: &Columns) -> Vec<(i16, i64)> {
        c.0.iter().copied().zip(c.1.iter().copied()).collect()
    }

    #[test]
    fn the_order_of_four_weights_is_megatrons() {
        let (d, _) = weighted(&[0.3, 0.55, 0.1, 0.05], 20).unwrap();
        let want = [1, 0, 2, 1, 1, 0, 1, 3, 1, 0, 1, 0, 1, 2, 1, 0, 1, 1, 0, 1];
        assert_eq!(d[..], want);
    }

    proptest::proptest! {
        #[test]
        fn vectors_choose_as_the_plain_loop_does(
            raw in proptest::collection::vec(1u32..1000, 1..40),
            size in 0u64..3000,
            equal in proptest::bool::ANY,
        ) {
            let raw: Vec<f64> = raw.iter().map(|w| if equal { 1.0 } else { f64::from(*w) }).collect();
            let sum: f64 = raw.iter().sum();
            let weights: Vec<f64> = raw.iter().map(|w| w / sum).collect();
            proptest::prop_assert_eq!(rows(&weighted(&weights, size).unwrap()), naive(&weights, size, None));
            let mut plain = Scales::of(&weights, Vec::new());
            let (mut d, mut k) = (vec![0; 500], vec![0; 500]);
            plain.fill(0, &mut d, &mut k);
            let got: Vec<_> = d.into_iter().zip(k).collect();
            proptest::prop_assert_eq!(got, naive(&weights, 500, None));
        }

        #[test]
        fn exhaustive_chooses_as_the_plain_loop_does(sizes in proptest::collection::vec(1u64..200, 1..30)) {
            let total: u64 = sizes.iter().sum();
            let weights: Vec<f64> = sizes.iter().map(|s| *s as f64 / total as f64).collect();
            proptest::prop_assert_eq!(rows(&exhaustive(&sizes).unwrap()), naive(&weights, total, Some(&sizes)));
        }

        #[test]
        fn every_batch_has_each_datasets_share_within_one(
            raw in proptest::collection::vec(1u32..1000, 1..20),
            batch in 1u64..100,
        ) {
            let sum: u32 = raw.iter().sum();
            let weights: Vec<f64> = raw.iter().map(|w| f64::from(*w) / f64::from(sum)).collect();
            let size = 40 * batch;
            let (d, k) = batched(&weights, size, batch).unwrap();
            let mut taken = vec![0; weights.len()];
            for part in d.chunks(batch as usize) {
                let mut counts = vec![0u64; weights.len()];
                part.iter().for_each(|d| counts[*d as usize] += 1);
                for (n, w) in counts.iter().zip(&weights) {
                    let share = w * batch as f64;
                    proptest::prop_assert!((*n as f64 - share).abs() < 1.0 + 1e-9, "{n} of {share}");
                }
            }
            for (d, k) in d.iter().zip(&k[..]) {
                proptest::prop_assert_eq!(taken[*d as usize], *k);
                taken[*d as usize] += 1;
            }
            for (n, w) in taken.iter().zip(&weights) {
                let owed = w * size as f64 - *n as f64;
                proptest::prop_assert!(owed.abs() < 2.0, "{owed} behind after 40 batches");
            }
        }
    }

    #[test]
    fn counts_stay_within_one_of_the_weights_at_every_prefix() {
        let w = [0.5, 0.3, 0.2];
        let (d, s) = weighted(&w, 1000).unwrap();
        let mut taken = [0i64; 3];
        for (k, (d, s)) in d.iter().zip(&s[..]).enumerate() {
            let d = *d as usize;
            assert_eq!(*s, taken[d]);
            taken[d] += 1;
            for (t, w) in taken.iter().zip(&w) {
                assert!(
                    (*t as f64 - w * (k + 1) as f64).abs() <= 1.0 + 1e-9,
                    "at {k}"
                );
            }
        }
    }
}
