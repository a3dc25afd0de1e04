//! Shape of a transformer (a decoder, a masked encoder, or an encoder with a decoder), and its parameters and operations. Sizes are
//! multiplied as floating-point numbers: a job may have any, and they are planned before the training looks at them.

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

/// Narrow rows of a token from which its queries, keys and values come (multi-head latent attention, DeepSeek-V2, arXiv:2405.04434,
/// section 2.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Latent {
    /// Width of the latent of queries; 0: queries are a projection of the rows themselves.
    pub queries: usize,
    /// Width of the latent of keys and values.
    pub keys_values: usize,
    /// Features of a key that all heads share; they come from the rows themselves.
    pub shared_key: usize,
}

/// The decoder that follows an encoder, with the encoder's widths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Decoder {
    /// Its layers, each with cross attention.
    pub layers: usize,
    /// Tokens of its sequence.
    pub length: usize,
}

/// State that the optimizer keeps of each parameter beside AdamW's two moments, or in their place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct OptimizerState {
    /// Whether the matrices of layers have Muon's momentum alone (`train.optimizer = "muon"`).
    pub is_muon: bool,
    /// Whether averages of all weights are kept (`train.ema_decay`).
    pub has_averages: bool,
}

impl OptimizerState {
    /// Bytes of the state in f32 of a parameter, without a copy of weights: one of a layer's matrix, or another one.
    pub(crate) fn bytes(&self, is_of_layer: bool) -> f64 {
        let moments = if self.is_muon && is_of_layer {
            4.0
        } else {
            8.0
        };
        let averages = if self.has_averages { 4.0 } else { 0.0 };
        moments + averages
    }
}

/// Kind of a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Attention and a feed-forward network.
    Dense,
    /// Attention and a mixture of experts.
    Mixture(Mixture),
    /// Attention, attention to the encoder's rows, and a feed-forward network.
    Crossed(Decoder),
}

/// A matrix of a layer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Matrix {
    /// Features of its result.
    pub outputs: f64,
    /// Features that it reads.
    pub inputs: f64,
    /// Whether tensor parallelism divides its outputs; otherwise each rank has all of it.
    pub is_split: bool,
}

impl Matrix {
    fn parameters(&self) -> f64 {
        self.outputs * self.inputs
    }

    /// Ranks among `tp` that share its outputs out.
    pub(crate) fn ranks(&self, tp: f64) -> f64 {
        if self.is_split { tp } else { 1.0 }
    }
}

/// Parameters of a layer's matrices by the ranks that share them.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Weights {
    /// Divided by tensor parallelism.
    pub split: f64,
    /// On each of its ranks: projections to latents, routers.
    pub whole: f64,
    /// Of experts: divided by tensor and expert parallelism.
    pub experts: f64,
}

impl Weights {
    /// All of them.
    pub(crate) fn all(&self) -> f64 {
        self.split + self.whole + self.experts
    }

    /// Those of a tensor-parallel rank, without its experts.
    pub(crate) fn of_rank(&self, tp: f64) -> f64 {
        self.split / tp + self.whole
    }
}

/// Widths and lengths. Every layer has attention and a feed-forward network or a mixture of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    /// Layers; of an encoder with a decoder those of the encoder.
    pub layers: usize,
    pub width: usize,
    pub heads: usize,
    pub kv_heads: usize,
    /// Features of a head's query and key.
    pub head_dim: usize,
    /// Features of a head's value.
    pub value_dim: usize,
    /// Latents of queries, keys and values, if there are some.
    pub latent: Option<Latent>,
    pub ffn: usize,
    /// Whether the feed-forward network has a gate (SwiGLU): three matrices instead of two.
    pub is_gated: bool,
    /// Rows of the embedding and of the head, padded.
    pub vocab: usize,
    /// Layers with experts, if there are some.
    pub mixture: Option<Mixture>,
    /// The decoder after the layers, which are an encoder then.
    pub decoder: Option<Decoder>,
    /// Tokens of a sequence that the head of a masked encoder predicts, after a layer of its own; `None`: the head predicts all.
    pub predictions: Option<usize>,
    /// Whether embedding and head share their weights.
    pub is_tied: bool,
    /// Tokens of a sequence; of an encoder with a decoder those of the encoder.
    pub seq_length: usize,
    /// Whether attention is one fused kernel that skips hidden keys (FlashAttention); without it scores are in memory, and
    /// all of them are computed.
    pub is_fused: bool,
    /// The optimizer's state of its parameters.
    pub state: OptimizerState,
}

impl Shape {
    /// Whether rows of the first stack attend to none after them.
    pub(crate) fn is_causal(&self) -> bool {
        self.decoder.is_none() && self.predictions.is_none()
    }

    /// Layers of all stacks, numbered one after the other.
    pub(crate) fn blocks(&self) -> usize {
        self.layers
            .saturating_add(self.decoder.map_or(0, |of| of.layers))
    }

    /// Tokens of a sample in all of its sequences, which travel through the pipeline together.
    pub(crate) fn tokens(&self) -> f64 {
        self.seq_length as f64 + self.decoder.map_or(0.0, |of| of.length as f64)
    }

    /// Tokens of a sample whose logits are computed.
    pub(crate) fn predicted(&self) -> f64 {
        let length = self.decoder.map_or(self.seq_length, |of| of.length);
        self.predictions.unwrap_or(length) as f64
    }

    /// A decoder's layers without their cross attention.
    pub(crate) fn of_decoder(&self, decoder: &Decoder) -> Shape {
        Shape {
            layers: decoder.layers,
            seq_length: decoder.length,
            decoder: None,
            ..*self
        }
    }

    /// The kind of layers that a model may have beside dense ones.
    pub(crate) fn other_kind(&self) -> Option<Kind> {
        match (self.decoder, self.mixture) {
            (Some(decoder), _) => Some(Kind::Crossed(decoder)),
            (None, Some(mixture)) => Some(Kind::Mixture(mixture)),
            (None, None) => None,
        }
    }

    /// Number of layers of that kind among `layers`, counted from 0 over all stacks.
    pub(crate) fn others(&self, layers: Range<usize>) -> usize {
        match self.other_kind() {
            None => 0,
            Some(Kind::Crossed(_)) => layers.end.saturating_sub(layers.start.max(self.layers)),
            Some(Kind::Mixture(mixture)) => mixture.among(layers),
            Some(Kind::Dense) => layers.len(),
        }
    }

    /// Width of all queries.
    pub(crate) fn queries(&self) -> f64 {
        self.heads as f64 * self.head_dim as f64
    }

    /// Width of the values that attention mixes, of all heads.
    pub(crate) fn mixed(&self) -> f64 {
        self.heads as f64 * self.value_dim as f64
    }

    /// Width of keys and values together.
    pub(crate) fn keys_values(&self) -> f64 {
        self.kv_heads as f64 * (self.head_dim as f64 + self.value_dim as f64)
    }

    /// Width of queries, keys and values together.
    pub(crate) fn packed(&self) -> f64 {
        self.queries() + self.keys_values()
    }

    /// Width of the rows from which queries, keys and values come; 0 without latents.
    pub(crate) fn latents(&self) -> f64 {
        self.latent.map_or(0.0, |of| {
            of.queries as f64 + of.keys_values as f64 + of.shared_key as f64
        })
    }

    /// The matrices that make queries, keys and values.
    pub(crate) fn projections(&self) -> impl Iterator<Item = Matrix> + use<> {
        let h = self.width as f64;
        let of = |outputs: f64, inputs: f64, is_split| {
            Some(Matrix {
                outputs,
                inputs,
                is_split,
            })
        };
        let matrices = match &self.latent {
            None => [of(self.packed(), h, true), None, None, None],
            Some(latent) => {
                let (queries, keys_values) = (latent.queries as f64, latent.keys_values as f64);
                let shared = latent.shared_key as f64;
                let [down, up] = match latent.queries {
                    0 => [None, of(self.queries(), h, true)],
                    _ => [of(queries, h, false), of(self.queries(), queries, true)],
                };
                let of_heads = self.keys_values() - self.kv_heads as f64 * shared;
                [
                    down,
                    up,
                    of(shared + keys_values, h, false),
                    of(of_heads, keys_values, true),
                ]
            }
        };
        matrices.into_iter().flatten()
    }

    /// Parameters of the embedding, and of the head.
    pub(crate) fn end_parameters(&self) -> f64 {
        self.vocab as f64 * self.width as f64
    }

    /// Parameters of the layer between a masked encoder and its head.
    pub(crate) fn transform_parameters(&self) -> f64 {
        self.predictions
            .map_or(0.0, |_| self.width as f64 * self.width as f64)
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

    /// Parameters of a layer's matrices.
    pub(crate) fn weights(&self, kind: &Kind) -> Weights {
        let mut weights = Weights {
            split: self.width as f64 * self.mixed(),
            ..Weights::default()
        };
        for matrix in self.projections() {
            match matrix.is_split {
                true => weights.split += matrix.parameters(),
                false => weights.whole += matrix.parameters(),
            }
        }
        match kind {
            Kind::Dense => weights.split += self.ffn_parameters(self.ffn),
            Kind::Mixture(mixture) => {
                weights.split += self.ffn_parameters(mixture.shared);
                weights.whole += self.width as f64 * mixture.experts as f64;
                weights.experts = mixture.experts as f64 * self.ffn_parameters(mixture.ffn);
            }
            Kind::Crossed(_) => {
                weights.split += self.ffn_parameters(self.ffn) + self.cross_parameters();
            }
        }
        weights
    }

    /// Parameters of the matrices of cross attention.
    fn cross_parameters(&self) -> f64 {
        self.width as f64 * (self.packed() + self.mixed())
    }

    /// Layers of a kind over all stacks.
    pub(crate) fn number(&self, kind: &Kind) -> f64 {
        let others = self.others(0..self.blocks());
        match kind {
            Kind::Dense => (self.blocks() - others) as f64,
            Kind::Mixture(_) | Kind::Crossed(_) => others as f64,
        }
    }

    /// The kinds of layers that the model may have.
    pub(crate) fn kinds(&self) -> impl Iterator<Item = Kind> + use<> {
        [Some(Kind::Dense), self.other_kind()].into_iter().flatten()
    }

    /// Parameters of the matrices: layers, embedding and head. Positions, norms and biases take no time and little memory here;
    /// `Plan::parameters` counts all.
    pub(crate) fn parameters(&self) -> f64 {
        let ends = if self.is_tied { 1.0 } else { 2.0 };
        self.layer_parameters() + ends * self.end_parameters() + self.transform_parameters()
    }

    /// Parameters of the matrices of all layers, those of all experts included.
    pub(crate) fn layer_parameters(&self) -> f64 {
        let layers = self.kinds();
        let layers = layers.map(|kind| self.number(&kind) * self.weights(&kind).all());
        layers.sum()
    }

    /// FLOP of the products of forward and backward over `sequences`, without recomputation; of a mixture those of a token's experts. `attention` is the share of the
    /// scores of a causal stack that is counted: 1 as in 2104.04473 and 2205.05198, 0.5 as in Llama 3's figures.
    pub(crate) fn model_flop(&self, sequences: f64, attention: f64) -> f64 {
        let layers: f64 = self
            .kinds()
            .map(|kind| self.number(&kind) * self.layer_products(&kind, attention))
            .sum();
        let head = self.end_parameters() + self.transform_parameters();
        6.0 * sequences * (layers + self.predicted() * head)
    }

    /// Multiplications of a layer's forward pass for a sample.
    fn layer_products(&self, kind: &Kind, attention: f64) -> f64 {
        let (length, h) = (self.seq_length as f64, self.width as f64);
        let pair = self.queries() + self.mixed();
        let weights = self.weights(kind);
        match kind {
            Kind::Dense => {
                let seen = if self.is_causal() { attention } else { 1.0 };
                length * (weights.all() + seen * pair * length)
            }
            Kind::Mixture(mixture) => {
                let chosen = mixture.top_k as f64 * self.ffn_parameters(mixture.ffn);
                let others = weights.split + weights.whole;
                length * (others + chosen + attention * pair * length)
            }
            Kind::Crossed(decoder) => {
                let own = decoder.length as f64;
                let keys_values = h * self.keys_values();
                own * (weights.all() - keys_values + pair * (attention * own + length))
                    + length * keys_values
            }
        }
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

    /// DeepSeek-V2 and V3 (arXiv:2405.04434 and arXiv:2412.19437): 236B and 671B parameters, of which a token uses 21B and 37B; as
    /// transformers counts V3 without its module of multi-token prediction, 671,026,404,352.
    #[test]
    fn models_with_latents_have_the_published_parameters() {
        for (shape, all, used) in [
            (Shape::deepseek_v2(), 235.74, 21.0),
            (Shape::deepseek_v3(), 671.026, 37.0),
        ] {
            let found = shape.parameters() / 1e9;
            assert!((found / all - 1.0).abs() < 2e-4, "{found} {all}");
            let per_token = shape.model_flop(1.0, 0.0) / (6.0 * shape.seq_length as f64);
            let found = (per_token + shape.end_parameters()) / 1e9;
            assert!((found - used).abs() < 0.6, "{found} {used}");
        }
        // scores of 192 features and mixed values of 128 of each of 128 heads and 61 layers
        let v3 = Shape::deepseek_v3();
        let scores = v3.model_flop(1.0, 1.0) - v3.model_flop(1.0, 0.0);
        let wanted = 6.0 * 61.0 * 128.0 * (192.0 + 128.0) * 4096.0 * 4096.0;
        assert!((scores / wanted - 1.0).abs() < 1e-9, "{scores} {wanted}");
    }

    /// Megatron's formula for BERT, 72 B L s h^2 (1 + s/(6h) + V/(12 h L)), with logits of all tokens, and the layer before the head.
    #[test]
    fn operations_of_a_masked_encoder_are_those_of_the_published_formula() {
        let bert = Shape::bert_4b();
        let (l, h, s, v) = (48.0, 2560.0, 512.0, 30_592.0);
        let layers = 72.0 * 8.0 * l * s * h * h * (1.0 + s / (6.0 * h) + v / (12.0 * h * l));
        let transform = 6.0 * 8.0 * s * h * h;
        for attention in [0.5, 1.0] {
            let found = bert.model_flop(8.0, attention);
            let wanted = layers + transform;
            assert!((found / wanted - 1.0).abs() < 1e-12, "{found} {wanted}");
        }
        // the head of 77 tokens of 512
        let few = Shape {
            predictions: Some(77),
            ..bert
        };
        let less = bert.model_flop(8.0, 1.0) - few.model_flop(8.0, 1.0);
        let wanted = 6.0 * 8.0 * (512.0 - 77.0) * (h * v + h * h);
        assert!((less / wanted - 1.0).abs() < 1e-9, "{less} {wanted}");
    }

    /// T5 1.1 base, XL and XXL as transformers counts them: 247,577,856, 2,849,757,184 and 11,135,332,352.
    #[test]
    fn encoders_with_decoders_have_the_published_parameters() {
        let of = |shape: Shape| Shape {
            vocab: 32_128,
            is_tied: false,
            ..shape
        };
        for (shape, wanted) in [
            (Shape::t5_220m(), 247_577_856.0),
            (Shape::t5_3b(), 2_849_757_184.0),
            (Shape::t5_11b(), 11_135_332_352.0),
        ] {
            let found = of(shape).parameters();
            assert!((1.0 - found / wanted).abs() < 3e-4, "{found} {wanted}");
        }
    }

    /// Products of T5 layer by layer, and every pair of tokens that attention looks at.
    #[test]
    fn operations_of_an_encoder_with_a_decoder_are_those_of_its_matrices() {
        let t5 = Shape::t5_3b();
        let (h, q, f, v) = (2048.0, 32.0 * 64.0, 5120.0, 29_184.0);
        let (encoder, decoder) = (512.0, 128.0);
        let mut wanted = 0.0;
        for _ in 0..24 {
            let own = 4.0 * h * q + 3.0 * h * f;
            wanted += encoder * own + encoder * encoder * 2.0 * q;
            // queries and results of the decoder's rows, keys and values of the encoder's
            let cross = decoder * 2.0 * h * q + encoder * 2.0 * h * q;
            let pairs = 0.5 * decoder * decoder + decoder * encoder;
            wanted += decoder * own + cross + pairs * 2.0 * q;
        }
        let wanted = 6.0 * (wanted + decoder * h * v);
        let found = t5.model_flop(1.0, 0.5);
        assert!((found / wanted - 1.0).abs() < 1e-12, "{found} {wanted}");
        assert_eq!([t5.tokens(), t5.predicted()], [640.0, 128.0]);
        assert_eq!(t5.others(20..30), 6);
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
        assert_eq!(of(1, 0).others(0..32), 32);
        assert_eq!(of(2, 0).others(0..32), 16);
        assert_eq!(of(1, 3).others(0..32), 29);
        assert_eq!(of(1, 3).others(2..4), 1);
        // layers 1, 3, 5, 7 of 0..8 are the second ones; the first three are dense
        assert_eq!(of(2, 3).others(0..8), 3);
        assert_eq!(Shape::gpt(4, 64, 4).others(0..4), 0);
    }
}
