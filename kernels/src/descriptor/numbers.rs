//! Number formats of products.

use crate::{Device, Error, Result};

/// Format to which the factors of a product are rounded; sums are f32.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Numbers {
    /// f32, as they are.
    F32,
    /// bf16, to nearest even; subnormals become zero. Sums take pairs of k (`bf16.rs`).
    Bf16,
    /// Like `Bf16`, with sums that take blocks of 32 k (`tiles/`).
    Bf16Tiles,
    /// Factors like those of `Bf16`, with sums in the order of the tensor cores' `mma.sync`: the same bits on the same
    /// kind of device. CUDA only.
    Bf16Mma,
    /// IEEE half factors, to nearest even, with subnormals; f32 sums in the order of `mma.sync`. CUDA only.
    F16Mma,
}

impl Numbers {
    /// Whether a word is two numbers of 16 bits.
    pub(crate) fn are_pairs(self) -> bool {
        self != Numbers::F32
    }

    /// Whether sums are those of a GPU's tensor cores.
    pub(crate) fn is_by_tensor_cores(self) -> bool {
        matches!(self, Numbers::Bf16Mma | Numbers::F16Mma)
    }

    /// Refuses products in the order of `mma.sync` where there is none.
    pub(crate) fn expect_on(self, op: &'static str, device: &Device) -> Result<()> {
        match self {
            Numbers::Bf16Mma | Numbers::F16Mma if device.is_host() => Err(Error::NotImplemented {
                op,
                device: device.name().to_owned(),
            }),
            _ => Ok(()),
        }
    }
}
