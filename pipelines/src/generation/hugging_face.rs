//! The files beside the weights of a Hugging Face folder: tokenizer, special tokens by role, chat template, and the ids that
//! generation begins and ends with.
//!
//! Files that the model's source has are copied; a missing `tokenizer_config.json` is made from the tokenizer, and ids that
//! `generation_config.json` lacks are filled in, since transformers ends no text without `eos_token_id`. Models that generate
//! nothing (encoders, classifiers) get no `generation_config.json`.

use super::located::Located;
use super::model_files::{Roles, json};
use crate::job::WrongUse;
use crate::machine::write_atomically;
use anyhow::{Context as _, Result};
use index::tokenizer::{Kind, Tokenizer};
use serde_json::{Map, Value, json};
use std::path::Path;

const CONFIG: &str = "tokenizer_config.json";
const TEMPLATE: &str = "chat_template.jinja";
const GENERATION: &str = "generation_config.json";

/// Endings of transformers' classes that generate.
const GENERATING: [&str; 3] = ["ForCausalLM", "LMHeadModel", "ForConditionalGeneration"];

/// The files, before they are written.
pub(crate) struct HuggingFaceFiles {
    files: Vec<(&'static str, Vec<u8>)>,
    /// Fields of `generation_config.json`.
    generation: Map<String, Value>,
    /// The source has a `generation_config.json`.
    has_generation: bool,
}

impl HuggingFaceFiles {
    /// Reads what the source of a model has: a checkpoint, Hugging Face or PEFT folder or GGUF file. `tokenizer`: a file to
    /// use, with those beside it, instead of the model's own. None if there is no tokenizer.
    ///
    /// # Errors
    /// A file that cannot be read; a tokenizer or configuration that is wrong; `tokenizer` with more entries than the model has rows.
    pub(crate) fn find(model: &Path, tokenizer: Option<&Path>) -> Result<Option<HuggingFaceFiles>> {
        let given = tokenizer.map(|file| tokenizer_for(file, model));
        let given = given.transpose()?;
        match Located::of_model(model, given)? {
            Some(found) => HuggingFaceFiles::of(&found).map(Some),
            None => Ok(None),
        }
    }

    fn of(found: &Located) -> Result<HuggingFaceFiles> {
        let roles = Roles::read(found)?;
        let tokenizer = &found.tokenizer;
        let theirs = tokenizer.hugging_face_json()?;
        if theirs.is_none() {
            let path = tokenizer.path().display();
            log!(
                "{path}: Hugging Face's tokenizer.json cannot express it; the one that is written is read here alone"
            );
        }
        let theirs = theirs.unwrap_or_else(|| tokenizer.json().to_owned());
        let mut files = vec![("tokenizer.json", theirs.into_bytes())];
        let mut generation = json(&found.path.join(GENERATION))?;
        // files beside a GGUF file may be another model's
        if found.within.is_none() {
            for name in [CONFIG, TEMPLATE] {
                let file = roles.beside.join(name);
                if file.is_file() {
                    let of = || file.display().to_string();
                    files.push((name, std::fs::read(&file).with_context(of)?));
                }
            }
            if generation.is_none() {
                generation = json(&roles.beside.join(GENERATION))?;
            }
        }
        if !files.iter().any(|(name, _)| *name == CONFIG) {
            let made = || made_config(tokenizer, &roles);
            let config = roles.config.clone().unwrap_or_else(made);
            files.push((CONFIG, text_of(&config)));
        }
        let has_generation = generation.is_some();
        let mut generation = match generation {
            Some(Value::Object(fields)) => fields,
            _ => Map::new(),
        };
        let ends = match roles.end_ids.as_slice() {
            [] => Value::Null,
            [end] => json!(end),
            ends => json!(ends),
        };
        let pad = tokenizer.special().pad;
        for (field, value) in [
            ("bos_token_id", json!(roles.start)),
            ("eos_token_id", ends),
            ("pad_token_id", json!(pad)),
        ] {
            fill(&mut generation, field, value);
        }
        Ok(HuggingFaceFiles {
            files,
            generation,
            has_generation,
        })
    }

    /// Writes the files into a folder that has the model's `config.json`.
    ///
    /// # Errors
    /// A folder that cannot be written.
    pub(crate) fn write(self, out: &Path) -> Result<()> {
        let HuggingFaceFiles {
            files,
            mut generation,
            has_generation,
        } = self;
        for (name, bytes) in files {
            write_atomically(&out.join(name), &bytes)?;
        }
        let model = json(&out.join("config.json"))?.unwrap_or_default();
        let class = model["architectures"][0].as_str().unwrap_or_default();
        if !has_generation && !GENERATING.iter().any(|ending| class.ends_with(ending)) {
            return Ok(());
        }
        // T5's, which transformers takes from here alone once there is such a file
        for field in ["decoder_start_token_id", "pad_token_id"] {
            fill(&mut generation, field, model[field].clone());
        }
        write_atomically(&out.join(GENERATION), &text_of(&Value::Object(generation)))
    }
}

/// The tokenizer of `--tokenizer` for a model.
///
/// # Errors
/// A file that is no tokenizer; `WrongUse` for one with more entries than the embedding of the model has rows, as the ids of some would
/// have none.
pub(crate) fn tokenizer_for(file: &Path, model: &Path) -> Result<Tokenizer> {
    let tokenizer = Tokenizer::load(file)?;
    // who reads the weights says what is wrong with a model that cannot be read
    let rows = train::checkpoint::initial_model(model).map_or(0, |model| model.vocab);
    let entries = tokenizer.vocab();
    // 0 as well where only the weights say how many, as those of Megatron's checkpoints
    if rows > 0 && entries > rows {
        let message = format!(
            "--tokenizer: {}: found {entries} entries, want at most the {rows} rows of the model's embedding; \
             transformers' resize_token_embeddings adds rows to a model in Hugging Face's form",
            file.display()
        );
        return Err(WrongUse::new(message).into());
    }
    Ok(tokenizer)
}

/// Sets a field that is absent or null.
fn fill(fields: &mut Map<String, Value>, field: &str, value: Value) {
    if !value.is_null() && fields.get(field).is_none_or(Value::is_null) {
        fields.insert(field.to_owned(), value);
    }
}

/// `tokenizer_config.json` of a tokenizer without one: the tokens that have a role.
fn made_config(tokenizer: &Tokenizer, roles: &Roles) -> Value {
    let mut config = json!({
        "tokenizer_class": "PreTrainedTokenizerFast",
        "clean_up_tokenization_spaces": false,
    });
    let special = tokenizer.special();
    let token = |id: Option<u32>| tokenizer.token(id?).map(str::to_owned);
    // a document of BERT's ends with its separator, which has a role of its own
    let eos = match tokenizer.kind() {
        Kind::WordPiece => token(special.eos),
        _ => roles.eos.clone(),
    };
    for (role, token) in [
        ("bos_token", roles.bos.clone()),
        ("eos_token", eos),
        ("unk_token", token(special.unk)),
        ("sep_token", token(special.sep)),
        ("pad_token", token(special.pad)),
        ("cls_token", token(special.cls)),
        ("mask_token", token(special.mask)),
    ] {
        if let Some(token) = token {
            config[role] = json!(token);
        }
    }
    config
}

fn text_of(value: &Value) -> Vec<u8> {
    format!("{value:#}\n").into_bytes()
}
