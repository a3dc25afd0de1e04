//! Tests of keys that come in parts, blocks of the softmax, bf16 products: against the whole, and against f64.

use super::biased::{Passes, biased, both_ways};
use super::masks::{DROPPED, HEADS, cut, documents, masks};
use super::*;
use crate::cpu::Numbers;
use crate::testing::{all_devices, assert_same_bits_on, bits, devices, random, tree, wide};
use crate::{Device, tolerance};

/// Rows `part * rows ..` of sequences of `t`, of two.
struct Cut {
    part: usize,
    rows: usize,
    t: usize,
}

impl Cut {
    fn of(&self, x: &Tensor) -> Tensor {
        cut(x, self.part, self.rows, self.t)
    }

    fn bounds(&self, bounds: &[[u32; 2]]) -> Vec<[u32; 2]> {
        let first = self.part * self.rows;
        let of = |s: usize| &bounds[s * self.t + first..s * self.t + first + self.rows];
        [of(0), of(1)].concat()
    }
}

/// As in a ring: this part's rows over all parts of the keys that they attend to, ascending. Gradients of
/// keys by part.
fn around(
    qkv: &Tensor,
    dout: &Tensor,
    kv: &[Tensor],
    whole: &Call<'_>,
    part: usize,
    leaf: usize,
) -> (Passes, Vec<Option<Tensor>>) {
    let (parts, t) = (kv.len(), whole.t);
    let rows = t / parts;
    let at = Cut { part, rows, t };
    let own = whole.mask.bounds.map(|bounds| at.bounds(bounds));
    let call = |number: usize| Call {
        t: rows,
        keys: Keys::Part {
            kv: &kv[number],
            time: t,
            start: number * rows,
            first: part * rows,
        },
        mask: Mask {
            bounds: own.as_deref(),
            ..whole.mask
        },
        ..*whole
    };
    let seen = |number: usize| number <= part || !whole.mask.is_causal;
    let (qkv, dout) = (at.of(qkv), at.of(dout));
    let mut running = RunningForward::new(&qkv, &call(part)).unwrap();
    for number in (0..parts).filter(|&number| seen(number)) {
        running.visit(&qkv, &call(number)).unwrap();
    }
    let (out, lse) = running.finish(&call(part)).unwrap();
    let passed = Passed {
        dout: &dout,
        out: &out,
        lse: &lse,
        qkv: &qkv,
        turn: None,
    };
    let mut slopes = RunningBackward::new(&passed, &call(part), leaf).unwrap();
    let visit = |number| seen(number).then(|| slopes.visit(&passed, &call(number)).unwrap());
    let dkv: Vec<Option<Tensor>> = (0..parts).map(visit).collect();
    let zeros = |bias: Bias<'_>| Tensor::zeros(bias.table.dims(), DType::F32, qkv.device());
    let mut dtable = whole.bias.map(|bias| zeros(bias).unwrap());
    let dqkv = slopes.finish(&passed, &call(part), None, dtable.as_mut());
    let passes = Passes {
        out,
        dqkv: dqkv.unwrap(),
        dkv: None,
        dtable,
    };
    (passes, dkv)
}

#[test]
fn rows_around_a_ring_have_the_bits_of_the_whole() {
    let device = Device::cpu();
    let table = random(&[4, 8], 3, &device).unwrap();
    let sinks = random(&[4], 4, &device).unwrap();
    // chunks of one tile and a bit, of odd keys, of several blocks
    for (t, block) in [(272, 34), (40, 5), (128, 8)] {
        let bounds = documents(t);
        let qkv = random(&[2 * t, HEADS.packed()], 1, &device).unwrap();
        let dout = random(&[2 * t, 24], 2, &device).unwrap();
        for (i, mask) in masks(&bounds).into_iter().enumerate() {
            let numbers = [Numbers::F32, Numbers::Bf16, Numbers::Bf16Tiles][i % 3];
            let has_bias = i % 4 != 0;
            let call = Call {
                block,
                numbers,
                dropout: (i != 1).then_some(DROPPED),
                ..biased(t, mask, &table)
            };
            let bias = call.bias.filter(|_| has_bias);
            let sinks = (i % 2 == 0).then_some(&sinks);
            let call = Call {
                bias,
                sinks,
                ..call
            };
            let leaf = t / 8;
            let want = both_ways(&qkv, &dout, &call, leaf);
            let want_kv = take_kv(&want.dqkv, &HEADS).unwrap();
            for parts in [1, 2, 4, 8] {
                let rows = t / parts;
                let kv = take_kv(&qkv, &HEADS).unwrap();
                let kv: Vec<Tensor> = (0..parts).map(|part| cut(&kv, part, rows, t)).collect();
                let found = (0..parts).map(|part| {
                    let (mut found, dkv) = around(&qkv, &dout, &kv, &call, part, leaf);
                    let at = Cut { part, rows, t };
                    assert_eq!(
                        bits(found.out.f32()),
                        bits(at.of(&want.out).f32()),
                        "{mask:?}"
                    );
                    put_kv(&mut found.dqkv, &at.of(&want_kv), &HEADS).unwrap();
                    let wanted = at.of(&want.dqkv);
                    assert_eq!(bits(found.dqkv.f32()), bits(wanted.f32()), "{mask:?}");
                    (found.dtable, dkv)
                });
                let found: Vec<_> = found.collect();
                for part in 0..parts {
                    let given = found.iter().map(|(_, dkv)| dkv[part].as_ref());
                    let given: Vec<Option<Tensor>> = given
                        .map(|dkv| dkv.map(|dkv| dkv_rows(dkv, &HEADS).unwrap()))
                        .collect();
                    let wanted = cut(&want_kv, part, rows, t);
                    for (i, want) in wanted.f32().iter().enumerate() {
                        // a rank whose rows attend to none of the part contributes nothing: a zero in the tree
                        let of = |dkv: &Option<Tensor>| dkv.as_ref().map_or(0.0, |x| x.f32()[i]);
                        let sum = tree(given.iter().map(of));
                        assert_eq!(sum.to_bits(), want.to_bits(), "{t} {parts} {mask:?}");
                    }
                }
                let Some(want) = &want.dtable else { continue };
                for (i, want) in want.f32().iter().enumerate() {
                    // sequences are merged last: parts add up for one alone
                    let of = |(dtable, _): &(Option<Tensor>, _)| dtable.as_ref().unwrap().f32()[i];
                    let sum: f64 = found.iter().map(|x| f64::from(of(x))).sum();
                    assert!((sum - f64::from(*want)).abs() < 1e-3, "{sum} {want}");
                }
            }
        }
    }
}

#[test]
fn blocks_are_a_matter_of_bits_and_no_more() {
    let device = Device::cpu();
    let t = 96;
    let qkv = random(&[t, HEADS.packed()], 1, &device).unwrap();
    let of = |block, numbers| {
        let call = Call {
            block,
            numbers,
            ..Call::causal(&HEADS, 1, t)
        };
        forward(&qkv, &call).unwrap().0
    };
    let whole = of(0, Numbers::F32);
    let blocks = of(12, Numbers::F32);
    assert_ne!(
        bits(whole.f32()),
        bits(blocks.f32()),
        "a block too few is noticed"
    );
    let bound = tolerance::sum(t) + tolerance::elementwise(16);
    assert!(crate::testing::error(blocks.f32(), &wide(whole.f32())) < bound);
}

#[test]
fn decode_has_the_bits_of_forward_in_blocks() {
    let (t, max_t) = (50, 60);
    let device = Device::cpu();
    for (heads, numbers) in [
        (HEADS, Numbers::Bf16),
        (HEADS, Numbers::Bf16Tiles),
        (
            Heads {
                heads: 40,
                kv_heads: 1,
                width: 7,
            },
            Numbers::F32,
        ),
    ] {
        let (packed, width) = (heads.packed(), heads.heads * heads.width);
        let qkv = random(&[t, packed], 1, &device).unwrap();
        for block in [6, 7, 41] {
            let call = Call {
                block,
                numbers,
                ..Call::causal(&heads, 1, t)
            };
            let (out, _) = forward(&qkv, &call).unwrap();
            let dims = [1, heads.kv_heads, max_t, heads.width];
            let mut k = Tensor::zeros(&dims, DType::F32, &device).unwrap();
            let mut v = k.try_clone().unwrap();
            for position in 0..t {
                let row = &qkv.f32()[position * packed..][..packed];
                let row = Tensor::from_f32(&[1, packed], row, &device).unwrap();
                let next = Next {
                    block,
                    numbers,
                    ..super::tests::next(&heads, position, 0)
                };
                let one = decode(&row, &mut k, &mut v, &next).unwrap();
                let want = &out.f32()[position * width..][..width];
                assert_eq!(bits(one.f32()), bits(want), "{position}");
            }
        }
    }
}

#[test]
fn bf16_bits_are_the_same_on_every_instruction_set() {
    let bounds = documents(70);
    for (numbers, block) in [
        (Numbers::Bf16, 9),
        (Numbers::Bf16Tiles, 9),
        (Numbers::Bf16Tiles, 45),
    ] {
        let on = match numbers {
            Numbers::Bf16Tiles => devices(),
            Numbers::F32 | Numbers::Bf16 => all_devices(),
            Numbers::Bf16Mma | Numbers::F16Mma => Vec::new(),
        };
        assert_same_bits_on(&on, |device| {
            let qkv = random(&[140, HEADS.packed()], 1, device).unwrap();
            let dout = random(&[140, 24], 2, device).unwrap();
            let table = random(&[4, 8], 3, device).unwrap();
            let mut all = Vec::new();
            for mask in masks(&bounds) {
                let call = Call {
                    block,
                    numbers,
                    dropout: Some(DROPPED),
                    ..biased(70, mask, &table)
                };
                let found = both_ways(&qkv, &dout, &call, 20);
                all.extend([found.out, found.dqkv, found.dtable.unwrap()]);
            }
            all
        });
    }
}

/// The closed form in f64; every result with the error bound of its rounded factors.
#[test]
fn bf16_products_are_off_by_the_rounding_of_probabilities_and_no_more() {
    let heads = Heads {
        heads: 1,
        kv_heads: 1,
        width: 8,
    };
    let (t, device) = (90, Device::cpu());
    let rounded = |dims: &[usize], seed| {
        let x = random(dims, seed, &device).unwrap();
        crate::ops::cast::rounded(&x, crate::ops::cast::Format::Bf16).unwrap()
    };
    let (qkv, dout) = (rounded(&[t, 24], 1), rounded(&[t, 8], 2));
    let call = |numbers| Call {
        block: 16,
        numbers,
        ..Call::causal(&heads, 1, t)
    };
    let found = both_ways(&qkv, &dout, &call(Numbers::Bf16), 20);
    let exact = both_ways(&qkv, &dout, &call(Numbers::F32), 20);
    let (x, dy) = (wide(qkv.f32()), wide(dout.f32()));
    let slot = |r: usize, s: usize| &x[r * 24 + s * 8..][..8];
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    let scale = 1.0 / 8.0_f64.sqrt();
    let (mut want, mut off) = (vec![0.0; t * 24], vec![0.0; t * 24]);
    let (mut out, mut out_off) = (vec![0.0; t * 8], vec![0.0; t * 8]);
    for i in 0..t {
        let scores: Vec<f64> = (0..=i)
            .map(|j| dot(slot(i, 0), slot(j, 1)) * scale)
            .collect();
        let sum: f64 = scores.iter().map(|s| s.exp()).sum();
        let p: Vec<f64> = scores.iter().map(|s| s.exp() / sum).collect();
        let dy = &dy[i * 8..][..8];
        let mut size = 0.0;
        for c in 0..8 {
            for (j, p) in p.iter().enumerate() {
                out[i * 8 + c] += p * slot(j, 2)[c];
                out_off[i * 8 + c] += p * slot(j, 2)[c].abs();
            }
            size += dy[c].abs() * out_off[i * 8 + c];
        }
        let d = dot(dy, &out[i * 8..][..8]);
        for (j, &p) in p.iter().enumerate() {
            let ds = p * (dot(dy, slot(j, 2)) - d) * scale;
            let ds_off = ds.abs() + p * size * scale;
            for c in 0..8 {
                let (q, k) = (x[i * 24 + c], x[j * 24 + 8 + c]);
                want[i * 24 + c] += ds * k;
                off[i * 24 + c] += ds_off * k.abs();
                want[j * 24 + 8 + c] += ds * q;
                off[j * 24 + 8 + c] += ds_off * q.abs();
                want[j * 24 + 16 + c] += p * dy[c];
                off[j * 24 + 16 + c] += p * dy[c].abs();
            }
        }
    }
    // bf16 has 8 bits, so the nearest is within 2^-8 of a number; plus the error of f32
    let unit = 2.0_f64.powi(-8) + tolerance::sum(t) + tolerance::elementwise(64);
    let results = [
        (&found.out, &exact.out, &out, &out_off),
        (&found.dqkv, &exact.dqkv, &want, &off),
    ];
    for (found, exact, want, off) in results {
        let mut differ = 0;
        for (i, found) in found.f32().iter().enumerate() {
            let distance = (f64::from(*found) - want[i]).abs();
            assert!(distance <= unit * off[i], "{i}: {distance} {}", off[i]);
            differ += usize::from(*found != exact.f32()[i]);
        }
        assert!(differ > found.elements() / 2, "products are of bf16");
    }
}
