//! Features of a token and its neighbours, each a hash of 64 bits.
//!
//! Words in lower case with digits as `0`, shapes (`Xx`, `X`, `dddd`), beginnings and endings, and the classes of words in
//! lists, alone and in pairs (Ratinov and Roth 2009, "Design Challenges and Misconceptions in Named Entity Recognition").

use super::tokens::{Class, Token};

/// Features of one token.
pub(super) const FEATURES: usize = 31;

/// Class of words of names of cities, states and countries; `LISTS` of `tests/oracles/names_sets.py` has all classes, one bit each.
pub(super) const PLACE: u8 = 4;
/// Class of words that are mostly written in lower case.
pub(super) const COMMON: u8 = 8;

/// Properties of a token that features are made of.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Word {
    /// Hash of the word in lower case, digits as `0`.
    pub(super) word: u64,
    shape: u64,
    lists: u64,
    /// Hashes of the first two to four characters and the last ones.
    parts: [u64; 6],
}

const PRIME: u64 = 0x0000_0100_0000_01b3;
const START: u64 = 0xcbf2_9ce4_8422_2325;

/// FNV-1a, a step.
const fn step(hash: u64, byte: u8) -> u64 {
    (hash ^ byte as u64).wrapping_mul(PRIME)
}

/// A hash of two.
const fn pair(a: u64, b: u64) -> u64 {
    let x = (a ^ b.rotate_left(23)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    x ^ (x >> 29)
}

/// The hash of a word in lists: of its characters in lower case.
pub(super) fn list_hash(word: &str) -> u64 {
    let mut bytes = [0; BUFFER];
    let n = lowered(word, &mut bytes);
    hash(&bytes[..n])
}

fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(START, |h, b| step(h, *b))
}

/// Bytes of a word in lower case that are read.
const BUFFER: usize = 64;

/// Writes the word in lower case with digits as `0`, as far as it fits; returns its length.
fn lowered(word: &str, out: &mut [u8; BUFFER]) -> usize {
    let mut n = 0;
    for c in word.chars() {
        let (c, more) = if c.is_ascii() {
            (
                if c.is_ascii_digit() {
                    '0'
                } else {
                    c.to_ascii_lowercase()
                },
                None,
            )
        } else if c == '\u{2019}' {
            ('\'', None)
        } else {
            let mut lower = c.to_lowercase();
            (lower.next().unwrap_or(c), lower.next())
        };
        for c in [Some(c), more].into_iter().flatten() {
            if n + c.len_utf8() > BUFFER {
                return n;
            }
            n += c.encode_utf8(&mut out[n..]).len();
        }
    }
    n
}

impl Word {
    /// Properties of the token of a text; `classes` gives the lists that a word is in.
    pub(super) fn new(text: &str, token: &Token, classes: impl Fn(u64) -> u8) -> Self {
        match token.class {
            Class::Line => return Word::sign(1),
            Class::Wall => return Word::wall(),
            Class::Capital | Class::Number | Class::Word | Class::Sign => {}
        }
        let written = &text[token.span.clone()];
        if token.class == Class::Sign {
            return Word::sign(hash(written.as_bytes()));
        }
        let mut bytes = [0; BUFFER];
        let n = lowered(written, &mut bytes);
        let lower = &bytes[..n];
        let word = hash(lower);
        let mut parts = [0; 6];
        for (i, len) in [2, 3, 4].into_iter().enumerate() {
            parts[i] = hash(&lower[..len.min(n)]);
            parts[3 + i] = hash(&lower[n - len.min(n)..]);
        }
        Word {
            word,
            shape: shape(written),
            lists: u64::from(classes(word)),
            parts,
        }
    }

    fn sign(hash: u64) -> Self {
        Word {
            word: hash,
            shape: pair(hash, 3),
            lists: 0x100,
            parts: [pair(hash, 5); 6],
        }
    }

    /// The end of a text or paragraph.
    pub(super) fn wall() -> Self {
        Word::sign(2)
    }

    /// Lists that it is in.
    pub(super) fn classes(&self) -> u64 {
        self.lists
    }
}

/// Letters and digits by kind; more than two of a kind of letter in a row count as two, more than five digits as five.
fn shape(word: &str) -> u64 {
    let (mut hash, mut last, mut run) = (START, 0u8, 0);
    for c in word.chars() {
        let (kind, most) = match c {
            '0'..='9' => (b'd', 5),
            c if c.is_uppercase() => (b'X', 2),
            '\'' | '\u{2019}' => (b'\'', 1),
            _ => (b'x', 2),
        };
        run = if kind == last { run + 1 } else { 1 };
        last = kind;
        if run <= most {
            hash = step(hash, kind);
        }
    }
    hash
}

/// Features of the middle one of five words.
pub(super) fn features(words: &[Word; 5], out: &mut [u64; FEATURES]) {
    let [b2, b1, w, a1, a2] = words;
    let values = [
        w.word,
        b1.word,
        a1.word,
        b2.word,
        a2.word,
        pair(b1.word, w.word),
        pair(w.word, a1.word),
        pair(b2.word, b1.word),
        pair(a1.word, a2.word),
        w.shape,
        pair(b1.shape, w.shape),
        pair(w.shape, a1.shape),
        pair(pair(b1.shape, w.shape), a1.shape),
        pair(pair(b2.shape, b1.shape), w.shape),
        pair(pair(w.shape, a1.shape), a2.shape),
        w.parts[0],
        w.parts[1],
        w.parts[2],
        w.parts[3],
        w.parts[4],
        w.parts[5],
        pair(w.lists, w.shape),
        pair(b1.lists, w.lists),
        pair(w.lists, a1.lists),
        pair(pair(b1.lists, w.lists), a1.lists),
        pair(b1.word, w.shape),
        pair(w.shape, a1.word),
        pair(b1.word, w.lists),
        pair(w.lists, a1.word),
        pair(b1.parts[5], w.lists),
        pair(w.lists, a1.parts[5]),
    ];
    for (i, (slot, value)) in out.iter_mut().zip(values).enumerate() {
        *slot = pair(value, (i as u64 + 1) << 32);
    }
}
