//! Preference pairs: two texts of a sample, whose answers are compared, and their probabilities under the reference.

use std::error::Error as StdError;
use std::ops::Range;

use serde::Serialize;

use crate::data::{Sample, Samples, TextSample};

/// A chosen and a rejected answer to the same prompt.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Pair {
    /// Number of the pair among those of its source.
    pub number: u64,
    /// ln of the probability of the chosen answer and of the rejected one under the reference; sources leave it 0, and the
    /// trainer fills it in.
    pub reference: [f64; 2],
}

impl Pair {
    /// A pair as its source gives it.
    #[must_use]
    pub fn numbered(number: u64) -> Pair {
        Pair {
            number,
            reference: [0.0; 2],
        }
    }
}

/// A pair of a micro-batch.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct BatchPair {
    pub number: u64,
    /// Of the sequence in the micro-batch that has both texts.
    pub sequence: usize,
    /// The chosen text and the rejected one.
    pub answers: [Answer; 2],
}

/// A text of a pair.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Answer {
    /// Positions of its inputs in the sequence.
    pub inputs: Range<usize>,
    /// Predictions that count.
    pub counted: usize,
    /// ln of its probability under the reference.
    pub reference: f64,
}

impl BatchPair {
    /// The pairs of the sample of a sequence.
    pub(super) fn of(sequence: usize, text: &TextSample) -> Vec<BatchPair> {
        let texts: Vec<Range<usize>> = text.texts().collect();
        let pairs = text.pairs.iter().zip(texts.chunks_exact(2));
        pairs
            .map(|(pair, both)| {
                let answer = |which: usize| {
                    let inputs = both[which].clone();
                    let counts = text.counts[inputs.clone()].iter();
                    Answer {
                        inputs,
                        counted: counts.filter(|&&counts| counts).count(),
                        reference: pair.reference[which],
                    }
                };
                BatchPair {
                    number: pair.number,
                    sequence,
                    answers: [answer(0), answer(1)],
                }
            })
            .collect()
    }
}

/// Samples whose pairs know their reference.
pub(crate) struct Referenced<'a> {
    pub samples: &'a dyn Samples,
    /// By number of the pair.
    pub references: &'a [[f64; 2]],
}

impl Samples for Referenced<'_> {
    fn len(&self) -> u64 {
        self.samples.len()
    }

    fn read(
        &self,
        index: u64,
        sample: &mut Sample,
    ) -> std::result::Result<(), Box<dyn StdError + Send + Sync>> {
        self.samples.read(index, sample)?;
        for pair in &mut sample.text()?.pairs {
            let known = usize::try_from(pair.number).ok();
            let known = known.and_then(|number| self.references.get(number));
            let Some(reference) = known else {
                let (number, most) = (pair.number, self.references.len());
                return Err(format!("pair {number}, want one of the {most} of the reference").into());
            };
            pair.reference = *reference;
        }
        Ok(())
    }

    fn pairs(&self) -> Option<&dyn Samples> {
        self.samples.pairs()
    }
}
