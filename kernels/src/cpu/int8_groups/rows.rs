//! Rows of the first factor, rounded to 8 bits in groups. Those of a tile are interleaved: four codes of each row, then the next
//! four; those of a tile of AMX are not: a group of each row, then the next group. Behind them are the steps, shifts and sums of each
//! group, row by row.

use rayon::prelude::*;

use super::layout::{QUAD, TALL, TileRows};
use crate::cpu::Isa;
use crate::cpu::codes::{Code, MOST};
use crate::cpu::pack::{Matrix, View};
use crate::cpu::simd::{NEAREST, vector_fn};

/// Greatest size of a code.
const LARGEST: f32 = 127.0;
/// Groups whose numbers are all smaller than this are zero: 127 divided by it is finite.
const LEAST: f32 = 1e-30;

/// Words of memory that a row takes.
pub(super) fn words_of_row(code: Code, groups: usize) -> usize {
    groups * (code.quads() + 3)
}

/// The form of rounded rows.
#[derive(Clone, Copy)]
pub(super) struct Rows {
    pub(super) code: Code,
    /// Groups of a row.
    pub(super) groups: usize,
}

/// The rounded rows of a tile.
pub(super) struct Tile<'a> {
    pub(super) codes: &'a [u32],
    /// The step of each group.
    pub(super) scales: &'a [f32],
    /// Added to each group's sum of products: it takes away the shift of the other factor's codes.
    pub(super) shifts: &'a [i32],
    /// The step times the sum of codes of each group.
    pub(super) totals: &'a [f32],
}

/// A group's codes, their step and their sum.
struct Group {
    codes: [i8; MOST],
    scale: f32,
    sum: i32,
}

impl Rows {
    /// Rounds the rows of the tiles, which follow each other in `out`.
    pub(super) fn round(
        self,
        isa: Isa,
        a: Matrix<'_>,
        tiles: &[TileRows],
        out: &mut [f32],
        parallel: bool,
    ) {
        let mut tasks = Vec::with_capacity(tiles.len());
        let mut left = out;
        for tile in tiles {
            let words = tile.height * words_of_row(self.code, self.groups);
            let (own, others) = left.split_at_mut(words);
            tasks.push((*tile, own));
            left = others;
        }
        let one = |(tile, out): (TileRows, &mut [f32])| self.round_tile(isa, a, tile, out);
        if parallel {
            tasks.into_par_iter().for_each(one);
        } else {
            tasks.into_iter().for_each(one);
        }
    }

    fn round_tile(self, isa: Isa, a: Matrix<'_>, tile: TileRows, out: &mut [f32]) {
        let Matrix::F32(a) = a else {
            unreachable!("products of f32 have factors of f32")
        };
        let all = tile.height * self.groups;
        let (codes, numbers) = out.split_at_mut(all * self.code.quads());
        let codes: &mut [u32] = bytemuck::cast_slice_mut(codes);
        let (scales, numbers) = numbers.split_at_mut(all);
        let (shifts, totals) = numbers.split_at_mut(all);
        let shifts: &mut [i32] = bytemuck::cast_slice_mut(shifts);
        let mut row = vec![0.0; self.groups * self.code.steps()];
        for own in 0..tile.count {
            copy(a, tile.first + own, &mut row);
            let groups = row.chunks_exact(self.code.steps());
            for (number, x) in groups.enumerate() {
                let group = round(isa, x);
                let at = number * tile.height + own;
                scales[at] = group.scale;
                shifts[at] = -self.code.shift() * group.sum;
                totals[at] = group.scale * group.sum as f32;
                let quads = group.codes.as_chunks::<QUAD>().0;
                for (quad, four) in quads[..self.code.quads()].iter().enumerate() {
                    let at = match tile.height {
                        TALL => (number * TALL + own) * self.code.quads() + quad,
                        height => (number * self.code.quads() + quad) * height + own,
                    };
                    codes[at] = u32::from_le_bytes(four.map(i8::cast_unsigned));
                }
            }
        }
    }

    pub(super) fn tile(self, rounded: &[f32], tile: TileRows) -> Tile<'_> {
        let of_row = words_of_row(self.code, self.groups);
        let own = &rounded[tile.first * of_row..][..tile.height * of_row];
        let all = tile.height * self.groups;
        let (codes, numbers) = own.split_at(all * self.code.quads());
        let (scales, numbers) = numbers.split_at(all);
        let (shifts, totals) = numbers.split_at(all);
        Tile {
            codes: bytemuck::cast_slice(codes),
            scales,
            shifts: bytemuck::cast_slice(shifts),
            totals,
        }
    }
}

/// Copies a row; what is behind it stays zero.
fn copy(a: View<'_>, row: usize, out: &mut [f32]) {
    let start = row * a.row_stride;
    if a.col_stride == 1 {
        out[..a.cols].copy_from_slice(&a.data[start..start + a.cols]);
        return;
    }
    for (column, out) in out[..a.cols].iter_mut().enumerate() {
        *out = a.data[start + column * a.col_stride];
    }
}

fn round(isa: Isa, x: &[f32]) -> Group {
    match x.as_array() {
        Some(whole) => round_whole(isa, whole),
        None => {
            let mut whole = [0.0; MOST];
            whole[..x.len()].copy_from_slice(x);
            round_whole(isa, &whole)
        }
    }
}

vector_fn! {
    fn round_whole<L>(x: &[f32; MOST]) -> Group {
        group(x)
    }
}

#[inline(always)]
fn group(x: &[f32; MOST]) -> Group {
    let sizes = x.iter().map(|x| x.to_bits() & 0x7fff_ffff);
    // the bits of NaN and infinity are above all others
    let most = f32::from_bits(sizes.fold(0, u32::max));
    let mut codes = [0; MOST];
    let has_size = most.is_finite() && most >= LEAST;
    let by = if has_size { LARGEST / most } else { 0.0 };
    for (code, x) in codes.iter_mut().zip(x) {
        // the low byte of a number so large is a whole number, nearest to the product, with its sign
        let [low, ..] = (x * by + NEAREST).to_bits().to_le_bytes();
        *code = low.cast_signed();
    }
    let scale = match (has_size, most.is_finite()) {
        (true, _) => most / LARGEST,
        (false, true) => 0.0,
        (false, false) => {
            codes = [0; MOST];
            f32::NAN
        }
    };
    let sum = codes.iter().map(|code| i32::from(*code)).sum();
    Group { codes, scale, sum }
}
