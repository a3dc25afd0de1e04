//! A checkpoint's model for evaluation and generation: whole on one rank, or split over tensor-parallel ranks.

use std::ops::Range;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use kernels::matmul::Op;
use kernels::{DType, Device, Isa, Tensor};

use crate::checkpoint::MODEL;
use crate::checkpoint::files::Tensors;
use crate::checkpoint::huggingface::import::{Converter, Folder};
use crate::checkpoint::newest::checkpoint_at;
use crate::checkpoint::read::{Opened, parts_of};
use crate::checkpoint::write_shards::first_element;
use crate::config::mtp::is_of_depth;
use crate::config::plan::{FEATURE_CHUNKS, Plan};
use crate::config::{Bf16Sums, LoraConfig, numbers};
use crate::data::documents::Documents;
use crate::dist::devices::{Devices, InferenceOptions};
use crate::dist::gpu_groups::GpuLinks;
use crate::dist::launch::cpu_path;
use crate::dist::mesh::{Groups, RankCoord, StageEdges};
use crate::dist::team::Team;
use crate::dist::world::World;
use crate::error::{Error, OnRank, Result};
use crate::model::context::{Context, SequenceShard, Weights};
use crate::model::fp8_delayed::Delayed;
use crate::model::param::{self, Spec, is_of_lora};
use crate::model::prepacked::{PrepackedWeights, ReadAs};
use crate::model::slots::Slots;
use crate::model::stage::Stage;
use crate::model::virtual_rows::VirtualRows;

/// A model, or a tensor-parallel rank's part of it, for inference.
pub(crate) struct Model {
    pub plan: Plan,
    pub stage: Stage,
    /// One element of a weight that is held as a packed copy alone, of adapters chosen by row, and of depths of multi-token
    /// prediction.
    pub weights: Vec<Tensor>,
    /// Prepacked copies of these weights, if products read them.
    pub packs: Option<PrepackedWeights>,
    pub groups: Groups,
    pub device: Device,
    /// Saved scales of fp8's `delayed` recipe.
    pub delayed: Option<Delayed>,
    /// Whether adapters are chosen by row: the layers have slots for them, and the weights nothing there.
    pub takes_adapters: bool,
}

impl Model {
    /// Opens a checkpoint, the newest of a folder of checkpoints, the file `ema.safetensors` of one, a Hugging Face
    /// folder or a GGUF file; splits it over `ranks` tensor-parallel ranks, each on a device of its own as far as there are enough.
    ///
    /// # Errors
    /// A damaged checkpoint or folder; a model that cannot be split so; `Device`; memory.
    pub(crate) fn open(path: &Path, on: InferenceOptions) -> Result<Team<Model>> {
        Source::find(path, on)?.split(on)
    }

    /// The same with slots for low-rank adapters of every linear layer, chosen by row.
    ///
    /// # Errors
    /// Those of `open`; a model that can have none, or has adapters or virtual tokens of its own.
    pub(crate) fn open_for_adapters(path: &Path, on: InferenceOptions) -> Result<Team<Model>> {
        Source::find(path, on)?.with_adapters()?.split(on)
    }

    /// Verifies and loads the weights of a checkpoint's folder, or the running averages of its file
    /// `ema.safetensors`. All weights are there as they are stored, beside their packed copies.
    pub(crate) fn load(checkpoint: &Path, devices: &Devices) -> Result<Model> {
        let source = Source {
            is_whole: true,
            ..Source::open(checkpoint, devices.whole())?
        };
        source.load(Groups::single(), &devices.open(0)?)
    }

    /// Replaces the encoder of virtual tokens, if there is one, by the rows that it makes: these never change here.
    fn encode_prompt(&mut self) -> Result<()> {
        let prompt = self.plan.model.prompt.as_mut();
        let Some(prompt) = prompt.filter(|prompt| prompt.encoder.is_some()) else {
            return Ok(());
        };
        let mut encoded = prompt.clone();
        encoded.encoder = None;
        let specs = param::specs(&self.plan);
        let rows = {
            let slots = Slots::on(&self.groups.place, &specs);
            let own = VirtualRows::named(&self.plan, &slots);
            let own = own.expect("the model has virtual tokens");
            own.all(&self.context(0..1, None))
        };
        let rows = rows.on_rank(self.rank(), "make virtual tokens")?;
        self.plan.model.prompt = Some(encoded);
        let kept = param::specs(&self.plan);
        let is_kept = |name: &str| kept.iter().any(|spec| spec.name == name);
        let all = specs.iter().zip(std::mem::take(&mut self.weights));
        let own = all.filter(|(spec, _)| is_kept(&spec.name));
        self.weights = own.map(|(_, weight)| weight).collect();
        let at = kept.iter().position(|spec| spec.name == param::PROMPT);
        self.weights[at.expect("the model has virtual tokens")] = rows;
        self.stage = Stage::of(&self.plan, &self.groups.place, 0, &kept);
        Ok(())
    }

    /// Number of this rank.
    pub(crate) fn rank(&self) -> usize {
        self.groups.place.rank()
    }

    /// For the tokens of sequences at `positions`.
    pub(crate) fn context<'a>(
        &'a self,
        positions: Range<usize>,
        documents: Option<&'a Documents>,
    ) -> Context<'a> {
        let cx = Context::of(
            &self.plan,
            Weights::All(&self.weights, self.packs.as_ref()),
            &self.groups,
        );
        let cx = cx.with_scales(self.delayed.as_ref(), false);
        Context {
            sequence: SequenceShard {
                time: positions.len(),
                first: positions.start,
                documents,
                ..cx.sequence
            },
            adapters: self.takes_adapters.then_some(&[]),
            ..cx
        }
    }

    /// Refuses a model with a classification head, which predicts no tokens.
    pub(crate) fn expect_vocabulary(&self) -> Result<()> {
        match self.plan.model.classify {
            None => Ok(()),
            Some(_) => Err(Error::Request {
                what: "model to ask for tokens",
                found: "one with a classification head".into(),
                wanted: "a language model: this one answers the task that it was trained for"
                    .into(),
            }),
        }
    }

    /// Refuses a model of the wrong kind (encoder-decoder or not).
    pub(crate) fn expect_pair(&self, is_pair: bool) -> Result<()> {
        let model = &self.plan.model;
        if model.architecture().is_encoder_decoder == is_pair {
            return Ok(());
        }
        let wanted = if is_pair {
            "an encoder and a decoder"
        } else {
            "one stack: `decoder_logits` is for two"
        };
        Err(Error::Request {
            what: "model to ask",
            found: format!("{:?}", model.family),
            wanted: wanted.into(),
        })
    }

    /// Document boundaries of one sequence, if the model uses them.
    pub(crate) fn documents(&self, tokens: &[u32]) -> Option<Documents> {
        let mut documents = Documents::of_text(&self.plan)?;
        documents.push(tokens, self.plan.eod, 0..tokens.len());
        Some(documents)
    }

    /// Token ids as a tensor, if the model knows them all.
    pub(crate) fn tokens(&self, tokens: &[u32]) -> Result<Tensor> {
        if let Some(token) = tokens
            .iter()
            .find(|&&token| token as usize >= self.plan.vocab)
        {
            let wanted = format!("below the vocabulary of {}", self.plan.vocab);
            return Err(Error::Request {
                what: "token",
                found: token.to_string(),
                wanted,
            });
        }
        self.rows_of(tokens)
    }

    /// Ids that are known, virtual ones among them, as a tensor.
    pub(crate) fn rows_of(&self, ids: &[u32]) -> Result<Tensor> {
        Tensor::from_u32(&[ids.len()], ids, &self.device).on_rank(0, "allocate tokens")
    }
}

/// A model whose weights are to be read.
struct Source {
    weights: Held,
    /// That of all ranks.
    plan: Plan,
    takes_adapters: bool,
    /// Whether all weights are there as they are stored, those beside that have packed copies and those that only training
    /// reads.
    is_whole: bool,
    /// As `InferenceOptions`.
    rounds_activations: bool,
}

/// Files of a model.
enum Held {
    /// A checkpoint and the name of its file of weights.
    Checkpoint(Box<Opened>, &'static str),
    /// Another program's, converted tensor by tensor.
    Foreign(Box<Mutex<Converter>>),
}

impl Source {
    /// Finds out what is there, and verifies a checkpoint.
    fn find(path: &Path, on: InferenceOptions) -> Result<Source> {
        if let Some(folder) = Folder::open_other(path)? {
            Source::foreign(folder, on)
        } else if path.is_file() {
            Source::open(path, on)
        } else {
            Source::open(&checkpoint_at(path)?.path, on)
        }
    }

    /// The model with slots for adapters, whose rank each adapter chooses.
    fn with_adapters(mut self) -> Result<Source> {
        let model = &mut self.plan.model;
        let found = match () {
            () if model.lora.is_some() => "one with adapters of its own".into(),
            () if model.prompt.is_some() => "one with virtual tokens of its own".into(),
            () if !model.can_be_adapted() => format!("{:?}", model.family),
            () => {
                model.lora = Some(LoraConfig {
                    rank: 1,
                    ..LoraConfig::default()
                });
                self.takes_adapters = true;
                return Ok(self);
            }
        };
        Err(Error::Request {
            what: "model beside adapters",
            found,
            wanted: "a decoder without adapters and virtual tokens".into(),
        })
    }

    /// Verifies a checkpoint.
    fn open(checkpoint: &Path, on: InferenceOptions) -> Result<Source> {
        let (folder, file) = parts_of(checkpoint);
        let opened = Opened::open(folder)?;
        if file != MODEL {
            opened.verify(file)?;
        }
        let plan = opened.plan_of_one_rank();
        Source::new(plan, Held::Checkpoint(Box::new(opened), file), on)
    }

    fn foreign(folder: Folder, on: InferenceOptions) -> Result<Source> {
        let plan = folder.plan.clone();
        let weights = Held::Foreign(Box::new(Mutex::new(Converter::new(folder))));
        Source::new(plan, weights, on)
    }

    fn new(plan: Plan, weights: Held, on: InferenceOptions) -> Result<Source> {
        let InferenceOptions {
            devices,
            ranks,
            precision,
            rounds_activations,
        } = on;
        let mut plan = match precision {
            None => numbers::with_sums_known_to(&plan, devices.units(Isa::Portable)),
            Some(precision) => {
                let units = devices.units(cpu_path()?.isa());
                let asked = numbers::in_precision(&plan, precision, units);
                with_sums_of_packs(asked, ranks)
            }
        };
        plan.parallel.tp = ranks;
        if rounds_activations && ranks > 1 {
            expect_whole_groups(&plan, ranks)?;
        }
        let problems = plan.problems();
        if ranks != 1 && !problems.is_empty() {
            return Err(Error::Request {
                what: "tensor-parallel ranks",
                found: ranks.to_string(),
                wanted: format!("a number that divides the model: {}", problems.join("; ")),
            });
        }
        Ok(Source {
            weights,
            plan,
            takes_adapters: false,
            is_whole: false,
            rounds_activations,
        })
    }

    /// Reads the parts of all ranks.
    fn split(&self, on: InferenceOptions) -> Result<Team<Model>> {
        let InferenceOptions { devices, ranks, .. } = on;
        if ranks == 1 {
            return Team::new(vec![self.load(Groups::single(), &devices.open(0)?)?]);
        }
        let world = World::alone().on(devices.clone());
        let sums = self.plan.sum_order();
        let links = GpuLinks {
            nccl: devices.nccl(sums)?,
            sums,
            watch: world.shared_watch(),
            // one stage
            edges: StageEdges::default(),
        };
        let groups = Groups::here(&self.plan.parallel, &world);
        let opened = (0..ranks).map(|rank| devices.open(rank));
        let opened: Vec<Device> = opened.collect::<Result<_>>()?;
        let parts = Team::new(groups.into_iter().zip(opened).collect())?;
        parts.map(|(groups, device)| {
            let rank = groups.place.rank();
            let connected = links.connect(groups, &device);
            let (groups, _) = connected.on_rank(rank, "connect the GPUs")?;
            self.load(groups, &device)
        })
    }

    /// Reads a rank's part.
    fn load(&self, groups: Groups, device: &Device) -> Result<Model> {
        let (plan, place) = (self.plan.clone(), groups.place);
        let all = param::specs(&plan);
        let mut delayed = Delayed::of(&plan, &all, &place);
        if let Held::Checkpoint(opened, _) = &self.weights {
            opened.restore_scales(&mut delayed);
        }
        let numbers = {
            let cx = Context::of(&plan, Weights::All(&[], None), &groups);
            cx.with_scales(delayed.as_ref(), false).numbers_of_packs()
        };
        let packs_of = |slots| {
            let packs = numbers.map(|numbers| PrepackedWeights::new(slots, numbers, device));
            packs.map(|packs| packs.with_rounded_rows(self.rounds_activations))
        };
        let mut packs = packs_of(all.len());
        let prompt = plan.model.prompt.as_ref();
        let has_encoder = prompt.is_some_and(|prompt| prompt.encoder.is_some());
        let replaced_by = packs.as_mut().filter(|_| !self.is_whole && !has_encoder);
        let weights = self.read(&all, &place, replaced_by, device)?;
        let stage = Stage::of(&plan, &place, 0, &all);
        let mut model = Model {
            packs: None,
            takes_adapters: self.takes_adapters,
            stage,
            weights,
            groups,
            device: device.clone(),
            delayed,
            plan,
        };
        model.encode_prompt()?;
        // the encoder is gone now, and with it its slots
        model.packs = match has_encoder {
            true => packs_of(model.weights.len()),
            false => packs,
        };
        Ok(model)
    }

    /// Reads a rank's tensors one by one. `packs`: holds copies of weights in place of these where nothing else is read.
    fn read(
        &self,
        specs: &[Spec],
        place: &RankCoord,
        mut packs: Option<&mut PrepackedWeights>,
        device: &Device,
    ) -> Result<Vec<Tensor>> {
        let is_read = |spec: &Spec| {
            let is_chosen_by_row = self.takes_adapters && is_of_lora(&spec.name);
            // depths of multi-token prediction predict in training alone
            let is_for_training = !self.is_whole && is_of_depth(&spec.name);
            !is_chosen_by_row && !is_for_training
        };
        let empty = |dims: &[usize]| {
            let made = Tensor::empty(dims, DType::F32, device);
            made.on_rank(place.rank(), "allocate weights")
        };
        let mut reader = self.reader()?;
        let mut weights = Vec::with_capacity(specs.len());
        for (slot, spec) in specs.iter().enumerate() {
            if !is_read(spec) {
                weights.push(empty(&[1])?);
                continue;
            }
            let mut weight = empty(&spec.local_dims(place.tp))?;
            let first = first_element(spec, place);
            let read = weight.view_mut().renew(|out| reader.read(spec, first, out));
            read.on_rank(place.rank(), "load weights")??;
            let read_as = ReadAs::alone(&self.plan, spec);
            weights.push(match (packs.as_deref_mut(), read_as) {
                (Some(packs), Some(read_as)) => {
                    let left = packs.replace(slot, weight, read_as);
                    left.on_rank(place.rank(), "pack weights")?
                }
                (Some(_), None) | (None, _) => weight,
            });
        }
        Ok(weights)
    }

    /// Opens the file of weights.
    fn reader(&self) -> Result<Reader<'_>> {
        Ok(match &self.weights {
            Held::Checkpoint(opened, file) => Reader::Checkpoint(opened.tensors(file)?),
            Held::Foreign(converter) => Reader::Foreign(converter),
        })
    }
}

/// Weights of a model, read one by one.
enum Reader<'a> {
    Checkpoint(Tensors),
    Foreign(&'a Mutex<Converter>),
}

impl Reader<'_> {
    /// Elements of a tensor from `first` on, as many as `out` has.
    fn read(&mut self, spec: &Spec, first: usize, out: &mut [f32]) -> Result<()> {
        match self {
            Reader::Checkpoint(tensors) => tensors.read_part(&spec.name, &spec.dims, first, out),
            Reader::Foreign(converter) => {
                // a panic elsewhere leaves no tensor half converted that has a name
                let mut converter = converter.lock().unwrap_or_else(PoisonError::into_inner);
                converter.read(spec, first, out)
            }
        }
    }
}

/// Refuses to split rows of activations inside of the groups in which they are rounded to 8 bits.
fn expect_whole_groups(plan: &Plan, ranks: usize) -> Result<()> {
    const GROUP: usize = 32;
    let is_cut = |spec: &&Spec| {
        let read_as = ReadAs::alone(plan, spec);
        let rows = spec.rows();
        read_as.is_some_and(|read_as| {
            read_as.op == Op::Plain && !(rows / FEATURE_CHUNKS).is_multiple_of(GROUP)
        })
    };
    match param::specs(plan).iter().find(is_cut) {
        None => Ok(()),
        Some(spec) => Err(Error::Request {
            what: "tensor-parallel ranks with activations in 8 bits",
            found: ranks.to_string(),
            wanted: format!(
                "1: an eighth of the {} inputs of {} is no multiple of {GROUP}",
                spec.rows(),
                spec.name
            ),
        }),
    }
}

/// The plan with sums whose products have packed copies of all weights: tiles have none of very long sums.
fn with_sums_of_packs(mut plan: Plan, ranks: usize) -> Plan {
    plan.parallel.tp = ranks;
    let place = RankCoord::of(0, &plan.parallel);
    let has_packs = |spec: &Spec| {
        let read_as = ReadAs::alone(&plan, spec);
        read_as.is_none_or(|read_as| read_as.packs_in_tiles(spec, &place))
    };
    if numbers::is_in_tiles(&plan) && !param::specs(&plan).iter().all(has_packs) {
        plan.train.bf16_sums = Bf16Sums::Pairs;
    }
    plan
}
