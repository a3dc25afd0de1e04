//! Packing of a second factor as codes and scales (`codes.rs`), which are found in its numbers: whatever format they were stored in,
//! only f32 that the codes give exactly are packed so.

use half::f16;
use rayon::prelude::*;

use super::codes::{Code, MOST};
use super::pack::{Matrix, Panels};
use super::right::{Order, shape};
use super::simd::{LANES, NEAREST};
use super::{Isa, Numbers};

/// Numbers of a column in a group: an offset, which is 0 but for `Code::FourWithOffsets`, and multiples of one scale.
pub(super) struct Multiples {
    pub(super) scale: f32,
    pub(super) offset: f32,
    pub(super) codes: [i8; MOST],
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
            Multiples::by(numbers, scale, 0.0, code)
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
            both.find_map(|scale| Multiples::by(numbers, scale, 0.0, code))
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
            return Multiples::by(numbers, 0.0, numbers[0], code);
        }
        for levels in (1..16u8).rev() {
            let scale = in_17_bits((high - low) / f64::from(levels));
            for beginning in 0..16 - levels {
                for scale in [scale, next_of_17_bits(scale, 1), next_of_17_bits(scale, -1)] {
                    let code_of_near = ((near - low) / scale).round() + f64::from(beginning);
                    let offset = in_17_bits(near - scale * code_of_near);
                    #[expect(clippy::cast_possible_truncation, reason = "17 bits are exact")]
                    let found = Multiples::by(numbers, scale as f32, offset as f32, code);
                    if found.is_some() {
                        return found;
                    }
                }
            }
        }
        None
    }

    /// The same by a scale and an offset, if the codes fit and give the numbers.
    fn by(numbers: &[f32], scale: f32, offset: f32, code: Code) -> Option<Multiples> {
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
pub(super) struct Coded<'a> {
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
        Coded::of_width(isa, code, b, shape(isa, 1).1)
    }

    /// In panels of so many columns, 32 at most.
    pub(super) fn of_width(isa: Isa, code: Code, b: Matrix<'a>, width: usize) -> Coded<'a> {
        let b = b.transposed();
        Coded {
            isa,
            code,
            // leaves move no words of f32
            order: Order::new(Numbers::F32, b.cols(), 0),
            b,
            width,
        }
    }

    fn panels(&self) -> usize {
        self.b.rows().div_ceil(self.width)
    }

    /// Calls `each` with every column of the group from step `first` on and its numbers; false if some are no multiples.
    pub(super) fn all(
        &self,
        panel: usize,
        first: usize,
        mut each: impl FnMut(usize, Multiples),
    ) -> bool {
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
