//! Units of windows: bytes, or words.
//!
//! Words are UAX 29's segments other than white space, compared as they are. The white space after a word is not
//! compared and is cut with it, as is white space before the first word.

use unicode_segmentation::UnicodeSegmentation;
use xxhash_rust::xxh3::{xxh3_64, xxh3_128};

use super::anchors::{Anchor, each_anchor};
use crate::text::narrow;

/// A text in units.
pub(super) enum Units<'a> {
    Bytes(&'a str),
    Words(&'a Words),
}

/// Offsets of words, and their hashes.
#[derive(Default)]
pub(super) struct Words {
    /// First byte of each but the first, which has all bytes before it, and the end of the text.
    bounds: Vec<u32>,
    hashes: Vec<u64>,
}

impl Words {
    /// The words of a text.
    pub(super) fn of(text: &str) -> Words {
        let mut words = Words::default();
        for (start, word) in text.split_word_bound_indices() {
            if !word.chars().all(char::is_whitespace) {
                let is_first = words.bounds.is_empty();
                words.bounds.push(if is_first { 0 } else { narrow(start) });
                words.hashes.push(xxh3_64(word.as_bytes()));
            }
        }
        words.bounds.push(narrow(text.len()));
        words
    }
}

impl<'a> Units<'a> {
    /// Words if they are given, otherwise bytes.
    pub(super) fn of(text: &'a str, words: Option<&'a Words>) -> Units<'a> {
        words.map_or(Units::Bytes(text), Units::Words)
    }

    /// Calls `each` for the anchors of windows of `n` units.
    pub(super) fn each_anchor(&self, n: usize, each: &mut dyn FnMut(Anchor)) {
        match self {
            Units::Bytes(text) => {
                let bytes = text.as_bytes();
                each_anchor(bytes.len(), |i| u64::from(bytes[i]) + 1, n, each);
            }
            Units::Words(words) => {
                let hashes = &words.hashes;
                each_anchor(hashes.len(), |i| hashes[i], n, each);
            }
        }
    }

    /// Hash of units `first..end`.
    pub(super) fn hash(&self, first: u32, end: u32) -> u128 {
        let range = first as usize..end as usize;
        match self {
            Units::Bytes(text) => xxh3_128(&text.as_bytes()[range]),
            Units::Words(words) => {
                let hashes = words.hashes[range].iter();
                let bytes: Vec<u8> = hashes.flat_map(|h| h.to_le_bytes()).collect();
                xxh3_128(&bytes)
            }
        }
    }

    /// Bytes of units `first..end`, without parts of characters at the ends.
    pub(super) fn bytes(&self, first: u32, end: u32) -> (u32, u32) {
        match self {
            Units::Bytes(text) => {
                let (first, end) = (first as usize, end as usize);
                let start = (first..end).find(|i| text.is_char_boundary(*i));
                let stop = (first..=end).rev().find(|i| text.is_char_boundary(*i));
                (narrow(start.unwrap_or(end)), narrow(stop.unwrap_or(first)))
            }
            Units::Words(words) => (words.bounds[first as usize], words.bounds[end as usize]),
        }
    }
}
