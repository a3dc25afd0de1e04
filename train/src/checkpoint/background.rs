//! A thread that writes checkpoints while training goes on: ranks give copies of what they hold and
//! take the next step. At most one checkpoint is under way: copies for the next are made only when
//! it is done, so memory is bounded by one copy of weights and moments over all ranks; the last one, for
//! which ranks wait, copies a tensor at a time.
//!
//! A checkpoint that cannot be written (a full disk) is told and does not end the run: the one
//! before it stays, and the next is tried again. Of several processes, 0 writes, and the others bring it
//! what their ranks gave, or, sharded, each writes its own (`courier.rs`). Idea: Mohan et al. 2021 (CheckFreq), FAST '21; we
//! differ in that the copy is never partial.

use std::ops::Range;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use crate::checkpoint::shard_sender::ShardSender;
use crate::checkpoint::snapshot::Pieces;
use crate::checkpoint::state::State;
use crate::checkpoint::write;
use crate::checkpoint::write_shards::Form;
use crate::error::Result;
use crate::metrics::Journal;

/// What one rank gives for one checkpoint.
struct Given {
    rank: usize,
    pieces: Pieces,
    /// From rank 0.
    state: Option<State>,
}

/// A checkpoint that was tried.
pub(crate) struct Tried {
    pub step: u64,
    /// Its folder, or why there is none.
    pub result: Result<PathBuf>,
}

#[derive(Default)]
struct Progress {
    /// Checkpoints tried, those of this run counted from 1.
    count: usize,
    tried: Vec<Tried>,
    /// No more will be.
    is_over: bool,
}

/// How far the thread is.
#[derive(Default)]
struct Gate {
    progress: Mutex<Progress>,
    changed: Condvar,
}

impl Gate {
    // nothing is left half done between two fields of it
    fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One more was tried.
    fn count(&self, tried: Option<Tried>) {
        let mut progress = self.progress();
        progress.count += 1;
        progress.tried.extend(tried);
        self.changed.notify_all();
    }

    /// Waits until so many checkpoints were tried.
    fn wait(&self, count: usize) {
        let mut progress = self.progress();
        while progress.count < count && !progress.is_over {
            progress = (self.changed.wait(progress)).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// One rank's end.
pub(crate) struct CheckpointWriter {
    jobs: Sender<Given>,
    gate: Arc<Gate>,
    /// Checkpoints that this rank gave its part of.
    count: usize,
}

/// The thread's end.
pub(crate) struct Background {
    inbox: Receiver<Given>,
    gate: Arc<Gate>,
    /// For parts from other processes.
    jobs: Sender<Given>,
}

/// Ends for so many ranks, and the thread's.
pub(crate) fn ends(world: usize) -> (Vec<CheckpointWriter>, Background) {
    let (jobs, inbox) = channel();
    let gate = Arc::new(Gate::default());
    let checkpoint_writer = |_| CheckpointWriter {
        jobs: jobs.clone(),
        gate: Arc::clone(&gate),
        count: 0,
    };
    let givers = (0..world).map(checkpoint_writer).collect();
    (givers, Background { inbox, gate, jobs })
}

impl CheckpointWriter {
    /// Waits until no checkpoint is under way; copies for the next one may then be made.
    pub(crate) fn wait(&self) {
        self.gate.wait(self.count);
    }

    /// Hands this rank's part over. If the thread is gone, so is the run: its end tells why.
    pub(crate) fn give(&mut self, rank: usize, pieces: Pieces, state: Option<State>) {
        self.count += 1;
        let _ = self.jobs.send(Given {
            rank,
            pieces,
            state,
        });
    }

    /// What was tried since the last call.
    pub(crate) fn tried(&self) -> Vec<Tried> {
        std::mem::take(&mut self.gate.progress().tried)
    }

    /// Waits for the last one that this rank took part in, and returns what was tried.
    pub(crate) fn finish(self) -> Vec<Tried> {
        let CheckpointWriter { jobs, gate, count } = self;
        // a rank that failed gives nothing: the thread must not wait for this one as well
        drop(jobs);
        gate.wait(count);
        std::mem::take(&mut gate.progress().tried)
    }
}

impl Background {
    /// Writes what ranks give, those of other processes by courier, until the last of them is gone.
    pub(crate) fn serve(self, form: &Form<'_>, sender: Option<&ShardSender>, metrics: &Journal) {
        let Background { inbox, gate, jobs } = self;
        let _end = AtEnd(&gate);
        thread::scope(|scope| {
            for (sender, process) in sender
                .into_iter()
                .flat_map(|c| c.others().map(move |p| (c, p)))
            {
                let jobs = jobs.clone();
                scope.spawn(move || receive(form, sender, process, &jobs));
            }
            // the threads and the ranks hold what they need of it
            drop(jobs);
            while let Some((state, mut given)) = gather(&inbox, 0..form.plan.parallel.world()) {
                let state = state.expect("rank 0 gives the state");
                // lines of steps that a checkpoint relies on are on the disk before it
                let result = match metrics.sync() {
                    Ok(()) => write::write(form, &state, &mut given, sender),
                    Err(error) => {
                        if form.plan.train.checkpoint.sharded {
                            sender.into_iter().for_each(|sender| sender.order(None));
                        }
                        Err(error)
                    }
                };
                let step = state.train_state.step;
                gate.count(Some(Tried { step, result }));
                sender.into_iter().for_each(ShardSender::tell);
            }
        });
    }

    /// Brings what ranks give to process 0 until the last of them is gone, or process 0 is.
    pub(crate) fn forward(self, form: &Form<'_>, sender: &ShardSender) {
        let Background { inbox, gate, jobs } = self;
        let _end = AtEnd(&gate);
        drop(jobs);
        while let Some((_, mut given)) = gather(&inbox, sender.ranks_here()) {
            if sender.bring(form, &mut given).is_none() {
                return;
            }
            gate.count(None);
        }
    }
}

/// What each of the ranks gave for a checkpoint; None if one of them is gone.
fn gather(inbox: &Receiver<Given>, ranks: Range<usize>) -> Option<(Option<State>, Vec<Pieces>)> {
    let mut given: Vec<Pieces> = ranks.clone().map(|_| Pieces::default()).collect();
    let mut state = None;
    for _ in ranks.clone() {
        let part = inbox.recv().ok()?;
        given[part.rank - ranks.start] = part.pieces;
        state = state.or(part.state);
    }
    Some((state, given))
}

/// Gives what the ranks of another process sent, until it is gone.
fn receive(form: &Form<'_>, sender: &ShardSender, process: usize, jobs: &Sender<Given>) {
    while let Some(parts) = sender.take(form, process) {
        for (rank, pieces) in parts {
            let state = None;
            if jobs
                .send(Given {
                    rank,
                    pieces,
                    state,
                })
                .is_err()
            {
                return;
            }
        }
    }
}

/// Lets nobody wait for a thread that has ended, be it by a panic.
struct AtEnd<'a>(&'a Gate);

impl Drop for AtEnd<'_> {
    fn drop(&mut self) {
        self.0.progress().is_over = true;
        self.0.changed.notify_all();
    }
}
