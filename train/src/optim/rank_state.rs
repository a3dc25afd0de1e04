//! Weights and optimizer state of one rank.

use std::borrow::Cow;
use std::sync::Arc;

use kernels::{DType, Device, Tensor, Use};

use crate::config::plan::Plan;
use crate::dist::mesh::Groups;
use crate::error::{OnRank, Result};
use crate::model::fp8_delayed::Delayed;
use crate::model::param::Spec;
use crate::optim::adamw::{Moments, Store};
use crate::optim::average;
use crate::parallel::shards::Shards;
use crate::parallel::zero::LocalShards;

/// Whose the frozen weights of a training are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FrozenWeights {
    /// Its own alone.
    Own,
    /// Its own, which other trainings on this rank read as well.
    Lent,
    /// Those of another training on this rank.
    Borrowed,
}

impl FrozenWeights {
    /// Those of the training with this number, of `count` on one base.
    pub(crate) fn of(number: usize, count: usize) -> FrozenWeights {
        match (count, number) {
            (1, _) => FrozenWeights::Own,
            (_, 0) => FrozenWeights::Lent,
            _ => FrozenWeights::Borrowed,
        }
    }
}

/// Everything of a rank that a checkpoint stores, and the rank's place in the run.
pub(crate) struct RankState<'a> {
    /// With the global batch of the last step.
    pub plan: Cow<'a, Plan>,
    /// Tensors of the whole model.
    pub specs: &'a [Spec],
    pub groups: Arc<Groups>,
    pub device: Device,
    /// The elements that this rank holds.
    pub local_shards: LocalShards,
    pub frozen: FrozenWeights,
    /// In slot order; empty where weights are shared out. One number stands for each borrowed tensor.
    pub weights: Vec<Tensor>,
    /// Flat shards by local unit; empty where they are not. One number stands for each borrowed shard.
    pub weight_shards: Vec<Tensor>,
    pub moments: Moments,
    /// Running averages of the weights, flat, by local unit, where the moments are; empty without.
    pub averages: Vec<Tensor>,
    /// Scales of fp8's `delayed` recipe, of the whole model.
    pub delayed: Option<Delayed>,
}

impl<'a> RankState<'a> {
    /// With initial weights; without those that it borrows.
    pub(crate) fn new(
        plan: &'a Plan,
        specs: &'a [Spec],
        (groups, device): (Arc<Groups>, Device),
        frozen: FrozenWeights,
    ) -> Result<RankState<'a>> {
        let (place, rank) = (groups.place, groups.place.rank());
        let local_shards = LocalShards::of(Shards::of(plan, specs), specs, &place);
        let moments = Moments::zeros(&local_shards, specs, &device.for_use(Use::Optimizer))
            .on_rank(rank, "allocate moments")?;
        let mut state = RankState {
            plan: Cow::Borrowed(plan),
            specs,
            groups,
            device,
            local_shards,
            frozen,
            weights: Vec::new(),
            weight_shards: Vec::new(),
            moments,
            averages: Vec::new(),
            delayed: Delayed::of(plan, specs, &place),
        };
        state.initialise().on_rank(rank, "initialise weights")?;
        let averaged = state.start_averages();
        averaged.on_rank(rank, "allocate averages")?;
        Ok(state)
    }

    /// Unit by unit, so that sharded weights are never all whole.
    fn initialise(&mut self) -> kernels::Result<()> {
        let (place, seed) = (self.groups.place, self.plan.seed);
        let device = self.device.for_use(Use::Weights);
        for (index, local) in self.local_shards.local.iter().enumerate() {
            let unit = &self.local_shards.shards.units[local.unit];
            let specs = &self.specs[unit.specs.clone()];
            if self.borrows(index) {
                let (to, count) = match self.local_shards.has_weight_shards() {
                    true => (&mut self.weight_shards, 1),
                    false => (&mut self.weights, specs.len()),
                };
                for _ in 0..count {
                    to.push(Tensor::zeros(&[1], DType::F32, &device)?);
                }
                continue;
            }
            let whole = specs.iter().map(|spec| spec.initial(seed, &place, &device));
            let whole: Vec<Tensor> = whole.collect::<kernels::Result<_>>()?;
            if self.local_shards.has_weight_shards() {
                let held = self.local_shards.weights(index);
                let mut shard = Tensor::zeros(&[held.len().max(1)], DType::F32, &device)?;
                for piece in unit.pieces(held.clone()) {
                    let from = whole[piece.spec - unit.specs.start].flat(piece.local)?;
                    let at = piece.at - held.start;
                    kernels::copy(shard.flat_mut(at..at + from.len())?, from)?;
                }
                self.weight_shards.push(shard);
            } else {
                self.weights.extend(whole);
            }
        }
        Ok(())
    }

    /// Averages start as the weights.
    pub(crate) fn start_averages(&mut self) -> kernels::Result<()> {
        if self.plan.train.ema_decay > 0.0 {
            let device = self.device.for_use(Use::Optimizer);
            self.averages = self.local_shards.flat_zeros(&device)?;
            let mut store = Store {
                whole: &mut self.weights,
                shards: &mut self.weight_shards,
            };
            average::follow(&mut self.averages, &mut store, &self.local_shards, 0.0)?;
        }
        Ok(())
    }

    /// Whether the weights of local unit `index` are those of another training.
    pub(crate) fn borrows(&self, index: usize) -> bool {
        let unit = self.local_shards.local[index].unit;
        self.frozen == FrozenWeights::Borrowed && self.local_shards.shards.units[unit].is_frozen
    }

    /// The weights that stay here between uses: whole tensors in slot order, or flat shards by local unit.
    pub(crate) fn kept(&self) -> &[Tensor] {
        match self.local_shards.has_weight_shards() {
            true => &self.weight_shards,
            false => &self.weights,
        }
    }

    /// The same, of which `lent`, those of the lender, has the borrowed ones.
    pub(crate) fn with_borrowed<'b>(&'b self, lent: &'b [Tensor]) -> Vec<&'b Tensor> {
        let mut all: Vec<&Tensor> = self.kept().iter().collect();
        for (index, local) in self.local_shards.local.iter().enumerate() {
            let places = match self.local_shards.has_weight_shards() {
                true => index..index + 1,
                false => local.slots.clone(),
            };
            for place in places.filter(|_| self.borrows(index)) {
                all[place] = &lent[place];
            }
        }
        all
    }

    /// World rank.
    pub(crate) fn rank(&self) -> usize {
        self.groups.place.rank()
    }
}
