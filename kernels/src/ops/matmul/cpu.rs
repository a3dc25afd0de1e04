//! Matrix product on the CPU: views for `cpu/gemm.rs`.

use super::operand::{Factor, Op, Then};
use crate::cpu::epilogue::{self, Epilogue, Second};
use crate::cpu::gemm::{gemm, gemm_packed, turns};
use crate::cpu::output::{Data, DataMut};
use crate::cpu::pack::{Matrix, View};
use crate::cpu::plan::{Plan, ViewMut};
use crate::cpu::rotary::Rotary;
use crate::cpu::tile::Finish;
use crate::cpu::{Numbers, tiles};
use crate::descriptor::rope::{Turn, Way};
use crate::{DType, Device, Result, Tensor};

pub(super) fn product(
    numbers: Numbers,
    c: &mut Tensor,
    a: (&Tensor, Op),
    b: Factor<'_>,
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
    b: Factor<'_>,
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
        Then::Rotary { bias, turn } => return turned((numbers, leaf), c, (a, b), (bias, turn)),
    };
    run((numbers, leaf), c, (a, b), (Finish::Store, epilogue))
}

/// A product whose heads turn: within it, or after it where few rows or a long k go another way.
fn turned(
    (numbers, leaf): (Numbers, usize),
    c: &mut Tensor,
    (a, b): ((&Tensor, Op), Factor<'_>),
    (bias, turn): (Option<&Tensor>, Turn<'_>),
) -> Result<()> {
    let device = c.device().clone();
    let rotary = Rotary::new(turn, Way::Forward, &device);
    let epilogue = Epilogue {
        bias: bias.map(Tensor::f32),
        then: epilogue::Then::Rotary(&rotary),
    };
    let finish = Finish::Store;
    let plan = plan((numbers, leaf), (finish, epilogue), &device);
    let ((rows, _), k) = (c.rows_cols(), view(a).cols());
    if turns(&plan, c.dtype(), (rows, k)) {
        return run((numbers, leaf), c, (a, b), (finish, epilogue));
    }
    let epilogue = Epilogue {
        then: epilogue::Then::Nothing,
        ..epilogue
    };
    let mut sums = Tensor::empty(c.dims(), DType::F32, &device)?;
    run((numbers, leaf), &mut sums, (a, b), (finish, epilogue))?;
    rotary.settle_all(&mut sums, c);
    Ok(())
}

fn plan<'a>(
    (numbers, leaf): (Numbers, usize),
    (finish, epilogue): (Finish, Epilogue<'a>),
    device: &'a Device,
) -> Plan<'a> {
    Plan {
        device,
        numbers,
        leaf,
        finish,
        epilogue,
        parallel: true,
    }
}

fn run(
    numbers: (Numbers, usize),
    c: &mut Tensor,
    (a, b): ((&Tensor, Op), Factor<'_>),
    end: (Finish, Epilogue<'_>),
) -> Result<()> {
    let device = c.device().clone();
    let plan = plan(numbers, end, &device);
    let (rows, cols) = c.rows_cols();
    let c = ViewMut {
        data: DataMut::of(c),
        rows,
        cols,
        row_stride: cols,
    };
    match b {
        Factor::Stored(b, op) => gemm(c, view(a), view((b, op)), plan),
        Factor::Packed(b) => gemm_packed(c, view(a), (b.words.f32(), b.n), plan),
    }
}

/// Floats of a pack of op(b) `[k, n]`, if products of such numbers read one.
pub(super) fn packed_floats(
    numbers: Numbers,
    (k, n): (usize, usize),
    leaf: usize,
) -> Option<usize> {
    (numbers == Numbers::Bf16Tiles)
        .then(|| tiles::packed_floats((k, n), leaf))
        .flatten()
}

pub(super) fn fill(words: &mut Tensor, b: (&Tensor, Op), leaf: usize) {
    let isa = words.device().isa();
    tiles::fill(isa, words.f32_mut(), view(b), leaf);
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
