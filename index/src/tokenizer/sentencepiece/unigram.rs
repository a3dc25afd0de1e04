//! Unigram segmentation: the path of pieces with the highest sum of scores (Viterbi).
//!
//! Paper: Kudo 2018, arXiv:1804.10959. Facts (sentencepiece 0.2.3): sums are f32 and run from the start of the
//! text; a later path must be strictly better; a character without a piece costs the lowest score - 10; a
//! user-defined symbol of n bytes counts 0.1 (n - 1); where the sum so far passes 100,000 it is taken from all sums
//! ahead. Ties decide ids, so the same roundings are made here, and a text cannot be cut into words first: the
//! rounding of an f32 sum depends on everything before it. (0.2.1 compared in f64 and never reset: it differs on
//! near ties.)

use super::proto::{Kind, Piece};
use super::sink::{Sink, char_len};
use super::trie::{Key, NONE, Trie};

/// Penalty below the lowest score for characters that no piece covers.
const UNKNOWN_PENALTY: f32 = 10.0;
/// A sum beyond this, either way, becomes 0.
const RESET: f32 = 100_000.0;
/// In a trie's value: a user-defined symbol, whose score follows from its length.
const USER_DEFINED: u32 = 1 << 30;

/// Pieces by their bytes. Shared by threads.
#[derive(Debug)]
pub(super) struct Unigram {
    trie: Trie,
    unknown_score: f32,
    unknown: u32,
}

/// The best path to a position.
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
        let entries = (0u32..).zip(pieces).filter_map(|(id, p)| {
            let (value, score) = match p.kind {
                Kind::Normal => (id, p.score),
                Kind::UserDefined => (id | USER_DEFINED, 0.0),
                _ => return None,
            };
            Some(Key {
                bytes: p.text.as_bytes(),
                value,
                score,
            })
        });
        Ok(Unigram {
            trie: Trie::new(entries)?,
            unknown_score: lowest - UNKNOWN_PENALTY,
            unknown,
        })
    }

    /// Sends the best path's pieces to `sink`, last piece first. `text` is shorter than 2^31 bytes.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "a symbol's score is rounded to f32, as in the reference"
    )]
    pub(super) fn encode_backwards(
        &self,
        text: &[u8],
        arrivals: &mut Vec<Arrival>,
        sink: &mut Sink<'_>,
    ) {
        arrivals.clear();
        arrivals.resize(text.len() + 1, NOWHERE);
        // the last place that any path has reached
        let (mut start, mut frontier) = (0, 0);
        while start < text.len() {
            if arrivals[start].score.abs() > RESET {
                reset(&mut arrivals[start..=frontier]);
            }
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
                    score
                } else {
                    (0.1 * (end - start - 1) as f64) as f32
                };
                arrivals[end].improve(score + so_far, start, value & !USER_DEFINED);
                frontier = frontier.max(end);
                has_single |= end == single;
            }
            if !has_single {
                arrivals[single].improve(self.unknown_score + so_far, start, self.unknown);
                frontier = frontier.max(single);
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

/// Subtracts the first sum from all reached positions.
fn reset(ahead: &mut [Arrival]) {
    let offset = ahead.first().map_or(0.0, |a| a.score);
    for arrival in ahead.iter_mut().filter(|a| a.start != NONE) {
        arrival.score -= offset;
    }
}

impl Arrival {
    #[inline]
    #[expect(
        clippy::cast_possible_truncation,
        reason = "texts are shorter than 2^31 bytes"
    )]
    fn improve(&mut self, score: f32, start: usize, id: u32) {
        if self.start == NONE || score > self.score {
            *self = Arrival {
                score,
                start: start as u32,
                id,
            };
        }
    }
}
