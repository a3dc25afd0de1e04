//! `[tokenize]`: tokenizer, input texts and output datasets.

use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// `[tokenize]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Tokenize {
    /// Source of the tokenizer.
    pub tokenizer: TokenizerTable,
    /// Files to tokenize as they are (`jsonl`, `text`), in a job without `[curate]`; paths as in `curate.inputs`.
    #[serde(
        deserialize_with = "curate::read::inputs",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub inputs: Vec<curate::read::Input>,
    /// Fields of a JSON line that hold text, a string or an array of strings; each makes its own datasets.
    pub json_keys: Vec<String>,
    /// Split documents into sentences. Default: no, a document is one sequence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sentences: Option<Sentences>,
    /// Append the end-of-document id to every document. Default: yes, as GPT datasets expect.
    pub append_eod: bool,
    /// Add the tokens that the tokenizer's post-processor puts around every text (LLaMA's BOS, BERT's `[CLS]` and
    /// `[SEP]`), like Megatron's `include_special_tokens`. Default: with `naming = "megatron"` as in
    /// `preprocess_data.py`, that is yes for `tokenizer_json`, `gpt2` and `wordpiece` (`false` is its
    /// `--tokenizer-hf-no-include-special-tokens`); else no.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub add_special_tokens: Option<bool>,
    /// The name of a special token in a text (`<|endoftext|>`) is text like any other; if not, it becomes that token.
    /// transformers' key. Default: yes, but no with `naming = "megatron"` for the kinds above and tiktoken, as
    /// `preprocess_data.py` does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub split_special_tokens: Option<bool>,
    /// Type of the stored ids. Default: Megatron's choice, 16 bits for fewer than 65 500 entries.
    pub dtype: IdType,
    /// Naming of datasets with several keys or levels.
    pub naming: Naming,
    /// Number of parts that a dataset is tokenized in; finished parts survive a kill. Never changes the output.
    pub tasks: usize,
    /// The job fails when more records than this hold no text (`inputs` only; a curated document always has one).
    pub max_bad_records: u64,
    /// Longer records (bytes, decompressed) are bad (`inputs` only).
    pub max_record_bytes: u64,
    /// Datasets to write; empty means one for each `source` of the inputs.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub dataset: Vec<DatasetTable>,
}

impl Default for Tokenize {
    fn default() -> Self {
        Tokenize {
            tokenizer: TokenizerTable::default(),
            inputs: Vec::new(),
            json_keys: vec!["text".into()],
            sentences: None,
            append_eod: true,
            add_special_tokens: None,
            split_special_tokens: None,
            dtype: IdType::Auto,
            naming: Naming::Plain,
            tasks: 1,
            max_bad_records: 1000,
            max_record_bytes: 256 << 20,
            dataset: Vec::new(),
        }
    }
}

/// `tokenizer = { file = "..." }` or `{ train = { ... } }`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TokenizerTable {
    /// Path of a tokenizer: `tokenizer.json`, `tekken.json`, `vocab.json` with `merges.txt` beside it, `vocab.txt`, a SentencePiece
    /// `.model`, a `.tiktoken`, a folder with one of them, or `null:VOCAB` for texts that are numbers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<PathBuf>,
    /// Settings that the tokenizer file does not contain: kind, lowercase, split, special, eod.
    #[serde(skip_serializing_if = "is_default")]
    pub options: index::tokenizer::LoadOptions,
    /// Train one on the texts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub train: Option<TrainTokenizer>,
}

fn is_default(options: &index::tokenizer::LoadOptions) -> bool {
    *options == index::tokenizer::LoadOptions::default()
}

/// `tokenizer = { train = { ... } }`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TrainTokenizer {
    /// Algorithm: `bpe` (byte-level), `wordpiece` or `unigram`.
    pub kind: index::tokenizer::TrainKind,
    /// Entries, special tokens included.
    pub vocab: usize,
    /// Minimum number of occurrences of a vocabulary entry.
    pub min_frequency: u64,
    /// Text to learn from, in MiB, taken in document order; 0 is all.
    pub max_mb: u64,
    /// Special tokens besides the usual ones of the kind.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub special: Vec<String>,
    /// Fold case first (not for `bpe`).
    pub lowercase: bool,
}

impl Default for TrainTokenizer {
    fn default() -> Self {
        let index::tokenizer::TrainSettings {
            kind,
            vocab,
            min_frequency,
            max_bytes,
            special,
            lowercase,
        } = index::tokenizer::TrainSettings::default();
        TrainTokenizer {
            kind,
            vocab,
            min_frequency,
            max_mb: max_bytes >> 20,
            special,
            lowercase,
        }
    }
}

impl TrainTokenizer {
    /// As the trainer takes it.
    pub(crate) fn settings(&self) -> index::tokenizer::TrainSettings {
        index::tokenizer::TrainSettings {
            kind: self.kind,
            vocab: self.vocab,
            min_frequency: self.min_frequency,
            max_bytes: self.max_mb << 20,
            special: self.special.clone(),
            lowercase: self.lowercase,
        }
    }
}

/// `sentences = { ... }`: one sequence a sentence, as BERT and T5 samples need them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Sentences {
    /// `english`, or a folder of Punkt parameters in NLTK's `punkt_tab` form. `english` has parameters of this program, which
    /// differ from NLTK's: of 22,980 boundaries in English texts 23 fall elsewhere. NLTK's own are not in this program, as
    /// their authors state no licence for redistribution (NLTK's index of data names none; the corpus is
    /// the Wall Street Journal of the Penn Treebank). For the sentences of NLTK and of Megatron's `--split-sentences` give
    /// the folder `tokenizers/punkt_tab/english` of NLTK's data. Default: `english`.
    pub punkt: String,
    /// White space between sentences stays with the sentence before it.
    pub keep_newlines: bool,
}

impl Default for Sentences {
    fn default() -> Self {
        Sentences {
            punkt: "english".into(),
            keep_newlines: false,
        }
    }
}

impl Sentences {
    /// The splitter.
    pub(crate) fn splitter(&self) -> index::Result<index::sentences::Punkt> {
        let punkt = match self.punkt.as_str() {
            "english" => index::sentences::Punkt::english(),
            folder => index::sentences::Punkt::load(folder.as_ref())?,
        };
        Ok(punkt.keep_newlines(self.keep_newlines))
    }
}

/// Types of stored ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IdType {
    /// By the size of the vocabulary.
    Auto,
    /// 16 bits.
    Uint16,
    /// 32 bits.
    Int32,
}

impl IdType {
    /// As the builder takes it.
    pub(crate) fn token_type(self) -> Option<index::dataset::TokenType> {
        match self {
            IdType::Auto => None,
            IdType::Uint16 => Some(index::dataset::TokenType::U16),
            IdType::Int32 => Some(index::dataset::TokenType::I32),
        }
    }
}

/// Names of dataset files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Naming {
    /// `NAME`, or `NAME_KEY` where there are several keys.
    Plain,
    /// `NAME_KEY_document` (`NAME_KEY_sentence` with `sentences`), as Megatron's `preprocess_data.py` names its files.
    Megatron,
}

/// `[[tokenize.dataset]]`: which sources make one dataset.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DatasetTable {
    /// File name under `tokens/`.
    pub name: String,
    /// `source` names of the inputs.
    pub sources: Vec<String>,
    /// Only documents of a curation that meet this condition, such as `meta.domain == "a.org"`; empty: all. Blends weigh the
    /// groups that such datasets make.
    #[serde(rename = "where", skip_serializing_if = "String::is_empty")]
    pub condition: String,
}

/// A dataset to write: one table's sources, one key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct TokenDataset {
    /// File name under `tokens/`, without suffix.
    pub name: String,
    /// `source` names of the inputs; empty means all.
    pub sources: Vec<String>,
    /// Field of the JSON lines.
    pub key: String,
    /// Condition on its documents; empty: none.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub condition: String,
}

impl Tokenize {
    /// Every dataset: tables (or sources) times keys.
    pub(crate) fn datasets(&self, inputs: &[curate::read::Input]) -> Vec<TokenDataset> {
        let mut tables = self.dataset.clone();
        if tables.is_empty() {
            for input in inputs {
                let name = input.source.clone();
                if !tables.iter().any(|t| t.name == name) {
                    let sources = vec![name.clone()];
                    tables.push(DatasetTable {
                        name,
                        sources,
                        condition: String::new(),
                    });
                }
            }
        }
        let level = match self.sentences {
            Some(_) => "sentence",
            None => "document",
        };
        let mut datasets = Vec::new();
        for table in tables {
            let DatasetTable {
                name,
                sources,
                condition,
            } = table;
            for key in &self.json_keys {
                let name = match self.naming {
                    Naming::Plain if self.json_keys.len() == 1 => name.clone(),
                    Naming::Plain => format!("{name}_{key}"),
                    Naming::Megatron => format!("{name}_{key}_{level}"),
                };
                let (sources, key) = (sources.clone(), key.clone());
                datasets.push(TokenDataset {
                    name,
                    sources,
                    key,
                    condition: condition.clone(),
                });
            }
        }
        datasets
    }

    /// Treatment of special tokens by `tokenizer`.
    pub(crate) fn special_tokens(
        &self,
        tokenizer: &index::tokenizer::Tokenizer,
    ) -> index::tokenizer::SpecialTokens {
        let default = match self.naming {
            Naming::Plain => index::tokenizer::SpecialTokens::default(),
            Naming::Megatron => tokenizer.megatrons_special_tokens(),
        };
        index::tokenizer::SpecialTokens {
            add: self.add_special_tokens.unwrap_or(default.add),
            parse: self
                .split_special_tokens
                .map_or(default.parse, |split| !split),
        }
    }

    /// Every contradiction, as (key, found, wanted).
    pub(crate) fn check(
        &self,
        curated: bool,
        inputs: &[curate::read::Input],
        add: &mut dyn FnMut(&str, String, &str),
    ) {
        match (&self.tokenizer.file, &self.tokenizer.train) {
            (Some(_), Some(_)) => {
                add("tokenize.tokenizer", "file and train".into(), "one of them");
            }
            (None, None) => add(
                "tokenize.tokenizer",
                "neither file nor train".into(),
                "one of them",
            ),
            (None, Some(t)) => {
                let check =
                    &mut |k: &str, f, w: &str| add(&format!("tokenize.tokenizer.train.{k}"), f, w);
                t.settings().check(check);
            }
            (Some(_), None) => {}
        }
        match (curated, self.inputs.is_empty()) {
            (true, false) => add(
                "tokenize.inputs",
                format!("{} inputs beside [curate]", self.inputs.len()),
                "inputs in one of the two tables",
            ),
            // a tokenizer alone serves datasets that exist already
            (false, true) if self.tokenizer.file.is_none() || !self.dataset.is_empty() => add(
                "tokenize",
                "[tokenize] without [curate] and without inputs".into(),
                "one of them: where the texts come from",
            ),
            _ => {}
        }
        for (i, input) in self.inputs.iter().enumerate() {
            let key = |field: &str| format!("tokenize.inputs[{i}].{field}");
            if input.path.is_empty() {
                add(&key("path"), "\"\"".into(), "a file or folder");
            }
            if input.is_crawl() {
                let wanted = "an input of [curate]: pages of a crawl are no texts yet";
                add(&key("path"), format!("{:?}", input.path), wanted);
            }
            if input.source.is_empty() || input.source.contains(['/', '\\']) {
                add(
                    &key("source"),
                    format!("{:?}", input.source),
                    "a name without slashes",
                );
            }
            use curate::read::Format::{Arrow, Auto, Dolma, Jsonl, Parquet, Text};
            if !matches!(input.format, Jsonl | Dolma | Parquet | Arrow | Text | Auto) {
                let wanted =
                    "jsonl, dolma, parquet, arrow, text or auto: other formats are for [curate]";
                add(
                    &key("format"),
                    format!("{:?}", input.format).to_lowercase(),
                    wanted,
                );
            }
        }
        if self.json_keys.is_empty() || self.json_keys.iter().any(String::is_empty) {
            add(
                "tokenize.json_keys",
                format!("{:?}", self.json_keys),
                "one or more field names",
            );
        }
        if curated && self.json_keys != ["text"] {
            let wanted = "[\"text\"], the field of curated documents";
            add(
                "tokenize.json_keys",
                format!("{:?}", self.json_keys),
                wanted,
            );
        }
        if self.tasks == 0 || self.tasks > 100_000 {
            add("tokenize.tasks", self.tasks.to_string(), "1 to 100000");
        }
        let sources: Vec<&str> = inputs.iter().map(|i| i.source.as_str()).collect();
        for (i, d) in self.dataset.iter().enumerate() {
            if d.name.is_empty() || d.name.contains(['/', '\\']) {
                let key = format!("tokenize.dataset[{i}].name");
                add(&key, format!("{:?}", d.name), "a file name");
            }
            if !d.condition.is_empty() {
                let key = format!("tokenize.dataset[{i}].where");
                if let Err(wrong) = curate::corpus::CleanCondition::parse(&d.condition) {
                    add(&key, wrong.found, &wrong.wanted);
                }
                if !curated {
                    let found = "a condition in a job without [curate]";
                    add(
                        &key,
                        found.into(),
                        "none: texts that are not curated have no fields",
                    );
                }
            }
            for s in d.sources.iter().filter(|s| !sources.contains(&s.as_str())) {
                let wanted = format!("a source of the inputs: {sources:?}");
                add(
                    &format!("tokenize.dataset[{i}].sources"),
                    format!("{s:?}"),
                    &wanted,
                );
            }
        }
        let mut names: Vec<String> = self.datasets(inputs).into_iter().map(|d| d.name).collect();
        let is_part_of_name = self.json_keys.len() > 1 || self.naming == Naming::Megatron;
        let mut keys = self.json_keys.iter();
        if let Some(key) = keys.find(|key| is_part_of_name && key.contains(['/', '\\'])) {
            let wanted = "names without slashes: they are part of the datasets' names";
            add("tokenize.json_keys", format!("{key:?}"), wanted);
        }
        names.sort();
        if let Some(twice) = names.windows(2).find(|w| w[0] == w[1]) {
            add(
                "tokenize.dataset",
                format!("two datasets named {:?}", twice[0]),
                "different names",
            );
        }
    }
}
