#![doc = include_str!("../README.md")]

mod array;
mod blend;
mod cache;
mod dataset;
mod error;
mod numpy_random;
mod panics;
mod sampler;
mod samples;
mod sentences;
mod split;
mod tokenizer;

pub use array::Array;
pub use blend::{
    AboveCap, Blend, BlendRequest, Columns, IndexBytes, MaskedBlend, MaskedBlendRequest,
    MaskedKind, Mixture, SURPLUS, Source, build as build_blend, build_masked, index_bytes,
    open_all, weighted_order,
};
pub use cache::{Cache, Description};
pub use dataset::batch::{TextBatch, TextSource, Texts};
pub use dataset::build::{
    BuildOptions, Built, GroupCounts, build as build_dataset, fingerprint, whole_fingerprint,
};
pub use dataset::format::TokenType;
pub use dataset::inspect::inspect;
pub use dataset::merge::merge;
pub use dataset::read::Dataset;
pub use dataset::sidecar::{Group, Sidecar, TokenizerNote};
pub use dataset::stats::{Lengths, Statistics, Vocabulary, statistics};
pub use dataset::write::{DatasetWriter, Written};
pub use error::{Error, Result};
pub use numpy_random::RandomState;
pub use panics::is_panic_expected;
pub use sampler::{
    BatchSizes, Cyclic, Prefetch, Sampler, full_validation, prefetch, randperm, share,
};
pub use samples::{
    BertItem, BertSamples, Fim, FimText, GptIndices, GptItem, GptSamples, ItemOptions, MaskTokens,
    MaskedRequest, Masking, Order, PAD, Places, Request, Starts, T5Item, T5Samples,
};
pub use sentences::Punkt;
pub use split::{Bounds, Part, parse as parse_split};
pub use tokenizer::{
    Encoder, Kind as TokenizerKind, LoadOptions, Special, SpecialTokens, Split, Tokenizer,
    TrainKind, TrainSettings, Trainer,
};
