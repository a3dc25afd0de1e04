//! Time of a layer's passes: products by shape, attention, memory-bound operations and collectives, of a dense layer or of one with a
//! mixture of experts.

use crate::plan::layout::{Layout, Recompute};
use crate::plan::rates::Rates;
use crate::plan::shape::{Mixture, Shape};

/// Operations of a layer's forward pass that are neither products nor collectives: two norms, attention, an activation
/// function, two residual connections and positions.
pub(super) const OTHER_OPS: f64 = 7.0;

/// Share of `Constants::matrix` of the products inside attention: their inner dimension is a head.
pub(super) const INSIDE_ATTENTION: f64 = 0.5;

/// Rows and matrices of the experts of a rank, chosen evenly.
struct Experts {
    /// Experts of the rank.
    count: f64,
    /// Rows of each.
    rows: f64,
    /// Width of an expert's share.
    ffn: f64,
}

impl Experts {
    /// Those for `rows` tokens of each rank.
    fn of(mixture: &Mixture, layout: &Layout, rows: f64) -> Experts {
        let (experts, ep) = (mixture.experts as f64, layout.ep as f64);
        Experts {
            count: experts / ep,
            rows: rows * mixture.top_k as f64 * ep / experts,
            ffn: mixture.ffn as f64 / layout.tp as f64,
        }
    }
}

/// Operations of a mixture's forward pass beside those of a dense layer: probabilities, choice, and the rows' order there and back.
const ROUTING_OPS: f64 = 4.0;

/// Seconds of one pass of a micro-batch through one layer.
pub(super) struct Pass {
    pub(super) compute: f64,
    pub(super) collectives: f64,
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
            ring: count * self.ring,
            attention: count * self.attention,
        }
    }

    /// Through the other layers as well.
    pub(super) fn plus(&self, other: Pass) -> Pass {
        Pass {
            compute: self.compute + other.compute,
            collectives: self.collectives + other.collectives,
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

/// A layer with what it computes again: a dense one, or one with a mixture.
pub(super) fn layer(
    shape: &Shape,
    layout: &Layout,
    rates: &Rates,
    rows: f64,
    mixture: Option<&Mixture>,
) -> Both {
    let forward = forward(shape, layout, rates, rows, mixture);
    let mut backward = backward(shape, layout, rates, rows, &forward, mixture);
    match layout.recompute {
        Recompute::None => {}
        Recompute::Selective => backward.compute += forward.attention,
        Recompute::Full => {
            backward.compute += forward.compute;
            backward.collectives += forward.collectives;
        }
    }
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
    let products = rates.product(rows, shape.packed() / tp, h)
        + rates.product(rows, h, shape.queries() / tp)
        + networks;
    // scores and mixed values: each row with all keys, or with those before it, of which the rank of a sequence's last part has most
    let seen = match (shape.is_fused, rates.shares_cores) {
        (false, _) => 1.0,
        (true, false) => 0.5,
        (true, true) => 1.0 - 0.5 / cp,
    };
    let keys = shape.seq_length as f64 * seen;
    let flop = 4.0 * rows * keys * shape.queries() / tp;
    let mut attention = flop / (rates.matrix * INSIDE_ATTENTION);
    if !shape.is_fused {
        // softmax and dropout read and write scores of 2 bytes, and a mask of one
        let scores = rows * shape.seq_length as f64 * shape.heads as f64 / tp;
        attention += 9.0 * scores / rates.memory;
    }
    let mut collectives = 0.0;
    if layout.tp > 1 {
        // two all-reduces, or as many pairs of reduce-scatter and all-gather; the second one of a mixture is over the rows of experts
        let of_experts = mixture.map_or(1.0, |of| of.top_k as f64 + f64::from(of.shared > 0));
        let bytes = rates.added * rows * h * (1.0 + of_experts) / 2.0;
        let starts = match rates.shares_cores && layout.is_sequence_parallel {
            true => 4.0,
            false => 2.0,
        };
        collectives += starts * rates.collective + 4.0 * (tp - 1.0) / tp * bytes / rates.link;
    }
    let mut ring = 0.0;
    if layout.cp > 1 {
        // keys and values of all other ranks, hidden behind attention where something else carries them
        let width = 2.0 * shape.kv_heads as f64 * shape.head_dim as f64 / tp;
        let of_rank = rates.collective + rates.added * rows * width / rates.network;
        ring = (cp - 1.0) * of_rank;
        let hidden = if rates.shares_cores { 0.0 } else { attention };
        collectives += (ring - hidden).max(0.0);
    }
    if let Some(mixture) = mixture {
        // rows to their experts and back; ranks of a sequence-parallel group send their own part, but those of Millrace all of it
        let shared = match layout.is_sequence_parallel && !rates.shares_cores {
            true => tp,
            false => 1.0,
        };
        let bytes = rates.added * rows * mixture.top_k as f64 * h / shared;
        collectives += 2.0 * rates.all_to_all(layout, bytes);
    }
    Pass {
        compute: products + attention + memory_bound(shape, layout, rates, rows, mixture),
        collectives,
        ring,
        attention,
    }
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
    // five products for the two of the forward pass, of which one is the scores again
    let attention = match rates.shares_cores {
        true => 2.5 * forward.attention,
        false => 2.0 * forward.attention,
    };
    let mut collectives = forward.collectives;
    if rates.shares_cores {
        // gradients of keys and values travel beside them
        collectives += forward.ring;
        if layout.is_sequence_parallel {
            collectives += gathers_again(shape, layout, rates, rows, mixture);
        }
    }
    Pass {
        compute: backward_products(shape, layout, rates, rows, mixture)
            + attention
            + 2.0 * memory_bound(shape, layout, rates, rows, mixture),
        collectives,
        ring: forward.ring,
        attention,
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
    let both = |n: f64, k: f64| rates.product(rows, k, n) + rates.product(n, k, rows);
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
    both(shape.packed() / tp, h) + both(h, shape.queries() / tp) + networks
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
    let ops = OTHER_OPS + mixture.map_or(0.0, |_| ROUTING_OPS);
    ops * rates.op + rates.number * (whole + split + routed) / rates.memory
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::cluster::Cluster;
    use crate::plan::rates::Constants;

    /// Of a mixture's collectives only gathers of tokens' rows are made once more under sequence parallelism.
    #[test]
    fn rows_of_experts_travel_as_often_back_as_forth() {
        let text = "name = \"x\"\nnodes = 1\ndevices_per_node = 4\ncores = 4\nmatrix_tflops = 0.2\nmemory_gb = 16\nmemory_gb_s = 100\nlink_gb_s = 10\nlink_latency_us = 3\n";
        let cluster = Cluster::parse(text, std::path::Path::new("x.toml")).unwrap();
        let shape = Shape::mixtral_8x7b();
        let layout = Layout {
            tp: 2,
            cp: 1,
            pp: 1,
            chunks: 1,
            dp: 2,
            ep: 2,
            micro_batch: 1,
            global_batch: 2,
            is_sequence_parallel: true,
            recompute: Recompute::None,
            zero: 0,
            overlap: false,
            counts_ends: false,
        };
        let rates = Rates::of(&layout, &cluster, &Constants::of(&cluster));
        let of = shape.mixture.unwrap();
        let shared = Mixture { shared: 1024, ..of };
        for (mixture, gathers) in [(None, 2.0), (Some(of), 2.0), (Some(shared), 3.0)] {
            let found = layer(&shape, &layout, &rates, 4096.0, mixture.as_ref());
            let more = found.backward.collectives - found.forward.collectives;
            // half of the rows from the other rank, in f32
            let wanted = gathers * (3e-6 + 0.5 * 4.0 * 4096.0 * 4096.0 / 10e9);
            assert!((more / wanted - 1.0).abs() < 1e-9, "{more} {wanted}");
        }
    }
}
