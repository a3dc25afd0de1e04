//! Metadata of a GGUF file about its tokenizer, from `tokenizer.json` and `tokenizer_config.json`.
//!
//! llama.cpp has its tokenizers by kind: `gpt2` is byte-level BPE, whose split expression has a name (`pre`); `llama`
//! is SentencePiece's BPE with bytes for unknown characters, which merges by scores. Kinds that it lacks, or whose
//! expression has no name there, are refused: it would load them and split texts otherwise.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use serde_json::Value as Json;

use crate::checkpoint::gguf::split_names;
use crate::checkpoint::gguf::token_type::{BYTE, CONTROL, NORMAL, UNKNOWN, UNUSED, USER};
use crate::checkpoint::gguf::value::{List, Metadata, Value};
use crate::error::{At, Error, Result};

/// Scores of tokens that no merge makes.
const NO_SCORE: f64 = -1e6;

/// Settings beside the tokenizer's file.
pub(super) struct Around<'a> {
    /// Tokens of the model.
    pub vocab: usize,
    /// End of a document, if no `tokenizer_config.json` names one.
    pub eod: Option<u32>,
    /// llama.cpp's name of the split expression, in place of the one that is found.
    pub pre: Option<&'a str>,
}

fn refused(path: &Path, problem: String) -> Error {
    Error::Foreign {
        path: path.to_owned(),
        problems: vec![problem],
    }
}

fn read(path: &Path) -> Result<Json> {
    let bytes = fs::read(path).at("read", path)?;
    serde_json::from_slice(&bytes).map_err(|error| refused(path, format!("not JSON: {error}")))
}

/// Adds the tokenizer of a file to the metadata.
///
/// # Errors
/// A file that cannot be read; a tokenizer that llama.cpp lacks.
pub(super) fn add(metadata: &mut Metadata, path: &Path, around: &Around<'_>) -> Result<()> {
    let json = read(path)?;
    let model = &json["model"];
    let kind = model["type"].as_str().unwrap_or("nothing");
    if kind != "BPE" {
        let line =
            format!("model.type: found {kind}, want BPE: llama.cpp's others are not written");
        return Err(refused(path, line));
    }
    let is_sentence_piece = model["byte_fallback"].as_bool().unwrap_or(false);
    let merges = merges(&model["merges"]);
    let mut tokens = Tokens::new(around.vocab);
    for (text, id) in model["vocab"].as_object().into_iter().flatten() {
        let id = id.as_u64().and_then(|id| usize::try_from(id).ok());
        let kind = match text.strip_prefix("<0x") {
            Some(hex) if is_sentence_piece && hex.len() == 3 && hex.ends_with('>') => BYTE,
            _ => NORMAL,
        };
        tokens
            .put(id, text, kind)
            .map_err(|line| refused(path, line))?;
    }
    for token in json["added_tokens"].as_array().into_iter().flatten() {
        let id = token["id"].as_u64().and_then(|id| usize::try_from(id).ok());
        let text = token["content"].as_str().unwrap_or_default();
        let kind = match token["special"].as_bool().unwrap_or(false) {
            _ if model["unk_token"].as_str() == Some(text) => UNKNOWN,
            true => CONTROL,
            false => USER,
        };
        tokens
            .put(id, text, kind)
            .map_err(|line| refused(path, line))?;
    }
    let set = |metadata: &mut Metadata, key: &str, value: Value| {
        metadata.set(format!("tokenizer.ggml.{key}"), value);
    };
    if is_sentence_piece {
        set(metadata, "model", "llama".into());
        set(metadata, "pre", "default".into());
        let scores = tokens.scores(&merges);
        set(metadata, "scores", Value::List(List::Reals(scores)));
        let pre = &json["pre_tokenizer"];
        let steps = pre["pretokenizers"].as_array().into_iter().flatten();
        let prepends = json["normalizer"].to_string().contains("\"Prepend\"")
            || [pre].into_iter().chain(steps).any(puts_a_blank_first);
        set(metadata, "add_space_prefix", Value::Bool(prepends));
    } else {
        let pre = match around.pre {
            Some(pre) => pre.to_owned(),
            None => name_of_steps(&json["pre_tokenizer"]).map_err(|line| refused(path, line))?,
        };
        let normalizer = normalizer(&json["normalizer"]).map_err(|line| refused(path, line))?;
        metadata.set(split_names::NORMALIZER_KEY, normalizer);
        if json["pre_tokenizer"]
            .to_string()
            .contains("\"add_prefix_space\":true")
        {
            set(metadata, "add_space_prefix", Value::Bool(true));
        }
        set(metadata, "model", "gpt2".into());
        set(metadata, "pre", Value::Text(pre));
        let joined = merges.iter().map(|[left, right]| format!("{left} {right}"));
        set(
            metadata,
            "merges",
            Value::List(List::Texts(joined.collect())),
        );
    }
    let around_text = framed(&json["post_processor"]);
    let ids = tokens.ids();
    let beside = path.with_file_name("tokenizer_config.json");
    let settings = match beside.is_file() {
        true => read(&beside)?,
        false => Json::Null,
    };
    let mut known = Vec::new();
    let ending = around_text[1].or(around.eod.map(|id| id as usize));
    for (name, key, unnamed) in [
        ("bos", "bos_token_id", around_text[0]),
        ("eos", "eos_token_id", ending),
        ("unk", "unknown_token_id", None),
        ("pad", "padding_token_id", None),
    ] {
        let named = &settings[format!("{name}_token")];
        let text = named.as_str().or_else(|| named["content"].as_str());
        let id = text.and_then(|text| ids.get(text).copied()).or(unnamed);
        if let Some(id) = id {
            set(metadata, key, id.into());
        }
        known.push(id);
    }
    for (side, name) in ["bos", "eos"].into_iter().enumerate() {
        let key = format!("add_{name}_token");
        // the post-processor does it; without one SentencePiece's tokenizers add the beginning by default
        let adds = match json["post_processor"].is_object() {
            true => around_text[side].is_some(),
            false => settings[&key]
                .as_bool()
                .unwrap_or(is_sentence_piece && side == 0),
        };
        set(metadata, &key, Value::Bool(adds && known[side].is_some()));
    }
    if let Some(template) = template(path, &settings)? {
        metadata.set("tokenizer.chat_template", &*template);
    }
    set(metadata, "tokens", Value::List(List::Texts(tokens.texts)));
    set(
        metadata,
        "token_type",
        Value::List(List::Whole(tokens.kinds)),
    );
    Ok(())
}

/// The chat template of the settings, or of the file beside them that newer folders have.
fn template(path: &Path, settings: &Json) -> Result<Option<String>> {
    if let Some(template) = settings["chat_template"].as_str() {
        return Ok(Some(template.to_owned()));
    }
    let beside = path.with_file_name("chat_template.jinja");
    match beside.is_file() {
        true => Ok(Some(fs::read_to_string(&beside).at("read", &beside)?)),
        false => Ok(None),
    }
}

/// Whether a step of a pre-tokenizer is SentencePiece's that puts a blank before a text.
fn puts_a_blank_first(step: &Json) -> bool {
    step["type"] == "Metaspace"
        && step["prepend_scheme"] != "never"
        && step["add_prefix_space"] != false
}

/// Ids that a post-processor puts before and after a text, the first of each.
fn framed(processor: &Json) -> [Option<usize>; 2] {
    let mut found = [None; 2];
    for step in processor["processors"].as_array().into_iter().flatten() {
        let [before, after] = framed(step);
        found = [found[0].or(before), found[1].or(after)];
    }
    let single = processor["single"]
        .as_array()
        .map_or(&[][..], Vec::as_slice);
    let own = single
        .iter()
        .position(|piece| piece["Sequence"].is_object());
    for (at, piece) in single.iter().enumerate() {
        let name = piece["SpecialToken"]["id"].as_str().unwrap_or_default();
        let id = processor["special_tokens"][name]["ids"][0].as_u64();
        let side = usize::from(own.is_some_and(|own| at > own));
        found[side] = found[side].or(id.and_then(|id| usize::try_from(id).ok()));
    }
    found
}

/// Merges in order, which files have as pairs or as texts with a blank.
fn merges(json: &Json) -> Vec<[String; 2]> {
    let all = json.as_array().into_iter().flatten();
    let pairs = all.filter_map(|merge| match merge {
        Json::String(text) => {
            let (left, right) = text.split_once(' ')?;
            Some([left.to_owned(), right.to_owned()])
        }
        other => {
            let [left, right] = [0, 1].map(|at| other[at].as_str());
            Some([left?.to_owned(), right?.to_owned()])
        }
    });
    pairs.collect()
}

/// The normalizer of a byte-level tokenizer. llama.cpp has none: composed characters (NFC) are passed over, as by its own
/// converter, and all others would change most texts.
fn normalizer(json: &Json) -> Result<&'static str, String> {
    let inner = json["normalizers"].as_array().map(Vec::as_slice);
    match (json["type"].as_str(), inner) {
        (None, _) | (Some("Sequence"), Some([])) => Ok("none"),
        (Some("NFC"), _) => Ok("nfc"),
        (Some("Sequence"), Some([one])) => normalizer(one),
        (Some(other), _) => Err(format!(
            "normalizer: found {other}, want none or NFC: llama.cpp has no others"
        )),
    }
}

/// llama.cpp's name of the steps that cut a text into words.
fn name_of_steps(json: &Json) -> Result<String, String> {
    let known = split_names::name_of(json).map(str::to_owned);
    known.ok_or_else(|| {
        let found = split_names::steps_of(json);
        format!(
            "pre_tokenizer: found {found:?}, want steps that llama.cpp has a name for; --pre NAME names them"
        )
    })
}

/// Tokens by id.
struct Tokens {
    texts: Vec<String>,
    kinds: Vec<i128>,
}

impl Tokens {
    fn new(vocab: usize) -> Tokens {
        Tokens {
            texts: (0..vocab).map(|id| format!("[PAD{id}]")).collect(),
            kinds: vec![UNUSED; vocab],
        }
    }

    fn put(&mut self, id: Option<usize>, text: &str, kind: i128) -> Result<(), String> {
        let vocab = self.texts.len();
        match id.filter(|&id| id < vocab) {
            Some(id) => {
                text.clone_into(&mut self.texts[id]);
                self.kinds[id] = kind;
                Ok(())
            }
            None => Err(format!(
                "token {text:?}: found id {id:?}, want below the model's {vocab}"
            )),
        }
    }

    fn ids(&self) -> HashMap<String, usize> {
        let all = self.texts.iter().enumerate();
        all.map(|(id, text)| (text.clone(), id)).collect()
    }

    /// SentencePiece merges the pair of the best score first: scores fall with the rank of a token's first merge.
    fn scores(&self, merges: &[[String; 2]]) -> Vec<f64> {
        let mut ranks: HashMap<String, usize> = HashMap::new();
        for (rank, [left, right]) in merges.iter().enumerate() {
            ranks.entry(format!("{left}{right}")).or_insert(rank);
        }
        let of = |(text, kind): (&String, &i128)| match (*kind, ranks.get(text)) {
            (NORMAL, Some(&rank)) => -(rank as f64),
            (NORMAL, None) => NO_SCORE,
            _ => 0.0,
        };
        self.texts.iter().zip(&self.kinds).map(of).collect()
    }
}
