//! Seconds of a prompt's pass and of a step of all requests in flight.

use super::memory::Cached;
use super::{ServingQuestion, Way};
use crate::plan::layer_time::{INSIDE_ATTENTION, Pass, cross_of_cached, forward};
use crate::plan::layout::Layout;
use crate::plan::rates::{Constants, Rates};
use crate::plan::shape::{Decoder, Kind, Shape};

impl ServingQuestion<'_> {
    /// The ranks of a way: replicas of attention are data-parallel ones.
    fn layout(way: Way) -> Layout {
        Layout {
            tp: way.tp,
            dp: way.ep,
            ep: way.ep,
            ..Layout::one(way.ep)
        }
    }

    pub(super) fn rates(&self, way: Way) -> Rates {
        let constants = Constants::of(self.cluster);
        Rates::of(&Self::layout(way), self.cluster, &constants)
            .with_weights(way.format.bytes(self.cluster.number_bytes))
    }

    /// Seconds of `rows` through all layers of the first stack, each row with the keys of its own sequence of `length`.
    fn layers(&self, way: Way, rates: &Rates, rows: f64, length: usize) -> f64 {
        let shape = Shape {
            seq_length: length,
            is_fused: true,
            ..self.shape
        };
        let layout = Self::layout(way);
        let of_kind = |kind: Kind| match kind {
            // those of an encoder with a decoder are the encoder's
            Kind::Dense => {
                shape.number(&kind) * forward(&shape, &layout, rates, rows, None).seconds()
            }
            Kind::Mixture(of) => {
                shape.number(&kind) * forward(&shape, &layout, rates, rows, Some(&of)).seconds()
            }
            Kind::Crossed(_) => 0.0,
        };
        shape.kinds().map(of_kind).sum()
    }

    /// Seconds in which an encoder makes the rows of so many prompts of a replica.
    pub(super) fn encode(&self, way: Way, rates: &Rates, prompts: f64) -> f64 {
        let input = self.demand.input;
        self.layers(way, rates, prompts * input as f64, input)
    }

    /// Seconds of a prompt's pass; logits of its last token alone. With a decoder of its own: the encoder, keys and values of its rows
    /// for each layer, and the first token.
    pub(super) fn prefill(&self, way: Way, rates: &Rates) -> f64 {
        let input = self.demand.input as f64;
        let pass = self.layers(way, rates, input, self.demand.input);
        let head = self.head(way, rates, 1.0);
        let Some(decoder) = self.shape.decoder else {
            return pass + head;
        };
        let keys_values = self.shape.keys_values() / way.tp as f64;
        let keys_values = rates.product(input, keys_values, self.shape.width as f64);
        let first = Cached {
            prompt: input,
            answer: 0.0,
        };
        let first = self.decoder_layers(way, rates, 1.0, &decoder) + self.cached(way, rates, first);
        pass + decoder.layers as f64 * keys_values + first + head
    }

    /// Seconds of a step that makes a token for each request, whose answers are half done on average.
    pub(super) fn decode(&self, way: Way, rates: &Rates) -> f64 {
        let rows = way.of_replica();
        let half = Cached {
            prompt: self.demand.input as f64,
            answer: 0.5 * self.demand.output as f64,
        };
        // a row sees one key in these passes; those of the cache are counted apart
        let layers = match &self.shape.decoder {
            Some(decoder) => self.decoder_layers(way, rates, rows, decoder),
            None => self.layers(way, rates, rows, 1),
        };
        layers + rows * self.cached(way, rates, half) + self.head(way, rates, rows)
    }

    /// Seconds of a row of each request through the layers of a decoder that attends to encoded prompts.
    fn decoder_layers(&self, way: Way, rates: &Rates, rows: f64, decoder: &Decoder) -> f64 {
        let shape = Shape {
            seq_length: 1,
            is_fused: true,
            ..self.shape.of_decoder(decoder)
        };
        let layout = Self::layout(way);
        let own = forward(&shape, &layout, rates, rows, None);
        let cross: Pass = cross_of_cached(&shape, &layout, rates, rows);
        decoder.layers as f64 * own.plus(cross).seconds()
    }

    /// Seconds of a request's row with the cached positions of all layers: they are read, or multiplied, the longer. Queries of
    /// latents are brought to the latents' width, and so are the mixed values (DeepSeek-V2, arXiv:2405.04434, section 2.1.2), which
    /// every head reads once for all.
    fn cached(&self, way: Way, rates: &Rates, of: Cached) -> f64 {
        let (shape, positions) = (&self.shape, self.positions(of));
        let read = positions * self.position_bytes(way.tp) / rates.memory;
        let pair = match &shape.latent {
            None => shape.queries() + shape.mixed(),
            Some(of) => {
                let (values, shared) = (of.keys_values as f64, of.shared_key as f64);
                shape.heads as f64 * (values + shared + values)
            }
        };
        let flop = 2.0 * positions * pair / way.tp as f64;
        read.max(flop / (rates.matrix * INSIDE_ATTENTION))
    }

    fn head(&self, way: Way, rates: &Rates, rows: f64) -> f64 {
        let vocab = self.shape.vocab as f64 / way.tp as f64;
        let gather = match way.tp {
            1 => 0.0,
            // each rank gets the logits of all others
            tp => rates.collective + 4.0 * (tp - 1) as f64 * rows * vocab / rates.link,
        };
        rates.product(rows, vocab, self.shape.width as f64) + gather
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::cluster::Cluster;
    use crate::plan::layer_time::Experts;
    use crate::plan::serving::WeightFormat;
    use std::path::Path;

    fn question(shape: Shape, cluster: &Cluster) -> ServingQuestion<'_> {
        ServingQuestion::of(shape, cluster, [1024, 256])
    }

    fn near(found: f64, wanted: f64) {
        assert!((found / wanted - 1.0).abs() < 1e-9, "{found} {wanted}");
    }

    /// Devices of which products alone take time, or bytes of memory alone, and all links.
    fn devices(matrix: f64, memory: f64) -> Cluster {
        let text = format!(
            "name = 'x'\nnodes = 16\ndevices_per_node = 8\nmatrix_tflops = {matrix}\nmemory_gb = 80\nmemory_gb_s = {memory}\nlink_gb_s = 100\nnetwork_gb_s = 10\n"
        );
        Cluster::parse(&text, Path::new("x.toml")).unwrap()
    }

    /// Seconds of a step with weights of 16 bits above those with 8.5, where bytes alone take time: of the weights that it reads.
    fn weights_read(question: &ServingQuestion<'_>, way: Way) -> f64 {
        let of = |format| {
            let way = Way { format, ..way };
            question.decode(way, &question.rates(way))
        };
        let seconds = of(WeightFormat::Whole) - of(WeightFormat::Q8_0);
        seconds * question.cluster.memory_rate / (2.0 - 34.0 / 32.0)
    }

    /// Every choice of two among four experts by each of two tokens, all alike.
    #[test]
    fn experts_with_a_token_are_as_many_as_all_choices_have_on_the_mean() {
        let pairs: Vec<[usize; 2]> = (0..4)
            .flat_map(|a| (a + 1..4).map(move |b| [a, b]))
            .collect();
        let mut all = 0;
        for first in &pairs {
            for second in &pairs {
                let both = (0..4).filter(|e| first.contains(e) || second.contains(e));
                all += both.count();
            }
        }
        let wanted = f64::from(u32::try_from(all).unwrap()) / 36.0;
        let mixture = crate::plan::Mixture {
            experts: 4,
            top_k: 2,
            ..Shape::mixtral_8x7b().mixture.unwrap()
        };
        for ep in [1, 2] {
            let layout = ServingQuestion::layout(Way::whole(1, ep, 2));
            let found = Experts::of(&mixture, &layout, 2.0 / ep as f64);
            near(found.count, wanted / ep as f64);
            // four rows, over all ranks
            near(found.count * found.rows, 4.0 / ep as f64);
        }
    }

    /// E (1 - (1 - k/E)^b) experts of a layer are read by b tokens, attention, router and head once.
    #[test]
    fn a_step_of_a_mixture_reads_the_experts_that_its_tokens_choose() {
        let cluster = devices(1e9, 1000.0);
        let shape = Shape::mixtral_8x7b();
        let question = question(shape, &cluster);
        let attention = 4096.0 * (6144.0 + 4096.0);
        let (router, expert, head) = (8.0 * 4096.0, 3.0 * 4096.0 * 14_336.0, 32_000.0 * 4096.0);
        for (tp, ep, requests) in [(1, 1, 1), (1, 1, 4), (2, 1, 16), (1, 8, 8), (2, 4, 32)] {
            let chosen = 8.0 * (1.0 - 0.75_f64.powi(requests));
            let (t, e) = (tp as f64, ep as f64);
            let layer = attention / t + router + chosen * expert / (t * e);
            let found = weights_read(&question, Way::whole(tp, ep, requests as usize));
            near(found, 32.0 * layer + head / t);
        }
    }

    #[test]
    fn a_step_with_latents_reads_their_projections_once_and_multiplies_the_cache_at_their_width() {
        let shape = Shape::deepseek_v3();
        let (h, heads, context) = (7168.0, 128.0, 1024.0 + 128.0);
        let bytes = devices(1e9, 1000.0);
        let of_bytes = question(shape, &bytes);
        let one = Way::whole(1, 1, 1);
        let attention = h * 1536.0
            + 1536.0 * heads * 192.0
            + h * 576.0
            + 512.0 * heads * 256.0
            + heads * 128.0 * h;
        let mixture = h * 256.0 + 9.0 * 3.0 * h * 2048.0;
        let wanted = 61.0 * attention + 3.0 * 3.0 * h * 18_432.0 + 58.0 * mixture;
        near(weights_read(&of_bytes, one), wanted + 129_280.0 * h);
        let half = Cached {
            prompt: 1024.0,
            answer: 128.0,
        };
        let read = of_bytes.cached(one, &of_bytes.rates(one), half);
        near(read, 61.0 * context * 576.0 * 2.0 / 1e12);
        // scores with 576 numbers and sums of 512 of each of 128 heads, or of the 16 of a rank
        let products = devices(1.0, 1e12);
        let question = question(shape, &products);
        for tp in [1, 8] {
            let way = Way::whole(tp, 1, 1);
            let rates = question.rates(way);
            let flop = 2.0 * 61.0 * context * heads * (576.0 + 512.0) / tp as f64;
            let found = question.cached(way, &rates, half);
            near(found, flop / (rates.matrix * INSIDE_ATTENTION));
        }
    }

    /// Seconds of a step that links and network add.
    fn travelling(shape: Shape, way: Way) -> f64 {
        let cluster = devices(100.0, 1000.0);
        let fast = Cluster {
            link: f64::INFINITY,
            network: f64::INFINITY,
            ..cluster.clone()
        };
        let of = |cluster: &Cluster| {
            let question = question(shape, cluster);
            question.decode(way, &question.rates(way))
        };
        of(&cluster) - of(&fast)
    }

    #[test]
    fn rows_travel_to_experts_and_are_summed_over_tensor_parallel_ranks() {
        let shape = Shape::mixtral_8x7b();
        // four rows of a replica, each to two experts, of which 7 of 8 are elsewhere, and back
        let rows = 4.0 * 2.0 * 4096.0 * 2.0;
        let both = 32.0 * 2.0 * rows * 7.0 / 8.0 / 100e9;
        near(travelling(shape, Way::whole(1, 8, 32)), both);
        // the eight replicas of one node each have one expert: by the network
        let logits = 4.0 * 7.0 * 4.0 * 4000.0 / 100e9;
        let sums =
            |tp: f64| 32.0 * 2.0 * (tp - 1.0) / tp * 4.0 * 4096.0 * 2.0 * (1.0 + 2.0) / 100e9;
        let network = 32.0 * 2.0 * rows * 7.0 / 8.0 / 10e9;
        near(
            travelling(shape, Way::whole(8, 8, 32)),
            network + sums(8.0) + logits,
        );
        // an all-reduce of attention's rows and one of those of two experts
        near(travelling(shape, Way::whole(8, 1, 4)), sums(8.0) + logits);
    }

    #[test]
    fn a_prompt_of_a_mixture_takes_the_products_of_two_experts() {
        let cluster = devices(100.0, 1e12);
        let question = question(Shape::mixtral_8x7b(), &cluster);
        let one = Way::whole(1, 1, 1);
        let rates = question.rates(one);
        let layer = 4096.0 * (6144.0 + 4096.0) + 8.0 * 4096.0 + 2.0 * 3.0 * 4096.0 * 14_336.0;
        // scores and mixed values, half of them
        let attention = 1024.0 * 4096.0 / INSIDE_ATTENTION;
        let flop = 2.0 * 1024.0 * 32.0 * (layer + attention) + 2.0 * 32_000.0 * 4096.0;
        let found = question.prefill(one, &rates);
        assert!((found * rates.matrix / flop - 1.0).abs() < 1e-6, "{found}");
        // a replica that shares out the experts computes as much
        let two = Way::whole(1, 2, 2);
        let shared = question.prefill(two, &question.rates(two));
        let travel = 32.0 * 2.0 * 0.5 * 1024.0 * 2.0 * 4096.0 * 2.0 / 100e9;
        assert!((shared / (found + travel) - 1.0).abs() < 1e-6, "{shared}");
    }

    #[test]
    fn an_encoder_takes_the_products_of_all_prompts_at_once() {
        let cluster = devices(100.0, 1e12);
        let question = question(Shape::bert_4b(), &cluster);
        let way = Way::whole(1, 1, 8);
        let rates = question.rates(way);
        // every token of a prompt sees all of them
        let layer = 12.0 * 2560.0 * 2560.0 + 2.0 * 1024.0 * 2560.0 / INSIDE_ATTENTION;
        let wanted = 2.0 * 8.0 * 1024.0 * 48.0 * layer / rates.matrix;
        let found = question.serving(way, question.memory(way));
        assert!((found.to_first / wanted - 1.0).abs() < 1e-6, "{found:?}");
        near(found.per_device, 8.0 * 1024.0 / found.to_first);
        assert_eq!(found.between, 0.0);
    }

    /// T5 3B: a prompt passes the encoder and the matrices of cross attention's keys and values, a step reads the other matrices of the
    /// decoder and both caches.
    #[test]
    fn an_encoder_with_a_decoder_encodes_prompts_and_answers_by_the_decoder() {
        let (h, q, f) = (2048.0, 2048.0, 5120.0);
        let own = 4.0 * h * q + 3.0 * h * f;
        let head = 29_184.0 * h;
        let bytes = devices(1e9, 1000.0);
        let of_bytes = question(Shape::t5_3b(), &bytes);
        let one = Way::whole(1, 1, 1);
        near(
            weights_read(&of_bytes, one),
            24.0 * (own + 2.0 * h * q) + head,
        );
        let half = Cached {
            prompt: 1024.0,
            answer: 128.0,
        };
        let read = of_bytes.cached(one, &of_bytes.rates(one), half);
        near(read, 24.0 * 1152.0 * 2.0 * q * 2.0 / 1e12);
        let products = devices(100.0, 1e12);
        let of_products = question(Shape::t5_3b(), &products);
        let rates = of_products.rates(one);
        let encoder = own + 2.0 * 1024.0 * q / INSIDE_ATTENTION;
        let prompt = 24.0 * 1024.0 * (encoder + 2.0 * h * q);
        let pairs = 24.0 * 1024.0 * 2.0 * q / INSIDE_ATTENTION;
        let first = 24.0 * (own + 2.0 * h * q) + pairs + head;
        let found = of_products.prefill(one, &rates) * rates.matrix;
        assert!(
            (found / (2.0 * (prompt + first)) - 1.0).abs() < 1e-5,
            "{found}"
        );
        // three all-reduces of a layer's row, and the gathering of logits
        let found = travelling(Shape::t5_3b(), Way::whole(4, 1, 1));
        let sums = 24.0 * 3.0 * 2.0 * 0.75 * h * 2.0 / 100e9;
        near(found, sums + 4.0 * 3.0 * 29_184.0 / 4.0 / 100e9);
    }

    /// DeepSeek's own servers (its overview of the inference system of V3 and R1, 2025-03-01): decoding on 18 nodes of H800 with two routed
    /// experts and the shared one on each device (here 16 nodes, as no expert is there twice), 4,989 tokens in the cache on the mean, 20 to 22
    /// tokens/s of a request and 14,800 of a node.
    #[test]
    fn decoding_of_deepseek_v3_is_near_the_published_speed() {
        let cluster = Cluster::load("h800").unwrap();
        let mut question = question(Shape::deepseek_v3(), &cluster);
        question.demand.input = 4989 - 128;
        // 14,800 tokens/s of eight devices, each request with 21 of them
        let way = Way {
            format: WeightFormat::Q8_0,
            ..Way::whole(1, 128, 128 * 88)
        };
        assert!(question.fits(way, &question.memory(way)));
        let step = question.decode(way, &question.rates(way));
        // slower, as DeepSeek's all-to-alls travel behind the computation of another batch
        assert!((0.0..0.2).contains(&(step * 21.0 - 1.0)), "{step}");
    }
}
