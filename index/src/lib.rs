#![doc = include_str!("../README.md")]

mod array;
mod batch;
mod blend;
mod build;
mod cache;
mod error;
mod format;
mod ids;
mod index_file;
mod merge;
mod numpy_random;
mod panics;
mod read;
mod sampler;
mod samples;
mod sentences;
mod sidecar;
mod split;
mod stats;
mod stored;
mod tokenizer;
mod write;

pub use array::Array;
pub use batch::{TextBatch, TextSource, Texts};
pub use blend::{
    AboveCap, Blend, BlendRequest, Columns, IndexBytes, MaskedBlend, MaskedBlendRequest,
    MaskedKind, Mixture, SURPLUS, Source, build as build_blend, build_masked, index_bytes,
    open_all, weighted_order,
};
pub use build::{
    BuildOptions, Built, GroupCounts, build as build_dataset, fingerprint, whole_fingerprint,
};
pub use cache::{Cache, Description};
pub use error::{Error, Result};
pub use format::TokenType;
pub use merge::merge;
pub use numpy_random::RandomState;
pub use panics::is_panic_expected;
pub use read::{Dataset, inspect};
pub use sampler::{
    BatchSizes, Cyclic, Prefetch, Sampler, full_validation, prefetch, randperm, share,
};
pub use samples::{
    BertItem, BertSamples, Fim, FimText, GptIndices, GptItem, GptSamples, ItemOptions, MaskTokens,
    MaskedRequest, Masking, Order, PAD, Places, Request, Starts, T5Item, T5Samples,
};
pub use sentences::Punkt;
pub use sidecar::{Group, Sidecar, TokenizerNote};
pub use split::{Bounds, Part, parse as parse_split};
pub use stats::{Lengths, Statistics, Vocabulary, statistics};
pub use tokenizer::{
    Encoder, Kind as TokenizerKind, LoadOptions, Special, SpecialTokens, Split, Tokenizer,
    TrainKind, TrainSettings, Trainer,
};
pub use write::{DatasetWriter, Written};
