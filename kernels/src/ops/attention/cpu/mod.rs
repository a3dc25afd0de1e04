//! Attention on the CPU: where the query rows, keys and values of one sequence lie, and which keys a
//! block of query rows visits.
//!
//! A block visits the keys from the first that one of its rows sees, rounded down to `KEY_TILE`, to the
//! last. Within it a row's hidden keys have probability 0. Lanes of a row's sums count keys from 0, and
//! a chain that starts with zeros is the chain that starts later: the visited range changes no bits.

mod backward;
mod bias;
mod forward;

use super::{Call, Heads, Keys, Mask};
use crate::cpu::gemm::ViewMut;
use crate::cpu::pack::View;
use crate::cpu::simd::LANES;
use crate::ops::dropout::{self, Constants};
use crate::{Result, Tensor};
use bias::Expanded;
use std::ops::Range;

pub(super) use backward::backward;
pub(super) use forward::{decode, forward};

/// Query rows per block: their scores (times t floats) stay in L2, and half a block per row is
/// computed past the diagonal for nothing.
const QUERY_BLOCK: usize = 48;

/// First keys of blocks are multiples of it: whole panels of every instruction set's packs.
const KEY_TILE: usize = 32;

/// The query rows of one sequence and the keys and values they may see.
#[derive(Clone, Copy)]
struct Rows<'a> {
    q: &'a [f32],
    /// Floats between rows of `q` and between its groups.
    q_at: (usize, usize),
    kv: &'a [f32],
    /// Floats between rows of `kv`, between its groups, and before a group's key.
    kv_at: (usize, usize, usize),
    heads: &'a Heads,
    /// Position of the first query row.
    first: usize,
    /// Query rows.
    t: usize,
    /// Keys that some query row may see, whatever its bounds.
    keys: usize,
    mask: Mask<'a>,
    /// Factor of the scores before the bias.
    scale: f32,
    bias: Option<&'a Expanded>,
    /// Which sequence of the whole batch this is.
    sequence: u64,
}

impl<'a> Rows<'a> {
    /// Sequence `sequence` of the call.
    fn of(q: &'a Tensor, call: &Call<'a>, bias: Option<&'a Expanded>, sequence: usize) -> Rows<'a> {
        let (heads, t) = (call.heads, call.t);
        let row = call.query_width();
        let q = &q.f32()[sequence * t * row..(sequence + 1) * t * row];
        let (kv, kv_at) = match call.keys {
            Keys::Own => {
                let before = heads.per_group() * heads.width;
                (q, (row, heads.group_width(), before))
            }
            Keys::Part { kv, time, .. } | Keys::Other { kv, time, .. } => {
                let width = heads.kv_width();
                let rows = sequence * time * width..(sequence + 1) * time * width;
                (&kv.f32()[rows], (width, 2 * heads.width, 0))
            }
        };
        let bounds = call.mask.bounds;
        let before = call.dropout.map_or(0, |dropout| dropout.sequence);
        Rows {
            q,
            q_at: (row, row / heads.kv_heads),
            kv,
            kv_at,
            heads,
            first: call.keys.first(),
            t,
            keys: call.visible(),
            mask: Mask {
                bounds: bounds.map(|bounds| &bounds[sequence * t..(sequence + 1) * t]),
                ..call.mask
            },
            scale: scale(heads, call.is_scaled),
            bias,
            sequence: before + sequence as u64,
        }
    }

    /// Keys that a query row sees; empty ranges may start behind their end.
    fn seen(&self, row: usize) -> Range<usize> {
        let position = self.first + row;
        let mut range = 0..self.keys;
        if self.mask.is_causal {
            range.end = position + 1;
        }
        if self.mask.window > 0 {
            range.start = (position + 1).saturating_sub(self.mask.window);
        }
        if let Some(bounds) = self.mask.bounds {
            let [start, end] = bounds[row];
            range.start = range.start.max(start as usize);
            range.end = range.end.min(end as usize);
        }
        range
    }

    /// Keys that a block of rows visits.
    fn visited(&self, first: usize, len: usize) -> Range<usize> {
        let seen = (first..first + len).map(|row| self.seen(row));
        let seen = seen.filter(|range| !range.is_empty());
        let both = seen.reduce(|a, b| a.start.min(b.start)..a.end.max(b.end));
        let both = both.unwrap_or(0..1);
        both.start / KEY_TILE * KEY_TILE..both.end
    }

    /// Rows first .. first + len of a query head.
    fn queries(&self, group: usize, query: usize, first: usize, len: usize) -> View<'a> {
        let (stride, step) = self.q_at;
        let at = group * step + query * self.heads.width;
        View::new(
            &self.q[first * stride + at..],
            len,
            self.heads.width,
            stride,
        )
    }

    /// Keys (`slot` 0) or values (1) that some query row may see.
    fn shared(&self, group: usize, slot: usize) -> View<'a> {
        let (stride, step, before) = self.kv_at;
        let at = group * step + before + slot * self.heads.width;
        View::new(&self.kv[at..], self.keys, self.heads.width, stride)
    }

    /// Turns a row of ones, whose first key is `key`, into the dropout factors of its probabilities.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "mod.rs checks positions; a sequence number is split into words"
    )]
    fn drop(&self, isa: crate::Isa, row: usize, (key, factors): (usize, &mut [f32]), c: Constants) {
        let counter = [
            (self.first + row) as u32,
            self.sequence as u32,
            (self.sequence >> 32) as u32,
        ];
        dropout::cpu::drop_row(isa, factors, key, counter, c);
    }
}

/// The bias of a call by distance.
fn expand(call: &Call<'_>) -> Result<Option<Expanded>> {
    let first = call.keys.first();
    let of = |bias| Expanded::new(bias, first..first + call.t, call.visible());
    call.bias.as_ref().map(of).transpose()
}

/// A row over the keys of a block in three: hidden keys, whole vectors around the seen ones (in which
/// hidden keys are set to `value`), hidden keys. The loops then run over whole vectors; the added
/// lanes hold what a partial load would have put there.
fn split(row: &mut [f32], seen: Range<usize>, value: f32) -> (&mut [f32], &mut [f32], &mut [f32]) {
    let from = seen.start / LANES * LANES;
    let to = seen.end.next_multiple_of(LANES).min(row.len());
    row[from..seen.start].fill(value);
    row[seen.end..to].fill(value);
    let (before, rest) = row.split_at_mut(from);
    let (inside, after) = rest.split_at_mut(to - from);
    (before, inside, after)
}

fn dense(data: &mut [f32], rows: usize, cols: usize) -> ViewMut<'_> {
    ViewMut {
        data,
        rows,
        cols,
        row_stride: cols,
    }
}

/// Factor of the scores.
fn scale(heads: &Heads, is_scaled: bool) -> f32 {
    if is_scaled {
        1.0 / (heads.width as f32).sqrt()
    } else {
        1.0
    }
}
