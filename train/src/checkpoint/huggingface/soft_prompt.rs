//! Virtual tokens in PEFT's form: of `PROMPT_TUNING` and `P_TUNING` alike one tensor, `prompt_embeddings`
//! `[num_virtual_tokens, token_dim]`, as PEFT 0.21 saves and loads it (`utils/save_and_load.py`).

use std::path::Path;

use serde_json::{Map, Value, json};

use crate::checkpoint::adapter_base::base_of;
use crate::checkpoint::huggingface::adapter_folder::{
    CONFIG, Named, WEIGHTS, config, foreign, set_among, shown, tensors, write,
};
use crate::checkpoint::read::Opened;
use crate::checkpoint::safetensors::{Entry, Reader};
use crate::checkpoint::soft_prompt;
use crate::config::plan::Plan;
use crate::config::{EncoderKind, PromptConfig};
use crate::error::{Error, Result};

const TENSOR: &str = "prompt_embeddings";
/// `peft_type` of folders that are read.
const KINDS: [&str; 2] = ["PROMPT_TUNING", "P_TUNING"];

/// An opened folder of virtual tokens.
pub(crate) struct SoftPrompt {
    reader: Reader,
    entry: Entry,
}

/// Whether a folder of PEFT's says that it holds virtual tokens.
///
/// # Errors
/// A configuration that cannot be read.
pub(crate) fn is_soft_prompt(folder: &Path) -> Result<bool> {
    let config = config(folder)?;
    let kind = config.get("peft_type").and_then(Value::as_str);
    Ok(kind.is_some_and(is_of_prompt))
}

/// Whether a `peft_type` is one of virtual tokens.
pub(super) fn is_of_prompt(kind: &str) -> bool {
    KINDS.contains(&kind)
}

impl SoftPrompt {
    /// Virtual tokens and features.
    pub(crate) fn dims(&self) -> &[usize] {
        &self.entry.dims
    }

    /// Opens the virtual tokens in `folder` and adds them to the plan of their base model.
    ///
    /// # Errors
    /// `Foreign` with every setting and tensor that does not fit.
    pub(crate) fn open(folder: &Path, plan: &mut Plan) -> Result<SoftPrompt> {
        let config = config(folder)?;
        let mut problems = set_among(&config, &["modules_to_save"]);
        let rows = whole(&config, "num_virtual_tokens", &mut problems);
        let submodules = config.get("num_transformer_submodules");
        if submodules.is_some_and(|found| !found.is_null()) {
            match whole(&config, "num_transformer_submodules", &mut problems) {
                0 | 1 => {}
                other => problems.push(format!(
                    "num_transformer_submodules: found {other}, want 1, as of a decoder"
                )),
            }
        }
        if !problems.is_empty() {
            return Err(foreign(&folder.join(CONFIG), problems));
        }
        let path = folder.join(WEIGHTS);
        let reader = tensors(folder)?;
        let wanted = [rows, plan.model.d_model];
        let mut entry = None;
        for found in reader.entries() {
            match found.name.as_str() {
                TENSOR if found.dims == wanted => entry = Some(found.clone()),
                name => problems.push(format!(
                    "{name}: found {:?}, want {TENSOR} {wanted:?} alone",
                    found.dims
                )),
            }
        }
        let Some(entry) = entry.filter(|_| problems.is_empty()) else {
            if problems.is_empty() {
                problems.push(format!("found no tensors, want {TENSOR} {wanted:?}"));
            }
            return Err(foreign(&path, problems));
        };
        plan.model.prompt = Some(PromptConfig {
            virtual_tokens: rows,
            ..PromptConfig::default()
        });
        match plan.problems() {
            problems if problems.is_empty() => Ok(SoftPrompt { reader, entry }),
            problems => Err(foreign(&folder.join(CONFIG), problems)),
        }
    }

    /// The rows of the virtual tokens, `[virtual_tokens, d_model]`.
    pub(crate) fn read(&mut self, out: &mut [f32]) -> Result<()> {
        let Entry { name, dims } = &self.entry;
        self.reader.read_part(name, dims, 0, out)
    }
}

/// A setting that is a whole number above 0.
fn whole(config: &Map<String, Value>, key: &str, problems: &mut Vec<String>) -> usize {
    let value = config.get(key).and_then(Value::as_u64);
    let value = value.and_then(|value| usize::try_from(value).ok());
    value.filter(|value| *value > 0).unwrap_or_else(|| {
        let found = shown(config.get(key));
        problems.push(format!("{key}: found {found}, want a whole number above 0"));
        0
    })
}

/// Writes the virtual tokens of a checkpoint as PEFT loads them.
///
/// # Errors
/// Virtual tokens within a template; a damaged checkpoint; a folder that cannot be written.
pub(super) fn export(opened: &Opened, plan: &Plan, out: &Path) -> Result<()> {
    let prompt = plan.model.prompt.as_ref();
    if let Some(prompt) = prompt.filter(|prompt| !prompt.are_in_front()) {
        return Err(Error::Request {
            what: "virtual tokens to write",
            found: format!(
                "{:?} of them at the markers of a task template (model.prompt.{})",
                prompt
                    .markers()
                    .iter()
                    .flat_map(|own| &own.counts)
                    .collect::<Vec<_>>(),
                if prompt.tasks.is_empty() {
                    "splits"
                } else {
                    "tasks"
                }
            ),
            wanted: "all in front of every text: PEFT's folders have no other place for them"
                .into(),
        });
    }
    let values = soft_prompt::rows(opened, plan)?;
    let dims = vec![plan.model.virtual_tokens(), plan.model.d_model];
    let entry = Entry {
        name: TENSOR.into(),
        dims: dims.clone(),
    };
    let mut config = json!({
        "task_type": "CAUSAL_LM", "base_model_name_or_path": base_of(plan), "num_virtual_tokens": dims[0],
        "token_dim": dims[1], "num_transformer_submodules": 1, "num_attention_heads": plan.model.heads,
        "num_layers": plan.model.layers, "inference_mode": true,
    });
    let encoder = plan.model.prompt.as_ref().and_then(|prompt| prompt.encoder);
    let own = match encoder {
        None => json!({
            "peft_type": KINDS[0], "prompt_tuning_init": "RANDOM", "prompt_tuning_init_text": null,
            "tokenizer_name_or_path": null,
        }),
        Some(encoder) => json!({
            "peft_type": KINDS[1], "encoder_hidden_size": encoder.hidden(dims[1]), "encoder_num_layers": encoder.layers,
            "encoder_reparameterization_type": match encoder.kind {
                EncoderKind::Mlp => "MLP",
                EncoderKind::Lstm => "LSTM",
            }, "encoder_dropout": 0.0,
        }),
    };
    if let (Some(config), Value::Object(own)) = (config.as_object_mut(), own) {
        config.extend(own);
    }
    write(out, &config, &[Named { entry, values }])
}
