//! Training of the source code classifier: logistic regression over features.
//!
//! Stochastic gradient descent with rates by AdaGrad (Duchi et al. 2011, JMLR 12) and weight decay; a step samples
//! a label, one of its texts, and of that the whole or some consecutive lines, so that snippets are learned too.

use super::features::{BITS, Features};
use super::labels::{CODE_LABELS, OTHER, PROSE};
use super::model::{COLUMNS, Model, softmax};

/// Training settings.
#[derive(Clone, Copy, Debug)]
pub struct CodeTraining {
    /// Steps.
    pub steps: u64,
    /// Learning rate.
    pub rate: f32,
    /// Pull of weights to zero, per step that touches them.
    pub decay: f32,
}

impl Default for CodeTraining {
    fn default() -> Self {
        CodeTraining {
            steps: 1_000_000,
            rate: 0.1,
            decay: 1e-5,
        }
    }
}

/// Texts by label.
#[derive(Default)]
pub struct CodeExamples {
    texts: Vec<Vec<String>>,
}

impl CodeExamples {
    /// No examples yet.
    pub fn new() -> CodeExamples {
        CodeExamples {
            texts: vec![Vec::new(); CODE_LABELS.len()],
        }
    }

    /// Adds a text; a label that is not of [`CODE_LABELS`] is `other`.
    pub fn add(&mut self, label: &str, text: &str) {
        let at = CODE_LABELS.iter().position(|l| *l == label);
        self.texts[at.unwrap_or(OTHER)].push(text.to_string());
    }

    /// Trains and returns the model file's bytes. Labels without texts are never answered.
    pub fn train(&self, settings: CodeTraining) -> Vec<u8> {
        let mut weights = vec![[0.0f32; COLUMNS]; 1 << BITS];
        let mut squares = vec![1e-6f32; 1 << BITS];
        let mut bias = [0.0f32; COLUMNS];
        // prose and other code are of more kinds than one language's programs
        let more = [OTHER, PROSE, PROSE];
        let filled: Vec<usize> = (0..self.texts.len())
            .chain(more)
            .filter(|&label| !self.texts[label].is_empty())
            .collect();
        if filled.is_empty() {
            return Vec::new();
        }
        let mut random = 0x2545_f491_4f6c_dd1du64;
        let mut below = |n: usize| {
            // xorshift64 (Marsaglia 2003)
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            usize::try_from((u128::from(random) * n as u128) >> 64).unwrap_or(0)
        };
        for _ in 0..settings.steps {
            let label = filled[below(filled.len())];
            let texts = &self.texts[label];
            let text = crop(&texts[below(texts.len())], &mut below);
            let rows = Features::of(text).rows;
            let share = 1.0 / (rows.len().max(1) as f32).sqrt();
            let mut p = bias;
            for &row in &rows {
                for (sum, w) in p.iter_mut().zip(&weights[usize::from(row)]) {
                    *sum += w * share;
                }
            }
            softmax(&mut p);
            let slopes: [f32; COLUMNS] = std::array::from_fn(|i| f32::from(i == label) - p[i]);
            let square: f32 = slopes.iter().map(|s| s * s * share * share).sum();
            for &row in &rows {
                let row = usize::from(row);
                squares[row] += square;
                let rate = settings.rate / squares[row].sqrt();
                for (w, slope) in weights[row].iter_mut().zip(&slopes) {
                    *w += rate * slope * share - settings.decay * settings.rate * *w;
                }
            }
            for (b, slope) in bias.iter_mut().zip(&slopes) {
                *b += 1e-4 * slope;
            }
        }
        pack(&weights, bias).to_bytes()
    }
}

/// The whole text, or 3 to 60 neighbouring lines of it.
fn crop<'a>(text: &'a str, below: &mut impl FnMut(usize) -> usize) -> &'a str {
    if below(3) == 0 {
        return text;
    }
    let breaks: Vec<usize> = memchr::memchr_iter(b'\n', text.as_bytes()).collect();
    let lines = 3 + below(58);
    if breaks.len() <= lines {
        return text;
    }
    let first = below(breaks.len() - lines);
    &text[breaks[first] + 1..=breaks[first + lines]]
}

#[expect(clippy::cast_possible_truncation, reason = "clamped to a byte first")]
fn pack(weights: &[[f32; COLUMNS]], bias: [f32; COLUMNS]) -> Model {
    let largest = weights.iter().flatten().fold(0.0f32, |m, w| m.max(w.abs()));
    let scale = (largest / 127.0).max(f32::MIN_POSITIVE);
    let byte = |w: f32| (w / scale).round().clamp(-127.0, 127.0) as i8;
    Model {
        scale,
        bias,
        rows: weights.iter().map(|row| row.map(byte)).collect(),
    }
}
