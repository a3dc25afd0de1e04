//! Fingerprints of settings in the records of `curate` and `dedup`, by which verbs that read documents notice that the job
//! changed after they were made. Unlike the records' own fingerprints they leave out the files that a stage read, which
//! need not be there any more.

use crate::job::Job;
use crate::manifest::{Record, fingerprint, identity};
use curate::read::{Format, Input, Shard};
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// The count of the keep lists' record that has it; records of earlier versions lack it.
const KEY: &str = "settings_fingerprint";
/// That of a shard's record: of the settings of its own input and of all inputs. Records of earlier versions lack it, and those
/// of shards of which texts were taken down.
const OF_SHARD: &str = "shard_settings_fingerprint";
/// The file that a shard was made of, as shown to people. The same records lack it.
const FILE: &str = "file";
/// Size, time of change and version of that file when the shard was made. Records of earlier versions lack it.
const STAMP: &str = "file_stamp";

/// Of the documents of an input.
fn of_input(job: &Job, input: &Input) -> String {
    let table = job.curate.as_ref();
    let table = table.map(|c| json!([c.step, c.max_record_bytes, c.sample, c.limit]));
    fingerprint(&json!([input, table, job.dropping()]))
}

/// The input of a shard as the job has it: the shard's own has the format that was found where the job says `auto`.
fn as_written<'a>(job: &'a Job, input: &'a Input) -> &'a Input {
    let inputs = job.curate.iter().flat_map(|c| &c.inputs);
    let mut auto = inputs.filter(|written| written.format == Format::Auto);
    let is_its = |written: &&Input| {
        let mut found = Input::clone(written);
        found.format = input.format;
        found == *input
    };
    auto.find(is_its).unwrap_or(input)
}

/// Of the documents of each input of the job.
pub(super) fn of_inputs(job: &Job) -> BTreeSet<String> {
    let inputs = job.curate.iter().flat_map(|c| &c.inputs);
    inputs.map(|input| of_input(job, input)).collect()
}

/// Puts it in the counts of a shard's record, with the shard's file.
pub(super) fn put_shard(counts: &mut Value, job: &Job, shard: &Shard) {
    counts[OF_SHARD] = of_input(job, as_written(job, &shard.input)).into();
    counts[FILE] = file_of(shard).into();
    counts[STAMP] = stamp_of(shard);
}

/// The file that a shard is made of, as shown to people.
pub(super) fn file_of(shard: &Shard) -> String {
    curate::secrets::shown(&shard.path)
}

/// The file that a shard was made of.
pub(super) fn file_of_record(record: &Record) -> Option<&str> {
    record.counts[FILE].as_str()
}

fn stamp_of(shard: &Shard) -> Value {
    let found = identity(&shard.path);
    json!({"bytes": found["bytes"], "modified_ns": found["modified_ns"], "version": shard.version})
}

/// How the file of a shard differs from the one that it was made of.
pub(super) enum InputChange {
    /// In its size.
    Size,
    /// In its time of change or version, but not in its size.
    Time,
}

/// None if it is the same, or if the record does not say.
pub(super) fn input_change(record: &Record, shard: &Shard) -> Option<InputChange> {
    let (before, now) = (&record.counts[STAMP], stamp_of(shard));
    match () {
        () if before.is_null() || *before == now => None,
        () if before["bytes"] != now["bytes"] => Some(InputChange::Size),
        () => Some(InputChange::Time),
    }
}

/// Whether a shard's record is known to have been made with the settings of no input.
pub(super) fn is_of_no_input(record: &Record, inputs: &BTreeSet<String>) -> bool {
    (record.counts[OF_SHARD].as_str()).is_some_and(|found| !inputs.contains(found))
}

/// The file that a shard was made of and that of the shard as it is listed now, if they are known to differ.
pub(super) fn other_file(record: &Record, listed: &Shard) -> Option<(String, String)> {
    let (found, now) = (record.counts[FILE].as_str()?, file_of(listed));
    (found != now).then(|| (found.to_string(), now))
}

/// Of the keep lists.
pub(super) fn of_dedup(job: &Job) -> String {
    let mut table = job.dedup.clone().unwrap_or_default();
    // these change no result
    table.memory_mb = 0;
    if let Some(semantic) = &mut table.semantic {
        semantic.batch_tokens = 0;
    }
    fingerprint(&json!([table, job.cutting()]))
}

/// Puts that of the keep lists in the counts of their record.
pub(super) fn put_dedup(counts: &mut Value, job: &Job) {
    counts[KEY] = of_dedup(job).into();
}

/// Whether the record of the keep lists is known to have been made with other settings.
pub(super) fn is_of_other_lists(record: &Record, job: &Job) -> bool {
    let found = record.counts[KEY].as_str();
    found.is_some_and(|found| found != of_dedup(job))
}
