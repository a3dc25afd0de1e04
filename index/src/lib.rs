#![doc = include_str!("../README.md")]

mod blend;
mod build;
mod error;
mod format;
mod mmap;
mod numpy_random;
mod read;
mod sampler;
mod samples;
mod sentences;
mod split;
mod tokenizer;
mod write;

pub use blend::{Blend, BlendRequest, build as build_blend};
pub use build::{BuildOptions, Built, build as build_dataset, fingerprint};
pub use error::{Error, Result};
pub use format::TokenType;
pub use numpy_random::RandomState;
pub use read::{Dataset, inspect};
pub use sampler::Sampler;
pub use samples::{GptIndices, GptSamples, Request};
pub use sentences::Punkt;
pub use split::{Part, parse as parse_split};
pub use tokenizer::{
    Encoder, Kind as TokenizerKind, LoadOptions, Special, Split, Tokenizer, TrainKind,
    TrainSettings, Trainer,
};
pub use write::{DatasetWriter, Written};
