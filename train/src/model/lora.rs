//! Low-rank adapters of linear layers: y += scale (x A^T) B^T (Hu et al. 2021, arXiv:2106.09685).
//!
//! Tensor parallel, beside a column-parallel layer: A is whole on every rank, B is split by output rows; the gradient of
//! x A^T is summed over ranks. Beside a row-parallel layer: A is split by input rows, B is whole; x A^T is summed over
//! ranks. Either way `rank` numbers of a row cross ranks in the tree of the frozen layer's sums, so every layout gives the same
//! bits. Beside a layer that every rank has whole, both are whole. x A^T is computed again in the backward pass: `rank` features cost
//! little beside those of the layer.
//!
//! Dropout (`lora.dropout`) is of the adapter's own x: the frozen layer reads all of it. Its mask depends on the layer's name and the
//! position, and is applied again to x and to the gradient du A in the backward pass.

use std::ops::{Deref, Range};

use kernels::matmul::{Op, product};
use kernels::{DType, Tensor, add, rows};
use xxhash_rust::xxh3::xxh3_64;

use crate::config::precision::Features::{Split, Whole};
use crate::config::precision::Role;
use crate::model::context::Context;
use crate::model::gradients::Gradients;
use crate::model::slots::{Slot, Slots};

/// The adapter of a linear layer.
pub(crate) struct Lora {
    /// `[rank, in]`; of a row-parallel layer `[in/tp, rank]`.
    a: Slot,
    /// `[out, rank]`; of a column-parallel layer `[out/tp, rank]`.
    b: Slot,
    /// Number of its dropout in the model.
    dropout: u32,
}

/// Output features of a column-parallel layer that a rank has.
#[derive(Clone, Copy)]
pub(crate) enum Outputs {
    /// Its share of this many.
    Split(usize),
    /// All of them, as every rank.
    Whole,
}

impl Outputs {
    fn role(self) -> Role {
        match self {
            Outputs::Split(_) => Role::Gradient(Split),
            Outputs::Whole => Role::Gradient(Whole),
        }
    }
}

/// Rows that an adapter reads.
enum Seen<'a> {
    All(&'a Tensor),
    Dropped(Tensor),
}

impl Deref for Seen<'_> {
    type Target = Tensor;

    fn deref(&self) -> &Tensor {
        match self {
            Seen::All(x) => x,
            Seen::Dropped(x) => x,
        }
    }
}

/// A product that adds to its result: c += op(a) op(b).
struct Factors<'a> {
    a: (&'a Tensor, Op, Role),
    b: (&'a Tensor, Op, Role),
    leaf: usize,
    accumulate: bool,
}

/// Number of the dropout of a layer's adapter: the same on every layout, and apart from the numbers of the model's own dropouts.
#[expect(clippy::cast_possible_truncation, reason = "some bits of a hash")]
fn dropout_of(name: &str) -> u32 {
    (1 << 31) | xxh3_64(name.as_bytes()) as u32
}

fn multiply(c: &mut Tensor, of: &Factors<'_>, cx: &Context<'_>) -> kernels::Result<()> {
    let (a, b) = (cx.factor(of.a.0, of.a.2)?, cx.factor(of.b.0, of.b.2)?);
    let (a, b) = ((&*a, of.a.1), (&*b, of.b.1));
    product(cx.numbers(), c, a, b, of.leaf, of.accumulate)
}

impl Lora {
    /// The adapter of the layer with this name, if it has one.
    pub(crate) fn find(name: &str, slots: &Slots<'_>) -> Option<Lora> {
        Some(Lora {
            a: slots.find(&format!("{name}.lora_a"))?,
            b: slots.find(&format!("{name}.lora_b"))?,
            dropout: dropout_of(name),
        })
    }

    /// x: `[n, in]` with the elements dropped that this step's adapter does not see
    fn seen_whole<'a>(&self, x: &'a Tensor, cx: &Context<'_>) -> kernels::Result<Seen<'a>> {
        let p = cx.arithmetic.lora_dropout;
        if p == 0.0 || cx.noise.is_none() {
            return Ok(Seen::All(x));
        }
        let mut dropped = x.try_clone()?;
        cx.drop_whole(&mut dropped, p, self.dropout)?;
        Ok(Seen::Dropped(dropped))
    }

    /// The same of `[n, in/tp]`.
    fn seen_split<'a>(&self, x: &'a Tensor, cx: &Context<'_>) -> kernels::Result<Seen<'a>> {
        let p = cx.arithmetic.lora_dropout;
        if p == 0.0 || cx.noise.is_none() {
            return Ok(Seen::All(x));
        }
        let mut dropped = x.try_clone()?;
        cx.drop_features(&mut dropped, p, self.dropout)?;
        Ok(Seen::Dropped(dropped))
    }

    fn scale(x: &mut Tensor, cx: &Context<'_>) -> kernels::Result<()> {
        rows::scale(x.view_mut(), cx.arithmetic.lora_scale)
    }

    /// x: `[n, in]` -> scale x A^T: `[n, rank]`, the same on every rank
    fn column_features(&self, x: &Tensor, cx: &Context<'_>) -> kernels::Result<Tensor> {
        let a = cx.weight(self.a);
        let mut u = Tensor::empty(&[x.dims()[0], a.dims()[0]], DType::F32, x.device())?;
        let of = Factors {
            a: (x, Op::Plain, Role::Input(Whole)),
            b: (a, Op::Transposed, Role::Weight),
            leaf: 0,
            accumulate: false,
        };
        multiply(&mut u, &of, cx)?;
        Lora::scale(&mut u, cx)?;
        Ok(u)
    }

    /// Adds to y, `[n, out/tp]`, what the adapter of a column-parallel layer makes of x, `[n, in]`.
    pub(crate) fn add_columns(
        &self,
        y: &mut Tensor,
        x: &Tensor,
        cx: &Context<'_>,
    ) -> kernels::Result<()> {
        if let Some(parts) = cx.adapters {
            let mut parts = parts.iter().filter(|part| part.has(self.a));
            return parts.try_for_each(|part| {
                let own = cx.of_adapter(part.adapter);
                part.change(y, x, |y, x| self.add_columns(y, x, &own))
            });
        }
        let x = self.seen_whole(x, cx)?;
        let u = self.column_features(&x, cx)?;
        drop(x);
        self.add_features(y, &u, cx)
    }

    /// y += u B^T
    fn add_features(&self, y: &mut Tensor, u: &Tensor, cx: &Context<'_>) -> kernels::Result<()> {
        let of = Factors {
            a: (u, Op::Plain, Role::Input(Whole)),
            b: (cx.weight(self.b), Op::Transposed, Role::Weight),
            leaf: 0,
            accumulate: true,
        };
        multiply(y, &of, cx)
    }

    /// Gradients of the adapter of a column-parallel layer. dy: `[n, out/tp]`, x: `[n, in]` -> the gradient of x A^T: `[m, rank]`,
    /// summed over ranks
    pub(crate) fn backward_columns(
        &self,
        dy: &Tensor,
        x: &Tensor,
        outputs: Outputs,
        gradients: &mut Gradients,
        cx: &Context<'_>,
    ) -> kernels::Result<Tensor> {
        let x = self.seen_whole(x, cx)?;
        let u = self.column_features(&x, cx)?;
        self.add_gradient_of_b((dy, outputs.role()), &u, gradients, cx)?;
        let mut du = Tensor::empty(u.dims(), DType::F32, x.device())?;
        drop(u);
        let of = Factors {
            a: (dy, Op::Plain, outputs.role()),
            b: (cx.weight(self.b), Op::Plain, Role::Weight),
            leaf: match outputs {
                Outputs::Split(out) => cx.feature_leaf(out),
                Outputs::Whole => 0,
            },
            accumulate: false,
        };
        multiply(&mut du, &of, cx)?;
        let du = match outputs {
            Outputs::Split(_) => cx.sum_to_rows(du)?,
            Outputs::Whole => du,
        };
        self.add_gradient_of_a(du, &x, gradients, cx)
    }

    /// du: `[m, rank]` before the scale, x: `[n, in]` as the adapter sees it -> du with the scale; dA += du^T x
    fn add_gradient_of_a(
        &self,
        mut du: Tensor,
        x: &Tensor,
        gradients: &mut Gradients,
        cx: &Context<'_>,
    ) -> kernels::Result<Tensor> {
        Lora::scale(&mut du, cx)?;
        let mut room = None;
        let whole = cx.gather(&du, &mut room)?;
        let (da, accumulate) = gradients.target(self.a);
        let of = Factors {
            a: (whole, Op::Transposed, Role::Gradient(Whole)),
            b: (x, Op::Plain, Role::Input(Whole)),
            leaf: cx.sums.token_leaf,
            accumulate,
        };
        multiply(da, &of, cx)?;
        drop(room);
        Ok(du)
    }

    /// x: `[n, in]` of a layer that is computed in slices of its outputs -> scale x A^T: `[n, rank]`
    pub(crate) fn features(&self, x: &Tensor, cx: &Context<'_>) -> kernels::Result<Tensor> {
        let x = self.seen_whole(x, cx)?;
        self.column_features(&x, cx)
    }

    /// Adds to a slice of outputs, `[n, slice]`, those of the adapter's features u: `[n, rank]`.
    pub(crate) fn add_slice(
        &self,
        y: &mut Tensor,
        u: &Tensor,
        rows: &Range<usize>,
        cx: &Context<'_>,
    ) -> kernels::Result<()> {
        let of = Factors {
            a: (u, Op::Plain, Role::Input(Whole)),
            b: (
                &*cx.weight(self.b).rows(rows.clone())?,
                Op::Transposed,
                Role::Weight,
            ),
            leaf: 0,
            accumulate: true,
        };
        multiply(y, &of, cx)
    }

    /// Adds the gradient of a slice's rows of B, of dy: `[n, slice]`.
    pub(crate) fn backward_slice(
        &self,
        dy: &Tensor,
        u: &Tensor,
        rows: Range<usize>,
        gradients: &mut Gradients,
        cx: &Context<'_>,
    ) -> kernels::Result<()> {
        gradients.in_rows(self.b, rows, |db, accumulate| {
            let of = Factors {
                a: (dy, Op::Transposed, Role::Gradient(Split)),
                b: (u, Op::Plain, Role::Input(Whole)),
                leaf: cx.sums.token_leaf,
                accumulate,
            };
            multiply(db, &of, cx)
        })
    }

    /// The gradient of the features from a slice, or du += of that: dy `[n, slice]`, du: `[n, rank]`
    pub(crate) fn slice_inputs(
        &self,
        du: &mut Tensor,
        dy: &Tensor,
        (rows, accumulate): (&Range<usize>, bool),
        cx: &Context<'_>,
    ) -> kernels::Result<()> {
        let of = Factors {
            a: (dy, Op::Plain, Role::Gradient(Split)),
            b: (
                &*cx.weight(self.b).rows(rows.clone())?,
                Op::Plain,
                Role::Weight,
            ),
            leaf: 0,
            accumulate,
        };
        multiply(du, &of, cx)
    }

    /// The gradient of x A^T from its sum over this rank's slices, `[n, rank]` -> `[m, rank]`, summed over ranks; adds the gradient
    /// of A, x: `[n, in]`.
    pub(crate) fn finish_slices(
        &self,
        du: Tensor,
        x: &Tensor,
        gradients: &mut Gradients,
        cx: &Context<'_>,
    ) -> kernels::Result<Tensor> {
        let x = self.seen_whole(x, cx)?;
        self.add_gradient_of_a(cx.sum_to_rows(du)?, &x, gradients, cx)
    }

    /// dx += du A, dx: `[m, in]`, du: `[m, rank]`
    pub(crate) fn add_column_inputs(
        &self,
        dx: &mut Tensor,
        du: &Tensor,
        cx: &Context<'_>,
    ) -> kernels::Result<()> {
        let p = cx.arithmetic.lora_dropout;
        if p == 0.0 || cx.noise.is_none() {
            return self.inputs(dx, du, (Op::Plain, true), cx);
        }
        let mut own = Tensor::empty(dx.dims(), DType::F32, dx.device())?;
        self.inputs(&mut own, du, (Op::Plain, false), cx)?;
        cx.drop_rows(&mut own, p, self.dropout)?;
        add::add_into(dx, &own)
    }

    /// dx = du op(A), or dx += of that
    fn inputs(
        &self,
        dx: &mut Tensor,
        du: &Tensor,
        (of_a, accumulate): (Op, bool),
        cx: &Context<'_>,
    ) -> kernels::Result<()> {
        let of = Factors {
            a: (du, Op::Plain, Role::Gradient(Whole)),
            b: (cx.weight(self.a), of_a, Role::Weight),
            leaf: 0,
            accumulate,
        };
        multiply(dx, &of, cx)
    }

    /// x: `[n, in/tp]` of a row-parallel layer of `input` features in all -> scale x A^T: `[m, rank]`, summed over ranks
    fn row_features(&self, x: &Tensor, input: usize, cx: &Context<'_>) -> kernels::Result<Tensor> {
        let a = cx.weight(self.a);
        let mut u = Tensor::empty(&[x.dims()[0], a.dims()[1]], DType::F32, x.device())?;
        let of = Factors {
            a: (x, Op::Plain, Role::Input(Split)),
            b: (a, Op::Plain, Role::Weight),
            leaf: cx.feature_leaf(input),
            accumulate: false,
        };
        multiply(&mut u, &of, cx)?;
        let mut u = cx.sum_to_rows(u)?;
        Lora::scale(&mut u, cx)?;
        Ok(u)
    }

    /// Adds to y, `[m, out]`, what the adapter of a row-parallel layer makes of x, `[n, in/tp]`.
    pub(crate) fn add_rows(
        &self,
        y: &mut Tensor,
        x: &Tensor,
        input: usize,
        cx: &Context<'_>,
    ) -> kernels::Result<()> {
        if let Some(parts) = cx.adapters {
            let mut parts = parts.iter().filter(|part| part.has(self.a));
            return parts.try_for_each(|part| {
                let own = cx.of_adapter(part.adapter);
                part.change(y, x, |y, x| self.add_rows(y, x, input, &own))
            });
        }
        let x = self.seen_split(x, cx)?;
        let u = self.row_features(&x, input, cx)?;
        drop(x);
        self.add_features(y, &u, cx)
    }

    /// Gradients of the adapter of a row-parallel layer, and its part of the input's: dx += du A. dy: `[n, out]`,
    /// x and dx: `[n, in/tp]`
    pub(crate) fn backward_rows(
        &self,
        dy: &Tensor,
        x: &Tensor,
        (dx, input): (&mut Tensor, usize),
        gradients: &mut Gradients,
        cx: &Context<'_>,
    ) -> kernels::Result<()> {
        let x = self.seen_split(x, cx)?;
        let u = self.row_features(&x, input, cx)?;
        let mut room = None;
        let whole = cx.gather(&u, &mut room)?;
        self.add_gradient_of_b((dy, Role::Gradient(Whole)), whole, gradients, cx)?;
        let rank = u.dims()[1];
        drop(room);
        drop(u);
        let mut du = Tensor::empty(&[dy.dims()[0], rank], DType::F32, x.device())?;
        let of = Factors {
            a: (dy, Op::Plain, Role::Gradient(Whole)),
            b: (cx.weight(self.b), Op::Plain, Role::Weight),
            leaf: 0,
            accumulate: false,
        };
        multiply(&mut du, &of, cx)?;
        Lora::scale(&mut du, cx)?;
        let (da, accumulate) = gradients.target(self.a);
        let of = Factors {
            a: (&x, Op::Transposed, Role::Input(Split)),
            b: (&du, Op::Plain, Role::Gradient(Whole)),
            leaf: cx.sums.token_leaf,
            accumulate,
        };
        multiply(da, &of, cx)?;
        drop(x);
        let p = cx.arithmetic.lora_dropout;
        if p == 0.0 || cx.noise.is_none() {
            return self.inputs(dx, &du, (Op::Transposed, true), cx);
        }
        let mut own = Tensor::empty(dx.dims(), DType::F32, dx.device())?;
        self.inputs(&mut own, &du, (Op::Transposed, false), cx)?;
        cx.drop_features(&mut own, p, self.dropout)?;
        add::add_into(dx, &own)
    }

    /// dB += dy^T u, where u holds the scale
    fn add_gradient_of_b(
        &self,
        (dy, role): (&Tensor, Role),
        u: &Tensor,
        gradients: &mut Gradients,
        cx: &Context<'_>,
    ) -> kernels::Result<()> {
        let (db, accumulate) = gradients.target(self.b);
        let of = Factors {
            a: (dy, Op::Transposed, role),
            b: (u, Op::Plain, Role::Input(Whole)),
            leaf: cx.sums.token_leaf,
            accumulate,
        };
        multiply(db, &of, cx)
    }
}
