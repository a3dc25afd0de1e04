//! Router on the CPU: rows in f64, one task per block of rows.

use super::capacity::Drop;
use super::router::{Groups, Router, Score};
use super::statistics::{Losses, Slopes, Statistics, Unread};
use crate::cpu::ROW_BLOCK;
use crate::ops::permute::DROPPED;
use crate::{Error, Result, Tensor};
use rayon::prelude::*;

/// Keeps a sum of scores that are all 0 from dividing by 0, as Megatron does.
const TINY: f64 = 1e-20;

pub(super) fn forward(
    choices: &mut Tensor,
    weights: &mut Tensor,
    logits: &Tensor,
    bias: Option<&Tensor>,
    router: &Router,
) -> Unread {
    let (_, experts) = logits.rows_cols();
    let k = router.k;
    let bias = bias.map(Tensor::f32);
    let blocks = choices
        .u32_mut()
        .par_chunks_mut(k * ROW_BLOCK)
        .zip(weights.f32_mut().par_chunks_mut(k * ROW_BLOCK))
        .zip(logits.f32().par_chunks(experts * ROW_BLOCK));
    let parts: Vec<Statistics> = blocks
        .map(|((choices, weights), logits)| {
            let mut statistics = Statistics::new(experts, k);
            let mut largest = vec![0; k];
            let outs = choices.chunks_exact_mut(k).zip(weights.chunks_exact_mut(k));
            for ((choices, weights), logits) in outs.zip(logits.chunks_exact(experts)) {
                let row = Row::new(logits, router.score);
                choose(choices, &keys(&row, logits, bias, router));
                row.weights(choices, router, weights);
                if bias.is_some() {
                    let plain = Router {
                        groups: None,
                        ..*router
                    };
                    choose(&mut largest, &keys(&row, logits, None, &plain));
                } else {
                    largest.copy_from_slice(choices);
                }
                statistics.token(&largest, choices, &row.probabilities, row.log_sum);
            }
            statistics
        })
        .collect();
    let mut statistics = Statistics::new(experts, k);
    parts.iter().for_each(|part| statistics.add(part));
    Unread::Known(statistics)
}

pub(super) fn backward(
    dlogits: &mut Tensor,
    dweights: &Tensor,
    logits: &Tensor,
    experts: &Tensor,
    router: &Router,
    losses: &Losses<'_>,
) -> Result<()> {
    let Unread::Known(statistics) = losses.statistics else {
        return Err(Error::Argument {
            op: "route::backward",
            name: "statistics",
            found: "words on a device".to_owned(),
            wanted: "those of tokens on the host".to_owned(),
        });
    };
    let slopes = &statistics.slopes(losses.coefficients);
    let (_, count) = logits.rows_cols();
    let k = router.k;
    let outs = dlogits.f32_mut().par_chunks_mut(count);
    let ins = logits.f32().par_chunks(count);
    outs.zip(ins)
        .zip(dweights.f32().par_chunks(k))
        .zip(experts.u32().par_chunks(k))
        .with_min_len(ROW_BLOCK)
        .for_each(|(((out, logits), dweights), chosen)| {
            let row = Row::new(logits, router.score);
            row.gradient(out, logits, (dweights, chosen), router, slopes);
        });
    Ok(())
}

/// Marks the choices over `capacity` as dropped and counts them by expert in `dropped`.
pub(super) fn drop_over(
    dropped: &mut Tensor,
    experts: &mut Tensor,
    weights: &Tensor,
    capacity: usize,
    policy: Drop,
) -> Result<()> {
    let wrong = |name, found, wanted| {
        let op = "route::drop_over";
        Err(Error::Argument {
            op,
            name,
            found,
            wanted,
        })
    };
    let (weights, total) = (weights.f32(), dropped.elements());
    if let Some(i) = weights.iter().position(|w| w.is_nan()) {
        return wrong(
            "weights",
            format!("NaN at choice {i}"),
            "numbers".to_owned(),
        );
    }
    let ids = experts.u32_mut();
    let mut choices: Vec<usize> = (0..ids.len()).filter(|i| ids[*i] != DROPPED).collect();
    if let Some(i) = choices.iter().find(|i| ids[**i] as usize >= total) {
        return wrong("experts", ids[*i].to_string(), format!("below {total}"));
    }
    // Stable, so that equal weights stay in token order.
    choices.sort_by(|&a, &b| {
        let by_weight = match policy {
            Drop::ByPosition => std::cmp::Ordering::Equal,
            Drop::ByWeight => weights[b].total_cmp(&weights[a]),
        };
        ids[a].cmp(&ids[b]).then(by_weight)
    });
    let mut over: Vec<usize> = Vec::new();
    for group in choices.chunk_by(|a, b| ids[*a] == ids[*b]) {
        over.extend(group.iter().skip(capacity));
    }
    let dropped = dropped.u32_mut();
    for i in over {
        dropped[ids[i] as usize] += 1;
        ids[i] = DROPPED;
    }
    Ok(())
}

/// Results for one token's logits.
struct Row {
    /// Softmax.
    softmax: Vec<f64>,
    /// Log of the sum of exponentials.
    log_sum: f64,
    /// Logistic function of the logits; empty for the softmax scores.
    logistic: Vec<f64>,
    /// Probabilities for the load balance: softmax, or logistic over its sum.
    probabilities: Vec<f64>,
}

impl Row {
    fn new(logits: &[f32], score: Score) -> Row {
        let wide = || logits.iter().map(|x| f64::from(*x));
        let max = wide().fold(f64::NEG_INFINITY, f64::max);
        let exps: Vec<f64> = wide().map(|x| (x - max).exp()).collect();
        let sum: f64 = exps.iter().sum();
        let softmax: Vec<f64> = exps.iter().map(|e| e / sum).collect();
        let (logistic, probabilities) = if score == Score::Sigmoid {
            let logistic: Vec<f64> = wide().map(|x| 1.0 / (1.0 + (-x).exp())).collect();
            let sum = logistic.iter().sum::<f64>() + TINY;
            let shares = logistic.iter().map(|s| s / sum).collect();
            (logistic, shares)
        } else {
            (Vec::new(), softmax.clone())
        };
        Row {
            softmax,
            log_sum: max + sum.ln(),
            logistic,
            probabilities,
        }
    }

    /// Scores of the chosen experts, and their divisor.
    fn scores(&self, chosen: &[u32], score: Score) -> (Vec<f64>, f64) {
        let all = match score {
            Score::Sigmoid => &self.logistic,
            Score::SoftmaxTopK | Score::TopKSoftmax => &self.softmax,
        };
        let scores: Vec<f64> = chosen.iter().map(|e| all[*e as usize]).collect();
        let sum = match score {
            Score::SoftmaxTopK => 1.0,
            Score::TopKSoftmax => scores.iter().sum(),
            Score::Sigmoid if chosen.len() > 1 => scores.iter().sum::<f64>() + TINY,
            Score::Sigmoid => 1.0,
        };
        (scores, sum)
    }

    #[expect(clippy::cast_possible_truncation, reason = "rounded once")]
    fn weights(&self, chosen: &[u32], router: &Router, out: &mut [f32]) {
        let (scores, sum) = self.scores(chosen, router.score);
        for (out, score) in out.iter_mut().zip(scores) {
            *out = (score / sum * f64::from(router.scale)) as f32;
        }
    }

    #[expect(clippy::cast_possible_truncation, reason = "rounded once")]
    fn gradient(
        &self,
        out: &mut [f32],
        logits: &[f32],
        (dweights, chosen): (&[f32], &[u32]),
        router: &Router,
        slopes: &Slopes,
    ) {
        // By each score: softmax or logistic of the expert.
        let mut dscores = vec![0.0; logits.len()];
        let (scores, sum) = self.scores(chosen, router.score);
        let scale = f64::from(router.scale);
        let dw = || dweights.iter().map(|d| f64::from(*d) * scale);
        let normalised = match router.score {
            Score::SoftmaxTopK => false,
            Score::TopKSoftmax => true,
            Score::Sigmoid => chosen.len() > 1,
        };
        let mean: f64 = if normalised {
            dw().zip(&scores).map(|(d, s)| d * s / sum).sum()
        } else {
            0.0
        };
        for (d, expert) in dw().zip(chosen) {
            dscores[*expert as usize] += (d - mean) / sum;
        }
        let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
        let balance = dot(&slopes.balance, &self.probabilities);
        let z = 2.0 * slopes.z * self.log_sum;
        if router.score == Score::Sigmoid {
            let sum = self.logistic.iter().sum::<f64>() + TINY;
            for (i, out) in out.iter_mut().enumerate() {
                let s = self.logistic[i];
                let d = dscores[i] + (slopes.balance[i] - balance) / sum;
                *out = (d * s * (1.0 - s) + z * self.softmax[i]) as f32;
            }
        } else {
            for (d, slope) in dscores.iter_mut().zip(&slopes.balance) {
                *d += slope;
            }
            let mean = dot(&dscores, &self.softmax);
            for (i, out) in out.iter_mut().enumerate() {
                *out = (self.softmax[i] * (dscores[i] - mean + z)) as f32;
            }
        }
    }
}

/// The numbers by which experts are chosen: a NaN is above all, so that it shows; below all are those of groups that are not kept.
fn keys(row: &Row, logits: &[f32], bias: Option<&[f32]>, router: &Router) -> Vec<f64> {
    let key = |expert: usize| {
        let key = match router.score {
            Score::Sigmoid => {
                row.logistic[expert] + bias.map_or(0.0, |bias| f64::from(bias[expert]))
            }
            // The same order as the softmax, without its rounding.
            Score::SoftmaxTopK | Score::TopKSoftmax => f64::from(logits[expert]),
        };
        comparable(key)
    };
    let mut keys: Vec<f64> = (0..logits.len()).map(key).collect();
    if let Some(groups) = router.groups {
        keep_groups(&mut keys, groups, router.score);
    }
    keys
}

/// One NaN, and no -0.0.
fn comparable(key: f64) -> f64 {
    if key.is_nan() {
        f64::NAN.abs()
    } else {
        key + 0.0
    }
}

/// Hides the experts of all groups but the best; of equal groups the lower are kept.
fn keep_groups(keys: &mut [f64], groups: Groups, score: Score) {
    let size = keys.len() / groups.count;
    let of_group = |keys: &[f64]| {
        let mut falling = keys.to_vec();
        falling.sort_by(|a, b| b.total_cmp(a));
        match score {
            Score::Sigmoid => comparable(falling.iter().take(2).sum()),
            Score::SoftmaxTopK | Score::TopKSoftmax => falling[0],
        }
    };
    let scores: Vec<f64> = keys.chunks(size).map(of_group).collect();
    let mut order: Vec<usize> = (0..groups.count).collect();
    order.sort_by(|&a, &b| scores[b].total_cmp(&scores[a]));
    for group in &order[groups.kept..] {
        // below every number, -infinity included
        keys[group * size..(group + 1) * size].fill(f64::NAN.copysign(-1.0));
    }
}

/// The k experts with the largest keys, falling; ties to the lower expert.
#[expect(clippy::cast_possible_truncation, reason = "mod.rs checks experts")]
fn choose(choices: &mut [u32], keys: &[f64]) {
    let mut experts: Vec<usize> = (0..keys.len()).collect();
    experts.sort_by(|&a, &b| keys[b].total_cmp(&keys[a]));
    for (choice, expert) in choices.iter_mut().zip(experts) {
        *choice = expert as u32;
    }
}
