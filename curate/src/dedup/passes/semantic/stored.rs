//! Embeddings on disk: `embeddings/NNNNN.emb`, one file per shard.
//!
//! | bytes | content |
//! |---|---|
//! | 0..8 | magic `MLREMBD1` |
//! | 8..12 | numbers of an embedding w (u32) |
//! | 12..16 | kept documents without an embedding (u32) |
//! | 16..24 | number of embeddings n (u64) |
//! | 24..40 | hash of everything that the embeddings depend on (u128) |
//! | 12 n | document (u32) and source (u64, as in `.sig`) of each |
//! | 4 w n | embeddings (f32) |
//! | last 24 | n again (u64), XXH3-128 of all bytes before this checksum (u128) |
//!
//! All numbers little-endian. Texts are embedded in the order of the documents; a file whose hash is not that of the model,
//! its settings, the program's version and the shard's kept documents is made again. No file is held open, as there may be
//! more shards than a process may have open files.

use std::borrow::Cow;
use std::fs::File;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use serde_json::json;
use xxhash_rust::xxh3::xxh3_128;

use super::config::{STEP, SemanticConfig};
use crate::classifier::{Embedding, TextEmbedder};
use crate::corpus::kept_documents;
use crate::dedup::passes::kept::Passes;
use crate::dedup::signature::source;
use crate::document::CleanDocument;
use crate::error::{At, Error, Result, damaged};
use crate::text::narrow;
use crate::write::{AtomicFile, check_digest, checksum, clean_file, shard_file, verify, word};

/// Folder of the embeddings.
pub const FOLDER: &str = "embeddings";

const MAGIC: &[u8; 8] = b"MLREMBD1";
const HEADER: usize = 40;
/// Document and source.
const ENTRY: usize = 12;

/// Documents, and bytes of texts, that go to the model at once.
const BATCH_DOCUMENTS: usize = 1024;
const BATCH_BYTES: usize = 4 << 20;

/// The document of an embedding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) document: u32,
    /// As in `.sig`.
    pub(super) source: u64,
}

/// A shard's embeddings.
pub(super) struct ShardEmbeddings {
    path: PathBuf,
    width: usize,
    entries: Vec<Entry>,
    pub(super) unembedded: u64,
}

/// Hash of the model's files and of the settings that change embeddings.
pub(super) fn fingerprint(config: &SemanticConfig) -> Result<u128> {
    let mut sums = Vec::new();
    for path in config.files() {
        let (bytes, sum) = checksum(&path)?;
        sums.push(json!([
            path.file_name().map(|n| n.to_string_lossy()),
            bytes,
            sum
        ]));
    }
    let all = json!([
        env!("CARGO_PKG_VERSION"),
        sums,
        config.dtype,
        config.pooling,
        config.prefix,
        config.max_tokens
    ]);
    Ok(xxh3_128(all.to_string().as_bytes()))
}

impl SemanticConfig {
    /// Files of the model, sorted; Sentence Transformers' folders of modules included.
    pub fn files(&self) -> Vec<PathBuf> {
        let folder = Path::new(&self.model);
        let modules = std::fs::read_dir(folder).into_iter().flatten().flatten();
        // Sentence Transformers numbers them: `1_Pooling`
        let is_module = |path: &PathBuf| {
            let name = path.file_name().and_then(|name| name.to_str());
            path.is_dir() && name.is_some_and(|name| name.starts_with(|c: char| c.is_ascii_digit()))
        };
        let modules = modules.map(|entry| entry.path()).filter(is_module);
        let mut files = crate::classifier::files_of(folder);
        files.extend(modules.flat_map(|module| crate::classifier::files_of(&module)));
        files.sort();
        files
    }
}

/// The model of embeddings.
pub(super) struct Source<'a> {
    pub(super) config: &'a SemanticConfig,
    /// By [`fingerprint`].
    pub(super) print: u128,
    pub(super) embedder: &'a dyn TextEmbedder,
}

impl Source<'_> {
    /// The embeddings of a shard's kept documents: those on disk if they are of this model and these documents.
    pub(super) fn of_shard(&self, shard: usize, passes: &Passes<'_>) -> Result<ShardEmbeddings> {
        let out = passes.out();
        let (clean, _) = clean_file(out, shard);
        let list = passes.read_keep(narrow(shard))?;
        let kept: Vec<u8> = list.flags.iter().map(|flag| u8::from(*flag == 0)).collect();
        let depends = json!([
            format!("{:032x}", self.print),
            self.embedder.width(),
            checksum(&clean)?,
            format!("{:032x}", xxh3_128(&kept))
        ]);
        let key = xxh3_128(depends.to_string().as_bytes());
        let path = out.join(shard_file(FOLDER, shard, "emb"));
        match ShardEmbeddings::open(&path, key) {
            Ok(found) => {
                passes.progress().documents(found.entries.len() as u64, 0);
                return Ok(found);
            }
            Err(Error::Io { source, .. }) if source.kind() == ErrorKind::NotFound => {}
            Err(Error::Damaged { .. }) => {}
            Err(other) => return Err(other),
        }
        self.embed(shard, key, passes)?;
        ShardEmbeddings::open(&path, key)
    }

    /// The embeddings of a batch's texts.
    fn of_batch(&self, batch: &[(u32, CleanDocument)]) -> Result<Vec<Embedding>> {
        let prefix = &self.config.prefix;
        let texts: Vec<Cow<'_, str>> = (batch.iter())
            .map(|(_, document)| match prefix.is_empty() {
                true => Cow::Borrowed(document.text.as_str()),
                false => Cow::Owned(format!("{prefix}{}", document.text)),
            })
            .collect();
        let texts: Vec<&str> = texts.iter().map(AsRef::as_ref).collect();
        let wrong = |why| Error::Model {
            step: STEP.to_string(),
            why,
        };
        let found = self.embedder.embeddings(&texts).map_err(wrong)?;
        match found.len() == texts.len() {
            true => Ok(found),
            false => Err(wrong(format!(
                "{} embeddings of {} texts",
                found.len(),
                texts.len()
            ))),
        }
    }

    fn embed(&self, shard: usize, key: u128, passes: &Passes<'_>) -> Result<()> {
        let out = passes.out();
        let width = self.embedder.width();
        let mut entries: Vec<u8> = Vec::new();
        let mut unembedded = 0u32;
        // the numbers of all documents go before the embeddings
        let folder = out.join("tmp/dedup");
        std::fs::create_dir_all(&folder).at(&folder)?;
        let mut rows = tempfile::tempfile_in(&folder).at(&folder)?;
        let mut buffer: Vec<u8> = Vec::new();
        let mut documents = kept_documents(out, shard)?;
        loop {
            let (mut batch, mut bytes) = (Vec::new(), 0);
            while batch.len() < BATCH_DOCUMENTS && bytes < BATCH_BYTES {
                let Some(document) = documents.next() else {
                    break;
                };
                let document = document?;
                bytes += document.text.len();
                batch.push((narrow(documents.number()), document));
            }
            if batch.is_empty() {
                break;
            }
            let found = self.of_batch(&batch)?;
            buffer.clear();
            for ((number, document), found) in batch.iter().zip(found) {
                // a row that is zero or not finite is like nothing
                let row = found.ok().filter(|row| {
                    let is_whole = row.len() == width && row.iter().all(|x| x.is_finite());
                    is_whole && row.iter().any(|x| *x != 0.0)
                });
                let Some(row) = row else {
                    unembedded += 1;
                    continue;
                };
                let source = source(&document.source, document.subset.as_deref());
                entries.extend_from_slice(&number.to_le_bytes());
                entries.extend_from_slice(&source.to_le_bytes());
                row.iter()
                    .for_each(|x| buffer.extend_from_slice(&x.to_le_bytes()));
            }
            rows.write_all(&buffer).at(&folder)?;
            passes.progress().documents(batch.len() as u64, 0);
        }
        let header = Header {
            width: narrow(width),
            unembedded,
            count: (entries.len() / ENTRY) as u64,
            key,
        };
        let mut file = AtomicFile::create(out, &shard_file(FOLDER, shard, "emb"))?;
        let path = file.path();
        file.write_all(&header.to_bytes()).at(&path)?;
        file.write_all(&entries).at(&path)?;
        let (mut at, end) = (0, header.count * width as u64 * 4);
        buffer.resize(1 << 20, 0);
        while at < end {
            let many = usize::try_from(end - at)
                .unwrap_or(usize::MAX)
                .min(buffer.len());
            rows.read_exact_at(&mut buffer[..many], at).at(&folder)?;
            file.write_all(&buffer[..many]).at(&path)?;
            at += many as u64;
        }
        file.write_all(&header.count.to_le_bytes()).at(&path)?;
        let digest = file.digest();
        file.write_all(&digest.to_le_bytes()).at(&path)?;
        file.finish()?;
        Ok(())
    }
}

/// The first bytes of a file.
struct Header {
    width: u32,
    unembedded: u32,
    count: u64,
    key: u128,
}

impl Header {
    fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEADER);
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&self.width.to_le_bytes());
        bytes.extend_from_slice(&self.unembedded.to_le_bytes());
        bytes.extend_from_slice(&self.count.to_le_bytes());
        bytes.extend_from_slice(&self.key.to_le_bytes());
        bytes
    }

    /// The header of a file that is as it was written.
    fn read(path: &Path) -> Result<(Header, File)> {
        let (size, digest, tail) = verify(path, (HEADER + 24) as u64)?;
        check_digest(path, size, digest, &tail)?;
        let file = File::open(path).at(path)?;
        let mut bytes = [0; HEADER];
        file.read_exact_at(&mut bytes, 0).at(path)?;
        if &bytes[..8] != MAGIC {
            return Err(wrong(path, "another magic"));
        }
        let header = Header {
            width: u32::from_le_bytes(word(&bytes, 8)),
            unembedded: u32::from_le_bytes(word(&bytes, 12)),
            count: u64::from_le_bytes(word(&bytes, 16)),
            key: u128::from_le_bytes(word(&bytes, 24)),
        };
        let of_row = ENTRY as u128 + 4 * u128::from(header.width);
        let wanted = u128::from(header.count) * of_row + HEADER as u128 + 24;
        if wanted != u128::from(size) {
            return Err(wrong(path, "another length"));
        }
        Ok((header, file))
    }
}

fn wrong(path: &Path, found: &str) -> Error {
    damaged(path, 0, found.to_string(), "embeddings of these documents")
}

/// Counts of a file, for `inspect`.
pub(crate) struct EmbeddingCounts {
    pub(crate) embedded: u64,
    pub(crate) width: u32,
    pub(crate) unembedded: u32,
}

impl EmbeddingCounts {
    pub(crate) fn read(path: &Path) -> Result<EmbeddingCounts> {
        let (header, _) = Header::read(path)?;
        Ok(EmbeddingCounts {
            embedded: header.count,
            width: header.width,
            unembedded: header.unembedded,
        })
    }
}

impl ShardEmbeddings {
    /// Opens and verifies a file of this key.
    fn open(path: &Path, key: u128) -> Result<ShardEmbeddings> {
        let (header, file) = Header::read(path)?;
        if header.key != key {
            return Err(wrong(path, "embeddings of other documents"));
        }
        // No overflow: the file holds twelve bytes for each.
        let mut bytes = vec![0; usize::try_from(header.count).unwrap_or(0) * ENTRY];
        file.read_exact_at(&mut bytes, HEADER as u64).at(path)?;
        let entries = bytes.chunks_exact(ENTRY);
        let entries = entries.map(|entry| Entry {
            document: u32::from_le_bytes(word(entry, 0)),
            source: u64::from_le_bytes(word(entry, 4)),
        });
        Ok(ShardEmbeddings {
            path: path.to_path_buf(),
            entries: entries.collect(),
            width: header.width as usize,
            unembedded: u64::from(header.unembedded),
        })
    }

    /// Reads embeddings from `first` on into `to`, as many as it holds; `bytes` is scratch.
    fn read(&self, file: &File, first: usize, to: &mut [f32], bytes: &mut Vec<u8>) -> Result<()> {
        bytes.resize(to.len() * 4, 0);
        let start = HEADER + self.entries.len() * ENTRY + first * self.width * 4;
        file.read_exact_at(bytes, start as u64).at(&self.path)?;
        let numbers = bytes.as_chunks::<4>().0;
        for (to, number) in to.iter_mut().zip(numbers) {
            *to = f32::from_le_bytes(*number);
        }
        Ok(())
    }
}

/// One embedding of all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Row {
    pub(super) shard: u32,
    /// Its place in the shard's file.
    pub(super) number: u32,
}

/// The embeddings of all shards.
pub(super) struct Stored {
    files: Vec<ShardEmbeddings>,
}

impl Stored {
    pub(super) fn new(files: Vec<ShardEmbeddings>) -> Stored {
        Stored { files }
    }

    pub(super) fn documents(&self) -> u64 {
        self.files
            .iter()
            .map(|file| file.entries.len() as u64)
            .sum()
    }

    pub(super) fn width(&self) -> usize {
        self.files.first().map_or(0, |file| file.width)
    }

    /// The document of an embedding.
    pub(super) fn entry(&self, row: Row) -> Entry {
        self.files[row.shard as usize].entries[row.number as usize]
    }

    /// All rows in order.
    pub(super) fn rows(&self) -> impl Iterator<Item = Row> + '_ {
        self.files.iter().enumerate().flat_map(|(shard, file)| {
            (0..file.entries.len()).map(move |number| Row {
                shard: narrow(shard),
                number: narrow(number),
            })
        })
    }

    /// These embeddings, one after the other.
    pub(super) fn read(&self, rows: &[Row]) -> Result<Vec<f32>> {
        let width = self.width();
        let mut values = vec![0.0; rows.len() * width];
        // one shard after the other
        let mut order: Vec<usize> = (0..rows.len()).collect();
        order.sort_unstable_by_key(|&at| rows[at]);
        let mut bytes = Vec::new();
        for group in order.chunk_by(|&a, &b| rows[a].shard == rows[b].shard) {
            let shard = &self.files[rows[group[0]].shard as usize];
            let file = File::open(&shard.path).at(&shard.path)?;
            for &at in group {
                let to = &mut values[at * width..(at + 1) * width];
                shard.read(&file, rows[at].number as usize, to, &mut bytes)?;
            }
        }
        Ok(values)
    }

    /// Calls `each` with the first row and the values of at most `most` adjacent embeddings at a time, in order.
    pub(super) fn in_blocks(
        &self,
        most: usize,
        mut each: impl FnMut(Row, &[f32]) -> Result<()>,
    ) -> Result<()> {
        let (mut values, mut bytes) = (Vec::new(), Vec::new());
        for (shard, own) in self.files.iter().enumerate() {
            let file = File::open(&own.path).at(&own.path)?;
            let mut first = 0;
            while first < own.entries.len() {
                let many = most.min(own.entries.len() - first);
                values.resize(many * own.width, 0.0);
                own.read(&file, first, &mut values, &mut bytes)?;
                let row = Row {
                    shard: narrow(shard),
                    number: narrow(first),
                };
                each(row, &values)?;
                first += many;
            }
        }
        Ok(())
    }
}

/// Embeddings of one shard in a folder of their own.
#[cfg(test)]
pub(super) struct Planted {
    pub(super) stored: Stored,
    _folder: tempfile::TempDir,
}

#[cfg(test)]
impl Planted {
    /// One shard with these embeddings; document and source of each are its number.
    pub(super) fn of_rows(rows: &[Vec<f32>]) -> Planted {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("00000.emb");
        let entries: Vec<Entry> = (0u32..)
            .take(rows.len())
            .map(|document| Entry {
                document,
                source: u64::from(document),
            })
            .collect();
        let mut bytes = vec![0; HEADER + entries.len() * ENTRY];
        let values = rows.iter().flatten();
        values.for_each(|x| bytes.extend_from_slice(&x.to_le_bytes()));
        std::fs::write(&path, bytes).unwrap();
        Planted {
            stored: Stored::new(vec![ShardEmbeddings {
                path,
                width: rows[0].len(),
                entries,
                unembedded: 0,
            }]),
            _folder: folder,
        }
    }
}
