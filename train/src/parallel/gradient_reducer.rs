//! Gradient reduction of a step over everything that shares a weight: micro-batches, context-parallel and
//! data-parallel ranks. Reduction of a unit (bucket) starts as soon as the backward pass has left it, on a separate
//! thread and, on a GPU, a separate stream, and so overlaps with computation (bucketed overlap: Li et al. 2020,
//! arXiv:2006.15704, sec. 3.2).
//!
//! ZeRO 0 and 1 without expert parallelism: a rank sums its micro-batches locally and reduces each unit over ranks
//! after the last one. Otherwise each micro-batch is reduced over ranks at once and a rank keeps only its shard.
//! With context parallelism in layout mode, each sequence's parts are joined first; ranks that need the same sums
//! each add a part of a unit and exchange them at the end. Trees are those of gradient_tree.rs: which thread or
//! rank adds changes no bits.

use std::ops::Range;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use kernels::comm::Collective;
use kernels::comm::tensors::{self, Part, overlap};
use kernels::trace::Recorder;
use kernels::{DType, Device, Error, Mark, Stream, SumOrder, Tensor, Use, View};

use crate::config::plan::Plan;
use crate::data::micro_batches::{Block, merged};
use crate::dist::mesh::Groups;
use crate::model::gradients::Gradients;
use crate::model::param::Spec;
use crate::model::slots::{Slot, Slots};
use crate::model::stage::Stage;
use crate::parallel::gradient_tree::{FlatTree, GradientTree};
use crate::parallel::zero::LocalShards;
use crate::profile;

/// Gradients of one unit on this rank.
struct Bucket {
    /// Slots in flat order.
    slots: Range<Slot>,
    /// Borders of the data-parallel shards.
    cuts: Vec<usize>,
    /// Only ranks with the same experts share it, and it holds sums over all of a group's sequences.
    is_experts: bool,
    /// It has no gradients.
    is_frozen: bool,
}

/// Reduction rule of this job.
struct Rule {
    sums: SumOrder,
    zero: u8,
    is_by_round: bool,
    /// Expert-parallel rank, and number of such ranks.
    ep: (usize, usize),
    /// Sequences in the global batch.
    batch: usize,
}

enum Job {
    /// One micro-batch of a layer.
    Block(usize, Block, Gradients),
    /// All micro-batches of a layer on this rank.
    All(usize, Vec<(Block, Gradients)>),
    /// The step is over.
    End,
}

/// Performs the reductions over ranks, on either lane.
struct Reducer {
    rule: Rule,
    buckets: Vec<Bucket>,
    /// Buckets of each layer.
    parts: Vec<Vec<usize>>,
    dp: Arc<dyn Collective>,
    expert_dp: Arc<dyn Collective>,
    cp: Arc<dyn Collective>,
    device: Device,
    trees: Vec<FlatTree>,
    done: Vec<Option<Tensor>>,
}

impl Reducer {
    fn work(&mut self, job: Job) -> kernels::Result<()> {
        let _span = profile::phase("sum gradients");
        match job {
            Job::Block(part, block, mut gradients) => {
                for bucket in self.parts[part].clone() {
                    let mut flat = self.flat(bucket, &mut gradients)?;
                    if self.is_in_parts() {
                        let cuts = self.part_cuts(bucket);
                        let part = scattered(self.cp.as_ref(), &flat, &cuts)?;
                        self.push(bucket, block, part)?;
                        continue;
                    }
                    // experts' gradients were already reduced over context-parallel ranks, sequence by sequence
                    let is_joined = self.buckets[bucket].is_experts;
                    if self.rule.sums.is_tree() && self.cp.size() > 1 && !is_joined {
                        tensors::all_reduce_sum(self.cp.as_ref(), flat.view_mut())?;
                    }
                    self.take_block(bucket, block, flat)?;
                }
            }
            Job::All(part, mut blocks) => {
                for bucket in self.parts[part].clone() {
                    for (block, gradients) in &mut blocks {
                        let flat = self.flat(bucket, gradients)?;
                        self.trees[bucket].push(*block, flat, self.rule.sums)?;
                    }
                    self.finish(bucket)?;
                }
            }
            Job::End => {
                for bucket in 0..self.buckets.len() {
                    if self.buckets[bucket].is_frozen {
                        self.done[bucket] = Some(empty(0, &self.device)?);
                    } else if self.done[bucket].is_none() {
                        self.finish(bucket)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// True if context-parallel ranks, which need the same sums, add a part of each unit every
    /// sequence and put the parts together at the end.
    fn is_in_parts(&self) -> bool {
        self.rule.sums.is_tree() && self.cp.size() > 1 && !self.rule.is_by_round
    }

    fn part_cuts(&self, bucket: usize) -> Vec<usize> {
        let len = self.len(bucket);
        context_cuts(len, self.cp.size())
    }

    /// Ranks that share out a unit.
    fn group(&self, bucket: usize) -> &Arc<dyn Collective> {
        if self.buckets[bucket].is_experts {
            &self.expert_dp
        } else {
            &self.dp
        }
    }

    fn len(&self, bucket: usize) -> usize {
        let cuts = &self.buckets[bucket].cuts;
        cuts[cuts.len() - 1]
    }

    /// A unit's gradients as one contiguous tensor, copied if they are not contiguous.
    fn flat(&self, bucket: usize, gradients: &mut Gradients) -> kernels::Result<Tensor> {
        if let Some(flat) = gradients.take(self.buckets[bucket].slots.clone()) {
            return Ok(flat);
        }
        let len = self.len(bucket);
        let mut flat = Tensor::empty(&[len], DType::F32, &self.device)?;
        let mut at = 0;
        for slot in self.buckets[bucket].slots.clone() {
            let part = gradients.tensor(slot).view();
            kernels::copy(flat.flat_mut(at..at + part.len())?, part)?;
            at += part.len();
        }
        Ok(flat)
    }

    fn push(&mut self, bucket: usize, block: Block, flat: Tensor) -> kernels::Result<()> {
        self.trees[bucket].push(block, flat, self.rule.sums)
    }

    /// This rank's part of a round, or all of it without sharding.
    fn take_block(&mut self, bucket: usize, block: Block, flat: Tensor) -> kernels::Result<()> {
        let dp = Arc::clone(self.group(bucket));
        let (size, rank) = (dp.size(), dp.rank());
        let mut block = block;
        if self.buckets[bucket].is_experts {
            let (ep_rank, ep) = self.rule.ep;
            block.start -= ep_rank * block.size;
            block.size *= ep;
        }
        if !self.rule.is_by_round || size == 1 {
            return self.push(bucket, block, flat);
        }
        let first = block.start - rank * block.size;
        let cuts = self.buckets[bucket].cuts.clone();
        if !self.rule.sums.is_tree() || size.is_power_of_two() {
            let sum = scattered(dp.as_ref(), &flat, &cuts)?;
            let round = Block {
                start: first,
                size: size * block.size,
            };
            return self.push(bucket, round, sum);
        }
        // ranks' blocks of a round do not all merge with each other; the tree over micro-batches merges them
        let keep = cuts[rank]..cuts[rank + 1];
        let parts = (0..size).map(|_| empty(keep.len(), &self.device));
        let mut parts = parts.collect::<kernels::Result<Vec<Tensor>>>()?;
        let mut targets: Vec<&mut Tensor> = parts.iter_mut().collect();
        let lens = vec![flat.elements(); size];
        tensors::all_gather(
            dp.as_ref(),
            flat.view(),
            &lens,
            &mut targets,
            |from, elements| overlap(&elements, &keep, 0, from).into_iter().collect(),
        )?;
        drop(flat);
        for (from, part) in parts.into_iter().enumerate() {
            let block = Block {
                start: first + from * block.size,
                size: block.size,
            };
            self.push(bucket, block, part)?;
        }
        Ok(())
    }

    /// The sum over all ranks: of the whole unit, or of this rank's shard if moments are shared out.
    fn finish(&mut self, bucket: usize) -> kernels::Result<()> {
        let tree = std::mem::take(&mut self.trees[bucket]);
        let (len, zero) = (self.len(bucket), self.rule.zero);
        let cuts = &self.buckets[bucket].cuts;
        let dp = self.group(bucket);
        let (is_shared, rank) = (dp.size() > 1, dp.rank());
        let is_over_ranks = is_shared && !self.rule.is_by_round;
        let sum = if self.is_in_parts() {
            let part = self.part_cuts(bucket);
            let width = part[self.cp.rank() + 1] - part[self.cp.rank()];
            let sum = if is_over_ranks {
                self.over_ranks(tree, width, None)?
            } else {
                whole(tree)?
            };
            let all = gathered(self.cp.as_ref(), sum.flat(0..width)?, &part, &self.device)?;
            if zero == 1 {
                let keep = cuts[rank]..cuts[rank + 1];
                let mut shard = empty(keep.len(), &self.device)?;
                kernels::copy(shard.flat_mut(0..keep.len())?, all.flat(keep)?)?;
                shard
            } else {
                all
            }
        } else if is_over_ranks {
            self.over_ranks(tree, len, (zero == 1).then_some(cuts))?
        } else if is_shared && zero == 0 {
            // shards of every rank's rounds
            let shard = whole(tree)?;
            let shard = shard.flat(0..cuts[rank + 1] - cuts[rank])?;
            gathered(dp.as_ref(), shard, cuts, &self.device)?
        } else {
            whole(tree)?
        };
        self.done[bucket] = Some(self.over_context(sum)?);
        Ok(())
    }

    /// Without the tree's order, parts of sequences are summed once per step.
    fn over_context(&self, mut sum: Tensor) -> kernels::Result<Tensor> {
        if !self.rule.sums.is_tree() && self.cp.size() > 1 {
            tensors::all_reduce_sum(self.cp.as_ref(), sum.view_mut())?;
        }
        Ok(sum)
    }

    /// Sums `width` elements over data-parallel ranks; with `cuts`, this rank's shard of them.
    fn over_ranks(
        &self,
        tree: FlatTree,
        width: usize,
        cuts: Option<&Vec<usize>>,
    ) -> kernels::Result<Tensor> {
        let (size, rank, batch) = (self.dp.size(), self.dp.rank(), self.rule.batch);
        let is_even = batch.is_multiple_of(size) && (batch / size).is_power_of_two();
        if !self.rule.sums.is_tree() || is_even {
            // one block of the same aligned size each: the group's tree by rank is the same tree
            let mut sum = whole(tree)?;
            let Some(cuts) = cuts else {
                tensors::all_reduce_sum(self.dp.as_ref(), sum.view_mut())?;
                return Ok(sum);
            };
            return scattered(self.dp.as_ref(), &sum, cuts);
        }
        // every rank gathers every block and finishes the tree by itself
        let keep = cuts.map_or(0..width, |cuts| cuts[rank]..cuts[rank + 1]);
        let mut mine = empty(tree.blocks().len() * width, &self.device)?;
        for (at, flat) in tree.blocks().enumerate() {
            let to = mine.flat_mut(at * width..(at + 1) * width)?;
            kernels::copy(to, flat.flat(0..width)?)?;
        }
        drop(tree);
        let blocks_of = |rank: usize| merged(batch * rank / size..batch * (rank + 1) / size);
        let blocks: Vec<Vec<Block>> = (0..size).map(blocks_of).collect();
        let before = |rank: usize| blocks[..rank].iter().map(Vec::len).sum::<usize>();
        let parts = (0..before(size)).map(|_| empty(keep.len(), &self.device));
        let mut parts = parts.collect::<kernels::Result<Vec<Tensor>>>()?;
        let mut targets: Vec<&mut Tensor> = parts.iter_mut().collect();
        let mine_of = mine.flat(0..blocks[rank].len() * width)?;
        let lens: Vec<usize> = blocks.iter().map(|of| of.len() * width).collect();
        tensors::all_gather(
            self.dp.as_ref(),
            mine_of,
            &lens,
            &mut targets,
            |from, elements| {
                let all = 0..blocks[from].len();
                let parts = all.filter_map(|at| {
                    let run = at * width + keep.start..at * width + keep.end;
                    overlap(&elements, &run, 0, before(from) + at)
                });
                parts.collect()
            },
        )?;
        drop(mine);
        let mut tree = FlatTree::default();
        for (block, part) in blocks.into_iter().flatten().zip(parts) {
            tree.push(block, part, SumOrder::Tree)?;
        }
        whole(tree)
    }

    /// The sums of the step, by bucket.
    fn take(&mut self) -> Vec<Tensor> {
        let done = self.done.iter_mut().map(Option::take);
        done.map(|sum| sum.expect("the end of a step finishes every bucket"))
            .collect()
    }
}

/// A job, after the work that wrote its gradients.
type Given = (Job, Mark);

/// The sums of a step, after the work that writes them.
type Sums = (Vec<Tensor>, Mark);

/// Where a rank's reductions over ranks run.
enum Lane {
    Here(Box<Reducer>),
    Thread(Sender<Given>, Receiver<kernels::Result<Sums>>),
}

/// Answers once per step, or with the first error and no more.
fn serve(mut summer: Reducer, jobs: &Receiver<Given>, answers: &Sender<kernels::Result<Sums>>) {
    let device = summer.device.clone();
    let _on = device.enter(Stream::Gradients);
    for (job, written) in jobs {
        let is_end = matches!(job, Job::End);
        let done = device.wait(&written).and_then(|()| summer.work(job));
        if let Err(error) = done {
            // the receiver may be gone
            let _ = answers.send(Err(error));
            return;
        }
        let mut sums = || device.mark().map(|mark| (summer.take(), mark));
        if is_end && answers.send(sums()).is_err() {
            return;
        }
    }
}

/// One rank's gradients during a step, and their reduction.
pub(crate) struct GradientReducer {
    is_direct: bool,
    /// Dims of every gradient slot.
    dims: Vec<Vec<usize>>,
    /// Slots of each layer's units.
    units: Vec<Vec<Range<Slot>>>,
    trees: Vec<GradientTree>,
    open: Option<(Block, Gradients)>,
    device: Device,
    lane: Lane,
}

impl GradientReducer {
    /// For all layers of a rank's model chunks, numbered consecutively.
    pub(crate) fn new(
        plan: &Plan,
        specs: &[Spec],
        groups: &Groups,
        local_shards: &LocalShards,
        stages: &[Stage],
        device: &Device,
    ) -> GradientReducer {
        let device = device.for_use(Use::Gradients);
        let slots = Slots::on(&groups.place, specs);
        let further: Vec<Slot> = slots.further_uses().iter().map(|(slot, _)| *slot).collect();
        let mut dims = local_shards.dims.clone();
        dims.extend(further.iter().map(|&slot| local_shards.dims[slot].clone()));
        let (shards, local) = (&local_shards.shards, &local_shards.local);
        let mut buckets: Vec<Bucket> = local
            .iter()
            .map(|local| Bucket {
                slots: local.slots.clone(),
                cuts: shards.units[local.unit].cuts.clone(),
                is_experts: shards.units[local.unit].is_experts(),
                is_frozen: shards.units[local.unit].is_frozen,
            })
            .collect();
        let weights = local.last().map_or(0, |local| local.slots.end);
        for (at, slot) in further.iter().enumerate() {
            // each further use of a tensor has its own gradient
            let unit = buckets.iter().find(|bucket| bucket.slots.contains(slot));
            let cuts = unit.map_or(Vec::new(), |unit| unit.cuts.clone());
            let is_frozen = unit.is_some_and(|unit| unit.is_frozen);
            buckets.push(Bucket {
                slots: weights + at..weights + at + 1,
                cuts,
                is_experts: false,
                is_frozen,
            });
        }
        let parts = stages.iter().flat_map(|stage| &stage.layers);
        let slots: Vec<Vec<Slot>> = parts.map(|part| part.gradients.clone()).collect();
        let holds = |bucket: &Bucket, slots: &[Slot]| {
            !bucket.is_frozen && slots.contains(&bucket.slots.start)
        };
        let of_parts = slots.iter().map(|slots| {
            let all = buckets.iter().enumerate();
            all.filter(|(_, bucket)| holds(bucket, slots))
                .map(|(i, _)| i)
                .collect()
        });
        let of_parts: Vec<Vec<usize>> = of_parts.collect();
        let slots_of = |units: &Vec<usize>| {
            units
                .iter()
                .map(|&unit| buckets[unit].slots.clone())
                .collect()
        };
        let units: Vec<Vec<Range<Slot>>> = of_parts.iter().map(slots_of).collect();
        let sums = plan.sum_order();
        let count = buckets.len();
        let summer = Reducer {
            rule: Rule {
                sums,
                zero: plan.parallel.zero,
                is_by_round: plan.parallel.is_summed_by_round(),
                ep: (groups.place.ep_rank(), groups.place.ep),
                batch: plan.train.global_batch,
            },
            buckets,
            parts: of_parts,
            dp: Arc::clone(&groups.sums),
            expert_dp: Arc::clone(&groups.expert_sums),
            cp: Arc::clone(&groups.cp_sums),
            device: device.clone(),
            trees: (0..count).map(|_| FlatTree::default()).collect(),
            done: (0..count).map(|_| None).collect(),
        };
        let is_alone = groups.place.dp == 1 && groups.place.cp == 1;
        let lane = if plan.parallel.overlap && !is_alone {
            let (jobs, inbox) = channel();
            let (outbox, answers) = channel();
            let recorder = Recorder::here();
            std::thread::spawn(move || {
                if let Some(recorder) = recorder {
                    recorder.install(1);
                }
                serve(summer, &inbox, &outbox);
            });
            Lane::Thread(jobs, answers)
        } else {
            Lane::Here(Box::new(summer))
        };
        let trees = units.iter().cloned();
        GradientReducer {
            is_direct: !plan.parallel.is_summed_by_round()
                && (!sums.is_tree() || groups.place.cp == 1),
            dims,
            trees: trees.map(|units| GradientTree::new(units, sums)).collect(),
            units,
            open: None,
            device,
            lane,
        }
    }

    /// Buffers to which the backward pass of `part` over `block` is to be added.
    pub(crate) fn open(&mut self, part: usize, block: Block) -> kernels::Result<&mut Gradients> {
        if self.is_direct {
            return self.trees[part].open(block, &self.dims, &self.device);
        }
        let gradients = Gradients::of(&self.units[part], &self.dims, &self.device)?;
        let (_, gradients) = self.open.insert((block, gradients));
        Ok(gradients)
    }

    /// To be called when that backward pass is complete; `is_last`: it was the step's last of the part.
    pub(crate) fn close(&mut self, part: usize, is_last: bool) -> kernels::Result<()> {
        if self.is_direct {
            self.trees[part].close()?;
            if is_last {
                let blocks = self.trees[part].take();
                return self.give(Job::All(part, blocks));
            }
            return Ok(());
        }
        match self.open.take() {
            Some((block, gradients)) => self.give(Job::Block(part, block, gradients)),
            None => Ok(()),
        }
    }

    /// Bytes of gradients now.
    pub(crate) fn used_bytes(&self) -> usize {
        self.device.used_bytes()
    }

    fn give(&mut self, job: Job) -> kernels::Result<()> {
        match &mut self.lane {
            Lane::Here(summer) => summer.work(job),
            Lane::Thread(jobs, answers) => match jobs.send((job, self.device.mark()?)) {
                Ok(()) => Ok(()),
                // the thread ends early only after it has sent its error
                Err(_) => match answers.recv() {
                    Ok(Err(error)) => Err(error),
                    _ => Err(gone()),
                },
            },
        }
    }

    /// Waits for the sums of the step: flat, by local unit, then those of further uses of tensors; shards where
    /// moments are shared out. The same bits on every rank that holds them.
    pub(crate) fn finish(&mut self) -> kernels::Result<Vec<Tensor>> {
        self.give(Job::End)?;
        match &mut self.lane {
            Lane::Here(summer) => Ok(summer.take()),
            Lane::Thread(_, answers) => {
                let _span = profile::wait("wait for sums");
                let (sums, written) = answers.recv().unwrap_or_else(|_| Err(gone()))?;
                self.device.wait(&written)?;
                Ok(sums)
            }
        }
    }
}

/// The whole content of a tree.
fn whole(tree: FlatTree) -> kernels::Result<Tensor> {
    let sum = tree.finish()?;
    Ok(sum.expect("every rank has at least one sequence"))
}

/// Even parts of a unit's flat elements over context-parallel ranks. In layout mode a unit has at
/// least 8 elements and cp divides 8, so no part is empty.
pub(crate) fn context_cuts(len: usize, cp: usize) -> Vec<usize> {
    (0..=cp).map(|rank| len * rank / cp).collect()
}

/// A tensor of `len` elements to be written. A tensor has at least one, which is 0; a shard of a small unit maybe none.
fn empty(len: usize, device: &Device) -> kernels::Result<Tensor> {
    match len {
        0 => Tensor::zeros(&[1], DType::F32, device),
        _ => Tensor::empty(&[len], DType::F32, device),
    }
}

/// This rank's part of the sum of `x` over ranks.
fn scattered(group: &dyn Collective, x: &Tensor, cuts: &[usize]) -> kernels::Result<Tensor> {
    let width = cuts[group.rank() + 1] - cuts[group.rank()];
    let mut part = empty(width, x.device())?;
    tensors::reduce_scatter_sum(group, x.view(), cuts, part.flat_mut(0..width)?)?;
    Ok(part)
}

/// The parts of all ranks, one behind the other.
fn gathered(
    group: &dyn Collective,
    part: View<'_>,
    firsts: &[usize],
    device: &Device,
) -> kernels::Result<Tensor> {
    let mut whole = Tensor::empty(&[firsts[group.size()]], DType::F32, device)?;
    let lens: Vec<usize> = firsts.windows(2).map(|cut| cut[1] - cut[0]).collect();
    tensors::all_gather(group, part, &lens, &mut [&mut whole], |rank, from| {
        let at = firsts[rank] + from.start;
        vec![Part {
            from,
            target: 0,
            at,
        }]
    })?;
    Ok(whole)
}

fn gone() -> Error {
    Error::PeerGone {
        rank: 0,
        op: "sum gradients",
    }
}
