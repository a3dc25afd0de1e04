//! Collectives between the ranks of a group. Sums are the binary-counter tree by rank number, so every
//! rank gets the same bits; gathers copy and never add (-0.0 stays -0.0).

#[cfg(test)]
mod claims;
mod frame;
mod life;
pub mod local;
mod meeting;
pub mod mpi;
mod nested;
mod network;
mod post;
mod remote;
pub mod socket;
mod sum;
mod traced;
mod watch;

pub use nested::Nested;
pub use network::{Failure, Network};
pub use traced::Traced;
pub use watch::{Roster, Watch};

use crate::{Error, Result};

/// Checks what `reduce_scatter_sum` is given.
fn check_cuts(cuts: &[usize], len: usize, size: usize) -> Result<()> {
    let whole = cuts.first() == Some(&0) && cuts.last() == Some(&len) && cuts.is_sorted();
    if whole && cuts.len() == size + 1 {
        return Ok(());
    }
    Err(Error::Argument {
        op: "reduce_scatter_sum",
        name: "cuts",
        found: format!("{cuts:?}"),
        wanted: format!("{} ascending numbers from 0 to {len}", size + 1),
    })
}

/// Checks what `all_to_all` is given.
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

/// Checks a rank of the group that another rank is to talk to.
fn check_peer(op: &'static str, name: &'static str, (rank, size): (usize, usize)) -> Result<()> {
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

/// What the ranks of a group can do together. Every rank calls the same ops in the same order.
///
/// # Errors
/// All methods: `PeerGone` when a rank ended before it took part, `Lengths` when ranks brought different
/// lengths, `Calls` when they called different ops, `Late` when a rank did not come in time.
pub trait Collective: Send + Sync {
    /// This rank, from 0.
    fn rank(&self) -> usize;
    /// Ranks in the group.
    fn size(&self) -> usize;
    /// Replaces x by the tree sum over ranks, elementwise.
    /// # Errors
    /// As the trait says.
    fn all_reduce_sum(&self, x: &mut [f32]) -> Result<()>;
    /// Returns this rank's part `[cuts[rank], cuts[rank + 1])` of the tree sum over ranks, elementwise:
    /// the bits that `all_reduce_sum` puts there.
    /// # Errors
    /// As the trait says; `Argument` if `cuts` are not ascending numbers from 0 to the length.
    fn reduce_scatter_sum(&self, x: Vec<f32>, cuts: &[usize]) -> Result<Vec<f32>>;
    /// Replaces x by the largest over ranks, elementwise.
    /// # Errors
    /// As the trait says.
    fn all_reduce_max(&self, x: &mut [f32]) -> Result<()>;
    /// Returns every rank's x, by rank; lengths may differ.
    /// # Errors
    /// As the trait says.
    fn all_gather(&self, x: &[f32]) -> Result<Vec<Vec<f32>>>;
    /// Returns every rank's x, by rank; lengths may differ.
    /// # Errors
    /// As the trait says.
    fn all_gather_f64(&self, x: &[f64]) -> Result<Vec<Vec<f64>>>;
    /// Gives `parts[r]` to rank r; returns what each rank gave this one, by rank. Lengths may differ.
    /// # Errors
    /// As the trait says; `Argument` if there is not one part for each rank.
    fn all_to_all(&self, parts: Vec<Vec<f32>>) -> Result<Vec<Vec<f32>>>;
    /// Replaces x by root's.
    /// # Errors
    /// As the trait says; `Argument` if root is not in the group.
    fn broadcast(&self, x: &mut [f32], root: usize) -> Result<()>;
    /// Sends x to a rank; never waits. Messages between two ranks arrive in order.
    /// # Errors
    /// `Argument` if `to` is not in the group.
    fn send(&self, to: usize, x: &[f32]) -> Result<()>;
    /// Waits for the next message of a rank.
    /// # Errors
    /// As the trait says; `Argument` if `from` is not in the group.
    fn recv(&self, from: usize, x: &mut [f32]) -> Result<()>;
    /// Waits until every rank is here.
    /// # Errors
    /// As the trait says.
    fn barrier(&self) -> Result<()>;
}
