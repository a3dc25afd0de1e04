//! A training job with every number filled in, and quantities derived from it.

use std::ops::Range;

use kernels::SumOrder;
use serde::{Deserialize, Serialize};

use crate::config::{Determinism, ModelConfig, ParallelConfig, TrainConfig};

/// Chunks of a sequence whose token sums are leaves of the reduction tree (layout mode).
pub(crate) const TOKEN_CHUNKS: usize = 8;
/// Slices of a split dimension whose sums are leaves of the reduction tree (layout mode).
pub(crate) const FEATURE_CHUNKS: usize = 8;
/// Rows of embedding and head are padded to a multiple of this, whatever the layout.
/// Megatron's `make-vocab-size-divisible-by`, without its factor tp.
const VOCAB_MULTIPLE: usize = 128;

/// Everything a run depends on, besides the samples themselves.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// Shape of the model.
    pub model: ModelConfig,
    /// Ranks.
    pub parallel: ParallelConfig,
    /// Optimisation and bookkeeping.
    pub train: TrainConfig,
    /// Token ids, before padding.
    pub vocab: usize,
    /// Tokens per sequence; for t5 the encoder's.
    pub seq_length: usize,
    /// Tokens of the decoder's sequence of t5; 0 for other models.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub decoder_length: usize,
    /// Maximum number of tokens that a masked sample predicts; 0 for other models.
    #[serde(default)]
    pub predictions: usize,
    /// The token that begins the decoder's sequence of t5, for `generate`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start: Option<u32>,
    /// The end-of-document token, at which `train.reset_attention_mask` and `train.reset_position_ids` start over; `None` if
    /// no setting of `[train]` needs it, or if samples name their texts (`TextSample::ends`) and no token ends one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub eod: Option<u32>,
    /// Seed of initial weights and dropout.
    pub seed: u64,
    /// Reproducibility guarantee.
    pub determinism: Determinism,
    /// Identity of data set and tokenizer. Kept in checkpoints; a resume with another one is
    /// refused.
    pub fingerprint: String,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
fn is_zero(number: &usize) -> bool {
    *number == 0
}

impl Plan {
    /// Tokens per sample; for t5 the encoder's and the decoder's.
    pub fn sample_tokens(&self) -> usize {
        self.seq_length + self.decoder_length
    }

    /// Blocks of each model chunk, in order.
    pub(crate) fn model_chunks(&self) -> Vec<Range<usize>> {
        self.parallel.stages(self.model.blocks())
    }

    /// Whether backward passes leave out the gradient of the first block's input, as nothing below it learns: adapters alone are
    /// trained, and the block's norms come first. The rank of an embedding without blocks waits for that gradient.
    pub(crate) fn leaves_out_first_gradient(&self) -> bool {
        let architecture = self.model.architecture();
        let has_norms_first = !architecture.norm_place.is_after()
            && !architecture.is_post_norm
            && !architecture.is_parallel;
        let chunks = self.model_chunks();
        let is_with_embedding = chunks.first().is_some_and(|first| first.contains(&0));
        self.model.lora.is_some()
            && !architecture.is_encoder_decoder
            && has_norms_first
            && is_with_embedding
    }

    /// Rows of embedding and head.
    pub fn padded_vocab(&self) -> usize {
        self.vocab.next_multiple_of(VOCAB_MULTIPLE)
    }

    /// Rows of the table of learned positions.
    pub(crate) fn position_rows(&self) -> usize {
        self.model.architecture().first_position + self.seq_length
    }

    /// Derived widths.
    pub(crate) fn shape(&self) -> Shape {
        let model = &self.model;
        let d_head = model.d_head();
        Shape {
            d_model: model.d_model,
            d_head,
            d_value: model.d_value(),
            heads: model.heads,
            kv_heads: model.kv_heads(),
            // any numbers: check looks at them
            packed: (model.kv_heads().saturating_mul(2))
                .saturating_add(model.heads)
                .saturating_mul(d_head),
            d_ffn: model.d_ffn(),
            padded_vocab: self.padded_vocab(),
        }
    }

    /// Order of the run's sums: the one place that derives it.
    pub(crate) fn sum_order(&self) -> SumOrder {
        match self.determinism {
            Determinism::Off => SumOrder::Any,
            Determinism::Run => SumOrder::Fixed,
            Determinism::Layout => SumOrder::Tree,
        }
    }
}

/// Widths with defaults filled in, before any split.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub d_model: usize,
    pub d_head: usize,
    /// Features of a head's value: those of a head but with latents, which have narrower ones.
    pub d_value: usize,
    pub heads: usize,
    pub kv_heads: usize,
    /// Rows of the packed query, key, value projection.
    pub packed: usize,
    pub d_ffn: usize,
    pub padded_vocab: usize,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use crate::config::{Plan, TrainConfig};
    use crate::fixtures::{tiny_gpt, tiny_llama};

    fn keys(plan: &Plan) -> Vec<String> {
        let mut keys = Vec::new();
        plan.check(&mut |key, _, _| keys.push(key.to_owned()));
        keys
    }

    #[test]
    fn fixtures_hold_together_and_plans_survive_json() {
        for plan in [tiny_gpt(), tiny_llama()] {
            assert_eq!(keys(&plan), [""; 0]);
            let text = serde_json::to_string(&plan).unwrap();
            assert_eq!(serde_json::from_str::<Plan>(&text).unwrap(), plan);
        }
    }

    #[test]
    fn unknown_keys_are_refused() {
        let text = r#"{"lr": 0.1, "learning_rate": 0.1}"#;
        let error = serde_json::from_str::<TrainConfig>(text)
            .unwrap_err()
            .to_string();
        assert!(error.contains("unknown field `learning_rate`"), "{error}");
    }

    #[test]
    fn all_contradictions_are_found_at_once() {
        let mut plan = tiny_llama();
        plan.model.kv_heads = 3;
        plan.model.norm_eps = f32::NAN;
        plan.parallel.pp = 4;
        plan.train.global_batch = 7;
        plan.seq_length = 12;
        plan.vocab = 0;
        let found = keys(&plan);
        for key in [
            "model.kv_heads",
            "model.norm_eps",
            "parallel.pp",
            "train.global_batch",
            "seq_length",
            "vocab",
        ] {
            assert!(found.iter().any(|found| found == key), "{key} in {found:?}");
        }
    }

    #[test]
    fn padded_vocabulary_is_a_multiple_of_128_whatever_tp() {
        for (vocab, padded) in [(1, 128), (128, 128), (129, 256), (50257, 50304)] {
            for tp in [1, 8] {
                let mut plan = tiny_gpt();
                plan.vocab = vocab;
                plan.parallel.tp = tp;
                assert_eq!(plan.padded_vocab(), padded);
            }
        }
    }

    proptest! {
        #[test]
        fn check_never_panics(
            sizes in proptest::array::uniform16(0usize..20), is_gpt: bool, lr in -1.0f64..1.0,
        ) {
            let mut plan = if is_gpt { tiny_gpt() } else { tiny_llama() };
            let [layers, d_model, heads, kv_heads, d_ffn, tp, pp, dp, batch, micro, vocab, time,
                cp, pieces, node, list] = sizes;
            (plan.parallel.cp, plan.parallel.virtual_stages) = (cp, pieces);
            plan.parallel.ranks_per_node = node;
            (plan.parallel.sequence, plan.parallel.count_head) = (is_gpt, list > 10);
            plan.parallel.stage_layers = vec![1; list.saturating_sub(12)];
            (plan.model.layers, plan.model.d_model, plan.model.heads) = (layers, d_model, heads);
            (plan.model.kv_heads, plan.model.d_ffn) = (kv_heads, d_ffn);
            (plan.parallel.tp, plan.parallel.pp, plan.parallel.dp) = (tp, pp, dp);
            (plan.train.global_batch, plan.train.micro_batch) = (batch, micro);
            (plan.vocab, plan.seq_length, plan.train.lr) = (vocab, time, lr);
            if keys(&plan).is_empty() {
                prop_assert!(plan.parameters() > 0);
                prop_assert!(plan.flops_per_token() > 0.0);
            }
        }
    }
}
