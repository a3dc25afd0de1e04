//! Tests of linear biases: against f64 loops and finite differences; parts, heads of ranks, single rows, pages, instruction
//! sets and the simulated GPU against the whole.

use super::biased::both_ways;
use super::masks::{DROPPED, HEADS, cut, documents, factor, masks, ranges};
use super::reference::{Factor, Loop, kept, unpack};
use super::*;
use crate::cpu::Numbers;
use crate::testing::{assert_same_bits, bits, differences, error, random, tree, wide};
use crate::{Device, tolerance};
use std::ops::Range;

/// The last four of six heads: of slopes that are powers of two, and of those between.
const SCORES: Scores = Scores {
    divisor: None,
    cap: 0.0,
    alibi: Some(Alibi { heads: 6, first: 2 }),
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

fn sloped(t: usize, mask: Mask<'_>) -> Call<'_> {
    Call {
        mask,
        scores: SCORES,
        ..Call::causal(&HEADS, 2, t)
    }
}

fn causal(bounds: &[[u32; 2]]) -> Vec<Mask<'_>> {
    let mut masks = masks(bounds);
    masks.retain(|mask| mask.is_causal);
    masks
}

#[test]
fn linear_biases_match_an_f64_loop() {
    for t in [5, 41] {
        let bounds = documents(t);
        let qkv = random(&[2 * t, HEADS.packed()], 1, &Device::cpu()).unwrap();
        let x = wide(qkv.f32());
        let bound = tolerance::sum(t) + tolerance::elementwise(32);
        for mask in causal(&bounds) {
            for dropout in [None, Some(DROPPED)] {
                let call = Call {
                    dropout,
                    ..sloped(t, mask)
                };
                let (out, _) = forward(&qkv, &call).unwrap();
                let how = dropout.map_or(kept as Factor, |_| factor);
                let seen = ranges(&mask, t, 0);
                let want = own(&x, SCORES, t, how, &seen);
                assert!(error(out.f32(), &want) < bound, "{mask:?}");
                for alibi in [None, Some(Alibi { heads: 6, first: 1 })] {
                    let want = own(&x, Scores { alibi, ..SCORES }, t, how, &seen);
                    assert!(error(out.f32(), &want) > bound, "{alibi:?} is noticed");
                }
            }
        }
    }
}

#[test]
fn backward_with_linear_biases_matches_finite_differences() {
    let t = 7;
    let bounds = documents(t);
    let qkv = random(&[2 * t, HEADS.packed()], 1, &Device::cpu()).unwrap();
    let dout = random(&[2 * t, 24], 2, &Device::cpu()).unwrap();
    let slopes = wide(dout.f32());
    let bound = tolerance::sum(t * 6) + tolerance::central_difference(1e-5);
    for mask in causal(&bounds) {
        let found = both_ways(&qkv, &dout, &sloped(t, mask), 3);
        let seen = ranges(&mask, t, 0);
        let want = differences(&wide(qkv.f32()), 1e-5, |x| {
            let out = own(x, SCORES, t, kept, &seen);
            out.iter().zip(&slopes).map(|(o, d)| o * d).sum::<f64>()
        });
        assert!(error(found.dqkv.f32(), &want) < bound, "{mask:?}");
    }
}

#[test]
fn bits_with_linear_biases_are_the_same_on_every_instruction_set_and_the_gpu() {
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
                ..sloped(t, mask)
            };
            let found = both_ways(&qkv, &dout, &call, 10);
            vec![found.out, found.dqkv]
        });
    }
}

#[test]
fn parts_of_rows_with_linear_biases_have_the_bits_of_the_whole() {
    let (t, leaf, parts) = (64, 16, 4);
    let rows = t / parts;
    let qkv = random(&[2 * t, HEADS.packed()], 1, &Device::cpu()).unwrap();
    let dout = random(&[2 * t, 24], 2, &Device::cpu()).unwrap();
    let kv = take_kv(&qkv, &HEADS).unwrap();
    let whole = Call {
        block: 8,
        ..sloped(t, Mask::CAUSAL)
    };
    let want = both_ways(&qkv, &dout, &whole, leaf);
    let found = (0..parts).map(|number| {
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
        let [qkv, dout] = [&qkv, &dout].map(|x| cut(x, number, rows, t));
        let found = both_ways(&qkv, &dout, &call, leaf);
        let wanted = cut(&want.out, number, rows, t);
        assert_eq!(bits(found.out.f32()), bits(wanted.f32()), "part {number}");
        found.dkv.unwrap()
    });
    let found: Vec<Tensor> = found.collect();
    let dkv = take_kv(&want.dqkv, &HEADS).unwrap();
    for (i, want) in dkv.f32().iter().enumerate() {
        let sum = tree(found.iter().map(|x| x.f32()[i]));
        assert_eq!(sum.to_bits(), want.to_bits());
    }
}

#[test]
fn heads_of_a_rank_have_the_bits_of_the_models() {
    let t = 20;
    let all = Heads {
        heads: 6,
        kv_heads: 6,
        width: 4,
    };
    let scores = |first| Scores {
        alibi: Some(Alibi { heads: 6, first }),
        ..Scores::scaled(true)
    };
    let qkv = random(&[t, all.packed()], 1, &Device::cpu()).unwrap();
    let whole = Call {
        scores: scores(0),
        ..Call::causal(&all, 1, t)
    };
    let (want, _) = forward(&qkv, &whole).unwrap();
    for first in [0, 3] {
        let half = Heads {
            heads: 3,
            kv_heads: 3,
            width: 4,
        };
        let of = |x: &Tensor, per: usize| -> Vec<f32> {
            let rows = x.f32().chunks_exact(6 * per);
            rows.flat_map(|row| row[first * per..(first + 3) * per].to_vec())
                .collect()
        };
        let own = Tensor::from_f32(&[t, half.packed()], &of(&qkv, 12), &Device::cpu()).unwrap();
        let call = Call {
            scores: scores(first),
            ..Call::causal(&half, 1, t)
        };
        let (found, _) = forward(&own, &call).unwrap();
        assert_eq!(bits(found.f32()), bits(&of(&want, 4)), "from {first}");
    }
}

#[test]
fn rows_one_by_one_and_over_pages_with_linear_biases_have_the_bits_of_the_whole() {
    const T: usize = 20;
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
        let scores = Scores {
            alibi: Some(Alibi {
                heads: heads.heads + 2,
                first: 2,
            }),
            ..Scores::scaled(true)
        };
        assert_same_bits(|device| {
            let qkv = random(&[T, heads.packed()], 1, device).unwrap();
            let call = Call {
                block: 6,
                numbers,
                scores,
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
            for position in 0..T {
                let row = &here[position * heads.packed()..(position + 1) * heads.packed()];
                let row = Tensor::from_f32(&[1, heads.packed()], row, device).unwrap();
                let next = Next {
                    heads: &heads,
                    position,
                    first_key: 0,
                    block: 6,
                    numbers,
                    scores,
                    bias: None,
                    sinks: None,
                };
                let wanted = bits(&wanted[position * width..(position + 1) * width]);
                let found: Vec<f32> = decode(&row, &mut k, &mut v, &next)
                    .unwrap()
                    .download()
                    .unwrap();
                assert_eq!(bits(&found), wanted, "{position}");
                let sequence = PagedRows {
                    rows: 1,
                    position,
                    pages: &[0, 1, 2, 3, 4],
                };
                let paged = Paged {
                    heads: &heads,
                    page: 4,
                    sequences: &[sequence],
                    first_keys: None,
                    window: 0,
                    block: 6,
                    numbers,
                    scores,
                    sinks: None,
                };
                let found: Vec<f32> = forward_paged(&row, &mut cache, &paged)
                    .unwrap()
                    .download()
                    .unwrap();
                assert_eq!(bits(&found), wanted, "{position} over pages");
            }
            vec![whole]
        });
    }
}

#[test]
fn linear_biases_that_do_not_fit_are_refused_by_name() {
    let t = 5;
    let qkv = random(&[2 * t, HEADS.packed()], 1, &Device::cpu()).unwrap();
    let refused = |call: Call<'_>| match forward(&qkv, &call) {
        Err(Error::Argument { name, found, .. }) => format!("{name}: {found}"),
        other => panic!("{:?}", other.map(|_| ())),
    };
    let call = sloped(t, Mask::CAUSAL);
    let too_few = Scores {
        alibi: Some(Alibi { heads: 5, first: 2 }),
        ..SCORES
    };
    let found = refused(Call {
        scores: too_few,
        ..call
    });
    assert_eq!(found, "alibi: 2");
    let found = refused(sloped(t, Mask::default()));
    assert_eq!(found, "alibi: keys after a row");
    let scores = Scores { cap: 1.0, ..SCORES };
    assert_eq!(refused(Call { scores, ..call }), "alibi: a cap");
    let table = random(&[4, 8], 3, &Device::cpu()).unwrap();
    let bias = Some(Bias {
        table: &table,
        buckets: Buckets {
            buckets: 8,
            max_distance: 12,
            bidirectional: false,
        },
    });
    assert_eq!(refused(Call { bias, ..call }), "alibi: a bias");
    let kv = take_kv(&qkv, &HEADS).unwrap();
    let keys = Keys::Part {
        kv: &kv,
        time: (1 << 24) + 1,
        start: 0,
        first: 0,
    };
    assert_eq!(refused(Call { keys, ..call }), "alibi: 16777217");
}
