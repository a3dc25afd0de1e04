//! Matrix product on the CPU: views for `cpu/gemm.rs`.

use super::operand::{Factor, Factors, Form, Op, Operand, Packed, Then};
use crate::cpu::codes::Code;
use crate::cpu::codes_pack as codes;
use crate::cpu::epilogue::{self, Epilogue, Second};
use crate::cpu::gemm::{gemm, gemm_packed, turns};
use crate::cpu::output::{Data, DataMut};
use crate::cpu::pack::{Matrix, View};
use crate::cpu::plan::{Plan, ViewMut};
use crate::cpu::right::{self, Prepacked, Words};
use crate::cpu::rotary::Rotary;
use crate::cpu::tile::Finish;
use crate::cpu::{Isa, Numbers, int8_groups, tiles};
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
    let is_rounded = matches!(factors.b, Factor::Packed(b) if b.rounds_rows());
    if !is_rounded && turns(&plan, c.dtype(), [rows, cols, k], is_packed) {
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
        Factor::Packed(b) => gemm_packed(c, a, (b.words(), b.n), plan),
    }
}

impl Packed {
    /// Its words, for products on the CPU.
    pub(in crate::ops) fn words(&self) -> Prepacked<'_> {
        Prepacked::Words(match self.form {
            Form::Whole => Words::Whole(self.words.f32()),
            Form::Halves => Words::Halves(self.words.bf16()),
            Form::Codes(code) => Words::Codes(self.words.f32(), code),
            Form::Int8(code) => {
                let words = self.words.f32();
                return Prepacked::Int8(int8_groups::Right { words, code });
            }
        })
    }
}

impl Form {
    /// The same for products that round rows of the first factor where the form is whole numbers.
    pub(super) fn with_rounded_rows(self) -> Form {
        match self {
            Form::Codes(code) if !code.is_whole() => Form::Codes(code),
            Form::Codes(code) | Form::Int8(code) => Form::Int8(code),
            Form::Halves => Form::Halves,
            Form::Whole => Form::Whole,
        }
    }

    /// The first that may hold op(b) for products of these numbers.
    pub(super) fn likely(numbers: Numbers, b: Operand<'_>, isa: Isa) -> Form {
        if numbers != Numbers::F32 || b.tensor.dtype() != DType::F32 {
            return Form::Whole;
        }
        let codes = codes::likely(isa, view(b)).map(Form::Codes);
        codes.unwrap_or_else(|| Form::without_codes(b))
    }

    fn without_codes(b: Operand<'_>) -> Form {
        match fits_halves(b.tensor) {
            true => Form::Halves,
            false => Form::Whole,
        }
    }

    /// The next one that may hold op(b).
    pub(super) fn next(self, b: Operand<'_>) -> Form {
        let codes = |code: Code| code.next().map(Form::Codes);
        match self {
            Form::Codes(code) => codes(code).unwrap_or_else(|| Form::without_codes(b)),
            Form::Int8(code) => {
                let next = codes(code).map(Form::with_rounded_rows);
                next.unwrap_or_else(|| Form::without_codes(b))
            }
            Form::Halves | Form::Whole => Form::Whole,
        }
    }

    /// Type of the elements of a pack, and their number for op(b) `[k, n]`; `None` if products of such numbers on the CPU
    /// read none.
    pub(super) fn elements(
        self,
        numbers: Numbers,
        [k, n]: [usize; 2],
        leaf: usize,
        isa: Isa,
    ) -> Option<(DType, usize)> {
        let words = match numbers {
            Numbers::Bf16Tiles => tiles::packed_floats([k, n], leaf),
            Numbers::F32 | Numbers::Bf16 => Some(right::packed_words(isa, numbers, [k, n], leaf)),
            Numbers::Bf16Mma | Numbers::F16Mma => None,
        };
        Some(match self {
            Form::Whole => (DType::F32, words?),
            Form::Halves => (DType::Bf16, words?),
            Form::Codes(code) => (DType::F32, codes::floats(isa, code, [k, n])),
            Form::Int8(code) => (DType::F32, int8_groups::floats(code, [k, n])),
        })
    }
}

/// Packs op(b); false if its numbers do not fit the form.
pub(super) fn fill(
    (numbers, form): (Numbers, Form),
    words: &mut Tensor,
    b: Operand<'_>,
    leaf: usize,
) -> bool {
    let isa = words.device().isa();
    match (form, numbers) {
        (Form::Codes(code), _) => return codes::fill(isa, code, words.f32_mut(), view(b)),
        (Form::Int8(code), _) => return int8_groups::fill(isa, code, words.f32_mut(), view(b)),
        (Form::Halves, _) => right::fill_halves(isa, words.bf16_mut(), view(b), leaf),
        (Form::Whole, Numbers::Bf16Tiles) => tiles::fill(isa, words.f32_mut(), view(b), leaf),
        (Form::Whole, _) => right::fill(isa, numbers, words.f32_mut(), view(b), leaf),
    }
    true
}

/// Whether every number of an f32 tensor equals a bf16.
fn fits_halves(x: &Tensor) -> bool {
    let is_half = |x: &f32| x.to_bits() & 0xffff == 0;
    let parts = x.f32().par_chunks(1 << 16);
    parts.all(|some| some.iter().all(is_half))
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
