//! Placement of a layout: the coordinates of each device in the mesh of parallel axes, and the nodes that a group of each axis
//! touches.

use crate::plan::layout::Layout;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use train::config::ParallelConfig;
use train::dist::{MeshPlace, mesh_place};

/// Nodes up to which all of them are in the map; of more, those with ranks of the first data-parallel replica.
const ALL_NODES: usize = 32;

/// An axis of the mesh.
#[derive(Clone, Copy)]
enum Axis {
    Tp,
    Cp,
    Ep,
    Dp,
    Pp,
}

/// The groups of an axis, on the nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Groups {
    axis: &'static str,
    /// Ranks of a group.
    size: usize,
    /// Most nodes that a group touches.
    nodes: usize,
}

/// A rank and its place on the axes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Device {
    rank: usize,
    place: MeshPlace,
}

/// The ranks of a layout on the nodes of a cluster, in the order in which a training numbers them.
#[derive(Clone, Debug)]
pub(crate) struct Placement {
    order: String,
    per_node: usize,
    ranks: usize,
    axes: Vec<Groups>,
    /// Nodes of the map by number, each with its devices.
    nodes: Vec<(usize, Vec<Device>)>,
}

impl Placement {
    /// The placement on nodes of `per_node` devices.
    pub(crate) fn new(layout: &Layout, per_node: usize) -> Placement {
        let parallel = layout.parallel(per_node);
        let ranks = layout.devices();
        let places: Vec<MeshPlace> = (0..ranks).map(|rank| mesh_place(rank, &parallel)).collect();
        let count = ranks.div_ceil(per_node);
        let of_node = |node: usize| {
            let ranks = node * per_node..((node + 1) * per_node).min(ranks);
            let devices = ranks.map(|rank| Device {
                rank,
                place: places[rank],
            });
            (node, devices.collect::<Vec<_>>())
        };
        let has_replica = |devices: &[Device]| devices.iter().any(|of| of.place.dp == 0);
        Placement {
            order: parallel.order.clone(),
            per_node,
            ranks,
            axes: axes(&parallel, &places, per_node),
            nodes: (0..count)
                .map(of_node)
                .filter(|(_, devices)| count <= ALL_NODES || has_replica(devices))
                .collect(),
        }
    }

    /// Axes, and the map of nodes.
    pub(crate) fn to_json(&self) -> Value {
        let axes: Vec<Value> = (self.axes.iter())
            .map(|of| json!({"axis": of.axis, "size": of.size, "nodes_of_a_group": of.nodes}))
            .collect();
        let device = |of: &Device| {
            let MeshPlace { tp, cp, ep, dp, pp } = of.place;
            json!({"rank": of.rank, "tp": tp, "cp": cp, "ep": ep, "dp": dp, "pp": pp})
        };
        let nodes: Vec<Value> = (self.nodes.iter())
            .map(|(node, devices)| {
                json!({"node": node, "devices": devices.iter().map(device).collect::<Vec<_>>()})
            })
            .collect();
        json!({
            "order": self.order, "devices_per_node": self.per_node, "nodes": self.ranks.div_ceil(self.per_node), "axes": axes,
            "map": nodes,
        })
    }
}

/// Fewest ranks that a node of `per_node` devices has of a group that shares out the experts, among the nodes with any. Such ranks are
/// `tp * cp` apart: those between them have the same experts.
pub(super) fn expert_ranks_of_node(layout: &Layout, per_node: usize) -> usize {
    let apart = layout.tp * layout.cp;
    if layout.devices() <= per_node {
        return layout.ep;
    }
    if apart >= per_node {
        return 1;
    }
    let block = layout.ep * apart;
    // the groups' places in nodes repeat after the least common multiple of both
    let mut period = 1;
    while !(period * block).is_multiple_of(per_node) {
        period += 1;
    }
    let blocks = period.min(layout.devices() / block);
    let offsets = match per_node.is_multiple_of(apart) {
        true => 1,
        false => apart,
    };
    let starts = (0..blocks).flat_map(|of| (0..offsets).map(move |offset| of * block + offset));
    let fewest = |start: usize| {
        let (mut rank, mut left, mut fewest) = (start, layout.ep, layout.ep);
        while left > 0 {
            let here = (per_node - rank % per_node).div_ceil(apart).min(left);
            fewest = fewest.min(here);
            rank += here * apart;
            left -= here;
        }
        fewest
    };
    starts.map(fewest).min().unwrap_or(layout.ep)
}

/// Fewest ranks that a full node of `per_node` devices has of a group that sums gradients, among the nodes with any: all
/// context-parallel ranks of data-parallel ranks that are `apart` from each other.
pub(super) fn replicas_of_node(layout: &Layout, per_node: usize, apart: usize) -> usize {
    let places = (per_node / layout.tp).max(1);
    let period = layout.cp * apart;
    let of_rest = (places % period).saturating_sub(period - layout.cp);
    (places / period * layout.cp + of_rest).max(layout.cp.min(places))
}

/// The groups of each axis: ranks that have the same place on all others.
fn axes(parallel: &ParallelConfig, places: &[MeshPlace], per_node: usize) -> Vec<Groups> {
    let axes = [Axis::Tp, Axis::Cp, Axis::Ep, Axis::Dp, Axis::Pp];
    let of_axis = |axis: Axis| {
        let mut groups: BTreeMap<[usize; 4], Vec<usize>> = BTreeMap::new();
        for (rank, place) in places.iter().enumerate() {
            let MeshPlace { tp, cp, ep, dp, pp } = *place;
            let others = match axis {
                Axis::Tp => [0, cp, dp, pp],
                Axis::Cp => [tp, 0, dp, pp],
                // expert-parallel ranks are adjacent data-parallel ones
                Axis::Ep => [tp, cp, dp - ep, pp],
                Axis::Dp => [tp, cp, 0, pp],
                Axis::Pp => [tp, cp, dp, 0],
            };
            let nodes = groups.entry(others).or_default();
            // ranks are in order, and so are their nodes
            if nodes.last() != Some(&(rank / per_node)) {
                nodes.push(rank / per_node);
            }
        }
        let (axis, size) = match axis {
            Axis::Tp => ("tp", parallel.tp),
            Axis::Cp => ("cp", parallel.cp),
            Axis::Ep => ("ep", parallel.ep),
            Axis::Dp => ("dp", parallel.dp),
            Axis::Pp => ("pp", parallel.pp),
        };
        Groups {
            axis,
            size,
            nodes: groups.values().map(Vec::len).max().unwrap_or(0),
        }
    };
    axes.into_iter().map(of_axis).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(axes: [usize; 4]) -> Layout {
        let [tp, cp, dp, pp] = axes;
        Layout {
            tp,
            cp,
            pp,
            dp,
            overlap: true,
            ..Layout::one(64)
        }
    }

    /// Megatron's default order: rank = tp + T (cp + C (dp + D pp)).
    #[test]
    fn each_device_of_the_map_has_the_place_of_its_rank() {
        let placement = Placement::new(&layout([2, 2, 3, 4]), 8);
        let mut ranks = Vec::new();
        for (node, devices) in &placement.nodes {
            for of in devices {
                let MeshPlace { tp, cp, dp, pp, .. } = of.place;
                assert_eq!(of.rank, tp + 2 * (cp + 2 * (dp + 3 * pp)));
                assert_eq!(of.rank / 8, *node);
                ranks.push(of.rank);
            }
        }
        assert_eq!(ranks, (0..48).collect::<Vec<_>>());
        // 4 ranks of tp and cp are together; 3 replicas of 4 ranks are on two nodes; stages are 12 ranks apart
        let nodes: Vec<usize> = placement.axes.iter().map(|of| of.nodes).collect();
        assert_eq!(nodes, [1, 1, 1, 2, 4]);
    }

    /// Members of each group, counted on each node that has any; the least of all of them.
    fn fewest(of: &Layout, per_node: usize, group: fn(MeshPlace, usize) -> [usize; 4]) -> usize {
        let parallel = of.parallel(per_node);
        let mut counts: BTreeMap<([usize; 4], usize), usize> = BTreeMap::new();
        for rank in 0..of.devices() {
            let group = group(mesh_place(rank, &parallel), of.ep);
            *counts.entry((group, rank / per_node)).or_default() += 1;
        }
        counts.into_values().min().unwrap()
    }

    #[test]
    fn ranks_that_share_out_experts_are_counted_as_the_mesh_has_them() {
        let group = |of: MeshPlace, ep: usize| [of.tp, of.cp, of.dp / ep, of.pp];
        for (axes, ep, per_node) in [
            ([1, 1, 24, 1], 6, 8),
            ([1, 1, 6, 4], 6, 8),
            ([1, 1, 6, 1], 6, 8),
            ([2, 1, 12, 2], 6, 8),
            ([2, 2, 8, 1], 4, 8),
            ([1, 2, 16, 1], 8, 8),
            ([3, 1, 16, 1], 4, 8),
            ([1, 3, 10, 2], 5, 8),
            ([4, 4, 4, 1], 4, 8),
            ([8, 1, 8, 1], 8, 8),
            ([1, 1, 2, 9], 2, 3),
        ] {
            let of = Layout { ep, ..layout(axes) };
            let wanted = fewest(&of, per_node, group);
            assert_eq!(expert_ranks_of_node(&of, per_node), wanted, "{axes:?} {ep}");
        }
    }

    #[test]
    fn ranks_that_sum_gradients_are_counted_as_the_mesh_has_them() {
        // data-parallel ranks with the same experts, and all of them
        let experts = |of: MeshPlace, _: usize| [of.tp, of.ep, 0, of.pp];
        let others = |of: MeshPlace, _: usize| [of.tp, 0, 0, of.pp];
        for (axes, ep, per_node) in [
            ([1, 2, 4, 1], 2, 2),
            ([1, 2, 8, 1], 2, 8),
            ([1, 2, 16, 1], 8, 8),
            ([1, 8, 4, 1], 2, 8),
            ([1, 16, 4, 1], 2, 8),
            ([2, 2, 8, 2], 4, 8),
            ([8, 2, 4, 1], 2, 8),
            ([4, 1, 8, 1], 4, 8),
        ] {
            let of = Layout { ep, ..layout(axes) };
            let found = [ep, 1].map(|apart| replicas_of_node(&of, per_node, apart));
            let wanted = [
                fewest(&of, per_node, experts),
                fewest(&of, per_node, others),
            ];
            assert_eq!(found, wanted, "{axes:?} {ep}");
        }
        // without experts a node has as many as it has tensor-parallel groups
        for per_node in 1..=9 {
            for (tp, cp) in [(1, 1), (1, 3), (2, 2), (3, 5), (8, 2)] {
                let of = layout([tp, cp, 64, 1]);
                assert_eq!(replicas_of_node(&of, per_node, 1), (per_node / tp).max(1));
            }
        }
    }

    #[test]
    fn of_hundreds_of_nodes_the_map_has_those_of_the_first_replica() {
        let placement = Placement::new(&layout([8, 1, 8, 35]), 8);
        let nodes: Vec<usize> = placement.nodes.iter().map(|(node, _)| *node).collect();
        assert_eq!(nodes, (0..35).map(|stage| 8 * stage).collect::<Vec<_>>());
        let value = placement.to_json();
        assert_eq!(value["nodes"], 280);
        assert_eq!(
            value["map"][1]["devices"][3],
            json!({"rank": 67, "tp": 3, "cp": 0, "ep": 0, "dp": 0, "pp": 1})
        );
        assert_eq!(
            value["axes"][4],
            json!({"axis": "pp", "size": 35, "nodes_of_a_group": 35})
        );
    }

    /// Experts are shared out over neighbours in the data-parallel groups: ep 4 of dp 8 with tp 2 are the 8 devices of a node.
    #[test]
    fn expert_parallel_ranks_are_neighbours() {
        let of = Layout {
            ep: 4,
            ..layout([2, 1, 8, 1])
        };
        let placement = Placement::new(&of, 8);
        let nodes: Vec<usize> = placement.axes.iter().map(|of| of.nodes).collect();
        assert_eq!(nodes, [1, 1, 1, 2, 1]);
        let places = placement.nodes[1]
            .1
            .iter()
            .map(|of| [of.place.dp, of.place.ep]);
        let wanted = [4, 4, 5, 5, 6, 6, 7, 7].map(|dp| [dp, dp - 4]);
        assert_eq!(places.collect::<Vec<_>>(), wanted);
    }
}
