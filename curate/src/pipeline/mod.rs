//! The curation pass: shards of input files through reading, steps and signatures to clean documents, reports and journals.

mod chain;
mod config;
mod inspect;
mod journal;
mod likeness;
mod look;
mod quarantine;
mod report;
mod samples;
mod shard;

pub use crate::steps::{Step, StepMetric, metrics_of};
pub use config::CurateConfig;
pub use inspect::{inspect, kind_of};
pub use look::{FieldLook, FileLook, look};
pub use report::{Sample, ShardReport, SourceCounts};
pub use samples::{SampleText, merge_samples};
pub use shard::{Curator, shards, shards_kept};
