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
    /// g / (1 + exp(-1.702 g)) of g = min(x, 7), and in place of up 1 + up with up from -7 to 7: gpt-oss (arXiv:2508.10925).
    Clamped,
}

impl Gate {
    /// Its number in CUDA kernels (`cuda/activation.cuh`).
    pub(super) fn number(self) -> u32 {
        match self {
            Gate::GeluTanh => 0,
            Gate::GeluErf => 1,
            Gate::Silu => 6,
            Gate::Clamped => 7,
        }
    }
}
