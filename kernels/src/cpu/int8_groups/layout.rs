//! Sizes of panels and tiles, and the loops that instruction sets have for them.

use crate::cpu::codes::{
    Bytes, BytesWithOffsets, Code, Nibbles, NibblesWithOffsets, RoundedBytes, WideBytes,
};

/// Columns of a panel.
pub(super) const WIDTH: usize = 32;
/// Numbers that one product of bytes sums.
pub(super) const QUAD: usize = 4;
/// Bytes of a panel's columns for four of k.
pub(super) const STEP: usize = QUAD * WIDTH;
/// Most rows of a tile whose rows are interleaved.
pub(super) const HEIGHT: usize = 6;
/// Rows of a tile whose rows are not interleaved, those of AMX (`tiles.rs`).
pub(super) const TALL: usize = 16;
/// Bytes of a panel that are asked for before they are needed, as `tile::Ahead`.
pub(super) const IN_FLIGHT: usize = 8192;

/// Sums of a tile: rows of a panel's columns, as many as the highest tile has.
pub(super) type Sums = [[f32; WIDTH]; TALL];

impl Code {
    /// Added to codes where they are stored, so that they have no sign.
    pub(super) const fn shift(self) -> i32 {
        match self {
            Code::Four => 8,
            Code::FourWithOffsets | Code::Fp8 => 0,
            Code::Eight
            | Code::EightRounded
            | Code::EightWithWideScales
            | Code::EightWithOffsets => 128,
        }
    }

    pub(super) const fn quads(self) -> usize {
        self.steps() / QUAD
    }

    /// Bytes of a group of a panel before its codes.
    pub(super) const fn bytes_of_scales(self) -> usize {
        size_of::<f32>() * 2 * self.scales()
    }

    /// Bytes of a group of a panel.
    pub(super) const fn bytes_of_group(self) -> usize {
        size_of::<f32>() * self.group(WIDTH)
    }
}

/// Rows of a tile.
#[derive(Clone, Copy)]
pub(super) struct TileRows {
    pub(super) first: usize,
    pub(super) count: usize,
    /// Rows that it has room for: `count`, or `TALL`.
    pub(super) height: usize,
}

/// A chain of groups of a tile: a panel, and rows that are interleaved (`rows.rs`).
#[derive(Clone, Copy)]
pub(super) struct Chain {
    /// The panel's first group of the chain.
    pub(super) panel: *const u8,
    /// The rows' codes, of the same group.
    pub(super) codes: *const u32,
    /// Their steps, shifts and sums for each group.
    pub(super) scales: *const f32,
    pub(super) shifts: *const i32,
    pub(super) totals: *const f32,
    pub(super) groups: usize,
    /// Whether the panel comes from memory.
    pub(super) is_first: bool,
}

/// How a chain is computed: R rows of sums from 0, which are stored.
pub(super) type Compute = unsafe fn(Chain, &mut Sums);

/// Chains of an instruction set.
pub(super) trait Loops {
    /// That of R rows with codes of this kind. It is safe to call for chains whose panel and rows can be read, where the machine
    /// has the instruction set.
    fn chain<T: Held, const R: usize>() -> Compute;
}

/// A kind of code, known when loops are compiled.
pub(super) trait Held {
    const CODE: Code;
}

impl Held for Nibbles {
    const CODE: Code = Code::Four;
}

impl Held for NibblesWithOffsets {
    const CODE: Code = Code::FourWithOffsets;
}

impl Held for Bytes {
    const CODE: Code = Code::Eight;
}

impl Held for RoundedBytes {
    const CODE: Code = Code::EightRounded;
}

impl Held for BytesWithOffsets {
    const CODE: Code = Code::EightWithOffsets;
}

impl Held for WideBytes {
    const CODE: Code = Code::EightWithWideScales;
}
