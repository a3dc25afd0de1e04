//! MT-NLG's decontamination: the text around an n-gram of an evaluation set is cut out, and the document is split
//! there.
//!
//! Paper: Smith et al. 2022, arXiv:2201.11990, sec. 3; program: Megatron-LM, `tools/openwebtext/filter_ngrams.py`
//! as it was before 26ad37925. The n-grams of an evaluation text are all of its 13 words in a row, or the whole
//! text if it has fewer and at least 8. A document is searched word by word: 13 words first, then the shorter
//! lengths there are, shortest first; the last 13 words are searched for shorter ones once more. Texts of 13 words
//! are searched only at their beginning, shorter ones not at all. At a match 200 characters before it and 200
//! behind are removed, and all up to the nearest `.`, `!` or `?`; the search continues in the text after that.
//! Pieces of up to 200 characters are dropped; a document with more than 10 pieces is dropped. A separate pass
//! before that counts documents by n-gram: n-grams in 10 documents or more are no longer searched for.
//!
//! The cuts equal theirs to the byte, including this quirk: a match is assumed to be as long as its words joined by
//! single spaces. We differ: it is no error if no n-grams remain; and offsets in texts with a capital I with a dot,
//! see `words.rs`.

mod rules;
mod words;

pub use rules::CutRules;

use rustc_hash::{FxHashMap, FxHashSet};
use serde::{Deserialize, Serialize};

use super::evaluation::{each_entry, each_text};
use crate::decontaminate::config::DecontaminateConfig;
use crate::error::Result;
use crate::text::narrow;
use words::Words;

/// An evaluation set.
#[derive(Clone, Debug, Default)]
pub(crate) struct CutTask {
    pub(crate) name: String,
    pub(crate) texts: u64,
    pub(crate) ngrams: u64,
}

struct Gram {
    /// Words with spaces between them.
    text: Box<str>,
    words: u32,
    task: u32,
    /// Too many documents have it.
    is_frequent: bool,
}

/// N-grams to search for.
pub(crate) struct CutNgrams {
    rules: CutRules,
    longest: usize,
    pub(crate) tasks: Vec<CutTask>,
    grams: Vec<Gram>,
    /// By hash; of two n-grams with the same the second has the next number that is free.
    numbers: FxHashMap<u64, u32>,
    /// Words of the n-grams, shortest first.
    lengths: Vec<usize>,
    /// Hashes of the beginnings of all n-grams, as long as the shortest.
    beginnings: FxHashSet<u64>,
}

/// An n-gram in a text.
#[derive(Clone, Copy, Debug)]
struct Match {
    gram: u32,
    /// First word.
    word: usize,
}

/// The remainder of a document that contains an n-gram.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cutting {
    /// Bytes that stay, in order.
    pub(crate) pieces: Vec<(u32, u32)>,
    /// N-grams that were met and where they start.
    pub(crate) met: Vec<(u32, u32)>,
}

/// Result for a document that contains an n-gram.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Outcome {
    /// One piece of it stays.
    Trimmed,
    /// Several pieces remain, each a document.
    Split,
    /// No piece is long enough.
    Removed,
    /// Dropped: too many pieces.
    TooManyPieces,
}

impl CutNgrams {
    /// Reads the evaluation files.
    pub(crate) fn read(config: &DecontaminateConfig) -> Result<CutNgrams> {
        let mut made = CutNgrams {
            rules: config.cut.clone(),
            longest: config.ngram(),
            tasks: Vec::new(),
            grams: Vec::new(),
            numbers: FxHashMap::default(),
            lengths: Vec::new(),
            beginnings: FxHashSet::default(),
        };
        each_entry(config, &mut |task, entry| {
            let task = made.task(task);
            let texts = each_text(&config.fields, entry, &mut |text| made.add(text, task));
            made.tasks[task as usize].texts += texts;
            Ok(texts)
        })?;
        made.settle();
        Ok(made)
    }

    fn task(&mut self, name: &str) -> u32 {
        let at = self.tasks.iter().position(|t| t.name == name);
        narrow(at.unwrap_or_else(|| {
            self.tasks.push(CutTask {
                name: name.to_string(),
                ..CutTask::default()
            });
            self.tasks.len() - 1
        }))
    }

    fn add(&mut self, text: &str, task: u32) {
        let words = Words::of(text);
        let count = words.len();
        if count < self.longest && count >= self.rules.min_ngram {
            self.insert(&words, 0, count, task);
        }
        for first in 0..(count + 1).saturating_sub(self.longest) {
            self.insert(&words, first, self.longest, task);
        }
    }

    fn insert(&mut self, words: &Words, first: usize, n: usize, task: u32) {
        let mut hash = words.hash(first, n);
        while let Some(number) = self.numbers.get(&hash) {
            if words.are(first, n, &self.grams[*number as usize].text) {
                return;
            }
            hash = hash.wrapping_add(1);
        }
        self.numbers.insert(hash, narrow(self.grams.len()));
        self.grams.push(Gram {
            text: words.joined(first, n).into(),
            words: narrow(n),
            task,
            is_frequent: false,
        });
        self.tasks[task as usize].ngrams += 1;
    }

    /// Records the lengths and first words of the n-grams.
    fn settle(&mut self) {
        let searched = || self.grams.iter().filter(|g| !g.is_frequent);
        let mut lengths: Vec<usize> = searched().map(|g| g.words as usize).collect();
        lengths.sort_unstable();
        lengths.dedup();
        let shortest = lengths.first().copied().unwrap_or(0);
        let beginning = |gram: &Gram| Words::of(&gram.text).hash(0, shortest);
        self.beginnings = searched().map(beginning).collect();
        self.lengths = lengths;
    }

    /// Number of n-grams.
    pub(crate) fn len(&self) -> usize {
        self.grams.len()
    }

    /// An n-gram's words and its task.
    pub(crate) fn gram(&self, number: u32) -> (&str, usize) {
        let gram = &self.grams[number as usize];
        (&gram.text, gram.task as usize)
    }

    /// Stops searching for n-grams in too many documents; returns their number by task.
    pub(crate) fn forget_frequent(&mut self, documents: &[u64]) -> Vec<u64> {
        let mut forgotten = vec![0; self.tasks.len()];
        for (gram, count) in self.grams.iter_mut().zip(documents) {
            if *count >= self.rules.frequent_documents {
                gram.is_frequent = true;
                forgotten[gram.task as usize] += 1;
            }
        }
        self.settle();
        forgotten
    }

    /// Whether documents have to be counted by n-gram first.
    pub(crate) fn wants_counts(&self) -> bool {
        self.rules.frequent_documents > 0
    }

    /// The n-grams of a document, each once, in order. After a match only the following text is searched.
    pub(crate) fn of(&self, text: &str) -> Vec<u32> {
        let mut words = Words::of(text);
        let (mut found, mut first) = (Vec::new(), 0);
        while let Some(hit) = self.first_match(&words, first) {
            found.push(hit.gram);
            let behind = self.joined_chars(&words, hit) + 1;
            let start = words.start(hit.word);
            let Some(base) = skip(text, start, behind) else {
                break;
            };
            first = words.skip_to(hit.word, base, text);
        }
        found.sort_unstable();
        found.dedup();
        found
    }

    /// The remainder of a document; None if it contains no n-gram.
    pub(crate) fn cut(&self, text: &str) -> Option<Cutting> {
        let mut words = Words::of(text);
        let mut found = Cutting::default();
        let (mut first, mut base) = (0, 0);
        loop {
            let Some(hit) = self.first_match(&words, first) else {
                if found.met.is_empty() {
                    return None;
                }
                found.pieces.push((narrow(base), narrow(text.len())));
                return Some(found);
            };
            let start = words.start(hit.word);
            found.met.push((hit.gram, narrow(start)));
            if let Some(end) = self.before(text, base, start)
                && self.is_long(&text[base..end])
            {
                found.pieces.push((narrow(base), narrow(end)));
            }
            let chars = self.joined_chars(&words, hit);
            let behind = self.behind(text, start, chars);
            let Some(behind) = behind.filter(|at| self.is_long(&text[*at..])) else {
                return Some(found);
            };
            base = behind;
            first = words.skip_to(hit.word, base, text);
        }
    }

    /// Result for a document with these cuts.
    pub(crate) fn outcome(&self, cutting: &Cutting) -> Outcome {
        match cutting.pieces.len() {
            0 => Outcome::Removed,
            1 => Outcome::Trimmed,
            n if n <= self.rules.max_pieces => Outcome::Split,
            _ => Outcome::TooManyPieces,
        }
    }

    fn joined_chars(&self, words: &Words, hit: Match) -> usize {
        words.joined_chars(hit.word, self.grams[hit.gram as usize].words as usize)
    }

    /// End of the text that remains before a match.
    fn before(&self, text: &str, base: usize, start: usize) -> Option<usize> {
        let mut back = text[base..start].char_indices().rev();
        let at = match self.rules.side_chars {
            0 => start,
            side => base + back.nth(side - 1)?.0,
        };
        // the character there is included, the first of the text is not
        let end = at + text[at..].chars().next().map_or(0, char::len_utf8);
        let second = base + text[base..].chars().next().map_or(0, char::len_utf8);
        let sentences = text.as_bytes().get(second..end)?;
        let stop = memchr::memrchr3(b'.', b'!', b'?', sentences)?;
        Some(second + stop + 1)
    }

    /// Start of the text to search after a match.
    fn behind(&self, text: &str, start: usize, chars: usize) -> Option<usize> {
        let from = skip(text, start, chars + self.rules.side_chars)?;
        let stop = memchr::memchr3(b'.', b'!', b'?', &text.as_bytes()[from..])?;
        Some(from + stop + 1).filter(|at| *at < text.len())
    }

    fn is_long(&self, piece: &str) -> bool {
        piece.chars().nth(self.rules.min_piece_chars).is_some()
    }

    /// The first n-gram from a word on.
    fn first_match(&self, words: &Words, first: usize) -> Option<Match> {
        let count = words.len() - first;
        let shortest = *self.lengths.first()?;
        if count < self.longest {
            return None;
        }
        let last = words.len() - self.longest;
        for at in first..=last {
            if !self.beginnings.contains(&words.hash(at, shortest)) {
                continue;
            }
            let mut lengths = std::iter::once(&self.longest).chain(&self.lengths);
            if let Some(hit) = lengths.find_map(|n| self.match_at(words, at, *n)) {
                return Some(hit);
            }
        }
        if count == self.longest {
            return None;
        }
        let shorter = self.lengths.iter().filter(|n| **n < self.longest);
        let mut places = shorter.flat_map(|n| (last..=words.len() - n).map(|at| (at, *n)));
        places.find_map(|(at, n)| self.match_at(words, at, n))
    }

    fn match_at(&self, words: &Words, at: usize, n: usize) -> Option<Match> {
        let mut hash = words.hash(at, n);
        loop {
            let number = *self.numbers.get(&hash)?;
            let gram = &self.grams[number as usize];
            if gram.words as usize == n && words.are(at, n, &gram.text) {
                let hit = Match {
                    gram: number,
                    word: at,
                };
                return (!gram.is_frequent).then_some(hit);
            }
            hash = hash.wrapping_add(1);
        }
    }
}

/// The byte `chars` characters after `start`; None at or past the end.
fn skip(text: &str, start: usize, chars: usize) -> Option<usize> {
    let (at, _) = text[start..].char_indices().nth(chars)?;
    Some(start + at)
}

#[cfg(test)]
mod tests;
