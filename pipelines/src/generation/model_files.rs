//! The files around a model's weights: tokenizer, chat template, ids that end a text.
//!
//! Sources: Hugging Face transformers 4.57 reads `chat_template.jinja`, else `chat_template` of `tokenizer_config.json` (a text, or a
//! list of named ones); vLLM ends a text at `eos_token_id` of `generation_config.json` beside the tokenizer's own.

use super::chat_template::ChatTemplate;
use super::located::Located;
use anyhow::{Context as _, Result};
use index::tokenizer::Tokenizer;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use train::dist::Devices;

/// Names of tokens that begin a text, in vocabularies that have one and no configuration.
const BEGINNINGS: [&str; 4] = ["<s>", "<|begin_of_text|>", "<bos>", "[BOS]"];

/// A model to generate with.
pub(crate) struct ModelFiles {
    /// The job's name, or that of the folder.
    pub(crate) name: String,
    /// Checkpoint, folder of checkpoints, Hugging Face folder, or GGUF file.
    pub(crate) path: PathBuf,
    pub(crate) tokenizer: Arc<Tokenizer>,
    /// Contents of `tokenizer_config.json`, if the tokenizer is in a file with its model.
    pub(crate) config_within: Option<Value>,
    pub(crate) devices: Devices,
    pub(crate) chat_template: Option<ChatTemplate>,
    /// Ids after which a text ends.
    pub(crate) end_ids: Vec<u32>,
    /// Token that a text without a beginning starts from.
    pub(crate) start: Option<u32>,
    /// Text of the token that begins a text, and of the one that ends it.
    pub(crate) bos: Option<String>,
    pub(crate) eos: Option<String>,
}

impl ModelFiles {
    /// The files beside a model. `template`: a file that replaces the model's chat template.
    ///
    /// # Errors
    /// A configuration that is no JSON, a template that is not valid.
    pub(crate) fn read(found: Located, template: Option<&Path>) -> Result<ModelFiles> {
        let Roles {
            config,
            beside,
            bos,
            eos,
            end_ids,
            start,
        } = Roles::read(&found)?;
        let Located {
            name,
            path,
            tokenizer,
            within,
            devices,
        } = found;
        let own = match &within {
            // files beside a GGUF file may be another model's
            Some(_) => None,
            None => Some(beside.join("chat_template.jinja")).filter(|file| file.is_file()),
        };
        let source = template_text(template.or(own.as_deref()), config.as_ref())?;
        let chat_template = source
            .map(|source| ChatTemplate::new(&source, bos.clone(), eos.clone()))
            .transpose()?;
        Ok(ModelFiles {
            name,
            path,
            tokenizer: Arc::new(tokenizer),
            config_within: within.map(|within| within.config),
            devices,
            chat_template,
            end_ids,
            start,
            bos,
            eos,
        })
    }
}

/// Roles of tokens in a model's texts, from the files around its weights.
pub(super) struct Roles {
    /// Contents of `tokenizer_config.json`.
    pub(super) config: Option<Value>,
    /// Folder of the tokenizer.
    pub(super) beside: PathBuf,
    /// Text of the token that begins a text, and of the one that ends it.
    pub(super) bos: Option<String>,
    pub(super) eos: Option<String>,
    /// Ids after which a text ends.
    pub(super) end_ids: Vec<u32>,
    /// Token that a text without a beginning starts from.
    pub(super) start: Option<u32>,
}

impl Roles {
    /// # Errors
    /// A configuration that is no JSON.
    pub(super) fn read(found: &Located) -> Result<Roles> {
        let Located {
            path,
            tokenizer,
            within,
            ..
        } = found;
        let beside = tokenizer
            .path()
            .parent()
            .unwrap_or(Path::new(""))
            .to_path_buf();
        let config = match within {
            Some(within) => Some(within.config.clone()),
            None => json(&beside.join("tokenizer_config.json"))?,
        };
        let named = |key| {
            config
                .as_ref()
                .and_then(|config| token_text(config.get(key)?))
        };
        let known = |name: &&str| tokenizer.id_of(name).is_some();
        let bos = named("bos_token").or_else(|| {
            let name = BEGINNINGS.iter().copied().find(known);
            name.map(str::to_owned)
        });
        let end = tokenizer.end_of_document();
        let of_end = || tokenizer.token(end?).map(str::to_owned);
        let eos = named("eos_token").or_else(of_end);
        let mut end_ids = Vec::from_iter(end);
        let mut files = vec![
            path.join("generation_config.json"),
            path.join("config.json"),
        ];
        match within {
            Some(within) => {
                end_ids.extend(within.end_of_turn);
                end_ids.extend(eos.as_deref().and_then(|eos| tokenizer.id_of(eos)));
            }
            // a fine-tuning keeps the ids beside its tokenizer
            None => files.push(beside.join("generation_config.json")),
        }
        for file in files {
            if let Some(config) = json(&file)? {
                end_ids.extend(ids(config.get("eos_token_id")));
            }
        }
        end_ids.sort_unstable();
        end_ids.dedup();
        let start = bos.as_deref().and_then(|bos| tokenizer.id_of(bos)).or(end);
        Ok(Roles {
            config,
            beside,
            bos,
            eos,
            end_ids,
            start,
        })
    }
}

pub(super) fn json(path: &Path) -> Result<Option<Value>> {
    if !path.is_file() {
        return Ok(None);
    }
    let of = || path.display().to_string();
    let text = std::fs::read_to_string(path).with_context(of)?;
    serde_json::from_str(&text).map(Some).with_context(of)
}

/// The text of a token in `tokenizer_config.json`: a string, or an object with `content`.
fn token_text(value: &Value) -> Option<String> {
    let text = value.as_str().or_else(|| value.get("content")?.as_str());
    text.map(str::to_owned)
}

/// One id or a list of ids.
fn ids(value: Option<&Value>) -> Vec<u32> {
    let list = match value {
        Some(Value::Array(list)) => list.as_slice(),
        Some(one) => std::slice::from_ref(one),
        None => &[],
    };
    let id = |value: &Value| u32::try_from(value.as_u64()?).ok();
    list.iter().filter_map(id).collect()
}

/// The template in a file, or else the one of the configuration.
fn template_text(file: Option<&Path>, config: Option<&Value>) -> Result<Option<String>> {
    if let Some(file) = file {
        let text = std::fs::read_to_string(file);
        return text.map(Some).with_context(|| file.display().to_string());
    }
    let Some(found) = config.and_then(|config| config.get("chat_template")) else {
        return Ok(None);
    };
    if let Some(text) = found.as_str() {
        return Ok(Some(text.to_owned()));
    }
    let named = found.as_array().map_or(&[][..], Vec::as_slice);
    let default = named.iter().find(|one| one["name"] == "default");
    Ok(default.and_then(|one| Some(one["template"].as_str()?.to_owned())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn oracles() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../train/tests/oracles")
    }

    /// Goldens: train/tests/oracles/gguf_tokenizers.py.
    #[test]
    fn a_gguf_file_gives_its_tokenizer_and_chat_template_unless_another_is_named() {
        let gguf = oracles().join("gguf_tokenizers/qwen2.gguf");
        let found = Located::find(&gguf, &[], None, "chat").unwrap();
        let files = ModelFiles::read(found, None).unwrap();
        let template = files.chat_template.as_ref().unwrap().source();
        assert!(template.contains("<|end|>"), "{template}");
        assert_eq!(files.bos.as_deref(), Some("<|begin|>"));
        let end = files.tokenizer.id_of("<|end|>").unwrap();
        assert!(files.end_ids.contains(&end), "{:?}", files.end_ids);
        // the file's own end, which is none of the names that are known
        let eos = files.eos.as_deref().unwrap();
        assert_eq!(
            files.tokenizer.end_of_document(),
            files.tokenizer.id_of(eos)
        );
        assert_eq!(files.config_within.as_ref().unwrap()["eos_token"], eos);

        let other = oracles().join("../../../tests/data/lm_eval/model/tokenizer.json");
        let found = Located::find(&gguf, &[], Some(&other), "chat").unwrap();
        assert!(found.within.is_none());
        let files = ModelFiles::read(found, None).unwrap();
        assert_eq!(files.tokenizer.path(), other);
        assert!(files.tokenizer.id_of("<|begin|>").is_none());
    }
}
