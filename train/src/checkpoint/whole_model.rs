//! A checkpoint's model for evaluation and generation: whole on one rank, or split over tensor-parallel ranks.

use std::ops::Range;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use kernels::{DType, Device, Isa, Tensor};

use crate::checkpoint::MODEL;
use crate::checkpoint::huggingface::import::{Converter, Folder};
use crate::checkpoint::newest::checkpoint_at;
use crate::checkpoint::read::{Opened, parts_of};
use crate::checkpoint::write_shards::first_element;
use crate::config::plan::Plan;
use crate::config::{LoraConfig, numbers};
use crate::data::documents::Documents;
use crate::data::virtual_tokens;
use crate::dist::devices::{Devices, TensorParallel};
use crate::dist::gpu_groups::GpuLinks;
use crate::dist::mesh::{Groups, StageEdges};
use crate::dist::team::Team;
use crate::dist::world::World;
use crate::error::{Error, OnRank, Result};
use crate::model::context::{Context, SequenceShard, Weights};
use crate::model::fp8_delayed::Delayed;
use crate::model::param::{self, Spec, is_of_lora};
use crate::model::prepacked::PrepackedWeights;
use crate::model::slots::Slots;
use crate::model::stage::Stage;
use crate::model::virtual_rows::VirtualRows;

/// A model, or a tensor-parallel rank's part of it, for inference.
pub(crate) struct Model {
    pub plan: Plan,
    pub stage: Stage,
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
    pub(crate) fn open(path: &Path, on: TensorParallel) -> Result<Team<Model>> {
        Source::find(path, on)?.split(on)
    }

    /// The same with slots for low-rank adapters of every linear layer, chosen by row.
    ///
    /// # Errors
    /// Those of `open`; a model that can have none, or has adapters or virtual tokens of its own.
    pub(crate) fn open_for_adapters(path: &Path, on: TensorParallel) -> Result<Team<Model>> {
        Source::find(path, on)?.with_adapters()?.split(on)
    }

    /// Verifies and loads the weights of a checkpoint's folder, or the running averages of its file
    /// `ema.safetensors`.
    pub(crate) fn load(checkpoint: &Path, devices: &Devices) -> Result<Model> {
        Source::open(checkpoint, devices.whole())?.load(Groups::single(), &devices.open(0)?)
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

    /// A text after the model's virtual tokens.
    pub(crate) fn prompted(&self, text: &[u32]) -> Vec<u32> {
        let before = virtual_tokens(self.plan.model.virtual_tokens());
        before.chain(text.iter().copied()).collect()
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
    fn find(path: &Path, on: TensorParallel) -> Result<Source> {
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
    fn open(checkpoint: &Path, on: TensorParallel) -> Result<Source> {
        let (folder, file) = parts_of(checkpoint);
        let opened = Opened::open(folder)?;
        if file != MODEL {
            opened.verify(file)?;
        }
        let plan = opened.plan_of_one_rank();
        Source::new(plan, Held::Checkpoint(Box::new(opened), file), on)
    }

    fn foreign(folder: Folder, on: TensorParallel) -> Result<Source> {
        let plan = folder.plan.clone();
        let weights = Held::Foreign(Box::new(Mutex::new(Converter::new(folder))));
        Source::new(plan, weights, on)
    }

    fn new(plan: Plan, weights: Held, on: TensorParallel) -> Result<Source> {
        let TensorParallel { devices, ranks } = on;
        let units = devices.units(Isa::Portable);
        let mut plan = numbers::with_sums_known_to(&plan, units);
        plan.parallel.tp = ranks;
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
        })
    }

    /// Reads the parts of all ranks.
    fn split(&self, on: TensorParallel) -> Result<Team<Model>> {
        let TensorParallel { devices, ranks } = on;
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
        let is_read = |spec: &Spec| !(self.takes_adapters && is_of_lora(&spec.name));
        let specs: Vec<Spec> = all.iter().filter(|spec| is_read(spec)).cloned().collect();
        let mut weights = specs
            .iter()
            .map(|spec| Tensor::empty(&spec.local_dims(place.tp), DType::F32, device))
            .collect::<kernels::Result<Vec<_>>>()
            .on_rank(place.rank(), "allocate weights")?;
        let stage = Stage::of(&plan, &place, 0, &all);
        let mut delayed = Delayed::of(&plan, &all, &place);
        match &self.weights {
            Held::Checkpoint(opened, file) => {
                opened.load_part(file, (&specs, &place), &mut weights)?;
                opened.restore_scales(&mut delayed);
            }
            Held::Foreign(converter) => {
                for (spec, weight) in specs.iter().zip(&mut weights) {
                    let first = first_element(spec, &place);
                    // a panic elsewhere leaves no tensor half converted that has a name
                    let mut converter = converter.lock().unwrap_or_else(PoisonError::into_inner);
                    let mut out = weight.view_mut();
                    let read = out.renew(|out| converter.read(spec, first, out));
                    read.on_rank(place.rank(), "load weights")??;
                }
            }
        }
        let mut read = weights.into_iter();
        let own = all.iter().map(|spec| match is_read(spec) {
            true => Ok(read.next().expect("a tensor for each that is read")),
            false => Tensor::empty(&[1], DType::F32, device),
        });
        let weights = own.collect::<kernels::Result<Vec<_>>>();
        let weights = weights.on_rank(place.rank(), "allocate weights")?;
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
        let numbers = model.context(0..1, None).numbers_of_packs();
        model.packs = numbers
            .map(|numbers| PrepackedWeights::new(model.weights.len(), numbers, &model.device));
        Ok(model)
    }
}
