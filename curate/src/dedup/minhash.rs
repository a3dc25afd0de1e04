//! MinHash signatures as datatrove makes them.
//!
//! Paper: Broder 1997. Words of the simplified text, shingles of `ngram` words joined by one space,
//! XXH64 of each, minima under `buckets * hashes` permutations. A text with fewer words than a
//! shingle has no signature and is never a near duplicate.

use xxhash_rust::xxh64::xxh64;

use super::kernel;
use super::permutation::permutations;
use super::simplify::simplify;
use crate::config::MinhashConfig;
use crate::words::{Splitter, Word};

/// Permutations of one configuration, shared by all threads.
pub struct Minhasher {
    ngram: usize,
    a: Vec<u64>,
    b: Vec<u64>,
}

/// Buffers of one thread.
#[derive(Default)]
pub struct MinhashScratch {
    simple: String,
    joined: String,
    words: Vec<Word>,
    ends: Vec<usize>,
    shingles: Vec<u64>,
}

impl Minhasher {
    /// Draws the permutations.
    pub fn new(config: &MinhashConfig) -> Minhasher {
        let (a, b) = permutations(config.seed, config.buckets * config.hashes);
        Minhasher {
            ngram: config.ngram,
            a,
            b,
        }
    }

    /// Number of permutations.
    pub fn len(&self) -> usize {
        self.a.len()
    }

    /// True if there is no permutation.
    pub fn is_empty(&self) -> bool {
        self.a.is_empty()
    }

    /// The shingle hashes of a text, in order, duplicates included.
    pub fn shingles<'s>(
        &self,
        text: &str,
        splitter: &mut Splitter,
        scratch: &'s mut MinhashScratch,
    ) -> &'s [u64] {
        let MinhashScratch {
            simple,
            joined,
            words,
            ends,
            shingles,
        } = scratch;
        simplify(text, simple);
        splitter.split(simple, words);
        joined.clear();
        ends.clear();
        shingles.clear();
        ends.push(0);
        for word in words.iter() {
            joined.push_str(word.of(simple));
            joined.push(' ');
            ends.push(joined.len());
        }
        let bytes = joined.as_bytes();
        for window in ends.windows(self.ngram + 1) {
            // Without the space after the last word.
            shingles.push(xxh64(&bytes[window[0]..window[self.ngram] - 1], 0));
        }
        shingles
    }

    /// Fills `signature` and returns true, or returns false if the text has too few words.
    pub fn signature(
        &self,
        text: &str,
        splitter: &mut Splitter,
        scratch: &mut MinhashScratch,
        signature: &mut Vec<u64>,
    ) -> bool {
        let shingles = self.shingles(text, splitter, scratch);
        signature.clear();
        signature.resize(self.len(), u64::MAX);
        kernel::minima(&self.a, &self.b, shingles, signature);
        !shingles.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_sentence_gives_datatroves_first_bucket() {
        let hasher = Minhasher::new(&MinhashConfig::default());
        let text = "The quick brown fox jumps over the lazy dog, 3.14 times on Monday! Caf\u{e9}";
        let mut scratch = MinhashScratch::default();
        let mut splitter = Splitter::new();
        let shingles = hasher.shingles(text, &mut splitter, &mut scratch).to_vec();
        assert_eq!(shingles.len(), 10);
        assert_eq!(shingles[0], 7797000677988824208);
        let mut signature = Vec::new();
        assert!(hasher.signature(text, &mut splitter, &mut scratch, &mut signature));
        assert_eq!(
            signature[..8],
            [
                48476309300070401,
                184339147761722157,
                299029816776204348,
                34440879854629237,
                58950450898398279,
                117899488208280896,
                6902592715498867,
                171478015495401766
            ]
        );
    }

    #[test]
    fn four_words_have_no_signature() {
        let hasher = Minhasher::new(&MinhashConfig::default());
        let mut out = Vec::new();
        assert!(!hasher.signature(
            "one two three four",
            &mut Splitter::new(),
            &mut MinhashScratch::default(),
            &mut out
        ));
    }
}
