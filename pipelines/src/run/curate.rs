//! `curate`: runs every input shard through the curation pass, several at once; finished shards are skipped.

use crate::context::Context;
use crate::job::{Files, LoadError, WrongUse};
use crate::machine::{concatenate, grouped, megabytes, write_atomically};
use crate::progress::Progress;
use crate::run::bad_records::{self, Quotes};
use crate::run::classifiers::Transformers;
use crate::run::curate_work::{Work, left, prints_of};
use crate::run::finished_shards::{self, stage_of};
use crate::run::settings_print;
use anyhow::{Context as _, Result, anyhow, bail};
use curate::pipeline::{Curator, ShardReport, merge_samples};
use curate::read::Shard;
use serde_json::json;
use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Shard reports in shard order, from the manifest. Empty if the stage has not run.
pub(crate) fn reports(cx: &Context) -> Result<Vec<ShardReport>> {
    if cx.job.curate.is_none() {
        return Ok(Vec::new());
    }
    let mut all = Vec::new();
    for shard in cx.shards()? {
        let stage = stage_of(shard.number);
        let record = cx.manifest.get(&stage)?.ok_or_else(|| {
            anyhow!("{stage} has not run; run `millrace curate` (or `run`) first")
        })?;
        let mut report: ShardReport =
            serde_json::from_value(record.counts).with_context(|| stage.clone())?;
        // records of earlier versions lack it, and the shard is the one that they were made of
        report
            .source
            .get_or_insert_with(|| shard.input.source.clone());
        all.push(report);
    }
    Ok(all)
}

/// Sum of the shard reports.
pub(crate) fn total(reports: &[ShardReport]) -> ShardReport {
    let mut sum = ShardReport::default();
    reports.iter().for_each(|r| sum.merge(r));
    sum
}

fn table(cx: &Context) -> Result<&curate::pipeline::CurateConfig> {
    let table = cx.job.curate.as_ref();
    table.ok_or_else(|| WrongUse::new("the job has no [curate] table").into())
}

/// Numbers of the shards without a valid record.
pub(crate) fn shards_left(cx: &Context) -> Result<Vec<usize>> {
    let shards = cx.shards()?;
    let prints = prints_of(cx, shards);
    left(shards, &prints, |stage, print| {
        cx.manifest.is_done(stage, print)
    })
}

/// Runs the unfinished shards among `index`, `index + of`, ...; writes no totals.
pub(super) fn run_task(cx: &Context, index: usize, of: usize) -> Result<()> {
    let config = table(cx)?;
    let own: Vec<Shard> = cx
        .shards()?
        .iter()
        .skip(index)
        .step_by(of)
        .cloned()
        .collect();
    let prints = prints_of(cx, &own);
    let todo = left(&own, &prints, |stage, print| {
        cx.manifest.is_done(stage, print)
    })?;
    if todo.is_empty() {
        info!(
            "curate: task {index} of {of} was done before ({} shards)",
            own.len()
        );
        return Ok(());
    }
    let curator = curator(cx, config)?;
    curator.add_bad(bad_before(cx, &own, &todo)?);
    let bytes = todo.iter().map(|i| own[*i].bytes);
    let progress = Progress::start(&format!("curate {index}/{of}"), "MB", bytes.sum());
    run_shards(cx, &curator, &own, &prints, &todo, &Watcher::new(&progress))?;
    progress.finish(&format!("{} shards", todo.len()));
    Ok(())
}

fn curator(cx: &Context, config: &curate::pipeline::CurateConfig) -> Result<Curator> {
    // of the tasks of an executor, which look on their own machine
    let missing = cx.job.missing(&[Files::Curation]);
    if !missing.is_empty() {
        return Err(LoadError::of_job(&cx.out.join("job.toml"), &[], missing).into());
    }
    let (decontaminate, dedup) = (cx.job.dropping(), cx.job.dedup.as_ref());
    // a model that cannot be used is refused before any text is read, not when they are all curated
    if let Some(semantic) = dedup.and_then(|dedup| dedup.semantic.as_ref()) {
        drop(semantic.open(&Transformers)?);
    }
    Ok(Curator::with_models(
        config,
        decontaminate,
        dedup,
        &Transformers,
    )?)
}

/// Bad records of the finished shards, without those of `todo`.
fn bad_before(cx: &Context, shards: &[Shard], todo: &[usize]) -> Result<u64> {
    let is_left: HashSet<usize> = todo.iter().copied().collect();
    let mut bad = 0;
    for (_, shard) in shards
        .iter()
        .enumerate()
        .filter(|(i, _)| !is_left.contains(i))
    {
        let record = cx.manifest.get(&stage_of(shard.number))?;
        bad += record.map_or(0, |r| r.counts["quarantined"].as_u64().unwrap_or(0));
    }
    Ok(bad)
}

pub(super) fn run(cx: &Context) -> Result<()> {
    let config = table(cx)?;
    let shards = cx.shards()?;
    let Work {
        prints,
        of_all,
        todo,
        stale,
        is_done,
    } = Work::of(cx)?;
    if is_done {
        info!("curate: done before ({} shards)", shards.len());
        return Ok(());
    }
    let curator = curator(cx, config)?;
    cx.accept()?;
    cx.manifest.withdraw("curate")?;
    stale.remove(|name| cx.manifest.remove_object(name))?;
    curator.add_bad(bad_before(cx, shards, &todo)?);
    let bytes = todo.iter().map(|i| shards[*i].bytes);
    let progress = Progress::start("curate", "MB", bytes.sum());
    run_shards(
        cx,
        &curator,
        shards,
        &prints,
        &todo,
        &Watcher::new(&progress),
    )?;
    let reports = reports(cx)?;
    let sum = total(&reports);
    let mut files = vec![merge_errors(cx, shards.len())?];
    files.push(merge_samples(&cx.out, &reports, &sum)?.path.into());
    bad_records::check(cx, config, shards, &reports)?;
    if config.statistics {
        files.extend(merge_statistics(cx, shards.len())?);
    }
    if let Some(evaluation) = cx.job.dropping() {
        let sets = curator.evaluation_sets();
        files.push(report_dropped(cx, &sum.decontamination(evaluation, sets))?);
    }
    let seconds = progress.seconds();
    let mut counts = serde_json::to_value(&sum)?;
    // of the shards processed by this run
    counts["seconds_by_step"] = json!(curator.seconds_by_step());
    finished_shards::put(&mut counts, &prints);
    cx.manifest
        .record("curate", &of_all, &files, counts, seconds)?;
    let dropped: u64 = sum.dropped.values().sum();
    progress.finish(&format!(
        "{} records, {} kept, {} dropped, {} quarantined; {} read",
        grouped(sum.records),
        grouped(sum.kept),
        grouped(dropped),
        grouped(sum.quarantined),
        megabytes(sum.bytes_in)
    ));
    if let Some(counted) = bad_records::counted(cx)? {
        log!("curate: note: {counted}");
    }
    for absence in sum.absent_fields() {
        log!("curate: note: {absence}");
    }
    Ok(())
}

/// Runs `tasks` shards at once; each spreads its documents over all threads, so more tasks only hide reading.
fn run_shards(
    cx: &Context,
    curator: &Curator,
    shards: &[Shard],
    prints: &[String],
    todo: &[usize],
    watcher: &Watcher,
) -> Result<()> {
    let asked = cx.job.curate.as_ref().map_or(0, |c| c.tasks);
    // I/O waits of some shards hide behind the work of the others
    let usual = rayon::current_num_threads() + 2;
    let tasks = match asked {
        // a shard reads with one request at a time
        0 if todo.iter().any(|i| shards[*i].input.is_crawl()) => usual.min(CRAWL_REQUESTS),
        0 => usual,
        asked => asked,
    };
    let journal_mb = cx.job.curate.as_ref().map_or(0, |c| c.journal_mb);
    let least = journal_mb.saturating_mul(1 << 20);
    // finished shards whose journal a kill left behind
    let is_left: HashSet<usize> = todo.iter().copied().collect();
    for (_, shard) in shards
        .iter()
        .enumerate()
        .filter(|s| !is_left.contains(&s.0))
    {
        Curator::forget_journal(&cx.out, shard.number)?;
    }
    let next = AtomicUsize::new(0);
    let failed: Mutex<Vec<(usize, anyhow::Error)>> = Mutex::new(Vec::new());
    let work = || {
        while !curator.has_too_many_bad() {
            let Some(i) = todo.get(next.fetch_add(1, Ordering::Relaxed)) else {
                return;
            };
            let (shard, print) = (&shards[*i], &prints[*i]);
            let started = std::time::Instant::now();
            // an object of unknown size may be large
            let is_long = shard.bytes >= least || shard.bytes == 0;
            let (number, file) = (shard.number, settings_print::file_of(shard));
            let size = megabytes(shard.bytes);
            watcher
                .progress
                .detail(&format!("curate: shard {number}: reads {file} ({size})"));
            let report = if is_long {
                curator.resume_shard(shard, &cx.out, print, watcher)
            } else {
                curator.run_shard(shard, &cx.out, watcher)
            };
            let done = report.map_err(anyhow::Error::from).and_then(|report| {
                let files: Vec<PathBuf> = report
                    .outputs
                    .iter()
                    .map(|o| o.path.clone().into())
                    .collect();
                let mut counts = serde_json::to_value(&report)?;
                settings_print::put_shard(&mut counts, &cx.job, shard);
                let seconds = started.elapsed().as_secs_f64();
                cx.manifest
                    .record(&stage_of(shard.number), print, &files, counts, seconds)?;
                Curator::forget_journal(&cx.out, shard.number)?;
                watcher.progress.detail(&format!(
                    "curate: shard {number}: {} records, {} kept ({seconds:.1} s)",
                    grouped(report.records),
                    grouped(report.kept)
                ));
                watcher.quotes.shard(cx, shard, &report, watcher.progress)
            });
            if let (Err(e), Ok(mut failed)) = (done, failed.lock()) {
                failed.push((*i, e));
                // continue with the other shards: the next run skips them once the cause is fixed
            }
        }
    };
    std::thread::scope(|scope| {
        (0..tasks.min(todo.len())).for_each(|_| {
            scope.spawn(work);
        });
    });
    let mut failed = failed.into_inner().unwrap_or_default();
    failed.sort_by_key(|(i, _)| *i);
    let too_many = |e: &anyhow::Error| {
        let error = e.downcast_ref::<curate::Error>();
        matches!(error, Some(curate::Error::TooManyBad { .. }))
    };
    let (mut over, failed): (Vec<_>, Vec<_>) = failed.into_iter().partition(|(_, e)| too_many(e));
    match (over.pop(), failed.len()) {
        (Some((_, e)), _) => {
            let errors = cx.out.join("errors");
            Err(e.context(format!("[curate] stopped; see {}", errors.display())))
        }
        // no shard has reported it: the finished shards alone exceed the limit
        (None, _) if curator.has_too_many_bad() => {
            let most = table(cx)?.max_bad_records;
            bail!(
                "shards that were done before have more bad records than curate.max_bad_records = {most}"
            )
        }
        (None, 0) => Ok(()),
        (None, _) => Err(all_of(shards, failed)),
    }
}

/// Files of a public crawl that are read at once, where the job does not say how many.
const CRAWL_REQUESTS: usize = 4;

/// Maximum number of failed shards named in the error.
const NAMED: usize = 10;

/// One error for all failed shards; the others are recorded, and the next run retries these.
fn all_of(shards: &[Shard], mut failed: Vec<(usize, anyhow::Error)>) -> anyhow::Error {
    let name = |i: usize| format!("shard {i} ({})", curate::secrets::shown(&shards[i].path));
    if failed.len() == 1 {
        let (i, e) = failed.remove(0);
        return e.context(name(i));
    }
    let count = failed.len();
    let named = failed.iter().take(NAMED);
    let mut lines: Vec<String> = named.map(|(i, e)| format!("{}: {e:#}", name(*i))).collect();
    if count > NAMED {
        lines.push(format!("and {} more", count - NAMED));
    }
    anyhow!("{count} shards failed:\n  {}", lines.join("\n  "))
}

/// Forwards the curator's counts to the bar.
struct Watcher<'a> {
    progress: &'a Progress,
    quotes: Quotes,
    kept: AtomicU64,
    read: AtomicU64,
}

impl<'a> Watcher<'a> {
    fn new(progress: &'a Progress) -> Watcher<'a> {
        Watcher {
            progress,
            quotes: Quotes::default(),
            kept: AtomicU64::new(0),
            read: AtomicU64::new(0),
        }
    }
}

impl curate::Progress for Watcher<'_> {
    fn bytes(&self, read: u64) {
        self.progress.add(read);
    }
    fn documents(&self, read: u64, kept: u64) {
        let read = self.read.fetch_add(read, Ordering::Relaxed) + read;
        let kept = self.kept.fetch_add(kept, Ordering::Relaxed) + kept;
        let share = 100.0 * kept as f64 / read.max(1) as f64;
        self.progress
            .note(format!("{} records, {share:.0}% kept", grouped(read)));
    }
}

/// One `errors.jsonl` for the job, shard by shard.
fn merge_errors(cx: &Context, shards: usize) -> Result<PathBuf> {
    let part = |i| cx.out.join(format!("errors/{i:05}.jsonl"));
    concatenate(&cx.out.join("errors.jsonl"), (0..shards).map(part))?;
    Ok("errors.jsonl".into())
}

/// `decontaminate/report.json` of documents that were dropped.
fn report_dropped(cx: &Context, found: &curate::decontaminate::Decontamination) -> Result<PathBuf> {
    let path = PathBuf::from("decontaminate/report.json");
    let mut text = serde_json::to_string_pretty(found)?;
    text.push('\n');
    let at = cx.out.join(&path);
    std::fs::create_dir_all(cx.out.join("decontaminate"))
        .with_context(|| format!("cannot make {}", at.display()))?;
    write_atomically(&at, text.as_bytes())?;
    Ok(path)
}

/// `statistics.json` and `statistics.parquet` for the job.
fn merge_statistics(cx: &Context, shards: usize) -> Result<[PathBuf; 2]> {
    let mut sum = curate::statistics::Statistics::default();
    for i in 0..shards {
        sum.read(&cx.out.join(format!("statistics/{i:05}.jsonl.zst")))?;
    }
    Ok(sum.summarize(&cx.out)?.map(|file| file.path.into()))
}
