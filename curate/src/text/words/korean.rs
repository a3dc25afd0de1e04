//! Korean words as morphemes: stems, particles and endings.
//!
//! datatrove 0.10.1 takes Kiwi's morphemes; FineWeb-2's stop words and word lengths are counted in them. A run of Hangul
//! is cut where a perceptron that has seen Kiwi's output (`boundaries.rs`) places a boundary; the rest are
//! letters, numbers, marks and addresses.
//! We differ: Kiwi's morphemes may share a syllable (the stem and the past tense of one syllable), which it counts twice.

use super::Word;
use super::boundaries::{self, Weights};
use super::url;
use crate::text::narrow;
use crate::text::unicode::{self, LETTER, SPACE};

fn is_hangul(c: char) -> bool {
    matches!(c, '\u{ac00}'..='\u{d7a3}')
}

/// Bytes of a syllable of Hangul.
const SYLLABLE: usize = 3;

/// Kinds of characters that stay together.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Hangul,
    Letter,
    Number,
    /// Marks stay together while they are the same.
    Mark(char),
}

fn kind_of(c: char) -> Kind {
    match c {
        c if is_hangul(c) => Kind::Hangul,
        c if c.is_ascii_digit() => Kind::Number,
        c if unicode::is(c, LETTER) => Kind::Letter,
        c => Kind::Mark(c),
    }
}

/// Replaces `words` by the words of `text`.
pub(super) fn split(text: &str, words: &mut Vec<Word>) {
    words.clear();
    let mut at = 0;
    for run in text.split(|c| unicode::is(c, SPACE)) {
        let start = at;
        at += run.len();
        at += text[at..].chars().next().map_or(0, char::len_utf8);
        if run.is_empty() {
            continue;
        }
        if url::is_url(run) && !run.chars().any(is_hangul) {
            push(words, start, start + run.len());
        } else {
            split_run(run, start, words);
        }
    }
}

fn push(words: &mut Vec<Word>, start: usize, end: usize) {
    words.push(Word {
        start: narrow(start),
        end: narrow(end),
    });
}

/// Words of a run without white space, which starts at `base` of its text.
fn split_run(run: &str, base: usize, words: &mut Vec<Word>) {
    let mut start = 0;
    while let Some(c) = run[start..].chars().next() {
        let kind = kind_of(c);
        let rest = &run[start..];
        let is_of = |c: char| match kind {
            // a comma or a point inside a number belongs to it
            Kind::Number => c.is_ascii_digit() || matches!(c, ',' | '.'),
            Kind::Hangul | Kind::Letter | Kind::Mark(_) => kind_of(c) == kind,
        };
        let mut end = start + rest.find(|c| !is_of(c)).unwrap_or(rest.len());
        if kind == Kind::Number {
            end = start + run[start..end].trim_end_matches([',', '.']).len();
        }
        if kind == Kind::Hangul {
            split_hangul(&run[start..end], base + start, words);
        } else {
            push(words, base + start, base + end);
        }
        start = end;
    }
}

/// Morphemes of a run of syllables.
fn split_hangul(run: &str, base: usize, words: &mut Vec<Word>) {
    let weights = Weights::korean();
    let count = run.len() / SYLLABLE;
    let mut start = 0;
    for i in 1..count {
        if boundaries::korean(&weights, run, SYLLABLE, i) {
            push(words, base + start, base + i * SYLLABLE);
            start = i * SYLLABLE;
        }
    }
    push(words, base + start, base + run.len());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn particles_and_endings_are_words() {
        let text = "한국어를 공부한다. 3,000명이 www.example.com, OK!!";
        let mut words = Vec::new();
        split(text, &mut words);
        let words: Vec<&str> = words.iter().map(|w| w.of(text)).collect();
        assert_eq!(words[..2], ["한국어", "를"]);
        assert!(words.contains(&"3,000") && words.contains(&"OK") && words.contains(&"!!"));
        assert!(words.contains(&"."), "{words:?}");
    }
}
