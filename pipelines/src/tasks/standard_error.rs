//! Standard errors of aggregates: of a mean by its formula, of perplexity and F1 by bootstrap.
//!
//! Source: lm-evaluation-harness 0.4.13 `api/metrics.py`. Bootstrap: pieces of 1,000 resamples, piece i drawn by
//! CPython's `random.Random(i).choices`; the standard deviation of all of them with n - 1.

use super::metrics::{Aggregation, Item, Metric, classes, f1, mean, numbers, perplexity};
use index::numpy_random::PythonRandom;
use rayon::prelude::*;

/// Resamples of a piece.
const PIECE: usize = 1000;

/// Standard error of a metric over `items` with `resamples` of the bootstrap (0: no errors at all); None where the
/// harness has none.
pub(super) fn standard_error(metric: Metric, items: &[Item], resamples: usize) -> Option<f64> {
    if items.len() < 2 || resamples == 0 {
        return None;
    }
    match metric.aggregation() {
        Aggregation::Mean => {
            let numbers = numbers(items);
            Some(deviation(&numbers) / (numbers.len() as f64).sqrt())
        }
        Aggregation::Perplexity => Some(bootstrap(&numbers(items), resamples, perplexity)),
        Aggregation::F1 => Some(bootstrap(&classes(items), resamples, f1)),
        Aggregation::WeightedPerplexity
        | Aggregation::BitsPerByte
        | Aggregation::Bbq
        | Aggregation::Megatron => None,
    }
}

/// Standard deviation with n - 1.
fn deviation(numbers: &[f64]) -> f64 {
    let mean = mean(numbers);
    let squares = numbers.iter().fold(0.0, |sum, x| sum + (x - mean).powi(2));
    (squares / (numbers.len() - 1) as f64).sqrt()
}

fn bootstrap<T: Copy + Sync>(items: &[T], resamples: usize, of: fn(&[T]) -> f64) -> f64 {
    let piece = PIECE.min(resamples);
    let found: Vec<f64> = (0..(resamples / piece) as u64)
        .into_par_iter()
        .flat_map_iter(|seed| {
            let mut random = PythonRandom::new(seed);
            let mut drawn = Vec::with_capacity(items.len());
            (0..piece).map(move |_| {
                drawn.clear();
                drawn.extend((0..items.len()).map(|_| items[random.choice(items.len())]));
                of(&drawn)
            })
        })
        .collect();
    deviation(&found)
}

/// Pooled standard error of parts with their sizes.
pub(super) fn pooled(errors: &[f64], sizes: &[usize]) -> f64 {
    let total: usize = sizes.iter().sum();
    let squares = errors.iter().zip(sizes).fold(0.0, |sum, (error, &size)| {
        sum + (size as f64 - 1.0) * error.powi(2) * size as f64
    });
    (squares / (total as f64 - sizes.len() as f64) / total as f64).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    // lm-evaluation-harness 0.4.13: stderr_for_metric(f, 3000) over these items
    #[test]
    fn errors_are_the_harnesss() {
        let logs: Vec<Item> = (0..37)
            .map(|i| Item::Number(-f64::from(i % 7) / 3.0))
            .collect();
        let pairs: Vec<Item> = (0..41)
            .map(|i| Item::Classes {
                gold: i % 2,
                predicted: usize::from(i % 3 == 0),
            })
            .collect();
        for (metric, items, wanted) in [
            (Metric::Acc, &logs, 0.112_722_668_943_684_45),
            (Metric::Perplexity, &logs, 0.296_460_689_164_094_07),
            (Metric::F1, &pairs, 0.107_775_867_029_636_86),
        ] {
            let found = standard_error(metric, items, 3000).unwrap();
            assert!(
                (found - wanted).abs() < 1e-15,
                "{metric:?} {found} {wanted}"
            );
        }
        assert!((pooled(&[0.1, 0.2], &[10, 30]) - 0.153_254_174_837_957_22).abs() < 1e-16);
        assert_eq!(standard_error(Metric::Acc, &logs[..1], 3000), None);
    }
}
