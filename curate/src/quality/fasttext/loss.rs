//! Output layers of fastText: from the hidden vector to the best labels.
//!
//! * softmax: p = exp(o - max o) / sum;
//! * ova and ns: p = sigmoid(o) from fastText's table of 512 steps between -8 and 8;
//! * hs: a Huffman tree over the labels' counts; p is the product of sigmoids on the way down, and
//!   branches that cannot reach the k best so far are left out.
//!
//! As fastText 0.9.2 a score is log(p + 1e-5), so that the probability reported is p + 1e-5 (per tree
//! level for hs).

use std::io::Read;

use super::matrix::Matrix;
use super::source::Source;
use crate::error::Result;

/// Kind of output layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Hierarchical,
    Binary,
    Softmax,
}

pub(super) struct Output {
    weights: Matrix,
    kind: Kind,
    labels: usize,
    tree: Vec<(usize, usize)>,
    sigmoid: Vec<f32>,
}

/// A label with the logarithm of its probability, best first.
pub(super) type Scored = Vec<(f32, usize)>;

const STEPS: usize = 512;
const EDGE: f32 = 8.0;

/// Rounds to single precision, where fastText does.
#[expect(clippy::cast_possible_truncation, reason = "rounding is the point")]
pub(super) fn single(x: f64) -> f32 {
    x as f32
}

pub(super) fn log(x: f32) -> f32 {
    single((f64::from(x) + 1e-5).ln())
}

/// The Huffman tree: children of the inner nodes, which are numbered from `counts.len()`; a leaf is
/// its label. `counts` fall, as fastText sorts labels by frequency.
pub(super) fn tree(counts: &[i64]) -> Vec<(usize, usize)> {
    let leaves = counts.len();
    let mut sums: Vec<i64> = counts.to_vec();
    let mut children = Vec::with_capacity(leaves.saturating_sub(1));
    let (mut leaf, mut node) = (leaves, leaves);
    for next in leaves..(2 * leaves).saturating_sub(1) {
        let mut least = || {
            // a node that does not exist yet counts 10^15, as in fastText
            let inner = sums.get(node).copied().unwrap_or(1_000_000_000_000_000);
            if leaf > 0 && (node >= next || sums[leaf - 1] < inner) {
                leaf -= 1;
                leaf
            } else {
                node += 1;
                node - 1
            }
        };
        let (left, right) = (least(), least());
        children.push((left, right));
        sums.push(sums[left].saturating_add(sums[right]));
    }
    children
}

impl Output {
    pub(super) fn read<R: Read>(
        source: &mut Source<R>,
        quantised: bool,
        kind: Kind,
        dim: usize,
        counts: &[i64],
    ) -> Result<Output> {
        let labels = counts.len();
        let step = |i: usize| {
            let x = (i as f32 * 2.0 * EDGE) / STEPS as f32 - EDGE;
            single(1.0 / (1.0 + f64::from(-x).exp()))
        };
        Ok(Output {
            weights: Matrix::read(source, quantised, labels, dim, "output matrix")?,
            kind,
            labels,
            tree: if kind == Kind::Hierarchical {
                tree(counts)
            } else {
                Vec::new()
            },
            sigmoid: (0..=STEPS).map(step).collect(),
        })
    }

    /// Vector whose product with a hidden vector is the second label's output minus the first one's, if the
    /// probabilities depend on that alone: softmax over two labels.
    pub(super) fn difference(&self, dim: usize) -> Option<Vec<f64>> {
        if self.kind != Kind::Softmax || self.labels != 2 {
            return None;
        }
        let row = |label: usize| {
            let mut row = vec![0.0; dim];
            self.weights.add(label, &mut row);
            row
        };
        let pairs = row(1).into_iter().zip(row(0));
        Some(pairs.map(|(b, a)| f64::from(b) - f64::from(a)).collect())
    }

    /// Fills `best` with the `k` best labels.
    pub(super) fn best(&self, hidden: &[f32], k: usize, scores: &mut Vec<f32>, best: &mut Scored) {
        best.clear();
        if k == 0 {
            return;
        }
        if self.kind == Kind::Hierarchical {
            self.descend(hidden, k, best);
            return;
        }
        scores.clear();
        scores.extend((0..self.labels).map(|label| self.weights.dot(label, hidden)));
        if self.kind == Kind::Softmax {
            let max = scores.iter().copied().fold(f32::MIN, f32::max);
            let mut sum = 0.0;
            for x in scores.iter_mut() {
                *x = single(f64::from(*x - max).exp());
                sum += *x;
            }
            scores.iter_mut().for_each(|x| *x /= sum);
        } else {
            scores.iter_mut().for_each(|x| *x = self.squash(*x));
        }
        for (label, p) in scores.iter().enumerate() {
            keep(best, k, log(*p), label);
        }
    }

    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the argument is in 0..=512"
    )]
    fn squash(&self, x: f32) -> f32 {
        if x < -EDGE {
            0.0
        } else if x > EDGE {
            1.0
        } else {
            let i = ((x + EDGE) * STEPS as f32 / EDGE / 2.0) as usize;
            self.sigmoid[i.min(STEPS)]
        }
    }

    fn descend(&self, hidden: &[f32], k: usize, best: &mut Scored) {
        let mut open = vec![((2 * self.labels).saturating_sub(2), 0.0f32)];
        while let Some((node, score)) = open.pop() {
            // fastText's threshold of 0 as a logarithm
            let hopeless = score < log(0.0);
            if hopeless || best.len() == k && best.last().is_some_and(|w| score < w.0) {
                continue;
            }
            if node < self.labels {
                keep(best, k, score, node);
                continue;
            }
            let inner = node - self.labels;
            let x = self.weights.dot(inner, hidden);
            let f = 1.0 / (1.0 + (-x).exp());
            let (left, right) = self.tree[inner];
            open.push((right, score + log(f)));
            open.push((left, score + log(1.0 - f)));
        }
    }
}

/// Puts a label among the `k` best; of equals the one that came first stays in front.
fn keep(best: &mut Scored, k: usize, score: f32, label: usize) {
    if best.len() == k {
        if best
            .last()
            .is_some_and(|worst| score <= worst.0 || score.is_nan())
        {
            return;
        }
        best.pop();
    }
    let at = best.partition_point(|b| b.0 >= score);
    best.insert(at, (score, label));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tree_joins_the_two_rarest_first() {
        // 5 3 2 1: 1+2 = 3 (node 4), then leaf 1 is not rarer than node 4, so node 4 first
        assert_eq!(tree(&[5, 3, 2, 1]), [(3, 2), (4, 1), (0, 5)]);
        assert_eq!(tree(&[7]), []);
        assert_eq!(tree(&[]), []);
    }

    #[test]
    fn counts_that_no_dictionary_has_still_make_a_tree() {
        for counts in [[i64::MAX; 5], [i64::MIN; 5], [0, -1, i64::MAX, 4, 9]] {
            let made = tree(&counts);
            let mut seen: Vec<usize> = made.iter().flat_map(|c| [c.0, c.1]).collect();
            seen.sort_unstable();
            assert_eq!(seen, (0..8).collect::<Vec<_>>());
        }
    }
}
