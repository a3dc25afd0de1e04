//! Backward: a task is the query heads of one kv head, block of keys by block of keys.
//!
//! Per tile, P from the saved lse: dV += P^T dO, dP = dO V^T, dS = P (dP - rowsum(dO O)) scale,
//! dQ += dS K, dK += dS^T Q; with dropout dP and the P of dV are times the factors of forward. A row of
//! dQ is one chain over ascending keys, also from visit to visit. dK and dV are sums over leaves of query
//! rows: a leaf is one chain over the group's query heads and, within a head, ascending rows; leaves
//! that see nothing of a block are left out. Results have no -0.0: neither what is left out nor where
//! a chain starts shows.

use super::bias::{Expanded, settle};
use super::operand::{Operand, Read};
use super::queries::{Plan, Queries, Saved};
use super::softmax::{self, Made, OfRows};
use super::tree::{Lines, Tree};
use super::turn::{side_by_side, turn_back, write_row};
use super::{Rows, TILE, Tile, expand, lay_turned};
use crate::cpu::element::Element;
use crate::cpu::output::Data;
use crate::cpu::pack::View;
use crate::cpu::rooms::Rooms;
use crate::cpu::strip::{Strip, Strips, steps};
use crate::cpu::words::join_row;
use crate::cpu::{Isa, Numbers};
use crate::ops::attention::{Call, Keys, Passed};
use crate::{DType, Device, Result, Tensor};
use rayon::prelude::*;
use std::ops::Range;

/// Gradients of query rows on their way over the keys.
pub(in crate::ops::attention) struct Slopes {
    /// Turned: `[b, heads, tiles, width, 32]`, tiles leaf by leaf.
    dq: Tensor,
    /// Sums of slopes by distance, `[b, kv_heads, leaves, heads of a group, distances]`.
    by_distance: Tensor,
    plan: Plan,
}

impl Slopes {
    /// `leaf` query rows a leaf; 0: one leaf.
    pub(in crate::ops::attention) fn new(
        call: &Call<'_>,
        leaf: usize,
        device: &Device,
    ) -> Result<Slopes> {
        let leaf = if leaf == 0 { call.t } else { leaf.min(call.t) };
        let distances = call
            .bias
            .map_or(0, |_| Expanded::count(call.t, call.total()));
        let plan = Plan {
            t: call.t,
            leaf,
            distances,
        };
        let heads = call.b * call.heads.heads;
        let dq = heads * plan.tiles() * call.heads.width * TILE;
        let by_distance = heads * plan.leaves() * distances;
        Ok(Slopes {
            dq: Tensor::zeros(&[dq], DType::F32, device)?,
            by_distance: Tensor::zeros(&[by_distance], DType::F32, device)?,
            plan,
        })
    }

    /// dkv: `[b, kv_heads, keys at hand, 2*width]`.
    fn visit(&mut self, dkv: &mut Tensor, passed: &Passed<'_>, call: &Call<'_>) -> Result<()> {
        let device = passed.qkv.device();
        let (heads, t, plan) = (call.heads, call.t, self.plan);
        let (per, width) = (heads.per_group(), heads.width);
        let bias = expand(call)?;
        if call.b == 0 {
            return Ok(());
        }
        let of = Rows::of(passed.qkv, call, bias.as_ref(), 0);
        let is_dropped = call.dropout.is_some();
        let count = call.b * heads.kv_heads;
        let rooms = Rooms::new(count, || Room::new(&of, (plan, is_dropped), device))?;
        let tasks = dkv.f32_mut().par_chunks_mut(2 * call.held() * width);
        let tasks = tasks.zip(
            self.dq
                .f32_mut()
                .par_chunks_mut(per * plan.tiles() * width * TILE),
        );
        let one = |task: usize, dkv: &mut [f32], dq: &mut [f32], by_distance: &mut [f32]| {
            let (sequence, group) = (task / heads.kv_heads, task % heads.kv_heads);
            let outs = heads.heads * width;
            let rows_out = sequence * t * outs..(sequence + 1) * t * outs;
            let lse = sequence * heads.heads * t..(sequence + 1) * heads.heads * t;
            let saved = Saved {
                rows: Rows::of(passed.qkv, call, bias.as_ref(), sequence),
                dout: Data::of(passed.dout).part(rows_out.start, rows_out.end),
                out: &passed.out.f32()[rows_out],
                lse: &passed.lse.f32()[lse],
                call,
            };
            if saved.rows.keys.len() == 0 {
                return dkv.fill(0.0);
            }
            let sums = Sums {
                dkv,
                dq,
                by_distance,
            };
            rooms.with(|room| one_group(sums, &saved, (group, plan), room, device));
        };
        if plan.distances == 0 {
            let tasks = tasks.enumerate();
            tasks.for_each(|(task, (dkv, dq))| one(task, dkv, dq, &mut []));
            return Ok(());
        }
        let per_task = per * plan.leaves() * plan.distances;
        let sums = self.by_distance.f32_mut().par_chunks_mut(per_task);
        let tasks = tasks.zip(sums).enumerate();
        tasks.for_each(|(task, ((dkv, dq), sums))| one(task, dkv, dq, sums));
        Ok(())
    }

    /// Writes dqkv, with keys and values by `dkv` (as `visit` gives it) or 0, and adds to dtable.
    fn finish(
        self,
        (dqkv, dtable): (&mut Tensor, Option<&mut Tensor>),
        dkv: Option<&Tensor>,
        call: &Call<'_>,
    ) -> Result<()> {
        let (heads, device) = (call.heads, dqkv.device().clone());
        if dqkv.dtype() == DType::Bf16 {
            self.write(dqkv.bf16_mut(), dkv, call, device.isa());
        } else {
            self.write(dqkv.f32_mut(), dkv, call, device.isa());
        }
        let (Some(dtable), Some(bias)) = (dtable, expand(call)?) else {
            return Ok(());
        };
        let by_head = self.by_bucket(&bias, call);
        let dims = [call.b, heads.heads * bias.buckets];
        settle(dtable, &Tensor::from_f32(&dims, &by_head, &device)?)
    }

    /// Writes dqkv.
    fn write<E: Element>(&self, dqkv: &mut [E], dkv: Option<&Tensor>, call: &Call<'_>, isa: Isa) {
        let (heads, t, plan) = (call.heads, call.t, self.plan);
        let (per, width) = (heads.per_group(), heads.width);
        let row = call.query_width();
        let dq = self.dq.f32();
        let sequences = dqkv.par_chunks_mut(t * row).enumerate();
        sequences.for_each(|(sequence, out)| {
            for head in 0..heads.heads {
                let number = sequence * heads.heads + head;
                let at = head / per * (row / heads.kv_heads) + head % per * width;
                for leaf in 0..plan.leaves() {
                    for (tile, first, len) in plan.of_leaf(leaf) {
                        let from = (number * plan.tiles() + tile) * width * TILE;
                        let dq = &dq[from..from + width * TILE];
                        let out = (&mut out[first * row + at..], row);
                        turn_back(isa, dq, None, (len, width), out);
                    }
                }
            }
            if !matches!(call.keys, Keys::Other { .. }) {
                for (i, out) in out.chunks_exact_mut(heads.group_width()).enumerate() {
                    let (i, group) = (i / heads.kv_heads, i % heads.kv_heads);
                    let out = &mut out[per * width..];
                    let task = sequence * heads.kv_heads + group;
                    match dkv {
                        None => out.fill(E::default()),
                        Some(dkv) => {
                            let at = (task * t + i) * 2 * width;
                            write_row(isa, &dkv.f32()[at..at + 2 * width], out);
                        }
                    }
                }
            }
        });
    }

    /// `[b, heads, buckets]`: leaves merged in their tree.
    fn by_bucket(&self, bias: &Expanded, call: &Call<'_>) -> Vec<f32> {
        let (per, plan) = (call.heads.per_group(), self.plan);
        let isa = self.dq.device().isa();
        let mut all = Vec::new();
        let groups = self.by_distance.f32();
        for group in groups.chunks_exact(plan.leaves() * per * plan.distances) {
            let mut tree = Tree::default();
            for (leaf, heads) in group.chunks_exact(per * plan.distances).enumerate() {
                let mut sum = Lines::new(per * bias.buckets);
                let both = sum.chunks_exact_mut(bias.buckets);
                for (sum, head) in both.zip(heads.chunks_exact(plan.distances)) {
                    bias.fold(sum, head);
                }
                tree.push(leaf, Some(sum), isa);
            }
            all.extend_from_slice(&tree.take(isa).expect("there is a leaf"));
        }
        all
    }
}

pub(in crate::ops::attention) fn backward(
    (slopes, dkv): (&mut Slopes, &mut Tensor),
    passed: &Passed<'_>,
    call: &Call<'_>,
) -> Result<()> {
    slopes.visit(dkv, passed, call)
}

pub(in crate::ops::attention) fn backward_end(
    slopes: Slopes,
    outs: (&mut Tensor, Option<&mut Tensor>),
    dkv: Option<&Tensor>,
    call: &Call<'_>,
) -> Result<()> {
    slopes.finish(outs, dkv, call)
}

/// What a task adds to.
struct Sums<'a> {
    dkv: &'a mut [f32],
    dq: &'a mut [f32],
    by_distance: &'a mut [f32],
}

/// Keys and values of a group as the products of all tiles read them.
struct Operands {
    k: Operand,
    v: Operand,
}

/// Room for a tile's probabilities and their gradients, `[keys of a block, 32]`; as words of pairs; dropout
/// factors by row and turned.
struct Scratch {
    p: Tensor,
    dp: Tensor,
    pairs: [Tensor; 2],
    factors: [Tensor; 2],
}

impl Scratch {
    fn new(rows: &Rows<'_>, is_dropped: bool, device: &Device) -> Result<Scratch> {
        let block = rows.block.min(rows.keys.len() + 1);
        let empty = |floats: usize| Tensor::empty(&[floats], DType::F32, device);
        let words = match rows.numbers {
            Numbers::F32 => 0,
            Numbers::Bf16 | Numbers::Bf16Tiles => steps(rows.numbers, block) * TILE,
        };
        let dropped = if is_dropped { block * TILE } else { 0 };
        Ok(Scratch {
            p: empty(block * TILE)?,
            dp: empty(block * TILE)?,
            pairs: [empty(words)?, empty(words)?],
            factors: [empty(dropped)?, empty(dropped)?],
        })
    }
}

/// What a task works in.
struct Room {
    operands: Operands,
    queries: Queries,
    scratch: Scratch,
    tree: Tree,
}

impl Room {
    fn new(rows: &Rows<'_>, (plan, is_dropped): (Plan, bool), device: &Device) -> Result<Room> {
        let size = (rows.keys.len(), rows.heads.width);
        let kind = (rows.numbers, rows.block);
        let operands = Operands {
            k: Operand::new(size, kind, Read::Both, device)?,
            v: Operand::new(size, kind, Read::Rows, device)?,
        };
        Ok(Room {
            operands,
            queries: Queries::new(rows, plan, device)?,
            scratch: Scratch::new(rows, is_dropped, device)?,
            tree: Tree::default(),
        })
    }
}

fn one_group(
    sums: Sums<'_>,
    saved: &Saved<'_>,
    (group, plan): (usize, Plan),
    room: &mut Room,
    device: &Device,
) {
    let (rows, isa) = (&saved.rows, device.isa());
    let (per, width) = (rows.heads.per_group(), rows.heads.width);
    let Room {
        operands,
        queries,
        scratch,
        tree,
    } = room;
    operands.k.fill(rows.shared(group, 0), device);
    operands.v.fill(rows.shared(group, 1), device);
    queries.fill(saved, (group, plan), device);
    let (operands, queries) = (&*operands, &*queries);
    let mut strips = Strips::new(isa, rows.numbers);
    let padded = queries.floats.padded;
    let half = rows.block.min(rows.keys.len()) * padded;
    let all = rows.keys.start..rows.keys.end;
    // keys at hand that no row may see
    sums.dkv[all.len() * 2 * width..].fill(0.0);
    for block in rows.blocks(&all) {
        for leaf in 0..plan.leaves() {
            let mut sum = None;
            for query in 0..per {
                for (number, ..) in plan.of_leaf(leaf) {
                    let tile = &queries.tiles[number];
                    let keys = tile.within(block, rows.block, rows.numbers);
                    if keys.is_empty() {
                        continue;
                    }
                    let is_fresh = sum.is_none();
                    let sum: &mut Lines = sum.get_or_insert_with(|| tree.room(2 * half));
                    let (dk, dv) = sum.split_at_mut(half);
                    let of_leaf = Leaf { dk, dv, is_fresh };
                    let number = query * plan.tiles() + number;
                    let distances = (leaf * per + query) * plan.distances;
                    let of = Work {
                        saved,
                        operands,
                        queries,
                        tile,
                        keys,
                        block,
                        head: group * per + query,
                    };
                    let dq = &mut sums.dq[number * width * TILE..][..width * TILE];
                    let sums = &mut sums.by_distance[distances..distances + plan.distances];
                    of.run(
                        (dq, of_leaf),
                        (number, sums),
                        (scratch, &mut strips),
                        device,
                    );
                }
            }
            tree.push(leaf, sum, isa);
        }
        let (from, end) = (
            block - all.start,
            all.len().min(block - all.start + rows.block),
        );
        let out = &mut sums.dkv[from * 2 * width..end * 2 * width];
        if let Some(sum) = tree.take(isa) {
            let (dk, dv) = sum.split_at(half);
            side_by_side(isa, out, (dk, dv), (width, padded));
            tree.free.push(sum);
        } else {
            out.fill(0.0);
        }
    }
}

/// A leaf's sums for a block of keys.
struct Leaf<'a> {
    dk: &'a mut [f32],
    dv: &'a mut [f32],
    /// Whether nothing is there yet, whatever is in its room.
    is_fresh: bool,
}

/// A tile and the keys of a block that it visits.
struct Work<'a> {
    saved: &'a Saved<'a>,
    operands: &'a Operands,
    queries: &'a Queries,
    tile: &'a Tile,
    keys: Range<usize>,
    /// First key of the block.
    block: usize,
    head: usize,
}

impl Work<'_> {
    fn run(
        &self,
        (dq, Leaf { dk, dv, is_fresh }): (&mut [f32], Leaf<'_>),
        (number, by_distance): (usize, &mut [f32]),
        (scratch, strips): (&mut Scratch, &mut Strips),
        device: &Device,
    ) {
        let rows = &self.saved.rows;
        let (isa, numbers, width) = (device.isa(), rows.numbers, rows.heads.width);
        let (count, of) = (self.keys.len(), self.queries.of(number));
        let at = self.keys.start - rows.keys.start;
        let p = &mut scratch.p.f32_mut()[..count * TILE];
        let dp = &mut scratch.dp.f32_mut()[..count * TILE];
        for (operand, b, c) in [
            (&self.operands.k, of.q, &mut *p),
            (&self.operands.v, of.dout, &mut *dp),
        ] {
            let (a, a_at) = operand.by_rows(at);
            let product = Strip {
                a,
                a_at,
                b,
                b_at: TILE,
                c,
                c_at: TILE,
                rows: count,
                lanes: TILE,
                steps: steps(numbers, width),
                goes_on: false,
            };
            strips.multiply(product);
        }
        self.score(
            (p, dp),
            (of.rows, by_distance),
            &mut scratch.factors,
            device,
        );
        let padded = self.queries.floats.padded;
        let first = (self.keys.start - self.block) * padded;
        let end = first + count * padded;
        let lines = steps(numbers, self.tile.len);
        for ((x, pairs), (b, c)) in [(&*p, 0), (&*dp, 1)]
            .into_iter()
            .zip([(of.dout_rows, dv), (of.q_rows, dk)])
        {
            let (a, step) = match numbers {
                Numbers::F32 => (x, TILE),
                Numbers::Bf16 | Numbers::Bf16Tiles => {
                    let words = &mut scratch.pairs[pairs].f32_mut()[..count * TILE / 2];
                    join_row(isa, x, words);
                    (&*words, TILE / 2)
                }
            };
            if is_fresh {
                // what this first tile of a leaf visits starts at 0 in its product
                c[..first].fill(0.0);
                c[end..].fill(0.0);
            }
            let product = Strip {
                a,
                a_at: (step, 1),
                b,
                b_at: padded,
                c: &mut c[first..],
                c_at: padded,
                rows: count,
                lanes: padded,
                steps: lines,
                goes_on: !is_fresh,
            };
            strips.multiply(product);
        }
        let chain = steps(numbers, count);
        let b = match numbers {
            Numbers::F32 => &*dp,
            Numbers::Bf16 | Numbers::Bf16Tiles => {
                let words = &mut scratch.pairs[0].f32_mut()[..chain * TILE];
                let by_key = View::new(dp, count, TILE, TILE);
                lay_turned(device, numbers, by_key.into(), TILE, words);
                words
            }
        };
        let (a, a_at) = self.operands.k.by_columns(at);
        let product = Strip {
            a,
            a_at,
            b,
            b_at: TILE,
            c: dq,
            c_at: TILE,
            rows: width,
            lanes: TILE,
            steps: chain,
            goes_on: true,
        };
        strips.multiply(product);
    }

    /// Scores to probabilities times dropout factors, dp to the gradient of the unscaled scores.
    fn score(
        &self,
        (p, dp): (&mut [f32], &mut [f32]),
        (of, by_distance): (OfRows<'_>, &mut [f32]),
        [room, turned]: &mut [Tensor; 2],
        device: &Device,
    ) {
        let (rows, isa) = (&self.saved.rows, device.isa());
        let dropout = self.saved.call.dropout;
        let factors = dropout.map(|dropout| {
            let turned = &mut turned.f32_mut()[..p.len()];
            let constants = dropout.of_head(self.head);
            let of = (self.tile, self.keys.clone());
            rows.factors(isa, of, (room.f32_mut(), &mut *turned), constants);
            softmax::times(isa, dp, turned);
            turned
        });
        let seen = self.tile.seen(&self.keys);
        let position = rows.first + self.tile.first;
        let bias = rows.bias.map(|bias| {
            let at = bias.at(position, self.keys.start);
            (bias.of_head(self.head), at)
        });
        let made = Made {
            scale: rows.scale,
            bias,
            seen: seen.as_ref(),
        };
        let sums = (!by_distance.is_empty()).then_some(by_distance);
        softmax::slopes(isa, p, dp, of, made, sums);
        if let Some(factors) = factors {
            softmax::times(isa, p, factors);
        }
    }
}
