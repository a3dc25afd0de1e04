//! Reader for PDF: the text of its pages as one document, or a document for each page.
//!
//! `hayro-syntax` reads the objects, `hayro-cmap` the maps of codes; the text is put together here. A page that
//! cannot be read is a bad record with its number, and the others are kept. What a file may expand to is bounded
//! before it is opened (guard.rs); panics of the libraries are caught page by page.
//!
//! Left out: pictures, forms' fields, annotations, and the order of text that is written from right to left, which
//! stays that of the page. Files that want a password are dropped, and so are those of pictures alone. A file that opens
//! with the empty password is decrypted first (decrypt.rs).

mod content;
mod decrypt;
mod font;
mod glyphs;
mod guard;
mod layout;
mod running;

use std::io;

use hayro_syntax::metadata::Metadata;
use hayro_syntax::object::DateTime;
use hayro_syntax::page::Page;
use hayro_syntax::{LoadPdfError, Pdf};
use memchr::memmem;
use serde_json::{Map, Value};

use super::Batch;
use super::composed::{BadPart, Composed, Lack, Reading, WholeFile};
use super::format::{Mismatch, starts_with};
use super::storage::Blob;
use crate::panics::caught;
use crate::text::narrow;
use content::Shared;
use decrypt::Refused;
use layout::{Line, carries_on, join, paragraphs};
use running::{Sheet, running};

/// Pages that are read.
const MAX_PAGES: usize = 20_000;
/// Bytes before the header that readers skip.
const MAX_LEAD: usize = 1024;
/// Characters of a value of the metadata.
const MAX_VALUE: usize = 2000;

/// Reads a PDF.
pub(crate) struct PdfReader {
    file: WholeFile,
    how: How,
}

/// Settings of a reading.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct How {
    /// Headers and footers are text too.
    pub(crate) keeps_running: bool,
    /// Each page is a document.
    pub(crate) by_page: bool,
}

/// Whether a file is a PDF, by its first bytes.
pub(super) fn is_pdf(head: &[u8]) -> bool {
    memmem::find(&head[..head.len().min(MAX_LEAD)], b"%PDF-").is_some()
}

impl PdfReader {
    pub(super) fn open(
        blob: Box<dyn Blob>,
        how: How,
        max: usize,
    ) -> io::Result<Result<PdfReader, Mismatch>> {
        let file = WholeFile::open(blob, max)?;
        if let Some(bytes) = file.bytes()
            && !is_pdf(bytes)
        {
            return Ok(Err(Mismatch {
                wanted: "a PDF file",
                found: starts_with(bytes),
                start: "\"%PDF-\"",
            }));
        }
        Ok(Ok(PdfReader { file, how }))
    }

    /// Adds the documents, the first time.
    pub(super) fn fill(&mut self, batch: &mut Batch) {
        let how = self.how;
        self.file.fill(batch, |bytes| read(bytes, how));
    }
}

/// A page's lines.
struct Sound {
    number: usize,
    lines: Vec<Line>,
    bottom: f32,
    height: f32,
    /// Headers, footers and page numbers that were left out.
    left_out: usize,
    /// Characters that the page marks as artifacts.
    artifacts: u64,
}

/// Reads a file's pages.
pub(super) fn read(mut bytes: Vec<u8>, how: How) -> Reading<'static> {
    let mut info = None;
    if is_encrypted(&bytes) {
        match decrypt::decrypt(&mut bytes) {
            Ok(found) => info = found,
            Err(Refused::Locked) => return lacking(Lack::Encrypted, Map::new()),
            Err(Refused::Bad(why)) => return Reading::bad(why),
        }
        // its key may be written in another way
        if is_encrypted(&bytes) {
            return lacking(Lack::Encrypted, Map::new());
        }
    }
    if let Err(why) = guard::disarm(&mut bytes) {
        return Reading::bad(why);
    }
    let pdf = match Pdf::new(bytes) {
        Ok(pdf) => pdf,
        Err(LoadPdfError::Decryption(_)) => return lacking(Lack::Encrypted, Map::new()),
        Err(LoadPdfError::Invalid) => {
            return Reading::bad(
                "no pages: neither its table of objects nor a search finds them".to_string(),
            );
        }
    };
    let mut reading = Reading::default();
    let mut shared = Shared::default();
    let mut sound: Vec<Sound> = Vec::new();
    let pages = pdf.pages();
    for (i, page) in pages.iter().enumerate().take(MAX_PAGES) {
        let number = i + 1;
        let shown = caught(|| read_page(page, &mut shared));
        let shown = shown.unwrap_or_else(|panic| {
            // its caches may be half made
            shared = Shared::default();
            Err(format!("the file contradicts itself: {panic}"))
        });
        match shown {
            Ok((lines, artifacts)) => {
                let area = page.media_box();
                sound.push(Sound {
                    number,
                    lines,
                    #[expect(clippy::cast_possible_truncation, reason = "a length of a page")]
                    bottom: area.y0 as f32,
                    #[expect(clippy::cast_possible_truncation, reason = "a length of a page")]
                    height: area.height() as f32,
                    left_out: 0,
                    artifacts,
                });
            }
            Err(why) => reading.bad.push(BadPart {
                offset: 0,
                why: format!("page {number}: {why}"),
            }),
        }
    }
    if pages.len() > MAX_PAGES {
        let others = pages.len() - MAX_PAGES;
        reading.bad.push(BadPart {
            offset: 0,
            why: format!("{others} pages behind page {MAX_PAGES}"),
        });
    }
    if sound.is_empty() && reading.bad.is_empty() {
        return Reading::bad("no pages".to_string());
    }
    if sound.is_empty() {
        return reading;
    }
    if !how.keeps_running {
        leave_out(&mut sound);
    }
    let info = info.as_ref().unwrap_or_else(|| pdf.metadata());
    let meta = |pages_of: &[Sound], page: Option<usize>| {
        let mut own = Map::new();
        own.insert("pages".to_string(), pages.len().into());
        if let Some(page) = page {
            own.insert("page".to_string(), page.into());
        }
        let left_out: usize = pages_of.iter().map(|page| page.left_out).sum();
        if left_out > 0 {
            own.insert("running_lines".to_string(), left_out.into());
        }
        let artifacts: u64 = pages_of.iter().map(|page| page.artifacts).sum();
        if artifacts > 0 {
            own.insert("artifact_chars".to_string(), artifacts.into());
        }
        let mut meta = described(info);
        if let Some(producer) = info.producer.as_deref().and_then(value) {
            own.insert("producer".to_string(), producer.into());
        }
        meta.insert("pdf".to_string(), own.into());
        meta
    };
    if how.by_page {
        for page in sound.chunks(1) {
            let number = page[0].number;
            reading.parts.push(Composed {
                part: format!("page-{number}").into(),
                ..composed(page, meta(page, Some(number)))
            });
        }
    } else {
        reading.document = Some(composed(&sound, meta(&sound, None)));
    }
    reading
}

/// The document of some pages.
fn composed(pages: &[Sound], meta: Map<String, Value>) -> Composed<'static> {
    let text = text_of(pages);
    if text.is_empty() {
        return Composed {
            lacks: Some(Lack::Text),
            meta,
            ..Composed::default()
        };
    }
    Composed {
        text: text.into(),
        meta,
        running_lines: narrow(pages.iter().map(|page| page.left_out).sum()),
        ..Composed::default()
    }
}

fn lacking(lack: Lack, meta: Map<String, Value>) -> Reading<'static> {
    Reading {
        document: Some(Composed {
            lacks: Some(lack),
            meta,
            ..Composed::default()
        }),
        ..Reading::default()
    }
}

/// Lines of a page, and the number of characters that it marks as artifacts.
fn read_page(page: &Page<'_>, shared: &mut Shared) -> Result<(Vec<Line>, u64), String> {
    let shown = content::read(page, shared)?;
    if shown.unknown * 2 > shown.codes {
        let (unknown, all) = (shown.unknown, shown.codes);
        return Err(format!(
            "{unknown} of {all} glyphs have no characters: the fonts do not say which"
        ));
    }
    Ok((shown.lines.end(), shown.artifacts))
}

/// Removes headers and footers, which lines of several pages show.
fn leave_out(pages: &mut [Sound]) {
    let sheets: Vec<Sheet<'_>> = pages
        .iter()
        .map(|page| Sheet {
            number: page.number,
            lines: &page.lines,
            bottom: page.bottom,
            height: page.height,
        })
        .collect();
    let found = running(&sheets);
    for (page, lines) in pages.iter_mut().zip(found) {
        page.left_out = lines.len();
        let mut at = 0;
        page.lines.retain(|_| {
            at += 1;
            lines.binary_search(&(at - 1)).is_err()
        });
    }
}

/// The pages' paragraphs; one that goes on over a page's end is one.
fn text_of(pages: &[Sound]) -> String {
    let mut all: Vec<String> = Vec::new();
    let mut last_page = 0;
    for page in pages {
        for (i, paragraph) in paragraphs(&page.lines).into_iter().enumerate() {
            let follows = i == 0 && page.number == last_page + 1;
            match all.last_mut() {
                Some(before) if follows && carries_on(before, &paragraph) => {
                    join(before, &paragraph)
                }
                _ => all.push(paragraph),
            }
        }
        last_page = page.number;
    }
    all.join("\n\n")
}

/// Whether a trailer names an encryption: the key, and behind it a reference or a dictionary.
fn is_encrypted(bytes: &[u8]) -> bool {
    let plain = memmem::find_iter(bytes, b"/Encrypt").map(|at| at + 8);
    if plain.into_iter().any(|end| is_value(&bytes[end..])) {
        return true;
    }
    // letters of a name may be written as numbers
    memchr::memchr_iter(b'#', bytes).any(|at| {
        let from = at.saturating_sub(24);
        let Some(slash) = memchr::memrchr(b'/', &bytes[from..at]) else {
            return false;
        };
        let name = &bytes[from + slash + 1..];
        let mut wanted = b"Encrypt".iter();
        let mut read = 0;
        for want in wanted.by_ref() {
            let escaped = name.get(read + 1..read + 3).filter(|_| name[read] == b'#');
            let value = escaped
                .and_then(|hex| std::str::from_utf8(hex).ok())
                .and_then(|hex| u8::from_str_radix(hex, 16).ok());
            match (value, name.get(read)) {
                (Some(value), _) if value == *want => read += 3,
                (None, Some(byte)) if byte == want => read += 1,
                _ => return false,
            }
        }
        is_value(&name[read..])
    })
}

fn is_value(rest: &[u8]) -> bool {
    let space = rest.iter().take_while(|b| b.is_ascii_whitespace()).count();
    match rest.get(space) {
        Some(b'<') => rest.get(space + 1) == Some(&b'<'),
        Some(b'0'..=b'9') => space > 0,
        _ => false,
    }
}

/// Metadata by the names that pages use.
fn described(info: &Metadata) -> Map<String, Value> {
    let mut meta = Map::new();
    let mut put = |key: &str, found: Option<String>| {
        if let Some(found) = found {
            meta.insert(key.to_string(), found.into());
        }
    };
    put("title", info.title.as_deref().and_then(value));
    put("author", info.author.as_deref().and_then(value));
    put("description", info.subject.as_deref().and_then(value));
    put("keywords", info.keywords.as_deref().and_then(value));
    put("published", info.creation_date.as_ref().map(day));
    put("modified", info.modification_date.as_ref().map(day));
    meta
}

fn day(time: &DateTime) -> String {
    format!("{:04}-{:02}-{:02}", time.year, time.month, time.day)
}

/// A text of the metadata: UTF-16 or UTF-8 with a mark, else of a byte per character.
fn value(bytes: &[u8]) -> Option<String> {
    let text = match bytes {
        [0xfe, 0xff, ..] | [0xff, 0xfe, ..] | [0xef, 0xbb, 0xbf, ..] => {
            encoding_rs::UTF_8.decode(bytes).0
        }
        _ => match std::str::from_utf8(bytes) {
            Ok(text) => text.into(),
            Err(_) => encoding_rs::WINDOWS_1252.decode(bytes).0,
        },
    };
    let words: Vec<&str> = text
        .split(|c: char| c.is_whitespace() || c.is_control())
        .filter(|word| !word.is_empty())
        .collect();
    let text: String = words.join(" ").chars().take(MAX_VALUE).collect();
    (!text.is_empty()).then_some(text)
}

#[cfg(test)]
mod tests;
