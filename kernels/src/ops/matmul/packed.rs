//! Prepacked second factor of products, packed once for many of them.

use super::cpu;
use super::operand::{Form, Operand, Packed, flattened};
use crate::descriptor::numbers::Numbers;
use crate::{DType, Device, Isa, Result, Tensor};

impl Packed {
    /// Packs op(b) for products of leaves of `leaf`; f32 that all equal a bf16 take 2 bytes each,
    /// and codes times scales 0.56 to 1.25 (`cpu::codes`); None for devices other than the CPU and their number formats, and
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
        let likely = |isa| Form::likely(numbers, b, isa);
        Packed::of(numbers, b, leaf, device, likely)
    }

    /// As `new` for products in f32, but that products with codes that are whole numbers (not FP8) round each row of the first factor to 8 bits in groups of 16 or 32 of
    /// k, with exact sums of integers in each group (`cpu/int8_groups`). Leaves that are no whole groups count as one there.
    /// # Shapes
    /// op(b): `[k, n]`, f32 or bf16, leading dims flattened.
    /// # Errors
    /// As `new`.
    pub fn with_rounded_rows<'b>(
        b: impl Into<Operand<'b>>,
        leaf: usize,
        device: &Device,
    ) -> Result<Option<Packed>> {
        let (numbers, b) = (Numbers::F32, b.into());
        let rounded = |isa| Form::likely(numbers, b, isa).with_rounded_rows();
        Packed::of(numbers, b, leaf, device, rounded)
    }

    /// Packs op(b) in the form that `likely` names, or the next one that holds it.
    fn of(
        numbers: Numbers,
        b: Operand<'_>,
        leaf: usize,
        device: &Device,
        likely: impl FnOnce(Isa) -> Form,
    ) -> Result<Option<Packed>> {
        b.tensor.expect_number("matmul::Packed", "b")?;
        let (k, n) = flattened(b);
        if !device.is_host() {
            return Ok(None);
        }
        let _span = crate::trace::op(concat!(module_path!(), "::fill"));
        // the same f32 in less memory, which products of few rows wait for
        let mut form = likely(device.isa());
        let words = loop {
            let elements = form.elements(numbers, [k, n], leaf, device.isa());
            let Some((dtype, elements)) = elements else {
                return Ok(None);
            };
            let mut words = Tensor::empty(&[elements], dtype, device)?;
            if cpu::fill((numbers, form), &mut words, b, leaf) {
                break words;
            }
            form = form.next(b);
        };
        let packed = Packed {
            words,
            form,
            numbers,
            k,
            n,
            leaf,
        };
        Ok(Some(packed))
    }

    /// Whether products round rows of the first factor to 8 bits.
    pub fn rounds_rows(&self) -> bool {
        matches!(self.form, Form::Int8(_))
    }

    /// Rows and columns of op(b).
    pub fn dims(&self) -> [usize; 2] {
        [self.k, self.n]
    }

    pub(in crate::ops) fn numbers(&self) -> Numbers {
        self.numbers
    }

    /// Elements of k per leaf; 0: one leaf.
    pub(in crate::ops) fn leaf(&self) -> usize {
        self.leaf
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
        let elements = Form::Whole.elements(Numbers::Bf16Tiles, [k, n], leaf, Isa::Portable);
        elements.map_or(0, |(_, floats)| Device::bytes_of(floats))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Error;
    use crate::matmul::{Factor, Op, product};
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

    /// Rows, columns and terms of products.
    const SHAPES: [(usize, usize, usize); 10] = [
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
    ];

    #[test]
    fn numbers_that_equal_a_bf16_are_packed_in_half_the_bytes_with_the_same_bits() {
        let half = |x: f32| f32::from_bits(x.to_bits() & 0xffff_0000);
        let special = [f32::NAN, f32::INFINITY, -0.0, 1e-40, f32::MAX];
        for device in devices() {
            for (m, n, k) in SHAPES {
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

    /// Op(b) `[k, n]` as it is stored, of codes times scales that are the same for every 32 of k.
    fn multiples(op: Op, [k, n]: [usize; 2], codes: i32, seed: u32, device: &Device) -> Tensor {
        let mut random = seed;
        let mut next = || {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            random >> 8
        };
        let dims = if op == Op::Plain { [k, n] } else { [n, k] };
        let mut b = Tensor::zeros(&dims, DType::F32, device).unwrap();
        for column in 0..n {
            let mut scale = 0.0;
            for row in 0..k {
                if row % 32 == 0 {
                    // of either sign, some subnormal, some zero
                    let bits = u16::try_from(next() & 0xffff).unwrap();
                    let bits = if bits & 0x7c00 == 0x7c00 {
                        bits & 0x83ff
                    } else {
                        bits
                    };
                    scale = half::f16::from_bits(bits).to_f32();
                }
                let code = i32::try_from(next()).unwrap() % (2 * codes) - codes;
                let at = if op == Op::Plain {
                    row * n + column
                } else {
                    column * k + row
                };
                b.f32_mut()[at] = code as f32 * scale;
            }
        }
        b
    }

    #[test]
    fn multiples_of_scales_are_packed_as_codes_with_the_same_bits() {
        for device in devices() {
            let shapes = SHAPES.into_iter().chain([(3, 40, 0)]);
            for (number, (m, n, k)) in shapes.enumerate() {
                for (op, codes) in [(Op::Plain, 8), (Op::Transposed, 128), (Op::Transposed, 8)] {
                    let seed = u32::try_from(number).unwrap();
                    let a = random(&[m, k], 1, &device).unwrap();
                    let mut b = multiples(op, [k, n], codes, seed, &device);
                    for leaf in [0, 12, 50] {
                        let empty = || Tensor::zeros(&[m, n], DType::F32, &device).unwrap();
                        let (mut want, mut found) = (empty(), empty());
                        let (numbers, left) = (Numbers::F32, (&a, Op::Plain));
                        product(numbers, &mut want, left, (&b, op), leaf, false).unwrap();
                        let packed = Packed::new(numbers, (&b, op), leaf, &device);
                        let packed = packed.unwrap().unwrap();
                        product(numbers, &mut found, left, &packed, leaf, false).unwrap();
                        let place = (&device, m, n, k, op, codes, leaf);
                        assert!(bits(found.f32()) == bits(want.f32()), "{place:?}");
                        // 16 or 32 columns a panel, 32 numbers a group, with a scale of 2 bytes
                        let numbers_held = n.next_multiple_of(32) * k.next_multiple_of(32);
                        let most = numbers_held / 32 * if codes == 8 { 18 } else { 34 };
                        let most = most.max(64);
                        assert!(packed.bytes() <= most, "{place:?}: {}", packed.bytes());
                    }
                    if k > 0 {
                        // a number that is no multiple of the others' scale, and none is a code
                        b.f32_mut()[0] = 1.0 + f32::EPSILON;
                        let packed = Packed::new(Numbers::F32, (&b, op), 0, &device);
                        assert!(packed.unwrap().unwrap().bytes() >= 4 * n * k);
                    }
                }
            }
        }
    }

    /// The number of a byte of FP8 E4M3 (Micikevicius et al. 2022, table 1), but for its NaN.
    fn of_fp8(byte: u8) -> f32 {
        let (exponent, fraction) = (i32::from(byte >> 3 & 15), f32::from(byte & 7));
        let size = match exponent {
            0 => fraction * 2f32.powi(-9),
            _ => (8.0 + fraction) * 2f32.powi(exponent - 10),
        };
        if byte < 128 { size } else { -size }
    }

    /// W `[n, k]` of bytes, and a scale of 24 bits for each block of so many of n and k.
    fn scaled(
        number: fn(u8) -> f32,
        [n, k]: [usize; 2],
        [high, wide]: [usize; 2],
        device: &Device,
    ) -> Tensor {
        let mut random = 7u32;
        let mut next = || {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            random >> 8
        };
        let blocks = n.div_ceil(high) * k.div_ceil(wide);
        // around a power of two, as far as the next ones
        let scales: Vec<f32> = (0..blocks)
            .map(|block| f32::from_bits(0x3a80_0000 ^ (next() >> (block % 24))))
            .collect();
        let mut w = Tensor::zeros(&[n, k], DType::F32, device).unwrap();
        for (at, x) in w.f32_mut().iter_mut().enumerate() {
            let block = at / k / high * k.div_ceil(wide) + at % k / wide;
            let [byte, ..] = (next() % 127).to_le_bytes();
            let sign = if next() % 2 == 0 { 0 } else { 128 };
            *x = number(byte | sign) * scales[block];
        }
        w
    }

    #[test]
    fn codes_whose_products_with_scales_are_rounded_are_packed_with_the_same_bits() {
        let of_int8 = |byte: u8| f32::from(byte.cast_signed());
        let all = 1 << 20;
        for device in devices() {
            for (m, n, k) in SHAPES {
                for (number, block) in [
                    (of_int8 as fn(u8) -> f32, [1, all]),
                    (of_int8, [all, all]),
                    (of_fp8, [1, all]),
                    (of_fp8, [128, 128]),
                ] {
                    let a = random(&[m, k], 1, &device).unwrap();
                    let mut w = scaled(number, [n, k], block, &device);
                    let is_fp8 = number(1) != 1.0;
                    for leaf in [0, 12, 50] {
                        let product_of = |b: Factor<'_>| {
                            let mut c = Tensor::zeros(&[m, n], DType::F32, &device).unwrap();
                            product(Numbers::F32, &mut c, &a, b, leaf, false).unwrap();
                            bits(c.f32())
                        };
                        let want = product_of(Factor::Stored(w.transposed()));
                        let packed = Packed::new(Numbers::F32, w.transposed(), leaf, &device);
                        let packed = packed.unwrap().unwrap();
                        let place = (&device, m, n, k, is_fp8, block, leaf);
                        assert!(product_of(Factor::Packed(&packed)) == want, "{place:?}");
                        // a byte for each number, and four for each scale of 32
                        let numbers_held = n.next_multiple_of(32) * k.next_multiple_of(32);
                        let most = numbers_held / 32 * 36;
                        assert!(packed.bytes() <= most, "{place:?}: {}", packed.bytes());
                        let rounded = Packed::with_rounded_rows(w.transposed(), leaf, &device);
                        let rounded = rounded.unwrap().unwrap();
                        assert_eq!(rounded.rounds_rows(), !is_fp8, "{place:?}");
                        assert!(rounded.bytes() <= most, "{place:?}");
                        if is_fp8 {
                            assert!(product_of(Factor::Packed(&rounded)) == want, "{place:?}");
                        }
                    }
                    // a number in the last place of another's is no code
                    let x = w
                        .f32_mut()
                        .iter_mut()
                        .max_by(|a, b| a.total_cmp(b))
                        .unwrap();
                    *x = x.next_up();
                    let packed = Packed::new(Numbers::F32, w.transposed(), 0, &device);
                    let bytes = packed.unwrap().unwrap().bytes();
                    assert!(bytes >= 4 * n * k, "{device:?} {n} {k} {is_fp8} {block:?}");
                }
            }
        }
    }

    #[test]
    fn numbers_that_are_not_finite_are_no_codes() {
        let device = Device::cpu();
        for other in [f32::NEG_INFINITY, f32::NAN, f32::INFINITY] {
            let mut b = multiples(Op::Transposed, [64, 20], 8, 1, &device);
            b.f32_mut()[33] = other;
            let packed = Packed::new(Numbers::F32, b.transposed(), 0, &device);
            assert!(packed.unwrap().unwrap().bytes() >= 2 * 64 * 20, "{other}");
        }
    }

    #[test]
    fn weights_of_block_formats_are_packed_as_codes() {
        use crate::quant::BlockType::{Q4_0, Q4_1, Q4_K, Q5_0, Q5_1, Q5_K, Q6_K, Q8_0};
        let (n, k) = (160, 512);
        for device in devices() {
            let numbers = random(&[n, k], 3, &device).unwrap();
            let mut b = numbers.try_clone().unwrap();
            let formats = [
                (Q8_0, 34),
                (Q4_0, 18),
                (Q4_1, 24),
                (Q5_0, 34),
                (Q5_1, 40),
                (Q4_K, 24),
                (Q5_K, 40),
                (Q6_K, 40),
            ];
            let a = random(&[5, k], 4, &device).unwrap();
            for (format, bytes) in formats {
                let mut blocks = vec![0; n * k / format.numbers() * format.bytes()];
                format.quantize(numbers.f32(), &mut blocks);
                format.dequantize(&blocks, b.f32_mut());
                let packed = Packed::new(Numbers::F32, b.transposed(), 0, &device);
                let packed = packed.unwrap().unwrap();
                assert_eq!(packed.bytes(), n * k / 32 * bytes, "{format:?}");
                let product_of = |b: Factor<'_>| {
                    let mut c = Tensor::zeros(&[5, n], DType::F32, &device).unwrap();
                    product(Numbers::F32, &mut c, &a, b, 0, false).unwrap();
                    bits(c.f32())
                };
                let want = product_of(Factor::Stored(b.transposed()));
                assert!(product_of(Factor::Packed(&packed)) == want, "{format:?}");
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
