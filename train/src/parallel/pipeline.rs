//! Runs one rank's model chunks through a step's pipeline schedule. Activations are sent to the next chunk and
//! gradients to the previous one as exact copies, each rank to its counterpart on the other stage. What the next action
//! reads is received while an action runs, where the host need not wait for it.

use std::collections::VecDeque;

use kernels::comm::Receiving;
use kernels::{Device, Tensor, download_words};

use crate::config::exact::narrow;
use crate::config::plan::Plan;
use crate::data;
use crate::data::Batch;
use crate::data::documents::PairRows;
use crate::data::micro_batches::{Block, blocks_of, micro_batches};
use crate::dist::mesh::{Groups, RankCoord};
use crate::error::{OnRank, Result};
use crate::model::context::{Context, Noise, Pair, Routing, SequenceShard, Weights};
use crate::model::fp8_delayed::Delayed;
use crate::model::stage::{Flow, FlowGrad, Pass, Saved, Stage};
use crate::parallel::gradient_reducer::GradientReducer;
use crate::parallel::losses::{Losses, Means, PreferenceRecord};
use crate::parallel::offload::{Away, Scratch};
use crate::parallel::routing::Reports;
use crate::parallel::schedule::{Action, actions};
use crate::parallel::stage_messages::{Direction, Incoming, StageMessages};
use crate::parallel::zero::Parameters;
use crate::profile;

/// Flow control in evaluation: activations that may wait at the next rank. Nothing else would hold the first stage
/// back, which receives nothing; in training its schedule does.
const MOST_UNTAKEN: usize = 2;

/// Everything that one rank needs to run its model chunks.
pub(crate) struct Worker<'a> {
    pub plan: &'a Plan,
    /// The rank's model chunks.
    pub stages: &'a [Stage],
    pub groups: &'a Groups,
    pub device: &'a Device,
    pub parameters: Parameters<'a>,
    /// For layers that are offloaded.
    pub scratch: Option<&'a Scratch>,
    /// Loss scale of the backward pass.
    pub loss_scale: f64,
    /// Scales of fp8's `delayed` recipe.
    pub delayed: Option<&'a Delayed>,
}

/// A layer's saved tensors for its backward pass.
struct Kept {
    saved: Saved,
    /// Location of its large tensors, if they are offloaded.
    away: Option<Away>,
}

/// Peak bytes at the end of a pass, when no layer runs.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Held {
    /// Activations kept for backward.
    pub activations: usize,
    /// Sums of gradients; exact only without a second thread.
    pub gradients: usize,
    /// Prepacked weights.
    pub packs: usize,
}

/// Results of an evaluation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Evaluated {
    /// Mean over the predictions that count, nats.
    pub loss: f64,
    /// Share of questions whose right label has the largest score, if the model classifies; of preference pairs whose chosen
    /// answer has the larger reward.
    pub accuracy: Option<f64>,
    /// Means over preference pairs, if it learns from such.
    pub preference: Option<PreferenceRecord>,
}

/// Where a step's global batch begins.
#[derive(Clone, Copy)]
pub(crate) struct StepStart {
    pub step: u64,
    /// Its first sample.
    pub first: u64,
}

/// One backward pass of a chunk.
struct BackwardOf {
    chunk: usize,
    block: Block,
    /// True for the last micro-batch, after which gradients are reduced.
    is_last: bool,
    /// Gradient of the chunk's output; none for the last chunk.
    slope: FlowGrad,
}

/// A training's part of a step.
pub(crate) struct Turn<'a> {
    pub worker: Worker<'a>,
    pub samples: &'a dyn data::Samples,
    pub start: StepStart,
    /// The sums of its gradients so far.
    pub sums: &'a mut GradientReducer,
}

/// A turn's micro-batches, and what its passes leave.
struct Passes {
    blocks: Vec<Block>,
    batches: Vec<Batch>,
    /// Weight of a prediction, and of one of a further depth.
    weight: f32,
    further_weight: Option<f32>,
    losses: Losses,
    reports: Reports,
}

impl Passes {
    /// Pass of a micro-batch.
    fn pass(&self, micro: usize, noise: Option<Noise>) -> Pass<'_> {
        Pass {
            batch: &self.batches[micro],
            weight: self.weight,
            further_weight: self.further_weight,
            noise,
        }
    }
}

/// Results of a rank's passes in a step.
pub(crate) struct Trained {
    /// Losses of this rank's part of the batch.
    pub losses: Losses,
    /// Peak bytes held between passes.
    pub held: Held,
    /// Statistics of the mixtures' routers.
    pub reports: Reports,
}

impl Worker<'_> {
    fn rank(&self) -> usize {
        self.groups.place.rank()
    }

    /// Without weights, which are gathered layer by layer.
    fn context(&self) -> Context<'_> {
        Context::of(self.plan, Weights::All(&[], None), self.groups)
    }

    /// For a micro-batch.
    fn context_of<'a>(&'a self, pass: Pass<'a>, drops: bool) -> Context<'a> {
        // only passes of a step drop
        let cx = self.context().with_scales(self.delayed, drops);
        Context {
            sequence: SequenceShard {
                documents: pass.batch.documents.as_ref(),
                ..cx.sequence
            },
            pair: cx.pair.map(|pair| Pair {
                rows: PairRows {
                    seen: &pass.batch.seen,
                    ..pair.rows
                },
                ..pair
            }),
            noise: pass.noise,
            routing: Routing {
                sequence_weight: cx.routing.sequence_weight * self.loss_scale,
                drops,
            },
            ..cx
        }
    }

    /// Key of a micro-batch's dropout, if the model has any.
    fn noise(&self, start: StepStart, block: Block) -> Option<Noise> {
        let model = &self.plan.model;
        let of_adapters = model.lora.as_ref().map_or(0.0, |lora| lora.dropout);
        let drops = model.dropout > 0.0 || model.attention_dropout > 0.0 || of_adapters > 0.0;
        drops.then_some(Noise {
            seed: self.plan.seed,
            step: start.step,
            sequence: start.first + block.start as u64,
        })
    }

    /// Index of a chunk's first layer, over all chunks of this rank.
    fn first_part(&self, chunk: usize) -> usize {
        self.stages[..chunk]
            .iter()
            .map(|stage| stage.layers.len())
            .sum()
    }

    /// Reads this rank's part of a step's global batch.
    fn begin(&self, samples: &dyn data::Samples, start: StepStart) -> Result<Passes> {
        let blocks = micro_batches(self.plan, &self.groups.place);
        let batches = self.read_all(samples, start.first, &blocks)?;
        let counted = self.counted(&counts_of(self.plan, &batches))?;
        let of_model = counted.first().copied().unwrap_or(0);
        Ok(Passes {
            weight: narrow(self.loss_scale) / of_model.max(1) as f32,
            further_weight: self.further_weight(of_model),
            losses: Losses::of(&counted, self.plan.train.global_batch),
            reports: Reports::default(),
            blocks,
            batches,
        })
    }

    fn read_all(
        &self,
        samples: &dyn data::Samples,
        first: u64,
        blocks: &[Block],
    ) -> Result<Vec<Batch>> {
        let _span = profile::phase("read data");
        let read = blocks.iter().map(|block| self.read(samples, first, *block));
        read.collect()
    }

    fn read(&self, samples: &dyn data::Samples, first: u64, block: Block) -> Result<Batch> {
        let at = (self.device, &self.groups.place);
        data::read(samples, first, block.range(), self.plan, at)
    }

    /// Weight of a prediction of a depth of multi-token prediction: the mean over depths, each divided by the model's own number of
    /// predictions, as in the paper and in Megatron with `calculate_per_token_loss`.
    fn further_weight(&self, counted: usize) -> Option<f32> {
        let model = &self.plan.model;
        let depths = (model.mtp_num_layers > 0).then_some(model.mtp_num_layers)?;
        let factor = self.loss_scale * model.mtp_loss_scaling_factor / depths as f64;
        Some(narrow(factor / counted.max(1) as f64))
    }

    /// All-reduced numbers of predictions that count.
    fn counted(&self, here: &[usize]) -> Result<Vec<usize>> {
        let RankCoord {
            tp_rank,
            cp_rank,
            pp_rank,
            ..
        } = self.groups.place;
        let is_told = (tp_rank, cp_rank, pp_rank) == (0, 0, 0);
        let mine = here
            .iter()
            .map(|&here| if is_told { here as f64 } else { 0.0 });
        let mine: Vec<f64> = mine.collect();
        let all = self.groups.world.all_gather_f64(&mine);
        let all = all.on_rank(self.rank(), "count the batch's predictions")?;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a sum of whole numbers below 2^53"
        )]
        let sum = |at: usize| all.iter().map(|rank| rank[at]).sum::<f64>() as usize;
        Ok((0..here.len()).map(sum).collect())
    }

    /// Returns the output and the tensors kept for backward, which are empty unless `keeps`.
    fn forward(
        &self,
        chunk: usize,
        input: Flow,
        pass: Pass<'_>,
        keeps: bool,
    ) -> Result<(Flow, Vec<Kept>)> {
        let (cx, rank) = (self.context_of(pass, keeps), self.rank());
        let mut flow = input;
        let (mut kept, mut scores) = (Vec::new(), None);
        let mut ahead = None;
        let layers = &self.stages[chunk].layers;
        for (index, part) in layers.iter().enumerate() {
            let lent = self.parameters.ready(&part.weights, ahead.take());
            let lent = lent.on_rank(rank, "gather weights")?;
            if let Some(next) = layers.get(index + 1) {
                let started = self.parameters.prefetch(&next.weights);
                ahead = started.on_rank(rank, "gather weights")?;
            }
            let span = profile::layer(part.name(), "forward");
            let (output, mut saved) = part
                .forward(flow, pass, &cx.with(lent.weights()))
                .on_rank(rank, "forward")?;
            drop(span);
            if keeps {
                let away = match self.scratch.filter(|_| part.is_offloaded) {
                    Some(scratch) => {
                        let _span = profile::phase("put activations away");
                        Some(scratch.put(saved.large())?)
                    }
                    None => None,
                };
                kept.push(Kept { saved, away });
            } else {
                scores = saved.into_scores();
            }
            flow = output;
        }
        let mut flow = flow.joined(&cx).on_rank(rank, "join rows")?;
        if let (Flow::Losses(losses), Some(scores)) = (&mut flow, scores) {
            losses.scores = Some((scores, pass.batch.labels.clone()));
        }
        Ok((flow, kept))
    }

    fn backward(
        &self,
        BackwardOf {
            chunk,
            block,
            is_last,
            mut slope,
        }: BackwardOf,
        mut all: Vec<Kept>,
        pass: Pass<'_>,
        sums: &mut GradientReducer,
    ) -> Result<()> {
        let (cx, rank) = (self.context_of(pass, true), self.rank());
        let (model_chunk, first) = (self.model_chunk(chunk), self.first_part(chunk));
        let mut ahead = None;
        let layers = &self.stages[chunk].layers;
        for (index, part) in layers.iter().enumerate().rev() {
            let lent = self.parameters.ready(&part.weights, ahead.take());
            let lent = lent.on_rank(rank, "gather weights")?;
            if let Some(next) = index.checked_sub(1) {
                let started = self.parameters.prefetch(&layers[next].weights);
                ahead = started.on_rank(rank, "gather weights")?;
            }
            let kept = all.pop().expect("forward kept something for each part");
            let mut saved = kept.saved;
            if let (Some(scratch), Some(away)) = (self.scratch, kept.away) {
                let _span = profile::phase("bring activations back");
                scratch.bring_back(away, saved.large())?;
            }
            let gradients = sums.open(first + index, block);
            let gradients = gradients.on_rank(rank, "allocate gradients")?;
            let span = profile::layer(part.name(), "backward");
            slope = part
                .backward(slope, pass, saved, gradients, &cx.with(lent.weights()))
                .on_rank(rank, "backward")?;
            drop(span);
            sums.close(first + index, is_last)
                .on_rank(rank, "sum gradients")?;
        }
        match slope.joined(&cx).on_rank(rank, "join gradients")? {
            Some(dx) if model_chunk > 0 => {
                let to = self
                    .groups
                    .place
                    .on_stage(self.pipeline_rank(model_chunk - 1));
                let sent = self.messages().send(Direction::Back, to, dx);
                sent.on_rank(rank, "send gradients")
            }
            _ => Ok(()),
        }
    }

    /// Mean loss of the first `count` samples, and accuracy if the model has classes; forward only, keeping nothing.
    pub(crate) fn evaluate(&self, samples: &dyn data::Samples, count: usize) -> Result<Evaluated> {
        let losses = self.evaluated(samples, count)?;
        let words = download_words(&losses.tensors());
        let words = words.on_rank(self.rank(), "read the losses")?;
        let means = losses.means(&words, (self.plan, self.groups));
        let Means {
            loss, preference, ..
        } = means.on_rank(self.rank(), "gather losses")?;
        let accuracy = match &self.plan.model.classify {
            None => preference.map(|pairs| pairs.accuracy),
            Some(classify) if classify.is_regression() => None,
            Some(_) => {
                let right = losses.right(self.groups);
                let right = right.on_rank(self.rank(), "gather right answers")?;
                Some(right / losses.counted.max(1) as f64)
            }
        };
        Ok(Evaluated {
            loss,
            accuracy,
            preference,
        })
    }

    /// Log-probabilities of the answers of the pairs of all samples, which hold each pair once; the same bits on every rank.
    pub(crate) fn log_probabilities(&self, samples: &dyn data::Samples) -> Result<Vec<[f64; 2]>> {
        let count = usize::try_from(samples.len()).unwrap_or(usize::MAX);
        let losses = self.evaluated(samples, count)?;
        let found = losses.log_probabilities(self.groups, losses.counted);
        found.on_rank(self.rank(), "gather the reference")
    }

    /// Scores of the questions of the first `count` samples of a model that classifies, on a rank alone.
    pub(crate) fn scores(&self, samples: &dyn data::Samples, count: usize) -> Result<Vec<f32>> {
        let scores = self.evaluated(samples, count)?.scores();
        scores.on_rank(self.rank(), "read scores")
    }

    /// Losses of this rank's part of the first `count` samples.
    fn evaluated(&self, samples: &dyn data::Samples, count: usize) -> Result<Losses> {
        let place = self.groups.place;
        let choices = self.plan.model.choices();
        let of = |dp_rank| {
            let questions = RankCoord { dp_rank, ..place }.batch_range(count / choices);
            blocks_of(
                self.plan,
                questions.start * choices..questions.end * choices,
            )
        };
        let blocks = of(place.dp_rank);
        let (mut losses, mut counted, mut untaken) = (Losses::of(&[0], count), 0, 0);
        for &block in &blocks {
            counted += self.evaluate_block(samples, block, (&mut losses, &mut untaken))?;
        }
        let most = (0..place.dp).map(|rank| of(rank).len()).max().unwrap_or(0);
        for _ in blocks.len()..most {
            self.keep_company(samples, &mut untaken)?;
        }
        self.wait_for_the_next(&mut untaken, 0)?;
        losses.counted = self.counted(&[counted])?[0];
        Ok(losses)
    }

    /// Returns how many predictions counted. `untaken`: activations that the next rank has yet to take.
    fn evaluate_block(
        &self,
        samples: &dyn data::Samples,
        block: Block,
        (losses, untaken): (&mut Losses, &mut usize),
    ) -> Result<usize> {
        let batch = &self.read(samples, 0, block)?;
        for chunk in 0..self.stages.len() {
            let forward = Action::Forward { micro: 0, chunk };
            let input = self.receive(self.incoming(forward, block), None)?;
            let input = input.map_or(Flow::Start, Flow::Hidden);
            if let Some(before) = self.model_chunk(chunk).checked_sub(1) {
                let to = self.groups.place.on_stage(self.pipeline_rank(before));
                if self.groups.links.is_some() {
                    // a link's message is asked for before it arrives
                    let arrived = self.device.synchronize();
                    arrived.on_rank(self.rank(), "receive from another stage")?;
                }
                let sent = self.groups.back.send(to, &[0.0]);
                sent.on_rank(self.rank(), "tell another stage")?;
            }
            let pass = Pass {
                batch,
                weight: 0.0,
                further_weight: None,
                noise: None,
            };
            let (output, _) = self.forward(chunk, input, pass, false)?;
            if matches!(output, Flow::Hidden(_)) {
                self.wait_for_the_next(untaken, MOST_UNTAKEN - 1)?;
                *untaken += 1;
            }
            self.pass_on(output, block, chunk, losses)?;
        }
        Ok(batch.counted)
    }

    /// Waits until the next rank has at most this many activations yet to take. Blocks are taken in the
    /// order in which all ranks compute them, so ranks never wait for each other.
    fn wait_for_the_next(&self, untaken: &mut usize, most: usize) -> Result<()> {
        let place = self.groups.place;
        let next = place.on_stage((place.pp_rank + 1) % place.pp);
        while *untaken > most {
            let told = self.groups.back.recv(next, &mut [0.0]);
            told.on_rank(self.rank(), "wait for another stage")?;
            *untaken -= 1;
        }
        Ok(())
    }

    /// Takes part in the collectives of ranks with more sequences than this one: with experts it runs a sequence
    /// and discards it, as others send rows to its experts; with ZeRO-3 it contributes its shards of the weights.
    fn keep_company(&self, samples: &dyn data::Samples, untaken: &mut usize) -> Result<()> {
        if self.groups.place.ep > 1 {
            let size = self.plan.model.choices();
            let block = Block { start: 0, size };
            self.evaluate_block(samples, block, (&mut Losses::of(&[0], 0), untaken))?;
        } else if matches!(self.parameters, Parameters::Shards { .. }) {
            for part in self.stages.iter().flat_map(|stage| &stage.layers) {
                let lent = self.parameters.gather(&part.weights);
                lent.on_rank(self.rank(), "gather weights")?;
            }
        }
        Ok(())
    }

    /// Number of a chunk in the whole model.
    fn model_chunk(&self, chunk: usize) -> usize {
        chunk * self.groups.place.pp + self.groups.place.pp_rank
    }

    fn pipeline_rank(&self, model_chunk: usize) -> usize {
        model_chunk % self.groups.place.pp
    }

    fn messages(&self) -> StageMessages<'_> {
        StageMessages {
            groups: self.groups,
            device: self.device,
        }
    }

    /// The message that an action over a micro-batch reads: activations of the previous chunk, or gradients of the next.
    fn incoming(&self, action: Action, block: Block) -> Option<Incoming> {
        let (direction, other) = match action {
            Action::Forward { chunk, .. } => {
                (Direction::Ahead, self.model_chunk(chunk).checked_sub(1)?)
            }
            Action::Backward { chunk, .. } => (Direction::Back, self.model_chunk(chunk) + 1),
        };
        let is_there = other < self.plan.parallel.model_chunks();
        is_there.then(|| Incoming {
            direction,
            from: self.groups.place.on_stage(self.pipeline_rank(other)),
            dims: [
                block.size * self.context().row_time(),
                self.plan.model.d_model,
            ],
        })
    }

    fn start(&self, message: Option<Incoming>) -> Result<Option<Receiving>> {
        let started = self.messages().start(message);
        started.on_rank(self.rank(), "receive from another stage")
    }

    fn receive(
        &self,
        message: Option<Incoming>,
        started: Option<Receiving>,
    ) -> Result<Option<Tensor>> {
        let received = message.map(|message| self.messages().receive(message, started));
        received
            .transpose()
            .on_rank(self.rank(), "receive from another stage")
    }

    fn pass_on(&self, output: Flow, block: Block, chunk: usize, losses: &mut Losses) -> Result<()> {
        match output {
            Flow::Hidden(x) => {
                let next = self.pipeline_rank(self.model_chunk(chunk) + 1);
                let to = self.groups.place.on_stage(next);
                let sent = self.messages().send(Direction::Ahead, to, x);
                sent.on_rank(self.rank(), "send activations")
            }
            Flow::Losses(sums) => {
                let sequence = self.context().sequence;
                let at = [sequence.first, sequence.time, self.plan.sample_tokens()];
                losses.push(*sums, block, at);
                Ok(())
            }
            Flow::Start | Flow::Pair(..) | Flow::Depths(_) => {
                unreachable!("no part puts out its start, halves are joined, a head follows depths")
            }
        }
    }
}

/// Forward and backward of this rank's part of the global batches of several trainings in one pass through the schedule,
/// those of the first, then those of the next: no stage waits between two of them. Each adds to its own `sums`, and its
/// bits are those of a pass of its own. All have the same layout.
pub(crate) fn train(turns: &mut [Turn<'_>]) -> Result<Vec<Trained>> {
    let begun = turns
        .iter()
        .map(|turn| turn.worker.begin(turn.samples, turn.start));
    let mut passes: Vec<Passes> = begun.collect::<Result<_>>()?;
    let order: Vec<(usize, usize)> = passes
        .iter()
        .enumerate()
        .flat_map(|(turn, passes)| (0..passes.blocks.len()).map(move |micro| (turn, micro)))
        .collect();
    let Some(Turn { worker: first, .. }) = turns.first() else {
        return Ok(Vec::new());
    };
    let mut in_flight: Vec<VecDeque<Vec<Kept>>> =
        first.stages.iter().map(|_| VecDeque::new()).collect();
    let (place, mut held) = (first.groups.place, Held::default());
    let actions = actions(&first.plan.parallel, place.pp_rank, order.len());
    let message = |action: &Action| {
        let (Action::Forward { micro, .. } | Action::Backward { micro, .. }) = *action;
        let (turn, micro) = order[micro];
        let worker = &turns[turn].worker;
        worker.incoming(*action, passes[turn].blocks[micro])
    };
    let messages: Vec<Option<Incoming>> = actions.iter().map(message).collect();
    let mut started = first.start(messages.first().copied().flatten())?;
    for (at, &action) in actions.iter().enumerate() {
        let (Action::Forward { micro, .. } | Action::Backward { micro, .. }) = action;
        let _span = match action {
            Action::Forward { .. } => profile::numbered("forward", micro as u64),
            Action::Backward { .. } => profile::numbered("backward", micro as u64),
        };
        let (turn, micro) = order[micro];
        let Turn {
            worker,
            start,
            sums,
            ..
        } = &mut turns[turn];
        let passes = &mut passes[turn];
        let incoming = worker.receive(messages[at], started.take())?;
        started = worker.start(messages.get(at + 1).copied().flatten())?;
        let block = passes.blocks[micro];
        let pass = passes.pass(micro, worker.noise(*start, block));
        match action {
            Action::Forward { chunk, .. } => {
                let input = incoming.map_or(Flow::Start, Flow::Hidden);
                let (output, saved) = worker.forward(chunk, input, pass, true)?;
                let told = saved.iter().filter_map(|kept| kept.saved.report());
                told.for_each(|report| passes.reports.push(report, block));
                in_flight[chunk].push_back(saved);
                worker.pass_on(output, block, chunk, &mut passes.losses)?;
                held.activations = held.activations.max(worker.device.used_bytes());
            }
            Action::Backward { chunk, .. } => {
                let saved = in_flight[chunk].pop_front();
                let saved = saved.expect("a forward precedes each backward");
                let at = BackwardOf {
                    chunk,
                    block,
                    is_last: micro + 1 == passes.blocks.len(),
                    slope: incoming.map_or(FlowGrad::None, FlowGrad::Hidden),
                };
                worker.backward(at, saved, pass, sums)?;
                held.gradients = held.gradients.max(sums.used_bytes());
            }
        }
    }
    let trained = passes.into_iter().map(|passes| Trained {
        losses: passes.losses,
        held,
        reports: passes.reports,
    });
    Ok(trained.collect())
}

/// Predictions of batches that count: the model's own, then those of each depth of multi-token prediction.
fn counts_of(plan: &Plan, batches: &[Batch]) -> Vec<usize> {
    let own = batches.iter().map(|batch| batch.counted).sum();
    let of_depth = |depth: usize| batches.iter().map(|batch| batch.counted_ahead[depth]).sum();
    let depths = (0..plan.model.mtp_num_layers).map(of_depth);
    [own].into_iter().chain(depths).collect()
}
