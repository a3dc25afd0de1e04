//! Models of two labels as one weight a feature.
//!
//! With softmax over two labels the probability of the second is the logistic function of (w1 - w0) . h, and h is the
//! mean of rows r, so it is the mean of the numbers (w1 - w0) . r: both layers of the model fold into a number for each
//! row. A word costs one look into a table that holds the number beside the word's hash, a word n-gram one load.
//! For models without character n-grams that are not pruned; sums are f64.
//!
//! Folding rounds each number to f32, by at most 2^-25 of it; p changes by a quarter of that at most, which
//! [`MOST`] holds below 1e-5.

use xxhash_rust::xxh3::xxh3_64;

use super::dictionary::{CHAIN, Dictionary, END, LABEL, SEED, mix};
use super::loss::{Output, log, single};
use super::matrix::Matrix;

/// Greatest number of a row: 2^-25 / 4 of it are 2e-6.
const MOST: f64 = 256.0;
/// Longest word n-grams.
const MOST_NGRAMS: usize = 8;

/// A word's hash, its number, and whether the slot is taken.
#[derive(Clone, Copy, Default)]
struct Slot {
    key: u64,
    number: f32,
    is_taken: bool,
}

pub(super) struct Folded {
    /// At `key & mask` or behind; never full.
    slots: Vec<Slot>,
    mask: usize,
    buckets: Vec<f32>,
    divisor: u64,
    /// 2^64 / divisor, rounded down.
    inverse: u64,
    ngrams: usize,
}

impl Folded {
    /// The same model folded; nothing if it cannot be.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the low bits of a hash; bounded by MOST"
    )]
    pub(super) fn of(
        dictionary: &Dictionary,
        input: &Matrix,
        output: &Output,
        dim: usize,
    ) -> Option<Folded> {
        let shape = dictionary.shape;
        if dictionary.is_pruned() || shape.maxn > 0 || shape.word_ngrams > MOST_NGRAMS {
            return None;
        }
        let with = output.difference(dim)?;
        let mut row = vec![0.0f32; dim];
        let mut number = |at: usize| {
            row.fill(0.0);
            input.add(at, &mut row);
            let products = row.iter().zip(&with).map(|(a, b)| f64::from(*a) * b);
            let sum: f64 = products.sum();
            (sum.abs() <= MOST).then_some(sum as f32)
        };
        let size = (2 * dictionary.words.len() + 2).next_power_of_two();
        let mut made = Folded {
            slots: vec![Slot::default(); size],
            mask: size - 1,
            buckets: Vec::with_capacity(shape.bucket as usize),
            divisor: u64::from(shape.bucket.max(1)),
            inverse: u64::MAX / u64::from(shape.bucket.max(1)),
            ngrams: if shape.bucket == 0 {
                1
            } else {
                shape.word_ngrams.max(1)
            },
        };
        for (&key, &at) in &dictionary.words {
            let number = number(at)?;
            let mut slot = key as usize & made.mask;
            while made.slots[slot].is_taken {
                slot = (slot + 1) & made.mask;
            }
            made.slots[slot] = Slot {
                key,
                number,
                is_taken: true,
            };
        }
        if made.ngrams > 1 {
            for bucket in 0..shape.bucket as usize {
                made.buckets.push(number(dictionary.word_count + bucket)?);
            }
        }
        Some(made)
    }

    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "the low bits of a hash")]
    fn find(&self, word: &[u8]) -> Option<f32> {
        let key = xxh3_64(word);
        let mut at = key as usize & self.mask;
        loop {
            let slot = self.slots[at];
            if !slot.is_taken {
                return None;
            }
            if slot.key == key {
                return Some(slot.number);
            }
            at = (at + 1) & self.mask;
        }
    }

    #[inline]
    #[expect(
        clippy::cast_possible_truncation,
        reason = "a remainder is below the divisor"
    )]
    fn bucket(&self, hash: u64) -> f32 {
        // the quotient or one less: 2^64 / divisor was rounded down
        let quotient = ((u128::from(hash) * u128::from(self.inverse)) >> 64) as u64;
        let mut rest = hash - quotient * self.divisor;
        while rest >= self.divisor {
            rest -= self.divisor;
        }
        self.buckets[rest as usize]
    }

    /// Probabilities of both labels; nothing if the text has no feature.
    pub(super) fn probabilities(&self, text: &str) -> Option<[f32; 2]> {
        let mut sums = Sums {
            model: self,
            sum: 0.0,
            features: 0,
            chains: [0; MOST_NGRAMS],
            open: 0,
        };
        let bytes = text.as_bytes();
        let (mut start, mut hash) = (0, SEED);
        for (at, &byte) in bytes.iter().enumerate() {
            if !is_space(byte) {
                hash = mix(hash, byte);
                continue;
            }
            if start < at && !sums.word(&bytes[start..at], hash) {
                return sums.finish();
            }
            (start, hash) = (at + 1, SEED);
        }
        if start < bytes.len() {
            sums.word(&bytes[start..], hash);
        }
        sums.finish()
    }
}

#[inline]
fn is_space(byte: u8) -> bool {
    const SPACES: u64 =
        1 << b' ' | 1 << b'\n' | 1 << b'\r' | 1 << b'\t' | 1 << 0x0b | 1 << 0x0c | 1;
    byte <= b' ' && SPACES >> byte & 1 == 1
}

/// A text on its way.
struct Sums<'a> {
    model: &'a Folded,
    sum: f64,
    features: u64,
    /// Hashes of the last words, of the last two, and so on, to which the next word is added.
    chains: [u64; MOST_NGRAMS],
    open: usize,
}

impl Sums<'_> {
    /// False if the word ends the text.
    #[inline]
    fn word(&mut self, word: &[u8], hash: u32) -> bool {
        match self.model.find(word) {
            Some(number) => {
                // a written end of text ends it, as in fastText
                if word == END {
                    return false;
                }
                self.add(number);
            }
            None if word == END => return false,
            None if word.starts_with(LABEL.as_bytes()) => return true,
            None => {}
        }
        self.chain(hash);
        true
    }

    #[inline]
    fn add(&mut self, number: f32) {
        self.sum += f64::from(number);
        self.features += 1;
    }

    #[inline]
    fn chain(&mut self, hash: u32) {
        let most = self.model.ngrams - 1;
        if most == 0 {
            return;
        }
        let wide = i64::from(hash.cast_signed()).cast_unsigned();
        for i in 0..self.open {
            let chain = self.chains[i].wrapping_mul(CHAIN).wrapping_add(wide);
            self.chains[i] = chain;
            let number = self.model.bucket(chain);
            self.add(number);
        }
        // the newest first, the oldest falls off
        self.open = (self.open + 1).min(most);
        self.chains.copy_within(..self.open - 1, 1);
        self.chains[0] = wide;
    }

    fn finish(mut self) -> Option<[f32; 2]> {
        if let Some(number) = self.model.find(END) {
            self.add(number);
        }
        self.chain(super::dictionary::hash(END));
        if self.features == 0 {
            return None;
        }
        let x = self.sum / self.features as f64;
        let p = |x: f64| log(single(1.0 / (1.0 + (-x).exp()))).exp();
        Some([p(-x), p(x)])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remainders_are_those_of_division() {
        for divisor in [1u64, 2, 3, 1000, 2_000_000, 1 << 28] {
            let folded = Folded {
                slots: Vec::new(),
                mask: 0,
                buckets: (0..divisor.min(4096)).map(|i| i as f32).collect(),
                divisor,
                inverse: u64::MAX / divisor,
                ngrams: 2,
            };
            for hash in [0, 1, 4095, divisor, u64::MAX - u64::MAX % divisor] {
                if hash % divisor < 4096 {
                    assert_eq!(
                        folded.bucket(hash),
                        (hash % divisor) as f32,
                        "{hash} mod {divisor}"
                    );
                }
            }
        }
    }
}
