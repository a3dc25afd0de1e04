//! Tiles of query rows and the keys that they attend to.

use crate::cpu::Numbers;
use std::ops::Range;

pub(super) use crate::ops::attention::state::TILE;

/// Query rows that are computed together and the keys they attend to.
pub(super) struct Tile {
    pub(super) first: usize,
    pub(super) len: usize,
    /// First key of each row and one past its last; both 0 where there is none.
    pub(super) starts: [usize; TILE],
    pub(super) ends: [usize; TILE],
    /// From the first key that any row attends to, to the last.
    pub(super) visited: Range<usize>,
}

/// Numbers of keys within a visited range: first seen and one past the last, as floats for compares.
pub(super) struct Seen {
    pub(super) starts: [f32; TILE],
    pub(super) ends: [f32; TILE],
}

impl Tile {
    /// The part of a block that is visited.
    pub(super) fn within(&self, block: usize, len: usize, numbers: Numbers) -> Range<usize> {
        let grain = match numbers {
            Numbers::F32 | Numbers::Bf16 | Numbers::Bf16Mma | Numbers::F16Mma => 2,
            Numbers::Bf16Tiles => 32,
        };
        let start = self.visited.start.max(block);
        let start = block + (start - block) / grain * grain;
        start..self.visited.end.min(block + len)
    }

    /// The mask over a visited range; `None` if all rows attend to all of it.
    pub(super) fn seen(&self, keys: &Range<usize>) -> Option<Seen> {
        let len = keys.len();
        let number = |key: usize| key.saturating_sub(keys.start).min(len);
        let all = |r: usize| self.starts[r] <= keys.start && self.ends[r] >= keys.end;
        if self.len == TILE && (0..TILE).all(all) {
            return None;
        }
        Some(Seen {
            starts: self.starts.map(|key| number(key) as f32),
            ends: self.ends.map(|key| number(key) as f32),
        })
    }

    /// Lanes that hold rows, in whole vectors.
    pub(super) fn lanes(&self) -> usize {
        self.len.next_multiple_of(TILE / 2)
    }
}
