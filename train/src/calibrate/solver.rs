//! GPTQ's rounding of one linear layer (Frantar et al. 2022, arXiv:2210.17323): inputs are rounded one after the other, and each
//! error is made up for by the inputs that are left.
//!
//! For a layer's inputs X and H = X^T X + damping, let U be the upper triangle with H^-1 = U^T U. Input i of an output w is rounded to q;
//! then w_j -= (w_i - q) / U_ii U_ij for all j > i. U is the inverse of the upper triangle M with H = M M^T, which is the Cholesky factor
//! of H with rows and columns reversed: one factor and one inverse, where the paper's program inverts H and factors the inverse.
//!
//! All of it is f64. Sums run over ascending indices and outputs are independent of each other, so the codes do not depend on
//! threads. We differ from the paper's program: an input that is always 0 keeps its weights, rounded to the nearest, instead of
//! losing them; with an order of its own, scales are those of the weights before rounding (`static_groups`), so that a file
//! needs no table of groups.

use rayon::prelude::*;

use crate::calibrate::method::GptqOptions;
use crate::checkpoint::quantized::int4::{GroupCodes, largest, scale_of};

/// Outputs that are rounded together, so that a row of U is read once for all of them.
const TOGETHER: usize = 8;

/// Columns of a panel of the Cholesky factor and of the inverse.
const PANEL: usize = 64;

/// The inverse factor of some inputs, which all layers with these inputs share.
pub(super) struct Solver {
    options: GptqOptions,
    /// Inputs in the order in which they are rounded.
    order: Vec<usize>,
    /// `[n, n]`
    upper: Vec<f64>,
}

impl Solver {
    /// For n inputs with these products X^T X, `[n, n]`.
    pub(super) fn new(products: &[f64], n: usize, options: GptqOptions) -> Solver {
        let mut order: Vec<usize> = (0..n).collect();
        if options.act_order {
            let size = |i: &usize| products[i * n + i];
            order.sort_by(|a, b| size(b).total_cmp(&size(a)));
        }
        let upper = inverse_factor(&damped(products, &order, options.damping), n);
        Solver {
            options,
            order,
            upper,
        }
    }

    /// Codes of weights `[out, n]`.
    pub(super) fn round(&self, weights: &[f32]) -> GroupCodes {
        let (n, group) = (self.order.len(), self.options.group);
        let is_fixed = self.options.act_order;
        let fixed = is_fixed.then(|| GroupCodes::nearest(weights, n, group).scales);
        let bands = weights.par_chunks(TOGETHER * n).enumerate();
        let rounded = bands.map(|(band, rows)| {
            let first = band * TOGETHER * (n / group);
            let fixed = fixed.as_ref().map(|scales| &scales[first..]);
            round(rows, &self.upper, &self.order, fixed, group)
        });
        let rounded: Vec<(Vec<i8>, Vec<f32>)> = rounded.collect();
        let (codes, scales): (Vec<_>, Vec<_>) = rounded.into_iter().unzip();
        GroupCodes {
            codes: codes.concat(),
            scales: scales.concat(),
            columns: n,
            group,
        }
    }
}

/// H with its rows and columns in an order, and the damping on its diagonal.
fn damped(products: &[f64], order: &[usize], damping: f64) -> Vec<f64> {
    let n = order.len();
    let diagonal: Vec<f64> = order.iter().map(|&i| products[i * n + i]).collect();
    let mean = diagonal.iter().sum::<f64>() / n as f64;
    let mut h: Vec<f64> = order
        .iter()
        .flat_map(|&i| order.iter().map(move |&j| products[i * n + j]))
        .collect();
    for (i, own) in diagonal.into_iter().enumerate() {
        // an input that is always 0 has no products with others; any size will do
        h[i * n + i] = if own == 0.0 { mean.max(1.0) } else { own } + damping * mean;
    }
    h
}

/// The upper triangle U with H^-1 = U^T U, `[n, n]`.
fn inverse_factor(h: &[f64], n: usize) -> Vec<f64> {
    let reversed = |a: &[f64]| -> Vec<f64> { a.iter().rev().copied().collect() };
    // the lower triangle's inverse with rows and columns reversed is the upper triangle's
    reversed(&lower_inverse(&cholesky(reversed(h), n), n))
}

/// The lower triangle L with A = L L^T.
fn cholesky(mut a: Vec<f64>, n: usize) -> Vec<f64> {
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    for start in (0..n).step_by(PANEL) {
        let end = n.min(start + PANEL);
        let (above, below) = a.split_at_mut(end * n);
        // the square on the diagonal, row by row
        for i in start..end {
            for j in start..=i {
                let sum = dot(&above[i * n..i * n + j], &above[j * n..j * n + j]);
                let rest = above[i * n + j] - sum;
                above[i * n + j] = match i == j {
                    // damping keeps it above 0 but for rounding
                    true => rest.max(f64::MIN_POSITIVE).sqrt(),
                    false => rest / above[j * n + j],
                };
            }
        }
        let above = &*above;
        below.par_chunks_mut(n).for_each(|row| {
            for j in start..end {
                let sum = dot(&row[..j], &above[j * n..j * n + j]);
                row[j] = (row[j] - sum) / above[j * n + j];
            }
        });
    }
    for (i, row) in a.chunks_mut(n).enumerate() {
        row[i + 1..].fill(0.0);
    }
    a
}

/// The inverse of a lower triangle.
fn lower_inverse(l: &[f64], n: usize) -> Vec<f64> {
    // columns are independent: L x = e, by panels of them
    let panels: Vec<Vec<f64>> = (0..n.div_ceil(PANEL))
        .into_par_iter()
        .map(|panel| {
            let first = panel * PANEL;
            let width = PANEL.min(n - first);
            let mut x = vec![0.0; n * width];
            for i in first..n {
                let (done, rest) = x.split_at_mut(i * width);
                let row = &mut rest[..width];
                if i < first + width {
                    row[i - first] = 1.0;
                }
                for k in first..i {
                    let factor = l[i * n + k];
                    let known = &done[k * width..(k + 1) * width];
                    row.iter_mut()
                        .zip(known)
                        .for_each(|(x, y)| *x -= factor * y);
                }
                row.iter_mut().for_each(|x| *x /= l[i * n + i]);
            }
            x
        })
        .collect();
    let mut inverse = vec![0.0; n * n];
    for (panel, x) in panels.iter().enumerate() {
        let first = panel * PANEL;
        let width = PANEL.min(n - first);
        for (row, part) in inverse.chunks_mut(n).zip(x.chunks(width)) {
            row[first..first + width].copy_from_slice(part);
        }
    }
    inverse
}

/// Codes and scales of some outputs. `fixed`: their scales, if they are known before.
fn round(
    rows: &[f32],
    upper: &[f64],
    order: &[usize],
    fixed: Option<&[f32]>,
    group: usize,
) -> (Vec<i8>, Vec<f32>) {
    let (n, groups) = (order.len(), order.len() / group);
    let mut left: Vec<f64> = rows
        .chunks(n)
        .flat_map(|row| order.iter().map(|&i| f64::from(row[i])))
        .collect();
    let mut codes = vec![0; rows.len()];
    let mut scales = match fixed {
        Some(fixed) => fixed[..rows.len() / n * groups].to_vec(),
        None => vec![0.0; rows.len() / n * groups],
    };
    for (at, &input) in order.iter().enumerate() {
        let factors = &upper[at * n..(at + 1) * n];
        for (row, left) in left.chunks_mut(n).enumerate() {
            let scale = &mut scales[row * groups + input / group];
            if fixed.is_none() && at.is_multiple_of(group) {
                #[expect(
                    clippy::cast_possible_truncation,
                    reason = "scales are f32 of weights that were"
                )]
                let own: Vec<f32> = left[at..at + group].iter().map(|x| *x as f32).collect();
                *scale = scale_of(largest(&own));
            }
            let scale = f64::from(*scale);
            let code = (left[at] / scale).clamp(-8.0, 7.0).round_ties_even();
            #[expect(clippy::cast_possible_truncation, reason = "clamped before")]
            let stored = code as i8;
            codes[row * n + input] = stored;
            let error = (left[at] - code * scale) / factors[at];
            let rest = left[at + 1..].iter_mut().zip(&factors[at + 1..]);
            rest.for_each(|(x, factor)| *x -= error * factor);
        }
    }
    (codes, scales)
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    /// numpy's codes by the paper's own formulas, which invert H and factor the inverse (tests/oracles/gptq.py).
    #[test]
    fn codes_are_those_of_an_independent_reference() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/oracles/gptq.json");
        let golden: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
        let cases = golden["cases"].as_array().unwrap();
        assert_eq!(cases.len(), 5);
        for case in cases {
            let numbers =
                |key: &str| -> Vec<f64> { serde_json::from_value(case[key].clone()).unwrap() };
            let count = |key: &str| usize::try_from(case[key].as_u64().unwrap()).unwrap();
            #[expect(clippy::cast_possible_truncation, reason = "the file has f32 numbers")]
            let single =
                |key: &str| -> Vec<f32> { numbers(key).iter().map(|x| *x as f32).collect() };
            let (n, x) = (count("n"), single("inputs"));
            let mut products = vec![0.0; n * n];
            for row in x.chunks(n) {
                for i in 0..n {
                    for j in 0..n {
                        products[i * n + j] += f64::from(row[i]) * f64::from(row[j]);
                    }
                }
            }
            let options = GptqOptions {
                group: count("group"),
                damping: 0.01,
                act_order: case["act_order"] == true,
            };
            let weights = single("weights");
            let found = Solver::new(&products, n, options).round(&weights);
            let wanted: Vec<i8> = serde_json::from_value(case["codes"].clone()).unwrap();
            assert_eq!(found.scales, single("scales"));
            assert_eq!(found.codes, wanted);
            // and it is worth its work
            let error = |codes: &GroupCodes| -> f64 {
                let values = codes.values();
                let rows = weights.chunks(n).zip(values.chunks(n));
                let of_rows = rows.map(|(a, b)| {
                    let off: Vec<f64> = a.iter().zip(b).map(|(a, b)| f64::from(a - b)).collect();
                    let by_rows = products.chunks(n).zip(&off).map(|(row, own)| {
                        let sum: f64 = row.iter().zip(&off).map(|(h, off)| h * off).sum();
                        sum * own
                    });
                    by_rows.sum::<f64>()
                });
                of_rows.sum()
            };
            let nearest = error(&GroupCodes::nearest(&weights, n, options.group));
            assert!(
                error(&found) < 0.9 * nearest,
                "{} and {nearest}",
                error(&found)
            );
        }
    }

    #[test]
    fn codes_do_not_depend_on_the_number_of_threads() {
        let n = 96;
        let number = |seed: u64| {
            let mixed = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40;
            f64::from(u32::try_from(mixed).unwrap()) / f64::from(1 << 23) - 1.0
        };
        let x: Vec<f64> = (0..200 * n as u64).map(number).collect();
        let mut products = vec![0.0; n * n];
        for row in x.chunks(n) {
            for i in 0..n {
                for j in 0..n {
                    products[i * n + j] += row[i] * row[j];
                }
            }
        }
        #[expect(clippy::cast_possible_truncation, reason = "any numbers will do")]
        let weights: Vec<f32> = (0..50 * n as u64).map(|i| number(i + 77) as f32).collect();
        let options = GptqOptions {
            group: 32,
            damping: 0.01,
            act_order: true,
        };
        let with = |threads: usize| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads);
            let pool = pool.build().unwrap();
            pool.install(|| Solver::new(&products, n, options).round(&weights))
        };
        assert_eq!(with(1), with(3));
    }
}
