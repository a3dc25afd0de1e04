//! Words of scripts that put no space between them: Japanese, Thai, Khmer, Lao, Burmese.
//!
//! Segmentation by the dictionaries of ICU (crate `icu_segmenter`, Unicode-3.0), where datatrove 0.10.1 takes
//! SudachiPy, PyThaiNLP (`joined.rs`), khmer-nltk, LaoNLP and pyidaungsu. curate/docs/words.md has the agreement in figures.
//! White space is no word; every other segment is.

use std::sync::LazyLock;

use icu_segmenter::options::WordBreakInvariantOptions;
use icu_segmenter::{WordSegmenter, WordSegmenterBorrowed};

use super::Word;
use crate::text::narrow;
use crate::text::unicode::{self, SPACE};

static SEGMENTER: LazyLock<WordSegmenterBorrowed<'static>> =
    LazyLock::new(|| WordSegmenter::new_dictionary(WordBreakInvariantOptions::default()));

/// Replaces `words` by the words of `text`.
pub(super) fn split(text: &str, words: &mut Vec<Word>) {
    words.clear();
    let mut start = 0;
    for end in SEGMENTER.segment_str(text) {
        let is_space = text[start..end].chars().all(|c| unicode::is(c, SPACE));
        if !is_space {
            words.push(Word {
                start: narrow(start),
                end: narrow(end),
            });
        }
        start = end;
    }
}
