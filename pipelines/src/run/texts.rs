//! Texts for the tokenizer: clean shards with their keep-lists, or plain files, divided among tasks.

use crate::context::Context;
use crate::job::TokenDataset;
use anyhow::{Result, anyhow, bail};
use curate::contract::FieldCounts;
use curate::corpus::{CleanCondition, Found, TextReader};
use curate::read::{Format, Shard};
use index::dataset::{Group, GroupCounts, TextBatch, TextSource};
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

/// Smallest piece that plain files are cut into, in bytes.
const SMALLEST_CUT: u64 = 1 << 20;

/// A contiguous run of documents that one reader reads.
#[derive(Clone, Debug)]
pub(super) struct Unit {
    place: Place,
    source: String,
    bytes: u64,
    /// Only documents that meet it.
    condition: Option<Arc<CleanCondition>>,
}

#[derive(Clone, Debug)]
enum Place {
    /// Clean shard by number.
    Shard(usize),
    /// A file, or the lines of it that start in a range.
    File(PathBuf, Format, Option<Range<u64>>),
}

/// Whether the documents of a shard, or of an input file, are of a source of a dataset.
pub(super) fn is_of(dataset: &TokenDataset, shard: &Shard) -> bool {
    is_source_of(dataset, &shard.input.source)
}

/// Whether a source is one of a dataset.
pub(super) fn is_source_of(dataset: &TokenDataset, source: &str) -> bool {
    dataset.sources.is_empty() || dataset.sources.iter().any(|own| own == source)
}

/// Units of a dataset in document order: the shards of a curation, else the input files. `tasks` decides how finely plain
/// files are cut, not the documents read.
pub(super) fn units(cx: &Context, dataset: &TokenDataset, tasks: usize) -> Result<Vec<Unit>> {
    let job = &cx.job;
    let condition = match dataset.condition.as_str() {
        "" => None,
        source => {
            let condition = CleanCondition::parse(source);
            Some(Arc::new(
                condition.map_err(|why| anyhow!("{}: {why}", dataset.name))?,
            ))
        }
    };
    let files = match job.curate {
        // a large input may be several shards
        Some(_) => cx.shards()?.to_vec(),
        None => curate::read::input_files(job.inputs())?,
    };
    let files: Vec<Shard> = (files.into_iter())
        .filter(|file| is_of(dataset, file))
        .collect();
    let total: u64 = files.iter().map(|f| f.bytes).sum();
    let cut = (total / (4 * tasks as u64)).max(SMALLEST_CUT);
    let mut units = Vec::new();
    for file in files {
        let mut unit = |place, bytes| {
            units.push(Unit {
                place,
                source: file.input.source.clone(),
                bytes,
                condition: condition.clone(),
            });
        };
        if job.curate.is_some() {
            unit(Place::Shard(file.number), file.bytes);
            continue;
        }
        let format = file.input.format;
        let whole = tasks == 1 || file.bytes <= cut || format != Format::Jsonl;
        if whole || !curate::corpus::is_plain(&file.path)? {
            unit(Place::File(file.path.clone(), format, None), file.bytes);
            continue;
        }
        let mut start = 0;
        while start < file.bytes {
            let end = if file.bytes - start < 2 * cut {
                file.bytes
            } else {
                start + cut
            };
            unit(
                Place::File(file.path.clone(), format, Some(start..end)),
                end - start,
            );
            start = end;
        }
    }
    Ok(units)
}

/// The units of task `task` of `tasks`: contiguous runs of about equal bytes.
pub(super) fn share(units: &[Unit], task: usize, tasks: usize) -> Vec<Unit> {
    let total: u128 = units
        .iter()
        .map(|u| u128::from(u.bytes))
        .sum::<u128>()
        .max(1);
    let mut before = 0u128;
    let mut own = Vec::new();
    for unit in units {
        // a unit belongs to the task whose share contains its middle
        let middle = 2 * before + u128::from(unit.bytes);
        before += u128::from(unit.bytes);
        let of = (middle * tasks as u128 / (2 * total)).min(tasks as u128 - 1);
        if of == task as u128 {
            own.push(unit.clone());
        }
    }
    own
}

/// Reads units one after another.
pub(super) struct Reader<'a> {
    cx: &'a Context,
    key: String,
    units: std::vec::IntoIter<Unit>,
    open: Option<(TextReader, String)>,
    groups: Vec<(String, String)>,
    last: usize,
    /// Values of the metadata that the dataset's condition names.
    pub(super) fields: BTreeMap<String, FieldCounts>,
    /// Lines for `errors.jsonl`.
    pub(super) errors: Vec<u8>,
    /// Records without a text.
    pub(super) bad: u64,
    /// Bad records of the stage's other parts and datasets: `tokenize.max_bad_records` is a limit for all of them
    /// together.
    bad_before: u64,
}

impl<'a> Reader<'a> {
    pub(super) fn new(cx: &'a Context, key: &str, units: Vec<Unit>, bad_before: u64) -> Reader<'a> {
        Reader {
            cx,
            key: key.to_string(),
            units: units.into_iter(),
            open: None,
            groups: Vec::new(),
            last: 0,
            fields: BTreeMap::new(),
            errors: Vec::new(),
            bad: 0,
            bad_before,
        }
    }

    /// Counts of a build under the names of their groups.
    pub(super) fn named(&self, counts: &[GroupCounts]) -> Vec<Group> {
        self.groups
            .iter()
            .zip(counts)
            .map(|((source, language), counts)| Group {
                source: source.clone(),
                language: language.clone(),
                counts: *counts,
            })
            .collect()
    }

    fn next_reader(&mut self) -> Result<Option<(TextReader, String)>> {
        let Some(unit) = self.units.next() else {
            return Ok(None);
        };
        // without a dedup stage, ignore a keep-list that an earlier job left in this folder
        let keep = self.cx.job.has_keep_lists();
        let most = self
            .cx
            .job
            .tokenize
            .as_ref()
            .map_or(0, |t| t.max_record_bytes);
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        let mut reader = match unit.place {
            Place::Shard(number) => TextReader::shard(&self.cx.out, number, keep)?,
            Place::File(path, format, None) => {
                detail!("tokenize: reads {}", curate::secrets::shown(&path));
                TextReader::open(&path, format, &self.key, most)?
            }
            Place::File(path, _, Some(range)) => {
                TextReader::open_range(&path, range, &self.key, most)?
            }
        };
        if let Some(condition) = unit.condition {
            reader.only((*condition).clone());
        }
        Ok(Some((reader, unit.source)))
    }

    /// Reads one record; false at the end of the last unit.
    fn step(&mut self, batch: &mut TextBatch) -> Result<bool> {
        let (mut reader, source) = match self.open.take() {
            Some(open) => open,
            None => match self.next_reader()? {
                None => return Ok(false),
                Some(open) => open,
            },
        };
        let (groups, last) = (&mut self.groups, &mut self.last);
        let found = reader.next(&mut |record| {
            for text in record.texts {
                batch.push(text);
            }
            let same = |g: &(String, String)| g.0 == source && g.1 == record.language;
            if !groups.get(*last).is_some_and(same) {
                *last = groups.iter().position(same).unwrap_or_else(|| {
                    groups.push((source.clone(), record.language.to_string()));
                    groups.len() - 1
                });
            }
            // a corpus has some hundred languages; groups beyond 65 535 are counted with the last one
            batch.end_document(u16::try_from(*last).unwrap_or(u16::MAX));
        })?;
        match found {
            Found::Document => {}
            Found::End => {
                for (name, counts) in reader.fields() {
                    self.fields.entry(name.to_string()).or_default().add(counts);
                }
                return Ok(true);
            }
            Found::Bad { offset, why, .. } => self.quarantine(&reader, offset, &why)?,
        }
        self.open = Some((reader, source));
        Ok(true)
    }

    fn quarantine(&mut self, reader: &TextReader, offset: u64, why: &str) -> Result<()> {
        let line = serde_json::json!({"path": curate::secrets::shown(reader.path()), "offset": offset, "why": why});
        self.errors
            .extend_from_slice(format!("{line}\n").as_bytes());
        self.bad += 1;
        let most = self
            .cx
            .job
            .tokenize
            .as_ref()
            .map_or(0, |t| t.max_bad_records);
        if self.bad_before + self.bad > most {
            bail!(
                "more than tokenize.max_bad_records = {most} records hold no text; the last: {}, byte {offset}: {why}",
                curate::secrets::shown(reader.path())
            );
        }
        Ok(())
    }
}

impl TextSource for Reader<'_> {
    fn fill(
        &mut self,
        batch: &mut TextBatch,
    ) -> Result<bool, Box<dyn std::error::Error + Send + Sync>> {
        while !batch.is_full() {
            if !self.step(batch)? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

impl Reader<'_> {
    /// Hands every text to `take` until it has enough.
    pub(super) fn each(mut self, mut take: impl FnMut(&str) -> Result<bool>) -> Result<()> {
        let mut batch = TextBatch::default();
        loop {
            let more = self.step(&mut batch)?;
            for text in batch.texts() {
                if !take(text)? {
                    return Ok(());
                }
            }
            batch.clear();
            if !more {
                return Ok(());
            }
        }
    }
}
