//! Converts a checkpoint to another form: whole files, or shards as a given layout's ranks would write them. Either
//! all of it, or only the weights (or their running averages), which can be evaluated, exported and used for
//! generation but not resumed from. Numbers are copied in parts, so memory is bounded whatever the size; splitting
//! and joining again gives the same bytes.

use std::fs;
use std::ops::Range;
use std::path::Path;

use crate::checkpoint::files::Tensors;
use crate::checkpoint::read::{Opened, parts_of};
use crate::checkpoint::safetensors::{Digest, Writer};
use crate::checkpoint::snapshot::{FileOf, files, weights_alone};
use crate::checkpoint::write::{begin, end, remove, sync};
use crate::checkpoint::write_shards::{Form, entries, shard_of};
use crate::checkpoint::{EMA, MODEL};
use crate::config::ParallelConfig;
use crate::config::plan::Plan;
use crate::dist::mesh::RankCoord;
use crate::error::{At, Error, Result};
use crate::model::param;
use crate::parallel::shards::Shards;

/// Elements that are copied at a time.
const PART: usize = 1 << 18;

/// Options of `reshard`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reshard {
    /// Tensor-parallel and pipeline ranks, each of which gets its own files; `None`: whole files.
    pub split: Option<(usize, usize)>,
    /// The optimizer's state and averages too, so that a run can resume.
    pub keeps_state: bool,
}

/// Writes `checkpoint` (a folder, or `ema.safetensors` in one: its averages as weights) in another
/// form at `out`, which must not be there.
///
/// # Errors
/// A damaged checkpoint; one without averages; a layout that does not divide the model; a folder that
/// is there or cannot be written.
pub fn reshard(checkpoint: &Path, out: &Path, to: &Reshard) -> Result<()> {
    let (folder, kind) = parts_of(checkpoint);
    let opened = Opened::open(folder)?;
    if to.keeps_state && kind == EMA {
        return Err(Error::Request {
            what: "averages with the optimizer's state",
            found: checkpoint.display().to_string(),
            wanted: "the folder itself, or the averages alone".into(),
        });
    }
    if out.exists() {
        return Err(Error::Request {
            what: "folder to write",
            found: format!("{}, which is there", out.display()),
            wanted: "one that is not there".into(),
        });
    }
    let mut plan = opened.plan_of_one_rank();
    let list = if to.keeps_state {
        files(&plan)
    } else {
        weights_alone()
    };
    let mut sources = Vec::new();
    for file in list {
        let source = if to.keeps_state { file.name } else { kind };
        if source != MODEL {
            opened.verify(source)?;
        }
        sources.push((file.name, opened.tensors(source)?));
    }
    let (tp, pp) = to.split.unwrap_or((1, 1));
    plan.parallel = ParallelConfig {
        tp,
        pp,
        ..ParallelConfig::default()
    };
    let problems = plan.problems();
    if !problems.is_empty() {
        return Err(Error::Plan(problems));
    }
    // a hidden sibling of the folder, so that the rename stays on one disk
    let name = out.file_name().unwrap_or_default().display().to_string();
    let partial = out.with_file_name(format!(".{name}.partial"));
    remove(&partial)?;
    if let Some(parent) = partial.parent().filter(|path| !path.as_os_str().is_empty()) {
        fs::create_dir_all(parent).at("create", parent)?;
    }
    begin(&partial)?;
    let mut copy = Copy {
        plan: &plan,
        sources,
        partial: &partial,
    };
    let digests = match to.split {
        None => copy.whole(list),
        Some(_) => copy.shards(list),
    };
    let mut state = opened.state;
    if !to.keeps_state {
        // one set of weights is left
        state.plan.train.ema_decay = 0.0;
    }
    let written = digests.and_then(|digests| end(&partial, &state, digests));
    if written.is_err() {
        // the first error is the one to report
        let _ = remove(&partial);
    }
    written?;
    fs::rename(&partial, out).at("rename", &partial)?;
    match out.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => sync(parent),
        _ => sync(Path::new(".")),
    }
}

struct Copy<'a> {
    /// With the layout that is written.
    plan: &'a Plan,
    /// By the name of the whole file that is written.
    sources: Vec<(&'static str, Tensors)>,
    partial: &'a Path,
}

type Digests = Vec<(String, Digest)>;

impl Copy<'_> {
    fn whole(&mut self, list: &'static [FileOf]) -> Result<Digests> {
        let specs = param::specs(self.plan);
        let mut digests = Vec::new();
        for file in list {
            let entries = entries(&specs, file);
            let path = self.partial.join(file.name);
            let mut writer = Writer::create(&path, entries.clone(), None)?;
            let source = source_of(&mut self.sources, file.name);
            for entry in entries {
                let all = 0..entry.dims.iter().product();
                pass(source, (&entry.name, &entry.dims), all, &mut writer)?;
            }
            digests.push((file.name.into(), writer.finish()?));
        }
        Ok(digests)
    }

    fn shards(&mut self, list: &'static [FileOf]) -> Result<Digests> {
        let specs = param::specs(self.plan);
        let form = Form {
            specs: &specs,
            shards: Shards::of(self.plan, &specs),
            place: RankCoord::of(0, &self.plan.parallel),
            folder: self.partial,
            plan: self.plan,
        };
        let mut digests = Vec::new();
        for rank in 0..self.plan.parallel.world() {
            let sources = &mut self.sources;
            let written = shard_of(&form, (list, rank), self.partial, &mut |slice, writer| {
                let source = source_of(sources, slice.file);
                let range = slice.first..slice.first + slice.elements;
                pass(source, (&slice.name, slice.dims), range, writer)
            });
            digests.extend(written?);
        }
        Ok(digests)
    }
}

fn source_of<'s>(sources: &'s mut [(&'static str, Tensors)], file: &str) -> &'s mut Tensors {
    let found = sources.iter_mut().find(|(name, _)| *name == file);
    &mut found.expect("every file that is written has its source").1
}

/// Copies elements of a tensor.
fn pass(
    source: &mut Tensors,
    (name, dims): (&str, &[usize]),
    elements: Range<usize>,
    writer: &mut Writer,
) -> Result<()> {
    let mut part = vec![0.0f32; PART.min(elements.len())];
    for at in elements.clone().step_by(PART) {
        let out = &mut part[..PART.min(elements.end - at)];
        source.read_part(name, dims, at, out)?;
        writer.write(out)?;
    }
    Ok(())
}
