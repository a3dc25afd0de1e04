//! `POST /v1/chat/completions` as vLLM serves it: a conversation becomes a prompt by the model's chat template.

use super::answer::End;
use super::answers::{Answers, Generation, Step, Usage};
use super::error::ApiError;
use super::fields::Fields;
use super::logprobs::{Names, of_chat};
use super::openai::{Call, StreamOptions};
use super::sampling::{Sampling, logprobs};
use super::sse::{self, Event, Events};
use super::state::Server;
use super::texts::internal;
use crate::generation::{Message, encode};
use axum::Json;
use axum::response::{IntoResponse, Response};
use http_connections::{ChatChoice, Choices, Chunk, Delta};
use serde_json::{Value, json};
use std::collections::VecDeque;

/// The prompt of a conversation in a request.
///
/// # Errors
/// 400: no template, messages of another form, a conversation that the template refuses.
pub(super) fn prompt_of(fields: &Fields, server: &Server) -> Result<Vec<u32>, ApiError> {
    let Some(template) = &server.files.chat_template else {
        let message = "this model has no chat template; --chat-template FILE gives one";
        return Err(ApiError::bad(message));
    };
    for name in ["chat_template", "chat_template_kwargs", "documents"] {
        if fields.value(name).is_some() {
            return Err(ApiError::field(name, format!("{name} is not supported")));
        }
    }
    let messages = messages(fields)?;
    let continues = fields.or("continue_final_message", false)?;
    // OpenAI's clients never send it; vLLM's answer begins a new message unless told
    let begins = fields.or("add_generation_prompt", !continues)?;
    if continues == begins {
        let message = "add_generation_prompt and continue_final_message: want one of them";
        return Err(ApiError::field("add_generation_prompt", message));
    }
    let prompt = template.prompt(&messages, continues);
    let prompt = prompt.map_err(|e| ApiError::field("messages", format!("messages: {e:#}")))?;
    let adds = fields.or("add_special_tokens", false)? && !template.writes_bos(&prompt);
    encode(&server.files.tokenizer, &prompt, adds).map_err(|e| internal(&e))
}

/// The messages of a request.
fn messages(fields: &Fields) -> Result<Vec<Message>, ApiError> {
    let refuse = |message: String| Err(ApiError::field("messages", message));
    let list = match fields.value("messages") {
        None => return refuse("messages: is required".into()),
        Some(Value::Array(list)) if !list.is_empty() => list,
        Some(_) => return refuse("messages: want a list of at least one message".into()),
    };
    let mut messages = Vec::new();
    for (number, message) in list.iter().enumerate() {
        let role = message.get("role").and_then(Value::as_str);
        let Some(role) = role else {
            return refuse(format!("messages.{number}.role: want a string"));
        };
        // clients send answers back with empty lists of calls
        let has_calls = |name: &str| match message.get(name) {
            None | Some(Value::Null) => false,
            Some(calls) => calls != &json!([]),
        };
        if let Some(name) = ["tool_calls", "function_call"]
            .into_iter()
            .find(|name| has_calls(name))
        {
            return refuse(format!("messages.{number}.{name} is not supported"));
        }
        let text = match message.get("content") {
            // OpenAI's clients send an answer without a text back like this
            Some(Value::Null) if role == "assistant" => Some(String::new()),
            other => content(other),
        };
        let Some(content) = text else {
            return refuse(format!(
                "messages.{number}.content: want a string or a list of parts of type text"
            ));
        };
        messages.push(Message {
            role: role.to_owned(),
            content,
        });
    }
    Ok(messages)
}

/// A text, or the texts of a list of parts on lines of their own, as vLLM joins them.
fn content(value: Option<&Value>) -> Option<String> {
    match value? {
        Value::String(text) => Some(text.clone()),
        Value::Array(parts) => {
            let text = |part: &Value| match part {
                Value::String(text) => Some(text.clone()),
                part => {
                    let is_text = part.get("type").and_then(Value::as_str) == Some("text");
                    is_text.then(|| part.get("text")?.as_str().map(str::to_owned))?
                }
            };
            let texts: Option<Vec<String>> = parts.iter().map(text).collect();
            Some(texts?.join("\n"))
        }
        _ => None,
    }
}

/// A checked request.
struct Request {
    generation: Generation,
    n: usize,
    shows_logprobs: bool,
    names_ids: bool,
    stream: Option<StreamOptions>,
}

impl Request {
    fn read(fields: &Fields, server: &Server) -> Result<Request, ApiError> {
        let model = server.asked(fields)?;
        let sampling = Sampling::read(fields, server.vocabulary())?;
        let (asked, older) = (
            fields.get("max_completion_tokens")?,
            fields.get("max_tokens")?,
        );
        let name = match (asked, older) {
            (None, Some(_)) => "max_tokens",
            (Some(_), _) | (None, None) => "max_completion_tokens",
        };
        let sampling = sampling.limited(asked.or(older), name)?;
        if sampling.max_tokens == Some(0) {
            let message = format!("{name}: found 0, want at least 1");
            return Err(ApiError::field(name, message));
        }
        let shows_logprobs = fields.or("logprobs", false)?;
        let top = logprobs(fields, "top_logprobs")?;
        if top.is_some_and(|top| top > 0) && !shows_logprobs {
            let message = "top_logprobs: only with logprobs = true";
            return Err(ApiError::field("top_logprobs", message));
        }
        Ok(Request {
            n: sampling.n,
            generation: Generation {
                prompts: vec![prompt_of(fields, server)?],
                sampling,
                logprobs: shows_logprobs.then(|| top.unwrap_or(0)),
                prompt_logprobs: None,
                limit: name,
                model,
            },
            shows_logprobs,
            names_ids: fields.or("return_tokens_as_token_ids", false)?,
            stream: StreamOptions::read(fields)?,
        })
    }
}

/// The route.
pub(super) async fn chat(call: Call) -> Result<Response, ApiError> {
    let place = call.server.admission.enter()?;
    let fields = call.fields()?;
    let request = Request::read(&fields, &call.server)?;
    let mut answers = request
        .generation
        .start(&call.server, &call.figures, place)?;
    let (id, created) = (format!("chatcmpl-{}", call.id()), call.created());
    if let Some(options) = request.stream {
        let waiting = (0..request.n).map(first);
        return Ok(sse::response(Stream {
            waiting: waiting.collect(),
            prompt: request.generation.prompts[0].len(),
            answers,
            id,
            created,
            shows_logprobs: request.shows_logprobs,
            names_ids: request.names_ids,
            options,
            is_over: false,
        }));
    }
    let found = answers.whole().await?;
    let server = answers.server();
    let names = Names {
        texts: &server.texts,
        by_id: request.names_ids,
    };
    let choices = found.into_iter().enumerate().map(|(number, answer)| {
        let scored = answer.tokens.iter();
        let scored = scored.filter_map(|(id, scored)| Some(of_chat(names, *id, scored.as_ref()?)));
        let content: Vec<Value> = scored.collect();
        let end = answer.end.unwrap_or(End::Length);
        json!({
            "index": number,
            "message": {"role": "assistant", "content": answer.text, "refusal": null},
            "logprobs": request.shows_logprobs.then(|| json!({"content": content})),
            "finish_reason": end.reason(),
            "stop_reason": end.stop_reason(),
        })
    });
    let choices: Vec<Value> = choices.collect();
    Ok(Json(json!({
        "id": id,
        "object": "chat.completion",
        "created": created,
        "model": answers.model,
        "choices": choices,
        "usage": answers.usage.to_json(),
    }))
    .into_response())
}

/// The events of a streamed answer.
struct Stream {
    /// First deltas, which carry the role.
    waiting: VecDeque<ChatChoice>,
    /// Tokens of the prompt.
    prompt: usize,
    answers: Answers,
    id: String,
    created: u64,
    shows_logprobs: bool,
    names_ids: bool,
    options: StreamOptions,
    is_over: bool,
}

/// The first delta of a message.
fn first(index: usize) -> ChatChoice {
    ChatChoice {
        index,
        delta: Delta {
            role: Some("assistant"),
            content: Some(String::new()),
        },
        logprobs: None,
        finish_reason: None,
        stop_reason: None,
    }
}

impl Events for Stream {
    async fn next(&mut self) -> Result<Option<Event>, ApiError> {
        if let Some(choice) = self.waiting.pop_front() {
            return self.event(choice).map(Some);
        }
        while let Some(step) = self.answers.next().await? {
            if let Some(choice) = self.choice(step) {
                return self.event(choice).map(Some);
            }
        }
        if self.options.include_usage && !std::mem::replace(&mut self.is_over, true) {
            return self.with(&[], Some(self.answers.usage)).map(Some);
        }
        Ok(None)
    }
}

impl Stream {
    fn choice(&self, step: Step) -> Option<ChatChoice> {
        let names = Names {
            texts: &self.answers.server().texts,
            by_id: self.names_ids,
        };
        let scored = step.token.filter(|_| self.shows_logprobs);
        let logprobs = scored.and_then(|(id, scored)| {
            let token = of_chat(names, id, &scored?);
            Some(json!({"content": [token]}))
        });
        if step.text.is_empty() && step.end.is_none() && logprobs.is_none() {
            return None;
        }
        Some(ChatChoice {
            index: step.number,
            delta: Delta {
                role: None,
                content: (!step.text.is_empty()).then_some(step.text),
            },
            logprobs,
            finish_reason: step.end.as_ref().map(End::reason),
            stop_reason: step.end.as_ref().map(End::stop_reason),
        })
    }

    fn event(&self, choice: ChatChoice) -> Result<Event, ApiError> {
        let usage = self.options.continuous_usage.then(|| Usage {
            prompt: self.prompt,
            cached: 0,
            completion: self.answers.tokens(choice.index),
        });
        self.with(&[choice], usage)
    }

    fn with(&self, choices: &[ChatChoice], usage: Option<Usage>) -> Result<Event, ApiError> {
        Event::of(&Chunk {
            id: &self.id,
            object: "chat.completion.chunk",
            created: self.created,
            model: &self.answers.model,
            choices: Choices::Chat(choices),
            usage: usage.map(Usage::to_json),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(body: &str) -> Result<Vec<Message>, ApiError> {
        messages(&Fields::parse(body.as_bytes())?)
    }

    #[test]
    fn messages_are_texts_or_parts() {
        let body = r#"{"messages": [{"role": "user", "content": "a", "name": "x"},
            {"role": "assistant", "content": [{"type": "text", "text": "b"}, {"type": "text", "text": "c"}], "tool_calls": []}]}"#;
        let found = read(body).unwrap();
        let texts: Vec<[&str; 2]> = found
            .iter()
            .map(|m| [m.role.as_str(), m.content.as_str()])
            .collect();
        assert_eq!(texts, [["user", "a"], ["assistant", "b\nc"]]);
    }

    #[test]
    fn wrong_messages_are_refused_with_their_number() {
        for (body, part) in [
            ("{}", "is required"),
            (r#"{"messages": []}"#, "at least one"),
            (r#"{"messages": "hi"}"#, "at least one"),
            (r#"{"messages": [{"content": "a"}]}"#, "messages.0.role"),
            (r#"{"messages": ["hi"]}"#, "messages.0.role"),
            (
                r#"{"messages": [{"role": "user", "content": "a"}, {"role": "user"}]}"#,
                "messages.1.content",
            ),
            (
                r#"{"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]}"#,
                "messages.0.content",
            ),
            (
                r#"{"messages": [{"role": "assistant", "content": "", "tool_calls": [{}]}]}"#,
                "messages.0.tool_calls",
            ),
        ] {
            let error = read(body).unwrap_err();
            assert_eq!(error.param.as_deref(), Some("messages"), "{body}");
            assert!(error.message.contains(part), "{body}: {}", error.message);
        }
    }
}
