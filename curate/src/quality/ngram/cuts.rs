//! Perplexity thresholds that divide a set of texts, as CCNet's head, middle and tail: thirds of a reference set.

use std::path::Path;

use serde::Serialize;

use super::NgramModel;
use crate::corpus::Corpus;
use crate::error::{Error, Result};
use crate::progress::Progress;

/// Distribution of the perplexities of texts.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PerplexityCuts {
    /// Texts.
    pub documents: u64,
    /// Records that could not be read.
    pub bad: u64,
    /// Lowest and highest perplexity.
    pub range: (f64, f64),
    /// Requested shares of the texts.
    pub shares: Vec<f64>,
    /// Perplexities that these shares do not exceed: `buckets` of the step `perplexity`.
    pub buckets: Vec<f64>,
}

/// Finds the perplexities that `shares` of the texts do not exceed. Memory: 8 bytes per text.
///
/// # Errors
/// `Config` for shares that are none; `Io` and `Input` for a model that is none, before a text is read; `Input` for a
/// corpus without texts.
pub fn perplexity_cuts(
    model: &Path,
    shares: &[f64],
    lowercase: bool,
    corpus: &Corpus,
    progress: &dyn Progress,
) -> Result<PerplexityCuts> {
    let inside = shares.iter().all(|s| *s > 0.0 && *s < 1.0);
    if shares.is_empty() || !inside || !shares.is_sorted() {
        return Err(Error::Config {
            key: "shares".into(),
            found: format!("{shares:?}"),
            wanted: "shares above 0 and below 1, the lowest first".into(),
        });
    }
    let model = NgramModel::open(model)?;
    let mut found = Vec::new();
    let counts = corpus.each(progress, &mut |text| {
        found.push(match lowercase {
            true => model.document_perplexity(&text.to_lowercase()),
            false => model.document_perplexity(text),
        });
        Ok(())
    })?;
    found.sort_unstable_by(f64::total_cmp);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "at most the number of texts"
    )]
    let cut = |share: &f64| {
        let below = (share * found.len() as f64).ceil() as usize;
        found[below.clamp(1, found.len()) - 1]
    };
    Ok(PerplexityCuts {
        documents: counts.documents,
        bad: counts.bad,
        range: (found[0], found[found.len() - 1]),
        shares: shares.to_vec(),
        buckets: shares.iter().map(cut).collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::progress::Silent;
    use crate::quality::ngram::NgramTraining;

    #[test]
    fn a_third_of_the_texts_is_in_each_part() {
        let folder = tempfile::tempdir().unwrap();
        let lines: Vec<String> = (0..300)
            .map(|i| "a b c d e f g ".repeat(1 + i % 7) + &"z ".repeat(i))
            .collect();
        let path = folder.path().join("texts.txt");
        std::fs::write(&path, lines.join("\n")).unwrap();
        let corpus = Corpus::find(&[path.display().to_string()], "text").unwrap();
        let arpa = folder.path().join("m.arpa");
        let training = NgramTraining {
            order: 2,
            discount_fallback: true,
            ..NgramTraining::default()
        };
        training.train(&corpus, &arpa, &Silent).unwrap();
        let cuts = |shares: &[f64]| perplexity_cuts(&arpa, shares, false, &corpus, &Silent);
        let found = cuts(&[1.0 / 3.0, 2.0 / 3.0]).unwrap();
        let model = NgramModel::open(&arpa).unwrap();
        let below = |cut: f64| {
            lines
                .iter()
                .filter(|l| model.document_perplexity(l) <= cut)
                .count()
        };
        assert_eq!(
            [below(found.buckets[0]), below(found.buckets[1])],
            [100, 200]
        );
        assert_eq!(found.documents, 300);
        let message = cuts(&[0.5, 0.2]).unwrap_err().to_string();
        assert!(
            message.starts_with("shares: found [0.5, 0.2], wanted"),
            "{message}"
        );
    }
}
