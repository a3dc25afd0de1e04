//! Shapes of the matrix product's tiles. Each is a loop of its own in the program, for each instruction set and each form of the
//! second factor: blocks and outputs of few rows have those that they need.
#![expect(unsafe_code, reason = "tiles read packed panels through pointers")]

use super::bf16::Step;
use super::simd::{LANES, Lanes};
use super::tile::{Stack, Tile, tile};

/// Rows up to which tiles are lower than those of blocks (`right::shape`).
pub(super) const LOWEST_ROWS: usize = 4;

/// # Safety
/// As `tile`, for a kernel of `rows` rows and the instruction set's columns.
#[inline(always)]
pub(super) unsafe fn few_tile<L: Lanes, N: Step<L>>(t: Tile, rows: usize, stack: &mut Stack<'_>) {
    // SAFETY: `tile` needs panels and output floats for `rows` rows, by this function's contract.
    unsafe {
        if L::TILE_VECTORS == 2 {
            match rows {
                1 => tile::<L, N, 1, 2, 2>(t, stack),
                2 => tile::<L, N, 2, 2, 2>(t, stack),
                4 => tile::<L, N, 4, 2, 2>(t, stack),
                8 => tile::<L, N, 8, 2, 2>(t, stack),
                _ => tile::<L, N, 12, 2, 2>(t, stack),
            }
        } else {
            match rows {
                1 => tile::<L, N, 1, 1, 1>(t, stack),
                2 => tile::<L, N, 2, 1, 1>(t, stack),
                4 => tile::<L, N, 4, 1, 1>(t, stack),
                _ => tile::<L, N, 6, 1, 1>(t, stack),
            }
        }
    }
}

/// # Safety
/// As `tile`, for a kernel of a shape for more than `LOWEST_ROWS` rows, `[rows, columns]`.
#[inline(always)]
pub(super) unsafe fn block_tile<L: Lanes, N: Step<L>>(
    t: Tile,
    [rows, columns]: [usize; 2],
    stack: &mut Stack<'_>,
) {
    // SAFETY: `tile` needs panels and output floats for this shape, by this function's contract.
    unsafe {
        if N::FROM_MATRICES && L::TILE_VECTORS == 2 && columns == LANES {
            tile::<L, N, 12, 1, 1>(t, stack);
        } else if L::TILE_VECTORS == 2 {
            match rows {
                8 => tile::<L, N, 8, 2, 2>(t, stack),
                _ => tile::<L, N, 12, 2, 2>(t, stack),
            }
        } else {
            match rows {
                4 => tile::<L, N, 4, 1, 1>(t, stack),
                _ => tile::<L, N, 6, 1, 1>(t, stack),
            }
        }
    }
}

/// # Safety
/// As `tile`, for `Few::at_once` panels of the instruction set's columns.
#[inline(always)]
pub(super) unsafe fn wide_tile<L: Lanes, N: Step<L>>(t: Tile, rows: usize, stack: &mut Stack<'_>) {
    // SAFETY: `tile` needs panels and output floats for so few rows, by this function's contract.
    unsafe {
        match (rows, L::TILE_VECTORS) {
            (1, 2) => tile::<L, N, 1, 8, 2>(t, stack),
            (1, _) => tile::<L, N, 1, 4, 1>(t, stack),
            (2, 2) => tile::<L, N, 2, 4, 2>(t, stack),
            (_, 2) => tile::<L, N, 4, 4, 2>(t, stack),
            _ => tile::<L, N, 2, 2, 1>(t, stack),
        }
    }
}
