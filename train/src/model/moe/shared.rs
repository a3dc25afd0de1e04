//! Shared expert: a feed-forward layer that every token passes, optionally times a logistic gate of its own: y =
//! logistic(x . g) * mlp(x). Sources: DeepSeekMoE, Dai et al. 2024, arXiv:2401.06066; the gate is Qwen 1.5 MoE's.
//! The gate's dot products and their gradients are computed row by row; with sequence parallelism the rows are
//! gathered for the gradient of g, so that its sum over tokens has the same leaves.

use kernels::matmul::{Op, matmul};
use kernels::{DType, Tensor, add, rows};

use crate::config::moe::MoeConfig;
use crate::config::plan::Plan;
use crate::model::context::Context;
use crate::model::gradients::Gradients;
use crate::model::mlp::{self, Mlp};
use crate::model::slots::{Slot, Slots};

pub(crate) struct Shared {
    mlp: Mlp,
    /// g: `[1, d]`
    gate: Option<Slot>,
}

/// Kept from forward: the layer's; with a gate `[m, 1]` and the layer's result `[m, d]`.
pub(crate) struct Saved {
    mlp: mlp::Saved,
    gated: Option<(Tensor, Tensor)>,
}

impl Saved {
    /// Inputs of both matrices: `[m, d]`, `[n, f]`
    pub(crate) fn linear_inputs(&self) -> kernels::Result<[Tensor; 2]> {
        self.mlp.linear_inputs()
    }

    /// The large tensors: all but the gate's numbers.
    pub(crate) fn large(&mut self) -> Vec<&mut Tensor> {
        let gated = self.gated.iter_mut().map(|(_, y)| y);
        self.mlp.large().into_iter().chain(gated).collect()
    }
}

impl Shared {
    pub(crate) fn named(
        at: &str,
        (plan, config): (&Plan, &MoeConfig),
        tp: usize,
        slots: &Slots<'_>,
    ) -> Shared {
        let name = format!("{at}.shared");
        let gate = format!("{at}.shared_gate.weight");
        Shared {
            mlp: Mlp::named(&name, plan, config.shared_d_ffn, tp, slots),
            gate: config.shared_gate.then(|| slots.get(&gate)),
        }
    }

    /// x: `[m, d]` -> `[m, d]`
    pub(crate) fn forward(&self, x: &Tensor, cx: &Context<'_>) -> kernels::Result<(Tensor, Saved)> {
        let (y, mlp) = self.mlp.forward(x.try_clone()?, cx)?;
        let Some(gate) = self.gate else {
            return Ok((y, Saved { mlp, gated: None }));
        };
        let mut scores = Tensor::empty(&[x.dims()[0], 1], DType::F32, x.device())?;
        matmul(
            &mut scores,
            (x, Op::Plain),
            (cx.weight(gate), Op::Transposed),
            0,
            false,
        )?;
        rows::logistic(scores.view_mut())?;
        let out = rows::scaled_rows(&y, &scores)?;
        let gated = Some((scores, y));
        Ok((out, Saved { mlp, gated }))
    }

    /// dy: `[m, d]` -> dx: `[m, d]`
    pub(crate) fn backward(
        &self,
        dy: &Tensor,
        x: &Tensor,
        saved: Saved,
        gradients: &mut Gradients,
        cx: &Context<'_>,
    ) -> kernels::Result<Tensor> {
        let (Some(gate), Some((scores, y))) = (self.gate, saved.gated) else {
            return self.mlp.backward(dy, saved.mlp, gradients, cx);
        };
        let mut dscores = rows::dot_rows(dy, &y)?;
        rows::logistic_backward(dscores.view_mut(), scores.view())?;
        drop(y);
        let dout = rows::scaled_rows(dy, &scores)?;
        let mut dx = self.mlp.backward(&dout, saved.mlp, gradients, cx)?;
        let weight = cx.weight(gate);
        let mut more = Tensor::empty(dx.dims(), DType::F32, dx.device())?;
        matmul(
            &mut more,
            (&dscores, Op::Plain),
            (weight, Op::Plain),
            0,
            false,
        )?;
        add::add_into(&mut dx, &more)?;
        drop(more);
        if !gradients.has(gate) {
            return Ok(dx); // frozen
        }
        let (mut room, mut rows) = (None, None);
        let dscores = cx.gather(&dscores, &mut room)?;
        let x = cx.gather(x, &mut rows)?;
        let (dgate, accumulate) = gradients.target(gate);
        let leaf = cx.sums.token_leaf;
        matmul(
            dgate,
            (dscores, Op::Transposed),
            (x, Op::Plain),
            leaf,
            accumulate,
        )?;
        Ok(dx)
    }
}
