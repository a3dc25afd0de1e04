//! What a checkpoint holds and who gives which part of it.
//!
//! A file holds lists (weights; first and second moments), a list every tensor of the model, a tensor
//! the shares of its owners in order. Each rank copies its own shares in that order and goes on with
//! the next step; whoever has the copies of all ranks has the files.

use std::collections::VecDeque;
use std::ops::Range;

use crate::checkpoint::{MODEL, OPTIMIZER};
use crate::mesh::Place;
use crate::model::param::Spec;
use crate::parallel::shards::Shards;
use crate::step::Trainer;

/// What lies beside the elements of a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Weights,
    /// AdamW's mean of gradients.
    First,
    /// AdamW's mean of squared gradients.
    Second,
}

/// One file: for each list every tensor under `<name><suffix>`.
pub(crate) struct FileOf {
    pub name: &'static str,
    pub lists: &'static [(&'static str, Kind)],
}

/// The files of tensors, in order.
pub(crate) const FILES: [FileOf; 2] = [
    FileOf {
        name: MODEL,
        lists: &[("", Kind::Weights)],
    },
    FileOf {
        name: OPTIMIZER,
        lists: &[(".m", Kind::First), (".v", Kind::Second)],
    },
];

/// One rank's shares of all files, in order.
pub(crate) type Pieces = VecDeque<Vec<f32>>;

/// World ranks that hold parts of tensor `spec`, in order, with the elements of the tensor's share
/// that each has. Replicas give nothing.
pub(crate) fn owners(
    (specs, shards): (&[Spec], &Shards),
    place: &Place,
    kind: Kind,
    spec: usize,
) -> Vec<(usize, Range<usize>)> {
    let (tensor, at) = (&specs[spec], shards.unit_of(spec));
    let shares = if tensor.is_split { place.tp } else { 1 };
    let mut owners = Vec::new();
    for tp_rank in 0..shares {
        for dp_rank in (0..place.dp).filter(|&rank| shards.units[at].is_of(rank)) {
            let owner = Place {
                tp_rank,
                dp_rank,
                cp_rank: 0,
                pp_rank: tensor.stage,
                ..*place
            };
            let held = match kind {
                Kind::Weights => shards.weights(at, dp_rank),
                Kind::First | Kind::Second => shards.moments(at, dp_rank),
            };
            let is_all = held.len() == shards.units[at].len();
            let pieces = shards.units[at].pieces(held);
            let piece = pieces.into_iter().find(|piece| piece.spec == spec);
            owners.extend(piece.map(|piece| (owner.rank(), piece.local)));
            if is_all {
                break;
            }
        }
    }
    owners
}

/// Calls `visit` with every share of every tensor of every file that `rank` gives, in order.
fn each_share(
    (specs, shards): (&[Spec], &Shards),
    place: &Place,
    visit: &mut dyn FnMut(Kind, usize, Range<usize>),
) {
    let lists = FILES.iter().flat_map(|file| file.lists);
    for &(_, kind) in lists {
        for spec in 0..specs.len() {
            for (owner, local) in owners((specs, shards), place, kind, spec) {
                if owner == place.rank() {
                    visit(kind, spec, local);
                }
            }
        }
    }
}

/// Copies of this rank's shares.
pub(crate) fn take(trainer: &Trainer<'_>) -> Pieces {
    let (place, shards) = (&trainer.groups.place, &trainer.holding.shards);
    let mut pieces = Pieces::new();
    each_share((trainer.specs, shards), place, &mut |kind, spec, local| {
        pieces.push_back(values(trainer, kind, spec, &local).to_vec());
    });
    pieces
}

/// Bytes of the copies that a rank gives.
pub(crate) fn bytes((specs, shards): (&[Spec], &Shards), place: &Place) -> usize {
    let mut elements = 0;
    each_share((specs, shards), place, &mut |_, _, local| {
        elements += local.len();
    });
    4 * elements
}

/// Numbers of this rank.
fn values<'a>(
    trainer: &'a Trainer<'_>,
    kind: Kind,
    spec: usize,
    local: &Range<usize>,
) -> &'a [f32] {
    let holding = &trainer.holding;
    let unit = holding.shards.unit_of(spec);
    let index = (holding.local.iter().position(|local| local.unit == unit))
        .expect("an owner has the tensor's unit");
    let (flat, held) = match kind {
        Kind::Weights if !holding.has_weight_shards() => {
            return &trainer.weights[holding.slot(index, spec)].f32()[local.clone()];
        }
        Kind::Weights => (&trainer.weight_shards[index], holding.weights(index)),
        Kind::First => (&trainer.moments.m[index], holding.moments(index)),
        Kind::Second => (&trainer.moments.v[index], holding.moments(index)),
    };
    let at = holding.shards.units[unit].start_of(spec) + local.start - held.start;
    &flat.f32()[at..at + local.len()]
}
