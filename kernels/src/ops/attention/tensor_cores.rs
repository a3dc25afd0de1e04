//! Tests of attention on tensor cores, on the simulated GPU, against f64 loops with a bound for every element: factors
//! are numbers of the format, so that only probabilities, gradients of scores and f32 sums are rounded.

use super::biased::{Passes, biased, both_ways};
use super::masks::{DROPPED, HEADS, cut, documents, factor, masks, ranges};
use super::reference::{Factor, kept, unpack};
use super::*;
use crate::cpu::Numbers;
use crate::testing::{bits, random, simulator, stored_as, values, wide, widened};
use std::ops::Range;

/// One step of an f32 sum on a card, which may truncate where f32 rounds.
const STEP: f64 = 2.0 * crate::tolerance::EPS;

/// Half a unit in the last place of a factor, relative, and the same of the smallest factors, absolute.
fn unit(numbers: Numbers) -> [f64; 2] {
    match numbers {
        Numbers::F16Mma => [2_f64.powi(-11), 2_f64.powi(-25)],
        _ => [2_f64.powi(-8), 0.0],
    }
}

/// A number and how far from it a right result may be.
#[derive(Clone, Copy, Default)]
struct Near {
    value: f64,
    bound: f64,
}

impl Near {
    fn add(&mut self, value: f64, bound: f64) {
        self.value += value;
        self.bound += bound;
    }
}

/// Attention of rows `q` to the rows `k` and `v` of `time` keys.
struct Problem<'a> {
    heads: Heads,
    t: usize,
    time: usize,
    numbers: Numbers,
    q: Vec<f64>,
    k: Vec<f64>,
    v: Vec<f64>,
    dout: Vec<f64>,
    scores: Scores,
    /// The bias of the scores of (head, row, key).
    bias: &'a dyn Fn(usize, usize, usize) -> f64,
    /// One per head.
    sinks: Option<&'a [f64]>,
    factor: Factor,
    seen: Vec<Range<usize>>,
}

/// Results in the order of the inputs.
struct Wanted {
    out: Vec<Near>,
    dq: Vec<Near>,
    dk: Vec<Near>,
    dv: Vec<Near>,
    /// Gradients of the scores by (row of all sequences, head), for each of its keys.
    slopes: Vec<Vec<Near>>,
}

fn dot(a: &[f64], b: &[f64]) -> Near {
    let value = a.iter().zip(b).map(|(a, b)| a * b).sum();
    let size: f64 = a.iter().zip(b).map(|(a, b)| (a * b).abs()).sum();
    let bound = (a.len() + 2) as f64 * STEP * size;
    Near { value, bound }
}

impl Problem<'_> {
    fn run(&self) -> Wanted {
        let Problem { heads: h, t, .. } = *self;
        let [unit, least] = unit(self.numbers);
        let of = |x: &[f64], at: usize| x[at * h.width..][..h.width].to_vec();
        let divisor = self.scores.divisor.map_or(h.width as f64, f64::from);
        let scale = 1.0 / divisor.sqrt();
        let near = |x: &[f64]| vec![Near::default(); x.len()];
        let mut all = Wanted {
            out: near(&self.q),
            dq: near(&self.q),
            dk: near(&self.k),
            dv: near(&self.v),
            slopes: Vec::new(),
        };
        for at in 0..self.q.len() / h.width {
            let (row, head) = (at / h.heads, at % h.heads);
            let kv = |key: usize| (row / t * self.time + key) * h.kv_heads + head / h.per_group();
            let (q, dout) = (of(&self.q, at), of(&self.dout, at));
            let keys = self.seen[row].clone();
            let steps = (keys.len() + 4) as f64 * STEP;
            let scores: Vec<Near> = keys
                .clone()
                .map(|key| {
                    let product = dot(&q, &of(&self.k, kv(key)));
                    let value = product.value * scale + (self.bias)(head, row % t, key);
                    let bound = product.bound * scale + value.abs() * 4.0 * STEP;
                    Near { value, bound }
                })
                .collect();
            let sink = self.sinks.map_or(f64::NEG_INFINITY, |sinks| sinks[head]);
            let most = scores
                .iter()
                .map(|score| score.value)
                .fold(sink.max(0.0), f64::max);
            let sum: f64 = scores.iter().map(|score| (score.value - most).exp()).sum();
            let sum = sum + (sink - most).exp();
            // relative: of the exponential, and of the sum or the saved logarithm
            let worst = scores.iter().map(|score| score.bound).fold(0.0, f64::max);
            let error = 2.0 * (worst + (most.abs() + 90.0) * 4.0 * STEP) + steps;
            let weights: Vec<[f64; 2]> = keys
                .clone()
                .zip(&scores)
                .map(|(key, score)| {
                    let p = (score.value - most).exp() / sum;
                    [p, (self.factor)(row / t, head, row % t, key)]
                })
                .collect();
            for (key, [p, by]) in keys.clone().zip(&weights) {
                for c in 0..h.width {
                    let value = p * by * self.v[kv(key) * h.width + c];
                    let bound = value.abs() * (error + unit + steps);
                    // weights are rounded before the division, so relative to a largest one of 1
                    let least = least * self.v[kv(key) * h.width + c].abs();
                    all.out[at * h.width + c].add(value, bound + least);
                }
            }
            let out = &all.out[at * h.width..][..h.width];
            let values: Vec<f64> = out.iter().map(|near| near.value).collect();
            let mut of_row = dot(&dout, &values);
            of_row.bound += (out.iter().zip(&dout))
                .map(|(near, d)| near.bound * d.abs())
                .sum::<f64>();
            let mut slopes = Vec::new();
            for (key, [p, by]) in keys.zip(&weights) {
                let dp = dot(&dout, &of(&self.v, kv(key)));
                let slope = p * (dp.value * by - of_row.value);
                let size = p * ((dp.value * by).abs() + of_row.value.abs());
                let inexact = p * (dp.bound * by + of_row.bound) + size * (error + 4.0 * STEP);
                slopes.push(Near {
                    value: slope,
                    bound: inexact,
                });
                let rounded = (inexact + slope.abs() * unit) * scale + least;
                let weight = p * by * (error + unit) + least;
                let other = kv(key) * h.width;
                for c in 0..h.width {
                    let (k, q, d) = (self.k[other + c], q[c], dout[c]);
                    // as many steps as rows and heads of the group, or keys
                    let more = (t * h.per_group() + self.time) as f64 * STEP;
                    let bound = |value: f64, by: f64| by.abs() + value.abs() * more;
                    let value = slope * scale * k;
                    all.dq[at * h.width + c].add(value, bound(value, rounded * k));
                    let value = slope * scale * q;
                    all.dk[other + c].add(value, bound(value, rounded * q));
                    let value = p * by * d;
                    all.dv[other + c].add(value, bound(value, weight * d));
                }
            }
            all.slopes.push(slopes);
        }
        all
    }
}

/// Panics unless every number is near. The bounds add up the worst cases, and are still below half of the largest
/// number, so that a wrong element or factor is noticed.
fn assert_near(name: &str, found: &[f32], wanted: &[Near]) {
    assert_eq!(found.len(), wanted.len(), "{name}");
    for (i, (found, near)) in found.iter().zip(wanted).enumerate() {
        let off = (f64::from(*found) - near.value).abs();
        let Near { value, bound } = *near;
        assert!(off <= bound, "{name} {i}: {found} for {value} +- {bound}");
    }
    let largest = |of: fn(&Near) -> f64| wanted.iter().map(of).fold(0.0, f64::max);
    let (bound, value) = (largest(|near| near.bound), largest(|near| near.value.abs()));
    // the gradients of a row with a single key are 0
    assert!(
        bound <= 0.5 * value || value < 1e-12,
        "{name}: {bound} of {value}"
    );
}

/// Normals that both formats hold: a bf16 above 2^-9 is a half.
fn factors(dims: &[usize], seed: u64) -> Tensor {
    let x = random(dims, seed, &Device::cpu()).unwrap();
    let x = values(&x).into_iter().map(|x| match x.abs() < 0.002 {
        true => 0.0,
        false => x,
    });
    let x: Vec<f32> = x.collect();
    let x = Tensor::from_f32(dims, &x, &Device::cpu()).unwrap();
    widened(&stored_as(DType::Bf16, &x))
}

fn no_bias(_: usize, _: usize, _: usize) -> f64 {
    0.0
}

fn on(device: &Device, x: &Tensor) -> Tensor {
    x.to_device(device).unwrap()
}

/// Result and gradients, twice with the same bits.
fn twice(qkv: &Tensor, dout: &Tensor, call: &Call<'_>) -> Passes {
    let [first, second] = [0, 5].map(|leaf| both_ways(qkv, dout, call, leaf));
    let all = |of: &Passes| [bits(&values(&of.out)), bits(&values(&of.dqkv))];
    assert_eq!(all(&first), all(&second));
    first
}

const BOTH: [Numbers; 2] = [Numbers::Bf16Mma, Numbers::F16Mma];

#[test]
fn any_size_matches_an_f64_loop() {
    let Some(device) = simulator::device() else {
        return;
    };
    let shapes = [
        // heads, kv heads, width, rows
        (1, 1, 1, 1),
        (2, 1, 33, 41),
        (3, 3, 5, 70),
        (2, 1, 64, 130),
        (2, 1, 65, 67),
        (1, 1, 128, 129),
    ];
    for (heads, kv_heads, width, t) in shapes {
        let heads = Heads {
            heads,
            kv_heads,
            width,
        };
        let qkv = factors(&[2 * t, heads.packed()], 1);
        let dout = factors(&[2 * t, heads.heads * width], 2);
        for numbers in BOTH {
            let call = Call {
                numbers,
                ..Call::causal(&heads, 2, t)
            };
            let found = twice(&on(&device, &qkv), &on(&device, &dout), &call);
            let [q, k, v] = unpack(&wide(qkv.f32()), &heads);
            let problem = Problem {
                heads,
                t,
                time: t,
                numbers,
                q,
                k,
                v,
                dout: wide(dout.f32()),
                scores: Scores::scaled(true),
                bias: &no_bias,
                sinks: None,
                factor: kept,
                seen: (0..2 * t).map(|row| 0..row % t + 1).collect(),
            };
            let want = problem.run();
            assert_near("out", &values(&found.out), &want.out);
            let [dq, dk, dv] = unpack(&values(&found.dqkv), &heads);
            assert_near("dq", &dq, &want.dq);
            assert_near("dk", &dk, &want.dk);
            assert_near("dv", &dv, &want.dv);
        }
    }
}

#[test]
fn masks_biases_and_dropout_match_an_f64_loop() {
    let Some(device) = simulator::device() else {
        return;
    };
    let t = 150;
    let bounds = documents(t);
    let qkv = factors(&[2 * t, HEADS.packed()], 1);
    let dout = factors(&[2 * t, 24], 2);
    let table = random(&[4, 8], 3, &Device::cpu()).unwrap();
    let here = on(&device, &table);
    let biases = wide(table.f32());
    for (number, mask) in masks(&bounds).into_iter().enumerate() {
        let numbers = BOTH[number % 2];
        let call = Call {
            numbers,
            dropout: (number % 3 != 1).then_some(DROPPED),
            ..biased(t, mask, &here)
        };
        let buckets = call.bias.unwrap().buckets;
        let bias = |head: usize, row: usize, key: usize| biases[head * 8 + buckets.of(row, key)];
        let found = twice(&on(&device, &qkv), &on(&device, &dout), &call);
        let [q, k, v] = unpack(&wide(qkv.f32()), &HEADS);
        let problem = Problem {
            heads: HEADS,
            t,
            time: t,
            numbers,
            q,
            k,
            v,
            dout: wide(dout.f32()),
            scores: Scores::scaled(false),
            bias: &bias,
            sinks: None,
            factor: call.dropout.map_or(kept as Factor, |_| factor),
            seen: ranges(&mask, t, 0),
        };
        let want = problem.run();
        assert_near("out", &values(&found.out), &want.out);
        let [dq, dk, dv] = unpack(&values(&found.dqkv), &HEADS);
        assert_near("dq", &dq, &want.dq);
        assert_near("dk", &dk, &want.dk);
        assert_near("dv", &dv, &want.dv);
        let mut dtable = vec![Near::default(); 32];
        for (at, slopes) in want.slopes.iter().enumerate() {
            let (row, head) = (at / 4, at % 4);
            for (key, slope) in problem.seen[row].clone().zip(slopes) {
                let to = &mut dtable[head * 8 + buckets.of(row % t, key)];
                let steps = 2.0 * t as f64 * STEP;
                to.add(slope.value, slope.bound + slope.value.abs() * steps);
            }
        }
        assert_near("dtable", &values(&found.dtable.unwrap()), &dtable);
    }
}

#[test]
fn linear_biases_match_an_f64_loop_on_tensor_cores() {
    let Some(device) = simulator::device() else {
        return;
    };
    let t = 100;
    let alibi = Alibi { heads: 6, first: 2 };
    let scores = Scores {
        alibi: Some(alibi),
        ..Scores::scaled(true)
    };
    let bias = |head: usize, row: usize, key: usize| {
        f64::from(alibi.slope(head)) * (key as f64 - row as f64)
    };
    let qkv = factors(&[2 * t, HEADS.packed()], 1);
    let dout = factors(&[2 * t, 24], 2);
    for numbers in BOTH {
        let call = Call {
            numbers,
            scores,
            ..Call::causal(&HEADS, 2, t)
        };
        let found = twice(&on(&device, &qkv), &on(&device, &dout), &call);
        let [q, k, v] = unpack(&wide(qkv.f32()), &HEADS);
        let problem = Problem {
            heads: HEADS,
            t,
            time: t,
            numbers,
            q,
            k,
            v,
            dout: wide(dout.f32()),
            scores: Scores::scaled(true),
            bias: &bias,
            sinks: None,
            factor: kept,
            seen: ranges(&Mask::CAUSAL, t, 0),
        };
        let want = problem.run();
        assert_near("out", &values(&found.out), &want.out);
        let [dq, dk, dv] = unpack(&values(&found.dqkv), &HEADS);
        assert_near("dq", &dq, &want.dq);
        assert_near("dk", &dk, &want.dk);
        assert_near("dv", &dv, &want.dv);
    }
}

#[test]
fn rows_with_sinks_match_an_f64_loop_on_tensor_cores() {
    let Some(device) = simulator::device() else {
        return;
    };
    let (t, of_heads) = (70, [-2.0, 0.5, 1.5, 4.0]);
    let sinks = Tensor::from_f32(&[4], &of_heads, &device).unwrap();
    let of_heads = wide(&of_heads);
    let qkv = factors(&[2 * t, HEADS.packed()], 1);
    let dout = factors(&[2 * t, 24], 2);
    let seen = ranges(&Mask::CAUSAL, t, 0);
    for numbers in BOTH {
        let call = Call {
            numbers,
            sinks: Some(&sinks),
            ..Call::causal(&HEADS, 2, t)
        };
        let here = [&qkv, &dout].map(|x| on(&device, x));
        let found = twice(&here[0], &here[1], &call);
        let [q, k, v] = unpack(&wide(qkv.f32()), &HEADS);
        let problem = Problem {
            heads: HEADS,
            t,
            time: t,
            numbers,
            q,
            k,
            v,
            dout: wide(dout.f32()),
            scores: Scores::scaled(true),
            bias: &no_bias,
            sinks: Some(&of_heads),
            factor: kept,
            seen: seen.clone(),
        };
        let want = problem.run();
        assert_near("out", &values(&found.out), &want.out);
        let [dq, dk, dv] = unpack(&values(&found.dqkv), &HEADS);
        assert_near("dq", &dq, &want.dq);
        assert_near("dk", &dk, &want.dk);
        assert_near("dv", &dv, &want.dv);
        // the first of two parts of the keys, so that the state is carried on
        let kv = take_kv(&here[0], &HEADS).unwrap();
        let part = |start, rows| Call {
            keys: Keys::Part {
                kv: rows,
                time: t,
                start,
                first: 0,
            },
            ..call
        };
        let parts = [(0, 64), (64, 6)].map(|(start, rows)| {
            let values = values(&kv);
            let width = HEADS.kv_width();
            let of = |s: usize| &values[(s * t + start) * width..(s * t + start + rows) * width];
            let both = [of(0), of(1)].concat();
            let kv = Tensor::from_f32(&[2 * rows, width], &both, &device).unwrap();
            (start, kv)
        });
        let calls = [&parts[0], &parts[1]].map(|(start, kv)| part(*start, kv));
        let mut running = RunningForward::new(&here[0], &calls[0]).unwrap();
        for call in &calls {
            running.visit(&here[0], call).unwrap();
        }
        let (out, _) = running.finish(&calls[0]).unwrap();
        assert_near("out of parts", &values(&out), &want.out);
    }
}

#[test]
fn keys_in_parts_and_of_another_sequence_match_an_f64_loop() {
    let Some(device) = simulator::device() else {
        return;
    };
    let (t, rows) = (160, 80);
    let whole = factors(&[2 * t, HEADS.packed()], 1);
    let douts = factors(&[2 * t, 24], 2);
    // the second half of each sequence's rows
    let (qkv, dout) = (cut(&whole, 1, rows, t), cut(&douts, 1, rows, t));
    let kv = take_kv(&whole, &HEADS).unwrap();
    let [q, ..] = unpack(&wide(qkv.f32()), &HEADS);
    let [_, k, v] = unpack(&wide(whole.f32()), &HEADS);
    for numbers in BOTH {
        let problem = Problem {
            heads: HEADS,
            t: rows,
            time: t,
            numbers,
            q: q.clone(),
            k: k.clone(),
            v: v.clone(),
            dout: wide(dout.f32()),
            scores: Scores::scaled(true),
            bias: &no_bias,
            sinks: None,
            factor: kept,
            seen: (0..2 * rows).map(|row| 0..rows + row % rows + 1).collect(),
        };
        let want = problem.run();
        let kv = [0, 1].map(|number| on(&device, &cut(&kv, number, rows, t)));
        let (qkv, dout) = (on(&device, &qkv), on(&device, &dout));
        let call = |number: usize| Call {
            t: rows,
            numbers,
            keys: Keys::Part {
                kv: &kv[number],
                time: t,
                start: number * rows,
                first: rows,
            },
            ..Call::causal(&HEADS, 2, rows)
        };
        let mut running = RunningForward::new(&qkv, &call(0)).unwrap();
        running.visit(&qkv, &call(0)).unwrap();
        running.visit(&qkv, &call(1)).unwrap();
        let (out, lse) = running.finish(&call(1)).unwrap();
        assert_near("out", &values(&out), &want.out);
        let passed = Passed {
            dout: &dout,
            out: &out,
            lse: &lse,
            qkv: &qkv,
            turn: None,
        };
        let mut slopes = RunningBackward::new(&passed, &call(0), 7).unwrap();
        let dkv = [0, 1].map(|number| slopes.visit(&passed, &call(number)).unwrap());
        let dqkv = slopes.finish(&passed, &call(1), None, None).unwrap();
        let [dq, ..] = unpack(&values(&dqkv), &HEADS);
        assert_near("dq", &dq, &want.dq);
        for (number, dkv) in dkv.iter().enumerate() {
            let rows_of = values(&dkv_rows(dkv, &HEADS).unwrap());
            let width = HEADS.width;
            let of = |all: &[Near]| -> Vec<Near> {
                let pieces = all.chunks(HEADS.kv_heads * width).enumerate();
                pieces
                    .filter(|(row, _)| row % t / rows == number)
                    .flat_map(|piece| piece.1.to_vec())
                    .collect()
            };
            let take = |half: usize| -> Vec<f32> {
                let pieces = rows_of.chunks(width).enumerate();
                pieces
                    .filter(|piece| piece.0 % 2 == half)
                    .flat_map(|piece| piece.1.to_vec())
                    .collect()
            };
            assert_near("dk", &take(0), &of(&want.dk));
            assert_near("dv", &take(1), &of(&want.dv));
        }
    }
}

#[test]
fn decode_over_splits_matches_an_f64_loop() {
    let Some(device) = simulator::device() else {
        return;
    };
    let heads = Heads {
        heads: 10,
        kv_heads: 1,
        width: 40,
    };
    let length = 600;
    let [k, v] = [1, 2].map(|seed| factors(&[2, 1, length, heads.width], seed));
    let packed = factors(&[2, heads.packed()], 3);
    let sinks = on(&device, &factors(&[heads.heads], 4));
    let of_heads = wide(&values(&sinks));
    for (position, first_key) in [(0, 0), (255, 0), (256, 0), (599, 3), (599, 590)] {
        for numbers in BOTH {
            let with_sinks = (position % 2 == 1).then_some(&sinks);
            let next = Next {
                numbers,
                sinks: with_sinks,
                ..super::tests::next(&heads, position, first_key)
            };
            let [mut k, mut v] = [&k, &v].map(|x| on(&device, x));
            let [first, second] = [0; 2].map(|_| {
                let out = decode(&on(&device, &packed), &mut k, &mut v, &next).unwrap();
                values(&out)
            });
            assert_eq!(bits(&first), bits(&second));
            let [q, ..] = unpack(&wide(packed.f32()), &heads);
            let problem = Problem {
                heads,
                t: 1,
                time: length,
                numbers,
                dout: vec![0.0; q.len()],
                q,
                k: wide(&values(&k)),
                v: wide(&values(&v)),
                scores: Scores::scaled(true),
                bias: &no_bias,
                sinks: with_sinks.map(|_| of_heads.as_slice()),
                factor: kept,
                seen: vec![first_key..position + 1; 2],
            };
            assert_near("out", &first, &problem.run().out);
        }
    }
}

#[test]
fn rows_stored_in_bf16_have_the_bits_of_f32() {
    let Some(device) = simulator::device() else {
        return;
    };
    // rows of whole and of broken 16-byte chunks
    for width in [8, 64, 72, 3] {
        let (t, heads) = (70, Heads { width, ..HEADS });
        let qkv = factors(&[2 * t, heads.packed()], 1);
        let dout = factors(&[2 * t, heads.heads * width], 2);
        let call = Call {
            numbers: Numbers::Bf16Mma,
            ..Call::causal(&heads, 2, t)
        };
        let [f32, bf16] = [DType::F32, DType::Bf16].map(|dtype| {
            let stored = |x: &Tensor| on(&device, &stored_as(dtype, x));
            twice_widened(&stored(&qkv), &stored(&dout), &call)
        });
        assert_eq!(f32.0, bf16.0);
        // gradients are stored as the rows are
        assert_eq!(
            bits(widened(&stored_as(DType::Bf16, &f32.1)).f32()),
            bits(bf16.1.f32())
        );
    }
}

/// Bits of the result, and the gradients as f32 on the host.
fn twice_widened(qkv: &Tensor, dout: &Tensor, call: &Call<'_>) -> (Vec<u32>, Tensor) {
    let found = both_ways(qkv, dout, call, 0);
    let dqkv = widened(&found.dqkv).to_device(&Device::cpu()).unwrap();
    (bits(&values(&found.out)), dqkv)
}

#[test]
fn heads_that_are_too_wide_run_on_the_exact_kernels() {
    let Some(device) = simulator::device() else {
        return;
    };
    let t = 5;
    let heads = Heads {
        heads: 1,
        kv_heads: 1,
        width: 130,
    };
    let qkv = on(&device, &factors(&[2 * t, heads.packed()], 1));
    let dout = on(&device, &factors(&[2 * t, 130], 2));
    for (numbers, exact) in [
        (Numbers::Bf16Mma, Numbers::Bf16),
        (Numbers::F16Mma, Numbers::F32),
    ] {
        let [found, want] = [numbers, exact].map(|numbers| {
            let call = Call {
                numbers,
                ..Call::causal(&heads, 2, t)
            };
            let of = both_ways(&qkv, &dout, &call, 0);
            [bits(&values(&of.out)), bits(&values(&of.dqkv))]
        });
        assert_eq!(found, want);
    }
}
