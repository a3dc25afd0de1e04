//! Sampling a token from logits: temperature, then the `top_k` likeliest, then the likeliest whose probabilities
//! reach `top_p` (nucleus sampling, Holtzman et al. 2020, arXiv:1904.09751). Random numbers are Philox(seed,
//! "generate", index of the token), so there is no state to carry.

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
    let mut order = Ranking::of(logits);
    let best = order.token(0);
    let weight = |token: u32| {
        let above = f64::from(logits[token as usize]) - f64::from(logits[best as usize]);
        let weight = (above / options.temperature).exp();
        // a logit that is no number has no weight
        if weight.is_nan() { 0.0 } else { weight }
    };
    let mut count = match options.top_k {
        0 => logits.len(),
        top_k => top_k.min(logits.len()),
    };
    let total: f64 = if count < logits.len() {
        (0..count).map(|rank| weight(order.token(rank))).sum()
    } else {
        (0u32..).take(count).map(weight).sum()
    };
    let top_p = options.top_p_after(index);
    let mut mass = total;
    if top_p < 1.0 || options.min_p > 0.0 {
        (mass, count) = nucleus(count, top_p * total, options.min_p, |rank| {
            weight(order.token(rank))
        });
    }
    let mut left = rng::uniform(options.seed, xxh3_64(b"generate"), index) * mass;
    for rank in 0..count {
        let token = order.token(rank);
        left -= weight(token);
        if left < 0.0 {
            return token;
        }
    }
    // no weights at all, or the rounding of their sum
    match total > 0.0 {
        true => order.token(count - 1),
        false => best,
    }
}

/// Sum and number of the first weights that together reach `mass`, or that are followed by one below `min_p` times the first;
/// at least one, `count` at most.
fn nucleus(
    count: usize,
    mass: f64,
    min_p: f64,
    mut weight: impl FnMut(usize) -> f64,
) -> (f64, usize) {
    let first = weight(0);
    let mut sum = first;
    for rank in 1..count {
        let next = weight(rank);
        if sum >= mass || next < min_p * first {
            return (sum, rank);
        }
        sum += next;
    }
    (sum, count)
}

/// Tokens of a row of logits, likeliest first, the lower id among equals; NaN is last. Sorted as far as it was asked for: what is
/// wanted of a large vocabulary are nearly always its first tokens.
struct Ranking {
    /// Keys of all tokens. Those before `sorted` are in order, and not above any other.
    keys: Vec<u64>,
    sorted: usize,
}

/// Tokens that are sorted first, and the factor of each further part.
const SORTED: usize = 64;
const GROWTH: usize = 8;

impl Ranking {
    fn of(logits: &[f32]) -> Ranking {
        let tokens = (0u32..).zip(logits);
        Ranking {
            keys: tokens
                .map(|(token, logit)| Ranking::key(*logit, token))
                .collect(),
            sorted: 0,
        }
    }

    /// A number that is smaller for a likelier token.
    fn key(logit: f32, token: u32) -> u64 {
        // both zeros are one number
        let logit = if logit.is_nan() {
            f32::NEG_INFINITY
        } else {
            logit + 0.0
        };
        // bits of negative numbers fall as the numbers rise
        let bits = logit.to_bits();
        let falling = if logit.is_sign_negative() {
            bits
        } else {
            !bits & !(1 << 31)
        };
        u64::from(falling) << 32 | u64::from(token)
    }

    /// The token of a rank below the number of tokens.
    fn token(&mut self, rank: usize) -> u32 {
        while self.sorted <= rank {
            let rest = &mut self.keys[self.sorted..];
            let part = (self.sorted * GROWTH).max(SORTED).min(rest.len());
            if part < rest.len() {
                rest.select_nth_unstable(part);
            }
            rest[..part].sort_unstable();
            self.sorted += part;
        }
        #[expect(
            clippy::cast_possible_truncation,
            reason = "the lower half is the token"
        )]
        let token = self.keys[rank] as u32;
        token
    }

    /// Number of likelier tokens.
    fn rank(&self, logit: f32, token: u32) -> usize {
        let key = Ranking::key(logit, token);
        self.keys.iter().filter(|&&other| other < key).count()
    }
}

/// The token with the largest logit, the lowest id among equals.
pub(crate) fn likeliest(logits: &[f32]) -> u32 {
    // as many maxima as fit in vector registers: one alone waits for each comparison
    let mut lanes = [f32::NEG_INFINITY; 32];
    let (chunks, rest) = logits.as_chunks::<32>();
    for chunk in chunks {
        for (most, logit) in lanes.iter_mut().zip(chunk) {
            *most = if *logit > *most { *logit } else { *most };
        }
    }
    let best = lanes.iter().chain(rest).copied();
    let best = best.fold(f32::NEG_INFINITY, |best, x| if x > best { x } else { best });
    let first = (0u32..).zip(logits).find(|(_, logit)| **logit == best);
    first.map_or(0, |(token, _)| token)
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
    let mut order = Ranking::of(logits);
    let top = (0..top.min(logits.len())).map(|rank| order.token(rank));
    let top = top.map(|token| (token, log(token))).collect();
    Scored {
        token,
        logprob: log(token),
        rank: order.rank(logits[token as usize], token),
        top,
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

    /// Ten thousand logits in small steps, so that many are equal, with numbers that are none.
    fn many() -> Vec<f32> {
        let mut state = 1u32;
        let mut next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            state >> 16
        };
        let mut logits: Vec<f32> = (0..10_000)
            .map(|_| (next() % 400) as f32 / 20.0 - 15.0)
            .collect();
        (logits[7], logits[8], logits[9]) = (f32::NAN, f32::NEG_INFINITY, -0.0);
        logits
    }

    /// All tokens by the definition of the order.
    fn sorted(logits: &[f32]) -> Vec<u32> {
        let mut order: Vec<u32> = (0..).take(logits.len()).collect();
        let logit = |token: u32| match logits[token as usize] {
            logit if logit.is_nan() => f32::NEG_INFINITY,
            logit => logit,
        };
        order.sort_by(|&a, &b| logit(b).partial_cmp(&logit(a)).unwrap().then(a.cmp(&b)));
        order
    }

    #[test]
    fn a_ranking_is_the_sorted_vocabulary_however_far_it_is_asked_for() {
        let logits = many();
        let wanted = sorted(&logits);
        let mut whole = Ranking::of(&logits);
        let found: Vec<u32> = (0..logits.len()).map(|rank| whole.token(rank)).collect();
        assert_eq!(found, wanted);
        for rank in [0, 63, 64, 575, 576, 9_999] {
            let mut one = Ranking::of(&logits);
            assert_eq!(one.token(rank), wanted[rank]);
            let token = wanted[rank];
            assert_eq!(one.rank(logits[token as usize], token), rank);
        }
    }

    #[test]
    fn draws_are_those_of_the_whole_vocabulary_in_order() {
        let logits = many();
        let numbers: Vec<f32> = logits
            .iter()
            .map(|x| if x.is_nan() { f32::NEG_INFINITY } else { *x })
            .collect();
        let order = sorted(&numbers);
        let settings = [
            (1.0, 0, 1.0, 0.0),
            (3.0, 0, 1.0, 0.0),
            (1.0, 0, 0.9, 0.0),
            (5.0, 0, 0.999, 0.0),
            (2.0, 0, 1.0, 0.3),
            (2.0, 700, 0.8, 0.01),
            (1.5, 40, 1.0, 0.0),
        ];
        for (temperature, top_k, top_p, min_p) in settings {
            let options = GenerateOptions {
                temperature,
                top_k,
                top_p,
                min_p,
                ..all()
            };
            let first = f64::from(numbers[order[0] as usize]);
            let kept = &order[..if top_k == 0 { order.len() } else { top_k }];
            let weight =
                |token: &u32| ((f64::from(numbers[*token as usize]) - first) / temperature).exp();
            let weights: Vec<f64> = kept.iter().map(weight).collect();
            let total: f64 = weights.iter().sum();
            let mut count = 0;
            let mut mass = 0.0;
            while count < weights.len()
                && (count == 0 || mass < top_p * total && weights[count] >= min_p)
            {
                mass += weights[count];
                count += 1;
            }
            let answer = vec![0; 500];
            for index in 0..500 {
                let u = rng::uniform(options.seed, xxh3_64(b"generate"), index as u64) * mass;
                let mut sum = 0.0;
                let wanted = weights[..count].iter().position(|weight| {
                    sum += weight;
                    u < sum
                });
                let found = choose(&logits, &options, after(&answer[..index]));
                assert_eq!(found, kept[wanted.unwrap()], "{options:?} {index}");
            }
        }
    }

    #[test]
    fn the_likeliest_is_the_first_of_the_order() {
        let logits = many();
        for (first, last) in [(0, 10_000), (1, 9_998), (31, 64), (32, 33), (7, 8), (7, 10)] {
            let part = &logits[first..last];
            assert_eq!(likeliest(part), sorted(part)[0], "{first} {last}");
        }
        assert_eq!(likeliest(&[]), 0);
    }

    #[test]
    fn without_any_weight_the_lowest_id_is_taken() {
        for logit in [f32::NAN, f32::NEG_INFINITY, f32::INFINITY] {
            let options = GenerateOptions {
                top_p: 0.9,
                ..all()
            };
            assert_eq!(choose(&[logit; 3], &options, after(&[])), 0);
            assert_eq!(choose(&[logit; 3], &all(), after(&[])), 0);
        }
    }
}
