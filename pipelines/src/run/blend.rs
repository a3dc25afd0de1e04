//! `blend`: datasets, weights and split to samples; shows requested and realised shares.

use super::decision::{Decision, Reason, files_there};
use super::setting_changes;
use super::text_samples::{Reading, TextSamples};
use crate::context::Context;
use crate::generation::trained_tokenizer::SETTINGS;
use crate::job::{
    BlendDataset, BlendSampler, BlendSamples, BlendTable, BlendWeights, Job, WrongUse,
};
use crate::log::print;
use crate::machine::{grouped, write_atomically};
use anyhow::{Context as _, Result, bail};
use index::blend::{BlendRequest, MaskedBlend, MaskedBlendRequest, MaskedKind, Mixture, Source};
use index::cache::Cache;
use index::dataset::{Dataset, Sidecar};
use index::sampler::Cyclic;
use index::samples::MaskTokens;
use index::split::Part;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::sync::Arc;

/// The samples of a part.
pub(crate) enum PartSamples {
    /// For decoders.
    Text(TextSamples),
    /// For BERT and T5.
    Masked(MaskedBlend),
}

impl PartSamples {
    /// Samples.
    pub(crate) fn len(&self) -> u64 {
        match self {
            PartSamples::Text(samples) => samples.blend.len(),
            PartSamples::Masked(blend) => blend.len(),
        }
    }

    fn part(&self) -> Part {
        match self {
            PartSamples::Text(samples) => samples.blend.part(),
            PartSamples::Masked(blend) => blend.part(),
        }
    }
}

/// The blend of a job, opened.
pub(crate) struct Blended {
    /// Train, valid, test.
    pub parts: [Option<PartSamples>; 3],
    /// Names in the order of the blend's dataset numbers, for each part.
    pub names: [Vec<String>; 3],
    /// Vocabulary size: every id is below it.
    pub vocab: usize,
    /// The token that ends documents, if it is known.
    pub eod: Option<u32>,
    /// Start token of the decoder, for T5 samples.
    pub start: Option<u32>,
    /// Identity of the sample order: data, weights, epochs, seed, lengths, tokenizer; not the number of samples.
    pub orders: [Value; 3],
    /// Samples requested per part.
    pub samples: [u64; 3],
    /// Processing of text samples: padding and fill-in-the-middle.
    reading: Arc<Reading>,
}

/// The job's `[blend]`.
pub(super) fn table_of(job: &Job) -> Result<&BlendTable, WrongUse> {
    let table = job.blend.as_ref();
    table.ok_or_else(|| {
        WrongUse::new(
            "the job has no [blend] table, which says what a model is trained on; `millrace new pretrain DIR --from DATA` \
             writes a job with one, and `millrace explain blend` describes it",
        )
    })
}

/// Number of samples that requests every one; fits all of our file formats.
pub(crate) const EVERY_SAMPLE: u64 = i64::MAX.unsigned_abs();

/// Datasets of one part with their identities.
struct Opened {
    sources: Vec<Source>,
    prints: Vec<String>,
    /// Whether any dataset has an explicit weight.
    weighed: bool,
}

impl Blended {
    /// Opens the datasets and builds the order.
    pub(crate) fn open(cx: &Context) -> Result<Blended> {
        let table = table_of(&cx.job)?;
        let own = table.has_own_parts();
        let lists: [&[BlendDataset]; 3] = if own {
            [&table.train, &table.valid, &table.test]
        } else {
            [&table.dataset; 3]
        };
        let opened = if own {
            [
                open(cx, lists[0])?,
                open(cx, lists[1])?,
                open(cx, lists[2])?,
            ]
        } else {
            let all = open(cx, lists[0])?;
            [0, 1, 2].map(|_| Opened {
                sources: all.sources.clone(),
                prints: all.prints.clone(),
                weighed: all.weighed,
            })
        };
        let first = opened.iter().flat_map(|o| &o.sources).next();
        let (dataset, _) = first.context("[blend] names no dataset")?;
        let (vocab, eod, tokenizer) = vocabulary(cx, dataset)?;
        verify(&opened, vocab, tokenizer.as_str().unwrap_or_default())?;
        let samples = wanted_samples(cx);
        let split = (!own).then_some(table.split.as_str());
        let cache = match table.cache.as_ref().filter(|_| !cx.only_looks()) {
            Some(folder) => Some(Cache::new(
                folder,
                split,
                cache_tokenizer(table, &tokenizer)?,
            )?),
            None => None,
        };
        let reading = Reading::of(table, || crate::generation::tokenizer_of(cx))?;
        let weighed = opened.each_ref().map(|o| weigh(&o.sources, table.weights));
        let mut start = None;
        let parts = if table.samples == BlendSamples::Text {
            let request = BlendRequest {
                sources: weighed.each_ref().map(Vec::as_slice),
                split,
                mixture: table.mixture,
                samples: samples.map(|n| Some(n).filter(|n| *n != EVERY_SAMPLE)),
                weighed: opened.iter().any(|o| o.weighed),
                sample: sample_request(cx, table),
                surplus: table.surplus,
                max_epochs: (table.max_epochs > 0.0).then_some((table.max_epochs, table.above_cap)),
                even_batches: even_batches(cx, table),
                cache: cache.as_ref(),
            };
            super::index_memory::check(&request)?;
            index::blend::build(&request)?
                .map(|part| part.map(|blend| PartSamples::Text(TextSamples::new(blend, &reading))))
        } else {
            super::index_memory::check_masked(&samples)?;
            let request = masked_request(cx, table, split, cache.as_ref())?;
            start = (table.samples == BlendSamples::T5).then_some(request.tokens.bos);
            index::blend::build_masked(&MaskedBlendRequest {
                sources: weighed.each_ref().map(Vec::as_slice),
                samples,
                ..request
            })?
            .map(|part| part.map(PartSamples::Masked))
        };
        for note in cache.iter().flat_map(Cache::notes) {
            log!("blend: cache {note}");
        }
        let names = lists.map(|l| l.iter().map(|d| d.name.clone()).collect::<Vec<_>>());
        let mut orders = [Value::Null, Value::Null, Value::Null];
        for (i, blend) in parts.iter().enumerate() {
            if let Some(blend) = blend {
                let mut order = order(cx, table, blend, &names[i], &opened[i].prints);
                order["tokenizer"] = tokenizer.clone();
                if let (0, Some(train), false) =
                    (i, &cx.job.train, table.sampler == BlendSampler::Single)
                {
                    // the permutation is over all samples, which are then distributed to ranks
                    order["sampler"] = json!([
                        table.sampler,
                        blend.len(),
                        train.micro_batch,
                        cx.job.parallel.dp
                    ]);
                }
                orders[i] = order;
            }
        }
        Ok(Blended {
            parts,
            names,
            vocab,
            eod,
            start,
            orders,
            samples,
            reading,
        })
    }

    /// The sets of `[[blend.validation]]`, opened: every sample of one epoch each.
    pub(crate) fn validation(&self, cx: &Context) -> Result<Vec<(String, PartSamples)>> {
        let table = table_of(&cx.job)?;
        let mut sets = Vec::new();
        for d in &table.validation {
            let none = || Opened {
                sources: Vec::new(),
                prints: Vec::new(),
                weighed: false,
            };
            let opened = [none(), open(cx, std::slice::from_ref(d))?, none()];
            let dataset = opened[1].sources.first();
            let (dataset, _) = dataset.context("a dataset that was opened is there")?;
            let (_, _, tokenizer) = vocabulary(cx, dataset)?;
            verify(&opened, self.vocab, tokenizer.as_str().unwrap_or_default())?;
            let parts = index::blend::build(&BlendRequest {
                sources: opened.each_ref().map(|o| o.sources.as_slice()),
                split: None,
                mixture: Mixture::Exhaustive,
                samples: [Some(0), None, Some(0)],
                weighed: false,
                sample: sample_request(cx, table),
                surplus: table.surplus,
                max_epochs: None,
                even_batches: None,
                cache: None,
            })?;
            let [_, samples, _] = parts;
            let samples = samples.with_context(|| format!("{} holds no sample", d.name))?;
            let samples = TextSamples::new(samples, &self.reading);
            sets.push((d.name.clone(), PartSamples::Text(samples)));
        }
        Ok(sets)
    }

    /// One part, or an error that says which setting leaves it empty.
    pub(crate) fn part(&self, part: Part) -> Result<&PartSamples> {
        self.parts[part as usize]
            .as_ref()
            .with_context(|| format!("blend.split leaves no {} samples", part.name()))
    }

    /// The shuffled order in which training takes the blend's samples; None for sequential order.
    pub(crate) fn cyclic(&self, cx: &Context) -> Result<Option<Cyclic>> {
        let sampler = cx.job.blend.as_ref().map(|b| b.sampler);
        let (Some(train), Some(sampler)) = (&cx.job.train, sampler) else {
            return Ok(None);
        };
        if sampler == BlendSampler::Single {
            return Ok(None);
        }
        let total = self.part(Part::Train)?.len();
        let (micro, ranks) = (train.micro_batch as u64, cx.job.parallel.dp as u64);
        let sharded = sampler == BlendSampler::Cyclic;
        Ok(Some(Cyclic::new(total, micro, ranks, sharded)?))
    }

    /// Identity of one part's order: unchanged when more samples are requested, as long as they only follow the
    /// earlier ones.
    pub(crate) fn fingerprint(&self, part: Part) -> String {
        crate::manifest::fingerprint(&self.orders[part as usize])
    }
}

/// Opens a list of datasets; the error names every one that cannot be opened.
fn open(cx: &Context, list: &[BlendDataset]) -> Result<Opened> {
    let mut prefixes = Vec::new();
    for d in list {
        prefixes.push(match &d.prefix {
            Some(p) => p.clone(),
            None => intact(cx, &d.name)?,
        });
    }
    let datasets = index::blend::open_all(prefixes.iter().map(|p| p.as_path()))?;
    let prints = datasets.iter().zip(list);
    let prints = prints
        .map(|(d, l)| print_of(cx, d, &l.name))
        .collect::<Result<_>>()?;
    let sources = datasets.into_iter().zip(list);
    let sources = sources.map(|(d, l)| (d, l.weight.unwrap_or(1.0)));
    Ok(Opened {
        sources: sources.collect(),
        prints,
        weighed: list.iter().any(|l| l.weight.is_some()),
    })
}

/// Identity of a dataset. A training that began when identities covered every byte of large datasets keeps that one.
fn print_of(cx: &Context, dataset: &Dataset, name: &str) -> Result<String> {
    let print = index::dataset::fingerprint(dataset)?;
    let record = cx.manifest.get(SETTINGS)?;
    let before = record
        .as_ref()
        .map(|r| &r.counts["data"]["datasets"][name]["data"]);
    match before.and_then(Value::as_str) {
        Some(before) if print.starts_with("s-") && !before.starts_with("s-") => {
            Ok(index::dataset::whole_fingerprint(dataset)?)
        }
        _ => Ok(print),
    }
}

/// Refuses datasets that differ from their sidecars, were made by another tokenizer, or hold ids beyond the
/// vocabulary in the sampled places (the rest is verified as it is read); the error names every one.
fn verify(opened: &[Opened; 3], vocab: usize, tokenizer: &str) -> Result<()> {
    let mut problems = Vec::new();
    let mut seen: Vec<&Dataset> = Vec::new();
    for (data, _) in opened.iter().flat_map(|o| &o.sources) {
        if seen.iter().any(|d| d.prefix() == data.prefix()) {
            continue;
        }
        seen.push(data);
        let checked = Sidecar::read(data.prefix()).and_then(|sidecar| {
            if let Some(sidecar) = &sidecar {
                sidecar.check(data)?;
                sidecar.check_tokenizer(data.prefix(), vocab, tokenizer)?;
            }
            data.expect_ids_below(vocab)
        });
        problems.extend(checked.err().map(|e| e.to_string()));
    }
    if !problems.is_empty() {
        bail!("{}", problems.join("\n"));
    }
    Ok(())
}

/// Weights as given, or multiplied by the size of the dataset.
fn weigh(sources: &[Source], weights: BlendWeights) -> Vec<Source> {
    let size = |d: &Dataset| match weights {
        BlendWeights::Given => 1.0,
        BlendWeights::Tokens => d.tokens() as f64,
        BlendWeights::Documents => d.documents() as f64,
    };
    let weighed = sources.iter().map(|(d, w)| (Arc::clone(d), w * size(d)));
    weighed.collect()
}

/// The batch size, if every batch must have each dataset's share.
fn even_batches(cx: &Context, table: &BlendTable) -> Option<u64> {
    let batch = cx.job.train.as_ref().map_or(1, |t| t.global_batch as u64);
    table.even_batches.then_some(batch)
}

/// The tokenizer identity that Megatron's cache key hashes: from the job file, or our own.
fn cache_tokenizer(table: &BlendTable, tokenizer: &Value) -> Result<Value> {
    match &table.cache_tokenizer {
        Some(text) => serde_json::from_str(text).context("blend.cache_tokenizer"),
        None => Ok(json!({"class": "millrace", "identity": tokenizer})),
    }
}

/// Settings and identities that fix the order of a part.
fn order(
    cx: &Context,
    table: &BlendTable,
    samples: &PartSamples,
    names: &[String],
    prints: &[String],
) -> Value {
    let blend = match samples {
        PartSamples::Text(samples) => &samples.blend,
        PartSamples::Masked(blend) => return masked_order(cx, table, blend, names, prints),
    };
    let mut datasets = serde_json::Map::new();
    let mixed = table.mixture == Mixture::Weighted || blend.datasets().len() > 1;
    for (i, d) in blend.datasets().iter().enumerate() {
        let order = d.indices().order;
        let documents = d.documents();
        let what = json!({
            "data": prints[i], "weight": if mixed { blend.weights()[i] } else { 1.0 },
            "documents": [documents.start, documents.end],
            "epochs": order.epochs, "last_epoch_apart": order.last_epoch_apart,
        });
        datasets.insert(names[i].clone(), what);
    }
    let mut order = json!({
        "datasets": datasets, "seq_length": table.seq_length, "seed": cx.job.seed,
        "mixture": table.mixture, "even_batches": even_batches(cx, table),
    });
    // keys that change samples are added only when they are set, so that older trainings keep their identity
    if !table.add_extra_token_to_sequence {
        order["add_extra_token_to_sequence"] = json!(false);
    }
    if let Some(pad) = table.pad_id {
        order["pad_id"] = json!(pad);
    }
    if let Some(fim) = &table.fim {
        order["fim"] = json!(fim);
    }
    order
}

/// Length and kind of a sample of text.
fn sample_request(cx: &Context, table: &BlendTable) -> index::samples::Request {
    index::samples::Request {
        extra_token: table.add_extra_token_to_sequence,
        drop_last: table.drop_last_partial_validation_sequence,
        ..index::samples::Request::of(table.seq_length as u64, None, cx.job.seed)
    }
}

/// Settings and identities that fix the order of a part of masked samples. Whole epochs are shuffled at once, so
/// the number of available samples is one of them.
fn masked_order(
    cx: &Context,
    table: &BlendTable,
    blend: &MaskedBlend,
    names: &[String],
    prints: &[String],
) -> Value {
    let mut datasets = serde_json::Map::new();
    for ((name, print), weight) in names.iter().zip(prints).zip(blend.weights()) {
        datasets.insert(name.clone(), json!({"data": print, "weight": weight}));
    }
    json!({
        "datasets": datasets, "seq_length": table.seq_length, "seed": cx.job.seed,
        "samples": table.samples, "masking": table.masking, "decoder_length": table.decoder_length,
        "available": blend.len(),
    })
}

/// The request for masked samples, without the datasets.
fn masked_request<'a>(
    cx: &Context,
    table: &BlendTable,
    split: Option<&'a str>,
    cache: Option<&'a Cache>,
) -> Result<MaskedBlendRequest<'a>> {
    let tokenizer = crate::generation::tokenizer_of(cx)
        .context("masked samples need the tokenizer: give tokenize.tokenizer")?;
    let is_bert = table.samples == BlendSamples::Bert;
    let kind = if is_bert {
        MaskedKind::Bert {
            classification_head: (cx.job.model.as_ref()).is_some_and(|model| model.next_sentence),
        }
    } else {
        let decoder_length = u32::try_from(table.decoder_length)?;
        MaskedKind::T5 { decoder_length }
    };
    Ok(MaskedBlendRequest {
        sources: [&[]; 3],
        split,
        samples: [0; 3],
        surplus: table.surplus,
        seq_length: u32::try_from(table.seq_length)?,
        seed: cx.job.seed,
        masking: table.masking,
        tokens: Arc::new(MaskTokens::of(&tokenizer, is_bert)?),
        kind,
        cache,
    })
}

/// Prefix of a dataset of this job, compared with its `tokenize` record: the checksum of every file changed since
/// then is verified, because training on damaged tokens would not show otherwise.
fn intact(cx: &Context, name: &str) -> Result<std::path::PathBuf> {
    let (stage, prefix) = (
        format!("tokenize/{name}"),
        super::tokenize::prefix(cx, name),
    );
    match cx.manifest.get(&stage)? {
        Some(r) if !cx.manifest.is_untouched(&stage, &r.fingerprint)? => {
            bail!(
                "{} is not what tokenize wrote; run `millrace tokenize` (or `run`)",
                prefix.display()
            )
        }
        None if !prefix.with_added_extension("idx").exists() && writes(cx, name) => bail!(
            "{} has no tokens yet; run `millrace tokenize` (or `run`) first",
            prefix.display()
        ),
        Some(_) | None => Ok(prefix),
    }
}

/// Whether the job's `[tokenize]` writes a dataset of this name.
fn writes(cx: &Context, name: &str) -> bool {
    cx.job.datasets().iter().any(|dataset| dataset.name == name)
}

/// Numbers of train, valid and test samples that training and evaluation will read.
fn wanted_samples(cx: &Context) -> [u64; 3] {
    let train = cx
        .job
        .train
        .as_ref()
        .map_or(1, train::config::TrainConfig::samples);
    let valid = cx.job.train.as_ref().map_or(1, |t| t.eval_samples);
    let eval = |part: Part| {
        let table = cx.job.eval.as_ref().filter(|e| e.part.of_index() == part);
        table.map_or(0, |e| e.samples)
    };
    let valid = match cx.job.blend.as_ref().is_some_and(|b| b.full_validation) {
        true => EVERY_SAMPLE,
        false => valid.max(eval(Part::Valid)),
    };
    [train, valid, eval(Part::Test)]
}

/// Vocabulary, end-of-document token and identity of the tokenizer: the job's own, or the one named in the
/// dataset's sidecar.
fn vocabulary(cx: &Context, dataset: &Dataset) -> Result<(usize, Option<u32>, Value)> {
    if cx.job.tokenize.is_some() {
        let tokenizer = crate::generation::tokenizer_of(cx)?;
        let end = tokenizer.end_of_document();
        return Ok((tokenizer.vocab(), end, json!(tokenizer.identity())));
    }
    match Sidecar::read(dataset.prefix())? {
        Some(Sidecar { tokenizer, .. }) => Ok((
            tokenizer.vocab,
            tokenizer.end_of_document,
            json!(tokenizer.xxh3),
        )),
        None => bail!(
            "the vocabulary size of {} is unknown: give tokenize.tokenizer.file, or a sidecar {}",
            dataset.prefix().display(),
            Sidecar::path(dataset.prefix()).display()
        ),
    }
}

/// The decision of the stage.
///
/// # Errors
/// A store that cannot be reached.
pub(super) fn decision(cx: &Context, blended: &Blended) -> Result<Decision> {
    let print = crate::manifest::fingerprint(&describe(blended));
    match cx.done("blend", &print)? {
        Some(_) => Ok(Decision::skip("blend")),
        None => Ok(of_run(cx, Vec::new())),
    }
}

/// The decision to run for these reasons.
pub(super) fn of_run(cx: &Context, mut reasons: Vec<Reason>) -> Decision {
    let changed = setting_changes::of(&cx.job, &cx.out);
    let keys = ["blend", "seed", "train.steps", "train.global_batch", "eval"];
    let changed = setting_changes::within(&changed, &keys);
    reasons.extend(changed.into_iter().map(Reason::other));
    if reasons.is_empty() {
        reasons.push(Reason::perhaps("its samples are not those of blend.json"));
    }
    let mut decision = Decision::run("blend", reasons);
    decision.replaces = files_there(&cx.out, std::iter::once("blend.json".into()));
    decision
}

/// The stage of `run`.
pub(super) fn run(cx: &Context) -> Result<()> {
    let started = std::time::Instant::now();
    let blended = Blended::open(cx)?;
    let report = describe(&blended);
    let print = crate::manifest::fingerprint(&report);
    if cx.done("blend", &print)?.is_some() {
        info!("blend: done before");
        return Ok(());
    }
    let text = format!("{report:#}\n");
    write_atomically(&cx.out.join("blend.json"), text.as_bytes())?;
    let files = ["blend.json".into()];
    let seconds = started.elapsed().as_secs_f64();
    cx.manifest
        .record("blend", &print, &files, json!({}), seconds)?;
    for part in report["parts"].as_array().into_iter().flatten() {
        let shares: Vec<String> = part["datasets"]
            .as_array()
            .into_iter()
            .flatten()
            .map(share)
            .collect();
        let samples = part["samples"].as_u64().unwrap_or(0);
        info!(
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

/// Requested and realised shares, tokens and epochs of every dataset in every part.
pub(super) fn describe(blended: &Blended) -> Value {
    let mut parts = Vec::new();
    for (i, blend) in blended.parts.iter().enumerate() {
        let (Some(blend), samples) = (blend, blended.samples[i]) else {
            continue;
        };
        let blend = match blend {
            PartSamples::Text(samples) => &samples.blend,
            PartSamples::Masked(blend) => {
                let tokens = blended.orders[i]["seq_length"].as_u64().unwrap_or(0);
                parts.push(describe_masked(blend, &blended.names[i], samples, tokens));
                continue;
            }
        };
        let samples = samples.min(blend.len());
        let taken = blend.taken(samples);
        let total: f64 = blend.weights().iter().sum();
        let datasets: Vec<Value> = (blend.datasets().iter().zip(&taken))
            .zip(blended.names[i].iter().zip(blend.weights()))
            .map(|((d, taken), (name, weight))| {
                let seq = samples_tokens(d);
                json!({
                    "name": name, "asked": weight / total, "samples": taken,
                    "realised": *taken as f64 / samples.max(1) as f64,
                    "tokens": taken * seq,
                    "epochs": (taken * seq) as f64 / d.epoch_tokens().max(1) as f64,
                    "documents": d.documents().end - d.documents().start,
                    "epoch_tokens": d.epoch_tokens(),
                })
            })
            .collect();
        let tokens: u64 =
            taken.iter().sum::<u64>() * blend.datasets().first().map_or(0, samples_tokens);
        parts.push(json!({
            "part": blend.part().name(), "samples": samples, "available": blend.len(), "tokens": tokens,
            "datasets": datasets,
        }));
    }
    json!({"orders": blended.orders, "vocab": blended.vocab, "parts": parts})
}

/// Like `describe`, for masked samples: tokens include padding.
fn describe_masked(blend: &MaskedBlend, names: &[String], samples: u64, seq_length: u64) -> Value {
    let samples = samples.min(blend.len());
    let mut taken = vec![0u64; names.len()];
    for k in 0..samples {
        if let Ok((dataset, _)) = blend.place(k) {
            taken[dataset] += 1;
        }
    }
    let epochs = blend.epochs(&taken);
    let datasets: Vec<Value> = (names.iter().zip(&taken).zip(blend.weights()).zip(&epochs))
        .map(|(((name, taken), weight), epochs)| {
            json!({
                "name": name, "asked": weight, "samples": taken,
                "realised": *taken as f64 / samples.max(1) as f64, "tokens": taken * seq_length,
                "epochs": epochs,
            })
        })
        .collect();
    json!({
        "part": blend.part().name(), "samples": samples, "available": blend.len(),
        "tokens": samples * seq_length, "datasets": datasets,
    })
}

fn samples_tokens(d: &index::samples::GptSamples) -> u64 {
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
        return print(&format!("{report:#}\n"));
    }
    let mut text = String::new();
    for part in report["parts"].as_array().into_iter().flatten() {
        text.push_str(&format!("{} ({} samples)\n", part["part"], part["samples"]));
        for d in part["datasets"].as_array().into_iter().flatten() {
            text.push_str(&format!("  {}\n", share(d)));
        }
    }
    print(&text)
}

fn hex(bytes: &[u8]) -> String {
    Sha256::digest(bytes)
        .iter()
        .map(|b| format!("{b:02x}"))
        .collect()
}

/// The first `k` masked samples in the form of Megatron's dataset.
fn dump_masked(samples: &PartSamples, k: u64) -> Result<Value> {
    let PartSamples::Masked(blend) = samples else {
        return Ok(Value::Null);
    };
    let mut first = Vec::new();
    for i in 0..k.min(blend.len()) {
        let (dataset, _) = blend.place(i)?;
        if let Some(item) = blend.bert(i)? {
            first.push(json!({
                "dataset": dataset, "text": item.text, "types": item.types, "labels": item.labels,
                "loss_mask": item.loss_mask, "padding_mask": item.padding_mask, "is_random": item.is_random,
            }));
        } else if let Some(item) = blend.t5(i)? {
            first.push(json!({
                "dataset": dataset, "text_enc": item.text_enc, "text_dec": item.text_dec, "labels": item.labels,
                "loss_mask": item.loss_mask, "enc_mask": item.enc_mask, "dec_mask": item.dec_mask,
            }));
        }
    }
    Ok(json!({"len": blend.len(), "weights": blend.weights(), "samples": first}))
}

/// SHA-256 of the arrays as Megatron stores them (document_index i32, sample_index i32 or i64 pairs, shuffle_index u32 or
/// i64, dataset_index i16, dataset_sample_index i64; little-endian).
fn dump_splits(blended: &Blended, k: u64) -> Result<Value> {
    let mut splits = serde_json::Map::new();
    for (i, blend) in blended.parts.iter().enumerate() {
        let Some(samples) = blend else { continue };
        let PartSamples::Text(text) = samples else {
            let part = dump_masked(samples, k)?;
            splits.insert(samples.part().name().into(), part);
            continue;
        };
        let blend = &text.blend;
        let mut datasets = Vec::new();
        for (d, name) in blend.datasets().iter().zip(&blended.names[i]) {
            let indices = d.indices();
            datasets.push(json!({
                "name": name, "len": d.len(), "epochs": indices.order.epochs,
                "document_index": hex(indices.document_index.bytes()),
                "sample_index": hex(indices.sample_index.bytes()),
                "shuffle_index": hex(indices.shuffle_index.bytes()),
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
        let mut tokens = vec![0; text.tokens()];
        let mut first = Vec::new();
        for i in 0..k.min(blend.len()) {
            let dataset = text.read(i, &mut tokens)?;
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

/// A log line that names datasets read for more than one epoch; None if there are none.
pub(super) fn repeated(cx: &Context, blended: &Blended) -> Result<Option<String>> {
    if blended.cyclic(cx)?.is_some() {
        // the sampler repeats all samples
        let all = blended.part(Part::Train)?.len();
        let epochs = blended.samples[Part::Train as usize] as f64 / all.max(1) as f64;
        return Ok((epochs > 1.0).then(|| format!("all samples {epochs:.2}")));
    }
    let report = describe(blended);
    let part = report["parts"].as_array().into_iter().flatten();
    let part = part.filter(|part| part["part"] == Part::Train.name());
    let datasets = part.flat_map(|part| part["datasets"].as_array().into_iter().flatten());
    let texts: Vec<String> = datasets
        .filter_map(|d| Some((d["name"].as_str()?, d["epochs"].as_f64()?)))
        .filter(|(_, epochs)| *epochs > 1.0)
        .map(|(name, epochs)| format!("{name} {epochs:.2}"))
        .collect();
    Ok((!texts.is_empty()).then(|| texts.join(", ")))
}
