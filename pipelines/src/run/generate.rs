//! `generate`: continues prompts with a checkpoint.

use crate::context::Context;
use crate::generation::{newest_checkpoint, tokenizer_of};
use crate::job::Generate;
use crate::log::print;
use crate::machine::write_atomically;
use crate::manifest::{fingerprint, identity};
use anyhow::{Context as _, Result, bail};
use index::tokenizer::Tokenizer;
use serde_json::json;
use std::path::Path;
use train::dist::Devices;
use train::infer::GenerateOptions;

fn options(table: &Generate, seed: u32, stop: Option<u32>) -> GenerateOptions {
    GenerateOptions {
        max_tokens: table.max_tokens,
        temperature: table.temperature,
        top_k: table.top_k,
        top_p: table.top_p,
        seed: u64::from(seed),
        stop: stop.map(|id| vec![id]).into_iter().collect(),
        ..GenerateOptions::default()
    }
}

/// The stage of `run`: the job's prompts, written to `generated.json` and shown.
pub(super) fn run(cx: &Context) -> Result<()> {
    let table = cx
        .job
        .generate
        .as_ref()
        .context("the job has no [generate] table")?;
    let checkpoint = newest_checkpoint(&cx.out, "generate")?;
    let print = fingerprint(&json!([
        table,
        cx.job.seed,
        identity(&checkpoint.join("state.json"))
    ]));
    if cx.manifest.done("generate", &print)?.is_some() {
        log!("generate: done before");
        return Ok(());
    }
    let started = std::time::Instant::now();
    let (tokenizer, devices) = (tokenizer_of(cx)?, crate::devices::of(&cx.job));
    let mut samples = Vec::new();
    for (number, prompt) in (0u32..).zip(&table.prompts) {
        // a separate random stream per prompt
        let seed = cx.job.seed.wrapping_add(number);
        let text = continued(
            (&tokenizer, &devices),
            &checkpoint,
            prompt,
            table,
            seed,
            &mut |_| {},
        )?;
        log!("generate: {prompt}{}", text.replace('\n', "\n  "));
        samples.push(json!({"prompt": prompt, "text": text}));
    }
    let text = format!("{:#}\n", json!({"samples": samples}));
    write_atomically(&cx.out.join("generated.json"), text.as_bytes())?;
    let seconds = started.elapsed().as_secs_f64();
    cx.manifest.record(
        "generate",
        &print,
        &["generated.json".into()],
        json!({}),
        seconds,
    )?;
    Ok(())
}

/// Ids of a prompt. Unlike in training texts, the names of T5 sentinels become sentinel ids: in a prompt they are
/// intended.
fn encode(tokenizer: &Tokenizer, prompt: &str) -> Result<Vec<u32>> {
    let (mut ids, mut rest) = (Vec::new(), prompt);
    loop {
        let sentinels = tokenizer.special().sentinels.iter();
        let named = sentinels.filter_map(|&id| Some((id, tokenizer.token(id)?)));
        let found = named.filter_map(|(id, name)| Some((rest.find(name)?, name.len(), id)));
        // the longest of names that start at the same position
        let first = found.min_by_key(|&(at, len, _)| (at, usize::MAX - len));
        let Some((at, len, id)) = first else {
            ids.extend(tokenizer.encode(rest)?);
            return Ok(ids);
        };
        ids.extend(tokenizer.encode(&rest[..at])?);
        ids.push(id);
        rest = &rest[at + len..];
    }
}

/// The continuation of one prompt. An empty prompt starts a document.
fn continued(
    (tokenizer, devices): (&Tokenizer, &Devices),
    checkpoint: &Path,
    prompt: &str,
    table: &Generate,
    seed: u32,
    on_token: &mut dyn FnMut(u32),
) -> Result<String> {
    let end = tokenizer.end_of_document();
    let mut ids = encode(tokenizer, prompt)?;
    if ids.is_empty() {
        ids.extend(end);
    }
    if ids.is_empty() {
        bail!("an empty prompt needs an end-of-document token to start from");
    }
    let mut new = train::infer::generate_on(
        devices,
        checkpoint,
        &ids,
        &options(table, seed, end),
        on_token,
    )?;
    if end.is_some() && new.last().copied() == end {
        new.pop();
    }
    // rows of the embedding beyond the tokenizer's ids have no text
    new.retain(|id| (*id as usize) < tokenizer.vocab());
    Ok(tokenizer.decode(&new)?)
}

/// `generate JOB`: prompts from the command line, or the job's.
pub(crate) fn generate_for_job(cx: &Context, prompts: &[String]) -> Result<()> {
    let mut table = cx.job.generate.clone().unwrap_or_default();
    if !prompts.is_empty() {
        table.prompts = prompts.to_vec();
    }
    let checkpoint = newest_checkpoint(&cx.out, "generate")?;
    let of = (&tokenizer_of(cx)?, &crate::devices::of(&cx.job));
    show(of, &checkpoint, &table, cx.job.seed)
}

/// `generate --checkpoint DIR --tokenizer FILE`.
pub(crate) fn generate_from(
    checkpoint: Option<&Path>,
    tokenizer: Option<&Path>,
    prompts: &[String],
) -> Result<()> {
    let (Some(checkpoint), Some(tokenizer)) = (checkpoint, tokenizer) else {
        bail!("generate needs a job file, or --checkpoint DIR with --tokenizer FILE");
    };
    let mut table = Generate::default();
    if !prompts.is_empty() {
        table.prompts = prompts.to_vec();
    }
    let newest = train::checkpoint::checkpoint_at(checkpoint)?;
    for skipped in &newest.skipped {
        log!("generate: {skipped}");
    }
    let of = (&Tokenizer::load(tokenizer)?, &Devices::Cpu);
    show(of, &newest.path, &table, 1234)
}

fn show(of: (&Tokenizer, &Devices), checkpoint: &Path, table: &Generate, seed: u32) -> Result<()> {
    for (number, prompt) in (0u32..).zip(&table.prompts) {
        let seed = seed.wrapping_add(number);
        let text = continued(of, checkpoint, prompt, table, seed, &mut |_| {})?;
        print(&format!("{prompt}{text}\n"))?;
    }
    Ok(())
}
