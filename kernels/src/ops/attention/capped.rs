//! Tests of scores with a divisor and a cap: against f64 loops and finite differences; parts, single rows, pages and
//! instruction sets against the whole.

use super::biased::both_ways;
use super::masks::{DROPPED, HEADS, documents, factor, masks, ranges};
use super::reference::{Factor, Loop, kept, unpack};
use super::*;
use crate::cpu::Numbers;
use crate::testing::{assert_same_bits, bits, differences, error, random, wide};
use crate::{Device, tolerance};
use std::ops::Range;

/// Products of three are about as large as the cap.
const SCORES: Scores = Scores {
    divisor: Some(0.25),
    cap: 1.5,
    alibi: None,
};

fn own(qkv: &[f64], scores: Scores, t: usize, factor: Factor, seen: &[Range<usize>]) -> Vec<f64> {
    let [q, k, v] = unpack(qkv, &HEADS);
    let this = Loop {
        heads: HEADS,
        q: &q,
        k: &k,
        v: &v,
        rows: (t, t),
        scores,
        bias: None,
        factor,
        sinks: None,
    };
    this.run(seen)
}

fn capped(t: usize, mask: Mask<'_>) -> Call<'_> {
    Call {
        mask,
        scores: SCORES,
        ..Call::causal(&HEADS, 2, t)
    }
}

#[test]
fn capped_scores_match_an_f64_loop() {
    for t in [5, 33] {
        let bounds = documents(t);
        let qkv = random(&[2 * t, HEADS.packed()], 1, &Device::cpu()).unwrap();
        let x = wide(qkv.f32());
        let bound = tolerance::sum(t) + tolerance::elementwise(32);
        for mask in masks(&bounds) {
            for dropout in [None, Some(DROPPED)] {
                let call = Call {
                    dropout,
                    ..capped(t, mask)
                };
                let (out, _) = forward(&qkv, &call).unwrap();
                let how = dropout.map_or(kept as Factor, |_| factor);
                let seen = ranges(&mask, t, 0);
                let want = own(&x, SCORES, t, how, &seen);
                assert!(error(out.f32(), &want) < bound, "{mask:?}");
                for other in [
                    Scores { cap: 0.0, ..SCORES },
                    Scores {
                        divisor: None,
                        ..SCORES
                    },
                ] {
                    let want = own(&x, other, t, how, &seen);
                    assert!(error(out.f32(), &want) > bound, "{other:?} is noticed");
                }
            }
        }
    }
}

#[test]
fn capped_backward_matches_finite_differences() {
    let t = 7;
    let bounds = documents(t);
    let qkv = random(&[2 * t, HEADS.packed()], 1, &Device::cpu()).unwrap();
    let dout = random(&[2 * t, 24], 2, &Device::cpu()).unwrap();
    let slopes = wide(dout.f32());
    let bound = tolerance::sum(t * 6) + tolerance::central_difference(1e-5);
    for mask in masks(&bounds) {
        for dropout in [None, Some(DROPPED)] {
            let call = Call {
                dropout,
                ..capped(t, mask)
            };
            let found = both_ways(&qkv, &dout, &call, 3);
            let how = dropout.map_or(kept as Factor, |_| factor);
            let seen = ranges(&mask, t, 0);
            let want = differences(&wide(qkv.f32()), 1e-5, |x| {
                let out = own(x, SCORES, t, how, &seen);
                out.iter().zip(&slopes).map(|(o, d)| o * d).sum::<f64>()
            });
            assert!(error(found.dqkv.f32(), &want) < bound, "{mask:?}");
        }
    }
}

#[test]
fn capped_bits_are_the_same_on_every_instruction_set() {
    for numbers in [Numbers::F32, Numbers::Bf16] {
        assert_same_bits(|device| {
            let t = 40;
            let qkv = random(&[2 * t, HEADS.packed()], 1, device).unwrap();
            let dout = random(&[2 * t, 24], 2, device).unwrap();
            let mask = Mask {
                window: 9,
                ..Mask::CAUSAL
            };
            let call = Call {
                numbers,
                block: 8,
                ..capped(t, mask)
            };
            let found = both_ways(&qkv, &dout, &call, 10);
            vec![found.out, found.dqkv]
        });
    }
}

#[test]
fn capped_rows_one_by_one_and_over_pages_have_the_bits_of_the_whole() {
    const T: usize = 20;
    let device = Device::cpu();
    let qkv = random(&[T, HEADS.packed()], 1, &device).unwrap();
    let call = Call {
        b: 1,
        block: 6,
        ..capped(T, Mask::CAUSAL)
    };
    let (whole, _) = forward(&qkv, &call).unwrap();
    let width = HEADS.heads * HEADS.width;
    let dims = [1, HEADS.kv_heads, T, HEADS.width];
    let empty = |dims: &[usize]| Tensor::zeros(dims, DType::F32, &device).unwrap();
    let (mut k, mut v) = (empty(&dims), empty(&dims));
    let mut cache = empty(&[T, HEADS.kv_width()]);
    for position in 0..T {
        let row = &qkv.f32()[position * HEADS.packed()..(position + 1) * HEADS.packed()];
        let row = Tensor::from_f32(&[1, HEADS.packed()], row, &device).unwrap();
        let next = Next {
            heads: &HEADS,
            position,
            first_key: 0,
            block: 6,
            numbers: Numbers::F32,
            scores: SCORES,
            bias: None,
            sinks: None,
        };
        let wanted = bits(&whole.f32()[position * width..(position + 1) * width]);
        let found = decode(&row, &mut k, &mut v, &next).unwrap();
        assert_eq!(bits(found.f32()), wanted, "{position}");
        let pages = [0, 1, 2, 3, 4];
        let sequence = PagedRows {
            rows: 1,
            position,
            pages: &pages,
        };
        let paged = Paged {
            heads: &HEADS,
            page: 4,
            sequences: &[sequence],
            first_keys: None,
            window: 0,
            block: 6,
            numbers: Numbers::F32,
            scores: SCORES,
            sinks: None,
        };
        let found = forward_paged(&row, &mut cache, &paged).unwrap();
        assert_eq!(bits(found.f32()), wanted, "{position} over pages");
    }
}

#[test]
fn scores_that_are_none_are_refused_by_name() {
    let qkv = random(&[10, HEADS.packed()], 1, &Device::cpu()).unwrap();
    let refused = |divisor, cap| {
        let call = Call {
            scores: Scores {
                divisor,
                cap,
                alibi: None,
            },
            ..capped(5, Mask::CAUSAL)
        };
        match forward(&qkv, &call) {
            Err(Error::Argument { name, .. }) => name,
            other => panic!("{:?}", other.map(|_| ())),
        }
    };
    assert_eq!(refused(Some(0.0), 1.0), "divisor");
    assert_eq!(refused(Some(f32::NAN), 1.0), "divisor");
    assert_eq!(refused(None, -1.0), "cap");
    assert_eq!(refused(None, f32::INFINITY), "cap");
}
