//! Numbers stored in 8 or 16 bits on the CPU, one by one: tests and checkpoints hold them here, products do not.

use super::cpu::{largest, nearest, scale};
use super::format::{Grid, INFINITE, NAN};
use crate::{DType, E4m3, E5m2, Element, F16, Result, Tensor};

/// Bits of a number of the grid in a format with `bits` bits, as torch has them.
fn encoded(x: f32, grid: Grid, bits: u32) -> u32 {
    let size = x.to_bits() & 0x7fff_ffff;
    let normal = 1 << (23 - grid.dropped);
    let code = if size > INFINITE {
        if bits == 8 { 0x7f } else { 0x7e00 }
    } else if size < grid.least {
        // the steps from 0 are in the low bits
        (f32::from_bits(size) + grid.steps).to_bits() - grid.steps.to_bits()
    } else {
        let finite = size.min(grid.largest);
        ((finite - grid.least) >> grid.dropped) + normal + u32::from(size > grid.largest)
    };
    x.to_bits() >> 31 << (bits - 1) | code
}

fn decoded(code: u32, grid: Grid, bits: u32) -> f32 {
    let sign = code >> (bits - 1) << 31;
    let code = code & ((1 << (bits - 1)) - 1);
    let normal = 1 << (23 - grid.dropped);
    let size = if code < normal {
        (f32::from_bits(grid.steps.to_bits() + code) - grid.steps).to_bits()
    } else {
        let size = ((code - normal) << grid.dropped) + grid.least;
        let next = grid.largest + (1 << grid.dropped);
        match size > grid.largest {
            true if grid.beyond == INFINITE && size == next => INFINITE,
            true => NAN,
            false => size,
        }
    };
    f32::from_bits(sign | size)
}

/// An element that is such bits.
trait Code: Element {
    const BITS: u32;
    fn of(code: u32) -> Self;
    fn code(self) -> u32;
}

impl Code for F16 {
    const BITS: u32 = 16;

    fn of(code: u32) -> F16 {
        let [low, high, ..] = code.to_le_bytes();
        F16(u16::from_le_bytes([low, high]))
    }

    fn code(self) -> u32 {
        self.0.into()
    }
}

impl Code for E4m3 {
    const BITS: u32 = 8;

    fn of(code: u32) -> E4m3 {
        E4m3(code.to_le_bytes()[0])
    }

    fn code(self) -> u32 {
        self.0.into()
    }
}

impl Code for E5m2 {
    const BITS: u32 = 8;

    fn of(code: u32) -> E5m2 {
        E5m2(code.to_le_bytes()[0])
    }

    fn code(self) -> u32 {
        self.0.into()
    }
}

/// The values of f32 or bf16 numbers.
fn numbers(x: &Tensor) -> Result<Vec<f32>> {
    match x.dtype() {
        DType::Bf16 => Ok(x.bf16().iter().map(|x| f32::from(*x)).collect()),
        _ => Ok(x.host::<f32>()?.to_vec()),
    }
}

pub(super) fn stored_scaled(
    codes: &mut Tensor,
    amax: Option<&mut Tensor>,
    x: &Tensor,
    grid: Grid,
    factor: f32,
) -> Result<()> {
    let x = numbers(x)?;
    if let Some(amax) = amax {
        amax.host_mut::<f32>()?[0] = largest(&x);
    }
    let of = |at: usize| (x[at], factor);
    fill(codes, grid, of)
}

/// Codes of numbers, each times its factor.
fn fill(codes: &mut Tensor, grid: Grid, of: impl Fn(usize) -> (f32, f32)) -> Result<()> {
    fn typed<T: Code>(codes: &mut [T], grid: Grid, of: impl Fn(usize) -> (f32, f32)) {
        for (at, code) in codes.iter_mut().enumerate() {
            let (x, factor) = of(at);
            *code = T::of(encoded(nearest(x * factor, grid), grid, T::BITS));
        }
    }
    match codes.dtype() {
        DType::E4m3 => typed::<E4m3>(codes.host_mut()?, grid, of),
        DType::E5m2 => typed::<E5m2>(codes.host_mut()?, grid, of),
        _ => typed::<F16>(codes.host_mut()?, grid, of),
    }
    Ok(())
}

/// `rows`, `columns`: 0 and the ends of runs.
pub(super) fn stored_blocks(
    [codes, back]: [&mut Tensor; 2],
    x: &Tensor,
    grid: Grid,
    [rows, columns]: [&[usize]; 2],
) -> Result<()> {
    let (width, across) = (x.rows_cols().1, columns.len() - 1);
    let x = numbers(x)?;
    let mut scales = vec![1.0; x.len()];
    let back = back.host_mut::<f32>()?;
    for (r, rows) in rows.windows(2).enumerate() {
        for (c, columns) in columns.windows(2).enumerate() {
            let lines =
                (rows[0]..rows[1]).map(|row| row * width + columns[0]..row * width + columns[1]);
            let most = lines
                .clone()
                .map(|line| largest(&x[line]))
                .fold(0.0, f32::max);
            let scale = scale(most, grid);
            lines.for_each(|line| scales[line].fill(scale));
            back[r * across + c] = 1.0 / scale;
        }
    }
    fill(codes, grid, |at| (x[at], scales[at]))
}

pub(super) fn widened(y: &mut Tensor, codes: &Tensor, grid: Grid) -> Result<()> {
    fn typed<T: Code>(y: &mut [f32], codes: &[T], grid: Grid) {
        let codes = codes.iter().map(|code| decoded(code.code(), grid, T::BITS));
        y.iter_mut().zip(codes).for_each(|(y, x)| *y = x);
    }
    let y = y.host_mut()?;
    match codes.dtype() {
        DType::E4m3 => typed::<E4m3>(y, codes.host()?, grid),
        DType::E5m2 => typed::<E5m2>(y, codes.host()?, grid),
        _ => typed::<F16>(y, codes.host()?, grid),
    }
    Ok(())
}

pub(super) fn turned(y: &mut Tensor, codes: &Tensor) -> Result<()> {
    fn typed<T: Code>(y: &mut [T], codes: &[T], columns: usize) {
        let rows = codes.len() / columns.max(1);
        for (at, y) in y.iter_mut().enumerate() {
            *y = codes[at % rows * columns + at / rows];
        }
    }
    let (_, columns) = codes.rows_cols();
    match codes.dtype() {
        DType::E4m3 => typed::<E4m3>(y.host_mut()?, codes.host()?, columns),
        _ => typed::<E5m2>(y.host_mut()?, codes.host()?, columns),
    }
    Ok(())
}
