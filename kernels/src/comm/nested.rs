//! Hierarchical collectives for a group whose ranks span several nodes: sums run inside the nodes first, then
//! across, so that a number crosses between nodes once per node instead of once per rank. Method: hierarchical
//! all-reduce (reduce-scatter inside, all-reduce across, gather inside), as in NCCL and Horovod.
//!
//! Bits: consecutive ranks share a node and every node has the same power-of-two number of them, so the
//! sums inside are complete blocks of the binary-counter tree and those across its upper part.

use super::gpu::BetweenGpus;
use super::{Collective, Take, check_cuts};
use crate::{Error, Result};

/// One rank of a hierarchical group.
pub struct Nested {
    /// Ranks on this node.
    inner: Box<dyn Collective>,
    /// Ranks with the same number on other nodes.
    outer: Box<dyn Collective>,
    /// All of them, for everything that is not a sum.
    flat: Box<dyn Collective>,
}

impl Nested {
    /// Joins the three groups of one rank; `inner` must have a power-of-two size.
    /// # Panics
    /// If the groups are not parts of each other; the caller must ensure that they are.
    pub fn new(
        inner: Box<dyn Collective>,
        outer: Box<dyn Collective>,
        flat: Box<dyn Collective>,
    ) -> Nested {
        let rank = outer.rank() * inner.size() + inner.rank();
        assert!(
            inner.size().is_power_of_two()
                && rank == flat.rank()
                && inner.size() * outer.size() == flat.size(),
            "nodes are aligned runs of ranks"
        );
        Nested { inner, outer, flat }
    }

    /// The sum of this rank's even share of x over all ranks.
    fn share(&self, x: &[f32]) -> Result<Vec<f32>> {
        let size = self.inner.size();
        let cuts: Vec<usize> = (0..=size).map(|r| x.len() * r / size).collect();
        let rank = self.inner.rank();
        let mut share = vec![0.0; cuts[rank + 1] - cuts[rank]];
        self.inner.reduce_scatter_sum(x, &cuts, &mut share)?;
        self.outer.all_reduce_sum(&mut share)?;
        Ok(share)
    }
}

impl Collective for Nested {
    fn rank(&self) -> usize {
        self.flat.rank()
    }

    fn size(&self) -> usize {
        self.flat.size()
    }

    fn all_reduce_sum(&self, x: &mut [f32]) -> Result<()> {
        let share = self.share(x)?;
        let shares = self.inner.all_gather(&share)?;
        let whole: usize = shares.iter().map(Vec::len).sum();
        if whole != x.len() {
            return Err(Error::Lengths {
                op: "all_reduce_sum",
                rank: self.rank(),
                len: x.len(),
                other: self.outer.rank() * self.inner.size(),
                other_len: whole,
            });
        }
        let mut rest = x;
        for share in shares {
            let (part, after) = rest.split_at_mut(share.len());
            part.copy_from_slice(&share);
            rest = after;
        }
        Ok(())
    }

    fn reduce_scatter_sum(&self, x: &[f32], cuts: &[usize], out: &mut [f32]) -> Result<()> {
        check_cuts(self, x, cuts, out)?;
        // a node's rank i collects the shares of the ranks i of all nodes, sums them inside the node, and sends the
        // other nodes theirs
        let (nodes, per) = (self.outer.size(), self.inner.size());
        let of = |node: usize, i: usize| cuts[node * per + i]..cuts[node * per + i + 1];
        let mut by_inner = Vec::with_capacity(x.len());
        let mut inner_cuts = vec![0];
        for i in 0..per {
            for node in 0..nodes {
                by_inner.extend_from_slice(&x[of(node, i)]);
            }
            inner_cuts.push(by_inner.len());
        }
        let rank = self.inner.rank();
        let mut mine = vec![0.0; inner_cuts[rank + 1] - inner_cuts[rank]];
        (self.inner).reduce_scatter_sum(&by_inner, &inner_cuts, &mut mine)?;
        let mut outer_cuts = vec![0];
        for node in 0..nodes {
            outer_cuts.push(outer_cuts[node] + of(node, rank).len());
        }
        self.outer.reduce_scatter_sum(&mine, &outer_cuts, out)
    }

    fn all_reduce_max(&self, x: &mut [f32]) -> Result<()> {
        self.flat.all_reduce_max(x)
    }

    fn all_gather_to(&self, x: &[f32], take: &mut Take<'_>) -> Result<()> {
        self.flat.all_gather_to(x, take)
    }

    fn all_gather_f64(&self, x: &[f64]) -> Result<Vec<Vec<f64>>> {
        self.flat.all_gather_f64(x)
    }

    fn all_to_all(&self, parts: Vec<Vec<f32>>) -> Result<Vec<Vec<f32>>> {
        self.flat.all_to_all(parts)
    }

    fn broadcast(&self, x: &mut [f32], root: usize) -> Result<()> {
        self.flat.broadcast(x, root)
    }

    fn send(&self, to: usize, x: &[f32]) -> Result<()> {
        self.flat.send(to, x)
    }

    fn recv(&self, from: usize, x: &mut [f32]) -> Result<()> {
        self.flat.recv(from, x)
    }

    fn poll(&self, from: usize) -> Result<Option<Vec<f32>>> {
        self.flat.poll(from)
    }

    fn between_gpus(&self) -> Option<BetweenGpus<'_>> {
        self.flat.between_gpus()
    }

    fn barrier(&self) -> Result<()> {
        self.flat.barrier()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::comm::local::{LocalComm, group};
    use crate::testing::bits;

    fn nested(nodes: usize, per: usize) -> Vec<Nested> {
        let mut inner: Vec<LocalComm> = (0..nodes).flat_map(|_| group(per)).collect();
        let mut outer: Vec<Option<LocalComm>> = (0..nodes * per).map(|_| None).collect();
        for i in 0..per {
            for (node, comm) in group(nodes).into_iter().enumerate() {
                outer[node * per + i] = Some(comm);
            }
        }
        let flat = group(nodes * per);
        let parts = inner.drain(..).zip(outer).zip(flat);
        parts
            .map(|((inner, outer), flat)| {
                Nested::new(Box::new(inner), Box::new(outer.unwrap()), Box::new(flat))
            })
            .collect()
    }

    fn each<C: Collective, T: Send>(comms: Vec<C>, run: impl Fn(&C) -> T + Sync) -> Vec<T> {
        std::thread::scope(|scope| {
            let run = &run;
            let threads: Vec<_> = comms
                .into_iter()
                .map(|comm| scope.spawn(move || run(&comm)))
                .collect();
            threads.into_iter().map(|t| t.join().unwrap()).collect()
        })
    }

    #[test]
    fn sums_over_nodes_have_the_bits_of_one_flat_group() {
        const LEN: usize = 5003;
        for (nodes, per) in [(2, 2), (3, 2), (2, 4), (3, 4), (1, 2), (5, 1)] {
            let size = nodes * per;
            let cuts: Vec<usize> = (0..=size).map(|r| LEN * r * r / (size * size)).collect();
            let run = |comm: &dyn Collective| {
                let mut x = vec![0.0; LEN];
                crate::rng::fill_normal(&mut x, comm.rank() as u64, 0, 0, 1.0);
                let mut part = vec![0.0; cuts[comm.rank() + 1] - cuts[comm.rank()]];
                comm.reduce_scatter_sum(&x, &cuts, &mut part).unwrap();
                comm.all_reduce_sum(&mut x).unwrap();
                (bits(&x), bits(&part))
            };
            let want = each(group(size), |comm| run(comm));
            let found = each(nested(nodes, per), |comm| run(comm));
            assert!(found == want, "{nodes} nodes of {per}");
        }
    }
}
