//! A checkpoint's whole model on one rank, for evaluation and generation.

use std::ops::Range;
use std::path::Path;

use kernels::{DType, Device, Isa, Tensor};

use crate::checkpoint::MODEL;
use crate::checkpoint::huggingface::import::import_hf;
use crate::checkpoint::newest::checkpoint_at;
use crate::checkpoint::read::{Opened, parts_of};
use crate::config::numbers;
use crate::config::plan::Plan;
use crate::data::documents::Documents;
use crate::dist::devices::Devices;
use crate::dist::mesh::Groups;
use crate::error::{At, Error, OnRank, Result};
use crate::model::context::{Context, SequenceShard, Weights};
use crate::model::fp8_delayed::Delayed;
use crate::model::param::{self, Spec};
use crate::model::prepacked::PrepackedWeights;
use crate::model::stage::Stage;

/// A whole model on one rank, for inference.
pub(crate) struct Model {
    pub plan: Plan,
    pub specs: Vec<Spec>,
    pub stage: Stage,
    pub weights: Vec<Tensor>,
    /// Prepacked copies of these weights, if products read them.
    pub packs: Option<PrepackedWeights>,
    pub groups: Groups,
    pub device: Device,
    /// Saved scales of fp8's `delayed` recipe.
    pub delayed: Option<Delayed>,
}

impl Model {
    /// Opens a checkpoint, the newest of a folder of checkpoints, the file `ema.safetensors` of one, or a Hugging Face
    /// folder, whose weights are first converted into a temporary folder.
    pub(crate) fn open(path: &Path, devices: &Devices) -> Result<Model> {
        let is_foreign = path.join("config.json").is_file() && !path.join("state.json").is_file();
        if is_foreign {
            let folder = tempfile::tempdir().at("make a folder in", &std::env::temp_dir())?;
            let imported = import_hf(path, folder.path())?;
            Model::load(&imported.checkpoint, devices)
        } else if path.is_file() {
            Model::load(path, devices)
        } else {
            Model::load(&checkpoint_at(path)?.path, devices)
        }
    }

    /// Verifies and loads the weights of a checkpoint's folder, or the running averages of its file
    /// `ema.safetensors`.
    pub(crate) fn load(checkpoint: &Path, devices: &Devices) -> Result<Model> {
        let (folder, file) = parts_of(checkpoint);
        let opened = Opened::open(folder)?;
        if file != MODEL {
            opened.verify(file)?;
        }
        let units = devices.units(Isa::Portable);
        let plan = numbers::with_sums_known_to(&opened.plan_of_one_rank(), units);
        let device = devices.open(0)?;
        let (groups, specs) = (Groups::single(), param::specs(&plan));
        let mut weights = specs
            .iter()
            .map(|spec| Tensor::empty(&spec.dims, DType::F32, &device))
            .collect::<kernels::Result<Vec<_>>>()
            .on_rank(0, "allocate weights")?;
        opened.load_whole(file, &specs, &mut weights)?;
        let stage = Stage::of(&plan, &groups.place, 0, &specs);
        let mut delayed = Delayed::of(&plan, &specs, &groups.place);
        opened.restore_scales(&mut delayed);
        let mut model = Model {
            specs,
            packs: None,
            stage,
            weights,
            groups,
            device,
            delayed,
            plan,
        };
        let numbers = model.context(0..1, None).numbers_of_packs();
        model.packs = numbers
            .map(|numbers| PrepackedWeights::new(model.weights.len(), numbers, &model.device));
        Ok(model)
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
            ..cx
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
        let mut documents = Documents::asked_for(&self.plan)?;
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
        Tensor::from_u32(&[tokens.len()], tokens, &self.device).on_rank(0, "allocate tokens")
    }
}
