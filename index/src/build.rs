//! Documents in, one dataset out: encodes in parallel, writes in the documents' order, keeps a bounded batch in memory.

use crate::error::{Error, Result};
use crate::format::TokenType;
use crate::read::{Dataset, with_suffix};
use crate::tokenizer::{ENCODER, Tokenizer};
use crate::write::{DatasetWriter, Written, put_token, write_atomically};
use rayon::prelude::*;
use std::path::Path;

/// Text of one batch in bytes: large enough to share among threads, small enough to forget.
const BATCH_BYTES: usize = 8 << 20;

/// How to build a dataset.
#[derive(Clone, Debug)]
pub struct BuildOptions {
    /// Append the end-of-document id to every document that has a token.
    pub append_eod: bool,
    /// Stored in the sidecar `PREFIX.json`: where the documents came from.
    pub lineage: serde_json::Value,
}

/// Counts of a build.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Built {
    /// What lies in the dataset.
    #[serde(flatten)]
    pub written: Written,
    /// Bytes of UTF-8 text read.
    pub text_bytes: u64,
}

/// Tokenizes `documents` into `PREFIX.bin`, `.idx` and `.json`.
///
/// The order of documents is the iterator's, whatever the threads. `progress` hears (documents, text bytes) so far.
///
/// # Errors
/// `Document` if the iterator fails; `Tokenizer`; `Width` if an id does not fit; `Io`.
pub fn build<E: Into<Box<dyn std::error::Error + Send + Sync>>>(
    prefix: &Path,
    tokenizer: &Tokenizer,
    documents: impl Iterator<Item = Result<String, E>> + Send,
    options: &BuildOptions,
    progress: &(dyn Fn(u64, u64) + Sync),
) -> Result<Built> {
    let end = match (options.append_eod, tokenizer.end_of_document()) {
        (true, None) => {
            return Err(Error::Tokenizer {
                path: tokenizer.path().to_path_buf(),
                why: "append_eod needs an end-of-document token; the vocabulary has none of the known ones".into(),
            });
        }
        (true, end) => end,
        (false, _) => None,
    };
    let token_type = TokenType::for_vocab(tokenizer.vocab());
    let mut writer = DatasetWriter::create(prefix, token_type)?;
    let (mut count, mut text_bytes) = (0u64, 0u64);
    // One batch is read while the one before it is encoded: reading is decompression and costs a core as well.
    let (send, receive) = std::sync::mpsc::sync_channel::<Result<Vec<String>>>(1);
    std::thread::scope(|scope| {
        scope.spawn(move || read_batches(documents, &send));
        for batch in receive {
            let batch = batch?;
            let encoded = encode_batch(tokenizer, token_type, end, &batch, count)?;
            for (bytes, lengths) in &encoded {
                writer.documents(bytes, lengths)?;
            }
            count += batch.len() as u64;
            text_bytes += batch.iter().map(|t| t.len() as u64).sum::<u64>();
            progress(count, text_bytes);
        }
        Ok(())
    })?;
    let written = writer.finish()?;
    let sidecar = serde_json::json!({
        "dataset": options.lineage,
        "tokenizer": {"xxh3": tokenizer.identity(), "vocab": tokenizer.vocab(),
            "encoder": ENCODER, "end_of_document": end},
        "dtype": token_type.name(), "documents": written.documents, "sequences": written.sequences,
        "tokens": written.tokens, "text_bytes": text_bytes,
    });
    let text = format!("{sidecar:#}\n");
    write_atomically(&with_suffix(prefix, ".json"), text.as_bytes())?;
    Ok(Built {
        written,
        text_bytes,
    })
}

/// Groups documents by bytes; stops when the receiver is gone.
fn read_batches<E: Into<Box<dyn std::error::Error + Send + Sync>>>(
    documents: impl Iterator<Item = Result<String, E>>,
    send: &std::sync::mpsc::SyncSender<Result<Vec<String>>>,
) {
    let (mut batch, mut bytes, mut count) = (Vec::new(), 0, 0u64);
    for document in documents {
        match document {
            Ok(text) => {
                bytes += text.len();
                batch.push(text);
            }
            Err(source) => {
                let failed = Error::Document {
                    document: count,
                    source: source.into(),
                };
                // a receiver that is gone has its own error to tell
                drop(send.send(Err(failed)));
                return;
            }
        }
        count += 1;
        if bytes >= BATCH_BYTES {
            bytes = 0;
            if send.send(Ok(std::mem::take(&mut batch))).is_err() {
                return;
            }
        }
    }
    drop(send.send(Ok(batch)));
}

type Encoded = (Vec<u8>, Vec<u32>);

fn encode_batch(
    tokenizer: &Tokenizer,
    token_type: TokenType,
    end: Option<u32>,
    batch: &[String],
    first: u64,
) -> Result<Vec<Encoded>> {
    // Pieces of about equal bytes would need a scan; equal counts are close enough and keep the order trivial.
    let piece = batch
        .len()
        .div_ceil(4 * rayon::current_num_threads())
        .max(1);
    batch
        .par_chunks(piece)
        .enumerate()
        .map(|(p, texts)| {
            let mut encoder = tokenizer.encoder();
            let (mut bytes, mut lengths) = (Vec::new(), Vec::with_capacity(texts.len()));
            for (i, text) in texts.iter().enumerate() {
                let document = first + (p * piece + i) as u64;
                let too_wide = |id| Error::Width {
                    id,
                    document,
                    dtype: token_type.name(),
                    vocab: tokenizer.vocab(),
                };
                let mut length = 0u32;
                for id in encoder.encode(text)? {
                    put_token(token_type, *id, &mut bytes).map_err(too_wide)?;
                    length += 1;
                }
                if let (1.., Some(end)) = (length, end) {
                    put_token(token_type, end, &mut bytes).map_err(too_wide)?;
                    length += 1;
                }
                lengths.push(length);
            }
            Ok((bytes, lengths))
        })
        .collect()
}

/// Identity of a dataset: XXH3-128 over its index and tokens, in hex. Costs one read of the files.
pub fn fingerprint(dataset: &Dataset) -> String {
    let mut hash = xxhash_rust::xxh3::Xxh3::new();
    hash.update(dataset.idx());
    hash.update(dataset.bin());
    format!("{:032x}", hash.digest128())
}
