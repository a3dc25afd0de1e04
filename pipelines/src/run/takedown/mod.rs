//! `takedown`: removes the documents that a list of opt-outs names from finished corpora, and tells which token datasets and
//! checkpoints contain them.
//!
//! A job's folder is changed in one transaction (`transaction.rs`): a kill leaves the old corpus, or the same command
//! finishes the new one. Every takedown leaves a record in `takedown/`; the report is read from these records, so that the
//! command tells the same once more if it is repeated. Datasets and checkpoints are not changed.

mod checkpoints;
mod datasets;
mod record;
mod remove;
mod transaction;

use crate::context::{Context, PENDING};
use crate::job::{self, WrongUse};
use crate::log::print;
use crate::machine::{checksum, grouped, write_atomically};
use crate::manifest::Manifest;
use anyhow::{Context as _, Result, bail};
use checkpoints::{Affected, Contains, Trained};
use curate::takedown::TakedownList;
use index::dataset::Dataset;
use record::Record;
use serde::Serialize;
use std::path::{Path, PathBuf};

/// Arguments of the verb.
#[derive(clap::Args)]
pub(crate) struct TakedownArgs {
    /// File with an opt-out on each line: a URL, host:NAME, domain:NAME (and all hosts below it), id:ID, or the payload's digest
    /// as WARC files have it, such as sha1:DIGEST. Lines that start with # are comments.
    list: PathBuf,
    /// Jobs whose corpora, datasets and checkpoints are searched: job files, or the folders that jobs wrote.
    #[arg(long, required = true, num_args = 1.., value_name = "JOB")]
    corpus: Vec<PathBuf>,
    /// Show what would be removed, and change nothing.
    #[arg(long)]
    dry_run: bool,
    /// Print JSON to stdout.
    #[arg(long)]
    json: bool,
}

/// The report on a job.
#[derive(Debug, Serialize)]
struct Told {
    corpus: PathBuf,
    /// Whether the last takedown is only shown.
    dry_run: bool,
    /// All takedowns of this folder, with the one of this command.
    takedowns: Vec<Record>,
    /// Absent of a dry run, which does not look at them.
    datasets: Option<Vec<ToldDataset>>,
    checkpoints: Option<Vec<Trained>>,
}

/// A dataset that has, or may have, removed documents.
#[derive(Debug, Serialize)]
struct ToldDataset {
    name: String,
    /// Path without `.bin` and `.idx`.
    prefix: PathBuf,
    contains: Contains,
    /// Removed documents that are known to be in it; their numbers are in `takedown/*.jsonl`.
    documents: u64,
    tokens: u64,
    /// Why it is not certain.
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<String>,
}

/// The verb.
pub(crate) fn takedown(args: &TakedownArgs) -> Result<()> {
    let list = TakedownList::read(&args.list);
    let list = list.map_err(|error| WrongUse::new(crate::log::message(&error.into())))?;
    let name = args.list.file_name().unwrap_or_default().to_string_lossy();
    let of_list = record::List {
        name: name.into_owned(),
        xxh3: checksum(&args.list)?,
        entries: list.len() as u64,
    };
    let mut corpora = open(args)?;
    let has_corpus = corpora.iter().any(|cx| remove::has_shards(&cx.out));
    if !has_corpus {
        let message = format!(
            "{}: found no clean shard, wanted a job's folder with clean/00000.*",
            corpora
                .first()
                .map_or(Path::new(""), |cx| &cx.out)
                .display()
        );
        return Err(WrongUse::new(message).into());
    }
    for cx in &mut corpora {
        if args.dry_run && cx.out.join(PENDING).exists() {
            bail!(
                "{}: an earlier takedown has not been finished; run it without --dry-run first",
                cx.out.display()
            );
        }
        if !args.dry_run {
            transaction::finish(&cx.out)?;
            cx.manifest = Manifest::open(&cx.out, None)?;
        }
    }
    // everything is searched before anything is changed
    let lines = list.lines();
    let mut planned = Vec::new();
    for cx in corpora.iter().filter(|cx| remove::has_shards(&cx.out)) {
        let searched = remove::search_all(cx, &list)?;
        let numberings = remove::numberings(cx, &searched)?;
        let record = remove::describe(cx, &searched, &of_list, &numberings, &lines);
        planned.push((cx.out.clone(), searched, numberings, record));
    }
    if args.dry_run {
        let shown: Result<Vec<Told>> = planned
            .into_iter()
            .map(|(out, .., record)| shown_only(out, record))
            .collect();
        let shown = shown?;
        return print(&match args.json {
            true => serde_json::to_string_pretty(&shown)? + "\n",
            false => (shown.iter())
                .filter_map(|of| {
                    of.takedowns
                        .last()
                        .map(|record| in_words(&of.corpus, record))
                })
                .collect(),
        });
    }
    for (out, searched, numberings, record) in planned {
        let cx = corpora.iter_mut().find(|cx| cx.out == out);
        let cx = cx.context("a corpus that was opened is there")?;
        if searched.count() > 0 {
            remove::remove(cx, &list, &searched, record, &numberings)?;
            cx.manifest = Manifest::open(&cx.out, None)?;
        }
    }
    let told = tell(&corpora)?;
    print(&match args.json {
        true => serde_json::to_string_pretty(&told)? + "\n",
        false => told.iter().map(text).collect(),
    })
}

/// The report on a takedown that changes nothing, after those of the folder.
fn shown_only(corpus: PathBuf, record: Record) -> Result<Told> {
    let earlier = record::records(&corpus)?;
    let takedowns = earlier.into_iter().map(|(_, record)| record);
    Ok(Told {
        takedowns: takedowns.chain([record]).collect(),
        corpus,
        dry_run: true,
        datasets: None,
        checkpoints: None,
    })
}

/// The refusal of a job with a store: many objects cannot change in one transaction, as the files of a folder do, and a
/// store has no lock that keeps other machines from reading half of them.
fn in_a_store(url: &str, list: &Path) -> String {
    let url = curate::secrets::without_passwords(url);
    let url = url.trim_end_matches('/');
    let copies = match url.starts_with("s3://") {
        true => [
            format!(" (aws s3 sync {url} FOLDER)"),
            format!(" (aws s3 sync --delete --exclude job.toml FOLDER {url})"),
        ],
        false => [String::new(), String::new()],
    };
    let [there, back] = copies;
    format!(
        "found [store], wanted a job whose files are in its folder alone: while nothing else uses {url}, copy it to an empty \
         folder{there}, remove [store] and [store.options] from FOLDER/job.toml, run `millrace takedown {} --corpus FOLDER`, and copy all but \
         job.toml back, removing from the store what the folder no longer has{back}",
        list.display()
    )
}

/// Opens and locks the jobs' folders.
fn open(args: &TakedownArgs) -> Result<Vec<Context>> {
    let mut corpora: Vec<Context> = Vec::new();
    for path in &args.corpus {
        let job = if path.is_dir() {
            let set = format!("out={:?}", path.display().to_string());
            job::load(&path.join("job.toml"), &[set])?
        } else {
            job::load(path, &[])?
        };
        let wrong = |message: String| WrongUse::new(format!("{}: {message}", path.display()));
        if let Some(store) = &job.store {
            return Err(wrong(in_a_store(&store.url, &args.list)).into());
        }
        let whole = |out: &Path| out.canonicalize().unwrap_or_else(|_| out.to_path_buf());
        let out = whole(&job.out);
        if corpora.iter().any(|cx| whole(&cx.out) == out) {
            return Err(wrong(format!("the folder {} is named twice", out.display())).into());
        }
        if !job.out.is_dir() {
            return Err(wrong(format!("found no folder {}", job.out.display())).into());
        }
        corpora.push(Context::open_to_edit(job)?);
    }
    Ok(corpora)
}

/// Datasets and checkpoints with documents that takedowns have removed; also written to `takedown/report.json`.
fn tell(corpora: &[Context]) -> Result<Vec<Told>> {
    let (mut told, mut affected) = (Vec::new(), Vec::new());
    for cx in corpora {
        let records = record::records(&cx.out)?;
        let mut datasets = Vec::new();
        for dataset in cx.job.datasets() {
            let prefix = super::tokenize::prefix(cx, &dataset.name);
            let index = checkpoints::index_file(&prefix);
            if !index.exists() {
                continue;
            }
            let data = Dataset::open(&prefix)?;
            let identity = index::dataset::fingerprint(&data)?;
            let then: Vec<&record::DatasetThen> = records
                .iter()
                .flat_map(|(_, record)| &record.datasets)
                .filter(|then| then.name == dataset.name && then.identity == identity)
                .collect();
            let why = then.iter().find_map(|then| then.unknown.clone());
            let numbers = record::removed_from(&cx.out, &records, &dataset.name, &identity)?;
            let contains = match (numbers.is_empty(), &why) {
                (false, _) => Contains::Yes,
                (true, Some(_)) => Contains::May,
                (true, None) => continue,
            };
            let mut sequences = Vec::new();
            let mut tokens = 0;
            for number in &numbers {
                let number = usize::try_from(*number)?;
                let range = data.document(number);
                for sequence in range.clone() {
                    tokens += u64::from(data.length(usize::try_from(sequence)?));
                }
                sequences.push(range);
            }
            affected.push(Affected {
                index,
                is_certain: why.is_none(),
                sequences,
            });
            datasets.push(ToldDataset {
                name: dataset.name.clone(),
                prefix,
                contains,
                documents: numbers.len() as u64,
                tokens,
                why,
            });
        }
        told.push(Told {
            corpus: cx.out.clone(),
            dry_run: false,
            takedowns: records.into_iter().map(|(_, record)| record).collect(),
            datasets: Some(datasets),
            checkpoints: None,
        });
    }
    for (cx, told) in corpora.iter().zip(&mut told) {
        told.checkpoints = Some(checkpoints::trained(cx, &affected)?);
        let text = serde_json::to_string_pretty(told)? + "\n";
        let path = cx.out.join(record::FOLDER).join("report.json");
        write_atomically(&path, text.as_bytes())?;
    }
    Ok(told)
}

/// A takedown in words.
fn in_words(out: &Path, record: &Record) -> String {
    let mut text = format!(
        "{}: {} documents and {} dropped ones by {} ({} entries, {} without a document)\n",
        out.display(),
        grouped(record.documents),
        grouped(record.dropped_lines),
        record.list.name,
        grouped(record.list.entries),
        grouped(record.entries_without_documents.len() as u64)
    );
    for shard in &record.shards {
        text += &format!(
            "  shard {:05}: {} of {} documents, {} dropped ones\n",
            shard.shard,
            grouped(shard.removed),
            grouped(shard.documents),
            grouped(shard.dropped_lines)
        );
    }
    if record.duplicates_of_removed > 0 {
        text += &format!(
            "  {} duplicates of removed documents are in clean/ and stay marked as removed until dedup runs again\n",
            grouped(record.duplicates_of_removed)
        );
    }
    text
}

/// The report on a job, in words.
fn text(told: &Told) -> String {
    let mut text = String::new();
    for record in &told.takedowns {
        text += &in_words(&told.corpus, record);
    }
    if told.takedowns.is_empty() {
        text += &format!("{}: nothing was removed\n", told.corpus.display());
    }
    for dataset in told.datasets.iter().flatten() {
        text += &format!(
            "  dataset {}: {} {} removed documents, {} tokens{}\n",
            dataset.prefix.display(),
            verb(dataset.contains),
            grouped(dataset.documents),
            grouped(dataset.tokens),
            because(dataset.why.as_deref())
        );
    }
    for one in told.checkpoints.iter().flatten() {
        let first = match (one.first_step, one.samples) {
            (Some(step), Some(samples)) => {
                format!(", {} samples, the first at step {step}", grouped(samples))
            }
            _ => String::new(),
        };
        text += &format!(
            "  checkpoint {}: {} removed documents{first}{}\n",
            one.path.display(),
            match one.contains {
                Contains::Yes => "was trained on",
                Contains::May => "may have been trained on",
                Contains::No => "was not trained on",
            },
            because(one.why.as_deref())
        );
    }
    text
}

fn verb(contains: Contains) -> &'static str {
    match contains {
        Contains::Yes => "contains",
        Contains::May => "may contain",
        Contains::No => "does not contain",
    }
}

fn because(why: Option<&str>) -> String {
    why.map_or_else(String::new, |why| format!(" ({why})"))
}
