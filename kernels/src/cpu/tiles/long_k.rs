//! Products over a long k, blocked in both k and the output.
//!
//! Panels for all of k would be read from memory again for every few tiles. Here a block of k of some rows and
//! columns is packed into L2, used by all tiles of their square, and dropped; sums wait in memory from block to
//! block.

use super::super::pack::Matrix;
use super::super::pieces;
use super::super::scratch::ScratchPool;
use super::panels::{each_panel, room};
use super::rect::{Columns, Rect, Rows, Work};
use super::sums::Waiting;
use super::unit::{BOTH, SIDE, Sums, Units};
use crate::{Device, Result};
use rayon::prelude::*;

/// Panels of rows and of columns per square. Wide, although waiting sums then take 2 MiB: each square packs its
/// rows again, from memory.
const HIGH: usize = 16;
const WIDE: usize = 32;

/// Multiplies a, b (lanes are columns) into the output of `rect`.
/// # Errors
/// `Memory` if packs or sums do not fit.
pub(super) fn multiply<U: Units>(
    rect: &Rect<'_, U>,
    a: Matrix<'_>,
    b: Matrix<'_>,
    device: &Device,
    parallel: bool,
) -> Result<()> {
    let cuts = rect.order.cuts();
    let longest = cuts.blocks().map(|(start, end)| end - start).max();
    let longest = longest.unwrap_or(0);
    let tall = rect.height.next_multiple_of(SIDE);
    let (rows, cols) = (rect.m.div_ceil(rect.height), rect.n.div_ceil(BOTH));
    let (high, wide) = (HIGH.min(rows), WIDE.min(cols));
    let mut packed_a = room(high * longest * tall, device)?;
    let mut packed_b = room(wide * longest * BOTH, device)?;
    let mut waiting = Waiting::new(cuts, high * wide, device)?;
    let threads = if parallel { high } else { 1 };
    let shared = ScratchPool::new(threads, || Waiting::new(cuts, 0, device))?;
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
                    order.pack_a(isa, (a, first), start..end, rect.height, out);
                });
                let out = &mut packed_b.f32_mut()[..j.len() * panel_b];
                let each = if parallel { 2 } else { j.len() };
                each_panel(out, each * panel_b, parallel, |part, out| {
                    let first = (j.start + part * each) * BOTH;
                    let count = out.len() / panel_b;
                    order.pack_b(isa, (b, first), start..end, count, panel_b, out);
                });
                let square = Rect {
                    span: (start, end),
                    a: Rows::Packed(packed_a.f32()),
                    b: Columns::Packed(packed_b.f32()),
                    m: rect.m.min(i.end * rect.height) - i.start * rect.height,
                    n: rect.n.min(j.end * BOTH) - j.start * BOTH,
                    at: (
                        rect.at.0 + i.start * rect.height,
                        rect.at.1 + j.start * BOTH,
                    ),
                    ..*rect
                };
                let one = |(row, own): (usize, &mut [Sums])| {
                    shared.with(|shared| {
                        let work = Work {
                            rect: &square,
                            rows: row..row + 1,
                            cols: 0..j.len(),
                            own,
                            shared: shared.parts().1,
                            panels: (&mut [], &mut []),
                            strip: &mut [],
                        };
                        U::perform(isa, work);
                    });
                };
                let each = j.len() * waiting.levels.0;
                let own = &mut waiting.parts().0[..i.len() * each];
                if parallel {
                    pieces(own.par_chunks_mut(each).enumerate()).for_each(one);
                } else {
                    own.chunks_mut(each).enumerate().for_each(one);
                }
            }
        }
    }
    Ok(())
}
