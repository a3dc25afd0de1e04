//! Tests of attention against f64 loops and finite differences; parts, tiles, threads and instruction sets against
//! the whole.

use super::reference::{kept, packed};
use super::*;
use crate::cpu::Numbers;
use crate::rope::Turn;
use crate::rope::{self, Frequencies, Positions, Scaling};
use crate::testing::{
    assert_same_bits, bits, devices, differences, error, random, stored_as, wide, widened,
};
use crate::{Device, tolerance};
use std::ops::Range;

const HEADS: Heads = Heads {
    heads: 4,
    kv_heads: 2,
    width: 6,
};

fn forward(qkv: &Tensor, heads: &Heads, b: usize, t: usize) -> Result<(Tensor, Tensor)> {
    super::forward(qkv, &Call::causal(heads, b, t))
}

fn backward_of(
    dout: &Tensor,
    qkv: &Tensor,
    (out, lse): (&Tensor, &Tensor),
    heads: &Heads,
    (b, t, leaf): (usize, usize, usize),
) -> Tensor {
    let passed = Passed {
        dout,
        out,
        lse,
        qkv,
        turn: None,
    };
    let call = Call::causal(heads, b, t);
    backward(&passed, &call, leaf, None).unwrap().0
}

/// The next position, scaled, without a bias.
pub(super) fn next(heads: &Heads, position: usize, first_key: usize) -> Next<'_> {
    Next {
        heads,
        block: 0,
        numbers: Numbers::F32,
        position,
        first_key,
        scores: Scores::scaled(true),
        bias: None,
        sinks: None,
    }
}

/// `keys(i)` is how many keys row i sees.
fn reference(qkv: &[f64], h: &Heads, t: usize, keys: impl Fn(usize) -> usize) -> Vec<f64> {
    let rows = qkv.len() / h.packed();
    let seen: Vec<Range<usize>> = (0..rows).map(|row| 0..keys(row % t)).collect();
    packed(qkv, h, t, &seen, kept)
}

#[test]
fn products_of_tensor_cores_are_refused_on_the_cpu() {
    let qkv = random(&[4, HEADS.packed()], 1, &Device::cpu()).unwrap();
    for numbers in [Numbers::Bf16Mma, Numbers::F16Mma] {
        let call = Call {
            numbers,
            ..Call::causal(&HEADS, 1, 4)
        };
        let refused = super::forward(&qkv, &call);
        assert!(matches!(refused, Err(Error::NotImplemented { .. })));
    }
}

#[test]
fn forward_matches_an_f64_loop_and_is_causal() {
    // 200 rows are three blocks of query rows.
    for (b, t) in [(1, 1), (2, 9), (1, 200)] {
        let qkv = random(&[b * t, HEADS.packed()], 1, &Device::cpu()).unwrap();
        let (out, _) = forward(&qkv, &HEADS, b, t).unwrap();
        let qkv = wide(qkv.f32());
        let bound = tolerance::sum(t) + tolerance::elementwise(8);
        assert!(error(out.f32(), &reference(&qkv, &HEADS, t, |i| i + 1)) < bound);
        if t > 1 {
            assert!(error(out.f32(), &reference(&qkv, &HEADS, t, |_| t)) > bound);
        }
    }
}

#[test]
fn backward_matches_finite_differences() {
    let (b, t) = (2, 7);
    let qkv = random(&[b * t, HEADS.packed()], 1, &Device::cpu()).unwrap();
    let dout = random(&[b * t, 24], 2, &Device::cpu()).unwrap();
    let (out, lse) = forward(&qkv, &HEADS, b, t).unwrap();
    let dqkv = backward_of(&dout, &qkv, (&out, &lse), &HEADS, (b, t, 0));
    let dout = wide(dout.f32());
    let want = differences(&wide(qkv.f32()), 1e-5, |qkv| {
        let out = reference(qkv, &HEADS, t, |i| i + 1);
        out.iter().zip(&dout).map(|(o, d)| o * d).sum::<f64>()
    });
    let bound = tolerance::sum(t * 6) + tolerance::central_difference(1e-5);
    assert!(error(dqkv.f32(), &want) < bound);
    let mut swapped = want.clone();
    for row in swapped.chunks_mut(24) {
        row.rotate_left(6);
    }
    assert!(
        error(dqkv.f32(), &swapped) > bound,
        "heads must not be swapped"
    );
}

/// The closed-form backward in f64 over several blocks of query rows.
#[test]
fn backward_over_many_blocks_matches_an_f64_loop() {
    let h = Heads {
        heads: 1,
        kv_heads: 1,
        width: 8,
    };
    let t = 250;
    let qkv = random(&[t, 24], 1, &Device::cpu()).unwrap();
    let dout = random(&[t, 8], 2, &Device::cpu()).unwrap();
    let (out, lse) = forward(&qkv, &h, 1, t).unwrap();
    let dqkv = backward_of(&dout, &qkv, (&out, &lse), &h, (1, t, 0));
    let (x, dy) = (wide(qkv.f32()), wide(dout.f32()));
    let (scale, mut want) = (1.0 / 8.0_f64.sqrt(), vec![0.0; t * 24]);
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    let slot = |r: usize, s: usize| &x[r * 24 + s * 8..][..8];
    for i in 0..t {
        let p: Vec<f64> = (0..=i)
            .map(|j| (dot(slot(i, 0), slot(j, 1)) * scale).exp())
            .collect();
        let sum: f64 = p.iter().sum();
        let dy = &dy[i * 8..][..8];
        let dp: Vec<f64> = (0..=i).map(|j| dot(dy, slot(j, 2))).collect();
        let d = dot(&p, &dp) / sum;
        for j in 0..=i {
            let p = p[j] / sum;
            let ds = p * (dp[j] - d) * scale;
            for c in 0..8 {
                want[i * 24 + c] += ds * x[j * 24 + 8 + c];
                want[j * 24 + 8 + c] += ds * x[i * 24 + c];
                want[j * 24 + 16 + c] += p * dy[c];
            }
        }
    }
    let bound = tolerance::sum(t) + tolerance::elementwise(8);
    assert!(error(dqkv.f32(), &want) < bound);
    let in_leaves = backward_of(&dout, &qkv, (&out, &lse), &h, (1, t, 30));
    assert!(error(in_leaves.f32(), &want) < bound);
    let moved = bits(in_leaves.f32()) != bits(dqkv.f32());
    assert!(moved, "leaves are another order of additions");
}

#[test]
fn parts_of_the_rows_have_the_bits_of_the_whole() {
    let device = Device::cpu();
    let (b, t, leaf) = (2, 128, 16);
    let qkv = random(&[b * t, HEADS.packed()], 1, &device).unwrap();
    let dout = random(&[b * t, 24], 2, &device).unwrap();
    let (out, lse) = forward(&qkv, &HEADS, b, t).unwrap();
    let want = backward_of(&dout, &qkv, (&out, &lse), &HEADS, (b, t, leaf));
    let kv = take_kv(&qkv, &HEADS).unwrap();
    for parts in [2, 4, 8] {
        let rows = t / parts;
        // rows part * rows .. of each sequence
        let cut = |x: &Tensor, part: usize| {
            let width = x.elements() / (b * t);
            let whole = x.f32().chunks(t * width);
            let values: Vec<f32> = whole
                .flat_map(|x| x[part * rows * width..(part + 1) * rows * width].to_vec())
                .collect();
            Tensor::from_f32(&[b * rows, width], &values, &device).unwrap()
        };
        let mut found = Vec::new();
        for part in 0..parts {
            let keys = Keys::Part {
                kv: &kv,
                time: t,
                start: 0,
                first: part * rows,
            };
            let qkv = cut(&qkv, part);
            let call = Call {
                keys,
                ..Call::causal(&HEADS, b, rows)
            };
            let (mixed, lse) = super::forward(&qkv, &call).unwrap();
            assert_eq!(bits(mixed.f32()), bits(cut(&out, part).f32()));
            let dout = cut(&dout, part);
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
        let sums: Vec<f32> = (0..b * t * HEADS.kv_width())
            .map(|i| crate::testing::tree(found.iter().map(|(_, dkv)| dkv.f32()[i])))
            .collect();
        let sums = Tensor::from_f32(&[b * t, HEADS.kv_width()], &sums, &device).unwrap();
        for (part, (dqkv, _)) in found.iter_mut().enumerate() {
            put_kv(dqkv, &cut(&sums, part), &HEADS).unwrap();
            assert_eq!(bits(dqkv.f32()), bits(cut(&want, part).f32()), "{parts}");
        }
    }
}

#[test]
fn a_part_past_the_end_is_an_error() {
    let device = Device::cpu();
    let qkv = random(&[4, HEADS.packed()], 1, &device).unwrap();
    let kv = random(&[8, HEADS.kv_width()], 1, &device).unwrap();
    let keys = Keys::Part {
        kv: &kv,
        time: 8,
        start: 0,
        first: 5,
    };
    let call = Call {
        keys,
        ..Call::causal(&HEADS, 1, 4)
    };
    let found = super::forward(&qkv, &call);
    assert!(matches!(found, Err(Error::Argument { name: "first", .. })));
}

#[test]
fn decode_has_the_bits_of_forward() {
    let (b, t, max_t) = (2, 101, 120);
    let device = Device::cpu();
    let qkv = random(&[b * t, HEADS.packed()], 1, &device).unwrap();
    let (out, _) = forward(&qkv, &HEADS, b, t).unwrap();
    let mut k = Tensor::zeros(&[b, 2, max_t, 6], DType::F32, &device).unwrap();
    let mut v = Tensor::zeros(&[b, 2, max_t, 6], DType::F32, &device).unwrap();
    let packed = HEADS.packed();
    for position in 0..t {
        let row = |s: usize| qkv.f32()[(s * t + position) * packed..][..packed].to_vec();
        let rows: Vec<f32> = (0..b).flat_map(row).collect();
        let rows = Tensor::from_f32(&[b, packed], &rows, &device).unwrap();
        let one = decode(&rows, &mut k, &mut v, &next(&HEADS, position, 0)).unwrap();
        for s in 0..b {
            let want = &out.f32()[(s * t + position) * 24..][..24];
            assert_eq!(bits(&one.f32()[s * 24..][..24]), bits(want), "{position}");
        }
    }
    let rows = Tensor::zeros(&[b, packed], DType::F32, &device).unwrap();
    let full = decode(&rows, &mut k, &mut v, &next(&HEADS, max_t, 0));
    assert!(matches!(
        full,
        Err(Error::Argument {
            name: "position",
            ..
        })
    ));
}

#[test]
fn a_rank_with_half_the_heads_has_their_bits() {
    let (b, t) = (2, 100);
    let device = Device::cpu();
    let qkv = random(&[b * t, HEADS.packed()], 1, &device).unwrap();
    let (out, _) = forward(&qkv, &HEADS, b, t).unwrap();
    let half = Heads {
        heads: 2,
        kv_heads: 1,
        width: 6,
    };
    let rows: Vec<f32> = qkv
        .f32()
        .chunks(48)
        .flat_map(|r| r[24..].to_vec())
        .collect();
    let rows = Tensor::from_f32(&[b * t, 24], &rows, &device).unwrap();
    let (part, _) = forward(&rows, &half, b, t).unwrap();
    let want: Vec<f32> = out
        .f32()
        .chunks(24)
        .flat_map(|r| r[12..].to_vec())
        .collect();
    assert_eq!(bits(part.f32()), bits(&want));
}

#[test]
fn bits_are_the_same_on_every_instruction_set() {
    assert_same_bits(|device| {
        let qkv = random(&[130, HEADS.packed()], 1, device).unwrap();
        let dout = random(&[130, 24], 2, device).unwrap();
        let (out, lse) = forward(&qkv, &HEADS, 1, 130).unwrap();
        let dqkv = backward_of(&dout, &qkv, (&out, &lse), &HEADS, (1, 130, 20));
        vec![out, lse, dqkv]
    });
}

#[test]
fn heads_that_do_not_divide_are_an_error() {
    let heads = Heads {
        heads: 3,
        kv_heads: 2,
        width: 4,
    };
    let qkv = random(&[4, 16], 1, &Device::cpu()).unwrap();
    assert!(matches!(
        forward(&qkv, &heads, 1, 4),
        Err(Error::Argument { name: "heads", .. })
    ));
}

#[test]
fn rows_in_bf16_give_the_bits_of_the_same_numbers_in_f32() {
    for heads in [
        HEADS,
        Heads {
            heads: 2,
            kv_heads: 2,
            width: 40,
        },
    ] {
        let (b, t, leaf) = (2, 45, 8);
        for device in devices() {
            let make = |cols, seed| {
                let x = random(&[b * t, cols], seed, &device).unwrap();
                stored_as(DType::Bf16, &x)
            };
            let qkv = make(heads.packed(), 1);
            let dout = make(heads.heads * heads.width, 2);
            for numbers in [Numbers::Bf16, Numbers::Bf16Tiles] {
                let call = Call {
                    numbers,
                    ..Call::causal(&heads, b, t)
                };
                let both = |qkv: &Tensor, dout: &Tensor| {
                    let (out, lse) = super::forward(qkv, &call).unwrap();
                    let passed = Passed {
                        dout,
                        out: &out,
                        lse: &lse,
                        qkv,
                        turn: None,
                    };
                    let (dqkv, _) = backward(&passed, &call, leaf, None).unwrap();
                    (bits(out.f32()), bits(lse.f32()), dqkv)
                };
                let found = both(&qkv, &dout);
                let want = both(&widened(&qkv), &widened(&dout));
                assert!(found.0 == want.0 && found.1 == want.1, "{device:?}");
                let rounded = stored_as(DType::Bf16, &want.2);
                assert!(found.2.bytes() == rounded.bytes(), "{device:?} {numbers:?}");
                let kv = take_kv(&qkv, &heads).unwrap();
                let want = take_kv(&widened(&qkv), &heads).unwrap();
                assert!(bits(kv.f32()) == bits(want.f32()));
            }
            let plain = super::forward(&qkv, &Call::causal(&heads, b, t));
            assert!(matches!(plain, Err(Error::DType { name: "qkv", .. })));
        }
    }
}

#[test]
fn gradients_turn_back_as_they_do_afterwards() {
    let (b, t, leaf) = (2, 45, 8);
    let wide = Heads {
        heads: 2,
        kv_heads: 2,
        width: 40,
    };
    for (device, heads) in devices().iter().flat_map(|x| [(x, HEADS), (x, wide)]) {
        let frequencies = Frequencies::new(100.0, heads.width, &Scaling::Plain).unwrap();
        let turn = Turn {
            heads: &heads,
            positions: Positions::Run { t, offset: 3 },
            frequencies: &frequencies,
        };
        let dims = [heads.packed(), heads.heads * heads.width];
        let [qkv, dout] = dims.map(|cols| random(&[b * t, cols], 1, device).unwrap());
        let [qkv, dout] = [qkv, dout].map(|x| stored_as(DType::Bf16, &x));
        for (numbers, dtype) in [
            (Numbers::F32, DType::F32),
            (Numbers::Bf16, DType::Bf16),
            (Numbers::Bf16Tiles, DType::Bf16),
        ] {
            let call = Call {
                numbers,
                ..Call::causal(&heads, b, t)
            };
            let [plain, dout] = [&qkv, &dout].map(widened);
            let (out, lse) = super::forward(&plain, &call).unwrap();
            let qkv = stored_as(dtype, &plain);
            let passed = |qkv, turn| Passed {
                dout: &dout,
                out: &out,
                lse: &lse,
                qkv,
                turn,
            };
            let (mut want, _) = backward(&passed(&plain, None), &call, leaf, None).unwrap();
            rope::backward(&mut want, &turn).unwrap();
            let want = stored_as(dtype, &want);
            let passed = passed(&qkv, Some(turn));
            let (found, _) = backward(&passed, &call, leaf, None).unwrap();
            assert!(found.bytes() == want.bytes(), "{device:?} {numbers:?}");
            let mut slopes = RunningBackward::new(&passed, &call, leaf).unwrap();
            let dkv = slopes.visit(&passed, &call).unwrap();
            let found = slopes.finish(&passed, &call, Some(&dkv), None).unwrap();
            assert!(found.bytes() == want.bytes(), "{device:?} {numbers:?}");
        }
        let short = Turn {
            positions: Positions::Run { t: 44, offset: 0 },
            ..turn
        };
        let (out, lse) = super::forward(&widened(&qkv), &Call::causal(&heads, b, t)).unwrap();
        let passed = Passed {
            dout: &widened(&dout),
            out: &out,
            lse: &lse,
            qkv: &widened(&qkv),
            turn: Some(short),
        };
        let wrong = backward(&passed, &Call::causal(&heads, b, t), leaf, None);
        assert!(matches!(wrong, Err(Error::Shape { name: "qkv", .. })));
    }
}
