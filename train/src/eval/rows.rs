//! The plan of a scoring: which sequences run, and which of their rows predict which tokens of which queries.
//!
//! A query's sequence is its context and continuation without the last token. In a causal model a row depends on no
//! later token, so a sequence that begins another needs no pass of its own: choices of one letter share
//! one pass over their question. The bits are the same, as no row depends on the others of a batch.

use crate::data::virtual_tokens::has_own;
use crate::error::{Error, Result};
use crate::eval::language_model::Query;

/// A token to be predicted.
pub(super) struct Wanted {
    /// Row of the sequence whose logits predict it.
    pub row: usize,
    pub token: u32,
    pub query: usize,
    /// Number of the token in the query's continuation.
    pub number: usize,
}

/// Most tokens of a text.
#[derive(Clone, Copy)]
pub(super) struct Lengths {
    pub text: usize,
    /// Of one with virtual tokens in it.
    pub placed: usize,
}

/// A sequence to run.
pub(super) struct Sequence {
    pub tokens: Vec<u32>,
    /// By ascending row.
    pub wanted: Vec<Wanted>,
    /// Queries that end with this sequence.
    pub queries: usize,
}

/// Sequences that answer all queries, the longest first. `shares`: whether one may serve several queries.
pub(super) fn sequences(
    queries: &[Query],
    lengths: Lengths,
    shares: bool,
) -> Result<Vec<Sequence>> {
    let mut inputs = Vec::with_capacity(queries.len());
    for query in queries {
        inputs.push(input(query, lengths)?);
    }
    let mut order: Vec<usize> = (0..queries.len()).collect();
    order.sort_by(|&a, &b| inputs[a].cmp(&inputs[b]).then(a.cmp(&b)));
    let mut sequences: Vec<Sequence> = Vec::new();
    // backwards, so that a sequence comes before those that begin it
    for &query in order.iter().rev() {
        let input = std::mem::take(&mut inputs[query]);
        let fits = |last: &Sequence| shares && last.tokens.starts_with(&input);
        let continuation = &queries[query].continuation;
        let first = input.len() - continuation.len();
        if !sequences.last().is_some_and(fits) {
            sequences.push(Sequence {
                tokens: input,
                wanted: Vec::new(),
                queries: 0,
            });
        }
        if let Some(last) = sequences.last_mut() {
            last.queries += 1;
            let wanted = continuation.iter().enumerate();
            last.wanted.extend(wanted.map(|(number, &token)| Wanted {
                row: first + number,
                token,
                query,
                number,
            }));
        }
    }
    for sequence in &mut sequences {
        sequence
            .wanted
            .sort_by_key(|wanted| (wanted.row, wanted.query));
    }
    sequences.sort_by_key(|sequence| std::cmp::Reverse(sequence.tokens.len()));
    Ok(sequences)
}

/// The tokens that the model reads: the last `lengths.text` + 1 of both without the very last.
fn input(query: &Query, lengths: Lengths) -> Result<Vec<u32>> {
    let max_length = lengths.text;
    let Query {
        context,
        continuation,
    } = query;
    let request = |what, found: usize, wanted: String| {
        Err(Error::Request {
            what,
            found: format!("{found} tokens"),
            wanted,
        })
    };
    if context.is_empty() {
        return request("context of a continuation", 0, "at least 1".into());
    }
    if continuation.is_empty() || continuation.len() > max_length {
        let wanted = format!("1 to {max_length}");
        return request("continuation to score", continuation.len(), wanted);
    }
    let mut both = [context.as_slice(), continuation].concat();
    both.pop();
    if has_own(context) {
        let placed = lengths.placed;
        return match both.len() <= placed {
            true => Ok(both),
            false => request(
                "text with virtual tokens",
                both.len(),
                format!("at most {placed}"),
            ),
        };
    }
    Ok(both.split_off(both.len().saturating_sub(max_length)))
}

/// Runs of sequences whose rows, padded to the longest, are at most `most` (or one sequence).
pub(super) fn batches(sequences: &[Sequence], most: usize) -> Vec<&[Sequence]> {
    let (mut batches, mut rest) = (Vec::new(), sequences);
    while let Some(longest) = rest.first() {
        let count = (most / longest.tokens.len().max(1)).clamp(1, rest.len());
        let (batch, after) = rest.split_at(count);
        batches.push(batch);
        rest = after;
    }
    batches
}

#[cfg(test)]
mod tests {
    use super::*;

    fn query(context: &[u32], continuation: &[u32]) -> Query {
        Query {
            context: context.to_vec(),
            continuation: continuation.to_vec(),
        }
    }

    fn of(length: usize) -> Lengths {
        Lengths {
            text: length,
            placed: length,
        }
    }

    #[test]
    fn sequences_that_begin_another_share_its_pass() {
        let queries = [
            query(&[1, 2], &[3]),
            query(&[1, 2], &[4]),
            query(&[1], &[2, 5, 6]),
            query(&[9], &[1]),
        ];
        let found = sequences(&queries, of(8), true).unwrap();
        let tokens: Vec<&[u32]> = found.iter().map(|s| s.tokens.as_slice()).collect();
        assert_eq!(tokens, [&[1, 2, 5][..], &[9]]);
        let rows: Vec<_> = found[0]
            .wanted
            .iter()
            .map(|w| [w.row, w.token as usize, w.query, w.number])
            .collect();
        assert_eq!(
            rows,
            [
                [0, 2, 2, 0],
                [1, 3, 0, 0],
                [1, 4, 1, 0],
                [1, 5, 2, 1],
                [2, 6, 2, 2]
            ]
        );
        assert_eq!(sequences(&queries, of(8), false).unwrap().len(), 4);
        assert_eq!(batches(&found, 4).len(), 2);
        assert_eq!(batches(&found, 6).len(), 1);
    }

    #[test]
    fn long_contexts_lose_their_beginning_and_long_continuations_are_refused() {
        let found = sequences(&[query(&[1, 2, 3, 4], &[5, 6])], of(3), true).unwrap();
        assert_eq!(found[0].tokens, [3, 4, 5]);
        assert_eq!(found[0].wanted[0].row, 1);
        for wrong in [
            query(&[], &[1]),
            query(&[1], &[]),
            query(&[1], &[1, 2, 3, 4]),
        ] {
            assert!(sequences(&[wrong], of(3), true).is_err());
        }
    }
}
