//! `dedup`: MinHash signatures to keep-lists. Documents are not rewritten.

use crate::context::Context;
use crate::job::WrongUse;
use crate::machine::grouped;
use crate::manifest::{Record, fingerprint, identity};
use crate::progress::Progress;
use crate::run::classifiers::Transformers;
use crate::run::decision::{Change, Decision, Reason, replaced};
use crate::run::finished_shards::{finished_shards, stage_of};
use crate::run::{setting_changes, settings_print};
use anyhow::{Result, bail};
use curate::dedup::{DedupReport, RemovedCounts, SemanticConfig, dedup_with_models};
use serde::Serialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Number of shards and checksums of the curation outputs, which dedup and tokenize read.
pub(crate) fn upstream(cx: &Context) -> Result<(usize, Value)> {
    if cx.job.curate.is_none() {
        return Err(WrongUse::new("the job has no [curate] table").into());
    }
    let shards = cx.shards()?.len();
    match finished_shards(&cx.manifest)? {
        Some(finished) if finished == shards => Ok((shards, sums(cx, shards)?)),
        Some(finished) => bail!(
            "curate ran over {finished} shards, and the inputs have {shards} now; run `millrace curate` (or `run`) first"
        ),
        None => {
            bail!("curate has not run, or not to its end; run `millrace curate` (or `run`) first")
        }
    }
}

/// Checksums of the outputs of this number of shards.
pub(crate) fn sums(cx: &Context, shards: usize) -> Result<Value> {
    let mut sums = Vec::new();
    for i in 0..shards {
        let stage = stage_of(i);
        let Some(record) = cx.manifest.get(&stage)? else {
            bail!("{stage} has not run; run `millrace curate` (or `run`) first");
        };
        sums.push(serde_json::to_value(record.outputs)?);
    }
    Ok(json!(sums))
}

/// Names and checksums of the indexes of earlier crawls; null without any.
fn indexes(config: &curate::dedup::DedupConfig) -> Result<Value> {
    let Some(folder) = &config.index else {
        return Ok(Value::Null);
    };
    let files = curate::dedup::index_files(folder)?;
    let sums = files.iter().map(|path| {
        let (bytes, sum) = curate::write::checksum(path)?;
        Ok(json!([
            path.file_name().map(|n| n.to_string_lossy()),
            bytes,
            sum
        ]))
    });
    Ok(sums.collect::<Result<Vec<_>>>()?.into())
}

/// Fingerprint of a deduplication of these documents with the job's settings.
fn fingerprint_of(cx: &Context, sums: &Value) -> Result<String> {
    let config = &cx.job.dedup.clone().unwrap_or_default();
    let cutting = cx.job.cutting();
    let sets = cutting.iter().flat_map(|d| &d.files);
    let sets: Vec<_> = sets.map(|f| identity(Path::new(f))).collect();
    // memory_mb only decides when the sort spills; it does not change the result
    let mut depends = json!([
        "dedup",
        config.exact,
        config.minhash,
        config.keep,
        config.priority,
        indexes(config)?,
        config.url,
        config.lines,
        config.bloom,
        config.substring,
        cutting,
        sets,
        sums
    ]);
    // absent where it is off, so that records of earlier versions stay good
    if let (Some(semantic), Some(list)) = (&config.semantic, depends.as_array_mut()) {
        let files: Vec<_> = semantic.files().iter().map(|file| identity(file)).collect();
        // which changes no result
        let semantic = SemanticConfig {
            batch_tokens: 0,
            ..semantic.clone()
        };
        list.push(json!([semantic, files]));
    }
    Ok(fingerprint(&depends))
}

/// Count of a record that has the fingerprint of the documents; records of earlier versions lack it.
const DOCUMENTS: &str = "documents_fingerprint";

/// Whether a deduplication was one of documents with these checksums.
pub(super) fn is_of(record: &Record, sums: &Value) -> bool {
    let print = record.counts[DOCUMENTS].as_str();
    print.is_none_or(|print| print == fingerprint(sums))
}

/// The record stands for these documents from now on, as some were removed from both.
pub(super) fn set_documents(record: &mut Record, sums: &Value) {
    record.counts[DOCUMENTS] = fingerprint(sums).into();
}

/// Keys that the keep lists depend on.
const SETTINGS: [&str; 2] = ["dedup", "decontaminate"];

/// The decision of the stage. `change`: of the curation before it; without one, `sums` are the checksums of its outputs.
///
/// # Errors
/// Indexes that cannot be read.
pub(super) fn decision(cx: &Context, change: Option<&Change>, sums: &Value) -> Result<Decision> {
    let before = cx.manifest.get("dedup")?;
    let is_done = match change {
        // files that are written again have other times, which are part of the fingerprint
        Some(_) => false,
        None => cx.done("dedup", &fingerprint_of(cx, sums)?)?.is_some(),
    };
    if is_done {
        return Ok(Decision::skip("dedup"));
    }
    let changed = setting_changes::of(&cx.job, &cx.out);
    let changed = setting_changes::within(&changed, &SETTINGS);
    let mut reasons: Vec<Reason> = changed.into_iter().map(Reason::other).collect();
    reasons.extend(change.map(Change::reason));
    if reasons.is_empty() {
        reasons.push(Reason::perhaps(match before {
            None => "it has not run, or not to its end",
            Some(_) => "its keep lists, or indexes and files that it reads, have changed",
        }));
    }
    let mut decision = Decision::run("dedup", reasons);
    decision.replaces = replaced(&cx.out, before.as_ref());
    Ok(decision)
}

/// Count of a record that has the outcomes of the documents of each source; records of earlier versions lack it.
pub(crate) const BY_SOURCE: &str = "by_source";

/// The outcomes of the documents of a source.
#[derive(Default, Serialize)]
struct SourceDocuments {
    /// `documents == kept + sum(removed)`.
    documents: u64,
    kept: u64,
    #[serde(flatten)]
    removed: RemovedCounts,
}

/// Puts the counts of each source in the counts of a record. `source_of` tells the source of a shard; shards whose source is not
/// known are in no count.
pub(super) fn put_sources(
    counts: &mut Value,
    report: &DedupReport,
    source_of: &dyn Fn(usize) -> Option<String>,
) -> Result<()> {
    let mut sources: BTreeMap<String, SourceDocuments> = BTreeMap::new();
    let shards = report.kept_per_shard.iter().zip(&report.removed_per_shard);
    for (shard, (kept, removed)) in shards.enumerate() {
        if let Some(source) = source_of(shard) {
            let into = sources.entry(source).or_default();
            into.documents += kept + removed.total();
            into.kept += kept;
            into.removed.add(removed);
        }
    }
    counts[BY_SOURCE] = serde_json::to_value(sources)?;
    Ok(())
}

pub(super) fn run(cx: &Context) -> Result<()> {
    if !cx.job.has_keep_lists() {
        let message = "the job has neither a [dedup] table nor a [decontaminate] one that cuts";
        return Err(WrongUse::new(message).into());
    }
    let config = &cx.job.dedup.clone().unwrap_or_default();
    let cutting = cx.job.cutting();
    let (shards, sums) = upstream(cx)?;
    let print = fingerprint_of(cx, &sums)?;
    if cx.done("dedup", &print)?.is_some() {
        info!("dedup: done before");
        return Ok(());
    }
    cx.accept()?;
    cx.manifest.forget("dedup");
    let progress = Progress::start("dedup", "documents", 0);
    let watcher = Watcher(&progress);
    let mut report = dedup_with_models(config, &cx.out, shards, &Transformers, &watcher)?;
    if let Some(sets) = cutting {
        report = curate::dedup::decontaminate(sets, config.memory_mb, &cx.out, report, &watcher)?;
    }
    let files: Vec<PathBuf> = report
        .outputs
        .iter()
        .map(|o| o.path.clone().into())
        .collect();
    let seconds = progress.seconds();
    let mut counts = serde_json::to_value(&report)?;
    counts[DOCUMENTS] = fingerprint(&sums).into();
    settings_print::put_dedup(&mut counts, &cx.job);
    let listed = cx.shards()?;
    put_sources(&mut counts, &report, &|shard| {
        Some(listed.get(shard)?.input.source.clone())
    })?;
    cx.manifest
        .record("dedup", &print, &files, counts, seconds)?;
    progress.finish(&format!(
        "{} documents, {} exact and {} near duplicates in {} clusters{}, {} kept",
        grouped(report.documents),
        grouped(report.exact),
        grouped(report.fuzzy),
        grouped(report.clusters),
        later(&report),
        grouped(report.kept)
    ));
    Ok(())
}

/// Log text for verification, documents of earlier crawls, and removals by address, embeddings, lines, substrings and
/// evaluation texts.
fn later(report: &DedupReport) -> String {
    let mut text = String::new();
    if let Some(verify) = &report.verify {
        let (candidates, rejected) = (grouped(verify.candidates), grouped(verify.rejected));
        text += &format!(", {rejected} of {candidates} candidates not alike");
    }
    if report.indexed > 0 {
        text += &format!(", {} of earlier crawls", grouped(report.earlier));
    }
    if report.url > 0 {
        text += &format!(", {} of the same address", grouped(report.url));
    }
    if let Some(found) = &report.semantic_clusters {
        let (gone, clusters) = (grouped(report.semantic), grouped(found.clusters));
        text += &format!(", {gone} of nearly the same embedding in {clusters} clusters");
        if found.unembedded > 0 {
            text += &format!(" ({} without one)", grouped(found.unembedded));
        }
        if !found.is_settled && found.embedded > 0 {
            text += &format!(" (still moving after {} iterations)", found.iterations);
        }
    }
    for cut in &report.cuts {
        let (documents, hollow) = (grouped(cut.documents), grouped(cut.hollow));
        text += &format!(", {} cut from {documents} and took {hollow}", cut.rule);
    }
    if let Some(found) = &report.decontamination {
        let (met, split) = (grouped(found.met), grouped(found.split));
        let gone = grouped(report.contaminated);
        text +=
            &format!(", evaluation texts in {met} of which {split} were split and {gone} removed");
    }
    text
}

/// Documents through the bar.
struct Watcher<'a>(&'a Progress);

impl curate::Progress for Watcher<'_> {
    fn bytes(&self, _read: u64) {}
    fn documents(&self, read: u64, _kept: u64) {
        self.0.add(read);
    }
}
