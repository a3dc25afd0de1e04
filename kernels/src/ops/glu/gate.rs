//! Functions of the gate.

/// Function of the gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gate {
    /// x / (1 + exp(-x)): SwiGLU.
    Silu,
    /// x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))).
    GeluTanh,
    /// x/2 (1 + erf(x / sqrt 2)).
    GeluErf,
}

impl Gate {
    /// Its number in CUDA kernels (`cuda/activation.cuh`).
    pub(super) fn number(self) -> u32 {
        match self {
            Gate::GeluTanh => 0,
            Gate::GeluErf => 1,
            Gate::Silu => 6,
        }
    }
}
