//! One optimizer step of one rank, in order: forward and backward of its micro-batches, sum over
//! data-parallel ranks, tied gradients, norm and clipping, AdamW, loss.

use index::Sampler;
use kernels::{DType, Device, Tensor, Use, add};

use crate::data::Samples;
use crate::error::{Error, OnRank, Result};
use crate::mesh::Groups;
use crate::model::param::Spec;
use crate::model::stage::Stage;
use crate::optim::adamw::{Moments, Store};
use crate::optim::clip;
use crate::parallel::pipeline::{Held, Trained, Worker};
use crate::parallel::routing::RoutingRecord;
use crate::parallel::shards::Shards;
use crate::parallel::sums::Sums;
use crate::parallel::zero::{Holding, Supply};
use crate::plan::Plan;

/// Everything one rank holds.
pub(crate) struct Trainer<'a> {
    pub plan: &'a Plan,
    /// Tensors of the whole model.
    pub specs: &'a [Spec],
    pub groups: Groups,
    pub device: Device,
    /// Which elements are here.
    pub holding: Holding,
    /// The rank's pieces of the model.
    pub stages: Vec<Stage>,
    /// In slot order; empty where weights are shared out.
    pub weights: Vec<Tensor>,
    /// Flat shards by local unit; empty where they are not.
    pub weight_shards: Vec<Tensor>,
    pub moments: Moments,
    sums: Sums,
    /// Of the last step.
    pub held: Held,
    pub routing: Option<RoutingRecord>,
}

/// Loss and gradient norm of a step, the same bits on every rank.
pub(crate) struct Outcome {
    /// Mean over tokens, nats.
    pub loss: f64,
    pub grad_norm: f64,
    /// What the routers of mixtures did, if there are any.
    pub routing: Option<RoutingRecord>,
}

impl<'a> Trainer<'a> {
    /// With initial weights.
    pub(crate) fn new(
        plan: &'a Plan,
        specs: &'a [Spec],
        groups: Groups,
        device: Device,
    ) -> Result<Trainer<'a>> {
        let (place, rank) = (groups.place, groups.place.rank());
        let holding = Holding::of(Shards::of(plan, specs), specs, &place);
        let chunks = 0..plan.parallel.virtual_stages;
        let stages: Vec<Stage> = chunks
            .map(|chunk| Stage::of(plan, &place, chunk, specs))
            .collect();
        let mut dims = holding.dims.clone();
        if plan.model.is_tied() && place.pp == 1 {
            dims.push(dims[0].clone());
        }
        let moments = Moments::zeros(&holding, &device.for_use(Use::Optimizer))
            .on_rank(rank, "allocate moments")?;
        let of = (&holding.shards, holding.local.as_slice());
        let sums = Sums::new(plan, &groups, of, (&stages, dims), &device);
        let mut trainer = Trainer {
            plan,
            specs,
            groups,
            device,
            holding,
            stages,
            weights: Vec::new(),
            weight_shards: Vec::new(),
            moments,
            sums,
            held: Held::default(),
            routing: None,
        };
        trainer.initialise().on_rank(rank, "initialise weights")?;
        Ok(trainer)
    }

    /// Unit by unit, so that sharded weights are never all whole.
    fn initialise(&mut self) -> kernels::Result<()> {
        let (place, seed) = (self.groups.place, self.plan.seed);
        let device = self.device.for_use(Use::Weights);
        for (index, local) in self.holding.local.iter().enumerate() {
            let unit = &self.holding.shards.units[local.unit];
            let specs = &self.specs[unit.specs.clone()];
            let whole = specs.iter().map(|spec| spec.initial(seed, &place, &device));
            let whole: Vec<Tensor> = whole.collect::<kernels::Result<_>>()?;
            if self.holding.has_weight_shards() {
                let held = self.holding.weights(index);
                let mut shard = Tensor::zeros(&[held.len().max(1)], DType::F32, &device)?;
                for piece in unit.pieces(held.clone()) {
                    let from = &whole[piece.spec - unit.specs.start].f32()[piece.local];
                    let at = piece.at - held.start;
                    shard.f32_mut()[at..at + from.len()].copy_from_slice(from);
                }
                self.weight_shards.push(shard);
            } else {
                self.weights.extend(whole);
            }
        }
        Ok(())
    }

    fn rank(&self) -> usize {
        self.groups.place.rank()
    }

    /// Step `step`, counted from 1.
    pub(crate) fn step(&mut self, samples: &dyn Samples, step: u64) -> Result<Outcome> {
        let (loss, gradients) = self.gradients(samples, step)?;
        let grad_norm = self.update(&gradients, step)?;
        Ok(Outcome {
            loss,
            grad_norm,
            routing: self.routing.take(),
        })
    }

    /// Loss of the step's batch and its gradient, summed over all ranks that share a weight: flat,
    /// by local unit, of the elements that this rank updates.
    pub(crate) fn gradients(
        &mut self,
        samples: &dyn Samples,
        step: u64,
    ) -> Result<(f64, Vec<Tensor>)> {
        let batch = self.plan.train.global_batch;
        let consumed = (step - 1) * batch as u64;
        let range = Sampler::new(samples.len(), batch as u64, consumed).next();
        let first = range
            .expect("the plan's steps fit the samples, checked before the first")
            .start;
        let worker = Worker {
            plan: self.plan,
            stages: &self.stages,
            groups: &self.groups,
            device: &self.device,
            supply: supply(
                (&self.weights, &self.weight_shards),
                &self.holding,
                &self.groups,
                &self.device,
            ),
        };
        let Trained {
            loss,
            held,
            routing,
        } = worker.train(samples, (first, step), &mut self.sums)?;
        (self.held, self.routing) = (held, routing);
        let gradients = self.sums.finish();
        let mut gradients = gradients.on_rank(self.rank(), "sum gradients over ranks")?;
        finite(step, "loss", loss)?;
        self.join_tied(&mut gradients)?;
        Ok((loss, gradients))
    }

    /// Clips and applies the gradient; returns its norm before clipping.
    pub(crate) fn update(&mut self, gradients: &[Tensor], step: u64) -> Result<f64> {
        let rank = self.rank();
        let grad_norm = clip::global_norm(self.specs, gradients, &self.holding, &self.groups)
            .on_rank(rank, "gradient norm")?;
        finite(step, "grad_norm", grad_norm)?;
        let factor = clip::factor(grad_norm, self.plan.train.clip_norm);
        let store = Store {
            whole: &mut self.weights,
            shards: &mut self.weight_shards,
        };
        let of = (&self.holding, self.specs);
        let at = (&self.plan.train, step, factor);
        self.moments.update(store, gradients, of, at);
        self.holding
            .gather_updated(&mut self.weights, &self.groups)
            .on_rank(rank, "gather updated weights")?;
        Ok(grad_norm)
    }

    /// Mean loss over the first `count` samples, the same bits on every rank and layout.
    pub(crate) fn evaluate(&self, samples: &dyn Samples, count: usize) -> Result<f64> {
        let worker = Worker {
            plan: self.plan,
            stages: &self.stages,
            groups: &self.groups,
            device: &self.device,
            supply: supply(
                (&self.weights, &self.weight_shards),
                &self.holding,
                &self.groups,
                &self.device,
            ),
        };
        worker.evaluate(samples, count)
    }

    /// The tied matrix's gradient is the head's plus the embedding's. They are apart until here, so
    /// that it is the same sum of two whatever stages they come from. The matrix is the first unit
    /// wherever it is.
    fn join_tied(&self, gradients: &mut Vec<Tensor>) -> Result<()> {
        let (place, rank) = (self.groups.place, self.rank());
        if !self.plan.model.is_tied() {
            return Ok(());
        }
        if place.pp == 1 {
            let head = gradients.pop().expect("a tied head has its own gradient");
            return add::add_into(&mut gradients[0], &head).on_rank(rank, "add tied gradients");
        }
        if !place.is_first_stage() && !place.is_last_stage() {
            return Ok(());
        }
        let other = place.on_stage(place.pp - 1 - place.pp_rank);
        let (mine, world) = (gradients[0].f32_mut(), &self.groups.world);
        let sent = world.send(other, mine);
        sent.on_rank(rank, "send tied gradients")?;
        let mut received = vec![0.0; mine.len()];
        let got = world.recv(other, &mut received);
        got.on_rank(rank, "receive tied gradients")?;
        for (sum, x) in mine.iter_mut().zip(&received) {
            *sum += x;
        }
        Ok(())
    }
}

fn supply<'a>(
    (weights, shards): (&'a [Tensor], &'a [Tensor]),
    holding: &'a Holding,
    groups: &'a Groups,
    device: &'a Device,
) -> Supply<'a> {
    if holding.has_weight_shards() {
        Supply::Shards {
            shards,
            holding,
            groups,
            device,
        }
    } else {
        Supply::Whole(weights)
    }
}

fn finite(step: u64, what: &'static str, value: f64) -> Result<()> {
    if value.is_finite() {
        Ok(())
    } else {
        Err(Error::NotFinite { step, what, value })
    }
}
