#![doc = include_str!("../README.md")]

mod batch;
mod blend;
mod build;
mod error;
mod format;
mod merge;
mod mmap;
mod numpy_random;
mod read;
mod sampler;
mod samples;
mod sentences;
mod sidecar;
mod split;
mod stats;
mod tokenizer;
mod write;

pub use batch::{TextBatch, TextSource, Texts};
pub use blend::{Blend, BlendRequest, build as build_blend};
pub use build::{BuildOptions, Built, GroupCounts, build as build_dataset, fingerprint};
pub use error::{Error, Result};
pub use format::TokenType;
pub use merge::merge;
pub use numpy_random::RandomState;
pub use read::{Dataset, inspect};
pub use sampler::Sampler;
pub use samples::{GptIndices, GptSamples, Request};
pub use sentences::Punkt;
pub use sidecar::{Group, Sidecar, TokenizerNote};
pub use split::{Part, parse as parse_split};
pub use stats::{Lengths, Statistics, Vocabulary, statistics};
pub use tokenizer::{
    Encoder, Kind as TokenizerKind, LoadOptions, Special, Split, Tokenizer, TrainKind,
    TrainSettings, Trainer,
};
pub use write::{DatasetWriter, Written};
