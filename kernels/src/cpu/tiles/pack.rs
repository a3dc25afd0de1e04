//! Packing for tiles: words of two neighbouring k (`bf16.rs`), 16 words per step.
//!
//! A leaf starts with a step; its last one is padded with zeros. B: 32 columns per panel, word after word of k, as
//! `cpu/pack.rs` packs them. A: up to 32 rows per panel, for each step one or two tiles of 16 rows, each of 16
//! words.

use super::super::bf16::{Step, Task, perform_on_pairs};
use super::super::element::Element;
use super::super::pack::{Matrix, Panels, View, each_kind, pack};
use super::super::simd::{LANES, Lanes};
use super::super::tile::Cuts;
use super::super::{Isa, Numbers};
use super::unit::{BOTH, SIDE};
use std::ops::Range;

/// Elements of k per step.
const STEP: usize = 2 * SIDE;
/// Prefetch distance in elements of k.
const SOON_ALONG: usize = 4 * STEP;
const SOON_ACROSS: usize = STEP;
/// Words of k per block of a row of tiles: a panel of A then stays in L1.
const LONGEST: usize = 96;

/// Blocking of k.
#[derive(Clone, Copy)]
pub(super) struct Order {
    k: usize,
    /// Elements of k per leaf, at least 1.
    pub(super) leaf: usize,
}

/// Elements first .. end of k, whose words are at `at` .. `stop` in a pack of all of k.
struct Part {
    first: usize,
    end: usize,
    at: usize,
    stop: usize,
}

impl Order {
    pub(super) fn new(k: usize, leaf: usize) -> Order {
        let whole = k.max(1);
        let leaf = if leaf == 0 { whole } else { leaf.min(whole) };
        Order { k, leaf }
    }

    /// Words for `len` elements of a leaf.
    fn words(len: usize) -> usize {
        len.div_ceil(STEP) * SIDE
    }

    /// Words of k.
    pub(super) fn steps(self) -> usize {
        self.k / self.leaf * Order::words(self.leaf) + Order::words(self.k % self.leaf)
    }

    /// In words.
    pub(super) fn cuts(self) -> Cuts {
        Cuts::blocked(self.steps(), Order::words(self.leaf), LONGEST)
    }

    /// The elements of words start .. end.
    fn parts(self, start: usize, end: usize) -> impl Iterator<Item = Part> {
        let per_leaf = Order::words(self.leaf);
        let mut at = start;
        std::iter::from_fn(move || {
            if at >= end {
                return None;
            }
            let leaf = at / per_leaf;
            // whole leaves follow each other without padding
            let (stop, last) = if self.leaf.is_multiple_of(STEP) {
                (end, self.k)
            } else {
                let next = (leaf + 1) * self.leaf;
                (end.min((leaf + 1) * per_leaf), self.k.min(next))
            };
            let first = leaf * self.leaf + 2 * (at - leaf * per_leaf);
            let part = Part {
                first,
                end: last.min(first + 2 * (stop - at)),
                at,
                stop,
            };
            at = stop;
            Some(part)
        })
    }

    /// Packs words of `count` panels of columns, `apart` words from one to the next; lanes of `b` are its
    /// rows.
    pub(super) fn pack_b(
        self,
        isa: Isa,
        (b, first): (Matrix<'_>, usize),
        words: Range<usize>,
        count: usize,
        apart: usize,
        out: &mut [f32],
    ) {
        let Range { start, end } = words;
        for part in self.parts(start, end) {
            let out = &mut out[(part.at - start) * BOTH..];
            let panels = Panels {
                a: b.columns(part.first, part.end),
                first,
                width: BOTH,
                count,
                apart,
            };
            pack(isa, Numbers::Bf16, panels, out);
            let written = (part.end - part.first).div_ceil(2) * BOTH;
            let whole = (part.stop - part.at) * BOTH;
            if written < whole {
                for out in out.chunks_mut(apart.max(1)).take(count) {
                    out[written..whole].fill(0.0);
                }
            }
        }
    }

    /// Packs words, whole steps, of the panel of `height` rows from row `first` on.
    pub(super) fn pack_a(
        self,
        isa: Isa,
        (a, first): (Matrix<'_>, usize),
        words: Range<usize>,
        height: usize,
        out: &mut [f32],
    ) {
        let tiles = height.div_ceil(SIDE);
        each_kind!(a, a => {
            let rows = Rows {
                words: words.clone(),
                order: self,
                a,
                first,
                tiles,
                out,
            };
            perform_on_pairs(isa, rows);
        });
    }
}

/// A panel of rows to pack.
struct Rows<'a, 'o, E> {
    order: Order,
    words: Range<usize>,
    a: View<'a, E>,
    first: usize,
    /// Tiles of rows in the panel.
    tiles: usize,
    out: &'o mut [f32],
}

impl<E: Element> Task for Rows<'_, '_, E> {
    #[inline(always)]
    fn run<L: Lanes, N: Step<L>>(self) {
        let Rows {
            order,
            words,
            a,
            first,
            tiles,
            out,
        } = self;
        for part in order.parts(words.start, words.end) {
            for step in (part.at..part.stop).step_by(SIDE) {
                let k = part.first + 2 * (step - part.at);
                let len = part.end.saturating_sub(k).min(STEP);
                for tile in 0..tiles {
                    let at = (step - words.start) / SIDE * tiles + tile;
                    let out = &mut out[at * SIDE * SIDE..];
                    let row = first + tile * SIDE;
                    let present = a.rows.saturating_sub(row).min(SIDE);
                    let is_whole = present == SIDE && len == STEP;
                    let words = match (a.row_stride, a.col_stride) {
                        (_, 1) if is_whole => whole_along::<L, N, E>(a, row, k),
                        (1, _) if is_whole => whole_across::<L, N, E>(a, row, k),
                        (_, 1) => along::<L, N, E>(a, row, present, k..k + len),
                        _ => across::<L, N, E>(a, row, present, k..k + len),
                    };
                    for (words, out) in words.into_iter().zip(out.chunks_exact_mut(LANES)) {
                        words.store(out);
                    }
                }
            }
        }
    }
}

/// Packs words of 16 rows and 32 columns inside the matrix, whose elements are adjacent.
#[inline(always)]
fn whole_along<L: Lanes, N: Step<L>, E: Element>(
    a: View<'_, E>,
    row: usize,
    k: usize,
) -> [L; SIDE] {
    let mut words = [L::splat(0.0); SIDE];
    for (r, words) in words.iter_mut().enumerate() {
        let elements = &a.data[(row + r) * a.row_stride + k..][..STEP];
        let soon = elements.as_ptr().wrapping_add(SOON_ALONG);
        L::prefetch(soon.cast());
        if STEP > E::LINE {
            L::prefetch(soon.wrapping_add(LANES).cast());
        }
        *words = E::join::<L, N>(elements);
    }
    words
}

/// Like `whole_along`, for rows that are adjacent.
#[inline(always)]
fn whole_across<L: Lanes, N: Step<L>, E: Element>(
    a: View<'_, E>,
    row: usize,
    k: usize,
) -> [L; SIDE] {
    let mut words = [L::splat(0.0); SIDE];
    for (at, words) in words.iter_mut().enumerate() {
        let start = (k + 2 * at) * a.col_stride + row;
        let (even, odd) = (
            &a.data[start..][..SIDE],
            &a.data[start + a.col_stride..][..SIDE],
        );
        let soon = SOON_ACROSS * a.col_stride;
        L::prefetch(even.as_ptr().wrapping_add(soon).cast());
        L::prefetch(odd.as_ptr().wrapping_add(soon).cast());
        *words = N::weave(E::load(even), E::load(odd));
    }
    L::transpose(words)
}

/// Packs words of `present` rows from `row` on whose elements are adjacent.
#[inline(always)]
fn along<L: Lanes, N: Step<L>, E: Element>(
    a: View<'_, E>,
    row: usize,
    present: usize,
    k: Range<usize>,
) -> [L; SIDE] {
    let mut words = [L::splat(0.0); SIDE];
    for (r, words) in words.iter_mut().enumerate().take(present) {
        let elements = &a.data[(row + r) * a.row_stride + k.start..][..k.len()];
        let (low, high) = elements.split_at(k.len().min(LANES));
        *words = N::join(E::load_part(low), E::load_part(high));
    }
    words
}

/// Like `along`, for rows that are adjacent, or for any strides.
#[inline(always)]
fn across<L: Lanes, N: Step<L>, E: Element>(
    a: View<'_, E>,
    row: usize,
    present: usize,
    k: Range<usize>,
) -> [L; SIDE] {
    let mut words = [L::splat(0.0); SIDE];
    for (at, words) in words.iter_mut().enumerate() {
        let (even, odd) = (2 * at, 2 * at + 1);
        *words = N::weave(
            column(a, row, present, k.clone(), even),
            column(a, row, present, k.clone(), odd),
        );
    }
    L::transpose(words)
}

/// `present` rows from `row` on of column number `at` of `k`, zeros past its end.
#[inline(always)]
fn column<L: Lanes, E: Element>(
    a: View<'_, E>,
    row: usize,
    present: usize,
    k: Range<usize>,
    at: usize,
) -> L {
    if at >= k.len() || present == 0 {
        return L::splat(0.0);
    }
    let start = (k.start + at) * a.col_stride + row * a.row_stride;
    if a.row_stride == 1 {
        return E::load_part(&a.data[start..start + present]);
    }
    let mut x = [0.0; LANES];
    for (r, x) in x.iter_mut().enumerate().take(present) {
        *x = a.data[start + r * a.row_stride].value();
    }
    L::load(&x)
}
