//! `POST /v1/completions` as vLLM serves it (`vllm/entrypoints/openai/completion/`, 0.33).

use super::admission::Place;
use super::answer::End;
use super::answers::{Answers, Generation, Step, Usage, Whole};
use super::error::ApiError;
use super::fields::{Fields, wrong};
use super::logprobs::{Completion, Names, of_prompt};
use super::openai::{Call, StreamOptions};
use super::sampling::{Sampling, logprobs};
use super::sse::{self, Event, Events};
use super::state::Server;
use super::texts::decode;
use axum::Json;
use axum::response::{IntoResponse, Response};
use http_connections::{Choices, Chunk, CompletionChoice};
use serde_json::Value;
use std::sync::Arc;
use train::infer::Scored;

/// Prompts of a request at most.
const MOST_PROMPTS: usize = 1024;

/// Sequences of a request at most.
const MOST_SEQUENCES: usize = 4096;

/// Tokens of an answer unless told, as in OpenAI's interface.
const MAX_TOKENS: u64 = 16;

/// A checked request.
struct Request {
    generation: Generation,
    /// Texts of the prompts, for `echo`.
    texts: Vec<String>,
    form: Form,
    stream: Option<StreamOptions>,
}

/// Contents of an answer.
#[derive(Clone, Copy)]
struct Form {
    n: usize,
    echo: bool,
    logprobs: Option<usize>,
    prompt_logprobs: Option<usize>,
    /// Whether ids are returned beside texts.
    returns_ids: bool,
    /// Whether tokens are named by ids.
    names_ids: bool,
}

impl Request {
    fn read(fields: &Fields, server: &Server) -> Result<Request, ApiError> {
        let model = server.asked(fields)?;
        let vocabulary = server.vocabulary();
        let sampling = Sampling::read(fields, vocabulary)?;
        let echo = fields.or("echo", false)?;
        let max_tokens = fields.or("max_tokens", MAX_TOKENS)?;
        if max_tokens == 0 && !echo {
            let message = "max_tokens: found 0, want at least 1, or echo";
            return Err(ApiError::field("max_tokens", message));
        }
        let sampling = sampling.limited(Some(max_tokens), "max_tokens")?;
        let form = Form {
            n: sampling.n,
            echo,
            logprobs: logprobs(fields, "logprobs")?,
            prompt_logprobs: logprobs(fields, "prompt_logprobs")?,
            returns_ids: fields.or("return_token_ids", false)?,
            names_ids: fields.or("return_tokens_as_token_ids", false)?,
        };
        let stream = StreamOptions::read(fields)?;
        if stream.is_some() && form.prompt_logprobs.is_some() {
            let message = "prompt_logprobs does not go with stream";
            return Err(ApiError::field("prompt_logprobs", message));
        }
        let mut prompts = prompts(fields, server)?;
        truncate(fields, server, &mut prompts)?;
        if prompts.len() * form.n > MOST_SEQUENCES {
            let message = format!(
                "found {} prompts and n = {}, want at most {MOST_SEQUENCES} answers",
                prompts.len(),
                form.n
            );
            return Err(ApiError::field("n", message));
        }
        let (ids, texts): (Vec<_>, Vec<_>) = prompts.into_iter().map(|p| (p.ids, p.text)).unzip();
        let texts = match echo {
            true => texts_of(texts, &ids, server)?,
            false => Vec::new(),
        };
        let of_prompt = form.prompt_logprobs.max(form.logprobs.filter(|_| echo));
        Ok(Request {
            generation: Generation {
                prompts: ids,
                sampling,
                logprobs: form.logprobs,
                prompt_logprobs: of_prompt,
                limit: "max_tokens",
                model,
            },
            texts,
            form,
            stream,
        })
    }
}

/// A prompt, with its text if it came as one.
struct Prompt {
    ids: Vec<u32>,
    text: Option<String>,
}

/// The prompts of a request: a text, a list of texts, ids, or a list of lists of ids.
fn prompts(fields: &Fields, server: &Server) -> Result<Vec<Prompt>, ApiError> {
    let adds = fields.or("add_special_tokens", true)?;
    let of_text = |text: &str| -> Result<Prompt, ApiError> {
        let mut ids = server.ids_of_prompt(text, adds)?;
        if ids.is_empty() {
            // as the beginning of a document
            ids.extend(server.files.start);
        }
        Ok(Prompt {
            ids,
            text: Some(text.to_owned()),
        })
    };
    let of_ids = |ids| Prompt { ids, text: None };
    let wanted = "a string, a list of strings, a list of token ids, or a list of such lists";
    let list = match fields.value("prompt") {
        None => return Err(ApiError::field("prompt", "prompt: is required")),
        Some(Value::String(text)) => return Ok(vec![of_text(text)?]),
        Some(Value::Array(list)) => list,
        Some(other) => return Err(wrong("prompt", other, wanted)),
    };
    let refuse = || ApiError::field("prompt", format!("prompt: want {wanted}"));
    if list.len() > MOST_PROMPTS && !list[0].is_number() {
        let message = format!(
            "prompt: found {} prompts, want at most {MOST_PROMPTS}",
            list.len()
        );
        return Err(ApiError::field("prompt", message));
    }
    match list.first() {
        None => Err(ApiError::field("prompt", "prompt: found an empty list")),
        Some(Value::String(_)) => {
            let texts: Vec<String> = fields.or("prompt", Vec::new()).map_err(|_| refuse())?;
            texts.iter().map(|text| of_text(text)).collect()
        }
        Some(Value::Number(_)) => {
            let ids: Vec<u32> = fields.or("prompt", Vec::new()).map_err(|_| refuse())?;
            Ok(vec![of_ids(ids)])
        }
        Some(_) => {
            let lists: Vec<Vec<u32>> = fields.or("prompt", Vec::new()).map_err(|_| refuse())?;
            Ok(lists.into_iter().map(of_ids).collect())
        }
    }
}

/// Keeps the last `truncate_prompt_tokens` of each prompt; -1: as many as the model sees.
fn truncate(fields: &Fields, server: &Server, prompts: &mut [Prompt]) -> Result<(), ApiError> {
    let name = "truncate_prompt_tokens";
    let Some(asked) = fields.get::<i64>(name)? else {
        return Ok(());
    };
    let most = server.engine.facts.max_length;
    let keep = match usize::try_from(asked) {
        Ok(keep) if (1..=most).contains(&keep) => keep,
        _ if asked == -1 => most,
        _ => {
            let message = format!("{name}: found {asked}, want -1 or 1 to {most}");
            return Err(ApiError::field(name, message));
        }
    };
    for prompt in prompts.iter_mut().filter(|prompt| prompt.ids.len() > keep) {
        prompt.ids.drain(..prompt.ids.len() - keep);
        prompt.text = None;
    }
    Ok(())
}

fn texts_of(
    texts: Vec<Option<String>>,
    ids: &[Vec<u32>],
    server: &Server,
) -> Result<Vec<String>, ApiError> {
    let pairs = texts.into_iter().zip(ids);
    pairs
        .map(|(text, ids)| match text {
            Some(text) => Ok(text),
            None => decode(&server.files.tokenizer, ids, false),
        })
        .collect()
}

/// The route.
pub(super) async fn completions(call: Call) -> Result<Response, ApiError> {
    let place: Place = call.server.admission.enter()?;
    let fields = call.fields()?;
    let request = Request::read(&fields, &call.server)?;
    let answers = request
        .generation
        .start(&call.server, &call.figures, place)?;
    let head = Head {
        id: format!("cmpl-{}", call.id()),
        created: call.created(),
    };
    match request.stream {
        Some(options) => {
            let count = request.generation.prompts.len() * request.form.n;
            Ok(sse::response(Stream {
                answers,
                head,
                prompts: request.generation.prompts,
                texts: request.texts,
                form: request.form,
                options,
                offsets: vec![0; count],
                is_over: false,
            }))
        }
        None => whole(answers, &head, &request).await,
    }
}

/// Fields that are the same in all parts of an answer.
struct Head {
    id: String,
    created: u64,
}

impl Head {
    fn around<'a>(
        &'a self,
        answers: &'a Answers,
        choices: &'a [CompletionChoice<'a>],
        usage: Option<Usage>,
    ) -> Chunk<'a> {
        Chunk {
            id: &self.id,
            object: "text_completion",
            created: self.created,
            model: &answers.model,
            choices: Choices::Completion(choices),
            usage: usage.map(Usage::to_json),
        }
    }
}

fn names(server: &Arc<Server>, form: Form) -> Names<'_> {
    Names {
        texts: &server.texts,
        by_id: form.names_ids,
    }
}

async fn whole(mut answers: Answers, head: &Head, request: &Request) -> Result<Response, ApiError> {
    let found = answers.whole().await?;
    let server = answers.server();
    let mut choices = Vec::new();
    for (number, answer) in found.into_iter().enumerate() {
        choices.push(choice(server, request, number, answer));
    }
    let body = head.around(&answers, &choices, Some(answers.usage));
    Ok(Json(body).into_response())
}

fn choice<'a>(
    server: &Arc<Server>,
    request: &'a Request,
    number: usize,
    answer: Whole,
) -> CompletionChoice<'a> {
    let form = request.form;
    let of = number / form.n;
    let (ids, mut text) = (&request.generation.prompts[of], String::new());
    let names = names(server, form);
    let mut logprobs = Completion::default();
    let mut offset = 0;
    if form.echo {
        text.push_str(&request.texts[of]);
        for (&id, scored) in ids.iter().zip(&answer.prompt) {
            offset = logprobs.add(names, id, scored.as_ref(), offset);
        }
    }
    text.push_str(&answer.text);
    for (id, scored) in &answer.tokens {
        offset = logprobs.add(names, *id, scored.as_ref(), offset);
    }
    let end = answer.end.unwrap_or(End::Length);
    let new = answer.tokens.iter().map(|(id, _)| *id);
    CompletionChoice {
        index: number,
        text,
        logprobs: form.logprobs.map(|_| logprobs.into_json()),
        finish_reason: Some(end.reason()),
        stop_reason: end.stop_reason(),
        prompt_logprobs: (form.prompt_logprobs).map(|_| of_prompt(names, &answer.prompt)),
        token_ids: form.returns_ids.then(|| new.collect()),
        prompt_token_ids: form.returns_ids.then_some(Some(ids)),
    }
}

/// The events of a streamed answer.
struct Stream {
    answers: Answers,
    head: Head,
    prompts: Vec<Vec<u32>>,
    texts: Vec<String>,
    form: Form,
    options: StreamOptions,
    /// Characters of each text so far.
    offsets: Vec<usize>,
    is_over: bool,
}

impl Events for Stream {
    async fn next(&mut self) -> Result<Option<Event>, ApiError> {
        while let Some(step) = self.answers.next().await? {
            let number = step.number;
            let continuous = self.options.continuous_usage;
            let usage = continuous.then(|| self.usage_of(number));
            let mut offset = self.offsets[number];
            let choice = self.choice(step, &mut offset);
            let event = choice.map(|choice| {
                let choices = [choice];
                Event::of(&self.head.around(&self.answers, &choices, usage))
            });
            self.offsets[number] = offset;
            if let Some(event) = event {
                return event.map(Some);
            }
        }
        if self.options.include_usage && !std::mem::replace(&mut self.is_over, true) {
            let usage = Some(self.answers.usage);
            return Event::of(&self.head.around(&self.answers, &[], usage)).map(Some);
        }
        Ok(None)
    }
}

impl Stream {
    /// The part of a choice that a step adds; none if it adds nothing. `offset`: characters of the text so far.
    fn choice(&self, step: Step, offset: &mut usize) -> Option<CompletionChoice<'_>> {
        let Step {
            number,
            mut text,
            token,
            prompt,
            end,
        } = step;
        let (of, form) = (number / self.form.n, self.form);
        let mut logprobs = form.logprobs.map(|_| Completion::default());
        let mut add = |ids: &[u32], scores: &[Option<Scored>]| {
            if let Some(logprobs) = &mut logprobs {
                let names = names(self.answers.server(), form);
                for (&id, scored) in ids.iter().zip(scores) {
                    *offset = logprobs.add(names, id, scored.as_ref(), *offset);
                }
            }
        };
        let (mut new_ids, mut prompt_ids) = (Vec::new(), None);
        if let Some(scores) = prompt {
            if form.echo {
                text = self.texts[of].clone();
                add(&self.prompts[of], &scores);
            } else if !form.returns_ids {
                return None;
            }
            prompt_ids = Some(self.prompts[of].as_slice());
        }
        if let Some((id, scored)) = token {
            add(&[id], &[scored]);
            new_ids.push(id);
        }
        let shows_token = !new_ids.is_empty() && (form.logprobs.is_some() || form.returns_ids);
        if text.is_empty() && end.is_none() && !shows_token && prompt_ids.is_none() {
            return None;
        }
        Some(CompletionChoice {
            index: number,
            text,
            logprobs: logprobs.map(Completion::into_json),
            finish_reason: end.as_ref().map(End::reason),
            stop_reason: end.as_ref().map_or(Value::Null, End::stop_reason),
            prompt_logprobs: None,
            token_ids: form.returns_ids.then_some(new_ids),
            prompt_token_ids: form.returns_ids.then_some(prompt_ids),
        })
    }

    /// Tokens of one choice so far.
    fn usage_of(&self, number: usize) -> Usage {
        Usage {
            prompt: self.prompts[number / self.form.n].len(),
            cached: 0,
            completion: self.answers.tokens(number),
        }
    }
}
