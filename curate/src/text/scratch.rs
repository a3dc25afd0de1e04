//! Shared analysis of a document's text, computed once for several filters.
//!
//! Words (spaCy's), their hashes and lengths in characters, the length of the text in characters.
//! All buffers are in [`Scratch`], one per thread, so a document costs no allocation.

use std::cell::Cell;

use xxhash_rust::xxh3::xxh3_64;

use super::chars::{chars, narrow};
use super::languages;
use crate::text::words::{Splitter, Word, WordRules};

/// Splitters for languages besides English that a thread keeps: with its cache of runs one takes 0.7 MB.
const OTHERS: usize = 8;

/// Buffers that outlive a document; one per thread.
#[derive(Default)]
pub struct Scratch {
    /// For English.
    pub(crate) splitter: Splitter,
    /// Whose words `split` makes.
    rules: WordRules,
    /// Splitters for other languages, the last one used first.
    others: Vec<(WordRules, Splitter)>,
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
    }

    /// The splitter for these rules.
    pub(crate) fn splitter_of(&mut self, rules: WordRules) -> &mut Splitter {
        if rules == WordRules::English {
            return &mut self.splitter;
        }
        match self.others.iter().position(|(own, _)| *own == rules) {
            Some(0) => {}
            Some(at) => self.others[..=at].rotate_right(1),
            None => {
                self.others.truncate(OTHERS - 1);
                self.others.insert(0, (rules, Splitter::of(rules)));
            }
        }
        &mut self.others[0].1
    }

    /// The words of a text in a language, which is named as datatrove names it (`deu_Latn`, `de`); empty: English.
    ///
    /// # Errors
    /// Describes the names that would be right.
    pub fn words_in<'a>(&mut self, language: &str, text: &'a str) -> Result<Vec<&'a str>, String> {
        let rules = match language {
            "" => WordRules::English,
            name => languages::language(name)?.word_rules,
        };
        let mut words = Vec::new();
        self.splitter_of(rules).split(text, &mut words);
        Ok(words.iter().map(|w| w.of(text)).collect())
    }

    /// Fills the word buffers for `text`; a second call for the same text costs one hash.
    pub fn split(&mut self, text: &str) {
        let key = Some((xxh3_64(text.as_bytes()), text.len()));
        if self.split_of.get() == key {
            return;
        }
        self.split_of.set(key);
        let mut words = std::mem::take(&mut self.words);
        self.splitter_of(self.rules).split(text, &mut words);
        self.words = words;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_splitters_are_kept_and_the_oldest_goes() {
        let mut scratch = Scratch::new();
        for number in 0..20 {
            scratch.splitter_of(WordRules::Table(number));
        }
        assert_eq!(scratch.others.len(), OTHERS);
        scratch.splitter_of(WordRules::Table(14));
        let kept: Vec<WordRules> = scratch.others.iter().map(|(rules, _)| *rules).collect();
        let wanted = [14, 19, 18, 17, 16, 15, 13, 12].map(WordRules::Table);
        assert_eq!(kept, wanted);
    }

    #[test]
    fn other_rules_split_again_and_english_comes_back() {
        let mut scratch = Scratch::new();
        let text = "it isn't";
        let mut count = |rules| {
            scratch.use_rules(rules);
            scratch.split(text);
            scratch.words().len()
        };
        assert_eq!(count(WordRules::English), 3);
        assert_eq!(count(WordRules::Other), 2);
        assert_eq!(count(WordRules::English), 3);
    }
}
