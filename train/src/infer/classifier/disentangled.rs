//! Disentangled attention: a score is q k + q K[row of i - j] + k Q[row of i - j], divided by the root of the head width
//! times the number of terms, where K and Q are projections of a table of distances.
//! Papers: He et al. 2021, arXiv:2006.03654 and arXiv:2111.09543.
//!
//! Scores of a head of one sequence are a matrix, so that each term is one matrix product; the terms by distance are
//! products with the rows of the table that the sequence's distances have. A head of a sequence is one task, and its numbers
//! depend on nothing else. The sum of a row's exponentials is eight chains over the keys, which are added at the end.

use kernels::matmul::{Numbers, product};
use kernels::{DType, Device, Tensor};
use rayon::prelude::*;

use crate::infer::classifier::config::Relative;
use crate::infer::classifier::distances::rows_of;

/// A layer's projections of the table of distances.
pub(super) struct Disentangled {
    pub relative: Relative,
    pub heads: usize,
    /// Width of a head.
    pub width: usize,
    /// By head: `[2 * span, width]`; none if scores have no such term.
    pub keys: Vec<Tensor>,
    pub queries: Vec<Tensor>,
    pub numbers: Numbers,
}

/// Neighbouring rows of a sequence.
#[derive(Clone, Copy)]
pub(super) struct Rows {
    pub first: usize,
    pub count: usize,
}

/// Rows of a table start where a line of memory does if their number is a multiple of this.
const ALIGNED: usize = 16;
/// Chains of a sum.
const CHAINS: usize = 8;

impl Disentangled {
    /// qkv: rows of each head's query, key and value -> `[rows, heads * width]`, f32.
    pub(super) fn attend(&self, qkv: &Tensor, sequences: &[Rows]) -> kernels::Result<Tensor> {
        let device = qkv.device();
        let values = qkv.host::<f32>()?;
        let tasks: Vec<(Rows, usize)> = sequences
            .iter()
            .flat_map(|rows| (0..self.heads).map(|head| (*rows, head)))
            .collect();
        let found: Vec<Tensor> = tasks
            .par_iter()
            .map(|(rows, head)| self.head(values, *rows, *head, device))
            .collect::<kernels::Result<_>>()?;
        let d = self.heads * self.width;
        let mut mixed = Tensor::empty(&[qkv.dims()[0], d], DType::F32, device)?;
        let to = mixed.host_mut::<f32>()?;
        for ((rows, head), found) in tasks.iter().zip(&found) {
            let found = found.host::<f32>()?.chunks(self.width);
            for (row, found) in (rows.first..).zip(found) {
                let at = row * d + head * self.width;
                to[at..at + self.width].copy_from_slice(found);
            }
        }
        Ok(mixed)
    }

    fn head(
        &self,
        values: &[f32],
        rows: Rows,
        head: usize,
        device: &Device,
    ) -> kernels::Result<Tensor> {
        let (t, e) = (rows.count, self.width);
        let packed = 3 * self.heads * e;
        let part = |slot: usize| {
            let mut part = Vec::with_capacity(t * e);
            for row in rows.first..rows.first + t {
                let at = row * packed + (3 * head + slot) * e;
                part.extend_from_slice(&values[at..at + e]);
            }
            Tensor::from_f32(&[t, e], &part, device)
        };
        let [q, k, v] = [part(0)?, part(1)?, part(2)?];
        let times = |a: &Tensor, b: &Tensor| {
            let dims = [a.dims()[0], b.dims()[0]];
            let mut c = Tensor::empty(&dims, DType::F32, device)?;
            product(self.numbers, &mut c, a, b.transposed(), 0, false)?;
            Ok::<Tensor, kernels::Error>(c)
        };
        let table_rows = rows_of(&self.relative, t);
        let from = table_rows[0] / ALIGNED * ALIGNED;
        let used = from..table_rows[2 * t - 2] + 1;
        let by_query = match self.keys.get(head) {
            Some(keys) => Some(times(&q, &*keys.rows(used.clone())?)?),
            None => None,
        };
        let by_key = match self.queries.get(head) {
            Some(queries) => Some(times(&*queries.rows(used.clone())?, &k)?),
            None => None,
        };
        let mut scores = times(&q, &k)?;
        let terms = 1 + usize::from(by_query.is_some()) + usize::from(by_key.is_some());
        let terms = Terms {
            by_query: host(by_query.as_ref())?,
            by_key: host(by_key.as_ref())?,
            rows: table_rows.iter().map(|row| row - from).collect(),
            used: used.len(),
            scale: 1.0 / ((e * terms) as f32).sqrt(),
        };
        for (i, scores) in scores.host_mut::<f32>()?.chunks_mut(t).enumerate() {
            terms.add_to(i, scores);
            softmax(scores);
        }
        let mut mixed = Tensor::empty(&[t, e], DType::F32, device)?;
        product(self.numbers, &mut mixed, &scores, &v, 0, false)?;
        Ok(mixed)
    }
}

fn host(x: Option<&Tensor>) -> kernels::Result<&[f32]> {
    x.map_or(Ok(&[]), |x| x.host())
}

/// Terms of a head's scores by distance.
struct Terms<'a> {
    /// `[queries, used]`, or empty.
    by_query: &'a [f32],
    /// `[used, keys]`, or empty.
    by_key: &'a [f32],
    /// Row of each distance, ascending.
    rows: Vec<usize>,
    used: usize,
    scale: f32,
}

impl Terms<'_> {
    /// Adds the terms to the scores of query i, and scales them.
    fn add_to(&self, i: usize, scores: &mut [f32]) {
        let t = scores.len();
        // the first key is the furthest before it
        let rows = self.rows[i..i + t].iter().rev();
        if !self.by_query.is_empty() {
            let own = &self.by_query[i * self.used..(i + 1) * self.used];
            for (score, row) in scores.iter_mut().zip(rows.clone()) {
                *score += own[*row];
            }
        }
        if !self.by_key.is_empty() {
            for (j, (score, row)) in scores.iter_mut().zip(rows).enumerate() {
                *score += self.by_key[row * t + j];
            }
        }
        scores.iter_mut().for_each(|score| *score *= self.scale);
    }
}

fn softmax(scores: &mut [f32]) {
    let max = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    scores
        .iter_mut()
        .for_each(|score| *score = exp(*score - max));
    let mut chains = [0.0f32; CHAINS];
    for scores in scores.chunks(CHAINS) {
        for (chain, score) in chains.iter_mut().zip(scores) {
            *chain += score;
        }
    }
    let factor = 1.0 / chains.iter().sum::<f32>();
    scores.iter_mut().for_each(|score| *score *= factor);
}

/// e^x for x up to 0, within three units in the last place; 0 from -87 down; NaN stays. Without a call, so that loops over
/// it are vectors.
#[expect(
    clippy::excessive_precision,
    reason = "the parts of ln 2 are exact in f32 as they are written"
)]
fn exp(x: f32) -> f32 {
    /// Adding it rounds to an integer: 1.5 * 2^23.
    const ROUND: f32 = 12_582_912.0;
    let given = x;
    let x = x.max(-87.0);
    let n = (x * std::f32::consts::LOG2_E + ROUND) - ROUND;
    // x - n ln 2 in two steps (Cody & Waite)
    let r = (x - n * 0.693_359_375) - n * -2.121_944_4e-4;
    // Taylor's series: r is at most 0.35
    let p = [
        1.0 / 5040.0,
        1.0 / 720.0,
        1.0 / 120.0,
        1.0 / 24.0,
        1.0 / 6.0,
        0.5,
        1.0,
        1.0,
    ];
    let p = p.iter().fold(0.0f32, |sum, c| sum * r + c);
    // 2^n by its exponent: n + ROUND has n in its lowest bits
    let power = ((n + ROUND).to_bits() << 23).wrapping_add(127 << 23);
    let y = p * f32::from_bits(power);
    let y = if x <= -87.0 { 0.0 } else { y };
    if given.is_nan() { given } else { y }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exponentials_are_those_of_f64() {
        for i in 0..87_000 {
            let x = i as f32 * -0.001;
            let wanted = f64::from(x).exp();
            let off = (f64::from(exp(x)) - wanted).abs() / wanted;
            assert!(off < 3.0 * f64::from(f32::EPSILON), "{x}: {off}");
        }
        assert_eq!(exp(0.0), 1.0);
        assert_eq!(exp(-88.0), 0.0);
        assert_eq!(exp(f32::NEG_INFINITY), 0.0);
        assert!(exp(f32::NAN).is_nan());
    }
}
