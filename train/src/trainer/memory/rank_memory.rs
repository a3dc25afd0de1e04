//! Memory of one rank, by purpose.

/// Memory of one rank in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RankMemory {
    /// Weights held between uses.
    pub weights: usize,
    /// The optimizer's state.
    pub optimizer: usize,
    /// Peak bytes of gradients between two passes.
    pub gradients: usize,
    /// Peak bytes kept for backward passes.
    pub activations: usize,
    /// Weights packed for products, during a step (`train.keep_packed`).
    pub packs: usize,
    /// Copies for a checkpoint in flight, outside the arena.
    pub snapshot: usize,
    /// Parts of whole checkpoints in transit from other processes to process 0, counted with the first rank of each
    /// process; outside the arena.
    pub transfer: usize,
}

impl RankMemory {
    /// All of it.
    pub fn total(&self) -> usize {
        self.in_arena() + self.snapshot + self.transfer
    }

    pub(crate) fn in_arena(&self) -> usize {
        self.weights + self.optimizer + self.gradients + self.activations + self.packs
    }
}
