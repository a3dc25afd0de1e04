//! Settings of the curation pass: inputs, limits and steps. Each step's own settings are beside the step.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::check::{Problem, range};
use crate::expression::{self, Kind};
use crate::read::Input;
use crate::steps::Step;
use crate::text::languages::{OF_DOCUMENT, WordLanguage};
use crate::text::words::WordRules;
use crate::write::OutputFormat;

/// Reading, extracting and filtering.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct CurateConfig {
    /// Inputs in the order they are numbered; each file is one shard. A path alone, or a list with paths among its tables, stands
    /// for inputs with `format = "auto"`, each with the name of its file or folder as its `source`.
    #[serde(deserialize_with = "crate::read::inputs")]
    pub inputs: Vec<Input>,
    /// Files larger than this many MiB become several shards, where their format can be entered in
    /// the middle; 0: none. Documents are the same for every size; ids of records without one then
    /// name their byte offset instead of their number.
    pub split_mb: u64,
    /// Only so many records are read, the first of the inputs in order, bad ones included; 0: all. Files are not cut then.
    /// To try a job.
    pub limit: u64,
    /// Share of the documents that is taken, chosen by a hash of their ids: the same ones for any number of tasks. The
    /// others are counted as dropped by `sample`. Default: 1, all.
    pub sample: f64,
    /// Format of `clean/`.
    pub output: OutputFormat,
    /// Number of shards in flight at once; 0: two more than threads. Never changes the output.
    pub tasks: usize,
    /// Shards of at least this many MiB keep a journal, from which a killed run resumes in the middle of a shard;
    /// smaller ones are redone. Never changes the output.
    pub journal_mb: u64,
    /// Memory budget of one process in MiB. Default: fits a laptop.
    pub memory_mb: u64,
    /// The job fails when more records than this are quarantined.
    pub max_bad_records: u64,
    /// A longer record or line (bytes, decompressed) is quarantined without being buffered.
    pub max_record_bytes: u64,
    /// Also measure every rule of every document, broken or not, and keep the metrics in `figures/`: the report then
    /// shows what other limits would keep. The cost: rules that a dropped document would otherwise skip.
    pub figures: bool,
    /// Measure every document's text (datatrove's document, line, paragraph and word statistics), by source and
    /// language; with `figures` also the rules' metrics. Summed up in `statistics.json` and `statistics.parquet`.
    pub statistics: bool,
    /// Language by which statistics split words: empty for English, a language of datatrove (`deu_Latn`, `de`), or
    /// `document` for the one that the step `language` found. Stop words stay English.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub statistics_language: String,
    /// Filters in order; the first broken rule names the drop.
    pub step: Vec<Step>,
}

impl Default for CurateConfig {
    fn default() -> Self {
        CurateConfig {
            inputs: Vec::new(),
            split_mb: 0,
            limit: 0,
            sample: 1.0,
            output: OutputFormat::default(),
            tasks: 0,
            journal_mb: 32,
            memory_mb: 1024,
            max_bad_records: 1000,
            max_record_bytes: 32 << 20,
            figures: false,
            statistics: false,
            statistics_language: String::new(),
            step: Vec::new(),
        }
    }
}

impl CurateConfig {
    /// Whose words statistics count; None without statistics.
    pub(crate) fn words_of_statistics(&self) -> Option<WordLanguage> {
        let words = WordLanguage::of(&self.statistics_language);
        // a name that is not known was reported by `check`
        let words = words.unwrap_or(WordLanguage::One(WordRules::English));
        self.statistics.then_some(words)
    }

    /// Files that the steps read, models and lists: the output depends on their bytes.
    pub fn step_files(&self) -> Vec<PathBuf> {
        let files = self.step.iter().flat_map(|step| step.settings().files());
        files.collect()
    }

    /// Names of the `group` steps that statistics are kept by.
    pub(crate) fn statistics_by(&self) -> Vec<String> {
        let by = self.step.iter().filter_map(|step| {
            let Step::Group(group) = step else {
                return None;
            };
            group.statistics.then(|| group.name.clone())
        });
        by.collect()
    }

    /// Hashes of ids below this are in the sample; None: every document is.
    pub(crate) fn sample_limit(&self) -> Option<u64> {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a share of the hashes, which need no last digits"
        )]
        let limit = (self.sample * 2f64.powi(64)) as u64;
        (self.sample < 1.0).then_some(limit)
    }

    /// Reports every contradiction.
    pub fn check(&self, problem: Problem<'_>) {
        if self.inputs.is_empty() {
            problem("inputs", "[]".to_string(), "at least one input");
        }
        for (i, input) in self.inputs.iter().enumerate() {
            input.check(&mut |k, f, w| problem(&format!("inputs[{i}].{k}"), f, w));
        }
        if self.memory_mb < 64 {
            problem("memory_mb", self.memory_mb.to_string(), "at least 64");
        }
        range(problem, "sample", self.sample, 0.0, 1.0);
        if let Err(wanted) = WordLanguage::of(&self.statistics_language) {
            let found = format!("{:?}", self.statistics_language);
            problem("statistics_language", found, &wanted);
        }
        range(
            problem,
            "max_record_bytes",
            self.max_record_bytes as f64,
            1024.0,
            1e9,
        );
        if self.max_record_bytes.saturating_mul(4) > self.memory_mb.saturating_mul(1 << 20) {
            problem(
                "max_record_bytes",
                self.max_record_bytes.to_string(),
                "at most a quarter of memory_mb",
            );
        }
        let mut sound = Vec::new();
        for (i, step) in self.step.iter().enumerate() {
            if let Step::Group(group) = step
                && group.statistics
                && !self.statistics
            {
                let key = format!("step[{i}].group.statistics");
                problem(
                    &key,
                    "true".to_string(),
                    "false, or curate.statistics = true",
                );
            }
            if i > 0 && step.settings().is_first() {
                problem(
                    &format!("step[{i}].{}", step.name()),
                    format!("position {i}"),
                    "the first position",
                );
            }
            let mut is_sound = true;
            step.check(&mut |k, f, w| {
                is_sound = false;
                problem(&format!("step[{i}].{k}"), f, w);
            });
            sound.push(is_sound);
        }
        self.check_names(&sound, problem);
        self.check_languages(problem);
    }

    /// Reports every name in the steps' expressions that is neither one of the document's nor a metric of an earlier step.
    /// Steps that are not `sound` are not opened for the names of their metrics.
    fn check_names(&self, sound: &[bool], problem: Problem<'_>) {
        // of the steps so far: opening a step only for its names is put off until an expression needs them
        let mut metrics: Vec<String> = Vec::new();
        let mut are_all_known = true;
        let mut behind = 0;
        for (i, step) in self.step.iter().enumerate() {
            for expression in step.settings().expressions() {
                // one that cannot be parsed was reported with its step
                let Ok(parsed) = expression::check(expression.source, Kind::Any) else {
                    continue;
                };
                for (before, is_sound) in self.step.iter().zip(sound).take(i).skip(behind) {
                    // the names of this step's are the same whatever its settings
                    let is_sound = *is_sound || matches!(before, Step::Language(_));
                    let found = is_sound.then(|| before.settings().metric_names());
                    let found = found.flatten();
                    are_all_known &= found.is_some();
                    metrics.extend(found.unwrap_or_default());
                }
                behind = i;
                for wrong in expression::unknown(&parsed, &metrics) {
                    // it may be a metric of a step whose settings are wrong, which is reported already
                    let name = wrong.found.split('"').nth(1).unwrap_or_default();
                    if are_all_known || !name.contains('.') {
                        let key = format!("step[{i}].{}.{}", step.name(), expression.key);
                        problem(&key, wrong.found, &wrong.wanted);
                    }
                }
            }
        }
    }

    /// Whether a step finds the language of each document.
    pub fn finds_languages(&self) -> bool {
        let is_language = |step: &Step| matches!(step, Step::Language(_));
        self.step.iter().any(is_language)
    }

    /// Reports every step, and the statistics, that ask for the language of documents before it is found.
    fn check_languages(&self, problem: Problem<'_>) {
        let is_language = |step: &Step| matches!(step, Step::Language(_));
        let found = self.step.iter().position(is_language);
        let wanted = "a step `language` before this one, which finds the language of each document";
        for (i, step) in self.step.iter().enumerate() {
            let Some(key) = step.settings().language_key() else {
                continue;
            };
            if found.is_none_or(|language| i < language) {
                let key = format!("step[{i}].{}.{key}", step.name());
                let why = match found {
                    None => "languages of documents in a job without a step `language`".to_string(),
                    Some(language) => {
                        format!("languages of documents before step[{language}].language")
                    }
                };
                problem(&key, why, wanted);
            }
        }
        if self.statistics_language == OF_DOCUMENT && found.is_none() {
            let why = format!("{OF_DOCUMENT:?} in a job without a step `language`");
            let wanted = "a step `language`, which finds the language of each document";
            problem("statistics_language", why, wanted);
        }
    }

    /// Reports every model and list of the steps that is not there or, as its first bytes show, of another kind. Nothing is
    /// loaded.
    pub fn check_files(&self, problem: Problem<'_>) {
        for (i, step) in self.step.iter().enumerate() {
            let name = step.name();
            step.settings()
                .check_files(&mut |k, f, w| problem(&format!("step[{i}].{name}.{k}"), f, w));
        }
    }
}
