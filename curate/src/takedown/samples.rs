//! Texts of documents that reports show, without those of removed documents.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;

use super::removals::Removals;
use crate::error::{At, Result, damaged};
use crate::write::{AtomicFile, JsonLines, OutputFile, shard_file};

/// A line of a file of samples, as far as a removal reads it.
#[derive(serde::Deserialize)]
struct Line {
    id: String,
}

/// The documents that are removed, or whose lines in `dropped/` are.
#[derive(Clone, Copy)]
pub struct Gone<'a> {
    /// Documents of the clean shards.
    pub removals: &'a Removals,
    /// Ids of the lines of `dropped/`.
    pub dropped: &'a [String],
}

impl Gone<'_> {
    fn has(&self, id: &str) -> bool {
        self.removals.has_id(id) || self.dropped.iter().any(|other| other == id)
    }
}

/// Writes the texts that a shard's report shows below `to`, without those of removed documents; none if the shard is of an
/// earlier version.
///
/// # Errors
/// `Io`; `Damaged` for a line that is no document to show.
pub fn rewrite_shard_samples(
    out: &Path,
    to: &Path,
    shard: usize,
    gone: Gone<'_>,
) -> Result<Option<OutputFile>> {
    let name = shard_file("samples", shard, "jsonl.zst");
    let path = out.join(&name);
    if !path.exists() {
        return Ok(None);
    }
    let decoder = std::fs::File::open(&path).and_then(zstd::stream::read::Decoder::new);
    let mut file = JsonLines::create(to, &name)?;
    let mut write = |line: &[u8]| file.write_line(line);
    each_left(BufReader::new(decoder.at(&path)?), &path, gone, &mut write)?;
    file.finish().map(Some)
}

/// Writes `samples.jsonl`, the texts of all shards, in the same way.
///
/// # Errors
/// As [`rewrite_shard_samples`].
pub fn rewrite_samples(out: &Path, to: &Path, gone: Gone<'_>) -> Result<Option<OutputFile>> {
    let path = out.join("samples.jsonl");
    if !path.exists() {
        return Ok(None);
    }
    let reader = BufReader::new(std::fs::File::open(&path).at(&path)?);
    let mut file = AtomicFile::create(to, "samples.jsonl")?;
    let to_path = file.path();
    let mut write = |line: &[u8]| file.write_all(line).at(&to_path);
    each_left(reader, &path, gone, &mut write)?;
    file.finish().map(Some)
}

/// Calls `write` for every line that is not about a removed document, its line feed included.
fn each_left(
    mut reader: impl BufRead,
    path: &Path,
    gone: Gone<'_>,
    write: &mut dyn FnMut(&[u8]) -> Result<()>,
) -> Result<()> {
    let (mut line, mut offset) = (Vec::new(), 0);
    loop {
        line.clear();
        let read = reader.read_until(b'\n', &mut line).at(path)?;
        if read == 0 {
            return Ok(());
        }
        let found: Line = serde_json::from_slice(&line)
            .map_err(|e| damaged(path, offset, e.to_string(), "a document to show"))?;
        offset += read as u64;
        if !gone.has(&found.id) {
            write(&line)?;
        }
    }
}
