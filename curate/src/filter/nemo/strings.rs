//! NeMo Curator's counts over characters, addresses, lines and paragraphs.

use std::sync::LazyLock;

use aho_corasick::AhoCorasick;
use regex::Regex;

use crate::text::plain::share;
use crate::text::unicode;

/// Characters of a text by kind.
#[derive(Default)]
pub(super) struct Strings {
    /// ASCII letters and digits, line feeds and `?!,.`.
    pub(super) alphanumeric: usize,
    pub(super) digits: usize,
    pub(super) white: usize,
    pub(super) parentheses: usize,
    pub(super) url_chars: usize,
    /// An address with "porn" in it.
    pub(super) pornographic: bool,
}

static URL: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"https?://(?:[A-Za-z0-9$\-_@.&+/:=?#~!*(),]|%[0-9A-Fa-f]{2})+")
        .expect("the pattern is one")
});

impl Strings {
    pub(super) fn of(text: &str) -> Strings {
        let mut found = Strings::default();
        for c in text.chars() {
            match c {
                'a'..='z' | 'A'..='Z' | '?' | '!' | ',' | '.' => found.alphanumeric += 1,
                '0'..='9' => {
                    found.alphanumeric += 1;
                    found.digits += 1;
                }
                '\n' => {
                    found.alphanumeric += 1;
                    found.white += 1;
                }
                '\t' | '\r' | '\u{8}' | ' ' => found.white += 1,
                '{' | '}' | '[' | ']' | '(' | ')' | '\u{27e8}' | '\u{27e9}' => {
                    found.parentheses += 1;
                }
                _ => {}
            }
        }
        for url in URL.find_iter(text) {
            found.url_chars += url.len();
            found.pornographic |= url.as_str().contains("porn");
        }
        found
    }
}

/// Counts of how lines with text start and end.
#[derive(Default)]
pub(super) struct Ends {
    pub(super) without_mark: usize,
    pub(super) ellipses: usize,
    pub(super) bullets: usize,
}

/// Line endings that mean an omission, in lower case.
const ELLIPSES: [&str; 8] = [
    "...",
    "[...]",
    "\u{2026}",
    "(...)",
    "[\u{2026}]",
    "-\u{bb}",
    "read more..",
    "read more",
];

const BULLETS: &str = "\u{2022}\u{2023}\u{2043}\u{204c}\u{204d}\u{2219}\u{25cb}\u{25cf}\u{25d8}\u{25e6}\u{29be}\u{29bf}";

impl Ends {
    pub(super) fn of(text: &str) -> Ends {
        let mut found = Ends::default();
        for line in lines(text) {
            let line = unicode::strip(line);
            found.without_mark += usize::from(!line.ends_with(['.', '?', '!', '"', '\'']));
            found.bullets += usize::from(line.starts_with(|c| BULLETS.contains(c)));
            // no letter of the list is the lower case of one outside ASCII
            let ends = |mark: &&str| {
                let at = line.len().saturating_sub(mark.len());
                line.as_bytes()[at..].eq_ignore_ascii_case(mark.as_bytes())
            };
            found.ellipses += usize::from(ELLIPSES.iter().any(ends));
        }
        found
    }
}

/// Phrases of cookie and privacy notices; longer ones of the source's list hold one of these.
const POLICIES: [&str; 8] = [
    "terms of use",
    "privacy policy",
    "cookie policy",
    "uses cookies",
    "privacy overview",
    "use of cookies",
    "use cookies",
    "lorem ipsum",
];

/// Whole notices that hold none of the phrases, by words no other text has.
const NOTICES: [&str; 5] = [
    "any cookies that may not be particularly necessary for the website to function and is used specifically to \
     collect user personal data via analytics, ads, other embedded contents are termed as non-necessary cookies. it is \
     mandatory to procure user consent prior to running these cookies on your website.",
    "privacy & cookies policy",
    "privacy and cookies policy",
    "necessary cookies are absolutely essential for the website to function properly. this category only includes \
     cookies that ensures basic functionalities and security features of the website. these cookies do not store any \
     personal information.",
    "if you continue to browse this site without changing your cookie settings, you agree to this use. acceptread more",
];

static MATCHER: LazyLock<AhoCorasick> = LazyLock::new(|| {
    AhoCorasick::builder()
        .ascii_case_insensitive(true)
        .build(POLICIES.iter().chain(&NOTICES))
        .expect("a few phrases fit")
});

/// Share of paragraphs with a phrase of a notice; 1 with "lorem ipsum".
pub(super) fn boilerplate(text: &str) -> f64 {
    // the Kelvin sign is the one letter outside ASCII whose lower case is in a phrase
    let kelvin;
    let mut text = text;
    if text.contains('\u{212a}') {
        kelvin = text.replace('\u{212a}', "k");
        text = &kelvin;
    }
    let (mut all, mut found) = (0usize, 0usize);
    for paragraph in text.split("\n\n") {
        all += 1;
        let mut has = false;
        for hit in MATCHER.find_overlapping_iter(paragraph) {
            if hit.pattern().as_usize() == 7 {
                return 1.0;
            }
            has = true;
        }
        found += usize::from(has);
    }
    share(found, all)
}

/// Lines with text.
pub(super) fn lines(text: &str) -> impl Iterator<Item = &str> {
    text.split('\n').filter(|l| !unicode::strip(l).is_empty())
}
