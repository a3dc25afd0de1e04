//! Readers over bytes in memory, for tests of the run time on hostile files.

use std::borrow::Cow;
use std::io::{self, Cursor, Read};
use std::path::Path;

use super::arrow::ArrowReader;
use super::compression::{Source, decode_body};
use super::latex::LatexReader;
use super::lines::LineReader;
use super::package::PackageReader;
use super::pages::PageReader;
use super::pdf::{How, PdfReader};
use super::storage::Blob;
use super::table::TableReader;
use super::wacz::WaczReader;
use super::warc::WarcReader;
use super::zim::ZimReader;
use super::{Batch, Kind, Reader};
use crate::read::{Format, Input};

/// A file in memory.
struct Bytes(Cursor<Vec<u8>>);

impl Read for Bytes {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        self.0.read(out)
    }
}

impl Blob for Bytes {
    fn go_to(&mut self, offset: u64) -> io::Result<()> {
        self.0.set_position(offset);
        Ok(())
    }

    fn size(&mut self) -> io::Result<Option<u64>> {
        Ok(Some(self.0.get_ref().len() as u64))
    }
}

/// Longest record of these files.
const MAX: usize = 32 << 20;

/// Reads all records of a file of this format.
pub(crate) fn read_bytes(format: Format, bytes: Vec<u8>) -> crate::Result<()> {
    let blob = Box::new(Bytes(Cursor::new(bytes)));
    let open = || -> io::Result<Kind> {
        Ok(match format {
            Format::Warc | Format::Wet | Format::Wat => {
                let mut reader = WarcReader::open(Source::open(blob, true)?, MAX);
                reader.expect_records()?;
                Kind::Warc(Box::new(reader))
            }
            Format::Wikipedia => {
                let mut reader = PageReader::open(blob, MAX)?;
                reader.expect_pages()?;
                Kind::Pages(Box::new(reader))
            }
            Format::Csv | Format::Tsv => {
                let delimiter = if format == Format::Csv { b',' } else { b'\t' };
                Kind::Table(Box::new(TableReader::open(blob, delimiter, MAX)?))
            }
            Format::Text | Format::Html => {
                Kind::Lines(Box::new(LineReader::open(blob, MAX, true)?))
            }
            format @ (Format::Epub | Format::Docx | Format::Odt) => {
                let bytes = blob.0.into_inner();
                let open = || -> io::Result<Box<dyn Blob>> {
                    Ok(Box::new(Bytes(Cursor::new(bytes.clone()))))
                };
                match PackageReader::open(open, format, false, MAX)? {
                    Ok(reader) => Kind::Package(Box::new(reader)),
                    Err(other) => Kind::Unknown(Some(other.found)),
                }
            }
            Format::Pdf => match PdfReader::open(blob, How::default(), MAX)? {
                Ok(reader) => Kind::Pdf(Box::new(reader)),
                Err(other) => Kind::Unknown(Some(other.found)),
            },
            Format::Latex => match LatexReader::open(blob, true, MAX)? {
                Ok(reader) => Kind::Latex(Box::new(reader)),
                Err(other) => Kind::Unknown(Some(other.found)),
            },
            Format::Wacz => {
                let bytes = blob.0.into_inner();
                let open = Box::new(move || -> io::Result<Box<dyn Blob>> {
                    Ok(Box::new(Bytes(Cursor::new(bytes.clone()))))
                });
                match WaczReader::open(open, MAX)? {
                    Ok(reader) => Kind::Wacz(Box::new(reader)),
                    Err(other) => Kind::Unknown(Some(other.found)),
                }
            }
            Format::Zim => match ZimReader::open(blob, MAX)? {
                Ok(reader) => Kind::Zim(Box::new(reader)),
                Err(other) => Kind::Unknown(Some(other.found)),
            },
            Format::Arrow => match ArrowReader::open(blob, &Input::default(), None, MAX)? {
                Ok(reader) => Kind::Arrow(Box::new(reader)),
                Err(other) => Kind::Unknown(Some(other.found)),
            },
            Format::Jsonl | Format::Dolma | Format::Parquet | Format::Auto => {
                let mut reader = LineReader::open(blob, MAX, false)?;
                reader.expect_values()?;
                Kind::Lines(Box::new(reader))
            }
        })
    };
    let path = Path::new("memory");
    let mut reader = Reader::new(path, crate::error::At::at(open(), path)?);
    let mut batch = Batch::default();
    while reader.fill(&mut batch)? {}
    Ok(())
}

/// Like [`read_bytes`], of a text.
pub(crate) fn read_records(format: Format, text: &str) -> crate::Result<()> {
    read_bytes(format, text.as_bytes().to_vec())
}

/// Undoes the coding of a body.
pub(crate) fn parse_http_body(coding: &str, body: &[u8]) {
    drop(decode_body(coding, Cow::Borrowed(body), MAX as u64));
}
