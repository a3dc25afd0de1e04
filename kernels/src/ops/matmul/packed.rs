//! Prepacked second factor of products, packed once for many of them.

use super::cpu;
use super::operand::{Operand, Packed, flattened};
use crate::descriptor::numbers::Numbers;
use crate::{Device, Isa, Result, Tensor};

impl Packed {
    /// Packs op(b) for products of leaves of `leaf`; None for devices other than the CPU and their number formats, and
    /// in tiles for a k above 5,120, whose products are blocked differently.
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
        let floats = match device.is_host() {
            true => cpu::packed_floats(numbers, [k, n], leaf, device.isa()),
            false => None,
        };
        let Some(floats) = floats else {
            return Ok(None);
        };
        let mut words = Tensor::empty(&[floats], crate::DType::F32, device)?;
        let _span = crate::trace::op(concat!(module_path!(), "::fill"));
        cpu::fill(numbers, &mut words, b, leaf);
        let packed = Packed {
            words,
            numbers,
            k,
            n,
            leaf,
        };
        Ok(Some(packed))
    }

    /// Bytes of the pack.
    pub fn bytes(&self) -> usize {
        Device::bytes_of(self.words.elements())
    }

    /// Bytes that `new` takes in tiles for op(b) `[k, n]`, 0 where it returns None.
    pub fn bytes_in_tiles(k: usize, n: usize, leaf: usize) -> usize {
        let isa = Isa::Portable;
        cpu::packed_floats(Numbers::Bf16Tiles, [k, n], leaf, isa).map_or(0, Device::bytes_of)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::matmul::{Op, product};
    use crate::testing::random;
    use crate::{DType, Error};

    #[test]
    fn factors_are_packed_for_some_products_only() {
        let device = Device::cpu();
        let b = random(&[40, 20], 1, &device).unwrap();
        let pack = |numbers| Packed::new(numbers, (&b, Op::Plain), 16, &device).unwrap();
        assert!(pack(Numbers::Bf16Mma).is_none() && pack(Numbers::F16Mma).is_none());
        assert_eq!(Packed::bytes_in_tiles(5121, 20, 0), 0);
        let packed = pack(Numbers::Bf16Tiles).unwrap();
        let a = random(&[3, 40], 2, &device).unwrap();
        let multiply = |numbers, n, leaf| {
            let mut c = Tensor::zeros(&[3, n], DType::F32, &device).unwrap();
            product(numbers, &mut c, (&a, Op::Plain), &packed, leaf, false)
        };
        for (numbers, leaf) in [
            (Numbers::F32, 16),
            (Numbers::Bf16, 16),
            (Numbers::Bf16Tiles, 0),
        ] {
            let wrong = multiply(numbers, 20, leaf);
            assert!(matches!(wrong, Err(Error::Argument { name: "b", .. })));
        }
        let wrong = multiply(Numbers::Bf16Tiles, 21, 16);
        assert!(matches!(wrong, Err(Error::Shape { name: "c", .. })));
        multiply(Numbers::Bf16Tiles, 20, 16).unwrap();
    }
}
