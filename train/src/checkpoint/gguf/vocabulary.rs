//! The tokenizer of a GGUF file, as the `tokenizer.json` and `tokenizer_config.json` that Hugging Face's programs read.
//!
//! `gpt2` is byte-level BPE: the file has its merges, and `pre` names its split expression (`split_names.rs`). `llama` is
//! SentencePiece's BPE: the file has a score for each token, and two neighbours merge if their text is a token, best score
//! first, so the merges are all splits of each token into two others, by falling scores. Tokens that control texts are
//! found in them before anything else. Source: the key table of `ggml/docs/gguf.md` and llama.cpp's `llama-vocab.cpp`.
//!
//! Lists are compared with each other before anything is built, and the derived merges of `llama` are bounded by the
//! length of the tokens, so that a damaged file costs no more memory than a bounded multiple of its size.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value as Json, json};

use crate::checkpoint::gguf::file::Reader;
use crate::checkpoint::gguf::split_names;
use crate::checkpoint::gguf::token_type::{BYTE, CONTROL, NORMAL, UNKNOWN, UNUSED, USER};
use crate::checkpoint::gguf::value::{List, Metadata, Value};
use crate::error::{Error, Result};

const TOKENS: &str = "tokenizer.ggml.tokens";
/// Bytes of the longest token whose splits are sought.
const LONGEST: usize = 1024;
/// Derived merges may have this many bytes for each byte of the tokens; those of Llama 2 have two.
const MERGES_PER_TOKEN: usize = 64;
/// SentencePiece's character in place of a blank.
const BLANK: &str = "\u{2581}";

/// A tokenizer in the form of Hugging Face's files.
#[derive(Clone, Debug)]
pub struct GgufTokenizer {
    /// Contents of `tokenizer.json`.
    pub tokenizer: String,
    /// Contents of `tokenizer_config.json`: special tokens by role and the chat template.
    pub config: Json,
    /// Token that ends a turn of a chat, where it is not the one that ends a text.
    pub end_of_turn: Option<u32>,
}

/// Reads the tokenizer of a GGUF file; None if the file has none.
///
/// # Errors
/// A damaged file; `Foreign` with every key that is missing, wrong, or of a tokenizer that is not known here.
pub fn gguf_tokenizer(path: &Path) -> Result<Option<GgufTokenizer>> {
    of_metadata(path, &Reader::open(path)?.metadata)
}

/// `gguf_tokenizer` of metadata that was read.
pub(super) fn of_metadata(path: &Path, metadata: &Metadata) -> Result<Option<GgufTokenizer>> {
    let kind = match metadata.text("tokenizer.ggml.model") {
        None | Some("none" | "no_vocab") => return Ok(None),
        Some(kind) => kind,
    };
    let vocabulary = Vocabulary {
        path: path.to_owned(),
        metadata,
    };
    vocabulary.read(kind).map(Some)
}

/// Metadata of a tokenizer.
struct Vocabulary<'a> {
    path: PathBuf,
    metadata: &'a Metadata,
}

/// Tokens by id with their types.
struct Tokens<'a> {
    texts: &'a [String],
    kinds: Vec<i128>,
    /// Ids of those that are not unused.
    ids: HashMap<&'a str, usize>,
}

impl Tokens<'_> {
    /// `added_tokens` of the tokens that are found in a text before it is split.
    fn added(&self) -> Vec<Json> {
        let all = self.texts.iter().zip(&self.kinds).enumerate();
        let added = all.filter(|(_, (_, kind))| [CONTROL, UNKNOWN, USER].contains(kind));
        let of = |(id, (text, kind)): (usize, (&String, &i128))| {
            json!({"id": id, "content": text, "single_word": false, "lstrip": false, "rstrip": false,
                "normalized": false, "special": *kind != USER})
        };
        added.map(of).collect()
    }

    fn to_json(&self) -> Json {
        // in the order of ids: the text is the tokenizer's identity
        let all = self.texts.iter().enumerate();
        let named = all.filter(|(id, text)| self.ids.get(text.as_str()) == Some(id));
        Json::Object(named.map(|(id, text)| (text.clone(), json!(id))).collect())
    }
}

impl<'a> Vocabulary<'a> {
    fn refused(&self, problem: impl Into<String>) -> Error {
        Error::Foreign {
            path: self.path.clone(),
            problems: vec![problem.into()],
        }
    }

    fn read(&self, kind: &str) -> Result<GgufTokenizer> {
        let mut tokens = self.tokens()?;
        // files without types, and some with them, have these as plain tokens
        for key in [ROLES[0].1, ROLES[1].1, END_OF_TURN] {
            if let Some(id) = self.id(key, &tokens)?
                && tokens.kinds[id] == NORMAL
            {
                tokens.kinds[id] = CONTROL;
            }
        }
        let (mut tokenizer, adds_bos) = match kind {
            "gpt2" => self.byte_level(&tokens)?,
            "llama" => (self.sentence_piece(&tokens)?, true),
            other => {
                return Err(self.refused(format!(
                    "tokenizer.ggml.model: found {other:?}, want gpt2 or llama; --tokenizer FILE gives the tokenizer"
                )));
            }
        };
        let mut config = Map::new();
        config.insert("tokenizer_class".into(), json!("PreTrainedTokenizerFast"));
        config.insert("clean_up_tokenization_spaces".into(), json!(false));
        for (name, key) in ROLES {
            if let Some(id) = self.id(key, &tokens)? {
                config.insert(format!("{name}_token"), json!(tokens.texts[id]));
            }
        }
        let (mut before, mut after) = (Vec::new(), Vec::new());
        for (name, key, default, around) in [
            ("bos", ROLES[0].1, adds_bos, &mut before),
            ("eos", ROLES[1].1, false, &mut after),
        ] {
            let key_of_adding = format!("tokenizer.ggml.add_{name}_token");
            let said = self.flag(&key_of_adding)?;
            let id = self.id(key, &tokens)?;
            if said == Some(true) && id.is_none() && kind == "gpt2" {
                return Err(self.refused(format!("{key_of_adding}: found true without {key}")));
            }
            let adds = said.unwrap_or(default) && id.is_some();
            config.insert(format!("add_{name}_token"), json!(adds));
            if adds {
                around.extend(id);
            }
        }
        tokenizer.insert("post_processor".into(), around(&tokens, &before, &after));
        if let Some(template) = self.text("tokenizer.chat_template")? {
            config.insert("chat_template".into(), json!(template));
        }
        let by_name = || ENDS_OF_TURN.iter().find_map(|name| tokens.ids.get(name));
        let end_of_turn = self
            .id(END_OF_TURN, &tokens)?
            .or_else(|| by_name().copied());
        Ok(GgufTokenizer {
            tokenizer: Json::Object(tokenizer).to_string(),
            config: Json::Object(config),
            end_of_turn: end_of_turn.and_then(|id| u32::try_from(id).ok()),
        })
    }

    /// A text, or None without one.
    fn text(&self, key: &str) -> Result<Option<&'a str>> {
        match self.metadata.get(key) {
            None => Ok(None),
            Some(Value::Text(_)) if self.metadata.is_lossy(key) => {
                Err(self.refused(format!("{key}: found bytes that are not UTF-8")))
            }
            Some(Value::Text(text)) => Ok(Some(text)),
            Some(Value::Bool(_) | Value::Whole(_) | Value::Real(_) | Value::List(_)) => {
                Err(self.refused(format!("{key}: want a text")))
            }
        }
    }

    fn flag(&self, key: &str) -> Result<Option<bool>> {
        match self.metadata.get(key) {
            None => Ok(None),
            Some(Value::Bool(on)) => Ok(Some(*on)),
            Some(Value::Text(_) | Value::Whole(_) | Value::Real(_) | Value::List(_)) => {
                Err(self.refused(format!("{key}: want true or false")))
            }
        }
    }

    /// The id of a special token, which must be a token.
    fn id(&self, key: &str, tokens: &Tokens<'_>) -> Result<Option<usize>> {
        let Some(value) = self.metadata.get(key) else {
            return Ok(None);
        };
        let count = tokens.texts.len();
        let id = match value {
            Value::Whole(id) => usize::try_from(*id).ok().filter(|&id| id < count),
            Value::Bool(_) | Value::Real(_) | Value::Text(_) | Value::List(_) => None,
        };
        match id {
            // a row without a token has no text to find
            Some(id) => {
                let is_token = tokens.ids.get(tokens.texts[id].as_str()) == Some(&id);
                Ok(is_token.then_some(id))
            }
            None => {
                let found = match value {
                    Value::Whole(id) => id.to_string(),
                    Value::Bool(_) | Value::Real(_) | Value::Text(_) | Value::List(_) => {
                        "another type".to_owned()
                    }
                };
                Err(self.refused(format!("{key}: found {found}, want an id below {count}")))
            }
        }
    }

    fn texts(&self, key: &str) -> Result<&'a [String]> {
        match self.metadata.get(key) {
            Some(Value::List(List::Texts(_))) if self.metadata.is_lossy(key) => {
                Err(self.refused(format!(
                    "{key}: found bytes that are not UTF-8; --tokenizer FILE gives the tokenizer"
                )))
            }
            Some(Value::List(List::Texts(all))) => Ok(all),
            Some(
                Value::Bool(_) | Value::Whole(_) | Value::Real(_) | Value::Text(_) | Value::List(_),
            )
            | None => Err(self.refused(format!("{key}: want a list of texts"))),
        }
    }

    fn tokens(&self) -> Result<Tokens<'a>> {
        let texts = self.texts(TOKENS)?;
        let key = "tokenizer.ggml.token_type";
        let kinds = match self.metadata.get(key) {
            None => vec![NORMAL; texts.len()],
            Some(Value::List(List::Whole(kinds))) => kinds.clone(),
            Some(Value::List(List::Bytes(kinds))) => {
                kinds.iter().map(|&kind| kind.into()).collect()
            }
            Some(
                Value::Bool(_) | Value::Whole(_) | Value::Real(_) | Value::Text(_) | Value::List(_),
            ) => return Err(self.refused(format!("{key}: want a list of whole numbers"))),
        };
        self.same_length(key, kinds.len(), texts.len())?;
        let mut ids = HashMap::new();
        for (id, (text, &kind)) in texts.iter().zip(&kinds).enumerate() {
            if !(NORMAL..=BYTE).contains(&kind) {
                return Err(self.refused(format!(
                    "{key}[{id}]: found {kind}, want {NORMAL} to {BYTE}"
                )));
            }
            // rows of the embedding without a token
            if kind == UNUSED && *text == format!("[PAD{id}]") {
                continue;
            }
            if let Some(other) = ids.insert(text.as_str(), id) {
                return Err(self.refused(format!(
                    "{TOKENS}[{id}]: found {:?}, which {TOKENS}[{other}] is",
                    beginning(text)
                )));
            }
        }
        Ok(Tokens { texts, kinds, ids })
    }

    fn same_length(&self, key: &str, found: usize, tokens: usize) -> Result<()> {
        match found == tokens {
            true => Ok(()),
            false => Err(self.refused(format!(
                "{key}: found {found} items, want {tokens}, one for each of {TOKENS}"
            ))),
        }
    }

    /// Byte-level BPE, and whether its texts begin with a token unless the file says otherwise.
    fn byte_level(&self, tokens: &Tokens<'_>) -> Result<(Map<String, Json>, bool)> {
        let key = "tokenizer.ggml.pre";
        let pre = self.text(key)?;
        let Some(split) = pre.and_then(split_names::find) else {
            let found = pre.map_or("nothing".to_owned(), |pre| format!("{pre:?}"));
            let known = split_names::NAMES.map(|split| split.names.join(", "));
            return Err(self.refused(format!(
                "{key}: found {found}, want one of {}; --tokenizer FILE gives the tokenizer",
                known.join(", ")
            )));
        };
        let key = "tokenizer.ggml.merges";
        let mut merges = Vec::new();
        for (at, merge) in self.texts(key)?.iter().enumerate() {
            let wrong = |found: String| self.refused(format!("{key}[{at}]: found {found}"));
            // a token may begin with a blank, which is why the first character is passed over
            let first = merge.chars().next().map_or(0, char::len_utf8);
            let gap = merge[first..].find(' ').map(|gap| gap + first);
            let (left, right) = match gap {
                Some(gap) => (&merge[..gap], &merge[gap + 1..]),
                None => {
                    return Err(wrong(format!(
                        "{:?}, want two tokens with a blank between",
                        beginning(merge)
                    )));
                }
            };
            for text in [left, right, &*format!("{left}{right}")] {
                if !tokens.ids.contains_key(text) {
                    let text = beginning(text);
                    return Err(wrong(format!("{text:?}, which is none of {TOKENS}")));
                }
            }
            merges.push(json!([left, right]));
        }
        let prefix = self
            .flag("tokenizer.ggml.add_space_prefix")?
            .unwrap_or(false);
        let normalizer = match self.text(split_names::NORMALIZER_KEY)? {
            None => split.normalizer(),
            Some("none") => Json::Null,
            Some("nfc") => json!({"type": "NFC"}),
            Some(other) => {
                return Err(self.refused(format!(
                    "{}: found {other:?}, want none or nfc",
                    split_names::NORMALIZER_KEY
                )));
            }
        };
        let model = json!({"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
            "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false,
            "ignore_merges": split.ignores_merges, "vocab": tokens.to_json(), "merges": merges});
        let decoder = json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true});
        let parts = Parts {
            normalizer,
            pre_tokenizer: split.pre_tokenizer(prefix),
            decoder,
            model,
        };
        Ok((parts.tokenizer(tokens), split.adds_bos))
    }

    /// SentencePiece's BPE with bytes in place of unknown characters.
    fn sentence_piece(&self, tokens: &Tokens<'_>) -> Result<Map<String, Json>> {
        let key = "tokenizer.ggml.scores";
        let scores: &[f64] = match self.metadata.get(key) {
            Some(Value::List(List::Reals(scores))) => scores,
            Some(
                Value::Bool(_) | Value::Whole(_) | Value::Real(_) | Value::Text(_) | Value::List(_),
            )
            | None => return Err(self.refused(format!("{key}: want a list of numbers"))),
        };
        self.same_length(key, scores.len(), tokens.texts.len())?;
        if let Some(at) = scores.iter().position(|score| score.is_nan()) {
            return Err(self.refused(format!("{key}[{at}]: found {}, want a number", scores[at])));
        }
        for byte in 0..=u8::MAX {
            let text = format!("<0x{byte:02X}>");
            let kind = tokens.ids.get(&*text).map(|&id| tokens.kinds[id]);
            if kind != Some(BYTE) {
                return Err(self.refused(format!(
                    "{TOKENS}: found no byte token {text}, want one for each byte"
                )));
            }
        }
        let merges = self.derived(tokens, scores)?;
        let unknown = match self.id(ROLES[2].1, tokens)? {
            Some(id) => Some(id),
            None => tokens.kinds.iter().position(|&kind| kind == UNKNOWN),
        };
        let prefix = self
            .flag("tokenizer.ggml.add_space_prefix")?
            .unwrap_or(true);
        let replace = json!({"type": "Replace", "pattern": {"String": " "}, "content": BLANK});
        let normalizer = match prefix {
            true => {
                json!({"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": BLANK}, replace]})
            }
            false => replace,
        };
        let mut decoders = vec![
            json!({"type": "Replace", "pattern": {"String": BLANK}, "content": " "}),
            json!({"type": "ByteFallback"}),
            json!({"type": "Fuse"}),
        ];
        if prefix {
            decoders.push(json!({"type": "Strip", "content": " ", "start": 1, "stop": 0}));
        }
        let model = json!({"type": "BPE", "dropout": null, "unk_token": unknown.map(|id| &tokens.texts[id]),
            "continuing_subword_prefix": null, "end_of_word_suffix": null, "fuse_unk": true, "byte_fallback": true,
            "ignore_merges": false, "vocab": tokens.to_json(), "merges": merges});
        let parts = Parts {
            normalizer,
            pre_tokenizer: Json::Null,
            decoder: json!({"type": "Sequence", "decoders": decoders}),
            model,
        };
        Ok(parts.tokenizer(tokens))
    }

    /// All pairs of tokens whose text is a token, by falling scores of it; equal ones in the order of ids, the
    /// splits of a token with the longest left part first.
    fn derived(&self, tokens: &Tokens<'_>, scores: &[f64]) -> Result<Vec<Json>> {
        let mut order: Vec<usize> = Vec::new();
        for (id, (text, &kind)) in tokens.texts.iter().zip(&tokens.kinds).enumerate() {
            if kind != NORMAL {
                continue;
            }
            if text.len() > LONGEST {
                return Err(self.refused(format!(
                    "{TOKENS}[{id}]: found {} bytes, want at most {LONGEST}",
                    text.len()
                )));
            }
            order.push(id);
        }
        order.sort_by(|&a, &b| scores[b].total_cmp(&scores[a]).then(a.cmp(&b)));
        let bytes: usize = tokens.texts.iter().map(String::len).sum();
        let most = bytes
            .saturating_mul(MERGES_PER_TOKEN)
            .saturating_add(1 << 20);
        let is_plain = |text: &str| {
            let id = tokens.ids.get(text);
            id.is_some_and(|&id| [NORMAL, UNUSED].contains(&tokens.kinds[id]))
        };
        let (mut merges, mut used) = (Vec::new(), 0);
        for id in order {
            let text = &*tokens.texts[id];
            for (at, _) in text
                .char_indices()
                .skip(1)
                .collect::<Vec<_>>()
                .into_iter()
                .rev()
            {
                let (left, right) = text.split_at(at);
                if is_plain(left) && is_plain(right) {
                    used += text.len();
                    merges.push(json!([left, right]));
                }
            }
            if used > most {
                return Err(self.refused(format!(
                    "{TOKENS}: found more than {most} bytes of pairs that make tokens, want a vocabulary of words"
                )));
            }
        }
        Ok(merges)
    }
}

/// The first characters of a text that a message quotes.
fn beginning(text: &str) -> String {
    text.chars().take(80).collect()
}

/// Key of the token that ends a turn.
const END_OF_TURN: &str = "tokenizer.ggml.eot_token_id";
/// Its names, in files without the key.
const ENDS_OF_TURN: [&str; 4] = ["<|eot_id|>", "<|im_end|>", "<|end|>", "<end_of_turn>"];

/// Special tokens and the keys of their ids.
const ROLES: [(&str, &str); 4] = [
    ("bos", "tokenizer.ggml.bos_token_id"),
    ("eos", "tokenizer.ggml.eos_token_id"),
    ("unk", "tokenizer.ggml.unknown_token_id"),
    ("pad", "tokenizer.ggml.padding_token_id"),
];

/// Parts of `tokenizer.json` that are objects of their own.
struct Parts {
    normalizer: Json,
    pre_tokenizer: Json,
    decoder: Json,
    model: Json,
}

impl Parts {
    fn tokenizer(self, tokens: &Tokens<'_>) -> Map<String, Json> {
        let mut whole = Map::new();
        whole.insert("version".into(), json!("1.0"));
        whole.insert("truncation".into(), Json::Null);
        whole.insert("padding".into(), Json::Null);
        whole.insert("added_tokens".into(), Json::Array(tokens.added()));
        whole.insert("normalizer".into(), self.normalizer);
        whole.insert("pre_tokenizer".into(), self.pre_tokenizer);
        whole.insert("decoder".into(), self.decoder);
        whole.insert("model".into(), self.model);
        whole
    }
}

/// The post-processor that puts tokens before and after a text.
fn around(tokens: &Tokens<'_>, before: &[usize], after: &[usize]) -> Json {
    if before.is_empty() && after.is_empty() {
        return Json::Null;
    }
    let of = |id: &usize, part: usize| json!({"SpecialToken": {"id": tokens.texts[*id], "type_id": part}});
    let text = |name: &str, part: usize| -> Vec<Json> {
        let own = json!({"Sequence": {"id": name, "type_id": part}});
        let before = before.iter().map(|id| of(id, part));
        let after = after.iter().map(|id| of(id, part));
        before.chain([own]).chain(after).collect()
    };
    let mut special = Map::new();
    for &id in before.iter().chain(after) {
        let text = &tokens.texts[id];
        special.insert(
            text.clone(),
            json!({"id": text, "ids": [id], "tokens": [text]}),
        );
    }
    let pair = [text("A", 0), text("B", 1)].concat();
    json!({"type": "TemplateProcessing", "single": text("A", 0), "pair": pair,
        "special_tokens": special})
}
