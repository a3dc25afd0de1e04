//! Distribution of a transformer classifier's scores on a sample of texts, and the scores that divide it into buckets.

use serde::Serialize;

use super::transformer::{ScoreFunction, highest_of};
use crate::classifier::TextClassifier;
use crate::corpus::Corpus;
use crate::error::{Error, Result};
use crate::progress::Progress;

/// Texts that go to the model together, and their bytes.
const TEXTS: usize = 1024;
const BYTES: usize = 4 << 20;

/// Scores of a sample.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SampleScores {
    /// Label whose score it is; `highest` if none was named and there are several.
    pub label: String,
    /// Texts with a score.
    pub documents: u64,
    /// Records that could not be read, and texts that the model does not read.
    pub bad: u64,
    /// Mean score.
    pub mean: f64,
    /// Lowest and highest score.
    pub range: [f64; 2],
    /// Texts by the label with the highest score, in the model's order.
    pub labels: Vec<(String, u64)>,
    /// Scores that divide the texts into parts of equal size: `buckets` of the step `classifier`.
    pub buckets: Vec<f64>,
}

/// Scores to be made.
#[derive(Clone, Debug)]
pub struct Sampling {
    /// Label whose score counts; empty: the highest.
    pub label: String,
    /// Function of the outputs.
    pub function: ScoreFunction,
    /// Number of parts.
    pub buckets: usize,
}

impl Sampling {
    /// Scores every text of a corpus. Memory: 8 bytes per text.
    ///
    /// # Errors
    /// `Config` for a label that the model does not know and a number of parts that makes no sense, before any text is read;
    /// `Model` if the model cannot run; `Input` for a corpus without texts.
    pub fn score(
        &self,
        model: &dyn TextClassifier,
        corpus: &Corpus,
        progress: &dyn Progress,
    ) -> Result<SampleScores> {
        let wrong = |key: &str, found: String, wanted: String| Error::Config {
            key: key.to_string(),
            found,
            wanted,
        };
        if !(1..=1000).contains(&self.buckets) {
            return Err(wrong(
                "buckets",
                self.buckets.to_string(),
                "1 to 1000".into(),
            ));
        }
        let labels = model.labels();
        let label = labels.iter().position(|label| *label == self.label);
        if label.is_none() && !self.label.is_empty() {
            let wanted = format!("one of the model's labels: {}", labels.join(", "));
            return Err(wrong("label", format!("{:?}", self.label), wanted));
        }
        let mut found = Found {
            of_label: vec![0; labels.len()],
            ..Found::default()
        };
        let mut texts: Vec<String> = Vec::new();
        let mut bytes = 0;
        let counts = corpus.each(progress, &mut |text| {
            bytes += text.len();
            texts.push(text.to_string());
            if texts.len() >= TEXTS || bytes >= BYTES {
                bytes = 0;
                self.add(model, label, &std::mem::take(&mut texts), &mut found)?;
            }
            Ok(())
        })?;
        self.add(model, label, &texts, &mut found)?;
        let Found {
            mut scores,
            of_label,
            bad,
        } = found;
        let documents = scores.len();
        let mean = scores.iter().sum::<f64>() / documents.max(1) as f64;
        scores.sort_unstable_by(f64::total_cmp);
        let at = |part: usize| scores.get(documents * part / self.buckets).copied();
        let name = match (label, labels) {
            (Some(label), _) => labels[label].clone(),
            (None, [only]) => only.clone(),
            (None, _) => "highest".to_string(),
        };
        let ends = [scores.first(), scores.last()];
        Ok(SampleScores {
            label: name,
            documents: documents as u64,
            bad: counts.bad + bad,
            mean: (mean * 1e6).round() / 1e6,
            range: ends.map(|end| end.copied().unwrap_or(0.0)),
            labels: labels.iter().cloned().zip(of_label).collect(),
            buckets: (1..self.buckets).filter_map(at).collect(),
        })
    }

    fn add(
        &self,
        model: &dyn TextClassifier,
        label: Option<usize>,
        texts: &[String],
        found: &mut Found,
    ) -> Result<()> {
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        let logits = model.logits(&texts).map_err(|why| Error::Model {
            step: "classifier score".to_string(),
            why,
        })?;
        for logits in logits {
            match logits {
                Ok(logits) if logits.iter().all(|x| x.is_finite()) => {
                    let scores = self.function.scores(&logits, model.answer());
                    let highest = highest_of(&scores);
                    found.of_label[highest] += 1;
                    found.scores.push(scores[label.unwrap_or(highest)]);
                }
                Ok(_) | Err(_) => found.bad += 1,
            }
        }
        Ok(())
    }
}

#[derive(Default)]
struct Found {
    scores: Vec<f64>,
    of_label: Vec<u64>,
    bad: u64,
}
