//! `tokenize`: trains or copies the tokenizer and writes one Megatron dataset for each name and key.
//!
//! A dataset may be divided into parts (`tasks`), each a run of documents with its own record in the manifest;
//! merged, they are byte-identical to a single part. Sidecar and statistics are made from the sums, so they too are
//! identical.

use super::finished_shards::stage_of;
use super::texts::{self, Reader};
use crate::context::{Context, relative};
use crate::generation::trained_tokenizer::{self, TOKENIZER};
use crate::generation::{named_tokenizer, tokenizer_path};
use crate::job::{TokenDataset, Tokenize, WrongUse};
use crate::machine::{grouped, write_atomically};
use crate::manifest::{Record, fingerprint, identity};
use crate::progress::Progress;
use anyhow::{Context as _, Result, bail};
use curate::contract::FieldCounts;
use index::dataset::{BuildOptions, Built, Dataset, Group, Sidecar};
use index::tokenizer::{Tokenizer, Trainer};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Path prefix of a dataset that this job writes.
pub(crate) fn prefix(cx: &Context, name: &str) -> PathBuf {
    cx.out.join("tokens").join(name)
}

/// Counts of a part.
#[derive(Serialize, Deserialize)]
struct Counts {
    #[serde(flatten)]
    built: Built,
    /// Groups by name.
    by: Vec<Group>,
    quarantined: u64,
    /// Values of the metadata that the dataset's condition names.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    fields: BTreeMap<String, FieldCounts>,
}

/// The stage at work.
pub(super) struct Stage<'a> {
    cx: &'a Context,
    table: &'a Tokenize,
    tokenizer: Tokenizer,
    /// Cuts documents in sentences.
    splitter: Option<index::sentences::Punkt>,
    /// Identity of everything that the documents depend on.
    upstream: Value,
}

pub(super) fn run(cx: &Context) -> Result<()> {
    let Some(table) = &cx.job.tokenize else {
        return Err(WrongUse::new("the job has no [tokenize] table").into());
    };
    let upstream = upstream(cx)?;
    let named = named(cx, table)?;
    let of_tokenizer = tokenizer_print(table, named.as_ref(), &upstream);
    let trained = cx.done(TOKENIZER, &of_tokenizer)?.is_none();
    if trained {
        make_tokenizer(cx, table, named.as_ref(), &of_tokenizer)?;
    }
    let tokenizer = match named {
        Some(named) => named,
        None => Tokenizer::load(&tokenizer_path(cx))?,
    };
    let stage = Stage::of(cx, table, tokenizer, upstream)?;
    let mut prints = vec![of_tokenizer];
    let mut records = Vec::new();
    let (mut built, mut bad) = (0, 0);
    for dataset in cx.job.datasets() {
        let print = stage.fingerprint(&dataset);
        let record = match cx.done(&stage_name(&dataset.name), &print)? {
            Some(record) => {
                // a kill between the record and their removal leaves parts behind
                stage.remove_parts(&dataset)?;
                record
            }
            None => {
                built += 1;
                stage.dataset(&dataset, &print, bad)?
            }
        };
        bad += quarantined(&record);
        prints.push(print);
        records.push(record);
    }
    let all = fingerprint(&json!(prints));
    if built > 0 || trained || cx.done("tokenize", &all)?.is_none() {
        let files = if cx.job.curate.is_none() {
            vec![errors(cx)?]
        } else {
            Vec::new()
        };
        let seconds: f64 = records.iter().map(|r| r.seconds).sum();
        let counts = json!({"vocab": stage.tokenizer.vocab(), INPUTS: stage.inputs()});
        cx.manifest
            .record("tokenize", &all, &files, counts, seconds)?;
    } else {
        info!("tokenize: done before");
    }
    Ok(())
}

/// The tokenizer of the file that the table names; None if one is trained. Loading a large vocabulary takes a second: it is done
/// once.
pub(super) fn named(cx: &Context, table: &Tokenize) -> Result<Option<Tokenizer>> {
    match &table.tokenizer.file {
        Some(_) => named_tokenizer(cx).map(Some),
        None => Ok(None),
    }
}

/// Fingerprint of the tokenizer: of the file that is named, or of the training and its texts.
pub(super) fn tokenizer_print(
    table: &Tokenize,
    named: Option<&Tokenizer>,
    upstream: &Value,
) -> String {
    fingerprint(&match (named, &table.tokenizer.train) {
        (Some(named), _) => json!(["file", named.identity()]),
        (None, settings) => json!(["train", settings, table.json_keys, upstream]),
    })
}

/// Bad records of a dataset, or of a part of one.
fn quarantined(record: &Record) -> u64 {
    record.counts["quarantined"].as_u64().unwrap_or(0)
}

pub(super) fn stage_name(dataset: &str) -> String {
    format!("tokenize/{dataset}")
}

/// Where the source is in the identity of an input of a job without a curation.
pub(super) const SOURCE: usize = 3;

/// Identity of the documents: checksums of the clean shards and keep-lists, or names, sizes and times of the inputs.
pub(super) fn upstream(cx: &Context) -> Result<Value> {
    if cx.job.curate.is_none() {
        let files = curate::read::input_files(cx.job.inputs())?;
        let files: Vec<Value> = files
            .iter()
            .map(|f| json!([identity(&f.path), f.version, f.input.format, f.input.source]))
            .collect();
        return Ok(json!(files));
    }
    let (shards, _) = super::dedup::upstream(cx)?;
    curated(cx, shards)
}

/// Identity of the documents of a curation with this number of shards, whose inputs need not be there any more.
pub(super) fn curated(cx: &Context, shards: usize) -> Result<Value> {
    let sums = super::dedup::sums(cx, shards)?;
    match (cx.job.has_keep_lists(), cx.manifest.get("dedup")?) {
        (false, _) => Ok(json!([sums, null])),
        (true, Some(record)) if super::dedup::is_of(&record, &sums) => {
            Ok(json!([sums, record.outputs]))
        }
        (true, Some(_)) => {
            bail!("dedup ran over other documents; run `millrace dedup` (or `run`) first")
        }
        (true, None) => bail!("dedup has not run; run `millrace dedup` (or `run`) first"),
    }
}

/// Fingerprint that a dataset of these documents has if it is made now.
pub(super) fn dataset_print(
    cx: &Context,
    dataset: &TokenDataset,
    upstream: Value,
) -> Result<String> {
    let table = cx.job.tokenize.as_ref();
    let table = table.ok_or_else(|| WrongUse::new("the job has no [tokenize] table"))?;
    let tokenizer = match named(cx, table)? {
        Some(named) => named,
        None => Tokenizer::load(&tokenizer_path(cx))?,
    };
    let stage = Stage::of(cx, table, tokenizer, upstream)?;
    Ok(stage.fingerprint(dataset))
}

/// Count of a dataset's record that has the fingerprint of its documents, if a curation made them; records of earlier versions lack it.
pub(super) const DOCUMENTS: &str = "documents_fingerprint";

/// Fingerprint of the documents of a dataset: of the files of the shards of its sources. None of a job without a curation, and if a
/// shard has no record.
pub(super) fn documents_print(cx: &Context, dataset: &TokenDataset) -> Result<Option<String>> {
    if cx.job.curate.is_none() {
        return Ok(None);
    }
    let mut outputs = Vec::new();
    for shard in cx
        .shards()?
        .iter()
        .filter(|shard| texts::is_of(dataset, shard))
    {
        let Some(record) = cx.manifest.get(&stage_of(shard.number))? else {
            return Ok(None);
        };
        outputs.push(record.outputs);
    }
    Ok(Some(fingerprint(&json!(outputs))))
}

/// Count of the record of `tokenize` with the inputs of a job without a curation.
pub(super) const INPUTS: &str = "inputs";

fn make_tokenizer(
    cx: &Context,
    table: &Tokenize,
    named: Option<&Tokenizer>,
    print: &str,
) -> Result<()> {
    let progress = Progress::start("tokenizer", "MB", 0);
    let trained;
    let (tokenizer, what) = match named {
        Some(named) => (named, named.path().display().to_string()),
        None => {
            trained = train(cx, table, &progress)?;
            (&trained, "trained on the texts".to_string())
        }
    };
    trained_tokenizer::check_new(cx, tokenizer)?;
    cx.accept()?;
    cx.manifest.forget(TOKENIZER);
    write_atomically(&tokenizer_path(cx), tokenizer.json().as_bytes())?;
    let counts = json!({"vocab": tokenizer.vocab(), "xxh3": tokenizer.identity(), "from": what});
    let files = ["tokens/tokenizer.json".into()];
    cx.manifest
        .record(TOKENIZER, print, &files, counts, progress.seconds())?;
    progress.finish(&format!(
        "{} entries, {what}",
        grouped(tokenizer.vocab() as u64)
    ));
    Ok(())
}

fn train(cx: &Context, table: &Tokenize, progress: &Progress) -> Result<Tokenizer> {
    let settings = table.tokenizer.train.clone().unwrap_or_default();
    let mut trainer = Trainer::new(settings.settings())?;
    for key in &table.json_keys {
        let everything = TokenDataset {
            name: String::new(),
            sources: Vec::new(),
            key: key.clone(),
            condition: String::new(),
        };
        let units = texts::units(cx, &everything, 1)?;
        Reader::new(cx, key, units, 0).each(|text| {
            progress.add(text.len() as u64);
            Ok(trainer.feed(text)?)
        })?;
    }
    trainer.finish().or_else(|error| match nothing_kept(cx)? {
        Some(why) => bail!("no text to train the tokenizer on: {why}"),
        None => Err(error.into()),
    })
}

/// Why there is no document, if the curation or the deduplication left none.
fn nothing_kept(cx: &Context) -> Result<Option<String>> {
    let Some(curated) = cx.manifest.get("curate")? else {
        return Ok(None);
    };
    let count = |key: &str| curated.counts[key].as_u64().unwrap_or(0);
    if count("kept") == 0 {
        let dropped = curated.counts["dropped"].as_object().into_iter().flatten();
        let mut rules: Vec<(u64, &str)> = dropped
            .map(|(rule, number)| (number.as_u64().unwrap_or(0), rule.as_str()))
            .collect();
        rules.sort_unstable_by(|a, b| b.0.cmp(&a.0).then_with(|| a.1.cmp(b.1)));
        let rules: Vec<String> = (rules.iter().take(RULES))
            .map(|(number, rule)| format!("{} by {rule}", grouped(*number)))
            .collect();
        return Ok(Some(format!(
            "the curation kept none of {} records; it dropped {}, and {} are bad; see {}",
            grouped(count("records")),
            if rules.is_empty() {
                "none".to_string()
            } else {
                rules.join(", ")
            },
            grouped(count("quarantined")),
            cx.out.join("dropped").display()
        )));
    }
    let deduplicated = cx
        .manifest
        .get("dedup")?
        .filter(|_| cx.job.has_keep_lists());
    let is_empty = deduplicated.is_some_and(|record| record.counts["kept"].as_u64() == Some(0));
    Ok(is_empty.then(|| "the deduplication kept no document".to_string()))
}

/// Rules that are named where all documents were dropped.
const RULES: usize = 5;

impl<'a> Stage<'a> {
    /// The stage with a loaded tokenizer.
    pub(super) fn of(
        cx: &'a Context,
        table: &'a Tokenize,
        tokenizer: Tokenizer,
        upstream: Value,
    ) -> Result<Stage<'a>> {
        Ok(Stage {
            cx,
            table,
            tokenizer,
            splitter: match &table.sentences {
                Some(s) => Some(s.splitter()?),
                None => None,
            },
            upstream,
        })
    }

    /// Name, size and time of change of each input; null with a curation, whose records have them.
    fn inputs(&self) -> &Value {
        match self.cx.job.curate {
            None => &self.upstream,
            Some(_) => &Value::Null,
        }
    }

    /// Fingerprint of a dataset; `tasks` is not in it because it never changes the output.
    pub(super) fn fingerprint(&self, dataset: &TokenDataset) -> String {
        let mut parts = vec![
            json!(dataset),
            json!(self.tokenizer.identity()),
            json!(self.table.append_eod),
            json!(self.table.dtype),
            self.sentences(),
            json!(self.table.max_record_bytes),
            self.upstream.clone(),
        ];
        // datasets made before this setting existed keep their fingerprint
        let special = self.table.special_tokens(&self.tokenizer);
        if special != index::tokenizer::SpecialTokens::default() {
            parts.push(json!(special));
        }
        // those made when only the first shards of large inputs were tokenized must not keep it
        let split = self.cx.job.curate.as_ref().map_or(0, |c| c.split_mb);
        if split > 0 {
            parts.push(json!(["split_mb", split]));
        }
        fingerprint(&json!(parts))
    }

    fn options(&self) -> BuildOptions<'_> {
        BuildOptions {
            append_eod: self.table.append_eod,
            token_type: self.table.dtype.token_type(),
            sentences: self.splitter.as_ref(),
            special_tokens: self.table.special_tokens(&self.tokenizer),
        }
    }

    /// Sentence splitting, with identities of the Punkt parameter files if they are not ours.
    fn sentences(&self) -> Value {
        let table = self.table.sentences.as_ref();
        let files = table.filter(|s| s.punkt != "english").map(|s| {
            let names = [
                "abbrev_types.txt",
                "collocations.tab",
                "ortho_context.tab",
                "sent_starters.txt",
            ];
            names.map(|n| identity(&Path::new(&s.punkt).join(n)))
        });
        json!([table, files])
    }

    /// All parts of a dataset, then the dataset.
    ///
    /// `bad` are the bad records of the datasets before.
    fn dataset(&self, dataset: &TokenDataset, print: &str, mut bad: u64) -> Result<Record> {
        let (cx, tasks) = (self.cx, self.table.tasks);
        let stage = stage_name(&dataset.name);
        // tokens that checkpoints were trained on are replaced only by the same ones, or on request
        let trained = trained_tokenizer::trained_data(cx, &dataset.name)?;
        if trained.is_none() {
            cx.accept()?;
            cx.manifest.forget(&stage);
        }
        let is_apart = tasks > 1 || trained.is_some();
        let units = texts::units(cx, dataset, tasks)?;
        let progress = Progress::start(&stage, "MB", 0);
        let mut parts = Vec::new();
        let (mut before, mut seconds) = (0, 0.0);
        for task in 0..tasks {
            let name = match is_apart {
                false => dataset.name.clone(),
                true => format!("parts/{}.{task:05}-of-{tasks:05}", dataset.name),
            };
            let stage = format!("{stage}/{task:05}-of-{tasks:05}");
            let record = match cx.manifest.done(&stage, print)? {
                Some(record) => record,
                None => {
                    cx.manifest.forget(&stage);
                    let own = texts::share(&units, task, tasks);
                    let reader = Reader::new(cx, &dataset.key, own, bad);
                    self.part(dataset, &name, &stage, print, reader, (&progress, before))?
                }
            };
            bad += quarantined(&record);
            let counts: Counts = serde_json::from_value(record.counts)
                .with_context(|| format!("counts of {stage} in manifest.json"))?;
            before += counts.built.text_bytes;
            seconds += record.seconds;
            parts.push((prefix(cx, &name), counts));
        }
        let prefix = prefix(cx, &dataset.name);
        let prefixes: Vec<PathBuf> = parts.iter().map(|p| p.0.clone()).collect();
        if let Some(trained) = &trained {
            self.expect_trained(dataset, trained, &prefixes)?;
            cx.accept()?;
            cx.manifest.forget(&stage);
        }
        if is_apart {
            index::dataset::merge(&prefixes, &prefix)?;
        }
        let counts = sum(parts.iter().map(|p| &p.1));
        if counts.quarantined > 0 && counts.built.written.documents == 0 {
            let errors = self.errors_of_part(dataset, 0);
            bail!(
                "{stage}: all {} records hold no text in field {:?}; see {}",
                grouped(counts.quarantined),
                dataset.key,
                errors.display()
            );
        }
        let data = Dataset::open(&prefix)?;
        let statistics = index::dataset::statistics(&data, self.tokenizer.vocab())?;
        let lineage = json!({"name": dataset.name, "sources": dataset.sources, "key": dataset.key,
            "job": cx.job.name});
        let sidecar = Sidecar::new(
            lineage,
            &self.tokenizer,
            data.token_type(),
            &self.options(),
            &counts.built,
            counts.by.clone(),
            statistics,
        );
        sidecar.write(&prefix)?;
        let errors: Vec<u8> = (0..tasks)
            .map(|task| std::fs::read(self.errors_of_part(dataset, task)))
            .collect::<std::io::Result<Vec<_>>>()
            .context("errors of the parts")?
            .concat();
        write_atomically(&cx.out.join(errors_path(&dataset.name)), &errors)?;
        let file = |suffix: &str| Path::new("tokens").join(format!("{}{suffix}", dataset.name));
        let files = [
            file(".bin"),
            file(".idx"),
            file(".json"),
            errors_path(&dataset.name),
        ];
        let mut value = serde_json::to_value(&counts)?;
        if let Some(documents) = documents_print(cx, dataset)? {
            value[DOCUMENTS] = documents.into();
        }
        let seconds = seconds.max(progress.seconds());
        // one write of the manifest replaces the parts by the dataset
        for task in 0..tasks {
            cx.manifest
                .forget(&format!("{stage}/{task:05}-of-{tasks:05}"));
        }
        let record = cx.manifest.record(&stage, print, &files, value, seconds)?;
        self.remove_parts(dataset)?;
        let bad = match counts.quarantined {
            0 => String::new(),
            n => format!(", {} bad records", grouped(n)),
        };
        let written = &counts.built.written;
        progress.finish(&format!(
            "{} documents, {} tokens, {:.2} bytes per token{bad}",
            grouped(written.documents),
            grouped(written.tokens),
            counts.built.text_bytes as f64 / written.tokens.max(1) as f64
        ));
        for (name, counts) in &counts.fields {
            if let Some(absence) = counts.absence(name) {
                log!("{stage}: note: where: {absence}");
            }
        }
        Ok(record)
    }

    /// One task: tokenizes its documents into a dataset named `name`.
    fn part(
        &self,
        dataset: &TokenDataset,
        name: &str,
        stage: &str,
        print: &str,
        mut reader: Reader<'_>,
        (progress, before): (&Progress, u64),
    ) -> Result<Record> {
        let started = std::time::Instant::now();
        let at = prefix(self.cx, name);
        let built = index::dataset::build(
            &at,
            &self.tokenizer,
            &mut reader,
            &self.options(),
            &|_, bytes| {
                progress.set(before + bytes, "");
            },
        )?;
        let task = stage.rsplit('/').next().unwrap_or_default();
        let task = task.split('-').next().unwrap_or_default().parse()?;
        write_atomically(&self.errors_of_part(dataset, task), &reader.errors)?;
        let counts = Counts {
            by: reader.named(&built.groups),
            quarantined: reader.bad,
            fields: std::mem::take(&mut reader.fields),
            built,
        };
        let file = |suffix: &str| Path::new("tokens").join(format!("{name}{suffix}"));
        let errors = relative(&self.cx.out, &self.errors_of_part(dataset, task));
        let files = [file(".bin"), file(".idx"), errors];
        let seconds = started.elapsed().as_secs_f64();
        let counts = serde_json::to_value(&counts)?;
        self.cx
            .manifest
            .record(stage, print, &files, counts, seconds)
    }

    /// Refuses the tokens of parts in the place of those with the identity `trained`, unless the training may go on with others.
    /// The parts stay, for a run that may.
    fn expect_trained(
        &self,
        dataset: &TokenDataset,
        trained: &str,
        parts: &[PathBuf],
    ) -> Result<()> {
        let train = self.cx.job.train.as_ref();
        if train.is_some_and(|train| train.resume.allows_data()) {
            return Ok(());
        }
        let whole = format!("parts/{}.whole-of-{:05}", dataset.name, parts.len());
        let whole = prefix(self.cx, &whole);
        index::dataset::merge(parts, &whole)?;
        let data = Dataset::open(&whole)?;
        let now = match trained.starts_with("s-") {
            true => index::dataset::fingerprint(&data)?,
            false => index::dataset::whole_fingerprint(&data)?,
        };
        drop(data);
        for ending in ["bin", "idx"] {
            let path = whole.with_added_extension(ending);
            std::fs::remove_file(&path)
                .with_context(|| format!("cannot remove {}", path.display()))?;
        }
        if now == trained {
            return Ok(());
        }
        Err(trained_tokenizer::other_tokens(self.cx, &dataset.name, "it would hold now").into())
    }

    fn errors_of_part(&self, dataset: &TokenDataset, task: usize) -> PathBuf {
        let tasks = self.table.tasks;
        let name = format!(
            "parts/{}.{task:05}-of-{tasks:05}.errors.jsonl",
            dataset.name
        );
        prefix(self.cx, &name)
    }

    /// Removes the parts: once the dataset is recorded they only take disk space.
    fn remove_parts(&self, dataset: &TokenDataset) -> Result<()> {
        let folder = self.cx.out.join("tokens/parts");
        let own = format!("{}.", dataset.name);
        for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            if name
                .strip_prefix(&own)
                .is_some_and(|rest| rest.contains("-of-"))
            {
                std::fs::remove_file(entry.path())
                    .with_context(|| format!("cannot remove {}", entry.path().display()))?;
            }
        }
        // fails while another dataset has parts there
        let _ = std::fs::remove_dir(&folder);
        Ok(())
    }
}

/// Counts of all parts; groups by name, sorted.
fn sum<'a>(parts: impl Iterator<Item = &'a Counts>) -> Counts {
    let mut sum = Counts {
        built: Built::default(),
        by: Vec::new(),
        quarantined: 0,
        fields: BTreeMap::new(),
    };
    for part in parts {
        let (all, one) = (&mut sum.built, &part.built);
        all.written.documents += one.written.documents;
        all.written.sequences += one.written.sequences;
        all.written.tokens += one.written.tokens;
        all.text_bytes += one.text_bytes;
        all.empty_documents += one.empty_documents;
        sum.quarantined += part.quarantined;
        for (name, counts) in &part.fields {
            sum.fields.entry(name.clone()).or_default().add(counts);
        }
        for group in &part.by {
            let same = |g: &&mut Group| g.source == group.source && g.language == group.language;
            match sum.by.iter_mut().find(same) {
                Some(g) => g.counts.add(&group.counts),
                None => sum.by.push(group.clone()),
            }
        }
    }
    sum.by
        .sort_by(|a, b| (&a.source, &a.language).cmp(&(&b.source, &b.language)));
    sum
}

/// Bad records of a dataset, relative to the job's folder.
fn errors_path(dataset: &str) -> PathBuf {
    Path::new("tokens").join(format!("{dataset}.errors.jsonl"))
}

/// One `errors.jsonl` for the job, dataset by dataset.
fn errors(cx: &Context) -> Result<PathBuf> {
    let mut all = Vec::new();
    for dataset in cx.job.datasets() {
        let path = cx.out.join(errors_path(&dataset.name));
        let bytes = std::fs::read(&path).with_context(|| path.display().to_string())?;
        all.extend_from_slice(&bytes);
    }
    write_atomically(&cx.out.join("errors.jsonl"), &all)?;
    Ok("errors.jsonl".into())
}
