//! Products of operands rounded to bf16, summed in f32: the arithmetic of AVX-512's `vdpbf16ps`.
//!
//! A word holds the factors of two neighbouring k: the even one in its low half, the odd one in its high half. One
//! step takes two words and a sum: s = fma(a_odd, b_odd, s); s = fma(a_even, b_even, s) each rounded to nearest
//! even, a result whose rounding with unbounded exponent is below 2^-126 flushed to a zero of its sign. Rounding to
//! bf16 is to nearest even; subnormals become zeros, a NaN stays one (`vcvtne2ps2bf16`). Source: Intel SDM,
//! VDPBF16PS and VCVTNE2PS2BF16, which specify it for every CPU; tests compare the machine's own instructions, if
//! it has them, with the emulation.
#![expect(unsafe_code, reason = "vectors of packs are loaded through pointers")]

use super::Isa;
#[cfg(target_arch = "x86_64")]
use super::simd::Wide;
use super::simd::{Kernel, LANES, Lanes, compiled, run};

/// The layout of words, and one step of a sum of their products.
pub(crate) trait Step<L: Lanes> {
    /// Neighbouring k in a word.
    const PER_WORD: usize;
    /// Whether a product packs a matrix in these words for itself. Others are of packs that are kept.
    const FROM_MATRICES: bool = true;
    /// Factor, and offset if there is one, of the words of the second factor, a vector of a panel.
    type Scale: Copy;

    /// How many steps from one on, of at most so many, have the same scales.
    fn together(step: usize, most: usize) -> usize;
    /// Scales of the steps at `panel`.
    /// # Safety
    /// A panel of W vectors is at `panel`, at a step of these.
    unsafe fn scales<const W: usize>(panel: *const f32) -> [Self::Scale; W];
    /// Where the words of a step are, in a panel of W vectors whose memory for this step begins at `panel`.
    fn words<const W: usize>(panel: *const f32, step: usize) -> *const f32;
    /// The step after that at `word`, one with the same scales.
    fn next_word<const W: usize>(word: *const f32) -> *const f32;
    /// Where the memory for step `to` begins, if that for `from` begins at `panel`.
    fn on<const W: usize>(panel: *const f32, from: usize, to: usize) -> *const f32;
    /// Loads a step of a panel of the second factor, W vectors.
    /// # Safety
    /// `x` is where `words` or `next_word` said.
    unsafe fn load<const W: usize>(x: *const f32, scales: [Self::Scale; W]) -> [L; W];

    fn step(a: L, b: L, sum: L) -> L;
    /// Lane i: `even[i]` and, where a word has two, `odd[i]`.
    fn weave(even: L, odd: L) -> L;
    /// Lane i: word i of low followed by high, of low alone where a word has one element.
    fn join(low: L, high: L) -> L;
}

/// The steps of words that have no scales, and of which a vector takes so many floats of memory.
macro_rules! without_scales {
    ($floats:expr) => {
        type Scale = ();

        #[inline(always)]
        fn together(_: usize, most: usize) -> usize {
            most
        }

        #[inline(always)]
        unsafe fn scales<const W: usize>(_: *const f32) -> [(); W] {
            [(); W]
        }

        #[inline(always)]
        fn words<const W: usize>(panel: *const f32, _: usize) -> *const f32 {
            panel
        }

        #[inline(always)]
        fn next_word<const W: usize>(word: *const f32) -> *const f32 {
            word.wrapping_add(W * $floats)
        }

        #[inline(always)]
        fn on<const W: usize>(panel: *const f32, from: usize, to: usize) -> *const f32 {
            panel.wrapping_add((to - from) * W * $floats)
        }
    };
}

/// Products of words that are one f32 each.
macro_rules! of_one_float {
    ($lanes:ident) => {
        const PER_WORD: usize = 1;

        #[inline(always)]
        fn step(a: $lanes, b: $lanes, sum: $lanes) -> $lanes {
            a.fma(b, sum)
        }

        #[inline(always)]
        fn weave(even: $lanes, _: $lanes) -> $lanes {
            even
        }

        #[inline(always)]
        fn join(low: $lanes, _: $lanes) -> $lanes {
            low
        }
    };
}
pub(super) use of_one_float;

/// A word is one f32.
pub(crate) struct Single;

impl<L: Lanes> Step<L> for Single {
    without_scales!(LANES);

    #[inline(always)]
    unsafe fn load<const W: usize>(x: *const f32, _: [(); W]) -> [L; W] {
        // SAFETY: the floats can be read, by this function's contract.
        unsafe { L::load_all_at(x) }
    }

    of_one_float!(L);
}

/// A word is one f32, stored in the second factor as the bf16 that it equals. In panels of two vectors the first one's
/// lane i is beside the second one's, so that a shift and a mask widen both.
pub(crate) struct Halves;

impl<L: Lanes> Step<L> for Halves {
    const FROM_MATRICES: bool = false;
    without_scales!(LANES / 2);

    #[inline(always)]
    unsafe fn load<const W: usize>(x: *const f32, _: [(); W]) -> [L; W] {
        // SAFETY: W times sixteen numbers of two bytes can be read, by this function's contract.
        unsafe {
            let mut all = [L::splat(0.0); W];
            if W == 2 {
                all.copy_from_slice(&L::widen_two_at(x.cast()));
                return all;
            }
            for (v, own) in all.iter_mut().enumerate() {
                *own = L::widen_at(x.add(v * LANES / 2).cast());
            }
            all
        }
    }

    of_one_float!(L);
}

/// Two bf16 a word, with the operations that every instruction set has.
pub(crate) struct Emulated;

impl<L: Lanes> Step<L> for Emulated {
    const PER_WORD: usize = 2;

    without_scales!(LANES);

    #[inline(always)]
    unsafe fn load<const W: usize>(x: *const f32, _: [(); W]) -> [L; W] {
        // SAFETY: the floats can be read, by this function's contract.
        unsafe { L::load_all_at(x) }
    }

    #[inline(always)]
    fn step(a: L, b: L, sum: L) -> L {
        let sum = flushed_fma(odd(a), odd(b), sum);
        flushed_fma(even(a), even(b), sum)
    }

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
pub(super) fn odd<L: Lanes>(words: L) -> L {
    L::load(&(words.to_array()).map(|x| f32::from_bits(x.to_bits() & 0xffff_0000)))
}

#[inline(always)]
pub(super) fn even<L: Lanes>(words: L) -> L {
    L::load(&(words.to_array()).map(|x| f32::from_bits(x.to_bits() << 16)))
}

/// `a b + c`, results that are tiny after rounding flushed to zero.
#[inline(always)]
pub(super) fn flushed_fma<L: Lanes>(a: L, b: L, c: L) -> L {
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

/// A function written over vectors and their arithmetic, for callers that call the same one often.
pub(crate) trait Function<Args> {
    fn call<L: Lanes, N: Step<L>>(args: Args);
}

/// Runs a task.
struct Run;

impl<T: Task> Function<T> for Run {
    #[inline(always)]
    fn call<L: Lanes, N: Step<L>>(task: T) {
        task.run::<L, N>();
    }
}

/// Declares functions over words of one form, with every instruction set's vectors.
macro_rules! on_words {
    ($name:ident, $words:ident) => {
        struct $name<F>(std::marker::PhantomData<F>);

        impl<Args, F: Function<Args>> Kernel<Args> for $name<F> {
            type Out = ();
            #[inline(always)]
            fn run<L: Lanes>(args: Args) {
                F::call::<L, $words>(args);
            }
        }
    };
}
pub(super) use on_words;

on_words!(OnSingle, Single);
on_words!(OnHalves, Halves);
on_words!(OnEmulated, Emulated);

/// A function compiled for an instruction set, for words that are f32 and a second factor that is stored in halves. It is
/// safe to call on the machine that asked for it, as far as the function itself is.
pub(super) fn function_of_halves<F: Function<Args>, Args>(isa: Isa) -> unsafe fn(Args) {
    compiled::<OnHalves<F>, Args>(isa)
}

/// As `function_of_halves`, for words that are f32, or pairs of bf16.
pub(super) fn function<F: Function<Args>, Args>(isa: Isa, pairs: bool) -> unsafe fn(Args) {
    match pairs {
        false => compiled::<OnSingle<F>, Args>(isa),
        true => function_of_pairs::<F, Args>(isa),
    }
}

fn function_of_pairs<F: Function<Args>, Args>(isa: Isa) -> unsafe fn(Args) {
    #[cfg(target_arch = "x86_64")]
    if matches!(isa, Isa::Amx | Isa::Avx512Bf16) {
        return native::function::<F, Args>();
    }
    compiled::<OnEmulated<F>, Args>(isa)
}

/// Runs a task whose words are f32, or pairs of bf16. Where callers know which, `perform_on_floats` and `perform_on_pairs` spare
/// compiling it for the other.
pub(crate) fn perform<T: Task>(isa: Isa, pairs: bool, task: T) {
    match pairs {
        false => perform_on_floats(isa, task),
        true => perform_on_pairs(isa, task),
    }
}

/// Runs a task whose words are f32.
pub(crate) fn perform_on_floats<T: Task>(isa: Isa, task: T) {
    run::<OnSingle<Run>, T>(isa, task);
}

/// Runs a task whose words are pairs of bf16.
pub(crate) fn perform_on_pairs<T: Task>(isa: Isa, task: T) {
    let run = function_of_pairs::<Run, T>(isa);
    // SAFETY: the machine has this function's features, as `function_of_pairs` asserts.
    unsafe { run(task) }
}

#[cfg(target_arch = "x86_64")]
pub(super) mod native {
    //! The instructions themselves.
    #![expect(
        unsafe_code,
        reason = "vector intrinsics and calls into functions with target features"
    )]

    use super::{Function, Isa, LANES, Lanes, Run, Step, Task, Wide};
    use std::arch::x86_64::*;

    /// Two bf16 a word. Used only inside the functions below, hence only where the features are.
    struct Native;

    impl Step<Wide> for Native {
        const PER_WORD: usize = 2;

        without_scales!(LANES);

        #[inline(always)]
        unsafe fn load<const W: usize>(x: *const f32, _: [(); W]) -> [Wide; W] {
            // SAFETY: the floats can be read, by this function's contract.
            unsafe { Wide::load_all_at(x) }
        }

        #[inline(always)]
        fn step(a: Wide, b: Wide, sum: Wide) -> Wide {
            // SAFETY: inside a function with these features; all 512-bit vectors have the same form.
            Wide(unsafe { _mm512_dpbf16_ps(sum.0, bf16(a), bf16(b)) })
        }

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

    #[inline(always)]
    fn bf16(x: Wide) -> __m512bh {
        // SAFETY: both are 64 bytes of which every pattern is valid.
        unsafe { std::mem::transmute(x.0) }
    }

    /// Runs a task with them.
    pub(in crate::cpu) fn perform<T: Task>(task: T) {
        let run = function::<Run, T>();
        // SAFETY: the machine has these features, as `function` asserts.
        unsafe { run(task) }
    }

    /// A function compiled for them.
    pub(super) fn function<F: Function<Args>, Args>() -> unsafe fn(Args) {
        assert!(
            Isa::Avx512Bf16.has_vectors(),
            "devices only offer instruction sets the machine has"
        );
        call::<F, Args>
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512bf16,avx2,fma")]
    fn call<F: Function<Args>, Args>(args: Args) {
        F::call::<Wide, Native>(args);
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
    /// which side of 2^-126 (1 - 2^-25), the least that rounds to 2^-126, the exact result is on.
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
                perform_on_pairs(isa, OneStep { a: &floats(a), b: &floats(b), sums: &mut found });
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
}
