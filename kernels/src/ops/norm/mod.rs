//! Shared parts of layer norm and RMS norm: checks, and loops over rows. A norm keeps S statistics per row and has
//! as many sums over rows as weight gradients: layer norm two (mean and inverse deviation, weight and bias), RMS
//! norm one.

pub(crate) mod cpu;

use super::reduce::expect_sums;
use crate::{DType, Error, Result, Tensor};

/// Checks the arguments of a forward pass of x, or of x + more: weights are `[d]`. Returns rows and columns.
pub(crate) fn check_forward(
    op: &'static str,
    x: &Tensor,
    more: Option<&Tensor>,
    weights: &[(&'static str, &Tensor)],
) -> Result<(usize, usize)> {
    let (n, d) = x.expect_rows(op, "x")?;
    if let Some(more) = more {
        more.expect_f32(op, "more", x.dims())?;
    }
    for (name, weight) in weights {
        weight.expect_f32(op, name, &[d])?;
    }
    Ok((n, d))
}

/// The tensors of a backward pass that both norms have.
pub(crate) struct Backward<'a> {
    /// `[.., d]`
    pub(crate) dy: &'a Tensor,
    /// `[.., d]`
    pub(crate) x: &'a Tensor,
    /// `[d]`
    pub(crate) w: &'a Tensor,
    /// Dims of x, if there is one.
    pub(crate) more: Option<&'a Tensor>,
}

impl Backward<'_> {
    /// Checks them, the statistics (`[n]`) and the sums (`[d]` or `[parts, d]`, all of the same dims).
    pub(crate) fn check(
        &self,
        op: &'static str,
        statistics: &[(&'static str, &Tensor)],
        sums: &[(&'static str, &Tensor)],
    ) -> Result<()> {
        let (n, d) = self.x.expect_rows(op, "x")?;
        self.dy.expect(op, "dy", DType::F32)?;
        if self.dy.rows_cols() != (n, d) {
            let (found, wanted) = (self.dy.dims().to_vec(), format!("[{n}, {d}]"));
            return Err(Error::Shape {
                op,
                name: "dy",
                found,
                wanted,
            });
        }
        self.w.expect_f32(op, "w", &[d])?;
        for (name, statistic) in statistics {
            statistic.expect_f32(op, name, &[n])?;
        }
        if let Some(more) = self.more {
            more.expect_f32(op, "more", self.x.dims())?;
        }
        if let Some(((name, first), others)) = sums.split_first() {
            expect_sums(op, name, first, [n, d])?;
            for (name, sums) in others {
                sums.expect_f32(op, name, first.dims())?;
            }
        }
        Ok(())
    }
}
