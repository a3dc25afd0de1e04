//! Rotary positions on the CPU. Angles, sines and cosines in f64, kept as one f32 table per device.

use super::{Frequencies, Heads, Positions};
use crate::Tensor;
use crate::cpu::ROW_BLOCK;
use crate::cpu::simd::vector_fn;
use rayon::prelude::*;

pub(super) fn turn(
    qkv: &mut Tensor,
    heads: &Heads,
    positions: &Positions<'_>,
    frequencies: &Frequencies,
    direction: f32,
) {
    let (width, rotary) = (heads.width, 2 * frequencies.steps.len());
    let device = qkv.device().clone();
    let (t, offset) = match *positions {
        Positions::Run { t, offset } => (t, offset),
        Positions::Each { limit, .. } => (limit, 0),
    };
    let table = device.rope_table((t, offset, frequencies), || table(t, offset, frequencies));
    let packed = heads.packed();
    let group = heads.group_width();
    let turned = group - width; // all of a group but v
    qkv.f32_mut()
        .par_chunks_mut(packed * ROW_BLOCK)
        .enumerate()
        .for_each(|(block, rows)| {
            for (r, row) in rows.chunks_exact_mut(packed).enumerate() {
                let r = block * ROW_BLOCK + r;
                let row_of_table = match *positions {
                    Positions::Run { t, .. } => r % t,
                    Positions::Each { of, .. } => of[r] as usize,
                };
                let at = row_of_table * rotary;
                let (cos, sin) = table[at..at + rotary].split_at(rotary / 2);
                for group in row.chunks_exact_mut(group) {
                    for head in group[..turned].chunks_exact_mut(width) {
                        let halves = head[..rotary].split_at_mut(rotary / 2);
                        rotate(device.isa(), halves, (cos, sin), direction);
                    }
                }
            }
        });
}

/// Per position: cosines of all pairs, then sines.
#[expect(
    clippy::cast_possible_truncation,
    reason = "f64 angles become an f32 table"
)]
fn table(t: usize, offset: usize, frequencies: &Frequencies) -> Vec<f32> {
    let half = frequencies.steps.len();
    let size = frequencies.magnitude;
    let mut table = vec![0.0; t * 2 * half];
    table
        .par_chunks_mut(2 * half)
        .enumerate()
        .for_each(|(row, out)| {
            let position = (row + offset) as f64;
            for (i, step) in frequencies.steps.iter().enumerate() {
                let (sin, cos) = (position * step).sin_cos();
                (out[i], out[half + i]) = ((cos * size) as f32, (sin * size) as f32);
            }
        });
    table
}

vector_fn! {
    fn rotate<L>(x: (&mut [f32], &mut [f32]), angle: (&[f32], &[f32]), direction: f32) {
        let halves = x.0.chunks_mut(16).zip(x.1.chunks_mut(16));
        for ((x, y), (cos, sin)) in halves.zip(angle.0.chunks(16).zip(angle.1.chunks(16))) {
            let (a, b) = (L::load_part(x, 0.0), L::load_part(y, 0.0));
            let cos = L::load_part(cos, 0.0);
            let sin = L::load_part(sin, 0.0).mul(L::splat(direction));
            a.mul(cos).sub(b.mul(sin)).store_part(x);
            b.mul(cos).add(a.mul(sin)).store_part(y);
        }
    }
}
