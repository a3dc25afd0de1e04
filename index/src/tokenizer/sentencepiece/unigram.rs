//! Unigram segmentation: the path of pieces with the highest sum of scores (Viterbi).
//!
//! Paper: Kudo 2018, arXiv:1804.10959. Facts (sentencepiece 0.2): sums run from the start of the text, a later path must
//! be strictly better, a character without a piece of its own costs the lowest score - 10, a user-defined symbol counts
//! its length times the highest score - 0.1. A sum is made and compared in f64 but kept in f32 (unknown characters: f32
//! throughout). Ties and near ties decide ids, so the same roundings are made here, and a text cannot be cut into words
//! first: what f32 keeps of a sum depends on all that came before.

use super::proto::{Kind, Piece};
use super::trie::{NONE, Trie};
use super::{Sink, char_len};

/// Added below the lowest score for what no piece covers.
const UNKNOWN_PENALTY: f32 = 10.0;
/// In a trie's value: a user-defined symbol, whose score follows from its length.
const USER_DEFINED: u32 = 1 << 30;

/// Pieces by their bytes. Shared by threads.
#[derive(Debug)]
pub(super) struct Unigram {
    trie: Trie,
    unknown_score: f32,
    highest: f32,
    unknown: u32,
}

/// The best way to reach a place.
#[derive(Clone, Copy)]
pub(super) struct Arrival {
    score: f32,
    start: u32,
    id: u32,
}

const NOWHERE: Arrival = Arrival {
    score: 0.0,
    start: NONE,
    id: 0,
};

impl Unigram {
    pub(super) fn new(pieces: &[Piece], unknown: u32) -> Result<Unigram, String> {
        let normal = || pieces.iter().filter(|p| p.kind == Kind::Normal);
        let lowest = normal().map(|p| p.score).fold(f32::MAX, f32::min);
        // The reference starts its maximum at the least positive number, so it is never below that.
        let highest = normal().map(|p| p.score).fold(f32::MIN_POSITIVE, f32::max);
        let entries = (0u32..).zip(pieces).filter_map(|(id, p)| match p.kind {
            Kind::Normal => Some((p.text.as_bytes(), id, p.score)),
            Kind::UserDefined => Some((p.text.as_bytes(), id | USER_DEFINED, 0.0)),
            _ => None,
        });
        Ok(Unigram {
            trie: Trie::new(entries)?,
            unknown_score: lowest - UNKNOWN_PENALTY,
            highest,
            unknown,
        })
    }

    /// Sends the best path's pieces to `sink`, last piece first. `text` is shorter than 2^31 bytes.
    pub(super) fn encode_backwards(
        &self,
        text: &[u8],
        arrivals: &mut Vec<Arrival>,
        sink: &mut Sink<'_>,
    ) {
        arrivals.clear();
        arrivals.resize(text.len() + 1, NOWHERE);
        let mut start = 0;
        while start < text.len() {
            let so_far = arrivals[start].score;
            let single = start + char_len(&text[start..]);
            let mut has_single = false;
            let mut node = Trie::ROOT;
            for (end, byte) in (start + 1..).zip(&text[start..]) {
                let Some((next, value, score)) = self.trie.step(node, *byte) else {
                    break;
                };
                node = next;
                if value == NONE {
                    continue;
                }
                let score = if value & USER_DEFINED == 0 {
                    f64::from(score)
                } else {
                    f64::from((end - start) as f32 * self.highest) - 0.1
                };
                let sum = score + f64::from(so_far);
                arrivals[end].improve(sum, start, value & !USER_DEFINED);
                has_single |= end == single;
            }
            if !has_single {
                let sum = f64::from(self.unknown_score + so_far);
                arrivals[single].improve(sum, start, self.unknown);
            }
            start = single;
        }
        let mut end = text.len();
        while end > 0 {
            let arrival = arrivals[end];
            let start = (arrival.start as usize).min(end - 1);
            sink.piece(arrival.id, &text[start..end]);
            end = start;
        }
    }
}

impl Arrival {
    #[inline]
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the reference keeps f32; texts are shorter than 2^31 bytes"
    )]
    fn improve(&mut self, sum: f64, start: usize, id: u32) {
        if self.start == NONE || sum > f64::from(self.score) {
            *self = Arrival {
                score: sum as f32,
                start: start as u32,
                id,
            };
        }
    }
}
