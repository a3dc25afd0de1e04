//! Integration tests of the curation stage, one binary.

#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

mod archives;
mod arrow;
mod awkward;
mod bad_input;
mod classifier;
mod cuts;
mod dclm;
mod decontamination;
mod dedup;
mod documents;
mod extraction;
mod fields;
mod files;
mod formats;
mod forums;
mod golden;
mod inputs;
mod journal;
mod json_values;
mod kinds;
mod language;
mod long_texts;
mod marked_documents;
mod mixer;
mod parts;
mod profiles;
mod samples;
mod semantic;
mod shard;
mod source;
mod source_runs;
mod statistics;
mod steps;
mod verify;
mod wacz;
mod words;

/// Exact and MinHash deduplication with the defaults of each.
fn both() -> curate::dedup::DedupConfig {
    curate::dedup::DedupConfig {
        exact: Some(curate::dedup::ExactConfig::default()),
        minhash: Some(curate::dedup::MinhashConfig::default()),
        ..curate::dedup::DedupConfig::default()
    }
}
