//! The loop of 64-bit ARM's dot products (SDOT of Armv8.2), half a panel at a time: products of signed bytes, four to a sum.
//!
//! Codes of 8 bits are stored with an offset of 128, which turning their highest bit takes away again, so that they need no shift.

use std::arch::aarch64::*;
use std::arch::{asm, is_aarch64_feature_detected};

use super::layout::{Chain, Compute, Held, IN_FLIGHT, Loops, STEP, Sums, WIDTH};
use crate::cpu::Isa;
use crate::cpu::codes::Scales;
use crate::cpu::simd::LANES;

pub(super) struct Neon;

impl Loops for Neon {
    fn chain<T: Held, const R: usize>() -> Compute {
        chain::<T, R>
    }
}

/// Whether the instruction set allows these loops and the machine has them.
pub(super) fn is_used(isa: Isa) -> bool {
    isa == Isa::Neon && is_aarch64_feature_detected!("dotprod")
}

/// Bytes of a vector.
const VECTOR: usize = 16;
/// Sums of a vector.
const FLOATS: usize = 4;
/// Vectors of sums that are computed at once: with six rows, 24 of 32 registers.
const VECTORS: usize = 4;
/// Columns that are computed at once.
const HALF: usize = VECTORS * FLOATS;

/// Sums of products of half a panel.
type Products<const R: usize> = [[int32x4_t; VECTORS]; R];

/// # Safety
/// The machine has the instruction set, and the chain's panel and rows can be read.
#[target_feature(enable = "neon,dotprod")]
unsafe fn chain<T: Held, const R: usize>(chain: Chain, sums: &mut Sums) {
    let group = const { T::CODE.bytes_of_group() };
    sums[..R].fill([0.0; WIDTH]);
    for number in 0..chain.groups {
        let panel = chain.panel.wrapping_add(number * group);
        if chain.is_first {
            let ahead = panel.wrapping_add(IN_FLIGHT);
            for line in 0..group.div_ceil(64) {
                prefetch(ahead.wrapping_add(line * 64));
            }
        }
        // SAFETY: the panel has this group and the rows have it, by this function's contract.
        unsafe {
            for half in 0..WIDTH / HALF {
                let products = products_of::<T, R>(chain, number, half);
                for v in 0..VECTORS {
                    let column = half * HALF + v * FLOATS;
                    let (scale, offset) = scales_at::<T>(panel, column);
                    for (row, products) in products.iter().enumerate() {
                        let at = number * R + row;
                        let by = vmulq_n_f32(scale, *chain.scales.add(at));
                        let to = sums[row][column..column + FLOATS].as_mut_ptr();
                        let mut sum = vfmaq_f32(vld1q_f32(to), vcvtq_f32_s32(products[v]), by);
                        if const { T::CODE.has_offsets() } {
                            sum = vfmaq_n_f32(sum, offset, *chain.totals.add(at));
                        }
                        vst1q_f32(to, sum);
                    }
                }
            }
        }
    }
}

/// The scales and the offsets of four columns of a group, which begins at `panel`.
/// # Safety
/// The group can be read.
#[inline]
#[target_feature(enable = "neon")]
unsafe fn scales_at<T: Held>(panel: *const u8, column: usize) -> (float32x4_t, float32x4_t) {
    let floats = panel.cast::<f32>();
    // SAFETY: a group begins with its scales, by this function's contract.
    unsafe {
        match const { T::CODE.form_of_scales() } {
            Scales::Half => {
                let halves = vld1_u16(panel.add(2 * column).cast());
                (widened(halves), vdupq_n_f32(0.0))
            }
            Scales::Single => (vld1q_f32(floats.add(column)), vdupq_n_f32(0.0)),
            Scales::WithOffsets => {
                // a vector of scales, then one of offsets
                let at = floats.add(column + column / LANES * LANES);
                (vld1q_f32(at), vld1q_f32(at.add(LANES)))
            }
        }
    }
}

/// Sums of products of a group's codes, of half a panel.
/// # Safety
/// As `chain`.
#[inline]
#[target_feature(enable = "neon,dotprod")]
unsafe fn products_of<T: Held, const R: usize>(
    chain: Chain,
    number: usize,
    half: usize,
) -> Products<R> {
    let quads = const { T::CODE.quads() };
    let head = const { T::CODE.bytes_of_scales() };
    let mut products = [[vdupq_n_s32(0); VECTORS]; R];
    let panel = (chain.panel)
        .wrapping_add(number * const { T::CODE.bytes_of_group() } + head + half * VECTORS * VECTOR);
    // SAFETY: the panel has this group and the rows have it, by this function's contract.
    unsafe {
        let codes = chain.codes.add(number * quads * R);
        if const { T::CODE.is_nibble() } {
            for (row, products) in products.iter_mut().enumerate() {
                *products = [vdupq_n_s32(*chain.shifts.add(number * R + row)); VECTORS];
            }
            let low = vdupq_n_u8(15);
            for both in 0..quads / 2 {
                let w = vectors_at(panel.add(both * STEP));
                let first = w.map(|w| vandq_u8(w, low));
                add(&mut products, first, codes.add(2 * both * R));
                let second = w.map(|w| vshrq_n_u8::<4>(w));
                add(&mut products, second, codes.add((2 * both + 1) * R));
            }
        } else {
            let sign = vdupq_n_u8(128);
            for quad in 0..quads {
                let w = vectors_at(panel.add(quad * STEP)).map(|w| veorq_u8(w, sign));
                add(&mut products, w, codes.add(quad * R));
            }
        }
    }
    products
}

/// Vectors of codes.
/// # Safety
/// They can be read.
#[inline]
#[target_feature(enable = "neon")]
unsafe fn vectors_at(at: *const u8) -> [uint8x16_t; VECTORS] {
    // SAFETY: by this function's contract.
    unsafe { [0, 1, 2, 3].map(|v| vld1q_u8(at.add(v * VECTOR))) }
}

/// Adds the products of signed codes with four codes of each row.
/// # Safety
/// The rows' codes can be read.
#[inline]
#[target_feature(enable = "neon,dotprod")]
unsafe fn add<const R: usize>(
    products: &mut Products<R>,
    w: [uint8x16_t; VECTORS],
    codes: *const u32,
) {
    for (row, products) in products.iter_mut().enumerate() {
        // SAFETY: by this function's contract.
        let q = unsafe { vdupq_n_u32(codes.add(row).read()) };
        for (product, w) in products.iter_mut().zip(w) {
            *product = dot(*product, w, q);
        }
    }
}

/// Stable Rust has no intrinsic for this instruction.
#[inline]
#[target_feature(enable = "neon,dotprod")]
fn dot(mut sum: int32x4_t, w: uint8x16_t, q: uint32x4_t) -> int32x4_t {
    // SAFETY: the instruction only computes with registers, and exists where this function may be called.
    unsafe {
        asm!(
            "sdot {sum:v}.4s, {w:v}.16b, {q:v}.16b",
            sum = inout(vreg) sum,
            w = in(vreg) w,
            q = in(vreg) q,
            options(pure, nomem, nostack, preserves_flags)
        );
    }
    sum
}

/// binary16 as f32; stable Rust has no type for the intrinsic.
#[inline]
#[target_feature(enable = "neon")]
fn widened(halves: uint16x4_t) -> float32x4_t {
    let wide: float32x4_t;
    // SAFETY: the instruction only computes with registers; every 64-bit ARM processor with NEON has it.
    unsafe {
        asm!(
            "fcvtl {wide:v}.4s, {halves:v}.4h",
            wide = lateout(vreg) wide,
            halves = in(vreg) halves,
            options(pure, nomem, nostack, preserves_flags)
        );
    }
    wide
}

#[inline]
fn prefetch(x: *const u8) {
    // SAFETY: a prefetch is a hint: it reads nothing and faults nowhere.
    unsafe {
        asm!(
            "prfm pldl2keep, [{}]",
            in(reg) x.addr(),
            options(nomem, nostack, preserves_flags)
        );
    }
}
