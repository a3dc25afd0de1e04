//! Number formats of at most 16 bits and the grids of their numbers.

/// A number format of at most 16 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Format {
    /// bfloat16.
    Bf16,
    /// IEEE binary16.
    F16,
    /// 4 exponent bits, 3 fraction bits, no infinities.
    E4m3,
    /// 5 exponent bits, 2 fraction bits.
    E5m2,
}

impl Format {
    /// Largest finite number.
    pub fn largest(self) -> f32 {
        f32::from_bits(self.grid().largest)
    }

    pub(super) fn grid(self) -> Grid {
        let (fraction, least, largest, beyond) = match self {
            // f32's own exponents: no number is below the smallest normal that f32 is not below
            Format::Bf16 => (7, 0.0, 0x7f7f_0000, INFINITE),
            Format::F16 => (10, 1.0 / 16384.0, 65504f32.to_bits(), INFINITE),
            Format::E4m3 => (3, 1.0 / 64.0, 448f32.to_bits(), 448f32.to_bits()),
            Format::E5m2 => (2, 1.0 / 16384.0, 57344f32.to_bits(), INFINITE),
        };
        Grid {
            dropped: 23 - fraction,
            least: f32::to_bits(least),
            // f32 numbers above 2^23 steps of the grid have no bits for fractions of a step
            steps: least * f32::from_bits((127 + 23 - fraction) << 23),
            largest,
            beyond,
        }
    }
}

pub(super) const INFINITE: u32 = 0x7f80_0000;

pub(super) const NAN: u32 = 0x7fc0_0000;

/// The numbers of a format, as bits of positive f32.
#[derive(Clone, Copy)]
pub(super) struct Grid {
    /// Fraction bits that f32 has more.
    pub(super) dropped: u32,
    /// Smallest normal number.
    pub(super) least: u32,
    /// 2^23 steps of the numbers below it.
    pub(super) steps: f32,
    /// Largest finite number.
    pub(super) largest: u32,
    /// Result for larger numbers.
    pub(super) beyond: u32,
}
