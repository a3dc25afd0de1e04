//! Products on tensor cores: `mma.cu`. Factors that are not stored as the kernel reads them are copied first, in 16 bits
//! and lines of whole 16-byte chunks: one pass over a factor, so that tiles read half the bytes of f32 and every shape
//! has one kernel.

use std::sync::Arc;

use super::sides::{Epilogue, Product, Side};
use crate::cuda::{Address, Arg, Cuda, Grid, Source};
use crate::descriptor::numbers::Numbers;
use crate::{DType, Result, Tensor};

pub(in crate::ops) static SOURCE: Source = Source {
    name: "mma.cu",
    text: include_str!("mma.cu"),
};

/// Elements of a block's tile, per side.
const TILE: usize = 128;

/// Factors of a 16-byte chunk.
const CHUNK: usize = 8;

/// A factor as the kernel reads it.
struct Lines {
    first: Arg,
    rows: usize,
    bytes_a_line: usize,
    is_along_k: bool,
    /// The copy that `first` points to, if there is one.
    _copy: Option<Tensor>,
}

impl Lines {
    fn of(on: &Arc<Cuda>, product: &Product<'_>, side: Side) -> Result<Lines> {
        let is_half = product.numbers == Numbers::F16Mma;
        let is_along_k = side.k == 1;
        let (lines, width, line) = match is_along_k {
            true => (side.rows, product.k, side.row),
            false => (product.k, side.rows, side.k),
        };
        let is_aligned = matches!(side.first, Arg::Pointer(Address(at)) if at % 16 == 0);
        if side.is_bf16 && !is_half && is_aligned && line % CHUNK == 0 {
            return Ok(Lines {
                first: side.first,
                rows: side.rows,
                bytes_a_line: 2 * line,
                is_along_k,
                _copy: None,
            });
        }
        let padded = width.next_multiple_of(CHUNK);
        let copy = Tensor::empty(&[lines, padded], DType::Bf16, product.device)?;
        let args = [
            (&copy).into(),
            side.first,
            side.is_bf16.into(),
            lines.into(),
            width.into(),
            line.into(),
            padded.into(),
        ];
        let function = if is_half {
            "mma_pack_f16"
        } else {
            "mma_pack_bf16"
        };
        let grid = Grid::over(lines * padded / CHUNK);
        on.launch(&SOURCE, function, grid, &args)?;
        Ok(Lines {
            first: (&copy).into(),
            rows: side.rows,
            bytes_a_line: 2 * padded,
            is_along_k,
            _copy: Some(copy),
        })
    }

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
    let a = Lines::of(on, product, product.a)?;
    let b = Lines::of(on, product, product.b)?;
    let c = [product.c, product.c_is_bf16.into()];
    let k = [product.k.into()];
    let args = [&c[..], &a.args(), &b.args(), &k, &end.args()].concat();
    let blocks = rows.div_ceil(TILE) * columns.div_ceil(TILE);
    let function = function(product.numbers, [a.is_along_k, b.is_along_k]);
    on.launch(&SOURCE, function, Grid::blocks(blocks, 256), &args)
}
