//! Writing a checkpoint so that a kill at any instant leaves either all of it or nothing.
//!
//! Tensor by tensor, the copies that ranks gave are streamed into files under
//! `.step-NNNNNNNN.partial`; files and folder are synced, the folder is renamed, the parent is
//! synced. Whole files pass through one writer. Sharded, every rank writes files of its own, at the
//! same time: `begin` makes the folder, `shard` writes one rank's files and needs nothing from the
//! others, `end` seals the folder with the checksums of all of them. Ranks in several processes need
//! a folder that all of them see: one of them begins and ends, all call `shard` in between.
//! Folders to be dropped are renamed to hidden names first, so that a half-deleted one is
//! never taken for a damaged checkpoint. If anything fails the half-written folder is removed, so
//! that a full disk has its room back.

use std::fs::{self, File};
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::thread;

use serde_json::Value;

use crate::checkpoint::courier::Courier;
use crate::checkpoint::files::{piece_dims, shard_name, slice_text};
use crate::checkpoint::safetensors::{Digest, Entry, Writer};
use crate::checkpoint::snapshot::{self, FileOf, Pieces, files, owners};
use crate::checkpoint::state::{self, Digests, State};
use crate::checkpoint::{path_of, steps_in};
use crate::config::CheckpointConfig;
use crate::error::{At, Error, Result};
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

/// Writes what the ranks gave, by rank, and drops older checkpoints. Returns the folder. Sharded, ranks
/// of other processes write their own.
pub(crate) fn write(
    form: &Form<'_>,
    state: &State,
    given: &mut [Pieces],
    courier: Option<&Courier>,
) -> Result<PathBuf> {
    let (folder, step) = (form.folder, state.course.step);
    let partial = folder.join(format!(".step-{step:08}.partial"));
    let written = fill(form, state, (given, courier), &partial);
    if written.is_err() {
        // the first error is the one to tell
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
    (given, courier): (&mut [Pieces], Option<&Courier>),
    partial: &Path,
) -> Result<()> {
    let begun = remove(partial).and_then(|()| begin(partial));
    let digests = if form.plan.train.checkpoint.sharded {
        let (mut own, mut others) = (given, Ok(Vec::new()));
        if let Some(courier) = courier {
            courier.order(begun.is_ok().then_some(partial));
            own = &mut own[courier.ranks_here()];
        }
        begun?;
        let written = all_shards(form, (0, own), partial);
        if let Some(courier) = courier {
            others = courier.collect();
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

/// The shards of all ranks of a process, from `first` on, a thread each.
pub(crate) fn all_shards(
    form: &Form<'_>,
    (first, given): (usize, &mut [Pieces]),
    partial: &Path,
) -> Result<Vec<(String, Digest)>> {
    let written: Vec<Result<Vec<(String, Digest)>>> = thread::scope(|scope| {
        let threads = given.iter_mut().enumerate().map(|(rank, pieces)| {
            let pieces = std::mem::take(pieces);
            scope.spawn(move || shard(form, first + rank, pieces, partial))
        });
        let threads: Vec<_> = threads.collect();
        let joined = threads.into_iter();
        joined
            .map(|thread| thread.join().unwrap_or_else(|panic| resume_unwind(panic)))
            .collect()
    });
    let mut digests = Vec::new();
    for files in written {
        digests.extend(files?);
    }
    Ok(digests)
}

/// Writes what one rank owns, `pieces` as `snapshot::take` gave them, into files of its own; a rank
/// that owns nothing of a kind has no file of it. Returns their names and checksums, for `end`.
pub(crate) fn shard(
    form: &Form<'_>,
    rank: usize,
    mut pieces: Pieces,
    partial: &Path,
) -> Result<Vec<(String, Digest)>> {
    let files = files(form.plan);
    shard_of(form, (files, rank), partial, &mut |_, writer| {
        let piece = pieces.next();
        writer.write(&piece.expect("a rank gives each of its shares"))
    })
}

/// A rank's piece of a whole tensor.
pub(crate) struct Slice<'a> {
    /// Whole file of its kind.
    pub file: &'static str,
    /// In that file.
    pub name: String,
    /// Of the whole tensor.
    pub dims: &'a [usize],
    pub first: usize,
    pub elements: usize,
}

/// As `shard`, of some files; `give` writes the values of one slice after the other.
pub(crate) fn shard_of(
    form: &Form<'_>,
    (files, rank): (&'static [FileOf], usize),
    partial: &Path,
    give: &mut dyn FnMut(&Slice<'_>, &mut Writer) -> Result<()>,
) -> Result<Vec<(String, Digest)>> {
    let place = Place::of(rank, &form.plan.parallel);
    let shares = snapshot::shares(files, (form.specs, &form.shards), &place).into_iter();
    let slices = shares.map(|share| {
        let spec = &form.specs[share.spec];
        Slice {
            file: share.file,
            name: format!("{}{}", spec.name, share.suffix),
            dims: &spec.dims,
            first: first_element(spec, &place) + share.local.start,
            elements: share.local.len(),
        }
    });
    let slices: Vec<Slice<'_>> = slices.collect();
    let mut digests = Vec::new();
    for run in slices.chunk_by(|a, b| a.file == b.file) {
        let entry = |slice: &Slice<'_>| Entry {
            name: slice.name.clone(),
            dims: piece_dims(slice.dims, slice.first, slice.elements),
        };
        let told = run.iter().map(|slice| {
            let text = slice_text(slice.dims, slice.first);
            (slice.name.clone(), Value::String(text))
        });
        let told = Value::Object(told.collect());
        let name = shard_name(run[0].file, rank);
        let entries = run.iter().map(entry).collect();
        let mut writer = Writer::create(&partial.join(&name), entries, Some(told))?;
        for slice in run {
            give(slice, &mut writer)?;
        }
        digests.push((name, writer.finish()?));
    }
    Ok(digests)
}

/// First element of a rank's share in the whole tensor.
pub(crate) fn first_element(spec: &Spec, place: &Place) -> usize {
    spec.share(place.tp_rank, place.tp).0 * spec.row_elements()
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
                copy_share(&mut given[owner], (owner, local.len()), &mut writer)?;
            }
        }
    }
    writer.finish()
}

/// Writes the parts of one share of a rank. They end early only if the rank's process is gone.
fn copy_share(
    pieces: &mut Pieces,
    (rank, elements): (usize, usize),
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

/// Whole tensors of a file, in order.
pub(crate) fn entries(specs: &[Spec], file: &FileOf) -> Vec<Entry> {
    let lists = file.lists.iter();
    let entries = lists.flat_map(|(suffix, kind)| {
        let tensors = specs.iter().filter(|spec| kind.is_of(spec));
        tensors.map(move |spec| Entry {
            name: format!("{}{suffix}", spec.name),
            dims: spec.dims.clone(),
        })
    });
    entries.collect()
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

/// Drops all but the newest up to the one of `state`, which was just written, and those to be kept for good.
/// Later ones were refused when the run resumed before them, and must not push whole ones out. One that a
/// graceful stop left between two that are due is kept beside the others until the next is there, so that
/// a run that was stopped keeps what an undisturbed one keeps.
fn prune(folder: &Path, state: &State, config: &CheckpointConfig) -> Result<()> {
    let step = state.course.step;
    let (kept, refused): (Vec<u64>, Vec<u64>) = steps_in(folder)?
        .into_iter()
        .partition(|&other| other <= step);
    let is_interrupted = |other: u64| match other == step {
        true => state.is_interrupted,
        // a damaged one counts as one that was due: nothing is dropped for it
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
