//! The second factor of a product in f32 whose numbers are codes of one scale, some with an offset, in every 16 or 32 of k: held as those
//! codes, in 8 or 4 bits, the scales and the offsets.
//!
//! Codes are whole numbers but for those of FP8. Weights of block formats (Q8_0, Q4_0, Q5_0, Q5_1, Q4_K, Q5_K, Q6_K of GGUF; GPTQ, AWQ,
//! compressed-tensors in 4 bits), int8 by channel and FP8 are such numbers, whatever file they came from. A code times its scale is
//! computed as it was for the numbers, exactly or rounded once, and compared with them, so that products have the bits of those of the
//! f32 themselves, whichever scale was found. (Zeros have their scale's sign. That changes no sum but one of -0, and a chain, which
//! starts at +0, has such a sum only after products below 2^-149.) Products of few rows, which wait for memory, read 0.56 to 1.25 bytes
//! for each number instead of 4.
//!
//! A panel is groups of 16 or 32 steps, the last one padded: vectors of scales and offsets for each vector of the panel, then the codes
//! step by step. Codes of 4 bits in panels of two vectors alternate between them, those of `Halves`' order.
#![expect(unsafe_code, reason = "codes and scales are loaded through pointers")]

use half::f16;

use super::Isa;
use super::bf16::{Function, Step, of_one_float, on_words};
use super::simd::{Kernel, LANES, Lanes, compiled};

/// How numbers are held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Code {
    /// Signed codes of 4 bits, scales in binary16 for every 32 of k.
    Four,
    /// Codes of 4 bits from 0 on, a scale and an offset in f32 for every 32 of k.
    FourWithOffsets,
    /// Signed codes of 8 bits, scales in binary16 for every 32 of k.
    Eight,
    /// Signed codes of 8 bits, scales in f32 for every 32 of k; their products are rounded.
    EightRounded,
    /// Signed codes of 8 bits, scales in f32 for every 16 of k.
    EightWithWideScales,
    /// Codes of 5 bits from 0 on, held in 8, a scale and an offset in f32 for every 32 of k.
    EightWithOffsets,
    /// FP8 E4M3, scales in f32 for every 32 of k, 2^120 times as large as they are (`Lanes::fp8_at`); products are rounded.
    Fp8,
}

/// Most steps that share scales.
pub(super) const MOST: usize = 32;

/// How scales are held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scales {
    /// In binary16.
    Half,
    /// In f32.
    Single,
    /// In f32, a vector of offsets behind each vector of scales.
    WithOffsets,
}

impl Code {
    /// In the order in which they are tried: whole numbers first, the smallest form first.
    pub(crate) const ALL: [Code; 7] = [
        Code::Four,
        Code::FourWithOffsets,
        Code::Eight,
        Code::EightRounded,
        Code::EightWithWideScales,
        Code::EightWithOffsets,
        Code::Fp8,
    ];

    /// The next one.
    pub(crate) fn next(self) -> Option<Code> {
        let at = Code::ALL.iter().position(|code| *code == self)?;
        Code::ALL.get(at + 1).copied()
    }

    /// Whether codes are whole numbers.
    pub(crate) fn is_whole(self) -> bool {
        self != Code::Fp8
    }

    /// Steps that share scales.
    pub(super) const fn steps(self) -> usize {
        match self {
            Code::Four
            | Code::FourWithOffsets
            | Code::Eight
            | Code::EightRounded
            | Code::EightWithOffsets
            | Code::Fp8 => MOST,
            Code::EightWithWideScales => LANES,
        }
    }

    pub(super) const fn form_of_scales(self) -> Scales {
        match self {
            Code::Four | Code::Eight => Scales::Half,
            Code::EightRounded | Code::EightWithWideScales | Code::Fp8 => Scales::Single,
            Code::FourWithOffsets | Code::EightWithOffsets => Scales::WithOffsets,
        }
    }

    /// Whether two codes are in a byte.
    pub(super) const fn is_nibble(self) -> bool {
        matches!(self, Code::Four | Code::FourWithOffsets)
    }

    pub(super) const fn has_offsets(self) -> bool {
        matches!(self.form_of_scales(), Scales::WithOffsets)
    }

    /// Floats of memory that a vector of scales takes, with its offsets.
    pub(super) const fn scales(self) -> usize {
        match self.form_of_scales() {
            Scales::Half => LANES / 2,
            Scales::Single => LANES,
            Scales::WithOffsets => 2 * LANES,
        }
    }

    /// Floats of memory that the codes of a vector take.
    const fn codes(self) -> usize {
        if self.is_nibble() {
            LANES / 8
        } else {
            LANES / 4
        }
    }

    /// Floats of memory of a group of a panel of `width` columns.
    pub(super) const fn group(self, width: usize) -> usize {
        width / LANES * (self.scales() + self.steps() * self.codes())
    }

    /// Bytes of the codes of a step of a panel.
    pub(super) const fn bytes_of_step(self, width: usize) -> usize {
        size_of::<f32>() * width / LANES * self.codes()
    }

    /// Floats of memory of a panel of so many steps.
    pub(super) const fn panel(self, steps: usize, width: usize) -> usize {
        steps.div_ceil(self.steps()) * self.group(width)
    }

    /// Floats of memory of a panel before the group of a step.
    pub(super) const fn before(self, step: usize, width: usize) -> usize {
        step / self.steps() * self.group(width)
    }

    /// Whether a whole number is a code.
    pub(super) fn holds(self, code: i8) -> bool {
        match self {
            Code::Four => (-8..8).contains(&code),
            Code::FourWithOffsets => (0..16).contains(&code),
            Code::EightWithOffsets => (0..32).contains(&code),
            Code::Eight | Code::EightRounded | Code::EightWithWideScales => true,
            Code::Fp8 => false,
        }
    }

    /// A scale as it is held, if that is possible.
    pub(super) fn scale(self, x: f64) -> Option<f32> {
        #[expect(clippy::cast_possible_truncation, reason = "the result is compared")]
        let held = match self.form_of_scales() {
            Scales::Half => f16::from_f64(x).to_f32(),
            Scales::Single | Scales::WithOffsets => x as f32,
        };
        (held.is_finite() && f64::from(held) == x).then_some(held)
    }

    /// The codes that formats of exact products give the number of a group that is largest.
    pub(super) fn codes_of_largest(self) -> &'static [f32] {
        match self {
            // Q4_0
            Code::Four => &[-8.0],
            // Q8_0, Q5_0
            Code::Eight => &[127.0, -127.0, -16.0],
            // Q6_K
            Code::EightWithWideScales => &[-32.0],
            Code::FourWithOffsets | Code::EightWithOffsets | Code::EightRounded | Code::Fp8 => &[],
        }
    }
}

/// Numbers as `Code::Four`.
pub(crate) struct Nibbles;

/// Numbers as `Code::FourWithOffsets`.
pub(crate) struct NibblesWithOffsets;

/// Numbers as `Code::Eight`.
pub(crate) struct Bytes;

/// Numbers as `Code::EightRounded`.
pub(crate) struct RoundedBytes;

/// Numbers as `Code::EightWithWideScales`.
pub(crate) struct WideBytes;

/// Numbers as `Code::EightWithOffsets`.
pub(crate) struct BytesWithOffsets;

/// Numbers as `Code::Fp8`.
pub(crate) struct SmallFloats;

/// The steps of a code: a vector's scales at an address, the codes of two vectors and of one at an address, and a vector of
/// numbers of its codes and scales.
macro_rules! step_of_codes {
    (
        $name:ident, $code:expr, $scale:ty, $at:ident => $scales:expr,
        $x:ident => $two:expr, $one:expr, ($codes:ident, $by:ident) => $numbers:expr
    ) => {
        impl $name {
            /// # Safety
            /// A vector's scales are at `$at`.
            #[inline(always)]
            unsafe fn scales_at<L: Lanes>($at: *const f32) -> $scale {
                // SAFETY: they can be read, by this function's contract.
                unsafe { $scales }
            }
        }

        impl<L: Lanes> Step<L> for $name {
            const FROM_MATRICES: bool = false;
            type Scale = $scale;

            #[inline(always)]
            fn together(step: usize, most: usize) -> usize {
                most.min($code.steps() - step % $code.steps())
            }

            #[inline(always)]
            unsafe fn scales<const W: usize>(panel: *const f32) -> [$scale; W] {
                // SAFETY: a group begins with its scales, by this function's contract.
                let mut all = [unsafe { $name::scales_at::<L>(panel) }; W];
                for (v, own) in all.iter_mut().enumerate().skip(1) {
                    // SAFETY: the same.
                    *own = unsafe { $name::scales_at::<L>(panel.add(v * $code.scales())) };
                }
                all
            }

            #[inline(always)]
            fn words<const W: usize>(panel: *const f32, step: usize) -> *const f32 {
                panel.wrapping_add(W * ($code.scales() + step % $code.steps() * $code.codes()))
            }

            #[inline(always)]
            fn next_word<const W: usize>(word: *const f32) -> *const f32 {
                word.wrapping_add(W * $code.codes())
            }

            #[inline(always)]
            fn on<const W: usize>(panel: *const f32, from: usize, to: usize) -> *const f32 {
                let groups = to / $code.steps() - from / $code.steps();
                panel.wrapping_add(groups * $code.group(W * LANES))
            }

            #[inline(always)]
            unsafe fn load<const W: usize>($x: *const f32, scales: [$scale; W]) -> [L; W] {
                let mut all = [L::splat(0.0); W];
                // SAFETY: the codes can be read, by this function's contract.
                unsafe {
                    if W == 2 {
                        let both: [L; 2] = $two;
                        all.copy_from_slice(&both);
                    } else {
                        all = [$one; W];
                    }
                }
                for (number, $by) in all.iter_mut().zip(scales) {
                    let $codes = *number;
                    *number = $numbers;
                }
                all
            }

            of_one_float!(L);
        }
    };
}

step_of_codes!(
    Nibbles, Code::Four, L, at => L::finite_f16_at(at.cast()),
    x => L::nibbles_of_two_at::<true>(x.cast()), L::nibbles_at::<true>(x.cast()),
    (codes, scale) => codes.mul(scale)
);
step_of_codes!(
    NibblesWithOffsets, Code::FourWithOffsets, [L; 2], at => [L::load_at(at), L::load_at(at.add(LANES))],
    x => L::nibbles_of_two_at::<false>(x.cast()), L::nibbles_at::<false>(x.cast()),
    (codes, by) => codes.fma(by[0], by[1])
);
step_of_codes!(
    Bytes, Code::Eight, L, at => L::finite_f16_at(at.cast()),
    x => [L::bytes_at(x.cast()), L::bytes_at(x.cast::<i8>().add(LANES))], L::bytes_at(x.cast()),
    (codes, scale) => codes.mul(scale)
);
step_of_codes!(
    RoundedBytes, Code::EightRounded, L, at => L::load_at(at),
    x => [L::bytes_at(x.cast()), L::bytes_at(x.cast::<i8>().add(LANES))], L::bytes_at(x.cast()),
    (codes, scale) => codes.mul(scale)
);
step_of_codes!(
    WideBytes, Code::EightWithWideScales, L, at => L::load_at(at),
    x => [L::bytes_at(x.cast()), L::bytes_at(x.cast::<i8>().add(LANES))], L::bytes_at(x.cast()),
    (codes, scale) => codes.mul(scale)
);
step_of_codes!(
    BytesWithOffsets, Code::EightWithOffsets, [L; 2], at => [L::load_at(at), L::load_at(at.add(LANES))],
    x => [L::bytes_at(x.cast()), L::bytes_at(x.cast::<i8>().add(LANES))], L::bytes_at(x.cast()),
    (codes, by) => codes.fma(by[0], by[1])
);
step_of_codes!(
    SmallFloats, Code::Fp8, L, at => L::load_at(at),
    x => [L::fp8_at(x.cast()), L::fp8_at(x.cast::<u8>().add(LANES))], L::fp8_at(x.cast()),
    (codes, scale) => codes.mul(scale)
);

on_words!(OnNibbles, Nibbles);
on_words!(OnNibblesWithOffsets, NibblesWithOffsets);
on_words!(OnBytes, Bytes);
on_words!(OnRoundedBytes, RoundedBytes);
on_words!(OnWideBytes, WideBytes);
on_words!(OnBytesWithOffsets, BytesWithOffsets);
on_words!(OnSmallFloats, SmallFloats);

/// As `bf16::function_of_halves`, for a second factor that is stored as codes.
pub(super) fn function_of_codes<F: Function<Args>, Args>(isa: Isa, code: Code) -> unsafe fn(Args) {
    match code {
        Code::Four => compiled::<OnNibbles<F>, Args>(isa),
        Code::FourWithOffsets => compiled::<OnNibblesWithOffsets<F>, Args>(isa),
        Code::Eight => compiled::<OnBytes<F>, Args>(isa),
        Code::EightRounded => compiled::<OnRoundedBytes<F>, Args>(isa),
        Code::EightWithWideScales => compiled::<OnWideBytes<F>, Args>(isa),
        Code::EightWithOffsets => compiled::<OnBytesWithOffsets<F>, Args>(isa),
        Code::Fp8 => compiled::<OnSmallFloats<F>, Args>(isa),
    }
}
