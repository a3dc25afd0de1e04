//! The job file: TOML to a resolved [`Job`], with every problem reported at once.
//!
//! Parse, resolve, print, then run. A problem has file, key path, found and wanted. Unknown keys and wrong types are
//! found one by one by deserialising, taking the offending key out and trying again, so that one run names them all;
//! contradictions are then asked of every table. As a last guard the loader compares the key paths of the input with
//! those of the resolved job: a key that was read by nobody is a problem too.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::{Path, PathBuf};
use toml::{Table, Value};

/// A whole job. Tables that are absent are not run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Job {
    /// Shown in reports.
    pub name: String,
    /// Folder that everything is written under, relative to the working directory.
    pub out: PathBuf,
    /// Seed of sample order, initial weights and generation.
    pub seed: u32,
    /// Threads; 0 is one per core.
    pub threads: usize,
    /// What is promised about the bits of a training run.
    pub determinism: train::Determinism,
    /// Who runs the tasks.
    pub executor: Executor,
    /// Read, extract, filter.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub curate: Option<curate::CurateConfig>,
    /// Drop documents that hold evaluation texts (part of the curation pass).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decontaminate: Option<curate::DecontaminateConfig>,
    /// Drop duplicates.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dedup: Option<curate::DedupConfig>,
    /// Text to token datasets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokenize: Option<Tokenize>,
    /// Datasets to samples.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub blend: Option<BlendTable>,
    /// Shape of the model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<train::ModelConfig>,
    /// Ranks.
    pub parallel: train::ParallelConfig,
    /// Optimisation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub train: Option<train::TrainConfig>,
    /// Validation of the trained model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub eval: Option<Eval>,
    /// Sample texts of the trained model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub generate: Option<Generate>,
    /// `report.html`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub report: Option<Report>,
}

impl Default for Job {
    fn default() -> Self {
        Job {
            name: String::new(),
            out: PathBuf::new(),
            seed: 1234,
            threads: 0,
            determinism: train::Determinism::Layout,
            executor: Executor::Local,
            curate: None,
            decontaminate: None,
            dedup: None,
            tokenize: None,
            blend: None,
            model: None,
            parallel: train::ParallelConfig::default(),
            train: None,
            eval: None,
            generate: None,
            report: None,
        }
    }
}

/// Who runs the tasks of a stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Executor {
    /// This process.
    Local,
}

/// `[tokenize]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Tokenize {
    /// Where the tokenizer comes from.
    pub tokenizer: TokenizerSource,
    /// Append the end-of-document id to every document. Default: yes, as GPT datasets expect.
    pub append_eod: bool,
    /// Datasets to write; empty means one for each `source` of the inputs.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub dataset: Vec<DatasetTable>,
}

impl Default for Tokenize {
    fn default() -> Self {
        Tokenize {
            tokenizer: TokenizerSource::Train(TrainTokenizer::default()),
            append_eod: true,
            dataset: Vec::new(),
        }
    }
}

/// A tokenizer file, or the settings to train one on the kept text.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TokenizerSource {
    /// Path of a `tokenizer.json`.
    File(PathBuf),
    /// Train one.
    Train(TrainTokenizer),
}

/// `tokenizer = { train = { ... } }`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TrainTokenizer {
    /// Algorithm.
    pub kind: TokenizerKind,
    /// Entries, the 256 bytes and the end-of-document token included.
    pub vocab: usize,
    /// Fewest occurrences of a merged pair.
    pub min_frequency: u64,
    /// Text to learn from, in MiB, taken in document order; 0 is all.
    pub max_mb: u64,
}

impl Default for TrainTokenizer {
    fn default() -> Self {
        let index::TrainBpe {
            vocab,
            min_frequency,
            ..
        } = index::TrainBpe::default();
        TrainTokenizer {
            kind: TokenizerKind::Bpe,
            vocab,
            min_frequency,
            max_mb: 0,
        }
    }
}

impl TrainTokenizer {
    /// As the trainer takes it.
    pub(crate) fn settings(&self) -> index::TrainBpe {
        index::TrainBpe {
            vocab: self.vocab,
            min_frequency: self.min_frequency,
            max_bytes: self.max_mb << 20,
        }
    }
}

/// Tokenizers that can be trained.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TokenizerKind {
    /// Byte-level BPE, GPT-2's kind.
    Bpe,
}

/// `[[tokenize.dataset]]`: which sources make one dataset.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DatasetTable {
    /// File name under `tokens/`.
    pub name: String,
    /// `source` names of the inputs.
    pub sources: Vec<String>,
}

/// `[blend]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct BlendTable {
    /// Tokens a sample.
    pub seq_length: usize,
    /// Ratios of train, validation and test documents.
    pub split: String,
    /// Datasets and weights.
    pub dataset: Vec<BlendDataset>,
}

impl Default for BlendTable {
    fn default() -> Self {
        BlendTable {
            seq_length: 1024,
            split: "949,50,1".into(),
            dataset: Vec::new(),
        }
    }
}

/// `[[blend.dataset]]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct BlendDataset {
    /// A dataset that `[tokenize]` writes, or any name if `prefix` is given.
    pub name: String,
    /// Share of samples, any positive scale.
    pub weight: f64,
    /// Path of an existing dataset without `.bin` and `.idx`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prefix: Option<PathBuf>,
}

impl Default for BlendDataset {
    fn default() -> Self {
        BlendDataset {
            name: String::new(),
            weight: 1.0,
            prefix: None,
        }
    }
}

/// `[eval]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Eval {
    /// Validation samples of the final measurement.
    pub samples: u64,
}

impl Default for Eval {
    fn default() -> Self {
        Eval { samples: 64 }
    }
}

/// `[generate]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Generate {
    /// Texts to continue.
    pub prompts: Vec<String>,
    /// Tokens to add to each.
    pub max_tokens: usize,
    /// 0 takes the likeliest token.
    pub temperature: f64,
    /// Sample among this many likeliest; 0 is all.
    pub top_k: usize,
    /// Sample among the likeliest whose probabilities reach this; 1 is all.
    pub top_p: f64,
}

impl Default for Generate {
    fn default() -> Self {
        Generate {
            prompts: vec!["The".into()],
            max_tokens: 64,
            temperature: 0.8,
            top_k: 50,
            top_p: 1.0,
        }
    }
}

/// `[report]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Report {
    /// Examples shown of each kind (kept, dropped, clusters).
    pub examples: usize,
}

impl Default for Report {
    fn default() -> Self {
        Report { examples: 8 }
    }
}

/// One thing wrong with a job file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Key path, dotted, arrays as `[0]`.
    pub key: String,
    /// What is there.
    pub found: String,
    /// What should be there.
    pub wanted: String,
}

/// Why a job cannot be used.
#[derive(Debug)]
pub enum LoadError {
    /// The file cannot be read or is no TOML.
    File {
        /// Job file.
        path: PathBuf,
        /// Cause.
        why: String,
    },
    /// The file is TOML but not a job.
    Problems {
        /// Job file.
        path: PathBuf,
        /// All of them.
        problems: Vec<Problem>,
    },
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LoadError::File { path, why } => write!(f, "{}: {why}", path.display()),
            LoadError::Problems { path, problems } => {
                let plural = if problems.len() == 1 { "" } else { "s" };
                write!(f, "{}: {} problem{plural}", path.display(), problems.len())?;
                for p in problems {
                    let (file, key) = (path.display(), &p.key);
                    write!(f, "\n\n  file   {file}\n  key    {key}")?;
                    write!(f, "\n  found  {}\n  wanted {}", p.found, p.wanted)?;
                }
                Ok(())
            }
        }
    }
}

impl std::error::Error for LoadError {}

/// Reads a job file, applies `--set` overrides, and returns it resolved.
///
/// # Errors
/// `File`, or `Problems` with every problem.
pub fn load(path: &Path, overrides: &[String]) -> Result<Job, LoadError> {
    let file = |why: String| LoadError::File {
        path: path.to_path_buf(),
        why,
    };
    let text = std::fs::read_to_string(path).map_err(|e| file(e.to_string()))?;
    let mut table: Table = text
        .parse()
        .map_err(|e: toml::de::Error| file(e.to_string()))?;
    let mut problems = Vec::new();
    for set in overrides {
        if let Err(p) = apply(&mut table, set) {
            problems.push(p);
        }
    }
    let job = parse(&table, &mut problems);
    job.check(&mut problems);
    if problems.is_empty() {
        Ok(job)
    } else {
        Err(LoadError::Problems {
            path: path.to_path_buf(),
            problems,
        })
    }
}

/// Puts `table.key=value` into the table; a value that is no TOML is a string.
fn apply(table: &mut Table, set: &str) -> Result<(), Problem> {
    let wrong = |found: &str, wanted: &str| Problem {
        key: format!("--set {set}"),
        found: found.into(),
        wanted: wanted.into(),
    };
    let (path, text) = set
        .split_once('=')
        .ok_or_else(|| wrong("no '='", "table.key=value"))?;
    let value = format!("x = {text}")
        .parse::<Table>()
        .ok()
        .and_then(|mut t| t.remove("x"))
        .unwrap_or_else(|| Value::String(text.into()));
    let keys: Vec<&str> = path.split('.').collect();
    let mut root = Value::Table(std::mem::take(table));
    let outcome = insert(&mut root, &keys, value);
    if let Value::Table(t) = root {
        *table = t;
    }
    outcome.map_err(|found| wrong(&found, "a path of tables or array numbers"))
}

/// Walks to the last key, making tables on the way.
fn insert(place: &mut Value, keys: &[&str], value: Value) -> Result<(), String> {
    let Some((key, rest)) = keys.split_first() else {
        *place = value;
        return Ok(());
    };
    match place {
        Value::Table(t) => {
            let next = t
                .entry((*key).to_string())
                .or_insert_with(|| Value::Table(Table::new()));
            insert(next, rest, value)
        }
        Value::Array(a) => {
            let len = a.len();
            match key.parse::<usize>().ok().and_then(|i| a.get_mut(i)) {
                Some(next) => insert(next, rest, value),
                None => Err(format!("{key} in an array of {len}")),
            }
        }
        other => Err(format!("{key} below a {}", other.type_str())),
    }
}

/// Deserialises, taking out what does not fit until the rest does.
fn parse(table: &Table, problems: &mut Vec<Problem>) -> Job {
    let mut rest = Value::Table(table.clone());
    let mut taken = Taken::default();
    loop {
        match serde_path_to_error::deserialize::<_, Job>(rest.clone()) {
            Ok(job) => {
                if problems.is_empty() {
                    unread_keys(&rest, &job, problems);
                }
                return job;
            }
            Err(e) => {
                let (mut problem, keys) = explain(&rest, &e);
                problem.key = dotted(&taken.as_written(&keys));
                let removed = remove(&mut rest, &keys);
                taken.note(&keys);
                problems.push(problem);
                if !removed {
                    // Nothing to take out: stop here rather than loop; what was found is reported.
                    return Job::default();
                }
            }
        }
    }
}

/// Array elements taken out so far, as numbered in the file: later elements have moved up.
#[derive(Default)]
struct Taken(Vec<(Vec<String>, usize)>);

impl Taken {
    /// The path as the file has it.
    fn as_written(&self, keys: &[String]) -> Vec<String> {
        let mut out: Vec<String> = Vec::with_capacity(keys.len());
        for k in keys {
            let number = k.parse::<usize>().ok().map(|mut i| {
                let mut gone: Vec<usize> =
                    self.0.iter().filter(|t| t.0 == out).map(|t| t.1).collect();
                gone.sort_unstable();
                gone.iter().for_each(|g| i += usize::from(*g <= i));
                i.to_string()
            });
            out.push(number.unwrap_or_else(|| k.clone()));
        }
        out
    }

    fn note(&mut self, keys: &[String]) {
        let mut path = self.as_written(keys);
        if let Some(i) = path.pop().and_then(|k| k.parse().ok()) {
            self.0.push((path, i));
        }
    }
}

/// Key path of the error, as text and as steps to the value to take out.
fn explain(
    root: &Value,
    e: &serde_path_to_error::Error<toml::de::Error>,
) -> (Problem, Vec<String>) {
    let message = e.inner().message().to_string();
    let mut keys = Vec::new();
    for segment in e.path() {
        use serde_path_to_error::Segment;
        match segment {
            Segment::Seq { index } => keys.push(index.to_string()),
            Segment::Map { key } => keys.push(key.clone()),
            Segment::Enum { variant } => keys.push(variant.clone()),
            Segment::Unknown => {}
        }
    }
    let quoted = |text: &str| text.split('`').nth(1).unwrap_or_default().to_string();
    let unknown = ["unknown field", "unknown variant"]
        .iter()
        .any(|m| message.starts_with(m));
    if message.starts_with("unknown field") && keys.last() != Some(&quoted(&message)) {
        keys.push(quoted(&message));
    }
    // The path may name an enum variant that the input spells as a string; cut what is not there.
    while !keys.is_empty() && get(root, &keys).is_none() {
        keys.pop();
    }
    let value = get(root, &keys);
    let found = match (unknown, value) {
        (true, _) if message.starts_with("unknown field") => {
            format!("unknown key {:?}", keys.last().cloned().unwrap_or_default())
        }
        (_, Some(v)) => short(v),
        (_, None) => "nothing".into(),
    };
    let wanted = message
        .split_once("expected ")
        .map_or(message.clone(), |(_, w)| w.replace('`', "\""));
    (
        Problem {
            key: dotted(&keys),
            found,
            wanted,
        },
        keys,
    )
}

fn dotted(keys: &[String]) -> String {
    let mut path = String::new();
    for k in keys {
        if k.parse::<usize>().is_ok() {
            path.push_str(&format!("[{k}]"));
        } else {
            if !path.is_empty() {
                path.push('.');
            }
            path.push_str(k);
        }
    }
    path
}

fn short(v: &Value) -> String {
    let text = format!("{} {}", v.type_str(), v.to_string().replace('\n', " "));
    match text.char_indices().nth(80) {
        Some((cut, _)) => format!("{}...", &text[..cut]),
        None => text,
    }
}

fn get<'a>(v: &'a Value, keys: &[String]) -> Option<&'a Value> {
    keys.iter().try_fold(v, |v, k| match v {
        Value::Table(t) => t.get(k),
        Value::Array(a) => a.get(k.parse::<usize>().ok()?),
        _ => None,
    })
}

fn remove(v: &mut Value, keys: &[String]) -> bool {
    let Some((last, path)) = keys.split_last() else {
        return false;
    };
    let mut place = v;
    for k in path {
        let next = match place {
            Value::Table(t) => t.get_mut(k),
            Value::Array(a) => k.parse::<usize>().ok().and_then(|i| a.get_mut(i)),
            _ => None,
        };
        match next {
            Some(n) => place = n,
            None => return false,
        }
    }
    match place {
        Value::Table(t) => t.remove(last).is_some(),
        Value::Array(a) => match last.parse::<usize>() {
            Ok(i) if i < a.len() => {
                a.remove(i);
                true
            }
            _ => false,
        },
        _ => false,
    }
}

/// The guard against silent drops: every key path of the input must be in the resolved job.
fn unread_keys(input: &Value, job: &Job, problems: &mut Vec<Problem>) {
    let Ok(resolved) = Value::try_from(job) else {
        return;
    };
    let mut paths = Vec::new();
    leaves(input, &mut Vec::new(), &mut paths);
    for keys in paths {
        if get(&resolved, &keys).is_none() {
            problems.push(Problem {
                key: dotted(&keys),
                found: get(input, &keys).map_or_else(String::new, short),
                wanted: "a key that the job has (this one is read by nobody)".into(),
            });
        }
    }
}

fn leaves(v: &Value, at: &mut Vec<String>, out: &mut Vec<Vec<String>>) {
    let children: Vec<(String, &Value)> = match v {
        Value::Table(t) => t.iter().map(|(k, v)| (k.clone(), v)).collect(),
        Value::Array(a) => a
            .iter()
            .enumerate()
            .map(|(i, v)| (i.to_string(), v))
            .collect(),
        _ => {
            out.push(at.clone());
            return;
        }
    };
    for (k, v) in children {
        at.push(k);
        leaves(v, at, out);
        at.pop();
    }
}

impl Job {
    /// The resolved job as TOML; loading it gives the same job.
    pub fn to_toml(&self) -> String {
        toml::to_string(self).expect("a job holds only tables, arrays, strings and numbers")
    }

    /// Names of the datasets that `[tokenize]` writes, with their sources.
    pub(crate) fn datasets(&self) -> Vec<DatasetTable> {
        let Some(tokenize) = &self.tokenize else {
            return Vec::new();
        };
        if !tokenize.dataset.is_empty() {
            return tokenize.dataset.clone();
        }
        let mut names: Vec<String> = Vec::new();
        for input in self.curate.iter().flat_map(|c| &c.inputs) {
            if !names.contains(&input.source) {
                names.push(input.source.clone());
            }
        }
        names
            .into_iter()
            .map(|n| DatasetTable {
                name: n.clone(),
                sources: vec![n],
            })
            .collect()
    }

    /// Every contradiction between tables and within them.
    pub(crate) fn check(&self, problems: &mut Vec<Problem>) {
        let mut add = |key: &str, found: String, wanted: &str| {
            problems.push(Problem {
                key: key.into(),
                found,
                wanted: wanted.into(),
            });
        };
        if self.out.as_os_str().is_empty() {
            add(
                "out",
                "\"\"".into(),
                "a folder for everything the job writes",
            );
        }
        if self.name.is_empty() {
            add("name", "\"\"".into(), "a name to show in reports");
        }
        if let Some(c) = &self.curate {
            c.check(&mut |k, f, w| add(&format!("curate.{k}"), f, w));
        }
        if let Some(d) = &self.dedup {
            d.check(&mut |k, f, w| add(&format!("dedup.{k}"), f, w));
        }
        if let Some(d) = &self.decontaminate {
            d.check(&mut |k, f, w| add(&format!("decontaminate.{k}"), f, w));
        }
        let needs = [
            (
                "dedup",
                self.dedup.is_some(),
                "curate",
                self.curate.is_some(),
            ),
            (
                "decontaminate",
                self.decontaminate.is_some(),
                "curate",
                self.curate.is_some(),
            ),
            (
                "tokenize",
                self.tokenize.is_some(),
                "curate",
                self.curate.is_some(),
            ),
            ("train", self.train.is_some(), "blend", self.blend.is_some()),
            ("train", self.train.is_some(), "model", self.model.is_some()),
            ("eval", self.eval.is_some(), "train", self.train.is_some()),
            (
                "generate",
                self.generate.is_some(),
                "train",
                self.train.is_some(),
            ),
        ];
        for (table, has, needed, there) in needs {
            if has && !there {
                add(
                    table,
                    format!("[{table}] without [{needed}]"),
                    "both tables",
                );
            }
        }
        self.check_datasets(&mut add);
        self.check_training(&mut add);
    }

    fn check_datasets(&self, add: &mut dyn FnMut(&str, String, &str)) {
        if let Some(t) = &self.tokenize {
            if let TokenizerSource::Train(s) = &t.tokenizer {
                s.settings()
                    .check(&mut |k, f, w| add(&format!("tokenize.tokenizer.train.{k}"), f, w));
            }
            let sources: Vec<&str> = self
                .curate
                .iter()
                .flat_map(|c| &c.inputs)
                .map(|i| i.source.as_str())
                .collect();
            for (i, d) in t.dataset.iter().enumerate() {
                for s in d.sources.iter().filter(|s| !sources.contains(&s.as_str())) {
                    let wanted = format!("a source of curate.inputs: {sources:?}");
                    add(
                        &format!("tokenize.dataset[{i}].sources"),
                        format!("{s:?}"),
                        &wanted,
                    );
                }
            }
        }
        let Some(b) = &self.blend else { return };
        let written: Vec<String> = self.datasets().into_iter().map(|d| d.name).collect();
        if b.seq_length == 0 {
            add("blend.seq_length", "0".into(), "1 or more");
        }
        if let Err(e) = index::parse_split(&b.split) {
            add("blend.split", format!("{:?}", b.split), &e.to_string());
        }
        if b.dataset.is_empty() {
            add(
                "blend.dataset",
                "none".into(),
                "one [[blend.dataset]] or more",
            );
        }
        for (i, d) in b.dataset.iter().enumerate() {
            if !(d.weight.is_finite() && d.weight > 0.0) {
                add(
                    &format!("blend.dataset[{i}].weight"),
                    d.weight.to_string(),
                    "above 0",
                );
            }
            if d.prefix.is_none() && !written.contains(&d.name) {
                let wanted = format!("a dataset of [tokenize] ({written:?}), or a prefix");
                add(
                    &format!("blend.dataset[{i}].name"),
                    format!("{:?}", d.name),
                    &wanted,
                );
            }
        }
    }

    fn check_training(&self, add: &mut dyn FnMut(&str, String, &str)) {
        if let (Some(model), Some(train), Some(blend)) = (&self.model, &self.train, &self.blend) {
            let plan = self.plan(
                model,
                train,
                blend.seq_length,
                self.vocab_hint(),
                String::new(),
            );
            plan.check(&mut |k, f, w| {
                let key = if k == "seq_length" {
                    "blend.seq_length"
                } else {
                    k
                };
                add(key, f, w);
            });
        }
        if let Some(g) = &self.generate {
            if !(g.temperature >= 0.0 && g.temperature.is_finite()) {
                add(
                    "generate.temperature",
                    g.temperature.to_string(),
                    "0 or more",
                );
            }
            if !(g.top_p > 0.0 && g.top_p <= 1.0) {
                add("generate.top_p", g.top_p.to_string(), "above 0, at most 1");
            }
        }
    }

    /// Vocabulary as far as the job file tells; the tokenizer itself decides when there is one.
    fn vocab_hint(&self) -> usize {
        match self.tokenize.as_ref().map(|t| &t.tokenizer) {
            Some(TokenizerSource::Train(t)) => t.vocab.max(1),
            _ => 50_257,
        }
    }

    /// The plan of training with the numbers that only the data can tell.
    pub(crate) fn plan(
        &self,
        model: &train::ModelConfig,
        train: &train::TrainConfig,
        seq_length: usize,
        vocab: usize,
        fingerprint: String,
    ) -> train::Plan {
        train::Plan {
            model: model.clone(),
            parallel: self.parallel.clone(),
            train: train.clone(),
            vocab,
            seq_length,
            seed: u64::from(self.seed),
            determinism: self.determinism,
            fingerprint,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(text: &str, sets: &[&str]) -> Vec<Problem> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("job.toml");
        std::fs::write(&path, text).unwrap();
        let sets: Vec<String> = sets.iter().map(|s| s.to_string()).collect();
        match load(&path, &sets) {
            Ok(_) => Vec::new(),
            Err(LoadError::Problems { problems, .. }) => problems,
            Err(e) => panic!("{e}"),
        }
    }

    const SMALL: &str = "name = 'x'\nout = 'o'\n[blend]\nseq_length = 64\n[[blend.dataset]]\nname = 'a'\nprefix = 'p'\n\
        [model]\nlayers = 2\nd_model = 64\nheads = 2\n[train]\nsteps = 2\nglobal_batch = 2\nmicro_batch = 1\nwarmup_steps = 1\n";

    #[test]
    fn unknown_key_wrong_type_and_contradiction_are_reported_in_one_go() {
        let text = SMALL
            .replace("steps = 2", "steps = 'many'\nstep_size = 3")
            .replace("heads = 2", "heads = 3");
        let found = problems(&text, &[]);
        let keys: Vec<&str> = found.iter().map(|p| p.key.as_str()).collect();
        for key in ["train.steps", "train.step_size", "model.heads"] {
            assert!(keys.contains(&key), "{key} not in {keys:?}");
        }
        let unknown = found.iter().find(|p| p.key == "train.step_size").unwrap();
        assert!(unknown.found.contains("unknown key"), "{unknown:?}");
    }

    #[test]
    fn wrong_array_elements_keep_the_numbers_of_the_file() {
        let text = "name = 'x'\nout = 'o'\n[curate]\ninputs = [{ path = 1 }, { path = 'a' }, { path = 2 }]\n\
            [[curate.step]]\nnonsense = {}\n[[curate.step]]\nc4 = { words = 'x' }\n";
        let found = problems(text, &[]);
        let keys: Vec<&str> = found.iter().map(|p| p.key.as_str()).collect();
        for key in [
            "curate.inputs[0].path",
            "curate.inputs[2].path",
            "curate.step[0]",
        ] {
            assert!(
                keys.iter().any(|k| k.starts_with(key)),
                "{key} not in {keys:?}"
            );
        }
        assert!(
            keys.iter().any(|k| k.starts_with("curate.step[1]")),
            "{keys:?}"
        );
    }

    #[test]
    fn a_good_job_has_no_problem_and_prints_to_itself() {
        assert_eq!(problems(SMALL, &[]), []);
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("job.toml");
        std::fs::write(&path, SMALL).unwrap();
        let job = load(&path, &[]).unwrap();
        std::fs::write(&path, job.to_toml()).unwrap();
        assert_eq!(load(&path, &[]).unwrap(), job);
    }

    #[test]
    fn set_overrides_numbers_strings_and_array_elements() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("job.toml");
        std::fs::write(&path, SMALL).unwrap();
        let sets = [
            "train.steps=7",
            "out=elsewhere",
            "blend.dataset.0.weight=0.5",
        ]
        .map(String::from);
        let job = load(&path, &sets).unwrap();
        assert_eq!(job.train.unwrap().steps, 7);
        assert_eq!(job.out, PathBuf::from("elsewhere"));
        assert_eq!(job.blend.unwrap().dataset[0].weight, 0.5);
        assert!(!problems(SMALL, &["train.stepz=7"]).is_empty());
        assert!(!problems(SMALL, &["nonsense"]).is_empty());
    }
}
