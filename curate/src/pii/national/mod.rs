//! National identity numbers of the USA, the United Kingdom, the European Union, Norway and Switzerland.
//!
//! A number is found where a template fits between the edges of words and its structure and check digits are right
//! (`checks.rs`). Forms that other numbers have as well need one of the number's words within 64 bytes before or 24 bytes behind
//! (Presidio's context words, but required). If several kinds fit, one whose word is near goes first, then the table's order.

mod checks;
mod table;

use std::ops::Range;

use super::boundary::ends_word;
use super::kind::{Found, PiiKind};
use table::{KINDS, Kind, LONGEST, Needs};

/// Bytes before and behind a number in which its words are looked for.
const BEFORE: usize = 64;
const BEHIND: usize = 24;
/// Most letters before the first digit, with blanks between them.
const LETTERS: usize = 8;

/// Whether a kind is of the country.
pub(super) fn has_country(country: &str) -> bool {
    KINDS.iter().any(|k| k.countries.contains(&country))
}

/// The countries of all kinds, for messages.
pub(super) fn countries() -> String {
    let mut all: Vec<&str> = KINDS.iter().flat_map(|k| k.countries).copied().collect();
    all.sort_unstable();
    all.dedup();
    all.join(", ")
}

/// Finds the numbers of the countries, or of all if there are none.
pub(super) fn find(text: &str, range: Range<usize>, countries: &[String], out: &mut Vec<Found>) {
    let bytes = &text.as_bytes()[..range.end];
    let mut at = range.start;
    while let Some(next) = bytes[at..].iter().position(u8::is_ascii_digit) {
        let digit = at + next;
        let starts = starts(bytes, at..digit);
        let found = starts
            .into_iter()
            .flatten()
            .find_map(|start| number_at(text, bytes, start, countries));
        at = match found {
            Some((kind, span)) => {
                let end = span.end;
                out.push(Found {
                    kind: PiiKind::NationalId,
                    rule: kind.rule,
                    tag: kind.tag,
                    span,
                });
                end
            }
            None => {
                digit
                    + bytes[digit..]
                        .iter()
                        .take_while(|b| b.is_ascii_digit())
                        .count()
            }
        };
    }
}

/// Where a number may start whose first digit is at the range's end: there, or at one of up to two groups of letters
/// before it.
fn starts(bytes: &[u8], range: Range<usize>) -> [Option<usize>; 3] {
    let mut starts = [None; 3];
    let mut at = range.end;
    let least = range.start.max(range.end.saturating_sub(LETTERS));
    for start in &mut starts {
        while at > least && bytes[at - 1].is_ascii_uppercase() {
            at -= 1;
        }
        let before = at.checked_sub(1).map(|i| bytes[i]);
        if before.is_some_and(|b| b.is_ascii_uppercase()) {
            break;
        }
        *start = is_start(bytes, at).then_some(at);
        let is_group = at > least + 1
            && matches!(before, Some(b' ' | b'-'))
            && bytes[at - 2].is_ascii_uppercase();
        if !is_group {
            break;
        }
        at -= 1;
    }
    // the longest first
    starts.reverse();
    starts
}

/// Whether no word or number goes on before this place.
fn is_start(bytes: &[u8], at: usize) -> bool {
    let before = |n: usize| at.checked_sub(n).and_then(|i| bytes.get(i));
    match before(1) {
        Some(b'+' | b'$' | b'#') => false,
        Some(b'-') => ends_word(before(2)),
        Some(b'.' | b'/' | b',') => !before(2).is_some_and(u8::is_ascii_digit),
        other => ends_word(other),
    }
}

/// Whether no word or number goes on at this place.
fn is_end(bytes: &[u8], at: usize) -> bool {
    let next = bytes.get(at);
    let goes_on = matches!(next, Some(b'.' | b'-' | b'/' | b','))
        && bytes.get(at + 1).is_some_and(u8::is_ascii_digit);
    ends_word(next) && !goes_on
}

fn number_at(
    text: &str,
    bytes: &[u8],
    start: usize,
    countries: &[String],
) -> Option<(&'static Kind, Range<usize>)> {
    let mut context = None;
    let mut alone = None;
    for kind in &KINDS {
        if !countries.is_empty()
            && !kind
                .countries
                .iter()
                .any(|c| countries.iter().any(|w| w == c))
        {
            continue;
        }
        for (template, needs) in kind.forms {
            let Some((end, compact)) = fit(template.as_bytes(), bytes, start) else {
                continue;
            };
            if !(kind.check)(&compact) {
                continue;
            }
            let span = start..end;
            let near = context.get_or_insert_with(|| around(text, &span));
            if has_word(near, kind) {
                return Some((kind, span));
            }
            if *needs == Needs::Nothing && alone.is_none() && (kind.plausible)(&compact) {
                alone = Some((kind, span));
            }
        }
    }
    alone
}

/// Where the template ends that starts here, and the characters without separators. Swedish and Finnish signs are kept.
fn fit(template: &[u8], bytes: &[u8], start: usize) -> Option<(usize, Vec<u8>)> {
    let mut at = start;
    let mut compact = [0; LONGEST];
    let mut length = 0;
    for t in template {
        let b = *bytes.get(at)?;
        let (fits, is_kept) = match t {
            b'9' => (b.is_ascii_digit(), true),
            b'A' => (b.is_ascii_uppercase(), true),
            b'?' => (b.is_ascii_digit() || b.is_ascii_uppercase(), true),
            b'N' => (matches!(b, b'X'..=b'Z'), true),
            b's' => (matches!(b, b'-' | b'+'), true),
            b'c' => (matches!(b, b'-' | b'+' | b'A'..=b'F' | b'U'..=b'Y'), true),
            b' ' if bytes[at..].starts_with("\u{a0}".as_bytes()) => {
                at += 1;
                (true, false)
            }
            other => (b == *other, false),
        };
        if !fits {
            return None;
        }
        if is_kept {
            *compact.get_mut(length)? = b;
            length += 1;
        }
        at += 1;
    }
    is_end(bytes, at).then(|| (at, compact[..length].to_vec()))
}

/// The text near a number in lower case.
fn around(text: &str, span: &Range<usize>) -> String {
    let (mut start, mut end) = (
        span.start.saturating_sub(BEFORE),
        text.len().min(span.end + BEHIND),
    );
    while !text.is_char_boundary(start) {
        start += 1;
    }
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    // the number itself is no word
    let mut near = text[start..span.start].to_lowercase();
    near.push('\n');
    near.extend(text[span.end..end].chars().flat_map(char::to_lowercase));
    near
}

/// Whether one of the kind's words is there, whole. Blanks in a phrase may be any signs between words.
fn has_word(near: &str, kind: &Kind) -> bool {
    kind.words.iter().any(|word| {
        let mut parts = word.split(' ');
        let first = parts.next().unwrap_or(word);
        near.match_indices(first).any(|(at, _)| {
            let alone = !near[..at]
                .chars()
                .next_back()
                .is_some_and(char::is_alphanumeric);
            let rest = parts
                .clone()
                .try_fold(&near[at + first.len()..], |rest, part| {
                    let next = rest.trim_start_matches([' ', '-', '_', '\u{a0}', '\n', '.']);
                    (next.len() < rest.len())
                        .then(|| next.strip_prefix(part))
                        .flatten()
                });
            alone
                && rest.is_some_and(|rest| !rest.chars().next().is_some_and(char::is_alphanumeric))
        })
    })
}

#[cfg(test)]
mod tests;
