//! Collectives of tensors on GPUs, without the host: between ranks that are threads of one process by copies from
//! device to device (`local/device.rs`), between any ranks by NCCL (`nccl.rs`). Every call queues its work in the
//! thread's stream and returns; the host waits for other ranks at most until they have made the same call.

mod combine;
#[cfg(test)]
mod link_tests;
pub(super) mod nccl;
#[cfg(test)]
mod tests;

use std::ops::Range;
use std::sync::Arc;

use crate::cuda::{Address, Cuda};
use crate::{Result, Tensor, View, ViewMut};
pub(crate) use combine::SOURCE;
pub(super) use combine::{Combine, MOST_PARTS};

/// A group's collectives of tensors on GPUs.
#[derive(Clone, Copy)]
pub struct BetweenGpus<'a>(pub(super) &'a dyn DeviceCollective);

/// Numbers of a rank that the thread's stream may read.
pub(super) struct Piece<'a> {
    /// Device of the memory.
    pub of: &'a Arc<Cuda>,
    pub address: Address,
    /// Elements.
    pub len: usize,
}

impl Piece<'_> {
    /// Copies elements `range` to an address of the device `on`.
    pub(super) fn copy_to(&self, on: &Arc<Cuda>, to: Address, range: Range<usize>) -> Result<()> {
        if range.is_empty() {
            return Ok(());
        }
        on.copy_from(
            to,
            self.of,
            self.address.after(range.start),
            range.len() * 4,
        )
    }
}

/// Receives each rank's numbers.
pub(super) type Put<'a> = dyn FnMut(usize, &Piece<'_>) -> Result<()> + 'a;

/// One rank's handle on a group whose tensors are on GPUs. All tensors are f32 on the rank's device; arguments were
/// checked by `tensors.rs`.
pub(super) trait DeviceCollective: Send + Sync {
    /// Purpose of the group.
    fn name(&self) -> &'static str;
    /// As `Collective::all_reduce_sum`.
    fn all_reduce_sum(&self, x: ViewMut<'_>) -> Result<()>;
    /// As `Collective::all_reduce_max`.
    fn all_reduce_max(&self, x: ViewMut<'_>) -> Result<()>;
    /// As `Collective::reduce_scatter_sum`.
    fn reduce_scatter_sum(&self, x: View<'_>, cuts: &[usize], out: ViewMut<'_>) -> Result<()>;
    /// Passes every rank's x to `put`, of which rank r's has `lens[r]` elements.
    fn all_gather(&self, x: View<'_>, lens: &[usize], put: &mut Put<'_>) -> Result<()>;
    /// Sends the runs `sent[r]` of x to rank r, and writes rank s's to the runs `received[s]` of `to`.
    fn all_to_all(
        &self,
        x: View<'_>,
        sent: &[Vec<Range<usize>>],
        to: &mut Tensor,
        received: &[Vec<Range<usize>>],
    ) -> Result<()>;
    /// As `Collective::broadcast`.
    fn broadcast(&self, x: ViewMut<'_>, root: usize) -> Result<()>;
    /// As `Collective::send`.
    fn send(&self, to: usize, x: View<'_>) -> Result<()>;
    /// As `Collective::recv`.
    fn recv(&self, from: usize, x: ViewMut<'_>) -> Result<()>;
}

/// Pairs of equally long pieces of two lists of runs, in order: (first element of the one, of the other, elements).
pub(super) fn paired(
    one: &[Range<usize>],
    other: &[Range<usize>],
) -> impl Iterator<Item = (usize, usize, usize)> {
    let (mut ones, mut others) = (one.iter().cloned(), other.iter().cloned());
    let (mut a, mut b) = (0..0, 0..0);
    std::iter::from_fn(move || {
        while a.is_empty() {
            a = ones.next()?;
        }
        while b.is_empty() {
            b = others.next()?;
        }
        let len = a.len().min(b.len());
        let found = (a.start, b.start, len);
        (a.start, b.start) = (a.start + len, b.start + len);
        Some(found)
    })
}

/// Total elements of runs.
pub(super) fn elements(runs: &[Range<usize>]) -> usize {
    runs.iter().map(Range::len).sum()
}
