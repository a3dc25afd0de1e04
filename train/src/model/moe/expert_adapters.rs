//! Low-rank adapters of experts: y_e += scale (x_e A_e^T) B_e^T, as in `lora.rs`, by grouped products over the rows that chose each
//! expert. Every tensor-parallel rank has all rows of an expert, so x A^T and its gradient are summed over ranks by all-reduces, as the
//! experts' own outputs are.

use kernels::grouped_matmul::{self, Counts};
use kernels::matmul::Op;
use kernels::{DType, Tensor, add, rows};

use crate::config::precision::Features::{Split, Whole};
use crate::config::precision::Role;
use crate::model::context::Context;
use crate::model::gradients::Gradients;
use crate::model::moe::token_dispatcher::TokenDispatcher;
use crate::model::moe::weight_sums::{Factors, add_sums};
use crate::model::precision::Operand;
use crate::model::slots::Slot;

/// Features of the whole layer that tensor-parallel ranks share out.
#[derive(Clone, Copy)]
pub(super) enum SplitWidth {
    Outputs(usize),
    Inputs(usize),
}

/// The adapters of one layer of the experts here.
pub(super) struct ExpertAdapters {
    /// `[rank, d]`; where inputs are split `[f/tp, rank]`.
    pub(super) a: Vec<Slot>,
    /// `[2f/tp, rank]` or `[f/tp, rank]`; where inputs are split `[d, rank]`.
    pub(super) b: Vec<Slot>,
    pub(super) width: SplitWidth,
}

impl ExpertAdapters {
    /// How x multiplies with A, in leaves of how many features.
    fn of_a(&self, cx: &Context<'_>) -> (Op, usize) {
        match self.width {
            SplitWidth::Outputs(_) => (Op::Transposed, 0),
            SplitWidth::Inputs(all) => (Op::Plain, cx.feature_leaf(all)),
        }
    }

    fn inputs(&self) -> Role {
        match self.width {
            SplitWidth::Outputs(_) => Role::Input(Whole),
            SplitWidth::Inputs(_) => Role::Input(Split),
        }
    }

    fn scale(x: &mut Tensor, cx: &Context<'_>) -> kernels::Result<()> {
        rows::scale(x.view_mut(), cx.arithmetic.lora_scale)
    }

    /// x: `[q, in]` -> scale x A^T: `[q, rank]`, the same on every rank
    fn features(
        &self,
        x: &Operand<'_>,
        counts: Counts<'_>,
        cx: &Context<'_>,
    ) -> kernels::Result<Tensor> {
        let (op, leaf) = self.of_a(cx);
        let kind = (cx.numbers(), DType::F32);
        let u = cx.product_with(&self.a, |a| {
            grouped_matmul::forward(kind, x, (a, op), counts, leaf)
        })?;
        let mut u = match self.width {
            SplitWidth::Outputs(_) => u,
            SplitWidth::Inputs(_) => cx.sum_over_tp(u)?,
        };
        ExpertAdapters::scale(&mut u, cx)?;
        Ok(u)
    }

    /// Adds to y, `[q, out]`, which is summed over ranks if inputs are split, the adapters' results for x, `[q, in]`.
    pub(super) fn add(
        &self,
        y: &mut Tensor,
        x: &Tensor,
        counts: Counts<'_>,
        cx: &Context<'_>,
    ) -> kernels::Result<()> {
        let u = self.features(&cx.factor(x, self.inputs())?, counts, cx)?;
        let u = cx.factor(&u, Role::Input(Whole))?;
        let kind = (cx.numbers(), DType::F32);
        let more = cx.product_with(&self.b, |b| {
            grouped_matmul::forward(kind, &u, (b, Op::Transposed), counts, 0)
        })?;
        add::add_into(y, &more)
    }

    /// dy: `[q, out]`, x: `[q, in]` -> the gradient of x A^T: `[q, rank]`, the same on every rank
    pub(super) fn backward(
        &self,
        dy: &Tensor,
        x: &Tensor,
        (dispatcher, gradients): (&TokenDispatcher, &mut Gradients),
        cx: &Context<'_>,
    ) -> kernels::Result<Tensor> {
        let (counts, numbers) = (dispatcher.counts(), cx.numbers());
        let (role, leaf) = match self.width {
            SplitWidth::Outputs(all) => (Role::Gradient(Split), cx.feature_leaf(all)),
            SplitWidth::Inputs(_) => (Role::Gradient(Whole), 0),
        };
        let (dy, x) = (cx.factor(dy, role)?, cx.factor(x, self.inputs())?);
        let u = self.features(&x, counts, cx)?;
        let factors = Factors {
            dy: &dy,
            x: &*cx.factor(&u, Role::Input(Whole))?,
        };
        let mut sums = gradients.sums_of(&self.b)?;
        let of_b = (&mut sums[..], Op::Transposed);
        add_sums(numbers, of_b, Some(factors), dispatcher, cx)?;
        drop(u);
        let kind = (numbers, DType::F32);
        let du = cx.product_with(&self.b, |b| {
            grouped_matmul::backward_input(kind, &dy, (b, Op::Transposed), counts, leaf)
        })?;
        let mut du = match self.width {
            SplitWidth::Outputs(_) => cx.sum_over_tp(du)?,
            SplitWidth::Inputs(_) => du,
        };
        ExpertAdapters::scale(&mut du, cx)?;
        let factors = Factors {
            dy: &*cx.factor(&du, Role::Gradient(Whole))?,
            x: &x,
        };
        let mut sums = gradients.sums_of(&self.a)?;
        let of_a = (&mut sums[..], self.of_a(cx).0);
        add_sums(numbers, of_a, Some(factors), dispatcher, cx)?;
        Ok(du)
    }

    /// Takes part in the sums of ranks that share samples where no row is here.
    pub(super) fn backward_without_rows(
        &self,
        (dispatcher, gradients): (&TokenDispatcher, &mut Gradients),
        cx: &Context<'_>,
    ) -> kernels::Result<()> {
        for (slots, op) in [(&self.b, Op::Transposed), (&self.a, self.of_a(cx).0)] {
            let mut sums = gradients.sums_of(slots)?;
            add_sums(cx.numbers(), (&mut sums, op), None, dispatcher, cx)?;
        }
        Ok(())
    }

    /// dx += du A, dx: `[q, in]`, du: `[q, rank]`
    pub(super) fn add_inputs(
        &self,
        dx: &mut Tensor,
        du: &Tensor,
        counts: Counts<'_>,
        cx: &Context<'_>,
    ) -> kernels::Result<()> {
        let du = cx.factor(du, Role::Gradient(Whole))?;
        let (kind, op) = ((cx.numbers(), DType::F32), self.of_a(cx).0);
        let more = cx.product_with(&self.a, |a| {
            grouped_matmul::backward_input(kind, &du, (a, op), counts, 0)
        })?;
        add::add_into(dx, &more)
    }
}
