//! Rotary frequencies: angles per position of the rotated pairs, with the ways to scale them for longer texts. All
//! in f64.
//!
//! Plain: `f[i] = theta^(-2i/r)`, r the rotated features of a head (all, or the first part of it).
//! Linear (Chen et al. 2023, arXiv:2306.15595): f / factor.
//! Dynamic NTK: theta grows by `(factor * n / original - factor + 1)^(r / (r - 2))`, n the text's length.
//! YaRN (Peng et al. 2023, arXiv:2309.00071): f / factor for pairs that turn less than `beta_slow` times
//! over the original length, f above `beta_fast` turns, a linear ramp over i between; cos and sin times
//! `0.1 ln(factor) + 1`.
//! Llama 3: f / factor for wavelengths above original / low, f below original / high, a mix between.
//! The numbers are those of transformers' `ROPE_INIT_FUNCTIONS`. We differ: f64, not f32, until cosines and sines are
//! taken; a length is given once per run, so angles do not change inside a text.

use crate::{Error, Result};
use std::f64::consts::TAU;

/// Scaling of the frequencies beyond the length that a model was trained with.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Scaling {
    /// Not at all.
    Plain,
    /// All divided by `factor`.
    Linear {
        /// Stretch, at least 1.
        factor: f64,
    },
    /// A larger theta for longer texts.
    Dynamic {
        /// Stretch, at least 1.
        factor: f64,
        /// Tokens that the model was made for.
        original: usize,
        /// Tokens of the text; fewer than `original` count as `original`.
        length: usize,
    },
    /// YaRN: a ramp over pairs.
    Yarn {
        /// Stretch, at least 1.
        factor: f64,
        /// Tokens that the model was made for.
        original: usize,
        /// Turns above which a pair is left alone. Paper: 32.
        beta_fast: f64,
        /// Turns below which a pair is stretched in full. Paper: 1.
        beta_slow: f64,
        /// Whether the ramp's ends are rounded outwards to whole pairs, as in the paper's program.
        truncate: bool,
        /// Factor of cos and sin; `None` is `0.1 ln(factor) + 1`.
        magnitude: Option<f64>,
    },
    /// Three bands of wavelengths.
    Llama3 {
        /// Stretch, at least 1.
        factor: f64,
        /// Wavelengths above original / low are stretched in full. Llama 3.1: 1.
        low: f64,
        /// Wavelengths below original / high are left alone. Llama 3.1: 4.
        high: f64,
        /// Tokens that the model was made for.
        original: usize,
    },
}

/// Angles per position and the factor of cosines and sines.
#[derive(Clone, Debug, PartialEq)]
pub struct Frequencies {
    /// Radians per position, one per pair.
    steps: Vec<f64>,
    /// Factor of cosines and sines.
    magnitude: f64,
}

impl Frequencies {
    /// Most rotated features of a head, far above any model's: the table of angles has half as many.
    pub const MOST_ROTARY: usize = 1 << 16;

    /// Returns the frequencies of the first `rotary` features of each head.
    /// # Errors
    /// `Argument` if rotary is odd, 0 or above `MOST_ROTARY`, or a number is out of range.
    pub fn new(theta: f64, rotary: usize, scaling: &Scaling) -> Result<Frequencies> {
        check(theta, rotary, scaling)?;
        let plain = |theta: f64| -> Vec<f64> {
            let step = |i: usize| theta.powf(-2.0 * i as f64 / rotary as f64);
            (0..rotary / 2).map(step).collect()
        };
        let mut steps = plain(theta);
        let mut magnitude = 1.0;
        match *scaling {
            Scaling::Plain => {}
            Scaling::Linear { factor } => steps.iter_mut().for_each(|f| *f /= factor),
            Scaling::Dynamic {
                factor,
                original,
                length,
            } => {
                let length = length.max(original) as f64;
                let r = rotary as f64;
                let growth = factor * length / original as f64 - (factor - 1.0);
                steps = plain(theta * growth.powf(r / (r - 2.0)));
            }
            Scaling::Yarn {
                factor,
                original,
                beta_fast,
                beta_slow,
                truncate,
                magnitude: given,
            } => {
                let ramp = ramp(theta, rotary, original, beta_fast, beta_slow, truncate);
                for (i, f) in steps.iter_mut().enumerate() {
                    let stretched = ramp(i);
                    *f = *f / factor * stretched + *f * (1.0 - stretched);
                }
                magnitude = given.unwrap_or(0.1 * factor.ln() + 1.0);
            }
            Scaling::Llama3 {
                factor,
                low,
                high,
                original,
            } => {
                for f in &mut steps {
                    // Turns over the original length: its share of the band is how much is kept.
                    let turns = original as f64 * *f / TAU;
                    let kept = ((turns - low) / (high - low)).clamp(0.0, 1.0);
                    *f = (1.0 - kept) * *f / factor + kept * *f;
                }
            }
        }
        Ok(Frequencies { steps, magnitude })
    }

    /// Radians per position, one per rotated pair.
    pub fn steps(&self) -> &[f64] {
        &self.steps
    }

    /// Factor of cosines and sines.
    pub fn magnitude(&self) -> f64 {
        self.magnitude
    }
}

/// Share of the stretch that pair i gets: 0 below the ramp, 1 above.
fn ramp(
    theta: f64,
    rotary: usize,
    original: usize,
    fast: f64,
    slow: f64,
    truncate: bool,
) -> impl Fn(usize) -> f64 {
    let r = rotary as f64;
    let pair = |turns: f64| r * (original as f64 / (turns * TAU)).ln() / (2.0 * theta.ln());
    let (mut first, mut last) = (pair(fast), pair(slow));
    if truncate {
        (first, last) = (first.floor(), last.ceil());
    }
    (first, last) = (first.max(0.0), last.min(r - 1.0));
    if first == last {
        last += 0.001; // as in the paper's program, so that the ramp is a step
    }
    move |i| ((i as f64 - first) / (last - first)).clamp(0.0, 1.0)
}

fn check(theta: f64, rotary: usize, scaling: &Scaling) -> Result<()> {
    let argument = |name, found: String, wanted: &str| {
        Err(Error::Argument {
            op: "rope",
            name,
            found,
            wanted: wanted.to_owned(),
        })
    };
    if rotary == 0 || !rotary.is_multiple_of(2) {
        return argument("rotary", rotary.to_string(), "even and above 0");
    }
    if rotary > Frequencies::MOST_ROTARY {
        let wanted = format!("at most {}", Frequencies::MOST_ROTARY);
        return argument("rotary", rotary.to_string(), &wanted);
    }
    if !(theta > 0.0 && theta.is_finite()) {
        return argument("theta", theta.to_string(), "above 0 and finite");
    }
    let (factor, original) = match *scaling {
        Scaling::Plain => return Ok(()),
        Scaling::Linear { factor } => (factor, 1),
        Scaling::Dynamic {
            factor, original, ..
        }
        | Scaling::Yarn {
            factor, original, ..
        }
        | Scaling::Llama3 {
            factor, original, ..
        } => (factor, original),
    };
    if !(factor >= 1.0 && factor.is_finite()) {
        return argument("factor", factor.to_string(), "at least 1 and finite");
    }
    if original == 0 {
        return argument("original", original.to_string(), "above 0");
    }
    match *scaling {
        Scaling::Dynamic { .. } if rotary == 2 => {
            argument("rotary", rotary.to_string(), "above 2 for dynamic scaling")
        }
        Scaling::Yarn {
            beta_fast,
            beta_slow,
            ..
        } if !(beta_slow > 0.0 && beta_fast > beta_slow && beta_fast.is_finite()) => {
            let found = format!("{beta_slow} and {beta_fast}");
            argument("beta_slow and beta_fast", found, "rising and above 0")
        }
        Scaling::Yarn { .. } if theta <= 1.0 => argument("theta", theta.to_string(), "above 1"),
        Scaling::Yarn {
            magnitude: Some(m), ..
        } if !(m > 0.0 && m.is_finite()) => {
            argument("magnitude", m.to_string(), "above 0 and finite")
        }
        Scaling::Llama3 { low, high, .. } if !(low > 0.0 && high > low && high.is_finite()) => {
            let found = format!("{low} and {high}");
            argument("low and high", found, "rising and above 0")
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lines of `name, numbers of the scaling, | , frequencies, magnitude`.
    const GOLDEN: &str = include_str!("../../tests/data/rope.txt");

    fn parsed(line: &str) -> (f64, usize, Scaling, Vec<f64>) {
        let (left, right) = line.split_once('|').unwrap();
        let words: Vec<&str> = left.split_whitespace().collect();
        let n: Vec<f64> = words[1..].iter().map(|w| w.parse().unwrap()).collect();
        let whole = |i: usize| words[1 + i].parse::<usize>().unwrap();
        let scaling = match words[0] {
            "plain" => Scaling::Plain,
            "linear" => Scaling::Linear { factor: n[2] },
            "dynamic" => Scaling::Dynamic {
                factor: n[2],
                original: whole(3),
                length: whole(4),
            },
            "yarn" => Scaling::Yarn {
                factor: n[2],
                original: whole(3),
                beta_fast: n[4],
                beta_slow: n[5],
                truncate: n[6] == 1.0,
                magnitude: (n[7] > 0.0).then_some(n[7]),
            },
            _ => Scaling::Llama3 {
                factor: n[2],
                low: n[3],
                high: n[4],
                original: whole(5),
            },
        };
        let numbers = right.split_whitespace().map(|w| w.parse().unwrap());
        (n[0], whole(1), scaling, numbers.collect())
    }

    #[test]
    fn frequencies_are_those_of_transformers() {
        let mut kinds = std::collections::BTreeSet::new();
        for line in GOLDEN.lines() {
            kinds.insert(line.split_whitespace().next().unwrap());
            let (theta, rotary, scaling, want) = parsed(line);
            let found = Frequencies::new(theta, rotary, &scaling).unwrap();
            assert_eq!(found.steps.len() + 1, want.len());
            for (i, (f, w)) in found.steps.iter().zip(&want).enumerate() {
                // Two powers of one ulp each and up to six roundings.
                assert!(
                    (f - w).abs() <= 8.0 * f64::EPSILON * w,
                    "{line}: pair {i}: {f}"
                );
                #[expect(clippy::cast_possible_truncation, reason = "compared as f32")]
                let (f, w) = (*f as f32, *w as f32);
                assert_eq!(f.to_bits(), w.to_bits(), "{line}: pair {i}");
            }
            let w = want[want.len() - 1];
            assert!((found.magnitude - w).abs() <= 2.0 * f64::EPSILON * w);
            // Must fail: another theta.
            let other = Frequencies::new(theta * 1.001, rotary, &scaling).unwrap();
            let last = rotary / 2 - 1;
            assert!((other.steps[last] / want[last] - 1.0).abs() > 1e-4);
        }
        assert_eq!(kinds.len(), 5);
    }

    #[test]
    fn numbers_out_of_range_are_refused_by_name() {
        let name = |theta, rotary, scaling: Scaling| match Frequencies::new(theta, rotary, &scaling)
        {
            Err(Error::Argument { name, .. }) => name,
            other => panic!("{other:?}"),
        };
        let yarn = |beta_fast, magnitude| Scaling::Yarn {
            factor: 2.0,
            original: 64,
            beta_fast,
            beta_slow: 1.0,
            truncate: true,
            magnitude,
        };
        let llama = |high| Scaling::Llama3 {
            factor: 8.0,
            low: 1.0,
            high,
            original: 64,
        };
        let dynamic = |original| Scaling::Dynamic {
            factor: 2.0,
            original,
            length: 9,
        };
        assert_eq!(name(1e4, 7, Scaling::Plain), "rotary");
        assert_eq!(name(1e4, 0, Scaling::Plain), "rotary");
        // refused before a table of as many angles is made
        assert_eq!(name(1e4, usize::MAX - 1, Scaling::Plain), "rotary");
        assert_eq!(name(f64::NAN, 8, Scaling::Plain), "theta");
        assert_eq!(name(1e4, 8, Scaling::Linear { factor: 0.5 }), "factor");
        assert_eq!(name(1e4, 8, dynamic(0)), "original");
        assert_eq!(name(1e4, 2, dynamic(8)), "rotary");
        assert_eq!(name(1e4, 8, yarn(0.5, None)), "beta_slow and beta_fast");
        assert_eq!(name(1e4, 8, yarn(32.0, Some(-1.0))), "magnitude");
        assert_eq!(name(1.0, 8, yarn(32.0, None)), "theta");
        assert_eq!(name(1e4, 8, llama(1.0)), "low and high");
    }
}
