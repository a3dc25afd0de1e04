//! `tokenize --input ...`: token datasets without a job file, with the option names of Megatron-LM's `tools/preprocess_data.py`.
//!
//! The options become a job that runs in the folder `PREFIX.unfinished`; its files are then renamed to their places and the folder
//! is removed. A killed run resumes in that folder.

use super::new_outputs::expect_new_dataset;
use crate::context::{Context, JOB};
use crate::job::{
    DatasetTable, Job, Naming, Sentences, Tokenize, TokenizerTable, WrongUse, or_nearest,
};
use anyhow::{Context as _, Result};
use clap::Args;
use curate::pipeline::look;
use curate::read::{Format, Input, input_files};
use index::tokenizer::{Kind, LoadOptions, Tokenizer};
use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// Arguments of `tokenize`: a job file, or input files and Megatron-LM's options.
#[derive(Args)]
pub(crate) struct TokenizeArgs {
    /// Job file (TOML).
    #[arg(conflicts_with = "input")]
    pub(crate) job: Option<PathBuf>,
    /// Override one key of the job file, e.g. --set tokenize.append_eod=false (repeatable).
    #[arg(long = "set", value_name = "KEY=VALUE", conflicts_with = "input")]
    pub(crate) set: Vec<String>,
    /// Check the job, print it with all defaults filled in, and stop. With --input this is the job that the options make.
    #[arg(long)]
    pub(crate) check: bool,
    #[command(flatten)]
    files: FileArgs,
}

/// Options of `tools/preprocess_data.py`.
#[derive(Args)]
#[command(next_help_heading = "Without a job file, as Megatron-LM's preprocess_data.py")]
struct FileArgs {
    /// Files, folders or patterns to tokenize: JSON lines, dolma, Parquet, Arrow or plain text, compressed or not.
    #[arg(long, num_args = 1.., value_name = "FILE", requires = "output_prefix")]
    input: Vec<String>,
    /// Prefix of the files to write: `PREFIX_KEY_document.bin` and `.idx` for every key. Files that exist are not replaced.
    #[arg(long, value_name = "PREFIX", requires = "input")]
    output_prefix: Option<PathBuf>,
    /// Fields with text; each makes a dataset.
    #[arg(long, num_args = 1.., value_name = "KEY", default_value = "text", requires = "input")]
    json_keys: Vec<String>,
    /// Tokenizer: `tokenizer.json`, `vocab.json`, `vocab.txt`, a SentencePiece `.model`, a `.tiktoken`, a folder, or `null:VOCAB`.
    #[arg(long, value_name = "PATH", requires = "input",
        conflicts_with_all = ["tokenizer_type", "tokenizer_model", "vocab_file", "merge_file", "vocab_size"])]
    tokenizer: Option<PathBuf>,
    /// Class of the tokenizer, as Megatron-LM names it.
    #[arg(long, value_name = "TYPE", requires = "input")]
    tokenizer_type: Option<String>,
    /// File or folder of a HuggingFaceTokenizer, TikTokenizer or SentencePiece tokenizer.
    #[arg(long, value_name = "PATH", requires = "tokenizer_type")]
    tokenizer_model: Option<PathBuf>,
    /// Vocabulary of a BERT or GPT-2 tokenizer.
    #[arg(long, value_name = "FILE", requires = "tokenizer_type")]
    vocab_file: Option<PathBuf>,
    /// Merges of a GPT-2 tokenizer. Default: `merges.txt` beside the vocabulary.
    #[arg(long, value_name = "FILE", requires = "vocab_file")]
    merge_file: Option<PathBuf>,
    /// Entries of a NullTokenizer.
    #[arg(long, value_name = "N", requires = "tokenizer_type")]
    vocab_size: Option<u32>,
    /// Append the end-of-document token to every document.
    #[arg(long, requires = "input")]
    append_eod: bool,
    /// Split documents into sentences: files are named `PREFIX_KEY_sentence`.
    #[arg(long, requires = "input")]
    split_sentences: bool,
    /// White space between sentences stays with the sentence before it.
    #[arg(long, requires = "split_sentences")]
    keep_newlines: bool,
    /// Folder of Punkt parameters in NLTK's `punkt_tab` form, for its sentences. Default: parameters of this program for English.
    #[arg(long, value_name = "DIR", requires = "split_sentences")]
    punkt: Option<PathBuf>,
    /// Language of the sentences: english; others by --punkt.
    #[arg(long, default_value = "english", requires = "split_sentences")]
    lang: String,
    /// Threads; never changes the files. Default: one per core.
    #[arg(long, value_name = "N", default_value_t = 0, requires = "input")]
    workers: usize,
    /// Parts in which a dataset is made; finished parts survive a kill. Never changes the files.
    #[arg(long, value_name = "N", default_value_t = 1, requires = "input")]
    partitions: usize,
    /// Accepted for scripts of Megatron-LM; progress is printed by time, not by documents.
    #[arg(long, value_name = "N", default_value_t = 1000, requires = "input")]
    log_interval: u64,
    /// Fail when more records than this hold no text.
    #[arg(long, value_name = "N", default_value_t = 1000, requires = "input")]
    max_bad_records: u64,
}

/// Files whose first records are searched for the fields.
const LOOKED_AT: usize = 20;
/// Fields that are listed in a message.
const MOST_FIELDS: usize = 12;

/// Source that all inputs have, as one dataset is made of them.
const SOURCE: &str = "input";

/// Classes of Megatron-LM's tokenizers that are read.
const TYPES: [&str; 8] = [
    "BertWordPieceLowerCase",
    "BertWordPieceCase",
    "GPT2BPETokenizer",
    "HuggingFaceTokenizer",
    "SentencePieceTokenizer",
    "Llama2Tokenizer",
    "TikTokenizer",
    "NullTokenizer",
];

/// Makes the datasets that the options ask for.
///
/// # Errors
/// `WrongUse` for options that contradict each other or name nothing that can be read, and for a dataset that is there; errors of
/// the files.
pub(crate) fn tokenize_files(args: &TokenizeArgs) -> Result<()> {
    if args.files.input.is_empty() {
        let message = "tokenize: found neither a job file nor --input, wanted `millrace tokenize JOB` or \
            `millrace tokenize --input FILE... --tokenizer PATH --output-prefix PREFIX`";
        return Err(WrongUse::new(message).into());
    }
    let prefix = args.files.output_prefix.as_ref();
    // the parser asks for it beside --input
    let prefix = prefix.context("--output-prefix is missing")?;
    let place = Place::of(prefix)?;
    let job = args.files.job(&place)?;
    if args.check {
        return crate::log::print(&job.to_toml());
    }
    let table = job.tokenize.as_ref().map(|t| &t.tokenizer);
    if let Some((Some(file), options)) = table.map(|t| (&t.file, &t.options)) {
        // before anything is written
        let pair = args.files.pair(&place);
        let file = pair.as_ref().map_or(file, |pair| &pair.vocab);
        if pair.is_none() {
            Tokenizer::load_with(file, options).map_err(|e| WrongUse::new(e.to_string()))?;
        }
    }
    place.expect_new(&job)?;
    if let Some(absence) = args.files.absent_key(&job) {
        log!("tokenize: note: {absence}");
    }
    if let Some(pair) = args.files.pair(&place) {
        pair.copy()?;
    }
    let cx = Context::open(job)?;
    super::tokenize(&cx)?;
    place.publish(&cx)
}

/// Where the files go, and where they are made.
struct Place {
    folder: PathBuf,
    name: String,
    work: PathBuf,
}

impl Place {
    fn of(prefix: &Path) -> Result<Place, WrongUse> {
        let name = prefix.file_name().map(|n| n.to_string_lossy().into_owned());
        let ends = prefix.as_os_str().to_string_lossy().ends_with('/');
        match name {
            Some(name) if !ends => Ok(Place {
                folder: prefix.with_file_name(""),
                work: prefix.with_file_name(format!("{name}.unfinished")),
                name,
            }),
            _ => Err(WrongUse::new(format!(
                "--output-prefix {}: found a folder, wanted a folder and the beginning of a file name, such as {}",
                prefix.display(),
                prefix.join("corpus").display()
            ))),
        }
    }

    /// Checks that the datasets are new, unless a run of the same job was killed while it gave them their names.
    fn expect_new(&self, job: &Job) -> Result<(), WrongUse> {
        let of_killed = fs::read_to_string(self.work.join(JOB));
        if of_killed.is_ok_and(|killed| killed == job.to_toml()) {
            return Ok(());
        }
        job.datasets().iter().try_for_each(|dataset| {
            expect_new_dataset("--output-prefix", &self.folder.join(&dataset.name))
        })
    }

    /// Renames the finished files to their places and removes the folder.
    ///
    /// The old `.idx` goes first and the new one comes last, so that no reader sees an index beside tokens of another run.
    fn publish(&self, cx: &Context) -> Result<()> {
        let rename = |from: &Path, to: &Path| {
            let message = || format!("cannot rename {} to {}", from.display(), to.display());
            fs::rename(from, to).with_context(message)
        };
        for dataset in cx.job.datasets() {
            let made = |suffix: &str| {
                cx.out
                    .join("tokens")
                    .join(format!("{}{suffix}", dataset.name))
            };
            let place = |suffix: &str| self.folder.join(format!("{}{suffix}", dataset.name));
            remove_if_there(&place(".idx"))?;
            for suffix in [".bin", ".json", ".idx"] {
                rename(&made(suffix), &place(suffix))?;
            }
            log!("wrote {} and .idx", place(".bin").display());
        }
        let errors = self.folder.join(format!("{}.errors.jsonl", self.name));
        let found = cx.out.join("errors.jsonl");
        match fs::metadata(&found).map(|m| m.len()) {
            Ok(0) | Err(_) => remove_if_there(&errors)?,
            Ok(_) => {
                rename(&found, &errors)?;
                log!("bad records are listed in {}", errors.display());
            }
        }
        self.remove_work()
            .with_context(|| format!("cannot remove {}", self.work.display()))
    }

    /// Removes the folder of the work, its job last: by that a run knows what a killed one has left (`expect_new`).
    fn remove_work(&self) -> std::io::Result<()> {
        for entry in fs::read_dir(&self.work)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                fs::remove_dir_all(entry.path())?;
            } else if entry.file_name() != JOB {
                fs::remove_file(entry.path())?;
            }
        }
        fs::remove_dir_all(&self.work)
    }
}

fn remove_if_there(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Err(e) if e.kind() != ErrorKind::NotFound => {
            Err(e).with_context(|| format!("cannot remove {}", path.display()))
        }
        Ok(()) | Err(_) => Ok(()),
    }
}

/// A vocabulary and merges that are not side by side under the names that the loader expects.
struct Pair {
    vocab: PathBuf,
    merges: PathBuf,
    /// Folder of the copies.
    folder: PathBuf,
}

impl Pair {
    fn copy(&self) -> Result<()> {
        fs::create_dir_all(&self.folder)
            .with_context(|| format!("cannot create {}", self.folder.display()))?;
        for (from, name) in [(&self.vocab, "vocab.json"), (&self.merges, "merges.txt")] {
            let bytes = fs::read(from)
                .map_err(|e| WrongUse::new(format!("cannot read {}: {e}", from.display())))?;
            crate::machine::write_atomically(&self.folder.join(name), &bytes)?;
        }
        Ok(())
    }
}

impl FileArgs {
    fn pair(&self, place: &Place) -> Option<Pair> {
        let (vocab, merges) = (self.vocab_file.clone()?, self.merge_file.clone()?);
        let folder = place.work.join("tokenizer");
        Some(Pair {
            vocab,
            merges,
            folder,
        })
    }

    /// The job that these options ask for.
    fn job(&self, place: &Place) -> Result<Job> {
        if self.partitions == 0 || self.partitions > 100_000 {
            let message = format!(
                "--partitions {}: wanted 1 to 100000; --workers sets the threads",
                self.partitions
            );
            return Err(WrongUse::new(message).into());
        }
        if self.workers > 4096 {
            let message = format!("--workers {}: wanted 0 to 4096", self.workers);
            return Err(WrongUse::new(message).into());
        }
        self.expect_distinct_keys()?;
        let sentences = match (self.split_sentences, &self.punkt, self.lang.as_str()) {
            (false, _, _) => None,
            (true, Some(folder), _) => Some(folder.to_string_lossy().into_owned()),
            (true, None, "english") => Some("english".to_string()),
            (true, None, other) => {
                let message = format!(
                    "--lang {other}: sentences of english are built in; for others give --punkt DIR, the folder \
                     tokenizers/punkt_tab/{other} of NLTK's data"
                );
                return Err(WrongUse::new(message).into());
            }
        };
        let table = Tokenize {
            tokenizer: self.tokenizer(place)?,
            inputs: self.inputs()?,
            json_keys: self.json_keys.clone(),
            sentences: sentences.map(|punkt| Sentences {
                punkt,
                keep_newlines: self.keep_newlines,
            }),
            append_eod: self.append_eod,
            naming: Naming::Megatron,
            tasks: self.partitions,
            max_bad_records: self.max_bad_records,
            dataset: vec![DatasetTable {
                name: place.name.clone(),
                sources: vec![SOURCE.to_string()],
                condition: String::new(),
            }],
            ..Tokenize::default()
        };
        Ok(Job {
            name: place.name.clone(),
            out: place.work.clone(),
            threads: self.workers,
            tokenize: Some(table),
            ..Job::default()
        })
    }

    /// Each key is part of the name of a dataset.
    fn expect_distinct_keys(&self) -> Result<(), WrongUse> {
        let keys = &self.json_keys;
        for (at, key) in keys.iter().enumerate() {
            let wanted = match key.as_str() {
                "" => "the name of a field",
                key if key.contains(['/', '\\']) => {
                    "a name without slashes: it is part of a file's name"
                }
                key if keys[..at].iter().any(|before| before == key) => {
                    "each key once: it names a dataset"
                }
                _ => continue,
            };
            let message = format!("--json-keys: found {key:?}, wanted {wanted}");
            return Err(WrongUse::new(message));
        }
        Ok(())
    }

    /// A sentence about a key that the first records of the files lack. Later records may have it, so the run decides: it fails
    /// if no record does. A file whose records cannot be read yet says nothing.
    fn absent_key(&self, job: &Job) -> Option<String> {
        let inputs = job.tokenize.iter().flat_map(|table| &table.inputs);
        let mut seen: BTreeSet<String> = BTreeSet::new();
        for input in inputs.take(LOOKED_AT) {
            // the run reports files that cannot be read
            let found = look(Path::new(&input.path)).ok()?;
            if input.format == Format::Text || found.bad > 0 {
                return None;
            }
            seen.extend(found.fields.into_iter().map(|field| field.name));
        }
        let is_absent = |key: &&String| !seen.contains(*key);
        let key = self.json_keys.iter().find(is_absent)?;
        if seen.is_empty() {
            return None;
        }
        let top: Vec<&str> = seen
            .iter()
            .map(String::as_str)
            .filter(|name| !name.contains('.'))
            .collect();
        let more = if top.len() > MOST_FIELDS { ", ..." } else { "" };
        let shown = top[..top.len().min(MOST_FIELDS)].join(", ");
        Some(format!(
            "--json-keys: the first records have no field {key:?}; they have {shown}{more}{}",
            or_nearest(key, top.iter().copied())
        ))
    }

    /// Every file with its format by its first bytes.
    fn inputs(&self) -> Result<Vec<Input>> {
        let mut found = Vec::new();
        for path in &self.input {
            let asked = Input {
                path: path.clone(),
                format: Format::Auto,
                source: SOURCE.to_string(),
                ..Input::default()
            };
            let files = input_files(std::slice::from_ref(&asked))
                .map_err(|e| WrongUse::new(e.to_string()))?;
            if files.is_empty() {
                let message = format!("{path}: no file; --input wants one or more");
                return Err(WrongUse::new(message).into());
            }
            for file in files {
                let format = match file.input.format {
                    Format::Auto if file.bytes == 0 => Format::Jsonl,
                    format => format,
                };
                use Format::{Arrow, Dolma, Jsonl, Parquet, Text};
                if !matches!(format, Jsonl | Dolma | Parquet | Arrow | Text) {
                    let kind = match format {
                        Format::Auto => "a file of no known format".to_string(),
                        format => format!("{format:?}").to_lowercase(),
                    };
                    let message = format!(
                        "{}: found {kind}, wanted jsonl, dolma, parquet, arrow or text; to extract texts first, type\n  \
                         millrace new tokenize DIR --from {path}",
                        file.path.display()
                    );
                    return Err(WrongUse::new(message).into());
                }
                found.push(Input {
                    path: file.path.to_string_lossy().into_owned(),
                    format,
                    ..asked.clone()
                });
            }
        }
        Ok(found)
    }

    fn tokenizer(&self, place: &Place) -> Result<TokenizerTable, WrongUse> {
        let file = |path: &Path, kind: Option<Kind>, lowercase: Option<bool>| TokenizerTable {
            file: Some(path.to_path_buf()),
            options: LoadOptions {
                kind,
                lowercase,
                ..LoadOptions::default()
            },
            train: None,
        };
        if let Some(path) = &self.tokenizer {
            return Ok(file(path, None, None));
        }
        let Some(name) = &self.tokenizer_type else {
            let message =
                "no tokenizer; wanted --tokenizer PATH, or --tokenizer-type TYPE with its files";
            return Err(WrongUse::new(message));
        };
        let needs = |path: &Option<PathBuf>, option: &str| {
            let message = || WrongUse::new(format!("--tokenizer-type {name} needs {option}"));
            path.clone().ok_or_else(message)
        };
        let vocab = || needs(&self.vocab_file, "--vocab-file FILE");
        let model = || needs(&self.tokenizer_model, "--tokenizer-model PATH");
        Ok(match name.as_str() {
            "BertWordPieceLowerCase" => file(&vocab()?, Some(Kind::WordPiece), Some(true)),
            "BertWordPieceCase" => file(&vocab()?, Some(Kind::WordPiece), Some(false)),
            "GPT2BPETokenizer" => match self.pair(place) {
                Some(pair) => file(&pair.folder.join("vocab.json"), Some(Kind::Gpt2), None),
                None => file(&vocab()?, Some(Kind::Gpt2), None),
            },
            "HuggingFaceTokenizer" | "TikTokenizer" => file(&model()?, None, None),
            "SentencePieceTokenizer" | "Llama2Tokenizer" => {
                file(&model()?, Some(Kind::SentencePiece), None)
            }
            "NullTokenizer" => match self.vocab_size {
                Some(entries) => file(Path::new(&format!("null:{entries}")), None, None),
                None => {
                    let message = "--tokenizer-type NullTokenizer needs --vocab-size N";
                    return Err(WrongUse::new(message));
                }
            },
            other => {
                return Err(WrongUse::new(format!(
                    "--tokenizer-type {other}: wanted one of {}{}; or give --tokenizer PATH alone",
                    TYPES.join(", "),
                    or_nearest(other, TYPES)
                )));
            }
        })
    }
}
