//! dolma's repetition tagger: groups of characters that occur four times or more in a row, with at most one white
//! space between.
//!
//! Definition: dolma 1.2.1 `repetitions_v1`, the matches of `(.+?)(\s?\1){3,}` from left to right: at each position
//! the shortest repeating group, with white space where possible. A backtracking engine needs quadratic time; we
//! search for groups of at most 256 bytes, so the time is linear in the length. We differ: longer groups are not
//! found.

use crate::text::chars;
use crate::text::unicode::{self, SPACE};

/// Bytes of the longest group.
const MOST_BYTES: usize = 256;

/// Repetitions in a text.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Repetitions {
    /// Maximum number of repetitions of one group.
    pub(super) times: usize,
    /// Characters of the longest run.
    pub(super) longest: usize,
    /// Characters of all runs.
    pub(super) chars: usize,
}

impl Repetitions {
    pub(super) fn of(text: &str) -> Repetitions {
        let mut found = Repetitions::default();
        let mut at = 0;
        while at < text.len() {
            match run_at(text, at) {
                Some((group, end)) => {
                    let run = &text[at..end];
                    let group = &text[at..at + group];
                    let times = memchr::memmem::find_iter(run.as_bytes(), group).count();
                    let length = chars(run);
                    found.times = found.times.max(times);
                    found.longest = found.longest.max(length);
                    found.chars += length;
                    at = end;
                }
                None => at += width(text.as_bytes()[at]),
            }
        }
        found
    }
}

/// Bytes of the character that starts with this byte.
fn width(first: u8) -> usize {
    match first {
        0..=0xbf => 1,
        0xc0..=0xdf => 2,
        0xe0..=0xef => 3,
        _ => 4,
    }
}

/// Bytes of the white space at `at`, 0 if there is none.
fn space(text: &str, at: usize) -> usize {
    let first = text.as_bytes().get(at).copied().unwrap_or(b'a');
    if first > 0x20 && !matches!(first, 0x85 | 0xa0 | 0xc2 | 0xe1 | 0xe2 | 0xe3) {
        return 0;
    }
    match text.get(at..).and_then(|t| t.chars().next()) {
        Some(c) if unicode::is(c, SPACE) => c.len_utf8(),
        _ => 0,
    }
}

/// Bytes of the group that repeats at `at`, and where the run ends.
fn run_at(text: &str, at: usize) -> Option<(usize, usize)> {
    let bytes = text.as_bytes();
    let first = bytes[at];
    let mut end = at;
    while end < bytes.len() && end - at < MOST_BYTES && bytes[end] != b'\n' {
        end += width(bytes[end]);
        let here = bytes.get(end).copied();
        if here != Some(first) {
            let gap = space(text, end);
            if gap == 0 || bytes.get(end + gap) != Some(&first) {
                continue;
            }
        }
        if let Some(stop) = repeats(text, at, end, end, 0) {
            return Some((end - at, stop));
        }
    }
    None
}

/// End of the repetitions of `text[at..end]` from `from` on, if there are three; `done` of them came before.
fn repeats(text: &str, at: usize, end: usize, from: usize, done: usize) -> Option<usize> {
    let group = &text.as_bytes()[at..end];
    let gap = space(text, from);
    let after = |from: usize| {
        let rest = text.as_bytes().get(from..)?;
        rest.starts_with(group).then_some(from + group.len())
    };
    let ways = [if gap > 0 { after(from + gap) } else { None }, after(from)];
    if done < 2 {
        return ways
            .into_iter()
            .flatten()
            .find_map(|next| repeats(text, at, end, next, done + 1));
    }
    // the third is enough: further ones are taken greedily
    let mut stop = ways.into_iter().flatten().next()?;
    loop {
        let gap = space(text, stop);
        let spaced = if gap > 0 { after(stop + gap) } else { None };
        match spaced.or_else(|| after(stop)) {
            Some(next) => stop = next,
            None => return Some(stop),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> (usize, usize, usize) {
        let r = Repetitions::of(text);
        (r.times, r.longest, r.chars)
    }

    #[test]
    fn runs_are_those_of_the_expression() {
        assert_eq!(found("say aaaa now"), (4, 4, 4));
        assert_eq!(found("ab ab\nab ab!"), (4, 11, 11));
        assert_eq!(found("ab ab ab"), (0, 0, 0));
        assert_eq!(found("no. - - - - yes xyxyxyxy"), (4, 8, 16));
        assert_eq!(found(""), (0, 0, 0));
        // white space is taken where it can be: the run of spaces belongs to the first group that fits
        assert_eq!(found("a    b"), (4, 4, 4));
    }
}
