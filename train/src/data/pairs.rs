//! Preference pairs: two texts of a sample, whose answers are compared, and their probabilities under the reference.

use std::ops::Range;

use serde::Serialize;

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
    /// The pairs of the sample of a sequence. `texts`: inputs of each text, two of each pair; `counts`: whether each prediction of
    /// the sample counts.
    pub(super) fn of(
        sequence: usize,
        pairs: &[Pair],
        texts: impl Iterator<Item = Range<usize>>,
        counts: &[bool],
    ) -> Vec<BatchPair> {
        let texts: Vec<Range<usize>> = texts.collect();
        let both = pairs.iter().zip(texts.chunks_exact(2));
        both.map(|(pair, texts)| {
            let answer = |which: usize| {
                let inputs = texts[which].clone();
                let counted = counts[inputs.clone()].iter().filter(|&&counts| counts);
                Answer {
                    counted: counted.count(),
                    inputs,
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

/// The problem of a sample's pairs if there are fewer than two texts for each.
pub(super) fn problem(pairs: &[Pair], texts: usize) -> Option<String> {
    let count = pairs.len();
    (2 * count > texts).then(|| format!("{count} pairs of {texts} texts, want two texts of each"))
}
