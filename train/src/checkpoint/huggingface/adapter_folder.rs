//! Folders in PEFT's form: `adapter_config.json` and `adapter_model.safetensors`, and the base model that the first names.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use crate::checkpoint::safetensors::{Entry, Reader, Writer};
use crate::checkpoint::write::sync;
use crate::error::{At, Error, Result};

pub(super) const CONFIG: &str = "adapter_config.json";
pub(super) const WEIGHTS: &str = "adapter_model.safetensors";
/// Formats that are read.
const FORMATS: [&str; 3] = ["F32", "F16", "BF16"];

/// Whether a folder holds an adapter alone.
pub(crate) fn is_adapter(folder: &Path) -> bool {
    folder.join(CONFIG).is_file() && !folder.join("config.json").is_file()
}

pub(super) fn foreign(path: &Path, problems: Vec<String>) -> Error {
    Error::Foreign {
        path: path.to_owned(),
        problems,
    }
}

/// The adapter's configuration.
pub(super) fn config(folder: &Path) -> Result<Map<String, Value>> {
    let path = folder.join(CONFIG);
    let text = fs::read(&path).at("read", &path)?;
    match serde_json::from_slice(&text) {
        Ok(Value::Object(config)) => Ok(config),
        Ok(_) => Err(foreign(&path, vec!["found no object".into()])),
        Err(error) => Err(foreign(&path, vec![format!("not JSON: {error}")])),
    }
}

/// Folder of the model that the adapter in `folder` belongs to, relative to the working directory or to `folder`; `None` for
/// any other folder.
///
/// # Errors
/// A configuration that is not valid, or names no folder that is there.
pub fn adapter_base(folder: &Path) -> Result<Option<PathBuf>> {
    if !is_adapter(folder) {
        return Ok(None);
    }
    let name = &named_base(folder)?;
    let places = [PathBuf::from(name), folder.join(name)];
    let found = places
        .into_iter()
        .find(|path| !name.is_empty() && path.exists());
    found.map(Some).ok_or_else(|| {
        let line =
            format!("base_model_name_or_path: found {name:?}, want the folder of the base model");
        foreign(&folder.join(CONFIG), vec![line])
    })
}

/// Name of the model that the adapter in `folder` belongs to, a path or that of a hub; empty if it names none.
pub(crate) fn named_base(folder: &Path) -> Result<String> {
    let config = config(folder)?;
    let name = config.get("base_model_name_or_path");
    Ok(name.and_then(Value::as_str).unwrap_or_default().to_owned())
}

/// Adapters beside which others stand.
const MOST_NESTED: usize = 16;

/// The folders of the models that the adapter in `folder` stands on: its own base, the base of that if it is an adapter as well, and
/// so on; the last is a whole model. None of any other folder.
///
/// # Errors
/// As `adapter_base`; adapters that name each other in a circle, or more than 16.
pub fn adapter_bases(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut bases: Vec<PathBuf> = Vec::new();
    while let Some(base) = adapter_base(bases.last().map_or(folder, PathBuf::as_path))? {
        if bases.len() == MOST_NESTED {
            let line = format!(
                "base_model_name_or_path: found an adapter of an adapter, {MOST_NESTED} times and more, want a whole model behind them"
            );
            return Err(foreign(&folder.join(CONFIG), vec![line]));
        }
        bases.push(base);
    }
    Ok(bases)
}

/// Opens the adapter's tensors.
pub(super) fn tensors(folder: &Path) -> Result<Reader> {
    Reader::open_any(&folder.join(WEIGHTS), &FORMATS)
}

/// Lines of the settings among `keys` that ask for anything.
pub(super) fn set_among(config: &Map<String, Value>, keys: &[&str]) -> Vec<String> {
    let is_empty = |value: &Value| match value {
        Value::Null | Value::Bool(false) => true,
        Value::Array(list) => list.is_empty(),
        Value::Object(table) => table.is_empty(),
        Value::String(text) => text == "none",
        Value::Bool(true) | Value::Number(_) => false,
    };
    let all = keys
        .iter()
        .filter_map(|key| Some((key, config.get(*key).filter(|value| !is_empty(value))?)));
    all.map(|(key, value)| format!("{key}: found {value}, want none"))
        .collect()
}

pub(super) fn shown(value: Option<&Value>) -> String {
    value.map_or_else(|| "nothing".into(), Value::to_string)
}

/// A tensor to be written.
pub(super) struct Named {
    pub entry: Entry,
    pub values: Vec<f32>,
}

/// Writes an adapter as PEFT loads it.
pub(super) fn write(out: &Path, config: &Value, tensors: &[Named]) -> Result<()> {
    fs::create_dir_all(out).at("create", out)?;
    let path = out.join(WEIGHTS);
    let partial = hidden(&path);
    let entries = tensors.iter().map(|tensor| tensor.entry.clone());
    let mut writer = Writer::create(&partial, entries.collect(), Some(json!({"format": "pt"})))?;
    for tensor in tensors {
        writer.write(&tensor.values)?;
    }
    writer.finish()?;
    fs::rename(&partial, &path).at("rename", &partial)?;
    let path = out.join(CONFIG);
    let partial = hidden(&path);
    let mut file = File::create(&partial).at("create", &partial)?;
    file.write_all(format!("{config:#}\n").as_bytes())
        .at("write", &partial)?;
    file.sync_all().at("sync", &partial)?;
    fs::rename(&partial, &path).at("rename", &partial)?;
    sync(out)
}

fn hidden(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().display();
    path.with_file_name(format!(".{name}.partial"))
}
