//! Prepacked second factor of products, packed once for many of them.

use super::cpu;
use super::operand::{Operand, Packed, flattened};
use crate::descriptor::numbers::Numbers;
use crate::{DType, Device, Isa, Result, Tensor};

impl Packed {
    /// Packs op(b) for products of leaves of `leaf`; f32 that all equal a bf16 take 2 bytes each; None for devices other than the CPU and their number formats, and
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
        let words = match device.is_host() {
            true => cpu::packed_words(numbers, [k, n], leaf, device.isa()),
            false => None,
        };
        let Some(words) = words else {
            return Ok(None);
        };
        // the same f32 in half the memory, which products of few rows wait for
        let is_halved = numbers == Numbers::F32 && cpu::fits_halves(b.tensor);
        let dtype = if is_halved { DType::Bf16 } else { DType::F32 };
        let mut words = Tensor::empty(&[words], dtype, device)?;
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
        match self.words.dtype() {
            DType::Bf16 => Device::bytes_of(self.words.elements()) / 2,
            _ => Device::bytes_of(self.words.elements()),
        }
    }

    /// Bytes that `new` takes in tiles for op(b) `[k, n]`, 0 where it returns None.
    pub fn bytes_in_tiles(k: usize, n: usize, leaf: usize) -> usize {
        let isa = Isa::Portable;
        cpu::packed_words(Numbers::Bf16Tiles, [k, n], leaf, isa).map_or(0, Device::bytes_of)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Error;
    use crate::matmul::{Op, product};
    use crate::testing::{bits, devices, random};

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

    #[test]
    fn numbers_that_equal_a_bf16_are_packed_in_half_the_bytes_with_the_same_bits() {
        let half = |x: f32| f32::from_bits(x.to_bits() & 0xffff_0000);
        let special = [f32::NAN, f32::INFINITY, -0.0, 1e-40, f32::MAX];
        for device in devices() {
            for (m, n, k) in [
                (1, 65, 33),
                (1, 700, 1600),
                (2, 330, 1600),
                (4, 330, 1600),
                (5, 33, 130),
                (16, 70, 1600),
                (27, 70, 700),
                (45, 330, 700),
                (70, 96, 300),
                (200, 900, 64),
            ] {
                for op in [Op::Plain, Op::Transposed] {
                    let a = random(&[m, k], 1, &device).unwrap();
                    let dims = if op == Op::Plain { [k, n] } else { [n, k] };
                    let mut b = random(&dims, 2, &device).unwrap();
                    let has_special = m == 5;
                    for (i, x) in b.f32_mut().iter_mut().enumerate() {
                        *x = half(*x);
                        if has_special && i % 97 == 0 {
                            *x = half(special[i / 97 % 5]);
                        }
                    }
                    for leaf in [0, 12, 32] {
                        let empty = || Tensor::zeros(&[m, n], DType::F32, &device).unwrap();
                        let (mut want, mut found) = (empty(), empty());
                        let (numbers, left) = (Numbers::F32, (&a, Op::Plain));
                        product(numbers, &mut want, left, (&b, op), leaf, false).unwrap();
                        let packed = Packed::new(numbers, (&b, op), leaf, &device);
                        let packed = packed.unwrap().unwrap();
                        product(numbers, &mut found, left, &packed, leaf, false).unwrap();
                        let place = (&device, m, n, k, op, leaf);
                        assert!(bits(found.f32()) == bits(want.f32()), "{place:?}");
                        // one number that is no bf16, and all take four bytes
                        let mut other = b.try_clone().unwrap();
                        other.f32_mut()[n * k - 1] = 1.0 + f32::EPSILON;
                        let whole = Packed::new(numbers, (&other, op), leaf, &device);
                        let whole = whole.unwrap().unwrap();
                        assert!(
                            whole.bytes().abs_diff(2 * packed.bytes()) < 256,
                            "{place:?}"
                        );
                        product(numbers, &mut want, left, (&other, op), leaf, false).unwrap();
                        product(numbers, &mut found, left, &whole, leaf, false).unwrap();
                        assert!(bits(found.f32()) == bits(want.f32()), "whole {place:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn sums_that_are_rounded_to_bf16_are_those_of_stored_factors() {
        for device in devices() {
            for (m, n, k) in [
                (1, 300, 600),
                (2, 300, 1700),
                (4, 140, 70),
                (16, 70, 1700),
                (70, 96, 300),
            ] {
                let a = random(&[m, k], 1, &device).unwrap();
                let b = random(&[k, n], 2, &device).unwrap();
                for numbers in [Numbers::Bf16, Numbers::Bf16Tiles] {
                    let empty = || Tensor::zeros(&[m, n], DType::Bf16, &device).unwrap();
                    let (mut want, mut found) = (empty(), empty());
                    let left = (&a, Op::Plain);
                    product(numbers, &mut want, left, (&b, Op::Plain), 32, false).unwrap();
                    let packed = Packed::new(numbers, (&b, Op::Plain), 32, &device);
                    let packed = packed.unwrap().unwrap();
                    product(numbers, &mut found, left, &packed, 32, false).unwrap();
                    let place = (&device, numbers, m, n, k);
                    assert!(found.bf16() == want.bf16(), "{place:?}");
                    assert!(found.bf16().iter().any(|x| x.0 != 0), "{place:?}");
                }
            }
        }
    }
}
