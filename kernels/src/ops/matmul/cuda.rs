//! The matrix product on CUDA: `matmul.cu`, in the trees of every device. Rotary positions are an op of their own after
//! the product, in f32, with the bits of the fused one.

use std::sync::Arc;

use super::operand::{Factor, Factors, Op, Operand, Then, flattened};
use crate::cuda::{Arg, Cuda, Grid, Source};
use crate::descriptor::numbers::Numbers;
use crate::ops::{cast, rope};
use crate::{DType, Error, Result, Tensor};

static SOURCE: Source = Source {
    name: "matmul.cu",
    text: include_str!("matmul.cu"),
};

/// Elements of a block's tile, per side.
const TILE: usize = 64;

/// What follows the sums.
struct Epilogue<'a> {
    accumulate: bool,
    bias: Option<&'a Tensor>,
    then: u32,
    kind: u32,
    second: Arg,
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
                run(on, c, factors, epilogue)?;
                return rope::forward(c, &turn);
            }
            let mut sums = Tensor::empty(c.dims(), DType::F32, c.device())?;
            run(on, &mut sums, factors, epilogue)?;
            rope::forward(&mut sums, &turn)?;
            return cast::cuda::to_bf16(on, c, &sums);
        }
    };
    run(on, c, factors, epilogue)
}

fn run(on: &Arc<Cuda>, c: &mut Tensor, factors: Factors<'_>, end: Epilogue<'_>) -> Result<()> {
    let refuse = |op| Error::NotImplemented {
        op,
        device: c.device().name().to_owned(),
    };
    let function = match factors.numbers {
        Numbers::F32 => "product_f32",
        Numbers::Bf16 => "product_bf16_pairs",
        Numbers::Bf16Tiles => return Err(refuse("matmul of bf16 in tiles")),
    };
    let Factor::Stored(b) = factors.b else {
        return Err(refuse("matmul of packed factors"));
    };
    let a = factors.a;
    let ((m, k), (_, n)) = (flattened(a), flattened(b));
    let leaf = if factors.leaf == 0 {
        k.max(1)
    } else {
        factors.leaf
    };
    let is_bf16 = |x: &Tensor| Arg::from(x.dtype() == DType::Bf16);
    let [a_row, a_k] = strides(a);
    let [b_k, b_row] = strides(b);
    let args = [
        (&*c).into(),
        is_bf16(c),
        a.tensor.into(),
        is_bf16(a.tensor),
        m.into(),
        a_row.into(),
        a_k.into(),
        b.tensor.into(),
        is_bf16(b.tensor),
        n.into(),
        b_row.into(),
        b_k.into(),
        k.into(),
        leaf.into(),
        end.accumulate.into(),
        end.bias.into(),
        end.then.into(),
        end.kind.into(),
        end.second,
    ];
    let grid = Grid::blocks(n.div_ceil(TILE), 256).by(m.div_ceil(TILE));
    on.launch(&SOURCE, function, grid, &args)
}

/// Distances of neighbouring rows and columns of op(x), in elements.
fn strides(x: Operand<'_>) -> [usize; 2] {
    let (_, cols) = x.tensor.rows_cols();
    match x.op {
        Op::Plain => [cols, 1],
        Op::Transposed => [1, cols],
    }
}
