//! Tests of position bias and unscaled scores: against f64 loops and finite differences; parts, micro-batches,
//! single rows and instruction sets against the whole.

use super::masks::{DROPPED, HEADS, cut, documents, factor, masks, ranges};
use super::reference::{Factor, Loop, kept, unpack};
use super::*;
use crate::cpu::Numbers;
use crate::testing::{assert_same_bits, bits, differences, error, random, tree, wide};
use crate::{Device, tolerance};
use std::ops::Range;

const BUCKETS: Buckets = Buckets {
    buckets: 8,
    max_distance: 12,
    bidirectional: true,
};

fn own(
    qkv: &[f64],
    bias: (&[f64], Buckets),
    t: usize,
    (is_scaled, factor): (bool, Factor),
    seen: &[Range<usize>],
) -> Vec<f64> {
    let [q, k, v] = unpack(qkv, &HEADS);
    let this = Loop {
        heads: HEADS,
        q: &q,
        k: &k,
        v: &v,
        rows: (t, t),
        scores: Scores::scaled(is_scaled),
        bias: Some(bias),
        factor,
        sinks: None,
    };
    this.run(seen)
}

pub(super) fn biased<'a>(t: usize, mask: Mask<'a>, table: &'a Tensor) -> Call<'a> {
    Call {
        mask,
        scores: Scores::scaled(false),
        bias: Some(Bias {
            table,
            buckets: Buckets {
                bidirectional: !mask.is_causal,
                ..BUCKETS
            },
        }),
        ..Call::causal(&HEADS, 2, t)
    }
}

/// Result, gradients of all that the call reads, and of the table from 0.
pub(super) struct Passes {
    pub(super) out: Tensor,
    pub(super) dqkv: Tensor,
    pub(super) dkv: Option<Tensor>,
    pub(super) dtable: Option<Tensor>,
}

pub(super) fn both_ways(qkv: &Tensor, dout: &Tensor, call: &Call<'_>, leaf: usize) -> Passes {
    let (out, lse) = forward(qkv, call).unwrap();
    let passed = Passed {
        dout,
        out: &out,
        lse: &lse,
        qkv,
        turn: None,
    };
    let zeros = |bias: Bias<'_>| Tensor::zeros(bias.table.dims(), DType::F32, qkv.device());
    let mut dtable = call.bias.map(|bias| zeros(bias).unwrap());
    let (dqkv, dkv) = backward(&passed, call, leaf, dtable.as_mut()).unwrap();
    Passes {
        out,
        dqkv,
        dkv,
        dtable,
    }
}

#[test]
fn biased_rows_match_an_f64_loop() {
    for t in [9, 150] {
        let bounds = documents(t);
        let qkv = random(&[2 * t, HEADS.packed()], 1, &Device::cpu()).unwrap();
        let table = random(&[4, 8], 2, &Device::cpu()).unwrap();
        let (x, biases) = (wide(qkv.f32()), wide(table.f32()));
        let bound = tolerance::sum(t) + tolerance::elementwise(32);
        for mask in masks(&bounds) {
            for (is_scaled, dropout) in [(false, None), (true, Some(DROPPED))] {
                let call = Call {
                    scores: Scores::scaled(is_scaled),
                    dropout,
                    ..biased(t, mask, &table)
                };
                let (out, _) = forward(&qkv, &call).unwrap();
                let how = (is_scaled, dropout.map_or(kept as Factor, |_| factor));
                let buckets = call.bias.unwrap().buckets;
                let seen = ranges(&mask, t, 0);
                let want = own(&x, (&biases, buckets), t, how, &seen);
                assert!(error(out.f32(), &want) < bound, "{mask:?} {is_scaled}");
                let none = own(&x, (&[0.0; 32], buckets), t, how, &seen);
                assert!(error(out.f32(), &none) > bound, "the bias is noticed");
            }
        }
    }
}

#[test]
fn biased_backward_matches_finite_differences() {
    let t = 7;
    let bounds = documents(t);
    let qkv = random(&[2 * t, HEADS.packed()], 1, &Device::cpu()).unwrap();
    let dout = random(&[2 * t, 24], 2, &Device::cpu()).unwrap();
    let table = random(&[4, 8], 3, &Device::cpu()).unwrap();
    let slopes = wide(dout.f32());
    let bound = tolerance::sum(t * 6) + tolerance::central_difference(1e-5);
    for mask in masks(&bounds) {
        for (is_scaled, dropout) in [(false, None), (true, None), (false, Some(DROPPED))] {
            let call = Call {
                scores: Scores::scaled(is_scaled),
                dropout,
                ..biased(t, mask, &table)
            };
            let found = both_ways(&qkv, &dout, &call, 3);
            let how = (is_scaled, dropout.map_or(kept as Factor, |_| factor));
            let (seen, buckets) = (ranges(&mask, t, 0), call.bias.unwrap().buckets);
            let loss = |qkv: &[f64], table: &[f64]| {
                let out = own(qkv, (table, buckets), t, how, &seen);
                out.iter().zip(&slopes).map(|(o, d)| o * d).sum::<f64>()
            };
            let (x, biases) = (wide(qkv.f32()), wide(table.f32()));
            let want = differences(&x, 1e-5, |x| loss(x, &biases));
            assert!(error(found.dqkv.f32(), &want) < bound, "{mask:?}");
            let want = differences(&biases, 1e-5, |table| loss(&x, table));
            let dtable = found.dtable.unwrap();
            assert!(error(dtable.f32(), &want) < bound, "{mask:?} {is_scaled}");
            let mut swapped = want.clone();
            swapped.rotate_left(buckets.buckets);
            assert!(error(dtable.f32(), &swapped) > bound, "heads not swapped");
        }
    }
}

#[test]
fn parts_of_biased_rows_have_the_bits_of_the_whole() {
    let (t, leaf, parts) = (128, 16, 4);
    let rows = t / parts;
    let device = Device::cpu();
    let bounds = documents(t);
    let qkv = random(&[t, HEADS.packed()], 1, &device).unwrap();
    let dout = random(&[t, 24], 2, &device).unwrap();
    let table = random(&[4, 8], 3, &device).unwrap();
    let kv = take_kv(&qkv, &HEADS).unwrap();
    for mask in masks(&bounds[..t]) {
        let whole = Call {
            b: 1,
            dropout: Some(DROPPED),
            ..biased(t, mask, &table)
        };
        let want = both_ways(&qkv, &dout, &whole, leaf);
        let part = |x: &Tensor, part: usize| {
            let width = x.elements() / t;
            let values = &x.f32()[part * rows * width..(part + 1) * rows * width];
            Tensor::from_f32(&[rows, width], values, &device).unwrap()
        };
        let found = (0..parts).map(|number| {
            let first = number * rows;
            let call = Call {
                t: rows,
                keys: Keys::Part {
                    kv: &kv,
                    time: t,
                    start: 0,
                    first,
                },
                mask: Mask {
                    bounds: mask.bounds.map(|bounds| &bounds[first..first + rows]),
                    ..mask
                },
                ..whole
            };
            let found = both_ways(&part(&qkv, number), &part(&dout, number), &call, leaf);
            assert_eq!(bits(found.out.f32()), bits(part(&want.out, number).f32()));
            found
        });
        let found: Vec<Passes> = found.collect();
        let dkv = take_kv(&want.dqkv, &HEADS).unwrap();
        for (i, want) in dkv.f32().iter().enumerate() {
            let sum = tree(found.iter().map(|x| x.dkv.as_ref().unwrap().f32()[i]));
            assert_eq!(sum.to_bits(), want.to_bits(), "{mask:?}");
        }
        for (i, want) in want.dtable.unwrap().f32().iter().enumerate() {
            let sum = tree(found.iter().map(|x| x.dtable.as_ref().unwrap().f32()[i]));
            assert_eq!(sum.to_bits(), want.to_bits(), "{mask:?}");
        }
    }
}

#[test]
fn the_tables_gradient_is_the_same_for_every_micro_batch_and_adds_once() {
    let (t, device) = (48, Device::cpu());
    let qkv = random(&[4 * t, HEADS.packed()], 1, &device).unwrap();
    let dout = random(&[4 * t, 24], 2, &device).unwrap();
    let table = random(&[4, 8], 3, &device).unwrap();
    let of = |first: usize, b: usize| {
        let part = |x: &Tensor| {
            let width = x.elements() / (4 * t);
            let values = &x.f32()[first * t * width..(first + b) * t * width];
            Tensor::from_f32(&[b * t, width], values, &device).unwrap()
        };
        let call = Call {
            b,
            ..biased(t, Mask::default(), &table)
        };
        let found = both_ways(&part(&qkv), &part(&dout), &call, 6);
        found.dtable.unwrap()
    };
    let (whole, halves) = (of(0, 4), [of(0, 2), of(2, 2)]);
    let ones: Vec<Tensor> = (0..4).map(|s| of(s, 1)).collect();
    for i in 0..32 {
        let want = whole.f32()[i].to_bits();
        assert_eq!(tree(halves.iter().map(|x| x.f32()[i])).to_bits(), want);
        assert_eq!(tree(ones.iter().map(|x| x.f32()[i])).to_bits(), want);
    }
    let call = Call {
        b: 4,
        ..biased(t, Mask::default(), &table)
    };
    let (out, lse) = forward(&qkv, &call).unwrap();
    let passed = Passed {
        dout: &dout,
        out: &out,
        lse: &lse,
        qkv: &qkv,
        turn: None,
    };
    let mut sum = table.try_clone().unwrap();
    backward(&passed, &call, 6, Some(&mut sum)).unwrap();
    let both = sum.f32().iter().zip(table.f32().iter().zip(whole.f32()));
    for (sum, (old, more)) in both {
        assert_eq!(sum.to_bits(), (old + more).to_bits());
    }
}

#[test]
fn biased_decode_has_the_bits_of_forward() {
    let t = 70;
    let device = Device::cpu();
    let qkv = random(&[2 * t, HEADS.packed()], 1, &device).unwrap();
    let table = random(&[4, 8], 3, &device).unwrap();
    let call = biased(t, Mask::CAUSAL, &table);
    let (out, _) = forward(&qkv, &call).unwrap();
    let mut k = Tensor::zeros(&[2, 2, t, 6], DType::F32, &device).unwrap();
    let mut v = k.try_clone().unwrap();
    for position in 0..t {
        let next = Next {
            heads: &HEADS,
            block: 0,
            numbers: Numbers::F32,
            position,
            first_key: 0,
            scores: Scores::scaled(false),
            bias: call.bias,
            sinks: None,
        };
        let rows = cut(&qkv, position, 1, t);
        let one = decode(&rows, &mut k, &mut v, &next).unwrap();
        assert_eq!(bits(one.f32()), bits(cut(&out, position, 1, t).f32()));
    }
}

#[test]
fn biased_bits_are_the_same_on_every_instruction_set() {
    let bounds = documents(70);
    assert_same_bits(|device| {
        let qkv = random(&[140, HEADS.packed()], 1, device).unwrap();
        let dout = random(&[140, 24], 2, device).unwrap();
        let table = random(&[4, 8], 3, device).unwrap();
        let mut all = Vec::new();
        for mask in masks(&bounds) {
            let call = Call {
                dropout: Some(DROPPED),
                ..biased(70, mask, &table)
            };
            let found = both_ways(&qkv, &dout, &call, 20);
            all.extend([found.out, found.dqkv, found.dtable.unwrap()]);
        }
        all
    });
}

#[test]
fn biases_that_do_not_fit_are_refused_by_name() {
    let device = Device::cpu();
    let qkv = random(&[12, HEADS.packed()], 1, &device).unwrap();
    let table = random(&[3, 8], 3, &device).unwrap();
    let refused = |qkv: &Tensor, call: &Call<'_>| match forward(qkv, call) {
        Err(Error::Argument { name, .. } | Error::Shape { name, .. }) => name,
        other => panic!("{other:?}"),
    };
    let narrow = biased(6, Mask::CAUSAL, &table);
    assert_eq!(refused(&qkv, &narrow), "table");
    let table = random(&[4, 8], 3, &device).unwrap();
    let call = biased(6, Mask::CAUSAL, &table);
    let (out, lse) = forward(&qkv, &call).unwrap();
    let passed = Passed {
        dout: &out,
        out: &out,
        lse: &lse,
        qkv: &qkv,
        turn: None,
    };
    let missing = backward(&passed, &call, 0, None);
    assert!(matches!(
        missing,
        Err(Error::Argument { name: "dtable", .. })
    ));
    let next = Next {
        bias: narrow.bias,
        ..super::tests::next(&HEADS, 0, 0)
    };
    let mut k = Tensor::zeros(&[12, 2, 4, 6], DType::F32, &device).unwrap();
    let mut v = k.try_clone().unwrap();
    let found = decode(&qkv, &mut k, &mut v, &next);
    assert!(matches!(found, Err(Error::Shape { name: "table", .. })));
}
