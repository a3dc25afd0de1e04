//! Model of the source code classifier: probabilities = softmax(scale * sum of the features' rows / sqrt(features)
//! + bias).
//!
//! File, little-endian: `MLRCODE1`, scale (f32), 16 biases (f32), rows (i8, 2^14 x 16); the sixteenth
//! column is not used.

use std::path::Path;

use super::features::{BITS, Features};
use super::labels::CODE_LABELS;
use crate::error::{Result, damaged};

/// Columns of a row: one per label, one spare.
pub(super) const COLUMNS: usize = 16;
const MAGIC: &[u8] = b"MLRCODE1";
const HEAD: usize = 8 + 4 + 4 * COLUMNS;

pub(super) struct Model {
    pub(super) scale: f32,
    pub(super) bias: [f32; COLUMNS],
    pub(super) rows: Vec<[i8; COLUMNS]>,
}

/// Turns sums into probabilities in place.
pub(super) fn softmax(sums: &mut [f32; COLUMNS]) {
    sums[CODE_LABELS.len()..].fill(f32::NEG_INFINITY);
    let max = sums.iter().copied().fold(f32::MIN, f32::max);
    let mut total = 0.0;
    for x in sums.iter_mut() {
        *x = (*x - max).exp();
        total += *x;
    }
    sums.iter_mut().for_each(|x| *x /= total);
}

impl Model {
    /// Reads a model; `path` is for messages.
    pub(super) fn parse(path: &Path, bytes: &[u8]) -> Result<Model> {
        let wanted = HEAD + (COLUMNS << BITS);
        if bytes.len() != wanted || !bytes.starts_with(MAGIC) {
            let found = format!("{} bytes, not all of a model", bytes.len());
            return Err(damaged(
                path,
                0,
                found,
                format!("MLRCODE1 and {wanted} bytes"),
            ));
        }
        let number = |at: usize| {
            f32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        let row = |bytes: &[u8]| std::array::from_fn(|i| bytes[i].cast_signed());
        Ok(Model {
            scale: number(8),
            bias: std::array::from_fn(|i| number(12 + 4 * i)),
            rows: bytes[HEAD..].chunks_exact(COLUMNS).map(row).collect(),
        })
    }

    /// The file's bytes.
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        out.extend(self.scale.to_le_bytes());
        for bias in self.bias {
            out.extend(bias.to_le_bytes());
        }
        for row in &self.rows {
            out.extend(row.map(i8::cast_unsigned));
        }
        out
    }

    pub(super) fn probabilities(&self, text: &str) -> [f32; COLUMNS] {
        let features = Features::of(text);
        let mut sums = [0i32; COLUMNS];
        for &row in &features.rows {
            for (sum, &x) in sums.iter_mut().zip(&self.rows[usize::from(row)]) {
                *sum += i32::from(x);
            }
        }
        let share = self.scale / (features.rows.len().max(1) as f32).sqrt();
        let mut p: [f32; COLUMNS] = std::array::from_fn(|i| sums[i] as f32 * share + self.bias[i]);
        softmax(&mut p);
        p
    }
}
