//! GPT samples: fixed-length windows over shuffled documents, bit-equal to megatron-core's `GPTDataset`.
//!
//! For one dataset and part: T tokens an epoch, L tokens a sample, one extra token x = 1 for the shifted labels.
//! E epochs = smallest with E T >= N L + x; if E > 1 the last epoch is kept apart when it would give fewer than 80% of
//! its samples; document_index = E copies of the part's documents shuffled as one array (the kept-apart epoch on its own);
//! sample_index row k = (position in document_index, token offset) where sample k starts; shuffle_index = a permutation
//! of the samples. One MT19937 stream, in that order, with the same seed for every dataset and part.
//! Source: megatron-core 0.16.1 `gpt_dataset.py`, `helpers.cpp` (facts); checked against the package in tests/oracles.

use crate::error::{Error, Result};
use crate::numpy_random::RandomState;
use crate::read::Dataset;
use crate::split::{self, Part};
use std::ops::Range;
use std::sync::Arc;

/// The extra token of a sample: labels are the tokens shifted by one.
const EXTRA: u64 = 1;

/// The three index arrays of a part.
#[derive(Debug, PartialEq, Eq)]
pub struct GptIndices {
    /// Sequence numbers in the order of reading, all epochs.
    pub document_index: Vec<i32>,
    /// Where each sample starts, and one row past the last: (position in `document_index`, token offset).
    pub sample_index: Vec<(u64, u64)>,
    /// Sample numbers in the order of training.
    pub shuffle_index: Vec<u64>,
    /// Epochs that the samples asked for need.
    pub epochs: u64,
}

/// What is asked of a part.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// L, tokens a sample.
    pub seq_length: u64,
    /// N, samples; `None` is one epoch.
    pub samples: Option<u64>,
    /// Seed of the shuffles.
    pub seed: u32,
}

impl GptIndices {
    /// Builds the three arrays for sequences `range` whose lengths `length` gives.
    ///
    /// # Errors
    /// `None` if the part holds no tokens but samples are asked for.
    pub fn build(
        range: Range<u64>,
        length: &dyn Fn(usize) -> u32,
        request: &Request,
    ) -> Option<GptIndices> {
        let l = request.seq_length;
        let tokens: u64 = range.clone().map(|i| u64::from(length(index(i)))).sum();
        let epochs = match request.samples {
            None => 1,
            Some(n) if tokens == 0 => return (n == 0).then(GptIndices::empty),
            Some(n) => (n * l + EXTRA).div_ceil(tokens).max(1),
        };
        let apart = request
            .samples
            .is_some_and(|n| last_epoch_is_apart(n, epochs, tokens, l));
        let mut random = RandomState::new(request.seed);
        let mut document_index = Vec::new();
        let copies = |n: u64, out: &mut Vec<i32>| {
            (0..n).for_each(|_| {
                out.extend(range.clone().map(|i| i32::try_from(i).unwrap_or(i32::MAX)));
            });
        };
        copies(if apart { epochs - 1 } else { epochs }, &mut document_index);
        random.shuffle(&mut document_index);
        if apart {
            let from = document_index.len();
            copies(1, &mut document_index);
            random.shuffle(&mut document_index[from..]);
        }
        let total = (epochs * tokens).saturating_sub(EXTRA) / l;
        let sample_index = sample_index(&document_index, length, total, l);
        let mut shuffle_index: Vec<u64> = (0..total).collect();
        let cut = if apart {
            index(((epochs - 1) * tokens - EXTRA) / l)
        } else {
            index(total)
        };
        random.shuffle(&mut shuffle_index[..cut]);
        random.shuffle(&mut shuffle_index[cut..]);
        Some(GptIndices {
            document_index,
            sample_index,
            shuffle_index,
            epochs,
        })
    }

    fn empty() -> GptIndices {
        GptIndices {
            document_index: Vec::new(),
            sample_index: vec![(0, 0)],
            shuffle_index: Vec::new(),
            epochs: 1,
        }
    }

    /// Samples.
    pub fn len(&self) -> u64 {
        self.shuffle_index.len() as u64
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.shuffle_index.is_empty()
    }

    /// The arrays as Megatron stores them, little-endian: document_index i32, sample_index i32 pairs (i64 if a value
    /// could pass 2^31 - 1), shuffle_index u32 (i64 from 2^32 - 2 samples on).
    pub fn megatron_bytes(&self, longest_sequence: u64) -> [Vec<u8>; 3] {
        let documents = self
            .document_index
            .iter()
            .flat_map(|d| d.to_le_bytes())
            .collect();
        let most = longest_sequence.max(self.document_index.len() as u64);
        let pairs = self.sample_index.iter().flat_map(|(d, o)| [*d, *o]);
        let samples = match i32::try_from(most) {
            Ok(_) => pairs
                .flat_map(|v| (v & 0xffff_ffff).to_le_bytes()[..4].to_vec())
                .collect(),
            Err(_) => pairs.flat_map(u64::to_le_bytes).collect(),
        };
        let order = self.shuffle_index.iter();
        let shuffle = if self.len() < u64::from(u32::MAX - 1) {
            order.flat_map(|v| v.to_le_bytes()[..4].to_vec()).collect()
        } else {
            order.flat_map(|v| v.to_le_bytes()).collect()
        };
        [documents, samples, shuffle]
    }
}

/// Numbers that index arrays in memory fit `usize`.
fn index(i: u64) -> usize {
    usize::try_from(i).unwrap_or(usize::MAX)
}

/// Megatron's 80% rule.
fn last_epoch_is_apart(samples: u64, epochs: u64, tokens: u64, l: u64) -> bool {
    if epochs == 1 {
        return false;
    }
    let before = ((epochs - 1) * tokens - EXTRA) / l;
    let an_epoch = (tokens - EXTRA) / l;
    let from_last = samples.saturating_sub(before);
    // int(0.80 * n) in f64, as Python computes it; n is far below 2^53
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "0 <= x < 2^53"
    )]
    let threshold = (0.80 * an_epoch as f64) as u64;
    from_last < threshold
}

/// Where every sample starts; a sample takes L + 1 tokens and gives the last one back to the next.
fn sample_index(
    documents: &[i32],
    length: &dyn Fn(usize) -> u32,
    samples: u64,
    l: u64,
) -> Vec<(u64, u64)> {
    let mut rows = Vec::with_capacity(index(samples) + 1);
    let (mut position, mut offset) = (0usize, 0u64);
    rows.push((0, 0));
    let of = |p: usize| u64::from(length(index(u64::from(documents[p].unsigned_abs()))));
    for _ in 0..samples {
        let mut wanted = l + EXTRA;
        loop {
            let left = of(position) - offset;
            if wanted <= left {
                offset += wanted - EXTRA;
                break;
            }
            wanted -= left;
            if position + 1 == documents.len() {
                offset = of(position) - EXTRA;
                break;
            }
            position += 1;
            offset = 0;
        }
        rows.push((position as u64, offset));
    }
    rows
}

/// One part of one dataset as samples.
pub struct GptSamples {
    dataset: Arc<Dataset>,
    part: Part,
    seq_length: u64,
    documents: Range<u64>,
    indices: GptIndices,
}

impl GptSamples {
    /// Builds the indices of `part` with bounds from [`split::parse`].
    ///
    /// # Errors
    /// `EmptySplit` where Megatron would loop for ever; `Blend` if the dataset has more sequences than fit an i32.
    pub fn new(
        dataset: Arc<Dataset>,
        part: Part,
        bounds: (f64, f64),
        request: &Request,
    ) -> Result<GptSamples> {
        let documents = split::elements(bounds, dataset.sequences());
        if i32::try_from(dataset.sequences()).is_err() {
            return Err(Error::Blend {
                field: "sequences",
                found: format!("{} in {}", dataset.sequences(), dataset.prefix().display()),
                wanted: format!("at most {}", i32::MAX),
            });
        }
        let length = |i: usize| dataset.length(i);
        let Some(indices) = GptIndices::build(documents.clone(), &length, request) else {
            let tokens = documents
                .clone()
                .map(|i| u64::from(dataset.length(index(i))))
                .sum();
            return Err(Error::EmptySplit {
                dataset: dataset.prefix().display().to_string(),
                split: part.name(),
                documents: documents.end - documents.start,
                tokens,
                samples: request.samples.unwrap_or(0),
                seq_length: request.seq_length,
            });
        };
        Ok(GptSamples {
            dataset,
            part,
            seq_length: request.seq_length,
            documents,
            indices,
        })
    }

    /// Samples.
    pub fn len(&self) -> u64 {
        self.indices.len()
    }
    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.indices.is_empty()
    }
    /// L, tokens a sample (one less than [`GptSamples::read`] fills).
    pub fn seq_length(&self) -> u64 {
        self.seq_length
    }
    /// The arrays.
    pub fn indices(&self) -> &GptIndices {
        &self.indices
    }
    /// The dataset behind.
    pub fn dataset(&self) -> &Dataset {
        &self.dataset
    }
    /// Sequences that belong to this part.
    pub fn documents(&self) -> Range<u64> {
        self.documents.clone()
    }
    /// Which part.
    pub fn part(&self) -> Part {
        self.part
    }
    /// Tokens of the part, one epoch.
    pub fn epoch_tokens(&self) -> u64 {
        self.documents
            .clone()
            .map(|i| u64::from(self.dataset.length(index(i))))
            .sum()
    }
    /// The longest sequence of the whole dataset (decides a width in Megatron's cache files).
    pub fn longest_sequence(&self) -> u64 {
        (0..index(self.dataset.sequences()))
            .map(|i| self.dataset.length(i))
            .max()
            .unwrap_or(0)
            .into()
    }

    /// Fills `out` (L + 1 tokens) with sample `k` in training order.
    ///
    /// # Errors
    /// `Range` if there is no such sample or `out` has another length.
    pub fn read(&self, k: u64, out: &mut [u32]) -> Result<()> {
        let wanted = self.seq_length + EXTRA;
        if k >= self.len() || out.len() as u64 != wanted {
            let what = if k >= self.len() {
                "sample"
            } else {
                "tokens of a sample"
            };
            let (index, len) = if k >= self.len() {
                (k, self.len())
            } else {
                (out.len() as u64, wanted)
            };
            return Err(Error::Range { what, index, len });
        }
        let j = index(self.indices.shuffle_index[index(k)]);
        let (mut position, mut offset) = self.indices.sample_index[j];
        let mut filled = 0;
        while filled < out.len() {
            let document = self.indices.document_index[index(position)].unsigned_abs() as usize;
            let left = index(u64::from(self.dataset.length(document)) - offset);
            let n = left.min(out.len() - filled);
            self.dataset
                .read(document, offset, &mut out[filled..filled + n]);
            filled += n;
            position += 1;
            offset = 0;
        }
        Ok(())
    }
}

#[cfg(test)]
#[expect(clippy::cast_possible_truncation, reason = "small numbers")]
mod tests {
    use super::*;

    #[test]
    fn consecutive_samples_share_one_token_and_cover_every_document() {
        let lengths = [5u32, 1, 7, 3, 9];
        let length = |i: usize| lengths[i];
        let request = Request {
            seq_length: 4,
            samples: None,
            seed: 1,
        };
        let g = GptIndices::build(0..5, &length, &request).unwrap();
        let stream: Vec<(i32, u32)> = g
            .document_index
            .iter()
            .flat_map(|&d| (0..lengths[d as usize]).map(move |o| (d, o)))
            .collect();
        assert_eq!(g.len(), (25 - 1) / 4);
        for (k, row) in g.sample_index.iter().enumerate() {
            let (d, o) = stream[4 * k];
            assert_eq!(
                (g.document_index[row.0 as usize], row.1 as u32),
                (d, o),
                "row {k}"
            );
        }
    }

    #[test]
    fn an_empty_part_is_refused_and_nothing_asked_is_fine() {
        let length = |_: usize| 3u32;
        let ask = |n| Request {
            seq_length: 4,
            samples: n,
            seed: 1,
        };
        assert!(GptIndices::build(7..7, &length, &ask(Some(1))).is_none());
        assert!(
            GptIndices::build(7..7, &length, &ask(Some(0)))
                .unwrap()
                .is_empty()
        );
    }

    #[test]
    fn more_samples_within_an_epoch_keep_the_order() {
        let length = |i: usize| (i % 17 + 1) as u32;
        let ask = |n| Request {
            seq_length: 8,
            samples: Some(n),
            seed: 9,
        };
        let a = GptIndices::build(0..400, &length, &ask(10)).unwrap();
        let b = GptIndices::build(0..400, &length, &ask(300)).unwrap();
        assert_eq!(a.shuffle_index, b.shuffle_index);
        let c = GptIndices::build(0..400, &length, &ask(600)).unwrap();
        assert_ne!(a.shuffle_index[..10], c.shuffle_index[..10]);
    }
}
