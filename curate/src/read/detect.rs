//! Format of a file by its first bytes, decompressed (`format = "auto"`); of separated values, whose bytes are any text's, by the
//! name (`.csv`, `.tsv`).

use std::io;
use std::path::Path;

use memchr::memmem;

use super::compression::{Piece, Source};
use super::{arrow, latex, package, pdf, storage, zim};
use crate::read::{Format, Input};

/// Bytes that decide.
const LOOKED_AT: usize = 64 << 10;

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
    let found = format_of(&head, input);
    let has_rows = !head.trim_ascii().is_empty();
    Ok(match (found, table_named(path)) {
        (Ok(Format::Text), Some(table)) if has_rows => Ok(table),
        (found, _) => found,
    })
}

/// The format of a table by the file's name, whatever compression it names.
fn table_named(path: &Path) -> Option<Format> {
    let name = path.to_string_lossy().to_ascii_lowercase();
    let packed = [".gz", ".zst", ".bz2", ".xz", ".lz4"];
    let bare = packed.iter().find_map(|ending| name.strip_suffix(ending));
    let bare = bare.unwrap_or(&name);
    let tables = [(".csv", Format::Csv), (".tsv", Format::Tsv)];
    let named = tables.iter().find(|(ending, _)| bare.ends_with(ending));
    named.map(|(_, format)| *format)
}

fn format_of(head: &[u8], input: &Input) -> Result<Format, &'static str> {
    if head.starts_with(b"WARC/") {
        return Ok(archive(head));
    }
    if head.starts_with(b"filedesc://") {
        return Ok(Format::Warc);
    }
    if head.starts_with(b"PAR1") {
        return Ok(Format::Parquet);
    }
    if arrow::is_arrow(head) {
        return Ok(Format::Arrow);
    }
    if head.starts_with(zim::MAGIC) {
        return Ok(Format::Zim);
    }
    if pdf::is_pdf(head) {
        return Ok(Format::Pdf);
    }
    if let Some(kind) = magic_of(head) {
        return Err(kind);
    }
    if is_binary(head) {
        return Err("binary data");
    }
    let text = head.strip_prefix(b"\xef\xbb\xbf").unwrap_or(head);
    let text = text.trim_ascii_start();
    let start = text[..text.len().min(4096)].to_ascii_lowercase();
    if memmem::find(&start, b"<mediawiki").is_some() {
        return Ok(Format::Wikipedia);
    }
    let tags: [&[u8]; 4] = [b"<!doctype html", b"<html", b"<head", b"<body"];
    if tags.iter().any(|tag| start.starts_with(tag)) {
        return Ok(Format::Html);
    }
    if latex::is_latex(text) {
        return Ok(Format::Latex);
    }
    match start.first() {
        Some(b'{') => return Ok(Format::Jsonl),
        Some(b'[') if start[1..].trim_ascii_start().starts_with(b"{") => {
            return Err("a JSON array, of which no records are read");
        }
        _ => {}
    }
    let end = memchr::memchr2(b'\n', b'\r', text).unwrap_or(text.len());
    for (delimiter, format) in [(b'\t', Format::Tsv), (b',', Format::Csv)] {
        if names_text(&text[..end], delimiter, input) {
            return Ok(format);
        }
    }
    Ok(Format::Text)
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
        assert_eq!(found("csv", rows), Ok(Format::Text));
        assert_eq!(found("empty.csv", b"\n"), Ok(Format::Text));
        // bytes that tell a format go before the name
        assert_eq!(found("b.csv", b"{\"text\":\"a\"}\n"), Ok(Format::Jsonl));
    }

    #[test]
    fn first_bytes_tell_the_format() {
        let input = Input {
            text_key: crate::read::Keys::One("body.text".to_string()),
            ..Input::of(Format::Auto)
        };
        let plain = Input::of(Format::Auto);
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
        assert!(found(b"[{\"text\":\"a\"}]").is_err());
        assert_eq!(format_of(b"id,body\n", &input), Ok(Format::Text));
        assert_eq!(format_of(b"id,body.text\n", &input), Ok(Format::Csv));
    }
}
