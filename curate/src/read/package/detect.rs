//! Format of a package: by its first entry, which two of the formats fix, else by the names of its entries.

use std::io;

use memchr::memmem;

use super::container::{Container, MAGIC};
use crate::read::input::Format;
use crate::read::storage::Blob;

/// Media types in an entry `mimetype`, by their start.
const TYPES: [(&[u8], Format); 2] = [
    (b"application/epub+zip", Format::Epub),
    (b"application/vnd.oasis.opendocument.text", Format::Odt),
];

/// The entry that holds the media type; EPUB and OpenDocument have it first, and not compressed.
const MIMETYPE: &str = "mimetype";

/// Bytes of a media type that are read at most.
const MAX_TYPE: u64 = 256;

/// Whether a file is a ZIP archive, by its first bytes.
pub(crate) fn is_package(head: &[u8]) -> bool {
    head.starts_with(MAGIC) && matches!(head.get(2..4), Some([3, 4] | [5, 6]))
}

/// Whether an entry of a WACZ file is one of its WARC files.
pub(crate) fn is_archive(name: &str) -> bool {
    name.starts_with("archive/") && (name.ends_with(".warc") || name.ends_with(".warc.gz"))
}

/// Format of an archive with these first bytes; None if it is no document.
///
/// # Errors
/// A read that was refused.
pub(crate) fn format_of(
    head: &[u8],
    open: impl Fn() -> io::Result<Box<dyn Blob>>,
) -> io::Result<Option<Format>> {
    // the name of the first entry is at byte 30
    let first = head.get(30..).unwrap_or_default();
    if let Some(content) = first.strip_prefix(MIMETYPE.as_bytes())
        && let Some(format) = of_type(content)
    {
        return Ok(Some(format));
    }
    let mut blob = open()?;
    let size = blob.size()?;
    let opened = match size {
        Some(size) => Container::open(blob, size, MAX_TYPE)?.ok(),
        None => None,
    };
    let Some(mut archive) = opened else {
        // a list that is cut off: the names of the first entries
        let has = |name: &str| memmem::find(head, name.as_bytes()).is_some();
        let is_wacz = has("archive/") && has(".warc");
        return Ok(of_names(has).or(is_wacz.then_some(Format::Wacz)));
    };
    if let Some(format) = of_names(|name| archive.has(name)) {
        return Ok(Some(format));
    }
    if archive.names().iter().any(|name| is_archive(name)) {
        return Ok(Some(Format::Wacz));
    }
    let kind = archive.entry(MIMETYPE)?.unwrap_or_default();
    Ok(of_type(&kind))
}

fn of_type(content: &[u8]) -> Option<Format> {
    let known = TYPES.iter().find(|(kind, _)| content.starts_with(kind));
    known.map(|(_, format)| *format)
}

fn of_names(has: impl Fn(&str) -> bool) -> Option<Format> {
    if has("word/document.xml") {
        Some(Format::Docx)
    } else if has("META-INF/container.xml") {
        Some(Format::Epub)
    } else {
        None
    }
}
