//! Chinese words by jieba's dictionary and model of unknown words (crate `jieba-rs`, MIT), as datatrove 0.10.1 has them from
//! spaCy over jieba. White space is no word.
//!
//! The dictionary is `jieba.txt.zst` (tests/oracles/jieba_words.py), unpacked when the first Chinese text is split, once in a
//! process.

use std::sync::LazyLock;

use jieba_rs::Jieba;

use super::Word;
use crate::text::narrow;
use crate::text::unicode::{self, SPACE};

// Not the copy in the crate: to pack that one, a build would compile zstd a second time.
static JIEBA: LazyLock<Jieba> = LazyLock::new(|| {
    let packed = include_bytes!("jieba.txt.zst");
    let words = zstd::decode_all(&packed[..]).expect("the dictionary is part of the program");
    Jieba::with_dict(&mut &words[..]).expect("the dictionary is lines of words")
});

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
