//! Operands of products and what follows one.

use crate::Tensor;
use crate::descriptor::activation::Kind;
use crate::descriptor::rope::Turn;

/// How an operand is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// As the product uses it.
    Plain,
    /// With rows and columns swapped.
    Transposed,
}

/// What becomes of a product's elements before they leave the cache.
#[derive(Debug)]
pub enum Then<'a> {
    /// c = product + bias.
    Bias(&'a Tensor),
    /// values = f(x), c = f'(x) of x = product, plus bias if there is one: what a backward pass needs of x.
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
    /// c = packed queries, keys and values, product plus bias if there is one, with queries and keys turned.
    Rotary {
        /// `[n]`
        bias: Option<&'a Tensor>,
        /// Of m rows and n columns.
        turn: Turn<'a>,
    },
}

/// Rows and columns of op(x).
pub(super) fn flattened((x, op): (&Tensor, Op)) -> (usize, usize) {
    let (rows, cols) = x.rows_cols();
    if op == Op::Plain {
        (rows, cols)
    } else {
        (cols, rows)
    }
}

/// op(b) as products in tiles read it, rounded to bf16; half the bytes of b in f32 where k is a multiple of 32.
pub struct Packed {
    pub(super) words: Tensor,
    /// Rows and columns of op(b).
    pub(super) k: usize,
    pub(super) n: usize,
    pub(super) leaf: usize,
}

/// The second factor of a product.
#[derive(Clone, Copy)]
pub enum Factor<'a> {
    /// As it is stored.
    Stored(&'a Tensor, Op),
    /// Packed before, for the same leaves.
    Packed(&'a Packed),
}

impl<'a> From<(&'a Tensor, Op)> for Factor<'a> {
    fn from((b, op): (&'a Tensor, Op)) -> Factor<'a> {
        Factor::Stored(b, op)
    }
}

impl<'a> From<&'a Packed> for Factor<'a> {
    fn from(packed: &'a Packed) -> Factor<'a> {
        Factor::Packed(packed)
    }
}
