//! Bytes of a device that serves: weights, the cache of the requests in flight by kind of layer, and scratch.

use super::{Served, ServingMemory, ServingQuestion, Way};
use crate::plan::shape::{Kind, Latent};

/// Share of a device's memory that weights, cache and scratch may take; vLLM's `gpu_memory_utilization`.
const USABLE: f64 = 0.9;
/// Rows of a prompt that are computed at once.
const CHUNK: usize = 8192;

/// Tokens of a request whose keys and values are in the cache.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Cached {
    pub(super) prompt: f64,
    pub(super) answer: f64,
}

impl ServingQuestion<'_> {
    pub(super) fn fits(&self, way: Way, memory: &ServingMemory) -> bool {
        // ranks that share cores share the memory
        let held = match self.cluster.cores {
            Some(_) => way.devices() as f64 * memory.total(),
            None => memory.total(),
        };
        held <= USABLE * self.cluster.memory
    }

    pub(super) fn memory(&self, way: Way) -> ServingMemory {
        let number = self.cluster.number_bytes;
        let whole = Cached {
            prompt: self.demand.input as f64,
            answer: self.demand.output as f64,
        };
        ServingMemory {
            weights: self.parameters(way) * way.format.bytes(number) + 4.0 * self.others,
            cache: way.of_replica() * self.cache_bytes(way.tp, whole),
            scratch: self.scratch(way),
        }
    }

    /// Parameters of a device: matrices that tensor parallelism divides, those that each rank has, and its experts.
    fn parameters(&self, way: Way) -> f64 {
        let (shape, tp, ep) = (&self.shape, way.tp as f64, way.ep as f64);
        let of_kind = |kind: Kind| {
            let weights = shape.weights(&kind);
            shape.number(&kind) * (weights.of_rank(tp) + weights.experts / (tp * ep))
        };
        // an encoder's rows are its answer: it has no head
        let ends = match self.served() {
            Served::Encoder => 1.0,
            Served::Decoder | Served::EncoderDecoder if shape.is_tied => 1.0,
            Served::Decoder | Served::EncoderDecoder => 2.0,
        };
        shape.kinds().map(of_kind).sum::<f64>() + ends * shape.end_parameters() / tp
    }

    /// Bytes of a position's keys and values in a layer on a device: of one group of heads at least, or the latent and the key
    /// features that heads share, which each rank has.
    pub(super) fn position_bytes(&self, tp: usize) -> f64 {
        let shape = &self.shape;
        let numbers = match &shape.latent {
            Some(Latent {
                keys_values,
                shared_key,
                ..
            }) => *keys_values as f64 + *shared_key as f64,
            None => {
                let groups = (shape.kv_heads as f64 / tp as f64).max(1.0);
                groups * (shape.head_dim as f64 + shape.value_dim as f64)
            }
        };
        numbers * self.cluster.number_bytes
    }

    /// Positions of a request that all layers together read and hold.
    pub(super) fn positions(&self, of: Cached) -> f64 {
        let layers = self.shape.layers as f64;
        match (self.served(), self.shape.decoder) {
            (Served::Encoder, _) => 0.0,
            // keys and values of the decoder's own tokens, and those of the prompt
            (_, Some(decoder)) => decoder.layers as f64 * (of.answer + of.prompt),
            (_, None) => {
                let all = of.prompt + of.answer;
                let windowed = self.windowed.map_or(0.0, |of| of.layers as f64);
                let seen = self.windowed.map_or(all, |of| all.min(of.tokens as f64));
                (layers - windowed) * all + windowed * seen
            }
        }
    }

    fn cache_bytes(&self, tp: usize, of: Cached) -> f64 {
        self.positions(of) * self.position_bytes(tp)
    }

    /// Bytes of the rows of the running layer, the larger of its kinds, and of the logits.
    fn scratch(&self, way: Way) -> f64 {
        let (shape, tp, prompts) = (&self.shape, way.tp as f64, way.of_replica());
        let number = self.cluster.number_bytes;
        let input = self.demand.input as f64;
        let (rows, logits) = match self.served() {
            Served::Encoder => (prompts * input, 0.0),
            Served::Decoder | Served::EncoderDecoder => {
                let rows = input.min(CHUNK as f64).max(prompts);
                (rows, 4.0 * prompts * shape.vocab as f64)
            }
        };
        let of_kind = |kind: Kind| {
            let (mixture, routed) = match kind {
                Kind::Dense | Kind::Crossed(_) => (None, 0.0),
                // rows on their way to the experts and back
                Kind::Mixture(of) => (Some(of), 2.0 * of.top_k as f64 * shape.width as f64),
            };
            let inner = shape.packed() + shape.ffn_inputs() * shape.inner(mixture.as_ref());
            2.0 * shape.width as f64 + inner / tp + shape.latents() + routed
        };
        let of_kinds = shape.kinds().filter(|kind| shape.number(kind) > 0.0);
        number * rows * of_kinds.map(of_kind).fold(0.0, f64::max) + logits
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::cluster::Cluster;
    use crate::plan::serving::Windowed;
    use crate::plan::shape::Shape;

    fn question(shape: Shape, cluster: &Cluster) -> ServingQuestion<'_> {
        ServingQuestion::of(shape, cluster, [1000, 24])
    }

    fn near(found: f64, wanted: f64) {
        assert!((found / wanted - 1.0).abs() < 1e-9, "{found} {wanted}");
    }

    /// Numbers per token in the caches of DeepSeek-V2's paper (arXiv:2405.04434, table 9: 34.6K for its own), and bytes per token in those of
    /// DeepSeek's later one (arXiv:2505.09343, table 1): 70.272 KB of DeepSeek-V3, 516.096 KB of Llama 3.1 405B.
    #[test]
    fn a_cached_token_has_the_published_bytes() {
        let cluster = Cluster::load("dgx-h100").unwrap();
        let bytes = |shape: Shape, tp: usize| {
            let one = Cached {
                prompt: 1.0,
                answer: 0.0,
            };
            question(shape, &cluster).cache_bytes(tp, one)
        };
        assert_eq!(bytes(Shape::deepseek_v2(), 1) / 2.0, 34_560.0);
        assert_eq!(bytes(Shape::deepseek_v3(), 1), 70_272.0);
        assert_eq!(bytes(Shape::llama3_405b(8192), 1), 516_096.0);
        // heads divide keys and values, but no latent
        assert_eq!(bytes(Shape::deepseek_v3(), 8), 70_272.0);
        assert_eq!(bytes(Shape::llama3_405b(8192), 8), 516_096.0 / 8.0);
        // each of two layers of the decoder: a token of the prompt, and one of the answer
        let t5 = question(Shape::t5_3b(), &cluster);
        let two = Cached {
            prompt: 1.0,
            answer: 1.0,
        };
        assert_eq!(t5.cache_bytes(1, two), 24.0 * 2.0 * 2.0 * 2048.0 * 2.0);
        assert_eq!(question(Shape::bert_4b(), &cluster).positions(two), 0.0);
    }

    #[test]
    fn layers_with_a_window_keep_its_tokens() {
        let cluster = Cluster::load("dgx-h100").unwrap();
        let all = question(Shape::gpt(6, 64, 4), &cluster);
        let some = ServingQuestion {
            windowed: Some(Windowed {
                layers: 5,
                tokens: 100,
            }),
            ..all
        };
        for (prompt, answer, wanted) in [(60.0, 20.0, 6.0 * 80.0), (1000.0, 24.0, 1024.0 + 500.0)] {
            assert_eq!(some.positions(Cached { prompt, answer }), wanted);
        }
        let whole = Cached {
            prompt: 1000.0,
            answer: 24.0,
        };
        assert_eq!(all.positions(whole), 6.0 * 1024.0);
    }

    /// Mixtral 8x7B: 45.1B of its 46.7B parameters are in experts, which tensor and expert parallelism divide; the rest is on each replica.
    #[test]
    fn replicas_share_out_experts_and_requests() {
        let cluster = Cluster::load("dgx-h100").unwrap();
        let shape = Shape::mixtral_8x7b();
        let question = question(shape, &cluster);
        let experts = 32.0 * 8.0 * 3.0 * 4096.0 * 14_336.0;
        let router = 32.0 * 8.0 * 4096.0;
        let rest = shape.parameters() - experts - router;
        for (tp, ep) in [(1, 1), (2, 1), (1, 8), (2, 4)] {
            let found = question.memory(Way::whole(tp, ep, 4 * ep));
            let (t, e) = (tp as f64, ep as f64);
            near(found.weights, 2.0 * (rest / t + router + experts / (t * e)));
            // four requests of a replica, 32 layers of 8 groups of 2 x 128 numbers
            near(found.cache, 4.0 * 1024.0 * 32.0 * 8.0 * 256.0 * 2.0 / t);
            let inner = (6144.0 + 2.0 * 2.0 * 14_336.0) / t + 2.0 * 4096.0 + 2.0 * 2.0 * 4096.0;
            near(found.scratch, 2.0 * 1000.0 * inner + 4.0 * 4.0 * 32_000.0);
        }
        // 93 GB of bf16 on 80 of a card
        let fits = |tp, ep| {
            let way = Way::whole(tp, ep, ep);
            question.fits(way, &question.memory(way))
        };
        assert!(!fits(1, 1) && fits(1, 8) && fits(2, 1));
    }

    /// Norms, biases and positions are on every device, in f32 whatever the format of the matrices.
    #[test]
    fn parameters_beside_the_matrices_are_whole_on_every_device() {
        let cluster = Cluster::load("dgx-h100").unwrap();
        let none = question(Shape::gpt(32, 4096, 32), &cluster);
        let some = ServingQuestion {
            others: 1e6,
            ..none
        };
        near(some.all_parameters(), none.shape.parameters() + 1e6);
        for tp in [1, 8] {
            for format in super::super::WeightFormat::ALL {
                let way = Way {
                    format,
                    ..Way::whole(tp, 1, 1)
                };
                let more = some.memory(way).weights - none.memory(way).weights;
                assert!((more / 4e6 - 1.0).abs() < 1e-6, "{more}");
            }
        }
    }

    /// An encoder has one matrix of the vocabulary, no cache, and the rows of all prompts at once.
    #[test]
    fn an_encoder_holds_its_rows_alone() {
        let cluster = Cluster::load("dgx-a100").unwrap();
        let found = question(Shape::bert_4b(), &cluster).memory(Way::whole(1, 1, 8));
        let layers = 48.0 * 12.0 * 2560.0 * 2560.0;
        near(found.weights, 2.0 * (layers + 30_592.0 * 2560.0));
        near(found.scratch, 2.0 * 8000.0 * (2.0 + 3.0 + 4.0) * 2560.0);
        assert_eq!(found.cache, 0.0);
    }
}
