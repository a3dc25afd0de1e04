//! The files of an export: documents in the order of shards, in files that are written side by side.
//!
//! After each file its record is written: checksum and counts. A killed export, started again, writes the files whose record or
//! bytes are not there, so it ends with the same bytes.

use super::cut::{FileRange, ShardSize, by_shard, cut};
use super::tally::Tally;
use crate::machine::write_atomically;
use crate::progress::Progress;
use anyhow::{Context as _, Result, bail};
use curate::corpus::{CleanDocument, KeptDocuments, all_documents, kept_documents};
use curate::write::{ExportFormat, ExportWriter, OutputFile, checksum};
use rayon::iter::{IntoParallelIterator, ParallelIterator};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// Folder of the records, below the export's own; removed at the end.
pub(super) const UNFINISHED: &str = ".millrace-export";

/// Documents to export, and the files that they become.
pub(super) struct Export<'a> {
    /// The job's folder.
    pub job: &'a Path,
    /// Whether keep lists and cuts apply.
    pub has_lists: bool,
    /// Kept documents of each shard, by the job's records.
    pub shards: &'a [ShardSize],
    pub out: &'a Path,
    pub format: ExportFormat,
    /// Start of the files' names.
    pub stem: &'a str,
    /// Bytes of texts, uncompressed, in a file.
    pub file_bytes: u64,
    pub fingerprint: &'a str,
}

/// A finished file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct FileRecord {
    fingerprint: String,
    output: OutputFile,
    tally: Tally,
}

/// A shard that is being read.
struct Reading {
    shard: usize,
    documents: KeptDocuments,
    /// A row that came last and belongs to a file further on.
    next: Option<CleanDocument>,
}

impl Reading {
    /// The next row, with the number of its document among the kept ones of the shard.
    fn next(&mut self) -> Result<Option<(u64, CleanDocument)>> {
        let row = match self.next.take() {
            Some(row) => Some(row),
            None => self.documents.next().transpose()?,
        };
        // the document has been counted
        Ok(row.map(|row| (self.documents.kept() - 1, row)))
    }
}

impl Export<'_> {
    /// Writes the files that are missing. Returns all files and their counts.
    pub(super) fn run(&self, progress: &Progress) -> Result<(Vec<OutputFile>, Tally)> {
        let ranges = cut(self.shards, self.file_bytes);
        by_shard(&ranges)
            .into_par_iter()
            .try_for_each(|files| self.write(files, progress))?;
        let (mut files, mut tally) = (Vec::new(), Tally::default());
        // one record at a time: the counts of all files together have no bound
        for range in &ranges {
            let path = self.record(range.number);
            let text = std::fs::read(&path).with_context(|| path.display().to_string())?;
            let record: FileRecord =
                serde_json::from_slice(&text).with_context(|| path.display().to_string())?;
            tally.merge(record.tally);
            files.push(record.output);
        }
        Ok((files, tally))
    }

    /// Writes files that follow each other.
    fn write(&self, files: &[FileRange], progress: &Progress) -> Result<()> {
        let mut reading = None;
        for file in files {
            if !self.is_finished(file)? {
                self.write_file(file, &mut reading, progress)?;
            }
        }
        Ok(())
    }

    fn write_file(
        &self,
        file: &FileRange,
        reading: &mut Option<Reading>,
        progress: &Progress,
    ) -> Result<()> {
        let mut tally = Tally::default();
        let name = self.name(file.number);
        let mut writer = ExportWriter::create(self.out, &name, self.format)?;
        let last = file.end.shard.min(self.shards.len().saturating_sub(1));
        for shard in file.start.shard..=last {
            let Some(size) = self.shards.get(shard) else {
                break;
            };
            let [first, end] = file.of_shard(shard, size.documents);
            let is_whole = shard < file.end.shard;
            if first == end && !is_whole {
                break;
            }
            let open = match reading.take().filter(|reading| reading.shard == shard) {
                Some(open) => reading.insert(open),
                None => reading.insert(self.open(shard)?),
            };
            while let Some((number, row)) = open.next()? {
                if number < first {
                    continue;
                }
                if number >= end && !is_whole {
                    open.next = Some(row);
                    break;
                }
                tally.add(&row);
                progress.add(1);
                writer.write(row)?;
            }
            if is_whole {
                check(open, size)?;
                // the reader counts those without a row; at the shard's end the count is whole
                tally.emptied += open.documents.emptied();
            }
            // `check` has compared the sum of a shard's files
            tally.documents += end - first;
        }
        let record = FileRecord {
            fingerprint: self.fingerprint.to_string(),
            output: writer.finish()?,
            tally,
        };
        write_atomically(&self.record(file.number), &serde_json::to_vec(&record)?)
    }

    fn open(&self, shard: usize) -> Result<Reading> {
        let documents = match self.has_lists {
            true => kept_documents(self.job, shard)?,
            false => all_documents(self.job, shard)?,
        };
        Ok(Reading {
            shard,
            documents,
            next: None,
        })
    }

    fn name(&self, file: usize) -> String {
        format!("data/{}{file:05}.{}", self.stem, self.format.extension())
    }

    fn record(&self, file: usize) -> PathBuf {
        self.out.join(UNFINISHED).join(format!("{file:05}.json"))
    }

    /// Whether an earlier process finished a file.
    fn is_finished(&self, file: &FileRange) -> Result<bool> {
        let Ok(text) = std::fs::read(self.record(file.number)) else {
            return Ok(false);
        };
        let Ok(record) = serde_json::from_slice::<FileRecord>(&text) else {
            return Ok(false);
        };
        let is_ours =
            record.fingerprint == self.fingerprint && record.output.path == self.name(file.number);
        Ok(is_ours && is_whole(self.out, &record.output)?)
    }
}

/// A shard that was read to its end must have the documents of its record.
fn check(shard: &Reading, size: &ShardSize) -> Result<()> {
    let found = shard.documents.kept();
    if found != size.documents {
        bail!(
            "shard {:05} has {found} kept documents, and its record {}; `millrace run` makes the job whole",
            shard.shard,
            size.documents
        );
    }
    Ok(())
}

/// Whether a file has the bytes of its record.
pub(super) fn is_whole(out: &Path, file: &OutputFile) -> Result<bool> {
    let path = out.join(&file.path);
    if std::fs::metadata(&path).is_ok_and(|m| m.len() == file.bytes) {
        let (_, sum) = checksum(&path).with_context(|| path.display().to_string())?;
        return Ok(sum == file.xxh3);
    }
    Ok(false)
}
