//! Runs one stage through a step's schedule. Activations go to the next stage and gradients to the
//! previous one as exact copies, each tensor-parallel rank to its opposite number.

use std::collections::VecDeque;

use kernels::{DType, Device, Tensor};

use crate::data;
use crate::error::{OnRank, Result};
use crate::mesh::{Groups, Place};
use crate::model::context::Context;
use crate::model::stage::{Input, Output, Saved, Stage};
use crate::parallel::data::{Block, GradientTree, aligned_blocks, plain_blocks};
use crate::parallel::schedule::{Action, one_f_one_b};
use crate::plan::Plan;

/// What one rank needs to run its stage.
pub(crate) struct Worker<'a> {
    pub plan: &'a Plan,
    pub stage: &'a Stage,
    pub groups: &'a Groups,
    pub device: &'a Device,
    pub weights: &'a [Tensor],
}

impl Worker<'_> {
    fn rank(&self) -> usize {
        self.groups.place.rank()
    }

    fn context(&self) -> Context<'_> {
        Context::of(self.plan, self.weights, self.groups)
    }

    /// This rank's micro-batches of a batch of `count` sequences.
    fn blocks(&self, count: usize) -> Vec<Block> {
        let range = self.groups.place.batch_range(count);
        let size = self.plan.train.micro_batch;
        if self.plan.is_exact() {
            aligned_blocks(range, size)
        } else {
            plain_blocks(range, size)
        }
    }

    /// Forward and backward of this rank's part of the global batch that starts at sample `first`.
    /// Adds to `tree`; returns the mean loss of the batch.
    pub(crate) fn train(
        &self,
        samples: &dyn data::Samples,
        first: u64,
        tree: &mut GradientTree,
    ) -> Result<f64> {
        let count = self.plan.train.global_batch;
        let blocks = self.blocks(count);
        let (cx, place, rank) = (self.context(), self.groups.place, self.rank());
        let weight = 1.0 / (count * self.plan.seq_length) as f32;
        let mut in_flight: VecDeque<Saved> = VecDeque::new();
        let mut losses = Vec::new();
        for action in one_f_one_b(place.pp_rank, place.pp, blocks.len()) {
            match action {
                Action::Forward(m) => {
                    let (input, targets) = self.input(samples, first, blocks[m])?;
                    let (output, saved) = self
                        .stage
                        .forward(input, targets, &cx)
                        .on_rank(rank, "forward")?;
                    in_flight.push_back(saved);
                    self.pass_on(output, blocks[m], &mut losses)?;
                }
                Action::Backward(m) => {
                    let saved = in_flight
                        .pop_front()
                        .expect("a forward precedes each backward");
                    let dy = if place.is_last_stage() {
                        None
                    } else {
                        Some(self.receive(blocks[m], place.pp_rank + 1)?)
                    };
                    let gradients = tree.open(blocks[m]).on_rank(rank, "allocate gradients")?;
                    let dx = self.stage.backward(dy, weight, saved, gradients, &cx);
                    let dx = dx.on_rank(rank, "backward")?;
                    tree.close().on_rank(rank, "merge gradients")?;
                    if !place.is_first_stage() {
                        let to = place.on_stage(place.pp_rank - 1);
                        self.groups
                            .world
                            .send(to, dx.f32())
                            .on_rank(rank, "send gradients")?;
                    }
                }
            }
        }
        self.mean(&losses, count)
    }

    /// Mean loss of the first `count` samples, forward only, keeping nothing.
    pub(crate) fn evaluate(&self, samples: &dyn data::Samples, count: usize) -> Result<f64> {
        let cx = self.context();
        let mut losses = Vec::new();
        for block in self.blocks(count) {
            let (input, targets) = self.input(samples, 0, block)?;
            let output = self.stage.evaluate(input, targets, &cx);
            self.pass_on(output.on_rank(self.rank(), "evaluate")?, block, &mut losses)?;
        }
        self.mean(&losses, count)
    }

    /// Mean over tokens from each rank's (sequence, summed loss) pairs, added in order of
    /// sequences; the same bits on every rank.
    fn mean(&self, local: &[(usize, f64)], count: usize) -> Result<f64> {
        let place = self.groups.place;
        let mut sums = vec![0.0; count];
        for &(sequence, sum) in local {
            sums[sequence] = sum;
        }
        let all = self
            .groups
            .world
            .all_gather_f64(&sums)
            .on_rank(self.rank(), "gather losses")?;
        let mut total = 0.0;
        for dp_rank in 0..place.dp {
            let rank = place.rank_of(0, dp_rank, place.pp - 1);
            for sequence in (Place { dp_rank, ..place }).batch_range(count) {
                total += all[rank][sequence];
            }
        }
        Ok(total / (count * self.plan.seq_length) as f64)
    }

    fn input(
        &self,
        samples: &dyn data::Samples,
        first: u64,
        block: Block,
    ) -> Result<(Input, Option<Tensor>)> {
        let place = self.groups.place;
        let (mut tokens, mut targets) = (None, None);
        if place.is_first_stage() || place.is_last_stage() {
            let at = (self.device, self.rank());
            let batch = data::read(samples, first, block.range(), self.plan, at)?;
            tokens = Some(batch.inputs);
            targets = place.is_last_stage().then_some(batch.targets);
        }
        match tokens {
            Some(tokens) if place.is_first_stage() => Ok((Input::Tokens(tokens), targets)),
            _ => Ok((
                Input::Hidden(self.receive(block, place.pp_rank - 1)?),
                targets,
            )),
        }
    }

    fn receive(&self, block: Block, stage: usize) -> Result<Tensor> {
        let dims = [block.size * self.plan.seq_length, self.plan.model.d_model];
        let rank = self.rank();
        let x = Tensor::empty(&dims, DType::F32, self.device);
        let mut x = x.on_rank(rank, "allocate activations")?;
        let from = self.groups.place.on_stage(stage);
        self.groups
            .world
            .recv(from, x.f32_mut())
            .on_rank(rank, "receive from another stage")?;
        Ok(x)
    }

    fn pass_on(&self, output: Output, block: Block, losses: &mut Vec<(usize, f64)>) -> Result<()> {
        match output {
            Output::Hidden(x) => {
                let to = self.groups.place.on_stage(self.groups.place.pp_rank + 1);
                self.groups
                    .world
                    .send(to, x.f32())
                    .on_rank(self.rank(), "send activations")
            }
            Output::Losses(sums) => {
                losses.extend(block.range().zip(sums));
                Ok(())
            }
        }
    }
}
