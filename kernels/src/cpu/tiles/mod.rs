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
//! A tile of the output is up to 32 x 32 sums in four of eight tiles (`unit.rs`), which are the processor's with AMX
//! (`amx.rs`) and emulated anywhere else. A row of such tiles is made at a time: a block of k of a panel of A stays in L1
//! while panels of B from L2 meet it, and rows of the output are written on and on. Between two blocks sums lie in memory
//! (`sums.rs`); a long k goes over squares of the output (`deep.rs`).
#![expect(unsafe_code, reason = "tasks write disjoint tiles of one output")]

#[cfg(target_arch = "x86_64")]
pub(super) mod amx;
#[cfg(any(test, target_arch = "x86_64"))]
mod check;
mod deep;
mod pack;
#[cfg(any(test, target_arch = "x86_64"))]
mod speed;
pub(super) mod strided;
mod sums;
#[cfg(test)]
mod tests;
mod unit;

use super::ahead::Ahead;
use super::bf16::{Step, Task};
use super::epilogue::{Epilogue, Whole};
use super::gemm::{
    FEW_PANELS, PACK_A_BYTES, PACK_B_BYTES, PARALLEL_ABOVE, Plan, ViewMut, block, share,
};
use super::output::Shared;
use super::pack::Matrix;
use super::rooms::Rooms;
use super::rotary::{Part, Rotary};
use super::simd::{LANES, Lanes};
use super::tile::Finish;
use super::{Isa, pieces};
use crate::{Bf16, DType, Device, Result, Tensor};
use pack::Order;
use rayon::prelude::*;
use std::marker::PhantomData;
use std::ops::Range;
use sums::{Block, Stack, Waiting};
use unit::{BOTH, Emulation, SIDE, Soon, Sums, Unit, Units};

/// Bytes of the panels of B that one task goes over again and again: most of a 2 MiB L2.
const GROUP_BYTES: usize = 5 << 18;
/// Panels that it takes even so: B comes from further away.
const GROUP_LEAST: usize = 4;
/// Words of k above which panels of B are too long for that (`deep.rs`).
const DEEP: usize = GROUP_BYTES / (4 * BOTH * GROUP_LEAST);

/// Why tiles are not used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(
    not(any(test, target_arch = "x86_64")),
    expect(dead_code, reason = "other architectures lack them for one reason")
)]
pub(super) enum Lack {
    /// The processor has none, or no vectors of bf16 pairs beside them.
    Cpu,
    /// The system does not give them.
    Leave,
    /// Their bits are not those promised.
    Check,
}

/// The second factor.
#[derive(Clone, Copy)]
pub(crate) enum Right<'a> {
    Matrix(Matrix<'a>),
    /// All of its panels, by `fill` for the plan's leaves.
    Packed(&'a [f32]),
}

/// Floats that `fill` writes for k words of n columns; None if products go over so long a k another way.
pub(crate) fn packed_floats((k, n): (usize, usize), leaf: usize) -> Option<usize> {
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

/// Keeps the processor's unit busy with so many steps of 32 x 32 sums; returns the multiplies and adds, None without
/// a unit.
pub(crate) fn busy(steps: usize) -> Option<f64> {
    #[cfg(target_arch = "x86_64")]
    if Isa::Amx.is_available() {
        return Some(speed::work::<amx::Native>(Isa::Amx, steps));
    }
    let _ = steps;
    None
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
        return deep::multiply(&rect, (a, b), plan.device, parallel);
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

/// Whether a product of m rows turns heads itself.
pub(super) fn turns(plan: &Plan<'_>, (m, k): (usize, usize)) -> bool {
    m > FEW_PANELS * BOTH && Order::new(k, plan.leaf).steps() <= DEEP
}

/// Room for `floats`; powers of two let packs of unlike shapes share pooled buffers.
fn room(floats: usize, device: &Device) -> Result<Tensor> {
    Tensor::empty(&[floats.max(1).next_power_of_two()], DType::F32, device)
}

/// Runs `one` for every part of `apart` floats.
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
        pieces(panels).for_each(|(panel, out)| one(panel, out));
    } else {
        let panels = out.chunks_mut(apart).enumerate();
        panels.for_each(|(panel, out)| one(panel, out));
    }
}

fn pack_a(
    a: Matrix<'_>,
    order: Order,
    (rows, height): (Range<usize>, usize),
    device: &Device,
    parallel: bool,
) -> Result<Tensor> {
    let apart = floats_of_a(order, height);
    let len = rows.len().div_ceil(height) * apart;
    let mut packed = room(len, device)?;
    let a = a.up_to(rows.end);
    each_panel(
        &mut packed.f32_mut()[..len],
        apart,
        parallel,
        |panel, out| {
            let first = rows.start + panel * height;
            order.pack_a(device.isa(), (a, first), (0, order.steps()), height, out);
        },
    );
    Ok(packed)
}

fn pack_b(
    b: Matrix<'_>,
    order: Order,
    columns: Range<usize>,
    device: &Device,
    parallel: bool,
) -> Result<Tensor> {
    let len = columns.len().div_ceil(BOTH) * order.steps() * BOTH;
    let mut packed = room(len, device)?;
    let b = (b.up_to(columns.end), columns.start);
    let out = &mut packed.f32_mut()[..len];
    fill_columns(out, b, order, device.isa(), parallel);
    Ok(packed)
}

/// Packs columns of b, whose lanes they are, from the first on.
fn fill_columns(
    out: &mut [f32],
    (b, first): (Matrix<'_>, usize),
    order: Order,
    isa: Isa,
    parallel: bool,
) {
    let steps = order.steps();
    let apart = steps * BOTH;
    // Neighbours are read together.
    let tasks = if parallel {
        2 * rayon::current_num_threads()
    } else {
        1
    };
    let each = (out.len() / apart.max(1)).div_ceil(tasks).max(1);
    each_panel(out, each * apart, parallel, |task, out| {
        let first = first + task * each * BOTH;
        let panels = (out.len() / apart, apart);
        order.pack_b(isa, (b, first), (0, steps), panels, out);
    });
}

/// Floats of a panel of A.
fn floats_of_a(order: Order, height: usize) -> usize {
    order.steps() * height.next_multiple_of(SIDE)
}

/// Where rows of A come from.
#[derive(Clone, Copy)]
enum Rows<'a> {
    /// Panels for all words of the span.
    Packed(&'a [f32]),
    /// The matrix: a task that alone uses a panel packs it and so has it in the nearest caches.
    Apart(Matrix<'a>),
}

/// Where columns of B come from.
#[derive(Clone, Copy)]
enum Columns<'a> {
    /// Panels for all words of the span.
    Packed(&'a [f32]),
    /// The matrix, whose lanes are columns: few rows use a pack of it once.
    Apart(Matrix<'a>),
}

/// A block of the output and what it comes from.
struct Rect<'a, U> {
    isa: Isa,
    order: Order,
    /// Rows of a panel of A: 32, or all if they are at most 16.
    height: usize,
    /// Words of k that packs have, whole blocks.
    span: (usize, usize),
    a: Rows<'a>,
    b: Columns<'a>,
    m: usize,
    n: usize,
    finish: Finish,
    epilogue: Epilogue<'a>,
    /// All of the output, and where the block starts in it.
    c: Shared,
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
    fn multiply(&self, device: &Device, parallel: bool) -> Result<()> {
        let (rows, cols) = (self.m.div_ceil(self.height), self.n.div_ceil(BOTH));
        let fit = GROUP_BYTES / (4 * self.order.steps() * BOTH).max(1);
        let group = match self.b {
            Columns::Packed(_) => fit.max(GROUP_LEAST).min(cols),
            Columns::Apart(_) => cols,
        };
        let groups = cols.div_ceil(group);
        // Alone, a strip as high as the block; else enough tasks that the threads end together.
        let tasks = if parallel {
            8 * rayon::current_num_threads()
        } else {
            1
        };
        let (across, down) = match self.b {
            // Few rows leave the threads parts of a row.
            Columns::Packed(_) if self.m <= FEW_PANELS * BOTH => (groups.max(tasks).min(cols), 1),
            Columns::Packed(_) => (groups, tasks.div_ceil(groups).clamp(1, rows)),
            // Each column is packed once.
            Columns::Apart(_) => (tasks.min(cols), 1),
        };
        let wide = cols.div_ceil(across);
        let wide = wide.next_multiple_of(self.epilogue.unit(BOTH));
        let across = cols.div_ceil(wide);
        // What several tasks or columns that are packed one by one go over is packed before them.
        let is_shared = across > 1 || matches!(self.b, Columns::Apart(_));
        let packed_a;
        let rect = match self.a {
            Rows::Apart(a) if is_shared => {
                let lanes = self.at.0..self.at.0 + self.m;
                packed_a = pack_a(a, self.order, (lanes, self.height), device, parallel)?;
                let a = Rows::Packed(packed_a.f32());
                &Rect { a, ..*self }
            }
            _ => self,
        };
        let panel_a = match rect.a {
            Rows::Packed(_) => 0,
            Rows::Apart(_) => floats_of_a(self.order, self.height),
        };
        let (tiles, panel_b) = match self.b {
            Columns::Packed(_) => (wide, 0),
            Columns::Apart(_) => (1, self.order.steps() * BOTH),
        };
        let strip = match self.epilogue.rotary() {
            Some(_) => wide * BOTH * BOTH,
            None => 0,
        };
        let threads = if parallel { across * down } else { 1 };
        let rooms = Rooms::new(threads, || {
            let waiting = Waiting::new(self.order.cuts(), tiles, device)?;
            let panel = |floats| Tensor::empty(&[floats], DType::F32, device);
            Ok((waiting, panel(panel_a)?, panel(panel_b)?, panel(strip)?))
        })?;
        let one = |task: usize| {
            let (x, y) = (task / down, task % down);
            rooms.with(|(waiting, panel_a, panel_b, strip)| {
                let (own, shared) = waiting.parts();
                let work = Work {
                    rect,
                    rows: share(rows, (y, down)),
                    cols: x * wide..cols.min((x + 1) * wide),
                    own,
                    shared,
                    panels: (panel_a.f32_mut(), panel_b.f32_mut()),
                    strip: strip.f32_mut(),
                };
                U::perform(self.isa, work);
            });
        };
        if parallel {
            pieces((0..across * down).into_par_iter()).for_each(one);
        } else {
            (0..across * down).for_each(one);
        }
        Ok(())
    }
}

/// Panels of rows and of columns, and where it works: sums of its columns' tiles, sums that they share, panels of rows
/// and of columns that lie apart.
struct Work<'a, U> {
    rect: &'a Rect<'a, U>,
    rows: Range<usize>,
    cols: Range<usize>,
    own: &'a mut [Sums],
    shared: &'a mut [Sums],
    panels: (&'a mut [f32], &'a mut [f32]),
    /// Room for a row of tiles whose heads turn before they are written.
    strip: &'a mut [f32],
}

impl<U: Units> Task for Work<'_, U> {
    #[inline(always)]
    fn run<L: Lanes, N: Step<L>>(self) {
        let Work {
            rect,
            rows,
            cols,
            own,
            shared,
            panels: (panel_a, panel_b),
            strip,
        } = self;
        let (from, to) = rect.span;
        let apart = (to - from) * BOTH;
        let mut unit = U::Of::<L>::start(rect.height);
        let mut next = cols.start;
        while next < cols.end {
            let (b, cols) = match rect.b {
                Columns::Packed(all) => (&all[next * apart..cols.end * apart], next..cols.end),
                Columns::Apart(b) => {
                    let first = (b, next * BOTH);
                    let one = (1, apart);
                    rect.order.pack_b(rect.isa, first, rect.span, one, panel_b);
                    (&*panel_b, next..next + 1)
                }
            };
            next = cols.end;
            let panels = (&mut *panel_a, b);
            let (part, sums) = ((rows.clone(), cols), (&mut *own, &mut *shared));
            rect.rows_by_columns::<L, _>(&mut unit, part, panels, sums, strip);
        }
    }
}

impl<U> Rect<'_, U> {
    /// All tiles of some panels of rows and those of columns in `b`, row of tiles by row: a panel of A stays in L1, and
    /// the output's rows are written on and on.
    #[inline(always)]
    fn rows_by_columns<L: Lanes, T: Unit>(
        &self,
        unit: &mut T,
        (rows, cols): (Range<usize>, Range<usize>),
        (panel, b): (&mut [f32], &[f32]),
        (own, shared): (&mut [Sums], &mut [Sums]),
        strip: &mut [f32],
    ) {
        let cuts = self.order.cuts();
        let each = cuts.own();
        let tall = self.height.next_multiple_of(SIDE);
        let (from, to) = self.span;
        for i in rows {
            let a = match self.a {
                Rows::Packed(a) => &a[i * (to - from) * tall..(i + 1) * (to - from) * tall],
                Rows::Apart(a) => {
                    let first = self.at.0 + i * self.height;
                    self.order
                        .pack_a(self.isa, (a, first), self.span, self.height, panel);
                    &*panel
                }
            };
            // Where the next panel comes from; leaves that fill their last step only shift it.
            let mut ahead = match self.a {
                Rows::Packed(_) => Ahead::none(),
                Rows::Apart(a) => {
                    let first = self.at.0 + (i + 1) * self.height;
                    let end = (first + self.height).min(self.at.0 + self.m);
                    Ahead::of(a, first..end, 2 * from..2 * to)
                }
            };
            let is_here = |&(start, end): &(usize, usize)| start >= from && end <= to;
            let blocks = cuts.blocks().filter(is_here);
            let some = ahead.each(cols.len() * blocks.clone().count());
            for (start, end) in blocks {
                let (at, stop) = (start - from, end - from);
                for (number, j) in cols.clone().enumerate() {
                    let b = &b[number * (to - from) * BOTH..(number + 1) * (to - from) * BOTH];
                    let block = Block {
                        a: &a[at * tall..stop * tall],
                        b: &b[at * BOTH..stop * BOTH],
                        cuts,
                        start,
                        end,
                    };
                    let own = &mut own[number * each..(number + 1) * each];
                    let mut sums = Stack::new(own, shared);
                    ahead.ask::<L>(some);
                    let of_strip = strip.get_mut(number * BOTH..).unwrap_or_default();
                    let stride = cols.len() * BOTH;
                    self.visit::<L, _>(unit, &block, (i, j), &mut sums, (of_strip, stride));
                }
            }
            if to == cuts.k
                && let Some(rotary) = self.epilogue.rotary()
            {
                // SAFETY: rows and columns lie inside the block of the output, which is this task's there.
                unsafe { self.turn(rotary, (i, cols.clone()), strip) }
            }
        }
    }

    /// Writes a row of tiles whose sums are whole in `strip`.
    /// # Safety
    /// Nobody else touches its place in the output.
    unsafe fn turn(
        &self,
        rotary: &Rotary<'_>,
        (i, cols): (usize, Range<usize>),
        strip: &mut [f32],
    ) {
        let (row, column) = (i * self.height, cols.start * BOTH);
        let part = Part {
            row: self.at.0 + row,
            column: self.at.1 + column,
            rows: self.height.min(self.m - row),
            columns: (cols.len() * BOTH).min(self.n - column),
        };
        let (apart, bias) = (self.c_stride, self.epilogue.bias);
        let strip = (strip, cols.len() * BOTH);
        // SAFETY: passed on to the caller.
        unsafe {
            match self.c {
                Shared::F32(c) => rotary.settle(self.isa, strip, ((c, apart), bias), part),
                Shared::Bf16(c) => rotary.settle(self.isa, strip, ((c, apart), bias), part),
            }
        }
    }

    /// Takes the tile of panels (i, j) through a block of k; the last one writes the output.
    #[inline(always)]
    fn visit<L: Lanes, T: Unit>(
        &self,
        unit: &mut T,
        block: &Block<'_>,
        (i, j): (usize, usize),
        sums: &mut Stack<'_>,
        (strip, stride): (&mut [f32], usize),
    ) {
        let (row, col) = (i * self.height, j * BOTH);
        let is_last = block.end == block.cuts.k;
        let mut soon = self.soon(block, (row, col));
        if is_last && matches!(self.c, Shared::F32(_)) {
            self.whole(row, col).ask_for_second::<L>(&self.epilogue);
        }
        let tall = self.height.next_multiple_of(SIDE);
        block.add::<L, _>(unit, sums, (self.height, tall), &mut soon);
        if is_last && self.epilogue.rotary().is_some() {
            let rows = self.height.min(self.m - row);
            assert!((rows - 1) * stride + BOTH <= strip.len(), "a tile fits");
            // SAFETY: inside by the assert.
            unsafe { write::<L, false>(sums.at(0), (strip.as_mut_ptr(), stride), rows) }
        } else if is_last {
            // SAFETY: rows and columns lie inside the block of the output, which is this task's there.
            unsafe { self.finish::<L>(sums.at(0), row, col) }
        }
    }

    /// What a block of k asks for of the lines of the output, and of a second matrix in bf16, from (row, col) of the
    /// block on: the first steps of k for all of them.
    #[inline(always)]
    fn soon(&self, block: &Block<'_>, (row, col): (usize, usize)) -> Soon {
        if self.height != BOTH || block.cuts.k == 0 {
            return Soon::NOTHING;
        }
        let at = (self.at.0 + row) * self.c_stride + self.at.1 + col;
        let (at, apart, rows) = match self.c {
            Shared::F32(c) => {
                let left = c.wrapping_add(at).cast_const();
                let right = left.wrapping_add(LANES);
                let apart = self.c_stride * size_of::<f32>();
                ([left.cast(), right.cast()], apart, BOTH)
            }
            Shared::Bf16(c) => {
                let c = c.wrapping_add(at).cast_const().cast::<u8>();
                let apart = self.c_stride * size_of::<Bf16>();
                match self.epilogue.second_at(at) {
                    Some(second) => ([c, second], apart, BOTH),
                    None => ([c, c.wrapping_add(SIDE * apart)], apart, SIDE),
                }
            }
        };
        let each = rows.div_ceil(block.cuts.k / SIDE).min(Soon::MOST);
        let first = block.start / SIDE * each;
        if first >= rows {
            return Soon::NOTHING;
        }
        Soon {
            at: at.map(|at| at.wrapping_add(first * apart)),
            apart,
            each,
        }
    }
}

impl<U> Rect<'_, U> {
    /// The place in the output of sums from (row, col) of the block on.
    #[inline(always)]
    fn whole(&self, row: usize, col: usize) -> Whole {
        Whole {
            c: self.c,
            stride: self.c_stride,
            row: self.at.0 + row,
            column: self.at.1 + col,
            rows: self.height.min(self.m - row),
            columns: BOTH.min(self.n - col),
        }
    }

    /// Writes sums to the output from (row, col) of the block on, as far as it goes, and does what follows.
    /// # Safety
    /// The place lies inside the output, and nobody else touches it.
    #[inline(always)]
    unsafe fn finish<L: Lanes>(&self, sums: &Sums, row: usize, col: usize) {
        let whole = self.whole(row, col);
        let c = match whole.c {
            Shared::F32(c) if self.epilogue.is_none() || self.finish == Finish::Add => c,
            // SAFETY: the place is the caller's.
            _ => return unsafe { self.epilogue.apply_to(self.isa, whole, (&sums.0, BOTH)) },
        };
        // SAFETY: the caller vouches for all rows and columns.
        unsafe {
            let c = c.add(whole.row * whole.stride + whole.column);
            match (whole.columns, self.finish) {
                (BOTH, Finish::Store) => write::<L, false>(sums, (c, whole.stride), whole.rows),
                (BOTH, Finish::Add) => write::<L, true>(sums, (c, whole.stride), whole.rows),
                (columns, finish) => {
                    let size = (whole.rows, columns);
                    write_part::<L>(sums, (c, whole.stride), size, finish);
                }
            }
        }
        if !self.epilogue.is_none() {
            // SAFETY: the place is the caller's.
            unsafe { self.epilogue.apply(self.isa, whole) }
        }
    }
}

/// Writes whole rows of sums, or adds them.
/// # Safety
/// Rows of 32 lie so far apart from `c` on, which nobody else touches.
#[inline(always)]
unsafe fn write<L: Lanes, const ADD: bool>(
    sums: &Sums,
    (c, apart): (*mut f32, usize),
    rows: usize,
) {
    let sums = sums.0.as_ptr();
    for row in 0..rows.min(BOTH) {
        for at in [0, LANES] {
            // SAFETY: by the caller's word; sums have 32 rows.
            unsafe {
                let (sum, c) = (
                    L::load_at(sums.add(row * BOTH + at)),
                    c.add(row * apart + at),
                );
                let sum = if ADD { L::load_at(c).add(sum) } else { sum };
                sum.store_at(c);
            }
        }
    }
}

/// As `write`, of some columns.
/// # Safety
/// As many lie from `c` on, which nobody else touches.
#[inline(always)]
unsafe fn write_part<L: Lanes>(
    sums: &Sums,
    (c, apart): (*mut f32, usize),
    (rows, columns): (usize, usize),
    finish: Finish,
) {
    for (row, sums) in sums.0.chunks_exact(BOTH).take(rows).enumerate() {
        // SAFETY: by the caller's word.
        let c = unsafe { std::slice::from_raw_parts_mut(c.add(row * apart), columns) };
        for (c, sums) in c.chunks_mut(LANES).zip(sums.chunks_exact(LANES)) {
            let sum = L::load(sums);
            let sum = match finish {
                Finish::Add => L::load_part(c, 0.0).add(sum),
                Finish::Store => sum,
            };
            sum.store_part(c);
        }
    }
}
