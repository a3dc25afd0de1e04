//! Forward passes through one block at a time, with only that block's weights in memory.

use std::collections::BTreeMap;

use kernels::{DType, Device, Tensor};

use crate::calibrate::inputs::Inputs;
use crate::checkpoint::weight_source::WeightSource;
use crate::config::TrainConfig;
use crate::config::plan::Plan;
use crate::dist::launch::cpu_path;
use crate::dist::mesh::Groups;
use crate::error::{Error, OnRank, Result};
use crate::model::context::{Context, SequenceShard, Weights};
use crate::model::param::{self, Spec};
use crate::model::stage::Stage;

/// Gets the inputs of the linear layers of a block for a text.
type See<'a> = &'a mut dyn FnMut(&[Tensor]) -> kernels::Result<()>;

/// The rows of all texts before a block.
pub(super) struct Pass {
    plan: Plan,
    specs: Vec<Spec>,
    stage: Stage,
    groups: Groups,
    device: Device,
    /// Weights of the layer that runs, in slot order.
    weights: Vec<Option<Tensor>>,
    /// `[t, d]` of each text
    rows: Vec<Tensor>,
}

impl Pass {
    /// Rows after the embedding of texts as ids, in f32.
    pub(super) fn start(source: &mut WeightSource, texts: &[Vec<u32>]) -> Result<Pass> {
        let plan = Plan {
            train: TrainConfig::default(),
            ..source.plan.clone()
        };
        let specs = param::specs(&plan);
        let groups = Groups::single();
        let stage = Stage::of(&plan, &groups.place, 0, &specs);
        let mut pass = Pass {
            weights: specs.iter().map(|_| None).collect(),
            specs,
            stage,
            groups,
            device: Device::cpu_with(cpu_path()?.isa()),
            rows: Vec::new(),
            plan,
        };
        let mut own = BTreeMap::new();
        for spec in &pass.specs {
            if spec.name.starts_with("embedding.") || spec.name.starts_with("position.") {
                own.insert(spec.name.clone(), source.read(&spec.name)?.to_vec());
            }
        }
        pass.load(&own)?;
        for text in texts {
            let rows = pass.embed(text).on_rank(0, "embed calibration texts")?;
            pass.rows.push(rows);
        }
        Ok(pass)
    }

    /// Replaces the weights in memory by these of ours, by name.
    pub(super) fn load(&mut self, tensors: &BTreeMap<String, Vec<f32>>) -> Result<()> {
        for (slot, spec) in self.specs.iter().enumerate() {
            self.weights[slot] = None;
            if let Some(values) = tensors.get(&spec.name) {
                let tensor = Tensor::from_f32(&spec.dims, values, &self.device);
                self.weights[slot] = Some(tensor.on_rank(0, "allocate weights")?);
            }
        }
        Ok(())
    }

    fn context(&self, time: usize) -> Context<'_> {
        let cx = Context::of(&self.plan, Weights::Gathered(&self.weights), &self.groups);
        Context {
            sequence: SequenceShard {
                time,
                first: 0,
                documents: None,
                ..cx.sequence
            },
            ..cx
        }
    }

    fn embed(&self, text: &[u32]) -> kernels::Result<Tensor> {
        let ids = Tensor::from_u32(&[text.len()], text, &self.device)?;
        let segments = Tensor::zeros(&[text.len()], DType::U32, &self.device)?;
        let embedding = self.stage.embedding();
        let embedding = embedding.expect("the only stage is the first");
        let cx = self.context(text.len());
        Ok(embedding.forward((&ids, Some(&segments)), &cx)?.0)
    }

    /// Runs a block on the rows of each text: `see` gets the inputs of its linear layers, as the block computes them; without it the
    /// outputs become the rows.
    fn run(&mut self, block: usize, mut see: Option<See<'_>>) -> kernels::Result<()> {
        for text in 0..self.rows.len() {
            let x = self.rows[text].try_clone()?;
            let layer = self.stage.blocks().nth(block);
            let layer = layer.expect("the only stage has all blocks");
            let y = {
                let cx = self.context(self.rows[text].dims()[0]);
                let (y, saved) = layer.forward(x, &cx)?;
                if let Some(see) = &mut see
                    && let Some(inputs) = layer.linear_inputs(&saved, &cx)?
                {
                    see(&inputs)?;
                }
                y
            };
            if see.is_none() {
                self.rows[text] = y;
            }
        }
        Ok(())
    }

    /// Statistics of the inputs of a block's linear layers, whose weights are in memory.
    ///
    /// # Errors
    /// Inputs that are not finite; memory.
    pub(super) fn inputs(&mut self, block: usize, has_products: bool) -> Result<Vec<Inputs>> {
        let mut found: Vec<Inputs> = Vec::new();
        let mut see = |inputs: &[Tensor]| {
            if found.is_empty() {
                let new = inputs
                    .iter()
                    .map(|x| Inputs::new(x.dims()[1], has_products));
                found = new.collect();
            }
            let mut both = found.iter_mut().zip(inputs);
            both.try_for_each(|(own, x)| own.add(x))
        };
        let run = self.run(block, Some(&mut see));
        run.on_rank(0, "run calibration texts")?;
        match found.iter().all(Inputs::are_finite) {
            true => Ok(found),
            false => Err(Error::Request {
                what: "inputs of linear layers",
                found: format!("numbers that are not finite in block {block}"),
                wanted: "a model whose activations are finite on these texts".into(),
            }),
        }
    }

    /// Moves the rows through a block, whose weights are in memory.
    pub(super) fn step(&mut self, block: usize) -> Result<()> {
        let run = self.run(block, None);
        run.on_rank(0, "run calibration texts")
    }

    /// The device that computes.
    pub(super) fn device(&self) -> &Device {
        &self.device
    }
}
