//! Linear layers split over tensor-parallel ranks (column and row parallel).
//! Paper: Shoeybi et al. 2019, arXiv:1909.08053, sec. 3.
//!
//! Column parallel: y_r = x W_r^T + b_r, W_r `[out/tp, in]`; backward sums dx over ranks.
//! Row parallel: y = sum_r x_r W_r + b, W_r `[in/tp, out]`; forward sums y over ranks.
//! n counts the rows of whole sequences, m those a rank has between layers: m = n, or n/tp with
//! sequence parallelism.
//! Sums over a split width run in FEATURE_CHUNKS leaves, sums over tokens in TOKEN_CHUNKS leaves a
//! sequence, so that every layout adds the same numbers in the same tree.

use kernels::activation::Kind;
use kernels::cast::{self, Stored};
use kernels::matmul::{Eight, End as EightEnd, Factor, Op, Then};
use kernels::matmul::{product, product_of_eight, product_then};
use kernels::rope::{self, Turn};
use kernels::{DType, Tensor, add, reduce};

use crate::config::precision::Features::{Split, Whole};
use crate::config::precision::Role;
use crate::model::context::Context;
use crate::model::gradients::Gradients;
use crate::model::lora::{Lora, Outputs};
use crate::model::precision::Operand;
use crate::model::slots::{Slot, Slots};

/// x W^T + b with W by output rows, stored as `stored`: x `[n, in]` -> `[n, out]`.
fn outputs(
    x: &Tensor,
    (weight, bias): (Slot, Option<Slot>),
    stored: DType,
    cx: &Context<'_>,
) -> kernels::Result<Tensor> {
    let then = bias.map(|bias| Then::Bias(cx.weight(bias)));
    outputs_then(x, weight, (stored, then), cx)
}

/// x W^T with a fused epilogue, stored as `stored`.
fn outputs_then(
    x: &Tensor,
    weight: Slot,
    (stored, then): (DType, Option<Then<'_>>),
    cx: &Context<'_>,
) -> kernels::Result<Tensor> {
    let cx = &cx.of_layer(weight);
    let out = cx.dims_of(weight)[0];
    let mut y = Tensor::empty(&[x.dims()[0], out], stored, x.device())?;
    let x = &mut Input::of(x, Role::Input(Whole));
    by_weight(&mut y, x, (weight, Op::Transposed), (0, then), cx)?;
    Ok(y)
}

/// c = x op(W), with a fused epilogue.
fn by_weight(
    c: &mut Tensor,
    x: &mut Input<'_>,
    (weight, op): (Slot, Op),
    (leaf, then): (usize, Option<Then<'_>>),
    cx: &Context<'_>,
) -> kernels::Result<()> {
    if cx.has_eight_bits(x.x, x.x.dims()[1]) {
        let mut stored = cx.in_codes(cx.weight(weight), Role::Weight)?;
        if op == Op::Plain {
            stored.codes = cast::turned(&stored.codes)?;
        }
        return product_of_eight(c, eight(x.codes(cx)?), eight(&stored), then);
    }
    let x = x.rounded(cx)?;
    if let Some(packed) = cx.packed(weight, op, leaf)? {
        return multiply(c, (x, packed), (leaf, then), cx);
    }
    let weight = cx.factor(cx.weight(weight), Role::Weight)?;
    multiply(c, (x, (&*weight, op)), (leaf, then), cx)
}

/// c = x b, with a fused epilogue.
pub(crate) fn multiply<'b>(
    c: &mut Tensor,
    (x, b): (&Tensor, impl Into<Factor<'b>>),
    (leaf, then): (usize, Option<Then<'_>>),
    cx: &Context<'_>,
) -> kernels::Result<()> {
    let x = (x, Op::Plain);
    match then {
        Some(then) => product_then(cx.numbers(), c, x, b, leaf, then),
        None => product(cx.numbers(), c, x, b, leaf, false),
    }
}

/// A tensor that a layer multiplies, in the forms that products read, made when they are asked for.
struct Input<'a> {
    x: &'a Tensor,
    role: Role,
    rounded: Option<Operand<'a>>,
    codes: Option<Stored>,
}

impl<'a> Input<'a> {
    fn of(x: &'a Tensor, role: Role) -> Input<'a> {
        Input {
            x,
            role,
            rounded: None,
            codes: None,
        }
    }

    fn rounded(&mut self, cx: &Context<'_>) -> kernels::Result<&Tensor> {
        let rounded = match self.rounded.take() {
            Some(rounded) => rounded,
            None => cx.factor(self.x, self.role)?,
        };
        Ok(self.rounded.insert(rounded))
    }

    fn codes(&mut self, cx: &Context<'_>) -> kernels::Result<&Stored> {
        let codes = match self.codes.take() {
            Some(codes) => codes,
            None => cx.in_codes(self.x, self.role)?,
        };
        Ok(self.codes.insert(codes))
    }
}

fn eight(x: &Stored) -> Eight<'_> {
    Eight {
        codes: &x.codes,
        back: &x.back,
    }
}

/// Adds a^T b, sums over tokens, to the gradient of a weight.
fn add_product(
    a: &mut Input<'_>,
    b: &mut Input<'_>,
    weight: Slot,
    gradients: &mut Gradients,
    cx: &Context<'_>,
) -> kernels::Result<()> {
    if !gradients.has(weight) {
        return Ok(()); // frozen
    }
    let (dweight, accumulate) = gradients.target(weight);
    if cx.has_one_scale() && cx.has_eight_bits(a.x, a.x.dims()[0]) {
        let turned = |x: &Stored| cast::turned(&x.codes);
        let (of_a, of_b) = (turned(a.codes(cx)?)?, turned(b.codes(cx)?)?);
        let [a, b] = [(&of_a, a.codes(cx)?), (&of_b, b.codes(cx)?)].map(|(codes, stored)| Eight {
            codes,
            back: &stored.back,
        });
        let end = if accumulate {
            EightEnd::Add
        } else {
            EightEnd::Store
        };
        return product_of_eight(dweight, a, b, end);
    }
    let (a, b) = (
        (a.rounded(cx)?, Op::Transposed),
        (b.rounded(cx)?, Op::Plain),
    );
    product(cx.numbers(), dweight, a, b, cx.sums.token_leaf, accumulate)
}

/// Adds the sum over tokens of dy `[n, out]` to the gradient of a bias, if there is one.
fn add_rows(
    dy: &Tensor,
    bias: Option<Slot>,
    gradients: &mut Gradients,
    cx: &Context<'_>,
) -> kernels::Result<()> {
    let leaf = cx.sums.token_leaf;
    if let Some(bias) = bias.filter(|bias| gradients.has(*bias)) {
        let (dbias, accumulate) = gradients.target(bias);
        reduce::sum_rows(dbias, dy, leaf, accumulate)?;
    }
    Ok(())
}

/// Column-parallel linear layer: output features are split.
pub(crate) struct ColumnLinear {
    pub weight: Slot,
    pub bias: Option<Slot>,
    /// Slot of the weight's gradient; differs from `weight` for a tied head.
    pub gradient: Slot,
    /// Output features of the whole layer.
    pub out: usize,
    pub lora: Option<Lora>,
}

impl ColumnLinear {
    pub(crate) fn named(name: &str, out: usize, slots: &Slots<'_>) -> ColumnLinear {
        let weight = slots.get(&format!("{name}.weight"));
        let bias = slots.find(&format!("{name}.bias"));
        ColumnLinear {
            weight,
            bias,
            gradient: weight,
            out,
            lora: Lora::find(name, slots),
        }
    }

    /// x: `[m, in]` -> `[n, out/tp]`, stored as `stored`, which is f32 with an adapter.
    pub(crate) fn forward(
        &self,
        x: &Tensor,
        stored: DType,
        cx: &Context<'_>,
    ) -> kernels::Result<Tensor> {
        let mut room = None;
        let x = cx.gather(x, &mut room)?;
        let mut y = outputs(x, (self.weight, self.bias), stored, cx)?;
        if let Some(lora) = &self.lora {
            lora.add_columns(&mut y, x, cx)?;
        }
        Ok(y)
    }

    /// Like `forward`, for packed queries, keys and values, with rotary embedding.
    pub(crate) fn forward_turned(
        &self,
        x: &Tensor,
        (stored, turn): (DType, Turn<'_>),
        cx: &Context<'_>,
    ) -> kernels::Result<Tensor> {
        if self.lora.is_some() {
            let mut y = self.forward(x, stored, cx)?;
            rope::forward(&mut y, &turn)?;
            return Ok(y);
        }
        let mut room = None;
        let x = cx.gather(x, &mut room)?;
        let bias = self.bias.map(|bias| cx.weight(bias));
        let then = Then::Rotary { bias, turn };
        outputs_then(x, self.weight, (stored, Some(then)), cx)
    }

    /// Like `forward` without an adapter, fused with an activation: its derivative at the layer's output, and its values there, both
    /// stored as `between_products` says.
    pub(crate) fn forward_activated(
        &self,
        x: &Tensor,
        kind: Kind,
        cx: &Context<'_>,
    ) -> kernels::Result<(Tensor, Tensor)> {
        let mut room = None;
        let x = cx.gather(x, &mut room)?;
        let stored = cx.between_products();
        let dims = [x.dims()[0], cx.dims_of(self.weight)[0]];
        let mut values = Tensor::empty(&dims, stored, x.device())?;
        let then = Then::Activation {
            kind,
            bias: self.bias.map(|bias| cx.weight(bias)),
            values: &mut values,
        };
        let slopes = outputs_then(x, self.weight, (stored, Some(then)), cx)?;
        Ok((slopes, values))
    }

    /// dy: `[n, out/tp]`, x: `[m, in]` -> dx: `[m, in]`, summed over ranks.
    pub(crate) fn backward(
        &self,
        dy: &Tensor,
        x: &Tensor,
        gradients: &mut Gradients,
        cx: &Context<'_>,
    ) -> kernels::Result<Tensor> {
        let (cx, mut room) = (&cx.of_layer(self.weight), None);
        let x = cx.gather(x, &mut room)?;
        let mut dy = Input::of(dy, Role::Gradient(Split));
        let du = self.add_own(&mut dy, x, gradients, cx)?;
        let mut dx = Tensor::empty(x.dims(), DType::F32, x.device())?;
        drop(room);
        let leaf = cx.feature_leaf(self.out);
        by_weight(&mut dx, &mut dy, (self.weight, Op::Plain), (leaf, None), cx)?;
        drop(dy);
        let mut dx = cx.sum_to_rows(dx)?;
        if let (Some(lora), Some(du)) = (&self.lora, du) {
            lora.add_column_inputs(&mut dx, &du, cx)?;
        }
        Ok(dx)
    }

    /// `backward` where nothing below the layer learns: the gradients of its own weights alone.
    pub(crate) fn backward_own(
        &self,
        dy: &Tensor,
        x: &Tensor,
        gradients: &mut Gradients,
        cx: &Context<'_>,
    ) -> kernels::Result<()> {
        let (cx, mut room) = (&cx.of_layer(self.weight), None);
        let x = cx.gather(x, &mut room)?;
        let mut dy = Input::of(dy, Role::Gradient(Split));
        self.add_own(&mut dy, x, gradients, cx).map(drop)
    }

    /// Adds the gradients of the layer's own weights; x: `[n, in]` -> the gradient of its adapter's features, `[m, rank]`.
    fn add_own(
        &self,
        dy: &mut Input<'_>,
        x: &Tensor,
        gradients: &mut Gradients,
        cx: &Context<'_>,
    ) -> kernels::Result<Option<Tensor>> {
        add_rows(dy.x, self.bias, gradients, cx)?;
        let du = match &self.lora {
            Some(lora) => {
                let outputs = Outputs::Split(self.out);
                Some(lora.backward_columns(dy.x, x, outputs, gradients, cx)?)
            }
            None => None,
        };
        let mut x = Input::of(x, Role::Input(Whole));
        add_product(dy, &mut x, self.gradient, gradients, cx)?;
        Ok(du)
    }
}

/// Replicated linear layer: every rank has all of it and computes the same rows.
pub(crate) struct FullLinear {
    weight: Slot,
    bias: Option<Slot>,
    lora: Option<Lora>,
}

impl FullLinear {
    pub(crate) fn named(name: &str, slots: &Slots<'_>) -> FullLinear {
        FullLinear {
            weight: slots.get(&format!("{name}.weight")),
            bias: slots.find(&format!("{name}.bias")),
            lora: Lora::find(name, slots),
        }
    }

    /// x: `[n, in]` -> `[n, out]`
    pub(crate) fn forward(&self, x: &Tensor, cx: &Context<'_>) -> kernels::Result<Tensor> {
        let mut y = outputs(x, (self.weight, self.bias), DType::F32, cx)?;
        if let Some(lora) = &self.lora {
            lora.add_columns(&mut y, x, cx)?;
        }
        Ok(y)
    }

    /// dy: `[n, out]`, x: `[n, in]` -> dx: `[n, in]`
    pub(crate) fn backward(
        &self,
        dy: &Tensor,
        x: &Tensor,
        gradients: &mut Gradients,
        cx: &Context<'_>,
    ) -> kernels::Result<Tensor> {
        let cx = &cx.of_layer(self.weight);
        add_rows(dy, self.bias, gradients, cx)?;
        let du = match &self.lora {
            Some(lora) => Some(lora.backward_columns(dy, x, Outputs::Whole, gradients, cx)?),
            None => None,
        };
        let mut dy = Input::of(dy, Role::Gradient(Whole));
        add_product(
            &mut dy,
            &mut Input::of(x, Role::Input(Whole)),
            self.weight,
            gradients,
            cx,
        )?;
        let mut dx = Tensor::empty(x.dims(), DType::F32, x.device())?;
        by_weight(&mut dx, &mut dy, (self.weight, Op::Plain), (0, None), cx)?;
        if let (Some(lora), Some(du)) = (&self.lora, du) {
            lora.add_column_inputs(&mut dx, &du, cx)?;
        }
        Ok(dx)
    }
}

/// Epilogue for the gradient of a layer's input.
#[derive(Clone, Copy)]
pub(crate) enum End<'a> {
    /// The gradient is stored in this format.
    Stored(DType),
    /// The input is an activation with this derivative: returns the gradient of the activation's input, stored like
    /// the derivative.
    FlowGrad(&'a Tensor),
}

/// Row-parallel linear layer: input features are split.
pub(crate) struct RowLinear {
    weight: Slot,
    bias: Option<Slot>,
    /// Input features of the whole layer.
    input: usize,
    pub lora: Option<Lora>,
}

impl RowLinear {
    pub(crate) fn named(name: &str, input: usize, slots: &Slots<'_>) -> RowLinear {
        let weight = slots.get(&format!("{name}.weight"));
        let bias = slots.find(&format!("{name}.bias"));
        RowLinear {
            weight,
            bias,
            input,
            lora: Lora::find(name, slots),
        }
    }

    /// x: `[n, in/tp]` -> `[m, out]`, summed over ranks.
    pub(crate) fn forward(&self, whole: &Tensor, cx: &Context<'_>) -> kernels::Result<Tensor> {
        let cx = &cx.of_layer(self.weight);
        let mut x = Input::of(whole, Role::Input(Split));
        let out = cx.dims_of(self.weight)[1];
        let mut y = Tensor::empty(&[x.x.dims()[0], out], DType::F32, x.x.device())?;
        let leaf = cx.feature_leaf(self.input);
        let bias = self.bias.map(|bias| cx.weight(bias));
        let is_whole = cx.groups.tp.size() == 1;
        let then = bias.filter(|_| is_whole).map(Then::Bias);
        by_weight(&mut y, &mut x, (self.weight, Op::Plain), (leaf, then), cx)?;
        drop(x);
        let mut y = cx.sum_to_rows(y)?;
        if let Some(bias) = bias.filter(|_| !is_whole) {
            add::bias(&mut y, bias)?;
        }
        if let Some(lora) = &self.lora {
            lora.add_rows(&mut y, whole, self.input, cx)?;
        }
        Ok(y)
    }

    /// dy: `[m, out]` -> dx: `[n, in/tp]`, as `end` says: with an adapter `Stored` in f32.
    pub(crate) fn backward(
        &self,
        dy: &Tensor,
        x: &Tensor,
        end: End<'_>,
        gradients: &mut Gradients,
        cx: &Context<'_>,
    ) -> kernels::Result<Tensor> {
        let (cx, mut room) = (&cx.of_layer(self.weight), None);
        let whole = cx.gather(dy, &mut room)?;
        add_rows(whole, self.bias, gradients, cx)?;
        let mut dy = Input::of(whole, Role::Gradient(Whole));
        add_product(
            &mut Input::of(x, Role::Input(Split)),
            &mut dy,
            self.weight,
            gradients,
            cx,
        )?;
        let (stored, then) = match end {
            End::Stored(stored) => (stored, None),
            End::FlowGrad(slope) => (slope.dtype(), Some(Then::Times(slope))),
        };
        let mut dx = Tensor::empty(x.dims(), stored, x.device())?;
        by_weight(
            &mut dx,
            &mut dy,
            (self.weight, Op::Transposed),
            (0, then),
            cx,
        )?;
        drop(dy);
        if let Some(lora) = &self.lora {
            lora.backward_rows(whole, x, (&mut dx, self.input), gradients, cx)?;
        }
        Ok(dx)
    }
}
