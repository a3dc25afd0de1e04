//! Training of the built-in language model.
//!
//! Stochastic gradient descent on the cross-entropy of [`super::model`]'s softmax, as fastText does it (Joulin et
//! al. 2016, arXiv:1607.01759): rows start random, layers at zero, the rate falls to zero. A step samples a
//! language (weight n^0.25 for n examples; the web's most frequent ones more often, which makes them likelier where
//! one or two words are ambiguous), then a sentence, a few neighbouring words of one, or a handful of words drawn
//! by frequency from the language's word list: n-grams do not span words, so such a handful is as good as a text.
//! Rows are rounded to bytes at the end. Everything random comes from one counter, so the same lines give the same
//! model.

use std::collections::BTreeMap;

use super::features::{Sink, walk};
use super::model::{DIM, Layer, Model, softmax};
use super::script::Script;

/// Training settings.
#[derive(Clone, Copy, Debug)]
pub struct LanguageTraining {
    /// Logarithm of the table's rows.
    pub bits: u32,
    /// Steps.
    pub steps: u64,
    /// First learning rate.
    pub rate: f32,
    /// Seed.
    pub seed: u64,
}

impl Default for LanguageTraining {
    fn default() -> Self {
        LanguageTraining {
            bits: 16,
            steps: 24_000_000,
            rate: 0.6,
            seed: 1,
        }
    }
}

/// Texts and word lists by language; feeds [`LanguageExamples::train`].
#[derive(Default)]
pub struct LanguageExamples {
    classes: BTreeMap<(Script, String), Class>,
    settings: LanguageTraining,
}

/// Examples of one language in one script. Words are ranges of `rows`.
#[derive(Default)]
struct Class {
    rows: Vec<u32>,
    /// Ends of words in `rows`.
    ends: Vec<usize>,
    /// Ranges of words that are sentences.
    sentences: Vec<(usize, usize)>,
    /// Words of the list, and their running weights.
    list: Vec<usize>,
    weights: Vec<f64>,
}

/// Splits a text into words by script.
#[derive(Default)]
struct Collector {
    rows: Vec<u32>,
    words: Vec<(Script, Vec<u32>)>,
}

impl Sink for Collector {
    fn feature(&mut self, row: u32) {
        self.rows.push(row);
    }

    fn word(&mut self, script: Script, _letters: u32) {
        self.words.push((script, std::mem::take(&mut self.rows)));
    }
}

/// Relative sampling frequency of a language: a mild form of its share of the web.
fn frequency(code: &str) -> f64 {
    match code {
        "en" => 3.0,
        "de" | "es" | "fr" | "it" | "nl" | "pl" | "pt" | "ru" | "tr" | "zh" => 1.5,
        _ => 1.0,
    }
}

/// splitmix64 of a counter (Steele et al. 2014).
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    /// 0 <= x < 1.
    fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// -0.5 <= x < 0.5.
    fn small(&mut self) -> f32 {
        (self.next() >> 40) as f32 / (1u64 << 24) as f32 - 0.5
    }

    /// 0 <= n < below.
    fn below(&mut self, below: usize) -> usize {
        let wide = u128::from(self.next()) * below as u128;
        usize::try_from(wide >> 64).unwrap_or(0)
    }
}

impl Class {
    fn push(&mut self, rows: &[u32]) -> usize {
        self.rows.extend_from_slice(rows);
        self.ends.push(self.rows.len());
        self.ends.len() - 1
    }

    fn word(&self, word: usize) -> &[u32] {
        let start = if word == 0 { 0 } else { self.ends[word - 1] };
        &self.rows[start..self.ends[word]]
    }

    /// Rows of one example.
    fn draw(&self, dice: &mut Dice, rows: &mut Vec<u32>) {
        rows.clear();
        let lists = if self.sentences.is_empty() {
            1.0
        } else if self.list.len() < 2000 {
            0.15
        } else {
            0.35
        };
        let few = dice.unit();
        if !self.list.is_empty() && dice.unit() < lists {
            let words = if few < 0.6 {
                1 + dice.below(3)
            } else {
                4 + dice.below(12)
            };
            let total = self.weights.last().copied().unwrap_or(0.0);
            for _ in 0..words {
                let at = dice.unit() * total;
                let i = self.weights.partition_point(|&w| w <= at);
                let word = self.list[i.min(self.list.len() - 1)];
                rows.extend_from_slice(self.word(word));
            }
            return;
        }
        let (start, end) = self.sentences[dice.below(self.sentences.len())];
        let length = end - start;
        let words = if few < 0.3 {
            1 + dice.below(3)
        } else if few < 0.5 {
            4 + dice.below(9)
        } else {
            length
        }
        .min(length);
        let from = start + dice.below(length - words + 1);
        for word in from..from + words {
            rows.extend_from_slice(self.word(word));
        }
    }
}

impl LanguageExamples {
    /// No examples yet.
    pub fn new(settings: LanguageTraining) -> LanguageExamples {
        LanguageExamples {
            classes: BTreeMap::new(),
            settings,
        }
    }

    /// Adds a text of language `code`; words outside the scripts of that language are left out.
    pub fn sentence(&mut self, code: &str, text: &str) {
        for (script, words) in self.words(code, text) {
            let class = self.class(script, code);
            let start = class.ends.len();
            for word in &words {
                class.push(word);
            }
            class.sentences.push((start, class.ends.len()));
        }
    }

    /// Adds a word of language `code` that was seen `count` times.
    pub fn word(&mut self, code: &str, word: &str, count: f64) {
        for (script, words) in self.words(code, word) {
            let class = self.class(script, code);
            for rows in &words {
                let id = class.push(rows);
                class.list.push(id);
                // flattened, so that common words do not drown the others
                let sum = class.weights.last().copied().unwrap_or(0.0);
                class.weights.push(sum + count.max(1.0).powf(0.7));
            }
        }
    }

    fn class(&mut self, script: Script, code: &str) -> &mut Class {
        self.classes.entry((script, code.to_string())).or_default()
    }

    fn words(&self, code: &str, text: &str) -> BTreeMap<Script, Vec<Vec<u32>>> {
        let mut collector = Collector::default();
        walk(text, self.settings.bits, &mut collector);
        let mut by_script: BTreeMap<Script, Vec<Vec<u32>>> = BTreeMap::new();
        for (script, rows) in collector.words {
            if super::languages::is_written(code, script) {
                by_script.entry(script).or_default().push(rows);
            }
        }
        by_script
    }

    /// Trains and returns the model file's bytes; `progress` gets the steps done and the running loss.
    pub fn train(&self, mut progress: impl FnMut(u64, f64)) -> Vec<u8> {
        let settings = self.settings;
        let mut dice = Dice(settings.seed);
        let random = |_| std::array::from_fn(|_| dice.small() / DIM as f32);
        let mut rows: Vec<[f32; DIM]> = (0..1usize << settings.bits).map(random).collect();
        let (mut layers, classes) = self.layers();
        let mut running = Vec::new();
        let mut total = 0.0;
        for (layer, label, class) in &classes {
            let examples = (class.sentences.len() + class.list.len() / 20 + 1) as f64;
            total += examples.powf(0.25) * frequency(layers[*layer].codes[*label]);
            running.push(total);
        }
        let (mut example, mut p) = (Vec::new(), Vec::new());
        let mut loss = 0.0;
        for step in 0..settings.steps {
            let at = dice.unit() * total;
            let pick = running.partition_point(|&w| w <= at).min(classes.len() - 1);
            let (layer, label, class) = &classes[pick];
            class.draw(&mut dice, &mut example);
            let rate = settings.rate * (1.0 - step as f32 / settings.steps as f32);
            let layer = &mut layers[*layer];
            let x = learn(&mut rows, layer, *label, &example, rate, &mut p);
            loss += (x - loss) * 1e-4;
            if step % 100_000 == 0 {
                progress(step, loss);
            }
        }
        pack(settings.bits, &rows, layers).to_bytes()
    }

    /// Empty layers, and each class with its layer and place there.
    fn layers(&self) -> (Vec<Layer>, Vec<(usize, usize, &Class)>) {
        let mut layers: Vec<Layer> = Vec::new();
        let mut classes = Vec::new();
        for ((script, code), class) in &self.classes {
            if layers.last().is_none_or(|l| l.script != *script) {
                layers.push(Layer {
                    script: *script,
                    codes: Vec::new(),
                    weights: Vec::new(),
                    bias: Vec::new(),
                });
            }
            let at = layers.len() - 1;
            classes.push((at, layers[at].codes.len(), class));
            layers[at]
                .codes
                .push(super::languages::known(code).unwrap_or(""));
            layers[at].weights.push([0.0; DIM]);
            layers[at].bias.push(0.0);
        }
        (layers, classes)
    }
}

/// One step; returns the cross-entropy.
fn learn(
    rows: &mut [[f32; DIM]],
    layer: &mut Layer,
    label: usize,
    example: &[u32],
    rate: f32,
    p: &mut Vec<f32>,
) -> f64 {
    let share = 1.0 / (example.len() as f32 + 1.0);
    let mut hidden = [0.0; DIM];
    for &row in example {
        for (h, x) in hidden.iter_mut().zip(&rows[row as usize]) {
            *h += x;
        }
    }
    hidden.iter_mut().for_each(|h| *h *= share);
    softmax(&hidden, &layer.weights, &layer.bias, p);
    let loss = -f64::from(p[label].max(1e-9)).ln();
    let mut back = [0.0; DIM];
    for (i, p) in p.iter().enumerate() {
        let slope = rate * (f32::from(i == label) - p);
        for ((b, w), h) in back.iter_mut().zip(&mut layer.weights[i]).zip(&hidden) {
            *b += slope * *w;
            *w += slope * h;
        }
        layer.bias[i] += slope * 0.1;
    }
    for &row in example {
        for (x, b) in rows[row as usize].iter_mut().zip(&back) {
            *x += b * share;
        }
    }
    loss
}

/// Rounds the rows to bytes; the few largest numbers are cut.
#[expect(clippy::cast_possible_truncation, reason = "clamped to a byte first")]
fn pack(bits: u32, rows: &[[f32; DIM]], layers: Vec<Layer>) -> Model {
    let mut sizes: Vec<f32> = rows.iter().flatten().map(|x| x.abs()).collect();
    sizes.sort_by(f32::total_cmp);
    let scale = (sizes[sizes.len() - 1 - sizes.len() / 20_000] / 127.0).max(f32::MIN_POSITIVE);
    let byte = |x: f32| (x / scale).round().clamp(-127.0, 127.0) as i8;
    let rows = rows.iter().map(|row| row.map(byte)).collect();
    Model::new(bits, scale, layers, rows)
}
