//! Searches for the codes and the scale that give a group of numbers (`codes.rs`) to the last bit.

use super::codes::{Code, MOST};
use super::simd::{FP8_PLACE, NEAREST};

/// Numbers of a column in a group: an offset, which is 0 for codes without one, and codes of one scale.
pub(super) struct Multiples {
    /// As it is held.
    pub(super) scale: f32,
    pub(super) offset: f32,
    /// Whole numbers, or the bits of FP8.
    pub(super) codes: [i8; MOST],
}

impl Multiples {
    /// None if the numbers are no such codes. What is found depends on these numbers alone, never on other groups: products with
    /// rounded rows, whose bits follow the scale, are the same for ranks that hold other parts of a matrix.
    pub(super) fn of(numbers: &[f32], code: Code) -> Option<Multiples> {
        let larger = |a: f32, b: &f32| if b.abs() > a.abs() { *b } else { a };
        let largest = numbers.iter().fold(0.0, larger);
        match code {
            Code::FourWithOffsets => Multiples::from_offset(numbers, 15, code),
            Code::EightWithOffsets => Multiples::from_offset(numbers, 31, code),
            Code::Four | Code::Eight | Code::EightWithWideScales => {
                Multiples::exact(numbers, largest, code)
            }
            // the same as in a tensor, or a rank's part of one, all of whose scales fit binary16
            Code::EightRounded => Multiples::exact(numbers, largest, Code::Eight)
                .or_else(|| Multiples::rounded(numbers, largest)),
            Code::Fp8 => Multiples::small_floats(numbers, largest.abs()),
        }
    }

    /// Those whose products are exact.
    fn exact(numbers: &[f32], largest: f32, code: Code) -> Option<Multiples> {
        let mut guesses = code.codes_of_largest().iter();
        let by_guess = guesses.find_map(|of_largest| {
            let scale = code.scale(f64::from(largest) / f64::from(*of_largest))?;
            Multiples::by(numbers, scale, 0.0, code)
        });
        by_guess.or_else(|| Multiples::search(numbers, code))
    }

    /// `Code::EightRounded`: by each code that the largest number may have, the smallest first. If the numbers have a scale, one is found:
    /// where largest = fl(of_largest * scale), largest / of_largest differs from the scale by at most 2^-24 of it, and the scale's
    /// neighbours among f32 are at least as far away, so that the rounded quotient is the scale or a neighbour of it. (Not below
    /// 2^-126, where numbers may stay f32.)
    fn rounded(numbers: &[f32], largest: f32) -> Option<Multiples> {
        let largest = largest.abs();
        if !largest.is_finite() {
            return None;
        }
        let mut shares = [0.0; MOST];
        for (share, x) in shares.iter_mut().zip(numbers) {
            *share = x / largest;
        }
        // four roundings, each at most 2^-24 of at most 128
        let is_near = |x: f32| (x - (x + NEAREST - NEAREST)).abs() < 1.0 / 16384.0;
        let codes = (1..=i8::MIN.unsigned_abs()).map(f32::from);
        let are_near = |by: &f32| shares.iter().all(|share| is_near(share * by));
        let mut likely = codes.filter(are_near);
        likely.find_map(|of_largest| {
            let mut scales = near(largest / of_largest).into_iter();
            scales.find_map(|scale| Multiples::by(numbers, scale, 0.0, Code::EightRounded))
        })
    }

    /// `Code::Fp8`: multiplied by powers of two, which scales take away again, some number of a group has FP8's largest exponent, or one
    /// less where that would be 480, which FP8 lacks. Scales are near the quotient as in `rounded`.
    fn small_floats(numbers: &[f32], largest: f32) -> Option<Multiples> {
        if !largest.is_finite() {
            return None;
        }
        let of_largest = [240.0f32, 256.0, 288.0, 320.0, 352.0, 384.0, 416.0, 448.0];
        of_largest.into_iter().find_map(|of_largest| {
            let mut scales = near(largest / (of_largest * FP8_UNIT)).into_iter();
            scales.find_map(|scale| Multiples::by_small_floats(numbers, scale))
        })
    }

    /// The same by a scale, as it is held.
    fn by_small_floats(numbers: &[f32], scale: f32) -> Option<Multiples> {
        let mut codes = [0i8; MOST];
        for (to, x) in codes.iter_mut().zip(numbers) {
            let unscaled = match *x {
                0.0 => 0,
                x => (x.abs() / scale).to_bits(),
            };
            // the nearest of 7 bits; all above the largest number, infinity and NaN too, are not held
            let near = unscaled.saturating_add(1 << (FP8_PLACE - 1)) >> FP8_PLACE;
            let size = f32::from_bits(near << FP8_PLACE) * scale;
            if near > FP8_LARGEST || size != x.abs() {
                return None;
            }
            let [bits, ..] = near.to_le_bytes();
            let sign = if x.is_sign_negative() { 1 << 7 } else { 0 };
            *to = (bits | sign).cast_signed();
        }
        Some(Multiples {
            scale,
            offset: 0.0,
            codes,
        })
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
        let most = u64::from(i8::MIN.unsigned_abs());
        let mut common = 0;
        for (unit, exponent) in units.iter_mut().filter(|unit| unit.0 != 0) {
            // a code of 8 bits is less than 2^8 times another, and their odd parts have 24 bits
            let shift = u32::try_from(*exponent - lowest).ok();
            *unit <<= shift.filter(|shift| *shift < 32)?;
            common = greatest_divisor(common, *unit);
            if *unit > most * common {
                return None;
            }
        }
        if common == 0 {
            lowest = 0;
        }
        let largest = units.iter().map(|unit| unit.0).max().unwrap_or(0) / common.max(1);
        // a divisor of all codes may be too wide for a scale beside it, or their product too large
        let common = common as f64 * 2f64.powi(lowest);
        let mut times = (1..=most).take_while(|times| times * largest <= most);
        times.find_map(|times| {
            let scale = code.scale(common / times as f64)?;
            let mut both = [scale, -scale].into_iter();
            both.find_map(|scale| Multiples::by(numbers, scale, 0.0, code))
        })
    }

    /// Codes from 0 to `most` from an offset on. Q4_K's and Q5_K's scales and offsets are products of numbers of 11 and 6 bits; the difference of the
    /// largest and the smallest number, which were rounded once, shows the scale, and the number nearest to 0 the offset.
    fn from_offset(numbers: &[f32], most: u16, code: Code) -> Option<Multiples> {
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
        for levels in (1..=most).rev() {
            let scale = in_17_bits((high - low) / f64::from(levels));
            for beginning in 0..=most - levels {
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
            // with an offset the product with a scale of 17 bits is exact, so that a fused addition gives the same
            are_equal &= (f32::from(near) * scale + offset == *x) & code.holds(near);
        }
        are_equal.then_some(Multiples {
            scale,
            offset,
            codes,
        })
    }
}

/// Numbers of FP8 as products take them (`Lanes::fp8_at`): 2^-120 times themselves.
const FP8_UNIT: f32 = 1.0 / 1_329_227_995_784_915_872_903_807_060_280_344_576.0;
/// Bits of 448.
const FP8_LARGEST: u32 = 0x7e;

/// A number and its neighbours.
fn near(x: f32) -> [f32; 3] {
    [x, x.next_down(), x.next_up()]
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

#[cfg(test)]
mod tests {
    use super::*;

    struct Sequence(u32);

    impl Sequence {
        fn next(&mut self) -> u32 {
            self.0 = self.0.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            self.0 >> 8
        }

        /// Often next to a power of two.
        fn scale(&mut self) -> f32 {
            let exponent = 100 + self.next() % 20;
            let near_power = self.next() >> (self.next() % 24);
            f32::from_bits((exponent << 23) - 4 + near_power)
        }
    }

    /// Of all codes, of few that are not 0, of small or even ones.
    fn groups(from: &mut Sequence) -> [[u8; MOST]; 4] {
        let mut groups = [[0; MOST]; 4];
        for at in 0..MOST {
            let [code, ..] = from.next().to_le_bytes();
            let few = if from.next().is_multiple_of(16) {
                code
            } else {
                0
            };
            for (group, code) in groups.iter_mut().zip([code, few, code % 8, code / 2 * 2]) {
                group[at] = code;
            }
        }
        groups
    }

    #[test]
    fn scales_whose_products_are_rounded_are_found_from_any_part_of_a_row() {
        let mut from = Sequence(1);
        for _ in 0..20_000 {
            let scale = from.scale();
            for group in groups(&mut from) {
                let numbers = group.map(|code| f32::from(code.cast_signed()) * scale);
                let found = Multiples::of(&numbers, Code::EightRounded);
                let found = found.unwrap_or_else(|| panic!("{scale:e} {group:?}"));
                let again = found.codes.map(|code| f32::from(code) * found.scale);
                assert!(again == numbers, "{scale:e} {group:?}");
            }
        }
    }

    #[test]
    fn scales_of_fp8_are_found_from_any_part_of_a_block() {
        let mut from = Sequence(2);
        let number = |byte: u8| {
            let size = u32::from(byte & 127).min(FP8_LARGEST) << FP8_PLACE;
            let size = f32::from_bits(size) / FP8_UNIT;
            if byte < 128 { size } else { -size }
        };
        for _ in 0..20_000 {
            let scale = from.scale();
            for group in groups(&mut from) {
                let numbers = group.map(|byte| number(byte) * scale);
                let found = Multiples::of(&numbers, Code::Fp8);
                let found = found.unwrap_or_else(|| panic!("{scale:e} {group:?}"));
                let again = (found.codes)
                    .map(|code| number(code.cast_unsigned()) * (found.scale * FP8_UNIT));
                assert!(again == numbers, "{scale:e} {group:?}");
            }
        }
    }

    #[test]
    fn numbers_without_a_scale_have_no_codes() {
        let mut from = Sequence(3);
        for _ in 0..2000 {
            let scale = from.scale();
            let [mut codes, ..] = groups(&mut from);
            codes[0] = 101;
            let mut numbers = codes.map(|code| f32::from(code.cast_signed()) * scale);
            // three last places away
            numbers[0] = numbers[0].next_up().next_up().next_up();
            assert!(Multiples::of(&numbers, Code::EightRounded).is_none());
            assert!(Multiples::of(&numbers, Code::Fp8).is_none());
        }
    }
}
