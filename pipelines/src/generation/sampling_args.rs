//! Flags of the verbs that generate text.

use super::dtype::Dtype;
use super::model_files::ModelFiles;
use crate::job::WrongUse;
use anyhow::{Result, bail};
use clap::Args;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use train::infer::GenerateOptions;
use train::infer::engine::{Engine, Limits};

/// Sampling, limits, guesses. Defaults are those of the job's `[generate]` table.
#[derive(Args, Default)]
pub(crate) struct SamplingArgs {
    /// Tokens to add at most.
    #[arg(long, value_name = "N")]
    max_tokens: Option<usize>,
    /// Divides the logits; 0 takes the likeliest token.
    #[arg(long, value_name = "T")]
    temperature: Option<f64>,
    /// Sample among this many likeliest tokens; 0: all.
    #[arg(long, value_name = "K")]
    top_k: Option<usize>,
    /// Sample among the likeliest tokens whose probabilities add up to this; 1: all.
    #[arg(long, value_name = "P")]
    top_p: Option<f64>,
    /// Factor of --top-p after each token (Megatron-LM).
    #[arg(long, value_name = "F", requires = "top_p")]
    top_p_decay: Option<f64>,
    /// --top-p does not decay below this.
    #[arg(long, value_name = "P", requires = "top_p_decay")]
    top_p_bound: Option<f64>,
    /// Drop tokens below this share of the likeliest one's probability.
    #[arg(long, value_name = "P")]
    min_p: Option<f64>,
    /// Divides positive and multiplies negative logits of tokens that prompt or answer have.
    #[arg(long, value_name = "F")]
    repetition_penalty: Option<f64>,
    /// Subtracted from the logits of tokens that the answer has.
    #[arg(long, value_name = "X")]
    presence_penalty: Option<f64>,
    /// Subtracted from a token's logit each time that the answer has it.
    #[arg(long, value_name = "X")]
    frequency_penalty: Option<f64>,
    /// Seed; prompt i samples with the seed plus i.
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// End the answer in front of this text (repeatable).
    #[arg(long, value_name = "TEXT")]
    pub(super) stop: Vec<String>,
    /// End the answer at this token (repeatable).
    #[arg(long, value_name = "ID")]
    stop_token: Vec<u32>,
    /// Tokens before which no stop token is chosen.
    #[arg(long, value_name = "N")]
    min_tokens: Option<usize>,
    /// Go on past the token that ends a text.
    #[arg(long)]
    ignore_eos: bool,
    /// Guess so many tokens at a time and check them in one pass; the text stays the same.
    #[arg(long, value_name = "N")]
    draft_tokens: Option<usize>,
    /// Smaller model that guesses. Default: what followed the same words before.
    #[arg(long, value_name = "PATH", requires = "draft_tokens")]
    draft_model: Option<PathBuf>,
    /// Ranks that share the model, each with its own device or share of the threads (tensor parallelism).
    #[arg(long, value_name = "N")]
    tensor_parallel_size: Option<NonZeroUsize>,
    /// Number format of the model's products; bfloat16 takes half the memory of f32 weights, and is faster for prompts on processors with
    /// AMX.
    #[arg(long, value_enum, value_name = "DTYPE", default_value_t = Dtype::Auto)]
    dtype: Dtype,
}

impl SamplingArgs {
    /// No flag but this one.
    pub(crate) fn of_dtype(dtype: Dtype) -> SamplingArgs {
        SamplingArgs {
            dtype,
            ..SamplingArgs::default()
        }
    }

    /// The options of a prompt: those flags that are given, else `defaults`.
    pub(crate) fn options(
        &self,
        defaults: &GenerateOptions,
        files: &ModelFiles,
    ) -> GenerateOptions {
        let ends = match self.ignore_eos {
            true => &[][..],
            false => &files.end_ids,
        };
        let stop = self.stop_token.iter().chain(ends).map(|&id| vec![id]);
        GenerateOptions {
            stop: stop.collect(),
            ..self.numbers(defaults)
        }
    }

    /// The options of a prompt without stop tokens.
    fn numbers(&self, defaults: &GenerateOptions) -> GenerateOptions {
        let or = |given: Option<f64>, default| given.unwrap_or(default);
        GenerateOptions {
            max_tokens: self.max_tokens.unwrap_or(defaults.max_tokens),
            temperature: or(self.temperature, defaults.temperature),
            top_k: self.top_k.unwrap_or(defaults.top_k),
            top_p: or(self.top_p, defaults.top_p),
            top_p_decay: or(self.top_p_decay, defaults.top_p_decay),
            top_p_bound: or(self.top_p_bound, defaults.top_p_bound),
            min_p: or(self.min_p, defaults.min_p),
            repetition_penalty: or(self.repetition_penalty, defaults.repetition_penalty),
            presence_penalty: or(self.presence_penalty, defaults.presence_penalty),
            frequency_penalty: or(self.frequency_penalty, defaults.frequency_penalty),
            seed: self.seed.unwrap_or(defaults.seed),
            min_tokens: self.min_tokens.unwrap_or(defaults.min_tokens),
            ..defaults.clone()
        }
    }

    /// Checks what can be checked without a model.
    ///
    /// # Errors
    /// `WrongUse` with the flag.
    pub(crate) fn check(&self, defaults: &GenerateOptions) -> Result<(), WrongUse> {
        let options = self.numbers(defaults);
        options.check().map_err(|error| match error {
            train::Error::Request {
                what,
                found,
                wanted,
            } => {
                let flag = what.replace('_', "-");
                WrongUse::new(format!("--{flag}: found {found}, want {wanted}"))
            }
            other => WrongUse::new(other.to_string()),
        })?;
        if self.stop.iter().any(String::is_empty) {
            let message = "--stop: found an empty string, which every text contains";
            return Err(WrongUse::new(message));
        }
        let (least, most) = (options.min_tokens, options.max_tokens);
        match least > most {
            true => Err(WrongUse::new(format!(
                "--min-tokens: found {least}, want at most the {most} of --max-tokens"
            ))),
            false => Ok(()),
        }
    }

    /// An engine for the model, with guesses if they are asked for.
    ///
    /// # Errors
    /// Those of `Engine::open`; `WrongUse` for a stop token that the model does not have; a draft model with another vocabulary.
    pub(crate) fn engine(&self, files: &ModelFiles) -> Result<Engine> {
        let limits = Limits {
            draft_tokens: self.draft_tokens.unwrap_or(0),
            ..Limits::default()
        };
        let ranks = self.tensor_parallel_size.map_or(1, NonZeroUsize::get);
        let on = self.dtype.on(files.devices.split(ranks));
        let engine = Engine::open(&files.path, on, limits)?;
        self.dtype.expect(engine.rounds_activations())?;
        if files.tokenizer.vocab() > engine.vocab() {
            bail!(
                "{}: found {} entries, want at most the model's {}",
                files.tokenizer.path().display(),
                files.tokenizer.vocab(),
                engine.vocab()
            );
        }
        let mut stops = self.stop_token.iter();
        if let Some(id) = stops.find(|id| **id as usize >= engine.vocab()) {
            let most = engine.vocab().saturating_sub(1);
            let message = format!("--stop-token: found {id}, want 0 to {most}");
            return Err(WrongUse::new(message).into());
        }
        let Some(draft) = &self.draft_model else {
            return Ok(engine);
        };
        let draft = Engine::open(draft, on, Limits::default())?;
        Ok(engine.with_draft(draft)?)
    }
}
