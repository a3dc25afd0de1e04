//! Writes each rank's shards to the rank's own files: for checkpoints with `checkpoint.sharded`, and for
//! resharding.

use std::panic::resume_unwind;
use std::path::Path;
use std::thread;

use serde_json::Value;

use crate::checkpoint::files::{piece_dims, shard_name, slice_text};
use crate::checkpoint::safetensors::{Digest, Entry, Writer};
use crate::checkpoint::snapshot::{self, FileOf, Pieces, files};
use crate::config::plan::Plan;
use crate::dist::mesh::RankCoord;
use crate::error::Result;
use crate::model::param::Spec;
use crate::parallel::shards::Shards;

/// Everything that determines the files of a run's checkpoints.
pub(crate) struct Form<'a> {
    pub specs: &'a [Spec],
    pub shards: Shards,
    /// Any rank's; its axes matter.
    pub place: RankCoord,
    pub folder: &'a Path,
    pub plan: &'a Plan,
}

/// Writes the shards of all ranks of a process, from rank `first` on, one thread each.
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

/// Writes one rank's shares, `pieces` from `snapshot::take`, to the rank's own files; a rank that owns nothing of a
/// kind has no file of it. Returns names and checksums, for `end`.
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
    /// Dims of the whole tensor.
    pub dims: &'a [usize],
    pub first: usize,
    pub elements: usize,
}

/// Like `shard`, for some files; `give` writes the values of one slice after the other.
pub(crate) fn shard_of(
    form: &Form<'_>,
    (files, rank): (&'static [FileOf], usize),
    partial: &Path,
    give: &mut dyn FnMut(&Slice<'_>, &mut Writer) -> Result<()>,
) -> Result<Vec<(String, Digest)>> {
    let place = RankCoord::of(rank, &form.plan.parallel);
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
pub(crate) fn first_element(spec: &Spec, place: &RankCoord) -> usize {
    spec.share(place.tp_rank, place.tp).0 * spec.row_elements()
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
