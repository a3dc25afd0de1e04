//! GPT samples: fixed-length windows over shuffled documents, bit-equal to megatron-core's `GPTDataset`.
//!
//! `indices.rs` builds the index arrays and states their rules, `walk.rs` the sample index, `item.rs` the model input.

mod indices;
mod item;
mod request;
mod walk;

pub use indices::GptIndices;
pub use item::{GptItem, ItemOptions};
pub use request::{Order, Places, Request, Starts};

pub(crate) use request::Sizes;
pub(crate) use walk::tokens as epoch_tokens;

use crate::cache::Cache;
use crate::dataset::read::Dataset;
use crate::error::{Error, Result};
use crate::split::{self, Bounds, Part};
use request::index;
use std::ops::Range;
use std::sync::Arc;

/// Padding of a sample that ends with the data: no token id, as in Megatron.
pub const PAD: u32 = u32::MAX;

/// One part of one dataset as samples.
pub struct GptSamples {
    dataset: Arc<Dataset>,
    part: Part,
    request: Request,
    documents: Range<u64>,
    epoch_tokens: u64,
    indices: GptIndices,
}

impl GptSamples {
    /// Builds the indices of `part` with bounds from [`split::parse`], or takes them from a cache.
    ///
    /// # Errors
    /// `EmptySplit` where Megatron would loop for ever; `Blend` if the dataset has more sequences than fit an i32;
    /// `Memory`; `Io` if the cache cannot be written.
    pub fn new(
        dataset: Arc<Dataset>,
        part: Part,
        bounds: Bounds,
        request: &Request,
        cache: Option<&Cache>,
    ) -> Result<GptSamples> {
        let documents = split::elements(bounds, dataset.sequences());
        let name = dataset.prefix().display().to_string();
        let lengths = dataset.lengths();
        let length = |i: usize| lengths[i];
        let build = || GptIndices::build((&name, part), documents.clone(), &length, request);
        let epoch_tokens = walk::tokens(&documents, &length);
        let indices = match cache {
            None => build()?,
            Some(cache) => {
                let sizes = indices::check((&name, part), &documents, epoch_tokens, request)?;
                let entry = cache.gpt(&dataset, part, request);
                entry.indices(&documents, &sizes, build)?
            }
        };
        Ok(GptSamples {
            dataset,
            part,
            request: *request,
            documents,
            epoch_tokens,
            indices,
        })
    }

    /// Samples.
    pub fn len(&self) -> u64 {
        self.indices.len()
    }
    /// Whether there are no samples.
    pub fn is_empty(&self) -> bool {
        self.indices.is_empty()
    }
    /// L, tokens per sample (without the extra token that [`GptSamples::read`] may fill).
    pub fn seq_length(&self) -> u64 {
        self.request.seq_length
    }
    /// Tokens that [`GptSamples::read`] fills: L, and the extra one if samples have it.
    pub fn sample_tokens(&self) -> u64 {
        self.request.seq_length + self.request.extra()
    }
    /// The request that it was built for.
    pub fn request(&self) -> &Request {
        &self.request
    }
    /// The arrays.
    pub fn indices(&self) -> &GptIndices {
        &self.indices
    }
    /// The underlying dataset.
    pub fn dataset(&self) -> &Dataset {
        &self.dataset
    }
    /// Sequences that belong to this part.
    pub fn documents(&self) -> Range<u64> {
        self.documents.clone()
    }
    /// The part.
    pub fn part(&self) -> Part {
        self.part
    }
    /// Tokens of the part, one epoch.
    pub fn epoch_tokens(&self) -> u64 {
        self.epoch_tokens
    }

    /// Calls `each` with the number of every sequence that sample `k` has tokens of, until it returns false.
    ///
    /// # Errors
    /// `Range` if there is no such sample.
    pub fn each_sequence(&self, k: u64, mut each: impl FnMut(u64) -> bool) -> Result<()> {
        let (mut position, mut offset) = self.start(k)?;
        let mut left = self.sample_tokens();
        while left > 0 {
            let Some(sequence) = self.indices.document_index.get(position) else {
                break;
            };
            let sequence = u64::from(sequence.unsigned_abs());
            let (_, length) = self.dataset.place(sequence)?;
            let taken = u64::from(length).saturating_sub(offset).min(left);
            if taken > 0 && !each(sequence) {
                break;
            }
            left -= taken;
            position += 1;
            offset = 0;
        }
        Ok(())
    }

    /// Position in the document index and token offset at which sample `k` in training order starts.
    fn start(&self, k: u64) -> Result<(usize, u64)> {
        let range = |what, index, len| Err(Error::Range { what, index, len });
        if k >= self.len() {
            return range("sample", k, self.len());
        }
        let j = self.indices.shuffle_index.at(index(k));
        let rows = self.indices.sample_index.rows();
        if j >= rows {
            return range("row of sample_index", j as u64, rows as u64);
        }
        Ok(self.indices.sample_index.row(j))
    }

    /// Fills `out` with sample `k` in training order; past the end of the data it gets [`PAD`].
    ///
    /// # Errors
    /// `Range` if there is no such sample or `out` is not [`GptSamples::sample_tokens`] long; as [`Dataset::read`].
    pub fn read(&self, k: u64, out: &mut [u32]) -> Result<()> {
        self.read_parts(k, out, |_| ())
    }

    /// Like [`GptSamples::read`]; calls `part` with the number of tokens from each document.
    fn read_parts(&self, k: u64, out: &mut [u32], mut part: impl FnMut(usize)) -> Result<()> {
        let (mut position, mut offset) = self.start(k)?;
        if out.len() as u64 != self.sample_tokens() {
            return Err(Error::Range {
                what: "tokens of a sample",
                index: out.len() as u64,
                len: self.sample_tokens(),
            });
        }
        let documents = &self.indices.document_index[..];
        let mut filled = 0;
        while filled < out.len() {
            let Some(document) = documents.get(position) else {
                out[filled..].fill(PAD);
                break;
            };
            let (first, length) = self.dataset.place(document.unsigned_abs().into())?;
            let n = index(u64::from(length).saturating_sub(offset)).min(out.len() - filled);
            let to = &mut out[filled..filled + n];
            self.dataset.tokens_at(first + offset, to)?;
            part(n);
            filled += n;
            position += 1;
            offset = 0;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
