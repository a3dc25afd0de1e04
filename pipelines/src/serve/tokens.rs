//! `/tokenize`, `/detokenize` and `/tokenizer_info` as vLLM serves them.

use super::chat::prompt_of;
use super::error::ApiError;
use super::openai::Call;
use super::sampling::check_ids;
use super::state::Server;
use super::texts::decode;
use axum::Json;
use axum::extract::State;
use serde_json::{Value, json};
use std::sync::Arc;

/// `POST /tokenize`: `prompt`, or `messages`.
pub(super) async fn tokenize(call: Call) -> Result<Json<Value>, ApiError> {
    let (fields, server) = (call.fields()?, &call.server);
    server.asked(&fields)?;
    let ids = match fields.has("messages") {
        true => prompt_of(&fields, server)?,
        false => {
            let prompt: Option<String> = fields.get("prompt")?;
            let prompt = prompt.ok_or_else(|| ApiError::field("prompt", "prompt: is required"))?;
            let adds = fields.or("add_special_tokens", true)?;
            server.ids_of_prompt(&prompt, adds)?
        }
    };
    let names = fields.or("return_token_strs", false)?.then(|| {
        let name = |id: &u32| {
            server
                .files
                .tokenizer
                .token(*id)
                .unwrap_or_default()
                .to_owned()
        };
        ids.iter().map(name).collect::<Vec<String>>()
    });
    Ok(Json(json!({
        "count": ids.len(),
        "max_model_len": server.engine.facts.max_length,
        "tokens": ids,
        "token_strs": names,
    })))
}

/// `POST /detokenize`: `tokens`.
pub(super) async fn detokenize(call: Call) -> Result<Json<Value>, ApiError> {
    let (fields, server) = (call.fields()?, &call.server);
    server.asked(&fields)?;
    let ids: Option<Vec<u32>> = fields.get("tokens")?;
    let ids = ids.ok_or_else(|| ApiError::field("tokens", "tokens: is required"))?;
    check_ids("tokens", &ids, server.engine.facts.vocab)?;
    let text = decode(&server.files.tokenizer, &ids, false)?;
    Ok(Json(json!({"prompt": text})))
}

/// `GET /tokenizer_info`: texts of the special tokens, and the chat template.
pub(super) async fn tokenizer_info(State(server): State<Arc<Server>>) -> Json<Value> {
    let files = &server.files;
    let named = |id: Option<u32>| id.and_then(|id| files.tokenizer.token(id));
    let special = files.tokenizer.special();
    Json(json!({
        "tokenizer_class": format!("{:?}", files.tokenizer.kind()),
        "bos_token": files.bos,
        "eos_token": files.eos,
        "pad_token": named(special.pad),
        "unk_token": named(special.unk),
        "vocab_size": files.tokenizer.vocab(),
        "model_max_length": server.engine.facts.max_length,
        "chat_template": files.chat_template.as_ref().map(|template| template.source()),
    }))
}
