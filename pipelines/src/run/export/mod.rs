//! `export`: the final documents of a job, deduplicated and cut, as a folder of files with one schema and a data card; or its
//! metrics for other programs (`metrics`).

mod card;
mod cut;
mod files;
mod metrics;
mod tally;

use super::finished_shards::{finished_shards, stage_of};
use super::job_at::job_at;
use super::settings_print;
use crate::context::{Context, sweep_files};
use crate::folder_lock::{Lock, lock_file};
use crate::job::WrongUse;
use crate::machine::{grouped, megabytes, write_atomically};
use crate::manifest::fingerprint;
use crate::progress::Progress;
use anyhow::{Context as _, Result, bail};
use card::Card;
use clap::{Args, ValueEnum};
use curate::pipeline::ShardReport;
use curate::write::{ExportFormat, OutputFile};
use cut::ShardSize;
use files::{Export, UNFINISHED, is_whole};
use metrics::MetricsForm;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::fs;
use std::path::{Path, PathBuf};
use tally::Tally;

/// The record of a finished export, written last.
const RECORD: &str = "export.json";
/// Its data card.
const CARD: &str = "README.md";

/// Flags of `export`.
#[derive(Args)]
pub(crate) struct ExportArgs {
    /// Job file (TOML), or the folder that a job wrote.
    job: PathBuf,
    /// Form of the files: jsonl.zst, parquet and hf hold documents, the others the metrics of a training.
    #[arg(long, value_enum)]
    to: Form,
    /// Folder to write: it must be new, empty, or of the same export. Of wandb-jsonl and otlp-jsonl a file.
    out: PathBuf,
    /// Override one key of the job.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Size of a file's texts in MiB before compression, at the mean size of a shard's documents.
    #[arg(long, value_name = "MIB", default_value_t = 512, value_parser = clap::value_parser!(u64).range(1..=1 << 20))]
    file_mb: u64,
}

/// Form of an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Form {
    /// JSON lines under zstd.
    #[value(name = "jsonl.zst")]
    JsonlZst,
    /// Parquet under zstd.
    Parquet,
    /// A Hugging Face dataset: Parquet, and a card with front matter.
    Hf,
    /// Metrics as an event file of TensorBoard.
    Tensorboard,
    /// Metrics as JSON lines with W&B's names, one per step.
    WandbJsonl,
    /// Metrics as JSON lines of OpenTelemetry's protocol (OTLP).
    OtlpJsonl,
}

/// The content of an export.
enum Content {
    Documents(Documents),
    Metrics(MetricsForm),
}

/// Files of documents.
struct Documents {
    format: ExportFormat,
    /// Start of the files' names: the split, as Hugging Face's folders have it.
    stem: &'static str,
    has_front_matter: bool,
}

impl Form {
    fn content(self) -> Content {
        let documents = |format, stem, has_front_matter| {
            Content::Documents(Documents {
                format,
                stem,
                has_front_matter,
            })
        };
        match self {
            Form::JsonlZst => documents(ExportFormat::JsonlZst, "", false),
            Form::Parquet => documents(ExportFormat::Parquet, "", false),
            Form::Hf => documents(ExportFormat::Parquet, "train-", true),
            Form::Tensorboard => Content::Metrics(MetricsForm::Tensorboard),
            Form::WandbJsonl => Content::Metrics(MetricsForm::WandbJsonl),
            Form::OtlpJsonl => Content::Metrics(MetricsForm::OtlpJsonl),
        }
    }
}

/// `export.json`.
#[derive(Debug, Serialize, Deserialize)]
struct Finished {
    fingerprint: String,
    job: String,
    files: Vec<OutputFile>,
    counts: Tally,
}

/// The verb.
pub(crate) fn export(args: &ExportArgs) -> Result<()> {
    let documents = match args.to.content() {
        Content::Documents(documents) => documents,
        Content::Metrics(form) => {
            // a run's metrics need no job that can be read
            let run = match args.job.is_dir() {
                true => args.job.clone(),
                false => job_at(&args.job, &args.set)?.out,
            };
            return metrics::export(&run, form, &args.out);
        }
    };
    let loaded = job_at(&args.job, &args.set)?;
    if loaded.curate.is_none() {
        let message = format!(
            "{}: export writes the documents of [curate], and this job has no such table",
            args.job.display()
        );
        return Err(WrongUse::new(message).into());
    }
    let cx = Context::open_to_read(loaded)?;
    let (reports, shards) = kept(&cx)?;
    let upstream = super::tokenize::curated(&cx, shards.len())?;
    let print = fingerprint(&json!([
        "export, cut by mean sizes",
        documents.stem,
        documents.format.extension(),
        args.file_mb,
        upstream
    ]));
    let _lock = claim(&args.out, &print)?;
    if is_finished(&args.out, &print)? {
        info!("export: done before ({})", args.out.display());
        return remove_records(&args.out);
    }
    sweep_files(&args.out);
    sweep_files(&args.out.join("data"));
    let documents_of_all = shards.iter().map(|shard| shard.documents).sum();
    let progress = Progress::start("export", "documents", documents_of_all);
    let export = Export {
        job: &cx.out,
        has_lists: cx.job.has_keep_lists(),
        shards: &shards,
        out: &args.out,
        format: documents.format,
        stem: documents.stem,
        file_bytes: args.file_mb << 20,
        fingerprint: &print,
    };
    let (files, tally) = export.run(&progress)?;
    let card = Card {
        job: &cx.job,
        is_hugging_face: documents.has_front_matter,
        files: &files,
        tally: &tally,
        curated: &reports,
        dedup: cx.manifest.get("dedup")?.map(|record| record.counts),
    };
    write_atomically(&args.out.join(CARD), card.text().as_bytes())?;
    let bytes: u64 = files.iter().map(|f| f.bytes).sum();
    let text = format!(
        "{} documents in {} rows, {} files, {}",
        grouped(tally.documents),
        grouped(tally.rows),
        files.len(),
        megabytes(bytes)
    );
    let finished = Finished {
        fingerprint: print,
        job: cx.job.name.clone(),
        files,
        counts: tally,
    };
    let record = serde_json::to_string_pretty(&finished)? + "\n";
    write_atomically(&args.out.join(RECORD), record.as_bytes())?;
    remove_records(&args.out)?;
    progress.finish(&text);
    Ok(())
}

/// The merged reports of a job's shards, and the size of each. The files must be those of their records.
fn kept(cx: &Context) -> Result<(ShardReport, Vec<ShardSize>)> {
    let mut sum = ShardReport::default();
    let mut sizes = Vec::new();
    let mut problems = Vec::new();
    // a finished corpus can be exported when its inputs are gone
    let listed = cx.shards().unwrap_or_default();
    let count = finished_shards(&cx.manifest)?;
    match count {
        None if cx.manifest.get(&stage_of(0))?.is_none() => {
            problems.push("curate has not run".to_string());
        }
        None => problems.push("curate has not run to its end".to_string()),
        Some(count) if !listed.is_empty() && listed.len() != count => problems.push(format!(
            "curate ran over {count} shards, and the inputs have {} now",
            listed.len()
        )),
        Some(_) => {}
    }
    let inputs = settings_print::of_inputs(&cx.job);
    for shard in 0..count.unwrap_or(0) {
        let stage = stage_of(shard);
        let Some(record) = cx.manifest.get(&stage)? else {
            problems.push(format!("{stage} has not run"));
            continue;
        };
        let other = listed.get(shard);
        if let Some((made_of, now)) =
            other.and_then(|listed| settings_print::other_file(&record, listed))
        {
            problems.push(format!("{stage} was made of {made_of}, and is now {now}"));
        }
        if !cx.manifest.is_untouched(&stage, &record.fingerprint)? {
            problems.push(format!("the files of {stage} are not those of its record"));
        }
        if settings_print::is_of_no_input(&record, &inputs) {
            problems.push(format!("{stage} ran with other settings"));
        }
        let report: ShardReport =
            serde_json::from_value(record.counts).with_context(|| format!("counts of {stage}"))?;
        sizes.push(ShardSize {
            documents: report.kept,
            text_bytes: report
                .bytes_out
                .checked_div(report.kept)
                .unwrap_or(0)
                .max(1),
        });
        sum.merge(&report);
    }
    if cx.job.has_keep_lists() {
        match cx.manifest.get("dedup")? {
            None => problems.push("dedup has not run".to_string()),
            Some(record) => {
                if !cx.manifest.is_untouched("dedup", &record.fingerprint)? {
                    problems.push("the files of dedup are not those of its record".to_string());
                }
                if settings_print::is_of_other_lists(&record, &cx.job) {
                    problems.push("dedup ran with other settings".to_string());
                }
                let report: curate::dedup::DedupReport =
                    serde_json::from_value(record.counts).context("counts of dedup")?;
                if report.kept_per_shard.len() != sizes.len() {
                    problems.push(format!(
                        "dedup ran over {} shards of {}",
                        report.kept_per_shard.len(),
                        sizes.len()
                    ));
                }
                for (size, kept) in sizes.iter_mut().zip(report.kept_per_shard) {
                    size.documents = kept;
                }
            }
        }
    }
    if problems.is_empty() {
        return Ok((sum, sizes));
    }
    let more = match problems.len().saturating_sub(5) {
        0 => String::new(),
        more => format!("; and {more} more"),
    };
    problems.truncate(5);
    bail!(
        "{}: the job is not finished: {}{more}; `millrace run` finishes it",
        cx.out.display(),
        problems.join("; ")
    )
}

/// Locks the folder for an export. A folder with anything else in it is refused, so that nothing is overwritten.
fn claim(out: &Path, print: &str) -> Result<Lock> {
    let records = out.join(UNFINISHED);
    let marker = records.join("fingerprint");
    let entries = fs::read_dir(out).into_iter().flatten().flatten();
    // a process may have been killed before it wrote its marker
    let is_empty = entries
        .filter(|entry| entry.file_name() != UNFINISHED)
        .count()
        == 0;
    let is_same = fs::read_to_string(&marker).is_ok_and(|text| text == print)
        || finished(out).is_some_and(|found| found.fingerprint == print);
    if !is_empty && !is_same {
        let message = format!(
            "{} is not empty, and not an export of these documents in this form; name another folder, or remove it first",
            out.display()
        );
        return Err(WrongUse::new(message).into());
    }
    fs::create_dir_all(&records).with_context(|| format!("cannot make {}", records.display()))?;
    let lock = lock_file(&records.join(".lock"))?;
    if lock.try_lock().is_err() {
        bail!("another process is exporting to {}", out.display());
    }
    write_atomically(&marker, print.as_bytes())?;
    Ok(lock)
}

fn finished(out: &Path) -> Option<Finished> {
    let text = fs::read(out.join(RECORD)).ok()?;
    serde_json::from_slice(&text).ok()
}

/// Whether this export was done before and all of its files are whole.
fn is_finished(out: &Path, print: &str) -> Result<bool> {
    let Some(found) = finished(out).filter(|found| found.fingerprint == print) else {
        return Ok(false);
    };
    for file in &found.files {
        if !is_whole(out, file)? {
            log!(
                "export: {} is not as it was written; it is written again",
                file.path
            );
            return Ok(false);
        }
    }
    Ok(out.join(CARD).exists())
}

fn remove_records(out: &Path) -> Result<()> {
    let records = out.join(UNFINISHED);
    fs::remove_dir_all(&records).with_context(|| format!("cannot remove {}", records.display()))
}
