//! Records that a reader composed from a file's parts: a book from its chapters, a paper from its pages.
//!
//! Such a record is a JSON object. Its text is finished, or is in parts of HTML that are rendered when the record is
//! read, in the text format that the job asks for.

use std::borrow::Cow;
use std::io;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::Batch;
use super::compression::Source;
use super::rule::ReadRule;
use super::storage::Blob;
use crate::panics::caught;
use crate::verdict::Reason;

/// A document before its text is rendered.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Composed<'a> {
    /// The finished text.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(crate) text: Cow<'a, str>,
    /// HTML whose whole text counts, in order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) parts: Vec<String>,
    /// Name of the part in the document's id, such as `page-3`; empty: the whole file.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(crate) part: Cow<'a, str>,
    /// Metadata of the file.
    pub(crate) meta: Map<String, Value>,
    /// Headers, footers and page numbers that were left out.
    pub(crate) running_lines: u32,
    /// The file is sound, but none whose text can be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) lacks: Option<Lack>,
}

/// Why a sound file has no text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Lack {
    /// Its text is encrypted.
    Encrypted,
    /// It has pictures only.
    Text,
}

impl Lack {
    /// The drop it is counted under.
    pub(crate) fn reason(self) -> Reason {
        match self {
            Lack::Encrypted => {
                ReadRule::Encrypted.broken("encrypted", "text that is not encrypted")
            }
            Lack::Text => ReadRule::NoText.broken("no text", "text on a page"),
        }
    }
}

/// A part of a file that cannot be read.
#[derive(Debug, PartialEq)]
pub(crate) struct BadPart {
    /// Its offset in the file; 0 if unknown.
    pub(crate) offset: u64,
    /// Its name and the reason.
    pub(crate) why: String,
}

/// A file's document and its unreadable parts.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Reading<'a> {
    /// None if no part can be read, or if each is a document of its own.
    pub(crate) document: Option<Composed<'a>>,
    /// The parts of a file that is split, in order.
    pub(crate) parts: Vec<Composed<'a>>,
    pub(crate) bad: Vec<BadPart>,
}

/// Bad parts that are listed one by one; the others are one more.
const MAX_BAD: usize = 1000;

impl Reading<'_> {
    /// A file that cannot be read at all.
    pub(crate) fn bad(why: String) -> Reading<'static> {
        Reading {
            bad: vec![BadPart { offset: 0, why }],
            ..Reading::default()
        }
    }

    /// Adds the document as record 0, or the documents of the parts, then the bad parts; a document longer than `max` bytes
    /// is a bad record.
    pub(crate) fn push_to(self, batch: &mut Batch, max: usize) {
        let mut number = 0;
        for document in self.document.into_iter().chain(self.parts) {
            let start = batch.data.len();
            // strings and maps of them can be written, and a vector takes them
            let written = serde_json::to_writer(&mut batch.data, &document);
            let length = batch.data.len() - start;
            let why = match written {
                Ok(()) if length <= max => None,
                Ok(()) => Some(format!("text of {length} bytes, longer than {max}")),
                Err(e) => Some(e.to_string()),
            };
            match why {
                None => batch.push_read(0, number, start, None),
                Some(why) => {
                    batch.data.truncate(start);
                    let part = document.part;
                    batch.push_bad(
                        0,
                        number,
                        match part.is_empty() {
                            true => why,
                            false => format!("{part}: {why}"),
                        },
                    );
                }
            }
            number += 1;
        }
        let others = self.bad.len().saturating_sub(MAX_BAD);
        for part in self.bad.into_iter().take(MAX_BAD) {
            batch.push_bad(part.offset, number, part.why);
            number += 1;
        }
        if others > 0 {
            batch.push_bad(
                0,
                number,
                format!("{others} more parts that cannot be read"),
            );
        }
    }
}

/// A file that is read as one document, held in memory since it was opened.
pub(crate) struct WholeFile {
    /// None once it has been read; the reason if it is too long.
    bytes: Option<Result<Vec<u8>, String>>,
    consumed: u64,
    max: usize,
}

impl WholeFile {
    /// Reads up to `max` bytes.
    ///
    /// # Errors
    /// Of the storage and of the compression.
    pub(crate) fn open(blob: Box<dyn Blob>, max: usize) -> io::Result<WholeFile> {
        let mut source = Source::open(blob, false)?;
        Ok(WholeFile {
            bytes: Some(source.whole(max)?),
            consumed: source.consumed(),
            max,
        })
    }

    /// Bytes of a file that is not empty nor too long.
    pub(crate) fn bytes(&self) -> Option<&[u8]> {
        let bytes = self.bytes.as_ref()?.as_ref().ok()?;
        (!bytes.is_empty()).then_some(bytes)
    }

    /// Adds the document that `read` makes of the bytes, the first time. A panic of `read` is a file that cannot be read.
    pub(crate) fn fill(
        &mut self,
        batch: &mut Batch,
        read: impl FnOnce(Vec<u8>) -> Reading<'static>,
    ) {
        let Some(bytes) = self.bytes.take() else {
            return;
        };
        batch.consumed = self.consumed;
        let reading = match bytes {
            Err(why) => Reading::bad(why),
            Ok(bytes) if bytes.is_empty() => Reading::bad("the file is empty".to_string()),
            Ok(bytes) => caught(move || read(bytes)).unwrap_or_else(|panic| {
                Reading::bad(format!("the file contradicts itself: {panic}"))
            }),
        };
        reading.push_to(batch, self.max);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_comes_before_its_bad_parts_and_is_bounded() {
        let reading = |text: &str| Reading {
            document: Some(Composed {
                text: text.to_string().into(),
                ..Composed::default()
            }),
            bad: vec![BadPart {
                offset: 7,
                why: "page 2: broken".to_string(),
            }],
            ..Reading::default()
        };
        let mut batch = Batch::default();
        reading("a").push_to(&mut batch, 100);
        let read: Composed<'_> = serde_json::from_slice(batch.bytes(&batch.records[0])).unwrap();
        assert_eq!(read, reading("a").document.unwrap());
        let bad = &batch.records[1];
        assert_eq!((bad.offset, bad.number), (7, 1));
        assert_eq!(bad.bad.as_deref(), Some("page 2: broken"));
        let mut batch = Batch::default();
        reading(&"a".repeat(200)).push_to(&mut batch, 100);
        let why = batch.records[0].bad.as_deref().unwrap();
        assert!(why.ends_with("bytes, longer than 100"), "{why}");
        assert!(batch.data.is_empty());
    }

    #[test]
    fn parts_are_records_of_their_own_numbers_before_the_bad_ones() {
        let part = |n: usize, text: &str| Composed {
            text: text.to_string().into(),
            part: format!("page-{n}").into(),
            ..Composed::default()
        };
        let reading = Reading {
            parts: vec![part(1, "a"), part(2, &"b".repeat(300)), part(4, "c")],
            bad: vec![BadPart {
                offset: 0,
                why: "page 3: broken".to_string(),
            }],
            ..Reading::default()
        };
        let mut batch = Batch::default();
        reading.push_to(&mut batch, 200);
        let numbers: Vec<u64> = batch.records.iter().map(|raw| raw.number).collect();
        assert_eq!(numbers, [0, 1, 2, 3]);
        let read: Composed<'_> = serde_json::from_slice(batch.bytes(&batch.records[2])).unwrap();
        assert_eq!(read, part(4, "c"));
        let why = batch.records[1].bad.as_deref().unwrap();
        assert!(why.starts_with("page-2: text of"), "{why}");
    }
}
