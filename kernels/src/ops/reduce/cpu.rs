//! Sums on the CPU: parallel over columns, rows in order, waiting blocks of the tree in a small stack.

use super::SQUARES;
use crate::cpu::Isa;
use crate::cpu::element::Element;
use crate::cpu::simd::{AHEAD, Kernel, Lanes, run, vector_fn};
use crate::{DType, Tensor, View};
use rayon::prelude::*;

/// Columns per task: four cache lines of a row, so that row-wise reads stay streams and narrow matrices
/// have tasks for all threads.
pub(crate) const COLUMNS: usize = 64;

/// A block of at most `COLUMNS` columns.
pub(crate) type Columns = [f32; COLUMNS];

/// The binary-counter tree over vectors of columns.
pub(crate) struct LeafSums {
    isa: Isa,
    waiting: Vec<Columns>,
    leaves: usize,
}

impl LeafSums {
    pub(crate) fn new(isa: Isa) -> LeafSums {
        LeafSums {
            isa,
            waiting: Vec::new(),
            leaves: 0,
        }
    }

    /// Takes the next leaf.
    pub(crate) fn push(&mut self, mut leaf: Columns) {
        for _ in 0..self.leaves.trailing_ones() {
            let older = self
                .waiting
                .pop()
                .expect("one block waits per one bit of the count");
            merge(self.isa, &mut leaf, &older);
        }
        self.waiting.push(leaf);
        self.leaves += 1;
    }

    /// Merges the remaining blocks, from the right. Without leaves the sum is 0.0.
    pub(crate) fn finish(mut self) -> Columns {
        let mut sum = self.waiting.pop().unwrap_or([0.0; COLUMNS]);
        while let Some(older) = self.waiting.pop() {
            merge(self.isa, &mut sum, &older);
        }
        sum
    }
}

/// Writes or adds a block's sums.
pub(crate) fn settle(out: &mut [f32], sums: &Columns, accumulate: bool) {
    for (o, s) in out.iter_mut().zip(sums) {
        *o = if accumulate { *o + *s } else { *s };
    }
}

/// Rows per leaf: 0 means all `rows`.
pub(crate) fn leaf_rows(leaf: usize, rows: usize) -> usize {
    if leaf == 0 { rows.max(1) } else { leaf }
}

pub(super) fn sum_rows(out: &mut Tensor, x: &Tensor, leaf: usize, accumulate: bool) {
    let isa = x.device().isa();
    let (rows, d) = x.rows_cols();
    let out = out.f32_mut();
    match x.dtype() {
        DType::Bf16 => sum_rows_of(isa, out, x.bf16(), [rows, d], leaf, accumulate),
        _ => sum_rows_of(isa, out, x.f32(), [rows, d], leaf, accumulate),
    }
}

fn sum_rows_of<E: Element>(
    isa: Isa,
    out: &mut [f32],
    x: &[E],
    [rows, d]: [usize; 2],
    leaf: usize,
    accumulate: bool,
) {
    let leaf = leaf_rows(leaf, rows);
    out.par_chunks_mut(COLUMNS)
        .enumerate()
        .for_each(|(block, out)| {
            let first = block * COLUMNS;
            let mut tree = LeafSums::new(isa);
            for start in (0..rows).step_by(leaf) {
                let end = rows.min(start + leaf);
                let mut sums = [0.0; COLUMNS];
                let rows = Rows {
                    sums: &mut sums[..out.len()],
                    x: &x[start * d + first..],
                    stride: d,
                    rows: end - start,
                };
                run::<Chain, _>(isa, rows);
                tree.push(sums);
            }
            settle(out, &tree.finish(), accumulate);
        });
}

/// Prefetch distance in rows.
const ROWS_AHEAD: usize = 8;

/// Rows that start `stride` apart and the sums of their first columns.
struct Rows<'a, E> {
    sums: &'a mut [f32],
    x: &'a [E],
    stride: usize,
    rows: usize,
}

/// sums = the chain from 0.0 over the rows.
struct Chain;

impl<E: Element> Kernel<Rows<'_, E>> for Chain {
    type Out = ();

    #[inline(always)]
    fn run<L: Lanes>(of: Rows<'_, E>) {
        let Rows {
            sums,
            x,
            stride,
            rows,
        } = of;
        if sums.len() == COLUMNS {
            // A whole block of columns stays in registers while rows are read as streams.
            let mut acc = [L::splat(0.0); COLUMNS / 16];
            for r in 0..rows {
                let x = &x[r * stride..r * stride + COLUMNS];
                for line in (0..COLUMNS).step_by(E::LINE) {
                    L::prefetch(x.as_ptr().wrapping_add(line + ROWS_AHEAD * stride).cast());
                }
                for (acc, x) in acc.iter_mut().zip(x.chunks_exact(16)) {
                    *acc = acc.add(E::load(x));
                }
            }
            for (acc, sums) in acc.into_iter().zip(sums.chunks_exact_mut(16)) {
                acc.store(sums);
            }
            return;
        }
        for (c, sums) in sums.chunks_mut(16).enumerate() {
            let mut acc = L::splat(0.0);
            for r in 0..rows {
                let x = &x[r * stride + c * 16..][..sums.len()];
                acc = acc.add(E::load_part(x));
            }
            acc.store_part(sums);
        }
    }
}

vector_fn! {
    /// right = older + right.
    fn merge<L>(right: &mut Columns, older: &Columns) {
        for (right, older) in right.chunks_mut(16).zip(older.chunks(16)) {
            L::load(older).add(L::load(right)).store(right);
        }
    }
}

pub(super) fn squares(out: &mut Tensor, views: &[View<'_>]) {
    let sums = views.par_iter().map(|view| {
        let isa = view.device().isa();
        let blocks = view
            .f32()
            .par_chunks(SQUARES)
            .map(|x| block_squares(isa, x));
        let blocks: Vec<f64> = blocks.collect();
        blocks.into_iter().fold(0.0, |sum, block| sum + block)
    });
    let sums: Vec<f64> = sums.collect();
    let words: &[u32] = bytemuck::cast_slice(&sums);
    out.u32_mut().copy_from_slice(words);
}

vector_fn! {
    /// Arrays that the compiler maps to the vectors of the instruction set.
    fn block_squares<L>(x: &[f32]) -> f64 {
        let mut lanes = [0.0_f64; 16];
        let whole = x.chunks_exact(16);
        let rest = whole.remainder();
        for chunk in whole {
            L::prefetch(chunk.as_ptr().wrapping_add(AHEAD));
            for (lane, x) in lanes.iter_mut().zip(chunk) {
                let x = f64::from(*x);
                *lane += x * x;
            }
        }
        for (lane, x) in lanes.iter_mut().zip(rest) {
            let x = f64::from(*x);
            *lane += x * x;
        }
        let mut width = 8;
        while width > 0 {
            for i in 0..width {
                lanes[i] += lanes[i + width];
            }
            width /= 2;
        }
        lanes[0]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn squares_have_the_same_bits_on_every_instruction_set() {
        let x: Vec<f32> = (0..4093_u16).map(|i| f32::from(i).sin()).collect();
        let portable = block_squares(Isa::Portable, &x);
        for isa in Isa::ALL.into_iter().filter(|isa| isa.is_available()) {
            assert_eq!(
                block_squares(isa, &x).to_bits(),
                portable.to_bits(),
                "{isa:?}"
            );
        }
    }
}
