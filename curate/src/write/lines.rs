//! Writer for JSON lines, compressed and atomic.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use flate2::write::GzEncoder;
use serde::Serialize;

use super::{AtomicFile, OutputFile};
use crate::error::{At, Result};

/// zstd level of shards: the library's default, 217 MB/s a core.
const ZSTD_LEVEL: i32 = 3;

enum Encoder {
    Zstd(Box<zstd::stream::write::Encoder<'static, AtomicFile>>),
    Gzip(Box<GzEncoder<AtomicFile>>),
}

/// A file of JSON lines being written.
pub(crate) struct JsonLines {
    encoder: Encoder,
    line: Vec<u8>,
    path: PathBuf,
}

impl JsonLines {
    /// Starts `root/name` under zstd.
    pub(crate) fn create(root: &Path, name: &str) -> Result<JsonLines> {
        let file = AtomicFile::create(root, name)?;
        let path = file.path();
        let mut encoder = zstd::stream::write::Encoder::new(file, ZSTD_LEVEL).at(&path)?;
        encoder.include_checksum(true).at(&path)?;
        Ok(JsonLines {
            encoder: Encoder::Zstd(Box::new(encoder)),
            line: Vec::new(),
            path,
        })
    }

    /// Starts `root/name` under gzip; its header holds neither name nor time.
    pub(crate) fn create_gzip(root: &Path, name: &str) -> Result<JsonLines> {
        let file = AtomicFile::create(root, name)?;
        let path = file.path();
        let encoder = GzEncoder::new(file, flate2::Compression::default());
        Ok(JsonLines {
            encoder: Encoder::Gzip(Box::new(encoder)),
            line: Vec::new(),
            path,
        })
    }

    /// Appends one record.
    pub(crate) fn write(&mut self, record: &impl Serialize) -> Result<()> {
        self.line.clear();
        serde_json::to_writer(&mut self.line, record)
            .map_err(io::Error::from)
            .at(&self.path)?;
        self.line.push(b'\n');
        let line = std::mem::take(&mut self.line);
        let written = self.write_line(&line);
        self.line = line;
        written
    }

    /// Appends a line already encoded, its line feed included.
    pub(crate) fn write_line(&mut self, line: &[u8]) -> Result<()> {
        match &mut self.encoder {
            Encoder::Zstd(encoder) => encoder.write_all(line),
            Encoder::Gzip(encoder) => encoder.write_all(line),
        }
        .at(&self.path)
    }

    /// Makes the file visible.
    pub(crate) fn finish(self) -> Result<OutputFile> {
        match self.encoder {
            Encoder::Zstd(encoder) => encoder.finish(),
            Encoder::Gzip(encoder) => encoder.finish(),
        }
        .at(&self.path)?
        .finish()
    }
}
