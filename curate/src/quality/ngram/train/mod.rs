//! Training of n-gram models: interpolated modified Kneser-Ney smoothing, as KenLM's lmplz estimates it.
//!
//! Papers: Chen and Goodman 1998, TR-10-98; Heafield et al. 2013, "Scalable Modified Kneser-Ney Language Model
//! Estimation". Counts of the longest n-grams (`count.rs`), adjusted counts of all and discounts (`adjust.rs`),
//! probabilities, interpolation, ARPA (`estimate.rs`); between them n-grams are sorted on disk within a memory budget
//! (`sort.rs`), the vocabulary and the single words apart, which are held in memory.
//!
//! We differ from lmplz: blank lines are not sentences; `<s>`, `</s>` and `<unk>` in a text are left out (its
//! `--skip_symbols`) and counted; the smallest numbers are computed in f64 before they are stored as f32. The model
//! does not depend on the number of threads. A killed training leaves only temporary files; it must be restarted.

mod adjust;
mod count;
mod estimate;
mod sort;

use std::path::Path;

use serde::Serialize;

use crate::corpus::{Corpus, CorpusCounts};
use crate::error::{Error, Result};
use crate::progress::Progress;
use crate::quality::model_file::ModelFile;

/// Training settings.
#[derive(Clone, Debug, PartialEq)]
pub struct NgramTraining {
    /// Words of the longest n-grams, 2 to 5.
    pub order: usize,
    /// N-grams of a length with at most this count are left out; the last number applies to greater lengths too.
    pub prune: Vec<u64>,
    /// Discounts of 0.5, 1 and 1.5 where the counts give none.
    pub discount_fallback: bool,
    /// Lower case first.
    pub lowercase: bool,
    /// Memory for sorting, in MiB.
    pub memory_mb: usize,
}

impl Default for NgramTraining {
    fn default() -> Self {
        NgramTraining {
            order: 5,
            prune: Vec::new(),
            discount_fallback: false,
            lowercase: false,
            memory_mb: 1024,
        }
    }
}

/// Result of a training.
#[derive(Clone, Debug, Serialize)]
pub struct NgramReport {
    /// Documents that were read.
    pub documents: u64,
    /// Records that could not be read.
    pub bad: u64,
    /// Lines with words.
    pub sentences: u64,
    /// Their words.
    pub words: u64,
    /// Marks among the words, which were left out.
    pub marks: u64,
    /// Different words.
    pub vocabulary: usize,
    /// N-grams of the model by length.
    pub ngrams: Vec<u64>,
    /// N-grams of the corpus by length.
    pub ngrams_before_pruning: Vec<u64>,
    /// Discounts of counts 1, 2, 3 and more by length.
    pub discounts: Vec<[f64; 3]>,
    /// Lengths whose discounts are the fallback.
    pub fallback: Vec<usize>,
}

impl NgramTraining {
    fn check(&self) -> Result<()> {
        let wrong = |key: &str, found: String, wanted: &str| {
            Err(Error::Config {
                key: key.into(),
                found,
                wanted: wanted.into(),
            })
        };
        if !(2..=sort::MOST).contains(&self.order) {
            return wrong("order", self.order.to_string(), "2 to 5");
        }
        if self.prune.len() > self.order || !self.prune.is_sorted() {
            let found = format!("{:?}", self.prune);
            return wrong(
                "prune",
                found,
                "counts that do not fall, at most one for each length",
            );
        }
        if !(1..=1 << 20).contains(&self.memory_mb) {
            return wrong("memory_mb", self.memory_mb.to_string(), "1 to 1048576");
        }
        Ok(())
    }

    /// Trains a model on the lines of a corpus and writes it to `out` as ARPA; temporary files go to the same folder.
    ///
    /// # Errors
    /// `Config` for settings that cannot be and for counts that give no discounts; `Input` for a corpus without
    /// words; `Io`.
    pub fn train(
        &self,
        corpus: &Corpus,
        out: &Path,
        progress: &dyn Progress,
    ) -> Result<NgramReport> {
        self.check()?;
        let model_file = ModelFile::at(out)?;
        let folder = model_file.folder();
        let half = self.memory_mb << 19;
        let mut counter = count::Counter::new(folder, self.order, self.lowercase, half)?;
        let read: CorpusCounts = corpus.each(progress, &mut |text| counter.add(text))?;
        if counter.words == 0 {
            return Err(Error::Input {
                path: corpus.first(),
                why: "found no word, wanted text".into(),
            });
        }
        let (sentences, words, marks) = (counter.sentences, counter.words, counter.marks);
        let (vocabulary, full) = counter.finish()?;
        let last = self.prune.last().copied().unwrap_or(0);
        let mut prune = self.prune.clone();
        prune.resize(self.order, last);
        let adjusted = adjust::adjust(folder, full, &prune, half)?;
        let (mut discounts, mut fallback) = (Vec::new(), Vec::new());
        for (n, statistics) in (1..).zip(&adjusted.statistics) {
            let (found, fell) = statistics.discounts(n, self.discount_fallback)?;
            discounts.push(found);
            if fell {
                fallback.push(n);
            }
        }
        let statistics = adjusted.statistics.clone();
        let file = model_file.create()?;
        let ngrams = estimate::write(folder, adjusted, &discounts, &vocabulary, half, file)?;
        Ok(NgramReport {
            documents: read.documents,
            bad: read.bad,
            sentences,
            words,
            marks,
            vocabulary: vocabulary.len(),
            ngrams,
            ngrams_before_pruning: statistics.iter().map(|s| s.all).collect(),
            discounts: discounts.iter().map(|d| [d[1], d[2], d[3]]).collect(),
            fallback,
        })
    }
}

#[cfg(test)]
mod tests;
