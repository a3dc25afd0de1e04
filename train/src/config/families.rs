//! Model families: the choices of norm, positions, activation, biases and ties that GPT, GPT-NeoX, OPT, LLaMA, Mistral, Qwen, Phi-3, Falcon,
//! BLOOM, OLMo 2, Gemma, gpt-oss, DeepSeek, BERT and T5 make, and the keys of `[model]` that overrule them.

use crate::config::architecture::{Architecture, Positions};
use crate::config::choices::{
    Activation, Biases, Family, NormKind, NormPlace, QkNormOver, TieEmbeddings,
};
use crate::config::model::ModelConfig;

impl ModelConfig {
    /// Every choice of the family and the options.
    pub(crate) fn architecture(&self) -> Architecture {
        let gpt = Architecture {
            norm: NormKind::Layer,
            positions: Positions::Learned,
            first_position: 0,
            drops_embedding: true,
            activation: Activation::GeluTanh,
            biases: Biases::All,
            qk_norm: false,
            qk_norm_over: QkNormOver::Head,
            is_tied: true,
            norm_place: NormPlace::Before,
            norm_plus_one: false,
            scaled_embedding: false,
            has_embedding_norm: false,
            has_sinks: false,
            has_latents: false,
            is_post_norm: false,
            is_parallel: false,
            has_shared_norm: false,
            is_masked: false,
            next_sentence: false,
            is_encoder_decoder: false,
        };
        let llama = Architecture {
            norm: NormKind::Rms,
            positions: Positions::Rotary,
            activation: Activation::Swiglu,
            biases: Biases::None,
            qk_norm: false,
            is_tied: false,
            ..gpt
        };
        let bert = Architecture {
            activation: Activation::Gelu,
            has_embedding_norm: self.post_norm,
            is_post_norm: self.post_norm,
            is_masked: true,
            next_sentence: self.next_sentence,
            ..gpt
        };
        let family = match self.family {
            Family::Gpt => gpt,
            Family::GptNeox => Architecture {
                positions: Positions::Rotary,
                activation: Activation::Gelu,
                is_tied: false,
                is_parallel: true,
                ..gpt
            },
            Family::Falcon => Architecture {
                positions: Positions::Rotary,
                activation: Activation::Gelu,
                biases: Biases::None,
                is_parallel: true,
                has_shared_norm: true,
                ..gpt
            },
            Family::Bloom => Architecture {
                positions: Positions::Alibi,
                has_embedding_norm: true,
                drops_embedding: false,
                ..gpt
            },
            Family::Opt => Architecture {
                activation: Activation::Relu,
                first_position: 2,
                drops_embedding: false,
                ..gpt
            },
            Family::Llama | Family::Mistral | Family::Phi3 => llama,
            Family::Qwen2 => Architecture {
                biases: Biases::Qkv,
                ..llama
            },
            Family::Qwen3 => Architecture {
                qk_norm: true,
                ..llama
            },
            Family::Olmo2 => Architecture {
                qk_norm: true,
                qk_norm_over: QkNormOver::All,
                norm_place: NormPlace::After,
                ..llama
            },
            Family::Gemma2 | Family::Gemma3 => Architecture {
                activation: Activation::GegluTanh,
                qk_norm: self.family == Family::Gemma3,
                norm_place: NormPlace::Both,
                norm_plus_one: true,
                scaled_embedding: true,
                is_tied: true,
                ..llama
            },
            Family::GptOss => Architecture {
                activation: Activation::SwigluClamped,
                biases: Biases::All,
                has_sinks: true,
                ..llama
            },
            Family::DeepseekV2 | Family::DeepseekV3 => Architecture {
                has_latents: true,
                ..llama
            },
            Family::Bert => bert,
            Family::T5 => Architecture {
                positions: Positions::Relative,
                activation: Activation::Relu,
                is_tied: true,
                is_encoder_decoder: true,
                ..llama
            },
        };
        let positions = match (self.alibi, family.positions) {
            (Some(true), _) => Positions::Alibi,
            (Some(false), Positions::Alibi) => Positions::Learned,
            (Some(false) | None, positions) => positions,
        };
        Architecture {
            positions,
            norm: self.norm.unwrap_or(family.norm),
            activation: self.activation.unwrap_or(family.activation),
            biases: self.bias.unwrap_or(family.biases),
            qk_norm: self.qk_norm.unwrap_or(family.qk_norm),
            qk_norm_over: self.qk_norm_over.unwrap_or(family.qk_norm_over),
            norm_place: self.norm_place.unwrap_or(family.norm_place),
            norm_plus_one: self.norm_plus_one.unwrap_or(family.norm_plus_one),
            scaled_embedding: self.scaled_embedding.unwrap_or(family.scaled_embedding),
            has_embedding_norm: self.embedding_norm.unwrap_or(family.has_embedding_norm),
            has_sinks: self.attention_sinks.unwrap_or(family.has_sinks),
            has_latents: self.multi_latent_attention.unwrap_or(family.has_latents),
            has_shared_norm: self.shared_norm.unwrap_or(family.has_shared_norm),
            is_parallel: self.parallel_residual.unwrap_or(family.is_parallel),
            is_tied: match self.tie_embeddings {
                TieEmbeddings::Family => family.is_tied,
                TieEmbeddings::Tied => true,
                TieEmbeddings::Untied => false,
            },
            ..family
        }
    }
}
