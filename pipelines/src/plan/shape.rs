//! Shape of a decoder-only transformer, and its parameters and operations. Sizes are multiplied as floating-point numbers: a job may
//! have any, and they are planned before the training looks at them.

use std::ops::Range;

/// A mixture of experts in place of feed-forward networks, by the keys of `[model.moe]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mixture {
    pub experts: usize,
    /// Experts per token.
    pub top_k: usize,
    /// Width of an expert.
    pub ffn: usize,
    /// Width of the expert that every token passes; 0: none.
    pub shared: usize,
    /// Interval of mixture layers.
    pub every: usize,
    /// First layers that are dense in any case.
    pub dense_first: usize,
}

impl Mixture {
    /// Mixture layers among `layers`, counted from 0: those after the dense ones whose number, counted from 1, `every` divides.
    fn among(&self, layers: Range<usize>) -> usize {
        let every = self.every.max(1);
        let first = layers.start.max(self.dense_first);
        (layers.end / every).saturating_sub(first / every)
    }
}

/// Widths and lengths. Every layer has attention and a feed-forward network or a mixture of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    pub layers: usize,
    pub width: usize,
    pub heads: usize,
    pub kv_heads: usize,
    pub head_dim: usize,
    pub ffn: usize,
    /// Whether the feed-forward network has a gate (SwiGLU): three matrices instead of two.
    pub is_gated: bool,
    /// Rows of the embedding and of the head, padded.
    pub vocab: usize,
    /// Layers with experts, if there are some.
    pub mixture: Option<Mixture>,
    /// Whether embedding and head share their weights.
    pub is_tied: bool,
    pub seq_length: usize,
    /// Whether attention is one fused kernel that skips hidden keys (FlashAttention); without it scores are in memory, and
    /// all of them are computed.
    pub is_fused: bool,
}

impl Shape {
    /// GPT with a feed-forward width of four times the model's, as in the published tables.
    pub(crate) fn gpt(layers: usize, width: usize, heads: usize) -> Shape {
        Shape {
            layers,
            width,
            heads,
            kv_heads: heads,
            head_dim: width / heads,
            ffn: 4 * width,
            is_gated: false,
            vocab: 51_200,
            mixture: None,
            is_tied: true,
            seq_length: 2048,
            is_fused: false,
        }
    }

    /// Llama 3.1 405B (arXiv:2407.21783, table 3).
    pub(crate) fn llama3_405b(seq_length: usize) -> Shape {
        Shape {
            layers: 126,
            width: 16_384,
            heads: 128,
            kv_heads: 8,
            head_dim: 128,
            ffn: 53_248,
            is_gated: true,
            vocab: 128_256,
            mixture: None,
            is_tied: false,
            seq_length,
            is_fused: true,
        }
    }

    /// Mixtral 8x7B (arXiv:2401.04088, table 1) at 4,096 tokens.
    pub(crate) fn mixtral_8x7b() -> Shape {
        Shape {
            layers: 32,
            width: 4096,
            heads: 32,
            kv_heads: 8,
            head_dim: 128,
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
        }
    }

    /// Width of all queries.
    pub(crate) fn queries(&self) -> f64 {
        self.heads as f64 * self.head_dim as f64
    }

    /// Width of queries, keys and values together.
    pub(crate) fn packed(&self) -> f64 {
        (self.heads as f64 + 2.0 * self.kv_heads as f64) * self.head_dim as f64
    }

    /// Parameters of the embedding, and of the head.
    pub(crate) fn end_parameters(&self) -> f64 {
        self.vocab as f64 * self.width as f64
    }

    /// Width of the feed-forward networks that a token passes: of a dense layer, or of the chosen and the shared experts.
    pub(crate) fn inner(&self, mixture: Option<&Mixture>) -> f64 {
        mixture.map_or(self.ffn as f64, |of| {
            of.top_k as f64 * of.ffn as f64 + of.shared as f64
        })
    }

    /// Matrices into the feed-forward network.
    pub(crate) fn ffn_inputs(&self) -> f64 {
        if self.is_gated { 2.0 } else { 1.0 }
    }

    /// Parameters of the matrices of a feed-forward network of this width.
    fn ffn_parameters(&self, ffn: usize) -> f64 {
        self.width as f64 * ffn as f64 * (1.0 + self.ffn_inputs())
    }

    /// Parameters of the matrices of attention.
    fn attention_parameters(&self) -> f64 {
        self.width as f64 * (self.packed() + self.queries())
    }

    /// Parameters of the matrices of a dense layer.
    pub(crate) fn layer_parameters(&self) -> f64 {
        self.attention_parameters() + self.ffn_parameters(self.ffn)
    }

    /// Parameters of a mixture layer without its experts: attention, router, shared expert.
    pub(crate) fn common_parameters(&self, mixture: &Mixture) -> f64 {
        let router = self.width as f64 * mixture.experts as f64;
        self.attention_parameters() + router + self.ffn_parameters(mixture.shared)
    }

    /// Parameters of all experts of a mixture layer.
    pub(crate) fn expert_parameters(&self, mixture: &Mixture) -> f64 {
        mixture.experts as f64 * self.ffn_parameters(mixture.ffn)
    }

    /// Number of mixture layers among `layers`, counted from 0.
    pub(crate) fn mixtures(&self, layers: Range<usize>) -> usize {
        self.mixture.map_or(0, |of| of.among(layers))
    }

    /// Sum over all layers of `dense` or, of a mixture layer, `of_mixture`.
    fn over_layers(&self, dense: f64, of_mixture: impl Fn(&Mixture) -> f64) -> f64 {
        let mixtures = self.mixtures(0..self.layers);
        let others = (self.layers - mixtures) as f64 * dense;
        others + mixtures as f64 * self.mixture.as_ref().map_or(0.0, of_mixture)
    }

    /// Parameters of the matrices: layers, embedding and head; positions, norms and biases are below a thousandth.
    pub(crate) fn parameters(&self) -> f64 {
        let ends = if self.is_tied { 1.0 } else { 2.0 };
        let layers = self.over_layers(self.layer_parameters(), |mixture| {
            self.common_parameters(mixture) + self.expert_parameters(mixture)
        });
        layers + ends * self.end_parameters()
    }

    /// FLOP of the products of forward and backward over `sequences`, without recomputation; of a mixture those of a token's experts. `attention` is the share of the
    /// scores that is counted: 1 as in 2104.04473 and 2205.05198, 0.5 as in Llama 3's figures.
    pub(crate) fn model_flop(&self, sequences: f64, attention: f64) -> f64 {
        let tokens = sequences * self.seq_length as f64;
        let products = self.over_layers(self.layer_parameters(), |mixture| {
            let chosen = mixture.top_k as f64 * self.ffn_parameters(mixture.ffn);
            self.common_parameters(mixture) + chosen
        });
        let scores = self.layers as f64 * 2.0 * self.queries() * self.seq_length as f64;
        6.0 * tokens * (products + self.end_parameters() + attention * scores)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use train::config::MoeConfig;

    #[test]
    fn operations_and_parameters_are_those_of_the_published_formulas() {
        // 2205.05198, equation 7: 72 B L s h^2 (1 + s/(6h) + V/(12 h L))
        let gpt = Shape::gpt(96, 12_288, 96);
        let (l, h, s, v) = (96.0, 12_288.0, 2048.0, 51_200.0);
        let wanted = 72.0 * 64.0 * l * s * h * h * (1.0 + s / (6.0 * h) + v / (12.0 * h * l));
        let found = gpt.model_flop(64.0, 1.0);
        assert!((found / wanted - 1.0).abs() < 1e-12, "{found} {wanted}");
        // 2104.04473, table 1: 145.6B and 1008B
        for (layers, width, heads, billions) in
            [(80, 12_288, 96, 145.6), (128, 25_600, 160, 1008.0)]
        {
            let found = Shape::gpt(layers, width, heads).parameters() / 1e9;
            assert!((found / billions - 1.0).abs() < 0.002, "{found}");
        }
        // Llama 3.1 405B
        let llama = Shape::llama3_405b(8192);
        let found = llama.parameters() / 1e9;
        assert!((found / 405.8 - 1.0).abs() < 0.001, "{found}");
    }

    /// Mixtral 8x7B (arXiv:2401.04088, table 1 and section 1): 47B parameters, of which a token uses 13B.
    #[test]
    fn a_mixture_has_the_published_parameters() {
        let mixtral = Shape::mixtral_8x7b();
        let all = mixtral.parameters() / 1e9;
        assert!((all / 46.7 - 1.0).abs() < 0.001, "{all}");
        // 6 FLOP per token and parameter that it uses, of which the embedding is none
        let used = mixtral.model_flop(1.0, 0.0) / (6.0 * mixtral.seq_length as f64);
        let embedding = (mixtral.vocab * mixtral.width) as f64;
        let used = (used + embedding) / 1e9;
        assert!((used / 12.9 - 1.0).abs() < 0.002, "{used}");
    }

    #[test]
    fn mixture_layers_are_those_of_the_training() {
        for (every, dense_first) in [(0, 0), (1, 0), (1, 5), (3, 0), (3, 4), (4, 6), (20, 2)] {
            let keys = MoeConfig {
                every,
                dense_first,
                ..MoeConfig::default()
            };
            let mixture = Mixture {
                every,
                dense_first,
                ..Shape::mixtral_8x7b().mixture.unwrap()
            };
            for first in 0..12 {
                for end in first..12 {
                    let wanted = (first..end).filter(|layer| keys.is_at(*layer)).count();
                    assert_eq!(mixture.among(first..end), wanted, "{every} {first}..{end}");
                }
            }
        }
    }

    #[test]
    fn mixture_layers_are_those_of_the_job_key() {
        let of = |every, dense_first| Shape {
            mixture: Shape::mixtral_8x7b().mixture.map(|mixture| Mixture {
                every,
                dense_first,
                ..mixture
            }),
            ..Shape::mixtral_8x7b()
        };
        assert_eq!(of(1, 0).mixtures(0..32), 32);
        assert_eq!(of(2, 0).mixtures(0..32), 16);
        assert_eq!(of(1, 3).mixtures(0..32), 29);
        assert_eq!(of(1, 3).mixtures(2..4), 1);
        // layers 1, 3, 5, 7 of 0..8 are the second ones; the first three are dense
        assert_eq!(of(2, 3).mixtures(0..8), 3);
        assert_eq!(Shape::gpt(4, 64, 4).mixtures(0..4), 0);
    }
}
