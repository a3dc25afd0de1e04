//! Block formats of GGUF: a row of weights is cut into blocks of 32 or 256 numbers that share scales.
//!
//! Layouts are those of ggml (`ggml-common.h`). `Q4_0` to `Q8_0` are quantized to the bytes of the Python package
//! `gguf`; the 6-bit searches of the K types follow ggml's reference, whose sums depend on how a compiler contracts
//! products, so that blocks are those of a build without contraction. All of them are dequantized to the bits of `gguf`.

mod block;
mod k_types;
mod plain_types;
mod search;

use block::{PLAIN, SUPER};

/// Format of a block.
#[expect(non_camel_case_types, reason = "ggml's names")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BlockType {
    /// 32 numbers of 4 bits, one scale.
    Q4_0,
    /// 32 numbers of 4 bits, a scale and a minimum.
    Q4_1,
    /// 32 numbers of 5 bits, one scale.
    Q5_0,
    /// 32 numbers of 5 bits, a scale and a minimum.
    Q5_1,
    /// 32 numbers of 8 bits, one scale.
    Q8_0,
    /// 256 numbers of 4 bits; scales and minima of 6 bits for each 32.
    Q4_K,
    /// 256 numbers of 5 bits; scales and minima of 6 bits for each 32.
    Q5_K,
    /// 256 numbers of 6 bits; scales of 8 bits for each 16.
    Q6_K,
}

impl BlockType {
    /// All of them.
    pub const ALL: [BlockType; 8] = [
        BlockType::Q4_0,
        BlockType::Q4_1,
        BlockType::Q5_0,
        BlockType::Q5_1,
        BlockType::Q8_0,
        BlockType::Q4_K,
        BlockType::Q5_K,
        BlockType::Q6_K,
    ];

    /// ggml's name.
    pub fn name(self) -> &'static str {
        match self {
            BlockType::Q4_0 => "Q4_0",
            BlockType::Q4_1 => "Q4_1",
            BlockType::Q5_0 => "Q5_0",
            BlockType::Q5_1 => "Q5_1",
            BlockType::Q8_0 => "Q8_0",
            BlockType::Q4_K => "Q4_K",
            BlockType::Q5_K => "Q5_K",
            BlockType::Q6_K => "Q6_K",
        }
    }

    /// Numbers of a block.
    pub fn numbers(self) -> usize {
        match self {
            BlockType::Q4_0
            | BlockType::Q4_1
            | BlockType::Q5_0
            | BlockType::Q5_1
            | BlockType::Q8_0 => PLAIN,
            BlockType::Q4_K | BlockType::Q5_K | BlockType::Q6_K => SUPER,
        }
    }

    /// Bytes of a block.
    pub fn bytes(self) -> usize {
        match self {
            BlockType::Q4_0 => 18,
            BlockType::Q4_1 => 20,
            BlockType::Q5_0 => 22,
            BlockType::Q5_1 => 24,
            BlockType::Q8_0 => 34,
            BlockType::Q4_K => 144,
            BlockType::Q5_K => 176,
            BlockType::Q6_K => 210,
        }
    }

    /// Blocks of x, which must be whole blocks of finite numbers: one that is not finite has no defined bytes.
    ///
    /// # Panics
    /// If the lengths are not those of the same number of blocks.
    pub fn quantize(self, x: &[f32], blocks: &mut [u8]) {
        self.expect_lengths(x.len(), blocks.len());
        let numbers = x.chunks_exact(self.numbers());
        for (x, block) in numbers.zip(blocks.chunks_exact_mut(self.bytes())) {
            match self {
                BlockType::Q4_0 => plain_types::to_q4_0(x, block),
                BlockType::Q4_1 => plain_types::to_q4_1(x, block),
                BlockType::Q5_0 => plain_types::to_q5_0(x, block),
                BlockType::Q5_1 => plain_types::to_q5_1(x, block),
                BlockType::Q8_0 => plain_types::to_q8_0(x, block),
                BlockType::Q4_K => k_types::to_q4_k(x, block),
                BlockType::Q5_K => k_types::to_q5_k(x, block),
                BlockType::Q6_K => k_types::to_q6_k(x, block),
            }
        }
    }

    /// Numbers of blocks.
    ///
    /// # Panics
    /// As `quantize`.
    pub fn dequantize(self, blocks: &[u8], x: &mut [f32]) {
        self.expect_lengths(x.len(), blocks.len());
        let numbers = x.chunks_exact_mut(self.numbers());
        for (x, block) in numbers.zip(blocks.chunks_exact(self.bytes())) {
            match self {
                BlockType::Q4_0 => plain_types::of_q4_0(block, x),
                BlockType::Q4_1 => plain_types::of_q4_1(block, x),
                BlockType::Q5_0 => plain_types::of_q5_0(block, x),
                BlockType::Q5_1 => plain_types::of_q5_1(block, x),
                BlockType::Q8_0 => plain_types::of_q8_0(block, x),
                BlockType::Q4_K => k_types::of_q4_k(block, x),
                BlockType::Q5_K => k_types::of_q5_k(block, x),
                BlockType::Q6_K => k_types::of_q6_k(block, x),
            }
        }
    }

    fn expect_lengths(self, numbers: usize, bytes: usize) {
        assert!(
            numbers.is_multiple_of(self.numbers())
                && bytes == numbers / self.numbers() * self.bytes(),
            "{}: {numbers} numbers and {bytes} bytes",
            self.name()
        );
    }
}

#[cfg(test)]
mod tests;
