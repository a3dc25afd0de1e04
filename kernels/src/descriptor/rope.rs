//! Descriptor of rotary embedding: heads, positions and angles of packed rows.

use super::frequencies::Frequencies;
use super::heads::Heads;
use crate::{Error, Result, Tensor};

/// Positions of rows.
#[derive(Clone, Copy, Debug)]
pub enum Positions<'a> {
    /// Row r is at position r % t + offset.
    Run {
        /// Rows per sequence.
        t: usize,
        /// Position of each sequence's first row.
        offset: usize,
    },
    /// One for each row, all below `limit`.
    Each {
        /// As many as rows.
        of: &'a [u32],
        /// One past the largest possible.
        limit: usize,
    },
}

/// Rotary embedding of the queries and keys of packed rows.
#[derive(Clone, Copy, Debug)]
pub struct Turn<'a> {
    /// Layout of a row.
    pub heads: &'a Heads,
    /// Positions of rows.
    pub positions: Positions<'a>,
    /// Angles of the pairs.
    pub frequencies: &'a Frequencies,
}

impl Turn<'_> {
    /// Checks that packed rows fit.
    /// # Errors
    /// `Shape` or `Argument` if not, or if more features are rotated than a head has.
    pub(crate) fn check(&self, op: &'static str, name: &'static str, qkv: &Tensor) -> Result<()> {
        let Turn {
            heads,
            positions,
            frequencies,
        } = *self;
        heads.check(op)?;
        let (rows, packed) = qkv.rows_cols();
        let (fits, wanted) = match positions {
            Positions::Run { t, .. } => (t > 0 && rows % t == 0, format!("b * {t}")),
            Positions::Each { of, .. } => (rows == of.len(), of.len().to_string()),
        };
        if packed != heads.packed() || !fits {
            let wanted = format!("[{wanted}, {}]", heads.packed());
            return Err(Error::Shape {
                op,
                name,
                found: qkv.dims().to_vec(),
                wanted,
            });
        }
        let rotary = 2 * frequencies.steps().len();
        if rotary > heads.width {
            let (found, wanted) = (rotary.to_string(), format!("at most {}", heads.width));
            return Err(Error::Argument {
                op,
                name: "rotary",
                found,
                wanted,
            });
        }
        if let Positions::Each { of, limit } = positions
            && let Some(found) = of.iter().find(|&&position| position as usize >= limit)
        {
            return Err(Error::Argument {
                op,
                name: "positions",
                found: found.to_string(),
                wanted: format!("below {limit}"),
            });
        }
        Ok(())
    }
}

/// Direction of the rotation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Forward,
    /// The transpose, for gradients.
    Back,
}
