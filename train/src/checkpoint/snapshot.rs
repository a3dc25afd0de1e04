//! Contents of a checkpoint, and which rank contributes which part of it.
//!
//! A file is a sequence of lists (weights; first and second moments), a list is every tensor of the model, and a
//! tensor is the shares of its owners in order. Each rank copies its own shares in that order and goes on with the
//! next step; the copies of all ranks make up the files. For the last checkpoint, after which no step follows, a
//! rank copies a share only when the previous one was consumed.

use std::ops::Range;
use std::sync::mpsc::sync_channel;

use kernels::{Tensor, View};

use crate::checkpoint::{EMA, MODEL, OPTIMIZER};
use crate::config::plan::Plan;
use crate::dist::mesh::RankCoord;
use crate::model::param::Spec;
use crate::optim::rank_state::RankState;
use crate::parallel::shards::{Local, Shards};

/// One value per element that a checkpoint stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Weights,
    /// AdamW's mean of gradients, Muon's momentum.
    First,
    /// AdamW's mean of squared gradients.
    Second,
    /// Running average of the weights.
    Average,
}

impl Kind {
    /// Whether this kind is kept for a tensor.
    pub(crate) fn is_of(self, spec: &Spec) -> bool {
        match self {
            Kind::Weights => true,
            Kind::First | Kind::Average => !spec.is_frozen,
            Kind::Second => !spec.is_frozen && !spec.is_muon,
        }
    }

    /// Flat elements of a unit that a data-parallel rank holds.
    fn held(self, shards: &Shards, unit: usize, dp_rank: usize) -> Range<usize> {
        match self {
            Kind::Weights => shards.weights(unit, dp_rank),
            Kind::First | Kind::Second | Kind::Average => shards.moments(unit, dp_rank),
        }
    }

    /// Whether data-parallel ranks hold shards (ZeRO), not replicas.
    fn is_cut(self, shards: &Shards) -> bool {
        match self {
            Kind::Weights => shards.zero >= 3,
            Kind::First | Kind::Second | Kind::Average => shards.zero >= 1,
        }
    }
}

/// One file: for each list every tensor under `<name><suffix>`.
pub(crate) struct FileOf {
    pub name: &'static str,
    pub lists: &'static [(&'static str, Kind)],
}

const FILES: [FileOf; 3] = [
    FileOf {
        name: MODEL,
        lists: &[("", Kind::Weights)],
    },
    FileOf {
        name: OPTIMIZER,
        lists: &[(".m", Kind::First), (".v", Kind::Second)],
    },
    FileOf {
        name: EMA,
        lists: &[("", Kind::Average)],
    },
];

/// The file of weights alone.
pub(crate) fn weights_alone() -> &'static [FileOf] {
    &FILES[..1]
}

/// The files of tensors of a run's checkpoints, in order.
pub(crate) fn files(plan: &Plan) -> &'static [FileOf] {
    if plan.train.ema_decay > 0.0 {
        &FILES
    } else {
        &FILES[..2]
    }
}

/// An iterator over one rank's shares of all files, in order, each in one part or more; empty by default.
pub(crate) struct Pieces(Box<dyn Iterator<Item = Vec<f32>> + Send>);

impl Pieces {
    pub(crate) fn of(pieces: impl Iterator<Item = Vec<f32>> + Send + 'static) -> Pieces {
        Pieces(Box::new(pieces))
    }
}

impl Default for Pieces {
    fn default() -> Pieces {
        Pieces::of(std::iter::empty())
    }
}

impl Iterator for Pieces {
    type Item = Vec<f32>;

    fn next(&mut self) -> Option<Vec<f32>> {
        self.0.next()
    }
}

/// World ranks that hold parts of tensor `spec`, in order, with the elements of the tensor's share
/// that each has. Replicas contribute nothing.
pub(crate) fn owners(
    (specs, shards): (&[Spec], &Shards),
    place: &RankCoord,
    kind: Kind,
    spec: usize,
) -> Vec<(usize, Range<usize>)> {
    let (tensor, at) = (&specs[spec], shards.unit_of(spec));
    if !kind.is_of(tensor) {
        return Vec::new();
    }
    let shares = if tensor.is_split { place.tp } else { 1 };
    let mut owners = Vec::new();
    for tp_rank in 0..shares {
        for dp_rank in (0..place.dp).filter(|&rank| shards.units[at].is_of(rank)) {
            let owner = RankCoord {
                tp_rank,
                dp_rank,
                cp_rank: 0,
                pp_rank: tensor.owner(place.pp),
                ..*place
            };
            let held = kind.held(shards, at, dp_rank);
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

/// One rank's share of one tensor.
pub(crate) struct Share {
    /// Name of the file, and suffix of the tensor's name in it.
    pub file: &'static str,
    pub suffix: &'static str,
    pub kind: Kind,
    /// Index into the model's list of tensors.
    pub spec: usize,
    /// Elements of the rank's share of the tensor.
    pub local: Range<usize>,
}

/// A rank with the units that it has.
#[derive(Clone, Copy)]
pub(crate) struct UnitsOnRank<'a> {
    pub place: &'a RankCoord,
    pub specs: &'a [Spec],
    pub shards: &'a Shards,
    /// In slot order.
    pub local: &'a [Local],
}

/// Every share that a rank contributes to these files, in order.
pub(crate) fn shares(
    files: &'static [FileOf],
    (specs, shards): (&[Spec], &Shards),
    place: &RankCoord,
) -> Vec<Share> {
    let local = shards.on(place, specs);
    let on = UnitsOnRank {
        place,
        specs,
        shards,
        local: &local,
    };
    shares_on(files, on)
}

/// The same without a look at other ranks: the shares of which `owners` names this one.
pub(crate) fn shares_on(files: &'static [FileOf], on: UnitsOnRank<'_>) -> Vec<Share> {
    let (place, shards) = (on.place, on.shards);
    let mut shares = Vec::new();
    if place.cp_rank > 0 {
        return shares;
    }
    for file in files {
        for &(suffix, kind) in file.lists {
            for &Local { unit, .. } in on.local {
                let held = kind.held(shards, unit, place.dp_rank);
                // of replicas the first one contributes
                let is_first = shards.units[unit].member(place.dp_rank) == 0;
                if !is_first && !kind.is_cut(shards) {
                    continue;
                }
                let mine = shards.units[unit].pieces(held).filter(|piece| {
                    let spec = &on.specs[piece.spec];
                    let is_first = spec.is_split || place.tp_rank == 0;
                    kind.is_of(spec) && is_first && spec.owner(place.pp) == place.pp_rank
                });
                shares.extend(mine.map(|piece| Share {
                    file: file.name,
                    suffix,
                    kind,
                    spec: piece.spec,
                    local: piece.local,
                }));
            }
        }
    }
    shares
}

/// The state of a rank, and the weights that it borrows.
#[derive(Clone, Copy)]
pub(crate) struct Whole<'a> {
    pub state: &'a RankState<'a>,
    /// Those that the lender keeps; empty if it borrows none.
    pub lent: &'a [Tensor],
}

impl<'a> Whole<'a> {
    /// Of a state that borrows no weights.
    pub(crate) fn own(state: &'a RankState<'_>) -> Whole<'a> {
        Whole { state, lent: &[] }
    }
}

/// Copies of this rank's shares.
pub(crate) fn take(of: Whole<'_>) -> kernels::Result<Pieces> {
    let copies = of_trainer(of.state)
        .into_iter()
        .map(|share| copy(of, &share));
    let copies = copies.collect::<kernels::Result<Vec<Vec<f32>>>>()?;
    Ok(Pieces::of(copies.into_iter()))
}

/// Passes an iterator over this rank's shares to `give` and copies each share as it is consumed. Returns after the
/// last one, or when the consumer gives up.
pub(crate) fn lend(of: Whole<'_>, give: impl FnOnce(Pieces)) -> kernels::Result<()> {
    let (next, pieces) = sync_channel(0);
    give(Pieces::of(pieces.into_iter()));
    for share in of_trainer(of.state) {
        if next.send(copy(of, &share)?).is_err() {
            break;
        }
    }
    Ok(())
}

fn of_trainer(state: &RankState<'_>) -> Vec<Share> {
    let (place, shards) = (&state.groups.place, &state.local_shards.shards);
    shares(files(&state.plan), (state.specs, shards), place)
}

fn copy(of: Whole<'_>, share: &Share) -> kernels::Result<Vec<f32>> {
    values(of, share.kind, share.spec, &share.local)?.download()
}

/// Elements of each copy that a rank makes, in order.
pub(crate) fn lengths(plan: &Plan, of: (&[Spec], &Shards), place: &RankCoord) -> Vec<usize> {
    let shares = shares(files(plan), of, place).into_iter();
    shares.map(|share| share.local.len()).collect()
}

/// Bytes of a rank's copies that exist at once: all of them; if only the end is saved, one that waits and one that
/// is being written.
pub(crate) fn bytes(plan: &Plan, lengths: &[usize]) -> usize {
    4 * match plan.train.checkpoint.every {
        0 => 2 * lengths.iter().max().copied().unwrap_or(0),
        _ => lengths.iter().sum(),
    }
}

/// The elements of this rank's share.
fn values<'a>(
    Whole { state, lent }: Whole<'a>,
    kind: Kind,
    spec: usize,
    local: &Range<usize>,
) -> kernels::Result<View<'a>> {
    let local_shards = &state.local_shards;
    let unit = local_shards.shards.unit_of(spec);
    let index = (local_shards
        .local
        .iter()
        .position(|local| local.unit == unit))
    .expect("an owner has the tensor's unit");
    let start = local_shards.shards.units[unit].start_of(spec) + local.start;
    let (flat, at) = match kind {
        Kind::Weights => {
            let kept = match state.borrows(index) {
                true => lent,
                false => state.kept(),
            };
            if !local_shards.has_weight_shards() {
                return kept[local_shards.slot(index, spec)].flat(local.clone());
            }
            (&kept[index], start - local_shards.weights(index).start)
        }
        Kind::First => (
            &state.moments.m[index],
            start - local_shards.moments(index).start,
        ),
        Kind::Second => (
            &state.moments.v[index],
            local_shards.second_at(index, state.specs, start),
        ),
        Kind::Average => (
            &state.averages[index],
            start - local_shards.moments(index).start,
        ),
    };
    flat.flat(at..at + local.len())
}
