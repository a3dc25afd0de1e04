//! Grouped product on CUDA: a launch per expert that has rows.

use std::sync::Arc;

use crate::cuda::{Address, Arg, Cuda, Grid, Source};
use crate::matmul::{Numbers, Op};
use crate::ops::matmul::cuda::{Product, Side, kernel, multiply, multiply_add};
use crate::{DType, Result, Tensor};

pub(in crate::ops) static SOURCE: Source = Source {
    name: "grouped_matmul.cu",
    text: include_str!("grouped_matmul.cu"),
};

/// Elements of a block's tile, per side.
const TILE: usize = 64;

/// The element of a tensor at which row `row` starts.
fn at(x: &Tensor, row: usize) -> Arg {
    let Address(first) = x.address();
    let (_, width) = x.rows_cols();
    Arg::Pointer(Address(first + (row * width * x.dtype().bytes()) as u64))
}

fn is_bf16(x: &Tensor) -> bool {
    x.dtype() == DType::Bf16
}

pub(super) fn product(
    on: &Arc<Cuda>,
    numbers: Numbers,
    y: &mut Tensor,
    x: &Tensor,
    (w, op): (&[&Tensor], Op),
    counts: &[usize],
    leaf: usize,
) -> Result<()> {
    let ((_, k), (_, n)) = (x.rows_cols(), y.rows_cols());
    let mut row = 0;
    for (w, &rows) in w.iter().zip(counts).filter(|(_, rows)| **rows > 0) {
        let [w_row, w_k] = match op {
            Op::Plain => [1, n],
            Op::Transposed => [k, 1],
        };
        let product = Product {
            numbers,
            c: at(y, row),
            c_is_bf16: is_bf16(y),
            a: Side {
                first: at(x, row),
                is_bf16: is_bf16(x),
                rows,
                row: k,
                k: 1,
            },
            b: Side {
                first: (*w).into(),
                is_bf16: is_bf16(w),
                rows: n,
                row: w_row,
                k: w_k,
            },
            k,
            leaf,
            device: x.device(),
        };
        multiply(on, &product)?;
        row += rows;
    }
    Ok(())
}

/// Adds the tree over leaves of `a^T b` to each expert's part of dw.
pub(super) fn backward_weight(
    on: &Arc<Cuda>,
    numbers: Numbers,
    dw: &mut [&mut Tensor],
    a: &Tensor,
    b: &Tensor,
    leaves: &[Vec<usize>],
) -> Result<()> {
    let ((_, height), (_, width)) = (a.rows_cols(), b.rows_cols());
    if numbers.is_by_tensor_cores() {
        return weights_by_tensor_cores(on, numbers, dw, a, b, leaves);
    }
    let names = ["grouped_weights_f32", "grouped_weights_bf16_pairs"];
    let function = kernel(numbers, names, a.device())?;
    let count = leaves.first().map_or(0, Vec::len);
    let words = leaves
        .iter()
        .flatten()
        .map(|rows| u32::try_from(*rows).unwrap_or(u32::MAX));
    let words: Vec<u32> = words.collect();
    let table = Tensor::from_u32(&[leaves.len(), count], &words, a.device())?;
    let mut row = 0;
    for (expert, (dw, leaves)) in dw.iter_mut().zip(leaves).enumerate() {
        let rows: usize = leaves.iter().sum();
        if rows == 0 {
            continue;
        }
        let args = [
            (&mut **dw).into(),
            at(a, row),
            is_bf16(a).into(),
            height.into(),
            at(b, row),
            is_bf16(b).into(),
            width.into(),
            at(&table, expert),
            count.into(),
        ];
        let grid = Grid::blocks(width.div_ceil(TILE), 256).by(height.div_ceil(TILE));
        on.launch(&SOURCE, function, grid, &args)?;
        row += rows;
    }
    Ok(())
}

/// Adds `a^T b` over all rows of each expert to its part of dw: one chain of `mma.sync`, whatever the leaves are.
fn weights_by_tensor_cores(
    on: &Arc<Cuda>,
    numbers: Numbers,
    dw: &mut [&mut Tensor],
    a: &Tensor,
    b: &Tensor,
    leaves: &[Vec<usize>],
) -> Result<()> {
    let side = |x: &Tensor, first| {
        let (_, width) = x.rows_cols();
        Side {
            first: at(x, first),
            is_bf16: is_bf16(x),
            rows: width,
            row: 1,
            k: width,
        }
    };
    let mut row = 0;
    for (dw, leaves) in dw.iter_mut().zip(leaves) {
        let rows: usize = leaves.iter().sum();
        if rows == 0 {
            continue;
        }
        let product = Product {
            numbers,
            c: (&**dw).into(),
            c_is_bf16: false,
            a: side(a, row),
            b: side(b, row),
            k: rows,
            leaf: 0,
            device: a.device(),
        };
        multiply_add(on, &product)?;
        row += rows;
    }
    Ok(())
}
