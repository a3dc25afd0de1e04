//! Products in tiles of operands that lie in the cache as they are: no packs, any distances between rows.
//!
//! 32 rows and 32 columns at a time; the last rows are as many as there are, the last columns 16 or 32. Steps are
//! whole ones: whoever lays out the operands fills the last one with zeros.
#![expect(unsafe_code, reason = "tiles are read and written through pointers")]

use super::super::Isa;
use super::super::bf16::{Step, Task, perform};
use super::super::simd::Lanes;
use super::super::strip::Strip;
use super::unit::{BOTH, Distances, Emulation, SIDE, Stretch, Unit, Units};
use std::marker::PhantomData;

/// The unit that a thread multiplies with. While one lives its thread does no other work in tiles.
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
    /// The operands hold all that `Strip` says, in whole steps of which A has all words side by side.
    pub(in crate::cpu) unsafe fn multiply(&mut self, strip: Strip<'_>) {
        #[cfg(target_arch = "x86_64")]
        if let Some(unit) = &mut self.native {
            // SAFETY: passed on to the caller.
            return unsafe { all(unit, strip) };
        }
        // SAFETY: passed on to the caller.
        unsafe { multiply::<Emulation>(self.isa, strip) }
    }
}

/// Multiplies with a unit of a kind, with the vectors of `isa`.
/// # Safety
/// As `Held::multiply`.
pub(super) unsafe fn multiply<U: Units>(isa: Isa, strip: Strip<'_>) {
    let units = PhantomData::<fn() -> U>;
    perform(isa, true, Whole { strip, units });
}

/// A product that may be made: who makes one vouches for its operands.
struct Whole<'a, U> {
    strip: Strip<'a>,
    units: PhantomData<fn() -> U>,
}

impl<U: Units> Task for Whole<'_, U> {
    #[inline(always)]
    fn run<L: Lanes, N: Step<L>>(self) {
        let mut unit = U::Of::<L>::start(BOTH);
        // SAFETY: `multiply` makes these alone, whose caller vouches for the operands.
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
                owner: PhantomData,
            };
            // SAFETY: these rows and columns lie inside the operands, for which the caller vouches; the output is
            // borrowed exclusively.
            unsafe { unit.run(stretch) }
        }
    }
}
