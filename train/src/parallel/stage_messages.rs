//! Tensors between pipeline stages: over links of NCCL where there are any, otherwise as messages of groups. A link
//! receives ahead of use, so that a message travels while the action before it runs; a group's receive waits on the
//! host, and comes when the tensor is read.

use kernels::comm::{Links, Receiving, tensors};
use kernels::{Collective, DType, Device, Tensor};

use crate::dist::mesh::{Groups, StageLinks};

/// Direction of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    /// Activations to the next stage.
    Ahead,
    /// Gradients to the previous stage.
    Back,
}

/// A message that an action reads.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Incoming {
    pub direction: Direction,
    /// World rank of the sender.
    pub from: usize,
    pub dims: [usize; 2],
}

/// A rank's messages to and from other stages.
#[derive(Clone, Copy)]
pub(crate) struct StageMessages<'a> {
    pub groups: &'a Groups,
    pub device: &'a Device,
}

impl StageMessages<'_> {
    fn link(&self, direction: Direction) -> Option<&Links> {
        let StageLinks { ahead, back, .. } = self.groups.links.as_ref()?;
        Some(match direction {
            Direction::Ahead => ahead,
            Direction::Back => back,
        })
    }

    fn group(&self, direction: Direction) -> &dyn Collective {
        match direction {
            Direction::Ahead => self.groups.ahead.as_ref(),
            Direction::Back => self.groups.back.as_ref(),
        }
    }

    /// Sends x to a world rank; never waits for it.
    pub(crate) fn send(&self, direction: Direction, to: usize, x: Tensor) -> kernels::Result<()> {
        match self.link(direction) {
            Some(link) => link.send(to, x),
            None => tensors::send(self.group(direction), to, x.view()),
        }
    }

    /// Starts to receive a message that a later action reads, if the host does not wait for it.
    pub(crate) fn start(&self, message: Option<Incoming>) -> kernels::Result<Option<Receiving>> {
        let Some(message) = message else {
            return Ok(None);
        };
        let link = self.link(message.direction);
        link.map(|link| link.receive(message.from, &message.dims))
            .transpose()
    }

    /// The message, which `started` has if it was started.
    pub(crate) fn receive(
        &self,
        message: Incoming,
        started: Option<Receiving>,
    ) -> kernels::Result<Tensor> {
        let started = match started {
            Some(started) => Some(started),
            None => self.start(Some(message))?,
        };
        if let Some(started) = started {
            return started.take();
        }
        let mut x = Tensor::empty(&message.dims, DType::F32, self.device)?;
        let group = self.group(message.direction);
        tensors::recv(group, message.from, x.view_mut())?;
        Ok(x)
    }
}
