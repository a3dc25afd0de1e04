//! Writing a checkpoint so that a kill at any instant leaves either all of it or nothing.
//!
//! Tensor by tensor, the ranks that own parts send them to rank 0, which streams them into files
//! under `.step-NNNNNNNN.partial`; files and folder are synced, the folder is renamed, the parent
//! is synced. Folders to be dropped are renamed to hidden names first, so that a half-deleted one
//! is never taken for a damaged checkpoint.

use std::fs::{self, File};
use std::ops::Range;
use std::path::{Path, PathBuf};

use kernels::Tensor;

use crate::checkpoint::safetensors::{Digest, Entry, Writer};
use crate::checkpoint::state::{self, State};
use crate::checkpoint::{MODEL, OPTIMIZER, path_of, steps_in};
use crate::error::{At, OnRank, Result};
use crate::mesh::Place;
use crate::step::Trainer;

/// One file: for each list of this rank every tensor under `<name><suffix>`.
struct Part<'a> {
    file: &'static str,
    lists: Vec<List<'a>>,
}

/// Numbers beside the elements of every tensor.
struct List<'a> {
    suffix: &'static str,
    numbers: Numbers<'a>,
}

enum Numbers<'a> {
    /// Whole shares by slot.
    Whole(&'a [Tensor]),
    /// Flat by local unit: the elements whose weights are here.
    Weights(&'a [Tensor]),
    /// Flat by local unit: the elements whose moments are here.
    Moments(&'a [Tensor]),
}

/// To be called by every rank. Rank 0 gives the state and gets the folder's path.
pub(crate) fn write(
    trainer: &Trainer<'_>,
    folder: &Path,
    state: Option<&State>,
) -> Result<Option<PathBuf>> {
    let moments = &trainer.moments;
    let weights = if trainer.holding.has_weight_shards() {
        Numbers::Weights(&trainer.weight_shards)
    } else {
        Numbers::Whole(&trainer.weights)
    };
    let list = |suffix, numbers| List { suffix, numbers };
    let parts = [
        Part {
            file: MODEL,
            lists: vec![list("", weights)],
        },
        Part {
            file: OPTIMIZER,
            lists: vec![
                list(".m", Numbers::Moments(&moments.m)),
                list(".v", Numbers::Moments(&moments.v)),
            ],
        },
    ];
    let Some(state) = state else {
        for part in &parts {
            send(trainer, part)?;
        }
        return Ok(None);
    };
    let name = format!("step-{:08}", state.step);
    let partial = folder.join(format!(".{name}.partial"));
    remove(&partial)?;
    fs::create_dir(&partial).at("create", &partial)?;
    let model = collect(trainer, &parts[0], &partial)?;
    let optimizer = collect(trainer, &parts[1], &partial)?;
    state::write(&partial, state, &model, &optimizer)?;
    sync(&partial)?;
    let path = path_of(folder, state.step);
    hide(folder, state.step)?;
    fs::rename(&partial, &path).at("rename", &partial)?;
    sync(folder)?;
    prune(folder, state.step, trainer.plan.train.checkpoint.keep)?;
    clean(folder)?;
    Ok(Some(path))
}

/// Removes what a killed run left behind.
pub(crate) fn clean(folder: &Path) -> Result<()> {
    let is_leftover = |name: &str| {
        name.starts_with(".step-") && (name.ends_with(".partial") || name.ends_with(".dropped"))
    };
    for entry in fs::read_dir(folder).at("list", folder)? {
        let entry = entry.at("list", folder)?;
        if entry.file_name().to_str().is_some_and(is_leftover) {
            remove(&entry.path())?;
        }
    }
    Ok(())
}

/// Drops all but the `keep` newest up to `step`. Later ones were refused when the run resumed
/// before them, and must not push whole ones out.
fn prune(folder: &Path, step: u64, keep: usize) -> Result<()> {
    let (kept, refused): (Vec<u64>, Vec<u64>) = steps_in(folder)?
        .into_iter()
        .partition(|&other| other <= step);
    let surplus = &kept[..kept.len().saturating_sub(keep)];
    surplus
        .iter()
        .chain(&refused)
        .try_for_each(|&step| hide(folder, step))
}

fn hide(folder: &Path, step: u64) -> Result<()> {
    let path = path_of(folder, step);
    if path.exists() {
        let dropped = folder.join(format!(".step-{step:08}.dropped"));
        remove(&dropped)?;
        fs::rename(&path, &dropped).at("rename", &path)?;
    }
    Ok(())
}

fn remove(path: &Path) -> Result<()> {
    if path.exists() {
        fs::remove_dir_all(path).at("remove", path)
    } else {
        Ok(())
    }
}

pub(crate) fn sync(folder: &Path) -> Result<()> {
    File::open(folder)
        .and_then(|file| file.sync_all())
        .at("sync", folder)
}

impl List<'_> {
    /// World ranks that hold parts of tensor `spec`, in order, with the elements of the tensor's
    /// share that each has. Replicas send nothing.
    fn owners(&self, trainer: &Trainer<'_>, spec: usize) -> Vec<(usize, Range<usize>)> {
        let (tensor, shards) = (&trainer.specs[spec], &trainer.holding.shards);
        let at = shards.unit_of(spec);
        let shares = if tensor.is_split {
            trainer.groups.place.tp
        } else {
            1
        };
        let mut owners = Vec::new();
        let dp_ranks = 0..trainer.groups.place.dp;
        let dp_ranks = dp_ranks.filter(|&rank| shards.units[at].is_of(rank));
        for tp_rank in 0..shares {
            for dp_rank in dp_ranks.clone() {
                let owner = Place {
                    tp_rank,
                    dp_rank,
                    cp_rank: 0,
                    pp_rank: tensor.stage,
                    ..trainer.groups.place
                };
                let held = match self.numbers {
                    Numbers::Whole(_) => 0..shards.units[at].len(),
                    Numbers::Weights(_) => shards.weights(at, dp_rank),
                    Numbers::Moments(_) => shards.moments(at, dp_rank),
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

    /// Numbers of this rank.
    fn values(&self, trainer: &Trainer<'_>, spec: usize, local: &Range<usize>) -> &[f32] {
        let holding = &trainer.holding;
        let unit = holding.shards.unit_of(spec);
        let index = (holding.local.iter().position(|local| local.unit == unit))
            .expect("an owner has the tensor's unit");
        let (flat, held) = match self.numbers {
            Numbers::Whole(tensors) => {
                return &tensors[holding.slot(index, spec)].f32()[local.clone()];
            }
            Numbers::Weights(flats) => (&flats[index], holding.weights(index)),
            Numbers::Moments(flats) => (&flats[index], holding.moments(index)),
        };
        let at = holding.shards.units[unit].start_of(spec) + local.start - held.start;
        &flat.f32()[at..at + local.len()]
    }
}

fn send(trainer: &Trainer<'_>, part: &Part<'_>) -> Result<()> {
    let rank = trainer.groups.place.rank();
    for list in &part.lists {
        for spec in 0..trainer.specs.len() {
            for (owner, local) in list.owners(trainer, spec) {
                if owner == rank {
                    let values = list.values(trainer, spec, &local);
                    let sent = trainer.groups.world.send(0, values);
                    sent.on_rank(rank, "send a tensor of the checkpoint")?;
                }
            }
        }
    }
    Ok(())
}

fn collect(trainer: &Trainer<'_>, part: &Part<'_>, folder: &Path) -> Result<Digest> {
    let entries = part.lists.iter().flat_map(|list| {
        trainer.specs.iter().map(|spec| Entry {
            name: format!("{}{}", spec.name, list.suffix),
            dims: spec.dims.clone(),
        })
    });
    let mut writer = Writer::create(&folder.join(part.file), entries.collect(), None)?;
    let mut received = Vec::new();
    for list in &part.lists {
        for spec in 0..trainer.specs.len() {
            for (owner, local) in list.owners(trainer, spec) {
                if owner == 0 {
                    writer.write(list.values(trainer, spec, &local))?;
                } else {
                    received.resize(local.len(), 0.0);
                    let done = trainer.groups.world.recv(owner, &mut received);
                    done.on_rank(0, "receive a tensor of the checkpoint")?;
                    writer.write(&received)?;
                }
            }
        }
    }
    writer.finish()
}
