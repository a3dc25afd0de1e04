//! Rows of each expert, known to the host or on the device alone.

use std::borrow::Cow;

use crate::{DType, Device, Error, Result, Tensor};

/// Rows of each expert, one expert after the other.
#[derive(Clone, Copy, Debug)]
pub enum Counts<'a> {
    /// Number of rows of each expert; together they are all rows.
    Known(&'a [usize]),
    /// `[experts + 1]` u32 beside the rows: the first row of each expert, ascending, and the end of the last. Rows from there
    /// on are padding, and the results there are zeros.
    OnDevice(&'a Tensor),
}

/// Rows of each expert in each leaf of a sum over tokens, the same number of leaves for every expert.
#[derive(Clone, Copy, Debug)]
pub enum Leaves<'a> {
    /// By expert and leaf; together they are all rows.
    Known(&'a [Vec<usize>]),
    /// On the device.
    OnDevice {
        /// As in `Counts`.
        offsets: &'a Tensor,
        /// `[experts, leaves]` u32.
        rows: &'a Tensor,
    },
}

impl<'a> From<&'a [usize]> for Counts<'a> {
    fn from(counts: &'a [usize]) -> Self {
        Counts::Known(counts)
    }
}

impl<'a> From<&'a Vec<usize>> for Counts<'a> {
    fn from(counts: &'a Vec<usize>) -> Self {
        Counts::Known(counts)
    }
}

impl<'a, const N: usize> From<&'a [usize; N]> for Counts<'a> {
    fn from(counts: &'a [usize; N]) -> Self {
        Counts::Known(counts)
    }
}

impl<'a> From<&'a [Vec<usize>]> for Leaves<'a> {
    fn from(leaves: &'a [Vec<usize>]) -> Self {
        Leaves::Known(leaves)
    }
}

impl<'a> From<&'a Vec<Vec<usize>>> for Leaves<'a> {
    fn from(leaves: &'a Vec<Vec<usize>>) -> Self {
        Leaves::Known(leaves)
    }
}

impl<'a, const N: usize> From<&'a [Vec<usize>; N]> for Leaves<'a> {
    fn from(leaves: &'a [Vec<usize>; N]) -> Self {
        Leaves::Known(leaves)
    }
}

impl Counts<'_> {
    pub(super) fn experts(self) -> usize {
        match self {
            Counts::Known(counts) => counts.len(),
            Counts::OnDevice(offsets) => offsets.elements().saturating_sub(1),
        }
    }

    /// Checks that they fit this many rows; on a device only what the host can see.
    pub(super) fn check(self, op: &'static str, name: &'static str, x: &Tensor) -> Result<()> {
        let (rows, _) = x.rows_cols();
        let offsets = match self {
            Counts::Known(counts) => return total(op, name, counts.iter(), rows),
            Counts::OnDevice(offsets) => offsets,
        };
        expect_beside(op, name, offsets, x)?;
        if !offsets.device().is_host() {
            return Ok(());
        }
        let offsets = offsets.u32();
        let is_ascending = offsets.is_sorted() && offsets.first() == Some(&0);
        let end = offsets.last().map_or(0, |&end| end as usize);
        if is_ascending && end <= rows {
            return Ok(());
        }
        Err(Error::Argument {
            op,
            name,
            found: format!("{offsets:?}"),
            wanted: format!("offsets from 0 to at most {rows}"),
        })
    }

    /// Rows of each expert, for the CPU.
    pub(super) fn on_host(&self) -> Cow<'_, [usize]> {
        match self {
            Counts::Known(counts) => Cow::Borrowed(counts),
            Counts::OnDevice(offsets) => {
                let pairs = offsets.u32().windows(2);
                pairs.map(|pair| (pair[1] - pair[0]) as usize).collect()
            }
        }
    }
}

impl Leaves<'_> {
    pub(super) fn experts(self) -> usize {
        match self {
            Leaves::Known(leaves) => leaves.len(),
            Leaves::OnDevice { offsets, .. } => Counts::OnDevice(offsets).experts(),
        }
    }

    /// Checks that they fit the rows of x.
    pub(super) fn check(self, op: &'static str, x: &Tensor) -> Result<()> {
        let leaves = match self {
            Leaves::Known(leaves) => leaves,
            Leaves::OnDevice { offsets, rows } => {
                Counts::OnDevice(offsets).check(op, "leaves", x)?;
                expect_beside(op, "leaves", rows, x)?;
                let (experts, _) = rows.rows_cols();
                if experts == self.experts() {
                    return self.check_sums(op, offsets);
                }
                return Err(Error::Shape {
                    op,
                    name: "leaves",
                    found: rows.dims().to_vec(),
                    wanted: format!("[{}, leaves]", self.experts()),
                });
            }
        };
        let count = leaves.first().map_or(0, Vec::len);
        if let Some(other) = leaves.iter().find(|l| l.len() != count) {
            return Err(Error::Argument {
                op,
                name: "leaves",
                found: format!("{} leaves and {count}", other.len()),
                wanted: "as many for every expert".to_owned(),
            });
        }
        let (rows, _) = x.rows_cols();
        total(op, "leaves", leaves.iter().flatten(), rows)
    }

    /// Checks that an expert's leaves are its rows, if the host can see them.
    fn check_sums(self, op: &'static str, offsets: &Tensor) -> Result<()> {
        if !offsets.device().is_host() {
            return Ok(());
        }
        let sums = self
            .on_host()
            .iter()
            .map(|leaves| leaves.iter().sum())
            .collect();
        let (sums, counts): (Vec<usize>, _) = (sums, Counts::OnDevice(offsets));
        if sums == *counts.on_host() {
            return Ok(());
        }
        Err(Error::Argument {
            op,
            name: "leaves",
            found: format!("{sums:?} rows of experts"),
            wanted: format!("{:?}", counts.on_host()),
        })
    }

    /// Rows by expert and leaf, for the CPU.
    pub(super) fn on_host(&self) -> Cow<'_, [Vec<usize>]> {
        match self {
            Leaves::Known(leaves) => Cow::Borrowed(leaves),
            Leaves::OnDevice { rows, .. } => {
                let (_, count) = rows.rows_cols();
                let experts = rows.u32().chunks(count.max(1));
                let wide = |leaves: &[u32]| leaves.iter().map(|&rows| rows as usize).collect();
                experts.map(wide).collect()
            }
        }
    }
}

fn expect_beside(op: &'static str, name: &'static str, table: &Tensor, x: &Tensor) -> Result<()> {
    table.expect(op, name, DType::U32)?;
    if table.device().is_host() == x.device().is_host() {
        return Ok(());
    }
    Err(Error::Argument {
        op,
        name,
        found: table.device().name().to_owned(),
        wanted: x.device().name().to_owned(),
    })
}

/// The first row of each expert and the end of the last, on a device.
pub(super) fn offsets_of(counts: impl Iterator<Item = usize>, device: &Device) -> Result<Tensor> {
    let mut end = 0;
    let ends = counts.map(|rows| {
        end += rows;
        u32::try_from(end).unwrap_or(u32::MAX)
    });
    let offsets: Vec<u32> = std::iter::once(0).chain(ends).collect();
    Tensor::from_u32(&[offsets.len()], &offsets, device)
}

fn total<'a>(
    op: &'static str,
    name: &'static str,
    mut counts: impl Iterator<Item = &'a usize>,
    rows: usize,
) -> Result<()> {
    let sum = counts.try_fold(0_usize, |sum, n| sum.checked_add(*n));
    if sum == Some(rows) {
        return Ok(());
    }
    let found = sum.map_or("more than fits".to_owned(), |sum| format!("{sum} rows"));
    Err(Error::Argument {
        op,
        name,
        found,
        wanted: format!("{rows} rows together"),
    })
}
