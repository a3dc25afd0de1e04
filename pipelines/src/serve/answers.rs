//! The answers of a request in progress: submission with its checks, and progress with texts.

use super::adapters::AskedModel;
use super::admission::Place;
use super::answer::{Answer, End};
use super::engine_thread::Progress;
use super::error::ApiError;
use super::group::Group;
use super::request_log::Figures;
use super::sampling::{Sampling, check_ids};
use super::state::Server;
use super::texts::internal;
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use train::data::is_virtual;
use train::infer::engine::Request;
use train::infer::{GenerateOptions, Scored};

/// Prompts to continue.
pub(super) struct Generation {
    pub(super) prompts: Vec<Vec<u32>>,
    pub(super) sampling: Sampling,
    /// Log-probabilities of the answer's tokens, with so many others.
    pub(super) logprobs: Option<usize>,
    /// The same for the prompt's.
    pub(super) prompt_logprobs: Option<usize>,
    /// Name of the field that limits the answer, for messages.
    pub(super) limit: &'static str,
    pub(super) model: AskedModel,
}

/// Answers in progress: `n` of the first prompt, then of the next.
pub(super) struct Answers {
    server: Arc<Server>,
    group: Group,
    answers: Vec<Answer>,
    /// Answers per prompt.
    n: usize,
    /// Name of the model that was asked for.
    pub(super) model: String,
    pub(super) usage: Usage,
}

/// Progress of the answer of a number.
#[derive(Default)]
pub(super) struct Step {
    pub(super) number: usize,
    /// Text that is certain now.
    pub(super) text: String,
    pub(super) token: Option<(u32, Option<Scored>)>,
    /// The prompt was computed: log-probabilities of its tokens, if they were asked for.
    pub(super) prompt: Option<Vec<Option<Scored>>>,
    pub(super) end: Option<End>,
}

/// A complete answer.
#[derive(Default)]
pub(super) struct Whole {
    pub(super) text: String,
    pub(super) tokens: Vec<(u32, Option<Scored>)>,
    pub(super) prompt: Vec<Option<Scored>>,
    pub(super) end: Option<End>,
}

/// Tokens of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Usage {
    pub(super) prompt: usize,
    pub(super) cached: usize,
    pub(super) completion: usize,
}

impl Usage {
    pub(super) fn to_json(self) -> Value {
        json!({
            "prompt_tokens": self.prompt,
            "total_tokens": self.prompt + self.completion,
            "completion_tokens": self.completion,
            "prompt_tokens_details": {"cached_tokens": self.cached},
        })
    }
}

impl Generation {
    /// Checks lengths and submits everything.
    ///
    /// # Errors
    /// 400: an empty prompt, an unknown id, more tokens than the model sees at once.
    pub(super) fn start(
        &self,
        server: &Arc<Server>,
        figures: &Arc<Figures>,
        place: Place,
    ) -> Result<Answers, ApiError> {
        let vocabulary = server.vocabulary();
        let (mut requests, mut answers) = (Vec::new(), Vec::new());
        let stop_ids = self.sampling.all_stop_ids(vocabulary);
        for prompt in &self.prompts {
            let max_tokens = self.room(prompt, server)?;
            server.metrics.asked(self.sampling.n, max_tokens);
            for index in 0..self.sampling.n {
                let options = self.sampling.options(index, max_tokens, vocabulary);
                requests.push(Request {
                    prompt: prompt.clone(),
                    options: GenerateOptions {
                        logprobs: self.logprobs,
                        prompt_logprobs: self.prompt_logprobs,
                        ..options
                    },
                    beginning: Vec::new(),
                    slides: false,
                    adapter: self.model.adapter,
                });
                let (tokenizer, stops) = (&server.files.tokenizer, stop_ids.clone());
                // a text of its own, or the prompt's continuation
                let before = match server.engine.facts.is_encoder_decoder {
                    true => &[][..],
                    false => prompt,
                };
                answers.push(Answer::new(tokenizer, before, &self.sampling, stops));
            }
        }
        let prompt = self.prompts.iter().map(Vec::len).sum();
        figures.prompt_tokens.store(prompt, Ordering::Relaxed);
        let deadline = tokio::time::Instant::now() + server.limits.answer;
        Ok(Answers {
            group: Group::submit(server, figures, &Arc::new(place), requests, deadline),
            server: Arc::clone(server),
            answers,
            n: self.sampling.n,
            model: self.model.name.clone(),
            usage: Usage {
                prompt,
                ..Usage::default()
            },
        })
    }

    /// Tokens of an answer to a prompt at most.
    fn room(&self, prompt: &[u32], server: &Server) -> Result<usize, ApiError> {
        let facts = &server.engine.facts;
        if prompt.is_empty() {
            return Err(ApiError::field(
                "prompt",
                "prompt: found no tokens, want at least 1",
            ));
        }
        // virtual ones are the engine's to check; they have room of their own beside the text's
        let has_virtual = !facts.markers.is_empty();
        let text = prompt
            .iter()
            .filter(|id| !(has_virtual && is_virtual(**id)));
        let text: Vec<u32> = text.copied().collect();
        check_ids("prompt", &text, facts.vocab)?;
        let most = facts.max_length as u64;
        let length = text.len() as u64;
        let taken = match facts.is_encoder_decoder {
            true => 0,
            false => length,
        };
        let asked = self.sampling.max_tokens;
        let left = most.saturating_sub(taken);
        let is_right = match asked {
            Some(asked) => asked <= left && length <= most,
            None => left > 0 && length <= most,
        };
        if is_right {
            return Ok(usize::try_from(asked.unwrap_or(left)).unwrap_or(usize::MAX));
        }
        let new = asked.map_or_else(|| "at least 1".to_owned(), |asked| asked.to_string());
        let message = format!(
            "This model's maximum context length is {most} tokens. However, your request has {} tokens in the prompt and asks for {new} new ones ({}).",
            length, self.limit
        );
        let field = if length > most { "prompt" } else { self.limit };
        Err(ApiError::field(field, message))
    }
}

impl Answers {
    /// The next progress; none when all answers are complete.
    ///
    /// # Errors
    /// As `Group::next`.
    pub(super) async fn next(&mut self) -> Result<Option<Step>, ApiError> {
        let Some((number, progress)) = self.group.next().await? else {
            return Ok(None);
        };
        let answer = &mut self.answers[number];
        let mut step = Step {
            number,
            ..Step::default()
        };
        match progress {
            Progress::Prompt { scores, cached } => {
                // a prompt's first answer, as its tokens count once
                if number % self.n == 0 {
                    self.usage.cached += cached;
                }
                step.prompt = Some(scores);
            }
            Progress::Token { token, scored } => {
                step.text = answer.token(token).map_err(|e| internal(&e))?;
                step.token = Some((token, scored));
                self.usage.completion += 1;
                if answer.end().is_some() {
                    step.end = answer.end().cloned();
                    self.group.stop(number);
                }
            }
            Progress::Finished(finish) => {
                step.text = answer.finish(finish).map_err(|e| internal(&e))?;
                step.end = answer.end().cloned();
            }
            // the group's own affairs
            Progress::Started | Progress::Refused(_) | Progress::Failed(_) | Progress::Ended => {}
        }
        Ok(Some(step))
    }

    /// All answers, complete.
    ///
    /// # Errors
    /// As `next`.
    pub(super) async fn whole(&mut self) -> Result<Vec<Whole>, ApiError> {
        let count = self.answers.len();
        let mut found: Vec<Whole> = std::iter::repeat_with(Whole::default).take(count).collect();
        while let Some(step) = self.next().await? {
            let whole = &mut found[step.number];
            whole.text.push_str(&step.text);
            whole.tokens.extend(step.token);
            whole.prompt.extend(step.prompt.unwrap_or_default());
            whole.end = step.end.or(whole.end.take());
        }
        Ok(found)
    }

    /// Tokens of an answer so far.
    pub(super) fn tokens(&self, number: usize) -> usize {
        self.answers[number].tokens()
    }

    pub(super) fn server(&self) -> &Arc<Server> {
        &self.server
    }
}
