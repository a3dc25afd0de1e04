//! Location of the query rows, keys and values of one sequence, and the keys that each row attends to.

use super::bias::Expanded;
use super::tile::{TILE, Tile};
use crate::cpu::bf16_pack::join_pairs;
use crate::cpu::output::Data;
use crate::cpu::pack::{Matrix, Panels, View, pack};
use crate::cpu::strip::steps;
use crate::cpu::{Isa, Numbers};
use crate::descriptor::alibi::Alibi;
use crate::descriptor::attention::{Call, Keys, Mask};
use crate::descriptor::dropout::Constants;
use crate::descriptor::heads::Heads;
use crate::ops::dropout;
use crate::{Device, Result, Tensor};
use std::ops::Range;

/// The query rows of one sequence and the keys and values they may see.
#[derive(Clone, Copy)]
pub(super) struct Rows<'a> {
    pub(super) q: Data<'a>,
    /// Strides of `q` between rows and between groups.
    pub(super) q_at: (usize, usize),
    pub(super) kv: Data<'a>,
    /// Strides of `kv` between rows and between groups, and the offset of a group's key.
    pub(super) kv_at: (usize, usize, usize),
    pub(super) heads: &'a Heads,
    /// Position of the first query row.
    pub(super) first: usize,
    /// Query rows.
    pub(super) t: usize,
    /// Positions of the available keys that some query row may attend to, ignoring its bounds.
    pub(super) keys: Span,
    /// Keys of a block of the softmax.
    pub(super) block: usize,
    pub(super) numbers: Numbers,
    pub(super) mask: Mask<'a>,
    /// Factor of the scores before the bias.
    pub(super) scale: f32,
    /// Bound of the scores, which have no bias then; 0: none.
    pub(super) cap: f32,
    /// Linear biases, beside which there is no other bias.
    pub(super) alibi: Option<Alibi>,
    pub(super) bias: Option<&'a Expanded>,
    /// A score per head beside those of the keys.
    pub(super) sinks: Option<&'a [f32]>,
    /// Number of the sequence in the whole batch.
    pub(super) sequence: u64,
}

/// Positions from `start` to below `end`; a range that can be copied.
#[derive(Clone, Copy)]
pub(super) struct Span {
    pub(super) start: usize,
    pub(super) end: usize,
}

impl Span {
    pub(super) fn len(self) -> usize {
        self.end - self.start
    }
}

impl<'a> Rows<'a> {
    /// Sequence `sequence` of the call.
    pub(super) fn of(
        q: &'a Tensor,
        call: &Call<'a>,
        bias: Option<&'a Expanded>,
        sequence: usize,
    ) -> Rows<'a> {
        let (heads, t) = (call.heads, call.t);
        let row = call.query_width();
        let q = Data::of(q).part(sequence * t * row, (sequence + 1) * t * row);
        let (kv, kv_at) = match call.keys {
            Keys::Own => {
                let before = heads.per_group() * heads.width;
                (q, (row, heads.group_width(), before))
            }
            Keys::Part { kv, .. } | Keys::Other { kv, .. } => {
                let width = heads.kv_width();
                let held = call.held();
                let (first, end) = (sequence * held * width, (sequence + 1) * held * width);
                (Data::of(kv).part(first, end), (width, 2 * heads.width, 0))
            }
        };
        let bounds = call.mask.bounds;
        let before = call.dropout.map_or(0, |dropout| dropout.sequence);
        let (start, end) = (call.keys.start(), call.visible());
        let keys = Span { start, end };
        Rows {
            q,
            q_at: (row, row / heads.kv_heads),
            kv,
            kv_at,
            heads,
            first: call.keys.first(),
            t,
            keys,
            block: block_of(call.block, keys),
            numbers: call.numbers,
            mask: Mask {
                bounds: bounds.map(|bounds| &bounds[sequence * t..(sequence + 1) * t]),
                ..call.mask
            },
            scale: call.scores.factor(heads),
            cap: call.scores.cap,
            alibi: call.scores.alibi,
            bias,
            sinks: call.sinks.map(Tensor::f32),
            sequence: before + sequence as u64,
        }
    }

    /// Keys that a query row attends to; empty ranges may start behind their end.
    pub(super) fn seen(&self, row: usize) -> Range<usize> {
        let position = self.first + row;
        let mut range = self.keys.start..self.keys.end;
        if self.mask.is_causal {
            range.end = range.end.min(position + 1);
        }
        if self.mask.window > 0 {
            range.start = (range.start).max((position + 1).saturating_sub(self.mask.window));
        }
        if let Some(bounds) = self.mask.bounds {
            let [start, end] = bounds[row];
            range.start = range.start.max(start as usize);
            range.end = range.end.min(end as usize);
        }
        range
    }

    /// The mask of a tile of rows.
    pub(super) fn tile(&self, first: usize, len: usize) -> Tile {
        let mut tile = Tile {
            first,
            len,
            starts: [0; TILE],
            ends: [0; TILE],
            visited: 0..0,
        };
        for r in 0..len {
            let seen = self.seen(first + r);
            if seen.is_empty() {
                continue;
            }
            let (start, end) = (seen.start, seen.end);
            (tile.starts[r], tile.ends[r]) = (start, end);
            tile.visited = if tile.visited.is_empty() {
                start..end
            } else {
                tile.visited.start.min(start)..tile.visited.end.max(end)
            };
        }
        tile
    }

    /// The blocks of keys in a range: the first position of each.
    pub(super) fn blocks(&self, range: &Range<usize>) -> impl Iterator<Item = usize> + use<> {
        // with one block for all keys it starts where they do
        let origin = self.keys.start % self.block;
        let first = (range.start - origin) / self.block * self.block + origin;
        (first..range.end).step_by(self.block)
    }

    /// Rows first .. first + len of a query head.
    pub(super) fn queries(
        &self,
        group: usize,
        query: usize,
        first: usize,
        len: usize,
    ) -> Matrix<'a> {
        let (stride, step) = self.q_at;
        let at = group * step + query * self.heads.width;
        Matrix::of(self.q, first * stride + at, [len, self.heads.width], stride)
    }

    /// Available keys (`slot` 0) or values (1).
    pub(super) fn shared(&self, group: usize, slot: usize) -> Matrix<'a> {
        let (stride, step, before) = self.kv_at;
        let at = group * step + before + slot * self.heads.width;
        let size = [self.keys.len(), self.heads.width];
        Matrix::of(self.kv, at, size, stride)
    }

    /// Dropout factors of a head's probabilities, transposed: a row of 32 for each key of `keys`.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "mod.rs checks positions; a sequence number is split into words"
    )]
    pub(super) fn factors(
        &self,
        isa: Isa,
        (tile, keys): (&Tile, Range<usize>),
        room: &mut [f32],
        out: &mut [f32],
        c: Constants,
    ) {
        let room = &mut room[..tile.len * keys.len()];
        room.fill(1.0);
        for (r, row) in room.chunks_exact_mut(keys.len()).enumerate() {
            let counter = [
                (self.first + tile.first + r) as u32,
                self.sequence as u32,
                (self.sequence >> 32) as u32,
            ];
            dropout::cpu::drop_row(isa, row, keys.start, counter, c);
        }
        let rows = View::new(room, tile.len, keys.len(), keys.len());
        pack(isa, Numbers::F32, panel(rows.into(), TILE), out);
    }
}

/// The bias of a call by distance.
pub(super) fn expand(call: &Call<'_>) -> Result<Option<Expanded>> {
    let first = call.keys.first();
    let of = |bias| Expanded::new(bias, first..first + call.t, call.total());
    call.bias.as_ref().map(of).transpose()
}

/// Keys per block; 0 means all available ones.
pub(super) fn block_of(block: usize, keys: Span) -> usize {
    if block == 0 {
        keys.len().max(1).next_multiple_of(2)
    } else {
        block
    }
}

/// Lays a matrix out for a product: word (row, step of columns) at step * width + row, zeros past the
/// rows and, in a last block of steps, past the columns.
pub(super) fn lay(device: &Device, numbers: Numbers, x: Matrix<'_>, width: usize, out: &mut [f32]) {
    pack(device.isa(), numbers, panel(x, width), out);
    if numbers == Numbers::Bf16Tiles {
        let words = x.cols().div_ceil(2) * width;
        out[words..steps(numbers, x.cols()) * width].fill(0.0);
    }
}

/// Like `lay`, for the transposed matrix and a width of whole vectors.
pub(super) fn lay_turned(
    device: &Device,
    numbers: Numbers,
    x: Matrix<'_>,
    width: usize,
    out: &mut [f32],
) {
    match numbers {
        Numbers::F32 => lay(device, numbers, x.transposed(), width, out),
        Numbers::Bf16 | Numbers::Bf16Mma | Numbers::F16Mma | Numbers::Bf16Tiles => {
            join_pairs(device.isa(), numbers, x, out, width)
        }
    }
}

/// All of a matrix as one panel.
pub(super) fn panel(a: Matrix<'_>, width: usize) -> Panels<Matrix<'_>> {
    Panels {
        a,
        first: 0,
        width,
        count: 1,
        apart: 0,
    }
}
