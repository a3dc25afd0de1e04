//! A batch's integer sums for the router's losses, and the losses.
//!
//! Load balance: `E sum_i f_i P_i`, f the share of all choices, P the mean probability. Probabilities are
//! the softmax, or for `Sigmoid` the scores over their sum. z-loss: mean of the squared log-sum of exp.

use crate::{Error, Result, Tensor};

/// One unit of a summed probability is 2^-32.
const PROBABILITY: f64 = (1_u64 << 32) as f64;
/// One unit of a summed square is 2^-24.
const SQUARE: f64 = (1_u64 << 24) as f64;
/// Sums beside those of experts, on a device: a square has four parts of 32 bits, each summed alone, and broken tokens.
pub(super) const MORE_SUMS: usize = 5;

/// Sums over tokens; adding two of them is exact in any order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Statistics {
    /// Tokens.
    pub tokens: u64,
    /// Experts per token.
    pub k: usize,
    /// Choices of each expert by its score alone, which the load balance is about; a bias does not change them.
    pub counts: Vec<u64>,
    /// Choices of each expert as made, with the bias if there is one, before any drop.
    pub choices: Vec<u64>,
    /// Probabilities of each expert.
    probabilities: Vec<u64>,
    /// Squared log-sums.
    squares: u128,
    /// Tokens with a logit or log-sum that is not finite: the losses are then NaN.
    not_finite: u64,
}

/// Statistics that may still be on the device.
pub enum Unread {
    /// On the host.
    Known(Statistics),
    /// On the device.
    Words(Words),
}

/// Statistics on the device.
#[derive(Debug)]
pub struct Words {
    /// Numbers of 64 bits, two words each: `[3, experts]`, choices by score alone, choices as made, probabilities; then the
    /// parts of the squared log-sums, the lowest first, and the tokens that are not finite.
    pub(super) sums: Tensor,
    pub(super) tokens: usize,
    pub(super) k: usize,
}

impl Words {
    pub(super) fn experts(&self) -> usize {
        (self.sums.elements() / 2 - MORE_SUMS) / 3
    }
}

impl Unread {
    /// The tensor whose words `read` takes; `None` if the statistics are known.
    pub fn tensor(&self) -> Option<&Tensor> {
        match self {
            Unread::Known(_) => None,
            Unread::Words(Words { sums, .. }) => Some(sums),
        }
    }

    /// The statistics, by the words of `tensor`.
    /// # Errors
    /// `Argument` if the words are not its.
    pub fn read(&self, words: &[u32]) -> Result<Statistics> {
        let unread = match self {
            Unread::Known(statistics) => return Ok(statistics.clone()),
            Unread::Words(unread) => unread,
        };
        if words.len() != unread.sums.elements() {
            return Err(Error::Argument {
                op: "route::Unread::read",
                name: "words",
                found: format!("{} words", words.len()),
                wanted: "those of `tensor`".to_owned(),
            });
        }
        let pairs = words.chunks_exact(2).map(|pair| [pair[0], pair[1]]);
        let sums: Vec<u64> = pairs.map(bytemuck::cast).collect();
        let experts = unread.experts();
        let (counts, rest) = sums.split_at(experts);
        let (choices, rest) = rest.split_at(experts);
        let (probabilities, rest) = rest.split_at(experts);
        let (parts, not_finite) = rest.split_at(MORE_SUMS - 1);
        let squares = parts.iter().rev().fold(0_u128, |squares, part| {
            squares
                .saturating_mul(1 << 32)
                .saturating_add(u128::from(*part))
        });
        Ok(Statistics {
            tokens: unread.tokens as u64,
            k: unread.k,
            counts: counts.to_vec(),
            choices: choices.to_vec(),
            probabilities: probabilities.to_vec(),
            squares,
            not_finite: not_finite[0],
        })
    }

    /// Tokens, experts and choices per token.
    pub(super) fn sizes(&self) -> [usize; 3] {
        match self {
            Unread::Known(known) => {
                let tokens = usize::try_from(known.tokens).unwrap_or(usize::MAX);
                [tokens, known.counts.len(), known.k]
            }
            Unread::Words(unread) => [unread.tokens, unread.experts(), unread.k],
        }
    }
}

impl From<Statistics> for Unread {
    fn from(statistics: Statistics) -> Self {
        Unread::Known(statistics)
    }
}

/// Factors of the losses in the sum that is minimised.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Coefficients {
    /// Coefficient of the load balance.
    pub balance: f64,
    /// Coefficient of the z-loss.
    pub z: f64,
}

/// The losses of a router.
#[derive(Clone, Copy)]
pub struct Losses<'a> {
    /// Those of all tokens over which the losses are means.
    pub statistics: &'a Unread,
    /// Factors of the losses.
    pub coefficients: &'a Coefficients,
}

/// Derivatives of the losses that are the same for all tokens.
pub(super) struct Slopes {
    /// By each expert's probability.
    pub(super) balance: Vec<f64>,
    /// Derivative by a token's squared log-sum.
    pub(super) z: f64,
}

impl Statistics {
    /// Returns the statistics of no tokens.
    pub fn new(experts: usize, k: usize) -> Statistics {
        Statistics {
            tokens: 0,
            k,
            counts: vec![0; experts],
            choices: vec![0; experts],
            probabilities: vec![0; experts],
            squares: 0,
            not_finite: 0,
        }
    }

    /// Adds those of other tokens of the same router.
    pub fn add(&mut self, other: &Statistics) {
        self.tokens += other.tokens;
        for (a, b) in self.counts.iter_mut().zip(&other.counts) {
            *a += b;
        }
        for (a, b) in self.choices.iter_mut().zip(&other.choices) {
            *a += b;
        }
        for (a, b) in self.probabilities.iter_mut().zip(&other.probabilities) {
            *a += b;
        }
        self.squares = self.squares.saturating_add(other.squares);
        self.not_finite += other.not_finite;
    }

    /// Returns everything as whole numbers below 2^32, which any transport of f64 keeps.
    #[expect(clippy::cast_possible_truncation, reason = "halves of u128 and of u64")]
    pub fn words(&self) -> Vec<f64> {
        let mut words = Vec::new();
        let mut push = |number: u64| {
            for half in [number >> 32, number & 0xffff_ffff] {
                words.push(half as f64);
            }
        };
        push(self.tokens);
        push(self.not_finite);
        push((self.squares >> 64) as u64);
        push((self.squares & u128::from(u64::MAX)) as u64);
        self.counts.iter().for_each(|count| push(*count));
        self.choices.iter().for_each(|count| push(*count));
        self.probabilities.iter().for_each(|p| push(*p));
        words
    }

    /// Decodes statistics from `words`.
    /// # Errors
    /// `Argument` if the words are not those of a router with that k.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "checked to be whole and below 2^32"
    )]
    pub fn from_words(words: &[f64], k: usize) -> Result<Statistics> {
        let is_word = |x: &f64| (0.0..4_294_967_296.0).contains(x) && x.fract() == 0.0;
        if words.len() < 14 || !(words.len() - 8).is_multiple_of(6) || !words.iter().all(is_word) {
            return Err(Error::Argument {
                op: "route::Statistics::from_words",
                name: "words",
                found: format!("{} numbers", words.len()),
                wanted: "those of `words`".to_owned(),
            });
        }
        let numbers: Vec<u64> = (words.chunks_exact(2))
            .map(|halves| ((halves[0] as u64) << 32) + halves[1] as u64)
            .collect();
        let experts = (numbers.len() - 4) / 3;
        let (counts, rest) = numbers[4..].split_at(experts);
        let (choices, probabilities) = rest.split_at(experts);
        Ok(Statistics {
            tokens: numbers[0],
            k,
            counts: counts.to_vec(),
            choices: choices.to_vec(),
            probabilities: probabilities.to_vec(),
            squares: (u128::from(numbers[2]) << 64) + u128::from(numbers[3]),
            not_finite: numbers[1],
        })
    }

    /// Adds one token: the experts with the largest scores, the choices made, probabilities of all experts, log-sum.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "a probability is at most 1; a finite square that is too large saturates"
    )]
    pub(super) fn token(
        &mut self,
        largest: &[u32],
        chosen: &[u32],
        probabilities: &[f64],
        log_sum: f64,
    ) {
        self.tokens += 1;
        for expert in largest {
            self.counts[*expert as usize] += 1;
        }
        for expert in chosen {
            self.choices[*expert as usize] += 1;
        }
        let square = log_sum * log_sum;
        if !square.is_finite() || probabilities.iter().any(|p| !p.is_finite()) {
            self.not_finite += 1;
            return;
        }
        for (sum, p) in self.probabilities.iter_mut().zip(probabilities) {
            *sum += (p * PROBABILITY).round() as u64;
        }
        self.squares = self
            .squares
            .saturating_add((square * SQUARE).round() as u128);
    }

    /// Load balance loss; 1 when choices and probabilities are even.
    pub fn balance_loss(&self) -> f64 {
        let tokens = self.tokens as f64;
        let terms = self.counts.iter().zip(&self.probabilities);
        let sum: f64 = terms
            .map(|(count, p)| *count as f64 * (*p as f64 / PROBABILITY))
            .sum();
        self.unless_broken(self.counts.len() as f64 * sum / (self.k as f64 * tokens * tokens))
    }

    /// z-loss.
    pub fn z_loss(&self) -> f64 {
        self.unless_broken(self.squares as f64 / SQUARE / self.tokens as f64)
    }

    fn unless_broken(&self, loss: f64) -> f64 {
        if self.not_finite > 0 { f64::NAN } else { loss }
    }

    pub(super) fn slopes(&self, coefficients: &Coefficients) -> Slopes {
        let of = SlopeFactors::of(self.tokens, self.counts.len(), self.k, coefficients);
        let slope = |count: &u64| of.scale * *count as f64 / of.divisor;
        Slopes {
            balance: self.counts.iter().map(slope).collect(),
            z: of.z,
        }
    }
}

/// The part of the derivatives that does not depend on the choices: an expert's is `scale` times its choices over `divisor`.
pub(super) struct SlopeFactors {
    pub(super) scale: f64,
    pub(super) divisor: f64,
    /// Derivative by a token's squared log-sum.
    pub(super) z: f64,
}

impl SlopeFactors {
    pub(super) fn of(
        tokens: u64,
        experts: usize,
        k: usize,
        coefficients: &Coefficients,
    ) -> SlopeFactors {
        let tokens = tokens as f64;
        SlopeFactors {
            scale: coefficients.balance * experts as f64,
            divisor: k as f64 * tokens * tokens,
            z: coefficients.z / tokens,
        }
    }
}
