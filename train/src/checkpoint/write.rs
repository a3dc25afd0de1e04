//! Writing a checkpoint so that a kill at any instant leaves either all of it or nothing.
//!
//! Tensor by tensor, the ranks that own parts send them to rank 0, which streams them into files
//! under `.step-NNNNNNNN.partial`; files and folder are synced, the folder is renamed, the parent
//! is synced. Folders to be dropped are renamed to hidden names first, so that a half-deleted one
//! is never taken for a damaged checkpoint.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use kernels::Tensor;

use crate::checkpoint::safetensors::{Digest, Entry, Writer};
use crate::checkpoint::state::{self, State};
use crate::checkpoint::{MODEL, OPTIMIZER, path_of, steps_in};
use crate::error::{At, OnRank, Result};
use crate::step::Trainer;

/// One file: the tensors of each list of this rank, under `<name><suffix>`.
struct Part<'a> {
    file: &'static str,
    lists: Vec<(&'static str, &'a [Tensor])>,
}

/// To be called by every rank. Rank 0 gives the state and gets the folder's path.
pub(crate) fn write(
    trainer: &Trainer<'_>,
    folder: &Path,
    state: Option<&State>,
) -> Result<Option<PathBuf>> {
    let moments = &trainer.moments;
    let parts = [
        Part {
            file: MODEL,
            lists: vec![("", &trainer.weights)],
        },
        Part {
            file: OPTIMIZER,
            lists: vec![(".m", &moments.m), (".v", &moments.v)],
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

/// World ranks that hold parts of a tensor, in order of rows. Replicas send nothing.
fn owners(trainer: &Trainer<'_>, spec: usize) -> Vec<usize> {
    let (spec, place) = (&trainer.specs[spec], trainer.groups.place);
    let shares = if spec.is_split { place.tp } else { 1 };
    (0..shares)
        .map(|tp_rank| place.rank_of(tp_rank, 0, spec.stage))
        .collect()
}

fn send(trainer: &Trainer<'_>, part: &Part<'_>) -> Result<()> {
    let rank = trainer.groups.place.rank();
    for (_, tensors) in &part.lists {
        let mut local = tensors.iter();
        for spec in 0..trainer.specs.len() {
            let is_here = trainer.specs[spec].is_on(trainer.groups.place.pp_rank);
            let tensor = if is_here { local.next() } else { None };
            if let (Some(tensor), true) = (tensor, owners(trainer, spec).contains(&rank)) {
                let sent = trainer.groups.world.send(0, tensor.f32());
                sent.on_rank(rank, "send a tensor of the checkpoint")?;
            }
        }
    }
    Ok(())
}

fn collect(trainer: &Trainer<'_>, part: &Part<'_>, folder: &Path) -> Result<Digest> {
    let entries = part.lists.iter().flat_map(|(suffix, _)| {
        trainer.specs.iter().map(move |spec| Entry {
            name: format!("{}{suffix}", spec.name),
            dims: spec.dims.clone(),
        })
    });
    let mut writer = Writer::create(&folder.join(part.file), entries.collect(), None)?;
    let mut received = Vec::new();
    for (_, tensors) in &part.lists {
        let mut local = tensors.iter();
        for spec in 0..trainer.specs.len() {
            let is_here = trainer.specs[spec].is_on(0);
            let tensor = if is_here { local.next() } else { None };
            let owners = owners(trainer, spec);
            let elements = trainer.specs[spec].elements() / owners.len();
            for from in owners {
                if let (Some(tensor), 0) = (tensor, from) {
                    writer.write(tensor.f32())?;
                } else {
                    received.resize(elements, 0.0);
                    let done = trainer.groups.world.recv(from, &mut received);
                    done.on_rank(0, "receive a tensor of the checkpoint")?;
                    writer.write(&received)?;
                }
            }
        }
    }
    writer.finish()
}
