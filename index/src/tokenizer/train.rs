//! Trains a byte-level BPE (GPT-2's kind) on streamed text.
//!
//! Texts are split by GPT-2's pattern, words are counted as they stream by, and the merges are found on the counts alone.
//! Deterministic: counts are sorted before training, ties in pair counts go to the smaller ids.
//! Paper: Sennrich et al. 2016, arXiv:1508.07909; byte alphabet and pattern: Radford et al. 2019 (GPT-2).

use super::Tokenizer;
use super::byte_bpe::{Split, Splitter};
use super::load::{byte_alphabet, tokenizer_json};
use crate::error::{Error, Result};
use ahash::AHashMap;
use compact_str::CompactString;
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// The end-of-document token; id 0.
const END: &str = "<|endoftext|>";

/// Settings of a byte-level BPE.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TrainBpe {
    /// Entries, special token and the 256 bytes included. Default: 8192, for small models.
    pub vocab: usize,
    /// Fewest occurrences of a pair to be merged. Default: 2, as Hugging Face's trainer.
    pub min_frequency: u64,
    /// Bytes of text to learn from; the rest is not counted. 0: all.
    pub max_bytes: u64,
}

impl Default for TrainBpe {
    fn default() -> Self {
        TrainBpe {
            vocab: 8192,
            min_frequency: 2,
            max_bytes: 0,
        }
    }
}

impl TrainBpe {
    /// Reports every setting out of range as (key, found, wanted).
    pub fn check(&self, problem: &mut dyn FnMut(&str, String, &str)) {
        if !(257..=1_000_000).contains(&self.vocab) {
            problem(
                "vocab",
                self.vocab.to_string(),
                "257 (bytes and end token) to 1000000",
            );
        }
        if self.min_frequency == 0 {
            problem("min_frequency", "0".into(), "1 or more");
        }
    }
}

/// Counts words of streamed texts, then trains.
pub struct BpeTrainer {
    settings: TrainBpe,
    splitter: Splitter,
    counts: FxHashMap<Box<[u8]>, u64>,
    ends: Vec<u32>,
    bytes: u64,
}

impl BpeTrainer {
    /// An empty trainer.
    ///
    /// # Errors
    /// None today.
    pub fn new(settings: TrainBpe) -> Result<BpeTrainer> {
        Ok(BpeTrainer {
            settings,
            splitter: Splitter::new(Split::Gpt2),
            counts: FxHashMap::default(),
            ends: Vec::new(),
            bytes: 0,
        })
    }

    /// Counts the words of one text; returns false once `max_bytes` are reached.
    ///
    /// # Errors
    /// `Tokenizer`.
    pub fn feed(&mut self, text: &str) -> Result<bool> {
        if self.settings.max_bytes > 0 && self.bytes >= self.settings.max_bytes {
            return Ok(false);
        }
        self.bytes += text.len() as u64;
        let text = text.as_bytes();
        let mut from = 0;
        while from < text.len() {
            self.splitter.cut(text, from, &mut self.ends);
            let mut start = from;
            for end in &self.ends {
                let end = from + *end as usize;
                count(&mut self.counts, &text[start..end]);
                start = end;
            }
            from = start;
        }
        Ok(true)
    }

    /// Finds the merges.
    ///
    /// # Errors
    /// `Tokenizer` if there was no text.
    pub fn finish(self) -> Result<Tokenizer> {
        let wrong = |why: String| Error::Tokenizer {
            path: "<trained>".into(),
            why,
        };
        if self.counts.is_empty() {
            return Err(wrong("no text to train on".into()));
        }
        let alphabet = byte_alphabet();
        // The trainer numbers words in this map's order and its hasher is seeded per process: the order reaches
        // only sums of counts, which do not depend on it (shown by a test that trains twice).
        let mut words: AHashMap<CompactString, u64> = AHashMap::with_capacity(self.counts.len());
        for (word, count) in &self.counts {
            let chars = word.iter().map(|b| alphabet[usize::from(*b)]).collect();
            words.insert(chars, *count);
        }
        let trainer = tokenizers::trainers::BpeTrainer::builder()
            .vocab_size(self.settings.vocab)
            .min_frequency(self.settings.min_frequency)
            .show_progress(false)
            .special_tokens(vec![
                tokenizers::vocab::bucket_added_vocabulary::AddedToken::from(END, true),
            ])
            .initial_alphabet(alphabet.iter().copied().collect())
            .build();
        let (vocab, merges, _) = trainer.do_train(&words).map_err(|e| wrong(e.to_string()))?;
        let mut entries: Vec<(String, u32)> = vocab.into_iter().collect();
        entries.sort_by_key(|(_, id)| *id);
        Tokenizer::from_json(
            Path::new("<trained>"),
            tokenizer_json(&entries, &merges, &[END]),
        )
    }
}

fn count(counts: &mut FxHashMap<Box<[u8]>, u64>, word: &[u8]) {
    match counts.get_mut(word) {
        Some(count) => *count += 1,
        None => {
            counts.insert(word.into(), 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trained(texts: &[&str], vocab: usize) -> Tokenizer {
        let mut t = BpeTrainer::new(TrainBpe {
            vocab,
            ..TrainBpe::default()
        })
        .unwrap();
        for text in texts {
            assert!(t.feed(text).unwrap());
        }
        t.finish().unwrap()
    }

    const TEXTS: [&str; 3] = [
        "the cat sat on the mat, the cat that sat",
        "a cat, a hat; caf\u{e9} na\u{ef}ve",
        "\u{4f60}\u{597d} \u{1f600} the",
    ];

    #[test]
    fn merges_start_with_the_most_frequent_pair() {
        // " t" (the, the, the, that: 5 with "the" of text 3), "at" (cat cat that sat sat mat ...): at = 8
        let t = trained(&TEXTS, 258);
        let json: serde_json::Value = serde_json::from_str(t.json()).unwrap();
        assert_eq!(json["model"]["merges"], serde_json::json!([["a", "t"]]));
        assert_eq!(t.end_of_document(), Some(0));
        assert_eq!(t.vocab(), 258);
    }

    #[test]
    fn training_twice_gives_the_same_file() {
        assert_eq!(trained(&TEXTS, 300).json(), trained(&TEXTS, 300).json());
    }

    #[test]
    fn any_text_decodes_to_itself_and_special_looking_text_stays_text() {
        let t = trained(&TEXTS, 280);
        for text in [
            "",
            "the <|endoftext|> cat",
            "\u{0}\u{1f469}\u{200d}\u{1f4bb}\r\n\t x",
            "\u{ac00}",
        ] {
            let ids = t.encode(text).unwrap();
            assert!(!ids.contains(&0), "{text:?} became the special id");
            assert_eq!(t.decode(&ids).unwrap(), text);
        }
    }
}
