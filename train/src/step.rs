//! One optimizer step of one rank, in order: forward and backward of its micro-batches, sum over
//! data-parallel ranks, tied gradients, norm and clipping, AdamW, loss.

use index::Sampler;
use kernels::{Device, Tensor, add};

use crate::data::Samples;
use crate::error::{Error, OnRank, Result};
use crate::mesh::Groups;
use crate::model::gradients::Gradients;
use crate::model::param::Spec;
use crate::model::stage::Stage;
use crate::optim::adamw::Moments;
use crate::optim::clip;
use crate::parallel::data::GradientTree;
use crate::parallel::pipeline::Worker;
use crate::plan::Plan;

/// Everything one rank holds.
pub(crate) struct Trainer<'a> {
    pub plan: &'a Plan,
    /// Tensors of the whole model.
    pub specs: &'a [Spec],
    pub groups: Groups,
    pub device: Device,
    pub stage: Stage,
    /// In slot order, like the moments.
    pub weights: Vec<Tensor>,
    pub moments: Moments,
    pub tree: GradientTree,
}

/// Loss and gradient norm of a step, the same bits on every rank.
pub(crate) struct Outcome {
    /// Mean over tokens, nats.
    pub loss: f64,
    pub grad_norm: f64,
}

impl<'a> Trainer<'a> {
    /// With initial weights.
    pub(crate) fn new(
        plan: &'a Plan,
        specs: &'a [Spec],
        groups: Groups,
        device: Device,
    ) -> Result<Trainer<'a>> {
        let place = groups.place;
        let local = specs.iter().filter(|spec| spec.is_on(place.pp_rank));
        let weights = local
            .map(|spec| spec.initial(plan.seed, &place, &device))
            .collect::<kernels::Result<Vec<_>>>()
            .on_rank(place.rank(), "initialise weights")?;
        let moments = Moments::zeros(&weights, &device);
        let moments = moments.on_rank(place.rank(), "allocate moments")?;
        let stage = Stage::of(plan, &place, specs);
        let tree = GradientTree::new(stage.gradient_dims.clone(), plan.is_exact(), &device);
        Ok(Trainer {
            plan,
            specs,
            groups,
            device,
            stage,
            weights,
            moments,
            tree,
        })
    }

    fn rank(&self) -> usize {
        self.groups.place.rank()
    }

    /// Tensors this rank has a part of, in slot order.
    pub(crate) fn local_specs(&self) -> Vec<&'a Spec> {
        self.specs
            .iter()
            .filter(|spec| spec.is_on(self.groups.place.pp_rank))
            .collect()
    }

    /// Step `step`, counted from 1.
    pub(crate) fn step(&mut self, samples: &dyn Samples, step: u64) -> Result<Outcome> {
        let (loss, gradients) = self.gradients(samples, step)?;
        let grad_norm = self.update(&gradients, step)?;
        self.tree.recycle(gradients);
        Ok(Outcome { loss, grad_norm })
    }

    /// Loss of the step's batch and its gradient, summed over all ranks that share a weight. The
    /// first buffers are in the order of the weights.
    pub(crate) fn gradients(
        &mut self,
        samples: &dyn Samples,
        step: u64,
    ) -> Result<(f64, Gradients)> {
        let batch = self.plan.train.global_batch;
        let consumed = (step - 1) * batch as u64;
        let range = Sampler::new(samples.len(), batch as u64, consumed).next();
        let first = range
            .expect("the plan's steps fit the samples, checked before the first")
            .start;
        let worker = Worker {
            plan: self.plan,
            stage: &self.stage,
            groups: &self.groups,
            device: &self.device,
            weights: &self.weights,
        };
        let loss = worker.train(samples, first, &mut self.tree)?;
        finite(step, "loss", loss)?;
        let mut gradients = self
            .tree
            .finish(self.groups.dp.as_ref(), batch)
            .on_rank(self.rank(), "sum gradients over data-parallel ranks")?;
        self.join_tied(&mut gradients)?;
        Ok((loss, gradients))
    }

    /// Clips and applies the gradient; returns its norm before clipping.
    pub(crate) fn update(&mut self, gradients: &Gradients, step: u64) -> Result<f64> {
        let local = &gradients.tensors()[..self.weights.len()];
        let is_exact = self.plan.is_exact();
        let grad_norm = clip::global_norm(self.specs, local, &self.groups, is_exact)
            .on_rank(self.rank(), "gradient norm")?;
        finite(step, "grad_norm", grad_norm)?;
        let factor = clip::factor(grad_norm, self.plan.train.clip_norm);
        let (specs, at) = (self.local_specs(), (&self.plan.train, step, factor));
        self.moments.update(&mut self.weights, local, &specs, at);
        Ok(grad_norm)
    }

    /// Mean loss over the first `count` samples, the same bits on every rank and layout.
    pub(crate) fn evaluate(&self, samples: &dyn Samples, count: usize) -> Result<f64> {
        self.worker().evaluate(samples, count)
    }

    fn worker(&self) -> Worker<'_> {
        Worker {
            plan: self.plan,
            stage: &self.stage,
            groups: &self.groups,
            device: &self.device,
            weights: &self.weights,
        }
    }

    /// The tied matrix's gradient is the head's plus the embedding's. They are apart until here, so
    /// that it is the same sum of two whatever stages they come from.
    fn join_tied(&self, gradients: &mut Gradients) -> Result<()> {
        if !self.plan.model.is_tied() {
            return Ok(());
        }
        let (place, rank) = (self.groups.place, self.rank());
        let tensors = gradients.tensors_mut();
        if let (true, Some((embedding, head))) = (place.pp == 1, self.stage.tied) {
            let (embeddings, heads) = tensors.split_at_mut(head);
            return add::add_into(&mut embeddings[embedding], &heads[0])
                .on_rank(rank, "add tied gradients");
        }
        let (mine, other) = match self.stage.tied {
            Some((_, head)) => (head, 0),
            None if place.is_first_stage() => (0, place.pp - 1),
            None => return Ok(()),
        };
        let other = place.on_stage(other);
        let world = &self.groups.world;
        world
            .send(other, tensors[mine].f32())
            .on_rank(rank, "send tied gradients")?;
        let mut received = vec![0.0; tensors[mine].elements()];
        world
            .recv(other, &mut received)
            .on_rank(rank, "receive tied gradients")?;
        for (sum, x) in received.iter_mut().zip(tensors[mine].f32()) {
            *sum += x;
        }
        let embedding = self.stage.tied.map_or(0, |(embedding, _)| embedding);
        tensors[embedding].f32_mut().copy_from_slice(&received);
        Ok(())
    }
}

fn finite(step: u64, what: &'static str, value: f64) -> Result<()> {
    if value.is_finite() {
        Ok(())
    } else {
        Err(Error::NotFinite { step, what, value })
    }
}
