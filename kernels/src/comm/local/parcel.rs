//! Numbers on a GPU that ranks of a process pass to each other.

use std::ops::Range;
use std::sync::Arc;

use crate::cuda::{Address, Cuda, Event};
use crate::{Result, Tensor};

/// Numbers that a rank shows the others in a turn.
pub(super) struct Brought {
    pub cuda: Arc<Cuda>,
    pub address: Address,
    pub len: usize,
    /// Runs of it for each rank, of an all-to-all.
    pub runs: Vec<Vec<Range<usize>>>,
    /// After the work that the others have to wait for.
    pub after: Event,
}

/// A message between two ranks, in the sender's memory.
pub(super) struct Parcel {
    pub numbers: Tensor,
    /// Elements: a tensor has at least one, a message maybe none.
    pub len: usize,
    pub written: Event,
}

impl Parcel {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Reads it to the host.
    pub(super) fn download(self, to: &mut [f32]) -> Result<()> {
        self.numbers.device().gpu()?.wait(&self.written)?;
        self.numbers.flat(0..self.len)?.download_to(to)
    }
}
