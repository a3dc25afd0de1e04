//! Token datasets in Megatron's format (MMIDIDX), with a sidecar for lineage and statistics (`sidecar.rs`).

pub(crate) mod atomic;
pub(crate) mod batch;
pub(crate) mod build;
pub(crate) mod ids;
pub(crate) mod idx_arrays;
pub(crate) mod idx_format;
pub(crate) mod inspect;
pub(crate) mod merge;
pub(crate) mod paths;
pub(crate) mod read;
pub(crate) mod sidecar;
pub(crate) mod stats;
pub(crate) mod stored;
pub(crate) mod write;

pub use batch::{TextBatch, TextSource, Texts};
pub use build::{BuildOptions, Built, GroupCounts, build, fingerprint, whole_fingerprint};
pub use idx_format::TokenType;
pub use inspect::inspect;
pub use merge::merge;
pub use read::Dataset;
pub use sidecar::{Group, Sidecar, TokenizerNote};
pub use stats::{Lengths, Statistics, Vocabulary, statistics};
pub use write::{DatasetWriter, Written};
