//! Words of texts and of classes, hashed into the buckets of the linear models.

use super::counts::is_unspaced;
use super::html::{Key, Node, Tree};
use super::marks::{WORD_SEED, word_hash};

/// Weights of the words of texts.
pub(super) const TEXT_WEIGHTS: usize = 1 << 14;

/// Weights of the words in the classes of a block's element and the one around it, and as many for
/// the four around these.
pub(super) const CLASS_WEIGHTS: usize = 1 << 13;

/// Words of a text that are used.
const MAX_WORDS: usize = 48;

/// Words of an element's class and id that are used.
const MAX_CLASS_WORDS: usize = 16;

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
        // most characters are ASCII, which needs no tables
        if !c.is_ascii() && is_unspaced(c) {
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
