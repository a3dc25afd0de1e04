//! Attention on packed q, k, v: out_i = sum_j softmax_j(q_i k_j / sqrt(e)) v_j over the keys that row i
//! sees, a contiguous range: causal, within a window, of its document, or all (`Mask`).
//! Papers: Vaswani et al. 2017, arXiv:1706.03762; grouped queries: Ainslie et al. 2023, arXiv:2305.13245;
//! windows: Beltagy et al. 2020, arXiv:2004.05150. Dropout of the probabilities after the softmax.
//!
//! We differ from flash attention: a row's scores are all held (a block of query rows times the keys it
//! visits), so its softmax has one fixed order, 16 lane sums by key number, and weighted values are one
//! chain over ascending keys. A row's bits depend on no other row: `decode` gives the bits of `forward`,
//! and a part of the rows (context parallelism) those of the whole. Gradients of keys and values are sums
//! over leaves of query rows in the tree of `reduce`, so that parts aligned with it add up to the whole's
//! bits. Keys that no row of a block sees are not visited.

mod cpu;
#[cfg(test)]
mod masks;
#[cfg(test)]
mod tests;

use crate::ops::dropout::{Constants, Dropout};
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

/// The keys and values that a part of each sequence's query rows may see.
#[derive(Clone, Copy)]
pub struct Keys<'a> {
    /// `[b * time, kv_width]`: those of whole sequences, as `take_kv` gives them.
    pub kv: &'a Tensor,
    /// Rows of a whole sequence.
    pub time: usize,
    /// Position of the part's first row.
    pub first: usize,
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
        reason = "check_call holds heads below 2^32"
    )]
    fn of_head(&self, head: usize) -> Constants {
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
    /// Keys of whole sequences, where the query rows are a part of them; `None`: the packed ones.
    pub keys: Option<Keys<'a>>,
    /// Who sees what.
    pub mask: Mask<'a>,
    /// `None` or p = 0 in evaluation.
    pub dropout: Option<Dropped>,
}

impl<'a> Call<'a> {
    /// Every key up to the row, nothing dropped.
    pub fn causal(heads: &'a Heads, b: usize, t: usize) -> Call<'a> {
        Call {
            heads,
            b,
            t,
            keys: None,
            mask: Mask::CAUSAL,
            dropout: None,
        }
    }
}

/// Returns out and the log of each row's sum of exponentials (0 where a row sees no key). With `keys`
/// they are the bits of those rows of the whole.
/// # Shapes
/// qkv: `[b*t, packed]` -> out: `[b*t, heads*width]` in head order, lse: `[b, heads, t]`.
/// # Errors
/// `Shape`, `DType` or `Argument` if they do not fit; `Memory` for scratch.
pub fn forward(qkv: &Tensor, call: &Call<'_>) -> Result<(Tensor, Tensor)> {
    check_call("attention::forward", qkv, call)?;
    let (heads, n) = (call.heads, call.b * call.t);
    let mut out = Tensor::empty(&[n, heads.heads * heads.width], DType::F32, qkv.device())?;
    let mut lse = Tensor::empty(&[call.b, heads.heads, call.t], DType::F32, qkv.device())?;
    dispatch!(qkv.device(), forward(&mut out, &mut lse, qkv, call))?;
    Ok((out, lse))
}

/// What backward needs of forward, and the gradient of its result.
#[derive(Clone, Copy)]
pub struct Passed<'a> {
    /// `[b*t, heads*width]`
    pub dout: &'a Tensor,
    /// `[b*t, heads*width]`
    pub out: &'a Tensor,
    /// `[b, heads, t]`
    pub lse: &'a Tensor,
    /// `[b*t, packed]`
    pub qkv: &'a Tensor,
}

/// Returns dqkv, packed as qkv. Gradients of k and v are sums over leaves of `leaf` query rows (0: one
/// leaf) in the tree of `reduce`; a leaf is one chain over a group's query heads and ascending rows.
///
/// With `keys`, dqkv's keys and values are 0, and the second tensor is their gradient from this part,
/// `[b * time, kv_width]`. Parts of whole leaves add up, in the same tree, to the bits of the whole.
/// # Errors
/// `Shape`, `DType` or `Argument` if they do not fit; `Memory` for scratch.
pub fn backward(
    passed: &Passed<'_>,
    call: &Call<'_>,
    leaf: usize,
) -> Result<(Tensor, Option<Tensor>)> {
    check_passed("attention::backward", passed, call)?;
    let Passed {
        dout,
        out,
        lse,
        qkv,
    } = *passed;
    let device = qkv.device();
    let mut dqkv = Tensor::empty(qkv.dims(), DType::F32, device)?;
    let dkv = call
        .keys
        .map(|keys| Tensor::empty(keys.kv.dims(), DType::F32, device));
    let mut dkv = dkv.transpose()?;
    let outs = (&mut dqkv, dkv.as_mut());
    dispatch!(device, backward(outs, (dout, out, lse), qkv, call, leaf))?;
    Ok((dqkv, dkv))
}

/// Returns the keys and values of packed rows: `[n, packed]` -> `[n, kv_width]`.
/// # Errors
/// `Shape`, `DType` or `Argument` if they do not fit.
pub fn take_kv(qkv: &Tensor, heads: &Heads) -> Result<Tensor> {
    const OP: &str = "attention::take_kv";
    heads.check(OP)?;
    let (n, _) = qkv.expect_rows(OP, "qkv")?;
    check_packed(OP, qkv, heads, n, 1)?;
    let mut kv = Tensor::empty(&[n, heads.kv_width()], DType::F32, qkv.device())?;
    let groups = qkv.f32().chunks_exact(heads.group_width());
    for (to, from) in kv.f32_mut().chunks_exact_mut(2 * heads.width).zip(groups) {
        to.copy_from_slice(&from[heads.per_group() * heads.width..]);
    }
    Ok(kv)
}

/// Replaces the keys and values of packed rows by `kv`, as `take_kv` gives them.
/// # Errors
/// As `take_kv`.
pub fn put_kv(qkv: &mut Tensor, kv: &Tensor, heads: &Heads) -> Result<()> {
    const OP: &str = "attention::put_kv";
    heads.check(OP)?;
    let (n, _) = qkv.expect_rows(OP, "qkv")?;
    check_packed(OP, qkv, heads, n, 1)?;
    kv.expect_f32(OP, "kv", &[n, heads.kv_width()])?;
    let groups = qkv.f32_mut().chunks_exact_mut(heads.group_width());
    for (to, from) in groups.zip(kv.f32().chunks_exact(2 * heads.width)) {
        to[heads.per_group() * heads.width..].copy_from_slice(from);
    }
    Ok(())
}

fn check_passed(op: &'static str, passed: &Passed<'_>, call: &Call<'_>) -> Result<()> {
    check_call(op, passed.qkv, call)?;
    let (heads, n) = (call.heads, call.b * call.t);
    for (name, x) in [("dout", passed.dout), ("out", passed.out)] {
        x.expect(op, name, DType::F32)?;
        if x.rows_cols() != (n, heads.heads * heads.width) {
            let wanted = format!("[{n}, {}]", heads.heads * heads.width);
            return Err(Error::Shape {
                op,
                name,
                found: x.dims().to_vec(),
                wanted,
            });
        }
    }
    passed
        .lse
        .expect_f32(op, "lse", &[call.b, heads.heads, call.t])
}

fn check_call(op: &'static str, qkv: &Tensor, call: &Call<'_>) -> Result<()> {
    let argument = |name, found: String, wanted: String| {
        Err(Error::Argument {
            op,
            name,
            found,
            wanted,
        })
    };
    let (b, t) = (call.b, call.t);
    check_packed(op, qkv, call.heads, b, t)?;
    let mut end = t;
    if let Some(keys) = call.keys {
        end = keys.first.saturating_add(t);
        if end > keys.time {
            let wanted = format!("at most {} - {t}, the part's rows", keys.time);
            return argument("first", keys.first.to_string(), wanted);
        }
        let dims = [b * keys.time, call.heads.kv_width()];
        keys.kv.expect_f32(op, "kv", &dims)?;
    }
    if let Some(bounds) = call.mask.bounds
        && bounds.len() != b * t
    {
        let wanted = format!("{b} * {t}, one per query row");
        return argument("bounds", bounds.len().to_string(), wanted);
    }
    let Some(dropped) = call.dropout else {
        return Ok(());
    };
    let p = dropped.dropout.p;
    if !(0.0..1.0).contains(&p) {
        return argument("p", p.to_string(), "at least 0 and below 1".to_owned());
    }
    if u32::try_from(end).is_err() {
        return argument("t", end.to_string(), "positions below 2^32".to_owned());
    }
    let heads = u32::try_from(call.heads.heads).ok();
    if (heads.and_then(|heads| dropped.first_head.checked_add(heads))).is_none() {
        let found = dropped.first_head.to_string();
        return argument("first_head", found, "below 2^32 - heads".to_owned());
    }
    if dropped.sequence.checked_add(b as u64).is_none() {
        let found = dropped.sequence.to_string();
        return argument("sequence", found, "below 2^64".to_owned());
    }
    Ok(())
}

/// Appends one row per sequence to the caches at `position` and returns its attention over the keys from
/// `first_key` up to it. Rotary positions, if any, are applied before.
/// # Shapes
/// q_packed: `[b, packed]`, k_cache and v_cache: `[b, kv_heads, max_t, width]` -> `[b, heads*width]`.
/// # Errors
/// `Shape`, `DType` or `Argument` if they do not fit or the cache is full; `Memory` for scratch.
pub fn decode(
    q_packed: &Tensor,
    k_cache: &mut Tensor,
    v_cache: &mut Tensor,
    (position, first_key): (usize, usize),
    heads: &Heads,
) -> Result<Tensor> {
    const OP: &str = "attention::decode";
    heads.check(OP)?;
    let (b, _) = q_packed.expect_rows(OP, "q_packed")?;
    check_packed(OP, q_packed, heads, b, 1)?;
    k_cache.expect(OP, "k_cache", DType::F32)?;
    let wanted = |max_t| [b, heads.kv_heads, max_t, heads.width];
    match *k_cache.dims() {
        [_, _, max_t, _] if k_cache.dims() == wanted(max_t) => {
            v_cache.expect_f32(OP, "v_cache", k_cache.dims())?;
            for (name, found, limit) in [
                ("position", position, max_t),
                ("first_key", first_key, position + 1),
            ] {
                if found >= limit {
                    return Err(Error::Argument {
                        op: OP,
                        name,
                        found: found.to_string(),
                        wanted: format!("below {limit}"),
                    });
                }
            }
        }
        _ => {
            let found = k_cache.dims().to_vec();
            let wanted = format!("[{b}, {}, max_t, {}]", heads.kv_heads, heads.width);
            return Err(Error::Shape {
                op: OP,
                name: "k_cache",
                found,
                wanted,
            });
        }
    }
    let width = heads.heads * heads.width;
    let mut out = Tensor::empty(&[b, width], DType::F32, q_packed.device())?;
    dispatch!(
        q_packed.device(),
        decode(
            &mut out,
            q_packed,
            (k_cache, v_cache),
            (position, first_key),
            heads
        )
    )?;
    Ok(out)
}

fn check_packed(op: &'static str, qkv: &Tensor, heads: &Heads, b: usize, t: usize) -> Result<()> {
    heads.check(op)?;
    if qkv.expect_rows(op, "qkv")? == (b * t, heads.packed()) {
        return Ok(());
    }
    let wanted = format!("[{b} * {t}, {}]", heads.packed());
    Err(Error::Shape {
        op,
        name: "qkv",
        found: qkv.dims().to_vec(),
        wanted,
    })
}
