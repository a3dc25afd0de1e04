//! Enumerated choices of `[model]`.

use serde::{Deserialize, Serialize};

/// The published architecture that the blocks follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Family {
    /// GPT-2 (Radford et al. 2019): layer norm, learned positions, tanh-GELU, biases, tied head.
    Gpt,
    /// LLaMA (Touvron et al. 2023, arXiv:2302.13971): RMS norm, rotary positions, SwiGLU, no
    /// biases, untied head, grouped queries.
    Llama,
    /// BERT (Devlin et al. 2019, arXiv:1810.04805), an encoder that predicts masked tokens: as gpt
    /// with segments, erf-GELU and a transform before the tied head. Norms go before each layer
    /// (Megatron's; Izsak et al. 2021) unless `post_norm`.
    Bert,
    /// Mistral (Jiang et al. 2023, arXiv:2310.06825): as llama, made for `sliding_window`.
    Mistral,
    /// Qwen 2 (Yang et al. 2024, arXiv:2407.10671): as llama, with biases of queries, keys, values.
    Qwen2,
    /// Qwen 3 (Yang et al. 2025, arXiv:2505.09388): as llama, with norms of queries and keys.
    Qwen3,
    /// Phi-3 (Abdin et al. 2024, arXiv:2404.14219): as llama; some sizes turn a share of a head, `rotary_percent`.
    Phi3,
    /// GPT-NeoX (Black et al. 2022, arXiv:2204.06745) and Pythia (Biderman et al. 2023, arXiv:2304.01373): as gpt with rotary
    /// positions, erf-GELU, an untied head and `parallel_residual`; these models turn a quarter of a head, `rotary_percent = 0.25`.
    GptNeox,
    /// OPT (Zhang et al. 2022, arXiv:2205.01068): as gpt with ReLU, no dropout of embeddings, and two rows before the first
    /// position in the table.
    Opt,
    /// Falcon (Almazrouei et al. 2023, arXiv:2311.16867): layer norm, rotary positions, erf-GELU, no biases, tied head,
    /// `parallel_residual` and, as 7B, `shared_norm`.
    Falcon,
    /// BLOOM (BigScience 2022, arXiv:2211.05100): as gpt with linear biases of scores in place of positions, `alibi`, a norm
    /// of the embedding, `embedding_norm`, and no dropout of embeddings.
    Bloom,
    /// OLMo 2 (OLMo team 2024, arXiv:2501.00656): as llama, with norms after attention and feed-forward layers instead of before
    /// them, `norm_place = "after"`, and norms of all queries and of all keys, `qk_norm_over = "all"`.
    Olmo2,
    /// Gemma 2 (Gemma team 2024, arXiv:2408.00118): as gemma3 without norms of queries and keys; made for `sliding_window` with
    /// `global_every = 2`, `attention_cap` and `logit_cap`.
    Gemma2,
    /// Gemma 3's text models (Gemma team 2025, arXiv:2503.19786): as llama with tanh-GeGLU, a tied head, norms on both sides of
    /// the layers and of queries and keys, all of which multiply with 1 + weight, and scaled embeddings; made for
    /// `sliding_window` with `global_every` and `local_rope_theta`.
    Gemma3,
    /// gpt-oss (OpenAI 2025, arXiv:2508.10925): as llama with biases of every projection, `attention_sinks` and
    /// `activation = "swiglu_clamped"`; made for `[model.moe]` with `biases`, and `sliding_window` with `global_every = 2`.
    GptOss,
    /// DeepSeek-V2 (DeepSeek-AI 2024, arXiv:2405.04434): as llama with `multi_latent_attention`; made for `[model.moe]` with
    /// `dense_first`, `shared_d_ffn` and `num_groups`.
    DeepseekV2,
    /// DeepSeek-V3 (DeepSeek-AI 2024, arXiv:2412.19437): as deepseek_v2; made for `score = "sigmoid"` with `expert_bias`, and for
    /// `mtp_num_layers`.
    DeepseekV3,
    /// T5 (Raffel et al. 2020, JMLR 21), an encoder and a decoder that generates the masked spans: RMS norm,
    /// relative positions, ReLU, no biases, tied head. T5 1.1 and mT5 (Xue et al. 2021,
    /// arXiv:2010.11934): `activation = "geglu_tanh"`, `tie_embeddings = "untied"`.
    T5,
}

/// Norm over the width of the residual stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NormKind {
    /// Layer norm, with a bias (Ba et al. 2016).
    Layer,
    /// RMS norm (Zhang & Sennrich 2019).
    Rms,
}

/// Rows of a decoder's block that have norms.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NormPlace {
    /// Those that attention and the feed-forward layer read (GPT-2, LLaMA).
    Before,
    /// Those that they give, before they are added (OLMo 2).
    After,
    /// Both (Gemma 2).
    Both,
}

impl NormPlace {
    pub(crate) fn is_before(self) -> bool {
        matches!(self, NormPlace::Before | NormPlace::Both)
    }

    pub(crate) fn is_after(self) -> bool {
        matches!(self, NormPlace::After | NormPlace::Both)
    }
}

/// Features over which a norm of queries or keys goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum QkNormOver {
    /// Those of one head, with one weight for all heads (Qwen 3).
    Head,
    /// Those of all heads of a row together (OLMo 2).
    All,
}

/// Activation of the feed-forward layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Activation {
    /// GELU in tanh form (GPT-2; Hugging Face's `gelu_new`).
    GeluTanh,
    /// GELU with erf (BERT; Hugging Face's `gelu`).
    Gelu,
    /// x logistic(1.702 x).
    QuickGelu,
    /// max(x, 0).
    Relu,
    /// max(x, 0)^2 (So et al. 2021).
    SquaredRelu,
    /// silu(gate) * up (Shazeer 2020), llama.
    Swiglu,
    /// GELU with erf of gate, times up.
    Geglu,
    /// GELU in tanh form of gate, times up (T5 v1.1's `gated-gelu`).
    GegluTanh,
    /// g logistic(1.702 g) (1 + up) with g = min(gate, 7) and up from -7 to 7 (gpt-oss).
    SwigluClamped,
}

impl Activation {
    /// The same function without its gate.
    pub(crate) fn without_gate(self) -> Activation {
        match self {
            Activation::Swiglu | Activation::SwigluClamped | Activation::Geglu => Activation::Gelu,
            Activation::GegluTanh => Activation::GeluTanh,
            plain => plain,
        }
    }

    /// True if the first matrix has a second half that multiplies.
    pub fn is_gated(self) -> bool {
        matches!(
            self,
            Activation::Swiglu
                | Activation::SwigluClamped
                | Activation::Geglu
                | Activation::GegluTanh
        )
    }
}

/// Projections that have biases. Layer norms always have one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Biases {
    /// None.
    None,
    /// Queries, keys and values (Qwen 2).
    Qkv,
    /// Every projection of a block (GPT-2).
    All,
}

/// Whether the head shares the embedding's weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TieEmbeddings {
    /// As the family does: GPT-2 ties, LLaMA does not.
    Family,
    /// One matrix for both.
    Tied,
    /// Two matrices.
    Untied,
}
