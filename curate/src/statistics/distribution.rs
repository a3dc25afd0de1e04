//! Distribution of a metric over documents (log-linear histogram), mergeable in any order.
//!
//! Exact as long as a metric takes few different values. Beyond that values fall into buckets by sign, exponent and the
//! upper six bits of the mantissa (a log-linear histogram as HdrHistogram's, with binary logarithm), so a quantile is off by
//! at most 1/128 of itself. Both forms are functions of the values alone: merging in any order, over any cut of the corpus,
//! gives the same bytes, which a t-digest does not. Sums are fixed-point for the same reason.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Different values that are kept as they are.
const EXACT: usize = 1024;
/// Bits of a value that its bucket leaves out.
const SHIFT: u32 = 46;
/// Fixed-point unit of sums.
const UNIT: f64 = (1u64 << 32) as f64;

/// Values of one metric.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Distribution {
    count: u64,
    /// In units of 2^-32; a string in JSON, whose numbers end at 64 bits.
    #[serde(with = "decimal")]
    sum: i128,
    /// True once values are in buckets.
    is_coarse: bool,
    /// Smallest and greatest, as integers in the order of the values.
    range: Option<(u64, u64)>,
    /// Values or their buckets, likewise.
    #[serde(with = "pairs")]
    counts: BTreeMap<u64, u64>,
}

impl Distribution {
    /// Adds a value; values that are not finite are left out.
    pub fn add(&mut self, value: f64) {
        if !value.is_finite() {
            return;
        }
        // no -0
        let value = value + 0.0;
        self.count += 1;
        self.sum += fixed(value);
        let key = ordered(value);
        self.stretch(key, key);
        *self.counts.entry(key >> self.shift()).or_default() += 1;
        self.coarsen();
    }

    /// Merges another distribution.
    pub fn merge(&mut self, other: &Distribution) {
        self.count += other.count;
        self.sum += other.sum;
        if let Some((least, most)) = other.range {
            self.stretch(least, most);
        }
        if other.is_coarse && !self.is_coarse {
            self.use_buckets();
        }
        let shift = self.shift() - other.shift();
        for (key, n) in &other.counts {
            *self.counts.entry(key >> shift).or_default() += n;
        }
        self.coarsen();
    }

    /// Values added.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Whether quantiles are observed values rather than middles of buckets.
    pub fn is_exact(&self) -> bool {
        !self.is_coarse
    }

    /// Sum of the values.
    pub fn sum(&self) -> f64 {
        self.sum as f64 / UNIT
    }

    /// Mean, 0 without values.
    pub fn mean(&self) -> f64 {
        self.sum() / self.count.max(1) as f64
    }

    /// Smallest and greatest value.
    pub fn range(&self) -> Option<(f64, f64)> {
        self.range.map(|(a, b)| (value_of(a), value_of(b)))
    }

    /// The value that `share` (0..=1) of the values do not exceed (nearest rank); within 1/128 of itself.
    pub fn quantile(&self, share: f64) -> Option<f64> {
        let (least, most) = self.range()?;
        // 0.07 of 100 is the seventh, in spite of rounding
        let rank = (share * self.count as f64 * (1.0 - 1e-12)).ceil().max(1.0);
        let mut seen = 0;
        for (key, n) in &self.counts {
            seen += n;
            if seen as f64 >= rank {
                return Some(self.middle(*key).clamp(least, most));
            }
        }
        Some(most)
    }

    /// (lower bound, values) of `bins` bins between the first and the last percent, which the outer bins also hold; as wide
    /// as each other, or as many times as great where the metric spans more than a factor of 50.
    pub fn histogram(&self, bins: usize) -> Vec<(f64, u64)> {
        let (Some(low), Some(high)) = (self.quantile(0.01), self.quantile(0.99)) else {
            return Vec::new();
        };
        let is_wide = low > 0.0 && high > 50.0 * low;
        let scaled = |x: f64| if is_wide { x.log2() } else { x };
        let (low, high) = (scaled(low), scaled(high));
        let width = (high - low) / bins as f64;
        if width <= 0.0 || !width.is_finite() {
            return vec![(if is_wide { low.exp2() } else { low }, self.count)];
        }
        let bound = |i: usize| low + width * i as f64;
        let mut counts: Vec<(f64, u64)> = (0..bins)
            .map(|i| (if is_wide { bound(i).exp2() } else { bound(i) }, 0))
            .collect();
        for (key, n) in &self.counts {
            let x = scaled(self.middle(*key));
            let bin = (1..bins).rev().find(|i| x >= bound(*i)).unwrap_or(0);
            counts[bin].1 += n;
        }
        counts
    }

    fn shift(&self) -> u32 {
        if self.is_coarse { SHIFT } else { 0 }
    }

    fn stretch(&mut self, least: u64, most: u64) {
        self.range = match self.range {
            Some((a, b)) => Some((a.min(least), b.max(most))),
            None => Some((least, most)),
        };
    }

    fn coarsen(&mut self) {
        if !self.is_coarse && self.counts.len() > EXACT {
            self.use_buckets();
        }
    }

    fn use_buckets(&mut self) {
        self.is_coarse = true;
        for (key, n) in std::mem::take(&mut self.counts) {
            *self.counts.entry(key >> SHIFT).or_default() += n;
        }
    }

    fn middle(&self, key: u64) -> f64 {
        if !self.is_coarse {
            return value_of(key);
        }
        let low = key << SHIFT;
        // zero and tiny values
        if value_of(low) == 0.0 {
            return 0.0;
        }
        value_of(low | (1 << (SHIFT - 1)))
    }
}

/// Bits of a float as an integer that compares as the float does.
fn ordered(value: f64) -> u64 {
    let bits = value.to_bits();
    match bits >> 63 {
        0 => bits | (1 << 63),
        _ => !bits,
    }
}

fn value_of(ordered: u64) -> f64 {
    f64::from_bits(match ordered >> 63 {
        0 => !ordered,
        _ => ordered & !(1 << 63),
    })
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "a sum of values beyond 2^63 saturates"
)]
fn fixed(value: f64) -> i128 {
    const MOST: f64 = 9.2e18;
    (value.clamp(-MOST, MOST) * UNIT).round() as i128
}

/// An i128 as text.
mod decimal {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(super) fn serialize<S: Serializer>(sum: &i128, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(sum)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<i128, D::Error> {
        String::deserialize(d)?.parse().map_err(D::Error::custom)
    }
}

/// A map as pairs: keys of JSON objects are texts.
mod pairs {
    use std::collections::BTreeMap;

    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(
        counts: &BTreeMap<u64, u64>,
        s: S,
    ) -> Result<S::Ok, S::Error> {
        s.collect_seq(counts)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        d: D,
    ) -> Result<BTreeMap<u64, u64>, D::Error> {
        Ok(Vec::<(u64, u64)>::deserialize(d)?.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values over many orders of magnitude, on both sides of zero.
    fn value(i: u64) -> f64 {
        let x = i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 11;
        let unit = x as f64 / (1u64 << 53) as f64;
        let sign = if i.is_multiple_of(7) { -1.0 } else { 1.0 };
        match i % 5 {
            0 => 0.0,
            1 => (i % 900) as f64,
            _ => sign * (unit * 40.0 - 20.0).exp2(),
        }
    }

    fn of(range: std::ops::Range<u64>) -> Distribution {
        let mut d = Distribution::default();
        range.for_each(|i| d.add(value(i)));
        d
    }

    #[test]
    fn quantiles_are_within_a_hundred_and_twenty_eighth_of_the_sorted_values() {
        for n in [1, 10, 500, 20_000] {
            let d = of(0..n);
            let mut sorted: Vec<f64> = (0..n).map(value).collect();
            sorted.sort_by(f64::total_cmp);
            assert_eq!(d.range(), Some((sorted[0], sorted[sorted.len() - 1])));
            assert_eq!(d.is_exact(), n <= 500, "{n}");
            for percent in 0..=100u64 {
                let share = percent as f64 / 100.0;
                let rank = (n * percent).div_ceil(100).max(1) - 1;
                let (found, wanted) = (
                    d.quantile(share).unwrap(),
                    sorted[usize::try_from(rank).unwrap()],
                );
                let most = if d.is_exact() {
                    0.0
                } else {
                    wanted.abs() / 128.0
                };
                assert!(
                    (found - wanted).abs() <= most,
                    "{n} {percent}: {found} {wanted}"
                );
            }
            let sum: f64 = sorted.iter().sum();
            assert!((d.sum() - sum).abs() < 1e-9 * n as f64 + 1e-6 * sum.abs());
        }
    }

    #[test]
    fn any_order_of_merging_gives_the_same_bytes() {
        for n in [40, 3_000] {
            let whole = of(0..n);
            for cuts in [2, 3, 17] {
                let part = |i: u64| of(i * n / cuts..(i + 1) * n / cuts);
                let (mut there, mut back) = (Distribution::default(), Distribution::default());
                (0..cuts).for_each(|i| there.merge(&part(i)));
                (0..cuts).rev().for_each(|i| back.merge(&part(i)));
                assert!(there == whole && back == whole, "{n} {cuts}");
            }
            let text = serde_json::to_string(&whole).unwrap();
            assert!(serde_json::from_str::<Distribution>(&text).unwrap() == whole);
        }
    }

    #[test]
    fn a_histogram_holds_every_value_once() {
        for n in [0, 1, 700, 20_000] {
            let histogram = of(0..n).histogram(8);
            assert_eq!(histogram.iter().map(|b| b.1).sum::<u64>(), n);
            assert!(histogram.is_sorted_by(|a, b| a.0 < b.0));
        }
        let mut d = Distribution::default();
        (1 << 12..1 << 13).for_each(|i| d.add(f64::from(i)));
        let bins = d.histogram(8);
        assert!(
            bins[1..7].iter().all(|b| (400..=520).contains(&b.1)),
            "{bins:?}"
        );
    }

    #[test]
    fn what_is_no_number_is_left_out() {
        let mut d = Distribution::default();
        for value in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            d.add(value);
        }
        assert_eq!((d.count(), d.quantile(0.5), d.mean()), (0, None, 0.0));
        for value in [f64::MAX, f64::MIN, f64::MIN_POSITIVE, -0.0] {
            d.add(value);
        }
        assert_eq!((d.count(), d.range()), (4, Some((f64::MIN, f64::MAX))));
        assert_eq!(d.quantile(0.5), Some(0.0));
    }
}
