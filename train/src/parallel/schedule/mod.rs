//! Pipeline schedules as data: the ordered actions of one stage in one step.

mod one_f_one_b;

pub(crate) use one_f_one_b::one_f_one_b;

/// One thing a stage does; the number is the micro-batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// Receive (or look up) activations, run the stage, send them on.
    Forward(usize),
    /// Receive (or start) gradients, run the stage backwards, send them back.
    Backward(usize),
}
