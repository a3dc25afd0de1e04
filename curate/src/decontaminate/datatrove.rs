//! datatrove's n-gram decontamination (profile `datatrove`).
//!
//! Program: datatrove 0.10.1, `pipeline/decont/n_grams.py`. Words are spaCy's blank English ones of the simplified
//! text, an n-gram is 12 of them joined by a space, hashed with XXH64. A record contributes the n-grams of its
//! label, on request those of its query, and those that begin in the query and end in the label. The index contains
//! the same hashes as datatrove's.

use xxhash_rust::xxh64::xxh64;

use crate::text::simplify::simplify;
use crate::text::words::{Splitter, Word};

/// Buffers for one text.
#[derive(Default)]
pub(super) struct Words {
    splitter: Splitter,
    simple: String,
    words: Vec<Word>,
    /// Words with a space after each, and the end of each.
    joined: String,
    ends: Vec<usize>,
}

impl Words {
    /// Takes the words of a text.
    pub(super) fn read(&mut self, text: &str) {
        simplify(text, &mut self.simple);
        self.splitter.split(&self.simple, &mut self.words);
        self.joined.clear();
        self.ends.clear();
        self.ends.push(0);
        for word in &self.words {
            self.joined.push_str(word.of(&self.simple));
            self.joined.push(' ');
            self.ends.push(self.joined.len());
        }
    }

    fn len(&self) -> usize {
        self.ends.len() - 1
    }

    /// Words `from..to` joined by spaces.
    fn span(&self, from: usize, to: usize) -> &str {
        self.joined[self.ends[from]..self.ends[to]].trim_end_matches(' ')
    }

    /// The n-grams in order.
    pub(super) fn ngrams(&self, n: usize) -> impl Iterator<Item = &str> {
        (n..=self.len()).map(move |end| self.span(end - n, end))
    }
}

/// Hash of an n-gram.
pub(super) fn hash(ngram: &str) -> u64 {
    xxh64(ngram.as_bytes(), 0)
}

/// Calls `take` with the hashes of the n-grams that begin in a query and end in its label.
pub(super) fn overlaps(query: &Words, label: &Words, n: usize, take: &mut dyn FnMut(u64)) {
    for of_label in 1..n {
        let of_query = n - of_label;
        if query.len() >= of_query && label.len() >= of_label {
            let start = query.span(query.len() - of_query, query.len());
            take(hash(&format!("{start} {}", label.span(0, of_label))));
        }
    }
}
