//! Reader for documents that are ZIP packages: EPUB books, Word (DOCX) and OpenDocument (ODT) texts.
//!
//! A file is one document, record 0 (of a book that is split each chapter is one), whose paragraphs are HTML until it is rendered (composed.rs). Each part that
//! cannot be read, a chapter or the notes, is a bad record of its own, and the others are kept. All parts together
//! expand to no more bytes than a record may have. A compressed package (`book.epub.gz`) is read as well.

mod container;
mod detect;
mod epub;
mod meta;
mod odt;
mod word;
mod xml;

use std::io::{self, Cursor, Read};

use super::Batch;
use super::composed::Reading;
use super::compression::{Piece, Source};
use super::format::{Mismatch, starts_with};
use super::input::Format;
use super::storage::Blob;
use container::{MAGIC, Refused};

pub(super) use container::Container;
pub(super) use detect::{format_of, is_archive, is_package};

/// Reads a package.
pub(crate) struct PackageReader {
    format: Format,
    /// Each chapter of a book is a document.
    by_chapter: bool,
    /// The file, until it was read; or why it cannot be.
    file: Option<Result<Opened, String>>,
    max: usize,
}

/// A file with its size.
struct Opened {
    blob: Box<dyn Blob>,
    size: u64,
    /// Bytes in the file, compressed or not.
    consumed: u64,
}

/// A file in memory.
struct Memory(Cursor<Vec<u8>>);

impl Read for Memory {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        self.0.read(out)
    }
}

impl Blob for Memory {
    fn go_to(&mut self, offset: u64) -> io::Result<()> {
        self.0.set_position(offset);
        Ok(())
    }

    fn size(&mut self) -> io::Result<Option<u64>> {
        Ok(Some(self.0.get_ref().len() as u64))
    }
}

impl PackageReader {
    /// `open` opens the file, more than once if need be.
    pub(super) fn open(
        open: impl Fn() -> io::Result<Box<dyn Blob>>,
        format: Format,
        by_chapter: bool,
        max: usize,
    ) -> io::Result<Result<PackageReader, Mismatch>> {
        let mut source = Source::open(open()?, false)?;
        let mut blob = open()?;
        let size = blob.size()?;
        let file = match size {
            Some(size) if !source.is_compressed() => {
                let mut head = Vec::new();
                if let Piece::Failed(e) = source.next(&mut head) {
                    return Err(e);
                }
                if !head.is_empty() && !head.starts_with(MAGIC) {
                    return Ok(Err(mismatch(format, &head)));
                }
                Ok(Opened {
                    blob,
                    size,
                    consumed: size,
                })
            }
            // compressed, or from a server that does not say how long it is
            _ => match source.whole(max)? {
                Ok(bytes) if !bytes.is_empty() && !bytes.starts_with(MAGIC) => {
                    return Ok(Err(mismatch(format, &bytes)));
                }
                Ok(bytes) => Ok(Opened {
                    size: bytes.len() as u64,
                    consumed: source.consumed(),
                    blob: Box::new(Memory(Cursor::new(bytes))),
                }),
                Err(why) => Err(why),
            },
        };
        Ok(Ok(PackageReader {
            format,
            by_chapter,
            file: Some(file),
            max,
        }))
    }

    /// # Errors
    /// A read that was refused; `batch` is worth nothing then.
    pub(super) fn fill(&mut self, batch: &mut Batch) -> io::Result<()> {
        let Some(file) = self.file.take() else {
            return Ok(());
        };
        let reading = match file {
            Err(why) => Reading::bad(why),
            Ok(file) if file.size == 0 => Reading::bad("the file is empty".to_string()),
            Ok(file) => {
                batch.consumed = file.consumed;
                match Container::open(file.blob, file.size, self.max as u64)? {
                    Ok(mut archive) => self.read(&mut archive)?,
                    Err(why) => Reading::bad(why),
                }
            }
        };
        reading.push_to(batch, self.max);
        Ok(())
    }

    fn read(&self, archive: &mut Container) -> io::Result<Reading<'static>> {
        match self.format {
            Format::Docx => word::read(archive),
            Format::Odt => odt::read(archive),
            // the other formats have other readers
            _ => epub::read(archive, self.by_chapter),
        }
    }
}

fn mismatch(format: Format, head: &[u8]) -> Mismatch {
    Mismatch {
        wanted: match format {
            Format::Docx => "a DOCX file",
            Format::Odt => "an ODT file",
            _ => "an EPUB file",
        },
        found: starts_with(head),
        start: "\"PK\" of a ZIP archive",
    }
}

impl Refused {
    /// In words.
    fn told(&self) -> String {
        match self {
            Refused::Absent => "not in the archive".to_string(),
            Refused::Encrypted => "encrypted".to_string(),
            Refused::Bad(_, why) => why.clone(),
        }
    }

    /// Offset of the entry; 0 if unknown.
    fn offset(&self) -> u64 {
        match self {
            Refused::Bad(offset, _) => *offset,
            Refused::Absent | Refused::Encrypted => 0,
        }
    }
}
