//! Feed-forward layer: y = act(x W1^T + b1) W2 + b2; a gated act (Shazeer 2020, arXiv:2002.05202)
//! is f(gate) * up of two halves of W1.
//!
//! Tensor parallel: W1 split by column, W2 by row: one all-reduce forward, one backward.
//! The rows of a gated W1 are stored in FEATURE_CHUNKS chunks, each f/8 gate rows then f/8 up rows:
//! any contiguous share of chunks is a smaller layer of the same form, and the sum over its output
//! features has the same leaves in every layout.

use kernels::activation::{self, Kind};
use kernels::glu::{self, Gate};
use kernels::{DType, Tensor};

use crate::config::Activation;
use crate::config::numbers;
use crate::config::plan::{FEATURE_CHUNKS, Plan};
use crate::model::context::Context;
use crate::model::gradients::Gradients;
use crate::model::linear::{ColumnLinear, End, RowLinear};
use crate::model::slots::Slots;

pub(crate) struct Mlp {
    fc1: ColumnLinear,
    fc2: RowLinear,
    activation: Between,
    /// Dropout of the second matrix's input: probability and tensor number.
    dropout: (f32, u32),
}

/// Kept from forward: `[m, d]`, `[n, f]` or `[n, 2f]`, `[n, f]`.
pub(crate) struct Saved {
    x: Tensor,
    /// Input of the activation; where the activation is fused with the product, its derivative there.
    before: Tensor,
    hidden: Tensor,
}

impl Saved {
    /// `[m, d]`
    pub(crate) fn input(&self) -> &Tensor {
        &self.x
    }

    /// Inputs of both matrices: `[m, d]`, `[n, f]`
    pub(crate) fn linear_inputs(&self) -> kernels::Result<[Tensor; 2]> {
        Ok([self.x.try_clone()?, self.hidden.try_clone()?])
    }

    /// The large tensors.
    pub(crate) fn large(&mut self) -> Vec<&mut Tensor> {
        vec![&mut self.x, &mut self.before, &mut self.hidden]
    }
}

impl Mlp {
    /// `f`: features of the whole layer, which `tp` ranks split.
    pub(crate) fn named(at: &str, plan: &Plan, f: usize, tp: usize, slots: &Slots<'_>) -> Mlp {
        let out = plan.model.architecture().fc1_widths() * f;
        Mlp {
            fc1: ColumnLinear::named(&format!("{at}.fc1"), out, slots),
            fc2: RowLinear::named(&format!("{at}.fc2"), f, slots),
            activation: Between::of(plan, tp),
            dropout: (0.0, 0),
        }
    }

    /// Adds dropout before the second matrix, as T5 has.
    pub(crate) fn with_dropout(self, p: f32, tensor: u32) -> Mlp {
        let dropout = (p, tensor);
        Mlp { dropout, ..self }
    }

    /// x: `[m, d]` -> `[m, d]`
    pub(crate) fn forward(&self, x: Tensor, cx: &Context<'_>) -> kernels::Result<(Tensor, Saved)> {
        let (before, hidden) = match self.plain() {
            Some(kind) => self.fc1.forward_activated(&x, kind, cx)?,
            None => {
                let before = self.fc1.forward(&x, self.between(cx), cx)?;
                let (before, mut hidden) = self.activation.forward(before)?;
                cx.drop_features(&mut hidden, self.dropout.0, self.dropout.1)?;
                (before, hidden)
            }
        };
        let y = self.fc2.forward(&hidden, cx)?;
        Ok((y, Saved { x, before, hidden }))
    }

    /// The activation, if it can be fused with the products: dropout would come between it and the second matrix, and
    /// adapters before it.
    fn plain(&self) -> Option<Kind> {
        let has_lora = self.fc1.lora.is_some() || self.fc2.lora.is_some();
        let kind = self.activation.plain();
        kind.filter(|_| self.dropout.0 == 0.0 && !has_lora)
    }

    /// Format of the tensors between the matrices if an unfused op reads them: dropout needs f32.
    fn between(&self, cx: &Context<'_>) -> DType {
        if self.dropout.0 == 0.0 {
            self.activation.stored(cx)
        } else {
            DType::F32
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
        let Saved { x, before, hidden } = saved;
        let end = match self.plain() {
            Some(_) => End::FlowGrad(&before),
            None => End::Stored(self.between(cx)),
        };
        let mut dhidden = self.fc2.backward(dy, &hidden, end, gradients, cx)?;
        drop(hidden);
        let dbefore = match self.plain() {
            Some(_) => dhidden,
            None => {
                cx.drop_features(&mut dhidden, self.dropout.0, self.dropout.1)?;
                self.activation.backward(dhidden, &before)?
            }
        };
        drop(before);
        self.fc1.backward(&dbefore, &x, gradients, cx)
    }
}

/// 4-byte words of each tensor that a block's layer keeps beside its input, for n rows of f features of a rank;
/// `is_f32`: f32 even between bf16 products.
pub(crate) fn kept((plan, block): (&Plan, usize), n: usize, f: usize, is_f32: bool) -> [usize; 2] {
    let architecture = plan.model.architecture();
    let all = [n * architecture.fc1_widths() * f, n * f];
    if !is_f32 && numbers::has_bf16_between(plan, block) {
        return all.map(|count| count.div_ceil(2));
    }
    all
}

/// The activation between the matrices, on rows of one rank's share of features.
#[derive(Clone, Copy)]
pub(crate) struct Between {
    activation: Activation,
    /// Chunks of gate and up features on this rank, if it is gated.
    chunks: usize,
}

impl Between {
    pub(crate) fn of(plan: &Plan, tp: usize) -> Between {
        Between {
            activation: plan.model.architecture().activation,
            chunks: FEATURE_CHUNKS / tp,
        }
    }

    /// Format of the activation's input and output: ops for activations that are not gated support f32 alone.
    pub(crate) fn stored(self, cx: &Context<'_>) -> DType {
        if self.activation.is_gated() {
            cx.between_products()
        } else {
            DType::F32
        }
    }

    /// The function, if it is not gated.
    fn plain(self) -> Option<Kind> {
        plain(self.activation)
    }

    /// before: `[n, f]` or `[n, 2f]` -> the same, by chunks if gated, and hidden: `[n, f]`
    pub(crate) fn forward(self, before: Tensor) -> kernels::Result<(Tensor, Tensor)> {
        let &[n, width] = before.dims() else {
            unreachable!("products of matrices have two dims")
        };
        if !self.activation.is_gated() {
            let hidden = activate(&before, self.activation)?;
            return Ok((before, hidden));
        }
        // [n, chunks * 2w] is [n * chunks, 2w]: each row is one chunk's gates, then its ups
        let before = before.reshape(&[n * self.chunks, width / self.chunks])?;
        let hidden = activate(&before, self.activation)?;
        Ok((before, hidden.reshape(&[n, width / 2])?))
    }

    /// dhidden: `[n, f]` -> dbefore: `[n, f]` or `[n, 2f]`
    pub(crate) fn backward(self, dhidden: Tensor, before: &Tensor) -> kernels::Result<Tensor> {
        if !self.activation.is_gated() {
            return slope(&dhidden, before, self.activation);
        }
        let &[n, width] = dhidden.dims() else {
            unreachable!("products of matrices have two dims")
        };
        let dhidden = dhidden.reshape(&[n * self.chunks, width / self.chunks])?;
        slope(&dhidden, before, self.activation)?.reshape(&[n, 2 * width])
    }
}

/// The function of an activation that is not gated.
fn plain(kind: Activation) -> Option<Kind> {
    match kind {
        Activation::GeluTanh => Some(Kind::GeluTanh),
        Activation::Gelu => Some(Kind::GeluErf),
        Activation::QuickGelu => Some(Kind::QuickGelu),
        Activation::Relu => Some(Kind::Relu),
        Activation::SquaredRelu => Some(Kind::SquaredRelu),
        Activation::Swiglu
        | Activation::SwigluClamped
        | Activation::Geglu
        | Activation::GegluTanh => None,
    }
}

/// The activation of each row; a gated one halves its width.
pub(crate) fn activate(x: &Tensor, kind: Activation) -> kernels::Result<Tensor> {
    match kind {
        Activation::Swiglu => glu::forward(x, Gate::Silu),
        Activation::SwigluClamped => glu::forward(x, Gate::Clamped),
        Activation::Geglu => glu::forward(x, Gate::GeluErf),
        Activation::GegluTanh => glu::forward(x, Gate::GeluTanh),
        kind => activation::forward(x, None, plain(kind).expect("it is not gated")),
    }
}

/// Gradient of `activate`, dims of x.
pub(crate) fn slope(dy: &Tensor, x: &Tensor, kind: Activation) -> kernels::Result<Tensor> {
    match kind {
        Activation::Swiglu => glu::backward(dy, x, Gate::Silu),
        Activation::SwigluClamped => glu::backward(dy, x, Gate::Clamped),
        Activation::Geglu => glu::backward(dy, x, Gate::GeluErf),
        Activation::GegluTanh => glu::backward(dy, x, Gate::GeluTanh),
        kind => activation::backward(dy, x, None, plain(kind).expect("it is not gated")),
    }
}
