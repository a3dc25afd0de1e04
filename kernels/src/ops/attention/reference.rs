//! The f64 loop that the tests of attention compare with.

use super::*;
use std::ops::Range;

/// Queries, keys, values and a bias in f64: rows of heads.
pub(super) struct Loop<'a> {
    pub(super) heads: Heads,
    pub(super) q: &'a [f64],
    pub(super) k: &'a [f64],
    pub(super) v: &'a [f64],
    /// Query rows and keys of a sequence.
    pub(super) rows: (usize, usize),
    pub(super) scores: Scores,
    pub(super) bias: Option<(&'a [f64], Buckets)>,
    /// One per head.
    pub(super) sinks: Option<&'a [f64]>,
    pub(super) factor: Factor,
}

impl Loop<'_> {
    /// `seen` per query row of all sequences.
    pub(super) fn run(&self, seen: &[Range<usize>]) -> Vec<f64> {
        let (h, (t, time)) = (&self.heads, self.rows);
        let mut out = vec![0.0; self.q.len()];
        for (at, out) in out.chunks_mut(h.width).enumerate() {
            let (row, head) = (at / h.heads, at % h.heads);
            let q = &self.q[at * h.width..][..h.width];
            let other = |x: &'_ [f64], key: usize| -> Vec<f64> {
                let at = (row / t * time + key) * h.kv_heads + head / h.per_group();
                x[at * h.width..][..h.width].to_vec()
            };
            let score = |key: usize| {
                let dot: f64 = q.iter().zip(other(self.k, key)).map(|(a, b)| a * b).sum();
                let by = self.scores.divisor.map_or(h.width as f64, f64::from);
                let bias = self.bias.map_or(0.0, |(table, buckets)| {
                    table[head * buckets.buckets + buckets.of(row % t, key)]
                });
                let bias = self.scores.alibi.map_or(bias, |alibi| {
                    f64::from(alibi.slope(head)) * (key as f64 - (row % t) as f64)
                });
                let cap = f64::from(self.scores.cap);
                let score = match dot / by.sqrt() {
                    score if cap > 0.0 => cap * (score / cap).tanh(),
                    score => score,
                };
                (score + bias).exp()
            };
            let sink = self.sinks.map_or(0.0, |sinks| sinks[head].exp());
            let sum: f64 = sink + seen[row].clone().map(score).sum::<f64>();
            for key in seen[row].clone() {
                let p = score(key) / sum * (self.factor)(row / t, head, row % t, key);
                let value = other(self.v, key);
                out.iter_mut().zip(value).for_each(|(o, v)| *o += p * v);
            }
        }
        out
    }
}

/// Packed rows as queries, keys and values.
pub(super) fn unpack<T: Copy>(qkv: &[T], h: &Heads) -> [Vec<T>; 3] {
    let mut out = [Vec::new(), Vec::new(), Vec::new()];
    for slot in qkv.chunks(h.width).enumerate() {
        let place = slot.0 % (h.per_group() + 2);
        out[place.saturating_sub(h.per_group() - 1)].extend_from_slice(slot.1);
    }
    out
}

/// Nothing is dropped.
pub(super) fn kept(_: usize, _: usize, _: usize, _: usize) -> f64 {
    1.0
}

/// Factor of a probability by sequence, head, query and key.
pub(super) type Factor = fn(usize, usize, usize, usize) -> f64;

/// Scaled attention of packed rows without a bias; `seen` per row of all sequences of `t`.
pub(super) fn packed(
    qkv: &[f64],
    heads: &Heads,
    t: usize,
    seen: &[Range<usize>],
    factor: Factor,
) -> Vec<f64> {
    let [q, k, v] = unpack(qkv, heads);
    let this = Loop {
        heads: *heads,
        q: &q,
        k: &k,
        v: &v,
        rows: (t, t),
        scores: Scores::scaled(true),
        bias: None,
        sinks: None,
        factor,
    };
    this.run(seen)
}
