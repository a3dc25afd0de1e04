//! Shared analysis of a document's text, computed once for several filters.
//!
//! Words (spaCy's), their hashes and lengths in characters, the length of the text in characters.
//! All buffers are in [`Scratch`], one per thread, so a document costs no allocation.

use std::cell::Cell;

use xxhash_rust::xxh3::xxh3_64;

use super::chars::{chars, narrow};
use crate::text::words::{Splitter, Word, WordRules};

/// Buffers that outlive a document; one per thread.
#[derive(Default)]
pub struct Scratch {
    /// For English.
    pub(crate) splitter: Splitter,
    /// Whose words `split` makes, and the splitter for them if it is not English.
    rules: WordRules,
    other: Option<(WordRules, Splitter)>,
    pub(crate) words: Vec<Word>,
    pub(crate) line_words: Vec<Word>,
    pub(crate) word_hashes: Vec<u64>,
    pub(crate) word_chars: Vec<u32>,
    pub(crate) grams: crate::text::NGrams,
    pub(crate) set: crate::text::HashCounts,
    pub(crate) plain: crate::text::PlainWords,
    /// Text of the last split, to skip a repeated split of the same text.
    split_of: Cell<Option<(u64, usize)>>,
}

impl Scratch {
    /// Empty buffers.
    pub fn new() -> Scratch {
        Scratch::default()
    }

    /// From here on [`Scratch::split`] splits by these rules.
    pub(crate) fn use_rules(&mut self, rules: WordRules) {
        if self.rules == rules {
            return;
        }
        self.split_of.set(None);
        self.rules = rules;
        // a job seldom has a second language besides English
        let has = self.other.as_ref().is_some_and(|(t, _)| *t == rules);
        if rules != WordRules::English && !has {
            self.other = Some((rules, Splitter::of(rules)));
        }
    }

    /// Fills the word buffers for `text`; a second call for the same text costs one hash.
    pub fn split(&mut self, text: &str) {
        let key = Some((xxh3_64(text.as_bytes()), text.len()));
        if self.split_of.get() == key {
            return;
        }
        self.split_of.set(key);
        let splitter = match &mut self.other {
            Some((rules, splitter)) if *rules == self.rules => splitter,
            _ => &mut self.splitter,
        };
        splitter.split(text, &mut self.words);
        self.word_hashes.clear();
        self.word_chars.clear();
    }

    /// [`Scratch::split`], and the hash and the number of characters of each word.
    pub(crate) fn measure(&mut self, text: &str) {
        self.split(text);
        if self.word_hashes.len() == self.words.len() {
            return;
        }
        for word in &self.words {
            let w = word.of(text);
            self.word_hashes.push(xxh3_64(w.as_bytes()));
            self.word_chars.push(narrow(chars(w)));
        }
    }

    /// The words of the text last given to [`Scratch::split`].
    pub fn words(&self) -> &[Word] {
        &self.words
    }
}
