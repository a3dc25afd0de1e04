//! Crash-safe writing of checkpoints: a kill at any instant leaves either all of a checkpoint or none of it.
//!
//! The ranks' copies are streamed tensor by tensor into files under `.step-NNNNNNNN.partial`; files and folder are
//! synced, the folder is renamed, the parent is synced. Whole files pass through one writer. With sharded
//! checkpoints every rank writes its own files concurrently: `begin` makes the folder, `shard` writes one rank's
//! files independently of the others, `end` seals the folder with the checksums of all of them. Ranks in several
//! processes need a folder that all of them see: one of them calls `begin` and `end`, all call `shard` in between.
//! Folders to be deleted are renamed to hidden names first, so that a half-deleted one is never taken for a damaged
//! checkpoint. If anything fails, the half-written folder is removed, so that a full disk gets its space back.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use crate::checkpoint::safetensors::{Digest, Writer};
use crate::checkpoint::shard_sender::ShardSender;
use crate::checkpoint::snapshot::{FileOf, Pieces, files, owners};
use crate::checkpoint::state::{self, Digests, State};
use crate::checkpoint::write_shards::{Form, all_shards, entries};
use crate::checkpoint::{path_of, steps_in};
use crate::config::CheckpointConfig;
use crate::error::{At, Error, Result};

/// Writes the ranks' shares (indexed by rank) and prunes older checkpoints. Returns the folder. With sharded
/// checkpoints, ranks of other processes write their own files.
pub(crate) fn write(
    form: &Form<'_>,
    state: &State,
    given: &mut [Pieces],
    sender: Option<&ShardSender>,
) -> Result<PathBuf> {
    let (folder, step) = (form.folder, state.train_state.step);
    let partial = folder.join(format!(".step-{step:08}.partial"));
    let written = fill(form, state, (given, sender), &partial);
    if written.is_err() {
        // the first error is the one to report
        let _ = remove(&partial);
    }
    written?;
    let path = path_of(folder, step);
    hide(folder, step)?;
    fs::rename(&partial, &path).at("rename", &partial)?;
    sync(folder)?;
    prune(folder, state, &form.plan.train.checkpoint)?;
    clean(folder)?;
    Ok(path)
}

fn fill(
    form: &Form<'_>,
    state: &State,
    (given, sender): (&mut [Pieces], Option<&ShardSender>),
    partial: &Path,
) -> Result<()> {
    let begun = remove(partial).and_then(|()| begin(partial));
    let digests = if form.plan.train.checkpoint.sharded {
        let (mut own, mut others) = (given, Ok(Vec::new()));
        if let Some(sender) = sender {
            sender.order(begun.is_ok().then_some(partial));
            own = &mut own[sender.ranks_here()];
        }
        begun?;
        let written = all_shards(form, (0, own), partial);
        if let Some(sender) = sender {
            others = sender.collect();
        }
        let mut digests = written?;
        digests.extend(others?);
        digests
    } else {
        begun?;
        let files = files(form.plan).iter();
        let digests =
            files.map(|file| Ok((file.name.into(), one_file(form, file, given, partial)?)));
        digests.collect::<Result<_>>()?
    };
    end(partial, state, digests)
}

/// Makes the folder.
pub(crate) fn begin(partial: &Path) -> Result<()> {
    fs::create_dir(partial).at("create", partial)
}

/// Seals the folder: all files are in it and synced.
pub(crate) fn end(partial: &Path, state: &State, digests: Vec<(String, Digest)>) -> Result<()> {
    state::write(partial, state, &Digests(digests))?;
    sync(partial)
}

fn one_file(
    form: &Form<'_>,
    file: &FileOf,
    given: &mut [Pieces],
    partial: &Path,
) -> Result<Digest> {
    let path = partial.join(file.name);
    let mut writer = Writer::create(&path, entries(form.specs, file), None)?;
    for &(_, kind) in file.lists {
        for spec in 0..form.specs.len() {
            for (owner, local) in owners((form.specs, &form.shards), &form.place, kind, spec) {
                copy_share(&mut given[owner], owner, local.len(), &mut writer)?;
            }
        }
    }
    writer.finish()
}

/// Writes the parts of one rank's share. They end early only if the rank's process has ended.
fn copy_share(
    pieces: &mut Pieces,
    rank: usize,
    elements: usize,
    writer: &mut Writer,
) -> Result<()> {
    let mut left = elements;
    loop {
        let part = pieces.next().ok_or_else(|| Error::Peer {
            who: format!("rank {rank}"),
            reason: "ended before it gave its shares of a checkpoint".into(),
        })?;
        writer.write(&part)?;
        left = left.saturating_sub(part.len());
        if left == 0 {
            return Ok(());
        }
    }
}

/// Removes partial and half-deleted folders of a killed run.
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

/// Deletes all but the newest checkpoints up to that of `state`, which was just written, and those to be kept for
/// good. Later ones were refused when the run resumed from an earlier one, and must not displace whole ones. A
/// checkpoint that a graceful stop left between two due ones is kept in addition until the next exists, so that a
/// stopped run keeps the same checkpoints as an undisturbed one.
fn prune(folder: &Path, state: &State, config: &CheckpointConfig) -> Result<()> {
    let step = state.train_state.step;
    let (kept, refused): (Vec<u64>, Vec<u64>) = steps_in(folder)?
        .into_iter()
        .partition(|&other| other <= step);
    let is_interrupted = |other: u64| match other == step {
        true => state.is_interrupted,
        // a damaged one counts as due: nothing is dropped for it
        false => state::read(&path_of(folder, other)).is_ok_and(|(state, _)| state.is_interrupted),
    };
    let (stops, due): (Vec<u64>, Vec<u64>) =
        kept.into_iter().partition(|&other| is_interrupted(other));
    let surplus = &due[..due.len().saturating_sub(config.keep)];
    let is_for_good = |step: u64| config.keep_every > 0 && step.is_multiple_of(config.keep_every);
    surplus
        .iter()
        .filter(|&&step| !is_for_good(step))
        .chain(stops.iter().filter(|&&other| other != step))
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

pub(crate) fn remove(path: &Path) -> Result<()> {
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
