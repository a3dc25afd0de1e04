//! The files of an export: documents in the order of shards, cut into files by size.
//!
//! After each file its record is written: checksum, the place of the next document, and all counts so far. A killed export
//! goes on behind the last file whose record and bytes agree, so it ends with the same bytes.

use super::tally::Tally;
use crate::machine::write_atomically;
use crate::progress::Progress;
use anyhow::{Context as _, Result, bail};
use curate::corpus::{KeptDocuments, all_documents, kept_documents};
use curate::write::{ExportFormat, ExportWriter, OutputFile, checksum};
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
    pub expected: &'a [u64],
    pub out: &'a Path,
    pub format: ExportFormat,
    /// Start of the files' names.
    pub stem: &'a str,
    /// Bytes of rows, uncompressed, after which a file ends.
    pub file_bytes: u64,
    pub fingerprint: &'a str,
}

/// Place of a row: a shard, and the rows of it before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Place {
    shard: usize,
    rows: u64,
}

/// A finished file, and where the next one begins.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct FileRecord {
    fingerprint: String,
    output: OutputFile,
    next: Place,
    /// Of this file and those before.
    tally: Tally,
}

impl Export<'_> {
    /// Writes the files that are missing. Returns all files and their counts.
    pub(super) fn run(&self, progress: &Progress) -> Result<(Vec<OutputFile>, Tally)> {
        let mut files = Vec::new();
        let (mut next, mut tally) = (Place::default(), Tally::default());
        while let Some(record) = self.finished(files.len())? {
            files.push(record.output);
            (next, tally) = (record.next, record.tally);
        }
        let mut writer: Option<ExportWriter> = None;
        for shard in next.shard..self.expected.len() {
            let mut documents = self.open(shard)?;
            let mut place = Place { shard, rows: 0 };
            let before = if shard == next.shard { next.rows } else { 0 };
            for _ in 0..before {
                documents.next().transpose()?;
                place.rows += 1;
            }
            // kept and emptied documents of a shard are counted at its end
            while let Some(document) = documents.next().transpose()? {
                tally.add(&document);
                place.rows += 1;
                progress.add(1);
                let file = match &mut writer {
                    Some(file) => file,
                    None => writer.insert(self.create(files.len())?),
                };
                file.write(document)?;
                if file.bytes() >= self.file_bytes
                    && let Some(file) = writer.take()
                {
                    let output = self.finish(file, files.len(), place, &tally)?;
                    files.push(output);
                }
            }
            let (found, wanted) = (documents.kept(), self.expected[shard]);
            if found != wanted {
                bail!(
                    "shard {shard:05} has {found} kept documents, and its record {wanted}; `millrace run` makes the job whole"
                );
            }
            tally.documents += found;
            tally.emptied += documents.emptied();
        }
        // a folder without any file has no schema
        if writer.is_none() && files.is_empty() {
            writer = Some(self.create(0)?);
        }
        if let Some(file) = writer {
            let end = Place {
                shard: self.expected.len(),
                rows: 0,
            };
            files.push(self.finish(file, files.len(), end, &tally)?);
        }
        let wanted: u64 = self.expected.iter().sum();
        if tally.documents != wanted {
            bail!(
                "{} documents were read, and the job's records have {wanted}",
                tally.documents
            );
        }
        Ok((files, tally))
    }

    fn open(&self, shard: usize) -> Result<KeptDocuments> {
        Ok(match self.has_lists {
            true => kept_documents(self.job, shard)?,
            false => all_documents(self.job, shard)?,
        })
    }

    fn name(&self, file: usize) -> String {
        format!("data/{}{file:05}.{}", self.stem, self.format.extension())
    }

    fn create(&self, file: usize) -> Result<ExportWriter> {
        Ok(ExportWriter::create(
            self.out,
            &self.name(file),
            self.format,
        )?)
    }

    fn record(&self, file: usize) -> PathBuf {
        self.out.join(UNFINISHED).join(format!("{file:05}.json"))
    }

    fn finish(
        &self,
        writer: ExportWriter,
        file: usize,
        next: Place,
        tally: &Tally,
    ) -> Result<OutputFile> {
        let record = FileRecord {
            fingerprint: self.fingerprint.to_string(),
            output: writer.finish()?,
            next,
            tally: tally.clone(),
        };
        write_atomically(&self.record(file), &serde_json::to_vec(&record)?)?;
        Ok(record.output)
    }

    /// The record of a file that an earlier process finished.
    fn finished(&self, file: usize) -> Result<Option<FileRecord>> {
        let Ok(text) = std::fs::read(self.record(file)) else {
            return Ok(None);
        };
        let Ok(record) = serde_json::from_slice::<FileRecord>(&text) else {
            return Ok(None);
        };
        let is_ours =
            record.fingerprint == self.fingerprint && record.output.path == self.name(file);
        Ok((is_ours && is_whole(self.out, &record.output)?).then_some(record))
    }
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
