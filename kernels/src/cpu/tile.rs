//! Micro-kernel of the matrix product: one tile of the output, held in registers over a block of k.
//!
//! Each element is a sum over k cut into leaves: a leaf is one chain `acc = fma(a[k], b[k], acc)` from 0 (or of
//! pairs of bf16, `bf16.rs`: a step of "k" is then two, and k counts steps). Finished leaves are merged by the
//! binary-counter tree (DESIGN.md section 5 rule 2): after leaf i, as many merges as i has trailing one bits, and
//! at the end the rest from right to left. Partial sums that wait for their partner are in a small stack (one tile
//! per level). Between two blocks of k they wait there beside an unfinished chain, so that the blocking changes no
//! bits: a block never adds its own sum.
#![expect(
    unsafe_code,
    reason = "the inner loop reads packed panels through pointers"
)]

use super::bf16::Step;
use super::simd::{LANES, Lanes};

/// Use of the output's old value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Finish {
    /// c = tree
    Store,
    /// c = c + tree, one rounding
    Add,
}

/// Blocking of k: leaves by the definition, blocks for the cache.
#[derive(Clone, Copy)]
pub(crate) struct Cuts {
    pub(crate) k: usize,
    /// Elements of k per leaf, at least 1.
    pub(crate) leaf: usize,
    /// Elements of k per cache block, at least 1.
    block: usize,
}

impl Cuts {
    /// Longest block: a B panel of 32 columns then takes 128 KiB, and a few A panels fit L2 beside it.
    const LONGEST: usize = 1024;

    pub(crate) fn new(k: usize, leaf: usize) -> Cuts {
        Cuts::blocked(k, leaf, Cuts::LONGEST)
    }

    /// In blocks of about `longest`.
    pub(crate) fn blocked(k: usize, leaf: usize, longest: usize) -> Cuts {
        let leaf = if leaf == 0 {
            k.max(1)
        } else {
            leaf.min(k.max(1))
        };
        let block = if k <= longest + longest / 2 {
            k.max(1)
        } else if leaf >= longest {
            longest
        } else {
            // A power of two of leaves leaves one waiting sum per block.
            leaf << (longest / leaf).ilog2()
        };
        Cuts { k, leaf, block }
    }

    /// Starts and ends of the blocks; one empty block when k is 0.
    pub(crate) fn blocks(self) -> impl Iterator<Item = (usize, usize)> + Clone {
        let count = self.k.div_ceil(self.block).max(1);
        (0..count).map(move |i| (i * self.block, self.k.min((i + 1) * self.block)))
    }

    /// Steps of the longest block.
    pub(crate) fn longest(self) -> usize {
        self.block.min(self.k)
    }

    /// Tiles that a tile of the output keeps between blocks: waiting sums and the current chain.
    pub(crate) fn own(self) -> usize {
        let waiting = self
            .blocks()
            .skip(1)
            .map(|(start, _)| self.waiting(start) + 1);
        waiting.max().unwrap_or(0)
    }

    /// Further tiles for the sums that can wait at once while a block runs; with own ones at least 1.
    pub(crate) fn shared(self) -> usize {
        let leaves = self.k.div_ceil(self.leaf).max(1);
        let levels = (usize::BITS - leaves.leading_zeros()) as usize;
        levels.saturating_sub(self.own())
    }

    /// Sums that wait at once at most in a block of whole leaves, but for those of earlier blocks, and one more.
    pub(crate) fn within(self) -> usize {
        let leaves = self.longest().div_ceil(self.leaf).max(1);
        (usize::BITS - leaves.leading_zeros()) as usize
    }

    /// Sums that wait when the chain reaches `k`: one per one bit of the finished leaves.
    pub(crate) fn waiting(self, k: usize) -> usize {
        (k / self.leaf).count_ones() as usize
    }
}

/// Lines of panels of B to prefetch while a tile is computed.
#[derive(Clone, Copy)]
pub(crate) struct Ahead {
    /// The next of them in the first panel.
    at: *const f32,
    /// Lines of each panel in one turn of the chain's loop.
    lines: usize,
}

impl Ahead {
    /// Bytes in flight that hide the memory's latency at its bandwidth.
    pub(super) const IN_FLIGHT: usize = 8192;

    pub(crate) const NONE: Ahead = Ahead {
        at: std::ptr::null(),
        lines: 0,
    };

    /// For a tile that reads as many panels side by side, with `step` bytes of each in a step.
    pub(crate) fn of_panels(first: *const f32, panels: usize, step: usize) -> Ahead {
        Ahead {
            at: first.wrapping_byte_add(Ahead::IN_FLIGHT / panels),
            lines: (UNROLLED * step).div_ceil(LINE),
        }
    }

    /// For tile `number` of those that read the same `block` bytes of a panel, of which the first one reads them from
    /// memory and the others from the cache: its share of the block after them.
    pub(crate) fn share(
        first: *const f32,
        [number, tiles]: [usize; 2],
        block: usize,
        step: usize,
    ) -> Ahead {
        Ahead {
            at: first.wrapping_byte_add(block + number * block / tiles),
            lines: (UNROLLED * step).div_ceil(tiles * LINE),
        }
    }

    #[inline(always)]
    fn ask<L: Lanes>(&mut self, panels: usize, apart: usize) {
        for panel in 0..panels {
            for line in 0..self.lines {
                let at = self.at.wrapping_add(panel * apart);
                L::prefetch_to_l2(at.wrapping_byte_add(line * LINE));
            }
        }
        self.at = self.at.wrapping_byte_add(self.lines * LINE);
    }
}

/// Bytes of a cache line.
const LINE: usize = 64;

/// Operands of a tile.
#[derive(Clone, Copy)]
pub(crate) struct Tile {
    /// Packed panel of A from `start` on, `rows of the kernel` floats per k.
    pub(crate) a: *const f32,
    /// Packed panel of B from `start` on, `columns of the kernel` per k.
    pub(crate) b: *const f32,
    /// Floats from that panel to the next, where a tile takes several.
    pub(crate) b_apart: usize,
    pub(crate) ahead: Ahead,
    pub(crate) cuts: Cuts,
    /// This block of k.
    pub(crate) start: usize,
    pub(crate) end: usize,
    pub(crate) finish: Finish,
    pub(crate) c: *mut f32,
    pub(crate) c_stride: usize,
    /// The same position in a second matrix with the same row distance, or null: only prefetched.
    pub(crate) second: *const f32,
    /// Rows and columns of C this tile covers; fewer than the kernel's at the edges.
    pub(crate) rows: usize,
    pub(crate) cols: usize,
}

/// Stack of waiting sums, tile by tile, level by level. Sums that wait between blocks of k, and the unfinished
/// chain, are each tile's own; the levels above are shared by all tiles and so stay in L1. They are pointers because a function is
/// chosen before its tiles, and its type can have no lifetime of theirs.
pub(crate) struct Stack {
    pub(crate) own: *mut [f32],
    pub(crate) shared: *mut [f32],
}

impl Stack {
    /// Floats of the tile at `depth`, `len` a tile.
    /// # Safety
    /// Nobody else uses the floats of the stack.
    #[inline(always)]
    unsafe fn at(&mut self, depth: usize, len: usize) -> &mut [f32] {
        let start = depth * len;
        // SAFETY: the floats are there and nobody else uses them, by this function's contract.
        unsafe {
            match start.checked_sub(self.own.len()) {
                None => &mut (&mut *self.own)[start..start + len],
                Some(start) => &mut (&mut *self.shared)[start..start + len],
            }
        }
    }
}

/// Computes one tile of R rows and V vectors over one block of k; the last block writes C. A panel of B has W vectors,
/// so the tile takes V / W panels at once: with few rows a single panel has too few chains to hide the latency of their
/// additions.
///
/// # Safety
/// `a` has (end - start) * R floats; each of the V / W panels from `b` on has (end - start) * W vectors; `c` has `rows` x
/// `cols` floats that no other task uses, nor the stack's; rows <= R, cols <= V * 16.
/// # Panics
/// If `stack` lacks `Cuts::own` tiles of its own or `Cuts::shared` shared ones.
#[inline(always)]
pub(crate) unsafe fn tile<L: Lanes, N: Step<L>, const R: usize, const V: usize, const W: usize>(
    t: Tile,
    mut stack: Stack,
) {
    let cuts = t.cuts;
    let level = R * V * LANES;
    let mut depth = cuts.waiting(t.start);
    let mut acc = [[L::splat(0.0); V]; R];
    if t.start > 0 {
        // SAFETY: the stack is this task's, by this function's contract.
        acc = read_tile::<L, R, V>(unsafe { stack.at(depth, level) });
    }
    let mut soon = Soon {
        at: t.c,
        second: t.second,
        stride: t.c_stride,
        rows: if t.end == cuts.k { t.rows } else { 0 },
    };
    let mut ahead = t.ahead;
    let mut at = t.start;
    while at < t.end {
        let leaf = at / cuts.leaf;
        let leaf_end = cuts.k.min((leaf + 1) * cuts.leaf);
        let stop = leaf_end.min(t.end);
        // SAFETY: at .. stop is inside this block, whose panels have all steps by this function's contract.
        acc = unsafe {
            let from = Factors {
                a: t.a.add((at - t.start) * R),
                b: N::on::<W>(t.b, t.start, at),
                apart: t.b_apart,
                step: at,
            };
            chain::<L, N, R, V, W>(acc, from, stop - at, (&mut soon, &mut ahead))
        };
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
            depth -= 1;
            // SAFETY: the stack is this task's, by this function's contract.
            let waiting = read_tile::<L, R, V>(unsafe { stack.at(depth, level) });
            for (acc, waiting) in acc.iter_mut().zip(waiting) {
                for (x, w) in acc.iter_mut().zip(waiting) {
                    *x = w.add(*x);
                }
            }
        }
        if at < cuts.k {
            // SAFETY: the stack is this task's, by this function's contract.
            write_tile::<L, R, V>(unsafe { stack.at(depth, level) }, acc);
            acc = [[L::splat(0.0); V]; R];
            depth += 1;
        }
    }
    if t.end == cuts.k {
        // SAFETY: `c` has `rows` x `cols` floats that no other task uses, nor the stack's, by this function's contract.
        unsafe { write_c::<L, R, V>(&t, acc, stack.at(0, level)) }
    } else {
        // SAFETY: the stack is this task's, by this function's contract.
        write_tile::<L, R, V>(unsafe { stack.at(depth, level) }, acc);
    }
}

#[inline(always)]
fn read_tile<L: Lanes, const R: usize, const V: usize>(from: &[f32]) -> [[L; V]; R] {
    let mut tile = [[L::splat(0.0); V]; R];
    for (row, from) in tile.iter_mut().zip(from.chunks_exact(V * LANES)) {
        for (x, from) in row.iter_mut().zip(from.chunks_exact(LANES)) {
            *x = L::load(from);
        }
    }
    tile
}

#[inline(always)]
fn write_tile<L: Lanes, const R: usize, const V: usize>(to: &mut [f32], tile: [[L; V]; R]) {
    for (row, to) in tile.into_iter().zip(to.chunks_exact_mut(V * LANES)) {
        for (x, to) in row.into_iter().zip(to.chunks_exact_mut(LANES)) {
            x.store(to);
        }
    }
}

/// Rows of C to prefetch, spread over the chain: all at once they would delay the panels' lines.
struct Soon {
    at: *const f32,
    /// Those of a second matrix, or null.
    second: *const f32,
    stride: usize,
    rows: usize,
}

impl Soon {
    #[inline(always)]
    fn ask<L: Lanes, const V: usize>(&mut self) {
        if self.rows > 0 {
            for v in 0..V {
                L::prefetch_to_write(self.at.wrapping_add(v * LANES));
            }
            if !self.second.is_null() {
                for v in 0..V {
                    L::prefetch_to_l2(self.second.wrapping_add(v * LANES));
                }
                self.second = self.second.wrapping_add(self.stride);
            }
            self.at = self.at.wrapping_add(self.stride);
            self.rows -= 1;
        }
    }
}

/// Steps of the chain between two prefetched rows.
const ASKING: usize = 16;
/// Steps of the chain that one turn of its loop takes.
const UNROLLED: usize = 4;

/// Panels from some step on.
struct Factors {
    a: *const f32,
    /// Where the panel's memory for that step begins.
    b: *const f32,
    /// Floats from a panel of B to the next.
    apart: usize,
    step: usize,
}

/// # Safety
/// `from.a` has len * R floats, each panel of B len rows of W vectors.
#[inline(always)]
unsafe fn chain<L: Lanes, N: Step<L>, const R: usize, const V: usize, const W: usize>(
    mut acc: [[L; V]; R],
    mut from: Factors,
    len: usize,
    (soon, ahead): (&mut Soon, &mut Ahead),
) -> [[L; V]; R] {
    let mut left = len;
    while left > 0 {
        soon.ask::<L, V>();
        let some = N::together(from.step, left.min(ASKING));
        left -= some;
        // SAFETY: both panels have `len` steps, by this function's contract.
        unsafe {
            let mut now = Now::<L, N, V>::of::<W>(&from);
            for _ in 0..some / UNROLLED {
                if ahead.lines > 0 {
                    ahead.ask::<L>(V / W, from.apart);
                }
                for _ in 0..UNROLLED {
                    now.step::<R, W>(&mut acc);
                }
            }
            for _ in 0..some % UNROLLED {
                now.step::<R, W>(&mut acc);
            }
            from.a = now.a;
        }
        from.b = N::on::<W>(from.b, from.step, from.step + some);
        from.step += some;
    }
    acc
}

/// Steps that have the same scales.
struct Now<L: Lanes, N: Step<L>, const V: usize> {
    a: *const f32,
    /// Words of the first panel of B.
    words: *const f32,
    apart: usize,
    scales: [N::Scale; V],
}

impl<L: Lanes, N: Step<L>, const V: usize> Now<L, N, V> {
    /// # Safety
    /// Panels of W vectors are at `from.b` and from there on.
    #[inline(always)]
    unsafe fn of<const W: usize>(from: &Factors) -> Self {
        // SAFETY: there is a panel for each W of V vectors, by this function's contract.
        let first = unsafe { N::scales::<W>(from.b) };
        let mut scales = [first[0]; V];
        scales[..W].copy_from_slice(&first);
        for (panel, own) in scales.chunks_exact_mut(W).enumerate().skip(1) {
            // SAFETY: the same.
            own.copy_from_slice(&unsafe { N::scales::<W>(from.b.add(panel * from.apart)) });
        }
        Now {
            a: from.a,
            words: N::words::<W>(from.b, from.step),
            apart: from.apart,
            scales,
        }
    }

    /// # Safety
    /// `a` has R floats, each panel of B W vectors.
    #[inline(always)]
    unsafe fn step<const R: usize, const W: usize>(&mut self, acc: &mut [[L; V]; R]) {
        // SAFETY: both panels have one more step, by this function's contract.
        unsafe {
            let mut bs = [L::splat(0.0); V];
            for (panel, xs) in bs.chunks_exact_mut(W).enumerate() {
                let scales = std::array::from_fn(|v| self.scales[panel * W + v]);
                let words = self.words.add(panel * self.apart);
                xs.copy_from_slice(&N::load::<W>(words, scales));
            }
            for (r, row) in acc.iter_mut().enumerate() {
                let x = L::splat_of::<R>(self.a, r);
                for (v, sum) in row.iter_mut().enumerate() {
                    *sum = N::step(x, bs[v], *sum);
                }
            }
            self.a = self.a.add(R);
        }
        self.words = N::next_word::<W>(self.words);
    }
}

/// # Safety
/// `t.c` has `rows` x `cols` floats that no other task uses.
/// # Panics
/// If `room` is smaller than a tile.
#[inline(always)]
unsafe fn write_c<L: Lanes, const R: usize, const V: usize>(
    t: &Tile,
    acc: [[L; V]; R],
    room: &mut [f32],
) {
    if t.rows < R || t.cols < V * LANES {
        write_tile::<L, R, V>(room, acc);
        // SAFETY: `write_part` needs the same floats at `t.c`, by this function's contract.
        return unsafe { write_part::<L>(t, &room[..R * V * LANES], V * LANES) };
    }
    for (r, row) in acc.into_iter().enumerate() {
        for (v, x) in row.into_iter().enumerate() {
            // SAFETY: all R rows and V vectors are inside the tile, which has `rows` x `cols` floats by this
            // function's contract.
            unsafe {
                let c = t.c.add(r * t.c_stride + v * LANES);
                let x = if t.finish == Finish::Add {
                    L::load_at(c).add(x)
                } else {
                    x
                };
                x.store_at(c);
            }
        }
    }
}

/// A tile at the edge of C, from its sums in memory, rows of `width`.
///
/// # Safety
/// As `write_c`.
#[inline(always)]
unsafe fn write_part<L: Lanes>(t: &Tile, sums: &[f32], width: usize) {
    for (r, row) in sums.chunks_exact(width).enumerate().take(t.rows) {
        // SAFETY: row r and its first `cols` columns are inside the tile, by this function's contract.
        let c = unsafe { std::slice::from_raw_parts_mut(t.c.add(r * t.c_stride), t.cols) };
        for (x, c) in row.chunks_exact(LANES).zip(c.chunks_mut(LANES)) {
            let x = L::load(x);
            let x = if t.finish == Finish::Add {
                L::load_part(c, 0.0).add(x)
            } else {
                x
            };
            x.store_part(c);
        }
    }
}
