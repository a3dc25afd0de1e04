//! Operands of products and their fused epilogues.

use crate::cpu::codes::Code;
use crate::descriptor::activation::Kind;
use crate::descriptor::numbers::Numbers;
use crate::descriptor::rope::Turn;
use crate::{Result, Tensor};

/// Orientation of an operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// As the product uses it.
    Plain,
    /// With rows and columns swapped.
    Transposed,
}

/// A factor as it is stored.
#[derive(Clone, Copy)]
pub struct Operand<'a> {
    /// Its numbers.
    pub tensor: &'a Tensor,
    /// Orientation in the product.
    pub op: Op,
}

impl Tensor {
    /// This matrix with rows and columns swapped, as an operand of a product: nothing is copied.
    pub fn transposed(&self) -> Operand<'_> {
        Operand {
            tensor: self,
            op: Op::Transposed,
        }
    }
}

impl<'a> From<&'a Tensor> for Operand<'a> {
    fn from(tensor: &'a Tensor) -> Operand<'a> {
        Operand {
            tensor,
            op: Op::Plain,
        }
    }
}

impl<'a> From<(&'a Tensor, Op)> for Operand<'a> {
    fn from((tensor, op): (&'a Tensor, Op)) -> Operand<'a> {
        Operand { tensor, op }
    }
}

/// The factors of a product and how it sums.
#[derive(Clone, Copy)]
pub(super) struct Factors<'a> {
    pub(super) numbers: Numbers,
    /// Elements of k per leaf; 0: one leaf.
    pub(super) leaf: usize,
    pub(super) a: Operand<'a>,
    pub(super) b: Factor<'a>,
}

/// Fused epilogue: applied to a product's elements before they leave the cache.
#[derive(Debug)]
pub enum Then<'a> {
    /// c = product + bias.
    Bias(&'a Tensor),
    /// values = f(x), c = f'(x) of x = product, plus bias if there is one: backward needs no more of x.
    Activation {
        /// The function f.
        kind: Kind,
        /// `[n]`
        bias: Option<&'a Tensor>,
        /// Dims and type of c.
        values: &'a mut Tensor,
    },
    /// c = product times these numbers: dims and type of c.
    Times(&'a Tensor),
    /// c = packed queries, keys and values, product plus bias if there is one, with rotary embedding of queries and
    /// keys.
    Rotary {
        /// `[n]`
        bias: Option<&'a Tensor>,
        /// Rotary embedding of m rows and n columns.
        turn: Turn<'a>,
    },
}

impl Then<'_> {
    /// Checks that it fits c, which has n columns.
    pub(super) fn check(&self, op: &'static str, c: &Tensor, n: usize) -> Result<()> {
        let like_c = |name, x: &Tensor| x.expect_like(op, name, c);
        match self {
            Then::Bias(bias) => bias.expect_f32(op, "bias", &[n])?,
            Then::Activation { bias, values, .. } => {
                if let Some(bias) = bias {
                    bias.expect_f32(op, "bias", &[n])?;
                }
                like_c("values", values)?;
            }
            Then::Times(by) => like_c("by", by)?,
            Then::Rotary { bias, turn } => {
                if let Some(bias) = bias {
                    bias.expect_f32(op, "bias", &[n])?;
                }
                turn.check(op, "c", c)?;
            }
        }
        Ok(())
    }
}

/// Rows and columns of op(x).
pub(super) fn flattened(x: Operand<'_>) -> (usize, usize) {
    let (rows, cols) = x.tensor.rows_cols();
    if x.op == Op::Plain {
        (rows, cols)
    } else {
        (cols, rows)
    }
}

/// Form of the words of a pack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    Whole,
    /// f32 that equal a bf16, as such.
    Halves,
    /// f32 that are codes times scales, as such.
    Codes(Code),
    /// The same, for products that round rows of the first factor to 8 bits.
    Int8(Code),
}

/// op(b) in the layout that products of one number format read: panels of columns with k in steps. bf16 takes half the
/// bytes of f32, and so do f32 that equal a bf16; f32 that are codes times scales take 0.56 to 1.25 bytes each.
pub struct Packed {
    pub(super) words: Tensor,
    pub(super) form: Form,
    pub(super) numbers: Numbers,
    /// Rows and columns of op(b).
    pub(super) k: usize,
    pub(super) n: usize,
    pub(super) leaf: usize,
}

/// The second factor of a product.
#[derive(Clone, Copy)]
pub enum Factor<'a> {
    /// As it is stored.
    Stored(Operand<'a>),
    /// Packed before, for the same leaves.
    Packed(&'a Packed),
}

impl<'a> From<Operand<'a>> for Factor<'a> {
    fn from(b: Operand<'a>) -> Factor<'a> {
        Factor::Stored(b)
    }
}

impl<'a> From<&'a Tensor> for Factor<'a> {
    fn from(b: &'a Tensor) -> Factor<'a> {
        Factor::Stored(b.into())
    }
}

impl<'a> From<(&'a Tensor, Op)> for Factor<'a> {
    fn from(b: (&'a Tensor, Op)) -> Factor<'a> {
        Factor::Stored(b.into())
    }
}

impl<'a> From<&'a Packed> for Factor<'a> {
    fn from(packed: &'a Packed) -> Factor<'a> {
        Factor::Packed(packed)
    }
}
