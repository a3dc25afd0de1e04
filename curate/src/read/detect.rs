//! Format of a file by its first bytes, decompressed (`format = "auto"`); of separated values and pages whose bytes are any text's, by
//! the name (`.csv`, `.tsv`, `.html`, `.htm`, `.xhtml`).

use std::io;
use std::path::Path;

use memchr::memmem;

use super::compression::{Piece, Source};
use super::objects::{self, Layout};
use super::{arrow, latex, package, pdf, storage, zim};
use crate::read::{Format, Input};

/// Bytes that decide.
const LOOKED_AT: usize = objects::TELLING;

/// The format of a file, or the kind of a file that no format reads.
///
/// # Errors
/// A file that cannot be opened or read.
pub(crate) fn detect(path: &Path, input: &Input) -> io::Result<Result<Format, &'static str>> {
    let mut source = Source::open(storage::open(path, &input.options)?, false)?;
    let mut head = Vec::new();
    while head.len() < LOOKED_AT {
        match source.next(&mut head) {
            Piece::Data { .. } => {}
            Piece::Failed(e) => return Err(e),
            Piece::End | Piece::Damage { .. } => break,
        }
    }
    head.truncate(LOOKED_AT);
    if package::is_package(&head) {
        let open = || storage::open(path, &input.options);
        return Ok(package::format_of(&head, open)?.ok_or("a ZIP archive"));
    }
    if latex::is_tar(&head) {
        return Ok(match latex::has_sources(&mut source, head)? {
            true => Ok(Format::Latex),
            false => Err("a tar archive"),
        });
    }
    let found = match (format_of(&head, input), is_marked_text(path)) {
        (Ok(Found::Fragment), false) => Ok(Format::Html),
        (Ok(Found::Fragment), true) => Ok(Format::Text),
        (Ok(Found::Format(format)), _) => Ok(format),
        (Err(kind), _) => Err(kind),
    };
    let has_rows = !head.trim_ascii().is_empty();
    Ok(match (found, named(path)) {
        (Ok(Format::Text), Some(named)) if has_rows => Ok(named),
        (found, _) => found,
    })
}

/// A path in lower case without the ending of a compression.
fn bare_name(path: &Path) -> String {
    let name = path.to_string_lossy().to_ascii_lowercase();
    let packed = [".gz", ".zst", ".bz2", ".xz", ".lz4"];
    let bare = packed.iter().find_map(|ending| name.strip_suffix(ending));
    bare.unwrap_or(&name).to_string()
}

/// Whether a file's name is that of a text which may start with a tag: Markdown, a text as it is, or a table.
fn is_marked_text(path: &Path) -> bool {
    let name = bare_name(path);
    let endings = [".md", ".markdown", ".mdx", ".rst", ".txt", ".csv", ".tsv"];
    endings.iter().any(|ending| name.ends_with(ending))
}

/// The format of a table or a page by the file's name, whatever compression it names.
fn named(path: &Path) -> Option<Format> {
    let bare = bare_name(path);
    let names = [
        (".csv", Format::Csv),
        (".tsv", Format::Tsv),
        (".html", Format::Html),
        (".htm", Format::Html),
        (".xhtml", Format::Html),
    ];
    let named = names.iter().find(|(ending, _)| bare.ends_with(ending));
    named.map(|(_, format)| *format)
}

/// A format, or the start of a page without a head, which texts may have too.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Found {
    Format(Format),
    Fragment,
}

fn format_of(head: &[u8], input: &Input) -> Result<Found, &'static str> {
    if let Some(text) = utf_16(head) {
        return format_of_text(text.as_bytes(), input);
    }
    match format_of_bytes(head)? {
        Some(format) => Ok(Found::Format(format)),
        None => format_of_text(head.strip_prefix(b"\xef\xbb\xbf").unwrap_or(head), input),
    }
}

/// The text of a file that starts with UTF-16's byte order mark.
fn utf_16(head: &[u8]) -> Option<std::borrow::Cow<'_, str>> {
    let (encoding, _) = encoding_rs::Encoding::for_bom(head)?;
    (encoding != encoding_rs::UTF_8).then(|| encoding.decode(head).0)
}

/// A format that bytes at the very start tell; None: a text.
fn format_of_bytes(head: &[u8]) -> Result<Option<Format>, &'static str> {
    if head.starts_with(b"WARC/") {
        return Ok(Some(archive(head)));
    }
    if head.starts_with(b"filedesc://") {
        return Ok(Some(Format::Warc));
    }
    if head.starts_with(b"PAR1") {
        return Ok(Some(Format::Parquet));
    }
    if arrow::is_arrow(head) {
        return Ok(Some(Format::Arrow));
    }
    if head.starts_with(zim::MAGIC) {
        return Ok(Some(Format::Zim));
    }
    if pdf::is_pdf(head) {
        return Ok(Some(Format::Pdf));
    }
    if let Some(kind) = magic_of(head) {
        return Err(kind);
    }
    if is_binary(head) {
        return Err("binary data");
    }
    Ok(None)
}

fn format_of_text(text: &[u8], input: &Input) -> Result<Found, &'static str> {
    let text = text.trim_ascii_start();
    let start = text[..text.len().min(4096)].to_ascii_lowercase();
    if memmem::find(&start, b"<mediawiki").is_some() {
        return Ok(Found::Format(Format::Wikipedia));
    }
    if let Some(is_page) = starts_html(text) {
        return Ok(match is_page {
            true => Found::Format(Format::Html),
            false => Found::Fragment,
        });
    }
    if latex::is_latex(text) {
        return Ok(Found::Format(Format::Latex));
    }
    match start.first() {
        Some(b'{') if start.starts_with(b"{\\rtf") => return Err("an RTF document"),
        Some(b'{') => return Ok(Found::Format(Format::Jsonl)),
        Some(b'[') if Layout::of(text) == Layout::Array => {
            return Ok(Found::Format(Format::Jsonl));
        }
        Some(b'[') if starts_array(&start[1..]) => {
            return Err("a JSON array that is not one of objects");
        }
        _ => {}
    }
    let end = memchr::memchr2(b'\n', b'\r', text).unwrap_or(text.len());
    for (delimiter, format) in [(b'\t', Format::Tsv), (input.table_delimiter(), Format::Csv)] {
        if names_text(&text[..end], delimiter, input) {
            return Ok(Found::Format(format));
        }
    }
    Ok(Found::Format(Format::Text))
}

/// Whether a JSON array goes on like this: with an object, or with a text that is all of an element.
fn starts_array(text: &[u8]) -> bool {
    let text = text.trim_ascii_start();
    let Some(string) = text.strip_prefix(b"\"") else {
        return text.starts_with(b"{");
    };
    let mut is_escaped = false;
    let end = string.iter().position(|b| {
        let is_end = *b == b'"' && !is_escaped;
        is_escaped = *b == b'\\' && !is_escaped;
        is_end
    });
    match end.map(|end| string[end + 1..].trim_ascii_start()) {
        Some([b']', ..]) => true,
        Some([b',', next @ ..]) => next.trim_ascii_start().starts_with(b"\""),
        Some(_) => false,
        // a long text, of which only the start is known
        None => !string.contains(&b'\n'),
    }
}

/// Tags that only a page starts with.
const PAGE_TAGS: [&[u8]; 7] = [
    b"!doctype html",
    b"html",
    b"head",
    b"body",
    b"meta",
    b"title",
    b"frameset",
];

/// Tags that a page without a head starts with: those of the WHATWG's MIME Sniffing Standard, section 7.1, that are not
/// above, and the sections, headings and lists of HTML 5.
const FRAGMENT_TAGS: [&[u8]; 38] = [
    b"script",
    b"iframe",
    b"h1",
    b"div",
    b"font",
    b"table",
    b"a",
    b"style",
    b"b",
    b"br",
    b"p",
    b"link",
    b"base",
    b"article",
    b"section",
    b"main",
    b"header",
    b"footer",
    b"nav",
    b"aside",
    b"h2",
    b"h3",
    b"h4",
    b"h5",
    b"h6",
    b"ul",
    b"ol",
    b"dl",
    b"pre",
    b"blockquote",
    b"center",
    b"span",
    b"noscript",
    b"figure",
    b"img",
    b"form",
    b"hr",
    b"details",
];

/// A comment whose end is not among the bytes that decide starts a page if there are more than so many.
const LONG_COMMENT: usize = 4096;

/// Whether a text starts with one of a page's tags, behind a declaration of XML, comments and white space: true for one that
/// only pages start with, false for one that texts may start with too; None for neither.
fn starts_html(mut text: &[u8]) -> Option<bool> {
    loop {
        text = text.trim_ascii_start();
        let end = if text.starts_with(b"<!--") {
            let end = memmem::find(&text[4..], b"-->");
            if end.is_none() && text.len() > LONG_COMMENT {
                return Some(false);
            }
            end.map(|at| 4 + at + 3)
        } else if text.starts_with(b"<?xml") {
            memmem::find(text, b"?>").map(|at| at + 2)
        } else {
            break;
        };
        text = &text[end?..];
    }
    let tag = text.strip_prefix(b"<")?;
    let is_named = |name: &&[u8]| {
        let length = name.len();
        let ends = |b: &u8| b.is_ascii_whitespace() || matches!(b, b'>' | b'/');
        tag.len() > length && tag[..length].eq_ignore_ascii_case(name) && ends(&tag[length])
    };
    if PAGE_TAGS.iter().any(is_named) {
        return Some(true);
    }
    FRAGMENT_TAGS.iter().any(is_named).then_some(false)
}

/// A line of at least two names, one of them the text's.
fn names_text(line: &[u8], delimiter: u8, input: &Input) -> bool {
    let names: Vec<&[u8]> = line.split(|&b| b == delimiter).collect();
    let bare = |name: &&[u8]| {
        let name = name.trim_ascii();
        let quoted = name.strip_prefix(b"\"").and_then(|n| n.strip_suffix(b"\""));
        String::from_utf8_lossy(quoted.unwrap_or(name)).into_owned()
    };
    names.len() > 1 && names.iter().any(|name| input.is_text_column(&bare(name)))
}

/// Kind of a WARC file by its first record that is no `warcinfo`.
fn archive(head: &[u8]) -> Format {
    let kinds = memmem::find_iter(head, b"\nWARC-Type:");
    let first = kinds
        .map(|at| head[at + 11..].trim_ascii_start())
        .find(|kind| !kind.starts_with(b"warcinfo"));
    match first {
        Some(kind) if kind.starts_with(b"conversion") => Format::Wet,
        Some(kind) if kind.starts_with(b"metadata") && is_wat(head) => Format::Wat,
        _ => Format::Warc,
    }
}

fn is_wat(head: &[u8]) -> bool {
    memmem::find(head, b"Content-Type: application/json").is_some()
}

/// More than one byte in a hundred is a control character; UTF-16 has zeros, but starts with a mark.
pub(crate) fn is_binary(head: &[u8]) -> bool {
    let head = &head[..head.len().min(4096)];
    let is_marked = head.starts_with(b"\xff\xfe") || head.starts_with(b"\xfe\xff");
    let control = |b: &&u8| **b < 9 || (14..27).contains(*b) || (28..32).contains(*b);
    !is_marked && head.iter().filter(control).count() > head.len() / 100
}

/// Kind of a file without records, by its first bytes.
pub(crate) fn magic_of(head: &[u8]) -> Option<&'static str> {
    let known = MAGICS.iter().find(|(magic, _)| head.starts_with(magic));
    known.map(|(_, kind)| *kind)
}

/// First bytes of files that hold no records.
const MAGICS: [(&[u8], &str); 12] = [
    (b"%PDF", "a PDF"),
    (b"\x89PNG", "a PNG image"),
    (b"\xff\xd8\xff", "a JPEG image"),
    (b"GIF8", "a GIF image"),
    (b"PK\x03\x04", "a ZIP archive"),
    (b"\x7fELF", "a program"),
    (b"ARROW1", "an Arrow file"),
    (b"\xff\xff\xff\xff", "an Arrow stream"),
    (b"FEA1", "a Feather 1 file"),
    (b"MMIDIDX", "an index of tokens"),
    (b"MLR", "a file of Millrace"),
    (b"Obj\x01", "an Avro file"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_tables_from_texts() {
        let dir = tempfile::tempdir().unwrap();
        let found = |name: &str, bytes: &[u8]| {
            let path = dir.path().join(name);
            std::fs::write(&path, bytes).unwrap();
            detect(&path, &Input::of(Format::Auto)).unwrap()
        };
        let rows = b"ID;Words\n1;some\n";
        for ending in ["", ".gz", ".zst", ".bz2", ".xz", ".lz4"] {
            assert_eq!(found(&format!("a.csv{ending}"), rows), Ok(Format::Csv));
            assert_eq!(found(&format!("a.TSV{ending}"), rows), Ok(Format::Tsv));
        }
        assert_eq!(found("a.txt", rows), Ok(Format::Text));
        assert_eq!(found("a.HTM", b"Notice: x\n<html>"), Ok(Format::Html));
        assert_eq!(found("csv", rows), Ok(Format::Text));
        assert_eq!(found("empty.csv", b"\n"), Ok(Format::Text));
        // bytes that tell a format go before the name
        assert_eq!(found("b.csv", b"{\"text\":\"a\"}\n"), Ok(Format::Jsonl));
    }

    #[test]
    fn pages_are_told_by_their_first_tag_behind_what_may_stand_before_it() {
        let dir = tempfile::tempdir().unwrap();
        let found = |name: &str, text: &str, encoding: fn(&str) -> Vec<u8>| {
            let path = dir.path().join(name);
            std::fs::write(&path, encoding(text)).unwrap();
            detect(&path, &Input::of(Format::Auto)).unwrap()
        };
        let utf_8 = |text: &str| text.as_bytes().to_vec();
        let utf_16_le = |text: &str| {
            let units = text.trim_start_matches('\u{feff}').encode_utf16();
            let units = units.flat_map(u16::to_le_bytes);
            [0xff, 0xfe].into_iter().chain(units).collect()
        };
        let utf_16_be = |text: &str| {
            let units = text.trim_start_matches('\u{feff}').encode_utf16();
            let units = units.flat_map(u16::to_be_bytes);
            [0xfe, 0xff].into_iter().chain(units).collect()
        };
        let long = format!("<!-- {} --><html>", "x ".repeat(5000));
        let longer = format!("<!-- {} --><html>", "x ".repeat(50_000));
        assert_eq!(found("a", &longer, utf_8), Ok(Format::Html));
        for text in [
            "<?xml version='1.0'?>\n<!DOCTYPE html PUBLIC '-//W3C//DTD XHTML 1.0 Strict//EN' 'x'><html>",
            "<!-- hi --><html>",
            "<!-- a -->\n<!-- b > c -->\r\n<BODY>",
            "\u{feff} \n<meta charset=utf-8>",
            "<title>A</title>",
            &long,
        ] {
            for encoding in [utf_8, utf_16_le, utf_16_be] {
                assert_eq!(found("a.txt", text, encoding), Ok(Format::Html), "{text}");
            }
        }
        for text in [
            "<script>x</script><html>",
            "<article>A",
            "<p>A",
            "<h1 id=a>A",
            "<BR/>A",
            "<!-- a --> <div\tclass=a>",
        ] {
            for encoding in [utf_8, utf_16_le] {
                assert_eq!(found("a", text, encoding), Ok(Format::Html), "{text}");
                assert_eq!(
                    found("a.html.gz", text, encoding),
                    Ok(Format::Html),
                    "{text}"
                );
                assert_eq!(
                    found("README.md", text, encoding),
                    Ok(Format::Text),
                    "{text}"
                );
            }
        }
        for text in [
            "<pink>A",
            "< p>A",
            "<!-- no end <html>",
            "<?xml version='1.0'?><feed>",
            "A <p>B",
            "<",
            "<p",
        ] {
            assert_eq!(found("a", text, utf_8), Ok(Format::Text), "{text}");
        }
    }

    #[test]
    fn first_bytes_tell_the_format() {
        let input = Input {
            text_key: crate::read::Keys::One("body.text".to_string()),
            ..Input::of(Format::Auto)
        };
        let plain = Input::of(Format::Auto);
        let format_of = |bytes: &[u8], input: &Input| {
            format_of(bytes, input).map(|found| match found {
                Found::Format(format) => format,
                Found::Fragment => Format::Html,
            })
        };
        let found = |bytes: &[u8]| format_of(bytes, &plain);
        let warc = |kind: &str, rest: &str| {
            format!(
                "WARC/1.0\r\nWARC-Type: warcinfo\r\n\r\nx\r\n\r\nWARC/1.0\r\nWARC-Type: {kind}\r\n{rest}\r\n\r\n"
            )
        };
        for (bytes, want) in [
            (warc("response", ""), Format::Warc),
            (warc("conversion", ""), Format::Wet),
            (
                warc("metadata", "Content-Type: application/json"),
                Format::Wat,
            ),
            (warc("metadata", ""), Format::Warc),
            ("filedesc://x".to_string(), Format::Warc),
            ("PAR1".to_string(), Format::Parquet),
            ("ARROW1\0\0".to_string(), Format::Arrow),
            ("\n {\"text\":\"a\"}\n".to_string(), Format::Jsonl),
            ("<mediawiki xml".to_string(), Format::Wikipedia),
            ("\u{feff}<!DOCTYPE html><html>".to_string(), Format::Html),
            ("id,\"text\"\n1,a\n".to_string(), Format::Csv),
            ("id\tcontent\r\n1\ta\n".to_string(), Format::Tsv),
            (
                "% a comment\n\\documentclass{article}\n".to_string(),
                Format::Latex,
            ),
            ("He wrote the text, and went.\n".to_string(), Format::Text),
            (String::new(), Format::Text),
        ] {
            assert_eq!(found(bytes.as_bytes()), Ok(want), "{bytes}");
        }
        assert_eq!(found(b"%PDF-1.4"), Ok(Format::Pdf));
        assert_eq!(found(b"\xff\xff\xff\xff\x10\0\0\0"), Ok(Format::Arrow));
        assert_eq!(found(b"FEA1\0\0\0\0"), Err("a Feather 1 file"));
        assert_eq!(found(b"\0\0\0\0a"), Err("binary data"));
        for objects in [
            &b"[{\"text\":\"a\"}]"[..],
            b" [\n  {\n    \"text\"",
            b"{\n  \"text\": \"a\"\n}\n",
        ] {
            assert_eq!(found(objects), Ok(Format::Jsonl));
        }
        for array in [
            &b"[{\"text\":\"a\"}]\n[{\"text\":\"b\"}]\n"[..],
            b" [ \"a\\\"b\", \"c\"]",
            b"[\"a\"]\n",
            b"[\"a",
        ] {
            assert!(found(array).is_err());
        }
        for text in [
            &b"[1] A note."[..],
            b"[\"A,\" he said, \"b\"]",
            b"[\"A\", he said]",
            b"[a]: b",
        ] {
            assert_eq!(found(text), Ok(Format::Text));
        }
        assert_eq!(found(b"{\\rtf1\\ansi A text.}"), Err("an RTF document"));
        assert_eq!(format_of(b"id,body\n", &input), Ok(Format::Text));
        assert_eq!(format_of(b"id,body.text\n", &input), Ok(Format::Csv));
        let semicolons = Input {
            delimiter: ";".to_string(),
            ..Input::of(Format::Auto)
        };
        assert_eq!(format_of(b"id;text\n", &semicolons), Ok(Format::Csv));
        assert_eq!(format_of(b"id;text\n", &plain), Ok(Format::Text));
    }
}
