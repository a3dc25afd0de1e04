//! Token dispatcher: all-to-all of rows to the ranks that have their experts, and back. Expert-parallel ranks have
//! adjacent experts of every layer and each its own sequences.
//!
//! A sender orders its rows by expert; the receiver orders an expert's rows by sending rank, whose sequences are
//! consecutive: the order (sequence, position) of a single rank.

use std::ops::Range;

use kernels::comm::tensors;
use kernels::permute::Order;
use kernels::{DType, Tensor};

use crate::model::context::Context;

/// Row counts of one exchange.
pub(crate) struct TokenDispatcher {
    /// Rows that this rank has for each rank of the group.
    sent: Vec<usize>,
    /// Rows of each expert here, by the rank that they came from and leaf of the token tree.
    leaves: Vec<Vec<Vec<usize>>>,
    counts: Vec<usize>,
}

impl TokenDispatcher {
    /// Exchanges with the group how many rows of each expert and leaf this rank has.
    pub(crate) fn of(order: &Order, cx: &Context<'_>) -> kernels::Result<TokenDispatcher> {
        let (experts, ranks) = (order.counts().len(), cx.groups.ep.size());
        let tokens = order.token_count();
        let leaf = if cx.sums.token_leaf > 0 {
            cx.sums.token_leaf
        } else {
            tokens
        };
        // a prompt may end within one
        let leaves = tokens.div_ceil(leaf);
        let mut mine = vec![0.0; experts * leaves];
        let mut of_rows = order.tokens();
        for (expert, &rows) in order.counts().iter().enumerate() {
            for token in of_rows.by_ref().take(rows) {
                mine[expert * leaves + token / leaf] += 1.0;
            }
        }
        let all = cx.groups.ep.all_gather_f64(&mine)?;
        let here = experts / ranks;
        let first = cx.groups.ep.rank() * here;
        let of_expert = |expert: usize| -> Vec<Vec<usize>> {
            let of_rank = |counts: &Vec<f64>| {
                // in a validation ranks may have different numbers of sequences
                let leaves = counts.len() / experts;
                let counts = &counts[(first + expert) * leaves..][..leaves];
                counts.iter().map(|&count| whole(count)).collect()
            };
            all.iter().map(of_rank).collect()
        };
        let leaves: Vec<Vec<Vec<usize>>> = (0..here).map(of_expert).collect();
        let counts = leaves.iter().map(|ranks| ranks.iter().flatten().sum());
        Ok(TokenDispatcher {
            sent: order
                .counts()
                .chunks(here)
                .map(|rows| rows.iter().sum())
                .collect(),
            counts: counts.collect(),
            leaves,
        })
    }

    /// Rows of each expert here.
    pub(crate) fn counts(&self) -> &[usize] {
        &self.counts
    }

    /// Rows of each expert here by leaf of the token tree over all ranks of the group.
    pub(crate) fn leaves(&self) -> Vec<Vec<usize>> {
        let joined = self.leaves.iter().map(|ranks| ranks.concat());
        joined.collect()
    }

    /// The same, for each expert and rank separately.
    pub(crate) fn leaves_by_rank(&self) -> Vec<Vec<usize>> {
        self.leaves.concat()
    }

    /// `[r, d]` by expert -> `[q, d]` by expert here.
    pub(crate) fn deliver(&self, rows: Tensor, cx: &Context<'_>) -> kernels::Result<Tensor> {
        if cx.groups.ep.size() == 1 {
            return Ok(rows);
        }
        let d = rows.dims()[1];
        let total = self.counts.iter().sum();
        let mut here = Tensor::empty(&[total, d], DType::F32, rows.device())?;
        let (own, theirs) = (self.by_receiver(d), self.by_sender(d));
        tensors::all_to_all(cx.groups.ep, rows.view(), &own, &mut here, &theirs)?;
        Ok(here)
    }

    /// The way back: `[q, d]` -> `[r, d]`.
    pub(crate) fn deliver_back(&self, rows: Tensor, cx: &Context<'_>) -> kernels::Result<Tensor> {
        if cx.groups.ep.size() == 1 {
            return Ok(rows);
        }
        let d = rows.dims()[1];
        let total = self.sent.iter().sum();
        let mut back = Tensor::empty(&[total, d], DType::F32, rows.device())?;
        let (own, theirs) = (self.by_receiver(d), self.by_sender(d));
        tensors::all_to_all(cx.groups.ep, rows.view(), &theirs, &mut back, &own)?;
        Ok(back)
    }

    /// Elements of this rank's rows of width d for each rank.
    fn by_receiver(&self, d: usize) -> Vec<Vec<Range<usize>>> {
        let mut first = 0;
        let of = |count: &usize| {
            let run = first..first + count * d;
            first = run.end;
            vec![run]
        };
        self.sent.iter().map(of).collect()
    }

    /// Elements of the rows here from each rank, a run for each expert.
    fn by_sender(&self, d: usize) -> Vec<Vec<Range<usize>>> {
        let mut runs = vec![Vec::new(); self.sent.len()];
        let mut first = 0;
        for ranks in &self.leaves {
            for (runs, leaves) in runs.iter_mut().zip(ranks) {
                let run = first..first + leaves.iter().sum::<usize>() * d;
                first = run.end;
                runs.push(run);
            }
        }
        runs
    }
}

/// A count that traveled as f64.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "counts of rows are whole and below 2^53"
)]
fn whole(count: f64) -> usize {
    count as usize
}
