//! One tile of the matrix product, held in registers over all of k.
//!
//! Each element is sum over k cut into leaves: a leaf is one chain acc = fma(a[k], b[k], acc) from 0,
//! finished leaves are merged by the binary-counter tree (DESIGN.md section 5 rule 2): after leaf i,
//! as many merges as i has trailing one bits, and at the end what is left from right to left. The
//! partial sums waiting for their partner lie in a small stack (one tile per level, in L1).
#![expect(
    unsafe_code,
    reason = "the inner loop reads packed panels through pointers"
)]

use super::simd::{LANES, Lanes};

/// What becomes of the output's old value.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Finish {
    /// c = tree
    Store,
    /// c = c + tree, one rounding
    Add,
    /// The one leaf's chain starts at c instead of 0; only with a single leaf.
    Continue,
}

/// Most levels the tree can have: one per bit of the leaf count.
pub(crate) const LEVELS: usize = 48;

/// Where a tile's operands lie.
#[derive(Clone, Copy)]
pub(crate) struct Tile {
    /// Packed panel of A, `rows of the kernel` floats per k.
    pub(crate) a: *const f32,
    /// Panel of B, `b_stride` floats from one k to the next.
    pub(crate) b: *const f32,
    pub(crate) b_stride: usize,
    pub(crate) k: usize,
    /// Elements of k per leaf, at least 1.
    pub(crate) leaf: usize,
    pub(crate) finish: Finish,
    pub(crate) c: *mut f32,
    pub(crate) c_stride: usize,
    /// Rows and columns of C this tile covers; fewer than the kernel's at the edges.
    pub(crate) rows: usize,
    pub(crate) cols: usize,
}

/// Computes one tile of R rows and V vectors.
///
/// # Safety
/// `a` has k * R floats, `b` has k rows of V * 16 floats, `c` has `rows` x `cols` floats nobody else
/// touches; rows <= R, cols <= V * 16. `stack` has room for a tile per tree level.
#[inline(always)]
pub(crate) unsafe fn tile<L: Lanes, const R: usize, const V: usize>(t: Tile, stack: &mut [f32]) {
    // SAFETY: pointers stay inside the panels, as the caller vouches; see each step.
    unsafe {
        let level = R * V * LANES;
        let leaves = t.k.div_ceil(t.leaf).max(1);
        let mut depth = 0;
        let mut acc = match t.finish {
            Finish::Continue => read_c::<L, R, V>(&t),
            Finish::Store | Finish::Add => [[L::splat(0.0); V]; R],
        };
        for leaf in 0..leaves {
            let start = leaf * t.leaf;
            let len = t.leaf.min(t.k - start);
            let (a, b) = (t.a.add(start * R), t.b.add(start * t.b_stride));
            acc = chain::<L, R, V>(acc, a, b, t.b_stride, len);
            let last = leaf + 1 == leaves;
            let merges = if last {
                depth
            } else {
                leaf.trailing_ones() as usize
            };
            for _ in 0..merges {
                depth -= 1;
                let waiting = stack[depth * level..][..level].as_ptr();
                for (r, row) in acc.iter_mut().enumerate() {
                    for (v, x) in row.iter_mut().enumerate() {
                        *x = L::load_at(waiting.add((r * V + v) * LANES)).add(*x);
                    }
                }
            }
            if !last {
                let waiting = stack[depth * level..][..level].as_mut_ptr();
                for (r, row) in acc.iter_mut().enumerate() {
                    for (v, x) in row.iter_mut().enumerate() {
                        x.store_at(waiting.add((r * V + v) * LANES));
                        *x = L::splat(0.0);
                    }
                }
                depth += 1;
            }
        }
        write_c::<L, R, V>(&t, acc);
    }
}

/// # Safety
/// `a` has len * R floats, `b` has len rows of V * 16 floats.
#[inline(always)]
unsafe fn chain<L: Lanes, const R: usize, const V: usize>(
    mut acc: [[L; V]; R],
    mut a: *const f32,
    mut b: *const f32,
    b_stride: usize,
    len: usize,
) -> [[L; V]; R] {
    for _ in 0..len {
        // SAFETY: the caller vouches for len steps of both panels.
        unsafe {
            let mut bs = [L::splat(0.0); V];
            for (v, x) in bs.iter_mut().enumerate() {
                *x = L::load_at(b.add(v * LANES));
            }
            for (r, row) in acc.iter_mut().enumerate() {
                let x = L::splat(*a.add(r));
                for (v, sum) in row.iter_mut().enumerate() {
                    *sum = x.fma(bs[v], *sum);
                }
            }
            a = a.add(R);
            b = b.add(b_stride);
        }
    }
    acc
}

/// # Safety
/// `t.c` has `rows` x `cols` floats.
#[inline(always)]
unsafe fn read_c<L: Lanes, const R: usize, const V: usize>(t: &Tile) -> [[L; V]; R] {
    let mut acc = [[L::splat(0.0); V]; R];
    for (r, row) in acc.iter_mut().enumerate().take(t.rows) {
        for (v, x) in row.iter_mut().enumerate() {
            let cols = t.cols.saturating_sub(v * LANES).min(LANES);
            if cols > 0 {
                // SAFETY: row r and `cols` columns from v * 16 are inside the tile.
                let c = unsafe {
                    std::slice::from_raw_parts(t.c.add(r * t.c_stride + v * LANES), cols)
                };
                *x = L::load_part(c, 0.0);
            }
        }
    }
    acc
}

/// # Safety
/// `t.c` has `rows` x `cols` floats nobody else touches.
#[inline(always)]
unsafe fn write_c<L: Lanes, const R: usize, const V: usize>(t: &Tile, acc: [[L; V]; R]) {
    for (r, row) in acc.into_iter().enumerate() {
        if r >= t.rows {
            break;
        }
        for (v, x) in row.into_iter().enumerate() {
            let cols = t.cols.saturating_sub(v * LANES).min(LANES);
            if cols > 0 {
                // SAFETY: row r and `cols` columns from v * 16 are inside the tile.
                let c = unsafe {
                    std::slice::from_raw_parts_mut(t.c.add(r * t.c_stride + v * LANES), cols)
                };
                let x = if t.finish == Finish::Add {
                    L::load_part(c, 0.0).add(x)
                } else {
                    x
                };
                x.store_part(c);
            }
        }
    }
}
