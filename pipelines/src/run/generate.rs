//! `generate`: continues prompts with a model.

use super::chat_data::kept_prompts;
use super::decision::{Decision, Reason, files_there};
use super::setting_changes;
use super::train_adapters::parts;
use crate::context::Context;
use crate::conversations::{Encoding, Prompt};
use crate::flag_numbers::{finite, positive};
use crate::generation::{
    Answer, Located, ModelFiles, SamplingArgs, answer, encode, encode_marked,
    encode_with_sentinels, newest_checkpoint, tokenizer_of,
};
use crate::job::{Generate, TaskTemplates, WrongUse, has_marker};
use crate::log::print;
use crate::machine::write_atomically;
use crate::manifest::{fingerprint, identity};
use anyhow::{Context as _, Result, bail};
use clap::Args;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use train::config::TaskMarkers;
use train::data::is_virtual;
use train::infer::engine::Engine;
use train::infer::{BeamOptions, GenerateOptions, beam_search};

/// Flags without a meaning for beam search, which samples nothing and reads no text.
const NOT_OF_BEAMS: [&str; 18] = [
    "samples",
    "logprobs",
    "temperature",
    "top_k",
    "top_p",
    "top_p_decay",
    "top_p_bound",
    "min_p",
    "repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
    "seed",
    "stop",
    "stop_token",
    "min_tokens",
    "ignore_eos",
    "draft_tokens",
    "draft_model",
];

/// Flags of the verb.
#[derive(Args)]
pub(crate) struct GenerateArgs {
    /// Job file (its newest checkpoint and its tokenizer are used), checkpoint, folder of checkpoints, or Hugging Face folder.
    #[arg(required_unless_present = "checkpoint")]
    model: Option<PathBuf>,
    /// Checkpoint folder; the same as naming it first.
    #[arg(long, value_name = "DIR", conflicts_with = "model")]
    checkpoint: Option<PathBuf>,
    /// Tokenizer. Default: the job's, or the one in or above the folder.
    #[arg(long, value_name = "FILE")]
    tokenizer: Option<PathBuf>,
    /// Override one key of the job.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Text to continue (repeatable). Default: the job's prompts.
    #[arg(long)]
    prompt: Vec<String>,
    /// Read prompts from a file: one a line, or the key `prompt` of each line of a .jsonl file; `-`: standard input.
    #[arg(long, value_name = "FILE", conflicts_with = "prompt")]
    prompts: Option<PathBuf>,
    #[command(flatten)]
    sampling: SamplingArgs,
    /// Answers to each prompt.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = positive)]
    samples: usize,
    /// Look for the likeliest answers by beam search, this many at a time, until the token that ends a text.
    #[arg(long, value_name = "N", value_parser = positive, conflicts_with_all = NOT_OF_BEAMS)]
    beam_width: Option<usize>,
    /// Power of the length that the score of a beam is divided by.
    #[arg(long, value_name = "X", default_value_t = 1.0, value_parser = finite, requires = "beam_width")]
    length_penalty: f64,
    /// Report the log-probability of each token and those of this many likeliest ones (with --json).
    #[arg(long, value_name = "N", requires = "json")]
    logprobs: Option<usize>,
    /// Print a line of JSON for each answer instead of text.
    #[arg(long)]
    json: bool,
}

/// Options of a job's table without the tokens that end a text.
fn numbers(table: &Generate, seed: u32) -> GenerateOptions {
    GenerateOptions {
        max_tokens: table.max_tokens,
        temperature: table.temperature,
        top_k: table.top_k,
        top_p: table.top_p,
        seed: u64::from(seed),
        ..GenerateOptions::default()
    }
}

/// Options of a job's table; prompt `number` has a random stream of its own.
fn options(table: &Generate, seed: u32, files: &ModelFiles) -> GenerateOptions {
    GenerateOptions {
        stop: files.end_ids.iter().map(|&id| vec![id]).collect(),
        ..numbers(table, seed)
    }
}

/// The stage of `run`: the job's prompts, written to `generated.json` and shown; of each adapter if it has several.
pub(super) fn run(cx: &Context) -> Result<()> {
    if cx.job.has_adapters() {
        return parts(cx)?.iter().try_for_each(run);
    }
    let is_tuned = cx.job.finetune.is_some();
    let asked = Asked::of(cx)?;
    if cx.done("generate", &asked.print)?.is_some() {
        info!("generate: done before");
        return Ok(());
    }
    let Asked {
        table,
        kept,
        checkpoint,
        print,
    } = asked;
    let started = std::time::Instant::now();
    let found = Located {
        name: cx.job.name.clone(),
        path: checkpoint,
        within: None,
        tokenizer: tokenizer_of(cx)?,
        devices: crate::devices::of(&cx.job),
    };
    let files = ModelFiles::read(found, None)?;
    let args = SamplingArgs::default();
    let mut engine = args.engine(&files)?;
    let (mut texts, mut prompts) = (Vec::new(), Vec::new());
    for prompt in kept {
        texts.push((prompt.text, Some(prompt.answer)));
        prompts.push(prompt.ids);
    }
    let finetune = cx.job.finetune.as_ref();
    let tasks = finetune.and_then(|finetune| finetune.task_templates(cx.job.model.as_ref()));
    let encoding = Encoding {
        tokenizer: &files.tokenizer,
        template: files.chat_template.as_ref(),
        markers: tasks.as_ref().map_or(&[], TaskTemplates::markers),
        answer_only: true,
    };
    for prompt in &table.prompts {
        let (text, ids) = match is_tuned {
            true => encoding.said(prompt).map_err(anyhow::Error::msg)?,
            false => (prompt.clone(), ids_of(&files, prompt, true, &[])?),
        };
        texts.push((text, None));
        prompts.push(ids);
    }
    let prompts = (0u32..).zip(prompts).map(|(number, ids)| {
        let seed = cx.job.seed.wrapping_add(number);
        let mut options = options(&table, seed, &files);
        if ids.iter().any(|id| is_virtual(*id)) {
            // a text with virtual tokens in it does not lose its beginning where it becomes too long
            let text = ids.iter().filter(|id| !is_virtual(**id)).count();
            let room = engine.max_length().saturating_sub(text);
            options.max_tokens = options.max_tokens.min(room);
        }
        (ids, options)
    });
    let prompts = prompts.collect();
    let answers = answer(&mut engine, &files, &args, prompts, &mut |_, _| Ok(()))?;
    let mut samples = Vec::new();
    for ((prompt, wanted), Answer { text, .. }) in texts.iter().zip(answers) {
        log!("generate: {prompt}{}", text.replace('\n', "\n  "));
        let mut sample = json!({"prompt": prompt, "text": text});
        if let Some(wanted) = wanted {
            sample["answer_of_data"] = json!(wanted);
        }
        samples.push(sample);
    }
    let text = format!("{:#}\n", json!({"samples": samples}));
    cx.accept()?;
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

/// The prompts of a job and the checkpoint that continues them.
struct Asked {
    table: Generate,
    kept: Vec<Prompt>,
    checkpoint: PathBuf,
    /// Fingerprint of all of them.
    print: String,
}

impl Asked {
    fn of(cx: &Context) -> Result<Asked> {
        let is_tuned = cx.job.finetune.is_some();
        let table = match &cx.job.generate {
            Some(table) => table.clone(),
            None if is_tuned => Generate {
                prompts: Vec::new(),
                ..Generate::default()
            },
            None => return Err(WrongUse::new("the job has no [generate] table").into()),
        };
        let kept = match is_tuned {
            true => kept_prompts(&cx.out)?,
            false => Vec::new(),
        };
        let checkpoint = newest_checkpoint(&cx.out, "generate")?;
        let print = fingerprint(&json!([
            table,
            cx.job.seed,
            identity(&checkpoint.join("state.json")),
            kept.iter().map(|prompt| &prompt.ids).collect::<Vec<_>>()
        ]));
        Ok(Asked {
            table,
            kept,
            checkpoint,
            print,
        })
    }
}

/// The decision of the stage if the checkpoints stay as they are.
///
/// # Errors
/// No checkpoint, or none that is whole.
pub(super) fn decision(cx: &Context) -> Result<Decision> {
    let asked = Asked::of(cx)?;
    if cx.done("generate", &asked.print)?.is_some() {
        return Ok(Decision::skip("generate"));
    }
    Ok(of_run(cx, Vec::new()))
}

/// The decision to run for these reasons.
pub(super) fn of_run(cx: &Context, mut reasons: Vec<Reason>) -> Decision {
    let changed = setting_changes::of(&cx.job, &cx.out);
    let changed = setting_changes::within(&changed, &["generate", "seed"]);
    reasons.extend(changed.into_iter().map(Reason::other));
    if reasons.is_empty() {
        let text = "its texts are not those of the newest checkpoint";
        reasons.push(Reason::perhaps(text));
    }
    let mut decision = Decision::run("generate", reasons);
    decision.replaces = files_there(&cx.out, std::iter::once("generated.json".into()));
    decision
}

/// Ids of a prompt; an empty one starts a document. A job's tokenizer adds nothing to a text, as in training, but to one with markers
/// of virtual tokens, as in training with a task template.
fn ids_of(
    files: &ModelFiles,
    prompt: &str,
    is_job: bool,
    markers: &[TaskMarkers],
) -> Result<Vec<u32>> {
    let tokenizer = &files.tokenizer;
    if !markers.is_empty() && has_marker(prompt) {
        return encode_marked(tokenizer, prompt, true, markers);
    }
    let mut ids = match is_job {
        true => encode_with_sentinels(tokenizer, prompt)?,
        false => encode(tokenizer, prompt, true)?,
    };
    if ids.is_empty() {
        ids.extend(files.start);
    }
    if ids.is_empty() {
        bail!("an empty prompt needs an end-of-document token to start from");
    }
    Ok(ids)
}

/// The verb.
pub(crate) fn generate(args: &GenerateArgs) -> Result<()> {
    let path = args.model.as_ref().or(args.checkpoint.as_ref());
    let path = path.context("generate needs a job file, a checkpoint, or a Hugging Face folder")?;
    let is_job = path.extension().is_some_and(|ending| ending == "toml");
    let (table, seed) = match is_job {
        true => {
            let job = crate::job::load(path, &args.set)?;
            (job.generate.clone().unwrap_or_default(), job.seed)
        }
        false => (Generate::default(), 1234),
    };
    let of_table = numbers(&table, seed);
    // before a model is read
    args.sampling.check(&of_table)?;
    let found = Located::find(path, &args.set, args.tokenizer.as_deref(), "generate")?;
    let files = ModelFiles::read(found, None)?;
    let texts = match &args.prompts {
        Some(file) => read_prompts(file)?,
        None if args.prompt.is_empty() => table.prompts.clone(),
        None => args.prompt.clone(),
    };
    let mut engine = args.sampling.engine(&files)?;
    let (mut prompts, markers) = (Vec::new(), engine.markers());
    for (number, text) in (0u32..).zip(&texts) {
        let ids = ids_of(&files, text, is_job, &markers);
        let ids = ids.with_context(|| format!("prompt {}", number + 1))?;
        let found = ids.iter().filter(|id| !is_virtual(**id)).count();
        let limit = engine.max_length();
        if found > limit && !engine.is_encoder_decoder() {
            log!(
                "generate: prompt {} has {found} tokens; the model sees the newest {limit} of them",
                number + 1
            );
        }
        prompts.push((ids, args.sampling.options(&of_table, &files)));
    }
    if let Some(width) = args.beam_width {
        return beams(
            &mut engine,
            &files,
            (args, width),
            texts.into_iter().zip(prompts),
        );
    }
    let mut asked = Vec::new();
    for (prompt, options) in prompts {
        for _ in 0..args.samples {
            let number = asked.len() as u64;
            let options = GenerateOptions {
                seed: options.seed.wrapping_add(number),
                logprobs: args.logprobs,
                ..options.clone()
            };
            asked.push((prompt.clone(), options));
        }
    }
    let mut shown = Shown {
        texts: &texts,
        samples: args.samples,
        whole: 0,
        waiting: BTreeMap::new(),
    };
    let answers = answer(
        &mut engine,
        &files,
        &args.sampling,
        asked,
        &mut |number, text| match args.json {
            true => Ok(()),
            false => shown.add(number, text),
        },
    )?;
    if args.json {
        for (number, answer) in answers.iter().enumerate() {
            print(&line(&texts[number / args.samples], answer))?;
        }
    }
    Ok(())
}

/// Answers on standard output in the order of their prompts: the first that is not complete streams.
struct Shown<'a> {
    texts: &'a [String],
    samples: usize,
    /// Answers shown as a whole.
    whole: usize,
    /// Prompt and text of later answers so far, and whether they are complete.
    waiting: BTreeMap<usize, (String, bool)>,
}

impl Shown<'_> {
    /// Adds text to an answer, or ends it.
    fn add(&mut self, number: usize, text: Option<&str>) -> Result<()> {
        let prompt = &self.texts[number / self.samples];
        let of = self.waiting.entry(number);
        let (held, is_complete) = of.or_insert_with(|| (prompt.clone(), false));
        match text {
            Some(text) => held.push_str(text),
            None => *is_complete = true,
        }
        while let Some((held, is_complete)) = self.waiting.get_mut(&self.whole) {
            print(&std::mem::take(held))?;
            if !*is_complete {
                break;
            }
            print("\n")?;
            self.whole += 1;
        }
        Ok(())
    }
}

/// A line of JSON.
fn line(prompt: &str, answer: &Answer) -> String {
    let mut line = json!({
        "prompt": prompt, "text": answer.text, "tokens": answer.tokens,
        "finish_reason": answer.finish_reason,
    });
    if !answer.scored.is_empty() {
        line["logprobs"] = answer.logprobs();
    }
    format!("{line}\n")
}

/// The likeliest answers of each prompt, best first.
fn beams(
    engine: &mut Engine,
    files: &ModelFiles,
    (args, width): (&GenerateArgs, usize),
    prompts: impl Iterator<Item = (String, (Vec<u32>, GenerateOptions))>,
) -> Result<()> {
    let prompts = prompts.map(|(text, (ids, options))| {
        let options = BeamOptions {
            width,
            max_tokens: options.max_tokens,
            stop: files.end_ids.first().copied(),
            length_penalty: args.length_penalty,
        };
        (text, ids, options)
    });
    let prompts: Vec<(String, Vec<u32>, BeamOptions)> = prompts.collect();
    // all of them before the first answer
    for (number, (_, ids, options)) in prompts.iter().enumerate() {
        let checked = engine.check(&options.whole(ids));
        checked.with_context(|| format!("prompt {}", number + 1))?;
    }
    for (text, ids, options) in prompts {
        for beam in beam_search(engine, &ids, &options)? {
            let answer = files.tokenizer.decode_text(&beam.tokens)?;
            print(&match args.json {
                true => format!(
                    "{}\n",
                    json!({"prompt": text, "text": answer, "tokens": beam.tokens, "score": beam.score})
                ),
                false => format!("{:.4} {text}{answer}\n", beam.score),
            })?;
        }
    }
    Ok(())
}

/// Prompts of a file, or of standard input.
fn read_prompts(path: &Path) -> Result<Vec<String>> {
    let name = || path.display().to_string();
    let text = if path == Path::new("-") {
        let mut text = String::new();
        std::io::stdin()
            .read_to_string(&mut text)
            .with_context(name)?;
        text
    } else {
        std::fs::read_to_string(path).with_context(name)?
    };
    let is_json = path.extension().is_some_and(|ending| ending == "jsonl");
    let mut prompts = Vec::new();
    for (number, line) in text.lines().enumerate() {
        if !is_json {
            prompts.push(line.to_owned());
            continue;
        }
        let at = || format!("{}, line {}", path.display(), number + 1);
        let row: Value = serde_json::from_str(line).with_context(at)?;
        let found = row["prompt"].as_str();
        let prompt = found.with_context(|| format!("{}: no text under `prompt`", at()))?;
        prompts.push(prompt.to_owned());
    }
    if prompts.is_empty() {
        bail!("{}: found no prompts", path.display());
    }
    Ok(prompts)
}
