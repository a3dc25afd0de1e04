//! Low-rank adapters apart from their model, and their merging into the weights beside them: W + scale B A, in f64, rounded once.

use std::collections::BTreeMap;

use crate::config::exact::narrow;

/// An adapter's matrices, each by rows.
#[derive(Clone, Copy)]
pub(crate) struct Factors<'a> {
    /// `[rank, in]`
    pub a: &'a [f32],
    /// `[out, rank]`
    pub b: &'a [f32],
    pub rank: usize,
    pub scale: f64,
}

/// An adapter of a whole model.
pub(crate) struct LoraAdapter {
    /// Factor of its output.
    pub scale: f64,
    /// By the names of our layers, such as `layers.0.qkv`.
    pub layers: BTreeMap<String, LayerAdapter>,
}

/// The adapter of one linear layer.
pub(crate) struct LayerAdapter {
    pub rank: usize,
    /// `[rank, in]`
    pub a: Vec<f32>,
    /// `[out, rank]`
    pub b: Vec<f32>,
}

/// Adds an adapter to a weight of `inputs` features, by output rows `[out, in]`, or, with `by_inputs`, `[in, out]`.
pub(crate) fn merge(weight: &mut [f32], of: Factors<'_>, inputs: usize, by_inputs: bool) {
    let Factors { a, b, rank, scale } = of;
    let outs = b.len() / rank.max(1);
    let mut sums = vec![0.0f64; inputs];
    for (out, b) in b.chunks_exact(rank.max(1)).enumerate() {
        sums.fill(0.0);
        for (b, a) in b.iter().zip(a.chunks_exact(inputs.max(1))) {
            let factor = scale * f64::from(*b);
            let both = sums.iter_mut().zip(a);
            both.for_each(|(sum, a)| *sum += factor * f64::from(*a));
        }
        for (input, sum) in sums.iter().enumerate() {
            let at = match by_inputs {
                true => input * outs + out,
                false => out * inputs + input,
            };
            weight[at] = narrow(f64::from(weight[at]) + sum);
        }
    }
}

/// The transpose of a matrix of `columns` columns.
pub(crate) fn transposed(x: &[f32], columns: usize) -> Vec<f32> {
    let rows = x.len() / columns.max(1);
    (0..x.len())
        .map(|at| x[at % rows * columns + at / rows])
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_merged_weight_is_the_sum_in_both_orders() {
        // B A = [[7, 10], [15, 22], [23, 34]] of B [[1, 2], [3, 4], [5, 6]] and A [[1, 2], [3, 4]]
        let of = Factors {
            a: &[1.0, 2.0, 3.0, 4.0],
            b: &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0],
            rank: 2,
            scale: 0.5,
        };
        let mut weight = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0];
        merge(&mut weight, of, 2, false);
        assert_eq!(weight, [4.5, 7.0, 10.5, 15.0, 16.5, 23.0]);
        let mut weight = [1.0, 3.0, 5.0, 2.0, 4.0, 6.0];
        merge(&mut weight, of, 2, true);
        assert_eq!(weight, [4.5, 10.5, 16.5, 7.0, 15.0, 23.0]);
        assert_eq!(transposed(&weight, 3), [4.5, 7.0, 10.5, 15.0, 16.5, 23.0]);
    }
}
