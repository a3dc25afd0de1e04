//! Products of 8-bit numbers with exact sums: c = (q - 128) w in 32-bit integers, times a scale for each row and each column.
//!
//! Rows of x are q - 128 with q from 1 to 255, rows of W (outputs) are -127 to 127, so that VNNI's products of unsigned and
//! signed bytes can be used: sum(q w) - 128 sum(w). Integer sums are the same in every order, and what follows them are
//! single rounded f32 operations, so every instruction set gives the same bits. AVX-512 VNNI has a loop of its own; others use
//! plain code.
#![cfg_attr(
    target_arch = "x86_64",
    expect(unsafe_code, reason = "loads and products of AVX-512")
)]

use crate::Isa;
use rayon::prelude::*;

/// Columns of a panel of weights: two vectors of 32-bit sums.
const PANEL: usize = 32;
/// Numbers that one product sums.
const QUAD: usize = 4;
/// Rows of a tile.
const ROWS: usize = 12;
/// Offset that codes of x are stored with.
const OFFSET: i32 = 128;
/// Greatest size of a code.
const MOST: f32 = 127.0;
/// Rows whose numbers are all smaller than this are zero: 127 divided by it is finite.
const LEAST: f32 = 1e-30;

/// A line of memory.
#[repr(C, align(64))]
#[derive(Clone, Copy)]
struct Line([i8; 64]);

/// W in panels of 32 outputs: for each four inputs, the four codes of each output.
pub(crate) struct Panels {
    lines: Vec<Line>,
    /// Scale of each output.
    scales: Vec<f32>,
    /// 128 times the sum of each output's codes.
    shifts: Vec<i32>,
    /// Inputs, rounded up to four.
    quads: usize,
    k: usize,
    n: usize,
}

impl Panels {
    /// w: n rows of k, neither of them 0.
    pub(crate) fn of(w: &[f32], [n, k]: [usize; 2]) -> Panels {
        let quads = k.div_ceil(QUAD);
        let mut lines = vec![Line([0; 64]); n.div_ceil(PANEL) * quads * 2];
        let own: Vec<(f32, i32)> = lines
            .par_chunks_mut(quads * 2)
            .zip(w.par_chunks(PANEL * k))
            .flat_map_iter(|(lines, rows)| {
                let mut codes = vec![0; quads * QUAD];
                let fill = |(column, row)| fill(lines, column, row, &mut codes);
                let filled: Vec<(f32, i32)> = rows.chunks_exact(k).enumerate().map(fill).collect();
                filled
            })
            .collect();
        let (scales, shifts) = own.into_iter().unzip();
        Panels {
            lines,
            scales,
            shifts,
            quads,
            k,
            n,
        }
    }

    pub(crate) fn dims(&self) -> [usize; 2] {
        [self.n, self.k]
    }

    pub(crate) fn bytes(&self) -> usize {
        64 * self.lines.len() + 8 * self.n
    }

    /// c = x W^T + bias for some rows.
    pub(crate) fn multiply(&self, isa: Isa, x: &[f32], bias: Option<&[f32]>, c: &mut [f32]) {
        let width = self.quads * QUAD;
        let rows = x.len() / self.k;
        let mut codes = vec![0u8; rows * width];
        let mut scales = Vec::with_capacity(rows);
        for (codes, x) in codes.chunks_exact_mut(width).zip(x.chunks_exact(self.k)) {
            scales.push(encode(isa, x, codes));
        }
        let mut sums = [[0i32; PANEL]; ROWS];
        for (panel, lines) in self.lines.chunks_exact(self.quads * 2).enumerate() {
            let first = panel * PANEL;
            let columns = PANEL.min(self.n - first);
            for (block, codes) in codes.chunks(ROWS * width).enumerate() {
                let here = codes.len() / width;
                add_up(isa, lines, codes, width, &mut sums);
                for (row, sums) in sums[..here].iter().enumerate() {
                    let number = block * ROWS + row;
                    let to = &mut c[number * self.n + first..][..columns];
                    let of = first..first + columns;
                    let shifts = &self.shifts[of.clone()];
                    let own = &self.scales[of.clone()];
                    settle(to, sums, shifts, own, scales[number]);
                    if let Some(bias) = bias {
                        to.iter_mut().zip(&bias[of]).for_each(|(c, b)| *c += b);
                    }
                }
            }
        }
    }
}

/// Fills a column of a panel with an output's codes; returns its scale and shift.
fn fill(lines: &mut [Line], column: usize, row: &[f32], codes: &mut [u8]) -> (f32, i32) {
    let scale = encode(Isa::Portable, row, codes);
    let mut sum = 0;
    for (i, code) in codes[..row.len()].iter().enumerate() {
        let code = i32::from(*code) - OFFSET;
        sum += code;
        let at = (i / QUAD * PANEL + column) * QUAD + i % QUAD;
        lines[at / 64].0[at % 64] = i8::try_from(code).unwrap_or(i8::MAX);
    }
    (scale, OFFSET * sum)
}

/// c = (sum - shift) * (scale of the row * scale of the column)
fn settle(c: &mut [f32], sums: &[i32; PANEL], shifts: &[i32], own: &[f32], scale: f32) {
    let columns = shifts.iter().zip(own).zip(sums);
    for (c, ((shift, own), sum)) in c.iter_mut().zip(columns) {
        *c = (sum - shift) as f32 * (scale * own);
    }
}

/// Codes of a row, 128 where there is nothing, and its scale: NaN if a number is not finite.
fn encode(isa: Isa, x: &[f32], codes: &mut [u8]) -> f32 {
    let most = f32::from_bits(greatest(isa, x));
    codes[x.len()..].fill(128);
    if !most.is_finite() || most < LEAST {
        codes.fill(128);
        return if most.is_finite() { 0.0 } else { f32::NAN };
    }
    round(isa, x, MOST / most, codes);
    most / MOST
}

/// Bits of the greatest size; those of NaN and infinity are above all others.
fn greatest(isa: Isa, x: &[f32]) -> u32 {
    #[cfg(target_arch = "x86_64")]
    if wide::is_used(isa) {
        // SAFETY: the machine has these features by `is_used`.
        return unsafe { wide::greatest(x) };
    }
    let _ = isa;
    x.iter()
        .map(|x| x.to_bits() & 0x7fff_ffff)
        .fold(0, u32::max)
}

/// Rounds finite numbers times `by`, which are at most 127, to codes; ties to even.
fn round(isa: Isa, x: &[f32], by: f32, codes: &mut [u8]) {
    #[cfg(target_arch = "x86_64")]
    if wide::is_used(isa) {
        // SAFETY: the machine has these features by `is_used`.
        unsafe { wide::round(x, by, codes) };
        return;
    }
    let _ = isa;
    for (code, x) in codes.iter_mut().zip(x) {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "1 to 255"
        )]
        let rounded = ((x * by).round_ties_even() as i32 + OFFSET) as u8;
        *code = rounded;
    }
}

/// Sums of products of up to 12 rows of codes with a panel.
fn add_up(isa: Isa, lines: &[Line], codes: &[u8], width: usize, sums: &mut [[i32; PANEL]; ROWS]) {
    #[cfg(target_arch = "x86_64")]
    if wide::is_used(isa) {
        // SAFETY: the machine has these features by `is_used`.
        unsafe { wide::add_up(lines, codes, width, sums) };
        return;
    }
    let _ = isa;
    for (codes, sums) in codes.chunks_exact(width).zip(sums) {
        sums.fill(0);
        for (quad, lines) in codes.chunks_exact(QUAD).zip(lines.chunks_exact(2)) {
            let columns = lines.iter().flat_map(|line| line.0.chunks_exact(QUAD));
            for (sum, column) in sums.iter_mut().zip(columns) {
                let products = quad.iter().zip(column);
                *sum += products
                    .map(|(q, w)| i32::from(*q) * i32::from(*w))
                    .sum::<i32>();
            }
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod wide {
    use std::arch::x86_64::*;

    use super::{Line, PANEL, QUAD, ROWS};
    use crate::Isa;

    /// Whether the instruction set allows these loops and the machine has them.
    pub(super) fn is_used(isa: Isa) -> bool {
        matches!(isa, Isa::Amx | Isa::Avx512Bf16 | Isa::Avx512)
            && is_x86_feature_detected!("avx512vnni")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512f")
    }

    #[target_feature(enable = "avx512f,avx512bw")]
    pub(super) fn greatest(x: &[f32]) -> u32 {
        let mask = _mm512_set1_epi32(0x7fff_ffff);
        let mut most = _mm512_setzero_si512();
        let (vectors, rest) = x.as_chunks::<16>();
        for x in vectors {
            // SAFETY: 16 floats.
            let x = unsafe { _mm512_loadu_si512(x.as_ptr().cast()) };
            most = _mm512_max_epu32(most, _mm512_and_si512(x, mask));
        }
        let rest = rest.iter().map(|x| x.to_bits() & 0x7fff_ffff);
        rest.fold(_mm512_reduce_max_epu32(most), u32::max)
    }

    #[target_feature(enable = "avx512f,avx512bw")]
    pub(super) fn round(x: &[f32], by: f32, codes: &mut [u8]) {
        let (by, offset) = (_mm512_set1_ps(by), _mm512_set1_epi32(super::OFFSET));
        for (x, codes) in x.chunks(16).zip(codes.chunks_mut(16)) {
            let lanes = 0xffff_u16 >> (16 - x.len());
            // SAFETY: the mask has as many lanes as there are floats and codes.
            unsafe {
                let x = _mm512_maskz_loadu_ps(lanes, x.as_ptr());
                let rounded = _mm512_cvtps_epi32(_mm512_mul_ps(x, by));
                let rounded = _mm512_add_epi32(rounded, offset);
                _mm512_mask_cvtepi32_storeu_epi8(codes.as_mut_ptr().cast(), lanes, rounded);
            }
        }
    }

    /// As the function of this name outside.
    #[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
    pub(super) fn add_up(
        lines: &[Line],
        codes: &[u8],
        width: usize,
        sums: &mut [[i32; PANEL]; ROWS],
    ) {
        match codes.len() / width {
            ROWS => tile::<ROWS>(lines, codes, width, sums),
            rows => {
                for row in 0..rows {
                    let own = &codes[row * width..(row + 1) * width];
                    let (_, sums) = sums.split_at_mut(row);
                    tile::<1>(lines, own, width, sums);
                }
            }
        }
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
    fn tile<const N: usize>(lines: &[Line], codes: &[u8], width: usize, sums: &mut [[i32; PANEL]]) {
        let quads = width / QUAD;
        assert!(lines.len() == 2 * quads && codes.len() == N * width && sums.len() >= N);
        let mut acc = [[_mm512_setzero_si512(); 2]; N];
        for quad in 0..quads {
            // SAFETY: two lines for each four codes, and `width` codes for each row, by the assert.
            unsafe {
                let at = lines.as_ptr().add(2 * quad);
                let b = [
                    _mm512_load_si512(at.cast()),
                    _mm512_load_si512(at.add(1).cast()),
                ];
                for (row, acc) in acc.iter_mut().enumerate() {
                    let at = codes.as_ptr().add(row * width + QUAD * quad);
                    let a = _mm512_set1_epi32(at.cast::<i32>().read_unaligned());
                    acc[0] = _mm512_dpbusd_epi32(acc[0], a, b[0]);
                    acc[1] = _mm512_dpbusd_epi32(acc[1], a, b[1]);
                }
            }
        }
        for (sums, acc) in sums.iter_mut().zip(acc) {
            let (low, high) = sums.split_at_mut(16);
            // SAFETY: 16 sums each.
            unsafe {
                _mm512_storeu_si512(low.as_mut_ptr().cast(), acc[0]);
                _mm512_storeu_si512(high.as_mut_ptr().cast(), acc[1]);
            }
        }
    }
}
