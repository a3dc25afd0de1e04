//! Shapes of the matrix product's tiles. Each is a function of its own in the program, for each instruction set and each
//! form of the second factor, whichever products use it.
#![expect(unsafe_code, reason = "tiles read packed panels through pointers")]

use super::Isa;
use super::bf16::{Function, Step};
use super::right::{LOWEST_ROWS, Right};
use super::simd::{LANES, Lanes};
use super::tile::{Stack, Tile, tile};

/// Rows and columns of a tile, and the columns of a panel; it takes as many panels as it needs.
#[derive(Clone, Copy)]
pub(super) struct Shape {
    pub(super) rows: usize,
    pub(super) columns: usize,
    pub(super) panel: usize,
}

/// How tiles read the second factor: the form of its panels, and the instruction set.
#[derive(Clone, Copy)]
pub(super) struct Reading<'a> {
    pub(super) isa: Isa,
    pub(super) b: Right<'a>,
    /// Whether a word is two bf16.
    pub(super) pairs: bool,
}

/// Computes a tile.
/// # Safety
/// As `tile::tile`, for the shape and the second factor that it was chosen for.
pub(super) type Compute = unsafe fn((Tile, Stack));

/// The function for tiles of a shape that `right::shape` and `right::panels_at_once` give for the instruction set.
/// # Panics
/// For any other shape.
pub(super) fn tile_function(reading: Reading<'_>, shape: Shape) -> Compute {
    let Reading { isa, b, pairs } = reading;
    macro_rules! one_of {
        ($([$rows:literal, $vectors:literal, $panel:literal]),* $(,)?) => {
            match [shape.rows, shape.columns / LANES, shape.panel / LANES] {
                $([$rows, $vectors, $panel] => {
                    b.function::<Shaped<$rows, $vectors, $panel>, _>(isa, pairs)
                })*
                other => unreachable!("a tile of rows, vectors and those of a panel {other:?}"),
            }
        };
    }
    one_of!(
        [1, 1, 1],
        [2, 1, 1],
        [4, 1, 1],
        [6, 1, 1],
        [12, 1, 1],
        [1, 4, 1],
        [2, 2, 1],
        [1, 2, 2],
        [2, 2, 2],
        [4, 2, 2],
        [8, 2, 2],
        [12, 2, 2],
        [1, 8, 2],
        [2, 4, 2],
        [4, 4, 2],
    )
}

/// Tiles of R rows and V vectors, of panels of W vectors.
struct Shaped<const R: usize, const V: usize, const W: usize>;

impl<const R: usize, const V: usize, const W: usize> Function<(Tile, Stack)> for Shaped<R, V, W> {
    #[inline(always)]
    fn call<L: Lanes, N: Step<L>>((tile, stack): (Tile, Stack)) {
        if const { is_used::<L, N>([R, V, W]) } {
            // SAFETY: the panels and the output are those of such a tile, by the contract of `Compute`.
            unsafe { self::tile::<L, N, R, V, W>(tile, stack) }
        } else {
            unreachable!("tiles of {R} rows and {V} vectors of panels of {W}");
        }
    }
}

/// Whether products have tiles of a shape. The others are not compiled.
const fn is_used<L: Lanes, N: Step<L>>([rows, vectors, panel]: [usize; 3]) -> bool {
    if panel != L::TILE_VECTORS {
        // half a wide tile, for narrow outputs
        return N::FROM_MATRICES && rows == L::TILE_ROWS && L::TILE_VECTORS == 2;
    }
    if L::TILE_ROWS <= LOWEST_ROWS {
        return vectors == panel && (rows == 1 || rows == L::TILE_ROWS);
    }
    rows <= L::TILE_ROWS
}
