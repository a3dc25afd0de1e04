//! Activation memory: the bytes that a model chunk keeps for its backward pass, layer by layer. An offloaded tensor
//! leaves one number.

use kernels::Device;

use super::Rank;
use crate::config::plan::TOKEN_CHUNKS;
use crate::config::{ClassifyConfig, NormKind, NormPlace, Recompute};
use crate::model::context::tensor_parallel::Rows;
use crate::model::{attention, mlp, moe};

/// 4-byte words of each tensor that a block keeps: those that stay in memory and those that can be offloaded.
struct Kept {
    few: Vec<usize>,
    large: Vec<usize>,
}

impl Kept {
    /// Only a block's input.
    fn input(rows: usize, width: usize) -> Kept {
        Kept {
            few: Vec::new(),
            large: vec![rows * width],
        }
    }

    fn bytes(&self, is_offloaded: bool) -> usize {
        let large = if is_offloaded {
            bytes(&vec![1; self.large.len()])
        } else {
            bytes(&self.large)
        };
        bytes(&self.few) + large
    }
}

fn bytes(elements: &[usize]) -> usize {
    elements.iter().map(|&count| Device::bytes_of(count)).sum()
}

impl Rank<'_> {
    /// Bytes that the forward pass of a chunk keeps for `b` sequences.
    pub(super) fn kept(&self, chunk: usize, b: usize) -> usize {
        let (plan, place) = (self.plan, &self.place);
        let architecture = plan.model.architecture();
        let model_chunks = plan.model_chunks();
        let before: usize = (0..chunk)
            .map(|chunk| model_chunks[chunk * place.pp + place.pp_rank].len())
            .sum();
        let model_chunk = chunk * place.pp + place.pp_rank;
        let near = self.rows(b, plan.seq_length);
        let far = self.rows(b, plan.decoder_length);
        let mut kept = 0;
        if model_chunk == 0 && architecture.has_embedding_norm {
            kept += self.width(near.m) + self.statistics(near.m);
        }
        for (index, block) in model_chunks[model_chunk].clone().enumerate() {
            let recompute = plan.train.recompute_of(place.pp_rank, before + index);
            let of_block = if plan.model.is_decoder_block(block) {
                self.decoder_block(block, recompute, far, near)
            } else {
                self.block(block, recompute, near)
            };
            kept += of_block.bytes(before + index < plan.train.offload.layers);
            if plan.model.is_last_of_encoder(block) {
                kept += self.width(near.m) + self.statistics(near.m);
            }
        }
        let mut blocks = model_chunks[model_chunk].clone();
        if blocks.any(|block| plan.model.is_decoder_block(block)) {
            // the encoder's rows, once for all blocks
            kept += self.width(near.m);
        }
        if model_chunk + 1 < model_chunks.len() {
            return kept;
        }
        if let Some(classify) = &plan.model.classify {
            return kept + self.classes_head(b, classify);
        }
        if architecture.is_masked {
            return kept + self.masked_head(b);
        }
        let Rows { n, m } = if architecture.is_encoder_decoder {
            far
        } else {
            near
        };
        let depths = plan.model.mtp_num_layers;
        let first = before + model_chunks[model_chunk].len();
        for depth in 0..depths {
            kept += self.depth(
                depth,
                plan.train.recompute_of(place.pp_rank, first + depth),
                near,
            );
        }
        // rows of the model before and after the last norm, and of each depth after its own
        let rows = (2 + depths) * self.width(m);
        kept + rows + self.statistics(m) + (1 + depths) * self.vocabulary(n)
    }

    /// Bytes that a depth of multi-token prediction keeps beside its result.
    fn depth(&self, depth: usize, recompute: Recompute, rows: Rows) -> usize {
        if recompute == Recompute::Full {
            return 0;
        }
        let block = self.block(self.plan.model.layers + depth, recompute, rows);
        // embeddings and the block's output, both inputs of the projection; statistics of three norms
        let m = rows.m;
        let both = Device::bytes_of(2 * m * self.plan.model.d_model);
        block.bytes(false) + 2 * self.width(m) + both + 3 * self.statistics(m)
    }

    /// Bytes of the losses of `b` sequences: two f64 per run of predictions.
    pub(super) fn losses(&self, chunk: usize, b: usize) -> usize {
        let (plan, place) = (self.plan, &self.place);
        let architecture = plan.model.architecture();
        if chunk * place.pp + place.pp_rank + 1 < plan.model_chunks().len() {
            return 0;
        }
        if plan.train.preference.is_some() {
            // those of pairs are on the host
            return 0;
        }
        let of = |runs: usize| Device::bytes_of(4 * runs);
        if plan.model.classify.is_some() {
            return match place.cp_rank {
                0 => of(b / plan.model.choices()),
                _ => 0,
            };
        }
        if architecture.is_masked {
            let orders = if architecture.next_sentence { of(b) } else { 0 };
            return match place.cp_rank {
                0 => of(b) + orders,
                _ => 0,
            };
        }
        let runs = if plan.sum_order().is_tree() {
            TOKEN_CHUNKS / place.cp
        } else {
            1
        };
        (1 + plan.model.mtp_num_layers) * of(b * runs)
    }

    fn rows(&self, b: usize, length: usize) -> Rows {
        let n = b * length / self.place.cp;
        let is_shared = self.plan.parallel.sequence;
        let m = if is_shared { n / self.place.tp } else { n };
        Rows { n, m }
    }

    /// Bytes of `rows` rows of the model's width.
    fn width(&self, rows: usize) -> usize {
        Device::bytes_of(rows * self.plan.model.d_model)
    }

    /// Bytes of the statistics of a norm of `rows` rows.
    fn statistics(&self, rows: usize) -> usize {
        bytes(&self.of_norm(rows))
    }

    /// Elements of a norm's statistics of `rows` rows.
    fn of_norm(&self, rows: usize) -> Vec<usize> {
        match self.plan.model.architecture().norm {
            NormKind::Layer => vec![rows, rows],
            NormKind::Rms => vec![rows],
        }
    }

    fn block(&self, block: usize, recompute: Recompute, Rows { n, m }: Rows) -> Kept {
        let (plan, tp, s) = (self.plan, self.place.tp, self.plan.shape());
        if recompute == Recompute::Full {
            return Kept::input(m, s.d_model);
        }
        // the norms' statistics; input, both norms' results, and the middle, which a parallel block has not; norms of what
        // layers give have inputs of their own
        let architecture = plan.model.architecture();
        let (norms, rows) = match (architecture.norm_place, architecture.is_parallel) {
            (NormPlace::Before, false) => (2, 4),
            (NormPlace::Before, true) if architecture.has_shared_norm => (1, 3),
            (NormPlace::Before, true) => (2, 3),
            (NormPlace::After, _) => (2, 4),
            (NormPlace::Both, _) => (4, 6),
        };
        let mut few = self.of_norm(m).repeat(norms);
        let mut large = vec![m * s.d_model; rows];
        large.extend(attention::kept((plan, block), n, tp));
        match plan.model.moe_at(block) {
            Some(moe) => {
                let [routed, rows] = moe::kept((plan, block), moe, Rows { n, m }, tp);
                few.extend(routed);
                large.extend(rows);
            }
            None => large.extend(self.feed_forward(block, n)),
        }
        if recompute == Recompute::None {
            large.extend(self.core(n));
        }
        Kept { few, large }
    }

    /// `near` are the encoder's rows.
    fn decoder_block(
        &self,
        block: usize,
        recompute: Recompute,
        Rows { n, m }: Rows,
        near: Rows,
    ) -> Kept {
        let (tp, s) = (self.place.tp, self.plan.shape());
        if recompute == Recompute::Full {
            return Kept::input(m, s.d_model);
        }
        // the norms' statistics; inputs and outputs of the three norms
        let few = self.of_norm(m).repeat(3);
        let mut large = vec![m * s.d_model; 6];
        let qkv = attention::kept((self.plan, block), n, tp);
        let keys = near.n * 2 * s.kv_heads * s.d_head / tp;
        large.extend(qkv);
        large.extend([n * s.heads * s.d_head / tp, keys]);
        large.extend(self.feed_forward(block, n));
        if recompute == Recompute::None {
            large.extend(self.core(n).repeat(2));
        }
        Kept { few, large }
    }

    /// 4-byte words that a block's feed-forward layer keeps beside its input.
    fn feed_forward(&self, block: usize, n: usize) -> [usize; 2] {
        let (tp, plan) = (self.place.tp, self.plan);
        let is_dropped = plan.model.architecture().is_encoder_decoder && plan.model.dropout > 0.0;
        mlp::kept((plan, block), n, plan.shape().d_ffn / tp, is_dropped)
    }

    /// Elements of attention's own results: mixed values and the logsumexp.
    fn core(&self, n: usize) -> [usize; 2] {
        let (tp, s) = (self.place.tp, self.plan.shape());
        [n * s.heads * s.d_value / tp, n * s.heads / tp]
    }

    /// Bytes that cross entropy keeps for `rows` rows: the logits unless in chunks, largest logits and sums.
    fn vocabulary(&self, rows: usize) -> usize {
        let logits = match self.plan.train.chunked_cross_entropy {
            true => 0,
            false => Device::bytes_of(rows * self.plan.padded_vocab() / self.place.tp),
        };
        logits + bytes(&[rows, rows])
    }

    fn classes_head(&self, b: usize, classify: &ClassifyConfig) -> usize {
        let architecture = self.plan.model.architecture();
        let questions = b / classify.choices;
        // input of the pooler or the classes; scores, and largest scores and sums, or errors
        let mut kept = self.width(b);
        kept += match classify.is_regression() {
            true => bytes(&[b, b]),
            false => bytes(&[b * classify.classes, questions, questions]),
        };
        if architecture.is_masked {
            kept += 2 * self.width(b);
        }
        if !architecture.is_post_norm {
            kept += self.width(b) + self.statistics(b);
        }
        kept
    }

    fn masked_head(&self, b: usize) -> usize {
        let (plan, s) = (self.plan, self.plan.shape());
        let architecture = plan.model.architecture();
        let r = b * plan.predictions;
        // inputs of the transform, its activation, the norm and the vocabulary
        let mut kept = 4 * self.width(r) + self.statistics(r);
        kept += self.vocabulary(r);
        let told = if architecture.next_sentence { b } else { 0 };
        if !architecture.is_post_norm {
            // input of the final norm
            kept += self.width(r + told) + self.statistics(r + told);
        }
        if told > 0 {
            let d = told * s.d_model;
            kept += bytes(&[d, d, d, 2 * told, told, told]);
        }
        kept
    }
}
