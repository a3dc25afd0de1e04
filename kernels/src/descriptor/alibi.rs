//! Attention with linear biases (ALiBi; Press, Smith & Lewis 2022, arXiv:2108.12409): score(i, j) += slope (j - i) with a
//! slope for each head.
//!
//! Slopes of n heads, a power of two: 2^(-8 i / n) for head i from 1 on. Of another number: those of the largest power of two
//! below it, then every second one of twice that power, as the paper's code and BLOOM have them.
//!
//! We differ from transformers, which adds slope j: the bias is one of distance, so that a row's bits depend neither on the
//! start of its document nor on the rank that has its keys; a softmax is the same for both. Slopes are products of square
//! roots in f64, which IEEE 754 rounds correctly, so that every machine has the same.

use crate::Result;
use crate::error::refuse;

/// Positions from which f32 has not all of them, so that distances would be rounded.
const POSITIONS: usize = 1 << 24;

/// The heads whose slopes a call has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Alibi {
    /// Heads of the whole model, by which the slopes go.
    pub heads: usize,
    /// Number of the call's first head among them.
    pub first: usize,
}

impl Alibi {
    /// Returns the slope of one of the call's heads.
    pub fn slope(&self, head: usize) -> f32 {
        let (number, lower) = (self.first + head, 1 << self.heads.ilog2());
        let slope = if number < lower {
            power(number + 1, lower)
        } else {
            power(2 * (number - lower) + 1, 2 * lower)
        };
        #[expect(
            clippy::cast_possible_truncation,
            reason = "rounded once, to the nearest"
        )]
        let slope = slope as f32;
        slope
    }

    /// Refuses heads that the model has not, and positions that f32 has not.
    pub(crate) fn check(&self, op: &'static str, heads: usize, positions: usize) -> Result<()> {
        if self.first.saturating_add(heads) > self.heads {
            let (found, wanted) = (self.first.to_string(), format!("at most {}", self.heads));
            return refuse(
                op,
                "alibi",
                found,
                format!("{wanted} - {heads}, the call's heads"),
            );
        }
        if positions > POSITIONS {
            let wanted = format!("at most {POSITIONS} positions");
            return refuse(op, "alibi", positions.to_string(), wanted);
        }
        Ok(())
    }
}

/// 2^(-8 i / n) for an n that is a power of two, i at most n.
fn power(i: usize, n: usize) -> f64 {
    // 8 / n of a whole power per step
    let (whole, rest) = (8 * i / n, 8 * i % n);
    let mut value = 1.0;
    for _ in 0..whole {
        value *= 0.5;
    }
    let (mut root, mut bit) = (0.5_f64, n);
    while bit > 1 {
        root = root.sqrt();
        bit /= 2;
        if rest & bit != 0 {
            value *= root;
        }
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    /// i / n of every head by the definition; the slope is 2^(-8 i / n).
    fn exponent(head: usize, heads: usize) -> [usize; 2] {
        let lower = (heads + 1).next_power_of_two() / 2;
        let of_lower = (1..=lower).map(|i| [i, lower]);
        let between = (1..=2 * lower).step_by(2).map(|i| [i, 2 * lower]);
        of_lower.chain(between).nth(head).unwrap()
    }

    #[test]
    fn slopes_of_1_to_20_heads_are_the_nearest_numbers_to_the_powers() {
        for heads in 1..=20 {
            let alibi = Alibi { heads, first: 0 };
            for head in 0..heads {
                let [i, n] = exponent(head, heads);
                let slope = alibi.slope(head);
                // quarters of the exponent: slope^4 = 2^-quarters, exactly
                let quarters = 32 * i / n;
                assert_eq!(32 * i % n, 0);
                let (mantissa, scale) = (
                    slope.to_bits() & 0x7f_ffff | 0x80_0000,
                    slope.to_bits() >> 23,
                );
                // half a step below and above, in units of 2^(scale - 151)
                let [below, above] =
                    [2 * mantissa - 1, 2 * mantissa + 1].map(|x| u128::from(x).pow(4));
                let unit = 4 * (151 - scale as usize);
                let wanted = 1_u128 << (unit - quarters);
                assert!(below < wanted && wanted < above, "{head} of {heads}");
            }
        }
    }

    #[test]
    fn slopes_of_many_heads_are_powers_of_two_and_those_of_a_ranks_heads_the_models() {
        for heads in [32, 40, 71, 112, 128] {
            let alibi = Alibi { heads, first: 0 };
            for head in 0..heads {
                let [i, n] = exponent(head, heads);
                let wanted = (-8.0 * i as f64 / n as f64).exp2();
                let error = (f64::from(alibi.slope(head)) - wanted).abs() / wanted;
                assert!(
                    error <= f64::from(f32::EPSILON) / 2.0,
                    "{head} of {heads}: {error}"
                );
                let first = head / 8 * 8;
                let part = Alibi { heads, first };
                assert_eq!(
                    part.slope(head - first).to_bits(),
                    alibi.slope(head).to_bits()
                );
            }
        }
    }
}
