//! Ranks on a grid: rank = tp_rank + tp * (dp_rank + dp * pp_rank), Megatron's order, tensor
//! parallel innermost. A rank is a thread; each has one group per axis and one over the world.

use kernels::comm::Collective;
use kernels::comm::local;

use crate::config::ParallelConfig;

/// Where one rank stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub tp: usize,
    pub dp: usize,
    pub pp: usize,
    pub tp_rank: usize,
    pub dp_rank: usize,
    pub pp_rank: usize,
}

impl Place {
    /// The only rank of a world of one.
    #[cfg(test)]
    pub(crate) fn single() -> Place {
        Place {
            tp: 1,
            dp: 1,
            pp: 1,
            tp_rank: 0,
            dp_rank: 0,
            pp_rank: 0,
        }
    }

    pub(crate) fn of(rank: usize, parallel: &ParallelConfig) -> Place {
        let ParallelConfig { tp, pp, dp } = *parallel;
        let (tp_rank, dp_rank, pp_rank) = (rank % tp, rank / tp % dp, rank / (tp * dp));
        Place {
            tp,
            dp,
            pp,
            tp_rank,
            dp_rank,
            pp_rank,
        }
    }

    pub(crate) fn rank(&self) -> usize {
        self.rank_of(self.tp_rank, self.dp_rank, self.pp_rank)
    }

    /// World rank of another place of the same grid.
    pub(crate) fn rank_of(&self, tp_rank: usize, dp_rank: usize, pp_rank: usize) -> usize {
        tp_rank + self.tp * (dp_rank + self.dp * pp_rank)
    }

    /// The rank with the same shard and batch part on another stage.
    pub(crate) fn on_stage(&self, pp_rank: usize) -> usize {
        self.rank_of(self.tp_rank, self.dp_rank, pp_rank)
    }

    pub(crate) fn is_first_stage(&self) -> bool {
        self.pp_rank == 0
    }

    pub(crate) fn is_last_stage(&self) -> bool {
        self.pp_rank + 1 == self.pp
    }

    /// The data-parallel rank's part of `count` things in order.
    pub(crate) fn batch_range(&self, count: usize) -> std::ops::Range<usize> {
        count * self.dp_rank / self.dp..count * (self.dp_rank + 1) / self.dp
    }
}

/// One rank's connections.
pub(crate) struct Groups {
    pub place: Place,
    pub world: Box<dyn Collective>,
    pub tp: Box<dyn Collective>,
    pub dp: Box<dyn Collective>,
}

impl Groups {
    /// The connections of every rank, by world rank.
    pub(crate) fn all(parallel: &ParallelConfig) -> Vec<Groups> {
        let world = parallel.world();
        let mut slots: Vec<[Option<Box<dyn Collective>>; 2]> =
            (0..world).map(|_| [None, None]).collect();
        for rank in 0..world {
            let place = Place::of(rank, parallel);
            if place.tp_rank == 0 {
                for (i, comm) in local::group(place.tp).into_iter().enumerate() {
                    slots[place.rank_of(i, place.dp_rank, place.pp_rank)][0] = Some(Box::new(comm));
                }
            }
            if place.dp_rank == 0 {
                for (i, comm) in local::group(place.dp).into_iter().enumerate() {
                    slots[place.rank_of(place.tp_rank, i, place.pp_rank)][1] = Some(Box::new(comm));
                }
            }
        }
        let joined = local::group(world).into_iter().zip(slots).enumerate();
        joined
            .map(|(rank, (comm, [tp, dp]))| Groups {
                place: Place::of(rank, parallel),
                world: Box::new(comm),
                tp: tp.expect("rank 0 of each tp group gave every member its connection"),
                dp: dp.expect("rank 0 of each dp group gave every member its connection"),
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
        let parallel = ParallelConfig {
            tp: 2,
            pp: 3,
            dp: 4,
        };
        for (rank, groups) in Groups::all(&parallel).iter().enumerate() {
            let place = groups.place;
            assert_eq!(place.rank(), rank);
            assert_eq!((groups.world.rank(), groups.world.size()), (rank, 24));
            assert_eq!((groups.tp.rank(), groups.tp.size()), (place.tp_rank, 2));
            assert_eq!((groups.dp.rank(), groups.dp.size()), (place.dp_rank, 4));
        }
    }

    #[test]
    fn batch_ranges_cover_everything_once_in_order() {
        let parallel = ParallelConfig {
            tp: 1,
            pp: 1,
            dp: 3,
        };
        let parts: Vec<usize> = (0..3)
            .flat_map(|rank| Place::of(rank, &parallel).batch_range(10))
            .collect();
        assert_eq!(parts, (0..10).collect::<Vec<_>>());
    }
}
