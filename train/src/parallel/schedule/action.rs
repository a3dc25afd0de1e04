//! One action of a pipeline schedule.

/// One action of a rank: a micro-batch through one of its model chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// Receive (or look up) activations, run the model chunk, send them on.
    Forward { micro: usize, chunk: usize },
    /// Receive (or start) gradients, run the model chunk backwards, send them back.
    Backward { micro: usize, chunk: usize },
}

pub(super) fn forward(micro: usize) -> Action {
    Action::Forward { micro, chunk: 0 }
}

pub(super) fn backward(micro: usize) -> Action {
    Action::Backward { micro, chunk: 0 }
}
