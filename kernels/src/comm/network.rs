//! A process's connections to the other processes of a run, and process groups over them.
//!
//! Adjacent world ranks share a process. A group whose ranks are all in this process uses threads (`local`); any
//! other one sends frames (`remote.rs`) over a wire: sockets or MPI. Every process creates the same groups in the
//! same order, which gives them the same numbers.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::failure::Failure;
use super::frame::{Header, Kind, Payload};
use super::mailbox::Mailbox;
use super::remote::{Member, Remote};
use super::watchdog::{Roster, Watch};
use super::wire::{Shared, Wire};
use super::{Collective, local};
use crate::{Error, Result};

/// A process's endpoint of a run's connections. Dropping it closes them.
pub struct Network {
    shared: Arc<Shared>,
    groups: AtomicU32,
    /// A group with one member per process.
    control: Mutex<Option<Remote>>,
    remarks: Vec<String>,
}

/// Parts of a connected network.
pub(super) struct Connected {
    pub process: usize,
    pub processes: usize,
    pub ranks_per_process: usize,
    pub wire: Box<dyn Wire>,
    pub mailbox: Arc<Mailbox>,
    pub watch: Arc<Watch>,
    pub remarks: Vec<String>,
}

impl Network {
    pub(super) fn new(connected: Connected) -> Network {
        let Connected {
            process,
            processes,
            ranks_per_process,
            wire,
            mailbox,
            watch,
            remarks,
        } = connected;
        let shared = Shared {
            process,
            wire,
            mailbox,
            watch,
            ranks_per_process,
            processes,
        };
        let network = Network {
            shared: Arc::new(shared),
            groups: AtomicU32::new(0),
            control: Mutex::new(None),
            remarks,
        };
        let control = network.processes_group("processes");
        *network.control() = Some(control);
        network
    }

    fn control(&self) -> std::sync::MutexGuard<'_, Option<Remote>> {
        self.control.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// This process, from 0.
    pub fn process(&self) -> usize {
        self.shared.process
    }

    /// Processes of the run.
    pub fn processes(&self) -> usize {
        self.shared.processes
    }

    /// World ranks of this process.
    pub fn ranks(&self) -> std::ops::Range<usize> {
        let (first, per) = (self.shared.process, self.shared.ranks_per_process);
        first * per..(first + 1) * per
    }

    /// The watchdog of all its groups.
    pub fn watch(&self) -> Arc<Watch> {
        Arc::clone(&self.shared.watch)
    }

    /// A group of world ranks: its members in this process, in order. Every process must create every group,
    /// including those that it has no part in.
    pub fn group(&self, name: &'static str, members: &[usize]) -> Vec<Box<dyn Collective>> {
        let number = self.groups.fetch_add(1, Ordering::Relaxed);
        let is_here = |rank: &usize| self.ranks().contains(rank);
        let roster = Roster {
            name,
            members: members.to_vec(),
            watch: self.watch(),
            is_patient: false,
        };
        if !members.iter().any(is_here) {
            return Vec::new();
        }
        if members.iter().all(is_here) {
            let members = local::watched(roster).into_iter();
            return members
                .map(|comm| Box::new(comm) as Box<dyn Collective>)
                .collect();
        }
        let homes: Vec<usize> = members.iter().map(|&rank| self.shared.home(rank)).collect();
        let members = self.remote(number, roster, homes).into_iter();
        members
            .map(|comm| Box::new(comm) as Box<dyn Collective>)
            .collect()
    }

    /// A group with a member for each process; its ranks wait without a deadline.
    pub fn of_processes(&self, name: &'static str) -> Box<dyn Collective> {
        Box::new(self.processes_group(name))
    }

    fn processes_group(&self, name: &'static str) -> Remote {
        let number = self.groups.fetch_add(1, Ordering::Relaxed);
        let homes: Vec<usize> = (0..self.shared.processes).collect();
        let first_of = |process: usize| process * self.shared.ranks_per_process;
        let roster = Roster {
            name,
            members: homes.iter().map(|&process| first_of(process)).collect(),
            watch: self.watch(),
            is_patient: true,
        };
        let mut mine = self.remote(number, roster, homes);
        mine.remove(0)
    }

    fn remote(&self, number: u32, roster: Roster, homes: Vec<usize>) -> Vec<Remote> {
        let here = homes.iter().enumerate();
        let here = here.filter(|(_, home)| **home == self.shared.process);
        let here: Vec<usize> = here.map(|(member, _)| member).collect();
        Remote::all(
            &self.shared,
            Member {
                number,
                roster,
                homes,
            },
            &here,
        )
    }

    /// All-gathers one text per process, by process; waits without a deadline.
    ///
    /// # Errors
    /// If a process ended.
    pub fn exchange(&self, text: &str) -> Result<Vec<String>> {
        let control = self.control();
        let control = control.as_ref().expect("made with the network");
        control.exchange_text(text)
    }

    /// Reports to all processes why this one ends, and waits for none of them any more.
    pub fn fail(&self, failure: &Failure) {
        self.shared.wire.fail(failure);
        let payload = failure.payload();
        for process in (0..self.shared.processes).filter(|&p| p != self.shared.process) {
            self.shared
                .wire
                .send(process, &Header::of(Kind::Failed), &payload);
        }
        // also ends waits without a deadline, which a host that is cut off would block for ever
        self.shared.mailbox.give_up();
    }

    /// Log lines about the connections.
    pub fn remarks(&self) -> &[String] {
        &self.remarks
    }

    /// Calls `tell` as soon as a process ends without a report, before the ranks here notice; once.
    pub fn on_loss(&self, tell: impl Fn(&Failure) + Send + Sync + 'static) {
        self.shared.mailbox.on_loss(Arc::new(tell));
    }

    /// Why a peer ended, waiting a moment for its own report.
    pub fn cause(&self, patience: Duration) -> Option<Failure> {
        self.shared.mailbox.cause(patience)
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        *self.control() = None;
        self.shared.wire.close();
    }
}

/// Handles a frame from a process. Returns false if it was the last.
///
/// # Errors
/// `InvalidData` if no process of this program sends such a frame.
pub(super) fn take(
    mailbox: &Mailbox,
    process: usize,
    (header, payload): (Header, Payload),
) -> std::io::Result<bool> {
    match header.kind {
        Kind::Turn | Kind::Mail | Kind::Gone => mailbox.deliver(header, payload)?,
        // other processes' ends are reported on liveness connections alone (liveness.rs)
        Kind::Ping | Kind::Lost => {}
        Kind::Failed => {
            mailbox.end(process, Some(Failure::of(&payload)), None);
        }
        Kind::Bye => {
            mailbox.end(process, None, None);
            return Ok(false);
        }
    }
    Ok(true)
}

/// The error of processes that did not find each other.
pub(super) fn unmet(
    at: impl Into<String>,
    found: impl Into<String>,
    wanted: impl Into<String>,
) -> Error {
    Error::Network {
        at: at.into(),
        found: found.into(),
        wanted: wanted.into(),
    }
}

#[cfg(test)]
mod tests {
    use std::thread;
    use std::time::Duration;

    use super::super::socket::connect;
    use super::super::tests::{each, rendezvous_of};
    use super::*;

    #[test]
    fn nobody_is_more_than_one_collective_ahead_of_a_slow_member() {
        const ROUNDS: usize = 40;
        let most = each(rendezvous_of(4, 1), |rendezvous| {
            let network = connect(&rendezvous).unwrap();
            let member = network.processes_group("test");
            let mut most = 0;
            for round in 0..ROUNDS {
                // each process is the slow one for a while; by then the others have sent all they may
                if round * 4 / ROUNDS == rendezvous.process {
                    thread::sleep(Duration::from_millis(5));
                }
                most = most.max(member.waiting());
                match round % 4 {
                    0 => member.all_reduce_sum(&mut [1.0; 5000]).unwrap(),
                    1 => drop(member.all_gather(&[1.0; 100]).unwrap()),
                    2 => member.broadcast(&mut [1.0; 100], round % 3).unwrap(),
                    _ => member.barrier().unwrap(),
                }
            }
            most
        });
        // one when all are about to begin the same collective; a second from a process that is already done
        assert!(most.iter().all(|most| (1..=2).contains(most)), "{most:?}");
    }
}
