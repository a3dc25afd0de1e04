//! Time and memory of serving a model: prefill of prompts and decoding in batches, by tensor parallelism, expert parallelism, format
//! of weights and requests in flight.
//!
//! A server with continuous batching and a constant number of requests. Each of its `ep` replicas of attention has B of them; they
//! share out the experts, so that they run in step. A prompt is computed in one pass between two steps of the others, which makes the
//! first token of its answer; then each step makes one for each request. With a pass of P seconds, a step of D and answers of n
//! tokens: the first token comes after P, and D more of a running step if there are others; between two tokens lie D and the prompts
//! of the others, D + (B - 1) P / (n - 1); and all together make B n tokens of a replica in (n - 1) D + B P seconds. An encoder makes
//! no tokens: B prompts are one pass, and its tokens are those of the prompts.

mod memory;
mod time;

use crate::plan::cluster::Cluster;
use crate::plan::shape::Shape;

/// Most requests in flight of a replica that are looked at.
const MOST_REQUESTS: usize = 1024;

/// Format of the weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WeightFormat {
    /// That of activations: 16 bits, or f32 where the job has it.
    Whole,
    /// Blocks of 32 numbers of 8 bits with a scale of 16.
    Q8_0,
    /// Blocks of 32 numbers of 4 bits with a scale of 16.
    Q4_0,
}

impl WeightFormat {
    pub(crate) const ALL: [WeightFormat; 3] =
        [WeightFormat::Whole, WeightFormat::Q8_0, WeightFormat::Q4_0];

    pub(crate) fn name(self, number_bytes: f64) -> &'static str {
        match self {
            WeightFormat::Whole if number_bytes == 4.0 => "f32",
            WeightFormat::Whole => "bf16",
            WeightFormat::Q8_0 => "q8_0",
            WeightFormat::Q4_0 => "q4_0",
        }
    }

    /// Bytes of a weight.
    fn bytes(self, number_bytes: f64) -> f64 {
        match self {
            WeightFormat::Whole => number_bytes,
            WeightFormat::Q8_0 => 34.0 / 32.0,
            WeightFormat::Q4_0 => 18.0 / 32.0,
        }
    }
}

/// Requests, and what their answers may take.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Demand {
    /// Tokens of a prompt.
    pub input: usize,
    /// Tokens of an answer.
    pub output: usize,
    /// Most seconds to the first token.
    pub most_to_first: Option<f64>,
    /// Most seconds between tokens.
    pub most_between: Option<f64>,
}

/// Bytes of a device.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct ServingMemory {
    pub weights: f64,
    pub cache: f64,
    /// Rows of the running layer, and logits.
    pub scratch: f64,
}

impl ServingMemory {
    pub(crate) fn total(&self) -> f64 {
        self.weights + self.cache + self.scratch
    }
}

/// A choice of layout, weights and batch, on `tp * ep` devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Way {
    pub tp: usize,
    /// Replicas of attention, each of `tp` devices, that share out the experts; 1 without experts.
    pub ep: usize,
    pub format: WeightFormat,
    /// In flight, over all replicas.
    pub requests: usize,
}

impl Way {
    pub(crate) fn devices(self) -> usize {
        self.tp * self.ep
    }

    /// Requests of a replica.
    fn of_replica(self) -> f64 {
        self.requests as f64 / self.ep as f64
    }
}

/// Time and memory of a way.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Serving {
    pub way: Way,
    /// Seconds to the first token; of an encoder to its answer.
    pub to_first: f64,
    /// Mean seconds between tokens; 0 of an encoder.
    pub between: f64,
    /// Answer tokens per second of a device; of an encoder those of prompts.
    pub per_device: f64,
    pub memory: ServingMemory,
}

impl Serving {
    pub(crate) fn meets(&self, demand: &Demand) -> bool {
        demand
            .most_to_first
            .is_none_or(|most| self.to_first <= most)
            && demand.most_between.is_none_or(|most| self.between <= most)
    }

    /// Whether it is nowhere worse than the other, and somewhere better.
    fn is_better(&self, other: &Serving) -> bool {
        let is_as_good = self.to_first <= other.to_first
            && self.between <= other.between
            && self.per_device >= other.per_device;
        let is_same = self.to_first == other.to_first
            && self.between == other.between
            && self.per_device == other.per_device;
        is_as_good && !is_same
    }
}

/// A way that does not fit with one request of a replica.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Unfit {
    pub way: Way,
    /// Bytes of a device.
    pub bytes: f64,
}

/// Ways to serve a model.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Servings {
    /// All that fit.
    pub all: Vec<Serving>,
    pub unfit: Vec<Unfit>,
}

impl Servings {
    /// Those that no other one is better than: by first token, gap between tokens, and tokens per second of a device. Sorted by the
    /// gap, and by the first token where there is none.
    pub(crate) fn front(&self) -> Vec<Serving> {
        let is_beaten = |of: &Serving| self.all.iter().any(|other| other.is_better(of));
        let mut front: Vec<Serving> = self
            .all
            .iter()
            .filter(|of| !is_beaten(of))
            .copied()
            .collect();
        front.sort_by(|a, b| {
            let by_gap = a.between.total_cmp(&b.between);
            by_gap.then(a.to_first.total_cmp(&b.to_first))
        });
        front
    }

    /// The most tokens per second of a device among those that meet the demand; of equal ones the smallest gap, then the earliest first
    /// token, then the first one. Nothing is better than it: what is would meet the demand and come before it.
    pub(crate) fn best(&self, demand: &Demand) -> Option<&Serving> {
        let meeting = self.all.iter().filter(|of| of.meets(demand));
        meeting.min_by(|a, b| {
            let by_rate = b.per_device.total_cmp(&a.per_device);
            let by_gap = by_rate.then(a.between.total_cmp(&b.between));
            by_gap.then(a.to_first.total_cmp(&b.to_first))
        })
    }
}

/// Layers whose rows see no more than the last so many tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Windowed {
    pub layers: usize,
    pub tokens: usize,
}

/// What a server does with a prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Served {
    /// Answers token by token.
    Decoder,
    /// Makes rows of it, all at once.
    Encoder,
    /// Encodes it, and answers token by token.
    EncoderDecoder,
}

impl Served {
    pub(crate) fn of(shape: &Shape) -> Served {
        match (shape.decoder, shape.predictions) {
            (Some(_), _) => Served::EncoderDecoder,
            (None, Some(_)) => Served::Encoder,
            (None, None) => Served::Decoder,
        }
    }

    /// As `--json` spells it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Served::Decoder => "decoder",
            Served::Encoder => "encoder",
            Served::EncoderDecoder => "encoder_decoder",
        }
    }
}

/// A model on a cluster, and what is asked of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ServingQuestion<'a> {
    pub shape: Shape,
    /// Parameters beside the matrices of the shape: norms, biases, embeddings of positions. Each device holds all of them, in f32.
    pub others: f64,
    pub windowed: Option<Windowed>,
    pub cluster: &'a Cluster,
    pub demand: Demand,
}

impl ServingQuestion<'_> {
    /// Parameters of the whole model.
    pub(crate) fn all_parameters(&self) -> f64 {
        self.shape.parameters() + self.others
    }

    /// Bytes of the weights on one device that has all of them, in the format of activations.
    pub(crate) fn bytes_of_weights(&self) -> f64 {
        let way = Way {
            tp: 1,
            ep: 1,
            format: WeightFormat::Whole,
            requests: 1,
        };
        self.memory(way).weights
    }

    pub(crate) fn served(&self) -> Served {
        Served::of(&self.shape)
    }

    /// Every way to serve: of a dense model each on devices of one node, of a mixture on those of whole nodes as well.
    pub(crate) fn answer(&self) -> Servings {
        let mut found = Servings::default();
        for tp in self.degrees() {
            for ep in self.replicas(tp) {
                for format in WeightFormat::ALL {
                    self.with_requests(tp, ep, format, &mut found);
                }
            }
        }
        found
    }

    fn with_requests(&self, tp: usize, ep: usize, format: WeightFormat, found: &mut Servings) {
        let counts = (0..).map(|power| 1 << power);
        for count in counts.take_while(|count| *count <= MOST_REQUESTS) {
            let way = Way {
                tp,
                ep,
                format,
                requests: ep * count,
            };
            let memory = self.memory(way);
            if self.fits(way, &memory) {
                found.all.push(self.serving(way, memory));
                continue;
            }
            if count == 1 {
                let bytes = memory.total();
                found.unfit.push(Unfit { way, bytes });
            }
            break;
        }
    }

    /// Degrees of tensor parallelism that divide the model inside a node. Groups of keys are divided, or each is on several ranks.
    fn degrees(&self) -> impl Iterator<Item = usize> + '_ {
        let shape = self.shape;
        let experts = shape.mixture.map_or([0; 2], |of| [of.ffn, of.shared]);
        let divides = move |tp: &usize| {
            let whole = [shape.heads, shape.width, shape.ffn];
            let keys = shape.kv_heads;
            whole.iter().chain(&experts).all(|n| n.is_multiple_of(*tp))
                && (keys.is_multiple_of(*tp) || tp.is_multiple_of(keys))
        };
        (1..=self.cluster.devices_per_node).filter(divides)
    }

    /// Degrees of expert parallelism: those that divide the experts and fill a part of a node or whole ones.
    fn replicas(&self, tp: usize) -> Vec<usize> {
        let experts = self.shape.mixture.map_or(1, |of| of.experts);
        let per_node = self.cluster.devices_per_node;
        let fits = |ep: &usize| {
            let devices = tp * ep;
            let is_whole = devices <= per_node || devices.is_multiple_of(per_node);
            experts.is_multiple_of(*ep) && is_whole
        };
        let most = experts.min(self.cluster.devices() / tp);
        (1..=most).filter(fits).collect()
    }

    fn serving(&self, way: Way, memory: ServingMemory) -> Serving {
        let rates = self.rates(way);
        let prompts = way.of_replica();
        let per_device = |tokens: f64| match self.cluster.cores {
            // ranks that share cores are one device
            Some(_) => tokens,
            None => tokens / way.devices() as f64,
        };
        if self.served() == Served::Encoder {
            let pass = self.encode(way, &rates, prompts);
            return Serving {
                way,
                to_first: pass,
                between: 0.0,
                per_device: per_device(way.requests as f64 * self.demand.input as f64 / pass),
                memory,
            };
        }
        let steps = self.demand.output as f64 - 1.0;
        let prompt = self.prefill(way, &rates);
        let step = self.decode(way, &rates);
        let round = steps * step + prompts * prompt;
        let running = if prompts > 1.0 { step } else { 0.0 };
        Serving {
            way,
            to_first: prompt + running,
            between: match steps > 0.0 {
                true => step + (prompts - 1.0) * prompt / steps,
                false => 0.0,
            },
            per_device: per_device(way.requests as f64 * self.demand.output as f64 / round),
            memory,
        }
    }
}

/// Questions of tests.
#[cfg(test)]
impl<'a> ServingQuestion<'a> {
    fn of(shape: Shape, cluster: &'a Cluster, [input, output]: [usize; 2]) -> Self {
        ServingQuestion {
            shape,
            others: 0.0,
            windowed: None,
            cluster,
            demand: Demand {
                input,
                output,
                most_to_first: None,
                most_between: None,
            },
        }
    }
}

#[cfg(test)]
impl Way {
    fn whole(tp: usize, ep: usize, requests: usize) -> Way {
        Way {
            tp,
            ep,
            format: WeightFormat::Whole,
            requests,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    /// Llama 2 70B, whose sizes are in its paper (arXiv:2307.09288).
    fn shape() -> Shape {
        Shape {
            kv_heads: 8,
            ffn: 28_672,
            is_gated: true,
            vocab: 32_000,
            is_tied: false,
            seq_length: 4096,
            is_fused: true,
            ..Shape::gpt(80, 8192, 64)
        }
    }

    fn demand() -> Demand {
        Demand {
            input: 1024,
            output: 256,
            most_to_first: None,
            most_between: None,
        }
    }

    fn question(cluster: &Cluster) -> ServingQuestion<'_> {
        ServingQuestion::of(shape(), cluster, [1024, 256])
    }

    #[test]
    fn a_step_of_one_request_reads_all_weights_once() {
        let cluster = Cluster::load("dgx-h100").unwrap();
        let question = question(&cluster);
        for format in WeightFormat::ALL {
            let way = Way {
                tp: 8,
                ep: 1,
                format,
                requests: 1,
            };
            let rates = question.rates(way);
            let read = shape().parameters() - (shape().vocab * shape().width) as f64;
            let weights = read * format.bytes(2.0) / 8.0 / cluster.memory_rate;
            let step = question.decode(way, &rates);
            // the rest: cache, activations, collectives
            assert!(step > weights && step < 1.25 * weights, "{step} {weights}");
        }
    }

    #[test]
    fn latencies_count_for_each_operation_of_a_step() {
        let cluster = Cluster::load("dgx-h100").unwrap();
        let slow = Cluster {
            op_latency: 1.0,
            link_latency: 1000.0,
            ..cluster.clone()
        };
        let way = Way {
            tp: 2,
            ep: 1,
            format: WeightFormat::Whole,
            requests: 4,
        };
        let (fast, slow) = (question(&cluster), question(&slow));
        let more = slow.decode(way, &slow.rates(way)) - fast.decode(way, &fast.rates(way));
        // two all-reduces a layer, and the gathering of logits
        // 4 products and 7 others a layer, and the head
        let wanted = 80.0 * 11.0 + 1.0 + 1000.0 * (2.0 * 80.0 + 1.0);
        assert!((more - wanted).abs() < 1e-3, "{more} {wanted}");
    }

    #[test]
    fn a_request_alone_waits_for_nobody() {
        let cluster = Cluster::load("dgx-h100").unwrap();
        let question = question(&cluster);
        let way = Way::whole(8, 1, 1);
        let rates = question.rates(way);
        let (prompt, step) = (question.prefill(way, &rates), question.decode(way, &rates));
        let alone = question.serving(way, question.memory(way));
        assert_eq!((alone.to_first, alone.between), (prompt, step));
        // 256 tokens, of which the prompt's pass makes the first
        let wanted = 256.0 / (prompt + 255.0 * step) / 8.0;
        assert!((alone.per_device / wanted - 1.0).abs() < 1e-12);
        let two = question.serving(Way { requests: 2, ..way }, question.memory(way));
        assert!(two.to_first > prompt + step * 0.99 && two.between > step + prompt / 255.0);
    }

    #[test]
    fn memory_has_the_weights_the_cache_of_all_requests_and_the_scratch() {
        let cluster = Cluster::load("dgx-h100").unwrap();
        let question = question(&cluster);
        let way = Way::whole(8, 1, 16);
        let memory = question.memory(way);
        assert_eq!(memory.weights, shape().parameters() * 2.0 / 8.0);
        // one group of keys and values on each device: 80 layers of 2 x 128 numbers of 2 bytes
        assert_eq!(memory.cache, (16 * 1280 * 80 * 2 * 128 * 2) as f64);
        let more = question.memory(Way { tp: 16, ..way });
        assert_eq!(more.cache, memory.cache, "a group is not divided");
    }

    #[test]
    fn the_front_has_what_nothing_else_is_better_than_and_the_best_meets_the_demand() {
        let cluster = Cluster::load("dgx-h100").unwrap();
        let mut question = question(&cluster);
        let found = question.answer();
        assert!(
            found
                .unfit
                .iter()
                .any(|of| of.way.tp == 1 && of.way.format == WeightFormat::Whole)
        );
        let front = found.front();
        assert!(front.len() > 3 && front.len() < found.all.len());
        let beats = |one: &Serving, other: &Serving| {
            let worse = one.to_first > other.to_first
                || one.between > other.between
                || one.per_device < other.per_device;
            let better = one.to_first < other.to_first
                || one.between < other.between
                || one.per_device > other.per_device;
            better && !worse
        };
        for of in &found.all {
            let is_beaten = found.all.iter().any(|other| beats(other, of));
            assert_eq!(front.contains(of), !is_beaten, "{of:?}");
        }
        // more requests: longer gaps, and more tokens
        let of = |requests| {
            let is = |s: &&Serving| {
                s.way
                    == Way {
                        tp: 8,
                        ep: 1,
                        format: WeightFormat::Whole,
                        requests,
                    }
            };
            *found.all.iter().find(is).unwrap()
        };
        let (few, many) = (of(1), of(64));
        assert!(many.between > few.between && many.per_device > 10.0 * few.per_device);
        let free = *found.best(&demand()).unwrap();
        assert!(front.contains(&free), "{free:?}");
        question.demand.most_between = Some(few.between * 1.5);
        let bound = *found.best(&question.demand).unwrap();
        assert!(bound.between <= few.between * 1.5 && bound.per_device < free.per_device);
        question.demand.most_to_first = Some(1e-9);
        assert!(found.best(&question.demand).is_none());
    }

    /// Of equal rates the smaller gap, then the earlier token: what comes last in the search is not better.
    #[test]
    fn of_equal_rates_the_best_is_what_nothing_is_better_than() {
        let of = |requests, to_first, between| Serving {
            way: Way::whole(1, 1, requests),
            to_first,
            between,
            per_device: 100.0,
            memory: ServingMemory {
                weights: 1.0,
                cache: 1.0,
                scratch: 1.0,
            },
        };
        let found = Servings {
            all: vec![
                of(1, 2.0, 0.0),
                of(2, 1.0, 0.0),
                of(3, 3.0, 0.0),
                of(4, 0.5, 1.0),
            ],
            unfit: Vec::new(),
        };
        let best = found.best(&demand()).unwrap();
        assert_eq!(best.way.requests, 2);
        assert!(found.front().contains(best));
    }

    #[test]
    fn ranks_that_share_cores_share_the_memory() {
        let text = "name = \"x\"\nnodes = 1\ndevices_per_node = 4\ncores = 4\nmatrix_tflops = 1\nmemory_gb = 100\nmemory_gb_s = 100\nlink_gb_s = 10\n";
        let cluster = Cluster::parse(text, Path::new("x.toml")).unwrap();
        let found = question(&cluster).answer();
        // 137 GB of bf16 and 73 GB of 8 bits, on any number of ranks
        let fits = |format| found.all.iter().any(|of| of.way.format == format);
        assert!(!fits(WeightFormat::Whole) && fits(WeightFormat::Q8_0));
    }
}
