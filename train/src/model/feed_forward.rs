//! The second half of a block: one feed-forward layer, or a mixture of experts.

use std::sync::Arc;

use kernels::Tensor;

use crate::config::plan::Plan;
use crate::model::context::Context;
use crate::model::gradients::Gradients;
use crate::model::mlp::{self, Mlp};
use crate::model::moe::report::Report;
use crate::model::moe::{self, Moe};
use crate::model::slots::Slots;

pub(crate) enum FeedForward {
    Dense(Mlp),
    Moe(Box<Moe>),
}

/// Kept from forward.
pub(crate) enum Saved {
    Dense(Box<mlp::Saved>),
    Moe(Box<moe::Saved>),
}

impl Saved {
    /// `[m, d]`
    pub(crate) fn input(&self) -> &Tensor {
        match self {
            Saved::Dense(saved) => saved.input(),
            Saved::Moe(saved) => saved.input(),
        }
    }

    /// Inputs of both matrices, `[m, d]` and `[n, f]`; of a mixture those of each expert in turn, then of the shared one.
    pub(crate) fn linear_inputs(&self) -> kernels::Result<Vec<Tensor>> {
        match self {
            Saved::Dense(saved) => saved.linear_inputs().map(Vec::from),
            Saved::Moe(saved) => saved.linear_inputs(),
        }
    }

    /// The large tensors.
    pub(crate) fn large(&mut self) -> Vec<&mut Tensor> {
        match self {
            Saved::Dense(saved) => saved.large(),
            Saved::Moe(saved) => saved.large(),
        }
    }

    /// The router's report, for a mixture.
    pub(crate) fn report(&self) -> Option<Arc<Report>> {
        match self {
            Saved::Dense(_) => None,
            Saved::Moe(saved) => Some(saved.report()),
        }
    }
}

impl FeedForward {
    /// The feed-forward layer or mixture of block `layer`.
    pub(crate) fn named(layer: usize, plan: &Plan, tp: usize, slots: &Slots<'_>) -> FeedForward {
        match plan.model.moe_at(layer) {
            Some(config) => {
                FeedForward::Moe(Box::new(Moe::named(layer, (plan, config), tp, slots)))
            }
            None => {
                let at = plan.model.block_name(layer);
                let mlp = Mlp::named(&at, plan, plan.shape().d_ffn, tp, slots);
                FeedForward::Dense(if plan.model.architecture().is_encoder_decoder {
                    let number = plan.model.first_dropout(layer) + 5;
                    mlp.with_dropout(plan.model.dropout, number)
                } else {
                    mlp
                })
            }
        }
    }

    /// x: `[m, d]` -> `[m, d]`
    pub(crate) fn forward(&self, x: Tensor, cx: &Context<'_>) -> kernels::Result<(Tensor, Saved)> {
        match self {
            FeedForward::Dense(mlp) => {
                let (y, saved) = mlp.forward(x, cx)?;
                Ok((y, Saved::Dense(Box::new(saved))))
            }
            FeedForward::Moe(moe) => {
                let (y, saved) = moe.forward(x, cx)?;
                Ok((y, Saved::Moe(Box::new(saved))))
            }
        }
    }

    /// dy: `[m, d]` -> dx: `[m, d]`
    pub(crate) fn backward(
        &self,
        dy: &Tensor,
        saved: Saved,
        gradients: &mut Gradients,
        cx: &Context<'_>,
    ) -> kernels::Result<Tensor> {
        match (self, saved) {
            (FeedForward::Dense(mlp), Saved::Dense(saved)) => {
                mlp.backward(dy, *saved, gradients, cx)
            }
            (FeedForward::Moe(moe), Saved::Moe(saved)) => moe.backward(dy, *saved, gradients, cx),
            _ => unreachable!("a layer gets back what its forward pass kept"),
        }
    }
}
