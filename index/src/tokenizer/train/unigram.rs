//! Unigram training (EM): many candidate pieces, pruned until the vocabulary fits.
//!
//! Paper: Kudo 2018, arXiv:1804.10959, section 3.2. Expected counts of pieces over all segmentations
//! (forward-backward), the Bayesian M-step of SentencePiece (digamma; pieces with an expected count below 0.5 are
//! removed), two rounds, then the quarter of the pieces whose removal costs the least likelihood is dropped;
//! repeated until 1.1 times the vocabulary is left; then the best are kept. Characters always stay. We differ:
//! candidates are substrings (2 to 16 characters) of the 200,000 most frequent words, not of a suffix array; the
//! words' expected counts are summed in 64 fixed parts, so threads change nothing.

use super::settings::TrainSettings;
use crate::tokenizer::load::metaspace_json;
use crate::tokenizer::sentencepiece::trie::{Key, NONE, Trie};
use rayon::prelude::*;
use rustc_hash::FxHashMap;
use std::cmp::Reverse;

/// Longest piece in characters.
const LONGEST: usize = 16;
/// Words that candidates are taken from, the most frequent ones.
const SEED_WORDS: usize = 200_000;
/// Maximum number of candidates.
const SEEDS: usize = 1_000_000;
/// EM rounds between two prunings.
const ROUNDS: usize = 2;
/// Share of the pieces kept by a pruning.
const KEPT: f64 = 0.75;
/// Number of parts whose sums are added in order.
const PARTS: usize = 64;
/// Longer words are cut: forward sums over a megabyte would only cost time.
const LONGEST_WORD: usize = 4096;

/// A piece and its log probability.
type Piece = (String, f64);

/// A `tokenizer.json` from sorted words with their counts.
pub(super) fn train(settings: &TrainSettings, words: &[(String, u64)]) -> Result<String, String> {
    let words: Vec<(&str, u64)> = (words.iter())
        .map(|(w, n)| (w.as_str(), *n))
        .filter(|(w, _)| !w.is_empty() && w.len() <= LONGEST_WORD)
        .collect();
    let special = settings.specials();
    // the unknown piece belongs to the model; the others are added tokens, which text never becomes
    let room = settings.vocab - special.len();
    let characters = characters(&words);
    if characters.is_empty() {
        return Err("found no word to train on, wanted some".into());
    }
    if characters.len() > room {
        return Err(format!(
            "vocab: found {}, wanted room for {} special tokens and {} characters",
            settings.vocab,
            special.len(),
            characters.len()
        ));
    }
    let mut pieces = candidates(&words, &characters, settings.min_frequency);
    let enough = room + room / 10;
    loop {
        for _ in 0..ROUNDS {
            let model = Model::new(&pieces)?;
            pieces = maximised(&pieces, &model.expected(&words), &characters);
        }
        if pieces.len() <= enough.max(characters.len()) {
            break;
        }
        pieces = thinned(&pieces, &words, enough)?;
    }
    let mut chosen = Vec::with_capacity(room);
    let (mut single, mut longer): (Vec<Piece>, Vec<Piece>) = pieces
        .into_iter()
        .partition(|(t, _)| characters.contains_key(t.as_str()));
    chosen.append(&mut single);
    longer.sort_by(best_first);
    longer.truncate(room - chosen.len());
    chosen.append(&mut longer);
    chosen.sort_by(best_first);
    let model: Vec<Piece> = std::iter::once(("<unk>".to_string(), 0.0))
        .chain(chosen)
        .collect();
    Ok(metaspace_json(&model, settings.lowercase, &special[1..]))
}

fn best_first(a: &Piece, b: &Piece) -> std::cmp::Ordering {
    b.1.total_cmp(&a.1).then_with(|| a.0.cmp(&b.0))
}

/// Every character with its count.
fn characters(words: &[(&str, u64)]) -> FxHashMap<String, u64> {
    let mut counts = FxHashMap::default();
    for (word, n) in words {
        for c in word.chars() {
            *counts.entry(c.to_string()).or_default() += n;
        }
    }
    counts
}

/// Characters and frequent substrings, scored by the text that they cover.
fn candidates(
    words: &[(&str, u64)],
    characters: &FxHashMap<String, u64>,
    min_frequency: u64,
) -> Vec<Piece> {
    let mut frequent: Vec<(&str, u64)> = words.to_vec();
    frequent.sort_by_key(|(w, n)| (Reverse(*n), *w));
    frequent.truncate(SEED_WORDS);
    let mut counts: FxHashMap<&str, u64> = FxHashMap::default();
    for (word, n) in frequent {
        let ends: Vec<usize> = word
            .char_indices()
            .map(|(at, _)| at)
            .chain([word.len()])
            .collect();
        for start in 0..ends.len() {
            for end in ends.iter().skip(start + 2).take(LONGEST - 1) {
                *counts.entry(&word[ends[start]..*end]).or_default() += n;
            }
        }
    }
    let mut scored: Vec<(Reverse<u64>, &str)> = (counts.into_iter())
        .filter(|(_, n)| *n >= min_frequency.max(2))
        .map(|(t, n)| (Reverse(n * t.chars().count() as u64), t))
        .collect();
    scored.sort_unstable();
    scored.truncate(SEEDS);
    let singles = characters.iter().map(|(t, n)| (t.clone(), *n as f64));
    let longer = scored
        .iter()
        .map(|(Reverse(n), t)| (t.to_string(), *n as f64));
    let mut pieces: Vec<Piece> = singles.chain(longer).collect();
    pieces.sort_by(|a, b| a.0.cmp(&b.0));
    let total: f64 = pieces.iter().map(|(_, n)| n).sum();
    for (_, n) in &mut pieces {
        *n = n.ln() - total.ln();
    }
    pieces
}

/// The M-step: log probabilities from expected counts; rare pieces are removed, characters stay.
fn maximised(
    pieces: &[Piece],
    expected: &[f64],
    characters: &FxHashMap<String, u64>,
) -> Vec<Piece> {
    const RARE: f64 = 0.5;
    let kept: Vec<(String, f64)> = (pieces.iter().zip(expected))
        .filter(|((t, _), n)| **n >= RARE || characters.contains_key(t))
        .map(|((t, _), n)| (t.clone(), n.max(RARE)))
        .collect();
    let total = digamma(kept.iter().map(|(_, n)| n).sum());
    kept.into_iter()
        .map(|(t, n)| (t, digamma(n) - total))
        .collect()
}

/// Derivative of ln gamma, for positive numbers: recurrence up to 7, then its asymptotic series.
fn digamma(mut x: f64) -> f64 {
    let mut shift = 0.0;
    while x < 7.0 {
        shift -= 1.0 / x;
        x += 1.0;
    }
    let inverse = 1.0 / (x * x);
    let series = inverse
        * (1.0 / 12.0 - inverse * (1.0 / 120.0 - inverse * (1.0 / 252.0 - inverse / 240.0)));
    shift + x.ln() - 0.5 / x - series
}

/// Drops the pieces whose removal costs the least likelihood.
fn thinned(pieces: &[Piece], words: &[(&str, u64)], enough: usize) -> Result<Vec<Piece>, String> {
    let model = Model::new(pieces)?;
    let counts = model.best_counts(words);
    let total: f64 = counts.iter().sum();
    let mut losses = Vec::new();
    let mut kept = vec![false; pieces.len()];
    for (id, (text, _)) in pieces.iter().enumerate() {
        let parts = model.without(text, id);
        if parts.is_empty() {
            kept[id] = true; // nothing else covers it: a character
        } else if counts[id] > 0.0 {
            // its count is added to its parts; the total grows by one less than their number
            let count = counts[id];
            let grown = (total + count * (parts.len() as f64 - 1.0)).ln();
            let of_parts: f64 = parts
                .iter()
                .map(|p| (counts[*p] + count).ln() - grown)
                .sum();
            let loss = count / total * (count.ln() - total.ln() - of_parts);
            losses.push((loss, id));
        }
    }
    losses.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
    let always = kept.iter().filter(|k| **k).count();
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a share of at most a million"
    )]
    let share = (pieces.len() as f64 * KEPT) as usize;
    for (_, id) in losses
        .into_iter()
        .take(share.max(enough).saturating_sub(always))
    {
        kept[id] = true;
    }
    let left = pieces.iter().zip(kept).filter(|(_, k)| *k);
    Ok(left.map(|(p, _)| p.clone()).collect())
}

/// Pieces by their bytes, with log probabilities.
struct Model {
    trie: Trie,
    scores: Vec<f64>,
}

/// A piece in a word.
#[derive(Clone, Copy)]
struct Edge {
    start: usize,
    end: usize,
    id: usize,
}

impl Model {
    fn new(pieces: &[Piece]) -> Result<Model, String> {
        let entries = (0u32..).zip(pieces).map(|(id, (text, _))| Key {
            bytes: text.as_bytes(),
            value: id,
            score: 0.0,
        });
        Ok(Model {
            trie: Trie::new(entries)?,
            scores: pieces.iter().map(|(_, s)| *s).collect(),
        })
    }

    /// All pieces in `word`, by their start and then their end.
    fn edges(&self, word: &str, edges: &mut Vec<Edge>) {
        edges.clear();
        for (start, _) in word.char_indices() {
            let mut node = Trie::ROOT;
            for (end, byte) in (start + 1..).zip(&word.as_bytes()[start..]) {
                let Some((next, value, _)) = self.trie.step(node, *byte) else {
                    break;
                };
                node = next;
                if value != NONE {
                    edges.push(Edge {
                        start,
                        end,
                        id: value as usize,
                    });
                }
            }
        }
    }

    /// Sums over words in fixed parts; `count` adds one word to a vector with one number per piece.
    fn summed(
        &self,
        words: &[(&str, u64)],
        count: impl Fn(&mut Vec<f64>, &mut Scratch, &str, f64) + Sync,
    ) -> Vec<f64> {
        let part = words.len().div_ceil(PARTS).max(1);
        // a few parts at a time: each holds one number per piece
        let mut total = vec![0.0; self.scores.len()];
        for group in words.chunks(part * 8) {
            let sums: Vec<Vec<f64>> = group
                .par_chunks(part)
                .map(|words| {
                    let mut sums = vec![0.0; self.scores.len()];
                    let mut scratch = Scratch::default();
                    for (word, n) in words {
                        count(&mut sums, &mut scratch, word, *n as f64);
                    }
                    sums
                })
                .collect();
            for sums in sums {
                for (t, s) in total.iter_mut().zip(sums) {
                    *t += s;
                }
            }
        }
        total
    }

    /// Expected count of each piece over all segmentations.
    fn expected(&self, words: &[(&str, u64)]) -> Vec<f64> {
        self.summed(words, |sums, s, word, n| {
            self.edges(word, &mut s.edges);
            s.forward.clear();
            s.forward.resize(word.len() + 1, f64::NEG_INFINITY);
            s.backward.clone_from(&s.forward);
            s.forward[0] = 0.0;
            s.backward[word.len()] = 0.0;
            for e in &s.edges {
                let through = s.forward[e.start] + self.scores[e.id];
                s.forward[e.end] = log_sum(s.forward[e.end], through);
            }
            for e in s.edges.iter().rev() {
                let through = s.backward[e.end] + self.scores[e.id];
                s.backward[e.start] = log_sum(s.backward[e.start], through);
            }
            let all = s.forward[word.len()];
            for e in &s.edges {
                let through = s.forward[e.start] + self.scores[e.id] + s.backward[e.end] - all;
                sums[e.id] += n * through.exp();
            }
        })
    }

    /// Count of each piece in the words' best segmentations.
    fn best_counts(&self, words: &[(&str, u64)]) -> Vec<f64> {
        self.summed(words, |sums, s, word, n| {
            self.edges(word, &mut s.edges);
            for id in best_path(&s.edges, &self.scores, word.len()) {
                sums[id] += n;
            }
        })
    }

    /// The best segmentation of a piece into others, empty if there is none.
    fn without(&self, text: &str, id: usize) -> Vec<usize> {
        let mut edges = Vec::new();
        self.edges(text, &mut edges);
        edges.retain(|e| e.id != id);
        best_path(&edges, &self.scores, text.len())
    }
}

#[derive(Default)]
struct Scratch {
    edges: Vec<Edge>,
    forward: Vec<f64>,
    backward: Vec<f64>,
}

/// ln(exp(a) + exp(b)).
fn log_sum(a: f64, b: f64) -> f64 {
    let (low, high) = if a < b { (a, b) } else { (b, a) };
    if low == f64::NEG_INFINITY {
        return high;
    }
    high + (low - high).exp().ln_1p()
}

/// Pieces of the best path from 0 to `len`, last first; empty if there is no path.
fn best_path(edges: &[Edge], scores: &[f64], len: usize) -> Vec<usize> {
    let mut best: Vec<Option<(f64, Edge)>> = vec![None; len + 1];
    for e in edges {
        let so_far = match (e.start, best[e.start]) {
            (0, _) => 0.0,
            (_, Some((score, _))) => score,
            (_, None) => continue,
        };
        let score = so_far + scores[e.id];
        if best[e.end].is_none_or(|(s, _)| score > s) {
            best[e.end] = Some((score, *e));
        }
    }
    let (mut at, mut path) = (len, Vec::new());
    while at > 0 {
        let Some((_, e)) = best[at] else {
            return Vec::new();
        };
        path.push(e.id);
        at = e.start;
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digamma_has_its_known_values() {
        let euler = 0.577_215_664_901_532_9;
        for (x, wanted) in [(1.0, -euler), (2.0, 1.0 - euler), (0.5, -euler - 4f64.ln())] {
            assert!((digamma(x) - wanted).abs() < 1e-9, "{x}: {}", digamma(x));
        }
    }

    #[test]
    fn expected_counts_equal_a_sum_over_all_segmentations() {
        let pieces: Vec<Piece> = [
            ("a", 0.3),
            ("b", 0.2),
            ("ab", 0.25),
            ("ba", 0.15),
            ("aba", 0.1),
        ]
        .map(|(t, p): (&str, f64)| (t.to_string(), p.ln()))
        .to_vec();
        // aba: a b a = .3*.2*.3, ab a = .25*.3, a ba = .3*.15, aba = .1
        let ways = [0.018, 0.075, 0.045, 0.1];
        let all: f64 = ways.iter().sum();
        let wanted = [
            2.0 * ways[0] + ways[1] + ways[2],
            ways[0],
            ways[1],
            ways[2],
            ways[3],
        ];
        let found = Model::new(&pieces).unwrap().expected(&[("aba", 2)]);
        for (f, w) in found.iter().zip(wanted) {
            assert!((f - 2.0 * w / all).abs() < 1e-12, "{found:?}");
        }
    }
}
