//! Samples in, token tensors out. Training never opens a data file: the samples come through a
//! trait, already in the order in which they are to be used.
//!
//! A step's loss is the mean over the tokens that count in its whole batch, not over those of a
//! micro-batch or a rank: no layout changes it (Megatron's `calculate_per_token_loss`).

use std::error::Error as StdError;
use std::ops::Range;

use kernels::{DType, Device, Tensor};
use serde::Serialize;

use crate::error::{Error, OnRank, Result};
use crate::mesh::Place;
use crate::model::context::Documents;
use crate::plan::Plan;

/// Sequences of tokens by their place in the global order (0, 1, 2, ...: the order of Megatron's
/// `single` sampler). Called from several threads at once.
pub trait Samples: Sync {
    /// Number of samples.
    fn len(&self) -> u64;

    /// True if there is none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Fills `sample`, which the trainer has made for its model, with sample `index`. What it held
    /// before is any other sample.
    ///
    /// # Errors
    /// Whatever keeps the source from giving the sample; it ends the run.
    fn read(
        &self,
        index: u64,
        sample: &mut Sample,
    ) -> std::result::Result<(), Box<dyn StdError + Send + Sync>>;
}

/// What a model learns from at once. The trainer makes one of the right kind and sizes; a source
/// that has samples of another kind answers with an error.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Sample {
    /// For a decoder.
    Text(TextSample),
}

/// A run of text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TextSample {
    /// `seq_length + 1` tokens; each but the first is predicted from those before it.
    pub tokens: Vec<u32>,
    /// For each token but the first: whether its prediction counts in the loss. All do at first.
    pub counts: Vec<bool>,
}

impl Sample {
    /// The text to fill, for sources of text.
    ///
    /// # Errors
    /// `SampleKind` if the model learns from other samples.
    pub fn text(&mut self) -> Result<&mut TextSample> {
        let Sample::Text(text) = self;
        Ok(text)
    }

    /// A sample for the model of `plan`.
    pub fn of(plan: &Plan) -> Sample {
        let t = plan.seq_length;
        Sample::Text(TextSample {
            tokens: vec![0; t + 1],
            counts: vec![true; t],
        })
    }

    /// Whether each token's prediction counts.
    fn counts(&self) -> &[bool] {
        match self {
            Sample::Text(text) => &text.counts,
        }
    }

    /// Position and id of the first token that is not below `vocab`.
    fn unknown(&self, vocab: usize) -> Option<(usize, u32)> {
        let Sample::Text(TextSample { tokens, .. }) = self;
        let at = tokens.iter().position(|&id| id as usize >= vocab)?;
        Some((at, tokens[at]))
    }
}

/// What one rank needs of a micro-batch: of each sequence the tokens of its context-parallel rank,
/// `[n]` in all. A rank has what its pieces of the model read.
pub(crate) struct Batch {
    /// Ids, for the first piece.
    pub inputs: Option<Tensor>,
    /// For the last piece.
    pub targets: Option<Targets>,
    /// Predictions of the whole sequences that count in the loss.
    pub counted: usize,
    /// Where documents end, if the model is to know.
    pub documents: Option<Documents>,
}

/// What is to be predicted.
pub(crate) struct Targets {
    /// `[n]`
    pub ids: Tensor,
    /// `[n]`, 1 where the prediction counts, else 0.
    pub counts: Tensor,
}

/// Reads samples `[first + range.start, first + range.end)`.
pub(crate) fn read(
    samples: &dyn Samples,
    first: u64,
    range: Range<usize>,
    plan: &Plan,
    (device, place): (&Device, &Place),
) -> Result<Batch> {
    let time = plan.seq_length / place.cp;
    let from = place.cp_rank * time;
    let n = range.len() * time;
    let room = |is_needed: bool, dtype| {
        let tensor = is_needed.then(|| Tensor::empty(&[n], dtype, device));
        tensor.transpose().on_rank(place.rank(), "allocate a batch")
    };
    let is_last = place.is_last_stage();
    let mut inputs = room(place.is_first_stage(), DType::U32)?;
    let (mut ids, mut counts) = (room(is_last, DType::U32)?, room(is_last, DType::F32)?);
    let mut counted = 0;
    let mut sample = Sample::of(plan);
    let mut documents = Documents::asked_for(plan);
    for (at, offset) in range.enumerate() {
        read_one(samples, first + offset as u64, plan, &mut sample)?;
        counted += sample.counts().iter().filter(|&&counts| counts).count();
        let Sample::Text(text) = &sample;
        let rows = at * time..(at + 1) * time;
        if let Some(documents) = &mut documents {
            let tokens = &text.tokens[..plan.seq_length];
            documents.push(tokens, plan.eod, from..from + time);
        }
        if let Some(inputs) = &mut inputs {
            inputs.u32_mut()[rows.clone()].copy_from_slice(&text.tokens[from..from + time]);
        }
        if let (Some(ids), Some(counts)) = (&mut ids, &mut counts) {
            ids.u32_mut()[rows.clone()].copy_from_slice(&text.tokens[from + 1..from + time + 1]);
            let here = &text.counts[from..from + time];
            for (weight, &counts) in counts.f32_mut()[rows].iter_mut().zip(here) {
                *weight = f32::from(u8::from(counts));
            }
        }
    }
    let targets = ids.zip(counts);
    Ok(Batch {
        inputs,
        targets: targets.map(|(ids, counts)| Targets { ids, counts }),
        counted,
        documents,
    })
}

/// Reads a sample and refuses one that the model of `plan` cannot take.
fn read_one(samples: &dyn Samples, index: u64, plan: &Plan, sample: &mut Sample) -> Result<()> {
    let Sample::Text(text) = sample;
    text.counts.fill(true); // sources need not say what is usual
    let read = samples.read(index, sample);
    read.map_err(|source| Error::Sample {
        sample: index,
        source,
    })?;
    if let Some((position, found)) = sample.unknown(plan.vocab) {
        let vocab = plan.vocab;
        return Err(Error::Token {
            sample: index,
            position,
            found,
            vocab,
        });
    }
    let Sample::Text(text) = sample;
    if let (true, Some(eod)) = (plan.train.eod_mask_loss, plan.eod) {
        let ends = text.tokens.iter().map(|&token| token == eod);
        for (counts, is_end) in text.counts.iter_mut().zip(ends) {
            *counts &= !is_end;
        }
    }
    Ok(())
}
