//! Telephone numbers as libphonenumber's `PhoneNumberMatcher` finds them with leniency `VALID`: international numbers,
//! and national numbers of the regions that are asked for.
//!
//! A candidate is a run of digits with signs between them. It is a number if its digits are one by the region's numbering
//! plan (`plans.rs`), it has the prefix for calls inside where numbers are written with it, its brackets match, and no Latin
//! letter, `%` or currency sign touches it. Dates, times and pages of publications are none. If a candidate is no number,
//! its parts are tried. We differ: several regions are tried on each candidate in turn, where the matcher knows one;
//! no candidate is given up after many that failed; carrier codes written `xx` are not read; digits are those of six scripts.
//! Dates with dots or hyphens (`07.06.2026`) are no numbers either, where the matcher knows only those with slashes: more than half
//! of its matches on German news pages are such dates.

mod parse;
mod plans;
mod regions;
mod signs;

use std::ops::Range;
use std::sync::LazyLock;

use regex::Regex;

use parse::{EXTENSION, Number, Source, digits_of, parse, second_number, without_end};
use plans::Plan;
use signs::{begins_extension, digit, excludes, is_bracket, is_lead, is_plus, is_punctuation};

pub(super) use regions::{Regions, of_language};

/// Signs in a row, digits of a block, blocks behind the first.
const SIGNS: usize = 4;
const BLOCK: usize = 20;
const BLOCKS: usize = 20;
/// Bytes that are searched for an extension.
const EXTENSION_BYTES: usize = 64;
/// No plan has shorter numbers.
const FEWEST_DIGITS: usize = 4;

/// Patterns of text that is no number, and of places where a candidate can be parted.
struct Patterns {
    extension: Regex,
    /// Brackets in pairs, four at most, none in another; the first may be unopened or unclosed.
    brackets: Regex,
    date: Regex,
    dotted_date: Regex,
    time: Regex,
    time_goes_on: Regex,
    pages: Regex,
    /// Each with the signs of which it needs one, if they are few.
    parts: [(&'static [char], Regex); 6],
}

static PATTERNS: LazyLock<Patterns> = LazyLock::new(|| {
    let new = |pattern: &str| Regex::new(pattern).expect("the pattern is one");
    Patterns {
        extension: new(&format!("^{}", *EXTENSION)),
        brackets: new(
            r"^[(\[\u{ff08}\u{ff3b}]?(?:[^()\[\]\u{ff08}\u{ff09}\u{ff3b}\u{ff3d}]+[)\]\u{ff09}\u{ff3d}])?[^()\[\]\u{ff08}\u{ff09}\u{ff3b}\u{ff3d}]+(?:[(\[\u{ff08}\u{ff3b}][^()\[\]\u{ff08}\u{ff09}\u{ff3b}\u{ff3d}]+[)\]\u{ff09}\u{ff3d}]){0,3}[^()\[\]\u{ff08}\u{ff09}\u{ff3b}\u{ff3d}]*$",
        ),
        date: new(r"(?:[0-3]?\d/[01]?\d|[01]?\d/[0-3]?\d)/(?:[12]\d)?\d{2}"),
        dotted_date: new(&dotted_date()),
        time: new(r"[12]\d{3}[-/]?[01]\d[-/]?[0-3]\d +[0-2]\d$"),
        time_goes_on: new(r"^:[0-5]\d"),
        pages: new(r"\d{1,5}-+\d{1,5}\s{0,4}\(\d{1,4}"),
        parts: [
            (&['/'], new("/+(.*)")),
            (&['('], new(r"(\([^(]*)")),
            (&['-'], new(r"(?:\s-|-\s)\s*(.+)")),
            (
                &['\u{2012}', '\u{2013}', '\u{2014}', '\u{2015}', '\u{ff0d}'],
                new(r"[\u{2012}-\u{2015}\u{ff0d}]\s*(.+)"),
            ),
            (&['.'], new(r"\.+\s*([^.]+)")),
            (&[' ', '\u{a0}', '\u{3000}', '\t'], new(r"\s+(\S+)")),
        ],
    }
});

/// A date with dots or hyphens that is no part of a longer number: day and month in either order and the year, or the year first.
fn dotted_date() -> String {
    let (day, month, year) = (
        "(?:0?[1-9]|[12][0-9]|3[01])",
        "(?:0?[1-9]|1[0-2])",
        "(?:19|20)[0-9]{2}",
    );
    let (dot, hyphen) = (r"\.[ \u{a0}]?", "-");
    let dates = [(dot, "(?:(?:19|20)?[0-9]{2})"), (hyphen, year)].map(|(sign, year)| {
        format!("{day}{sign}{month}{sign}{year}|{month}{sign}{day}{sign}{year}")
    });
    let [dotted, hyphens] = dates;
    format!(
        r"(?:^|[^0-9.-])(?:{dotted}|{hyphens}|{year}[.-]{month}[.-]{day})(?:$|[^0-9.-]|[.-](?:$|[^0-9]))"
    )
}

/// Whether the ISO 3166 code is that of a region with a numbering plan.
pub(super) fn is_region(name: &str) -> bool {
    plans::of_region(name).is_some()
}

pub(super) fn find(
    text: &str,
    range: Range<usize>,
    regions: &Regions,
    out: &mut Vec<Range<usize>>,
) {
    let mut at = range.start;
    while let Some(first) = next_digit(text, at..range.end) {
        let start = lead(text, at..first);
        let end = candidate_end(text, first..range.end);
        let candidate = &text[start..end];
        let end = start + second_number(candidate).unwrap_or(candidate.len());
        match in_candidate(text, start..end, regions) {
            Some(span) => {
                at = span.end;
                if !is_ours(&text[span.clone()]) {
                    out.push(span);
                }
            }
            None => at = end,
        }
    }
}

/// Whether the number is one that we put in: 555-01xx of an area code that nobody has.
fn is_ours(number: &str) -> bool {
    let number = number.strip_prefix("+1 ").unwrap_or(number);
    number.len() == 12 && number.starts_with("555-555-01")
}

/// Start of the next digit of any script.
fn next_digit(text: &str, range: Range<usize>) -> Option<usize> {
    let bytes = &text.as_bytes()[..range.end];
    let mut at = range.start;
    loop {
        // first bytes of digits: ASCII, Arabic, Persian, Indian, full width
        let is_first = |b: &u8| b.is_ascii_digit() || matches!(b, 0xd9 | 0xdb | 0xe0 | 0xef);
        at += bytes.get(at..)?.iter().position(is_first)?;
        if text[at..].chars().next().and_then(digit).is_some() {
            return Some(at);
        }
        at += 1;
        while !text.is_char_boundary(at) {
            at += 1;
        }
    }
}

/// Start of the candidate whose first digit is at the range's end: up to two opening signs, each with punctuation behind it.
fn lead(text: &str, range: Range<usize>) -> usize {
    let mut start = range.end;
    let near = || text[range.clone()].chars().rev().take(2 * (SIGNS + 1));
    if !near()
        .take_while(|c| is_punctuation(*c) || is_lead(*c))
        .any(is_lead)
    {
        return start;
    }
    let before = text[range.clone()]
        .char_indices()
        .rev()
        .take(2 * (SIGNS + 1));
    let before: Vec<(usize, char)> = before.map(|(i, c)| (range.start + i, c)).collect();
    // how many characters back an opening sign may stand behind which the others come
    let mut ends = vec![0];
    for _ in 0..2 {
        let mut opened = Vec::new();
        for end in ends {
            for (i, (at, c)) in before.iter().enumerate().skip(end).take(SIGNS + 1) {
                if is_lead(*c) {
                    opened.push(i + 1);
                    start = start.min(*at);
                }
                if !is_punctuation(*c) {
                    break;
                }
            }
        }
        ends = opened;
    }
    start
}

/// End of the candidate whose first digit is at the range's start.
fn candidate_end(text: &str, range: Range<usize>) -> usize {
    let part = &text[range.clone()];
    let (mut end, mut blocks, mut in_block, mut signs) = (0, 0, 0, 0);
    for (at, c) in part.char_indices() {
        if digit(c).is_some() {
            if signs > 0 || in_block == BLOCK {
                (blocks, in_block) = (blocks + 1, 0);
            }
            if blocks > BLOCKS {
                break;
            }
            (in_block, signs, end) = (in_block + 1, 0, at + c.len_utf8());
        } else if is_punctuation(c) && signs < SIGNS {
            signs += 1;
        } else {
            break;
        }
    }
    let blanks = |c: char| matches!(c, ' ' | '\u{a0}' | '\t' | ',' | '-');
    let next = part[end..].trim_start_matches(blanks).chars().next();
    if !next.is_some_and(begins_extension) {
        return range.start + end;
    }
    let mut stop = part.len().min(end + EXTENSION_BYTES);
    while !part.is_char_boundary(stop) {
        stop -= 1;
    }
    let extension = PATTERNS.extension.find(&part[end..stop]);
    range.start + end + extension.map_or(0, |found| found.end())
}

/// The first number in a candidate: all of it, or a part.
fn in_candidate(text: &str, span: Range<usize>, regions: &Regions) -> Option<Range<usize>> {
    let candidate = &text[span.clone()];
    let has = |sign: char| candidate.contains(sign);
    let digits = candidate.chars().filter(|c| digit(*c).is_some()).count();
    if digits < FEWEST_DIGITS || (has('/') && PATTERNS.date.is_match(candidate)) {
        return None;
    }
    if text[span.end..].starts_with(':')
        && PATTERNS.time.is_match(candidate)
        && PATTERNS.time_goes_on.is_match(&text[span.end..])
    {
        return None;
    }
    let is_abroad = candidate.contains(is_plus);
    // a region has the whole candidate before it is parted for the next
    (regions.plans().iter().map(|plan| Some(*plan)))
        .chain(regions.plans().is_empty().then_some(None))
        .filter(|region| is_abroad || region.is_some_and(|r| digits >= r.fewest_dialled))
        .find_map(|region| {
            let is_number =
                |span: Range<usize>| is_number(text, span.clone(), region).then_some(span);
            is_number(span.clone()).or_else(|| in_part(candidate, span.start, is_number))
        })
}

/// The first part of a candidate that is a number, by the signs at which it can be parted.
fn in_part(
    candidate: &str,
    offset: usize,
    is_number: impl Fn(Range<usize>) -> Option<Range<usize>>,
) -> Option<Range<usize>> {
    let trimmed =
        |start: usize, part: &str| offset + start..offset + start + without_end(part).len();
    for (signs, pattern) in &PATTERNS.parts {
        if !candidate.contains(*signs) {
            continue;
        }
        let mut from = 0;
        while let Some(found) = pattern.captures_at(candidate, from) {
            let (Some(whole), Some(part)) = (found.get(0), found.get(1)) else {
                break;
            };
            if from == 0 {
                let before = is_number(trimmed(0, &candidate[..whole.start()]));
                if before.is_some() {
                    return before;
                }
            }
            let inner = is_number(trimmed(part.start(), part.as_str()));
            if inner.is_some() {
                return inner;
            }
            from = whole.start()
                + candidate[whole.start()..]
                    .chars()
                    .next()
                    .map_or(1, char::len_utf8);
        }
    }
    None
}

fn is_number(text: &str, span: Range<usize>, region: Option<&'static Plan>) -> bool {
    let candidate = &text[span.clone()];
    let fewest = match region {
        Some(plan) if !candidate.contains(is_plus) => plan.fewest_dialled.max(FEWEST_DIGITS),
        _ => FEWEST_DIGITS,
    };
    if candidate
        .chars()
        .filter(|c| digit(*c).is_some())
        .take(fewest)
        .count()
        < fewest
        || (candidate.contains(is_bracket) && !PATTERNS.brackets.is_match(candidate))
        || (candidate.contains('-') && PATTERNS.pages.is_match(candidate))
        || (candidate.contains(['.', '-']) && PATTERNS.dotted_date.is_match(candidate))
    {
        return false;
    }
    let before = text[..span.start].chars().next_back();
    let touched = before.is_some_and(excludes) && !candidate.starts_with(is_lead);
    if touched || text[span.end..].chars().next().is_some_and(excludes) {
        return false;
    }
    parse(candidate, region).is_some_and(|number| {
        plans::is_valid(number.code, &number.digits)
            && has_extension_at_x(candidate, &number)
            && has_prefix(candidate, &number)
    })
}

/// Every `x` but one at the end begins the extension.
fn has_extension_at_x(candidate: &str, number: &Number) -> bool {
    let mut signs = candidate.char_indices().peekable();
    while let Some((at, c)) = signs.next() {
        if signs.peek().is_some()
            && matches!(c, 'x' | 'X')
            && number.extension != Some(digits_of(&candidate[at..]))
        {
            return false;
        }
    }
    true
}

/// A national number has the prefix for calls inside, if numbers like it are written with it.
fn has_prefix(candidate: &str, number: &Number) -> bool {
    let Some(plan) = plans::of_code(number.code)
        .first()
        .filter(|_| number.source == Source::Region)
    else {
        return true;
    };
    !plan.wants_inside(&number.digits) || plan.without_inside(&digits_of(candidate)).is_some()
}

#[cfg(test)]
mod tests;
