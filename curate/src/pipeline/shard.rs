//! One shard: an input file through the whole chain, the unit of work.
//!
//! Records are read in batches bounded by bytes; a batch is worked on by all threads while the next
//! one is read, and written in input order. Outputs depend on the input's bytes and the config only.
//!
//! Under the output folder: `clean/NNNNN.jsonl.zst` (or `.jsonl.gz`, `.parquet`), `clean/NNNNN.sig`, `dropped/NNNNN.jsonl.zst`,
//! `errors/NNNNN.jsonl`, `samples/NNNNN.jsonl.zst`.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use rayon::iter::{IndexedParallelIterator, ParallelIterator};
use rayon::slice::{ParallelSlice, ParallelSliceMut};
use serde::Serialize;
use xxhash_rust::xxh3::xxh3_128;

use crate::classifier::{Models, NoModels};
use crate::clock::{Clock, Spent};
use crate::contract::NamedFields;
use crate::decontaminate::{DecontaminateConfig, Decontaminator, TaskHits};
use crate::dedup::{DedupConfig, Minhasher, Origin, SignatureShape, SignatureWriter};
use crate::document::CleanDocument;
use crate::error::{At, Error, Result};
use crate::pipeline::CurateConfig;
use crate::pipeline::chain::{Chain, Outcome, RecordState, WorkScratch};
use crate::pipeline::journal::Journal;
use crate::pipeline::quarantine::{Place, Quarantine};
use crate::pipeline::report::{Sample, ShardReport, ShownText, add, sample_hash};
use crate::pipeline::samples;
use crate::progress::Progress;
use crate::quality::metrics::MetricsWriter;
use crate::read::{Batch, Input, Raw, Reader, Shard, can_be_split, input_files, input_files_kept};
use crate::secrets::shown;
use crate::statistics::{Seen, State, Statistics};
use crate::text::{excerpt, json};
use crate::write::{AtomicFile, CleanWriter, JsonLines, OutputFormat, shard_file};

/// All shards of a config: inputs in order, folders, patterns and lists expanded, large files cut.
///
/// # Errors
/// `Input` for a path that is not there and for a folder without files.
pub fn shards(config: &CurateConfig) -> Result<Vec<Shard>> {
    shards_of(input_files(&config.inputs)?, config)
}

/// Like [`shards`], with the lists of crawls that a folder keeps ([`crate::read::keep_crawl_lists`]).
///
/// # Errors
/// As [`shards`]; `Input` for a damaged list.
pub fn shards_kept(config: &CurateConfig, lists: &Path) -> Result<Vec<Shard>> {
    shards_of(input_files_kept(&config.inputs, Some(lists))?, config)
}

fn shards_of(files: Vec<Shard>, config: &CurateConfig) -> Result<Vec<Shard>> {
    if config.limit > 0 {
        return Ok(first_records(files, config));
    }
    let most = config.split_mb.saturating_mul(1 << 20);
    if most == 0 {
        return Ok(files);
    }
    let mut shards = Vec::new();
    for file in files {
        // a file that cannot be opened becomes one shard, and reading it reports the error
        let can = file.bytes > 0 && can_be_split(&file.path, &file.input).unwrap_or(false);
        let parts = if can { file.bytes.div_ceil(most) } else { 1 };
        for i in 0..parts {
            let at = |i: u64| u128::from(file.bytes) * u128::from(i) / u128::from(parts);
            let at = |i: u64| u64::try_from(at(i)).unwrap_or(file.bytes);
            let part = at(i)..at(i + 1);
            shards.push(Shard {
                number: shards.len(),
                bytes: part.end - part.start,
                part: can.then_some(part),
                ..file.clone()
            });
        }
    }
    Ok(shards)
}

/// The files that have the first records, each with the number of them that may still be read.
fn first_records(files: Vec<Shard>, config: &CurateConfig) -> Vec<Shard> {
    let max = usize::try_from(config.max_record_bytes).unwrap_or(usize::MAX);
    let mut left = config.limit;
    let mut first = Vec::new();
    for file in files {
        if left == 0 {
            break;
        }
        // a file that cannot be read is an error of its shard
        let found = count_records(&file, left, max).unwrap_or(0);
        first.push(Shard {
            limit: Some(left),
            ..file
        });
        left -= found;
    }
    first
}

/// Records of a file, at most `most`.
fn count_records(file: &Shard, most: u64, max: usize) -> Result<u64> {
    let mut reader = Reader::open(&file.path, &file.input, None, max)?;
    reader.limit_to(most);
    let mut batch = Batch::default();
    let mut count = 0;
    while reader.fill(&mut batch)? {
        count += batch.records.len() as u64;
    }
    Ok(count)
}

/// Everything shards share: filters, evaluation n-grams, permutations.
pub struct Curator {
    chain: Chain,
    shape: SignatureShape,
    /// Fingerprint of the settings that affect documents.
    run: u128,
    max_record_bytes: usize,
    output: OutputFormat,
    keeps_metrics: bool,
    statistics: bool,
    /// Names of the groups that statistics are kept by.
    statistics_by: Vec<String>,
    /// Inputs of the job: reports name a shard's by its number.
    inputs: Vec<Input>,
    quarantine: Quarantine,
    scratch: Mutex<Vec<WorkScratch>>,
    spent: Mutex<Spent>,
}

/// Records of a batch that one thread takes at a time.
const RECORDS_PER_JOB: usize = 16;

impl Curator {
    /// Builds the shared tables once. `seed` is reserved for sampling steps.
    ///
    /// # Errors
    /// `Input` if an evaluation file cannot be read; `Damaged` for a model file that is no model,
    /// `Config` for a language that the model does not have; `Model` for a step with a model that another crate runs.
    pub fn new(
        config: &CurateConfig,
        decontaminate: Option<&DecontaminateConfig>,
        dedup: Option<&DedupConfig>,
        _seed: u64,
    ) -> Result<Curator> {
        Curator::with_models(config, decontaminate, dedup, &NoModels)
    }

    /// Like [`Curator::new`], with models that another crate runs.
    ///
    /// # Errors
    /// As [`Curator::new`]; `Model` for a model that cannot be used.
    pub fn with_models(
        config: &CurateConfig,
        decontaminate: Option<&DecontaminateConfig>,
        dedup: Option<&DedupConfig>,
        models: &dyn Models,
    ) -> Result<Curator> {
        let decontaminator = decontaminate.map(Decontaminator::new).transpose()?;
        let shape = SignatureShape::of(dedup);
        let max = usize::try_from(config.max_record_bytes).unwrap_or(usize::MAX);
        Ok(Curator {
            chain: Chain::new(
                config,
                decontaminator,
                dedup.and_then(Minhasher::of),
                shape.exact == 1,
                models,
            )?,
            shape,
            run: run_of(config, decontaminate),
            max_record_bytes: max,
            output: config.output,
            keeps_metrics: config.figures,
            statistics: config.statistics,
            statistics_by: config.statistics_by(),
            inputs: config.inputs.clone(),
            quarantine: Quarantine::new(config.max_bad_records),
            scratch: Mutex::new(Vec::new()),
            spent: Mutex::new(Spent::default()),
        })
    }

    /// Runs one shard and writes its files under `out`.
    ///
    /// # Errors
    /// `Io` for an input that cannot be opened or read on and for an output that cannot be written; `Format` for an input
    /// of another kind than the job says; `TooManyBad` once the shards of this curator hold more bad records than
    /// `max_bad_records`. Nothing of the shard is done then. Damaged records are quarantined.
    pub fn run_shard(
        &self,
        shard: &Shard,
        out: &Path,
        progress: &dyn Progress,
    ) -> Result<ShardReport> {
        self.work_through(shard, out, Journal::none(), progress)
    }

    /// Like [`Curator::run_shard`], with a journal under `out` from which a killed run's work is resumed: the
    /// outcomes of records are recorded there batch by batch, and not recomputed. `print` is the fingerprint of
    /// everything that the work depends on; a journal with another one is discarded. To be followed by
    /// [`Curator::forget_journal`].
    ///
    /// # Errors
    /// As [`Curator::run_shard`]; `Io` if the journal cannot be written.
    pub fn resume_shard(
        &self,
        shard: &Shard,
        out: &Path,
        print: &str,
        progress: &dyn Progress,
    ) -> Result<ShardReport> {
        let journal = Journal::open(&journal_file(out, shard.number), print)?;
        self.work_through(shard, out, journal, progress)
    }

    /// Removes the journal of a shard whose work is recorded, if there is one. # Errors `Io` if it exists and
    /// cannot be removed.
    pub fn forget_journal(out: &Path, shard: usize) -> Result<()> {
        let path = journal_file(out, shard);
        match std::fs::remove_file(&path) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(e).at(&path),
            _ => Ok(()),
        }
    }

    fn work_through(
        &self,
        shard: &Shard,
        out: &Path,
        mut journal: Journal,
        progress: &dyn Progress,
    ) -> Result<ShardReport> {
        self.quarantine.begin(shard.number);
        let mut writers = self.writers(out, shard)?;
        let part = shard.part.as_ref();
        let mut reader = Reader::open(&shard.path, &shard.input, part, self.max_record_bytes)?;
        if let Some(records) = shard.limit {
            reader.limit_to(records);
        }
        match self.stream(&mut reader, shard, &mut journal, &mut writers, progress) {
            Ok(()) => writers.finish(out, shard.number),
            Err(e) => {
                if matches!(e, Error::TooManyBad { .. }) {
                    // the records are worth looking at; their file is no output of a shard that is done
                    writers.errors.finish()?;
                }
                Err(e)
            }
        }
    }

    /// Counts bad records of shards that were done before: `max_bad_records` is of all shards together.
    pub fn add_bad(&self, records: u64) {
        self.quarantine.add(records);
    }

    /// True once there are more bad records than `max_bad_records`: shards that are begun now fail.
    pub fn has_too_many_bad(&self) -> bool {
        self.quarantine.is_exceeded()
    }

    fn writers(&self, out: &Path, shard: &Shard) -> Result<Writers<'_>> {
        let n = shard.number;
        let metrics = || MetricsWriter::create(out, &shard_file("figures", n, "jsonl.zst"));
        let signatures = shard_file("clean", n, "sig");
        let origin = Origin {
            shard: u32::try_from(n).unwrap_or(u32::MAX),
            run: self.run,
        };
        Ok(Writers {
            clean: CleanWriter::create(out, n, self.output)?,
            signatures: SignatureWriter::create(out, &signatures, self.shape, origin)?,
            dropped: JsonLines::create(out, &shard_file("dropped", n, "jsonl.zst"))?,
            errors: AtomicFile::create(out, &shard_file("errors", n, "jsonl"))?,
            metrics: self.keeps_metrics.then(metrics).transpose()?,
            statistics: self.statistics.then(Statistics::default),
            statistics_by: &self.statistics_by,
            report: ShardReport {
                source: Some(shard.input.source.clone()),
                ..ShardReport::default()
            },
            of_input: NamedFields::new(self.fields_of(&shard.input)),
            of_steps: NamedFields::new(self.values_of_steps()),
            source: shard.path.clone(),
            shard: n,
            quarantine: &self.quarantine,
        })
    }

    /// Fields that the settings of an input name, with their keys in the job.
    fn fields_of(&self, input: &Input) -> Vec<(String, String)> {
        let is_same = |other: &&Input| {
            // the format may have been found in the file
            other.path == input.path
                && other.source == input.source
                && other.dataset_split == input.dataset_split
                && other.dataset_config == input.dataset_config
                && other.named_fields() == input.named_fields()
        };
        let number = self
            .inputs
            .iter()
            .position(|other| is_same(&other))
            .unwrap_or(0);
        let named = input.named_fields().into_iter();
        named
            .map(|(key, name)| (format!("inputs[{number}].{key}"), name.to_string()))
            .collect()
    }

    /// Values of the metadata that the steps' expressions name, with their keys in the job.
    fn values_of_steps(&self) -> Vec<(String, String)> {
        let named = self.chain.named_values().into_iter();
        named
            .map(|(key, name)| (key.to_string(), name.to_string()))
            .collect()
    }

    /// Reads the next batch while the current one is worked on.
    fn stream(
        &self,
        reader: &mut Reader,
        shard: &Shard,
        journal: &mut Journal,
        writers: &mut Writers<'_>,
        progress: &dyn Progress,
    ) -> Result<()> {
        let by_offset = shard.part.is_some();
        let mut batch = Batch::of_part(by_offset);
        let mut next = Batch::of_part(by_offset);
        let (mut reading, mut writing) = (Clock::default(), Clock::default());
        let mut fill = |batch: &mut Batch| {
            reading.start();
            let filled = reader.fill(batch);
            reading.lap("read");
            filled
        };
        let mut more = fill(&mut batch);
        while more? {
            self.quarantine.check()?;
            let known = journal.next(&batch)?;
            let is_new = known.is_none();
            let (filled, outcomes) = rayon::join(
                || fill(&mut next),
                || known.map_or_else(|| self.work(&batch, shard, &writers.report), Ok),
            );
            let outcomes = outcomes?;
            writing.start();
            if is_new {
                journal.append(&batch, &outcomes)?;
            }
            let before = writers.report.kept;
            for (raw, outcome) in batch.records.iter().zip(outcomes) {
                writers.take(raw, outcome)?;
            }
            writing.lap("write");
            writers.report.bytes_in += batch.consumed;
            progress.bytes(batch.consumed);
            progress.documents(batch.records.len() as u64, writers.report.kept - before);
            std::mem::swap(&mut batch, &mut next);
            more = filled;
        }
        let mut spent = self.spent.lock().unwrap_or_else(PoisonError::into_inner);
        spent.add(&mut reading);
        spent.add(&mut writing);
        Ok(())
    }

    /// The outcomes of a batch's records, in their order. Records run through the steps one by one, up to a step whose model
    /// looks at many texts together; there they wait for each other. `so_far` is the report of the records before the batch.
    fn work(&self, batch: &Batch, shard: &Shard, so_far: &ShardReport) -> Result<Vec<Outcome>> {
        let jobs: Vec<Vec<RecordState>> = batch
            .records
            .par_chunks(RECORDS_PER_JOB)
            .with_max_len(1)
            .map(|records| {
                let mut scratch = self.borrow_scratch();
                let start = |raw| {
                    let state = self.chain.start(batch, raw, shard, &mut scratch);
                    without_text(state, so_far)
                };
                let states = records.iter().map(start).collect();
                self.return_scratch(scratch);
                states
            })
            .collect();
        let mut states: Vec<RecordState> = jobs.into_iter().flatten().collect();
        while let Some(step) = first_wait(&states) {
            self.measure(step, &mut states)?;
            states
                .par_chunks_mut(RECORDS_PER_JOB)
                .with_max_len(1)
                .for_each(|states| {
                    let mut scratch = self.borrow_scratch();
                    for state in states {
                        let taken = std::mem::replace(state, RecordState::Done(Outcome::Unsampled));
                        *state = match taken {
                            RecordState::Waits { passage, .. } => {
                                let state = self.chain.go_on(*passage, shard, &mut scratch);
                                without_text(state, so_far)
                            }
                            RecordState::Done(outcome) => RecordState::Done(outcome),
                        };
                    }
                    self.return_scratch(scratch);
                });
        }
        let done = states.into_iter().filter_map(|state| match state {
            RecordState::Done(outcome) => Some(outcome),
            RecordState::Waits { .. } => None,
        });
        Ok(done.collect())
    }

    /// Lets the model of a step look at the texts of all records that wait, which wait for the same step. A record whose text
    /// it cannot read is bad.
    fn measure(&self, step: usize, states: &mut [RecordState]) -> Result<()> {
        let waiting = || {
            states.iter().filter_map(|state| match state {
                RecordState::Waits { passage, .. } => Some(passage.text()),
                RecordState::Done(_) => None,
            })
        };
        let texts: Vec<&str> = waiting().collect();
        let mut clock = Clock::default();
        let measured = self.chain.measure(step, &texts, &mut clock)?;
        let mut spent = self.spent.lock().unwrap_or_else(PoisonError::into_inner);
        spent.add(&mut clock);
        drop(spent);
        let mut measured = measured.into_iter();
        for state in states {
            if let RecordState::Waits { passage, .. } = state {
                match measured.next() {
                    Some(Ok(logits)) => passage.give(logits),
                    Some(Err(why)) => *state = RecordState::Done(Outcome::Bad(why)),
                    None => {
                        *state = RecordState::Done(Outcome::Bad("no result of a model".to_string()))
                    }
                }
            }
        }
        Ok(())
    }

    /// The evaluation sets that documents are dropped for, none met yet.
    pub fn evaluation_sets(&self) -> BTreeMap<String, TaskHits> {
        self.chain.evaluation_sets()
    }

    /// Seconds that all threads spent on each step since this curator was made: `read` (and decompress), `extract` or
    /// `parse`, the steps by name, `sign`, `statistics`, `write` (and compress).
    pub fn seconds_by_step(&self) -> BTreeMap<&'static str, f64> {
        let mut spent = self.spent.lock().unwrap_or_else(PoisonError::into_inner);
        let mut pool = self.scratch.lock().unwrap_or_else(PoisonError::into_inner);
        pool.iter_mut().for_each(|s| Chain::spent(s, &mut spent));
        spent.seconds()
    }

    fn borrow_scratch(&self) -> WorkScratch {
        let mut pool = self.scratch.lock().unwrap_or_else(PoisonError::into_inner);
        pool.pop().unwrap_or_default()
    }

    fn return_scratch(&self, scratch: WorkScratch) {
        let mut pool = self.scratch.lock().unwrap_or_else(PoisonError::into_inner);
        pool.push(scratch);
    }
}

/// A record without the text of a dropped document, but for the start of one that the report may show: all that it will show is
/// among those that it would show now.
fn without_text(mut state: RecordState, so_far: &ShardReport) -> RecordState {
    if let RecordState::Done(Outcome::Dropped(drop)) = &mut state {
        let text = std::mem::take(&mut drop.text);
        let hash = sample_hash(&drop.id, &drop.excerpt);
        let has_text = !drop.excerpt.is_empty();
        let is_wanted = so_far.wants_dropped(&drop.reason.rule, hash, has_text);
        drop.shown = is_wanted.then(|| ShownText::of(&text));
    }
    state
}

/// The step that records wait for, if any do: as all run the same steps, they wait for the same one.
fn first_wait(states: &[RecordState]) -> Option<usize> {
    states.iter().find_map(|state| match state {
        RecordState::Waits { step, .. } => Some(*step),
        RecordState::Done(_) => None,
    })
}

fn journal_file(out: &Path, shard: usize) -> PathBuf {
    out.join(shard_file("records/curate", shard, "journal"))
}

/// Fingerprint of the settings that affect documents, the same for all shards of a run.
fn run_of(config: &CurateConfig, decontaminate: Option<&DecontaminateConfig>) -> u128 {
    let settings = (&config.step, config.max_record_bytes, decontaminate);
    // Settings were read from a file, so they can be written.
    xxh3_128(&serde_json::to_vec(&settings).unwrap_or_default())
}

/// The files of a shard and its counters.
struct Writers<'a> {
    clean: CleanWriter,
    signatures: SignatureWriter,
    dropped: JsonLines,
    errors: AtomicFile,
    metrics: Option<MetricsWriter>,
    statistics: Option<Statistics>,
    statistics_by: &'a [String],
    report: ShardReport,
    of_input: NamedFields,
    of_steps: NamedFields,
    source: PathBuf,
    shard: usize,
    /// Counter of bad records over all shards.
    quarantine: &'a Quarantine,
}

/// The start of the text of a clean document's line, if it is one.
fn text_of(line: &[u8]) -> Option<ShownText> {
    let document: CleanDocument = json::from_slice(line).ok()?;
    Some(ShownText::of(&document.text))
}

/// The groups with these names.
fn only(mut groups: Vec<(String, String)>, names: &[String]) -> Vec<(String, String)> {
    groups.retain(|(name, _)| names.contains(name));
    groups
}

/// Characters kept of a bad record's reason: parsers often quote the whole record.
const WHY_CHARS: usize = 300;

#[derive(Serialize)]
struct DroppedLine<'a> {
    id: &'a str,
    rule: &'a str,
    value: &'a crate::verdict::MetricValue,
    limit: &'a crate::verdict::MetricValue,
    #[serde(skip_serializing_if = "Option::is_none")]
    url: &'a Option<String>,
    language: &'a str,
    excerpt: &'a str,
}

#[derive(Serialize)]
struct ErrorLine<'a> {
    path: &'a str,
    offset: u64,
    record: u64,
    /// The fault's name if the record could still be read; without it the record is lost.
    #[serde(skip_serializing_if = "Option::is_none")]
    repaired: Option<&'a str>,
    why: &'a str,
}

impl Writers<'_> {
    fn take(&mut self, raw: &Raw, outcome: Outcome) -> Result<()> {
        if let Some(fault) = raw.repaired.filter(|_| !matches!(outcome, Outcome::Bad(_))) {
            add(&mut self.report.repaired, fault.name, 1);
            self.tell(raw.offset, raw.number, Some(fault.name), fault.why)?;
        }
        match outcome {
            Outcome::Bad(why) => self.quarantine(raw.offset, raw.number, &why),
            Outcome::Unsampled => {
                self.report.records += 1;
                add(&mut self.report.dropped, "sample", 1);
                Ok(())
            }
            Outcome::Dropped(drop) => {
                self.of_input.count(drop.of_input);
                self.of_steps.count(drop.of_steps);
                let report = &mut self.report;
                report.records += 1;
                report.count_repairs(&drop.repairs);
                report.count_personal(&drop.personal);
                report.count_copies(drop.copies);
                report.count_running_lines(drop.running_lines);
                add(&mut report.dropped, &drop.reason.rule, 1);
                report.count_dropped_groups(&drop.groups, &drop.reason.rule);
                if !drop.language.is_empty() {
                    add(&mut report.languages, &drop.language, 1);
                }
                let text = &drop.excerpt;
                let hash = sample_hash(&drop.id, text);
                if report.wants_dropped(&drop.reason.rule, hash, !text.is_empty()) {
                    report.show_dropped(&Sample {
                        hash,
                        id: drop.id.clone(),
                        rule: drop.reason.rule.clone(),
                        value: Some(drop.reason.value.clone()),
                        limit: Some(drop.reason.limit.clone()),
                        language: drop.language.clone(),
                        excerpt: text.to_string(),
                        shown: drop.shown.clone(),
                    });
                }
                if let Some(metrics) = &mut self.metrics
                    && (drop.is_lost || !drop.metrics.is_empty())
                {
                    metrics.write(&drop.id, &drop.metrics, drop.is_lost)?;
                }
                if let (Some(statistics), Some(text_metrics)) =
                    (&mut self.statistics, &drop.text_metrics)
                {
                    statistics.add(&Seen {
                        state: State::Dropped,
                        source: &drop.source,
                        language: &drop.language,
                        text_metrics,
                        metrics: &drop.metrics,
                        groups: &only(drop.groups, self.statistics_by),
                    });
                }
                self.dropped.write(&DroppedLine {
                    id: &drop.id,
                    rule: &drop.reason.rule,
                    value: &drop.reason.value,
                    limit: &drop.reason.limit,
                    url: &drop.url,
                    language: &drop.language,
                    excerpt: text,
                })
            }
            Outcome::Kept(kept) => {
                self.of_input.count(kept.of_input);
                self.of_steps.count(kept.of_steps);
                let report = &mut self.report;
                report.records += 1;
                report.count_repairs(&kept.repairs);
                report.count_personal(&kept.personal);
                report.count_copies(kept.copies);
                report.count_running_lines(kept.running_lines);
                report.kept += 1;
                report.bytes_out += kept.text_bytes;
                report.chars += kept.signature.chars;
                report.count_kept_groups(&kept.groups, kept.words, kept.signature.chars);
                if !kept.language.is_empty() {
                    add(&mut report.languages, &kept.language, 1);
                }
                if let Some(host) = &kept.host {
                    add(&mut report.hosts, host, 1);
                }
                add(&mut report.sources, &kept.source, 1);
                let power = kept.signature.chars.checked_ilog2().unwrap_or(0);
                *report.lengths.entry(power).or_default() += 1;
                let mut sample = kept.sample;
                if report.wants_kept(sample.hash) {
                    sample.shown = text_of(&kept.line);
                    report.show_kept(&sample);
                }
                if let Some(metrics) = &mut self.metrics {
                    metrics.write(&sample.id, &kept.metrics, false)?;
                }
                if let (Some(statistics), Some(text_metrics)) =
                    (&mut self.statistics, &kept.text_metrics)
                {
                    statistics.add(&Seen {
                        state: State::Kept,
                        source: &kept.source,
                        language: &kept.language,
                        text_metrics,
                        metrics: &kept.metrics,
                        groups: &only(kept.groups, self.statistics_by),
                    });
                    let (url, host) = (kept.url.as_deref(), kept.host.as_deref());
                    let signature = &kept.signature;
                    statistics.name(url, host, signature.exact, signature.chars);
                }
                self.signatures.write(&kept.signature)?;
                self.clean.write_line(&kept.line)
            }
        }
    }

    fn quarantine(&mut self, offset: u64, number: u64, why: &str) -> Result<()> {
        self.report.records += 1;
        self.report.quarantined += 1;
        let why = excerpt(why, WHY_CHARS);
        self.tell(offset, number, None, why)?;
        let place = Place {
            shard: self.shard,
            path: &self.source,
            offset,
            number,
        };
        self.quarantine.count(place, why)
    }

    /// A line of the errors file.
    fn tell(&mut self, offset: u64, record: u64, repaired: Option<&str>, why: &str) -> Result<()> {
        let path = shown(&self.source);
        let line = ErrorLine {
            path: &path,
            offset,
            record,
            repaired,
            why,
        };
        let mut bytes = serde_json::to_vec(&line)
            .map_err(std::io::Error::from)
            .at(&self.errors.path())?;
        bytes.push(b'\n');
        self.errors.write_all(&bytes).at(&self.errors.path())
    }

    fn finish(self, out: &Path, number: usize) -> Result<ShardReport> {
        let mut report = self.report;
        report.trim_hosts();
        for fields in [&self.of_input, &self.of_steps] {
            report.count_fields(fields);
        }
        assert!(report.adds_up(), "a record was counted twice or not at all");
        // Signatures last: a shard with a .sig has everything else.
        report.outputs = vec![
            self.clean.finish()?,
            self.dropped.finish()?,
            self.errors.finish()?,
        ];
        if let Some(metrics) = self.metrics {
            report.outputs.push(metrics.finish()?);
        }
        if let Some(statistics) = self.statistics {
            let name = shard_file("statistics", number, "jsonl.zst");
            report.outputs.push(statistics.write(out, &name)?);
        }
        let samples = samples::write(&mut report, out, number)?;
        report.outputs.push(samples);
        report.outputs.push(self.signatures.finish()?);
        Ok(report)
    }
}
