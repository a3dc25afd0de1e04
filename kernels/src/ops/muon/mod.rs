//! Muon: momentum with an orthogonalized direction (Newton-Schulz), for matrices.
//! g is the gradient times a factor; m += (g - m)(1 - mu); u = g + (m - g) mu (Nesterov);
//! u is divided by its Frobenius norm, then five or so times x = a x + (b G + c G G) x with G = x x',
//! which brings all singular values near 1; w = w keep - step o.
//! Source: Jordan et al. 2024, kellerjordan.github.io/posts/muon, and torch.optim.Muon (2.9 on).
//! We differ: f32 throughout, where these iterate in bf16.

mod cpu;
pub(super) mod cuda;
mod unit;

use crate::matmul::matmul;
use crate::view::expect_alike;
use crate::{DType, Result, Tensor, View, ViewMut, reduce};

/// Coefficients of the iteration, chosen for their slope at 0: Jordan et al.
const A: f32 = 3.4445;
const B: f32 = -4.775;
const C: f32 = 2.0315;
/// Updates the momentum `m` with gradients `g` times `grad_scale`, and sets `u` to the direction before
/// orthogonalization, all f32.
/// # Errors
/// `Argument` or `DType` if they differ in length or are no f32.
pub fn momentum(
    mut m: ViewMut<'_>,
    mut u: ViewMut<'_>,
    g: View<'_>,
    grad_scale: f32,
    momentum: f32,
) -> Result<()> {
    let others = [("u", u.as_view()), ("g", g)];
    expect_alike("muon::momentum", m.as_view(), &others)?;
    dispatch!(
        g.device(),
        momentum(&mut m, &mut u, g, grad_scale, momentum)
    );
    Ok(())
}

/// Replaces a matrix by one with nearly the same singular vectors and singular values near 1. Does not wait for a device.
/// # Shapes
/// x: `[r, c]`; scratch of 2 min(r, c)^2 + 2 r c numbers.
/// # Errors
/// `Shape` or `DType` if x is no f32 matrix; `Memory`.
pub fn orthogonalize(x: &mut Tensor, steps: usize) -> Result<()> {
    let (rows, cols) = x.expect_rows("muon::orthogonalize", "x")?;
    normalize(x)?;
    // the product with its own transpose over the longer side is the smaller one
    let short = rows.min(cols);
    let is_wide = rows <= cols;
    let square = || Tensor::empty(&[short, short], DType::F32, x.device());
    let (mut gram, mut gram2) = (square()?, square()?);
    let mut next = Tensor::empty(&[rows, cols], DType::F32, x.device())?;
    for _ in 0..steps {
        if is_wide {
            matmul(&mut gram, &*x, x.transposed(), 0, false)?;
        } else {
            matmul(&mut gram, x.transposed(), &*x, 0, false)?;
        }
        matmul(&mut gram2, &gram, &gram, 0, false)?;
        // b G + c G G
        combine(gram.view_mut(), B, gram2.view(), C)?;
        if is_wide {
            matmul(&mut next, &gram, &*x, 0, false)?;
        } else {
            matmul(&mut next, &*x, &gram, 0, false)?;
        }
        combine(x.view_mut(), A, next.view(), 1.0)?;
    }
    Ok(())
}

/// w = w `keep` - o `step`, f32.
/// # Errors
/// `Argument` or `DType` if they differ in length or are no f32.
pub fn apply(w: ViewMut<'_>, o: View<'_>, keep: f32, step: f32) -> Result<()> {
    combine(w, keep, o, -step)
}

/// Divides x by its norm, which stays on the device.
fn normalize(x: &mut Tensor) -> Result<()> {
    if let Some(squares) = reduce::squares(&[x.view()])? {
        let device = x.device().clone();
        dispatch!(device, normalize(x, &squares));
    }
    Ok(())
}

/// x = x a + y b.
fn combine(mut x: ViewMut<'_>, a: f32, y: View<'_>, b: f32) -> Result<()> {
    expect_alike("muon::combine", x.as_view(), &[("y", y)])?;
    dispatch!(y.device(), combine(&mut x, a, y, b));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_same_bits, bits, error, random, wide};
    use crate::{Device, tolerance};

    /// The iteration in f64 by naive loops.
    fn reference(x: &[f64], rows: usize, cols: usize, steps: usize) -> Vec<f64> {
        let product = |a: &[f64], b: &[f64], m: usize, k: usize, n: usize| -> Vec<f64> {
            let at = |i: usize| (0..k).map(|p| a[i / n * k + p] * b[p * n + i % n]).sum();
            (0..m * n).map(at).collect()
        };
        let transposed = |a: &[f64], rows: usize, cols: usize| -> Vec<f64> {
            (0..rows * cols)
                .map(|i| a[i % rows * cols + i / rows])
                .collect()
        };
        let norm = x.iter().map(|x| x * x).sum::<f64>().sqrt();
        let mut x: Vec<f64> = x.iter().map(|x| x / norm).collect();
        let [a, b, c] = [A, B, C].map(f64::from);
        for _ in 0..steps {
            // a x + b (x x') x + c (x x') (x x') x, whichever side is longer
            let gram = product(&x, &transposed(&x, rows, cols), rows, cols, rows);
            let once = product(&gram, &x, rows, rows, cols);
            let twice = product(&gram, &once, rows, rows, cols);
            x = (0..x.len())
                .map(|i| a * x[i] + b * once[i] + c * twice[i])
                .collect();
        }
        x
    }

    #[test]
    fn wide_and_tall_matrices_match_the_iteration_in_f64() {
        let device = Device::cpu();
        for (rows, cols) in [(24, 40), (40, 24), (17, 17), (1, 9)] {
            let mut x = random(&[rows, cols], 3, &device).unwrap();
            let want = reference(&wide(x.f32()), rows, cols, 5);
            orthogonalize(&mut x, 5).unwrap();
            // an error in a small singular value grows by a factor of up to a in each iteration
            let bound = tolerance::sum(rows.max(cols)) * f64::from(A).powi(5);
            let found = error(x.f32(), &want);
            assert!(found < bound, "{rows} {cols}: {found} {bound}");
            let fewer = reference(&wide(x.f32()), rows, cols, 4);
            assert!(error(x.f32(), &fewer) > bound || rows == 1);
        }
    }

    #[test]
    fn singular_values_come_near_one() {
        let device = Device::cpu();
        let mut x = random(&[12, 60], 4, &device).unwrap();
        orthogonalize(&mut x, 5).unwrap();
        for (i, row) in x.f32().chunks(60).enumerate() {
            for (j, other) in x.f32().chunks(60).enumerate() {
                let dot: f32 = row.iter().zip(other).map(|(a, b)| a * b).sum();
                let want = if i == j { 1.0 } else { 0.0 };
                // squares of values from 0.7 to 1.2, by the coefficients' design
                assert!((dot - want).abs() < 0.6, "{i} {j} {dot}");
            }
        }
    }

    #[test]
    fn a_zero_matrix_stays_zero() {
        let mut x = Tensor::zeros(&[4, 6], DType::F32, &Device::cpu()).unwrap();
        orthogonalize(&mut x, 5).unwrap();
        assert!(x.f32().iter().all(|&x| x == 0.0));
    }

    #[test]
    fn every_instruction_set_and_any_part_has_the_same_bits() {
        assert_same_bits(|device| {
            let mut x = random(&[33, 20], 5, device).unwrap();
            orthogonalize(&mut x, 5).unwrap();
            vec![x]
        });
        let device = Device::cpu();
        let (g, w) = (
            random(&[40_000], 6, &device).unwrap(),
            random(&[40_000], 7, &device).unwrap(),
        );
        let run = |range: std::ops::Range<usize>| {
            let n = range.len();
            let [mut m, mut u] =
                [0.5, 0.0].map(|x| Tensor::from_f32(&[n], &vec![x; n], &device).unwrap());
            let g = g.flat(range.clone()).unwrap();
            momentum(m.view_mut(), u.view_mut(), g, 0.3, 0.95).unwrap();
            let mut w = Tensor::from_f32(&[n], &w.f32()[range], &device).unwrap();
            apply(w.view_mut(), u.view(), 0.99, 0.02).unwrap();
            bits(w.f32())
        };
        assert_eq!(run(0..40_000)[11..20_003], run(11..20_003));
    }
}
