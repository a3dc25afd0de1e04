//! One transformer block, pre-norm: m = x + attention(norm1(x)); y = m + mlp(norm2(m)).
//! Kept for backward: about 12 d per token and block (gpt), all freed by backward.

use kernels::{Tensor, add};

use crate::model::attention::{self, Attention};
use crate::model::context::{Context, Slots};
use crate::model::gradients::Gradients;
use crate::model::mlp::{self, Mlp};
use crate::model::norm::{Norm, Statistics};
use crate::plan::Plan;

pub(crate) struct Block {
    pub norm1: Norm,
    pub attention: Attention,
    norm2: Norm,
    mlp: Mlp,
}

pub(crate) struct Saved {
    x: Tensor,
    statistics1: Statistics,
    attention: attention::Saved,
    middle: Tensor,
    statistics2: Statistics,
    mlp: mlp::Saved,
}

impl Block {
    pub(crate) fn named(at: &str, plan: &Plan, tp: usize, slots: &Slots<'_>) -> Block {
        let eps = plan.model.norm_eps;
        Block {
            norm1: Norm::named(&format!("{at}.norm1"), eps, slots),
            attention: Attention::named(at, plan, tp, slots),
            norm2: Norm::named(&format!("{at}.norm2"), eps, slots),
            mlp: Mlp::named(at, plan, tp, slots),
        }
    }

    /// x: `[n, d]` -> y: `[n, d]`
    pub(crate) fn forward(&self, x: Tensor, cx: &Context<'_>) -> kernels::Result<(Tensor, Saved)> {
        let (normed, statistics1) = self.norm1.forward(&x, cx)?;
        let (mut middle, attention) = self.attention.forward(normed, cx)?;
        add::add_into(&mut middle, &x)?;
        let (normed, statistics2) = self.norm2.forward(&middle, cx)?;
        let (mut y, mlp) = self.mlp.forward(normed, cx)?;
        add::add_into(&mut y, &middle)?;
        Ok((
            y,
            Saved {
                x,
                statistics1,
                attention,
                middle,
                statistics2,
                mlp,
            },
        ))
    }

    /// The second half alone, for inference: middle `[n, d]` -> y `[n, d]`.
    pub(crate) fn feed_forward(
        &self,
        middle: &Tensor,
        cx: &Context<'_>,
    ) -> kernels::Result<Tensor> {
        let (normed, _) = self.norm2.forward(middle, cx)?;
        let (mut y, _) = self.mlp.forward(normed, cx)?;
        add::add_into(&mut y, middle)?;
        Ok(y)
    }

    /// dy: `[n, d]` -> dx: `[n, d]`
    pub(crate) fn backward(
        &self,
        dy: Tensor,
        saved: Saved,
        gradients: &mut Gradients,
        cx: &Context<'_>,
    ) -> kernels::Result<Tensor> {
        let Saved {
            x,
            statistics1,
            attention,
            middle,
            statistics2,
            mlp,
        } = saved;
        let dnormed = self.mlp.backward(&dy, mlp, gradients, cx)?;
        let mut dmiddle = self
            .norm2
            .backward(&dnormed, &middle, &statistics2, gradients, cx)?;
        add::add_into(&mut dmiddle, &dy)?;
        drop((dy, middle));
        let dnormed = self
            .attention
            .backward(&dmiddle, attention, gradients, cx)?;
        let mut dx = self
            .norm1
            .backward(&dnormed, &x, &statistics1, gradients, cx)?;
        add::add_into(&mut dx, &dmiddle)?;
        Ok(dx)
    }
}
