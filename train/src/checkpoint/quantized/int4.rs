//! Weights in 4 bits with a scale for each group of inputs of an output (compressed-tensors' W4A16).
//!
//! Facts from compressed-tensors 0.20 (`quantization/utils/helpers.py`, `compressors/pack_quantized/helpers.py`): a scale is the
//! largest size divided by 7.5, or f32's epsilon if that is 0; a code is the number divided by it, clamped to -8 ..= 7 and rounded
//! to the nearest, ties to even; code + 8 is packed in order along the inputs, the first in the lowest bits. Scales are stored in
//! bf16, as vLLM and transformers hold them, and are rounded before numbers are divided by them.

/// A matrix `[out, in]` in 4 bits.
#[derive(Debug, PartialEq)]
pub(crate) struct GroupCodes {
    /// -8 ..= 7, `[out, in]`
    pub codes: Vec<i8>,
    /// Numbers that bf16 has, `[out, in / group]`
    pub scales: Vec<f32>,
    /// Inputs.
    pub columns: usize,
    /// Inputs of a scale.
    pub group: usize,
}

/// The scale of numbers of which the largest has this size.
pub(crate) fn scale_of(largest: f32) -> f32 {
    match half::bf16::from_f32(largest / 7.5).to_f32() {
        0.0 => f32::EPSILON,
        scale => scale,
    }
}

/// The largest size of some numbers.
pub(crate) fn largest(values: &[f32]) -> f32 {
    values.iter().fold(0.0, |most, x| most.max(x.abs()))
}

/// The code of a number divided by its scale.
#[expect(clippy::cast_possible_truncation, reason = "clamped before")]
pub(crate) fn code(scaled: f32) -> i8 {
    scaled.clamp(-8.0, 7.0).round_ties_even() as i8
}

impl GroupCodes {
    /// Rounds each number of `[out, columns]` to the nearest.
    pub(crate) fn nearest(values: &[f32], columns: usize, group: usize) -> GroupCodes {
        let parts = values
            .chunks(columns.max(1))
            .flat_map(|row| row.chunks(group.max(1)));
        let mut codes = Vec::with_capacity(values.len());
        let mut scales = Vec::new();
        for part in parts {
            let scale = scale_of(largest(part));
            codes.extend(part.iter().map(|x| code(x / scale)));
            scales.push(scale);
        }
        GroupCodes {
            codes,
            scales,
            columns,
            group,
        }
    }

    /// The numbers that the codes stand for, `[out, in]`.
    pub(crate) fn values(&self) -> Vec<f32> {
        let parts = self
            .codes
            .chunks(self.columns.max(1))
            .flat_map(|row| row.chunks(self.group.max(1)));
        let scaled = parts.zip(&self.scales);
        scaled
            .flat_map(|(part, scale)| part.iter().map(move |code| f32::from(*code) * scale))
            .collect()
    }

    /// Little-endian words of 8 codes each, `[out, in / 8 rounded up]`.
    pub(crate) fn packed(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.codes.len() / 2);
        for row in self.codes.chunks(self.columns.max(1)) {
            for eight in row.chunks(8) {
                let word = eight.iter().enumerate().fold(0u32, |word, (at, code)| {
                    word | u32::from((code + 8).cast_unsigned()) << (4 * at)
                });
                bytes.extend(word.to_le_bytes());
            }
        }
        bytes
    }

    /// AutoGPTQ's tensors as little-endian bytes: words of 8 inputs `[in / 8, out]`, zero points less 1 `[groups, out / 8]`, scales in
    /// f16 `[groups, out]`, the group of each input. Inputs and outputs are multiples of 8.
    pub(crate) fn gptq(&self) -> [Vec<u8>; 4] {
        let (n, groups) = (self.columns, self.columns / self.group.max(1));
        let out = self.codes.len() / n.max(1);
        let word = |first: usize, output: usize| {
            (0..8).fold(0u32, |word, at| {
                let code = self.codes[output * n + first + at] + 8;
                word | u32::from(code.cast_unsigned()) << (4 * at)
            })
        };
        let words = (0..n / 8).flat_map(|at| (0..out).map(move |output| (at * 8, output)));
        let words = words.flat_map(|(first, output)| word(first, output).to_le_bytes());
        let scales = (0..groups).flat_map(|at| (0..out).map(move |output| output * groups + at));
        let scales = scales.flat_map(|at| half::f16::from_f32(self.scales[at]).to_le_bytes());
        // 8 less 1 in each of 8
        let zeros = vec![0x77; groups * out / 2];
        let order = (0..n).flat_map(|input| {
            let group = u32::try_from(input / self.group.max(1)).unwrap_or(u32::MAX);
            group.to_le_bytes()
        });
        [words.collect(), zeros, scales.collect(), order.collect()]
    }

    /// Scales as little-endian bf16.
    pub(crate) fn packed_scales(&self) -> Vec<u8> {
        let halves = self.scales.iter().map(|x| half::bf16::from_f32(*x));
        halves.flat_map(|x| x.to_le_bytes()).collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    /// compressed-tensors' words, scales and weights (tests/oracles/int4_groups.py).
    #[test]
    fn groups_are_rounded_and_packed_as_compressed_tensors_does() {
        let path = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/tests/oracles/int4_groups.json"
        );
        let golden: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
        let cases = golden["cases"].as_array().unwrap();
        assert_eq!(cases.len(), 4);
        for case in cases {
            let words =
                |key: &str| -> Vec<u32> { serde_json::from_value(case[key].clone()).unwrap() };
            let numbers =
                |key: &str| -> Vec<f32> { words(key).into_iter().map(f32::from_bits).collect() };
            let count = |key: &str| usize::try_from(case[key].as_u64().unwrap()).unwrap();
            let found = GroupCodes::nearest(&numbers("values"), count("columns"), count("group"));
            assert_eq!(found.scales, numbers("scales"));
            let packed = found.packed();
            let packed: Vec<u32> = packed
                .chunks(4)
                .map(|four| u32::from_le_bytes(four.try_into().unwrap()))
                .collect();
            assert_eq!(packed, words("packed"));
            assert_eq!(found.values(), numbers("weights"));
        }
    }
}
