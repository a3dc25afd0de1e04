//! Tokenizers: text to token ids with any of the usual vocabularies, loaded (`load/`) or trained (`train/`).
//!
//! By default (see `SpecialTokens`), encoding never maps text that looks like a special token to that token's id
//! (`<|endoftext|>` inside a document is text), and adds nothing around a document; the end-of-document id is appended by
//! the dataset builder. Megatron-LM's behaviour by kind is [`Tokenizer::megatrons_special_tokens`].
//!
//! The end-of-document token, as in Megatron-LM (core tokenizers, 2026):
//!
//! | kind | end of document | Megatron's class and rule |
//! |---|---|---|
//! | `tokenizer_json` | `eos_token` of the `tokenizer_config.json` beside it, else its `sep_token`; without that file the first known name the vocabulary has | HuggingFaceTokenizer: eos, else sep |
//! | `gpt2` | `<|endoftext|>` | GPT2BPETokenizer: eos |
//! | `wordpiece` | `[SEP]` | BertWordPiece*: no eos, so sep |
//! | `sentencepiece` | the model's eos piece, else `<eod>`, `<EOD>` | SentencePiece*, Llama2: eos; older: `<EOD>` |
//! | `tekken` | `</s>` | - |
//! | `tiktoken` | `<|endoftext|>` among the special tokens, else another known name | TikTokenizer reads a format of its own |
//! | `null` | the last id, or the one named in `null:VOCAB:END` | NullTokenizer: vocabulary - 1 |
//!
//! `LoadOptions::eod` overrides all of them.

mod alphabet;
mod byte_bpe;
mod engine;
mod format;
#[cfg(test)]
mod kinds;
mod load;
mod null;
mod pieces;
mod sentencepiece;
mod special;
mod special_tokens;
#[cfg(test)]
mod torture;
mod train;
mod unicode9;
mod vocabulary;
mod wrong;

pub use format::{Kind, LoadOptions, Split};
pub use special::Special;
pub use special_tokens::SpecialTokens;
pub use train::{TrainKind, TrainSettings, Trainer};

use crate::error::{Error, Result};
use byte_bpe::ByteEncoder;
use engine::Engine;
use null::Null;
use pieces::Pieces;
use sentencepiece::SentencePiece;
use special_tokens::{Added, Around, Part, Search, options};
use std::path::{Path, PathBuf};
use tokenizers::pipeline::{PipelineToken, PipelineTokenizer};
use vocabulary::Vocabulary;
use wrong::wrong;

/// The version of the encoder, part of every dataset's lineage: ids may change with its Unicode tables.
pub(crate) const ENCODER: &str = "tokenizers 1.0.0-rc.3 (Unicode 17)";

/// A loaded tokenizer. Shared by threads.
pub struct Tokenizer {
    path: PathBuf,
    kind: Kind,
    json: String,
    engine: Engine,
    vocabulary: Vocabulary,
    special: Special,
    end_of_document: Option<u32>,
    /// Tokens added around a text on request, or why they are unknown.
    around: Result<Around, String>,
    /// Special tokens by name.
    named: Vec<(String, Added)>,
}

impl std::fmt::Debug for Tokenizer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tokenizer")
            .field("path", &self.path)
            .field("kind", &self.kind)
            .field("vocab", &self.vocab())
            .finish_non_exhaustive()
    }
}

impl Tokenizer {
    /// Path that it was loaded from.
    pub fn path(&self) -> &Path {
        &self.path
    }
    /// Kind of the file that it was loaded from.
    pub fn kind(&self) -> Kind {
        self.kind
    }
    /// The tokenizer as one text that [`Tokenizer::from_json`] and [`Tokenizer::load`] read back: a
    /// `tokenizer.json` as Hugging Face reads it where that format can express everything, else the original files
    /// and options packed in JSON.
    pub fn json(&self) -> &str {
        &self.json
    }
    /// Ids are below this.
    pub fn vocab(&self) -> usize {
        self.vocabulary.size()
    }
    /// The end-of-document id, if the vocabulary has a known one.
    pub fn end_of_document(&self) -> Option<u32> {
        self.end_of_document
    }
    /// Ids of the tokens with a role: padding, masking, sentinels.
    pub fn special(&self) -> &Special {
        &self.special
    }
    /// Id of a token by its text as the vocabulary writes it (byte-level vocabularies: in GPT-2's printable alphabet).
    pub fn id_of(&self, token: &str) -> Option<u32> {
        match &self.engine {
            Engine::Null(null) => null.id_of(token),
            _ => self.vocabulary.id_of(token),
        }
    }
    /// Text of an id as the vocabulary writes it; None for unused ids and for the null tokenizer.
    pub fn token(&self, id: u32) -> Option<&str> {
        self.vocabulary.token(id)
    }

    /// XXH3-128 of [`Tokenizer::json`], in hex: the tokenizer's identity in lineage and checkpoints. It covers the
    /// files' content and every option, and does not depend on their location.
    pub fn identity(&self) -> String {
        format!("{:032x}", xxhash_rust::xxh3::xxh3_128(self.json.as_bytes()))
    }

    /// Treatment of special tokens by Megatron-LM's `preprocess_data.py` with a tokenizer of this kind (core tokenizers,
    /// d98e8a6): its Hugging Face classes add what the post-processor adds and find names in the text, tiktoken's finds
    /// names, the others do neither.
    pub fn megatrons_special_tokens(&self) -> SpecialTokens {
        let (add, parse) = match self.kind {
            Kind::TokenizerJson | Kind::Gpt2 | Kind::WordPiece => (true, true),
            Kind::Tiktoken => (false, true),
            Kind::SentencePiece | Kind::Tekken | Kind::Null => (false, false),
        };
        SpecialTokens { add, parse }
    }

    /// Ids that the file's post-processor adds before and after a text on request.
    ///
    /// # Errors
    /// `Tokenizer` if the file has a post-processor of an unknown form.
    pub fn around(&self) -> Result<(&[u32], &[u32])> {
        match &self.around {
            Ok(around) => Ok((&around.before, &around.after)),
            Err(why) => Err(self.wrong(why)),
        }
    }

    /// A reusable encoder for one thread, with the default treatment of special tokens.
    pub fn encoder(&self) -> Encoder<'_> {
        self.encoder_of(None, None)
    }

    /// Like [`Tokenizer::encoder`], with the given treatment of special tokens.
    ///
    /// # Errors
    /// `Tokenizer` if the file has a post-processor of an unknown form and `special` uses it.
    pub fn encoder_with(&self, special: SpecialTokens) -> Result<Encoder<'_>> {
        let around = match (special.add, &self.around) {
            (false, _) => None,
            (true, Ok(around)) => Some(around).filter(|a| !a.is_empty()),
            (true, Err(why)) => return Err(self.wrong(why)),
        };
        let names = match special.parse {
            true => Some(Search::of(&self.named).map_err(|e| self.wrong(&e))?),
            false => None,
        };
        Ok(self.encoder_of(around, names))
    }

    fn encoder_of<'a>(&'a self, around: Option<&'a Around>, names: Option<Search>) -> Encoder<'a> {
        let state = match &self.engine {
            Engine::Library(pipeline) => State::Library {
                pipeline,
                tokens: Vec::new(),
            },
            Engine::Pieces(pieces) => State::Pieces(pieces),
            Engine::ByteBpe { bpe, .. } => State::ByteBpe(Box::new(bpe.encoder())),
            Engine::SentencePiece(model) => State::SentencePiece(model, Box::default()),
            Engine::Null(null) => State::Null(null),
        };
        Encoder {
            tokenizer: self,
            state,
            around,
            names,
            ids: Vec::new(),
        }
    }

    /// Ids of one text.
    ///
    /// # Errors
    /// `Tokenizer`.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>> {
        let mut ids = Vec::new();
        self.encoder().encode_into(text, &mut ids)?;
        Ok(ids)
    }

    /// Text of ids; bytes that are not UTF-8 become U+FFFD.
    ///
    /// # Errors
    /// `Tokenizer`.
    pub fn decode(&self, ids: &[u32]) -> Result<String> {
        if self.kind == Kind::Tekken {
            return Ok(self.decode_bytes(ids));
        }
        match &self.engine {
            Engine::Library(library) => library.decode(ids, false).map_err(|e| self.wrong(&e)),
            Engine::Pieces(pieces) => {
                let library = pieces.library();
                library.decode(ids, false).map_err(|e| self.wrong(&e))
            }
            Engine::ByteBpe { library, .. } => {
                let library = library.get().map_err(|e| self.wrong(e))?;
                library.decode(ids, false).map_err(|e| self.wrong(&e))
            }
            Engine::SentencePiece(model) => model.decode(ids).map_err(|e| self.wrong(&e)),
            Engine::Null(null) => Ok(null.decode(ids)),
        }
    }

    /// Decodes a byte-level vocabulary whose special tokens have the lowest ids, which the library takes for other tokens.
    fn decode_bytes(&self, ids: &[u32]) -> String {
        let alphabet = alphabet::byte_alphabet();
        let bytes_of: rustc_hash::FxHashMap<char, u8> = alphabet.into_iter().zip(0..=255).collect();
        let mut bytes = Vec::new();
        for token in ids.iter().filter_map(|id| Some((*id, self.token(*id)?))) {
            match self.named.iter().any(|(_, special)| special.id == token.0) {
                true => bytes.extend_from_slice(token.1.as_bytes()),
                false => bytes.extend(token.1.chars().filter_map(|c| bytes_of.get(&c))),
            }
        }
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Like [`Tokenizer::decode`], without special tokens.
    ///
    /// # Errors
    /// `Tokenizer`.
    pub fn decode_text(&self, ids: &[u32]) -> Result<String> {
        let is_text = |id: &&u32| !self.named.iter().any(|(_, special)| special.id == **id);
        let ids: Vec<u32> = ids.iter().filter(is_text).copied().collect();
        self.decode(&ids)
    }

    /// Whether it came from a rank file, in which special tokens have only names.
    fn has_ranks(&self) -> bool {
        matches!(self.kind, Kind::Tiktoken | Kind::Tekken)
    }

    fn wrong(&self, why: &dyn std::fmt::Display) -> Error {
        wrong(&self.path, why)
    }
}

/// Encodes many texts with one set of buffers.
pub struct Encoder<'a> {
    tokenizer: &'a Tokenizer,
    state: State<'a>,
    around: Option<&'a Around>,
    names: Option<Search>,
    ids: Vec<u32>,
}

/// Buffers of one thread, by engine.
enum State<'a> {
    Library {
        pipeline: &'a PipelineTokenizer,
        tokens: Vec<PipelineToken>,
    },
    Pieces(&'a Pieces),
    ByteBpe(Box<ByteEncoder<'a>>),
    SentencePiece(&'a SentencePiece, Box<sentencepiece::Scratch>),
    Null(&'a Null),
}

impl Encoder<'_> {
    /// Ids of `text`, valid until the next call.
    ///
    /// # Errors
    /// `Tokenizer`.
    pub fn encode(&mut self, text: &str) -> Result<&[u32]> {
        let mut ids = std::mem::take(&mut self.ids);
        ids.clear();
        let done = self.encode_into(text, &mut ids);
        self.ids = ids;
        done.map(|()| self.ids.as_slice())
    }

    /// Appends the ids of `text` to `out`.
    ///
    /// # Errors
    /// `Tokenizer`; `out` then holds an unspecified number of ids more.
    pub fn encode_into(&mut self, text: &str, out: &mut Vec<u32>) -> Result<()> {
        if let Some(around) = self.around {
            out.extend_from_slice(&around.before);
        }
        match self.names.take() {
            Some(names) => {
                let done = self.parse_into(text, &names, out);
                self.names = Some(names);
                done?;
            }
            None => self.plain_into(text, out)?,
        }
        if let Some(around) = self.around {
            out.extend_from_slice(&around.after);
        }
        Ok(())
    }

    /// The ids of a text in which names of special tokens become their ids.
    fn parse_into(&mut self, text: &str, names: &Search, out: &mut Vec<u32>) -> Result<()> {
        let tokenizer = self.tokenizer;
        match &tokenizer.engine {
            // these engines also handle the file's non-special and normalised added tokens
            Engine::Library(pipeline) if !tokenizer.has_ranks() => {
                let mut tokens = Vec::new();
                pipeline
                    .encode_into(text, &options(true), &mut tokens)
                    .map_err(|e| tokenizer.wrong(&e))?;
                out.extend_from_slice(PipelineToken::cast_slice(&tokens));
                return Ok(());
            }
            Engine::Pieces(pieces) if !tokenizer.has_ranks() => {
                let done = pieces.encode_into(text, true, out);
                return done.map_err(|e| tokenizer.wrong(&e));
            }
            Engine::Library(_)
            | Engine::Pieces(_)
            | Engine::ByteBpe { .. }
            | Engine::SentencePiece(_)
            | Engine::Null(_) => {}
        }
        for part in names.cut(text, true) {
            match part {
                Part::Token(id) => out.push(id),
                Part::Text(text) => self.plain_into(text, out)?,
            }
        }
        Ok(())
    }

    /// The ids of a text in which everything is text.
    fn plain_into(&mut self, text: &str, out: &mut Vec<u32>) -> Result<()> {
        match &mut self.state {
            State::Library { pipeline, tokens } => {
                tokens.clear();
                pipeline
                    .encode_into(text, &options(false), tokens)
                    .map_err(|e| self.tokenizer.wrong(&e))?;
                out.extend_from_slice(PipelineToken::cast_slice(tokens));
                Ok(())
            }
            State::Pieces(pieces) => {
                let done = pieces.encode_into(text, false, out);
                done.map_err(|e| self.tokenizer.wrong(&e))
            }
            State::ByteBpe(encoder) => {
                if u32::try_from(text.len()).is_err() {
                    let why = format!("a text of {} bytes, wanted less than 4 GiB", text.len());
                    return Err(self.tokenizer.wrong(&why));
                }
                encoder.encode(text, out);
                Ok(())
            }
            State::SentencePiece(model, scratch) => model
                .encode_into(text, scratch, out)
                .map_err(|why| self.tokenizer.wrong(&why)),
            State::Null(null) => null
                .encode_into(text, out)
                .map_err(|why| self.tokenizer.wrong(&why)),
        }
    }
}
