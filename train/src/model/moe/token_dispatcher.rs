//! Token dispatcher: all-to-all of rows to the ranks that have their experts, and back. Expert-parallel ranks have
//! adjacent experts of every layer and each its own sequences.
//!
//! A sender orders its rows by expert; the receiver orders an expert's rows by sending rank, whose sequences are
//! consecutive: the order (sequence, position) of a single rank.

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
        let mut parts = Vec::new();
        let mut rest = rows.f32();
        for count in &self.sent {
            let (part, after) = rest.split_at(count * d);
            parts.push(part.to_vec());
            rest = after;
        }
        let received = cx.groups.ep.all_to_all(parts)?;
        let total = self.counts.iter().sum();
        let mut here = Tensor::empty(&[total, d], DType::F32, rows.device())?;
        let mut rests: Vec<&[f32]> = received.iter().map(Vec::as_slice).collect();
        let mut to = here.f32_mut();
        for ranks in &self.leaves {
            for (rest, leaves) in rests.iter_mut().zip(ranks) {
                let (part, after) = rest.split_at(leaves.iter().sum::<usize>() * d);
                let (out, later) = to.split_at_mut(part.len());
                out.copy_from_slice(part);
                (*rest, to) = (after, later);
            }
        }
        Ok(here)
    }

    /// The way back: `[q, d]` -> `[r, d]`.
    pub(crate) fn deliver_back(&self, rows: Tensor, cx: &Context<'_>) -> kernels::Result<Tensor> {
        if cx.groups.ep.size() == 1 {
            return Ok(rows);
        }
        let d = rows.dims()[1];
        let mut parts = vec![Vec::new(); cx.groups.ep.size()];
        let mut rest = rows.f32();
        for ranks in &self.leaves {
            for (part, leaves) in parts.iter_mut().zip(ranks) {
                let (rows, after) = rest.split_at(leaves.iter().sum::<usize>() * d);
                part.extend_from_slice(rows);
                rest = after;
            }
        }
        let received = cx.groups.ep.all_to_all(parts)?.concat();
        Tensor::from_f32(&[self.sent.iter().sum(), d], &received, rows.device())
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
