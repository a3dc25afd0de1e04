//! A block of the output in tiles: the order in which panels are multiplied, and the epilogue of complete sums.
#![expect(unsafe_code, reason = "tasks write disjoint tiles of one output")]

use super::super::bf16::{Step, Task};
use super::super::epilogue::{Epilogue, Whole};
use super::super::output::Shared;
use super::super::pack::Matrix;
use super::super::plan::{FEW_PANELS, share};
use super::super::prefetch::Prefetch;
use super::super::rotary::{Part, Rotary};
use super::super::scratch::ScratchPool;
use super::super::simd::{LANES, Lanes};
use super::super::tile::Finish;
use super::super::{Isa, pieces};
use super::pack::Order;
use super::panels::{floats_of_a, pack_a};
use super::sums::{Block, Stack, Waiting};
use super::unit::{BOTH, SIDE, Soon, Sums, Unit, Units};
use crate::{Bf16, DType, Device, Result, Tensor};
use rayon::prelude::*;
use std::marker::PhantomData;
use std::ops::Range;

/// Bytes of the panels of B that one task reuses repeatedly: most of a 2 MiB L2.
pub(super) const GROUP_BYTES: usize = 5 << 18;

/// Minimum panels per task: B comes from a farther cache.
pub(super) const GROUP_LEAST: usize = 4;

/// Source of rows of A.
#[derive(Clone, Copy)]
pub(super) enum Rows<'a> {
    /// Panels for all words of the span.
    Packed(&'a [f32]),
    /// The matrix itself: a task that alone uses a panel packs it, and so has it in the nearest caches.
    Apart(Matrix<'a>),
}

/// Source of columns of B.
#[derive(Clone, Copy)]
pub(super) enum Columns<'a> {
    /// Panels for all words of the span.
    Packed(&'a [f32]),
    /// The matrix itself, whose lanes are columns: few rows use a pack of it once.
    Apart(Matrix<'a>),
}

/// A block of the output and its operands.
pub(super) struct Rect<'a, U> {
    pub(super) isa: Isa,
    pub(super) order: Order,
    /// Rows of a panel of A: 32, or all if they are at most 16.
    pub(super) height: usize,
    /// Words of k that packs have, whole blocks.
    pub(super) span: (usize, usize),
    pub(super) a: Rows<'a>,
    pub(super) b: Columns<'a>,
    pub(super) m: usize,
    pub(super) n: usize,
    pub(super) finish: Finish,
    pub(super) epilogue: Epilogue<'a>,
    /// All of the output, and where the block starts in it.
    pub(super) c: Shared,
    pub(super) at: (usize, usize),
    pub(super) c_stride: usize,
    pub(super) units: PhantomData<fn() -> U>,
}

impl<U> Clone for Rect<'_, U> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<U> Copy for Rect<'_, U> {}

impl<U: Units> Rect<'_, U> {
    pub(super) fn multiply(&self, device: &Device, parallel: bool) -> Result<()> {
        let (rows, cols) = (self.m.div_ceil(self.height), self.n.div_ceil(BOTH));
        let fit = GROUP_BYTES / (4 * self.order.steps() * BOTH).max(1);
        let group = match self.b {
            Columns::Packed(_) => fit.max(GROUP_LEAST).min(cols),
            Columns::Apart(_) => cols,
        };
        let groups = cols.div_ceil(group);
        // On one thread, a strip as high as the block; else enough tasks that the threads finish together.
        let tasks = if parallel {
            8 * rayon::current_num_threads()
        } else {
            1
        };
        let (across, down) = match self.b {
            // With few rows, threads share the columns of a row.
            Columns::Packed(_) if self.m <= FEW_PANELS * BOTH => (groups.max(tasks).min(cols), 1),
            Columns::Packed(_) => (groups, tasks.div_ceil(groups).clamp(1, rows)),
            // Each column is packed once.
            Columns::Apart(_) => (tasks.min(cols), 1),
        };
        let wide = cols.div_ceil(across);
        let wide = wide.next_multiple_of(self.epilogue.unit(BOTH));
        let across = cols.div_ceil(wide);
        // Panels of A that several tasks or separately packed columns use are packed beforehand.
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
        let scratch_pool = ScratchPool::new(threads, || {
            let waiting = Waiting::new(self.order.cuts(), tiles, device)?;
            let panel = |floats| Tensor::empty(&[floats], DType::F32, device);
            Ok((waiting, panel(panel_a)?, panel(panel_b)?, panel(strip)?))
        })?;
        let one = |task: usize| {
            let (x, y) = (task / down, task % down);
            scratch_pool.with(|(waiting, panel_a, panel_b, strip)| {
                let (own, shared) = waiting.parts();
                let work = Work {
                    rect,
                    rows: share(rows, y, down),
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

/// Panels of rows and of columns of a part of the output.
struct Panels {
    rows: Range<usize>,
    cols: Range<usize>,
}

/// Sums of a task that wait in the tree.
struct WaitingSums<'a> {
    /// Of each tile.
    own: &'a mut [Sums],
    /// Of one tile at a time.
    shared: &'a mut [Sums],
}

/// Panels of rows and of columns, and a task's buffers: sums of its columns' tiles, sums that they share, panels of
/// rows and of columns that it packs itself.
pub(super) struct Work<'a, U> {
    pub(super) rect: &'a Rect<'a, U>,
    pub(super) rows: Range<usize>,
    pub(super) cols: Range<usize>,
    pub(super) own: &'a mut [Sums],
    pub(super) shared: &'a mut [Sums],
    pub(super) panels: (&'a mut [f32], &'a mut [f32]),
    /// Buffer for a row of tiles whose heads get their rotary embedding before they are written.
    pub(super) strip: &'a mut [f32],
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
                    rect.order
                        .pack_b(rect.isa, first, from..to, 1, apart, panel_b);
                    (&*panel_b, next..next + 1)
                }
            };
            next = cols.end;
            let panels = (&mut *panel_a, b);
            let part = Panels {
                rows: rows.clone(),
                cols,
            };
            let sums = WaitingSums {
                own: &mut *own,
                shared: &mut *shared,
            };
            rect.rows_by_columns::<L, _>(&mut unit, part, panels, sums, strip);
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

    /// Writes sums to the output from (row, col) of the block on, clipped to its edge, and applies the epilogue.
    /// # Safety
    /// The position must be inside the output, and no other task may use it.
    #[inline(always)]
    unsafe fn finish<L: Lanes>(&self, sums: &Sums, row: usize, col: usize) {
        let whole = self.whole(row, col);
        let c = match whole.c {
            Shared::F32(c) if self.epilogue.is_none() || self.finish == Finish::Add => c,
            // SAFETY: no other task uses these elements of the output, by this function's contract.
            _ => return unsafe { self.epilogue.apply_to(self.isa, whole, (&sums.0, BOTH)) },
        };
        // SAFETY: all rows and columns are inside the output and no other task's, by this function's contract.
        unsafe {
            let c = c.add(whole.row * whole.stride + whole.column);
            match (whole.columns, self.finish) {
                (BOTH, Finish::Store) => write::<L, false>(sums, (c, whole.stride), whole.rows),
                (BOTH, Finish::Add) => write::<L, true>(sums, (c, whole.stride), whole.rows),
                (columns, finish) => {
                    write_part::<L>(sums, (c, whole.stride), [whole.rows, columns], finish);
                }
            }
        }
        if !self.epilogue.is_none() {
            // SAFETY: no other task uses these elements of the output, by this function's contract.
            unsafe { self.epilogue.apply(self.isa, whole) }
        }
    }
}

impl<U> Rect<'_, U> {
    /// Computes all tiles of some panels of rows and the panels of columns in `b`, row of tiles by row: a panel of
    /// A stays in L1, and the output's rows are written sequentially.
    #[inline(always)]
    fn rows_by_columns<L: Lanes, T: Unit>(
        &self,
        unit: &mut T,
        Panels { rows, cols }: Panels,
        (panel, b): (&mut [f32], &[f32]),
        WaitingSums { own, shared }: WaitingSums<'_>,
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
                        .pack_a(self.isa, (a, first), from..to, self.height, panel);
                    &*panel
                }
            };
            // The next panel to prefetch; padding of leaves only shifts it.
            let mut ahead = match self.a {
                Rows::Packed(_) => Prefetch::none(),
                Rows::Apart(a) => {
                    let first = self.at.0 + (i + 1) * self.height;
                    let end = (first + self.height).min(self.at.0 + self.m);
                    Prefetch::of(a, first..end, 2 * from..2 * to)
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
                    self.visit::<L, _>(unit, &block, [i, j], &mut sums, (of_strip, stride));
                }
            }
            if to == cuts.k
                && let Some(rotary) = self.epilogue.rotary()
            {
                // SAFETY: rows and columns are inside the block of the output, and this task alone writes them.
                unsafe { self.turn(rotary, (i, cols.clone()), strip) }
            }
        }
    }

    /// Applies rotary embedding to a row of tiles whose sums are complete in `strip`, and writes it.
    /// # Safety
    /// No other task uses its part of the output.
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
        // SAFETY: `settle` writes the same rows and columns of the output, which no other task uses by this
        // function's contract.
        unsafe {
            match self.c {
                Shared::F32(c) => rotary.settle(self.isa, strip, ((c, apart), bias), part),
                Shared::Bf16(c) => rotary.settle(self.isa, strip, ((c, apart), bias), part),
            }
        }
    }

    /// Computes the tile of panels (i, j) over a block of k; the last one writes the output.
    #[inline(always)]
    fn visit<L: Lanes, T: Unit>(
        &self,
        unit: &mut T,
        block: &Block<'_>,
        [i, j]: [usize; 2],
        sums: &mut Stack<'_>,
        (strip, stride): (&mut [f32], usize),
    ) {
        let (row, col) = (i * self.height, j * BOTH);
        let is_last = block.end == block.cuts.k;
        let mut soon = self.soon(block, row, col);
        if is_last && matches!(self.c, Shared::F32(_)) {
            self.whole(row, col).prefetch_second::<L>(&self.epilogue);
        }
        let tall = self.height.next_multiple_of(SIDE);
        block.add::<L, _>(unit, sums, self.height, tall, &mut soon);
        if is_last && self.epilogue.rotary().is_some() {
            let rows = self.height.min(self.m - row);
            assert!((rows - 1) * stride + BOTH <= strip.len(), "a tile fits");
            // SAFETY: `strip` has `rows` rows of a tile, `stride` apart, by the assert.
            unsafe { write::<L, false>(sums.at(0), (strip.as_mut_ptr(), stride), rows) }
        } else if is_last {
            // SAFETY: rows and columns are inside the block of the output, and this task alone writes them.
            unsafe { self.finish::<L>(sums.at(0), row, col) }
        }
    }

    /// Lines that a block of k prefetches. Tall tiles: those of the output, and of a second matrix in bf16, from (row, col) of
    /// the block on, in the first steps of k. Flat ones read a pack of B from memory at its bandwidth: the words of B that
    /// follow.
    #[inline(always)]
    pub(super) fn soon(&self, block: &Block<'_>, row: usize, col: usize) -> Soon {
        if self.height <= SIDE && matches!(self.b, Columns::Packed(_)) {
            return Soon::of_columns(block.b.as_ptr());
        }
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

/// Writes whole rows of sums, or adds them.
/// # Safety
/// From `c` on there are rows of 32 floats at this distance, which no other task uses.
#[inline(always)]
unsafe fn write<L: Lanes, const ADD: bool>(
    sums: &Sums,
    (c, apart): (*mut f32, usize),
    rows: usize,
) {
    let sums = sums.0.as_ptr();
    for row in 0..rows.min(BOTH) {
        for at in [0, LANES] {
            // SAFETY: rows of 32 floats are at `c`, by this function's contract; sums have 32 rows.
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

/// Like `write`, for some columns.
/// # Safety
/// From `c` on there are this many columns, which no other task uses.
#[inline(always)]
unsafe fn write_part<L: Lanes>(
    sums: &Sums,
    (c, apart): (*mut f32, usize),
    [rows, columns]: [usize; 2],
    finish: Finish,
) {
    for (row, sums) in sums.0.chunks_exact(BOTH).take(rows).enumerate() {
        // SAFETY: the row has `columns` floats from `c` on, which no other task uses, by this function's contract.
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
