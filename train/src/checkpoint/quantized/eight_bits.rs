//! Weights in 8 bits with f32 scales, each of which multiplies a row or a block of 128 x 128.
//!
//! Facts from compressed-tensors 0.20 (`quantization/utils/helpers.py`, `lifecycle/forward.py`): a scale is the largest size divided by
//! half of the range, 448 or 127.5, or f32's epsilon if that is 0; numbers are divided by it, clamped and rounded to the nearest,
//! ties to even. Activations are quantized by token as they come (presets `FP8_DYNAMIC` and `W8A8` without calibration; by 128
//! features of a token with blocks).

use crate::checkpoint::safetensors::Format;

/// Number format of the linear layers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EightBits {
    /// FP8 E4M3.
    Fp8,
    /// Whole numbers.
    Int8,
}

/// Stored bytes and the scales that multiply them.
#[derive(Debug, PartialEq)]
pub(crate) struct Scaled {
    pub bytes: Vec<u8>,
    pub scales: Vec<f32>,
}

impl EightBits {
    /// Half of the range between the smallest and the largest number.
    fn half_range(self) -> f32 {
        match self {
            EightBits::Fp8 => 448.0,
            EightBits::Int8 => 127.5,
        }
    }

    fn scale(self, largest: f32) -> f32 {
        match largest / self.half_range() {
            0.0 => f32::EPSILON,
            scale => scale,
        }
    }

    /// The stored byte of a scaled number.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "clamped before"
    )]
    fn byte(self, x: f32) -> u8 {
        match self {
            EightBits::Int8 => (x.round_ties_even().clamp(-128.0, 127.0) as i8).cast_unsigned(),
            EightBits::Fp8 => {
                let sign = if x.is_sign_negative() { 128 } else { 0 };
                let size = x.abs().min(448.0);
                // steps of 2^-9 below 2^-6, else eight of them to a power of two
                let exponent = (size.to_bits() >> 23).cast_signed() - 127;
                let exponent = exponent.max(-6);
                let steps = (size * 2.0f32.powi(3 - exponent)).round_ties_even();
                // eight steps more are the next exponent
                let code = steps as i32 + 8 * (exponent + 6);
                sign | code as u8
            }
        }
    }

    /// Bytes of a matrix by rows of `columns` numbers, and the scale of each row.
    pub(crate) fn by_rows(self, values: &[f32], columns: usize) -> Scaled {
        self.by_blocks(values, columns, [1, columns])
    }

    /// The numbers that `by_rows` stands for.
    pub(crate) fn rounded_rows(self, values: &[f32], columns: usize) -> Vec<f32> {
        let format = match self {
            EightBits::Fp8 => Format::F8E4m3,
            EightBits::Int8 => Format::I8,
        };
        let Scaled { bytes, scales } = self.by_rows(values, columns);
        let rows = bytes.chunks(columns.max(1)).zip(scales);
        let of_rows = rows.flat_map(|(row, scale)| {
            row.iter()
                .map(move |byte| format.widened(u16::from(*byte)) * scale)
        });
        of_rows.collect()
    }

    /// Bytes of a matrix `[rows, columns]` in row order, and the scales of its blocks in row order; blocks at the right and lower
    /// edge are smaller.
    pub(crate) fn by_blocks(self, values: &[f32], columns: usize, block: [usize; 2]) -> Scaled {
        let [high, wide] = block.map(|side| side.max(1));
        let columns = columns.max(1);
        let mut bytes = Vec::with_capacity(values.len());
        let mut scales = Vec::new();
        for band in values.chunks(high * columns) {
            let mut largest = vec![0.0f32; columns.div_ceil(wide)];
            for row in band.chunks(columns) {
                for (most, part) in largest.iter_mut().zip(row.chunks(wide)) {
                    *most = part.iter().fold(*most, |most, x| most.max(x.abs()));
                }
            }
            let own: Vec<f32> = largest.into_iter().map(|x| self.scale(x)).collect();
            for row in band.chunks(columns) {
                for (scale, part) in own.iter().zip(row.chunks(wide)) {
                    bytes.extend(part.iter().map(|x| self.byte(x / scale)));
                }
            }
            scales.extend(own);
        }
        Scaled { bytes, scales }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn bytes_of_e4m3_are_the_nearest_of_all_its_numbers() {
        let all: Vec<(u8, f32)> = (0u8..=255)
            .map(|byte| (byte, Format::F8E4m3.widened(u16::from(byte))))
            .filter(|(_, x)| !x.is_nan())
            .collect();
        assert_eq!(all.len(), 254);
        for (byte, x) in &all {
            assert_eq!(EightBits::Fp8.byte(*x), *byte, "{x}");
        }
        let mut sizes: Vec<(u8, f32)> = all
            .iter()
            .copied()
            .filter(|(byte, _)| *byte < 128)
            .collect();
        sizes.sort_by(|a, b| a.1.total_cmp(&b.1));
        for both in sizes.windows(2) {
            let [(low, a), (high, b)] = [both[0], both[1]];
            let middle = f32::midpoint(a, b);
            // ties go to the even byte
            let even = if low % 2 == 0 { low } else { high };
            assert_eq!(EightBits::Fp8.byte(middle), even, "{middle}");
            assert_eq!(EightBits::Fp8.byte(middle.next_down()), low);
            assert_eq!(EightBits::Fp8.byte(-middle.next_up()), high | 128);
        }
        assert_eq!(EightBits::Fp8.byte(1e9), 126);
    }

    /// compressed-tensors' bytes and scales (tests/oracles/eight_bits.py).
    #[test]
    fn rows_are_quantized_as_compressed_tensors_does() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/oracles/eight_bits.json");
        let golden: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
        let words = |value: &Value| -> Vec<u32> { serde_json::from_value(value.clone()).unwrap() };
        let numbers =
            |value: &Value| -> Vec<f32> { words(value).into_iter().map(f32::from_bits).collect() };
        let values = numbers(&golden["values"]);
        let columns = usize::try_from(golden["columns"].as_u64().unwrap()).unwrap();
        for (kind, name) in [(EightBits::Fp8, "fp8"), (EightBits::Int8, "int8")] {
            let Scaled { bytes, scales } = kind.by_rows(&values, columns);
            assert_eq!(scales, numbers(&golden[name]["scales"]), "{name}");
            let wanted: Vec<u8> = serde_json::from_value(golden[name]["bytes"].clone()).unwrap();
            assert_eq!(bytes, wanted, "{name}");
        }
        let blocks = &golden["blocks"];
        let side = |name: &str| usize::try_from(blocks[name].as_u64().unwrap()).unwrap();
        let found = EightBits::Fp8.by_blocks(&values, columns, [side("high"), side("wide")]);
        assert_eq!(found.scales, numbers(&blocks["scales"]));
        let wanted: Vec<u8> = serde_json::from_value(blocks["bytes"].clone()).unwrap();
        assert_eq!(found.bytes, wanted);
    }
}
