//! Training of fastText classifiers, in fastText's file format.
//!
//! Paper: Joulin et al. 2016, arXiv:1607.01759. Examples are selected and shuffled by hashes (`examples.rs`), words
//! and labels counted (`vocabulary.rs`), both layers trained by gradient descent (`sgd.rs`), and written as
//! fastText 0.9.2 writes them (`file.rs`); the model is evaluated on the held-out examples (`measure.rs`).
//!
//! The recipe of MT-NLG (Smith et al. 2022, arXiv:2201.11990): known good texts against as many others, words and
//! pairs of words, a tenth held out; documents kept by Pareto sampling with alpha 3. DCLM's (Li et al. 2024,
//! arXiv:2406.11794) is the same without the sampling. A killed training leaves no model; it must be restarted.

mod config;
mod examples;
mod file;
mod measure;
mod sgd;
mod vocabulary;

use std::path::Path;

use serde::Serialize;

use self::examples::Collector;
use super::FastText;
use super::dictionary::{Dictionary, Shape};
use crate::corpus::CorpusCounts;
use crate::error::{At, Error, Result};
use crate::progress::Progress;
use crate::quality::model_file::ModelFile;

pub use self::config::{ClassifierInput, ClassifierLoss, ClassifierTraining};
pub use self::measure::{HeldOut, LabelMetrics, ScoreReport, score_corpus};

/// Result of a training.
#[derive(Clone, Debug, Serialize)]
pub struct ClassifierReport {
    /// Settings.
    pub settings: ClassifierTraining,
    /// Documents read.
    pub documents: u64,
    /// Records that could not be read.
    pub bad: u64,
    /// Examples that were trained on.
    pub examples: usize,
    /// Their words, ends and labels.
    pub tokens: u64,
    /// Different words in the model.
    pub words: usize,
    /// Mean loss of every epoch.
    pub losses: Vec<f64>,
    /// Evaluation on the held-out examples.
    pub held_out: HeldOut,
}

impl ClassifierTraining {
    fn check(&self) -> Result<()> {
        let ranges = [
            ("dim", self.dim as f64, 1.0, 65536.0),
            ("rate", self.rate, 1e-9, 100.0),
            ("epochs", self.epochs as f64, 1.0, 10_000.0),
            ("word_ngrams", self.word_ngrams as f64, 1.0, 8.0),
            ("min_count", self.min_count as f64, 1.0, 1e12),
            ("buckets", f64::from(self.buckets), 1.0, (1u32 << 28).into()),
            (
                "min_chars",
                self.min_chars as f64,
                0.0,
                self.max_chars as f64,
            ),
            ("max_chars", self.max_chars as f64, 0.0, 64.0),
            ("held_out", self.held_out, 0.0, 0.9),
        ];
        for (key, value, least, most) in ranges {
            if !(least..=most).contains(&value) {
                return Err(Error::Config {
                    key: key.into(),
                    found: value.to_string(),
                    wanted: format!("{least} to {most}"),
                });
            }
        }
        Ok(())
    }

    fn shape(&self) -> Shape {
        let has_buckets = self.word_ngrams > 1 || self.max_chars > 0;
        Shape {
            word_ngrams: self.word_ngrams,
            bucket: if has_buckets { self.buckets } else { 0 },
            minn: self.min_chars,
            maxn: self.max_chars,
        }
    }

    /// Trains a model and writes it to `out`; temporary files go to the same folder.
    ///
    /// # Errors
    /// `Config` for settings that cannot be and for examples of one label alone; `Input` for a corpus without texts;
    /// `Io`.
    pub fn train(
        &self,
        inputs: &[ClassifierInput],
        out: &Path,
        progress: &dyn Progress,
    ) -> Result<ClassifierReport> {
        self.check()?;
        let model_file = ModelFile::at(out)?;
        let mut collector = Collector::new(model_file.folder(), self.seed, self.per_label)?;
        let mut counts = CorpusCounts::default();
        for input in inputs {
            let read = match input {
                ClassifierInput::Of { label, corpus } => {
                    let label = collector.label(label);
                    corpus.each(progress, &mut |text| collector.add(text, vec![label]))?
                }
                ClassifierInput::Labelled(corpus) => {
                    corpus.each(progress, &mut |line| collector.add_line(line))?
                }
            };
            counts.documents += read.documents;
            counts.bad += read.bad;
        }
        let examples = collector.finish(self.balanced, self.held_out)?;
        let vocabulary = vocabulary::count(&examples, self.min_count)?;
        let dictionary = Dictionary::of(self.shape(), &vocabulary.words, &vocabulary.labels);
        let (rank, tokens) = (&vocabulary.rank, vocabulary.tokens);
        let (weights, losses) = sgd::descend(self, &examples, &dictionary, rank, tokens, progress)?;
        let mut file = model_file.create()?;
        file::write(&mut file, self, &vocabulary, &weights).at(&file.path())?;
        drop(weights);
        file.finish()?;
        let model = FastText::open(out)?;
        Ok(ClassifierReport {
            settings: self.clone(),
            documents: counts.documents,
            bad: counts.bad,
            examples: examples.train.len(),
            tokens,
            words: vocabulary.words.len(),
            losses,
            held_out: measure::held_out(&model, &examples)?,
        })
    }
}

#[cfg(test)]
mod tests;
