//! Removes addresses from a page: first those under a top-level domain, then those with an IPv4 number.
//!
//! Definition: DCLM 361714b, `url_removal_modifier`. A web address is white space (at most 10), perhaps a scheme,
//! up to 256 characters of names, a dot, a top-level domain that ends there, and the rest of an address. Its
//! program looks for them only in pages that begin with the letters of a top-level domain, in any case: a bug
//! (`match` instead of `search`) that shaped the published corpus, and is reproduced. `tlds.txt` are the domains of
//! its list (IANA's, as of then).

use std::sync::LazyLock;

use rustc_hash::FxHashSet;

use crate::text::unicode::{self, SPACE, is_word};

static TLDS: LazyLock<FxHashSet<&'static str>> =
    LazyLock::new(|| include_str!("tlds.txt").split_ascii_whitespace().collect());

/// Bytes of the longest top-level domain.
static LONGEST: LazyLock<usize> = LazyLock::new(|| TLDS.iter().map(|t| t.len()).max().unwrap_or(0));

/// Maximum white space before an address that is removed with it.
const MOST_SPACES: usize = 10;
/// Characters of an address before its last dot.
const MOST_NAMES: usize = 256;

/// The text without addresses.
pub(super) fn without(text: &str) -> String {
    let named = if begins_with_tld(text) {
        removed(text, named_address)
    } else {
        text.to_string()
    };
    removed(&named, numbered_address)
}

/// Whether the page begins with a top-level domain, ignoring case as Python does.
fn begins_with_tld(text: &str) -> bool {
    let fold = |c: char| match c {
        '\u{212a}' => 'k',
        '\u{17f}' => 's',
        '\u{130}' | '\u{131}' => 'i',
        c => c.to_ascii_lowercase(),
    };
    let start: String = text.chars().take(*LONGEST).map(fold).collect();
    (1..=start.len()).any(|n| start.get(..n).is_some_and(|s| TLDS.contains(s)))
}

/// Bytes of an address around a dot, not before `from`.
type Find = fn(&str, usize, usize) -> Option<(usize, usize)>;

fn removed(text: &str, find: Find) -> String {
    let mut out = String::with_capacity(text.len());
    let mut done = 0;
    for dot in memchr::memchr_iter(b'.', text.as_bytes()) {
        if dot < done {
            continue;
        }
        if let Some((start, end)) = find(text, dot, done) {
            out.push_str(&text[done..start]);
            done = end;
        }
    }
    out.push_str(&text[done..]);
    out
}

/// Allowed before the dot.
fn is_name(b: u8) -> bool {
    b.is_ascii_alphanumeric() || b"-@:%._+~#=".contains(&b)
}

/// Allowed after a domain.
fn is_tail(b: u8) -> bool {
    b.is_ascii_alphanumeric() || b"-()@:%_+.~#?&/=".contains(&b)
}

fn end_of_tail(text: &str, from: usize) -> usize {
    from + text.as_bytes()[from..]
        .iter()
        .take_while(|&&b| is_tail(b))
        .count()
}

/// The start of the scheme that ends at `at`, or `at`.
fn scheme(text: &str, at: usize, from: usize) -> usize {
    ["https://", "http://", "ftp://"]
        .iter()
        .find(|s| text[from..at].ends_with(*s))
        .map_or(at, |s| at - s.len())
}

/// Goes back over white space.
fn spaces(text: &str, at: usize, from: usize) -> usize {
    let mut start = at;
    for c in text[from..at].chars().rev().take(MOST_SPACES) {
        if !unicode::is(c, SPACE) {
            break;
        }
        start -= c.len_utf8();
    }
    start
}

fn named_address(text: &str, dot: usize, from: usize) -> Option<(usize, usize)> {
    let end = tld_end(text, dot + 1)?;
    let near = from.max(dot.saturating_sub(MOST_NAMES));
    let names = text.as_bytes()[near..dot]
        .iter()
        .rev()
        .take_while(|&&b| is_name(b))
        .count();
    if names == 0 {
        return None;
    }
    let mut start = dot - names;
    let is_cut = start > from && start == near && is_name(text.as_bytes()[start - 1]);
    if !is_cut {
        start = spaces(text, scheme(text, start, from), from);
    }
    Some((start, end_of_tail(text, end)))
}

/// End of the longest top-level domain that starts at `at` and ends at a word boundary.
fn tld_end(text: &str, at: usize) -> Option<usize> {
    let mut found = None;
    let mut chars = text[at..].char_indices().peekable();
    while let Some((n, c)) = chars.next() {
        let fits = !c.is_ascii() || c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        let end = at + n + c.len_utf8();
        if !fits || end - at > *LONGEST {
            break;
        }
        let is_edge = is_word(c) != chars.peek().is_some_and(|&(_, next)| is_word(next));
        if is_edge && TLDS.contains(&text[at..end]) {
            found = Some(end);
        }
    }
    found
}

/// An address whose first dot behind a number this is.
fn numbered_address(text: &str, dot: usize, from: usize) -> Option<(usize, usize)> {
    let bytes = text.as_bytes();
    let digits = |at: usize| {
        bytes[at..]
            .iter()
            .take(4)
            .take_while(|b| b.is_ascii_digit())
            .count()
    };
    let back = bytes[from..dot]
        .iter()
        .rev()
        .take(4)
        .take_while(|b| b.is_ascii_digit())
        .count();
    let first = dot - back;
    if back == 0 || text[..first].chars().next_back().is_some_and(is_word) {
        return None;
    }
    let mut at = first;
    for _ in 0..3 {
        let n = digits(at);
        let fits = matches!(n, 1 | 2) || (n == 3 && bytes[at] <= b'2');
        if !fits || bytes.get(at + n) != Some(&b'.') {
            return None;
        }
        at += n + 1;
    }
    if digits(at) == 0 {
        return None;
    }
    let with = scheme(text, first, from);
    let before = text[..with].chars().next_back();
    let start = if before.is_some_and(is_word) {
        first
    } else {
        with
    };
    Some((spaces(text, start, from), end_of_tail(text, at)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_go_with_the_space_before_them() {
        let text = "in time see  https://www.example.com/a?b=c#d, or mail a.b@example.org. End.In";
        assert_eq!(without(text), "in time see, or mail End.In");
        assert_eq!(without("\u{e9} example.com"), "\u{e9} example.com");
    }

    #[test]
    fn numbers_that_are_addresses_go_wherever_the_page_begins() {
        assert_eq!(
            without("\u{e9} at http://10.0.0.1:80/x now 1.2.3 and 999.1.1.1"),
            "\u{e9} at now 1.2.3 and 999.1.1.1"
        );
    }
}
