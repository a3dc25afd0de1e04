//! Sends a process's checkpoint shares to process 0, which writes whole files, and waits until the
//! checkpoint was tried. Process 0 asks for one part after the other, in the order in which files need
//! them, and at most one part is under way: however large the model and however many the processes, process
//! 0 holds a few parts of them (`TRANSFER_BYTES`) beside what its own ranks copied. Every part's length
//! follows from the plan, so nothing but numbers travels. At most one checkpoint is under way, as within a
//! process.
//!
//! Sharded, each process writes the files of its own ranks once process 0 has made the folder, and
//! process 0 gets their checksums, which seal it.

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

/// Elements of a share that travel at once: 4 MB, some tens of times what a network holds on its way.
const PART: usize = 1 << 20;
/// Most bytes of parts that a process holds on their way: one with the wire, one with whoever writes or reads
/// it, and over MPI a copy of each.
pub(crate) const TRANSFER_BYTES: usize = 4 * 4 * PART;
/// In place of a rank's number: no more parts of this checkpoint are wanted.
const DONE: f32 = -1.0;

/// One process's end; members of three groups that have a member for each process.
pub(crate) struct ShardSender {
    /// That a process's ranks have given what they have.
    ready: Box<dyn Collective>,
    /// The numbers of ranks whose next part is wanted, and the parts.
    parts: Arc<dyn Collective>,
    /// Where to write shards, and what was written.
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

    /// Gives process 0 what this process's ranks gave as it asks for it, or writes it, and waits until
    /// the checkpoint was tried; None if process 0 is gone.
    pub(crate) fn bring(&self, form: &Form<'_>, given: &mut [Pieces]) -> Option<()> {
        // replicas have nothing to give, but must be waited for
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

    /// Writes shards where process 0 says, if it does, and tells what came of it.
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

    /// Tells the other processes to write their shards into a folder, or that there is none.
    pub(crate) fn order(&self, partial: Option<&Path>) {
        let name = partial
            .and_then(Path::file_name)
            .and_then(|name| name.to_str());
        for process in self.others() {
            // whether it is there shows when it is to answer
            let _ = self.say(process, name.unwrap_or_default());
        }
    }

    /// What the other processes wrote.
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

    /// Waits until the ranks of a process have given what they have, and returns it, to be asked for as it
    /// is used; None if the process is gone.
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

    /// Tells the other processes that a checkpoint was tried.
    pub(crate) fn tell(&self) {
        for process in self.others() {
            // one that is gone need not hear it
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
    /// The share that parts are cut from, and what is left of it.
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

/// A rank's shares in another process, each in one part or more, which are asked for one by one.
struct Asked {
    parts: Arc<dyn Collective>,
    process: usize,
    /// Of the rank among those of its process.
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
