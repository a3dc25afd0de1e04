//! Running average of the weights (Polyak & Juditsky 1992): after every update average += (1 - decay)(weight -
//! average), starting from the initial weights. It is sharded like the moments; checkpoints store it as
//! `ema.safetensors`.

use kernels::{Tensor, lerp};

use crate::optim::adamw::{Store, within};
use crate::parallel::zero::LocalShards;

/// Moves the averages towards the weights, all the way if `decay` is 0.
pub(crate) fn follow(
    averages: &mut [Tensor],
    store: &mut Store<'_>,
    local_shards: &LocalShards,
    decay: f32,
) -> kernels::Result<()> {
    for (index, (average, local)) in averages.iter_mut().zip(&local_shards.local).enumerate() {
        let held = local_shards.moments(index);
        for piece in local_shards.shards.units[local.unit].pieces(held.clone()) {
            let average = average.flat_mut(within(&held, &piece))?;
            let weights = store.piece(local_shards, index, &piece)?;
            lerp::towards(average, weights.as_view(), 1.0 - decay)?;
        }
    }
    Ok(())
}
