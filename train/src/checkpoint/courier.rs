//! Parts of checkpoints on their way to process 0: each other process sends what its ranks gave, share
//! by share, and hears when the checkpoint was tried. Every share's length follows from the plan, so
//! nothing but numbers travels. At most one checkpoint is under way, as within a process.

use std::ops::Range;

use kernels::comm::Collective;

use crate::checkpoint::snapshot::{Pieces, lengths};
use crate::checkpoint::write::Form;
use crate::mesh::Place;

/// One process's end; a member of its group for each process.
pub(crate) struct Courier {
    comm: Box<dyn Collective>,
    ranks_per_process: usize,
}

impl Courier {
    pub(crate) fn new(comm: Box<dyn Collective>, ranks_per_process: usize) -> Courier {
        Courier {
            comm,
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

    /// Sends what this process's ranks gave and waits until the checkpoint was tried; None if process
    /// 0 is gone.
    pub(crate) fn bring(&self, given: &[Pieces]) -> Option<()> {
        // replicas have nothing to give, but must be waited for
        self.comm.send(0, &[1.0]).ok()?;
        for piece in given.iter().flatten() {
            self.comm.send(0, piece).ok()?;
        }
        self.comm.recv(0, &mut [0.0]).ok()
    }

    /// Takes what the ranks of a process gave; None if the process is gone.
    pub(crate) fn take(&self, form: &Form<'_>, process: usize) -> Option<Vec<(usize, Pieces)>> {
        self.comm.recv(process, &mut [0.0]).ok()?;
        let of_rank = |rank| {
            let place = Place::of(rank, &form.plan.parallel);
            let lengths = lengths(form.plan, (form.specs, &form.shards), &place);
            let piece = |len| {
                let mut piece = vec![0.0; len];
                self.comm.recv(process, &mut piece).ok().map(|()| piece)
            };
            let pieces: Option<Pieces> = lengths.into_iter().map(piece).collect();
            pieces.map(|pieces| (rank, pieces))
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
