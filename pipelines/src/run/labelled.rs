//! Samples of `[classify]`: labelled texts as tokens, in Megatron's form and order.
//!
//! A text of one's own (`labels`) has the ids of transformers with `truncation=True`, as the step `classifier` of the curator reads
//! it: the tokens of the tokenizer's post-processor around it.
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
use crate::tasks::{LabelColumns, Question, Questions, read_labels, read_questions};
use anyhow::{Context as _, Result, anyhow, bail};
use index::tokenizer::{SpecialTokens, Tokenizer};
use rayon::prelude::*;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use train::config::{Plan, TrainConfig};
use train::data::{LabelledSample, Sample, Samples};

/// The tokens around a text, or around two, and the length of the whole.
#[derive(Clone, Debug)]
pub(super) struct Form {
    /// In front of the texts.
    before: Vec<u32>,
    /// At the end, and between two texts.
    after: Vec<u32>,
    seq_length: usize,
    /// Most tokens of the first text.
    first_length: usize,
    /// Whether a second text follows.
    is_pair: bool,
}

impl Form {
    /// For a model of a kind and the texts of a task. `question_length`: most tokens of a question of RACE with its answer.
    ///
    /// # Errors
    /// A vocabulary without these tokens; more of them than a sequence has.
    pub(super) fn of(
        is_masked: bool,
        tokenizer: &Tokenizer,
        task: ClassifyTask,
        [seq_length, question_length]: [usize; 2],
    ) -> Result<Form> {
        let is_pair = task != ClassifyTask::Labels;
        let (before, after) = match is_pair {
            true => around_two(is_masked, tokenizer)?,
            false => around_one(is_masked, tokenizer)?,
        };
        let around = before.len() + after.len();
        if seq_length <= around {
            bail!(
                "classify.seq_length: found {seq_length}, want more than the {around} tokens around a text"
            );
        }
        Ok(Form {
            before,
            after,
            seq_length,
            first_length: match task {
                ClassifyTask::Race => question_length,
                ClassifyTask::Labels => seq_length - around,
                ClassifyTask::Mnli | ClassifyTask::Qqp => usize::MAX,
            },
            is_pair,
        })
    }

    /// Puts a text, or two, into a sample.
    fn fill(&self, first: &[u32], second: &[u32], to: &mut LabelledSample) {
        let between: &[u32] = if self.is_pair { &self.after } else { &[] };
        let last = u32::from(self.is_pair);
        let room = self.seq_length - self.after.len();
        let parts = [(&*self.before, 0), (first, 0), (between, 0), (second, last)];
        let each = parts.iter();
        let each = each.flat_map(|(ids, segment)| ids.iter().map(move |id| (*id, *segment)));
        let texts = each.take(room);
        let end = self.after.iter().map(|id| (*id, last));
        to.length = 0;
        for (id, segment) in texts.chain(end) {
            (to.tokens[to.length], to.segments[to.length]) = (id, segment);
            to.length += 1;
        }
        to.tokens[to.length..].fill(0);
        to.segments[to.length..].fill(0);
    }
}

/// `[CLS]` and `[SEP]` of a masked model; nothing and the token that ends documents of a decoder.
fn around_two(is_masked: bool, tokenizer: &Tokenizer) -> Result<(Vec<u32>, Vec<u32>)> {
    let special = tokenizer.special();
    let (begin, end) = match is_masked {
        true => (special.cls.or(special.bos), special.sep.or(special.eos)),
        false => (None, tokenizer.end_of_document()),
    };
    let path = tokenizer.path().display();
    if is_masked && begin.is_none() {
        bail!("{path}: found no CLS token, want one in front of the texts");
    }
    let what = match is_masked {
        true => "SEP token",
        false => "token that ends documents",
    };
    let end = end.with_context(|| format!("{path}: found no {what}, want one after each text"))?;
    Ok((begin.into_iter().collect(), vec![end]))
}

/// The tokens that the tokenizer's post-processor puts around a text, as transformers has them. Without any, a masked model gets
/// `[CLS]` and `[SEP]`, and its copy of the tokenizer a post-processor (`keep_tokenizer`).
fn around_one(is_masked: bool, tokenizer: &Tokenizer) -> Result<(Vec<u32>, Vec<u32>)> {
    let (before, after) = tokenizer.around()?;
    match is_masked && before.is_empty() && after.is_empty() {
        true => around_two(is_masked, tokenizer),
        false => Ok((before.to_vec(), after.to_vec())),
    }
}

/// A question as tokens.
struct Encoded {
    firsts: Vec<Vec<u32>>,
    /// Number of its second text.
    second: usize,
    label: u32,
    number: f32,
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
        // a text alone is read as transformers reads it: names of special tokens in it are these tokens
        let names = SpecialTokens {
            add: false,
            parse: true,
        };
        let encoder = || match form.is_pair {
            true => Ok(tokenizer.encoder()),
            false => tokenizer.encoder_with(names),
        };
        drop(encoder()?);
        let seconds = seconds.par_iter().map(|text| tokenizer.encode(text));
        let seconds = seconds.collect::<index::Result<Vec<Vec<u32>>>>()?;
        let encoded = questions.par_iter().zip(&numbers).map_init(
            encoder,
            |encoder, (question, second)| -> Result<Encoded> {
                let encoder = encoder.as_mut().map_err(|e| anyhow!("{e}"))?;
                let mut firsts = Vec::with_capacity(question.firsts.len());
                for text in &question.firsts {
                    let ids = encoder.encode(text)?;
                    firsts.push(ids[..ids.len().min(form.first_length)].to_vec());
                }
                let is_empty = firsts.iter().any(Vec::is_empty) && !form.is_pair;
                if is_empty && form.before.is_empty() && form.after.is_empty() {
                    bail!("row {}: found a text without a token", question.row + 1);
                }
                Ok(Encoded {
                    firsts,
                    second: *second,
                    label: u32::try_from(question.label).unwrap_or(u32::MAX),
                    number: question.number,
                })
            },
        );
        let questions: Vec<Encoded> = encoded.collect::<Result<_>>()?;
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
            match question.number.to_bits() {
                0 => add(&[question.label]),
                bits => add(&[question.label, bits]),
            }
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
        (to.label, to.number) = (question.label, question.number);
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
        let is_masked = model.family == train::config::Family::Bert;
        let lengths = [table.seq_length, table.question_length];
        let form = Form::of(is_masked, &tokenizer, table.task, lengths)?;
        let read = |path: &PathBuf| read(table, path);
        let files: Vec<Questions> = table.train.iter().map(read).collect::<Result<_>>()?;
        let all: Vec<&Question> = files.iter().flat_map(|file| &file.all).collect();
        let mut train = LabelledSet::encode(&all, &tokenizer, form.clone())?;
        if let Some(counts) = counts_of(&all, &table.classes) {
            info!("classify: {counts}");
        }
        let mut valid: Vec<(String, LabelledSet)> = Vec::new();
        for path in &table.valid {
            let questions = read(path)?;
            let all: Vec<&Question> = questions.all.iter().collect();
            let set = LabelledSet::encode(&all, &tokenizer, form.clone())?;
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
        info!(
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
        let is_masked = (cx.job.model.as_ref())
            .is_some_and(|model| model.family == train::config::Family::Bert);
        let tokenizer = tokenizer(cx, table)?;
        let (before, after) = tokenizer.around()?;
        let is_bare = before.is_empty() && after.is_empty();
        let json = match table.task == ClassifyTask::Labels && is_masked && is_bare {
            true => with_post_processor(&tokenizer)?,
            false => tokenizer.json().to_owned(),
        };
        let path = crate::generation::tokenizer_path(cx);
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
        }
        write_atomically(&path, json.as_bytes())?;
        Ok(())
    }
}

/// A `tokenizer.json` whose post-processor puts `[CLS]` and `[SEP]` around a text, so that transformers and the step `classifier` read
/// texts as the model learned them.
fn with_post_processor(tokenizer: &Tokenizer) -> Result<String> {
    let (before, after) = around_two(true, tokenizer)?;
    let mut special = serde_json::Map::new();
    let mut named = |id: u32| {
        let name = tokenizer.token(id).unwrap_or_default().to_owned();
        special.insert(
            name.clone(),
            json!({"id": name, "ids": [id], "tokens": [name]}),
        );
        name
    };
    let (begin, end) = (named(before[0]), named(after[0]));
    let token =
        |name: &str, segment: u32| json!({"SpecialToken": {"id": name, "type_id": segment}});
    let text = |which: &str, segment: u32| json!({"Sequence": {"id": which, "type_id": segment}});
    let single = [token(&begin, 0), text("A", 0), token(&end, 0)];
    let second = [text("B", 1), token(&end, 1)];
    let template = json!({
        "type": "TemplateProcessing", "single": single,
        "pair": single.iter().chain(&second).collect::<Vec<_>>(), "special_tokens": special,
    });
    let mut json: Value = serde_json::from_str(tokenizer.json())?;
    json["post_processor"] = match json["post_processor"].take() {
        Value::Null => template,
        other => json!({"type": "Sequence", "processors": [other, template]}),
    };
    Ok(json.to_string())
}

/// Numbers of texts of each class.
fn counts_of(questions: &[&Question], classes: &[String]) -> Option<String> {
    let count = |class: usize| questions.iter().filter(|one| one.label == class).count();
    let each = classes.iter().enumerate();
    let each: Vec<String> = each
        .map(|(class, name)| format!("{} {name}", crate::machine::grouped(count(class) as u64)))
        .collect();
    (!each.is_empty()).then(|| each.join(", "))
}

/// The questions of a file; says how many rows were left out.
pub(super) fn read(table: &ClassifyTable, path: &Path) -> Result<Questions> {
    let questions = match table.task {
        ClassifyTask::Labels => {
            let columns = LabelColumns {
                text: &table.text_key,
                label: &table.label_key,
                classes: &table.classes,
            };
            read_labels(columns, path)?
        }
        ClassifyTask::Mnli | ClassifyTask::Qqp | ClassifyTask::Race => {
            read_questions(table.task.name(), path)?
        }
    };
    if questions.left_out > 0 {
        log!(
            "classify: {}: {} rows without a text or with another number of columns are left out",
            path.display(),
            questions.left_out
        );
    }
    Ok(questions)
}
