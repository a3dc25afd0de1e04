//! Row order of tokens permuted by expert.

use crate::{DType, Error, Result, Tensor};

/// Expert of a choice that capacity dropped.
pub const DROPPED: u32 = u32::MAX;

/// The row of each choice, for one range of experts. It is made and kept on the device of the choices.
#[derive(Debug)]
pub struct Order {
    pub(super) lists: Lists,
    pub(super) k: usize,
    pub(super) tokens: usize,
}

#[derive(Debug)]
pub(super) enum Lists {
    Host(HostLists),
    Device(Box<DeviceLists>),
}

/// Lists of exactly the rows that there are.
#[derive(Debug)]
pub(super) struct HostLists {
    /// Row to choice: token * k + j.
    pub(super) choices: Vec<usize>,
    /// Choice to row; `None` if dropped or of an expert outside the range.
    pub(super) rows: Vec<Option<usize>>,
    /// Rows per expert of the range.
    pub(super) counts: Vec<usize>,
}

/// Lists with room for a row of every choice; `u32::MAX` is no choice or no row.
#[derive(Debug)]
pub(in crate::ops) struct DeviceLists {
    /// `[n * k]`
    pub(in crate::ops) choices: Tensor,
    /// `[n * k]`
    pub(in crate::ops) rows: Tensor,
    /// `[experts of the range + 1]`
    pub(in crate::ops) offsets: Tensor,
    /// Rows of the permuted tensors.
    pub(super) room: usize,
}

impl Order {
    /// Rows of the permuted tensors: as many as choices have one, on a device as there are choices.
    pub fn rows(&self) -> usize {
        match &self.lists {
            Lists::Host(lists) => lists.choices.len(),
            Lists::Device(lists) => lists.room,
        }
    }

    /// The same order with exactly these rows, which the host has learnt from a device.
    /// # Errors
    /// `Argument` if there are fewer choices.
    pub fn with_rows(mut self, rows: usize) -> Result<Order> {
        if rows > self.rows() {
            return Err(Error::Argument {
                op: "permute::Order::with_rows",
                name: "rows",
                found: rows.to_string(),
                wanted: format!("at most {}", self.rows()),
            });
        }
        if let Lists::Device(lists) = &mut self.lists {
            lists.room = rows;
        }
        Ok(self)
    }

    /// Rows of each expert of the range, if the host knows them.
    pub fn counts(&self) -> Option<&[usize]> {
        match &self.lists {
            Lists::Host(lists) => Some(&lists.counts),
            Lists::Device(_) => None,
        }
    }

    /// The first row of each expert of the range and the end of the last: `[experts + 1]` u32, if they are on a device.
    pub fn offsets(&self) -> Option<&Tensor> {
        match &self.lists {
            Lists::Host(_) => None,
            Lists::Device(lists) => Some(&lists.offsets),
        }
    }

    /// Token of each row, ascending inside an expert; none if they are on a device.
    pub fn tokens(&self) -> impl Iterator<Item = usize> {
        let choices = match &self.lists {
            Lists::Host(lists) => lists.choices.as_slice(),
            Lists::Device(_) => &[],
        };
        choices.iter().map(|choice| choice / self.k)
    }

    /// Tokens, whether any of their choices are in the range or not.
    pub fn token_count(&self) -> usize {
        self.tokens
    }

    pub(super) fn check(
        &self,
        op: &'static str,
        name: &'static str,
        x: &Tensor,
        rows: usize,
    ) -> Result<usize> {
        x.expect(op, name, DType::F32)?;
        if matches!(self.lists, Lists::Host(_)) != x.device().is_host() {
            return Err(Error::Argument {
                op,
                name,
                found: x.device().name().to_owned(),
                wanted: "the device of the order's choices".to_owned(),
            });
        }
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
