//! Number formats of GGUF's tensors.

use half::{bf16, f16};
use kernels::quant::BlockType;
use rayon::prelude::*;

/// Number format of a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    F32,
    F16,
    Bf16,
    Block(BlockType),
}

/// Rows that a thread converts at once.
const ROWS: usize = 16;

impl Kind {
    /// All that are read, by ggml's code.
    pub(crate) const CODES: [(u32, Kind); 11] = [
        (0, Kind::F32),
        (1, Kind::F16),
        (2, Kind::Block(BlockType::Q4_0)),
        (3, Kind::Block(BlockType::Q4_1)),
        (6, Kind::Block(BlockType::Q5_0)),
        (7, Kind::Block(BlockType::Q5_1)),
        (8, Kind::Block(BlockType::Q8_0)),
        (12, Kind::Block(BlockType::Q4_K)),
        (13, Kind::Block(BlockType::Q5_K)),
        (14, Kind::Block(BlockType::Q6_K)),
        (30, Kind::Bf16),
    ];

    /// ggml's code.
    pub(crate) fn code(self) -> u32 {
        let mut all = Kind::CODES.into_iter();
        all.find(|(_, kind)| *kind == self)
            .map_or(0, |(code, _)| code)
    }

    pub(crate) fn of_code(code: u32) -> Option<Kind> {
        let mut all = Kind::CODES.into_iter();
        all.find(|(known, _)| *known == code).map(|(_, kind)| kind)
    }

    /// ggml's name.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::F32 => "F32",
            Kind::F16 => "F16",
            Kind::Bf16 => "BF16",
            Kind::Block(block) => block.name(),
        }
    }

    /// Numbers of a block: rows are whole blocks.
    pub(crate) fn numbers(self) -> usize {
        match self {
            Kind::F32 | Kind::F16 | Kind::Bf16 => 1,
            Kind::Block(block) => block.numbers(),
        }
    }

    /// Bytes of a block.
    fn block_bytes(self) -> usize {
        match self {
            Kind::F32 => 4,
            Kind::F16 | Kind::Bf16 => 2,
            Kind::Block(block) => block.bytes(),
        }
    }

    /// Bytes of so many numbers, which are whole blocks; `None` if there is no such count.
    pub(crate) fn bytes(self, numbers: usize) -> Option<usize> {
        numbers
            .is_multiple_of(self.numbers())
            .then(|| numbers / self.numbers())?
            .checked_mul(self.block_bytes())
    }

    /// Stored rows of `cols` numbers.
    pub(crate) fn encode(self, x: &[f32], cols: usize) -> Vec<u8> {
        let (step, row) = (cols.max(1), self.bytes(cols).unwrap_or(0).max(1));
        let mut out = vec![0; self.bytes(x.len()).unwrap_or(0)];
        let rows = out.par_chunks_mut(ROWS * row);
        rows.zip(x.par_chunks(ROWS * step))
            .for_each(|(out, x)| match self {
                Kind::F32 => put(out, x, f32::to_le_bytes),
                Kind::F16 => put(out, x, |x| f16::from_f32(x).to_le_bytes()),
                Kind::Bf16 => put(out, x, |x| bf16::from_f32(x).to_le_bytes()),
                Kind::Block(block) => block.quantize(x, out),
            });
        out
    }

    /// Numbers of stored rows.
    pub(crate) fn decode(self, stored: &[u8], cols: usize) -> Vec<f32> {
        let (step, row) = (cols.max(1), self.bytes(cols).unwrap_or(0).max(1));
        let mut out = vec![0.0; stored.len() / row * step];
        let rows = out.par_chunks_mut(ROWS * step);
        rows.zip(stored.par_chunks(ROWS * row))
            .for_each(|(out, stored)| match self {
                Kind::F32 => get(out, stored, f32::from_le_bytes),
                Kind::F16 => get(out, stored, |x| f16::from_le_bytes(x).to_f32()),
                Kind::Bf16 => get(out, stored, |x| bf16::from_le_bytes(x).to_f32()),
                Kind::Block(block) => block.dequantize(stored, out),
            });
        out
    }
}

fn put<const N: usize>(out: &mut [u8], x: &[f32], of: impl Fn(f32) -> [u8; N]) {
    for (out, &x) in out.chunks_exact_mut(N).zip(x) {
        out.copy_from_slice(&of(x));
    }
}

fn get<const N: usize>(out: &mut [f32], stored: &[u8], of: impl Fn([u8; N]) -> f32) {
    for (out, stored) in out.iter_mut().zip(stored.as_chunks::<N>().0) {
        *out = of(*stored);
    }
}
