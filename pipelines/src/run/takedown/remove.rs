//! Removal from one job's folder: search of all shards, new files for those that change, records.

use super::super::dedup::put_sources;
use super::super::finished_shards::{self, finished_shards, stage_of};
use super::datasets::Numbering;
use super::record::{Line, List, Record, Shard, name_of, records};
use super::transaction::{Changes, Transaction, remove_folder};
use crate::context::Context;
use crate::manifest::{self, Manifest, fingerprint};
use anyhow::{Context as _, Result, anyhow, bail};
use curate::corpus::CleanCondition;
use curate::dedup::{DedupReport, EMBEDDINGS};
use curate::pipeline::ShardReport;
use curate::takedown::{
    Counts, Found, Gone, INSPECTED, ListCounts, Removals, TakedownList, rewrite, rewrite_dropped,
    rewrite_index, rewrite_lines, rewrite_lists, rewrite_samples, rewrite_shard_samples, search,
    smaller, without_ids,
};
use rayon::iter::{IntoParallelIterator, ParallelIterator};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufWriter, Write};
use std::path::Path;

/// Rule under which removed documents are counted.
const RULE: &str = "takedown";

/// A searched corpus, of which nothing has been changed.
pub(super) struct Searched {
    found: Vec<Found>,
    removals: Removals,
    /// Conditions of the job's datasets, by which texts were counted.
    conditions: Vec<String>,
    /// Deduplication has written keep lists, which change as well.
    has_lists: bool,
    upstream: Value,
    before: String,
}

impl Searched {
    /// Documents and lines that the list names.
    pub(super) fn count(&self) -> u64 {
        self.removals.len() + self.dropped()
    }

    fn dropped(&self) -> u64 {
        self.found.iter().map(|f| f.dropped).sum()
    }
}

/// A file of the first clean shard.
pub(super) const FIRST: &str = "clean/00000.sig";

/// Searches a corpus, which is shown as the one at `place`. Every shard must have the bytes of its record.
pub(super) fn search_all(cx: &Context, place: &Path, list: &TakedownList) -> Result<Searched> {
    let mut problems = Vec::new();
    let finished = finished_shards(&cx.manifest)?;
    if finished.is_none() {
        problems.push("curate has not run to its end".to_string());
    }
    let count = finished.unwrap_or(0);
    for shard in 0..count {
        let stage = stage_of(shard);
        match cx.manifest.get(&stage)? {
            None => problems.push(format!("{stage} has no record")),
            Some(record) if !cx.manifest.is_untouched(&stage, &record.fingerprint)? => {
                problems.push(format!("the files of {stage} are not those of its record"));
            }
            Some(_) => {}
        }
    }
    let has_lists = cx.job.has_keep_lists();
    match cx.manifest.get("dedup")? {
        None if has_lists => problems.push("dedup has not been finished".to_string()),
        Some(record) if has_lists && !cx.manifest.is_untouched("dedup", &record.fingerprint)? => {
            problems.push("the files of dedup are not those of its record".to_string());
        }
        _ => {}
    }
    if !problems.is_empty() {
        bail!(
            "{}: nothing is removed from a corpus that is not as it was written: {}; `millrace run` makes it whole",
            place.display(),
            problems.join("; ")
        );
    }
    let mut conditions: Vec<String> = cx.job.datasets().into_iter().map(|d| d.condition).collect();
    conditions.retain(|condition| !condition.is_empty());
    conditions.sort_unstable();
    conditions.dedup();
    let parsed = conditions.iter().map(|source| {
        CleanCondition::parse(source).map_err(|why| anyhow!("the condition {source:?}: {why}"))
    });
    let parsed = parsed.collect::<Result<Vec<CleanCondition>>>()?;
    let each = (0..count).into_par_iter();
    let found: Vec<Found> = each
        .map(|shard| search(&cx.out, shard, list, has_lists, &parsed))
        .collect::<curate::Result<_>>()?;
    let upstream = super::super::tokenize::curated(cx, count)?;
    Ok(Searched {
        removals: Removals::of(&found),
        found,
        conditions,
        has_lists,
        before: fingerprint(&upstream),
        upstream,
    })
}

/// The report of a dry run of the corpus at `place`, with which the record of a removal begins.
pub(super) fn describe(
    place: &Path,
    searched: &Searched,
    list: &List,
    numberings: &[Numbering],
    lines: &[u32],
) -> Record {
    let found: BTreeSet<u32> = (searched.found.iter())
        .flat_map(|shard| shard.lines.iter().copied())
        .collect();
    let shards = searched.found.iter();
    let shards = shards.filter(|f| !f.removed.is_empty() || f.dropped > 0);
    let datasets = numberings.iter().map(|numbering| {
        let mut then = numbering.then.clone();
        for shard in &searched.found {
            let numbers = shard.removed.iter();
            let numbers = numbers.map(|one| numbering.numbers(shard.shard, one).len() as u64);
            then.removed += numbers.sum::<u64>();
        }
        then
    });
    log!(
        "takedown: {}: {} of {} documents, {} dropped ones",
        place.display(),
        searched.removals.len(),
        searched.found.iter().map(|f| f.documents).sum::<u64>(),
        searched.dropped()
    );
    Record {
        list: list.clone(),
        documents: searched.removals.len(),
        dropped_lines: searched.dropped(),
        duplicates_of_removed: 0,
        shards: shards
            .map(|f| Shard {
                shard: f.shard,
                documents: f.documents,
                removed: f.removed.len() as u64,
                dropped_lines: f.dropped,
            })
            .collect(),
        entries_without_documents: lines
            .iter()
            .filter(|line| !found.contains(line))
            .copied()
            .collect(),
        datasets: datasets.collect(),
        before: searched.before.clone(),
        after: String::new(),
    }
}

/// The datasets of the job, with the numbers of documents in them.
pub(super) fn numberings(cx: &Context, searched: &Searched) -> Result<Vec<Numbering>> {
    let identity = (&searched.upstream, searched.before.as_str());
    let (found, conditions) = (&searched.found, &searched.conditions);
    Numbering::of_job(cx, found, conditions, &records(&cx.out)?, identity)
}

/// Removes the documents; all files appear at once. Returns the files that change.
pub(super) fn remove(
    cx: &Context,
    list: &TakedownList,
    searched: &Searched,
    mut record: Record,
    numberings: &[Numbering],
) -> Result<Changes> {
    let out = cx.out.as_path();
    let mut work = Transaction::begin(out)?;
    let name = name_of(records(out)?.len() + 1);
    let shards = write_shards(cx, list, searched, numberings, &mut work, &name)?;
    let lists = match searched.has_lists {
        true => write_lists(out, searched, &mut work)?,
        false => Vec::new(),
    };
    for name in INSPECTED {
        if out.join(name).exists() {
            let file = rewrite_lines(out, work.folder(), name, &searched.removals)?;
            work.add(file.into());
        }
    }
    let dropped: Vec<String> = shards.iter().flat_map(|s| s.dropped.clone()).collect();
    let gone = Gone {
        removals: &searched.removals,
        dropped: &dropped,
    };
    if let Some(file) = rewrite_samples(out, work.folder(), gone)? {
        work.add(file.into());
    }
    let examples = "decontaminate/report.json";
    if let Ok(text) = std::fs::read(out.join(examples)) {
        let mut value = serde_json::from_slice(&text).with_context(|| examples.to_string())?;
        if without_ids(&mut value, &searched.removals, &dropped) {
            let text = serde_json::to_string_pretty(&value)? + "\n";
            work.write(examples, text.as_bytes())?;
        }
    }
    record.duplicates_of_removed = lists.iter().map(|l| l.orphans).sum();
    let corpus = Corpus {
        cx,
        searched,
        dropped: &dropped,
    };
    record.after = corpus.write_records(&shards, &lists, &mut work)?;
    // removed texts may be among them, and a deduplication makes them again
    remove_folder(&out.join(EMBEDDINGS))?;
    // it shows texts, and is made in milliseconds
    work.remove("report.html");
    let text = serde_json::to_string_pretty(&record)? + "\n";
    work.write(&(name + ".json"), text.as_bytes())?;
    work.commit()
}

/// A shard that changed.
#[derive(Default)]
struct Rewritten {
    shard: usize,
    counts: Counts,
    /// Ids of the removed lines of `dropped/`.
    dropped: Vec<String>,
}

/// Writes the shards that change, and the removed documents to `NAME.jsonl`.
fn write_shards(
    cx: &Context,
    list: &TakedownList,
    searched: &Searched,
    numberings: &[Numbering],
    work: &mut Transaction,
    name: &str,
) -> Result<Vec<Rewritten>> {
    let name = format!("{name}.jsonl");
    let path = work.folder().join(&name);
    let folder = path.parent().unwrap_or(work.folder());
    std::fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    let file = std::fs::File::create(&path).with_context(|| path.display().to_string())?;
    let mut lines = BufWriter::new(file);
    let mut shards = Vec::new();
    for found in &searched.found {
        let mut shard = Rewritten {
            shard: found.shard,
            ..Rewritten::default()
        };
        if !found.removed.is_empty() {
            let mut failed = Ok(());
            let (files, counts) = rewrite(&cx.out, work.folder(), found, list, &mut |taken| {
                let datasets: BTreeMap<String, Vec<u64>> = numberings
                    .iter()
                    .map(|n| (n.then.name.clone(), n.numbers(found.shard, taken.removed)))
                    .filter(|(_, numbers)| !numbers.is_empty())
                    .collect();
                let line = Line {
                    shard: found.shard,
                    document: taken.removed.document,
                    id: taken.id.to_string(),
                    url: taken.url.map(str::to_string),
                    line: taken.removed.line,
                    by: taken.removed.by,
                    datasets,
                };
                if failed.is_ok() {
                    failed = serde_json::to_string(&line)
                        .map_err(std::io::Error::from)
                        .and_then(|text| writeln!(lines, "{text}"));
                }
                Ok(())
            })?;
            failed.with_context(|| path.display().to_string())?;
            files.into_iter().for_each(|file| work.add(file.into()));
            shard.counts = counts;
        }
        if found.dropped > 0 {
            let ids = &mut |id: &str| shard.dropped.push(id.to_string());
            let file = rewrite_dropped(&cx.out, work.folder(), found.shard, list, ids)?;
            work.add(file.into());
        }
        let gone = Gone {
            removals: &searched.removals,
            dropped: &shard.dropped,
        };
        let is_changed = !found.removed.is_empty() || found.dropped > 0;
        if is_changed
            && let Some(file) = rewrite_shard_samples(&cx.out, work.folder(), found.shard, gone)?
        {
            work.add(file.into());
        }
        if is_changed {
            shards.push(shard);
        }
    }
    let file = lines
        .into_inner()
        .map_err(std::io::IntoInnerError::into_error);
    file.and_then(|file| file.sync_all())
        .with_context(|| path.display().to_string())?;
    let (bytes, xxh3) = curate::write::checksum(&path)?;
    let path = name;
    work.add(super::transaction::New { path, bytes, xxh3 });
    Ok(shards)
}

/// Writes the keep lists and cuts that change, and the index of kept documents; returns the counts of every shard.
fn write_lists(out: &Path, searched: &Searched, work: &mut Transaction) -> Result<Vec<ListCounts>> {
    let smaller = smaller(out, &searched.removals)?;
    let mut counts = Vec::new();
    for (shard, smaller) in smaller.iter().enumerate() {
        let removals = &searched.removals;
        let (files, of_shard) = rewrite_lists(out, work.folder(), shard, removals, smaller)?;
        files.into_iter().for_each(|file| work.add(file.into()));
        counts.push(of_shard);
    }
    if let Some(index) = rewrite_index(out, work.folder(), smaller.len())? {
        work.add(index.into());
    }
    Ok(counts)
}

/// The corpus whose records change.
struct Corpus<'a> {
    cx: &'a Context,
    searched: &'a Searched,
    /// Ids of the removed lines of `dropped/`.
    dropped: &'a [String],
}

impl Corpus<'_> {
    /// Writes the records of the shards and the manifest; returns the identity of the corpus that they describe.
    fn write_records(
        &self,
        shards: &[Rewritten],
        lists: &[ListCounts],
        work: &mut Transaction,
    ) -> Result<String> {
        let manifest = &self.cx.manifest;
        for shard in shards {
            let stage = stage_of(shard.shard);
            let record = manifest.get(&stage)?;
            let mut record = record.with_context(|| format!("{stage} has no record"))?;
            let mut report: ShardReport = serde_json::from_value(record.counts.clone())
                .with_context(|| format!("counts of {stage}"))?;
            subtract(&mut report, &shard.counts);
            for output in &mut report.outputs {
                if let Some(new) = work.files().iter().find(|new| new.path == output.path) {
                    output.bytes = new.bytes;
                    output.xxh3.clone_from(&new.xxh3);
                }
            }
            if !report.adds_up() {
                bail!("{stage}: its counts do not add up without the removed documents");
            }
            record.counts = self.scrubbed(serde_json::to_value(&report)?);
            replace_outputs(&mut record, work);
            let text = Manifest::text_of(&record)?;
            work.write(&manifest::part(&stage), text.as_bytes())?;
        }
        let mut records = manifest.records();
        records.remove("report");
        for record in records.values_mut() {
            replace_outputs(record, work);
        }
        let count = self.searched.found.len();
        // the records as they will be: those of changed shards are in the new folder
        let new = work.folder().to_path_buf();
        let record_of = |shard: usize| -> Result<manifest::Record> {
            let name = manifest::part(&stage_of(shard));
            let staged = new.join(&name);
            let path = if staged.exists() {
                staged
            } else {
                self.cx.out.join(&name)
            };
            let text = std::fs::read(&path).with_context(|| path.display().to_string())?;
            serde_json::from_slice(&text).with_context(|| path.display().to_string())
        };
        if let Some(record) = records.get_mut("curate") {
            let mut sum = ShardReport::default();
            for shard in 0..count {
                let report: ShardReport = serde_json::from_value(record_of(shard)?.counts)?;
                sum.merge(&report);
            }
            let mut before = std::mem::replace(&mut record.counts, serde_json::to_value(&sum)?);
            record.counts["seconds_by_step"] = before["seconds_by_step"].take();
            finished_shards::keep(&mut before, &mut record.counts);
        }
        if let Some(record) = records.get_mut("dedup").filter(|_| !lists.is_empty()) {
            let mut report: DedupReport =
                serde_json::from_value(record.counts.clone()).context("counts of dedup")?;
            let is_by_shard = !report.removed_per_shard.is_empty();
            subtract_lists(&mut report, lists);
            record.counts = self.scrubbed(serde_json::to_value(&report)?);
            if is_by_shard {
                let sources = (0..count).map(|shard| {
                    let source = &record_of(shard)?.counts["source"];
                    Ok(source.as_str().map(str::to_string))
                });
                let sources = sources.collect::<Result<Vec<Option<String>>>>()?;
                let source_of = |shard: usize| sources.get(shard)?.clone();
                put_sources(&mut record.counts, &report, &source_of)?;
            }
        }
        let sums = (0..count).map(|shard| Ok(serde_json::to_value(record_of(shard)?.outputs)?));
        let sums = serde_json::json!(sums.collect::<Result<Vec<Value>>>()?);
        if let Some(record) = records.get_mut("dedup") {
            super::super::dedup::set_documents(record, &sums);
        }
        let text = Manifest::text_of(&records)?;
        work.write(manifest::NAME, text.as_bytes())?;
        let lists = records.get("dedup").filter(|_| self.searched.has_lists);
        let after = serde_json::json!([sums, lists.map(|record| &record.outputs)]);
        Ok(fingerprint(&after))
    }

    /// Counts without the samples of removed documents.
    fn scrubbed(&self, mut counts: Value) -> Value {
        without_ids(&mut counts, &self.searched.removals, self.dropped);
        counts
    }
}

/// Puts the new sizes and checksums into a record. Their time of change is not known before they are in their places.
fn replace_outputs(record: &mut manifest::Record, work: &Transaction) {
    for output in &mut record.outputs {
        let mut new = work.files().iter();
        if let Some(new) = new.find(|new| Path::new(&new.path) == output.path) {
            output.bytes = new.bytes;
            output.xxh3.clone_from(&new.xxh3);
            output.modified_ns = None;
        }
    }
}

fn subtract(report: &mut ShardReport, counts: &Counts) {
    if counts.documents == 0 {
        return;
    }
    report.kept = report.kept.saturating_sub(counts.documents);
    report.bytes_out = report.bytes_out.saturating_sub(counts.bytes);
    report.chars = report.chars.saturating_sub(counts.chars);
    *report.dropped.entry(RULE.to_string()).or_default() += counts.documents;
    for (host, count) in &counts.hosts {
        match report.hosts.get_mut(host) {
            Some(of) => *of = of.saturating_sub(*count),
            None => report.other_hosts = report.other_hosts.saturating_sub(*count),
        }
    }
    for (source, count) in &counts.sources {
        if let Some(of) = report.sources.get_mut(source) {
            *of = of.saturating_sub(*count);
        }
    }
    for (length, count) in &counts.lengths {
        if let Some(of) = report.lengths.get_mut(length) {
            *of = of.saturating_sub(*count);
        }
    }
    report.hosts.retain(|_, count| *count > 0);
    report.sources.retain(|_, count| *count > 0);
    report.lengths.retain(|_, count| *count > 0);
}

fn subtract_lists(report: &mut DedupReport, lists: &[ListCounts]) {
    let mut gone = ListCounts::default();
    lists.iter().for_each(|list| gone.add(list));
    let all = [
        (&mut report.kept, gone.gone_kept),
        (&mut report.exact, gone.gone_exact),
        (&mut report.fuzzy, gone.gone_fuzzy),
        (&mut report.url, gone.gone_url),
        (&mut report.semantic, gone.gone_semantic),
        (&mut report.earlier, gone.gone_earlier),
        (&mut report.hollow, gone.gone_hollow),
        (&mut report.contaminated, gone.gone_contaminated),
    ];
    let mut documents = 0;
    for (count, gone) in all {
        *count = count.saturating_sub(gone);
        documents += gone;
    }
    report.documents = report.documents.saturating_sub(documents);
    report.kept_per_shard = lists.iter().map(|list| list.kept).collect();
    if !report.removed_per_shard.is_empty() {
        report.removed_per_shard = lists.iter().map(|list| list.removed).collect();
    }
}
