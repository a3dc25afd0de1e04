//! Describes any file this crate reads or writes, for people and for `inspect --json`.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use serde_json::{Map, Value, json};

use crate::corpus::{EditList, KeepList};
use crate::dedup::{EmbeddingCounts, SignatureColumn, SignatureFile};
use crate::error::{At, Error, Result};
use crate::extract::{Extracted, extract_html};
use crate::read::{
    Batch, Composed, Format, Input, Keys, Raw, Reader, column_names, delimiter_of, detect,
    is_binary, magic_of, parse_record,
};

/// Describes a file's format and contents.
///
/// # Errors
/// A file that cannot be opened, or one of ours that is damaged.
pub fn inspect(path: &Path) -> Result<Value> {
    let mut head = [0u8; 8];
    let mut file = File::open(path).at(path)?;
    let bytes = file.metadata().at(path)?.len();
    let mut filled = 0;
    while filled < head.len() {
        match file.read(&mut head[filled..]).at(path)? {
            0 => break,
            n => filled += n,
        }
    }
    let mut value = match &head {
        b"MLRSIGN1" | b"MLRSIGN2" | b"MLRINDX1" => signatures(path)?,
        b"MLRKEEP1" | b"MLRKEEP2" => keep(path)?,
        b"MLREDIT1" => edits(path)?,
        b"MLREMBD1" => embeddings(path)?,
        _ => records(path)?,
    };
    value["path"] = json!(path.display().to_string());
    value["bytes"] = json!(bytes);
    Ok(value)
}

fn signatures(path: &Path) -> Result<Value> {
    let file = SignatureFile::open(path)?;
    file.verify()?;
    let (mut with, mut chars) = (0u64, 0u64);
    let shape = file.shape();
    let width = 8 * shape.width as usize;
    for group in 0..file.groups() {
        let column = file.column(SignatureColumn::Chars, group)?;
        let lengths = column.as_chunks::<8>().0.iter();
        chars += lengths.map(|c| u64::from_le_bytes(*c)).sum::<u64>();
        if shape.bands > 0 {
            let band = file.column(SignatureColumn::Band(0), group)?;
            let signed = band.chunks_exact(width);
            with += signed.filter(|key| key.iter().any(|b| *b != 0xff)).count() as u64;
        }
    }
    let kind = if file.is_index() {
        "index of signatures"
    } else {
        "signatures"
    };
    let crawls = file.crawls().iter().map(|crawl| format!("{crawl:032x}"));
    let crawls: Vec<String> = crawls.collect();
    Ok(
        json!({"kind": kind, "crawls": crawls, "documents": file.count(), "with_minhash": with,
        "chars": chars, "family": shape.family, "bands": shape.bands, "rows": shape.rows,
        "shingle": {"kind": if shape.kind == 0 { "words" } else { "chars" }, "n": shape.ngram},
        "numbers_per_band": shape.width, "seed": shape.seed}),
    )
}

fn keep(path: &Path) -> Result<Value> {
    let list = KeepList::read(path)?;
    let count = |flag: u8| list.flags.iter().filter(|&&f| f == flag).count();
    Ok(
        json!({"kind": "keep list", "documents": list.len(), "kept": count(0), "exact": count(1),
        "fuzzy": count(2), "url": count(3), "hollow": count(4), "earlier": count(5),
        "contaminated": count(6), "semantic": count(7)}),
    )
}

fn embeddings(path: &Path) -> Result<Value> {
    let found = EmbeddingCounts::read(path)?;
    Ok(
        json!({"kind": "embeddings", "embeddings": found.embedded, "width": found.width,
        "unembedded": found.unembedded}),
    )
}

fn edits(path: &Path) -> Result<Value> {
    let list = EditList::read(path)?;
    let (documents, cut) = (list.documents(), list.cut_documents());
    Ok(
        json!({"kind": "edit list", "documents": documents, "cut_documents": cut,
        "cuts": list.cuts(), "splits": list.splits(), "bytes_cut": list.bytes()}),
    )
}

/// Kind of a file by its first bytes, for `extract`: `warc` (also ARC, compressed or not), `html`, `text`, or the
/// name of something that is neither.
pub fn kind_of(bytes: &[u8]) -> &'static str {
    let head = &bytes[..bytes.len().min(4096)];
    let compressed: [&[u8]; 5] = [
        b"\x1f\x8b",
        b"\x28\xb5\x2f\xfd",
        b"\x5d\x2a\x4d\x18",
        b"BZh",
        b"\x04\x22\x4d\x18",
    ];
    if is_archive(head) || compressed.iter().any(|magic| head.starts_with(magic)) {
        return "warc";
    }
    if head.starts_with(b"PAR1") {
        return "a Parquet file";
    }
    if let Some(kind) = magic_of(head) {
        return kind;
    }
    let marked = head.starts_with(b"\xff\xfe") || head.starts_with(b"\xfe\xff");
    if is_binary(head) {
        return "binary data";
    }
    let tag = |at: usize| {
        let next = head.get(at + 1).copied().unwrap_or(b' ');
        next.is_ascii_alphabetic() || next == b'!' || next == b'/'
    };
    let has_tag = memchr::memchr_iter(b'<', head).any(tag);
    let json = matches!(
        head.trim_ascii_start(),
        [b'{', b'"' | b'\n' | b'\r' | b' ' | b'}', ..] | [b'[', b'{' | b'"' | b'\n', ..]
    );
    match (marked || has_tag, json) {
        (_, true) => "JSON",
        (true, _) => "html",
        (false, _) => "text",
    }
}

/// Largest record that is inspected; a longer one is reported as a problem.
const MAX_RECORD: usize = 1 << 30;
/// Problems that are listed; all are counted.
const MAX_PROBLEMS: usize = 10;

/// The first line is that of a WARC record or of an ARC file.
fn is_archive(line: &[u8]) -> bool {
    line.starts_with(b"WARC/") || line.starts_with(b"filedesc://")
}

/// Contents of a file of records, so far.
#[derive(Default)]
struct Contents {
    records: u64,
    bad: u64,
    /// Records that are JSON objects.
    objects: u64,
    text_bytes: u64,
    /// Types of an archive's records, or fields of objects.
    kinds: BTreeMap<String, u64>,
    repaired: BTreeMap<String, u64>,
    problems: Vec<Value>,
    faults: Vec<Value>,
    /// Metadata of the first document of a composed file.
    meta: Option<Map<String, Value>>,
    /// Main text of a page.
    page: Option<Extracted>,
}

impl Contents {
    /// Counts a record.
    fn add(&mut self, format: Format, raw: &Raw, bytes: &[u8]) {
        self.records += 1;
        if let Some(why) = &raw.bad {
            self.bad += 1;
            if self.problems.len() < MAX_PROBLEMS {
                self.problems
                    .push(json!({"offset": raw.offset, "record": raw.number, "why": why}));
            }
            return;
        }
        if let Some(fault) = raw.repaired {
            *self.repaired.entry(fault.name.to_string()).or_default() += 1;
            if self.faults.len() < MAX_PROBLEMS {
                self.faults
                    .push(json!({"offset": raw.offset, "record": raw.number,
                    "repaired": fault.name, "why": fault.why}));
            }
        }
        match format {
            Format::Warc | Format::Wet | Format::Wat | Format::Wacz => {
                let kind = parse_record(bytes).map(|r| r.kind).unwrap_or_default();
                *self.kinds.entry(kind).or_default() += 1;
            }
            Format::Wikipedia => {}
            Format::Epub
            | Format::Docx
            | Format::Odt
            | Format::Pdf
            | Format::Latex
            | Format::Zim => {
                // readers compose sound objects
                let composed = serde_json::from_slice::<Composed<'_>>(bytes);
                self.meta
                    .get_or_insert_with(|| composed.map(|c| c.meta).unwrap_or_default());
            }
            Format::Html => self.page = Some(extract_html(bytes, None)),
            Format::Auto
            | Format::Jsonl
            | Format::Dolma
            | Format::Parquet
            | Format::Arrow
            | Format::Csv
            | Format::Tsv
            | Format::Text => {
                if let Ok(Value::Object(map)) = crate::text::json::from_slice::<Value>(bytes) {
                    self.objects += 1;
                    let words = map.get("text").or_else(|| map.get("content"));
                    self.text_bytes += words.and_then(Value::as_str).map_or(0, |t| t.len() as u64);
                    for key in map.keys() {
                        *self.kinds.entry(key.clone()).or_default() += 1;
                    }
                }
            }
        }
    }

    /// The description.
    fn into_value(mut self, format: Format) -> Value {
        let (count, bad, kinds) = (self.records, self.bad, &self.kinds);
        let table = |kind: &str| {
            json!({"kind": kind, "records": count, "bad": bad, "text_bytes": self.text_bytes,
                "fields": kinds})
        };
        let file = |kind: &str| {
            let meta = self.meta.clone().unwrap_or_default();
            json!({"kind": kind, "documents": count - bad, "bad": bad, "meta": meta})
        };
        let mut value = match format {
            Format::Warc | Format::Wet | Format::Wat => {
                json!({"kind": "warc", "records": count, "bad": bad, "types": kinds})
            }
            Format::Wacz => json!({"kind": "wacz", "records": count, "bad": bad, "types": kinds}),
            Format::Wikipedia => json!({"kind": "wiki dump", "pages": count, "bad": bad}),
            Format::Zim => json!({"kind": "zim", "pages": count - bad, "bad": bad}),
            Format::Parquet => table("parquet"),
            Format::Arrow => table("arrow"),
            Format::Csv => table("csv"),
            Format::Tsv => table("tsv"),
            Format::Epub => file("epub"),
            Format::Docx => file("docx"),
            Format::Odt => file("odt"),
            Format::Pdf => file("pdf"),
            Format::Latex => file("latex"),
            Format::Html => {
                let title = self
                    .page
                    .as_ref()
                    .and_then(|page| page.meta.title.as_deref());
                let text = self.page.as_ref().map_or(0, |page| page.text.len());
                json!({"kind": "html", "bad": bad, "title": title, "main_text_bytes": text})
            }
            Format::Jsonl | Format::Dolma | Format::Auto | Format::Text if self.objects > 0 => {
                json!({"kind": "json lines", "records": count, "bad": count - self.objects,
                    "text_bytes": self.text_bytes, "fields": kinds})
            }
            Format::Jsonl | Format::Dolma | Format::Auto | Format::Text => {
                json!({"kind": "text", "lines": count, "bad": bad})
            }
        };
        // as a job file names it
        value["format"] = json!(match format {
            Format::Jsonl if self.objects == 0 => Format::Text,
            found => found,
        });
        if !self.repaired.is_empty() {
            value["repaired"] = json!(self.repaired);
        }
        // lost records come first
        self.problems.extend(self.faults);
        self.problems.truncate(MAX_PROBLEMS);
        value["problems"] = self.problems.into();
        value
    }
}

/// Counts the records of a file, of the format that `format = "auto"` finds, and lists the problems.
fn records(path: &Path) -> Result<Value> {
    let format = detect(path, &Input::of(Format::Auto)).at(path)?;
    let format = format.map_err(|kind| Error::Input {
        path: path.to_path_buf(),
        why: format!("found {kind}, which no format reads"),
    })?;
    let is_table = matches!(format, Format::Csv | Format::Tsv);
    let table = is_table.then(|| table_of(path, format)).transpose()?;
    let format = table.as_ref().map_or(format, |input| input.format);
    let mut reader = match format {
        // of any kind: a text is described by its lines
        Format::Text => Reader::open_lines(path, &BTreeMap::new(), MAX_RECORD)?,
        Format::Auto
        | Format::Warc
        | Format::Wet
        | Format::Wat
        | Format::Jsonl
        | Format::Dolma
        | Format::Parquet
        | Format::Arrow
        | Format::Csv
        | Format::Tsv
        | Format::Html
        | Format::Wikipedia
        | Format::Epub
        | Format::Docx
        | Format::Odt
        | Format::Pdf
        | Format::Latex
        | Format::Wacz
        | Format::Zim => {
            let plain = Input::of(format);
            Reader::open(path, table.as_ref().unwrap_or(&plain), None, MAX_RECORD)?
        }
    };
    let mut batch = Batch::default();
    let mut contents = Contents::default();
    while reader.fill(&mut batch)? {
        for raw in &batch.records {
            contents.add(format, raw, batch.bytes(raw));
        }
    }
    let mut value = contents.into_value(format);
    if let Some(input) = table.filter(|input| input.format == Format::Csv) {
        value["delimiter"] = json!(input.delimiter);
    }
    Ok(value)
}

/// A table of separated values as an input, any of whose columns may have the text. The character between its fields is
/// found as at a first look (`look`), whatever the file's name.
fn table_of(path: &Path, format: Format) -> Result<Input> {
    let (delimiter, _) = delimiter_of(path)?;
    let mut input = Input {
        delimiter: delimiter.to_string(),
        ..Input::of(Format::Csv)
    };
    let mut names = column_names(path, &input)?;
    // of one column the name alone tells
    if delimiter == '\t' || (format == Format::Tsv && names.len() < 2) {
        input = Input::of(Format::Tsv);
        names = column_names(path, &input)?;
    }
    input.text_key = Keys::Several(names);
    Ok(input)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_page_is_told_from_pages() {
        for (bytes, want) in [
            (&b"  <!DOCTYPE html><p>x"[..], "html"),
            (b"words <b>and</b> tags", "html"),
            (b"\xff\xfe<\0p\0>\0", "html"),
            (b"plain words, 1 < 2 & 3", "text"),
            (b"[workspace]\nx = 1", "text"),
            (b"{\"a\": 1}", "JSON"),
            (b"%PDF-1.7 <x>", "a PDF"),
            (b"\x7fELF", "a program"),
            (b"\0\x01\x02\x03\x04\x05", "binary data"),
            (b"WARC/1.0\r\n", "warc"),
            (b"\x1f\x8b\x08", "warc"),
            (b"", "text"),
        ] {
            assert_eq!(kind_of(bytes), want, "{:?}", String::from_utf8_lossy(bytes));
        }
    }
}
