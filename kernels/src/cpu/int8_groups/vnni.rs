//! The loop of AVX-512 VNNI: products of unsigned and signed bytes, four to a sum.

use std::arch::x86_64::*;

use super::layout::{Chain, Compute, Held, IN_FLIGHT, Loops, QUAD, Sums, WIDTH};
use crate::cpu::Isa;
use crate::cpu::codes::Scales;
use crate::cpu::simd::LANES;

pub(super) struct Vnni;

impl Loops for Vnni {
    fn chain<T: Held, const R: usize>() -> Compute {
        chain::<T, R>
    }
}

/// Whether the instruction set allows these loops and the machine has them.
pub(super) fn is_used(isa: Isa) -> bool {
    matches!(isa, Isa::Amx | Isa::Avx512Bf16 | Isa::Avx512)
        && is_x86_feature_detected!("avx512vnni")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512f")
}

/// Bytes of a vector.
const VECTOR: usize = QUAD * LANES;

/// # Safety
/// The machine has the instruction set, and the chain's panel and rows can be read.
#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
unsafe fn chain<T: Held, const R: usize>(chain: Chain, sums: &mut Sums) {
    let quads = const { T::CODE.quads() };
    let group = const { T::CODE.bytes_of_group() };
    let mut acc = [[_mm512_setzero_ps(); 2]; R];
    let mut panel = chain.panel;
    let mut codes = chain.codes;
    for number in 0..chain.groups {
        if chain.is_first {
            let ahead = panel.wrapping_add(IN_FLIGHT);
            for line in 0..group.div_ceil(VECTOR) {
                _mm_prefetch::<_MM_HINT_T1>(ahead.wrapping_add(line * VECTOR).cast());
            }
        }
        // SAFETY: the panel has this group and the rows have it, by this function's contract.
        unsafe {
            let mut products = [[_mm512_setzero_si512(); 2]; R];
            for (row, products) in products.iter_mut().enumerate() {
                *products = [_mm512_set1_epi32(*chain.shifts.add(number * R + row)); 2];
            }
            let mut others = [[_mm512_setzero_si512(); 2]; R];
            let mut at = panel.add(const { T::CODE.bytes_of_scales() });
            for _ in 0..quads / 2 {
                let [first, second] = if const { T::CODE.is_nibble() } {
                    let low = _mm512_set1_epi8(15);
                    let [a, b] = vectors_at(at);
                    let high = [_mm512_srli_epi16::<4>(a), _mm512_srli_epi16::<4>(b)];
                    at = at.add(2 * VECTOR);
                    [
                        [_mm512_and_si512(a, low), _mm512_and_si512(b, low)],
                        [
                            _mm512_and_si512(high[0], low),
                            _mm512_and_si512(high[1], low),
                        ],
                    ]
                } else {
                    let both = [vectors_at(at), vectors_at(at.add(2 * VECTOR))];
                    at = at.add(4 * VECTOR);
                    both
                };
                for (row, products) in products.iter_mut().enumerate() {
                    let q = _mm512_set1_epi32(codes.add(row).read().cast_signed());
                    products[0] = _mm512_dpbusd_epi32(products[0], first[0], q);
                    products[1] = _mm512_dpbusd_epi32(products[1], first[1], q);
                }
                // one row alone has too few chains to hide the latency of their additions
                let second_sums = if R <= 2 { &mut others } else { &mut products };
                for (row, products) in second_sums.iter_mut().enumerate() {
                    let q = _mm512_set1_epi32(codes.add(R + row).read().cast_signed());
                    products[0] = _mm512_dpbusd_epi32(products[0], second[0], q);
                    products[1] = _mm512_dpbusd_epi32(products[1], second[1], q);
                }
                codes = codes.add(2 * R);
            }
            let (scales, offsets) = scales_at::<T>(panel);
            for (row, acc) in acc.iter_mut().enumerate() {
                let d = _mm512_set1_ps(*chain.scales.add(number * R + row));
                for v in 0..2 {
                    let mut whole = products[row][v];
                    if R <= 2 {
                        whole = _mm512_add_epi32(whole, others[row][v]);
                    }
                    let by = _mm512_mul_ps(scales[v], d);
                    acc[v] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(whole), by, acc[v]);
                }
                if const { T::CODE.has_offsets() } {
                    let total = _mm512_set1_ps(*chain.totals.add(number * R + row));
                    for v in 0..2 {
                        acc[v] = _mm512_fmadd_ps(offsets[v], total, acc[v]);
                    }
                }
            }
            panel = panel.add(group);
        }
    }
    const { assert!(WIDTH == 2 * LANES) };
    for (sums, acc) in sums.iter_mut().zip(acc) {
        for (sums, acc) in sums.chunks_exact_mut(LANES).zip(acc) {
            // SAFETY: sixteen floats.
            unsafe { _mm512_storeu_ps(sums.as_mut_ptr(), acc) }
        }
    }
}

/// Two vectors of codes.
/// # Safety
/// They can be read.
#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn vectors_at(at: *const u8) -> [__m512i; 2] {
    // SAFETY: by this function's contract.
    unsafe {
        [
            _mm512_loadu_si512(at.cast()),
            _mm512_loadu_si512(at.add(VECTOR).cast()),
        ]
    }
}

/// The scales and the offsets of a group.
/// # Safety
/// The group can be read.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
unsafe fn scales_at<T: Held>(panel: *const u8) -> ([__m512; 2], [__m512; 2]) {
    // SAFETY: a group begins with its scales, by this function's contract.
    unsafe {
        let floats = panel.cast::<f32>();
        let none = [_mm512_setzero_ps(); 2];
        match const { T::CODE.form_of_scales() } {
            Scales::Half => {
                let both = [
                    _mm512_cvtph_ps(_mm256_loadu_si256(panel.cast())),
                    _mm512_cvtph_ps(_mm256_loadu_si256(panel.add(VECTOR / 2).cast())),
                ];
                (both, none)
            }
            Scales::Single => {
                let both = [_mm512_loadu_ps(floats), _mm512_loadu_ps(floats.add(LANES))];
                (both, none)
            }
            Scales::WithOffsets => (
                [
                    _mm512_loadu_ps(floats),
                    _mm512_loadu_ps(floats.add(2 * LANES)),
                ],
                [
                    _mm512_loadu_ps(floats.add(LANES)),
                    _mm512_loadu_ps(floats.add(3 * LANES)),
                ],
            ),
        }
    }
}
