//! Text processing: addresses, characters, words, n-grams, JSON, YAML, HTML entities and repair. Nothing here depends on documents.

pub(crate) mod address;
mod chars;
mod counts;
pub(crate) mod entity;
pub(crate) mod json;
pub(crate) mod languages;
mod n_grams;
pub mod near;
pub(crate) mod nesting;
pub(crate) mod plain;
pub mod repair;
mod scratch;
pub(crate) mod simplify;
mod suffixes;
pub(crate) mod unicode;
pub(crate) mod words;
pub(crate) mod yaml;

pub(crate) use chars::{chars, excerpt, narrow};
pub(crate) use counts::HashCounts;
pub(crate) use n_grams::NGrams;
pub(crate) use plain::PlainWords;
pub use scratch::Scratch;
pub use words::{Splitter, Word};
