//! Ranks as threads of one process: a lock, a condition variable, one slot per rank and turn.
//!
//! A collective is a turn: each rank puts (op, data) into its slot of the turn and reads all slots once
//! they are filled; the last reader frees the turn. A rank that is dropped (also by a panic) while
//! others wait for its part makes them return `PeerGone`; what it brought before still counts. A wait
//! past its deadline goes on as long as somebody computes who could end it (`watch.rs`).

use super::sum::{SHARED_FROM, largest, tree_sum};
use super::watch::{Overdue, Roster, left};
use super::{Collective, check_cuts, check_parts, check_peer};
use crate::trace::{self, Label, span};
use crate::{Error, Result};
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// Returns the ranks of a group that wait for ever, to be moved to one thread each. Dropping one ends
/// that rank.
pub fn group(size: usize) -> Vec<LocalComm> {
    watched(Roster::unwatched(size))
}

/// As `group`, of ranks that wait until a deadline.
pub fn watched(roster: Roster) -> Vec<LocalComm> {
    let size = roster.members.len();
    let state = State {
        turns: BTreeMap::new(),
        next: vec![0; size],
        mail: BTreeMap::new(),
        gone: vec![false; size],
    };
    let shared = Arc::new(Shared {
        size,
        roster,
        state: Mutex::new(state),
        changed: Condvar::new(),
    });
    (0..size)
        .map(|rank| LocalComm {
            rank,
            shared: Arc::clone(&shared),
        })
        .collect()
}

/// One rank of a group of threads.
pub struct LocalComm {
    rank: usize,
    shared: Arc<Shared>,
}

struct Shared {
    size: usize,
    roster: Roster,
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    turns: BTreeMap<u64, Turn>,
    /// Number of each rank's next turn.
    next: Vec<u64>,
    /// Messages by (from, to).
    mail: BTreeMap<(usize, usize), VecDeque<Vec<f32>>>,
    gone: Vec<bool>,
}

struct Turn {
    slots: Vec<Option<(&'static str, Data)>>,
    reads: usize,
}

impl Turn {
    fn missing(&self) -> Vec<usize> {
        let slots = self.slots.iter().enumerate();
        slots
            .filter(|(_, slot)| slot.is_none())
            .map(|(rank, _)| rank)
            .collect()
    }
}

/// What a rank brings, shared with the readers without a copy under the lock.
#[derive(Clone)]
enum Data {
    F32(Arc<Vec<f32>>),
    F64(Arc<Vec<f64>>),
    /// One for each rank.
    Parts(Arc<Vec<Vec<f32>>>),
}

impl Data {
    fn f32(&self) -> &[f32] {
        match self {
            Data::F32(x) => x,
            _ => unreachable!("ranks of a turn call the same op, which is checked"),
        }
    }

    fn f64(&self) -> &[f64] {
        match self {
            Data::F64(x) => x,
            _ => unreachable!("ranks of a turn call the same op, which is checked"),
        }
    }

    fn part(&self, rank: usize) -> &[f32] {
        match self {
            Data::Parts(parts) => &parts[rank],
            _ => unreachable!("ranks of a turn call the same op, which is checked"),
        }
    }
}

impl LocalComm {
    // A rank that panics inside the lock has not changed the state half way: each change is one step.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.shared
            .state
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a change; None once the deadline is over.
    fn wait<'a>(
        &self,
        state: MutexGuard<'a, State>,
        deadline: Option<Instant>,
    ) -> Option<MutexGuard<'a, State>> {
        let changed = &self.shared.changed;
        let _span = span(|| Label::new(trace::Kind::Wait, "wait"));
        let Some(left) = left(deadline) else {
            return Some(changed.wait(state).unwrap_or_else(PoisonError::into_inner));
        };
        if left.is_zero() {
            return None;
        }
        let waited = changed.wait_timeout(state, left);
        Some(waited.unwrap_or_else(PoisonError::into_inner).0)
    }

    /// The next deadline of a wait past its last one, unless nobody is left who could end it.
    fn later<'a>(
        &'a self,
        op: &'static str,
        missing: &[usize],
        overdue: &mut Option<Overdue<'a>>,
    ) -> Result<Option<Instant>> {
        let roster = &self.shared.roster;
        // those of a moment ago at the most: who came since then has yet to wait past its own
        let is_hang = overdue.insert(roster.overdue(self.rank, missing)).is_hang();
        if is_hang {
            return Err(roster.late(op, self.rank, missing));
        }
        Ok(roster.deadline())
    }

    /// Brings data to this rank's next turn and returns everybody's.
    fn exchange(&self, op: &'static str, data: Data) -> Result<Vec<Data>> {
        let size = self.shared.size;
        let mut state = self.lock();
        let number = state.next[self.rank];
        state.next[self.rank] += 1;
        let empty = || Turn {
            slots: vec![None; size],
            reads: 0,
        };
        state.turns.entry(number).or_insert_with(empty).slots[self.rank] = Some((op, data));
        self.shared.changed.notify_all();
        let (mut deadline, mut overdue) = (self.shared.roster.deadline(), None);
        loop {
            let turn = &state.turns[&number];
            let Some(absent) = turn.slots.iter().position(Option::is_none) else {
                break;
            };
            let lost = (absent..size).find(|&r| turn.slots[r].is_none() && state.gone[r]);
            if let Some(rank) = lost {
                return Err(Error::PeerGone { rank, op });
            }
            let missing = turn.missing();
            state = match self.wait(state, deadline) {
                Some(changed) => changed,
                None => {
                    deadline = self.later(op, &missing, &mut overdue)?;
                    self.lock()
                }
            };
        }
        let turn = state
            .turns
            .get_mut(&number)
            .expect("a turn stays until all have read it");
        let slots: Vec<_> = turn.slots.iter().flatten().cloned().collect();
        turn.reads += 1;
        if turn.reads == size {
            state.turns.remove(&number);
        }
        drop(state);
        let first = slots[0].0;
        if let Some(other) = slots.iter().position(|slot| slot.0 != first) {
            return Err(Error::Calls {
                rank: 0,
                op: first,
                other,
                other_op: slots[other].0,
            });
        }
        Ok(slots.into_iter().map(|slot| slot.1).collect())
    }

    /// As `exchange` for equal lengths.
    fn exchange_alike(&self, op: &'static str, x: Vec<f32>) -> Result<Vec<Data>> {
        let all = self.exchange(op, Data::F32(Arc::new(x)))?;
        let len = all[0].f32().len();
        match all.iter().position(|data| data.f32().len() != len) {
            None => Ok(all),
            Some(other) => {
                let other_len = all[other].f32().len();
                Err(Error::Lengths {
                    op,
                    rank: 0,
                    len,
                    other,
                    other_len,
                })
            }
        }
    }
}

impl Collective for LocalComm {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.shared.size
    }

    fn all_reduce_sum(&self, x: &mut [f32]) -> Result<()> {
        const OP: &str = "all_reduce_sum";
        let size = self.shared.size;
        if size == 1 {
            return Ok(());
        }
        let brought = self.exchange_alike(OP, x.to_vec())?;
        let parts: Vec<&[f32]> = brought.iter().map(Data::f32).collect();
        if x.len() < SHARED_FROM {
            tree_sum(x, &parts);
            return Ok(());
        }
        let share = x.len().div_ceil(size);
        let (start, end) = (self.rank * share, x.len().min((self.rank + 1) * share));
        let mut sum = vec![0.0; end.saturating_sub(start)];
        if !sum.is_empty() {
            let parts: Vec<&[f32]> = parts.iter().map(|part| &part[start..end]).collect();
            tree_sum(&mut sum, &parts);
        }
        let sums = self.exchange(OP, Data::F32(Arc::new(sum)))?;
        for (x, sum) in x.chunks_mut(share).zip(sums) {
            x.copy_from_slice(sum.f32());
        }
        Ok(())
    }

    fn reduce_scatter_sum(&self, x: Vec<f32>, cuts: &[usize]) -> Result<Vec<f32>> {
        check_cuts(cuts, x.len(), self.shared.size)?;
        if self.shared.size == 1 {
            return Ok(x);
        }
        let brought = self.exchange_alike("reduce_scatter_sum", x)?;
        let (start, end) = (cuts[self.rank], cuts[self.rank + 1]);
        let mut sum = vec![0.0; end - start];
        let parts: Vec<&[f32]> = brought.iter().map(|b| &b.f32()[start..end]).collect();
        tree_sum(&mut sum, &parts);
        Ok(sum)
    }

    fn all_reduce_max(&self, x: &mut [f32]) -> Result<()> {
        if self.shared.size > 1 {
            let parts = self.exchange_alike("all_reduce_max", x.to_vec())?;
            largest(x, parts.iter().map(Data::f32));
        }
        Ok(())
    }

    fn all_gather(&self, x: &[f32]) -> Result<Vec<Vec<f32>>> {
        if self.shared.size == 1 {
            return Ok(vec![x.to_vec()]);
        }
        let all = self.exchange("all_gather", Data::F32(Arc::new(x.to_vec())))?;
        Ok(all.iter().map(|data| data.f32().to_vec()).collect())
    }

    fn all_gather_f64(&self, x: &[f64]) -> Result<Vec<Vec<f64>>> {
        if self.shared.size == 1 {
            return Ok(vec![x.to_vec()]);
        }
        let all = self.exchange("all_gather_f64", Data::F64(Arc::new(x.to_vec())))?;
        Ok(all.iter().map(|data| data.f64().to_vec()).collect())
    }

    fn all_to_all(&self, parts: Vec<Vec<f32>>) -> Result<Vec<Vec<f32>>> {
        check_parts(parts.len(), self.shared.size)?;
        if self.shared.size == 1 {
            return Ok(parts);
        }
        let all = self.exchange("all_to_all", Data::Parts(Arc::new(parts)))?;
        Ok(all
            .iter()
            .map(|data| data.part(self.rank).to_vec())
            .collect())
    }

    fn broadcast(&self, x: &mut [f32], root: usize) -> Result<()> {
        check_peer("broadcast", "root", (root, self.shared.size))?;
        if self.shared.size > 1 {
            let all = self.exchange_alike("broadcast", x.to_vec())?;
            x.copy_from_slice(all[root].f32());
        }
        Ok(())
    }

    fn send(&self, to: usize, x: &[f32]) -> Result<()> {
        check_peer("send", "to", (to, self.shared.size))?;
        self.lock()
            .mail
            .entry((self.rank, to))
            .or_default()
            .push_back(x.to_vec());
        self.shared.changed.notify_all();
        Ok(())
    }

    fn recv(&self, from: usize, x: &mut [f32]) -> Result<()> {
        check_peer("recv", "from", (from, self.shared.size))?;
        let (mut deadline, mut overdue) = (self.shared.roster.deadline(), None);
        let mut state = self.lock();
        let message = loop {
            if let Some(message) = state
                .mail
                .get_mut(&(from, self.rank))
                .and_then(VecDeque::pop_front)
            {
                break message;
            }
            if state.gone[from] {
                return Err(Error::PeerGone {
                    rank: from,
                    op: "recv",
                });
            }
            state = match self.wait(state, deadline) {
                Some(changed) => changed,
                None => {
                    deadline = self.later("recv", &[from], &mut overdue)?;
                    self.lock()
                }
            };
        };
        drop(state);
        if message.len() != x.len() {
            let (rank, len) = (self.rank, x.len());
            let (other, other_len) = (from, message.len());
            return Err(Error::Lengths {
                op: "recv",
                rank,
                len,
                other,
                other_len,
            });
        }
        x.copy_from_slice(&message);
        Ok(())
    }

    fn barrier(&self) -> Result<()> {
        if self.shared.size > 1 {
            self.exchange("barrier", Data::F32(Arc::new(Vec::new())))?;
        }
        Ok(())
    }
}

impl Drop for LocalComm {
    fn drop(&mut self) {
        self.lock().gone[self.rank] = true;
        self.shared.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::comm::Watch;
    use crate::comm::sum::SUM_BLOCK;
    use crate::testing::{bits, tree};
    use std::time::Duration;

    /// Runs one thread per rank and returns their results by rank.
    fn each<T: Send>(size: usize, run: impl Fn(&LocalComm) -> T + Sync) -> Vec<T> {
        std::thread::scope(|scope| {
            let run = &run;
            let start = |comm: LocalComm| scope.spawn(move || run(&comm));
            let threads: Vec<_> = group(size).into_iter().map(start).collect();
            threads
                .into_iter()
                .map(|thread| thread.join().unwrap())
                .collect()
        })
    }

    fn value(rank: usize, i: usize) -> f32 {
        let mut x = [0.0];
        crate::rng::fill_normal(&mut x, rank as u64, 0, i as u64, 1.0);
        x[0]
    }

    #[test]
    fn all_reduce_is_the_tree_by_rank_on_every_rank() {
        // Past the length from which ranks share the work, and no multiple of any group.
        const LEN: usize = SHARED_FROM + 2047;
        for size in 1..=5 {
            let results = each(size, |comm| {
                let mut x: Vec<f32> = (0..LEN).map(|i| value(comm.rank(), i)).collect();
                let mut max = x.clone();
                comm.all_reduce_sum(&mut x).unwrap();
                comm.all_reduce_max(&mut max).unwrap();
                (bits(&x), max)
            });
            for (sum, max) in results {
                for i in 0..LEN {
                    let want = tree((0..size).map(|rank| value(rank, i)));
                    assert_eq!(sum[i], want.to_bits());
                    let want = (0..size)
                        .map(|rank| value(rank, i))
                        .fold(f32::MIN, f32::max);
                    assert_eq!(max[i], want);
                }
            }
        }
    }

    #[test]
    fn scattered_sums_are_the_parts_of_the_whole_sum() {
        const LEN: usize = 2 * SUM_BLOCK + 77;
        for size in 1..=5 {
            let results = each(size, |comm| {
                let mut x: Vec<f32> = (0..LEN).map(|i| value(comm.rank(), i)).collect();
                // unequal parts, one of them empty
                let mut cuts: Vec<usize> = (0..size).map(|r| LEN * r * r / (size * size)).collect();
                cuts.push(LEN);
                if size > 2 {
                    cuts[1] = 0;
                }
                let part = comm.reduce_scatter_sum(x.clone(), &cuts).unwrap();
                comm.all_reduce_sum(&mut x).unwrap();
                let want = &x[cuts[comm.rank()]..cuts[comm.rank() + 1]];
                bits(&part) == bits(want)
            });
            assert_eq!(results, vec![true; size]);
        }
        let comm = group(1).remove(0);
        let wrong = comm.reduce_scatter_sum(vec![1.0; 3], &[0, 2]);
        assert!(matches!(wrong, Err(Error::Argument { name: "cuts", .. })));
    }

    #[test]
    fn gathers_and_broadcasts_copy_bits() {
        for size in 1..=5 {
            for (rank, (parts, wide, x)) in each(size, |comm| {
                let mine = vec![-0.0; comm.rank() + 1];
                let parts = comm.all_gather(&mine).unwrap();
                let wide = comm.all_gather_f64(&[comm.rank() as f64]).unwrap();
                let mut x = [comm.rank() as f32, -0.0];
                comm.broadcast(&mut x, size - 1).unwrap();
                comm.barrier().unwrap();
                (parts, wide, x)
            })
            .into_iter()
            .enumerate()
            {
                for (from, part) in parts.iter().enumerate() {
                    assert_eq!(bits(part), vec![(-0.0_f32).to_bits(); from + 1], "{rank}");
                    assert_eq!(wide[from], [from as f64]);
                }
                assert_eq!(bits(&x), bits(&[(size - 1) as f32, -0.0]));
            }
        }
    }

    #[test]
    fn every_rank_gets_the_part_that_each_has_for_it() {
        for size in 1..=5 {
            let part = |from: usize, to: usize| vec![(10 * from + to) as f32; from * to];
            let results = each(size, |comm| {
                let parts = (0..size).map(|to| part(comm.rank(), to)).collect();
                let short = comm.all_to_all(vec![Vec::new(); size + 1]);
                assert!(matches!(short, Err(Error::Argument { name: "parts", .. })));
                comm.all_to_all(parts).unwrap()
            });
            for (to, found) in results.into_iter().enumerate() {
                let want: Vec<_> = (0..size).map(|from| part(from, to)).collect();
                assert_eq!(found, want);
            }
        }
    }

    #[test]
    fn messages_arrive_in_order_and_sending_never_waits() {
        let results = each(3, |comm| {
            let (next, last) = ((comm.rank() + 1) % 3, (comm.rank() + 2) % 3);
            for i in 0..10 {
                comm.send(next, &[comm.rank() as f32, i as f32]).unwrap();
            }
            (0..10).all(|i| {
                let mut x = [0.0; 2];
                comm.recv(last, &mut x).unwrap();
                x == [last as f32, i as f32]
            })
        });
        assert_eq!(results, [true; 3]);
    }

    #[test]
    fn many_rounds_leave_no_turns_behind() {
        let left = each(4, |comm| {
            for round in 0..500 {
                comm.all_reduce_sum(&mut vec![1.0; round * 20]).unwrap();
            }
            comm.barrier().unwrap();
            comm.shared.state.lock().unwrap().turns.len()
        });
        // Only the barrier's own turn may still wait for its last reader.
        assert!(left.iter().all(|&turns| turns <= 1), "{left:?}");
    }

    #[test]
    fn a_rank_that_panics_makes_the_others_return() {
        for size in 2..=5 {
            let results = each(size, |comm| comm.rank());
            assert_eq!(results.len(), size);
            let found: Vec<_> = std::thread::scope(|scope| {
                let run = |comm: LocalComm| {
                    scope.spawn(move || {
                        comm.all_reduce_sum(&mut [1.0]).unwrap();
                        assert!(comm.rank() != 1, "this rank dies on purpose");
                        let reduced = comm.all_reduce_sum(&mut [1.0]);
                        let received = comm.recv(1, &mut [0.0]);
                        (reduced, received)
                    })
                };
                let threads: Vec<_> = group(size).into_iter().map(run).collect();
                threads
                    .into_iter()
                    .map(std::thread::ScopedJoinHandle::join)
                    .collect()
            });
            for (rank, result) in found.into_iter().enumerate() {
                match result {
                    Err(_) => assert_eq!(rank, 1),
                    Ok((reduced, received)) => {
                        assert_eq!(
                            reduced,
                            Err(Error::PeerGone {
                                rank: 1,
                                op: "all_reduce_sum"
                            })
                        );
                        assert_eq!(
                            received,
                            Err(Error::PeerGone {
                                rank: 1,
                                op: "recv"
                            })
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn what_a_rank_sent_before_it_ended_still_arrives() {
        let mut comms = group(2);
        let (one, zero) = (comms.pop().unwrap(), comms.pop().unwrap());
        one.send(0, &[7.0]).unwrap();
        drop(one);
        let mut x = [0.0];
        zero.recv(1, &mut x).unwrap();
        assert_eq!(x, [7.0]);
        assert_eq!(
            zero.recv(1, &mut x),
            Err(Error::PeerGone {
                rank: 1,
                op: "recv"
            })
        );
    }

    #[test]
    fn different_lengths_and_different_calls_name_both_ranks() {
        let results = each(3, |comm| {
            let mut x = vec![0.0; if comm.rank() == 2 { 4 } else { 3 }];
            comm.all_reduce_sum(&mut x)
        });
        let op = "all_reduce_sum";
        let want = Err(Error::Lengths {
            op,
            rank: 0,
            len: 3,
            other: 2,
            other_len: 4,
        });
        assert!(results.iter().all(|r| *r == want));
        let results = each(2, |comm| {
            if comm.rank() == 0 {
                comm.barrier()
            } else {
                comm.all_reduce_max(&mut [1.0])
            }
        });
        let (op, other_op) = ("barrier", "all_reduce_max");
        assert!(results.iter().all(|r| *r
            == Err(Error::Calls {
                rank: 0,
                op,
                other: 1,
                other_op
            })));
        let mut comms = group(2);
        let (one, zero) = (comms.pop().unwrap(), comms.pop().unwrap());
        one.send(0, &[1.0, 2.0]).unwrap();
        let found = zero.recv(1, &mut [0.0]);
        let want = Error::Lengths {
            op: "recv",
            rank: 0,
            len: 1,
            other: 1,
            other_len: 2,
        };
        assert_eq!(found, Err(want));
        assert!(matches!(
            zero.send(2, &[]),
            Err(Error::Argument { name: "to", .. })
        ));
    }

    /// A group with this deadline, of world ranks 4, 6 and 8.
    fn hurried(watch: Watch) -> Vec<LocalComm> {
        watched(Roster {
            name: "tensor",
            members: vec![4, 6, 8],
            watch: Arc::new(watch),
            is_patient: false,
        })
    }

    #[test]
    fn ranks_that_wait_for_each_other_name_who_did_not_come_and_the_step() {
        let watch = Watch::new(Some(Duration::from_millis(50)), Vec::new(), 0);
        watch.set_step(7);
        let late = std::thread::scope(|scope| {
            let waits = |comm: LocalComm| {
                scope.spawn(move || match comm.rank() {
                    1 => comm.recv(0, &mut [0.0]),
                    _ => comm.barrier(),
                })
            };
            let threads: Vec<_> = hurried(watch).into_iter().map(waits).collect();
            let ends = threads.into_iter().map(|t| t.join().unwrap().unwrap_err());
            ends.collect::<Vec<_>>()
        });
        let of = |rank, op: &str, missing| {
            format!(
                "watchdog: rank {rank} waited 0 s in {op} of its tensor group, step 7, for rank {missing}"
            )
        };
        let wanted = [of(4, "barrier", 6), of(6, "recv", 4), of(8, "barrier", 6)];
        // who notices the circle leaves it, which the others are told unless they notice it as well
        let is_late = |error: &Error| matches!(error, Error::Late { .. });
        assert!(late.iter().any(is_late), "{late:?}");
        for (error, wanted) in late.iter().zip(wanted) {
            match error {
                Error::PeerGone { .. } => {}
                other => assert_eq!(other.to_string(), wanted),
            }
        }
    }

    #[test]
    fn a_rank_that_computes_for_many_deadlines_is_waited_for() {
        let watch = Watch::new(Some(Duration::from_millis(20)), Vec::new(), 0);
        let late = std::thread::scope(|scope| {
            let meets = |comm: LocalComm| {
                scope.spawn(move || {
                    if comm.rank() == 1 {
                        std::thread::sleep(Duration::from_millis(300));
                        comm.send(0, &[7.0]).unwrap();
                    }
                    if comm.rank() == 0 {
                        comm.recv(1, &mut [0.0]).unwrap();
                    }
                    // rank 2 has waited for both all the time
                    comm.barrier()
                })
            };
            let threads: Vec<_> = hurried(watch).into_iter().map(meets).collect();
            let ends = threads.into_iter().map(|t| t.join().unwrap());
            ends.collect::<Vec<_>>()
        });
        assert_eq!(late, [Ok(()), Ok(()), Ok(())]);
    }
}
