//! Messages between two ranks by NCCL, as between pipeline stages. Operations of one communicator run in the order of
//! their calls, and a send of NCCL waits for its receive; so a pair of ranks has a communicator for each direction, and
//! sends and receives of a direction have streams of their own. The stream of computation waits for an arrived tensor
//! alone, never for a send: a tensor that is sent belongs to the link until it has left. So a schedule that is free of
//! deadlocks with sends that never wait stays so.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};

use super::watch::{Shared, lock};
use crate::cuda::nccl::Call;
use crate::cuda::{Event, OnStream, Stream};
use crate::trace::{Kind, Label, Span, span};
use crate::{DType, Device, Error, Result, Tensor, View, ViewMut};

/// One direction between two ranks of the world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Edge {
    /// The rank that sends.
    pub from: usize,
    /// The rank that receives.
    pub to: usize,
}

/// Streams of the messages of one direction.
#[derive(Clone, Copy, Debug)]
pub struct LinkStreams {
    /// Of those that leave.
    pub send: Stream,
    /// Of those that arrive.
    pub receive: Stream,
}

/// One rank's links of a direction.
pub struct Links {
    device: Device,
    streams: LinkStreams,
    /// By the world rank at the other end.
    out: BTreeMap<usize, Link>,
    into: BTreeMap<usize, Link>,
}

/// One end of an edge.
struct Link {
    // dropped first: what is on its way reads the tensors below
    shared: Arc<Shared>,
    /// Tensors that are being sent, and the end of each.
    leaving: Mutex<VecDeque<(Event, Tensor)>>,
}

/// A tensor on its way to this rank.
pub struct Receiving {
    x: Option<Tensor>,
    arrived: Option<Event>,
}

impl Receiving {
    /// The tensor, for which later work of the thread's stream waits; the host does not.
    /// # Errors
    /// `Driver` if the device fails.
    pub fn take(mut self) -> Result<Tensor> {
        let (Some(x), Some(arrived)) = (self.x.take(), self.arrived.take()) else {
            unreachable!("it is taken once");
        };
        x.device().gpu()?.wait(&arrived)?;
        Ok(x)
    }
}

impl Drop for Receiving {
    fn drop(&mut self) {
        if let (Some(x), Some(arrived)) = (self.x.take(), self.arrived.take()) {
            // the memory is written until then
            x.retire(arrived);
        }
    }
}

impl Links {
    pub(super) fn new(device: &Device, streams: LinkStreams) -> Links {
        Links {
            device: device.clone(),
            streams,
            out: BTreeMap::new(),
            into: BTreeMap::new(),
        }
    }

    /// Adds an edge with this rank's communicator, and sends a first number.
    pub(super) fn add(&mut self, edge: Edge, shared: Arc<Shared>) -> Result<()> {
        let first = Tensor::zeros(&[1], DType::F32, &self.device)?;
        let (at, count) = (first.address(), 1);
        let call = match shared.rank {
            0 => Call::Send {
                from: at,
                count,
                peer: 1,
            },
            _ => Call::Recv {
                to: at,
                count,
                peer: 0,
            },
        };
        shared.queue("connect", &[call])?;
        let (links, other) = match shared.rank {
            0 => (&mut self.out, edge.to),
            _ => (&mut self.into, edge.from),
        };
        let leaving = Mutex::default();
        links.insert(other, Link { shared, leaving });
        Ok(())
    }

    fn link<'a>(
        links: &'a BTreeMap<usize, Link>,
        op: &'static str,
        other: usize,
    ) -> Result<&'a Link> {
        links.get(&other).ok_or_else(|| Error::Argument {
            op,
            name: "rank",
            found: other.to_string(),
            wanted: format!("one of {:?}", links.keys().collect::<Vec<_>>()),
        })
    }

    /// Sends x to a world rank when the thread's stream has written it. Neither the host nor that stream waits; messages of
    /// an edge arrive in order.
    /// # Errors
    /// `Argument` if there is no edge to the rank; `DType` if x is no f32; `Driver`, `Late` or `PeerGone` if a send before
    /// failed.
    pub fn send(&self, to: usize, x: Tensor) -> Result<()> {
        const OP: &str = "send";
        let link = Links::link(&self.out, OP, to)?;
        x.expect(OP, "x", DType::F32)?;
        let _span = link.span(OP, x.elements());
        link.forget_those_that_left();
        let cuda = self.device.gpu()?;
        let written = cuda.record()?;
        let left = {
            let _on = OnStream::enter(self.streams.send);
            cuda.wait(&written)?;
            let (from, count) = (x.address(), x.elements());
            let call = Call::Send {
                from,
                count,
                peer: 1,
            };
            link.shared.queue(OP, &[call])?;
            cuda.record()?
        };
        lock(&link.leaving).push_back((left, x));
        Ok(())
    }

    /// Starts to receive the next message of a world rank beside the computation that follows: its memory is free when
    /// computation has passed what it was given before this call.
    /// # Errors
    /// As `send`; `Memory` if it does not fit.
    pub fn receive(&self, from: usize, dims: &[usize]) -> Result<Receiving> {
        const OP: &str = "recv";
        let link = Links::link(&self.into, OP, from)?;
        let _on = OnStream::enter(self.streams.receive);
        let x = Tensor::empty(dims, DType::F32, &self.device)?;
        let _span = link.span(OP, x.elements());
        let (to, count) = (x.address(), x.elements());
        let call = Call::Recv { to, count, peer: 0 };
        link.shared.queue(OP, &[call])?;
        let arrived = self.device.gpu()?.record()?;
        Ok(Receiving {
            x: Some(x),
            arrived: Some(arrived),
        })
    }

    /// Sends x to a world rank and receives `to` from it, in the thread's stream, as one group of NCCL, whose two calls
    /// cannot wait for each other. One edge between the two ranks, of either direction, serves both.
    /// # Errors
    /// As `send`.
    pub fn exchange(&self, with: usize, x: View<'_>, to: ViewMut<'_>) -> Result<()> {
        const OP: &str = "exchange";
        let link = match self.out.get(&with) {
            Some(link) => link,
            None => Links::link(&self.into, OP, with)?,
        };
        for dtype in [x.dtype(), to.dtype()] {
            if dtype != DType::F32 {
                return Err(Error::DType {
                    op: OP,
                    name: "x",
                    found: dtype,
                    wanted: DType::F32,
                });
            }
        }
        let _span = link.span(OP, x.len());
        let peer = 1 - link.shared.rank;
        let calls = [
            Call::Send {
                from: x.address(),
                count: x.len(),
                peer,
            },
            Call::Recv {
                to: to.address(),
                count: to.len(),
                peer,
            },
        ];
        link.shared.queue(OP, &calls)
    }
}

impl Link {
    fn span(&self, op: &'static str, elements: usize) -> Span {
        let name = self.shared.roster.name;
        span(|| Label {
            group: Some(name),
            bytes: Some(elements * 4),
            ..Label::new(Kind::Collective, op)
        })
    }

    /// Frees tensors whose send has ended. They are not held for the stream of computation, which would wait for a send
    /// when it lacks memory, and so for another rank.
    fn forget_those_that_left(&self) {
        let mut leaving = lock(&self.leaving);
        while leaving.front().is_some_and(|(left, _)| left.is_done()) {
            leaving.pop_front();
        }
    }
}
