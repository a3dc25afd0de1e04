//! Weights to samples per dataset: normalisation, sizes, and the cap on epochs.
//!
//! w normalised by numpy's sum; target_d = ceil(size w_d); built_d = ceil(target_d (1 + surplus)). Source:
//! megatron-core 0.16.1 `blended_megatron_dataset_builder.py`, `utils.py`. Our extension: a cap of e epochs per
//! dataset. Samples above it are refused, naming every dataset above the cap, or redistributed to the others by
//! weight, repeatedly while that puts one of them above its cap.

use crate::error::{Error, Result};
use crate::split::numpy_sum;

/// Maximum number of datasets in a blend (Megatron stores their numbers in 16 bits).
const MOST_DATASETS: usize = 32_766;

/// Policy where a weight needs more epochs of a dataset than allowed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AboveCap {
    /// Refuse, with an error that names them.
    #[default]
    Refuse,
    /// The other datasets provide the excess.
    Redistribute,
}

/// Weights as shares of one.
///
/// # Errors
/// `Blend` with every weight that is none.
pub(super) fn normalise(weights: &[f64]) -> Result<Vec<f64>> {
    let wrong = |found: String| Error::Blend {
        field: "weights",
        found,
        wanted: format!("1 to {MOST_DATASETS} numbers above 0"),
    };
    if weights.is_empty() || weights.len() > MOST_DATASETS {
        return Err(wrong(format!("{} weights", weights.len())));
    }
    let bad = |w: &f64| !w.is_finite() || *w <= 0.0;
    let named = |(i, w): (usize, &f64)| bad(w).then(|| format!("{w} for dataset {i}"));
    let found: Vec<String> = weights.iter().enumerate().filter_map(named).collect();
    if !found.is_empty() {
        return Err(wrong(found.join(", ")));
    }
    let sum = numpy_sum(weights);
    let shares: Vec<f64> = weights.iter().map(|w| w / sum).collect();
    if !sum.is_finite() || shares.contains(&0.0) {
        return Err(wrong(format!(
            "a sum of {sum}, beside which a weight vanishes"
        )));
    }
    Ok(shares)
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

/// Samples that a blend of `size` takes from each dataset.
pub(super) fn targets(weights: &[f64], size: u64) -> Vec<u64> {
    weights.iter().map(|w| ceil(size as f64 * w)).collect()
}

/// Samples to build where `target` are to be taken.
pub(super) fn with_surplus(target: u64, surplus: f64) -> u64 {
    ceil(target as f64 * (1.0 + surplus))
}

/// Weights under which no dataset provides more than its `caps` samples.
///
/// # Errors
/// `Blend` with every dataset above its cap, or if all together cannot provide `size`.
pub(super) fn capped(
    weights: &[f64],
    size: u64,
    caps: &[u64],
    above: AboveCap,
    name: &dyn Fn(usize) -> String,
) -> Result<Vec<f64>> {
    let over = |w: &[f64]| -> Vec<usize> {
        let targets = targets(w, size);
        (0..w.len()).filter(|d| targets[*d] > caps[*d]).collect()
    };
    let first = over(weights);
    if first.is_empty() {
        return Ok(weights.to_vec());
    }
    let refuse = |found: Vec<String>, wanted: String| {
        let (field, found) = ("max_epochs", found.join(", "));
        Err(Error::Blend {
            field,
            found,
            wanted,
        })
    };
    if above == AboveCap::Refuse {
        let asked = targets(weights, size);
        let found = first
            .iter()
            .map(|d| {
                format!(
                    "{} samples of {}, which has {}",
                    asked[*d],
                    name(*d),
                    caps[*d]
                )
            })
            .collect();
        return refuse(
            found,
            "fewer samples, smaller weights, or more epochs".into(),
        );
    }
    // one sample below the cap: the greedy order may run one ahead of a weight
    let most: Vec<f64> = caps
        .iter()
        .map(|c| c.saturating_sub(1) as f64 / size as f64)
        .collect();
    let mut fixed = vec![false; weights.len()];
    let mut shares = weights.to_vec();
    loop {
        let full = over(&shares);
        if full.iter().all(|d| fixed[*d]) {
            return normalise(&shares);
        }
        full.iter().for_each(|d| fixed[*d] = true);
        let given: f64 = (0..shares.len())
            .filter(|d| fixed[*d])
            .map(|d| most[d])
            .sum();
        let rest: f64 = (0..shares.len())
            .filter(|d| !fixed[*d])
            .map(|d| weights[d])
            .sum();
        if rest <= 0.0 || given >= 1.0 || most.contains(&0.0) {
            let total: u64 = caps.iter().sum();
            let found = vec![format!(
                "{size} samples of datasets that have {total} in all"
            )];
            return refuse(found, "fewer samples or more epochs".into());
        }
        for (d, share) in shares.iter_mut().enumerate() {
            *share = if fixed[d] {
                most[d]
            } else {
                weights[d] * (1.0 - given) / rest
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bad_weights_are_refused_all_at_once() {
        for bad in [&[][..], &[0.0], &[1.0, -1.0], &[f64::NAN], &[f64::INFINITY]] {
            assert!(normalise(bad).is_err(), "{bad:?}");
        }
        let text = normalise(&[1.0, -1.0, 0.0]).unwrap_err().to_string();
        assert!(text.contains("-1 for dataset 1, 0 for dataset 2"), "{text}");
    }

    #[test]
    fn above_the_cap_is_refused_by_name_or_given_by_the_others() {
        let (weights, caps) = ([0.5, 0.3, 0.2], [100, 1000, 1000]);
        let name = |d: usize| format!("set {d}");
        let refused = capped(&weights, 1000, &caps, AboveCap::Refuse, &name);
        let text = refused.unwrap_err().to_string();
        assert!(
            text.contains("500 samples of set 0, which has 100"),
            "{text}"
        );
        let shared = capped(&weights, 1000, &caps, AboveCap::Redistribute, &name).unwrap();
        let counts = targets(&shared, 1000);
        assert!(
            counts[0] <= 100 && counts.iter().sum::<u64>() >= 1000,
            "{counts:?}"
        );
        assert!(
            (shared[1] / shared[2] - 1.5).abs() < 1e-9,
            "others keep their ratio"
        );
        assert!(capped(&weights, 1000, &[100; 3], AboveCap::Redistribute, &name).is_err());
        assert_eq!(
            capped(&weights, 100, &caps, AboveCap::Refuse, &name).unwrap(),
            weights
        );
    }
}
