//! Pages of web archives: content of a WARC record, by its HTTP response and its content type.

use std::borrow::Cow;

use super::http::parse_response;
use super::input::Format;
use super::rule::ReadRule;
use super::warc::{Provenance, parse_record};
use crate::verdict::Reason;

/// A record of an archive, read as a page.
pub(crate) struct WebPage<'a> {
    /// `WARC-Target-URI`.
    pub(crate) url: Option<String>,
    /// `WARC-Date`.
    pub(crate) date: Option<String>,
    /// Where the record can be found again.
    pub(crate) provenance: Provenance,
    pub(crate) content: Content<'a>,
}

/// The content of a page.
pub(crate) enum Content<'a> {
    /// HTML, still to be extracted.
    Html(Html<'a>),
    /// Plain text, and the `X-Robots-Tag` it was sent with.
    Text(String, Option<String>),
    /// Nothing that is wanted.
    Drop(Reason),
    /// Nothing that can be read, and why.
    Bad(String),
}

/// HTML as it was sent.
pub(crate) struct Html<'a> {
    /// Without transfer and content codings.
    pub(crate) body: Cow<'a, [u8]>,
    /// `Content-Type` as sent.
    pub(crate) content_type: Option<String>,
    /// `X-Robots-Tag` as sent.
    pub(crate) robots: Option<String>,
}

/// Parses a record of a WARC, ARC or WET file; bodies are decoded up to `most` bytes. None: its header is broken.
pub(crate) fn parse_page(format: Format, bytes: &[u8], most: u64) -> Option<WebPage<'_>> {
    let record = parse_record(bytes)?;
    let is_text = format == Format::Wet;
    let content = match record.kind.as_str() {
        "conversion" if is_text => text(record.body, None),
        other if is_text => Content::Drop(ReadRule::RecordType.broken(other, "conversion")),
        "response" => response(record.body, record.content_type, most),
        "resource" | "conversion" => content(Html {
            body: record.body.into(),
            content_type: record.content_type,
            robots: None,
        }),
        other => {
            Content::Drop(ReadRule::RecordType.broken(other, "response, resource or conversion"))
        }
    };
    Some(WebPage {
        url: record.url,
        date: record.date,
        provenance: record.provenance,
        content,
    })
}

/// The block of a response; `block_type` is the content type of the block itself.
fn response(block: &[u8], block_type: Option<String>, most: u64) -> Content<'_> {
    let Some(response) = parse_response(block, most) else {
        let found = block_type.unwrap_or_default();
        return Content::Drop(ReadRule::Http.broken(found, "an HTTP response"));
    };
    if response.status != 200 {
        let status = f64::from(response.status);
        return Content::Drop(ReadRule::Status.broken(status, 200.0));
    }
    match response.body {
        Ok(body) => content(Html {
            body,
            content_type: response.content_type,
            robots: response.robots,
        }),
        Err(coding) => {
            let wanted = "gzip, deflate, br, zstd or none";
            Content::Drop(ReadRule::Encoding.broken(coding, wanted))
        }
    }
}

/// HTML or text, as the content type says; without one as the first bytes do.
fn content(page: Html<'_>) -> Content<'_> {
    let kind = page
        .content_type
        .as_deref()
        .and_then(|c| c.split(';').next())
        .unwrap_or_default()
        .trim();
    match kind.to_ascii_lowercase().as_str() {
        "text/html" | "application/xhtml+xml" => Content::Html(page),
        "" if looks_like_html(&page.body) => Content::Html(page),
        "text/plain" => text(&page.body, page.robots),
        other => Content::Drop(ReadRule::ContentType.broken(other, "text/html or text/plain")),
    }
}

fn text<'a>(body: &[u8], robots: Option<String>) -> Content<'a> {
    match std::str::from_utf8(body) {
        Ok(text) => Content::Text(text.to_string(), robots),
        Err(e) => {
            let at = e.valid_up_to();
            Content::Bad(format!("invalid UTF-8 at byte {at} of the text"))
        }
    }
}

/// Starts with a tag after white space.
fn looks_like_html(body: &[u8]) -> bool {
    let head = &body[..body.len().min(512)];
    let lower = head.trim_ascii_start().to_ascii_lowercase();
    lower.starts_with(b"<!doctype html") || memchr::memmem::find(&lower, b"<html").is_some()
}
