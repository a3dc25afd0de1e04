//! The second factor of a product in f32 whose numbers are whole multiples of one scale, from 0 or an offset on, in every 16
//! or 32 of k: held as those multiples, in 8 or 4 bits, the scales and the offsets.
//!
//! Weights of block formats (Q8_0, Q4_0, Q5_0, Q4_K, Q6_K of GGUF; GPTQ, AWQ, compressed-tensors in 4 bits) are such numbers, whatever
//! file they came from. A code times its scale is exact in f32, so that products have the bits of those of the f32
//! themselves. (Zeros have their scale's sign. That changes no sum but one of -0, and a chain, which starts at +0, has such
//! a sum only after products below 2^-149.) Products of few rows, which wait for memory, read 0.56 to 1.25 bytes for each number
//! instead of 4.
//!
//! A panel is groups of 16 or 32 steps, the last one padded: vectors of scales and offsets for each vector of the panel, then the codes
//! step by step. Codes of 4 bits in panels of two vectors alternate between them, those of `Halves`' order.
#![expect(unsafe_code, reason = "codes and scales are loaded through pointers")]

use half::f16;
use rayon::prelude::*;

use super::bf16::Step;
use super::pack::{Matrix, Panels};
use super::right::{Order, shape};
use super::simd::{LANES, Lanes, NEAREST};
use super::{Isa, Numbers};

/// How numbers are held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Code {
    /// Signed codes of 4 bits, scales in binary16 for every 32 of k.
    Four,
    /// Codes of 4 bits from 0 on, a scale and an offset in f32 for every 32 of k.
    FourWithOffsets,
    /// Signed codes of 8 bits, scales in binary16 for every 32 of k.
    Eight,
    /// Signed codes of 8 bits, scales in f32 for every 16 of k.
    EightWithWideScales,
}

/// Most steps that share scales.
const MOST: usize = 32;

impl Code {
    /// Smallest first.
    pub(crate) const ALL: [Code; 4] = [
        Code::Four,
        Code::FourWithOffsets,
        Code::Eight,
        Code::EightWithWideScales,
    ];

    /// The next larger one.
    pub(crate) fn wider(self) -> Option<Code> {
        let at = Code::ALL.iter().position(|code| *code == self)?;
        Code::ALL.get(at + 1).copied()
    }

    /// Steps that share scales.
    const fn steps(self) -> usize {
        match self {
            Code::Four | Code::FourWithOffsets | Code::Eight => MOST,
            Code::EightWithWideScales => LANES,
        }
    }

    /// Floats of memory that a vector of scales takes, with its offsets.
    const fn scales(self) -> usize {
        match self {
            Code::Four | Code::Eight => LANES / 2,
            Code::FourWithOffsets => 2 * LANES,
            Code::EightWithWideScales => LANES,
        }
    }

    /// Floats of memory that the codes of a vector take.
    const fn codes(self) -> usize {
        match self {
            Code::Four | Code::FourWithOffsets => LANES / 8,
            Code::Eight | Code::EightWithWideScales => LANES / 4,
        }
    }

    /// Floats of memory of a group of a panel of `width` columns.
    const fn group(self, width: usize) -> usize {
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

    fn holds(self, code: i8) -> bool {
        match self {
            Code::Four => (-8..8).contains(&code),
            Code::FourWithOffsets => (0..16).contains(&code),
            Code::Eight | Code::EightWithWideScales => true,
        }
    }

    /// A scale as it is held, if that is possible.
    fn scale(self, x: f64) -> Option<f32> {
        let held = match self {
            Code::Four | Code::Eight => f16::from_f64(x).to_f32(),
            #[expect(clippy::cast_possible_truncation, reason = "the result is compared")]
            Code::FourWithOffsets | Code::EightWithWideScales => x as f32,
        };
        (held.is_finite() && f64::from(held) == x).then_some(held)
    }

    /// The codes that formats give the number of a group that is largest.
    fn codes_of_largest(self) -> &'static [f32] {
        match self {
            // Q4_0
            Code::Four => &[-8.0],
            Code::FourWithOffsets => &[],
            // Q8_0, Q5_0
            Code::Eight => &[127.0, -127.0, -16.0],
            // Q6_K
            Code::EightWithWideScales => &[-32.0],
        }
    }
}

/// Numbers as `Code::Four`.
pub(crate) struct Nibbles;

/// Numbers as `Code::FourWithOffsets`.
pub(crate) struct NibblesWithOffsets;

/// Numbers as `Code::Eight`.
pub(crate) struct Bytes;

/// Numbers as `Code::EightWithWideScales`.
pub(crate) struct WideBytes;

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
            const PER_WORD: usize = 1;
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

            #[inline(always)]
            fn step(a: L, b: L, sum: L) -> L {
                a.fma(b, sum)
            }

            #[inline(always)]
            fn weave(even: L, _: L) -> L {
                even
            }

            #[inline(always)]
            fn join(low: L, _: L) -> L {
                low
            }
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
    WideBytes, Code::EightWithWideScales, L, at => L::load_at(at),
    x => [L::bytes_at(x.cast()), L::bytes_at(x.cast::<i8>().add(LANES))], L::bytes_at(x.cast()),
    (codes, scale) => codes.mul(scale)
);

/// Numbers of a column in a group: an offset, which is 0 but for `Code::FourWithOffsets`, and multiples of one scale.
struct Multiples {
    scale: f32,
    offset: f32,
    codes: [i8; MOST],
}

impl Multiples {
    /// None if the numbers are no such multiples.
    fn of(numbers: &[f32], code: Code) -> Option<Multiples> {
        if code == Code::FourWithOffsets {
            return Multiples::from_offset(numbers);
        }
        let larger = |a: f32, b: &f32| if b.abs() > a.abs() { *b } else { a };
        let largest = f64::from(numbers.iter().fold(0.0, larger));
        let mut guesses = code.codes_of_largest().iter();
        let by_guess = guesses.find_map(|of_largest| {
            let scale = code.scale(largest / f64::from(*of_largest))?;
            Multiples::by(numbers, (scale, 0.0), code)
        });
        by_guess.or_else(|| Multiples::search(numbers, code))
    }

    /// The same by the greatest common divisor of the numbers, as whole multiples of a power of two.
    fn search(numbers: &[f32], code: Code) -> Option<Multiples> {
        let mut units = [(0u64, 0i32); MOST];
        let mut lowest = i32::MAX;
        for (unit, x) in units.iter_mut().zip(numbers) {
            if !x.is_finite() {
                return None;
            }
            if *x != 0.0 {
                *unit = odd_part(*x);
                lowest = lowest.min(unit.1);
            }
        }
        let mut common = 0;
        for (unit, exponent) in units.iter_mut().filter(|unit| unit.0 != 0) {
            // a code of 8 bits is less than 2^8 times another, and their odd parts have 24 bits
            let shift = u32::try_from(*exponent - lowest).ok();
            *unit <<= shift.filter(|shift| *shift < 32)?;
            common = greatest_divisor(common, *unit);
        }
        if common == 0 {
            lowest = 0;
        }
        let largest = units.iter().map(|unit| unit.0).max().unwrap_or(0) / common.max(1);
        let most = u64::from(i8::MIN.unsigned_abs());
        // a divisor of all codes may be too wide for a scale beside it, or their product too large
        let common = common as f64 * 2f64.powi(lowest);
        let mut times = (1..=most).take_while(|times| times * largest <= most);
        times.find_map(|times| {
            let scale = code.scale(common / times as f64)?;
            let mut both = [scale, -scale].into_iter();
            both.find_map(|scale| Multiples::by(numbers, (scale, 0.0), code))
        })
    }

    /// The same from an offset on. Q4_K's scales and offsets are products of numbers of 11 and 6 bits; the difference of the
    /// largest and the smallest number, which were rounded once, shows the scale, and the number nearest to 0 the offset.
    fn from_offset(numbers: &[f32]) -> Option<Multiples> {
        let code = Code::FourWithOffsets;
        let first = f64::from(*numbers.first()?);
        let (mut low, mut high, mut near) = (first, first, first);
        for x in numbers {
            if !x.is_finite() {
                return None;
            }
            let x = f64::from(*x);
            (low, high) = (low.min(x), high.max(x));
            near = if x.abs() < near.abs() { x } else { near };
        }
        if low == high {
            return Multiples::by(numbers, (0.0, numbers[0]), code);
        }
        for levels in (1..16u8).rev() {
            let scale = in_17_bits((high - low) / f64::from(levels));
            for beginning in 0..16 - levels {
                for scale in [scale, next_of_17_bits(scale, 1), next_of_17_bits(scale, -1)] {
                    let code_of_near = ((near - low) / scale).round() + f64::from(beginning);
                    let offset = in_17_bits(near - scale * code_of_near);
                    #[expect(clippy::cast_possible_truncation, reason = "17 bits are exact")]
                    let found = Multiples::by(numbers, (scale as f32, offset as f32), code);
                    if found.is_some() {
                        return found;
                    }
                }
            }
        }
        None
    }

    /// The same by a scale and an offset, if the codes fit and give the numbers.
    fn by(numbers: &[f32], (scale, offset): (f32, f32), code: Code) -> Option<Multiples> {
        let mut codes = [0i8; MOST];
        let inverse = if scale == 0.0 { 0.0 } else { 1.0 / scale };
        let mut are_equal = true;
        for (to, x) in codes.iter_mut().zip(numbers) {
            let whole = (x - offset) * inverse + NEAREST - NEAREST;
            #[expect(
                clippy::cast_possible_truncation,
                reason = "the cast saturates, and the number is compared"
            )]
            let near = whole as i8;
            *to = near;
            // the product with a scale of 17 bits is exact, so that a fused addition gives the same
            are_equal &= (f32::from(near) * scale + offset == *x) & code.holds(near);
        }
        are_equal.then_some(Multiples {
            scale,
            offset,
            codes,
        })
    }
}

/// Bits of an f64's fraction behind the 17 first bits of the number.
const BEHIND_17: u32 = f64::MANTISSA_DIGITS - 17;

/// The nearest number of 17 bits.
fn in_17_bits(x: f64) -> f64 {
    let split = x * ((1u64 << BEHIND_17) + 1) as f64;
    split - (split - x)
}

/// The next larger or smaller number of 17 bits than such a positive one.
fn next_of_17_bits(x: f64, by: i64) -> f64 {
    f64::from_bits(x.to_bits().wrapping_add_signed(by << BEHIND_17))
}

/// The odd whole number, and the power of two, whose product is the size of a number.
fn odd_part(x: f32) -> (u64, i32) {
    let bits = x.to_bits();
    let (exponent, fraction) = (bits >> 23 & 0xff, bits & 0x7f_ffff);
    let (whole, exponent) = match exponent {
        0 => (fraction, -149),
        _ => (fraction | 1 << 23, exponent.cast_signed() - 150),
    };
    let zeros = whole.trailing_zeros();
    (u64::from(whole >> zeros), exponent + zeros.cast_signed())
}

/// The greatest common divisor; the other number where one is 0.
fn greatest_divisor(a: u64, b: u64) -> u64 {
    let (mut a, mut b) = (a, b);
    while a != 0 {
        (a, b) = (b % a, a);
    }
    b
}

/// Panels of op(B) as codes.
#[derive(Clone, Copy)]
struct Coded<'a> {
    isa: Isa,
    code: Code,
    order: Order,
    /// op(B), rows and columns swapped.
    b: Matrix<'a>,
    /// Columns of a panel.
    width: usize,
}

impl<'a> Coded<'a> {
    fn new(isa: Isa, code: Code, b: Matrix<'a>) -> Coded<'a> {
        let b = b.transposed();
        Coded {
            isa,
            code,
            // leaves move no words of f32
            order: Order::new(Numbers::F32, b.cols(), 0),
            b,
            width: shape(isa, 1).1,
        }
    }

    fn panels(&self) -> usize {
        self.b.rows().div_ceil(self.width)
    }

    /// Calls `each` with every column of the group from step `first` on and its numbers; false if some are no multiples.
    fn all(&self, panel: usize, first: usize, mut each: impl FnMut(usize, Multiples)) -> bool {
        let mut whole = [0.0; MOST * 2 * LANES];
        let mut numbers = [0.0; MOST];
        let steps = self.code.steps().min(self.order.steps() - first);
        let one = Panels {
            a: self.b,
            first: panel * self.width,
            width: self.width,
            count: 1,
            apart: steps * self.width,
        };
        let whole = &mut whole[..steps * self.width];
        self.order.pack(self.isa, one, first..first + steps, whole);
        (0..self.width).all(|column| {
            let rows = whole.chunks_exact(self.width);
            let of_column = numbers.iter_mut().zip(rows);
            of_column.for_each(|(number, row)| *number = row[column]);
            let own = Multiples::of(&numbers[..steps], self.code);
            own.map(|own| each(column, own)).is_some()
        })
    }

    fn fill_panel(&self, panel: usize, out: &mut [u8]) -> bool {
        out.fill(0);
        let (code, width, vectors) = (self.code, self.width, self.width / LANES);
        let of_vector = size_of::<f32>() * code.scales();
        let groups = out.chunks_exact_mut(size_of::<f32>() * code.group(width));
        groups.enumerate().all(|(group, out)| {
            let (scales, codes) = out.split_at_mut(of_vector * vectors);
            self.all(panel, group * code.steps(), |column, own| {
                let (vector, lane) = (column / LANES, column % LANES);
                let scales = &mut scales[vector * of_vector..][..of_vector];
                match code {
                    Code::Four | Code::Eight => {
                        let scale = f16::from_f32(own.scale).to_le_bytes();
                        scales.as_chunks_mut().0[lane] = scale;
                    }
                    Code::EightWithWideScales | Code::FourWithOffsets => {
                        let words = scales.as_chunks_mut().0;
                        words[lane] = own.scale.to_le_bytes();
                        if let Some(offset) = words.get_mut(LANES + lane) {
                            *offset = own.offset.to_le_bytes();
                        }
                    }
                }
                let steps = codes.chunks_exact_mut(code.bytes_of_step(width));
                for (number, codes) in own.codes.iter().zip(steps) {
                    let number = number.cast_unsigned();
                    match code {
                        Code::Eight | Code::EightWithWideScales => codes[column] = number,
                        Code::Four | Code::FourWithOffsets => {
                            let at = lane * vectors + vector;
                            codes[at / 2] |= (number & 15) << (at % 2 * 4);
                        }
                    }
                }
            })
        })
    }
}

/// The smallest codes that hold the first group of every panel of op(B).
pub(crate) fn likely(isa: Isa, b: Matrix<'_>) -> Option<Code> {
    Code::ALL.into_iter().find(|code| {
        let coded = Coded::new(isa, *code, b);
        let is_empty = coded.order.steps() == 0;
        let panels = (0..coded.panels()).into_par_iter();
        is_empty || panels.all(|panel| coded.all(panel, 0, |_, _| {}))
    })
}

/// Floats of memory of all panels of op(B) `[k, n]`.
pub(crate) fn floats(isa: Isa, code: Code, [k, n]: [usize; 2]) -> usize {
    let width = shape(isa, 1).1;
    n.div_ceil(width) * code.panel(k, width)
}

/// Packs all of op(B); false if some of its numbers are no multiples that fit.
pub(crate) fn fill(isa: Isa, code: Code, words: &mut [f32], b: Matrix<'_>) -> bool {
    let coded = Coded::new(isa, code, b);
    let apart = size_of::<f32>() * code.panel(coded.order.steps(), coded.width);
    if apart == 0 {
        return true;
    }
    let words: &mut [u8] = bytemuck::cast_slice_mut(words);
    let panels = words.par_chunks_exact_mut(apart).enumerate();
    panels
        .map(|(panel, out)| coded.fill_panel(panel, out))
        .all(|fits| fits)
}
