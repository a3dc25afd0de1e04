//! Matrix product on the CPU: views for `cpu/gemm.rs`.

use super::{Numbers, Op, Then};
use crate::cpu::epilogue::{self, Epilogue, Second};
use crate::cpu::gemm::{Plan, ViewMut, gemm};
use crate::cpu::output::{Data, DataMut};
use crate::cpu::pack::{Matrix, View};
use crate::cpu::tile::Finish;
use crate::{DType, Result, Tensor};

pub(super) fn product(
    numbers: Numbers,
    c: &mut Tensor,
    a: (&Tensor, Op),
    b: (&Tensor, Op),
    leaf: usize,
    accumulate: bool,
) -> Result<()> {
    let finish = if accumulate {
        Finish::Add
    } else {
        Finish::Store
    };
    run((numbers, leaf), c, (a, b), (finish, Epilogue::default()))
}

pub(super) fn product_then(
    numbers: Numbers,
    c: &mut Tensor,
    a: (&Tensor, Op),
    b: (&Tensor, Op),
    leaf: usize,
    then: Then<'_>,
) -> Result<()> {
    let epilogue = match then {
        Then::Bias(bias) => Epilogue {
            bias: Some(bias.f32()),
            ..Epilogue::default()
        },
        Then::Activation { kind, bias, values } => Epilogue {
            bias: bias.map(Tensor::f32),
            then: epilogue::Then::Activation(kind, Second::new(DataMut::of(values))),
        },
        Then::Times(by) => Epilogue {
            bias: None,
            then: epilogue::Then::Times(Data::of(by)),
        },
    };
    run((numbers, leaf), c, (a, b), (Finish::Store, epilogue))
}

fn run(
    (numbers, leaf): (Numbers, usize),
    c: &mut Tensor,
    (a, b): ((&Tensor, Op), (&Tensor, Op)),
    (finish, epilogue): (Finish, Epilogue<'_>),
) -> Result<()> {
    let device = c.device().clone();
    let plan = Plan {
        device: &device,
        numbers,
        leaf,
        finish,
        epilogue,
        parallel: true,
    };
    let (rows, cols) = c.rows_cols();
    let c = ViewMut {
        data: DataMut::of(c),
        rows,
        cols,
        row_stride: cols,
    };
    gemm(c, view(a), view(b), plan)
}

fn view((x, op): (&Tensor, Op)) -> Matrix<'_> {
    let (rows, cols) = x.rows_cols();
    let plain = match x.dtype() {
        DType::Bf16 => Matrix::Bf16(View::new(x.bf16(), rows, cols, cols)),
        _ => Matrix::F32(View::new(x.f32(), rows, cols, cols)),
    };
    if op == Op::Plain {
        plain
    } else {
        plain.transposed()
    }
}
