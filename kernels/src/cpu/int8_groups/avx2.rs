//! The loop of AVX2, half a panel at a time: pairs of products of bytes in 16 bits, then in 32.
//!
//! Pairs of codes of 4 bits fit 16 bits over a whole group: 8 (15 + 15) 127 is below 2^15. Those of 8 bits are taken with the sign
//! moved to the other factor, as 128 * 127 * 2 is below 2^15 and 255 * 127 * 2 is not; they need no shift.

use std::arch::x86_64::*;

use super::layout::{Chain, Compute, Held, IN_FLIGHT, Loops, STEP, Sums, WIDTH};
use crate::cpu::Isa;
use crate::cpu::codes::Scales;
use crate::cpu::simd::LANES;

pub(super) struct Avx2;

impl Loops for Avx2 {
    fn chain<T: Held, const R: usize>() -> Compute {
        chain::<T, R>
    }
}

/// Whether the instruction set allows these loops and the machine has them.
pub(super) fn is_used(isa: Isa) -> bool {
    matches!(isa, Isa::Amx | Isa::Avx512Bf16 | Isa::Avx512 | Isa::Avx2)
        && is_x86_feature_detected!("avx2")
        && is_x86_feature_detected!("fma")
        && is_x86_feature_detected!("f16c")
}

/// Bytes of a vector.
const VECTOR: usize = 32;
/// Sums of a vector.
const FLOATS: usize = 8;
/// Columns that are computed at once.
const HALF: usize = 2 * FLOATS;

/// # Safety
/// The machine has the instruction set, and the chain's panel and rows can be read.
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn chain<T: Held, const R: usize>(chain: Chain, sums: &mut Sums) {
    let group = const { T::CODE.bytes_of_group() };
    sums[..R].fill([0.0; WIDTH]);
    for number in 0..chain.groups {
        let panel = chain.panel.wrapping_add(number * group);
        if chain.is_first {
            let ahead = panel.wrapping_add(IN_FLIGHT);
            for line in 0..group.div_ceil(64) {
                _mm_prefetch::<_MM_HINT_T1>(ahead.wrapping_add(line * 64).cast());
            }
        }
        // SAFETY: the panel has this group and the rows have it, by this function's contract.
        unsafe {
            for half in 0..WIDTH / HALF {
                let products = products_of::<T, R>(chain, number, half);
                let first = half * HALF;
                for (row, products) in products.into_iter().enumerate() {
                    let at = number * R + row;
                    let d = _mm256_set1_ps(*chain.scales.add(at));
                    let total = _mm256_set1_ps(*chain.totals.add(at));
                    for (v, product) in products.into_iter().enumerate() {
                        let column = first + v * FLOATS;
                        let to = sums[row][column..column + FLOATS].as_mut_ptr();
                        let (scale, offset) = scales_at::<T>(panel, column);
                        let by = _mm256_mul_ps(scale, d);
                        let sum = _mm256_loadu_ps(to);
                        let mut sum = _mm256_fmadd_ps(_mm256_cvtepi32_ps(product), by, sum);
                        if const { T::CODE.has_offsets() } {
                            sum = _mm256_fmadd_ps(offset, total, sum);
                        }
                        _mm256_storeu_ps(to, sum);
                    }
                }
            }
        }
    }
}

/// The scales and the offsets of eight columns of a group, which begins at `panel`.
/// # Safety
/// The group can be read.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn scales_at<T: Held>(panel: *const u8, column: usize) -> (__m256, __m256) {
    let floats = panel.cast::<f32>();
    // SAFETY: a group begins with its scales, by this function's contract.
    unsafe {
        match const { T::CODE.form_of_scales() } {
            Scales::Half => {
                let halves = _mm_loadu_si128(panel.add(2 * column).cast());
                (_mm256_cvtph_ps(halves), _mm256_setzero_ps())
            }
            Scales::Single => (_mm256_loadu_ps(floats.add(column)), _mm256_setzero_ps()),
            Scales::WithOffsets => {
                // a vector of scales, then one of offsets
                let at = floats.add(column + column / LANES * LANES);
                (_mm256_loadu_ps(at), _mm256_loadu_ps(at.add(LANES)))
            }
        }
    }
}

/// Sums of products of a group's codes, of half a panel.
/// # Safety
/// As `chain`.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn products_of<T: Held, const R: usize>(
    chain: Chain,
    number: usize,
    half: usize,
) -> [[__m256i; 2]; R] {
    let quads = const { T::CODE.quads() };
    let (ones, low) = (_mm256_set1_epi16(1), _mm256_set1_epi8(15));
    let mut products = [[_mm256_setzero_si256(); 2]; R];
    let head = const { T::CODE.bytes_of_scales() };
    let panel = (chain.panel)
        .wrapping_add(number * const { T::CODE.bytes_of_group() } + head + half * STEP / 2);
    // SAFETY: the panel has this group and the rows have it, by this function's contract.
    unsafe {
        let codes = chain.codes.add(number * quads * R);
        if const { T::CODE.is_nibble() } {
            for both in 0..quads / 2 {
                let at = panel.add(both * STEP);
                for v in 0..2 {
                    let w = _mm256_loadu_si256(at.add(v * VECTOR).cast());
                    let first = _mm256_and_si256(w, low);
                    let second = _mm256_and_si256(_mm256_srli_epi16::<4>(w), low);
                    for (row, products) in products.iter_mut().enumerate() {
                        let q = codes.add(2 * both * R + row);
                        let of_first = _mm256_set1_epi32(q.read().cast_signed());
                        let of_second = _mm256_set1_epi32(q.add(R).read().cast_signed());
                        let pairs = _mm256_add_epi16(
                            _mm256_maddubs_epi16(first, of_first),
                            _mm256_maddubs_epi16(second, of_second),
                        );
                        products[v] = _mm256_add_epi16(products[v], pairs);
                    }
                }
            }
            for (row, products) in products.iter_mut().enumerate() {
                let shift = _mm256_set1_epi32(*chain.shifts.add(number * R + row));
                for product in products {
                    *product = _mm256_add_epi32(_mm256_madd_epi16(*product, ones), shift);
                }
            }
        } else {
            let sign = _mm256_set1_epi8(i8::MIN);
            for quad in 0..quads {
                let at = panel.add(quad * STEP);
                for v in 0..2 {
                    let w = _mm256_loadu_si256(at.add(v * VECTOR).cast());
                    let w = _mm256_xor_si256(w, sign);
                    let size = _mm256_abs_epi8(w);
                    for (row, products) in products.iter_mut().enumerate() {
                        let q = codes.add(quad * R + row).read().cast_signed();
                        let q = _mm256_sign_epi8(_mm256_set1_epi32(q), w);
                        let pairs = _mm256_maddubs_epi16(size, q);
                        let four = _mm256_madd_epi16(pairs, ones);
                        products[v] = _mm256_add_epi32(products[v], four);
                    }
                }
            }
        }
    }
    products
}
