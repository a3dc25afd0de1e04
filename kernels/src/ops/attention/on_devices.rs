//! Tests that the simulated GPU has the bits of every instruction set: blocks, widths, parts, cross attention, rotary
//! positions, rows in bf16, decode, numbers that are none.

use super::biased::{biased, both_ways};
use super::masks::{DROPPED, HEADS, cut, documents};
use super::*;
use crate::cpu::Numbers;
use crate::rope::{Frequencies, Positions, Scaling, Turn};
use crate::testing::{assert_same_bits, extreme, random, stored_as, widened};

/// A copy of some rows, in memory of its device.
fn part(x: &Tensor, part: usize, rows: usize, t: usize) -> Tensor {
    let here = x.to_device(&Device::cpu()).unwrap();
    cut(&here, part, rows, t).to_device(x.device()).unwrap()
}

#[test]
fn blocks_and_widths_of_any_size() {
    let shapes = [
        // heads, kv heads, width, rows, block, leaf
        (1, 1, 1, 1, 0, 0),
        (2, 1, 33, 41, 7, 5),
        (3, 3, 5, 70, 34, 70),
        (4, 2, 40, 37, 64, 12),
        (2, 2, 16, 67, 2, 33),
    ];
    for (heads, kv_heads, width, t, block, leaf) in shapes {
        for numbers in [Numbers::F32, Numbers::Bf16] {
            assert_same_bits(|device| {
                let heads = Heads {
                    heads,
                    kv_heads,
                    width,
                };
                let call = Call {
                    block,
                    numbers,
                    ..Call::causal(&heads, 2, t)
                };
                let qkv = random(&[2 * t, heads.packed()], 1, device).unwrap();
                let dout = random(&[2 * t, heads.heads * width], 2, device).unwrap();
                let found = both_ways(&qkv, &dout, &call, leaf);
                vec![found.out, found.dqkv]
            });
        }
    }
}

#[test]
fn keys_in_parts() {
    let (t, rows, leaf) = (48, 24, 8);
    for numbers in [Numbers::F32, Numbers::Bf16] {
        assert_same_bits(|device| {
            let table = random(&[4, 8], 3, device).unwrap();
            let whole = random(&[2 * t, HEADS.packed()], 1, device).unwrap();
            let dout = part(&random(&[2 * t, 24], 2, device).unwrap(), 1, rows, t);
            let qkv = part(&whole, 1, rows, t);
            let kv = take_kv(&whole, &HEADS).unwrap();
            let kv = [0, 1].map(|number| part(&kv, number, rows, t));
            let call = |number: usize| Call {
                t: rows,
                block: 12,
                numbers,
                keys: Keys::Part {
                    kv: &kv[number],
                    time: t,
                    start: number * rows,
                    first: rows,
                },
                dropout: Some(DROPPED),
                ..biased(t, Mask::CAUSAL, &table)
            };
            let mut running = RunningForward::new(&qkv, &call(0)).unwrap();
            running.visit(&qkv, &call(0)).unwrap();
            running.visit(&qkv, &call(1)).unwrap();
            let (out, lse) = running.finish(&call(1)).unwrap();
            let passed = Passed {
                dout: &dout,
                out: &out,
                lse: &lse,
                qkv: &qkv,
                turn: None,
            };
            let mut slopes = RunningBackward::new(&passed, &call(0), leaf).unwrap();
            let dkv = [0, 1].map(|number| slopes.visit(&passed, &call(number)).unwrap());
            let mut dtable = table.try_clone().unwrap();
            let mut dqkv = slopes
                .finish(&passed, &call(1), Some(&dkv[1]), Some(&mut dtable))
                .unwrap();
            let before = dqkv.try_clone().unwrap();
            let [first, second] = dkv;
            let as_rows = dkv_rows(&first, &HEADS).unwrap();
            put_kv(&mut dqkv, &as_rows, &HEADS).unwrap();
            vec![out, lse, before, dqkv, first, second, as_rows, dtable]
        });
    }
}

#[test]
fn keys_of_another_sequence() {
    let (t, time) = (9, 21);
    let bounds: Vec<[u32; 2]> = (0..2 * t)
        .map(|row| [0, if row < t { 21 } else { 14 }])
        .collect();
    assert_same_bits(|device| {
        let q = random(&[2 * t, 24], 1, device).unwrap();
        let kv = random(&[2 * time, HEADS.kv_width()], 2, device).unwrap();
        let dout = random(&[2 * t, 24], 3, device).unwrap();
        let call = Call {
            keys: Keys::Other {
                kv: &kv,
                time,
                start: 0,
                first: 0,
            },
            mask: Mask {
                bounds: Some(&bounds),
                ..Mask::default()
            },
            dropout: Some(DROPPED),
            ..Call::causal(&HEADS, 2, t)
        };
        let found = both_ways(&q, &dout, &call, 4);
        vec![found.out, found.dqkv, found.dkv.unwrap()]
    });
}

#[test]
fn rows_in_bf16_and_rotary_positions() {
    let (t, leaf) = (35, 8);
    assert_same_bits(|device| {
        let frequencies = Frequencies::new(100.0, 4, &Scaling::Plain).unwrap();
        let turn = Turn {
            heads: &HEADS,
            positions: Positions::Run { t, offset: 3 },
            frequencies: &frequencies,
        };
        let mut all = Vec::new();
        for stored in [DType::F32, DType::Bf16] {
            let make = |cols: usize, seed| {
                let x = random(&[2 * t, cols], seed, device).unwrap();
                stored_as(stored, &x)
            };
            let (qkv, dout) = (make(HEADS.packed(), 1), make(24, 2));
            let call = Call {
                numbers: Numbers::Bf16,
                block: 6,
                ..Call::causal(&HEADS, 2, t)
            };
            let (out, lse) = forward(&qkv, &call).unwrap();
            for turn in [None, Some(turn)] {
                let passed = Passed {
                    dout: &dout,
                    out: &out,
                    lse: &lse,
                    qkv: &qkv,
                    turn,
                };
                let (dqkv, _) = backward(&passed, &call, leaf, None).unwrap();
                all.push(widened(&dqkv));
            }
            all.extend([out, lse, take_kv(&qkv, &HEADS).unwrap()]);
        }
        all
    });
}

#[test]
fn numbers_that_are_none_and_rows_without_keys() {
    let t = 37;
    let bounds = documents(t);
    let mask = Mask {
        is_causal: true,
        window: 9,
        bounds: Some(&bounds),
    };
    for (numbers, broken) in [
        (Numbers::F32, false),
        (Numbers::F32, true),
        (Numbers::Bf16, false),
        (Numbers::Bf16, true),
    ] {
        assert_same_bits(|device| {
            let qkv = extreme(&[2 * t, HEADS.packed()], 1, broken, device).unwrap();
            let dout = extreme(&[2 * t, 24], 2, broken, device).unwrap();
            let call = Call {
                numbers,
                mask,
                block: 10,
                ..Call::causal(&HEADS, 2, t)
            };
            let found = both_ways(&qkv, &dout, &call, 6);
            vec![found.out, found.dqkv]
        });
    }
}

#[test]
fn decode_step_by_step() {
    let (t, max_t) = (11, 13);
    let many = Heads {
        heads: 40,
        kv_heads: 1,
        width: 7,
    };
    for (heads, numbers) in [
        (HEADS, Numbers::F32),
        (HEADS, Numbers::Bf16),
        (many, Numbers::F32),
    ] {
        for has_bias in [false, true] {
            assert_same_bits(|device| {
                let table = random(&[heads.heads, 8], 3, device).unwrap();
                let buckets = Buckets {
                    buckets: 8,
                    max_distance: 12,
                    bidirectional: false,
                };
                let dims = [2, heads.kv_heads, max_t, heads.width];
                let mut k = Tensor::zeros(&dims, DType::F32, device).unwrap();
                let mut v = k.try_clone().unwrap();
                let mut all = Vec::new();
                for position in 0..t {
                    let next = Next {
                        block: 4,
                        numbers,
                        bias: has_bias.then_some(Bias {
                            table: &table,
                            buckets,
                        }),
                        ..super::tests::next(&heads, position, position.saturating_sub(6))
                    };
                    let row = random(&[2, heads.packed()], position as u64, device).unwrap();
                    all.push(decode(&row, &mut k, &mut v, &next).unwrap());
                }
                all.extend([k, v]);
                all
            });
        }
    }
}
