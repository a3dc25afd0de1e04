//! Backward's split of query rows into leaves and tiles, and their data in the layouts that its products read.

use super::bias::Expanded;
use super::rows::{Rows, lay, lay_turned};
use super::softmax::{OfRows, dot};
use super::tile::{TILE, Tile};
use crate::cpu::output::Data;
use crate::cpu::pack::Matrix;
use crate::cpu::simd::LANES;
use crate::cpu::strip::steps;
use crate::descriptor::attention::{Call, Passed};
use crate::ops::attention::state::Plan;
use crate::{DType, Device, Result, Tensor};

/// Inputs of backward for one sequence.
pub(super) struct Saved<'a> {
    pub(super) rows: Rows<'a>,
    pub(super) dout: Data<'a>,
    pub(super) out: &'a [f32],
    pub(super) lse: &'a [f32],
    pub(super) call: &'a Call<'a>,
}

impl<'a> Saved<'a> {
    /// Sequence `sequence` of the call.
    pub(super) fn of(
        passed: &Passed<'a>,
        call: &'a Call<'a>,
        bias: Option<&'a Expanded>,
        sequence: usize,
    ) -> Saved<'a> {
        let (heads, t) = (call.heads, call.t);
        let row = heads.heads * heads.width;
        let rows_out = sequence * t * row..(sequence + 1) * t * row;
        let lse = sequence * heads.heads * t..(sequence + 1) * heads.heads * t;
        Saved {
            rows: Rows::of(passed.qkv, call, bias, sequence),
            dout: Data::of(passed.dout).part(rows_out.start, rows_out.end),
            out: &passed.out.f32()[rows_out],
            lse: &passed.lse.f32()[lse],
            call,
        }
    }
}

/// Query rows of a group's heads and their gradients, plain and transposed, for all tiles.
pub(super) struct Queries {
    /// Transposed, `[heads of a group, tiles, steps of width, 32]`: queries, gradients of the result.
    pub(super) q: Tensor,
    pub(super) dout: Tensor,
    /// `[heads of a group, tiles, steps of rows, padded width]`
    pub(super) q_rows: Tensor,
    pub(super) dout_rows: Tensor,
    /// `[heads of a group, tiles, 2, 32]`: lse, dout . out.
    pub(super) numbers: Tensor,
    pub(super) tiles: Vec<Tile>,
    pub(super) floats: Floats,
}

/// Words of a tile in the tensors of `Queries`.
#[derive(Clone, Copy)]
pub(super) struct Floats {
    pub(super) turned: usize,
    pub(super) rows: usize,
    /// Width in whole vectors.
    pub(super) padded: usize,
}

/// A tile's rows in the layouts that products and softmax read.
pub(super) struct OfTile<'a> {
    pub(super) q: &'a [f32],
    pub(super) dout: &'a [f32],
    pub(super) q_rows: &'a [f32],
    pub(super) dout_rows: &'a [f32],
    pub(super) rows: OfRows<'a>,
}

impl Queries {
    /// Buffers for a group.
    pub(super) fn new(rows: &Rows<'_>, plan: Plan, device: &Device) -> Result<Queries> {
        let (numbers, heads, width) = (rows.numbers, rows.heads, rows.heads.width);
        let padded = width.next_multiple_of(LANES);
        let floats = Floats {
            turned: steps(numbers, width) * TILE,
            rows: steps(numbers, TILE) * padded,
            padded,
        };
        let count = heads.per_group() * plan.tiles();
        let empty = |floats: usize| Tensor::empty(&[count * floats], DType::F32, device);
        Ok(Queries {
            q: empty(floats.turned)?,
            dout: empty(floats.turned)?,
            q_rows: empty(floats.rows)?,
            dout_rows: empty(floats.rows)?,
            numbers: empty(2 * TILE)?,
            tiles: Vec::with_capacity(plan.tiles()),
            floats,
        })
    }

    /// Loads the rows of a group.
    pub(super) fn fill(
        &mut self,
        saved: &Saved<'_>,
        (group, plan): (usize, Plan),
        device: &Device,
    ) {
        let floats = self.floats;
        let queries = self;
        let (rows, numbers) = (&saved.rows, saved.rows.numbers);
        let (heads, width, padded) = (rows.heads, rows.heads.width, floats.padded);
        queries.tiles.clear();
        queries.numbers.f32_mut().fill(0.0);
        for leaf in 0..plan.leaves() {
            let tiles = plan.of_leaf(leaf);
            let tiles = tiles.map(|(_, first, len)| rows.tile(first, len));
            queries.tiles.extend(tiles);
            // a short last leaf has fewer
            let all = (leaf + 1) * plan.tiles_per_leaf();
            queries.tiles.resize_with(all, || rows.tile(0, 0));
        }
        let stride = heads.heads * width;
        for query in 0..heads.per_group() {
            let head = group * heads.per_group() + query;
            for (i, tile) in queries.tiles.iter().enumerate() {
                if tile.visited.is_empty() {
                    continue;
                }
                let number = query * plan.tiles() + i;
                let q = rows.queries(group, query, tile.first, tile.len);
                let at = tile.first * stride + head * width;
                let dout = Matrix::of(saved.dout, at, [tile.len, width], stride);
                let of = [
                    (q, &mut queries.q, &mut queries.q_rows),
                    (dout, &mut queries.dout, &mut queries.dout_rows),
                ];
                for (x, turned, by_row) in of {
                    let at = number * floats.turned;
                    let turned = &mut turned.f32_mut()[at..at + floats.turned];
                    lay(device, numbers, x, TILE, turned);
                    let at = number * floats.rows;
                    let by_row = &mut by_row.f32_mut()[at..at + floats.rows];
                    lay_turned(device, numbers, x, padded, by_row);
                }
                let of = &mut queries.numbers.f32_mut()[number * 2 * TILE..][..2 * TILE];
                let (lse, d) = of.split_at_mut(TILE);
                let from = head * rows.t + tile.first;
                lse[..tile.len].copy_from_slice(&saved.lse[from..from + tile.len]);
                for (r, d) in d[..tile.len].iter_mut().enumerate() {
                    let (first, end) = (at + r * stride, at + r * stride + width);
                    let dout = saved.dout.part(first, end);
                    *d = dot(device.isa(), dout, &saved.out[first..end]);
                }
            }
        }
    }

    pub(super) fn of(&self, number: usize) -> OfTile<'_> {
        let Floats { turned, rows, .. } = self.floats;
        let (turned, rows) = (
            number * turned..(number + 1) * turned,
            number * rows..(number + 1) * rows,
        );
        let numbers = &self.numbers.f32()[number * 2 * TILE..][..2 * TILE];
        let (lse, d) = numbers.split_at(TILE);
        OfTile {
            q: &self.q.f32()[turned.clone()],
            dout: &self.dout.f32()[turned],
            q_rows: &self.q_rows.f32()[rows.clone()],
            dout_rows: &self.dout_rows.f32()[rows],
            rows: OfRows { lse, d },
        }
    }
}
