//! Collectives between ranks that are threads of one process: a lock, a condition variable, one slot per rank and
//! turn.
//!
//! A collective is a turn, or several for large inputs: each rank puts (op, data) into its slot of the turn and
//! reads all slots once they are filled; the last reader frees the turn. If a rank is dropped (also by a panic)
//! while others wait for its part, they return `PeerGone`; its earlier contributions still count. A wait past its
//! deadline continues as long as a rank that could end it is still computing (`watchdog.rs`).

mod buffers;
mod device;
mod parcel;
#[cfg(test)]
mod tests;

use self::buffers::{AT_ONCE, Buffer, Buffers};
use self::parcel::{Brought, Parcel};
use super::gpu::BetweenGpus;
use super::sum::{SHARED_FROM, largest, tree_sum};
use super::watchdog::{Overdue, Roster, left};
use super::{Collective, Take, check_cuts, check_parts, check_peer};
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

/// Like `group`, for ranks that wait until a deadline.
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
        buffers: Buffers::new(size),
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
    buffers: Arc<Buffers>,
}

struct State {
    turns: BTreeMap<u64, Turn>,
    /// Number of each rank's next turn.
    next: Vec<u64>,
    /// Messages by (from, to).
    mail: BTreeMap<(usize, usize), VecDeque<Message>>,
    gone: Vec<bool>,
}

/// A message between two ranks.
enum Message {
    Host(Buffer),
    Device(Parcel),
}

impl Message {
    fn len(&self) -> usize {
        match self {
            Message::Host(numbers) => numbers.len(),
            Message::Device(parcel) => parcel.len(),
        }
    }
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

/// A rank's contribution, shared with the readers without a copy under the lock.
#[derive(Clone)]
enum Data {
    /// Some of this many floats, if the op takes several turns.
    F32(usize, Arc<Buffer>),
    F64(Arc<Vec<f64>>),
    /// One vector per destination rank.
    Parts(Arc<Vec<Vec<f32>>>),
    /// Numbers on a device.
    Device(Arc<Brought>),
}

impl Data {
    fn f32(&self) -> &[f32] {
        match self {
            Data::F32(_, x) => x,
            _ => unreachable!("ranks of a turn call the same op, which is checked"),
        }
    }

    /// Floats over all turns of the op.
    fn whole(&self) -> usize {
        match self {
            Data::F32(whole, _) => *whole,
            _ => unreachable!("ranks of a turn call the same op, which is checked"),
        }
    }

    fn device(&self) -> &Brought {
        match self {
            Data::Device(brought) => brought,
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
    // A rank that panics inside the lock leaves the state consistent: each change is one step.
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

    /// Extends a wait past its deadline, unless no rank is left that could end it.
    fn later<'a>(
        &'a self,
        op: &'static str,
        missing: &[usize],
        overdue: &mut Option<Overdue<'a>>,
    ) -> Result<Option<Instant>> {
        let roster = &self.shared.roster;
        // `missing` may be a moment old: a rank that came since has not waited past its own deadline
        let is_hang = overdue.insert(roster.overdue(self.rank, missing)).is_hang();
        if is_hang {
            return Err(roster.late(op, self.rank, missing));
        }
        Ok(roster.deadline())
    }

    /// Contributes data to this rank's next turn and returns every rank's.
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

    /// Like `exchange`, for some of `whole` floats; all ranks must have the same number.
    fn exchange_alike(&self, op: &'static str, whole: usize, some: Buffer) -> Result<Vec<Data>> {
        let all = self.exchange(op, Data::F32(whole, Arc::new(some)))?;
        let len = all[0].whole();
        match all.iter().position(|data| data.whole() != len) {
            None => Ok(all),
            Some(other) => Err(Error::Lengths {
                op,
                rank: 0,
                len,
                other,
                other_len: all[other].whole(),
            }),
        }
    }

    fn copy(&self, x: &[f32]) -> Buffer {
        self.shared.buffers.copy(std::iter::once(x))
    }

    /// The tree sum of some floats, of which each rank computes a share.
    fn add_shares(&self, op: &'static str, whole: usize, x: &mut [f32]) -> Result<()> {
        let brought = self.exchange_alike(op, whole, self.copy(x))?;
        let share = x.len().div_ceil(self.shared.size);
        let of = |rank: usize| x.len().min(rank * share)..x.len().min((rank + 1) * share);
        let mine = of(self.rank);
        let parts: Vec<&[f32]> = brought.iter().map(|b| &b.f32()[mine.clone()]).collect();
        tree_sum(&mut x[mine.clone()], &parts);
        drop(brought);
        let sums = self.exchange(op, Data::F32(whole, Arc::new(self.copy(&x[mine]))))?;
        for (rank, (x, sum)) in x.chunks_mut(share).zip(&sums).enumerate() {
            if rank != self.rank {
                x.copy_from_slice(sum.f32());
            }
        }
        Ok(())
    }
}

impl LocalComm {
    fn post(&self, to: usize, message: Message) {
        let mut state = self.lock();
        let mail = state.mail.entry((self.rank, to)).or_default();
        mail.push_back(message);
        drop(state);
        self.shared.changed.notify_all();
    }

    /// Waits for the next message of a rank, of `len` elements.
    fn next_message(&self, from: usize, len: usize) -> Result<Message> {
        check_peer(self, "recv", "from", from)?;
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
        if message.len() == len {
            return Ok(message);
        }
        Err(Error::Lengths {
            op: "recv",
            rank: self.rank,
            len,
            other: from,
            other_len: message.len(),
        })
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
        let whole = x.len();
        if self.shared.size == 1 {
            return Ok(());
        }
        if whole < SHARED_FROM {
            let brought = self.exchange_alike(OP, whole, self.copy(x))?;
            let parts: Vec<&[f32]> = brought.iter().map(Data::f32).collect();
            tree_sum(x, &parts);
            return Ok(());
        }
        for some in x.chunks_mut(AT_ONCE) {
            self.add_shares(OP, whole, some)?;
        }
        Ok(())
    }

    fn reduce_scatter_sum(&self, x: &[f32], cuts: &[usize], out: &mut [f32]) -> Result<()> {
        let size = self.shared.size;
        check_cuts(self, x, cuts, out)?;
        if size == 1 {
            out.copy_from_slice(x);
            return Ok(());
        }
        // an equal share of each rank's part per turn
        let most = AT_ONCE.div_ceil(size);
        let widths = cuts.windows(2).map(|cut| cut[1] - cut[0]);
        let turns = widths.max().map_or(0, |width| width.div_ceil(most));
        for turn in 0..turns.max(1) {
            let of = |rank: usize| {
                let at = |turn: usize| cuts[rank + 1].min(cuts[rank] + turn * most);
                at(turn)..at(turn + 1)
            };
            let some = (self.shared.buffers).copy((0..size).map(|rank| &x[of(rank)]));
            let brought = self.exchange_alike("reduce_scatter_sum", x.len(), some)?;
            let before: usize = (0..self.rank).map(|rank| of(rank).len()).sum();
            let len = of(self.rank).len();
            let parts: Vec<&[f32]> = (brought.iter())
                .map(|b| &b.f32()[before..before + len])
                .collect();
            let start = of(self.rank).start - cuts[self.rank];
            tree_sum(&mut out[start..start + len], &parts);
        }
        Ok(())
    }

    fn all_reduce_max(&self, x: &mut [f32]) -> Result<()> {
        if self.shared.size > 1 {
            let parts = self.exchange_alike("all_reduce_max", x.len(), self.copy(x))?;
            largest(x, parts.iter().map(Data::f32));
        }
        Ok(())
    }

    fn all_gather_to(&self, x: &[f32], take: &mut Take<'_>) -> Result<()> {
        const OP: &str = "all_gather";
        if self.shared.size == 1 {
            take(0, 0, x);
            return Ok(());
        }
        let (mut start, mut longest) = (0, 0);
        loop {
            let some = start.min(x.len())..x.len().min(start + AT_ONCE);
            let some = Data::F32(x.len(), Arc::new(self.copy(&x[some])));
            let all = self.exchange(OP, some)?;
            for (rank, data) in all.iter().enumerate() {
                longest = longest.max(data.whole());
                if start == 0 || start < data.whole() {
                    take(rank, start, data.f32());
                }
            }
            start += AT_ONCE;
            if start >= longest {
                return Ok(());
            }
        }
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
        check_peer(self, "broadcast", "root", root)?;
        if self.shared.size > 1 {
            let all = self.exchange_alike("broadcast", x.len(), self.copy(x))?;
            x.copy_from_slice(all[root].f32());
        }
        Ok(())
    }

    fn send(&self, to: usize, x: &[f32]) -> Result<()> {
        check_peer(self, "send", "to", to)?;
        self.post(to, Message::Host(self.copy(x)));
        Ok(())
    }

    fn recv(&self, from: usize, x: &mut [f32]) -> Result<()> {
        let message = self.next_message(from, x.len())?;
        match message {
            Message::Host(numbers) => x.copy_from_slice(&numbers),
            Message::Device(parcel) => parcel.download(x)?,
        }
        Ok(())
    }

    fn poll(&self, from: usize) -> Result<Option<Vec<f32>>> {
        check_peer(self, "poll", "from", from)?;
        let mut state = self.lock();
        let mail = state.mail.get_mut(&(from, self.rank));
        match mail.and_then(VecDeque::pop_front) {
            Some(Message::Host(numbers)) => Ok(Some(numbers.to_vec())),
            Some(Message::Device(_)) | None if !state.gone[from] => Ok(None),
            _ => Err(Error::PeerGone {
                rank: from,
                op: "poll",
            }),
        }
    }

    fn between_gpus(&self) -> Option<BetweenGpus<'_>> {
        Some(BetweenGpus(self))
    }

    fn barrier(&self) -> Result<()> {
        if self.shared.size > 1 {
            self.exchange("barrier", Data::F32(0, Arc::new(self.copy(&[]))))?;
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
