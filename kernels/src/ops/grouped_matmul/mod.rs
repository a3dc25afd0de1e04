//! One matrix product per expert on ragged rows: `y_e = x_e op(w_e)`, rows of expert e after those of e - 1.
//! Each expert's matrix is a separate tensor, so the set of local experts does not affect their storage.
//!
//! Every element has the bits of `matmul::product` with the same numbers on its expert alone: leaves of `leaf`
//! elements of k, one chain each, and the binary-counter tree. With numbers of bf16 each operand may be stored in
//! bf16. The gradient of the weights is a sum over tokens: its leaves are given as rows per leaf, because an
//! expert's number of rows differs per chunk of tokens; a leaf without rows adds nothing. Which other experts are
//! computed changes no bits. Dropless form: Gale et al. 2022, arXiv:2211.15841.
//!
//! Counts may be on the device alone (`Counts::OnDevice`): then the rows have room for every split, and a launch has blocks
//! for each.

mod cpu;
pub(super) mod cuda;
mod groups;

use crate::matmul::{Numbers, Op, Packed};
use crate::{DType, Error, Result, Tensor};
pub use groups::{Counts, Leaves};

/// Returns y: `[rows, n]`, stored as `stored`: bf16, rounded once, is allowed only with bf16 numbers.
/// # Shapes
/// x: `[rows, k]`; w: per expert `[k, n]`, or `[n, k]` when transposed; counts: rows per expert;
/// leaf: elements of k, 0 for one leaf.
/// # Errors
/// `Shape` or `DType` if they do not fit, `Argument` if the counts do not add up, `Memory` if packed
/// copies do not fit.
pub fn forward<'a>(
    (numbers, stored): (Numbers, DType),
    x: &Tensor,
    w: (&[&Tensor], Op),
    counts: impl Into<Counts<'a>>,
    leaf: usize,
) -> Result<Tensor> {
    const NAMES: Names = ("grouped_matmul::forward", ["x", "y"]);
    product(NAMES, (numbers, stored), x, w, counts.into(), leaf)
}

/// The same with matrices that were packed before, for their numbers and leaves: on the CPU.
/// # Shapes
/// w: per expert op(w) `[k, n]`; the rest as `forward`.
/// # Errors
/// As `forward`; `Argument` if the packs are not alike or the rows are on another device.
pub fn forward_packed<'a>(
    stored: DType,
    x: &Tensor,
    w: &[&Packed],
    counts: impl Into<Counts<'a>>,
) -> Result<Tensor> {
    const OP: &str = "grouped_matmul::forward_packed";
    let counts = counts.into();
    as_many(OP, "w", w.len(), counts.experts())?;
    let first = w[0];
    let (rows, k) = matrix(first.numbers(), OP, "x", x)?;
    let [_, n] = first.dims();
    let is_alike = |one: &&Packed| {
        one.dims() == [k, n] && one.numbers() == first.numbers() && one.leaf() == first.leaf()
    };
    if let Some(other) = w.iter().find(|one| !is_alike(one)) {
        return Err(Error::Argument {
            op: OP,
            name: "w",
            found: format!("{:?} in {:?}", other.dims(), other.numbers()),
            wanted: format!("{:?} in {:?}", [k, n], first.numbers()),
        });
    }
    if !x.device().is_host() {
        return Err(Error::Argument {
            op: OP,
            name: "x",
            found: format!("{:?}", x.device()),
            wanted: "rows on the CPU".to_owned(),
        });
    }
    counts.check(OP, "counts", x)?;
    let mut y = Tensor::empty(&[rows, n], stored, x.device())?;
    number(first.numbers(), OP, "y", &y)?;
    let _span = crate::trace::op(concat!(module_path!(), "::product"));
    cpu::product_packed(&mut y, x, w, counts)?;
    Ok(y)
}

/// Returns dx: `[rows, k]`, stored as `stored`; leaf in elements of n.
/// # Shapes
/// dy: `[rows, n]`, the rest as `forward`, w as it was given there.
/// # Errors
/// As `forward`.
pub fn backward_input<'a>(
    (numbers, stored): (Numbers, DType),
    dy: &Tensor,
    (w, op): (&[&Tensor], Op),
    counts: impl Into<Counts<'a>>,
    leaf: usize,
) -> Result<Tensor> {
    const NAMES: Names = ("grouped_matmul::backward_input", ["dy", "dx"]);
    let op = if op == Op::Plain {
        Op::Transposed
    } else {
        Op::Plain
    };
    product(NAMES, (numbers, stored), dy, (w, op), counts.into(), leaf)
}

/// Adds the gradients of the weights to dw, one merge with the old value.
/// # Shapes
/// dw: as w in `forward`, in f32, dy: `[rows, n]`, x: `[rows, k]`; leaves: rows of each expert in each leaf of
/// the sum over tokens. An expert may come several times,
/// each with its own dw: sums over parts of its tokens.
/// # Errors
/// As `forward`.
pub fn backward_weight<'a>(
    numbers: Numbers,
    dw: (&mut [&mut Tensor], Op),
    dy: &Tensor,
    x: &Tensor,
    leaves: impl Into<Leaves<'a>>,
) -> Result<()> {
    const OP: &str = "grouped_matmul::backward_weight";
    let leaves = leaves.into();
    let (dw, op) = dw;
    let (rows, k) = matrix(numbers, OP, "x", x)?;
    let (rows_of_dy, n) = matrix(numbers, OP, "dy", dy)?;
    if rows_of_dy != rows {
        return Err(Error::Shape {
            op: OP,
            name: "dy",
            found: dy.dims().to_vec(),
            wanted: format!("{rows} rows, as x has"),
        });
    }
    as_many(OP, "dw", dw.len(), leaves.experts())?;
    let dims = if op == Op::Plain { [k, n] } else { [n, k] };
    for dw in &*dw {
        dw.expect_f32(OP, "dw", &dims)?;
    }
    leaves.check(OP, x)?;
    let (left, right) = if op == Op::Plain { (x, dy) } else { (dy, x) };
    try_dispatch!(
        x.device(),
        backward_weight(numbers, dw, left, right, leaves)
    );
    Ok(())
}

/// Names of an op, its rows and its result, for errors.
type Names = (&'static str, [&'static str; 2]);

/// `y_e = x_e op(w_e)`.
fn product(
    (name, [of, result]): Names,
    (numbers, stored): (Numbers, DType),
    x: &Tensor,
    (w, op): (&[&Tensor], Op),
    counts: Counts<'_>,
    leaf: usize,
) -> Result<Tensor> {
    let (rows, k) = matrix(numbers, name, of, x)?;
    as_many(name, "w", w.len(), counts.experts())?;
    let mut width = None;
    for one in w {
        number(numbers, name, "w", one)?;
        // one kernel reads all of them
        one.expect(name, "w", w[0].dtype())?;
        let n = match (one.dims(), op) {
            (&[a, n], Op::Plain) if a == k => n,
            (&[n, a], Op::Transposed) if a == k => n,
            _ => 0,
        };
        if n == 0 || *width.get_or_insert(n) != n {
            let order = if op == Op::Plain { "k, n" } else { "n, k" };
            let n = width.map_or(String::new(), |n| format!(", n = {n}"));
            return Err(Error::Shape {
                op: name,
                name: "w",
                found: one.dims().to_vec(),
                wanted: format!("[{order}] with k = {k}{n}"),
            });
        }
    }
    counts.check(name, "counts", x)?;
    let n = width.expect("there is at least one expert");
    let mut y = Tensor::empty(&[rows, n], stored, x.device())?;
    number(numbers, name, result, &y)?;
    try_dispatch!(
        x.device(),
        product(numbers, &mut y, x, (w, op), counts, leaf)
    );
    Ok(y)
}

/// One tensor for each expert, and at least one.
fn as_many(op: &'static str, name: &'static str, found: usize, wanted: usize) -> Result<()> {
    if found == wanted && found > 0 {
        return Ok(());
    }
    Err(Error::Argument {
        op,
        name,
        found: format!("{found} tensors"),
        wanted: format!("one per expert, {}", wanted.max(1)),
    })
}

/// f32, or bf16 where factors are.
fn number(numbers: Numbers, op: &'static str, name: &'static str, x: &Tensor) -> Result<()> {
    if numbers.are_pairs() {
        x.expect_number(op, name)
    } else {
        x.expect(op, name, DType::F32)
    }
}

fn matrix(
    numbers: Numbers,
    op: &'static str,
    name: &'static str,
    x: &Tensor,
) -> Result<(usize, usize)> {
    numbers.expect_on(op, x.device())?;
    number(numbers, op, name, x)?;
    match x.dims() {
        &[rows, cols] if cols > 0 => Ok((rows, cols)),
        dims => Err(Error::Shape {
            op,
            name,
            found: dims.to_vec(),
            wanted: "[rows, width above 0]".to_owned(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::matmul;
    use crate::testing::{
        all_devices, assert_same_bits_on, bits, devices, random, stored_as, tree, widened,
    };
    use crate::{Device, Tensor};

    const COUNTS: [usize; 5] = [3, 0, 17, 1, 9];
    const F32: (Numbers, DType) = (Numbers::F32, DType::F32);
    const KINDS: [(Numbers, DType); 5] = [
        F32,
        (Numbers::Bf16, DType::F32),
        (Numbers::Bf16, DType::Bf16),
        (Numbers::Bf16Tiles, DType::F32),
        (Numbers::Bf16Tiles, DType::Bf16),
    ];

    /// The devices that have products of such numbers.
    fn on(numbers: Numbers) -> Vec<Device> {
        match numbers {
            Numbers::Bf16Tiles => devices(),
            Numbers::F32 | Numbers::Bf16 => all_devices(),
            Numbers::Bf16Mma | Numbers::F16Mma => Vec::new(),
        }
    }

    #[test]
    fn operands_in_any_order_and_ragged_leaves_have_the_bits_on_every_device() {
        for kind in &KINDS[..3] {
            assert_same_bits_on(&on(kind.0), |device| {
                let half = |x: Tensor| stored_as(kind.1, &x);
                let x = half(random(&[30, 37], 1, device).unwrap());
                let dy = half(random(&[30, 70], 2, device).unwrap());
                let w: Vec<Tensor> = experts(5, &[70, 37], 3, device);
                let stored: Vec<Tensor> = w.iter().map(|w| stored_as(kind.1, w)).collect();
                let given = (&all(&stored)[..], Op::Transposed);
                let y = forward(*kind, &x, given, &COUNTS, 8).unwrap();
                let dx = backward_input(*kind, &dy, given, &COUNTS, 9).unwrap();
                let mut outs = w;
                let mut dw: Vec<&mut Tensor> = outs.iter_mut().collect();
                backward_weight(kind.0, (&mut dw, Op::Transposed), &dy, &x, &leaves()).unwrap();
                outs.extend([widened(&y), widened(&dx)]);
                outs
            });
        }
    }

    #[test]
    fn counts_on_the_device_have_the_bits_of_known_ones_and_padding_is_zeros() {
        // more rows than experts have, and tiles that end between experts
        let counts = [70, 0, 3, 129, 1, 64];
        let (rows, total, k, n) = (300, 267, 24, 70);
        let leaves: Vec<Vec<usize>> = counts.iter().map(|n| vec![n / 3, 0, n - n / 3]).collect();
        for device in all_devices() {
            let mut kinds = KINDS[..3].to_vec();
            if !device.is_host() {
                kinds.push((Numbers::Bf16Mma, DType::F32));
                kinds.push((Numbers::F16Mma, DType::Bf16));
            }
            let word = |x: &usize| u32::try_from(*x).unwrap();
            let words = |x: &[usize]| -> Vec<u32> { x.iter().map(word).collect() };
            let table = |x: &[usize]| Tensor::from_u32(&[x.len()], &words(x), &device).unwrap();
            let offsets = table(&[0, 70, 70, 73, 202, 203, 267]);
            let by_leaf = table(&leaves.concat()).reshape(&[6, 3]).unwrap();
            let on_device = Leaves::OnDevice {
                offsets: &offsets,
                rows: &by_leaf,
            };
            for (kind, leaf) in kinds.into_iter().flat_map(|kind| [(kind, 0), (kind, 8)]) {
                let some = |x: &Tensor| {
                    let (_, width) = x.rows_cols();
                    let numbers = &crate::testing::values(x)[..total * width];
                    let x = Tensor::from_f32(&[total, width], numbers, &device).unwrap();
                    stored_as(kind.1, &x)
                };
                let (x, dy) = (
                    random(&[rows, k], 1, &device).unwrap(),
                    random(&[rows, n], 2, &device).unwrap(),
                );
                let (few_x, few_dy) = (some(&x), some(&dy));
                let (x, dy) = (stored_as(kind.1, &x), stored_as(kind.1, &dy));
                let w = experts(6, &[k, n], 3, &device);
                let w: Vec<Tensor> = w.iter().map(|w| stored_as(kind.1, w)).collect();
                let w = (&all(&w)[..], Op::Plain);
                let place = (&device, kind, leaf);
                let known = [
                    forward(kind, &few_x, w, &counts, leaf).unwrap(),
                    backward_input(kind, &few_dy, w, &counts, leaf).unwrap(),
                ];
                let given = Counts::OnDevice(&offsets);
                let found = [
                    forward(kind, &x, w, given, leaf).unwrap(),
                    backward_input(kind, &dy, w, given, leaf).unwrap(),
                ];
                for (known, found) in known.iter().zip(&found) {
                    let [known, found] = [known, found].map(|x| {
                        let wide = widened(x);
                        bits(&crate::testing::values(&wide))
                    });
                    let (there, padding) = found.split_at(known.len());
                    assert!(there == known, "{place:?}");
                    assert!(padding.iter().all(|bits| *bits == 0), "{place:?}");
                }
                let sums = |dy: &Tensor, x: &Tensor, leaves: Leaves<'_>| -> Vec<Vec<u32>> {
                    let mut dw = experts(6, &[k, n], 9, &device);
                    let mut to: Vec<&mut Tensor> = dw.iter_mut().collect();
                    backward_weight(kind.0, (&mut to, Op::Plain), dy, x, leaves).unwrap();
                    let numbers = dw.iter().map(crate::testing::values);
                    numbers.map(|x| bits(&x)).collect()
                };
                let known = sums(&few_dy, &few_x, (&leaves).into());
                assert!(known == sums(&dy, &x, on_device), "{place:?}");
            }
        }
    }

    #[test]
    fn offsets_that_do_not_fit_are_refused_by_name() {
        let device = Device::cpu();
        let (x, w) = (random(&[4, 6], 1, &device), random(&[6, 3], 1, &device));
        let (x, w) = (x.unwrap(), w.unwrap());
        for offsets in [[0, 5], [1, 4], [2, 1]] {
            let offsets = Tensor::from_u32(&[2], &offsets, &device).unwrap();
            let counts = Counts::OnDevice(&offsets);
            let found = forward(F32, &x, (&[&w], Op::Plain), counts, 0);
            assert!(matches!(found, Err(Error::Argument { name: "counts", .. })));
        }
        let offsets = Tensor::from_u32(&[2], &[0, 3], &device).unwrap();
        let mut dw = w.try_clone().unwrap();
        for (dims, leaves) in [(&[1, 2], [2, 2]), (&[2, 1], [2, 1])] {
            let rows = Tensor::from_u32(dims, &leaves, &device).unwrap();
            let leaves = Leaves::OnDevice {
                offsets: &offsets,
                rows: &rows,
            };
            let dy = random(&[4, 3], 1, &device).unwrap();
            let dw = (&mut [&mut dw][..], Op::Plain);
            let found = backward_weight(Numbers::F32, dw, &dy, &x, leaves);
            let name = match found {
                Err(Error::Argument { name, .. } | Error::Shape { name, .. }) => name,
                _ => panic!("refused"),
            };
            assert_eq!(name, "leaves");
        }
    }

    fn rows(x: &Tensor, first: usize, len: usize) -> Tensor {
        let (_, d) = x.rows_cols();
        Tensor::from_f32(&[len, d], &x.f32()[first * d..][..len * d], x.device()).unwrap()
    }

    fn experts(count: u64, dims: &[usize], seed: u64, device: &Device) -> Vec<Tensor> {
        (0..count)
            .map(|e| random(dims, 10 * seed + e, device).unwrap())
            .collect()
    }

    fn all(w: &[Tensor]) -> Vec<&Tensor> {
        w.iter().collect()
    }

    /// `matmul::product` on each expert alone.
    fn alone(
        (numbers, stored): (Numbers, DType),
        x: &Tensor,
        (w, op): (&[Tensor], Op),
        n: usize,
        leaf: usize,
    ) -> Vec<u8> {
        let mut first = 0;
        let mut out = Vec::new();
        for (e, &count) in COUNTS.iter().enumerate().filter(|(_, c)| **c > 0) {
            let mut y = Tensor::zeros(&[count, n], stored, x.device()).unwrap();
            let x = rows(x, first, count);
            matmul::product(numbers, &mut y, (&x, Op::Plain), (&w[e], op), leaf, false).unwrap();
            out.extend_from_slice(y.bytes());
            first += count;
        }
        out
    }

    #[test]
    fn every_expert_has_the_bits_of_its_product_alone() {
        let (k, n) = (96, 70);
        use Op::{Plain, Transposed};
        for device in devices() {
            let x = random(&[30, k], 1, &device).unwrap();
            let dy = random(&[30, n], 2, &device).unwrap();
            let plain = experts(5, &[k, n], 3, &device);
            let turned = experts(5, &[n, k], 4, &device);
            for (kind, leaf) in KINDS.into_iter().flat_map(|kind| [(kind, 0), (kind, 12)]) {
                // a tensor stored in bf16 is an operand, too
                let operand = |x: &Tensor| stored_as(kind.1, x);
                let weights = |w: &[Tensor]| w.iter().map(operand).collect::<Vec<_>>();
                for (w, op, other) in [(&plain, Plain, Transposed), (&turned, Transposed, Plain)] {
                    let place = (&device, kind, leaf, op);
                    let halves = weights(w);
                    let given = (&all(&halves)[..], op);
                    let y = forward(kind, &operand(&x), given, &COUNTS, leaf).unwrap();
                    assert!(y.bytes() == alone(kind, &x, (w, op), n, leaf), "{place:?}");
                    let pack = |w| {
                        Packed::new(kind.0, (w, op), leaf, &device)
                            .unwrap()
                            .unwrap()
                    };
                    let packed: Vec<Packed> = halves.iter().map(pack).collect();
                    let packed: Vec<&Packed> = packed.iter().collect();
                    let y = forward_packed(kind.1, &operand(&x), &packed, &COUNTS).unwrap();
                    assert!(
                        y.bytes() == alone(kind, &x, (w, op), n, leaf),
                        "packed {place:?}"
                    );
                    let dx = backward_input(kind, &operand(&dy), given, &COUNTS, leaf).unwrap();
                    let want = alone(kind, &dy, (w, other), k, leaf);
                    assert!(dx.bytes() == want, "{place:?}");
                }
                // Must fail: the rows of experts 2 and 4 exchanged.
                let w = (&all(&plain)[..], Plain);
                let y = forward(kind, &x, w, &[3, 0, 9, 1, 17], leaf).unwrap();
                assert!(y.bytes() != alone(kind, &x, (&plain, Plain), n, leaf));
            }
        }
    }

    #[test]
    fn packs_that_are_not_alike_are_refused() {
        let device = Device::cpu();
        let x = random(&[30, 20], 1, &device).unwrap();
        let pack = |dims: &[usize], leaf| {
            let w = random(dims, 2, &device).unwrap();
            let packed = Packed::new(Numbers::F32, &w, leaf, &device);
            packed.unwrap().unwrap()
        };
        let own = pack(&[20, 7], 0);
        for other in [pack(&[20, 8], 0), pack(&[19, 7], 0), pack(&[20, 7], 4)] {
            for w in [[&own, &other], [&other, &own]] {
                let found = forward_packed(DType::F32, &x, &w, &[10, 20]);
                assert!(matches!(found, Err(Error::Argument { name: "w", .. })));
            }
        }
        assert!(forward_packed(DType::F32, &x, &[&own, &own], &[10, 20]).is_ok());
        let found = forward_packed(DType::F32, &x, &[&own, &own], &[10, 19]);
        assert!(matches!(found, Err(Error::Argument { name: "counts", .. })));
    }

    /// Leaves of five experts: their sums are `COUNTS`.
    fn leaves() -> Vec<Vec<usize>> {
        vec![
            vec![0, 2, 1, 0, 0],
            vec![0; 5],
            vec![4, 0, 3, 5, 5],
            vec![0, 0, 0, 0, 1],
            vec![1, 2, 3, 2, 1],
        ]
    }

    #[test]
    fn weight_gradients_have_the_bits_of_the_tree_over_ragged_leaves() {
        let (k, n) = (20, 33);
        for device in devices() {
            let x = random(&[30, k], 1, &device).unwrap();
            let dy = random(&[30, n], 2, &device).unwrap();
            let cases = [Op::Plain, Op::Transposed].into_iter();
            for (op, kind) in cases.flat_map(|op| KINDS.map(|kind| (op, kind))) {
                let (numbers, stored) = kind;
                let (a, b) = if op == Op::Plain {
                    (&x, &dy)
                } else {
                    (&dy, &x)
                };
                let ((_, height), (_, width)) = (a.rows_cols(), b.rows_cols());
                let old = experts(5, &[height, width], 3, &device);
                let sums = |leaves: &[Vec<usize>]| -> Vec<Tensor> {
                    let mut dw: Vec<Tensor> = old.iter().map(|w| w.try_clone().unwrap()).collect();
                    let mut to: Vec<&mut Tensor> = dw.iter_mut().collect();
                    let (dy, x) = (stored_as(stored, &dy), stored_as(stored, &x));
                    backward_weight(numbers, (&mut to, op), &dy, &x, leaves).unwrap();
                    dw
                };
                let dw = sums(&leaves());
                let mut row = 0;
                for (e, leaves) in leaves().iter().enumerate() {
                    let of_leaf = |&len: &usize| {
                        row += len;
                        let [a, b] = [a, b].map(|x| rows(x, row - len, len));
                        let mut sum = Tensor::zeros(&[height, width], DType::F32, &device).unwrap();
                        let (a, b) = ((&a, Op::Transposed), (&b, Op::Plain));
                        matmul::product(numbers, &mut sum, a, b, 0, false).unwrap();
                        sum
                    };
                    let parts: Vec<Tensor> = leaves.iter().map(of_leaf).collect();
                    for at in 0..height * width {
                        let sum = tree(parts.iter().map(|part| part.f32()[at]));
                        let want = old[e].f32()[at] + sum;
                        let found = dw[e].f32()[at];
                        assert_eq!(
                            found.to_bits(),
                            want.to_bits(),
                            "{device:?} {op:?} {kind:?} {e} {at}"
                        );
                    }
                }
                // Must fail: other leaves.
                let one: Vec<Vec<usize>> = COUNTS.iter().map(|n| vec![*n]).collect();
                let flat = |dw: &[Tensor]| -> Vec<u32> {
                    dw.iter().flat_map(|dw| bits(dw.f32())).collect()
                };
                assert_ne!(flat(&dw), flat(&sums(&one)));
            }
        }
    }

    #[test]
    fn bits_are_the_same_on_every_instruction_set_and_number_of_threads() {
        for kind in KINDS {
            let run = |device: &Device| {
                let x = random(&[30, 40], 1, device).unwrap();
                let w = experts(5, &[40, 24], 3, device);
                let y = forward(kind, &x, (&all(&w), Op::Plain), &COUNTS, 5).unwrap();
                let dx = backward_input(kind, &y, (&all(&w), Op::Plain), &COUNTS, 3).unwrap();
                let mut outs: Vec<Tensor> = w.iter().map(|w| w.try_clone().unwrap()).collect();
                let mut dw: Vec<&mut Tensor> = outs.iter_mut().collect();
                backward_weight(kind.0, (&mut dw, Op::Plain), &y, &x, &leaves()).unwrap();
                outs.extend([widened(&y), widened(&dx)]);
                outs
            };
            assert_same_bits_on(&on(kind.0), run);
            let with = |threads| -> Vec<Vec<u32>> {
                let pool = rayon::ThreadPoolBuilder::new().num_threads(threads);
                let outs = pool.build().unwrap().install(|| run(&Device::cpu()));
                outs.iter().map(|x| bits(x.f32())).collect()
            };
            assert!(with(1) == with(3), "{kind:?}");
            assert!(with(1) == with(9), "{kind:?}");
        }
    }

    #[test]
    fn only_numbers_of_bf16_may_be_stored_so() {
        let device = Device::cpu();
        let tensor = |dims: &[usize], dtype| Tensor::zeros(dims, dtype, &device).unwrap();
        let (x, w) = (tensor(&[4, 6], DType::F32), tensor(&[6, 3], DType::F32));
        let (x_half, w_half) = (tensor(&[4, 6], DType::Bf16), tensor(&[6, 3], DType::Bf16));
        let run = |kind, x, w: &Tensor| forward(kind, x, (&[w], Op::Plain), &[4], 0);
        let wrong = run(F32, &x_half, &w);
        assert!(matches!(wrong, Err(Error::DType { name: "x", .. })));
        let wrong = run(F32, &x, &w_half);
        assert!(matches!(wrong, Err(Error::DType { name: "w", .. })));
        let wrong = run((Numbers::F32, DType::Bf16), &x, &w);
        assert!(matches!(wrong, Err(Error::DType { name: "y", .. })));
        let (mut dw, dy) = (w_half, tensor(&[4, 3], DType::F32));
        let dw = (&mut [&mut dw][..], Op::Plain);
        let wrong = backward_weight(Numbers::Bf16, dw, &dy, &x, &[vec![4]]);
        assert!(matches!(wrong, Err(Error::DType { name: "dw", .. })));
    }

    #[test]
    fn no_rows_at_all_is_a_product_too() {
        let device = Device::cpu();
        let x = Tensor::zeros(&[0, 4], DType::F32, &device).unwrap();
        let w = random(&[4, 3], 1, &device).unwrap();
        let y = forward(F32, &x, (&[&w, &w], Op::Plain), &[0, 0], 0).unwrap();
        assert_eq!(y.dims(), &[0, 3]);
        let (mut one, mut two) = (w.try_clone().unwrap(), w.try_clone().unwrap());
        let dw = (&mut [&mut one, &mut two][..], Op::Plain);
        backward_weight(Numbers::F32, dw, &y, &x, &[vec![0], vec![0]]).unwrap();
        assert_eq!(bits(one.f32()), bits(w.f32()));
        assert_eq!(bits(two.f32()), bits(w.f32()));
    }

    #[test]
    fn counts_and_weights_that_do_not_fit_are_refused_by_name() {
        let device = Device::cpu();
        let x = random(&[4, 6], 1, &device).unwrap();
        let w = random(&[6, 3], 1, &device).unwrap();
        let two = [&w, &w];
        let found = forward(F32, &x, (&two, Op::Plain), &[1, 2], 0);
        assert!(matches!(found, Err(Error::Argument { name: "counts", .. })));
        let found = forward(F32, &x, (&two, Op::Plain), &[1, usize::MAX], 0);
        assert!(matches!(found, Err(Error::Argument { name: "counts", .. })));
        let found = forward(F32, &x, (&two, Op::Plain), &[4], 0);
        assert!(matches!(found, Err(Error::Argument { name: "w", .. })));
        let found = forward(F32, &x, (&two, Op::Transposed), &[1, 3], 0);
        assert!(matches!(found, Err(Error::Shape { name: "w", .. })));
        let other = random(&[6, 4], 1, &device).unwrap();
        let found = forward(F32, &x, (&[&w, &other], Op::Plain), &[1, 3], 0);
        assert!(matches!(found, Err(Error::Shape { name: "w", .. })));
        let dy = random(&[4, 3], 1, &device).unwrap();
        let (mut one, mut other) = (w.try_clone().unwrap(), w.try_clone().unwrap());
        let short = random(&[3, 3], 1, &device).unwrap();
        let dw = (&mut [&mut one][..], Op::Plain);
        let found = backward_weight(Numbers::F32, dw, &short, &x, &[vec![4]]);
        assert!(matches!(found, Err(Error::Shape { name: "dy", .. })));
        let ragged = [vec![1, 3], vec![0]];
        let dw = (&mut [&mut one, &mut other][..], Op::Plain);
        let found = backward_weight(Numbers::F32, dw, &dy, &x, &ragged);
        assert!(matches!(found, Err(Error::Argument { name: "leaves", .. })));
    }
}
