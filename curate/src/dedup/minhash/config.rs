//! Settings of MinHash-LSH: named presets, and bands for a similarity.
//!
//! `bands` bands of `rows` hashes let a pair of similarity s become a candidate with probability 1 - (1 -
//! s^rows)^bands (Leskovec, Rajaraman and Ullman, Mining of Massive Datasets, sec. 3.4). Where a job names a
//! similarity (`threshold`) or a number of hashes (`permutations`) and neither bands nor rows, they are chosen to
//! minimize the area of false positives below the threshold plus that of false negatives above it, as datasketch's
//! `MinHashLSH` does.
//!
//! | preset | shingle | bands x rows | seed | source |
//! |---|---|---|---|---|
//! | `fineweb` | 5 words | 14 x 8 | 1 | datatrove 0.10.1, bit for bit |
//! | `native` | 5 words | 14 x 8 | 1 | ours |
//! | `mt_nlg` | 1 word | 20 x 13 | 1 | Smith et al. 2022, arXiv:2201.11990: a hashing vectorizer (words by default), LSH of 20 x 13, pairs of 0.8 (`verify`) |
//! | `redpajama` | 13 words | 9 x 13 of 128 | 1 | RedPajama-v2 at similarity 0.8; `threshold` 0.7, 0.9 and 1 give its 14 x 9, 5 x 25 and 1 x 128 |
//! | `nemotron` | 24 characters | 20 x 13 | 42 | NeMo Curator's fuzzy deduplication |
//!
//! We differ: only `fineweb` computes the hashes of the program it is named after; the others take words, characters and
//! permutations as `native` has them, so their signatures are ours and their bands and shingles are the source's.

use serde::{Deserialize, Serialize};

use crate::check::{Problem, range};
use crate::text::languages::WordLanguage;

/// Whose definition of near duplicates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum MinhashPreset {
    /// FineWeb's: datatrove's words, hashes and permutations.
    #[default]
    Fineweb,
    /// FineWeb's numbers with our words and hashes, many times as fast.
    Native,
    /// Megatron-Turing NLG's.
    MtNlg,
    /// RedPajama-v2's.
    Redpajama,
    /// Nemotron-CC's.
    Nemotron,
}

/// Element of a text's shingle set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ShingleKind {
    /// Neighbouring words.
    Words,
    /// Neighbouring characters of the words, which one space parts.
    Chars,
    /// Neighbouring tokens by Unicode's annex 29 segmentation: words, numbers, every other mark that is not white
    /// space, unchanged. Tokens of a trained tokenizer are not available here.
    Tokens,
}

impl ShingleKind {
    fn name(self) -> &'static str {
        match self {
            ShingleKind::Words => "words",
            ShingleKind::Chars => "chars",
            ShingleKind::Tokens => "tokens",
        }
    }

    /// Number in signature files.
    pub(crate) fn code(self) -> u32 {
        match self {
            ShingleKind::Words => 0,
            ShingleKind::Chars => 1,
            ShingleKind::Tokens => 2,
        }
    }
}

/// Elements of the sets that are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Shingle {
    /// Kind of element.
    pub kind: ShingleKind,
    /// Elements per shingle.
    pub n: usize,
}

/// MinHash with locality-sensitive hashing. Keys absent from a job file have the preset's values.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(from = "Given")]
pub struct MinhashConfig {
    /// Whose definition.
    pub preset: MinhashPreset,
    /// Definition of a shingle.
    pub shingle: Shingle,
    /// Groups of hashes; a pair that agrees in all hashes of one is a candidate.
    pub bands: usize,
    /// Hashes per band.
    pub rows: usize,
    /// Seed of the permutations.
    pub seed: u32,
    /// Similarity (Jaccard) from which pairs should be found; bands and rows are chosen for it if neither is given.
    pub threshold: f64,
    /// Maximum number of hashes that bands and rows may take together.
    pub permutations: usize,
    /// Language by which the words of preset `fineweb` are split: empty for English, a language of datatrove (`deu_Latn`,
    /// `de`), or `document` for the one that the step `language` found.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub language: String,
    /// Candidates are duplicates only if their sets of shingles have at least this Jaccard similarity; 0: all of them are.
    pub verify: f64,
}

impl Default for MinhashConfig {
    fn default() -> Self {
        MinhashConfig::of(MinhashPreset::default())
    }
}

/// Keys of a job file.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Given {
    preset: MinhashPreset,
    shingle: Option<Shingle>,
    bands: Option<usize>,
    rows: Option<usize>,
    seed: Option<u32>,
    threshold: Option<f64>,
    permutations: Option<usize>,
    language: Option<String>,
    verify: Option<f64>,
}

/// The most hashes of a signature; datasketch's choice of bands takes time with their square.
const MAX_PERMUTATIONS: usize = 1024;

impl From<Given> for MinhashConfig {
    fn from(given: Given) -> MinhashConfig {
        let own = MinhashConfig::of(given.preset);
        let mut config = MinhashConfig {
            shingle: given.shingle.unwrap_or(own.shingle),
            seed: given.seed.unwrap_or(own.seed),
            threshold: given.threshold.unwrap_or(own.threshold),
            permutations: given.permutations.unwrap_or(own.permutations),
            language: given.language.unwrap_or_default(),
            verify: given.verify.unwrap_or(own.verify),
            ..own
        };
        if given.bands.is_some() || given.rows.is_some() {
            config.bands = given.bands.unwrap_or(own.bands);
            config.rows = given.rows.unwrap_or(own.rows);
            let used = config.bands.saturating_mul(config.rows);
            config.permutations = given.permutations.unwrap_or(used);
            if given.threshold.is_none() && (config.bands, config.rows) != (own.bands, own.rows) {
                config.threshold = middle(config.bands, config.rows);
            }
        } else if given.threshold.is_some() || given.permutations.is_some() {
            (config.bands, config.rows) = best_bands(config.threshold, config.permutations);
        }
        config
    }
}

impl MinhashConfig {
    /// The definition of that name.
    pub fn of(preset: MinhashPreset) -> MinhashConfig {
        let words = |n| Shingle {
            kind: ShingleKind::Words,
            n,
        };
        let chars = |n| Shingle {
            kind: ShingleKind::Chars,
            n,
        };
        let (shingle, bands, rows, seed, threshold, permutations) = match preset {
            MinhashPreset::Fineweb | MinhashPreset::Native => (words(5), 14, 8, 1, 0.72, 112),
            MinhashPreset::MtNlg => (words(1), 20, 13, 1, 0.8, 260),
            MinhashPreset::Redpajama => (words(13), 9, 13, 1, 0.8, 128),
            MinhashPreset::Nemotron => (chars(24), 20, 13, 42, 0.8, 260),
        };
        MinhashConfig {
            preset,
            shingle,
            bands,
            rows,
            seed,
            threshold,
            permutations,
            language: String::new(),
            verify: if preset == MinhashPreset::MtNlg {
                0.8
            } else {
                0.0
            },
        }
    }

    /// Reports every contradiction.
    pub fn check(&self, problem: Problem<'_>) {
        range(problem, "shingle.n", self.shingle.n as f64, 1.0, 64.0);
        range(problem, "bands", self.bands as f64, 1.0, 256.0);
        range(problem, "rows", self.rows as f64, 1.0, 256.0);
        range(problem, "threshold", self.threshold, 0.0, 1.0);
        range(problem, "verify", self.verify, 0.0, 1.0);
        let most = MAX_PERMUTATIONS as f64;
        range(problem, "permutations", self.permutations as f64, 1.0, most);
        if self.bands.saturating_mul(self.rows) > self.permutations {
            problem(
                "permutations",
                self.permutations.to_string(),
                &format!("at least bands x rows = {} x {}", self.bands, self.rows),
            );
        }
        if let Err(wanted) = WordLanguage::of(&self.language) {
            problem("language", format!("{:?}", self.language), &wanted);
        } else if self.preset != MinhashPreset::Fineweb && !self.language.is_empty() {
            let wanted = "none: the words of this preset are the same in every language";
            problem("language", format!("{:?}", self.language), wanted);
        }
        if self.preset == MinhashPreset::Fineweb && self.shingle.kind != ShingleKind::Words {
            problem(
                "shingle.kind",
                format!("{:?}", self.shingle.kind.name()),
                "\"words\" with preset = \"fineweb\", whose hashes are datatrove's",
            );
        }
    }
}

/// The similarity at which the curve of bands and rows is steepest, nearly.
fn middle(bands: usize, rows: usize) -> f64 {
    (1.0 / bands.max(1) as f64).powf(1.0 / rows.max(1) as f64)
}

/// Pieces of the integral; Simpson's rule with this many agrees with adaptive quadrature to 1e-7 on these curves.
const PIECES: u32 = 128;

/// Probability that a pair of similarity `s` becomes a candidate.
fn candidate(s: f64, bands: i32, rows: i32) -> f64 {
    1.0 - (1.0 - s.powi(rows)).powi(bands)
}

/// Integral of `f` over `from..to` by Simpson's rule.
fn area(from: f64, to: f64, f: impl Fn(f64) -> f64) -> f64 {
    let step = (to - from) / f64::from(PIECES);
    let inner: f64 = (1..PIECES)
        .map(|i| f(from + step * f64::from(i)) * if i % 2 == 1 { 4.0 } else { 2.0 })
        .sum();
    (f(from) + inner + f(to)) * step / 3.0
}

/// Bands and rows with the least area of errors for `threshold`, of all that need at most `permutations` hashes.
fn best_bands(threshold: f64, permutations: usize) -> (usize, usize) {
    let most = i32::try_from(permutations.min(MAX_PERMUTATIONS)).unwrap_or(1);
    let mut best = (f64::INFINITY, 1, 1);
    for bands in 1..=most {
        for rows in 1..=most / bands {
            let wrong = area(0.0, threshold, |s| candidate(s, bands, rows));
            let missed = area(threshold, 1.0, |s| 1.0 - candidate(s, bands, rows));
            let error = 0.5 * wrong + 0.5 * missed;
            if error < best.0 {
                best = (error, bands, rows);
            }
        }
    }
    let size = |n: i32| usize::try_from(n).unwrap_or(1);
    (size(best.1), size(best.2))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> MinhashConfig {
        serde_json::from_str(text).unwrap()
    }

    /// Made by tests/oracles/datasketch_bands.py: threshold, permutations, bands, rows.
    const GOLDEN: &str = include_str!("../../../tests/data/datasketch_bands.json");

    #[test]
    fn bands_for_a_threshold_are_datasketchs() {
        let rows: Vec<(f64, usize, usize, usize)> = serde_json::from_str(GOLDEN).unwrap();
        assert!(rows.len() > 100);
        for (threshold, permutations, bands, rows) in rows {
            let ours = best_bands(threshold, permutations);
            assert_eq!(ours, (bands, rows), "{threshold} of {permutations}");
        }
    }

    #[test]
    fn redpajamas_four_similarities_give_its_published_bands() {
        for (threshold, bands, rows) in [(0.7, 14, 9), (0.8, 9, 13), (0.9, 5, 25), (1.0, 1, 128)] {
            let text = format!(r#"{{"preset":"redpajama","threshold":{threshold:?}}}"#);
            let c = parse(&text);
            assert_eq!(
                (c.bands, c.rows, c.shingle.n),
                (bands, rows, 13),
                "{threshold}"
            );
        }
    }

    #[test]
    fn a_resolved_definition_reads_back_as_itself() {
        for text in [
            "{}",
            r#"{"preset":"native"}"#,
            r#"{"preset":"mt_nlg","bands":10}"#,
            r#"{"preset":"redpajama","threshold":0.7}"#,
            r#"{"preset":"nemotron","permutations":64,"seed":7}"#,
            r#"{"preset":"native","shingle":{"kind":"chars","n":12},"rows":4,"threshold":0.5}"#,
        ] {
            let config = parse(text);
            let mut wrong = Vec::new();
            config.check(&mut |key, found, _| wrong.push(format!("{key} {found}")));
            assert!(wrong.is_empty(), "{text}: {wrong:?}");
            assert_eq!(
                parse(&serde_json::to_string(&config).unwrap()),
                config,
                "{text}"
            );
        }
    }

    #[test]
    fn every_contradiction_is_reported_at_once() {
        let text = r#"{"shingle":{"kind":"chars","n":0},"bands":20,"rows":300,"permutations":30,
            "threshold":1.5}"#;
        let mut found = Vec::new();
        parse(text).check(&mut |key, _, _| found.push(key.to_string()));
        let wanted = [
            "shingle.n",
            "rows",
            "threshold",
            "permutations",
            "shingle.kind",
        ];
        assert_eq!(found, wanted);
        for text in [
            r#"{"preset":"fine_web"}"#,
            r#"{"shingle":{"kind":"syllables","n":5}}"#,
            r#"{"ngram":5}"#,
        ] {
            assert!(
                serde_json::from_str::<MinhashConfig>(text).is_err(),
                "{text}"
            );
        }
    }
}
