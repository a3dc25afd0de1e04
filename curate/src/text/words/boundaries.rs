//! Places of word boundaries by a perceptron over hashed features.
//!
//! `boundaries.bin.zst` (tests/oracles/word_boundaries.py, which defines the features) has 65,536 weights for each
//! language, averaged over training (Collins 2002) on the output of Kiwi for Korean, of pyvi for Vietnamese, and of
//! PyThaiNLP for Thai. On held-out sentences the F1 of boundaries inside runs of Hangul is 0.92, that of joined syllables
//! of Vietnamese 0.80, of joined dictionary words of Thai 0.81.

use std::sync::LazyLock;

/// Weights of one language.
const BUCKETS: usize = 1 << 16;

/// One weight per bucket of features, language after language.
static WEIGHTS: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let packed = include_bytes!("boundaries.bin.zst");
    zstd::decode_all(&packed[..]).expect("the weights are part of the program")
});

/// Weights of a language.
pub(super) struct Weights(&'static [u8]);

impl Weights {
    pub(super) fn korean() -> Weights {
        Weights(&WEIGHTS[..BUCKETS])
    }

    pub(super) fn vietnamese() -> Weights {
        Weights(&WEIGHTS[BUCKETS..2 * BUCKETS])
    }

    pub(super) fn thai() -> Weights {
        Weights(&WEIGHTS[2 * BUCKETS..])
    }

    /// Weight of a feature: its number and its parts, hashed by FNV-1a.
    fn of(&self, number: u8, parts: &[&str]) -> i32 {
        let step = |x: u32, byte: u8| (x ^ u32::from(byte)).wrapping_mul(16_777_619);
        let mut hash = step(2_166_136_261, number);
        for part in parts {
            hash = part.bytes().fold(hash, step);
            hash = step(hash, 1);
        }
        let bucket = usize::try_from(hash >> 16).unwrap_or(0);
        self.0
            .get(bucket)
            .map_or(0, |&w| i32::from(w.cast_signed()))
    }

    fn sum(&self, features: &[&[&str]]) -> i32 {
        (0..)
            .zip(features)
            .map(|(n, parts)| self.of(n, parts))
            .sum()
    }
}

/// Stands for what is beyond an end.
const OUTSIDE: &str = "^";
const COUNTS: [&str; 5] = ["0", "1", "2", "3", "4"];

/// True if a morpheme starts at character `i` of `run`, whose characters have `width` bytes each.
pub(super) fn korean(weights: &Weights, run: &str, width: usize, i: usize) -> bool {
    let n = run.len() / width;
    let at = |back: usize, on: usize| match (i + on).checked_sub(back) {
        Some(place) if place < n => &run[place * width..(place + 1) * width],
        Some(_) | None => OUTSIDE,
    };
    let (a, b, c) = (at(3, 0), at(2, 0), at(1, 0));
    let (d, e, f) = (at(0, 0), at(0, 1), at(0, 2));
    let (left, right) = (COUNTS[i.min(3)], COUNTS[(n - i).min(4)]);
    let features: [&[&str]; 15] = [
        &[c],
        &[d],
        &[c, d],
        &[b, c],
        &[d, e],
        &[b, c, d],
        &[c, d, e],
        &[d, e, f],
        &[b, c, d, e],
        &[left, right],
        &[d, right],
        &[c, right],
        &[d, e, right],
        &[a, b, c],
        &[c, d, right],
    ];
    weights.sum(&features) > 0
}

/// True if word `i` continues the one before it; `lower` are the `words` in lower case.
pub(super) fn joins(weights: &Weights, words: &[&str], lower: &[String], i: usize) -> bool {
    let at = |back: usize, on: usize| match (i + on).checked_sub(back) {
        Some(place) => lower.get(place).map_or(OUTSIDE, String::as_str),
        None => OUTSIDE,
    };
    let upper = |word: &str| word.chars().next().is_some_and(char::is_uppercase);
    let case = match (upper(words[i - 1]), upper(words[i])) {
        (true, true) => "UU",
        (true, false) => "Ul",
        (false, true) => "lU",
        (false, false) => "ll",
    };
    let (a, b, c, d) = (at(2, 0), at(1, 0), at(0, 0), at(0, 1));
    let last = |word| ends_of(word).1;
    let features: [&[&str]; 13] = [
        &[b],
        &[c],
        &[b, c],
        &[a, b],
        &[c, d],
        &[case],
        &[a],
        &[d],
        &[b, case],
        &[c, case],
        &[last(b), ends_of(c).0],
        &[last(c)],
        &[a, b, c],
    ];
    weights.sum(&features) > 0
}

/// First and last character of a word.
fn ends_of(word: &str) -> (&str, &str) {
    let mut chars = word.char_indices();
    let first = chars.next().map_or(0, |(_, c)| c.len_utf8());
    let last = word.char_indices().next_back().map_or(0, |(at, _)| at);
    (&word[..first], &word[last..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_language_has_its_weights() {
        assert_eq!(WEIGHTS.len(), 3 * BUCKETS);
    }

    // feature(2, "한", "국") of the script
    const FEATURE: usize = 29977;

    #[test]
    fn features_are_hashed_as_in_training() {
        let weights: Vec<u8> = (0..BUCKETS).map(|i| u8::from(i == FEATURE)).collect();
        let weights = Weights(weights.leak());
        assert_eq!(weights.of(2, &["한", "국"]), 1);
        assert_eq!(weights.of(2, &["한국"]), 0);
    }
}
