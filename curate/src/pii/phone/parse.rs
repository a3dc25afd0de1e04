//! A candidate read as a number of a region, as libphonenumber's `parse` reads it.

use std::sync::LazyLock;

use regex::Regex;

use super::plans::{self, Length, Plan};
use super::signs::{digit, is_plus, is_punctuation};

/// Where the country code comes from.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Source {
    /// `+`.
    Plus,
    /// The prefix for calls abroad.
    Abroad,
    /// The digits themselves, without a sign.
    Digits,
    /// The region.
    Region,
}

/// A number, not yet checked against its plan.
pub(super) struct Number {
    /// Country code.
    pub(super) code: u16,
    /// Digits behind the country code and without prefixes.
    pub(super) digits: String,
    pub(super) source: Source,
    /// Digits of the extension, as they are written.
    pub(super) extension: Option<String>,
}

/// Digits of a national number. ITU-T E.164 allows 15 in all; libphonenumber has seen 17 in Germany.
const SHORTEST: usize = 2;
const LONGEST: usize = 17;
/// Digits of a country code, at most.
const CODE_DIGITS: usize = 3;

/// Blanks and commas, a word or sign for an extension, at most so many digits, `#`. Forms that only occur at the end of a
/// number that is parsed, commas and semicolons, need not be known: they are no part of a candidate.
pub(super) static EXTENSION: LazyLock<String> = LazyLock::new(|| {
    let digits =
        "[0-9\u{ff10}-\u{ff19}\u{660}-\u{669}\u{6f0}-\u{6f9}\u{966}-\u{96f}\u{9e6}-\u{9ef}]";
    let (before, behind) = ("[ \u{a0}\t,]*", "[:.\u{ff0e}]?[ \u{a0}\t,-]*");
    let words = "e?xt(?:ensi(?:o\u{301}?|\u{f3}))?n?|\u{ff45}?\u{ff58}\u{ff54}\u{ff4e}?|\u{434}\u{43e}\u{431}|anexo";
    let signs = "[x\u{ff58}#\u{ff03}~\u{ff5e}]|int|\u{ff49}\u{ff4e}\u{ff54}";
    format!(
        "(?i:;ext=({digits}{{1,20}})|{before}(?:{words}){behind}({digits}{{1,20}})#?\
        |{before}(?:{signs}){behind}({digits}{{1,9}})#?|[- ]+({digits}{{1,6}})#)"
    )
});

static EXTENSION_AT_END: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(&format!("{}$", *EXTENSION)).expect("the pattern is one"));

/// ASCII digits of the digits in `text`.
pub(super) fn digits_of(text: &str) -> String {
    text.chars().filter_map(digit).collect()
}

/// From the first digit or plus on, without signs at the end or a second number.
fn possible(candidate: &str) -> &str {
    let Some(start) = candidate.find(|c| digit(c).is_some() || is_plus(c)) else {
        return "";
    };
    let number = without_end(&candidate[start..]);
    &number[..second_number(number).unwrap_or(number.len())]
}

/// Without the signs at the end that are neither letters, digits nor `#`.
pub(super) fn without_end(text: &str) -> &str {
    text.trim_end_matches(|c: char| c != '#' && !c.is_alphanumeric())
}

/// Start of `/x` or `\ x`, which begin the extension of a second number.
pub(super) fn second_number(text: &str) -> Option<usize> {
    text.match_indices(['/', '\\'])
        .map(|(at, _)| at)
        .find(|at| text[at + 1..].trim_start_matches(' ').starts_with('x'))
}

/// Whether the text can be a number: two digits, or signs of numbers with three digits or more.
fn is_viable(text: &str) -> bool {
    let body = text.trim_start_matches(is_plus);
    let digits = body.chars().filter(|c| digit(*c).is_some()).count();
    let only_signs = || {
        body.chars()
            .all(|c| digit(c).is_some() || is_punctuation(c) || c.is_ascii_alphabetic())
    };
    (digits >= 3 && only_signs()) || (digits == 2 && text.chars().count() == 2)
}

/// The text without its extension, and the extension's digits.
fn without_extension(text: &str) -> (&str, Option<String>) {
    let found = EXTENSION_AT_END.captures(text);
    let split = found.and_then(|found| {
        let start = found.get(0)?.start();
        let digits = found.iter().skip(1).flatten().next()?;
        is_viable(&text[..start]).then(|| (&text[..start], Some(digits.as_str().to_string())))
    });
    split.unwrap_or((text, None))
}

/// The country code at the beginning of `digits`, with the digits behind it.
fn country_code(digits: &str) -> Option<(u16, &str)> {
    if digits.starts_with('0') {
        return None;
    }
    (1..=digits.len().min(CODE_DIGITS)).find_map(|n| {
        let code = digits[..n].parse().ok()?;
        (!plans::of_code(code).is_empty()).then_some((code, &digits[n..]))
    })
}

/// `None` if the country code is the region's.
enum Code {
    Found(u16, String, Source),
    OfRegion,
    /// After `+`: no country has this code.
    Unknown,
    /// Too few digits.
    Short,
}

fn find_code(text: &str, region: Option<&Plan>) -> Code {
    let digits = digits_of(text);
    let (source, rest) = if text.starts_with(is_plus) {
        (Source::Plus, digits.as_str())
    } else {
        let end = region.and_then(|r| r.after_abroad(&digits));
        // a zero behind the prefix belongs to a number inside
        match end.filter(|end| !digits[*end..].starts_with('0')) {
            Some(end) => (Source::Abroad, &digits[end..]),
            None => (Source::Region, digits.as_str()),
        }
    };
    if source != Source::Region {
        if rest.len() <= SHORTEST {
            return Code::Short;
        }
        return match country_code(rest) {
            Some((code, rest)) => Code::Found(code, rest.to_string(), source),
            None => Code::Unknown,
        };
    }
    let Some(plan) = region else {
        return Code::OfRegion;
    };
    if let Some(after) = rest.strip_prefix(&plan.code.to_string()) {
        let number = plan
            .without_inside(after)
            .unwrap_or_else(|| after.to_string());
        let is_better = !plan.is_general(rest) && plan.is_general(&number);
        if is_better || plan.length(rest) == Length::TooLong {
            return Code::Found(plan.code, number, Source::Digits);
        }
    }
    Code::OfRegion
}

/// Reads the candidate as somebody in the region would dial it; without a region only numbers with `+` are read.
pub(super) fn parse(candidate: &str, region: Option<&'static Plan>) -> Option<Number> {
    let text = possible(candidate);
    if region.is_none() && !text.starts_with(is_plus) {
        return None;
    }
    let (text, extension) = without_extension(text);
    if !is_viable(text) {
        return None;
    }
    let mut code = find_code(text, region);
    if matches!(code, Code::Unknown) && text.starts_with(is_plus) {
        // the sign may be a mistake, but then the country code must be there
        code = find_code(text.trim_start_matches(is_plus), region);
        if matches!(code, Code::OfRegion) {
            return None;
        }
    }
    let (code, mut digits, source) = match code {
        Code::Found(code, digits, source) => (code, digits, source),
        Code::OfRegion => (region?.code, digits_of(text), Source::Region),
        Code::Unknown | Code::Short => return None,
    };
    let plan = match region {
        Some(region) if source == Source::Region => region,
        _ => plans::of_code(code).first()?,
    };
    if digits.len() < SHORTEST {
        return None;
    }
    let bare = plan
        .without_inside(&digits)
        .unwrap_or_else(|| digits.clone());
    if matches!(plan.length(&bare), Length::Possible | Length::TooLong) {
        digits = bare;
    }
    (SHORTEST..=LONGEST)
        .contains(&digits.len())
        .then_some(Number {
            code,
            digits,
            source,
            extension,
        })
}
