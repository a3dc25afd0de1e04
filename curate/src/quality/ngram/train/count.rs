//! Counts the words of a corpus and its n-grams of the greatest length.
//!
//! A line is a sentence; its words are preceded by n - 1 `<s>` for n-grams of n words, and followed by one `</s>`.

use std::path::Path;

use rustc_hash::FxHashMap;

use super::sort::{Gram, MOST, Merge, Sorter};
use crate::error::{Error, Result};
use crate::quality::ngram::weights::murmur64a;

pub(super) const UNKNOWN: u32 = 0;
pub(super) const BEGIN: u32 = 1;
pub(super) const END: u32 = 2;
/// Marks that a text must not bring along.
const MARKS: [&str; 3] = ["<unk>", "<s>", "</s>"];

/// Words by number, in the order of their first appearance. They are identified by the same 64-bit hash as in
/// KenLM's models.
#[derive(Default)]
pub(super) struct Vocabulary {
    numbers: FxHashMap<u64, u32>,
    text: String,
    ends: Vec<usize>,
}

impl Vocabulary {
    fn number(&mut self, word: &str) -> Result<u32> {
        let next = self.ends.len();
        let numbered = self.numbers.entry(murmur64a(word.as_bytes()));
        let number = *numbered.or_insert(u32::try_from(next).unwrap_or(u32::MAX));
        if number as usize == next {
            self.text.push_str(word);
            self.ends.push(self.text.len());
        }
        if number == u32::MAX {
            return Err(Error::Config {
                key: "inputs".into(),
                found: "2^32 different words".into(),
                wanted: "fewer".into(),
            });
        }
        Ok(number)
    }

    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    pub(super) fn word(&self, number: u32) -> &str {
        let end = self.ends.get(number as usize).copied().unwrap_or(0);
        let start = match number {
            0 => 0,
            n => self.ends.get(n as usize - 1).copied().unwrap_or(end),
        };
        &self.text[start..end]
    }
}

/// Separators of words, the same as for querying, and zeros.
fn is_space(c: char) -> bool {
    c.is_ascii_whitespace() || matches!(c, '\0' | '\x0b')
}

/// Counts n-grams.
pub(super) struct Counter {
    order: usize,
    lowercase: bool,
    pub(super) vocabulary: Vocabulary,
    sorter: Sorter,
    pub(super) sentences: u64,
    pub(super) words: u64,
    /// Words of a text that are marks, which are left out.
    pub(super) marks: u64,
}

impl Counter {
    pub(super) fn new(
        folder: &Path,
        order: usize,
        lowercase: bool,
        bytes: usize,
    ) -> Result<Counter> {
        let mut vocabulary = Vocabulary::default();
        for mark in MARKS {
            vocabulary.number(mark)?;
        }
        Ok(Counter {
            order,
            lowercase,
            vocabulary,
            sorter: Sorter::new(folder, order, true, bytes),
            sentences: 0,
            words: 0,
            marks: 0,
        })
    }

    /// Counts the lines of a text.
    pub(super) fn add(&mut self, text: &str) -> Result<()> {
        if self.lowercase {
            return self.add_lines(&text.to_lowercase());
        }
        self.add_lines(text)
    }

    fn add_lines(&mut self, text: &str) -> Result<()> {
        for line in text.split('\n') {
            // the newest word first, which is the order of suffixes
            let mut last = [BEGIN; MOST];
            last[self.order..].fill(0);
            let mut is_empty = true;
            for word in line.split(is_space).filter(|w| !w.is_empty()) {
                let number = self.vocabulary.number(word)?;
                if number <= END {
                    self.marks += 1;
                    continue;
                }
                is_empty = false;
                self.words += 1;
                self.append(&mut last, number)?;
            }
            if !is_empty {
                self.sentences += 1;
                self.append(&mut last, END)?;
            }
        }
        Ok(())
    }

    fn append(&mut self, last: &mut [u32; MOST], word: u32) -> Result<()> {
        last.copy_within(..self.order - 1, 1);
        last[0] = word;
        self.sorter.push(Gram {
            key: *last,
            value: 1,
        })
    }

    /// The n-grams in the order of suffixes: by the last word, then by the one before it.
    pub(super) fn finish(self) -> Result<(Vocabulary, Merge)> {
        Ok((self.vocabulary, self.sorter.finish()?))
    }
}
