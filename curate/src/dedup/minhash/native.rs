//! Shingle hashes of our own MinHash family: one pass over the text, no strings joined.
//!
//! A word is a maximal run of letters, digits and marks in lower case; everything else separates words. Each
//! character of a script written without spaces (Han, Kana, Thai, Lao, Myanmar, Khmer, Tibetan) is a word. A word's
//! hash folds its bytes, eight at a time, into 64 bits by multiplications whose two halves are joined (as wyhash
//! does); a shingle's is the polynomial of its words' hashes mod 2^64 (Karp and Rabin 1987), rolled from one
//! shingle to the next, folded once more; the upper 32 bits of that are permuted. With `chars` the elements are the
//! characters of the words, one space between two words; with `tokens` they are the unchanged segments of Unicode's
//! annex 29, without white space. A text of fewer elements than a shingle is one shingle; without any word it has
//! none, and no signature.

use std::sync::LazyLock;

use unicode_segmentation::UnicodeSegmentation;
use xxhash_rust::xxh3::xxh3_128;

use super::config::{Shingle, ShingleKind};
use crate::text::unicode::{self, MARK};

/// Elements of a text and their shingles' hashes; one per thread.
#[derive(Default)]
pub(super) struct NativeScratch {
    items: Vec<u64>,
    word: String,
    pub(super) shingles: Vec<u32>,
}

impl NativeScratch {
    /// Replaces `shingles` by those of the text, in order, duplicates included.
    pub(super) fn fill(&mut self, text: &str, shingle: Shingle) {
        self.read(text, shingle.kind);
        self.shingles.clear();
        roll(&self.items, shingle.n, upper, &mut self.shingles);
    }

    /// The hashes of all 64 bits, for those that compare whole sets.
    pub(super) fn wide(&mut self, text: &str, shingle: Shingle) -> Vec<u64> {
        self.read(text, shingle.kind);
        let mut hashes = Vec::new();
        roll(&self.items, shingle.n, |h| h, &mut hashes);
        hashes
    }

    fn read(&mut self, text: &str, kind: ShingleKind) {
        self.items.clear();
        match kind {
            ShingleKind::Words => words(text, &mut self.word, &mut self.items),
            ShingleKind::Chars => chars(text, &mut self.items),
            ShingleKind::Tokens => self.items.extend(tokens(text)),
        }
    }
}

/// The bits that are permuted.
fn upper(hash: u64) -> u32 {
    (hash >> 32) as u32
}

/// Odd constants with half of their bits set: the first digits of the golden ratio, of sqrt(3) and of sqrt(5).
const FOLD: u64 = 0x9e37_79b9_7f4a_7c15;
const BASE: u64 = 0xbb67_ae85_84ca_a73b;
const LAST: u64 = 0x3c6e_f372_fe94_f82b;

/// Both halves of a product.
#[inline]
fn fold(x: u64, by: u64) -> u64 {
    let product = u128::from(x) * u128::from(by);
    #[expect(clippy::cast_possible_truncation, reason = "the two halves")]
    let (high, low) = ((product >> 64) as u64, product as u64);
    high ^ low
}

/// Hashes of all windows of `n` items, or of all items if they are fewer.
fn roll<T>(items: &[u64], n: usize, narrow: impl Fn(u64) -> T, out: &mut Vec<T>) {
    if items.is_empty() {
        return;
    }
    let n = n.min(items.len());
    let top = (0..n).fold(1u64, |power, _| power.wrapping_mul(BASE));
    let finish = |h: u64| narrow(fold(h ^ LAST, FOLD));
    let first = &items[..n];
    let mut h = first
        .iter()
        .fold(0u64, |h, x| h.wrapping_mul(BASE).wrapping_add(*x));
    out.reserve(items.len() - n + 1);
    out.push(finish(h));
    for (enters, leaves) in items[n..].iter().zip(items) {
        h = h
            .wrapping_mul(BASE)
            .wrapping_add(*enters)
            .wrapping_sub(leaves.wrapping_mul(top));
        out.push(finish(h));
    }
}

/// ASCII letters and digits.
const WORD: [bool; 256] = {
    let mut table = [false; 256];
    let mut i = 0u8;
    while i < 128 {
        table[i as usize] = i.is_ascii_alphanumeric();
        i += 1;
    }
    table
};

/// Pushes the hash of each word.
fn words(text: &str, word: &mut String, items: &mut Vec<u64>) {
    let bytes = text.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        let start = at;
        while at < bytes.len() && WORD[usize::from(bytes[at])] {
            at += 1;
        }
        if at == bytes.len() || bytes[at] < 0x80 {
            if at > start {
                items.push(ascii_hash(bytes, start, at));
            }
            at += 1;
        } else {
            at = wide_word(text, start, word, items);
        }
    }
}

/// A word from `start` on that may contain non-ASCII characters; returns its end and the separator after it. Pushes
/// single characters of scripts without spaces.
fn wide_word(text: &str, start: usize, word: &mut String, items: &mut Vec<u64>) -> usize {
    word.clear();
    let mut end = text.len();
    for (i, c) in text[start..].char_indices() {
        match Folded::of(c) {
            Folded::Letter(lower) => word.push(lower),
            Folded::Alone(c) => {
                push_word(word, items);
                word.push(c);
                push_word(word, items);
            }
            Folded::Gap => {
                end = start + i + c.len_utf8();
                break;
            }
        }
    }
    push_word(word, items);
    end
}

fn push_word(word: &mut String, items: &mut Vec<u64>) {
    if !word.is_empty() {
        items.push(hash(word.as_bytes()));
        word.clear();
    }
}

/// Pushes the hash of each character of the words, and of one space between words.
fn chars(text: &str, items: &mut Vec<u64>) {
    let item = |c: char| fold(u64::from(u32::from(c)) ^ BASE, FOLD);
    let space = item(' ');
    let mut gap = false;
    for c in text.chars() {
        match Folded::of(c) {
            Folded::Letter(c) | Folded::Alone(c) => {
                if gap && !items.is_empty() {
                    items.push(space);
                }
                gap = false;
                items.push(item(c));
            }
            Folded::Gap => gap = true,
        }
    }
}

/// XXH3-128 of a text's words in lower case, one space between two; of its bytes if it has no word.
pub(crate) fn words_digest(text: &str) -> u128 {
    let mut words = String::with_capacity(text.len());
    let mut gap = false;
    for c in text.chars() {
        match Folded::of(c) {
            Folded::Letter(c) | Folded::Alone(c) => {
                if gap && !words.is_empty() {
                    words.push(' ');
                }
                gap = false;
                words.push(c);
            }
            Folded::Gap => gap = true,
        }
    }
    xxh3_128(if words.is_empty() { text } else { &words }.as_bytes())
}

/// The hash of each token.
fn tokens(text: &str) -> impl Iterator<Item = u64> + '_ {
    let segments = text.split_word_bounds();
    segments
        .filter(|segment| !segment.chars().all(char::is_whitespace))
        .map(|segment| hash(segment.as_bytes()))
}

/// Role of a character in words.
#[derive(Clone, Copy)]
enum Folded {
    /// Separates words.
    Gap,
    /// In lower case. One character for one: of two-character lower cases (one exists) the first.
    Letter(char),
    /// A word by itself.
    Alone(char),
}

/// Blocks of scripts that are written without spaces.
const ALONE: [(u32, u32); 8] = [
    (0x0e00, 0x0eff),
    (0x0f00, 0x0fff),
    (0x1000, 0x109f),
    (0x1780, 0x17ff),
    (0x2e80, 0x30ff),
    (0x31c0, 0x9fff),
    (0xf900, 0xfaff),
    (0x2_0000, 0x3_ffff),
];

/// For the first 65,536 characters: 0 for a separator, else the lower case, with the highest bit set if it is a
/// word by itself.
static TABLE: LazyLock<Box<[u32]>> = LazyLock::new(|| {
    (0..0x1_0000)
        .map(|c| match char::from_u32(c).map(classify) {
            Some(Folded::Letter(lower)) => u32::from(lower),
            Some(Folded::Alone(c)) => u32::from(c) | ALONE_BIT,
            Some(Folded::Gap) | None => 0,
        })
        .collect()
});
const ALONE_BIT: u32 = 1 << 31;

fn classify(c: char) -> Folded {
    if !c.is_alphanumeric() && !unicode::is(c, MARK) {
        return Folded::Gap;
    }
    let code = u32::from(c);
    if ALONE.iter().any(|(from, to)| (*from..=*to).contains(&code)) {
        return Folded::Alone(c);
    }
    Folded::Letter(c.to_lowercase().next().unwrap_or(c))
}

impl Folded {
    #[inline]
    fn of(c: char) -> Folded {
        match TABLE.get(u32::from(c) as usize) {
            Some(0) => Folded::Gap,
            Some(code) => {
                let is_alone = code & ALONE_BIT != 0;
                let c = char::from_u32(code & !ALONE_BIT).unwrap_or(c);
                if is_alone {
                    Folded::Alone(c)
                } else {
                    Folded::Letter(c)
                }
            }
            None => classify(c),
        }
    }
}

/// Hash of a word's bytes.
fn hash(bytes: &[u8]) -> u64 {
    let (chunks, rest) = bytes.as_chunks::<8>();
    let start = bytes.len() as u64 ^ BASE;
    let h = chunks
        .iter()
        .fold(start, |h, c| fold(h ^ u64::from_le_bytes(*c), FOLD));
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    fold(h ^ u64::from_le_bytes(last), LAST)
}

/// Bit 5 of every byte: letters become lower case, digits have it.
const LOWER: u64 = 0x2020_2020_2020_2020;

/// [`hash`] of `bytes[start..end]` in lower case, which are ASCII letters and digits.
#[inline]
fn ascii_hash(bytes: &[u8], start: usize, end: usize) -> u64 {
    let (mut at, mut h) = (start, (end - start) as u64 ^ BASE);
    while end - at >= 8 {
        h = fold(h ^ (load(bytes, at) | LOWER), FOLD);
        at += 8;
    }
    let left = 8 * (end - at);
    let mask = (1u64 << left) - 1;
    fold(h ^ ((load(bytes, at) | LOWER) & mask), LAST)
}

/// Eight bytes from `at` on, zeros behind the end.
#[inline]
fn load(bytes: &[u8], at: usize) -> u64 {
    if let Some(chunk) = bytes[at..].first_chunk::<8>() {
        return u64::from_le_bytes(*chunk);
    }
    let rest = bytes[at..].iter().rev();
    rest.fold(0, |word, b| word << 8 | u64::from(*b))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_words(text: &str) -> Vec<u64> {
        let mut items = Vec::new();
        words(text, &mut String::new(), &mut items);
        items
    }

    #[test]
    fn words_are_hashed_as_their_lower_case_bytes() {
        let text = "The QUICK, brown_fox's 3.14 interoperability-of-Stra\u{df}en! \u{c9}t\u{e9}x A";
        let expected = [
            "the",
            "quick",
            "brown",
            "fox",
            "s",
            "3",
            "14",
            "interoperability",
            "of",
            "stra\u{df}en",
            "\u{e9}t\u{e9}x",
            "a",
        ];
        let expected: Vec<u64> = expected.iter().map(|w| hash(w.as_bytes())).collect();
        assert_eq!(of_words(text), expected);
        assert!(of_words(" ,\n\u{3002}\u{2014}").is_empty());
        assert!(of_words("").is_empty());
    }

    #[test]
    fn digests_tell_words_and_nothing_else() {
        let one = words_digest("The  \u{c9}TUDE, of\nwords!");
        assert_eq!(one, xxh3_128("the \u{e9}tude of words".as_bytes()));
        assert_eq!(one, words_digest(" the \u{e9}tude of... words"));
        assert_ne!(one, words_digest("the \u{e9}tude ofwords"));
        assert_ne!(words_digest("..."), words_digest("!!!"));
        assert_eq!(words_digest("..."), xxh3_128(b"..."));
    }

    #[test]
    fn tokens_are_segments_as_they_stand_without_white_space() {
        let text = "He's 3.14,\u{a0} he-man!\n\u{6f22}\u{5b57} \u{1f600}";
        let expected = [
            "He's",
            "3.14",
            ",",
            "he",
            "-",
            "man",
            "!",
            "\u{6f22}",
            "\u{5b57}",
            "\u{1f600}",
        ];
        let expected: Vec<u64> = expected.iter().map(|t| hash(t.as_bytes())).collect();
        assert_eq!(tokens(text).collect::<Vec<_>>(), expected);
        let shingles = |text: &str, kind| {
            let mut scratch = NativeScratch::default();
            scratch.wide(text, Shingle { kind, n: 3 })
        };
        let kind = ShingleKind::Tokens;
        assert_eq!(shingles("a, b c", kind).len(), 2);
        assert_eq!(shingles("a, b c", kind), shingles("a , b\tc ", kind));
        assert_ne!(shingles("a, b c", kind), shingles("A, b c", kind));
        assert_ne!(
            shingles("a, b c", kind),
            shingles("a, b c", ShingleKind::Words)
        );
    }

    #[test]
    fn scripts_without_spaces_are_split_into_characters() {
        let expected = ["\u{6f22}", "\u{5b57}", "abc", "\u{e01}", "x"];
        let expected: Vec<u64> = expected.iter().map(|w| hash(w.as_bytes())).collect();
        assert_eq!(of_words("\u{6f22}\u{5b57}ABC\u{e01}X"), expected);
    }

    #[test]
    fn the_ascii_path_hashes_as_the_general_one_at_every_length_and_place() {
        let text = "AbCdEfGhIjKlMnOpQrStUvWxYz0123456789";
        for start in 0..text.len() {
            for end in start + 1..=text.len() {
                let lower = text[start..end].to_lowercase();
                assert_eq!(
                    ascii_hash(text.as_bytes(), start, end),
                    hash(lower.as_bytes())
                );
            }
        }
    }

    #[test]
    fn rolled_hashes_equal_those_of_each_window_alone() {
        let items: Vec<u64> = (1..50u64).map(|i| i.wrapping_mul(FOLD)).collect();
        for n in [1, 2, 5, 13, 49] {
            let mut rolled = Vec::new();
            roll(&items, n, upper, &mut rolled);
            let mut alone = Vec::new();
            items.windows(n).for_each(|w| roll(w, n, upper, &mut alone));
            assert_eq!(rolled, alone);
        }
        let (mut few, mut all) = (Vec::new(), Vec::new());
        roll(&items[..3], 5, upper, &mut few);
        roll(&items[..3], 3, upper, &mut all);
        assert_eq!((few.len(), &few), (1, &all));
    }

    #[test]
    fn characters_are_those_of_the_words_with_one_space_between() {
        let (mut a, mut b) = (Vec::new(), Vec::new());
        chars("  A b--C\u{c9}!", &mut a);
        chars("a b c\u{e9}", &mut b);
        assert_eq!(a, b);
        assert_eq!(a.len(), 6);
    }
}
