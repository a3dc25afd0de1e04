//! The family's norm over the model width, with its weights: layer norm (Ba et al. 2016, arXiv:1607.06450) or RMS
//! norm (Zhang & Sennrich 2019, arXiv:1910.07467). Replicated over tensor-parallel ranks: every rank computes the
//! same bits. With sequence parallelism each has only its rows; weight gradients are then summed over ranks
//! sequence by sequence, as the tree over token leaves requires. Gemma's RMS norms multiply with 1 + weight, whose gradient is the
//! weight's.

use kernels::{DType, Tensor, layer_norm, reduce, rms_norm, rows};

use crate::config::plan::Plan;
use crate::model::context::Context;
use crate::model::gradients::Gradients;
use crate::model::slots::{Slot, Slots};

/// Has a bias exactly if it is a layer norm.
pub(crate) struct Norm {
    weight: Slot,
    bias: Option<Slot>,
    eps: f32,
    /// The factor is 1 + weight.
    plus_one: bool,
}

/// A norm's factor: the weight, or, in `room`, 1 + weight.
pub(crate) fn factor<'a>(
    weight: &'a Tensor,
    plus_one: bool,
    room: &'a mut Option<Tensor>,
) -> kernels::Result<&'a Tensor> {
    if !plus_one {
        return Ok(weight);
    }
    let shifted = room.insert(weight.try_clone()?);
    rows::shift(shifted.view_mut(), 1.0)?;
    Ok(shifted)
}

/// Statistics of each row kept for backward: `[n]` each.
pub(crate) struct Statistics {
    mean: Option<Tensor>,
    inverse: Tensor,
}

impl Norm {
    pub(crate) fn named(name: &str, plan: &Plan, slots: &Slots<'_>) -> Norm {
        let weight = slots.get(&format!("{name}.weight"));
        Norm {
            weight,
            bias: slots.find(&format!("{name}.bias")),
            eps: plan.model.norm_eps,
            plus_one: plan.model.architecture().norm_plus_one,
        }
    }

    /// The RMS norm of a latent.
    pub(crate) fn of_latent(name: &str, plan: &Plan, slots: &Slots<'_>) -> Norm {
        Norm {
            eps: plan.model.latent_norm_eps(),
            ..Norm::named(name, plan, slots)
        }
    }

    fn factor<'a>(
        &self,
        cx: &'a Context<'_>,
        room: &'a mut Option<Tensor>,
    ) -> kernels::Result<&'a Tensor> {
        factor(cx.weight(self.weight), self.plus_one, room)
    }

    /// x: `[n, d]` -> y: `[n, d]`
    pub(crate) fn forward(
        &self,
        x: &Tensor,
        cx: &Context<'_>,
    ) -> kernels::Result<(Tensor, Statistics)> {
        let mut room = None;
        let weight = self.factor(cx, &mut room)?;
        Ok(if let Some(bias) = self.bias {
            let bias = cx.weight(bias);
            let (y, mean, inverse) = layer_norm::forward(x, weight, bias, self.eps)?;
            (y, Statistics::of_layer_norm(mean, inverse))
        } else {
            let (y, inverse) = rms_norm::forward(x, weight, self.eps)?;
            (y, Statistics::of_rms_norm(inverse))
        })
    }

    /// Adds more to x and normalises the sum in one pass. x and more: `[n, d]` -> y: `[n, d]`
    pub(crate) fn forward_sum(
        &self,
        x: &mut Tensor,
        more: &Tensor,
        cx: &Context<'_>,
    ) -> kernels::Result<(Tensor, Statistics)> {
        let mut room = None;
        let weight = self.factor(cx, &mut room)?;
        Ok(if let Some(bias) = self.bias {
            let bias = cx.weight(bias);
            let (y, mean, inverse) = layer_norm::forward_sum(x, more, weight, bias, self.eps)?;
            (y, Statistics::of_layer_norm(mean, inverse))
        } else {
            let (y, inverse) = rms_norm::forward_sum(x, more, weight, self.eps)?;
            (y, Statistics::of_rms_norm(inverse))
        })
    }

    /// dy and more: `[n, d]` -> dx, to which `more` is added: `[n, d]`
    pub(crate) fn backward(
        &self,
        dy: &Tensor,
        (x, saved): (&Tensor, &Statistics),
        more: Option<&Tensor>,
        gradients: &mut Gradients,
        cx: &Context<'_>,
    ) -> kernels::Result<Tensor> {
        if cx.sequence.is_parallel {
            return self.backward_rows(dy, (x, saved), more, gradients, cx);
        }
        let (mut shifted, leaf) = (None, cx.sums.token_leaf);
        let weight = self.factor(cx, &mut shifted)?;
        let inverse = &saved.inverse;
        if let (Some(bias), Some(mean)) = (self.bias, &saved.mean) {
            let mut room = [None, None];
            let [dw, db] = gradients.sums_or([self.weight, bias], weight, &mut room)?;
            let saved = layer_norm::Statistics {
                mean,
                inv_std: inverse,
            };
            let sums = layer_norm::Gradients { dw, db };
            layer_norm::backward(dy, x, weight, &saved, more, sums, leaf)
        } else {
            let mut room = [None];
            let [dw] = gradients.sums_or([self.weight], weight, &mut room)?;
            rms_norm::backward(dy, x, weight, inverse, more, dw, leaf)
        }
    }

    /// Like `backward` where every rank has a share of each sequence.
    fn backward_rows(
        &self,
        dy: &Tensor,
        (x, saved): (&Tensor, &Statistics),
        more: Option<&Tensor>,
        gradients: &mut Gradients,
        cx: &Context<'_>,
    ) -> kernels::Result<Tensor> {
        let (mut shifted, leaf) = (None, cx.sums.token_leaf);
        let weight = self.factor(cx, &mut shifted)?;
        let by_sequence = [x.dims()[0] / cx.row_time(), x.dims()[1]];
        let zeros = || Tensor::zeros(&by_sequence, DType::F32, x.device());
        let mut dw = zeros()?;
        let inverse = &saved.inverse;
        let dx = if let (Some(bias), Some(mean)) = (self.bias, &saved.mean) {
            let mut db = zeros()?;
            let saved = layer_norm::Statistics {
                mean,
                inv_std: inverse,
            };
            let sums = layer_norm::Gradients {
                dw: &mut dw,
                db: &mut db,
            };
            let dx = layer_norm::backward(dy, x, weight, &saved, more, sums, leaf)?;
            if gradients.has(bias) {
                let db = cx.sum_over_tp(db)?;
                let [sum] = gradients.sums([bias])?;
                reduce::sum_rows(sum, &db, 1, true)?;
            }
            dx
        } else {
            rms_norm::backward(dy, x, weight, inverse, more, &mut dw, leaf)?
        };
        if !gradients.has(self.weight) {
            return Ok(dx);
        }
        let dw = cx.sum_over_tp(dw)?;
        let [sum] = gradients.sums([self.weight])?;
        reduce::sum_rows(sum, &dw, 1, true)?;
        Ok(dx)
    }
}

impl Statistics {
    fn of_layer_norm(mean: Tensor, inverse: Tensor) -> Statistics {
        let mean = Some(mean);
        Statistics { mean, inverse }
    }

    fn of_rms_norm(inverse: Tensor) -> Statistics {
        Statistics {
            mean: None,
            inverse,
        }
    }
}
