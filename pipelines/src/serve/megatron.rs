//! `PUT` and `POST /api`: Megatron-LM's text generation server with the meaning of its classic release (`core_v0.7.0`,
//! `megatron/inference/text_generation_server.py` and `text_generation/`), every field of which counts here.
//!
//! As there, refusals of the list of prompts are 400, and every other refusal is 200 with a sentence as the JSON body
//! (`--api-status-400` makes them 400). Differences: requests run together instead of one by one; an answer of beam search has no
//! padding behind its stop; a prompt that is no string is refused.

use super::admission::Place;
use super::engine_thread::Progress;
use super::error::ApiError;
use super::fields::Fields;
use super::group::Group;
use super::openai::Call;
use super::sampling::{random, seed_of, without_padding};
use super::state::Server;
use super::texts::{decode, internal};
use axum::Json;
use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tokio::time::Instant;
use train::infer::engine::Request;
use train::infer::{Beam, BeamOptions, BeamSearch, GenerateOptions};

/// GPT-2's ids of one and of two line feeds, which `stop_on_eol` and `stop_on_double_eol` mean whatever the vocabulary is.
const EOL: u32 = 198;
const DOUBLE_EOL: u32 = 628;

/// Prompts of a request at most.
const MOST_PROMPTS: usize = 128;

/// GPT-2's end of text, the token that ends an answer of beam search unless told.
const STOP_TOKEN: i64 = 50256;

/// A refusal in Megatron-LM's words.
#[derive(Debug, PartialEq)]
struct Refusal {
    /// Whether it is 400 there as well.
    is_400: bool,
    sentence: String,
}

fn refuse<T>(sentence: impl Into<String>) -> Result<T, Refusal> {
    let sentence = sentence.into();
    Err(Refusal {
        is_400: false,
        sentence,
    })
}

fn refuse_400<T>(sentence: impl Into<String>) -> Result<T, Refusal> {
    let sentence = sentence.into();
    Err(Refusal {
        is_400: true,
        sentence,
    })
}

/// A checked request.
#[derive(Debug, PartialEq)]
struct Asked {
    prompts: Vec<String>,
    tokens_to_generate: usize,
    logprobs: bool,
    temperature: f64,
    top_k: usize,
    top_p: f64,
    top_p_decay: f64,
    top_p_bound: f64,
    add_bos: bool,
    stop_on_double_eol: bool,
    stop_on_eol: bool,
    prevent_newline_after_colon: bool,
    seed: Option<u64>,
    no_log: bool,
    beam_width: Option<usize>,
    stop_token: i64,
    length_penalty: f64,
}

/// Python's integers, of which its booleans are two.
fn integer(value: &Value) -> Option<i64> {
    value.as_i64().or_else(|| Some(i64::from(value.as_bool()?)))
}

/// A JSON number with a fraction or an exponent: Python's `float`.
fn float(value: &Value) -> Option<f64> {
    value.as_f64().filter(|_| value.is_f64())
}

fn boolean(fields: &Fields, name: &str) -> Result<bool, Refusal> {
    match fields.raw(name) {
        None => Ok(false),
        Some(value) => match value.as_bool() {
            Some(found) => Ok(found),
            None => refuse(format!("{name} must be a boolean value")),
        },
    }
}

/// An integer of at least `least`, or none if the field is absent.
fn at_least(
    fields: &Fields,
    name: &str,
    least: i64,
    [no_integer, too_small]: [&str; 2],
) -> Result<Option<i64>, Refusal> {
    match fields.raw(name).map(integer) {
        None => Ok(None),
        Some(None) => refuse(no_integer),
        Some(Some(found)) if found < least => refuse(too_small),
        Some(found) => Ok(found),
    }
}

impl Asked {
    /// The rules in the order of Megatron-LM's server, with its sentences.
    fn read(fields: &Fields) -> Result<Asked, Refusal> {
        let prompts = prompts(fields)?;
        let tokens = [
            "tokens_to_generate must be an integer greater than 0",
            "tokens_to_generate must be an integer greater than or equal to 0",
        ];
        let tokens = at_least(fields, "tokens_to_generate", 0, tokens)?.unwrap_or(64);
        let logprobs = boolean(fields, "logprobs")?;
        if tokens == 0 && !logprobs {
            return refuse("tokens_to_generate=0 implies logprobs should be True");
        }
        let temperature = match fields.raw("temperature") {
            None => Some(1.0),
            Some(value) => value.as_f64(),
        };
        let temperature = temperature.filter(|t| *t > 0.0 && *t <= 100.0);
        let Some(temperature) = temperature else {
            return refuse("temperature must be a positive number less than or equal to 100.0");
        };
        let top_k = [
            "top_k must be an integer equal to or greater than 0 and less than or equal to 1000",
            "top_k must be equal to or greater than 0 and less than or equal to 1000",
        ];
        let top_k = match at_least(fields, "top_k", 0, top_k)?.unwrap_or(0) {
            found if found > 1000 => return refuse(top_k[1]),
            found => found,
        };
        let [top_p, top_p_decay, top_p_bound] = nucleus(fields, top_k)?;
        let add_bos = boolean(fields, "add_BOS")?;
        if prompts.iter().any(String::is_empty) && !add_bos {
            return refuse("Empty prompts require add_BOS=true");
        }
        let stop_on_double_eol = boolean(fields, "stop_on_double_eol")?;
        let stop_on_eol = boolean(fields, "stop_on_eol")?;
        let prevent_newline_after_colon = boolean(fields, "prevent_newline_after_colon")?;
        let seed = [
            "random_seed must be integer",
            "random_seed must be a positive integer",
        ];
        let seed = at_least(fields, "random_seed", 0, seed)?;
        let no_log = boolean(fields, "no_log")?;
        let width = [
            "beam_width must be integer",
            "beam_width must be an integer > 1",
        ];
        let beam_width = at_least(fields, "beam_width", 1, width)?;
        if beam_width.is_some() && prompts.len() > 1 {
            return refuse("When doing beam_search, batch size must be 1");
        }
        let Some(stop_token) = fields.raw("stop_token").map_or(Some(STOP_TOKEN), integer) else {
            return refuse("stop_token must be an integer");
        };
        let length_penalty = fields.raw("length_penalty").map_or(Some(1.0), float);
        let Some(length_penalty) = length_penalty else {
            return refuse("length_penalty must be a float");
        };
        let size = |number: i64| usize::try_from(number).unwrap_or(usize::MAX);
        Ok(Asked {
            prompts,
            tokens_to_generate: size(tokens),
            logprobs,
            temperature,
            top_k: size(top_k),
            top_p,
            top_p_decay,
            top_p_bound,
            add_bos,
            stop_on_double_eol,
            stop_on_eol,
            prevent_newline_after_colon,
            seed: seed.map(i64::cast_unsigned),
            no_log,
            beam_width: beam_width.map(size),
            stop_token,
            length_penalty,
        })
    }

    /// Options of the answer to a prompt: `index` among the prompts, so many tokens at most.
    fn options(&self, index: usize, max_tokens: usize, server: &Server) -> GenerateOptions {
        let vocabulary = server.vocabulary();
        let known = |id: &u32| (*id as usize) < vocabulary.model;
        let ids = match (self.stop_on_double_eol, self.stop_on_eol) {
            (true, _) => vec![vec![DOUBLE_EOL], vec![EOL, EOL]],
            (false, true) => vec![vec![DOUBLE_EOL], vec![EOL]],
            (false, false) => vocabulary.end_ids.iter().map(|id| vec![*id]).collect(),
        };
        GenerateOptions {
            max_tokens,
            // one candidate is the likeliest token
            temperature: if self.top_k == 1 {
                0.0
            } else {
                self.temperature
            },
            top_k: self.top_k,
            top_p: if self.top_p == 0.0 { 1.0 } else { self.top_p },
            top_p_decay: self.top_p_decay,
            top_p_bound: self.top_p_bound,
            seed: seed_of(self.seed.unwrap_or_else(random), index),
            stop: ids
                .into_iter()
                .filter(|stop| stop.iter().all(known))
                .collect(),
            never_after: self.never_after(server),
            logit_bias: without_padding(vocabulary).collect(),
            logprobs: self.logprobs.then_some(0),
            prompt_logprobs: self.logprobs.then_some(0),
            ..GenerateOptions::default()
        }
    }

    fn never_after(&self, server: &Server) -> Vec<[u32; 2]> {
        let first = |text: &str| server.files.tokenizer.encode(text).ok()?.first().copied();
        match (self.prevent_newline_after_colon, first(":"), first("\n")) {
            (true, Some(colon), Some(newline)) => vec![[colon, newline]],
            _ => Vec::new(),
        }
    }
}

fn prompts(fields: &Fields) -> Result<Vec<String>, Refusal> {
    let Some(prompts) = fields.raw("prompts") else {
        return refuse_400("prompts argument required");
    };
    for (name, instead) in [("max_len", "tokens_to_generate"), ("sentences", "prompts")] {
        if fields.has(name) {
            return refuse_400(format!("{name} is no longer used.  Replace with {instead}"));
        }
    }
    let no_strings = "prompts is not a list of strings";
    let Some(prompts) = prompts.as_array() else {
        return refuse_400(no_strings);
    };
    if prompts.is_empty() {
        return refuse_400("prompts is empty");
    }
    if prompts.len() > MOST_PROMPTS {
        return refuse_400(format!("Maximum number of prompts is {MOST_PROMPTS}"));
    }
    let texts = prompts
        .iter()
        .map(|prompt| prompt.as_str().map(str::to_owned));
    match texts.collect() {
        Some(texts) => Ok(texts),
        None => refuse_400(no_strings),
    }
}

/// `top_p`, its decay and its bound.
fn nucleus(fields: &Fields, top_k: i64) -> Result<[f64; 3], Refusal> {
    let share = |x: f64| (0.0..=1.0).contains(&x);
    let read = |name: &str| fields.raw(name).map_or(Some(0.0), float);
    let wrong_p = "top_p must be a positive float less than or equal to 1.0";
    let Some(top_p) = read("top_p") else {
        return refuse(wrong_p);
    };
    if top_p > 0.0 && top_k > 0 {
        return refuse("cannot set both top-k and top-p samplings.");
    }
    if !share(top_p) {
        return refuse(wrong_p);
    }
    let wrong_decay = "top_p_decay must be a positive float less than or equal to 1.0";
    let Some(decay) = read("top_p_decay") else {
        return refuse(wrong_decay);
    };
    if fields.has("top_p_decay") && top_p == 0.0 {
        return refuse("top_p_decay cannot be set without top_p");
    }
    if !share(decay) {
        return refuse(wrong_decay);
    }
    let Some(bound) = read("top_p_bound") else {
        return refuse("top_p_bound must be a positive float less than or equal to top_p");
    };
    if fields.has("top_p_bound") {
        if top_p == 0.0 {
            return refuse("top_p_bound cannot be set without top_p");
        }
        if !(bound > 0.0 && bound <= top_p) {
            return refuse("top_p_bound must be greater than 0 and less than top_p");
        }
    }
    Ok([top_p, decay, bound])
}

/// Reasons for another answer than the texts.
enum Failure {
    Refused(Refusal),
    Failed(ApiError),
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Failure {
        Failure::Refused(refusal)
    }
}

impl From<ApiError> for Failure {
    fn from(error: ApiError) -> Failure {
        Failure::Failed(error)
    }
}

/// The route.
pub(super) async fn generate(call: Result<Call, ApiError>) -> Response {
    let (answer, all_400) = match call {
        Ok(call) => (answer(&call).await, call.server.limits.megatron_400),
        Err(e) => (Err(e.into()), false),
    };
    match answer {
        Ok(body) => Json(body).into_response(),
        Err(Failure::Failed(error)) => error.to_megatron(),
        Err(Failure::Refused(refusal)) => {
            let mut response = Response::new(Body::from(json!(refusal.sentence).to_string()));
            if refusal.is_400 || all_400 {
                *response.status_mut() = StatusCode::BAD_REQUEST;
            }
            let json = HeaderValue::from_static("application/json");
            response.headers_mut().insert(header::CONTENT_TYPE, json);
            response
        }
    }
}

async fn answer(call: &Call) -> Result<Value, Failure> {
    let place = Arc::new(call.server.admission.enter()?);
    let asked = Asked::read(&call.fields()?)?;
    call.figures.is_quiet.store(asked.no_log, Ordering::Relaxed);
    let prompts = encode(&asked, &call.server)?;
    let tokens = prompts.iter().map(Vec::len).sum();
    call.figures.prompt_tokens.store(tokens, Ordering::Relaxed);
    match asked.beam_width {
        Some(width) => beams(call, &asked, &prompts[0], &place, width).await,
        None => texts(call, &asked, prompts, &place).await,
    }
}

/// Ids of the prompts, behind the end-of-document token with `add_BOS`.
fn encode(asked: &Asked, server: &Server) -> Result<Vec<Vec<u32>>, Failure> {
    let tokenizer = &server.files.tokenizer;
    let special = tokenizer.megatrons_special_tokens();
    let mut encoder = match tokenizer.encoder_with(special) {
        Ok(encoder) => encoder,
        // a post-processor of an unknown form adds nothing
        Err(_) => tokenizer.encoder(),
    };
    let first = tokenizer.end_of_document().or(server.files.start);
    let mut prompts = Vec::new();
    for text in &asked.prompts {
        let mut ids = Vec::new();
        if asked.add_bos {
            ids.extend(first);
        }
        let done = encoder.encode_into(text, &mut ids);
        done.map_err(|e| internal(&e.into()))?;
        if ids.is_empty() {
            let sentence = "the tokenizer makes no token of a prompt";
            return Err(ApiError::field("prompts", sentence).into());
        }
        prompts.push(ids);
    }
    Ok(prompts)
}

/// Prompts with their continuations. As in Megatron-LM the texts form a rectangle: a shorter prompt gets more new tokens.
async fn texts(
    call: &Call,
    asked: &Asked,
    prompts: Vec<Vec<u32>>,
    place: &Arc<Place>,
) -> Result<Value, Failure> {
    let server = &call.server;
    let longest = prompts.iter().map(Vec::len).max().unwrap_or(0);
    let whole = longest.saturating_add(asked.tokens_to_generate);
    if whole > server.engine.facts.max_length {
        refuse("Length of prompt + tokens_to_generate longer than allowed")?;
    }
    let (all, most) = (whole * prompts.len(), server.limits.megatron_tokens);
    if all > most {
        refuse(format!("Too many tokens.  {all} is greater than {most}"))?;
    }
    server.metrics.asked(1, asked.tokens_to_generate);
    let request = |(index, prompt): (usize, &Vec<u32>)| {
        let max_tokens = match asked.tokens_to_generate {
            0 => 0,
            _ => whole - prompt.len(),
        };
        Request {
            prompt: prompt.clone(),
            options: asked.options(index, max_tokens, server),
            beginning: Vec::new(),
            slides: false,
            adapter: None,
        }
    };
    let requests = prompts.iter().enumerate().map(request).collect();
    let deadline = Instant::now() + server.limits.answer;
    let mut group = Group::submit(server, &call.figures, place, requests, deadline);
    let lengths: Vec<usize> = prompts.iter().map(Vec::len).collect();
    let mut ids = prompts;
    let mut logprobs: Vec<Vec<f32>> = vec![Vec::new(); ids.len()];
    while let Some((number, progress)) = group.next().await? {
        match progress {
            Progress::Prompt { scores, .. } => {
                let scored = scores.into_iter().flatten().map(|scored| scored.logprob);
                logprobs[number].extend(scored);
            }
            Progress::Token { token, scored } => {
                // the first of two line feeds may be the prompt's
                let is_first = ids[number].len() == lengths[number];
                let ends = asked.stop_on_double_eol
                    && is_first
                    && token == EOL
                    && ids[number].last() == Some(&EOL);
                ids[number].push(token);
                logprobs[number].extend(scored.map(|scored| scored.logprob));
                if ends {
                    group.stop(number);
                }
            }
            Progress::Started
            | Progress::Finished(_)
            | Progress::Refused(_)
            | Progress::Failed(_)
            | Progress::Ended => {}
        }
    }
    let (texts, segments) = shown(&ids, server)?;
    Ok(json!({
        "text": texts,
        "segments": segments,
        "logprobs": asked.logprobs.then_some(logprobs),
    }))
}

/// The likeliest continuations of a prompt, best first.
async fn beams(
    call: &Call,
    asked: &Asked,
    prompt: &[u32],
    place: &Arc<Place>,
    width: usize,
) -> Result<Value, Failure> {
    let server = &call.server;
    let whole = prompt.len().saturating_add(asked.tokens_to_generate);
    if whole > server.engine.facts.max_length {
        refuse("context length + tokens_to_generate too large")?;
    }
    let (all, most) = (whole.saturating_mul(width), server.limits.megatron_tokens);
    if all > most {
        refuse(format!("Too many tokens.  {all} is greater than {most}"))?;
    }
    server.metrics.asked(width, asked.tokens_to_generate);
    let options = BeamOptions {
        width,
        max_tokens: asked.tokens_to_generate,
        stop: u32::try_from(asked.stop_token).ok(),
        length_penalty: asked.length_penalty,
    };
    let search = BeamSearch::new(prompt, options);
    let search = search.map_err(|e| ApiError::bad(e.to_string()))?;
    let mut search = search.never_after(asked.never_after(server));
    let deadline = Instant::now() + server.limits.answer;
    loop {
        let requests = search.requests();
        if requests.is_empty() {
            break;
        }
        let mut tops = vec![Vec::new(); requests.len()];
        let mut group = Group::submit(server, &call.figures, place, requests, deadline);
        while let Some((number, progress)) = group.next().await? {
            if let Progress::Token {
                scored: Some(scored),
                ..
            } = progress
            {
                tops[number] = scored.top;
            }
        }
        search.take(&tops);
    }
    let found: Vec<Beam> = search.finish();
    let ids = found.iter().map(|beam| [prompt, &beam.tokens].concat());
    let (texts, segments) = shown(&ids.collect::<Vec<_>>(), server)?;
    let scores: Vec<f64> = found.iter().map(|beam| beam.score).collect();
    Ok(json!({"text": texts, "segments": segments, "scores": scores}))
}

/// Texts, and the texts of their tokens.
fn shown(ids: &[Vec<u32>], server: &Server) -> Result<(Vec<String>, Vec<Vec<String>>), ApiError> {
    let texts = ids
        .iter()
        .map(|ids| decode(&server.files.tokenizer, ids, false));
    let segments = ids.iter().map(|ids| {
        let segment = |id: &u32| server.texts.text(*id).to_owned();
        ids.iter().map(segment).collect()
    });
    Ok((texts.collect::<Result<_, _>>()?, segments.collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(body: &str) -> Result<Asked, Refusal> {
        Asked::read(&Fields::parse(body.as_bytes()).unwrap())
    }

    /// A field's text in a body with a prompt, the sentence, and whether it is 400.
    #[test]
    fn every_rule_has_megatrons_sentence_and_status() {
        let many = format!(r#"{{"prompts": [{}]}}"#, vec!["\"a\""; 129].join(","));
        let whole: [(&str, &str); 8] = [
            ("{}", "prompts argument required"),
            (
                r#"{"prompts": ["a"], "max_len": 3}"#,
                "max_len is no longer used.  Replace with tokens_to_generate",
            ),
            (
                r#"{"prompts": ["a"], "sentences": null}"#,
                "sentences is no longer used.  Replace with prompts",
            ),
            (r#"{"prompts": "a"}"#, "prompts is not a list of strings"),
            (r#"{"prompts": null}"#, "prompts is not a list of strings"),
            (
                r#"{"prompts": ["a", 1]}"#,
                "prompts is not a list of strings",
            ),
            (r#"{"prompts": []}"#, "prompts is empty"),
            (&many, "Maximum number of prompts is 128"),
        ];
        for (body, sentence) in whole {
            assert_eq!(read(body), refuse_400(sentence), "{body}");
        }
        let tokens = "tokens_to_generate must be an integer greater than";
        let temperature = "temperature must be a positive number less than or equal to 100.0";
        let top_k = "equal to or greater than 0 and less than or equal to 1000";
        let top_p = "must be a positive float less than or equal to 1.0";
        let rows: [(&str, &str); 43] = [
            (r#""tokens_to_generate": 1.5"#, &format!("{tokens} 0")),
            (r#""tokens_to_generate": "8""#, &format!("{tokens} 0")),
            (r#""tokens_to_generate": null"#, &format!("{tokens} 0")),
            (
                r#""tokens_to_generate": -1"#,
                &format!("{tokens} or equal to 0"),
            ),
            (
                r#""tokens_to_generate": 0"#,
                "tokens_to_generate=0 implies logprobs should be True",
            ),
            (r#""logprobs": 1"#, "logprobs must be a boolean value"),
            (r#""temperature": 0"#, temperature),
            (r#""temperature": 0.0"#, temperature),
            (r#""temperature": 100.1"#, temperature),
            (r#""temperature": "1""#, temperature),
            (
                r#""top_k": 1.0"#,
                &format!("top_k must be an integer {top_k}"),
            ),
            (r#""top_k": -1"#, &format!("top_k must be {top_k}")),
            (r#""top_k": 1001"#, &format!("top_k must be {top_k}")),
            (r#""top_p": 1"#, &format!("top_p {top_p}")),
            (r#""top_p": 1.1"#, &format!("top_p {top_p}")),
            (r#""top_p": -0.1"#, &format!("top_p {top_p}")),
            (
                r#""top_k": 2, "top_p": 0.5"#,
                "cannot set both top-k and top-p samplings.",
            ),
            (
                r#""top_p_decay": 0.5"#,
                "top_p_decay cannot be set without top_p",
            ),
            (
                r#""top_p": 0.0, "top_p_decay": 0.5"#,
                "top_p_decay cannot be set without top_p",
            ),
            (
                r#""top_p": 0.5, "top_p_decay": 1"#,
                &format!("top_p_decay {top_p}"),
            ),
            (
                r#""top_p": 0.5, "top_p_decay": 1.5"#,
                &format!("top_p_decay {top_p}"),
            ),
            (
                r#""top_p_bound": 0.5"#,
                "top_p_bound cannot be set without top_p",
            ),
            (
                r#""top_p": 0.5, "top_p_bound": 0.6"#,
                "top_p_bound must be greater than 0 and less than top_p",
            ),
            (
                r#""top_p": 0.5, "top_p_bound": 0.0"#,
                "top_p_bound must be greater than 0 and less than top_p",
            ),
            (
                r#""top_p": 0.5, "top_p_bound": "x""#,
                "top_p_bound must be a positive float less than or equal to top_p",
            ),
            (r#""add_BOS": 1"#, "add_BOS must be a boolean value"),
            (
                r#""prompts": ["a", ""]"#,
                "Empty prompts require add_BOS=true",
            ),
            (
                r#""stop_on_double_eol": "x""#,
                "stop_on_double_eol must be a boolean value",
            ),
            (r#""stop_on_eol": 0"#, "stop_on_eol must be a boolean value"),
            (
                r#""prevent_newline_after_colon": null"#,
                "prevent_newline_after_colon must be a boolean value",
            ),
            (r#""random_seed": 1.0"#, "random_seed must be integer"),
            (r#""random_seed": "1""#, "random_seed must be integer"),
            (
                r#""random_seed": -1"#,
                "random_seed must be a positive integer",
            ),
            (r#""no_log": "x""#, "no_log must be a boolean value"),
            (r#""beam_width": 2.0"#, "beam_width must be integer"),
            (r#""beam_width": 0"#, "beam_width must be an integer > 1"),
            (r#""beam_width": -3"#, "beam_width must be an integer > 1"),
            (
                r#""prompts": ["a", "b"], "beam_width": 2"#,
                "When doing beam_search, batch size must be 1",
            ),
            (r#""stop_token": 1.5"#, "stop_token must be an integer"),
            (r#""stop_token": "x""#, "stop_token must be an integer"),
            (r#""length_penalty": 1"#, "length_penalty must be a float"),
            (r#""length_penalty": "x""#, "length_penalty must be a float"),
            (
                r#""length_penalty": null"#,
                "length_penalty must be a float",
            ),
        ];
        for (row, sentence) in rows {
            // a later field replaces an earlier one of its name
            let body = format!(r#"{{"prompts": ["a"], {row}}}"#);
            assert_eq!(read(&body), refuse(sentence), "{row}");
        }
    }

    #[test]
    fn limits_themselves_are_taken() {
        for row in [
            r#""tokens_to_generate": 0, "logprobs": true"#,
            r#""temperature": 100"#,
            r#""temperature": 0.001"#,
            r#""top_k": 1000"#,
            r#""top_k": true"#,
            r#""top_p": 1.0, "top_p_decay": 1.0, "top_p_bound": 1.0"#,
            r#""top_p": 0.0"#,
            r#""random_seed": 0"#,
            r#""beam_width": 1, "length_penalty": 0.0, "stop_token": -1"#,
            r#""prompts": [""], "add_BOS": true"#,
            r#""unknown": {}"#,
        ] {
            let body = format!(r#"{{"prompts": ["a"], {row}}}"#);
            assert!(read(&body).is_ok(), "{row}");
        }
        let many = format!(r#"{{"prompts": [{}]}}"#, vec!["\"a\""; 128].join(","));
        assert_eq!(read(&many).unwrap().prompts.len(), 128);
        let plain = read(r#"{"prompts": ["a"]}"#).unwrap();
        assert_eq!(
            (plain.tokens_to_generate, plain.seed, plain.stop_token),
            (64, None, 50256)
        );
    }
}
