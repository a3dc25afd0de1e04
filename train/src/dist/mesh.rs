//! Process mesh: the grid of parallel axes. A world rank is the rank's coordinate in the axes of `parallel.order`,
//! the first axis fastest; Megatron's default `tp-cp-ep-dp-pp` gives rank = tp + T (cp + C (dp + D pp)). A rank is
//! a thread of one of the run's processes; each has one group per axis and some over the world. Every process
//! creates all groups in the same order and has the members of its own ranks.

use std::sync::Arc;

use kernels::comm::{Collective, Edge, Links, Nested, Traced};

use crate::config::{Axis, ParallelConfig};
use crate::dist::launch::Collectives;
use crate::dist::world::World;

/// Coordinate of one rank in the mesh.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RankCoord {
    pub tp: usize,
    pub cp: usize,
    pub dp: usize,
    /// Expert parallelism: number of adjacent data-parallel ranks that share out the experts.
    pub ep: usize,
    pub pp: usize,
    pub tp_rank: usize,
    pub cp_rank: usize,
    pub dp_rank: usize,
    pub pp_rank: usize,
    pub order: [Axis; 5],
}

impl RankCoord {
    /// The only rank of a world of one.
    #[cfg(test)]
    pub(crate) fn single() -> RankCoord {
        RankCoord::of(0, &ParallelConfig::default())
    }

    pub(crate) fn of(rank: usize, parallel: &ParallelConfig) -> RankCoord {
        let ParallelConfig {
            tp, cp, dp, ep, pp, ..
        } = *parallel;
        let mut place = RankCoord {
            tp,
            cp,
            dp,
            ep: ep.max(1),
            pp,
            tp_rank: 0,
            cp_rank: 0,
            dp_rank: 0,
            pp_rank: 0,
            order: parallel.axes().unwrap_or(Axis::MEGATRON),
        };
        let mut left = rank;
        for axis in place.order.into_iter().filter(|&axis| axis != Axis::Ep) {
            let size = place.size(axis);
            *place.rank_mut(axis) = left % size;
            left /= size;
        }
        place
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

    fn rank_in(&self, axis: Axis) -> usize {
        match axis {
            Axis::Tp => self.tp_rank,
            Axis::Cp => self.cp_rank,
            Axis::Ep => 0,
            Axis::Dp => self.dp_rank,
            Axis::Pp => self.pp_rank,
        }
    }

    fn rank_mut(&mut self, axis: Axis) -> &mut usize {
        match axis {
            Axis::Tp => &mut self.tp_rank,
            Axis::Cp => &mut self.cp_rank,
            // experts share the data-parallel ranks, so their axis is one wide here and skipped
            Axis::Ep | Axis::Dp => &mut self.dp_rank,
            Axis::Pp => &mut self.pp_rank,
        }
    }

    /// World rank.
    pub(crate) fn rank(&self) -> usize {
        let mut stride = 1;
        let mut rank = 0;
        for axis in self.order {
            rank += self.rank_in(axis) * stride;
            stride *= self.size(axis);
        }
        rank
    }

    /// World rank of the coordinate that differs in one axis.
    fn with(&self, axis: Axis, rank: usize) -> usize {
        let mut other = *self;
        *other.rank_mut(axis) = rank;
        other.rank()
    }

    /// Index of this rank's share of the experts.
    pub(crate) fn ep_rank(&self) -> usize {
        self.dp_rank % self.ep
    }

    /// The rank with the same shard and batch part on another stage.
    pub(crate) fn on_stage(&self, pp_rank: usize) -> usize {
        self.with(Axis::Pp, pp_rank)
    }

    pub(crate) fn is_first_stage(&self) -> bool {
        self.pp_rank == 0
    }

    pub(crate) fn is_last_stage(&self) -> bool {
        self.pp_rank + 1 == self.pp
    }

    /// The data-parallel rank's part of `count` items in order.
    pub(crate) fn batch_range(&self, count: usize) -> std::ops::Range<usize> {
        count * self.dp_rank / self.dp..count * (self.dp_rank + 1) / self.dp
    }
}

/// Place of a rank on each parallel axis, each from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MeshPlace {
    /// Tensor parallelism.
    pub tp: usize,
    /// Context parallelism.
    pub cp: usize,
    /// Share of the experts.
    pub ep: usize,
    /// Data parallelism.
    pub dp: usize,
    /// Pipeline stage.
    pub pp: usize,
}

/// The place of world rank `rank`, as a training with these axes numbers its ranks.
pub fn mesh_place(rank: usize, parallel: &ParallelConfig) -> MeshPlace {
    let of = RankCoord::of(rank, parallel);
    MeshPlace {
        tp: of.tp_rank,
        cp: of.cp_rank,
        ep: of.ep_rank(),
        dp: of.dp_rank,
        pp: of.pp_rank,
    }
}

/// One rank's process groups.
pub(crate) struct Groups {
    pub place: RankCoord,
    /// Checkpoints and scalars.
    pub world: Box<dyn Collective>,
    /// Activations to the next stage.
    pub ahead: Box<dyn Collective>,
    /// Gradients to the previous stage.
    pub back: Box<dyn Collective>,
    /// The ways of both between GPUs by NCCL; None: by the groups.
    pub links: Option<StageLinks>,
    pub tp: Arc<dyn Collective>,
    pub cp: Arc<dyn Collective>,
    /// Weights, on the rank's own thread.
    pub dp: Arc<dyn Collective>,
    /// Ranks with the other experts.
    pub ep: Arc<dyn Collective>,
    /// Like `dp`, of ranks with the same experts.
    pub expert_dp: Arc<dyn Collective>,
    /// Gradients, which another thread may reduce while the rank continues.
    pub sums: Arc<dyn Collective>,
    /// Like `expert_dp`, for that thread.
    pub expert_sums: Arc<dyn Collective>,
    /// Like `cp`, for that thread.
    pub cp_sums: Arc<dyn Collective>,
    /// Messages about waits for GPUs; taken by `dist/gpu_groups.rs`.
    pub control: Option<Box<dyn Collective>>,
}

/// A rank's links to its counterparts on other stages by NCCL.
pub(crate) struct StageLinks {
    /// Activations to the next stage.
    pub ahead: Links,
    /// Gradients to the previous stage.
    pub back: Links,
    /// Gradients of tensors that stages share.
    pub shared: Links,
}

/// Edges between stages in the whole world, of all ranks.
#[derive(Default)]
pub(crate) struct StageEdges {
    pub ahead: Vec<Edge>,
    pub back: Vec<Edge>,
    pub shared: Vec<Edge>,
}

impl StageEdges {
    /// `shared` are the pairs of stages, the lower one first, that share a tensor.
    pub(crate) fn of(parallel: &ParallelConfig, shared: &[[usize; 2]]) -> StageEdges {
        let mut edges = StageEdges::default();
        if parallel.pp == 1 {
            return edges;
        }
        for rank in 0..parallel.world() {
            let place = RankCoord::of(rank, parallel);
            // virtual stages go round
            if !place.is_last_stage() || parallel.virtual_stages > 1 {
                let next = place.on_stage((place.pp_rank + 1) % place.pp);
                edges.ahead.push(Edge {
                    from: rank,
                    to: next,
                });
                edges.back.push(Edge {
                    from: next,
                    to: rank,
                });
            }
            let pairs = shared.iter().filter(|pair| pair[0] == place.pp_rank);
            edges.shared.extend(pairs.map(|pair| Edge {
                from: rank,
                to: place.on_stage(pair[1]),
            }));
        }
        edges
    }
}

/// Membership of the groups, by world rank.
struct Wiring<'a> {
    parallel: &'a ParallelConfig,
    world: &'a World,
}

/// A connection for each rank of this process, in order.
type Connections = std::vec::IntoIter<Box<dyn Collective>>;

impl Wiring<'_> {
    fn connect(&self, name: &'static str, lists: &[Vec<usize>]) -> Connections {
        let world = self.parallel.world();
        let comms = self.world.connect(name, (lists, world)).into_iter();
        // a group of one waits for no other
        let is_staged = self.world.devices().collectives() == Collectives::Host;
        let traced = comms.map(|comm| match comm.size() {
            1 => comm,
            _ if is_staged => Box::new(Traced::staged(name, comm)),
            _ => Box::new(Traced::new(name, comm)) as Box<dyn Collective>,
        });
        traced.collect::<Vec<_>>().into_iter()
    }

    fn all(&self, name: &'static str) -> Connections {
        self.connect(name, &[(0..self.parallel.world()).collect()])
    }

    /// Groups of ranks that differ in `axis` alone.
    fn along(&self, name: &'static str, axis: Axis) -> Connections {
        let places = self.places().filter(|place| place.rank_in(axis) == 0);
        let members =
            |place: RankCoord| (0..place.size(axis)).map(|i| place.with(axis, i)).collect();
        self.connect(name, &places.map(members).collect::<Vec<_>>())
    }

    /// Groups of `size` data-parallel ranks with stride `step`.
    fn among_data(&self, name: &'static str, size: usize, step: usize) -> Connections {
        let is_first = |place: &RankCoord| (place.dp_rank / step).is_multiple_of(size);
        let member = |place: &RankCoord, i: usize| place.with(Axis::Dp, place.dp_rank + i * step);
        let members = |place: RankCoord| (0..size).map(|i| member(&place, i)).collect();
        let lists: Vec<Vec<usize>> = self.places().filter(is_first).map(members).collect();
        self.connect(name, &lists)
    }

    /// Data-parallel groups; hierarchical: members on one node are summed there first.
    fn data(&self, name: &'static str) -> Connections {
        let flat = self.along(name, Axis::Dp);
        let (together, dp) = (self.parallel.dp_ranks_on_a_node(), self.parallel.dp);
        if together <= 1 || together >= dp {
            return flat;
        }
        let inner = self.among_data(name, together, 1);
        let outer = self.among_data(name, dp / together, together);
        let nested = inner.zip(outer).zip(flat).map(|((inner, outer), flat)| {
            Box::new(Nested::new(inner, outer, flat)) as Box<dyn Collective>
        });
        nested.collect::<Vec<_>>().into_iter()
    }

    fn places(&self) -> impl Iterator<Item = RankCoord> {
        (0..self.parallel.world()).map(|rank| RankCoord::of(rank, self.parallel))
    }
}

impl Groups {
    /// The connections of every rank, all in this process, by world rank.
    pub(crate) fn all(parallel: &ParallelConfig) -> Vec<Groups> {
        Groups::here(parallel, &World::alone())
    }

    /// The connections of the ranks of this process, by world rank.
    pub(crate) fn here(parallel: &ParallelConfig, world: &World) -> Vec<Groups> {
        let wiring = Wiring { parallel, world };
        let (ep, rest) = (parallel.ep, parallel.dp / parallel.ep);
        let mut worlds = wiring.all("world");
        let mut aheads = wiring.all("pipeline");
        let mut backs = wiring.all("pipeline");
        let mut tps = wiring.along("tensor", Axis::Tp);
        let mut cps = wiring.along("context", Axis::Cp);
        let mut cp_sums = wiring.along("context", Axis::Cp);
        let mut eps = wiring.among_data("expert", ep, 1);
        let mut expert_dps = wiring.among_data("expert data", rest, ep);
        let mut expert_sums = wiring.among_data("expert data", rest, ep);
        let mut dps = wiring.data("data");
        let mut sums = wiring.data("data");
        let mut controls = wiring.all("devices");
        let one = |groups: &mut Connections| groups.next().expect("a connection for each rank");
        let ranks = world.ranks(parallel.world());
        ranks
            .map(|rank| Groups {
                place: RankCoord::of(rank, parallel),
                world: one(&mut worlds),
                ahead: one(&mut aheads),
                back: one(&mut backs),
                links: None,
                tp: Arc::from(one(&mut tps)),
                cp: Arc::from(one(&mut cps)),
                ep: Arc::from(one(&mut eps)),
                expert_dp: Arc::from(one(&mut expert_dps)),
                expert_sums: Arc::from(one(&mut expert_sums)),
                dp: Arc::from(one(&mut dps)),
                sums: Arc::from(one(&mut sums)),
                cp_sums: Arc::from(one(&mut cp_sums)),
                control: Some(one(&mut controls)),
            })
            .collect()
    }

    /// A world of one rank.
    pub(crate) fn single() -> Groups {
        Groups::all(&ParallelConfig::default()).remove(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_and_places_are_inverse_and_groups_have_the_right_members() {
        for order in ["tp-cp-ep-dp-pp", "pp-dp-tp-cp-ep", "tp-pp-dp-cp-ep"] {
            let parallel = ParallelConfig {
                tp: 2,
                pp: 3,
                dp: 4,
                cp: 2,
                ep: 2,
                order: order.into(),
                ..Default::default()
            };
            for (rank, groups) in Groups::all(&parallel).iter().enumerate() {
                let place = groups.place;
                assert_eq!(place.rank(), rank, "{order}");
                assert_eq!((groups.world.rank(), groups.world.size()), (rank, 48));
                assert_eq!((groups.tp.rank(), groups.tp.size()), (place.tp_rank, 2));
                assert_eq!((groups.cp.rank(), groups.cp.size()), (place.cp_rank, 2));
                assert_eq!((groups.dp.rank(), groups.dp.size()), (place.dp_rank, 4));
                assert_eq!((groups.ep.rank(), groups.ep.size()), (place.dp_rank % 2, 2));
                let rest = &groups.expert_dp;
                assert_eq!((rest.rank(), rest.size()), (place.dp_rank / 2, 2));
            }
        }
    }

    /// The rank of Megatron's `RankGenerator` for `tp-cp-ep-dp-pp` (megatron-core 0.16.1).
    #[test]
    fn the_default_order_is_megatrons() {
        let parallel = ParallelConfig {
            tp: 2,
            cp: 3,
            dp: 4,
            pp: 5,
            ..Default::default()
        };
        for rank in 0..parallel.world() {
            let p = RankCoord::of(rank, &parallel);
            let megatron = p.tp_rank + 2 * (p.cp_rank + 3 * (p.dp_rank + 4 * p.pp_rank));
            assert_eq!(megatron, rank);
        }
    }

    #[test]
    fn batch_ranges_cover_everything_once_in_order() {
        let parallel = ParallelConfig {
            dp: 3,
            ..Default::default()
        };
        let parts: Vec<usize> = (0..3)
            .flat_map(|rank| RankCoord::of(rank, &parallel).batch_range(10))
            .collect();
        assert_eq!(parts, (0..10).collect::<Vec<_>>());
    }
}
