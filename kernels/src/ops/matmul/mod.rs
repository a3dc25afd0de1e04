//! Matrix product c = op(a) op(b), or c += op(a) op(b).
//!
//! The sum over k is cut into leaves of `leaf` elements. A leaf is one chain `acc = fma(a[k], b[k], acc)`
//! from 0 in ascending k; leaves are merged by the binary-counter tree: two neighbouring blocks merge
//! when they have the same power-of-two number of leaves and an aligned start, and what is left at
//! the end merges from the right. With factors rounded to bf16 a leaf's chain takes pairs of k, the odd one
//! first (`cpu/bf16.rs`); an odd leaf's last pair is filled with zeros; `Numbers::Bf16Tiles` takes
//! blocks of 32 of k (`cpu/tiles/`). Nothing else (m, n, threads, instruction set) touches the bits.

mod cpu;

pub use crate::cpu::Numbers;
use crate::{Error, Result, Tensor};

/// How an operand is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// As the product uses it.
    Plain,
    /// With rows and columns swapped.
    Transposed,
}

/// Computes c = op(a) op(b), or adds to c (one rounding) when `accumulate`. `leaf` is in elements of
/// k; 0 or anything from k up is one leaf.
/// # Shapes
/// Leading dims of each tensor are flattened into rows. op(a): `[m, k]`, op(b): `[k, n]`, c: `[m, n]`.
/// # Errors
/// `Shape` or `DType` if the operands do not fit; `Memory` if packed copies do not fit.
pub fn matmul(
    c: &mut Tensor,
    a: (&Tensor, Op),
    b: (&Tensor, Op),
    leaf: usize,
    accumulate: bool,
) -> Result<()> {
    product(Numbers::F32, c, a, b, leaf, accumulate)
}

/// As `matmul`, of factors rounded to `numbers` while they are packed; the sum and c are f32.
/// # Shapes
/// As `matmul`.
/// # Errors
/// As `matmul`.
pub fn product(
    numbers: Numbers,
    c: &mut Tensor,
    a: (&Tensor, Op),
    b: (&Tensor, Op),
    leaf: usize,
    accumulate: bool,
) -> Result<()> {
    const OP: &str = "matmul";
    let (m, k) = flattened("a", a)?;
    let (k_of_b, n) = flattened("b", b)?;
    if k != k_of_b {
        let wanted = format!(
            "{k} rows after its op, as a {:?} has {k} columns",
            a.0.dims()
        );
        return Err(Error::Shape {
            op: OP,
            name: "b",
            found: b.0.dims().to_vec(),
            wanted,
        });
    }
    c.expect(OP, "c", crate::DType::F32)?;
    if c.rows_cols() != (m, n) {
        let wanted = format!("[{m}, {n}] with leading dims flattened");
        return Err(Error::Shape {
            op: OP,
            name: "c",
            found: c.dims().to_vec(),
            wanted,
        });
    }
    let device = c.device().clone();
    dispatch!(device, product(numbers, c, a, b, leaf, accumulate))
}

fn flattened(name: &'static str, (x, op): (&Tensor, Op)) -> Result<(usize, usize)> {
    x.expect("matmul", name, crate::DType::F32)?;
    let (rows, cols) = x.rows_cols();
    Ok(if op == Op::Plain {
        (rows, cols)
    } else {
        (cols, rows)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{bits, devices, random, tree};
    use crate::{DType, Device};
    use proptest::prelude::*;

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

    /// As `naive` with factors rounded to bf16; normal numbers only.
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
        let (_, k) = flattened("a", a).unwrap();
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
    }
}
