//! Streams of a device and events between them. A device has a stream for computation and one each for reductions of
//! gradients, for gathers of weights and for each direction of the messages between pipeline stages, so that these
//! overlap with it. A thread works on one stream at a time, by
//! default that of computation: every op, copy and collective that it starts runs there, in order. An event marks a
//! place in a stream, and another stream waits for it without the host.

use std::cell::Cell;

/// A stream of a device, by its purpose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Stream {
    /// Forward and backward passes, optimizers.
    #[default]
    Compute,
    /// Reductions of gradients over ranks.
    Gradients,
    /// Gathers of weights ahead of their use.
    Weights,
    /// Activations to the next pipeline stage.
    SendAhead,
    /// Activations from the stage before.
    ReceiveAhead,
    /// Gradients to the stage before.
    SendBack,
    /// Gradients from the next stage.
    ReceiveBack,
}

/// Number of streams.
pub(super) const STREAMS: usize = 7;

thread_local! {
    static CURRENT: Cell<Stream> = const { Cell::new(Stream::Compute) };
}

/// The stream that the calling thread works on.
pub(crate) fn current() -> Stream {
    CURRENT.get()
}

/// Puts the thread back on the stream that it worked on before.
#[must_use = "the thread works on the stream while this lives"]
pub struct OnStream {
    before: Stream,
}

impl OnStream {
    /// Lets the calling thread work on `stream` of every device until this is dropped.
    pub(crate) fn enter(stream: Stream) -> OnStream {
        OnStream {
            before: CURRENT.replace(stream),
        }
    }
}

impl Drop for OnStream {
    fn drop(&mut self) {
        CURRENT.set(self.before);
    }
}
