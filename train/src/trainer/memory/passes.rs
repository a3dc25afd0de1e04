//! Bytes that the passes of a step keep on a rank: activations, losses, and gradients that wait in the tree.

use std::collections::BTreeMap;

use kernels::Device;

use crate::data::micro_batches::Block;
use crate::parallel::gradient_reducer::context_cuts;
use crate::trainer::memory::peaks::{Pass, Step};

use super::Rank;

impl Rank<'_> {
    /// Bytes of the rank's step, pass by pass.
    pub(super) fn step(&self) -> Step {
        let blocks = self.blocks();
        let units = self.gradient_units();
        let mut passes = vec![Vec::with_capacity(units.len()); blocks.len()];
        for (chunk, units) in units.iter().enumerate() {
            let gradients = self.gradients(units, &blocks);
            let mut by_size = BTreeMap::new();
            for ((block, passes), gradients) in blocks.iter().zip(&mut passes).zip(gradients) {
                let pass = by_size.entry(block.size).or_insert_with(|| Pass {
                    kept: self.kept(chunk, block.size),
                    losses: self.losses(chunk, block.size),
                    gradients: 0,
                });
                passes.push(Pass { gradients, ..*pass });
            }
        }
        Step {
            inputs: self.batches(&blocks),
            passes,
        }
    }

    /// Bytes of a model chunk's gradients after each micro-batch; in every schedule a chunk's backward passes run in their order.
    fn gradients(&self, units: &[usize], blocks: &[Block]) -> Vec<usize> {
        // experts have a tree of their own with expert parallelism
        let is_experts = |unit: &usize| self.shards.units[*unit].is_experts();
        let (experts, rest): (Vec<usize>, Vec<usize>) = units.iter().partition(|of| is_experts(of));
        let [rest, experts] = [rest, experts].map(|units| self.summed(&units, blocks));
        rest.iter().zip(experts).map(|(a, b)| a + b).collect()
    }

    /// Bytes of these units' gradients after each micro-batch.
    fn summed(&self, units: &[usize], blocks: &[Block]) -> Vec<usize> {
        let (is_tree, zero) = (self.plan.sum_order().is_tree(), self.shards.zero);
        let is_by_round = self.plan.parallel.is_summed_by_round();
        let Some(&first) = units.first() else {
            return vec![0; blocks.len()];
        };
        let dp = self.shards.units[first].members();
        let flat = |is_shard| -> usize {
            let of = |&unit: &usize| self.flat(unit, is_shard);
            units.iter().map(of).sum()
        };
        let mut sums = Waiting::default();
        if is_by_round {
            let of_round = flat(true);
            let of_block = |block: &Block| {
                let each = self.place.dp / dp * block.size;
                let first = block.start - self.place.dp_rank * block.size;
                let is_whole = !is_tree || dp.is_power_of_two();
                let (count, size) = if is_whole { (1, dp * each) } else { (dp, each) };
                for i in 0..count {
                    let start = first + i * size;
                    sums.push(Block { start, size }, is_tree);
                }
                sums.blocks.len() * of_round
            };
            return blocks.iter().map(of_block).collect();
        }
        if is_tree && self.place.cp > 1 {
            let parts = units.iter().map(|&unit| {
                let cuts = context_cuts(self.shards.units[unit].len(), self.place.cp);
                Device::bytes_of(cuts[self.place.cp_rank + 1] - cuts[self.place.cp_rank])
            });
            let parts: usize = parts.sum();
            let of_block = |block: &Block| {
                sums.push(*block, is_tree);
                sums.blocks.len() * parts
            };
            return blocks.iter().map(of_block).collect();
        }
        // buffers of merged blocks are kept for the next ones
        let set: usize = units.iter().map(|&unit| self.tensors(unit)).sum();
        let of_block = |block: &Block| {
            sums.push(*block, is_tree);
            sums.most * set
        };
        let mut all: Vec<usize> = blocks.iter().map(of_block).collect();
        if let Some(last) = all.last_mut() {
            *last = flat(zero >= 1);
        }
        all
    }
}

/// Blocks that wait in a tree, as parallel/gradient_tree.rs merges them.
#[derive(Default)]
struct Waiting {
    blocks: Vec<Block>,
    /// Peak number of waiting blocks.
    most: usize,
}

impl Waiting {
    fn push(&mut self, block: Block, is_tree: bool) {
        // a block that completes its neighbour is added to it and never waits
        match self.blocks.last_mut() {
            Some(top) if !is_tree || top.merges_with(&block) => top.size += block.size,
            _ => self.blocks.push(block),
        }
        self.most = self.most.max(self.blocks.len());
        while let [.., left, right] = self.blocks.as_slice()
            && left.merges_with(right)
        {
            let right = right.size;
            self.blocks.pop();
            if let Some(left) = self.blocks.last_mut() {
                left.size += right;
            }
        }
    }
}
