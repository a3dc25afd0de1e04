//! Tests of products that round rows of the first factor to 8 bits (`cpu/int8_groups`).

use super::{Numbers, Op, Packed, Then, product, product_then};
use crate::activation::Kind;
use crate::descriptor::rope::Turn;
use crate::quant::BlockType;
use crate::rope::{self, Frequencies, Positions, Scaling};
use crate::testing::{bits, devices, random, tree};
use crate::{DType, Device, Error, Heads, Tensor, activation, add};

/// A pseudorandom sequence.
struct Sequence(u32);

impl Sequence {
    fn next(&mut self) -> u32 {
        self.0 = self.0.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        self.0 >> 8
    }

    fn below(&mut self, end: i32) -> i32 {
        i32::try_from(self.next()).unwrap() % end
    }
}

/// Codes of one kind, whose scales nothing but these codes have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kinds {
    Four,
    Eight,
    Rounded,
    Wide,
}

impl Kinds {
    const ALL: [Kinds; 4] = [Kinds::Four, Kinds::Eight, Kinds::Rounded, Kinds::Wide];

    fn steps(self) -> usize {
        if self == Kinds::Wide { 16 } else { 32 }
    }

    fn code(self, from: &mut Sequence) -> i32 {
        match self {
            Kinds::Four => from.below(16) - 8,
            Kinds::Eight | Kinds::Rounded => from.below(255) - 127,
            Kinds::Wide => from.below(64) - 32,
        }
    }

    /// The code of the largest number of a group, by which scales are found.
    fn largest(self) -> i32 {
        match self {
            Kinds::Four => -8,
            Kinds::Eight | Kinds::Rounded => 127,
            Kinds::Wide => -32,
        }
    }
}

/// The columns of op(B): codes, and the scale of each group.
struct Columns {
    codes: Vec<Vec<i32>>,
    scales: Vec<Vec<f32>>,
}

impl Columns {
    fn new(kind: Kinds, [k, n]: [usize; 2], seed: u32) -> Columns {
        let mut from = Sequence(seed);
        let mut all = Columns {
            codes: Vec::new(),
            scales: Vec::new(),
        };
        for _ in 0..n {
            let mut codes: Vec<i32> = (0..k).map(|_| kind.code(&mut from)).collect();
            for group in codes.chunks_mut(kind.steps()) {
                group[0] = kind.largest();
            }
            let scale = |from: &mut Sequence| match kind {
                Kinds::Four | Kinds::Eight => {
                    let bits = 0x2000 + u16::try_from(from.below(0x1000)).unwrap();
                    half::f16::from_bits(bits).to_f32()
                }
                // 24 bits, so that products are rounded
                Kinds::Rounded => (8_388_609 + 2 * from.below(4_000_000)) as f32 * 2f32.powi(-36),
                // 17 bits, more than half precision has
                Kinds::Wide => (65537 + 2 * from.below(30_000)) as f32 / 16_777_216.0,
            };
            let groups = k.div_ceil(kind.steps());
            all.scales
                .push((0..groups).map(|_| scale(&mut from)).collect());
            all.codes.push(codes);
        }
        all
    }

    /// W `[n, k]`
    fn weights(&self, kind: Kinds, device: &Device) -> Tensor {
        let numbers = self
            .codes
            .iter()
            .zip(&self.scales)
            .flat_map(|(codes, scales)| {
                let groups = codes.chunks(kind.steps()).zip(scales);
                groups.flat_map(|(codes, scale)| codes.iter().map(move |code| *code as f32 * scale))
            });
        let numbers: Vec<f32> = numbers.collect();
        let dims = [self.codes.len(), self.codes[0].len()];
        Tensor::from_f32(&dims, &numbers, device).unwrap()
    }
}

/// The definition, element by element.
fn naive(a: &Tensor, of: &Columns, kind: Kinds, leaf: usize) -> Vec<f32> {
    let (m, k) = a.rows_cols();
    let mut out = Vec::new();
    for row in 0..m {
        let x = &a.f32()[row * k..(row + 1) * k];
        let rounded = x.chunks(kind.steps()).map(|x| {
            let most = x.iter().fold(0.0f32, |most, x| most.max(x.abs()));
            let by = 127.0 / most;
            let codes: Vec<f32> = x.iter().map(|x| (x * by).round_ties_even()).collect();
            (codes, most / 127.0)
        });
        let rounded: Vec<(Vec<f32>, f32)> = rounded.collect();
        for (codes, scales) in of.codes.iter().zip(&of.scales) {
            let groups: Vec<(f64, f32)> = (codes.chunks(kind.steps()).zip(scales))
                .zip(&rounded)
                .map(|((codes, scale), (q, d))| {
                    let products = codes.iter().zip(q);
                    let sum = products
                        .map(|(code, q)| f64::from(*code) * f64::from(*q))
                        .sum();
                    (sum, scale * d)
                })
                .collect();
            let per_leaf = if leaf == 0 {
                groups.len()
            } else {
                leaf / kind.steps()
            };
            let chain = |groups: &[(f64, f32)]| {
                #[expect(clippy::cast_possible_truncation, reason = "below 2^24")]
                let add = |sum: f32, (of, by): &(f64, f32)| (*of as f32).mul_add(*by, sum);
                groups.iter().fold(0.0, add)
            };
            out.push(tree(groups.chunks(per_leaf).map(chain)));
        }
    }
    out
}

const SHAPES: [[usize; 3]; 8] = [
    [1, 65, 64],
    [1, 320, 1536],
    [2, 33, 130],
    [3, 96, 257],
    [5, 70, 96],
    [13, 31, 160],
    [50, 130, 384],
    [120, 64, 96],
];

#[test]
fn every_device_has_the_bits_of_the_definition() {
    for device in devices() {
        for (number, [m, n, k]) in SHAPES.into_iter().enumerate() {
            for kind in Kinds::ALL {
                if kind == Kinds::Rounded && !k.is_multiple_of(kind.steps()) {
                    // one or two numbers have several scales
                    continue;
                }
                let seed = u32::try_from(number).unwrap();
                let columns = Columns::new(kind, [k, n], seed);
                let w = columns.weights(kind, &device);
                let a = random(&[m, k], 1, &device).unwrap();
                for leaf in [0, 32, 96] {
                    let packed = Packed::with_rounded_rows(w.transposed(), leaf, &device);
                    let packed = packed.unwrap().unwrap();
                    assert!(packed.rounds_rows() && packed.dims() == [k, n]);
                    let mut c = Tensor::zeros(&[m, n], DType::F32, &device).unwrap();
                    product(Numbers::F32, &mut c, &a, &packed, leaf, false).unwrap();
                    let wanted = naive(&a, &columns, kind, leaf);
                    let place = (&device, m, n, k, kind, leaf);
                    assert!(bits(c.f32()) == bits(&wanted), "{place:?}");
                    let mut sums = random(&[m, n], 2, &device).unwrap();
                    let before = sums.f32().to_vec();
                    product(Numbers::F32, &mut sums, &a, &packed, leaf, true).unwrap();
                    let wanted = before.iter().zip(&wanted).map(|(c, sum)| c + sum);
                    let wanted: Vec<f32> = wanted.collect();
                    assert!(bits(sums.f32()) == bits(&wanted), "added {place:?}");
                }
            }
        }
    }
}

#[test]
fn rows_have_the_same_bits_in_any_company() {
    for device in devices() {
        let columns = Columns::new(Kinds::Four, [320, 70], 3);
        let w = columns.weights(Kinds::Four, &device);
        let packed = Packed::with_rounded_rows(w.transposed(), 32, &device);
        let packed = packed.unwrap().unwrap();
        let a = random(&[29, 320], 1, &device).unwrap();
        let multiply = |a: &Tensor| {
            let mut c = Tensor::zeros(&[a.rows_cols().0, 70], DType::F32, &device).unwrap();
            product(Numbers::F32, &mut c, a, &packed, 32, false).unwrap();
            c
        };
        let together = multiply(&a);
        for row in 0..29 {
            let x = &a.f32()[row * 320..(row + 1) * 320];
            let alone = multiply(&Tensor::from_f32(&[1, 320], x, &device).unwrap());
            let own = &together.f32()[row * 70..(row + 1) * 70];
            assert!(bits(alone.f32()) == bits(own), "{device:?} {row}");
        }
    }
}

/// c = x W^T in f64, and half a step of each of x's groups times the sizes of the weights.
fn exact(a: &Tensor, w: &Tensor, steps: usize) -> Vec<(f64, f64)> {
    let (_, k) = a.rows_cols();
    let mut out = Vec::new();
    for x in a.f32().chunks(k) {
        for w in w.f32().chunks(k) {
            let mut sum = (0.0, 0.0);
            for (x, w) in x.chunks(steps).zip(w.chunks(steps)) {
                let most = x.iter().fold(0.0f32, |most, x| most.max(x.abs()));
                let half_a_step = f64::from(most) / 254.0;
                for (x, w) in x.iter().zip(w) {
                    sum.0 += f64::from(*x) * f64::from(*w);
                    sum.1 += half_a_step * f64::from(w.abs());
                }
            }
            out.push(sum);
        }
    }
    out
}

#[test]
fn weights_of_block_formats_are_multiplied_within_half_a_step_of_their_rows() {
    use BlockType::{Q4_0, Q4_1, Q4_K, Q5_0, Q5_1, Q5_K, Q6_K, Q8_0};
    let (m, n, k) = (7, 160, 512);
    let mut first = Vec::new();
    for device in devices() {
        let numbers = random(&[n, k], 3, &device).unwrap();
        let a = random(&[m, k], 4, &device).unwrap();
        let mut w = numbers.try_clone().unwrap();
        for (number, (format, bytes, steps)) in [
            (Q8_0, 34, 32),
            (Q4_0, 18, 32),
            (Q4_1, 24, 32),
            (Q5_0, 34, 32),
            (Q5_1, 40, 32),
            (Q4_K, 24, 32),
            (Q5_K, 40, 32),
            (Q6_K, 40, 16),
        ]
        .into_iter()
        .enumerate()
        {
            let mut blocks = vec![0; n * k / format.numbers() * format.bytes()];
            format.quantize(numbers.f32(), &mut blocks);
            format.dequantize(&blocks, w.f32_mut());
            let packed = Packed::with_rounded_rows(w.transposed(), 64, &device);
            let packed = packed.unwrap().unwrap();
            assert_eq!(packed.bytes(), n * k / 32 * bytes, "{format:?}");
            let mut c = Tensor::zeros(&[m, n], DType::F32, &device).unwrap();
            product(Numbers::F32, &mut c, &a, &packed, 64, false).unwrap();
            let mut farthest = 0.0f64;
            for (c, (exact, bound)) in c.f32().iter().zip(exact(&a, &w, steps)) {
                let off = (f64::from(*c) - exact).abs();
                assert!(
                    off <= bound * 1.0001 + 1e-5,
                    "{format:?} {c} {exact} {bound}"
                );
                farthest = farthest.max(off / bound);
            }
            assert!(farthest > 0.02, "rows are rounded: {format:?} {farthest}");
            let found = bits(c.f32());
            if first.len() == number {
                first.push(found);
            } else {
                assert!(found == first[number], "{device:?} {format:?}");
            }
        }
    }
}

#[test]
fn epilogues_are_those_of_ops_of_their_own() {
    for device in devices() {
        let (n, k) = (96, 160);
        let columns = Columns::new(Kinds::Eight, [k, n], 5);
        let w = columns.weights(Kinds::Eight, &device);
        let packed = Packed::with_rounded_rows(w.transposed(), 32, &device);
        let packed = packed.unwrap().unwrap();
        let bias = random(&[n], 6, &device).unwrap();
        for m in [1, 40] {
            let a = random(&[m, k], 1, &device).unwrap();
            let empty = || Tensor::zeros(&[m, n], DType::F32, &device).unwrap();
            let then = |then: Then<'_>| {
                let mut c = empty();
                product_then(Numbers::F32, &mut c, &a, &packed, 32, then).unwrap();
                c
            };
            let mut plain = empty();
            product(Numbers::F32, &mut plain, &a, &packed, 32, false).unwrap();
            let mut biased = plain.try_clone().unwrap();
            add::bias(&mut biased, &bias).unwrap();
            assert_eq!(bits(then(Then::Bias(&bias)).f32()), bits(biased.f32()));

            let mut values = empty();
            then(Then::Activation {
                kind: Kind::GeluTanh,
                bias: Some(&bias),
                values: &mut values,
            });
            let wanted = activation::forward(&plain, Some(&bias), Kind::GeluTanh).unwrap();
            assert_eq!(bits(values.f32()), bits(wanted.f32()));

            let frequencies = Frequencies::new(100.0, 16, &Scaling::Plain).unwrap();
            let heads = Heads {
                heads: 4,
                kv_heads: 1,
                width: 16,
            };
            let turn = Turn {
                heads: &heads,
                positions: Positions::Run { t: m, offset: 3 },
                frequencies: &frequencies,
            };
            let found = then(Then::Rotary {
                bias: Some(&bias),
                turn,
            });
            let mut wanted = biased.try_clone().unwrap();
            rope::forward(&mut wanted, &turn).unwrap();
            assert_eq!(bits(found.f32()), bits(wanted.f32()));
        }
    }
}

#[test]
fn rows_that_are_not_finite_are_nan_and_groups_without_a_size_are_zero() {
    for device in devices() {
        let columns = Columns::new(Kinds::Four, [64, 40], 7);
        let w = columns.weights(Kinds::Four, &device);
        let packed = Packed::with_rounded_rows(w.transposed(), 0, &device);
        let packed = packed.unwrap().unwrap();
        let mut x = vec![0.0; 5 * 64];
        x[64] = 1e-31;
        x[2 * 64 + 40] = f32::INFINITY;
        x[3 * 64] = f32::NAN;
        x[4 * 64] = 1.0;
        let x = Tensor::from_f32(&[5, 64], &x, &device).unwrap();
        let mut c = Tensor::zeros(&[5, 40], DType::F32, &device).unwrap();
        product(Numbers::F32, &mut c, &x, &packed, 0, false).unwrap();
        assert!(c.f32()[..80].iter().all(|c| *c == 0.0));
        assert!(c.f32()[80..160].iter().all(|c| c.is_nan()));
        let wanted: Vec<f32> = (0..40).map(|row| w.f32()[row * 64]).collect();
        let near = |(c, w): (&f32, f32)| (c - w).abs() <= w.abs() * 1e-6;
        assert!(c.f32()[160..].iter().zip(wanted).all(near));
    }
}

#[test]
fn weights_of_no_codes_are_packed_as_for_other_products() {
    let device = Device::cpu();
    let plain = random(&[40, 64], 1, &device).unwrap();
    let packed = Packed::with_rounded_rows(plain.transposed(), 0, &device);
    assert!(!packed.unwrap().unwrap().rounds_rows());
    let columns = Columns::new(Kinds::Eight, [64, 40], 7);
    let mut w = columns.weights(Kinds::Eight, &device);
    let pack = |w: &Tensor, leaf| {
        let packed = Packed::with_rounded_rows((w, Op::Transposed), leaf, &device);
        packed.unwrap()
    };
    let a = random(&[3, 64], 1, &device).unwrap();
    let multiply = |packed: &Packed, leaf| {
        let mut c = Tensor::zeros(&[3, 40], DType::F32, &device).unwrap();
        product(Numbers::F32, &mut c, &a, packed, leaf, false).map(|()| c)
    };
    // leaves that are no whole groups count as one
    let of = |leaf| bits(multiply(&pack(&w, leaf).unwrap(), leaf).unwrap().f32());
    assert!(of(0) == of(12) && of(0) == of(48) && of(0) != of(32));
    let wrong = multiply(&pack(&w, 32).unwrap(), 0);
    assert!(matches!(wrong, Err(Error::Argument { name: "b", .. })));
    w.f32_mut()[40 * 64 - 1] = 1.0 + f32::EPSILON;
    assert!(!pack(&w, 0).unwrap().rounds_rows());
}
