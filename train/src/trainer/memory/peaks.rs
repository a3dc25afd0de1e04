//! Peaks of gradients and activations: a step simulated through the pipeline's schedule.

use kernels::Device;

use crate::data::micro_batches::Block;
use crate::parallel::gradient_reducer::context_cuts;
use crate::parallel::schedule::{Action, actions};

use super::Rank;

impl Rank<'_> {
    /// Peak bytes of gradients and of activations over a step of trainings that run together, simulated through the schedule.
    pub(super) fn peaks(ranks: &[Rank<'_>]) -> (usize, usize) {
        let blocks: Vec<Vec<Block>> = ranks.iter().map(Rank::blocks).collect();
        let mut gradients: Vec<Summing> = ranks.iter().map(Summing::of).collect();
        let mut order = Vec::new();
        for (training, blocks) in blocks.iter().enumerate() {
            order.extend((0..blocks.len()).map(|micro| (training, micro)));
        }
        let batches = ranks.iter().zip(&blocks);
        let (mut kept, mut most) = (batches.map(|(rank, of)| rank.batches(of)).sum(), (0, 0));
        let Some(Rank { plan, place, .. }) = ranks.first() else {
            return most;
        };
        for action in actions(&plan.parallel, place.pp_rank, order.len()) {
            let (Action::Forward { micro, chunk } | Action::Backward { micro, chunk }) = action;
            let (training, micro) = order[micro];
            let (rank, block) = (&ranks[training], blocks[training][micro]);
            match action {
                Action::Forward { .. } => {
                    kept += rank.kept(chunk, block.size);
                    // they stay until the step's end
                    kept += rank.losses(chunk, block.size);
                    most.1 = most.1.max(kept);
                }
                Action::Backward { .. } => {
                    kept -= rank.kept(chunk, block.size);
                    let is_last = micro + 1 == blocks[training].len();
                    gradients[training].add(rank, chunk, block, is_last);
                    let held = gradients.iter().flat_map(|of| &of.held).sum();
                    most.0 = most.0.max(held);
                }
            }
        }
        most
    }

    /// Bytes of a model chunk's gradients after a micro-batch.
    fn summed(&self, units: &[usize], sums: &mut Waiting, block: Block, is_last: bool) -> usize {
        let (is_tree, zero) = (self.plan.sum_order().is_tree(), self.shards.zero);
        let is_by_round = self.plan.parallel.is_summed_by_round();
        let Some(&unit) = units.first() else { return 0 };
        let unit = &self.shards.units[unit];
        let flat = |is_shard| {
            units
                .iter()
                .map(|&unit| self.flat(unit, is_shard))
                .sum::<usize>()
        };
        if !is_by_round && (!is_tree || self.place.cp == 1) {
            sums.push(block, is_tree);
            if is_last {
                return flat(zero >= 1);
            }
            // buffers of merged blocks are kept for the next ones
            let set = units.iter().map(|&unit| self.tensors(unit)).sum::<usize>();
            return sums.most * set;
        }
        let dp = unit.members();
        if !is_by_round {
            sums.push(block, is_tree);
        } else {
            let each = self.place.dp / dp * block.size;
            let first = block.start - self.place.dp_rank * block.size;
            let is_whole = !is_tree || dp.is_power_of_two();
            let (count, size) = if is_whole { (1, dp * each) } else { (dp, each) };
            for i in 0..count {
                let start = first + i * size;
                sums.push(Block { start, size }, is_tree);
            }
        }
        if !is_by_round {
            let parts = units.iter().map(|&unit| {
                let cuts = context_cuts(self.shards.units[unit].len(), self.place.cp);
                Device::bytes_of(cuts[self.place.cp_rank + 1] - cuts[self.place.cp_rank])
            });
            return sums.blocks.len() * parts.sum::<usize>();
        }
        sums.blocks.len() * flat(true)
    }
}

/// Gradients of a training during a step, by model chunk on this rank.
struct Summing {
    /// Units, and those of experts, which have a separate tree with expert parallelism.
    units: Vec<[Vec<usize>; 2]>,
    sums: Vec<[Waiting; 2]>,
    /// Bytes.
    held: Vec<usize>,
}

impl Summing {
    fn of(rank: &Rank<'_>) -> Summing {
        let is_experts = |unit: &usize| rank.shards.units[*unit].is_experts();
        let split = rank
            .gradient_units()
            .into_iter()
            .map(|units| units.into_iter().partition(is_experts));
        let units: Vec<[Vec<usize>; 2]> = split.map(|(experts, rest)| [rest, experts]).collect();
        let new = |_: &[Vec<usize>; 2]| [Waiting::default(), Waiting::default()];
        Summing {
            sums: units.iter().map(new).collect(),
            held: vec![0; units.len()],
            units,
        }
    }

    /// Adds a chunk's gradients after a micro-batch.
    fn add(&mut self, rank: &Rank<'_>, chunk: usize, block: Block, is_last: bool) {
        let kinds = self.units[chunk].iter().zip(&mut self.sums[chunk]);
        let kinds = kinds.map(|(units, sums)| rank.summed(units, sums, block, is_last));
        self.held[chunk] = kinds.sum();
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
