//! Heads of attention and the layout of packed rows.

use crate::{DType, Error, Result, Tensor};

/// Heads of one rank and how a packed row lays them out: for each kv head, its heads / kv_heads query
/// heads, then its k, then its v, each `width` wide (Megatron's order).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heads {
    /// Query heads.
    pub heads: usize,
    /// Key and value heads; divides `heads`.
    pub kv_heads: usize,
    /// Floats per head.
    pub width: usize,
}

impl Heads {
    /// Floats in a packed row.
    pub fn packed(&self) -> usize {
        self.kv_heads * self.group_width()
    }

    /// Query heads per kv head.
    pub(crate) fn per_group(&self) -> usize {
        self.heads / self.kv_heads
    }

    /// Floats of one kv head's group in a packed row.
    pub(crate) fn group_width(&self) -> usize {
        (self.per_group() + 2) * self.width
    }

    /// Floats of a row's keys and values alone: each kv head's k, then its v.
    pub fn kv_width(&self) -> usize {
        2 * self.kv_heads * self.width
    }

    /// Checks that the counts make sense together.
    pub(crate) fn check(&self, op: &'static str) -> Result<()> {
        let whole = self.kv_heads > 0 && self.heads > 0 && self.heads.is_multiple_of(self.kv_heads);
        if whole && self.width > 0 {
            return Ok(());
        }
        let wanted = "heads a multiple of kv_heads, none of them 0".to_owned();
        Err(Error::Argument {
            op,
            name: "heads",
            found: format!("{self:?}"),
            wanted,
        })
    }
}

/// Checks heads and a tensor's rows and columns.
pub(crate) fn check_rows(
    op: &'static str,
    (name, x): (&'static str, &Tensor),
    heads: &Heads,
    [rows, cols]: [usize; 2],
) -> Result<()> {
    x.expect(op, name, DType::F32)?;
    check_number_rows(op, (name, x), heads, [rows, cols])
}

/// Like `check_rows`, of f32 or bf16.
pub(crate) fn check_number_rows(
    op: &'static str,
    (name, x): (&'static str, &Tensor),
    heads: &Heads,
    [rows, cols]: [usize; 2],
) -> Result<()> {
    heads.check(op)?;
    if x.expect_number_rows(op, name)? == (rows, cols) {
        return Ok(());
    }
    Err(Error::Shape {
        op,
        name,
        found: x.dims().to_vec(),
        wanted: format!("[{rows}, {cols}]"),
    })
}
