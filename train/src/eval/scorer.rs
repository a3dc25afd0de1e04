//! Log-likelihoods of continuations under a model that is opened once.
//!
//! Sequences run in batches of about `ROWS` rows, padded at their end to the longest; only rows that predict a token of a
//! continuation go through the head. A log-probability is ln softmax of a row's f32 logits over the vocabulary
//! without padding: the logarithm of the sum of exponentials is taken in f64 over ascending ids, and the difference
//! is rounded to f32, as the framework that the tasks come from keeps them.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::Path;

use kernels::{DType, Tensor, copy};
use rayon::prelude::*;

use crate::checkpoint::whole_model::Model;
use crate::config::TaskMarkers;
use crate::data::documents::Documents;
use crate::data::virtual_tokens::{Prompted, has_own, in_front, is_known, prompted};
use crate::dist::devices::InferenceOptions;
use crate::error::{Error, OnRank, Result};
use crate::eval::forward;
use crate::eval::language_model::{LanguageModel, Likelihood, Query};
use crate::eval::rows::{Lengths, Sequence, batches, sequences};
use crate::infer::GenerateOptions;
use crate::infer::engine::{Engine, Event, Limits, Request};

/// Rows of a forward pass: enough for large products, and a few hundred MB of activations for a model of 1B.
const ROWS: usize = 2048;

/// Answers that are generated at once.
const SEQUENCES: usize = 16;

/// Rows that go through the head at once: 50,000 logits each are 50 MB.
const HEAD_ROWS: usize = 256;

/// A model that scores texts.
pub struct Scorer {
    engine: RefCell<Engine>,
}

impl Scorer {
    /// Opens a checkpoint, the newest of a folder of checkpoints, the file `ema.safetensors` of one, or a
    /// Hugging Face folder.
    ///
    /// # Errors
    /// A damaged checkpoint or folder; a model that does not continue texts; `Device`.
    pub fn open(path: &Path, on: InferenceOptions) -> Result<Scorer> {
        let models = Model::open(path, on)?;
        let first = models.first().expect("a team has a rank");
        first.expect_vocabulary()?;
        let model = &first.plan.model;
        let architecture = model.architecture();
        if architecture.is_masked || architecture.is_encoder_decoder {
            return Err(Error::Request {
                what: "model to score texts with",
                found: format!("{:?}", model.family),
                wanted: "a decoder, which predicts the next token".into(),
            });
        }
        let limits = Limits {
            max_sequences: SEQUENCES,
            ..Limits::default()
        };
        let engine = RefCell::new(Engine::of(models, limits)?);
        Ok(Scorer { engine })
    }

    /// Entries of the model's vocabulary.
    pub fn vocab(&self) -> usize {
        self.engine.borrow().vocab()
    }

    /// Whether some products round activations to 8 bits.
    pub fn rounds_activations(&self) -> bool {
        self.engine.borrow().rounds_activations()
    }

    /// Whether a row's numbers depend on other rows: a mixture whose experts drop what exceeds their capacity.
    fn drops_tokens(&self) -> bool {
        let engine = self.engine.borrow();
        let moe = engine.plan().model.moe.as_ref();
        moe.is_some_and(|moe| moe.capacity_factor > 0.0)
    }
}

/// Runs a batch; returns the log-probability of each wanted token and whether it is the likeliest, in the order of
/// the batch.
fn run(model: &Model, batch: &[Sequence]) -> Result<Vec<(f32, bool)>> {
    let mut found = Vec::new();
    let texts: Result<Vec<Prompted>> = (batch.iter())
        .map(|sequence| prompted(&model.plan, &sequence.tokens))
        .collect();
    let texts = texts?;
    let time = texts.iter().map(|text| text.ids.len()).max().unwrap_or(0);
    let mut documents = Documents::of_text(&model.plan);
    let mut ids = Vec::with_capacity(batch.len() * time);
    for text in &texts {
        let start = ids.len();
        ids.extend(&text.ids);
        ids.resize(start + time, 0);
        if let Some(documents) = &mut documents {
            documents.push(&ids[start..], model.plan.eod, 0..time);
        }
    }
    let ids = model.rows_of(&ids)?;
    let x = forward::hidden(model, &ids, time, documents.as_ref());
    let x = x.on_rank(model.rank(), "run sequences")?;
    let mut rows = Vec::new();
    for (number, (sequence, text)) in batch.iter().zip(&texts).enumerate() {
        for wanted in &sequence.wanted {
            let row = number * time + text.in_front + wanted.row;
            match rows.last_mut() {
                Some((last, tokens)) if *last == row => {
                    let tokens: &mut Vec<_> = tokens;
                    tokens.push(wanted);
                }
                _ => rows.push((row, vec![wanted])),
            }
        }
    }
    for chunk in rows.chunks(HEAD_ROWS) {
        let at: Vec<usize> = chunk.iter().map(|(row, _)| *row).collect();
        let logits = logits(model, &x, &at).on_rank(model.rank(), "logits")?;
        let width = model.plan.padded_vocab();
        let scores: Vec<Vec<(f32, bool)>> = logits
            .par_chunks(width)
            .zip(chunk)
            .map(|(row, (_, wanted))| {
                let row = &row[..model.plan.vocab];
                score(row, wanted.iter().map(|wanted| wanted.token))
            })
            .collect();
        found.extend(scores.into_iter().flatten());
    }
    Ok(found)
}

/// Logits of some rows of x: `[n, d]`.
fn logits(model: &Model, x: &Tensor, at: &[usize]) -> kernels::Result<Vec<f32>> {
    let d = x.dims()[1];
    let mut rows = Tensor::empty(&[at.len(), d], DType::F32, &model.device)?;
    let mut done = 0;
    while done < at.len() {
        let next = at[done..].iter().enumerate();
        let run = next.take_while(|(i, row)| **row == at[done] + i).count();
        let to = rows.flat_mut(done * d..(done + run) * d)?;
        copy(to, x.flat(at[done] * d..(at[done] + run) * d)?)?;
        done += run;
    }
    forward::head(model, &rows)?.download()
}

/// Log-probability of each token after a row of logits, and whether it is the likeliest.
fn score(row: &[f32], tokens: impl Iterator<Item = u32>) -> Vec<(f32, bool)> {
    let (mut best, mut likeliest) = (f32::NEG_INFINITY, 0);
    for (id, &logit) in row.iter().enumerate() {
        if logit > best {
            (best, likeliest) = (logit, id);
        }
    }
    let best = f64::from(best);
    let sum: f64 = row.iter().map(|&x| (f64::from(x) - best).exp()).sum();
    let log_sum = best + sum.ln();
    #[expect(
        clippy::cast_possible_truncation,
        reason = "rounding to f32 is the rule of this file"
    )]
    let log = |token: u32| (f64::from(row[token as usize]) - log_sum) as f32;
    tokens
        .map(|token| (log(token), token as usize == likeliest))
        .collect()
}

impl LanguageModel for Scorer {
    fn max_length(&self) -> usize {
        self.engine.borrow().max_length()
    }

    fn markers(&self) -> Vec<TaskMarkers> {
        self.engine.borrow().markers()
    }

    fn log_likelihoods(
        &self,
        queries: &[Query],
        on_done: &mut dyn FnMut(usize),
    ) -> Result<Vec<Likelihood>> {
        let engine = self.engine.borrow();
        let plan = engine.plan();
        let lengths = Lengths {
            text: engine.max_length(),
            placed: plan.seq_length,
        };
        for query in queries {
            // before a batch runs, so that a wrong token stops nothing halfway
            let vocab = plan.vocab;
            in_front(plan, &query.context)?;
            let unknown = query.context.iter().filter(|&&id| !is_known(plan, id));
            let answer = query.continuation.iter();
            let mut unknown = unknown.chain(answer.filter(|&&id| id as usize >= vocab));
            if let Some(token) = unknown.next() {
                return Err(Error::Request {
                    what: "token",
                    found: token.to_string(),
                    wanted: format!("below the vocabulary of {vocab}"),
                });
            }
        }
        drop(engine);
        let drops = self.drops_tokens();
        let sequences = sequences(queries, lengths, !drops)?;
        let mut found: Vec<Vec<(f32, bool)>> = queries
            .iter()
            .map(|query| vec![(0.0, false); query.continuation.len()])
            .collect();
        for batch in batches(&sequences, if drops { 1 } else { ROWS }) {
            let scores = self
                .engine
                .borrow_mut()
                .on_models(|model| run(model, batch))?;
            let wanted = batch.iter().flat_map(|sequence| &sequence.wanted);
            for (wanted, score) in wanted.zip(scores) {
                found[wanted.query][wanted.number] = score;
            }
            on_done(batch.iter().map(|sequence| sequence.queries).sum());
        }
        let of = |tokens: &Vec<(f32, bool)>| Likelihood {
            log: tokens.iter().map(|&(log, _)| f64::from(log)).sum(),
            is_greedy: tokens.iter().all(|&(_, is_likeliest)| is_likeliest),
        };
        Ok(found.iter().map(of).collect())
    }

    fn generate(
        &self,
        prompts: &[Vec<u32>],
        max_tokens: usize,
        is_done: &mut dyn FnMut(usize, &[u32]) -> bool,
        on_done: &mut dyn FnMut(),
    ) -> Result<Vec<Vec<u32>>> {
        let most = |prompt: &[u32]| match has_own(prompt) {
            true => self.engine.borrow().plan().seq_length,
            false => self.max_length(),
        };
        let fits = |prompt: &Vec<u32>| {
            !prompt.is_empty() && prompt.len().saturating_add(max_tokens) <= most(prompt)
        };
        if let Some(prompt) = prompts.iter().find(|prompt| !fits(prompt)) {
            let limit = most(prompt);
            return Err(Error::Request {
                what: "prompt",
                found: format!("{} tokens and {max_tokens} to add", prompt.len()),
                wanted: format!("at least 1, at most {limit} together"),
            });
        }
        let mut engine = self.engine.borrow_mut();
        let mut numbers = BTreeMap::new();
        let submitted = prompts.iter().enumerate().try_for_each(|(number, prompt)| {
            let id = engine.submit(Request {
                prompt: prompt.clone(),
                options: GenerateOptions::greedy(max_tokens),
                beginning: Vec::new(),
                slides: false,
                adapter: None,
            })?;
            numbers.insert(id, number);
            Ok(())
        });
        let mut new = vec![Vec::new(); prompts.len()];
        let run = || -> Result<()> {
            submitted?;
            while !engine.is_idle() {
                for event in engine.step()? {
                    match event {
                        Event::Token { id, token, .. } => {
                            let Some(&number) = numbers.get(&id) else {
                                continue;
                            };
                            new[number].push(token);
                            // a complete answer is not in the engine any more
                            if is_done(number, &new[number]) && engine.cancel(id) {
                                on_done();
                            }
                        }
                        Event::Finished { .. } => on_done(),
                        Event::Started { .. } | Event::Prompt { .. } => {}
                    }
                }
            }
            Ok(())
        };
        let done = run();
        if done.is_err() {
            engine.cancel_all();
        }
        done.map(|()| new)
    }
}
