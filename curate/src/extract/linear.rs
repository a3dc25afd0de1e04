//! Linear models over hashed words, one of the text, one of class names: the lexical features of the extraction
//! model.
//!
//! Weights of words seen at several sites only (feature hashing: Weinberger et al. 2009, arXiv:0902.2206); words
//! are lower-cased runs of letters, digits left out. Each model gives the trees one number per block; alone they
//! would be weak, because a page has few informative words. Scores are integers in 1/32 of a logit; a text's is
//! divided by the root of its length.

use super::blocks::Page;
use super::buckets::text_words;

/// Elements around a block that are used, and the number of them that count as its own.
const LEVELS: usize = 6;
const OWN_LEVELS: usize = 2;

/// The weights, one byte a word.
pub(super) struct Weights<'m> {
    pub(super) text: &'m [u8],
    pub(super) own: &'m [u8],
    pub(super) around: &'m [u8],
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
