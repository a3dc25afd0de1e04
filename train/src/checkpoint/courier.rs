//! Parts of checkpoints on their way to process 0: each other process sends what its ranks gave, share
//! by share, and hears when the checkpoint was tried. Every share's length follows from the plan, so
//! nothing but numbers travels. At most one checkpoint is under way, as within a process.
//!
//! Sharded, each process writes the files of its own ranks once process 0 has made the folder, and
//! process 0 gets their checksums, which seal it.

use std::ops::Range;
use std::path::Path;

use kernels::comm::Collective;

use crate::checkpoint::safetensors::Digest;
use crate::checkpoint::snapshot::{Pieces, lengths};
use crate::checkpoint::write::{Form, all_shards};
use crate::error::{Error, Result};
use crate::mesh::Place;

/// Names and checksums of files.
type Digests = Vec<(String, Digest)>;

/// One process's end; a member of its group for each process.
pub(crate) struct Courier {
    /// Shares, and that a checkpoint was tried.
    comm: Box<dyn Collective>,
    /// Where to write shards, and what was written.
    orders: Box<dyn Collective>,
    ranks_per_process: usize,
}

impl Courier {
    pub(crate) fn new(
        (comm, orders): (Box<dyn Collective>, Box<dyn Collective>),
        ranks_per_process: usize,
    ) -> Courier {
        Courier {
            comm,
            orders,
            ranks_per_process,
        }
    }

    /// The other processes.
    pub(crate) fn others(&self) -> Range<usize> {
        1..self.comm.size()
    }

    /// World ranks of a process.
    fn ranks(&self, process: usize) -> Range<usize> {
        let first = process * self.ranks_per_process;
        first..first + self.ranks_per_process
    }

    /// Ranks of this process.
    pub(crate) fn ranks_here(&self) -> Range<usize> {
        self.ranks(self.comm.rank())
    }

    /// Sends or writes what this process's ranks gave and waits until the checkpoint was tried; None
    /// if process 0 is gone.
    pub(crate) fn bring(&self, form: &Form<'_>, given: &mut [Pieces]) -> Option<()> {
        // replicas have nothing to give, but must be waited for
        self.comm.send(0, &[1.0]).ok()?;
        if form.plan.train.checkpoint.sharded {
            self.obey(form, given)?;
        } else {
            for piece in given.iter_mut().flatten() {
                self.comm.send(0, &piece).ok()?;
            }
        }
        self.comm.recv(0, &mut [0.0]).ok()
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

    /// Takes what the ranks of a process gave; None if the process is gone.
    pub(crate) fn take(&self, form: &Form<'_>, process: usize) -> Option<Vec<(usize, Pieces)>> {
        self.comm.recv(process, &mut [0.0]).ok()?;
        if form.plan.train.checkpoint.sharded {
            return Some(
                self.ranks(process)
                    .map(|rank| (rank, Pieces::default()))
                    .collect(),
            );
        }
        let of_rank = |rank| {
            let place = Place::of(rank, &form.plan.parallel);
            let lengths = lengths(form.plan, (form.specs, &form.shards), &place);
            let piece = |len| {
                let mut piece = vec![0.0; len];
                self.comm.recv(process, &mut piece).ok().map(|()| piece)
            };
            let pieces: Option<Vec<Vec<f32>>> = lengths.into_iter().map(piece).collect();
            pieces.map(|pieces| (rank, Pieces::of(pieces.into_iter())))
        };
        self.ranks(process).map(of_rank).collect()
    }

    /// Tells the other processes that a checkpoint was tried.
    pub(crate) fn tell(&self) {
        for process in self.others() {
            // one that is gone need not hear it
            let _ = self.comm.send(process, &[1.0]);
        }
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
