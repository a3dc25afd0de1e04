//! Mailbox: queues for frames that wait for the ranks of this process: an inbox per member of each group, with a
//! queue per sending member.
//!
//! The amount of waiting data is bounded by the callers' protocols, and no call blocks a sender. Frames of groups
//! that this process has yet to create are also bounded by number and bytes: processes create the same groups in
//! the same order within moments. Per group, these may wait:
//! - A member is at most one collective ahead of every other, since it cannot finish one without a part of each: at
//!   most two messages of each member.
//! - Messages between two ranks are those of the micro-batches that a training schedule keeps in flight, two
//!   activations of an evaluation, one part of keys and values of a ring (its receivers acknowledge it), the shared
//!   tensors of one step, and the shares of one checkpoint.

use crate::trace::{self, Label, span};
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::failure::Failure;
use super::frame::{EVERYONE, HEADER, Header, Kind, Payload};
use super::watchdog::left;

/// A member's part of a collective.
pub(super) struct Message {
    pub op: &'static str,
    pub whole: u64,
    pub payload: Payload,
}

/// Messages from one member to another.
#[derive(Default)]
pub(super) struct Queue {
    pub turns: VecDeque<Message>,
    pub mail: VecDeque<Payload>,
    pub is_gone: bool,
}

/// One member's inbox.
#[derive(Default)]
pub(super) struct Inbox {
    queues: Mutex<BTreeMap<usize, Queue>>,
    changed: Condvar,
}

pub(super) type Queues<'a> = MutexGuard<'a, BTreeMap<usize, Queue>>;

/// Locks; a panicking thread leaves the state consistent, as each change is one step.
fn held<T>(lock: &Mutex<T>) -> MutexGuard<'_, T> {
    lock.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Inbox {
    pub(super) fn queues(&self) -> Queues<'_> {
        held(&self.queues)
    }

    /// Waits for a change; None once the deadline is over.
    pub(super) fn wait<'a>(
        &self,
        queues: Queues<'a>,
        deadline: Option<Instant>,
    ) -> Option<Queues<'a>> {
        let _span = span(|| Label::new(trace::Kind::Wait, "wait"));
        let Some(left) = left(deadline) else {
            let waited = self.changed.wait(queues);
            return Some(waited.unwrap_or_else(PoisonError::into_inner));
        };
        if left.is_zero() {
            return None;
        }
        let waited = self.changed.wait_timeout(queues, left);
        Some(waited.unwrap_or_else(PoisonError::into_inner).0)
    }

    pub(super) fn put(&self, header: &Header, payload: Payload) {
        let mut queues = self.queues();
        let queue = queues.entry(header.from as usize).or_default();
        match header.kind {
            Kind::Turn => queue.turns.push_back(Message {
                op: header.op,
                whole: header.whole,
                payload,
            }),
            Kind::Mail => queue.mail.push_back(payload),
            _ => queue.is_gone = true,
        }
        drop(queues);
        self.changed.notify_all();
    }

    fn wake(&self) {
        // a thread that saw the old state under the lock is waiting by now
        drop(self.queues());
        self.changed.notify_all();
    }
}

#[derive(Default)]
struct Groups {
    /// Members here, by group.
    here: BTreeMap<u32, Vec<(u32, Arc<Inbox>)>>,
    /// Frames of groups that this process has yet to make.
    early: BTreeMap<u32, Vec<(Header, Payload)>>,
    /// Bytes of them.
    early_bytes: usize,
}

/// Limits of early frames: total bytes, and number of groups that may have some.
const MOST_EARLY_BYTES: usize = 1 << 30;
const MOST_EARLY_GROUPS: usize = 1 << 12;

/// A process's inboxes, and its knowledge of the other processes.
pub(super) struct Mailbox {
    groups: Mutex<Groups>,
    /// By process.
    gone: Vec<AtomicBool>,
    /// By process: whether it ended without a good-bye.
    died: Vec<AtomicBool>,
    /// This process has failed and no longer waits for others.
    is_over: AtomicBool,
    ends: Mutex<Ends>,
    ended: Condvar,
}

/// Ends of the other processes.
#[derive(Default)]
struct Ends {
    /// The report of a process, or the first that ended without one.
    told: Option<Failure>,
    silent: Option<Failure>,
    count: usize,
    /// Called with the first process that ends without a report.
    tell: Option<Tell>,
}

type Tell = Arc<dyn Fn(&Failure) + Send + Sync>;

impl Mailbox {
    pub(super) fn new(processes: usize) -> Mailbox {
        Mailbox {
            groups: Mutex::default(),
            gone: (0..processes).map(|_| AtomicBool::new(false)).collect(),
            died: (0..processes).map(|_| AtomicBool::new(false)).collect(),
            is_over: AtomicBool::new(false),
            ends: Mutex::default(),
            ended: Condvar::new(),
        }
    }

    /// Creates inboxes for members of a group, with frames that arrived early.
    pub(super) fn open(&self, group: u32, members: &[u32]) -> Vec<Arc<Inbox>> {
        let mut groups = held(&self.groups);
        let inboxes: Vec<_> = members
            .iter()
            .map(|&m| (m, Arc::<Inbox>::default()))
            .collect();
        let opened = inboxes.iter().map(|(_, inbox)| Arc::clone(inbox)).collect();
        for (header, payload) in groups.early.remove(&group).unwrap_or_default() {
            groups.early_bytes -= HEADER + payload.bytes().len();
            hand_out(&inboxes, &header, &payload);
        }
        groups.here.insert(group, inboxes);
        opened
    }

    /// Drops frames for a member from now on.
    pub(super) fn shut(&self, group: u32, member: u32) {
        if let Some(inboxes) = held(&self.groups).here.get_mut(&group) {
            inboxes.retain(|(other, _)| *other != member);
        }
    }

    /// Takes a frame of a group.
    ///
    /// # Errors
    /// `InvalidData` if more waits for groups that this process has yet to make than these may hold.
    pub(super) fn deliver(&self, header: Header, payload: Payload) -> std::io::Result<()> {
        let mut groups = held(&self.groups);
        if let Some(inboxes) = groups.here.get(&header.group) {
            hand_out(inboxes, &header, &payload);
            return Ok(());
        }
        let bytes = groups.early_bytes + HEADER + payload.bytes().len();
        let count = groups.early.len() + usize::from(!groups.early.contains_key(&header.group));
        if bytes > MOST_EARLY_BYTES || count > MOST_EARLY_GROUPS {
            let what = "too much for groups that do not exist yet";
            return Err(std::io::Error::new(std::io::ErrorKind::InvalidData, what));
        }
        groups.early_bytes = bytes;
        let early = groups.early.entry(header.group).or_default();
        early.push((header, payload));
        Ok(())
    }

    /// Records that a process ended: with a report, without one, or regularly.
    pub(super) fn end(&self, process: usize, told: Option<Failure>, silent: Option<Failure>) {
        let mut ends = held(&self.ends);
        ends.told = ends.told.take().or(told);
        // a process ends once: its connection closing after a report means nothing more
        self.died[process].fetch_or(silent.is_some(), Ordering::SeqCst);
        let mut tell = None;
        if !self.gone[process].swap(true, Ordering::SeqCst) {
            ends.count += 1;
            if ends.silent.is_none() {
                tell = ends.tell.clone().zip(silent.clone());
                ends.silent = silent;
            }
        }
        drop(ends);
        // done first: there may be no time for anything else
        if let Some((tell, failure)) = tell {
            tell(&failure);
        }
        self.ended.notify_all();
        self.wake_all();
    }

    /// Calls `tell` with the first process that ends without a report, even if it already has.
    pub(super) fn on_loss(&self, tell: Tell) {
        let mut ends = held(&self.ends);
        let known = ends.silent.clone();
        ends.tell = Some(Arc::clone(&tell));
        drop(ends);
        if let Some(failure) = known {
            tell(&failure);
        }
    }

    /// Whether a process has ended in any way.
    pub(super) fn has_ended(&self, process: usize) -> bool {
        self.gone[process].load(Ordering::SeqCst)
    }

    /// Whether a process ended without a good-bye, even if it reported a failure.
    pub(super) fn has_died(&self, process: usize) -> bool {
        self.died[process].load(Ordering::SeqCst)
    }

    /// This process fails: wakes all waiters.
    pub(super) fn give_up(&self) {
        self.is_over.store(true, Ordering::SeqCst);
        self.wake_all();
    }

    fn wake_all(&self) {
        let groups = held(&self.groups);
        let inboxes = groups.here.values().flatten();
        inboxes.for_each(|(_, inbox)| inbox.wake());
    }

    pub(super) fn is_gone(&self, process: usize) -> bool {
        self.gone[process].load(Ordering::SeqCst) || self.is_over.load(Ordering::SeqCst)
    }

    /// Why the run ends: a process's report, or the one that ended without a report; waits for it a moment.
    pub(super) fn cause(&self, patience: Duration) -> Option<Failure> {
        let ends = held(&self.ends);
        let until = |ends: &mut Ends| ends.told.is_none() && ends.silent.is_none();
        let waited = self.ended.wait_timeout_while(ends, patience, until);
        let ends = waited.unwrap_or_else(PoisonError::into_inner).0;
        ends.told.clone().or_else(|| ends.silent.clone())
    }

    /// Waits until all other processes have ended, with a time limit.
    pub(super) fn wait_for_all(&self, patience: Duration) {
        let others = self.gone.len() - 1;
        let ends = held(&self.ends);
        let waited = self
            .ended
            .wait_timeout_while(ends, patience, |ends| ends.count < others);
        drop(waited);
    }
}

fn hand_out(inboxes: &[(u32, Arc<Inbox>)], header: &Header, payload: &Payload) {
    for (member, inbox) in inboxes {
        if header.to == *member || header.to == EVERYONE && header.from != *member {
            inbox.put(header, payload.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(group: u32, bytes: usize) -> (Header, Payload) {
        let header = Header {
            group,
            ..Header::of(Kind::Mail)
        };
        (header, Payload::Bytes(Arc::new(vec![0; bytes])))
    }

    #[test]
    fn early_frames_are_bounded_by_bytes_and_by_groups() {
        let mailbox = Mailbox::new(2);
        let deliver = |(header, payload)| mailbox.deliver(header, payload);
        for _ in 0..3 {
            // frames that a group takes over free space for others
            for group in 0..15 {
                deliver(frame(group, 64 << 20)).unwrap();
            }
            let told = deliver(frame(15, 65 << 20)).unwrap_err();
            assert_eq!(
                told.to_string(),
                "too much for groups that do not exist yet"
            );
            for group in 0..15 {
                mailbox.open(group, &[0]);
                deliver(frame(group, 64 << 20)).unwrap();
                held(&mailbox.groups).here.remove(&group);
            }
        }
        for group in 0..u32::try_from(MOST_EARLY_GROUPS).unwrap() {
            deliver(frame(group, 1)).unwrap();
        }
        assert!(deliver(frame(u32::MAX, 1)).is_err());
        deliver(frame(0, 1)).unwrap();
    }
}
