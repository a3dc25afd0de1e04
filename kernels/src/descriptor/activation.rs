//! Activation functions by name.

/// The function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))).
    GeluTanh,
    /// x/2 (1 + erf(x / sqrt 2)).
    GeluErf,
    /// x / (1 + exp(-1.702 x)).
    QuickGelu,
    /// max(x, 0).
    Relu,
    /// max(x, 0)^2.
    SquaredRelu,
    /// (e^x - e^-x) / (e^x + e^-x).
    Tanh,
}

impl Kind {
    /// Its number in CUDA kernels (`cuda/activation.cuh`).
    pub(crate) fn number(self) -> u32 {
        match self {
            Kind::GeluTanh => 0,
            Kind::GeluErf => 1,
            Kind::QuickGelu => 2,
            Kind::Relu => 3,
            Kind::SquaredRelu => 4,
            Kind::Tanh => 5,
        }
    }
}
