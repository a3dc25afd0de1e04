//! Ranks as threads of one process: a lock, a condition variable, one slot per rank and turn.
//!
//! A collective is a turn: each rank puts (op, data) into its slot of the turn and reads all slots once
//! they are filled; the last reader frees the turn. A rank that is dropped (also by a panic) while
//! others wait for its part makes them return `PeerGone`; what it brought before still counts.

use super::Collective;
use crate::{Error, Result};
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// Returns the ranks of a group, to be moved to one thread each. Dropping one ends that rank.
pub fn group(size: usize) -> Vec<LocalComm> {
    let state = State {
        turns: BTreeMap::new(),
        next: vec![0; size],
        mail: BTreeMap::new(),
        gone: vec![false; size],
    };
    let shared = Arc::new(Shared {
        size,
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

/// What a rank brings, shared with the readers without a copy under the lock.
#[derive(Clone)]
enum Data {
    F32(Arc<Vec<f32>>),
    F64(Arc<Vec<f64>>),
}

impl Data {
    fn f32(&self) -> &[f32] {
        match self {
            Data::F32(x) => x,
            Data::F64(_) => unreachable!("ranks of a turn call the same op, which is checked"),
        }
    }

    fn f64(&self) -> &[f64] {
        match self {
            Data::F64(x) => x,
            Data::F32(_) => unreachable!("ranks of a turn call the same op, which is checked"),
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

    fn wait<'a>(&self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        self.shared
            .changed
            .wait(state)
            .unwrap_or_else(PoisonError::into_inner)
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
        loop {
            let turn = &state.turns[&number];
            let Some(absent) = turn.slots.iter().position(Option::is_none) else {
                break;
            };
            let lost = (absent..size).find(|&r| turn.slots[r].is_none() && state.gone[r]);
            if let Some(rank) = lost {
                return Err(Error::PeerGone { rank, op });
            }
            state = self.wait(state);
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
    fn exchange_alike(&self, op: &'static str, x: &[f32]) -> Result<Vec<Data>> {
        let all = self.exchange(op, Data::F32(Arc::new(x.to_vec())))?;
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

    fn check_peer(&self, op: &'static str, name: &'static str, rank: usize) -> Result<()> {
        if rank < self.shared.size {
            return Ok(());
        }
        let wanted = format!("a rank below {}", self.shared.size);
        Err(Error::Argument {
            op,
            name,
            found: rank.to_string(),
            wanted,
        })
    }
}

/// Adds the parts in the binary-counter tree, elementwise, into the first.
fn tree_sum(out: &mut [f32], parts: &[Data]) {
    let mut waiting: Vec<Vec<f32>> = Vec::new();
    let merge = |older: Vec<f32>, mut sum: Vec<f32>| {
        for (s, o) in sum.iter_mut().zip(older) {
            *s += o;
        }
        sum
    };
    for (i, part) in parts.iter().enumerate() {
        let mut sum = part.f32().to_vec();
        for _ in 0..i.trailing_ones() {
            sum = merge(
                waiting
                    .pop()
                    .expect("one block waits per one bit of the count"),
                sum,
            );
        }
        waiting.push(sum);
    }
    let sum = waiting
        .into_iter()
        .rev()
        .reduce(|right, left| merge(left, right));
    out.copy_from_slice(&sum.expect("a group has at least one rank"));
}

impl Collective for LocalComm {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.shared.size
    }

    fn all_reduce_sum(&self, x: &mut [f32]) -> Result<()> {
        if self.shared.size > 1 {
            let parts = self.exchange_alike("all_reduce_sum", x)?;
            tree_sum(x, &parts);
        }
        Ok(())
    }

    fn all_reduce_max(&self, x: &mut [f32]) -> Result<()> {
        if self.shared.size > 1 {
            let parts = self.exchange_alike("all_reduce_max", x)?;
            x.copy_from_slice(parts[0].f32());
            for part in &parts[1..] {
                for (x, y) in x.iter_mut().zip(part.f32()) {
                    *x = if *y > *x || y.is_nan() { *y } else { *x };
                }
            }
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

    fn broadcast(&self, x: &mut [f32], root: usize) -> Result<()> {
        self.check_peer("broadcast", "root", root)?;
        if self.shared.size > 1 {
            let all = self.exchange_alike("broadcast", x)?;
            x.copy_from_slice(all[root].f32());
        }
        Ok(())
    }

    fn send(&self, to: usize, x: &[f32]) -> Result<()> {
        self.check_peer("send", "to", to)?;
        self.lock()
            .mail
            .entry((self.rank, to))
            .or_default()
            .push_back(x.to_vec());
        self.shared.changed.notify_all();
        Ok(())
    }

    fn recv(&self, from: usize, x: &mut [f32]) -> Result<()> {
        self.check_peer("recv", "from", from)?;
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
            state = self.wait(state);
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
