//! RMS norms of queries and keys before the rotary embedding: over each head (Dehghani et al. 2023, arXiv:2302.05442; Qwen 3),
//! or over all heads of a row together (OLMo 2; OLMo team 2024, arXiv:2501.00656).
//!
//! Tensor parallel: the weights of a norm over each head are on every rank, those of a norm over all heads are split with the
//! heads. Sums over heads of several ranks are gathered head by head, and every rank adds them in the order of heads: the same
//! chain in every layout.

use kernels::qk_norm::joint::{self, Normed, Totals};
use kernels::{Heads, Tensor, qk_norm, reduce, rows};

use crate::config::QkNormOver;
use crate::config::plan::Plan;
use crate::model::context::Context;
use crate::model::context::tensor_parallel::gather_rows;
use crate::model::gradients::Gradients;
use crate::model::norm::factor;
use crate::model::slots::{Slot, Slots};

pub(crate) struct QkNorms {
    q: Slot,
    k: Slot,
    over: QkNormOver,
    eps: f32,
    /// The factors are 1 + weight.
    plus_one: bool,
    /// Query features and key features of a row on all ranks.
    widths: [usize; 2],
}

/// Sums of squares of the queries and of the keys of each row, `[n, 1]` each, of a norm over all heads.
pub(crate) struct Squares(Option<[Tensor; 2]>);

impl QkNorms {
    /// The norms of block `at`, if the model has any.
    pub(crate) fn named(at: &str, plan: &Plan, slots: &Slots<'_>) -> Option<QkNorms> {
        let (shape, architecture) = (plan.shape(), plan.model.architecture());
        let norm = |name: &str| slots.get(&format!("{at}.{name}.weight"));
        architecture.qk_norm.then(|| QkNorms {
            q: norm("q_norm"),
            k: norm("k_norm"),
            over: architecture.qk_norm_over,
            eps: plan.model.norm_eps,
            plus_one: architecture.norm_plus_one,
            widths: [shape.heads, shape.kv_heads].map(|heads| heads * shape.d_head),
        })
    }

    /// Normalises packed rows in place, `[n, packed]`; returns what `backward` reads.
    pub(crate) fn forward(
        &self,
        qkv: &mut Tensor,
        heads: &Heads,
        cx: &Context<'_>,
    ) -> kernels::Result<Squares> {
        let mut room = [None, None];
        let weights = self.weights(cx, &mut room)?;
        match self.over {
            QkNormOver::Head => {
                qk_norm::forward(qkv, heads, weights, self.eps)?;
                Ok(Squares(None))
            }
            QkNormOver::All => {
                let squares = totals(joint::squares(qkv, heads)?, cx)?;
                joint::forward(qkv, heads, weights, self.of(&squares), self.eps)?;
                Ok(Squares(Some(squares)))
            }
        }
    }

    /// Turns the gradient of normalised rows into that of `raw`, the rows before the norms, in place.
    pub(crate) fn backward(
        &self,
        (dqkv, raw): (&mut Tensor, &Tensor),
        squares: &Squares,
        heads: &Heads,
        gradients: &mut Gradients,
        cx: &Context<'_>,
    ) -> kernels::Result<()> {
        let (mut room, leaf) = ([None, None], cx.sums.token_leaf);
        let weights = self.weights(cx, &mut room)?;
        let sums = match &squares.0 {
            None => {
                let (dq, dk) = qk_norm::backward(dqkv, raw, heads, weights, self.eps, leaf)?;
                [dq, dk]
            }
            Some(squares) => {
                let normed = Normed {
                    qkv: raw,
                    squares: self.of(squares),
                    eps: self.eps,
                };
                let products = totals(joint::products(dqkv, normed, heads, weights)?, cx)?;
                let of = (normed, self.of(&products));
                joint::backward(dqkv, of, heads, weights, leaf)?
            }
        };
        for (slot, sums) in [self.q, self.k].into_iter().zip(sums) {
            if !gradients.has(slot) {
                continue;
            }
            let sums = match self.over {
                QkNormOver::Head => add_heads(&sums, heads.width, cx)?,
                QkNormOver::All => sums,
            };
            let (dweight, accumulate) = gradients.target(slot);
            reduce::sum_rows(dweight, &sums, 1, accumulate)?;
        }
        Ok(())
    }

    fn weights<'a>(
        &self,
        cx: &'a Context<'_>,
        [q, k]: &'a mut [Option<Tensor>; 2],
    ) -> kernels::Result<qk_norm::Weights<'a>> {
        Ok(qk_norm::Weights {
            q: factor(cx.weight(self.q), self.plus_one, q)?,
            k: factor(cx.weight(self.k), self.plus_one, k)?,
        })
    }

    fn of<'a>(&self, [q, k]: &'a [Tensor; 2]) -> Totals<'a> {
        let [q_width, k_width] = self.widths;
        Totals {
            q,
            k,
            q_width,
            k_width,
        }
    }
}

/// Sums over the heads of all ranks: `[n, heads]` and `[n, kv_heads]` of this rank -> `[n, 1]` each.
fn totals([q, k]: [Tensor; 2], cx: &Context<'_>) -> kernels::Result<[Tensor; 2]> {
    Ok([add_heads(&q, 1, cx)?, add_heads(&k, 1, cx)?])
}

/// Sums over the heads of all ranks in their order: `[rows, heads * width]` -> `[rows, width]`. Heads that ranks share out are
/// few numbers here, so each rank adds them all: the same chain in every layout.
pub(crate) fn add_heads(
    by_head: &Tensor,
    width: usize,
    cx: &Context<'_>,
) -> kernels::Result<Tensor> {
    // a row's heads of all ranks, side by side: rows of one group of sums
    let all = gather_rows(cx.groups.tp, by_head, 1)?;
    let rows = all.elements() / width;
    rows::sum_groups(&all.reshape(&[rows, width])?, rows / by_head.dims()[0])
}
