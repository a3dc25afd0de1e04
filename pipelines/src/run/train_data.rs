//! Data of a training: the samples of `[blend]`, the labelled texts of `[classify]`, or the conversations of `[finetune]`.

use super::blend::{Blended, table_of};
use super::blend_samples::{BlendSamples, plan};
use super::chat_data::ChatData;
use super::labelled::LabelledData;
use crate::context::Context;
use crate::job::{Job, WrongUse};
use anyhow::Result;
use index::split::Part;
use serde_json::Value;
use train::config::Plan;
use train::data::Samples;
use train::trainer::ValidationSet;

/// The data of a job, opened.
pub(super) enum TrainData {
    Blend(Box<Blended>),
    Labelled(Box<LabelledData>),
    Chats(Box<ChatData>),
}

/// Refuses a job that has nothing to train, or nothing to train on, before anything is written.
///
/// # Errors
/// `WrongUse` with the table that is missing.
pub(crate) fn expect_training(job: &Job) -> Result<(), WrongUse> {
    if job.finetune.is_none() && job.classify.is_none() {
        table_of(job)?;
    }
    match (&job.model, &job.train) {
        (Some(_), Some(_)) => Ok(()),
        (model, _) => {
            let missing = if model.is_none() { "model" } else { "train" };
            Err(WrongUse::new(format!(
                "the job has no [{missing}] table; `millrace new pretrain DIR --from DATA` writes a job with one, and \
                 `millrace explain {missing}` describes it"
            )))
        }
    }
}

impl TrainData {
    pub(super) fn open(cx: &Context) -> Result<TrainData> {
        Ok(match (&cx.job.finetune, &cx.job.classify) {
            (Some(table), _) => TrainData::Chats(Box::new(ChatData::open(cx, table)?)),
            (None, Some(table)) => TrainData::Labelled(Box::new(LabelledData::open(cx, table)?)),
            (None, None) => TrainData::Blend(Box::new(Blended::open(cx)?)),
        })
    }

    /// The plan of this job for the data.
    pub(super) fn plan(&self, cx: &Context) -> Result<Plan> {
        match (self, &cx.job.classify) {
            (TrainData::Labelled(data), Some(table)) => data.plan(cx, table),
            (TrainData::Blend(blended), _) => plan(cx, blended),
            (TrainData::Chats(data), _) => match &cx.job.finetune {
                Some(table) => data.plan(cx, table),
                None => unreachable!("the table was there to open the data"),
            },
            (TrainData::Labelled(_), None) => unreachable!("the table was there to open the data"),
        }
    }

    /// Settings and identities that fix the order of the training samples.
    pub(super) fn order(&self) -> &Value {
        match self {
            TrainData::Blend(blended) => &blended.orders[Part::Train as usize],
            TrainData::Labelled(data) => &data.order,
            TrainData::Chats(data) => &data.order,
        }
    }

    /// Prepares the job's folder for a training: its readers find the tokenizer there.
    pub(super) fn prepare(&self, cx: &Context) -> Result<()> {
        match (self, &cx.job.classify) {
            (TrainData::Labelled(_), Some(table)) => LabelledData::keep_tokenizer(cx, table),
            (TrainData::Chats(data), _) => data.keep_files(cx),
            _ => Ok(()),
        }
    }

    /// A log line on data that is read for more than one epoch; None if there is none.
    pub(super) fn repeated(&self, cx: &Context) -> Result<Option<String>> {
        match self {
            TrainData::Blend(blended) => super::blend::repeated(cx, blended),
            TrainData::Labelled(_) | TrainData::Chats(_) => Ok(None),
        }
    }

    /// Calls `train` with the training samples and the validation sets.
    pub(super) fn with_samples<T>(
        &self,
        cx: &Context,
        train: impl FnOnce(&dyn Samples, &[ValidationSet<'_>]) -> Result<T>,
    ) -> Result<T> {
        match self {
            TrainData::Labelled(data) => {
                let sets = data.valid.iter();
                let sets: Vec<ValidationSet<'_>> = sets
                    .map(|(name, samples)| ValidationSet { name, samples })
                    .collect();
                train(data.train(), &sets)
            }
            TrainData::Chats(data) => {
                let sets = data.valid.iter();
                let sets: Vec<ValidationSet<'_>> = sets
                    .map(|(name, samples)| ValidationSet { name, samples })
                    .collect();
                train(data.train(), &sets)
            }
            TrainData::Blend(blended) => {
                let named = blended.validation(cx)?;
                let own = blended.parts[Part::Valid as usize].as_ref();
                let own = own.map(|samples| ("valid", BlendSamples(samples, None)));
                let more = named.iter();
                let more = more.map(|(name, samples)| (name.as_str(), BlendSamples(samples, None)));
                let valid: Vec<(&str, BlendSamples<'_>)> = own.into_iter().chain(more).collect();
                let samples = BlendSamples(blended.part(Part::Train)?, blended.cyclic(cx)?);
                let sets: Vec<ValidationSet<'_>> = valid
                    .iter()
                    .map(|(name, samples)| ValidationSet { name, samples })
                    .collect();
                train(&samples, &sets)
            }
        }
    }
}
