//! Runs of elements at equal distances.

use crate::{Error, Result};

/// Runs of elements: run i starts at `from_stride` i in the source and at `to_stride` i in the target.
#[derive(Clone, Copy, Debug)]
pub struct Runs {
    /// Number of runs.
    pub count: usize,
    /// Elements of a run.
    pub run: usize,
    /// Elements between the starts of two runs in the source.
    pub from_stride: usize,
    /// Elements between the starts of two runs in the target, at least `run`.
    pub to_stride: usize,
}

impl Runs {
    /// One run of `len` elements.
    pub fn one(len: usize) -> Runs {
        Runs {
            count: 1,
            run: len,
            from_stride: len,
            to_stride: len,
        }
    }

    /// Elements of all runs.
    pub(super) fn elements(&self) -> usize {
        self.count.saturating_mul(self.run)
    }

    /// Checks that the runs are within `to` and `from` elements and do not overlap in the target.
    pub(super) fn check(&self, op: &'static str, to: usize, from: usize) -> Result<()> {
        if self.elements() == 0 {
            return Ok(());
        }
        let fits = |stride: usize, len: usize| {
            let last = (self.count - 1).checked_mul(stride);
            let end = last.and_then(|last| last.checked_add(self.run));
            end.is_some_and(|end| end <= len)
        };
        let is_apart = self.count == 1 || self.to_stride >= self.run;
        if is_apart && fits(self.to_stride, to) && fits(self.from_stride, from) {
            return Ok(());
        }
        Err(Error::Argument {
            op,
            name: "runs",
            found: format!("{self:?}"),
            wanted: format!("runs apart, within {to} elements, of {from}"),
        })
    }
}
