//! Prepacked second factor of tile products, packed once for many of them.

use super::cpu;
use super::operand::{Operand, Packed, flattened};
use crate::descriptor::numbers::Numbers;
use crate::{Device, Result, Tensor};

impl Packed {
    /// Packs op(b) for products of leaves of `leaf`; None for number formats whose products pack by themselves,
    /// for a k above 5,120, whose products are blocked differently, and for devices other than the CPU.
    /// # Shapes
    /// op(b): `[k, n]`, f32 or bf16, leading dims flattened.
    /// # Errors
    /// `DType` if b holds no numbers, `Memory` if the pack does not fit.
    pub fn new<'b>(
        numbers: Numbers,
        b: impl Into<Operand<'b>>,
        leaf: usize,
        device: &Device,
    ) -> Result<Option<Packed>> {
        let b = b.into();
        b.tensor.expect_number("matmul::Packed", "b")?;
        let (k, n) = flattened(b);
        let floats = cpu::packed_floats(numbers, [k, n], leaf);
        let Some(floats) = floats.filter(|_| device.is_host()) else {
            return Ok(None);
        };
        let mut words = Tensor::empty(&[floats], crate::DType::F32, device)?;
        let _span = crate::trace::op(concat!(module_path!(), "::fill"));
        cpu::fill(&mut words, b, leaf);
        let packed = Packed { words, k, n, leaf };
        Ok(Some(packed))
    }

    /// Bytes of the pack.
    pub fn bytes(&self) -> usize {
        Device::bytes_of(self.words.elements())
    }

    /// Bytes that `new` takes for op(b) `[k, n]`, 0 where it returns None.
    pub fn bytes_of(numbers: Numbers, k: usize, n: usize, leaf: usize) -> usize {
        cpu::packed_floats(numbers, [k, n], leaf).map_or(0, Device::bytes_of)
    }
}
