//! The reduction tree over leaves of query rows, some of which are left out.

use super::softmax::merge;
use crate::cpu::Isa;
use crate::cpu::simd::LANES;
use std::ops::{Deref, DerefMut};

/// Floats aligned to a cache line, which doubles the speed of tile loads and stores.
pub(super) struct Lines {
    room: Vec<f32>,
    first: usize,
    len: usize,
}

impl Lines {
    /// Zeros.
    pub(super) fn new(len: usize) -> Lines {
        let room = vec![0.0_f32; len + LANES];
        let first = room.as_ptr().align_offset(4 * LANES).min(LANES);
        Lines { room, first, len }
    }
}

impl Deref for Lines {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        &self.room[self.first..][..self.len]
    }
}

impl DerefMut for Lines {
    fn deref_mut(&mut self) -> &mut [f32] {
        &mut self.room[self.first..][..self.len]
    }
}

/// Sums of leaves in the tree of `reduce`; a leaf that is left out is `None`.
#[derive(Default)]
pub(super) struct Tree {
    /// Sums that wait for their partner.
    waiting: Vec<Option<Lines>>,
    /// Free buffers.
    pub(super) free: Vec<Lines>,
}

impl Tree {
    /// A buffer for a leaf's sum, with unspecified contents; the same size every time.
    pub(super) fn room(&mut self, floats: usize) -> Lines {
        self.free.pop().unwrap_or_else(|| Lines::new(floats))
    }

    pub(super) fn push(&mut self, number: usize, leaf: Option<Lines>, isa: Isa) {
        let mut sum = leaf;
        for _ in 0..number.trailing_ones() {
            sum = self.merged(sum, isa);
        }
        self.waiting.push(sum);
    }

    /// Merges the last waiting sum with `right`.
    fn merged(&mut self, right: Option<Lines>, isa: Isa) -> Option<Lines> {
        let older = self.waiting.pop().expect("one sum waits per one bit");
        match (older, right) {
            (Some(older), Some(mut right)) => {
                merge(isa, &mut right, &older);
                self.free.push(older);
                Some(right)
            }
            (older, right) => older.or(right),
        }
    }

    /// The sum of all; the tree is empty then.
    pub(super) fn take(&mut self, isa: Isa) -> Option<Lines> {
        let mut sum = self.waiting.pop().flatten();
        while !self.waiting.is_empty() {
            sum = self.merged(sum, isa);
        }
        sum
    }
}
