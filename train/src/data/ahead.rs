//! A text as a depth of multi-token prediction reads it: everything is k places further on. Within the sequence, or within each text
//! of a sample that names its texts, the places without such a token have token 0 as an input and no target that counts, as in
//! Megatron's `roll_tensor`. Without named texts, documents of a sequence have no borders here either: Megatron shifts the mask of
//! the loss along with the tokens, so what does not count for the model does not count for a depth.

use std::ops::Range;

use crate::data::sample::TextSample;

/// A text `by` places further on.
pub(super) struct Shifted<'a> {
    text: &'a TextSample,
    by: usize,
    /// Inputs of each text.
    texts: Vec<Range<usize>>,
}

/// A place of a shifted text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Place {
    pub input: u32,
    pub target: u32,
    /// Whether the target counts.
    pub counts: bool,
}

impl<'a> Shifted<'a> {
    pub(super) fn of(text: &'a TextSample, by: usize) -> Shifted<'a> {
        Shifted {
            text,
            by,
            texts: text.texts().collect(),
        }
    }

    /// All places of the sequence, in order.
    pub(super) fn places(&self) -> impl Iterator<Item = Place> {
        let all = self.texts.iter();
        all.flat_map(|text| text.clone().map(|at| self.place(at + self.by, text.end)))
    }

    /// The place that is `from` without a shift, if it is before `end`.
    fn place(&self, from: usize, end: usize) -> Place {
        if from >= end {
            return Place::default();
        }
        let counts = self.text.counts[from];
        Place {
            input: self.text.tokens[from],
            target: if counts {
                self.text.tokens[from + 1]
            } else {
                0
            },
            counts,
        }
    }

    /// Targets that count.
    pub(super) fn counted(&self) -> usize {
        self.places().filter(|place| place.counts).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(ends: &[usize]) -> TextSample {
        TextSample {
            tokens: vec![10, 11, 12, 13, 14, 15],
            counts: vec![true, true, false, true, true],
            ends: ends.to_vec(),
            pairs: Vec::new(),
        }
    }

    fn columns(text: &TextSample, by: usize) -> (Vec<u32>, Vec<u32>, Vec<bool>) {
        let shifted = Shifted::of(text, by);
        let places = shifted.places();
        let (mut inputs, mut targets, mut counts) = (Vec::new(), Vec::new(), Vec::new());
        for place in places {
            inputs.push(place.input);
            targets.push(place.target);
            counts.push(place.counts);
        }
        (inputs, targets, counts)
    }

    #[test]
    fn a_sequence_is_rolled_and_its_end_has_zeros() {
        let (inputs, targets, counts) = columns(&text(&[]), 2);
        assert_eq!(inputs, [12, 13, 14, 0, 0]);
        assert_eq!(
            targets,
            [0, 14, 15, 0, 0],
            "the token 12 has no target that counts"
        );
        assert_eq!(counts, [false, true, true, false, false]);
        assert_eq!(Shifted::of(&text(&[]), 2).counted(), 2);
    }

    #[test]
    fn named_texts_are_rolled_one_by_one() {
        let (inputs, targets, counts) = columns(&text(&[2]), 1);
        assert_eq!(inputs, [11, 0, 13, 14, 0]);
        assert_eq!(targets, [12, 0, 14, 15, 0]);
        assert_eq!(counts, [true, false, true, true, false]);
    }
}
