//! Samples of `[finetune]`: conversations as tokens, packed, in the order of the epochs.

use super::epochs::Epochs;
use super::prompt_ids::init_ids;
use super::set_names::set_name;
use crate::context::Context;
use crate::conversations::{
    Encoding, LeftOut, Prompt, Read, Reading, Tokens, is_answer, pack, read,
};
use crate::generation::{ChatTemplate, Located, ModelFiles, tokenizer_path};
use crate::job::{BadRows, FinetuneTable, TaskTemplates, TooLong};
use crate::machine::{grouped, write_atomically};
use crate::manifest;
use anyhow::{Context as _, Result, bail};
use index::tokenizer::Tokenizer;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use train::config::{Plan, TrainConfig};
use train::data::{Pair, Sample, Samples, virtual_tokens};
use train::dist::Devices;

/// Bad rows that a refusal names.
const NAMED: usize = 10;

/// The files of a fine-tuning model: tokenizer, template, ids that end a text.
pub(super) fn files(cx: &Context, table: &FinetuneTable) -> Result<ModelFiles> {
    let train = cx.job.train.as_ref();
    let source = train.map_or("", |train| train.init_from.as_str());
    let own = match table.tokenizer.as_os_str().is_empty() {
        false => Some(Tokenizer::load(&table.tokenizer)?),
        true if cx.job.tokenize.is_some() => Some(crate::generation::tokenizer_of(cx)?),
        true => None,
    };
    let located = match own {
        Some(tokenizer) => Located {
            name: cx.job.name.clone(),
            path: PathBuf::from(source),
            within: None,
            tokenizer,
            devices: Devices::Cpu,
        },
        None => {
            let found = Located::find(Path::new(source), &[], None, "finetune");
            found.context(
                "finetune.tokenizer names no file, and none was found by train.init_from",
            )?
        }
    };
    let built_in = ChatTemplate::built_in(&table.chat_template);
    let named = !table.chat_template.is_empty() && built_in.is_none();
    let file = named.then(|| Path::new(&table.chat_template));
    let mut files = ModelFiles::read(located, file).with_context(|| match named {
        true => "finetune.chat_template",
        false => "finetune.tokenizer",
    })?;
    if let Some(source) = built_in {
        let template = ChatTemplate::new(source, files.bos.clone(), files.eos.clone());
        files.chat_template = Some(template?);
    }
    Ok(files)
}

/// Conversations of some files, packed.
pub(super) struct ChatSet {
    tokens: Arc<Tokens>,
    /// Conversations of each sample, or comparisons of two.
    samples: Arc<Vec<Vec<u32>>>,
    /// Conversations of a row: two of a comparison, the chosen one and the rejected one.
    of_row: usize,
    /// Training goes over the samples again and again.
    epochs: Option<Epochs>,
    /// Each sample once, if training goes over them again and again.
    once: Option<Box<ChatSet>>,
    /// Id after the last conversation of a sample.
    pad: u32,
    /// Virtual tokens in front of each conversation.
    virtual_tokens: usize,
}

impl ChatSet {
    /// The samples again and again, in the order of these epochs.
    fn repeated(self, epochs: Epochs) -> ChatSet {
        ChatSet {
            tokens: self.tokens.clone(),
            samples: self.samples.clone(),
            of_row: self.of_row,
            epochs: Some(epochs),
            pad: self.pad,
            virtual_tokens: self.virtual_tokens,
            once: Some(Box::new(self)),
        }
    }
}

impl Samples for ChatSet {
    fn len(&self) -> u64 {
        match &self.epochs {
            Some(_) => u64::MAX, // epoch after epoch
            None => self.samples.len() as u64,
        }
    }

    fn read(
        &self,
        index: u64,
        sample: &mut Sample,
    ) -> std::result::Result<(), Box<dyn std::error::Error + Send + Sync>> {
        let number = match &self.epochs {
            Some(epochs) => epochs.at(index, self.samples.len()),
            None => usize::try_from(index)?,
        };
        let to = sample.text()?;
        let (inputs, mut from) = (to.counts.len(), 0);
        to.counts.fill(false);
        let rows = self.samples[number].iter().map(|&row| row as usize);
        if self.of_row == 2 {
            to.pairs
                .extend(rows.clone().map(|row| Pair::numbered(row as u64)));
        }
        for conversation in rows.flat_map(|row| row * self.of_row..(row + 1) * self.of_row) {
            let before = virtual_tokens(self.virtual_tokens);
            from += before.len();
            for (to, id) in to.tokens[from - before.len()..].iter_mut().zip(before) {
                *to = id;
            }
            for (at, &token) in self.tokens.of(conversation).iter().enumerate() {
                let (id, counts) = is_answer(token);
                to.tokens[from + at] = id;
                // the first token of a sample is never predicted
                if at > 0 || self.virtual_tokens > 0 {
                    to.counts[from + at - 1] = counts;
                }
            }
            from += self.tokens.of(conversation).len();
            to.ends.push(from.min(inputs));
        }
        to.tokens[from..].fill(self.pad);
        Ok(())
    }

    fn pairs(&self) -> Option<&dyn Samples> {
        match &self.once {
            _ if self.of_row < 2 => None,
            Some(once) => Some(once.as_ref()),
            None => Some(self),
        }
    }
}

/// The data of `[finetune]`.
pub(super) struct ChatData {
    train: ChatSet,
    pub valid: Vec<(String, ChatSet)>,
    files: ModelFiles,
    left_out: String,
    prompts: Vec<Prompt>,
    /// Settings and identities that fix the order of the samples.
    pub order: Value,
    /// Samples of an epoch.
    epoch: u64,
}

impl ChatData {
    /// Reads and tokenizes all files.
    ///
    /// # Errors
    /// Files that cannot be read; rows that are refused, with file and row; fewer samples than a batch.
    pub(super) fn open(cx: &Context, table: &FinetuneTable) -> Result<ChatData> {
        let files = files(cx, table)?;
        let tasks = table.task_templates(cx.job.model.as_ref());
        let mut reader = SetReader {
            table,
            files: &files,
            virtual_tokens: table.virtual_tokens(cx.job.model.as_ref()),
            tasks: tasks.as_ref(),
            left_out: String::new(),
        };
        // answers of the model are wanted for conversations that it has not seen, if there are any
        let (of_train, of_valid) = match table.valid.is_empty() {
            true => (table.samples, 0),
            false => (0, table.samples),
        };
        let (train, mut prompts) = reader.set(&table.train, of_train)?;
        let mut valid: Vec<(String, ChatSet)> = Vec::new();
        for path in &table.valid {
            let wanted = if valid.is_empty() { of_valid } else { 0 };
            let (set, own) = reader.set(std::slice::from_ref(path), wanted)?;
            prompts.extend(own);
            let name = set_name("finetune.valid", &valid, path)?;
            valid.push((name, set));
        }
        let batch = cx.job.train.as_ref().map_or(1, |train| train.global_batch);
        let (samples, batch) = (train.samples.len() as u64, batch.max(1) as u64);
        let whole = samples - samples % batch;
        if whole == 0 {
            bail!(
                "finetune.train: found {samples} samples of {} rows, want at least the {batch} of a step (train.global_batch)",
                train.tokens.len() / train.of_row
            );
        }
        let seed = u64::from(cx.job.seed);
        let train = train.repeated(Epochs::of(seed, whole));
        let [all, answers] = train.tokens.counts();
        let kind = reader.of_rows();
        info!(
            "finetune: {} {kind} of {} tokens, {} of them of answers, in {} samples; {} sets to validate",
            grouped((train.tokens.len() / train.of_row) as u64),
            grouped(all as u64),
            grouped(answers as u64),
            grouped(samples),
            valid.len()
        );
        let without = answers_without_end(&train.tokens, &files);
        if without * 2 > train.tokens.len() {
            log!(
                "finetune: note: {} of {} {} end with no token that ends a text, and a model that learns from them does not stop by itself; \
                 finetune.chat_template should write one behind each answer, such as {:?}",
                grouped(without as u64),
                grouped(train.tokens.len() as u64),
                if table.answer_only_loss {
                    "last answers"
                } else {
                    "conversations"
                },
                files.eos.as_deref().unwrap_or("<|im_end|>")
            );
        }
        let order = json!({
            "data": train.tokens.digest(), "conversations": train.tokens.len(), "epoch": whole,
            "seq_length": table.seq_length, "packing": table.packing, "seed": seed,
            "tokenizer": files.tokenizer.identity(),
        });
        let left_out = reader.left_out;
        Ok(ChatData {
            train,
            valid,
            files,
            left_out,
            prompts,
            order,
            epoch: whole,
        })
    }

    pub(super) fn train(&self) -> &ChatSet {
        &self.train
    }

    /// The plan of this job: `[train]` with the steps and validations of the epochs.
    pub(super) fn plan(&self, cx: &Context, table: &FinetuneTable) -> Result<Plan> {
        let (Some(model), Some(train)) = (&cx.job.model, &cx.job.train) else {
            bail!("the job has no [model] or no [train] table");
        };
        let steps = self.epoch / train.global_batch.max(1) as u64;
        let train: TrainConfig = table.schedule(train, steps.max(1));
        // published models have more embedding rows than their tokenizers have ids
        let found = cx.job.initial_model().and_then(Result::ok);
        let rows = found.map_or(0, |found| found.vocab);
        let ids = (self.files.tokenizer.vocab().max(rows), None);
        let print = manifest::fingerprint(&self.order);
        let mut plan = cx.job.plan(model, &train, table.seq_length, ids, print);
        if let Some(prompt) = &mut plan.model.prompt {
            let ids = init_ids(&self.files, table, prompt)?;
            prompt.init_ids.extend(ids);
        }
        Ok(plan)
    }

    /// Writes the files around the model to where the checkpoints' readers look for them, the rows that are left out, and the
    /// prompts for `generate`.
    pub(super) fn keep_files(&self, cx: &Context) -> Result<()> {
        let path = tokenizer_path(cx);
        let beside = path.parent().unwrap_or(Path::new(""));
        let own = cx.out.join(FOLDER);
        for folder in [beside, &own] {
            std::fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
        }
        let tokenizer = &self.files.tokenizer;
        write_atomically(&path, tokenizer.json().as_bytes())?;
        let source = tokenizer.path().parent().unwrap_or(Path::new(""));
        let config = source.join("tokenizer_config.json");
        let to = beside.join("tokenizer_config.json");
        match &self.files.config_within {
            Some(within) => write_atomically(&to, format!("{within:#}\n").as_bytes())?,
            None if config.is_file() && config != to => {
                let bytes = std::fs::read(&config).with_context(|| config.display().to_string())?;
                write_atomically(&to, &bytes)?;
            }
            None => {}
        }
        if let Some(template) = &self.files.chat_template {
            let path = beside.join("chat_template.jinja");
            write_atomically(&path, template.source().as_bytes())?;
        }
        let mut ends = self.files.end_ids.clone();
        ends.extend(self.end_of_answers());
        ends.sort_unstable();
        ends.dedup();
        let config = format!("{}\n", json!({ "eos_token_id": ends }));
        write_atomically(&beside.join("generation_config.json"), config.as_bytes())?;
        write_atomically(&own.join("left_out.jsonl"), self.left_out.as_bytes())?;
        let prompts: Vec<Value> = (self.prompts.iter())
            .map(|prompt| json!({"text": prompt.text, "ids": prompt.ids, "answer": prompt.answer}))
            .collect();
        write_atomically(
            &own.join(PROMPTS),
            format!("{}\n", json!(prompts)).as_bytes(),
        )
    }

    /// The special token that ends every answer, if one does.
    fn end_of_answers(&self) -> Option<u32> {
        let tokens = &self.train.tokens;
        let mut ends = (0..tokens.len()).filter_map(|number| {
            let own = tokens.of(number).iter();
            own.rev()
                .map(|token| is_answer(*token))
                .find(|(_, is_answer)| *is_answer)
        });
        let (first, _) = ends.next()?;
        let is_special = self
            .files
            .tokenizer
            .decode_text(&[first])
            .is_ok_and(|text| text.is_empty());
        (is_special && ends.all(|(end, _)| end == first)).then_some(first)
    }
}

/// Last tokens that count of a conversation, among which the one that ends it is looked for: white space may follow.
const LAST: usize = 3;

/// Conversations whose last tokens that count have no special token and none after which a text ends.
fn answers_without_end(tokens: &Tokens, files: &ModelFiles) -> usize {
    let mut known: HashMap<u32, bool> = HashMap::new();
    let mut ends = |id: u32| {
        *known.entry(id).or_insert_with(|| {
            let text = || files.tokenizer.decode_text(&[id]);
            files.end_ids.contains(&id)
                || files.tokenizer.end_of_document() == Some(id)
                || text().is_ok_and(|text| text.is_empty())
        })
    };
    let has_none = |number: &usize| {
        let own = tokens.of(*number).iter().rev();
        let own = own.map(|token| is_answer(*token));
        let counted = own.filter(|(_, counts)| *counts).take(LAST);
        !counted.into_iter().any(|(id, _)| ends(id))
    };
    (0..tokens.len()).filter(has_none).count()
}

/// Folder of the files that a fine-tuning writes about its data.
const FOLDER: &str = "finetune";
const PROMPTS: &str = "prompts.json";

/// The prompts that a fine-tuning of this job kept; none if there are none.
///
/// # Errors
/// A file that is not as it was written.
pub(super) fn kept_prompts(out: &Path) -> Result<Vec<Prompt>> {
    let path = out.join(FOLDER).join(PROMPTS);
    if !path.exists() {
        return Ok(Vec::new());
    }
    let of = || path.display().to_string();
    let text = std::fs::read_to_string(&path).with_context(of)?;
    let list: Vec<Value> = serde_json::from_str(&text).with_context(of)?;
    let prompt = |value: &Value| {
        let text = |key: &str| value[key].as_str().map(str::to_owned);
        let ids = value["ids"].as_array()?.iter();
        let ids = ids.map(|id| u32::try_from(id.as_u64()?).ok());
        Some(Prompt {
            text: text("text")?,
            ids: ids.collect::<Option<_>>()?,
            answer: text("answer")?,
        })
    };
    let prompts: Option<_> = list.iter().map(prompt).collect();
    prompts.with_context(|| format!("{}: it was not written by this program", of()))
}

/// Reads sets and records the rows that they leave out.
struct SetReader<'a> {
    table: &'a FinetuneTable,
    files: &'a ModelFiles,
    /// Virtual tokens in front of each conversation.
    virtual_tokens: usize,
    /// Make texts of rows that are no conversations.
    tasks: Option<&'a TaskTemplates>,
    /// Lines of `left_out.jsonl`.
    left_out: String,
}

impl SetReader<'_> {
    /// The conversations of some files, and the first `prompts` of them to answer.
    fn set(&mut self, paths: &[PathBuf], prompts: usize) -> Result<(ChatSet, Vec<Prompt>)> {
        let (table, files, tasks) = (self.table, self.files, self.tasks);
        let before = self.virtual_tokens;
        let of_row = if table.has_pairs() { 2 } else { 1 };
        let reading = Reading {
            encoding: Encoding {
                tokenizer: &files.tokenizer,
                template: files.chat_template.as_ref(),
                markers: tasks.map_or(&[], TaskTemplates::markers),
                answer_only: table.answer_only_loss,
            },
            format: table.format,
            tasks,
            is_pairs: table.has_pairs(),
            too_long: table.too_long,
            most: (table.seq_length + 1).saturating_sub(of_row * before),
            prompts,
        };
        let mut found = Read::default();
        for path in paths {
            read(path, &reading, &mut found)?;
            self.leave_out(path, &std::mem::take(&mut found.left_out))?;
        }
        let lengths = found.tokens.lengths();
        let lengths: Vec<usize> = (lengths.chunks(of_row))
            .map(|row| row.iter().map(|length| length + before).sum())
            .collect();
        let samples = match table.packing {
            true => pack(&lengths, table.seq_length + 1),
            false => (0..u32::try_from(lengths.len())?)
                .map(|n| vec![n])
                .collect(),
        };
        let special = files.tokenizer.special();
        let pad = special.pad.or(files.tokenizer.end_of_document());
        let set = ChatSet {
            tokens: Arc::new(found.tokens),
            samples: Arc::new(samples),
            of_row,
            epochs: None,
            once: None,
            pad: pad.unwrap_or(0),
            virtual_tokens: before,
        };
        Ok((set, found.prompts))
    }

    /// The texts that rows should be.
    fn of_rows(&self) -> &'static str {
        match (self.table.has_pairs(), self.tasks.map(TaskTemplates::names)) {
            (true, _) => "pairs",
            (false, Some(names)) if names.len() > 1 => "texts of the task templates",
            (false, Some(_)) => "texts of the task template",
            (false, None) => "conversations",
        }
    }

    /// Records rows, or refuses them.
    fn leave_out(&mut self, path: &Path, rows: &[LeftOut]) -> Result<()> {
        let table = self.table;
        for (kind, key, is_refused) in [
            (false, "bad_rows", table.bad_rows == BadRows::Refuse),
            (true, "too_long", table.too_long == TooLong::Refuse),
        ] {
            let rows: Vec<&LeftOut> = rows.iter().filter(|row| row.is_too_long == kind).collect();
            if rows.is_empty() {
                continue;
            }
            let what = match (kind, self.of_rows()) {
                (true, _) => "too long".to_owned(),
                (false, of) => format!("no {of}"),
            };
            let name = path.display();
            if !is_refused {
                log!(
                    "finetune: {name}: {} rows are {what} and left out; finetune/left_out.jsonl names them",
                    grouped(rows.len() as u64)
                );
                continue;
            }
            let mut text = format!("{name}: {} rows are {what}:", rows.len());
            for row in rows.iter().take(NAMED) {
                write!(text, "\n  row {}: {}", row.row, row.reason)?;
            }
            if rows.len() > NAMED {
                write!(text, "\n  and {} more", rows.len() - NAMED)?;
            }
            bail!("{text}\nfinetune.{key} = \"drop\" leaves them out");
        }
        for row in rows {
            let line = json!({"file": path, "row": row.row, "reason": row.reason});
            writeln!(self.left_out, "{line}")?;
        }
        Ok(())
    }
}
