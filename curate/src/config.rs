//! What a job file may say about curation, deduplication and decontamination.
//!
//! Every struct refuses unknown keys and has a `check` that reports all its contradictions in one
//! go as (key path, found, wanted).

use std::collections::BTreeMap;

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::code::CODE_LABELS;
use crate::decontaminate::{CutRules, SampledRules};
use crate::dedup::{BloomConfig, LinesConfig, MinhashConfig, SubstringConfig, UrlDedupConfig};
use crate::dsir::DsirConfig;
use crate::extract::ExtractConfig;
use crate::filter::{
    BadWords, C4Quality, Dclm, Dolma, Fineweb2, FinewebQuality, GopherQuality, GopherRepetition,
    Length, Lines, MassiveText, Nemo, Openwebtext, Redpajama, UrlConfig,
};
use crate::language::BUILT_IN;
use crate::normalize::NormalizeConfig;
use crate::pii::PiiConfig;
use crate::quality::{ExpressionConfig, PerplexityConfig, QualityConfig};

/// Where `check` reports: key path relative to the struct, what was found, what is wanted.
pub type Problem<'a> = &'a mut dyn FnMut(&str, String, &str);

/// One input: a file, a folder, a pattern, a list of paths, or a URL of any of these.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Input {
    /// File or folder, relative to the working directory; a pattern (`*`, `?`, `[a-z]`, `**`); a URL
    /// (`http`, `https`, `s3`, `gs`, `az`); or a list of any of these, a file named `*.paths[.gz]`.
    pub path: String,
    /// How to read it. Compression is told from the first bytes, not from the name.
    pub format: Format,
    /// Name that documents carry as their `source`, for example `crawl`.
    pub source: String,
    /// Put before every line of a list, for example `https://data.commoncrawl.org/`.
    pub prefix: String,
    /// Attributes (dolma's layout) whose values documents get from the files beside them.
    pub attributes: Vec<String>,
    /// Namespaces of a Wikipedia dump to read; 0 holds the articles.
    pub namespaces: Vec<i64>,
    /// Settings of the object store as the `object_store` crate names them (`aws_region`,
    /// `aws_endpoint`, `aws_skip_signature`); keep credentials in the environment.
    pub options: BTreeMap<String, String>,
}

impl Default for Input {
    fn default() -> Self {
        Input {
            path: String::new(),
            format: Format::Jsonl,
            source: "input".to_string(),
            prefix: String::new(),
            attributes: Vec::new(),
            namespaces: vec![0],
            options: BTreeMap::new(),
        }
    }
}

/// File formats this crate reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Format {
    /// WARC 1.0 or 1.1 with responses and resources; also ARC.
    Warc,
    /// WARC with extracted text (`conversion` records), as Common Crawl publishes.
    Wet,
    /// WARC with computed metadata, as Common Crawl publishes: titles, descriptions and links.
    Wat,
    /// One JSON object a line with at least a `text` string; The Pile's layout is this one.
    Jsonl,
    /// The same in dolma's layout: metadata is kept, attributes lie beside the documents.
    Dolma,
    /// Columns `text` or `content`, `id`, `url`; all others become metadata.
    Parquet,
    /// MediaWiki XML dump; wikitext becomes plain text.
    Wikipedia,
    /// One UTF-8 document per file.
    Text,
}

/// How clean documents are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum OutputFormat {
    /// JSON lines under zstd.
    #[default]
    JsonlZst,
    /// JSON lines under gzip.
    JsonlGz,
    /// Parquet: `id`, `text`, `url`, `source`, `subset`, `language`, `metadata` (JSON text).
    Parquet,
}

/// Reading, extracting and filtering.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct CurateConfig {
    /// Inputs in the order they are numbered; each file is one shard.
    pub inputs: Vec<Input>,
    /// Files larger than this many MiB become several shards, where their format can be entered in
    /// the middle; 0: none. Documents are the same for every size; ids of records without one then
    /// name their byte offset instead of their number.
    pub split_mb: u64,
    /// Format of `clean/`.
    pub output: OutputFormat,
    /// How many shards may be in flight at once; 0: two more than threads. Never changes the output.
    pub tasks: usize,
    /// Shards of at least this many MiB keep a journal, from which a killed run goes on in the middle of a shard; smaller
    /// ones are done again. Never changes the output.
    pub journal_mb: u64,
    /// Memory budget of one process in MiB. Default: fits a laptop.
    pub memory_mb: u64,
    /// The job fails when more records than this are quarantined.
    pub max_bad_records: u64,
    /// A longer record or line (bytes, decompressed) is quarantined without being buffered.
    pub max_record_bytes: u64,
    /// Also measure every rule of every document, broken or not, and keep the figures in `figures/`: the report then
    /// shows what other limits would keep. Costs the rules that a dropped document would have been spared.
    pub figures: bool,
    /// Measure every document's text (datatrove's document, line, paragraph and word statistics), by source and language;
    /// with `figures` also what the rules measured. Summed up in `statistics.json` and `statistics.parquet`.
    pub statistics: bool,
    /// Filters in order; the first broken rule names the drop.
    pub step: Vec<Step>,
}

impl Default for CurateConfig {
    fn default() -> Self {
        CurateConfig {
            inputs: Vec::new(),
            split_mb: 0,
            output: OutputFormat::default(),
            tasks: 0,
            journal_mb: 32,
            memory_mb: 1024,
            max_bad_records: 1000,
            max_record_bytes: 32 << 20,
            figures: false,
            statistics: false,
            step: Vec::new(),
        }
    }
}

/// One step of the chain.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Step {
    /// HTML to main text; must come first when present.
    Extract(ExtractConfig),
    /// Text repair: Unicode forms, mojibake, quotes, control characters.
    Normalize(NormalizeConfig),
    /// Language identification; drops what is not in `keep`.
    Language(LanguageConfig),
    /// Source code or prose, and the programming language.
    Code(CodeConfig),
    /// Gopher quality rules.
    GopherQuality(GopherQuality),
    /// Gopher repetition rules.
    GopherRepetition(GopherRepetition),
    /// C4 line and page rules.
    C4(C4Quality),
    /// FineWeb's own rules.
    Fineweb(FinewebQuality),
    /// DCLM-baseline's heuristics.
    Dclm(Dclm),
    /// FineWeb-2's filters for one language.
    Fineweb2(Fineweb2),
    /// Dolma's Gopher rules.
    Dolma(Dolma),
    /// NeMo Curator's heuristics.
    Nemo(Nemo),
    /// Gopher's rules as the paper words them.
    MassiveText(MassiveText),
    /// Megatron-LM's clean-up of OpenWebText.
    Openwebtext(Openwebtext),
    /// RedPajama-v2's quality signals.
    Redpajama(Redpajama),
    /// Lists of bad words.
    BadWords(BadWords),
    /// Edits of lines.
    Lines(Lines),
    /// Lists of domains, addresses and their words.
    Url(UrlConfig),
    /// Bounds on the text's length.
    Length(Length),
    /// Personal data and secrets.
    Pii(PiiConfig),
    /// A classifier's score.
    Quality(QualityConfig),
    /// A language model's perplexity.
    Perplexity(PerplexityConfig),
    /// Importance resampling towards a target.
    Dsir(DsirConfig),
    /// A condition over the figures of the steps before.
    Expression(ExpressionConfig),
}

/// Language identification.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct LanguageConfig {
    /// `builtin`, or the path of a fastText model (`.bin` or `.ftz`) such as lid.176 or GlotLID.
    pub model: String,
    /// Labels to keep, as the model gives them (built-in: ISO 639-1 where one exists); empty: keep all,
    /// only label.
    pub keep: Vec<String>,
    /// Least confidence in 0..=1 for a kept document; 0 accepts any. datatrove: 0.65 with lid.176.
    pub min_confidence: f64,
    /// Identifies every paragraph. The document's language is then the one with the most letters and its
    /// confidence that language's share of them; all shares go to `meta.languages`.
    pub per_paragraph: bool,
    /// Shares of scripts go to `meta.scripts`.
    pub scripts: bool,
}

impl Default for LanguageConfig {
    fn default() -> Self {
        LanguageConfig {
            model: BUILT_IN.to_string(),
            keep: Vec::new(),
            min_confidence: 0.0,
            per_paragraph: false,
            scripts: false,
        }
    }
}

/// Source code or prose. What a document is goes to `meta.code`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct CodeConfig {
    /// Labels to keep, of `CODE_LABELS`: names of programming languages, `other` for other code, markup and
    /// data, `prose`; empty: keep all, only label.
    pub keep: Vec<String>,
    /// Least confidence in 0..=1 for a kept document; 0 accepts any.
    pub min_confidence: f64,
}

/// Deduplication.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct DedupConfig {
    /// Exact duplicates of the cleaned text; absent: off.
    pub exact: Option<ExactConfig>,
    /// Near duplicates; absent: off.
    pub minhash: Option<MinhashConfig>,
    /// Documents with the same address, among those that are left; absent: off.
    pub url: Option<UrlDedupConfig>,
    /// Lines or paragraphs that came before, in what is left; absent: off.
    pub lines: Option<LinesConfig>,
    /// Paragraphs and documents of n-grams that came before, in what is left then, by a Bloom filter; absent: off.
    pub bloom: Option<BloomConfig>,
    /// Long stretches of bytes that came before, in what is left then; absent: off.
    pub substring: Option<SubstringConfig>,
    /// Which document of a cluster survives, among those of the best source.
    pub keep: KeepPolicy,
    /// Sources, best first, as `source` or `source/subset`: a document of an earlier one survives those of later ones and of
    /// all that are not named.
    pub priority: Vec<String>,
    /// Folder of indexes (`*.index`) of what earlier crawls kept: what matches them goes, without their texts being read. The
    /// index of what is kept is written to `keep/kept.index`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub index: Option<PathBuf>,
    /// Memory budget of the sort in MiB. What does not fit is read once per part that fits; with
    /// `keep = "datatrove"` it goes to sorted runs on disk.
    pub memory_mb: u64,
}

impl Default for DedupConfig {
    fn default() -> Self {
        DedupConfig {
            exact: None,
            minhash: None,
            url: None,
            lines: None,
            bloom: None,
            substring: None,
            keep: KeepPolicy::First,
            priority: Vec::new(),
            index: None,
            memory_mb: 512,
        }
    }
}

/// Exact deduplication by XXH3-128 of the text. Nothing to set yet.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct ExactConfig {
    /// Texts are compared by their words in lower case, not by their bytes; a text without a word by its bytes.
    pub normalized: bool,
}

/// Which document of a duplicate cluster is kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum KeepPolicy {
    /// The one with the smallest (shard, document).
    #[default]
    First,
    /// The one with the most characters; the first of these.
    Longest,
    /// The one with the highest `meta.quality`; one without comes last; the first of these.
    Quality,
    /// The root that datatrove's union by size ends with.
    Datatrove,
}

/// Removal of documents that share an n-gram with an evaluation set.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct DecontaminateConfig {
    /// JSON lines (plain, gz, zst) or plain text files with the evaluation texts.
    pub files: Vec<String>,
    /// Whose words and n-grams.
    pub profile: DecontaminateProfile,
    /// JSON fields to index; empty: every string of the record. Not of `datatrove` and `decon`.
    pub fields: Vec<String>,
    /// Field that names a record's task; without it the file's name does.
    pub task_field: String,
    /// `datatrove`: field of the answer.
    pub label_field: String,
    /// `datatrove`: field of the question.
    pub query_field: String,
    /// `datatrove`: also n-grams of the question alone.
    pub query_ngrams: bool,
    /// `datatrove`: also n-grams that begin in the question and end in the answer.
    pub overlap_ngrams: bool,
    /// Words per n-gram; absent: the profile's, 13, 12 or 5.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ngram: Option<usize>,
    /// `mt_nlg`: what is cut, and what becomes of the pieces.
    pub cut: CutRules,
    /// `decon`: how documents are searched and scored.
    pub sampled: SampledRules,
}

/// Whose words and n-grams of evaluation sets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum DecontaminateProfile {
    /// Words are `\w+`, lower-cased, 13 of them.
    #[default]
    Gpt3,
    /// Words are spaCy's of the simplified text, 12 of them.
    Datatrove,
    /// Words are Python's `\w+`, lower-cased, 13 of them or a whole short text; cuts after deduplication instead of dropping.
    MtNlg,
    /// Words and spaces, 5 of them, sampled; a score decides, weighted by how rare n-grams are.
    Decon,
}

impl Default for DecontaminateConfig {
    fn default() -> Self {
        DecontaminateConfig {
            files: Vec::new(),
            profile: DecontaminateProfile::default(),
            fields: Vec::new(),
            task_field: "task".to_string(),
            label_field: "text".to_string(),
            query_field: "query".to_string(),
            query_ngrams: false,
            overlap_ngrams: true,
            ngram: None,
            cut: CutRules::default(),
            sampled: SampledRules::default(),
        }
    }
}

/// Reports when `value` is outside `low..=high`.
pub(crate) fn range(problem: Problem<'_>, key: &str, value: f64, low: f64, high: f64) {
    if !(low..=high).contains(&value) {
        problem(
            key,
            format!("{value}"),
            &format!("a number from {low} to {high}"),
        );
    }
}

impl CurateConfig {
    /// Files that the steps read, models and lists: the output depends on their bytes.
    pub fn step_files(&self) -> Vec<PathBuf> {
        let files = self.step.iter().flat_map(|step| match step {
            Step::Language(c) if c.model != BUILT_IN => vec![PathBuf::from(&c.model)],
            Step::Quality(c) => vec![PathBuf::from(&c.model)],
            Step::Perplexity(c) => vec![PathBuf::from(&c.model)],
            Step::Dsir(c) => vec![PathBuf::from(&c.model)],
            Step::Url(c) => c.files(),
            Step::BadWords(c) => c.files(),
            Step::Redpajama(c) => c.file().into_iter().collect(),
            _ => Vec::new(),
        });
        files.collect()
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
        for (i, step) in self.step.iter().enumerate() {
            if i > 0 && matches!(step, Step::Extract(_)) {
                problem(
                    &format!("step[{i}].extract"),
                    format!("position {i}"),
                    "the first position",
                );
            }
            step.check(&mut |k, f, w| problem(&format!("step[{i}].{k}"), f, w));
        }
    }
}

impl Input {
    /// An input of this format, nothing else set.
    pub(crate) fn of(format: Format) -> Input {
        Input {
            format,
            ..Input::default()
        }
    }

    /// Reports every contradiction.
    pub fn check(&self, problem: Problem<'_>) {
        if self.path.is_empty() {
            problem("path", "\"\"".to_string(), "a file or folder");
        }
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        if self.source.is_empty() || !self.source.chars().all(plain) {
            problem(
                "source",
                format!("{:?}", self.source),
                "letters, digits, '-', '_' or '.' (it is part of document ids)",
            );
        }
        let dolma = self.format == Format::Dolma;
        if !dolma && !self.attributes.is_empty() {
            let found = format!("{:?}", self.attributes);
            problem("attributes", found, "none, or format = \"dolma\"");
        }
        for (i, name) in self.attributes.iter().enumerate() {
            if name.is_empty() || name.contains('/') {
                let wanted = "the name of a folder below attributes";
                problem(&format!("attributes[{i}]"), format!("{name:?}"), wanted);
            }
        }
        if self.namespaces.is_empty() {
            let wanted = "at least one number; 0 holds the articles";
            problem("namespaces", "[]".to_string(), wanted);
        }
    }
}

impl Step {
    /// Reports every contradiction.
    pub fn check(&self, problem: Problem<'_>) {
        let name = self.name();
        let mut inner = |k: &str, f: String, w: &str| problem(&format!("{name}.{k}"), f, w);
        match self {
            Step::Extract(c) => c.check(&mut inner),
            Step::Normalize(c) => c.check(&mut inner),
            Step::Language(c) => c.check(&mut inner),
            Step::Code(c) => c.check(&mut inner),
            Step::GopherQuality(c) => c.check(&mut inner),
            Step::GopherRepetition(c) => c.check(&mut inner),
            Step::C4(c) => c.check(&mut inner),
            Step::Fineweb(c) => c.check(&mut inner),
            Step::Dclm(c) => c.check(&mut inner),
            Step::Fineweb2(c) => c.check(&mut inner),
            Step::Dolma(c) => c.check(&mut inner),
            Step::Nemo(c) => c.check(&mut inner),
            Step::MassiveText(c) => c.check(&mut inner),
            Step::Openwebtext(c) => c.check(&mut inner),
            Step::Redpajama(c) => c.check(&mut inner),
            Step::BadWords(c) => c.check(&mut inner),
            Step::Lines(c) => c.check(&mut inner),
            Step::Url(c) => c.check(&mut inner),
            Step::Length(c) => c.check(&mut inner),
            Step::Pii(c) => c.check(&mut inner),
            Step::Quality(c) => c.check(&mut inner),
            Step::Perplexity(c) => c.check(&mut inner),
            Step::Dsir(c) => c.check(&mut inner),
            Step::Expression(c) => c.check(&mut inner),
        }
    }

    /// The step's key in a job file.
    pub fn name(&self) -> &'static str {
        match self {
            Step::Extract(_) => "extract",
            Step::Normalize(_) => "normalize",
            Step::Language(_) => "language",
            Step::Code(_) => "code",
            Step::GopherQuality(_) => "gopher_quality",
            Step::GopherRepetition(_) => "gopher_repetition",
            Step::C4(_) => "c4",
            Step::Fineweb(_) => "fineweb",
            Step::Dclm(_) => "dclm",
            Step::Fineweb2(_) => "fineweb2",
            Step::Dolma(_) => "dolma",
            Step::Nemo(_) => "nemo",
            Step::MassiveText(_) => "massive_text",
            Step::Openwebtext(_) => "openwebtext",
            Step::Redpajama(_) => "redpajama",
            Step::BadWords(_) => "bad_words",
            Step::Lines(_) => "lines",
            Step::Url(_) => "url",
            Step::Length(_) => "length",
            Step::Pii(_) => "pii",
            Step::Quality(_) => "quality",
            Step::Perplexity(_) => "perplexity",
            Step::Dsir(_) => "dsir",
            Step::Expression(_) => "expression",
        }
    }
}

impl LanguageConfig {
    /// Reports every contradiction.
    pub fn check(&self, problem: Problem<'_>) {
        range(problem, "min_confidence", self.min_confidence, 0.0, 1.0);
        if self.model != BUILT_IN {
            // a model's labels are known when it is opened
            if self.model.is_empty() {
                let wanted = "\"builtin\" or the path of a fastText model";
                problem("model", "\"\"".to_string(), wanted);
            }
            return;
        }
        for (i, code) in self.keep.iter().enumerate() {
            if !crate::language::is_known(code) {
                problem(
                    &format!("keep[{i}]"),
                    format!("{code:?}"),
                    "a language code the identifier can give, such as \"en\"",
                );
            }
        }
    }
}

impl CodeConfig {
    /// Reports every contradiction.
    pub fn check(&self, problem: Problem<'_>) {
        range(problem, "min_confidence", self.min_confidence, 0.0, 1.0);
        for (i, label) in self.keep.iter().enumerate() {
            if !CODE_LABELS.contains(&label.as_str()) {
                problem(
                    &format!("keep[{i}]"),
                    format!("{label:?}"),
                    &format!("one of {}", CODE_LABELS.join(", ")),
                );
            }
        }
    }
}

impl DedupConfig {
    /// Reports every contradiction.
    pub fn check(&self, problem: Problem<'_>) {
        if let Some(m) = &self.minhash {
            m.check(&mut |k, f, w| problem(&format!("minhash.{k}"), f, w));
            if self.keep == KeepPolicy::Datatrove && m.rows > 8 {
                let wanted = "at most 8 with keep = \"datatrove\"";
                problem("minhash.rows", m.rows.to_string(), wanted);
            }
        }
        self.check_keeper(problem);
        if let Some(lines) = &self.lines {
            lines.check(&mut |k, f, w| problem(&format!("lines.{k}"), f, w));
        }
        if let Some(bloom) = &self.bloom {
            bloom.check(&mut |k, f, w| problem(&format!("bloom.{k}"), f, w));
        }
        if let Some(substring) = &self.substring {
            substring.check(&mut |k, f, w| problem(&format!("substring.{k}"), f, w));
        }
        let documents = self.exact.is_some() || self.minhash.is_some() || self.url.is_some();
        let texts = self.lines.is_some() || self.bloom.is_some() || self.substring.is_some();
        if !documents && !texts {
            problem(
                "exact",
                "none of exact, minhash, url, lines, bloom, substring".to_string(),
                "at least one of them",
            );
        }
        if self.memory_mb < 16 {
            problem("memory_mb", self.memory_mb.to_string(), "at least 16");
        }
    }

    /// What decides who survives: sources, verification, indexes.
    fn check_keeper(&self, problem: Problem<'_>) {
        for (i, name) in self.priority.iter().enumerate() {
            if name.is_empty() || self.priority[..i].contains(name) {
                let wanted = "every source once, as source or source/subset";
                problem(&format!("priority[{i}]"), format!("{name:?}"), wanted);
            }
        }
        let minhash = self.minhash.as_ref();
        if self.index.is_some() && minhash.is_none() && self.exact.is_none() {
            problem(
                "index",
                "neither exact nor minhash".to_string(),
                "one of them",
            );
        }
        if self.keep != KeepPolicy::Datatrove {
            return;
        }
        let other = "keep = \"first\", \"longest\" or \"quality\"";
        if let Some(m) = minhash.filter(|m| m.verify > 0.0) {
            let wanted = format!("0 with keep = \"datatrove\", or {other}");
            problem("minhash.verify", m.verify.to_string(), &wanted);
        }
        if !self.priority.is_empty() {
            problem("priority", format!("{:?}", self.priority), other);
        }
        if let Some(index) = &self.index {
            problem("index", format!("{index:?}"), other);
        }
    }
}

impl DecontaminateConfig {
    /// Words per n-gram.
    pub fn ngram(&self) -> usize {
        let own = match self.profile {
            DecontaminateProfile::Gpt3 | DecontaminateProfile::MtNlg => 13,
            DecontaminateProfile::Datatrove => 12,
            DecontaminateProfile::Decon => 5,
        };
        self.ngram.unwrap_or(own)
    }

    /// True if documents are cut after deduplication, false if they are dropped in the curation pass.
    pub fn cuts(&self) -> bool {
        self.profile == DecontaminateProfile::MtNlg
    }

    /// Reports every contradiction.
    pub fn check(&self, problem: Problem<'_>) {
        if self.files.is_empty() {
            problem("files", "[]".to_string(), "at least one evaluation file");
        }
        range(problem, "ngram", self.ngram() as f64, 2.0, 64.0);
        if self.cuts() {
            let mut inner = |k: &str, f: String, w: &str| problem(&format!("cut.{k}"), f, w);
            self.cut.check(self.ngram(), &mut inner);
        } else if self.cut != CutRules::default() {
            let found = format!("cut with profile {:?}", self.profile);
            problem("cut", found, "none, or profile = \"mt_nlg\"");
        }
        if self.profile == DecontaminateProfile::Decon {
            let mut inner = |k: &str, f: String, w: &str| problem(&format!("sampled.{k}"), f, w);
            self.sampled.check(&mut inner);
        } else if self.sampled != SampledRules::default() {
            let found = format!("sampled with profile {:?}", self.profile);
            problem("sampled", found, "none, or profile = \"decon\"");
        }
        let own_fields = match self.profile {
            DecontaminateProfile::Datatrove => "none; datatrove has label_field and query_field",
            DecontaminateProfile::Decon => "none; decon has sampled.question_field and others",
            _ => return,
        };
        if !self.fields.is_empty() {
            problem("fields", format!("{:?}", self.fields), own_fields);
        }
    }
}
