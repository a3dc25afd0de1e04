//! What words say, learnt: two linear models over hashed words, one of the text, one of class names.
//!
//! Weights of words seen at several sites only (feature hashing: Weinberger et al. 2009,
//! arXiv:0902.2206); words are lower-cased runs of letters, digits left out. Each model gives the
//! trees one number a block; alone they would be weak, because a page has few words that tell.
//! Scores are integers in 1/32 of a logit; a text's is divided by the root of its length.

use super::blocks::Page;
use super::counts::is_unspaced;
use super::html::{Key, Node, Tree};
use super::marks::{WORD_SEED, word_hash};

/// Weights of the words of texts.
pub(super) const TEXT_WEIGHTS: usize = 1 << 14;
/// Weights of the words in the classes of a block's element and the one around it, and as many for
/// the four around these.
pub(super) const CLASS_WEIGHTS: usize = 1 << 13;
/// Words of a text that are looked at.
const MAX_WORDS: usize = 48;
/// Words of an element's class and id that are looked at.
const MAX_CLASS_WORDS: usize = 16;
/// Elements around a block that are looked at, and how many of them count as its own.
const LEVELS: usize = 6;
const OWN_LEVELS: usize = 2;

/// The weights, one byte a word.
pub(super) struct Weights<'m> {
    pub(super) text: &'m [u8],
    pub(super) own: &'m [u8],
    pub(super) around: &'m [u8],
}

fn bucket(hash: u32, size: usize) -> u16 {
    let mixed = (hash ^ hash >> 15).wrapping_mul(0x2c1b_3c6d);
    #[expect(clippy::cast_possible_truncation, reason = "sizes are below 2^16")]
    let bucket = ((mixed >> 12) as usize % size) as u16;
    bucket
}

/// Appends the first words of a text.
pub(super) fn text_words(text: &str, out: &mut Vec<u16>) {
    let most = out.len() + MAX_WORDS;
    let mut hash = WORD_SEED;
    for c in text.chars() {
        if out.len() >= most {
            return;
        }
        if is_unspaced(c) {
            out.push(bucket(word_hash(WORD_SEED, c), TEXT_WEIGHTS));
        } else if c.is_alphabetic() {
            hash = word_hash(hash, c);
        } else if hash != WORD_SEED {
            out.push(bucket(hash, TEXT_WEIGHTS));
            hash = WORD_SEED;
        }
    }
    if hash != WORD_SEED {
        out.push(bucket(hash, TEXT_WEIGHTS));
    }
}

/// Appends the words of an element's class and id, and its tag.
pub(super) fn class_words(tree: &Tree<'_>, node: &Node, out: &mut Vec<u16>) {
    let most = out.len() + MAX_CLASS_WORDS;
    out.push(bucket(
        word_hash(0x1234_5678, char::from(node.tag as u8)),
        CLASS_WEIGHTS,
    ));
    for (key, value) in tree.attributes(node) {
        if key != Key::Class && key != Key::Id && key != Key::Role && key != Key::Itemprop {
            continue;
        }
        let mut hash = WORD_SEED;
        let mut was_lower = false;
        for b in value.bytes().chain([b' ']) {
            let ends = !b.is_ascii_alphabetic() || (was_lower && b.is_ascii_uppercase());
            if ends && hash != WORD_SEED {
                if out.len() >= most {
                    return;
                }
                out.push(bucket(hash, CLASS_WEIGHTS));
                hash = WORD_SEED;
            }
            if b.is_ascii_alphabetic() {
                hash = word_hash(hash, char::from(b));
            }
            was_lower = b.is_ascii_lowercase();
        }
    }
}

/// Words of the classes of a block's own and of the further elements around it.
pub(super) fn class_words_around(page: &Page, block: usize) -> (Vec<u16>, Vec<u16>) {
    let (mut own, mut around) = (Vec::new(), Vec::new());
    let mut area = page.blocks[block].area;
    for level in 0..LEVELS {
        let words = page.class_words_of(area);
        if level < OWN_LEVELS {
            own.extend_from_slice(words);
        } else {
            around.extend_from_slice(words);
        }
        if area == 0 {
            break;
        }
        area = page.areas[area as usize].parent;
    }
    (own, around)
}

fn sum(words: &[u16], weights: &[u8]) -> i32 {
    let weight = |&w: &u16| {
        weights
            .get(usize::from(w))
            .map_or(0, |&b| i32::from(b.cast_signed()))
    };
    words.iter().map(weight).sum()
}

/// A score on a byte scale, 60 is even.
fn level(score: i32) -> u8 {
    u8::try_from((score / 4 + 60).clamp(0, 120)).unwrap_or(120)
}

/// Score of each block's text.
pub(super) fn text_scores(page: &Page, weights: &Weights<'_>) -> Vec<u8> {
    let mut words = Vec::new();
    let score = |block| {
        words.clear();
        text_words(page.text_of(block), &mut words);
        let root = (words.len() as u64 * 256).isqrt().max(16);
        let sum = i64::from(sum(&words, weights.text)) * 16 / i64::try_from(root).unwrap_or(16);
        level(i32::try_from(sum).unwrap_or(0))
    };
    page.blocks.iter().map(score).collect()
}

/// Score of the classes around each block.
pub(super) fn class_scores(page: &Page, weights: &Weights<'_>) -> Vec<u8> {
    let count = u32::try_from(page.areas.len()).unwrap_or(u32::MAX);
    let of_areas = |weights: &[u8]| -> Vec<i32> {
        (0..count)
            .map(|a| sum(page.class_words_of(a), weights))
            .collect()
    };
    let (own, around) = (of_areas(weights.own), of_areas(weights.around));
    let score = |block: &super::blocks::Block| {
        let mut area = block.area as usize;
        let mut score = 0;
        for level in 0..LEVELS {
            score += if level < OWN_LEVELS {
                own[area]
            } else {
                around[area]
            };
            if area == 0 {
                break;
            }
            area = page.areas[area].parent as usize;
        }
        level(score)
    };
    page.blocks.iter().map(score).collect()
}
