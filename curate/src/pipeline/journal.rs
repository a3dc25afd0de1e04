//! Journal (write-ahead log) of a shard: the results of its records, batch by batch, so that a killed run need not
//! recompute them.
//!
//! The file: magic `MLRJRNL2`, length (u32) and bytes of the fingerprint of everything that the work depends on;
//! then a chunk per batch: length (u32) and XXH3-64 of its bytes, which are CBOR (start of the batch, number of
//! records, the outcomes without the lines of kept documents, the lengths of those) and the lines. All numbers
//! little-endian. Nothing is compressed: that would cost a fast job a fifth of its time, and the file is deleted
//! when its shard is done.
//!
//! Chunks end where batches of records end. A chunk that was being written when the process was killed fails its
//! checksum, or is truncated, and is cut off with everything after it. A resumed run reads the input again from its
//! start and takes the outcomes of the batches that the journal has; they are written in the same way as always, so
//! that outputs are the same bytes in every format. Reading is the cheap part (7% of the time for WARC);
//! BENCHMARKS.md has the journal's own cost.

use std::fs::{File, OpenOptions};
use std::io::{BufReader, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

use crate::error::{At, Result};
use crate::pipeline::chain::Outcome;
use crate::read::Batch;
use crate::text::narrow;

const MAGIC: &[u8; 8] = b"MLRJRNL2";
/// Bytes of a chunk's length and checksum.
const HEAD: usize = 12;

/// Identity of a chunk's batch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Place {
    offset: u64,
    number: u64,
    records: usize,
}

impl Place {
    fn of(batch: &Batch) -> Place {
        let first = batch.records.first();
        Place {
            offset: first.map_or(0, |raw| raw.offset),
            number: first.map_or(0, |raw| raw.number),
            records: batch.records.len(),
        }
    }
}

/// The journal of a shard, or none.
pub(crate) struct Journal {
    file: Option<Open>,
}

struct Open {
    reader: BufReader<File>,
    path: PathBuf,
    /// End of the last chunk that was used.
    end: u64,
    is_at_end: bool,
    chunk: Vec<u8>,
}

impl Journal {
    /// Without a file: no outcomes are known, none are recorded.
    pub(crate) fn none() -> Journal {
        Journal { file: None }
    }

    /// The journal at `path` if it is one of `print`, else an empty one in its place. While another process has it,
    /// or where files cannot be locked, the work is done without a journal.
    pub(crate) fn open(path: &Path, print: &str) -> Result<Journal> {
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).at(folder)?;
        }
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        let file = options.open(path).at(path)?;
        if file.try_lock().is_err() {
            return Ok(Journal::none());
        }
        let mut header = MAGIC.to_vec();
        header.extend_from_slice(&narrow(print.len()).to_le_bytes());
        header.extend_from_slice(print.as_bytes());
        let mut reader = BufReader::new(file);
        let mut found = vec![0; header.len()];
        let is_of_print = reader.read_exact(&mut found).is_ok() && found == header;
        if !is_of_print {
            let file = reader.get_mut();
            file.set_len(0).at(path)?;
            file.seek(SeekFrom::Start(0)).at(path)?;
            file.write_all(&header).at(path)?;
        }
        Ok(Journal {
            file: Some(Open {
                reader,
                path: path.to_path_buf(),
                end: header.len() as u64,
                is_at_end: !is_of_print,
                chunk: Vec::new(),
            }),
        })
    }

    /// The outcomes of the batch's records, if known. Batches come in the input's order; after the first unknown
    /// one there are no others.
    pub(crate) fn next(&mut self, batch: &Batch) -> Result<Option<Vec<Outcome>>> {
        let Some(file) = self.file.as_mut().filter(|file| !file.is_at_end) else {
            return Ok(None);
        };
        if let Some((length, place, outcomes)) = file.read_chunk()
            && place == Place::of(batch)
            && outcomes.len() == place.records
        {
            file.end += length;
            return Ok(Some(outcomes));
        }
        file.cut()?;
        Ok(None)
    }

    /// Appends the outcomes of the batch's records.
    pub(crate) fn append(&mut self, batch: &Batch, outcomes: &[Outcome]) -> Result<()> {
        self.file
            .as_mut()
            .map_or(Ok(()), |file| file.append(batch, outcomes))
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        // A child that another thread starts has a copy of the open file until it runs its program, and with it the
        // lock. A file that cannot be unlocked is unlocked by being closed.
        let _ = self.reader.get_ref().unlock();
    }
}

impl Open {
    /// The next chunk and its length in the file, None if there is no whole one.
    fn read_chunk(&mut self) -> Option<(u64, Place, Vec<Outcome>)> {
        let mut head = [0; HEAD];
        self.reader.read_exact(&mut head).ok()?;
        let [a, b, c, d, sum @ ..] = head;
        let length = u32::from_le_bytes([a, b, c, d]);
        self.chunk.clear();
        let chunk = self.reader.by_ref().take(u64::from(length));
        // no more is made room for than the file has
        let read = { chunk }.read_to_end(&mut self.chunk).ok()?;
        if read as u64 != u64::from(length) || xxh3_64(&self.chunk) != u64::from_le_bytes(sum) {
            return None;
        }
        let mut rest = self.chunk.as_slice();
        let (place, mut outcomes, lengths): (Place, Vec<Outcome>, Vec<usize>) =
            ciborium::from_reader(&mut rest).ok()?;
        let kept = outcomes.iter_mut().filter_map(|outcome| match outcome {
            Outcome::Kept(kept) => Some(kept),
            _ => None,
        });
        for (kept, length) in kept.zip(lengths) {
            let (line, behind) = rest.split_at_checked(length)?;
            kept.line = line.to_vec();
            rest = behind;
        }
        Some((HEAD as u64 + u64::from(length), place, outcomes))
    }

    /// Truncates the file after the last chunk that was used.
    fn cut(&mut self) -> Result<()> {
        self.is_at_end = true;
        let file = self.reader.get_mut();
        file.set_len(self.end).at(&self.path)?;
        file.seek(SeekFrom::Start(self.end)).at(&self.path)?;
        Ok(())
    }

    fn append(&mut self, batch: &Batch, outcomes: &[Outcome]) -> Result<()> {
        let kept = || {
            outcomes.iter().filter_map(|outcome| match outcome {
                Outcome::Kept(kept) => Some(&kept.line),
                _ => None,
            })
        };
        let lengths: Vec<usize> = kept().map(Vec::len).collect();
        self.chunk.clear();
        self.chunk.extend_from_slice(&[0; HEAD]);
        let write = || -> std::io::Result<()> {
            let state = (Place::of(batch), outcomes, lengths);
            ciborium::into_writer(&state, &mut self.chunk).map_err(std::io::Error::other)?;
            kept().for_each(|line| self.chunk.extend_from_slice(line));
            let (head, body) = self.chunk.split_at_mut(HEAD);
            head[..4].copy_from_slice(&narrow(body.len()).to_le_bytes());
            head[4..].copy_from_slice(&xxh3_64(body).to_le_bytes());
            self.reader.get_mut().write_all(&self.chunk)
        };
        write().at(&self.path)
    }
}
