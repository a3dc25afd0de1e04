//! AdamW with decoupled weight decay, as torch.optim.AdamW, and the optimizer state shared with Muon.
//! Paper: Loshchilov & Hutter 2019, arXiv:1711.05101. Moments start at zero; decay is for matrices.
//! Every element is updated on its own, so any cut into shards gives the same bits.

use std::ops::Range;

use kernels::{AdamW, DType, Device, Tensor, ViewMut, adamw};

use crate::config::exact::narrow;
use crate::model::param::Spec;
use crate::optim::next_step::Update;
use crate::parallel::shards::Piece;
use crate::parallel::zero::LocalShards;

/// Moments, flat, by local unit: those of the elements that this rank updates.
pub(crate) struct Moments {
    /// Means of gradients; Muon's momentum.
    pub m: Vec<Tensor>,
    /// Means of squared gradients, without gaps for the matrices that Muon updates.
    pub v: Vec<Tensor>,
}

/// Storage of the weights that an update changes.
pub(crate) struct Store<'a> {
    /// By slot; empty where weights are shared out.
    pub whole: &'a mut [Tensor],
    /// Flat, by local unit; empty where they are not.
    pub shards: &'a mut [Tensor],
}

impl Store<'_> {
    /// The weights of a piece of local unit `index`.
    pub(crate) fn piece(
        &mut self,
        local_shards: &LocalShards,
        index: usize,
        piece: &Piece,
    ) -> kernels::Result<ViewMut<'_>> {
        if local_shards.has_weight_shards() {
            let at = within(&local_shards.weights(index), piece);
            self.shards[index].flat_mut(at)
        } else {
            let slot = local_shards.slot(index, piece.spec);
            self.whole[slot].flat_mut(piece.local.clone())
        }
    }
}

/// Position of a piece within the flat elements of the range `held`.
pub(crate) fn within(held: &Range<usize>, piece: &Piece) -> Range<usize> {
    piece.at - held.start..piece.at - held.start + piece.local.len()
}

impl Moments {
    pub(crate) fn zeros(
        local_shards: &LocalShards,
        specs: &[Spec],
        device: &Device,
    ) -> kernels::Result<Moments> {
        let second = (0..local_shards.local.len()).map(|index| {
            let count = local_shards.second_at(index, specs, local_shards.moments(index).end);
            // a shard may be empty, a tensor not
            Tensor::zeros(&[count.max(1)], DType::F32, device)
        });
        Ok(Moments {
            m: local_shards.flat_zeros(device)?,
            v: second.collect::<kernels::Result<_>>()?,
        })
    }

    /// Updates the weights whose moments are here, but for Muon's, with flat gradients.
    pub(crate) fn update(
        &mut self,
        store: &mut Store<'_>,
        gradients: &[Tensor],
        (local_shards, specs): (&LocalShards, &[Spec]),
        update: Update<'_>,
    ) -> kernels::Result<()> {
        let config = update.config;
        for (index, local) in local_shards.local.iter().enumerate() {
            let flat = local_shards.moments(index);
            let pieces = local_shards.shards.units[local.unit].pieces(flat.clone());
            for piece in pieces.filter(|piece| !specs[piece.spec].is_muon) {
                let has_decay = specs[piece.spec].has_decay();
                let parameters = AdamW {
                    lr: narrow(update.next.rate),
                    beta1: config.beta1,
                    beta2: config.beta2,
                    eps: config.eps,
                    weight_decay: if has_decay { config.weight_decay } else { 0.0 },
                    grad_scale: update.factor,
                    step: update.next.update,
                };
                let at = within(&flat, &piece);
                let second = local_shards.second_at(index, specs, piece.at);
                adamw::step(
                    store.piece(local_shards, index, &piece)?,
                    gradients[index].flat(at.clone())?,
                    adamw::Moments {
                        m: self.m[index].flat_mut(at.clone())?,
                        v: self.v[index].flat_mut(second..second + at.len())?,
                    },
                    &parameters,
                )?;
            }
        }
        Ok(())
    }
}
