//! Products of bf16 whose sums are made in tiles: the arithmetic of Intel's `tdpbf16ps`.
//!
//! A leaf is cut into blocks of 32 elements of k; its last one is filled with zeros. In a block the even and
//! the odd elements are a chain each, from 0,
//!   even = fma(a[2i], b[2i], even), odd = fma(a[2i + 1], b[2i + 1], odd), for i = 0 .. 16,
//! and the leaf's sum, from 0, is sum = sum + (even + odd). All round to nearest even; subnormal factors and sums
//! are taken as zeros of their sign, results below 2^-126 become such zeros. Leaves are merged as everywhere
//! (`tile.rs`). Operands are rounded to bf16 as `bf16.rs` says.
//! Source: Intel SDM, TDPBF16PS.
//!
//! A task holds up to 32 x 32 sums in four of eight tiles (`unit.rs`), which are the processor's with AMX
//! (`amx.rs`) and emulated anywhere else. A panel of B stays in L1 while a few panels of A from L2 meet it over a block
//! of k; between two blocks sums lie in memory.
#![expect(unsafe_code, reason = "tasks write disjoint tiles of one output")]

#[cfg(target_arch = "x86_64")]
pub(super) mod amx;
#[cfg(any(test, target_arch = "x86_64"))]
mod check;
mod pack;
pub(super) mod strided;
#[cfg(test)]
mod tests;
mod unit;

use super::Isa;
use super::bf16::{Step, Task, perform};
use super::epilogue::{Epilogue, Whole};
use super::gemm::{
    FEW_PANELS, Output, PACK_A_BYTES, PACK_B_BYTES, PARALLEL_ABOVE, Plan, ViewMut, block,
};
use super::pack::View;
use super::simd::{LANES, Lanes};
use super::tile::{Cuts, Finish};
use crate::{DType, Device, Result, Tensor};
use pack::Order;
use rayon::prelude::*;
use std::marker::PhantomData;
use std::ops::Range;
use unit::{BOTH, Emulation, SIDE, Stretch, Sums, Unit, Units};

/// Bytes of the A panels one task goes through per B panel: half of a 2 MiB L2.
const GROUP_BYTES: usize = 1 << 20;
/// Panels that it takes even so: B comes from further away.
const GROUP_LEAST: usize = 4;

/// Why tiles are not used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lack {
    /// The processor has none, or no vectors of bf16 pairs beside them.
    Cpu,
    /// The system does not give them.
    Leave,
    /// Their bits are not those promised.
    Check,
}

/// Multiplies; shapes are checked.
/// # Errors
/// `Memory` if the packs do not fit.
pub(super) fn gemm(c: ViewMut<'_>, a: View<'_>, b: View<'_>, plan: Plan<'_>) -> Result<()> {
    #[cfg(target_arch = "x86_64")]
    if plan.device.isa() == Isa::Amx {
        return multiply::<amx::Native>(c, a, b, plan);
    }
    multiply::<Emulation>(c, a, b, plan)
}

fn multiply<U: Units>(c: ViewMut<'_>, a: View<'_>, b: View<'_>, plan: Plan<'_>) -> Result<()> {
    let (m, n, k) = (c.rows, c.cols, a.cols);
    let order = Order::new(k, plan.leaf);
    let steps = order.steps();
    let height = if m <= SIDE { m } else { BOTH };
    let parallel =
        plan.parallel && rayon::current_num_threads() > 1 && m * n * k.max(1) > PARALLEL_ABOVE;
    let out = Output(c.data.as_mut_ptr());
    let b = b.transposed(); // lanes of a panel are columns
    let rect = Rect::<U> {
        isa: plan.device.isa(),
        order,
        height,
        a: &[],
        b: Columns::Apart(b),
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
        let packed = pack_a(a, order, (0..m, height), plan.device, parallel)?;
        let a = packed.f32();
        Rect { a, ..rect }.multiply(parallel);
        return Ok(());
    }
    let m_block = block(m, height, steps, PACK_A_BYTES);
    let n_block = block(n, BOTH, steps, PACK_B_BYTES);
    let mut packed_a = None;
    for n0 in (0..n).step_by(n_block) {
        let n_end = n.min(n0 + n_block);
        let packed_b = pack_b(b, order, n0..n_end, plan.device, parallel)?;
        for m0 in (0..m).step_by(m_block) {
            let m_end = m.min(m0 + m_block);
            // With a single block of rows its pack serves every block of columns.
            let packed_a = match &mut packed_a {
                Some(packed) if m_block >= m => packed,
                slot => slot.insert(pack_a(
                    a,
                    order,
                    (m0..m_end, height),
                    plan.device,
                    parallel,
                )?),
            };
            let part = Rect {
                a: packed_a.f32(),
                b: Columns::Packed(packed_b.f32()),
                m: m_end - m0,
                n: n_end - n0,
                at: (m0, n0),
                ..rect
            };
            part.multiply(parallel);
        }
    }
    Ok(())
}

/// Room for `floats`; powers of two let packs of unlike shapes share pooled buffers.
fn room(floats: usize, device: &Device) -> Result<Tensor> {
    Tensor::empty(&[floats.max(1).next_power_of_two()], DType::F32, device)
}

/// Runs `one` for every panel of `apart` floats.
fn each_panel(
    out: &mut [f32],
    apart: usize,
    parallel: bool,
    one: impl Fn(usize, &mut [f32]) + Sync,
) {
    if apart == 0 {
        return;
    }
    if parallel {
        let panels = out.par_chunks_mut(apart).enumerate();
        panels.for_each(|(panel, out)| one(panel, out));
    } else {
        let panels = out.chunks_mut(apart).enumerate();
        panels.for_each(|(panel, out)| one(panel, out));
    }
}

fn pack_a(
    a: View<'_>,
    order: Order,
    (rows, height): (Range<usize>, usize),
    device: &Device,
    parallel: bool,
) -> Result<Tensor> {
    let apart = floats_of_a(order, height);
    let len = rows.len().div_ceil(height) * apart;
    let mut packed = room(len, device)?;
    let a = View {
        rows: rows.end,
        ..a
    };
    each_panel(
        &mut packed.f32_mut()[..len],
        apart,
        parallel,
        |panel, out| {
            let first = rows.start + panel * height;
            order.pack_a(device.isa(), a, (first, height), out);
        },
    );
    Ok(packed)
}

fn pack_b(
    b: View<'_>,
    order: Order,
    columns: Range<usize>,
    device: &Device,
    parallel: bool,
) -> Result<Tensor> {
    let steps = order.steps();
    let apart = steps * BOTH;
    let len = columns.len().div_ceil(BOTH) * apart;
    let mut packed = room(len, device)?;
    let b = View {
        rows: columns.end,
        ..b
    };
    each_panel(
        &mut packed.f32_mut()[..len],
        apart,
        parallel,
        |panel, out| {
            let first = columns.start + panel * BOTH;
            order.pack_b(device.isa(), (b, first), (0, steps), out);
        },
    );
    Ok(packed)
}

/// Floats of a panel of A.
fn floats_of_a(order: Order, height: usize) -> usize {
    order.steps() * height.next_multiple_of(SIDE)
}

/// Where columns of B come from.
#[derive(Clone, Copy)]
enum Columns<'a> {
    /// Panels for all of k.
    Packed(&'a [f32]),
    /// The matrix, whose lanes are columns: few rows use a pack of it once.
    Apart(View<'a>),
}

/// A block of the output and what it comes from.
struct Rect<'a, U> {
    isa: Isa,
    order: Order,
    /// Rows of a panel of A: 32, or all if they are at most 16.
    height: usize,
    a: &'a [f32],
    b: Columns<'a>,
    m: usize,
    n: usize,
    finish: Finish,
    epilogue: Epilogue<'a>,
    /// All of the output, and where the block starts in it.
    c: Output,
    at: (usize, usize),
    c_stride: usize,
    units: PhantomData<fn() -> U>,
}

impl<U> Clone for Rect<'_, U> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<U> Copy for Rect<'_, U> {}

impl<U: Units> Rect<'_, U> {
    fn multiply(&self, parallel: bool) {
        let (rows, cols) = (self.m.div_ceil(self.height), self.n.div_ceil(BOTH));
        let fit = GROUP_BYTES / (4 * floats_of_a(self.order, self.height)).max(1);
        let group = fit.max(GROUP_LEAST).min(rows);
        let groups = rows.div_ceil(group);
        // Alone, a strip as wide as the block; else enough tasks that the threads end together.
        let tasks = if parallel {
            4 * rayon::current_num_threads()
        } else {
            1
        };
        let strip = cols.div_ceil(tasks.div_ceil(groups).clamp(1, cols));
        let strips = cols.div_ceil(strip);
        let one = |task: usize| {
            let (g, s) = (task / strips, task % strips);
            let work = Work {
                rect: self,
                rows: g * group..rows.min((g + 1) * group),
                cols: s * strip..cols.min((s + 1) * strip),
            };
            perform(self.isa, true, work);
        };
        if parallel {
            (0..groups * strips).into_par_iter().for_each(one);
        } else {
            (0..groups * strips).for_each(one);
        }
    }
}

/// Panels of rows and of columns.
struct Work<'a, U> {
    rect: &'a Rect<'a, U>,
    rows: Range<usize>,
    cols: Range<usize>,
}

impl<U: Units> Task for Work<'_, U> {
    #[inline(always)]
    fn run<L: Lanes, N: Step<L>>(self) {
        let Work { rect, rows, cols } = self;
        let cuts = rect.order.cuts();
        let mut unit = U::Of::<L>::start(rect.height);
        let levels = cuts.levels().max(1);
        // Sums that end with their only block need no room of their own.
        let kept = if cuts.saved() > 0 { rows.len() } else { 1 };
        let mut sums = vec![Sums([0.0; BOTH * BOTH]); levels * kept];
        let longest = cuts.blocks().map(|(start, end)| end - start).max();
        let floats = match rect.b {
            Columns::Packed(_) => 0,
            Columns::Apart(_) => longest.unwrap_or(0) * BOTH,
        };
        let mut panel = vec![0.0; floats + LANES];
        let panel = aligned(&mut panel, floats);
        for j in cols {
            for (start, end) in cuts.blocks() {
                let b = match rect.b {
                    Columns::Packed(all) => {
                        &all[(j * cuts.k + start) * BOTH..(j * cuts.k + end) * BOTH]
                    }
                    Columns::Apart(b) => {
                        let out = &mut panel[..(end - start) * BOTH];
                        rect.order
                            .pack_b(rect.isa, (b, j * BOTH), (start, end), out);
                        &*out
                    }
                };
                for i in rows.clone() {
                    let tall = rect.height.next_multiple_of(SIDE);
                    let a = &rect.a[i * cuts.k * tall..(i + 1) * cuts.k * tall];
                    let block = Block {
                        a: &a[start * tall..end * tall],
                        b,
                        cuts,
                        start,
                        end,
                    };
                    let at = if kept > 1 { i - rows.start } else { 0 };
                    let sums = &mut sums[at * levels..(at + 1) * levels];
                    block.add::<L, _>(&mut unit, sums, (rect.height, tall));
                    if end == cuts.k {
                        // SAFETY: rows and columns lie inside the block of the output, which is this
                        // task's there.
                        unsafe { rect.finish::<L>(&sums[0], i * rect.height, j * BOTH) }
                    }
                }
            }
        }
    }
}

/// A block of k of one panel of rows and one of columns.
struct Block<'a> {
    a: &'a [f32],
    b: &'a [f32],
    cuts: Cuts,
    start: usize,
    end: usize,
}

impl Block<'_> {
    /// Adds it to the sums that wait and the one under way, which lie one above the other; the last block
    /// leaves the whole in the first.
    #[inline(always)]
    fn add<L: Lanes, T: Unit>(
        &self,
        unit: &mut T,
        sums: &mut [Sums],
        (height, tall): (usize, usize),
    ) {
        let Block { a, b, cuts, .. } = *self;
        let mut depth = cuts.waiting(self.start);
        let mut at = self.start;
        if cuts.k == 0 {
            sums[0] = Sums([0.0; BOTH * BOTH]);
        }
        while at < self.end {
            let leaf = at / cuts.leaf;
            let leaf_end = cuts.k.min((leaf + 1) * cuts.leaf);
            let stop = leaf_end.min(self.end);
            let here = (at - self.start, stop - self.start);
            let (a, b) = (
                &a[here.0 * tall..here.1 * tall],
                &b[here.0 * BOTH..here.1 * BOTH],
            );
            let goes_on = at > leaf * cuts.leaf;
            let stretch = Stretch::packed(
                (a.as_ptr(), tall / SIDE),
                b.as_ptr(),
                &mut sums[depth],
                ((stop - at) / SIDE, goes_on),
            );
            // SAFETY: leaves and blocks are whole steps, of which the slices have all.
            unsafe { unit.run(stretch) }
            at = stop;
            if at < leaf_end {
                break;
            }
            let merges = if at == cuts.k {
                depth
            } else {
                leaf.trailing_ones() as usize
            };
            for _ in 0..merges {
                let (waiting, rest) = sums[depth - 1..].split_at_mut(1);
                merge::<L>(&mut waiting[0], &rest[0], height);
                depth -= 1;
            }
            depth += 1;
        }
    }
}

/// waiting = waiting + sums, of `height` rows.
#[inline(always)]
fn merge<L: Lanes>(waiting: &mut Sums, sums: &Sums, height: usize) {
    let pairs = waiting.0[..height * BOTH]
        .chunks_exact_mut(LANES)
        .zip(sums.0.chunks_exact(LANES));
    for (waiting, sums) in pairs {
        L::load(waiting).add(L::load(sums)).store(waiting);
    }
}

impl<U> Rect<'_, U> {
    /// Writes sums to the output from (row, col) of the block on, as far as it goes, and does what follows.
    /// # Safety
    /// The place lies inside the output, and nobody else touches it.
    #[inline(always)]
    unsafe fn finish<L: Lanes>(&self, sums: &Sums, row: usize, col: usize) {
        let rows = self.height.min(self.m - row);
        let cols = BOTH.min(self.n - col);
        let (row, col) = (self.at.0 + row, self.at.1 + col);
        for (r, sums) in sums.0.chunks_exact(BOTH).enumerate().take(rows) {
            // SAFETY: the caller vouches for the row's part.
            let c = unsafe {
                std::slice::from_raw_parts_mut(self.c.0.add((row + r) * self.c_stride + col), cols)
            };
            for (c, sums) in c.chunks_mut(LANES).zip(sums.chunks_exact(LANES)) {
                let sum = L::load(sums);
                let sum = if self.finish == Finish::Add {
                    L::load_part(c, 0.0).add(sum)
                } else {
                    sum
                };
                sum.store_part(c);
            }
        }
        if !self.epilogue.is_none() {
            let whole = Whole {
                c: self.c.0,
                stride: self.c_stride,
                row,
                column: col,
                rows,
                columns: cols,
            };
            // SAFETY: the place is the caller's.
            unsafe { self.epilogue.apply(self.isa, whole) }
        }
    }
}

/// The `floats` of `room` that start with a line of memory; it has a line more.
fn aligned(room: &mut [f32], floats: usize) -> &mut [f32] {
    let skipped = room.as_ptr().align_offset(64).min(LANES);
    &mut room[skipped..][..floats]
}
