//! Kept and dropped documents of a curation so far: the sum over the shards that are done.

use super::clock;
use crate::context::{SHARDS, submitted_shards};
use crate::job::Job;
use crate::manifest::Record;
use crate::report::dropped_by_step;
use curate::pipeline::ShardReport;
use serde::Serialize;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

/// Folder of the shards' records.
const RECORDS: &str = "records/curate";

/// Documents that a step dropped.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Dropped {
    /// Name of the step.
    pub step: String,
    pub documents: u64,
    /// Documents left behind it.
    pub left: u64,
}

/// The curation as the page shows it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct CurationState {
    /// Shards in all; none if they are not known: before its end those of a job that was submitted are.
    pub shards: Option<usize>,
    pub shards_done: usize,
    /// Records read; those kept, quarantined and dropped add up to them.
    pub records: u64,
    pub kept: u64,
    pub quarantined: u64,
    pub dropped: Vec<Dropped>,
    /// Documents that were kept after deduplication; none before it.
    pub kept_after_dedup: Option<u64>,
}

/// The shards' records that have been read.
#[derive(Default)]
pub(super) struct Curation {
    /// Records of the shards of the finished curation, or of those that a job was submitted with.
    shards: Option<BTreeSet<OsString>>,
    /// Time of the last change of their list when it was last read.
    listed: Option<SystemTime>,
    /// Shards of the finished curation when the list was made.
    finished: Option<usize>,
    seen: BTreeMap<OsString, SystemTime>,
    /// Time of the folder's last change when it was last read.
    modified: Option<SystemTime>,
    /// Whether any later change shows in that time.
    is_settled: bool,
    /// When it may be read again.
    next: Option<Instant>,
    sum: Sum,
}

#[derive(Default)]
struct Sum {
    records: u64,
    kept: u64,
    quarantined: u64,
    dropped: BTreeMap<String, u64>,
}

impl Curation {
    /// Reads what has been recorded since the last call. `finished`: shards of the finished curation, whose records alone count
    /// then.
    pub(super) fn look(&mut self, job: &Job, out: &Path, finished: Option<usize>) {
        let changed = |path: &Path| std::fs::metadata(path).and_then(|m| m.modified()).ok();
        let listed = changed(&out.join(SHARDS));
        let is_other = listed != self.listed || finished != self.finished;
        if is_other && job.curate.is_some() {
            (self.listed, self.finished) = (listed, finished);
            let name = |number: usize| OsString::from(format!("{number:05}.json"));
            // the inputs are not listed for it: they may be many, and far
            self.shards = match finished {
                Some(count) => Some((0..count).map(name).collect()),
                None => {
                    let shards = submitted_shards(out).ok().flatten();
                    shards.map(|shards| shards.iter().map(|shard| name(shard.number)).collect())
                }
            };
            (self.is_settled, self.next) = (false, None);
        }
        let folder = out.join(RECORDS);
        let modified = changed(&folder);
        let is_early = self.next.is_some_and(|next| Instant::now() < next);
        if (modified == self.modified && self.is_settled) || is_early {
            return;
        }
        let started = Instant::now();
        // taken before the listing: a record that comes meanwhile is seen at the next call
        self.modified = modified;
        self.is_settled = !modified.is_some_and(clock::is_recent);
        self.read(&folder);
        // with a hundred thousand shards a listing takes long: a tenth of the time at most goes there
        self.next = Some(Instant::now() + 10 * started.elapsed().min(Duration::from_secs(60)));
    }

    fn read(&mut self, folder: &Path) {
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        let mut found = BTreeMap::new();
        for entry in entries {
            let name = entry.file_name();
            let is_json = Path::new(&name).extension().is_some_and(|e| e == "json");
            let is_shard = (self.shards.as_ref()).is_none_or(|shards| shards.contains(&name));
            if !is_json || !is_shard {
                continue;
            }
            let modified = entry.metadata().and_then(|m| m.modified());
            found.insert(name, modified.unwrap_or(SystemTime::UNIX_EPOCH));
        }
        let is_same = |(name, time): (&OsString, &SystemTime)| found.get(name) == Some(time);
        if !self.seen.iter().all(is_same) {
            // a shard was done again, or removed
            self.seen.clear();
            self.sum = Sum::default();
        }
        for (name, modified) in found {
            if self.seen.contains_key(&name) {
                continue;
            }
            let text = std::fs::read(folder.join(&name)).unwrap_or_default();
            let record: Option<Record> = serde_json::from_slice(&text).ok();
            let report = record.and_then(|record| report(record.counts));
            if let Some(report) = report {
                self.sum.add(&report);
                self.seen.insert(name, modified);
            }
        }
    }

    /// The state, with the counts of the deduplication if it is done; none if the job curates nothing or has not begun to.
    /// `done`: when the manifest was written in which all shards are done.
    pub(super) fn state(
        &self,
        job: &Job,
        done: Option<SystemTime>,
        dedup: Option<&Value>,
    ) -> Option<CurationState> {
        job.curate.as_ref().filter(|_| self.modified.is_some())?;
        let sum = &self.sum;
        let rules = sum.dropped.iter().map(|(rule, n)| (rule.as_str(), *n));
        let mut left = sum.records.saturating_sub(sum.quarantined);
        let mut dropped = Vec::new();
        for (step, documents) in dropped_by_step(job, rules) {
            left = left.saturating_sub(documents);
            dropped.push(Dropped {
                step,
                documents,
                left,
            });
        }
        Some(CurationState {
            shards: (self.shards.as_ref().map(BTreeSet::len))
                .or((done >= self.modified).then_some(self.seen.len())),
            shards_done: self.seen.len(),
            records: sum.records,
            kept: sum.kept,
            quarantined: sum.quarantined,
            dropped,
            kept_after_dedup: dedup.and_then(|counts| counts["kept"].as_u64()),
        })
    }
}

fn report(counts: Value) -> Option<ShardReport> {
    serde_json::from_value(counts).ok()
}

impl Sum {
    fn add(&mut self, report: &ShardReport) {
        self.records += report.records;
        self.kept += report.kept;
        self.quarantined += report.quarantined;
        for (rule, n) in &report.dropped {
            *self.dropped.entry(rule.clone()).or_default() += n;
        }
    }
}
