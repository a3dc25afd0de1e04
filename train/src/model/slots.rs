//! Slots: indices of the tensors on one rank.

use crate::dist::mesh::RankCoord;
use crate::model::param::Spec;

/// Index into the rank's list of weights; the list of gradients has the same order.
pub(crate) type Slot = usize;

/// Names of the tensors on one rank, in slot order.
pub(crate) struct Slots<'a> {
    specs: Vec<&'a Spec>,
    place: RankCoord,
}

impl<'a> Slots<'a> {
    pub(crate) fn on(place: &RankCoord, specs: &'a [Spec]) -> Slots<'a> {
        Slots {
            specs: specs.iter().filter(|spec| spec.is_on(place)).collect(),
            place: *place,
        }
    }

    /// Weights that are used more than once on this rank: slot and number of each use after the first. Their
    /// gradients follow those of all slots, in this order.
    pub(crate) fn further_uses(&self) -> Vec<(Slot, usize)> {
        let all = self.specs.iter().enumerate();
        all.flat_map(|(slot, spec)| {
            let here = self.place;
            let uses = spec.uses.iter().enumerate();
            let uses = uses.filter(move |(_, chunk)| *chunk % here.pp == here.pp_rank);
            uses.skip(1).map(move |(number, _)| (slot, number))
        })
        .collect()
    }

    /// Slot of the gradient for use `number` of a tensor, counted over the whole model. Each use on a rank is
    /// summed separately, so that no layout changes the order of the whole sum.
    pub(crate) fn gradient(&self, name: &str, number: usize) -> Slot {
        let (slot, further) = (self.get(name), self.further_uses());
        let at = further.iter().position(|&use_| use_ == (slot, number));
        at.map_or(slot, |at| self.specs.len() + at)
    }

    /// The tensors on this rank, in slot order.
    pub(crate) fn specs(&self) -> &[&'a Spec] {
        &self.specs
    }

    pub(crate) fn find(&self, name: &str) -> Option<Slot> {
        self.specs.iter().position(|spec| spec.name == name)
    }

    /// Slots whose names start with one of `prefixes`.
    pub(crate) fn starting(&self, prefixes: &[&str]) -> Vec<Slot> {
        let all = self.specs.iter().enumerate();
        let found = all.filter(|(_, spec)| prefixes.iter().any(|p| spec.name.starts_with(p)));
        found.map(|(slot, _)| slot).collect()
    }

    pub(crate) fn get(&self, name: &str) -> Slot {
        self.find(name)
            .expect("the list of tensors and the layers are made from one plan")
    }
}
