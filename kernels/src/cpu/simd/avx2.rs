//! Lanes in two registers of AVX2.
#![expect(
    unsafe_code,
    reason = "vector intrinsics and calls into functions with target features"
)]

use crate::{Bf16, F16};

use super::lanes::{F16_BIAS, FP8_BITS, FP8_PLACE, Kernel, LANES, Lanes, ONE, prefetches};
use std::arch::x86_64::*;

#[target_feature(enable = "avx2,fma")]
pub(super) fn run<K: Kernel<Args>, Args>(args: Args) -> K::Out {
    K::run::<Pair>(args)
}

/// Two AVX registers. Made only inside `run`, hence only where the features are.
#[derive(Clone, Copy)]
pub(super) struct Pair(__m256, __m256);

macro_rules! pair {
    ($name:ident($($arg:ident),*) = $value:expr) => {
        #[inline(always)]
        fn $name(self, $($arg: Self),*) -> Self {
            // SAFETY: a `Pair` exists only where AVX2 and FMA do.
            unsafe { Pair($value(self.0, $($arg.0),*), $value(self.1, $($arg.1),*)) }
        }
    };
}

impl Lanes for Pair {
    const TILE_VECTORS: usize = 1;
    const TILE_ROWS: usize = 6;

    prefetches!();

    #[inline(always)]
    fn splat(x: f32) -> Self {
        // SAFETY: called only inside `run`.
        let half = unsafe { _mm256_set1_ps(x) };
        Pair(half, half)
    }
    #[inline(always)]
    unsafe fn load_at(x: *const f32) -> Self {
        // SAFETY: the caller vouches for sixteen floats; inside `run`.
        unsafe { Pair(_mm256_loadu_ps(x), _mm256_loadu_ps(x.add(8))) }
    }
    #[inline(always)]
    unsafe fn store_at(self, out: *mut f32) {
        // SAFETY: the caller vouches for room for sixteen floats.
        unsafe {
            _mm256_storeu_ps(out, self.0);
            _mm256_storeu_ps(out.add(8), self.1);
        }
    }
    #[inline(always)]
    unsafe fn widen_at(x: *const Bf16) -> Self {
        // SAFETY: the caller vouches for sixteen numbers of two bytes; called only inside `run`.
        unsafe {
            let half = |at: usize| {
                let words = _mm256_cvtepu16_epi32(_mm_loadu_si128(x.add(at).cast()));
                _mm256_castsi256_ps(_mm256_slli_epi32::<16>(words))
            };
            Pair(half(0), half(8))
        }
    }
    #[inline(always)]
    unsafe fn bytes_at(x: *const i8) -> Self {
        // SAFETY: the caller vouches for sixteen bytes; called only inside `run`.
        unsafe {
            let half = |at: usize| {
                let bytes = _mm_loadl_epi64(x.add(at).cast());
                _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes))
            };
            Pair(half(0), half(8))
        }
    }
    #[inline(always)]
    unsafe fn fp8_at(x: *const u8) -> Self {
        // SAFETY: the caller vouches for sixteen bytes; called only inside `run`.
        unsafe {
            let half = |at: usize| {
                let words = _mm256_cvtepi8_epi32(_mm_loadl_epi64(x.add(at).cast()));
                let places = _mm256_slli_epi32::<{ FP8_PLACE.cast_signed() }>(words);
                _mm256_castsi256_ps(_mm256_and_si256(places, _mm256_set1_epi32(FP8_BITS)))
            };
            Pair(half(0), half(8))
        }
    }
    #[inline(always)]
    unsafe fn nibbles_at<const SIGNED: bool>(x: *const u8) -> Self {
        // SAFETY: the caller vouches for eight bytes; called only inside `run`.
        unsafe {
            // brings the number of lane i to the highest bits
            let places = _mm256_set_epi32(0, 4, 8, 12, 16, 20, 24, 28);
            let half = |at: usize| {
                let words = _mm256_set1_epi32(x.add(at).cast::<i32>().read_unaligned());
                let words = _mm256_sllv_epi32(words, places);
                _mm256_cvtepi32_ps(match SIGNED {
                    true => _mm256_srai_epi32::<28>(words),
                    false => _mm256_srli_epi32::<28>(words),
                })
            };
            Pair(half(0), half(4))
        }
    }
    #[inline(always)]
    unsafe fn finite_f16_at(x: *const F16) -> Self {
        // SAFETY: the caller vouches for sixteen numbers of two bytes; called only inside `run`.
        unsafe { Pair(finite_f16_at(x), finite_f16_at(x.add(8))) }
    }
    pair!(add(b) = _mm256_add_ps);
    pair!(sub(b) = _mm256_sub_ps);
    pair!(mul(b) = _mm256_mul_ps);
    pair!(div(b) = _mm256_div_ps);
    pair!(max(b) = _mm256_max_ps);
    pair!(min(b) = _mm256_min_ps);
    pair!(fma(b, c) = _mm256_fmadd_ps);
    pair!(sqrt() = _mm256_sqrt_ps);
    pair!(pow2() = pow2);
    #[inline(always)]
    fn select_less(self, b: Self, then: Self, other: Self) -> Self {
        // SAFETY: a `Pair` exists only where AVX2 and FMA do.
        unsafe {
            Pair(
                _mm256_blendv_ps(other.0, then.0, _mm256_cmp_ps::<_CMP_LT_OQ>(self.0, b.0)),
                _mm256_blendv_ps(other.1, then.1, _mm256_cmp_ps::<_CMP_LT_OQ>(self.1, b.1)),
            )
        }
    }
    #[inline(always)]
    fn transpose(rows: [Self; LANES]) -> [Self; LANES] {
        let mut out = rows;
        for first in [0, 8] {
            let [mut low, mut high] = [[rows[0].0; 8]; 2];
            for i in 0..8 {
                (low[i], high[i]) = (rows[first + i].0, rows[first + i].1);
            }
            // SAFETY: a `Pair` exists only where AVX2 and FMA do.
            let (low, high) = unsafe { (transpose(low), transpose(high)) };
            for i in 0..8 {
                if first == 0 {
                    (out[i].0, out[8 + i].0) = (low[i], high[i]);
                } else {
                    (out[i].1, out[8 + i].1) = (low[i], high[i]);
                }
            }
        }
        out
    }
}

/// A quarter, 8 rows of 8: pairs, then quads within 128-bit parts, then the parts themselves.
#[inline]
#[target_feature(enable = "avx2,fma")]
fn transpose(rows: [__m256; 8]) -> [__m256; 8] {
    let mut quads = rows;
    for (quad, rows) in quads.chunks_exact_mut(4).zip(rows.chunks_exact(4)) {
        let low = [
            _mm256_unpacklo_ps(rows[0], rows[1]),
            _mm256_unpacklo_ps(rows[2], rows[3]),
        ];
        let high = [
            _mm256_unpackhi_ps(rows[0], rows[1]),
            _mm256_unpackhi_ps(rows[2], rows[3]),
        ];
        quad[0] = _mm256_shuffle_ps::<0x44>(low[0], low[1]);
        quad[1] = _mm256_shuffle_ps::<0xee>(low[0], low[1]);
        quad[2] = _mm256_shuffle_ps::<0x44>(high[0], high[1]);
        quad[3] = _mm256_shuffle_ps::<0xee>(high[0], high[1]);
    }
    let mut out = quads;
    for c in 0..4 {
        out[c] = _mm256_permute2f128_ps::<0x20>(quads[c], quads[4 + c]);
        out[4 + c] = _mm256_permute2f128_ps::<0x31>(quads[c], quads[4 + c]);
    }
    out
}

#[inline]
#[target_feature(enable = "avx2,fma")]
fn pow2(x: __m256) -> __m256 {
    let shifted = _mm256_slli_epi32::<23>(_mm256_castps_si256(x));
    let one = _mm256_set1_epi32(ONE.cast_signed());
    _mm256_castsi256_ps(_mm256_add_epi32(shifted, one))
}

/// Eight finite numbers of IEEE binary16.
/// # Safety
/// Eight numbers can be read at `x`.
#[inline]
#[target_feature(enable = "avx2,fma")]
unsafe fn finite_f16_at(x: *const F16) -> __m256 {
    // SAFETY: eight numbers of two bytes can be read, by this function's contract.
    let words = _mm256_cvtepu16_epi32(unsafe { _mm_loadu_si128(x.cast()) });
    let sign = _mm256_slli_epi32::<16>(_mm256_and_si256(words, _mm256_set1_epi32(0x8000)));
    let size = _mm256_slli_epi32::<13>(_mm256_and_si256(words, _mm256_set1_epi32(0x7fff)));
    let size = _mm256_mul_ps(_mm256_castsi256_ps(size), _mm256_set1_ps(F16_BIAS));
    _mm256_or_ps(size, _mm256_castsi256_ps(sign))
}
