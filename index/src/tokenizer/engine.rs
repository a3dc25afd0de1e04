//! What encodes: one engine for each kind of vocabulary, and the library's tokenizer that is made only when it is needed.

use super::byte_bpe::ByteBpe;
use super::null::Null;
use super::pieces::Pieces;
use super::sentencepiece::SentencePiece;
use crate::panics::caught;
use std::sync::OnceLock;
use tokenizers::pipeline::PipelineTokenizer;

/// What turns text into ids. Every engine gives the ids of its reference program.
pub(super) enum Engine {
    /// Hugging Face's own library, for everything a `tokenizer.json` can describe.
    Library(Box<PipelineTokenizer>),
    /// The library's models behind our own way to cut words, for files that it cannot cut.
    Pieces(Box<Pieces>),
    /// Our own encoder for the files that it does exactly; the library decodes.
    ByteBpe { bpe: Box<ByteBpe>, library: Later },
    /// A SentencePiece model.
    SentencePiece(Box<SentencePiece>),
    /// Text that is numbers already.
    Null(Null),
}

/// The library's tokenizer of a file that it reads when something is to be decoded: reading a vocabulary of 50 000 with
/// it takes as long as encoding tens of megabytes.
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
    // A release candidate's reader may panic on what it did not expect; nothing it touched is used afterwards.
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
