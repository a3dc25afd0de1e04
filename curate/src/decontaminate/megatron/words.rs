//! Words of Megatron-LM's `filter_ngrams.py`: Python's `\w+` of the lower-cased text, with their offsets.
//!
//! `\w` is a letter, a number of any kind or `_`, no combining mark. Lower case is that of the whole text, so a
//! final sigma is one. We differ: offsets are those of the text itself; theirs are of the lower-cased one, which is
//! a character longer for each capital I with a dot.

use xxhash_rust::xxh3::xxh3_64;

use crate::text::unicode::{self, DIGIT, LETTER};
use crate::text::{chars, narrow};

/// A word: bytes of the lower-cased text, and bytes of the text.
#[derive(Clone, Copy, Debug)]
struct Word {
    from: u32,
    to: u32,
    start: u32,
    end: u32,
}

/// Words of one text; from some word on those of a rest of it.
#[derive(Default)]
pub(super) struct Words {
    lower: String,
    words: Vec<Word>,
    hashes: Vec<u64>,
}

const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;

impl Words {
    /// The words of a text.
    pub(super) fn of(text: &str) -> Words {
        let mut found = Words {
            lower: text.to_lowercase(),
            ..Words::default()
        };
        let mut original = text.char_indices();
        // characters that the original one has left in the lower-cased text, and its bytes
        let (mut left, mut start, mut end) = (0, 0, 0);
        let mut open: Option<Word> = None;
        for (at, c) in found.lower.char_indices() {
            if left == 0 {
                let Some((i, o)) = original.next() else { break };
                left = if o.is_ascii() {
                    1
                } else {
                    o.to_lowercase().count()
                };
                (start, end) = (i, i + o.len_utf8());
            }
            left -= 1;
            if is_of_word(c) {
                let word = open.get_or_insert(Word {
                    from: narrow(at),
                    to: 0,
                    start: narrow(start),
                    end: 0,
                });
                word.to = narrow(at + c.len_utf8());
                word.end = narrow(end);
            } else {
                found.words.extend(open.take());
            }
        }
        found.words.extend(open);
        let hashes = found.words.iter().map(|w| xxh3_64(found.bytes(*w)));
        found.hashes = hashes.collect();
        found
    }

    fn bytes(&self, word: Word) -> &[u8] {
        &self.lower.as_bytes()[word.from as usize..word.to as usize]
    }

    pub(super) fn len(&self) -> usize {
        self.words.len()
    }

    /// Word number `at`, lower-cased.
    fn word(&self, at: usize) -> &str {
        let word = self.words[at];
        &self.lower[word.from as usize..word.to as usize]
    }

    /// Offset of a word in the text.
    pub(super) fn start(&self, at: usize) -> usize {
        self.words[at].start as usize
    }

    /// Hash of `n` words.
    pub(super) fn hash(&self, first: usize, n: usize) -> u64 {
        let hashes = self.hashes[first..first + n].iter();
        hashes.fold(0, |h, word| h.wrapping_mul(MULTIPLIER).wrapping_add(*word))
    }

    /// `n` words with spaces between them.
    pub(super) fn joined(&self, first: usize, n: usize) -> String {
        let words: Vec<&str> = (first..first + n).map(|at| self.word(at)).collect();
        words.join(" ")
    }

    /// Whether `n` words, joined, equal this text.
    pub(super) fn are(&self, first: usize, n: usize, joined: &str) -> bool {
        let words = (first..first + n).map(|at| self.word(at));
        joined.split(' ').eq(words)
    }

    /// Characters of `n` words, joined.
    pub(super) fn joined_chars(&self, first: usize, n: usize) -> usize {
        let words = (first..first + n).map(|at| chars(self.word(at)));
        words.sum::<usize>() + n - 1
    }

    /// The first word from `first` on of the text from byte `base` on. One that `base` cuts keeps its rest.
    pub(super) fn skip_to(&mut self, mut first: usize, base: usize, text: &str) -> usize {
        while let Some(word) = self.words.get_mut(first) {
            if (word.end as usize) <= base {
                first += 1;
                continue;
            }
            if (word.start as usize) < base {
                let gone = &text[word.start as usize..base];
                let lower = gone.chars().flat_map(char::to_lowercase);
                word.from += narrow(lower.map(char::len_utf8).sum());
                word.start = narrow(base);
                let word = *word;
                self.hashes[first] = xxh3_64(self.bytes(word));
            }
            break;
        }
        first
    }
}

/// Python's `\w`.
pub(super) fn is_of_word(c: char) -> bool {
    if c.is_ascii() {
        return c.is_ascii_alphanumeric() || c == '_';
    }
    unicode::table()[c as usize] & (LETTER | DIGIT) != 0 || c.is_numeric()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_lower_case_and_know_where_they_stand() {
        let text = "\u{130}stanbul na\u{ef}ve \u{39f}\u{394}\u{39f}\u{3a3}, x_1 \u{bd} e\u{301}f";
        let words = Words::of(text);
        let all: Vec<&str> = (0..words.len()).map(|i| words.word(i)).collect();
        let odos = "\u{3bf}\u{3b4}\u{3bf}\u{3c2}";
        assert_eq!(
            all,
            [
                "i",
                "stanbul",
                "na\u{ef}ve",
                odos,
                "x_1",
                "\u{bd}",
                "e",
                "f"
            ]
        );
        for (i, first) in ["\u{130}", "s", "n", "\u{39f}", "x", "\u{bd}", "e", "f"]
            .iter()
            .enumerate()
        {
            assert!(text[words.start(i)..].starts_with(first), "{i}");
        }
        assert_eq!(words.joined(1, 2), "stanbul na\u{ef}ve");
        assert_eq!(words.joined_chars(1, 2), 13);
        assert!(words.are(1, 2, "stanbul na\u{ef}ve") && !words.are(1, 2, "stanbul"));
    }

    #[test]
    fn a_word_that_is_cut_keeps_its_rest() {
        let text = "one tw\u{c9}\u{c8}o three";
        let mut words = Words::of(text);
        let before = words.hash(2, 1);
        assert_eq!(words.skip_to(0, 8, text), 1);
        assert_eq!((words.word(1), words.start(1)), ("\u{e8}o", 8));
        assert_eq!(words.hash(1, 1), Words::of("\u{e8}o").hash(0, 1));
        assert_eq!(words.hash(2, 1), before);
        assert_eq!(words.skip_to(1, text.len(), text), 3);
    }
}
