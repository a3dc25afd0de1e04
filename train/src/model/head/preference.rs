//! Losses of preference pairs (`train.preference`): a pair's loss is a function of the log-probabilities of its two answers,
//! each the sum over its tokens, or their mean.
//!
//! The sums are f64 over ascending positions of the whole sequence. Context-parallel ranks exchange the losses of their tokens
//! first, so every rank and every layout computes the same bits.

use kernels::reduce;

use crate::config::PreferenceConfig;
use crate::config::exact::narrow;
use crate::data::pairs::BatchPair;
use crate::model::context::Context;

/// A pair under the model.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PairLoss {
    /// Of the pair among those of its source.
    pub number: u64,
    /// Of the sequence in the micro-batch that holds it.
    pub sequence: usize,
    pub loss: f64,
    /// ln of the probability of the chosen answer and of the rejected one.
    pub log_probabilities: [f64; 2],
    /// beta times the differences to the reference; with IPO of means over the answers' tokens.
    pub rewards: [f64; 2],
}

/// The pairs of a micro-batch.
pub(super) struct PairLosses {
    pub losses: Vec<PairLoss>,
    /// Derivative of the pairs' losses by the loss of each token of this rank: `[n]`.
    pub slopes: Vec<f32>,
}

/// words: of the losses of each token of this rank, `[n, 4]`, as `cross_entropy::losses` puts them out
pub(super) fn of_pairs(
    words: &[u32],
    (pairs, config): (&[BatchPair], &PreferenceConfig),
    cx: &Context<'_>,
) -> kernels::Result<PairLosses> {
    let own: Vec<f64> = reduce::numbers(words).into_iter().step_by(2).collect();
    let (time, first) = (cx.sequence.time, cx.sequence.first);
    let mut slopes = vec![0.0; own.len()];
    let shares = match cx.groups.cp.size() {
        1 => vec![own],
        _ => cx.groups.cp.all_gather_f64(&own)?,
    };
    let mut losses = Vec::with_capacity(pairs.len());
    for pair in pairs {
        let loss_at =
            |position: usize| shares[position / time][pair.sequence * time + position % time];
        let [chosen, rejected] = &pair.answers;
        let divisors = [chosen, rejected].map(|answer| match config.is_mean() {
            true => answer.counted.max(1) as f64,
            false => 1.0,
        });
        let mut log_probabilities = [0.0; 2];
        for (which, answer) in pair.answers.iter().enumerate() {
            let sum = answer.inputs.clone().fold(0.0, |sum, at| sum + loss_at(at));
            log_probabilities[which] = -sum;
        }
        let apart = |which: usize| {
            let reference = pair.answers[which].reference;
            (log_probabilities[which] - reference) / divisors[which]
        };
        let apart = [apart(0), apart(1)];
        let of = config.loss_of(apart[0] - apart[1]);
        for (which, sign) in [(0, -1.0), (1, 1.0)] {
            let inputs = &pair.answers[which].inputs;
            let slope = narrow(sign * of.slope / divisors[which]);
            let here = inputs.start.max(first)..inputs.end.min(first + time);
            here.for_each(|position| slopes[pair.sequence * time + position - first] = slope);
        }
        losses.push(PairLoss {
            number: pair.number,
            sequence: pair.sequence,
            loss: of.loss,
            log_probabilities,
            rewards: apart.map(|apart| config.beta * apart),
        });
    }
    Ok(PairLosses { losses, slopes })
}
