//! Reader for MediaWiki XML dumps: a sequence of `<page>` elements, whose newest text is converted to plain text.
//!
//! Facts: MediaWiki's export schema 0.11 (docs/export-0.11.xsd). The exporter writes one element per line and
//! escapes `<`, `>`, `&` and `"` in texts, so pages are cut out at their tags without a general XML parser. A
//! record is the URL of the wiki's main page, a line feed, and the page. bzip2 dumps of many streams
//! (`-multistream`) are read as one.
//!
//! Ranges of a dump: a page belongs to the range that its tag starts in; of a bzip2 dump, to the range
//! that its stream starts in. The base is read from the head of the dump for every range.

use std::borrow::Cow;
use std::io;
use std::ops::Range;

use memchr::memmem;
use serde_json::json;

use super::Batch;
use super::compression::{Piece, Source};
use super::fields::{Fields, Unread};
use super::format::{Mismatch, starts_with};
use super::rule::ReadRule;
use super::storage::Blob;
use super::wikitext::{self, Wiki};
use crate::verdict::Reason;

const OPEN: &[u8] = b"<page>";
const CLOSE: &[u8] = b"</page>";

/// Reads pages.
pub(crate) struct PageReader {
    source: Source,
    buffer: Vec<u8>,
    at: usize,
    /// The page's end is not before this position.
    searched: usize,
    /// Offset of `buffer[at]` in the decompressed dump.
    offset: u64,
    number: u64,
    max: usize,
    /// Content of `<base>`, with a line feed.
    base: Vec<u8>,
    end: bool,
    consumed: u64,
    /// Before the first page of the dump, where the base is stated.
    in_head: bool,
    /// Pages that start here or later (in the file) belong to another range.
    stop: u64,
    ranged: bool,
    /// The rest belongs to another range, its damage too.
    is_past: bool,
    /// (buffer position, file offset) of the bzip2 streams in the buffer.
    streams: Vec<(usize, u64)>,
    /// The piece after the buffered bytes, if known.
    pending: Option<Piece>,
    /// The read that was refused.
    failed: Option<io::Error>,
}

/// The first tags of a dump must be within this many bytes.
const LOOKED_AT: usize = 1 << 20;

/// The base is searched in this many bytes before the first page.
const HEAD: usize = 64 << 10;

impl PageReader {
    pub(super) fn open(blob: Box<dyn Blob>, max: usize) -> io::Result<PageReader> {
        Ok(PageReader {
            source: Source::open(blob, false)?,
            buffer: Vec::new(),
            at: 0,
            searched: 0,
            offset: 0,
            number: 0,
            max,
            base: b"\n".to_vec(),
            end: false,
            consumed: 0,
            in_head: true,
            stop: u64::MAX,
            ranged: false,
            is_past: false,
            streams: Vec::new(),
            pending: None,
            failed: None,
        })
    }

    /// Whether the file can be a dump: its first tags must be present. The bytes read stay in the buffer.
    pub(super) fn expect_pages(&mut self) -> io::Result<Option<Mismatch>> {
        loop {
            let tags = [&b"<mediawiki"[..], OPEN];
            let has = |tag: &&[u8]| memmem::find(&self.buffer, tag).is_some();
            if tags.iter().any(has) {
                return Ok(None);
            }
            if self.pending.is_some() || self.buffer.len() >= LOOKED_AT {
                let is_damaged = matches!(self.pending, Some(Piece::Damage { .. }));
                let is_open = is_damaged && self.buffer.len() < HEAD;
                if is_open || self.buffer.trim_ascii_start().is_empty() {
                    return Ok(None);
                }
                return Ok(Some(Mismatch {
                    wanted: "a MediaWiki XML dump",
                    found: starts_with(&self.buffer),
                    start: "\"<mediawiki\"",
                }));
            }
            match self.next_piece() {
                Piece::Data { .. } => {}
                Piece::Failed(e) => return Err(e),
                other => self.pending = Some(other),
            }
        }
    }

    /// Reads more bytes; records where a bzip2 stream starts in them.
    fn next_piece(&mut self) -> Piece {
        if let Some(pending) = self.pending.take() {
            return pending;
        }
        let before = self.buffer.len();
        let piece = self.source.next(&mut self.buffer);
        if let Piece::Data { offset, .. } = &piece {
            let is_new = self.streams.last().is_none_or(|s| s.1 != *offset);
            if self.source.is_compressed() && is_new {
                self.streams.push((before, *offset));
            }
        }
        piece
    }

    /// Only the pages that start in a range of a plain dump or of one of many bzip2 streams; `open` opens the same file, to read
    /// its head and to find where the range after this one starts. An empty range has none: the one at the dump's
    /// start would otherwise have the damage before the first sound stream, which belongs to the range that follows it.
    pub(super) fn keep_to(
        &mut self,
        range: &Range<u64>,
        open: &dyn Fn() -> io::Result<Box<dyn Blob>>,
    ) -> io::Result<()> {
        self.ranged = true;
        self.stop = range.end;
        if range.is_empty() {
            self.end = true;
            return Ok(());
        }
        let compressed = self.source.is_compressed();
        if compressed {
            let stop = Source::open(open()?, false)?.sync(range.end)?;
            self.stop = stop.unwrap_or(u64::MAX);
        }
        if range.start == 0 {
            return Ok(());
        }
        let mut head = Source::open(open()?, false)?;
        while self.buffer.len() < HEAD && memmem::find(&self.buffer, OPEN).is_none() {
            match head.next(&mut self.buffer) {
                // the range that has the damage counts it
                Piece::Data { .. } | Piece::Damage { .. } => {}
                Piece::Failed(e) => return Err(e),
                Piece::End => break,
            }
        }
        self.read_base(memmem::find(&self.buffer, OPEN));
        self.in_head = false;
        self.buffer.clear();
        if compressed {
            let start = self.source.sync(range.start)?;
            self.end = start.is_none_or(|start| start >= self.stop);
        } else {
            self.source.seek(range.start)?;
        }
        self.offset = range.start;
        self.consumed = self.source.consumed();
        Ok(())
    }

    /// Reads the base from the text before the first page, if that is in the buffer.
    fn read_base(&mut self, first: Option<usize>) {
        let here = &self.buffer[self.at..];
        if let Some(base) = element(&here[..first.unwrap_or(here.len())], "base") {
            self.base = [base, b"\n"].concat();
        }
    }

    /// Identifies the page at the current position: its position in the dump, or in a range of a compressed one the
    /// position of its stream.
    fn place(&self) -> u64 {
        let stream = self.streams.iter().rev().find(|s| s.0 <= self.at);
        match stream {
            Some(stream) if self.ranged => stream.1,
            _ => self.offset,
        }
    }

    /// # Errors
    /// A read that was refused; `batch` is worth nothing then.
    pub(super) fn fill(&mut self, batch: &mut Batch) -> io::Result<()> {
        while !batch.is_full() {
            if !self.go_to_page(batch) {
                break;
            }
            if self.place() >= self.stop {
                self.end = true;
                self.skip(self.buffer.len() - self.at);
                break;
            }
            self.take_page(batch);
        }
        if self.end && !self.ranged && self.number == 0 && batch.records.is_empty() {
            self.bad(0, "no <page> in the dump".to_string(), batch);
        }
        batch.consumed = self.source.consumed().saturating_sub(self.consumed);
        self.consumed = self.source.consumed();
        self.failed.take().map_or(Ok(()), Err)
    }

    fn bad(&mut self, offset: u64, why: String, batch: &mut Batch) {
        batch.push_bad(offset, self.number, why);
        self.number += 1;
    }

    /// Drops `n` bytes.
    fn skip(&mut self, n: usize) {
        self.at += n;
        self.offset += n as u64;
    }

    /// Goes to the next page; false at the end of the dump.
    fn go_to_page(&mut self, batch: &mut Batch) -> bool {
        loop {
            let here = &self.buffer[self.at..];
            let page = memmem::find(here, OPEN);
            let here = here.len();
            if self.in_head {
                self.read_base(page);
            }
            if let Some(i) = page {
                self.in_head = false;
                self.skip(i);
                self.searched = self.at;
                return true;
            }
            // half a tag stays, and so does half a <base> before the first page
            let kept = if self.in_head { HEAD } else { OPEN.len() };
            self.skip(here.saturating_sub(kept));
            if self.end {
                return false;
            }
            // damage is counted there; the pages behind it are looked for all the same
            self.more(batch);
        }
    }

    /// Returns the page at the current position.
    fn take_page(&mut self, batch: &mut Batch) {
        let start = self.place();
        loop {
            let from = self.searched.max(self.at + OPEN.len());
            let tag = next_tag(&self.buffer[from..]);
            if let Some((i, Tag::Open)) = tag {
                let why = "the page does not end before the next one".to_string();
                self.bad(start, why, batch);
                return self.skip(from + i - self.at);
            }
            if let Some((i, Tag::Close)) = tag {
                let length = from + i + CLOSE.len() - self.at;
                if length > self.max {
                    self.bad(start, self.too_long(), batch);
                } else {
                    let page = &self.buffer[self.at..self.at + length];
                    let record = [&self.base, page].concat();
                    batch.push(start, self.number, &record, None);
                    self.number += 1;
                }
                return self.skip(length);
            }
            self.searched = self.buffer.len().saturating_sub(CLOSE.len()).max(from);
            if self.buffer.len() - self.at > self.max {
                return self.skip_page(start, batch);
            }
            if self.end {
                if !self.is_past {
                    let why = "the dump ends inside a page".to_string();
                    self.bad(start, why, batch);
                }
                return self.skip(self.buffer.len() - self.at);
            }
            if !self.more(batch) && !self.end {
                // the damage has been counted; the rest of the page is lost with it
                return self.skip(self.buffer.len() - self.at);
            }
        }
    }

    fn too_long(&self) -> String {
        format!("page longer than {} bytes", self.max)
    }

    /// Skips a page that is too long while streaming.
    fn skip_page(&mut self, start: u64, batch: &mut Batch) {
        self.bad(start, self.too_long(), batch);
        loop {
            let here = &self.buffer[self.at..];
            match next_tag(here) {
                Some((i, Tag::Open)) => return self.skip(i),
                Some((i, Tag::Close)) => return self.skip(i + CLOSE.len()),
                None => {}
            }
            let kept = here.len().min(CLOSE.len());
            self.skip(here.len() - kept);
            if self.end || !self.more(batch) {
                return;
            }
        }
    }

    /// Gets one more piece; false after damage, which is counted, and at the end.
    fn more(&mut self, batch: &mut Batch) -> bool {
        self.buffer.drain(..self.at);
        self.searched = self.searched.saturating_sub(self.at);
        let last = self.streams.iter().rposition(|s| s.0 <= self.at);
        self.streams.drain(..last.unwrap_or(0));
        for stream in &mut self.streams {
            stream.0 = stream.0.saturating_sub(self.at);
        }
        self.at = 0;
        match self.next_piece() {
            Piece::Data { .. } => true,
            Piece::Failed(e) => {
                // the current page is not reported as cut off
                (self.end, self.is_past, self.failed) = (true, true, Some(e));
                false
            }
            Piece::End => {
                self.end = true;
                false
            }
            Piece::Damage { offset, .. } if self.ranged && offset >= self.stop => {
                (self.end, self.is_past) = (true, true);
                false
            }
            Piece::Damage { offset, why, .. } => {
                let start = if self.ranged { offset } else { self.offset };
                self.bad(start, format!("{why} (at file byte {offset})"), batch);
                false
            }
        }
    }
}

/// End of a page: its own end tag, or the start of the next one if that is missing.
pub(crate) enum Tag {
    Open,
    Close,
}

/// The first tag of a page.
fn next_tag(bytes: &[u8]) -> Option<(usize, Tag)> {
    // both are looked for at once: either may be missing from all that follows
    memmem::find_iter(bytes, &OPEN[1..]).find_map(|i| match &bytes[..i] {
        [.., b'<'] => Some((i - 1, Tag::Open)),
        [.., b'<', b'/'] => Some((i - 2, Tag::Close)),
        _ => None,
    })
}

/// Content of the first element of this name.
fn element<'a>(xml: &'a [u8], name: &str) -> Option<&'a [u8]> {
    let open = format!("<{name}>");
    let start = memmem::find(xml, open.as_bytes())? + open.len();
    let close = format!("</{name}>");
    let end = memmem::find(&xml[start..], close.as_bytes())?;
    Some(&xml[start..start + end])
}

/// Content of the last `<text ...>`; empty if the element is.
fn newest_text(page: &[u8]) -> Option<&[u8]> {
    let start = memmem::rfind(page, b"<text")?;
    let open_end = start + memchr::memchr(b'>', &page[start..])?;
    if page[open_end - 1] == b'/' {
        return Some(b"");
    }
    let rest = &page[open_end + 1..];
    Some(&rest[..memmem::find(rest, b"</text>")?])
}

/// The five entities of XML, and numbers.
fn unescape(bytes: &[u8]) -> Result<Cow<'_, str>, String> {
    let text = std::str::from_utf8(bytes)
        .map_err(|e| format!("invalid UTF-8 at byte {} of the page", e.valid_up_to()))?;
    if !text.contains('&') {
        return Ok(text.into());
    }
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(i) = rest.find('&') {
        out.push_str(&rest[..i]);
        rest = &rest[i..];
        let (c, length) = match rest.as_bytes() {
            [b'&', b'l', b't', b';', ..] => ('<', 4),
            [b'&', b'g', b't', b';', ..] => ('>', 4),
            [b'&', b'a', b'm', b'p', b';', ..] => ('&', 5),
            [b'&', b'q', b'u', b'o', b't', b';', ..] => ('"', 6),
            [b'&', b'a', b'p', b'o', b's', b';', ..] => ('\'', 6),
            _ => wikitext::numeric_entity(rest).unwrap_or(('&', 1)),
        };
        out.push(c);
        rest = &rest[length..];
    }
    out.push_str(rest);
    Ok(out.into())
}

/// A page to a document of plain text; pages of other namespaces and redirects are dropped.
pub(super) fn read_page(bytes: &[u8], namespaces: &[i64]) -> Result<Fields, Unread> {
    let line_end = memchr::memchr(b'\n', bytes).unwrap_or(0);
    let (base, page) = bytes.split_at(line_end);
    let bad = |why: String| Unread::Bad(why);
    let title = element(page, "title").ok_or_else(|| bad("a page without a title".to_string()))?;
    let title = unescape(title).map_err(bad)?;
    let text = |name| {
        let value = element(page, name).unwrap_or_default();
        String::from_utf8_lossy(value).trim().to_string()
    };
    let base = unescape(base).map_err(bad)?;
    let mut fields = Fields {
        url: address(&base, &title),
        meta: Some(json!({ "title": title, "page": text("id") })),
        ..Fields::default()
    };
    let drop = |fields: Fields, reason: Reason| Unread::Drop(Box::new(fields), reason);
    let namespace = text("ns");
    let number: i64 = namespace
        .parse()
        .map_err(|_| bad(format!("namespace {namespace:?} of a page is no number")))?;
    if !namespaces.contains(&number) {
        let wanted: Vec<String> = namespaces.iter().map(i64::to_string).collect();
        let reason = ReadRule::Namespace.broken(number as f64, wanted.join(" "));
        return Err(drop(fields, reason));
    }
    if memmem::find(page, b"<redirect").is_some() {
        return Err(drop(
            fields,
            ReadRule::Redirect.broken(&*title, "an article"),
        ));
    }
    let model = text("model");
    if !model.is_empty() && model != "wikitext" {
        return Err(drop(fields, ReadRule::Model.broken(model, "wikitext")));
    }
    let source = newest_text(page).ok_or_else(|| bad("a page without a text".to_string()))?;
    let source = unescape(source).map_err(bad)?;
    if wikitext::is_redirect(&source) {
        return Err(drop(
            fields,
            ReadRule::Redirect.broken(&*title, "an article"),
        ));
    }
    fields.text = wikitext::plain_text(&source, &Wiki { title: &title });
    if fields.text.is_empty() {
        return Err(drop(fields, ReadRule::empty()));
    }
    Ok(fields)
}

/// URL of the page: the main page's folder and the title.
fn address(base: &str, title: &str) -> Option<String> {
    let folder = &base[..=base.rfind('/')?];
    Some(format!("{folder}{}", title.replace(' ', "_")))
}
