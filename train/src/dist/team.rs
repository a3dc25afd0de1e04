//! Ranks of this process that make the same calls in the same order, each on its own threads: the ranks of
//! tensor-parallel inference.

use std::sync::Mutex;

use rayon::ThreadPool;

use crate::dist::threads;
use crate::dist::world::is_consequence;
use crate::error::{Error, Result};
use crate::panics;

/// One state per rank.
pub(crate) struct Team<T> {
    members: Vec<Member<T>>,
    /// The first failure of a team of several: its ranks may differ from then on.
    failure: Option<String>,
}

struct Member<T> {
    threads: ThreadPool,
    /// `None` after a failure: what the rank held is dropped, so that no other rank waits for it.
    state: Option<T>,
}

impl<T: Send> Team<T> {
    /// A rank for each of `states`, in order.
    ///
    /// # Errors
    /// `Threads` if the system starts no more.
    pub(crate) fn new(states: Vec<T>) -> Result<Team<T>> {
        let ranks = states.len();
        let members = states.into_iter().enumerate().map(|(rank, state)| {
            Ok(Member {
                threads: threads::of_rank(rank, ranks)
                    .map_err(|source| Error::Threads { rank, source })?,
                state: Some(state),
            })
        });
        Ok(Team {
            members: members.collect::<Result<_>>()?,
            failure: None,
        })
    }

    /// Number of ranks.
    pub(crate) fn size(&self) -> usize {
        self.members.len()
    }

    /// The first rank's state; `None` after a failure of a team of several.
    pub(crate) fn first(&self) -> Option<&T> {
        self.members.first()?.state.as_ref()
    }

    /// The first rank's state alone; `None` as `first`.
    pub(crate) fn into_first(self) -> Option<T> {
        self.members.into_iter().next()?.state
    }

    /// Makes the same call on all ranks at once; returns the first rank's result. After an error of a team of several
    /// every call fails.
    ///
    /// # Errors
    /// The call's own, of the rank that failed first.
    pub(crate) fn all<R: Send>(&mut self, run: impl Fn(&mut T) -> Result<R> + Sync) -> Result<R> {
        if let [only] = self.members.as_mut_slice() {
            let state = only.state.as_mut().expect("a team of one keeps its state");
            return threads::work(&only.threads, || run(state));
        }
        if let Some(reason) = &self.failure {
            return Err(Error::Peer {
                who: "a tensor-parallel rank".into(),
                reason: format!("failed before: {reason}"),
            });
        }
        let call = |rank: usize, state: &mut Option<T>| {
            let Some(own) = state else {
                unreachable!("no rank has failed")
            };
            let done = panics::caught(|| run(own));
            let done = done.unwrap_or_else(|message| Err(Error::Panicked { rank, message }));
            if done.is_err() {
                *state = None;
            }
            done
        };
        let results = spread(&mut self.members, &call);
        let result = first_cause(results);
        if let Err(error) = &result {
            self.failure = Some(error.with_causes());
            (self.members.iter_mut()).for_each(|member| member.state = None);
        }
        result
    }

    /// The same ranks with what `make` turns their states into, all at once.
    ///
    /// # Errors
    /// Those of `make`, of the rank that failed first.
    pub(crate) fn map<U: Send>(self, make: impl Fn(T) -> Result<U> + Sync) -> Result<Team<U>> {
        let both = self.members.into_iter().map(|member| Member {
            threads: member.threads,
            state: Some((member.state, None)),
        });
        let mut team = Team {
            members: both.collect(),
            failure: self.failure,
        };
        team.all(|(old, new): &mut (Option<T>, Option<U>)| {
            *new = old.take().map(&make).transpose()?;
            Ok(())
        })?;
        let members = team.members.into_iter().map(|member| Member {
            threads: member.threads,
            state: member.state.and_then(|(_, new)| new),
        });
        Ok(Team {
            members: members.collect(),
            failure: None,
        })
    }

    /// Gives each rank the state of the same rank of another team of this size.
    pub(crate) fn join<U>(&mut self, other: Team<U>, mut give: impl FnMut(&mut T, U)) {
        for (member, other) in self.members.iter_mut().zip(other.members) {
            if let (Some(state), Some(other)) = (&mut member.state, other.state) {
                give(state, other);
            }
        }
    }
}

/// Runs each member on its threads, all at once; results by rank.
fn spread<T: Send, R: Send>(
    members: &mut [Member<T>],
    run: &(impl Fn(usize, &mut Option<T>) -> R + Sync),
) -> Vec<R> {
    let results: Vec<Mutex<Option<R>>> = members.iter().map(|_| Mutex::new(None)).collect();
    nest((members, 0), &results, run);
    let results = results.into_iter().map(|result| {
        let result = result.into_inner().ok().flatten();
        result.expect("every rank's call has ended")
    });
    results.collect()
}

/// Starts the first of these members, then the others inside of its scope.
fn nest<T: Send, R: Send>(
    (members, rank): (&mut [Member<T>], usize),
    results: &[Mutex<Option<R>>],
    run: &(impl Fn(usize, &mut Option<T>) -> R + Sync),
) {
    let ([first, others @ ..], [result, rest @ ..]) = (members, results) else {
        return;
    };
    let Member { threads, state } = first;
    let threads = &*threads;
    threads.in_place_scope(|scope| {
        scope.spawn(|_| {
            let done = threads::work(threads, || run(rank, state));
            if let Ok(mut result) = result.lock() {
                *result = Some(done);
            }
        });
        nest((others, rank + 1), rest, run);
    });
}

/// The first rank's result, or the error that is not about a lost peer.
fn first_cause<R>(results: Vec<Result<R>>) -> Result<R> {
    let mut first = None;
    let mut failure: Option<Error> = None;
    for result in results {
        match result {
            Ok(result) => first = first.or(Some(result)),
            Err(error) if failure.as_ref().is_none_or(is_consequence) => failure = Some(error),
            Err(_) => {}
        }
    }
    match failure {
        Some(error) => Err(error),
        None => Ok(first.expect("a team has a rank")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::ParallelConfig;
    use crate::dist::mesh::Groups;
    use crate::error::OnRank;

    fn team(ranks: usize) -> Team<Groups> {
        let parallel = ParallelConfig {
            tp: ranks,
            ..Default::default()
        };
        Team::new(Groups::all(&parallel)).unwrap()
    }

    #[test]
    fn all_ranks_run_at_once_and_the_first_ones_result_counts() {
        for ranks in [1, 2, 5] {
            let mut team = team(ranks);
            for _ in 0..3 {
                let sum = team.all(|groups| {
                    // waits for all ranks
                    let all = groups.tp.all_gather_f64(&[groups.tp.rank() as f64]);
                    Ok((groups.tp.rank(), all.on_rank(0, "gather")?.concat()))
                });
                let wanted = (0..ranks).map(|rank| rank as f64).collect();
                assert_eq!(sum.unwrap(), (0, wanted));
            }
        }
    }

    #[test]
    fn a_rank_that_fails_ends_the_wait_of_the_others_and_all_later_calls() {
        for panics in [false, true] {
            let mut team = team(3);
            let failed = team.all(|groups| {
                let rank = groups.tp.rank();
                assert!(!(panics && rank == 1), "by order");
                if rank == 1 {
                    return Err(Error::NoSamples { wanted: 7 });
                }
                groups.tp.all_gather_f64(&[0.0]).on_rank(rank, "gather")?;
                Ok(())
            });
            let text = failed.unwrap_err().with_causes();
            let reason = if panics {
                "rank 1 panicked: by order"
            } else {
                "7 are requested"
            };
            assert!(text.contains(reason), "{text}");
            let later = team.all(|_| Ok(())).unwrap_err().with_causes();
            assert!(
                later.contains("failed before") && later.contains(reason),
                "{later}"
            );
            assert!(team.first().is_none());
        }
    }
}
