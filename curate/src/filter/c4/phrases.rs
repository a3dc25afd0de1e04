//! Phrases that drop a line or a page.

use std::sync::LazyLock;

use aho_corasick::AhoCorasick;

/// Phrases in the order of the bits of [`phrases`].
const PHRASES: [&str; 8] = [
    "lorem ipsum",
    "javascript",
    "terms of use",
    "privacy policy",
    "cookie policy",
    "uses cookies",
    "use of cookies",
    "use cookies",
];

pub(super) const LOREM: u32 = 1;

pub(super) const JAVASCRIPT: u32 = 2;

static MATCHER: LazyLock<AhoCorasick> = LazyLock::new(|| {
    AhoCorasick::builder()
        .ascii_case_insensitive(true)
        .build(PHRASES)
        .expect("a few phrases fit")
});

/// One bit per phrase found in a line. The Kelvin sign is the only non-ASCII character whose lower case is a letter
/// of a phrase.
pub(super) fn phrases(line: &str) -> u32 {
    if line.contains('\u{212a}') {
        return phrases(&line.replace('\u{212a}', "k"));
    }
    MATCHER
        .find_overlapping_iter(line)
        .fold(0, |bits, hit| bits | 1 << hit.pattern().as_u32())
}
