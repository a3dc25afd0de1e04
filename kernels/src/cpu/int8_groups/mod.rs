//! Products of codes with activations that are rounded to 8 bits in groups, as llama.cpp multiplies weights of block formats.
//!
//! The second factor is held as codes that are whole numbers and scales (`codes.rs`), a scale for each 16 or 32 of k; numbers that are
//! rounded products of the two count as the products. Each row of the first factor is
//! rounded in the same groups to 127 steps of its largest size in both directions: q = round(x * (127 / most)), ties to even, and
//! a step d = most / 127. A group adds, with exact sums of integers,
//!   `sum = fma(f32(sum of code * q), scale * d, sum)`, and where groups have offsets `sum = fma(offset, d * f32(sum of q), sum)`.
//! A leaf is one such chain over its groups, from 0; leaves are merged as everywhere (`tile.rs`), and where they are no whole
//! groups, all of k is one. Nothing else touches the bits: rows do not depend on each other, and instruction sets agree. A row has NaN where one of a group's numbers is not finite;
//! groups whose numbers are all below 1e-30 count as zeros.
//!
//! A panel is 32 columns: for each group two vectors of scales (and of offsets), then the codes of each four of k, column by
//! column, as AVX-512 VNNI's products of bytes read them. They are stored without a sign, with an offset that the rows'
//! sums of codes take away again. Codes of 4 bits alternate between eight of k in a byte. AMX's tiles read the same panels
//! (`tiles.rs`).
#![expect(unsafe_code, reason = "tasks write disjoint tiles of one output")]

#[cfg(target_arch = "x86_64")]
mod amx;
#[cfg(target_arch = "x86_64")]
mod avx2;
mod layout;
#[cfg(target_arch = "aarch64")]
mod neon;
mod pack;
mod plain;
mod rows;
#[cfg(test)]
mod tests;
mod tiles;
#[cfg(target_arch = "x86_64")]
mod vnni;

use rayon::prelude::*;

use super::codes::{
    Bytes, BytesWithOffsets, Code, Nibbles, NibblesWithOffsets, RoundedBytes, WideBytes,
};
use super::epilogue::{Epilogue, Whole};
use super::output::Shared;
use super::pack::Matrix;
use super::plan::{PARALLEL_ABOVE, Plan, ViewMut, share};
use super::tile::Finish;
use super::{Isa, pieces};
use crate::{DType, Result, Tensor};
use layout::{Chain, Compute, HEIGHT, Held, Loops, Sums, TALL, TileRows, WIDTH};
pub(crate) use pack::{fill, floats};
use rows::{Rows, words_of_row};
use tiles::Emulation;

/// Bytes of rows that a task goes through with each panel: a part of the second cache.
const BLOCK_BYTES: usize = 256 << 10;
/// Tasks for each thread.
const TASKS: usize = 8;
/// A packed second factor.
#[derive(Clone, Copy)]
pub(crate) struct Right<'a> {
    pub(crate) words: &'a [f32],
    pub(crate) code: Code,
}

/// The unit that computes tiles of sixteen rows.
#[derive(Clone, Copy, PartialEq, Eq)]
enum TallTiles {
    /// The processor's.
    #[cfg(target_arch = "x86_64")]
    Native,
    #[cfg_attr(not(test), expect(dead_code, reason = "slower than tiles of few rows"))]
    Emulated,
}

/// Multiplies; shapes are checked.
/// # Errors
/// `Memory` if the rounded rows do not fit.
pub(crate) fn gemm(c: ViewMut<'_>, a: Matrix<'_>, right: Right<'_>, plan: Plan<'_>) -> Result<()> {
    #[cfg(target_arch = "x86_64")]
    let tall = amx::is_used(plan.device.isa()).then_some(TallTiles::Native);
    #[cfg(not(target_arch = "x86_64"))]
    let tall = None;
    gemm_by(tall, c, a, right, plan)
}

fn gemm_by(
    tall: Option<TallTiles>,
    mut c: ViewMut<'_>,
    a: Matrix<'_>,
    right: Right<'_>,
    plan: Plan<'_>,
) -> Result<()> {
    let (m, n, k) = (c.rows, c.cols, a.cols());
    let Right { words, code } = right;
    let groups = k.div_ceil(code.steps());
    let isa = plan.device.isa();
    let parallel =
        plan.parallel && rayon::current_num_threads() > 1 && m * n * k.max(1) > PARALLEL_ABOVE;
    let tiles = tiles_of(m, tall.is_some());
    let all_rows: usize = tiles.iter().map(|tile| tile.height).sum();
    let mut rounded = Tensor::empty(
        &[(all_rows * words_of_row(code, groups)).max(1)],
        DType::F32,
        plan.device,
    )?;
    let rows = Rows { code, groups };
    rows.round(isa, a, &tiles, rounded.f32_mut(), parallel);
    let panels = n.div_ceil(WIDTH);
    let is_split = plan.leaf > 0 && plan.leaf.is_multiple_of(code.steps());
    let leaf = match is_split {
        true => (plan.leaf / code.steps()).min(groups.max(1)),
        false => groups.max(1),
    };
    let threads = if parallel {
        rayon::current_num_threads()
    } else {
        1
    };
    let high = (BLOCK_BYTES / (HEIGHT * groups * code.steps()).max(1)).max(1);
    let blocks = tiles.len().div_ceil(high);
    let strips = (TASKS * threads).div_ceil(blocks).clamp(1, panels);
    let whole = Product {
        isa,
        tall,
        rows,
        rounded: rounded.f32(),
        words,
        leaf,
        finish: plan.finish,
        epilogue: plan.epilogue,
        c: c.data.shared(),
        stride: c.row_stride,
        n,
    };
    let one = |task: usize| {
        let of = share(tiles.len(), task / strips, blocks);
        whole.task(&tiles[of], share(panels, task % strips, strips));
    };
    if parallel {
        pieces((0..blocks * strips).into_par_iter()).for_each(one);
    } else {
        (0..blocks * strips).for_each(one);
    }
    Ok(())
}

/// Tiles of heights that have a loop of their own.
fn tiles_of(m: usize, has_tall: bool) -> Vec<TileRows> {
    let mut tiles = Vec::with_capacity(m.div_ceil(HEIGHT) + 1);
    let mut first = 0;
    while first < m {
        let (count, height) = match m - first {
            left if has_tall && left > HEIGHT => (left.min(TALL), TALL),
            left @ (1 | 2 | 4) => (left, left),
            3 => (2, 2),
            5 => (4, 4),
            _ => (HEIGHT, HEIGHT),
        };
        tiles.push(TileRows {
            first,
            count,
            height,
        });
        first += count;
    }
    tiles
}

struct Product<'a> {
    isa: Isa,
    tall: Option<TallTiles>,
    rows: Rows,
    rounded: &'a [f32],
    words: &'a [f32],
    /// Groups per leaf.
    leaf: usize,
    finish: Finish,
    epilogue: Epilogue<'a>,
    c: Shared,
    stride: usize,
    n: usize,
}

impl Product<'_> {
    fn task(&self, tiles: &[TileRows], panels: std::ops::Range<usize>) {
        let Rows { code, groups } = self.rows;
        let apart = groups * code.group(WIDTH);
        let computes = [1, 2, 4, HEIGHT, TALL].map(|height| self.compute_of(height));
        #[cfg(target_arch = "x86_64")]
        let _ready = (self.tall == Some(TallTiles::Native)
            && tiles.iter().any(|tile| tile.height == TALL))
        .then(|| amx::Ready::new(code.quads()));
        let leaves = groups.div_ceil(self.leaf);
        let levels = (usize::BITS - leaves.leading_zeros()) as usize;
        let mut waiting = vec![[[0.0; WIDTH]; TALL]; levels];
        let mut sums = [[0.0; WIDTH]; TALL];
        for panel in panels {
            let words = &self.words[panel * apart..(panel + 1) * apart];
            for (number, tile) in tiles.iter().enumerate() {
                let compute = match tile.height {
                    1 => computes[0],
                    2 => computes[1],
                    4 => computes[2],
                    HEIGHT => computes[3],
                    _ => computes[4],
                };
                let own = self.rows.tile(self.rounded, *tile);
                let mut depth = 0;
                for leaf in 0..leaves {
                    let from = leaf * self.leaf;
                    let chain = Chain {
                        panel: words[from * code.group(WIDTH)..].as_ptr().cast(),
                        codes: own.codes[from * code.quads() * tile.height..].as_ptr(),
                        scales: own.scales[from * tile.height..].as_ptr(),
                        shifts: own.shifts[from * tile.height..].as_ptr(),
                        totals: own.totals[from * tile.height..].as_ptr(),
                        groups: self.leaf.min(groups - from),
                        is_first: number == 0,
                    };
                    // SAFETY: panel and rows have the chain's groups, and the machine has the instruction set.
                    unsafe { compute(chain, &mut sums) };
                    let merges = match leaf + 1 == leaves {
                        true => depth,
                        false => leaf.trailing_ones() as usize,
                    };
                    for _ in 0..merges {
                        depth -= 1;
                        add(&mut sums, &waiting[depth], tile.height);
                    }
                    if leaf + 1 < leaves {
                        waiting[depth][..tile.height].copy_from_slice(&sums[..tile.height]);
                        depth += 1;
                    }
                }
                self.store(*tile, panel, &mut sums);
            }
        }
    }

    /// The loop of tiles of a height.
    fn compute_of(&self, height: usize) -> Compute {
        let code = self.rows.code;
        match self.tall {
            #[cfg(target_arch = "x86_64")]
            Some(TallTiles::Native) if height == TALL => of_code::<amx::Native>(code, height),
            Some(TallTiles::Emulated) if height == TALL => of_code::<Emulation>(code, height),
            _ => compute_of(self.isa, code, height),
        }
    }

    /// Applies the epilogue to a tile's sums, and writes it.
    fn store(&self, tile: TileRows, panel: usize, sums: &mut Sums) {
        let whole = Whole {
            c: self.c,
            stride: self.stride,
            row: tile.first,
            column: panel * WIDTH,
            rows: tile.count,
            columns: WIDTH.min(self.n - panel * WIDTH),
        };
        if self.finish == Finish::Add {
            let Shared::F32(c) = self.c else {
                unreachable!("sums are added to outputs of f32 alone")
            };
            for (row, sums) in sums.iter_mut().enumerate().take(tile.count) {
                let at = (whole.row + row) * whole.stride + whole.column;
                // SAFETY: the tile is inside the output, and this task's.
                let c = unsafe { std::slice::from_raw_parts(c.add(at), whole.columns) };
                sums.iter_mut().zip(c).for_each(|(sum, c)| *sum += c);
            }
        }
        // SAFETY: the tile is inside the output, and each (tile, panel) belongs to one task.
        unsafe {
            let sums = (sums.as_flattened(), WIDTH);
            self.epilogue.apply_to(self.isa, whole, sums);
        }
    }
}

/// sums = waiting + sums
fn add(sums: &mut Sums, waiting: &Sums, height: usize) {
    let rows = sums.iter_mut().zip(waiting).take(height);
    for (sum, waiting) in rows.flat_map(|(sums, waiting)| sums.iter_mut().zip(waiting)) {
        *sum += waiting;
    }
}

/// The loop of an instruction set for tiles of a height.
fn compute_of(isa: Isa, code: Code, height: usize) -> Compute {
    #[cfg(target_arch = "x86_64")]
    if vnni::is_used(isa) {
        return of_code::<vnni::Vnni>(code, height);
    } else if avx2::is_used(isa) {
        return of_code::<avx2::Avx2>(code, height);
    }
    #[cfg(target_arch = "aarch64")]
    if neon::is_used(isa) {
        return of_code::<neon::Neon>(code, height);
    }
    let _ = isa;
    of_code::<plain::Plain>(code, height)
}

fn of_code<L: Loops>(code: Code, height: usize) -> Compute {
    match code {
        Code::Four => of_height::<L, Nibbles>(height),
        Code::FourWithOffsets => of_height::<L, NibblesWithOffsets>(height),
        Code::Eight => of_height::<L, Bytes>(height),
        Code::EightRounded => of_height::<L, RoundedBytes>(height),
        Code::EightWithWideScales => of_height::<L, WideBytes>(height),
        Code::EightWithOffsets => of_height::<L, BytesWithOffsets>(height),
        Code::Fp8 => unreachable!("sums of integers are of codes that are whole numbers"),
    }
}

fn of_height<L: Loops, T: Held>(height: usize) -> Compute {
    match height {
        1 => L::chain::<T, 1>(),
        2 => L::chain::<T, 2>(),
        4 => L::chain::<T, 4>(),
        _ => L::chain::<T, HEIGHT>(),
    }
}
