//! Fast reader for the texts of documents alone, for the tokenizer: no other field is built, no document is allocated.
//!
//! Lines are parsed to a tape (simd-json), of which the wanted strings are read in place. A value may be a string or
//! an array of strings (sentences), as in Megatron's `preprocess_data.py`; of a repeated field the last
//! counts, as for Python's `json`. We differ: a line without the field is a bad record, not the end of the run.

use std::ops::Range;
use std::path::{Path, PathBuf};

use simd_json::Node;

use super::documents::edits;
use crate::contract::{FieldCounts, NamedFields};
use crate::corpus::{CleanCondition, EditList, KeepList, KeepStatus, Span, pieces};
use crate::error::{At, Error, Result, damaged};
use crate::read::{Batch, Format, Input, Reader, can_be_split, reason};
use crate::text::{excerpt, json};
use crate::write::{clean_file, shard_file};

/// Characters kept of a bad record's reason: parsers often quote the whole record.
const WHY_CHARS: usize = 300;

/// The texts of one document; valid during the call that hands it over.
pub struct TextRecord<'a> {
    /// One string, or the strings of an array.
    pub texts: &'a [&'a str],
    /// Field `source`, if it is a string.
    pub source: &'a str,
    /// Field `language`, if it is a string.
    pub language: &'a str,
}

/// Result of [`TextReader::next`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// A document, which was passed on.
    Document,
    /// A record without a usable text.
    Bad {
        /// Byte offset in the (decompressed) file.
        offset: u64,
        /// Number of the record.
        record: u64,
        /// Reason.
        why: String,
    },
    /// The end of the file.
    End,
}

/// Reads the texts of a JSONL or Parquet file, of a plain text, or of a clean shard with its keep-list.
pub struct TextReader {
    path: PathBuf,
    reader: Reader,
    key: String,
    /// The whole file is the text.
    plain: bool,
    batch: Batch,
    next: usize,
    scratch: Scratch,
    keep: Option<KeepList>,
    edits: EditList,
    /// Documents of the shard so far, for indexing the keep list.
    number: usize,
    /// A clean shard written by us: an unreadable record is damage.
    ours: bool,
    /// Documents of a clean shard that do not meet it are passed over.
    condition: Option<CleanCondition>,
    fields: NamedFields,
}

#[derive(Default)]
struct Scratch {
    line: Vec<u8>,
    buffers: simd_json::Buffers,
    tape: Option<simd_json::Tape<'static>>,
    /// A text without its cut ranges.
    edited: String,
}

impl TextReader {
    /// Opens a file; texts are the values of `key`. Longer records than `max` bytes are bad.
    ///
    /// # Errors
    /// `Io`; `Format` for a file of another kind; `Input` for a format that has to be curated first.
    pub fn open(path: &Path, format: Format, key: &str, max: usize) -> Result<TextReader> {
        let whole = match format {
            Format::Jsonl | Format::Dolma | Format::Parquet | Format::Arrow => false,
            Format::Text => true,
            Format::Warc
            | Format::Wet
            | Format::Wat
            | Format::Html
            | Format::Csv
            | Format::Tsv
            | Format::Auto
            | Format::Epub
            | Format::Docx
            | Format::Odt
            | Format::Pdf
            | Format::Latex
            | Format::Wacz
            | Format::Zim
            | Format::Wikipedia => {
                return Err(Error::Input {
                    path: path.to_path_buf(),
                    why:
                        "only jsonl, dolma, parquet, arrow and text can be tokenized as they are; \
                        curate this format first"
                            .into(),
                });
            }
        };
        let reader = Reader::open(path, &Input::of(format), None, max)?;
        Ok(TextReader::new(path, reader, key, whole))
    }

    /// Opens the lines of a plain JSONL file that start in `range`. Ranges that cover the file give each line once.
    ///
    /// # Errors
    /// `Io`, also for a compressed file.
    pub fn open_range(path: &Path, range: Range<u64>, key: &str, max: usize) -> Result<TextReader> {
        let reader = Reader::open(path, &Input::of(Format::Jsonl), Some(&range), max)?;
        Ok(TextReader::new(path, reader, key, false))
    }

    /// Opens a clean shard under `out`; `obey_keep` skips documents that its keep list removed.
    ///
    /// # Errors
    /// `Io`; `Damaged` keep list.
    pub fn shard(out: &Path, shard: usize, obey_keep: bool) -> Result<TextReader> {
        let (path, format) = clean_file(out, shard);
        let keep = out.join(shard_file("keep", shard, "keep"));
        let reader = Reader::open_ours(&path, format)?;
        let mut reader = TextReader::new(&path, reader, "text", false);
        if obey_keep && keep.exists() {
            reader.keep = Some(KeepList::read(&keep)?);
            reader.edits = edits(out, shard, reader.keep.as_ref())?;
        }
        reader.ours = true;
        Ok(reader)
    }

    fn new(path: &Path, reader: Reader, key: &str, plain: bool) -> TextReader {
        TextReader {
            path: path.to_path_buf(),
            reader,
            key: key.to_string(),
            plain,
            batch: Batch::default(),
            next: 0,
            scratch: Scratch::default(),
            keep: None,
            edits: EditList::default(),
            number: 0,
            ours: false,
            condition: None,
            fields: NamedFields::default(),
        }
    }

    /// Passes over the documents of a clean shard that do not meet a condition.
    pub fn only(&mut self, condition: CleanCondition) {
        let names = condition.names();
        let names = names.map(|name| ("where".to_string(), name.to_string()));
        self.fields = NamedFields::new(names.collect());
        self.condition = Some(condition);
    }

    /// Values of the metadata that the condition names, and the documents that have them.
    pub fn fields(&self) -> impl Iterator<Item = (&str, &FieldCounts)> {
        let each = self.fields.each();
        each.map(|((_, name), counts)| (name.as_str(), counts))
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reads the next record; passes a document's texts to `take`, several if the document was split.
    ///
    /// # Errors
    /// `Io` if the file cannot be read further; `Damaged` if one of our shards is not as it was written.
    pub fn next(&mut self, take: &mut dyn FnMut(&TextRecord<'_>)) -> Result<Found> {
        loop {
            if self.next == self.batch.records.len() {
                self.next = 0;
                if !self.reader.fill(&mut self.batch)? {
                    return self.end();
                }
            }
            let raw = &self.batch.records[self.next];
            self.next += 1;
            let (offset, record) = (raw.offset, raw.number);
            let (mut spans, mut splits): (&[Span], &[bool]) = (&[], &[]);
            if self.ours && raw.bad.is_none() {
                let at = self.number;
                self.number += 1;
                match &self.keep {
                    Some(keep) if at >= keep.len() => return Err(self.mismatch(keep.len(), offset)),
                    Some(keep) if keep.status(at) != KeepStatus::Kept => continue,
                    _ => (spans, splits) = (self.edits.of(at), self.edits.splits_of(at)),
                }
                if let Some(condition) = &self.condition {
                    let answer = condition.answer(self.batch.bytes(raw));
                    let wanted = "the line of a clean document";
                    let answer = answer.map_err(|why| damaged(&self.path, offset, why, wanted))?;
                    self.fields.count(answer.sought);
                    if !answer.holds {
                        continue;
                    }
                }
            }
            let found = match &raw.bad {
                Some(why) => Err(why.clone()),
                None if self.plain => whole(self.batch.bytes(raw), take),
                None if spans.is_empty() => {
                    self.scratch.line(self.batch.bytes(raw), &self.key, take)
                }
                None => {
                    let bytes = self.batch.bytes(raw);
                    self.scratch
                        .edited_line(bytes, &self.key, (spans, splits), take)
                }
            };
            return match found {
                Ok(()) => Ok(Found::Document),
                Err(why) if self.ours => Err(damaged(
                    &self.path,
                    offset,
                    why,
                    "the line of a clean document",
                )),
                Err(why) => Ok(Found::Bad {
                    offset,
                    record,
                    why: excerpt(&why, WHY_CHARS).to_string(),
                }),
            };
        }
    }

    fn mismatch(&self, kept: usize, offset: u64) -> Error {
        let found = format!("document {}", self.number - 1);
        damaged(
            &self.path,
            offset,
            found,
            format!("{kept} documents, as in the keep list"),
        )
    }

    /// A shard shorter than its keep-list is damaged.
    fn end(&self) -> Result<Found> {
        match &self.keep {
            Some(keep) if self.number < keep.len() => Err(damaged(
                &self.path,
                0,
                format!("{} documents", self.number),
                format!("{}, as in the keep list", keep.len()),
            )),
            _ => Ok(Found::End),
        }
    }
}

/// True if the file is not compressed, so that ranges of its lines can be read.
///
/// # Errors
/// `Io`.
pub fn is_plain(path: &Path) -> Result<bool> {
    can_be_split(path, &Input::of(Format::Jsonl)).at(path)
}

fn whole(bytes: &[u8], take: &mut dyn FnMut(&TextRecord<'_>)) -> Result<(), String> {
    let text = std::str::from_utf8(bytes)
        .map_err(|e| format!("invalid UTF-8 at byte {}", e.valid_up_to()))?;
    take(&TextRecord {
        texts: &[text],
        source: "",
        language: "",
    });
    Ok(())
}

impl Scratch {
    fn line(
        &mut self,
        bytes: &[u8],
        key: &str,
        take: &mut dyn FnMut(&TextRecord<'_>),
    ) -> Result<(), String> {
        self.line.clear();
        self.line.extend_from_slice(bytes);
        let mut tape = self
            .tape
            .take()
            .unwrap_or_else(simd_json::Tape::null)
            .reset();
        let found = match simd_json::fill_tape(&mut self.line, &mut self.buffers, &mut tape) {
            Ok(()) => pick(&tape.0, key, take),
            // the fallback parser also words the reason
            Err(_) => slow(bytes, key, take),
        };
        self.tape = Some(tape.reset());
        found
    }

    /// [`Scratch::line`] without some bytes of its text, which may make several documents of it.
    fn edited_line(
        &mut self,
        bytes: &[u8],
        key: &str,
        (spans, splits): (&[Span], &[bool]),
        take: &mut dyn FnMut(&TextRecord<'_>),
    ) -> Result<(), String> {
        let mut edited = std::mem::take(&mut self.edited);
        let mut cutting = Ok(());
        let read = self.line(bytes, key, &mut |record| {
            let mut each = |piece: &str| {
                take(&TextRecord {
                    texts: &[piece],
                    ..*record
                });
            };
            cutting = match record.texts {
                [text] => pieces(text, spans, splits, &mut edited, &mut each),
                several => Err(format!("cuts, but {} texts", several.len())),
            };
        });
        self.edited = edited;
        read.and(cutting)
    }
}

fn no_text(key: &str) -> String {
    format!("no {key} field")
}

fn not_text(key: &str) -> String {
    format!("field {key} is neither a string nor an array of strings")
}

/// Nodes of the value that starts at `at`, itself included.
fn span(nodes: &[Node<'_>], at: usize) -> usize {
    match nodes[at] {
        Node::Object { count, .. } | Node::Array { count, .. } => 1 + count,
        _ => 1,
    }
}

fn pick(
    nodes: &[Node<'_>],
    key: &str,
    take: &mut dyn FnMut(&TextRecord<'_>),
) -> Result<(), String> {
    let Some(Node::Object { len, .. }) = nodes.first() else {
        return Err("not a JSON object".into());
    };
    let (mut value, mut source, mut language) = (None, "", "");
    let mut at = 1;
    for _ in 0..*len {
        let Some(Node::String(name)) = nodes.get(at) else {
            break;
        };
        at += 1;
        match (*name, nodes[at]) {
            (name, _) if name == key => value = Some(at),
            ("source", Node::String(s)) => source = s,
            ("language", Node::String(s)) => language = s,
            _ => {}
        }
        at += span(nodes, at);
    }
    let Some(at) = value else {
        return Err(no_text(key));
    };
    let mut record = |texts: &[&str]| {
        take(&TextRecord {
            texts,
            source,
            language,
        });
    };
    match nodes[at] {
        Node::String(text) => record(&[text]),
        Node::Array { len, .. } => {
            let strings = nodes[at + 1..].iter().take(len);
            let texts: Option<Vec<&str>> = strings
                .map(|n| match n {
                    Node::String(s) => Some(*s),
                    _ => None,
                })
                .collect();
            record(&texts.ok_or_else(|| not_text(key))?);
        }
        _ => return Err(not_text(key)),
    }
    Ok(())
}

/// The same through serde_json, for lines that simd-json refuses (numbers beyond 64 bits, `NaN` and infinities).
fn slow(bytes: &[u8], key: &str, take: &mut dyn FnMut(&TextRecord<'_>)) -> Result<(), String> {
    let value: serde_json::Value = json::from_slice(bytes).map_err(|e| reason(bytes, &e))?;
    let object = value.as_object().ok_or("not a JSON object")?;
    let field = |name: &str| {
        object
            .get(name)
            .and_then(|v| v.as_str())
            .unwrap_or_default()
    };
    let texts: Option<Vec<&str>> = match object.get(key).ok_or_else(|| no_text(key))? {
        serde_json::Value::String(s) => Some(vec![s]),
        serde_json::Value::Array(strings) => strings.iter().map(|s| s.as_str()).collect(),
        _ => None,
    };
    take(&TextRecord {
        texts: &texts.ok_or_else(|| not_text(key))?,
        source: field("source"),
        language: field("language"),
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn read(mut reader: TextReader) -> (Vec<String>, Vec<(u64, u64, String)>) {
        let (mut texts, mut bad) = (Vec::new(), Vec::new());
        loop {
            let found = reader.next(&mut |r| {
                texts.push(format!("{}|{}|{}", r.texts.join("+"), r.source, r.language));
            });
            match found.unwrap() {
                Found::Document => {}
                Found::Bad {
                    offset,
                    record,
                    why,
                } => bad.push((offset, record, why)),
                Found::End => return (texts, bad),
            }
        }
    }

    const LINES: &str = concat!(
        r#"{"text":"a\u00e9\n","source":"s","x":{"text":"no"},"y":[1,[2]]}"#,
        "\n\n",
        r#"{"language":"en","text":["b","","c"]}"#,
        "\n",
        r#"{"body":"x"}"#,
        "\n",
        r#"{"text":7}"#,
        "\n",
        r#"{"text":["x",7]}"#,
        "\n",
        r#"{"text":"\ud800"}"#,
        "\n",
        r#"["text"]"#,
        "\n",
        r#"{"text":"first","n":123456789012345678901234567890,"text":"last"}"#,
        "\n",
        r#"{"text":"first","text":"last"}"#,
        "\n",
        r#"{"n":[NaN,-Infinity],"text":"python's","m":Infinity}"#,
    );

    #[test]
    fn texts_are_read_and_what_has_none_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.jsonl");
        std::fs::write(&path, LINES).unwrap();
        let (texts, bad) = read(TextReader::open(&path, Format::Jsonl, "text", 1 << 20).unwrap());
        assert_eq!(
            texts,
            ["a\u{e9}\n|s|", "b++c||en", "last||", "last||", "python's||"]
        );
        let why: Vec<&str> = bad.iter().map(|b| b.2.as_str()).collect();
        assert_eq!(why[0], "no text field");
        assert_eq!(
            why[1],
            "field text is neither a string nor an array of strings"
        );
        assert_eq!(why[2], why[1]);
        assert!(why[3].starts_with("broken JSON"), "{}", why[3]);
        assert_eq!(why[4], "not a JSON object");
        assert_eq!(why.len(), 5);
        for (offset, _, _) in &bad {
            let at = usize::try_from(*offset).unwrap();
            assert!(LINES[..at].ends_with('\n'), "offset {at} starts a line");
        }
        let body = TextReader::open(&path, Format::Jsonl, "body", 1 << 20).unwrap();
        assert_eq!(read(body).0, ["x||"]);
    }

    #[test]
    fn ranges_that_cover_a_file_give_each_line_once() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.jsonl");
        std::fs::write(&path, LINES).unwrap();
        let whole = read(TextReader::open(&path, Format::Jsonl, "text", 1 << 20).unwrap());
        let size = LINES.len() as u64;
        for cut in 0..=size {
            let mut got = (Vec::new(), Vec::new());
            for range in [0..cut, cut..size] {
                let (texts, bad) =
                    read(TextReader::open_range(&path, range, "text", 1 << 20).unwrap());
                got.0.extend(texts);
                got.1.extend(bad);
            }
            assert_eq!(got.0, whole.0, "cut at {cut}");
            // record numbers count inside a range; offsets are the file's
            let offsets = |bad: &[(u64, u64, String)]| bad.iter().map(|b| b.0).collect::<Vec<_>>();
            assert_eq!(offsets(&got.1), offsets(&whole.1), "cut at {cut}");
        }
    }

    #[test]
    fn compressed_files_and_plain_texts_are_read_and_cannot_be_cut() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.jsonl.zst");
        std::fs::write(&path, zstd::encode_all(LINES.as_bytes(), 3).unwrap()).unwrap();
        assert!(!is_plain(&path).unwrap());
        let open = TextReader::open(&path, Format::Jsonl, "text", 1 << 20).unwrap();
        assert_eq!(read(open).0.len(), 5);
        assert!(TextReader::open_range(&path, 5..9, "text", 1 << 20).is_err());
        let text = dir.path().join("a.txt");
        let mut file = std::fs::File::create(&text).unwrap();
        file.write_all(b"two\nlines").unwrap();
        assert!(is_plain(&text).unwrap());
        let open = TextReader::open(&text, Format::Text, "text", 1 << 20).unwrap();
        assert_eq!(read(open).0, ["two\nlines||"]);
        assert!(TextReader::open(&text, Format::Warc, "text", 1 << 20).is_err());
    }
}
