//! One matrix product per expert on ragged rows: `y_e = x_e op(w_e)`, rows of expert e after those of e - 1.
//!
//! Every element has the bits of `matmul` on its expert alone: leaves of `leaf` elements of k, one
//! chain each, and the binary-counter tree. The gradient of the weights is a sum over tokens: its
//! leaves are given as rows per leaf, because an expert gets another number of rows of every chunk of
//! tokens; a leaf without rows adds nothing. Which other experts are computed changes no bits.
//! Gale et al. 2022, arXiv:2211.15841, have the dropless form.

mod cpu;

use crate::matmul::Op;
use crate::{DType, Error, Result, Tensor};

/// Returns y: `[rows, n]`.
/// # Shapes
/// x: `[rows, k]`, w: `[experts, k, n]`, or `[experts, n, k]` when transposed; counts: rows per
/// expert; leaf: elements of k, 0 for one leaf.
/// # Errors
/// `Shape` or `DType` if they do not fit, `Argument` if the counts do not add up, `Memory` if packed
/// copies do not fit.
pub fn forward(x: &Tensor, w: (&Tensor, Op), counts: &[usize], leaf: usize) -> Result<Tensor> {
    product("grouped_matmul::forward", "x", x, w, counts, leaf)
}

/// Returns dx: `[rows, k]`; leaf in elements of n.
/// # Shapes
/// dy: `[rows, n]`, the rest as `forward`, w as it was given there.
/// # Errors
/// As `forward`.
pub fn backward_input(
    dy: &Tensor,
    w: (&Tensor, Op),
    counts: &[usize],
    leaf: usize,
) -> Result<Tensor> {
    let op = if w.1 == Op::Plain {
        Op::Transposed
    } else {
        Op::Plain
    };
    product(
        "grouped_matmul::backward_input",
        "dy",
        dy,
        (w.0, op),
        counts,
        leaf,
    )
}

/// Adds the gradients of the weights to dw, one merge with the old value.
/// # Shapes
/// dw: as w in `forward`, dy: `[rows, n]`, x: `[rows, k]`; `leaves[e]`: rows of expert e in each leaf of
/// the sum over tokens, the same number of leaves for every expert.
/// # Errors
/// As `forward`.
pub fn backward_weight(
    dw: (&mut Tensor, Op),
    dy: &Tensor,
    x: &Tensor,
    leaves: &[Vec<usize>],
) -> Result<()> {
    const OP: &str = "grouped_matmul::backward_weight";
    let (dw, op) = dw;
    let (rows, k) = matrix(OP, "x", x)?;
    let (_, n) = matrix(OP, "dy", dy)?;
    let dims = if op == Op::Plain { [k, n] } else { [n, k] };
    dw.expect_f32(OP, "dw", &[leaves.len(), dims[0], dims[1]])?;
    dy.expect_f32(OP, "dy", &[rows, n])?;
    let count = leaves.first().map_or(0, Vec::len);
    if let Some(other) = leaves.iter().find(|l| l.len() != count) {
        return Err(Error::Argument {
            op: OP,
            name: "leaves",
            found: format!("{} leaves and {count}", other.len()),
            wanted: "as many for every expert".to_owned(),
        });
    }
    total(OP, "leaves", leaves.iter().flatten(), rows)?;
    let (left, right) = if op == Op::Plain { (x, dy) } else { (dy, x) };
    let device = dw.device().clone();
    dispatch!(device, backward_weight(dw, left, right, leaves))
}

/// `y_e = x_e op(w_e)`.
fn product(
    name: &'static str,
    of: &'static str,
    x: &Tensor,
    (w, op): (&Tensor, Op),
    counts: &[usize],
    leaf: usize,
) -> Result<Tensor> {
    let (rows, k) = matrix(name, of, x)?;
    w.expect(name, "w", DType::F32)?;
    let n = match (w.dims(), op) {
        (&[experts, a, n], Op::Plain) if experts == counts.len() && a == k => n,
        (&[experts, n, a], Op::Transposed) if experts == counts.len() && a == k => n,
        (dims, _) => {
            let order = if op == Op::Plain { "k, n" } else { "n, k" };
            return Err(Error::Shape {
                op: name,
                name: "w",
                found: dims.to_vec(),
                wanted: format!("[{}, {order}] with k = {k}", counts.len()),
            });
        }
    };
    total(name, "counts", counts.iter(), rows)?;
    let mut y = Tensor::empty(&[rows, n], DType::F32, x.device())?;
    dispatch!(x.device(), product(&mut y, x, (w, op), counts, leaf))?;
    Ok(y)
}

fn matrix(op: &'static str, name: &'static str, x: &Tensor) -> Result<(usize, usize)> {
    x.expect(op, name, DType::F32)?;
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

fn total<'a>(
    op: &'static str,
    name: &'static str,
    mut counts: impl Iterator<Item = &'a usize>,
    rows: usize,
) -> Result<()> {
    let sum = counts.try_fold(0_usize, |sum, n| sum.checked_add(*n));
    if sum == Some(rows) {
        return Ok(());
    }
    let found = sum.map_or("more than fits".to_owned(), |sum| format!("{sum} rows"));
    Err(Error::Argument {
        op,
        name,
        found,
        wanted: format!("{rows} rows together"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::matmul::matmul;
    use crate::testing::{assert_same_bits, bits, random, tree};
    use crate::{Device, Tensor};

    const COUNTS: [usize; 5] = [3, 0, 17, 1, 9];

    fn rows(x: &Tensor, first: usize, len: usize) -> Tensor {
        let (_, d) = x.rows_cols();
        Tensor::from_f32(&[len, d], &x.f32()[first * d..][..len * d], x.device()).unwrap()
    }

    fn expert(w: &Tensor, e: usize) -> Tensor {
        let &[_, a, b] = w.dims() else { panic!() };
        Tensor::from_f32(&[a, b], &w.f32()[e * a * b..][..a * b], w.device()).unwrap()
    }

    /// `matmul` on each expert alone.
    fn alone(x: &Tensor, w: &Tensor, op: Op, n: usize, leaf: usize) -> Vec<f32> {
        let mut first = 0;
        let mut out = Vec::new();
        for (e, &count) in COUNTS.iter().enumerate().filter(|(_, c)| **c > 0) {
            let mut y = Tensor::zeros(&[count, n], DType::F32, x.device()).unwrap();
            let x = rows(x, first, count);
            matmul(&mut y, (&x, Op::Plain), (&expert(w, e), op), leaf, false).unwrap();
            out.extend_from_slice(y.f32());
            first += count;
        }
        out
    }

    #[test]
    fn every_expert_has_the_bits_of_its_product_alone() {
        let device = Device::cpu();
        let (k, n) = (96, 70);
        let x = random(&[30, k], 1, &device).unwrap();
        let dy = random(&[30, n], 2, &device).unwrap();
        let plain = random(&[5, k, n], 3, &device).unwrap();
        let turned = random(&[5, n, k], 4, &device).unwrap();
        use Op::{Plain, Transposed};
        for leaf in [0, 12] {
            let y = forward(&x, (&plain, Plain), &COUNTS, leaf).unwrap();
            assert_eq!(bits(y.f32()), bits(&alone(&x, &plain, Plain, n, leaf)));
            let y = forward(&x, (&turned, Transposed), &COUNTS, leaf).unwrap();
            assert_eq!(
                bits(y.f32()),
                bits(&alone(&x, &turned, Transposed, n, leaf))
            );
            let dx = backward_input(&dy, (&plain, Plain), &COUNTS, leaf).unwrap();
            assert_eq!(
                bits(dx.f32()),
                bits(&alone(&dy, &plain, Transposed, k, leaf))
            );
            let dx = backward_input(&dy, (&turned, Transposed), &COUNTS, leaf).unwrap();
            assert_eq!(bits(dx.f32()), bits(&alone(&dy, &turned, Plain, k, leaf)));
        }
        // Must fail: the rows of experts 2 and 4 exchanged.
        let y = forward(&x, (&plain, Plain), &[3, 0, 9, 1, 17], 0).unwrap();
        assert_ne!(bits(y.f32()), bits(&alone(&x, &plain, Plain, n, 0)));
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
        let device = Device::cpu();
        let (k, n) = (20, 33);
        let x = random(&[30, k], 1, &device).unwrap();
        let dy = random(&[30, n], 2, &device).unwrap();
        for op in [Op::Plain, Op::Transposed] {
            let (a, b) = if op == Op::Plain {
                (&x, &dy)
            } else {
                (&dy, &x)
            };
            let ((_, height), (_, width)) = (a.rows_cols(), b.rows_cols());
            let old = random(&[5, height, width], 3, &device).unwrap();
            let mut dw = old.try_clone().unwrap();
            backward_weight((&mut dw, op), &dy, &x, &leaves()).unwrap();
            let mut first = 0;
            for (e, leaves) in leaves().iter().enumerate() {
                for i in 0..height {
                    for j in 0..width {
                        let mut row = first;
                        let sum = tree(leaves.iter().map(|len| {
                            row += len;
                            (row - len..row).fold(0.0_f32, |acc, r| {
                                a.f32()[r * height + i].mul_add(b.f32()[r * width + j], acc)
                            })
                        }));
                        let at = (e * height + i) * width + j;
                        let want = old.f32()[at] + sum;
                        assert_eq!(dw.f32()[at].to_bits(), want.to_bits(), "{op:?} {e} {i} {j}");
                    }
                }
                first += leaves.iter().sum::<usize>();
            }
            // Must fail: other leaves.
            let one: Vec<Vec<usize>> = COUNTS.iter().map(|n| vec![*n]).collect();
            let mut other = old.try_clone().unwrap();
            backward_weight((&mut other, op), &dy, &x, &one).unwrap();
            assert_ne!(bits(dw.f32()), bits(other.f32()));
        }
    }

    #[test]
    fn bits_are_the_same_on_every_instruction_set_and_number_of_threads() {
        let run = |device: &Device| {
            let x = random(&[30, 40], 1, device).unwrap();
            let w = random(&[5, 40, 24], 3, device).unwrap();
            let y = forward(&x, (&w, Op::Plain), &COUNTS, 5).unwrap();
            let dx = backward_input(&y, (&w, Op::Plain), &COUNTS, 3).unwrap();
            let mut dw = w.try_clone().unwrap();
            backward_weight((&mut dw, Op::Plain), &y, &x, &leaves()).unwrap();
            vec![y, dx, dw]
        };
        assert_same_bits(run);
        let with = |threads| -> Vec<Vec<u32>> {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads);
            let outs = pool.build().unwrap().install(|| run(&Device::cpu()));
            outs.iter().map(|x| bits(x.f32())).collect()
        };
        assert!(with(1) == with(3));
        assert!(with(1) == with(9));
    }

    #[test]
    fn no_rows_at_all_is_a_product_too() {
        let device = Device::cpu();
        let x = Tensor::zeros(&[0, 4], DType::F32, &device).unwrap();
        let w = random(&[2, 4, 3], 1, &device).unwrap();
        let y = forward(&x, (&w, Op::Plain), &[0, 0], 0).unwrap();
        assert_eq!(y.dims(), &[0, 3]);
        let mut dw = w.try_clone().unwrap();
        backward_weight((&mut dw, Op::Plain), &y, &x, &[vec![0], vec![0]]).unwrap();
        assert_eq!(bits(dw.f32()), bits(w.f32()));
    }

    #[test]
    fn counts_and_weights_that_do_not_fit_are_refused_by_name() {
        let device = Device::cpu();
        let x = random(&[4, 6], 1, &device).unwrap();
        let w = random(&[2, 6, 3], 1, &device).unwrap();
        let found = forward(&x, (&w, Op::Plain), &[1, 2], 0);
        assert!(matches!(found, Err(Error::Argument { name: "counts", .. })));
        let found = forward(&x, (&w, Op::Plain), &[1, usize::MAX], 0);
        assert!(matches!(found, Err(Error::Argument { name: "counts", .. })));
        let found = forward(&x, (&w, Op::Transposed), &[1, 3], 0);
        assert!(matches!(found, Err(Error::Shape { name: "w", .. })));
        let dy = random(&[4, 3], 1, &device).unwrap();
        let mut dw = w.try_clone().unwrap();
        let ragged = [vec![1, 3], vec![0]];
        let found = backward_weight((&mut dw, Op::Plain), &dy, &x, &ragged);
        assert!(matches!(found, Err(Error::Argument { name: "leaves", .. })));
    }
}
