//! Writers of signature files: of a shard document by document, of an index by copying.

use std::io::Write;
use std::path::Path;

use xxhash_rust::xxh3::{xxh3_64, xxh3_128};

use super::layout::{HEADER, Layout};
use super::{NO_SIGNATURE, Origin, Signature, SignatureShape};
use crate::error::{At, Result};
use crate::write::{AtomicFile, OutputFile};

/// Writes a `.sig` or an `.index` file.
pub(crate) struct SignatureWriter {
    file: AtomicFile,
    layout: Layout,
    /// Header, then checksums of columns: the part that readers check first.
    frame: Vec<u8>,
    /// Crawls, which an index has after them.
    crawls: Vec<u128>,
    count: u64,
    /// The current group's columns.
    columns: Vec<Vec<u8>>,
}

impl SignatureWriter {
    pub(crate) fn create(
        root: &Path,
        name: &str,
        shape: SignatureShape,
        origin: Origin,
    ) -> Result<SignatureWriter> {
        let layout = Layout {
            shape,
            is_index: false,
        };
        let header = layout.header(origin.shard, origin.run);
        SignatureWriter::start(root, name, layout, header)
    }

    /// An index of documents of these crawls.
    pub(crate) fn create_index(
        root: &Path,
        name: &str,
        shape: SignatureShape,
        crawls: &[u128],
    ) -> Result<SignatureWriter> {
        let layout = Layout {
            shape,
            is_index: true,
        };
        let number = u32::try_from(crawls.len()).unwrap_or(u32::MAX);
        let mut writer = SignatureWriter::start(root, name, layout, layout.header(number, 0))?;
        writer.crawls = crawls.to_vec();
        Ok(writer)
    }

    fn start(root: &Path, name: &str, layout: Layout, header: Vec<u8>) -> Result<SignatureWriter> {
        let mut file = AtomicFile::create(root, name)?;
        file.write_all(&header).at(&file.path())?;
        Ok(SignatureWriter {
            file,
            layout,
            frame: header,
            crawls: Vec::new(),
            count: 0,
            columns: vec![Vec::new(); layout.columns()],
        })
    }

    pub(crate) fn write(&mut self, signature: &Signature) -> Result<()> {
        let [exact, chars, source, quality, bands @ ..] = self.columns.as_mut_slice() else {
            return Ok(());
        };
        exact.extend_from_slice(&signature.exact.to_le_bytes());
        chars.extend_from_slice(&signature.chars.to_le_bytes());
        source.extend_from_slice(&signature.source.to_le_bytes());
        // There are many bit patterns that are no number; files have one.
        let figure = signature.quality;
        let figure = if figure.is_nan() { f32::NAN } else { figure };
        quality.extend_from_slice(&figure.to_le_bytes());
        let width = self.layout.shape.width as usize;
        for (i, band) in bands.iter_mut().enumerate() {
            for j in i * width..(i + 1) * width {
                let key = signature.keys.get(j).copied().unwrap_or(NO_SIGNATURE);
                band.extend_from_slice(&key.to_le_bytes());
            }
        }
        self.end_row()
    }

    /// Copies a document into an index from the columns of its group in another file of this shape, all but where it was.
    pub(crate) fn copy(&mut self, columns: &[Vec<u8>], row: usize, place: [u32; 3]) -> Result<()> {
        let Some(own) = self.columns.len().checked_sub(1) else {
            return Ok(());
        };
        self.copy_columns(&columns[..own.min(columns.len())], row);
        let last = &mut self.columns[own];
        place
            .iter()
            .for_each(|n| last.extend_from_slice(&n.to_le_bytes()));
        self.end_row()
    }

    /// Copies a document into the signatures of a shard from the columns of its group in another such file of this shape.
    pub(crate) fn copy_row(&mut self, columns: &[Vec<u8>], row: usize) -> Result<()> {
        self.copy_columns(columns, row);
        self.end_row()
    }

    fn copy_columns(&mut self, columns: &[Vec<u8>], row: usize) {
        for (i, (to, from)) in self.columns.iter_mut().zip(columns).enumerate() {
            let bytes = usize::try_from(self.layout.bytes(i)).unwrap_or(0);
            to.extend_from_slice(&from[row * bytes..(row + 1) * bytes]);
        }
    }

    fn end_row(&mut self) -> Result<()> {
        self.count += 1;
        if self.count.is_multiple_of(self.layout.shape.group()) {
            self.end_group()?;
        }
        Ok(())
    }

    fn end_group(&mut self) -> Result<()> {
        let path = self.file.path();
        for column in &mut self.columns {
            self.frame.extend_from_slice(&xxh3_64(column).to_le_bytes());
            self.file.write_all(column).at(&path)?;
            column.clear();
        }
        Ok(())
    }

    pub(crate) fn finish(mut self) -> Result<OutputFile> {
        if !self.count.is_multiple_of(self.layout.shape.group()) {
            self.end_group()?;
        }
        for crawl in &self.crawls {
            self.frame.extend_from_slice(&crawl.to_le_bytes());
        }
        self.frame.extend_from_slice(&self.count.to_le_bytes());
        let path = self.file.path();
        self.file.write_all(&self.frame[HEADER..]).at(&path)?;
        let frame = xxh3_128(&self.frame).to_le_bytes();
        self.file.write_all(&frame).at(&path)?;
        let digest = self.file.digest();
        self.file.write_all(&digest.to_le_bytes()).at(&path)?;
        self.file.finish()
    }
}
