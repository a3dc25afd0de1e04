//! Writing a checkpoint so that a kill at any instant leaves either all of it or nothing.
//!
//! Tensor by tensor, the copies that ranks gave are streamed into files under
//! `.step-NNNNNNNN.partial`; files and folder are synced, the folder is renamed, the parent is
//! synced. Folders to be dropped are renamed to hidden names first, so that a half-deleted one is
//! never taken for a damaged checkpoint. If anything fails the half-written folder is removed, so
//! that a full disk has its room back.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use crate::checkpoint::safetensors::{Digest, Entry, Writer};
use crate::checkpoint::snapshot::{FileOf, Pieces, files, owners};
use crate::checkpoint::state::{self, Digests, State};
use crate::checkpoint::{path_of, steps_in};
use crate::config::CheckpointConfig;
use crate::error::{At, Result};
use crate::mesh::Place;
use crate::model::param::Spec;
use crate::parallel::shards::Shards;
use crate::plan::Plan;

/// What the files of a run's checkpoints are made of.
pub(crate) struct Form<'a> {
    pub specs: &'a [Spec],
    pub shards: Shards,
    /// Any rank's; its axes matter.
    pub place: Place,
    pub folder: &'a Path,
    pub plan: &'a Plan,
}

/// Writes what the ranks gave, by rank, and drops older checkpoints. Returns the folder.
pub(crate) fn write(form: &Form<'_>, state: &State, given: &mut [Pieces]) -> Result<PathBuf> {
    let (folder, step) = (form.folder, state.course.step);
    let partial = folder.join(format!(".step-{step:08}.partial"));
    remove(&partial)?;
    let written = fill(form, state, given, &partial);
    if written.is_err() {
        // the first error is the one to tell
        let _ = remove(&partial);
    }
    written?;
    let path = path_of(folder, step);
    hide(folder, step)?;
    fs::rename(&partial, &path).at("rename", &partial)?;
    sync(folder)?;
    prune(folder, step, &form.plan.train.checkpoint)?;
    clean(folder)?;
    Ok(path)
}

fn fill(form: &Form<'_>, state: &State, given: &mut [Pieces], partial: &Path) -> Result<()> {
    fs::create_dir(partial).at("create", partial)?;
    let mut digests = Vec::new();
    for file in files(form.plan) {
        digests.push((file.name.to_owned(), one_file(form, file, given, partial)?));
    }
    state::write(partial, state, &Digests(digests))?;
    sync(partial)
}

fn one_file(
    form: &Form<'_>,
    file: &FileOf,
    given: &mut [Pieces],
    partial: &Path,
) -> Result<Digest> {
    let lists = file.lists.iter();
    let entries = lists.flat_map(|(suffix, kind)| {
        let tensors = form.specs.iter().filter(|spec| kind.is_of(spec));
        tensors.map(move |spec| Entry {
            name: format!("{}{suffix}", spec.name),
            dims: spec.dims.clone(),
        })
    });
    let mut writer = Writer::create(&partial.join(file.name), entries.collect(), None)?;
    for &(_, kind) in file.lists {
        for spec in 0..form.specs.len() {
            for (owner, _) in owners((form.specs, &form.shards), &form.place, kind, spec) {
                let piece = given[owner].pop_front();
                writer.write(&piece.expect("an owner gives each of its shares"))?;
            }
        }
    }
    writer.finish()
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

/// Drops all but the newest up to `step` and those to be kept for good. Later ones were refused
/// when the run resumed before them, and must not push whole ones out.
fn prune(folder: &Path, step: u64, config: &CheckpointConfig) -> Result<()> {
    let (kept, refused): (Vec<u64>, Vec<u64>) = steps_in(folder)?
        .into_iter()
        .partition(|&other| other <= step);
    let surplus = &kept[..kept.len().saturating_sub(config.keep)];
    let is_for_good = |step: u64| config.keep_every > 0 && step.is_multiple_of(config.keep_every);
    surplus
        .iter()
        .filter(|&&step| !is_for_good(step))
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
