//! Auxiliary-loss-free load balancing: each step moves an expert's selection bias up by `rate` if fewer tokens than
//! the mean chose it, down if more. A step that changes no weights moves no bias.
//! Paper: Wang et al. 2024, arXiv:2408.15664; rule as megatron-core's `get_updated_expert_bias`. Whether a load is below
//! the mean is decided in integers here, in f32 there.

use kernels::{Tensor, rows};

use crate::model::param::Spec;
use crate::optim::adamw::Store;
use crate::parallel::routing::Load;
use crate::parallel::zero::LocalShards;

/// Moves the biases whose moments are here; `loads` are those of the whole step.
pub(crate) fn update(
    store: &mut Store<'_>,
    (local_shards, specs): (&LocalShards, &[Spec]),
    loads: &[Load],
    rate: f32,
) -> kernels::Result<()> {
    for (index, local) in local_shards.local.iter().enumerate() {
        let unit = &local_shards.shards.units[local.unit];
        for piece in unit.pieces(local_shards.moments(index)) {
            let layer = specs[piece.spec].router_bias;
            let load = loads.iter().find(|load| Some(load.layer) == layer);
            let Some(load) = load else { continue };
            let part = &load.tokens[piece.local.clone()];
            let steps = part
                .iter()
                .map(|&tokens| rate * direction(tokens, &load.tokens));
            let steps: Vec<f32> = steps.collect();
            let biases = store.piece(local_shards, index, &piece)?;
            let steps = Tensor::from_f32(&[steps.len()], &steps, biases.device())?;
            rows::add(biases, steps.view())?;
        }
    }
    Ok(())
}

/// 1 for a load below the mean of all, -1 for one above, 0 for the mean.
fn direction(tokens: u64, all: &[u64]) -> f32 {
    let sum: u128 = all.iter().map(|&tokens| u128::from(tokens)).sum();
    match sum.cmp(&(u128::from(tokens) * all.len() as u128)) {
        std::cmp::Ordering::Greater => 1.0,
        std::cmp::Ordering::Equal => 0.0,
        std::cmp::Ordering::Less => -1.0,
    }
}
