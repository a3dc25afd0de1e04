//! Time of a layer's passes: products by shape, attention, memory-bound operations and collectives, of a dense layer, of one with a
//! mixture of experts, or of a decoder's with attention to an encoder's rows.

use crate::plan::layout::{Layout, Recompute};
use crate::plan::rates::Rates;
use crate::plan::shape::{Kind, Mixture, Shape};

/// Operations of a layer's forward pass that are neither products nor collectives: two norms, attention, an activation
/// function, two residual connections and positions.
pub(super) const OTHER_OPS: f64 = 7.0;

/// Share of `Constants::matrix` of the products inside attention: their inner dimension is a head.
pub(super) const INSIDE_ATTENTION: f64 = 0.5;

/// Rows and matrices of the experts of a rank, chosen evenly.
pub(super) struct Experts {
    /// Experts of the rank that some token chose: the others' weights are not read.
    pub(super) count: f64,
    /// Rows of each.
    pub(super) rows: f64,
    /// Width of an expert's share.
    ffn: f64,
}

impl Experts {
    /// Those for `rows` tokens of each rank. Of b tokens that choose k of E experts each, all choices alike, none chooses an expert with
    /// probability (1 - k/E)^b; E (1 - (1 - k/E)^b) of them are expected to have a token.
    pub(super) fn of(mixture: &Mixture, layout: &Layout, rows: f64) -> Experts {
        let (experts, ep) = (mixture.experts as f64, layout.ep as f64);
        let chosen = (mixture.top_k as f64 / experts).min(1.0);
        let used = 1.0 - (1.0 - chosen).powf(rows * ep);
        Experts {
            count: experts / ep * used,
            rows: rows * chosen * ep / used,
            ffn: mixture.ffn as f64 / layout.tp as f64,
        }
    }
}

/// Operations of a mixture's forward pass beside those of a dense layer: probabilities, choice, and the rows' order there and back.
const ROUTING_OPS: f64 = 4.0;

/// Seconds of one pass of a micro-batch through one layer.
#[derive(Clone, Copy)]
pub(super) struct Pass {
    pub(super) compute: f64,
    pub(super) collectives: f64,
    /// The all-to-alls among the collectives.
    pub(super) exchange: f64,
    /// Products with respect to weights, a part of a backward pass's `compute`.
    pub(super) weights: f64,
    /// Context parallelism's share of the collectives, before anything hides it.
    ring: f64,
    /// Attention between the projections, a part of `compute`.
    attention: f64,
}

impl Pass {
    pub(super) fn seconds(&self) -> f64 {
        self.compute + self.collectives
    }

    /// Through `count` such layers.
    pub(super) fn times(&self, count: f64) -> Pass {
        Pass {
            compute: count * self.compute,
            collectives: count * self.collectives,
            exchange: count * self.exchange,
            weights: count * self.weights,
            ring: count * self.ring,
            attention: count * self.attention,
        }
    }

    /// Through the other layers as well.
    pub(super) fn plus(&self, other: Pass) -> Pass {
        Pass {
            compute: self.compute + other.compute,
            collectives: self.collectives + other.collectives,
            exchange: self.exchange + other.exchange,
            weights: self.weights + other.weights,
            ring: self.ring + other.ring,
            attention: self.attention + other.attention,
        }
    }
}

/// Both passes of a layer.
pub(super) struct Both {
    pub(super) forward: Pass,
    pub(super) backward: Pass,
}

impl Both {
    pub(super) fn seconds(&self) -> f64 {
        self.forward.seconds() + self.backward.seconds()
    }
}

/// A layer with what it computes again: where a number of layers is, one that is not. `samples`: sequences of the micro-batch by
/// context-parallel ranks, so that a stack has as many rows as its sequence has tokens times these.
pub(super) fn layer(
    shape: &Shape,
    layout: &Layout,
    rates: &Rates,
    samples: f64,
    kind: &Kind,
) -> Both {
    let rows = samples * shape.seq_length as f64;
    let both = match kind {
        Kind::Dense => passes(shape, layout, rates, rows, None),
        Kind::Mixture(mixture) => passes(shape, layout, rates, rows, Some(mixture)),
        Kind::Crossed(decoder) => {
            let rows = Crossed {
                own: samples * decoder.length as f64,
                encoder: rows,
            };
            let own = passes(&shape.of_decoder(decoder), layout, rates, rows.own, None);
            let cross = cross(shape, layout, rates, &rows);
            Both {
                forward: own.forward.plus(cross.forward),
                backward: own.backward.plus(cross.backward),
            }
        }
    };
    let Both {
        forward,
        mut backward,
    } = both;
    match layout.recompute {
        Recompute::None | Recompute::Layers(_) => {}
        Recompute::Selective => backward.compute += forward.attention,
        Recompute::Full => {
            backward.compute += forward.compute;
            backward.collectives += forward.collectives;
            backward.exchange += forward.exchange;
        }
    }
    Both { forward, backward }
}

fn passes(
    shape: &Shape,
    layout: &Layout,
    rates: &Rates,
    rows: f64,
    mixture: Option<&Mixture>,
) -> Both {
    let forward = forward(shape, layout, rates, rows, mixture);
    let backward = backward(shape, layout, rates, rows, &forward, mixture);
    Both { forward, backward }
}

/// The forward pass of `rows` through a dense layer, or one with a mixture.
pub(super) fn forward(
    shape: &Shape,
    layout: &Layout,
    rates: &Rates,
    rows: f64,
    mixture: Option<&Mixture>,
) -> Pass {
    let (tp, cp) = (layout.tp as f64, layout.cp as f64);
    let h = shape.width as f64;
    let inputs = shape.ffn_inputs();
    let network =
        |ffn: f64| rates.product(rows, inputs * ffn / tp, h) + rates.product(rows, h, ffn / tp);
    let networks = match mixture {
        None => network(shape.ffn as f64),
        Some(mixture) => {
            let experts = Experts::of(mixture, layout, rows);
            let shared = match mixture.shared {
                0 => 0.0,
                ffn => network(ffn as f64),
            };
            rates.product(rows, mixture.experts as f64, h)
                + rates.grouped(experts.count, experts.rows, inputs * experts.ffn, h)
                + rates.grouped(experts.count, experts.rows, h, experts.ffn)
                + shared
        }
    };
    let projections = shape
        .projections()
        .map(|of| rates.product(rows, of.outputs / of.ranks(tp), of.inputs));
    let products = projections.sum::<f64>() + rates.product(rows, h, shape.mixed() / tp) + networks;
    // scores and mixed values: each row with all keys, or with those before it, of which the rank of a sequence's last part has most
    let seen = match (shape.is_fused && shape.is_causal(), rates.shares_cores) {
        (false, _) => 1.0,
        (true, false) => 0.5,
        (true, true) => 1.0 - 0.5 / cp,
    };
    let attention = attention(shape, layout, rates, rows, shape.seq_length as f64, seen);
    let mut collectives = 0.0;
    if layout.tp > 1 {
        // two all-reduces, or as many pairs of reduce-scatter and all-gather; the second one of a mixture is over the rows of experts
        let of_experts = mixture.map_or(1.0, |of| of.top_k as f64 + f64::from(of.shared > 0));
        let bytes = rates.added * rows * h * (1.0 + of_experts) / 2.0;
        collectives +=
            starts(layout, rates) * rates.collective + 4.0 * (tp - 1.0) / tp * bytes / rates.link;
    }
    let mut ring = 0.0;
    if layout.cp > 1 {
        ring = keys_around(shape, layout, rates, rows);
        // hidden behind attention where something else carries them
        let hidden = if rates.shares_cores { 0.0 } else { attention };
        collectives += (ring - hidden).max(0.0);
    }
    let mut exchange = 0.0;
    if let Some(mixture) = mixture {
        // rows to their experts and back; ranks of a sequence-parallel group send their own part, but those of Millrace all of it
        let shared = match layout.is_sequence_parallel && !rates.shares_cores {
            true => tp,
            false => 1.0,
        };
        let bytes = rates.added * rows * mixture.top_k as f64 * h / shared;
        exchange = 2.0 * rates.all_to_all(layout, bytes);
        collectives += exchange;
    }
    Pass {
        compute: products + attention + memory_bound(shape, layout, rates, rows, mixture),
        collectives,
        exchange,
        weights: 0.0,
        ring,
        attention,
    }
}

/// Collectives that two all-reduces of a pass take.
fn starts(layout: &Layout, rates: &Rates) -> f64 {
    match rates.shares_cores && layout.is_sequence_parallel {
        true => 4.0,
        false => 2.0,
    }
}

/// Seconds of scores and mixed values of `rows`, each with a share `seen` of `keys`.
fn attention(
    shape: &Shape,
    layout: &Layout,
    rates: &Rates,
    rows: f64,
    keys: f64,
    seen: f64,
) -> f64 {
    let tp = layout.tp as f64;
    let flop = 2.0 * rows * keys * seen * (shape.queries() + shape.mixed()) / tp;
    let products = flop / (rates.matrix * INSIDE_ATTENTION);
    if shape.is_fused {
        return products;
    }
    // softmax and dropout read and write scores of 2 bytes, and a mask of one
    let scores = rows * keys * shape.heads as f64 / tp;
    products + 9.0 * scores / rates.memory
}

/// Seconds in which keys and values of `rows` go around the context-parallel ranks.
fn keys_around(shape: &Shape, layout: &Layout, rates: &Rates, rows: f64) -> f64 {
    let width = shape.keys_values() / layout.tp as f64;
    let of_rank = rates.collective + rates.added * rows * width / rates.keys;
    (layout.cp as f64 - 1.0) * of_rank
}

/// The backward pass to a forward pass of `rows`.
fn backward(
    shape: &Shape,
    layout: &Layout,
    rates: &Rates,
    rows: f64,
    forward: &Pass,
    mixture: Option<&Mixture>,
) -> Pass {
    let attention = rates.backward_of_attention(shape.is_fused) * forward.attention;
    let mut collectives = forward.collectives;
    if rates.shares_cores {
        // gradients of keys and values travel beside them
        collectives += forward.ring;
        if layout.is_sequence_parallel {
            collectives += gathers_again(shape, layout, rates, rows, mixture);
        }
    }
    let products = backward_products(shape, layout, rates, rows, mixture);
    Pass {
        compute: products + attention + 2.0 * memory_bound(shape, layout, rates, rows, mixture),
        collectives,
        exchange: forward.exchange,
        // as many operations as with respect to the input
        weights: 0.5 * products,
        ring: forward.ring,
        attention,
    }
}

/// Rows of a decoder's layer.
struct Crossed {
    own: f64,
    encoder: f64,
}

/// Operations of cross attention's forward pass beside its products: a norm, attention and a residual connection.
const CROSS_OPS: f64 = 3.0;

/// Both passes of a decoder layer's attention to the encoder's rows.
fn cross(shape: &Shape, layout: &Layout, rates: &Rates, rows: &Crossed) -> Both {
    let (tp, h) = (layout.tp as f64, shape.width as f64);
    let (queries, mixed) = (shape.queries() / tp, shape.mixed() / tp);
    let keys_values = shape.keys_values() / tp;
    let products = rates.product(rows.own, queries, h)
        + rates.product(rows.encoder, keys_values, h)
        + rates.product(rows.own, h, mixed);
    let back = rates.product_backward(rows.own, queries, h)
        + rates.product_backward(rows.encoder, keys_values, h)
        + rates.product_backward(rows.own, h, mixed);
    let attention = attention(shape, layout, rates, rows.own, shape.seq_length as f64, 1.0);
    let shared = if layout.is_sequence_parallel { tp } else { 1.0 };
    // a norm reads and writes; a residual connection with dropout reads two and writes one with a mask
    let moved = 6.0 * rows.own * h / shared + rows.own * queries + rows.encoder * keys_values;
    let memory_bound = CROSS_OPS * rates.op + rates.number * moved / rates.memory;
    let mut forward = Pass {
        compute: products + attention + memory_bound,
        collectives: 0.0,
        exchange: 0.0,
        weights: 0.0,
        ring: 0.0,
        attention,
    };
    let attention = rates.backward_of_attention(shape.is_fused) * attention;
    let mut backward = Pass {
        compute: back + attention + 2.0 * memory_bound,
        weights: 0.5 * back,
        attention,
        ..forward
    };
    if layout.tp > 1 {
        let bytes = |rows: f64| 2.0 * (tp - 1.0) / tp * rates.added * rows * h / rates.link;
        // an all-reduce of the decoder's rows in each pass, and one of the gradient of the encoder's
        let each = starts(layout, rates) / 2.0 * rates.collective + bytes(rows.own);
        forward.collectives += each;
        backward.collectives += each + rates.collective + bytes(rows.encoder);
    }
    if layout.cp > 1 {
        let ring = keys_around(shape, layout, rates, rows.encoder);
        let hidden = match rates.shares_cores {
            true => 0.0,
            false => forward.attention,
        };
        let seen = (ring - hidden).max(0.0);
        forward.collectives += seen;
        backward.collectives += seen;
        if rates.shares_cores {
            backward.collectives += ring;
        }
    }
    Both { forward, backward }
}

/// The forward pass of `rows` of a decoder's layer through its attention to encoded rows whose keys and values are in a cache, without the
/// scores and mixed values themselves.
pub(super) fn cross_of_cached(shape: &Shape, layout: &Layout, rates: &Rates, rows: f64) -> Pass {
    let (tp, h) = (layout.tp as f64, shape.width as f64);
    let (queries, mixed) = (shape.queries() / tp, shape.mixed() / tp);
    let products = rates.product(rows, queries, h) + rates.product(rows, h, mixed);
    let moved = 6.0 * rows * h + rows * queries;
    let collectives = match layout.tp {
        1 => 0.0,
        _ => rates.collective + 2.0 * (tp - 1.0) / tp * rates.added * rows * h / rates.link,
    };
    Pass {
        compute: products + CROSS_OPS * rates.op + rates.number * moved / rates.memory,
        collectives,
        exchange: 0.0,
        weights: 0.0,
        ring: 0.0,
        attention: 0.0,
    }
}

/// Seconds in which a backward pass under sequence parallelism gathers rows once more for the gradients of weights, as Millrace does it:
/// for attention, and for the network or the router with the shared expert. The experts keep the rows that came to them.
fn gathers_again(
    shape: &Shape,
    layout: &Layout,
    rates: &Rates,
    rows: f64,
    mixture: Option<&Mixture>,
) -> f64 {
    if layout.tp < 2 {
        return 0.0;
    }
    let tp = layout.tp as f64;
    let gathers = match mixture {
        Some(of) if of.shared > 0 => 3.0,
        Some(_) | None => 2.0,
    };
    let bytes = rates.added * rows * shape.width as f64;
    gathers * (rates.collective + (tp - 1.0) / tp * bytes / rates.link)
}

/// Products of a layer's backward pass: with respect to the input, and to the weights.
fn backward_products(
    shape: &Shape,
    layout: &Layout,
    rates: &Rates,
    rows: f64,
    mixture: Option<&Mixture>,
) -> f64 {
    let (tp, h) = (layout.tp as f64, shape.width as f64);
    let inputs = shape.ffn_inputs();
    let both = |n: f64, k: f64| rates.product_backward(rows, n, k);
    let network = |ffn: f64| both(inputs * ffn / tp, h) + both(h, ffn / tp);
    let networks = match mixture {
        None => network(shape.ffn as f64),
        Some(mixture) => {
            let of = Experts::of(mixture, layout, rows);
            let each = |n: f64, k: f64| {
                rates.grouped(of.count, of.rows, k, n) + rates.grouped(of.count, n, k, of.rows)
            };
            let shared = match mixture.shared {
                0 => 0.0,
                ffn => network(ffn as f64),
            };
            both(mixture.experts as f64, h) + each(inputs * of.ffn, h) + each(h, of.ffn) + shared
        }
    };
    let projections = shape
        .projections()
        .map(|of| both(of.outputs / of.ranks(tp), of.inputs));
    projections.sum::<f64>() + both(h, shape.mixed() / tp) + networks
}

/// Norms, dropout, residual connections, activation function and biases of a forward pass; of a mixture the order of rows as well.
fn memory_bound(
    shape: &Shape,
    layout: &Layout,
    rates: &Rates,
    rows: f64,
    mixture: Option<&Mixture>,
) -> f64 {
    let tp = layout.tp as f64;
    let shared = if layout.is_sequence_parallel { tp } else { 1.0 };
    // two norms read and write, two residual connections with dropout read two and write one with a mask
    let whole = 12.0 * (rows * shape.width as f64) / shared;
    let split = (2.0 * rows * shape.inner(mixture) + rows * shape.packed()) / tp;
    // each chosen row is read and written on its way to the expert, and on its way back
    let routed = mixture.map_or(0.0, |of| 4.0 * rows * of.top_k as f64 * shape.width as f64);
    // norms of latents read and write them, and the key features that heads share are copied to each
    let (latents, of_latents) = match &shape.latent {
        None => (0.0, 0.0),
        Some(of) => (
            2.0 * rows * shape.latents(),
            if of.queries > 0 { 3.0 } else { 2.0 },
        ),
    };
    let ops = OTHER_OPS + mixture.map_or(0.0, |_| ROUTING_OPS) + of_latents;
    ops * rates.op + rates.number * (whole + split + routed + latents) / rates.memory
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::cluster::Cluster;
    use crate::plan::rates::Constants;
    use crate::plan::shape::Latent;
    use crate::plan::tables::published;

    /// A machine of cores, of rates at which neither bytes nor starts count.
    fn cores() -> Cluster {
        let text = "name = \"x\"\nnodes = 1\ndevices_per_node = 4\ncores = 4\nmatrix_tflops = 0.2\nmemory_gb = 16\nmemory_gb_s = 1e12\nlink_gb_s = 10\n";
        Cluster::parse(text, std::path::Path::new("x.toml")).unwrap()
    }

    fn both(shape: &Shape, layout: &Layout, cluster: &Cluster, kind: &Kind) -> Both {
        let rates = Rates::of(layout, cluster, &Constants::of(cluster));
        layer(shape, layout, &rates, 1.0, kind)
    }

    fn near(found: f64, wanted: f64) {
        assert!((found / wanted - 1.0).abs() < 1e-9, "{found} {wanted}");
    }

    /// The backward pass has four products of the size of one of the forward pass's two, and the scores again where none are kept
    /// (arXiv:2307.08691, algorithm 2).
    #[test]
    fn fused_attention_has_five_products_in_its_backward_pass_and_kept_scores_have_four() {
        let cluster = Cluster::load("dgx-a100").unwrap();
        let layout = Layout::one(1);
        let rates = Rates::of(&layout, &cluster, &Constants::of(&cluster));
        let of = |is_fused| Shape {
            is_fused,
            ..published()[0].shape
        };
        let shape = of(true);
        let (rows, heads) = (shape.seq_length as f64, shape.heads as f64);
        let product = 2.0 * rows * rows * shape.mixed() / (rates.matrix * INSIDE_ATTENTION);
        let fused = both(&shape, &layout, &cluster, &Kind::Dense);
        // each row sees half of the keys
        near(fused.forward.attention, 2.0 * product / 2.0);
        near(fused.backward.attention, 5.0 * product / 2.0);
        let kept = both(&of(false), &layout, &cluster, &Kind::Dense);
        let moved = 9.0 * rows * rows * heads / rates.memory;
        near(kept.forward.attention, 2.0 * product + moved);
        near(kept.backward.attention, 4.0 * product + 2.0 * moved);
    }

    /// DeepSeek-V3's dense layers by their products alone (arXiv:2412.19437, section 4.2): heads of 128 + 64 features of queries and keys and
    /// 128 of values, latents of 1536 and 512.
    #[test]
    fn latent_attention_takes_the_time_of_its_products_and_of_its_two_widths() {
        let (h, tokens) = (7168.0, 4096.0);
        let cluster = cores();
        let shape = Shape::deepseek_v3();
        // down and up of queries, down and up of keys and values, the result, the network
        let down = h * 1536.0 + h * (512.0 + 64.0);
        let up = 1536.0 * 128.0 * 192.0 + 512.0 * 128.0 * (128.0 + 128.0) + 128.0 * 128.0 * h;
        let network = 3.0 * h * 18_432.0;
        // each row sees half of the keys; a product of queries and one of values
        let attention = tokens / 2.0 * 128.0 * (192.0 + 128.0) / INSIDE_ATTENTION;
        for tp in [1.0, 2.0] {
            let layout = Layout {
                tp: if tp == 2.0 { 2 } else { 1 },
                ..Layout::one(1)
            };
            let found = both(&shape, &layout, &cluster, &Kind::Dense);
            // of two ranks each has half of the machine, half of the heads, and all latents
            let rank = 0.2e12 / tp;
            let products = down + (up + network) / tp;
            near(
                found.forward.compute,
                2.0 * tokens * (products + attention / tp) / rank,
            );
            near(
                found.backward.compute,
                2.0 * tokens * (2.0 * products + 2.5 * attention / tp) / rank,
            );
        }
        // DeepSeek-V2-Lite has no latent of queries
        let lite = Shape {
            latent: shape.latent.map(|of| Latent { queries: 0, ..of }),
            ..shape
        };
        let more = both(&shape, &Layout::one(1), &cluster, &Kind::Dense)
            .forward
            .compute
            - both(&lite, &Layout::one(1), &cluster, &Kind::Dense)
                .forward
                .compute;
        let wanted = (h + 128.0 * 192.0) * 1536.0 - h * 128.0 * 192.0;
        near(more, 2.0 * tokens * wanted / 0.2e12);
    }

    /// Mixture layers with a shared expert and latents compute attention as dense layers do, the router, the chosen and the shared expert.
    #[test]
    fn mixtures_with_latents_take_the_time_of_their_experts_beside_attention() {
        let cluster = cores();
        let shape = Shape::deepseek_v3();
        let mixture = shape.mixture.unwrap();
        let of = |kind: &Kind| {
            both(&shape, &Layout::one(1), &cluster, kind)
                .forward
                .compute
        };
        let more = of(&Kind::Mixture(mixture)) - of(&Kind::Dense);
        let experts = 3.0 * 7168.0 * 2048.0 * (8.0 + 1.0) + 7168.0 * 256.0;
        let wanted = 2.0 * 4096.0 * (experts - 3.0 * 7168.0 * 18_432.0) / 0.2e12;
        assert!(
            (more - wanted).abs() < 1e-6 * wanted.abs(),
            "{more} {wanted}"
        );
    }

    /// Tokens of an encoder see all others, on the last context-parallel rank no more than on the first.
    #[test]
    fn rows_of_an_encoder_see_all_keys() {
        let cluster = cores();
        let bert = Shape {
            is_fused: true,
            ..Shape::bert_4b()
        };
        let gpt = Shape {
            predictions: None,
            ..bert
        };
        for (cp, share) in [(1, 0.5), (2, 0.75), (4, 0.875)] {
            let layout = Layout {
                cp,
                ..Layout::one(1)
            };
            let found = both(&bert, &layout, &cluster, &Kind::Dense);
            let causal = both(&gpt, &layout, &cluster, &Kind::Dense);
            near(causal.forward.attention, share * found.forward.attention);
            let keys = 4.0 * 512.0 * 512.0 * 2560.0 / INSIDE_ATTENTION;
            near(found.forward.attention, keys / (0.2e12 / cp as f64));
        }
    }

    /// T5 3B's layers: 512 tokens of the encoder that see each other, 128 of the decoder that see those before them and all of the encoder's.
    #[test]
    fn a_decoder_layer_takes_the_time_of_its_own_rows_and_of_the_encoders_keys_and_values() {
        let cluster = cores();
        let shape = Shape {
            is_fused: true,
            ..Shape::t5_3b()
        };
        let decoder = shape.decoder.unwrap();
        let (encoder, own) = (512.0, 128.0);
        let (q, f) = (2048.0, 5120.0);
        let matrices = 4.0 * q * q + 3.0 * q * f;
        let of = |kind: &Kind| both(&shape, &Layout::one(1), &cluster, kind);
        let seconds = |products: f64, pairs: f64| {
            2.0 * (products + pairs * 2.0 * q / INSIDE_ATTENTION) / 0.2e12
        };
        let of_encoder = of(&Kind::Dense);
        let pairs = encoder * encoder;
        near(
            of_encoder.forward.compute,
            seconds(encoder * matrices, pairs),
        );
        let of_decoder = of(&Kind::Crossed(decoder));
        let products = own * matrices + 2.0 * (own + encoder) * q * q;
        let pairs = own * (own / 2.0 + encoder);
        near(of_decoder.forward.compute, seconds(products, pairs));
        near(
            of_decoder.backward.compute,
            seconds(2.0 * products, 2.5 * pairs),
        );
    }

    /// With tensor parallelism a decoder's layer has three all-reduces of its rows forward, and back one of the encoder's as well.
    #[test]
    fn cross_attention_sums_the_decoders_rows_and_the_gradient_of_the_encoders() {
        let cluster = Cluster::load("dgx-a100").unwrap();
        let shape = Shape::t5_3b();
        let layout = Layout {
            tp: 4,
            ..Layout::one(1)
        };
        let found = both(
            &shape,
            &layout,
            &cluster,
            &Kind::Crossed(shape.decoder.unwrap()),
        );
        let all_reduce = |rows: f64| 2.0 * 0.75 * 2.0 * rows * 2048.0 / cluster.link;
        near(found.forward.collectives, 3.0 * all_reduce(128.0));
        near(
            found.backward.collectives,
            3.0 * all_reduce(128.0) + all_reduce(512.0),
        );
    }

    /// Of a mixture's collectives only gathers of tokens' rows are made once more under sequence parallelism.
    #[test]
    fn rows_of_experts_travel_as_often_back_as_forth() {
        let text = "name = \"x\"\nnodes = 1\ndevices_per_node = 4\ncores = 4\nmatrix_tflops = 0.2\nmemory_gb = 16\nmemory_gb_s = 100\nlink_gb_s = 10\nlink_latency_us = 3\n";
        let cluster = Cluster::parse(text, std::path::Path::new("x.toml")).unwrap();
        let shape = Shape::mixtral_8x7b();
        let layout = Layout {
            tp: 2,
            dp: 2,
            ep: 2,
            is_sequence_parallel: true,
            ..Layout::one(2)
        };
        let rates = Rates::of(&layout, &cluster, &Constants::of(&cluster));
        let of = shape.mixture.unwrap();
        let shared = Mixture { shared: 1024, ..of };
        for (mixture, gathers) in [(None, 2.0), (Some(of), 2.0), (Some(shared), 3.0)] {
            let kind = mixture.map_or(Kind::Dense, Kind::Mixture);
            let found = layer(&shape, &layout, &rates, 1.0, &kind);
            let more = found.backward.collectives - found.forward.collectives;
            // half of the rows from the other rank, in f32
            let wanted = gathers * (3e-6 + 0.5 * 4.0 * 4096.0 * 4096.0 / 10e9);
            assert!((more / wanted - 1.0).abs() < 1e-9, "{more} {wanted}");
        }
    }
}
