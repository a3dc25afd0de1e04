//! The loop in plain Rust.

use super::layout::{Chain, Compute, Held, Loops, QUAD, Sums, WIDTH};
use crate::cpu::codes::{Code, Scales};
use crate::cpu::simd::LANES;

pub(super) struct Plain;

impl Loops for Plain {
    fn chain<T: Held, const R: usize>() -> Compute {
        chain::<T, R>
    }
}

/// # Safety
/// The chain's panel and rows can be read.
unsafe fn chain<T: Held, const R: usize>(chain: Chain, sums: &mut Sums) {
    let code = T::CODE;
    let group = code.bytes_of_group();
    let mut acc = [[0.0; WIDTH]; R];
    for number in 0..chain.groups {
        // SAFETY: the panel has the chain's groups, by this function's contract.
        let bytes = unsafe { std::slice::from_raw_parts(chain.panel.add(number * group), group) };
        let (head, codes) = bytes.split_at(code.bytes_of_scales());
        let (scales, offsets) = scales_of(code, head);
        for (row, acc) in acc.iter_mut().enumerate() {
            let at = number * R + row;
            // SAFETY: rows have the chain's groups, by this function's contract.
            let (scale, shift, total) = unsafe {
                (
                    *chain.scales.add(at),
                    *chain.shifts.add(at),
                    *chain.totals.add(at),
                )
            };
            let mut products = [shift; WIDTH];
            for quad in 0..code.quads() {
                // SAFETY: the same.
                let four = unsafe { *chain.codes.add((number * code.quads() + quad) * R + row) };
                let four = four.to_le_bytes().map(u8::cast_signed);
                for (column, product) in products.iter_mut().enumerate() {
                    for (place, q) in four.iter().enumerate() {
                        let own = code_at(code, codes, quad, QUAD * column + place);
                        *product += i32::from(own) * i32::from(*q);
                    }
                }
            }
            for (column, acc) in acc.iter_mut().enumerate() {
                *acc = (products[column] as f32).mul_add(scales[column] * scale, *acc);
                if code.has_offsets() {
                    *acc = offsets[column].mul_add(total, *acc);
                }
            }
        }
    }
    sums[..R].copy_from_slice(&acc);
}

/// A group's scales and offsets, column by column.
fn scales_of(code: Code, head: &[u8]) -> ([f32; WIDTH], [f32; WIDTH]) {
    let mut all = ([0.0; WIDTH], [0.0; WIDTH]);
    for column in 0..WIDTH {
        let (vector, lane) = (column / LANES, column % LANES);
        let float = |at: usize| {
            let four = &head[size_of::<f32>() * at..].as_chunks::<4>().0[0];
            f32::from_le_bytes(*four)
        };
        let scale = match code.form_of_scales() {
            Scales::Half => {
                let two = head[2 * column..].as_chunks::<2>().0[0];
                half::f16::from_le_bytes(two).to_f32()
            }
            Scales::Single => float(column),
            Scales::WithOffsets => {
                all.1[column] = float((2 * vector + 1) * LANES + lane);
                float(2 * vector * LANES + lane)
            }
        };
        all.0[column] = scale;
    }
    all
}

/// The code of a group at a byte of the panel's 32 columns of four, without its sign.
fn code_at(code: Code, codes: &[u8], quad: usize, byte: usize) -> u8 {
    if code.is_nibble() {
        let both = codes[quad / 2 * QUAD * WIDTH + byte];
        both >> (4 * (quad % 2)) & 15
    } else {
        codes[quad * QUAD * WIDTH + byte]
    }
}
