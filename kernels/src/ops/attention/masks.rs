//! Tests of masks and dropout against f64 loops over exactly the keys a row attends to; must-fail: one key more.

use super::reference::{Factor, kept, packed};
use super::tests::next;
use super::*;
use crate::ops::dropout::Dropout;
use crate::rng::philox;
use crate::testing::{assert_same_bits, bits, differences, error, random, wide};
use crate::{Device, tolerance};
use std::ops::Range;

pub(super) const HEADS: Heads = Heads {
    heads: 4,
    kv_heads: 2,
    width: 6,
};
pub(super) const DROPPED: Dropped = Dropped {
    dropout: Dropout {
        p: 0.3,
        seed: 7 << 32 | 5,
        step: 9,
        tensor: 2,
    },
    sequence: 40,
    first_head: 4,
};

/// Rows of two sequences of three documents each, one of a single row; a padded end in the second.
pub(super) fn documents(t: usize) -> Vec<[u32; 2]> {
    let ends = [[t / 3, t / 3 + 1, t], [1, t / 2, t - 2]];
    let bounds = ends.iter().flat_map(|ends| {
        (0..t).map(|row| {
            let end = ends.iter().find(|&&end| row < end);
            let start = ends.iter().rfind(|&&end| row >= end);
            let number = |n: Option<&usize>| u32::try_from(*n.unwrap_or(&0)).unwrap();
            [number(start), number(end)] // a row past the last end sees nothing
        })
    });
    bounds.collect()
}

pub(super) fn ranges(mask: &Mask<'_>, t: usize, more: usize) -> Vec<Range<usize>> {
    let seen = |row: usize| {
        let position = row % t;
        let inside = |key: &usize| {
            let hidden = mask.is_causal && *key > position
                || mask.window > 0 && key + mask.window + more <= position
                || mask.bounds.is_some_and(|b| {
                    !(b[row][0]..b[row][1]).contains(&u32::try_from(*key).unwrap())
                });
            !hidden
        };
        let keys: Vec<usize> = (0..t).filter(inside).collect();
        keys.first()
            .map_or(0..0, |&first| first..first + keys.len())
    };
    (0..2 * t).map(seen).collect()
}

/// The factor of a probability by the definition: one word of a counter.
pub(super) fn factor(sequence: usize, head: usize, query: usize, key: usize) -> f64 {
    let Dropout {
        seed,
        step,
        tensor,
        p,
    } = DROPPED.dropout;
    let word = |x: u64| u32::try_from(x & 0xffff_ffff).unwrap();
    let first = philox(
        [word(seed), word(seed >> 32)],
        [word(step), word(step >> 32), tensor, 0x6472_6f70],
    );
    let head = DROPPED.first_head + word(head as u64);
    let second = philox([first[0], first[1]], [head, 0, 0, 0x6865_6164]);
    let counter = [
        word((16 * (key / 64) + key % 16) as u64),
        word(query as u64),
        40 + word(sequence as u64),
        0,
    ];
    let found = philox([second[0], second[1]], counter)[key % 64 / 16];
    let kept = f64::from(found) >= (f64::from(p) * 2_f64.powi(32)).round();
    if kept {
        1.0 / (1.0 - f64::from(p))
    } else {
        0.0
    }
}

pub(super) fn masks(bounds: &[[u32; 2]]) -> Vec<Mask<'_>> {
    let bounds = Some(bounds);
    let mask = |is_causal, window, bounds| Mask {
        is_causal,
        window,
        bounds,
    };
    vec![
        Mask::default(),
        mask(true, 3, None),
        mask(true, 40, None),
        mask(true, 0, bounds),
        mask(false, 0, bounds),
        mask(true, 5, bounds),
    ]
}

fn call<'a>(t: usize, mask: Mask<'a>, dropout: Option<Dropped>) -> Call<'a> {
    Call {
        mask,
        dropout,
        ..Call::causal(&HEADS, 2, t)
    }
}

#[test]
fn rows_attend_to_the_keys_they_see_and_to_no_other() {
    // 150 rows are four blocks of query rows and ten of keys
    for t in [9, 150] {
        let bounds = documents(t);
        let qkv = random(&[2 * t, HEADS.packed()], 1, &Device::cpu()).unwrap();
        let wide = wide(qkv.f32());
        let bound = tolerance::sum(t) + tolerance::elementwise(8);
        for mask in masks(&bounds) {
            let (out, lse) = forward(&qkv, &call(t, mask, None)).unwrap();
            let want = packed(&wide, &HEADS, t, &ranges(&mask, t, 0), kept);
            assert!(error(out.f32(), &want) < bound, "{mask:?}");
            assert!(lse.f32().iter().all(|x| x.is_finite()));
            if mask.window > 0 && mask.bounds.is_none() {
                let wider = packed(&wide, &HEADS, t, &ranges(&mask, t, 1), kept);
                let found = error(out.f32(), &wider);
                assert!(found > bound || mask.window > t, "one key more is noticed");
            }
            let (out, _) = forward(&qkv, &call(t, mask, Some(DROPPED))).unwrap();
            let want = packed(&wide, &HEADS, t, &ranges(&mask, t, 0), factor);
            assert!(error(out.f32(), &want) < bound, "dropped {mask:?}");
        }
    }
}

#[test]
fn masked_and_dropped_backward_matches_finite_differences() {
    let t = 7;
    let bounds = documents(t);
    let qkv = random(&[2 * t, HEADS.packed()], 1, &Device::cpu()).unwrap();
    let dout = random(&[2 * t, 24], 2, &Device::cpu()).unwrap();
    let slopes = wide(dout.f32());
    for mask in masks(&bounds) {
        for (dropout, factor) in [(None, kept as Factor), (Some(DROPPED), factor)] {
            let call = call(t, mask, dropout);
            let (out, lse) = forward(&qkv, &call).unwrap();
            let passed = Passed {
                dout: &dout,
                out: &out,
                lse: &lse,
                qkv: &qkv,
                turn: None,
            };
            let (dqkv, _) = backward(&passed, &call, 0, None).unwrap();
            let seen = ranges(&mask, t, 0);
            let want = differences(&wide(qkv.f32()), 1e-5, |qkv| {
                let out = packed(qkv, &HEADS, t, &seen, factor);
                out.iter().zip(&slopes).map(|(o, d)| o * d).sum::<f64>()
            });
            let bound = tolerance::sum(t * 6) + tolerance::central_difference(1e-5);
            assert!(error(dqkv.f32(), &want) < bound, "{mask:?}");
        }
    }
}

/// Rows `part * rows ..` of each of two sequences.
pub(super) fn cut(x: &Tensor, part: usize, rows: usize, t: usize) -> Tensor {
    let width = x.elements() / (2 * t);
    let whole = x.f32().chunks(t * width);
    let part = part * rows * width..(part + 1) * rows * width;
    let values: Vec<f32> = whole.flat_map(|x| x[part.clone()].to_vec()).collect();
    Tensor::from_f32(&[2 * rows, width], &values, x.device()).unwrap()
}

#[test]
fn parts_of_masked_and_dropped_rows_have_the_bits_of_the_whole() {
    let (t, leaf, parts) = (128, 16, 4);
    let rows = t / parts;
    let device = Device::cpu();
    let bounds = documents(t);
    let qkv = random(&[2 * t, HEADS.packed()], 1, &device).unwrap();
    let dout = random(&[2 * t, 24], 2, &device).unwrap();
    let kv = take_kv(&qkv, &HEADS).unwrap();
    for mask in masks(&bounds) {
        let whole = call(t, mask, Some(DROPPED));
        let (out, lse) = forward(&qkv, &whole).unwrap();
        let passed = Passed {
            dout: &dout,
            out: &out,
            lse: &lse,
            qkv: &qkv,
            turn: None,
        };
        let (want, _) = backward(&passed, &whole, leaf, None).unwrap();
        let mut found = Vec::new();
        for part in 0..parts {
            let first = part * rows;
            let own = mask.bounds.map(|bounds| {
                let of = |s: usize| bounds[s * t + first..s * t + first + rows].to_vec();
                [of(0), of(1)].concat()
            });
            let mask = Mask {
                bounds: own.as_deref(),
                ..mask
            };
            let call = Call {
                keys: Keys::Part {
                    kv: &kv,
                    time: t,
                    start: 0,
                    first,
                },
                ..call(rows, mask, Some(DROPPED))
            };
            let qkv = cut(&qkv, part, rows, t);
            let (mixed, lse) = forward(&qkv, &call).unwrap();
            assert_eq!(
                bits(mixed.f32()),
                bits(cut(&out, part, rows, t).f32()),
                "{mask:?}"
            );
            let dout = cut(&dout, part, rows, t);
            let passed = Passed {
                dout: &dout,
                out: &mixed,
                lse: &lse,
                qkv: &qkv,
                turn: None,
            };
            let (dqkv, dkv) = backward(&passed, &call, leaf, None).unwrap();
            found.push((dqkv, dkv.unwrap()));
        }
        let sums: Vec<f32> = (0..2 * t * HEADS.kv_width())
            .map(|i| crate::testing::tree(found.iter().map(|(_, dkv)| dkv.f32()[i])))
            .collect();
        let sums = Tensor::from_f32(&[2 * t, HEADS.kv_width()], &sums, &device).unwrap();
        for (part, (dqkv, _)) in found.iter_mut().enumerate() {
            put_kv(dqkv, &cut(&sums, part, rows, t), &HEADS).unwrap();
            assert_eq!(
                bits(dqkv.f32()),
                bits(cut(&want, part, rows, t).f32()),
                "{mask:?}"
            );
        }
    }
}

#[test]
fn decode_within_a_window_has_the_bits_of_forward() {
    let (t, window) = (101, 37);
    let device = Device::cpu();
    let qkv = random(&[2 * t, HEADS.packed()], 1, &device).unwrap();
    let mask = Mask {
        window,
        ..Mask::CAUSAL
    };
    let (out, _) = forward(&qkv, &call(t, mask, None)).unwrap();
    let mut k = Tensor::zeros(&[2, 2, t, 6], DType::F32, &device).unwrap();
    let mut v = k.try_clone().unwrap();
    for position in 0..t {
        let rows = cut(&qkv, position, 1, t);
        let first = (position + 1).saturating_sub(window);
        let one = decode(&rows, &mut k, &mut v, &next(&HEADS, position, first)).unwrap();
        assert_eq!(bits(one.f32()), bits(cut(&out, position, 1, t).f32()));
    }
    let rows = cut(&qkv, 0, 1, t);
    let late = decode(&rows, &mut k, &mut v, &next(&HEADS, 3, 4));
    assert!(matches!(
        late,
        Err(Error::Argument {
            name: "first_key",
            ..
        })
    ));
}

#[test]
fn masked_bits_are_the_same_on_every_instruction_set() {
    let bounds = documents(130);
    assert_same_bits(|device| {
        let qkv = random(&[260, HEADS.packed()], 1, device).unwrap();
        let dout = random(&[260, 24], 2, device).unwrap();
        let mut outs = Vec::new();
        for mask in masks(&bounds) {
            let call = call(130, mask, Some(DROPPED));
            let (out, lse) = forward(&qkv, &call).unwrap();
            let passed = Passed {
                dout: &dout,
                out: &out,
                lse: &lse,
                qkv: &qkv,
                turn: None,
            };
            outs.push(backward(&passed, &call, 20, None).unwrap().0);
            outs.extend([out, lse]);
        }
        outs
    });
}

#[test]
fn masks_and_dropout_that_do_not_fit_are_refused_by_name() {
    let qkv = random(&[12, HEADS.packed()], 1, &Device::cpu()).unwrap();
    let refused = |mask, dropout| match forward(&qkv, &call(6, mask, dropout)) {
        Err(Error::Argument { name, .. }) => name,
        other => panic!("{other:?}"),
    };
    let bounds = [[0, 1]; 11];
    let short = Mask {
        bounds: Some(&bounds),
        ..Mask::CAUSAL
    };
    assert_eq!(refused(short, None), "bounds");
    let mut all = DROPPED;
    all.dropout.p = 1.0;
    assert_eq!(refused(Mask::CAUSAL, Some(all)), "p");
    let far = Dropped {
        first_head: u32::MAX - 1,
        ..DROPPED
    };
    assert_eq!(refused(Mask::CAUSAL, Some(far)), "first_head");
    let far = Dropped {
        sequence: u64::MAX,
        ..DROPPED
    };
    assert_eq!(refused(Mask::CAUSAL, Some(far)), "sequence");
}
