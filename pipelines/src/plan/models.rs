//! Shapes of published models, by their papers' and programs' sizes.

use crate::plan::shape::{Decoder, Latent, Mixture, OptimizerState, Shape};

impl Shape {
    /// GPT with a feed-forward width of four times the model's, as in the published tables.
    pub(crate) fn gpt(layers: usize, width: usize, heads: usize) -> Shape {
        Shape {
            layers,
            width,
            heads,
            kv_heads: heads,
            head_dim: width / heads,
            value_dim: width / heads,
            latent: None,
            ffn: 4 * width,
            is_gated: false,
            vocab: 51_200,
            mixture: None,
            decoder: None,
            predictions: None,
            is_tied: true,
            seq_length: 2048,
            is_fused: false,
            state: OptimizerState::default(),
        }
    }

    /// Llama 3.1 405B (arXiv:2407.21783, table 3).
    pub(crate) fn llama3_405b(seq_length: usize) -> Shape {
        Shape {
            kv_heads: 8,
            ffn: 53_248,
            is_gated: true,
            vocab: 128_256,
            is_tied: false,
            seq_length,
            is_fused: true,
            ..Shape::gpt(126, 16_384, 128)
        }
    }

    /// Mixtral 8x7B (arXiv:2401.04088, table 1) at 4,096 tokens.
    pub(crate) fn mixtral_8x7b() -> Shape {
        Shape {
            kv_heads: 8,
            ffn: 14_336,
            is_gated: true,
            vocab: 32_000,
            mixture: Some(Mixture {
                experts: 8,
                top_k: 2,
                ffn: 14_336,
                shared: 0,
                every: 1,
                dense_first: 0,
            }),
            is_tied: false,
            seq_length: 4096,
            is_fused: true,
            ..Shape::gpt(32, 4096, 32)
        }
    }

    /// DeepSeek-V2 (arXiv:2405.04434, section 3.1.2) at 4,096 tokens.
    pub(crate) fn deepseek_v2() -> Shape {
        Shape {
            head_dim: 128 + 64,
            value_dim: 128,
            latent: Some(Latent {
                queries: 1536,
                keys_values: 512,
                shared_key: 64,
            }),
            ffn: 12_288,
            vocab: 102_400,
            mixture: Some(Mixture {
                experts: 160,
                top_k: 6,
                ffn: 1536,
                shared: 2 * 1536,
                every: 1,
                dense_first: 1,
            }),
            is_gated: true,
            is_tied: false,
            seq_length: 4096,
            is_fused: true,
            ..Shape::gpt(60, 5120, 128)
        }
    }

    /// DeepSeek-V3 without its module of multi-token prediction (arXiv:2412.19437, section 4.2) at 4,096 tokens.
    pub(crate) fn deepseek_v3() -> Shape {
        Shape {
            layers: 61,
            width: 7168,
            ffn: 18_432,
            vocab: 129_280,
            mixture: Some(Mixture {
                experts: 256,
                top_k: 8,
                ffn: 2048,
                shared: 2048,
                every: 1,
                dense_first: 3,
            }),
            ..Shape::deepseek_v2()
        }
    }

    /// Megatron's BERT with 48 layers, 4B, by NeMo's launcher (`conf/training/bert/4b.yaml`): logits of all tokens.
    pub(crate) fn bert_4b() -> Shape {
        Shape {
            vocab: 30_592,
            predictions: Some(512),
            seq_length: 512,
            ..Shape::gpt(48, 2560, 32)
        }
    }

    /// T5 3B by NeMo's launcher (`conf/training/t5/3b.yaml`): sequences of 512 and 128 tokens, one matrix for both embeddings and the head.
    pub(crate) fn t5_3b() -> Shape {
        Shape {
            head_dim: 64,
            value_dim: 64,
            ffn: 5120,
            is_gated: true,
            vocab: 29_184,
            decoder: Some(Decoder {
                layers: 24,
                length: 128,
            }),
            seq_length: 512,
            ..Shape::gpt(24, 2048, 32)
        }
    }

    /// T5 220M by NeMo's launcher (`conf/training/t5/220m.yaml`).
    pub(crate) fn t5_220m() -> Shape {
        Shape {
            layers: 12,
            width: 768,
            heads: 12,
            kv_heads: 12,
            ffn: 2048,
            decoder: Some(Decoder {
                layers: 12,
                length: 128,
            }),
            ..Shape::t5_3b()
        }
    }

    /// T5 1.1 XXL, 11B (t5x's `t5_1_1/xxl.gin`).
    pub(crate) fn t5_11b() -> Shape {
        Shape {
            width: 4096,
            heads: 64,
            kv_heads: 64,
            ffn: 10_240,
            vocab: 32_128,
            is_tied: false,
            ..Shape::t5_3b()
        }
    }
}
