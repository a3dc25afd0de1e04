//! Experts of published gpt-oss files in MXFP4 (OCP Microscaling Formats 1.0, sec. 5.3.3): 32 inputs of an output share a power
//! of two, and each is one of sixteen numbers of four bits.
//!
//! In place of `[experts, in, out]` a file has `_blocks`, `[experts, out, in / 32, 16]` bytes of two numbers each, the first one
//! in the lower bits, and `_scales`, `[experts, out, in / 32]` bytes, exponents plus 127.

/// Inputs of a scale.
const BLOCK: usize = 32;

/// The scale that stands for no number (E8M0).
pub(crate) const NO_SCALE: u8 = 255;

/// The numbers by code: 1 sign, 2 exponent bits, 1 fraction bit (E2M1).
const NUMBERS: [f32; 16] = [
    0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0,
];

/// One of the two tensors in place of another.
pub(crate) struct Part {
    pub name: String,
    pub dims: Vec<usize>,
    /// Bytes of one expert.
    pub bytes: usize,
}

/// Blocks and scales in place of a tensor of these dims, `[experts, in, out]`; `None` if it can have none.
pub(crate) fn parts(name: &str, dims: &[usize]) -> Option<[Part; 2]> {
    let &[experts, inputs, outputs] = dims else {
        return None;
    };
    let blocks = inputs / BLOCK;
    inputs.is_multiple_of(BLOCK).then(|| {
        [
            Part {
                name: format!("{name}_blocks"),
                dims: vec![experts, outputs, blocks, BLOCK / 2],
                bytes: outputs * inputs / 2,
            },
            Part {
                name: format!("{name}_scales"),
                dims: vec![experts, outputs, blocks],
                bytes: outputs * blocks,
            },
        ]
    })
}

/// Numbers of one expert, `[in, out]`, of its blocks and scales, none of which is [`NO_SCALE`].
#[expect(
    clippy::cast_possible_truncation,
    reason = "powers of two from 2^-127 to 2^127 are exact in f32"
)]
pub(crate) fn values(blocks: &[u8], scales: &[u8], outputs: usize) -> Vec<f32> {
    let inputs = 2 * blocks.len() / outputs.max(1);
    let mut values = vec![0.0; inputs * outputs];
    let all = blocks.chunks_exact(BLOCK / 2).zip(scales).enumerate();
    for (number, (block, scale)) in all {
        let scale = 2_f64.powi(i32::from(*scale) - 127) as f32;
        let (output, first) = (number * BLOCK / inputs, number * BLOCK % inputs);
        for (pair, byte) in block.iter().enumerate() {
            for (half, code) in [byte & 15, byte >> 4].into_iter().enumerate() {
                let input = first + 2 * pair + half;
                values[input * outputs + output] = NUMBERS[usize::from(code)] * scale;
            }
        }
    }
    values
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_numbers_of_four_bits_times_a_power_of_two() {
        // two outputs of 32 inputs: every code twice, the lower bits first; then the code of 6 with the smallest scale
        let codes: Vec<u8> = (0..16)
            .map(|at| {
                let [low, high] = [2 * at, 2 * at + 1].map(|code| code % 16);
                low | (high << 4)
            })
            .collect();
        let blocks = [codes, vec![0x77; 16]].concat();
        let found = values(&blocks, &[128, 0], 2);
        let first = [
            0.0, 1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, -0.0, -1.0, -2.0, -3.0, -4.0, -6.0, -8.0,
            -12.0,
        ];
        for (input, pair) in found.chunks_exact(2).enumerate() {
            let wanted: f32 = first[input % 16];
            assert_eq!(pair[0].to_bits(), wanted.to_bits(), "{input}");
            assert_eq!(f64::from(pair[1]), 6.0 * 2_f64.powi(-127), "{input}");
        }
        let [blocks, scales] = parts("x", &[3, 64, 5]).unwrap();
        assert_eq!((blocks.dims, blocks.bytes), (vec![3, 5, 2, 16], 160));
        assert_eq!((scales.dims, scales.bytes), (vec![3, 5, 2], 10));
        assert!(parts("x", &[3, 48, 5]).is_none(), "not whole blocks");
    }
}
