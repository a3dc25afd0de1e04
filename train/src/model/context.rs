//! Context of a layer's call: the available weights, its tensor- and context-parallel groups, the leaf sizes of
//! sums. Layers never see the mesh.
//!
//! Rows between layers are `[b * time, d]`; with sequence parallelism each tensor-parallel rank has the same share
//! of every sequence, `[b * time / tp, d]`, and layers whose features are split all-gather the rows before and
//! reduce-scatter the sum after (Korthikanti et al. 2022, arXiv:2205.05198).

use kernels::attention::Dropped;
use kernels::cast::Format;
use kernels::comm::Collective;
use kernels::dropout::{self, Dropout};
use kernels::matmul::{Op, Packed};
use kernels::rope::Positions;
use kernels::{DType, Heads, Tensor};

use crate::config::plan::{FEATURE_CHUNKS, Plan, TOKEN_CHUNKS};
use crate::config::precision::Bf16Sums;
use crate::data::documents::{Documents, Halves};
use crate::dist::mesh::Groups;
use crate::model::fp8::Fp8;
use crate::model::prepacked::PrepackedWeights;
use crate::model::slots::Slot;

/// Whole tensors of the rank by slot.
#[derive(Clone, Copy)]
pub(crate) enum Weights<'a> {
    /// All of them, and prepacked copies if those are kept.
    All(&'a [Tensor], Option<&'a PrepackedWeights>),
    /// Those gathered for the layer that runs.
    Gathered(&'a [Option<Tensor>]),
}

/// Key of dropout's random bits, beside the position in the model.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Noise {
    pub seed: u64,
    pub step: u64,
    /// Number of the micro-batch's first sequence in the order of the samples.
    pub sequence: u64,
}

/// Passed to every layer's forward and backward.
#[derive(Clone, Copy)]
pub(crate) struct Context<'a> {
    pub weights: Weights<'a>,
    pub tp: &'a dyn Collective,
    pub cp: &'a dyn Collective,
    /// Ranks that share out the experts.
    pub ep: &'a dyn Collective,
    /// Tokens of a sequence on this context-parallel rank.
    pub time: usize,
    /// Position of the first of them.
    pub first: usize,
    /// Tokens of the longest sequence.
    pub longest: usize,
    /// Keys of a block of attention's softmax over this sequence.
    pub key_block: usize,
    /// The same for an encoder's and a decoder's sequence.
    pub key_blocks: [usize; 2],
    /// `None`: one document in each sequence.
    pub documents: Option<&'a Documents>,
    /// Encoder-decoder models only, where rows are those of both (`model/packed_rows.rs`).
    pub halves: Option<Halves<'a>>,
    /// `None`: nothing is dropped.
    pub noise: Option<Noise>,
    /// True if rows between layers are shared out over `tp`.
    pub is_sequence: bool,
    /// Tokens per leaf of a weight gradient; 0: one chain over the micro-batch.
    pub token_leaf: usize,
    /// Slices per row-parallel sum over the whole width; 0: one chain over the local width.
    pub feature_chunks: usize,
    /// A sequence's part of the step: 1 / sequences.
    pub sequence_weight: f64,
    /// True if experts that are full drop choices.
    pub drops: bool,
    /// Format to which products' operands are rounded; `model/precision.rs` says which ones.
    pub operands: Option<Format>,
    /// Order of summation in bf16 products; `Auto` means pairs.
    pub sums: Bf16Sums,
    /// Settings and state of fp8, if used.
    pub fp8: Option<Fp8<'a>>,
}

impl<'a> Context<'a> {
    pub(crate) fn of(plan: &Plan, weights: Weights<'a>, groups: &'a Groups) -> Context<'a> {
        let (token_leaf, feature_chunks) = if plan.is_exact() {
            (plan.sample_tokens() / TOKEN_CHUNKS, FEATURE_CHUNKS)
        } else {
            (0, 0)
        };
        let place = &groups.place;
        let time = plan.sample_tokens() / place.cp;
        let halves = Halves {
            encoder: plan.seq_length,
            decoder: plan.decoder_length,
            seen: &[],
        };
        Context {
            weights,
            tp: groups.tp.as_ref(),
            cp: groups.cp.as_ref(),
            ep: groups.ep.as_ref(),
            time,
            first: place.cp_rank * time,
            longest: plan.sample_tokens(),
            key_block: key_block(plan.seq_length, place.cp),
            key_blocks: [plan.seq_length, plan.decoder_length].map(|t| key_block(t, place.cp)),
            documents: None,
            halves: (plan.decoder_length > 0).then_some(halves),
            noise: None,
            is_sequence: plan.parallel.sequence && place.tp > 1,
            token_leaf,
            feature_chunks,
            sequence_weight: 1.0 / plan.train.global_batch as f64,
            drops: false,
            operands: plan.train.precision.operands(),
            sums: plan.train.bf16_sums,
            fp8: Fp8::of(plan),
        }
    }

    /// The same with other weights.
    pub(crate) fn with<'b>(&self, weights: Weights<'b>) -> Context<'b>
    where
        'a: 'b,
    {
        Context { weights, ..*self }
    }

    /// The context for sequences of `length` tokens that are shared out like this one's.
    fn of_length(&self, length: usize) -> Context<'a> {
        let leaf = if self.token_leaf > 0 {
            length / TOKEN_CHUNKS
        } else {
            0
        };
        Context {
            time: length / self.cp.size(),
            first: self.cp.rank() * (length / self.cp.size()),
            longest: length,
            token_leaf: leaf,
            ..*self
        }
    }

    /// For the encoder's rows alone.
    pub(crate) fn encoder(&self) -> Context<'a> {
        let halves = self.halves.expect("the model has an encoder");
        Context {
            key_block: self.key_blocks[0],
            ..self.of_length(halves.encoder)
        }
    }

    /// For the decoder's rows alone.
    pub(crate) fn decoder(&self) -> Context<'a> {
        let halves = self.halves.expect("the model has a decoder");
        Context {
            documents: None,
            key_block: self.key_blocks[1],
            ..self.of_length(halves.decoder)
        }
    }

    /// For the rows before the head.
    pub(crate) fn last(&self) -> Context<'a> {
        if self.halves.is_some() {
            self.decoder()
        } else {
            *self
        }
    }

    pub(crate) fn weight(&self, slot: Slot) -> &'a Tensor {
        match self.weights {
            Weights::All(tensors, _) => &tensors[slot],
            Weights::Gathered(tensors) => tensors[slot]
                .as_ref()
                .expect("a layer's weights are gathered before it runs"),
        }
    }

    /// op(weight) packed for the products of its layer, if packed weights are kept.
    pub(crate) fn packed(
        &self,
        slot: Slot,
        op: Op,
        leaf: usize,
    ) -> kernels::Result<Option<&'a Packed>> {
        match self.weights {
            Weights::All(tensors, Some(packs)) => packs.of(slot, (&tensors[slot], op), leaf),
            _ => Ok(None),
        }
    }

    /// True if an expert's rank has parts of several ranks' sequences, whose order of sums is fixed.
    pub(crate) fn has_parts_of_experts(&self) -> bool {
        self.token_leaf > 0 && self.cp.size() > 1 && self.ep.size() > 1
    }

    /// Leaf size for a sum over a dim of `whole` elements that tensor parallelism splits.
    pub(crate) fn feature_leaf(&self, whole: usize) -> usize {
        whole.checked_div(self.feature_chunks).unwrap_or(0)
    }

    /// Tokens whose losses are one f64 sum: the same in every layout that fixes its leaves.
    pub(crate) fn loss_chunk(&self) -> usize {
        if self.token_leaf > 0 {
            self.token_leaf
        } else {
            self.time
        }
    }

    /// Tokens of a sequence in the rows between layers.
    pub(crate) fn row_time(&self) -> usize {
        if self.is_sequence {
            self.time / self.tp.size()
        } else {
            self.time
        }
    }

    /// Position of the first token in the rows between layers.
    pub(crate) fn row_first(&self) -> usize {
        if self.is_sequence {
            self.first + self.tp.rank() * self.row_time()
        } else {
            self.first
        }
    }

    /// Positions of `[n]` rows.
    pub(crate) fn positions(&self) -> Positions<'a> {
        let documents = self
            .documents
            .and_then(|documents| documents.positions.as_deref());
        match documents {
            Some(of) => Positions::Each {
                of,
                limit: self.longest,
            },
            None => Positions::Run {
                t: self.time,
                offset: self.first,
            },
        }
    }

    /// Dropout, in training, with probability `p` on the rows between layers; `tensor` is the dropout's number in
    /// the model. The same call applies the mask to the gradient's rows.
    pub(crate) fn drop_rows(&self, x: &mut Tensor, p: f32, tensor: u32) -> kernels::Result<()> {
        self.drop_at(x, (p, tensor), (self.row_first(), self.row_time()), 0)
    }

    fn drop_at(
        &self,
        x: &mut Tensor,
        (p, tensor): (f32, u32),
        (first, t): (usize, usize),
        feature: usize,
    ) -> kernels::Result<()> {
        let Some(Noise {
            seed,
            step,
            sequence,
        }) = self.noise.filter(|_| p > 0.0)
        else {
            return Ok(());
        };
        let dropout = Dropout {
            p,
            seed,
            step,
            tensor,
        };
        let number = |n| u32::try_from(n).expect("positions and widths are below 2^32");
        let place = dropout::Place {
            sequence,
            position: number(first),
            t,
            feature,
        };
        dropout::forward(x, &dropout, &place)
    }

    /// Dropout of attention's probabilities in training; `heads` are this rank's.
    pub(crate) fn drop_probabilities(&self, p: f32, tensor: u32, heads: &Heads) -> Option<Dropped> {
        let noise = self.noise.filter(|_| p > 0.0)?;
        let first_head = heads.heads * self.tp.rank();
        Some(Dropped {
            dropout: Dropout {
                p,
                seed: noise.seed,
                step: noise.step,
                tensor,
            },
            sequence: noise.sequence,
            first_head: u32::try_from(first_head).expect("the plan's heads are checked"),
        })
    }

    /// Gradient of rows before `drop_rows` and the residual addition; None without dropout.
    pub(crate) fn dropped(
        &self,
        dy: &Tensor,
        p: f32,
        tensor: u32,
    ) -> kernels::Result<Option<Tensor>> {
        if self.noise.is_none() || p == 0.0 {
            return Ok(None);
        }
        let mut dropped = dy.try_clone()?;
        self.drop_rows(&mut dropped, p, tensor)?;
        Ok(Some(dropped))
    }

    /// Like `drop_rows`, for `[n, f]` rows whose features are split.
    pub(crate) fn drop_features(&self, x: &mut Tensor, p: f32, tensor: u32) -> kernels::Result<()> {
        let feature = self.tp.rank() * x.dims()[1];
        let time = (self.first, self.time);
        self.drop_at(x, (p, tensor), time, feature)
    }

    /// All-reduce over tensor-parallel ranks, each of which holds an aligned part of the sum.
    pub(crate) fn sum_over_tp(&self, mut x: Tensor) -> kernels::Result<Tensor> {
        if self.tp.size() > 1 {
            self.tp.all_reduce_sum(x.f32_mut())?;
        }
        Ok(x)
    }

    /// All-gathers the rows that a layer with split features reads: all of this rank's sequences. `room` owns them
    /// if they had to be gathered.
    pub(crate) fn gather<'t>(
        &self,
        x: &'t Tensor,
        room: &'t mut Option<Tensor>,
    ) -> kernels::Result<&'t Tensor> {
        if !self.is_sequence {
            return Ok(x);
        }
        Ok(room.insert(gather_rows(self.tp, x, self.row_time())?))
    }

    /// From whole rows, which every tensor-parallel rank has, selects the rows that this rank has between layers.
    pub(crate) fn own_rows(&self, x: Tensor) -> kernels::Result<Tensor> {
        if !self.is_sequence {
            return Ok(x);
        }
        let (size, d) = (self.tp.size(), x.dims()[1]);
        let run = self.row_time() * d;
        let mut own = Tensor::empty(&[x.dims()[0] / size, d], DType::F32, x.device())?;
        let runs = x.f32().chunks(run).skip(self.tp.rank()).step_by(size);
        for (to, from) in own.f32_mut().chunks_mut(run).zip(runs) {
            to.copy_from_slice(from);
        }
        Ok(own)
    }

    /// Reduce-scatter over tensor-parallel ranks: this rank keeps the rows that it has between layers.
    pub(crate) fn sum_to_rows(&self, x: Tensor) -> kernels::Result<Tensor> {
        if self.is_sequence {
            scatter_sum_rows(self.tp, &x, self.row_time())
        } else {
            self.sum_over_tp(x)
        }
    }
}

/// Maximum number of keys of a block of attention's softmax, if the length allows: scores of 32 query rows are then
/// 64 KiB.
const LONGEST_BLOCK: usize = 512;

/// Keys per softmax block, derived from the whole length of a model's sequences so that no layout or shorter text
/// changes it: a chunk of the sequence, halved while that is long; where ranks have no whole chunks, a rank's part.
pub(crate) fn key_block(length: usize, cp: usize) -> usize {
    let part = length / cp;
    let mut block = length / TOKEN_CHUNKS;
    if block == 0 || !length.is_multiple_of(TOKEN_CHUNKS) || !part.is_multiple_of(block) {
        block = part;
    }
    while block > LONGEST_BLOCK && block.is_multiple_of(2) {
        block /= 2;
    }
    block
}

/// All-gathers sequences of which each rank has `rows` rows, in order of ranks:
/// `[b * rows, d]` -> `[b * rows * size, d]`.
pub(crate) fn gather_rows(
    group: &dyn Collective,
    x: &Tensor,
    rows: usize,
) -> kernels::Result<Tensor> {
    let (size, d) = (group.size(), x.dims()[1]);
    let mut whole = Tensor::empty(&[x.dims()[0] * size, d], DType::F32, x.device())?;
    let (run, to) = (rows * d, whole.f32_mut());
    group.all_gather_to(x.f32(), &mut |rank, mut at, mut piece| {
        while !piece.is_empty() {
            let (sequence, within) = (at / run, at % run);
            let (some, rest) = piece.split_at(piece.len().min(run - within));
            to[(sequence * size + rank) * run + within..][..some.len()].copy_from_slice(some);
            (at, piece) = (at + some.len(), rest);
        }
    })?;
    Ok(whole)
}

/// Reduce-scatter: each rank keeps its `rows` rows of every sequence:
/// `[b * rows * size, d]` -> `[b * rows, d]`.
pub(crate) fn scatter_sum_rows(
    group: &dyn Collective,
    x: &Tensor,
    rows: usize,
) -> kernels::Result<Tensor> {
    let (size, d) = (group.size(), x.dims()[1]);
    let run = rows * d;
    let sequences = x.elements() / (run * size);
    let mut by_rank = Tensor::empty(x.dims(), DType::F32, x.device())?;
    for (at, to) in by_rank.f32_mut().chunks_exact_mut(run).enumerate() {
        let (rank, sequence) = (at / sequences, at % sequences);
        to.copy_from_slice(&x.f32()[(sequence * size + rank) * run..][..run]);
    }
    let cuts: Vec<usize> = (0..=size).map(|rank| rank * sequences * run).collect();
    let mut sum = Tensor::empty(&[sequences * rows, d], DType::F32, x.device())?;
    group.reduce_scatter_sum(by_rank.f32(), &cuts, sum.f32_mut())?;
    Ok(sum)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::options;

    #[test]
    fn documents_end_with_their_last_token_and_parts_agree_with_the_whole() {
        let tokens = [5, 9, 3, 3, 7, 8, 3, 4]; // 3 ends: [0, 3), [3, 4), [4, 7), [7, 8)
        let plan = &options()[0];
        let mut whole = Documents::asked_for(plan).unwrap();
        whole.push(&tokens, Some(3), 0..8);
        let [a, b, c, d] = [[0, 3], [3, 4], [4, 7], [7, 8]];
        assert_eq!(whole.bounds, Some(vec![a, a, a, b, c, c, c, d]));
        assert_eq!(whole.positions, Some(vec![0, 1, 2, 0, 0, 1, 2, 0]));
        for cut in 1..8 {
            let mut parts = Documents::asked_for(plan).unwrap();
            parts.push(&tokens, Some(3), 0..cut);
            parts.push(&tokens, Some(3), cut..8);
            assert_eq!(parts, whole, "{cut}");
        }
        let mut one = Documents::asked_for(plan).unwrap();
        one.push(&tokens, None, 0..8);
        assert_eq!(one.bounds, Some(vec![[0, 8]; 8]), "nothing ends them");
    }
}
