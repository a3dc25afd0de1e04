//! Memory of each rank: predicted by formula from the plan alone, and as the device counts it in a step.
//!
//! Weights, optimizer state and gradients take 4 bytes per number: P, 2 P (P for matrices that Muon updates, and P
//! more with averages) and P for P parameters of the rank's stage and tensor-parallel share, each divided by dp
//! from ZeRO 3, 1 and 2 on (Rajbhandari et al. 2020, arXiv:1910.02054, sec. 3.1, in f32). In layout mode gradients
//! are held once per block of sequences that waits in the tree. Activations are the tensors that forward passes
//! keep for backward (Korthikanti et al. 2022, arXiv:2205.05198, sec. 4, for these layers), times the micro-batches
//! in flight in the schedule; those of a mixture as if choices were even and none dropped. Every tensor is rounded
//! up to 64 bytes, as the device does.
//!
//! Scratch of the running layer and of matrix products is not in the formula but bounded: each rank gets one arena,
//! sized before the first step, that holds all of it. Untouched pages are free.

pub(crate) mod arena;
mod kept;
mod passes;
mod peaks;
mod rank_memory;
mod routing;
mod stages;

use std::sync::Arc;
use std::thread;

use kernels::Device;

use crate::checkpoint::shard_sender::TRANSFER_BYTES;
use crate::checkpoint::snapshot::{self, UnitsOnRank, Whole};
use crate::checkpoint::train_state::TrainState;
use crate::config::OptimizerKind;
use crate::config::ParallelConfig;
use crate::config::architecture::Positions;
use crate::config::plan::{FEATURE_CHUNKS, Plan, TOKEN_CHUNKS};
use crate::config::precision::Bf16Sums;
use crate::config::precision::Precision;
use crate::data::Samples;
use crate::data::micro_batches::{Block, micro_batches};
use crate::dist::devices::Devices;
use crate::dist::mesh::{Groups, RankCoord};
use crate::error::{Error, OnRank, Result};
use crate::model::context::key_block;
use crate::model::param;
use crate::model::prepacked;
use crate::optim::next_step::Next;
use crate::optim::rank_state::FrozenWeights;
use crate::panics;
use crate::parallel::schedule::{Action, actions};
use crate::parallel::shards::{Local, Shards};
use crate::trainer::memory::arena::Arena;
use crate::trainer::memory::peaks::{Peaks, Step};
use crate::trainer::step::{Asked, Trainer, step_together};
use crate::trainer::together;

pub use crate::trainer::memory::rank_memory::RankMemory;
pub use crate::trainer::memory::stages::{StageMemory, predict_stages};

/// Memory of every rank by formula.
///
/// # Errors
/// A plan that contradicts itself.
pub fn predict(plan: &Plan) -> Result<Vec<RankMemory>> {
    let problems = plan.problems();
    if !problems.is_empty() {
        return Err(Error::Plan(problems));
    }
    Ok(of_all_ranks(&[plan], &plan.parallel))
}

/// Memory of every rank by formula for trainings of one base that run together (`run_together`).
///
/// # Errors
/// Plans that contradict themselves or have no one base.
pub fn predict_together(plans: &[&Plan]) -> Result<Vec<RankMemory>> {
    let mut problems: Vec<String> = plans.iter().flat_map(|plan| plan.problems()).collect();
    if plans.len() > 1 {
        problems.extend(together::problems(plans.iter().copied()));
    }
    if !problems.is_empty() {
        return Err(Error::Plan(problems));
    }
    let Some(first) = plans.first() else {
        return Ok(Vec::new());
    };
    Ok(of_all_ranks(plans, &first.parallel))
}

/// Memory of every rank, one by one.
fn of_all_ranks(plans: &[&Plan], parallel: &ParallelConfig) -> Vec<RankMemory> {
    let all = Sharded::all(plans);
    let places = (0..parallel.world()).map(|rank| RankCoord::of(rank, parallel));
    places
        .map(|place| memory_of(&ranks_at(&all, place)))
        .collect()
}

/// A plan with its tensors and their shards.
struct Sharded<'a> {
    plan: &'a Plan,
    specs: Vec<param::Spec>,
    shards: Shards,
}

impl<'a> Sharded<'a> {
    fn all(plans: &[&'a Plan]) -> Vec<Sharded<'a>> {
        let of = |plan: &&'a Plan| {
            let specs = param::specs(plan);
            let shards = Shards::of(plan, &specs);
            Sharded {
                plan,
                specs,
                shards,
            }
        };
        plans.iter().map(of).collect()
    }

    fn rank(&self, place: RankCoord) -> Rank<'_> {
        Rank {
            plan: self.plan,
            place,
            specs: &self.specs,
            shards: &self.shards,
            local: self.shards.on(&place, &self.specs),
        }
    }
}

/// A rank of each training.
fn ranks_at<'a>(all: &'a [Sharded<'a>], place: RankCoord) -> Vec<Rank<'a>> {
    all.iter().map(|of| of.rank(place)).collect()
}

/// Like `predict`, for ranks divided over this many processes.
///
/// # Errors
/// As `predict`.
pub fn predict_in(plan: &Plan, processes: usize) -> Result<Vec<RankMemory>> {
    let mut ranks = predict(plan)?;
    if processes > 1 && !plan.train.checkpoint.sharded {
        let of_process = ranks.len().div_ceil(processes);
        for first in ranks.iter_mut().step_by(of_process.max(1)) {
            first.transfer = TRANSFER_BYTES;
        }
    }
    Ok(ranks)
}

/// Every rank's arena for trainings that run together: the formulas, and a bound for temporaries within a pass.
pub(crate) fn arenas(plans: &[&Plan]) -> Result<Vec<Arena>> {
    let predicted = predict_together(plans)?.into_iter().enumerate();
    let all = Sharded::all(plans);
    let Some(first) = plans.first() else {
        return Ok(Vec::new());
    };
    Ok(predicted
        .map(|(rank, memory)| {
            let ranks = ranks_at(&all, RankCoord::of(rank, &first.parallel));
            let micro_batches = ranks.iter().map(|rank| rank.blocks().len()).sum();
            let scratch = |rank: &Rank<'_>| {
                let layers = rank.scratch(micro_batches);
                layers.saturating_add(rank.routing())
            };
            Arena {
                memory,
                // all tokens may choose one rank's experts
                uneven: memory.activations * (first.parallel.ep - 1),
                scratch: ranks.iter().map(scratch).max().unwrap_or(0),
            }
        })
        .collect())
}

/// Memory of every rank as counted in one step on `samples`.
///
/// # Errors
/// As `run`.
pub fn measure(plan: &Plan, samples: &dyn Samples) -> Result<Vec<RankMemory>> {
    measure_together(&[(plan, samples)])
}

/// Memory of every rank as counted in one step of trainings that run together.
///
/// # Errors
/// As `run_together`.
pub fn measure_together(trainings: &[(&Plan, &dyn Samples)]) -> Result<Vec<RankMemory>> {
    let plans: Vec<&Plan> = trainings.iter().map(|(plan, _)| *plan).collect();
    let predicted = predict_together(&plans)?;
    let Some(parallel) = plans.first().map(|plan| &plan.parallel) else {
        return Ok(predicted);
    };
    let plans = plans.iter().map(|plan| {
        let mut plan = Plan::clone(plan);
        // a second thread's sums would be counted at any stage of completion
        plan.parallel.overlap = false;
        plan
    });
    let plans: Vec<Plan> = plans.collect();
    let specs: Vec<Vec<param::Spec>> = plans.iter().map(param::specs).collect();
    let one_rank = |groups: Groups| -> Result<RankMemory> {
        let (rank, groups) = (groups.place.rank(), Arc::new(groups));
        let device = Devices::Cpu.open(0)?;
        let mut trainers = Vec::new();
        for (number, (plan, specs)) in plans.iter().zip(&specs).enumerate() {
            let frozen = FrozenWeights::of(number, plans.len());
            let on = (Arc::clone(&groups), device.clone());
            trainers.push(Trainer::with(plan, specs, on, frozen)?);
        }
        let used = |purpose| device.for_use(purpose).used_bytes();
        let (weights, optimizer) = (used(kernels::Use::Weights), used(kernels::Use::Optimizer));
        let nexts = plans.iter().map(|plan| TrainState::start().next(plan));
        let nexts: Vec<Next> = nexts.collect();
        let asked = trainings.iter().zip(&nexts).map(|((_, samples), next)| {
            Some(Asked {
                samples: *samples,
                next,
                recent: &[],
            })
        });
        step_together(&mut trainers, &asked.collect::<Vec<_>>())?;
        // peers must not see this rank end before their own step does
        let together = groups.world.barrier();
        together.on_rank(rank, "end a measured step")?;
        let mut copies = Vec::new();
        for (trainer, plan) in trainers.iter().zip(&plans) {
            let pieces = snapshot::take(Whole {
                state: &trainer.state,
                lent: trainers[0].state.kept(),
            });
            let pieces = pieces.on_rank(rank, "copy the state")?;
            let lengths: Vec<usize> = pieces.map(|piece| piece.len()).collect();
            copies.push(snapshot::bytes(plan, &lengths));
        }
        let held = trainers[0].held;
        Ok(RankMemory {
            weights,
            optimizer,
            gradients: held.gradients,
            activations: held.activations,
            packs: held.packs,
            snapshot: copies.into_iter().max().unwrap_or(0),
            transfer: 0,
        })
    };
    thread::scope(|scope| {
        let run = &one_rank;
        let threads: Vec<_> = Groups::all(parallel)
            .into_iter()
            .map(|groups| scope.spawn(move || panics::caught(|| run(groups))))
            .collect();
        let joined = threads.into_iter().enumerate().map(|(rank, thread)| {
            let ended = thread.join().expect("its panic is caught");
            ended.unwrap_or_else(|message| Err(Error::Panicked { rank, message }))
        });
        joined.collect()
    })
}

/// Inputs of the formulas for one rank.
struct Rank<'a> {
    plan: &'a Plan,
    place: RankCoord,
    specs: &'a [param::Spec],
    shards: &'a Shards,
    local: Vec<Local>,
}

/// Memory of a rank of trainings that run together; the first lends its frozen weights to the others.
fn memory_of(ranks: &[Rank<'_>]) -> RankMemory {
    let Some(first) = ranks.first() else {
        return RankMemory::default();
    };
    let steps: Vec<Step> = ranks.iter().map(Rank::step).collect();
    let micro_batches = steps.iter().map(Step::micro_batches).sum();
    let actions = actions(&first.plan.parallel, first.place.pp_rank, micro_batches);
    memory_with(ranks, micro_batches, peaks::peaks(&steps, &actions))
}

/// The same, of steps of `micro_batches` micro-batches in all trainings with these peaks.
fn memory_with(ranks: &[Rank<'_>], micro_batches: usize, peaks: Peaks) -> RankMemory {
    let Some(first) = ranks.first() else {
        return RankMemory::default();
    };
    RankMemory {
        weights: (ranks.iter().enumerate())
            .map(|(number, rank)| rank.weights(number > 0))
            .sum(),
        optimizer: ranks.iter().map(Rank::optimizer).sum(),
        gradients: peaks.gradients,
        activations: peaks.activations,
        packs: prepacked::bytes_of(first.plan, &first.place, first.specs, micro_batches),
        // of one training at a time
        snapshot: ranks.iter().map(Rank::snapshot).max().unwrap_or(0),
        transfer: 0,
    }
}

impl Rank<'_> {
    fn blocks(&self) -> Vec<Block> {
        micro_batches(self.plan, &self.place)
    }

    /// Bytes of weights; one number stands for each tensor or shard that is borrowed.
    fn weights(&self, borrows: bool) -> usize {
        let of = |local: &Local| {
            let unit = &self.shards.units[local.unit];
            if borrows && unit.is_frozen {
                let count = match self.shards.zero >= 3 {
                    true => 1,
                    false => unit.specs.len(),
                };
                count * Device::bytes_of(1)
            } else if self.shards.zero >= 3 {
                self.flat(local.unit, true)
            } else {
                self.tensors(local.unit)
            }
        };
        self.local.iter().map(of).sum()
    }

    /// Bytes of copies for a checkpoint.
    fn snapshot(&self) -> usize {
        let on = UnitsOnRank {
            place: &self.place,
            specs: self.specs,
            shards: self.shards,
            local: &self.local,
        };
        let shares = snapshot::shares_on(snapshot::files(self.plan), on);
        let lengths: Vec<usize> = shares.iter().map(|share| share.local.len()).collect();
        snapshot::bytes(self.plan, &lengths)
    }

    fn optimizer(&self) -> usize {
        let has_averages = self.plan.train.ema_decay > 0.0;
        let of = |local: &Local| {
            let flat = match self.shards.units[local.unit].is_frozen {
                true => Device::bytes_of(1),
                false => self.flat(local.unit, self.shards.zero >= 1),
            };
            let averages = if has_averages { flat } else { 0 };
            flat + self.second(local.unit) + averages
        };
        self.local.iter().map(of).sum()
    }

    /// Upper bound on what the running layer, its matrix products and pending reductions take at once, with a
    /// quarter more for fragmentation; in a step of this many micro-batches, of all trainings.
    fn scratch(&self, micro_batches: usize) -> usize {
        let (plan, place, s) = (self.plan, &self.place, self.plan.shape());
        let b = self.blocks();
        let b = b.iter().map(|block| block.size).max().unwrap_or(1);
        let n = b * plan.sample_tokens() / place.cp;
        // in a mixture every choice is a row, and any rank may get all of them
        let (choices, d_ffn) = match &plan.model.moe {
            Some(moe) => (1 + moe.top_k * place.ep, s.d_ffn.max(plan.model.d_expert())),
            None => (1, s.d_ffn),
        };
        // rows of latents are those of a projection's input, as wide as the model in most
        let latents = plan.model.latents();
        let latents = latents.map_or(0, |of| of.row().max(of.queries.unwrap_or(0)));
        let inner = s.packed.max(2 * d_ffn).max(latents);
        // features of adapters and their gradients, and sums of them over slices of the head
        let rank = plan.model.lora.as_ref().map_or(0, |lora| 8 * lora.rank);
        let layer = n * choices * (16 * s.d_model + 6 * inner + rank);
        let logits = match plan.train.chunked_cross_entropy {
            true => s.padded_vocab / FEATURE_CHUNKS,
            false => s.padded_vocab / place.tp,
        };
        let head = if place.is_last_stage() {
            // with statistics of each slice; of the gradient three blocks wait in the tree over slices
            // and gradients of the rows of each depth
            let depths = plan.model.mtp_num_layers;
            n * (2 * logits + (3 + 2 * depths) * s.d_model + 6 * FEATURE_CHUNKS)
        } else {
            0
        };
        let widest = inner.max(logits).max(s.d_model);
        // a pack is rounded up to a power of two and to whole tiles
        let packs = 2 * ((n * choices + 32) * (widest + 32) + (widest + 32) * (s.d_model + 32));
        let packs = packs * self.filling();
        let attention = self.attention(b);
        let units = self
            .local
            .iter()
            .map(|local| self.shards.units[local.unit].len());
        let all: usize = units.clone().sum();
        let largest = units.max().unwrap_or(0);
        // a matrix that Muon works on is whole, with two of its size and two squares beside it, among shares and
        // results of the unit
        let muon = match plan.train.optimizer {
            OptimizerKind::Muon => 8 * largest * place.tp,
            OptimizerKind::Adamw => 0,
        };
        // a layer gathered ahead of its use, and what a collective between GPUs has from the other ranks
        let shared = if place.dp > 1 { 2 } else { 0 };
        let sums = 3 * all + (4 + plan.parallel.ep + shared) * largest + muon;
        // rounded copies of a product's operands: rows twice, and a matrix or all of a rank's experts
        let operands = match plan.train.precision {
            Precision::F32 => 0,
            _ => 2 * n * choices * widest + largest.max(widest * s.d_model),
        };
        let other = self.messages(n, micro_batches) + self.virtual_rows(n);
        let elements = layer + head + packs + attention + sums + operands + other;
        elements.saturating_mul(5) + (1 << 20)
    }

    /// Floats of the encoder of virtual tokens, whose rows are there once for each leaf of `n` tokens.
    fn virtual_rows(&self, n: usize) -> usize {
        let (plan, d) = (self.plan, self.plan.model.d_model);
        let Some(prompt) = &plan.model.prompt else {
            return 0;
        };
        let leaf = match plan.sum_order().is_tree() {
            true => plan.sample_tokens() / TOKEN_CHUNKS,
            false => n,
        };
        let rows = prompt.virtual_tokens * n.div_ceil(leaf.max(1));
        let hidden = prompt.encoder.map_or(0, |encoder| encoder.hidden(d));
        // gradients and inputs of a layer, and the copies of factors; an LSTM has four gates
        8 * (rows + 64) * (d + 4 * hidden + 64)
    }

    /// Floats of rows between pipeline stages: those of each micro-batch in flight here and one more may wait for the other
    /// stage, in both directions, and two are received.
    fn messages(&self, rows: usize, micro_batches: usize) -> usize {
        let (plan, place) = (self.plan, &self.place);
        if place.pp == 1 {
            return 0;
        }
        let (mut in_flight, mut most) = (0, 0_usize);
        for action in actions(&plan.parallel, place.pp_rank, micro_batches) {
            match action {
                Action::Forward { .. } => in_flight += 1,
                Action::Backward { .. } => in_flight -= 1,
            }
            most = most.max(in_flight);
        }
        (2 * most + 4) * rows * plan.model.d_model
    }

    /// Padding factor of packs for sums in tiles, whose leaves are filled up with zeros.
    fn filling(&self) -> usize {
        let (plan, s) = (self.plan, self.plan.shape());
        if plan.train.bf16_sums != Bf16Sums::Tiles || !plan.sum_order().is_tree() {
            return 1;
        }
        let tokens = [plan.sample_tokens(), plan.seq_length, plan.decoder_length];
        let features = [s.d_ffn, s.d_model, s.packed, s.padded_vocab];
        let leaves = (tokens.map(|t| t / TOKEN_CHUNKS).into_iter())
            .chain(features.map(|width| width / FEATURE_CHUNKS));
        // two elements are a word of a pack
        let fillings = leaves
            .filter(|&leaf| leaf > 0)
            .map(|leaf| (leaf.next_multiple_of(32) / 2).div_ceil(leaf));
        fillings.max().unwrap_or(1)
    }

    /// Floats that attention allocates for `b` sequences: gradients of keys and values, between ranks also the
    /// buffers in transit of both, the online-softmax state of query rows in flight, in tiles of 32, and per thread
    /// a group of heads, plain and transposed, and a tile's scores of a block of keys.
    fn attention(&self, b: usize) -> usize {
        let (plan, place, s) = (self.plan, &self.place, self.plan.shape());
        let length = plan.seq_length.max(plan.decoder_length);
        let time = length / place.cp;
        let leaves = if plan.sum_order().is_tree() {
            TOKEN_CHUNKS / place.cp
        } else {
            1
        };
        let rows = leaves * time.div_ceil(leaves).next_multiple_of(32);
        let (heads, kv_heads) = (s.heads / place.tp, s.kv_heads.div_ceil(place.tp));
        let width = s.d_head.next_multiple_of(16);
        let copies = if place.cp > 1 { 6 } else { 2 };
        let keys = copies * b * time * 2 * kv_heads * width;
        let under_way = 2 * b * heads * rows * (width + 2);
        let distances = match plan.model.architecture().positions {
            Positions::Relative => 2 * heads * (b * leaves + 1) * (time + length + 32),
            Positions::Learned | Positions::Rotary | Positions::Alibi => 0,
        };
        let block = key_block(length, place.cp);
        // sums in tiles take the keys of a block in 32s
        let filled = match plan.train.bf16_sums {
            Bf16Sums::Tiles => block.next_multiple_of(32),
            Bf16Sums::Pairs | Bf16Sums::Auto | Bf16Sums::Mma => block,
        };
        let keys_of_group = 3 * time + time.div_ceil(block) * filled;
        let group = heads.div_ceil(kv_heads) * rows * (4 * width + 2) + keys_of_group * width;
        let scores = 6 * 32 * filled + 64 * width;
        keys + under_way + distances + rayon::current_num_threads() * (group + scores)
    }

    /// Bytes of a unit's tensors, each rounded up separately.
    fn tensors(&self, unit: usize) -> usize {
        let unit = &self.shards.units[unit];
        let pieces = unit.pieces(0..unit.len());
        pieces
            .map(|piece| Device::bytes_of(piece.local.len()))
            .sum()
    }

    /// Bytes of a unit as one flat tensor, or of this rank's shard of it.
    fn flat(&self, unit: usize, is_shard: bool) -> usize {
        let unit = &self.shards.units[unit];
        let len = if is_shard {
            unit.shard(self.place.dp_rank).len()
        } else {
            unit.len()
        };
        Device::bytes_of(len.max(1))
    }

    /// Bytes of this rank's second moments of a unit: Muon's matrices have none.
    fn second(&self, unit: usize) -> usize {
        let held = self.shards.moments(unit, self.place.dp_rank);
        let pieces = self.shards.units[unit].pieces(held);
        let counts = pieces.filter(|piece| !self.specs[piece.spec].is_muon);
        let count: usize = counts.map(|piece| piece.local.len()).sum();
        Device::bytes_of(count.max(1))
    }

    /// Units whose gradients each model chunk on this rank has, once for each use.
    fn gradient_units(&self) -> Vec<Vec<usize>> {
        let pp = self.place.pp;
        let of_chunk = |chunk: usize| {
            let model_chunk = chunk * pp + self.place.pp_rank;
            let here = self.local.iter().map(|local| local.unit);
            let trained = here.filter(|&unit| !self.shards.units[unit].is_frozen);
            let by_use = trained.flat_map(|unit| {
                let spec = &self.specs[self.shards.units[unit].specs.start];
                let uses = spec.uses.iter().filter(|&&use_| use_ == model_chunk);
                uses.map(move |_| unit)
            });
            by_use.collect()
        };
        (0..self.plan.parallel.virtual_stages)
            .map(of_chunk)
            .collect()
    }

    /// Bytes of the step's inputs, targets and their loss masks: all are read before the first pass.
    fn batches(&self, blocks: &[Block]) -> usize {
        let time = self.plan.sample_tokens() / self.place.cp;
        let is_masked = self.plan.model.architecture().is_masked;
        // ids and, if masked, segments; ids, loss mask and, if masked, rows
        let more = usize::from(is_masked);
        let places = if is_masked {
            self.plan.predictions
        } else if self.plan.decoder_length > 0 {
            self.plan.decoder_length / self.place.cp
        } else {
            time
        };
        let is_told = usize::from(self.plan.model.next_sentence);
        let choices = self.plan.model.choices();
        let is_classified = self.plan.model.classify.is_some();
        let of = |block: &Block| {
            let (b, place) = (block.size, &self.place);
            let first = usize::from(place.is_first_stage()) * (1 + more);
            let last = usize::from(place.is_last_stage());
            if is_classified {
                let lists = 2 + usize::from(self.plan.model.is_regression());
                let targets = lists * Device::bytes_of(b / choices);
                let rows = Device::bytes_of(b);
                return first * Device::bytes_of(b * time) + last * (targets + rows);
            }
            let targets = 2 * Device::bytes_of(b * places);
            let rows = more * Device::bytes_of(b * (places + is_told));
            let swapped = is_told * Device::bytes_of(b);
            // tokens, targets and their loss mask of each depth
            let ahead = 3 * self.plan.model.mtp_num_layers * Device::bytes_of(b * time);
            first * Device::bytes_of(b * time) + last * (targets + rows + swapped + ahead)
        };
        blocks.iter().map(of).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Recompute;
    use crate::fixtures::{Chain, options, tiny_gpt, tiny_llama};

    fn assert_measured(plan: &Plan, what: &str) {
        let predicted = predict(plan).unwrap();
        let measured = measure(plan, &Chain::of(plan)).unwrap();
        assert_eq!(measured, predicted, "{what}");
    }

    #[test]
    fn the_first_rank_of_each_process_holds_the_transfer_of_a_whole_checkpoint() {
        let mut plan = tiny_gpt();
        plan.train.global_batch = 12;
        plan.parallel.dp = 6;
        let transfers = |plan: &Plan, processes| -> Vec<usize> {
            let ranks = predict_in(plan, processes).unwrap();
            ranks.iter().map(|rank| rank.transfer).collect()
        };
        let all = TRANSFER_BYTES;
        assert_eq!(transfers(&plan, 1), [0; 6], "nothing is sent");
        assert_eq!(transfers(&plan, 2), [all, 0, 0, all, 0, 0]);
        assert_eq!(transfers(&plan, 6), [all; 6]);
        plan.train.checkpoint.sharded = true;
        assert_eq!(transfers(&plan, 2), [0; 6], "ranks write their own files");
    }

    #[test]
    fn every_rank_holds_the_bytes_that_the_formulas_say() {
        for mut plan in [tiny_gpt(), tiny_llama()] {
            plan.model.layers = 4;
            (plan.train.global_batch, plan.train.micro_batch) = (12, 1);
            plan.train.recompute = Recompute::None;
            assert_measured(&plan, "one rank");
            for zero in 0..=3 {
                for dp in [2, 3] {
                    (plan.parallel.zero, plan.parallel.dp) = (zero, dp);
                    assert_measured(&plan, &format!("zero {zero} dp {dp}"));
                }
            }
            plan.parallel.dp = 1;
            plan.train.chunked_cross_entropy = true;
            assert_measured(&plan, "cross entropy in chunks");
            plan.train.chunked_cross_entropy = false;
            for (recompute, layers) in [
                (Recompute::Selective, vec![]),
                (Recompute::Full, vec![]),
                (Recompute::Full, vec![1]),
            ] {
                (plan.train.recompute, plan.train.recompute_layers) = (recompute, layers);
                assert_measured(&plan, &format!("{recompute:?}"));
            }
            (plan.parallel.tp, plan.parallel.pp) = (2, 2);
            (plan.parallel.sequence, plan.parallel.virtual_stages) = (true, 2);
            (plan.train.recompute, plan.train.recompute_layers) = (Recompute::Full, vec![0, 1]);
            assert_measured(&plan, "tensor, sequence, interleaved");
            (plan.parallel.virtual_stages, plan.parallel.cp) = (1, 2);
            (plan.parallel.dp, plan.parallel.zero) = (2, 2);
            assert_measured(&plan, "tensor, context, pipeline, data");
            plan.parallel.zero = 0;
            assert_measured(&plan, "context parts of gradients");
            plan.determinism = crate::config::Determinism::Run;
            plan.parallel.zero = 1;
            assert_measured(&plan, "the same without layout mode");
        }
    }

    #[test]
    fn a_planned_arena_holds_every_tensor_of_a_run() {
        for mut plan in [vec![tiny_gpt(), tiny_llama()], options()].concat() {
            plan.model.layers = 4;
            (plan.train.global_batch, plan.train.micro_batch) = (12, 2);
            // (tp, pp, dp, cp, zero)
            for layout in [
                (1, 1, 1, 1, 0),
                (2, 2, 1, 1, 0),
                (1, 1, 3, 1, 1),
                (2, 1, 2, 2, 2),
                (1, 2, 2, 1, 3),
            ] {
                let parallel = &mut plan.parallel;
                (
                    parallel.tp,
                    parallel.pp,
                    parallel.dp,
                    parallel.cp,
                    parallel.zero,
                ) = layout;
                let folder = tempfile::tempdir().unwrap();
                let samples = Chain::of(&plan);
                let log = crate::fixtures::Log::default();
                crate::trainer::run(&plan, &samples, Some(&samples), folder.path(), &log).unwrap();
                let notes: Vec<String> = log.lines();
                assert!(
                    !notes.iter().any(|line| line.contains("arena")),
                    "{layout:?} {notes:?}"
                );
            }
        }
    }

    #[test]
    fn zero_divides_what_the_paper_divides() {
        let mut plan = tiny_gpt();
        (plan.model.d_model, plan.model.layers) = (256, 2);
        (plan.train.global_batch, plan.train.micro_batch) = (4, 1);
        plan.parallel.dp = 4;
        let of = |zero| {
            let mut plan = plan.clone();
            plan.parallel.zero = zero;
            predict(&plan).unwrap().remove(0)
        };
        let close = |found: usize, wanted: usize| {
            let ratio = found as f64 / wanted as f64;
            assert!((0.9..1.1).contains(&ratio), "{found} {wanted}");
        };
        let none = of(0);
        assert_eq!(none.optimizer, 2 * none.weights);
        close(of(1).optimizer, none.optimizer / 4);
        assert_eq!(of(1).weights, none.weights);
        close(of(2).gradients, none.gradients / 4);
        close(of(3).weights, none.weights / 4);
    }

    #[test]
    fn recomputation_saves_what_it_does_not_keep() {
        let mut plan = tiny_gpt();
        (plan.train.global_batch, plan.train.micro_batch) = (2, 2);
        let of = |recompute| {
            let mut plan = plan.clone();
            plan.train.recompute = recompute;
            predict(&plan).unwrap()[0].activations
        };
        let (s, n) = (plan.shape(), 2 * plan.seq_length);
        let mixed = 4 * (n * s.d_model + n * s.heads);
        let none = of(Recompute::None);
        assert_eq!(none - of(Recompute::Selective), plan.model.layers * mixed);
        // per token and layer: 3 d rows, 3 d + d + h of attention, 2 * 4 d of the MLP, statistics
        let inner = 4 * n * (3 * s.d_model + 4 * s.d_model + s.heads + 8 * s.d_model + 4);
        assert_eq!(none - of(Recompute::Full), plan.model.layers * inner);
    }
}
