//! Matrix product on the CPU: views for `cpu/gemm.rs`.

use super::{Numbers, Op, Then};
use crate::cpu::epilogue::{self, Epilogue, Second};
use crate::cpu::gemm::{Plan, ViewMut, gemm};
use crate::cpu::pack::View;
use crate::cpu::tile::Finish;
use crate::{Result, Tensor};

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
        Then::Values { kind, bias, out } => Epilogue {
            bias: bias.map(Tensor::f32),
            then: epilogue::Then::Values(kind, Second::new(out.f32_mut())),
        },
        Then::Slopes { kind, at } => Epilogue {
            bias: None,
            then: epilogue::Then::Slopes(kind, at.f32()),
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
        data: c.f32_mut(),
        rows,
        cols,
        row_stride: cols,
    };
    gemm(c, view(a), view(b), plan)
}

fn view((x, op): (&Tensor, Op)) -> View<'_> {
    let (rows, cols) = x.rows_cols();
    let plain = View::new(x.f32(), rows, cols, cols);
    if op == Op::Plain {
        plain
    } else {
        plain.transposed()
    }
}
