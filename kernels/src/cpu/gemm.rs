//! C[m,n] = A[m,k] B[k,n] with one k order per element whatever m, n, tile, threads, instruction set.
//!
//! Both operands are packed into panels that span all of k (blocked so that a pack stays in the last
//! cache level); tasks are rectangles of tiles. k is never split between tasks or cache blocks, so
//! the tree of `tile.rs` stays in registers and L1. Shapes: m, n, k in elements.
#![expect(unsafe_code, reason = "tasks write disjoint tiles of one output")]

use super::Isa;
use super::pack::{View, pack};
use super::simd::{self, Kernel, LANES, Lanes};
use super::tile::{Finish, LEVELS, Tile, tile};
use crate::{DType, Device, Result, Tensor};
use rayon::prelude::*;

/// Bytes of one packed block of A or B: half of a usual last cache level slice of 8 MiB.
const PACK_BYTES: usize = 4 << 20;
/// Bytes of the A panels one task goes through per B panel: a quarter of a 1 MiB L2.
const GROUP_BYTES: usize = 256 << 10;
/// Below this many multiply-adds one thread is faster than waking others.
const PARALLEL_ABOVE: usize = 1 << 18;

/// How to multiply.
#[derive(Clone, Copy)]
pub(crate) struct Plan<'a> {
    /// Gives scratch memory and the instruction set.
    pub(crate) device: &'a Device,
    /// Elements of k per leaf; 0 is one leaf.
    pub(crate) leaf: usize,
    pub(crate) finish: Finish,
    /// Whether to use the thread pool; tasks of other parallel loops do not.
    pub(crate) parallel: bool,
}

/// Output matrix: row-major, rows `row_stride` apart.
pub(crate) struct ViewMut<'a> {
    pub(crate) data: &'a mut [f32],
    pub(crate) rows: usize,
    pub(crate) cols: usize,
    pub(crate) row_stride: usize,
}

#[derive(Clone, Copy)]
struct Output(*mut f32);
// SAFETY: tasks write disjoint tiles of the exclusively borrowed output.
unsafe impl Send for Output {}
// SAFETY: as above.
unsafe impl Sync for Output {}

/// Panels of one packed block: panel p starts at p * k * width.
struct Packed {
    data: Tensor,
    k: usize,
    width: usize,
}

impl Packed {
    fn panel(&self, p: usize) -> &[f32] {
        let len = self.k * self.width;
        &self.data.f32()[p * len..(p + 1) * len]
    }
}

/// Multiplies; the definition of the bits is in `tile.rs`.
/// # Errors
/// `Memory` if the packs do not fit.
pub(crate) fn gemm(c: ViewMut<'_>, a: View<'_>, b: View<'_>, plan: Plan<'_>) -> Result<()> {
    a.check();
    b.check();
    assert!(
        a.rows == c.rows && b.cols == c.cols && a.cols == b.rows,
        "callers check shapes"
    );
    let (m, n, k) = (c.rows, c.cols, a.cols);
    if m == 0 || n == 0 {
        return Ok(());
    }
    assert!(
        (m - 1) * c.row_stride + n <= c.data.len(),
        "the output lies inside its slice"
    );
    let leaf = if plan.leaf == 0 {
        k.max(1)
    } else {
        plan.leaf.min(k.max(1))
    };
    assert!(
        plan.finish != Finish::Continue || leaf >= k,
        "only one leaf can be continued"
    );
    let (rows, cols) = shape(plan.device.isa(), m);
    let parallel =
        plan.parallel && rayon::current_num_threads() > 1 && m * n * k.max(1) > PARALLEL_ABOVE;
    let out = Output(c.data.as_mut_ptr());
    let b = b.transposed(); // lanes of a B panel are columns
    let m_block = block(m, rows, k);
    let n_block = block(n, cols, k);
    let mut packed_a = None;
    for n0 in (0..n).step_by(n_block) {
        let packed_b = pack_block(b, n0, n_block.min(n - n0), cols, plan.device, parallel)?;
        for m0 in (0..m).step_by(m_block) {
            let m_len = m_block.min(m - m0);
            // With a single block of rows its pack serves every block of columns.
            let packed_a = match &mut packed_a {
                Some(packed) if m_block >= m => packed,
                slot => slot.insert(pack_block(a, m0, m_len, rows, plan.device, parallel)?),
            };
            let rect = Rect {
                a: packed_a,
                b: &packed_b,
                m: m_len,
                n: n_block.min(n - n0),
                leaf,
                finish: plan.finish,
                // SAFETY: the block starts inside the output.
                c: Output(unsafe { out.0.add(m0 * c.row_stride + n0) }),
                c_stride: c.row_stride,
            };
            multiply(&rect, plan.device.isa(), parallel);
        }
    }
    Ok(())
}

/// Rows and columns of the tile for an output of m rows: few rows need no tall tile.
fn shape(isa: Isa, m: usize) -> (usize, usize) {
    let (tall, cols) = match isa {
        Isa::Avx512 => (12, 32),
        Isa::Avx2 => (6, 16),
        Isa::Portable => (4, 16),
    };
    (
        [1, 2, 4].into_iter().find(|&r| m <= r).unwrap_or(tall),
        cols,
    )
}

/// Lanes per packed block: a multiple of `width` whose pack has about `PACK_BYTES`.
fn block(lanes: usize, width: usize, k: usize) -> usize {
    let fit = PACK_BYTES / (4 * k.max(1));
    fit.clamp(width * 8, lanes.max(width * 8))
        .next_multiple_of(width)
}

fn pack_block(
    x: View<'_>,
    first: usize,
    len: usize,
    width: usize,
    device: &Device,
    parallel: bool,
) -> Result<Packed> {
    let k = x.cols;
    let panels = len.div_ceil(width);
    // Powers of two let packs of unlike shapes share pooled buffers.
    let floats = (panels * k * width).max(1).next_power_of_two();
    let mut data = Tensor::empty(&[floats], DType::F32, device)?;
    if k > 0 {
        let part = View {
            rows: (first + len).min(x.rows),
            ..x
        };
        let out = &mut data.f32_mut()[..panels * k * width];
        let one = |(p, out): (usize, &mut [f32])| pack(part, first + p * width, width, out);
        if parallel {
            out.par_chunks_mut(k * width).enumerate().for_each(one);
        } else {
            out.chunks_mut(k * width).enumerate().for_each(one);
        }
    }
    Ok(Packed { data, k, width })
}

/// A block of the output and the packs it comes from.
struct Rect<'a> {
    a: &'a Packed,
    b: &'a Packed,
    m: usize,
    n: usize,
    leaf: usize,
    finish: Finish,
    c: Output,
    c_stride: usize,
}

fn multiply(rect: &Rect<'_>, isa: Isa, parallel: bool) {
    let (rows, cols) = (rect.m.div_ceil(rect.a.width), rect.n.div_ceil(rect.b.width));
    let group = (GROUP_BYTES / (4 * rect.a.width * rect.a.k.max(1))).clamp(1, rows);
    let groups = rows.div_ceil(group);
    if !parallel {
        for g in 0..groups {
            let panels = g * group..rows.min((g + 1) * group);
            simd::run::<Tiles, _>(isa, (rect, panels, 0..cols));
        }
        return;
    }
    // Enough tasks that the threads end together.
    let wanted = (4 * rayon::current_num_threads())
        .div_ceil(groups)
        .clamp(1, cols);
    let strip = cols.div_ceil(wanted);
    let strips = cols.div_ceil(strip);
    (0..groups * strips).into_par_iter().for_each(|task| {
        let (g, s) = (task / strips, task % strips);
        let panels = g * group..rows.min((g + 1) * group);
        simd::run::<Tiles, _>(isa, (rect, panels, s * strip..cols.min((s + 1) * strip)));
    });
}

struct Tiles;

type Panels = std::ops::Range<usize>;

impl Kernel<(&Rect<'_>, Panels, Panels)> for Tiles {
    type Out = ();

    #[inline(always)]
    fn run<L: Lanes>((rect, rows, cols): (&Rect<'_>, Panels, Panels)) {
        let mut stack = [0.0_f32; 12 * 2 * LANES * 8];
        let mut deep = Vec::new();
        let leaves = rect.a.k.div_ceil(rect.leaf);
        let levels = (usize::BITS - leaves.leading_zeros()) as usize;
        debug_assert!(levels <= LEVELS);
        let wanted = levels * rect.a.width * rect.b.width;
        let stack = if wanted <= stack.len() {
            &mut stack[..]
        } else {
            deep.resize(wanted, 0.0);
            &mut deep[..]
        };
        let (height, width) = (rect.a.width, rect.b.width);
        for j in cols {
            for i in rows.clone() {
                let t = Tile {
                    a: rect.a.panel(i).as_ptr(),
                    b: rect.b.panel(j).as_ptr(),
                    b_stride: width,
                    k: rect.a.k,
                    leaf: rect.leaf,
                    finish: rect.finish,
                    // SAFETY: the tile starts inside the block.
                    c: unsafe { rect.c.0.add(i * height * rect.c_stride + j * width) },
                    c_stride: rect.c_stride,
                    rows: height.min(rect.m - i * height),
                    cols: width.min(rect.n - j * width),
                };
                // SAFETY: panels have k * width floats each; tiles of different (i, j) are disjoint
                // and each (i, j) belongs to one task; the stack has a tile per level.
                unsafe { one_tile::<L>(t, height, stack) }
            }
        }
    }
}

/// # Safety
/// As `tile`, for a kernel of `rows` rows and the instruction set's columns.
#[inline(always)]
unsafe fn one_tile<L: Lanes>(t: Tile, rows: usize, stack: &mut [f32]) {
    // SAFETY: passed on to the caller.
    unsafe {
        if L::TILE_VECTORS == 2 {
            match rows {
                1 => tile::<L, 1, 2>(t, stack),
                2 => tile::<L, 2, 2>(t, stack),
                4 => tile::<L, 4, 2>(t, stack),
                _ => tile::<L, 12, 2>(t, stack),
            }
        } else {
            match rows {
                1 => tile::<L, 1, 1>(t, stack),
                2 => tile::<L, 2, 1>(t, stack),
                4 => tile::<L, 4, 1>(t, stack),
                _ => tile::<L, 6, 1>(t, stack),
            }
        }
    }
}
