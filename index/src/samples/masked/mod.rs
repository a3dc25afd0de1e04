//! Masked samples: masking shared by BERT and T5.
//!
//! Candidates for masking are all tokens but CLS and SEP; a piece that continues a word joins the candidate before
//! it if whole words are masked. n = min(p target, max(1, round(p length))) tokens may be masked. The candidates
//! are shuffled; at each of them an n-gram of candidates is tried, whose size is drawn (1/k, reversed if longer
//! ones are favoured, or geometric with 0.2) and reduced until it fits what is left; one that overlaps a masked
//! token is skipped. All draws come from `RandomState((seed + sample) mod 2^32)`: a sample depends only on its
//! number, so resuming is exact. Source: megatron-core 0.16.1 `masked_dataset.py`; n-grams: Joshi et al. 2020
//! (SpanBERT), sec. 3.1. We differ: the sizes of permuted n-grams come from the sample's stream, where Megatron
//! uses the process's global stream, which a resumed run cannot reproduce; where Megatron fails an assertion, this
//! is an error that names the sample.

mod bert;
mod mapping;
mod t5;

pub use bert::{BertItem, BertSamples};
pub use t5::{T5Item, T5Samples};

use crate::array::Array;
use crate::cache::Cache;
use crate::dataset::read::Dataset;
use crate::error::{Error, Result};
use crate::numpy_random::RandomState;
use crate::samples::Request;
use crate::split::{self, Bounds, Part, numpy_sum};
use crate::tokenizer::Tokenizer;
use mapping::{Row, Rules};
use serde_json::json;
use std::sync::Arc;

/// Tokens of a vocabulary that masking uses.
#[derive(Clone, Debug, Default)]
pub struct MaskTokens {
    /// Begins a BERT sample.
    pub cls: u32,
    /// Ends a segment of a BERT sample.
    pub sep: u32,
    /// Replacement of a masked token.
    pub mask: u32,
    /// Padding, if it is no other special token.
    pub pad: Option<u32>,
    /// Begins a decoder input of T5.
    pub bos: u32,
    /// Ends a decoder output of T5.
    pub eos: u32,
    /// Sentinels of T5, in the order of use.
    pub sentinels: Vec<u32>,
    /// Ids that a token may be replaced with, in the tokenizer's order.
    pub vocabulary: Vec<u32>,
    /// By id: whether the piece continues a word (starts with `##`).
    pub continues: Vec<bool>,
}

impl MaskTokens {
    /// From a tokenizer, for BERT (CLS, SEP and mask) or T5 (end and sentinels; the decoder begins with BOS, or
    /// with padding if there is none, as in transformers).
    ///
    /// # Errors
    /// `Several`: every token that the vocabulary lacks.
    pub fn of(tokenizer: &Tokenizer, is_bert: bool) -> Result<MaskTokens> {
        let special = tokenizer.special();
        let mut problems = Vec::new();
        let mut need = |name: &str, id: Option<u32>| {
            if id.is_none() {
                problems.push(Error::Blend {
                    field: "samples",
                    found: format!("no {name} in {}", tokenizer.path().display()),
                    wanted: "a tokenizer with the special tokens of these samples".into(),
                });
            }
            id.unwrap_or(0)
        };
        let mut tokens = MaskTokens::default();
        if is_bert {
            tokens.cls = need("CLS token", special.cls.or(special.bos));
            tokens.sep = need("SEP token", special.sep.or(special.eos));
            tokens.mask = need("mask token", special.mask);
        } else {
            tokens.bos = need("BOS or padding token", special.bos.or(special.pad));
            tokens.eos = need("end token", special.eos);
            tokens.mask = need("sentinel <extra_id_0>", special.sentinels.first().copied());
        }
        Error::join(problems)?;
        let ids = 0..u32::try_from(tokenizer.vocab()).unwrap_or(u32::MAX);
        let continues = |id: u32| tokenizer.token(id).is_some_and(|t| t.starts_with("##"));
        Ok(MaskTokens {
            pad: special.pad,
            sentinels: special.sentinels.clone(),
            continues: ids.clone().map(continues).collect(),
            vocabulary: ids.collect(),
            ..tokens
        })
    }
}

/// Masking settings. Defaults: BERT's in Megatron.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Masking {
    /// Share of tokens. Default: 0.15, Devlin et al. 2019.
    pub probability: f64,
    /// Share of samples that are cut short. Default: 0.1.
    pub short_probability: f64,
    /// Maximum number of candidates masked together. Default: 3.
    pub max_ngram: usize,
    /// Mask all pieces of a word together. Default: yes.
    pub full_word: bool,
    /// Also permute as many tokens again. Default: no.
    pub permutation: bool,
    /// Favour long n-grams over short ones. Default: no.
    pub longer_ngrams: bool,
    /// Draw n-gram sizes from SpanBERT's geometric distribution. Default: no.
    pub geometric: bool,
}

impl Default for Masking {
    fn default() -> Self {
        Masking {
            probability: 0.15,
            short_probability: 0.1,
            max_ngram: 3,
            full_word: true,
            permutation: false,
            longer_ngrams: false,
            geometric: false,
        }
    }
}

impl Masking {
    /// Calls `problem` (key, found, wanted) for every invalid setting.
    pub fn check(&self, problem: &mut dyn FnMut(&str, String, &str)) {
        if !(self.probability > 0.0 && self.probability < 1.0) {
            problem(
                "probability",
                self.probability.to_string(),
                "above 0, below 1",
            );
        }
        if !(0.0..=1.0).contains(&self.short_probability) {
            problem(
                "short_probability",
                self.short_probability.to_string(),
                "0 to 1",
            );
        }
        if self.max_ngram == 0 {
            problem("max_ngram", "0".into(), "1 or more");
        }
        if self.geometric && self.permutation {
            problem(
                "permutation",
                "true with geometric".into(),
                "one of the two",
            );
        }
    }
}

/// A masked dataset of either kind: sentences, their samples, and how to mask them.
struct Masked {
    dataset: Arc<Dataset>,
    rows: Array<Row>,
    seq_length: u32,
    seed: u32,
    masking: Masking,
    tokens: Arc<MaskTokens>,
}

/// Request for masked samples.
pub struct MaskedRequest<'a> {
    /// Dataset with one sentence per sequence.
    pub dataset: Arc<Dataset>,
    /// Part of its documents.
    pub part: Part,
    /// Bounds of the part.
    pub bounds: Bounds,
    /// Tokens of a sample; for T5 those of the encoder.
    pub seq_length: u32,
    /// Minimum number of samples; whole epochs are built.
    pub samples: u64,
    /// Seed of mapping, masking and shuffles.
    pub seed: u32,
    /// Masking settings.
    pub masking: Masking,
    /// The vocabulary.
    pub tokens: Arc<MaskTokens>,
    /// Cache of the sample index.
    pub cache: Option<&'a Cache>,
}

impl Masked {
    /// `special` is the number of tokens of a sample that are not text; `more` are the fields that the class adds
    /// to Megatron's description.
    fn open(
        r: &MaskedRequest,
        class: &str,
        special: u32,
        sentences: u32,
        more: serde_json::Value,
    ) -> Result<Masked> {
        let mut problems = Vec::new();
        r.masking.check(&mut |field, found, wanted| {
            problems.push(Error::Blend {
                field: "masking",
                found: format!("{field} {found}"),
                wanted: wanted.into(),
            });
        });
        Error::join(problems)?;
        let documents = split::elements(r.bounds, r.dataset.documents());
        let rules = Rules {
            samples: r.samples,
            longest: r.seq_length.saturating_sub(special),
            short_probability: r.masking.short_probability,
            seed: r.seed,
            sentences,
        };
        let build = || mapping::build(&r.dataset, &documents, &rules);
        let rows = match r.cache {
            None => build()?.into(),
            Some(cache) => {
                let request = Request::of(r.seq_length.into(), Some(r.samples), r.seed);
                let m = &r.masking;
                let mut all = json!({
                    "masking_probability": m.probability,
                    "short_sequence_probability": m.short_probability,
                    "masking_max_ngram": m.max_ngram,
                    "masking_do_full_word": m.full_word,
                    "masking_do_permutation": m.permutation,
                    "masking_use_longer_ngrams": m.longer_ngrams,
                    "masking_use_geometric_distribution": m.geometric,
                });
                if let (Some(all), serde_json::Value::Object(more)) = (all.as_object_mut(), more) {
                    all.extend(more);
                }
                let prefix = r.dataset.prefix();
                let description = cache.describe_masked(class, prefix, r.part, &request, all);
                cache.masked(
                    (class, &description),
                    &r.dataset,
                    &documents,
                    r.samples,
                    build,
                )?
            }
        };
        Ok(Masked {
            dataset: r.dataset.clone(),
            rows,
            seq_length: r.seq_length,
            seed: r.seed,
            masking: r.masking,
            tokens: r.tokens.clone(),
        })
    }

    /// Epochs in the sample index: in each, one sample begins with the very first sentence.
    fn epochs(&self) -> u64 {
        let first = self.rows.iter().map(|row| row[0]).min();
        let begins = self.rows.iter().filter(|row| Some(row[0]) == first);
        begins.count() as u64
    }

    fn row(&self, k: u64) -> Result<Row> {
        let row = usize::try_from(k).ok().and_then(|i| self.rows.get(i));
        row.copied().ok_or(Error::Range {
            what: "masked sample",
            index: k,
            len: self.rows.len() as u64,
        })
    }

    /// The random stream of sample `k`.
    fn random(&self, k: u64) -> RandomState {
        let seed = (u64::from(self.seed) + k) & u64::from(u32::MAX);
        RandomState::new(u32::try_from(seed).unwrap_or(0))
    }

    /// Tokens of a sentence, appended.
    fn sentence(&self, s: u32, out: &mut Vec<u32>) -> Result<()> {
        let (first, length) = self.dataset.place(s.into())?;
        let from = out.len();
        out.resize(from + length as usize, 0);
        self.dataset.tokens_at(first, &mut out[from..])
    }

    fn wrong(&self, k: u64, field: &'static str, found: String, wanted: String) -> Error {
        let prefix = self.dataset.prefix().display();
        Error::Blend {
            field,
            found: format!("{found} in masked sample {k} of {prefix}"),
            wanted,
        }
    }
}

/// Result of masking a sample.
struct Predictions {
    /// Tokens with masks.
    tokens: Vec<u32>,
    /// Positions whose tokens are to be predicted, ascending, and those tokens.
    labels: Vec<(usize, u32)>,
    /// Positions masked together, by their first.
    spans: Vec<Vec<usize>>,
}

/// Candidates as stretches of one list of positions.
struct Candidates {
    positions: Vec<usize>,
    starts: Vec<usize>,
}

impl Candidates {
    fn of(text: &[u32], t: &MaskTokens, full_word: bool) -> Candidates {
        let (mut positions, mut starts) = (Vec::with_capacity(text.len()), Vec::new());
        for (i, token) in text.iter().enumerate() {
            if *token == t.cls || *token == t.sep {
                continue;
            }
            let continues = t.continues.get(*token as usize).is_some_and(|c| *c);
            if !(continues && full_word && !starts.is_empty()) {
                starts.push(positions.len());
            }
            positions.push(i);
        }
        Candidates { positions, starts }
    }

    /// Positions of `n` candidates from `c` on, or as many as there are.
    fn ngram(&self, c: usize, n: usize) -> &[usize] {
        let end = self.starts.get(c + n).copied();
        &self.positions[self.starts[c]..end.unwrap_or(self.positions.len())]
    }
}

/// Masks `text`; `replace` returns the replacement of a token, or None if it stays.
fn mask(
    text: &[u32],
    target: u32,
    (m, t): (&Masking, &MaskTokens),
    random: &mut RandomState,
    replace: &mut dyn FnMut(&mut RandomState) -> Option<u32>,
) -> Predictions {
    let candidates = Candidates::of(text, t, m.full_word);
    let budget = (m.probability * f64::from(target)).min(
        (text.len() as f64 * m.probability)
            .round_ties_even()
            .max(1.0),
    );
    let inverse: Vec<f64> = (1..=m.max_ngram).map(|n| 1.0 / n as f64).collect();
    let sum = numpy_sum(&inverse);
    let mut shares: Vec<f64> = inverse.iter().map(|p| p / sum).collect();
    let again = numpy_sum(&shares);
    if m.longer_ngrams {
        shares.reverse();
    }
    shares.iter_mut().for_each(|p| *p /= again);

    let mut order: Vec<usize> = (0..candidates.starts.len()).collect();
    random.shuffle(&mut order);
    let mut out = Predictions {
        tokens: text.to_vec(),
        labels: Vec::new(),
        spans: Vec::new(),
    };
    let mut used = vec![false; text.len()];
    // the largest n-gram of at most `n` that the budget still has room for
    let fitting = |c: usize, n: usize, taken: usize| {
        (1..=n)
            .rev()
            .map(|n| candidates.ngram(c, n))
            .find(|g| (taken + g.len()) as f64 <= budget)
    };
    for c in &order {
        if out.labels.len() as f64 >= budget {
            break;
        }
        let n = if m.geometric {
            random.geometric(0.2).min(m.max_ngram)
        } else {
            random.choice(&shares) + 1
        };
        let Some(ngram) = fitting(*c, n, out.labels.len()) else {
            continue;
        };
        if ngram.iter().any(|i| used[*i]) {
            continue;
        }
        for i in ngram {
            used[*i] = true;
            out.tokens[*i] = replace(random).unwrap_or(text[*i]);
            out.labels.push((*i, text[*i]));
        }
        out.spans.push(ngram.to_vec());
    }
    random.shuffle(&mut order);
    if m.permutation {
        let mut moved: Vec<usize> = Vec::new();
        for c in &order {
            if moved.len() as f64 >= budget {
                break;
            }
            let n = random.choice(&shares) + 1;
            let Some(ngram) = fitting(*c, n, moved.len()) else {
                continue;
            };
            if ngram.iter().any(|i| used[*i]) {
                continue;
            }
            ngram.iter().for_each(|i| used[*i] = true);
            moved.extend(ngram);
        }
        moved.sort_unstable();
        let mut from = moved.clone();
        random.shuffle(&mut from);
        let before = out.tokens.clone();
        for (to, from) in moved.into_iter().zip(from) {
            out.tokens[to] = before[from];
            out.labels.push((to, before[to]));
        }
    }
    out.labels.sort_by_key(|l| l.0);
    out.spans.sort_by_key(|s| s[0]);
    out
}

/// Fills up to `len` with `pad`.
fn padded(values: impl IntoIterator<Item = i32>, len: usize, pad: i32) -> Vec<i32> {
    let mut out: Vec<i32> = values.into_iter().collect();
    out.resize(len, pad);
    out
}

/// Ids in 31 bits, as Megatron's arrays hold them; -1 is no token.
fn id(token: u32) -> i32 {
    token.cast_signed()
}
