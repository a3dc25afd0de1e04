//! Sampling a token from logits: temperature, then the `top_k` likeliest, then the likeliest whose probabilities
//! reach `top_p` (nucleus sampling, Holtzman et al. 2020, arXiv:1904.09751). Random numbers are Philox(seed,
//! "generate", index of the token), so there is no state to carry.

use kernels::rng;
use xxhash_rust::xxh3::xxh3_64;

use crate::infer::options::GenerateOptions;

/// The token after `index` others of this continuation.
pub(crate) fn choose(logits: &[f32], options: &GenerateOptions, index: u64) -> u32 {
    let mut order: Vec<u32> = (0..).take(logits.len()).collect();
    let logit = |token: u32| logits[token as usize];
    // likeliest first, the lower id among equals
    let by_rank = |&a: &u32, &b: &u32| logit(b).total_cmp(&logit(a)).then(a.cmp(&b));
    let count = if options.temperature == 0.0 {
        1
    } else {
        options.top_k
    };
    if count > 0 && count < order.len() {
        order.select_nth_unstable_by(count - 1, by_rank);
        order.truncate(count);
    }
    order.sort_unstable_by(by_rank);
    if options.temperature == 0.0 {
        return order[0];
    }
    let best = f64::from(logit(order[0]));
    let weights: Vec<f64> = order
        .iter()
        .map(|&token| ((f64::from(logit(token)) - best) / options.temperature).exp())
        .collect();
    let total: f64 = weights.iter().sum();
    let (mut count, mut mass) = (0, 0.0);
    while count < weights.len() && (count == 0 || mass < options.top_p * total) {
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

#[cfg(test)]
mod tests {
    use super::*;

    const LOGITS: [f32; 4] = [0.0, 2.0, 1.0, 2.0];

    fn counts(options: &GenerateOptions) -> [usize; 4] {
        let mut counts = [0; 4];
        for index in 0..20_000 {
            counts[choose(&LOGITS, options, index) as usize] += 1;
        }
        counts
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
