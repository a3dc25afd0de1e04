//! Tokenizer training on streamed text: byte-level BPE (GPT-2's kind), WordPiece (BERT's) or Unigram (T5's).
//!
//! Texts are normalised and cut into words by the resulting tokenizer's own steps, words are counted in one
//! streaming pass, and the vocabulary is trained on the counts alone. Deterministic: counts are sorted first, ties
//! are broken by text or by smaller ids, and sums of floats are made in one order whatever the number of threads.

mod bpe;
mod settings;
mod unigram;
mod wordpiece;

use super::engine::Engine;
use super::load::{metaspace_json, wordpiece_json};
use super::wrong::wrong;
use super::{Tokenizer, byte_bpe};
use crate::error::Result;
use rustc_hash::FxHashMap;
pub use settings::{TrainKind, TrainSettings};
use std::path::Path;
use tokenizers::pipeline::{PipelineTokenizer, PreTokenizer, PreTokenizerScratch, normalize_all};

/// Name of a trained tokenizer in messages.
const TRAINED: &str = "<trained>";

/// Counts words of streamed texts, then trains.
pub struct Trainer {
    settings: TrainSettings,
    words: Words,
    counts: Counts,
    bytes: u64,
}

type Counts = FxHashMap<Box<[u8]>, u64>;

/// The word splitter.
enum Words {
    /// Byte-level BPE: our own splitter, and where words end.
    Bytes(Box<byte_bpe::Splitter>, Vec<u32>),
    /// The normaliser and word splitter of the resulting tokenizer.
    Library {
        pipeline: Box<PipelineTokenizer>,
        scratch: PreTokenizerScratch,
        spans: Vec<tokenizers::pipeline::Span>,
    },
}

impl Words {
    fn new(settings: &TrainSettings) -> Result<Words> {
        // with a placeholder vocabulary that is never used
        let json = match settings.kind {
            TrainKind::Bpe => {
                let splitter = byte_bpe::Splitter::new(byte_bpe::Split::Gpt2);
                return Ok(Words::Bytes(Box::new(splitter), Vec::new()));
            }
            TrainKind::WordPiece => {
                wordpiece_json(&[("[UNK]".into(), 0)], settings.lowercase, &["[UNK]"])
            }
            TrainKind::Unigram => metaspace_json(&[("<unk>".into(), 0.0)], settings.lowercase, &[]),
        };
        let pipeline = match Tokenizer::from_json(Path::new("<splitter>"), json)?.engine {
            Engine::Library(pipeline) => Some(pipeline),
            Engine::Pieces(pieces) => pieces.into_native(),
            _ => None,
        };
        match pipeline {
            Some(pipeline) => Ok(Words::Library {
                pipeline,
                scratch: PreTokenizerScratch::default(),
                spans: Vec::new(),
            }),
            None => Err(wrong(
                Path::new(TRAINED),
                &"the splitter is no tokenizer.json",
            )),
        }
    }

    fn count(&mut self, text: &str, counts: &mut Counts) -> Result<(), tokenizers::Error> {
        match self {
            Words::Bytes(splitter, ends) => {
                let (text, mut from) = (text.as_bytes(), 0);
                while from < text.len() {
                    splitter.cut(text, from, ends);
                    let mut start = from;
                    for end in ends.iter() {
                        let end = from + *end as usize;
                        count(counts, &text[start..end]);
                        start = end;
                    }
                    from = start;
                }
            }
            Words::Library {
                pipeline,
                scratch,
                spans,
            } => {
                spans.clear();
                let text = normalize_all(pipeline.get_normalizers(), text, 0)?;
                let splitter = pipeline.get_pre_tokenizer();
                splitter.pre_tokenize(&text, scratch, spans)?;
                for span in spans.iter() {
                    let word = &text.as_bytes()[span.start as usize..span.end as usize];
                    count(counts, word);
                }
            }
        }
        Ok(())
    }
}

fn count(counts: &mut Counts, word: &[u8]) {
    match counts.get_mut(word) {
        Some(count) => *count += 1,
        None => {
            counts.insert(word.into(), 1);
        }
    }
}

impl Trainer {
    /// An empty trainer.
    ///
    /// # Errors
    /// `Tokenizer` if a setting is out of range.
    pub fn new(settings: TrainSettings) -> Result<Trainer> {
        let mut problems = Vec::new();
        settings.check(&mut |key, found, wanted| {
            problems.push(format!("{key}: found {found}, wanted {wanted}"));
        });
        if !problems.is_empty() {
            return Err(wrong(Path::new(TRAINED), &problems.join("; ")));
        }
        Ok(Trainer {
            words: Words::new(&settings)?,
            settings,
            counts: Counts::default(),
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
        self.words
            .count(text, &mut self.counts)
            .map_err(|e| wrong(Path::new(TRAINED), &e))?;
        Ok(true)
    }

    /// Trains the vocabulary.
    ///
    /// # Errors
    /// `Tokenizer` if there was no text, or `vocab` has no room for the text's characters.
    pub fn finish(self) -> Result<Tokenizer> {
        let mut words: Vec<(Box<[u8]>, u64)> = self.counts.into_iter().collect();
        words.sort_unstable();
        let json = if words.is_empty() {
            Err("found no text to train on, wanted some".into())
        } else {
            match self.settings.kind {
                TrainKind::Bpe => bpe::train(&self.settings, &words),
                TrainKind::WordPiece => wordpiece::train(&self.settings, &text_of(words)),
                TrainKind::Unigram => unigram::train(&self.settings, &text_of(words)),
            }
        };
        let path = Path::new(TRAINED);
        Tokenizer::from_json(path, json.map_err(|why: String| wrong(path, &why))?)
    }
}

/// Words that are text: white space alone trains nothing, and the splitters cut at characters.
fn text_of(words: Vec<(Box<[u8]>, u64)>) -> Vec<(String, u64)> {
    let text = words
        .into_iter()
        .map(|(w, n)| (String::from_utf8(w.into_vec()), n));
    text.filter_map(|(w, n)| Some((w.ok()?, n))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXTS: [&str; 3] = [
        "the cat sat on the mat, the cat that sat",
        "a cat, a hat; caf\u{e9} na\u{ef}ve The Cat",
        "\u{4f60}\u{597d} \u{1f600} the  end\n\nof the \u{fb01}rst",
    ];

    fn trained(settings: &TrainSettings) -> Tokenizer {
        let mut t = Trainer::new(settings.clone()).unwrap();
        for text in TEXTS {
            assert!(t.feed(text).unwrap());
        }
        t.finish().unwrap()
    }

    fn settings(kind: TrainKind, vocab: usize) -> TrainSettings {
        TrainSettings {
            kind,
            vocab,
            special: vec!["<extra_id_0>".into(), "<extra_id_1>".into()],
            ..TrainSettings::default()
        }
    }

    #[test]
    fn merges_start_with_the_most_frequent_pair() {
        // "at": cat cat that sat sat mat, cat hat, Cat
        let t = trained(&settings(TrainKind::Bpe, 260));
        let json: serde_json::Value = serde_json::from_str(t.json()).unwrap();
        assert_eq!(json["model"]["merges"], serde_json::json!([["a", "t"]]));
        assert_eq!((t.end_of_document(), t.vocab()), (Some(0), 260));
        assert_eq!(t.special().sentinels, [1, 2]);
        let t = trained(&settings(TrainKind::WordPiece, 40));
        assert!(t.id_of("##at").is_some(), "{}", t.json());
    }

    #[test]
    fn training_twice_or_with_other_threads_gives_the_same_bytes() {
        for kind in [TrainKind::Bpe, TrainKind::WordPiece, TrainKind::Unigram] {
            let s = settings(kind, if kind == TrainKind::Bpe { 300 } else { 48 });
            let first = trained(&s).json().to_string();
            for threads in [1, 3] {
                let pool = rayon::ThreadPoolBuilder::new()
                    .num_threads(threads)
                    .build()
                    .unwrap();
                assert_eq!(
                    pool.install(|| trained(&s).json().to_string()),
                    first,
                    "{kind:?}"
                );
            }
        }
    }

    #[test]
    fn the_vocabulary_has_the_size_asked_for_and_the_usual_tokens() {
        let t = trained(&settings(TrainKind::Unigram, 38));
        assert_eq!(t.vocab(), 38);
        let s = t.special();
        assert!(s.pad.is_some() && s.eos.is_some() && s.unk == Some(0) && s.sentinels.len() == 2);
        assert_eq!(t.end_of_document(), s.eos);
        let t = trained(&settings(TrainKind::WordPiece, 40));
        assert_eq!(t.vocab(), 40);
        let s = t.special();
        assert_eq!(
            (s.pad, s.unk, s.cls, s.sep, s.mask),
            (Some(0), Some(1), Some(2), Some(3), Some(4))
        );
    }

    #[test]
    fn any_text_decodes_to_itself_and_special_looking_text_stays_text() {
        let t = trained(&settings(TrainKind::Bpe, 280));
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
        for kind in [TrainKind::WordPiece, TrainKind::Unigram] {
            let t = trained(&settings(kind, 44));
            let ids = t.encode("the </s> [SEP] <pad> <extra_id_0> cat").unwrap();
            let s = t.special();
            let special = [s.pad, s.eos, s.cls, s.sep, s.mask]
                .into_iter()
                .flatten()
                .chain(s.sentinels.clone());
            for id in special {
                assert!(!ids.contains(&id), "{kind:?}: {ids:?} has {id}");
            }
            assert_eq!(
                t.decode(&t.encode("the cat sat").unwrap()).unwrap(),
                "the cat sat"
            );
        }
    }

    #[test]
    fn settings_out_of_range_and_no_text_are_refused() {
        let bad = TrainSettings {
            vocab: 10,
            min_frequency: 0,
            lowercase: true,
            special: vec!["<|endoftext|>".into()],
            ..TrainSettings::default()
        };
        let Err(e) = Trainer::new(bad) else {
            panic!("accepted")
        };
        let why = e.to_string();
        assert!(
            ["vocab", "min_frequency", "lowercase", "special"]
                .iter()
                .all(|k| why.contains(k)),
            "{why}"
        );
        for kind in [TrainKind::Bpe, TrainKind::WordPiece, TrainKind::Unigram] {
            let s = settings(kind, 300);
            assert!(Trainer::new(s.clone()).unwrap().finish().is_err());
            let mut blank = Trainer::new(s).unwrap();
            blank.feed("").unwrap();
            assert!(blank.finish().is_err());
        }
    }
}
