//! The documents of a shard that a list names.

use std::collections::BTreeSet;
use std::path::Path;

use xxhash_rust::xxh3::xxh3_64;

use crate::corpus::{CleanCondition, EditList, KeepList, KeepStatus, documents, edits, pieces};
use crate::dedup::SignatureFile;
use crate::document::CleanDocument;
use crate::error::{Result, damaged};
use crate::read::{Batch, Reader};
use crate::takedown_list::{FoundBy, Hit, TakedownList, Wanted};
use crate::text::{json, narrow};
use crate::write::{clean_file, shard_file};

/// A searched shard.
#[derive(Clone, Debug, Default)]
pub struct Found {
    /// Number of the shard.
    pub shard: usize,
    /// Its documents.
    pub documents: u64,
    /// The source of its documents; None without documents.
    pub source: Option<String>,
    /// Texts that it gives to a dataset: those of kept documents, several of one that was split.
    pub texts: u64,
    /// The same of the documents that meet each condition.
    pub texts_meeting: Vec<u64>,
    /// The documents that the list names, in order.
    pub removed: Vec<Removed>,
    /// Lines of the list that name these: of a document that several entries name all of them.
    pub lines: BTreeSet<u32>,
    /// Lines of `dropped/` that the list names.
    pub dropped: u64,
}

/// A document that a list names.
#[derive(Clone, Debug)]
pub struct Removed {
    /// Number in its shard.
    pub document: u32,
    /// Line of the list; of several entries that name the document the first by kind ([`TakedownList::find`]).
    pub line: u32,
    /// The property that was found.
    pub by: FoundBy,
    /// Texts of the shard before it.
    pub first_text: u64,
    /// For each condition the texts before it that meet it; None if it does not meet the condition itself.
    pub first_text_meeting: Box<[Option<u64>]>,
    /// Texts that it gives: none if deduplication removed it, several if it was split.
    pub texts: u32,
    /// XXH3-64 of the id.
    pub(super) id_hash: u64,
}

/// The properties of a document that lists name.
fn wanted(document: &CleanDocument) -> Wanted<'_> {
    Wanted {
        id: &document.id,
        url: document.url.as_deref(),
        digest: document
            .meta
            .as_ref()
            .and_then(|meta| meta.get("warc")?.get("payload_digest")?.as_str()),
    }
}

/// The entry that names a document.
pub(super) fn hit(list: &TakedownList, document: &CleanDocument) -> Option<Hit> {
    list.find(&wanted(document))
}

/// Searches a shard under `out`. With `obey_keep` its keep list and cuts decide how many texts it gives. Texts are also
/// counted by `conditions`, those of datasets, as the tokenizer evaluates them: on the clean document, before cuts.
///
/// # Errors
/// `Io`; `Damaged` for a clean shard, signatures, keep list or `dropped/` file that is not as it was written.
pub fn search(
    out: &Path,
    shard: usize,
    list: &TakedownList,
    obey_keep: bool,
    conditions: &[CleanCondition],
) -> Result<Found> {
    let keep_path = out.join(shard_file("keep", shard, "keep"));
    let has_list = obey_keep && keep_path.exists();
    let keep = has_list.then(|| KeepList::read(&keep_path)).transpose()?;
    let edits = edits(out, shard, keep.as_ref())?;
    let signatures = SignatureFile::open(&out.join(shard_file("clean", shard, "sig")))?;
    signatures.verify()?;
    let mut found = Found {
        shard,
        texts_meeting: vec![0; conditions.len()],
        ..Found::default()
    };
    let path = clean_file(out, shard).0;
    let mut buffer = String::new();
    let mut all = documents(out, shard)?;
    while let Some(document) = all.next() {
        let document = document?;
        let at = usize::try_from(found.documents).unwrap_or(usize::MAX);
        let is_kept = match &keep {
            Some(keep) if at >= keep.len() => {
                let wanted = format!("{} documents, as in the keep list", keep.len());
                return Err(damaged(&path, 0, format!("document {at}"), wanted));
            }
            Some(keep) => keep.status(at) == KeepStatus::Kept,
            None => true,
        };
        let texts = match is_kept {
            false => 0,
            true => texts_of(&edits, at, &document.text, &mut buffer).map_err(|why| {
                let found = format!("document {at}: {why}");
                damaged(&path, 0, found, "the text that was cut")
            })?,
        };
        let mut first_text_meeting = Vec::with_capacity(conditions.len());
        for (condition, count) in conditions.iter().zip(&mut found.texts_meeting) {
            // the bytes that the tokenizer has read
            let meets = texts > 0
                && condition.holds(all.bytes()).map_err(|why| {
                    damaged(
                        &path,
                        0,
                        format!("document {at}: {why}"),
                        "a clean document",
                    )
                })?;
            first_text_meeting.push(meets.then_some(*count));
            *count += if meets { u64::from(texts) } else { 0 };
        }
        let hits = list.find_all(&wanted(&document));
        found.lines.extend(hits.iter().map(|hit| hit.line));
        if let Some(hit) = hits.first() {
            found.removed.push(Removed {
                document: narrow(at),
                line: hit.line,
                by: hit.by,
                first_text: found.texts,
                first_text_meeting: first_text_meeting.into(),
                texts,
                id_hash: xxh3_64(document.id.as_bytes()),
            });
        }
        found.source.get_or_insert(document.source);
        found.documents += 1;
        found.texts += u64::from(texts);
    }
    let listed = keep.map_or(found.documents, |keep| keep.len() as u64);
    if signatures.count() != found.documents || listed != found.documents {
        let wanted = format!(
            "{} documents as signatures, {listed} in the keep list",
            signatures.count()
        );
        let documents = format!("{} documents", found.documents);
        return Err(damaged(&path, 0, documents, wanted));
    }
    each_dropped(out, shard, &mut |line, _| {
        found.dropped += u64::from(is_found(list, line));
        Ok(())
    })?;
    Ok(found)
}

/// Texts that a kept document gives.
fn texts_of(edits: &EditList, at: usize, text: &str, buffer: &mut String) -> Result<u32, String> {
    let (spans, splits) = (edits.of(at), edits.splits_of(at));
    if spans.is_empty() {
        return Ok(1);
    }
    let mut texts = 0;
    pieces(text, spans, splits, buffer, &mut |_| texts += 1)?;
    Ok(texts)
}

/// A line of `dropped/`, as far as lists read it.
#[derive(Debug, serde::Deserialize)]
pub(super) struct DroppedLine {
    id: String,
    #[serde(default)]
    url: Option<String>,
}

impl DroppedLine {
    pub(super) fn id(&self) -> &str {
        &self.id
    }
}

/// Whether a list names a dropped document, by its id or address.
pub(super) fn is_found(list: &TakedownList, line: &DroppedLine) -> bool {
    let wanted = Wanted {
        id: &line.id,
        url: line.url.as_deref(),
        digest: None,
    };
    list.find(&wanted).is_some()
}

/// Passes every line of a shard's `dropped/` file, parsed and as it is, to `each`; none if the file is not there.
pub(super) fn each_dropped(
    out: &Path,
    shard: usize,
    each: &mut dyn FnMut(&DroppedLine, &[u8]) -> Result<()>,
) -> Result<()> {
    let path = out.join(shard_file("dropped", shard, "jsonl.zst"));
    if !path.exists() {
        return Ok(());
    }
    let mut reader = Reader::open_ours(&path, crate::write::OutputFormat::JsonlZst)?;
    let mut batch = Batch::default();
    while reader.fill(&mut batch)? {
        for raw in &batch.records {
            let wrong = |why: String| {
                let wanted = "the line of a dropped document";
                damaged(
                    &path,
                    raw.offset,
                    format!("line {}: {why}", raw.number),
                    wanted,
                )
            };
            if let Some(why) = &raw.bad {
                return Err(wrong(why.clone()));
            }
            let bytes = batch.bytes(raw);
            let line = json::from_slice(bytes).map_err(|e| wrong(e.to_string()))?;
            each(&line, bytes)?;
        }
    }
    Ok(())
}
