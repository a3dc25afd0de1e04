//! Fingerprints of settings in the records of `curate` and `dedup`, by which verbs that read documents notice that the job
//! changed after they were made. Unlike the records' own fingerprints they leave out the files that a stage read, which
//! need not be there any more.

use crate::job::Job;
use crate::manifest::{Record, fingerprint};
use serde_json::{Value, json};

/// The count that has it; records of earlier versions and of shards of which texts were taken down lack it.
const KEY: &str = "settings_fingerprint";

/// Of the documents of a shard.
pub(super) fn of_curate(job: &Job) -> String {
    let table = job.curate.as_ref();
    let table = table.map(|c| json!([c.inputs, c.step, c.max_record_bytes, c.sample, c.limit]));
    fingerprint(&json!([table, job.dropping()]))
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

/// Puts it in the counts of a record.
pub(super) fn put(counts: &mut Value, print: &str) {
    counts[KEY] = print.into();
}

/// Whether a record is known to have been made with other settings.
pub(super) fn is_other(record: &Record, print: &str) -> bool {
    record.counts[KEY]
        .as_str()
        .is_some_and(|found| found != print)
}
