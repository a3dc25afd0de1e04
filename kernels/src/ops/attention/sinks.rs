//! Tests of attention sinks: against f64 loops and finite differences; parts, single rows, pages, instruction sets and the
//! simulated GPU against the whole.

use super::biased::both_ways;
use super::masks::{DROPPED, HEADS, cut, documents, factor, masks, ranges};
use super::reference::{Factor, Loop, kept, unpack};
use super::*;
use crate::cpu::Numbers;
use crate::testing::{assert_same_bits, bits, differences, error, random, tree, wide};
use crate::{Device, tolerance};
use std::ops::Range;

/// Below, among and above the scores of the tests.
const SINKS: [f32; 4] = [-2.0, 0.5, 1.5, 4.0];

fn sinks_on(device: &Device) -> Tensor {
    Tensor::from_f32(&[4], &SINKS, device).unwrap()
}

fn own(qkv: &[f64], sinks: &[f64], t: usize, factor: Factor, seen: &[Range<usize>]) -> Vec<f64> {
    let [q, k, v] = unpack(qkv, &HEADS);
    let this = Loop {
        heads: HEADS,
        q: &q,
        k: &k,
        v: &v,
        rows: (t, t),
        scores: Scores::scaled(true),
        bias: None,
        sinks: Some(sinks),
        factor,
    };
    this.run(seen)
}

fn call<'a>(t: usize, mask: Mask<'a>, sinks: &'a Tensor) -> Call<'a> {
    Call {
        mask,
        sinks: Some(sinks),
        ..Call::causal(&HEADS, 2, t)
    }
}

/// Result, gradient of packed rows, and each row's part of the sinks' gradient.
fn passes(qkv: &Tensor, dout: &Tensor, call: &Call<'_>, leaf: usize) -> [Tensor; 3] {
    let found = both_ways(qkv, dout, call, leaf);
    let (out, lse) = forward(qkv, call).unwrap();
    let passed = Passed {
        dout,
        out: &out,
        lse: &lse,
        qkv,
        turn: None,
    };
    let rows = sink_gradients(&passed, call).unwrap();
    [found.out, found.dqkv, rows]
}

#[test]
fn rows_with_sinks_match_an_f64_loop() {
    let sinks = sinks_on(&Device::cpu());
    for t in [5, 41] {
        let bounds = documents(t);
        let qkv = random(&[2 * t, HEADS.packed()], 1, &Device::cpu()).unwrap();
        let x = wide(qkv.f32());
        let bound = tolerance::sum(t) + tolerance::elementwise(32);
        for mask in masks(&bounds) {
            for dropout in [None, Some(DROPPED)] {
                let call = Call {
                    dropout,
                    ..call(t, mask, &sinks)
                };
                let (out, lse) = forward(&qkv, &call).unwrap();
                let how = dropout.map_or(kept as Factor, |_| factor);
                let seen = ranges(&mask, t, 0);
                let want = own(&x, &wide(&SINKS), t, how, &seen);
                assert!(error(out.f32(), &want) < bound, "{mask:?}");
                let mut swapped = wide(&SINKS);
                swapped.swap(0, 3);
                let want = own(&x, &swapped, t, how, &seen);
                assert!(error(out.f32(), &want) > bound, "a head's sink is noticed");
                for (row, seen) in seen.iter().enumerate().filter(|(_, seen)| seen.is_empty()) {
                    let lse = (0..4).map(|head| lse.f32()[(row / t * 4 + head) * t + row % t]);
                    assert!(
                        lse.eq(SINKS),
                        "a row without keys has its sink alone: {seen:?}"
                    );
                }
            }
        }
    }
}

#[test]
fn backward_with_sinks_matches_finite_differences() {
    let t = 7;
    let bounds = documents(t);
    let qkv = random(&[2 * t, HEADS.packed()], 1, &Device::cpu()).unwrap();
    let dout = random(&[2 * t, 24], 2, &Device::cpu()).unwrap();
    let (slopes, sinks) = (wide(dout.f32()), sinks_on(&Device::cpu()));
    let bound = tolerance::sum(t * 6) + tolerance::central_difference(1e-5);
    for mask in masks(&bounds) {
        for dropout in [None, Some(DROPPED)] {
            let call = Call {
                dropout,
                ..call(t, mask, &sinks)
            };
            let [_, dqkv, rows] = passes(&qkv, &dout, &call, 3);
            let how = dropout.map_or(kept as Factor, |_| factor);
            let seen = ranges(&mask, t, 0);
            let loss = |qkv: &[f64], sinks: &[f64]| {
                let out = own(qkv, sinks, t, how, &seen);
                out.iter().zip(&slopes).map(|(o, d)| o * d).sum::<f64>()
            };
            let (x, of_heads) = (wide(qkv.f32()), wide(&SINKS));
            let want = differences(&x, 1e-5, |x| loss(x, &of_heads));
            assert!(error(dqkv.f32(), &want) < bound, "{mask:?}");
            let want = differences(&of_heads, 1e-5, |sinks| loss(&x, sinks));
            let of = |head: usize| tree(rows.f32().chunks_exact(4).map(|row| row[head]));
            let dsinks: [f32; 4] = std::array::from_fn(of);
            assert!(error(&dsinks, &want) < bound, "{mask:?}");
        }
    }
}

#[test]
fn bits_with_sinks_are_the_same_on_every_instruction_set_and_the_gpu() {
    for numbers in [Numbers::F32, Numbers::Bf16] {
        assert_same_bits(|device| {
            let t = 40;
            let bounds = documents(t);
            let qkv = random(&[2 * t, HEADS.packed()], 1, device).unwrap();
            let dout = random(&[2 * t, 24], 2, device).unwrap();
            let mask = Mask {
                window: 9,
                bounds: Some(&bounds),
                ..Mask::CAUSAL
            };
            let sinks = sinks_on(device);
            let call = Call {
                numbers,
                block: 8,
                ..call(t, mask, &sinks)
            };
            passes(&qkv, &dout, &call, 10).into()
        });
    }
}

#[test]
fn parts_of_rows_with_sinks_have_the_bits_of_the_whole() {
    let (t, leaf, parts) = (64, 16, 4);
    let rows = t / parts;
    let qkv = random(&[2 * t, HEADS.packed()], 1, &Device::cpu()).unwrap();
    let dout = random(&[2 * t, 24], 2, &Device::cpu()).unwrap();
    let (kv, sinks) = (take_kv(&qkv, &HEADS).unwrap(), sinks_on(&Device::cpu()));
    let whole = Call {
        block: 8,
        ..call(t, Mask::CAUSAL, &sinks)
    };
    let [want, _, of_sinks] = passes(&qkv, &dout, &whole, leaf);
    for number in 0..parts {
        let call = Call {
            t: rows,
            keys: Keys::Part {
                kv: &kv,
                time: t,
                start: 0,
                first: number * rows,
            },
            ..whole
        };
        let of = |x: &Tensor| cut(x, number, rows, t);
        let [found, _, found_of_sinks] = passes(&of(&qkv), &of(&dout), &call, leaf);
        assert_eq!(bits(found.f32()), bits(of(&want).f32()));
        assert_eq!(bits(found_of_sinks.f32()), bits(of(&of_sinks).f32()));
    }
}

#[test]
fn rows_one_by_one_and_over_pages_with_sinks_have_the_bits_of_the_whole() {
    const T: usize = 12;
    let many = Heads {
        heads: 40,
        kv_heads: 1,
        width: 3,
    };
    for (heads, numbers) in [
        (HEADS, Numbers::F32),
        (HEADS, Numbers::Bf16),
        (many, Numbers::F32),
    ] {
        assert_same_bits(|device| {
            let qkv = random(&[T, heads.packed()], 1, device).unwrap();
            let sinks = random(&[heads.heads], 2, device).unwrap();
            let call = Call {
                block: 6,
                numbers,
                sinks: Some(&sinks),
                ..Call::causal(&heads, 1, T)
            };
            let (whole, _) = forward(&qkv, &call).unwrap();
            let here: Vec<f32> = qkv.download().unwrap();
            let wanted: Vec<f32> = whole.download().unwrap();
            let width = heads.heads * heads.width;
            let dims = [1, heads.kv_heads, T, heads.width];
            let empty = |dims: &[usize]| Tensor::zeros(dims, DType::F32, device).unwrap();
            let (mut k, mut v) = (empty(&dims), empty(&dims));
            let mut cache = empty(&[T, heads.kv_width()]);
            let paged = |rows: usize, position: usize| PagedRows {
                rows,
                position,
                pages: &[2, 1, 0],
            };
            let of = |row: usize, rows: usize| {
                let values = &here[row * heads.packed()..(row + rows) * heads.packed()];
                Tensor::from_f32(&[rows, heads.packed()], values, device).unwrap()
            };
            for position in 0..T {
                let next = Next {
                    heads: &heads,
                    position,
                    first_key: 0,
                    block: 6,
                    numbers,
                    scores: Scores::scaled(true),
                    bias: None,
                    sinks: Some(&sinks),
                };
                let found = decode(&of(position, 1), &mut k, &mut v, &next).unwrap();
                let wanted = &wanted[position * width..(position + 1) * width];
                assert_eq!(bits(&found.download::<f32>().unwrap()), bits(wanted));
            }
            for rows in [1, 5] {
                let mut found = Vec::new();
                for position in (0..T).step_by(rows) {
                    let rows = rows.min(T - position);
                    let call = Paged {
                        heads: &heads,
                        page: 4,
                        sequences: &[paged(rows, position)],
                        first_keys: None,
                        window: 0,
                        block: 6,
                        numbers,
                        scores: Scores::scaled(true),
                        sinks: Some(&sinks),
                    };
                    let mixed = forward_paged(&of(position, rows), &mut cache, &call).unwrap();
                    found.extend(mixed.download::<f32>().unwrap());
                }
                assert_eq!(bits(&found), bits(&wanted), "{rows} rows over pages");
            }
            vec![whole]
        });
    }
}

#[test]
fn sinks_that_do_not_fit_are_refused_by_name() {
    let qkv = random(&[10, HEADS.packed()], 1, &Device::cpu()).unwrap();
    let three = Tensor::from_f32(&[3], &[0.0; 3], &Device::cpu()).unwrap();
    let found = forward(&qkv, &call(5, Mask::CAUSAL, &three));
    assert!(matches!(found, Err(Error::Shape { name: "sinks", .. })));
    let none = Call::causal(&HEADS, 2, 5);
    let (out, lse) = forward(&qkv, &none).unwrap();
    let passed = Passed {
        dout: &out,
        out: &out,
        lse: &lse,
        qkv: &qkv,
        turn: None,
    };
    let found = sink_gradients(&passed, &none);
    assert!(matches!(found, Err(Error::Argument { name: "sinks", .. })));
}
