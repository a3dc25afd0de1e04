//! Placement of a layout: the coordinates of each device in the mesh of parallel axes, and the nodes that a group of each axis
//! touches.

use crate::plan::cluster::{Cluster, Level};
use crate::plan::layout::Layout;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::ops::Range;
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
    /// Most groups of each level of the network that it touches.
    of_levels: Vec<usize>,
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
    /// Levels of the network.
    levels: Vec<Level>,
    /// Nodes of the map by number, each with its devices.
    nodes: Vec<(usize, Vec<Device>)>,
}

impl Placement {
    /// The placement on the nodes of a cluster.
    pub(crate) fn new(layout: &Layout, cluster: &Cluster) -> Placement {
        let per_node = cluster.devices_per_node;
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
            axes: axes(&parallel, &places, cluster),
            levels: cluster.levels.clone(),
            nodes: (0..count)
                .map(of_node)
                .filter(|(_, devices)| count <= ALL_NODES || has_replica(devices))
                .collect(),
        }
    }

    /// Axes, and the map of nodes.
    pub(crate) fn to_json(&self) -> Value {
        let axes: Vec<Value> = (self.axes.iter())
            .map(|of| {
                json!({
                    "axis": of.axis, "size": of.size, "nodes_of_a_group": of.nodes,
                    "level_groups_of_a_group": of.of_levels, "connected_by": self.connection(of),
                })
            })
            .collect();
        let count = self.ranks.div_ceil(self.per_node);
        let level = |at: usize, of: &Level| {
            let crossing = self.axes.iter().filter(|axis| axis.of_levels[at] > 1);
            json!({
                "name": of.name, "nodes": of.nodes, "oversubscription": of.oversubscription, "groups": count.div_ceil(of.nodes),
                "crossed_by": crossing.map(|axis| axis.axis).collect::<Vec<_>>(),
            })
        };
        let levels = self.levels.iter().enumerate();
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
            "order": self.order, "devices_per_node": self.per_node, "nodes": count, "axes": axes,
            "levels": levels.map(|(at, of)| level(at, of)).collect::<Vec<_>>(), "map": nodes,
        })
    }

    /// The slowest part of the network that a group needs; none for a single rank.
    fn connection(&self, of: &Groups) -> Option<String> {
        let crossed = of.of_levels.iter().rposition(|groups| *groups > 1);
        match (of.size, of.nodes, crossed) {
            (0 | 1, _, _) => None,
            (_, 0 | 1, _) => Some("links of a node".into()),
            (_, _, None) => Some("network".into()),
            (_, _, Some(at)) => Some(format!("network above {}", self.levels[at].name)),
        }
    }

    /// The axes whose groups cross each level, in words; none without levels.
    pub(crate) fn levels_in_words(&self) -> Vec<String> {
        let levels = self.levels.iter().enumerate().map(|(at, level)| {
            let crossing = self.axes.iter().filter(|of| of.of_levels[at] > 1);
            let crossing: Vec<&str> = crossing.map(|of| of.axis).collect();
            format!(
                "{} ({} nodes, oversubscribed {}:1): {}",
                level.name,
                level.nodes,
                level.oversubscription,
                match crossing.is_empty() {
                    true => "no group leaves it".into(),
                    false => format!("groups of {} leave it", crossing.join(", ")),
                }
            )
        });
        levels.collect()
    }
}

/// Fewest ranks that a group of `per_node` devices, a node or the nodes of a level, has of those that share out the experts, among the
/// groups with any. Such ranks are a data-parallel stride apart: those between them have the same experts.
pub(super) fn expert_ranks_of_node(layout: &Layout, per_node: usize) -> usize {
    let apart = layout.data_stride();
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
    let period = layout.data_stride() / layout.tp * apart;
    let of_rest = (places % period).saturating_sub(period - layout.cp);
    (places / period * layout.cp + of_rest).max(layout.cp.min(places))
}

/// Most rings that leave one of the groups of `devices` neighbouring devices: of the ranks that sum gradients, all context-parallel ranks of
/// data-parallel ranks that are `apart` from each other, one after the other. A ring that leaves a group comes back to it, so that its
/// traffic passes the group's links once in each direction.
pub(super) fn rings_across(layout: &Layout, devices: usize, apart: usize) -> usize {
    let units = Units::of_data(layout, apart);
    units.rings_across(layout, devices)
}

/// The same of the rings in which keys and values go around the context-parallel ranks.
pub(super) fn key_rings_across(layout: &Layout, devices: usize) -> usize {
    let units = Units {
        of_block: 1,
        apart: 1,
    };
    units.rings_across(layout, devices)
}

/// Blocks of ranks whose rings do not touch those of others. A unit has the context-parallel ranks of one data-parallel and one pipeline
/// rank, with the tensor-parallel ranks of each.
struct Units {
    /// Units of a block.
    of_block: usize,
    /// Units from one of a ring to the next.
    apart: usize,
}

impl Units {
    fn of_data(layout: &Layout, apart: usize) -> Units {
        match layout.is_data_outermost {
            true => Units {
                of_block: layout.dp * layout.pp,
                apart: layout.pp * apart,
            },
            false => Units {
                of_block: layout.dp,
                apart,
            },
        }
    }

    fn rings_across(&self, layout: &Layout, devices: usize) -> usize {
        let unit = layout.tp * layout.cp;
        let block = unit * self.of_block;
        if devices.is_multiple_of(block) || layout.devices() <= devices {
            return 0;
        }
        let groups = layout.devices().div_ceil(devices);
        // both repeat after their least common multiple
        let period = (1..=groups).find(|count| (count * devices).is_multiple_of(block));
        let of_group = |group: usize| {
            let end = ((group + 1) * devices).min(layout.devices());
            let blocks = group * devices / block..end.div_ceil(block);
            let in_block = |at: usize| {
                let first = (group * devices).max(at * block) - at * block;
                let last = end.min((at + 1) * block) - at * block;
                self.rings_of_part(layout, first..last)
            };
            blocks.map(in_block).sum()
        };
        (0..period.unwrap_or(groups))
            .map(of_group)
            .max()
            .unwrap_or(0)
    }

    /// Rings of a block with ranks among `part` of it, and others beside it.
    fn rings_of_part(&self, layout: &Layout, part: Range<usize>) -> usize {
        let unit = layout.tp * layout.cp;
        if part.len() == unit * self.of_block {
            return 0;
        }
        let touched = part.start / unit..part.end.div_ceil(unit);
        let whole = part.start.div_ceil(unit)..part.end / unit;
        let of_class = |units: &Range<usize>, class: usize| {
            let up_to = |end: usize| (end + self.apart - 1 - class) / self.apart;
            up_to(units.end).saturating_sub(up_to(units.start))
        };
        let all = self.of_block / self.apart;
        let is_across =
            |class: &usize| of_class(&touched, *class) > 0 && of_class(&whole, *class) < all;
        // a part is of whole tensor-parallel groups, but where those do not divide a node
        let rings = (0..self.apart).filter(is_across).count() * layout.tp;
        rings.min(part.len())
    }
}

/// Most ranks of a group of `devices` neighbouring devices whose next pipeline stage is outside of it.
pub(super) fn stages_across(layout: &Layout, devices: usize) -> usize {
    let stride = layout.stage_stride();
    let block = stride * layout.pp;
    let crossing = |end: usize| {
        // of the block in which the group ends
        let start = end / block * block;
        let first = start.max(end.saturating_sub(stride)).max(end - devices);
        let last = end.min(start + block - stride);
        last.saturating_sub(first)
    };
    let ends = (1..).map(|group| group * devices);
    let ends = ends.take_while(|end| *end < layout.devices());
    ends.map(crossing).max().unwrap_or(0)
}

/// The groups of each axis: ranks that have the same place on all others.
fn axes(parallel: &ParallelConfig, places: &[MeshPlace], cluster: &Cluster) -> Vec<Groups> {
    let per_node = cluster.devices_per_node;
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
        let touched = |nodes: usize| {
            let of_group = |found: &Vec<usize>| {
                let mut groups: Vec<usize> = found.iter().map(|node| node / nodes).collect();
                groups.dedup();
                groups.len()
            };
            groups.values().map(of_group).max().unwrap_or(0)
        };
        Groups {
            axis,
            size,
            nodes: touched(1),
            of_levels: cluster.levels.iter().map(|of| touched(of.nodes)).collect(),
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

    /// Nodes of 8 devices.
    fn cluster() -> Cluster {
        Cluster::load("dgx-a100").unwrap()
    }

    /// Megatron's default order: rank = tp + T (cp + C (dp + D pp)).
    #[test]
    fn each_device_of_the_map_has_the_place_of_its_rank() {
        let placement = Placement::new(&layout([2, 2, 3, 4]), &cluster());
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
        let placement = Placement::new(&layout([8, 1, 8, 35]), &cluster());
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
            json!({
                "axis": "pp", "size": 35, "nodes_of_a_group": 35, "level_groups_of_a_group": [], "connected_by": "network",
            })
        );
    }

    /// Experts are shared out over neighbours in the data-parallel groups: ep 4 of dp 8 with tp 2 are the 8 devices of a node.
    #[test]
    fn expert_parallel_ranks_are_neighbours() {
        let of = Layout {
            ep: 4,
            ..layout([2, 1, 8, 1])
        };
        let placement = Placement::new(&of, &cluster());
        let nodes: Vec<usize> = placement.axes.iter().map(|of| of.nodes).collect();
        assert_eq!(nodes, [1, 1, 1, 2, 1]);
        let places = placement.nodes[1]
            .1
            .iter()
            .map(|of| [of.place.dp, of.place.ep]);
        let wanted = [4, 4, 5, 5, 6, 6, 7, 7].map(|dp| [dp, dp - 4]);
        assert_eq!(places.collect::<Vec<_>>(), wanted);
    }

    /// Ranks by what they have in common, each list in their order.
    fn groups<K: Ord>(of: &Layout, key: impl Fn(MeshPlace) -> K) -> Vec<Vec<usize>> {
        let parallel = of.parallel(1);
        let mut groups: BTreeMap<K, Vec<usize>> = BTreeMap::new();
        for rank in 0..of.devices() {
            let key = key(mesh_place(rank, &parallel));
            groups.entry(key).or_default().push(rank);
        }
        groups.into_values().collect()
    }

    /// Layouts of both orders, whose blocks divide groups of devices, fill several, or overlap.
    fn layouts() -> Vec<Layout> {
        let mut found = Vec::new();
        for axes in [
            [1, 1, 24, 1],
            [2, 1, 8, 4],
            [2, 2, 6, 2],
            [4, 1, 2, 6],
            [8, 1, 4, 3],
            [2, 3, 4, 4],
            [1, 2, 12, 4],
            [8, 2, 2, 2],
        ] {
            for is_data_outermost in [false, true] {
                found.push(Layout {
                    is_data_outermost,
                    ..layout(axes)
                });
            }
        }
        found
    }

    /// Each ring by itself: those with ranks inside and outside of a group of devices.
    #[test]
    fn rings_that_leave_a_group_of_devices_are_counted_as_the_mesh_has_them() {
        let mut count = 0;
        for of in layouts() {
            for devices in [8, 16, 32, 48] {
                let across = |rings: &[Vec<usize>]| -> usize {
                    let groups = 0..of.devices().div_ceil(devices);
                    let leaves = |group: usize| {
                        let is_inside = |rank: &usize| rank / devices == group;
                        let leaves = |ring: &&Vec<usize>| {
                            ring.iter().any(is_inside) && !ring.iter().all(is_inside)
                        };
                        rings.iter().filter(leaves).count()
                    };
                    groups.map(leaves).max().unwrap()
                };
                for ep in [1, 2] {
                    let rings = groups(&of, |place| (place.tp, place.pp, place.dp % ep));
                    let wanted = across(&rings);
                    assert_eq!(
                        rings_across(&of, devices, ep),
                        wanted,
                        "{of:?} {devices} {ep}"
                    );
                    count += usize::from(wanted > 0);
                }
                let rings = groups(&of, |place| (place.tp, place.pp, place.dp));
                assert_eq!(
                    key_rings_across(&of, devices),
                    across(&rings),
                    "{of:?} {devices}"
                );
                let next = |rank: usize| {
                    let place = mesh_place(rank, &of.parallel(1));
                    let is_last = place.pp + 1 == of.pp;
                    (!is_last).then(|| rank + of.stage_stride())
                };
                let leaving = |group: usize| {
                    let ranks = group * devices..((group + 1) * devices).min(of.devices());
                    let to = ranks.filter_map(next);
                    to.filter(|rank| rank / devices != group).count()
                };
                let wanted = (0..of.devices().div_ceil(devices)).map(leaving).max();
                assert_eq!(
                    stages_across(&of, devices),
                    wanted.unwrap(),
                    "{of:?} {devices}"
                );
            }
        }
        assert!(count > 20);
    }

    /// The next stage of each rank is a stride away, and so is its next data-parallel rank.
    #[test]
    fn strides_are_those_of_the_mesh() {
        for of in layouts() {
            let parallel = of.parallel(1);
            assert!(parallel.world() == of.devices() && parallel.order == of.order());
            for rank in 0..of.devices() {
                let place = mesh_place(rank, &parallel);
                for (axis, stride) in [
                    (place.pp + 1 < of.pp, of.stage_stride()),
                    (place.dp + 1 < of.dp, of.data_stride()),
                ] {
                    if !axis {
                        continue;
                    }
                    let next = mesh_place(rank + stride, &parallel);
                    let moved = (next.pp - place.pp) + (next.dp - place.dp);
                    assert!(
                        moved == 1 && (next.tp, next.cp) == (place.tp, place.cp),
                        "{of:?}"
                    );
                }
            }
        }
    }

    /// Of 8 stages of 4 replicas on nodes of 8 with tp 8: leaves of two nodes hold half of the replicas of a stage, spines two stages.
    #[test]
    fn the_map_names_the_levels_that_groups_cross() {
        let level = |name: &str, nodes, oversubscription| Level {
            name: name.into(),
            nodes,
            oversubscription,
        };
        let cluster = Cluster {
            levels: vec![level("leaf", 2, 1.0), level("spine", 8, 3.0)],
            ..cluster()
        };
        let of = layout([8, 1, 4, 8]);
        let placement = Placement::new(&of, &cluster);
        let value = placement.to_json();
        let spine = json!({
            "name": "spine", "nodes": 8, "oversubscription": 3.0, "groups": 4, "crossed_by": ["pp"],
        });
        assert_eq!(value["levels"][1], spine);
        assert_eq!(value["levels"][0]["crossed_by"], json!(["dp", "pp"]));
        let connected = |at: usize| value["axes"][at]["connected_by"].clone();
        assert_eq!(
            [connected(0), connected(1)],
            ["links of a node".into(), Value::Null]
        );
        assert_eq!(connected(3), "network above leaf");
        assert_eq!(connected(4), "network above spine");
        assert_eq!(value["axes"][3]["level_groups_of_a_group"], json!([2, 1]));
        let words = placement.levels_in_words();
        assert_eq!(
            words[1],
            "spine (8 nodes, oversubscribed 3:1): groups of pp leave it"
        );
        // the other order: pipelines of 8 nodes, whose replicas are a spine apart
        let other = Layout {
            is_data_outermost: true,
            ..of
        };
        let value = Placement::new(&other, &cluster).to_json();
        assert_eq!(value["order"], "tp-cp-pp-ep-dp");
        assert_eq!(value["levels"][1]["crossed_by"], json!(["dp"]));
    }
}
