//! `blend`: datasets, weights and split to samples; shows asked and realised shares.

use super::Context;
use crate::machine::{grouped, write_atomically};
use anyhow::{Context as _, Result, bail};
use index::{Blend, BlendRequest, Dataset, Part};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::sync::Arc;

/// The blend of a job, opened.
pub(crate) struct Blended {
    /// Train, valid, test.
    pub parts: [Option<Blend>; 3],
    /// Names in the order of the blend's dataset numbers.
    pub names: Vec<String>,
    /// Ids are below this.
    pub vocab: usize,
    /// Identity of data, order and tokenizer.
    pub fingerprint: String,
    /// Samples asked of each part.
    pub samples: [u64; 3],
}

impl Blended {
    /// Opens the datasets and builds the order.
    pub(crate) fn open(cx: &Context) -> Result<Blended> {
        let table = cx
            .job
            .blend
            .as_ref()
            .context("the job has no [blend] table")?;
        let mut datasets = Vec::new();
        let mut prints = Vec::new();
        for d in &table.dataset {
            let prefix = match &d.prefix {
                Some(p) => p.clone(),
                None => intact(cx, &d.name)?,
            };
            let dataset = Dataset::open(&prefix).with_context(|| format!("dataset {}", d.name))?;
            prints.push(json!([index::fingerprint(&dataset), d.weight]));
            datasets.push((Arc::new(dataset), d.weight));
        }
        let (vocab, tokenizer) = vocabulary(cx, &datasets[0].0)?;
        let samples = wanted_samples(cx);
        let request = BlendRequest {
            datasets: &datasets,
            split: &table.split,
            seq_length: table.seq_length as u64,
            samples,
            seed: cx.job.seed,
        };
        let parts = index::build_blend(&request)?;
        let names = table.dataset.iter().map(|d| d.name.clone()).collect();
        let fingerprint = crate::manifest::fingerprint(&json!([
            prints,
            table.split,
            table.seq_length,
            samples,
            cx.job.seed,
            tokenizer
        ]));
        Ok(Blended {
            parts,
            names,
            vocab,
            fingerprint,
            samples,
        })
    }

    /// One part, or an error that says which setting leaves it empty.
    pub(crate) fn part(&self, part: Part) -> Result<&Blend> {
        self.parts[part as usize]
            .as_ref()
            .with_context(|| format!("blend.split leaves no {} samples", part.name()))
    }
}

/// Prefix of a dataset of this job, verified against what `tokenize` recorded: training on damaged tokens shows nowhere.
fn intact(cx: &Context, name: &str) -> Result<std::path::PathBuf> {
    let (stage, prefix) = (
        format!("tokenize/{name}"),
        super::tokenize::prefix(cx, name),
    );
    match cx.manifest.get(&stage) {
        Some(r) if cx.manifest.done(&stage, &r.fingerprint).is_none() => {
            bail!(
                "{} is not what tokenize wrote; run `millrace tokenize` (or `run`)",
                prefix.display()
            )
        }
        _ => Ok(prefix),
    }
}

/// Samples of train, valid, test: what training and evaluation will read.
fn wanted_samples(cx: &Context) -> [u64; 3] {
    let train = cx
        .job
        .train
        .as_ref()
        .map_or(1, |t| t.steps * t.global_batch as u64);
    let valid = cx.job.train.as_ref().map_or(1, |t| t.eval_samples);
    [
        train,
        valid.max(cx.job.eval.as_ref().map_or(0, |e| e.samples)),
        0,
    ]
}

/// Vocabulary and identity of the tokenizer: the job's own, or the one named in the dataset's sidecar.
fn vocabulary(cx: &Context, dataset: &Dataset) -> Result<(usize, Value)> {
    if cx.job.tokenize.is_some() {
        let tokenizer = super::tokenize::tokenizer_of(cx)?;
        return Ok((tokenizer.vocab(), json!(tokenizer.identity())));
    }
    let mut sidecar = dataset.prefix().as_os_str().to_owned();
    sidecar.push(".json");
    let text = std::fs::read_to_string(&sidecar).unwrap_or_default();
    let value: Value = serde_json::from_str(&text).unwrap_or_default();
    match value["tokenizer"]["vocab"]
        .as_u64()
        .and_then(|v| usize::try_from(v).ok())
    {
        Some(vocab) => Ok((vocab, value["tokenizer"]["xxh3"].clone())),
        None => bail!(
            "the vocabulary size of {} is unknown: give tokenize.tokenizer.file, or a sidecar {}",
            dataset.prefix().display(),
            sidecar.display()
        ),
    }
}

/// The stage of `run`.
pub(super) fn run(cx: &Context) -> Result<()> {
    let started = std::time::Instant::now();
    let blended = Blended::open(cx)?;
    let report = describe(&blended);
    let text = format!("{report:#}\n");
    write_atomically(&cx.out.join("blend.json"), text.as_bytes())?;
    let files = ["blend.json".into()];
    let seconds = started.elapsed().as_secs_f64();
    cx.manifest
        .record("blend", &blended.fingerprint, &files, json!({}), seconds)?;
    for part in report["parts"].as_array().into_iter().flatten() {
        let shares: Vec<String> = part["datasets"]
            .as_array()
            .into_iter()
            .flatten()
            .map(share)
            .collect();
        let samples = part["samples"].as_u64().unwrap_or(0);
        eprintln!(
            "blend: {} {} samples: {}",
            part["part"].as_str().unwrap_or_default(),
            grouped(samples),
            shares.join(", ")
        );
    }
    Ok(())
}

fn share(d: &Value) -> String {
    format!(
        "{} {:.1}% (asked {:.1}%, {:.2} epochs)",
        d["name"].as_str().unwrap_or_default(),
        100.0 * d["realised"].as_f64().unwrap_or(0.0),
        100.0 * d["asked"].as_f64().unwrap_or(0.0),
        d["epochs"].as_f64().unwrap_or(0.0)
    )
}

/// Asked and realised shares, tokens and epochs of every dataset in every part.
fn describe(blended: &Blended) -> Value {
    let mut parts = Vec::new();
    for (blend, samples) in blended.parts.iter().zip(blended.samples) {
        let Some(blend) = blend else { continue };
        let taken = blend.taken(samples);
        let datasets: Vec<Value> = (blend.datasets().iter().zip(&taken))
            .zip(blended.names.iter().zip(blend.weights()))
            .map(|((d, taken), (name, weight))| {
                let seq = samples_tokens(d);
                json!({
                    "name": name, "asked": weight, "samples": taken,
                    "realised": *taken as f64 / samples.max(1) as f64,
                    "tokens": taken * seq,
                    "epochs": (taken * seq) as f64 / d.epoch_tokens().max(1) as f64,
                    "documents": d.documents().end - d.documents().start,
                    "epoch_tokens": d.epoch_tokens(),
                })
            })
            .collect();
        parts.push(json!({"part": blend.part().name(), "samples": samples, "datasets": datasets}));
    }
    json!({"fingerprint": blended.fingerprint, "vocab": blended.vocab, "parts": parts})
}

fn samples_tokens(d: &index::GptSamples) -> u64 {
    d.seq_length()
}

/// The verb: a table, or with `--dump K` the hashes of every index array and the first K samples of each split.
pub(crate) fn blend(cx: &Context, dump: Option<u64>, as_json: bool) -> Result<()> {
    let blended = Blended::open(cx)?;
    let mut report = describe(&blended);
    if let Some(k) = dump {
        report["splits"] = dump_splits(&blended, k)?;
    }
    if as_json || dump.is_some() {
        return super::print(&format!("{report:#}\n"));
    }
    let mut text = String::new();
    for part in report["parts"].as_array().into_iter().flatten() {
        text.push_str(&format!("{} ({} samples)\n", part["part"], part["samples"]));
        for d in part["datasets"].as_array().into_iter().flatten() {
            text.push_str(&format!("  {}\n", share(d)));
        }
    }
    super::print(&text)
}

fn hex(bytes: &[u8]) -> String {
    Sha256::digest(bytes)
        .iter()
        .map(|b| format!("{b:02x}"))
        .collect()
}

/// SHA-256 of the arrays as Megatron stores them (document_index i32, sample_index i32 pairs, shuffle_index u32,
/// dataset_index i16, dataset_sample_index i64; little-endian).
fn dump_splits(blended: &Blended, k: u64) -> Result<Value> {
    let mut splits = serde_json::Map::new();
    for blend in blended.parts.iter().flatten() {
        let mut datasets = Vec::new();
        for (d, name) in blend.datasets().iter().zip(&blended.names) {
            let [document, sample, shuffle] = d.indices().megatron_bytes(d.longest_sequence());
            datasets.push(json!({
                "name": name, "len": d.len(), "epochs": d.indices().epochs,
                "document_index": hex(&document), "sample_index": hex(&sample), "shuffle_index": hex(&shuffle),
            }));
        }
        let which: Vec<u8> = blend
            .dataset_index()
            .iter()
            .flat_map(|d| d.to_le_bytes())
            .collect();
        let sample: Vec<u8> = blend
            .dataset_sample_index()
            .iter()
            .flat_map(|s| s.to_le_bytes())
            .collect();
        let length = blend.datasets().first().map_or(0, samples_tokens) + 1;
        let mut tokens = vec![0; usize::try_from(length)?];
        let mut first = Vec::new();
        for i in 0..k.min(blend.len()) {
            let dataset = blend.read(i, &mut tokens)?;
            first.push(json!({"dataset": dataset, "tokens": tokens}));
        }
        splits.insert(
            blend.part().name().into(),
            json!({
                "len": blend.len(), "weights": blend.weights(), "datasets": datasets,
                "dataset_index": hex(&which), "dataset_sample_index": hex(&sample), "samples": first,
            }),
        );
    }
    Ok(Value::Object(splits))
}
