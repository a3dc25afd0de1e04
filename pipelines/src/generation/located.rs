//! Where a model is: a job's newest checkpoint with the job's tokenizer and devices, a job's folder, a checkpoint or a folder of checkpoints,
//! a Hugging Face folder, or a GGUF file, which has its tokenizer within.

use super::trained_tokenizer::{check_beside, check_kept};
use crate::context::Context;
use crate::{devices, job};
use anyhow::{Context as _, Result, bail};
use index::tokenizer::Tokenizer;
use serde_json::Value;
use std::path::{Path, PathBuf};
use train::dist::Devices;

/// Names of a tokenizer's file, in order of preference.
const TOKENIZERS: [&str; 5] = [
    "tokenizer.json",
    "tokens/tokenizer.json",
    "tokenizer.model",
    "tekken.json",
    "vocab.json",
];

/// Paths that have a model.
const WANTED: &str = ", wanted a job file (.toml), a job's folder, a checkpoint, a folder of checkpoints, a Hugging Face folder or a GGUF file";

/// A model that a verb works with.
pub(crate) struct Located {
    /// The job's name, or the last part of the path.
    pub(crate) name: String,
    /// Checkpoint, folder of checkpoints, Hugging Face folder, or GGUF file.
    pub(crate) path: PathBuf,
    pub(crate) tokenizer: Tokenizer,
    /// The rest of the tokenizer of a GGUF file; for others it is beside the tokenizer's file.
    pub(crate) within: Option<Within>,
    pub(crate) devices: Devices,
}

/// Facts about a tokenizer that is in a file with its model.
pub(crate) struct Within {
    /// Contents of `tokenizer_config.json`.
    pub(crate) config: Value,
    /// Token that ends a turn, where it is not the one that ends a text.
    pub(crate) end_of_turn: Option<u32>,
}

impl Located {
    /// The model at `path`. `set`: overrides of keys, if the path is a job's. `tokenizer`: a file to use instead of the
    /// job's tokenizer, the one within a GGUF file, or the one in or above the folder. `verb` is named on stderr with checkpoints that are damaged.
    ///
    /// # Errors
    /// A job that is wrong or has no checkpoint, overrides without a job, no tokenizer.
    pub(crate) fn find(
        path: &Path,
        set: &[String],
        tokenizer: Option<&Path>,
        verb: &str,
    ) -> Result<Located> {
        let given = tokenizer.map(Tokenizer::load).transpose()?;
        if path.is_file() && path.extension().is_some_and(|ending| ending == "toml") {
            let job = job::load(path, set)?;
            if job.has_adapters() {
                let parts = job.of_adapters();
                let parts = parts.iter().map(|part| part.out.join("job.toml"));
                let parts: Vec<String> = parts.map(|part| part.display().to_string()).collect();
                bail!(
                    "{}: found several adapters, want the job of one: {}",
                    path.display(),
                    parts.join(", ")
                );
            }
            let cx = Context::open_to_read(job)?;
            let tokenizer = match given {
                Some(tokenizer) => tokenizer,
                None => {
                    check_kept(&cx.manifest, &cx.out)?;
                    tokenizer_of(&cx)?
                }
            };
            return Ok(Located {
                name: cx.job.name.clone(),
                within: None,
                path: newest_checkpoint(&cx.out, verb)?,
                tokenizer,
                devices: devices::of(&cx.job),
            });
        }
        if !set.is_empty() {
            bail!("--set: found the folder {}, want a job", path.display());
        }
        if !path.exists() {
            bail!(
                "{}: there is no such file or folder{WANTED}",
                path.display()
            );
        }
        let path = checkpoints_in(path);
        let found = Located::of_model(&path, given)?;
        found.map_or_else(|| no_tokenizer(&path), Ok)
    }

    /// The model at `path`, which is no job's, with the `given` tokenizer or its own; None if it has none.
    ///
    /// # Errors
    /// A path or tokenizer that cannot be read.
    pub(crate) fn of_model(path: &Path, given: Option<Tokenizer>) -> Result<Option<Located>> {
        let whole = path.canonicalize();
        let whole = whole.with_context(|| path.display().to_string())?;
        let name = whole.file_name().map(|name| name.to_string_lossy());
        let found = match given {
            Some(tokenizer) => Some((tokenizer, None)),
            None => match tokenizer_within(&whole)? {
                Some((tokenizer, within)) => Some((tokenizer, Some(within))),
                None => tokenizer_beside(&whole)?.map(|tokenizer| (tokenizer, None)),
            },
        };
        Ok(found.map(|(tokenizer, within)| Located {
            name: name.unwrap_or_else(|| "model".into()).into_owned(),
            tokenizer,
            within,
            path: path.to_path_buf(),
            devices: Devices::Cpu,
        }))
    }
}

/// The folder of checkpoints of a job's folder; any other path as it is.
pub(crate) fn checkpoints_in(path: &Path) -> PathBuf {
    let checkpoints = path.join("checkpoints");
    match path.join("job.toml").is_file() && checkpoints.is_dir() {
        true => checkpoints,
        false => path.to_path_buf(),
    }
}

/// Whether there is a model of any form, damaged or not.
fn is_model(path: &Path) -> bool {
    let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
    let mut names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    path.is_file()
        || names.any(|name| {
            name.starts_with("step-")
                || ["state.json", "config.json", "adapter_config.json"].contains(&name.as_str())
        })
}

/// The file of the tokenizer in or above a folder, if there is one.
fn tokenizer_file(path: &Path) -> Option<PathBuf> {
    let mut all = path.ancestors().take(4);
    all.find_map(|folder| {
        let found = TOKENIZERS.map(|name| folder.join(name));
        found.into_iter().find(|file| file.is_file())
    })
}

/// The tokenizer of a GGUF file, if `path` is one that has one.
fn tokenizer_within(path: &Path) -> Result<Option<(Tokenizer, Within)>> {
    if !train::checkpoint::is_gguf(path) {
        return Ok(None);
    }
    let named = || {
        format!(
            "the tokenizer of {}; --tokenizer FILE names another",
            path.display()
        )
    };
    let found = match train::checkpoint::gguf_tokenizer(path) {
        Ok(Some(found)) => found,
        Ok(None) => return Ok(None),
        // the file itself, whatever tokenizer it has
        Err(error @ (train::Error::Damaged { .. } | train::Error::Io { .. })) => {
            return Err(error.into());
        }
        // of a kind that is not read
        Err(error) => match tokenizer_file(path) {
            Some(beside) => {
                log!("{error}; {} is used", beside.display());
                return Ok(None);
            }
            None => return Err(error).with_context(named),
        },
    };
    let tokenizer = Tokenizer::from_json_with(path, found.tokenizer, &found.config);
    let tokenizer = tokenizer.with_context(named)?;
    let within = Within {
        config: found.config,
        end_of_turn: found.end_of_turn,
    };
    Ok(Some((tokenizer, within)))
}

/// The tokenizer in a model's folder, or above it where a job keeps its own; that of an adapter's base model where the adapter has none.
fn tokenizer_beside(path: &Path) -> Result<Option<Tokenizer>> {
    if let Some(own) = own_tokenizer(path)? {
        return Ok(Some(own));
    }
    for base in train::checkpoint::adapter_bases(path)? {
        if let Some(found) = own_tokenizer(&base)? {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

/// The tokenizer in a folder, or above it where a job keeps its own.
fn own_tokenizer(path: &Path) -> Result<Option<Tokenizer>> {
    let Some(found) = tokenizer_file(path) else {
        return Ok(None);
    };
    check_beside(path)?;
    let tokenizer = Tokenizer::load(&found);
    let tokenizer = tokenizer.with_context(|| format!("the tokenizer of {}", path.display()));
    tokenizer.map(Some)
}

fn no_tokenizer(path: &Path) -> Result<Located> {
    if !is_model(path) {
        bail!("{}: found no model{WANTED}", path.display());
    }
    bail!(
        "found no tokenizer.json in or above {}; --tokenizer FILE names one",
        path.display()
    )
}

/// The checkpoint that training would resume from: the newest verified one (`train::checkpoint::newest_checkpoint`). Damaged
/// newer ones are named on stderr for `verb`.
pub(crate) fn newest_checkpoint(out: &Path, verb: &str) -> Result<PathBuf> {
    let folder = out.join("checkpoints");
    let newest = train::checkpoint::newest_checkpoint(&folder)?.with_context(|| {
        format!(
            "no checkpoint in {}; run `millrace train` first",
            folder.display()
        )
    })?;
    for skipped in &newest.skipped {
        log!("{verb}: {skipped}");
    }
    Ok(newest.path)
}

/// Path of the job's tokenizer once the stage has run.
pub(crate) fn tokenizer_path(cx: &Context) -> PathBuf {
    cx.out.join("tokens/tokenizer.json")
}

/// The job's tokenizer: its own copy, or the file it names while `tokenize` has not run.
pub(crate) fn tokenizer_of(cx: &Context) -> Result<Tokenizer> {
    known_tokenizer_of(cx)?
        .context("no tokenizer: run `millrace tokenize` or give tokenize.tokenizer.file")
}

/// The same; `None` for a job that trains on datasets of tokens alone.
pub(crate) fn known_tokenizer_of(cx: &Context) -> Result<Option<Tokenizer>> {
    let own = tokenizer_path(cx);
    let named = cx
        .job
        .tokenize
        .as_ref()
        .and_then(|t| t.tokenizer.file.as_ref());
    match named {
        _ if own.exists() => Ok(Some(Tokenizer::load(&own)?)),
        Some(_) => named_tokenizer(cx).map(Some),
        None => Ok(None),
    }
}

/// The tokenizer of `tokenize.tokenizer.file`.
pub(crate) fn named_tokenizer(cx: &Context) -> Result<Tokenizer> {
    let table = cx.job.tokenize.as_ref().map(|t| &t.tokenizer);
    let Some((Some(path), options)) = table.map(|t| (&t.file, &t.options)) else {
        bail!("tokenize.tokenizer names no file")
    };
    Ok(Tokenizer::load_with(path, options)?)
}
