//! The sums of one tile of the output on their way through k: leaves by the unit, merged in their tree.
#![expect(unsafe_code, reason = "the unit reads packs through pointers")]

use super::super::simd::{LANES, Lanes};
use super::super::tile::Cuts;
use super::unit::{BOTH, SIDE, Stretch, Sums, Unit};
use crate::{DType, Device, Result, Tensor};

/// A block of k of one panel of rows and one of columns.
pub(super) struct Block<'a> {
    pub(super) a: &'a [f32],
    pub(super) b: &'a [f32],
    pub(super) cuts: Cuts,
    pub(super) start: usize,
    pub(super) end: usize,
}

impl Block<'_> {
    /// Adds it to the sums that wait and the one under way, which lie one above the other; the last block
    /// leaves the whole in the first.
    #[inline(always)]
    pub(super) fn add<L: Lanes, T: Unit>(
        &self,
        unit: &mut T,
        sums: &mut Stack<'_>,
        (height, tall): (usize, usize),
    ) {
        let cuts = self.cuts;
        let mut depth = cuts.waiting(self.start);
        let mut at = self.start;
        if cuts.k == 0 {
            *sums.at(0) = Sums([0.0; BOTH * BOTH]);
        }
        // Until here leaves are not taken two at once.
        let mut alone = 0;
        while at < self.end {
            let leaf = at / cuts.leaf;
            let leaf_end = cuts.k.min((leaf + 1) * cuts.leaf);
            // A leaf of one step that is added to its finished neighbour: the unit does that as well, unless it
            // would flush a sum.
            let both = at + 2 * SIDE;
            let is_pair =
                cuts.leaf == SIDE && leaf.is_multiple_of(2) && both <= self.end && at >= alone;
            let stop = if is_pair {
                both
            } else {
                leaf_end.min(self.end)
            };
            self.run(unit, sums.at(depth), (at, stop), tall);
            if is_pair && has_zeros::<L>(sums.at(depth), height) {
                alone = both;
                continue;
            }
            at = stop;
            if at < leaf_end {
                break;
            }
            let merges = if at == cuts.k {
                depth
            } else {
                depth + 1 - cuts.waiting(at)
            };
            if merges > 0 {
                sums.merge::<L>((depth, merges), height);
            }
            depth = depth - merges + 1;
        }
    }

    /// Puts elements from .. to of a leaf, counted in words, into its sums.
    #[inline(always)]
    fn run<T: Unit>(&self, unit: &mut T, sums: &mut Sums, (from, to): (usize, usize), tall: usize) {
        let here = (from - self.start, to - self.start);
        let (a, b) = (
            &self.a[here.0 * tall..here.1 * tall],
            &self.b[here.0 * BOTH..here.1 * BOTH],
        );
        let goes_on = !from.is_multiple_of(self.cuts.leaf);
        let stretch = Stretch::packed(
            (a.as_ptr(), tall / SIDE),
            b.as_ptr(),
            sums,
            ((to - from) / SIDE, goes_on),
        );
        // SAFETY: leaves and blocks are whole steps, of which the slices have all.
        unsafe { unit.run(stretch) }
    }
}

/// Sums that wait in the tree, level by level: those that wait between blocks of k, and the one under way there, are the
/// tile's own; above them tiles use the same, which so stay in L1.
pub(super) struct Stack<'a> {
    pub(super) own: &'a mut [Sums],
    pub(super) shared: &'a mut [Sums],
}

impl Stack<'_> {
    #[inline(always)]
    pub(super) fn at(&mut self, depth: usize) -> &mut Sums {
        match depth.checked_sub(self.own.len()) {
            None => &mut self.own[depth],
            Some(depth) => &mut self.shared[depth],
        }
    }

    /// Adds the sums at `depth` to those that wait below, `merges` times, of `height` rows.
    #[inline(always)]
    fn merge<L: Lanes>(&mut self, (depth, merges): (usize, usize), height: usize) {
        for at in (0..height * BOTH).step_by(LANES) {
            let mut sum = L::load(&self.at(depth).0[at..]);
            for below in (depth - merges..depth).rev() {
                sum = L::load(&self.at(below).0[at..]).add(sum);
            }
            sum.store(&mut self.at(depth - merges).0[at..]);
        }
    }
}

/// Room for the sums of some tiles that go through blocks of k side by side.
pub(super) struct Waiting {
    pub(super) sums: Tensor,
    /// Levels that are a tile's own, and shared ones.
    pub(super) levels: (usize, usize),
}

impl Waiting {
    pub(super) fn new(cuts: Cuts, tiles: usize, device: &Device) -> Result<Waiting> {
        let (own, shared) = (cuts.own(), cuts.shared());
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

/// Whether a sum of `height` rows is zero, or so small that its square is: it may be a subnormal number that the
/// unit has flushed.
#[inline(always)]
fn has_zeros<L: Lanes>(sums: &Sums, height: usize) -> bool {
    let mut least = [L::splat(1.0); 4];
    for sums in sums.0[..height * BOTH].chunks_exact(4 * LANES) {
        for (least, sums) in least.iter_mut().zip(sums.chunks_exact(LANES)) {
            let sum = L::load(sums);
            // NaN leaves the other
            *least = sum.mul(sum).min(*least);
        }
    }
    let [a, b, c, d] = least;
    a.min(b).min(c.min(d)).to_array().contains(&0.0)
}
