//! Collectives of tensors on GPUs between ranks that are threads: each reads the others' memory, on its own card or
//! another, in the order of the ranks. Streams wait for each other through events; threads meet on the host to exchange
//! addresses, and wait for no device.
//!
//! A collective is two turns: ranks show their numbers, with an event after the work that wrote them; each queues its
//! reads; then they show events after those, which everybody's stream waits for, so that the numbers may change.

use std::ops::Range;
use std::sync::Arc;

use super::parcel::{Brought, Parcel};
use super::{Data, LocalComm, Message};
use crate::comm::gpu::{Combine, DeviceCollective, MOST_PARTS, Piece, Put, elements, paired};
use crate::comm::{Collective, check_peer};
use crate::cuda::{Address, Cuda};
use crate::{DType, Device, Error, Result, Tensor, View, ViewMut};

impl LocalComm {
    /// Shows the others numbers and returns theirs, for which the thread's stream waits.
    fn show(
        &self,
        op: &'static str,
        on: &Arc<Cuda>,
        x: View<'_>,
        runs: &[Vec<Range<usize>>],
    ) -> Result<Vec<Data>> {
        let brought = Brought {
            cuda: Arc::clone(on),
            address: x.address(),
            len: x.len(),
            runs: runs.to_vec(),
            after: on.record()?,
        };
        let all = self.exchange(op, Data::Device(Arc::new(brought)))?;
        for (rank, data) in all.iter().enumerate() {
            if rank != self.rank {
                on.wait(&data.device().after)?;
            }
        }
        Ok(all)
    }

    /// Lets `read` queue its reads of every rank's x, and returns when nobody will read this rank's x any more before the
    /// later work of the thread's stream.
    fn read_all<R>(
        &self,
        op: &'static str,
        x: View<'_>,
        runs: &[Vec<Range<usize>>],
        read: impl FnOnce(&Arc<Cuda>, &[Data]) -> Result<R>,
    ) -> Result<R> {
        let on = x.device().gpu()?;
        let all = self.show(op, on, x, runs)?;
        let done = read(on, &all)?;
        self.show(op, on, x, &[])?;
        Ok(done)
    }

    /// Checks that ranks brought equally many elements.
    fn expect_alike(&self, op: &'static str, all: &[Data]) -> Result<()> {
        let len = all[0].device().len;
        match all.iter().position(|data| data.device().len != len) {
            None => Ok(()),
            Some(other) => Err(Error::Lengths {
                op,
                rank: 0,
                len,
                other,
                other_len: all[other].device().len,
            }),
        }
    }

    /// Combines elements `range` of all ranks' numbers.
    fn combine(
        &self,
        how: Combine,
        (on, device): (&Arc<Cuda>, &Device),
        all: &[Data],
        range: Range<usize>,
        out: Address,
    ) -> Result<()> {
        let len = range.len();
        if len == 0 {
            return Ok(());
        }
        let parts: Vec<&Brought> = all.iter().map(Data::device).collect();
        let is_near = parts.iter().all(|part| part.cuda.is_same_card(on));
        if is_near && parts.len() <= MOST_PARTS {
            let at: Vec<Address> = parts.iter().map(|p| p.address.after(range.start)).collect();
            return how.parts(on, out, &at, len);
        }
        let rows = Tensor::empty(&[parts.len(), len], DType::F32, device)?;
        for (rank, part) in parts.iter().enumerate() {
            piece(part).copy_to(on, rows.address().after(rank * len), range.clone())?;
        }
        how.rows(on, out, (rows.address(), parts.len()), len, len)
    }

    /// Replaces x by all ranks' combined.
    fn replace(&self, op: &'static str, how: Combine, x: &ViewMut<'_>) -> Result<()> {
        let (len, device) = (x.len(), x.device());
        if self.size() == 1 || len == 0 {
            return Ok(());
        }
        let combined = Tensor::empty(&[len], DType::F32, device)?;
        let on = self.read_all(op, x.as_view(), &[], |on, all| {
            self.expect_alike(op, all)?;
            self.combine(how, (on, device), all, 0..len, combined.address())?;
            Ok(Arc::clone(on))
        })?;
        on.copy(x.address(), combined.address(), len * 4)
    }
}

fn piece(brought: &Brought) -> Piece<'_> {
    Piece {
        of: &brought.cuda,
        address: brought.address,
        len: brought.len,
    }
}

impl DeviceCollective for LocalComm {
    fn name(&self) -> &'static str {
        self.shared.roster.name
    }

    fn all_reduce_sum(&self, x: ViewMut<'_>) -> Result<()> {
        self.replace("all_reduce_sum on GPUs", Combine::Sum, &x)
    }

    fn all_reduce_max(&self, x: ViewMut<'_>) -> Result<()> {
        self.replace("all_reduce_max on GPUs", Combine::Largest, &x)
    }

    fn reduce_scatter_sum(&self, x: View<'_>, cuts: &[usize], out: ViewMut<'_>) -> Result<()> {
        const OP: &str = "reduce_scatter_sum on GPUs";
        let mine = cuts[self.rank]..cuts[self.rank + 1];
        self.read_all(OP, x, &[], |on, all| {
            self.expect_alike(OP, all)?;
            self.combine(Combine::Sum, (on, x.device()), all, mine, out.address())
        })
    }

    fn all_gather(&self, x: View<'_>, lens: &[usize], put: &mut Put<'_>) -> Result<()> {
        const OP: &str = "all_gather on GPUs";
        self.read_all(OP, x, &[], |_, all| {
            for (rank, data) in all.iter().enumerate() {
                let (found, wanted) = (data.device().len, lens[rank]);
                if found != wanted {
                    return Err(Error::Lengths {
                        op: OP,
                        rank: self.rank,
                        len: wanted,
                        other: rank,
                        other_len: found,
                    });
                }
                put(rank, &piece(data.device()))?;
            }
            Ok(())
        })
    }

    fn all_to_all(
        &self,
        x: View<'_>,
        sent: &[Vec<Range<usize>>],
        to: &mut Tensor,
        received: &[Vec<Range<usize>>],
    ) -> Result<()> {
        const OP: &str = "all_to_all on GPUs";
        let to = to.address();
        self.read_all(OP, x, sent, |on, all| {
            for (rank, (data, runs)) in all.iter().zip(received).enumerate() {
                let theirs = data.device();
                let for_me = &theirs.runs[self.rank];
                if elements(for_me) != elements(runs) {
                    return Err(Error::Lengths {
                        op: OP,
                        rank: self.rank,
                        len: elements(runs),
                        other: rank,
                        other_len: elements(for_me),
                    });
                }
                for (from, at, len) in paired(for_me, runs) {
                    piece(theirs).copy_to(on, to.after(at), from..from + len)?;
                }
            }
            Ok(())
        })
    }

    fn broadcast(&self, x: ViewMut<'_>, root: usize) -> Result<()> {
        const OP: &str = "broadcast on GPUs";
        let to = x.address();
        self.read_all(OP, x.as_view(), &[], |on, all| {
            self.expect_alike(OP, all)?;
            match root == self.rank {
                true => Ok(()),
                false => piece(all[root].device()).copy_to(on, to, 0..x.len()),
            }
        })
    }

    fn send(&self, to: usize, x: View<'_>) -> Result<()> {
        check_peer(self, "send", "to", to)?;
        let on = x.device().gpu()?;
        let numbers = Tensor::empty(&[x.len().max(1)], DType::F32, x.device())?;
        on.copy(numbers.address(), x.address(), x.len() * 4)?;
        let parcel = Parcel {
            len: x.len(),
            written: on.record()?,
            numbers,
        };
        self.post(to, Message::Device(parcel));
        Ok(())
    }

    fn recv(&self, from: usize, mut x: ViewMut<'_>) -> Result<()> {
        match self.next_message(from, x.len())? {
            Message::Host(numbers) => x.upload(&numbers),
            Message::Device(Parcel {
                numbers, written, ..
            }) => {
                let (on, of) = (x.device().gpu()?, numbers.device().gpu()?);
                on.wait(&written)?;
                on.copy_from(x.address(), of, numbers.address(), x.len() * 4)?;
                // the sender's device uses the memory again when this one has read it
                numbers.retire(on.record()?);
                Ok(())
            }
        }
    }
}
