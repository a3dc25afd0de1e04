//! Batch-size schedules: the global batch after so many samples, constant, ramped up, or by steps.
//!
//! Ramp-up: k = (size - start) / increment steps, each of samples / k; size now = start + floor(consumed / step) increment
//! while consumed <= samples, then size. Steps: the size of the last threshold that is reached; thresholds are tokens,
//! with K, M, B or T for powers of a thousand, and become samples by whole division by the length.
//! Source: Megatron-LM `num_microbatches_calculator.py`: ramp-up until core 0.17, steps from 0.18 (facts).

use crate::error::{Error, Result};

/// Sizes of global batches.
#[derive(Clone, Debug, PartialEq)]
pub enum BatchSizes {
    /// Always this many samples, 1 or more.
    Constant(u64),
    /// From few to many.
    RampUp {
        /// Samples of the first batches.
        start: u64,
        /// Added at each step.
        increment: u64,
        /// Samples over which the size grows.
        samples: u64,
        /// Samples of a batch afterwards.
        size: u64,
        /// Every size is rounded down to a multiple of this, if that is not 0; 1: no rounding.
        multiple: u64,
    },
    /// (samples consumed, size), ascending, the first at 0.
    Steps(Vec<(u64, u64)>),
}

fn wrong<T>(found: String, wanted: &str) -> Result<T> {
    Err(Error::Blend {
        field: "batch sizes",
        found,
        wanted: wanted.into(),
    })
}

impl BatchSizes {
    /// Megatron's `--rampup-batch-size start increment samples` to `size`.
    ///
    /// # Errors
    /// `Blend` if `increment` does not divide the way from `start` to `size`.
    pub fn ramp_up(start: u64, increment: u64, samples: u64, size: u64) -> Result<BatchSizes> {
        let way = size.checked_sub(start);
        if start == 0
            || increment == 0
            || !way.is_some_and(|w| w > 0 && w.is_multiple_of(increment))
        {
            let found = format!("{start} + k * {increment} up to {size}");
            return wrong(found, "a start above 0 and whole increments up to the size");
        }
        Ok(BatchSizes::RampUp {
            start,
            increment,
            samples,
            size,
            multiple: 1,
        })
    }

    /// Megatron's `--step-batch-size-schedule`, e.g. `0:768 250B:1536`; thresholds are in tokens if a length is given.
    ///
    /// # Errors
    /// `Blend` with the wrong entry.
    pub fn steps(text: &str, seq_length: Option<u64>) -> Result<BatchSizes> {
        let mut steps: Vec<(u64, u64)> = Vec::new();
        for entry in text.split([',', ' ', '\t', '\n']).filter(|e| !e.is_empty()) {
            let parsed = entry
                .split_once(':')
                .and_then(|(t, s)| Some((number(t)?, number(s)?)));
            let Some((threshold, size)) = parsed else {
                return wrong(
                    format!("{entry:?}"),
                    "THRESHOLD:SIZE, with K, M, B or T after a number",
                );
            };
            steps.push((threshold / seq_length.unwrap_or(1).max(1), size));
        }
        steps.sort_by_key(|s| s.0);
        let ascending = steps.windows(2).all(|w| w[0].0 < w[1].0);
        let first = steps.first().map(|s| s.0);
        if first != Some(0) || !ascending || steps.iter().any(|s| s.1 == 0) {
            return wrong(
                format!("{steps:?}"),
                "sizes above 0 at ascending thresholds, the first 0",
            );
        }
        Ok(BatchSizes::Steps(steps))
    }

    /// Size of the batch that follows `consumed` samples; at least 1.
    pub fn at(&self, consumed: u64) -> u64 {
        match self {
            BatchSizes::Constant(size) => (*size).max(1),
            BatchSizes::RampUp {
                start,
                increment,
                samples,
                size,
                multiple,
            } => {
                let mut now = *size;
                if consumed <= *samples && *increment > 0 && *samples > 0 {
                    let steps = size.saturating_sub(*start) / increment;
                    let step = *samples as f64 / steps as f64;
                    // a quotient of counts, at most `steps`
                    #[expect(
                        clippy::cast_possible_truncation,
                        clippy::cast_sign_loss,
                        reason = "see above"
                    )]
                    let done = (consumed as f64 / step) as u64;
                    now = start + done.min(steps) * increment;
                }
                let rounded = now - now % (*multiple).max(1);
                if rounded == 0 { now.max(1) } else { rounded }
            }
            BatchSizes::Steps(steps) => {
                let reached = steps.partition_point(|s| s.0 <= consumed);
                steps
                    .get(reached.saturating_sub(1))
                    .map_or(1, |s| s.1.max(1))
            }
        }
    }
}

/// `2.5B` is 2 500 000 000.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "checked for sign and size"
)]
fn number(text: &str) -> Option<u64> {
    let text = text.trim().to_ascii_uppercase();
    let (digits, scale) = match text.chars().last()? {
        'K' => (&text[..text.len() - 1], 1e3),
        'M' => (&text[..text.len() - 1], 1e6),
        'B' => (&text[..text.len() - 1], 1e9),
        'T' => (&text[..text.len() - 1], 1e12),
        _ => (&text[..], 1.0),
    };
    let value = digits.parse::<f64>().ok()? * scale;
    (value >= 0.0 && value < 2f64.powi(63)).then_some(value as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sampler::Sampler;

    // megatron-core 0.16.1: RampupBatchsizeNumMicroBatchesCalculator(global 96, micro 1, dp 1, start 32, increment 16,
    // samples 1000), current_global_batch_size after update(consumed)
    #[test]
    fn ramp_up_sizes_are_megatrons() {
        let sizes = BatchSizes::ramp_up(32, 16, 1000, 96).unwrap();
        for (consumed, want) in [
            (0, 32),
            (249, 32),
            (250, 48),
            (499, 48),
            (500, 64),
            (750, 80),
            (999, 80),
            (1000, 96),
            (1001, 96),
        ] {
            assert_eq!(sizes.at(consumed), want, "{consumed}");
        }
        assert!(BatchSizes::ramp_up(32, 15, 1000, 96).is_err());
        assert!(BatchSizes::ramp_up(0, 16, 1000, 96).is_err());
    }

    #[test]
    fn steps_are_read_in_tokens_and_take_effect_when_reached() {
        let sizes = BatchSizes::steps("0:4 1K:8, 2.5K:16", Some(100)).unwrap();
        assert_eq!(sizes, BatchSizes::Steps(vec![(0, 4), (10, 8), (25, 16)]));
        let got: Vec<u64> = [0, 9, 10, 24, 25, 1000].map(|c| sizes.at(c)).to_vec();
        assert_eq!(got, [4, 4, 8, 8, 16, 16]);
        for bad in ["", "1:4", "0:0", "0:4 0:8", "0-4", "0:x", "0:4 -1:8"] {
            assert!(BatchSizes::steps(bad, None).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn growing_batches_follow_each_other_without_a_gap_and_resume_anywhere() {
        let sizes = BatchSizes::ramp_up(2, 2, 20, 8).unwrap();
        let whole: Vec<_> = Sampler::with_sizes(100, sizes.clone(), 0).collect();
        assert!(whole.windows(2).all(|w| w[0].end == w[1].start));
        let mut first = Sampler::with_sizes(100, sizes.clone(), 0);
        let mut got: Vec<_> = first.by_ref().take(5).collect();
        got.extend(Sampler::with_sizes(100, sizes, first.consumed()));
        assert_eq!(got, whole);
    }
}
