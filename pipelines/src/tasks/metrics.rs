//! Metrics of one document, and their aggregates.
//!
//! Source: lm-evaluation-harness 0.4.13 `api/metrics.py`, `api/task.py` (`process_results`), `tasks/crows_pairs/utils.py`,
//! `tasks/simple_cooccurrence_bias/utils.py`, `tasks/bbq/utils.py`; for `megatron_*` Megatron-LM core_v0.7.0
//! `tasks/zeroshot_gpt/evaluate.py`. Sums run over documents in order, in f64, as CPython before 3.12 adds.

use super::bbq;
use super::shape::Shape;
use serde::Deserialize;

/// A metric by its name in results.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Metric {
    Acc,
    /// By log-likelihood per character of the choice.
    AccNorm,
    /// By log-likelihood per byte of the choice.
    AccBytes,
    /// Of the class 1.
    F1,
    Perplexity,
    WordPerplexity,
    BytePerplexity,
    BitsPerByte,
    ExactMatch,
    /// CrowS-Pairs: mean distance; occupations: ln P(female) - ln P(male).
    LikelihoodDiff,
    PctStereotype,
    PctMalePreferred,
    /// Of two answers: ln P(first) - ln P(second).
    LogGap,
    /// Share of questions whose first answer is the likeliest.
    PctFirst,
    AccuracyAmb,
    AccuracyDisamb,
    AmbBiasScore,
    DisambBiasScore,
    /// exp of the loss per token, at most e^20.
    MegatronPpl,
    /// exp of the loss per word of the original, at most e^20.
    MegatronAdjustedPpl,
}

/// A document's share of a metric.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Item {
    Number(f64),
    /// A log-likelihood and what it is divided by.
    Weighted {
        log: f64,
        weight: f64,
    },
    Classes {
        gold: usize,
        predicted: usize,
    },
    Bbq(bbq::Answer),
}

/// Function of a metric's items.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Aggregation {
    Mean,
    Perplexity,
    WeightedPerplexity,
    BitsPerByte,
    F1,
    Bbq,
    Megatron,
}

impl Metric {
    /// The name in results.
    pub(super) fn name(self) -> &'static str {
        match self {
            Metric::Acc => "acc",
            Metric::AccNorm => "acc_norm",
            Metric::AccBytes => "acc_bytes",
            Metric::F1 => "f1",
            Metric::Perplexity => "perplexity",
            Metric::WordPerplexity => "word_perplexity",
            Metric::BytePerplexity => "byte_perplexity",
            Metric::BitsPerByte => "bits_per_byte",
            Metric::ExactMatch => "exact_match",
            Metric::LikelihoodDiff => "likelihood_diff",
            Metric::PctStereotype => "pct_stereotype",
            Metric::PctMalePreferred => "pct_male_preferred",
            Metric::LogGap => "log_gap",
            Metric::PctFirst => "pct_first",
            Metric::AccuracyAmb => "accuracy_amb",
            Metric::AccuracyDisamb => "accuracy_disamb",
            Metric::AmbBiasScore => "amb_bias_score",
            Metric::DisambBiasScore => "disamb_bias_score",
            Metric::MegatronPpl => "megatron_ppl",
            Metric::MegatronAdjustedPpl => "megatron_adjusted_ppl",
        }
    }

    /// Whether the requests of a shape answer it.
    pub(super) fn fits(self, shape: Shape) -> bool {
        match self {
            Metric::Acc => matches!(shape, Shape::MultipleChoice | Shape::Continuation),
            Metric::Perplexity => shape == Shape::Continuation,
            Metric::WordPerplexity
            | Metric::BytePerplexity
            | Metric::BitsPerByte
            | Metric::MegatronPpl
            | Metric::MegatronAdjustedPpl => shape == Shape::Rolling,
            Metric::ExactMatch => matches!(shape, Shape::Generation | Shape::MultipleChoice),
            Metric::AccNorm
            | Metric::AccBytes
            | Metric::F1
            | Metric::LikelihoodDiff
            | Metric::PctStereotype
            | Metric::PctMalePreferred
            | Metric::LogGap
            | Metric::PctFirst
            | Metric::AccuracyAmb
            | Metric::AccuracyDisamb
            | Metric::AmbBiasScore
            | Metric::DisambBiasScore => shape == Shape::MultipleChoice,
        }
    }

    pub(super) fn aggregation(self) -> Aggregation {
        match self {
            Metric::Acc
            | Metric::AccNorm
            | Metric::AccBytes
            | Metric::ExactMatch
            | Metric::LikelihoodDiff
            | Metric::PctStereotype
            | Metric::PctMalePreferred
            | Metric::LogGap
            | Metric::PctFirst => Aggregation::Mean,
            Metric::F1 => Aggregation::F1,
            Metric::Perplexity => Aggregation::Perplexity,
            Metric::WordPerplexity | Metric::BytePerplexity => Aggregation::WeightedPerplexity,
            Metric::BitsPerByte => Aggregation::BitsPerByte,
            Metric::AccuracyAmb
            | Metric::AccuracyDisamb
            | Metric::AmbBiasScore
            | Metric::DisambBiasScore => Aggregation::Bbq,
            Metric::MegatronPpl | Metric::MegatronAdjustedPpl => Aggregation::Megatron,
        }
    }

    pub(super) fn is_higher_better(self) -> bool {
        match self {
            Metric::Acc
            | Metric::AccNorm
            | Metric::AccBytes
            | Metric::F1
            | Metric::ExactMatch
            | Metric::AccuracyAmb
            | Metric::AccuracyDisamb => true,
            Metric::Perplexity
            | Metric::WordPerplexity
            | Metric::BytePerplexity
            | Metric::BitsPerByte
            | Metric::LikelihoodDiff
            | Metric::PctStereotype
            | Metric::PctMalePreferred
            | Metric::LogGap
            | Metric::PctFirst
            | Metric::AmbBiasScore
            | Metric::DisambBiasScore
            | Metric::MegatronPpl
            | Metric::MegatronAdjustedPpl => false,
        }
    }

    /// The aggregate of all documents; None where it has no value.
    pub(super) fn aggregate(self, items: &[Item]) -> Option<f64> {
        if items.is_empty() {
            return None;
        }
        let answers = || -> Vec<bbq::Answer> {
            let answer = |item: &Item| match item {
                Item::Bbq(answer) => Some(*answer),
                _ => None,
            };
            items.iter().filter_map(answer).collect()
        };
        match self {
            Metric::AccuracyAmb => bbq::accuracy(&answers(), false),
            Metric::AccuracyDisamb => bbq::accuracy(&answers(), true),
            Metric::AmbBiasScore => bbq::ambiguous_bias(&answers()),
            Metric::DisambBiasScore => bbq::disambiguated_bias(&answers()),
            _ => match self.aggregation() {
                Aggregation::Mean => Some(mean(&numbers(items))),
                Aggregation::Perplexity => Some(perplexity(&numbers(items))),
                Aggregation::WeightedPerplexity => Some((-weighted_mean(items)).exp()),
                Aggregation::BitsPerByte => Some(-weighted_mean(items) / std::f64::consts::LN_2),
                Aggregation::F1 => Some(f1(&classes(items))),
                Aggregation::Megatron => Some((-weighted_mean(items)).min(20.0).exp()),
                Aggregation::Bbq => None,
            },
        }
    }
}

/// The numbers among items.
pub(super) fn numbers(items: &[Item]) -> Vec<f64> {
    let number = |item: &Item| match item {
        Item::Number(number) => Some(*number),
        _ => None,
    };
    items.iter().filter_map(number).collect()
}

/// Pairs of right and predicted class among items.
pub(super) fn classes(items: &[Item]) -> Vec<[usize; 2]> {
    let pair = |item: &Item| match item {
        Item::Classes { gold, predicted } => Some([*gold, *predicted]),
        _ => None,
    };
    items.iter().filter_map(pair).collect()
}

/// Sum in order, divided by the count.
pub(super) fn mean(numbers: &[f64]) -> f64 {
    numbers.iter().fold(0.0, |sum, x| sum + x) / numbers.len() as f64
}

pub(super) fn perplexity(logs: &[f64]) -> f64 {
    (-mean(logs)).exp()
}

/// Sum of logs over sum of weights.
fn weighted_mean(items: &[Item]) -> f64 {
    let (mut logs, mut weights) = (0.0, 0.0);
    for item in items {
        if let Item::Weighted { log, weight } = item {
            (logs, weights) = (logs + log, weights + weight);
        }
    }
    logs / weights
}

/// F1 of class 1 over pairs of right and predicted class; 0 if there is none of it.
pub(super) fn f1(pairs: &[[usize; 2]]) -> f64 {
    let (mut both, mut either) = (0u64, 0u64);
    for [gold, predicted] in pairs {
        both += u64::from(*gold == 1 && *predicted == 1);
        either += u64::from(*gold == 1) + u64::from(*predicted == 1);
    }
    match either {
        0 => 0.0,
        _ => 2.0 * both as f64 / either as f64,
    }
}

/// Number of the largest value, the first among equals.
pub(super) fn argmax(values: impl Iterator<Item = f64>) -> usize {
    let mut best = (0, f64::NEG_INFINITY);
    for (number, value) in values.enumerate() {
        if value > best.1 {
            best = (number, value);
        }
    }
    best.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aggregates_are_their_formulas() {
        let numbers = [-1.0, -3.0].map(Item::Number);
        assert_eq!(Metric::Acc.aggregate(&numbers), Some(-2.0));
        assert_eq!(Metric::Perplexity.aggregate(&numbers), Some(2f64.exp()));
        let weighted = [
            Item::Weighted {
                log: -2.0,
                weight: 1.0,
            },
            Item::Weighted {
                log: -4.0,
                weight: 2.0,
            },
        ];
        assert_eq!(
            Metric::WordPerplexity.aggregate(&weighted),
            Some(2f64.exp())
        );
        let bits = Metric::BitsPerByte.aggregate(&weighted).unwrap();
        assert!((bits - 2.0 / 2f64.ln()).abs() < 1e-15);
        assert_eq!(Metric::Acc.aggregate(&[]), None);
        // precision 1/2, recall 1/3
        let pairs = [[1, 1], [0, 1], [1, 0], [1, 0], [0, 0]];
        assert!((f1(&pairs) - 0.4).abs() < 1e-15);
        assert_eq!(f1(&[[0, 0]]), 0.0);
        assert_eq!(argmax([1.0, 3.0, 3.0, 2.0].into_iter()), 1);
    }
}
