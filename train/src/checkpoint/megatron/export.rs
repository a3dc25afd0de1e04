//! Writes a model as a checkpoint of Megatron-Core (format torch_dist), which Megatron-LM loads for any tensor and pipeline
//! parallelism: `OUT/release/` and the tracker that names it. Names and order of elements are those that `import.rs` reads.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::Path;

use crate::checkpoint::huggingface::pair::Pair;
use crate::checkpoint::megatron::import::{COMMON, LAYERS, TRACKER, pairs};
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

/// Modules of a layer, and of the whole model, that have an entry beside their weights: the local and TransformerEngine's.
const STATEFUL: [&str; 5] = [
    "self_attention.linear_qkv",
    "self_attention.linear_proj",
    "self_attention.core_attention",
    "mlp.linear_fc1",
    "mlp.linear_fc2",
];
const STATEFUL_QK: [&str; 2] = ["self_attention.q_layernorm", "self_attention.k_layernorm"];

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
    let mut writer = DistWriter::create(partial, dtype)?;
    for pair in pairs(&plan) {
        let ours = source.read(&pair.ours)?;
        let values = pair.elements_of_ours(&shape).map(|at| ours[at]);
        writer.chunk(chunk(&plan, &pair), values)?;
    }
    // torch's list of one None: these modules have no state of their own
    let nothing = Object::List(vec![Object::None]);
    for name in stateful(&plan) {
        writer.object(name, &nothing)?;
    }
    writer.finish()?;
    sync(partial)
}

/// The box of Megatron's tensor that a tensor is: a layer of a stack, or all of it.
fn chunk(plan: &Plan, pair: &Pair) -> Chunk {
    let of_layer = pair.theirs.strip_prefix(LAYERS);
    let of_layer = of_layer.and_then(|rest| rest.split_once('.'));
    let layer = of_layer.and_then(|(layer, rest)| Some((layer.parse().ok()?, rest)));
    let mut offsets = vec![0; pair.dims.len()];
    let Some((layer, rest)) = layer else {
        return Chunk {
            tensor: pair.theirs.clone(),
            dims: pair.dims.clone(),
            offsets,
            sizes: pair.dims.clone(),
        };
    };
    offsets.insert(0, layer);
    let below = |first: usize| [&[first], &pair.dims[..]].concat();
    Chunk {
        tensor: format!("{LAYERS}{rest}"),
        dims: below(plan.model.layers),
        offsets,
        sizes: below(1),
    }
}

/// Names of the entries beside weights.
fn stateful(plan: &Plan) -> Vec<String> {
    let qk = plan.model.architecture().qk_norm;
    let qk = STATEFUL_QK.iter().filter(|_| qk);
    let (modules, layers) = (STATEFUL.iter().chain(qk), plan.model.layers);
    let of_layers = modules.flat_map(|module| {
        (0..layers)
            .map(move |layer| format!("{LAYERS}{module}._extra_state/shard_{layer}_{layers}"))
    });
    let last = "decoder.final_layernorm._extra_state/shard_0_1".into();
    of_layers.chain([last]).collect()
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
