//! A communicator and its watchdog.
//!
//! NCCL has no deadline and names nobody. A rank whose host waits for its device looks at its groups
//! (`cuda::Watched`): an error of NCCL, a member that has ended, a collective past its deadline ends the wait and aborts
//! the communicator. From half of the deadline on, ranks that wait report it to each other; those that do not are named.
//! The first that ends its wait by the deadline tells the others whom it missed, so that all name the same.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::comm::Collective;
use crate::comm::watchdog::Roster;
use crate::cuda::nccl::{Call, Communicator, State};
use crate::cuda::{Cuda, Event, Watched};
use crate::{Error, Result};

/// Time for which an ended member's part may still be on its way.
const GRACE: Duration = Duration::from_millis(500);
/// Time to find out which member's end is behind an error of NCCL.
const WORDS: Duration = Duration::from_secs(2);
/// Pause between looks at a call that is in progress.
const PAUSE: Duration = Duration::from_micros(50);

pub(super) fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Messages about waits between all ranks of the world.
pub(super) struct Control {
    pub world: Box<dyn Collective>,
    heard: Mutex<Heard>,
}

/// Contents of the messages so far.
#[derive(Default)]
struct Heard {
    /// Last collective that a rank reported to wait for, by rank and group.
    waits: BTreeMap<(usize, u32), u64>,
    /// Members whom a rank missed when its wait ended, by group.
    missing: BTreeMap<u32, Vec<usize>>,
}

impl Control {
    /// Over a group of all ranks that is used for nothing else.
    pub(super) fn new(world: Box<dyn Collective>) -> Control {
        Control {
            world,
            heard: Mutex::default(),
        }
    }

    /// Reads the messages of a rank. Returns whether it has ended.
    fn read(&self, rank: usize) -> bool {
        loop {
            let message = match self.world.poll(rank) {
                Ok(Some(message)) => message,
                Ok(None) => return false,
                Err(_) => return true,
            };
            let [number, low, high, missing @ ..] = &message[..] else {
                continue;
            };
            let (number, mut heard) = (number.to_bits(), lock(&self.heard));
            if missing.is_empty() {
                let turn = u64::from(low.to_bits()) | u64::from(high.to_bits()) << 32;
                heard.waits.insert((rank, number), turn);
            } else {
                let missing = missing.iter().map(|member| member.to_bits() as usize);
                heard.missing.insert(number, missing.collect());
            }
        }
    }
}

/// A communicator and its watchdog.
pub(super) struct Shared {
    pub communicator: Communicator,
    pub cuda: Arc<Cuda>,
    pub roster: Roster,
    pub rank: usize,
    /// Number of the group among those of its ranks.
    pub number: u32,
    pub control: Arc<Control>,
    pub progress: Mutex<Progress>,
}

/// A collective on its way.
struct Flying {
    op: &'static str,
    turn: u64,
    done: Event,
}

#[derive(Default)]
pub(super) struct Progress {
    turn: u64,
    flying: VecDeque<Flying>,
    /// When the first of them became the first.
    since: Option<Instant>,
    /// A member that has ended, and when that was seen.
    gone: Option<(usize, Instant)>,
    /// Last turn that was reported to the others.
    told: u64,
    failed: Option<Error>,
}

impl Progress {
    /// Forgets collectives that are done. The deadline of the next runs from now, as nobody saw the end of the last.
    fn forget_done(&mut self) {
        while self
            .flying
            .front()
            .is_some_and(|first| first.done.is_done())
        {
            self.flying.pop_front();
            self.since = Some(Instant::now());
            self.gone = None;
        }
    }
}

impl Shared {
    /// Waits until NCCL has queued all calls.
    pub(super) fn settle(&self, op: &'static str) -> Result<()> {
        let began = Instant::now();
        loop {
            match self.communicator.state() {
                Ok(State::Ready) => return Ok(()),
                Ok(State::InProgress) => {}
                Err(error) => return Err(self.fail(&mut lock(&self.progress), op, error)),
            }
            let ended = self.ended();
            let over = self.overdue(op);
            if let Some(error) = over.or(ended.map(|member| self.gone(member, op))) {
                return Err(self.fail(&mut lock(&self.progress), op, error));
            }
            let timeout = self.roster.watch.timeout();
            if timeout.is_some_and(|timeout| began.elapsed() > timeout) {
                let late = self.roster.late(op, self.rank, &self.others());
                return Err(self.fail(&mut lock(&self.progress), op, late));
            }
            thread::sleep(PAUSE);
        }
    }

    fn others(&self) -> Vec<usize> {
        let all = 0..self.roster.members.len();
        all.filter(|&member| member != self.rank).collect()
    }

    /// A member that has ended. Also reads the messages of all others.
    fn ended(&self) -> Option<usize> {
        let has_ended = |member: &usize| self.control.read(self.roster.members[*member]);
        let ended: Vec<usize> = self.others().into_iter().filter(has_ended).collect();
        ended.first().copied()
    }

    /// The error of a wait for a member that has ended, by its world rank.
    fn gone(&self, member: usize, op: &'static str) -> Error {
        Error::PeerGone {
            rank: self.roster.members[member],
            op,
        }
    }

    /// The error of a wait that another member ended first.
    fn overdue(&self, op: &'static str) -> Option<Error> {
        let heard = lock(&self.control.heard);
        let missing = heard.missing.get(&self.number)?;
        // the one that was missed finds the others gone
        (!missing.contains(&self.rank)).then(|| self.roster.late(op, self.rank, missing))
    }

    fn heard(&self, member: usize) -> u64 {
        let key = (self.roster.members[member], self.number);
        lock(&self.control.heard)
            .waits
            .get(&key)
            .copied()
            .unwrap_or(0)
    }

    /// Reports to the other members that this rank waits for a turn, or did and missed some.
    fn tell(&self, turn: u64, missing: &[usize]) {
        let word = |bits: u64| f32::from_bits(u32::try_from(bits & 0xffff_ffff).unwrap_or(0));
        let mut message = vec![f32::from_bits(self.number), word(turn), word(turn >> 32)];
        message.extend(missing.iter().map(|&member| word(member as u64)));
        for member in self.others() {
            let rank = self.roster.members[member];
            // one that has ended is found by `ended`
            let _ = self.control.world.send(rank, &message);
        }
    }

    /// Aborts the communicator for good. Returns the error that all later calls have.
    fn fail(&self, progress: &mut Progress, op: &'static str, error: Error) -> Error {
        let error = match error {
            Error::Driver { .. } => self.behind(op).unwrap_or(error),
            error => error,
        };
        self.communicator.abort();
        progress.failed.get_or_insert(error).clone()
    }

    /// The end of a member, or of its wait, that is behind an error of NCCL.
    fn behind(&self, op: &'static str) -> Option<Error> {
        let began = Instant::now();
        while began.elapsed() < WORDS {
            let ended = self.ended();
            let found = self.overdue(op);
            let found = found.or(ended.map(|member| self.gone(member, op)));
            if found.is_some() {
                return found;
            }
            thread::sleep(Duration::from_millis(5));
        }
        None
    }

    /// Queues calls in the thread's stream, after what it was given.
    pub(super) fn queue(&self, op: &'static str, calls: &[Call]) -> Result<()> {
        if calls.is_empty() {
            // ranks count the same turns
            lock(&self.progress).turn += 1;
            return Ok(());
        }
        if let Some(error) = &lock(&self.progress).failed {
            return Err(error.clone());
        }
        if let Err(error) = self.communicator.queue(calls) {
            return Err(self.fail(&mut lock(&self.progress), op, error));
        }
        self.settle(op)?;
        let done = self.cuda.record()?;
        let mut progress = lock(&self.progress);
        progress.turn += 1;
        let turn = progress.turn;
        // else the deadline of a send that hangs would run from the host's next wait
        progress.forget_done();
        if progress.flying.is_empty() {
            progress.since = Some(Instant::now());
        }
        progress.flying.push_back(Flying { op, turn, done });
        Ok(())
    }
}

impl Watched for Shared {
    fn check(&self) -> Result<()> {
        let mut progress = lock(&self.progress);
        if let Some(error) = &progress.failed {
            return Err(error.clone());
        }
        progress.forget_done();
        let Some(&Flying { op, turn, .. }) = progress.flying.front() else {
            return Ok(());
        };
        if let Err(error) = self.communicator.state() {
            return Err(self.fail(&mut progress, op, error));
        }
        let ended = self.ended();
        if let Some(error) = self.overdue(op) {
            return Err(self.fail(&mut progress, op, error));
        }
        if let Some(member) = ended {
            let (member, seen) = *progress.gone.get_or_insert((member, Instant::now()));
            if seen.elapsed() > GRACE {
                let gone = self.gone(member, op);
                return Err(self.fail(&mut progress, op, gone));
            }
        }
        let (Some(timeout), Some(since)) = (self.roster.watch.timeout(), progress.since) else {
            return Ok(());
        };
        let waits = |member: &usize| self.heard(*member) >= turn;
        let others = self.others();
        let is_asked = since.elapsed() > timeout / 2 || others.iter().any(waits);
        if is_asked && progress.told < turn {
            progress.told = turn;
            self.tell(turn, &[]);
        }
        if since.elapsed() <= timeout {
            return Ok(());
        }
        let missing: Vec<usize> = others.iter().copied().filter(|one| !waits(one)).collect();
        let missing = match missing.is_empty() {
            true => others,
            false => missing,
        };
        self.tell(turn, &missing);
        let late = self.roster.late(op, self.rank, &missing);
        Err(self.fail(&mut progress, op, late))
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // what is on its way may be what another rank waits for
        let began = Instant::now();
        while !self.communicator.is_aborted() && began.elapsed() < WORDS {
            match self.check() {
                Ok(()) if !lock(&self.progress).flying.is_empty() => thread::sleep(PAUSE),
                _ => break,
            }
        }
    }
}
