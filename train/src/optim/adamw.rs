//! AdamW with decoupled weight decay, as torch.optim.AdamW.
//! Paper: Loshchilov & Hutter 2019, arXiv:1711.05101. Moments start at zero; decay is for matrices.
//! Every element is updated on its own, so any cut into shards gives the same bits.

use kernels::{AdamW, Device, Tensor, adamw};

use crate::config::TrainConfig;
use crate::course::Next;
use crate::model::param::Spec;
use crate::parallel::zero::Holding;

/// First and second moments, flat, by local unit: those of the elements that this rank updates.
pub(crate) struct Moments {
    pub m: Vec<Tensor>,
    pub v: Vec<Tensor>,
}

/// Where the weights are.
pub(crate) struct Store<'a> {
    /// By slot; empty where weights are shared out.
    pub whole: &'a mut [Tensor],
    /// Flat, by local unit; empty where they are not.
    pub shards: &'a mut [Tensor],
}

impl Moments {
    pub(crate) fn zeros(holding: &Holding, device: &Device) -> kernels::Result<Moments> {
        Ok(Moments {
            m: holding.flat_zeros(device)?,
            v: holding.flat_zeros(device)?,
        })
    }

    /// Updates the weights whose moments are here with flat gradients scaled by `factor`.
    pub(crate) fn update(
        &mut self,
        store: Store<'_>,
        gradients: &[Tensor],
        (holding, specs): (&Holding, &[Spec]),
        (config, next, factor): (&TrainConfig, &Next, f32),
    ) {
        for (index, local) in holding.local.iter().enumerate() {
            let flat = holding.moments(index);
            for piece in holding.shards.units[local.unit].pieces(flat.clone()) {
                let has_decay = specs[piece.spec].has_decay();
                let parameters = AdamW {
                    lr: narrow(next.rate),
                    beta1: config.beta1,
                    beta2: config.beta2,
                    eps: config.eps,
                    weight_decay: if has_decay { config.weight_decay } else { 0.0 },
                    grad_scale: factor,
                    step: next.update,
                };
                let at = piece.at - flat.start..piece.at - flat.start + piece.local.len();
                let weights = if holding.has_weight_shards() {
                    &mut store.shards[index].f32_mut()[at.clone()]
                } else {
                    let slot = holding.slot(index, piece.spec);
                    &mut store.whole[slot].f32_mut()[piece.local]
                };
                adamw::step(
                    weights,
                    &gradients[index].f32()[at.clone()],
                    &mut self.m[index].f32_mut()[at.clone()],
                    &mut self.v[index].f32_mut()[at],
                    &parameters,
                );
            }
        }
    }
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "rounds to f32, where weights live"
)]
fn narrow(x: f64) -> f32 {
    x as f32
}
