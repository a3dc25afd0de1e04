//! ZeRO sharding of weights. ZeRO-3: kept as flat shards, all-gathered by unit for the layer that runs and dropped
//! after. ZeRO-1 and 2: each rank updates a part of the weights, all-gathered after the step. Paper: Rajbhandari et
//! al. 2020, arXiv:1910.02054, sec. 5.

use std::ops::Range;

use kernels::comm::tensors::{self, Part};
use kernels::{DType, Device, Mark, Stream, Tensor, Use};

use crate::dist::mesh::{Groups, RankCoord};
use crate::model::context::Weights;
use crate::model::param::Spec;
use crate::model::prepacked::PrepackedWeights;
use crate::model::slots::Slot;
use crate::parallel::shards::{Local, Shards};

/// A rank's shards, derived from the plan alone.
pub(crate) struct LocalShards {
    pub shards: Shards,
    /// Units of this rank's pipeline stage.
    pub local: Vec<Local>,
    pub place: RankCoord,
    /// Dims of each tensor's share, by slot.
    pub dims: Vec<Vec<usize>>,
}

impl LocalShards {
    pub(crate) fn of(shards: Shards, specs: &[Spec], place: &RankCoord) -> LocalShards {
        let here = specs.iter().filter(|spec| spec.is_on(place));
        LocalShards {
            local: shards.on(place, specs),
            dims: here.map(|spec| spec.local_dims(place.tp)).collect(),
            place: *place,
            shards,
        }
    }

    /// Flat elements of local unit `index` whose moments are here.
    pub(crate) fn moments(&self, index: usize) -> Range<usize> {
        let unit = self.local[index].unit;
        self.shards.moments(unit, self.place.dp_rank)
    }

    /// Flat elements of local unit `index` whose weights are here between uses.
    pub(crate) fn weights(&self, index: usize) -> Range<usize> {
        let unit = self.local[index].unit;
        self.shards.weights(unit, self.place.dp_rank)
    }

    pub(crate) fn has_weight_shards(&self) -> bool {
        self.shards.zero >= 3
    }

    /// Slot of tensor `spec` of the model, which belongs to local unit `index`.
    pub(crate) fn slot(&self, index: usize, spec: usize) -> Slot {
        let local = &self.local[index];
        local.slots.start + spec - self.shards.units[local.unit].specs.start
    }

    /// Number of second moments of local unit `index` before flat element `at`: only elements that Muon does not
    /// update have one.
    pub(crate) fn second_at(&self, index: usize, specs: &[Spec], at: usize) -> usize {
        let unit = &self.shards.units[self.local[index].unit];
        let before = unit.pieces(self.moments(index).start..at);
        before
            .filter(|piece| !specs[piece.spec].is_muon)
            .map(|piece| piece.local.len())
            .sum()
    }

    /// Zeros, one flat tensor per local unit, shaped like the moments.
    pub(crate) fn flat_zeros(&self, device: &Device) -> kernels::Result<Vec<Tensor>> {
        let units = 0..self.local.len();
        // a shard may be empty, a tensor not
        units
            .map(|index| Tensor::zeros(&[self.moments(index).len().max(1)], DType::F32, device))
            .collect()
    }

    /// All-gathers weights that each rank updated in part.
    pub(crate) fn gather_updated(
        &self,
        weights: &mut [Tensor],
        groups: &Groups,
    ) -> kernels::Result<()> {
        if self.shards.zero == 0 || self.shards.zero >= 3 || groups.dp.size() == 1 {
            return Ok(());
        }
        let moments = (0..self.local.len()).map(|index| self.moments(index).len());
        let most = moments.max().unwrap_or(0).max(1);
        let Some(first) = weights.first() else {
            return Ok(());
        };
        let device = first.device().for_use(Use::Work);
        let mut mine = Tensor::empty(&[most], DType::F32, &device)?;
        for (index, local) in self.local.iter().enumerate() {
            let unit = &self.shards.units[local.unit];
            if unit.is_frozen {
                continue;
            }
            let held = self.moments(index);
            for piece in unit.pieces(held.clone()) {
                let slot = self.slot(index, piece.spec);
                let at = piece.at - held.start;
                let to = mine.flat_mut(at..at + piece.local.len())?;
                kernels::copy(to, weights[slot].flat(piece.local)?)?;
            }
            let group = unit.group(groups);
            let here = group.rank();
            let mut targets: Vec<&mut Tensor> = weights[local.slots.clone()].iter_mut().collect();
            let mine = mine.flat(0..held.len())?;
            let lens = unit.lens(group.size());
            tensors::all_gather(group, mine, &lens, &mut targets, |member, range| {
                // its own part is already in place
                let is_own = member == here;
                let range = if is_own { 0..0 } else { range };
                self.places(index, member, range)
            })?;
        }
        Ok(())
    }

    /// Where elements of a member's shard of local unit `index` are in the unit's tensors.
    fn places(&self, index: usize, member: usize, elements: Range<usize>) -> Vec<Part> {
        let unit = &self.shards.units[self.local[index].unit];
        let first = unit.shard_of_member(member).start;
        let pieces = unit.pieces(first + elements.start..first + elements.end);
        let places = pieces.map(|piece| Part {
            from: piece.at - first..piece.at - first + piece.local.len(),
            target: piece.spec - unit.specs.start,
            at: piece.local.start,
        });
        places.collect()
    }
}

/// Source of a layer's weights.
#[derive(Clone, Copy)]
pub(crate) enum Parameters<'a> {
    /// All weights are on this rank, perhaps with prepacked copies.
    Whole(&'a [Tensor], Option<&'a PrepackedWeights>),
    /// The same, of several owners.
    Shared(&'a [&'a Tensor], Option<&'a PrepackedWeights>),
    /// Each data-parallel rank has shards, by local unit, perhaps of several owners.
    Shards {
        shards: &'a [&'a Tensor],
        local_shards: &'a LocalShards,
        groups: &'a Groups,
        device: &'a Device,
    },
}

/// Weights available while a layer runs.
pub(crate) enum GatheredParameters<'a> {
    All(&'a [Tensor], Option<&'a PrepackedWeights>),
    Shared(&'a [&'a Tensor], Option<&'a PrepackedWeights>),
    Gathered(Vec<Option<Tensor>>),
}

impl GatheredParameters<'_> {
    pub(crate) fn weights(&self) -> Weights<'_> {
        match self {
            GatheredParameters::All(tensors, packs) => Weights::All(tensors, *packs),
            GatheredParameters::Shared(tensors, packs) => Weights::Shared(tensors, *packs),
            GatheredParameters::Gathered(tensors) => Weights::Gathered(tensors),
        }
    }
}

/// Weights that are being gathered on a stream of their own.
pub(crate) struct Ahead<'a> {
    weights: GatheredParameters<'a>,
    device: &'a Device,
    gathered: Mark,
}

impl<'a> Parameters<'a> {
    /// Starts to gather the weights of a later layer beside the computation that follows, on a GPU: all-gather
    /// prefetch, one layer ahead (Zhao et al. 2023, arXiv:2304.11277, sec. 3.3.2). None where nothing is gathered, or
    /// the host would wait for it.
    pub(crate) fn prefetch(&self, slots: &[Slot]) -> kernels::Result<Option<Ahead<'a>>> {
        match *self {
            Parameters::Shards { device, groups, .. }
                if !device.is_host() && groups.dp.between_gpus().is_some() =>
            {
                let _on = device.enter(Stream::Weights);
                Ok(Some(Ahead {
                    weights: self.gather(slots)?,
                    gathered: device.mark()?,
                    device,
                }))
            }
            _ => Ok(None),
        }
    }

    /// The weights of some slots, which `ahead` has if it was started for them.
    pub(crate) fn ready(
        &self,
        slots: &[Slot],
        ahead: Option<Ahead<'a>>,
    ) -> kernels::Result<GatheredParameters<'a>> {
        let Some(ahead) = ahead else {
            return self.gather(slots);
        };
        ahead.device.wait(&ahead.gathered)?;
        Ok(ahead.weights)
    }

    /// All-gathers the weights of some slots; every data-parallel rank must make the same call at the same time.
    pub(crate) fn gather(&self, slots: &[Slot]) -> kernels::Result<GatheredParameters<'a>> {
        match *self {
            Parameters::Whole(tensors, packs) => Ok(GatheredParameters::All(tensors, packs)),
            Parameters::Shared(tensors, packs) => Ok(GatheredParameters::Shared(tensors, packs)),
            Parameters::Shards {
                shards,
                local_shards,
                groups,
                device,
            } => {
                let device = &device.for_use(Use::Weights);
                let mut whole: Vec<Option<Tensor>> =
                    local_shards.dims.iter().map(|_| None).collect();
                for (index, local) in local_shards.local.iter().enumerate() {
                    if !slots.contains(&local.slots.start) {
                        continue;
                    }
                    for slot in local.slots.clone() {
                        let tensor = Tensor::empty(&local_shards.dims[slot], DType::F32, device)?;
                        whole[slot] = Some(tensor);
                    }
                    let unit = &local_shards.shards.units[local.unit];
                    let mine = shards[index].flat(0..local_shards.weights(index).len())?;
                    let targets = whole[local.slots.clone()].iter_mut().flatten();
                    let mut targets: Vec<&mut Tensor> = targets.collect();
                    let places = |member, range| local_shards.places(index, member, range);
                    let group = unit.group(groups);
                    let lens = unit.lens(group.size());
                    tensors::all_gather(group, mine, &lens, &mut targets, places)?;
                }
                Ok(GatheredParameters::Gathered(whole))
            }
        }
    }
}
