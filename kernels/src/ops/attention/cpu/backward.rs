//! Flash-attention backward: a task is the query heads of one kv head, block of keys by block of keys.
//!
//! Per tile, P is recomputed from the saved lse: dV += P^T dO, dP = dO V^T, dS = P (dP - rowsum(dO O)) scale, dQ +=
//! dS K, dK += dS^T Q; with dropout, dP and the P of dV are multiplied by forward's factors. A row of dQ is one
//! chain over ascending keys, also across calls of `visit`. dK and dV are sums over leaves of query rows: a leaf is
//! one chain over the group's query heads and, within a head, ascending rows; leaves that attend to nothing of a
//! block are left out. Results have no -0.0, so neither omitted leaves nor a chain's start show in the bits.
#![expect(unsafe_code, reason = "tasks write disjoint columns of one output")]

use super::alibi::AlibiLanes;
use super::bias::{Expanded, settle};
use super::operand::{Operand, Read};
use super::queries::{Queries, Saved};
use super::rows::{Rows, expand, lay_turned};
use super::softmax::{self, Made, OfRows};
use super::tile::{TILE, Tile};
use super::tree::{Lines, Tree};
use super::turn::{Columns, Place, side_by_side, turn_back};
use crate::cpu::bf16_pack::join_row;
use crate::cpu::element::Element;
use crate::cpu::pack::View;
use crate::cpu::rotary::{Part, Rotary};
use crate::cpu::scratch::ScratchPool;
use crate::cpu::simd::LANES;
use crate::cpu::small_gemm::Strips;
use crate::cpu::strip::{Strip, steps};
use crate::cpu::{Isa, Numbers, pieces};
use crate::descriptor::attention::{Call, Keys, Passed};
use crate::descriptor::rope::Way;
use crate::ops::attention::state::{Plan, Slopes};
use crate::{DType, Device, Result, Tensor};
use rayon::prelude::*;
use std::ops::Range;

impl Slopes {
    /// dkv: `[b, kv_heads, available keys, 2*width]`.
    fn visit(&mut self, dkv: &mut Tensor, passed: &Passed<'_>, call: &Call<'_>) -> Result<()> {
        let device = passed.qkv.device();
        let (heads, plan) = (call.heads, self.plan);
        let (per, width) = (heads.per_group(), heads.width);
        let bias = expand(call)?;
        if call.b == 0 {
            return Ok(());
        }
        let of = Rows::of(passed.qkv, call, bias.as_ref(), 0);
        let is_dropped = call.dropout.is_some();
        let count = call.b * heads.kv_heads;
        let scratch_pool = ScratchPool::new(count, || Room::new(&of, (plan, is_dropped), device))?;
        let tasks = dkv.f32_mut().par_chunks_mut(2 * call.held() * width);
        let tasks = tasks.zip(
            self.dq
                .f32_mut()
                .par_chunks_mut(per * plan.tiles() * width * TILE),
        );
        let one = |task: usize, dkv: &mut [f32], dq: &mut [f32], by_distance: &mut [f32]| {
            let (sequence, group) = (task / heads.kv_heads, task % heads.kv_heads);
            let saved = Saved::of(passed, call, bias.as_ref(), sequence);
            let columns = Columns::of(dkv, 2 * width);
            let sums = Sums {
                dkv: columns.from(0, 0),
                dq,
                by_distance,
            };
            // SAFETY: this task alone writes the gradients of its group's keys and values (`dkv` is its own chunk).
            scratch_pool
                .with(|room| unsafe { one_group(sums, &saved, (group, plan), room, device) });
        };
        if plan.distances == 0 {
            let tasks = tasks.enumerate();
            pieces(tasks).for_each(|(task, (dkv, dq))| one(task, dkv, dq, &mut []));
            return Ok(());
        }
        let per_task = per * plan.leaves() * plan.distances;
        let sums = self.by_distance.f32_mut().par_chunks_mut(per_task);
        let tasks = tasks.zip(sums).enumerate();
        pieces(tasks).for_each(|(task, ((dkv, dq), sums))| one(task, dkv, dq, sums));
        Ok(())
    }

    /// Writes dqkv, with keys and values from `dkv` (as `visit` returns it) or 0, and adds to dtable.
    fn finish(
        self,
        (dqkv, dtable): (&mut Tensor, Option<&mut Tensor>),
        dkv: Option<&Tensor>,
        (passed, call): (&Passed<'_>, &Call<'_>),
    ) -> Result<()> {
        let (heads, device) = (call.heads, dqkv.device().clone());
        if let Some(turn) = passed.turn {
            let mut all = Tensor::empty(dqkv.dims(), DType::F32, &device)?;
            self.write(all.f32_mut(), dkv, call, device.isa());
            Rotary::new(turn, Way::Back, &device).settle_all(&mut all, dqkv);
        } else if dqkv.dtype() == DType::Bf16 {
            self.write(dqkv.bf16_mut(), dkv, call, device.isa());
        } else {
            self.write(dqkv.f32_mut(), dkv, call, device.isa());
        }
        let (Some(dtable), Some(bias)) = (dtable, expand(call)?) else {
            return Ok(());
        };
        let sums = self.by_distance.f32();
        let by_head = self.plan.by_bucket(sums, &bias, call, device.isa());
        let dims = [call.b, heads.heads * bias.buckets];
        settle(dtable, &Tensor::from_f32(&dims, &by_head, &device)?)
    }

    /// Writes dqkv.
    fn write<E: Element>(&self, dqkv: &mut [E], dkv: Option<&Tensor>, call: &Call<'_>, isa: Isa) {
        let (heads, t, plan) = (call.heads, call.t, self.plan);
        let (per, width) = (heads.per_group(), heads.width);
        let row = call.query_width();
        let columns = Columns::of(dqkv, row);
        let dq = self.dq.f32().par_chunks(plan.tiles() * width * TILE);
        pieces(dq.enumerate()).for_each(|(number, dq)| {
            let (sequence, head) = (number / heads.heads, number % heads.heads);
            let at = head / per * (row / heads.kv_heads) + head % per * width;
            let out = columns.from(sequence * t, at);
            // SAFETY: this task alone writes the columns of its head in the rows of its sequence.
            unsafe { plan.write_queries(isa, dq, width, out) }
        });
        if matches!(call.keys, Keys::Other { .. }) {
            return;
        }
        (0..call.b * t).into_par_iter().for_each(|i| {
            for group in 0..heads.kv_heads {
                let out = columns.from(i, group * heads.group_width() + per * width);
                let halves = dkv.map(|dkv| {
                    let at = ((i / t * heads.kv_heads + group) * t + i % t) * 2 * width;
                    let row = &dkv.f32()[at..at + 2 * width];
                    [&row[..width], &row[width..]]
                });
                // SAFETY: this task alone writes the keys and values of its row.
                unsafe { side_by_side(isa, halves, 1, width, width, out) }
            }
        });
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
    of: (&Passed<'_>, &Call<'_>),
) -> Result<()> {
    slopes.finish(outs, dkv, of)
}

/// Backward with the sequences' own keys: gradients are written as soon as they are whole.
pub(crate) fn backward_whole(
    (dqkv, dtable): (&mut Tensor, Option<&mut Tensor>),
    passed: &Passed<'_>,
    call: &Call<'_>,
    leaf: usize,
) -> Result<()> {
    if dqkv.dtype() == DType::Bf16 {
        whole(Tensor::bf16_mut, (dqkv, dtable), passed, call, leaf)
    } else {
        whole(Tensor::f32_mut, (dqkv, dtable), passed, call, leaf)
    }
}

/// The element type of dqkv is `numbers`'.
fn whole<E: Element>(
    numbers: impl Fn(&mut Tensor) -> &mut [E],
    (dqkv, dtable): (&mut Tensor, Option<&mut Tensor>),
    passed: &Passed<'_>,
    call: &Call<'_>,
    leaf: usize,
) -> Result<()> {
    let (heads, device, t) = (call.heads, passed.qkv.device(), call.t);
    let (per, width) = (heads.per_group(), heads.width);
    let plan = Plan::new(call, leaf);
    let bias = expand(call)?;
    let count = call.b * heads.kv_heads;
    let distances = per * plan.leaves() * plan.distances;
    let mut by_distance = Tensor::zeros(&[count * distances], DType::F32, device)?;
    if call.b > 0 && t > 0 {
        let of = Rows::of(passed.qkv, call, bias.as_ref(), 0);
        let is_dropped = call.dropout.is_some();
        let rotary = passed.turn.map(|turn| Rotary::new(turn, Way::Back, device));
        let group_width = heads.group_width();
        let rows = rotary.as_ref().map_or(0, |_| t * group_width);
        let scratch_pool = ScratchPool::new(count, || {
            let room = Room::new(&of, (plan, is_dropped), device)?;
            let empty = |floats| Tensor::empty(&[floats], DType::F32, device);
            let dq = empty(per * plan.tiles() * width * TILE)?;
            Ok((room, dq, empty(rows)?))
        })?;
        let columns = Columns::of(numbers(dqkv), call.query_width());
        let one = |task: usize, by_distance: &mut [f32]| {
            let (sequence, group) = (task / heads.kv_heads, task % heads.kv_heads);
            let saved = Saved::of(passed, call, bias.as_ref(), sequence);
            let out = columns.from(sequence * t, group * group_width);
            scratch_pool.with(|(room, dq, rows)| {
                let dq = dq.f32_mut();
                let Some(rotary) = &rotary else {
                    // SAFETY: this task alone writes the columns of its group in the rows of its sequence.
                    return unsafe {
                        group_whole(out, dq, by_distance, &saved, (group, plan), room, device)
                    };
                };
                let rows = rows.f32_mut();
                let own = Columns::of(rows, group_width);
                // SAFETY: the buffer `rows` belongs to this task.
                unsafe {
                    group_whole(
                        own.from(0, 0),
                        dq,
                        by_distance,
                        &saved,
                        (group, plan),
                        room,
                        device,
                    );
                }
                let part = Part {
                    row: sequence * t,
                    column: group * group_width,
                    rows: t,
                    columns: group_width,
                };
                let (to, isa) = ((columns.start(), None), device.isa());
                // SAFETY: this task alone writes the columns of its group in the rows of its sequence.
                unsafe { rotary.settle(isa, (rows, group_width), to, part) }
            });
        };
        if distances == 0 {
            pieces((0..count).into_par_iter()).for_each(|task| one(task, &mut []));
        } else {
            let sums = by_distance.f32_mut().par_chunks_mut(distances);
            pieces(sums.enumerate()).for_each(|(task, sums)| one(task, sums));
        }
    }
    let (Some(dtable), Some(bias)) = (dtable, bias) else {
        return Ok(());
    };
    let by_head = plan.by_bucket(by_distance.f32(), &bias, call, device.isa());
    let dims = [call.b, heads.heads * bias.buckets];
    settle(dtable, &Tensor::from_f32(&dims, &by_head, device)?)
}

/// Writes gradients of a group's queries, keys and values as rows, from `out` on. # Safety Nobody else uses them.
unsafe fn group_whole<E: Element>(
    out: Place<'_, E>,
    dq: &mut [f32],
    by_distance: &mut [f32],
    saved: &Saved<'_>,
    (group, plan): (usize, Plan),
    room: &mut Room,
    device: &Device,
) {
    let heads = saved.call.heads;
    let (per, width) = (heads.per_group(), heads.width);
    dq.fill(0.0);
    let sums = Sums {
        dkv: out.after(0, per * width),
        dq: &mut *dq,
        by_distance,
    };
    // SAFETY: `one_group` writes the group's keys and values in the output, which no other task uses by this
    // function's contract.
    unsafe { one_group(sums, saved, (group, plan), room, device) }
    let queries = dq.chunks_exact(plan.tiles() * width * TILE);
    for (query, dq) in queries.enumerate() {
        // SAFETY: no other task uses the columns of the group's queries, by this function's contract.
        unsafe { plan.write_queries(device.isa(), dq, width, out.after(0, query * width)) }
    }
}

impl Plan {
    /// Writes the transposed gradients of a head's queries, tiles leaf by leaf.
    /// # Safety
    /// Nobody else uses these columns of the sequence's rows.
    unsafe fn write_queries<E: Element>(
        self,
        isa: Isa,
        dq: &[f32],
        width: usize,
        out: Place<'_, E>,
    ) {
        for leaf in 0..self.leaves() {
            for (tile, first, len) in self.of_leaf(leaf) {
                let dq = &dq[tile * width * TILE..][..width * TILE];
                // SAFETY: `turn_back` writes these columns of the sequence's rows, which no other task uses by this
                // function's contract.
                unsafe { turn_back(isa, dq, None, len, width, out.after(first, 0)) }
            }
        }
    }

    /// `[b, heads, buckets]` of sums by distance, leaves merged in their tree.
    fn by_bucket(self, sums: &[f32], bias: &Expanded, call: &Call<'_>, isa: Isa) -> Vec<f32> {
        let per = call.heads.per_group();
        let mut all = Vec::new();
        for group in sums.chunks_exact(self.leaves() * per * self.distances) {
            let mut tree = Tree::default();
            for (leaf, heads) in group.chunks_exact(per * self.distances).enumerate() {
                let mut sum = Lines::new(per * bias.buckets);
                let both = sum.chunks_exact_mut(bias.buckets);
                for (sum, head) in both.zip(heads.chunks_exact(self.distances)) {
                    bias.fold(sum, head);
                }
                tree.push(leaf, Some(sum), isa);
            }
            all.extend_from_slice(&tree.take(isa).expect("there is a leaf"));
        }
        all
    }
}

/// Sums that a task adds to, and the output of its keys' and values' gradients, `2*width` numbers per key.
struct Sums<'a, E> {
    dkv: Place<'a, E>,
    dq: &'a mut [f32],
    by_distance: &'a mut [f32],
}

/// Keys and values of a group as the products of all tiles read them.
struct Operands {
    k: Operand,
    v: Operand,
}

/// Buffers for a tile's probabilities and their gradients, `[keys of a block, 32]`; the same as words of pairs;
/// dropout factors by row and transposed.
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
            Numbers::Bf16 | Numbers::Bf16Mma | Numbers::F16Mma | Numbers::Bf16Tiles => {
                steps(rows.numbers, block) * TILE
            }
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

/// A task's buffers.
struct Room {
    operands: Operands,
    queries: Queries,
    scratch: Scratch,
    tree: Tree,
}

impl Room {
    fn new(rows: &Rows<'_>, (plan, is_dropped): (Plan, bool), device: &Device) -> Result<Room> {
        let (keys, width) = (rows.keys.len(), rows.heads.width);
        let kind = (rows.numbers, rows.block);
        let operands = Operands {
            k: Operand::new(keys, width, kind, Read::Both, device)?,
            v: Operand::new(keys, width, kind, Read::Rows, device)?,
        };
        Ok(Room {
            operands,
            queries: Queries::new(rows, plan, device)?,
            scratch: Scratch::new(rows, is_dropped, device)?,
            tree: Tree::default(),
        })
    }
}

/// # Safety
/// Nobody else uses the output's rows of the keys at hand where gradients of keys and values are written.
unsafe fn one_group<E: Element>(
    sums: Sums<'_, E>,
    saved: &Saved<'_>,
    (group, plan): (usize, Plan),
    room: &mut Room,
    device: &Device,
) {
    let (rows, isa) = (&saved.rows, device.isa());
    let (per, width) = (rows.heads.per_group(), rows.heads.width);
    let (count, held) = (rows.keys.len(), saved.call.held());
    let padded = width.next_multiple_of(LANES);
    // available keys that no row may attend to
    // SAFETY: nobody else uses the group's keys and values in the output, by this function's contract.
    unsafe {
        side_by_side(
            isa,
            None,
            held - count,
            width,
            padded,
            sums.dkv.after(count, 0),
        )
    }
    if count == 0 {
        return;
    }
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
    let half = rows.block.min(count) * padded;
    let all = rows.keys.start..rows.keys.end;
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
        let from = block - all.start;
        let keys = (from + rows.block).min(count) - from;
        let sum = tree.take(isa);
        let halves = sum.as_ref().map(|sum| {
            let (left, right) = sum.split_at(half);
            [left, right]
        });
        // SAFETY: nobody else uses the group's keys and values in the output, by this function's contract.
        unsafe { side_by_side(isa, halves, keys, width, padded, sums.dkv.after(from, 0)) }
        tree.free.extend(sum);
    }
}

/// A leaf's sums for a block of keys.
struct Leaf<'a> {
    dk: &'a mut [f32],
    dv: &'a mut [f32],
    /// Whether the sums have not been started: their buffers then hold old data.
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
        self.score(p, dp, (of.rows, by_distance), &mut scratch.factors, device);
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
                Numbers::Bf16 | Numbers::Bf16Mma | Numbers::F16Mma | Numbers::Bf16Tiles => {
                    let words = &mut scratch.pairs[pairs].f32_mut()[..count * TILE / 2];
                    join_row(isa, x, words);
                    (&*words, TILE / 2)
                }
            };
            if is_fresh {
                // the keys that this first tile of a leaf visits start from 0 in its product
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
            Numbers::Bf16 | Numbers::Bf16Mma | Numbers::F16Mma | Numbers::Bf16Tiles => {
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
        p: &mut [f32],
        dp: &mut [f32],
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
            rows.factors(isa, of, room.f32_mut(), turned, constants);
            softmax::times(isa, dp, turned);
            turned
        });
        let seen = self.tile.seen(&self.keys);
        let position = rows.first + self.tile.first;
        let bias = rows.bias.map(|bias| {
            let at = bias.at(position, self.keys.start);
            (bias.of_head(self.head), at)
        });
        let alibi = (rows.alibi).map(|alibi| AlibiLanes::of_rows(alibi, self.head, position));
        let made = Made {
            scale: rows.scale,
            cap: rows.cap,
            alibi: alibi.as_ref().map(|alibi| (alibi, self.keys.start)),
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
