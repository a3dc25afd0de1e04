//! Attention on the CPU: a task is one head (backward: one kv head's group), in blocks of query rows.
//!
//! Backward per block, P from the saved lse: dV += P^T dO, dP = dO V^T, dS = P (dP - rowsum(dO O))
//! scale, dQ = dS K, dK += dS^T Q. dK and dV are sums over leaves of query rows: a leaf is one chain
//! over the group's query heads and, within a head, ascending rows.

use super::{Heads, Keys};
use crate::cpu::gemm::{Packed, Plan, ViewMut, gemm, gemm_packed, pack_b};
use crate::cpu::math::exp;
use crate::cpu::pack::View;
use crate::cpu::simd::{LANES, vector_fn};
use crate::cpu::tile::Finish;
use crate::{DType, Device, Result, Tensor};
use rayon::prelude::*;

/// Query rows per block: their scores (times t floats) stay in L2, and half a block per row is
/// computed past the diagonal for nothing.
const QUERY_BLOCK: usize = 48;

/// The query rows of one sequence and the keys and values they may see.
#[derive(Clone, Copy)]
struct Rows<'a> {
    q: &'a [f32],
    kv: &'a [f32],
    /// Floats between rows of `kv`, between its groups, and before a group's key.
    kv_at: (usize, usize, usize),
    heads: &'a Heads,
    /// Position of the first query row.
    first: usize,
    /// Query rows.
    t: usize,
}

impl<'a> Rows<'a> {
    /// Sequence `sequence` of packed rows; keys are its own, or a part's from `keys`.
    fn of(
        qkv: &'a Tensor,
        keys: Option<&Keys<'a>>,
        heads: &'a Heads,
        (sequence, t): (usize, usize),
    ) -> Rows<'a> {
        let packed = heads.packed();
        let q = &qkv.f32()[sequence * t * packed..(sequence + 1) * t * packed];
        let (kv, kv_at, first) = match keys {
            None => {
                let before = heads.per_group() * heads.width;
                (q, (packed, heads.group_width(), before), 0)
            }
            Some(keys) => {
                let width = heads.kv_width();
                let rows = sequence * keys.time * width..(sequence + 1) * keys.time * width;
                let at = (width, 2 * heads.width, 0);
                (&keys.kv.f32()[rows], at, keys.first)
            }
        };
        Rows {
            q,
            kv,
            kv_at,
            heads,
            first,
            t,
        }
    }

    /// Keys that some query row may see.
    fn keys(&self) -> usize {
        self.first + self.t
    }

    /// Rows first .. first + len of a query head.
    fn queries(&self, group: usize, query: usize, first: usize, len: usize) -> View<'a> {
        let stride = self.heads.packed();
        let at = group * self.heads.group_width() + query * self.heads.width;
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
        View::new(&self.kv[at..], self.keys(), self.heads.width, stride)
    }
}

fn dense(data: &mut [f32], rows: usize, cols: usize) -> ViewMut<'_> {
    ViewMut {
        data,
        rows,
        cols,
        row_stride: cols,
    }
}

fn scale(width: usize) -> f32 {
    1.0 / (width as f32).sqrt()
}

pub(super) fn forward(
    out: &mut Tensor,
    lse: &mut Tensor,
    (qkv, keys): (&Tensor, Option<&Keys<'_>>),
    heads: &Heads,
    t: usize,
) -> Result<()> {
    let device = qkv.device();
    let head_floats = t * heads.width;
    // Head by head first, so that each task writes one piece.
    let mut by_head = Tensor::empty(&[out.elements()], DType::F32, device)?;
    let tasks = by_head
        .f32_mut()
        .par_chunks_mut(head_floats)
        .zip(lse.f32_mut().par_chunks_mut(t));
    tasks.enumerate().try_for_each(|(task, (out, lse))| {
        let (sequence, head) = (task / heads.heads, task % heads.heads);
        let rows = Rows::of(qkv, keys, heads, (sequence, t));
        one_head(out, lse, rows, head, device)
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
    out: &mut [f32],
    lse: &mut [f32],
    qkv: Rows<'_>,
    head: usize,
    device: &Device,
) -> Result<()> {
    let (heads, t) = (qkv.heads, lse.len());
    let per = heads.per_group();
    let (group, query) = (head / per, head % per);
    // Packed once: every block of rows multiplies with a prefix of the keys.
    let k = pack_b(qkv.shared(group, 0).transposed(), device)?;
    let v = pack_b(qkv.shared(group, 1), device)?;
    let mut scores = Tensor::empty(&[QUERY_BLOCK.min(t) * qkv.keys()], DType::F32, device)?;
    for first in (0..t).step_by(QUERY_BLOCK) {
        let rows = QUERY_BLOCK.min(t - first);
        let keys = qkv.first + first + rows;
        let scores = &mut scores.f32_mut()[..rows * keys];
        let q = qkv.queries(group, query, first, rows);
        let out = &mut out[first * heads.width..(first + rows) * heads.width];
        let visible = qkv.first + first + 1;
        let lse = &mut lse[first..first + rows];
        attend(out, lse, (q, &k, &v), (scores, visible), device)?;
    }
    Ok(())
}

/// Attends a block of rows: row r sees the first `visible + r` keys; scores has a row per row of q.
fn attend(
    out: &mut [f32],
    lse: &mut [f32],
    (q, k, v): (View<'_>, &Packed, &Packed),
    (scores, visible): (&mut [f32], usize),
    device: &Device,
) -> Result<()> {
    let (rows, width) = (q.rows, q.cols);
    let keys = scores.len() / rows;
    let scale = scale(width);
    gemm_packed(dense(scores, rows, keys), q, k, Finish::Store, device)?;
    let mut sums = [0.0; QUERY_BLOCK];
    for (r, scores) in scores.chunks_exact_mut(keys).enumerate() {
        let (seen, hidden) = hide(scores, (visible + r).min(keys), f32::NEG_INFINITY);
        hidden.fill(0.0);
        let (max, sum) = exponentials(device.isa(), seen, scale);
        sums[r] = sum;
        if let Some(lse) = lse.get_mut(r) {
            *lse = max + sum.ln();
        }
    }
    let scores = View::new(scores, rows, keys, keys);
    gemm_packed(dense(out, rows, width), scores, v, Finish::Store, device)?;
    // Dividing here touches `width` floats a row instead of `keys`.
    for (out, sum) in out.chunks_exact_mut(width).zip(sums) {
        divide(device.isa(), out, sum);
    }
    Ok(())
}

/// Overwrites a row past its `seen` keys with `value` up to a whole vector and splits it there. The loops
/// then run over whole vectors; the added lanes hold what a partial load would have put there.
fn hide(row: &mut [f32], seen: usize, value: f32) -> (&mut [f32], &mut [f32]) {
    let whole = seen.next_multiple_of(LANES).min(row.len());
    row[seen..whole].fill(value);
    row.split_at_mut(whole)
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

/// Gradients go to dqkv, but those of keys and values to `dkv` where the keys are not the queries' own.
pub(super) fn backward(
    (dqkv, dkv): (&mut Tensor, Option<&mut Tensor>),
    (dout, out, lse): (&Tensor, &Tensor, &Tensor),
    (qkv, keys): (&Tensor, Option<&Keys<'_>>),
    heads: &Heads,
    (t, leaf): (usize, usize),
) -> Result<()> {
    let device = qkv.device();
    let (per, width) = (heads.per_group(), heads.width);
    let visible = t + keys.map_or(0, |keys| keys.first);
    // Per sequence and group: dq of each query head, [t, width]; dk and dv, [visible, width].
    let (q_floats, kv_floats) = (per * t * width, 2 * visible * width);
    let groups = qkv.elements() / (t * heads.packed()) * heads.kv_heads;
    let mut by_q = Tensor::empty(&[groups * q_floats], DType::F32, device)?;
    let mut by_kv = Tensor::zeros(&[groups * kv_floats], DType::F32, device)?;
    let tasks = by_q
        .f32_mut()
        .par_chunks_mut(q_floats)
        .zip(by_kv.f32_mut().par_chunks_mut(kv_floats));
    tasks.enumerate().try_for_each(|(task, (dq, dkv))| {
        let (sequence, group) = (task / heads.kv_heads, task % heads.kv_heads);
        let outs = heads.heads * width;
        let rows_out = sequence * t * outs..(sequence + 1) * t * outs;
        let saved = Saved {
            rows: Rows::of(qkv, keys, heads, (sequence, t)),
            dout: &dout.f32()[rows_out.clone()],
            out: &out.f32()[rows_out],
            lse: &lse.f32()[sequence * heads.heads * t..(sequence + 1) * heads.heads * t],
        };
        one_group(dq, dkv, &saved, (group, leaf), device)
    })?;
    let (by_q, by_kv) = (by_q.f32(), by_kv.f32());
    let is_own = dkv.is_none();
    let rows = dqkv.f32_mut().par_chunks_mut(heads.group_width());
    rows.enumerate().for_each(|(at, out)| {
        let (row, group) = (at / heads.kv_heads, at % heads.kv_heads);
        let (task, i) = (row / t * heads.kv_heads + group, row % t);
        for (slot, out) in out.chunks_exact_mut(width).enumerate() {
            if slot < per {
                let at = task * q_floats + (slot * t + i) * width;
                out.copy_from_slice(&by_q[at..at + width]);
            } else if is_own {
                let at = task * kv_floats + ((slot - per) * t + i) * width;
                out.copy_from_slice(&by_kv[at..at + width]);
            } else {
                out.fill(0.0);
            }
        }
    });
    if let (Some(dkv), Some(keys)) = (dkv, keys) {
        let rows = dkv.f32_mut().par_chunks_mut(2 * width);
        rows.enumerate().for_each(|(at, out)| {
            let (row, group) = (at / heads.kv_heads, at % heads.kv_heads);
            let (task, i) = (row / keys.time * heads.kv_heads + group, row % keys.time);
            for (slot, out) in out.chunks_exact_mut(width).enumerate() {
                if i < visible {
                    let at = task * kv_floats + (slot * visible + i) * width;
                    out.copy_from_slice(&by_kv[at..at + width]);
                } else {
                    out.fill(0.0);
                }
            }
        });
    }
    Ok(())
}

/// What backward reads of one sequence.
struct Saved<'a> {
    rows: Rows<'a>,
    dout: &'a [f32],
    out: &'a [f32],
    lse: &'a [f32],
}

/// Keys and values of a group as the products of all blocks read them.
struct Packs {
    k: Packed,
    k_turned: Packed,
    v_turned: Packed,
}

/// dkv: dk, then dv, all zero before.
fn one_group(
    dq: &mut [f32],
    dkv: &mut [f32],
    saved: &Saved<'_>,
    (group, leaf): (usize, usize),
    device: &Device,
) -> Result<()> {
    let t = saved.rows.t;
    let (k, v) = (saved.rows.shared(group, 0), saved.rows.shared(group, 1));
    let packs = Packs {
        k: pack_b(k, device)?,
        k_turned: pack_b(k.transposed(), device)?,
        v_turned: pack_b(v.transposed(), device)?,
    };
    let block = QUERY_BLOCK.min(t);
    let mut p = Tensor::empty(&[block * saved.rows.keys()], DType::F32, device)?;
    let mut dp = Tensor::empty(&[block * saved.rows.keys()], DType::F32, device)?;
    let mut scratch = (&mut *p.f32_mut(), &mut *dp.f32_mut());
    let leaf = if leaf == 0 { t } else { leaf };
    if leaf >= t {
        let at = (group, 0, t);
        return one_leaf((dq, dkv), &mut scratch, (saved, &packs), at, device);
    }
    // Sums of leaves that wait for their partner; the numbers are those of matmul's tree.
    let mut waiting: Vec<Tensor> = Vec::new();
    for (number, first) in (0..t).step_by(leaf).enumerate() {
        let mut sum = Tensor::zeros(&[dkv.len()], DType::F32, device)?;
        let at = (group, first, leaf.min(t - first));
        let outs = (&mut *dq, sum.f32_mut());
        one_leaf(outs, &mut scratch, (saved, &packs), at, device)?;
        for _ in 0..number.trailing_ones() {
            let older = waiting.pop().expect("one sum waits per one bit");
            merge(device.isa(), sum.f32_mut(), older.f32());
        }
        waiting.push(sum);
    }
    let mut sum = waiting.pop().expect("t is at least 1");
    while let Some(older) = waiting.pop() {
        merge(device.isa(), sum.f32_mut(), older.f32());
    }
    dkv.copy_from_slice(sum.f32());
    Ok(())
}

vector_fn! {
    /// right = older + right.
    fn merge<L>(right: &mut [f32], older: &[f32]) {
        for (right, older) in right.chunks_mut(16).zip(older.chunks(16)) {
            L::load_part(older, 0.0).add(L::load_part(right, 0.0)).store_part(right);
        }
    }
}

/// Rows first .. first + len of every query head of the group.
fn one_leaf(
    (dq, dkv): (&mut [f32], &mut [f32]),
    scratch: &mut (&mut [f32], &mut [f32]),
    of: (&Saved<'_>, &Packs),
    (group, first, len): (usize, usize, usize),
    device: &Device,
) -> Result<()> {
    let (heads, t) = (of.0.rows.heads, of.0.rows.t);
    let half = dkv.len() / 2;
    let (dk, dv) = dkv.split_at_mut(half);
    for (query, dq) in dq.chunks_exact_mut(t * heads.width).enumerate() {
        for from in (first..first + len).step_by(QUERY_BLOCK) {
            let rows = QUERY_BLOCK.min(first + len - from);
            let at = (group, query, from, rows);
            let dq = &mut dq[from * heads.width..(from + rows) * heads.width];
            let scratch = (&mut *scratch.0, &mut *scratch.1);
            one_block((dq, dk, dv), scratch, of, at, device)?;
        }
    }
    Ok(())
}

fn one_block(
    (dq, dk, dv): (&mut [f32], &mut [f32], &mut [f32]),
    (p, dp): (&mut [f32], &mut [f32]),
    (saved, packs): (&Saved<'_>, &Packs),
    (group, query, first, rows): (usize, usize, usize, usize),
    device: &Device,
) -> Result<()> {
    let heads = saved.rows.heads;
    let (per, width) = (heads.per_group(), heads.width);
    let before = saved.rows.first + first;
    let keys = before + rows;
    let (p, dp) = (&mut p[..rows * keys], &mut dp[..rows * keys]);
    let head = group * per + query;
    let stride = heads.heads * width;
    let q = saved.rows.queries(group, query, first, rows);
    let at = first * stride + head * width;
    let dout = View::new(&saved.dout[at..], rows, width, stride);
    gemm_packed(
        dense(p, rows, keys),
        q,
        &packs.k_turned,
        Finish::Store,
        device,
    )?;
    gemm_packed(
        dense(dp, rows, keys),
        dout,
        &packs.v_turned,
        Finish::Store,
        device,
    )?;
    let scale = scale(width);
    for (r, (p, dp)) in p
        .chunks_exact_mut(keys)
        .zip(dp.chunks_exact_mut(keys))
        .enumerate()
    {
        let out = at + r * stride..at + r * stride + width;
        let d = dot(device.isa(), &saved.dout[out.clone()], &saved.out[out]);
        let lse = saved.lse[head * saved.rows.t + first + r];
        let (seen, hidden) = hide(p, before + r + 1, f32::NEG_INFINITY);
        hidden.fill(0.0);
        let (dseen, hidden) = hide(dp, before + r + 1, 0.0);
        hidden.fill(0.0);
        score_slopes(device.isa(), seen, dseen, (scale, lse, d));
    }
    let p = View::new(p, rows, keys, keys);
    let ds = View::new(dp, rows, keys, keys);
    let follow = Plan {
        device,
        leaf: 0,
        finish: Finish::Continue,
        parallel: false,
    };
    gemm(
        dense(&mut dv[..keys * width], keys, width),
        p.transposed(),
        dout,
        follow,
    )?;
    gemm(
        dense(&mut dk[..keys * width], keys, width),
        ds.transposed(),
        q,
        follow,
    )?;
    gemm_packed(dense(dq, rows, width), ds, &packs.k, Finish::Store, device)
}

vector_fn! {
    /// p = e^(scale s - lse), dp = p (dp - d) scale.
    fn score_slopes<L>(p: &mut [f32], dp: &mut [f32], numbers: (f32, f32, f32)) {
        let (scale, lse, d) = numbers;
        let (scale, lse, d) = (L::splat(scale), L::splat(lse), L::splat(d));
        for (p, dp) in p.chunks_mut(16).zip(dp.chunks_mut(16)) {
            let e = exp(L::load_part(p, 0.0).mul(scale).sub(lse));
            e.store_part(p);
            e.mul(L::load_part(dp, 0.0).sub(d)).mul(scale).store_part(dp);
        }
    }
}

vector_fn! {
    fn dot<L>(x: &[f32], y: &[f32]) -> f32 {
        let mut sum = L::splat(0.0);
        for (x, y) in x.chunks(16).zip(y.chunks(16)) {
            sum = L::load_part(x, 0.0).fma(L::load_part(y, 0.0), sum);
        }
        sum.sum()
    }
}

pub(super) fn decode(
    out: &mut Tensor,
    packed: &Tensor,
    (k_cache, v_cache): (&mut Tensor, &mut Tensor),
    position: usize,
    heads: &Heads,
) -> Result<()> {
    let device = packed.device();
    let (per, width) = (heads.per_group(), heads.width);
    let max_t = k_cache.dims()[2];
    let caches = k_cache.f32_mut().par_chunks_mut(max_t * width);
    let caches = caches.zip(v_cache.f32_mut().par_chunks_mut(max_t * width));
    // A packed row is its groups in order, so the rows of all sequences are one list of groups.
    let groups = packed.f32().par_chunks(heads.group_width());
    let tasks = out
        .f32_mut()
        .par_chunks_mut(per * width)
        .zip(groups)
        .zip(caches);
    tasks.try_for_each(|((out, group), (k, v))| {
        let (q, kv) = group.split_at(per * width);
        let slot = position * width..(position + 1) * width;
        k[slot.clone()].copy_from_slice(&kv[..width]);
        v[slot].copy_from_slice(&kv[width..]);
        let keys = position + 1;
        let k = pack_b(View::new(k, keys, width, width).transposed(), device)?;
        let v = pack_b(View::new(v, keys, width, width), device)?;
        let mut scores = Tensor::empty(&[per.min(QUERY_BLOCK) * keys], DType::F32, device)?;
        for (out, q) in out
            .chunks_mut(QUERY_BLOCK * width)
            .zip(q.chunks(QUERY_BLOCK * width))
        {
            let rows = q.len() / width;
            let q = View::new(q, rows, width, width);
            let scores = &mut scores.f32_mut()[..rows * keys];
            attend(out, &mut [], (q, &k, &v), (scores, keys), device)?;
        }
        Ok(())
    })
}
