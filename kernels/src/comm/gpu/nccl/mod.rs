//! Groups of ranks on different cards by NCCL. A group keeps the transport that it had for everything on the host,
//! for messages between its ranks and for how ranks end. Messages between pipeline stages have communicators of
//! their own (`links.rs`).
//!
//! **Order of sums.** Exact groups add in the tree by rank: NCCL moves each rank's part of the numbers to the rank that
//! adds it, a kernel adds, NCCL gathers the sums. So NCCL's choice of an algorithm changes no bits. Other groups use
//! NCCL's sums, whose order `Nccl::open` fixes. Maxima and gathers copy.
//!
//! `joining.rs` makes the groups and links, `watch.rs` ends their waits when a rank fails.

mod joining;
mod links;
mod watch;

use std::ops::Range;
use std::sync::Arc;

use super::{BetweenGpus, Combine, DeviceCollective, Piece, Put, SOURCE, elements, paired};
use crate::comm::sum::SHARED_FROM;
use crate::comm::{Collective, Take};
use crate::cuda::nccl::Call;
use crate::cuda::{Address, Cuda};
use crate::{DType, Device, Result, SumOrder, Tensor, View, ViewMut};
pub use joining::{Joining, Way};
pub use links::{Edge, LinkStreams, Links, Receiving};
use watch::Shared;

/// A group whose tensors travel by NCCL.
struct Joined {
    inner: Arc<dyn Collective>,
    shared: Arc<Shared>,
    device: Device,
    sums: SumOrder,
}

impl Joined {
    fn cuda(&self) -> &Arc<Cuda> {
        &self.shared.cuda
    }

    fn scratch(&self, elements: usize) -> Result<Tensor> {
        Tensor::empty(&[elements.max(1)], DType::F32, &self.device)
    }

    /// Gathers this rank's part of every rank's x, one behind the other.
    fn collect(&self, op: &'static str, x: Address, cuts: &[usize]) -> Result<Tensor> {
        let (rank, size) = (self.rank(), self.size());
        let width = cuts[rank + 1] - cuts[rank];
        let rows = self.scratch(size * width)?;
        let mut calls = Vec::new();
        for peer in (0..size).filter(|&peer| peer != rank) {
            let count = cuts[peer + 1] - cuts[peer];
            if count > 0 {
                let from = x.after(cuts[peer]);
                calls.push(Call::Send { from, count, peer });
            }
            if width > 0 {
                let to = rows.address().after(peer * width);
                let count = width;
                calls.push(Call::Recv { to, count, peer });
            }
        }
        if width > 0 {
            let own = rows.address().after(rank * width);
            self.cuda().copy(own, x.after(cuts[rank]), width * 4)?;
        }
        self.shared.queue(op, &calls)?;
        Ok(rows)
    }

    /// Sends every rank's part of x, which it has, to all.
    fn distribute(&self, op: &'static str, x: Address, cuts: &[usize]) -> Result<()> {
        let (rank, size) = (self.rank(), self.size());
        let mut calls = Vec::new();
        for peer in (0..size).filter(|&peer| peer != rank) {
            let (mine, theirs) = (cuts[rank + 1] - cuts[rank], cuts[peer + 1] - cuts[peer]);
            if mine > 0 {
                let (from, count) = (x.after(cuts[rank]), mine);
                calls.push(Call::Send { from, count, peer });
            }
            if theirs > 0 {
                let (to, count) = (x.after(cuts[peer]), theirs);
                calls.push(Call::Recv { to, count, peer });
            }
        }
        self.shared.queue(op, &calls)
    }

    /// Gathers all of every rank's x, and combines.
    fn combine_whole(&self, op: &'static str, how: Combine, x: &ViewMut<'_>) -> Result<()> {
        let (count, size) = (x.len(), self.size());
        let rows = self.scratch(size * count)?;
        let (from, to) = (x.address(), rows.address());
        self.shared
            .queue(op, &[Call::AllGather { from, to, count }])?;
        how.rows(self.cuda(), x.address(), (to, size), count, count)
    }
}

impl DeviceCollective for Joined {
    fn name(&self) -> &'static str {
        self.shared.roster.name
    }

    fn all_reduce_sum(&self, x: ViewMut<'_>) -> Result<()> {
        const OP: &str = "all_reduce_sum";
        let (n, rank, size) = (x.len(), self.rank(), self.size());
        if n == 0 {
            return Ok(());
        }
        if !self.sums.is_tree() {
            let (x, count) = (x.address(), n);
            return self.shared.queue(OP, &[Call::AllReduce { x, count }]);
        }
        if n < SHARED_FROM {
            return self.combine_whole(OP, Combine::Sum, &x);
        }
        let cuts: Vec<usize> = (0..=size).map(|r| n * r / size).collect();
        let rows = self.collect(OP, x.address(), &cuts)?;
        let width = cuts[rank + 1] - cuts[rank];
        let own = x.address().after(cuts[rank]);
        Combine::Sum.rows(self.cuda(), own, (rows.address(), size), width, width)?;
        self.distribute(OP, x.address(), &cuts)
    }

    fn all_reduce_max(&self, x: ViewMut<'_>) -> Result<()> {
        match x.len() {
            0 => Ok(()),
            // not by NCCL, whose maxima may lose NaN
            _ => self.combine_whole("all_reduce_max", Combine::Largest, &x),
        }
    }

    fn reduce_scatter_sum(&self, x: View<'_>, cuts: &[usize], out: ViewMut<'_>) -> Result<()> {
        const OP: &str = "reduce_scatter_sum";
        let (size, width) = (self.size(), out.len());
        let is_even = cuts.windows(2).all(|cut| cut[1] - cut[0] == width);
        if !self.sums.is_tree() && is_even && width > 0 {
            let (from, to, count) = (x.address(), out.address(), width);
            return self
                .shared
                .queue(OP, &[Call::ReduceScatter { from, to, count }]);
        }
        let rows = self.collect(OP, x.address(), cuts)?;
        match width {
            0 => Ok(()),
            _ => Combine::Sum.rows(
                self.cuda(),
                out.address(),
                (rows.address(), size),
                width,
                width,
            ),
        }
    }

    fn all_gather(&self, x: View<'_>, lens: &[usize], put: &mut Put<'_>) -> Result<()> {
        const OP: &str = "all_gather";
        let rank = self.rank();
        let mut cuts = vec![0];
        cuts.extend(lens.iter().scan(0, |end, len| {
            *end += len;
            Some(*end)
        }));
        let all = self.scratch(cuts[lens.len()])?;
        if lens.iter().all(|&len| len == x.len()) && x.len() > 0 {
            let (from, to, count) = (x.address(), all.address(), x.len());
            self.shared
                .queue(OP, &[Call::AllGather { from, to, count }])?;
        } else {
            let own = all.address().after(cuts[rank]);
            if x.len() > 0 {
                self.cuda().copy(own, x.address(), x.len() * 4)?;
            }
            self.distribute(OP, all.address(), &cuts)?;
        }
        for (rank, &len) in lens.iter().enumerate() {
            let piece = Piece {
                of: self.cuda(),
                address: all.address().after(cuts[rank]),
                len,
            };
            put(rank, &piece)?;
        }
        Ok(())
    }

    fn all_to_all(
        &self,
        x: View<'_>,
        sent: &[Vec<Range<usize>>],
        to: &mut Tensor,
        received: &[Vec<Range<usize>>],
    ) -> Result<()> {
        let (rank, size) = (self.rank(), self.size());
        let packed = |all: &[Vec<Range<usize>>]| all.iter().map(|runs| elements(runs)).sum();
        let (out, back) = (self.scratch(packed(sent))?, self.scratch(packed(received))?);
        let (mut calls, mut from, mut at) = (Vec::new(), 0, 0);
        let mut arrived = vec![0; size];
        for peer in 0..size {
            let (start, count) = (from, elements(&sent[peer]));
            for run in &sent[peer] {
                let bytes = run.len() * 4;
                if bytes > 0 {
                    let piece = x.address().after(run.start);
                    self.cuda().copy(out.address().after(from), piece, bytes)?;
                }
                from += run.len();
            }
            let (there, taken) = (at, elements(&received[peer]));
            (arrived[peer], at) = (there, at + taken);
            let (from, to) = (out.address().after(start), back.address().after(there));
            if peer == rank {
                if count > 0 {
                    self.cuda().copy(to, from, count.min(taken) * 4)?;
                }
                continue;
            }
            if count > 0 {
                calls.push(Call::Send { from, count, peer });
            }
            if taken > 0 {
                let count = taken;
                calls.push(Call::Recv { to, count, peer });
            }
        }
        self.shared.queue("all_to_all", &calls)?;
        for (peer, runs) in received.iter().enumerate() {
            let all = std::iter::once(arrived[peer]..arrived[peer] + elements(runs));
            for (from, place, len) in paired(&all.collect::<Vec<_>>(), runs) {
                let from = back.address().after(from);
                self.cuda().copy(to.address().after(place), from, len * 4)?;
            }
        }
        Ok(())
    }

    fn broadcast(&self, x: ViewMut<'_>, root: usize) -> Result<()> {
        let (at, count) = (x.address(), x.len());
        let call = Call::Broadcast { x: at, count, root };
        self.shared.queue("broadcast", &[call])
    }

    // A send of NCCL waits for its receive, and a schedule sends before it receives: messages keep the way of the group.
    fn send(&self, to: usize, x: View<'_>) -> Result<()> {
        match self.inner.between_gpus() {
            Some(inner) => inner.0.send(to, x),
            None => self.inner.send(to, &x.read()?),
        }
    }

    fn recv(&self, from: usize, mut x: ViewMut<'_>) -> Result<()> {
        match self.inner.between_gpus() {
            Some(inner) => inner.0.recv(from, x),
            None => x.renew(|x: &mut [f32]| self.inner.recv(from, x))?,
        }
    }
}

impl Collective for Joined {
    fn rank(&self) -> usize {
        self.inner.rank()
    }

    fn size(&self) -> usize {
        self.inner.size()
    }

    fn all_reduce_sum(&self, x: &mut [f32]) -> Result<()> {
        self.inner.all_reduce_sum(x)
    }

    fn reduce_scatter_sum(&self, x: &[f32], cuts: &[usize], out: &mut [f32]) -> Result<()> {
        self.inner.reduce_scatter_sum(x, cuts, out)
    }

    fn all_reduce_max(&self, x: &mut [f32]) -> Result<()> {
        self.inner.all_reduce_max(x)
    }

    fn all_gather_to(&self, x: &[f32], take: &mut Take<'_>) -> Result<()> {
        self.inner.all_gather_to(x, take)
    }

    fn all_gather_f64(&self, x: &[f64]) -> Result<Vec<Vec<f64>>> {
        self.inner.all_gather_f64(x)
    }

    fn all_to_all(&self, parts: Vec<Vec<f32>>) -> Result<Vec<Vec<f32>>> {
        self.inner.all_to_all(parts)
    }

    fn broadcast(&self, x: &mut [f32], root: usize) -> Result<()> {
        self.inner.broadcast(x, root)
    }

    fn send(&self, to: usize, x: &[f32]) -> Result<()> {
        self.inner.send(to, x)
    }

    fn recv(&self, from: usize, x: &mut [f32]) -> Result<()> {
        self.inner.recv(from, x)
    }

    fn poll(&self, from: usize) -> Result<Option<Vec<f32>>> {
        self.inner.poll(from)
    }

    fn between_gpus(&self) -> Option<BetweenGpus<'_>> {
        Some(BetweenGpus(self))
    }

    fn barrier(&self) -> Result<()> {
        self.inner.barrier()
    }
}
