//! Imports a Hugging Face folder as a checkpoint of step 0: `config.json` with `model.safetensors` or
//! `pytorch_model.bin` (or shards and their `.index.json`). 16-bit numbers are widened to f32; the optimizer's
//! state is zero. Fields and tensors that are missing, unknown or of another shape are refused by name, all at
//! once. Export followed by import gives the same bits.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use kernels::Device;
use serde_json::Value;

use crate::checkpoint::gguf::import::{Gguf, is_gguf};
use crate::checkpoint::huggingface::described::Read;
use crate::checkpoint::huggingface::names::pairs;
use crate::checkpoint::huggingface::pair::Pair;
use crate::checkpoint::huggingface::peft::{Adapter, adapter_base, is_adapter};
use crate::checkpoint::huggingface::{bert, config, quantization_config, t5};
use crate::checkpoint::megatron::import as megatron;
use crate::checkpoint::megatron::import::Megatron;
use crate::checkpoint::safetensors::Reader;
use crate::checkpoint::state::State;
use crate::checkpoint::torch::save::TorchFile;
use crate::checkpoint::train_state::TrainState;
use crate::checkpoint::write::write;
use crate::checkpoint::write_shards::Form;
use crate::checkpoint::{MODEL, bounds, snapshot};
use crate::config::plan::Plan;
use crate::config::{Determinism, Family, ModelConfig, ParallelConfig, TrainConfig};
use crate::dist::launch::cpu_path;
use crate::dist::mesh::Groups;
use crate::error::{At, Error, OnRank, Result};
use crate::model::param::{self, Spec};
use crate::optim::rank_state::RankState;
use crate::parallel::shards::Shards;

/// Formats that are read.
const FORMATS: [&str; 3] = ["F32", "F16", "BF16"];
/// Those of quantized models.
const QUANTIZED: [&str; 5] = ["F32", "F16", "BF16", "F8_E4M3", "I8"];

/// Behind the name of a quantized tensor: its scales.
const SCALE: &str = "_scale";

/// Suffixes of tensors in older files that are not weights.
const NOT_WEIGHTS: [&str; 5] = [
    "EncDecAttention.relative_attention_bias.weight",
    ".attn.bias",
    ".attn.masked_bias",
    "rotary_emb.inv_freq",
    "embeddings.position_ids",
];

/// Beginnings of tensors of BERT that its masked language model does not use, as transformers' class
/// does not: the pooler and next-sentence head; a second copy of the head's bias.
const OF_OTHER_HEADS: [&str; 3] = [
    "bert.pooler.",
    "cls.seq_relationship.",
    "cls.predictions.decoder.bias",
];

/// The output head of classes that store one separately.
const HEAD: &str = "lm_head.weight";

/// Names of a head that is kept although it is tied.
const TIED: &[&str] = &["lm_head.weight", "cls.predictions.decoder.weight"];

/// Names of duplicates of the embedding.
fn copies(plan: &Plan) -> impl Iterator<Item = &'static str> {
    let heads = if plan.model.is_tied() { TIED } else { &[] };
    let tables = if plan.model.family == Family::T5 {
        &t5::TABLES[..]
    } else {
        &[]
    };
    heads.iter().chain(tables).copied()
}

/// Result of an import.
#[derive(Clone, Debug)]
pub struct Imported {
    /// The checkpoint's folder.
    pub checkpoint: PathBuf,
    /// Ignored fields of the configuration, one line each.
    pub notes: Vec<String>,
}

/// Writes the model in `folder` as a checkpoint of step 0 under `out`.
///
/// # Errors
/// `Foreign` with every field and tensor that does not fit; files that are missing or damaged.
pub fn import_hf(folder: &Path, out: &Path) -> Result<Imported> {
    import(Folder::open(folder)?, out)
}

/// Like `import_hf` of a checkpoint of Megatron-core's, format torch_dist: the folder of an iteration, or the one
/// above with `latest_checkpointed_iteration.txt`. The model's settings come from `args` in its `common.pt`, or
/// from a Hugging Face `config.json` beside it.
///
/// # Errors
/// As `import_hf`.
pub fn import_megatron(folder: &Path, out: &Path) -> Result<Imported> {
    import(Folder::open_megatron(folder, None)?, out)
}

/// Like `import_hf` of a GGUF file.
///
/// # Errors
/// As `import_hf`.
pub fn import_gguf(file: &Path, out: &Path) -> Result<Imported> {
    import(Folder::open_gguf(file)?, out)
}

/// Whether `import_hf` can read this folder: it holds a model, or an adapter that names one.
pub fn is_hugging_face(folder: &Path) -> bool {
    folder.join("config.json").is_file() || is_adapter(folder)
}

/// Whether `import_megatron` can read this folder.
pub fn is_megatron(folder: &Path) -> bool {
    megatron::find(folder).is_some()
}

fn import(mut folder: Folder, out: &Path) -> Result<Imported> {
    let plan = folder.plan.clone();
    let specs = param::specs(&plan);
    let device = Device::cpu_with(cpu_path()?.isa());
    let mut rank_state = RankState::new(&plan, &specs, Groups::single(), device)?;
    for (spec, weight) in specs.iter().zip(&mut rank_state.weights) {
        let filled = weight.view_mut().renew(|out| folder.fill(spec, out));
        filled.on_rank(0, "import weights")??;
    }
    fs::create_dir_all(out).at("create", out)?;
    let form = Form {
        specs: &specs,
        shards: Shards::of(&plan, &specs),
        place: rank_state.groups.place,
        folder: out,
        plan: &plan,
    };
    let state = State::new(&plan, &TrainState::start(), None);
    let pieces = snapshot::take(&rank_state).on_rank(0, "copy weights")?;
    let checkpoint = write(&form, &state, &mut [pieces], None)?;
    Ok(Imported {
        checkpoint,
        notes: folder.notes,
    })
}

/// An opened folder: the settings of its model, and its tensors.
pub(crate) struct Folder {
    pub plan: Plan,
    /// Ignored fields of its configuration that might be of interest.
    pub notes: Vec<String>,
    tensors: Tensors,
    pairs: Vec<Pair>,
    /// Adapter that is added to the tensors.
    adapter: Option<Adapter>,
}

enum Tensors {
    HuggingFace(Files),
    Megatron(Megatron),
    Gguf(Gguf),
}

pub(crate) fn foreign(path: &Path, problems: Vec<String>) -> Error {
    Error::Foreign {
        path: path.to_owned(),
        problems,
    }
}

impl Folder {
    /// Opens a Hugging Face folder, or a PEFT folder with the base model that it names, into which it is merged.
    pub(crate) fn open(folder: &Path) -> Result<Folder> {
        if let Some(base) = adapter_base(folder)? {
            if is_adapter(&base) {
                let line = "base_model_name_or_path: found an adapter, want a whole model";
                return Err(foreign(folder, vec![line.into()]));
            }
            let mut opened = Folder::open(&base)?;
            opened.adapter = Some(Adapter::open(folder, &opened.pairs)?);
            return Ok(opened);
        }
        let path = folder.join("config.json");
        let text = fs::read(&path).at("read", &path)?;
        let mut config: Value = serde_json::from_slice(&text)
            .map_err(|error| foreign(&path, vec![format!("not JSON: {error}")]))?;
        let is_quantized = quantization_config::take_config(&mut config);
        let is_quantized = is_quantized.map_err(|problems| foreign(&path, problems))?;
        let mut files = match is_quantized {
            true => Files::open_quantized(folder)?,
            false => Files::open(folder)?,
        };
        let size = bounds::Size {
            tensors: files.tensors.len(),
            elements: files.elements(),
        };
        let (plan, notes) = described(&path, &config, size)?;
        let mut pairs = files.matched(&plan, pairs(&plan))?;
        if plan.model.family == Family::Bert {
            pairs.extend(files.spare_pooler(&plan, &pairs));
        }
        Ok(Folder {
            plan,
            notes,
            tensors: Tensors::HuggingFace(files),
            pairs,
            adapter: None,
        })
    }

    /// Opens a GGUF file.
    pub(crate) fn open_gguf(file: &Path) -> Result<Folder> {
        let (tensors, config) = Gguf::open(file)?;
        let size = bounds::Size {
            tensors: tensors.count(),
            elements: tensors.elements(),
        };
        let (plan, notes) = described(file, &config, size)?;
        let pairs = pairs(&plan);
        tensors.expect(&plan, &pairs)?;
        Ok(Folder {
            plan,
            notes,
            tensors: Tensors::Gguf(tensors),
            pairs,
            adapter: None,
        })
    }

    /// Opens a Hugging Face folder or a GGUF file; `None` for what may be a checkpoint of ours.
    pub(crate) fn open_other(path: &Path) -> Result<Option<Folder>> {
        if path.is_file() && is_gguf(path) {
            return Folder::open_gguf(path).map(Some);
        }
        let is_foreign = is_hugging_face(path) && !path.join("state.json").is_file();
        is_foreign.then(|| Folder::open(path)).transpose()
    }

    /// Opens a Megatron checkpoint. If it does not state its model or vocabulary, those of the job's plan are used
    /// (the vocabulary only if it is known).
    pub(crate) fn open_megatron(folder: &Path, job: Option<(&Plan, bool)>) -> Result<Folder> {
        let found = megatron::find(folder).unwrap_or_else(|| folder.to_owned());
        let tensors = Megatron::open(&found)?;
        let rows = tensors.vocab();
        let of_job = job.and_then(|(plan, is_known)| is_known.then_some(plan.vocab));
        let fits = of_job.filter(|vocab| rows.is_some_and(|rows| *vocab <= rows));
        let vocab = |told: Option<usize>| told.or(fits).or(rows).unwrap_or(1);
        let plan = match (tensors.model()?, job) {
            (Some((model, told, length)), _) => plan_of(decoder(model, vocab(told), length), None),
            (None, Some((plan, _))) => {
                let model = plan.model.clone();
                plan_of(decoder(model, vocab(of_job), plan.seq_length), None)
            }
            (None, None) => {
                let line = "common.pt: found no args, want those of Megatron-LM, a config.json in Hugging Face's \
                            form beside it, or to be train.init_from of a job, whose [model] tells";
                return Err(foreign(&found, vec![line.into()]));
            }
        };
        let problems = plan.problems();
        if !problems.is_empty() {
            return Err(foreign(&found, problems));
        }
        let pairs = tensors.matched(&plan)?;
        Ok(Folder {
            plan,
            notes: Vec::new(),
            tensors: Tensors::Megatron(tensors),
            pairs,
            adapter: None,
        })
    }

    /// Whether the folder has one of our tensors.
    pub(crate) fn has(&self, spec: &Spec) -> bool {
        let mut own = self.pairs.iter().filter(|pair| pair.ours == spec.name);
        own.any(|pair| pair.dims == spec.dims)
    }

    /// Fills one of our tensors as a whole; padding is 0.
    pub(crate) fn fill(&mut self, spec: &Spec, out: &mut [f32]) -> Result<()> {
        let shape = self.plan.shape();
        out.fill(0.0);
        for pair in self.pairs.iter().filter(|pair| pair.ours == spec.name) {
            let mut theirs = match &mut self.tensors {
                Tensors::HuggingFace(files) => files.values(pair)?,
                Tensors::Megatron(tensors) => tensors.values(pair)?,
                Tensors::Gguf(tensors) => tensors.values(pair)?,
            };
            if let Some(adapter) = &mut self.adapter {
                adapter.add(pair, &mut theirs)?;
            }
            for (at, value) in pair.elements_of_ours(&shape).zip(theirs) {
                out[at] = value;
            }
        }
        Ok(())
    }
}

/// Reads parts of a folder's tensors. The tensor that was converted last is kept, because its parts are read one after the
/// other.
pub(crate) struct Converter {
    pub folder: Folder,
    name: String,
    values: Vec<f32>,
}

impl Converter {
    pub(crate) fn new(folder: Folder) -> Converter {
        Converter {
            folder,
            name: String::new(),
            values: Vec::new(),
        }
    }

    /// Elements of one of our tensors as a whole, from `first` on.
    pub(crate) fn read(&mut self, spec: &Spec, first: usize, out: &mut [f32]) -> Result<()> {
        if self.name != spec.name {
            self.name.clear();
            self.values.clear();
            self.values.resize(spec.dims.iter().product(), 0.0);
            self.folder.fill(spec, &mut self.values)?;
            self.name.clone_from(&spec.name);
        }
        out.copy_from_slice(&self.values[first..first + out.len()]);
        Ok(())
    }
}

/// The plan of a model with this `config.json` and tensors of this size, and ignored fields.
fn described(path: &Path, config: &Value, size: bounds::Size) -> Result<(Plan, Vec<String>)> {
    let mut read = config::from_json(config).map_err(|problems| foreign(path, problems))?;
    let excesses = bounds::excesses(bounds::Numbers::of_import(&read), size);
    if !excesses.is_empty() {
        let problems = excesses.iter().map(ToString::to_string);
        return Err(foreign(path, problems.collect()));
    }
    let notes = std::mem::take(&mut read.notes);
    let eod = config["eos_token_id"].as_u64();
    let plan = plan_of(read, eod.and_then(|id| u32::try_from(id).ok()));
    match plan.problems() {
        problems if problems.is_empty() => Ok((plan, notes)),
        problems => Err(foreign(path, problems)),
    }
}

fn decoder(model: ModelConfig, vocab: usize, seq_length: usize) -> Read {
    Read {
        model,
        vocab,
        seq_length,
        ..Read::default()
    }
}

fn plan_of(read: Read, eod: Option<u32>) -> Plan {
    let is_masked = read.model.architecture().is_masked && read.model.classify.is_none();
    Plan {
        model: read.model,
        parallel: ParallelConfig::default(),
        train: TrainConfig::default(),
        vocab: read.vocab,
        predictions: if is_masked { read.seq_length } else { 0 },
        seq_length: read.seq_length,
        decoder_length: read.decoder_length,
        start: read.start,
        eod,
        seed: 0,
        determinism: Determinism::Run,
        fingerprint: "imported".into(),
    }
}

/// A file with tensors.
enum Weights {
    Safetensors(Reader),
    Torch(TorchFile),
}

/// Location of a tensor.
struct Held {
    dims: Vec<usize>,
    /// Name in its file.
    name: String,
    /// Number of its file.
    file: usize,
}

/// The folder's files and which tensor is in which.
pub(crate) struct Files {
    folder: PathBuf,
    weights: Vec<Weights>,
    tensors: BTreeMap<String, Held>,
    /// Prefix of every tensor name in these files that the list of names does not have.
    prefix: &'static str,
    /// Formats that are read; tensors with scales are products with them.
    formats: &'static [&'static str],
}

/// Names of the file with all tensors and of the table of several files, by preference as transformers has it.
const KINDS: [(&str, &str); 2] = [
    (MODEL, "model.safetensors.index.json"),
    ("pytorch_model.bin", "pytorch_model.bin.index.json"),
];

/// Files of the first kind that the folder has.
fn files_in(folder: &Path) -> Result<BTreeSet<String>> {
    for (whole, index) in KINDS {
        let index = folder.join(index);
        if index.exists() {
            return files_of_index(&index);
        }
        if folder.join(whole).exists() {
            return Ok([whole.to_owned()].into());
        }
    }
    let wanted = KINDS.map(|(whole, index)| format!("{whole}, {index}"));
    Err(foreign(
        folder,
        vec![format!(
            "found no weights, want one of {}",
            wanted.join(", ")
        )],
    ))
}

fn files_of_index(index: &Path) -> Result<BTreeSet<String>> {
    let text = fs::read(index).at("read", index)?;
    let wrong = |found: String| foreign(index, vec![format!("weight_map: {found}")]);
    let value: Value =
        serde_json::from_slice(&text).map_err(|error| wrong(format!("not JSON: {error}")))?;
    let map = value["weight_map"].as_object();
    let map = map.ok_or_else(|| wrong("found nothing, want a table of files".into()))?;
    let names = map.values().map(|name| name.as_str().map(str::to_owned));
    let names: Option<BTreeSet<String>> = names.collect();
    let names = names.ok_or_else(|| wrong("found other things than names of files".into()))?;
    // a plain file name: in this folder and no other
    let is_plain = |name: &&String| Path::new(name).file_name() == Some(name.as_ref());
    match names.iter().find(|name| !is_plain(name)) {
        Some(name) => Err(wrong(format!("found {name:?}, want names of files here"))),
        None => Ok(names),
    }
}

/// The current transformers name of a tensor: the first BERT files use TensorFlow's names for norms.
fn modern(name: &str) -> String {
    for (old, new) in [
        ("LayerNorm.gamma", "LayerNorm.weight"),
        ("LayerNorm.beta", "LayerNorm.bias"),
    ] {
        if let Some(start) = name.strip_suffix(old) {
            return format!("{start}{new}");
        }
    }
    name.to_owned()
}

impl Files {
    pub(crate) fn open(folder: &Path) -> Result<Files> {
        Files::open_in(folder, &FORMATS)
    }

    /// Opens the files of a quantized model.
    pub(crate) fn open_quantized(folder: &Path) -> Result<Files> {
        Files::open_in(folder, &QUANTIZED)
    }

    fn open_in(folder: &Path, formats: &'static [&'static str]) -> Result<Files> {
        let mut files = Files {
            formats,
            folder: folder.to_owned(),
            weights: Vec::new(),
            tensors: BTreeMap::new(),
            prefix: "",
        };
        for file in files_in(folder)? {
            files.add(&folder.join(file))?;
        }
        // the first published GPT-2 files lack it
        if !files
            .tensors
            .keys()
            .any(|name| name.starts_with("transformer."))
        {
            files.prefix = "transformer.";
        }
        Ok(files)
    }

    fn add(&mut self, path: &Path) -> Result<()> {
        let file = self.weights.len();
        let mut hold = |name: &str, dims: &[usize]| {
            let (dims, name) = (dims.to_vec(), name.to_owned());
            let held = Held { dims, name, file };
            self.tensors.insert(modern(&held.name), held);
        };
        if path.extension().is_some_and(|kind| kind == "bin") {
            let torch = TorchFile::open(path)?;
            torch.entries().for_each(|(name, dims)| hold(name, dims));
            self.weights.push(Weights::Torch(torch));
        } else {
            let reader = Reader::open_any(path, self.formats)?;
            let entries = reader.entries();
            entries.for_each(|entry| hold(&entry.name, &entry.dims));
            self.weights.push(Weights::Safetensors(reader));
        }
        Ok(())
    }

    /// Number of tensors.
    pub(crate) fn count(&self) -> usize {
        self.tensors.len()
    }

    /// Refuses files whose tensors are not exactly these, apart from those that `is_passed_over` names.
    pub(crate) fn expect(
        &self,
        wanted: &[(String, Vec<usize>)],
        is_passed_over: &dyn Fn(&str) -> bool,
    ) -> Result<()> {
        let mut problems = Vec::new();
        let mut unused: BTreeSet<&String> = self.tensors.keys().collect();
        for (name, dims) in wanted {
            match self.tensors.get_key_value(name) {
                None => problems.push(format!("{name}: found nothing, want {dims:?}")),
                Some((key, held)) => {
                    unused.remove(key);
                    if held.dims != *dims {
                        let found = &held.dims;
                        problems.push(format!("{name}: found {found:?}, want {dims:?}"));
                    }
                }
            }
        }
        let unused = unused.into_iter().filter(|name| !is_passed_over(name));
        problems.extend(unused.map(|name| format!("{name}: found, want no such tensor")));
        match problems.is_empty() {
            true => Ok(()),
            false => Err(foreign(&self.folder, problems)),
        }
    }

    /// Numbers of a tensor, which has these dims.
    pub(crate) fn read(&mut self, name: &str, dims: &[usize]) -> Result<Vec<f32>> {
        self.values(&Pair::of(name.to_owned(), String::new(), dims))
    }

    /// Elements of all tensors together: no number of the model can be larger.
    pub(crate) fn elements(&self) -> usize {
        let counts = self.tensors.values();
        counts
            .map(|held| {
                held.dims
                    .iter()
                    .fold(1usize, |n, &dim| n.saturating_mul(dim))
            })
            .fold(0, usize::saturating_add)
    }

    fn name_of<'n>(&self, theirs: &'n str) -> &'n str {
        theirs.strip_prefix(self.prefix).unwrap_or(theirs)
    }

    /// The list of tensors, if those of the files are exactly these.
    fn matched(&mut self, plan: &Plan, mut pairs: Vec<Pair>) -> Result<Vec<Pair>> {
        // transformers 5 writes a head that equals the embedding as the embedding alone, scaled or not
        if plan.model.family == Family::T5 && !self.tensors.contains_key(HEAD) {
            let head = pairs.iter_mut().find(|pair| pair.theirs == HEAD);
            head.into_iter()
                .for_each(|head| head.theirs = "shared.weight".into());
        }
        let mut problems = Vec::new();
        let mut unused: BTreeSet<&String> = self.tensors.keys().collect();
        for pair in &pairs {
            let name = self.name_of(&pair.theirs);
            match self.tensors.get_key_value(name) {
                None => problems.push(format!("{name}: found nothing, want {:?}", pair.dims)),
                Some((key, held)) => {
                    unused.remove(key);
                    if held.dims != pair.dims {
                        let (found, wanted) = (&held.dims, &pair.dims);
                        problems.push(format!("{name}: found {found:?}, want {wanted:?}"));
                    }
                }
            }
        }
        let is_passed_over = |name: &str| {
            NOT_WEIGHTS.iter().any(|end| name.ends_with(end))
                || plan.model.family == Family::Bert
                    && OF_OTHER_HEADS.iter().any(|start| name.starts_with(start))
                || copies(plan).any(|copy| copy == name)
                || self.has_scales() && self.is_scale(name)
        };
        let unused = unused.into_iter().filter(|name| !is_passed_over(name));
        problems.extend(unused.map(|name| format!("{name}: found, want no such tensor")));
        if problems.is_empty() {
            self.check_copies(plan, &pairs)?;
            return Ok(pairs);
        }
        Err(Error::Foreign {
            path: self.folder.clone(),
            problems,
        })
    }

    /// The pooler of a file whose class has no use for it, for a run that starts a classification head from it.
    fn spare_pooler(&self, plan: &Plan, pairs: &[Pair]) -> Vec<Pair> {
        let own = bert::pooler(plan);
        let is_there = |pair: &Pair| {
            let held = self.tensors.get(&pair.theirs);
            held.is_some_and(|held| held.dims == pair.dims)
        };
        let is_used = pairs.iter().any(|pair| pair.ours == own[0].ours);
        if is_used || !own.iter().all(is_there) {
            return Vec::new();
        }
        own.into()
    }

    /// A second copy of a tied tensor must equal the embedding.
    fn check_copies(&mut self, plan: &Plan, pairs: &[Pair]) -> Result<()> {
        for name in copies(plan) {
            if !self.tensors.contains_key(name) {
                continue;
            }
            let table = self.values(&pairs[0])?;
            let mut copy = pairs[0].clone();
            copy.theirs = name.into();
            if self.values(&copy)? != table {
                let wanted = "want the tied embedding's";
                return Err(Error::Foreign {
                    path: self.folder.clone(),
                    problems: vec![format!("{name}: found other numbers, {wanted}")],
                });
            }
        }
        Ok(())
    }

    /// Numbers of a tensor that was matched.
    fn values(&mut self, pair: &Pair) -> Result<Vec<f32>> {
        let name = self.name_of(&pair.theirs);
        let held = self.tensors.get(name);
        let missing = || foreign(&self.folder, vec![format!("{name}: found nothing")]);
        let held = held.ok_or_else(missing)?;
        let mut values = match &mut self.weights[held.file] {
            Weights::Safetensors(reader) => {
                let mut values = vec![0.0; pair.elements()];
                reader.read_part(&held.name, &pair.dims, 0, &mut values)?;
                values
            }
            Weights::Torch(torch) => return torch.read(&held.name),
        };
        let scale = self.tensors.get(&format!("{name}{SCALE}"));
        if let Some(held) = scale.filter(|_| self.has_scales())
            && let Weights::Safetensors(reader) = &mut self.weights[held.file]
        {
            let count: usize = held.dims.iter().product();
            let mut scales = vec![0.0; count];
            reader.read_part(&held.name, &held.dims, 0, &mut scales)?;
            let columns = values.len() / count.max(1);
            for (row, scale) in values.chunks_mut(columns.max(1)).zip(scales) {
                row.iter_mut().for_each(|x| *x *= scale);
            }
        }
        Ok(values)
    }

    /// Whether the files are those of a quantized model.
    fn has_scales(&self) -> bool {
        self.formats.len() > FORMATS.len()
    }

    /// Whether a tensor holds the scales of another: one for each of its rows, or one.
    fn is_scale(&self, name: &str) -> bool {
        let of = name.strip_suffix(SCALE).and_then(|of| self.tensors.get(of));
        let (Some(of), Some(scale)) = (of, self.tensors.get(name)) else {
            return false;
        };
        let count: usize = scale.dims.iter().product();
        count == 1 || count == of.dims[0]
    }
}
