//! Forward and decode: a task is one head, in blocks of query rows.

use super::bias::Expanded;
use super::{QUERY_BLOCK, Rows, dense, expand, scale, split};
use crate::cpu::gemm::{Packed, gemm_packed, pack_b};
use crate::cpu::math::exp;
use crate::cpu::pack::View;
use crate::cpu::simd::vector_fn;
use crate::cpu::tile::Finish;
use crate::ops::attention::{Call, Mask, Next};
use crate::ops::dropout::Constants;
use crate::{DType, Device, Result, Tensor};
use rayon::prelude::*;

pub(in crate::ops::attention) fn forward(
    out: &mut Tensor,
    lse: &mut Tensor,
    qkv: &Tensor,
    call: &Call<'_>,
) -> Result<()> {
    let device = qkv.device();
    let (heads, t) = (call.heads, call.t);
    let head_floats = t * heads.width;
    let bias = expand(call)?;
    // Head by head first, so that each task writes one piece.
    let mut by_head = Tensor::empty(&[out.elements()], DType::F32, device)?;
    let tasks = by_head
        .f32_mut()
        .par_chunks_mut(head_floats)
        .zip(lse.f32_mut().par_chunks_mut(t));
    tasks.enumerate().try_for_each(|(task, (out, lse))| {
        let (sequence, head) = (task / heads.heads, task % heads.heads);
        let rows = Rows::of(qkv, call, bias.as_ref(), sequence);
        let constants = call.dropout.map(|dropout| dropout.of_head(head));
        one_head((out, lse), rows, (head, constants), device)
    })?;
    let by_head = by_head.f32();
    let width = heads.width;
    out.f32_mut()
        .par_chunks_mut(heads.heads * width)
        .enumerate()
        .for_each(|(row, out)| {
            let (sequence, i) = (row / t, row % t);
            for (head, out) in out.chunks_exact_mut(width).enumerate() {
                let at = (sequence * heads.heads + head) * head_floats + i * width;
                out.copy_from_slice(&by_head[at..at + width]);
            }
        });
    Ok(())
}

fn one_head(
    (out, lse): (&mut [f32], &mut [f32]),
    rows: Rows<'_>,
    (head, constants): (usize, Option<Constants>),
    device: &Device,
) -> Result<()> {
    let (heads, t) = (rows.heads, rows.t);
    let per = heads.per_group();
    let (group, query) = (head / per, head % per);
    // Packed once: every block of rows multiplies with a part of the keys.
    let k = pack_b(rows.shared(group, 0).transposed(), device)?;
    let v = pack_b(rows.shared(group, 1), device)?;
    let mut scores = Tensor::empty(&[QUERY_BLOCK.min(t) * rows.keys], DType::F32, device)?;
    for first in (0..t).step_by(QUERY_BLOCK) {
        let len = QUERY_BLOCK.min(t - first);
        let q = rows.queries(group, query, first, len);
        let out = &mut out[first * heads.width..(first + len) * heads.width];
        let lse = &mut lse[first..first + len];
        let block = Block {
            rows: &rows,
            first,
            head,
            is_one_row: false,
            constants,
        };
        block.attend((out, lse), (q, &k, &v), scores.f32_mut(), device)?;
    }
    Ok(())
}

/// Query rows that are worked on together.
struct Block<'a> {
    rows: &'a Rows<'a>,
    first: usize,
    /// Head of the first query.
    head: usize,
    /// All queries are heads of the first row.
    is_one_row: bool,
    constants: Option<Constants>,
}

impl Block<'_> {
    fn row(&self, r: usize) -> usize {
        self.first + if self.is_one_row { 0 } else { r }
    }

    fn head_of(&self, r: usize) -> usize {
        self.head + if self.is_one_row { r } else { 0 }
    }

    /// out: `[rows, width]`, lse: `[rows]` or empty, q: `[rows, width]`; scores has room.
    fn attend(
        &self,
        (out, lse): (&mut [f32], &mut [f32]),
        (q, k, v): (View<'_>, &Packed, &Packed),
        scores: &mut [f32],
        device: &Device,
    ) -> Result<()> {
        let (rows, width, isa) = (q.rows, q.cols, device.isa());
        let visited = (self.rows).visited(self.first, self.row(rows - 1) + 1 - self.first);
        let keys = visited.len();
        let scores = &mut scores[..rows * keys];
        let to = dense(scores, rows, keys);
        gemm_packed(to, q, (k, (visited.start, 0)), Finish::Store, device)?;
        let mut sums = [1.0; QUERY_BLOCK];
        for (r, scores) in scores.chunks_exact_mut(keys).enumerate() {
            let row = self.row(r);
            let seen = self.rows.seen(row);
            if seen.is_empty() {
                scores.fill(0.0);
                if let Some(lse) = lse.get_mut(r) {
                    *lse = 0.0;
                }
                continue;
            }
            let seen = seen.start - visited.start..seen.end - visited.start;
            let (before, inside, after) = split(scores, seen, f32::NEG_INFINITY);
            after.fill(0.0);
            let scale = match self.rows.bias {
                None => self.rows.scale,
                Some(bias) => {
                    let key = visited.start + before.len();
                    let at = bias.at(self.rows.first + row, key, inside.len());
                    bias.add(isa, (self.head_of(r), at), inside, self.rows.scale);
                    1.0
                }
            };
            let (max, sum) = exponentials(isa, inside, scale);
            sums[r] = sum;
            if let Some(lse) = lse.get_mut(r) {
                *lse = max + sum.ln();
            }
            if let Some(constants) = self.constants {
                let at = visited.start + before.len();
                self.rows.drop(isa, row, (at, inside), constants);
            }
            before.fill(0.0);
        }
        let scores = View::new(scores, rows, keys, keys);
        let to = dense(out, rows, width);
        gemm_packed(to, scores, (v, (0, visited.start)), Finish::Store, device)?;
        // Dividing here touches `width` floats a row instead of `keys`.
        for (out, sum) in out.chunks_exact_mut(width).zip(sums) {
            divide(isa, out, sum);
        }
        Ok(())
    }
}

vector_fn! {
    /// x = e^(scale x - max); returns max and the sum.
    fn exponentials<L>(x: &mut [f32], scale: f32) -> (f32, f32) {
        let scale = L::splat(scale);
        let mut max = L::splat(f32::NEG_INFINITY);
        for x in x.chunks_mut(16) {
            let scaled = L::load_part(x, f32::NEG_INFINITY).mul(scale);
            max = max.max(scaled);
            scaled.store_part(x);
        }
        let max = max.largest();
        let mut sum = L::splat(0.0);
        for x in x.chunks_mut(16) {
            let e = exp(L::load_part(x, f32::NEG_INFINITY).sub(L::splat(max)));
            sum = sum.add(e);
            e.store_part(x);
        }
        (max, sum.sum())
    }
}

vector_fn! {
    fn divide<L>(x: &mut [f32], by: f32) {
        for x in x.chunks_mut(16) {
            L::load_part(x, 0.0).div(L::splat(by)).store_part(x);
        }
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
        let rows = Rows {
            q,
            q_at: (0, 0),
            kv,
            kv_at: (0, 0, 0),
            heads,
            first: next.position,
            t: 1,
            keys,
            mask: Mask {
                is_causal: true,
                window: keys - next.first_key,
                bounds: None,
            },
            scale: scale(heads, next.is_scaled),
            bias: bias.as_ref(),
            sequence: 0,
        };
        let k = pack_b(View::new(k, keys, width, width).transposed(), device)?;
        let v = pack_b(View::new(v, keys, width, width), device)?;
        let mut scores = Tensor::empty(&[per.min(QUERY_BLOCK) * keys], DType::F32, device)?;
        let outs = out.chunks_mut(QUERY_BLOCK * width);
        for (i, (out, q)) in outs.zip(q.chunks(QUERY_BLOCK * width)).enumerate() {
            let q = View::new(q, q.len() / width, width, width);
            let block = Block {
                rows: &rows,
                first: 0,
                head: task % heads.kv_heads * per + i * QUERY_BLOCK,
                is_one_row: true,
                constants: None,
            };
            block.attend((out, &mut []), (q, &k, &v), scores.f32_mut(), device)?;
        }
        Ok(())
    })
}
