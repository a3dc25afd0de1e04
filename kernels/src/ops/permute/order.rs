//! Row order of tokens permuted by expert.

use crate::{DType, Error, Result, Tensor};
use std::ops::Range;

/// Expert of a choice that capacity dropped.
pub const DROPPED: u32 = u32::MAX;

const OP: &str = "permute";

/// The row of each choice, for one range of experts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Order {
    /// Row to choice: token * k + j.
    pub(super) choices: Vec<usize>,
    /// Choice to row; `None` if dropped or of an expert outside the range.
    pub(super) rows: Vec<Option<usize>>,
    /// Rows per expert of the range.
    pub(super) counts: Vec<usize>,
    pub(super) k: usize,
}

impl Order {
    /// Returns the order of the choices whose experts are in `range`. Waits for the device.
    /// # Shapes
    /// experts: `[n, k]` u32, expert of each choice in router order, or `DROPPED`; below `total`.
    /// # Errors
    /// `Shape`, `DType` or `Argument` if they do not fit.
    pub fn new(experts: &Tensor, total: usize, range: Range<usize>) -> Result<Order> {
        experts.expect(OP, "experts", DType::U32)?;
        let &[_, k] = experts.dims() else {
            return Err(Error::Shape {
                op: OP,
                name: "experts",
                found: experts.dims().to_vec(),
                wanted: "[n, k]".to_owned(),
            });
        };
        Order::of_choices(&experts.download::<u32>()?, k, total, range)
    }

    /// `new` of choices that are on the host, k per token.
    /// # Errors
    /// `Argument` if they do not fit.
    pub fn of_choices(
        chosen: &[u32],
        k: usize,
        total: usize,
        range: Range<usize>,
    ) -> Result<Order> {
        if range.start > range.end || range.end > total {
            return Err(Error::Argument {
                op: OP,
                name: "range",
                found: format!("{range:?}"),
                wanted: format!("a range inside 0..{total}"),
            });
        }
        let here = |expert: u32| {
            let expert = expert as usize;
            range.contains(&expert).then(|| expert - range.start)
        };
        let mut counts = vec![0; range.len()];
        for (i, &expert) in chosen.iter().enumerate() {
            if expert != DROPPED && expert as usize >= total {
                return Err(Error::Argument {
                    op: OP,
                    name: "experts",
                    found: format!("{expert} at choice {i}"),
                    wanted: format!("below {total} or dropped"),
                });
            }
            if let Some(expert) = here(expert) {
                counts[expert] += 1;
            }
        }
        let mut next: Vec<usize> = counts
            .iter()
            .scan(0, |start, count| {
                let first = *start;
                *start += count;
                Some(first)
            })
            .collect();
        let mut choices = vec![0; counts.iter().sum()];
        let mut rows = vec![None; chosen.len()];
        for (i, &expert) in chosen.iter().enumerate() {
            if let Some(expert) = here(expert) {
                choices[next[expert]] = i;
                rows[i] = Some(next[expert]);
                next[expert] += 1;
            }
        }
        Ok(Order {
            choices,
            rows,
            counts,
            k,
        })
    }

    /// Rows of each expert of the range, as `grouped_matmul` takes them.
    pub fn counts(&self) -> &[usize] {
        &self.counts
    }

    /// Token of each row, ascending inside an expert.
    pub fn tokens(&self) -> impl Iterator<Item = usize> {
        self.choices.iter().map(|choice| choice / self.k)
    }

    /// Tokens, whether any of their choices are in the range or not.
    pub fn token_count(&self) -> usize {
        self.rows.len().checked_div(self.k).unwrap_or(0)
    }

    pub(super) fn check(
        &self,
        op: &'static str,
        name: &'static str,
        x: &Tensor,
        rows: usize,
    ) -> Result<usize> {
        x.expect(op, name, DType::F32)?;
        match x.dims() {
            &[n, d] if n == rows && d > 0 => Ok(d),
            dims => Err(Error::Shape {
                op,
                name,
                found: dims.to_vec(),
                wanted: format!("[{rows}, d]"),
            }),
        }
    }
}
