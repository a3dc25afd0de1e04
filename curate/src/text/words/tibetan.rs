//! Tibetan: syllables, each with the mark that ends it.
//!
//! datatrove 0.10.1 takes botok, whose dictionary it gets from the network. We differ: a word here is one syllable, where
//! botok joins the syllables of a word, so counts are larger and mean lengths smaller.

use super::Word;
use crate::text::narrow;
use crate::text::unicode::{self, SPACE};

/// Ends a syllable: tsheg and its form without a line break.
fn is_tsheg(c: char) -> bool {
    matches!(c, '\u{f0b}' | '\u{f0c}')
}

/// Marks that stand for themselves: shad and the other ends of clauses and sections.
fn is_mark(c: char) -> bool {
    matches!(c, '\u{f01}'..='\u{f0a}' | '\u{f0d}'..='\u{f14}' | '\u{f3a}'..='\u{f3d}')
        || c.is_ascii_punctuation()
}

/// Replaces `words` by the words of `text`.
pub(super) fn split(text: &str, words: &mut Vec<Word>) {
    words.clear();
    let mut start = None;
    let mut push = |start: usize, end: usize| {
        words.push(Word {
            start: narrow(start),
            end: narrow(end),
        });
    };
    for (at, c) in text.char_indices() {
        let end = at + c.len_utf8();
        if unicode::is(c, SPACE) || is_mark(c) {
            if let Some(start) = start.take() {
                push(start, at);
            }
            if is_mark(c) {
                push(at, end);
            }
        } else if is_tsheg(c) {
            push(start.take().unwrap_or(at), end);
        } else if start.is_none() {
            start = Some(at);
        }
    }
    if let Some(start) = start {
        push(start, text.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_syllable_keeps_its_tsheg_and_a_shad_is_a_word() {
        let text = "བོད་ཡིག །ka b,";
        let mut words = Vec::new();
        split(text, &mut words);
        let words: Vec<&str> = words.iter().map(|w| w.of(text)).collect();
        assert_eq!(words, ["བོད་", "ཡིག", "།", "ka", "b", ","]);
    }
}
