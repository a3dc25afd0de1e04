//! Backward: a task is one kv head's group, in blocks of query rows.
//!
//! Per block, P from the saved lse: dV += P^T dO, dP = dO V^T, dS = P (dP - rowsum(dO O)) scale,
//! dQ = dS K, dK += dS^T Q; with dropout dP and the P of dV are times the factors of forward. dK and dV
//! are sums over leaves of query rows: a leaf is one chain over the group's query heads and, within a
//! head, ascending rows.

use super::bias::{Expanded, settle};
use super::{QUERY_BLOCK, Rows, dense, expand, split};
use crate::cpu::Numbers;
use crate::cpu::gemm::{Packed, Plan, gemm, gemm_packed, pack_b};
use crate::cpu::math::exp;
use crate::cpu::pack::View;
use crate::cpu::simd::vector_fn;
use crate::cpu::tile::Finish;
use crate::ops::attention::{Call, Keys, Passed};
use crate::ops::dropout::Constants;
use crate::{DType, Device, Result, Tensor};
use rayon::prelude::*;

/// Gradients to write: dqkv, those of keys and values where they are apart, and a sum to add to.
type Outs<'a> = (
    &'a mut Tensor,
    Option<&'a mut Tensor>,
    Option<&'a mut Tensor>,
);

pub(in crate::ops::attention) fn backward(
    (dqkv, dkv, dtable): Outs<'_>,
    passed: &Passed<'_>,
    call: &Call<'_>,
    leaf: usize,
) -> Result<()> {
    let device = passed.qkv.device();
    let (heads, t) = (call.heads, call.t);
    let (per, width) = (heads.per_group(), heads.width);
    let bias = expand(call)?;
    let buckets = bias.as_ref().map_or(0, |bias| bias.buckets);
    // Per sequence and group: dq of each query head, [t, width]; dk and dv, [visible, width], and the
    // bias's gradient, [per, buckets].
    let sums = Sums {
        visible: call.visible(),
        q: per * t * width,
        kv: 2 * call.visible() * width,
        bias: per * buckets,
    };
    let groups = call.b * heads.kv_heads;
    let mut by_q = Tensor::empty(&[groups * sums.q], DType::F32, device)?;
    let mut by_kv = Tensor::zeros(&[groups * sums.tree()], DType::F32, device)?;
    let tasks = by_q
        .f32_mut()
        .par_chunks_mut(sums.q)
        .zip(by_kv.f32_mut().par_chunks_mut(sums.tree()));
    tasks.enumerate().try_for_each(|(task, (dq, tree))| {
        let (sequence, group) = (task / heads.kv_heads, task % heads.kv_heads);
        let outs = heads.heads * width;
        let rows_out = sequence * t * outs..(sequence + 1) * t * outs;
        let lse = sequence * heads.heads * t..(sequence + 1) * heads.heads * t;
        let saved = Saved {
            rows: Rows::of(passed.qkv, call, bias.as_ref(), sequence),
            dout: &passed.dout.f32()[rows_out.clone()],
            out: &passed.out.f32()[rows_out],
            lse: &passed.lse.f32()[lse],
            call,
        };
        one_group(dq, tree, &saved, (group, leaf), device)
    })?;
    sums.pack(dqkv, (&by_q, &by_kv), call);
    if let Some(dkv) = dkv {
        sums.unpack_kv(dkv, &by_kv, call);
    }
    let Some(dtable) = dtable else {
        return Ok(());
    };
    let by_task = by_kv.f32().chunks_exact(sums.tree());
    let by_head: Vec<f32> = by_task.flat_map(|sum| sum[sums.kv..].to_vec()).collect();
    let dims = [call.b, heads.heads * buckets];
    settle(dtable, &Tensor::from_f32(&dims, &by_head, device)?)
}

/// Floats of what a task sums: dq, and in the tree over leaves dk, dv and the gradient of the bias.
struct Sums {
    visible: usize,
    q: usize,
    kv: usize,
    bias: usize,
}

impl Sums {
    fn tree(&self) -> usize {
        self.kv + self.bias
    }

    /// Queries' gradients of all tasks, and those of their own keys, as packed rows.
    fn pack(&self, dqkv: &mut Tensor, (by_q, by_kv): (&Tensor, &Tensor), call: &Call<'_>) {
        let (heads, t) = (call.heads, call.t);
        let (per, width) = (heads.per_group(), heads.width);
        let (by_q, by_kv) = (by_q.f32(), by_kv.f32());
        let is_own = matches!(call.keys, Keys::Own);
        let step = call.query_width() / heads.kv_heads;
        let rows = dqkv.f32_mut().par_chunks_mut(step);
        rows.enumerate().for_each(|(at, out)| {
            let (row, group) = (at / heads.kv_heads, at % heads.kv_heads);
            let (task, i) = (row / t * heads.kv_heads + group, row % t);
            for (slot, out) in out.chunks_exact_mut(width).enumerate() {
                if slot < per {
                    let at = task * self.q + (slot * t + i) * width;
                    out.copy_from_slice(&by_q[at..at + width]);
                } else if is_own {
                    let at = task * self.tree() + ((slot - per) * t + i) * width;
                    out.copy_from_slice(&by_kv[at..at + width]);
                } else {
                    out.fill(0.0);
                }
            }
        });
    }

    /// Gradients of keys and values apart; of those that no row may see, 0.
    fn unpack_kv(&self, dkv: &mut Tensor, by_kv: &Tensor, call: &Call<'_>) {
        let (heads, by_kv) = (call.heads, by_kv.f32());
        let width = heads.width;
        let time = dkv.elements() / (call.b * heads.kv_width());
        let rows = dkv.f32_mut().par_chunks_mut(2 * width);
        rows.enumerate().for_each(|(at, out)| {
            let (row, group) = (at / heads.kv_heads, at % heads.kv_heads);
            let (task, i) = (row / time * heads.kv_heads + group, row % time);
            for (slot, out) in out.chunks_exact_mut(width).enumerate() {
                if i < self.visible {
                    let at = task * self.tree() + (slot * self.visible + i) * width;
                    out.copy_from_slice(&by_kv[at..at + width]);
                } else {
                    out.fill(0.0);
                }
            }
        });
    }
}

/// What backward reads of one sequence.
struct Saved<'a> {
    rows: Rows<'a>,
    dout: &'a [f32],
    out: &'a [f32],
    lse: &'a [f32],
    call: &'a Call<'a>,
}

/// Keys and values of a group as the products of all blocks read them.
struct Packs {
    k: Packed,
    k_turned: Packed,
    v_turned: Packed,
}

/// Room for a block's probabilities and their gradients, a row's dropout factors, and a leaf's sums by
/// distance.
struct Scratch<'a> {
    p: &'a mut [f32],
    dp: &'a mut [f32],
    factors: &'a mut [f32],
    by_distance: &'a mut [f32],
}

/// tree: dk, then dv, then the gradient of the bias, all zero before.
fn one_group(
    dq: &mut [f32],
    tree: &mut [f32],
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
    let keys = saved.rows.keys;
    let mut p = Tensor::empty(&[block * keys], DType::F32, device)?;
    let mut dp = Tensor::empty(&[block * keys], DType::F32, device)?;
    let dropped = if saved.call.dropout.is_some() {
        keys
    } else {
        0
    };
    let mut factors = Tensor::empty(&[dropped], DType::F32, device)?;
    let distances = saved.rows.bias.map_or(0, Expanded::distances);
    let mut by_distance = Tensor::empty(&[distances], DType::F32, device)?;
    let mut scratch = Scratch {
        p: p.f32_mut(),
        dp: dp.f32_mut(),
        factors: factors.f32_mut(),
        by_distance: by_distance.f32_mut(),
    };
    let leaf = if leaf == 0 { t } else { leaf };
    if leaf >= t {
        let at = (group, 0, t);
        return one_leaf((dq, tree), &mut scratch, (saved, &packs), at, device);
    }
    // Sums of leaves that wait for their partner; the numbers are those of matmul's tree.
    let mut waiting: Vec<Tensor> = Vec::new();
    for (number, first) in (0..t).step_by(leaf).enumerate() {
        let mut sum = Tensor::zeros(&[tree.len()], DType::F32, device)?;
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
    tree.copy_from_slice(sum.f32());
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
    (dq, tree): (&mut [f32], &mut [f32]),
    scratch: &mut Scratch<'_>,
    of: (&Saved<'_>, &Packs),
    (group, first, len): (usize, usize, usize),
    device: &Device,
) -> Result<()> {
    let rows = &of.0.rows;
    let (heads, t) = (rows.heads, rows.t);
    let half = rows.keys * heads.width;
    let (dk, rest) = tree.split_at_mut(half);
    let (dv, by_bucket) = rest.split_at_mut(half);
    for (query, dq) in dq.chunks_exact_mut(t * heads.width).enumerate() {
        scratch.by_distance.fill(0.0);
        for from in (first..first + len).step_by(QUERY_BLOCK) {
            let rows = QUERY_BLOCK.min(first + len - from);
            let at = (group, query, from, rows);
            let dq = &mut dq[from * heads.width..(from + rows) * heads.width];
            one_block((dq, dk, dv), scratch, of, at, device)?;
        }
        if let Some(bias) = rows.bias {
            let by_bucket = &mut by_bucket[query * bias.buckets..(query + 1) * bias.buckets];
            bias.fold(by_bucket, scratch.by_distance);
        }
    }
    Ok(())
}

fn one_block(
    (dq, dk, dv): (&mut [f32], &mut [f32], &mut [f32]),
    scratch: &mut Scratch<'_>,
    (saved, packs): (&Saved<'_>, &Packs),
    (group, query, first, rows): (usize, usize, usize, usize),
    device: &Device,
) -> Result<()> {
    let heads = saved.rows.heads;
    let width = heads.width;
    let visited = saved.rows.visited(first, rows);
    let (keys, from) = (visited.len(), visited.start);
    let p = &mut scratch.p[..rows * keys];
    let dp = &mut scratch.dp[..rows * keys];
    let head = group * heads.per_group() + query;
    let stride = heads.heads * width;
    let q = saved.rows.queries(group, query, first, rows);
    let at = first * stride + head * width;
    let dout = View::new(&saved.dout[at..], rows, width, stride);
    let (k, v) = ((&packs.k_turned, (from, 0)), (&packs.v_turned, (from, 0)));
    gemm_packed(dense(p, rows, keys), q, k, Finish::Store, device)?;
    gemm_packed(dense(dp, rows, keys), dout, v, Finish::Store, device)?;
    let constants = saved.call.dropout.map(|dropout| dropout.of_head(head));
    let pairs = p.chunks_exact_mut(keys).zip(dp.chunks_exact_mut(keys));
    for (r, (p, dp)) in pairs.enumerate() {
        let room = (&mut *scratch.factors, &mut *scratch.by_distance);
        let at = (first + r, head, from);
        saved.one_row(at, (p, dp), room, constants, device);
    }
    let p = View::new(p, rows, keys, keys);
    let ds = View::new(dp, rows, keys, keys);
    let follow = Plan {
        device,
        numbers: Numbers::F32,
        leaf: 0,
        finish: Finish::Continue,
        parallel: false,
    };
    let (start, end) = (from * width, visited.end * width);
    let dv = dense(&mut dv[start..end], keys, width);
    gemm(dv, p.transposed(), dout, follow)?;
    let dk = dense(&mut dk[start..end], keys, width);
    gemm(dk, ds.transposed(), q, follow)?;
    let k = (&packs.k, (0, from));
    gemm_packed(dense(dq, rows, width), ds, k, Finish::Store, device)
}

impl Saved<'_> {
    /// Scores to probabilities times dropout factors, dp to the gradient of the unscaled scores.
    fn one_row(
        &self,
        (row, head, from): (usize, usize, usize),
        (p, dp): (&mut [f32], &mut [f32]),
        (factors, by_distance): (&mut [f32], &mut [f32]),
        constants: Option<Constants>,
        device: &Device,
    ) {
        let (heads, isa) = (self.rows.heads, device.isa());
        let seen = self.rows.seen(row);
        if seen.is_empty() {
            p.fill(0.0);
            dp.fill(0.0);
            return;
        }
        let width = heads.width;
        let at = (row * heads.heads + head) * width;
        let d = dot(isa, &self.dout[at..at + width], &self.out[at..at + width]);
        let lse = self.lse[head * self.rows.t + row];
        let seen = seen.start - from..seen.end - from;
        let (before, inside, after) = split(p, seen.clone(), f32::NEG_INFINITY);
        let (dbefore, dinside, dafter) = split(dp, seen, 0.0);
        let key = from + before.len();
        let factors = constants.map(|constants| {
            let factors = &mut factors[..inside.len()];
            factors.fill(1.0);
            self.rows.drop(isa, row, (key, &mut *factors), constants);
            times(isa, dinside, factors);
            factors
        });
        let numbers = (self.rows.scale, lse, d);
        match self.rows.bias {
            None => score_slopes(isa, inside, dinside, numbers),
            Some(bias) => {
                let at = bias.at(self.rows.first + row, key, inside.len());
                bias.add(isa, (head, at.clone()), inside, self.rows.scale);
                biased_slopes(isa, inside, dinside, &mut by_distance[at], numbers);
            }
        }
        if let Some(factors) = factors {
            times(isa, inside, factors);
        }
        for hidden in [before, after, dbefore, dafter] {
            hidden.fill(0.0);
        }
    }
}

vector_fn! {
    /// x = x * by.
    fn times<L>(x: &mut [f32], by: &[f32]) {
        for (x, by) in x.chunks_mut(16).zip(by.chunks(16)) {
            L::load_part(x, 0.0).mul(L::load_part(by, 0.0)).store_part(x);
        }
    }
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
    /// As `score_slopes` with scores that are scaled already; adds p (dp - d) to sums.
    fn biased_slopes<L>(p: &mut [f32], dp: &mut [f32], sums: &mut [f32], numbers: (f32, f32, f32)) {
        let (scale, lse, d) = numbers;
        let (scale, lse, d) = (L::splat(scale), L::splat(lse), L::splat(d));
        let rows = p.chunks_mut(16).zip(dp.chunks_mut(16));
        for ((p, dp), sums) in rows.zip(sums.chunks_mut(16)) {
            let e = exp(L::load_part(p, 0.0).sub(lse));
            e.store_part(p);
            let slope = e.mul(L::load_part(dp, 0.0).sub(d));
            L::load_part(sums, 0.0).add(slope).store_part(sums);
            slope.mul(scale).store_part(dp);
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
