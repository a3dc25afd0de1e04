//! The samples of `[blend]` in the trainer's form, and the plan that a blend makes of a job.

use super::blend::{Blended, PartSamples};
use crate::context::Context;
use anyhow::{Context as _, Result};
use index::sampler::Cyclic;
use index::samples::{BertItem, T5Item};
use index::split::Part;
use train::config::Plan;

/// The blend as the trainer's sample source: sequential, or shuffled every epoch.
pub(super) struct BlendSamples<'a>(pub &'a PartSamples, pub Option<Cyclic>);

impl train::data::Samples for BlendSamples<'_> {
    fn len(&self) -> u64 {
        match &self.1 {
            Some(_) => u64::MAX, // epoch after epoch
            None => self.0.len(),
        }
    }
    fn read(
        &self,
        index: u64,
        sample: &mut train::data::Sample,
    ) -> std::result::Result<(), Box<dyn std::error::Error + Send + Sync>> {
        let index = self.1.as_ref().map_or(index, |order| order.at(index));
        match self.0 {
            PartSamples::Text(samples) => samples.fill(index, sample.text()?)?,
            PartSamples::Masked(blend) => {
                if let Some(item) = blend.t5(index)? {
                    fill_spans(sample.spans()?, &item)?;
                } else if let Some(item) = blend.bert(index)? {
                    fill(sample.masked()?, &item)?;
                }
            }
        }
        Ok(())
    }
}

/// Converts a BERT sample. Padding is token 0 of segment 0; attention masks it.
fn fill(to: &mut train::data::MaskedSample, item: &BertItem) -> Result<()> {
    to.length = item.length;
    to.is_swapped = item.is_random;
    let ids = |from: &[i32], to: &mut [u32]| -> Result<()> {
        for (at, (to, from)) in to.iter_mut().zip(from).enumerate() {
            *to = if at < item.length {
                u32::try_from((*from).max(0))?
            } else {
                0
            };
        }
        Ok(())
    };
    ids(&item.text, &mut to.tokens)?;
    ids(&item.types, &mut to.segments)?;
    ids(&item.labels, &mut to.targets)?;
    for (counts, mask) in to.counts.iter_mut().zip(&item.loss_mask) {
        *counts = *mask == 1;
    }
    Ok(())
}

/// Converts a T5 sample.
fn fill_spans(to: &mut train::data::SpanSample, item: &T5Item) -> Result<()> {
    let ids = |from: &[i32], to: &mut [u32]| -> Result<()> {
        for (to, from) in to.iter_mut().zip(from) {
            *to = u32::try_from((*from).max(0))?;
        }
        Ok(())
    };
    to.length = item.enc_mask.iter().filter(|seen| **seen == 1).count();
    ids(&item.text_enc, &mut to.tokens)?;
    ids(&item.text_dec, &mut to.decoder_tokens)?;
    ids(&item.labels, &mut to.targets)?;
    for (counts, mask) in to.counts.iter_mut().zip(&item.loss_mask) {
        *counts = *mask == 1;
    }
    Ok(())
}

/// The plan of this job for an opened blend.
pub(super) fn plan(cx: &Context, blended: &Blended) -> Result<Plan> {
    let model = cx
        .job
        .model
        .as_ref()
        .context("the job has no [model] table")?;
    let train = cx
        .job
        .train
        .as_ref()
        .context("the job has no [train] table")?;
    let seq_length = cx.job.blend.as_ref().map_or(0, |b| b.seq_length);
    let print = blended.fingerprint(Part::Train);
    // published models have more embedding rows than their tokenizers have ids
    let found = cx.job.initial_model().and_then(Result::ok);
    let rows = found.map_or(0, |found| found.vocab);
    if blended.eod.is_none() {
        let asks = [
            ("reset_attention_mask", train.reset_attention_mask),
            ("reset_position_ids", train.reset_position_ids),
        ];
        let problems: Vec<String> = (asks.iter().filter(|(_, asks)| *asks))
            .map(|(key, _)| {
                format!("train.{key}: found true without an end-of-document token, want a tokenizer that has one")
            })
            .collect();
        if !problems.is_empty() {
            return Err(train::Error::Plan(problems).into());
        }
    }
    let ids = (blended.vocab.max(rows), blended.eod);
    let plan = cx.job.plan(model, train, seq_length, ids, print);
    let mut plan = Plan {
        start: blended.start,
        ..plan
    };
    if cx.job.blend.as_ref().is_some_and(|b| b.full_validation) {
        plan.train.eval_samples = super::blend::EVERY_SAMPLE;
    }
    Ok(plan)
}
