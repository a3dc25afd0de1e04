//! Copies and elementwise operations on the CPU, in parallel over pieces that are larger than the cost of a task.

use super::Runs;
use crate::ops::add::cpu as addition;
use crate::{Bf16, DType, E4m3, E5m2, Element, F16, Result, Tensor, View, ViewMut};
use rayon::prelude::*;

/// Elements per task.
const CHUNK: usize = 1 << 14;

pub(super) fn copy_runs(to: &mut ViewMut<'_>, from: View<'_>, runs: Runs) -> Result<()> {
    match from.dtype() {
        DType::F32 => copy_of::<f32>(to, from, runs),
        DType::U32 => copy_of::<u32>(to, from, runs),
        DType::Bf16 => copy_of::<Bf16>(to, from, runs),
        DType::F16 => copy_of::<F16>(to, from, runs),
        DType::E4m3 => copy_of::<E4m3>(to, from, runs),
        DType::E5m2 => copy_of::<E5m2>(to, from, runs),
    }
}

fn copy_of<T: Element>(to: &mut ViewMut<'_>, from: View<'_>, runs: Runs) -> Result<()> {
    let (to, from) = (to.host_mut::<T>()?, from.host::<T>()?);
    if runs.count == 1 {
        to[..runs.run].copy_from_slice(&from[..runs.run]);
        return Ok(());
    }
    let per_task = (CHUNK / runs.run).max(1);
    // the last run need not fill its stride
    let to = to.par_chunks_mut(runs.to_stride * per_task).enumerate();
    to.take(runs.count.div_ceil(per_task))
        .for_each(|(task, to)| {
            let first = task * per_task;
            for (i, to) in to.chunks_mut(runs.to_stride).enumerate() {
                if first + i >= runs.count {
                    break;
                }
                let from = &from[(first + i) * runs.from_stride..][..runs.run];
                to[..runs.run].copy_from_slice(from);
            }
        });
    Ok(())
}

pub(super) fn add(x: &mut ViewMut<'_>, y: View<'_>) {
    let isa = y.device().isa();
    let chunks = x.f32_mut().par_chunks_mut(CHUNK);
    chunks
        .zip(y.f32().par_chunks(CHUNK))
        .for_each(|(x, y)| addition::add(isa, x, y));
}

/// Applies `change` to every element.
fn each(x: &mut ViewMut<'_>, change: impl Fn(&mut f32) + Sync) {
    let chunks = x.f32_mut().par_chunks_mut(CHUNK);
    chunks.for_each(|x| x.iter_mut().for_each(&change));
}

pub(super) fn shift(x: &mut ViewMut<'_>, value: f32) {
    each(x, |x| *x += value);
}

pub(super) fn scale(x: &mut ViewMut<'_>, factor: f32) {
    each(x, |x| *x *= factor);
}

pub(super) fn fill(x: &mut ViewMut<'_>, value: f32) {
    x.f32_mut().fill(value);
}

/// In f64, rounded once.
#[expect(clippy::cast_possible_truncation, reason = "rounds to f32")]
pub(super) fn logistic(x: &mut ViewMut<'_>) {
    each(x, |x| *x = (1.0 / (1.0 + (-f64::from(*x)).exp())) as f32);
}

pub(super) fn logistic_backward(dx: &mut ViewMut<'_>, s: View<'_>) {
    for (dx, s) in dx.f32_mut().iter_mut().zip(s.f32()) {
        *dx = *dx * s * (1.0 - s);
    }
}

pub(super) fn scaled_rows(out: &mut Tensor, x: &Tensor, by: &Tensor) {
    let (_, d) = x.rows_cols();
    let rows = out.f32_mut().par_chunks_mut(d).zip(x.f32().par_chunks(d));
    rows.zip(by.f32()).for_each(|((out, x), &by)| {
        for (out, x) in out.iter_mut().zip(x) {
            *out = x * by;
        }
    });
}

#[expect(clippy::cast_possible_truncation, reason = "rounds to f32")]
pub(super) fn dot_rows(out: &mut Tensor, a: &Tensor, b: &Tensor) {
    let (_, d) = a.rows_cols();
    let rows = a.f32().par_chunks(d).zip(b.f32().par_chunks(d));
    out.f32_mut()
        .par_iter_mut()
        .zip(rows)
        .for_each(|(out, (a, b))| {
            let products = a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b));
            *out = products.sum::<f64>() as f32;
        });
}

pub(super) fn sum_groups(out: &mut Tensor, x: &Tensor, group: usize) {
    let (_, d) = x.rows_cols();
    let sums = out.f32_mut().par_chunks_mut(d);
    sums.zip(x.f32().par_chunks(group * d))
        .for_each(|(sums, rows)| {
            sums.fill(0.0);
            for row in rows.chunks_exact(d) {
                for (sum, x) in sums.iter_mut().zip(row) {
                    *sum += x;
                }
            }
        });
}

pub(super) fn raise(bits: &mut ViewMut<'_>, x: View<'_>) -> Result<()> {
    let most = x.f32().iter().copied().fold(0.0, f32::max);
    let [bits] = bits.host_mut::<u32>()? else {
        unreachable!("mod.rs checks the length");
    };
    *bits = most.to_bits().max(*bits);
    Ok(())
}

pub(super) fn largest(out: &mut Tensor, x: View<'_>) {
    out.f32_mut()[0] = x.f32().iter().copied().fold(0.0, f32::max);
}

#[expect(clippy::cast_possible_truncation, reason = "halves of a word")]
pub(super) fn not_finite(words: &mut Tensor, x: View<'_>) {
    let x = x.f32();
    let found = x.iter().enumerate().find(|(_, x)| !x.is_finite());
    if let Some((at, value)) = found {
        let left = (x.len() - at) as u64;
        let words = words.u32_mut();
        words[..3].copy_from_slice(&[left as u32, (left >> 32) as u32, value.to_bits()]);
    }
}
