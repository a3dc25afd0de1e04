//! Keys or values of a group in the layouts that products read: by rows (a key's features are the steps) and by
//! columns (keys are the steps, block by block).

use super::rows::lay;
use crate::cpu::Numbers;
use crate::cpu::bf16_pack::{join_columns, join_rows};
use crate::cpu::pack::Matrix;
use crate::cpu::strip::steps;
use crate::{DType, Device, Result, Tensor};

/// Keys or values stored row after row, or as words of pairs.
pub(super) struct Operand {
    /// `[keys, steps of width]`
    rows: Option<Tensor>,
    /// Pairs of keys: `[blocks, steps of block, width]`, for tiles `[blocks, width, steps of block]`; f32 ones are
    /// the rows.
    columns: Option<Tensor>,
    numbers: Numbers,
    width: usize,
    block: usize,
}

/// The layouts that a pass reads.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Read {
    Rows,
    Columns,
    Both,
}

impl Operand {
    /// Buffers for `keys` keys, the first of which starts a block.
    pub(super) fn new(
        keys: usize,
        width: usize,
        (numbers, block): (Numbers, usize),
        read: Read,
        device: &Device,
    ) -> Result<Operand> {
        let empty = |floats: usize| Tensor::empty(&[floats], DType::F32, device);
        let has_rows = numbers == Numbers::F32 || read != Read::Columns;
        let has_columns = numbers.are_pairs() && read != Read::Rows;
        let rows = has_rows.then(|| empty(keys * steps(numbers, width)));
        let floats = keys.div_ceil(block) * steps(numbers, block) * width;
        let columns = has_columns.then(|| empty(floats));
        Ok(Operand {
            rows: rows.transpose()?,
            columns: columns.transpose()?,
            numbers,
            width,
            block,
        })
    }

    /// Copies x: `[keys, width]`.
    pub(super) fn fill(&mut self, x: Matrix<'_>, device: &Device) {
        let (numbers, width, block) = (self.numbers, self.width, self.block);
        let isa = device.isa();
        if let Some(rows) = &mut self.rows {
            let (rows, words) = (rows.f32_mut(), steps(numbers, width));
            match numbers {
                Numbers::F32 => {
                    let Matrix::F32(x) = x else {
                        unreachable!("numbers that are not rounded are stored in f32")
                    };
                    let to = rows.chunks_exact_mut(width).take(x.rows);
                    for (to, from) in to.zip(x.data.chunks(x.row_stride)) {
                        to.copy_from_slice(&from[..width]);
                    }
                }
                Numbers::Bf16 | Numbers::Bf16Mma | Numbers::F16Mma | Numbers::Bf16Tiles => {
                    join_rows(isa, x, rows, words)
                }
            }
        }
        if let Some(columns) = &mut self.columns {
            let (to, words) = (columns.f32_mut(), steps(numbers, block));
            for (number, to) in to.chunks_exact_mut(words * width).enumerate() {
                let first = number * block;
                let part = x.rows_of(first, x.rows().min(first + block));
                if numbers == Numbers::Bf16Tiles {
                    join_columns(isa, part, to, words);
                } else {
                    lay(device, numbers, part.transposed(), width, to);
                }
            }
        }
    }

    /// Factors (key, step of width) of keys from `key` on, and the strides of the two.
    pub(super) fn by_rows(&self, key: usize) -> (&[f32], (usize, usize)) {
        let words = steps(self.numbers, self.width);
        let rows = self.rows.as_ref().expect("rows were asked for");
        (&rows.f32()[key * words..], (words, 1))
    }

    /// Factors (number of width, step of keys) from a key of a block on that starts a step (for tiles a block of
    /// steps), and their strides.
    pub(super) fn by_columns(&self, key: usize) -> (&[f32], (usize, usize)) {
        let words = steps(self.numbers, self.block);
        let (block, step) = (key / self.block * words, key % self.block / 2);
        let (first, at) = match self.numbers {
            Numbers::F32 => return (self.by_rows(key).0, (1, self.width)),
            Numbers::Bf16 | Numbers::Bf16Mma | Numbers::F16Mma => {
                ((block + step) * self.width, (1, self.width))
            }
            Numbers::Bf16Tiles => (block * self.width + step, (words, 1)),
        };
        let columns = self.columns.as_ref().expect("columns were asked for");
        (&columns.f32()[first..], at)
    }
}
