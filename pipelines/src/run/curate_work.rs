//! The work of a curation: shards without a valid record, shards that the job no longer has, and why.

use super::decision::{
    Action, Decision, Effect, Reason, Replaced, files_there, in_folders, replaced,
};
use super::finished_shards::{StaleShards, stage_of};
use super::{setting_changes, settings_print};
use crate::context::{Context, relative};
use crate::manifest::{Record, fingerprint, identity};
use anyhow::Result;
use curate::read::Shard;
use rayon::iter::{IntoParallelIterator, ParallelIterator};
use serde_json::json;
use std::collections::{BTreeSet, HashSet};
use std::path::PathBuf;

/// Files that are named in the reasons of one kind.
const NAMED: usize = 5;

/// Keys that the results of every shard depend on, but for its input.
const SETTINGS: [&str; 9] = [
    "curate.step",
    "curate.max_record_bytes",
    "curate.output",
    "curate.sample",
    "curate.limit",
    "curate.split_mb",
    "curate.figures",
    "curate.statistics",
    "decontaminate",
];

/// Fingerprint of a shard: everything its output depends on, so not tasks, threads or the other inputs.
fn shard_fingerprint(cx: &Context, shard: &Shard) -> String {
    let job = &cx.job;
    let settings = job.curate.as_ref().map(|c| {
        json!([
            c.step,
            c.max_record_bytes,
            c.output,
            c.sample,
            c.figures,
            c.statistics
        ])
    });
    let dropping = job.dropping();
    let evaluation = dropping.iter().flat_map(|d| &d.files);
    let of_steps = job.curate.iter().flat_map(|c| c.step_files());
    let read: Vec<_> = evaluation
        .map(PathBuf::from)
        .chain(of_steps)
        .map(|f| identity(&f))
        .collect();
    let signatures = curate::dedup::SignatureShape::of(job.dedup.as_ref());
    let mut parts = json!([
        "curate",
        shard.number,
        shard.input,
        identity(&shard.path),
        shard.version,
        shard.name,
        shard.bytes,
        shard.part,
        shard.limit,
        settings,
        dropping,
        read,
        signatures
    ]);
    // a card that changes moves files to other splits, which documents name
    let place = [&shard.dataset_split, &shard.dataset_config];
    if let Some(parts) = parts.as_array_mut()
        && place.iter().any(|name| name.is_some())
    {
        parts.push(json!(place));
    }
    fingerprint(&parts)
}

/// Fingerprints of shards.
pub(super) fn prints_of(cx: &Context, shards: &[Shard]) -> Vec<String> {
    shards.iter().map(|s| shard_fingerprint(cx, s)).collect()
}

/// Indices of the shards without a valid record. `is_done` checks one shard.
pub(super) fn left(
    shards: &[Shard],
    prints: &[String],
    is_done: impl Fn(&str, &str) -> Result<bool> + Sync,
) -> Result<Vec<usize>> {
    let each = (0..shards.len()).into_par_iter();
    let done: Vec<bool> = each
        .map(|i| is_done(&stage_of(shards[i].number), &prints[i]))
        .collect::<Result<_>>()?;
    let numbers = done.iter().enumerate().filter(|(_, done)| !**done);
    Ok(numbers.map(|(i, _)| i).collect())
}

/// The work of a curation of the whole job.
pub(super) struct Work {
    /// Fingerprints of all shards.
    pub prints: Vec<String>,
    /// Fingerprint of the stage.
    pub of_all: String,
    /// Indices of the shards to curate.
    pub todo: Vec<usize>,
    /// Files and objects of shards that are to be removed.
    pub stale: StaleShards,
    /// Whether there is nothing to do.
    pub is_done: bool,
}

impl Work {
    /// Compares the shards with their records and files.
    ///
    /// # Errors
    /// Inputs that cannot be listed; a store that cannot be reached.
    pub(super) fn of(cx: &Context) -> Result<Work> {
        let shards = cx.shards()?;
        let prints = prints_of(cx, shards);
        let todo = left(shards, &prints, |stage, print| {
            Ok(cx.done(stage, print)?.is_some())
        })?;
        let of_all = fingerprint(&json!(prints));
        let stale = StaleShards::find(&cx.out, shards.len(), |folder| cx.manifest.objects(folder))?;
        let is_whole = todo.is_empty() && stale.is_empty();
        let is_done = is_whole && cx.done("curate", &of_all)?.is_some();
        Ok(Work {
            prints,
            of_all,
            todo,
            stale,
            is_done,
        })
    }

    /// The decision of the stage.
    ///
    /// # Errors
    /// A store that cannot be reached.
    pub(super) fn decision(&self, cx: &Context) -> Result<Decision> {
        let shards = cx.shards()?;
        let done = shards.len() - self.todo.len();
        let mut decision = Decision::skip("curate");
        decision.progress = Some(format!("{done} of {} shards are done", shards.len()));
        if self.is_done {
            return Ok(decision);
        }
        let records: Vec<Option<Record>> = (shards.iter())
            .map(|shard| cx.manifest.get(&stage_of(shard.number)))
            .collect::<Result<_>>()?;
        decision.action = match done {
            0 => Action::Run,
            _ => Action::GoOn,
        };
        let mut why = Why::new(cx, shards, &records);
        for &at in &self.todo {
            why.shard(&shards[at], records[at].as_ref(), &self.prints[at]);
        }
        decision.reasons = why.reasons(cx);
        let gone = self.stale.numbers();
        if gone > 0 {
            let text = format!("{gone} shards are of files that the job no longer has");
            decision.reasons.push(Reason::other(text));
        }
        if decision.reasons.is_empty() {
            let reason = Reason::new("its totals are missing", Effect::Same);
            decision.reasons.push(reason);
        }
        let of_todo = self.todo.iter().filter_map(|at| records[*at].as_ref());
        decision.replaces = replaced(&cx.out, of_todo);
        let stale = self.stale.outputs();
        let stale = files_there(&cx.out, stale.map(|path| relative(&cx.out, path)));
        decision.replaces.extend(stale);
        let objects = self.stale.output_objects();
        let objects = in_folders(objects.map(|(name, bytes)| (name.into(), bytes)));
        decision
            .replaces
            .extend(objects.into_iter().filter_map(|object| {
                let url = cx.manifest.url(object.path.to_str()?)?;
                let path = url.into();
                Some(Replaced { path, ..object })
            }));
        Ok(decision)
    }
}

/// The reasons of shards, by kind.
struct Why {
    /// Files that any record is of.
    known: BTreeSet<String>,
    /// Fingerprints of the settings of the job's inputs.
    inputs: BTreeSet<String>,
    added: Vec<String>,
    resized: Vec<String>,
    touched: Vec<String>,
    /// Shards without a record.
    unrecorded: usize,
    /// Shards whose files are not those of their record.
    damaged: usize,
    /// Shards that were made with other settings.
    other_settings: usize,
    /// Shards whose fingerprint differs for none of these reasons.
    unexplained: usize,
    seen: HashSet<String>,
}

impl Why {
    fn new(cx: &Context, shards: &[Shard], records: &[Option<Record>]) -> Why {
        let of_files = records.iter().flatten();
        let known = of_files.filter_map(settings_print::file_of_record);
        Why {
            known: known.map(str::to_owned).collect(),
            inputs: settings_print::of_inputs(&cx.job),
            added: Vec::new(),
            resized: Vec::new(),
            touched: Vec::new(),
            unrecorded: 0,
            damaged: 0,
            other_settings: 0,
            unexplained: 0,
            seen: HashSet::with_capacity(shards.len()),
        }
    }

    /// Adds a shard without a valid record.
    fn shard(&mut self, shard: &Shard, record: Option<&Record>, print: &str) {
        let file = settings_print::file_of(shard);
        let is_new = !self.known.is_empty() && !self.known.contains(&file);
        let list = match record {
            _ if is_new => &mut self.added,
            None => {
                self.unrecorded += 1;
                return;
            }
            Some(record) if record.fingerprint == print => {
                self.damaged += 1;
                return;
            }
            Some(record) if settings_print::is_of_no_input(record, &self.inputs) => {
                self.other_settings += 1;
                return;
            }
            Some(record) => match settings_print::input_change(record, shard) {
                Some(settings_print::InputChange::Size) => &mut self.resized,
                Some(settings_print::InputChange::Time) => &mut self.touched,
                None => {
                    self.unexplained += 1;
                    return;
                }
            },
        };
        // a large file has several shards
        if self.seen.insert(file.clone()) {
            list.push(file);
        }
    }

    fn reasons(self, cx: &Context) -> Vec<Reason> {
        let mut reasons = Vec::new();
        let changed = setting_changes::of(&cx.job, &cx.out);
        let mut lines = setting_changes::within(&changed, &SETTINGS);
        if self.other_settings > 0 {
            lines.extend(setting_changes::within(&changed, &["curate.inputs"]));
        }
        if self.unexplained > 0 {
            lines.extend(setting_changes::within(&changed, &["dedup"]));
        }
        let is_explained = !lines.is_empty();
        if self.other_settings + self.unexplained > 0 {
            reasons.extend(lines.into_iter().map(Reason::other));
        }
        if self.other_settings > 0 && !is_explained {
            let text = format!("made with other settings: {}", shards(self.other_settings));
            reasons.push(Reason::other(text));
        }
        let inputs = |list: &[String], what: &str| {
            let named: Vec<&str> = list.iter().take(NAMED).map(String::as_str).collect();
            let plural = if list.len() == 1 { "input" } else { "inputs" };
            let more = match list.len().saturating_sub(NAMED) {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            format!("{what} {plural}: {}{more}", named.join(", "))
        };
        if !self.added.is_empty() {
            reasons.push(Reason::other(inputs(&self.added, "new")));
        }
        if !self.resized.is_empty() {
            reasons.push(Reason::other(inputs(&self.resized, "another size of")));
        }
        if !self.touched.is_empty() {
            let text = inputs(
                &self.touched,
                "another time of change, and the same size, of",
            );
            reasons.push(Reason::perhaps(text));
        }
        if self.unrecorded > 0 {
            let text = format!("not done yet: {}", shards(self.unrecorded));
            reasons.push(Reason::perhaps(text));
        }
        if self.damaged > 0 {
            let text = format!("missing or damaged files of {}", shards(self.damaged));
            reasons.push(Reason::perhaps(text));
        }
        if self.unexplained > 0 && !is_explained {
            let text = format!(
                "the program, or files that its steps read, have changed: {}",
                shards(self.unexplained)
            );
            reasons.push(Reason::perhaps(text));
        }
        reasons
    }
}

fn shards(count: usize) -> String {
    match count {
        1 => "1 shard".to_owned(),
        n => format!("{n} shards"),
    }
}
