//! Contexts of possible sentence ends: each candidate position with the words around it that decide.
//!
//! Facts: NLTK 3.10's `period_context_re` (a `.`, `?` or `!` before a closing mark, or before white space and a word) and
//! Megatron-LM's variant that keeps newlines (the whole word, and white space after it, belong to the match).
//! A candidate is dropped if the word before it continues: of `!!!` only the last one counts.

use super::words::is_non_word;
use std::ops::Range;

/// A possible end.
#[derive(Clone, Debug)]
pub(super) struct End {
    /// Start of the match: the context's first part ends here.
    start: usize,
    /// The sentence ends here.
    pub(super) end: usize,
    /// The next one starts here.
    pub(super) next: usize,
    /// The context ends here.
    after: usize,
}

/// Calls `found` for every possible end, with the range of its context.
pub(super) fn each(text: &str, keep_newlines: bool, mut found: impl FnMut(&End, Range<usize>)) {
    let mut before = 0..0;
    let mut pending: Option<End> = None;
    let mut from = 0;
    while let Some(end) = next_end(text, from, keep_newlines) {
        from = end.end;
        let gap = &text[before.end..end.start];
        let space = gap.rfind([' ', '\t', '\n', '\r', '\u{b}', '\u{c}']);
        // white space right at the gap's start does not count
        let word_start = match space {
            None | Some(0) => before.start,
            Some(at) => before.end + at + 1,
        };
        if let Some(pending) = pending.take_if(|_| before.end <= word_start) {
            found(&pending, before.start..pending.after);
        }
        before = word_start..end.start;
        pending = Some(end);
    }
    if let Some(pending) = pending {
        found(&pending, before.start..pending.after);
    }
}

fn next_end(text: &str, from: usize, keep_newlines: bool) -> Option<End> {
    if keep_newlines {
        end_of_word(text, from)
    } else {
        end_mark(text, from)
    }
}

/// The next mark that a closing mark, or white space and a word, follows.
fn end_mark(text: &str, from: usize) -> Option<End> {
    let marks = memchr::memchr3_iter(b'.', b'?', b'!', &text.as_bytes()[from..]);
    marks.map(|at| from + at).find_map(|start| {
        let end = start + 1;
        let rest = &text[end..];
        let first = rest.chars().next()?;
        if is_non_word(first) {
            return Some(End {
                start,
                end,
                next: end,
                after: end + first.len_utf8(),
            });
        }
        let word = rest.trim_start();
        let next = text.len() - word.len();
        (next > end && !word.is_empty()).then(|| End {
            start,
            end,
            next,
            after: next + word_len(word),
        })
    })
}

/// The next word with a mark that something follows: from the word's start to the white space after its last such mark.
fn end_of_word(text: &str, from: usize) -> Option<End> {
    let mut start = from;
    loop {
        let rest = text[start..].trim_start();
        start = text.len() - rest.len();
        if rest.is_empty() {
            return None;
        }
        let word = &rest[..word_len(rest)];
        for (at, _) in word.rmatch_indices(['.', '?', '!']) {
            let after_mark = start + at + 1;
            let following = text[after_mark..].trim_start();
            let Some(first) = following.chars().next() else {
                continue;
            };
            let end = text.len() - following.len();
            let is_closing = is_non_word(first);
            return Some(End {
                start,
                end,
                next: end,
                after: end
                    + if is_closing {
                        first.len_utf8()
                    } else {
                        word_len(following)
                    },
            });
        }
        start += word.len();
    }
}

/// Bytes before the first white space.
fn word_len(text: &str) -> usize {
    text.find(char::is_whitespace).unwrap_or(text.len())
}
