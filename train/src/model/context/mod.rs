//! Context of a layer's call: the available weights, its tensor- and context-parallel groups, the leaf sizes of
//! sums. Layers never see the mesh.
//!
//! Rows between layers are `[b * time, d]`; with sequence parallelism each tensor-parallel rank has the same share
//! of every sequence, `[b * time / tp, d]`, and layers whose features are split all-gather the rows before and
//! reduce-scatter the sum after (Korthikanti et al. 2022, arXiv:2205.05198).

use kernels::cast::Format;
use kernels::comm::Collective;
use kernels::matmul::{Op, Packed};
use kernels::rope::Positions;
use kernels::{SumOrder, Tensor};

use crate::config::exact::narrow;
use crate::config::plan::{FEATURE_CHUNKS, Plan, TOKEN_CHUNKS};
use crate::config::precision::Bf16Sums;
use crate::data::documents::{Documents, PairRows};
use crate::dist::mesh::Groups;
use crate::model::fp8::Fp8;
use crate::model::prepacked::PrepackedWeights;
use crate::model::row_adapters::{AdapterRows, AdapterWeights};
use crate::model::slots::Slot;

mod dropout;
pub(crate) mod tensor_parallel;

/// Whole tensors of the rank by slot.
#[derive(Clone, Copy)]
pub(crate) enum Weights<'a> {
    /// All of them, and prepacked copies if those are kept.
    All(&'a [Tensor], Option<&'a PrepackedWeights>),
    /// The same, of several owners.
    Shared(&'a [&'a Tensor], Option<&'a PrepackedWeights>),
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

/// Passed to every layer's forward and backward, split by concern.
#[derive(Clone, Copy)]
pub(crate) struct Context<'a> {
    pub weights: Weights<'a>,
    pub groups: LayerGroups<'a>,
    pub sequence: SequenceShard<'a>,
    /// Only of an encoder-decoder model.
    pub pair: Option<Pair<'a>>,
    /// `None`: no dropout.
    pub noise: Option<Noise>,
    pub sums: Leaves,
    pub routing: Routing,
    pub arithmetic: Arithmetic<'a>,
    /// Adapters of some rows each; `None`: all rows have those of `weights`, if the layers have any.
    pub adapters: Option<&'a [AdapterRows<'a>]>,
}

/// The groups of ranks that a layer communicates in.
#[derive(Clone, Copy)]
pub(crate) struct LayerGroups<'a> {
    /// Tensor parallelism.
    pub tp: &'a dyn Collective,
    /// Context parallelism.
    pub cp: &'a dyn Collective,
    /// Expert parallelism.
    pub ep: &'a dyn Collective,
}

/// This rank's share of each sequence.
#[derive(Clone, Copy)]
pub(crate) struct SequenceShard<'a> {
    /// Tokens of a sequence on this context-parallel rank.
    pub time: usize,
    /// Position of the first of them.
    pub first: usize,
    /// Tokens of the longest sequence.
    pub longest: usize,
    /// Keys per block of attention's softmax over this sequence.
    pub key_block: usize,
    /// `None`: each sequence is one document.
    pub documents: Option<&'a Documents>,
    /// True with sequence parallelism: the rows between layers are split over `tp`.
    pub is_parallel: bool,
}

/// The two sequences of an encoder-decoder model (`model/packed_rows.rs`).
#[derive(Clone, Copy)]
pub(crate) struct Pair<'a> {
    pub rows: PairRows<'a>,
    /// Keys per block of the softmax of the encoder's attention and of the decoder's.
    pub key_blocks: [usize; 2],
}

/// The order of sums, and the leaves that ops take for it.
#[derive(Clone, Copy)]
pub(crate) struct Leaves {
    /// Order of the run's sums.
    pub order: SumOrder,
    /// Tokens per leaf of a weight gradient; 0: one chain over the micro-batch.
    pub token_leaf: usize,
    /// Slices per row-parallel sum over the whole width; 0: one chain over the local width.
    pub feature_chunks: usize,
}

impl Leaves {
    /// Those of sequences of `tokens`.
    fn of(order: SumOrder, tokens: usize) -> Leaves {
        let (token_leaf, feature_chunks) = match order {
            SumOrder::Tree => (tokens / TOKEN_CHUNKS, FEATURE_CHUNKS),
            SumOrder::Any | SumOrder::Fixed => (0, 0),
        };
        Leaves {
            order,
            token_leaf,
            feature_chunks,
        }
    }
}

/// How the routers of mixtures of experts weigh and drop.
#[derive(Clone, Copy)]
pub(crate) struct Routing {
    /// Weight of a sequence in the step's mean: 1 / sequences.
    pub sequence_weight: f64,
    /// True if an expert that is full drops choices.
    pub drops: bool,
}

/// The number types of products; `model/precision.rs` derives each op's from them.
#[derive(Clone, Copy)]
pub(crate) struct Arithmetic<'a> {
    /// Format that operands are rounded to; `None`: f32.
    pub operands: Option<Format>,
    /// How bf16 products are summed.
    pub bf16_sums: Bf16Sums,
    /// `None`: no layer computes in fp8.
    pub fp8: Option<Fp8<'a>>,
    /// Whether linear layers have adapters, and the factor of their output.
    pub has_lora: bool,
    pub lora_scale: f32,
    /// Probability with which an element of the adapters' input is dropped.
    pub lora_dropout: f32,
}

impl<'a> Context<'a> {
    pub(crate) fn of(plan: &Plan, weights: Weights<'a>, groups: &'a Groups) -> Context<'a> {
        let place = &groups.place;
        let time = plan.sample_tokens() / place.cp;
        let pair = Pair {
            rows: PairRows {
                encoder: plan.seq_length,
                decoder: plan.decoder_length,
                seen: &[],
            },
            key_blocks: [plan.seq_length, plan.decoder_length].map(|t| key_block(t, place.cp)),
        };
        Context {
            weights,
            groups: LayerGroups {
                tp: groups.tp.as_ref(),
                cp: groups.cp.as_ref(),
                ep: groups.ep.as_ref(),
            },
            sequence: SequenceShard {
                time,
                first: place.cp_rank * time,
                longest: plan.sample_tokens(),
                key_block: key_block(plan.seq_length, place.cp),
                documents: None,
                is_parallel: plan.parallel.sequence && place.tp > 1,
            },
            pair: (plan.decoder_length > 0).then_some(pair),
            noise: None,
            sums: Leaves::of(plan.sum_order(), plan.sample_tokens()),
            routing: Routing {
                sequence_weight: 1.0 / plan.train.global_batch as f64,
                drops: false,
            },
            arithmetic: Arithmetic {
                operands: plan.train.precision.operands(),
                bf16_sums: plan.train.bf16_sums,
                fp8: Fp8::of(plan),
                has_lora: plan.model.lora.is_some(),
                lora_scale: plan
                    .model
                    .lora
                    .as_ref()
                    .map_or(0.0, |lora| narrow(lora.scale())),
                lora_dropout: plan.model.lora.as_ref().map_or(0.0, |lora| lora.dropout),
            },
            adapters: None,
        }
    }

    /// The same with other weights.
    pub(crate) fn with<'b>(&self, weights: Weights<'b>) -> Context<'b>
    where
        'a: 'b,
    {
        Context { weights, ..*self }
    }

    /// The same for rows that all have this adapter.
    pub(crate) fn of_adapter<'b>(&self, adapter: &'b AdapterWeights) -> Context<'b>
    where
        'a: 'b,
    {
        Context {
            weights: Weights::Gathered(&adapter.weights),
            adapters: None,
            arithmetic: Arithmetic {
                lora_scale: adapter.scale,
                ..self.arithmetic
            },
            ..*self
        }
    }

    /// The context for sequences of `length` tokens that are split over ranks like this one's.
    fn of_length(&self, length: usize, key_block: usize) -> Context<'a> {
        let cp = self.groups.cp;
        let time = length / cp.size();
        Context {
            sequence: SequenceShard {
                time,
                first: cp.rank() * time,
                longest: length,
                key_block,
                ..self.sequence
            },
            sums: Leaves {
                token_leaf: Leaves::of(self.sums.order, length).token_leaf,
                ..self.sums
            },
            ..*self
        }
    }

    /// The same where every tensor-parallel rank has all rows between layers.
    pub(crate) fn of_whole_rows(&self) -> Context<'a> {
        Context {
            sequence: SequenceShard {
                is_parallel: false,
                ..self.sequence
            },
            ..*self
        }
    }

    /// The same where products neither round their factors nor sum in another order.
    pub(crate) fn in_f32(&self) -> Context<'a> {
        Context {
            arithmetic: Arithmetic {
                operands: None,
                fp8: None,
                ..self.arithmetic
            },
            ..*self
        }
    }

    /// For the encoder's rows alone.
    pub(crate) fn encoder(&self) -> Context<'a> {
        let pair = self.pair.expect("the model has an encoder");
        self.of_length(pair.rows.encoder, pair.key_blocks[0])
    }

    /// For the decoder's rows alone.
    pub(crate) fn decoder(&self) -> Context<'a> {
        let pair = self.pair.expect("the model has a decoder");
        let mut cx = self.of_length(pair.rows.decoder, pair.key_blocks[1]);
        cx.sequence.documents = None;
        cx
    }

    /// For the rows before the head.
    pub(crate) fn last(&self) -> Context<'a> {
        if self.pair.is_some() {
            self.decoder()
        } else {
            *self
        }
    }

    pub(crate) fn weight(&self, slot: Slot) -> &'a Tensor {
        match self.weights {
            Weights::All(tensors, _) => &tensors[slot],
            Weights::Shared(tensors, _) => tensors[slot],
            Weights::Gathered(tensors) => tensors[slot]
                .as_ref()
                .expect("a layer's weights are gathered before it runs"),
        }
    }

    /// Dims of a weight, of which there may be a packed copy alone.
    pub(crate) fn dims_of(&self, slot: Slot) -> &'a [usize] {
        let alone = match self.weights {
            Weights::All(_, packs) | Weights::Shared(_, packs) => {
                packs.and_then(|packs| packs.dims_alone(slot))
            }
            Weights::Gathered(_) => None,
        };
        alone.unwrap_or_else(|| self.weight(slot).dims())
    }

    /// op(weight) packed for the products of its layer, if packed weights are kept.
    pub(crate) fn packed(
        &self,
        slot: Slot,
        op: Op,
        leaf: usize,
    ) -> kernels::Result<Option<&'a Packed>> {
        match self.weights {
            Weights::All(_, packs) | Weights::Shared(_, packs) => match packs {
                Some(packs) => packs.of(slot, (self.weight(slot), op), leaf),
                None => Ok(None),
            },
            Weights::Gathered(_) => Ok(None),
        }
    }

    /// op(weight) of each of these weights, if they are held as their packed copies alone.
    pub(crate) fn packed_alone(
        &self,
        slots: &[Slot],
        op: Op,
        leaf: usize,
    ) -> kernels::Result<Option<Vec<&'a Packed>>> {
        let (Weights::All(_, Some(packs)) | Weights::Shared(_, Some(packs))) = self.weights else {
            return Ok(None);
        };
        if !slots.iter().all(|slot| packs.dims_alone(*slot).is_some()) {
            return Ok(None);
        }
        let packed = slots.iter().map(|slot| self.packed(*slot, op, leaf));
        packed.collect()
    }

    /// True if an expert's rank has parts of several ranks' sequences, whose order of sums is fixed.
    pub(crate) fn has_parts_of_experts(&self) -> bool {
        self.sums.token_leaf > 0 && self.groups.cp.size() > 1 && self.groups.ep.size() > 1
    }

    /// Leaf size for a sum over a dim of `whole` elements that tensor parallelism splits.
    pub(crate) fn feature_leaf(&self, whole: usize) -> usize {
        whole.checked_div(self.sums.feature_chunks).unwrap_or(0)
    }

    /// Tokens whose losses are one f64 sum: the same in every layout that fixes its leaves.
    pub(crate) fn loss_chunk(&self) -> usize {
        if self.sums.token_leaf > 0 {
            self.sums.token_leaf
        } else {
            self.sequence.time
        }
    }

    /// Tokens of a sequence in the rows between layers.
    pub(crate) fn row_time(&self) -> usize {
        if self.sequence.is_parallel {
            self.sequence.time / self.groups.tp.size()
        } else {
            self.sequence.time
        }
    }

    /// Position of the first token in the rows between layers.
    pub(crate) fn row_first(&self) -> usize {
        if self.sequence.is_parallel {
            self.sequence.first + self.groups.tp.rank() * self.row_time()
        } else {
            self.sequence.first
        }
    }

    /// Positions of `[n]` rows.
    pub(crate) fn positions(&self) -> Positions<'a> {
        let documents = self
            .sequence
            .documents
            .and_then(|documents| documents.positions.as_deref());
        match documents {
            Some(of) => Positions::Each {
                of,
                limit: self.sequence.longest,
            },
            None => Positions::Run {
                t: self.sequence.time,
                offset: self.sequence.first,
            },
        }
    }
}

/// Most keys of a block of attention's softmax, if the length allows: scores of 32 query rows are then
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
