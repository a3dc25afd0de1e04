//! Time of a step: products by shape, attention, memory-bound operations, collectives, the pipeline's fill and drain, the
//! reduction of gradients and the optimizer, from a cluster's rates and four constants.

use crate::plan::cluster::Cluster;
use crate::plan::layout::{Layout, Recompute};
use crate::plan::shape::Shape;

/// Shares of a cluster's nominal rates that a step reaches.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Constants {
    /// Of the matrix rate, in products that are not bound by memory.
    pub matrix: f64,
    /// Of the memory rate.
    pub memory: f64,
    /// Of the rate between devices of a node.
    pub link: f64,
    /// Of the rate between nodes.
    pub network: f64,
}

/// Fitted on the ten rows of 2104.04473, table 1, alone; `fit.rs` finds them again.
pub(crate) const CONSTANTS: Constants = Constants {
    matrix: 0.6722,
    memory: 1.0,
    link: 1.0,
    network: 1.0,
};

/// Of rates that were measured with the program's own kernels, as `millrace doctor --measure` does.
const MEASURED: Constants = Constants {
    matrix: 1.0,
    memory: 1.0,
    link: 1.0,
    network: 1.0,
};

impl Constants {
    /// Those of a cluster: machines whose devices share cores are described by measured rates, others by nominal ones.
    pub(crate) fn of(cluster: &Cluster) -> Constants {
        match cluster.cores {
            Some(_) => MEASURED,
            None => CONSTANTS,
        }
    }
}

/// Operations of a layer's forward pass that are neither products nor collectives: two norms, attention, an activation
/// function, two residual connections and positions.
const OTHER_OPS: f64 = 7.0;

/// Share of `Constants::matrix` of the products inside attention: their inner dimension is a head.
pub(super) const INSIDE_ATTENTION: f64 = 0.5;

/// Seconds of a step, and of the parts of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct StepTime {
    pub total: f64,
    /// Forward and backward of a micro-batch by one model chunk.
    pub forward: f64,
    pub backward: f64,
    /// The head for a micro-batch, forward and backward, which the last stage adds; above a layer's, where it counts as one.
    pub head: f64,
    /// Idle time of the pipeline's fill and drain.
    pub bubble: f64,
    /// Tensor-parallel and context-parallel collectives of all micro-batches of a stage.
    pub collectives: f64,
    /// Reduction of gradients (and gathering of weights under ZeRO) that nothing hides.
    pub reduction: f64,
    pub optimizer: f64,
}

/// Rates that a step reaches.
pub(super) struct Rates {
    pub(super) matrix: f64,
    pub(super) memory: f64,
    pub(super) link: f64,
    network: f64,
    /// Bytes of a number of activations.
    number: f64,
    /// Bytes of a weight that products read.
    weight: f64,
    /// Bytes of a number that collectives add.
    added: f64,
    /// Seconds to start an operation.
    op: f64,
    /// Seconds to start a collective.
    pub(super) collective: f64,
    /// Whether the devices are ranks that share the cores of a machine: threads of Millrace itself, of which more is known.
    shares_cores: bool,
}

impl Rates {
    /// Rates of each rank of a layout. Ranks that share cores share the rates of their node, and add numbers in f32.
    pub(super) fn of(layout: &Layout, cluster: &Cluster, constants: &Constants) -> Rates {
        let ranks = layout.devices().min(cluster.devices_per_node);
        let share = cluster.share(ranks);
        let link = cluster.link * constants.link;
        Rates {
            matrix: share * cluster.matrix * constants.matrix,
            memory: share * cluster.memory_rate * constants.memory,
            link,
            network: match layout.devices() <= cluster.devices_per_node {
                true => link,
                false => cluster.network * constants.network,
            },
            number: cluster.number_bytes,
            weight: cluster.number_bytes,
            added: match cluster.cores {
                Some(_) => 4.0,
                None => cluster.number_bytes,
            },
            op: cluster.op_start(ranks),
            collective: cluster.link_latency,
            shares_cores: cluster.cores.is_some(),
        }
    }

    /// The same with weights of so many bytes.
    pub(super) fn with_weights(self, weight: f64) -> Rates {
        Rates { weight, ..self }
    }

    /// Seconds of a product of `m` rows with a matrix of `n` rows of `k` weights: its operations or its operands, the longer.
    pub(super) fn product(&self, m: f64, n: f64, k: f64) -> f64 {
        let flop = 2.0 * m * n * k / self.matrix;
        let bytes = self.number * (m * k + m * n) + self.weight * k * n;
        self.op + flop.max(bytes / self.memory)
    }
}

/// Seconds of one pass of a micro-batch through one layer.
pub(super) struct Pass {
    pub(super) compute: f64,
    pub(super) collectives: f64,
    /// Context parallelism's share of the collectives, before anything hides it.
    ring: f64,
    /// Attention between the projections, a part of `compute`.
    attention: f64,
}

/// Time of a step by the model of this file.
pub(crate) fn step_time(
    shape: &Shape,
    layout: &Layout,
    cluster: &Cluster,
    constants: &Constants,
) -> StepTime {
    let rates = Rates::of(layout, cluster, constants);
    let (tp, pp, dp) = (layout.tp as f64, layout.pp as f64, layout.dp as f64);
    let rows = (layout.micro_batch * shape.seq_length) as f64 / layout.cp as f64;
    let forward = forward(shape, layout, &rates, rows);
    let mut backward = backward(shape, layout, &rates, rows, &forward);
    match layout.recompute {
        Recompute::None => {}
        Recompute::Selective => backward.compute += forward.attention,
        Recompute::Full => {
            backward.compute += forward.compute;
            backward.collectives += forward.collectives;
        }
    }
    let layers = layout.rank_layers(shape) / layout.chunks as f64;
    // a micro-batch's rows to the next stage, and their gradient back
    let message = match layout.pp {
        1 => 0.0,
        _ => rates.collective + rates.added * rows * shape.width as f64 / tp / rates.network,
    };
    let chunk_forward = layers * (forward.compute + forward.collectives) + message;
    let chunk_backward = layers * (backward.compute + backward.collectives)
        + message
        + accumulation(&rates, layers * shape.layer_parameters() / tp);
    let vocab = shape.vocab as f64 / tp;
    let head = 3.0 * rates.product(rows, vocab, shape.width as f64)
        + 16.0 * rows * vocab / rates.memory
        + accumulation(&rates, vocab * shape.width as f64);
    let head = match layout.counts_ends {
        true => {
            let layer = (chunk_forward + chunk_backward) / layers;
            (head - layer).max(0.0)
        }
        false => head,
    };
    let (count, chunks) = (layout.micro_batches() as f64, layout.chunks as f64);
    let both = chunk_forward + chunk_backward;
    let busy = count * (chunks * both + head);
    // ranks that take turns on a core leave it idle only if none of them can run
    let turns = cluster.turns(layout.devices().min(cluster.devices_per_node));
    let work = busy.max(turns * count * (chunks * both + head / pp));
    let bubble = (busy + (pp - 1.0) * both - work).max(0.0);
    let of_layers = layout.rank_layers(shape) * shape.layer_parameters();
    // a stage that has both ends has two matrices of the vocabulary, unless they are one
    let ends = if rates.shares_cores && layout.pp == 1 && !shape.is_tied {
        2.0
    } else {
        1.0
    };
    let parameters = (of_layers + ends * (shape.vocab * shape.width) as f64) / tp;
    let own = if layout.zero >= 1 {
        parameters / dp
    } else {
        parameters
    };
    // two moments, the copy of the weights, weights and gradient: read, and all but the gradient written
    let optimizer = turns * 30.0 * own / rates.memory;
    let reduction = turns * reduction(layout, cluster, &rates, parameters, count);
    // shared cores have no time to spare beside the backward pass
    let hidden = if layout.overlap && cluster.cores.is_none() {
        // by the backward pass of the last micro-batch; gathering under ZeRO 3 by every pass
        let passes = if layout.zero == 3 {
            work
        } else {
            chunks * chunk_backward
        };
        reduction.min(passes)
    } else {
        0.0
    };
    StepTime {
        total: work + bubble + (reduction - hidden) + optimizer,
        forward: chunk_forward,
        backward: chunk_backward,
        head,
        bubble,
        collectives: count * chunks * layers * (forward.collectives + backward.collectives),
        reduction: reduction - hidden,
        optimizer,
    }
}

/// The forward pass of `rows`.
pub(super) fn forward(shape: &Shape, layout: &Layout, rates: &Rates, rows: f64) -> Pass {
    let (tp, cp) = (layout.tp as f64, layout.cp as f64);
    let (h, ffn) = (shape.width as f64, shape.ffn as f64);
    let products = rates.product(rows, shape.packed() as f64 / tp, h)
        + rates.product(rows, h, shape.queries() as f64 / tp)
        + rates.product(rows, shape.ffn_inputs() as f64 * ffn / tp, h)
        + rates.product(rows, h, ffn / tp);
    // scores and mixed values: each row with all keys, or with those before it, of which the rank of a sequence's last part has most
    let seen = match (shape.is_fused, rates.shares_cores) {
        (false, _) => 1.0,
        (true, false) => 0.5,
        (true, true) => 1.0 - 0.5 / cp,
    };
    let keys = shape.seq_length as f64 * seen;
    let flop = 4.0 * rows * keys * shape.queries() as f64 / tp;
    let mut attention = flop / (rates.matrix * INSIDE_ATTENTION);
    if !shape.is_fused {
        // softmax and dropout read and write scores of 2 bytes, and a mask of one
        let scores = rows * shape.seq_length as f64 * shape.heads as f64 / tp;
        attention += 9.0 * scores / rates.memory;
    }
    let mut collectives = 0.0;
    if layout.tp > 1 {
        // two all-reduces, or as many pairs of reduce-scatter and all-gather
        let bytes = rates.added * rows * h;
        let starts = match rates.shares_cores && layout.is_sequence_parallel {
            true => 4.0,
            false => 2.0,
        };
        collectives += starts * rates.collective + 4.0 * (tp - 1.0) / tp * bytes / rates.link;
    }
    let mut ring = 0.0;
    if layout.cp > 1 {
        // keys and values of all other ranks, hidden behind attention where something else carries them
        let width = 2.0 * (shape.kv_heads * shape.head_dim) as f64 / tp;
        let of_rank = rates.collective + rates.added * rows * width / rates.network;
        ring = (cp - 1.0) * of_rank;
        let hidden = if rates.shares_cores { 0.0 } else { attention };
        collectives += (ring - hidden).max(0.0);
    }
    Pass {
        compute: products + attention + memory_bound(shape, layout, rates, rows),
        collectives,
        ring,
        attention,
    }
}

/// The backward pass to a forward pass of `rows`.
fn backward(shape: &Shape, layout: &Layout, rates: &Rates, rows: f64, forward: &Pass) -> Pass {
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
            // inputs and gradients are gathered once more for the gradients of weights
            collectives += 0.5 * (forward.collectives - forward.ring);
        }
    }
    Pass {
        compute: backward_products(shape, layout, rates, rows)
            + attention
            + 2.0 * memory_bound(shape, layout, rates, rows),
        collectives,
        ring: forward.ring,
        attention,
    }
}

/// Seconds of adding a micro-batch's gradients of these parameters to those before it: written once, and in the binary tree of
/// `determinism = "layout"` read twice and written once for every second micro-batch. Of GPUs it is a part of the constants.
fn accumulation(rates: &Rates, parameters: f64) -> f64 {
    match rates.shares_cores {
        true => 10.0 * parameters / rates.memory,
        false => 0.0,
    }
}

/// Products of a layer's backward pass: with respect to the input, and to the weights.
fn backward_products(shape: &Shape, layout: &Layout, rates: &Rates, rows: f64) -> f64 {
    let (tp, h) = (layout.tp as f64, shape.width as f64);
    let ffn = shape.ffn as f64 / tp;
    let inner = shape.ffn_inputs() as f64 * ffn;
    let sizes = [
        (shape.packed() as f64 / tp, h),
        (h, shape.queries() as f64 / tp),
        (inner, h),
        (h, ffn),
    ];
    let both = |(n, k)| rates.product(rows, k, n) + rates.product(n, k, rows);
    sizes.into_iter().map(both).sum()
}

/// Norms, dropout, residual connections, activation function and biases of a forward pass.
fn memory_bound(shape: &Shape, layout: &Layout, rates: &Rates, rows: f64) -> f64 {
    let tp = layout.tp as f64;
    let shared = if layout.is_sequence_parallel { tp } else { 1.0 };
    // two norms read and write, two residual connections with dropout read two and write one with a mask
    let whole = 12.0 * (rows * shape.width as f64) / shared;
    let split = (2.0 * rows * shape.ffn as f64 + rows * shape.packed() as f64) / tp;
    OTHER_OPS * rates.op + rates.number * (whole + split) / rates.memory
}

/// Seconds of summing gradients over data-parallel ranks, and of gathering weights under ZeRO. Where cores are shared, sums of
/// ZeRO 2 and 3 and of context parallelism are counted for each micro-batch, as Millrace makes them.
fn reduction(
    layout: &Layout,
    cluster: &Cluster,
    rates: &Rates,
    parameters: f64,
    micro_batches: f64,
) -> f64 {
    let ranks = (layout.dp * layout.cp) as f64;
    if ranks < 2.0 {
        return 0.0;
    }
    // members of a group in a node share its network devices
    let in_node = (cluster.devices_per_node / layout.tp).max(1) as f64;
    let in_node = in_node.min(ranks);
    let rate = if in_node < ranks {
        rates.network * in_node
    } else {
        rates.link
    };
    let is_by_micro_batch = rates.shares_cores && (layout.zero >= 2 || layout.cp > 1);
    let sums = if is_by_micro_batch {
        4.0 * micro_batches
    } else {
        4.0
    };
    let bytes = match layout.zero {
        0 => sums + 4.0,
        1 | 2 => sums + rates.added,
        // weights are gathered for both passes of each micro-batch
        _ => sums + 2.0 * rates.added * micro_batches,
    };
    (ranks - 1.0) / ranks * bytes * parameters / rate
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout() -> Layout {
        Layout {
            tp: 8,
            cp: 1,
            pp: 8,
            chunks: 3,
            dp: 1,
            micro_batch: 1,
            global_batch: 64,
            is_sequence_parallel: false,
            recompute: Recompute::Full,
            zero: 0,
            overlap: false,
            counts_ends: false,
        }
    }

    fn time(layout: &Layout) -> StepTime {
        let cluster = Cluster::load("dgx-a100").unwrap();
        step_time(&Shape::gpt(96, 12_288, 96), layout, &cluster, &CONSTANTS)
    }

    #[test]
    fn parts_of_a_step_grow_as_they_should() {
        let full = time(&layout());
        let selective = time(&Layout {
            recompute: Recompute::Selective,
            ..layout()
        });
        assert!(selective.total < full.total * 0.85);
        let plain = time(&Layout {
            chunks: 1,
            ..layout()
        });
        // (pp - 1) / chunks micro-batches of idle time
        assert!(
            (plain.bubble / full.bubble - 3.0).abs() < 0.05,
            "{plain:?} {full:?}"
        );
        let more = time(&Layout {
            global_batch: 128,
            ..layout()
        });
        assert!(more.total > 1.8 * full.total && more.total < 2.0 * full.total);
    }

    /// Ranks that share cores compute no faster together than one rank with all cores, and fill each other's idle time.
    #[test]
    fn ranks_that_share_cores_divide_their_rates_and_take_turns() {
        let text = "name = \"x\"\nnodes = 1\ndevices_per_node = 8\ncores = 2\nmatrix_tflops = 0.2\nmatrix_f32_tflops = 0.1\nmemory_gb = 16\nmemory_gb_s = 1000000\nlink_gb_s = 1000000\n";
        let cluster = Cluster::parse(text, std::path::Path::new("x.toml")).unwrap();
        let shape = Shape {
            is_fused: true,
            vocab: 512,
            ..Shape::gpt(8, 256, 8)
        };
        let of = |cluster: &Cluster, pp, dp| {
            let layout = Layout {
                tp: 1,
                pp,
                dp,
                chunks: 1,
                global_batch: 8,
                recompute: Recompute::None,
                ..layout()
            };
            step_time(&shape, &layout, cluster, &Constants::of(cluster))
        };
        let one = of(&cluster, 1, 1).total;
        for dp in [2, 4, 8] {
            let ratio = of(&cluster, 1, dp).total / one;
            assert!((ratio - 1.0).abs() < 0.01, "dp {dp}: {ratio}");
        }
        // two stages on two cores idle at the start and the end; of four, others run then
        let (two, four) = (of(&cluster, 2, 1), of(&cluster, 4, 1));
        assert!(two.bubble > 0.0 && two.total > one, "{two:?}");
        assert_eq!(four.bubble, 0.0, "{four:?}");
        // f32: half the rate
        let single = of(&cluster.clone().in_f32().unwrap(), 1, 1).total;
        assert!((single / one - 2.0).abs() < 0.01, "{single} {one}");
    }

    /// Threads of one machine have nothing that could carry collectives beside their products.
    #[test]
    fn ranks_that_share_cores_hide_nothing_and_sum_for_each_micro_batch() {
        let text = "name = \"x\"\nnodes = 1\ndevices_per_node = 8\ncores = 8\nmatrix_tflops = 0.2\nmemory_gb = 16\nmemory_gb_s = 100\nlink_gb_s = 10\n";
        let cpu = Cluster::parse(text, std::path::Path::new("x.toml")).unwrap();
        let gpu = Cluster::load("dgx-a100").unwrap();
        let shape = Shape {
            is_fused: true,
            vocab: 512,
            ..Shape::gpt(8, 256, 8)
        };
        let one = Layout {
            tp: 1,
            pp: 1,
            chunks: 1,
            global_batch: 4,
            recompute: Recompute::None,
            ..layout()
        };
        let two = Layout {
            dp: 2,
            global_batch: 8,
            ..one
        };
        let cut = Layout { cp: 2, ..one };
        let of = |cluster: &Cluster, layout: Layout| {
            step_time(&shape, &layout, cluster, &Constants::of(cluster))
        };
        let near = |found: f64, wanted: f64| {
            assert!((found / wanted - 1.0).abs() < 1e-9, "{found} {wanted}");
        };
        // four micro-batches: 4 * 4 + 4 bytes for each parameter instead of 4 + 4
        let reduction = |layout, zero| of(&cpu, Layout { zero, ..layout }).reduction;
        let once = reduction(two, 1);
        near(reduction(two, 2), 2.5 * once);
        near(reduction(cut, 0), 2.5 * once);
        assert_eq!(of(&gpu, cut).collectives, 0.0);
        assert!(of(&cpu, cut).collectives > 0.0);
        // of a sequence's second half, rows see three quarters of the keys
        assert!(of(&cpu, cut).forward > 0.5 * of(&cpu, one).forward);
        // sequence parallelism gathers inputs and gradients once more: 1 + 1.5 instead of 1 + 1
        let split = Layout { tp: 2, ..one };
        let sequence = Layout {
            is_sequence_parallel: true,
            ..split
        };
        let plain = of(&cpu, split).collectives;
        near(of(&cpu, sequence).collectives, 1.25 * plain);
    }

    #[test]
    fn only_ranks_of_several_threads_wait_for_them_at_each_operation() {
        let text = "name = \"x\"\nnodes = 1\ndevices_per_node = 2\ncores = 2\nmatrix_tflops = 1\nmemory_gb = 16\nmemory_gb_s = 100\nlink_gb_s = 10\nop_latency_us = 1\n";
        let parse = |text: &str| Cluster::parse(text, std::path::Path::new("x.toml")).unwrap();
        let plain = parse(text);
        let slow = parse(&format!("{text}shared_op_latency_us = 3\n"));
        assert_eq!(plain.op_start(1), 1e-6);
        assert_eq!([slow.op_start(1), slow.op_start(2)], [3e-6, 1e-6]);
    }

    #[test]
    fn each_start_of_an_operation_takes_its_time() {
        let cluster = Cluster::load("dgx-a100").unwrap();
        let slow = Cluster {
            op_latency: 1.0,
            link_latency: 1000.0,
            ..cluster.clone()
        };
        let one = Layout {
            tp: 1,
            pp: 1,
            chunks: 1,
            global_batch: 1,
            recompute: Recompute::None,
            ..layout()
        };
        let shape = Shape::gpt(1, 1024, 16);
        let of = |cluster: &Cluster, layout: &Layout| {
            step_time(&shape, layout, cluster, &CONSTANTS).total
        };
        // products: 4 forward, 8 backward, 3 of the head; 7 other operations forward, and twice as many backward
        let more = of(&slow, &one) - of(&cluster, &one);
        assert!(
            (more - (4.0 + 8.0 + 3.0 + 3.0 * OTHER_OPS)).abs() < 1e-6,
            "{more}"
        );
        let two = Layout { tp: 2, ..one };
        // two collectives in each direction
        let more = of(&slow, &two) - of(&cluster, &two) - more;
        assert!((more - 4000.0).abs() < 1e-3, "{more}");
    }

    #[test]
    fn overlap_hides_the_reduction_behind_one_backward_pass() {
        let of = Layout {
            dp: 2,
            global_batch: 128,
            ..layout()
        };
        let seen = time(&of);
        let hidden = time(&Layout {
            overlap: true,
            ..of
        });
        let backward = of.chunks as f64 * seen.backward;
        let left = (seen.reduction - backward).max(0.0);
        assert!((hidden.reduction - left).abs() < 1e-12 && left < seen.reduction);
        assert!((seen.total - seen.reduction + left - hidden.total).abs() < 1e-9);
    }
}
