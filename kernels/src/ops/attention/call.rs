//! What a call of attention is about beside its numbers: heads, who sees what, where the keys lie, the
//! bias of distances, dropout; and the checks of all of it.
//!
//! We differ from libraries with a mask tensor: a row sees one range of keys, told by two numbers, and a
//! bias is a table of buckets; nothing of the size queries x keys is ever held.

use super::bias::Bias;
use crate::ops::dropout::{Constants, Dropout};
use crate::{Error, Result, Tensor};

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

/// Which keys a query row sees: the intersection of these ranges of positions. A row that sees none
/// has 0 as its result.
#[derive(Clone, Copy, Debug, Default)]
pub struct Mask<'a> {
    /// Hides keys after the row's position.
    pub is_causal: bool,
    /// Hides keys `window` or more positions before the row's; 0: none.
    pub window: usize,
    /// For each query row, `b * t`: the first key and one past the last, as of its document or without
    /// padding.
    pub bounds: Option<&'a [[u32; 2]]>,
}

impl Mask<'_> {
    /// Every key up to the row.
    pub const CAUSAL: Mask<'static> = Mask {
        is_causal: true,
        window: 0,
        bounds: None,
    };
}

/// Where the keys and values lie. `kv` is `[b * time, kv_width]`, as `take_kv` gives it: those of whole
/// sequences of `time` rows; `first` is the position of each sequence's first query row.
#[derive(Clone, Copy)]
pub enum Keys<'a> {
    /// In the queries' packed rows, which are whole sequences.
    Own,
    /// The query rows are a part of their sequences (context parallelism); their packed keys are not read.
    Part {
        /// `[b * time, kv_width]`
        kv: &'a Tensor,
        /// Rows of a whole sequence.
        time: usize,
        /// Position of the first query row.
        first: usize,
    },
    /// Those of another sequence (cross attention): query rows are `[heads*width]`, heads in order. The
    /// mask may have bounds only; the position of a query row counts for dropout alone.
    Other {
        /// `[b * time, kv_width]`
        kv: &'a Tensor,
        /// Rows of a sequence of keys.
        time: usize,
        /// Position of the first query row.
        first: usize,
    },
}

impl Keys<'_> {
    /// Position of each sequence's first query row.
    pub(super) fn first(&self) -> usize {
        match *self {
            Keys::Own => 0,
            Keys::Part { first, .. } | Keys::Other { first, .. } => first,
        }
    }

    /// The tensor of keys and values, where they are not packed with the queries.
    pub(super) fn apart(&self) -> Option<&Tensor> {
        match *self {
            Keys::Own => None,
            Keys::Part { kv, .. } | Keys::Other { kv, .. } => Some(kv),
        }
    }
}

/// Dropout of probabilities: random bits by (seed, step, tensor, sequence, head, query, key).
#[derive(Clone, Copy)]
pub struct Dropped {
    /// What all heads share.
    pub dropout: Dropout,
    /// Global number of the first sequence.
    pub sequence: u64,
    /// Number of this rank's first head.
    pub first_head: u32,
}

impl Dropped {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "check_dropout holds heads below 2^32"
    )]
    pub(super) fn of_head(&self, head: usize) -> Constants {
        self.dropout.of_head(self.first_head + head as u32)
    }
}

/// What a call is about beside its tensors: `b` sequences of `t` query rows.
#[derive(Clone, Copy)]
pub struct Call<'a> {
    /// Heads and the layout of packed rows.
    pub heads: &'a Heads,
    /// Sequences.
    pub b: usize,
    /// Query rows of each.
    pub t: usize,
    /// Where keys and values lie.
    pub keys: Keys<'a>,
    /// Whether scores are q k / sqrt(width), else q k.
    pub is_scaled: bool,
    /// Added to the scores.
    pub bias: Option<Bias<'a>>,
    /// Who sees what.
    pub mask: Mask<'a>,
    /// `None` or p = 0 in evaluation.
    pub dropout: Option<Dropped>,
}

impl<'a> Call<'a> {
    /// Every key up to the row, scaled, nothing added, nothing dropped.
    pub fn causal(heads: &'a Heads, b: usize, t: usize) -> Call<'a> {
        Call {
            heads,
            b,
            t,
            keys: Keys::Own,
            is_scaled: true,
            bias: None,
            mask: Mask::CAUSAL,
            dropout: None,
        }
    }

    /// Floats in a row of queries.
    pub(super) fn query_width(&self) -> usize {
        match self.keys {
            Keys::Other { .. } => self.heads.heads * self.heads.width,
            Keys::Own | Keys::Part { .. } => self.heads.packed(),
        }
    }

    /// Keys of a sequence that some row may see, whatever the bounds.
    pub(super) fn visible(&self) -> usize {
        match self.keys {
            Keys::Own => self.t,
            Keys::Part { first, .. } if self.mask.is_causal => first + self.t,
            Keys::Part { time, .. } | Keys::Other { time, .. } => time,
        }
    }

    /// Checks all of the call and the queries' tensor.
    pub(super) fn check(&self, op: &'static str, qkv: &Tensor) -> Result<()> {
        check_rows(
            op,
            ("qkv", qkv),
            self.heads,
            (self.b * self.t, self.query_width()),
        )?;
        self.check_keys(op)?;
        if let Some(bounds) = self.mask.bounds
            && bounds.len() != self.b * self.t
        {
            let wanted = format!("{} * {}, one per query row", self.b, self.t);
            return refuse(op, "bounds", bounds.len().to_string(), wanted);
        }
        if let Some(bias) = &self.bias {
            bias.check(op, ("table", bias.table), self.heads.heads)?;
        }
        self.check_dropout(op)
    }

    fn check_keys(&self, op: &'static str) -> Result<()> {
        match self.keys {
            Keys::Own => return Ok(()),
            Keys::Part { time, first, .. } => {
                if first.saturating_add(self.t) > time {
                    let wanted = format!("at most {time} - {}, the part's rows", self.t);
                    return refuse(op, "first", first.to_string(), wanted);
                }
            }
            Keys::Other { time, .. } => {
                if time == 0 {
                    return refuse(op, "time", "0".to_owned(), "at least 1".to_owned());
                }
                let mask = Mask {
                    bounds: None,
                    ..self.mask
                };
                if mask.is_causal || mask.window > 0 {
                    let wanted = "bounds alone for keys of another sequence".to_owned();
                    return refuse(op, "mask", format!("{mask:?}"), wanted);
                }
                if self.bias.is_some() {
                    let found = "keys of another sequence".to_owned();
                    return refuse(
                        op,
                        "bias",
                        found,
                        "keys with distances to queries".to_owned(),
                    );
                }
            }
        }
        let (Keys::Part { kv, time, .. } | Keys::Other { kv, time, .. }) = self.keys else {
            return Ok(());
        };
        kv.expect_f32(op, "kv", &[self.b * time, self.heads.kv_width()])
    }

    fn check_dropout(&self, op: &'static str) -> Result<()> {
        let Some(dropped) = self.dropout else {
            return Ok(());
        };
        let p = dropped.dropout.p;
        if !(0.0..1.0).contains(&p) {
            return refuse(op, "p", p.to_string(), "at least 0 and below 1".to_owned());
        }
        let end = self.keys.first().saturating_add(self.t).max(self.visible());
        if u32::try_from(end).is_err() {
            return refuse(op, "t", end.to_string(), "positions below 2^32".to_owned());
        }
        let heads = u32::try_from(self.heads.heads).ok();
        if (heads.and_then(|heads| dropped.first_head.checked_add(heads))).is_none() {
            let found = dropped.first_head.to_string();
            return refuse(op, "first_head", found, "below 2^32 - heads".to_owned());
        }
        if dropped.sequence.checked_add(self.b as u64).is_none() {
            let found = dropped.sequence.to_string();
            return refuse(op, "sequence", found, "below 2^64".to_owned());
        }
        Ok(())
    }
}

/// Checks heads and a tensor's rows and columns.
pub(super) fn check_rows(
    op: &'static str,
    (name, x): (&'static str, &Tensor),
    heads: &Heads,
    (rows, cols): (usize, usize),
) -> Result<()> {
    heads.check(op)?;
    if x.expect_rows(op, name)? == (rows, cols) {
        return Ok(());
    }
    Err(Error::Shape {
        op,
        name,
        found: x.dims().to_vec(),
        wanted: format!("[{rows}, {cols}]"),
    })
}

pub(super) fn refuse<T>(
    op: &'static str,
    name: &'static str,
    found: String,
    wanted: String,
) -> Result<T> {
    Err(Error::Argument {
        op,
        name,
        found,
        wanted,
    })
}
