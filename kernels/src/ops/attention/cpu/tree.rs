//! The tree of `reduce` over leaves of query rows, of which some are left out.

use super::softmax::merge;
use crate::cpu::Isa;

/// Sums of leaves in the tree of `reduce`; a leaf that is left out is `None`.
#[derive(Default)]
pub(super) struct Tree {
    /// Sums that wait for their partner.
    waiting: Vec<Option<Vec<f32>>>,
    /// Buffers nobody needs.
    pub(super) free: Vec<Vec<f32>>,
}

impl Tree {
    pub(super) fn room(&mut self, floats: usize) -> Vec<f32> {
        self.free.pop().unwrap_or_else(|| vec![0.0; floats])
    }

    pub(super) fn push(&mut self, number: usize, leaf: Option<Vec<f32>>, isa: Isa) {
        let mut sum = leaf;
        for _ in 0..number.trailing_ones() {
            sum = self.merged(sum, isa);
        }
        self.waiting.push(sum);
    }

    /// The last that waits and `right`.
    fn merged(&mut self, right: Option<Vec<f32>>, isa: Isa) -> Option<Vec<f32>> {
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
    pub(super) fn take(&mut self, isa: Isa) -> Option<Vec<f32>> {
        let mut sum = self.waiting.pop().flatten();
        while !self.waiting.is_empty() {
            sum = self.merged(sum, isa);
        }
        sum
    }
}
