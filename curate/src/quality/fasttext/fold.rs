//! Folding of models with two labels to one weight per feature.
//!
//! With softmax over two labels the probability of the second is the logistic function of (w1 - w0) . h, and h is the
//! mean of rows r, so it is the mean of the numbers (w1 - w0) . r: both layers of the model fold into a number for each
//! row. A word costs one lookup in a table that stores the number beside the word's hash, a word n-gram one load.
//! For models without character n-grams that are not pruned; sums are f64.
//!
//! Folding rounds each number to f32, by at most 2^-24 of it; p changes by a quarter of that at most, which
//! [`MOST`] holds below 1e-5.

use super::dictionary::{CHAIN, Dictionary, END, KEY_SEED, LABEL, SEED, mix, mix_key};
use super::loss::{Output, log, single};
use super::matrix::Matrix;

/// Greatest number of a row: 2^-24 / 4 of it is 4e-6.
const MOST: f64 = 256.0;
/// Longest word n-grams.
const MOST_NGRAMS: usize = 8;
/// Words that are looked up together.
const BATCH: usize = 64;
/// Words before them that n-grams may begin with.
const BEFORE: usize = MOST_NGRAMS - 1;

/// A word's hash, its number, and whether the slot is taken.
#[derive(Clone, Copy, Default)]
struct Slot {
    key: u64,
    number: f32,
    is_taken: bool,
}

pub(super) struct Folded {
    /// At a word's home or behind; never full.
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
        reason = "single precision, bounded by MOST"
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
            let mut slot = made.home(key);
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

    /// Slot of a word, or the first of the slots that are probed for it.
    #[inline]
    fn home(&self, key: u64) -> usize {
        (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize & self.mask
    }

    fn find(&self, key: u64) -> Option<f32> {
        let mut at = self.home(key);
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
            keys: [0; BATCH],
            hashes: [0; BEFORE + BATCH],
            filled: 0,
            before: 0,
        };
        let bytes = text.as_bytes();
        let (mut start, mut hash, mut key) = (0, SEED, KEY_SEED);
        for (at, &byte) in bytes.iter().enumerate() {
            if !is_space(byte) {
                hash = mix(hash, byte);
                key = mix_key(key, byte);
                continue;
            }
            if start < at && !sums.word(&bytes[start..at], hash, key) {
                return sums.finish();
            }
            (start, hash, key) = (at + 1, SEED, KEY_SEED);
        }
        if start < bytes.len() {
            sums.word(&bytes[start..], hash, key);
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

/// Running sums of a text. Words are looked up in batches: no sum depends on a number before all of a batch are
/// requested, so that the memory accesses overlap.
struct Sums<'a> {
    model: &'a Folded,
    sum: f64,
    features: u64,
    /// Words of the batch.
    keys: [u64; BATCH],
    /// Theirs from `BEFORE` on; in front those of the words before.
    hashes: [u32; BEFORE + BATCH],
    filled: usize,
    /// Words before the batch, as far as n-grams reach.
    before: usize,
}

impl Sums<'_> {
    /// False if the word ends the text.
    #[inline]
    fn word(&mut self, word: &[u8], hash: u32, key: u64) -> bool {
        // first bytes that are rare: both tests are foreseen
        if word[0] == b'<' && word == END {
            return false;
        }
        let is_label = word[0] == b'_' && word.starts_with(LABEL.as_bytes());
        if is_label && self.model.find(key).is_none() {
            return true;
        }
        self.push(hash, key);
        true
    }

    #[inline]
    fn push(&mut self, hash: u32, key: u64) {
        self.keys[self.filled] = key;
        self.hashes[BEFORE + self.filled] = hash;
        self.filled += 1;
        if self.filled == BATCH {
            self.flush();
        }
    }

    fn flush(&mut self) {
        let (model, keys) = (self.model, &self.keys[..self.filled]);
        let mut home = [Slot::default(); BATCH];
        for (slot, key) in home.iter_mut().zip(keys) {
            *slot = model.slots[model.home(*key)];
        }
        for (slot, key) in home.iter().zip(keys) {
            let number = match slot.is_taken && slot.key == *key {
                true => Some(slot.number),
                false => model.find(*key),
            };
            if let Some(number) = number {
                self.sum += f64::from(number);
                self.features += 1;
            }
        }
        let wide = |h: u32| i64::from(h.cast_signed()).cast_unsigned();
        let end = BEFORE + self.filled;
        for words in 2..=model.ngrams {
            // the last word of the first n-gram whose words are all there
            let first = BEFORE + (words - 1).saturating_sub(self.before);
            for last in first..end {
                let gram = &self.hashes[last + 1 - words..=last];
                let chain = |h: u64, next: &u32| h.wrapping_mul(CHAIN).wrapping_add(wide(*next));
                let hash = gram[1..].iter().fold(wide(gram[0]), chain);
                self.sum += f64::from(model.bucket(hash));
                self.features += 1;
            }
        }
        self.before = (self.before + self.filled).min(BEFORE);
        self.hashes.copy_within(end - BEFORE..end, 0);
        self.filled = 0;
    }

    fn finish(mut self) -> Option<[f32; 2]> {
        self.push(super::dictionary::hash(END), super::dictionary::key(END));
        self.flush();
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
