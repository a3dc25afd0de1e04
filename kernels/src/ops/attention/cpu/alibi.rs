//! Linear biases of a tile's scores: the slope and the position of each lane, from which a key's biases are computed where
//! the scores are; nothing is stored by key.

use super::tile::TILE;
use crate::cpu::simd::Lanes;
use crate::descriptor::alibi::Alibi;
use std::ops::Range;

/// Of each lane: the slope of its head, and the position of its query, a whole number.
pub(super) struct AlibiLanes {
    slopes: [f32; TILE],
    positions: [f32; TILE],
}

/// Sixteen lanes in vectors, and the position of a block's first key.
#[derive(Clone, Copy)]
pub(super) struct Loaded<L> {
    slopes: L,
    positions: L,
    first: usize,
}

impl AlibiLanes {
    /// Lanes are rows of one of the call's heads, from `position` on.
    pub(super) fn of_rows(alibi: Alibi, head: usize, position: usize) -> AlibiLanes {
        AlibiLanes {
            slopes: [alibi.slope(head); TILE],
            positions: std::array::from_fn(|lane| (position + lane) as f32),
        }
    }

    /// Lanes are heads, all of one row.
    pub(super) fn of_heads(alibi: Alibi, heads: Range<usize>, position: usize) -> AlibiLanes {
        let mut slopes = [0.0; TILE];
        for (slope, head) in slopes.iter_mut().zip(heads) {
            *slope = alibi.slope(head);
        }
        AlibiLanes {
            slopes,
            positions: [position as f32; TILE],
        }
    }

    /// Sixteen lanes from `lane` on, beside keys from position `first` on.
    #[inline(always)]
    pub(super) fn loaded<L: Lanes>(&self, lane: usize, first: usize) -> Loaded<L> {
        Loaded {
            slopes: L::load(&self.slopes[lane..]),
            positions: L::load(&self.positions[lane..]),
            first,
        }
    }
}

impl<L: Lanes> Loaded<L> {
    /// Biases of the block's key number `key`.
    #[inline(always)]
    pub(super) fn of_key(self, key: usize) -> L {
        let distance = L::splat((self.first + key) as f32).sub(self.positions);
        self.slopes.mul(distance)
    }
}
