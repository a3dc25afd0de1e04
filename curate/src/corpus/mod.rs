//! Training and evaluation corpora for models: files, patterns and folders, read as documents or as lines.
//!
//! A file's name decides its format: `.jsonl`, `.ndjson` or `.json` (a field of each object), `.parquet` (a
//! column), anything else plain text, of which each line is a document; any of them may be compressed. A folder
//! with a subfolder `clean` is a job's output: its shards without documents that deduplication removed. Blank lines
//! are skipped. An unreadable record is counted and skipped.

mod condition;
mod documents;
mod edits;
mod keep;
mod texts;

pub use crate::document::CleanDocument;
pub use condition::CleanCondition;
pub(crate) use documents::edits;
pub use documents::{Documents, KeptDocuments, all_documents, documents, kept_documents};
pub use edits::EditList;
pub(crate) use edits::{Span, compose, composed_splits, joined, pieces};
pub(crate) use keep::{CONTAMINATED, EARLIER, HOLLOW, NONE, SEMANTIC, URL};
pub use keep::{KeepList, KeepStatus};
pub use texts::{Found, TextReader, TextRecord, is_plain};

use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::progress::Progress;
use crate::read::{Batch, Format, Input, Reader, input_files};
use crate::write::clean_file;

/// Longest record.
const MOST_BYTES: usize = 256 << 20;

/// Texts, not yet read.
#[derive(Clone, Debug)]
pub struct Corpus {
    parts: Vec<Part>,
    field: String,
    /// Bytes of its files.
    pub bytes: u64,
}

#[derive(Clone, Debug)]
enum Part {
    Records(PathBuf, Format),
    Lines(PathBuf, Box<Input>),
    /// Folder of a job and number of a shard.
    Shard(PathBuf, usize),
}

/// Counts of a reading.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CorpusCounts {
    /// Texts passed on.
    pub documents: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Records that could not be read.
    pub bad: u64,
}

/// Extensions of compressions.
const PACKED: [&str; 5] = [".gz", ".zst", ".bz2", ".xz", ".lz4"];

fn format_of(path: &Path) -> Format {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let name = name.to_ascii_lowercase();
    let plain = PACKED.iter().find_map(|e| name.strip_suffix(e));
    let plain = plain.unwrap_or(&name);
    match plain.rsplit('.').next() {
        Some("jsonl" | "ndjson" | "json") => Format::Jsonl,
        Some("parquet") => Format::Parquet,
        Some("arrow" | "feather") => Format::Arrow,
        _ => Format::Text,
    }
}

impl Corpus {
    /// Finds the files; `field` is the one of a record that holds the text.
    ///
    /// # Errors
    /// `Input` for a path that does not exist and for a folder without files, before anything is read.
    pub fn find(paths: &[String], field: &str) -> Result<Corpus> {
        let mut made = Corpus {
            parts: Vec::new(),
            field: field.to_string(),
            bytes: 0,
        };
        for path in paths {
            let folder = Path::new(path);
            if folder.join("clean").is_dir() {
                made.add_job(folder)?;
                continue;
            }
            let input = Input {
                path: path.clone(),
                ..Input::default()
            };
            for file in input_files(std::slice::from_ref(&input))? {
                made.bytes += file.bytes;
                made.parts.push(match format_of(&file.path) {
                    Format::Text => Part::Lines(file.path, Box::new(Input::of(Format::Jsonl))),
                    format => Part::Records(file.path, format),
                });
            }
        }
        Ok(made)
    }

    fn add_job(&mut self, folder: &Path) -> Result<()> {
        let mut shard = 0;
        while let Ok(found) = std::fs::metadata(clean_file(folder, shard).0) {
            self.bytes += found.len();
            self.parts.push(Part::Shard(folder.to_path_buf(), shard));
            shard += 1;
        }
        match shard {
            0 => Err(Error::Input {
                path: folder.join("clean"),
                why: "found no shard 00000, wanted clean shards".into(),
            }),
            _ => Ok(()),
        }
    }

    /// Passes every text to `take`, in the order of paths and records.
    ///
    /// # Errors
    /// `Io`; `Damaged` shards; `Input` if no text was found; errors of `take`.
    pub fn each(
        &self,
        progress: &dyn Progress,
        take: &mut dyn FnMut(&str) -> Result<()>,
    ) -> Result<CorpusCounts> {
        let mut counts = CorpusCounts::default();
        for part in &self.parts {
            let size = match part {
                Part::Lines(path, input) => {
                    lines(path, input, &mut counts, progress, take)?;
                    std::fs::metadata(path)
                }
                Part::Records(path, format) => {
                    let reader = TextReader::open(path, *format, &self.field, MOST_BYTES)?;
                    records(reader, &mut counts, progress, take)?;
                    std::fs::metadata(path)
                }
                Part::Shard(folder, shard) => {
                    let reader = TextReader::shard(folder, *shard, true)?;
                    records(reader, &mut counts, progress, take)?;
                    std::fs::metadata(clean_file(folder, *shard).0)
                }
            };
            // progress may be underreported; reading has succeeded
            progress.bytes(size.map_or(0, |m| m.len()));
        }
        if counts.documents == 0 {
            let what = match (self.parts.first(), counts.bad) {
                (Some(Part::Lines(..)), 0) => "no line with text".to_string(),
                (_, 0) => "no record".to_string(),
                (_, bad) => format!(
                    "{bad} records without a usable text, the field being {:?}",
                    self.field
                ),
            };
            return Err(Error::Input {
                path: self.first(),
                why: format!("found {what}, wanted documents"),
            });
        }
        Ok(counts)
    }

    /// A path to name in messages for all of them.
    pub(crate) fn first(&self) -> PathBuf {
        match self.parts.first() {
            Some(Part::Records(path, _) | Part::Lines(path, _)) => path.clone(),
            Some(Part::Shard(folder, _)) => folder.join("clean"),
            None => PathBuf::from("(no path)"),
        }
    }
}

fn records(
    mut reader: TextReader,
    counts: &mut CorpusCounts,
    progress: &dyn Progress,
    take: &mut dyn FnMut(&str) -> Result<()>,
) -> Result<()> {
    let mut joined = String::new();
    let mut failed = Ok(());
    loop {
        let found = reader.next(&mut |record| {
            let text = match record.texts {
                [one] => *one,
                several => {
                    joined.clear();
                    for text in several {
                        joined.push_str(text);
                        joined.push('\n');
                    }
                    joined.as_str()
                }
            };
            if !text.trim().is_empty() {
                counts.documents += 1;
                counts.bytes += text.len() as u64;
                progress.documents(1, 1);
                // a record may be several documents
                if failed.is_ok() {
                    failed = take(text);
                }
            }
        })?;
        std::mem::replace(&mut failed, Ok(()))?;
        match found {
            Found::Document => {}
            Found::Bad { .. } => counts.bad += 1,
            Found::End => return Ok(()),
        }
    }
}

fn lines(
    path: &Path,
    input: &Input,
    counts: &mut CorpusCounts,
    progress: &dyn Progress,
    take: &mut dyn FnMut(&str) -> Result<()>,
) -> Result<()> {
    let mut reader = Reader::open_lines(path, &input.options, MOST_BYTES)?;
    let mut batch = Batch::default();
    while reader.fill(&mut batch)? {
        for raw in &batch.records {
            let text = match &raw.bad {
                None => std::str::from_utf8(batch.bytes(raw)).ok(),
                Some(_) => None,
            };
            match text {
                Some(text) => {
                    counts.documents += 1;
                    counts.bytes += text.len() as u64;
                    progress.documents(1, 1);
                    take(text)?;
                }
                None => counts.bad += 1,
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::progress::Silent;

    fn read(paths: &[String]) -> Result<(Vec<String>, CorpusCounts)> {
        let mut texts = Vec::new();
        let counts = Corpus::find(paths, "text")?.each(&Silent, &mut |text| {
            texts.push(text.to_string());
            Ok(())
        })?;
        Ok((texts, counts))
    }

    #[test]
    fn names_tell_what_a_file_holds_and_bad_records_are_counted() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str, bytes: &[u8]| {
            let path = dir.path().join(name);
            std::fs::write(&path, bytes).unwrap();
            path.display().to_string()
        };
        let json = b"{\"text\":\"a\\nb\"}\n{\"body\":\"c\"}\n{\"text\":\" \"}\n";
        let lines = zstd::encode_all(&b"one\n\n two \n\xff\n"[..], 3).unwrap();
        let paths = [at("x.jsonl", json), at("y.txt.zst", &lines)];
        let (texts, counts) = read(&paths).unwrap();
        assert_eq!(texts, ["a\nb", "one", " two "]);
        assert_eq!((counts.documents, counts.bytes, counts.bad), (3, 11, 2));
        let message = |paths: &[String]| read(paths).unwrap_err().to_string();
        assert!(message(&["nowhere.txt".into()]).contains("nowhere.txt"));
        let blank = at("blank.txt", b"\n \n");
        assert!(message(&[blank]).ends_with("found no line with text, wanted documents"));
        let other = at("other.jsonl", b"{\"body\":\"c\"}\n");
        assert!(message(&[other]).contains("1 records without a usable text"));
    }
}
