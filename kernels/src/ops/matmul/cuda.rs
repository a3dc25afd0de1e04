//! The matrix product on CUDA: `matmul.cu`, in the trees of every device, and `mma.rs` on tensor cores. Rotary positions are an op of their own after
//! the product, in f32, with the bits of the fused one.

use std::sync::Arc;

use super::mma;
use super::operand::{Factor, Factors, Op, Operand, Then, flattened};
use super::sides::{Epilogue, Product};
use crate::cuda::{Cuda, Grid, Source};
use crate::descriptor::numbers::Numbers;
use crate::ops::{cast, rope};
use crate::{DType, Device, Error, Result, Tensor};

pub(in crate::ops) use super::sides::Side;

pub(in crate::ops) static SOURCE: Source = Source {
    name: "matmul.cu",
    text: include_str!("matmul.cu"),
};

/// Elements of a block's tile, per side.
const TILE: usize = 64;

/// The same of `product_f32_chain`.
const CHAIN_TILE: usize = 128;

pub(super) fn product(
    on: &Arc<Cuda>,
    c: &mut Tensor,
    factors: Factors<'_>,
    accumulate: bool,
) -> Result<()> {
    let epilogue = Epilogue {
        accumulate,
        ..Epilogue::default()
    };
    run(on, c, factors, epilogue)
}

pub(super) fn product_then(
    on: &Arc<Cuda>,
    c: &mut Tensor,
    factors: Factors<'_>,
    then: Then<'_>,
) -> Result<()> {
    ended(on, c, then, &|c, end| run(on, c, factors, end))
}

/// A product that `run` makes with what its kernel does after the sums, and what follows as ops.
pub(super) fn ended(
    on: &Arc<Cuda>,
    c: &mut Tensor,
    then: Then<'_>,
    run: &dyn Fn(&mut Tensor, Epilogue<'_>) -> Result<()>,
) -> Result<()> {
    let none = Epilogue::default();
    let epilogue = match then {
        Then::Bias(bias) => Epilogue {
            bias: Some(bias),
            ..none
        },
        Then::Activation { kind, bias, values } => Epilogue {
            bias,
            then: 1,
            kind: kind.number(),
            second: values.into(),
            ..none
        },
        Then::Times(by) => Epilogue {
            then: 2,
            second: by.into(),
            ..none
        },
        Then::Rotary { bias, turn } => {
            let epilogue = Epilogue { bias, ..none };
            if c.dtype() == DType::F32 {
                run(c, epilogue)?;
                return rope::forward(c, &turn);
            }
            let mut sums = Tensor::empty(c.dims(), DType::F32, c.device())?;
            run(&mut sums, epilogue)?;
            rope::forward(&mut sums, &turn)?;
            return cast::cuda::to_bf16(on, c, &sums);
        }
    };
    run(c, epilogue)
}

/// The name of a kernel by the numbers of its products.
pub(in crate::ops) fn kernel(
    numbers: Numbers,
    [f32, pairs]: [&'static str; 2],
    device: &Device,
) -> Result<&'static str> {
    match numbers {
        Numbers::F32 => Ok(f32),
        Numbers::Bf16 => Ok(pairs),
        Numbers::Bf16Tiles => Err(refused("products of bf16 in tiles", device)),
        Numbers::Bf16Mma | Numbers::F16Mma => Err(refused("products by mma.sync", device)),
    }
}

fn refused(op: &'static str, device: &Device) -> Error {
    Error::NotImplemented {
        op,
        device: device.name().to_owned(),
    }
}

fn launch(on: &Arc<Cuda>, product: &Product<'_>, end: Epilogue<'_>) -> Result<()> {
    if product.numbers.is_by_tensor_cores() {
        return mma::launch(on, product, &end);
    }
    let &Product { a, b, k, leaf, .. } = product;
    let is_chain = product.numbers == Numbers::F32 && (leaf == 0 || leaf >= k);
    let (function, tile) = match is_chain {
        true => ("product_f32_chain", CHAIN_TILE),
        false => {
            let names = ["product_f32", "product_bf16_pairs"];
            (kernel(product.numbers, names, product.device)?, TILE)
        }
    };
    let leaf = if leaf == 0 { k.max(1) } else { leaf };
    let sizes = [k.into(), leaf.into()];
    let sizes = if is_chain { &sizes[..1] } else { &sizes };
    let c = [product.c, product.c_is_bf16.into()];
    let args = [&c[..], &a.args(), &b.args(), sizes, &end.args()].concat();
    let grid = Grid::blocks(b.rows.div_ceil(tile), 256).by(a.rows.div_ceil(tile));
    on.launch(&SOURCE, function, grid, &args)
}

fn run(on: &Arc<Cuda>, c: &mut Tensor, factors: Factors<'_>, end: Epilogue<'_>) -> Result<()> {
    let Factor::Stored(b) = factors.b else {
        return Err(refused("matmul of packed factors", c.device()));
    };
    let a = factors.a;
    let ((m, k), (_, n)) = (flattened(a), flattened(b));
    let side = |x: &Tensor, rows, [row, k]: [usize; 2]| Side {
        first: x.into(),
        is_bf16: x.dtype() == DType::Bf16,
        rows,
        row,
        k,
    };
    let [b_k, b_row] = strides(b);
    let product = Product {
        numbers: factors.numbers,
        c: (&*c).into(),
        c_is_bf16: c.dtype() == DType::Bf16,
        a: side(a.tensor, m, strides(a)),
        b: side(b.tensor, n, [b_row, b_k]),
        k,
        leaf: factors.leaf,
        device: c.device(),
    };
    launch(on, &product, end)
}

/// Distances of neighbouring rows and columns of op(x), in elements.
fn strides(x: Operand<'_>) -> [usize; 2] {
    let (_, cols) = x.tensor.rows_cols();
    match x.op {
        Op::Plain => [cols, 1],
        Op::Transposed => [1, cols],
    }
}
