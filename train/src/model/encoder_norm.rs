//! The norm after an encoder's last block, whose output all decoder blocks attend to; T5 applies dropout to it in
//! training.

use kernels::Tensor;

use crate::config::plan::Plan;
use crate::model::context::Context;
use crate::model::gradients::Gradients;
use crate::model::norm::{Norm, Statistics};
use crate::model::slots::Slots;

pub(crate) struct EncoderNorm {
    norm: Norm,
    dropout: (f32, u32),
}

/// Kept from forward: `[m, d]` and its statistics.
pub(crate) struct Saved(Tensor, Statistics);

impl EncoderNorm {
    pub(crate) fn named(plan: &Plan, slots: &Slots<'_>) -> EncoderNorm {
        let number = plan.model.first_dropout(plan.model.blocks());
        EncoderNorm {
            norm: Norm::named("encoder.norm", plan, slots),
            dropout: (plan.model.dropout, number),
        }
    }

    /// x: `[m, d]` -> `[m, d]`
    pub(crate) fn forward(&self, x: Tensor, cx: &Context<'_>) -> kernels::Result<(Tensor, Saved)> {
        let (mut y, statistics) = self.norm.forward(&x, cx)?;
        cx.drop_rows(&mut y, self.dropout.0, self.dropout.1)?;
        Ok((y, Saved(x, statistics)))
    }

    /// dy: `[m, d]` -> dx: `[m, d]`
    pub(crate) fn backward(
        &self,
        mut dy: Tensor,
        saved: &Saved,
        gradients: &mut Gradients,
        cx: &Context<'_>,
    ) -> kernels::Result<Tensor> {
        cx.drop_rows(&mut dy, self.dropout.0, self.dropout.1)?;
        let Saved(x, statistics) = saved;
        self.norm
            .backward(&dy, (x, statistics), None, gradients, cx)
    }
}
