//! A product for the kernels of CUDA: where its elements are, and what follows its sums.

use crate::cuda::Arg;
use crate::descriptor::numbers::Numbers;
use crate::{Device, Tensor};

/// An operand of a product: its first element, rows of op(x) and the distances of neighbouring rows and k.
#[derive(Clone, Copy)]
pub(in crate::ops) struct Side {
    pub(in crate::ops) first: Arg,
    pub(in crate::ops) is_bf16: bool,
    pub(in crate::ops) rows: usize,
    pub(in crate::ops) row: usize,
    pub(in crate::ops) k: usize,
}

impl Side {
    pub(super) fn args(self) -> [Arg; 5] {
        [
            self.first,
            self.is_bf16.into(),
            self.rows.into(),
            self.row.into(),
            self.k.into(),
        ]
    }
}

/// A product c = a b^T, wherever its elements are.
pub(super) struct Product<'a> {
    pub(super) numbers: Numbers,
    pub(super) c: Arg,
    pub(super) c_is_bf16: bool,
    pub(super) a: Side,
    pub(super) b: Side,
    pub(super) k: usize,
    /// Elements of k per leaf; 0: one leaf.
    pub(super) leaf: usize,
    pub(super) device: &'a Device,
}

/// Operations after the sums.
pub(super) struct Epilogue<'a> {
    pub(super) accumulate: bool,
    pub(super) bias: Option<&'a Tensor>,
    pub(super) then: u32,
    pub(super) kind: u32,
    pub(super) second: Arg,
}

impl Epilogue<'_> {
    /// As the kernels' last arguments.
    pub(super) fn args(&self) -> [Arg; 5] {
        [
            self.accumulate.into(),
            self.bias.into(),
            self.then.into(),
            self.kind.into(),
            self.second,
        ]
    }
}

impl Default for Epilogue<'_> {
    fn default() -> Self {
        Epilogue {
            accumulate: false,
            bias: None,
            then: 0,
            kind: 0,
            second: Arg::NULL,
        }
    }
}
