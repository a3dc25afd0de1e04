//! The three index arrays of GPT samples, bit-equal to megatron-core's for any number of threads.
//!
//! For one dataset and part: T tokens an epoch, L tokens a sample, x = 1 if a sample has an extra token for the shifted
//! labels, else 0; N samples asked for, or none for one epoch.
//! E epochs = smallest with E T >= N L + x. If E > 1, the last epoch is kept apart when it would give fewer than 80% of
//! its samples. document_index = E copies of the part's documents shuffled as one array (the kept-apart epoch on its
//! own); sample_index row k = (position in document_index, token offset) where sample k starts; shuffle_index = a
//! permutation of the samples. One MT19937 stream, in that order, with the same seed for every dataset and part.
//! Source: megatron-core 0.16.1 `gpt_dataset.py`, `helpers.cpp` (facts); checked against the package in tests/oracles.
//! We differ: a part without tokens of which samples are asked is an error (Megatron loops for ever); the sample index is
//! built by all threads while one shuffles the samples, since only the shuffles share a random stream.

use super::walk;
use crate::array::Array;
use crate::error::{Error, Result};
use crate::numpy_random::RandomState;
use crate::split::Part;
use rayon::prelude::*;
use std::ops::Range;

/// What is asked of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// L, tokens a sample.
    pub seq_length: u64,
    /// N, samples; `None` is one epoch.
    pub samples: Option<u64>,
    /// Seed of the shuffles.
    pub seed: u32,
    /// Whether a sample is L + 1 tokens, so that its labels are its tokens shifted by one. Megatron's
    /// `add_extra_token_to_sequence`, on by default there.
    pub extra_token: bool,
    /// Whether tokens that do not fill a last sample are dropped; if not, that sample is padded. Megatron pads only
    /// validation samples, and only if told to.
    pub drop_last: bool,
}

impl Request {
    /// Megatron's defaults for `samples` samples (`None`: one epoch) of `seq_length` tokens.
    pub fn of(seq_length: u64, samples: Option<u64>, seed: u32) -> Request {
        Request {
            seq_length,
            samples,
            seed,
            extra_token: true,
            drop_last: true,
        }
    }

    /// x.
    pub(super) fn extra(&self) -> u64 {
        u64::from(self.extra_token)
    }
}

/// What fixes the order of a part's samples, besides its documents and the request's seed and lengths: two requests with
/// equal orders give the same sample at every place that both have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Order {
    /// E.
    pub epochs: u64,
    /// Whether the last epoch is shuffled on its own.
    pub last_epoch_apart: bool,
}

/// Where each sample starts, and one row past the last: (position in `document_index`, token offset).
#[derive(Debug, PartialEq)]
pub enum Starts {
    /// Megatron's choice while every number fits 31 bits.
    Narrow(Array<[i32; 2]>),
    /// Otherwise.
    Wide(Array<[i64; 2]>),
}

/// Sample numbers in the order of training.
#[derive(Debug, PartialEq)]
pub enum Places {
    /// Megatron's choice below 2^32 - 2 samples.
    Narrow(Array<u32>),
    /// Otherwise.
    Wide(Array<i64>),
}

impl Starts {
    /// Rows.
    pub fn rows(&self) -> usize {
        match self {
            Starts::Narrow(a) => a.len(),
            Starts::Wide(a) => a.len(),
        }
    }

    /// Row `i` as (position, offset).
    #[inline]
    pub fn row(&self, i: usize) -> (usize, u64) {
        match self {
            Starts::Narrow(a) => (
                a[i][0].unsigned_abs() as usize,
                a[i][1].unsigned_abs().into(),
            ),
            Starts::Wide(a) => (index(a[i][0].unsigned_abs()), a[i][1].unsigned_abs()),
        }
    }

    /// As Megatron stores them.
    pub fn bytes(&self) -> &[u8] {
        match self {
            Starts::Narrow(a) => a.bytes(),
            Starts::Wide(a) => a.bytes(),
        }
    }
}

impl Places {
    /// Samples.
    pub fn len(&self) -> usize {
        match self {
            Places::Narrow(a) => a.len(),
            Places::Wide(a) => a.len(),
        }
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The sample at place `k`.
    #[inline]
    pub fn at(&self, k: usize) -> usize {
        match self {
            Places::Narrow(a) => a[k] as usize,
            Places::Wide(a) => index(a[k].unsigned_abs()),
        }
    }

    /// As Megatron stores them.
    pub fn bytes(&self) -> &[u8] {
        match self {
            Places::Narrow(a) => a.bytes(),
            Places::Wide(a) => a.bytes(),
        }
    }
}

/// The three index arrays of a part.
#[derive(Debug, PartialEq)]
pub struct GptIndices {
    /// Sequence numbers in the order of reading, all epochs.
    pub document_index: Array<i32>,
    /// Where the samples start.
    pub sample_index: Starts,
    /// Which sample comes when.
    pub shuffle_index: Places,
    /// What fixed the order.
    pub order: Order,
}

/// The numbers that follow from T and the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sizes {
    /// Epochs and whether the last is apart.
    pub(crate) order: Order,
    /// Samples before the last epoch; the cut of `shuffle_index` if that is apart.
    pub(crate) before_last: u64,
    /// Samples.
    pub(crate) samples: u64,
    /// E T.
    pub(crate) tokens: u64,
}

/// Numbers that index arrays in memory fit `usize`.
pub(super) fn index(i: u64) -> usize {
    usize::try_from(i).unwrap_or(usize::MAX)
}

impl Sizes {
    /// For `tokens` an epoch; `None` if there are none but samples are asked for, or numbers leave 63 bits.
    pub(crate) fn of(tokens: u64, r: &Request) -> Option<Sizes> {
        let (l, x) = (r.seq_length, r.extra());
        let epochs = match r.samples {
            None | Some(0) => 1,
            Some(_) if tokens == 0 => return None,
            Some(n) => n.checked_mul(l)?.checked_add(x)?.div_ceil(tokens).max(1),
        };
        let all = epochs.checked_mul(tokens).filter(|t| *t < 1 << 62)?;
        let before_last = ((epochs - 1) * tokens).saturating_sub(x) / l;
        let last_epoch_apart = match r.samples {
            Some(n) if epochs > 1 => {
                let an_epoch = tokens.saturating_sub(x) / l;
                // int(0.80 * n) in f64, as Python computes it; n is far below 2^53
                #[expect(
                    clippy::cast_possible_truncation,
                    clippy::cast_sign_loss,
                    reason = "0 <= x < 2^53"
                )]
                let threshold = (0.80 * an_epoch as f64) as u64;
                n.saturating_sub(before_last) < threshold
            }
            _ => false,
        };
        let usable = all.saturating_sub(x);
        let samples = if r.drop_last {
            usable / l
        } else {
            // the C++ code divides in 32 bits, and the count must be its count
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "0 <= x < 2^62"
            )]
            let rounded = (usable as f32 / l as f32).ceil() as u64;
            rounded
        };
        Some(Sizes {
            order: Order {
                epochs,
                last_epoch_apart,
            },
            before_last: if last_epoch_apart {
                before_last
            } else {
                samples
            },
            samples,
            tokens: all,
        })
    }
}

impl GptIndices {
    /// Builds the three arrays for sequences `documents` whose lengths `length` gives; `name` and `part` are for errors.
    ///
    /// # Errors
    /// `EmptySplit` if the part holds no tokens but samples are asked for; `Blend` if sequence numbers leave 31 bits or L
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

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.shuffle_index.is_empty()
    }

    /// Bytes of the three arrays, which are Megatron's bytes.
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

/// `out` = count, count + 1, ... again and again.
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

/// The permutation of the samples, in two halves if the last epoch is apart.
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
