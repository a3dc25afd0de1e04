//! `inspect` and `extract`: show one file.

use crate::log::print;
use crate::log::printable;
use anyhow::{Context as _, Result, bail};
use serde_json::{Value, json};
use std::io::Read;
use std::path::{Path, PathBuf};

/// Description of a file by the crate that reads its format, recognized by content, then by name.
fn describe(path: &Path) -> Result<Value> {
    let name = path
        .file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .to_string();
    if path.is_dir() {
        if path.join("state.json").exists() {
            return Ok(train::eval::inspect(path)?);
        }
        if path.join("manifest.json").exists() {
            return job_folder(path);
        }
    }
    if let Some(value) = model(path)? {
        return Ok(value);
    }
    for suffix in [".idx", ".bin"] {
        if let Some(prefix) = name.strip_suffix(suffix) {
            let index = path.with_file_name(format!("{prefix}.idx"));
            if !index.exists() {
                bail!(
                    "{}: there is no {}, which a token dataset has beside its .bin",
                    path.display(),
                    index.display()
                );
            }
            return Ok(index::dataset::inspect(&path.with_file_name(prefix))?);
        }
    }
    let prefix = PathBuf::from(format!("{}.idx", path.display()));
    if !path.exists() && prefix.exists() {
        return Ok(index::dataset::inspect(path)?);
    }
    if !path.exists() && !curate::store::is_url(path) {
        bail!(
            "{}: there is no such file or folder, wanted an archive or another file of documents, a token dataset or its prefix, a tokenizer, a checkpoint, or a job's folder",
            path.display()
        );
    }
    if name == "tokenizer.json" {
        let t = index::tokenizer::Tokenizer::load(path)?;
        return Ok(
            json!({"kind": "tokenizer", "vocab": t.vocab(), "end_of_document": t.end_of_document(),
            "xxh3": t.identity()}),
        );
    }
    if name.ends_with(".safetensors") {
        let folder = path.parent().unwrap_or(Path::new("."));
        return match folder.join("state.json").exists() {
            true => Ok(train::eval::inspect(folder)?),
            false => tensors(path),
        };
    }
    // lists of errors and clusters often are
    let is_empty = std::fs::metadata(path).is_ok_and(|file| file.is_file() && file.len() == 0);
    if is_empty && name.ends_with(".jsonl") {
        return Ok(json!({"kind": "jsonl", "records": 0, "bad": 0}));
    }
    Ok(curate::pipeline::inspect(path)?)
}

/// A model of another program, an adapter, or the newest of a folder of checkpoints; None if `path` is none of them.
fn model(path: &Path) -> Result<Option<Value>> {
    let is_of_steps = |entry: std::fs::DirEntry| {
        let name = entry.file_name();
        name.to_string_lossy().starts_with("step-")
    };
    let mut entries = std::fs::read_dir(path).into_iter().flatten().flatten();
    let kind = if train::checkpoint::is_gguf(path) {
        "GGUF model"
    } else if train::checkpoint::is_megatron(path) {
        "Megatron checkpoint"
    } else if path.join("adapter_config.json").is_file() {
        let file = path.join("adapter_config.json");
        let text = std::fs::read_to_string(&file).with_context(|| file.display().to_string())?;
        let config: Value =
            serde_json::from_str(&text).with_context(|| file.display().to_string())?;
        return Ok(Some(json!({"kind": "PEFT adapter", "config": config})));
    } else if path.is_dir() && path.join("config.json").is_file() {
        "Hugging Face model"
    } else if entries.any(is_of_steps) {
        let newest = train::checkpoint::checkpoint_at(path)?;
        let mut value = train::eval::inspect(&newest.path)?;
        let skipped = newest.skipped.iter().map(ToString::to_string);
        value["checkpoint"] = json!(newest.path);
        value["skipped"] = json!(skipped.collect::<Vec<_>>());
        return Ok(Some(value));
    } else {
        return Ok(None);
    };
    let found = train::checkpoint::initial_model(path)?;
    Ok(Some(
        json!({"kind": kind, "vocab": found.vocab, "model": found.model}),
    ))
}

/// Bytes of a safetensors header at most, as in the format's own library.
const MOST_HEADER: u64 = 100_000_000;

/// Names, types and shapes in a safetensors file.
fn tensors(path: &Path) -> Result<Value> {
    let named = || path.display().to_string();
    let mut file = std::fs::File::open(path).with_context(named)?;
    let size = file.metadata().with_context(named)?.len();
    let mut length = [0; 8];
    file.read_exact(&mut length).with_context(named)?;
    let length = u64::from_le_bytes(length);
    if length > MOST_HEADER.min(size.saturating_sub(8)) {
        bail!(
            "{}: byte 0: found a header of {length} bytes, want at most the {} of the file after it",
            path.display(),
            size.saturating_sub(8)
        );
    }
    let mut header = Vec::new();
    file.take(length)
        .read_to_end(&mut header)
        .with_context(named)?;
    let header: serde_json::Map<String, Value> =
        serde_json::from_slice(&header).with_context(|| format!("{}: byte 8", path.display()))?;
    let tensors = header.iter().filter(|(name, _)| *name != "__metadata__");
    let tensors =
        tensors.map(|(name, of)| json!({"name": name, "dtype": of["dtype"], "shape": of["shape"]}));
    Ok(json!({
        "kind": "safetensors", "bytes": size, "metadata": header.get("__metadata__"),
        "tensors": tensors.collect::<Vec<_>>(),
    }))
}

fn job_folder(path: &Path) -> Result<Value> {
    let file = path.join("manifest.json");
    let text = std::fs::read_to_string(&file).with_context(|| file.display().to_string())?;
    let manifest: Value =
        serde_json::from_str(&text).with_context(|| file.display().to_string())?;
    Ok(json!({"kind": "job folder", "stages": manifest}))
}

/// The verb.
pub(crate) fn inspect(path: &Path, as_json: bool) -> Result<()> {
    let value = describe(path)?;
    if as_json {
        print(&format!("{value}\n"))?;
    } else {
        let mut text = String::new();
        lines(&value, 0, &mut text);
        print(&printable(&text))?;
    }
    match value["bad"].as_u64() {
        Some(bad) if bad > 0 => Err(damaged(path, bad, &value)),
        _ => Ok(()),
    }
}

/// The error for a file with unreadable records.
fn damaged(path: &Path, bad: u64, value: &Value) -> anyhow::Error {
    let first = &value["problems"][0];
    let place = first["offset"].as_u64().map_or(String::new(), |offset| {
        let why = first["why"].as_str().unwrap_or_default();
        format!("; the first at byte {offset}: {why}")
    });
    anyhow::anyhow!("{}: {bad} records are damaged{place}", path.display())
}

/// `key: value` lines, nested tables indented, long arrays cut.
fn lines(value: &Value, depth: usize, out: &mut String) {
    let Value::Object(entries) = value else {
        out.push_str(&format!("{value}\n"));
        return;
    };
    for (k, v) in entries {
        let pad = "  ".repeat(depth);
        match v {
            Value::Object(inner) if !inner.is_empty() => {
                out.push_str(&format!("{pad}{k}:\n"));
                lines(v, depth + 1, out);
            }
            Value::String(s) => out.push_str(&format!("{pad}{k}: {}\n", s.replace('\n', "\\n"))),
            other => {
                let text = other.to_string();
                let cut = text.char_indices().nth(160).map_or(text.len(), |(i, _)| i);
                let more = if cut < text.len() { " ..." } else { "" };
                out.push_str(&format!("{pad}{k}: {}{more}\n", &text[..cut]));
            }
        }
    }
}

/// `extract FILE`: shows the extraction of one page, for tuning.
pub(crate) fn extract(path: &Path) -> Result<()> {
    let mut bytes = Vec::new();
    std::fs::File::open(path)
        .and_then(|mut f| f.read_to_end(&mut bytes))
        .with_context(|| format!("cannot read {}", path.display()))?;
    match curate::pipeline::kind_of(&bytes) {
        "html" => {}
        "warc" => return extract_warc(path),
        "text" => {
            let text = String::from_utf8_lossy(&bytes);
            return print(&format!("{}\n", text.trim_end()));
        }
        kind => bail!(
            "{}: found {kind}, wanted an HTML page or a WARC file",
            path.display()
        ),
    }
    let page = curate::extract::extract_html(&bytes, None);
    print(&format!("{}\n", page.text))
}

/// Every page of a WARC, through the same pass as a job with extraction alone.
fn extract_warc(path: &Path) -> Result<()> {
    let folder = tempfile::tempdir().context("cannot make a temporary folder")?;
    let input = curate::read::Input {
        path: path.display().to_string(),
        format: curate::read::Format::Warc,
        source: "extract".into(),
        ..Default::default()
    };
    let step = curate::pipeline::Step::Extract(curate::extract::ExtractConfig::default());
    let config = curate::pipeline::CurateConfig {
        inputs: vec![input],
        step: vec![step],
        ..Default::default()
    };
    let curator = curate::pipeline::Curator::new(&config, None, None, 0)?;
    for shard in curate::pipeline::shards(&config)? {
        let report = curator.run_shard(&shard, folder.path(), &curate::Silent)?;
        if report.kept == 0 {
            let (records, bad) = (report.records, report.quarantined);
            bail!(
                "{}: no page in {records} records, {bad} of them damaged",
                path.display()
            );
        }
        for document in curate::corpus::documents(folder.path(), shard.number)? {
            let document = document?;
            let name = document.url.unwrap_or(document.id);
            print(&format!("=== {name}\n{}\n\n", document.text))?;
        }
    }
    Ok(())
}
