//! Sums of gradients over the sequences of a step, in a tree that no layout changes.
//!
//! The tree is a binary counter over sequence numbers of the global batch: two neighbouring blocks
//! merge only if they have the same power-of-two size and the left one starts at a multiple of
//! twice that size; at the end what is left merges from the right to the left. Micro-batches and
//! data-parallel ranks only decide who holds which blocks.
//!
//! Memory: at most log2(sequences of the rank) + 1 sets of gradients.

use std::ops::Range;

use kernels::comm::Collective;
use kernels::{Device, reduce};

use crate::model::gradients::Gradients;

/// Sequences `[start, start + size)` of the global batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Block {
    pub start: usize,
    pub size: usize,
}

impl Block {
    pub(crate) fn range(&self) -> Range<usize> {
        self.start..self.start + self.size
    }

    /// True if `right` completes this block to one of twice the size.
    fn merges_with(&self, right: &Block) -> bool {
        self.size == right.size
            && self.start + self.size == right.start
            && self.start.is_multiple_of(2 * self.size)
    }
}

/// `range` in order as aligned power-of-two blocks of at most `limit` sequences.
pub(crate) fn aligned_blocks(range: Range<usize>, limit: usize) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut start = range.start;
    while start < range.end {
        let mut size = 1;
        while 2 * size <= limit && start.is_multiple_of(2 * size) && start + 2 * size <= range.end {
            size *= 2;
        }
        blocks.push(Block { start, size });
        start += size;
    }
    blocks
}

/// `range` in order as blocks of `size` sequences, the last maybe smaller.
pub(crate) fn plain_blocks(range: Range<usize>, size: usize) -> Vec<Block> {
    let end = range.end;
    range
        .step_by(size)
        .map(|start| Block {
            start,
            size: size.min(end - start),
        })
        .collect()
}

/// The blocks a rank has after all its merges.
fn merged(range: Range<usize>) -> Vec<Block> {
    aligned_blocks(range, usize::MAX / 4)
}

/// The sums of one rank during a step.
pub(crate) struct GradientTree {
    is_exact: bool,
    dims: Vec<Vec<usize>>,
    device: Device,
    stack: Vec<(Block, Gradients)>,
    free: Vec<Gradients>,
}

impl GradientTree {
    pub(crate) fn new(dims: Vec<Vec<usize>>, is_exact: bool, device: &Device) -> GradientTree {
        let device = device.clone();
        GradientTree {
            is_exact,
            dims,
            device,
            stack: Vec::new(),
            free: Vec::new(),
        }
    }

    /// Buffers to which the backward pass of `block` is to be added; blocks come in order.
    pub(crate) fn open(&mut self, block: Block) -> kernels::Result<&mut Gradients> {
        let joins = match self.stack.last() {
            Some((top, _)) => !self.is_exact || top.merges_with(&block),
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
            let mut gradients = match self.free.pop() {
                Some(gradients) => gradients,
                None => Gradients::like(&self.dims, &self.device)?,
            };
            gradients.restart();
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
            self.merge_top()?;
        }
        Ok(())
    }

    fn merge_top(&mut self) -> kernels::Result<()> {
        let (right, from) = self.stack.pop().expect("the caller saw two blocks");
        let (left, into) = self.stack.last_mut().expect("the caller saw two blocks");
        left.size += right.size;
        for (a, b) in into.tensors_mut().iter_mut().zip(from.tensors()) {
            reduce::tree_add_into(a, b)?;
        }
        self.free.push(from);
        Ok(())
    }

    /// Sums over all ranks of the group; the same bits on each. `batch` is the global batch.
    /// The buffers go back with `recycle`.
    pub(crate) fn finish(
        &mut self,
        dp: &dyn Collective,
        batch: usize,
    ) -> kernels::Result<Gradients> {
        let size = dp.size();
        let range = |rank: usize| batch * rank / size..batch * (rank + 1) / size;
        if size == 1 {
            while self.stack.len() > 1 {
                self.merge_top()?;
            }
        } else if !self.is_exact || batch.is_multiple_of(size) && (batch / size).is_power_of_two() {
            // one block of the same aligned size each: the group's tree by rank is the same tree
            for tensor in self.stack[0].1.tensors_mut() {
                dp.all_reduce_sum(tensor.f32_mut())?;
            }
        } else {
            let blocks: Vec<Vec<Block>> = (0..size).map(|rank| merged(range(rank))).collect();
            self.exchange(dp, &blocks)?;
        }
        let (_, gradients) = self
            .stack
            .pop()
            .expect("every rank has at least one sequence");
        Ok(gradients)
    }

    /// Every rank gathers every block and finishes the tree by itself, tensor by tensor.
    fn exchange(&mut self, dp: &dyn Collective, blocks: &[Vec<Block>]) -> kernels::Result<()> {
        let most = blocks.iter().map(Vec::len).max().unwrap_or(0);
        for tensor in 0..self.dims.len() {
            let elements = self.stack[0].1.tensors()[tensor].elements();
            // ranks with fewer blocks send zeros in their place, which nobody reads
            let mut mine = vec![0.0; most * elements];
            for ((_, gradients), part) in self.stack.iter().zip(mine.chunks_mut(elements)) {
                part.copy_from_slice(gradients.tensors()[tensor].f32());
            }
            let all = dp.all_gather(&mine)?;
            let leaves = all.iter().zip(blocks).flat_map(|(data, blocks)| {
                blocks
                    .iter()
                    .zip(data.chunks(elements))
                    .map(|(&block, part)| (block, part.to_vec()))
            });
            let sum = tree_sum(leaves);
            self.stack[0].1.tensors_mut()[tensor]
                .f32_mut()
                .copy_from_slice(&sum);
        }
        while self.stack.len() > 1 {
            let (_, gradients) = self.stack.pop().expect("more than one");
            self.free.push(gradients);
        }
        Ok(())
    }

    /// Takes back buffers for the next step.
    pub(crate) fn recycle(&mut self, gradients: Gradients) {
        self.free.push(gradients);
    }
}

/// The tree over blocks in order of sequences.
fn tree_sum(leaves: impl Iterator<Item = (Block, Vec<f32>)>) -> Vec<f32> {
    let mut stack: Vec<(Block, Vec<f32>)> = Vec::new();
    let add = |stack: &mut Vec<(Block, Vec<f32>)>| {
        let (right, from) = stack.pop().expect("two blocks");
        let (left, into) = stack.last_mut().expect("two blocks");
        left.size += right.size;
        into.iter_mut().zip(&from).for_each(|(a, b)| *a += b);
    };
    for leaf in leaves {
        stack.push(leaf);
        while let [.., (left, _), (right, _)] = stack.as_slice()
            && left.merges_with(right)
        {
            add(&mut stack);
        }
    }
    while stack.len() > 1 {
        add(&mut stack);
    }
    stack.pop().map(|(_, sum)| sum).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use kernels::comm::local;
    use kernels::{Tensor, rng};
    use proptest::prelude::*;

    use super::*;

    /// One number per sequence, of different sizes so that any other order shows.
    fn leaf(sequence: usize) -> f32 {
        let u = rng::uniform(9, 9, sequence as u64);
        #[expect(clippy::cast_possible_truncation, reason = "test data")]
        let x = ((u - 0.5) * 10f64.powi(i32::try_from(sequence % 3).unwrap())) as f32;
        x
    }

    fn one_rank(batch: usize) -> f32 {
        tree_sum((0..batch).map(|start| (Block { start, size: 1 }, vec![leaf(start)])))[0]
    }

    fn by_tree(batch: usize, dp: usize, micro_batch: usize) -> Vec<f32> {
        let ranks: Vec<_> = local::group(dp).into_iter().enumerate().collect();
        std::thread::scope(|scope| {
            let threads: Vec<_> = ranks
                .into_iter()
                .map(|(rank, comm)| {
                    scope.spawn(move || {
                        let device = Device::cpu();
                        let mut tree = GradientTree::new(vec![vec![1]], true, &device);
                        let range = batch * rank / dp..batch * (rank + 1) / dp;
                        for block in aligned_blocks(range, micro_batch) {
                            let leaves = block
                                .range()
                                .map(|start| (Block { start, size: 1 }, vec![leaf(start)]));
                            let sum = Tensor::from_f32(&[1], &tree_sum(leaves), &device).unwrap();
                            let gradients = tree.open(block).unwrap();
                            let [target] = gradients.sums([0]);
                            reduce::tree_add_into(target, &sum).unwrap();
                            tree.close().unwrap();
                        }
                        tree.finish(&comm, batch).unwrap().tensors()[0].f32()[0]
                    })
                })
                .collect();
            threads
                .into_iter()
                .map(|thread| thread.join().unwrap())
                .collect()
        })
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
            let tree = tree_sum((0..7).map(|start| (Block { start, size: 1 }, vec![x[start]])))[0];
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
            let want = one_rank(batch).to_bits();
            for found in by_tree(batch, dp, micro_batch) {
                prop_assert_eq!(found.to_bits(), want);
            }
        }
    }
}
