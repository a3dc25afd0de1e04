//! Bloom filter deduplication: removes paragraphs and documents whose n-grams have mostly occurred before in the
//! corpus.
//!
//! Program: mlfoundations/dclm 361714b, `dedup/bff` (Li et al. 2024, arXiv:2406.11794, app. D). A paragraph reaches
//! from one line feed to before the next; its words are UAX 29's segments other than white space; its n-grams are
//! all of `ngram` words, or the paragraph itself if it has fewer and at least `min_ngram`. A paragraph is removed
//! if more than `threshold` of its n-grams are in the filter; n-grams of a kept one are inserted. `document` treats
//! the whole text as one paragraph; `both` also drops a document if more than `threshold` of its n-grams, in order
//! of reading, were in the filter (their `both` and `old-both`, whose texts are the same).
//!
//! The result depends on the order of documents by its nature; here it is always that of (shard, document), one at
//! a time. The filter has m = -n ln p / (ln 2)^2 bits for n n-grams and a rate p of false positives, ceil(m / n ln
//! 2) of them for each n-gram. We differ: hashes are two halves of XXH3-128, h1 + i h2 (Kirsch and Mitzenmacher
//! 2006), not AHash with random seeds, so results are reproducible; without `expected_ngrams` they are counted in a
//! separate pass, where theirs must be given.

use serde::{Deserialize, Serialize};
use unicode_segmentation::UnicodeSegmentation;
use xxhash_rust::xxh3::xxh3_128;

use crate::check::{Problem, range};
use crate::dedup::passes::kept::{Passes, Piece};
use crate::dedup::report::BloomReport;
use crate::error::{Error, Result};
use crate::text::narrow;
use crate::write::word;

/// Unit of removal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum BloomRemove {
    /// Paragraphs.
    Paragraph,
    /// Whole documents.
    Document,
    /// Paragraphs, and documents of mostly known n-grams. DCLM-baseline's.
    #[default]
    Both,
}

/// Deduplication by a Bloom filter of n-grams.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct BloomConfig {
    /// Unit of removal.
    pub remove: BloomRemove,
    /// Words of an n-gram. DCLM: 13.
    pub ngram: usize,
    /// A paragraph with fewer words stays. DCLM: 13.
    pub min_ngram: usize,
    /// Greatest share of known n-grams in kept text. DCLM: 0.8.
    pub threshold: f64,
    /// False positives of the filter when all n-grams are in it. DCLM: 0.01.
    pub false_positive_rate: f64,
    /// N-grams that the filter is sized for; 0: they are counted first.
    pub expected_ngrams: u64,
    /// A document that loses a greater share of its bytes is dropped; one that loses all always is.
    pub max_removed_ratio: f64,
}

impl Default for BloomConfig {
    fn default() -> Self {
        BloomConfig {
            remove: BloomRemove::Both,
            ngram: 13,
            min_ngram: 13,
            threshold: 0.8,
            false_positive_rate: 0.01,
            expected_ngrams: 0,
            max_removed_ratio: 1.0,
        }
    }
}

impl BloomConfig {
    /// Reports every contradiction.
    pub fn check(&self, problem: Problem<'_>) {
        range(problem, "ngram", self.ngram as f64, 1.0, 1000.0);
        range(problem, "min_ngram", self.min_ngram as f64, 1.0, 1000.0);
        range(problem, "threshold", self.threshold, 0.0, 1.0);
        let rate = self.false_positive_rate;
        range(problem, "false_positive_rate", rate, 1e-12, 0.5);
        range(
            problem,
            "max_removed_ratio",
            self.max_removed_ratio,
            0.0,
            1.0,
        );
    }
}

/// Minimum size of a filter in bytes.
const LEAST: usize = 1 << 20;

/// A paragraph and the hashes of its n-grams.
struct Paragraph {
    start: u32,
    end: u32,
    ngrams: Vec<u128>,
}

pub(super) fn run(config: &BloomConfig, passes: &mut Passes<'_>) -> Result<()> {
    let expected = match config.expected_ngrams {
        0 => {
            let mut count = 0u64;
            let ngrams = |p: &Paragraph| p.ngrams.len() as u64;
            passes.each(
                |document| paragraphs(config, &document.text).iter().map(ngrams).sum(),
                |_, ngrams: u64| {
                    count += ngrams;
                    Ok(())
                },
            )?;
            count
        }
        message => message,
    };
    let mut filter = Filter::new(config, expected, passes.memory())?;
    let mut cuts = passes.cuts(2);
    passes.each(
        |document| {
            (
                narrow(document.text.len()),
                paragraphs(config, &document.text),
            )
        },
        |place, (bytes, found)| {
            cuts.size(place, bytes);
            cuts.looked_at += found.len() as u64;
            let known = filter.judge(config, &found);
            let mut cut = |start, end| {
                let piece = Piece {
                    start,
                    content_end: end,
                    end,
                    before: 0,
                };
                cuts.push(place, piece)
            };
            if known.is_whole {
                return cut(0, bytes);
            }
            let gone = found
                .iter()
                .zip(&known.paragraphs)
                .filter(|(_, gone)| **gone);
            gone.into_iter().try_for_each(|(p, _)| cut(p.start, p.end))
        },
    )?;
    cuts.bloom = Some(filter.report());
    passes.write_cuts("bloom", config.max_removed_ratio, cuts)
}

/// Known n-grams of a document.
struct Known {
    paragraphs: Vec<bool>,
    is_whole: bool,
}

struct Filter {
    bits: Vec<u64>,
    hashes: u32,
    expected: u64,
    ngrams: u64,
}

impl Filter {
    fn new(config: &BloomConfig, expected: u64, memory: usize) -> Result<Filter> {
        let ln2 = std::f64::consts::LN_2;
        let bits_an_ngram = -config.false_positive_rate.ln() / (ln2 * ln2);
        let words = (expected.max(1) as f64 * bits_an_ngram / 64.0).ceil();
        // half of the budget is for sorting cuts
        let most = (memory / 2).max(LEAST);
        if words * 8.0 > most as f64 {
            return Err(Error::Config {
                key: "memory_mb".to_string(),
                found: (memory >> 20).to_string(),
                wanted: format!(
                    "{:.0} for a Bloom filter of {expected} n-grams at a rate of {}",
                    (words * 16.0 / f64::from(1 << 20)).ceil(),
                    config.false_positive_rate
                ),
            });
        }
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "below the memory there is, and not negative"
        )]
        let (words, hashes) = (words as usize, (bits_an_ngram * ln2).ceil() as u32);
        Ok(Filter {
            bits: vec![0; words],
            hashes,
            expected,
            ngrams: 0,
        })
    }

    /// The bits of an n-gram, as words and places in them.
    fn places(&self, ngram: u128) -> impl Iterator<Item = (usize, u32)> + use<> {
        let (bits, hashes) = (self.bits.len() as u64 * 64, u64::from(self.hashes));
        let halves = ngram.to_le_bytes();
        let (one, two) = halves.split_at(8);
        let one = u64::from_le_bytes(word(one, 0));
        // odd, so that all bits of a round number can be met
        let two = u64::from_le_bytes(word(two, 0)) | 1;
        (0..hashes).map(move |i| {
            let bit = one.wrapping_add(i.wrapping_mul(two)) % bits;
            let word = usize::try_from(bit / 64).unwrap_or(usize::MAX);
            (word, u32::try_from(bit % 64).unwrap_or(0))
        })
    }

    fn has(&self, ngram: u128) -> bool {
        self.places(ngram)
            .all(|(word, bit)| self.bits[word] >> bit & 1 == 1)
    }

    /// Decides which paragraphs are removed. N-grams of kept ones are inserted.
    fn judge(&mut self, config: &BloomConfig, found: &[Paragraph]) -> Known {
        let (mut all, mut known) = (0, 0);
        let mut paragraphs = Vec::with_capacity(found.len());
        for paragraph in found {
            let ngrams = &paragraph.ngrams;
            let here = ngrams.iter().filter(|n| self.has(**n)).count();
            all += ngrams.len();
            known += here;
            // 0 / 0 is NaN, which is greater than nothing
            let gone = here as f64 / ngrams.len() as f64 > config.threshold;
            if !gone {
                self.ngrams += ngrams.len() as u64;
                for ngram in ngrams {
                    for (word, bit) in self.places(*ngram) {
                        self.bits[word] |= 1 << bit;
                    }
                }
            }
            paragraphs.push(gone);
        }
        let mostly = known as f64 / all as f64 > config.threshold;
        Known {
            paragraphs,
            is_whole: config.remove == BloomRemove::Both && mostly,
        }
    }

    fn report(&self) -> BloomReport {
        let set: u64 = self.bits.iter().map(|w| u64::from(w.count_ones())).sum();
        let share = set as f64 / (self.bits.len() as f64 * 64.0);
        BloomReport {
            bytes: self.bits.len() as u64 * 8,
            hashes: self.hashes,
            expected_ngrams: self.expected,
            ngrams: self.ngrams,
            false_positive_rate: share.powf(f64::from(self.hashes)),
        }
    }
}

/// The paragraphs of a text with their n-grams.
fn paragraphs(config: &BloomConfig, text: &str) -> Vec<Paragraph> {
    let mut found = Vec::new();
    let mut start = 0;
    let is_split = config.remove != BloomRemove::Document;
    let feeds = memchr::memchr_iter(b'\n', text.as_bytes()).filter(|_| is_split);
    for end in feeds.chain([text.len()]) {
        found.push(Paragraph {
            start: narrow(start),
            end: narrow(end),
            ngrams: ngrams(config, &text[start..end]),
        });
        start = end;
    }
    found
}

fn ngrams(config: &BloomConfig, paragraph: &str) -> Vec<u128> {
    let mut joined = String::with_capacity(paragraph.len());
    let mut ends = vec![0];
    let words = paragraph.split_word_bounds();
    for word in words.filter(|w| !w.chars().all(char::is_whitespace)) {
        joined.push_str(word);
        // in no word, so that words cannot run together
        joined.push(' ');
        ends.push(joined.len());
    }
    let hash = |from: usize, to: usize| xxh3_128(&joined.as_bytes()[from..to]);
    let count = ends.len() - 1;
    if count >= config.ngram {
        let windows = ends.windows(config.ngram + 1);
        return windows.map(|w| hash(w[0], w[config.ngram])).collect();
    }
    if count >= config.min_ngram {
        return vec![hash(0, joined.len())];
    }
    Vec::new()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_filter_has_the_false_positives_it_was_made_for() {
        for rate in [0.1, 0.01, 0.001] {
            let config = BloomConfig {
                false_positive_rate: rate,
                ..BloomConfig::default()
            };
            let mut filter = Filter::new(&config, 20_000, 1 << 30).unwrap();
            let hash = |i: u32| xxh3_128(&i.to_le_bytes());
            let paragraph = Paragraph {
                start: 0,
                end: 0,
                ngrams: (0..20_000).map(hash).collect(),
            };
            assert_eq!(filter.judge(&config, &[paragraph]).paragraphs, [false]);
            assert!((0..20_000).all(|i| filter.has(hash(i))));
            let tries = 400_000;
            let wrong = (0..tries).filter(|i| filter.has(hash(1 << 20 | i))).count();
            let found = wrong as f64 / f64::from(tries);
            // four standard deviations of the count, and a bit more set than was meant
            let allowed = 0.1 * rate + 4.0 * (rate / f64::from(tries)).sqrt();
            assert!((found - rate).abs() < allowed, "{found} for {rate}");
            let message = filter.report().false_positive_rate;
            assert!((message - rate).abs() < 0.1 * rate, "{message} for {rate}");
        }
    }

    #[test]
    fn a_filter_beyond_the_memory_is_refused_with_what_it_takes() {
        let config = BloomConfig::default();
        let Err(error) = Filter::new(&config, 1 << 30, 64 << 20) else {
            panic!("made")
        };
        let message = error.to_string();
        assert!(
            message.starts_with("memory_mb: found 64, wanted 24"),
            "{message}"
        );
    }
}
