//! Random access to a file for the Parquet library, with a cache of a few blocks.

use std::collections::VecDeque;
use std::io::{self, Read};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use parquet::errors::ParquetError;
use parquet::file::reader::{ChunkReader, Length};

use super::pages::{HEAD, Pages};
use crate::read::storage::{Blob, Failure, Watched};

/// Size of a read; columns are read concurrently, each from its own block.
const BLOCK: usize = 1 << 20;
const BLOCKS: usize = 16;

struct Blocks {
    blob: Box<dyn Blob>,
    /// Offset and bytes, the last used last.
    blocks: VecDeque<(u64, Bytes)>,
}

/// A file whose bytes are read in any order.
#[derive(Clone)]
pub(super) struct Chunks {
    blocks: Arc<Mutex<Blocks>>,
    size: u64,
    failure: Failure,
    /// Limits on pages, once the file's metadata is known.
    pages: Option<Arc<Pages>>,
}

impl Chunks {
    pub(super) fn open(blob: Box<dyn Blob>) -> io::Result<Chunks> {
        let (mut blob, failure) = Watched::over(blob);
        let size = blob
            .size()?
            .ok_or_else(|| io::Error::other("the server does not report the file's size"))?;
        let blocks = VecDeque::new();
        Ok(Chunks {
            blocks: Arc::new(Mutex::new(Blocks { blob, blocks })),
            size,
            failure,
            pages: None,
        })
    }

    /// The same file, whose page headers are checked before the pages are read.
    pub(super) fn with_pages(self, pages: Pages) -> Chunks {
        Chunks {
            pages: Some(Arc::new(pages)),
            ..self
        }
    }

    /// The read that was refused, once: the library reports it as it reports damage.
    pub(super) fn refused(&self) -> Option<io::Error> {
        self.failure.take()
    }

    /// Up to `length` bytes from `offset`; fewer at the end of the file.
    pub(super) fn read_at(&self, offset: u64, length: usize) -> io::Result<Bytes> {
        let mut inner = self.blocks.lock().unwrap_or_else(PoisonError::into_inner);
        let left = usize::try_from(self.size.saturating_sub(offset)).unwrap_or(usize::MAX);
        let length = length.min(left);
        let holds = |(start, block): &(u64, Bytes)| {
            offset >= *start && offset + length as u64 <= *start + block.len() as u64
        };
        let known = inner.blocks.iter().position(holds);
        let (start, block) = match known.and_then(|i| inner.blocks.remove(i)) {
            Some(known) => known,
            None => {
                inner.blob.go_to(offset)?;
                let mut block = Vec::new();
                let wanted = length.max(BLOCK).min(left);
                inner
                    .blob
                    .by_ref()
                    .take(wanted as u64)
                    .read_to_end(&mut block)?;
                (offset, Bytes::from(block))
            }
        };
        let from = usize::try_from(offset - start).unwrap_or(0);
        let slice = block.slice(from..(from + length).min(block.len()));
        // a page larger than a block is used once
        if block.len() <= BLOCK {
            inner.blocks.push_back((start, block));
            if inner.blocks.len() > BLOCKS {
                inner.blocks.pop_front();
            }
        }
        Ok(slice)
    }
}

impl Length for Chunks {
    fn len(&self) -> u64 {
        self.size
    }
}

impl ChunkReader for Chunks {
    type T = Part;

    /// Page headers are read from here, and the footer's end. The library also calls it without reading.
    fn get_read(&self, start: u64) -> parquet::errors::Result<Part> {
        Ok(Part {
            chunks: self.clone(),
            offset: start,
            is_begun: false,
        })
    }

    fn get_bytes(&self, start: u64, length: usize) -> parquet::errors::Result<Bytes> {
        let bytes = self.read_at(start, length)?;
        if bytes.len() != length {
            let found = bytes.len();
            let why = format!("{length} bytes wanted at byte {start}, but only {found} follow");
            return Err(ParquetError::EOF(why));
        }
        if let Some(pages) = &self.pages {
            pages.check_body(start, &bytes)?;
        }
        Ok(bytes)
    }
}

/// A stream from some offset on.
pub(super) struct Part {
    chunks: Chunks,
    offset: u64,
    is_begun: bool,
}

impl Read for Part {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if !self.is_begun
            && let Some(pages) = &self.chunks.pages
        {
            let head = self.chunks.read_at(self.offset, HEAD)?;
            let checked = pages.check_header(self.offset, &head);
            checked.map_err(|e| io::Error::other(e.to_string()))?;
        }
        self.is_begun = true;
        let bytes = self.chunks.read_at(self.offset, out.len())?;
        out[..bytes.len()].copy_from_slice(&bytes);
        self.offset += bytes.len() as u64;
        Ok(bytes.len())
    }
}
