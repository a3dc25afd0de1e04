//! Several datasets mixed by weight, bit-equal to megatron-core's `BlendedDataset`.
//!
//! weights w normalised; target_d = ceil(size w_d); each dataset is built for ceil(target_d 1.005) samples; the blend has
//! sum target_d samples. Sample s comes from the first dataset with the largest w_d max(s, 1) - taken_d.
//! Source: megatron-core 0.16.1 `blended_megatron_dataset_builder.py`, `helpers.cpp`. The choice at s does not depend on
//! the size, so a longer run keeps the blend's order.

use crate::error::{Error, Result};
use crate::read::Dataset;
use crate::samples::{GptSamples, Request};
use crate::split::{self, Part, numpy_sum};
use std::sync::Arc;

/// Room for rounding in the datasets under a blend, as a share. Megatron's `mid_level_dataset_surplus`.
const SURPLUS: f64 = 0.005;

/// Most datasets of one blend (Megatron stores their numbers in 16 bits).
const MOST_DATASETS: usize = 32_766;

/// What to blend.
pub struct BlendRequest<'a> {
    /// Datasets and their weights, any positive scale.
    pub datasets: &'a [(Arc<Dataset>, f64)],
    /// Split string, e.g. `949,50,1`.
    pub split: &'a str,
    /// Tokens a sample.
    pub seq_length: u64,
    /// Samples of train, valid, test.
    pub samples: [u64; 3],
    /// Seed of every shuffle.
    pub seed: u32,
}

/// One part of a blend.
pub struct Blend {
    part: Part,
    weights: Vec<f64>,
    datasets: Vec<GptSamples>,
    dataset_index: Vec<i16>,
    dataset_sample_index: Vec<u64>,
}

/// Builds train, valid and test; `None` where the split's ratio or the samples asked are zero.
///
/// # Errors
/// `Split`, `Blend` (weights), `EmptySplit` (a part without tokens).
pub fn build(request: &BlendRequest) -> Result<[Option<Blend>; 3]> {
    let bounds = split::parse(request.split)?;
    let weights = normalise(&request.datasets.iter().map(|d| d.1).collect::<Vec<_>>())?;
    let mut parts = [None, None, None];
    for (i, part) in Part::ALL.into_iter().enumerate() {
        if let (Some(bounds), 1..) = (bounds[i], request.samples[i]) {
            parts[i] = Some(Blend::new(request, part, bounds, &weights)?);
        }
    }
    Ok(parts)
}

fn normalise(weights: &[f64]) -> Result<Vec<f64>> {
    let sum = numpy_sum(weights);
    let bad = weights.iter().any(|w| !w.is_finite() || *w <= 0.0);
    if weights.is_empty() || weights.len() > MOST_DATASETS || bad || !sum.is_finite() {
        return Err(Error::Blend {
            field: "weights",
            found: format!("{weights:?}"),
            wanted: format!("1 to {MOST_DATASETS} numbers above 0"),
        });
    }
    Ok(weights.iter().map(|w| w / sum).collect())
}

/// ceil of a non-negative product far below 2^53.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "0 <= x < 2^53"
)]
fn ceil(x: f64) -> u64 {
    x.ceil() as u64
}

impl Blend {
    fn new(r: &BlendRequest, part: Part, bounds: (f64, f64), weights: &[f64]) -> Result<Blend> {
        let asked = r.samples[part as usize] as f64;
        let targets: Vec<u64> = weights.iter().map(|w| ceil(asked * w)).collect();
        let mut datasets = Vec::with_capacity(weights.len());
        for ((dataset, _), target) in r.datasets.iter().zip(&targets) {
            let samples = Some(ceil(*target as f64 * (1.0 + SURPLUS)));
            let request = Request {
                seq_length: r.seq_length,
                samples,
                seed: r.seed,
            };
            datasets.push(GptSamples::new(dataset.clone(), part, bounds, &request)?);
        }
        // Megatron normalises once more here; the second division can change the last bit.
        let weights = normalise(weights)?;
        let size = targets.iter().sum();
        let (dataset_index, dataset_sample_index) = weighted_order(&weights, size);
        for (d, (dataset, weight)) in datasets.iter().zip(&weights).enumerate() {
            let last = dataset_index
                .iter()
                .rposition(|i| usize::try_from(*i) == Ok(d));
            let used = last.map_or(0, |s| dataset_sample_index[s] + 1);
            if used > dataset.len() {
                return Err(Error::Blend {
                    field: "samples of a dataset",
                    found: format!("{used} taken from {}", dataset.dataset().prefix().display()),
                    wanted: format!("at most its {} at weight {weight}", dataset.len()),
                });
            }
        }
        Ok(Blend {
            part,
            weights,
            datasets,
            dataset_index,
            dataset_sample_index,
        })
    }

    /// Samples.
    pub fn len(&self) -> u64 {
        self.dataset_index.len() as u64
    }
    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.dataset_index.is_empty()
    }
    /// Which part.
    pub fn part(&self) -> Part {
        self.part
    }
    /// Normalised weights, one a dataset.
    pub fn weights(&self) -> &[f64] {
        &self.weights
    }
    /// The datasets' samples.
    pub fn datasets(&self) -> &[GptSamples] {
        &self.datasets
    }
    /// Which dataset each sample comes from.
    pub fn dataset_index(&self) -> &[i16] {
        &self.dataset_index
    }
    /// Which of that dataset's samples.
    pub fn dataset_sample_index(&self) -> &[u64] {
        &self.dataset_sample_index
    }

    /// Fills `tokens` (L + 1) with sample `k`; returns the dataset's number.
    ///
    /// # Errors
    /// `Range`.
    pub fn read(&self, k: u64, tokens: &mut [u32]) -> Result<usize> {
        let out_of_range = || Error::Range {
            what: "blended sample",
            index: k,
            len: self.len(),
        };
        let i = usize::try_from(k).map_err(|_| out_of_range())?;
        let d = *self.dataset_index.get(i).ok_or_else(out_of_range)?;
        let d = usize::try_from(d).map_err(|_| out_of_range())?;
        self.datasets[d].read(self.dataset_sample_index[i], tokens)?;
        Ok(d)
    }

    /// Samples taken from each dataset among the first `k`.
    pub fn taken(&self, k: u64) -> Vec<u64> {
        let mut taken = vec![0; self.datasets.len()];
        let k = usize::try_from(k)
            .unwrap_or(usize::MAX)
            .min(self.dataset_index.len());
        for d in &self.dataset_index[..k] {
            taken[usize::from(d.unsigned_abs())] += 1;
        }
        taken
    }
}

/// Megatron's greedy choice. O(size x datasets), no float depends on another sample's rounding.
fn weighted_order(weights: &[f64], size: u64) -> (Vec<i16>, Vec<u64>) {
    let n = usize::try_from(size).unwrap_or(0);
    let (mut dataset, mut sample) = (Vec::with_capacity(n), Vec::with_capacity(n));
    let mut taken = vec![0u64; weights.len()];
    for s in 0..size {
        let m = s.max(1) as f64;
        let mut best = 0;
        let mut most = weights[0] * m - taken[0] as f64;
        for (d, w) in weights.iter().enumerate().skip(1) {
            let error = w * m - taken[d] as f64;
            if error > most {
                (best, most) = (d, error);
            }
        }
        dataset.push(i16::try_from(best).unwrap_or(i16::MAX));
        sample.push(taken[best]);
        taken[best] += 1;
    }
    (dataset, sample)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_of_four_weights_is_megatrons() {
        let (d, _) = weighted_order(&[0.3, 0.55, 0.1, 0.05], 20);
        assert_eq!(
            d,
            [1, 0, 2, 1, 1, 0, 1, 3, 1, 0, 1, 0, 1, 2, 1, 0, 1, 1, 0, 1]
        );
    }

    #[test]
    fn counts_stay_within_one_of_the_weights_at_every_prefix() {
        let w = [0.5, 0.3, 0.2];
        let (d, s) = weighted_order(&w, 1000);
        let mut taken = [0u64; 3];
        for (k, (d, s)) in d.iter().zip(&s).enumerate() {
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

    #[test]
    fn bad_weights_are_refused() {
        for bad in [&[][..], &[0.0], &[1.0, -1.0], &[f64::NAN], &[f64::INFINITY]] {
            assert!(normalise(bad).is_err(), "{bad:?}");
        }
    }
}
