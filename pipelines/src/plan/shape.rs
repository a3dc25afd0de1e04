//! Shape of a decoder-only transformer, and its parameters and operations.

/// Widths and lengths. Every layer has attention and one feed-forward network.
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
            is_tied: false,
            seq_length,
            is_fused: true,
        }
    }

    /// Width of all queries.
    pub(crate) fn queries(&self) -> usize {
        self.heads * self.head_dim
    }

    /// Width of queries, keys and values together.
    pub(crate) fn packed(&self) -> usize {
        (self.heads + 2 * self.kv_heads) * self.head_dim
    }

    /// Matrices into the feed-forward network.
    pub(crate) fn ffn_inputs(&self) -> usize {
        1 + usize::from(self.is_gated)
    }

    /// Parameters of the matrices of a layer.
    pub(crate) fn layer_parameters(&self) -> f64 {
        let attention = self.width * (self.packed() + self.queries());
        (attention + self.width * self.ffn * (1 + self.ffn_inputs())) as f64
    }

    /// Parameters of the matrices: layers, embedding and head; positions, norms and biases are below a thousandth.
    pub(crate) fn parameters(&self) -> f64 {
        let ends = if self.is_tied { 1 } else { 2 };
        self.layers as f64 * self.layer_parameters() + (ends * self.vocab * self.width) as f64
    }

    /// FLOP of the products of forward and backward over `sequences`, without recomputation. `attention` is the share of the
    /// scores that is counted: 1 as in 2104.04473 and 2205.05198, 0.5 as in Llama 3's figures.
    pub(crate) fn model_flop(&self, sequences: f64, attention: f64) -> f64 {
        let tokens = sequences * self.seq_length as f64;
        let products = self.layers as f64 * self.layer_parameters();
        let head = (self.vocab * self.width) as f64;
        let scores = self.layers as f64 * 2.0 * (self.queries() * self.seq_length) as f64;
        6.0 * tokens * (products + head + attention * scores)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
