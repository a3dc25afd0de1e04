//! Lanes in one register of AVX-512.
#![expect(
    unsafe_code,
    reason = "vector intrinsics and calls into functions with target features"
)]

use super::lanes::{FP8_BITS, FP8_PLACE, Kernel, LANES, Lanes, ONE, prefetches};
use crate::{Bf16, F16};
use std::arch::x86_64::*;

#[target_feature(enable = "avx512f,avx2,fma")]
pub(super) fn run<K: Kernel<Args>, Args>(args: Args) -> K::Out {
    K::run::<Wide>(args)
}

/// One AVX-512 register. Made only inside `run`, hence only where the features are.
#[derive(Clone, Copy)]
pub(crate) struct Wide(pub(in crate::cpu) __m512);

macro_rules! wide {
    ($name:ident($($arg:ident),*) = $value:expr) => {
        #[inline(always)]
        fn $name(self, $($arg: Self),*) -> Self {
            // SAFETY: a `Wide` exists only where AVX-512 does.
            Wide(unsafe { $value(self.0, $($arg.0),*) })
        }
    };
}

impl Lanes for Wide {
    const TILE_VECTORS: usize = 2;
    const TILE_ROWS: usize = 12;

    prefetches!();

    #[inline(always)]
    fn splat(x: f32) -> Self {
        // SAFETY: called only inside `run`.
        Wide(unsafe { _mm512_set1_ps(x) })
    }
    #[inline(always)]
    unsafe fn load_at(x: *const f32) -> Self {
        // SAFETY: the caller vouches for sixteen floats; inside `run`.
        Wide(unsafe { _mm512_loadu_ps(x) })
    }
    #[inline(always)]
    unsafe fn store_at(self, out: *mut f32) {
        // SAFETY: the caller vouches for room for sixteen floats.
        unsafe { _mm512_storeu_ps(out, self.0) }
    }
    #[inline(always)]
    unsafe fn widen_at(x: *const Bf16) -> Self {
        // SAFETY: the caller vouches for sixteen numbers of two bytes; called only inside `run`.
        Wide(unsafe {
            let halves = _mm512_cvtepu16_epi32(_mm256_loadu_si256(x.cast()));
            _mm512_castsi512_ps(_mm512_slli_epi32::<16>(halves))
        })
    }
    #[inline(always)]
    unsafe fn widen_two_at(x: *const Bf16) -> [Self; 2] {
        // SAFETY: the caller vouches for 32 numbers of two bytes; called only inside `run`.
        unsafe {
            let words = _mm512_loadu_si512(x.cast());
            let odd = _mm512_and_si512(words, _mm512_set1_epi32(!0xffff));
            [_mm512_slli_epi32::<16>(words), odd].map(|words| Wide(_mm512_castsi512_ps(words)))
        }
    }
    #[inline(always)]
    unsafe fn bytes_at(x: *const i8) -> Self {
        // SAFETY: the caller vouches for sixteen bytes; called only inside `run`.
        Wide(unsafe { _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(x.cast()))) })
    }
    #[inline(always)]
    unsafe fn fp8_at(x: *const u8) -> Self {
        // SAFETY: the caller vouches for sixteen bytes; called only inside `run`.
        Wide(unsafe {
            let words = _mm512_cvtepi8_epi32(_mm_loadu_si128(x.cast()));
            let places = _mm512_slli_epi32::<FP8_PLACE>(words);
            _mm512_castsi512_ps(_mm512_and_si512(places, _mm512_set1_epi32(FP8_BITS)))
        })
    }
    #[inline(always)]
    unsafe fn nibbles_at<const SIGNED: bool>(x: *const u8) -> Self {
        // SAFETY: the caller vouches for eight bytes; called only inside `run`.
        Wide(unsafe {
            let half = |at: usize| _mm256_set1_epi32(x.add(at).cast::<i32>().read_unaligned());
            let words = _mm512_inserti64x4::<1>(_mm512_castsi256_si512(half(0)), half(4));
            // the number of lane i from bit 4 i on
            let places = _mm512_set_epi32(28, 24, 20, 16, 12, 8, 4, 0, 28, 24, 20, 16, 12, 8, 4, 0);
            // a permutation reads four bits of an index
            _mm512_permutexvar_ps(_mm512_srlv_epi32(words, places), numbers(SIGNED))
        })
    }
    #[inline(always)]
    unsafe fn nibbles_of_two_at<const SIGNED: bool>(x: *const u8) -> [Self; 2] {
        // SAFETY: the caller vouches for sixteen bytes; called only inside `run`.
        unsafe {
            let bytes = _mm512_cvtepu8_epi32(_mm_loadu_si128(x.cast()));
            [bytes, _mm512_srli_epi32::<4>(bytes)]
                .map(|places| Wide(_mm512_permutexvar_ps(places, numbers(SIGNED))))
        }
    }
    #[inline(always)]
    unsafe fn finite_f16_at(x: *const F16) -> Self {
        // SAFETY: the caller vouches for sixteen numbers of two bytes; called only inside `run`.
        Wide(unsafe { _mm512_cvtph_ps(_mm256_loadu_si256(x.cast())) })
    }
    #[inline(always)]
    fn load_words(x: &[Bf16]) -> Self {
        let x = &x[..2 * LANES];
        // SAFETY: 64 bytes are there; called only inside `run`.
        Wide(unsafe { _mm512_loadu_ps(x.as_ptr().cast()) })
    }
    #[inline(always)]
    fn store_words(self, out: &mut [Bf16]) {
        let out = &mut out[..2 * LANES];
        // SAFETY: there is room for 64 bytes.
        unsafe { _mm512_storeu_ps(out.as_mut_ptr().cast(), self.0) }
    }
    #[inline(always)]
    unsafe fn add_all(a: *const f32, b: *const f32, out: *mut f32, len: usize) -> bool {
        // A mask is used one iteration after its test, so that several are in flight at once.
        let mut others = [[u16::MAX; 2]; 2];
        // SAFETY: `len` floats can be read at `a` and `b` and written at `out`, by the trait's contract; only inside `run`.
        unsafe {
            let size = _mm512_set1_epi32(i32::MAX);
            for at in (0..len).step_by(2 * LANES) {
                for (vector, others) in others.iter_mut().enumerate() {
                    let at = at + vector * LANES;
                    let (a, b) = (_mm512_loadu_ps(a.add(at)), _mm512_loadu_ps(b.add(at)));
                    for (others, x) in others.iter_mut().zip([a, b]) {
                        *others =
                            _mm512_mask_test_epi32_mask(*others, _mm512_castps_si512(x), size);
                    }
                    _mm512_storeu_ps(out.add(at), _mm512_add_ps(a, b));
                }
            }
        }
        others != [[u16::MAX; 2]; 2]
    }
    wide!(add(b) = _mm512_add_ps);
    wide!(sub(b) = _mm512_sub_ps);
    wide!(mul(b) = _mm512_mul_ps);
    wide!(div(b) = _mm512_div_ps);
    wide!(max(b) = _mm512_max_ps);
    wide!(min(b) = _mm512_min_ps);
    wide!(fma(b, c) = _mm512_fmadd_ps);
    wide!(sqrt() = _mm512_sqrt_ps);
    #[inline(always)]
    fn pow2(self) -> Self {
        // SAFETY: a `Wide` exists only where AVX-512 does.
        Wide(unsafe {
            let shifted = _mm512_slli_epi32::<23>(_mm512_castps_si512(self.0));
            let one = _mm512_set1_epi32(ONE.cast_signed());
            _mm512_castsi512_ps(_mm512_add_epi32(shifted, one))
        })
    }
    #[inline(always)]
    fn select_less(self, b: Self, then: Self, other: Self) -> Self {
        // SAFETY: a `Wide` exists only where AVX-512 does.
        Wide(unsafe {
            let less = _mm512_cmp_ps_mask::<_CMP_LT_OQ>(self.0, b.0);
            _mm512_mask_blend_ps(less, other.0, then.0)
        })
    }
    #[inline(always)]
    fn transpose(rows: [Self; LANES]) -> [Self; LANES] {
        // SAFETY: a `Wide` exists only where AVX-512 does.
        unsafe { transpose(rows) }
    }
}

/// The numbers of four bits.
#[inline]
#[target_feature(enable = "avx512f,avx2,fma")]
fn numbers(are_signed: bool) -> __m512 {
    let all = std::array::from_fn(|bits: usize| match bits {
        8.. if are_signed => bits as f32 - 16.0,
        _ => bits as f32,
    });
    let all: [f32; LANES] = all;
    // SAFETY: sixteen floats.
    unsafe { _mm512_loadu_ps(all.as_ptr()) }
}

/// Pairs, then quads within 128-bit parts, then the parts themselves.
#[inline]
#[target_feature(enable = "avx512f,avx2,fma")]
fn transpose(rows: [Wide; LANES]) -> [Wide; LANES] {
    let mut quads = rows;
    for (quad, rows) in quads.chunks_exact_mut(4).zip(rows.chunks_exact(4)) {
        let pd = |x| _mm512_castps_pd(x);
        let low = [
            _mm512_unpacklo_ps(rows[0].0, rows[1].0),
            _mm512_unpacklo_ps(rows[2].0, rows[3].0),
        ];
        let high = [
            _mm512_unpackhi_ps(rows[0].0, rows[1].0),
            _mm512_unpackhi_ps(rows[2].0, rows[3].0),
        ];
        quad[0] = Wide(_mm512_castpd_ps(_mm512_unpacklo_pd(pd(low[0]), pd(low[1]))));
        quad[1] = Wide(_mm512_castpd_ps(_mm512_unpackhi_pd(pd(low[0]), pd(low[1]))));
        quad[2] = Wide(_mm512_castpd_ps(_mm512_unpacklo_pd(
            pd(high[0]),
            pd(high[1]),
        )));
        quad[3] = Wide(_mm512_castpd_ps(_mm512_unpackhi_pd(
            pd(high[0]),
            pd(high[1]),
        )));
    }
    // quads[4g + c], part l: rows 4g .. 4g + 4 of column 4l + c.
    let mut out = quads;
    for c in 0..4 {
        let [a, b, d, e] = [quads[c].0, quads[4 + c].0, quads[8 + c].0, quads[12 + c].0];
        let even = [
            _mm512_shuffle_f32x4::<0x88>(a, b),
            _mm512_shuffle_f32x4::<0x88>(d, e),
        ];
        let odd = [
            _mm512_shuffle_f32x4::<0xdd>(a, b),
            _mm512_shuffle_f32x4::<0xdd>(d, e),
        ];
        out[c] = Wide(_mm512_shuffle_f32x4::<0x88>(even[0], even[1]));
        out[4 + c] = Wide(_mm512_shuffle_f32x4::<0x88>(odd[0], odd[1]));
        out[8 + c] = Wide(_mm512_shuffle_f32x4::<0xdd>(even[0], even[1]));
        out[12 + c] = Wide(_mm512_shuffle_f32x4::<0xdd>(odd[0], odd[1]));
    }
    out
}
