//! Removal of documents that share an n-gram with an evaluation set.
//!
//! Paper: Brown et al. 2020, arXiv:2005.14165, app. C (13-grams). Words are `\w+` of the lower-cased
//! text. Every n-gram of every evaluation text goes into a set of 64-bit hashes; a document with one
//! of them drops with the n-gram as value. We differ: whole documents drop where GPT-3 cut 200
//! characters around the hit; two different n-grams collide with probability (pairs) / 2^64.

use std::path::{Path, PathBuf};

use rustc_hash::FxHashSet;
use serde_json::Value;
use xxhash_rust::xxh3::xxh3_64;

use crate::config::{DecontaminateConfig, Format, Input};
use crate::error::{At, Error, Result};
use crate::read::{Batch, Reader};
use crate::unicode::{self, DIGIT, LETTER, MARK};
use crate::verdict::{KEEP, Verdict, broken};

/// N-grams of all evaluation texts.
pub struct Decontaminator {
    ngram: usize,
    hashes: FxHashSet<u64>,
    /// Number of evaluation texts indexed.
    texts: u64,
}

const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;

impl Decontaminator {
    /// Reads and indexes the evaluation files.
    pub fn new(config: &DecontaminateConfig) -> Result<Decontaminator> {
        let mut made = Decontaminator {
            ngram: config.ngram,
            hashes: FxHashSet::default(),
            texts: 0,
        };
        for file in &config.files {
            made.add_file(Path::new(file), &config.fields)?;
        }
        Ok(made)
    }

    /// Number of distinct n-grams.
    pub fn ngrams(&self) -> usize {
        self.hashes.len()
    }

    /// Number of evaluation texts.
    pub fn texts(&self) -> u64 {
        self.texts
    }

    fn add_file(&mut self, path: &Path, fields: &[String]) -> Result<()> {
        let input = |why: String| Error::Input {
            path: PathBuf::from(path),
            why,
        };
        let mut reader = Reader::open(path, &Input::of(Format::Jsonl), None, 64 << 20).at(path)?;
        let mut batch = Batch::default();
        while reader.fill(&mut batch) {
            for raw in &batch.records {
                if let Some(why) = &raw.bad {
                    return Err(input(format!("record {}: {why}", raw.number)));
                }
                let bytes = batch.bytes(raw);
                match serde_json::from_slice::<Value>(bytes) {
                    Ok(Value::Object(map)) => {
                        for (key, value) in &map {
                            if fields.is_empty() || fields.contains(key) {
                                self.add_value(value);
                            }
                        }
                    }
                    Ok(other) if fields.is_empty() => self.add_value(&other),
                    // Not JSON: a line of plain text.
                    _ => match std::str::from_utf8(bytes) {
                        Ok(text) => self.add_text(text),
                        Err(_) => {
                            return Err(input(format!("record {} is not UTF-8", raw.number)));
                        }
                    },
                }
            }
        }
        Ok(())
    }

    fn add_value(&mut self, value: &Value) {
        match value {
            Value::String(text) => self.add_text(text),
            Value::Array(list) => list.iter().for_each(|v| self.add_value(v)),
            Value::Object(map) => map.values().for_each(|v| self.add_value(v)),
            _ => {}
        }
    }

    fn add_text(&mut self, text: &str) {
        self.texts += 1;
        let mut window = Window::new(self.ngram);
        let hashes = &mut self.hashes;
        each_word(text, |_, _, word| {
            if let Some((hash, _)) = window.push(word, 0) {
                hashes.insert(hash);
            }
            true
        });
    }

    /// Judges a document.
    pub fn judge(&self, text: &str) -> Verdict {
        let mut window = Window::new(self.ngram);
        let mut hit = None;
        each_word(text, |start, end, word| {
            if let Some((hash, first)) = window.push(word, start)
                && self.hashes.contains(&hash)
            {
                hit = Some((first, end));
                return false;
            }
            true
        });
        match hit {
            Some((from, to)) => {
                let limit = format!("no shared {}-gram", self.ngram);
                let gram: Vec<&str> = text[from..to].split_whitespace().collect();
                Verdict::Break(broken("decontaminate.ngram", gram.join(" "), limit))
            }
            None => KEEP,
        }
    }
}

/// The last n word hashes with a polynomial over them, updated in O(1).
struct Window {
    ring: Vec<(u64, usize)>,
    next: usize,
    seen: usize,
    hash: u64,
    /// MULTIPLIER^n: weight of the word that falls out.
    out: u64,
}

impl Window {
    fn new(n: usize) -> Window {
        let out = (0..n).fold(1u64, |p, _| p.wrapping_mul(MULTIPLIER));
        Window {
            ring: vec![(0, 0); n],
            next: 0,
            seen: 0,
            hash: 0,
            out,
        }
    }

    /// Adds a word; once full, the n-gram's hash and where it starts.
    fn push(&mut self, word: u64, start: usize) -> Option<(u64, usize)> {
        let (old, _) = self.ring[self.next];
        self.ring[self.next] = (word, start);
        self.next = (self.next + 1) % self.ring.len();
        self.hash = self
            .hash
            .wrapping_mul(MULTIPLIER)
            .wrapping_add(word)
            .wrapping_sub(old.wrapping_mul(self.out));
        self.seen += 1;
        (self.seen >= self.ring.len()).then(|| (self.hash, self.ring[self.next].1))
    }
}

/// Calls `each(start, end, hash)` for the `\w+` words, lower-cased, until it returns false.
fn each_word(text: &str, mut each: impl FnMut(usize, usize, u64) -> bool) {
    let table = unicode::table();
    let word = |c: char| table[c as usize] & (LETTER | DIGIT | MARK) != 0 || c == '_';
    let mut lower = String::new();
    let mut start = None;
    for (i, c) in text.char_indices().chain([(text.len(), ' ')]) {
        if word(c) {
            start.get_or_insert(i);
            if c.is_ascii() {
                lower.push(c.to_ascii_lowercase());
            } else {
                lower.extend(c.to_lowercase());
            }
        } else if let Some(from) = start.take() {
            if !each(from, i, xxh3_64(lower.as_bytes())) {
                return;
            }
            lower.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn a_shared_13_gram_drops_whatever_its_punctuation() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        let question = "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi";
        writeln!(file, "{}", serde_json::json!({"q": question, "n": 3})).unwrap();
        let config = DecontaminateConfig {
            files: vec![file.path().to_string_lossy().into_owned()],
            ..DecontaminateConfig::default()
        };
        let set = Decontaminator::new(&config).unwrap();
        assert_eq!(set.ngrams(), 2);
        let dirty =
            "Intro. BETA, gamma -- delta epsilon zeta eta theta iota kappa lambda mu nu xi!";
        let Verdict::Break(reason) = set.judge(dirty) else {
            panic!("kept")
        };
        assert_eq!(reason.rule, "decontaminate.ngram");
        let clean = "beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu other xi";
        assert_eq!(set.judge(clean), KEEP);
    }
}
