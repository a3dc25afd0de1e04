//! Documents packed into sequences, and the two sequences of an encoder-decoder's sample packed into one.

use std::ops::Range;

use crate::config::plan::{Plan, TOKEN_CHUNKS};

/// Documents packed into sequences, for each of this rank's `[n]` rows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Documents {
    /// First position of the row's document and one past its last, if rows attend only to their document.
    pub bounds: Option<Vec<[u32; 2]>>,
    /// Position in the row's document, if positions start over.
    pub positions: Option<Vec<u32>>,
}

impl Documents {
    /// Empty, with the fields that the plan's `reset_attention_mask` and `reset_position_ids` require; None if
    /// neither is set.
    pub(crate) fn asked_for(plan: &Plan) -> Option<Documents> {
        let (bounds, positions) = (
            plan.train.reset_attention_mask,
            plan.train.reset_position_ids,
        );
        (bounds || positions).then(|| Documents {
            bounds: bounds.then(Vec::new),
            positions: positions.then(Vec::new),
        })
    }

    /// For texts that are asked for one by one. With virtual tokens in front each is one document, whatever tokens it has, as in
    /// samples whose texts have `ends`.
    pub(crate) fn of_text(plan: &Plan) -> Option<Documents> {
        match plan.model.prompt {
            Some(_) => None,
            None => Documents::asked_for(plan),
        }
    }

    /// Appends the rows `rows` of a sequence. The end-of-document token belongs to the document that it ends.
    pub(crate) fn push(&mut self, tokens: &[u32], eod: Option<u32>, rows: Range<usize>) {
        let number = |at: usize| u32::try_from(at).expect("positions are below seq_length");
        let is_end = |at: usize| Some(tokens[at]) == eod;
        let mut start = (0..rows.start)
            .rfind(|&at| is_end(at))
            .map_or(0, |at| at + 1);
        let mut end = start;
        for row in rows {
            if row > 0 && is_end(row - 1) {
                start = row;
            }
            if row >= end {
                let last = (row..tokens.len()).find(|&at| is_end(at));
                end = last.map_or(tokens.len(), |at| at + 1);
            }
            if let Some(bounds) = &mut self.bounds {
                bounds.push([number(start), number(end)]);
            }
            if let Some(positions) = &mut self.positions {
                positions.push(number(row - start));
            }
        }
    }

    /// Appends the rows `rows` of a sequence that holds these texts, which follow each other.
    pub(crate) fn push_texts(
        &mut self,
        texts: impl Iterator<Item = Range<usize>>,
        rows: Range<usize>,
    ) {
        let number = |at: usize| u32::try_from(at).expect("positions are below seq_length");
        for text in texts {
            for row in text.start.max(rows.start)..text.end.min(rows.end) {
                if let Some(bounds) = &mut self.bounds {
                    bounds.push([number(text.start), number(text.end)]);
                }
                if let Some(positions) = &mut self.positions {
                    positions.push(number(row - text.start));
                }
            }
        }
    }
}

/// The sequences of an encoder-decoder model's sample, whose rows are interleaved.
#[derive(Clone, Copy)]
pub(crate) struct PairRows<'a> {
    /// Tokens of the encoder's.
    pub encoder: usize,
    /// Tokens of the decoder's.
    pub decoder: usize,
    /// For each decoder row on this rank, the range of encoder positions that it attends to; empty before a batch
    /// is known.
    pub seen: &'a [[u32; 2]],
}

/// The source of each row, in order of rows: positions of the encoder's tokens, then, from `encoder`
/// on, of the decoder's.
pub(crate) fn order(encoder: usize, decoder: usize) -> impl Iterator<Item = usize> {
    let runs = [
        (0, encoder / TOKEN_CHUNKS),
        (encoder, decoder / TOKEN_CHUNKS),
    ];
    (0..TOKEN_CHUNKS).flat_map(move |chunk| {
        runs.into_iter()
            .flat_map(move |(first, run)| first + chunk * run..first + (chunk + 1) * run)
    })
}
