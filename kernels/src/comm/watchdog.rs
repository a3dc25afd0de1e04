//! Watchdog of collectives: the deadline of a rank's wait, and the report when it expires. The report names the
//! waiting rank with its host, the collective, its group, the step, and the missing ranks, all by world rank.
//!
//! For ranks of another process the deadline is the only evidence. For ranks of one process more is known: a wait
//! past its deadline is a hang only if the ranks waited for are waiting as well, in a circle; one that computes
//! arrives sooner or later, however slow the machine.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::Error;

/// State shared by all groups of a process.
#[derive(Debug, Default)]
pub struct Watch {
    /// None: waits for ever.
    timeout: Option<Duration>,
    /// The current training step, for messages only.
    step: AtomicU64,
    /// Host of every process, in order.
    hosts: Vec<String>,
    /// Adjacent world ranks share a process.
    ranks_per_process: usize,
    overdue: Mutex<Waits>,
}

/// Waits past their deadline within this process, by number: world rank, and the ranks it waits for.
#[derive(Debug, Default)]
struct Waits {
    by_number: BTreeMap<u64, (usize, Vec<usize>)>,
    next: u64,
}

impl Waits {
    /// Whether all ranks that a rank waits for, and those they wait for in turn, wait past their deadlines.
    fn is_circle(&self, rank: usize) -> bool {
        let (mut seen, mut left) = (BTreeSet::from([rank]), vec![rank]);
        while let Some(rank) = left.pop() {
            let of_rank = self.by_number.values().filter(|(who, _)| *who == rank);
            let mut is_waiting = false;
            for (_, whom) in of_rank {
                is_waiting = true;
                left.extend(whom.iter().copied().filter(|other| seen.insert(*other)));
            }
            if !is_waiting {
                return false;
            }
        }
        true
    }
}

impl Watch {
    /// For processes on `hosts` with `ranks_per_process` ranks each.
    pub fn new(timeout: Option<Duration>, hosts: Vec<String>, ranks_per_process: usize) -> Watch {
        Watch {
            timeout,
            step: AtomicU64::new(0),
            hosts,
            ranks_per_process,
            overdue: Mutex::default(),
        }
    }

    fn overdue(&self) -> MutexGuard<'_, Waits> {
        self.overdue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the step that messages name from now on.
    pub fn set_step(&self, step: u64) {
        self.step.store(step, Ordering::Relaxed);
    }

    /// A rank with its host, as messages name it.
    pub fn name_of(&self, rank: usize) -> String {
        match rank.checked_div(self.ranks_per_process) {
            Some(process) if process < self.hosts.len() => {
                format!("{rank} on {}", self.hosts[process])
            }
            _ => rank.to_string(),
        }
    }

    /// Ranks of a process, as messages name them.
    pub(crate) fn ranks_of(&self, process: usize) -> String {
        let first = process * self.ranks_per_process;
        let host = self.hosts.get(process).map_or("", String::as_str);
        match self.ranks_per_process {
            0 | 1 => format!("rank {first} on {host}"),
            more => format!("ranks {first} to {} on {host}", first + more - 1),
        }
    }

    pub(crate) fn timeout(&self) -> Option<Duration> {
        self.timeout
    }
}

/// The ranks of a group and their watchdog.
#[derive(Clone, Debug)]
pub struct Roster {
    /// Purpose of the group.
    pub name: &'static str,
    /// World ranks, by number in the group.
    pub members: Vec<usize>,
    /// Watchdog that sets the deadline.
    pub watch: Arc<Watch>,
    /// Waits without a deadline: the time between two calls is unbounded.
    pub is_patient: bool,
}

impl Roster {
    /// This many ranks that wait for ever.
    pub(crate) fn unwatched(size: usize) -> Roster {
        Roster {
            name: "group",
            members: (0..size).collect(),
            watch: Arc::default(),
            is_patient: true,
        }
    }

    /// Deadline of a wait that begins now.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let timeout = self.watch.timeout.filter(|_| !self.is_patient);
        timeout.and_then(|timeout| Instant::now().checked_add(timeout))
    }

    /// Registers that member `rank`'s wait for others of its process is past its deadline, until the returned guard
    /// is dropped.
    pub(crate) fn overdue(&self, rank: usize, missing: &[usize]) -> Overdue<'_> {
        let mut waits = self.watch.overdue();
        let (number, rank) = (waits.next, self.members[rank]);
        waits.next += 1;
        let missing = missing.iter().map(|&member| self.members[member]);
        waits.by_number.insert(number, (rank, missing.collect()));
        Overdue {
            watch: &self.watch,
            number,
            rank,
        }
    }

    /// The error of member `rank`, whose wait for others timed out.
    pub(crate) fn late(&self, op: &'static str, rank: usize, missing: &[usize]) -> Error {
        let name = |&member: &usize| self.watch.name_of(self.members[member]);
        Error::Late {
            op,
            group: self.name,
            rank: name(&rank),
            seconds: self.watch.timeout.unwrap_or_default().as_secs(),
            step: self.watch.step.load(Ordering::Relaxed),
            missing: missing.iter().map(name).collect(),
        }
    }
}

/// A wait past its deadline.
pub(crate) struct Overdue<'a> {
    watch: &'a Watch,
    number: u64,
    rank: usize,
}

impl Overdue<'_> {
    /// Whether no rank is left that could end the wait.
    pub(crate) fn is_hang(&self) -> bool {
        self.watch.overdue().is_circle(self.rank)
    }
}

impl Drop for Overdue<'_> {
    fn drop(&mut self) {
        self.watch.overdue().by_number.remove(&self.number);
    }
}

/// Time left until a deadline; None without one, zero if it has passed.
pub(crate) fn left(deadline: Option<Instant>) -> Option<Duration> {
    deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()))
}
