//! The second factor of products in tiles, packed once for many of them.

use super::{Numbers, Op, cpu, flattened};
use crate::{Device, Result, Tensor};

/// op(b) as products in tiles read it, rounded to bf16; half the bytes of b in f32 where k is a multiple of 32.
pub struct Packed {
    pub(super) words: Tensor,
    /// Rows and columns of op(b).
    pub(super) k: usize,
    pub(super) n: usize,
    pub(super) leaf: usize,
}

impl Packed {
    /// Packs op(b) for products of leaves of `leaf`; None for numbers whose products pack for themselves and for a k
    /// above 5,120, which goes another way.
    /// # Shapes
    /// op(b): `[k, n]`, f32 or bf16, leading dims flattened.
    /// # Errors
    /// `DType` if b holds no numbers, `Memory` if the pack does not fit.
    pub fn new(
        numbers: Numbers,
        b: (&Tensor, Op),
        leaf: usize,
        device: &Device,
    ) -> Result<Option<Packed>> {
        b.0.expect_number("matmul::Packed", "b")?;
        let (k, n) = flattened(b);
        let Some(floats) = cpu::packed_floats(numbers, (k, n), leaf) else {
            return Ok(None);
        };
        let mut words = Tensor::empty(&[floats], crate::DType::F32, device)?;
        dispatch!(device, fill(&mut words, b, leaf));
        let packed = Packed { words, k, n, leaf };
        Ok(Some(packed))
    }

    /// What it takes.
    pub fn bytes(&self) -> usize {
        Device::bytes_of(self.words.elements())
    }

    /// Bytes that `new` takes for op(b) `[k, n]`, 0 where it gives nothing.
    pub fn bytes_of(numbers: Numbers, (k, n): (usize, usize), leaf: usize) -> usize {
        cpu::packed_floats(numbers, (k, n), leaf).map_or(0, Device::bytes_of)
    }
}

/// The second factor of a product.
#[derive(Clone, Copy)]
pub enum Factor<'a> {
    /// As it is stored.
    Stored(&'a Tensor, Op),
    /// Packed before, for the same leaves.
    Packed(&'a Packed),
}

impl<'a> From<(&'a Tensor, Op)> for Factor<'a> {
    fn from((b, op): (&'a Tensor, Op)) -> Factor<'a> {
        Factor::Stored(b, op)
    }
}

impl<'a> From<&'a Packed> for Factor<'a> {
    fn from(packed: &'a Packed) -> Factor<'a> {
        Factor::Packed(packed)
    }
}
