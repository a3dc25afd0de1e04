//! bf16 products in tiles: the arithmetic of Intel's `tdpbf16ps`.
//!
//! A leaf is cut into blocks of 32 elements of k, the last padded with zeros. In a block the even and
//! the odd elements are a chain each, from 0,
//!   `even = fma(a[2i], b[2i], even)`, `odd = fma(a[2i + 1], b[2i + 1], odd)`, for i = 0 .. 16,
//! and the leaf's sum, from 0, is sum = sum + (even + odd). All round to nearest even; subnormal factors and sums
//! are taken as zeros of their sign, results below 2^-126 become such zeros. Leaves are merged as everywhere
//! (`tile.rs`). Operands are rounded to bf16 as `bf16.rs` says.
//! Source: Intel SDM, TDPBF16PS.
//!
//! A tile of the output is up to 32 x 32 sums in four of eight tiles (`unit.rs`): the processor's with AMX
//! (`amx.rs`), emulated otherwise. A row of such tiles is computed at a time: a block of k of a panel of A stays in
//! L1 while panels of B stream from L2, and rows of the output are written sequentially. Between two blocks sums
//! are in memory (`sums.rs`); a long k uses squares of the output (`long_k.rs`).

#[cfg(target_arch = "x86_64")]
pub(super) mod amx;
mod long_k;
mod pack;
mod panels;
#[cfg(any(test, target_arch = "x86_64"))]
mod peak_loop;
mod rect;
#[cfg(any(test, target_arch = "x86_64"))]
pub(super) mod self_check;
pub(super) mod strided;
mod sums;
#[cfg(test)]
mod tests;
mod unit;

use super::Isa;
use super::pack::Matrix;
use super::plan::{FEW_PANELS, PACK_A_BYTES, PACK_B_BYTES, PARALLEL_ABOVE, Plan, ViewMut, block};
use crate::Result;
use pack::Order;
use panels::{fill_columns, pack_b};
use rect::{Columns, GROUP_BYTES, GROUP_LEAST, Rect, Rows};
use std::marker::PhantomData;
use unit::{BOTH, Emulation, SIDE, Units};

/// Words of k above which panels of B are too long for that (`long_k.rs`).
const DEEP: usize = GROUP_BYTES / (4 * BOTH * GROUP_LEAST);

/// The second factor.
#[derive(Clone, Copy)]
pub(crate) enum Right<'a> {
    Matrix(Matrix<'a>),
    /// All of its panels, by `fill` for the plan's leaves.
    Packed(&'a [f32]),
}

/// Floats that `fill` writes for k words of n columns; None if k is so long that products do not use such packs.
pub(crate) fn packed_floats([k, n]: [usize; 2], leaf: usize) -> Option<usize> {
    let steps = Order::new(k, leaf).steps();
    (steps <= DEEP).then(|| n.div_ceil(BOTH) * steps * BOTH)
}

/// Packs all columns of b.
pub(crate) fn fill(isa: Isa, words: &mut [f32], b: Matrix<'_>, leaf: usize) {
    let (order, b) = (Order::new(b.rows(), leaf), b.transposed());
    let parallel = rayon::current_num_threads() > 1 && words.len() > PARALLEL_ABOVE / 4;
    fill_columns(words, (b, 0), order, isa, parallel);
}

/// Multiplies; shapes are checked.
/// # Errors
/// `Memory` if the packs do not fit.
pub(super) fn gemm(c: ViewMut<'_>, a: Matrix<'_>, b: Right<'_>, plan: Plan<'_>) -> Result<()> {
    #[cfg(target_arch = "x86_64")]
    if plan.device.isa() == Isa::Amx {
        return multiply::<amx::Native>(c, a, b, plan);
    }
    multiply::<Emulation>(c, a, b, plan)
}

/// Runs this many steps of 32 x 32 sums on the processor's unit, which must exist; returns the multiplies and adds.
#[cfg(target_arch = "x86_64")]
pub(crate) fn busy(steps: usize) -> f64 {
    peak_loop::work::<amx::Native>(Isa::Amx, steps)
}

fn multiply<U: Units>(
    mut c: ViewMut<'_>,
    a: Matrix<'_>,
    b: Right<'_>,
    plan: Plan<'_>,
) -> Result<()> {
    let (m, n, k) = (c.rows, c.cols, a.cols());
    let order = Order::new(k, plan.leaf);
    let steps = order.steps();
    let height = if m <= SIDE { m } else { BOTH };
    let parallel =
        plan.parallel && rayon::current_num_threads() > 1 && m * n * k.max(1) > PARALLEL_ABOVE;
    let out = c.data.shared();
    let b = match b {
        Right::Matrix(b) => Columns::Apart(b.transposed()), // lanes of a panel are columns
        Right::Packed(words) => Columns::Packed(words),
    };
    let rect = Rect::<U> {
        isa: plan.device.isa(),
        order,
        height,
        span: (0, steps),
        a: Rows::Apart(a),
        b,
        m,
        n,
        finish: plan.finish,
        epilogue: plan.epilogue,
        c: out,
        at: (0, 0),
        c_stride: c.row_stride,
        units: PhantomData,
    };
    if m <= FEW_PANELS * BOTH && n > BOTH {
        return rect.multiply(plan.device, parallel);
    }
    let m_block = block(m, height, steps, PACK_A_BYTES);
    let b = match b {
        Columns::Apart(b) => b,
        Columns::Packed(_) => {
            for m0 in (0..m).step_by(m_block) {
                let part = Rect {
                    m: m.min(m0 + m_block) - m0,
                    at: (m0, 0),
                    ..rect
                };
                part.multiply(plan.device, parallel)?;
            }
            return Ok(());
        }
    };
    if steps > DEEP {
        return long_k::multiply(&rect, a, b, plan.device, parallel);
    }
    let whole_heads = BOTH * plan.epilogue.unit(BOTH);
    let n_block = block(n, BOTH, steps, PACK_B_BYTES).next_multiple_of(whole_heads);
    for n0 in (0..n).step_by(n_block) {
        let n_end = n.min(n0 + n_block);
        let packed_b = pack_b(b, order, n0..n_end, plan.device, parallel)?;
        for m0 in (0..m).step_by(m_block) {
            let m_end = m.min(m0 + m_block);
            let part = Rect {
                b: Columns::Packed(packed_b.f32()),
                m: m_end - m0,
                n: n_end - n0,
                at: (m0, n0),
                ..rect
            };
            part.multiply(plan.device, parallel)?;
        }
    }
    Ok(())
}

/// Whether a product of m rows applies rotary embedding itself.
pub(super) fn turns(plan: &Plan<'_>, m: usize, k: usize) -> bool {
    m > FEW_PANELS * BOTH && Order::new(k, plan.leaf).steps() <= DEEP
}
