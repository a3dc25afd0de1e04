//! Losses of a step or an evaluation: they stay on the device, summed by run of predictions, until all have been computed
//! and are downloaded together. Every rank then adds those of all ranks in the order of the batch.

use kernels::{Tensor, reduce};
use serde::{Deserialize, Serialize};

use crate::config::plan::Plan;
use crate::data::micro_batches::Block;
use crate::dist::mesh::Groups;
use crate::model::head;
use crate::model::head::preference::PairLoss;

/// Losses that were computed here.
pub(crate) struct Losses {
    /// By number of their first token in the batch.
    predictions: Vec<Part>,
    /// The same of each depth of multi-token prediction.
    further: Vec<Vec<Part>>,
    /// Of the order of segments, by sequence.
    orders: Vec<Part>,
    /// Of an evaluation of a classification head.
    scores: Vec<Scores>,
    /// Preference pairs, each with the number of its sequence in the batch.
    pairs: Vec<(usize, PairLoss)>,
    /// Predictions of the whole batch that count, or preference pairs.
    pub counted: usize,
    /// Predictions of each depth that count.
    counted_ahead: Vec<usize>,
    /// Sequences of the whole batch.
    sequences: usize,
}

/// Losses of one micro-batch.
struct Part {
    /// The number of each entry.
    numbers: Vec<usize>,
    /// As `cross_entropy::losses` puts them out.
    sums: Tensor,
}

/// Scores of one micro-batch's questions.
struct Scores {
    /// Number of its first sequence.
    first: usize,
    /// `[questions, labels]`
    scores: Tensor,
    /// Label of each question.
    labels: Vec<u32>,
}

impl Losses {
    /// `counted`: predictions that count, the model's own and then those of each depth of multi-token prediction.
    pub(crate) fn of(counted: &[usize], sequences: usize) -> Losses {
        let (own, ahead) = counted.split_at(1.min(counted.len()));
        Losses {
            predictions: Vec::new(),
            further: ahead.iter().map(|_| Vec::new()).collect(),
            orders: Vec::new(),
            scores: Vec::new(),
            pairs: Vec::new(),
            counted: own.iter().sum(),
            counted_ahead: ahead.to_vec(),
            sequences,
        }
    }

    /// Adds those of a micro-batch. `first`, `time`: the rank's part of each sequence of `tokens`.
    pub(crate) fn push(
        &mut self,
        losses: head::Losses,
        block: Block,
        [first, time, tokens]: [usize; 3],
    ) {
        let pairs = losses.pairs.into_iter();
        (self.pairs).extend(pairs.map(|pair| (block.start + pair.sequence, pair)));
        if let Some((scores, labels)) = losses.scores {
            self.scores.push(Scores {
                first: block.start,
                scores,
                labels,
            });
        }
        if let Some(sums) = losses.orders {
            let numbers = block.range().collect();
            self.orders.push(Part { numbers, sums });
        }
        let part = |sums: Tensor| {
            let runs = sums.dims()[0];
            let chunks = (runs / block.size).max(1);
            let number = |at: usize| {
                let position = first + at % chunks * (time / chunks);
                (block.start + at / chunks) * tokens + position
            };
            let numbers = (0..runs).map(number).collect();
            Part { numbers, sums }
        };
        self.predictions.extend(losses.predictions.map(part));
        for (all, sums) in self.further.iter_mut().zip(losses.further) {
            all.push(part(sums));
        }
    }

    /// Scores of a rank's questions, in the order of the sequences.
    pub(crate) fn scores(&mut self) -> kernels::Result<Vec<f32>> {
        self.scores.sort_by_key(|part| part.first);
        let all = self.scores.iter().map(|part| part.scores.download());
        Ok(all.collect::<kernels::Result<Vec<Vec<f32>>>>()?.concat())
    }

    /// Questions of all ranks whose right label has the largest score, the lowest number among equals. The same on every
    /// rank.
    pub(crate) fn right(&self, groups: &Groups) -> kernels::Result<f64> {
        let place = &groups.place;
        let mut right = 0usize;
        for part in &self.scores {
            let scores = part.scores.download::<f32>()?;
            let labels = scores.len() / part.labels.len().max(1);
            let rows = scores.chunks(labels.max(1)).zip(&part.labels);
            right += rows
                .filter(|(row, label)| argmax(row) == **label as usize)
                .count();
        }
        let counts = place.is_last_stage() && place.tp_rank == 0 && place.cp_rank == 0;
        let mine = if counts { right as f64 } else { 0.0 };
        let all = groups.world.all_gather_f64(&[mine])?;
        Ok(all.iter().flatten().sum())
    }

    /// All tensors, for one download of their words.
    pub(crate) fn tensors(&self) -> Vec<&Tensor> {
        let further = self.further.iter().flatten();
        let parts = self.predictions.iter().chain(&self.orders).chain(further);
        parts.map(|part| &part.sums).collect()
    }

    /// Means over the predictions that count, or over the preference pairs; if the model predicts the order of segments, that
    /// mean over sequences is added to the loss. The same bits on every rank. `words`: of `tensors`.
    pub(crate) fn means(
        &self,
        words: &[Vec<u32>],
        (plan, groups): (&Plan, &Groups),
    ) -> kernels::Result<Means> {
        if plan.train.preference.is_some() {
            let (loss, record) = self.means_of_pairs(groups)?;
            return Ok(Means {
                loss,
                squares: 0.0,
                further: Vec::new(),
                preference: Some(record),
            });
        }
        let (predictions, rest) = words.split_at(self.predictions.len().min(words.len()));
        let (orders, mut ahead) = rest.split_at(self.orders.len().min(rest.len()));
        let sums = totals(&self.predictions, predictions, groups)?;
        let [mut loss, squares] = sums.map(|total| total / self.counted.max(1) as f64);
        if plan.model.next_sentence {
            let [total, _] = totals(&self.orders, orders, groups)?;
            loss += total / self.sequences as f64;
        }
        let mut further = Vec::new();
        for (parts, counted) in self.further.iter().zip(&self.counted_ahead) {
            let (own, rest) = ahead.split_at(parts.len().min(ahead.len()));
            let [total, _] = totals(parts, own, groups)?;
            further.push(total / (*counted).max(1) as f64);
            ahead = rest;
        }
        Ok(Means {
            loss,
            squares,
            further,
            preference: None,
        })
    }

    /// The pairs of all ranks, in the order of the batch; each rank has them.
    fn all_pairs(&self, groups: &Groups) -> kernels::Result<Vec<PairLoss>> {
        const NUMBERS: usize = 7;
        let place = &groups.place;
        let counts = place.is_last_stage() && place.tp_rank == 0 && place.cp_rank == 0;
        let mut mine = Vec::new();
        for (sequence, pair) in self.pairs.iter().filter(|_| counts) {
            // whole numbers below 2^53
            mine.extend([*sequence as f64, pair.number as f64, pair.loss]);
            mine.extend(pair.log_probabilities);
            mine.extend(pair.rewards);
        }
        let all = groups.world.all_gather_f64(&mine)?;
        let mut all: Vec<&[f64]> = all
            .iter()
            .flat_map(|all| all.chunks_exact(NUMBERS))
            .collect();
        // pairs of a sequence come from one rank, in their order
        all.sort_by(|a, b| a[0].total_cmp(&b[0]));
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "whole numbers, as they were put in"
        )]
        let pair = |numbers: &[f64]| PairLoss {
            number: numbers[1] as u64,
            sequence: numbers[0] as usize,
            loss: numbers[2],
            log_probabilities: [numbers[3], numbers[4]],
            rewards: [numbers[5], numbers[6]],
        };
        Ok(all.into_iter().map(pair).collect())
    }

    fn means_of_pairs(&self, groups: &Groups) -> kernels::Result<(f64, PreferenceRecord)> {
        let pairs = self.all_pairs(groups)?;
        let count = self.counted.max(1) as f64;
        let mean = |of: &dyn Fn(&PairLoss) -> f64| {
            pairs.iter().fold(0.0, |sum, pair| sum + of(pair)) / count
        };
        let record = PreferenceRecord {
            accuracy: mean(&|pair| f64::from(u8::from(pair.rewards[0] > pair.rewards[1]))),
            chosen_reward: mean(&|pair| pair.rewards[0]),
            rejected_reward: mean(&|pair| pair.rewards[1]),
            margin: mean(&|pair| pair.rewards[0] - pair.rewards[1]),
            chosen_log_probability: mean(&|pair| pair.log_probabilities[0]),
            rejected_log_probability: mean(&|pair| pair.log_probabilities[1]),
        };
        Ok((mean(&|pair| pair.loss), record))
    }

    /// Log-probabilities of the answers of `count` pairs, by number of the pair; each rank has them.
    pub(crate) fn log_probabilities(
        &self,
        groups: &Groups,
        count: usize,
    ) -> kernels::Result<Vec<[f64; 2]>> {
        let mut found = vec![[f64::NAN; 2]; count];
        for pair in self.all_pairs(groups)? {
            let at = usize::try_from(pair.number).ok();
            if let Some(place) = at.and_then(|at| found.get_mut(at)) {
                *place = pair.log_probabilities;
            }
        }
        Ok(found)
    }
}

/// Means of a batch.
pub(crate) struct Means {
    pub loss: f64,
    /// Of the squared logsumexp of the logits.
    pub squares: f64,
    /// Loss of each depth of multi-token prediction, over its predictions that count.
    pub further: Vec<f64>,
    /// Of preference pairs.
    pub preference: Option<PreferenceRecord>,
}

/// Means over the preference pairs of a step or a validation, beside their loss.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct PreferenceRecord {
    /// Share of the pairs whose chosen answer has the larger reward. TRL's `rewards/accuracies`.
    pub accuracy: f64,
    /// beta (ln p(chosen) - ln r(chosen)), where p is the model and r the reference. TRL's `rewards/chosen`.
    pub chosen_reward: f64,
    /// The same of the rejected answer. TRL's `rewards/rejected`.
    pub rejected_reward: f64,
    /// Reward of the chosen answer less that of the rejected one. TRL's `rewards/margins`.
    pub margin: f64,
    /// ln p(chosen). TRL's `logps/chosen`.
    pub chosen_log_probability: f64,
    /// ln p(rejected). TRL's `logps/rejected`.
    pub rejected_log_probability: f64,
}

/// Number of the largest score, the first among equals.
fn argmax(row: &[f32]) -> usize {
    let mut best = 0;
    for (at, score) in row.iter().enumerate() {
        if *score > row[best] {
            best = at;
        }
    }
    best
}

/// Sums of all ranks' losses, added in order of their numbers.
fn totals(parts: &[Part], words: &[Vec<u32>], groups: &Groups) -> kernels::Result<[f64; 2]> {
    let place = &groups.place;
    let counts = place.is_last_stage() && place.tp_rank == 0;
    let mut mine = Vec::new();
    for (part, words) in parts.iter().zip(words).filter(|_| counts) {
        let sums = reduce::numbers(words);
        for (&number, sums) in part.numbers.iter().zip(sums.chunks_exact(2)) {
            mine.extend([number as f64, sums[0], sums[1]]);
        }
    }
    let all = groups.world.all_gather_f64(&mine)?;
    let mut sums: Vec<&[f64]> = all.iter().flat_map(|sums| sums.chunks_exact(3)).collect();
    sums.sort_by(|a, b| a[0].total_cmp(&b[0]));
    let total = |at: usize| sums.iter().fold(0.0, |total, sum| total + sum[at]);
    Ok([total(1), total(2)])
}
