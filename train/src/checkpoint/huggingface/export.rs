//! Exports a checkpoint to the Hugging Face layout, which transformers loads as the family's class: `config.json`
//! and `model.safetensors`, or several such files and their index. Contents: `config.rs` (settings), `names.rs`
//! (tensors).

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use crate::checkpoint::MODEL;
use crate::checkpoint::huggingface::adapter_folder::is_adapter;
use crate::checkpoint::huggingface::config;
use crate::checkpoint::huggingface::names::pairs;
use crate::checkpoint::huggingface::pair::Pair;
use crate::checkpoint::huggingface::peft::Adapter;
use crate::checkpoint::safetensors::{Entry, Writer};
use crate::checkpoint::weight_source::WeightSource;
use crate::checkpoint::write::sync;
use crate::error::{At, Error, Result};

/// Writes `config.json` and `model.safetensors` under `out`, with adapters merged, one tensor at a time.
///
/// # Errors
/// A damaged checkpoint; a model that the family's class cannot express; a folder that cannot be written.
pub fn export_hf(checkpoint: &Path, out: &Path) -> Result<()> {
    export_hf_shards(checkpoint, out, None)
}

/// Like `export_hf`; if the tensors take more than `max_bytes`, in files of at most that size, in order (a
/// larger tensor is alone), named as by transformers' `save_pretrained`, with
/// `model.safetensors.index.json`.
///
/// # Errors
/// As `export_hf`.
pub fn export_hf_shards(checkpoint: &Path, out: &Path, max_bytes: Option<u64>) -> Result<()> {
    write_folder(WeightSource::open(checkpoint)?, None, out, max_bytes)
}

/// Takes the adapter of the PEFT folder `adapter` out of the model at `merged` that it was merged into, and writes the model without it
/// as `export_hf_shards` does: W - scale B A in f64, rounded once. Returns the number of layers that changed. The weights are the base's
/// but for two roundings to f32, that of the merge and this one: 2^-24 of the merged weight and of the base's.
///
/// # Errors
/// `Foreign` for an adapter that does not fit the model, or that has tensors in place of the base's own, which are lost; `Request` for
/// weights that are not stored in f32, whose rounding is as large as what an adapter adds, and for a folder without an adapter; those
/// of `export_hf`.
pub fn unmerge_hf(
    merged: &Path,
    adapter: &Path,
    out: &Path,
    max_bytes: Option<u64>,
) -> Result<usize> {
    if !is_adapter(adapter) {
        return Err(Error::Request {
            what: "adapter to take out of a model",
            found: format!("{}, which has no adapter_config.json", adapter.display()),
            wanted: "PEFT's folder; `convert --to peft` makes one of a checkpoint with adapters"
                .into(),
        });
    }
    let model = WeightSource::open(merged)?;
    if !model.is_f32() {
        return Err(Error::Request {
            what: "model to take an adapter out of",
            found: format!(
                "{}, whose weights are not all stored in f32",
                merged.display()
            ),
            wanted: "one merged in f32: the rounding to fewer bits has lost the base's weights"
                .into(),
        });
    }
    let folder = adapter;
    let adapter = Adapter::open(folder, &pairs(&model.plan))?;
    let lost = adapter.copies().map(|name| {
        format!("{name}: found a copy in place of the base's, want adapters alone: the merged model does not have the base's")
    });
    let lost: Vec<String> = lost.collect();
    if !lost.is_empty() {
        return Err(Error::Foreign {
            path: folder.to_owned(),
            problems: lost,
        });
    }
    let modules = adapter.modules();
    write_folder(model, Some(adapter), out, max_bytes)?;
    Ok(modules)
}

/// Writes a model, without what an adapter adds to it.
fn write_folder(
    mut model: WeightSource,
    mut without: Option<Adapter>,
    out: &Path,
    max_bytes: Option<u64>,
) -> Result<()> {
    config::expect_class(&model.plan)?;
    let config = config::to_json(&model.plan)?;
    fs::create_dir_all(out).at("create", out)?;
    let pairs = pairs(&model.plan);
    let tensors: Vec<Theirs<'_>> = pairs.chunk_by(|a, b| a.theirs == b.theirs).collect();
    let shards = cut(&tensors, max_bytes.unwrap_or(u64::MAX));
    let (mut map, mut names) = (Map::new(), vec![MODEL.to_owned(), INDEX.to_owned()]);
    for (number, shard) in shards.iter().enumerate() {
        let name = match shards.len() {
            1 => MODEL.to_owned(),
            count => format!("model-{:05}-of-{count:05}.safetensors", number + 1),
        };
        write_shard(&mut model, without.as_mut(), shard, &out.join(&name))?;
        map.extend(shard.iter().map(|of| (of[0].theirs.clone(), json!(name))));
        names.push(name);
    }
    if shards.len() > 1 {
        let bytes: u64 = tensors.iter().map(|pairs| bytes_of(pairs)).sum();
        let index = json!({"metadata": {"total_size": bytes}, "weight_map": map});
        write_json(&index, &out.join(INDEX))?;
        names.remove(0);
    } else {
        names.remove(1);
    }
    remove_others(out, &names)?;
    write_json(&config, &out.join("config.json"))?;
    sync(out)
}

/// Index file: which tensor is in which file.
const INDEX: &str = "model.safetensors.index.json";

/// The pairs of one tensor of theirs, in the order of its parts.
type Theirs<'a> = &'a [Pair];

fn bytes_of(pairs: Theirs<'_>) -> u64 {
    pairs.iter().map(|pair| 4 * pair.elements() as u64).sum()
}

/// Tensors file by file.
fn cut<'a, 'p>(tensors: &'a [Theirs<'p>], max_bytes: u64) -> Vec<&'a [Theirs<'p>]> {
    let (mut shards, mut start, mut bytes) = (Vec::new(), 0, 0);
    for (at, pairs) in tensors.iter().enumerate() {
        if at > start && bytes + bytes_of(pairs) > max_bytes {
            shards.push(&tensors[start..at]);
            (start, bytes) = (at, 0);
        }
        bytes += bytes_of(pairs);
    }
    shards.push(&tensors[start..]);
    shards
}

fn write_shard(
    model: &mut WeightSource,
    mut without: Option<&mut Adapter>,
    shard: &[Theirs<'_>],
    path: &Path,
) -> Result<()> {
    let entries = shard.iter().map(|pairs| Entry {
        name: pairs[0].theirs.clone(),
        dims: pairs[0].dims.clone(),
    });
    let partial = hidden(path);
    let format = Some(json!({"format": "pt"}));
    let mut writer = Writer::create(&partial, entries.collect(), format)?;
    let shape = model.plan.shape();
    for pair in shard.iter().copied().flatten() {
        let ours = model.read(&pair.ours)?;
        let mut theirs: Vec<f32> = pair.elements_of_ours(&shape).map(|at| ours[at]).collect();
        if let Some(adapter) = &mut without {
            adapter.subtract(pair, &mut theirs)?;
        }
        writer.write(&theirs)?;
    }
    writer.finish()?;
    fs::rename(&partial, path).at("rename", &partial)
}

fn write_json(value: &Value, path: &Path) -> Result<()> {
    let partial = hidden(path);
    let mut file = File::create(&partial).at("create", &partial)?;
    let text = format!("{value:#}\n");
    file.write_all(text.as_bytes()).at("write", &partial)?;
    file.sync_all().at("sync", &partial)?;
    fs::rename(&partial, path).at("rename", &partial)
}

fn hidden(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().display();
    path.with_file_name(format!(".{name}.partial"))
}

/// Removes tensors of an export before this one: transformers would load them in place of these.
fn remove_others(out: &Path, names: &[String]) -> Result<()> {
    for entry in fs::read_dir(out).at("list", out)? {
        let path = entry.at("list", out)?.path();
        let name = path.file_name().unwrap_or_default().display().to_string();
        let numbers = name.strip_prefix("model-");
        let numbers = numbers.and_then(|rest| rest.strip_suffix(".safetensors"));
        let is_shard = numbers.is_some_and(|numbers| {
            let all = numbers.split("-of-").flat_map(str::bytes);
            numbers.contains("-of-") && all.into_iter().all(|b| b.is_ascii_digit())
        });
        let is_ours = is_shard || name == MODEL || name == INDEX;
        if is_ours && !names.contains(&name) {
            fs::remove_file(&path).at("remove", &path)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// transformers' rule: a file is full when the next tensor would make it larger than the limit.
    #[test]
    fn tensors_are_cut_in_order_and_a_large_one_is_alone() {
        let pair = |elements| Pair::of("theirs".into(), "ours".into(), &[elements]);
        let pairs: Vec<Pair> = [3, 4, 1, 20, 2, 2, 2].map(pair).into();
        let tensors: Vec<Theirs<'_>> = pairs.chunks(1).collect();
        let sizes = |max_bytes| -> Vec<usize> {
            cut(&tensors, max_bytes)
                .iter()
                .map(|shard| shard.len())
                .collect()
        };
        assert_eq!(sizes(32), [3, 1, 3]);
        assert_eq!(sizes(16), [1, 1, 1, 1, 2, 1]);
        assert_eq!(sizes(1), [1; 7]);
        assert_eq!(sizes(u64::MAX), [7]);
    }
}
