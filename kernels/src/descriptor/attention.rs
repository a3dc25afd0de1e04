//! Descriptor of an attention call beside its tensors: heads, masks, location of the keys, position bias, dropout;
//! and the checks of all of it.
//!
//! We differ from libraries with a mask tensor: a row attends to one range of keys, given by two numbers, and a
//! bias is a table of buckets; nothing of the size queries x keys is ever stored.

use super::alibi::Alibi;
use super::dropout::{Constants, Dropout};
use super::heads::{Heads, check_number_rows, check_rows};
use super::numbers::Numbers;
use super::position_bias::Bias;
use super::rope::Turn;
use crate::error::refuse;
use crate::{DType, Error, Result, Tensor};

/// Mask: the keys that a query row attends to, as the intersection of these ranges of positions. A row without any
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

/// Location of keys and values. `kv` is `[b * held, kv_width]`, as `take_kv` returns it: keys `start .. start +
/// held` of each sequence of `time`; `first` is the position of each sequence's first query row.
#[derive(Clone, Copy)]
pub enum Keys<'a> {
    /// In the queries' packed rows, which are whole sequences.
    Own,
    /// The query rows are a part of their sequences (context parallelism); their packed keys are not read.
    Part {
        /// `[b * held, kv_width]`
        kv: &'a Tensor,
        /// Rows of a whole sequence.
        time: usize,
        /// Position of the first available key; starts a block.
        start: usize,
        /// Position of the first query row.
        first: usize,
    },
    /// Keys of another sequence (cross attention): query rows are `[heads*width]`, heads in order. The
    /// mask may have bounds only; the position of a query row counts for dropout alone.
    Other {
        /// `[b * held, kv_width]`
        kv: &'a Tensor,
        /// Rows of a whole sequence of keys.
        time: usize,
        /// Position of the first available key; starts a block.
        start: usize,
        /// Position of the first query row.
        first: usize,
    },
}

impl Keys<'_> {
    /// Position of each sequence's first query row.
    pub(crate) fn first(&self) -> usize {
        match *self {
            Keys::Own => 0,
            Keys::Part { first, .. } | Keys::Other { first, .. } => first,
        }
    }

    /// Position of the first available key.
    pub(crate) fn start(&self) -> usize {
        match *self {
            Keys::Own => 0,
            Keys::Part { start, .. } | Keys::Other { start, .. } => start,
        }
    }
}

/// Dropout of probabilities: random bits by (seed, step, tensor, sequence, head, query, key).
#[derive(Clone, Copy)]
pub struct Dropped {
    /// Dropout settings shared by all heads.
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
    pub(crate) fn of_head(&self, head: usize) -> Constants {
        self.dropout.of_head(self.first_head + head as u32)
    }
}

/// How products of queries and keys become scores before a table's bias is added: q k / sqrt(divisor), and then cap
/// tanh(score / cap) with a cap (Bello et al. 2017, arXiv:1611.09940; Gemma 2, arXiv:2408.00118, sec. 2), or a linear bias.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scores {
    /// `None`: the width of a head.
    pub divisor: Option<f32>,
    /// 0: none. There is no bias beside a cap.
    pub cap: f32,
    /// Linear biases of causal scores, beside which there is no other bias.
    pub alibi: Option<Alibi>,
}

impl Scores {
    /// Scores that are divided by the root of the head width, or that are not.
    pub fn scaled(is_scaled: bool) -> Scores {
        Scores {
            divisor: (!is_scaled).then_some(1.0),
            cap: 0.0,
            alibi: None,
        }
    }

    /// Factor of the products.
    pub(crate) fn factor(self, heads: &Heads) -> f32 {
        match self.divisor {
            None => 1.0 / (heads.width as f32).sqrt(),
            Some(divisor) => 1.0 / divisor.sqrt(),
        }
    }

    /// Refuses numbers that give no scores.
    pub(crate) fn check(self, op: &'static str, has_bias: bool) -> Result<()> {
        if let Some(divisor) = self.divisor.filter(|it| !(it.is_finite() && *it > 0.0)) {
            let wanted = "a finite number above 0".to_owned();
            return refuse(op, "divisor", divisor.to_string(), wanted);
        }
        if !(self.cap.is_finite() && self.cap >= 0.0) {
            let wanted = "a finite number, 0 or more".to_owned();
            return refuse(op, "cap", self.cap.to_string(), wanted);
        }
        if self.alibi.is_some() && (has_bias || self.cap > 0.0) {
            let found = if has_bias { "a bias" } else { "a cap" };
            let wanted = "neither a bias nor a cap beside it".to_owned();
            return refuse(op, "alibi", found.to_owned(), wanted);
        }
        if self.cap > 0.0 && has_bias {
            let wanted = "0 beside a bias".to_owned();
            return refuse(op, "cap", self.cap.to_string(), wanted);
        }
        Ok(())
    }
}

/// Arguments of a call beside its tensors: `b` sequences of `t` query rows.
#[derive(Clone, Copy)]
pub struct Call<'a> {
    /// Heads and the layout of packed rows.
    pub heads: &'a Heads,
    /// Sequences.
    pub b: usize,
    /// Query rows of each.
    pub t: usize,
    /// Location of keys and values.
    pub keys: Keys<'a>,
    /// Keys per block of the online softmax; a row's bits depend on it. 0: one block with all available keys.
    pub block: usize,
    /// Format to which the factors of products are rounded: queries, keys, values, the gradient of the result,
    /// probabilities and their gradients.
    pub numbers: Numbers,
    /// How products of queries and keys become scores.
    pub scores: Scores,
    /// Added to the scores.
    pub bias: Option<Bias<'a>>,
    /// Sinks, `[heads]`: a score per head that every softmax counts beside those of the keys and that adds no value
    /// (Xiao et al. 2023, arXiv:2309.17453; gpt-oss, arXiv:2508.10925).
    pub sinks: Option<&'a Tensor>,
    /// The keys that each row attends to.
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
            block: 0,
            numbers: Numbers::F32,
            scores: Scores::scaled(true),
            bias: None,
            sinks: None,
            mask: Mask::CAUSAL,
            dropout: None,
        }
    }

    /// Floats in a row of queries.
    pub(crate) fn query_width(&self) -> usize {
        match self.keys {
            Keys::Other { .. } => self.heads.heads * self.heads.width,
            Keys::Own | Keys::Part { .. } => self.heads.packed(),
        }
    }

    /// Available keys of each sequence.
    pub(crate) fn held(&self) -> usize {
        match self.keys {
            Keys::Own => self.t,
            Keys::Part { kv, .. } | Keys::Other { kv, .. } => kv.dims()[0] / self.b.max(1),
        }
    }

    /// Keys of a whole sequence.
    pub(crate) fn total(&self) -> usize {
        match self.keys {
            Keys::Own => self.t,
            Keys::Part { time, .. } | Keys::Other { time, .. } => time,
        }
    }

    /// One past the last available key that some row may attend to, ignoring the bounds; at least the first.
    pub(crate) fn visible(&self) -> usize {
        let (start, first) = (self.keys.start(), self.keys.first());
        let end = start + self.held();
        if self.mask.is_causal {
            end.min(first + self.t).max(start)
        } else {
            end
        }
    }

    /// Checks all of the call and the queries' tensor.
    pub(crate) fn check(&self, op: &'static str, qkv: &Tensor) -> Result<()> {
        self.numbers.expect_on(op, qkv.device())?;
        self.check_factor(op, ("qkv", qkv), self.query_width())?;
        self.check_keys(op)?;
        self.scores.check(op, self.bias.is_some())?;
        self.check_alibi(op)?;
        if let Some(bounds) = self.mask.bounds
            && bounds.len() != self.b * self.t
        {
            let wanted = format!("{} * {}, one per query row", self.b, self.t);
            return refuse(op, "bounds", bounds.len().to_string(), wanted);
        }
        if let Some(bias) = &self.bias {
            bias.check(op, ("table", bias.table), self.heads.heads)?;
        }
        check_sinks(op, self.sinks, self.heads)?;
        self.check_dropout(op)
    }

    /// Checks rows that products read, one per query: f32, or bf16 if the products are of that.
    pub(crate) fn check_factor(
        &self,
        op: &'static str,
        x: (&'static str, &Tensor),
        cols: usize,
    ) -> Result<()> {
        let dims = [self.b * self.t, cols];
        if self.numbers.are_pairs() {
            return check_number_rows(op, x, self.heads, dims);
        }
        check_rows(op, x, self.heads, dims)
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
        let (Keys::Part {
            kv, time, start, ..
        }
        | Keys::Other {
            kv, time, start, ..
        }) = self.keys
        else {
            return Ok(());
        };
        kv.expect(op, "kv", DType::F32)?;
        let width = self.heads.kv_width();
        if kv.expect_rows(op, "kv")?.1 != width || !kv.dims()[0].is_multiple_of(self.b.max(1)) {
            return Err(Error::Shape {
                op,
                name: "kv",
                found: kv.dims().to_vec(),
                wanted: format!("[{} * keys at hand, {width}]", self.b),
            });
        }
        if start.saturating_add(self.held()) > time {
            let wanted = format!("at most {time} - {}, the keys at hand", self.held());
            return refuse(op, "start", start.to_string(), wanted);
        }
        if self.block > 0 && !start.is_multiple_of(self.block) {
            let wanted = format!("a multiple of {}, the keys of a block", self.block);
            return refuse(op, "start", start.to_string(), wanted);
        }
        Ok(())
    }

    fn check_alibi(&self, op: &'static str) -> Result<()> {
        let Some(alibi) = self.scores.alibi else {
            return Ok(());
        };
        if !self.mask.is_causal {
            let (found, wanted) = ("keys after a row", "a causal mask beside it");
            return refuse(op, "alibi", found.to_owned(), wanted.to_owned());
        }
        let positions = self.keys.first().saturating_add(self.t);
        alibi.check(op, self.heads.heads, positions.max(self.total()))
    }

    fn check_dropout(&self, op: &'static str) -> Result<()> {
        let Some(dropped) = self.dropout else {
            return Ok(());
        };
        let p = dropped.dropout.p;
        if !(0.0..1.0).contains(&p) {
            return refuse(op, "p", p.to_string(), "at least 0 and below 1".to_owned());
        }
        let end = self.keys.first().saturating_add(self.t).max(self.total());
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

/// Results of forward that backward needs, and the gradient of its output.
#[derive(Clone, Copy)]
pub struct Passed<'a> {
    /// `[b*t, heads*width]`, f32 or, if the call's numbers are, bf16.
    pub dout: &'a Tensor,
    /// `[b*t, heads*width]`
    pub out: &'a Tensor,
    /// `[b, heads, t]`
    pub lse: &'a Tensor,
    /// As forward's: `[b*t, packed]`, or `[b*t, heads*width]` with keys of another sequence.
    pub qkv: &'a Tensor,
    /// Rotary embedding of the packed queries and keys: their gradients are rotated back, in f32, before they are
    /// stored.
    pub turn: Option<Turn<'a>>,
}

/// The next position of every sequence, for `decode`.
#[derive(Clone, Copy)]
pub struct Next<'a> {
    /// Heads and the layout of packed rows.
    pub heads: &'a Heads,
    /// Rows that the caches hold already.
    pub position: usize,
    /// First key that is seen.
    pub first_key: usize,
    /// As in `Call`.
    pub block: usize,
    /// As in `Call`.
    pub numbers: Numbers,
    /// As in `Call`.
    pub scores: Scores,
    /// As in `Call`.
    pub bias: Option<Bias<'a>>,
    /// As in `Call`.
    pub sinks: Option<&'a Tensor>,
}

/// Checks that there is one sink per head.
pub(crate) fn check_sinks(op: &'static str, sinks: Option<&Tensor>, heads: &Heads) -> Result<()> {
    sinks.map_or(Ok(()), |sinks| {
        sinks.expect_f32(op, "sinks", &[heads.heads])
    })
}
