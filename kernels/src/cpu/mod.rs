//! The CPU backend's own parts: vectors of 16 floats, elementary functions, the matrix product.
//! Every instruction set runs the same operations in the same order, so results are the same bits.

mod ahead;
pub(crate) mod bf16;
pub(crate) mod curve;
pub(crate) mod element;
pub(crate) mod epilogue;
pub(crate) mod gated;
pub(crate) mod gemm;
pub(crate) mod math;
pub(crate) mod output;
pub(crate) mod pack;
pub(crate) mod path;
mod peak;
pub(crate) mod rooms;
pub(crate) mod rotary;
pub(crate) mod simd;
pub(crate) mod strip;
pub(crate) mod tile;
pub(crate) mod tiles;
pub(crate) mod words;

use rayon::iter::{IndexedParallelIterator, MaxLen};

pub use path::CpuPath;
pub use peak::peak_flops;
pub use simd::Isa;

/// What the factors of a product are rounded to; sums are f32.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Numbers {
    /// f32, as they are.
    F32,
    /// bf16, to nearest even; subnormals become zero. Sums take pairs of k (`bf16.rs`).
    Bf16,
    /// As `Bf16`, with sums that take blocks of 32 k (`tiles/`).
    Bf16Tiles,
}

impl Numbers {
    /// Whether a word is two bf16.
    pub(crate) fn are_pairs(self) -> bool {
        self != Numbers::F32
    }
}

/// The tasks of a parallel loop in pieces so small that the threads end together: left alone, rayon cuts them into two a
/// thread.
pub(crate) fn pieces<I: IndexedParallelIterator>(tasks: I) -> MaxLen<I> {
    let each = tasks.len() / (PIECES * rayon::current_num_threads());
    tasks.with_max_len(each.max(1))
}

/// Pieces a thread.
const PIECES: usize = 8;

/// Rows one parallel task takes in row-wise ops. Rows are independent, so this changes no bits.
pub(crate) const ROW_BLOCK: usize = 16;
