//! Matrix product c = op(a) op(b), or c += op(a) op(b).
//!
//! The sum over k is cut into leaves of `leaf` elements. A leaf is one chain `acc = fma(a[k], b[k], acc)` from 0 in
//! ascending k; leaves are merged by the binary-counter tree: two neighbouring blocks merge when they have the same
//! power-of-two number of leaves and an aligned start, and the rest at the end merges from the right. With factors
//! rounded to bf16 a leaf's chain takes pairs of k, the odd one first (`cpu/bf16.rs`); an odd leaf's last pair is
//! padded with zeros; `Numbers::Bf16Tiles` takes blocks of 32 of k (`cpu/tiles/`). `Bf16Mma` and `F16Mma`
//! are for GPUs: one chain of `mma.sync` in ascending k, whatever the leaves are (`mma.rs`). Nothing else (m, n, threads,
//! instruction set) touches the bits.

mod cpu;
pub(super) mod cuda;
pub(super) mod eight_bits;
pub(super) mod mma;
#[cfg(test)]
mod on_tensor_cores;
mod operand;
mod packed;
#[cfg(test)]
mod rounded_rows;
mod sides;

pub use crate::descriptor::numbers::Numbers;
use crate::{DType, Error, Result, Tensor};
pub use eight_bits::{Eight, End, has_eight_bits, product_of_eight};
pub use operand::{Factor, Op, Operand, Packed, Then};
use operand::{Factors, flattened};

/// Computes c = a b, or adds to c (one rounding) when `accumulate`; an operand is a tensor or `tensor.transposed()`. `leaf` is in elements of
/// k; 0 or anything from k up is one leaf.
/// # Shapes
/// Leading dims of each tensor are flattened into rows. op(a): `[m, k]`, op(b): `[k, n]`, c: `[m, n]`.
/// # Errors
/// `Shape` or `DType` if the operands do not fit; `Memory` if packed copies do not fit.
pub fn matmul<'a, 'b>(
    c: &mut Tensor,
    a: impl Into<Operand<'a>>,
    b: impl Into<Operand<'b>>,
    leaf: usize,
    accumulate: bool,
) -> Result<()> {
    product(Numbers::F32, c, a, b.into(), leaf, accumulate)
}

/// Like `matmul`, with factors rounded to `numbers` while they are packed; sums are f32.
///
/// With bf16 numbers each of a, b and c may be stored in bf16: such a result is rounded once, and cannot be
/// accumulated into. A packed factor gives the same bits as the stored one.
/// # Shapes
/// As `matmul`.
/// # Errors
/// As `matmul`; `Argument` if b was packed for other numbers or leaves.
pub fn product<'a, 'b>(
    numbers: Numbers,
    c: &mut Tensor,
    a: impl Into<Operand<'a>>,
    b: impl Into<Factor<'b>>,
    leaf: usize,
    accumulate: bool,
) -> Result<()> {
    let factors = Factors {
        numbers,
        leaf,
        a: a.into(),
        b: b.into(),
    };
    check(c, &factors, accumulate)?;
    let device = c.device().clone();
    try_dispatch!(device, product(c, factors, accumulate));
    Ok(())
}

/// Like `product`, with a fused epilogue that has the bits of `add::bias`, `activation` and `rope::forward`. All of
/// it is in f32; outputs in bf16 are rounded last.
/// # Shapes
/// As `matmul` and `Then`.
/// # Errors
/// As `product`.
pub fn product_then<'a, 'b>(
    numbers: Numbers,
    c: &mut Tensor,
    a: impl Into<Operand<'a>>,
    b: impl Into<Factor<'b>>,
    leaf: usize,
    then: Then<'_>,
) -> Result<()> {
    const OP: &str = "matmul::product_then";
    let factors = Factors {
        numbers,
        leaf,
        a: a.into(),
        b: b.into(),
    };
    let (_, n) = check(c, &factors, false)?;
    then.check(OP, c, n)?;
    let device = c.device().clone();
    try_dispatch!(device, product_then(c, factors, then));
    Ok(())
}

/// Rows and columns of a product whose operands fit.
fn check(c: &Tensor, factors: &Factors<'_>, accumulate: bool) -> Result<(usize, usize)> {
    const OP: &str = "matmul";
    let Factors {
        numbers,
        leaf,
        a,
        b,
    } = *factors;
    numbers.expect_on(OP, c.device())?;
    let number = |name, x: &Tensor, may_be_bf16| match may_be_bf16 {
        true => x.expect_number(OP, name),
        false => x.expect(OP, name, DType::F32),
    };
    number("a", a.tensor, numbers.are_pairs())?;
    number("c", c, numbers.are_pairs() && !accumulate)?;
    let (m, k) = flattened(a);
    let (k_of_b, n) = match b {
        Factor::Stored(b) => {
            number("b", b.tensor, numbers.are_pairs())?;
            flattened(b)
        }
        Factor::Packed(b) if numbers == b.numbers && b.leaf == leaf => (b.k, b.n),
        Factor::Packed(b) => {
            return Err(Error::Argument {
                op: OP,
                name: "b",
                found: format!("packed for {:?} and leaves of {}", b.numbers, b.leaf),
                wanted: format!("for {numbers:?} and leaves of {leaf}"),
            });
        }
    };
    if k != k_of_b {
        let wanted = format!(
            "{k} rows after its op, as a {:?} has {k} columns",
            a.tensor.dims()
        );
        return Err(Error::Shape {
            op: OP,
            name: "b",
            found: match b {
                Factor::Stored(b) => b.tensor.dims().to_vec(),
                Factor::Packed(b) => vec![b.k, b.n],
            },
            wanted,
        });
    }
    if c.rows_cols() != (m, n) {
        let wanted = format!("[{m}, {n}] with leading dims flattened");
        return Err(Error::Shape {
            op: OP,
            name: "c",
            found: c.dims().to_vec(),
            wanted,
        });
    }
    Ok((m, n))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::activation::Kind;
    use crate::rope::Turn;
    use crate::rope::{self, Frequencies, Positions, Scaling};
    use crate::testing::{
        assert_same_bits, bits, devices, random, stored_as, takes_long, tree, widened,
    };
    use crate::{Device, Heads, activation, add};
    use proptest::prelude::*;

    /// Number formats of products, and how their results may be stored.
    const RESULTS: [(Numbers, DType); 5] = [
        (Numbers::F32, DType::F32),
        (Numbers::Bf16, DType::F32),
        (Numbers::Bf16, DType::Bf16),
        (Numbers::Bf16Tiles, DType::F32),
        (Numbers::Bf16Tiles, DType::Bf16),
    ];

    fn at(x: &Tensor, op: Op, row: usize, col: usize) -> f32 {
        let (_, cols) = x.rows_cols();
        if op == Op::Plain {
            x.f32()[row * cols + col]
        } else {
            x.f32()[col * cols + row]
        }
    }

    /// The definition, element by element.
    fn naive(c: &Tensor, a: (&Tensor, Op), b: (&Tensor, Op), leaf: usize, add: bool) -> Vec<f32> {
        summed(c, (a, b), leaf, add, |a, b| {
            a.iter()
                .zip(b)
                .fold(0.0_f32, |acc, (a, b)| a.mul_add(*b, acc))
        })
    }

    /// Like `naive` with factors rounded to bf16; normal numbers only.
    fn naive_bf16(
        c: &Tensor,
        a: (&Tensor, Op),
        b: (&Tensor, Op),
        leaf: usize,
        add: bool,
    ) -> Vec<f32> {
        let rounded = |x: f32| {
            let step = f32::from_bits(x.to_bits() & 0x7f80_0000) / 128.0;
            (x / step).round_ties_even() * step
        };
        summed(c, (a, b), leaf, add, |a, b| {
            a.chunks(2).zip(b.chunks(2)).fold(0.0_f32, |acc, (a, b)| {
                let pair = a.iter().zip(b).rev();
                pair.fold(acc, |acc, (a, b)| rounded(*a).mul_add(rounded(*b), acc))
            })
        })
    }

    /// The tree over leaves of `chain`.
    fn summed(
        c: &Tensor,
        (a, b): ((&Tensor, Op), (&Tensor, Op)),
        leaf: usize,
        add: bool,
        chain: impl Fn(&[f32], &[f32]) -> f32,
    ) -> Vec<f32> {
        let (m, n) = c.rows_cols();
        let (_, k) = flattened(a.into());
        let leaf = if leaf == 0 { k.max(1) } else { leaf };
        let row = |i| (0..k).map(|p| at(a.0, a.1, i, p)).collect::<Vec<_>>();
        let column = |j| (0..k).map(|p| at(b.0, b.1, p, j)).collect::<Vec<_>>();
        let columns: Vec<Vec<f32>> = (0..n).map(column).collect();
        let mut out = c.f32().to_vec();
        for i in 0..m {
            let row = row(i);
            for (j, column) in columns.iter().enumerate() {
                let sum = tree(
                    row.chunks(leaf)
                        .zip(column.chunks(leaf))
                        .map(|(a, b)| chain(a, b)),
                );
                let c = &mut out[i * n + j];
                *c = if add { *c + sum } else { sum };
            }
        }
        out
    }

    #[test]
    fn every_path_has_the_bits_of_the_definition() {
        let shapes = [
            (1, 1, 1),
            (1, 33, 65),
            (2, 17, 40),
            (3, 64, 31),
            (5, 7, 300),
            (12, 32, 64),
            (13, 33, 67),
            (25, 100, 129),
            (37, 65, 1000),
            (130, 70, 96),
            (97, 257, 33),
            (49, 1, 300),
            (98, 8, 67),
            (60, 16, 1700),
        ];
        for device in devices() {
            for (m, n, k) in shapes {
                for (op_a, op_b) in [
                    (Op::Plain, Op::Plain),
                    (Op::Transposed, Op::Plain),
                    (Op::Plain, Op::Transposed),
                    (Op::Transposed, Op::Transposed),
                ] {
                    let dims = |op, r, c| if op == Op::Plain { [r, c] } else { [c, r] };
                    let a = random(&dims(op_a, m, k), 1, &device).unwrap();
                    let b = random(&dims(op_b, k, n), 2, &device).unwrap();
                    for leaf in [0, 1, 7, 32, k] {
                        for add in [false, true] {
                            let mut c = random(&[m, n], 3, &device).unwrap();
                            let want = naive(&c, (&a, op_a), (&b, op_b), leaf, add);
                            matmul(&mut c, (&a, op_a), (&b, op_b), leaf, add).unwrap();
                            let same = bits(c.f32()) == bits(&want);
                            let place = (m, n, k, op_a, op_b, leaf, add);
                            assert!(same, "{device:?} {place:?}");
                            if add != (leaf == 7) {
                                continue; // slow where instructions are emulated
                            }
                            let (a, b) = ((&a, op_a), (&b, op_b));
                            let mut c = random(&[m, n], 3, &device).unwrap();
                            let want = naive_bf16(&c, a, b, leaf, add);
                            product(Numbers::Bf16, &mut c, a, b, leaf, add).unwrap();
                            let same = bits(c.f32()) == bits(&want);
                            assert!(same, "bf16 {device:?} {place:?}");
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn every_device_gives_the_same_bits() {
        const KINDS: [Kind; 6] = [
            Kind::GeluTanh,
            Kind::GeluErf,
            Kind::QuickGelu,
            Kind::Relu,
            Kind::SquaredRelu,
            Kind::Tanh,
        ];
        assert_same_bits(|device| {
            let mut all = Vec::new();
            for (m, n, k, leaf) in [
                (1, 1, 1, 0),
                (3, 64, 31, 8),
                (65, 70, 40, 5),
                (13, 130, 100, 32),
            ] {
                for (op_a, op_b) in [(Op::Plain, Op::Transposed), (Op::Transposed, Op::Plain)] {
                    let dims = |op, r, c| if op == Op::Plain { [r, c] } else { [c, r] };
                    let a = random(&dims(op_a, m, k), 1, device).unwrap();
                    let b = random(&dims(op_b, k, n), 2, device).unwrap();
                    let bias = random(&[n], 3, device).unwrap();
                    let (a, b) = ((&a, op_a), (&b, op_b));
                    for (numbers, dtype) in RESULTS.into_iter().take(3) {
                        if dtype == DType::F32 {
                            let mut c = random(&[m, n], 4, device).unwrap();
                            product(numbers, &mut c, a, b, leaf, true).unwrap();
                            all.push(c);
                        }
                        let mut end = |then: Then<'_>| {
                            let mut c = Tensor::zeros(&[m, n], dtype, device).unwrap();
                            product_then(numbers, &mut c, a, b, leaf, then).unwrap();
                            all.push(widened(&c));
                        };
                        end(Then::Bias(&bias));
                        let by = stored_as(dtype, &random(&[m, n], 5, device).unwrap());
                        end(Then::Times(&by));
                        for kind in KINDS {
                            let mut values = Tensor::zeros(&[m, n], dtype, device).unwrap();
                            let bias = (kind != Kind::Relu).then_some(&bias);
                            let then = Then::Activation {
                                kind,
                                bias,
                                values: &mut values,
                            };
                            end(then);
                        }
                    }
                }
            }
            all
        });
    }

    #[test]
    fn extreme_numbers_have_the_same_bits_on_every_device() {
        let strange = [
            0.0,
            -0.0,
            1e-40,
            -1e-40,
            1e-20,
            3e-20,
            -2e-19,
            1e38,
            -3e38,
            1.0,
            f32::MIN_POSITIVE,
        ];
        assert_same_bits(|device| {
            let of = |seed: usize, n: usize| -> Vec<f32> {
                (0..n)
                    .map(|i| strange[(i * seed + i / 7) % strange.len()])
                    .collect()
            };
            let a = Tensor::from_f32(&[9, 33], &of(3, 9 * 33), device).unwrap();
            let b = Tensor::from_f32(&[33, 20], &of(5, 33 * 20), device).unwrap();
            [Numbers::F32, Numbers::Bf16]
                .map(|numbers| {
                    let mut c = Tensor::zeros(&[9, 20], DType::F32, device).unwrap();
                    product(numbers, &mut c, &a, &b, 7, false).unwrap();
                    // a NaN's sign is its processor's
                    let c = crate::testing::values(&c);
                    let c: Vec<f32> = c
                        .into_iter()
                        .map(|x| if x.is_nan() { 7.0 } else { x })
                        .collect();
                    Tensor::from_f32(&[9, 20], &c, device).unwrap()
                })
                .into()
        });
    }

    #[test]
    fn long_k_in_many_cache_blocks_has_the_bits_of_the_definition() {
        for device in devices() {
            for (m, n) in [(3, 40), (14, 33), (50, 35)] {
                for k in [3000, 4500] {
                    let a = random(&[k, m], 1, &device).unwrap();
                    let b = random(&[k, n], 2, &device).unwrap();
                    for leaf in [0, 3, 100, 512, 1101, 2048] {
                        let mut c = random(&[m, n], 3, &device).unwrap();
                        let (a, b) = ((&a, Op::Transposed), (&b, Op::Plain));
                        let want = naive(&c, a, b, leaf, true);
                        matmul(&mut c, a, b, leaf, true).unwrap();
                        let place = (m, n, k, leaf);
                        assert!(bits(c.f32()) == bits(&want), "{device:?} {place:?}");
                        if ![0, 3, 1101].contains(&leaf) {
                            continue; // slow where instructions are emulated
                        }
                        let mut c = random(&[m, n], 3, &device).unwrap();
                        let want = naive_bf16(&c, a, b, leaf, true);
                        product(Numbers::Bf16, &mut c, a, b, leaf, true).unwrap();
                        assert!(bits(c.f32()) == bits(&want), "bf16 {device:?} {place:?}");
                    }
                }
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..Default::default() })]

        #[test]
        fn random_products_have_the_bits_of_the_definition(
            m in 1_usize..60, n in 1_usize..90, k in 0_usize..200, leaf in 0_usize..220,
            ops in 0_usize..4, add: bool, threads in 1_usize..4, seed in 0_u64..1000,
        ) {
            let device = Device::cpu();
            let ops = [[Op::Plain, Op::Transposed][ops % 2], [Op::Plain, Op::Transposed][ops / 2]];
            let dims = |op, r, c| if op == Op::Plain { [r, c] } else { [c, r] };
            let a = random(&dims(ops[0], m, k), seed, &device).unwrap();
            let b = random(&dims(ops[1], k, n), seed + 1, &device).unwrap();
            let mut c = random(&[m, n], seed + 2, &device).unwrap();
            let (a, b) = ((&a, ops[0]), (&b, ops[1]));
            let want = naive(&c, a, b, leaf, add);
            let want_bf16 = naive_bf16(&c, a, b, leaf, add);
            let mut c_bf16 = c.try_clone().unwrap();
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| matmul(&mut c, a, b, leaf, add)).unwrap();
            prop_assert_eq!(bits(c.f32()), bits(&want));
            pool.install(|| product(Numbers::Bf16, &mut c_bf16, a, b, leaf, add)).unwrap();
            prop_assert_eq!(bits(c_bf16.f32()), bits(&want_bf16));
        }
    }

    #[test]
    fn what_follows_a_product_has_the_bits_of_ops_of_its_own() {
        const KINDS: [Kind; 6] = [
            Kind::GeluTanh,
            Kind::GeluErf,
            Kind::QuickGelu,
            Kind::Relu,
            Kind::SquaredRelu,
            Kind::Tanh,
        ];
        let shapes = [
            (1, 65, 33),
            (5, 300, 7),
            (61, 67, 40),
            (130, 96, 2100),
            (7, 40, 0),
        ];
        for device in devices() {
            let cases = (shapes.iter()).flat_map(|shape| RESULTS.map(|result| (*shape, result)));
            for ((m, n, k), (numbers, dtype)) in cases {
                if takes_long(&device, m * n * k) {
                    continue;
                }
                let a = random(&[m, k], 1, &device).unwrap();
                let b = random(&[k, n], 2, &device).unwrap();
                let bias = random(&[n], 3, &device).unwrap();
                let by = stored_as(dtype, &random(&[m, n], 4, &device).unwrap());
                let empty = || Tensor::zeros(&[m, n], dtype, &device).unwrap();
                let (a, b) = ((&a, Op::Plain), (&b, Op::Plain));
                let then = |then: Then<'_>| {
                    let mut c = empty();
                    product_then(numbers, &mut c, a, b, 16, then).unwrap();
                    c
                };
                let mut plain = Tensor::zeros(&[m, n], DType::F32, &device).unwrap();
                product(numbers, &mut plain, a, b, 16, false).unwrap();
                let mut alone = empty();
                product(numbers, &mut alone, a, b, 16, false).unwrap();
                let same =
                    |found: &Tensor, want: &Tensor| found.bytes() == stored_as(dtype, want).bytes();
                let place = (&device, m, n, k, numbers, dtype);
                assert!(same(&alone, &plain), "{place:?}");
                let mut biased = plain.try_clone().unwrap();
                add::bias(&mut biased, &bias).unwrap();
                assert!(same(&then(Then::Bias(&bias)), &biased), "{place:?}");
                let mut scaled = plain.try_clone().unwrap();
                (scaled.f32_mut().iter_mut().zip(widened(&by).f32())).for_each(|(x, by)| *x *= by);
                assert!(same(&then(Then::Times(&by)), &scaled), "{place:?}");
                let mut ones = plain.try_clone().unwrap();
                ones.f32_mut().fill(1.0);
                for kind in KINDS {
                    for (bias, before) in [(Some(&bias), &biased), (None, &plain)] {
                        let mut values = empty();
                        let slopes = then(Then::Activation {
                            kind,
                            bias,
                            values: &mut values,
                        });
                        let want = activation::forward(before, None, kind).unwrap();
                        assert!(same(&values, &want), "{place:?} {kind:?}");
                        let want = activation::backward(&ones, before, None, kind).unwrap();
                        assert!(same(&slopes, &want), "{place:?} {kind:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn operands_in_bf16_give_the_bits_of_the_same_numbers_in_f32() {
        for device in devices() {
            for (m, n, k) in [(1, 65, 33), (5, 300, 7), (61, 67, 100), (70, 96, 2100)] {
                for ops in [
                    [Op::Plain, Op::Plain],
                    [Op::Transposed, Op::Plain],
                    [Op::Plain, Op::Transposed],
                ] {
                    let dims = |op, r, c| if op == Op::Plain { [r, c] } else { [c, r] };
                    let a = random(&dims(ops[0], m, k), 1, &device).unwrap();
                    let b = random(&dims(ops[1], k, n), 2, &device).unwrap();
                    let half = [&a, &b].map(|x| stored_as(DType::Bf16, x));
                    for numbers in [Numbers::Bf16, Numbers::Bf16Tiles] {
                        let of = |a: &Tensor, b: &Tensor, leaf| {
                            let mut c = Tensor::zeros(&[m, n], DType::F32, &device).unwrap();
                            product(numbers, &mut c, (a, ops[0]), (b, ops[1]), leaf, true).unwrap();
                            bits(c.f32())
                        };
                        for leaf in [0, 7, 32] {
                            let want = of(&a, &b, leaf);
                            let place = (&device, m, n, k, ops, numbers, leaf);
                            assert!(of(&half[0], &half[1], leaf) == want, "{place:?}");
                            assert!(of(&a, &half[1], leaf) == want, "{place:?}");
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn heads_turn_in_a_product_as_they_do_after_it() {
        // rows, rows of a sequence, heads and their keys' and width, rotated features, k
        let shapes = [
            (7, 7, (2, 1, 10), 10, 33),
            (130, 65, (4, 2, 10), 6, 40),
            (300, 100, (6, 3, 24), 24, 70),
            (130, 65, (2, 1, 64), 64, 2100),
            (260, 65, (8, 8, 64), 32, 48),
        ];
        for device in devices() {
            let cases = (shapes.iter()).flat_map(|shape| RESULTS.map(|result| (*shape, result)));
            for ((m, t, (heads, kv_heads, width), rotary, k), (numbers, dtype)) in cases {
                let heads = Heads {
                    heads,
                    kv_heads,
                    width,
                };
                if takes_long(&device, m * heads.packed() * k) {
                    continue;
                }
                let (n, frequencies) = (
                    heads.packed(),
                    Frequencies::new(100.0, rotary, &Scaling::Plain).unwrap(),
                );
                let turn = Turn {
                    heads: &heads,
                    positions: Positions::Run { t, offset: 3 },
                    frequencies: &frequencies,
                };
                let a = random(&[m, k], 1, &device).unwrap();
                let b = random(&[n, k], 2, &device).unwrap();
                let bias = random(&[n], 3, &device).unwrap();
                let (a, b) = ((&a, Op::Plain), (&b, Op::Transposed));
                for bias in [None, Some(&bias)] {
                    let mut want = Tensor::zeros(&[m, n], DType::F32, &device).unwrap();
                    product(numbers, &mut want, a, b, 16, false).unwrap();
                    if let Some(bias) = bias {
                        add::bias(&mut want, bias).unwrap();
                    }
                    let plain = bits(want.f32());
                    rope::forward(&mut want, &turn).unwrap();
                    assert!(plain != bits(want.f32()), "it turns");
                    for threads in [1, 3] {
                        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads);
                        let found = pool.build().unwrap().install(|| {
                            let mut c = Tensor::zeros(&[m, n], dtype, &device).unwrap();
                            let then = Then::Rotary { bias, turn };
                            product_then(numbers, &mut c, a, b, 16, then).unwrap();
                            c
                        });
                        let place = (&device, m, n, k, numbers, dtype, bias.is_some(), threads);
                        let same = found.bytes() == stored_as(dtype, &want).bytes();
                        assert!(same, "{place:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn packed_factors_give_the_bits_of_stored_ones() {
        let shapes = [
            (1, 65, 33),
            (1, 700, 600),
            (2, 33, 1300),
            (2, 300, 1700),
            (13, 40, 7),
            (70, 96, 300),
            (130, 67, 100),
            (200, 900, 64),
            (5, 40, 0),
        ];
        for device in devices() {
            let cases = shapes
                .iter()
                .flat_map(|shape| [Op::Plain, Op::Transposed].map(|op| (*shape, op)))
                .flat_map(|case| {
                    [Numbers::Bf16Tiles, Numbers::Bf16, Numbers::F32].map(|numbers| (case, numbers))
                });
            for (((m, n, k), op), numbers) in cases {
                let a = random(&[m, k], 1, &device).unwrap();
                let dims = if op == Op::Plain { [k, n] } else { [n, k] };
                let b = random(&dims, 2, &device).unwrap();
                let half = match numbers {
                    Numbers::F32 => b.try_clone().unwrap(),
                    _ => stored_as(DType::Bf16, &b),
                };
                let bias = random(&[n], 3, &device).unwrap();
                let a = (&a, Op::Plain);
                for leaf in [0, 12, 32] {
                    let empty = || Tensor::zeros(&[m, n], DType::F32, &device).unwrap();
                    let mut want = empty();
                    product(numbers, &mut want, a, (&b, op), leaf, false).unwrap();
                    for (b, threads) in [(&b, 1), (&half, 3)] {
                        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads);
                        let [found, then] = pool.build().unwrap().install(|| {
                            let packed = Packed::new(numbers, (b, op), leaf, &device);
                            let packed = packed.unwrap().unwrap();
                            if numbers == Numbers::Bf16Tiles {
                                let bytes = Packed::bytes_in_tiles(k, n, leaf);
                                assert_eq!(packed.bytes(), bytes);
                            }
                            let (mut found, mut then) = (empty(), empty());
                            product(numbers, &mut found, a, &packed, leaf, false).unwrap();
                            let bias = Then::Bias(&bias);
                            product_then(numbers, &mut then, a, &packed, leaf, bias).unwrap();
                            [found, then]
                        });
                        let place = (&device, numbers, m, n, k, op, leaf, threads);
                        assert!(bits(found.f32()) == bits(want.f32()), "{place:?}");
                        let mut biased = want.try_clone().unwrap();
                        add::bias(&mut biased, &bias).unwrap();
                        assert!(bits(then.f32()) == bits(biased.f32()), "{place:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn what_follows_a_product_has_to_fit_it() {
        let device = Device::cpu();
        let x = |r, c| Tensor::zeros(&[r, c], DType::F32, &device).unwrap();
        let (a, b) = (x(2, 3), x(3, 4));
        let then = |then: Then<'_>| {
            let (a, b) = ((&a, Op::Plain), (&b, Op::Plain));
            product_then(Numbers::F32, &mut x(2, 4), a, b, 0, then)
        };
        let kind = Kind::Relu;
        let bias = Tensor::zeros(&[3], DType::F32, &device).unwrap();
        let wrong = then(Then::Bias(&bias));
        assert!(matches!(wrong, Err(Error::Shape { name: "bias", .. })));
        let (bias, values) = (None, &mut x(4, 2));
        let wrong = then(Then::Activation { kind, bias, values });
        assert!(matches!(wrong, Err(Error::Shape { name: "values", .. })));
        let wrong = then(Then::Times(&x(2, 3)));
        assert!(matches!(wrong, Err(Error::Shape { name: "by", .. })));
        let halves = Tensor::zeros(&[2, 4], DType::Bf16, &device).unwrap();
        let wrong = then(Then::Times(&halves));
        assert!(matches!(wrong, Err(Error::DType { name: "by", .. })));
        let heads = Heads {
            heads: 1,
            kv_heads: 1,
            width: 2,
        };
        let frequencies = Frequencies::new(100.0, 2, &Scaling::Plain).unwrap();
        let positions = Positions::Run { t: 2, offset: 0 };
        let turn = Turn {
            heads: &heads,
            positions,
            frequencies: &frequencies,
        };
        let wrong = then(Then::Rotary { bias: None, turn });
        assert!(matches!(wrong, Err(Error::Shape { name: "c", .. })));
    }

    #[test]
    fn columns_alone_have_the_bits_of_the_larger_product() {
        let device = Device::cpu();
        let (m, n, k) = (70, 150, 513);
        let a = random(&[m, k], 1, &device).unwrap();
        let b = random(&[n, k], 2, &device).unwrap();
        let mut whole = Tensor::zeros(&[m, n], DType::F32, &device).unwrap();
        matmul(&mut whole, (&a, Op::Plain), (&b, Op::Transposed), 64, false).unwrap();
        for (first, len) in [(0, 1), (31, 2), (64, 50), (149, 1)] {
            let rows = &b.f32()[first * k..(first + len) * k];
            let b = Tensor::from_f32(&[len, k], rows, &device).unwrap();
            let mut part = Tensor::zeros(&[m, len], DType::F32, &device).unwrap();
            matmul(&mut part, (&a, Op::Plain), (&b, Op::Transposed), 64, false).unwrap();
            for i in 0..m {
                let same = &whole.f32()[i * n + first..][..len];
                assert_eq!(bits(&part.f32()[i * len..][..len]), bits(same), "row {i}");
            }
        }
    }

    #[test]
    fn shards_of_k_merged_as_blocks_have_the_bits_of_one_product() {
        let device = Device::cpu();
        let (m, n, k) = (19, 40, 256);
        let a = random(&[m, k], 1, &device).unwrap();
        let b = random(&[k, n], 2, &device).unwrap();
        let zeros = || Tensor::zeros(&[m, n], DType::F32, &device).unwrap();
        let mut whole = zeros();
        matmul(&mut whole, (&a, Op::Plain), (&b, Op::Plain), k / 8, false).unwrap();
        let half = |first: usize| {
            let rows = (0..m).flat_map(|i| a.f32()[i * k + first..][..k / 2].to_vec());
            let a = Tensor::from_f32(&[m, k / 2], &rows.collect::<Vec<_>>(), &device).unwrap();
            let rows = &b.f32()[first * n..(first + k / 2) * n];
            let b = Tensor::from_f32(&[k / 2, n], rows, &device).unwrap();
            let mut c = zeros();
            matmul(&mut c, (&a, Op::Plain), (&b, Op::Plain), k / 8, false).unwrap();
            c
        };
        let (mut left, right) = (half(0), half(k / 2));
        crate::reduce::tree_add_into(&mut left, &right).unwrap();
        assert_eq!(bits(left.f32()), bits(whole.f32()));
    }

    #[test]
    fn another_tree_gives_other_bits() {
        let device = Device::cpu();
        let a = random(&[20, 256], 1, &device).unwrap();
        let b = random(&[256, 20], 2, &device).unwrap();
        let product = |leaf| {
            let mut c = Tensor::zeros(&[20, 20], DType::F32, &device).unwrap();
            matmul(&mut c, (&a, Op::Plain), (&b, Op::Plain), leaf, false).unwrap();
            bits(c.f32())
        };
        assert_ne!(product(32), product(0));
        assert_ne!(product(32), product(64));
    }

    #[test]
    fn shapes_that_do_not_fit_are_errors() {
        let device = Device::cpu();
        let x = |r, c| Tensor::zeros(&[r, c], DType::F32, &device).unwrap();
        const P: Op = Op::Plain;
        let wrong = matmul(&mut x(2, 4), (&x(2, 3), P), (&x(4, 4), P), 0, false);
        assert!(matches!(wrong, Err(Error::Shape { name: "b", .. })));
        let wrong = matmul(&mut x(2, 5), (&x(2, 3), P), (&x(3, 4), P), 0, false);
        assert!(matches!(wrong, Err(Error::Shape { name: "c", .. })));
        let ids = Tensor::zeros(&[2, 3], DType::U32, &device).unwrap();
        let wrong = matmul(&mut x(2, 4), (&ids, P), (&x(3, 4), P), 0, false);
        assert!(matches!(wrong, Err(Error::DType { name: "a", .. })));
        let half = |r, c| Tensor::zeros(&[r, c], DType::Bf16, &device).unwrap();
        let wrong = matmul(&mut x(2, 4), (&half(2, 3), P), (&x(3, 4), P), 0, false);
        assert!(matches!(wrong, Err(Error::DType { name: "a", .. })));
        let (a, b) = ((&x(2, 3), P), (&x(3, 4), P));
        let wrong = product(Numbers::Bf16, &mut half(2, 4), a, b, 0, true);
        assert!(matches!(wrong, Err(Error::DType { name: "c", .. })));
    }
}
