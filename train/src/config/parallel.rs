//! The job's `[parallel]` table: sizes of the parallel axes, the order in which ranks are numbered, and the layers
//! of each pipeline stage.
//!
//! Stages: with v virtual stages the model is cut into p v model chunks; model chunk i is chunk i / p of rank i
//! mod p (Narayanan et al. 2021, arXiv:2104.04473, sec. 2.2). Names and defaults follow megatron-core 0.16.1
//! (`RankGenerator`, `account_for_embedding_in_pipeline_split`). We differ: uneven stages are one list of layer
//! counts.

use std::ops::Range;

use serde::{Deserialize, Serialize};

/// One way of sharing work between ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Axis {
    Tp,
    Cp,
    Ep,
    Dp,
    Pp,
}

impl Axis {
    /// Megatron's default order, fastest first.
    pub(crate) const MEGATRON: [Axis; 5] = [Axis::Tp, Axis::Cp, Axis::Ep, Axis::Dp, Axis::Pp];

    fn named(name: &str) -> Option<Axis> {
        Some(match name {
            "tp" => Axis::Tp,
            "cp" => Axis::Cp,
            "ep" => Axis::Ep,
            "dp" => Axis::Dp,
            "pp" => Axis::Pp,
            _ => return None,
        })
    }
}

/// Order of forward and backward passes through the pipeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PipelineSchedule {
    /// All forwards, then all backwards (GPipe: Huang et al. 2019, arXiv:1811.06965). Keeps the
    /// activations of every micro-batch.
    Gpipe,
    /// A backward as soon as one is ready (PipeDream-Flush); with `virtual_stages` above 1 its
    /// interleaved form.
    OneFOneB,
}

/// Sizes of the parallel axes. Ranks are threads of one process, or of several (`[launch]`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ParallelConfig {
    /// Tensor parallel ranks: every layer is split. Default: 1.
    pub tp: usize,
    /// Pipeline stages: layers are split. Default: 1.
    pub pp: usize,
    /// Data parallel replicas: the batch is split. Default: 1.
    pub dp: usize,
    /// Expert parallel ranks: the experts of every mixture are shared out over this many adjacent
    /// data parallel ranks, each of which keeps its own sequences. Default: 1.
    pub ep: usize,
    /// Context parallel ranks: every sequence is split. Default: 1.
    pub cp: usize,
    /// Sequence parallelism: activations between tensor-parallel layers are split over the same ranks along the
    /// sequence. Default: false.
    pub sequence: bool,
    /// Pieces of the model on each pipeline rank. Default: 1.
    pub virtual_stages: usize,
    /// Order of passes through the pipeline. Default: `one_f_one_b`.
    pub schedule: PipelineSchedule,
    /// Layers of each of the `pp * virtual_stages` model chunks in order of the model; empty: even.
    pub stage_layers: Vec<usize>,
    /// Count the embedding as a layer of the first model chunk when model chunks are even. Default: false.
    pub count_embedding: bool,
    /// Count the head as a layer of the last model chunk when model chunks are even. Default: false.
    pub count_head: bool,
    /// ZeRO stage: what data-parallel ranks shard (Rajbhandari et al. 2020, arXiv:1910.02054): 0 nothing, 1 the
    /// optimizer's state, 2 also gradients, 3 also weights. Default: 0.
    pub zero: u8,
    /// Reduce gradients on a second thread during the backward pass. Default: true.
    pub overlap: bool,
    /// Order in which ranks are numbered, the first axis fastest, or `auto`: the heaviest traffic
    /// inside nodes of `ranks_per_node`. Default: `tp-cp-ep-dp-pp`, Megatron's.
    pub order: String,
    /// Ranks per node; 0: all of them. Tensor-parallel groups must be inside a node, and gradients are summed
    /// inside nodes before they cross. Default: 0.
    pub ranks_per_node: usize,
}

impl Default for ParallelConfig {
    fn default() -> Self {
        ParallelConfig {
            tp: 1,
            pp: 1,
            dp: 1,
            ep: 1,
            cp: 1,
            sequence: false,
            virtual_stages: 1,
            schedule: PipelineSchedule::OneFOneB,
            stage_layers: Vec::new(),
            count_embedding: false,
            count_head: false,
            zero: 0,
            overlap: true,
            order: "tp-cp-ep-dp-pp".into(),
            ranks_per_node: 0,
        }
    }
}

impl ParallelConfig {
    /// Number of ranks.
    pub fn world(&self) -> usize {
        [self.tp, self.cp, self.pp, self.dp]
            .iter()
            .fold(1, |world: usize, size| world.saturating_mul(*size))
    }

    /// The axes by speed, if `order` names each once.
    pub(crate) fn axes(&self) -> Option<[Axis; 5]> {
        if self.order == "auto" {
            return Some(self.best_axes());
        }
        let axes: Vec<Axis> = self.order.split('-').filter_map(Axis::named).collect();
        let axes: [Axis; 5] = axes.try_into().ok()?;
        let is_each_there = Axis::MEGATRON.iter().all(|axis| axes.contains(axis));
        (is_each_there && self.order.split('-').count() == 5).then_some(axes)
    }

    /// True if each micro-batch's gradients are reduced over ranks at once, after which ranks keep shards of them.
    /// Expert parallelism requires it: an expert's gradients are sums over the sequences of all its ranks, which
    /// are blocks of the tree only if ranks take turns by micro-batch.
    pub(crate) fn is_summed_by_round(&self) -> bool {
        self.zero >= 2 || self.ep > 1
    }

    fn size(&self, axis: Axis) -> usize {
        match axis {
            Axis::Tp => self.tp,
            Axis::Cp => self.cp,
            Axis::Ep => 1,
            Axis::Dp => self.dp,
            Axis::Pp => self.pp,
        }
    }

    /// Distance in world rank between neighbours of an axis.
    fn stride(&self, axes: &[Axis; 5], axis: Axis) -> usize {
        let before = axes.iter().take_while(|&&other| other != axis);
        before.fold(1, |stride: usize, &other| {
            stride.saturating_mul(self.size(other))
        })
    }

    fn node_ranks(&self) -> usize {
        if self.ranks_per_node == 0 {
            self.world().max(1)
        } else {
            self.ranks_per_node
        }
    }

    /// Nodes that the first group of an axis touches.
    fn nodes_of(&self, axes: &[Axis; 5], axis: Axis) -> usize {
        let (stride, node) = (self.stride(axes, axis), self.node_ranks());
        let size = self.size(axis);
        if stride >= node {
            size // each on its own
        } else {
            size.saturating_sub(1).saturating_mul(stride) / node + 1
        }
    }

    /// The order whose groups touch the fewest nodes, heaviest traffic first: tensor (four sums of
    /// activations a layer), context (keys and values), data (gradients), pipeline (one
    /// activation). Ties keep Megatron's order. For t ranks in a node of t this is MT-NLG's
    /// placement (Smith et al. 2022, arXiv:2201.11990, sec. 3.2): tensor inside a node, pipeline
    /// across nodes, and the ranks of a node in as many data-parallel groups.
    fn best_axes(&self) -> [Axis; 5] {
        use Axis::{Cp, Dp, Ep, Pp, Tp};
        let orders = [
            Axis::MEGATRON,
            [Tp, Cp, Ep, Pp, Dp],
            [Tp, Ep, Dp, Cp, Pp],
            [Tp, Ep, Dp, Pp, Cp],
            [Tp, Pp, Cp, Ep, Dp],
            [Tp, Pp, Ep, Dp, Cp],
        ];
        let cost = |axes: &[Axis; 5]| [Tp, Cp, Dp, Pp].map(|axis| self.nodes_of(axes, axis));
        let mut best = orders[0];
        for order in &orders[1..] {
            if cost(order) < cost(&best) {
                best = *order;
            }
        }
        best
    }

    /// Data parallel neighbours that share a node if every node has the same power of two of them,
    /// else 1.
    pub(crate) fn dp_ranks_on_a_node(&self) -> usize {
        let Some(axes) = self.axes().filter(|_| self.ranks_per_node > 0) else {
            return 1;
        };
        let stride = self.stride(&axes, Axis::Dp);
        let together = self.ranks_per_node / stride;
        let is_even = self.ranks_per_node.is_multiple_of(stride)
            && together.is_power_of_two()
            && self.dp.is_multiple_of(together);
        if is_even { together } else { 1 }
    }

    /// The groups of this layout inside and across nodes of `ranks_per_node`.
    pub fn placement(&self) -> Placement {
        let axes = self.axes().unwrap_or(Axis::MEGATRON);
        let node = self.node_ranks();
        // as many groups as ranks with index 0 in theirs: a run of `stride` in every period
        let stride = self.stride(&axes, Axis::Dp);
        let period = stride.saturating_mul(self.dp).max(1);
        let ranks = node.min(self.world());
        let data_groups = ranks / period * stride + (ranks % period).min(stride);
        Placement {
            nodes: self.world().div_ceil(node),
            tensor_nodes: self.nodes_of(&axes, Axis::Tp),
            context_nodes: self.nodes_of(&axes, Axis::Cp),
            data_nodes: self.nodes_of(&axes, Axis::Dp),
            pipeline_nodes: self.nodes_of(&axes, Axis::Pp),
            data_groups_on_a_node: data_groups,
        }
    }

    /// Pieces of the model over all pipeline ranks.
    pub(crate) fn model_chunks(&self) -> usize {
        self.pp.saturating_mul(self.virtual_stages)
    }

    /// Layers of each model chunk, in order of the model. Meant for a checked table; for others it still gives one range
    /// per model chunk.
    pub(crate) fn stages(&self, layers: usize) -> Vec<Range<usize>> {
        let model_chunks = self.model_chunks().max(1);
        let counts: Vec<usize> = if self.stage_layers.is_empty() {
            let (first, last) = (
                usize::from(self.count_embedding),
                usize::from(self.count_head),
            );
            let per = (layers + first + last) / model_chunks;
            let mut counts = vec![per; model_chunks];
            counts[0] = counts[0].saturating_sub(first);
            counts[model_chunks - 1] = counts[model_chunks - 1].saturating_sub(last);
            counts
        } else {
            self.stage_layers.clone()
        };
        let mut start = 0;
        let ranges = (0..model_chunks).map(|model_chunk| {
            let count = counts.get(model_chunk).copied().unwrap_or(0);
            let end = (start + count).min(layers);
            let range = start.min(layers)..end;
            start = end;
            range
        });
        ranges.collect()
    }

    /// Calls `problem` for every contradiction within this table.
    pub fn check(&self, problem: &mut dyn FnMut(&str, String, &str)) {
        for (key, value) in [
            ("tp", self.tp),
            ("pp", self.pp),
            ("dp", self.dp),
            ("ep", self.ep),
            ("cp", self.cp),
            ("virtual_stages", self.virtual_stages),
        ] {
            if value == 0 {
                problem(key, "0".into(), "at least 1");
            }
        }
        if self.virtual_stages > 1 && self.pp == 1 {
            let found = format!("{} with pp = 1", self.virtual_stages);
            problem("virtual_stages", found, "1, or pp of at least 2");
        }
        if self.virtual_stages > 1 && self.schedule == PipelineSchedule::Gpipe {
            let found = format!("gpipe with virtual_stages = {}", self.virtual_stages);
            problem("schedule", found, "one_f_one_b, or virtual_stages = 1");
        }
        if self.zero > 3 {
            problem("zero", self.zero.to_string(), "0, 1, 2 or 3");
        }
        let Some(axes) = self.axes() else {
            let wanted = "tp, cp, ep, dp, pp once each with - between, or auto";
            problem("order", format!("{:?}", self.order), wanted);
            return;
        };
        if self.order == "auto" && self.ranks_per_node == 0 {
            problem("order", "\"auto\" without ranks_per_node".into(), "both");
        }
        if self.world() > 0 && self.nodes_of(&axes, Axis::Tp) > 1 {
            let found = format!(
                "{} with tp = {}, order = {:?}",
                self.ranks_per_node, self.tp, self.order
            );
            let wanted =
                "a multiple of tp, tp first in order: tensor-parallel groups must be inside a node";
            problem("ranks_per_node", found, wanted);
        }
    }
}

/// Numbers of nodes that groups of ranks span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Placement {
    /// Nodes in all.
    pub nodes: usize,
    /// Nodes of a tensor parallel group.
    pub tensor_nodes: usize,
    /// Nodes of a context parallel group.
    pub context_nodes: usize,
    /// Nodes of a data parallel group.
    pub data_nodes: usize,
    /// Nodes of a pipeline.
    pub pipeline_nodes: usize,
    /// Data parallel groups that the ranks of a node belong to: as many sums use its links at once.
    pub data_groups_on_a_node: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(parallel: &ParallelConfig) -> Vec<String> {
        let mut found = Vec::new();
        parallel.check(&mut |key, _, _| found.push(key.to_owned()));
        found
    }

    /// Smith et al. 2022: 280 nodes of 8, tensor 8, pipeline 35, data 8.
    #[test]
    fn mt_nlg_has_tensor_groups_in_nodes_and_eight_data_groups_on_each() {
        let parallel = ParallelConfig {
            tp: 8,
            pp: 35,
            dp: 8,
            order: "auto".into(),
            ranks_per_node: 8,
            ..Default::default()
        };
        let placement = parallel.placement();
        assert_eq!((placement.nodes, placement.tensor_nodes), (280, 1));
        assert_eq!((placement.pipeline_nodes, placement.data_nodes), (35, 8));
        assert_eq!(placement.data_groups_on_a_node, 8);
        assert!(problems(&parallel).is_empty());
    }

    #[test]
    fn automatic_order_keeps_the_heavier_groups_inside_nodes() {
        let parallel = ParallelConfig {
            tp: 2,
            pp: 4,
            dp: 4,
            order: "auto".into(),
            ranks_per_node: 8,
            ..Default::default()
        };
        let placement = parallel.placement();
        assert_eq!((placement.tensor_nodes, placement.data_nodes), (1, 1));
        assert_eq!(placement.pipeline_nodes, 4);
        let by_hand = ParallelConfig {
            order: "tp-pp-cp-ep-dp".into(),
            ..parallel
        };
        assert_eq!(by_hand.placement().data_nodes, 4);
    }

    #[test]
    fn a_node_shares_data_ranks_only_where_they_are_a_power_of_two() {
        let on = |tp, dp, ranks_per_node| {
            let parallel = ParallelConfig {
                tp,
                dp,
                ranks_per_node,
                ..Default::default()
            };
            parallel.dp_ranks_on_a_node()
        };
        assert_eq!(on(2, 8, 8), 4);
        assert_eq!(on(2, 8, 2), 1);
        assert_eq!(on(1, 12, 6), 1);
        assert_eq!(on(1, 12, 4), 4);
        assert_eq!(on(1, 4, 0), 1);
    }

    #[test]
    fn pieces_are_even_counted_or_as_given() {
        let mut parallel = ParallelConfig {
            pp: 2,
            virtual_stages: 2,
            ..Default::default()
        };
        assert_eq!(parallel.stages(8), [0..2, 2..4, 4..6, 6..8]);
        (parallel.count_embedding, parallel.count_head) = (true, true);
        assert_eq!(parallel.stages(6), [0..1, 1..3, 3..5, 5..6]);
        parallel.stage_layers = vec![3, 0, 2, 1];
        assert_eq!(parallel.stages(6), [0..3, 3..3, 3..5, 5..6]);
    }

    #[test]
    fn every_contradiction_is_told_at_once() {
        let parallel = ParallelConfig {
            tp: 4,
            pp: 1,
            dp: 0,
            virtual_stages: 2,
            schedule: PipelineSchedule::Gpipe,
            zero: 4,
            order: "tp-dp".into(),
            ..Default::default()
        };
        let found = problems(&parallel);
        assert_eq!(found, ["dp", "virtual_stages", "schedule", "zero", "order"]);
        let across = ParallelConfig {
            tp: 4,
            ranks_per_node: 2,
            ..Default::default()
        };
        assert_eq!(problems(&across), ["ranks_per_node"]);
    }
}
