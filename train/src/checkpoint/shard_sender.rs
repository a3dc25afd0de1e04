//! Sends this process's checkpoint shards to process 0, which writes whole files, and waits for its
//! acknowledgement. Process 0 requests one part after the other, in the order in which the files need them, and at
//! most one part is in flight: for any model and number of processes, process 0 holds a few parts
//! (`TRANSFER_BYTES`) beside the copies of its own ranks. Every part's length follows from the plan, so only
//! numbers are sent. At most one checkpoint is in flight, as within a process.
//!
//! With sharded checkpoints, each process writes its own ranks' files once process 0 has made the folder, and sends
//! process 0 their checksums, which seal the folder.

use std::collections::VecDeque;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use kernels::comm::Collective;

use crate::checkpoint::safetensors::Digest;
use crate::checkpoint::snapshot::{Pieces, lengths};
use crate::checkpoint::write_shards::{Form, all_shards};
use crate::dist::mesh::RankCoord;
use crate::error::{Error, Result};

/// Names and checksums of files.
type Digests = Vec<(String, Digest)>;

/// Elements of a part, the unit of transfer: 4 MB, some tens of times the data that a network holds in flight.
const PART: usize = 1 << 20;
/// Maximum number of bytes of parts that a process holds in flight: one in the transport, one being written or
/// read, and over MPI a copy of each.
pub(crate) const TRANSFER_BYTES: usize = 4 * 4 * PART;
/// Sent instead of a rank's number: no more parts of this checkpoint are needed.
const DONE: f32 = -1.0;

/// One process's endpoint: a member of three groups, each with one member per process.
pub(crate) struct ShardSender {
    /// Signals that a process's ranks have handed over their shares.
    ready: Box<dyn Collective>,
    /// Requests (a rank's number) for its next part, and the parts in return.
    parts: Arc<dyn Collective>,
    /// Folder to write shards into, and the checksums in return.
    orders: Box<dyn Collective>,
    ranks_per_process: usize,
}

impl ShardSender {
    /// `connect` makes a group of all processes; None if there is one alone.
    pub(crate) fn new(
        connect: impl Fn(&'static str) -> Option<Box<dyn Collective>>,
        ranks_per_process: usize,
    ) -> Option<ShardSender> {
        let ready = connect("checkpoint")?;
        let parts = connect("checkpoint parts")?;
        let orders = connect("shards")?;
        Some(ShardSender {
            ready,
            parts: parts.into(),
            orders,
            ranks_per_process,
        })
    }

    /// The other processes.
    pub(crate) fn others(&self) -> Range<usize> {
        1..self.ready.size()
    }

    /// World ranks of a process.
    fn ranks(&self, process: usize) -> Range<usize> {
        let first = process * self.ranks_per_process;
        first..first + self.ranks_per_process
    }

    /// Ranks of this process.
    pub(crate) fn ranks_here(&self) -> Range<usize> {
        self.ranks(self.ready.rank())
    }

    /// Sends process 0 the shares of this process's ranks as it requests them, or writes them to shards, and waits
    /// until the checkpoint was tried; None if process 0 has ended.
    pub(crate) fn bring(&self, form: &Form<'_>, given: &mut [Pieces]) -> Option<()> {
        // replicas have no shares, but must be waited for
        self.ready.send(0, &[1.0]).ok()?;
        if form.plan.train.checkpoint.sharded {
            self.obey(form, given)?;
        }
        let mut shares: Vec<Sent<'_>> = given.iter_mut().map(Sent::of).collect();
        loop {
            let mut asked = [0.0];
            self.parts.recv(0, &mut asked).ok()?;
            if asked[0] < 0.0 {
                return Some(());
            }
            let part = shares.get_mut(whole(asked[0]))?.next()?;
            self.parts.send(0, part).ok()?;
        }
    }

    /// Writes shards into the folder that process 0 names, if any, and reports the result to it.
    fn obey(&self, form: &Form<'_>, given: &mut [Pieces]) -> Option<()> {
        let name = self.hear(0)?;
        if name.is_empty() {
            return Some(());
        }
        let written = all_shards(
            form,
            (self.ranks_here().start, given),
            &form.folder.join(name),
        );
        let told: Result<Digests, String> = written.map_err(|error| error.with_causes());
        let text = serde_json::to_string(&told).expect("names and numbers");
        self.say(0, &text)
    }

    /// Orders the other processes to write their shards into a folder, or reports that there is none.
    pub(crate) fn order(&self, partial: Option<&Path>) {
        let name = partial
            .and_then(Path::file_name)
            .and_then(|name| name.to_str());
        for process in self.others() {
            // a process that has ended is noticed when its answer is due
            let _ = self.say(process, name.unwrap_or_default());
        }
    }

    /// Checksums of the shards that the other processes wrote.
    pub(crate) fn collect(&self) -> Result<Digests> {
        let mut digests = Vec::new();
        let mut failure = None;
        for process in self.others() {
            let told = self.hear(process);
            let told: Option<Result<Digests, String>> =
                told.and_then(|text| serde_json::from_str(&text).ok());
            match told.unwrap_or_else(|| Err("it is gone".into())) {
                Ok(files) => digests.extend(files),
                Err(reason) => failure = Some((process, reason)),
            }
        }
        match failure {
            None => Ok(digests),
            Some((process, reason)) => Err(Error::Peer {
                who: format!("process {process}"),
                reason: format!("did not write its shards: {reason}"),
            }),
        }
    }

    /// Sends a text as numbers, its length first.
    fn say(&self, process: usize, text: &str) -> Option<()> {
        // 24 bits are exact: lists of files are far shorter than 16 MB
        let bytes: Vec<f32> = text.bytes().map(f32::from).collect();
        self.orders.send(process, &[bytes.len() as f32]).ok()?;
        self.orders.send(process, &bytes).ok()
    }

    fn hear(&self, process: usize) -> Option<String> {
        let mut len = [0.0];
        self.orders.recv(process, &mut len).ok()?;
        let mut numbers = vec![0.0; whole(len[0])];
        self.orders.recv(process, &mut numbers).ok()?;
        let bytes = numbers
            .into_iter()
            .map(|x| u8::try_from(whole(x)).unwrap_or(b'?'));
        String::from_utf8(bytes.collect()).ok()
    }

    /// Waits until a process's ranks have handed over their shares, and returns iterators that request the parts as
    /// they are consumed; None if the process has ended.
    pub(crate) fn take(&self, form: &Form<'_>, process: usize) -> Option<Vec<(usize, Pieces)>> {
        self.ready.recv(process, &mut [0.0]).ok()?;
        let of_rank = |(index, rank)| {
            if form.plan.train.checkpoint.sharded {
                return (rank, Pieces::default());
            }
            let place = RankCoord::of(rank, &form.plan.parallel);
            let lengths = lengths(form.plan, (form.specs, &form.shards), &place);
            let pieces = Asked {
                parts: Arc::clone(&self.parts),
                process,
                index: index as f32,
                lengths: lengths.into_iter().flat_map(part_lengths).collect(),
            };
            (rank, Pieces::of(pieces))
        };
        Some(self.ranks(process).enumerate().map(of_rank).collect())
    }

    /// Acknowledges to the other processes that a checkpoint was tried.
    pub(crate) fn tell(&self) {
        for process in self.others() {
            // a process that has ended need not receive it
            let _ = self.parts.send(process, &[DONE]);
        }
    }
}

/// Elements of the parts of a share, one at least.
fn part_lengths(share: usize) -> impl Iterator<Item = usize> {
    let count = share.div_ceil(PART).max(1);
    (0..count).map(move |part| PART.min(share - part * PART))
}

/// A rank's shares that are sent part by part.
struct Sent<'a> {
    shares: &'a mut Pieces,
    /// The share that is being cut into parts, and the range of it that is left.
    share: Vec<f32>,
    left: Range<usize>,
}

impl Sent<'_> {
    fn of(shares: &mut Pieces) -> Sent<'_> {
        Sent {
            shares,
            share: Vec::new(),
            left: 0..0,
        }
    }

    fn next(&mut self) -> Option<&[f32]> {
        if self.left.is_empty() {
            // the one before is freed first
            self.share = Vec::new();
            self.share = self.shares.next()?;
            self.left = 0..self.share.len();
        }
        let end = self.left.end.min(self.left.start + PART);
        let part = &self.share[self.left.start..end];
        self.left.start = end;
        Some(part)
    }
}

/// A rank's shares in another process, in one or more parts each, requested one by one.
struct Asked {
    parts: Arc<dyn Collective>,
    process: usize,
    /// Index of the rank among those of its process.
    index: f32,
    lengths: VecDeque<usize>,
}

impl Iterator for Asked {
    type Item = Vec<f32>;

    /// None after the last part, or if the process is gone.
    fn next(&mut self) -> Option<Vec<f32>> {
        let mut part = vec![0.0; self.lengths.pop_front()?];
        self.parts.send(self.process, &[self.index]).ok()?;
        self.parts.recv(self.process, &mut part).ok()?;
        Some(part)
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a length or a byte"
)]
fn whole(x: f32) -> usize {
    x as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_add_up_to_their_share_and_none_is_longer_than_announced() {
        for share in [0, 1, PART - 1, PART, PART + 1, 3 * PART, 3 * PART + 5] {
            let lengths: Vec<usize> = part_lengths(share).collect();
            assert_eq!(lengths.iter().sum::<usize>(), share);
            assert!(!lengths.is_empty() && lengths.iter().all(|len| *len <= PART));
            let shares = [vec![7.0; 3], vec![1.5; share], vec![2.5; 1]];
            let mut pieces = Pieces::of(shares.clone().into_iter());
            let mut sent = Sent::of(&mut pieces);
            for share in shares {
                let mut joined = Vec::new();
                for len in part_lengths(share.len()) {
                    let part = sent.next().unwrap();
                    assert_eq!(part.len(), len);
                    joined.extend_from_slice(part);
                }
                assert!(joined == share);
            }
            assert!(sent.next().is_none());
        }
    }
}
