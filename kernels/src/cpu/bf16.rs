//! Products of operands rounded to bf16, summed in f32: the arithmetic of AVX-512's `vdpbf16ps`.
//!
//! A word holds the factors of two neighbouring k: the even one in its low half, the odd one in its high
//! half. One step takes two words and a sum:
//!   s = fma(a_odd, b_odd, s); s = fma(a_even, b_even, s)
//! each rounded to nearest even, a result whose rounding with unbounded exponent lies below 2^-126
//! flushed to a zero of its sign. Rounding to bf16 is to nearest even; subnormals become zeros, a NaN
//! stays one (`vcvtne2ps2bf16`).
//! Source: Intel SDM, VDPBF16PS and VCVTNE2PS2BF16, which say it of every CPU; tests compare the
//! machine's own instructions, where it has them, with the emulation.

use super::Isa;
use super::pack::View;
#[cfg(target_arch = "x86_64")]
use super::simd::Wide;
use super::simd::{Kernel, LANES, Lanes, run};

/// One step of a sum of products over packed words.
pub(crate) trait Step<L: Lanes> {
    fn step(a: L, b: L, sum: L) -> L;
}

/// A word is one f32.
pub(crate) struct Single;

impl<L: Lanes> Step<L> for Single {
    #[inline(always)]
    fn step(a: L, b: L, sum: L) -> L {
        a.fma(b, sum)
    }
}

/// Makes words of f32.
pub(crate) trait Round<L: Lanes> {
    /// Lane i: even[i] and odd[i].
    fn weave(even: L, odd: L) -> L;
    /// Lane i: elements 2 i and 2 i + 1 of low followed by high.
    fn join(low: L, high: L) -> L;
}

/// Two bf16 a word, with the operations that every instruction set has.
pub(crate) struct Emulated;

impl<L: Lanes> Step<L> for Emulated {
    #[inline(always)]
    fn step(a: L, b: L, sum: L) -> L {
        let sum = flushed_fma(odd(a), odd(b), sum);
        flushed_fma(even(a), even(b), sum)
    }
}

impl<L: Lanes> Round<L> for Emulated {
    #[inline(always)]
    fn weave(even: L, odd: L) -> L {
        let (even, odd) = (even.to_array(), odd.to_array());
        let mut words = [0.0; LANES];
        for (word, (e, o)) in words.iter_mut().zip(even.into_iter().zip(odd)) {
            *word = f32::from_bits(rounded(e) >> 16 | rounded(o));
        }
        L::load(&words)
    }

    #[inline(always)]
    fn join(low: L, high: L) -> L {
        let mut words = [0.0; LANES];
        let (low, high) = (low.to_array(), high.to_array());
        let pairs = low.chunks_exact(2).chain(high.chunks_exact(2));
        for (word, pair) in words.iter_mut().zip(pairs) {
            *word = f32::from_bits(rounded(pair[0]) >> 16 | rounded(pair[1]));
        }
        L::load(&words)
    }
}

#[inline(always)]
fn odd<L: Lanes>(words: L) -> L {
    L::load(&(words.to_array()).map(|x| f32::from_bits(x.to_bits() & 0xffff_0000)))
}

#[inline(always)]
fn even<L: Lanes>(words: L) -> L {
    L::load(&(words.to_array()).map(|x| f32::from_bits(x.to_bits() << 16)))
}

/// `a b + c`, results that are tiny after rounding flushed to zero.
#[inline(always)]
fn flushed_fma<L: Lanes>(a: L, b: L, c: L) -> L {
    const SCALE: f32 = 18_446_744_073_709_551_616.0; // 2^64
    let result = a.fma(b, c);
    // As if the exponent had no bound: scaled up, the last bits are not lost. Where this overflows,
    // a >= 2^64 or c >= 2^64, so that any difference of c and a b is far above 2^-126; NaN keeps `result`.
    let scaled = a.mul(L::splat(SCALE)).fma(b, c.mul(L::splat(SCALE)));
    let size = scaled.max(L::splat(0.0).sub(scaled));
    let zero = result.mul(L::splat(0.0));
    size.select_less(L::splat(f32::MIN_POSITIVE * SCALE), zero, result)
}

/// The bf16 nearest to x in the high half of a word.
#[inline(always)]
pub(crate) fn rounded(x: f32) -> u32 {
    let bits = x.to_bits();
    let size = bits & 0x7fff_ffff;
    if size > 0x7f80_0000 {
        (bits | 0x0040_0000) & 0xffff_0000
    } else if size < 0x0080_0000 {
        bits & 0x8000_0000
    } else {
        (bits + 0x7fff + (bits >> 16 & 1)) & 0xffff_0000
    }
}

/// Work written over vectors and their arithmetic.
pub(crate) trait Task {
    fn run<L: Lanes, N: Step<L>>(self);
}

struct InFull;

impl<T: Task> Kernel<T> for InFull {
    type Out = ();
    #[inline(always)]
    fn run<L: Lanes>(task: T) {
        task.run::<L, Single>();
    }
}

struct InPairs;

impl<T: Task> Kernel<T> for InPairs {
    type Out = ();
    #[inline(always)]
    fn run<L: Lanes>(task: T) {
        task.run::<L, Emulated>();
    }
}

/// Runs a task whose words are f32, or pairs of bf16.
pub(crate) fn perform<T: Task>(isa: Isa, pairs: bool, task: T) {
    if !pairs {
        return run::<InFull, _>(isa, task);
    }
    #[cfg(target_arch = "x86_64")]
    if isa == Isa::Avx512Bf16 {
        return native::perform(task);
    }
    run::<InPairs, _>(isa, task);
}

/// Packs rows `first .. first + width` of `a` for all columns, two columns a word: word (lane, step) goes
/// to `out[step * width + lane]`. Rows past the matrix's edge and a last odd column's partner are zero.
pub(crate) fn pack_pairs(isa: Isa, a: View<'_>, first: usize, width: usize, out: &mut [f32]) {
    let out = &mut out[..a.cols.div_ceil(2) * width];
    #[cfg(target_arch = "x86_64")]
    if isa == Isa::Avx512Bf16 {
        return native::pack(a, first, width, out);
    }
    run::<Pack, _>(isa, (a, first, width, out));
}

/// Writes a row's numbers as words of two neighbours; a last odd one's partner is zero.
pub(crate) fn join_row(isa: Isa, row: &[f32], out: &mut [f32]) {
    let out = &mut out[..row.len().div_ceil(2)];
    #[cfg(target_arch = "x86_64")]
    if isa == Isa::Avx512Bf16 {
        return native::join(row, out);
    }
    run::<Join, _>(isa, (row, out));
}

struct Join;

impl Kernel<(&[f32], &mut [f32])> for Join {
    type Out = ();
    #[inline(always)]
    fn run<L: Lanes>((row, out): (&[f32], &mut [f32])) {
        join_words::<L, Emulated>(row, out);
    }
}

#[inline(always)]
fn join_words<L: Lanes, N: Round<L>>(row: &[f32], out: &mut [f32]) {
    for (row, out) in row.chunks(2 * LANES).zip(out.chunks_mut(LANES)) {
        let (low, high) = row.split_at(row.len().min(LANES));
        let high = if high.is_empty() {
            L::splat(0.0)
        } else {
            L::load_part(high, 0.0)
        };
        N::join(L::load_part(low, 0.0), high).store_part(out);
    }
}

struct Pack;

impl Kernel<(View<'_>, usize, usize, &mut [f32])> for Pack {
    type Out = ();
    #[inline(always)]
    fn run<L: Lanes>((a, first, width, out): (View<'_>, usize, usize, &mut [f32])) {
        pack_words::<L, Emulated>(a, first, width, out);
    }
}

#[inline(always)]
fn pack_words<L: Lanes, N: Round<L>>(a: View<'_>, first: usize, width: usize, out: &mut [f32]) {
    for lane0 in (0..width).step_by(LANES) {
        let lanes = LANES.min(width - lane0);
        let present = lanes.min(a.rows.saturating_sub(first + lane0));
        let out = &mut out[lane0..];
        if present == 0 {
            for words in out.chunks_mut(width) {
                let end = lanes.min(words.len());
                words[..end].fill(0.0);
            }
        } else if a.row_stride == 1 {
            across::<L, N>(a, first + lane0, (width, lanes, present), out);
        } else if a.col_stride == 1 {
            along::<L, N>(a, first + lane0, (width, lanes, present), out);
        } else {
            strided::<L, N>(a, first + lane0, (width, lanes, present), out);
        }
    }
}

/// Rows lie next to each other: two columns are woven.
#[inline(always)]
fn across<L: Lanes, N: Round<L>>(
    a: View<'_>,
    first: usize,
    (width, lanes, present): (usize, usize, usize),
    out: &mut [f32],
) {
    let column = |k: usize| {
        let start = k * a.col_stride + first;
        // Lanes past this panel's width are dropped; those past the matrix's edge are zero.
        let end = if present == lanes {
            a.data.len().min(start + LANES)
        } else {
            start + present
        };
        L::load_part(&a.data[start..end], 0.0)
    };
    for step in 0..a.cols.div_ceil(2) {
        let odd = if 2 * step + 1 < a.cols {
            column(2 * step + 1)
        } else {
            L::splat(0.0)
        };
        let words = N::weave(column(2 * step), odd);
        put(words, &mut out[step * width..], lanes, width);
    }
}

/// Columns lie next to each other: squares of 16 rows and 16 words are turned in registers.
#[inline(always)]
fn along<L: Lanes, N: Round<L>>(
    a: View<'_>,
    first: usize,
    (width, lanes, present): (usize, usize, usize),
    out: &mut [f32],
) {
    for k0 in (0..a.cols).step_by(2 * LANES) {
        let len = (2 * LANES).min(a.cols - k0);
        let start = first * a.row_stride + k0;
        let mut square = [L::splat(0.0); LANES];
        if len == 2 * LANES && present == lanes {
            // Constant trip counts keep the square in registers; lanes past the panel's width are
            // its last row, and are dropped.
            for (r, words) in square.iter_mut().enumerate() {
                let row = &a.data[start + r.min(lanes - 1) * a.row_stride..][..2 * LANES];
                *words = N::join(L::load(row), L::load(&row[LANES..]));
            }
        } else {
            for (r, words) in square.iter_mut().enumerate().take(present) {
                let row = &a.data[start + r * a.row_stride..][..len];
                let (low, high) = row.split_at(len.min(LANES));
                let high = if high.is_empty() {
                    L::splat(0.0)
                } else {
                    L::load_part(high, 0.0)
                };
                *words = N::join(L::load_part(low, 0.0), high);
            }
        }
        let steps = len.div_ceil(2);
        let out = &mut out[k0 / 2 * width..];
        let turned = L::transpose(square);
        if steps == LANES
            && out.len() >= (LANES - 1) * width + LANES
            && (lanes == LANES || lanes == width)
        {
            for (step, words) in turned.into_iter().enumerate() {
                words.store(&mut out[step * width..][..LANES]);
            }
        } else {
            for (step, words) in turned.into_iter().enumerate().take(steps) {
                words.store_part(&mut out[step * width..][..lanes]);
            }
        }
    }
}

/// Nothing lies next to anything.
#[inline(always)]
fn strided<L: Lanes, N: Round<L>>(
    a: View<'_>,
    first: usize,
    (width, lanes, present): (usize, usize, usize),
    out: &mut [f32],
) {
    let column = |k: usize| {
        let mut x = [0.0; LANES];
        for (r, x) in x.iter_mut().enumerate().take(present) {
            *x = a.data[(first + r) * a.row_stride + k * a.col_stride];
        }
        L::load(&x)
    };
    for step in 0..a.cols.div_ceil(2) {
        let odd = if 2 * step + 1 < a.cols {
            column(2 * step + 1)
        } else {
            L::splat(0.0)
        };
        N::weave(column(2 * step), odd).store_part(&mut out[step * width..][..lanes]);
    }
}

/// Stores `lanes` words; a whole vector where what follows is written later.
#[inline(always)]
fn put<L: Lanes>(words: L, out: &mut [f32], lanes: usize, width: usize) {
    if out.len() >= LANES && (lanes == LANES || lanes == width) {
        words.store(&mut out[..LANES]);
    } else {
        words.store_part(&mut out[..lanes]);
    }
}

#[cfg(target_arch = "x86_64")]
mod native {
    //! The instructions themselves.
    #![expect(
        unsafe_code,
        reason = "vector intrinsics and calls into functions with target features"
    )]

    use super::{Isa, Round, Step, Task, View, Wide, join_words, pack_words};
    use std::arch::x86_64::*;

    /// Two bf16 a word. Used only inside the functions below, hence only where the features are.
    struct Native;

    impl Step<Wide> for Native {
        #[inline(always)]
        fn step(a: Wide, b: Wide, sum: Wide) -> Wide {
            // SAFETY: inside a function with these features; all 512-bit vectors have the same form.
            Wide(unsafe { _mm512_dpbf16_ps(sum.0, bf16(a), bf16(b)) })
        }
    }

    #[inline(always)]
    fn bf16(x: Wide) -> __m512bh {
        // SAFETY: both are 64 bytes of which every pattern is valid.
        unsafe { std::mem::transmute(x.0) }
    }

    impl Round<Wide> for Native {
        #[inline(always)]
        fn weave(even: Wide, odd: Wide) -> Wide {
            // SAFETY: inside a function with these features.
            unsafe {
                let halves = _mm512_cvtne2ps_pbh(odd.0, even.0);
                let halves: __m512i = std::mem::transmute(halves);
                // Word i takes number i and number 16 + i.
                let counts = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
                let order = _mm512_or_si512(
                    _mm512_slli_epi32::<16>(_mm512_add_epi32(counts, _mm512_set1_epi32(16))),
                    counts,
                );
                Wide(_mm512_castsi512_ps(_mm512_permutexvar_epi16(order, halves)))
            }
        }

        #[inline(always)]
        fn join(low: Wide, high: Wide) -> Wide {
            // SAFETY: inside a function with these features; both are 64 bytes.
            Wide(unsafe {
                std::mem::transmute::<__m512bh, __m512>(_mm512_cvtne2ps_pbh(high.0, low.0))
            })
        }
    }

    pub(super) fn perform<T: Task>(task: T) {
        check();
        // SAFETY: the machine has these features by the check.
        unsafe { perform_native(task) }
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512bf16,avx2,fma")]
    fn perform_native<T: Task>(task: T) {
        task.run::<Wide, Native>();
    }

    pub(super) fn pack(a: View<'_>, first: usize, width: usize, out: &mut [f32]) {
        check();
        // SAFETY: the machine has these features by the check.
        unsafe { pack_native(a, first, width, out) }
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512bf16,avx2,fma")]
    fn pack_native(a: View<'_>, first: usize, width: usize, out: &mut [f32]) {
        pack_words::<Wide, Native>(a, first, width, out);
    }

    pub(super) fn join(row: &[f32], out: &mut [f32]) {
        check();
        // SAFETY: the machine has these features by the check.
        unsafe { join_native(row, out) }
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512bf16,avx2,fma")]
    fn join_native(row: &[f32], out: &mut [f32]) {
        join_words::<Wide, Native>(row, out);
    }

    fn check() {
        assert!(
            Isa::Avx512Bf16.is_available(),
            "devices only offer instruction sets the machine has"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    struct OneStep<'a> {
        a: &'a [f32],
        b: &'a [f32],
        sums: &'a mut [f32],
    }

    impl Task for OneStep<'_> {
        #[inline(always)]
        fn run<L: Lanes, N: Step<L>>(self) {
            N::step(L::load(self.a), L::load(self.b), L::load(self.sums)).store(self.sums);
        }
    }

    /// Fused in f64, where the product of two bf16 is exact and the sum nearly: good enough to tell
    /// which side of 2^-126 (1 - 2^-25), the least that rounds to 2^-126, the exact result lies on.
    fn fma(a: f32, b: f32, c: f32) -> f32 {
        let exact = f64::from(a) * f64::from(b) + f64::from(c);
        let least = f64::from(f32::MIN_POSITIVE) * (1.0 - 2.0_f64.powi(-25));
        let result = a.mul_add(b, c);
        if exact.abs() < least {
            0.0_f32.copysign(result)
        } else {
            result
        }
    }

    fn definition(a: u32, b: u32, sum: f32) -> f32 {
        let high = |x: u32| f32::from_bits(x & 0xffff_0000);
        fma(high(a << 16), high(b << 16), fma(high(a), high(b), sum))
    }

    /// A word whose halves have exponents of a kind: all, tiny, huge, near 1.
    fn word(kind: usize, random: u32) -> u32 {
        let (first, count) = [(1, 253), (1, 80), (190, 64), (120, 14)][kind % 4];
        let half = |x: u32| (x & 0x807f) | (first + (x >> 7 & 0xff) % count) << 7;
        half(random & 0xffff) | half(random >> 16) << 16
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 4096, failure_persistence: None, ..Default::default() })]

        #[test]
        fn a_step_has_the_bits_of_the_definition_on_every_instruction_set(
            kinds in (0_usize..4, 0_usize..4, 0_usize..4), cancel: bool,
            a: [u32; LANES], b: [u32; LANES], sums: [u32; LANES],
        ) {
            let float = |kind, x: &u32| f32::from_bits(word(kind, *x) & 0xffff_0000 | x & 0xffff);
            let a = a.map(|x| word(kinds.0, x));
            let b = b.map(|x| word(kinds.1, x));
            let mut sums = sums.map(|x| float(kinds.2, &x));
            if cancel {
                for (sum, (a, b)) in sums.iter_mut().zip(a.iter().zip(&b)) {
                    let high = |x: &u32| f32::from_bits(x & 0xffff_0000);
                    let product = high(a) * high(b);
                    *sum = if product.is_normal() { -product } else { f32::MIN_POSITIVE };
                }
            }
            for isa in Isa::ALL.into_iter().filter(|isa| isa.is_available()) {
                let mut found = sums;
                let floats = |x: [u32; LANES]| x.map(f32::from_bits);
                perform(isa, true, OneStep { a: &floats(a), b: &floats(b), sums: &mut found });
                for (i, found) in found.iter().enumerate() {
                    let want = definition(a[i], b[i], sums[i]);
                    let same = found.to_bits() == want.to_bits() || (found.is_nan() && want.is_nan());
                    prop_assert!(same, "{isa:?} {:x} {:x} {:e}: {found:e} {want:e}", a[i], b[i], sums[i]);
                }
            }
        }
    }

    #[test]
    fn rounding_is_to_nearest_even_and_flushes_subnormals() {
        for (x, want) in [
            (0x3f80_8000, 0x3f80_0000),
            (0x3f80_8001, 0x3f81_0000),
            (0x3f81_8000, 0x3f82_0000),
            (0xbf81_7fff, 0xbf81_0000),
            (0x7f7f_8000, 0x7f80_0000),
            (0xff80_0000, 0xff80_0000),
            (0x7f80_0001, 0x7fc0_0000),
            (0x007f_ffff, 0x0000_0000),
            (0x8000_0001, 0x8000_0000),
            (0x0080_8000, 0x0080_0000),
        ] {
            assert_eq!(rounded(f32::from_bits(x)), want, "{x:x}");
        }
    }

    #[test]
    fn every_layout_and_instruction_set_packs_the_same_rounded_pairs() {
        let special = [
            f32::NAN,
            f32::INFINITY,
            1e-40,
            -1e-39,
            f32::MAX,
            -0.0,
            1.003_906_3,
        ];
        let data: Vec<f32> = (0..40_u16 * 70)
            .map(|i| {
                if i % 11 == 0 {
                    special[usize::from(i) % 7]
                } else {
                    f32::from(i) * 1.37
                }
            })
            .collect();
        let at = |r: usize, k: usize| data[r * 70 + k];
        let turned: Vec<f32> = (0..70)
            .flat_map(|k| (0..40).map(move |r| at(r, k)))
            .collect();
        let strided: Vec<f32> = data.iter().flat_map(|&x| [x, -1.0]).collect();
        let layouts = [(&data, 70, 1), (&turned, 1, 40), (&strided, 140, 2)];
        for isa in Isa::ALL.into_iter().filter(|isa| isa.is_available()) {
            for width in [1, 4, 6, 12, 16, 32] {
                for (rows, cols, first) in [(40, 67, 0), (40, 32, 33), (19, 1, 12), (40, 64, 3)] {
                    for (data, row_stride, col_stride) in layouts {
                        let a = View {
                            data,
                            rows,
                            cols,
                            row_stride,
                            col_stride,
                        };
                        let mut out = vec![7.0; cols.div_ceil(2) * width];
                        pack_pairs(isa, a, first, width, &mut out);
                        for (i, word) in out.iter().enumerate() {
                            let (k, r) = (2 * (i / width), first + i % width);
                            let half = |k| {
                                if r < rows && k < cols {
                                    rounded(at(r, k))
                                } else {
                                    0
                                }
                            };
                            let want = half(k) >> 16 | half(k + 1);
                            let place = (isa, width, rows, cols, first, r, k);
                            assert_eq!(word.to_bits(), want, "{place:?}");
                        }
                    }
                }
            }
        }
    }
}
