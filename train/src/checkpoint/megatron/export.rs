//! Writes a model as a checkpoint of Megatron-Core (format torch_dist), which Megatron-LM loads for any tensor and pipeline
//! parallelism: `OUT/release/` and the tracker that names it. Names and order of elements: `names.rs`.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::Path;

use crate::checkpoint::huggingface::pair::Pair;
use crate::checkpoint::megatron::import::{COMMON, TRACKER};
use crate::checkpoint::megatron::names::{EXPERT_BIAS, LAYERS, is_stacked, pairs, stateful};
use crate::checkpoint::megatron::settings;
use crate::checkpoint::torch::dist_writer::{Chunk, DistWriter};
use crate::checkpoint::torch::pickle_writer::Object;
use crate::checkpoint::torch::save_writer::{TorchDtype, write_object};
use crate::checkpoint::weight_source::WeightSource;
use crate::checkpoint::write::{remove, sync};
use crate::config::plan::Plan;
use crate::error::{At, Error, Result};

/// Folder of a checkpoint without an iteration: weights to start from.
const RELEASE: &str = "release";
/// It until it is whole, and the one that it replaces.
const PARTIAL: &str = ".release.partial";
const DROPPED: &str = ".release.dropped";

/// By what Megatron-Core knows a checkpoint of its own.
const BACKENDS: &str = r#"{"sharded_backend": "torch_dist", "sharded_backend_version": 1, "common_backend": "torch", "common_backend_version": 1}"#;

/// Writes the model of a checkpoint, a Hugging Face or PEFT folder (adapters merged) or a GGUF file as the folder `out`, one tensor
/// at a time. Embedding and head have the rows of the vocabulary, without padding. A checkpoint that this wrote before is
/// replaced; a kill leaves none, or a whole one.
///
/// # Errors
/// A damaged model; one that Megatron's GPT cannot hold, with every setting that rules it out; a folder that has a training's
/// checkpoints, or that cannot be written.
pub fn export_megatron(path: &Path, out: &Path, dtype: TorchDtype) -> Result<()> {
    write_model(&mut WeightSource::open(path)?, out, dtype)
}

/// Like `export_megatron` of an opened model.
pub(crate) fn write_model(source: &mut WeightSource, out: &Path, dtype: TorchDtype) -> Result<()> {
    let lacking = settings::inexpressible(&source.plan);
    if !lacking.is_empty() {
        return Err(Error::Request {
            what: "model to write for Megatron",
            found: lacking.join("; "),
            wanted: "settings that Megatron-Core's GPT and Megatron-LM's arguments have".into(),
        });
    }
    let tracker = out.join(TRACKER);
    let named = fs::read_to_string(&tracker).ok();
    if let Some(named) = named.filter(|named| named.trim() != RELEASE) {
        return Err(Error::Request {
            what: "folder for a Megatron checkpoint",
            found: format!("{} with iteration {}", tracker.display(), named.trim()),
            wanted: "a folder without checkpoints of a training".into(),
        });
    }
    fs::create_dir_all(out).at("create", out)?;
    let partial = out.join(PARTIAL);
    let written = fill(source, &partial, dtype);
    if written.is_err() {
        // a full disk gets its space back
        let _ = fs::remove_dir_all(&partial);
    }
    written?;
    replace(out, &partial)
}

/// Writes everything below the folder that gets its name later.
fn fill(source: &mut WeightSource, partial: &Path, dtype: TorchDtype) -> Result<()> {
    remove(partial)?;
    fs::create_dir(partial).at("create", partial)?;
    let plan = source.plan.clone();
    let path = partial.join(COMMON);
    let mut file = BufWriter::new(File::create(&path).at("create", &path)?);
    let length = write_object(&mut file, "common", &settings::common(&plan, dtype));
    length.and_then(|_| file.flush()).at("write", &path)?;
    file.get_ref().sync_all().at("sync", &path)?;
    write_text(&partial.join("metadata.json"), BACKENDS)?;

    let shape = plan.shape();
    let mut writer = DistWriter::create(partial)?;
    for pair in pairs(&plan) {
        let ours = source.read(&pair.ours)?;
        let values = pair.elements_of_ours(&shape).map(|at| ours[at]);
        writer.chunk(chunk(&plan, &pair, dtype), values)?;
    }
    // torch's list of one None: these modules have no state of their own
    let nothing = Object::List(vec![Object::None]);
    for name in stateful(&plan) {
        writer.object(name, &nothing)?;
    }
    writer.finish()?;
    sync(partial)
}

/// The box of Megatron's tensor that a tensor is: a layer of a stack, an expert of a layer, or all of it.
fn chunk(plan: &Plan, pair: &Pair, dtype: TorchDtype) -> Chunk {
    let (mut dims, mut sizes) = (pair.dims.clone(), pair.dims.clone());
    let mut offsets = vec![0; dims.len()];
    if let Some(expert) = pair.stacked() {
        (offsets[0], sizes[0]) = (expert, 1);
    }
    let of_layer = pair.theirs.strip_prefix(LAYERS);
    let of_layer = of_layer.filter(|_| is_stacked(plan));
    let of_layer = of_layer.and_then(|rest| rest.split_once('.'));
    let layer = of_layer.and_then(|(layer, rest)| Some((layer.parse().ok()?, rest)));
    let tensor = match layer {
        None => pair.theirs.clone(),
        Some((layer, rest)) => {
            dims.insert(0, plan.model.layers);
            offsets.insert(0, layer);
            sizes.insert(0, 1);
            format!("{LAYERS}{rest}")
        }
    };
    let is_state = pair.theirs.ends_with(EXPERT_BIAS);
    Chunk {
        tensor,
        dims,
        offsets,
        sizes,
        dtype: if is_state { TorchDtype::F32 } else { dtype },
    }
}

/// Gives the whole folder its name, and then the tracker, without which nobody finds it.
fn replace(out: &Path, partial: &Path) -> Result<()> {
    let [release, dropped, tracker] = [RELEASE, DROPPED, TRACKER].map(|name| out.join(name));
    if tracker.exists() {
        fs::remove_file(&tracker).at("remove", &tracker)?;
    }
    remove(&dropped)?;
    if release.exists() {
        fs::rename(&release, &dropped).at("rename", &release)?;
    }
    fs::rename(partial, &release).at("rename", partial)?;
    sync(out)?;
    let hidden = out.join(format!(".{TRACKER}.partial"));
    write_text(&hidden, RELEASE)?;
    fs::rename(&hidden, &tracker).at("rename", &hidden)?;
    sync(out)?;
    remove(&dropped)
}

fn write_text(path: &Path, text: &str) -> Result<()> {
    let mut file = File::create(path).at("create", path)?;
    file.write_all(text.as_bytes()).at("write", path)?;
    file.sync_all().at("sync", path)
}
