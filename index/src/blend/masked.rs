//! Blend of BERT or T5 samples from several datasets of sentences, mixed by weight as texts are.
//!
//! A single dataset is used directly: whole epochs of its sample index. Of several datasets, target_d = ceil(size
//! w_d) samples are planned, ceil(target_d (1 + surplus)) built, and the dataset at each position is chosen by the
//! weighted rule of `order.rs`. Source: megatron-core 0.16.1 `blended_megatron_dataset_builder.py` with
//! `BERTMaskedWordPieceDataset` and `T5MaskedWordPieceDataset`.

use super::parts::{bounds_of, each_part, place};
use super::{Columns, Source, weighted_order, weights};
use crate::cache::Cache;
use crate::error::{Error, Result};
use crate::samples::{
    BertItem, BertSamples, MaskTokens, MaskedRequest, Masking, T5Item, T5Samples,
};
use crate::split::{Bounds, Part};
use std::sync::Arc;

/// Model that the samples are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MaskedKind {
    /// BERT: the second segment swapped with the first in half of the samples, if it has a head for that.
    Bert {
        /// Samples have two segments whose order the model predicts (next-sentence prediction).
        classification_head: bool,
    },
    /// T5: spans to be written by a decoder of this length.
    T5 {
        /// Tokens of the decoder.
        decoder_length: u32,
    },
}

/// Request for a blend of masked samples.
pub struct MaskedBlendRequest<'a> {
    /// Datasets of train, valid and test: three times the same if `split` divides them. Empty: no such part.
    pub sources: [&'a [Source]; 3],
    /// Split string; `None` if every part has separate datasets.
    pub split: Option<&'a str>,
    /// Samples of train, valid, test; 0 no such part.
    pub samples: [u64; 3],
    /// Samples built beyond those planned, as a share.
    pub surplus: f64,
    /// Tokens of a sample; for T5 those of the encoder.
    pub seq_length: u32,
    /// Seed of mapping, masking and shuffles.
    pub seed: u32,
    /// Masking settings.
    pub masking: Masking,
    /// The vocabulary.
    pub tokens: Arc<MaskTokens>,
    /// The model.
    pub kind: MaskedKind,
    /// Cache of index arrays.
    pub cache: Option<&'a Cache>,
}

/// Samples of one dataset.
enum Set {
    Bert(BertSamples),
    T5(T5Samples),
}

impl Set {
    fn len(&self) -> u64 {
        match self {
            Set::Bert(samples) => samples.len(),
            Set::T5(samples) => samples.len(),
        }
    }

    fn epochs(&self) -> u64 {
        match self {
            Set::Bert(samples) => samples.epochs(),
            Set::T5(samples) => samples.epochs(),
        }
    }
}

/// One part.
pub struct MaskedBlend {
    part: Part,
    weights: Vec<f64>,
    sets: Vec<Set>,
    columns: Option<Columns>,
}

/// Builds train, valid and test; `None` for a part whose ratio, datasets or requested samples are none.
///
/// # Errors
/// `Split`, `Blend` (weights, masking, a part without a usable document), `Several` of them.
pub fn build(request: &MaskedBlendRequest) -> Result<[Option<MaskedBlend>; 3]> {
    let is_asked = |i: usize| !request.sources[i].is_empty() && request.samples[i] > 0;
    each_part(bounds_of(request.split)?, is_asked, |part, bounds| {
        MaskedBlend::new(request, part, bounds)
    })
}

impl MaskedBlend {
    fn new(r: &MaskedBlendRequest, part: Part, bounds: Bounds) -> Result<MaskedBlend> {
        let (sources, asked) = (r.sources[part as usize], r.samples[part as usize]);
        let set = |source: &Source, samples: u64| {
            let request = MaskedRequest {
                dataset: source.0.clone(),
                part,
                bounds,
                seq_length: r.seq_length,
                samples,
                seed: r.seed,
                masking: r.masking,
                tokens: r.tokens.clone(),
                cache: r.cache,
            };
            Ok(match r.kind {
                MaskedKind::Bert {
                    classification_head,
                } => Set::Bert(BertSamples::new(&request, classification_head)?),
                MaskedKind::T5 { decoder_length } => {
                    Set::T5(T5Samples::new(&request, decoder_length)?)
                }
            })
        };
        if let [source] = sources {
            return Ok(MaskedBlend {
                part,
                weights: vec![1.0],
                sets: vec![set(source, asked)?],
                columns: None,
            });
        }
        let given: Vec<f64> = sources.iter().map(|source| source.1).collect();
        let shares = weights::normalise(&given)?;
        let targets = weights::targets(&shares, asked);
        let built = targets.iter().map(|t| weights::with_surplus(*t, r.surplus));
        let (mut sets, mut problems) = (Vec::new(), Vec::new());
        for (source, samples) in sources.iter().zip(built) {
            match set(source, samples) {
                Ok(built) => sets.push(built),
                Err(e) => problems.push(e),
            }
        }
        Error::join(problems)?;
        let shares = weights::normalise(&shares)?;
        Ok(MaskedBlend {
            part,
            columns: Some(weighted_order(&shares, targets.iter().sum())?),
            weights: shares,
            sets,
        })
    }

    /// Samples.
    pub fn len(&self) -> u64 {
        match &self.columns {
            Some((d, _)) => d.len() as u64,
            None => self.sets.iter().map(Set::len).sum(),
        }
    }
    /// Whether it has no samples.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// The part.
    pub fn part(&self) -> Part {
        self.part
    }
    /// Normalised weights, one per dataset.
    pub fn weights(&self) -> &[f64] {
        &self.weights
    }

    /// Epochs of each dataset's documents that `taken` samples amount to: samples are shuffled over all epochs
    /// built, so this is their share of those epochs.
    pub fn epochs(&self, taken: &[u64]) -> Vec<f64> {
        let sets = self.sets.iter().zip(taken);
        sets.map(|(set, taken)| *taken as f64 * set.epochs() as f64 / set.len().max(1) as f64)
            .collect()
    }

    /// Dataset and its sample at place `k`.
    ///
    /// # Errors
    /// `Range`.
    pub fn place(&self, k: u64) -> Result<(usize, u64)> {
        place(self.columns.as_ref(), self.sets.len(), self.len(), k)
    }

    /// Sample `k` of BERT, `None` if these are T5's.
    ///
    /// # Errors
    /// As [`BertSamples::item`].
    pub fn bert(&self, k: u64) -> Result<Option<BertItem>> {
        let (d, sample) = self.place(k)?;
        match &self.sets[d] {
            Set::Bert(samples) => samples.item(sample).map(Some),
            Set::T5(_) => Ok(None),
        }
    }

    /// Sample `k` of T5, `None` if these are BERT's.
    ///
    /// # Errors
    /// As [`T5Samples::item`].
    pub fn t5(&self, k: u64) -> Result<Option<T5Item>> {
        let (d, sample) = self.place(k)?;
        match &self.sets[d] {
            Set::T5(samples) => samples.item(sample).map(Some),
            Set::Bert(_) => Ok(None),
        }
    }
}
