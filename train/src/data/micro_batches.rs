//! Splits the sequences of a global batch into micro-batches, as blocks, and assigns them to ranks.

use std::ops::Range;

use crate::config::plan::Plan;
use crate::dist::mesh::RankCoord;

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
    pub(crate) fn merges_with(&self, right: &Block) -> bool {
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
fn plain_blocks(range: Range<usize>, size: usize) -> Vec<Block> {
    let end = range.end;
    range
        .step_by(size)
        .map(|start| Block {
            start,
            size: size.min(end - start),
        })
        .collect()
}

/// A rank's micro-batches of the global batch, in order.
///
/// Ranks take contiguous ranges of it. With sharded gradients (ZeRO-2 and 3) or expert parallelism, each
/// micro-batch is reduced over ranks at once, so ranks take turns instead, as Megatron's do: the sums of a round
/// are whole blocks of the tree, and no rank holds another's.
pub(crate) fn micro_batches(plan: &Plan, place: &RankCoord) -> Vec<Block> {
    let count = plan.train.global_batch;
    if !plan.parallel.is_summed_by_round() {
        return blocks_of(plan, place.batch_range(count));
    }
    let size = if !plan.sum_order().is_tree() {
        plan.train.micro_batch
    } else if place.cp > 1 {
        1
    } else {
        1 << plan.train.micro_batch.trailing_zeros()
    };
    let rounds = count / (size * place.dp);
    let start = |round: usize| (round * place.dp + place.dp_rank) * size;
    (0..rounds)
        .map(|round| Block {
            start: start(round),
            size,
        })
        .collect()
}

/// A range of sequences as micro-batches. Context-parallel ranks have parts of each sequence, which
/// the tree joins before it joins sequences.
pub(crate) fn blocks_of(plan: &Plan, range: Range<usize>) -> Vec<Block> {
    let size = plan.train.micro_batch;
    if !plan.sum_order().is_tree() {
        plain_blocks(range, size)
    } else if plan.parallel.cp > 1 {
        aligned_blocks(range, 1)
    } else {
        aligned_blocks(range, size)
    }
}

/// The blocks a rank has after all its merges.
pub(crate) fn merged(range: Range<usize>) -> Vec<Block> {
    aligned_blocks(range, usize::MAX / 4)
}
