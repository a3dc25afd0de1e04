//! Products in tiles of operands that are already in the cache: no packing, any row distances.
//!
//! 32 rows and 32 columns at a time; the last rows are as many as remain, the last columns 16 or 32. Steps are
//! whole: the code that lays out the operands pads the last one with zeros.
#![expect(unsafe_code, reason = "tiles are read and written through pointers")]

use super::super::Isa;
use super::super::bf16::{Step, Task};
use super::super::simd::Lanes;
use super::super::strip::Strip;
use super::unit::{BOTH, Distances, Emulation, SIDE, Soon, Stretch, Unit, Units};
use std::marker::PhantomData;

/// A thread's tile unit. While one lives, its thread must not use tiles otherwise.
pub(in crate::cpu) struct Held {
    isa: Isa,
    /// Configured once: that takes as long as a small product.
    #[cfg(target_arch = "x86_64")]
    native: Option<super::amx::Tiles>,
}

impl Held {
    pub(in crate::cpu) fn new(isa: Isa) -> Held {
        Held {
            isa,
            #[cfg(target_arch = "x86_64")]
            native: (isa == Isa::Amx).then(|| super::amx::Tiles::start(BOTH)),
        }
    }

    /// Multiplies.
    /// # Safety
    /// The operands are as long as `Strip` says, in whole steps, and the words of a step of A are adjacent.
    pub(in crate::cpu) unsafe fn multiply(&mut self, strip: Strip<'_>) {
        #[cfg(target_arch = "x86_64")]
        if let Some(unit) = &mut self.native {
            // SAFETY: `all` needs complete operands in whole steps, by this function's contract.
            return unsafe { all(unit, strip) };
        }
        // SAFETY: `multiply` needs complete operands in whole steps, by this function's contract.
        unsafe { multiply::<Emulation>(self.isa, strip) }
    }
}

/// Multiplies with a unit of a kind, with the vectors of `isa`.
/// # Safety
/// As `Held::multiply`.
pub(super) unsafe fn multiply<U: Units>(isa: Isa, strip: Strip<'_>) {
    let units = PhantomData::<fn() -> U>;
    U::perform(isa, Whole { strip, units });
}

/// A product whose operands were checked: its creator guarantees that they are complete.
struct Whole<'a, U> {
    strip: Strip<'a>,
    units: PhantomData<fn() -> U>,
}

impl<U: Units> Task for Whole<'_, U> {
    #[inline(always)]
    fn run<L: Lanes, N: Step<L>>(self) {
        let mut unit = U::Of::<L>::start(BOTH);
        // SAFETY: only `multiply` creates a `Whole`, and its contract requires complete operands.
        unsafe { all(&mut unit, self.strip) }
    }
}

/// # Safety
/// As `Held::multiply`.
#[inline(always)]
unsafe fn all<T: Unit>(unit: &mut T, of: Strip<'_>) {
    let Strip { a, b, c, .. } = of;
    if of.steps == 0 {
        if !of.goes_on {
            (c.chunks_mut(of.c_at).take(of.rows)).for_each(|row| row[..of.lanes].fill(0.0));
        }
        return;
    }
    let bytes = |words: usize| 4 * words;
    let at = |row: usize, step: usize| Distances {
        row: bytes(row),
        lower: bytes(SIDE * row),
        step: bytes(step),
    };
    for row in (0..of.rows).step_by(BOTH) {
        unit.reshape(BOTH.min(of.rows - row));
        for lane in (0..of.lanes).step_by(BOTH) {
            let stretch = Stretch {
                a: a[row * of.a_at.0..].as_ptr(),
                a_at: at(of.a_at.0, SIDE),
                b: b[lane..].as_ptr(),
                b_at: at(of.b_at, SIDE * of.b_at),
                sums: c[row * of.c_at + lane..].as_mut_ptr(),
                sums_at: at(of.c_at, 0),
                steps: of.steps / SIDE,
                goes_on: of.goes_on,
                is_wide: of.lanes - lane > SIDE,
                soon: Soon::NOTHING,
                owner: PhantomData,
            };
            // SAFETY: these rows and columns are inside the operands, which are complete by this function's
            // contract; the output is borrowed exclusively.
            unsafe { unit.run(stretch) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::bf16_pack::{join_pairs, join_rows};
    use super::super::super::small_gemm::Strips;
    use super::super::super::strip::steps;
    use super::super::tests::{bf16, number, tdpbf16ps};
    use super::*;
    use crate::cpu::Numbers;
    use crate::cpu::bf16_pack::join_columns;
    use crate::cpu::pack::View;
    use crate::testing::devices;
    use proptest::prelude::*;

    /// The manual's result for a chain of elements that continues from `sum`.
    fn chain(sum: f32, row: &[f32], column: &[f32]) -> f32 {
        let whole = |x: &[f32]| {
            let mut all = [0.0; 32];
            all.iter_mut().zip(x).for_each(|(to, x)| *to = bf16(*x));
            all
        };
        let blocks = row.chunks(32).zip(column.chunks(32));
        blocks.fold(sum, |sum, (a, b)| tdpbf16ps(sum, &whole(a), &whole(b)))
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..Default::default() })]

        #[test]
        fn every_strip_has_the_bits_of_the_definition_on_every_instruction_set(
            rows in 1_usize..70, vectors in 1_usize..6, k in 1_usize..150, apart in 0_usize..3,
            kinds in (0_usize..5, 0_usize..5, 0_usize..5), seed: u64, goes_on: bool, is_turned: bool,
        ) {
            let lanes = 16 * vectors;
            let mut state = seed;
            let mut next = |kind| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                number(kind, (state >> 32) as u32)
            };
            let a: Vec<f32> = (0..rows * k).map(|_| next(kinds.0)).collect();
            let b: Vec<f32> = (0..k * lanes).map(|_| next(kinds.1)).collect();
            let c: Vec<f32> = (0..rows * (lanes + apart)).map(|_| next(kinds.2)).collect();
            let mut want = c.clone();
            for (row, want) in want.chunks_mut(lanes + apart).enumerate() {
                for (lane, want) in want[..lanes].iter_mut().enumerate() {
                    let column: Vec<f32> = (0..k).map(|i| b[i * lanes + lane]).collect();
                    let start = if goes_on { *want } else { 0.0 };
                    *want = chain(start, &a[row * k..][..k], &column);
                }
            }
            let words = steps(Numbers::Bf16Tiles, k);
            for device in devices() {
                let isa = device.isa();
                let mut a_words = vec![f32::NAN; rows * (words + apart)];
                if is_turned {
                    let turned: Vec<f32> = (0..k * rows).map(|i| a[i % rows * k + i / rows]).collect();
                    join_columns(isa, View::new(&turned, k, rows, rows).into(), &mut a_words, words + apart);
                } else {
                    join_rows(isa, View::new(&a, rows, k, k).into(), &mut a_words, words + apart);
                }
                let mut b_words = vec![f32::NAN; words * lanes];
                join_pairs(isa, Numbers::Bf16Tiles, View::new(&b, k, lanes, lanes).into(), &mut b_words, lanes);
                let mut found = c.clone();
                let strip = Strip {
                    a: &a_words,
                    a_at: (words + apart, 1),
                    b: &b_words,
                    b_at: lanes,
                    c: &mut found,
                    c_at: lanes + apart,
                    rows,
                    lanes,
                    steps: words,
                    goes_on,
                };
                Strips::new(isa, Numbers::Bf16Tiles).multiply(strip);
                for (found, want) in found.iter().zip(&want) {
                    let same = found.to_bits() == want.to_bits() || (found.is_nan() && want.is_nan());
                    prop_assert!(same, "{}: {found:e}, want {want:e}", device.name());
                }
            }
        }
    }

    #[test]
    fn a_strip_without_steps_is_zero_or_what_it_was() {
        for (goes_on, want) in [(false, 0.0), (true, 7.0)] {
            let mut c = [7.0; 32];
            let strip = Strip {
                a: &[],
                a_at: (0, 1),
                b: &[],
                b_at: 16,
                c: &mut c,
                c_at: 16,
                rows: 2,
                lanes: 16,
                steps: 0,
                goes_on,
            };
            let device = crate::Device::cpu();
            Strips::new(device.isa(), Numbers::Bf16Tiles).multiply(strip);
            assert_eq!(c, [want; 32]);
        }
    }
}
