//! Encoding engines, one per kind of vocabulary, with the library's tokenizer built lazily.

use super::byte_bpe::ByteBpe;
use super::null::Null;
use super::pieces::Pieces;
use super::sentencepiece::SentencePiece;
use crate::panics::caught;
use std::sync::OnceLock;
use tokenizers::pipeline::PipelineTokenizer;

/// Encoding engine: text to ids, equal to those of its reference program.
pub(super) enum Engine {
    /// Hugging Face's own library, for everything a `tokenizer.json` can describe.
    Library(Box<PipelineTokenizer>),
    /// The library's models behind our own pre-tokenization, for files whose pre-tokenizer it cannot run.
    Pieces(Box<Pieces>),
    /// Our own encoder, for the files that it encodes exactly; the library decodes.
    ByteBpe { bpe: Box<ByteBpe>, library: Later },
    /// A SentencePiece model.
    SentencePiece(Box<SentencePiece>),
    /// Text that is numbers already.
    Null(Null),
}

/// The library's tokenizer of a file, built lazily at the first decode: building it for a vocabulary of 50 000
/// takes as long as encoding tens of megabytes.
pub(super) struct Later {
    json: String,
    made: OnceLock<Result<Box<PipelineTokenizer>, String>>,
}

impl Later {
    pub(super) fn new(json: String) -> Later {
        Later {
            json,
            made: OnceLock::new(),
        }
    }

    /// The tokenizer, or why the library refuses the file.
    pub(super) fn get(&self) -> Result<&PipelineTokenizer, &String> {
        let made = self.made.get_or_init(|| read(&self.json));
        made.as_deref()
    }
}

pub(super) fn read(json: &str) -> Result<Box<PipelineTokenizer>, String> {
    // The reader of this release candidate may panic on unexpected input; nothing that it touched is used afterwards.
    caught(|| {
        let canonical = tokenizers::canonicalize_str(json).map_err(|e| e.to_string())?;
        let pipeline = tokenizers::from_json(&canonical).map_err(|e| e.to_string())?;
        Ok(Box::new(pipeline))
    })
    .unwrap_or_else(|panic| {
        Err(format!(
            "the tokenizers library panicked on this file: {panic}"
        ))
    })
}
