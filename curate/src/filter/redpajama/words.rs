//! RedPajama's words: raw ones with punctuation, and those of the normalized text.

use rustc_hash::FxHashSet;
use unicode_normalization::UnicodeNormalization;
use xxhash_rust::xxh3::xxh3_64;

use super::round::{ratio, rounded};
use crate::text::plain::{self, Grams, covered_chars, most_frequent};
use crate::text::unicode::{self, SPACE, is_word};
use crate::text::{HashCounts, chars, narrow};

/// Title case letters, which are neither upper nor lower case.
fn is_title(c: char) -> bool {
    matches!(
        c,
        '\u{1c5}' | '\u{1c8}' | '\u{1cb}' | '\u{1f2}' | '\u{1fbc}' | '\u{1fcc}' | '\u{1ffc}'
    ) || matches!(c, '\u{1f88}'..='\u{1f8f}' | '\u{1f98}'..='\u{1f9f}' | '\u{1fa8}'..='\u{1faf}')
}

/// Counts over `\w+|[^\w\s]+`.
#[derive(Default)]
pub(super) struct RawWords {
    pub(super) words: usize,
    pub(super) stop_words: usize,
    pub(super) with_latin_letter: usize,
    /// Words of which every letter with a case is a capital.
    pub(super) capitals: usize,
}

impl RawWords {
    pub(super) fn of(text: &str, stop_words: &FxHashSet<&'static str>) -> RawWords {
        let mut found = RawWords::default();
        let mut start = 0;
        let mut kind = Kind::Space;
        for (at, c) in text.char_indices() {
            let here = Kind::of(c);
            if here != kind {
                found.add(&text[start..at], kind, stop_words);
                (start, kind) = (at, here);
            }
        }
        found.add(&text[start..], kind, stop_words);
        found
    }

    fn add(&mut self, word: &str, kind: Kind, stop_words: &FxHashSet<&'static str>) {
        if kind == Kind::Space {
            return;
        }
        self.words += 1;
        let latin = kind == Kind::Word && word.bytes().any(|b| b.is_ascii_alphabetic());
        self.with_latin_letter += usize::from(latin);
        self.stop_words += usize::from(kind == Kind::Word && stop_words.contains(word));
        let small = |c: char| c.is_lowercase() || is_title(c);
        let capitals = word.chars().any(char::is_uppercase) && !word.chars().any(small);
        self.capitals += usize::from(capitals);
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Space,
    Word,
    Other,
}

impl Kind {
    fn of(c: char) -> Kind {
        if is_word(c) {
            Kind::Word
        } else if unicode::is(c, SPACE) {
            Kind::Space
        } else {
            Kind::Other
        }
    }
}

/// Text without ASCII punctuation, in lower case, one space between words, in NFD.
pub(super) fn normalize(text: &str) -> String {
    let kept: String = text.chars().filter(|c| !c.is_ascii_punctuation()).collect();
    let lower = kept.to_lowercase();
    let mut spaced = String::with_capacity(lower.len());
    for word in plain::words(&lower) {
        if !spaced.is_empty() {
            spaced.push(' ');
        }
        spaced.push_str(word);
    }
    if spaced.is_ascii() {
        return spaced;
    }
    spaced.nfd().collect()
}

/// The normalized text and its words.
pub(super) struct Normalized {
    pub(super) text: String,
    /// Byte ranges.
    pub(super) words: Vec<(u32, u32)>,
    hashes: Vec<u64>,
    lengths: Vec<u32>,
    pub(super) word_chars: usize,
}

impl Normalized {
    pub(super) fn of(text: &str) -> Normalized {
        let text = normalize(text);
        let (mut words, mut hashes, mut lengths) = (Vec::new(), Vec::new(), Vec::new());
        for word in plain::words(&text) {
            let start = word.as_ptr().addr() - text.as_ptr().addr();
            words.push((narrow(start), narrow(start + word.len())));
            hashes.push(xxh3_64(word.as_bytes()));
            lengths.push(narrow(chars(word)));
        }
        let word_chars = lengths.iter().map(|&c| c as usize).sum();
        Normalized {
            text,
            words,
            hashes,
            lengths,
            word_chars,
        }
    }

    /// Number of runs of `n` words in the list.
    pub(super) fn grams_in(&self, n: usize, list: &FxHashSet<String>) -> usize {
        self.words
            .windows(n)
            .filter(|w| list.contains(&self.text[w[0].0 as usize..w[n - 1].1 as usize]))
            .count()
    }

    /// Different words, and the entropy of their distribution in nats.
    pub(super) fn unigrams(&self, set: &mut HashCounts) -> (usize, f64) {
        set.clear(self.hashes.len());
        let mut first = Vec::new();
        for &hash in &self.hashes {
            if set.add(hash) == 0 {
                first.push(hash);
            }
        }
        let total = self.hashes.len() as f64;
        let entropy = first.iter().fold(0.0, |sum, &hash| {
            let x = f64::from(set.get(hash));
            sum + -x / total * (x / total).ln()
        });
        (first.len(), entropy)
    }

    /// Share of characters in the most frequent n-gram, if it occurs twice.
    pub(super) fn top(&self, n: usize, grams: &mut Grams, set: &mut HashCounts) -> f64 {
        match most_frequent(grams.of(&self.hashes, n), set) {
            Some((first, times)) if times > 1 => {
                let length: usize = self.lengths[first..first + n]
                    .iter()
                    .map(|&c| c as usize)
                    .sum();
                rounded((length * times as usize) as f64 / self.word_chars as f64)
            }
            _ => 0.0,
        }
    }

    /// Share of characters in n-grams that occur again.
    pub(super) fn duplicated(&self, n: usize, grams: &mut Grams, set: &mut HashCounts) -> f64 {
        let keys = grams.of(&self.hashes, n);
        let covered = covered_chars(keys, n, &self.lengths, set);
        ratio(covered, self.word_chars).unwrap_or(0.0)
    }
}

/// Matches of `\b[^.!?]+[.!?]*`.
pub(super) fn sentences(text: &str) -> usize {
    let ends = |c: char| matches!(c, '.' | '!' | '?');
    let mut count = 0;
    let mut before_is_word = false;
    let mut chars = text.chars().peekable();
    while let Some(&c) = chars.peek() {
        let is = is_word(c);
        if is == before_is_word || ends(c) {
            before_is_word = is;
            chars.next();
            continue;
        }
        count += 1;
        for part in [false, true] {
            while let Some(c) = chars.next_if(|&c| ends(c) == part) {
                before_is_word = is_word(c);
            }
        }
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sentences_start_at_the_edge_of_a_word() {
        assert_eq!(sentences("One. Two? Three"), 3);
        assert_eq!(sentences("... !!! "), 0);
        assert_eq!(sentences("a.b.c"), 3);
        assert_eq!(sentences("say (yes) now"), 1);
    }

    #[test]
    fn punctuation_goes_before_white_space_is_joined() {
        assert_eq!(normalize(" The - \u{c9}nd!\n a.b "), "the e\u{301}nd ab");
    }
}
