//! Packing of a second factor as codes and scales (`codes.rs`), which are found in its numbers (`multiples.rs`): whatever format they
//! were stored in, only f32 that the codes give to the last bit are packed so.

use half::f16;
use rayon::prelude::*;

use super::codes::{Code, MOST, Scales};
use super::multiples::Multiples;
use super::pack::{Matrix, Panels};
use super::right::{Order, shape};
use super::simd::LANES;
use super::{Isa, Numbers};

/// Panels of op(B) as codes.
#[derive(Clone, Copy)]
pub(super) struct Coded<'a> {
    isa: Isa,
    code: Code,
    order: Order,
    /// op(B), rows and columns swapped.
    b: Matrix<'a>,
    /// Columns of a panel.
    width: usize,
}

impl<'a> Coded<'a> {
    fn new(isa: Isa, code: Code, b: Matrix<'a>) -> Coded<'a> {
        Coded::of_width(isa, code, b, shape(isa, 1).1)
    }

    /// In panels of so many columns, 32 at most.
    pub(super) fn of_width(isa: Isa, code: Code, b: Matrix<'a>, width: usize) -> Coded<'a> {
        let b = b.transposed();
        Coded {
            isa,
            code,
            // leaves move no words of f32
            order: Order::new(Numbers::F32, b.cols(), 0),
            b,
            width,
        }
    }

    fn panels(&self) -> usize {
        self.b.rows().div_ceil(self.width)
    }

    /// Calls `each` with every column of the group from step `first` on and its numbers; false if some are no multiples.
    pub(super) fn all(
        &self,
        panel: usize,
        first: usize,
        mut each: impl FnMut(usize, Multiples),
    ) -> bool {
        let mut whole = [0.0; MOST * 2 * LANES];
        let mut numbers = [0.0; MOST];
        let steps = self.code.steps().min(self.order.steps() - first);
        let one = Panels {
            a: self.b,
            first: panel * self.width,
            width: self.width,
            count: 1,
            apart: steps * self.width,
        };
        let whole = &mut whole[..steps * self.width];
        self.order.pack(self.isa, one, first..first + steps, whole);
        (0..self.width).all(|column| {
            let rows = whole.chunks_exact(self.width);
            let of_column = numbers.iter_mut().zip(rows);
            of_column.for_each(|(number, row)| *number = row[column]);
            let own = Multiples::of(&numbers[..steps], self.code);
            own.map(|own| each(column, own)).is_some()
        })
    }

    fn fill_panel(&self, panel: usize, out: &mut [u8]) -> bool {
        out.fill(0);
        let (code, width, vectors) = (self.code, self.width, self.width / LANES);
        let of_vector = size_of::<f32>() * code.scales();
        let groups = out.chunks_exact_mut(size_of::<f32>() * code.group(width));
        groups.enumerate().all(|(group, out)| {
            let (scales, codes) = out.split_at_mut(of_vector * vectors);
            self.all(panel, group * code.steps(), |column, own| {
                let (vector, lane) = (column / LANES, column % LANES);
                let scales = &mut scales[vector * of_vector..][..of_vector];
                match code.form_of_scales() {
                    Scales::Half => {
                        let scale = f16::from_f32(own.scale).to_le_bytes();
                        scales.as_chunks_mut().0[lane] = scale;
                    }
                    Scales::Single | Scales::WithOffsets => {
                        let words = scales.as_chunks_mut().0;
                        words[lane] = own.scale.to_le_bytes();
                        if let Some(offset) = words.get_mut(LANES + lane) {
                            *offset = own.offset.to_le_bytes();
                        }
                    }
                }
                let steps = codes.chunks_exact_mut(code.bytes_of_step(width));
                for (number, codes) in own.codes.iter().zip(steps) {
                    let number = number.cast_unsigned();
                    if code.is_nibble() {
                        let at = lane * vectors + vector;
                        codes[at / 2] |= (number & 15) << (at % 2 * 4);
                    } else {
                        codes[column] = number;
                    }
                }
            })
        })
    }
}

/// The first codes that hold the first group of every panel of op(B).
pub(crate) fn likely(isa: Isa, b: Matrix<'_>) -> Option<Code> {
    Code::ALL.into_iter().find(|code| {
        let coded = Coded::new(isa, *code, b);
        let is_empty = coded.order.steps() == 0;
        let panels = (0..coded.panels()).into_par_iter();
        is_empty || panels.all(|panel| coded.all(panel, 0, |_, _| {}))
    })
}

/// Floats of memory of all panels of op(B) `[k, n]`.
pub(crate) fn floats(isa: Isa, code: Code, [k, n]: [usize; 2]) -> usize {
    let width = shape(isa, 1).1;
    n.div_ceil(width) * code.panel(k, width)
}

/// Packs all of op(B); false if some of its numbers are no multiples that fit.
pub(crate) fn fill(isa: Isa, code: Code, words: &mut [f32], b: Matrix<'_>) -> bool {
    let coded = Coded::new(isa, code, b);
    let apart = size_of::<f32>() * code.panel(coded.order.steps(), coded.width);
    if apart == 0 {
        return true;
    }
    let words: &mut [u8] = bytemuck::cast_slice_mut(words);
    let panels = words.par_chunks_exact_mut(apart).enumerate();
    panels
        .map(|(panel, out)| coded.fill_panel(panel, out))
        .all(|fits| fits)
}
