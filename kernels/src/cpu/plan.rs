//! Parameters of a matrix product: its output, how it is blocked, and sizes shared by both drivers (`gemm.rs`,
//! `tiles/`).

use super::Numbers;
use super::epilogue::Epilogue;
use super::output::DataMut;
use super::tile::Finish;
use crate::Device;
use std::ops::Range;

/// Bytes of a block of A; each goes through a whole block of B.
pub(super) const PACK_A_BYTES: usize = 4 << 20;

/// Bytes of one packed block of B: half of a usual last cache level of 32 MiB.
pub(super) const PACK_B_BYTES: usize = 16 << 20;

/// Panels of rows up to which B is packed panel by panel inside the tasks.
pub(super) const FEW_PANELS: usize = 3;

/// The same of a pack, by vectors: each panel of B meets all rows before the next one, so that B is read from memory once.
pub(super) const FEW_PACKED: usize = 10;

/// Below this many multiply-adds one thread is faster than waking others.
pub(super) const PARALLEL_ABOVE: usize = 1 << 18;

/// Options of a product.
#[derive(Clone, Copy)]
pub(crate) struct Plan<'a> {
    /// Source of scratch memory, and the instruction set.
    pub(crate) device: &'a Device,
    pub(crate) numbers: Numbers,
    /// Elements of k per leaf; 0 is one leaf.
    pub(crate) leaf: usize,
    pub(crate) finish: Finish,
    /// Epilogue for complete elements; requires contiguous rows of the output.
    pub(crate) epilogue: Epilogue<'a>,
    /// Whether to use the thread pool; false inside tasks of other parallel loops.
    pub(crate) parallel: bool,
}

/// Output matrix: row-major, rows `row_stride` apart.
pub(crate) struct ViewMut<'a> {
    pub(crate) data: DataMut<'a>,
    pub(crate) rows: usize,
    pub(crate) cols: usize,
    pub(crate) row_stride: usize,
}

/// Part `number` of `parts`, none of which has more than one more than another.
pub(super) fn share(len: usize, number: usize, parts: usize) -> Range<usize> {
    number * len / parts..(number + 1) * len / parts
}

/// Lanes per packed block: a multiple of `width` whose pack has about `bytes`.
pub(super) fn block(lanes: usize, width: usize, k: usize, bytes: usize) -> usize {
    let fit = bytes / (4 * k.max(1));
    fit.clamp(width * 8, lanes.max(width * 8))
        .next_multiple_of(width)
}
