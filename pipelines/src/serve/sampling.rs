//! Sampling fields of OpenAI's routes, with vLLM's additions, as options of the engine.

use super::error::ApiError;
use super::fields::{Fields, wrong};
use serde_json::Value;
use std::hash::{BuildHasher, Hasher};
use train::infer::GenerateOptions;

/// Answers per prompt at most.
const MOST_ANSWERS: u64 = 128;

/// Stop strings at most.
const MOST_STOPS: usize = 64;

/// Log-probabilities of other tokens at most, as in vLLM.
const MOST_LOGPROBS: u64 = 20;

/// Fields of vLLM or OpenAI that would change the answer and that this server does not know.
const UNSUPPORTED: [&str; 16] = [
    "allowed_token_ids",
    "bad_words",
    "functions",
    "guided_choice",
    "guided_grammar",
    "guided_json",
    "guided_regex",
    "kv_transfer_params",
    "logits_processors",
    "prompt_embeds",
    "response_format",
    "structured_outputs",
    "suffix",
    "tools",
    "use_beam_search",
    "vllm_xargs",
];

/// How to continue a prompt.
#[derive(Clone, Debug)]
pub(super) struct Sampling {
    /// Options without stops and length.
    options: GenerateOptions,
    /// Tokens of an answer at most; none: as many as there is room for.
    pub(super) max_tokens: Option<u64>,
    /// Answers per prompt.
    pub(super) n: usize,
    /// None: another one for each request.
    seed: Option<u64>,
    /// Stop strings.
    pub(super) stop: Vec<String>,
    /// Ids that end an answer, beside the model's own.
    pub(super) stop_ids: Vec<u32>,
    /// Whether the model's end-of-text tokens are tokens like others.
    ignores_end: bool,
    /// Whether the stop stays in the text.
    pub(super) includes_stop: bool,
    /// Whether special tokens have no text.
    pub(super) skips_special: bool,
}

/// Facts of a model that requests are checked against.
#[derive(Clone, Copy)]
pub(super) struct Vocabulary<'a> {
    /// Entries of the model.
    pub(super) model: usize,
    /// Entries of the tokenizer.
    pub(super) tokenizer: usize,
    /// Ids that end a text.
    pub(super) end_ids: &'a [u32],
}

impl Sampling {
    /// Reads the fields that both routes have. `max_tokens` and log-probabilities are the route's.
    ///
    /// # Errors
    /// 400 with the field.
    pub(super) fn read(fields: &Fields, vocabulary: Vocabulary<'_>) -> Result<Sampling, ApiError> {
        refuse_unsupported(fields)?;
        let n = fields.or("n", 1_u64)?;
        if !(1..=MOST_ANSWERS).contains(&n) {
            return Err(ApiError::field(
                "n",
                format!("n: found {n}, want 1 to {MOST_ANSWERS}"),
            ));
        }
        // OpenAI's best n of more answers; of as many as are asked for, all are returned
        let best_of = fields.or("best_of", n)?;
        if best_of != n {
            return Err(ApiError::field(
                "best_of",
                format!("best_of: found {best_of}, want the {n} of n: no answer is left out"),
            ));
        }
        let top_k = fields.or("top_k", 0_i64)?;
        if top_k < -1 {
            return Err(ApiError::field(
                "top_k",
                format!("top_k: found {top_k}, want -1 (all), 0 (all) or more"),
            ));
        }
        let share = |x: f64| (0.0..=1.0).contains(&x);
        let penalty = |x: f64| (-2.0..=2.0).contains(&x);
        let options = GenerateOptions {
            temperature: fields.within("temperature", 1.0, |x| x >= 0.0, "a number, 0 or more")?,
            top_k: usize::try_from(top_k).unwrap_or(0),
            top_p: fields.within("top_p", 1.0, |x| x > 0.0 && share(x), "above 0, at most 1")?,
            min_p: fields.within("min_p", 0.0, share, "0 to 1")?,
            repetition_penalty: fields.within(
                "repetition_penalty",
                1.0,
                |x| x > 0.0,
                "a number above 0",
            )?,
            presence_penalty: fields.within("presence_penalty", 0.0, penalty, "-2 to 2")?,
            frequency_penalty: fields.within("frequency_penalty", 0.0, penalty, "-2 to 2")?,
            min_tokens: usize::try_from(fields.or("min_tokens", 0_u64)?).unwrap_or(usize::MAX),
            logit_bias: logit_bias(fields, vocabulary)?,
            ..GenerateOptions::default()
        };
        let stop_ids: Vec<u32> = fields.or("stop_token_ids", Vec::new())?;
        check_ids("stop_token_ids", &stop_ids, vocabulary.model)?;
        // any integer is a seed
        let seed = fields.get::<i64>("seed")?.map(i64::cast_unsigned);
        Ok(Sampling {
            max_tokens: None,
            n: usize::try_from(n).unwrap_or(1),
            seed,
            stop: stops(fields)?,
            stop_ids,
            ignores_end: fields.or("ignore_eos", false)?,
            includes_stop: fields.or("include_stop_str_in_output", false)?,
            skips_special: fields.or("skip_special_tokens", true)?,
            options,
        })
    }

    /// The same with the most tokens of an answer; `name`: the field that has them.
    ///
    /// # Errors
    /// 400 if no answer can have the fewest tokens.
    pub(super) fn limited(self, max_tokens: Option<u64>, name: &str) -> Result<Sampling, ApiError> {
        let least = self.options.min_tokens as u64;
        match max_tokens.filter(|most| least > *most) {
            None => Ok(Sampling { max_tokens, ..self }),
            Some(most) => Err(ApiError::field(
                "min_tokens",
                format!("min_tokens: found {least}, want at most the {most} of {name}"),
            )),
        }
    }

    /// Tokens of an answer before which no stop counts.
    pub(super) fn min_tokens(&self) -> usize {
        self.options.min_tokens
    }

    /// Ids that end an answer; the first are the request's own.
    pub(super) fn all_stop_ids(&self, vocabulary: Vocabulary<'_>) -> Vec<u32> {
        let ends: &[u32] = if self.ignores_end {
            &[]
        } else {
            vocabulary.end_ids
        };
        let known = |id: &&u32| (**id as usize) < vocabulary.model && !self.stop_ids.contains(id);
        let ends = ends.iter().filter(known);
        self.stop_ids.iter().chain(ends).copied().collect()
    }

    /// Options of the engine for answer `index` of a prompt, with another random stream for each index.
    pub(super) fn options(
        &self,
        index: usize,
        max_tokens: usize,
        vocabulary: Vocabulary<'_>,
    ) -> GenerateOptions {
        let mut options = self.options.clone();
        if options.temperature > 0.0 {
            options.logit_bias.extend(without_padding(vocabulary));
        }
        let stops = self.all_stop_ids(vocabulary).into_iter();
        GenerateOptions {
            max_tokens,
            seed: seed_of(self.seed.unwrap_or_else(random), index),
            stop: stops.map(|id| vec![id]).collect(),
            ..options
        }
    }
}

/// Biases that keep rows of the embedding without a token from being drawn.
pub(super) fn without_padding(vocabulary: Vocabulary<'_>) -> impl Iterator<Item = (u32, f64)> {
    let ids = vocabulary.tokenizer..vocabulary.model;
    ids.filter_map(|id| Some((u32::try_from(id).ok()?, -1e30)))
}

/// The seed of answer `index`: the request's own for the first.
pub(super) fn seed_of(seed: u64, index: usize) -> u64 {
    seed.wrapping_add((index as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

/// A seed that differs from call to call.
pub(super) fn random() -> u64 {
    std::hash::RandomState::new().build_hasher().finish()
}

fn refuse_unsupported(fields: &Fields) -> Result<(), ApiError> {
    for name in UNSUPPORTED {
        let asks = match fields.value(name) {
            None | Some(Value::Bool(false)) => false,
            Some(Value::Array(list)) => !list.is_empty(),
            Some(Value::String(text)) => !text.is_empty(),
            Some(Value::Object(object)) if name == "response_format" => {
                object.get("type").is_some_and(|kind| kind != "text")
            }
            Some(Value::Object(object)) => !object.is_empty(),
            Some(_) => true,
        };
        if asks {
            return Err(ApiError::field(name, format!("{name} is not supported")));
        }
    }
    Ok(())
}

fn stops(fields: &Fields) -> Result<Vec<String>, ApiError> {
    let stops = match fields.value("stop") {
        None => Vec::new(),
        Some(Value::String(one)) => vec![one.clone()],
        Some(Value::Array(_)) => fields.or("stop", Vec::new())?,
        Some(other) => return Err(wrong("stop", other, "a string or a list of strings")),
    };
    let refuse = |message: &str| Err(ApiError::field("stop", message.to_owned()));
    if stops.iter().any(String::is_empty) {
        return refuse("stop: found an empty string, which every text contains");
    }
    if stops.len() > MOST_STOPS {
        return refuse("stop: found more than 64 strings");
    }
    Ok(stops)
}

fn logit_bias(fields: &Fields, vocabulary: Vocabulary<'_>) -> Result<Vec<(u32, f64)>, ApiError> {
    let name = "logit_bias";
    let mut biases = Vec::new();
    let Some(object) = fields.object(name)? else {
        return Ok(biases);
    };
    for (key, value) in object.entries() {
        let id = key.trim().parse::<u32>();
        let id =
            id.map_err(|_| ApiError::field(name, format!("{name}: {key:?} is no token's id")))?;
        check_ids(name, &[id], vocabulary.model)?;
        let bias = value
            .as_f64()
            .ok_or_else(|| wrong(name, value, "a number for each id"))?;
        // OpenAI's bounds, which vLLM clamps to
        biases.push((id, bias.clamp(-100.0, 100.0)));
    }
    Ok(biases)
}

/// Refuses ids that the model does not have.
///
/// # Errors
/// 400 with the field and the first such id.
pub(super) fn check_ids(name: &str, ids: &[u32], vocab: usize) -> Result<(), ApiError> {
    match ids.iter().find(|id| **id as usize >= vocab) {
        None => Ok(()),
        Some(id) => Err(ApiError::field(
            name,
            format!("{name}: token id {id} is out of vocabulary, which has {vocab} entries"),
        )),
    }
}

/// A number of log-probabilities: none, or 0 to 20.
///
/// # Errors
/// 400 with the field.
pub(super) fn logprobs(fields: &Fields, name: &str) -> Result<Option<usize>, ApiError> {
    match fields.get::<u64>(name)? {
        Some(count) if count > MOST_LOGPROBS => Err(ApiError::field(
            name,
            format!("{name}: found {count}, want at most {MOST_LOGPROBS}"),
        )),
        found => Ok(found.and_then(|count| usize::try_from(count).ok())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENDS: [u32; 2] = [0, 7];

    fn vocabulary() -> Vocabulary<'static> {
        Vocabulary {
            model: 12,
            tokenizer: 10,
            end_ids: &ENDS,
        }
    }

    fn read(body: &str) -> Result<Sampling, ApiError> {
        Sampling::read(&Fields::parse(body.as_bytes())?, vocabulary())
    }

    #[test]
    fn wrong_fields_are_refused_by_name() {
        for (body, param) in [
            (r#"{"temperature": -0.1}"#, "temperature"),
            (r#"{"temperature": "hot"}"#, "temperature"),
            (r#"{"top_p": 0}"#, "top_p"),
            (r#"{"top_p": 1.1}"#, "top_p"),
            (r#"{"top_k": -2}"#, "top_k"),
            (r#"{"top_k": 1.5}"#, "top_k"),
            (r#"{"min_p": 2}"#, "min_p"),
            (r#"{"presence_penalty": 2.1}"#, "presence_penalty"),
            (r#"{"frequency_penalty": -2.1}"#, "frequency_penalty"),
            (r#"{"repetition_penalty": 0}"#, "repetition_penalty"),
            (r#"{"n": 0}"#, "n"),
            (r#"{"n": 129}"#, "n"),
            (r#"{"stop": 3}"#, "stop"),
            (r#"{"stop": [""]}"#, "stop"),
            (r#"{"stop": ["a", 1]}"#, "stop"),
            (r#"{"stop_token_ids": [12]}"#, "stop_token_ids"),
            (r#"{"stop_token_ids": [-1]}"#, "stop_token_ids"),
            (r#"{"seed": "x"}"#, "seed"),
            (r#"{"min_tokens": -1}"#, "min_tokens"),
            (r#"{"ignore_eos": 1}"#, "ignore_eos"),
            (r#"{"logit_bias": {"12": 1}}"#, "logit_bias"),
            (r#"{"logit_bias": {"a": 1}}"#, "logit_bias"),
            (r#"{"logit_bias": {"1": "a"}}"#, "logit_bias"),
            (r#"{"logit_bias": []}"#, "logit_bias"),
            (r#"{"best_of": 2}"#, "best_of"),
            (r#"{"best_of": 1, "n": 2}"#, "best_of"),
            (r#"{"best_of": 0}"#, "best_of"),
            (r#"{"suffix": "x"}"#, "suffix"),
            (r#"{"tools": [{}]}"#, "tools"),
            (
                r#"{"response_format": {"type": "json_object"}}"#,
                "response_format",
            ),
        ] {
            let error = read(body).map(|_| ()).unwrap_err();
            assert_eq!(error.param.as_deref(), Some(param), "{body}");
            assert!(
                error.status == 400 && error.message.starts_with(param),
                "{error:?}"
            );
        }
    }

    #[test]
    fn fields_become_options() {
        let body = r#"{"temperature": 0.5, "top_k": -1, "seed": -3, "logit_bias": {"1": 200, "2": -5.5},
            "stop": "x", "stop_token_ids": [3], "tools": [], "suffix": "", "unknown": {"a": 1}, "min_tokens": 2,
            "best_of": 1}"#;
        let sampling = read(body).unwrap();
        let options = sampling.options(0, 9, vocabulary());
        assert_eq!(options.logit_bias[..2], [(1, 100.0), (2, -5.5)]);
        // rows beyond the tokenizer are never drawn
        assert_eq!(options.logit_bias[2..], [(10, -1e30), (11, -1e30)]);
        assert_eq!(options.stop, [[3], [0], [7]]);
        assert_eq!(
            (options.max_tokens, options.top_k, options.min_tokens),
            (9, 0, 2)
        );
        assert_eq!(options.seed, (-3_i64).cast_unsigned());
        assert_ne!(sampling.options(1, 9, vocabulary()).seed, options.seed);
        assert_eq!(sampling.stop, ["x"]);
        assert_eq!(read(r#"{"n": 3, "best_of": 3}"#).unwrap().n, 3);
        let limited = |most| read(body).unwrap().limited(most, "max_tokens");
        assert_eq!(limited(Some(2)).unwrap().max_tokens, Some(2));
        assert_eq!(limited(None).unwrap().max_tokens, None);
        let error = limited(Some(1)).unwrap_err();
        assert_eq!(error.param.as_deref(), Some("min_tokens"));
        assert_eq!(
            error.message,
            "min_tokens: found 2, want at most the 1 of max_tokens"
        );
        let ignores = read(r#"{"ignore_eos": true, "temperature": 0}"#).unwrap();
        let options = ignores.options(0, 1, vocabulary());
        assert!(options.stop.is_empty() && options.logit_bias.is_empty());
        let other = |_| read("{}").unwrap().options(0, 1, vocabulary()).seed;
        assert_ne!(other(0), other(1));
    }
}
