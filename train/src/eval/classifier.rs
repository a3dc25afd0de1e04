//! Scores of a model with a classification head.

use std::path::Path;

use crate::checkpoint::whole_model::Model;
use crate::config::plan::Plan;
use crate::data::Samples;
use crate::dist::devices::InferenceOptions;
use crate::error::{Error, Result};

/// A model that classifies texts or chooses among them.
pub struct Classifier {
    model: Model,
}

impl Classifier {
    /// Opens a checkpoint, the newest of a folder of checkpoints, the file `ema.safetensors` of one, or a Hugging Face
    /// folder.
    ///
    /// # Errors
    /// A damaged checkpoint or folder; a model without a classification head; `Device`.
    pub fn open(path: &Path, on: InferenceOptions) -> Result<Classifier> {
        let team = Model::open(path, on)?;
        let model = team.into_first().expect("a team has a rank");
        match model.plan.model.classify {
            Some(_) => Ok(Classifier { model }),
            None => Err(Error::Request {
                what: "model to classify with",
                found: "a language model".into(),
                wanted: "one with a classification head".into(),
            }),
        }
    }

    /// The model's plan: kind, length, vocabulary, head.
    pub fn plan(&self) -> &Plan {
        &self.model.plan
    }

    /// The scores of each question of `samples`: one of each class, or of each choice. The bits are those of validation in
    /// training.
    ///
    /// # Errors
    /// Errors of the samples; a number of samples that is no multiple of the choices.
    pub fn scores(&self, samples: &dyn Samples) -> Result<Vec<Vec<f32>>> {
        let model = &self.model;
        let (labels, choices) = match &model.plan.model.classify {
            Some(classify) => (classify.labels(), classify.choices),
            None => (1, 1),
        };
        let count = usize::try_from(samples.len()).unwrap_or(usize::MAX);
        if count == 0 || !count.is_multiple_of(choices) {
            return Err(Error::Request {
                what: "texts to classify",
                found: count.to_string(),
                wanted: format!("a multiple of {choices} above 0"),
            });
        }
        let scores = super::worker(model).scores(samples, count)?;
        Ok(scores.chunks(labels).map(<[f32]>::to_vec).collect())
    }
}
