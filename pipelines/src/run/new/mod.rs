//! `new`: a short commented job for somebody's own data, after a look at the data and the machine.

mod inputs;
mod names;
mod sample;
mod text;

use crate::executor;
use crate::job::{LoadError, WrongUse, load};
use crate::log::{print, printable};
use crate::machine::write_atomically;
use anyhow::{Context as _, Result};
use clap::{Args, ValueEnum};
use names::MOST_FIELDS;
use sample::{Sample, sample};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf, absolute};
use text::{MODEL, NewJob, train, tune};

/// Flags of `new`.
#[derive(Args)]
pub(crate) struct NewArgs {
    /// Job to write.
    #[arg(value_enum)]
    kind: NewKind,
    /// Folder to write it in: `job.toml`, and later `run/` with everything that the job writes.
    dir: PathBuf,
    /// Data: a file or folder, or a part of Common Crawl, such as cc:CC-MAIN-2025-05/wet?files=4. Default: the folder `data` in DIR.
    #[arg(long, value_name = "PATH")]
    from: Option<PathBuf>,
    /// Model to fine-tune: a Hugging Face folder, a checkpoint, or the folder of a job that trained one.
    #[arg(long, value_name = "PATH")]
    model: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum NewKind {
    /// Raw data to clean documents.
    Curate,
    /// Texts to a tokenizer and token datasets.
    Tokenize,
    /// Raw data to a small model.
    Pretrain,
    /// A model trained further on one's own texts.
    Finetune,
}

/// The verb.
///
/// # Errors
/// `WrongUse` for a job that exists, or data or a model that are not there.
pub(crate) fn new(args: &NewArgs) -> Result<()> {
    let file = args.dir.join("job.toml");
    if file.exists() {
        let message = format!("{} exists; name another folder", file.display());
        return Err(WrongUse::new(message).into());
    }
    let from = match &args.from {
        Some(path) => path.clone(),
        None => args.dir.join("data"),
    };
    let is_crawl = sample::is_crawl(&from);
    if !from.exists() && !is_crawl {
        let message = format!(
            "{}: no such file or folder; name your data: millrace new {} {} --from PATH",
            from.display(),
            args.kind
                .to_possible_value()
                .map_or(String::new(), |v| v.get_name().to_string()),
            args.dir.display()
        );
        return Err(WrongUse::new(message).into());
    }
    refuse_own_output(&args.dir, &from)?;
    let mut sample = sample(&from)?;
    // what is named by patterns and files must have every file
    if inputs::names_files(&sample) || sample.groups.iter().any(|group| group.is_chat) {
        sample.look_at_rest()?;
    }
    if args.kind != NewKind::Finetune {
        let chats = sample.leave_out_chats();
        refuse_chats_alone(args, &sample, &chats)?;
    }
    let sample = sample;
    let dir = absolute(&args.dir).with_context(|| args.dir.display().to_string())?;
    let source = match is_crawl {
        true => plain_name(&snapshot(&from)),
        false => plain_name(&sample.path),
    };
    let job = NewJob {
        name: &plain_name(&dir),
        out: &dir.join("run"),
        source: &source,
        sample: &sample,
    };
    if !(args.kind == NewKind::Finetune && job.is_chat()) {
        refuse_no_documents(&sample)?;
    }
    let head = |purpose: &str| job.head(&file, purpose);
    let text = match args.kind {
        NewKind::Curate => {
            head("Raw data to clean documents without duplicates.") + &job.curate() + "\n[report]\n"
        }
        NewKind::Tokenize if job.is_plain() => {
            head("Texts to a tokenizer and token datasets.") + &job.tokenize(false, None)
        }
        NewKind::Tokenize => {
            head("Raw data to a tokenizer and token datasets.")
                + &job.curate()
                + &job.tokenize(true, None)
        }
        NewKind::Pretrain => {
            head("Raw data to a small model.")
                + &job.curate()
                + &job.tokenize(true, None)
                + &job.blend()
                + MODEL
                + &train(None, job.has_valid())
        }
        NewKind::Finetune if job.is_chat() => {
            let (model, tokenizer) = model(args)?;
            head("A model fine-tuned on conversations.")
                + &job.finetune(&tokenizer)
                + &tune(&model, job.chat_bytes())
        }
        NewKind::Finetune => {
            let (model, tokenizer) = model(args)?;
            head("A model trained further on own texts.")
                + &job.curate()
                + &job.tokenize(true, Some(&tokenizer))
                + &job.blend()
                + &train(Some(&model), job.has_valid())
        }
    };
    write_atomically(&file, text.as_bytes())?;
    if let Err(e) = check(&file) {
        // a job that cannot run would refuse the next attempt
        std::fs::remove_file(&file).with_context(|| file.display().to_string())?;
        return Err(e);
    }
    let shown = file.display();
    let word = executor::quoted(&file.to_string_lossy());
    let seen: String = text
        .lines()
        .skip(3)
        .take_while(|line| line.starts_with('#'))
        .map(|line| format!("{}\n", line.trim_start_matches(['#', ' '])))
        .collect();
    print(&printable(&format!(
        "{seen}\nwrote {shown}\nnext: millrace run {word}\n"
    )))
}

/// Loads a job and looks for its inputs and weights.
fn check(file: &Path) -> Result<()> {
    let loaded = load(file, &[])?;
    let mut problems = loaded.missing_inputs();
    problems.extend(loaded.missing_files());
    problems.extend(loaded.init_problems());
    match problems.is_empty() {
        true => Ok(()),
        false => Err(LoadError::problems(file.to_path_buf(), problems).into()),
    }
}

/// Refuses a job among its own data: it would read what it writes.
fn refuse_own_output(dir: &Path, from: &Path) -> Result<()> {
    let Ok(from) = from.canonicalize() else {
        return Ok(());
    };
    let dir = absolute(dir).with_context(|| dir.display().to_string())?;
    // the folder need not be there yet, and links may lead to it
    let there = dir.ancestors().find_map(|folder| {
        let real = folder.canonicalize().ok()?;
        Some(real.join(dir.strip_prefix(folder).ok()?))
    });
    if !from.is_dir() || !there.is_some_and(|real| real.starts_with(&from)) {
        return Ok(());
    }
    let message = format!(
        "{}: is in the data {}, and the job would read what it writes; name a folder outside",
        dir.display(),
        from.display()
    );
    Err(WrongUse::new(message).into())
}

/// Refuses data that is conversations, perhaps with files about them. `chats` are the fields of the conversations.
fn refuse_chats_alone(
    args: &NewArgs,
    sample: &Sample,
    chats: &BTreeSet<String>,
) -> Result<(), WrongUse> {
    if chats.is_empty() || sample.groups.iter().any(|group| !group.is_about_data()) {
        return Ok(());
    }
    let fields: Vec<&str> = chats.iter().map(String::as_str).take(MOST_FIELDS).collect();
    Err(WrongUse::new(format!(
        "{}: found conversations (fields: {}), wanted documents with a text; to train a model on their answers, type\n  \
         millrace new finetune {} --from {} --model MODEL",
        sample.path.display(),
        fields.join(", "),
        executor::quoted(&args.dir.to_string_lossy()),
        executor::quoted(&sample.path.to_string_lossy())
    )))
}

/// Refuses data of which no record that was read has a text.
fn refuse_no_documents(sample: &Sample) -> Result<(), WrongUse> {
    if sample.documents > 0 {
        return Ok(());
    }
    let why = sample.why.as_ref();
    let why = why.map_or(String::new(), |why| format!("; the first: {why}"));
    Err(WrongUse::new(format!(
        "{}: of {} records that were read none became a document{why}",
        sample.path.display(),
        sample.records
    )))
}

/// The snapshot in the address of a crawl: `CC-MAIN-2025-05` of `cc:CC-MAIN-2025-05/warc?files=1`.
fn snapshot(address: &Path) -> PathBuf {
    let address = address.to_string_lossy();
    let place = address.split('?').next().unwrap_or_default();
    let place = Path::new(place.strip_prefix("cc:").unwrap_or(place));
    place.parent().unwrap_or(place).to_path_buf()
}

/// The last name of a path, of letters that ids and names of datasets may have.
fn plain_name(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let name = name.split('.').next().unwrap_or_default();
    let plain: String = name
        .chars()
        .map(|c| {
            if c.is_ascii_alphanumeric() || c == '-' || c == '_' {
                c
            } else {
                '-'
            }
        })
        .collect();
    match plain.trim_matches('-') {
        "" => "data".to_string(),
        plain => plain.to_string(),
    }
}

/// The weights to start from, and the tokenizer of the model.
fn model(args: &NewArgs) -> Result<(PathBuf, PathBuf)> {
    let Some(path) = &args.model else {
        let message = format!(
            "a model is missing: millrace new finetune {} --from PATH --model MODEL, a Hugging Face folder or a job's folder",
            args.dir.display()
        );
        return Err(WrongUse::new(message).into());
    };
    let path = absolute(path).with_context(|| path.display().to_string())?;
    let inside = path.join("checkpoints");
    let weights = if inside.is_dir() {
        inside
    } else {
        path.clone()
    };
    // of a job's folder, of a Hugging Face folder, of a checkpoint in a job's folder
    let above = path
        .ancestors()
        .take(3)
        .map(|folder| folder.join("tokens/tokenizer.json"));
    let places: Vec<PathBuf> = std::iter::once(path.join("tokenizer.json"))
        .chain(above)
        .collect();
    match places.iter().find(|place| place.exists()) {
        Some(tokenizer) => Ok((weights, tokenizer.clone())),
        None => {
            let message = format!("{}: no tokenizer.json there or in tokens/", path.display());
            Err(WrongUse::new(message).into())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crawl_is_named_by_its_snapshot() {
        let named = |address: &str| plain_name(&snapshot(Path::new(address)));
        assert_eq!(
            named("cc:CC-MAIN-2025-05/warc?base=/a/b"),
            "CC-MAIN-2025-05"
        );
        assert_eq!(named("cc:CC-NEWS/2025/01/warc"), "01");
        assert_eq!(named("cc:x"), "data");
    }

    #[test]
    fn names_are_those_that_ids_may_have() {
        for (path, name) in [
            ("/a/My Crawl.jsonl.gz", "My-Crawl"),
            ("/a/data", "data"),
            ("/", "data"),
            ("/x/.hidden", "data"),
        ] {
            assert_eq!(plain_name(Path::new(path)), name);
        }
    }
}
