//! The way from a sequence's rows to its embedding: the modules of a folder of Sentence Transformers (Reimers and Gurevych
//! 2019, arXiv:1908.10084). Modules and settings that we do not run are refused by name, all at once.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::checkpoint::huggingface::files::foreign;
use crate::error::{At, Result};

/// The rows of a sequence that its embedding is made of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Pooling {
    /// The mean of all rows, special tokens included.
    #[default]
    Mean,
    /// The row of the first token.
    Cls,
}

/// Settings beside the model's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Modules {
    pub(super) pooling: Pooling,
    /// Tokens of a text that are read, if fewer than the model can.
    pub(super) longest: Option<usize>,
    pub(super) preparation: Preparation,
}

/// Changes of a text before its tokens, as Sentence Transformers makes them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Preparation {
    /// White space around it is removed.
    pub strips: bool,
    /// It is put into lower case.
    pub lowers: bool,
}

/// Files with `max_seq_length` and `do_lower_case`, by the model's name.
const LENGTHS: [&str; 7] = [
    "sentence_bert_config.json",
    "sentence_roberta_config.json",
    "sentence_distilbert_config.json",
    "sentence_camembert_config.json",
    "sentence_albert_config.json",
    "sentence_xlm-roberta_config.json",
    "sentence_xlnet_config.json",
];

fn json(path: &Path) -> Result<Option<Value>> {
    let text = match fs::read(path) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error).at("read", path),
    };
    let value = serde_json::from_slice(&text);
    value
        .map(Some)
        .map_err(|error| foreign(path, vec![format!("not JSON: {error}")]))
}

/// Reads `modules.json` and the files that it names; without one, the mean of all rows. With `asked` the folder's own pooling is
/// not read.
pub(super) fn read(folder: &Path, asked: Option<Pooling>) -> Result<Modules> {
    let mut found = Modules {
        pooling: asked.unwrap_or_default(),
        longest: None,
        preparation: Preparation::default(),
    };
    let path = folder.join("modules.json");
    let Some(list) = json(&path)? else {
        return Ok(found);
    };
    let Some(modules) = list.as_array() else {
        return Err(foreign(&path, vec!["found no list of modules".into()]));
    };
    found.preparation.strips = true;
    let mut problems = Vec::new();
    for (number, module) in modules.iter().enumerate() {
        let kind = module["type"].as_str().unwrap_or_default();
        let own = module["path"].as_str().unwrap_or_default();
        match kind.rsplit('.').next().unwrap_or_default() {
            "Transformer" if own.is_empty() => texts(folder, &mut found)?,
            "Transformer" => problems.push(format!(
                "{number}.path: found {own:?}, want \"\": the model's files beside modules.json"
            )),
            "Pooling" if asked.is_some() => {}
            "Pooling" => found.pooling = pooling(&folder.join(own).join("config.json"))?,
            // embeddings have the length 1 in any case
            "Normalize" => {}
            other => problems.push(format!(
                "{number}.type: found {other:?}, want Transformer, Pooling or Normalize"
            )),
        }
    }
    if !problems.is_empty() {
        return Err(foreign(&path, problems));
    }
    let path = folder.join("config_sentence_transformers.json");
    let prompt = json(&path)?.map_or(Value::Null, |table| table["default_prompt_name"].clone());
    if !prompt.is_null() {
        let wanted = "null: a prompt before each text is the prefix of the job";
        let problem = format!("default_prompt_name: found {prompt}, want {wanted}");
        return Err(foreign(&path, vec![problem]));
    }
    Ok(found)
}

/// The changes of texts, and how many of their tokens are read.
fn texts(folder: &Path, found: &mut Modules) -> Result<()> {
    for name in LENGTHS {
        if let Some(table) = json(&folder.join(name))? {
            found.preparation.lowers = table["do_lower_case"] == true;
            let longest = table["max_seq_length"].as_u64();
            found.longest = longest.and_then(|longest| usize::try_from(longest).ok());
            return Ok(());
        }
    }
    Ok(())
}

/// The modes of Sentence Transformers' Pooling that are on.
fn pooling(path: &Path) -> Result<Pooling> {
    let Some(table) = json(path)? else {
        let problem = "found no file, want the modes of pooling, or pooling in the job";
        return Err(foreign(path, vec![problem.into()]));
    };
    let modes = table.as_object().into_iter().flatten();
    let modes = modes.filter(|(name, value)| name.starts_with("pooling_mode_") && **value == true);
    let on: Vec<&str> = modes.map(|(name, _)| name.as_str()).collect();
    match on[..] {
        ["pooling_mode_mean_tokens"] => Ok(Pooling::Mean),
        ["pooling_mode_cls_token"] => Ok(Pooling::Cls),
        _ => {
            let wanted = "one of pooling_mode_mean_tokens and pooling_mode_cls_token";
            let problem = format!("found {on:?}, want {wanted}");
            Err(foreign(path, vec![problem]))
        }
    }
}
