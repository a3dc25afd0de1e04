//! The events of streamed answers, as OpenAI's two routes send them. A completion's choice is also that of a whole answer.

use serde::Serialize;
use serde_json::{Error, Value};

/// An event's object. <https://platform.openai.com/docs/api-reference/chat/streaming>
#[derive(Serialize)]
pub struct Chunk<'a> {
    /// Name of the answer.
    pub id: &'a str,
    /// Kind of object.
    pub object: &'static str,
    /// Seconds since 1970.
    pub created: u64,
    /// Name of the model that was asked for.
    pub model: &'a str,
    /// None in the event that has the usage of the whole answer.
    pub choices: Choices<'a>,
    /// Tokens so far.
    pub usage: Option<Value>,
}

/// Choices of one of the routes.
#[derive(Serialize)]
#[serde(untagged)]
pub enum Choices<'a> {
    /// `/v1/chat/completions`
    Chat(&'a [ChatChoice]),
    /// `/v1/completions`
    Completion(&'a [CompletionChoice<'a>]),
}

/// An answer of `/v1/completions`, or what an event adds to it.
#[derive(Serialize)]
pub struct CompletionChoice<'a> {
    /// Number of the answer.
    pub index: usize,
    /// Text that is certain.
    pub text: String,
    /// Log-probabilities of the tokens.
    pub logprobs: Option<Value>,
    /// OpenAI's reason, at the end.
    pub finish_reason: Option<&'static str>,
    /// vLLM's.
    pub stop_reason: Value,
    /// Only if they were asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt_logprobs: Option<Value>,
    /// Only if they were asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_ids: Option<Vec<u32>>,
    /// Beside `token_ids`; null in events after the first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt_token_ids: Option<Option<&'a [u32]>>,
}

/// The part of a message that an event of `/v1/chat/completions` adds.
#[derive(Serialize)]
pub struct ChatChoice {
    /// Number of the message.
    pub index: usize,
    /// The addition.
    pub delta: Delta,
    /// Log-probabilities of the tokens.
    pub logprobs: Option<Value>,
    /// OpenAI's reason, at the end.
    pub finish_reason: Option<&'static str>,
    /// vLLM's, at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stop_reason: Option<Value>,
}

/// The new part of a message.
#[derive(Default, Serialize)]
pub struct Delta {
    /// In the first event.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub role: Option<&'static str>,
    /// Text that is certain.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content: Option<String>,
}

impl Chunk<'_> {
    /// The object in JSON.
    ///
    /// # Errors
    /// None: all names are strings.
    pub fn to_json(&self) -> Result<String, Error> {
        serde_json::to_string(self)
    }
}
