//! Text to token ids: a `tokenizer.json` loaded, or a byte-level BPE trained here.
//!
//! Encoding never maps text that looks like a special token to that token's id (`<|endoftext|>` inside a document is
//! text), and adds nothing around a document; the end-of-document id is appended by the dataset builder.

mod byte_bpe;
mod null;
mod train;

pub use train::{BpeTrainer, TrainBpe};

use byte_bpe::{ByteBpe, ByteEncoder};
use null::Null;

use crate::error::{At, Error, Result};
use std::path::{Path, PathBuf};
use tokenizers::pipeline::{EncodeOptions, PipelineToken, PipelineTokenizer};

/// Special tokens that mark the end of a document, tried in this order. GPT-2 / NeoX, LLaMA 3, LLaMA, BERT, others.
const END_OF_DOCUMENT: [&str; 5] = ["<|endoftext|>", "<|end_of_text|>", "</s>", "[SEP]", "<eos>"];

/// The version of the encoder, part of every dataset's lineage: ids may change with its Unicode tables.
pub(crate) const ENCODER: &str = "tokenizers 1.0.0-rc.3 (Unicode 17)";

/// What turns text into ids. Every engine gives the ids of its reference program.
enum Engine {
    /// Hugging Face's own library, for everything a `tokenizer.json` can describe.
    Library(Box<PipelineTokenizer>),
    /// Our own encoder for the files that it does exactly; the library decodes.
    ByteBpe {
        bpe: Box<ByteBpe>,
        library: Box<PipelineTokenizer>,
    },
    /// Text that is numbers already.
    Null(Null),
}

/// A loaded tokenizer. Shared by threads.
pub struct Tokenizer {
    path: PathBuf,
    json: String,
    engine: Engine,
    vocab: usize,
    end_of_document: Option<u32>,
}

impl Tokenizer {
    /// Loads a Hugging Face `tokenizer.json` of any age (older forms are upgraded in memory), or `null:VOCAB`, which
    /// names no file: texts are ids already, written in decimal and separated by blanks.
    ///
    /// # Errors
    /// `Io`; `Tokenizer` with the library's reason.
    pub fn load(path: &Path) -> Result<Tokenizer> {
        if let Some(null) = Null::parse(path)? {
            return Ok(Tokenizer {
                path: path.to_path_buf(),
                json: path.display().to_string(),
                vocab: null.vocab() as usize,
                end_of_document: Some(null.end_of_document()),
                engine: Engine::Null(null),
            });
        }
        let json = std::fs::read_to_string(path).at(path)?;
        Tokenizer::from_json(path, json)
    }

    /// Same, from memory; `path` only names it in messages.
    ///
    /// # Errors
    /// `Tokenizer`.
    pub fn from_json(path: &Path, json: String) -> Result<Tokenizer> {
        let wrong = |why: String| Error::Tokenizer {
            path: path.to_path_buf(),
            why,
        };
        let canonical = tokenizers::canonicalize_str(&json).map_err(|e| wrong(e.to_string()))?;
        let pipeline = tokenizers::from_json(&canonical).map_err(|e| wrong(e.to_string()))?;
        let ids = vocabulary(&json).map_err(wrong)?;
        let vocab = ids
            .iter()
            .map(|(_, id)| *id as usize + 1)
            .max()
            .unwrap_or(0);
        let id_of = |token: &str| ids.iter().find(|(t, _)| t == token).map(|(_, id)| *id);
        let end_of_document = END_OF_DOCUMENT.iter().find_map(|t| id_of(t));
        let library = Box::new(pipeline);
        let value = serde_json::from_str(&json).map_err(|e| wrong(e.to_string()))?;
        let engine = match byte_bpe::from_tokenizer_json(&value) {
            Some(bpe) => Engine::ByteBpe {
                bpe: Box::new(bpe),
                library,
            },
            None => Engine::Library(library),
        };
        Ok(Tokenizer {
            path: path.to_path_buf(),
            json,
            engine,
            vocab,
            end_of_document,
        })
    }

    /// Where it came from.
    pub fn path(&self) -> &Path {
        &self.path
    }
    /// The file's text.
    pub fn json(&self) -> &str {
        &self.json
    }
    /// Ids are below this.
    pub fn vocab(&self) -> usize {
        self.vocab
    }
    /// Id that ends a document, if the vocabulary has a known one.
    pub fn end_of_document(&self) -> Option<u32> {
        self.end_of_document
    }

    /// XXH3-128 of the file, in hex: the tokenizer's identity in lineage and checkpoints.
    pub fn identity(&self) -> String {
        format!("{:032x}", xxhash_rust::xxh3::xxh3_128(self.json.as_bytes()))
    }

    /// A reusable encoder for one thread.
    pub fn encoder(&self) -> Encoder<'_> {
        let state = match &self.engine {
            Engine::Library(pipeline) => State::Library {
                pipeline,
                options: EncodeOptions {
                    encode_special_tokens: true,
                    ..EncodeOptions::no_specials()
                },
                tokens: Vec::new(),
            },
            Engine::ByteBpe { bpe, .. } => State::ByteBpe(Box::new(bpe.encoder())),
            Engine::Null(null) => State::Null(null),
        };
        Encoder {
            tokenizer: self,
            state,
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
        match &self.engine {
            Engine::Library(library) | Engine::ByteBpe { library, .. } => {
                library.decode(ids, false).map_err(|e| self.wrong(&e))
            }
            Engine::Null(null) => Ok(null.decode(ids)),
        }
    }

    fn wrong(&self, why: &dyn std::fmt::Display) -> Error {
        Error::Tokenizer {
            path: self.path.clone(),
            why: why.to_string(),
        }
    }
}

/// Encodes many texts with one set of buffers.
pub struct Encoder<'a> {
    tokenizer: &'a Tokenizer,
    state: State<'a>,
    ids: Vec<u32>,
}

/// Buffers of one thread, by engine.
enum State<'a> {
    Library {
        pipeline: &'a PipelineTokenizer,
        options: EncodeOptions,
        tokens: Vec<PipelineToken>,
    },
    ByteBpe(Box<ByteEncoder<'a>>),
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
        match &mut self.state {
            State::Library {
                pipeline,
                options,
                tokens,
            } => {
                tokens.clear();
                pipeline
                    .encode_into(text, options, tokens)
                    .map_err(|e| self.tokenizer.wrong(&e))?;
                out.extend_from_slice(PipelineToken::cast_slice(tokens));
                Ok(())
            }
            State::ByteBpe(encoder) => {
                if u32::try_from(text.len()).is_err() {
                    let why = format!("a text of {} bytes, wanted less than 4 GiB", text.len());
                    return Err(self.tokenizer.wrong(&why));
                }
                encoder.encode(text, out);
                Ok(())
            }
            State::Null(null) => null
                .encode_into(text, out)
                .map_err(|why| self.tokenizer.wrong(&why)),
        }
    }
}

/// Every (token, id): the model's vocabulary (an object, or Unigram's array of pairs) and the added tokens.
fn vocabulary(json: &str) -> std::result::Result<Vec<(String, u32)>, String> {
    let value: serde_json::Value = serde_json::from_str(json).map_err(|e| e.to_string())?;
    let mut ids = Vec::new();
    let id_of = |v: &serde_json::Value| v.as_u64().and_then(|id| u32::try_from(id).ok());
    match &value["model"]["vocab"] {
        serde_json::Value::Object(entries) => {
            for (token, id) in entries {
                let id = id_of(id).ok_or_else(|| format!("vocabulary id of {token:?}: {id}"))?;
                ids.push((token.clone(), id));
            }
        }
        serde_json::Value::Array(pairs) => {
            for (id, pair) in (0u32..).zip(pairs) {
                ids.push((pair[0].as_str().unwrap_or_default().to_string(), id));
            }
        }
        other => {
            return Err(format!(
                "model.vocab: found {other}, wanted an object or an array"
            ));
        }
    }
    for added in value["added_tokens"].as_array().into_iter().flatten() {
        if let (Some(token), Some(id)) = (added["content"].as_str(), id_of(&added["id"])) {
            ids.push((token.to_string(), id));
        }
    }
    Ok(ids)
}
