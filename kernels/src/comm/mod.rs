//! Collective communication between the ranks of a group. Sums are the binary-counter tree by rank number, so every
//! rank gets the same bits; gathers copy and never add (-0.0 stays -0.0).

mod acceptor;
mod failure;
mod frame;
mod gpu;
mod liveness;
pub mod local;
mod mailbox;
pub mod mpi;
mod nested;
mod network;
mod remote;
mod rendezvous;
mod secret;
pub mod socket;
mod sum;
pub mod tensors;
#[cfg(test)]
mod tests;
mod traced;
mod watchdog;
mod wire;

pub use failure::Failure;
pub use gpu::BetweenGpus;
pub(crate) use gpu::SOURCE;
pub use gpu::nccl::{Edge, Joining, LinkStreams, Links, Receiving, Way};
pub use nested::Nested;
pub use network::Network;
pub use secret::Secret;
pub use traced::Traced;
pub use watchdog::{Roster, Watch};

use crate::{Error, Result};

/// Checks the arguments of a group's `reduce_scatter_sum`.
fn check_cuts(group: &dyn Collective, x: &[f32], cuts: &[usize], out: &[f32]) -> Result<()> {
    check_cuts_of(group, x.len(), cuts, out.len())
}

/// The same of `len` numbers in and `found` out.
fn check_cuts_of(group: &dyn Collective, len: usize, cuts: &[usize], found: usize) -> Result<()> {
    let (rank, size) = (group.rank(), group.size());
    let whole = cuts.first() == Some(&0) && cuts.last() == Some(&len) && cuts.is_sorted();
    let wrong = |name, found, wanted| {
        Err(Error::Argument {
            op: "reduce_scatter_sum",
            name,
            found,
            wanted,
        })
    };
    if !whole || cuts.len() != size + 1 {
        let wanted = format!("{} ascending numbers from 0 to {len}", size + 1);
        return wrong("cuts", format!("{cuts:?}"), wanted);
    }
    let width = cuts[rank + 1] - cuts[rank];
    if found != width {
        let wanted = format!("{width}, those of rank {rank}");
        return wrong("out", format!("{found} numbers"), wanted);
    }
    Ok(())
}

/// Checks the arguments of `all_to_all`.
fn check_parts(parts: usize, size: usize) -> Result<()> {
    if parts == size {
        return Ok(());
    }
    Err(Error::Argument {
        op: "all_to_all",
        name: "parts",
        found: parts.to_string(),
        wanted: format!("{size}, one for each rank"),
    })
}

/// Checks the argument `name` of `op`: a rank of the group.
fn check_peer(
    group: &dyn Collective,
    op: &'static str,
    name: &'static str,
    rank: usize,
) -> Result<()> {
    let size = group.size();
    if rank < size {
        return Ok(());
    }
    Err(Error::Argument {
        op,
        name,
        found: rank.to_string(),
        wanted: format!("a rank below {size}"),
    })
}

/// Receives a piece of a rank's numbers: (rank, start, piece).
pub type Take<'a> = dyn FnMut(usize, usize, &[f32]) + 'a;

/// One rank's handle on a process group. Every rank must call the same collectives in the same order.
///
/// # Errors
/// All methods: `PeerGone` when a rank ended before it took part, `Lengths` when ranks brought different
/// lengths, `Calls` when they called different collectives, `Late` when a rank did not arrive in time.
pub trait Collective: Send + Sync {
    /// This rank, from 0.
    fn rank(&self) -> usize;
    /// Ranks in the group.
    fn size(&self) -> usize;
    /// Replaces x by the tree sum over ranks, elementwise.
    /// # Errors
    /// As stated for the trait.
    fn all_reduce_sum(&self, x: &mut [f32]) -> Result<()>;
    /// Writes this rank's part `[cuts[rank], cuts[rank + 1])` of the tree sum over ranks, elementwise, with the
    /// bits of `all_reduce_sum`. All ranks must pass the same `cuts`.
    /// # Errors
    /// As stated for the trait; `Argument` if `cuts` are not ascending numbers from 0 to the length, or `out` is not as
    /// long as the part.
    fn reduce_scatter_sum(&self, x: &[f32], cuts: &[usize], out: &mut [f32]) -> Result<()>;
    /// Replaces x by the maximum over ranks, elementwise.
    /// # Errors
    /// As stated for the trait.
    fn all_reduce_max(&self, x: &mut [f32]) -> Result<()>;
    /// Passes every rank's x to `take`, in pieces: the rank, the start of the piece in its x, and the piece; the
    /// pieces of a rank in order. Lengths may differ.
    /// # Errors
    /// As stated for the trait.
    fn all_gather_to(&self, x: &[f32], take: &mut Take<'_>) -> Result<()>;
    /// Returns every rank's x, by rank; lengths may differ.
    /// # Errors
    /// As stated for the trait.
    fn all_gather(&self, x: &[f32]) -> Result<Vec<Vec<f32>>> {
        let mut all = vec![Vec::new(); self.size()];
        self.all_gather_to(x, &mut |rank, _, piece| all[rank].extend_from_slice(piece))?;
        Ok(all)
    }
    /// Returns every rank's x, by rank; lengths may differ.
    /// # Errors
    /// As stated for the trait.
    fn all_gather_f64(&self, x: &[f64]) -> Result<Vec<Vec<f64>>>;
    /// Sends `parts[r]` to rank r; returns the parts that this rank received, by sender. Lengths may differ.
    /// # Errors
    /// As stated for the trait; `Argument` if there is not one part for each rank.
    fn all_to_all(&self, parts: Vec<Vec<f32>>) -> Result<Vec<Vec<f32>>>;
    /// Replaces x by root's.
    /// # Errors
    /// As stated for the trait; `Argument` if root is not in the group.
    fn broadcast(&self, x: &mut [f32], root: usize) -> Result<()>;
    /// Sends x to a rank; never waits. Messages between two ranks arrive in order.
    /// # Errors
    /// `Argument` if `to` is not in the group.
    fn send(&self, to: usize, x: &[f32]) -> Result<()>;
    /// Waits for the next message of a rank.
    /// # Errors
    /// As stated for the trait; `Argument` if `from` is not in the group.
    fn recv(&self, from: usize, x: &mut [f32]) -> Result<()>;
    /// The next message of a rank, if it is there.
    /// # Errors
    /// `PeerGone` if there is none and none will come; `Argument` if `from` is not in the group.
    fn poll(&self, from: usize) -> Result<Option<Vec<f32>>>;
    /// The group for tensors on GPUs; `None`: they are staged through the host.
    fn between_gpus(&self) -> Option<BetweenGpus<'_>> {
        None
    }
    /// Waits until every rank has called it.
    /// # Errors
    /// As stated for the trait.
    fn barrier(&self) -> Result<()>;
}
