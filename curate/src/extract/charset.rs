//! Character decoding of pages: bytes to text.
//!
//! In the order of the HTML standard (WHATWG, section 13.2.3.2): byte order mark; `charset` of the
//! Content-Type header; `meta` or XML declaration in the first 1024 bytes (comments skipped); then
//! statistics: chardetng (the detector of Firefox) with the host's top-level domain as a hint.
//!
//! We differ where declarations are wrong: valid UTF-8 with characters outside ASCII is UTF-8 regardless of the
//! declaration, since it is never valid by accident; a declared charset that leaves errors in the page is replaced
//! by the statistics' choice if that leaves none; UTF-16 without a mark is recognized by its NULs.

use std::borrow::Cow;

use encoding_rs::{Encoding, UTF_8, UTF_16BE, UTF_16LE, WINDOWS_1252};

/// Bytes searched for a declaration.
const PRESCAN: usize = 1024;
/// Many pages declare later; nothing is lost by looking further before guessing.
const LONG_PRESCAN: usize = 16 << 10;
/// Bytes given to the statistics: characters outside ASCII come early or hardly ever.
const STATISTICS: usize = 64 << 10;

/// Decodes; returns the text and the name of the charset.
pub(super) fn decode<'a>(
    bytes: &'a [u8],
    content_type: Option<&str>,
    url: Option<&str>,
) -> (Cow<'a, str>, &'static str) {
    if let Some((encoding, skip)) = Encoding::for_bom(bytes) {
        let (text, _) = encoding.decode_without_bom_handling(&bytes[skip..]);
        return (text, encoding.name());
    }
    let declared = || {
        content_type
            .and_then(|c| label_after(c.as_bytes()))
            .or_else(|| in_page(&bytes[..bytes.len().min(PRESCAN)]))
            .or_else(|| in_page(&bytes[..bytes.len().min(LONG_PRESCAN)]))
    };
    if let Some(encoding) = wide(bytes) {
        return decoded(encoding, bytes);
    }
    if let Ok(text) = std::str::from_utf8(bytes) {
        // ISO-2022-JP is ASCII bytes with escapes.
        let escaped = memchr::memchr(0x1b, bytes).is_some();
        return match declared().filter(|e| escaped && !e.is_ascii_compatible()) {
            Some(encoding) => decoded(encoding, bytes),
            None => (Cow::Borrowed(text), UTF_8.name()),
        };
    }
    match declared() {
        // A page cut off inside a character, or with some broken bytes, is still UTF-8.
        Some(e) if e == UTF_8 && mostly_utf8(bytes) => decoded(UTF_8, bytes),
        Some(e) if e == UTF_8 => decoded(guess(bytes, url), bytes),
        Some(e) if e.is_single_byte() => decoded(e, bytes),
        Some(e) => {
            let (text, _, is_broken) = e.decode(bytes);
            if is_broken {
                let other = guess(bytes, url);
                let (better, _, still_broken) = other.decode(bytes);
                if !still_broken {
                    return (better, other.name());
                }
            }
            (text, e.name())
        }
        None if mostly_utf8(bytes) => decoded(UTF_8, bytes),
        None => decoded(guess(bytes, url), bytes),
    }
}

fn decoded<'a>(encoding: &'static Encoding, bytes: &'a [u8]) -> (Cow<'a, str>, &'static str) {
    let text = encoding.decode_without_bom_handling(bytes).0;
    (text, encoding.name())
}

/// Encoding guessed by the statistics.
fn guess(bytes: &[u8], url: Option<&str>) -> &'static Encoding {
    let mut detector = chardetng::EncodingDetector::new(chardetng::Iso2022JpDetection::Deny);
    // Only the part with characters outside ASCII is informative.
    let first = bytes.iter().position(|b| !b.is_ascii()).unwrap_or(0);
    let start = first.saturating_sub(256);
    detector.feed(&bytes[start..bytes.len().min(start + STATISTICS)], true);
    let host = url
        .and_then(|u| url::Url::parse(u).ok())
        .and_then(|u| u.host_str().map(str::to_ascii_lowercase));
    // The detector wants a plain lower-case domain and panics on anything else.
    let domain = host
        .as_deref()
        .and_then(|h| h.rsplit('.').next())
        .filter(|d| d.len() >= 2 && d.bytes().all(|b| b.is_ascii_lowercase()));
    let guess = detector.guess(domain.map(str::as_bytes), chardetng::Utf8Detection::Deny);
    if guess == UTF_8 { WINDOWS_1252 } else { guess }
}

/// UTF-16 without a mark: markup is ASCII, so every other byte is NUL.
fn wide(bytes: &[u8]) -> Option<&'static Encoding> {
    let head = &bytes[..bytes.len().min(256)];
    let pairs = head.len() / 2;
    let zeros = |offset: usize| {
        head.iter()
            .skip(offset)
            .step_by(2)
            .filter(|&&b| b == 0)
            .count()
    };
    let (even, odd) = (zeros(0), zeros(1));
    if pairs < 4 {
        None
    } else if odd * 10 >= pairs * 8 && even * 10 < pairs {
        Some(UTF_16LE)
    } else if even * 10 >= pairs * 8 && odd * 10 < pairs {
        Some(UTF_16BE)
    } else {
        None
    }
}

/// More whole characters outside ASCII than broken ones.
fn mostly_utf8(bytes: &[u8]) -> bool {
    let (mut good, mut bad) = (0usize, 0usize);
    for chunk in bytes.utf8_chunks() {
        let valid = chunk.valid();
        good += valid.bytes().filter(|b| b & 0xc0 == 0xc0).count();
        bad += usize::from(!chunk.invalid().is_empty());
    }
    good > bad
}

/// The encoding named after `charset=`.
fn label_after(bytes: &[u8]) -> Option<&'static Encoding> {
    let lower = bytes.to_ascii_lowercase();
    let mut from = 0;
    loop {
        let at = from + memchr::memmem::find(&lower[from..], b"charset")? + 7;
        let rest = lower[at..].trim_ascii_start();
        let Some(rest) = rest.strip_prefix(b"=") else {
            from = at;
            continue;
        };
        return named(rest.trim_ascii_start());
    }
}

/// The encoding whose label begins `rest`, quoted or not.
fn named(rest: &[u8]) -> Option<&'static Encoding> {
    let rest = rest
        .strip_prefix(b"\"")
        .or(rest.strip_prefix(b"'"))
        .unwrap_or(rest);
    let stop = |b: &u8| {
        matches!(b, b'"' | b'\'' | b';' | b',' | b'>' | b'/' | b'?') || b.is_ascii_whitespace()
    };
    let end = rest.iter().position(stop).unwrap_or(rest.len());
    let encoding = Encoding::for_label(&rest[..end])?;
    // The page was readable as ASCII so far, so a UTF-16 label must mean UTF-8.
    let wide = encoding == UTF_16LE || encoding == UTF_16BE;
    Some(if wide { UTF_8 } else { encoding })
}

/// The first declaration among the first bytes.
fn in_page(head: &[u8]) -> Option<&'static Encoding> {
    let lower = head.to_ascii_lowercase();
    if lower.starts_with(b"<?xml") {
        let end = memchr::memchr(b'>', &lower)?;
        if let Some(at) = memchr::memmem::find(&lower[..end], b"encoding=") {
            return named(&lower[at + 9..end]);
        }
    }
    let mut from = 0;
    while let Some(i) = lower
        .get(from..)
        .and_then(|rest| memchr::memchr(b'<', rest))
    {
        let start = from + i;
        let rest = &lower[start..];
        if rest.starts_with(b"<!--") {
            let end = memchr::memmem::find(&rest[2..], b"-->")?;
            from = start + 2 + end + 3;
            continue;
        }
        from = start + 1;
        if rest.starts_with(b"<meta") {
            let end = memchr::memchr(b'>', rest).unwrap_or(rest.len());
            if let Some(encoding) = label_after(&rest[..end]) {
                return Some(encoding);
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const CP1251: [u8; 6] = [0xcf, 0xf0, 0xe8, 0xe2, 0xe5, 0xf2];
    const HELLO: &str = "\u{41f}\u{440}\u{438}\u{432}\u{435}\u{442}";

    #[test]
    fn mark_header_meta_and_statistics_in_that_order() {
        let (text, name) = decode(&CP1251, Some("text/html; charset=windows-1251"), None);
        assert_eq!((text.as_ref(), name), (HELLO, "windows-1251"));
        let page = [b"<meta charset='windows-1251'>".as_slice(), &CP1251].concat();
        assert!(decode(&page, None, None).0.ends_with(HELLO));
        let (_, name) = decode(&page, Some("text/html; charset=koi8-r"), None);
        assert_eq!(name, "KOI8-R");
        let marked = [b"\xef\xbb\xbf".as_slice(), HELLO.as_bytes()].concat();
        let (text, name) = decode(&marked, Some("text/html; charset=koi8-r"), None);
        assert_eq!((text.as_ref(), name), (HELLO, "UTF-8"));
        assert_eq!(decode(b"caf\xe9", None, None).0, "caf\u{e9}");
        let hidden = [b"<!-- <meta charset=koi8-r> --><meta http-equiv=content-type content='text/html; charset=windows-1251'>".as_slice(), &CP1251].concat();
        assert_eq!(decode(&hidden, None, None).1, "windows-1251");
    }

    #[test]
    fn wrong_declarations_are_survived() {
        let utf8 = "gr\u{fc}n".as_bytes();
        assert_eq!(
            decode(utf8, Some("text/html; charset=iso-8859-1"), None).0,
            "gr\u{fc}n"
        );
        // Declared UTF-8, written in windows-1251.
        let text = "\u{42d}\u{442}\u{43e} \u{440}\u{443}\u{441}\u{441}\u{43a}\u{438}\u{439} \u{442}\u{435}\u{43a}\u{441}\u{442} \u{43e} \u{43f}\u{43e}\u{433}\u{43e}\u{434}\u{435}. ".repeat(4);
        let (bytes, _, _) = encoding_rs::WINDOWS_1251.encode(&text);
        assert_eq!(
            decode(&bytes, Some("text/html; charset=utf-8"), None).0,
            text
        );
        // Declared Big5, written in windows-1251.
        assert_eq!(
            decode(&bytes, Some("text/html; charset=big5"), None).0,
            text
        );
        let wide: Vec<u8> = "<html>wide"
            .encode_utf16()
            .flat_map(u16::to_le_bytes)
            .collect();
        assert_eq!(
            decode(&wide, Some("text/html; charset=utf-8"), None).0,
            "<html>wide"
        );
        // A page cut inside a character.
        assert_eq!(
            decode(
                b"gr\xc3\xbcn gr\xc3\xbcn \xc3",
                Some("text/html; charset=utf-8"),
                None
            )
            .1,
            "UTF-8"
        );
    }

    #[test]
    fn odd_hosts_do_not_upset_the_detector() {
        for url in [
            "http://xn--p1ai/",
            "http://1.2.3.4/",
            "http://[::1]/",
            "x",
            "http://a.RU/",
            "http://a.b1/",
        ] {
            let _ = decode(b"\xe9\xe8", None, Some(url));
        }
    }
}
