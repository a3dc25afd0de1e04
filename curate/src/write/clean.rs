//! Writer of the clean shard in the job's format.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::parquet::ParquetLines;
use super::{JsonLines, OutputFile};
use crate::error::{At, Result};
use crate::write::shard_file;

/// Format of clean documents.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum OutputFormat {
    /// JSON lines under zstd.
    #[default]
    JsonlZst,
    /// JSON lines under gzip.
    JsonlGz,
    /// Parquet: `id`, `text`, `url`, `source`, `subset`, `language`, `metadata` (JSON text).
    Parquet,
}

const ALL: [OutputFormat; 3] = [
    OutputFormat::JsonlZst,
    OutputFormat::JsonlGz,
    OutputFormat::Parquet,
];

fn extension(format: OutputFormat) -> &'static str {
    match format {
        OutputFormat::JsonlZst => "jsonl.zst",
        OutputFormat::JsonlGz => "jsonl.gz",
        OutputFormat::Parquet => "parquet",
    }
}

/// The clean file of a shard, in the format that exists; the default's name if there is none.
pub(crate) fn clean_file(out: &Path, shard: usize) -> (PathBuf, OutputFormat) {
    let path = |format| out.join(shard_file("clean", shard, extension(format)));
    let there = ALL.into_iter().find(|format| path(*format).exists());
    let format = there.unwrap_or_default();
    (path(format), format)
}

enum Writer {
    Lines(JsonLines),
    Parquet(Box<ParquetLines>),
}

/// Writer of clean documents.
pub(crate) struct CleanWriter {
    writer: Writer,
    /// The same shard in other formats, from an earlier job.
    stale: Vec<PathBuf>,
}

impl CleanWriter {
    /// Starts the clean file of a shard.
    pub(crate) fn create(root: &Path, shard: usize, format: OutputFormat) -> Result<CleanWriter> {
        let name = |format| shard_file("clean", shard, extension(format));
        let writer = match format {
            OutputFormat::JsonlZst => Writer::Lines(JsonLines::create(root, &name(format))?),
            OutputFormat::JsonlGz => Writer::Lines(JsonLines::create_gzip(root, &name(format))?),
            OutputFormat::Parquet => {
                Writer::Parquet(Box::new(ParquetLines::create(root, &name(format))?))
            }
        };
        let others = ALL.into_iter().filter(|f| *f != format);
        Ok(CleanWriter {
            writer,
            stale: others.map(|f| root.join(name(f))).collect(),
        })
    }

    /// Appends a document: its JSON line with the line feed.
    pub(crate) fn write_line(&mut self, line: &[u8]) -> Result<()> {
        match &mut self.writer {
            Writer::Lines(lines) => lines.write_line(line),
            Writer::Parquet(rows) => rows.write_line(line),
        }
    }

    /// Makes the file visible, and it alone.
    pub(crate) fn finish(self) -> Result<OutputFile> {
        let file = match self.writer {
            Writer::Lines(lines) => lines.finish()?,
            Writer::Parquet(rows) => rows.finish()?,
        };
        for path in self.stale {
            if path.exists() {
                std::fs::remove_file(&path).at(&path)?;
            }
        }
        Ok(file)
    }
}
