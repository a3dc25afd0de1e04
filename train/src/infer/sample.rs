//! Sampling a token from logits: temperature, then the `top_k` likeliest, then the likeliest whose probabilities
//! reach `top_p` (nucleus sampling, Holtzman et al. 2020, arXiv:1904.09751). Random numbers are Philox(seed,
//! "generate", index of the token), so there is no state to carry.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use kernels::rng;
use xxhash_rust::xxh3::xxh3_64;

use crate::infer::options::GenerateOptions;

/// The tokens around a choice.
#[derive(Clone, Copy)]
pub(crate) struct Before<'a> {
    pub prompt: &'a [u32],
    /// The answer so far.
    pub answer: &'a [u32],
}

/// The next token of an answer.
pub(crate) fn choose(logits: &[f32], options: &GenerateOptions, before: Before<'_>) -> u32 {
    let changed = changed(logits, options, before);
    let logits = changed.as_deref().unwrap_or(logits);
    if options.temperature == 0.0 {
        return likeliest(logits);
    }
    let index = before.answer.len() as u64;
    let mut order: Vec<u32> = (0..).take(logits.len()).collect();
    let logit = |token: u32| logits[token as usize];
    let by_rank = |&a: &u32, &b: &u32| by_rank(logits, a, b);
    let count = options.top_k;
    if count > 0 && count < order.len() {
        order.select_nth_unstable_by(count - 1, by_rank);
        order.truncate(count);
    }
    order.sort_unstable_by(by_rank);
    let best = f64::from(logit(order[0]));
    let weights: Vec<f64> = order
        .iter()
        .map(|&token| ((f64::from(logit(token)) - best) / options.temperature).exp())
        .collect();
    let total: f64 = weights.iter().sum();
    let top_p = options.top_p_after(index);
    let (mut count, mut mass) = (0, 0.0);
    while count < weights.len()
        && (count == 0 || mass < top_p * total && weights[count] >= options.min_p * weights[0])
    {
        mass += weights[count];
        count += 1;
    }
    let mut left = rng::uniform(options.seed, xxh3_64(b"generate"), index) * mass;
    for (&token, weight) in order.iter().zip(&weights[..count]) {
        left -= weight;
        if left < 0.0 {
            return token;
        }
    }
    order[count - 1]
}

/// Likeliest first, the lower id among equals; NaN is last.
fn by_rank(logits: &[f32], a: u32, b: u32) -> Ordering {
    let key = |token: u32| {
        let logit = logits[token as usize];
        // both zeros are one number
        if logit.is_nan() {
            f32::NEG_INFINITY
        } else {
            logit + 0.0
        }
    };
    key(b).total_cmp(&key(a)).then(a.cmp(&b))
}

/// The token with the largest logit, the lowest id among equals.
pub(crate) fn likeliest(logits: &[f32]) -> u32 {
    let (mut best, mut token) = (f32::NEG_INFINITY, 0);
    for (id, &logit) in (0u32..).zip(logits) {
        if logit > best {
            (best, token) = (logit, id);
        }
    }
    token
}

/// Logits after biases, forbidden tokens and penalties; `None` if nothing changes them.
fn changed(logits: &[f32], options: &GenerateOptions, before: Before<'_>) -> Option<Vec<f32>> {
    let forbidden = forbidden(options, before);
    let repeats = options.repetition_penalty != 1.0;
    let penalizes = options.presence_penalty != 0.0 || options.frequency_penalty != 0.0;
    if options.logit_bias.is_empty() && forbidden.is_empty() && !repeats && !penalizes {
        return None;
    }
    let mut logits = logits.to_vec();
    let mut change = |token: u32, of: &dyn Fn(f64) -> f64| {
        if let Some(logit) = logits.get_mut(token as usize) {
            *logit = narrowed(of(f64::from(*logit)));
        }
    };
    for &(token, bias) in &options.logit_bias {
        change(token, &|logit| logit + bias);
    }
    if repeats {
        let seen: BTreeSet<u32> = before.prompt.iter().chain(before.answer).copied().collect();
        let penalty = options.repetition_penalty;
        for token in seen {
            change(token, &|logit| {
                if logit > 0.0 {
                    logit / penalty
                } else {
                    logit * penalty
                }
            });
        }
    }
    if penalizes {
        let mut counts = BTreeMap::<u32, f64>::new();
        for &token in before.answer {
            *counts.entry(token).or_default() += 1.0;
        }
        for (token, count) in counts {
            let penalty = options.presence_penalty + options.frequency_penalty * count;
            change(token, &|logit| logit - penalty);
        }
    }
    for token in forbidden {
        change(token, &|_| f64::NEG_INFINITY);
    }
    Some(logits)
}

#[expect(clippy::cast_possible_truncation, reason = "logits are f32")]
fn narrowed(x: f64) -> f32 {
    x as f32
}

/// Tokens that must not come next.
fn forbidden(options: &GenerateOptions, before: Before<'_>) -> Vec<u32> {
    let mut tokens = Vec::new();
    if before.answer.len() < options.min_tokens {
        let single = options.stop.iter().filter(|stop| stop.len() == 1);
        tokens.extend(single.flatten());
    }
    let last = before.answer.last().or(before.prompt.last());
    let follows = options.never_after.iter();
    tokens.extend(
        follows
            .filter(|[first, _]| Some(first) == last)
            .map(|[_, second]| second),
    );
    tokens
}

/// A token's log-probability and those of the likeliest tokens at its position.
#[derive(Clone, Debug, PartialEq)]
pub struct Scored {
    /// The token.
    pub token: u32,
    /// Natural logarithm of its probability by the model's own logits, before any option changes them.
    pub logprob: f32,
    /// Number of tokens with a larger logit, or the same and a lower id.
    pub rank: usize,
    /// The likeliest tokens, best first, the lower id among equals.
    pub top: Vec<(u32, f32)>,
}

/// The log-probability of a token at a row of logits, and those of the `top` likeliest ones. Each is rounded to f32 once,
/// so equal tokens have equal numbers.
pub(crate) fn scored(logits: &[f32], token: u32, top: usize) -> Scored {
    let log_sum = log_sum(logits);
    let log = |token: u32| narrowed(f64::from(logits[token as usize]) - log_sum);
    let mut order: Vec<u32> = (0..).take(logits.len()).collect();
    let rank = (0u32..).take(logits.len());
    let rank = rank
        .filter(|&other| by_rank(logits, other, token) == Ordering::Less)
        .count();
    let top = top.min(order.len());
    if top > 0 && top < order.len() {
        order.select_nth_unstable_by(top - 1, |&a, &b| by_rank(logits, a, b));
    }
    order.truncate(top);
    order.sort_unstable_by(|&a, &b| by_rank(logits, a, b));
    Scored {
        token,
        logprob: log(token),
        rank,
        top: order.into_iter().map(|token| (token, log(token))).collect(),
    }
}

/// The logarithm of a row's sum of exponentials, in f64 in order of ids.
pub(crate) fn log_sum(logits: &[f32]) -> f64 {
    let best = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let best = f64::from(best);
    let sum: f64 = logits.iter().map(|&x| (f64::from(x) - best).exp()).sum();
    best + sum.ln()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOGITS: [f32; 4] = [0.0, 2.0, 1.0, 2.0];

    fn counts(options: &GenerateOptions) -> [usize; 4] {
        let mut counts = [0; 4];
        let answer = vec![0; 20_000];
        for index in 0..20_000 {
            counts[choose(&LOGITS, options, after(&answer[..index])) as usize] += 1;
        }
        counts
    }

    fn after(answer: &[u32]) -> Before<'_> {
        Before {
            prompt: &[],
            answer,
        }
    }

    fn all() -> GenerateOptions {
        GenerateOptions {
            temperature: 1.0,
            top_k: 0,
            top_p: 1.0,
            ..GenerateOptions::default()
        }
    }

    #[test]
    fn zero_temperature_takes_the_likeliest_with_the_lowest_id() {
        assert_eq!(
            counts(&GenerateOptions {
                temperature: 0.0,
                ..all()
            }),
            [0, 20_000, 0, 0]
        );
    }

    #[test]
    fn frequencies_follow_the_softmax() {
        for temperature in [0.5, 1.0, 3.0] {
            let found = counts(&GenerateOptions {
                temperature,
                ..all()
            });
            let weights = LOGITS.map(|logit| (f64::from(logit) / temperature).exp());
            let total: f64 = weights.iter().sum();
            for (found, weight) in found.iter().zip(weights) {
                let p = weight / total;
                let sigma = (20_000.0 * p * (1.0 - p)).sqrt();
                let off = (*found as f64 - 20_000.0 * p).abs();
                assert!(off < 5.0 * sigma, "{off} {sigma}");
            }
        }
    }

    #[test]
    fn top_k_and_top_p_cut_the_tail() {
        let found = counts(&GenerateOptions { top_k: 3, ..all() });
        assert!(found[0] == 0 && found[2] > 0, "{found:?}");
        // the two likeliest have 0.799 of the mass, one has 0.40
        let found = counts(&GenerateOptions {
            top_p: 0.79,
            ..all()
        });
        assert!(
            found[0] == 0 && found[2] == 0 && found[1] > 0 && found[3] > 0,
            "{found:?}"
        );
        assert_eq!(
            counts(&GenerateOptions {
                top_p: 0.3,
                ..all()
            }),
            [0, 20_000, 0, 0]
        );
    }
}
