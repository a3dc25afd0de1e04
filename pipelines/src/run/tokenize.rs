//! `tokenize`: kept text to a tokenizer (trained or copied) and one Megatron dataset for each name.

use super::Context;
use crate::job::{DatasetTable, TokenizerSource};
use crate::machine::{grouped, write_atomically};
use crate::manifest::{fingerprint, identity};
use crate::progress::Progress;
use anyhow::{Context as _, Result, bail};
use index::{BuildOptions, Tokenizer, Trainer};
use serde_json::json;
use std::path::{Path, PathBuf};

/// Where the job's tokenizer lies once the stage has run.
pub(crate) fn tokenizer_path(cx: &Context) -> PathBuf {
    cx.out.join("tokens/tokenizer.json")
}

/// Path prefix of a dataset that this job writes.
pub(crate) fn prefix(cx: &Context, name: &str) -> PathBuf {
    cx.out.join("tokens").join(name)
}

pub(super) fn run(cx: &Context) -> Result<()> {
    let Some(table) = &cx.job.tokenize else {
        bail!("the job has no [tokenize] table")
    };
    let (_, sums) = super::dedup::upstream(cx)?;
    let keep = match (&cx.job.dedup, cx.manifest.get("dedup")) {
        (None, _) => json!(null),
        (Some(_), Some(record)) => serde_json::to_value(record.outputs)?,
        (Some(_), None) => bail!("dedup has not run; run `millrace dedup` (or `run`) first"),
    };
    let of_tokenizer = match &table.tokenizer {
        TokenizerSource::File(path) => json!(["file", identity(path)]),
        TokenizerSource::Train(s) => json!(["train", s, sums, keep]),
    };
    let of_tokenizer = fingerprint(&of_tokenizer);
    let trained = cx
        .manifest
        .done("tokenize/tokenizer", &of_tokenizer)
        .is_none();
    if trained {
        make_tokenizer(cx, &table.tokenizer, &of_tokenizer)?;
    }
    let tokenizer = Tokenizer::load(&tokenizer_path(cx))?;
    let mut prints = vec![of_tokenizer];
    let mut built = 0;
    for dataset in cx.job.datasets() {
        let print = fingerprint(&json!([
            dataset,
            tokenizer.identity(),
            table.append_eod,
            sums,
            keep
        ]));
        if cx.manifest.done(&stage_name(&dataset), &print).is_none() {
            build(cx, &dataset, &tokenizer, &print)?;
            built += 1;
        }
        prints.push(print);
    }
    let all = fingerprint(&json!(prints));
    if built > 0 || trained || cx.manifest.done("tokenize", &all).is_none() {
        let datasets = cx.job.datasets();
        let records = datasets
            .iter()
            .filter_map(|d| cx.manifest.get(&stage_name(d)));
        let seconds: f64 = records.map(|r| r.seconds).sum();
        cx.manifest.record(
            "tokenize",
            &all,
            &[],
            json!({"vocab": tokenizer.vocab()}),
            seconds,
        )?;
    } else {
        eprintln!("tokenize: done before");
    }
    Ok(())
}

fn stage_name(dataset: &DatasetTable) -> String {
    format!("tokenize/{}", dataset.name)
}

/// Texts of the shards whose source is one of `sources` (all if empty), in shard and document order.
fn texts<'a>(
    cx: &'a Context,
    sources: &'a [String],
) -> Result<impl Iterator<Item = curate::Result<String>> + Send + 'a> {
    let config = cx
        .job
        .curate
        .as_ref()
        .context("the job has no [curate] table")?;
    let dedup = cx.job.dedup.is_some();
    let shards: Vec<usize> = curate::shards(config)?
        .into_iter()
        .filter(|s| sources.is_empty() || sources.contains(&s.input.source))
        .map(|s| s.number)
        .collect();
    type Texts = Box<dyn Iterator<Item = curate::Result<String>> + Send>;
    let text = |d: curate::Result<curate::CleanDocument>| d.map(|d| d.text);
    // Without [dedup] a keep-list of an earlier job in this folder must not be obeyed.
    let open = move |number| -> Texts {
        let failed = |e| Box::new(std::iter::once(Err(e)));
        if dedup {
            curate::kept_documents(&cx.out, number)
                .map_or_else(|e| failed(e) as Texts, |d| Box::new(d.map(text)))
        } else {
            curate::documents(&cx.out, number)
                .map_or_else(|e| failed(e) as Texts, |d| Box::new(d.map(text)))
        }
    };
    Ok(shards.into_iter().flat_map(open))
}

fn make_tokenizer(cx: &Context, source: &TokenizerSource, print: &str) -> Result<()> {
    cx.manifest.forget("tokenize/tokenizer");
    let progress = Progress::start("tokenizer", "MB", 0);
    let (tokenizer, what) = match source {
        TokenizerSource::File(path) => (Tokenizer::load(path)?, path.display().to_string()),
        TokenizerSource::Train(settings) => {
            let mut trainer = Trainer::new(settings.settings())?;
            for text in texts(cx, &[])? {
                let text = text?;
                progress.add(text.len() as u64);
                if !trainer.feed(&text)? {
                    break;
                }
            }
            (trainer.finish()?, "trained on the kept text".to_string())
        }
    };
    write_atomically(&tokenizer_path(cx), tokenizer.json().as_bytes())?;
    let counts = json!({"vocab": tokenizer.vocab(), "xxh3": tokenizer.identity(), "from": what});
    let files = ["tokens/tokenizer.json".into()];
    cx.manifest.record(
        "tokenize/tokenizer",
        print,
        &files,
        counts,
        progress.seconds(),
    )?;
    progress.finish(&format!(
        "{} entries, {what}",
        grouped(tokenizer.vocab() as u64)
    ));
    Ok(())
}

fn build(cx: &Context, dataset: &DatasetTable, tokenizer: &Tokenizer, print: &str) -> Result<()> {
    let stage = stage_name(dataset);
    cx.manifest.forget(&stage);
    let append_eod = cx.job.tokenize.as_ref().is_some_and(|t| t.append_eod);
    let progress = Progress::start(&stage, "MB", 0);
    let prefix = prefix(cx, &dataset.name);
    let lineage = json!({"name": dataset.name, "sources": dataset.sources, "job": cx.job.name});
    let options = BuildOptions {
        append_eod,
        lineage,
    };
    let documents = texts(cx, &dataset.sources)?;
    let built = index::build_dataset(&prefix, tokenizer, documents, &options, &|_, bytes| {
        progress.set(bytes, "");
    })?;
    let file = |suffix: &str| Path::new("tokens").join(format!("{}{suffix}", dataset.name));
    let files = [file(".bin"), file(".idx"), file(".json")];
    let counts = serde_json::to_value(built)?;
    let seconds = progress.seconds();
    cx.manifest.record(&stage, print, &files, counts, seconds)?;
    progress.finish(&format!(
        "{} documents, {} tokens, {:.2} bytes a token",
        grouped(built.written.documents),
        grouped(built.written.tokens),
        built.text_bytes as f64 / built.written.tokens.max(1) as f64
    ));
    Ok(())
}
