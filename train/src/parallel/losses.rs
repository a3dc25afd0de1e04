//! Losses of a step or an evaluation: they stay on the device, summed by run of predictions, until all have been computed
//! and are downloaded together. Every rank then adds those of all ranks in the order of the batch.

use kernels::{Tensor, reduce};

use crate::config::plan::Plan;
use crate::data::micro_batches::Block;
use crate::dist::mesh::Groups;
use crate::model::head;
use crate::model::head::vocabulary;

/// Losses that were computed here.
pub(crate) struct Losses {
    /// By number of their first token in the batch.
    predictions: Vec<Part>,
    /// Of the order of segments, by sequence.
    orders: Vec<Part>,
    /// Of an evaluation of a classification head.
    scores: Vec<Scores>,
    /// Predictions of the whole batch that count.
    pub counted: usize,
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
    pub(crate) fn of(counted: usize, sequences: usize) -> Losses {
        Losses {
            predictions: Vec::new(),
            orders: Vec::new(),
            scores: Vec::new(),
            counted,
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
        if let Some(sums) = losses.predictions {
            let runs = sums.dims()[0];
            let chunks = (runs / block.size).max(1);
            let number = |at: usize| {
                let position = first + at % chunks * (time / chunks);
                (block.start + at / chunks) * tokens + position
            };
            let numbers = (0..runs).map(number).collect();
            self.predictions.push(Part { numbers, sums });
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
        let parts = self.predictions.iter().chain(&self.orders);
        parts.map(|part| &part.sums).collect()
    }

    /// Means over the predictions that count; if the model predicts the order of segments, that mean over sequences is
    /// added to the first. The same bits on every rank. `words`: of `tensors`.
    pub(crate) fn means(
        &self,
        words: &[Vec<u32>],
        (plan, groups): (&Plan, &Groups),
    ) -> kernels::Result<vocabulary::Losses> {
        let (predictions, orders) = words.split_at(self.predictions.len().min(words.len()));
        let sums = totals(&self.predictions, predictions, groups)?;
        let mut means = sums.map(|total| total / self.counted.max(1) as f64);
        if plan.model.next_sentence {
            let [total, _] = totals(&self.orders, orders, groups)?;
            means[0] += total / self.sequences as f64;
        }
        Ok(means)
    }
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
fn totals(
    parts: &[Part],
    words: &[Vec<u32>],
    groups: &Groups,
) -> kernels::Result<vocabulary::Losses> {
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
