//! Imports a Hugging Face folder as a checkpoint of step 0: `config.json` with `model.safetensors` or
//! `pytorch_model.bin` (or shards and their `.index.json`). 16-bit numbers are widened to f32; the optimizer's
//! state is zero. Fields and tensors that are missing, unknown or of another shape are refused by name, all at
//! once. Export followed by import gives the same bits.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use kernels::Device;
use serde_json::Value;

use crate::checkpoint::gguf::import::{Gguf, is_gguf};
use crate::checkpoint::huggingface::adapter_folder::{adapter_bases, is_adapter};
use crate::checkpoint::huggingface::config;
use crate::checkpoint::huggingface::deepseek;
use crate::checkpoint::huggingface::described::Read;
use crate::checkpoint::huggingface::files::{Files, foreign};
use crate::checkpoint::huggingface::names::pairs;
use crate::checkpoint::huggingface::pair::Pair;
use crate::checkpoint::huggingface::peft::Adapter;
use crate::checkpoint::huggingface::soft_prompt::{SoftPrompt, is_soft_prompt};
use crate::checkpoint::megatron::import as megatron;
use crate::checkpoint::megatron::import::Megatron;
use crate::checkpoint::quantized::scheme;
use crate::checkpoint::snapshot::Whole;
use crate::checkpoint::state::State;
use crate::checkpoint::train_state::TrainState;
use crate::checkpoint::write::write;
use crate::checkpoint::write_shards::Form;
use crate::checkpoint::{bounds, snapshot};
use crate::config::plan::Plan;
use crate::config::{Determinism, Family, ModelConfig, ParallelConfig, TrainConfig};
use crate::dist::launch::cpu_path;
use crate::dist::mesh::Groups;
use crate::error::{At, OnRank, Result};
use crate::model::param::{self, Spec};
use crate::optim::rank_state::{FrozenWeights, RankState};
use crate::parallel::shards::Shards;

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
    let on = (Arc::new(Groups::single()), device);
    let mut rank_state = RankState::new(&plan, &specs, on, FrozenWeights::Own)?;
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
    let pieces = snapshot::take(Whole::own(&rank_state)).on_rank(0, "copy weights")?;
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
    /// Adapters that are added to the tensors, in this order.
    adapters: Vec<Adapter>,
    /// The folder or file.
    path: PathBuf,
    /// Virtual tokens beside them.
    prompt: Option<SoftPrompt>,
}

enum Tensors {
    HuggingFace(Files),
    Megatron(Megatron),
    Gguf(Gguf),
}

impl Folder {
    /// Opens a Hugging Face folder, or a PEFT folder with the base model that it names, into which low-rank adapters are merged. The
    /// base may be a PEFT folder as well.
    pub(crate) fn open(folder: &Path) -> Result<Folder> {
        Folder::open_for(folder, 0)
    }

    /// Like `open` for a job whose model has so many depths of multi-token prediction.
    pub(crate) fn open_for(folder: &Path, depths: usize) -> Result<Folder> {
        let mut bases = adapter_bases(folder)?;
        let Some(whole) = bases.pop() else {
            return Folder::open_whole(folder, depths);
        };
        let mut opened = Folder::open_whole(&whole, depths)?;
        // the adapter that is beside the whole model first
        let others = bases.iter().rev().map(PathBuf::as_path);
        for adapter in others.chain([folder]) {
            if opened.prompt.is_some() {
                let line = "base_model_name_or_path: found virtual tokens, want a whole model or its adapters";
                return Err(foreign(adapter, vec![line.into()]));
            }
            if is_soft_prompt(adapter)? {
                opened.prompt = Some(SoftPrompt::open(adapter, &mut opened.plan)?);
            } else {
                let adapter = Adapter::open(adapter, &opened.pairs)?;
                opened.adapters.push(adapter);
            }
        }
        Ok(opened)
    }

    /// Opens a Hugging Face folder of a whole model.
    fn open_whole(folder: &Path, depths: usize) -> Result<Folder> {
        let path = folder.join("config.json");
        let text = fs::read(&path).at("read", &path)?;
        let mut config: Value = serde_json::from_slice(&text)
            .map_err(|error| foreign(&path, vec![format!("not JSON: {error}")]))?;
        if depths > 0 {
            deepseek::ask_for_depths(&mut config, depths);
        }
        let scheme = scheme::take(&mut config, folder);
        let scheme = scheme.map_err(|problems| foreign(&path, problems))?;
        let mut files = Files::open_in(folder, scheme)?;
        let size = bounds::Size {
            tensors: files.count(),
            elements: files.elements(),
        };
        let (plan, mut notes) = described(&path, &config, size)?;
        let further = deepseek::further_layers(&config);
        if !further.is_empty() {
            let layers = further.len();
            let count = files.pass_over(further);
            notes.push(format!(
                "{} = {layers}: {count} tensors of layers that predict further tokens are ignored",
                deepseek::FURTHER
            ));
        }
        let mut pairs = pairs(&plan);
        // a copy that is left out is no loss
        pairs.retain(|pair| !pair.is_copy() || files.has(&pair.theirs));
        let mut pairs = files.matched(&plan, pairs)?;
        if plan.model.family == Family::Bert {
            pairs.extend(files.spare_pooler(&plan, &pairs));
        }
        Ok(Folder {
            plan,
            notes,
            tensors: Tensors::HuggingFace(files),
            pairs,
            adapters: Vec::new(),
            path: folder.to_owned(),
            prompt: None,
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
            adapters: Vec::new(),
            path: file.to_owned(),
            prompt: None,
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

    /// Whether its weights have the bits that f32 gives them; `false` as well where that is not known.
    pub(crate) fn is_f32(&self) -> bool {
        match &self.tensors {
            Tensors::HuggingFace(files) => files.are_f32(),
            Tensors::Megatron(_) | Tensors::Gguf(_) => false,
        }
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
            (Some(told), _) => {
                let read = decoder(told.model, vocab(told.vocab), told.seq_length);
                let excesses = bounds::excesses(bounds::Numbers::of_import(&read), tensors.size()?);
                if !excesses.is_empty() {
                    let problems = excesses.iter().map(ToString::to_string);
                    return Err(foreign(&found, problems.collect()));
                }
                plan_of(read, None)
            }
            (None, Some((plan, _))) => {
                let model = ModelConfig {
                    mtp_num_layers: 0,
                    mtp_loss_scaling_factor: ModelConfig::default().mtp_loss_scaling_factor,
                    ..plan.model.clone()
                };
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
            adapters: Vec::new(),
            path: found,
            prompt: None,
        })
    }

    /// Names and dims of our tensors, or of their parts, that the folder has.
    pub(crate) fn tensors(&self) -> Vec<(String, Vec<usize>)> {
        let pairs = self.pairs.iter();
        let pairs = pairs.map(|pair| (pair.ours.clone(), pair.dims.clone()));
        let prompt = self.prompt.as_ref();
        let prompt = prompt.map(|prompt| (param::PROMPT.into(), prompt.dims().to_vec()));
        pairs.chain(prompt).collect()
    }

    /// Fills one of our tensors as a whole; padding is 0.
    pub(crate) fn fill(&mut self, spec: &Spec, out: &mut [f32]) -> Result<()> {
        if let (param::PROMPT, Some(prompt)) = (spec.name.as_str(), &mut self.prompt) {
            return prompt.read(out);
        }
        let shape = self.plan.shape();
        out.fill(0.0);
        for pair in self.pairs.iter().filter(|pair| pair.ours == spec.name) {
            let mut theirs = match &mut self.tensors {
                Tensors::HuggingFace(files) => files.values(pair)?,
                Tensors::Megatron(tensors) => tensors.values(pair)?,
                Tensors::Gguf(tensors) => tensors.values(pair)?,
            };
            for adapter in &mut self.adapters {
                adapter.add(pair, &mut theirs)?;
            }
            let mut both = pair.elements_of_ours(&shape).zip(theirs);
            if pair.is_copy() {
                if both.any(|(at, value)| out[at].to_bits() != value.to_bits()) {
                    let name = &pair.theirs;
                    let line = format!(
                        "{name}: found other numbers, want those of the model's own {}",
                        spec.name
                    );
                    return Err(foreign(&self.path, vec![line]));
                }
                continue;
            }
            for (at, value) in both {
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
    let mut plan = Plan {
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
        determinism: Determinism::Layout,
        fingerprint: "imported".into(),
    };
    // with a width or length that does not divide by eight, sums depend on the number of ranks
    if !plan.problems().is_empty() {
        plan.determinism = Determinism::Run;
    }
    plan
}
