//! Bytes of a page to text.
//!
//! In the order browsers use: byte order mark; `charset` of the Content-Type header; `meta` in the
//! first 1024 bytes (WHATWG encoding sniffing); then valid UTF-8; then chardetng's guess. A declared
//! charset that the bytes contradict loses when the page is valid UTF-8 with characters outside
//! ASCII: wrong declarations are common, such text by accident is not.

use std::borrow::Cow;

use encoding_rs::{Encoding, UTF_8, WINDOWS_1252};

/// Decodes; returns the text and the name of the charset.
pub(super) fn decode<'a>(
    bytes: &'a [u8],
    content_type: Option<&str>,
) -> (Cow<'a, str>, &'static str) {
    if let Some((encoding, skip)) = Encoding::for_bom(bytes) {
        let (text, _) = encoding.decode_without_bom_handling(&bytes[skip..]);
        return (text, encoding.name());
    }
    if let Ok(text) = std::str::from_utf8(bytes) {
        // ISO-2022-JP and HZ are ASCII bytes with escapes.
        let escaped = memchr::memchr2(0x1b, b'~', bytes).is_some();
        let declared = if escaped {
            declared(bytes, content_type)
        } else {
            None
        };
        match declared {
            Some(e) if !e.is_ascii_compatible() => return (e.decode(bytes).0, e.name()),
            _ => return (Cow::Borrowed(text), UTF_8.name()),
        }
    }
    let encoding = match declared(bytes, content_type) {
        Some(e) if e != UTF_8 => e,
        claimed => {
            let mut detector =
                chardetng::EncodingDetector::new(chardetng::Iso2022JpDetection::Deny);
            detector.feed(&bytes[..bytes.len().min(64 << 10)], true);
            let guess = detector.guess(None, chardetng::Utf8Detection::Allow);
            // Mostly UTF-8 with a few broken bytes stays UTF-8.
            if claimed == Some(UTF_8) && guess == WINDOWS_1252 && mostly_utf8(bytes) {
                UTF_8
            } else {
                guess
            }
        }
    };
    (
        encoding.decode_without_bom_handling(bytes).0,
        encoding.name(),
    )
}

/// Fewer broken sequences than whole ones.
fn mostly_utf8(bytes: &[u8]) -> bool {
    let (mut good, mut bad) = (0usize, 0usize);
    for chunk in bytes.utf8_chunks() {
        good += chunk.valid().chars().filter(|c| !c.is_ascii()).count();
        bad += usize::from(!chunk.invalid().is_empty());
    }
    good > bad
}

fn declared(bytes: &[u8], content_type: Option<&str>) -> Option<&'static Encoding> {
    content_type
        .and_then(|c| label_after(c.as_bytes()))
        .or_else(|| meta(&bytes[..bytes.len().min(1024)]))
}

/// The encoding named after `charset=`.
fn label_after(bytes: &[u8]) -> Option<&'static Encoding> {
    let lower = bytes.to_ascii_lowercase();
    let at = memchr::memmem::find(&lower, b"charset")? + 7;
    let rest = lower[at..]
        .trim_ascii_start()
        .strip_prefix(b"=")?
        .trim_ascii_start();
    let rest = rest
        .strip_prefix(b"\"")
        .or(rest.strip_prefix(b"'"))
        .unwrap_or(rest);
    let stop = |b: &u8| matches!(b, b'"' | b'\'' | b';' | b'>' | b'/') || b.is_ascii_whitespace();
    let end = rest.iter().position(stop).unwrap_or(rest.len());
    let encoding = Encoding::for_label(&rest[..end])?;
    // The page was readable as ASCII so far, so a UTF-16 label is a lie for UTF-8.
    let wide = encoding == encoding_rs::UTF_16LE || encoding == encoding_rs::UTF_16BE;
    Some(if wide { UTF_8 } else { encoding })
}

/// The first `meta` with a charset among the first bytes.
fn meta(head: &[u8]) -> Option<&'static Encoding> {
    let lower = head.to_ascii_lowercase();
    let mut from = 0;
    while let Some(i) = memchr::memmem::find(&lower[from..], b"<meta") {
        let start = from + i;
        let end = memchr::memchr(b'>', &lower[start..]).map_or(lower.len(), |e| start + e);
        if let Some(encoding) = label_after(&lower[start..end]) {
            return Some(encoding);
        }
        from = end.max(start + 5);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_meta_and_guess_in_that_order() {
        let cp1251: Vec<u8> = vec![0xcf, 0xf0, 0xe8, 0xe2, 0xe5, 0xf2];
        let (text, name) = decode(&cp1251, Some("text/html; charset=windows-1251"));
        assert_eq!(
            (text.as_ref(), name),
            ("\u{41f}\u{440}\u{438}\u{432}\u{435}\u{442}", "windows-1251")
        );
        let page = [b"<meta charset='windows-1251'>".as_slice(), &cp1251].concat();
        assert!(
            decode(&page, None)
                .0
                .ends_with("\u{41f}\u{440}\u{438}\u{432}\u{435}\u{442}")
        );
        let utf8 = "gr\u{fc}n".as_bytes();
        assert_eq!(
            decode(utf8, Some("text/html; charset=iso-8859-1")).0,
            "gr\u{fc}n"
        );
        assert_eq!(decode(b"caf\xe9", None).0, "caf\u{e9}");
    }
}
