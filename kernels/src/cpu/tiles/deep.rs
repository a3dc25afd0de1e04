//! Products over a long k: squares of the output, block of k by block of k.
//!
//! Panels for all of k would pass through memory once for every few tiles. Here a block of k of some rows and columns
//! is packed into L2, used by all tiles of their square, and dropped; sums wait in memory from block to block.

use super::super::bf16::{Step, Task, perform};
use super::super::pack::View;
use super::super::simd::Lanes;
use super::unit::{BOTH, SIDE, Sums, Unit, Units};
use super::{Block, Rect, each_panel, room};
use crate::{Device, Result};
use rayon::prelude::*;
use std::ops::Range;

/// Panels of rows and of columns of a square: packs of both are about 512 KiB.
const HIGH: usize = 16;
const WIDE: usize = 16;

/// Multiplies a, b (lanes are columns) into the output of `rect`.
/// # Errors
/// `Memory` if packs or sums do not fit.
pub(super) fn multiply<U: Units>(
    rect: &Rect<'_, U>,
    (a, b): (View<'_>, View<'_>),
    device: &Device,
    parallel: bool,
) -> Result<()> {
    let cuts = rect.order.cuts();
    let longest = cuts.blocks().map(|(start, end)| end - start).max();
    let longest = longest.unwrap_or(0);
    let levels = cuts.levels().max(1);
    let tall = rect.height.next_multiple_of(SIDE);
    let (rows, cols) = (rect.m.div_ceil(rect.height), rect.n.div_ceil(BOTH));
    let (high, wide) = (HIGH.min(rows), WIDE.min(cols));
    let mut packed_a = room(high * longest * tall, device)?;
    let mut packed_b = room(wide * longest * BOTH, device)?;
    let mut sums = room(high * wide * levels * BOTH * BOTH, device)?;
    for j in (0..cols).step_by(wide) {
        let j = j..cols.min(j + wide);
        for i in (0..rows).step_by(high) {
            let i = i..rows.min(i + high);
            for (start, end) in cuts.blocks() {
                let (panel_a, panel_b) = ((end - start) * tall, (end - start) * BOTH);
                let (isa, order) = (rect.isa, rect.order);
                let out = &mut packed_a.f32_mut()[..i.len() * panel_a];
                each_panel(out, panel_a, parallel, |panel, out| {
                    let first = (i.start + panel) * rect.height;
                    order.pack_a(isa, (a, first), (start, end), rect.height, out);
                });
                let out = &mut packed_b.f32_mut()[..j.len() * panel_b];
                let each = if parallel { 2 } else { j.len() };
                each_panel(out, each * panel_b, parallel, |part, out| {
                    let first = (j.start + part * each) * BOTH;
                    let count = out.len() / panel_b;
                    order.pack_b(isa, (b, first), (start, end), (count, panel_b), out);
                });
                let (a, b) = (packed_a.f32(), packed_b.f32());
                let one = |(number, sums): (usize, &mut [Sums])| {
                    let row = Row {
                        rect,
                        row: i.start + number,
                        cols: j.clone(),
                        a: &a[number * panel_a..(number + 1) * panel_a],
                        b: &b[..j.len() * panel_b],
                        block: (start, end),
                        sums,
                    };
                    perform(isa, true, row);
                };
                let sums = tiles_of(sums.f32_mut());
                let all = &mut sums[..i.len() * j.len() * levels];
                if parallel {
                    let rows = all.par_chunks_mut(j.len() * levels);
                    rows.enumerate().for_each(one);
                } else {
                    let rows = all.chunks_mut(j.len() * levels);
                    rows.enumerate().for_each(one);
                }
            }
        }
    }
    Ok(())
}

/// Room as sums of tiles.
fn tiles_of(room: &mut [f32]) -> &mut [Sums] {
    // SAFETY: sums are floats, of which every pattern is valid.
    let (before, sums, _) = unsafe { room.align_to_mut::<Sums>() };
    assert!(before.is_empty(), "buffers start with a line of memory");
    sums
}

/// A row of a square's tiles and a block of k.
struct Row<'a, U> {
    rect: &'a Rect<'a, U>,
    row: usize,
    cols: Range<usize>,
    a: &'a [f32],
    b: &'a [f32],
    block: (usize, usize),
    sums: &'a mut [Sums],
}

impl<U: Units> Task for Row<'_, U> {
    #[inline(always)]
    fn run<L: Lanes, N: Step<L>>(self) {
        let Row {
            rect,
            row,
            cols,
            block: (start, end),
            ..
        } = self;
        let mut unit = U::Of::<L>::start(rect.height);
        let cuts = rect.order.cuts();
        let levels = cuts.levels().max(1);
        let panels = self.b.chunks_exact((end - start) * BOTH);
        let tiles = cols.zip(panels).zip(self.sums.chunks_exact_mut(levels));
        for ((j, b), sums) in tiles {
            let block = Block {
                a: self.a,
                b,
                cuts,
                start,
                end,
            };
            rect.visit::<L, _>(&mut unit, &block, (row, j), sums);
        }
    }
}
