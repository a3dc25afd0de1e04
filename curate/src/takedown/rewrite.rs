//! A shard without its removed documents.

use std::path::Path;

use super::search::{DroppedLine, Found, Removed, each_dropped, hit, is_found};
use crate::corpus::documents;
use crate::dedup::{SignatureFile, SignatureWriter};
use crate::document::CleanDocument;
use crate::error::{Result, damaged};
use crate::takedown_list::TakedownList;
use crate::text::{address, chars, json};
use crate::write::{CleanWriter, JsonLines, OutputFile, OutputFormat, clean_file, shard_file};

/// A removed document on its way to the record of the takedown.
#[derive(Clone, Copy, Debug)]
pub struct Taken<'a> {
    /// Where it was.
    pub removed: &'a Removed,
    /// Its id.
    pub id: &'a str,
    /// Its address.
    pub url: Option<&'a str>,
}

/// Counts of a shard's removed documents in its report.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Counts {
    /// Documents.
    pub documents: u64,
    /// Bytes of UTF-8 text.
    pub bytes: u64,
    /// Characters.
    pub chars: u64,
    /// Documents by host.
    pub hosts: std::collections::BTreeMap<String, u64>,
    /// Documents by source, with the subset after a slash.
    pub sources: std::collections::BTreeMap<String, u64>,
    /// Documents by length, as `ShardReport::lengths` has them.
    pub lengths: std::collections::BTreeMap<u32, u64>,
}

impl Counts {
    fn add(&mut self, document: &CleanDocument) {
        let chars = chars(&document.text) as u64;
        self.documents += 1;
        self.bytes += document.text.len() as u64;
        self.chars += chars;
        if let Some(host) = document.url.as_deref().and_then(address::host) {
            *self.hosts.entry(host).or_default() += 1;
        }
        let source = match &document.subset {
            Some(subset) => format!("{}/{subset}", document.source),
            None => document.source.clone(),
        };
        *self.sources.entry(source).or_default() += 1;
        let power = chars.checked_ilog2().unwrap_or(0);
        *self.lengths.entry(power).or_default() += 1;
    }
}

/// Writes the clean file and the signatures of a shard without the documents that [`super::search()`] found, below `to`, and
/// passes the removed ones to `each`.
///
/// # Errors
/// `Io`; `Damaged` if the shard is not the one that was searched; errors of `each`.
pub fn rewrite(
    out: &Path,
    to: &Path,
    found: &Found,
    list: &TakedownList,
    each: &mut dyn FnMut(&Taken<'_>) -> Result<()>,
) -> Result<(Vec<OutputFile>, Counts)> {
    let (path, format) = clean_file(out, found.shard);
    let mut writer = CleanWriter::create(to, found.shard, format)?;
    let mut counts = Counts::default();
    let mut removed = found.removed.iter().peekable();
    let mut line = Vec::new();
    let mut shard = documents(out, found.shard)?;
    let mut number = 0u64;
    while let Some(document) = shard.next() {
        let document = document?;
        let at = number;
        number += 1;
        if let Some(one) = removed.next_if(|one| u64::from(one.document) == at) {
            if hit(list, &document).is_none() {
                let found = format!("document {at}: {:?}", document.id);
                return Err(damaged(
                    &path,
                    0,
                    found,
                    "the document that was found before",
                ));
            }
            counts.add(&document);
            each(&Taken {
                removed: one,
                id: &document.id,
                url: document.url.as_deref(),
            })?;
            continue;
        }
        line.clear();
        if format == OutputFormat::Parquet {
            json::write(&mut line, &document).map_err(|e| {
                damaged(&path, 0, format!("document {at}: {e}"), "a clean document")
            })?;
        } else {
            line.extend_from_slice(shard.bytes());
        }
        line.push(b'\n');
        writer.write_line(&line)?;
    }
    if number != found.documents || removed.peek().is_some() {
        let wanted = format!("{}, as before", found.documents);
        return Err(damaged(&path, 0, format!("{number} documents"), wanted));
    }
    Ok((vec![writer.finish()?, signatures(out, to, found)?], counts))
}

fn signatures(out: &Path, to: &Path, found: &Found) -> Result<OutputFile> {
    let name = shard_file("clean", found.shard, "sig");
    let file = SignatureFile::open(&out.join(&name))?;
    let mut writer = SignatureWriter::create(to, &name, file.shape(), file.origin())?;
    let mut removed = found.removed.iter().map(|one| one.document).peekable();
    for group in 0..file.groups() {
        let columns = file.columns(group)?;
        let (first, documents) = file.documents(group);
        for row in 0..documents {
            let at = first + row;
            if removed
                .next_if(|document| u64::from(*document) == at)
                .is_none()
            {
                writer.copy_row(&columns, usize::try_from(row).unwrap_or(usize::MAX))?;
            }
        }
    }
    writer.finish()
}

/// Writes the `dropped/` file of a shard without the lines that a list names, below `to`; passes their ids to `each`.
///
/// # Errors
/// `Io`; `Damaged`.
pub fn rewrite_dropped(
    out: &Path,
    to: &Path,
    shard: usize,
    list: &TakedownList,
    each: &mut dyn FnMut(&str),
) -> Result<OutputFile> {
    let mut writer = JsonLines::create(to, &shard_file("dropped", shard, "jsonl.zst"))?;
    let mut whole = Vec::new();
    each_dropped(out, shard, &mut |line: &DroppedLine, bytes| {
        if is_found(list, line) {
            each(line.id());
            return Ok(());
        }
        whole.clear();
        whole.extend_from_slice(bytes);
        whole.push(b'\n');
        writer.write_line(&whole)
    })?;
    writer.finish()
}
