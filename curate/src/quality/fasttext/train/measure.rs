//! Evaluation of a classifier on texts with known labels, and the distribution of its scores on any texts.

use std::path::Path;

use serde::Serialize;

use super::examples::Examples;
use crate::corpus::Corpus;
use crate::error::{Error, Result};
use crate::progress::Progress;
use crate::quality::fasttext::{FastText, FastTextScratch};

/// Bars of a histogram of scores.
const BARS: usize = 20;
/// Labels up to this many are shown with their confusions.
const CONFUSED: usize = 64;

/// A label among texts whose labels are known.
#[derive(Clone, Debug, Serialize)]
pub struct LabelMetrics {
    /// Name.
    pub label: String,
    /// Texts with this label.
    pub texts: u64,
    /// Of the texts that the model gives this label, the share that has it.
    pub precision: f64,
    /// Of the texts with this label, the share that the model gives it.
    pub recall: f64,
    /// Texts with this label by score for it: from 0 to 1 in equal steps.
    pub scores: Vec<u64>,
    /// The same of the texts without this label.
    pub scores_of_others: Vec<u64>,
    /// Lowest scores among the best 1 %, 5 %, 10 %, 25 %, 50 %, 75 %, 90 % of all texts.
    pub thresholds: Vec<(f64, f64)>,
}

/// Evaluation on held-out examples.
#[derive(Clone, Debug, Default, Serialize)]
pub struct HeldOut {
    /// Texts.
    pub texts: u64,
    /// Share of the texts whose best label is one of theirs.
    pub accuracy: f64,
    /// By label, in the model's order.
    pub labels: Vec<LabelMetrics>,
    /// Row: label of the text; column: label that the model gave; empty for many labels.
    pub confusion: Vec<Vec<u64>>,
}

fn bar(score: f64) -> usize {
    let place = (0..BARS).take_while(|i| (i + 1) as f64 / BARS as f64 <= score);
    place.count().min(BARS - 1)
}

fn share(a: u64, b: u64) -> f64 {
    if b == 0 { 0.0 } else { a as f64 / b as f64 }
}

/// The score that a share of sorted scores reaches.
fn at_quantile(sorted: &[f32], below: f64) -> f64 {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "below the length"
    )]
    let place = (below * sorted.len() as f64).floor() as usize;
    let score = sorted.get(place.min(sorted.len().saturating_sub(1)));
    score.map_or(0.0, |s| f64::from(*s))
}

pub(super) fn held_out(model: &FastText, examples: &Examples) -> Result<HeldOut> {
    let count = model.labels().len();
    let mut scratch = FastTextScratch::new();
    let mut found = Vec::new();
    let mut confusion = vec![vec![0u64; count]; if count <= CONFUSED { count } else { 0 }];
    let (mut right, mut texts) = (0, 0);
    let (mut given, mut has, mut both) = (vec![0u64; count], vec![0u64; count], vec![0u64; count]);
    let mut bars = vec![[[0u64; BARS]; 2]; count];
    let mut scores: Vec<Vec<f32>> = vec![Vec::new(); count];
    for example in &examples.held_out {
        let text = examples.text(example)?;
        model.predict(&text, count, &mut scratch, &mut found);
        let Some(&(best, _)) = found.first() else {
            continue;
        };
        texts += 1;
        let own = examples.labels(example).iter();
        let own: Vec<&String> = own.map(|l| &examples.names[*l as usize]).collect();
        let is_own = |label: usize| own.contains(&&model.labels()[label]);
        right += u64::from(is_own(best));
        given[best] += 1;
        both[best] += u64::from(is_own(best));
        let mut of_label = vec![0.0f32; count];
        found.iter().for_each(|(label, p)| of_label[*label] = *p);
        for (label, p) in of_label.into_iter().enumerate() {
            has[label] += u64::from(is_own(label));
            bars[label][usize::from(!is_own(label))][bar(f64::from(p))] += 1;
            scores[label].push(p);
            if is_own(label)
                && let Some(row) = confusion.get_mut(label)
            {
                row[best] += 1;
            }
        }
    }
    let labels = (0..count).map(|label| {
        let sorted = &mut scores[label];
        sorted.sort_unstable_by(f32::total_cmp);
        let best = [0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9];
        LabelMetrics {
            label: model.labels()[label].clone(),
            texts: has[label],
            precision: share(both[label], given[label]),
            recall: share(both[label], has[label]),
            scores: bars[label][0].to_vec(),
            scores_of_others: bars[label][1].to_vec(),
            thresholds: best.map(|b| (b, at_quantile(sorted, 1.0 - b))).to_vec(),
        }
    });
    Ok(HeldOut {
        texts,
        accuracy: share(right, texts),
        labels: labels.collect(),
        confusion,
    })
}

/// Scores of a corpus.
#[derive(Clone, Debug, Serialize)]
pub struct ScoreReport {
    /// Label whose probability is the score.
    pub label: String,
    /// Texts.
    pub documents: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Records that could not be read.
    pub bad: u64,
    /// Mean score.
    pub mean: f64,
    /// Texts by score, from 0 to 1 in equal steps.
    pub scores: Vec<u64>,
    /// Scores that divide the texts into parts of equal size: `buckets` of the step `quality`.
    pub buckets: Vec<f64>,
}

/// Scores every text of a corpus. `label` is the model's; `buckets` is the number of parts. Memory: 4 bytes per text.
///
/// # Errors
/// `Io`, `Damaged` and `Config` for a model that is none or does not know the label, before any text is read; `Input`
/// for a corpus without texts.
pub fn score_corpus(
    path: &Path,
    label: &str,
    buckets: usize,
    corpus: &Corpus,
    progress: &dyn Progress,
) -> Result<ScoreReport> {
    if !(1..=1000).contains(&buckets) {
        return Err(Error::Config {
            key: "buckets".into(),
            found: buckets.to_string(),
            wanted: "1 to 1000".into(),
        });
    }
    let model = FastText::open(path)?;
    let Some(wanted) = model.label(label) else {
        return Err(Error::Config {
            key: "label".into(),
            found: format!("{label:?}"),
            wanted: format!(
                "a label of {}: {}",
                path.display(),
                model.labels().join(" ")
            ),
        });
    };
    let (mut scratch, mut found) = (FastTextScratch::new(), Vec::new());
    let (mut sorted, mut bars, mut sum) = (Vec::new(), vec![0u64; BARS], 0.0);
    let counts = corpus.each(progress, &mut |text| {
        model.predict(text, model.labels().len(), &mut scratch, &mut found);
        let score = found.iter().find(|f| f.0 == wanted).map_or(0.0, |f| f.1);
        sorted.push(score);
        bars[bar(f64::from(score))] += 1;
        sum += f64::from(score);
        Ok(())
    })?;
    sorted.sort_unstable_by(f32::total_cmp);
    let cuts = (1..buckets).map(|i| at_quantile(&sorted, i as f64 / buckets as f64));
    // as the step rounds the scores that it keeps
    let round = |x: f64| (x * 1e6).round() / 1e6;
    Ok(ScoreReport {
        label: model.labels()[wanted].clone(),
        documents: counts.documents,
        bytes: counts.bytes,
        bad: counts.bad,
        mean: round(sum / counts.documents as f64),
        scores: bars,
        buckets: cuts.map(round).collect(),
    })
}
