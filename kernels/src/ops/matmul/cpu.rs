//! Matrix product on the CPU: views for `cpu/gemm.rs`.

use super::operand::{Factor, Factors, Op, Operand, Then};
use crate::cpu::epilogue::{self, Epilogue, Second};
use crate::cpu::gemm::{gemm, gemm_packed, turns};
use crate::cpu::output::{Data, DataMut};
use crate::cpu::pack::{Matrix, View};
use crate::cpu::plan::{Plan, ViewMut};
use crate::cpu::right::{self, Words};
use crate::cpu::rotary::Rotary;
use crate::cpu::tile::Finish;
use crate::cpu::{Isa, Numbers, tiles};
use crate::descriptor::rope::{Turn, Way};
use crate::{DType, Device, Result, Tensor};
use rayon::prelude::*;

pub(super) fn product(c: &mut Tensor, factors: Factors<'_>, accumulate: bool) -> Result<()> {
    let finish = if accumulate {
        Finish::Add
    } else {
        Finish::Store
    };
    run(c, factors, finish, Epilogue::default())
}

pub(super) fn product_then(c: &mut Tensor, factors: Factors<'_>, then: Then<'_>) -> Result<()> {
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
        Then::Rotary { bias, turn } => return turned(c, factors, bias, turn),
    };
    run(c, factors, Finish::Store, epilogue)
}

/// A product with rotary embedding: fused, or after it where few rows or a long k are computed differently.
fn turned(
    c: &mut Tensor,
    factors: Factors<'_>,
    bias: Option<&Tensor>,
    turn: Turn<'_>,
) -> Result<()> {
    let device = c.device().clone();
    let rotary = Rotary::new(turn, Way::Forward, &device);
    let epilogue = Epilogue {
        bias: bias.map(Tensor::f32),
        then: epilogue::Then::Rotary(&rotary),
    };
    let plan = plan(&factors, Finish::Store, epilogue, &device);
    let ((rows, cols), k) = (c.rows_cols(), view(factors.a).cols());
    let is_packed = matches!(factors.b, Factor::Packed(_));
    if turns(&plan, c.dtype(), [rows, cols, k], is_packed) {
        return run(c, factors, Finish::Store, epilogue);
    }
    let epilogue = Epilogue {
        then: epilogue::Then::Nothing,
        ..epilogue
    };
    let mut sums = Tensor::empty(c.dims(), DType::F32, &device)?;
    run(&mut sums, factors, Finish::Store, epilogue)?;
    rotary.settle_all(&mut sums, c);
    Ok(())
}

fn plan<'a>(
    factors: &Factors<'_>,
    finish: Finish,
    epilogue: Epilogue<'a>,
    device: &'a Device,
) -> Plan<'a> {
    Plan {
        device,
        numbers: factors.numbers,
        leaf: factors.leaf,
        finish,
        epilogue,
        parallel: true,
    }
}

fn run(c: &mut Tensor, factors: Factors<'_>, finish: Finish, epilogue: Epilogue<'_>) -> Result<()> {
    let device = c.device().clone();
    let plan = plan(&factors, finish, epilogue, &device);
    let (rows, cols) = c.rows_cols();
    let c = ViewMut {
        data: DataMut::of(c),
        rows,
        cols,
        row_stride: cols,
    };
    let a = view(factors.a);
    match factors.b {
        Factor::Stored(b) => gemm(c, a, view(b), plan),
        Factor::Packed(b) => {
            let words = match b.words.dtype() {
                DType::Bf16 => Words::Halves(b.words.bf16()),
                _ => Words::Whole(b.words.f32()),
            };
            gemm_packed(c, a, (words, b.n), plan)
        }
    }
}

/// Words of a pack of op(b) `[k, n]`; `None` if products of such numbers on the CPU read none.
pub(super) fn packed_words(
    numbers: Numbers,
    [k, n]: [usize; 2],
    leaf: usize,
    isa: Isa,
) -> Option<usize> {
    match numbers {
        Numbers::Bf16Tiles => tiles::packed_floats([k, n], leaf),
        Numbers::F32 | Numbers::Bf16 => Some(right::packed_words(isa, numbers, [k, n], leaf)),
        Numbers::Bf16Mma | Numbers::F16Mma => None,
    }
}

pub(super) fn fill(numbers: Numbers, words: &mut Tensor, b: Operand<'_>, leaf: usize) {
    let isa = words.device().isa();
    match numbers {
        Numbers::Bf16Tiles => tiles::fill(isa, words.f32_mut(), view(b), leaf),
        Numbers::F32 if words.dtype() == DType::Bf16 => {
            right::fill_halves(isa, words.bf16_mut(), view(b), leaf);
        }
        _ => right::fill(isa, numbers, words.f32_mut(), view(b), leaf),
    }
}

/// Whether every number of an f32 tensor equals a bf16.
pub(super) fn fits_halves(x: &Tensor) -> bool {
    let is_half = |x: &f32| x.to_bits() & 0xffff == 0;
    x.dtype() == DType::F32
        && x.f32()
            .par_chunks(1 << 16)
            .all(|some| some.iter().all(is_half))
}

fn view(operand: Operand<'_>) -> Matrix<'_> {
    let Operand { tensor: x, op } = operand;
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
