//! White-space words (`str.split`), with the data that recipes need: hashes, lengths, n-grams.
//!
//! Several recipes share one splitting of a document: it is cached until the next text.

use xxhash_rust::xxh3::xxh3_64;

use super::HashCounts;
use crate::text::unicode::{self, SPACE};
use crate::text::words::Word;
use crate::text::{chars, narrow};

/// Words of the last text.
#[derive(Default)]
pub(crate) struct PlainWords {
    of: Option<(u64, usize)>,
    /// Byte ranges.
    pub(crate) words: Vec<Word>,
    pub(crate) hashes: Vec<u64>,
    /// Lengths in characters.
    pub(crate) chars: Vec<u32>,
    /// Hashes of the n-grams that start at each word.
    grams: Grams,
}

impl PlainWords {
    /// Splits `text`, unless it was the last one.
    pub(crate) fn split(&mut self, text: &str) {
        let key = Some((xxh3_64(text.as_bytes()), text.len()));
        if self.of == key {
            return;
        }
        self.of = key;
        self.grams.n = 0;
        self.words.clear();
        self.hashes.clear();
        self.chars.clear();
        for word in words(text) {
            let start = narrow(word.as_ptr().addr() - text.as_ptr().addr());
            self.words.push(Word {
                start,
                end: start + narrow(word.len()),
            });
            self.hashes.push(xxh3_64(word.as_bytes()));
            self.chars.push(narrow(chars(word)));
        }
    }

    /// Number of words.
    pub(crate) fn len(&self) -> usize {
        self.words.len()
    }

    /// Characters of all words.
    pub(crate) fn all_chars(&self) -> usize {
        self.chars.iter().map(|&c| c as usize).sum()
    }

    /// Hashes of all n-grams, with the lengths of the words. Sizes should grow from call to call.
    pub(crate) fn grams(&mut self, n: usize) -> (&[u64], &[u32]) {
        (self.grams.of(&self.hashes, n), &self.chars)
    }
}

/// `str.split()`.
pub(crate) fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c| unicode::is(c, SPACE))
        .filter(|w| !w.is_empty())
}

/// Hashes of n-grams, grown word by word.
#[derive(Default)]
pub(crate) struct Grams {
    keys: Vec<u64>,
    n: usize,
}

impl Grams {
    /// Hashes of the n-grams over words with these hashes; none if there are fewer words.
    pub(crate) fn of(&mut self, words: &[u64], n: usize) -> &[u64] {
        if n < self.n || self.n == 0 {
            self.keys.clear();
            self.keys.resize(words.len(), 0);
            self.n = 0;
        }
        for k in self.n..n {
            for (key, word) in self.keys.iter_mut().zip(words.iter().skip(k)) {
                *key = (key.rotate_left(5) ^ word).wrapping_mul(0x517c_c1b7_2722_0a95);
            }
        }
        self.n = n;
        &self.keys[..(words.len() + 1).saturating_sub(n)]
    }

    /// Forgets the words.
    pub(crate) fn clear(&mut self) {
        self.n = 0;
    }
}

/// The most frequent item, the first to appear among equals, and its count.
pub(crate) fn most_frequent(keys: &[u64], set: &mut HashCounts) -> Option<(usize, u32)> {
    set.clear(keys.len());
    let mut most = 0;
    for &key in keys {
        most = most.max(set.add(key) + 1);
    }
    let first = keys
        .iter()
        .position(|&key| most == 1 || set.get(key) == most)?;
    Some((first, most))
}

/// Characters of words inside an n-gram that occurs more than once, each word once (the paper's definition of
/// duplicate n-grams, and RedPajama's).
pub(crate) fn covered_chars(keys: &[u64], n: usize, chars: &[u32], set: &mut HashCounts) -> usize {
    set.clear(keys.len());
    for &key in keys {
        set.add(key);
    }
    let (mut covered, mut upto) = (0usize, 0usize);
    for (i, &key) in keys.iter().enumerate() {
        if set.get(key) > 1 {
            let from = upto.max(i);
            covered += chars[from..i + n]
                .iter()
                .map(|&c| c as usize)
                .sum::<usize>();
            upto = i + n;
        }
    }
    covered
}

/// Repeated content among the pieces of a page.
#[derive(Default)]
pub(crate) struct Copies {
    /// Pieces and their characters.
    pub(crate) pieces: usize,
    pub(crate) chars: usize,
    /// Different ones.
    pub(crate) distinct: usize,
    pub(crate) distinct_chars: usize,
    /// Those that occur again, every copy counted.
    pub(crate) repeated: usize,
    pub(crate) repeated_chars: usize,
}

impl Copies {
    /// Counts pieces and their copies.
    pub(crate) fn of<'a>(pieces: impl Iterator<Item = &'a str>, set: &mut HashCounts) -> Copies {
        let pieces: Vec<(u64, usize)> = pieces.map(|p| (xxh3_64(p.as_bytes()), chars(p))).collect();
        set.clear(pieces.len());
        let mut found = Copies::default();
        for &(key, chars) in &pieces {
            found.pieces += 1;
            found.chars += chars;
            if set.add(key) == 0 {
                found.distinct += 1;
                found.distinct_chars += chars;
            }
        }
        for &(key, chars) in &pieces {
            if set.get(key) > 1 {
                found.repeated += 1;
                found.repeated_chars += chars;
            }
        }
        found
    }
}

/// A share; of nothing 0.
pub(crate) fn share(part: usize, whole: usize) -> f64 {
    if whole == 0 {
        0.0
    } else {
        part as f64 / whole as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grams_grow_and_start_again() {
        let words = [1, 2, 3, 1, 2];
        let mut grams = Grams::default();
        let two = grams.of(&words, 2).to_vec();
        assert_eq!((two.len(), two[0] == two[3]), (4, true));
        assert_eq!(grams.of(&words, 3).len(), 3);
        assert_eq!(grams.of(&words, 2), two);
        assert_eq!(grams.of(&words, 6).len(), 0);
    }

    #[test]
    fn words_under_overlapping_copies_count_once() {
        let words = [1, 1, 1, 1, 9];
        let mut grams = Grams::default();
        let keys = grams.of(&words, 2).to_vec();
        let covered = covered_chars(&keys, 2, &[2, 2, 2, 2, 5], &mut HashCounts::default());
        assert_eq!(covered, 8);
    }

    #[test]
    fn every_copy_of_a_piece_counts_as_repeated() {
        let found = Copies::of(["aa", "b", "aa"].into_iter(), &mut HashCounts::default());
        assert_eq!((found.distinct, found.distinct_chars), (2, 3));
        assert_eq!((found.repeated, found.repeated_chars), (2, 4));
    }
}
