//! Sharding: which rank holds which elements. This file alone decides.
//!
//! Tensors that are used together are a unit (an embedding, a block's, a norm's). A rank's share of a unit's
//! tensors, concatenated, is flat: the form in which gradients are reduced and moments are kept. Data-parallel
//! ranks cut it into contiguous shards of about equal size, whose borders are between blocks of NORM_BLOCK
//! elements: every block of squares is then on one rank, and the gradient's norm has the same bits for every cut.
//! Paper: Rajbhandari et al. 2020 (ZeRO), arXiv:1910.02054. We differ from Megatron's buckets only in where borders
//! may be.

use std::ops::Range;

use crate::config::plan::{FEATURE_CHUNKS, Plan};
use kernels::Collective;

use crate::dist::mesh::{Groups, RankCoord};
use crate::model::param::Spec;
use crate::model::slots::Slot;

/// Elements whose squares `reduce::sum_squares` adds as one block.
pub(crate) const NORM_BLOCK: usize = 4096;

/// Contiguous elements of one tensor's share on a tensor-parallel rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    /// Index into the model's list of tensors.
    pub spec: usize,
    /// Elements of the rank's share of the tensor.
    pub local: Range<usize>,
    /// First of them in the flat unit.
    pub at: usize,
}

/// Elements of a tensor that are divided into blocks of squares of their own.
#[derive(Debug)]
struct NormChunk {
    spec: usize,
    /// Number of the chunk in the tensor's share.
    number: usize,
    /// In the flat unit.
    elements: Range<usize>,
}

impl NormChunk {
    /// Blocks within these flat elements, whose ends are borders between blocks.
    fn blocks(&self, within: &Range<usize>) -> impl Iterator<Item = Range<usize>> + use<> {
        let from = self.elements.start.max(within.start);
        let to = self.elements.end.min(within.end);
        (from..to)
            .step_by(NORM_BLOCK)
            .map(move |at| at..to.min(at + NORM_BLOCK))
    }

    /// The border between blocks that is nearest to `wanted`, which is within the chunk.
    fn nearest_border(&self, wanted: usize) -> usize {
        let Range { start, end } = self.elements;
        let before = wanted.saturating_sub(start).div_ceil(NORM_BLOCK).max(1) - 1;
        let first = start + before * NORM_BLOCK;
        let last = end.min(first + NORM_BLOCK);
        match wanted.abs_diff(first) <= wanted.abs_diff(last) {
            true => first,
            false => last,
        }
    }
}

/// One unit as each tensor-parallel rank of its stage holds it.
#[derive(Debug)]
pub(crate) struct Unit {
    pub specs: Range<usize>,
    /// Start of each tensor in the flat unit, and the end.
    starts: Vec<usize>,
    /// Chunks of its tensors, in which blocks of squares start; none if it is frozen.
    chunks: Vec<NormChunk>,
    /// Borders of the shards of the data-parallel ranks that have the unit.
    pub cuts: Vec<usize>,
    /// Its tensors have no gradients and no moments.
    pub is_frozen: bool,
    /// Expert weights under expert parallelism: the expert-parallel rank that holds them, and the number of such
    /// ranks.
    experts: Option<(usize, usize)>,
}

impl Unit {
    fn of(specs: &[Spec], range: Range<usize>, plan: &Plan) -> Unit {
        let (tp, ep) = (plan.parallel.tp, plan.parallel.ep);
        let experts = specs[range.start].ep_rank.map(|rank| (rank, ep));
        let dp = plan.parallel.dp / experts.map_or(1, |_| ep);
        let mut starts = vec![0];
        let mut norm_chunks = Vec::new();
        for index in range.clone() {
            let spec = &specs[index];
            let start = starts[starts.len() - 1];
            let elements = spec.local_dims(tp).iter().product::<usize>();
            let chunks = local_chunks(spec, plan);
            let chunk_elements = elements / chunks;
            for chunk in 0..chunks {
                let from = start + chunk * chunk_elements;
                let to = from + chunk_elements;
                if from < to {
                    norm_chunks.push(NormChunk {
                        spec: index,
                        number: chunk,
                        elements: from..to,
                    });
                }
            }
            starts.push(start + elements);
        }
        let len = starts[starts.len() - 1];
        // the border nearest to an even share, of those between blocks
        let mut cuts = vec![0];
        for rank in 1..dp {
            let wanted = len * rank / dp;
            let after = norm_chunks.partition_point(|chunk| chunk.elements.end < wanted);
            let border = norm_chunks.get(after);
            let border = border.map_or(len, |chunk| chunk.nearest_border(wanted));
            cuts.push(border.max(cuts[cuts.len() - 1]));
        }
        cuts.push(len);
        let is_frozen = specs[range.start].is_frozen;
        if is_frozen {
            norm_chunks.clear();
        }
        Unit {
            is_frozen,
            specs: range,
            starts,
            chunks: norm_chunks,
            cuts,
            experts,
        }
    }

    /// True if only ranks with the same experts have it.
    pub(crate) fn is_experts(&self) -> bool {
        self.experts.is_some()
    }

    /// True if a data-parallel rank has the unit.
    pub(crate) fn is_of(&self, dp_rank: usize) -> bool {
        self.experts.is_none_or(|(rank, ep)| dp_rank % ep == rank)
    }

    /// Ranks that share out its weights and moments, by member.
    pub(crate) fn group<'g>(&self, groups: &'g Groups) -> &'g dyn Collective {
        if self.is_experts() {
            groups.expert_dp.as_ref()
        } else {
            groups.dp.as_ref()
        }
    }

    /// Data-parallel ranks that have it.
    pub(crate) fn members(&self) -> usize {
        self.cuts.len() - 1
    }

    /// Its number among those that have it.
    pub(crate) fn member(&self, dp_rank: usize) -> usize {
        dp_rank / self.experts.map_or(1, |(_, ep)| ep)
    }

    pub(crate) fn len(&self) -> usize {
        self.starts[self.starts.len() - 1]
    }

    /// First flat element of a tensor of this unit.
    pub(crate) fn start_of(&self, spec: usize) -> usize {
        self.starts[spec - self.specs.start]
    }

    /// Flat elements of a data-parallel rank's shard.
    pub(crate) fn shard(&self, dp_rank: usize) -> Range<usize> {
        self.shard_of_member(self.member(dp_rank))
    }

    /// Flat elements of a shard by number among the ranks that have the unit.
    pub(crate) fn shard_of_member(&self, member: usize) -> Range<usize> {
        self.cuts[member]..self.cuts[member + 1]
    }

    /// Lengths of the shards of `members` ranks.
    pub(crate) fn lens(&self, members: usize) -> Vec<usize> {
        let all = 0..members;
        all.map(|member| self.shard_of_member(member).len())
            .collect()
    }

    /// Flat elements in tensors, in order.
    pub(crate) fn pieces(&self, flat: Range<usize>) -> impl Iterator<Item = Piece> + '_ {
        let tensors = self.specs.clone().zip(self.starts.windows(2));
        tensors.filter_map(move |(spec, ends)| {
            let (from, to) = (flat.start.max(ends[0]), flat.end.min(ends[1]));
            (from < to).then(|| Piece {
                spec,
                local: from - ends[0]..to - ends[0],
                at: from,
            })
        })
    }

    /// Blocks of squares within a shard: (tensor, chunk of it, flat elements).
    pub(crate) fn blocks(
        &self,
        dp_rank: usize,
    ) -> impl Iterator<Item = (usize, usize, Range<usize>)> + '_ {
        let shard = self.shard(dp_rank);
        self.chunks.iter().flat_map(move |chunk| {
            let blocks = chunk.blocks(&shard);
            blocks.map(|block| (chunk.spec, chunk.number, block))
        })
    }
}

/// Chunks of a tensor's share whose squares are added on their own. Split tensors have
/// FEATURE_CHUNKS over all ranks (in layout mode), so that a rank has whole chunks; those that these do not divide, as the
/// sinks of a few heads, have a chunk per row.
fn local_chunks(spec: &Spec, plan: &Plan) -> usize {
    if !spec.is_split || !plan.sum_order().is_tree() {
        return 1;
    }
    let chunks = match (spec.rows() * spec.row_elements()).is_multiple_of(FEATURE_CHUNKS) {
        true => FEATURE_CHUNKS,
        false => spec.rows(),
    };
    chunks / plan.parallel.tp
}

/// A unit that a rank has a share of.
#[derive(Clone, Debug)]
pub(crate) struct Local {
    /// Index into `Shards::units`.
    pub unit: usize,
    /// Slots of its tensors.
    pub slots: Range<Slot>,
}

/// All units of the model in the order of the list of tensors.
#[derive(Debug)]
pub(crate) struct Shards {
    pub units: Vec<Unit>,
    pub zero: u8,
}

impl Shards {
    pub(crate) fn of(plan: &Plan, specs: &[Spec]) -> Shards {
        let mut units = Vec::new();
        let mut start = 0;
        for run in specs.chunk_by(|a, b| a.unit == b.unit) {
            units.push(Unit::of(specs, start..start + run.len(), plan));
            start += run.len();
        }
        Shards {
            units,
            zero: plan.parallel.zero,
        }
    }

    /// Unit of a tensor of the model.
    pub(crate) fn unit_of(&self, spec: usize) -> usize {
        self.units.partition_point(|unit| unit.specs.end <= spec)
    }

    /// Flat elements whose moments a data-parallel rank keeps and whose weights it updates.
    pub(crate) fn moments(&self, unit: usize, dp_rank: usize) -> Range<usize> {
        if self.units[unit].is_frozen {
            return 0..0;
        }
        self.held(unit, dp_rank, 1)
    }

    /// Flat elements of which it keeps the weights between uses.
    pub(crate) fn weights(&self, unit: usize, dp_rank: usize) -> Range<usize> {
        self.held(unit, dp_rank, 3)
    }

    fn held(&self, unit: usize, dp_rank: usize, from_zero: u8) -> Range<usize> {
        let unit = &self.units[unit];
        if self.zero >= from_zero {
            unit.shard(dp_rank)
        } else {
            0..unit.len()
        }
    }

    /// Units on a rank, in slot order.
    pub(crate) fn on(&self, place: &RankCoord, specs: &[Spec]) -> Vec<Local> {
        let mut first = 0;
        let mut found = Vec::new();
        for (unit, layout) in self.units.iter().enumerate() {
            if specs[layout.specs.start].is_on(place) {
                let slots = first..first + layout.specs.len();
                first = slots.end;
                found.push(Local { unit, slots });
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{tiny_gpt, tiny_llama};
    use crate::model::param::specs;

    #[test]
    fn shards_cover_every_element_once_and_are_about_even() {
        for mut plan in [tiny_gpt(), tiny_llama()] {
            plan.model.d_model = 256;
            for (tp, dp) in [(1, 1), (2, 3), (4, 8), (1, 7)] {
                (plan.parallel.tp, plan.parallel.dp) = (tp, dp);
                let specs = specs(&plan);
                let shards = Shards::of(&plan, &specs);
                for unit in &shards.units {
                    let mut covered = 0;
                    for dp_rank in 0..dp {
                        let shard = unit.shard(dp_rank);
                        assert_eq!(shard.start, covered);
                        covered = shard.end;
                        let pieces: usize = unit.pieces(shard.clone()).map(|p| p.local.len()).sum();
                        assert_eq!(pieces, shard.len());
                        let blocks: usize = unit.blocks(dp_rank).map(|(_, _, b)| b.len()).sum();
                        assert_eq!(blocks, shard.len(), "whole blocks only");
                        assert!(shard.len() <= unit.len() / dp + NORM_BLOCK + 1);
                    }
                    assert_eq!(covered, unit.len());
                }
            }
        }
    }

    /// Borders and blocks against a list of all blocks.
    #[test]
    fn borders_are_the_nearest_ones_between_blocks() {
        let (odd, even) = (3 * NORM_BLOCK + 17, 2 * NORM_BLOCK);
        for elements in [5..5 + odd, 0..even, 7..8, 9..9 + NORM_BLOCK] {
            let chunk = NormChunk {
                spec: 0,
                number: 0,
                elements: elements.clone(),
            };
            let blocks: Vec<_> = chunk.blocks(&(0..usize::MAX)).collect();
            assert_eq!(blocks[0].start, elements.start);
            assert_eq!(blocks[blocks.len() - 1].end, elements.end);
            for wanted in elements.start..=elements.end {
                let of = blocks.iter().find(|block| block.end >= wanted).unwrap();
                let border = match wanted.abs_diff(of.start) <= wanted.abs_diff(of.end) {
                    true => of.start,
                    false => of.end,
                };
                assert_eq!(chunk.nearest_border(wanted), border, "{wanted}");
            }
        }
    }

    #[test]
    fn a_tied_copy_is_cut_like_the_embedding() {
        let mut plan = tiny_gpt();
        (plan.parallel.pp, plan.parallel.dp) = (2, 3);
        let specs = specs(&plan);
        let shards = Shards::of(&plan, &specs);
        let on = |pp_rank| {
            let place = RankCoord {
                pp: 2,
                pp_rank,
                ..RankCoord::single()
            };
            shards.on(&place, &specs)
        };
        let [first, last] = [0, 1].map(on);
        assert_eq!((first[0].unit, last[0].unit), (0, 0));
        assert_eq!(shards.units[0].specs.len(), 1, "the embedding alone");
    }
}
