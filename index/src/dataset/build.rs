//! Dataset builder, a bounded pipeline: reads documents ahead, encodes in parallel, writes in the documents' order.
//!
//! The rules are those of Megatron's `preprocess_data.py`: sequences without tokens are dropped, the end-of-document id
//! follows the last sequence of a document that has tokens and counts in its length, a document without tokens leaves a
//! repeated boundary.

use crate::dataset::batch::{TextBatch, TextSource};
use crate::dataset::idx_format::TokenType;
use crate::dataset::read::Dataset;
use crate::dataset::write::{DatasetWriter, Written, put_tokens};
use crate::error::{Error, Result};
use crate::sentences::Punkt;
use crate::tokenizer::{Encoder, SpecialTokens, Tokenizer};
use rayon::prelude::*;
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Mutex, PoisonError};

/// Text that a thread encodes at a time.
const PIECE_BYTES: usize = 256 << 10;
/// Batches in flight: one being read, one being encoded, one in the channel.
const BATCHES: usize = 3;

/// Settings of a dataset build.
#[derive(Clone, Copy, Debug, Default)]
pub struct BuildOptions<'a> {
    /// Append the end-of-document id to every document that has tokens.
    pub append_eod: bool,
    /// Type of the stored ids; `None` is Megatron's choice by vocabulary size.
    pub token_type: Option<TokenType>,
    /// Split every text into sentences, each of which becomes a sequence.
    pub sentences: Option<&'a Punkt>,
    /// Treatment of special tokens in each sequence.
    pub special_tokens: SpecialTokens,
}

/// Counts of a build.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Built {
    /// Counts of the dataset.
    #[serde(flatten)]
    pub written: Written,
    /// Bytes of UTF-8 text read.
    pub text_bytes: u64,
    /// Documents without tokens.
    pub empty_documents: u64,
    /// The same by the groups of the source, indexed by group number.
    pub groups: Vec<GroupCounts>,
}

/// Counts of one group of documents (a source and a language, say).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct GroupCounts {
    /// Documents.
    pub documents: u64,
    /// Tokens, end-of-document ids included.
    pub tokens: u64,
    /// Bytes of UTF-8 text.
    pub text_bytes: u64,
}

impl GroupCounts {
    /// Adds another's counts.
    pub fn add(&mut self, other: &GroupCounts) {
        self.documents += other.documents;
        self.tokens += other.tokens;
        self.text_bytes += other.text_bytes;
    }
}

/// Tokenizes the documents of `source` into `PREFIX.bin` and `PREFIX.idx`.
///
/// The order of documents is the source's for any number of threads. `progress` is called with (documents, text
/// bytes) so far.
///
/// # Errors
/// `Document` if the source fails; `Tokenizer`; `Width` if an id does not fit; `Io`.
pub fn build(
    prefix: &Path,
    tokenizer: &Tokenizer,
    source: &mut dyn TextSource,
    options: &BuildOptions,
    progress: &(dyn Fn(u64, u64) + Sync),
) -> Result<Built> {
    let job = Job {
        tokenizer,
        end: end_of_document(tokenizer, options)?,
        sentences: options.sentences,
        token_type: options
            .token_type
            .unwrap_or_else(|| TokenType::for_vocab(tokenizer.vocab())),
    };
    let mut writer = DatasetWriter::create(prefix, job.token_type)?;
    let mut built = Built::default();
    let mut documents = 0u64;
    // Encoders cache words: one per thread, for the whole build.
    let encoders = (0..rayon::current_num_threads())
        .map(|_| Ok(Mutex::new(tokenizer.encoder_with(options.special_tokens)?)))
        .collect::<Result<Vec<_>>>()?;
    let (send, receive) = sync_channel(1);
    let (give_back, take_back) = sync_channel(BATCHES);
    for _ in 0..BATCHES {
        // the channel has room for all of them
        let _ = give_back.send(TextBatch::default());
    }
    // Reading (decompression and parsing) runs concurrently with the encoders.
    std::thread::scope(|scope| {
        scope.spawn(move || read(source, &take_back, &send));
        for batch in receive {
            let batch = batch.map_err(|(document, source)| Error::Document { document, source })?;
            let encoded: Vec<Encoded> = batch
                .pieces(PIECE_BYTES)
                .into_par_iter()
                .map(|piece| {
                    let own = rayon::current_thread_index().unwrap_or(0) % encoders.len();
                    let mut encoder = encoders[own].lock().unwrap_or_else(PoisonError::into_inner);
                    job.encode(&mut encoder, &batch, piece, documents)
                })
                .collect::<Result<_>>()?;
            for e in &encoded {
                writer.append(&e.bytes, &e.lengths, &e.sequences)?;
                built.count(e);
            }
            documents += batch.len() as u64;
            built.text_bytes += batch.bytes() as u64;
            progress(documents, built.text_bytes);
            // a reader that is done takes no more batches
            let _ = give_back.send(batch);
        }
        Ok(())
    })?;
    built.written = writer.finish()?;
    Ok(built)
}

fn end_of_document(tokenizer: &Tokenizer, options: &BuildOptions) -> Result<Option<u32>> {
    match (options.append_eod, tokenizer.end_of_document()) {
        (true, None) => Err(Error::Tokenizer {
            path: tokenizer.path().to_path_buf(),
            why: "append_eod needs an end-of-document token; the vocabulary has none of the known ones".into(),
        }),
        (true, end) => Ok(end),
        (false, _) => Ok(None),
    }
}

type Failed = (u64, Box<dyn std::error::Error + Send + Sync>);

/// Fills batches until the source ends, fails, or the receiver is gone.
fn read(
    source: &mut dyn TextSource,
    free: &Receiver<TextBatch>,
    send: &SyncSender<Result<TextBatch, Failed>>,
) {
    let mut documents = 0;
    for mut batch in free {
        batch.clear();
        let more = source.fill(&mut batch);
        documents += batch.len() as u64;
        let (message, more) = match more {
            Ok(more) => (Ok(batch), more),
            Err(e) => (Err((documents, e)), false),
        };
        if send.send(message).is_err() || !more {
            return;
        }
    }
}

struct Job<'a> {
    tokenizer: &'a Tokenizer,
    end: Option<u32>,
    token_type: TokenType,
    sentences: Option<&'a Punkt>,
}

/// Documents of one piece.
#[derive(Default)]
struct Encoded {
    /// Ids in the dataset's type.
    bytes: Vec<u8>,
    /// Tokens of each sequence.
    lengths: Vec<u32>,
    /// Sequences of each document.
    sequences: Vec<u32>,
    groups: Vec<GroupCounts>,
}

impl Job<'_> {
    fn encode(
        &self,
        encoder: &mut Encoder<'_>,
        batch: &TextBatch,
        piece: std::ops::Range<usize>,
        before: u64,
    ) -> Result<Encoded> {
        let mut out = Encoded::default();
        let mut sentences = Vec::new();
        for d in piece {
            let document = before + d as u64;
            let put = |ids: &[u32], out: &mut Vec<u8>| {
                put_tokens(self.token_type, ids, out).map_err(|id| Error::Width {
                    id,
                    document,
                    dtype: self.token_type.name(),
                    vocab: self.tokenizer.vocab(),
                })
            };
            let first = out.lengths.len();
            let (mut tokens, mut text_bytes) = (0u64, 0u64);
            for text in batch.sequences(d) {
                text_bytes += text.len() as u64;
                sentences.clear();
                match self.sentences {
                    Some(punkt) => punkt.split(text, &mut sentences),
                    None => sentences.push(0..text.len()),
                }
                for sentence in sentences.drain(..) {
                    let ids = encoder.encode(&text[sentence])?;
                    if ids.is_empty() {
                        continue;
                    }
                    put(ids, &mut out.bytes)?;
                    tokens += ids.len() as u64;
                    out.lengths.push(short(ids.len(), document)?);
                }
            }
            if let (Some(end), Some(last)) = (self.end, out.lengths[first..].last_mut()) {
                put(&[end], &mut out.bytes)?;
                *last += 1;
                tokens += 1;
            }
            let sequences = out.lengths.len() - first;
            out.sequences.push(short(sequences, document)?);
            let group = usize::from(batch.group(d));
            if out.groups.len() <= group {
                out.groups.resize(group + 1, GroupCounts::default());
            }
            out.groups[group].add(&GroupCounts {
                documents: 1,
                tokens,
                text_bytes,
            });
        }
        Ok(out)
    }
}

/// Lengths are stored as i32, and one token may follow.
fn short(length: usize, document: u64) -> Result<u32> {
    match u32::try_from(length) {
        Ok(n) if n < i32::MAX.unsigned_abs() => Ok(n),
        _ => Err(Error::Document {
            document,
            source: format!("{length} tokens or sequences, an index stores fewer than 2^31").into(),
        }),
    }
}

impl Built {
    fn count(&mut self, e: &Encoded) {
        self.empty_documents += e.sequences.iter().filter(|n| **n == 0).count() as u64;
        if self.groups.len() < e.groups.len() {
            self.groups.resize(e.groups.len(), GroupCounts::default());
        }
        for (sum, group) in self.groups.iter_mut().zip(&e.groups) {
            sum.add(group);
        }
    }
}

/// Tokens of a dataset that is hashed whole, in bytes.
const HASHED_WHOLE_BYTES: u64 = 64 << 20;
/// Blocks of a larger one that are hashed, and their bytes.
const HASHED_BLOCKS: u64 = 256;
const HASHED_BLOCK_BYTES: u64 = 64 << 10;

/// Identity of a dataset: XXH3-128 over its index and tokens, in hex. Above 64 MiB of `.bin` it is `s-` and the
/// hash of the index, the size and 256 blocks of 64 KiB spread evenly, so that the cost does not grow with the
/// size.
///
/// # Errors
/// As reading the files.
pub fn fingerprint(dataset: &Dataset) -> Result<String> {
    let size = dataset.bin().len();
    if size <= HASHED_WHOLE_BYTES {
        return whole_fingerprint(dataset);
    }
    let mut hash = xxhash_rust::xxh3::Xxh3::new();
    let (idx, bin) = (dataset.idx(), dataset.bin());
    idx.stream(0..idx.len(), |piece| {
        hash.update(piece);
        Ok(())
    })?;
    hash.update(&size.to_le_bytes());
    let last = size - HASHED_BLOCK_BYTES;
    for block in 0..HASHED_BLOCKS {
        let wide = u128::from(last) * u128::from(block) / u128::from(HASHED_BLOCKS - 1);
        let from = u64::try_from(wide).unwrap_or(last);
        bin.stream(from..from + HASHED_BLOCK_BYTES, |piece| {
            hash.update(piece);
            Ok(())
        })?;
    }
    Ok(format!("s-{:032x}", hash.digest128()))
}

/// Identity of a dataset by all of its bytes, at any size: XXH3-128 over its index and tokens, in hex.
///
/// # Errors
/// As reading the files.
pub fn whole_fingerprint(dataset: &Dataset) -> Result<String> {
    let mut hash = xxhash_rust::xxh3::Xxh3::new();
    for file in [dataset.idx(), dataset.bin()] {
        file.stream(0..file.len(), |piece| {
            hash.update(piece);
            Ok(())
        })?;
    }
    Ok(format!("{:032x}", hash.digest128()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dataset::batch::Texts;

    /// Documents given as sequences of numbers in text; document d is of group d % 2.
    struct Numbers(Vec<Vec<String>>, usize);

    impl TextSource for Numbers {
        fn fill(
            &mut self,
            batch: &mut TextBatch,
        ) -> Result<bool, Box<dyn std::error::Error + Send + Sync>> {
            // three documents a batch: the order must survive many small batches
            let end = (self.1 + 3).min(self.0.len());
            for d in self.1..end {
                self.0[d].iter().for_each(|s| batch.push(s));
                batch.end_document(u16::from(d % 2 == 1));
            }
            self.1 = end;
            Ok(end < self.0.len())
        }
    }

    fn null() -> Tokenizer {
        Tokenizer::load(Path::new("null:1000")).unwrap()
    }

    #[test]
    fn sentences_and_ends_follow_preprocess_data_whatever_the_threads() {
        let documents: Vec<Vec<String>> = (0..1000)
            .map(|d| match d % 4 {
                0 => vec![format!("{d} 1"), String::new(), format!("{d}")],
                1 => vec![],
                2 => vec![String::new()],
                _ => vec![format!("{d} {d} {d}")],
            })
            .collect();
        let options = BuildOptions {
            append_eod: true,
            ..BuildOptions::default()
        };
        let dir = tempfile::tempdir().unwrap();
        let mut files = Vec::new();
        for threads in [1, 3] {
            let prefix = dir.path().join(threads.to_string());
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
            let mut source = Numbers(documents.clone(), 0);
            let built = pool
                .unwrap()
                .install(|| build(&prefix, &null(), &mut source, &options, &|_, _| {}))
                .unwrap();
            let d = Dataset::open(&prefix).unwrap();
            assert_eq!((d.documents(), d.sequences()), (1000, 750));
            assert_eq!(built.empty_documents, 500);
            assert_eq!(d.tokens(), 250 * (2 + 2) + 250 * 4);
            let groups: Vec<u64> = built.groups.iter().map(|g| g.tokens).collect();
            assert_eq!(groups, [1000, 1000]);
            assert_eq!(built.groups.iter().map(|g| g.documents).sum::<u64>(), 1000);
            let bytes = built.groups.iter().map(|g| g.text_bytes).sum::<u64>();
            assert_eq!(bytes, built.text_bytes);
            // document 4 is "4 1", "", "4": two sequences, the end token in the second
            let (mut first, mut second) = ([0; 2], [0; 2]);
            d.read(3, 0, &mut first).unwrap();
            d.read(4, 0, &mut second).unwrap();
            assert_eq!((d.length(3), d.length(4)), (2, 2));
            assert_eq!((first, second), ([4, 1], [4, 999]));
            files.push([d.bin(), d.idx()].map(|f| std::fs::read(f.path()).unwrap()));
        }
        assert_eq!(files[0], files[1], "1 and 3 threads");
    }

    #[test]
    fn a_source_that_fails_stops_the_build_and_leaves_no_dataset() {
        let dir = tempfile::tempdir().unwrap();
        let prefix = dir.path().join("d");
        let documents = [Ok("1"), Ok("2"), Err("the disk is gone")];
        let mut source = Texts(documents.into_iter());
        let why = build(
            &prefix,
            &null(),
            &mut source,
            &BuildOptions::default(),
            &|_, _| {},
        )
        .unwrap_err()
        .to_string();
        assert_eq!(why, "document 2: the disk is gone");
        assert!(!prefix.with_extension("idx").exists());
    }

    #[test]
    fn an_id_that_does_not_fit_the_chosen_type_names_its_document() {
        let dir = tempfile::tempdir().unwrap();
        let options = BuildOptions {
            append_eod: false,
            token_type: Some(TokenType::U8),
            ..BuildOptions::default()
        };
        let mut source = Texts(["1", "255 256"].into_iter().map(Ok::<_, String>));
        let built = build(
            &dir.path().join("d"),
            &null(),
            &mut source,
            &options,
            &|_, _| {},
        );
        assert!(matches!(
            built,
            Err(Error::Width {
                id: 256,
                document: 1,
                dtype: "uint8",
                ..
            })
        ));
    }
}
