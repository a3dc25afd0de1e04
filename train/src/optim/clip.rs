//! Gradient clipping: L2 norm of the whole gradient, and the factor that bounds it.
//! factor = clip / (norm + 1e-6) if below 1 (Megatron, torch.nn.utils.clip_grad_norm_).
//!
//! The sum of squares is an f64 per tensor, chunk of its rows and block of the chunk. A block's is
//! computed by one rank; every rank gathers all of them and adds blocks to chunks and chunks to the
//! total in the order of the tensor list. Which rank has which blocks: parallel/shards.rs.

use kernels::trace::{Kind, Label, span};
use kernels::{Tensor, reduce};

use crate::config::exact::narrow;
use crate::dist::mesh::{Groups, RankCoord};
use crate::model::param::Spec;
use crate::parallel::zero::LocalShards;

/// Sums of squares of this rank's blocks, on the device, as `reduce::squares`. `gradients` are flat, by local unit, of the
/// elements whose moments are here.
pub(crate) fn squares(
    specs: &[Spec],
    gradients: &[Tensor],
    local_shards: &LocalShards,
    place: &RankCoord,
) -> kernels::Result<Option<Tensor>> {
    // one span: blocks are small
    let squares = span(|| Label::new(Kind::Compute, "reduce::sum_squares"));
    let mut blocks = Vec::new();
    for (index, local) in local_shards.local.iter().enumerate() {
        let unit = &local_shards.shards.units[local.unit];
        let first = local_shards.moments(index).start;
        for (spec, _, block) in unit.blocks(place.dp_rank) {
            if counts(&specs[spec], place) {
                blocks.push(gradients[index].flat(block.start - first..block.end - first)?);
            }
        }
    }
    let sums = reduce::squares(&blocks);
    drop(squares);
    sums
}

/// L2 norm over all tensors of the model, of which this rank's sums of squares are `mine`; the same bits on every rank.
pub(crate) fn global_norm(
    specs: &[Spec],
    mine: &[f64],
    local_shards: &LocalShards,
    groups: &Groups,
) -> kernels::Result<f64> {
    let place = groups.place;
    let all = groups.world.all_gather_f64(mine)?;
    let mut next: Vec<std::slice::Iter<'_, f64>> = all.iter().map(|sums| sums.iter()).collect();
    let mut total = 0.0;
    for unit in &local_shards.shards.units {
        for index in unit.specs.clone() {
            let spec = &specs[index];
            let shares = if spec.is_split { place.tp } else { 1 };
            for tp_rank in 0..shares {
                let mut chunk = (usize::MAX, 0.0);
                for dp_rank in (0..place.dp).filter(|&rank| unit.is_of(rank)) {
                    let owner = owner(spec, tp_rank, dp_rank, &place);
                    for (_, number, _) in unit.blocks(dp_rank).filter(|(spec, ..)| *spec == index) {
                        let sum = next[owner].next();
                        let sum =
                            sum.expect("the owner's list has a number for each of its blocks");
                        if chunk.0 != number {
                            total += chunk.1;
                            chunk = (number, 0.0);
                        }
                        chunk.1 += sum;
                    }
                }
                total += chunk.1;
            }
        }
    }
    Ok(total.sqrt())
}

/// True if the blocks that `place` has of a tensor are the ones that count: not those of replicas.
fn counts(spec: &Spec, place: &RankCoord) -> bool {
    spec.owner(place.pp) == place.pp_rank
        && place.cp_rank == 0
        && (spec.is_split || place.tp_rank == 0)
}

/// World rank whose blocks of a tensor count.
fn owner(spec: &Spec, tp_rank: usize, dp_rank: usize, place: &RankCoord) -> usize {
    let owner = RankCoord {
        tp_rank,
        dp_rank,
        cp_rank: 0,
        pp_rank: spec.owner(place.pp),
        ..*place
    };
    owner.rank()
}

/// Factor on the gradients; 1 if `clip` is 0 or the norm is within it.
pub(crate) fn factor(norm: f64, clip: f64) -> f32 {
    let factor = clip / (norm + 1e-6);
    if clip > 0.0 && factor < 1.0 {
        narrow(factor)
    } else {
        1.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn factor_bounds_the_norm_and_never_amplifies() {
        assert_eq!(factor(0.5, 1.0), 1.0);
        assert_eq!(factor(100.0, 0.0), 1.0);
        assert!((f64::from(factor(4.0, 1.0)) * 4.0 - 1.0).abs() < 1e-6);
    }
}
