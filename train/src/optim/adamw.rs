//! AdamW with decoupled weight decay, as torch.optim.AdamW, and what all optimizers keep.
//! Paper: Loshchilov & Hutter 2019, arXiv:1711.05101. Moments start at zero; decay is for matrices.
//! Every element is updated on its own, so any cut into shards gives the same bits.

use std::ops::Range;

use kernels::{AdamW, DType, Device, Tensor, adamw};

use crate::config::TrainConfig;
use crate::course::Next;
use crate::model::param::Spec;
use crate::optim::narrow;
use crate::parallel::shards::Piece;
use crate::parallel::zero::Holding;

/// Moments, flat, by local unit: those of the elements that this rank updates.
pub(crate) struct Moments {
    /// Means of gradients; Muon's momentum.
    pub m: Vec<Tensor>,
    /// Means of squared gradients, of what Muon does not update: without gaps.
    pub v: Vec<Tensor>,
}

/// Where the weights are.
pub(crate) struct Store<'a> {
    /// By slot; empty where weights are shared out.
    pub whole: &'a mut [Tensor],
    /// Flat, by local unit; empty where they are not.
    pub shards: &'a mut [Tensor],
}

impl Store<'_> {
    /// The weights of a piece of local unit `index`.
    pub(crate) fn piece(&mut self, holding: &Holding, index: usize, piece: &Piece) -> &mut [f32] {
        if holding.has_weight_shards() {
            let at = within(&holding.weights(index), piece);
            &mut self.shards[index].f32_mut()[at]
        } else {
            let slot = holding.slot(index, piece.spec);
            &mut self.whole[slot].f32_mut()[piece.local.clone()]
        }
    }
}

/// Where a piece lies in the flat numbers of the range `held`.
pub(crate) fn within(held: &Range<usize>, piece: &Piece) -> Range<usize> {
    piece.at - held.start..piece.at - held.start + piece.local.len()
}

impl Moments {
    pub(crate) fn zeros(
        holding: &Holding,
        specs: &[Spec],
        device: &Device,
    ) -> kernels::Result<Moments> {
        let second = (0..holding.local.len()).map(|index| {
            let count = holding.second_at(index, specs, holding.moments(index).end);
            // a shard may be empty, a tensor not
            Tensor::zeros(&[count.max(1)], DType::F32, device)
        });
        Ok(Moments {
            m: holding.flat_zeros(device)?,
            v: second.collect::<kernels::Result<_>>()?,
        })
    }

    /// Updates the weights whose moments are here, but for Muon's, with flat gradients scaled by
    /// `factor`.
    pub(crate) fn update(
        &mut self,
        store: &mut Store<'_>,
        gradients: &[Tensor],
        (holding, specs): (&Holding, &[Spec]),
        (config, next, factor): (&TrainConfig, &Next, f32),
    ) {
        for (index, local) in holding.local.iter().enumerate() {
            let flat = holding.moments(index);
            let pieces = holding.shards.units[local.unit].pieces(flat.clone());
            for piece in pieces.filter(|piece| !specs[piece.spec].is_muon) {
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
                let at = within(&flat, &piece);
                let second = holding.second_at(index, specs, piece.at);
                adamw::step(
                    gradients[index].device(),
                    store.piece(holding, index, &piece),
                    &gradients[index].f32()[at.clone()],
                    adamw::Moments {
                        m: &mut self.m[index].f32_mut()[at.clone()],
                        v: &mut self.v[index].f32_mut()[second..second + at.len()],
                    },
                    &parameters,
                );
            }
        }
    }
}
