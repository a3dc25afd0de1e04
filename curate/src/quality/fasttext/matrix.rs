//! fastText's weight matrices: plain `f32`, or product-quantised.
//!
//! A quantised row is cut into pieces of `dsub` numbers; each piece is one of 256 centroids, named by a byte. With
//! `qnorm` the row's length is one of 256 as well. Paper: Joulin et al. 2016, arXiv:1612.03651, sec. 3; layout as
//! fastText 0.9.2 writes it. We differ: small quantised matrices are unpacked when they are loaded; products and
//! order of the sums are the same, and so are the bits (except for wide products, see [`WIDE`]).

use std::io::Read;

use super::source::Source;
use crate::error::Result;

const CENTROIDS: usize = 256;
/// Products of rows as wide as this are summed in eight parts, which compile to vector sums; narrower
/// ones one by one, as fastText does it.
const WIDE: usize = 64;
/// Quantised matrices up to this many numbers (64 MiB) are unpacked.
const UNPACKED: usize = 16 << 20;

/// Rows of `dim` weights.
pub(super) struct Matrix {
    dim: usize,
    rows: Rows,
}

enum Rows {
    Dense(Vec<f32>),
    Quantised(Quantised),
}

struct Quantised {
    codes: Vec<u8>,
    pieces: Pieces,
    norms: Option<(Vec<u8>, Vec<f32>)>,
}

/// Centroids of a product quantiser.
struct Pieces {
    centroids: Vec<f32>,
    count: usize,
    width: usize,
    last: usize,
}

impl Pieces {
    fn read<R: Read>(source: &mut Source<R>, dim: usize, what: &str) -> Result<Pieces> {
        let limit = i32::try_from(dim).unwrap_or(i32::MAX);
        let found = source.count(&format!("{what}: width"), limit, limit)?;
        let count = source.count(&format!("{what}: number of pieces"), 1, limit)?;
        let width = source.count(&format!("{what}: width of a piece"), 1, limit)?;
        let last = source.count(&format!("{what}: width of the last piece"), 1, limit)?;
        if last > width || (count - 1) * width + last != found {
            let shape = format!("{count} pieces of {width}, the last of {last}");
            return Err(source.wrong(12, shape, format!("{what}: pieces that add up to {dim}")));
        }
        Ok(Pieces {
            centroids: source.floats(dim * CENTROIDS, what)?,
            count,
            width,
            last,
        })
    }

    /// The numbers that `code` encodes in piece `piece`.
    fn of(&self, piece: usize, code: u8) -> &[f32] {
        let width = if piece + 1 == self.count {
            self.last
        } else {
            self.width
        };
        let at = piece * CENTROIDS * self.width + usize::from(code) * width;
        &self.centroids[at..at + width]
    }
}

impl Quantised {
    fn read<R: Read>(
        source: &mut Source<R>,
        rows: usize,
        dim: usize,
        what: &str,
    ) -> Result<Quantised> {
        let qnorm = source.flag(&format!("{what}: qnorm"))?;
        source.exactly(&format!("{what}: rows"), rows as u64)?;
        source.exactly(&format!("{what}: columns"), dim as u64)?;
        let codes = source.i32(&format!("{what}: bytes of codes"))?;
        let codes = match usize::try_from(codes) {
            Ok(n) if rows > 0 && n % rows == 0 && n / rows <= dim && n > 0 => n,
            _ => {
                let wanted = format!("{what}: codes of {rows} rows, 1 to {dim} bytes each");
                return Err(source.wrong(4, codes.to_string(), wanted));
            }
        };
        let per_row = codes / rows;
        let codes = source.bytes(codes, &format!("{what}: codes"))?;
        let pieces = Pieces::read(source, dim, what)?;
        if pieces.count != per_row {
            let found = format!("{} pieces", pieces.count);
            return Err(source.wrong(0, found, format!("{what}: {per_row}, one per code")));
        }
        let norms = if qnorm {
            let codes = source.bytes(rows, &format!("{what}: codes of norms"))?;
            Some((codes, Pieces::read(source, 1, "norms")?.centroids))
        } else {
            None
        };
        Ok(Quantised {
            codes,
            pieces,
            norms,
        })
    }

    fn norm(&self, row: usize) -> f32 {
        self.norms
            .as_ref()
            .map_or(1.0, |(codes, lengths)| lengths[usize::from(codes[row])])
    }

    fn each(&self, row: usize, mut piece: impl FnMut(usize, &[f32])) {
        let at = row * self.pieces.count;
        let codes = &self.codes[at..at + self.pieces.count];
        for (i, &code) in codes.iter().enumerate() {
            piece(i * self.pieces.width, self.pieces.of(i, code));
        }
    }

    fn add(&self, row: usize, into: &mut [f32]) {
        let norm = self.norm(row);
        self.each(row, |at, numbers| {
            for (x, c) in into[at..].iter_mut().zip(numbers) {
                *x += norm * c;
            }
        });
    }
}

impl Matrix {
    /// Reads a matrix that must have `rows` rows of `dim`.
    pub(super) fn read<R: Read>(
        source: &mut Source<R>,
        quantised: bool,
        rows: usize,
        dim: usize,
        what: &str,
    ) -> Result<Matrix> {
        let rows = if quantised {
            let packed = Quantised::read(source, rows, dim, what)?;
            if rows.saturating_mul(dim) <= UNPACKED {
                let mut dense = vec![0.0; rows * dim];
                for (row, into) in dense.chunks_exact_mut(dim).enumerate() {
                    packed.add(row, into);
                }
                Rows::Dense(dense)
            } else {
                Rows::Quantised(packed)
            }
        } else {
            source.exactly(&format!("{what}: rows"), rows as u64)?;
            source.exactly(&format!("{what}: columns"), dim as u64)?;
            Rows::Dense(source.floats(rows.saturating_mul(dim), what)?)
        };
        Ok(Matrix { dim, rows })
    }

    /// Adds a row to `into`.
    #[inline]
    pub(super) fn add(&self, row: usize, into: &mut [f32]) {
        match &self.rows {
            Rows::Dense(all) => add(&all[row * self.dim..][..self.dim], into),
            Rows::Quantised(packed) => packed.add(row, into),
        }
    }

    /// The product of a row and a vector.
    #[inline]
    pub(super) fn dot(&self, row: usize, with: &[f32]) -> f32 {
        match &self.rows {
            Rows::Dense(all) => {
                let row = &all[row * self.dim..][..self.dim];
                if self.dim < WIDE {
                    return row.iter().zip(with).map(|(a, b)| a * b).sum();
                }
                let mut parts = [0.0f32; 8];
                let (mut a, mut b) = (row.chunks_exact(8), with.chunks_exact(8));
                for (a, b) in (&mut a).zip(&mut b) {
                    for i in 0..8 {
                        parts[i] += a[i] * b[i];
                    }
                }
                let rest = a.remainder().iter().zip(b.remainder());
                parts.iter().sum::<f32>() + rest.map(|(a, b)| a * b).sum::<f32>()
            }
            Rows::Quantised(packed) => {
                let mut sum = 0.0;
                packed.each(row, |at, numbers| {
                    for (c, x) in numbers.iter().zip(&with[at..]) {
                        sum += c * x;
                    }
                });
                sum * packed.norm(row)
            }
        }
    }
}

/// `into += row`, in a shape that compiles to vector adds.
#[inline]
pub(super) fn add(row: &[f32], into: &mut [f32]) {
    let mut blocks = into.chunks_exact_mut(8);
    let mut from = row.chunks_exact(8);
    for (x, c) in (&mut blocks).zip(&mut from) {
        for i in 0..8 {
            x[i] += c[i];
        }
    }
    for (x, c) in blocks.into_remainder().iter_mut().zip(from.remainder()) {
        *x += c;
    }
}
