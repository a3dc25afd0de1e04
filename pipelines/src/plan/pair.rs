//! The time of DualPipe's passes: a forward pass of one micro-batch beside the backward pass of another (`dualpipe.rs`).

use crate::plan::layer_time::Pass;

/// Share of a device that carries what travels instead of computing: 20 of the H800's 132 multiprocessors (section 3.2.2).
const CARRYING: f64 = 20.0 / 132.0;

/// A forward pass of one micro-batch beside the backward pass of another.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Pair {
    /// Seconds of both.
    pub seconds: f64,
    /// Those in which nothing is computed, as rows still travel.
    pub seen: f64,
}

impl Pair {
    /// Both passes of a stage, with the seconds of a message to the next stage. Computation has the rest of the device; tensor-parallel
    /// and context-parallel collectives are a part of it.
    pub(super) fn of(forward: &Pass, backward: &Pass, message: f64) -> Pair {
        let travelling = forward.exchange + backward.exchange;
        let computed = (forward.seconds() + backward.seconds() - travelling) / (1.0 - CARRYING);
        let seconds = computed.max(travelling + 2.0 * message);
        Pair {
            seconds,
            seen: seconds - computed,
        }
    }

    /// Seconds of a pipeline's fill and drain (table 2): (PP/2 - 1) (F&B + B - 3W), where B is a whole backward pass and W its part for
    /// the weights.
    pub(super) fn bubble(&self, stages: usize, backward: &Pass) -> f64 {
        let idle = self.seconds + backward.seconds() - 3.0 * backward.weights;
        ((stages / 2 - 1) as f64 * idle).max(0.0)
    }
}
