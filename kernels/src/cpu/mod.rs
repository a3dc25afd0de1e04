//! Shared parts of the CPU backend: vectors of 16 floats, elementary functions, the matrix product. Every
//! instruction set runs the same operations in the same order, so results are the same bits.

pub(crate) mod activation;
pub(crate) mod bf16;
pub(crate) mod bf16_pack;
pub(crate) mod codes;
pub(crate) mod codes_pack;
mod detect;
pub(crate) mod element;
pub(crate) mod epilogue;
pub(crate) mod gemm;
pub(crate) mod int8;
pub(crate) mod int8_groups;
pub(crate) mod math;
mod multiples;
pub(crate) mod output;
pub(crate) mod pack;
pub(crate) mod path;
mod peak;
pub(crate) mod plan;
mod prefetch;
pub(crate) mod right;
pub(crate) mod rotary;
pub(crate) mod scratch;
pub(crate) mod simd;
pub(crate) mod small_gemm;
pub(crate) mod strip;
pub(crate) mod tile;
mod tile_shapes;
pub(crate) mod tiles;

use rayon::iter::{IndexedParallelIterator, MaxLen};

pub(crate) use crate::Isa;
pub(crate) use crate::descriptor::numbers::Numbers;
pub use path::CpuPath;
pub use peak::peak_flops;

/// Splits the tasks of a parallel loop finely enough that threads finish together: by default rayon makes two
/// pieces per thread.
pub(crate) fn pieces<I: IndexedParallelIterator>(tasks: I) -> MaxLen<I> {
    let each = tasks.len() / (PIECES * rayon::current_num_threads());
    tasks.with_max_len(each.max(1))
}

/// Pieces per thread.
const PIECES: usize = 8;

/// Rows per parallel task in row-wise ops. Rows are independent, so this changes no bits.
pub(crate) const ROW_BLOCK: usize = 16;
