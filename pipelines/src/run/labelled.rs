//! Samples of `[classify]`: labelled texts as tokens, in Megatron's form and order.
//!
//! A masked model reads `[CLS] A [SEP] B [SEP]`, the first three in segment 0, the others in segment 1; what is too long
//! loses its end but not the last `[SEP]`. A decoder reads A, the token that ends documents, B, and that token again, from
//! whose row it classifies. Source: Megatron-LM core_v0.7.0 `tasks/data_utils.py`. Epoch e of training takes questions in
//! the order of torch's randperm seeded with the job's seed + e, as its DistributedSampler on one rank, and leaves out
//! what does not fill a batch.

use super::epochs::Epochs;
use super::set_names::set_name;
use crate::context::Context;
use crate::generation::tokenizer_of;
use crate::job::{ClassifyTable, ClassifyTask};
use crate::machine::write_atomically;
use crate::manifest;
use crate::tasks::{Question, Questions, read_questions};
use anyhow::{Context as _, Result, bail};
use index::tokenizer::Tokenizer;
use rayon::prelude::*;
use serde_json::{Value, json};
use std::path::Path;
use std::sync::Arc;
use train::config::{Plan, TrainConfig};
use train::data::{LabelledSample, Sample, Samples};

/// The tokens around two texts, and the length of the whole.
#[derive(Clone, Copy, Debug)]
pub(super) struct Form {
    /// In front of a masked model's texts.
    begin: Option<u32>,
    /// After each text.
    end: u32,
    seq_length: usize,
    /// Most tokens of the first of two texts, if it has a limit.
    first_length: usize,
}

impl Form {
    /// For a model of `plan`'s kind.
    ///
    /// # Errors
    /// A vocabulary without these tokens.
    pub(super) fn of(
        is_masked: bool,
        tokenizer: &Tokenizer,
        seq_length: usize,
        first_length: usize,
    ) -> Result<Form> {
        let special = tokenizer.special();
        let (begin, end) = match is_masked {
            true => (special.cls.or(special.bos), special.sep.or(special.eos)),
            false => (None, tokenizer.end_of_document()),
        };
        let path = tokenizer.path().display();
        if is_masked && begin.is_none() {
            bail!("{path}: found no CLS token, want one in front of two texts");
        }
        let what = if is_masked {
            "SEP token"
        } else {
            "token that ends documents"
        };
        let end =
            end.with_context(|| format!("{path}: found no {what}, want one after each text"))?;
        Ok(Form {
            begin,
            end,
            seq_length,
            first_length,
        })
    }

    /// Puts two texts into a sample.
    fn fill(&self, first: &[u32], second: &[u32], to: &mut LabelledSample) {
        let end = std::iter::once((self.end, 0));
        let first = first.iter().map(|id| (*id, 0));
        let second = second.iter().map(|id| (*id, 1));
        let begin = self.begin.into_iter().map(|id| (id, 0));
        let whole = begin.chain(first).chain(end).chain(second);
        let whole = whole.take(self.seq_length - 1);
        to.length = 0;
        for (id, segment) in whole.chain(std::iter::once((self.end, 1))) {
            (to.tokens[to.length], to.segments[to.length]) = (id, segment);
            to.length += 1;
        }
        to.tokens[to.length..].fill(0);
        to.segments[to.length..].fill(0);
    }
}

/// A question as tokens.
struct Encoded {
    firsts: Vec<Vec<u32>>,
    /// Number of its second text.
    second: usize,
    label: u32,
}

/// The questions of a file, or of several.
pub(super) struct LabelledSet {
    form: Form,
    /// Sequences of a question.
    choices: usize,
    seconds: Vec<Vec<u32>>,
    questions: Vec<Encoded>,
    /// Training goes over the questions again and again.
    epochs: Option<Epochs>,
}

impl LabelledSet {
    /// Tokenizes questions.
    ///
    /// # Errors
    /// Errors of the tokenizer.
    pub(super) fn encode(
        questions: &[&Question],
        tokenizer: &Tokenizer,
        form: Form,
    ) -> Result<LabelledSet> {
        let mut seconds: Vec<&Arc<str>> = Vec::new();
        let mut numbers = Vec::with_capacity(questions.len());
        for question in questions {
            // questions about one text follow each other
            match seconds.last() {
                Some(last) if Arc::ptr_eq(last, &question.second) => {}
                _ => seconds.push(&question.second),
            }
            numbers.push(seconds.len() - 1);
        }
        let ids = |text: &str| tokenizer.encode(text);
        let encoded: index::Result<Vec<Vec<u32>>> =
            seconds.par_iter().map(|text| ids(text)).collect();
        let seconds = encoded?;
        let all: index::Result<Vec<Encoded>> = questions
            .par_iter()
            .zip(&numbers)
            .map(|(question, second)| {
                let first = |text: &String| {
                    let mut ids = ids(text)?;
                    ids.truncate(form.first_length);
                    Ok(ids)
                };
                Ok(Encoded {
                    firsts: question
                        .firsts
                        .iter()
                        .map(first)
                        .collect::<index::Result<_>>()?,
                    second: *second,
                    label: u32::try_from(question.label).unwrap_or(u32::MAX),
                })
            })
            .collect();
        let questions = all?;
        Ok(LabelledSet {
            form,
            choices: questions.first().map_or(1, |first| first.firsts.len()),
            seconds,
            questions,
            epochs: None,
        })
    }

    /// A digest of all tokens and labels in order.
    fn digest(&self) -> String {
        let mut hash = xxhash_rust::xxh3::Xxh3Default::new();
        let mut add = |ids: &[u32]| {
            hash.update(&(ids.len() as u64).to_le_bytes());
            ids.iter().for_each(|id| hash.update(&id.to_le_bytes()));
        };
        for question in &self.questions {
            add(&[question.label]);
            question.firsts.iter().for_each(|ids| add(ids));
            add(&self.seconds[question.second]);
        }
        format!("{:016x}", hash.digest())
    }
}

impl Samples for LabelledSet {
    fn len(&self) -> u64 {
        match &self.epochs {
            Some(_) => u64::MAX, // epoch after epoch
            None => (self.questions.len() * self.choices) as u64,
        }
    }

    fn read(
        &self,
        index: u64,
        sample: &mut Sample,
    ) -> std::result::Result<(), Box<dyn std::error::Error + Send + Sync>> {
        let choices = self.choices as u64;
        let place = index / choices;
        let number = match &self.epochs {
            Some(epochs) => epochs.at(place, self.questions.len()),
            None => usize::try_from(place)?,
        };
        let to = sample.labelled()?;
        let question = &self.questions[number];
        let first = &question.firsts[usize::try_from(index % choices)?];
        self.form.fill(first, &self.seconds[question.second], to);
        to.label = question.label;
        Ok(())
    }
}

/// The tokenizer of `[classify]`.
fn tokenizer(cx: &Context, table: &ClassifyTable) -> Result<Tokenizer> {
    match table.tokenizer.as_os_str().is_empty() {
        true => tokenizer_of(cx).context("classify.tokenizer names no file"),
        false => Ok(Tokenizer::load(&table.tokenizer)?),
    }
}

/// Longest first text: only RACE's has a limit.
pub(super) fn first_length(task: ClassifyTask, limit: usize) -> usize {
    match task {
        ClassifyTask::Race => limit,
        ClassifyTask::Mnli | ClassifyTask::Qqp => usize::MAX,
    }
}

/// The data of `[classify]`.
pub(super) struct LabelledData {
    train: LabelledSet,
    pub valid: Vec<(String, LabelledSet)>,
    vocab: usize,
    /// Settings and identities that fix the order of the samples.
    pub order: Value,
    /// Sequences of an epoch.
    epoch: u64,
}

impl LabelledData {
    /// Reads and tokenizes all files.
    ///
    /// # Errors
    /// Files or rows that do not fit, with file, row and column; fewer questions than a batch.
    pub(super) fn open(cx: &Context, table: &ClassifyTable) -> Result<LabelledData> {
        let tokenizer = tokenizer(cx, table)?;
        let model = cx.job.model.as_ref();
        let model = model.context("the job has no [model] table")?;
        let limit = first_length(table.task, table.question_length);
        let is_masked = model.family == train::config::Family::Bert;
        let form = Form::of(is_masked, &tokenizer, table.seq_length, limit)?;
        let read = |path: &std::path::PathBuf| read(table.task, path);
        let files: Vec<Questions> = table.train.iter().map(read).collect::<Result<_>>()?;
        let all: Vec<&Question> = files.iter().flat_map(|file| &file.all).collect();
        let mut train = LabelledSet::encode(&all, &tokenizer, form)?;
        let mut valid: Vec<(String, LabelledSet)> = Vec::new();
        for path in &table.valid {
            let questions = self::read(table.task, path)?;
            let all: Vec<&Question> = questions.all.iter().collect();
            let set = LabelledSet::encode(&all, &tokenizer, form)?;
            let name = set_name("classify.valid", &valid, path)?;
            valid.push((name, set));
        }
        let batch = cx.job.train.as_ref().map_or(1, |train| train.global_batch);
        let questions = train.questions.len() as u64;
        let batch = (batch / train.choices).max(1) as u64;
        let whole = questions - questions % batch;
        if whole == 0 {
            bail!(
                "classify.train: found {questions} questions, want at least the {batch} of a step"
            );
        }
        let seed = u64::from(cx.job.seed);
        let order = json!({
            "task": table.task, "data": train.digest(), "questions": questions, "epoch": whole,
            "seq_length": table.seq_length, "question_length": table.question_length, "seed": seed,
            "tokenizer": tokenizer.identity(),
        });
        log!(
            "classify: {} training questions of {}, {} sets to validate",
            crate::machine::grouped(questions),
            table.task.name(),
            valid.len()
        );
        let epoch = whole * train.choices as u64;
        train.epochs = Some(Epochs::of(seed, whole));
        Ok(LabelledData {
            train,
            valid,
            vocab: tokenizer.vocab(),
            order,
            epoch,
        })
    }

    pub(super) fn train(&self) -> &LabelledSet {
        &self.train
    }

    /// The plan of this job: `[train]` with the steps and validations of the epochs.
    pub(super) fn plan(&self, cx: &Context, table: &ClassifyTable) -> Result<Plan> {
        let (Some(model), Some(train)) = (&cx.job.model, &cx.job.train) else {
            bail!("the job has no [model] or no [train] table");
        };
        let steps = self.epoch / train.global_batch.max(1) as u64;
        let train: TrainConfig = table.schedule(train, steps.max(1));
        // published models have more embedding rows than their tokenizers have ids
        let found = cx.job.initial_model().and_then(Result::ok);
        let rows = found.map_or(0, |found| found.vocab);
        let ids = (self.vocab.max(rows), None);
        let print = manifest::fingerprint(&self.order);
        Ok(cx.job.plan(model, &train, table.seq_length, ids, print))
    }

    /// Copies the tokenizer to where the checkpoints' readers look for it.
    pub(super) fn keep_tokenizer(cx: &Context, table: &ClassifyTable) -> Result<()> {
        let json = tokenizer(cx, table)?.json().to_owned();
        let path = crate::generation::tokenizer_path(cx);
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
        }
        write_atomically(&path, json.as_bytes())?;
        Ok(())
    }
}

/// The questions of a file; says how many rows were left out.
pub(super) fn read(task: ClassifyTask, path: &Path) -> Result<Questions> {
    let questions = read_questions(task.name(), path)?;
    if questions.left_out > 0 {
        log!(
            "classify: {}: {} rows without a text or with another number of columns are left out",
            path.display(),
            questions.left_out
        );
    }
    Ok(questions)
}
