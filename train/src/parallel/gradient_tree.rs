//! Reduction tree of gradients over blocks of sequences, which no layout changes.
//!
//! The tree is a binary counter over sequence numbers of the global batch: two neighbouring blocks merge only if
//! they have the same power-of-two size and the left one starts at a multiple of twice that size; at the end the
//! remaining blocks merge from right to left. Micro-batches and data-parallel ranks only decide which rank holds
//! which blocks.
//!
//! Memory: at most log2(sequences of the rank) + 1 sets of gradients.

use std::ops::Range;

use kernels::{Device, SumOrder, Tensor, reduce};

use crate::data::micro_batches::Block;
use crate::model::gradients::Gradients;
use crate::model::slots::Slot;

/// Gradients of one layer on one rank during a step.
pub(crate) struct GradientTree {
    sums: SumOrder,
    units: Vec<Range<Slot>>,
    stack: Vec<(Block, Gradients)>,
    free: Vec<Gradients>,
}

impl GradientTree {
    /// For the slots of some units.
    pub(crate) fn new(units: Vec<Range<Slot>>, sums: SumOrder) -> GradientTree {
        GradientTree {
            sums,
            units,
            stack: Vec::new(),
            free: Vec::new(),
        }
    }

    /// Buffers to which the backward pass of `block` is to be added; blocks come in order. `dims` are
    /// those of all slots.
    pub(crate) fn open(
        &mut self,
        block: Block,
        dims: &[Vec<usize>],
        device: &Device,
    ) -> kernels::Result<&mut Gradients> {
        let joins = match self.stack.last() {
            Some((top, _)) => !self.sums.is_tree() || top.merges_with(&block),
            None => false,
        };
        if joins {
            // adding the block's sum to its left neighbour's is the merge of the two
            let (top, _) = self
                .stack
                .last_mut()
                .expect("joins is only true with a top");
            top.size += block.size;
        } else {
            let gradients = match self.free.pop() {
                Some(mut gradients) => {
                    gradients.restart();
                    gradients
                }
                None => Gradients::of(&self.units, dims, device)?,
            };
            self.stack.push((block, gradients));
        }
        Ok(&mut self.stack.last_mut().expect("just pushed or found").1)
    }

    /// To be called when the block's backward pass is complete.
    pub(crate) fn close(&mut self) -> kernels::Result<()> {
        if let Some((_, gradients)) = self.stack.last_mut() {
            gradients.keep();
        }
        while let [.., (left, _), (right, _)] = self.stack.as_slice()
            && left.merges_with(right)
        {
            let (right, from) = self.stack.pop().expect("the pattern saw two blocks");
            let (left, into) = self.stack.last_mut().expect("the pattern saw two blocks");
            left.size += right.size;
            for (slot, tensor) in into.present_mut() {
                reduce::tree_add_into(tensor, from.tensor(slot))?;
            }
            self.free.push(from);
        }
        Ok(())
    }

    /// The rank's blocks, each summed; the tree is empty after.
    pub(crate) fn take(&mut self) -> Vec<(Block, Gradients)> {
        self.free.clear();
        std::mem::take(&mut self.stack)
    }
}

/// Blocks of flat gradients in the tree.
#[derive(Default)]
pub(crate) struct FlatTree {
    stack: Vec<(Block, Tensor)>,
}

impl FlatTree {
    /// Adds the next block; without the tree's order it is added to the running sum.
    pub(crate) fn push(
        &mut self,
        block: Block,
        flat: Tensor,
        sums: SumOrder,
    ) -> kernels::Result<()> {
        self.stack.push((block, flat));
        while let [.., (left, _), (right, _)] = self.stack.as_slice()
            && (!sums.is_tree() || left.merges_with(right))
        {
            self.merge_top()?;
        }
        Ok(())
    }

    fn merge_top(&mut self) -> kernels::Result<()> {
        let (right, from) = self.stack.pop().expect("the caller saw two blocks");
        let (left, into) = self.stack.last_mut().expect("the caller saw two blocks");
        left.size += right.size;
        reduce::tree_add_into(into, &from)
    }

    /// The blocks that wait to be merged, from the left.
    pub(crate) fn blocks(&self) -> impl ExactSizeIterator<Item = &Tensor> {
        self.stack.iter().map(|(_, flat)| flat)
    }

    /// Merges the remaining blocks, from the right.
    pub(crate) fn finish(mut self) -> kernels::Result<Option<Tensor>> {
        while self.stack.len() > 1 {
            self.merge_top()?;
        }
        Ok(self.stack.pop().map(|(_, flat)| flat))
    }
}

#[cfg(test)]
mod tests {
    use kernels::rng;
    use proptest::prelude::*;

    use super::*;
    use crate::data::micro_batches::{aligned_blocks, merged};

    /// One number per sequence, of different sizes so that any other order shows.
    fn leaf(sequence: usize) -> f32 {
        let u = rng::uniform(9, 9, sequence as u64);
        #[expect(clippy::cast_possible_truncation, reason = "test data")]
        let x = ((u - 0.5) * 10f64.powi(i32::try_from(sequence % 3).unwrap())) as f32;
        x
    }

    fn tensor(value: f32) -> Tensor {
        Tensor::from_f32(&[1], &[value], &Device::cpu()).unwrap()
    }

    fn tree_sum(leaves: impl Iterator<Item = (Block, f32)>) -> f32 {
        let mut tree = FlatTree::default();
        for (block, value) in leaves {
            tree.push(block, tensor(value), SumOrder::Tree).unwrap();
        }
        tree.finish().unwrap().unwrap().host::<f32>().unwrap()[0]
    }

    fn one_rank(batch: usize) -> f32 {
        tree_sum((0..batch).map(|start| (Block { start, size: 1 }, leaf(start))))
    }

    /// A rank's buffers after its range, block by block.
    fn by_tree(range: Range<usize>, micro_batch: usize) -> Vec<(Block, f32)> {
        let (device, dims) = (Device::cpu(), [vec![1]]);
        let mut tree = GradientTree::new(std::iter::once(0..1).collect(), SumOrder::Tree);
        for block in aligned_blocks(range, micro_batch) {
            let leaves = block
                .range()
                .map(|start| (Block { start, size: 1 }, leaf(start)));
            let sum = tensor(tree_sum(leaves));
            let gradients = tree.open(block, &dims, &device).unwrap();
            let [target] = gradients.sums([0]).unwrap();
            reduce::tree_add_into(target, &sum).unwrap();
            tree.close().unwrap();
        }
        let blocks = tree.take().into_iter();
        blocks
            .map(|(block, gradients)| (block, gradients.tensor(0).host::<f32>().unwrap()[0]))
            .collect()
    }

    #[test]
    fn tree_of_six_is_the_one_drawn_in_the_rules() {
        let x: Vec<f32> = (0..6).map(leaf).collect();
        assert_eq!(one_rank(6), ((x[0] + x[1]) + (x[2] + x[3])) + (x[4] + x[5]));
        let x: Vec<f32> = (0..7).map(leaf).collect();
        let want = ((x[0] + x[1]) + (x[2] + x[3])) + ((x[4] + x[5]) + x[6]);
        assert_eq!(one_rank(7), want);
    }

    #[test]
    fn a_swapped_merge_changes_bits() {
        let changes = |set: usize| {
            let x: Vec<f32> = (0..7).map(|i| leaf(7 * set + i)).collect();
            let tree = tree_sum((0..7).map(|start| (Block { start, size: 1 }, x[start])));
            let swapped = ((x[0] + x[2]) + (x[1] + x[3])) + ((x[4] + x[5]) + x[6]);
            tree.to_bits() != swapped.to_bits()
        };
        assert!((0..10).any(changes));
    }

    #[test]
    fn blocks_are_aligned_ordered_and_complete() {
        let sizes = |range, limit| -> Vec<(usize, usize)> {
            aligned_blocks(range, limit)
                .iter()
                .map(|b| (b.start, b.size))
                .collect()
        };
        assert_eq!(sizes(0..8, 4), [(0, 4), (4, 4)]);
        assert_eq!(sizes(0..8, 3), [(0, 2), (2, 2), (4, 2), (6, 2)]);
        assert_eq!(sizes(5..12, 8), [(5, 1), (6, 2), (8, 4)]);
        assert_eq!(sizes(3..3, 8), []);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn any_assignment_gives_the_bits_of_one_rank(
            batch in 1usize..40, dp in 1usize..5, micro_batch in 1usize..9,
        ) {
            let dp = dp.min(batch);
            let ranges = (0..dp).map(|rank| batch * rank / dp..batch * (rank + 1) / dp);
            let blocks: Vec<_> = ranges
                .clone()
                .flat_map(|range| by_tree(range, micro_batch))
                .collect();
            let wanted: Vec<_> = ranges.flat_map(merged).collect();
            let found: Vec<_> = blocks.iter().map(|(block, _)| *block).collect();
            prop_assert_eq!(found, wanted);
            let found = tree_sum(blocks.into_iter());
            prop_assert_eq!(found.to_bits(), one_rank(batch).to_bits());
        }
    }
}
