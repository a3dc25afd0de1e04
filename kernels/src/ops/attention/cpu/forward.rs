//! Flash-attention forward, and decode: a task is the query heads of one kv head, in tiles of query rows. A tile's
//! running maxima, sums and weighted values (online softmax) are carried from block to block of keys, and from
//! visit to visit.
#![expect(unsafe_code, reason = "tasks write disjoint columns of one output")]

use super::alibi::AlibiLanes;
use super::bias::Expanded;
use super::operand::{Operand, Read};
use super::rows::{Rows, Span, block_of, expand, lay, lay_turned};
use super::softmax::{self, Made};
use super::source::Source;
use super::tile::{TILE, Tile};
use super::turn::{Columns, Place, turn_back};
use crate::cpu::math::natural_log;
use crate::cpu::output::Data;
use crate::cpu::pack::{Matrix, View};
use crate::cpu::scratch::ScratchPool;
use crate::cpu::small_gemm::Strips;
use crate::cpu::strip::{Strip, steps};
use crate::cpu::{Isa, Numbers, pieces};
use crate::descriptor::attention::{Call, Mask, Next};
use crate::descriptor::dropout::Constants;
use crate::ops::attention::state::Running;
use crate::{DType, Device, Result, Tensor};
use rayon::prelude::*;

/// One tile of `Running`.
struct State<'a> {
    values: &'a mut [f32],
    max: &'a mut [f32],
    sum: &'a mut [f32],
}

/// Sets the state before the first key.
pub(in crate::ops::attention) fn begin(running: &mut Running, call: &Call<'_>) {
    let (heads, tiles) = (call.heads.heads, call.t.div_ceil(TILE));
    let sinks = call.sinks.map(Tensor::f32);
    let tasks = running.sums.f32_mut().chunks_exact_mut(2 * TILE);
    for (number, of) in tasks.enumerate() {
        let (max, sum) = of.split_at_mut(TILE);
        let start = Start::of(sinks, number / tiles % heads);
        max.fill(start.max);
        sum.fill(start.sum);
    }
}

/// The online softmax of a head before the first key.
#[derive(Clone, Copy)]
struct Start {
    max: f32,
    sum: f32,
}

impl Start {
    /// A sink has been visited, whose exponential is relative to itself.
    fn of(sinks: Option<&[f32]>, head: usize) -> Start {
        match sinks {
            Some(sinks) => Start {
                max: sinks[head],
                sum: 1.0,
            },
            None => Start {
                max: f32::NEG_INFINITY,
                sum: 0.0,
            },
        }
    }
}

impl Running {
    fn visit(&mut self, qkv: &Tensor, call: &Call<'_>) -> Result<()> {
        let (heads, device) = (call.heads, qkv.device());
        let bias = expand(call)?;
        let tiles = heads.per_group() * call.t.div_ceil(TILE);
        if call.b == 0 {
            return Ok(());
        }
        let of = Rows::of(qkv, call, bias.as_ref(), 0);
        let is_dropped = call.dropout.is_some();
        let tasks = call.b * heads.kv_heads;
        let scratch_pool = ScratchPool::new(tasks, || Room::new(&of, is_dropped, device))?;
        let values = self.values.f32_mut();
        let tasks = values
            .par_chunks_mut(tiles * heads.width * TILE)
            .zip(self.sums.f32_mut().par_chunks_mut(tiles * 2 * TILE));
        pieces(tasks.enumerate()).for_each(|(task, (values, sums))| {
            let (sequence, group) = (task / heads.kv_heads, task % heads.kv_heads);
            let rows = Rows::of(qkv, call, bias.as_ref(), sequence);
            if rows.keys.len() == 0 {
                return;
            }
            scratch_pool.with(|room| {
                let mut group = Group::new(&rows, (group, call), room, device);
                let states = values.chunks_exact_mut(heads.width * TILE);
                let states = states.zip(sums.chunks_exact_mut(2 * TILE));
                for (number, (values, sums)) in states.enumerate() {
                    let (max, sum) = sums.split_at_mut(TILE);
                    group.tile(number, State { values, max, sum });
                }
            });
        });
        Ok(())
    }

    /// Writes out: `[b*t, heads*width]` and lse: `[b, heads, t]`.
    fn finish(mut self, out: &mut Tensor, lse: &mut Tensor, call: &Call<'_>) {
        let (heads, t) = (call.heads, call.t);
        let (width, isa) = (heads.width, out.device().isa());
        let tiles = t.div_ceil(TILE);
        let columns = Columns::of(out.f32_mut(), heads.heads * width);
        let values = self.values.f32_mut().par_chunks_mut(tiles * width * TILE);
        let states = values.zip(self.sums.f32_mut().par_chunks_mut(tiles * 2 * TILE));
        let tasks = states.zip(lse.f32_mut().par_chunks_mut(t)).enumerate();
        pieces(tasks).for_each(|(task, ((values, sums), lse))| {
            let (sequence, head) = (task / heads.heads, task % heads.heads);
            let out = columns.from(sequence * t, head * width);
            let states = values.chunks_exact_mut(width * TILE);
            let states = states.zip(sums.chunks_exact_mut(2 * TILE));
            for (tile, ((values, sums), lse)) in states.zip(lse.chunks_mut(TILE)).enumerate() {
                let (max, sum) = sums.split_at_mut(TILE);
                let out = out.after(tile * TILE, 0);
                // SAFETY: this task alone writes the columns of its head in the rows of its sequence.
                unsafe { State { values, max, sum }.settle(isa, lse, out) }
            }
        });
    }
}

impl State<'_> {
    /// Reborrows the state.
    fn again(&mut self) -> State<'_> {
        State {
            values: self.values,
            max: self.max,
            sum: self.sum,
        }
    }

    fn clear(&mut self, start: Start) {
        self.values.fill(0.0);
        self.max.fill(start.max);
        self.sum.fill(start.sum);
    }

    /// Writes as many rows as lse has, and lse: the sink, or 0 without, for a row that attends to nothing.
    /// # Safety
    /// Nobody else uses the values' columns of these rows of the output.
    unsafe fn settle(&self, isa: Isa, lse: &mut [f32], out: Place<'_, f32>) {
        for (lse, (max, sum)) in lse.iter_mut().zip(self.max.iter().zip(&*self.sum)) {
            *lse = if *sum == 0.0 {
                0.0
            } else {
                max + natural_log(*sum)
            };
        }
        let by = |r: usize| if self.sum[r] == 0.0 { 1.0 } else { self.sum[r] };
        let by: [f32; TILE] = std::array::from_fn(by);
        let (rows, width) = (lse.len(), self.values.len() / TILE);
        // SAFETY: `turn_back` writes the values' columns of these rows, which no other task uses by this function's
        // contract.
        unsafe { turn_back(isa, self.values, Some(&by), rows, width, out) }
    }
}

/// Forward with all keys available: each tile is written as soon as it is complete.
pub(crate) fn forward_whole(
    out: &mut Tensor,
    lse: &mut Tensor,
    qkv: &Tensor,
    call: &Call<'_>,
) -> Result<()> {
    let (heads, device, t) = (call.heads, qkv.device(), call.t);
    let (per, width) = (heads.per_group(), heads.width);
    let bias = expand(call)?;
    if call.b == 0 || t == 0 {
        return Ok(());
    }
    let of = Rows::of(qkv, call, bias.as_ref(), 0);
    let is_dropped = call.dropout.is_some();
    let scratch_pool = ScratchPool::new(call.b * heads.kv_heads, || {
        let values = Tensor::empty(&[(width + 2) * TILE], DType::F32, device)?;
        Ok((Room::new(&of, is_dropped, device)?, values))
    })?;
    let columns = Columns::of(out.f32_mut(), heads.heads * width);
    let tasks = lse.f32_mut().par_chunks_mut(per * t).enumerate();
    pieces(tasks).for_each(|(task, lse)| {
        let (sequence, group) = (task / heads.kv_heads, task % heads.kv_heads);
        let rows = Rows::of(qkv, call, bias.as_ref(), sequence);
        let out = columns.from(sequence * t, group * per * width);
        scratch_pool.with(|(room, state)| {
            let (values, sums) = state.f32_mut().split_at_mut(width * TILE);
            let (max, sum) = sums.split_at_mut(TILE);
            let mut state = State { values, max, sum };
            let (has_keys, group_first) = (rows.keys.len() > 0, group * per);
            let mut group = has_keys.then(|| Group::new(&rows, (group, call), room, device));
            for (query, lse) in lse.chunks_exact_mut(t).enumerate() {
                for (tile, lse) in lse.chunks_mut(TILE).enumerate() {
                    state.clear(Start::of(rows.sinks, group_first + query));
                    if let Some(group) = &mut group {
                        group.tile(query * t.div_ceil(TILE) + tile, state.again());
                    }
                    let out = out.after(tile * TILE, query * width);
                    // SAFETY: this task alone writes the columns of its heads in the rows of its sequence.
                    unsafe { state.settle(device.isa(), lse, out) }
                }
            }
        });
    });
    Ok(())
}

pub(in crate::ops::attention) fn forward(
    running: &mut Running,
    qkv: &Tensor,
    call: &Call<'_>,
) -> Result<()> {
    running.visit(qkv, call)
}

pub(in crate::ops::attention) fn forward_end(
    running: Running,
    out: &mut Tensor,
    lse: &mut Tensor,
    call: &Call<'_>,
) {
    running.finish(out, lse, call);
}

/// A task's buffers: a group's keys and values, and a tile's results for a block.
pub(super) struct Room {
    pub(super) k: Operand,
    pub(super) v: Operand,
    pub(super) scratch: Scratch,
}

impl Room {
    pub(super) fn new(rows: &Rows<'_>, is_dropped: bool, device: &Device) -> Result<Room> {
        let (keys, width) = (rows.keys.len(), rows.heads.width);
        let kind = (rows.numbers, rows.block);
        Ok(Room {
            k: Operand::new(keys, width, kind, Read::Rows, device)?,
            v: Operand::new(keys, width, kind, Read::Columns, device)?,
            scratch: Scratch::new(rows, is_dropped, device)?,
        })
    }
}

/// Buffers for a tile's results for a block.
pub(super) struct Scratch {
    /// Transposed queries, `[steps of width, 32]`.
    q: Tensor,
    /// Transposed scores, `[keys of a block, 32]`, and the same as words of pairs.
    scores: Tensor,
    pairs: Tensor,
    /// Dropout factors by row and transposed.
    factors: [Tensor; 2],
}

impl Scratch {
    pub(super) fn new(rows: &Rows<'_>, is_dropped: bool, device: &Device) -> Result<Scratch> {
        let block = rows.block.min(rows.keys.len() + 1);
        let empty = |floats: usize| Tensor::empty(&[floats], DType::F32, device);
        let pairs = match rows.numbers {
            Numbers::F32 => 0,
            Numbers::Bf16 | Numbers::Bf16Mma | Numbers::F16Mma | Numbers::Bf16Tiles => {
                steps(rows.numbers, block) * TILE
            }
        };
        let dropped = if is_dropped { block * TILE } else { 0 };
        Ok(Scratch {
            q: empty(steps(rows.numbers, rows.heads.width) * TILE)?,
            scores: empty(block * TILE)?,
            pairs: empty(pairs)?,
            factors: [empty(dropped)?, empty(dropped)?],
        })
    }
}

/// The query heads of one kv head.
struct Group<'a> {
    rows: &'a Rows<'a>,
    group: usize,
    call: &'a Call<'a>,
    source: Source<'a>,
    scratch: &'a mut Scratch,
    strips: Strips,
    device: &'a Device,
}

impl<'a> Group<'a> {
    /// Loads its keys and values.
    fn new(
        rows: &'a Rows<'a>,
        (group, call): (usize, &'a Call<'a>),
        Room { k, v, scratch }: &'a mut Room,
        device: &'a Device,
    ) -> Group<'a> {
        k.fill(rows.shared(group, 0), device);
        v.fill(rows.shared(group, 1), device);
        Group {
            rows,
            group,
            call,
            source: Source {
                k,
                v,
                first: rows.keys.start,
            },
            scratch,
            strips: Strips::new(device.isa(), rows.numbers),
            device,
        }
    }

    /// Runs a tile, numbered over the group's query heads and their rows, over the keys.
    fn tile(&mut self, number: usize, state: State<'_>) {
        let (rows, device) = (self.rows, self.device);
        let tiles = rows.t.div_ceil(TILE);
        let (query, first) = (number / tiles, number % tiles * TILE);
        let tile = rows.tile(first, TILE.min(rows.t - first));
        if tile.visited.is_empty() {
            return;
        }
        let q = rows.queries(self.group, query, first, tile.len);
        lay(device, rows.numbers, q, TILE, self.scratch.q.f32_mut());
        let head = self.group * rows.heads.per_group() + query;
        let constants = self.call.dropout.map(|dropout| dropout.of_head(head));
        attend(
            state,
            rows,
            HeadTile {
                tile: &tile,
                head,
                are_heads: false,
                dropout: constants,
            },
            self.source,
            (&mut *self.scratch, &mut self.strips),
            device,
        );
    }
}

/// A tile of queries of one head.
struct HeadTile<'a> {
    tile: &'a Tile,
    head: usize,
    /// Whether lanes are heads from `head` on, all with the query at the tile's first position.
    are_heads: bool,
    /// `None`: no dropout.
    dropout: Option<Constants>,
}

/// Runs a tile, whose queries are in `scratch`, over the blocks of keys that it attends to.
fn attend(
    state: State<'_>,
    rows: &Rows<'_>,
    HeadTile {
        tile,
        head,
        are_heads,
        dropout: constants,
    }: HeadTile<'_>,
    source: Source<'_>,
    (scratch, strips): (&mut Scratch, &mut Strips),
    device: &Device,
) {
    let (isa, numbers, width) = (device.isa(), rows.numbers, rows.heads.width);
    let lanes = tile.lanes();
    let position = rows.first + tile.first;
    let alibi = rows.alibi.map(|alibi| {
        if are_heads {
            AlibiLanes::of_heads(alibi, head..head + tile.len, position)
        } else {
            AlibiLanes::of_rows(alibi, head, position)
        }
    });
    for block in rows.blocks(&tile.visited) {
        let keys = tile.within(block, rows.block, numbers);
        let scores = &mut scratch.scores.f32_mut()[..keys.len() * TILE];
        let (a, a_at) = source.keys(keys.start);
        strips.multiply(Strip {
            a,
            a_at,
            b: scratch.q.f32(),
            b_at: TILE,
            c: scores,
            c_at: TILE,
            rows: keys.len(),
            lanes,
            steps: steps(numbers, width),
            goes_on: false,
        });
        let seen = tile.seen(&keys);
        let bias = (rows.bias).map(|bias| (bias.of_head(head), bias.at(position, keys.start)));
        let made = Made {
            scale: rows.scale,
            cap: rows.cap,
            alibi: alibi.as_ref().map(|alibi| (alibi, keys.start)),
            bias,
            seen: seen.as_ref(),
        };
        let mut before = [0.0; TILE];
        before.copy_from_slice(state.max);
        softmax::scores(isa, scores, state.max, made, lanes);
        let mut factors = [1.0; TILE];
        if softmax::exponentials(
            isa,
            scores,
            &before,
            state.max,
            state.sum,
            &mut factors,
            lanes,
        ) {
            let least = if numbers.are_pairs() {
                f32::MIN_POSITIVE
            } else {
                0.0
            };
            softmax::times_each(isa, state.values, &factors, lanes, least);
        }
        if let Some(constants) = constants {
            let [room, turned] = &mut scratch.factors;
            let turned = &mut turned.f32_mut()[..keys.len() * TILE];
            let of = (tile, keys.clone());
            rows.factors(isa, of, room.f32_mut(), turned, constants);
            softmax::times(isa, scores, turned);
        }
        let b = match numbers {
            Numbers::F32 => &*scores,
            Numbers::Bf16 | Numbers::Bf16Mma | Numbers::F16Mma | Numbers::Bf16Tiles => {
                let pairs = &mut scratch.pairs.f32_mut()[..steps(numbers, keys.len()) * TILE];
                let by_key = View::new(scores, keys.len(), TILE, TILE);
                lay_turned(device, numbers, by_key.into(), TILE, pairs);
                pairs
            }
        };
        let (a, a_at) = source.values(keys.start);
        strips.multiply(Strip {
            a,
            a_at,
            b,
            b_at: TILE,
            c: state.values,
            c_at: TILE,
            rows: width,
            lanes,
            steps: steps(numbers, keys.len()),
            goes_on: true,
        });
    }
}

pub(crate) fn decode(
    out: &mut Tensor,
    packed: &Tensor,
    k_cache: &mut Tensor,
    v_cache: &mut Tensor,
    next: &Next<'_>,
) -> Result<()> {
    let (device, heads) = (packed.device(), next.heads);
    let (per, width) = (heads.per_group(), heads.width);
    let max_t = k_cache.dims()[2];
    let keys = next.position + 1;
    let expanded = |bias| Expanded::new(bias, next.position..keys, keys);
    let bias = next.bias.as_ref().map(expanded).transpose()?;
    let caches = k_cache.f32_mut().par_chunks_mut(max_t * width);
    let caches = caches.zip(v_cache.f32_mut().par_chunks_mut(max_t * width));
    // A packed row is its groups in order, so the rows of all sequences are one list of groups.
    let groups = packed.f32().par_chunks(heads.group_width());
    let outs = out.f32_mut().par_chunks_mut(per * width);
    let tasks = outs.zip(groups).zip(caches).enumerate();
    tasks.try_for_each(|(task, ((out, group), (k, v)))| {
        let (q, kv) = group.split_at(per * width);
        let slot = next.position * width..keys * width;
        k[slot.clone()].copy_from_slice(&kv[..width]);
        v[slot].copy_from_slice(&kv[width..]);
        let at_hand = Span {
            start: 0,
            end: keys,
        };
        let rows = Rows {
            q: Data::F32(q),
            q_at: (0, 0),
            kv: Data::F32(kv),
            kv_at: (0, 0, 0),
            heads,
            first: next.position,
            t: 1,
            keys: at_hand,
            block: block_of(next.block, at_hand),
            numbers: next.numbers,
            mask: Mask::CAUSAL,
            scale: next.scores.factor(heads),
            cap: next.scores.cap,
            alibi: next.scores.alibi,
            bias: bias.as_ref(),
            sinks: next.sinks.map(Tensor::f32),
            sequence: 0,
        };
        let cached = |cache| View::new(cache, keys, width, width).into();
        let mut room = Room::new(&rows, false, device)?;
        room.k.fill(cached(k), device);
        room.v.fill(cached(v), device);
        let q = View::new(q, per, width, width).into();
        row(
            &rows,
            RowOfGroup {
                q,
                group: task % heads.kv_heads,
                first_key: next.first_key,
            },
            Source {
                k: &room.k,
                v: &room.v,
                first: 0,
            },
            &mut room.scratch,
            out,
            device,
        );
        Ok(())
    })
}

/// One query row of a kv head's query heads.
pub(super) struct RowOfGroup<'a> {
    /// `[heads of the group, width]`
    pub(super) q: Matrix<'a>,
    pub(super) group: usize,
    pub(super) first_key: usize,
}

/// Attention of one row over the keys and values of `source`, up to its own; out: `[heads of the group * width]`.
pub(super) fn row(
    rows: &Rows<'_>,
    RowOfGroup {
        q,
        group,
        first_key,
    }: RowOfGroup<'_>,
    source: Source<'_>,
    scratch: &mut Scratch,
    out: &mut [f32],
    device: &Device,
) {
    let (width, per) = (rows.heads.width, rows.heads.per_group());
    let mut strips = Strips::new(device.isa(), rows.numbers);
    let mut values = vec![0.0; width * TILE];
    // Lanes are heads; with a bias each has its own.
    let lanes = if rows.bias.is_some() { 1 } else { TILE };
    for (i, out) in out.chunks_mut(lanes * width).enumerate() {
        let len = out.len() / width;
        let tile = Tile {
            first: 0,
            len,
            starts: [first_key; TILE],
            ends: [rows.keys.end; TILE],
            visited: first_key..rows.keys.end,
        };
        let q = q.rows_of(i * lanes, i * lanes + len);
        lay(device, rows.numbers, q, TILE, scratch.q.f32_mut());
        values.fill(0.0);
        let start =
            |lane: usize| Start::of(rows.sinks, group * per + i * lanes + lane.min(len - 1));
        let mut max = std::array::from_fn::<_, TILE, _>(|lane| start(lane).max);
        let mut sum = std::array::from_fn::<_, TILE, _>(|lane| start(lane).sum);
        let state = State {
            values: &mut values,
            max: &mut max,
            sum: &mut sum,
        };
        attend(
            state,
            rows,
            HeadTile {
                tile: &tile,
                head: group * per + i * lanes,
                are_heads: true,
                dropout: None,
            },
            source,
            (&mut *scratch, &mut strips),
            device,
        );
        let columns = Columns::of(out, width);
        // SAFETY: `out` is borrowed by this call alone.
        unsafe {
            let out = columns.from(0, 0);
            turn_back(device.isa(), &values, Some(&sum), len, width, out);
        }
    }
}

/// Attention of all rows of a kv head's query heads over its keys and values, which `rows` locates; out: `[t, heads of
/// the group * width]`.
pub(super) fn rows_of_group(
    rows: &Rows<'_>,
    (group, call): (usize, &Call<'_>),
    room: &mut Room,
    out: &mut [f32],
    device: &Device,
) -> Result<()> {
    let (per, width) = (rows.heads.per_group(), rows.heads.width);
    let mut state = Tensor::empty(&[(width + 2) * TILE], DType::F32, device)?;
    let (values, sums) = state.f32_mut().split_at_mut(width * TILE);
    let (max, sum) = sums.split_at_mut(TILE);
    let mut state = State { values, max, sum };
    let columns = Columns::of(out, per * width);
    let mut of_group = Group::new(rows, (group, call), room, device);
    let tiles = rows.t.div_ceil(TILE);
    for number in 0..per * tiles {
        let (query, tile) = (number / tiles, number % tiles);
        state.clear(Start::of(rows.sinks, group * per + query));
        of_group.tile(number, state.again());
        let mut lse = [0.0; TILE];
        let len = TILE.min(rows.t - tile * TILE);
        let out = columns.from(tile * TILE, query * width);
        // SAFETY: `out` is borrowed by this call alone.
        unsafe { state.settle(device.isa(), &mut lse[..len], out) }
    }
    Ok(())
}
