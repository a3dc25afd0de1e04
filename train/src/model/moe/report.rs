//! Statistics of a router's pass over a micro-batch. On a GPU they stay in its memory until they are downloaded with others.

use kernels::route::{Statistics, Unread};
use kernels::{Error, Tensor, download_words, rows};

/// Statistics of a micro-batch's tokens.
pub(crate) struct Report {
    pub layer: usize,
    /// Whole groups, also where this rank has a part of each.
    pub groups: Vec<Unread>,
    /// Choices of each expert that were dropped, by group.
    pub dropped: Vec<Dropped>,
    /// `None` once the logits have been checked.
    pub logits: Option<Logits>,
}

/// Choices that were dropped, by expert.
pub(crate) enum Dropped {
    Known(Vec<u64>),
    /// `[experts]` u32, on a device.
    Words(Tensor),
}

/// The check of a router's logits, `[rows, experts]`.
pub(crate) struct Logits {
    /// Of `rows::not_finite`.
    pub not_finite: Tensor,
    pub experts: usize,
    pub rows: usize,
    /// Positions of a sequence on this rank, and the first of them.
    pub time: usize,
    pub first: usize,
}

/// A report on the host.
pub(crate) struct Known {
    pub layer: usize,
    pub groups: Vec<Statistics>,
    /// By group and expert.
    pub dropped: Vec<Vec<u64>>,
}

impl Report {
    /// All tensors, for one download of their words.
    pub(crate) fn tensors(&self) -> Vec<&Tensor> {
        let groups = self.groups.iter().filter_map(Unread::tensor);
        let dropped = self.dropped.iter().filter_map(Dropped::tensor);
        let first = self.logits.iter().map(|logits| &logits.not_finite);
        first.chain(groups).chain(dropped).collect()
    }

    /// The report by the words of `tensors`.
    /// # Errors
    /// `Argument` if a logit is not finite, with its token and expert.
    pub(crate) fn read(&self, words: &[Vec<u32>]) -> kernels::Result<Known> {
        let mut words = words.iter().map(Vec::as_slice);
        let mut next = || words.next().unwrap_or(&[]);
        if let Some(logits) = &self.logits {
            logits.check(next(), self.layer)?;
        }
        let of_group = |group: &Unread| match group.tensor() {
            Some(_) => group.read(next()),
            None => group.read(&[]),
        };
        let groups = self.groups.iter().map(of_group);
        let groups = groups.collect::<kernels::Result<Vec<Statistics>>>()?;
        let wide = |words: &[u32]| words.iter().map(|&word| u64::from(word)).collect();
        let dropped = self.dropped.iter().map(|dropped| match dropped {
            Dropped::Known(dropped) => dropped.clone(),
            Dropped::Words(_) => wide(next()),
        });
        let dropped = dropped.collect();
        Ok(Known {
            layer: self.layer,
            groups,
            dropped,
        })
    }

    /// The report, which waits for the device.
    /// # Errors
    /// As `read`; `Driver` if the device fails.
    pub(crate) fn known(&self) -> kernels::Result<Known> {
        self.read(&download_words(&self.tensors())?)
    }
}

impl Dropped {
    /// Those of a group, `[experts]` u32.
    pub(crate) fn of(counts: Tensor) -> kernels::Result<Dropped> {
        if !counts.device().is_host() {
            return Ok(Dropped::Words(counts));
        }
        let counts = counts.host::<u32>()?.iter();
        Ok(Dropped::Known(
            counts.map(|&count| u64::from(count)).collect(),
        ))
    }

    fn tensor(&self) -> Option<&Tensor> {
        match self {
            Dropped::Known(_) => None,
            Dropped::Words(counts) => Some(counts),
        }
    }
}

impl Logits {
    fn check(&self, words: &[u32], layer: usize) -> kernels::Result<()> {
        let logits = self;
        let Some((at, value)) = rows::first_of(logits.rows * logits.experts, words) else {
            return Ok(());
        };
        let (token, expert) = (at / logits.experts, at % logits.experts);
        let (sequence, position) = (token / logits.time, logits.first + token % logits.time);
        Err(Error::Argument {
            op: "mixture of experts",
            name: "router logit",
            found: format!(
                "{value} for expert {expert} at layers.{layer}, position {position} of sequence {sequence} of \
                 the micro-batch"
            ),
            wanted: "a finite number".into(),
        })
    }
}
