//! HTTP responses inside WARC records: status, content type, and the decoded body.
//!
//! Transfer coding `chunked` and content coding gzip/deflate are undone where present; many crawlers store bodies
//! already decoded under the original header, so a body that does not look encoded is used as it is.

use std::borrow::Cow;

use memchr::memmem;

use super::decode_body;
use crate::text::excerpt;

/// Characters of a coding that are shown.
const SHOWN: usize = 100;

/// A parsed response.
pub(crate) struct Response<'a> {
    /// Status code.
    pub(crate) status: u16,
    /// `Content-Type` as sent.
    pub(crate) content_type: Option<String>,
    /// `X-Robots-Tag` as sent, several joined by commas.
    pub(crate) robots: Option<String>,
    /// Decoded body, or the coding that could not be undone.
    pub(crate) body: Result<Cow<'a, [u8]>, String>,
}

/// Parses a response; None if there is no status line.
pub(crate) fn parse_response(bytes: &[u8], most: u64) -> Option<Response<'_>> {
    let line_end = memchr::memchr(b'\n', bytes).unwrap_or(bytes.len());
    let line = std::str::from_utf8(&bytes[..line_end]).ok()?;
    let mut words = line.split_ascii_whitespace();
    if !words.next()?.starts_with("HTTP/") {
        return None;
    }
    let status = words.next()?.parse().ok()?;
    let crlf = memmem::find(bytes, b"\r\n\r\n").map(|i| i + 4);
    let lf = memmem::find(bytes, b"\n\n").map(|i| i + 2);
    let end = match (crlf, lf) {
        (Some(a), Some(b)) => a.min(b),
        (a, b) => a.or(b).unwrap_or(bytes.len()),
    };
    let (head, body) = bytes.split_at(end);
    let mut content_type = None;
    let mut robots = Vec::new();
    let (mut chunked, mut coding) = (false, String::new());
    for line in head.split(|&b| b == b'\n').skip(1) {
        let Some(colon) = memchr::memchr(b':', line) else {
            continue;
        };
        let value = String::from_utf8_lossy(line[colon + 1..].trim_ascii()).into_owned();
        match line[..colon].to_ascii_lowercase().as_slice() {
            b"content-type" if content_type.is_none() => content_type = Some(value),
            b"x-robots-tag" => robots.push(value),
            b"transfer-encoding" => chunked |= value.to_ascii_lowercase().contains("chunked"),
            b"content-encoding" => coding = value.to_ascii_lowercase(),
            _ => {}
        }
    }
    let body = if chunked {
        dechunk(body)
    } else {
        Cow::Borrowed(body)
    };
    Some(Response {
        status,
        content_type,
        robots: (!robots.is_empty()).then(|| robots.join(", ")),
        body: decode(body, &coding, most),
    })
}

/// Undoes the content coding where the bytes show it.
fn decode<'a>(body: Cow<'a, [u8]>, coding: &str, most: u64) -> Result<Cow<'a, [u8]>, String> {
    let coded = match coding {
        "gzip" | "x-gzip" => body.starts_with(&[0x1f, 0x8b]),
        "deflate" => !looks_like_text(&body),
        "" | "identity" | "utf-8" | "none" => false,
        _ => !looks_like_text(&body),
    };
    if !coded || body.is_empty() {
        return Ok(body);
    }
    decode_body(coding, body, most).ok_or_else(|| excerpt(coding, SHOWN).to_string())
}

/// No control characters among the first bytes.
fn looks_like_text(body: &[u8]) -> bool {
    let control = |b: &u8| *b < 0x20 && !b.is_ascii_whitespace();
    !body.iter().take(64).any(control)
}

/// Joins the chunks; returns the bytes as they are if they are not chunked.
fn dechunk(body: &[u8]) -> Cow<'_, [u8]> {
    let mut out = Vec::new();
    let mut rest = body;
    while let Some(line_end) = memchr::memchr(b'\n', rest) {
        let line = rest[..line_end].trim_ascii();
        let digits = line
            .split(|&b| b == b';')
            .next()
            .unwrap_or_default()
            .trim_ascii();
        let size = std::str::from_utf8(digits)
            .ok()
            .filter(|d| !d.is_empty() && d.len() <= 8)
            .and_then(|d| usize::from_str_radix(d, 16).ok());
        let Some(size) = size else {
            // Not a chunk header: either the body never was chunked, or it breaks off here.
            return if out.is_empty() {
                Cow::Borrowed(body)
            } else {
                Cow::Owned(out)
            };
        };
        rest = &rest[line_end + 1..];
        if size == 0 {
            break;
        }
        out.extend_from_slice(&rest[..size.min(rest.len())]);
        rest = rest.get(size..).unwrap_or_default();
        rest = rest.strip_prefix(b"\r").unwrap_or(rest);
        rest = rest.strip_prefix(b"\n").unwrap_or(rest);
        if rest.is_empty() {
            break;
        }
    }
    if out.is_empty() && !body.starts_with(b"0") {
        Cow::Borrowed(body)
    } else {
        Cow::Owned(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(bytes: &[u8]) -> String {
        let response = parse_response(bytes, 1 << 20).unwrap();
        String::from_utf8(response.body.unwrap().into_owned()).unwrap()
    }

    #[test]
    fn chunked_bodies_are_joined_and_false_claims_ignored() {
        let head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
        assert_eq!(
            body(&[&head[..], b"4\r\nWiki\r\n6;x=1\r\npedia \r\n0\r\n\r\n"].concat()),
            "Wikipedia "
        );
        assert_eq!(
            body(&[&head[..], b"<html>never chunked"].concat()),
            "<html>never chunked"
        );
    }

    #[test]
    fn a_body_that_only_claims_gzip_is_taken_as_it_is() {
        let head = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Type: text/html\r\n\r\n";
        assert_eq!(body(&[&head[..], b"<p>plain"].concat()), "<p>plain");
    }
}
