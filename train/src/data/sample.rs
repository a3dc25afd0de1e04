//! Training samples: of each kind of model its tokens, and what is right about them.

use std::ops::Range;

use serde::Serialize;

use crate::config::ClassifyConfig;
use crate::config::plan::Plan;
use crate::data::pairs::{self, Pair};
use crate::data::virtual_tokens::{as_target, is_known};
use crate::error::{Error, Result};

/// One training sample. The trainer allocates the kind and sizes that its model needs; a source with samples of
/// another kind returns an error.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Sample {
    /// For a decoder.
    Text(TextSample),
    /// For an encoder of the BERT kind.
    Masked(MaskedSample),
    /// For an encoder and a decoder of the T5 kind.
    Spans(SpanSample),
    /// For a classification head.
    Labelled(LabelledSample),
}

/// A contiguous piece of text.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TextSample {
    /// `seq_length + 1` tokens; each but the first is predicted from those before it. With `[model.prompt]`, the ids of
    /// `virtual_tokens` stand in front of every text, or at the markers of its template; their predictions must not count.
    pub tokens: Vec<u32>,
    /// For each token but the first: whether its prediction counts in the loss. True by default.
    pub counts: Vec<bool>,
    /// Texts that the sample holds: for each, the position of its last input plus 1, ascending. They are the documents of
    /// `train.reset_attention_mask` and `train.reset_position_ids` and the texts of `train.loss_mean`. Empty, the default:
    /// the token that ends documents ends these, and the sample is one text.
    pub ends: Vec<usize>,
    /// With `train.preference`, the pairs that the sample holds: pair i is of the texts 2i, whose tokens that count are the
    /// chosen answer, and 2i + 1, whose are the rejected one. Empty by default.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pairs: Vec<Pair>,
}

/// A text of which some tokens were replaced and are to be predicted. Every list has `seq_length`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MaskedSample {
    /// Inputs. Those from `length` on are never seen, but must be ids of the vocabulary.
    pub tokens: Vec<u32>,
    /// Segment of each token: 0 or 1.
    pub segments: Vec<u32>,
    /// The original token at each position; read where `counts` is true.
    pub targets: Vec<u32>,
    /// Whether the token is to be predicted: true for at most `Plan::predictions` of those before `length`.
    pub counts: Vec<bool>,
    /// Tokens without padding, at least 1.
    pub length: usize,
    /// Whether the second segment was swapped for one that did not follow the first.
    pub is_swapped: bool,
}

/// A text with masked spans, and the decoder's targets for them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SpanSample {
    /// Inputs of the encoder, `seq_length` of them. Those from `length` on are never seen, but must be
    /// ids of the vocabulary.
    pub tokens: Vec<u32>,
    /// The encoder's tokens without padding, at least 1.
    pub length: usize,
    /// Inputs of the decoder, `decoder_length` of them; each attends to those before it.
    pub decoder_tokens: Vec<u32>,
    /// The decoder's target at each position; read where `counts` is true.
    pub targets: Vec<u32>,
    /// Whether each prediction counts in the loss.
    pub counts: Vec<bool>,
}

/// A text with a label, or one of the choices of a question: those of a question follow each other.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LabelledSample {
    /// Inputs, `seq_length` of them. Those from `length` on are never seen, but must be ids of the vocabulary.
    pub tokens: Vec<u32>,
    /// Segment of each token, 0 or 1; decoders do not read it.
    pub segments: Vec<u32>,
    /// Tokens without padding, at least 1.
    pub length: usize,
    /// Number of the class, or of the right choice. Of a question's choices, that of the first counts; a regression does not
    /// read it.
    pub label: u32,
    /// The right score of a regression; classes and choices do not read it.
    pub number: f32,
}

impl Sample {
    /// A sample for the model of `plan`.
    pub fn of(plan: &Plan) -> Sample {
        let t = plan.seq_length;
        if plan.model.classify.is_some() {
            return Sample::Labelled(LabelledSample {
                tokens: vec![0; t],
                segments: vec![0; t],
                length: t,
                label: 0,
                number: 0.0,
            });
        }
        if plan.model.architecture().is_encoder_decoder {
            let to = plan.decoder_length;
            Sample::Spans(SpanSample {
                tokens: vec![0; t],
                length: t,
                decoder_tokens: vec![0; to],
                targets: vec![0; to],
                counts: vec![true; to],
            })
        } else if plan.model.architecture().is_masked {
            Sample::Masked(MaskedSample {
                tokens: vec![0; t],
                segments: vec![0; t],
                targets: vec![0; t],
                counts: vec![false; t],
                length: t,
                is_swapped: false,
            })
        } else {
            Sample::Text(TextSample {
                tokens: vec![0; t + 1],
                counts: vec![true; t],
                ends: Vec::new(),
                pairs: Vec::new(),
            })
        }
    }

    fn kind(&self) -> &'static str {
        match self {
            Sample::Text(_) => "text",
            Sample::Masked(_) => "masked",
            Sample::Spans(_) => "spans",
            Sample::Labelled(_) => "labelled",
        }
    }

    fn not(&self, found: &'static str) -> Error {
        Error::SampleKind {
            found,
            wanted: self.kind(),
        }
    }

    /// The text to fill, for sources of text.
    ///
    /// # Errors
    /// `SampleKind` if the model learns from other samples.
    pub fn text(&mut self) -> Result<&mut TextSample> {
        match self {
            Sample::Text(text) => Ok(text),
            other => Err(other.not("text")),
        }
    }

    /// The masked text to fill, for sources of such.
    ///
    /// # Errors
    /// `SampleKind` if the model learns from other samples.
    pub fn masked(&mut self) -> Result<&mut MaskedSample> {
        match self {
            Sample::Masked(masked) => Ok(masked),
            other => Err(other.not("masked")),
        }
    }

    /// The text with gaps to fill, for sources of such.
    ///
    /// # Errors
    /// `SampleKind` if the model learns from other samples.
    pub fn spans(&mut self) -> Result<&mut SpanSample> {
        match self {
            Sample::Spans(spans) => Ok(spans),
            other => Err(other.not("spans")),
        }
    }

    /// The labelled text to fill, for sources of such.
    ///
    /// # Errors
    /// `SampleKind` if the model learns from other samples.
    pub fn labelled(&mut self) -> Result<&mut LabelledSample> {
        match self {
            Sample::Labelled(labelled) => Ok(labelled),
            other => Err(other.not("labelled")),
        }
    }

    /// The ids whose predictions count in the loss.
    pub fn predicted(&self) -> impl Iterator<Item = u32> {
        let targets = match self {
            Sample::Text(text) => text.tokens.get(1..).unwrap_or_default(),
            Sample::Masked(masked) => &masked.targets,
            Sample::Spans(spans) => &spans.targets,
            Sample::Labelled(_) => &[],
        };
        let both = targets.iter().zip(self.counts());
        both.filter(|(_, counts)| **counts).map(|(id, _)| *id)
    }

    /// Whether each token's prediction counts in the loss.
    pub(super) fn counts(&self) -> &[bool] {
        match self {
            Sample::Text(text) => &text.counts,
            Sample::Masked(masked) => &masked.counts,
            Sample::Spans(spans) => &spans.counts,
            Sample::Labelled(_) => &[],
        }
    }

    /// Position and id of the first token that is not below the vocabulary and not virtual.
    pub(super) fn unknown(&self, plan: &Plan) -> Option<(usize, u32)> {
        let find = |tokens: &[u32], counts: &dyn Fn(usize) -> bool| {
            let is_unknown = |at: &usize| counts(*at) && !is_known(plan, tokens[*at]);
            let at = (0..tokens.len()).find(is_unknown)?;
            Some((at, tokens[at]))
        };
        match self {
            Sample::Text(text) => find(&text.tokens, &|_| true),
            Sample::Masked(masked) => find(&masked.tokens, &|_| true)
                .or_else(|| find(&masked.targets, &|at| masked.counts[at])),
            Sample::Spans(spans) => find(&spans.tokens, &|_| true)
                .or_else(|| find(&spans.decoder_tokens, &|_| true))
                .or_else(|| find(&spans.targets, &|at| spans.counts[at])),
            Sample::Labelled(labelled) => find(&labelled.tokens, &|_| true),
        }
    }
}

impl TextSample {
    /// The first problem of the sample, if it has one.
    pub(super) fn problem(&self, plan: &Plan) -> Option<String> {
        let (most, mut last) = (self.counts.len(), 0);
        if plan.model.prompt.is_some() {
            let mut targets = self.tokens[1..].iter().zip(&self.counts);
            let found = targets.position(|(&id, &counts)| counts && as_target(plan, id) != id);
            if let Some(at) = found {
                return Some(format!(
                    "a prediction of a virtual token at {at}, want none"
                ));
            }
        }
        for &end in &self.ends {
            if end <= last || end > most {
                return Some(format!(
                    "a text that ends at {end} after {last}, want up to {most}"
                ));
            }
            last = end;
        }
        pairs::problem(&self.pairs, self.ends.len())
    }

    /// Inputs of each text; the sample's last text ends with it.
    pub(super) fn texts(&self) -> impl Iterator<Item = Range<usize>> {
        let all = self.counts.len();
        let last = self.ends.last().copied().unwrap_or(0);
        let rest = (last < all).then_some(all);
        let mut start = 0;
        self.ends.iter().copied().chain(rest).map(move |end| {
            let text = start..end;
            start = end;
            text
        })
    }
}

impl MaskedSample {
    /// The first problem of the sample, if it has one.
    pub(super) fn problem(&self, predictions: usize) -> Option<String> {
        let most = self.tokens.len();
        if self.length == 0 || self.length > most {
            return Some(format!("a length of {}, want 1 to {most}", self.length));
        }
        let places = || (0..most).filter(|&at| self.counts[at]);
        if let Some(at) = places().find(|&at| at >= self.length) {
            let length = self.length;
            return Some(format!(
                "a prediction at {at}, in the padding after {length} tokens"
            ));
        }
        let count = places().count();
        if count > predictions {
            return Some(format!("{count} predictions, want {predictions} at most"));
        }
        let segment = self.segments.iter().find(|&&segment| segment > 1)?;
        Some(format!("segment {segment}, want 0 or 1"))
    }
}

impl LabelledSample {
    /// The first problem of the sample for a head, if it has one.
    pub(super) fn problem(&self, head: &ClassifyConfig) -> Option<String> {
        let most = self.tokens.len();
        if self.length == 0 || self.length > most {
            return Some(format!("a length of {}, want 1 to {most}", self.length));
        }
        let labels = head.labels();
        if head.is_regression() && !self.number.is_finite() {
            return Some(format!("number {}, want a finite one", self.number));
        }
        if !head.is_regression() && self.label as usize >= labels {
            return Some(format!("label {}, want below {labels}", self.label));
        }
        let segment = self.segments.iter().find(|&&segment| segment > 1)?;
        Some(format!("segment {segment}, want 0 or 1"))
    }
}
