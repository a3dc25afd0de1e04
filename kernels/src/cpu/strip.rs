//! Products of small operands that are already in the cache: no packing, any strides of A.
//!
//! c[row, lane] = sum over steps of a(row, step) b[step, lane]: one chain over ascending steps for each element,
//! the one of `tile.rs` with a single leaf: of f32, of pairs of bf16 (`bf16.rs`), or in tiles (`tiles/`). In tiles
//! a chain is cut from its start into blocks of 16 steps, in which words of zeros have no effect; a continued chain
//! starts with a block, and its sum is c's.
#![expect(
    unsafe_code,
    reason = "the inner loop reads its operands through pointers"
)]

use super::Numbers;
use super::bf16::{Step, Task};
use super::simd::{LANES, Lanes};

/// One product; every number is a word of its operands.
pub(crate) struct Strip<'a> {
    /// Factor (row, step) at row * a_at.0 + step * a_at.1.
    pub(crate) a: &'a [f32],
    pub(crate) a_at: (usize, usize),
    /// The lanes of step s from s * b_at on.
    pub(crate) b: &'a [f32],
    pub(crate) b_at: usize,
    /// The lanes of row r from r * c_at on.
    pub(crate) c: &'a mut [f32],
    pub(crate) c_at: usize,
    pub(crate) rows: usize,
    /// A multiple of 16.
    pub(crate) lanes: usize,
    pub(crate) steps: usize,
    /// Whether the chains continue from c instead of 0.
    pub(crate) goes_on: bool,
}

impl Strip<'_> {
    /// Panics if an operand is too short.
    pub(super) fn check(&self) {
        assert!(
            self.lanes.is_multiple_of(LANES) && self.lanes <= self.c_at,
            "rows of whole vectors"
        );
        assert!(
            (self.rows - 1) * self.c_at + self.lanes <= self.c.len(),
            "the output is inside its slice"
        );
        if self.steps > 0 {
            let last = (self.rows - 1) * self.a_at.0 + (self.steps - 1) * self.a_at.1;
            assert!(last < self.a.len(), "A is inside its slice");
            let last = (self.steps - 1) * self.b_at + self.lanes;
            assert!(last <= self.b.len(), "B is inside its slice");
        }
    }

    /// Panics if blocks are not whole or words of A not side by side, as tiles have them.
    pub(super) fn check_blocks(&self) {
        assert!(
            self.steps.is_multiple_of(LANES) && self.a_at.1 == 1,
            "whole blocks of words side by side"
        );
    }
}

impl Task for Strip<'_> {
    #[inline(always)]
    fn run<L: Lanes, N: Step<L>>(mut self) {
        let mut lane = 0;
        while lane < self.lanes {
            if L::TILE_VECTORS == 2 && lane + 2 * LANES <= self.lanes {
                // SAFETY: `Strips::multiply` checked that the operands are complete; these lanes are inside them.
                unsafe { column::<L, N, 2>(&mut self, lane) }
                lane += 2 * LANES;
            } else {
                // SAFETY: `Strips::multiply` checked that the operands are complete, up to the last vector of lanes.
                unsafe { column::<L, N, 1>(&mut self, lane) }
                lane += LANES;
            }
        }
    }
}

/// All rows of V vectors.
/// # Safety
/// The operands hold all that `Strip` says.
#[inline(always)]
unsafe fn column<L: Lanes, N: Step<L>, const V: usize>(of: &mut Strip<'_>, lane: usize) {
    let mut row = 0;
    while row < of.rows {
        let left = of.rows - row;
        // SAFETY: `row` and `lane` are inside the operands, which are complete by this function's contract.
        unsafe {
            if L::TILE_VECTORS == 2 && left >= 8 {
                tile::<L, N, 8, V>(of, row, lane);
                row += 8;
            } else if left >= 4 {
                tile::<L, N, 4, V>(of, row, lane);
                row += 4;
            } else if left >= 2 {
                tile::<L, N, 2, V>(of, row, lane);
                row += 2;
            } else {
                tile::<L, N, 1, V>(of, row, lane);
                row += 1;
            }
        }
    }
}

/// Computes R rows of V vectors from (row, lane) on, held in registers.
/// # Safety
/// They must be inside the operands.
#[inline(always)]
unsafe fn tile<L: Lanes, N: Step<L>, const R: usize, const V: usize>(
    of: &mut Strip<'_>,
    row: usize,
    lane: usize,
) {
    let (a_row, a_step) = of.a_at;
    let (b_step, c_row) = (of.b_at, of.c_at);
    let mut sums = [[L::splat(0.0); V]; R];
    // SAFETY: the caller vouches for R rows and V vectors of all three operands, over all steps; c is
    // borrowed exclusively.
    unsafe {
        let c = of.c.as_mut_ptr().add(row * c_row + lane);
        if of.goes_on {
            for (r, sums) in sums.iter_mut().enumerate() {
                for (v, sum) in sums.iter_mut().enumerate() {
                    *sum = L::load_at(c.add(r * c_row + v * LANES));
                }
            }
        }
        if of.steps > 0 {
            let mut a = of.a.as_ptr().add(row * a_row);
            let mut b = of.b.as_ptr().add(lane);
            for step in 0..of.steps {
                let mut bs = [L::splat(0.0); V];
                for (v, x) in bs.iter_mut().enumerate() {
                    *x = L::load_at(b.add(v * LANES));
                }
                for (r, sums) in sums.iter_mut().enumerate() {
                    let x = L::splat(*a.add(r * a_row));
                    for (v, sum) in sums.iter_mut().enumerate() {
                        *sum = N::step(x, bs[v], *sum);
                    }
                }
                if step + 1 < of.steps {
                    a = a.add(a_step);
                    b = b.add(b_step);
                }
            }
        }
        for (r, sums) in sums.iter().enumerate() {
            for (v, sum) in sums.iter().enumerate() {
                sum.store_at(c.add(r * c_row + v * LANES));
            }
        }
    }
}

/// Steps of a chain over `len` elements.
pub(crate) fn steps(numbers: Numbers, len: usize) -> usize {
    match numbers {
        Numbers::F32 => len,
        Numbers::Bf16 | Numbers::Bf16Mma | Numbers::F16Mma => len.div_ceil(2),
        Numbers::Bf16Tiles => len.div_ceil(2 * LANES) * LANES,
    }
}
