//! Forward and decode: a task is the query heads of one kv head, in tiles of query rows. A tile's running
//! largest scores, sums and weighted values go from block to block of keys, and from visit to visit.

use super::bias::Expanded;
use super::operand::{Operand, Read};
use super::softmax::{self, Made};
use super::turn::turn_back;
use super::{Rows, Span, TILE, Tile, block_of, expand, lay, lay_turned, scale};
use crate::cpu::Numbers;
use crate::cpu::output::Data;
use crate::cpu::pack::View;
use crate::cpu::rooms::Rooms;
use crate::cpu::strip::{Strip, Strips, steps};
use crate::ops::attention::{Call, Mask, Next};
use crate::ops::dropout::Constants;
use crate::{DType, Device, Result, Tensor};
use rayon::prelude::*;

/// Query rows on their way over the keys, turned: lanes are rows.
pub(in crate::ops::attention) struct Running {
    /// Weighted values, `[b, heads, tiles, width, 32]`.
    values: Tensor,
    /// Largest score and sum of exponentials, `[b, heads, tiles, 2, 32]`.
    sums: Tensor,
}

/// One tile of `Running`.
struct State<'a> {
    values: &'a mut [f32],
    max: &'a mut [f32],
    sum: &'a mut [f32],
}

impl Running {
    pub(in crate::ops::attention) fn new(call: &Call<'_>, device: &Device) -> Result<Running> {
        let tiles = call.b * call.heads.heads * call.t.div_ceil(TILE);
        let width = call.heads.width;
        let mut sums = Tensor::zeros(&[tiles * 2 * TILE], DType::F32, device)?;
        for of in sums.f32_mut().chunks_exact_mut(2 * TILE) {
            of[..TILE].fill(f32::NEG_INFINITY);
        }
        Ok(Running {
            values: Tensor::zeros(&[tiles * width * TILE], DType::F32, device)?,
            sums,
        })
    }

    pub(in crate::ops::attention) fn device(&self) -> &Device {
        self.sums.device()
    }

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
        let rooms = Rooms::new(tasks, || Room::new(&of, is_dropped, device))?;
        let values = self.values.f32_mut();
        let tasks = values
            .par_chunks_mut(tiles * heads.width * TILE)
            .zip(self.sums.f32_mut().par_chunks_mut(tiles * 2 * TILE));
        tasks.enumerate().for_each(|(task, state)| {
            let (sequence, group) = (task / heads.kv_heads, task % heads.kv_heads);
            let rows = Rows::of(qkv, call, bias.as_ref(), sequence);
            if rows.keys.len() > 0 {
                rooms.with(|room| one_group(state, &rows, (group, call), room, device));
            }
        });
        Ok(())
    }

    /// Writes out: `[b*t, heads*width]` and lse: `[b, heads, t]`.
    fn finish(self, out: &mut Tensor, lse: &mut Tensor, call: &Call<'_>) {
        let (heads, t) = (call.heads, call.t);
        let (width, isa) = (heads.width, out.device().isa());
        let tiles = t.div_ceil(TILE);
        let sums = self.sums.f32();
        let of_tile = |head: usize, tile: usize| {
            let at = (head * tiles + tile) * 2 * TILE;
            sums[at..at + 2 * TILE].split_at(TILE)
        };
        for (head, lse) in lse.f32_mut().chunks_exact_mut(t).enumerate() {
            for (tile, lse) in lse.chunks_mut(TILE).enumerate() {
                let (max, sum) = of_tile(head, tile);
                for (lse, (max, sum)) in lse.iter_mut().zip(max.iter().zip(sum)) {
                    *lse = if *sum == 0.0 { 0.0 } else { max + sum.ln() };
                }
            }
        }
        let values = self.values.f32();
        let row = heads.heads * width;
        out.f32_mut()
            .par_chunks_mut(t * row)
            .enumerate()
            .for_each(|(sequence, out)| {
                for (tile, out) in out.chunks_mut(TILE * row).enumerate() {
                    for head in 0..heads.heads {
                        let number = sequence * heads.heads + head;
                        let (_, sum) = of_tile(number, tile);
                        let at = (number * tiles + tile) * width * TILE;
                        let values = &values[at..at + width * TILE];
                        let len = out.len() / row;
                        let by = |r| if sum[r] == 0.0 { 1.0 } else { sum[r] };
                        let by: [f32; TILE] = std::array::from_fn(by);
                        let out = (&mut out[head * width..], row);
                        turn_back(isa, values, Some(&by), (len, width), out);
                    }
                }
            });
    }
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
    (out, lse): (&mut Tensor, &mut Tensor),
    call: &Call<'_>,
) {
    running.finish(out, lse, call);
}

/// What a task works in: a group's keys and values, and what a tile computes of a block.
struct Room {
    k: Operand,
    v: Operand,
    scratch: Scratch,
}

impl Room {
    fn new(rows: &Rows<'_>, is_dropped: bool, device: &Device) -> Result<Room> {
        let size = (rows.keys.len(), rows.heads.width);
        let kind = (rows.numbers, rows.block);
        Ok(Room {
            k: Operand::new(size, kind, Read::Rows, device)?,
            v: Operand::new(size, kind, Read::Columns, device)?,
            scratch: Scratch::new(rows, is_dropped, device)?,
        })
    }
}

/// Room for what a tile computes of a block.
struct Scratch {
    /// Turned queries, `[steps of width, 32]`.
    q: Tensor,
    /// Turned scores, `[keys of a block, 32]`, and the same as words of pairs.
    scores: Tensor,
    pairs: Tensor,
    /// Dropout factors by row and turned.
    factors: [Tensor; 2],
}

impl Scratch {
    fn new(rows: &Rows<'_>, is_dropped: bool, device: &Device) -> Result<Scratch> {
        let block = rows.block.min(rows.keys.len() + 1);
        let empty = |floats: usize| Tensor::empty(&[floats], DType::F32, device);
        let pairs = match rows.numbers {
            Numbers::F32 => 0,
            Numbers::Bf16 | Numbers::Bf16Tiles => steps(rows.numbers, block) * TILE,
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

fn one_group(
    (values, sums): (&mut [f32], &mut [f32]),
    rows: &Rows<'_>,
    (group, call): (usize, &Call<'_>),
    Room { k, v, scratch }: &mut Room,
    device: &Device,
) {
    let (per, width) = (rows.heads.per_group(), rows.heads.width);
    k.fill(rows.shared(group, 0), device);
    v.fill(rows.shared(group, 1), device);
    let mut strips = Strips::new(device.isa(), rows.numbers);
    let tiles = rows.t.div_ceil(TILE);
    let states = values.chunks_exact_mut(width * TILE);
    let states = states.zip(sums.chunks_exact_mut(2 * TILE)).enumerate();
    for (number, (values, sums)) in states {
        let (query, first) = (number / tiles, number % tiles * TILE);
        debug_assert!(query < per, "a tile for each query head and row");
        let tile = rows.tile(first, TILE.min(rows.t - first));
        if tile.visited.is_empty() {
            continue;
        }
        let q = rows.queries(group, query, (first, tile.len));
        lay(device, rows.numbers, q, TILE, scratch.q.f32_mut());
        let (max, sum) = sums.split_at_mut(TILE);
        let head = group * per + query;
        let constants = call.dropout.map(|dropout| dropout.of_head(head));
        let state = State { values, max, sum };
        attend(
            state,
            rows,
            (&tile, head, constants),
            (&*k, &*v),
            (scratch, &mut strips),
            device,
        );
    }
}

/// Takes a tile, whose queries are in `scratch`, over the blocks of keys that it sees.
fn attend(
    state: State<'_>,
    rows: &Rows<'_>,
    (tile, head, constants): (&Tile, usize, Option<Constants>),
    (k, v): (&Operand, &Operand),
    (scratch, strips): (&mut Scratch, &mut Strips),
    device: &Device,
) {
    let (isa, numbers, width) = (device.isa(), rows.numbers, rows.heads.width);
    let lanes = tile.lanes();
    for block in rows.blocks(&tile.visited) {
        let keys = tile.within(block, rows.block, numbers);
        let at = keys.start - rows.keys.start;
        let scores = &mut scratch.scores.f32_mut()[..keys.len() * TILE];
        let (a, a_at) = k.by_rows(at);
        let product = Strip {
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
        };
        strips.multiply(product);
        let seen = tile.seen(&keys);
        let position = rows.first + tile.first;
        let bias = (rows.bias).map(|bias| (bias.of_head(head), bias.at(position, keys.start)));
        let made = Made {
            scale: rows.scale,
            bias,
            seen: seen.as_ref(),
        };
        let mut before = [0.0; TILE];
        before.copy_from_slice(state.max);
        softmax::scores(isa, scores, state.max, made, lanes);
        let mut factors = [1.0; TILE];
        let changed = (&before[..], &*state.max);
        if softmax::exponentials(isa, scores, changed, state.sum, &mut factors, lanes) {
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
            rows.factors(isa, of, (room.f32_mut(), &mut *turned), constants);
            softmax::times(isa, scores, turned);
        }
        let chain = steps(numbers, keys.len());
        let b = match numbers {
            Numbers::F32 => &*scores,
            Numbers::Bf16 | Numbers::Bf16Tiles => {
                let pairs = &mut scratch.pairs.f32_mut()[..chain * TILE];
                let by_key = View::new(scores, keys.len(), TILE, TILE);
                lay_turned(device, numbers, by_key.into(), TILE, pairs);
                pairs
            }
        };
        let (a, a_at) = v.by_columns(at);
        let product = Strip {
            a,
            a_at,
            b,
            b_at: TILE,
            c: state.values,
            c_at: TILE,
            rows: width,
            lanes,
            steps: chain,
            goes_on: true,
        };
        strips.multiply(product);
    }
}

pub(in crate::ops::attention) fn decode(
    out: &mut Tensor,
    packed: &Tensor,
    (k_cache, v_cache): (&mut Tensor, &mut Tensor),
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
            scale: scale(heads, next.is_scaled),
            bias: bias.as_ref(),
            sequence: 0,
        };
        let cached = |cache| View::new(cache, keys, width, width).into();
        let Room {
            k: mut k_operand,
            v: mut v_operand,
            mut scratch,
        } = Room::new(&rows, false, device)?;
        k_operand.fill(cached(k), device);
        v_operand.fill(cached(v), device);
        let mut strips = Strips::new(device.isa(), rows.numbers);
        let mut values = vec![0.0; width * TILE];
        // Lanes are heads; with a bias each has its own.
        let lanes = if rows.bias.is_some() { 1 } else { TILE };
        let outs = out.chunks_mut(lanes * width);
        for (i, (out, q)) in outs.zip(q.chunks(lanes * width)).enumerate() {
            let len = q.len() / width;
            let tile = Tile {
                first: 0,
                len,
                starts: [next.first_key; TILE],
                ends: [keys; TILE],
                visited: next.first_key..keys,
            };
            let q = View::new(q, len, width, width).into();
            lay(device, rows.numbers, q, TILE, scratch.q.f32_mut());
            values.fill(0.0);
            let (mut max, mut sum) = ([f32::NEG_INFINITY; TILE], [0.0; TILE]);
            let state = State {
                values: &mut values,
                max: &mut max,
                sum: &mut sum,
            };
            let head = task % heads.kv_heads * per + i * lanes;
            attend(
                state,
                &rows,
                (&tile, head, None),
                (&k_operand, &v_operand),
                (&mut scratch, &mut strips),
                device,
            );
            let rows = (len, width);
            turn_back(device.isa(), &values, Some(&sum), rows, (out, width));
        }
        Ok(())
    })
}
