//! Collectives over several processes. Each is one or two direct exchanges: every member sends every other its part
//! and waits for theirs; sums are then computed in the tree, so that the bits are those of threads.
//!
//! A long sum is a reduce-scatter (each member receives the others' numbers of its own share and adds them)
//! followed by an all-gather of the shares: 2 (n - 1) / n of the numbers leave and enter each member, as in a ring,
//! in two rounds instead of 2 (n - 1). Data for several members of one process is sent there once.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::frame::{EVERYONE, Header, Kind, Payload};
use super::mailbox::{Inbox, Message};
use super::sum::{SHARED_FROM, largest, tree_sum};
use super::watchdog::Roster;
use super::wire::Shared;
use super::{Collective, Take, check_cuts, check_parts, check_peer};
use crate::{Error, Result};

/// State shared by the members of a group.
pub(super) struct Member {
    pub number: u32,
    pub roster: Roster,
    /// Process of each member.
    pub homes: Vec<usize>,
}

/// One member of such a group.
pub(super) struct Remote {
    rank: usize,
    group: Arc<Member>,
    network: Arc<Shared>,
    inbox: Arc<Inbox>,
    /// Other members in this process.
    beside: Vec<(usize, Arc<Inbox>)>,
    /// Other processes with members.
    processes: Vec<usize>,
    turn: AtomicU64,
}

/// A member's contribution.
enum Given {
    Same(Payload),
    /// By member.
    Parts(Vec<Payload>),
}

fn narrow(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(EVERYONE)
}

impl Remote {
    /// The members `here` of a group.
    pub(super) fn all(network: &Arc<Shared>, group: Member, here: &[usize]) -> Vec<Remote> {
        let numbers: Vec<u32> = here.iter().map(|&member| narrow(member)).collect();
        let inboxes = network.mailbox.open(group.number, &numbers);
        let mut processes = group.homes.clone();
        processes.sort_unstable();
        processes.dedup();
        processes.retain(|&process| process != network.process);
        let group = Arc::new(group);
        let all: Vec<(usize, Arc<Inbox>)> = here.iter().copied().zip(inboxes).collect();
        let member = |(rank, inbox): &(usize, Arc<Inbox>)| Remote {
            rank: *rank,
            group: Arc::clone(&group),
            network: Arc::clone(network),
            inbox: Arc::clone(inbox),
            beside: all
                .iter()
                .filter(|(other, _)| other != rank)
                .cloned()
                .collect(),
            processes: processes.clone(),
            turn: AtomicU64::new(0),
        };
        all.iter().map(member).collect()
    }

    fn header(&self, kind: Kind, op: &'static str, to: u32) -> Header {
        Header {
            kind,
            op,
            group: self.group.number,
            from: narrow(self.rank),
            to,
            turn: self.turn.load(Ordering::Relaxed),
            whole: 0,
        }
    }

    /// Delivers a frame to a member's inbox, in this process or another.
    fn send_to(&self, to: usize, header: &Header, payload: Payload) {
        let home = self.group.homes[to];
        match self.beside.iter().find(|(other, _)| *other == to) {
            Some((_, inbox)) => inbox.put(header, payload),
            None if to == self.rank => self.inbox.put(header, payload),
            None => self.network.wire.send(home, header, &payload),
        }
    }

    /// Like `send_to`, to all others.
    fn send_to_all(&self, header: &Header, payload: &Payload) {
        // each member begins with its successor, so that not all send to the first at once
        let start = self
            .processes
            .partition_point(|&process| process < self.network.process);
        for at in 0..self.processes.len() {
            let process = self.processes[(start + at) % self.processes.len()];
            self.network.wire.send(process, header, payload);
        }
        for (_, inbox) in &self.beside {
            inbox.put(header, payload.clone());
        }
    }

    /// Contributes this member's part of a call with `whole` elements in total, and returns every member's.
    fn exchange(&self, op: &'static str, whole: usize, given: Given) -> Result<Vec<Message>> {
        let size = self.size();
        let mut header = self.header(Kind::Turn, op, EVERYONE);
        header.whole = whole as u64;
        let own = match given {
            Given::Same(payload) => {
                self.send_to_all(&header, &payload);
                payload
            }
            Given::Parts(mut parts) => {
                for step in 1..size {
                    let to = (self.rank + step) % size;
                    header.to = narrow(to);
                    self.send_to(
                        to,
                        &header,
                        std::mem::replace(&mut parts[to], Payload::none()),
                    );
                }
                parts.swap_remove(self.rank)
            }
        };
        self.turn.fetch_add(1, Ordering::Relaxed);
        let messages = self.collect(
            op,
            Message {
                op,
                whole: whole as u64,
                payload: own,
            },
        )?;
        match messages
            .iter()
            .position(|message| message.op != messages[0].op)
        {
            None => Ok(messages),
            Some(other) => Err(Error::Calls {
                rank: 0,
                op: messages[0].op,
                other,
                other_op: messages[other].op,
            }),
        }
    }

    /// Waits for the others' parts of a turn.
    fn collect(&self, op: &'static str, own: Message) -> Result<Vec<Message>> {
        let (size, deadline) = (self.size(), self.group.roster.deadline());
        let mut queues = self.inbox.queues();
        loop {
            let others = (0..size).filter(|&from| from != self.rank);
            let is_there = |from: &usize| queues.get(from).is_some_and(|q| !q.turns.is_empty());
            let missing: Vec<usize> = others.filter(|from| !is_there(from)).collect();
            if missing.is_empty() {
                break;
            }
            let is_gone = |from: &usize| queues.get(from).is_some_and(|q| q.is_gone);
            let is_lost = |from: &&usize| {
                is_gone(from) || self.network.mailbox.is_gone(self.group.homes[**from])
            };
            if let Some(&rank) = missing.iter().find(is_lost) {
                return Err(Error::PeerGone { rank, op });
            }
            let Some(changed) = self.inbox.wait(queues, deadline) else {
                return Err(self.group.roster.late(op, self.rank, &missing));
            };
            queues = changed;
        }
        let mut own = Some(own);
        let messages = (0..size).map(|from| {
            let sent = queues
                .get_mut(&from)
                .and_then(|queue| queue.turns.pop_front());
            sent.or_else(|| own.take())
                .expect("every member's part is there")
        });
        Ok(messages.collect())
    }

    /// Like `exchange`, for calls that must have equally many elements on every member.
    fn exchange_alike(&self, op: &'static str, whole: usize, given: Given) -> Result<Vec<Message>> {
        let messages = self.exchange(op, whole, given)?;
        let len = messages[0].whole;
        let count = |x: u64| usize::try_from(x).unwrap_or(usize::MAX);
        match messages.iter().position(|message| message.whole != len) {
            None => Ok(messages),
            Some(other) => Err(Error::Lengths {
                op,
                rank: 0,
                len: count(len),
                other,
                other_len: count(messages[other].whole),
            }),
        }
    }

    /// Writes the tree sum of this member's range.
    fn scattered(
        &self,
        op: &'static str,
        x: &[f32],
        cuts: &[usize],
        sum: &mut [f32],
    ) -> Result<()> {
        let part = |to: usize| Payload::F32(Arc::new(x[cuts[to]..cuts[to + 1]].to_vec()));
        let parts = (0..self.size()).map(part).collect();
        let messages = self.exchange_alike(op, x.len(), Given::Parts(parts))?;
        self.add(op, sum, &messages)
    }

    fn add(&self, op: &'static str, sum: &mut [f32], messages: &[Message]) -> Result<()> {
        let parts: Vec<&[f32]> = messages
            .iter()
            .map(|message| message.payload.f32())
            .collect();
        let wrong = parts.iter().position(|part| part.len() != sum.len());
        if let Some(other) = wrong {
            let (rank, len, other_len) = (self.rank, sum.len(), parts[other].len());
            return Err(Error::Lengths {
                op,
                rank,
                len,
                other,
                other_len,
            });
        }
        tree_sum(sum, &parts);
        Ok(())
    }

    /// Maximum number of messages of one member that wait here.
    #[cfg(test)]
    pub(super) fn waiting(&self) -> usize {
        let queues = self.inbox.queues();
        queues
            .values()
            .map(|queue| queue.turns.len())
            .max()
            .unwrap_or(0)
    }

    /// Every member's text.
    pub(super) fn exchange_text(&self, text: &str) -> Result<Vec<String>> {
        let payload = Payload::Bytes(Arc::new(text.as_bytes().to_vec()));
        let messages = self.exchange("exchange", 0, Given::Same(payload))?;
        let text =
            |message: &Message| String::from_utf8_lossy(message.payload.bytes()).into_owned();
        Ok(messages.iter().map(text).collect())
    }
}

fn same(x: &[f32]) -> Given {
    Given::Same(Payload::F32(Arc::new(x.to_vec())))
}

impl Collective for Remote {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.group.homes.len()
    }

    fn all_reduce_sum(&self, x: &mut [f32]) -> Result<()> {
        const OP: &str = "all_reduce_sum";
        let size = self.size();
        if x.len() < SHARED_FROM {
            let messages = self.exchange_alike(OP, x.len(), same(x))?;
            return self.add(OP, x, &messages);
        }
        let share = x.len().div_ceil(size);
        let cuts: Vec<usize> = (0..=size).map(|r| x.len().min(r * share)).collect();
        let mut sum = vec![0.0; cuts[self.rank + 1] - cuts[self.rank]];
        self.scattered(OP, x, &cuts, &mut sum)?;
        let sums = self.exchange_alike(OP, x.len(), same(&sum))?;
        for (x, sum) in x.chunks_mut(share).zip(sums) {
            x.copy_from_slice(sum.payload.f32());
        }
        Ok(())
    }

    fn reduce_scatter_sum(&self, x: &[f32], cuts: &[usize], out: &mut [f32]) -> Result<()> {
        check_cuts(self, x, cuts, out)?;
        self.scattered("reduce_scatter_sum", x, cuts, out)
    }

    fn all_reduce_max(&self, x: &mut [f32]) -> Result<()> {
        let messages = self.exchange_alike("all_reduce_max", x.len(), same(x))?;
        largest(x, messages.iter().map(|message| message.payload.f32()));
        Ok(())
    }

    fn all_gather_to(&self, x: &[f32], take: &mut Take<'_>) -> Result<()> {
        let messages = self.exchange("all_gather", x.len(), same(x))?;
        for (member, message) in messages.iter().enumerate() {
            take(member, 0, message.payload.f32());
        }
        Ok(())
    }

    fn all_gather_f64(&self, x: &[f64]) -> Result<Vec<Vec<f64>>> {
        let given = Given::Same(Payload::F64(Arc::new(x.to_vec())));
        let messages = self.exchange("all_gather_f64", x.len(), given)?;
        Ok(messages
            .iter()
            .map(|message| message.payload.f64().to_vec())
            .collect())
    }

    fn all_to_all(&self, parts: Vec<Vec<f32>>) -> Result<Vec<Vec<f32>>> {
        check_parts(parts.len(), self.size())?;
        let parts = parts.into_iter().map(|part| Payload::F32(Arc::new(part)));
        let messages = self.exchange("all_to_all", 0, Given::Parts(parts.collect()))?;
        Ok(messages
            .iter()
            .map(|message| message.payload.f32().to_vec())
            .collect())
    }

    fn broadcast(&self, x: &mut [f32], root: usize) -> Result<()> {
        check_peer(self, "broadcast", "root", root)?;
        let given = match self.rank == root {
            true => same(x),
            false => Given::Same(Payload::none()),
        };
        let messages = self.exchange_alike("broadcast", x.len(), given)?;
        x.copy_from_slice(messages[root].payload.f32());
        Ok(())
    }

    fn send(&self, to: usize, x: &[f32]) -> Result<()> {
        check_peer(self, "send", "to", to)?;
        let header = self.header(Kind::Mail, "exchange", narrow(to));
        self.send_to(to, &header, Payload::F32(Arc::new(x.to_vec())));
        Ok(())
    }

    fn recv(&self, from: usize, x: &mut [f32]) -> Result<()> {
        const OP: &str = "recv";
        check_peer(self, OP, "from", from)?;
        let deadline = self.group.roster.deadline();
        let mut queues = self.inbox.queues();
        let message = loop {
            let queue = queues.entry(from).or_default();
            if let Some(message) = queue.mail.pop_front() {
                break message;
            }
            if queue.is_gone || self.network.mailbox.is_gone(self.group.homes[from]) {
                return Err(Error::PeerGone { rank: from, op: OP });
            }
            let Some(changed) = self.inbox.wait(queues, deadline) else {
                return Err(self.group.roster.late(OP, self.rank, &[from]));
            };
            queues = changed;
        };
        drop(queues);
        if message.f32().len() != x.len() {
            let (rank, len, other_len) = (self.rank, x.len(), message.f32().len());
            return Err(Error::Lengths {
                op: OP,
                rank,
                len,
                other: from,
                other_len,
            });
        }
        x.copy_from_slice(message.f32());
        Ok(())
    }

    fn poll(&self, from: usize) -> Result<Option<Vec<f32>>> {
        check_peer(self, "poll", "from", from)?;
        let mut queues = self.inbox.queues();
        let queue = queues.entry(from).or_default();
        if let Some(message) = queue.mail.pop_front() {
            return Ok(Some(message.f32().to_vec()));
        }
        match queue.is_gone || self.network.mailbox.is_gone(self.group.homes[from]) {
            true => Err(Error::PeerGone {
                rank: from,
                op: "poll",
            }),
            false => Ok(None),
        }
    }

    fn barrier(&self) -> Result<()> {
        self.exchange("barrier", 0, Given::Same(Payload::none()))
            .map(drop)
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        self.network
            .mailbox
            .shut(self.group.number, narrow(self.rank));
        self.send_to_all(
            &self.header(Kind::Gone, "exchange", EVERYONE),
            &Payload::none(),
        );
    }
}
