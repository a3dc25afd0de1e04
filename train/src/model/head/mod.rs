//! Heads: the final norm and the vocabulary for a decoder (here), the transform and the vocabulary at masked
//! positions for an encoder (`masked`), classes of sequences for either (`classes`).
//! A decoder's head can compare pairs of answers (`preference`), and read rows of further depths (`further`).

pub(crate) mod classes;
pub(crate) mod further;
pub(crate) mod masked;
mod next_sentence;
pub(crate) mod preference;
mod sliced;
pub(crate) mod vocabulary;

use kernels::{DType, Tensor, rows};

use crate::config::PreferenceConfig;
use crate::config::plan::Plan;
use crate::data::Targets;
use crate::data::pairs::BatchPair;
use crate::dist::mesh::RankCoord;
use crate::model::context::Context;
use crate::model::gradients::Gradients;
use crate::model::head::preference::{PairLoss, PairLosses, of_pairs};
use crate::model::head::vocabulary::Vocabulary;
use crate::model::norm::{Norm, Statistics};
use crate::model::slots::Slots;

/// Summed losses of a micro-batch, on the device, as `cross_entropy::losses` puts them out.
pub(crate) struct Losses {
    /// Those of each run of predictions; runs are equally long, and each sequence has the same number of them. `None`
    /// on ranks that leave them to another.
    pub predictions: Option<Tensor>,
    /// The same of each depth of multi-token prediction.
    pub further: Vec<Tensor>,
    /// Next-sentence loss of each sequence, if the model predicts it.
    pub orders: Option<Tensor>,
    /// Scores of each sequence, `[b, classes]`, and the label of each question, from evaluations of a classification
    /// head.
    pub scores: Option<(Tensor, Vec<u32>)>,
    /// The preference pairs, of which every rank with the head knows all; there are no `predictions` beside them.
    pub pairs: Vec<PairLoss>,
}

/// Predicts the next token of every row.
pub(crate) struct Head {
    norm: Norm,
    /// Factor on the norm's output: T5's tied head divides by the root of the width.
    scale: f32,
    /// Dropout of the norm's output: probability and tensor number.
    dropout: (f32, u32),
    vocabulary: Vocabulary,
    /// The loss is of pairs of answers.
    preference: Option<PreferenceConfig>,
}

/// Kept from forward: `[m, d]` twice, and the vocabulary's tensors.
pub(crate) struct Saved {
    x: Tensor,
    statistics: Statistics,
    normed: Tensor,
    vocabulary: vocabulary::Saved,
    /// Of pairs, the derivative of their losses by each token's: `[n]`.
    slopes: Option<Vec<f32>>,
}

impl Head {
    /// `gradient` is the slot of the head's own gradient.
    pub(crate) fn named(
        plan: &Plan,
        place: &RankCoord,
        slots: &Slots<'_>,
        gradient: usize,
    ) -> Head {
        let model = &plan.model;
        let (is_t5, is_tied) = (model.architecture().is_encoder_decoder, model.is_tied());
        Head {
            norm: Norm::named(model.final_norm(), plan, slots),
            scale: if is_t5 && is_tied {
                1.0 / (model.d_model as f32).sqrt()
            } else {
                1.0
            },
            dropout: if is_t5 {
                (model.dropout, model.first_dropout(model.blocks()) + 1)
            } else {
                (0.0, 0)
            },
            vocabulary: Vocabulary::named(plan, place, slots, gradient),
            preference: plan.train.preference.clone(),
        }
    }

    /// x: `[n, d]` -> logits of the whole padded vocabulary, `[n, v]`, on every rank, for inference
    pub(crate) fn logits(&self, x: &Tensor, cx: &Context<'_>) -> kernels::Result<Tensor> {
        let (mut normed, _) = self.norm.forward(x, cx)?;
        self.scale_rows(&mut normed)?;
        self.vocabulary.logits(&normed, cx)
    }

    fn scale_rows(&self, x: &mut Tensor) -> kernels::Result<()> {
        if self.scale == 1.0 {
            return Ok(());
        }
        rows::scale(x.view_mut(), self.scale)
    }

    /// x: `[m, d]` -> summed losses of each chunk of `loss_chunk` tokens, or those of the pairs.
    pub(crate) fn forward(
        &self,
        x: Tensor,
        (targets, pairs): (&Targets, &[BatchPair]),
        cx: &Context<'_>,
    ) -> kernels::Result<(Losses, Saved)> {
        let (mut normed, statistics) = self.norm.forward(&x, cx)?;
        cx.drop_rows(&mut normed, self.dropout.0, self.dropout.1)?;
        self.scale_rows(&mut normed)?;
        let run = match self.preference {
            Some(_) => 1,
            None => cx.loss_chunk(),
        };
        let (sums, vocabulary) = self.vocabulary.forward(&normed, (targets, run), cx)?;
        let (predictions, pairs, slopes) = match &self.preference {
            None => (Some(sums), Vec::new(), None),
            Some(config) => {
                let words = sums.download::<u32>()?;
                let PairLosses { losses, slopes } = of_pairs(&words, (pairs, config), cx)?;
                (None, losses, Some(slopes))
            }
        };
        let losses = Losses {
            predictions,
            further: Vec::new(),
            orders: None,
            scores: None,
            pairs,
        };
        Ok((
            losses,
            Saved {
                x,
                statistics,
                normed,
                vocabulary,
                slopes,
            },
        ))
    }

    /// `weight`: weight in the step's loss of each token that counts, or of each pair -> dx: `[m, d]`
    pub(crate) fn backward(
        &self,
        (targets, weight): (&Targets, f32),
        saved: Saved,
        gradients: &mut Gradients,
        cx: &Context<'_>,
    ) -> kernels::Result<Tensor> {
        let Saved {
            x,
            statistics,
            normed,
            vocabulary,
            slopes,
        } = saved;
        let mut weights = match &slopes {
            None => targets.counts.try_clone()?,
            Some(slopes) => {
                let mut weights = Tensor::empty(targets.counts.dims(), DType::F32, x.device())?;
                weights.upload(&counted_slopes(slopes, &targets.counts)?)?;
                weights
            }
        };
        rows::scale(weights.view_mut(), weight)?;
        let of = (&targets.ids, weights);
        let mut dnormed = self
            .vocabulary
            .backward(of, vocabulary, &normed, gradients, cx)?;
        drop(normed);
        self.scale_rows(&mut dnormed)?;
        cx.drop_rows(&mut dnormed, self.dropout.0, self.dropout.1)?;
        self.norm
            .backward(&dnormed, (&x, &statistics), None, gradients, cx)
    }
}

/// Slopes of the tokens that count; those of the others are 0.
fn counted_slopes(slopes: &[f32], counts: &Tensor) -> kernels::Result<Vec<f32>> {
    let counts = counts.download::<f32>()?;
    let both = slopes.iter().zip(counts);
    Ok(both.map(|(slope, count)| slope * count).collect())
}
