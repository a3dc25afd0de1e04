//! fastText classifiers: reader for `.bin` and `.ftz` models, and prediction.
//!
//! A text is split at white space; the rows of its words, character n-grams and word n-grams are
//! averaged, and the output layer gives probabilities of labels (lid.176, GlotLID, quality
//! classifiers). Papers: Joulin et al. 2016, arXiv:1607.01759 and arXiv:1612.03651. Format and
//! arithmetic: fastText 0.9.2 (model version 12; 11 of older supervised models).
//!
//! We differ: models of two labels are folded to one number per row (`fold.rs`); line feeds are white space
//! (fastText's Python wrapper refuses them); the rows of a word are summed before they are added to the text's, and
//! sums of recent words are cached, so sums round differently in the last bits (the result does not depend on the
//! cache).

mod dictionary;
mod fold;
mod loss;
mod matrix;
mod source;
mod train;

pub use self::train::{
    ClassifierInput, ClassifierLoss, ClassifierReport, ClassifierTraining, HeldOut, LabelMetrics,
    ScoreReport, score_corpus,
};

use std::io::Read;
use std::path::Path;

use xxhash_rust::xxh3::xxh3_64;

use self::dictionary::{Dictionary, END, Shape, Token};
use self::fold::Folded;
use self::loss::{Kind, Output};
use self::matrix::{Matrix, add};
use self::source::Source;
use crate::error::Result;

/// A supervised fastText model.
pub struct FastText {
    dictionary: Dictionary,
    body: Body,
    /// Hash of the file, which identifies the model.
    content: u64,
}

enum Body {
    Folded(Folded),
    Layers(Box<Layers>),
}

struct Layers {
    dim: usize,
    input: Matrix,
    output: Output,
}

/// Buffers of one thread; may be shared by models of any shape, one after the other.
#[derive(Default)]
pub struct FastTextScratch {
    hidden: Vec<f32>,
    word: Vec<f32>,
    padded: Vec<u8>,
    hashes: Vec<u32>,
    scores: Vec<f32>,
    best: loss::Scored,
    recent: Recent,
}

/// Sums of recent words, in slots by hash.
#[derive(Default)]
struct Recent {
    /// Hash of the model that the slots are of.
    owner: u64,
    keys: Vec<(u64, u32)>,
    sums: Vec<f32>,
}

const MAGIC: i32 = 793_712_314;

/// Whether a file's first bytes are those of a fastText model.
pub(crate) fn is_fasttext(head: &[u8]) -> bool {
    head.starts_with(&MAGIC.to_le_bytes())
}
/// Bytes of cached sums per thread.
const RECENT: usize = 1 << 20;
/// Longer words are not cached.
const RECENT_WORD: usize = 64;

impl FastText {
    /// Reads a model.
    ///
    /// # Errors
    /// `Io`; `Damaged` with offset, found and wanted for a file that is no supervised fastText model
    /// or is cut, before memory for its claims is taken.
    pub fn open(path: &Path) -> Result<FastText> {
        FastText::read(&mut Source::open(path)?)
    }

    fn read<R: Read>(source: &mut Source<R>) -> Result<FastText> {
        let magic = source.i32("magic number")?;
        if magic != MAGIC {
            let wanted = format!("{MAGIC}, which fastText models begin with");
            return Err(source.wrong(4, magic.to_string(), wanted));
        }
        let version = source.count("model version", 11, 12)?;
        let dim = source.count("dim", 1, 1 << 16)?;
        for what in ["ws", "epoch", "minCount", "neg"] {
            source.i32(what)?;
        }
        let word_ngrams = source.count("wordNgrams", 0, 1 << 10)?;
        let kind = match source.i32("loss")? {
            1 => Kind::Hierarchical,
            2 | 4 => Kind::Binary,
            3 => Kind::Softmax,
            n => {
                let wanted = "loss: 1 (hs), 2 (ns), 3 (softmax) or 4 (ova)";
                return Err(source.wrong(4, n.to_string(), wanted));
            }
        };
        let model = source.i32("model")?;
        if model != 3 {
            let wanted = "model: 3 (supervised); 1 and 2 are word vectors without labels";
            return Err(source.wrong(4, model.to_string(), wanted));
        }
        // more than any model has; the map of kept buckets takes one bit each
        let bucket = source.count("bucket", 0, 1 << 28)?;
        let minn = source.count("minn", 0, 1 << 10)?;
        let maxn = source.count("maxn", 0, 1 << 10)?;
        source.i32("lrUpdateRate")?;
        source.f64("t")?;
        let shape = Shape {
            word_ngrams,
            bucket: u32::try_from(bucket).unwrap_or(u32::MAX),
            minn,
            // older supervised models have no character n-grams, in spite of the header
            maxn: if version == 11 { 0 } else { maxn },
        };
        let dictionary = Dictionary::read(source, shape)?;
        let quantised = source.flag("quantised input")?;
        if dictionary.is_pruned() && !quantised {
            let wanted = "1: only quantised models are pruned";
            return Err(source.wrong(1, "quantised input: 0", wanted));
        }
        let input = Matrix::read(source, quantised, dictionary.rows(), dim, "input matrix")?;
        let packed = source.flag("quantised output")? && quantised;
        let output = Output::read(source, packed, kind, dim, &dictionary.label_counts)?;
        let content = source.end()?;
        let body = match Folded::of(&dictionary, &input, &output, dim) {
            Some(folded) => Body::Folded(folded),
            None => Body::Layers(Box::new(Layers { dim, input, output })),
        };
        Ok(FastText {
            dictionary,
            body,
            content,
        })
    }

    /// Labels without their `__label__`, in the model's order.
    pub fn labels(&self) -> &[String] {
        &self.dictionary.labels
    }

    /// Number of a label, with or without its `__label__`.
    pub fn label(&self, name: &str) -> Option<usize> {
        let plain = |label: &str| label.trim_start_matches(dictionary::LABEL).to_string();
        let name = plain(name);
        self.labels().iter().position(|l| plain(l) == name)
    }

    /// Fills `found` with the `k` most probable labels (index into [`FastText::labels`],
    /// probability), best first; empty if the text has no feature that the model knows.
    pub fn predict(
        &self,
        text: &str,
        k: usize,
        scratch: &mut FastTextScratch,
        found: &mut Vec<(usize, f32)>,
    ) {
        found.clear();
        let layers = match &self.body {
            Body::Layers(layers) => layers,
            Body::Folded(folded) => {
                let Some(p) = folded.probabilities(text) else {
                    return;
                };
                let both = if p[1] > p[0] { [1, 0] } else { [0, 1] };
                found.extend(both.iter().take(k).map(|&label| (label, p[label])));
                return;
            }
        };
        scratch.prepare(self.content, layers.dim);
        let mut features = 0u64;
        let is_space = |b: &u8| matches!(b, b' ' | b'\n' | b'\r' | b'\t' | 0x0b | 0x0c | 0);
        let words = text.as_bytes().split(is_space).filter(|w| !w.is_empty());
        // a written end of text ends it, as in fastText
        for word in words.take_while(|w| *w != END) {
            features += self.take(layers, word, scratch);
        }
        features += self.take(layers, END, scratch);
        scratch.word.fill(0.0);
        let (input, word) = (&layers.input, &mut scratch.word);
        self.dictionary.word_ngrams(&scratch.hashes, |row| {
            features += 1;
            input.add(row, word);
        });
        if features == 0 {
            return;
        }
        add(&scratch.word, &mut scratch.hidden);
        let scale = loss::single(1.0 / features as f64);
        scratch.hidden.iter_mut().for_each(|x| *x *= scale);
        layers
            .output
            .best(&scratch.hidden, k, &mut scratch.scores, &mut scratch.best);
        found.extend(
            scratch
                .best
                .iter()
                .map(|&(score, label)| (label, score.exp())),
        );
    }

    /// Adds a word to the hidden vector; returns its number of features.
    fn take(&self, layers: &Layers, word: &[u8], scratch: &mut FastTextScratch) -> u64 {
        let dim = layers.dim;
        if self.dictionary.has_word_ngrams() && self.dictionary.token(word) != Token::Label {
            scratch.hashes.push(dictionary::hash(word));
        }
        let slot = scratch.recent.slot(word);
        if let Some((slot, key)) = slot
            && scratch.recent.keys[slot].0 == key
        {
            let sum = &scratch.recent.sums[slot * dim..][..dim];
            add(sum, &mut scratch.hidden);
            return u64::from(scratch.recent.keys[slot].1);
        }
        let (mut features, sum, input) = (0u32, &mut scratch.word, &layers.input);
        sum.fill(0.0);
        let mut feature = |row| {
            features += 1;
            input.add(row, sum);
        };
        let token = self.dictionary.token(word);
        if let Token::Known(id) = token {
            feature(id);
        }
        if token != Token::Label {
            let padded = &mut scratch.padded;
            self.dictionary.subwords(word, padded, feature);
        }
        add(&scratch.word, &mut scratch.hidden);
        if let Some((slot, key)) = slot {
            scratch.recent.keys[slot] = (key, features);
            scratch.recent.sums[slot * dim..][..dim].copy_from_slice(&scratch.word);
        }
        u64::from(features)
    }
}

impl FastTextScratch {
    /// Empty buffers.
    pub fn new() -> FastTextScratch {
        FastTextScratch::default()
    }

    fn prepare(&mut self, model: u64, dim: usize) {
        self.hashes.clear();
        self.hidden.clear();
        self.hidden.resize(dim, 0.0);
        self.word.resize(dim, 0.0);
        if self.recent.owner != model || self.recent.keys.is_empty() {
            let slots = (RECENT / 4 / dim).clamp(16, 1 << 13);
            let slots = 1 << slots.ilog2();
            self.recent.owner = model;
            self.recent.keys = vec![(0, 0); slots];
            self.recent.sums = vec![0.0; slots * dim];
        }
    }
}

impl Recent {
    /// Slot and key of a word; the key is never 0.
    #[expect(clippy::cast_possible_truncation, reason = "the low bits are wanted")]
    fn slot(&self, word: &[u8]) -> Option<(usize, u64)> {
        if word.len() > RECENT_WORD {
            return None;
        }
        let key = xxh3_64(word).max(1);
        Some((key as usize & (self.keys.len() - 1), key))
    }
}

#[cfg(test)]
mod tests;
