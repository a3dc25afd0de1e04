//! Token dispatcher: all-to-all of rows to the ranks that have their experts, and back. Expert-parallel ranks have
//! adjacent experts of every layer and each its own sequences.
//!
//! A sender orders its rows by expert; the receiver orders an expert's rows by sending rank, whose sequences are
//! consecutive: the order (sequence, position) of a single rank.

use std::ops::Range;

use kernels::comm::tensors;
use kernels::grouped_matmul::{Counts, Leaves};
use kernels::permute::Order;
use kernels::{DType, Tensor};

use crate::model::context::Context;

/// The rows of this rank's choices, in their order, and of each expert here.
pub(crate) struct TokenDispatcher {
    order: Order,
    rows: Rows,
}

enum Rows {
    /// Rows of each expert by leaf of the token tree: `[experts, leaves]`, on a GPU that has all experts. The host never knows
    /// them.
    Device(Tensor),
    Host(Exchange),
}

/// Row counts of one exchange.
struct Exchange {
    /// Rows that this rank has for each rank of the group.
    sent: Vec<usize>,
    /// Rows of each expert here, by the rank that they came from and leaf of the token tree.
    leaves: Vec<Vec<Vec<usize>>>,
    /// The same for all ranks, by expert and leaf.
    joined: Vec<Vec<usize>>,
    counts: Vec<usize>,
}

impl TokenDispatcher {
    /// Exchanges with the group how many rows of each expert and leaf this rank has. Waits for a GPU if there are others in
    /// the group.
    pub(crate) fn of(order: Order, cx: &Context<'_>) -> kernels::Result<TokenDispatcher> {
        let tokens = order.token_count();
        let leaf = if cx.sums.token_leaf > 0 {
            cx.sums.token_leaf
        } else {
            tokens
        };
        let table = order.leaves(leaf)?;
        match table {
            Some(table) if cx.groups.ep.size() == 1 => {
                let rows = Rows::Device(table);
                Ok(TokenDispatcher { order, rows })
            }
            Some(table) => {
                let experts = table.dims()[0];
                let counts: Vec<u32> = table.download()?;
                let mine: Vec<f64> = counts.into_iter().map(f64::from).collect();
                let exchange = Exchange::of(&mine, experts, cx)?;
                let order = order.with_rows(exchange.sent.iter().sum())?;
                let rows = Rows::Host(exchange);
                Ok(TokenDispatcher { order, rows })
            }
            None => {
                let rows = Rows::Host(Exchange::of_host(&order, leaf, cx)?);
                Ok(TokenDispatcher { order, rows })
            }
        }
    }

    /// The order of this rank's choices.
    pub(crate) fn order(&self) -> &Order {
        &self.order
    }

    /// Rows of each expert here.
    pub(crate) fn counts(&self) -> Counts<'_> {
        match (&self.rows, self.order.offsets()) {
            (Rows::Host(exchange), _) => Counts::Known(&exchange.counts),
            (Rows::Device(_), Some(offsets)) => Counts::OnDevice(offsets),
            (Rows::Device(_), None) => unreachable!("leaves are where the order is"),
        }
    }

    /// Rows of each expert here by leaf of the token tree over all ranks of the group.
    pub(crate) fn leaves(&self) -> Leaves<'_> {
        match (&self.rows, self.order.offsets()) {
            (Rows::Host(exchange), _) => Leaves::Known(&exchange.joined),
            (Rows::Device(rows), Some(offsets)) => Leaves::OnDevice { offsets, rows },
            (Rows::Device(_), None) => unreachable!("leaves are where the order is"),
        }
    }

    /// The same, for each expert and rank separately; of an exchange between ranks.
    pub(crate) fn leaves_by_rank(&self) -> Vec<Vec<usize>> {
        match &self.rows {
            Rows::Host(exchange) => exchange.leaves.concat(),
            Rows::Device(_) => unreachable!("there are other ranks"),
        }
    }

    /// `[r, d]` by expert -> `[q, d]` by expert here.
    pub(crate) fn deliver(&self, rows: Tensor, cx: &Context<'_>) -> kernels::Result<Tensor> {
        match &self.rows {
            Rows::Host(exchange) if cx.groups.ep.size() > 1 => exchange.deliver(&rows, cx),
            _ => Ok(rows),
        }
    }

    /// The way back: `[q, d]` -> `[r, d]`.
    pub(crate) fn deliver_back(&self, rows: Tensor, cx: &Context<'_>) -> kernels::Result<Tensor> {
        match &self.rows {
            Rows::Host(exchange) if cx.groups.ep.size() > 1 => exchange.deliver_back(&rows, cx),
            _ => Ok(rows),
        }
    }
}

impl Exchange {
    /// Of an order on the host, for leaves of `leaf` tokens.
    fn of_host(order: &Order, leaf: usize, cx: &Context<'_>) -> kernels::Result<Exchange> {
        let counts = order.counts().unwrap_or(&[]);
        // a prompt may end within one
        let leaves = order.token_count().div_ceil(leaf);
        let mut mine = vec![0.0; counts.len() * leaves];
        let mut of_rows = order.tokens();
        for (expert, &rows) in counts.iter().enumerate() {
            for token in of_rows.by_ref().take(rows) {
                mine[expert * leaves + token / leaf] += 1.0;
            }
        }
        Exchange::of(&mine, counts.len(), cx)
    }

    /// `mine`: rows of each expert and leaf of this rank.
    fn of(mine: &[f64], experts: usize, cx: &Context<'_>) -> kernels::Result<Exchange> {
        let all = cx.groups.ep.all_gather_f64(mine)?;
        let here = experts / cx.groups.ep.size();
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
        let of_ranks = mine.chunks(mine.len() / cx.groups.ep.size());
        Ok(Exchange {
            sent: of_ranks
                .map(|counts| counts.iter().map(|&count| whole(count)).sum())
                .collect(),
            counts: counts.collect(),
            joined: leaves.iter().map(|ranks| ranks.concat()).collect(),
            leaves,
        })
    }

    fn deliver(&self, rows: &Tensor, cx: &Context<'_>) -> kernels::Result<Tensor> {
        let d = rows.dims()[1];
        let total = self.counts.iter().sum();
        let mut here = Tensor::empty(&[total, d], DType::F32, rows.device())?;
        let (own, theirs) = (self.by_receiver(d), self.by_sender(d));
        tensors::all_to_all(cx.groups.ep, rows.view(), &own, &mut here, &theirs)?;
        Ok(here)
    }

    fn deliver_back(&self, rows: &Tensor, cx: &Context<'_>) -> kernels::Result<Tensor> {
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
