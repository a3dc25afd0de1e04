//! AdamW with decoupled weight decay, as torch.optim.AdamW.
//! Paper: Loshchilov & Hutter 2019, arXiv:1711.05101. Moments start at zero; decay is for matrices.

use kernels::{AdamW, DType, Device, Tensor, adamw};

use crate::config::TrainConfig;
use crate::model::param::Spec;
use crate::optim::schedule;

/// First and second moments in slot order.
pub(crate) struct Moments {
    pub m: Vec<Tensor>,
    pub v: Vec<Tensor>,
}

impl Moments {
    pub(crate) fn zeros(weights: &[Tensor], device: &Device) -> kernels::Result<Moments> {
        let zeros = |weight: &Tensor| Tensor::zeros(weight.dims(), DType::F32, device);
        let m = weights.iter().map(zeros).collect::<kernels::Result<_>>()?;
        let v = weights.iter().map(zeros).collect::<kernels::Result<_>>()?;
        Ok(Moments { m, v })
    }

    /// Updates the weights of `specs` with gradients scaled by `factor`; `step` counts from 1.
    pub(crate) fn update(
        &mut self,
        weights: &mut [Tensor],
        gradients: &[Tensor],
        specs: &[&Spec],
        (config, step, factor): (&TrainConfig, u64, f32),
    ) {
        let rate = schedule::rate(config, step);
        for (slot, spec) in specs.iter().enumerate() {
            let parameters = AdamW {
                lr: narrow(rate),
                beta1: config.beta1,
                beta2: config.beta2,
                eps: config.eps,
                weight_decay: if spec.has_decay() {
                    config.weight_decay
                } else {
                    0.0
                },
                grad_scale: factor,
                step,
            };
            let (m, v) = (self.m[slot].f32_mut(), self.v[slot].f32_mut());
            adamw::step(
                weights[slot].f32_mut(),
                gradients[slot].f32(),
                m,
                v,
                &parameters,
            );
        }
    }
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "rounds to f32, where weights live"
)]
fn narrow(x: f64) -> f32 {
    x as f32
}
