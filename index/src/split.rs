//! Split strings such as `949,50,1` to ranges of elements, with the arithmetic of NumPy and Python.
//!
//! Every match of `[.0-9]+` is a ratio; up to three are padded with 0.0; ratios are divided by numpy's sum; bounds
//! are cumulative sums; an element range is round-half-even(bound * elements). Source: megatron-core
//! `blended_megatron_dataset_config.py`. We differ: an empty split of which samples are requested is an error
//! (Megatron loops for ever, NVIDIA/Megatron-LM issue 957).

use crate::error::{Error, Result};
use std::ops::Range;

/// The three parts of a dataset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// Training samples.
    Train,
    /// Validation samples.
    Valid,
    /// Test samples.
    Test,
}

impl Part {
    /// In order.
    pub const ALL: [Part; 3] = [Part::Train, Part::Valid, Part::Test];

    /// As file names and reports spell it.
    pub fn name(self) -> &'static str {
        match self {
            Part::Train => "train",
            Part::Valid => "valid",
            Part::Test => "test",
        }
    }
}

/// Begin and end of a part, as fractions of a dataset.
pub type Bounds = (f64, f64);

/// Bounds of the three parts as fractions; `None` where a part is empty by its ratio.
///
/// # Errors
/// `Split` if there is no number, more than three, a number that is not one, or a sum of zero.
pub fn parse(split: &str) -> Result<[Option<Bounds>; 3]> {
    let wrong = |found: String| {
        let wanted = "one to three ratios like 949,50,1";
        Error::Split {
            split: split.to_string(),
            found,
            wanted,
        }
    };
    let mut ratios = Vec::new();
    for word in split
        .split(|c: char| c != '.' && !c.is_ascii_digit())
        .filter(|w| !w.is_empty())
    {
        ratios.push(
            word.parse::<f64>()
                .map_err(|_| wrong(format!("{word:?}")))?,
        );
    }
    if ratios.is_empty() || ratios.len() > 3 {
        return Err(wrong(format!("{} numbers", ratios.len())));
    }
    ratios.resize(3, 0.0);
    let sum = numpy_sum(&ratios);
    if sum <= 0.0 || !sum.is_finite() {
        return Err(wrong(format!("a sum of {sum}")));
    }
    let mut parts = [None; 3];
    let mut from = 0.0;
    for (part, ratio) in parts.iter_mut().zip(&ratios) {
        let to = from + ratio / sum;
        if to > from {
            *part = Some((from, to));
        }
        from = to;
    }
    Ok(parts)
}

/// Elements of one part.
pub(crate) fn elements(bounds: Bounds, count: u64) -> Range<u64> {
    let at = |bound: f64| {
        let x = (bound * count as f64).round_ties_even();
        // bound <= 1 + a few ulp, so the product stays near count; clamped against those ulps
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "clamped below"
        )]
        let x = x.max(0.0) as u64;
        x.min(count)
    };
    at(bounds.0)..at(bounds.1)
}

/// numpy's pairwise `sum` of float64: blocks of 128 with eight lanes, halves above that.
pub(crate) fn numpy_sum(x: &[f64]) -> f64 {
    let n = x.len();
    if n < 8 {
        return x.iter().fold(0.0, |a, b| a + b);
    }
    if n <= 128 {
        let mut lane = [0.0; 8];
        lane.copy_from_slice(&x[..8]);
        let whole = n - n % 8;
        for block in x[8..whole].chunks_exact(8) {
            for (l, v) in lane.iter_mut().zip(block) {
                *l += v;
            }
        }
        let [a, b, c, d, e, f, g, h] = lane;
        let sum = ((a + b) + (c + d)) + ((e + f) + (g + h));
        return x[whole..].iter().fold(sum, |a, b| a + b);
    }
    let half = n / 2 - (n / 2) % 8;
    numpy_sum(&x[..half]) + numpy_sum(&x[half..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn megatrons_default_split_gives_its_bounds() {
        let [a, b, c] = parse("949,50,1").unwrap();
        assert_eq!(a, Some((0.0, 0.949)));
        assert_eq!(b.map(|b| elements(b, 2000)), Some(1898..1998));
        assert_eq!(c.map(|c| elements(c, 2000)), Some(1998..2000));
        assert_eq!(elements(a.unwrap(), 2000), 0..1898);
    }

    #[test]
    fn half_way_bounds_round_to_even_as_python_does() {
        assert_eq!(elements((0.0, 0.5), 5), 0..2);
        assert_eq!(elements((0.0, 0.5), 7), 0..4);
    }

    #[test]
    fn a_missing_ratio_is_an_absent_part_and_nonsense_is_refused() {
        assert_eq!(parse("1").unwrap()[1], None);
        assert!(parse("98,2,0").unwrap()[2].is_none());
        for bad in ["", "a,b", "0,0,0", "1,1,1,1", "1.2.3"] {
            assert!(parse(bad).is_err(), "{bad:?} accepted");
        }
    }

    #[test]
    fn pairwise_sum_equals_the_exact_sum_where_that_is_exact() {
        for n in [0usize, 1, 7, 8, 9, 127, 128, 129, 1000] {
            let x: Vec<f64> = (0..n).map(|i| i as f64).collect();
            let want = (n * n.saturating_sub(1) / 2) as f64;
            assert_eq!(numpy_sum(&x), want);
        }
    }
}
