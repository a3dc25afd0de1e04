//! Tests of products on tensor cores, on the simulated GPU: a derived bound beside an f64 loop over rounded factors, the
//! same bits twice, fused epilogues with the bits of the ops apart, experts with the bits of their products alone.

use super::*;
use crate::activation::Kind;
use crate::rope::{self, Frequencies, Positions, Scaling, Turn};
use crate::testing::{bits, random, simulator, stored_as, values, wide, widened};
use crate::{Device, Heads, activation, add, cast, grouped_matmul, tolerance};

const NUMBERS: [Numbers; 2] = [Numbers::Bf16Mma, Numbers::F16Mma];
const LAYOUTS: [(Op, Op); 4] = [
    (Op::Plain, Op::Plain),
    (Op::Plain, Op::Transposed),
    (Op::Transposed, Op::Plain),
    (Op::Transposed, Op::Transposed),
];

/// Numbers that show the format: halves keep more digits, and subnormals.
fn factor(dims: &[usize], seed: u64, device: &Device) -> Tensor {
    let x: Vec<f32> = values(&random(dims, seed, device).unwrap())
        .iter()
        .enumerate()
        .map(|(at, x)| if at % 11 == 3 { x * 3e-6 } else { *x })
        .collect();
    Tensor::from_f32(dims, &x, device).unwrap()
}

/// op(x) as factors, row by row, in f64.
fn rounded(numbers: Numbers, x: &Tensor, op: Op) -> (Vec<f64>, usize) {
    let ((rows, cols), flat) = (x.rows_cols(), values(&widened(x)));
    let flat = Tensor::from_f32(&[rows, cols], &flat, &Device::cpu()).unwrap();
    let format = match numbers {
        Numbers::F16Mma => cast::Format::F16,
        _ => cast::Format::Bf16,
    };
    let flat = wide(cast::rounded(&flat, format).unwrap().f32());
    if op == Op::Plain {
        return (flat, cols);
    }
    let turned = (0..cols * rows).map(|at| flat[at % rows * cols + at / rows]);
    (turned.collect(), rows)
}

/// Whether c is within the bound of a chain of `mma.sync` of `a b + old`.
fn is_near(
    c: &[f32],
    (a, k): &(Vec<f64>, usize),
    (b, n): &(Vec<f64>, usize),
    old: Option<&[f32]>,
) -> bool {
    c.iter().enumerate().all(|(at, c)| {
        let (row, column) = (at / n, at % n);
        let terms = (0..*k).map(|p| a[row * k + p] * b[p * n + column]);
        let (sum, size) = terms.fold((0.0, 0.0), |(sum, size), x| (sum + x, size + x.abs()));
        let old = old.map_or(0.0, |old| f64::from(old[at]));
        // the addition to c rounds once more
        let bound = tolerance::tensor_core(*k) * size + tolerance::EPS * (old.abs() + size);
        (f64::from(*c) - sum - old).abs() <= bound
    })
}

#[test]
fn products_are_within_the_bound_in_every_layout_and_have_the_same_bits_twice() {
    let Some(device) = simulator::device() else {
        return;
    };
    let shapes = [
        (1, 1, 1),
        (3, 130, 40),
        (129, 66, 33),
        (64, 136, 200),
        (16, 8, 0),
        (70, 17, 96),
    ];
    for (at, (m, n, k)) in shapes.into_iter().enumerate() {
        for (layout, (op_a, op_b)) in LAYOUTS.into_iter().enumerate() {
            let numbers = NUMBERS[(at + layout) % 2];
            let stored = [DType::F32, DType::Bf16][(at / 2 + layout) % 2];
            let dims = |op, r, c| if op == Op::Plain { [r, c] } else { [c, r] };
            let a = stored_as(stored, &factor(&dims(op_a, m, k), 1, &device));
            let b = stored_as(stored, &factor(&dims(op_b, k, n), 2, &device));
            let old = random(&[m, n], 3, &device).unwrap();
            let place = (numbers, stored, m, n, k, op_a, op_b);
            let [mut factors_of_a, factors_of_b] =
                [(&a, op_a), (&b, op_b)].map(|(x, op)| rounded(numbers, x, op));
            for accumulate in [false, true] {
                let run = || {
                    let mut c = old.try_clone().unwrap();
                    product(numbers, &mut c, (&a, op_a), (&b, op_b), 8, accumulate).unwrap();
                    values(&c)
                };
                let (c, old) = (run(), values(&old));
                let old = accumulate.then_some(&old[..]);
                assert!(is_near(&c, &factors_of_a, &factors_of_b, old), "{place:?}");
                assert!(bits(&c) == bits(&run()), "{place:?}");
                // Must fail: one factor of the last k in place of its neighbour.
                if k > 1 && accumulate {
                    factors_of_a.0.swap(k - 2, k - 1);
                    assert!(!is_near(&c, &factors_of_a, &factors_of_b, old), "{place:?}");
                }
            }
        }
    }
}

#[test]
fn each_number_format_rounds_its_own_factors() {
    let Some(device) = simulator::device() else {
        return;
    };
    // 1 + 2^-9 is a half and no bf16; 2^-20 is a subnormal half; 1e5 is infinite in half
    let x = [1.0 + 1.0 / 512.0, 2f32.powi(-20), 1e5, -65519.0];
    let a = Tensor::from_f32(&[4, 1], &x, &device).unwrap();
    let one = Tensor::from_f32(&[1, 1], &[1.0], &device).unwrap();
    let of = |numbers| {
        let mut c = Tensor::zeros(&[4, 1], DType::F32, &device).unwrap();
        product(numbers, &mut c, &a, &one, 0, false).unwrap();
        values(&c)
    };
    let infinite = f32::INFINITY;
    assert_eq!(of(Numbers::F16Mma), [x[0], x[1], infinite, -65504.0]);
    assert_eq!(of(Numbers::Bf16Mma), [1.0, x[1], 99840.0, -65536.0]);
}

#[test]
fn every_half_is_rounded_as_the_cast_rounds() {
    let Some(device) = simulator::device() else {
        return;
    };
    let mut x: Vec<f32> = Vec::new();
    for exponent in 100..145_u32 {
        for fraction in [
            0, 1, 0xfff, 0x1000, 0x1001, 0x2fff, 0x3000, 0x3001, 0x7f_efff, 0x7f_f000,
        ] {
            x.push(f32::from_bits(exponent << 23 | fraction));
            x.push(-f32::from_bits(exponent << 23 | fraction));
        }
    }
    let a = Tensor::from_f32(&[x.len(), 1], &x, &device).unwrap();
    let one = Tensor::from_f32(&[1, 1], &[1.0], &device).unwrap();
    let mut c = Tensor::zeros(&[x.len(), 1], DType::F32, &device).unwrap();
    product(Numbers::F16Mma, &mut c, &a, &one, 0, false).unwrap();
    let x = Tensor::from_f32(&[x.len()], &x, &Device::cpu()).unwrap();
    let want = cast::rounded(&x, cast::Format::F16).unwrap();
    // a sum starts at +0.0
    let want: Vec<f32> = want.f32().iter().map(|x| x + 0.0).collect();
    assert_eq!(bits(&values(&c)), bits(&want));
}

#[test]
fn epilogues_have_the_bits_of_their_ops_apart() {
    let Some(device) = simulator::device() else {
        return;
    };
    for (numbers, dtype, n) in [
        (Numbers::Bf16Mma, DType::F32, 68),
        (Numbers::Bf16Mma, DType::Bf16, 132),
        (Numbers::F16Mma, DType::Bf16, 67),
    ] {
        let (m, k) = (70, 40);
        let a = random(&[m, k], 1, &device).unwrap();
        let b = random(&[n, k], 2, &device).unwrap();
        let bias = random(&[n], 3, &device).unwrap();
        let by = stored_as(dtype, &random(&[m, n], 4, &device).unwrap());
        let empty = || Tensor::zeros(&[m, n], dtype, &device).unwrap();
        let then = |then: Then<'_>| {
            let mut c = empty();
            product_then(numbers, &mut c, &a, b.transposed(), 16, then).unwrap();
            widened(&c)
        };
        let mut plain = Tensor::zeros(&[m, n], DType::F32, &device).unwrap();
        product(numbers, &mut plain, &a, b.transposed(), 16, false).unwrap();
        let same = |found: &Tensor, want: &Tensor| {
            assert!(bits(&values(found)) == bits(&values(&widened(&stored_as(dtype, want)))));
        };
        let mut biased = plain.try_clone().unwrap();
        add::bias(&mut biased, &bias).unwrap();
        same(&then(Then::Bias(&bias)), &biased);
        let scaled: Vec<f32> = values(&plain)
            .iter()
            .zip(values(&widened(&by)))
            .map(|(x, by)| x * by)
            .collect();
        let scaled = Tensor::from_f32(&[m, n], &scaled, &device).unwrap();
        same(&then(Then::Times(&by)), &scaled);
        let ones = Tensor::from_f32(&[m, n], &vec![1.0; m * n], &device).unwrap();
        for kind in [Kind::GeluTanh, Kind::SquaredRelu] {
            let mut values = empty();
            let bias = Some(&bias);
            let slopes = then(Then::Activation {
                kind,
                bias,
                values: &mut values,
            });
            same(
                &widened(&values),
                &activation::forward(&biased, None, kind).unwrap(),
            );
            let want = activation::backward(&ones, &biased, None, kind).unwrap();
            same(&slopes, &want);
        }
        let heads = Heads {
            heads: n / 12,
            kv_heads: n / 12,
            width: 4,
        };
        if heads.packed() != n {
            continue;
        }
        let frequencies = Frequencies::new(1e4, 4, &Scaling::Plain).unwrap();
        let turn = Turn {
            heads: &heads,
            positions: Positions::Run { t: m, offset: 2 },
            frequencies: &frequencies,
        };
        rope::forward(&mut biased, &turn).unwrap();
        let bias = Some(&bias);
        same(&then(Then::Rotary { bias, turn }), &biased);
    }
}

#[test]
fn experts_have_the_bits_of_their_products_alone_and_gradients_are_within_the_bound() {
    let Some(device) = simulator::device() else {
        return;
    };
    const COUNTS: [usize; 4] = [3, 0, 17, 9];
    for (numbers, stored, (k, n)) in [
        (Numbers::Bf16Mma, DType::Bf16, (24, 37)),
        (Numbers::F16Mma, DType::F32, (33, 16)),
    ] {
        let x = stored_as(stored, &random(&[29, k], 1, &device).unwrap());
        let dy = stored_as(stored, &random(&[29, n], 2, &device).unwrap());
        let weights: Vec<Tensor> = (0..4)
            .map(|e| random(&[n, k], 10 + e, &device).unwrap())
            .collect();
        let all: Vec<&Tensor> = weights.iter().collect();
        let given = (&all[..], Op::Transposed);
        let kind = (numbers, DType::F32);
        let y = values(&grouped_matmul::forward(kind, &x, given, &COUNTS, 8).unwrap());
        let dx = values(&grouped_matmul::backward_input(kind, &dy, given, &COUNTS, 8).unwrap());
        let leaves: Vec<Vec<usize>> = COUNTS.iter().map(|&n| vec![n / 2, n - n / 2]).collect();
        let old = random(&[n, k], 20, &device).unwrap();
        let mut grown: Vec<Tensor> = (0..4).map(|_| old.try_clone().unwrap()).collect();
        let mut to: Vec<&mut Tensor> = grown.iter_mut().collect();
        let dw = (&mut to[..], Op::Transposed);
        grouped_matmul::backward_weight(numbers, dw, &dy, &x, &leaves).unwrap();
        let mut first = 0;
        for (e, count) in COUNTS.into_iter().enumerate() {
            let part = |x: &Tensor| {
                let (x, (_, width)) = (values(&widened(x)), x.rows_cols());
                let rows = &x[first * width..][..count * width];
                stored_as(
                    stored,
                    &Tensor::from_f32(&[count, width], rows, &device).unwrap(),
                )
            };
            let (x, dy) = (part(&x), part(&dy));
            for (of, w, width, found) in [
                (&x, weights[e].transposed(), n, &y),
                (&dy, (&weights[e]).into(), k, &dx),
            ] {
                let mut alone = Tensor::zeros(&[count, width], DType::F32, &device).unwrap();
                product(numbers, &mut alone, of, w, 0, false).unwrap();
                let found = &found[first * width..][..count * width];
                assert!(bits(found) == bits(&values(&alone)), "{numbers:?} {e}");
            }
            let (a, b) = (
                rounded(numbers, &dy, Op::Transposed),
                rounded(numbers, &x, Op::Plain),
            );
            let old = values(&old);
            assert!(
                is_near(&values(&grown[e]), &a, &b, Some(&old)),
                "{numbers:?} {e}"
            );
            if count == 0 {
                assert_eq!(bits(&values(&grown[e])), bits(&old));
            }
            first += count;
        }
    }
}

#[test]
fn products_of_tensor_cores_are_refused_on_the_cpu() {
    let device = Device::cpu();
    let x = || Tensor::zeros(&[4, 4], DType::F32, &device).unwrap();
    for numbers in [Numbers::Bf16Mma, Numbers::F16Mma] {
        let plain = product(numbers, &mut x(), &x(), &x(), 0, false);
        let then = product_then(numbers, &mut x(), &x(), &x(), 0, Then::Times(&x()));
        let grouped =
            grouped_matmul::forward((numbers, DType::F32), &x(), (&[&x()], Op::Plain), &[4], 0);
        for refused in [plain, then, grouped.map(drop)] {
            let error = refused.unwrap_err();
            assert!(matches!(error, Error::NotImplemented { .. }), "{error}");
        }
    }
}
