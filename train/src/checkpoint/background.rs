//! Asynchronous checkpoints: ranks copy their shares and go on with the next step while a background thread writes
//! them. At most one checkpoint is in flight. The copies for the next one are made only when it is finished, so
//! memory is bounded by one copy of weights and moments over all ranks. The last checkpoint, for which ranks wait,
//! copies one tensor at a time.
//!
//! A checkpoint that cannot be written (a full disk) is reported and does not end the run: the one before it stays,
//! and the next is tried again. With several processes, process 0 writes and the others send it their ranks'
//! shares; with sharded checkpoints each process writes its own (`shard_sender.rs`). Idea: Mohan et al. 2021
//! (CheckFreq), FAST '21; we differ in that the copy is never partial.

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

/// One rank's contribution to one checkpoint.
struct Given {
    rank: usize,
    pieces: Pieces,
    /// Sent by rank 0 only.
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
    /// The thread has ended: no more will be tried.
    is_over: bool,
}

/// Progress of the writer thread, and a condition variable to wait for it.
#[derive(Default)]
struct Gate {
    progress: Mutex<Progress>,
    changed: Condvar,
}

impl Gate {
    // a panic cannot leave its fields inconsistent
    fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts one more tried checkpoint.
    fn count(&self, tried: Option<Tried>) {
        let mut progress = self.progress();
        progress.count += 1;
        progress.tried.extend(tried);
        self.changed.notify_all();
    }

    /// Waits until this many checkpoints were tried.
    fn wait(&self, count: usize) {
        let mut progress = self.progress();
        while progress.count < count && !progress.is_over {
            progress = (self.changed.wait(progress)).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// One rank's handle on the writer thread.
pub(crate) struct CheckpointWriter {
    jobs: Sender<Given>,
    gate: Arc<Gate>,
    /// Checkpoints that this rank has contributed to.
    count: usize,
}

/// The writer thread's side of the channel.
pub(crate) struct Background {
    inbox: Receiver<Given>,
    gate: Arc<Gate>,
    /// For shares that other processes send.
    jobs: Sender<Given>,
}

/// Handles for this many ranks, and the thread's side.
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
    /// Waits until no checkpoint is in flight; copies for the next one may then be made.
    pub(crate) fn wait(&self) {
        self.gate.wait(self.count);
    }

    /// Hands this rank's shares to the writer thread. If that thread has ended, so has the run, and its error says
    /// why.
    pub(crate) fn give(&mut self, rank: usize, pieces: Pieces, state: Option<State>) {
        self.count += 1;
        let _ = self.jobs.send(Given {
            rank,
            pieces,
            state,
        });
    }

    /// Checkpoints that were tried since the last call.
    pub(crate) fn tried(&self) -> Vec<Tried> {
        std::mem::take(&mut self.gate.progress().tried)
    }

    /// Waits for the last checkpoint that this rank contributed to, and returns those that were tried.
    pub(crate) fn finish(self) -> Vec<Tried> {
        let CheckpointWriter { jobs, gate, count } = self;
        // a rank that failed contributes nothing: the thread must not wait for this rank as well
        drop(jobs);
        gate.wait(count);
        std::mem::take(&mut gate.progress().tried)
    }
}

impl Background {
    /// Writes checkpoints of the ranks' shares, received through `sender` from other processes, until the last rank
    /// has ended.
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
            // the threads and the ranks have their own clones
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

    /// Sends the ranks' shares to process 0 until the last rank has ended or process 0 has.
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

/// Collects the contributions of all ranks to one checkpoint; None if a rank has ended.
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

/// Forwards the shares that another process sends for its ranks, until that process has ended.
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

/// Wakes all waiters when the thread ends, even by a panic.
struct AtEnd<'a>(&'a Gate);

impl Drop for AtEnd<'_> {
    fn drop(&mut self) {
        self.0.progress().is_over = true;
        self.0.changed.notify_all();
    }
}
