//! Weights of GPT-like Megatron-Core models, dense or mixtures of experts (checkpoints in torch_dist format), for import and for
//! `train.init_from`. Names and order of elements: `names.rs`. A layer's tensors are in a stack of all layers, or under the
//! layer's own name; a norm is named after the layer that it may be fused with, or has a name of its own.
//!
//! The model's settings are in `args` of `common.pt`, which Megatron-LM's training loop writes; without them they come from a
//! Hugging Face `config.json` beside the tensors, or from a job's own `[model]`.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use crate::checkpoint::bounds::Size;
use crate::checkpoint::huggingface::config;
use crate::checkpoint::huggingface::pair::Pair;
use crate::checkpoint::megatron::names::{LAYERS, alternatives, pairs};
use crate::checkpoint::megatron::namespace::Args;
use crate::checkpoint::megatron::settings::{self, Described};
use crate::checkpoint::torch::dist::{METADATA, TorchDist};
use crate::checkpoint::torch::pickle::Pickle;
use crate::checkpoint::torch::zip::{Archive, Extent};
use crate::config::plan::Plan;
use crate::error::{At, Error, Result};
use crate::model::param;

/// Names the last iteration, in the folder above those of the iterations.
pub(super) const TRACKER: &str = "latest_checkpointed_iteration.txt";
/// Everything that is not sharded.
pub(super) const COMMON: &str = "common.pt";
/// Longest pickle in it that is read.
const MAX_COMMON: u64 = 1 << 28;

/// Prefixes of the names of entries that are not weights.
const BESIDE: [&str; 5] = [
    "optimizer.",
    "rng_state",
    "rerun_state",
    "chained_",
    "opt_param_scheduler",
];
const EXTRA: &str = "_extra_state";

/// The folder of the newest iteration, if this folder is a Megatron checkpoint or contains some.
pub(crate) fn find(folder: &Path) -> Option<PathBuf> {
    if folder.join(METADATA).exists() {
        return Some(folder.to_owned());
    }
    let text = fs::read_to_string(folder.join(TRACKER)).ok()?;
    let name = match text.trim().parse::<u64>() {
        Ok(number) => format!("iter_{number:07}"),
        Err(_) => "release".into(),
    };
    let newest = folder.join(name);
    newest.join(METADATA).exists().then_some(newest)
}

/// An opened checkpoint whose model is known, by names of `pairs`.
pub(crate) struct Megatron {
    folder: PathBuf,
    tensors: TorchDist,
}

impl Megatron {
    pub(crate) fn open(folder: &Path) -> Result<Megatron> {
        Ok(Megatron {
            folder: folder.to_owned(),
            tensors: TorchDist::open(folder)?,
        })
    }

    fn foreign(&self, problems: Vec<String>) -> Error {
        Error::Foreign {
            path: self.folder.clone(),
            problems,
        }
    }

    /// Rows of the embedding, with padding.
    pub(crate) fn vocab(&self) -> Option<usize> {
        let dims = self.tensors.dims("embedding.word_embeddings.weight")?;
        dims.first().copied()
    }

    /// The size of the tensors, which is no larger than the files are.
    ///
    /// # Errors
    /// `Io`.
    pub(crate) fn size(&self) -> Result<Size> {
        let all = || {
            self.tensors
                .names()
                .filter_map(|name| self.tensors.dims(name))
        };
        let product = |dims: &[usize]| dims.iter().fold(1usize, |n, dim| n.saturating_mul(*dim));
        let listed = all().map(product).fold(0, usize::saturating_add);
        // 16 bits each at least
        let elements = usize::try_from(self.tensors.bytes()? / 2).unwrap_or(usize::MAX);
        // the first axis may be that of layers
        let slabs = all().map(|dims| dims.first().map_or(1, |first| *first));
        let tensors = slabs.fold(0, usize::saturating_add);
        Ok(Size {
            tensors: tensors.min(elements),
            elements: listed.min(elements),
        })
    }

    /// The model of `args` or a `config.json`; None if there is neither.
    pub(crate) fn model(&self) -> Result<Option<Described>> {
        if let Some(pickle) = self.common()?
            && let Some(args) = pickle.get(pickle.root(), "args")
        {
            let args = Args::of(&pickle, args);
            let described = settings::read(&args);
            return described.map(Some).map_err(|lines| self.foreign(lines));
        }
        let path = self.folder.join("config.json");
        if !path.exists() {
            return Ok(None);
        }
        let text = fs::read(&path).at("read", &path)?;
        let config = serde_json::from_slice(&text)
            .map_err(|error| self.foreign(vec![format!("config.json: not JSON: {error}")]))?;
        let read = config::from_json(&config).map_err(|lines| self.foreign(lines))?;
        Ok(Some(Described {
            model: read.model,
            vocab: Some(read.vocab),
            seq_length: read.seq_length,
        }))
    }

    /// The pickle in `common.pt`, if there is one.
    fn common(&self) -> Result<Option<Pickle>> {
        let path = self.folder.join(COMMON);
        if !path.exists() {
            return Ok(None);
        }
        let mut file = File::open(&path).at("open", &path)?;
        let bytes = file.metadata().at("read", &path)?.len();
        let mut archive = Archive::open(&mut file, &path, Extent::whole(bytes))?;
        let entry = archive.find("data.pkl")?;
        let bytes = archive.read(&entry, MAX_COMMON)?;
        let pickle = Pickle::read(&bytes)
            .map_err(|(_, found, wanted)| archive.damaged(0, "pickle", found, wanted.into()))?;
        Ok(Some(pickle))
    }

    /// The list of tensors, if those of the checkpoint are exactly these.
    pub(crate) fn matched(&self, plan: &Plan) -> Result<Vec<Pair>> {
        let mut problems = Vec::new();
        let made = plan.model.architecture();
        if made.is_masked || made.is_encoder_decoder {
            let family = plan.model.family;
            problems.push(format!("model.family: found {family:?}, want a decoder alone: others of Megatron are not read"));
        }
        let mut pairs = pairs(plan);
        // a copy that is left out is no loss
        pairs.retain(|pair| !pair.is_copy() || self.place(&pair.theirs).is_some());
        // norms of embeddings, norms behind layers: Megatron's GPT has no tensor for them
        let asked = match problems.is_empty() {
            true => param::specs(plan),
            false => Vec::new(),
        };
        let known: BTreeSet<&str> = pairs.iter().map(|pair| pair.ours.as_str()).collect();
        for spec in asked {
            let is_read = !param::is_of_classes(&spec.name) && !param::is_of_adapter(&spec.name);
            if is_read && !known.contains(spec.name.as_str()) {
                problems.push(format!(
                    "{}: found no tensor of Megatron's that it could be, want a model of its GPT",
                    spec.name
                ));
            }
        }
        let mut used = BTreeSet::new();
        for pair in &pairs {
            let Some(place) = self.place(&pair.theirs) else {
                problems.push(format!(
                    "{}: found nothing, want {:?}",
                    pair.theirs, pair.dims
                ));
                continue;
            };
            let rest = place.dims_of_layer();
            if !place.fits(pair) {
                problems.push(format!(
                    "{}: found {rest:?}, want {:?}",
                    pair.theirs, pair.dims
                ));
            }
            let (layers, stack) = (plan.model.layers, place.dims[0]);
            let is_other = place.layer.is_some() && stack != layers;
            if is_other && !used.contains(&place.name) {
                let name = &place.name;
                problems.push(format!("{name}: found {stack} layers, want {layers}"));
            }
            used.insert(place.name);
        }
        for name in self.tensors.names().filter(|name| !used.contains(*name)) {
            let is_beside = BESIDE.iter().any(|start| name.starts_with(start));
            if !is_beside && !name.contains(EXTRA) {
                problems.push(format!("{name}: found, want no such tensor"));
            }
        }
        match problems.is_empty() {
            true => Ok(pairs),
            false => Err(self.foreign(problems)),
        }
    }

    /// Location of a tensor of a layer or of the whole model.
    fn place(&self, theirs: &str) -> Option<Place<'_>> {
        for name in alternatives(theirs) {
            if let Some(dims) = self.tensors.dims(&name).filter(|dims| !dims.is_empty()) {
                let layer = None;
                return Some(Place { name, layer, dims });
            }
            let parts = name
                .strip_prefix(LAYERS)
                .and_then(|rest| rest.split_once('.'));
            if let Some((layer, rest)) = parts
                && let Ok(layer) = layer.parse()
            {
                let stacked = format!("{LAYERS}{rest}");
                if let Some(dims) = self.tensors.dims(&stacked).filter(|dims| dims.len() > 1) {
                    return Some(Place {
                        name: stacked,
                        layer: Some(layer),
                        dims,
                    });
                }
            }
        }
        None
    }

    /// Numbers of a tensor of `pairs`.
    pub(crate) fn values(&self, pair: &Pair) -> Result<Vec<f32>> {
        let place = self.place(&pair.theirs);
        let place =
            place.ok_or_else(|| self.foreign(vec![format!("{}: found nothing", pair.theirs)]))?;
        let stacks: Vec<usize> = place.layer.into_iter().chain(pair.stacked()).collect();
        let dims = &pair.dims[usize::from(pair.stacked().is_some())..];
        self.tensors.read(&place.name, &stacks, dims)
    }
}

/// Where a tensor is.
struct Place<'t> {
    /// Of the tensor that has it.
    name: String,
    /// Its index, if that is a stack of layers.
    layer: Option<usize>,
    /// Of the whole stack.
    dims: &'t [usize],
}

impl Place<'_> {
    fn dims_of_layer(&self) -> &[usize] {
        &self.dims[usize::from(self.layer.is_some())..]
    }

    /// Whether it has the dims of a pair, and rows of padding behind those of a vocabulary.
    fn fits(&self, pair: &Pair) -> bool {
        let more_rows = ["embedding.word_embeddings.weight", "output_layer.weight"];
        let rest = self.dims_of_layer();
        let is_padded = more_rows.contains(&self.name.as_str())
            && rest.len() == 2
            && rest[0] >= pair.dims[0]
            && rest[1] == pair.dims[1];
        let is_in = self.layer.is_none_or(|layer| layer < self.dims[0]);
        (rest == pair.dims || is_padded) && is_in
    }
}
