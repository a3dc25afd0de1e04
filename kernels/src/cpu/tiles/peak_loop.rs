//! Peak speed of the processor's unit on tiles that stay in L1, the ceiling that benches compare products with.
#![expect(unsafe_code, reason = "tiles are read and written through pointers")]

use super::super::Isa;
use super::super::bf16::{Step, Task};
use super::super::simd::{LANES, Lanes};
use super::unit::{BOTH, Distances, SIDE, Stretch, Sums, Unit, Units};
use std::marker::PhantomData;

/// A word of two bf16 that are 1.
const ONES: f32 = f32::from_bits(0x3f80_3f80);

/// A tile's rows of 16 words, two beside or below each other, aligned for its loads.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Operand([f32; BOTH * LANES]);

/// Computes 32 x 32 sums over this many steps of ones, all of which read the same four tiles; returns the
/// multiplies and adds that the sums count. At most 2^19 steps, which f32 counts exactly.
pub(super) fn work<U: Units>(isa: Isa, steps: usize) -> f64 {
    assert!((1..=1 << 19).contains(&steps), "sums that f32 holds");
    let mut sums = Sums([0.0; BOTH * BOTH]);
    let units = PhantomData::<fn() -> U>;
    U::perform(
        isa,
        Again {
            sums: &mut sums,
            steps,
            units,
        },
    );
    2.0 * sums.0.iter().map(|sum| f64::from(*sum)).sum::<f64>()
}

struct Again<'a, U> {
    sums: &'a mut Sums,
    steps: usize,
    units: PhantomData<fn() -> U>,
}

impl<U: Units> Task for Again<'_, U> {
    #[inline(always)]
    fn run<L: Lanes, N: Step<L>>(self) {
        let [a, b] = [Operand([ONES; BOTH * LANES]); 2];
        let stay = |stretch: Distances| Distances { step: 0, ..stretch };
        let stretch = Stretch::packed(
            (a.0.as_ptr(), BOTH / SIDE),
            b.0.as_ptr(),
            self.sums,
            (self.steps, false),
        );
        let stretch = Stretch {
            a_at: stay(stretch.a_at),
            b_at: stay(stretch.b_at),
            ..stretch
        };
        let mut unit = U::Of::<L>::start(BOTH);
        // SAFETY: every step reads the same operands, which are one step long; the sums are borrowed exclusively.
        unsafe { unit.run(stretch) }
    }
}

#[cfg(test)]
mod tests {
    use super::super::unit::Emulation;
    use super::*;

    #[test]
    fn the_work_told_is_what_the_sums_have() {
        for steps in [1, 3, 1 << 10] {
            let want = (2 * BOTH * BOTH * 2 * SIDE * steps) as f64;
            for isa in Isa::ALL.into_iter().filter(|isa| isa.is_available()) {
                assert_eq!(work::<Emulation>(isa, steps), want);
            }
            #[cfg(target_arch = "x86_64")]
            if Isa::Amx.is_available() {
                assert_eq!(work::<super::super::amx::Native>(Isa::Amx, steps), want);
            }
        }
    }
}
