//! The three index arrays of GPT samples, bit-equal to megatron-core's for any number of threads.
//!
//! For one dataset and part: T tokens per epoch, L tokens per sample, x = 1 if a sample has an extra token for the
//! shifted labels, else 0; N samples requested, or none for one epoch. E epochs = smallest with E T >= N L + x. If
//! E > 1, the last epoch is kept apart when it would give fewer than 80% of its samples. document_index = E copies
//! of the part's documents shuffled as one array (the kept-apart epoch separately); sample_index row k = (position
//! in document_index, token offset) where sample k starts; shuffle_index = a permutation of the samples. One
//! MT19937 stream, in that order, with the same seed for every dataset and part. Source: megatron-core 0.16.1
//! `gpt_dataset.py`, `helpers.cpp` (facts); checked against the package in tests/oracles. We differ: samples
//! requested from a part without tokens are an error (Megatron loops for ever); the sample index is built by all
//! threads while one shuffles the samples, since only the shuffles share a random stream.

use super::request::{Order, Places, Request, Sizes, Starts, index};
use super::walk;
use crate::array::Array;
use crate::error::{Error, Result};
use crate::numpy_random::RandomState;
use crate::split::Part;
use rayon::prelude::*;
use std::ops::Range;

/// The three index arrays of a part.
#[derive(Debug, PartialEq)]
pub struct GptIndices {
    /// Sequence numbers in the order of reading, all epochs.
    pub document_index: Array<i32>,
    /// Starts of the samples.
    pub sample_index: Starts,
    /// Shuffled order of the samples.
    pub shuffle_index: Places,
    /// The parameters that fix the order.
    pub order: Order,
}

impl GptIndices {
    /// Builds the three arrays for the sequences `documents`, with lengths from `length`; `name` and `part` are for
    /// errors.
    ///
    /// # Errors
    /// `EmptySplit` if samples are requested but the part has no tokens; `Blend` if sequence numbers leave 31 bits or L
    /// is 0; `Memory`.
    pub fn build<F: Fn(usize) -> u32 + Sync>(
        (name, part): (&str, Part),
        documents: Range<u64>,
        length: &F,
        request: &Request,
    ) -> Result<GptIndices> {
        let tokens = walk::tokens(&documents, length);
        let sizes = check((name, part), &documents, tokens, request)?;
        let Order {
            epochs,
            last_epoch_apart,
        } = sizes.order;
        let count = documents.end - documents.start;
        let mut document_index = Array::zeros("document_index", count * epochs)?;
        copies(document_index.as_mut(), documents.start, count);
        let mut random = RandomState::new(request.seed);
        let kept_apart = if last_epoch_apart { count } else { 0 };
        let (together, apart) = document_index
            .as_mut()
            .split_at_mut(index(count * epochs - kept_apart));
        random.shuffle(together);
        random.shuffle(apart);
        // the longest sequence always fits, so the number of positions decides
        let narrow = i32::try_from(document_index.len()).is_ok();
        let (starts, places) = rayon::join(
            || walk::starts(&document_index, length, &sizes, request, narrow),
            || places(&sizes, &mut random),
        );
        Ok(GptIndices {
            sample_index: starts?,
            shuffle_index: places?,
            document_index,
            order: sizes.order,
        })
    }

    /// Samples.
    pub fn len(&self) -> u64 {
        self.shuffle_index.len() as u64
    }

    /// Whether there are no samples.
    pub fn is_empty(&self) -> bool {
        self.shuffle_index.is_empty()
    }

    /// Bytes of the three arrays, equal to Megatron's.
    pub fn bytes(&self) -> u64 {
        (self.document_index.bytes().len()
            + self.sample_index.bytes().len()
            + self.shuffle_index.bytes().len()) as u64
    }
}

/// The sizes, or why there are none.
pub(crate) fn check(
    (name, part): (&str, Part),
    documents: &Range<u64>,
    tokens: u64,
    request: &Request,
) -> Result<Sizes> {
    let wrong = |field, found: String, wanted: String| {
        Err(Error::Blend {
            field,
            found: format!("{found} in {name}"),
            wanted,
        })
    };
    if i32::try_from(documents.end).is_err() {
        let wanted = format!("at most {}", i32::MAX);
        return wrong("sequences", documents.end.to_string(), wanted);
    }
    if request.seq_length == 0 || i32::try_from(request.seq_length).is_err() {
        let wanted = format!("1 to {}", i32::MAX);
        return wrong("seq_length", request.seq_length.to_string(), wanted);
    }
    if tokens == 0 && request.samples.is_some_and(|n| n > 0) {
        return Err(Error::EmptySplit {
            dataset: name.to_string(),
            split: part.name(),
            documents: documents.end - documents.start,
            tokens,
            samples: request.samples.unwrap_or(0),
            seq_length: request.seq_length,
        });
    }
    let Some(sizes) = Sizes::of(tokens, request) else {
        let asked = format!("{:?} samples of {tokens} tokens", request.samples);
        return wrong("samples", asked, "fewer than 2^62 tokens".into());
    };
    Ok(sizes)
}

/// Fills `out` with copies of start, start + 1, ..., start + count - 1.
fn copies(out: &mut [i32], start: u64, count: u64) {
    if count == 0 {
        return;
    }
    for epoch in out.chunks_mut(index(count)) {
        iota(epoch, start, |v| {
            i32::try_from(v).unwrap_or(i32::MAX) // checked: sequence numbers fit
        });
    }
}

/// `out[i]` = start + i, by all threads.
fn iota<T: Send>(out: &mut [T], start: u64, of: impl Fn(u64) -> T + Sync) {
    const CHUNK: usize = 1 << 18;
    out.par_chunks_mut(CHUNK)
        .enumerate()
        .for_each(|(c, chunk)| {
            let from = start + (c * CHUNK) as u64;
            for (v, o) in (from..).zip(chunk) {
                *o = of(v);
            }
        });
}

/// The permutation of the samples, in two parts if the last epoch is apart.
fn places(sizes: &Sizes, random: &mut RandomState) -> Result<Places> {
    let n = sizes.samples;
    let cut = index(sizes.before_last);
    if n < u64::from(u32::MAX - 1) {
        let mut out = Array::zeros("shuffle_index", n)?;
        iota(out.as_mut(), 0, |v| u32::try_from(v).unwrap_or(u32::MAX));
        let (first, last) = out.as_mut().split_at_mut(cut);
        random.shuffle(first);
        random.shuffle(last);
        return Ok(Places::Narrow(out));
    }
    let mut out = Array::zeros("shuffle_index", n)?;
    iota(out.as_mut(), 0, |v| i64::try_from(v).unwrap_or(i64::MAX));
    let (first, last) = out.as_mut().split_at_mut(cut);
    random.shuffle(first);
    random.shuffle(last);
    Ok(Places::Wide(out))
}
