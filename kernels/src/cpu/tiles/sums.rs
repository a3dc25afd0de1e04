//! The sums of one tile of the output over k: the unit computes leaves, vectors merge them in their tree.
#![expect(unsafe_code, reason = "the unit reads packs through pointers")]

use super::super::simd::{LANES, Lanes};
use super::super::tile::Cuts;
use super::unit::{BOTH, SIDE, Soon, Stretch, Sums, Unit};
use crate::{DType, Device, Result, Tensor};
use std::marker::PhantomData;
use std::ops::Range;

/// A block of k of one panel of rows and one of columns.
pub(super) struct Block<'a> {
    pub(super) a: &'a [f32],
    pub(super) b: &'a [f32],
    pub(super) cuts: Cuts,
    pub(super) start: usize,
    pub(super) end: usize,
}

impl Block<'_> {
    /// Adds the block to the waiting sums and the unfinished one, which are stacked; the last block leaves the
    /// total in the first.
    #[inline(always)]
    pub(super) fn add<L: Lanes, T: Unit>(
        &self,
        unit: &mut T,
        sums: &mut Stack<'_>,
        height: usize,
        tall: usize,
        soon: &mut Soon,
    ) {
        let cuts = self.cuts;
        let mut depth = cuts.waiting(self.start);
        let mut at = self.start;
        let is_last = self.end == cuts.k;
        // Whole leaves become one sum, which alone outlives the block.
        let levels = sums.own.len();
        sums.kept = if self.is_of_leaves() { depth } else { levels };
        if cuts.k == 0 {
            *sums.at(0) = Sums([0.0; BOTH * BOTH]);
        }
        // Leaves up to here are processed one by one.
        let mut alone = 0;
        while at < self.end {
            let leaf = at / cuts.leaf;
            let leaf_end = cuts.k.min((leaf + 1) * cuts.leaf);
            let four = at + 4 * SIDE;
            let is_four =
                cuts.leaf == SIDE && leaf.is_multiple_of(4) && four <= self.end && at >= alone;
            let (top, stop) = match is_four {
                true => (depth + 1, four),
                false => (depth, leaf_end.min(self.end)),
            };
            let mut merges = match stop {
                _ if stop < leaf_end => 0,
                _ if stop == cuts.k => top,
                _ => top + 1 - cuts.waiting(stop),
            };
            let outlives = stop == self.end && !is_last;
            if is_four {
                // Leaves of one step: the unit also adds every second one to its predecessor, unless it would flush
                // a sum; the vectors then merge two such sums at once.
                let middle = at + 2 * SIDE;
                self.run(unit, sums.at(depth), at..middle, tall, soon);
                self.run(unit, sums.at(top), middle..four, tall, soon);
                merges -= 1;
                if !sums.merge_two::<L>(depth, outlives && merges == 0, height) {
                    alone = four;
                    continue;
                }
            } else {
                if outlives && merges == 0 {
                    sums.kept = levels;
                }
                self.run(unit, sums.at(depth), at..stop, tall, soon);
            }
            at = stop;
            if at < leaf_end {
                break;
            }
            sums.merge::<L>(depth, merges, outlives, height);
            depth = depth - merges + 1;
        }
    }

    /// Whether the block starts and ends with a leaf.
    #[inline(always)]
    fn is_of_leaves(&self) -> bool {
        let is_end = |at: usize| at.is_multiple_of(self.cuts.leaf) || at == self.cuts.k;
        is_end(self.start) && is_end(self.end)
    }

    /// Adds a range of a leaf's words to its sums.
    #[inline(always)]
    fn run<T: Unit>(
        &self,
        unit: &mut T,
        sums: &mut Sums,
        words: Range<usize>,
        tall: usize,
        soon: &mut Soon,
    ) {
        let Range {
            start: from,
            end: to,
        } = words;
        let here = (from - self.start, to - self.start);
        let (a, b) = (
            &self.a[here.0 * tall..here.1 * tall],
            &self.b[here.0 * BOTH..here.1 * BOTH],
        );
        let goes_on = !from.is_multiple_of(self.cuts.leaf);
        let steps = (to - from) / SIDE;
        let packed = Stretch::packed(
            (a.as_ptr(), tall / SIDE),
            b.as_ptr(),
            sums,
            (steps, goes_on),
        );
        let stretch = Stretch {
            soon: soon.take(steps),
            ..packed
        };
        // SAFETY: leaves and blocks are whole steps, and the slices contain all of them.
        unsafe { unit.run(stretch) }
    }
}
/// Stack of sums that wait in the tree, level by level. Sums that wait between blocks of k, and the unfinished one,
/// are each tile's own; the levels above are shared by all tiles and so stay in L1.
pub(super) struct Stack<'a> {
    own: &'a mut [Sums],
    shared: &'a mut [Sums],
    /// Levels that are its own in this block.
    kept: usize,
}

impl<'a> Stack<'a> {
    pub(super) fn new(own: &'a mut [Sums], shared: &'a mut [Sums]) -> Stack<'a> {
        let kept = own.len();
        Stack { own, shared, kept }
    }

    #[inline(always)]
    pub(super) fn at(&mut self, depth: usize) -> &mut Sums {
        match depth.checked_sub(self.kept) {
            None => &mut self.own[depth],
            Some(depth) => &mut self.shared[depth],
        }
    }

    #[inline(always)]
    fn places(&mut self) -> Places<'_> {
        Places {
            own: self.own,
            shared: self.shared,
            kept: self.kept,
            borrowed: PhantomData,
        }
    }

    /// Adds the sums above `depth` to those at it; the result may outlive the block. Returns whether it did so: not
    /// if a sum was zero, and so perhaps flushed.
    #[inline(always)]
    fn merge_two<L: Lanes>(&mut self, depth: usize, outlives: bool, height: usize) -> bool {
        let places = self.places();
        let (a, b) = (places.at(depth), places.at(depth + 1));
        let to = places.of_result(depth, outlives);
        // SAFETY: `a`, `b` and `to` are sums of this stack, each with at least `height` rows of two vectors.
        !unsafe { L::add_all(a.cast(), b.cast(), to.cast(), height * BOTH) }
    }

    /// Adds the sums at `depth` to those that wait below, `merges` times, for `height` rows; the result may outlive
    /// the block.
    #[inline(always)]
    fn merge<L: Lanes>(&mut self, depth: usize, merges: usize, outlives: bool, height: usize) {
        let places = self.places();
        let (mut top, mut left) = (depth, merges);
        while left > 0 {
            let count = left.min(3);
            let mut parts = [places.at(top); 4];
            for (below, part) in parts.iter_mut().enumerate().take(count + 1).skip(1) {
                *part = places.at(top - below);
            }
            left -= count;
            top -= count;
            let to = places.of_result(top, left == 0 && outlives);
            let [a, b, c, _] = parts;
            // SAFETY: `parts` and `to` are sums of this stack, which is borrowed exclusively.
            unsafe {
                match count {
                    1 => chain::<L, 2>([a, b], to, height),
                    2 => chain::<L, 3>([a, b, c], to, height),
                    _ => chain::<L, 4>(parts, to, height),
                }
            }
        }
    }
}

/// Addresses of a stack's sums, to read some and write others.
struct Places<'a> {
    own: *mut [Sums],
    shared: *mut [Sums],
    kept: usize,
    borrowed: PhantomData<&'a mut [Sums]>,
}

impl Places<'_> {
    /// Like `Stack::at`.
    #[inline(always)]
    fn at(&self, depth: usize) -> *mut Sums {
        match depth.checked_sub(self.kept) {
            None => place(self.own, depth),
            Some(depth) => place(self.shared, depth),
        }
    }

    /// Where the merged sums at `depth` are written: sums that outlive the block are the tile's own.
    #[inline(always)]
    fn of_result(&self, depth: usize, outlives: bool) -> *mut Sums {
        match outlives {
            true => place(self.own, depth),
            false => self.at(depth),
        }
    }
}

#[inline(always)]
fn place(sums: *mut [Sums], at: usize) -> *mut Sums {
    assert!(at < sums.len(), "a stack has all levels");
    // SAFETY: `at` is inside `sums` by the assert.
    unsafe { sums.cast::<Sums>().add(at) }
}

/// to = part + .. + (part + (part + part)), the first innermost, of `height` rows.
/// # Safety
/// All parts must be readable and `to` writable; `to` may be one of them.
#[inline(always)]
unsafe fn chain<L: Lanes, const N: usize>(parts: [*mut Sums; N], to: *mut Sums, height: usize) {
    for at in (0..height * BOTH).step_by(LANES) {
        // SAFETY: all sums have 32 rows of 32 floats, and `height` is at most 32.
        unsafe {
            let mut sum = L::load_at(parts[0].cast::<f32>().add(at));
            for part in &parts[1..] {
                sum = L::load_at(part.cast::<f32>().add(at)).add(sum);
            }
            sum.store_at(to.cast::<f32>().add(at));
        }
    }
}

/// Buffers for the sums of some tiles that are computed block of k by block of k together.
pub(super) struct Waiting {
    pub(super) sums: Tensor,
    /// Levels that are a tile's own, and shared ones.
    pub(super) levels: (usize, usize),
}

impl Waiting {
    pub(super) fn new(cuts: Cuts, tiles: usize, device: &Device) -> Result<Waiting> {
        let (own, shared) = (cuts.own(), cuts.shared().max(cuts.within()));
        let floats = (tiles * own + shared) * BOTH * BOTH;
        Ok(Waiting {
            sums: Tensor::empty(&[floats], DType::F32, device)?,
            levels: (own, shared),
        })
    }

    /// The tiles' own sums, `levels.0` each, and those that they share.
    pub(super) fn parts(&mut self) -> (&mut [Sums], &mut [Sums]) {
        // SAFETY: sums are floats, of which every pattern is valid.
        let (before, sums, after) = unsafe { self.sums.f32_mut().align_to_mut::<Sums>() };
        assert!(
            before.is_empty() && after.is_empty(),
            "tensors start with a line of memory"
        );
        let shared = sums.len() - self.levels.1;
        sums.split_at_mut(shared)
    }
}
