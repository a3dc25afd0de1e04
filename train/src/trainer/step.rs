//! One optimizer step of one rank, in order: forward and backward of its micro-batches, sum over
//! data-parallel ranks, then over uses of a tensor, norm, whether the step is good, clipping, AdamW.
//!
//! Several trainings that differ in their adapters alone share one pass of forward and backward over the frozen weights,
//! which the first of them has; all after it is done for each by itself.

use std::borrow::Cow;
use std::sync::Arc;

use index::sampler::Sampler;
use kernels::comm::tensors;
use kernels::matmul::Numbers;
use kernels::{DType, Device, Tensor, add, download_words, reduce, rows};

use crate::checkpoint::train_state::StepStatus;
use crate::config::OptimizerKind;
use crate::config::exact::narrow;
use crate::config::plan::Plan;
use crate::config::precision::Precision;
use crate::data::Samples;
use crate::data::micro_batches::micro_batches;
use crate::dist::mesh::Groups;
use crate::error::{OnRank, Result};
use crate::model::fp8_delayed::Delayed;
use crate::model::param::Spec;
use crate::model::prepacked::{self, PrepackedWeights};
use crate::model::slots::Slots;
use crate::model::stage::Stage;
use crate::optim::adamw::Store;
use crate::optim::loss_scale::LossScale;
use crate::optim::muon::Here;
use crate::optim::next_step::{GoodStep, Next, Update};
use crate::optim::rank_state::{FrozenWeights, RankState};
use crate::optim::{average, clip, guard, router_bias};
use crate::parallel::gradient_reducer::GradientReducer;
use crate::parallel::losses::{Losses, Means, PreferenceRecord};
use crate::parallel::offload::Scratch;
use crate::parallel::pipeline::{Evaluated, Held, StepStart, Trained, Turn, Worker, train};
use crate::parallel::routing::{Reports, RoutingRecord, StepRouting};
use crate::parallel::zero::Parameters;
use crate::profile;

/// One rank's trainer.
pub(crate) struct Trainer<'a> {
    /// Weights and the optimizer's state.
    pub state: RankState<'a>,
    /// The rank's model chunks.
    pub stages: Vec<Stage>,
    sums: GradientReducer,
    /// Offloaded activations, if any.
    scratch: Option<Scratch>,
    /// Bytes held in the last step.
    pub held: Held,
    /// Mean square of ln sum exp of the last step's logits.
    squares: f64,
    /// Reports of the step's routers, until they are read.
    reports: Reports,
    /// Routing statistics of the last step, for mixtures.
    pub routing: Option<StepRouting>,
    /// Means over the preference pairs of the last step.
    preference: Option<PreferenceRecord>,
    /// Losses of the depths of multi-token prediction in the last step.
    pub further: Vec<f64>,
}

/// The figures by which a step is judged.
pub(crate) struct Measured {
    /// Mean over tokens, nats.
    pub loss: f64,
    /// Before clipping.
    pub grad_norm: f64,
}

/// Loss and gradient norm of a step, the same bits on every rank.
pub(crate) struct Outcome {
    /// Mean over tokens, nats.
    pub loss: f64,
    /// Before clipping.
    pub grad_norm: f64,
    /// The z-loss, if there is one.
    pub z_loss: Option<f64>,
    /// Mean loss of each depth of multi-token prediction, nats, before its factor.
    pub mtp_losses: Vec<f64>,
    /// Why the step is a bad one, if it is: the weights are as they were before.
    pub bad: Option<String>,
    /// True if the gradient overflowed, possibly because of the loss scale: the weights are as
    /// they were before.
    pub is_overflow: bool,
    /// Statistics of the mixtures' routers, if there are any.
    pub routing: Option<RoutingRecord>,
    /// Means over preference pairs, if it learns from such.
    pub preference: Option<PreferenceRecord>,
}

impl Outcome {
    pub(crate) fn status(&self) -> StepStatus {
        if self.is_overflow {
            StepStatus::Overflow
        } else if self.bad.is_some() {
            StepStatus::Bad
        } else {
            StepStatus::Done
        }
    }
}

/// A step that a training has to do.
#[derive(Clone, Copy)]
pub(crate) struct Asked<'a> {
    pub samples: &'a dyn Samples,
    pub next: &'a Next,
    /// The good steps before.
    pub recent: &'a [GoodStep],
}

/// One step of those trainings of a rank that have one to do, in one pass. The first of them lends the frozen weights to the
/// others.
pub(crate) fn step_together(
    trainers: &mut [Trainer<'_>],
    asked: &[Option<Asked<'_>>],
) -> Result<Vec<Option<Outcome>>> {
    let number = asked.iter().flatten().map(|asked| asked.next.step);
    let _span = profile::numbered("step", number.max().unwrap_or(0));
    for (trainer, asked) in trainers.iter_mut().zip(asked) {
        if let Some(asked) = asked {
            trainer.begin(asked.next)?;
        }
    }
    let mut trained = pass(trainers, asked)?.into_iter();
    let mut outcomes = Vec::new();
    for (trainer, asked) in trainers.iter_mut().zip(asked) {
        let outcome = match asked {
            Some(asked) => {
                let trained = trained.next().expect("a pass for each that is asked");
                Some(trainer.finish(trained, asked)?)
            }
            None => None,
        };
        outcomes.push(outcome);
    }
    Ok(outcomes)
}

/// The forward and backward passes of a step.
fn pass(trainers: &mut [Trainer<'_>], asked: &[Option<Asked<'_>>]) -> Result<Vec<Trained>> {
    let Some(Trainer { state: first, .. }) = trainers.first() else {
        return Ok(Vec::new());
    };
    let place = &first.groups.place;
    let all = trainers.iter().zip(asked);
    let passes = all.filter(|(_, asked)| asked.is_some());
    let passes = passes.map(|(trainer, _)| micro_batches(&trainer.state.plan, place).len());
    let packs = packs(first, passes.sum());
    let mut parts: Vec<Parts<'_>> = trainers.iter_mut().map(Trainer::parts).collect();
    let lender = parts[0].state;
    let weights: Vec<Vec<&Tensor>> = (parts.iter())
        .map(|part| part.state.with_borrowed(lender.kept()))
        .collect();
    let mut turns = Vec::new();
    for ((part, asked), weights) in parts.iter_mut().zip(asked).zip(&weights) {
        let Some(asked) = asked else { continue };
        let next = asked.next;
        let range = Sampler::new(asked.samples.len(), next.batch as u64, next.first).next();
        let range = range.expect("the plan's steps fit the samples, checked before the first");
        turns.push(Turn {
            worker: Worker {
                plan: &part.state.plan,
                stages: part.stages,
                groups: &part.state.groups,
                device: &part.state.device,
                loss_scale: next.loss_scale,
                scratch: part.scratch,
                delayed: part.state.delayed.as_ref(),
                parameters: parameters(part.state, weights, packs.as_ref()),
            },
            samples: asked.samples,
            start: StepStart {
                step: next.step,
                first: range.start,
            },
            sums: &mut *part.sums,
        });
    }
    let mut trained = train(&mut turns)?;
    let packed = packs.as_ref().map_or(0, PrepackedWeights::bytes);
    (trained.iter_mut()).for_each(|trained| trained.held.packs = packed);
    Ok(trained)
}

/// A trainer during a pass.
struct Parts<'t> {
    state: &'t RankState<'t>,
    stages: &'t [Stage],
    sums: &'t mut GradientReducer,
    scratch: Option<&'t Scratch>,
}

impl<'a> Trainer<'a> {
    /// With initial weights, without those that it borrows.
    pub(crate) fn with(
        plan: &'a Plan,
        specs: &'a [Spec],
        (groups, device): (Arc<Groups>, Device),
        frozen: FrozenWeights,
    ) -> Result<Trainer<'a>> {
        let (place, rank) = (groups.place, groups.place.rank());
        let state = RankState::new(plan, specs, (groups, device), frozen)?;
        let chunks = 0..plan.parallel.virtual_stages;
        let stages: Vec<Stage> = chunks
            .map(|chunk| Stage::of(plan, &place, chunk, specs))
            .collect();
        let sums = reducer(&state, &stages);
        Ok(Trainer {
            state,
            stages,
            sums,
            scratch: Scratch::of(&plan.train.offload, rank)?,
            held: Held::default(),
            squares: 0.0,
            reports: Reports::default(),
            routing: None,
            preference: None,
            further: Vec::new(),
        })
    }

    fn parts(&mut self) -> Parts<'_> {
        let Trainer {
            state,
            stages,
            sums,
            scratch,
            ..
        } = self;
        Parts {
            state,
            stages,
            sums,
            scratch: scratch.as_ref(),
        }
    }

    /// The rest of a step after its passes.
    fn finish(&mut self, trained: Trained, asked: &Asked<'_>) -> Result<Outcome> {
        let Asked { next, recent, .. } = *asked;
        let (losses, gradients) = self.summed(trained, next)?;
        let Measured { loss, grad_norm } = self.measure(&losses, &gradients)?;
        drop(losses);
        let z = self.state.plan.train.z_loss;
        let config = &self.state.plan.train;
        // a non-finite loss has not been scaled yet, and a gradient that overflows at the least scale cannot be
        // helped
        let is_overflow = config.precision == Precision::Fp16
            && loss.is_finite()
            && !grad_norm.is_finite()
            && !LossScale::is_least(&config.loss_scale, next.loss_scale);
        let bad = if is_overflow {
            None
        } else {
            guard::judge(&config.on_bad_step, recent, loss, grad_norm)
        };
        if bad.is_none() && !is_overflow {
            self.update(&gradients, grad_norm, next)?;
            if let Some(delayed) = &mut self.state.delayed {
                let followed = delayed.follow(self.state.groups.world.as_ref());
                followed.on_rank(self.state.groups.place.rank(), "follow the scales of fp8")?;
            }
        }
        Ok(Outcome {
            loss,
            grad_norm,
            z_loss: (z > 0.0).then_some(z * self.squares),
            mtp_losses: std::mem::take(&mut self.further),
            bad,
            is_overflow,
            routing: self.routing.take().map(|routing| routing.record),
            preference: self.preference,
        })
    }

    /// Prepares a step's passes.
    fn begin(&mut self, next: &Next) -> Result<()> {
        if self.state.plan.train.global_batch != next.batch {
            // a growing batch: everything that depends on its size is rebuilt
            self.state.plan.to_mut().train.global_batch = next.batch;
            self.sums = reducer(&self.state, &self.stages);
        }
        let rank = self.state.rank();
        if let Some(delayed) = &mut self.state.delayed {
            let begun = delayed.begin(&self.state.device);
            begun.on_rank(rank, "begin the amax of fp8")?;
        }
        Ok(())
    }

    /// Losses of this rank's part of the step's batch and the batch's gradient, summed over all ranks that share a
    /// weight: flat, by local unit, of the elements that this rank updates. Both stay on the device.
    fn summed(&mut self, trained: Trained, next: &Next) -> Result<(Losses, Vec<Tensor>)> {
        let Trained {
            losses,
            held,
            reports,
        } = trained;
        self.held = held;
        self.reports = reports;
        let _span = profile::phase("last sums of gradients");
        let gradients = self.sums.finish();
        let mut gradients = gradients.on_rank(self.state.rank(), "sum gradients over ranks")?;
        self.join_uses(&mut gradients)?;
        if next.loss_scale != 1.0 {
            let factor = narrow(1.0 / next.loss_scale);
            for sum in &mut gradients {
                let scaled = rows::scale(sum.view_mut(), factor);
                scaled.on_rank(self.state.rank(), "undo the loss scale")?;
            }
        }
        Ok((losses, gradients))
    }

    /// Mean loss of the batch and norm of the whole gradient, the same bits on every rank. The one wait of a step for
    /// the device: everything that the host has to know comes in one download.
    fn measure(&mut self, losses: &Losses, gradients: &[Tensor]) -> Result<Measured> {
        let _span = profile::phase("gradient norm");
        let amax = self.state.delayed.as_mut().and_then(Delayed::end);
        let (state, rank) = (&self.state, self.state.rank());
        let place = &state.groups.place;
        let squares = clip::squares(state.specs, gradients, &state.local_shards, place);
        let squares = squares.on_rank(rank, "gradient norm")?;
        let mut status = losses.tensors();
        status.extend(&squares);
        let squares = status.len();
        let reports = std::mem::take(&mut self.reports);
        let of_reports = reports.tensors();
        let reported = of_reports.len();
        status.extend(of_reports);
        status.extend(&amax);
        let words = download_words(&status).on_rank(rank, "read the step's status")?;
        let (words, rest) = words.split_at(squares);
        let (of_reports, of_amax) = rest.split_at(reported);
        let (of_losses, of_squares) = words.split_at(losses.tensors().len());
        let routing = state.plan.model.moe.as_ref().map(|moe| {
            let world = state.groups.world.as_ref();
            reports.gather(of_reports, moe.experts, place, world)
        });
        let routing = routing.transpose();
        let routing = routing.on_rank(rank, "gather the routers' statistics")?;
        let means = losses.means(of_losses, (&state.plan, &state.groups));
        let Means {
            loss,
            squares,
            further,
            preference,
        } = means.on_rank(rank, "gather losses")?;
        let mine: Vec<f64> = (of_squares.iter())
            .flat_map(|words| reduce::numbers(words))
            .collect();
        let norm = clip::global_norm(state.specs, &mine, &state.local_shards, &state.groups);
        let grad_norm = norm.on_rank(rank, "gradient norm")?;
        (self.squares, self.routing, self.preference) = (squares, routing, preference);
        self.further = further;
        if let (Some(delayed), Some(words)) = (&mut self.state.delayed, of_amax.first()) {
            delayed.observed(words);
        }
        Ok(Measured { loss, grad_norm })
    }

    /// Clips the gradient, whose norm is `grad_norm`, and applies it.
    pub(crate) fn update(
        &mut self,
        gradients: &[Tensor],
        grad_norm: f64,
        next: &Next,
    ) -> Result<()> {
        let _span = profile::phase("optimizer");
        let factor = clip::factor(grad_norm, self.state.plan.train.clip_norm);
        let mut store = Store {
            whole: &mut self.state.weights,
            shards: &mut self.state.weight_shards,
        };
        let of = (&self.state.local_shards, self.state.specs);
        let update = Update {
            config: &self.state.plan.train,
            next,
            factor,
        };
        let rank = self.state.groups.place.rank();
        let updated = self.state.moments.update(&mut store, gradients, of, update);
        updated.on_rank(rank, "AdamW")?;
        if self.state.plan.train.optimizer == OptimizerKind::Muon {
            let here = Here {
                specs: self.state.specs,
                local_shards: &self.state.local_shards,
                groups: &self.state.groups,
                device: &self.state.device,
            };
            here.update(&mut self.state.moments.m, &mut store, gradients, update)
                .on_rank(rank, "Muon")?;
        }
        if let (Some(moe), Some(routing)) = (&self.state.plan.model.moe, &self.routing) {
            let of = (&self.state.local_shards, self.state.specs);
            router_bias::update(&mut store, of, &routing.loads, moe.bias_update_rate)
                .on_rank(rank, "selection biases")?;
        }
        let decay = self.state.plan.train.ema_decay;
        average::follow(
            &mut self.state.averages,
            &mut store,
            &self.state.local_shards,
            decay,
        )
        .on_rank(rank, "average weights")?;
        self.state
            .local_shards
            .gather_updated(&mut self.state.weights, &self.state.groups)
            .on_rank(rank, "gather updated weights")
    }

    /// Mean loss over the first `count` samples, and accuracy if the model classifies, the same bits on every rank and
    /// layout. `lent`: weights that are borrowed.
    pub(crate) fn evaluate(
        &self,
        samples: &dyn Samples,
        count: usize,
        lent: &[Tensor],
    ) -> Result<Evaluated> {
        self.forward_only(lent, |worker| worker.evaluate(samples, count))
    }

    /// Log-probabilities of the answers of the pairs of all samples, which hold each pair once; the same bits on every rank
    /// and layout.
    pub(crate) fn log_probabilities(
        &self,
        samples: &dyn Samples,
        lent: &[Tensor],
    ) -> Result<Vec<[f64; 2]>> {
        self.forward_only(lent, |worker| worker.log_probabilities(samples))
    }

    fn forward_only<T>(
        &self,
        lent: &[Tensor],
        run: impl FnOnce(&Worker<'_>) -> Result<T>,
    ) -> Result<T> {
        let (state, place) = (&self.state, &self.state.groups.place);
        let packs = packs(state, micro_batches(&state.plan, place).len());
        let kept = state.with_borrowed(lent);
        let parameters = parameters(state, &kept, packs.as_ref());
        let worker = Worker {
            plan: &self.state.plan,
            stages: &self.stages,
            groups: &self.state.groups,
            device: &self.state.device,
            loss_scale: 1.0,
            scratch: None,
            delayed: self.state.delayed.as_ref(),
            parameters,
        };
        run(&worker)
    }

    /// Adds up the gradients of tensors that are used more than once, as a tied embedding is, over the stages that
    /// have them. They are kept separate until here, so that every layout adds the uses in the same order.
    fn join_uses(&self, gradients: &mut Vec<Tensor>) -> Result<()> {
        let (place, rank) = (self.state.groups.place, self.state.rank());
        let slots = Slots::on(&place, self.state.specs);
        let mut further = gradients
            .split_off(self.state.local_shards.local.len())
            .into_iter();
        for (local, sum) in self.state.local_shards.local.iter().zip(gradients) {
            let spec = slots.specs()[local.slots.start];
            let stages: Vec<usize> = spec.uses.iter().map(|piece| piece % place.pp).collect();
            if stages.len() == 1 {
                continue;
            }
            let here = stages.iter().filter(|&&stage| stage == place.pp_rank);
            if spec.is_frozen {
                further.by_ref().take(here.count() - 1).for_each(drop);
                continue;
            }
            if here.clone().count() == stages.len() {
                for next in further.by_ref().take(stages.len() - 1) {
                    let added = add::add_into(sum, &next);
                    added.on_rank(rank, "add gradients of a shared tensor")?;
                }
                continue;
            }
            let mine = further.by_ref().take(here.count() - 1).collect();
            self.join_stages(sum, mine, &stages)
                .on_rank(rank, "add gradients of a shared tensor over stages")?;
        }
        Ok(())
    }

    /// Adds up the gradients of a tensor's uses, which are on `stages` in their order. `sum` is the first one here,
    /// `more` are the others here.
    fn join_stages(
        &self,
        sum: &mut Tensor,
        more: Vec<Tensor>,
        stages: &[usize],
    ) -> kernels::Result<()> {
        let (place, world) = (self.state.groups.place, self.state.groups.world.as_ref());
        let links = self.state.groups.links.as_ref();
        let len = sum.elements();
        let room = |uses: usize| Tensor::empty(&[uses * len], DType::F32, &self.state.device);
        let mut mine = room(1 + more.len())?;
        kernels::copy(mine.flat_mut(0..len)?, sum.view())?;
        for (at, next) in (1..).zip(&more) {
            kernels::copy(mine.flat_mut(at * len..(at + 1) * len)?, next.view())?;
        }
        drop(more);
        let others = (0..place.pp).filter(|stage| *stage != place.pp_rank);
        let others: Vec<usize> = others.filter(|stage| stages.contains(stage)).collect();
        for &stage in others.iter().filter(|_| links.is_none()) {
            tensors::send(world, place.on_stage(stage), mine.view())?;
        }
        let mut by_stage: Vec<Option<Tensor>> = (0..place.pp).map(|_| None).collect();
        for stage in others {
            let count = stages.iter().filter(|&&other| other == stage).count();
            let there = by_stage[stage].insert(room(count)?);
            let other = place.on_stage(stage);
            match links {
                // all stages exchange in the order of the pairs, so none waits for itself
                Some(links) => {
                    links
                        .shared
                        .exchange(other, mine.view(), there.view_mut())?;
                }
                None => tensors::recv(world, other, there.view_mut())?,
            }
        }
        by_stage[place.pp_rank] = Some(mine);
        let mut next = vec![0; place.pp];
        for (number, &stage) in stages.iter().enumerate() {
            let all = by_stage[stage]
                .as_ref()
                .expect("every stage has been received");
            let part = all.flat(next[stage]..next[stage] + len)?;
            next[stage] += len;
            if number == 0 {
                kernels::copy(sum.view_mut(), part)?;
            } else {
                rows::add(sum.view_mut(), part)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
impl<'a> Trainer<'a> {
    /// With initial weights.
    pub(crate) fn new(
        plan: &'a Plan,
        specs: &'a [Spec],
        groups: Groups,
        device: Device,
    ) -> Result<Trainer<'a>> {
        let on = (Arc::new(groups), device);
        Trainer::with(plan, specs, on, FrozenWeights::Own)
    }

    /// One step, after the good ones in `recent`.
    pub(crate) fn step(
        &mut self,
        samples: &dyn Samples,
        next: &Next,
        recent: &[GoodStep],
    ) -> Result<Outcome> {
        let asked = Some(Asked {
            samples,
            next,
            recent,
        });
        let outcomes = step_together(std::slice::from_mut(self), &[asked])?;
        let outcome = outcomes.into_iter().flatten().next();
        Ok(outcome.expect("an outcome of the step that is asked"))
    }

    /// Mean loss of a batch and its gradient.
    pub(crate) fn gradients(
        &mut self,
        samples: &dyn Samples,
        next: &Next,
    ) -> Result<(f64, Vec<Tensor>)> {
        let asked = Some(Asked {
            samples,
            next,
            recent: &[],
        });
        self.begin(next)?;
        let mut trained = pass(std::slice::from_mut(self), &[asked])?;
        let trained = trained.pop().expect("a pass for the step that is asked");
        let (losses, gradients) = self.summed(trained, next)?;
        Ok((self.measure(&losses, &gradients)?.loss, gradients))
    }

    /// Norm of a gradient.
    pub(crate) fn norm(&mut self, gradients: &[Tensor]) -> Result<f64> {
        let losses = Losses::of(&[0], 1);
        Ok(self.measure(&losses, gradients)?.grad_norm)
    }
}

/// For the global batch of the plan.
fn reducer(state: &RankState<'_>, stages: &[Stage]) -> GradientReducer {
    let mut plan = Cow::Borrowed(&*state.plan);
    if state.frozen != FrozenWeights::Own {
        // ranks call the reductions of several trainings in one order only where one thread calls all
        plan.to_mut().parallel.overlap = false;
    }
    GradientReducer::new(
        &plan,
        state.specs,
        &state.groups,
        &state.local_shards,
        stages,
        &state.device,
    )
}

/// For the micro-batches of a step, or of an evaluation.
fn packs(state: &RankState<'_>, micro_batches: usize) -> Option<PrepackedWeights> {
    let are_kept = prepacked::are_kept(&state.plan, micro_batches);
    are_kept.then(|| {
        let (slots, device) = (state.weights.len(), &state.device);
        PrepackedWeights::new(slots, Numbers::Bf16Tiles, device)
    })
}

/// `kept`: the weights of a rank between uses, borrowed ones as well.
fn parameters<'a>(
    state: &'a RankState<'_>,
    kept: &'a [&'a Tensor],
    packs: Option<&'a PrepackedWeights>,
) -> Parameters<'a> {
    match (state.local_shards.has_weight_shards(), state.frozen) {
        (true, _) => Parameters::Shards {
            shards: kept,
            local_shards: &state.local_shards,
            groups: &state.groups,
            device: &state.device,
        },
        (false, FrozenWeights::Borrowed) => Parameters::Shared(kept, packs),
        (false, FrozenWeights::Own | FrozenWeights::Lent) => {
            Parameters::Whole(&state.weights, packs)
        }
    }
}
