//! Chinese words by jieba's dictionary and model of unknown words (crate `jieba-rs`, MIT), as datatrove 0.10.1 has them from
//! spaCy over jieba. White space is no word.
//!
//! The dictionary is unpacked when the first Chinese text is split, once in a process.

use std::sync::LazyLock;

use jieba_rs::Jieba;

use super::Word;
use crate::text::narrow;
use crate::text::unicode::{self, SPACE};

static JIEBA: LazyLock<Jieba> = LazyLock::new(Jieba::new);

/// Replaces `words` by the words of `text`.
pub(super) fn split(text: &str, words: &mut Vec<Word>) {
    words.clear();
    // line by line: the graph of a text takes memory by its length
    let mut line_start = 0;
    for line in text.split_inclusive('\n') {
        let mut at = line_start;
        for piece in JIEBA.cut(line, true).iter().map(|token| token.word) {
            let trimmed = piece.trim_matches(|c| unicode::is(c, SPACE));
            if !trimmed.is_empty() {
                let start =
                    at + piece.len() - piece.trim_start_matches(|c| unicode::is(c, SPACE)).len();
                words.push(Word {
                    start: narrow(start),
                    end: narrow(start + trimmed.len()),
                });
            }
            at += piece.len();
        }
        line_start += line.len();
    }
}
