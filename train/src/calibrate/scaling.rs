//! Factors by which a layer's inputs are divided and its columns multiplied before they are rounded.
//!
//! AWQ (Lin et al. 2023, arXiv:2306.00978): s = mean |x|^r, scaled to sqrt(max s min s) = 1, with the r of 0, 1/20 .. 19/20 by which
//! rounding to the nearest moves the outputs least. SmoothQuant (Xiao et al. 2022, arXiv:2211.10438): s = max|x|^a /
//! max|w|^(1 - a). We differ: an input that is always 0 keeps the factor 1, since it may be large in other texts.

use crate::calibrate::block_weights::by_columns;
use crate::calibrate::inputs::{Inputs, OutputError};
use crate::checkpoint::quantized::int4::GroupCodes;

/// Exponents that AWQ tries.
const EXPONENTS: u32 = 20;

/// AWQ's factors for layers with these weights, `[out, n]` each.
pub(super) fn awq(
    weights: &[&[f32]],
    inputs: &Inputs,
    error: &OutputError,
    group: usize,
) -> kernels::Result<Vec<f64>> {
    let means = inputs.means();
    let mut best = (f64::INFINITY, vec![1.0; means.len()]);
    for step in 0..EXPONENTS {
        let exponent = f64::from(step) / f64::from(EXPONENTS);
        let factors = centred(means.iter().map(|mean| mean.powf(exponent)), &means);
        let back: Vec<f64> = factors.iter().map(|factor| 1.0 / factor).collect();
        let mut moved = 0.0;
        for weight in weights {
            let codes = GroupCodes::nearest(&by_columns(weight, &factors), means.len(), group);
            let values = by_columns(&codes.values(), &back);
            let off = values.iter().zip(*weight).map(|(a, b)| a - b);
            moved += error.of(&off.collect::<Vec<f32>>())?;
        }
        if moved < best.0 {
            best = (moved, factors);
        }
    }
    Ok(best.1)
}

/// Factors whose largest and smallest have the product 1; 1 for inputs that are always 0.
fn centred(factors: impl Iterator<Item = f64>, means: &[f64]) -> Vec<f64> {
    let factors: Vec<f64> = factors.map(|factor| factor.max(1e-4)).collect();
    let live = || factors.iter().zip(means).filter(|(_, mean)| **mean > 0.0);
    let largest = live().fold(0.0f64, |most, (factor, _)| most.max(*factor));
    let smallest = live().fold(f64::INFINITY, |least, (factor, _)| least.min(*factor));
    let middle = (largest * smallest).sqrt();
    let all = factors.iter().zip(means);
    all.map(|(factor, mean)| if *mean > 0.0 { factor / middle } else { 1.0 })
        .collect()
}

/// SmoothQuant's factors for layers with these weights, `[out, n]` each.
pub(super) fn smooth(weights: &[&[f32]], inputs: &Inputs, alpha: f64) -> Vec<f64> {
    let n = inputs.count();
    let mut largest = vec![0.0f32; n];
    for row in weights.iter().flat_map(|weight| weight.chunks(n)) {
        for (most, x) in largest.iter_mut().zip(row) {
            *most = most.max(x.abs());
        }
    }
    let both = inputs.largest.iter().zip(largest);
    both.map(|(x, w)| match *x > 0.0 && w > 0.0 {
        true => (f64::from(*x).powf(alpha) / f64::from(w).powf(1.0 - alpha)).max(1e-5),
        false => 1.0,
    })
    .collect()
}
