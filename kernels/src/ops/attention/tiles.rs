//! Tests of tile-order sums against loops over single numbers, to the bit: chains in blocks of 32, keys from the
//! start of each block of the softmax, query rows from that of each leaf; parts of a block that no row of a tile
//! attends to change nothing.

use super::biased::both_ways;
use super::masks::{HEADS, documents, masks, ranges};
use super::tests::next;
use super::*;
use crate::cpu::Numbers;
use crate::cpu::bf16::rounded;
use crate::cpu::math::{exp_of_score, natural_log};
use crate::cpu::simd::{Lanes, Plain};
use crate::testing::{bits, devices, random, tree};
use crate::{Device, Isa};
use std::ops::Range;

/// Continues a chain of bf16 products as TDPBF16PS does, for numbers that are not tiny.
fn chain(mut sum: f32, a: &[f32], b: &[f32]) -> f32 {
    let bf16 = |x: f32| f32::from_bits(rounded(x));
    for (a, b) in a.chunks(32).zip(b.chunks(32)) {
        let mut chains = [0.0_f32; 2];
        for (i, (a, b)) in a.iter().zip(b).enumerate() {
            chains[i % 2] = bf16(*a).mul_add(bf16(*b), chains[i % 2]);
        }
        sum += chains[0] + chains[1];
    }
    sum
}

fn exp(x: f32) -> f32 {
    exp_of_score(Plain::splat(x)).to_array()[0]
}

/// Summed like a vector of 16 lanes.
fn dot(x: &[f32], y: &[f32]) -> f32 {
    let mut lanes = [0.0_f32; 16];
    for (i, (x, y)) in x.iter().zip(y).enumerate() {
        lanes[i % 16] = x.mul_add(*y, lanes[i % 16]);
    }
    Plain::load(&lanes).sum()
}

/// Two sequences of `t` packed rows; keys in blocks, query rows in leaves.
struct Definition<'a> {
    heads: Heads,
    qkv: &'a [f32],
    dout: &'a [f32],
    t: usize,
    block: usize,
    leaf: usize,
    seen: &'a [Range<usize>],
}

/// Results for a row of a head.
struct Row {
    out: Vec<f32>,
    /// Probability of every key.
    p: Vec<f32>,
    ds: Vec<f32>,
    dq: Vec<f32>,
}

impl Definition<'_> {
    fn slot(&self, row: usize, slot: usize) -> &[f32] {
        let (packed, e) = (self.heads.packed(), self.heads.width);
        &self.qkv[row * packed + slot * e..][..e]
    }

    /// Feature c of keys or values of a sequence's keys from `from` on.
    fn column(&self, sequence: usize, slot: usize, c: usize, keys: Range<usize>) -> Vec<f32> {
        keys.map(|key| self.slot(sequence * self.t + key, slot)[c])
            .collect()
    }

    fn row(&self, row: usize, head: usize) -> Row {
        let (t, e, per) = (self.t, self.heads.width, self.heads.per_group());
        let (sequence, first) = (row / t, head / per * (per + 2));
        let (k, v) = (first + per, first + per + 1);
        let q = self.slot(row, first + head % per);
        let scale = 1.0 / (e as f32).sqrt();
        let of = |slot: usize, x: &[f32]| -> Vec<f32> {
            let key = |key| chain(0.0, x, self.slot(sequence * t + key, slot));
            (0..t).map(key).collect()
        };
        let scores: Vec<f32> = of(k, q).into_iter().map(|x| x * scale).collect();
        let (mut max, mut sum, mut values) = (f32::NEG_INFINITY, 0.0, vec![0.0; e]);
        let blocks = || {
            let starts = (0..t).step_by(self.block);
            starts.map(|start| start..t.min(start + self.block))
        };
        let seen = |keys: &Range<usize>| {
            let seen = &self.seen[row];
            seen.start.max(keys.start)..seen.end.min(keys.end)
        };
        for keys in blocks() {
            let here = seen(&keys);
            if here.is_empty() {
                continue;
            }
            let before = max;
            max = scores[here.clone()].iter().fold(max, |a, b| a.max(*b));
            let factor = exp(before - max);
            let mut p = vec![0.0; keys.len()];
            sum *= factor;
            for key in here {
                p[key - keys.start] = exp(scores[key] - max);
                sum += p[key - keys.start];
            }
            for (c, value) in values.iter_mut().enumerate() {
                let column = self.column(sequence, v, c, keys.clone());
                *value = chain(*value * factor, &p, &column);
            }
        }
        let by = if sum == 0.0 { 1.0 } else { sum };
        let out: Vec<f32> = values.iter().map(|value| value / by + 0.0).collect();
        let lse = if sum == 0.0 {
            0.0
        } else {
            max + natural_log(sum)
        };
        let dout = &self.dout[(row * self.heads.heads + head) * e..][..e];
        let d = dot(dout, &out);
        let dp = of(v, dout);
        let (mut p, mut ds) = (vec![0.0; t], vec![0.0; t]);
        for key in self.seen[row].clone() {
            p[key] = exp(scores[key] - lse);
            ds[key] = p[key] * (dp[key] - d) * scale;
        }
        let dq = (0..e).map(|c| {
            blocks().fold(0.0, |sum, keys| {
                let column = self.column(sequence, k, c, keys.clone());
                chain(sum, &ds[keys], &column)
            }) + 0.0
        });
        let dq = dq.collect();
        Row { out, p, ds, dq }
    }

    /// Results and gradients as `forward` and `backward` give them.
    fn run(&self) -> (Vec<f32>, Vec<f32>) {
        let Definition { heads, t, leaf, .. } = *self;
        let (e, per, packed) = (heads.width, heads.per_group(), heads.packed());
        let n = self.seen.len();
        let all: Vec<Vec<Row>> = (0..n)
            .map(|row| (0..heads.heads).map(|head| self.row(row, head)).collect())
            .collect();
        let rows = all.iter().flatten();
        let out: Vec<f32> = rows.flat_map(|row| row.out.clone()).collect();
        let mut dqkv = vec![0.0; n * packed];
        for (row, heads) in all.iter().enumerate() {
            for (head, of) in heads.iter().enumerate() {
                let slot = head / per * (per + 2) + head % per;
                dqkv[row * packed + slot * e..][..e].copy_from_slice(&of.dq);
            }
        }
        for (sequence, group, key) in (0..n / t)
            .flat_map(|s| (0..heads.kv_heads).flat_map(move |g| (0..t).map(move |k| (s, g, k))))
        {
            for c in 0..2 * e {
                let leaves = (0..t).step_by(leaf).map(|first| {
                    let rows = || sequence * t + first..sequence * t + t.min(first + leaf);
                    (0..per).fold(0.0, |sum, query| {
                        let head = group * per + query;
                        let slot = group * (per + 2) + query;
                        let (x, y): (Vec<f32>, Vec<f32>) = rows()
                            .map(|row| {
                                let of = &all[row][head];
                                let dout = &self.dout[(row * heads.heads + head) * e..][..e];
                                match c < e {
                                    true => (of.ds[key], self.slot(row, slot)[c]),
                                    false => (of.p[key], dout[c - e]),
                                }
                            })
                            .unzip();
                        chain(sum, &x, &y)
                    })
                });
                let at = (sequence * t + key) * packed + (group * (per + 2) + per) * e + c;
                dqkv[at] = tree(leaves) + 0.0;
            }
        }
        (out, dqkv)
    }
}

fn here(x: &Tensor, device: &Device) -> Tensor {
    Tensor::from_f32(x.dims(), x.f32(), device).unwrap()
}

fn heads(heads: usize, kv_heads: usize, width: usize) -> Heads {
    Heads {
        heads,
        kv_heads,
        width,
    }
}

#[test]
fn rows_and_gradients_have_the_bits_of_the_definition_on_every_instruction_set() {
    let plain = Device::cpu();
    for (heads, t, block, leaf) in [
        (HEADS, 9, 9, 9),
        (HEADS, 75, 10, 10),
        (heads(2, 1, 20), 99, 45, 40),
        (heads(1, 1, 70), 83, 83, 83),
    ] {
        let bounds = documents(t);
        let qkv = random(&[2 * t, heads.packed()], 1, &plain).unwrap();
        let dout = random(&[2 * t, heads.heads * heads.width], 2, &plain).unwrap();
        for mask in masks(&bounds) {
            let seen = ranges(&mask, t, 0);
            let definition = Definition {
                heads,
                qkv: qkv.f32(),
                dout: dout.f32(),
                t,
                block,
                leaf,
                seen: &seen,
            };
            let (out, dqkv) = definition.run();
            for device in devices() {
                if device.isa() == Isa::Portable && t > 80 {
                    continue; // plain code is slow
                }
                let (qkv, dout) = (here(&qkv, &device), here(&dout, &device));
                let call = Call {
                    mask,
                    block,
                    numbers: Numbers::Bf16Tiles,
                    ..Call::causal(&heads, 2, t)
                };
                let found = both_ways(&qkv, &dout, &call, leaf);
                let what = format!("{} {heads:?} {mask:?}", device.name());
                assert!(bits(found.out.f32()) == bits(&out), "out, {what}");
                assert!(bits(found.dqkv.f32()) == bits(&dqkv), "dqkv, {what}");
                let pairs = Numbers::Bf16;
                let other = both_ways(
                    &qkv,
                    &dout,
                    &Call {
                        numbers: pairs,
                        ..call
                    },
                    leaf,
                );
                assert!(bits(other.dqkv.f32()) != bits(&dqkv), "must fail, {what}");
            }
        }
    }
}

#[test]
fn threads_and_sequences_alone_change_no_bits() {
    let device = Device::cpu();
    let (heads, t) = (heads(6, 3, 20), 90);
    let bounds = documents(t);
    let qkv = random(&[2 * t, heads.packed()], 1, &device).unwrap();
    let dout = random(&[2 * t, 120], 2, &device).unwrap();
    for mask in masks(&bounds) {
        let call = Call {
            mask,
            block: 40,
            numbers: Numbers::Bf16Tiles,
            ..Call::causal(&heads, 2, t)
        };
        let of = |threads| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads);
            let found = pool
                .build()
                .unwrap()
                .install(|| both_ways(&qkv, &dout, &call, 20));
            (bits(found.out.f32()), bits(found.dqkv.f32()))
        };
        let want = of(1);
        assert!(of(2) == want && of(5) == want, "{mask:?}");
        let half = |x: &Tensor| {
            let values = &x.f32()[..x.elements() / 2];
            Tensor::from_f32(&[t, x.elements() / 2 / t], values, &device).unwrap()
        };
        let first = Call {
            b: 1,
            mask: Mask {
                bounds: mask.bounds.map(|bounds| &bounds[..t]),
                ..mask
            },
            ..call
        };
        let found = both_ways(&half(&qkv), &half(&dout), &first, 20);
        assert_eq!(bits(found.out.f32()), want.0[..want.0.len() / 2]);
        assert_eq!(bits(found.dqkv.f32()), want.1[..want.1.len() / 2]);
    }
}

#[test]
fn decode_within_a_window_has_the_bits_of_forward_in_tiles() {
    let device = Device::cpu();
    let (heads, t, window) = (heads(4, 2, 20), 120, 37);
    let qkv = random(&[t, heads.packed()], 1, &device).unwrap();
    for block in [0, 50] {
        let numbers = Numbers::Bf16Tiles;
        let mask = Mask {
            window,
            ..Mask::CAUSAL
        };
        let call = Call {
            mask,
            block,
            numbers,
            ..Call::causal(&heads, 1, t)
        };
        let (out, _) = forward(&qkv, &call).unwrap();
        let mut k = Tensor::zeros(&[1, 2, t, 20], DType::F32, &device).unwrap();
        let mut v = k.try_clone().unwrap();
        for position in 0..t {
            let packed = heads.packed();
            let row = &qkv.f32()[position * packed..][..packed];
            let row = Tensor::from_f32(&[1, packed], row, &device).unwrap();
            let first = (position + 1).saturating_sub(window);
            let next = Next {
                block,
                numbers,
                ..next(&heads, position, first)
            };
            let one = decode(&row, &mut k, &mut v, &next).unwrap();
            let want = &out.f32()[position * 80..][..80];
            assert_eq!(bits(one.f32()), bits(want), "{position}");
        }
    }
}
