//! The experts on this rank: each a feed-forward layer without biases, as `mlp.rs` has it, on the rows
//! that chose it. Tensor parallel: an expert's first matrix is split by column, its second by row, so
//! every rank has the same rows and the sums over ranks are over them.

use kernels::grouped_matmul;
use kernels::matmul::Op;
use kernels::{DType, Tensor};

use crate::mixture::MoeConfig;
use crate::model::context::{Context, Slot, Slots};
use crate::model::gradients::Gradients;
use crate::model::mlp::Between;
use crate::model::moe::traffic::Traffic;
use crate::plan::Plan;

pub(crate) struct Experts {
    /// Of each expert here: `[2f, d]` or `[f, d]`.
    fc1: Vec<Slot>,
    /// `[f, d]`
    fc2: Vec<Slot>,
    activation: Between,
    /// Output features of whole first matrices, and input features of second ones.
    widths: (usize, usize),
}

/// Kept from forward: `[q, d]`, `[q, 2f]` or `[q, f]`, `[q, f]`.
pub(crate) struct Saved {
    x: Tensor,
    inner: Option<(Tensor, Tensor)>,
}

impl Experts {
    pub(crate) fn named(
        at: &str,
        (plan, config): (&Plan, &MoeConfig),
        tp: usize,
        slots: &Slots<'_>,
    ) -> Experts {
        let f = plan.model.d_expert();
        let of = |name: &str| {
            let all = 0..config.experts;
            all.filter_map(|e| slots.find(&format!("{at}.experts.{e}.{name}.weight")))
                .collect()
        };
        Experts {
            fc1: of("fc1"),
            fc2: of("fc2"),
            activation: Between::of(plan, tp),
            widths: (plan.model.architecture().fc1_widths() * f, f),
        }
    }

    /// x: `[q, d]` by expert, `counts` rows of each -> `[q, d]`, summed over ranks.
    pub(crate) fn forward(
        &self,
        x: Tensor,
        counts: &[usize],
        cx: &Context<'_>,
    ) -> kernels::Result<(Tensor, Saved)> {
        if x.dims()[0] == 0 {
            // no token chose an expert of this rank
            let y = Tensor::empty(x.dims(), DType::F32, x.device())?;
            return Ok((y, Saved { x, inner: None }));
        }
        let (fc1, fc2) = (weights(&self.fc1, cx), weights(&self.fc2, cx));
        let before = grouped_matmul::forward(&x, (&fc1, Op::Transposed), counts, 0)?;
        let (before, hidden) = self.activation.forward(before)?;
        let leaf = cx.feature_leaf(self.widths.1);
        let y = grouped_matmul::forward(&hidden, (&fc2, Op::Plain), counts, leaf)?;
        let y = cx.sum_over_tp(y)?;
        let inner = Some((before, hidden));
        Ok((y, Saved { x, inner }))
    }

    /// dy: `[q, d]` -> dx: `[q, d]`, summed over ranks.
    pub(crate) fn backward(
        &self,
        dy: Tensor,
        saved: Saved,
        (traffic, gradients): (&Traffic, &mut Gradients),
        cx: &Context<'_>,
    ) -> kernels::Result<Tensor> {
        let Some((before, hidden)) = saved.inner else {
            gradients.sums_of(&self.fc1);
            gradients.sums_of(&self.fc2);
            return Ok(dy);
        };
        let (fc1, fc2) = (weights(&self.fc1, cx), weights(&self.fc2, cx));
        let (counts, leaves) = (traffic.counts(), traffic.leaves());
        let mut dfc2 = gradients.sums_of(&self.fc2);
        grouped_matmul::backward_weight((&mut dfc2, Op::Plain), &dy, &hidden, &leaves)?;
        drop(hidden);
        let dhidden = grouped_matmul::backward_input(&dy, (&fc2, Op::Plain), counts, 0)?;
        drop(dy);
        let dbefore = self.activation.backward(dhidden, &before)?;
        drop(before);
        let mut dfc1 = gradients.sums_of(&self.fc1);
        grouped_matmul::backward_weight((&mut dfc1, Op::Transposed), &dbefore, &saved.x, &leaves)?;
        let leaf = cx.feature_leaf(self.widths.0);
        let dx = grouped_matmul::backward_input(&dbefore, (&fc1, Op::Transposed), counts, leaf)?;
        cx.sum_over_tp(dx)
    }
}

fn weights<'a>(slots: &[Slot], cx: &Context<'a>) -> Vec<&'a Tensor> {
    slots.iter().map(|&slot| cx.weight(slot)).collect()
}
