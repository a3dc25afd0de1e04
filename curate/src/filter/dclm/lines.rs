//! DCLM's line edits: removes runs of newlines, lines of capitals, numbers, counters and single words, and three
//! phrases.

use std::sync::LazyLock;

use regex::Regex;

use super::words::words;
use crate::text::unicode::{self, DIGIT, SPACE};

/// Longest line, in words, of which a phrase is taken.
const PHRASE_LINE_WORDS: usize = 10;

/// One edit: page to page.
type Edit = fn(&str) -> String;

/// In DCLM's order. A page that becomes empty is dropped at once.
pub(super) const EDITS: [Edit; 7] = [
    |text| kept(text, |line| share(line, char::is_uppercase) <= 0.5, true),
    |text| kept(text, |line| share(line, is_digit) <= 0.999_999, true),
    |text| kept(text, |line| !is_counter(line), true),
    |text| {
        kept(
            text,
            |line| line.is_empty() || words(line).nth(1).is_some(),
            false,
        )
    },
    |text| without(text, &IN_CART),
    |text| without(text, &READ_MORE),
    |text| without(text, &SIGN_IN),
];

static IN_CART: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"(?i)\s?items in cart").expect("the pattern is one"));
// the dots are any characters: DCLM's list is a list of patterns
static READ_MORE: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"(?i)\s?read more...$").expect("the pattern is one"));
static SIGN_IN: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"(?i)^sign-in\s?").expect("the pattern is one"));
static COUNTER: LazyLock<Regex> = LazyLock::new(|| {
    let what = "likes|shares|comments|retweets|reposts|quotes|bookmarks|upvotes|downvotes|downloads|views|followers";
    Regex::new(&format!(r"^\W*\d(?:,|\.|\d)*(?:k|m|b)?\s+(?:{what})\W*$"))
        .expect("the pattern is one")
});

/// Numeric_Type=Digit that is no decimal: superscripts, circled digits and the like (Unicode 14).
const OTHER_DIGITS: &str = "b2-b3 b9 1369-1371 19da 2070 2074-2079 2080-2089 2460-2468 2474-247c 2488-2490 24ea \
    24f5-24fd 24ff 2776-277e 2780-2788 278a-2792 10a40-10a43 10e60-10e68 11052-1105a 1f100-1f10a";

static OTHER: LazyLock<Vec<char>> = LazyLock::new(|| unicode::ranges(OTHER_DIGITS).collect());

/// `str.isdigit` of a character.
fn is_digit(c: char) -> bool {
    unicode::is(c, DIGIT) || (c > '\u{7f}' && OTHER.binary_search(&c).is_ok())
}

/// Writes `text` with three newlines or more as two.
pub(super) fn at_most_two_newlines(text: &str, out: &mut String) {
    let mut rest = text;
    while let Some(at) = rest.find("\n\n\n") {
        out.push_str(&rest[..at + 2]);
        rest = rest[at..].trim_start_matches('\n');
    }
    out.push_str(rest);
}

/// Share of such characters in a line; 0 for an empty line.
fn share(line: &str, is: impl Fn(char) -> bool) -> f64 {
    let (mut all, mut found) = (0usize, 0usize);
    for c in line.chars() {
        all += 1;
        found += usize::from(is(c));
    }
    if all == 0 {
        0.0
    } else {
        found as f64 / all as f64
    }
}

fn is_counter(line: &str) -> bool {
    // the words hold no letter whose lower case is longer, so the pattern may see any case of them
    line.bytes().any(|b| b.is_ascii_digit() || b >= 0x80) && COUNTER.is_match(&line.to_lowercase())
}

/// The lines that `keep` accepts; `strips` also strips white space off the ends of the result.
fn kept(text: &str, keep: impl Fn(&str) -> bool, strips: bool) -> String {
    let mut out = String::with_capacity(text.len());
    let mut first = true;
    for line in text.split('\n').filter(|line| keep(line)) {
        if !std::mem::take(&mut first) {
            out.push('\n');
        }
        out.push_str(line);
    }
    if strips { stripped(out) } else { out }
}

/// The text without a phrase; a line with nothing else is removed.
fn without(text: &str, phrase: &Regex) -> String {
    let mut out = String::with_capacity(text.len());
    let mut first = true;
    for line in text.split('\n') {
        let mut edited = std::borrow::Cow::Borrowed(line);
        if words(line).nth(PHRASE_LINE_WORDS).is_none() {
            edited = phrase.replace_all(line, "");
            if !line.is_empty() && edited.chars().all(|c| unicode::is(c, SPACE)) {
                continue;
            }
        }
        if !std::mem::take(&mut first) {
            out.push('\n');
        }
        out.push_str(&edited);
    }
    stripped(out)
}

fn stripped(text: String) -> String {
    let kept = unicode::strip(&text);
    if kept.len() == text.len() {
        text
    } else {
        kept.to_string()
    }
}
