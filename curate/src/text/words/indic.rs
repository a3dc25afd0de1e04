//! IndicNLP's words for languages of India: pieces between spaces and marks of punctuation.
//!
//! Source: indic-nlp-library 0.92, `trivial_tokenize`, which datatrove 0.10.1 uses: a word ends at a space, a tab or a
//! mark, and each mark is a word; other white space parts nothing, so a word may span lines, and is only stripped.
//! Numbers with a comma, full stop, colon or slash between them are one word (not for Urdu).
//! We differ: a number whose parts stand apart (`10 , 5`) keeps its spaces as it is a range of the text.

use super::Word;
use crate::text::narrow;
use crate::text::unicode::{self, SPACE};

/// Whose marks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Marks {
    Indic,
    Urdu,
}

impl Marks {
    fn has(self, c: char) -> bool {
        // Python's string.punctuation, whose backslash is lost in the expression's brackets
        if c.is_ascii() {
            return c.is_ascii_punctuation() && c != '\\';
        }
        match self {
            Marks::Indic => matches!(
                c,
                '\u{964}' | '\u{965}' | '\u{aaf0}' | '\u{aaf1}' | '\u{abeb}'
                    ..='\u{abef}' | '\u{1c7e}' | '\u{1c7f}'
            ),
            Marks::Urdu => matches!(
                c,
                '\u{609}' | '\u{60a}' | '\u{60c}' | '\u{61e}' | '\u{66a}'..='\u{66d}' | '\u{6d4}'
            ),
        }
    }
}

/// Replaces `words` by the words of `text`.
pub(super) fn split(marks: Marks, text: &str, words: &mut Vec<Word>) {
    words.clear();
    let mut start = None;
    let push = |words: &mut Vec<Word>, start: usize, end: usize| {
        words.push(Word {
            start: narrow(start),
            end: narrow(end),
        });
    };
    for (at, c) in text.char_indices() {
        let is_mark = marks.has(c);
        if is_mark || c == ' ' || c == '\t' {
            if let Some(start) = start.take() {
                push(words, start, at);
            }
            if is_mark {
                push(words, at, at + c.len_utf8());
            }
        } else if start.is_none() {
            start = Some(at);
        }
    }
    if let Some(start) = start {
        push(words, start, text.len());
    }
    if marks == Marks::Indic {
        join_numbers(text, words);
    }
    strip(text, words);
}

/// Joins numbers that a mark parts.
fn join_numbers(text: &str, words: &mut Vec<Word>) {
    let ends_in_digit = |w: &Word| w.of(text).ends_with(|c: char| c.is_ascii_digit());
    let starts_with_digit = |w: &Word| w.of(text).starts_with(|c: char| c.is_ascii_digit());
    let is_number = |w: &Word| w.of(text).bytes().all(|b| b.is_ascii_digit());
    // a chain that begins with the text stays as it is
    let mut first_chain = words.first().is_some_and(is_number);
    let mut kept = 0;
    let mut at = 0;
    while at < words.len() {
        let mut word = words[at];
        let mut last = word;
        at += 1;
        while let [mark, next, ..] = words[at..] {
            let joins = matches!(mark.of(text), "," | "." | ":" | "/");
            if !(joins && ends_in_digit(&last) && starts_with_digit(&next)) {
                break;
            }
            if first_chain {
                words[kept] = word;
                words[kept + 1] = mark;
                kept += 2;
                word = next;
                // what follows a part that is more than a number is a chain of its own
                first_chain = is_number(&next);
            } else {
                word.end = next.end;
            }
            last = next;
            at += 2;
        }
        first_chain = false;
        words[kept] = word;
        kept += 1;
    }
    words.truncate(kept);
}

/// Takes white space from both ends of each word, and words without anything else.
fn strip(text: &str, words: &mut Vec<Word>) {
    let space = |c| unicode::is(c, SPACE);
    words.retain_mut(|word| {
        let whole = word.of(text);
        let head = whole.trim_start_matches(space);
        word.start += narrow(whole.len() - head.len());
        word.end = word.start + narrow(head.trim_end_matches(space).len());
        !word.is_empty()
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(marks: Marks, text: &str) -> Vec<&str> {
        let mut out = Vec::new();
        split(marks, text, &mut out);
        out.iter().map(|w| w.of(text)).collect()
    }

    // outputs of indic-nlp-library 0.92 through datatrove 0.10.1
    #[test]
    fn words_end_at_spaces_and_marks_and_numbers_are_joined() {
        let indic = |text| words(Marks::Indic, text);
        assert_eq!(indic("यह, सच है।\nऔर"), ["यह", ",", "सच", "है", "।", "और"]);
        assert_eq!(indic("यह सच\nऔर"), ["यह", "सच\nऔर"]);
        assert_eq!(indic("on 12.5.2010, 7,5x8:9"), ["on", "12.5.2010, 7,5x8:9"]);
        assert_eq!(
            indic("12.5.7x8:9 1,2"),
            ["12", ".", "5", ".", "7x8:9", "1,2"]
        );
        assert_eq!(indic("12.5 and 12.5"), ["12", ".", "5", "and", "12.5"]);
        assert_eq!(indic(r"a\b"), [r"a\b"]);
        assert_eq!(
            words(Marks::Urdu, "یہ، 12.5۔"),
            ["یہ", "،", "12", ".", "5", "۔"]
        );
    }
}
