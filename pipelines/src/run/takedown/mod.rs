//! `takedown`: removes the documents that a list of opt-outs names from finished corpora, and tells which token datasets and
//! checkpoints contain them.
//!
//! A job's folder is changed in one transaction (`transaction.rs`): a kill leaves the old corpus, or the same command
//! finishes the new one. Every takedown leaves a record in `takedown/`; the report is read from these records, so that the
//! command tells the same once more if it is repeated. Datasets and checkpoints are not changed. Of a job with `[store]` the
//! store's folder is copied, changed and put back (`in_store.rs`).

mod checkpoints;
mod datasets;
mod in_store;
mod record;
mod remove;
mod store_transaction;
mod transaction;

use crate::job::{self, WrongUse};
use crate::log::print;
use crate::machine::{checksum, grouped, write_atomically};
use crate::manifest::Manifest;
use anyhow::Result;
use checkpoints::{Affected, Contains, Trained};
use curate::takedown::TakedownList;
use in_store::Corpus;
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

/// A corpus that has been searched, of which nothing has been changed.
struct Planned {
    searched: remove::Searched,
    numberings: Vec<datasets::Numbering>,
    record: Record,
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
    let has_shards = corpora.iter().map(Corpus::has_shards);
    let has_shards = has_shards.collect::<Result<Vec<bool>>>()?;
    if !has_shards.contains(&true) {
        let message = format!(
            "{}: found no clean shard, wanted a job's folder with clean/00000.*",
            corpora
                .first()
                .map_or(Path::new(""), Corpus::home)
                .display()
        );
        return Err(WrongUse::new(message).into());
    }
    for corpus in &mut corpora {
        corpus.prepare(args.dry_run)?;
    }
    // everything is searched before anything is changed
    let lines = list.lines();
    let mut planned = Vec::new();
    for (corpus, has_shards) in corpora.iter().zip(has_shards) {
        if !has_shards {
            planned.push(None);
            continue;
        }
        let (cx, place) = (&corpus.cx, corpus.home());
        let searched = remove::search_all(cx, place, &list)?;
        let numberings = remove::numberings(cx, &searched)?;
        let record = remove::describe(place, &searched, &of_list, &numberings, &lines);
        planned.push(Some(Planned {
            searched,
            numberings,
            record,
        }));
    }
    if args.dry_run {
        let planned = corpora.iter().zip(planned);
        let shown: Result<Vec<Told>> = planned
            .filter_map(|(corpus, planned)| Some(shown_only(corpus, planned?.record)))
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
    for (corpus, planned) in corpora.iter_mut().zip(planned) {
        let Some(planned) = planned.filter(|planned| planned.searched.count() > 0) else {
            continue;
        };
        let Planned {
            searched,
            numberings,
            record,
        } = planned;
        let cx = &mut corpus.cx;
        let changes = remove::remove(cx, &list, &searched, record, &numberings)?;
        cx.manifest = Manifest::open(&cx.out, None)?;
        corpus.changed(changes);
    }
    let told = tell(&corpora)?;
    for corpus in &mut corpora {
        corpus.publish()?;
    }
    print(&match args.json {
        true => serde_json::to_string_pretty(&told)? + "\n",
        false => told.iter().map(text).collect(),
    })
}

/// The report on a takedown that changes nothing, after those of the folder.
fn shown_only(corpus: &Corpus, record: Record) -> Result<Told> {
    let earlier = record::records(&corpus.cx.out)?;
    let takedowns = earlier.into_iter().map(|(_, record)| record);
    Ok(Told {
        takedowns: takedowns.chain([record]).collect(),
        corpus: corpus.home().to_path_buf(),
        dry_run: true,
        datasets: None,
        checkpoints: None,
    })
}

/// Opens and locks the jobs' folders.
fn open(args: &TakedownArgs) -> Result<Vec<Corpus>> {
    let mut corpora: Vec<Corpus> = Vec::new();
    let mut stores = Vec::new();
    for path in &args.corpus {
        let job = if path.is_dir() {
            let set = format!("out={:?}", path.display().to_string());
            job::load(&path.join("job.toml"), &[set])?
        } else {
            job::load(path, &[])?
        };
        let wrong = |message: String| WrongUse::new(format!("{}: {message}", path.display()));
        if let Some(store) = &job.store {
            let url = store.url.trim_end_matches('/').to_string();
            if stores.contains(&url) {
                let url = curate::secrets::without_passwords(&url);
                return Err(wrong(format!("the store {url} is named twice")).into());
            }
            stores.push(url);
        }
        let whole = |out: &Path| out.canonicalize().unwrap_or_else(|_| out.to_path_buf());
        let out = whole(&job.out);
        if corpora.iter().any(|corpus| whole(corpus.home()) == out) {
            return Err(wrong(format!("the folder {} is named twice", out.display())).into());
        }
        if job.store.is_none() && !job.out.is_dir() {
            return Err(wrong(format!("found no folder {}", job.out.display())).into());
        }
        corpora.push(Corpus::open(job)?);
    }
    Ok(corpora)
}

/// Datasets and checkpoints with documents that takedowns have removed; also written to `takedown/report.json`.
fn tell(corpora: &[Corpus]) -> Result<Vec<Told>> {
    let (mut told, mut affected) = (Vec::new(), Vec::new());
    for corpus in corpora {
        let cx = &corpus.cx;
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
                prefix: corpus.shown(&prefix),
                contains,
                documents: numbers.len() as u64,
                tokens,
                why,
            });
        }
        told.push(Told {
            corpus: corpus.home().to_path_buf(),
            dry_run: false,
            takedowns: records.into_iter().map(|(_, record)| record).collect(),
            datasets: Some(datasets),
            checkpoints: None,
        });
    }
    for (corpus, told) in corpora.iter().zip(&mut told) {
        let mut trained = checkpoints::trained(&corpus.cx, &affected)?;
        for one in &mut trained {
            one.path = corpus.shown(&one.path);
        }
        told.checkpoints = Some(trained);
        let text = serde_json::to_string_pretty(told)? + "\n";
        let path = corpus.cx.out.join(record::REPORT);
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
