//! Keys or values of a group as products read them: by rows (a key's numbers are the steps) and by columns
//! (keys are the steps, block by block).

use super::{lay, steps};
use crate::cpu::Numbers;
use crate::cpu::pack::View;
use crate::cpu::strip::join_row;
use crate::{DType, Device, Result, Tensor};

/// Keys or values that lie in memory row after row, or as words of pairs.
pub(super) struct Operand {
    /// `[keys, steps of width]`
    rows: Option<Tensor>,
    /// Pairs of keys: `[blocks, steps of block, width]`; f32 ones are the rows.
    columns: Option<Tensor>,
    numbers: Numbers,
    width: usize,
    block: usize,
}

/// Which of the two forms a pass reads.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Read {
    Rows,
    Columns,
    Both,
}

impl Operand {
    /// x: `[keys, width]`, whose first key starts a block.
    pub(super) fn new(
        x: View<'_>,
        (numbers, block): (Numbers, usize),
        read: Read,
        device: &Device,
    ) -> Result<Operand> {
        let (keys, width) = (x.rows, x.cols);
        let row = |key: usize| &x.data[key * x.row_stride..][..width];
        let (mut rows, mut columns) = (None, None);
        if numbers == Numbers::F32 || read != Read::Columns {
            let words = steps(numbers, width);
            let mut to = Tensor::empty(&[keys * words], DType::F32, device)?;
            for (key, to) in to.f32_mut().chunks_exact_mut(words).enumerate() {
                match numbers {
                    Numbers::F32 => to.copy_from_slice(row(key)),
                    Numbers::Bf16 => join_row(device.isa(), row(key), to),
                }
            }
            rows = Some(to);
        }
        if numbers == Numbers::Bf16 && read != Read::Rows {
            let per = steps(numbers, block);
            let floats = keys.div_ceil(block) * per * width;
            let mut to = Tensor::empty(&[floats], DType::F32, device)?;
            let blocks = to.f32_mut().chunks_exact_mut(per * width);
            for (number, to) in blocks.enumerate() {
                let first = number * block;
                let part = View {
                    data: &x.data[first * x.row_stride..],
                    rows: block.min(keys - first),
                    ..x
                };
                lay(device, numbers, part.transposed(), width, to);
            }
            columns = Some(to);
        }
        Ok(Operand {
            rows,
            columns,
            numbers,
            width,
            block,
        })
    }

    /// Factors (key, step of width) of keys from `key` on, and the distances of the two.
    pub(super) fn by_rows(&self, key: usize) -> (&[f32], (usize, usize)) {
        let words = steps(self.numbers, self.width);
        let rows = self.rows.as_ref().expect("rows were asked for");
        (&rows.f32()[key * words..], (words, 1))
    }

    /// Factors (number of width, step of keys) from an even key of a block on, and their distances.
    pub(super) fn by_columns(&self, key: usize) -> (&[f32], (usize, usize)) {
        let step = match self.numbers {
            Numbers::F32 => return (self.by_rows(key).0, (1, self.width)),
            Numbers::Bf16 => {
                key / self.block * steps(self.numbers, self.block) + key % self.block / 2
            }
        };
        let columns = self.columns.as_ref().expect("columns were asked for");
        (&columns.f32()[step * self.width..], (1, self.width))
    }
}
