//! Tests of cross attention, and of all of T5's attention against transformers; f64 loops, finite differences;
//! parts and single rows against the whole.

use super::biased::{biased, both_ways};
use super::masks::{DROPPED, HEADS, cut, factor};
use super::reference::{Factor, Loop, kept};
use super::*;
use crate::testing::{bits, differences, error, random, tree, wide};
use crate::{Device, tolerance};
use std::ops::Range;

/// Lines of `tests/oracles/kernel_t5_attention.py`.
const GOLDEN: &str = include_str!("../../../tests/data/t5_attention.txt");

/// Rows of queries alone, keys of sequences of `time` rows, and bounds with a padded end.
fn cross(t: usize, time: usize) -> (Tensor, Tensor, Vec<[u32; 2]>) {
    let q = random(&[2 * t, 24], 1, &Device::cpu()).unwrap();
    let kv = random(&[2 * time, HEADS.kv_width()], 2, &Device::cpu()).unwrap();
    let end = |row| u32::try_from(if row < t { time } else { time - time / 3 }).unwrap();
    (q, kv, (0..2 * t).map(|row| [0, end(row)]).collect())
}

fn cross_call<'a>(t: usize, kv: &'a Tensor, bounds: &'a [[u32; 2]]) -> Call<'a> {
    let time = kv.dims()[0] / 2;
    Call {
        keys: Keys::Other {
            kv,
            time,
            start: 0,
            first: 0,
        },
        scores: Scores::scaled(false),
        mask: Mask {
            bounds: Some(bounds),
            ..Mask::default()
        },
        ..Call::causal(&HEADS, 2, t)
    }
}

#[test]
fn cross_attention_matches_an_f64_loop_and_finite_differences() {
    for (t, time) in [(5, 9), (9, 4), (60, 100)] {
        let (q, kv, bounds) = cross(t, time);
        let dout = random(&[2 * t, 24], 3, &Device::cpu()).unwrap();
        let slopes = wide(dout.f32());
        let seen: Vec<Range<usize>> = bounds.iter().map(|b| 0..b[1] as usize).collect();
        for (dropout, factor) in [(None, kept as Factor), (Some(DROPPED), factor)] {
            let call = Call {
                dropout,
                ..cross_call(t, &kv, &bounds)
            };
            let found = both_ways(&q, &dout, &call, 2);
            let run = |q: &[f64], kv: &[f64]| {
                let pairs = kv.chunks(HEADS.width).enumerate();
                let of = |i: usize| pairs.clone().filter(move |pair| pair.0 % 2 == i);
                let take = |i| -> Vec<f64> { of(i).flat_map(|pair| pair.1.to_vec()).collect() };
                let this = Loop {
                    heads: HEADS,
                    q,
                    k: &take(0),
                    v: &take(1),
                    rows: (t, time),
                    scores: Scores::scaled(false),
                    bias: None,
                    factor,
                    sinks: None,
                };
                this.run(&seen)
            };
            let (x, y) = (wide(q.f32()), wide(kv.f32()));
            let bound = tolerance::sum(time) + tolerance::elementwise(32);
            assert!(error(found.out.f32(), &run(&x, &y)) < bound, "{t} {time}");
            if t > 10 {
                continue; // finite differences of this many numbers take seconds
            }
            let loss = |out: Vec<f64>| out.iter().zip(&slopes).map(|(o, d)| o * d).sum::<f64>();
            let bound = tolerance::sum(t * 6) + tolerance::central_difference(1e-5);
            let want = differences(&x, 1e-5, |x| loss(run(x, &y)));
            assert!(error(found.dqkv.f32(), &want) < bound, "queries");
            let want = differences(&y, 1e-5, |y| loss(run(&x, y)));
            assert!(error(found.dkv.unwrap().f32(), &want) < bound, "keys");
        }
    }
}

#[test]
fn a_part_of_cross_attention_and_a_row_alone_have_the_bits_of_the_whole() {
    let (t, time, leaf) = (64, 40, 8);
    let (q, kv, bounds) = cross(t, time);
    let dout = random(&[2 * t, 24], 3, &Device::cpu()).unwrap();
    let whole = Call {
        dropout: Some(DROPPED),
        ..cross_call(t, &kv, &bounds)
    };
    let want = both_ways(&q, &dout, &whole, leaf);
    for rows in [1, 16, 32] {
        let parts = (0..t / rows).map(|part| {
            let first = part * rows;
            let own = |s: usize| &bounds[s * t + first..s * t + first + rows];
            let bounds = [own(0), own(1)].concat();
            let call = Call {
                t: rows,
                keys: Keys::Other {
                    kv: &kv,
                    time,
                    start: 0,
                    first,
                },
                dropout: Some(DROPPED),
                ..cross_call(rows, &kv, &bounds)
            };
            let (q, dout) = (cut(&q, part, rows, t), cut(&dout, part, rows, t));
            let found = both_ways(&q, &dout, &call, leaf);
            for (found, want) in [(&found.out, &want.out), (&found.dqkv, &want.dqkv)] {
                assert_eq!(bits(found.f32()), bits(cut(want, part, rows, t).f32()));
            }
            found.dkv.unwrap()
        });
        let parts: Vec<Tensor> = parts.collect();
        if rows < leaf {
            continue;
        }
        for (i, want) in want.dkv.as_ref().unwrap().f32().iter().enumerate() {
            let sum = tree(parts.iter().map(|x| x.f32()[i]));
            assert_eq!(sum.to_bits(), want.to_bits(), "{rows}");
        }
    }
}

#[test]
fn t5_attention_is_that_of_transformers() {
    let mut lines = GOLDEN.lines();
    while let Some(first) = lines.next() {
        let (kind, counts) = first.split_once(' ').unwrap();
        let counts: Vec<usize> = counts.split(' ').map(|w| w.parse().unwrap()).collect();
        let &[b, t, time, h, width, buckets, max_distance] = &counts[..] else {
            panic!("{first}");
        };
        let mut numbers = || -> Vec<f64> {
            let line = lines.next().unwrap();
            line.split(' ').map(|w| w.parse().unwrap()).collect()
        };
        let ends = numbers();
        let [q, k, v, table, slopes] = [(); 5].map(|()| numbers());
        let (want, [dq, dk, dv, want_dtable]) = (numbers(), [(); 4].map(|()| numbers()));
        let heads = Heads {
            heads: h,
            kv_heads: h,
            width,
        };
        let tensor = |rows: usize, x: &[f64]| {
            #[expect(clippy::cast_possible_truncation, reason = "written as f32 numbers")]
            let x: Vec<f32> = x.iter().map(|x| *x as f32).collect();
            Tensor::from_f32(&[rows, x.len() / rows], &x, &Device::cpu()).unwrap()
        };
        // slots of a packed row, or of keys and values apart
        let weave = |parts: &[&[f64]]| -> Vec<f64> {
            let slots = 0..parts[0].len() / width;
            let of = |i| {
                parts
                    .iter()
                    .flat_map(move |x| &x[i * width..(i + 1) * width])
            };
            slots.flat_map(of).copied().collect()
        };
        let is_cross = kind == "cross";
        let kv = tensor(b * time, &weave(&[&k, &v]));
        let packed = if is_cross { q } else { weave(&[&q, &k, &v]) };
        let (qkv, dout) = (tensor(b * t, &packed), tensor(b * t, &slopes));
        // transformers has heads as columns
        let by_head = |x: &[f64]| -> Vec<f64> {
            let rows = x.len() / buckets;
            let heads = (0..rows).flat_map(|head| x.iter().skip(head).step_by(rows));
            heads.copied().collect()
        };
        let want_dtable = by_head(&want_dtable);
        let table = tensor(table.len() / buckets, &by_head(&table));
        #[expect(clippy::cast_possible_truncation, reason = "written as counts")]
        let bounds: Vec<[u32; 2]> = (0..b * t).map(|row| [0, ends[row / t] as u32]).collect();
        let buckets = Buckets {
            buckets,
            max_distance,
            bidirectional: kind == "encoder",
        };
        let first = 0;
        let other = Keys::Other {
            kv: &kv,
            time,
            start: 0,
            first,
        };
        let bias = Bias {
            table: &table,
            buckets,
        };
        let call = Call {
            keys: if is_cross { other } else { Keys::Own },
            scores: Scores::scaled(false),
            bias: (!is_cross).then_some(bias),
            mask: Mask {
                is_causal: kind == "decoder",
                window: 0,
                bounds: Some(&bounds),
            },
            ..Call::causal(&heads, b, t)
        };
        let found = both_ways(&qkv, &dout, &call, 4);
        let bound = tolerance::sum(time) + tolerance::elementwise(32);
        assert!(error(found.out.f32(), &want) < bound, "{kind}");
        let want_dqkv = if is_cross {
            dq
        } else {
            weave(&[&dq, &dk, &dv])
        };
        assert!(error(found.dqkv.f32(), &want_dqkv) < 4.0 * bound, "{kind}");
        if let Some(dkv) = found.dkv {
            assert!(
                error(dkv.f32(), &weave(&[&dk, &dv])) < 4.0 * bound,
                "{kind}"
            );
        }
        if let Some(dtable) = found.dtable {
            assert!(error(dtable.f32(), &want_dtable) < 4.0 * bound, "{kind}");
        }
        let scores = Scores::scaled(true);
        let (scaled, _) = forward(&qkv, &Call { scores, ..call }).unwrap();
        assert!(error(scaled.f32(), &want) > bound, "a scale is noticed");
    }
}

#[test]
fn keys_of_another_sequence_that_do_not_fit_are_refused_by_name() {
    let device = Device::cpu();
    let refused = |qkv: &Tensor, call: &Call<'_>| match forward(qkv, call) {
        Err(Error::Argument { name, .. } | Error::Shape { name, .. }) => name,
        other => panic!("{other:?}"),
    };
    let qkv = random(&[12, HEADS.packed()], 1, &device).unwrap();
    let table = random(&[4, 8], 3, &device).unwrap();
    let (q, kv, bounds) = cross(6, 4);
    let call = cross_call(6, &kv, &bounds);
    assert_eq!(refused(&qkv, &call), "qkv");
    let mask = Mask::CAUSAL;
    assert_eq!(refused(&q, &Call { mask, ..call }), "mask");
    let bias = biased(6, mask, &table).bias;
    assert_eq!(refused(&q, &Call { bias, ..call }), "bias");
    let (kv, first) = (&kv, 0);
    let time = 3;
    let short = Keys::Other {
        kv,
        time,
        start: 0,
        first,
    };
    assert_eq!(
        refused(
            &q,
            &Call {
                keys: short,
                ..call
            }
        ),
        "start"
    );
    let (start, time) = (3, 9);
    let within = Keys::Other {
        kv,
        time,
        start,
        first,
    };
    let keys = within;
    assert_eq!(
        refused(
            &q,
            &Call {
                keys,
                block: 2,
                ..call
            }
        ),
        "start"
    );
    let odd = random(&[7, HEADS.kv_width()], 2, &device).unwrap();
    let uneven = Keys::Other {
        kv: &odd,
        time,
        start: 0,
        first,
    };
    let keys = uneven;
    assert_eq!(refused(&q, &Call { keys, ..call }), "kv");
    let none = Keys::Other {
        kv,
        time: 0,
        start: 0,
        first,
    };
    assert_eq!(refused(&q, &Call { keys: none, ..call }), "time");
}
