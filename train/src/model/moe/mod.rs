//! Mixture of experts: y = sum over the k chosen experts e of weight_e * expert_e(x), plus a shared
//! expert that every token passes.
//! Papers: Shazeer et al. 2017, arXiv:1701.06538; Gale et al. 2022, arXiv:2211.15841 (dropless);
//! Lepikhin et al. 2020, arXiv:2006.16668 (expert parallelism).
//!
//! A rank's tokens are sorted by expert, in order of (sequence, position) inside an expert. All-to-all dispatch
//! sends rows to the rank that has the expert (`token_dispatcher.rs`); they go through its two matrices
//! (`experts.rs`) and back. A token adds its k experts' outputs in the router's order. Tensor parallelism splits
//! every expert's features; its sums are over experts' rows, before tokens add them, so that a token adds whole
//! rows in every layout. With sequence parallelism the tokens are gathered first and every rank routes all of them.
//!
//! r: rows of this rank's choices; q: rows that its experts receive; q = r without expert parallelism.
//!
//! A GPU that has all experts orders the choices itself: the host never knows how many rows an expert has, so r is the number
//! of choices, and rows past those of the last expert are zeros. Between ranks the host has to know the counts for the
//! exchange, and waits for them once a layer.

mod biases;
mod expert_adapters;
pub(crate) mod experts;
pub(crate) mod report;
pub(crate) mod router;
pub(crate) mod shared;
pub(crate) mod token_dispatcher;
mod weight_sums;

use std::sync::Arc;

use kernels::grouped_matmul::Counts;
use kernels::permute;
use kernels::{Tensor, add};

use crate::config::moe::MoeConfig;
use crate::config::plan::Plan;
use crate::model::context::Context;
use crate::model::context::tensor_parallel::Rows;
use crate::model::gradients::Gradients;
use crate::model::mlp;
use crate::model::moe::experts::Experts;
use crate::model::moe::report::Report;
use crate::model::moe::router::{Routed, Router};
use crate::model::moe::shared::Shared;
use crate::model::moe::token_dispatcher::TokenDispatcher;
use crate::model::slots::Slots;

pub(crate) struct Moe {
    router: Router,
    experts: Experts,
    shared: Option<Shared>,
}

/// Kept from forward: `[m, d]`, the router's, `[r, d]`, and the experts' rows.
pub(crate) struct Saved {
    x: Tensor,
    routed: Routed,
    dispatcher: TokenDispatcher,
    /// Outputs of the experts for this rank's choices.
    rows: Tensor,
    experts: experts::Saved,
    shared: Option<shared::Saved>,
}

impl Saved {
    /// `[m, d]`
    pub(crate) fn input(&self) -> &Tensor {
        &self.x
    }

    /// Inputs of both matrices of each expert here in turn, then of the shared one: `[rows, d]`, `[rows, f]`. The host has to know
    /// the counts of rows: on a GPU that has all experts it does not.
    pub(crate) fn linear_inputs(&self) -> kernels::Result<Vec<Tensor>> {
        let Counts::Known(counts) = self.dispatcher.counts() else {
            return Ok(Vec::new());
        };
        let mut inputs = self.experts.linear_inputs(counts)?;
        if let Some(shared) = &self.shared {
            inputs.extend(shared.linear_inputs()?);
        }
        Ok(inputs)
    }

    /// The large tensors; the router's are small.
    pub(crate) fn large(&mut self) -> Vec<&mut Tensor> {
        let own = [&mut self.x, &mut self.rows];
        let experts = self.experts.large();
        let shared = self.shared.iter_mut().flat_map(shared::Saved::large);
        own.into_iter().chain(experts).chain(shared).collect()
    }

    pub(crate) fn report(&self) -> Arc<Report> {
        Arc::clone(&self.routed.report)
    }
}

impl Moe {
    /// The mixture of block `layer`.
    pub(crate) fn named(
        layer: usize,
        (plan, config): (&Plan, &MoeConfig),
        tp: usize,
        slots: &Slots<'_>,
    ) -> Moe {
        let at = plan.model.block_name(layer);
        let shared =
            (config.shared_d_ffn > 0).then(|| Shared::named(&at, (plan, config), tp, slots));
        Moe {
            router: Router::named((layer, &at), config, slots),
            experts: Experts::named(&at, (plan, config), tp, slots),
            shared,
        }
    }

    /// x: `[m, d]` -> `[m, d]`
    pub(crate) fn forward(&self, x: Tensor, cx: &Context<'_>) -> kernels::Result<(Tensor, Saved)> {
        let mut room = None;
        let whole = cx.gather(&x, &mut room)?; // [n, d]
        let (routed, order) = self.router.forward(whole, cx)?;
        let dispatcher = TokenDispatcher::of(order, cx)?;
        let rows = permute::permute(whole, dispatcher.order())?; // [r, d]
        let rows = dispatcher.deliver(rows, cx)?; // [q, d]
        drop(room);
        let (rows, experts) = self.experts.forward(rows, dispatcher.counts(), cx)?;
        let rows = dispatcher.deliver_back(rows, cx)?; // [r, d]
        let y = permute::combine(&rows, &routed.weights, dispatcher.order())?;
        let mut y = cx.own_rows(y)?;
        let shared = match &self.shared {
            Some(shared) => {
                let (more, saved) = shared.forward(&x, cx)?;
                add::add_into(&mut y, &more)?;
                Some(saved)
            }
            None => None,
        };
        Ok((
            y,
            Saved {
                x,
                routed,
                dispatcher,
                rows,
                experts,
                shared,
            },
        ))
    }

    /// dy: `[m, d]` -> dx: `[m, d]`
    pub(crate) fn backward(
        &self,
        dy: &Tensor,
        saved: Saved,
        gradients: &mut Gradients,
        cx: &Context<'_>,
    ) -> kernels::Result<Tensor> {
        let Saved {
            x,
            routed,
            dispatcher,
            rows,
            experts,
            shared,
        } = saved;
        let mut room = None;
        let whole = cx.gather(dy, &mut room)?; // [n, d]
        let order = dispatcher.order();
        let (drows, dweights) = permute::combine_backward(whole, &rows, &routed.weights, order)?;
        drop((room, rows));
        let drows = dispatcher.deliver(drows, cx)?; // [q, d]
        let drows = self
            .experts
            .backward(drows, experts, (&dispatcher, gradients), cx)?;
        let drows = dispatcher.deliver_back(drows, cx)?; // [r, d]
        let mut dx = permute::permute_backward(&drows, dispatcher.order())?;
        drop(drows);
        let mut room = None;
        let whole = cx.gather(&x, &mut room)?;
        let more = self
            .router
            .backward(whole, &dweights, &routed, gradients, cx)?;
        add::add_into(&mut dx, &more)?;
        let mut dx = cx.own_rows(dx)?;
        if let (Some(shared), Some(saved)) = (&self.shared, shared) {
            let more = shared.backward(dy, &x, saved, gradients, cx)?;
            add::add_into(&mut dx, &more)?;
        }
        Ok(dx)
    }
}

/// 4-byte words of each tensor that a layer keeps beside its input, the router's small ones and then the large
/// ones, for n tokens of which m rows are between layers, if choices are even over ranks and none is dropped.
pub(crate) fn kept(
    (plan, block): (&Plan, usize),
    config: &MoeConfig,
    Rows { n, m }: Rows,
    tp: usize,
) -> [Vec<usize>; 2] {
    let (d, k) = (plan.model.d_model, config.top_k);
    let rows = n * k;
    let mut few = vec![n * config.experts, rows, rows];
    let mut large = vec![rows * d, rows * d];
    // ops of activations that are not gated know f32 alone, and biases are added in it
    let is_f32 = !plan.model.architecture().activation.is_gated() || config.biases;
    let f = plan.model.d_expert() / tp;
    large.extend(mlp::kept((plan, block), rows, f, is_f32));
    if config.shared_d_ffn > 0 {
        large.push(m * d);
        large.extend(mlp::kept((plan, block), n, config.shared_d_ffn / tp, false));
    }
    if config.shared_gate {
        few.push(m);
        large.push(m * d);
    }
    [few, large]
}
