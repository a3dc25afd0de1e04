//! Stochastic gradient descent on the layers of a classifier.
//!
//! For a text with features f_1..f_n: h = mean of the rows of f_i, o = W h; with the gradient of the loss by o
//! times the rate, g, every row gets W^T g / n and W gets g h^T. Joulin et al. 2016, arXiv:1607.01759. The rate
//! falls from its initial value to 0 with the tokens read, and is updated every 100 tokens, as in fastText.
//!
//! Texts are taken one after the other in one order, so the model does not depend on the number of threads; other
//! threads prefetch: they read and hash the next texts. We differ from fastText: its threads write to the same
//! weights without order (Hogwild), which gives another model each time; rows start from a counter-based generator;
//! logistic functions are computed, not looked up in a table.

use rayon::iter::{IntoParallelRefIterator, ParallelIterator};

use super::config::{ClassifierLoss, ClassifierTraining};
use super::examples::{Example, Examples, is_space};
use crate::error::{Error, Result};
use crate::progress::Progress;
use crate::quality::fasttext::dictionary::{Dictionary, END, LABEL, Token, hash};
use crate::quality::fasttext::loss::tree;

/// Texts that are hashed at a time, and their bytes.
const BATCH: usize = 256;
const BATCH_BYTES: u64 = 16 << 20;
/// Tokens after which the rate is recomputed.
const UPDATE_TOKENS: u64 = 100;

/// Both layers, by rows.
pub(super) struct Weights {
    pub(super) dim: usize,
    pub(super) input: Vec<f32>,
    pub(super) output: Vec<f32>,
}

/// A text ready for a step.
struct Ready {
    rows: Vec<u32>,
    /// Words, end and labels.
    tokens: u64,
}

/// Numbers in (-1, 1) / dim, by place.
fn initial(dim: usize, rows: usize, seed: u64) -> Vec<f32> {
    let most = 1.0 / dim as f32;
    let mut state = seed;
    let next = || {
        // SplitMix64 (Steele et al. 2014)
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = state;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        let bits = (z ^ z >> 31) >> 40;
        (bits as f32 / (1u64 << 23) as f32 - 1.0) * most
    };
    std::iter::repeat_with(next).take(dim * rows).collect()
}

fn features(text: &str, labels: usize, dictionary: &Dictionary) -> Ready {
    let mut ready = Ready {
        rows: Vec::new(),
        tokens: labels as u64,
    };
    let (mut hashes, mut padded) = (Vec::new(), Vec::new());
    let words = text.as_bytes().split(is_space).filter(|w| !w.is_empty());
    let words = words.filter(|w| !w.starts_with(LABEL.as_bytes()));
    let mut add = |row: usize| ready.rows.push(u32::try_from(row).unwrap_or(u32::MAX));
    for word in words.take_while(|w| *w != END).chain([END]) {
        ready.tokens += 1;
        if let Token::Known(id) = dictionary.token(word) {
            add(id);
        }
        dictionary.subwords(word, &mut padded, &mut add);
        hashes.push(hash(word));
    }
    dictionary.word_ngrams(&hashes, add);
    ready
}

/// `into += scale * row`, in a shape that compiles to vector operations.
#[inline]
fn add_scaled(row: &[f32], scale: f32, into: &mut [f32]) {
    for (x, c) in into.iter_mut().zip(row) {
        *x += scale * c;
    }
}

#[inline]
fn dot(a: &[f32], b: &[f32]) -> f32 {
    let mut parts = [0.0f32; 8];
    let (mut x, mut y) = (a.chunks_exact(8), b.chunks_exact(8));
    for (x, y) in (&mut x).zip(&mut y) {
        for i in 0..8 {
            parts[i] += x[i] * y[i];
        }
    }
    let rest = x.remainder().iter().zip(y.remainder());
    parts.iter().sum::<f32>() + rest.map(|(a, b)| a * b).sum::<f32>()
}

fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + (-x).exp())
}

/// Path from the root of the tree to each label: inner nodes, and whether it continues to the right.
fn paths(counts: &[i64]) -> Vec<Vec<(usize, bool)>> {
    let children = tree(counts);
    let mut above = vec![None; counts.len() + children.len()];
    for (inner, (left, right)) in children.iter().enumerate() {
        above[*left] = Some((inner, false));
        above[*right] = Some((inner, true));
    }
    let path = |leaf: usize| {
        let mut steps = Vec::new();
        let mut node = leaf;
        while let Some((inner, right)) = above[node] {
            steps.push((inner, right));
            node = inner + counts.len();
        }
        steps
    };
    (0..counts.len()).map(path).collect()
}

struct Descent<'a> {
    weights: &'a mut Weights,
    loss: ClassifierLoss,
    labels: usize,
    paths: Vec<Vec<(usize, bool)>>,
    hidden: Vec<f32>,
    gradient: Vec<f32>,
    p: Vec<f32>,
}

impl Descent<'_> {
    fn binary(&mut self, node: usize, is_true: bool, rate: f32) -> f64 {
        let dim = self.weights.dim;
        let row = &mut self.weights.output[node * dim..][..dim];
        let p = sigmoid(dot(row, &self.hidden));
        let step = rate * (f32::from(u8::from(is_true)) - p);
        add_scaled(row, step, &mut self.gradient);
        add_scaled(&self.hidden, step, row);
        let likely = if is_true { p } else { 1.0 - p };
        -f64::from(likely.max(1e-10)).ln()
    }

    fn softmax(&mut self, target: usize, rate: f32) -> f64 {
        let dim = self.weights.dim;
        let hidden = &self.hidden;
        let outputs = self
            .weights
            .output
            .chunks_exact(dim)
            .map(|row| dot(row, hidden));
        self.p.clear();
        self.p.extend(outputs);
        let max = self.p.iter().copied().fold(f32::MIN, f32::max);
        let mut sum = 0.0;
        for x in &mut self.p {
            *x = (*x - max).exp();
            sum += *x;
        }
        for (label, row) in self.weights.output.chunks_exact_mut(dim).enumerate() {
            let p = self.p[label] / sum;
            let step = rate * (f32::from(u8::from(label == target)) - p);
            add_scaled(row, step, &mut self.gradient);
            add_scaled(&self.hidden, step, row);
        }
        -f64::from((self.p[target] / sum).max(1e-10)).ln()
    }

    /// `target` is one of `labels`; returns the loss.
    fn step(&mut self, rows: &[u32], target: usize, labels: &[u32], rate: f32) -> f64 {
        let dim = self.weights.dim;
        self.hidden.fill(0.0);
        for row in rows {
            let row = &self.weights.input[*row as usize * dim..][..dim];
            for (x, c) in self.hidden.iter_mut().zip(row) {
                *x += c;
            }
        }
        let share = 1.0 / rows.len() as f32;
        self.hidden.iter_mut().for_each(|x| *x *= share);
        self.gradient.fill(0.0);
        let loss = match self.loss {
            ClassifierLoss::Softmax => self.softmax(target, rate),
            ClassifierLoss::Ova => {
                let all = 0..self.labels;
                all.map(|label| {
                    let is_true = labels.iter().any(|l| *l as usize == label);
                    self.binary(label, is_true, rate)
                })
                .sum()
            }
            ClassifierLoss::Hs => {
                let path = std::mem::take(&mut self.paths[target]);
                let loss = path
                    .iter()
                    .map(|(node, right)| self.binary(*node, *right, rate))
                    .sum();
                self.paths[target] = path;
                loss
            }
        };
        self.gradient.iter_mut().for_each(|x| *x *= share);
        for row in rows {
            let row = &mut self.weights.input[*row as usize * dim..][..dim];
            for (x, c) in row.iter_mut().zip(&self.gradient) {
                *x += c;
            }
        }
        loss
    }
}

/// Examples in order, cut where a batch is full.
fn batches(examples: &[Example]) -> Vec<&[Example]> {
    let (mut made, mut start, mut bytes) = (Vec::new(), 0, 0);
    for (i, example) in examples.iter().enumerate() {
        if i > start && (i - start == BATCH || bytes + example.bytes() > BATCH_BYTES) {
            made.push(&examples[start..i]);
            (start, bytes) = (i, 0);
        }
        bytes += example.bytes();
    }
    made.push(&examples[start..]);
    made
}

fn ready(examples: &Examples, batch: &[Example], dictionary: &Dictionary) -> Result<Vec<Ready>> {
    let one = |example: &Example| {
        let text = examples.text(example)?;
        Ok(features(&text, examples.labels(example).len(), dictionary))
    };
    batch.par_iter().map(one).collect()
}

/// Trains; `rank` gives the place of each label among the dictionary's, `tokens` the tokens of all examples. Returns the
/// mean loss of every epoch.
pub(super) fn descend(
    settings: &ClassifierTraining,
    examples: &Examples,
    dictionary: &Dictionary,
    rank: &[u32],
    tokens: u64,
    progress: &dyn Progress,
) -> Result<(Weights, Vec<f64>)> {
    let (dim, labels) = (settings.dim, dictionary.labels.len());
    let mut weights = Weights {
        dim,
        input: initial(dim, dictionary.rows(), settings.seed),
        output: vec![0.0; labels * dim],
    };
    let mut descent = Descent {
        weights: &mut weights,
        loss: settings.loss,
        labels,
        paths: match settings.loss {
            ClassifierLoss::Hs => paths(&dictionary.label_counts),
            _ => Vec::new(),
        },
        hidden: vec![0.0; dim],
        gradient: vec![0.0; dim],
        p: Vec::new(),
    };
    let all = (tokens * settings.epochs as u64).max(1) as f64;
    let (mut counted, mut since) = (0u64, 0u64);
    let mut losses = Vec::new();
    let all_batches = batches(&examples.train);
    for epoch in 0..settings.epochs {
        let mut batches = all_batches.iter().copied();
        let mut batch = batches.next().unwrap_or_default();
        let mut now = ready(examples, batch, dictionary)?;
        let (mut loss, mut steps) = (0.0, 0u64);
        loop {
            let next = batches.next();
            let (next_ready, ()) = rayon::join(
                || next.map(|b| ready(examples, b, dictionary)).transpose(),
                || {
                    for (example, text) in batch.iter().zip(&now) {
                        let own = examples.labels(example);
                        let own: Vec<u32> = own.iter().map(|l| rank[*l as usize]).collect();
                        let pick = examples.draw(example, epoch as u64) % own.len().max(1) as u64;
                        let target = own[usize::try_from(pick).unwrap_or(0)] as usize;
                        if since > UPDATE_TOKENS {
                            counted += std::mem::take(&mut since);
                        }
                        since += text.tokens;
                        if !text.rows.is_empty() {
                            let rate = settings.rate * (1.0 - counted as f64 / all).max(0.0);
                            loss += descent.step(
                                &text.rows,
                                target,
                                &own,
                                crate::quality::fasttext::loss::single(rate),
                            );
                            steps += 1;
                        }
                    }
                },
            );
            progress.documents(batch.len() as u64, 0);
            match (next, next_ready?) {
                (Some(next), Some(ready)) => (batch, now) = (next, ready),
                _ => break,
            }
        }
        losses.push(loss / steps.max(1) as f64);
        if !descent.weights.output.iter().all(|x| x.is_finite()) {
            return Err(Error::Config {
                key: "rate".into(),
                found: settings.rate.to_string(),
                wanted: format!(
                    "less: weights were beyond all numbers in epoch {}",
                    epoch + 1
                ),
            });
        }
    }
    Ok((weights, losses))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A step with rate 1 subtracts the gradient, which equals the differences of the loss.
    #[test]
    fn a_step_follows_the_gradient_of_the_loss() {
        let start = || Weights {
            dim: 3,
            input: initial(3, 5, 1).iter().map(|x| x * 3.0).collect(),
            output: initial(3, 4, 2).iter().map(|x| x * 2.0).collect(),
        };
        for loss in [
            ClassifierLoss::Softmax,
            ClassifierLoss::Ova,
            ClassifierLoss::Hs,
        ] {
            let run = |weights: &mut Weights, rate: f32| {
                let mut descent = Descent {
                    weights,
                    loss,
                    labels: 4,
                    paths: paths(&[9, 5, 3, 3]),
                    hidden: vec![0.0; 3],
                    gradient: vec![0.0; 3],
                    p: Vec::new(),
                };
                descent.step(&[0, 2, 2, 4], 2, &[2, 0], rate)
            };
            let mut stepped = start();
            // small: the layers are changed one after the other
            run(&mut stepped, 1e-3);
            let (before, taken) = (start(), |a: f32, b: f32| f64::from(b - a) / 1e-3);
            let h = 1e-2;
            for at in 0..before.input.len() + before.output.len() {
                let moved = |by: f32| {
                    let mut weights = start();
                    match weights.input.get_mut(at) {
                        Some(x) => *x += by,
                        None => weights.output[at - 15] += by,
                    }
                    run(&mut weights, 0.0)
                };
                let slope = (moved(h) - moved(-h)) / (2.0 * f64::from(h));
                let found = match before.input.get(at) {
                    Some(x) => taken(*x, stepped.input[at]),
                    None => taken(before.output[at - 15], stepped.output[at - 15]),
                };
                assert!(
                    (slope + found).abs() < 2e-3,
                    "{loss:?} {at}: {slope} {found}"
                );
            }
        }
    }
}
