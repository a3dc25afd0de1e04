//! Products on tensor cores: `mma.cu`. Factors that are not stored as the kernel reads them are copied first, in 16 bits
//! and lines of whole 16-byte chunks: one pass over a factor, so that tiles read half the bytes of f32 and every shape
//! has one kernel.

use std::sync::Arc;

use super::sides::{Epilogue, Product, Side};
use crate::cuda::{Address, Arg, Cuda, Grid, Source};
use crate::descriptor::numbers::Numbers;
use crate::{DType, Device, Result, Tensor};

pub(in crate::ops) static SOURCE: Source = Source {
    name: "mma.cu",
    text: include_str!("mma.cu"),
};

/// Elements of a block's tile, per side.
pub(in crate::ops) const TILE: usize = 128;

/// Factors of a 16-byte chunk.
const CHUNK: usize = 8;

/// A factor as the kernels read it.
pub(in crate::ops) struct Lines {
    pub(in crate::ops) first: Arg,
    rows: usize,
    pub(in crate::ops) bytes_a_line: usize,
    is_along_k: bool,
    /// The copy that `first` points to, if there is one.
    _copy: Option<Tensor>,
}

/// A factor of a product with `k` numbers a row.
#[derive(Clone, Copy)]
pub(in crate::ops) struct Factor<'a> {
    pub(in crate::ops) numbers: Numbers,
    pub(in crate::ops) side: Side,
    pub(in crate::ops) k: usize,
    pub(in crate::ops) device: &'a Device,
}

impl Factor<'_> {
    /// Number of lines, numbers in each, and numbers from one to the next.
    fn layout(&self) -> [usize; 3] {
        let side = self.side;
        match side.k == 1 {
            true => [side.rows, self.k, side.row],
            false => [self.k, side.rows, side.k],
        }
    }

    /// Whether the kernels can read it where it is.
    pub(in crate::ops) fn is_as_read(&self) -> bool {
        let [_, _, line] = self.layout();
        let is_aligned = matches!(self.side.first, Arg::Pointer(Address(at)) if at % 16 == 0);
        let is_half = self.numbers == Numbers::F16Mma;
        self.side.is_bf16 && !is_half && is_aligned && line.is_multiple_of(CHUNK)
    }

    /// The factor where it is, or copied.
    pub(in crate::ops) fn lines(&self, on: &Arc<Cuda>) -> Result<Lines> {
        if !self.is_as_read() {
            return self.copied(on);
        }
        let [_, _, line] = self.layout();
        Ok(Lines {
            first: self.side.first,
            rows: self.side.rows,
            bytes_a_line: 2 * line,
            is_along_k: self.side.k == 1,
            _copy: None,
        })
    }

    /// The factor copied.
    pub(in crate::ops) fn copied(&self, on: &Arc<Cuda>) -> Result<Lines> {
        let (side, [lines, width, line]) = (self.side, self.layout());
        let padded = width.next_multiple_of(CHUNK);
        let copy = Tensor::empty(&[lines, padded], DType::Bf16, self.device)?;
        let args = [
            (&copy).into(),
            side.first,
            side.is_bf16.into(),
            lines.into(),
            width.into(),
            line.into(),
            padded.into(),
        ];
        let function = match self.numbers == Numbers::F16Mma {
            true => "mma_pack_f16",
            false => "mma_pack_bf16",
        };
        let grid = Grid::over(lines * padded / CHUNK);
        on.launch(&SOURCE, function, grid, &args)?;
        Ok(Lines {
            first: (&copy).into(),
            rows: side.rows,
            bytes_a_line: 2 * padded,
            is_along_k: side.k == 1,
            _copy: Some(copy),
        })
    }
}

impl Lines {
    fn args(&self) -> [Arg; 3] {
        [self.first, self.rows.into(), self.bytes_a_line.into()]
    }
}

/// The kernel's name by its factors and by whether the lines of a and b run along k.
fn function(numbers: Numbers, along_k: [bool; 2]) -> &'static str {
    match (numbers == Numbers::F16Mma, along_k) {
        (false, [true, true]) => "product_mma_bf16_kk",
        (false, [true, false]) => "product_mma_bf16_kr",
        (false, [false, true]) => "product_mma_bf16_rk",
        (false, [false, false]) => "product_mma_bf16_rr",
        (true, [true, true]) => "product_mma_f16_kk",
        (true, [true, false]) => "product_mma_f16_kr",
        (true, [false, true]) => "product_mma_f16_rk",
        (true, [false, false]) => "product_mma_f16_rr",
    }
}

pub(super) fn launch(on: &Arc<Cuda>, product: &Product<'_>, end: &Epilogue<'_>) -> Result<()> {
    let (rows, columns) = (product.a.rows, product.b.rows);
    if rows == 0 || columns == 0 {
        return Ok(());
    }
    let factor = |side| Factor {
        numbers: product.numbers,
        side,
        k: product.k,
        device: product.device,
    };
    let a = factor(product.a).lines(on)?;
    let b = factor(product.b).lines(on)?;
    let c = [product.c, product.c_is_bf16.into()];
    let k = [product.k.into()];
    let args = [&c[..], &a.args(), &b.args(), &k, &end.args()].concat();
    let blocks = rows.div_ceil(TILE) * columns.div_ceil(TILE);
    let function = function(product.numbers, [a.is_along_k, b.is_along_k]);
    on.launch(&SOURCE, function, Grid::blocks(blocks, 256), &args)
}
